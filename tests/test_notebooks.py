"""Every notebook runs from top to bottom, and is committed with the outputs of the code that stands in it."""

import ast
import json
import re
from contextlib import redirect_stdout
from decimal import Decimal
from io import StringIO
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import pytest
import torch

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
MOST_BYTES = 400_000
AGAIN = "run python -m notebooks, and read what stands around the outputs"
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def depends_on_machine(cell: dict) -> bool:
    """Whether a cell says that it shows another thing on another machine (a GPU, data that may be there)."""
    return "depends-on-machine" in cell["metadata"].get("tags", [])


def printed(cell: dict) -> str:
    streams = [output for output in cell["outputs"] if output["output_type"] == "stream"]
    return "".join("".join(output["text"]) for output in streams)


def words(text: str) -> str:
    """A text without its numbers."""
    return re.sub(r"(\d(e[+-])?|[\s.+±-])+", " ", text)


def numbers(text: str) -> list[str]:
    """Its numbers."""
    return re.findall(r"\d+(?:\.\d+)?(?:e[+-]\d+)?", text)


def about(number: str) -> object:
    """A number to a hundredth, or a unit of its last digit: those differ from one processor to another."""
    unit = Decimal(1).scaleb(Decimal(number).as_tuple().exponent)
    return pytest.approx(float(number), rel=0.01, abs=1.001 * float(unit))


def wants_output(cell: dict) -> bool:
    """Whether a cell ends in an expression to be shown."""
    source = "".join(cell["source"]).rstrip()
    last = ast.parse(source).body[-1]
    silent = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and _name(last.value) == "print"
    return isinstance(last, ast.Expr) and not source.endswith(";") and not silent


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


@each
def test_the_committed_outputs_are_those_of_a_whole_run(path: Path) -> None:
    cells = cells_of(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]  # warnings
    for cell in cells:
        source = "".join(cell["source"])
        shown = {kind for output in cell["outputs"] for kind in output.get("data", {})}
        assert not wants_output(cell) or shown, source
        assert "plt.subplots(" not in source or "image/png" in shown, source
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.sampled(2)
@each
def test_the_notebook_runs_and_prints_what_it_is_committed_with(path: Path, monkeypatch) -> None:
    matplotlib.use("agg")
    monkeypatch.delenv("BANDITS_TORCH_DATA", raising=False)
    default = torch.get_default_dtype()
    namespace: dict[str, object] = {}
    try:
        for cell in cells_of(path):
            out = StringIO()
            with redirect_stdout(out):
                exec(compile("".join(cell["source"]), path.name, "exec"), namespace)
            if not depends_on_machine(cell):
                assert words(out.getvalue()) == words(printed(cell))
                shown = list(map(about, numbers(printed(cell))))
                assert list(map(float, numbers(out.getvalue()))) == shown, AGAIN
    finally:
        matplotlib.pyplot.close("all")
        torch.set_default_dtype(default)


@each
def test_a_notebook_begins_with_a_title_and_a_word_on_what_it_shows(path: Path) -> None:
    first = json.loads(path.read_text())["cells"][0]
    title, _, rest = "".join(first["source"]).partition("\n\n")
    assert first["cell_type"] == "markdown"
    assert title.startswith("# ")
    assert len(rest) > 60


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 6

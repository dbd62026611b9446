"""Every notebook's code runs from top to bottom, and the notebook is committed with its outputs."""

import json
from pathlib import Path

import matplotlib
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_its_outputs(path: Path) -> None:
    matplotlib.use("agg")
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])
    assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
    namespace: dict[str, object] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), path.name, "exec"), namespace)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS

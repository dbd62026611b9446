"""The tracer counts what runs, and a step of the recipes runs through no more than it did."""

import importlib
import sys

import pytest

from benchmarks.speed.step_trace import Executed, of_botorch, of_recipe

SOURCE = """
def called(x):
    if x > 1:
        x = 2 * x
    else:
        x = 0
    return x


def not_called():
    return 1


def twice(x):
    return [called(x), called(x)]
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "traced"
    folder.mkdir()
    (folder / "__init__.py").write_text("from traced.part import called, twice\n")
    (folder / "part.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("traced")
    for name in ("traced", "traced.part"):
        sys.modules.pop(name)


def test_files_functions_and_lines_are_counted_once_and_of_the_package_alone(package):
    before = sys.gettrace()
    with Executed(package) as executed:
        package.twice(3)
        sorted([2, 1], key=lambda x: -x)
    assert executed.counts() == {"files": 1, "functions": 2, "lines": 4}
    assert sys.gettrace() is before
    with executed:
        package.called(0)
    assert executed.counts() == {"files": 1, "functions": 2, "lines": 5}  # and the other branch


@pytest.fixture(scope="module")
def theirs():
    """What a step of BoTorch runs through, in its own packages."""
    counts = of_botorch().counts()
    assert counts["files"] > 30
    return counts


@pytest.mark.parametrize("name", ["sw_gp_ucb", "igp_ucb", "pe_gp_ucb"])
def test_a_step_runs_through_a_fifth_of_the_lines_of_botorch_s_and_a_quarter_of_its_functions(name, theirs):
    ours = of_recipe(name).counts()
    assert 5 * ours["lines"] <= theirs["lines"]
    assert 4 * ours["functions"] <= theirs["functions"]
    assert 3 * ours["files"] <= theirs["files"]
    assert ours["lines"] > 50  # it did run

"""The benchmark of Hong et al.: its short form, how it counts detections, and how it tunes."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bandits_torch import History, recipes
from bandits_torch.policies import Constants, MasterThresholds
from benchmarks.papers import __main__ as papers
from benchmarks.papers import _hong_environments as of
from benchmarks.papers import hong

GRID_SIZE = 18


def chosen(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The setting of each algorithm that a table of tuning ends with."""
    rows = table[table["chosen"] == "chosen"]
    return {a: json.loads(setting) for a, setting in zip(rows["algorithm"], rows["setting"], strict=True)}


def as_raced(algorithm: str) -> dict[str, Any]:
    """The setting that the reported runs have, in the terms of ``TUNING``."""
    if algorithm == "ADA-OPKB":
        held: dict[str, Any] = vars(Constants.tuned())
    elif algorithm == "MASTER":
        held = vars(MasterThresholds.calibrated()) | of.ALGORITHMS["MASTER"][1]
    else:
        held = of.ALGORITHMS[algorithm][1]
    return {option: held[option] for option in of.TUNING[algorithm].start}


@pytest.mark.slow
def test_short_form_writes_tables_pictures_and_page_and_keeps_what_was_played(tmp_path: Path) -> None:
    asked = ["hong", "correlated", "theory", "--fast", "--out", str(tmp_path)]
    papers.main(asked)
    for name in ("correlated-d2", "correlated-d3"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    table = pd.read_csv(tmp_path / "regret.csv")
    assert list(table["algorithm"]) == 2 * hong.RACES["correlated"]["correlated-d2"]
    assert len(pd.read_csv(tmp_path / "totals.csv")) == 2 * len(table)
    page = (tmp_path / "RESULTS.md").read_text()
    assert "## correlated-d2" in page
    assert "nothing is ever exploited" in page
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    papers.main(asked)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}


def test_detection_part_counts_what_the_histories_hold(tmp_path: Path) -> None:
    papers.main(["hong", "detection", "--fast", "--out", str(tmp_path)])
    assert len(pd.read_csv(tmp_path / "false_alarms.csv")) == 12
    delays = pd.read_csv(tmp_path / "delays.csv")
    assert len(delays) == 6
    assert (delays["missed"] <= delays["replicates"]).all()
    page = (tmp_path / "RESULTS.md").read_text()
    assert "## False alarms and delays" in page
    assert "## What the paper says" not in page  # which nothing was played for


@pytest.mark.parametrize("algorithm", list(of.ALGORITHMS))
def test_every_algorithm_has_a_recipe_that_takes_its_options(algorithm: str) -> None:
    recipe, options = of.ALGORITHMS[algorithm]
    assert set(options) <= set(recipes.options_of(recipe))


@pytest.mark.parametrize("name", list(of.ENVIRONMENTS))
def test_every_environment_can_be_made(name: str) -> None:
    problem, switches = of.environment(name, 100, 1)
    assert getattr(problem, "switches", switches) == switches


@pytest.mark.parametrize("searches", [of.TUNING, of.EQUAL_GRIDS])
def test_every_grid_is_of_options_that_the_start_has(searches: dict[str, of.Search]) -> None:
    for recipe, start, grid, _ in searches.values():
        assert set(grid) <= set(start)
        assert set(of.options_of(recipe, start)) <= set(recipes.options_of(recipe))


def test_equal_grids_try_as_many_settings_of_each_algorithm() -> None:
    for _, start, grid, _ in of.EQUAL_GRIDS.values():
        values = [(option, value) for option, values in grid.items() for value in values]
        assert len(set(values)) == len(values) == GRID_SIZE
        assert all(start[option] != value for option, value in values)


def test_search_keeps_the_best_value_of_each_option_in_turn_and_asks_once() -> None:
    asked: list[dict[str, int]] = []

    def score(option: str, setting: dict[str, int]) -> float:
        asked.append(setting)
        return (setting["a"] - 2) ** 2 + (setting["b"] - setting["a"]) ** 2

    best = of.search({"a": (0, 1, 2), "b": (0, 2, 5)}, {"a": 0, "b": 0}, score)
    assert best == {"a": 1, "b": 0}, "at b = 0 the best a is 1; at a = 1 b = 0 and b = 2 are level"
    assert len(asked) == 5


def test_settings_that_are_raced_are_those_that_were_chosen() -> None:
    """tuning.csv, written by the search, against the code."""
    table = pd.read_csv(Path(hong.__file__).parent / "results" / "hong" / "tuning.csv")
    for algorithm, setting in chosen(table).items():
        assert as_raced(algorithm) == setting


def test_what_the_equal_grids_chose_is_raced() -> None:
    """grids.csv, written by the search, against the code: where nothing new was chosen the old run stands for both."""
    table = pd.read_csv(Path(hong.__file__).parent / "results" / "hong" / "grids.csv")
    settings = chosen(table)
    assert set(settings) == set(of.EQUAL_GRIDS)
    for algorithm, setting in settings.items():
        name = f"{algorithm}{of.EQUAL}"
        raced = of.ALGORITHMS[name if name in of.ALGORITHMS else algorithm]
        recipe = of.EQUAL_GRIDS[algorithm].recipe
        assert raced == (recipe, of.options_of(recipe, setting))
    tried = table[~table["option"].isin(["start", "all"])].groupby("algorithm").size()
    assert set(tried) == {GRID_SIZE}


def test_first_detection_after_a_change_is_its_own_and_the_others_are_false_alarms() -> None:
    detected = torch.zeros(2, 100, dtype=torch.float64)
    for replicate, step in ((0, 10), (0, 35), (0, 60), (1, 32), (1, 80)):
        detected[replicate, step - 1] = 1
    zeros = torch.zeros(2, 100, dtype=torch.float64)
    trace = {"detected": detected, "restarts": detected.cumsum(-1)}
    history = History(zeros.long(), zeros, zeros, zeros, torch.arange(1.0, 101), torch.zeros(100), trace)
    found = of.detections(history, [30, 70])
    assert found["false_alarms"] == 1.0  # steps 10 and 60 of replicate 0
    assert found["missed"] == 0.5  # the change at 70 in replicate 0
    assert found["median_delay"] == 5.0  # of 5, 2 and 10
    assert found["restarts"] == 2.5


def test_rows_of_runs_that_are_there_no_more_stay_in_their_place(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    names = [("cosine-stationary", "OPNN0"), ("slow-drift", "MASTER")]
    pd.DataFrame([(*name, 1.0) for name in names], columns=["environment", "algorithm", "regret"]).to_csv(
        path
    )
    new = [("slow-drift", "MASTER", 7.0), ("cosine-stationary", "OPNN", 2.0)]
    table = hong._beside_kept(pd.DataFrame(new, columns=["environment", "algorithm", "regret"]), path)
    assert list(table["algorithm"]) == ["OPNN", "OPNN0", "MASTER"]
    assert list(table["regret"]) == [2.0, 1.0, 7.0]


def test_replicates_are_the_papers_where_nothing_else_is_asked() -> None:
    assert of.replicates_of("cosine-stationary", "OPKB") == 50
    assert of.replicates_of("cosine-stationary", "OPNN, m = 2048") == 3
    assert of.replicates_of("cosine", "WGP-UCB") == 25
    assert of.replicates_of("cosine-stationary", "OPKB", 7) == 7

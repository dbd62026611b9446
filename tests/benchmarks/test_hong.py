"""The benchmark of Hong et al. in its short form, and how it counts detections."""

from pathlib import Path

import pytest
import torch

from bandits_torch.history import History
from benchmarks.papers import hong


def test_short_form_writes_table_page_and_picture(tmp_path: Path) -> None:
    asked = [
        "--horizon",
        "40",
        "--replicates",
        "2",
        "--environments",
        "correlated-d2",
        "--folder",
        str(tmp_path),
    ]
    rows = hong.main([*asked, "--algorithms", "SW-GP-UCB", "ADA-OPKB tuned", "ADA-OPKB calibrated"])
    assert [row["algorithm"] for row in rows] == ["SW-GP-UCB", "ADA-OPKB tuned", "ADA-OPKB calibrated"]
    assert (tmp_path / "hong_correlated-d2.png").stat().st_size > 1000
    hong.main([*asked, "--algorithms", "MASTER"])
    table = (tmp_path / "hong.csv").read_text().splitlines()
    assert len(table) == 5, "rows of an earlier run are kept"
    assert len((tmp_path / "hong.md").read_text().splitlines()) == 13 + 4


@pytest.mark.parametrize("algorithm", list(hong.ALGORITHMS))
def test_every_algorithm_has_a_recipe_that_takes_its_options(algorithm: str) -> None:
    recipe, options = hong.ALGORITHMS[algorithm]
    assert set(options) <= set(hong.recipes.options_of(recipe))


@pytest.mark.parametrize("name", list(hong.ENVIRONMENTS))
def test_every_environment_can_be_made(name: str) -> None:
    problem, switches = hong.environment(name, 100, 1)
    assert getattr(problem, "switches", switches) == switches


def test_first_detection_after_a_change_is_its_own_and_the_others_are_false_alarms() -> None:
    detected = torch.zeros(2, 100, dtype=torch.float64)
    for replicate, step in ((0, 10), (0, 35), (0, 60), (1, 32), (1, 80)):
        detected[replicate, step - 1] = 1
    zeros = torch.zeros(2, 100, dtype=torch.float64)
    trace = {"detected": detected, "restarts": detected.cumsum(-1)}
    history = History(zeros.long(), zeros, zeros, zeros, torch.arange(1.0, 101), torch.zeros(100), trace)
    found = hong.detections(history, [30, 70])
    assert found["false_alarms"] == 1.0  # steps 10 and 60 of replicate 0
    assert found["missed"] == 0.5  # the change at 70 in replicate 0
    assert found["median_delay"] == 5.0  # of 5, 2 and 10
    assert found["restarts"] == 2.5

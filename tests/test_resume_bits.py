"""A run that is taken up again, wherever it stopped, is the run that never stopped, to the last bit of its trace."""

import shutil

import pytest
import torch

from bandits_torch import recipes, run
from bandits_torch.checkpoint import RunCheckpoint
from bandits_torch.problems import ContinuousProblem
from tests.reference import all_recipes
from tests.reference.asking import bits
from tests.reference.kill_runs import record

ARMS = {"auto-cycles": 12, "auto-control": 30}  # where a hundred make files of hundreds of megabytes


def unlike(build, folder, monkeypatch, steps, stops):
    """(stop, what differs) of resumes from copies of a run's checkpoint, made as it went by."""
    path, after = folder / "run", RunCheckpoint.after

    def copy_after(self, step):
        self.every = 1 if step in stops else steps  # a file that is not copied shows nothing
        after(self, step)
        if step in stops and self.path == path:
            shutil.copy(path, folder / str(step))

    monkeypatch.setattr(RunCheckpoint, "after", copy_after)
    undisturbed = run(*build(), steps, seed=2, checkpoint=path)
    if "refits" in undisturbed.trace:
        assert undisturbed.trace["refits"][:, -1].min() >= 2
    if steps > 32 and "stale_mean" in undisturbed.trace:
        assert undisturbed.trace["dropped"][:, -1].min() >= 16
    found = []
    for stop in stops:
        resumed = run(*build(), steps, seed=2, checkpoint=folder / str(stop), every=steps)
        one, other = bits(record(resumed)), bits(record(undisturbed))
        assert one.keys() == other.keys()
        found += [(stop, key) for key in one if one[key] != other[key]]
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*recipes.RECIPES, *all_recipes.WITH_SETTINGS])
def test_every_recipe_resumes_bit_for_bit_at_every_stop(name, full, tmp_path, monkeypatch):
    steps, stops = (60, (3, 11, 19, 20, 33, 52)) if full else (27, (3, 21))
    build = lambda: all_recipes.build(name, 2, steps, num_arms=ARMS.get(name, 100))  # noqa: E731
    assert unlike(build, tmp_path, monkeypatch, steps, stops) == []


@pytest.mark.parametrize("name", ["tv_gp_ucb", "sw_gp_ucb"])
def test_so_do_those_that_learn_their_hyperparameters(name, tmp_path, monkeypatch):
    """Stopped before the first fit and after it."""
    build = lambda: all_recipes.build(f"{name}-learning", 2, 16)  # noqa: E731
    assert unlike(build, tmp_path, monkeypatch, 16, (3, 11)) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*all_recipes.OVER_POINTS, *all_recipes.OF_THEIR_OWN])
def test_so_do_those_over_points(name, tmp_path, monkeypatch):
    monkeypatch.setattr(ContinuousProblem, "best", lambda self, step: torch.ones(2).double())  # takes long
    steps, stops = (36, (6, 34)) if name == "tv_gp_ucb-stale" else (10, (2, 6))
    build = lambda: all_recipes.build_over_points(name, 2, steps)  # noqa: E731
    assert unlike(build, tmp_path, monkeypatch, steps, stops) == []

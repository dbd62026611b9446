"""Variances of a few arms of a sketch, followed from pull to pull, against those of all arms."""

import copy

import pytest
import torch

from bandits_torch.models import LeverageSampling, SketchedGP
from bandits_torch.models.sketch.sketch import WatchedArms
from bandits_torch.problems import GPDraws


@pytest.fixture
def sketch():
    problem = GPDraws(num_arms=60, dim=2, lengthscale=0.2, noise_scale=0.1, seed=4)
    model = SketchedGP(
        problem.arms, problem.knowledge.kernel, 0.01, sampling=LeverageSampling.practical(2.0, 3.0)
    )
    return model.sketches[0]


def expected(sketch, arms):
    """The variance of all arms anew, from a copy that is brought up to date."""
    other = copy.deepcopy(sketch)
    other.marginals.settle(False)
    return other.moments()[1][arms].clamp_min(0.0)


def events(sketch, count, seed=0):
    """Pulls at random, with a pass over all arms now and then; yields after each."""
    generator = torch.Generator().manual_seed(seed)
    for k in range(count):
        arm = int(torch.randint(60, (), generator=generator))
        sketch.observe(arm, torch.randn((), generator=generator, dtype=torch.float64))
        if k % 7 == 6:
            sketch.moments()
        yield k


def test_they_follow_pulls_passes_over_all_arms_and_dictionaries(sketch):
    watched, draws = WatchedArms(sketch, torch.tensor([5, 17, 2])), set()
    for k in events(sketch, 60):
        draws.add(sketch.draws)
        if k == 30:
            watched.join(torch.tensor([40, 3]))
        if k % 3:  # so that several pulls are taken up at once
            close = expected(sketch, watched.arms)
            torch.testing.assert_close(watched.variance(), close, rtol=0, atol=1e-10)
    assert watched.arms.tolist() == [5, 17, 2, 40, 3]
    assert len(watched) == 5
    assert len(draws) > 5

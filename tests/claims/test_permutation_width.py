"""A batch in random order estimates the average of a function that drifts, within the width that the order proves."""

import functools

import pytest
import torch

from bandits_torch.models import ArmGP
from bandits_torch.theory import DriftAwareWidth, PermutationWidth, RealisedInformationWidth

RUNS, ARMS, SIZE, DELTA, SCALE = 200, 20, 2000, 0.1, 0.1
X = torch.linspace(0, 1, ARMS, dtype=torch.float64)
K = torch.exp(-((X[:, None] - X) ** 2) / (2 * 0.02**2))
V = 2.0


@functools.cache
def batch(shuffled):
    """Posterior of one batch of f_t = V/2, later -V/2, of average 0: the same arms, in order or shuffled."""
    generator = torch.Generator().manual_seed(1)
    order = torch.rand(RUNS, SIZE, generator=generator).argsort(-1) if shuffled else torch.arange(SIZE)
    arms = (torch.arange(SIZE) * ARMS // SIZE).expand(RUNS, -1).gather(-1, order.expand(RUNS, -1))
    level = torch.where(torch.arange(SIZE) < SIZE // 2, V / 2, -V / 2)
    noise = SCALE * torch.randn(RUNS, SIZE, generator=generator, dtype=torch.float64)
    model = ArmGP(ARMS, K, SCALE**2, batch_shape=(RUNS,), form="covariance")
    for t in range(SIZE):
        model.observe_arms(arms[:, t], level[t] + noise[:, t])
    return model


def covered(model, width):
    mean, variance = model.marginals()
    return (mean.abs() <= width(1, model).unsqueeze(-1) * variance.sqrt()).all(-1).double().mean().item()


@pytest.mark.parametrize("drift", [V, 0.0])
def test_width_covers_the_average_once_it_is_told_the_drift(drift):
    model = batch(True)
    held = covered(model, PermutationWidth(ARMS, 1, 0.0, SCALE, DELTA, drift))
    assert held >= 1 - DELTA if drift else held < 1 - DELTA


def test_random_order_is_what_makes_it_so():
    model = batch(False)
    assert covered(model, PermutationWidth(ARMS, 1, 0.0, SCALE, DELTA, V)) < 0.5


def test_a_third_of_the_width_fails():
    model = batch(True)
    width = PermutationWidth(ARMS, 1, 0.0, SCALE, DELTA, V)
    assert covered(model, lambda step, held: width(step, held) / 3) < 1 - DELTA


def test_narrower_than_what_holds_for_any_order():
    model = batch(True)
    any_order = DriftAwareWidth(RealisedInformationWidth(0.0, SCALE, DELTA), V)
    assert (PermutationWidth(ARMS, 1, 0.0, SCALE, DELTA, V)(1, model) < 0.6 * any_order(1, model)).all()

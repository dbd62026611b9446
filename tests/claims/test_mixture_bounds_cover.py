"""Flynn & Reeb's bounds hold f at all steps and arms in 1 - delta of the runs, played by the bounds themselves.

200 runs side by side. Bounds half as wide about the mean miss in more than delta of them.
"""

import pytest
import torch

from bandits_torch.models import ArmGP
from bandits_torch.theory import DualMixtureWidth
from tests.reference.simulate_coverage import (
    assert_tight,
    coverage,
    functions_of_norm,
    kernel,
    moving_bumps,
    normal,
)

RUNS, ARMS, STEPS, WINDOW = 200, 15, 40, 12
DELTA, B, R = 0.1, 5.0, 0.5
X = torch.linspace(0, 1, ARMS, dtype=torch.float64)


K = kernel(X, X)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(5)


def needed(width, f, noise, noise_variance, window=None):
    """What multiple of the bounds' distance from the mean each run needed."""
    model = ArmGP(ARMS, K, noise_variance, batch_shape=(RUNS,), form="covariance")
    run, most = torch.arange(RUNS), torch.zeros(RUNS, dtype=torch.float64)
    for t in range(STEPS):
        lower, upper = width.bounds(model)
        mean = model.marginals()[0]
        above = (f[t] - mean) / (upper - mean).clamp_min(1e-12)
        below = (mean - f[t]) / (mean - lower).clamp_min(1e-12)
        most = torch.maximum(most, torch.maximum(above, below).amax(-1))
        arm = upper.argmax(-1)
        model.observe_arms(arm, f[t][run, arm] + noise[t])
        if window is not None and t >= window:
            model.forget()
    return most


def still(generator):
    return functions_of_norm(B, X, RUNS, generator).expand(STEPS, RUNS, ARMS)


@pytest.mark.parametrize("noise_variance", [R**2, 0.1, 1.0])
def test_bounds_cover_a_function_of_known_norm(noise_variance, generator):
    f, noise = still(generator), R * normal(generator, STEPS, RUNS)
    most = needed(DualMixtureWidth(B, R, DELTA), f, noise, noise_variance)
    assert_tight(most, DELTA)


def test_bounds_cover_under_bounded_noise_of_two_values(generator):
    f, noise = still(generator), R * normal(generator, STEPS, RUNS).sign()
    assert coverage(needed(DualMixtureWidth(B, R, DELTA), f, noise, R**2)) >= 1 - DELTA


def test_bounds_cover_in_a_window(generator):
    f, noise = still(generator), R * normal(generator, STEPS, RUNS)
    most = needed(DualMixtureWidth(B, R, DELTA, horizon=STEPS), f, noise, R**2, WINDOW)
    assert_tight(most, DELTA)


@pytest.mark.parametrize("window", [WINDOW, None])
def test_bounds_cover_a_function_that_moves_once_they_are_told_by_how_much(window, generator):
    """Without the drift they miss in most runs. Growing data need no horizon, the function may move or not."""
    scale = 0.1
    f, noise = (
        moving_bumps(B, X, RUNS, STEPS, 0.01 if window else 0.002, generator),
        scale * normal(generator, STEPS, RUNS),
    )
    held = STEPS - 1 if window is None else window
    drift = max(float((f[lag:] - f[:-lag]).abs().max()) for lag in range(1, held + 1))
    horizon = None if window is None else STEPS
    without, aware = (
        needed(DualMixtureWidth(B, scale, DELTA, horizon, V), f, noise, scale**2, window)
        for V in (0.0, drift)
    )
    assert coverage(without) < 0.5
    assert coverage(aware) >= 1 - DELTA

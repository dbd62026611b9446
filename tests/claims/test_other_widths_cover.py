"""The claim of every width that test_widths_cover leaves out: a dictionary's, a discount's, and those on continua.

mu_{t-1} +- width sigma_{t-1} holds f at all steps and points in 1 - delta of the runs, each a UCB run that the width
drives; a band narrower than the width by the factor shown does not hold.
"""

import math

import pytest
import torch
from torch import Tensor

from bandits_torch import ArmGP, UpperConfidenceBound, recipes
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import IndexPolicy, Observation
from bandits_torch.problems.simulated import make_kernel
from bandits_torch.theory import (
    IGPWidth,
    PriorEliminationContinuousWidth,
    RealisedGain,
    SrinivasContinuousWidth,
    Width,
)
from tests.reference.simulate_coverage import assert_tight, draws_of, functions_of_norm, normal

RUNS, ARMS, STEPS, LENGTHSCALE = 200, 50, 25, 0.2
DELTA, B, R = 0.1, 3.0, 0.3
X = torch.linspace(0, 1, ARMS, dtype=torch.float64).unsqueeze(-1)
KERNEL = make_kernel("se", LENGTHSCALE)
K = KERNEL(X).to_dense()
KNOWN = {"delta": DELTA, "rkhs_bound": B, "noise_scale": R, "replicates": RUNS}


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def width_needed(policy: IndexPolicy, f: Tensor, generator: torch.Generator) -> Tensor:
    """What multiple of its width each run of the policy needed, (RUNS,)."""
    needed = torch.zeros(RUNS, dtype=torch.float64)
    for t in range(1, STEPS + 1):
        mean, variance = policy.marginals(t)
        band = policy.width(t, policy.model).unsqueeze(-1) * variance.sqrt()
        needed = torch.maximum(needed, ((f - mean).abs() / band).amax(-1))
        choice = policy.choose(t)
        noise = R * normal(generator, RUNS)
        reward = f[torch.arange(RUNS), choice.arm] + noise
        policy.learn(Observation(t, choice.arm, reward, choice.why))
    return needed


@pytest.mark.slow
def test_bkb_width_covers_with_the_dictionary_of_the_theory(generator: torch.Generator) -> None:
    """Calandriello et al. 2019, Theorems 1 and 2, delta shared between them. Its bias part alone is 2 B and more."""
    policy = recipes.bkb(X, KERNEL, R**2, preset="theory", horizon=STEPS, **KNOWN)
    needed = width_needed(policy, functions_of_norm(B, X[:, 0], RUNS, generator), generator)
    assert_tight(needed, DELTA, 0.1)


@pytest.mark.parametrize("discount", [1.0, 0.95])
def test_weighted_width_covers_a_function_of_known_norm(discount: float, generator: torch.Generator) -> None:
    """Deng et al. 2022: sigma and the gain are those of the two weight matrices."""
    policy = recipes.w_gp_ucb(X, KERNEL, R**2, discount=discount, **KNOWN)
    needed = width_needed(policy, functions_of_norm(B, X[:, 0], RUNS, generator), generator)
    assert_tight(needed, DELTA)


def test_weighted_width_covers_each_step_and_several_with_a_share_of_delta_for_each(generator) -> None:
    """One arm, f = 0: the noise of a window of fixed weight is drawn anew for ever, so no bound holds at all steps."""
    steps, arm = 400, torch.zeros(RUNS, dtype=torch.long)
    model = WeightedGP(1, torch.eye(1).double(), 1.0, discount=0.9, batch_shape=(RUNS,))
    widths = [IGPWidth(0.0, 1.0, delta, RealisedGain()) for delta in (DELTA, DELTA / steps)]
    fails = []
    for t in range(1, steps + 1):
        model.observe_arms(arm, normal(generator, RUNS))
        mean, variance = (moment.squeeze(-1) for moment in model.marginals())
        fails.append(torch.stack([mean.abs() > width(t + 1, model) * variance.sqrt() for width in widths]))
    at_each, several = torch.stack(fails, -1).unbind()  # RUNS x steps each
    assert at_each.double().mean(0).max() <= DELTA < at_each.any(-1).double().mean()
    assert several.any(-1).double().mean() <= DELTA


STEEPEST = math.sqrt(2) / LENGTHSCALE  # b with a = 1: the derivative of a draw is N(0, 1/l^2) at every point
CONTINUOUS = [
    SrinivasContinuousWidth(1, 1.0, 1.0, STEEPEST, DELTA),
    PriorEliminationContinuousWidth(1, STEPS, 1.0, 1.0, STEEPEST, DELTA),
]


@pytest.mark.parametrize("width", CONTINUOUS, ids=["Srinivas", "prior elimination"])
def test_width_on_a_continuum_covers_a_draw_of_the_prior_on_a_fine_grid(width: Width, generator) -> None:
    """Srinivas et al. 2010, Theorem 2, and Ziomek et al. 2024, Theorem 4.1 B; steps of 0.1 lengthscales."""
    policy = IndexPolicy(ArmGP(X, KERNEL, R**2, batch_shape=(RUNS,)), UpperConfidenceBound, width=width)
    needed = width_needed(policy, draws_of(K, generator, RUNS), generator)
    assert_tight(needed, DELTA, 0.4)

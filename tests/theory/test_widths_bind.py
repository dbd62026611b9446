"""A fact has one home: a width reads window, interval and noise where they are kept, and a contradiction is refused."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import UpperConfidenceBound, recipes
from bandits_torch.models import ArmGP, CandidatePrior
from bandits_torch.policies import (
    IndexPolicy,
    KeepEverything,
    LikelihoodWindow,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.theory import (
    DriftAwareWidth,
    GPTSWidth,
    IGPWidth,
    RealisedGain,
    RealisedInformationWidth,
    RestartWidth,
    SlidingWindowWidth,
)

NOISE = 0.04
KERNEL = torch.eye(4, dtype=torch.float64) + 0.5


def policy(width, forgetting):
    model = ArmGP(4, KERNEL, NOISE, batch_shape=(2,))
    return IndexPolicy(model, UpperConfidenceBound, width=width, forgetting=forgetting)


def gain_of(n):
    return lambda points, model: model.noise_variance.new_tensor(float(points))


def test_a_window_is_read_from_the_rule():
    width = SlidingWindowWidth(horizon=100, gain=gain_of(1))
    for window in (3, 5):
        played = policy(width, SlidingWindow(window))
        expected = 1 + math.sqrt(2 * window + 2 * math.log(100 / 0.1))
        width_now = played.width(50, played.model)
        assert width_now.tolist() == pytest.approx([expected] * len(width_now))
    assert width.window is None  # one width serves both
    assert policy(width, LikelihoodWindow((4, 9))).width.window == 9
    around = policy(DriftAwareWidth(width, 0.3), SlidingWindow(3)).width
    assert around.base.window == 3
    assert around.drift == 0.3


def test_an_interval_is_read_from_the_rule():
    played = policy(RestartWidth(horizon=100), PeriodicRestart(30))
    assert played.width.num_intervals == 4
    told = policy(RestartWidth(4), PeriodicRestart(30))
    assert torch.equal(played.width(1, played.model), told.width(1, told.model))


@pytest.mark.parametrize(
    ("width", "forgetting", "message"),
    [
        (
            SlidingWindowWidth(50, 1000, noise_scale=0.7),
            SlidingWindow(200),
            "window of the width must be 200, .* got 50",
        ),
        (SlidingWindowWidth(50, 1000), LikelihoodWindow((4, 9)), "window of the width must be 9"),
        (
            SlidingWindowWidth(50, 1000),
            KeepEverything(),
            "window of the width must come from a forgetting rule",
        ),
        (SlidingWindowWidth(horizon=1000), None, "window of the width must come from a forgetting rule"),
        (
            DriftAwareWidth(SlidingWindowWidth(50, 1000), 0.1),
            SlidingWindow(20),
            "window of the width must be 20",
        ),
        (RestartWidth(3, horizon=100), PeriodicRestart(30), "num_intervals of the width must be 4, .* got 3"),
        (RestartWidth(horizon=100), SlidingWindow(30), "num_intervals of the width must come from"),
    ],
)
def test_a_contradiction_is_refused_when_the_policy_is_built(width, forgetting, message):
    with pytest.raises(ValueError, match=message):
        policy(width, forgetting)


@pytest.mark.parametrize("width", [SlidingWindowWidth(horizon=9), RestartWidth(horizon=9)])
def test_a_width_that_was_told_nothing_says_so_alone(width):
    with pytest.raises(ValueError, match="must be given, or the width bound"):
        width(1, ArmGP(4, KERNEL, NOISE))


@pytest.mark.parametrize(
    "make",
    [
        lambda scale: IGPWidth(2.0, scale, 0.1, RealisedGain()),
        lambda scale: GPTSWidth(2.0, scale, 0.1, RealisedGain()),
        lambda scale: RestartWidth(2, 2.0, scale),
        lambda scale: SlidingWindowWidth(7, 20, 2.0, scale),
        lambda scale: RealisedInformationWidth(2.0, scale, 0.1),
    ],
)
def test_the_noise_scale_is_read_from_the_model_unless_told(make):
    model = ArmGP(4, KERNEL, NOISE)
    torch.testing.assert_close(make(None)(3, model), make(math.sqrt(NOISE))(3, model))
    assert float(make(0.7)(3, model)) > float(make(None)(3, model)) + 1


def test_recipes_leave_the_noise_to_the_model():
    """So a noise variance that is learned on the way is the width's, too."""
    played = recipes.sw_gp_ucb(4, KERNEL, NOISE, horizon=50, window=5)
    before = float(played.width(1, played.model))
    assert played.width.noise_scale is None
    assert played.width.window == 5
    assert before == float(
        recipes.sw_gp_ucb(4, KERNEL, 4 * NOISE, horizon=50, window=5).width(1, played.model)
    )


def test_policies_that_forget_nothing_take_no_width_of_a_window():
    width = SlidingWindowWidth(5, 20)
    priors = [CandidatePrior(KERNEL), CandidatePrior(KERNEL + 0.5)]
    with pytest.raises(ValueError, match="window of the width must come from a forgetting rule"):
        recipes.pe_gp_ucb(4, priors, NOISE, horizon=20, width=width)
    with pytest.raises(ValueError, match="window of the width must come from a forgetting rule"):
        recipes.bbkb(torch.rand(4, 1).double(), RBFKernel().double(), NOISE, width=width)


def test_a_width_that_comes_with_more_arms_is_bound_too():
    features = torch.linspace(0, 1, 4).double().unsqueeze(-1)
    model = ArmGP(features, RBFKernel().double(), NOISE)
    played = IndexPolicy(
        model, UpperConfidenceBound, width=SlidingWindowWidth(horizon=9), forgetting=SlidingWindow(3)
    )
    played.add_arms(torch.tensor([[2.0]]).double(), width=SlidingWindowWidth(horizon=99))
    assert played.width.window == 3

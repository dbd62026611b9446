"""``auto`` without prior knowledge, over arms, contexts and points: units, origins, and rewards of any size."""

import functools

import pytest
import torch

from bandits_torch import ArmContext, Domain, recipes
from bandits_torch.policies import Observation
from bandits_torch.recipes.averaging import auto_over_points
from tests.reference.kernels import rbf

S, STEPS = 2, 18
BOX = Domain(torch.tensor([[-1.0, 0.0], [3.0, 2.0]]).double())
FEATURES = torch.linspace(0, 1, 7).double().unsqueeze(-1)
CONTEXTS = torch.tensor([[0.2], [0.8]]).double()
CLOCK = (0.2 + torch.rand(STEPS, generator=torch.Generator().manual_seed(1)).double()).cumsum(0)
QUICK = {"search": {"initial": 6, "raw_samples": 32}, "capacity": 15}
WAYS = {
    "arms": lambda: recipes.auto(6, replicates=S),
    "features": lambda: recipes.auto(FEATURES, replicates=S),
    "contexts listed": lambda contexts=CONTEXTS: recipes.auto(FEATURES, contexts=contexts, replicates=S),
    "any context": lambda: recipes.auto(4, context_dim=1, replicates=S),
    "points": lambda: auto_over_points(BOX, replicates=S, **QUICK),
}


def step_of(way, step, contexts=CONTEXTS):
    return ArmContext(contexts[step % 2]) if "context" in way else None


def played(way, unit, rewards=None, shift=0.0, clock=CLOCK, contexts=CONTEXTS):
    """Choices (T, S, ...) and the policy; ``rewards``: those of the first steps; ``clock``: times of the steps."""
    policy = WAYS[way](contexts) if "listed" in way else WAYS[way]()
    chosen, g = [], torch.Generator().manual_seed(3)
    for step in range(STEPS):
        time = float(clock[step])
        choice = policy.choose(time, step_of(way, step, contexts))
        x = choice.arm.double()
        mean = (x - 1).square().sum(-1).neg() if x.dim() > 1 else (x - 2 - step % 2).abs().neg()
        reward = mean + 0.1 * torch.randn(S, generator=g).double()
        if rewards is not None and step < len(rewards):
            reward = torch.full_like(reward, rewards[step])
        policy.learn(Observation(time, choice.arm, unit * reward + shift, choice.why))
        chosen.append(choice.arm)
    return torch.stack(chosen), policy


def predicted(way, policy, time=float(STEPS), contexts=CONTEXTS):
    return policy.marginals(time, BOX.sample(5, 0) if way == "points" else step_of(way, STEPS, contexts))


@functools.cache
def ordinary(way):
    return played(way, 1.0)


def believed(policy):
    return {name: torch.as_tensor(value).double() for name, value in policy.trace().items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("power", [-1040, -997, -450, -399, 100, 460])
def test_no_unit_of_rewards_changes_what_is_chosen(way, power):
    unit = 2.0**power  # from numbers that have lost some digits over 1e-300, 1e-135, 1e-120, 1e30 to 3e138
    (plain, before), (chosen, policy) = ordinary(way), played(way, unit)
    # Rewards near 1e-313 have lost digits, and the searches over points multiply what is rounded.
    torch.testing.assert_close(chosen, plain, rtol=0, atol=1e-3 if way == "points" and power < -1000 else 0)
    for name, value in believed(policy).items():
        of_rewards = unit if name in ("scale", "noise_scale") else 1.0
        torch.testing.assert_close(value / of_rewards, believed(before)[name], rtol=1e-2, atol=1e-4)
    mean, variance = predicted(way, policy)
    torch.testing.assert_close(mean / unit, predicted(way, before)[0], rtol=1e-2, atol=1e-3)
    assert variance.isfinite().all()
    if abs(power) < 511:  # otherwise variances underflow
        torch.testing.assert_close(variance / unit / unit, predicted(way, before)[1], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("factor", "shift"), [(1000.0, 5000.0), (1e-6, -3.0)])
@pytest.mark.parametrize("way", WAYS)
def test_nor_do_origins_of_rewards_times_and_contexts_or_the_unit_of_time(way, factor, shift):
    clock, contexts = 1.7e9 + 3600 * CLOCK, 64 * CONTEXTS + 4096
    (plain, before), (chosen, policy) = ordinary(way), played(way, factor, None, shift, clock, contexts)
    torch.testing.assert_close(chosen, plain, rtol=0, atol=1e-3 if way == "points" else 0)
    assert len(chosen.unique(dim=0)) > 3  # it has looked around
    rtol, atol = (1e-2, 1e-3) if way in ("points", "any context") else (1e-6, 1e-6)  # a search rounds
    mean, variance = predicted(way, policy, 1.7e9 + 3600 * STEPS, contexts)
    expected = predicted(way, before)
    torch.testing.assert_close((mean - shift) / factor, expected[0], rtol=rtol, atol=atol)
    torch.testing.assert_close(variance / factor**2, expected[1], rtol=rtol, atol=atol)


FIRST = {
    "one of 1e-300": [0.0, 1e-300],
    "one whose inverse overflows": [0.0, 1e-310],
    "two sizes": [0.0, 0.0, 1e-200, -1e-140],
    "all equal": [1e-310] * 6,
    "squares with few digits": [1e-160, 3e-160, 0.0, 1e-160, 2e-160],
    "after the origin is settled": [0.0] * 6 + [1e-300],
    "of rounding": [0.0, 0.0, 5e-17],
    "of rounding, after the origin is settled": [0.0] * 6 + [1e-17],
    "a scale of their own": [1e-30, 0.0, -1e-30, 2e-30, 1e-30, 0.0, -3e-30, 4e-30],
    "huge": [1e140],
    "huge, of either sign": [1e140, -1e140],
    "huge after tiny": [1e-300, 1e140],
    "tiny after huge": [1e140, 1e140, 1e-300],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", FIRST)
def test_extreme_rewards_before_ordinary_ones_leave_no_nan_and_tiny_ones_nothing(way, first):
    chosen, policy = played(way, 1.0, FIRST[first])
    mean, variance = predicted(way, policy)
    assert all(value.isfinite().all() for value in (mean, variance, *believed(policy).values(), chosen))
    if "huge" not in first:
        assert (variance > 0).all()
        assert (believed(policy)["scale"] > 0.1).all()


@pytest.mark.parametrize("name", ["tv_gp_ucb", "cgp_ucb"])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e140), (torch.float32, 1e12)])
def test_features_too_large_for_squares_of_distances_are_refused(name, dtype, most):
    arms = torch.tensor([[1.0], [0.5 * most], [-0.9 * most]], dtype=dtype)
    policy = getattr(recipes, name)(arms, rbf(0.2), 0.01)
    assert policy.choose(0.0, ArmContext(features=arms) if name == "cgp_ucb" else None).arm.shape == (1,)
    with pytest.raises(ValueError, match=r"arms must be at most 1e\+1.* in size"):
        getattr(recipes, name)(1e13 * arms, rbf(0.2), 0.01)


def test_points_have_a_variance_while_the_unit_of_rewards_is_not_known():
    fresh = WAYS["points"]()
    point = fresh.choose(0.0).arm
    assert (fresh.marginals(0.0, point)[1] > 0.01).all()
    fresh.learn(Observation(0.0, point, torch.zeros(S).double()))
    assert (fresh.marginals(0.0, point)[1] > 0.01).all()


@pytest.mark.parametrize("way", WAYS)
def test_rewards_whose_squares_overflow_are_refused_and_change_nothing(way):
    _, policy = played(way, 1e130)
    choice, before = policy.choose(float(STEPS), step_of(way, STEPS)), predicted(way, policy)
    for size in (1e300, -1e300):
        reward = torch.full((S,), size, dtype=torch.float64)
        with pytest.raises(ValueError, match="reward must be at most 1e\\+140 in size"):
            policy.learn(Observation(float(STEPS), choice.arm, reward, choice.why))
    torch.testing.assert_close(before, predicted(way, policy), rtol=0, atol=0)

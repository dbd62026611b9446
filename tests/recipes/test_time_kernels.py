"""Recipes over arms with cycles and smooth drift: the same policies, with what the model then knows of time."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from bandits_torch import AskTell, recipes
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    PeriodicTimeKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.policies import Observation
from bandits_torch.recipes.parts import as_time_kernel
from tests.reference import dense_cycles as over
from tests.reference.arm_gp_twins import smooth
from tests.reference.dense_cycles import DenseTerms

N, NOISE, WIDTH = 6, 0.1, 1.5
K = smooth(N, 0.3)


def gpytorchs():
    cycle, drift = PeriodicKernel().double(), MaternKernel(nu=1.5).double()
    cycle.period_length, cycle.lengthscale, drift.lengthscale = 8.0, 1.0, 30.0
    return cycle * drift


TIME = {
    "matern": (lambda: MaternTimeKernel(9.0, 2.5), over.matern(2.5, 9.0)),
    "gpytorch's": (gpytorchs, over.times(over.periodic(8.0, 1.0), over.matern(1.5, 30.0))),
    "sum": (
        lambda: PeriodicTimeKernel(8.0) + MaternTimeKernel(9.0),
        over.plus(over.periodic(8.0, 1.0), over.matern(1.5, 9.0)),
    ),
}


def reward(arm, time):
    return torch.sin(2 * torch.pi * torch.tensor(time / 8).double() + arm)


@pytest.mark.parametrize("name", TIME)
def test_tv_gp_ucb_plays_the_largest_bound_of_the_dense_posterior(name):
    build, function = TIME[name]
    policy = recipes.tv_gp_ucb(N, K, NOISE, time_kernel=build(), width=WIDTH)
    twin = DenseTerms([(K, function)], NOISE)
    for step in range(40):
        time = 0.8 * step
        arm = policy.choose(time).arm
        answers = twin.answers(time)
        bound = answers.mean + WIDTH * answers.covariance.diagonal().sqrt()
        assert bound[arm] >= bound.max() - 1e-8
        observed = reward(arm, time)
        policy.learn(Observation(time, arm, observed))
        twin.observe(int(arm), float(observed), time)


def kernel():
    cycle = QuasiPeriodicKernel(8.0, memory=40.0, order=2)
    level = SpatioTemporalKernel(ArmCovarianceKernel(K), ExponentialForgettingKernel(0.05))
    return SpatioTemporalKernel(ArmCovarianceKernel(K), cycle) + level


RECIPES = {
    "gp_ucb": {},
    "gp_ts": {},
    "gp_ei": {},
    "igp_ucb": {},
    "et_gp_ucb": {"delta": 0.5},
    "r_gp_ucb": {"horizon": 40, "interval": 9},
    "sw_gp_ucb": {"horizon": 40, "window": 7},
    "sw_gp_ucb by likelihood": {"horizon": 40, "window": {"candidates": (4, 8, 16)}},
}


@pytest.mark.parametrize("name", RECIPES)
def test_other_recipes_take_a_kernel_with_cycles_and_replicates_play_alone_as_together(name):
    recipe, options = name.split()[0], RECIPES[name]

    def played(replicates, first=0):
        seeds = {"seed": 4, "first_replicate": first} if recipe == "gp_ts" else {}
        policy = getattr(recipes, recipe)(N, kernel(), NOISE, replicates=replicates, **options, **seeds)
        arms = []
        for step in range(25):
            arm = policy.choose(float(step)).arm
            phase = torch.arange(first, first + replicates)
            policy.learn(Observation(float(step), arm, reward(arm + phase, float(step))))
            arms.append(arm)
        return torch.stack(arms), policy

    together, policy = played(3)
    alone, _ = played(1, 2)
    assert torch.equal(together[:, 2], alone[:, 0])
    if recipe == "sw_gp_ucb":
        assert int(policy.model.num_observations.max()) <= 16


def test_open_questions_condition_the_variance_on_what_they_will_tell():
    """As pulls whose rewards are the means expected of them: asked at a time before, and at the time of asking."""
    live = AskTell(recipes.tv_gp_ucb(N, K, NOISE, time_kernel=TIME["sum"][0](), width=WIDTH))
    twin = DenseTerms([(K, TIME["sum"][1])], NOISE)
    for step in range(6):
        question = live.ask(float(step))
        live.tell(question.id, float(reward(question.arm, float(step))))
        twin.observe(int(question.arm), float(reward(question.arm, float(step))), float(step))
    mean = twin.answers(7.0).mean
    for question in live.ask(7.0, count=5):
        answers = twin.answers(7.0)
        bound = mean + WIDTH * answers.covariance.diagonal().sqrt()
        assert bound[question.arm] >= bound.max() - 1e-8
        twin.observe(int(question.arm), 0.0, 7.0)  # the variance is that of any reward
    told = live.predict(7.0)[0]
    torch.testing.assert_close(told[0], mean, rtol=0, atol=1e-8)  # the belief itself is as it was


@pytest.mark.parametrize("time_kernel", [RBFKernel(), WienerKernel() + MaternTimeKernel(), "daily", None])
def test_a_time_kernel_without_a_state_is_refused_over_arms(time_kernel):
    if time_kernel is None:
        assert recipes.tv_gp_ucb(N, K, NOISE).model.can_forget  # None is the default
        return
    with pytest.raises(ValueError, match="time_kernel"):
        recipes.tv_gp_ucb(N, K, NOISE, time_kernel=time_kernel)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("quasi-periodic:24", lambda: QuasiPeriodicKernel(24.0, 1.0, 120.0, order=3)),
        ("periodic:7.5", lambda: PeriodicTimeKernel(7.5, 1.0, order=3)),
        ("matern-5/2:60", lambda: MaternTimeKernel(60.0, 2.5)),
        ("exponential:0.1", lambda: ExponentialForgettingKernel(0.1)),
        ("wiener:0.02", lambda: WienerKernel(0.02)),
    ],
)
def test_a_kernel_over_time_goes_by_its_name_and_a_number(name, kernel):
    t = torch.linspace(0, 50, 30).double().unsqueeze(-1)
    named, built = as_time_kernel(name), kernel()
    assert type(named) is type(built)
    assert torch.equal(named(t).to_dense(), built(t).to_dense())


def test_kernels_joined_by_a_plus_share_the_variance():
    t = torch.linspace(0, 50, 30).double().unsqueeze(-1)
    both = as_time_kernel("quasi-periodic:24 + exponential:0.1")
    parts = [as_time_kernel(name)(t).to_dense() for name in ("quasi-periodic:24", "exponential:0.1")]
    torch.testing.assert_close(both(t).to_dense(), (parts[0] + parts[1]) / 2)
    recipes.tv_gp_ucb(N, K, NOISE, time_kernel="quasi-periodic:24+exponential:0.1").choose(1.0)


@pytest.mark.parametrize("name", ["tv_gp_ucb", "ui_gp_ucb", "cgp_ucb", "tv_cgp_ucb"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_kernel_that_has_a_time_part_is_refused_where_the_last_feature_would_be_its_time(name, scaled):
    kernel = SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel(0.1))
    features = torch.rand(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(ValueError, match="kernel must be a kernel without a time part"):
        getattr(recipes, name)(features, ScaleKernel(kernel) if scaled else kernel, NOISE)

"""The named algorithms: each is the sentence it claims to be, and a replicate does not know of the others."""

import math

import pytest
import torch
from torch.distributions import Normal

from bandits_torch import Domain, ThompsonSampling, UpperConfidenceBound, recipes, run
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, WienerKernel
from bandits_torch.policies import (
    EventTriggeredRestart,
    KeepEverything,
    Observation,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.problems import GPDraws
from bandits_torch.theory import GPTSWidth, IGPWidth, RestartWidth, SlidingWindowWidth, SrinivasBayesianWidth
from tests.reference.arm_gp_twins import smooth
from tests.reference.kernels import rbf

N, T = 12, 30
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
KERNEL = rbf(0.2)
# What each index policy needs beside arms, kernel and noise variance, and what makes things happen.
_INDEX = [
    name
    for name, call in recipes.RECIPES.items()
    if call.__module__.endswith(".index_policies") and recipes.registered(name).points
]
OPTIONS = {
    name: {key: T for key in ("horizon",) if key in recipes.options_of(name)}
    | dict(recipes.registered(name).quick)
    | ({"drift_variance": 0.05} if name == "ui_gp_ucb" else {})
    for name in _INDEX
}
MODELS = [name for name in OPTIONS if name != "random"]


def recipe(name, **options):
    return getattr(recipes, name)(ARMS, KERNEL, 0.1, **(OPTIONS[name] | options))


# -- the sentences -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "acquisition", "width", "forgetting", "time_kernel"),
    [
        ("gp_ucb", UpperConfidenceBound, SrinivasBayesianWidth, KeepEverything, type(None)),
        ("igp_ucb", UpperConfidenceBound, IGPWidth, KeepEverything, type(None)),
        ("gp_ts", ThompsonSampling, GPTSWidth, KeepEverything, type(None)),
        ("r_gp_ucb", UpperConfidenceBound, RestartWidth, PeriodicRestart, type(None)),
        ("sw_gp_ucb", UpperConfidenceBound, SlidingWindowWidth, SlidingWindow, type(None)),
        (
            "tv_gp_ucb",
            UpperConfidenceBound,
            SrinivasBayesianWidth,
            KeepEverything,
            ExponentialForgettingKernel,
        ),
        ("ui_gp_ucb", UpperConfidenceBound, SrinivasBayesianWidth, KeepEverything, WienerKernel),
        ("et_gp_ucb", UpperConfidenceBound, SrinivasBayesianWidth, EventTriggeredRestart, type(None)),
    ],
)
def test_is_made_of_the_parts_it_names(name, acquisition, width, forgetting, time_kernel):
    policy = recipe(name)
    assert policy.acquisition is acquisition
    assert type(policy.width) is width
    assert type(policy.forgetting) is forgetting
    assert isinstance(policy.model.prior.time_kernel, time_kernel)


def test_settings_reach_the_parts():
    assert recipe("r_gp_ucb").forgetting.interval == 7
    assert recipe("sw_gp_ucb").forgetting.window == 9
    assert recipe("et_gp_ucb", noise_scale=0.4).forgetting.noise_scale == 0.4
    assert recipe("tv_gp_ucb").model.prior.time_kernel.forgetting_rate.item() == pytest.approx(0.1)
    assert recipe("ui_gp_ucb").model.prior.time_kernel.drift_variance.item() == pytest.approx(0.05)
    assert recipe("ui_gp_ucb", start=1.7e9).model.prior.time_kernel.start == 1.7e9
    model = recipe("gp_ucb", prior_mean=0.7, form="factor", replicates=3).model
    assert model.batch_shape == (3,)
    assert model.form == "factor"
    assert model.marginals()[0].eq(0.7).all()


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("gp_ei", "gp_pi")])
def test_a_width_of_one_s_own_takes_the_place_of_the_algorithm_s(name):
    policy = recipe(name, width=0.25)
    policy.choose(1.0)
    assert float(policy.trace()["width"]) == 0.25


@pytest.mark.parametrize(("name", "margin"), [("gp_ei", 0.0), ("gp_pi", 0.2)])
def test_improvement_is_over_the_largest_mean_of_what_can_be_played(name, margin):
    """Each replicate has an incumbent of its own."""
    policy = recipe(name, replicates=3, **({"margin": margin} if margin else {}))
    for step in range(1, 8):
        arm = policy.choose(float(step)).arm
        policy.learn(Observation(float(step), arm, torch.randn(3).double()))
    mean, variance = policy.model.marginals()
    deviation, unit = variance.sqrt(), Normal(0.0, 1.0)
    for available in (torch.ones(3, N, dtype=torch.bool), mean < mean.amax(-1, keepdim=True)):
        best = mean.masked_fill(~available, -torch.inf).amax(-1, keepdim=True)
        u = (mean - best - margin) / deviation
        index = unit.cdf(u) if margin else deviation * (unit.log_prob(u).exp() + u * unit.cdf(u))
        expected = index.masked_fill(~available, -torch.inf).argmax(-1)
        assert torch.equal(policy.choose(8.0, available).arm, expected)
    assert torch.equal(policy.choose(8.0).arm, policy.choose(8.0, torch.ones(N, dtype=torch.bool)).arm)


def test_no_forgetting_rate_at_all_is_gp_ucb():
    policy = recipe("tv_gp_ucb", forgetting_rate=0.0)
    assert not policy.model.drifts


def test_a_kernel_over_time_of_one_s_own_takes_the_place_of_exponential_forgetting():
    wiener = WienerKernel(0.05)
    own = recipe("tv_gp_ucb", forgetting_rate=0.0, time_kernel=wiener).model.prior.time_kernel
    assert own.drift_variance.item() == pytest.approx(0.05)
    smooth_time = rbf(5.0)
    domain = Domain(torch.tensor([[0.0], [1.0]]).double())
    policy = recipes.tv_gp_ucb(domain, KERNEL, 0.1, time_kernel=smooth_time)
    X = torch.tensor([[0.5, 0.0], [0.5, 5.0]]).double()
    with torch.no_grad():
        assert policy.model.kernel(X).to_dense()[0, 1].item() == pytest.approx(math.exp(-0.5))
    with pytest.raises(ValueError, match="a MarkovTimeKernel"):
        recipe("tv_gp_ucb", time_kernel=smooth_time)
    with pytest.raises(ValueError, match="time_kernel must be"):
        recipe("tv_gp_ucb", time_kernel=0.1)


def test_a_covariance_matrix_does_for_a_kernel():
    for name in ("gp_ucb", "tv_gp_ucb", "ui_gp_ucb"):
        matrix = getattr(recipes, name)(N, smooth(N), 0.1)
        kernel = getattr(recipes, name)(N, ArmCovarianceKernel(smooth(N)), 0.1)
        assert torch.equal(matrix.model.marginals(1.0)[1], kernel.model.marginals(1.0)[1])


# -- memory --------------------------------------------------------------------------------------------


def greedy_gain(horizon):
    covariance, gain = KERNEL(ARMS).to_dense().detach(), 0.0
    for _ in range(horizon):
        variance = covariance.diagonal()
        arm = int(variance.argmax())
        gain += 0.5 * math.log1p(float(variance[arm]) / 0.1)
        row = covariance[arm]
        covariance = covariance - row[:, None] * row[None, :] / (row[arm] + 0.1)
    return gain


@pytest.mark.parametrize("budget", [None, 0.5, 8.0])
def test_memory_is_that_of_zhou_and_shroff(budget):
    horizon = 400
    expected = greedy_gain(horizon) ** 0.25 * math.sqrt(horizon / (1.0 if budget is None else budget))
    expected = min(horizon, math.ceil(expected))
    options = {"horizon": horizon, "rkhs_variation_budget": budget}
    window = recipes.sw_gp_ucb(ARMS, KERNEL, 0.1, **options)
    restart = recipes.r_gp_ucb(ARMS, KERNEL, 0.1, **options)
    assert window.forgetting.window == restart.forgetting.interval == expected


def test_memory_over_a_domain_is_that_of_points_spread_over_it():
    """Nothing has arms there: gamma is that of 256 even points, near that of the arms spread over the same square."""
    square = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))
    over_points = recipes.sw_gp_ucb(square, KERNEL, 0.1, horizon=400).forgetting.window
    dense = recipes.sw_gp_ucb(square.sample(1000, seed=5), KERNEL, 0.1, horizon=400).forgetting.window
    assert over_points == pytest.approx(dense, rel=0.05)
    shorter = recipes.r_gp_ucb(
        square, KERNEL, 0.1, horizon=400, rkhs_variation_budget=16.0
    ).forgetting.interval
    assert shorter == pytest.approx(dense / 4, rel=0.05)


def test_a_function_that_does_not_vary_is_remembered_to_the_end():
    assert recipes.sw_gp_ucb(ARMS, KERNEL, 0.1, horizon=77, rkhs_variation_budget=0.0).forgetting.window == 77


# -- replicates ----------------------------------------------------------------------------------------


def played(name, replicates, first, form="auto"):
    """Recipe ``name`` on draws number first, first + 1, ...: arms and rewards, (replicates, T) each."""
    problem = GPDraws(num_arms=N, replicates=replicates, seed=5, first_replicate=first)
    options = OPTIONS[name]
    if name in ("random", "gp_ts"):
        options = options | {"seed": 11, "first_replicate": first}
    if name != "random":
        options = options | {"form": form}
    policy = recipes.build(name, problem, replicates=replicates, **({"horizon": T} | options))
    history = run(policy, problem, T, seed=7, first_replicate=first)
    return history, policy


# Not gp_ts: its forms draw from one law (tests/claims) but from different roots of the covariance.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "gp_ts"])
def test_both_forms_of_the_model_play_the_same_arms(name):
    one, other = (played(name, 3, 0, form)[0] for form in ("auto", "factor"))
    assert torch.equal(one.arms, other.arms)


# -- by name -------------------------------------------------------------------------------------------


def test_what_is_known_of_a_problem_fills_in_what_the_user_leaves_open():
    problem = GPDraws(num_arms=N, replicates=2, seed=5)
    policy = recipes.build("igp_ucb", problem, replicates=2, horizon=50, delta=0.3)
    assert torch.equal(
        torch.as_tensor(policy.width.rkhs_bound), torch.as_tensor(problem.knowledge.rkhs_bound)
    )
    assert policy.width.delta == 0.3
    noise = torch.as_tensor(problem.knowledge.noise_variance)
    assert torch.equal(policy.model.noise_variance, noise.expand(2))
    louder = recipes.build("igp_ucb", problem, replicates=2, horizon=50, noise_variance=0.9)
    assert louder.model.noise_variance.tolist() == pytest.approx([0.9, 0.9])


def test_memory_is_sized_without_a_matrix_over_all_arms():
    arms = torch.rand(20_000, 2).double()
    policy = recipes.sw_gp_ucb(arms, KERNEL, 0.1, horizon=100)
    assert 1 <= policy.forgetting.window <= 100
    some = arms[torch.linspace(0, 19_999, 1000).long()]
    assert policy.forgetting.window == recipes.sw_gp_ucb(some, KERNEL, 0.1, horizon=100).forgetting.window

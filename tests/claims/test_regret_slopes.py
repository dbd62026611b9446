"""Regret grows with T no faster than each theorem says, under its conditions, and faster where they are broken.

Growth is the slope of log mean regret against log T, with a bootstrap interval over the replicates (``slope``). An
exponent holds where the whole interval lies at or below it; each test shows a policy that breaks the theorem's
condition, whose whole interval lies above.
"""

import math

import numpy as np
import pytest

from bandits_torch import recipes, run
from bandits_torch.policies import Constants
from bandits_torch.problems import Hills, Problem, RKHSFunctions, SwitchingFunctions
from benchmarks.papers._zhou_page import Slope, slope
from benchmarks.papers._zhou_problem import TurningFunctions

SQUARE_ROOT = 1 / 2


def growth_within(name: str, problem: Problem, horizon: int, **options: object) -> Slope:
    """Slope from a tenth of one run to the whole, for policies that need not know T."""
    policy = recipes.build(name, problem, replicates=problem.replicates, horizon=horizon, **options)
    regret = run(policy, problem, horizon).cumulative_regret
    steps = np.unique(np.geomspace(horizon / 10, horizon, 8).astype(int))
    return slope(steps, regret[:, steps - 1].numpy())


def growth_over(name: str, problems: list[Problem], **options: object) -> Slope:
    """Slope over runs of several horizons, for policies that are planned for T."""
    regret = []
    for problem in problems:
        policy = recipes.build(
            name, problem, replicates=problem.replicates, horizon=problem.horizon, **options
        )
        regret.append(run(policy, problem, problem.horizon).regret.sum(-1).numpy())
    return slope(np.array([problem.horizon for problem in problems]), np.stack(regret, -1))


@pytest.fixture(scope="module")
def of_known_norm() -> RKHSFunctions:
    return RKHSFunctions(num_arms=30, layout="grid", noise_scale=0.1, replicates=8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["igp_ucb", "gp_ts"])
def test_on_functions_of_known_norm_regret_grows_as_sqrt_t(name: str, of_known_norm: RKHSFunctions) -> None:
    """Chowdhury & Gopalan 2017, Theorems 3 and 4: sqrt(T) times powers of gamma_T and, for GP-TS, of ln T."""
    found = growth_within(name, of_known_norm, 2000)
    assert found.high <= SQUARE_ROOT, found


def test_without_a_width_it_grows_as_t(of_known_norm: RKHSFunctions) -> None:
    found = growth_within("igp_ucb", of_known_norm, 2000, width=0.0)
    assert found.low > SQUARE_ROOT, found


ZHOU = 3 / 4
TURNS = [TurningFunctions(T, 4 * math.sqrt(2), num_arms=30, replicates=5) for T in (250, 500, 1000)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sw_gp_ucb", "r_gp_ucb"])
def test_under_a_fixed_variation_budget_regret_grows_as_t_to_three_quarters(name: str) -> None:
    """Zhou & Shroff 2021, Theorems 1 and 2: T^{3/4} with the window or interval tuned to P_T."""
    found = growth_over(name, TURNS)
    assert found.high <= ZHOU, found


@pytest.mark.parametrize(
    "options",
    [pytest.param({"window": 20}, marks=pytest.mark.slow), {"window": 1000}],
    ids=["too short", "all there is"],
)
def test_with_another_window_it_grows_faster(options: dict[str, int]) -> None:
    found = growth_over("sw_gp_ucb", TURNS, **options)
    assert found.low > ZHOU, found


@pytest.fixture(scope="module")
def hills() -> Hills:
    return Hills(replicates=5)


def test_with_the_prior_unknown_regret_grows_as_sqrt_t(hills: Hills) -> None:
    """Ziomek et al. 2024, Theorem 4.1: sqrt(T) times gamma_T, the widths and the number of priors."""
    found = growth_within("pe_gp_ucb", hills, 250)
    assert found.high <= SQUARE_ROOT, found


def test_trusting_the_likeliest_prior_it_grows_as_t(hills: Hills) -> None:
    found = growth_within("mle_gp_ucb", hills, 250)
    assert found.low > SQUARE_ROOT, found


STILL: list[Problem] = [
    SwitchingFunctions(horizon=T, num_arms=5, lengthscale=0.3, switches=(), layout="grid", replicates=10)
    for T in (500, 1000, 2000)
]
SHORTER_BLOCKS = Constants(c2=2.0, c3=0.02)


def test_with_no_prior_knowledge_regret_grows_as_sqrt_t_gamma() -> None:
    """Hong et al. 2023, Theorem 1: sqrt(gamma_T T) and a logarithm, which is sqrt(E T) with E the length of block 0.

    The constants are the theory's but for blocks 200 times shorter, else block 0 alone outlasts the run; the exponent
    is that of sqrt(E T) at these horizons, since gamma_T still grows.
    """
    found = growth_over("opkb", STILL, constants=SHORTER_BLOCKS)
    horizons = np.array([float(problem.horizon) for problem in STILL])
    bound = np.sqrt(horizons * [gain_and_logarithm(problem) for problem in STILL])
    exponent = slope(horizons, bound[np.newaxis], 1).value
    assert SQUARE_ROOT < exponent < 0.65
    assert found.low <= exponent, (found, exponent)
    assert found.high < 0.75, found


def gain_and_logarithm(problem: Problem) -> float:
    """gamma_T ln(C0 N / delta), which E is proportional to."""
    policy = recipes.build("opkb", problem, replicates=1, horizon=problem.horizon, constants=SHORTER_BLOCKS)
    return policy.schedules[0].gain / policy.schedules[0].alpha


def test_while_block_0_lasts_it_grows_as_t() -> None:
    found = growth_over("opkb", STILL[:2], constants=Constants.theory())
    assert found.low > 0.9, found

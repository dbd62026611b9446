"""On the Intel temperatures of 14 March 2004 a model that forgets finds the hottest sensors; others do not."""

from bandits_torch import Problem, make, recipes, run
from tests.reference.real_data import REAL, needs_data

STEPS, REPLICATES = 144, 25


def _mean_regret(policy: str, problem: Problem) -> float:
    """Degrees per step between the hottest sensor and the one chosen, with settings from the days before alone."""
    built = recipes.build(policy, problem, replicates=REPLICATES, horizon=STEPS)
    return run(built, problem, STEPS).mean_cumulative_regret / STEPS


@needs_data
def test_forgetting_halves_the_regret_of_random_and_beats_gp_ucb() -> None:
    problem = make("intel-temperature", data=REAL)
    regret = {name: _mean_regret(name, problem) for name in ("random", "gp_ucb", "tv_gp_ucb")}
    assert regret["tv_gp_ucb"] <= regret["random"] / 2
    assert regret["tv_gp_ucb"] < regret["gp_ucb"]

"""What races where. Fixed once, before any result was seen: RESULTS.md says why (its template)."""

from collections.abc import Mapping
from pathlib import Path

from bandits_torch import recipes
from bandits_torch.experiments import ProblemSetting, RecipeSetting
from bandits_torch.experiments.engines import MakePolicy, MakeProblem
from benchmarks.leaderboard.environments import AutoWithoutKernel, Cached, CentredSetting, RecordSetting

HORIZON, REPLICATES, SEED = 500, 25, 0
MORE = 75  # replicates after those, of environments that are drawn

_MADE_UP: dict[str, MakeProblem] = {
    "stationary": ProblemSetting("gp"),
    "one-switch": ProblemSetting("switching", {"switches": [0.3]}),
    "four-switches": ProblemSetting("switching", {"switches": [0.15, 0.4, 0.6, 0.85]}),
    "slow-drift": ProblemSetting("tv-gp", {"forgetting_rate": 0.001}),
    "tv-gp-0.01": ProblemSetting("tv-gp", {"forgetting_rate": 0.01}),
    "tv-gp-0.03": ProblemSetting("tv-gp", {"forgetting_rate": 0.03}),
    "tv-gp-0.1": ProblemSetting("tv-gp", {"forgetting_rate": 0.1}),
    "cosine": ProblemSetting("cosine"),
    "moving-peaks": CentredSetting(ProblemSetting("moving-peaks", {"period": 100})),
}
# Problem, its options, steps to play. Intel: 14 to 21 March, two days each; Molene: 10 days; Beijing: 20.
_RECORDS = {
    "intel-temperature": ("intel-temperature", {"days": 8}, 288),
    "intel-light": ("intel-light", {"days": 8}, 288),
    "intel-humidity": ("intel-humidity", {"days": 8}, 288),
    "molene-wind": ("molene-wind", {}, 240),
    "beijing-pm25": ("beijing-pm25", {}, 500),
}
DRAWN, RANKED = tuple(_MADE_UP), (*_MADE_UP, *_RECORDS)
WITH_PRIORS = ("hills", "intel-temperature-priors")
NEED_DATA = (*_RECORDS, "intel-temperature-priors")

# Beside those that know several.
_KNOW_ONE_PRIOR = ("random", "gp_ucb", "gp_ucb w=2", "tv_gp_ucb", "tv_gp_ucb w=2")


def _raced(unknown_prior: bool) -> dict[str, MakePolicy]:
    """Recipes with the settings they are registered to race with, those for an unknown prior or the others."""
    every = [recipes.registered(name) for name in recipes.RECIPES]
    return {
        one.name + added: RecipeSetting(one.name, dict(options))
        for one in every
        if (one.belief in ("priors", "prior")) == unknown_prior
        for added, options in one.race.items()
    }


NO_KERNEL = "auto, no kernel"
POLICIES: dict[str, MakePolicy] = _raced(unknown_prior=False) | {NO_KERNEL: AutoWithoutKernel()}
PRIOR_POLICIES = {name: POLICIES[name] for name in _KNOW_ONE_PRIOR} | _raced(unknown_prior=True)


def environments(data: Path | None) -> Mapping[str, MakeProblem]:
    """The environments by name; without a folder of data, those that need none."""
    found = dict(_MADE_UP) | {"hills": ProblemSetting("hills")}
    if data is None:
        return found
    place = str(data)
    found |= {
        name: Cached(RecordSetting(problem, options, place, steps, REPLICATES))
        for name, (problem, options, steps) in _RECORDS.items()
    }
    return found | {"intel-temperature-priors": Cached(ProblemSetting("intel-temperature-priors", {}, place))}

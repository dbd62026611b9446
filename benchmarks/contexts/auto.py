"""``auto`` without kernel and rate of change, beside ``tv_cgp_ucb`` with both: see PROTOCOL.md."""

import pandas as pd

from bandits_torch import Policy, make, recipes, run
from bandits_torch.problems import ContextualGPDraws
from benchmarks.contexts.dense import PROBLEMS, WIDTH
from benchmarks.pages import say

ALL_KNOWN, LISTED, FEATURES = "tv_cgp_ucb, all known", "auto, contexts listed", "auto, contexts as features"
FIRST = 50  # the first seed that is reported
MARKS = (100, 500)  # steps after which the regret so far is kept


def policies(problem: ContextualGPDraws, horizon: int) -> dict[str, Policy]:
    """Who races: the first knows the kernels, the noise and the rate of change, the others none of these."""
    known = recipes.build(
        "tv_cgp_ucb", problem, replicates=1, horizon=horizon, width=WIDTH, contexts=problem.contexts
    )
    return {
        ALL_KNOWN: known,
        LISTED: recipes.auto(problem.arms, contexts=problem.contexts),
        FEATURES: recipes.auto(problem.arms, context_dim=problem.contexts.shape[-1]),
    }


def race(kind: str, seed: int, horizon: int, short: int) -> pd.DataFrame:
    """One row for each policy and mark: regret so far. Contexts as features are played for ``short`` steps: a step
    costs ten times theirs."""
    rows = []
    for name in (ALL_KNOWN, LISTED, FEATURES):
        problem = make("contextual-gp", horizon=horizon, seed=seed, forgetting_rate=PROBLEMS[kind])
        steps = short if name == FEATURES else horizon
        regret = run(policies(problem, horizon)[name], problem, steps, seed=seed).regret[0].cumsum(-1)
        marks = sorted({mark for mark in (short, *MARKS) if mark < steps} | {steps})
        rows += [
            {"problem": kind, "seed": seed, "policy": name, "step": mark, "regret": float(regret[mark - 1])}
            for mark in marks
        ]
        say(f"{kind}, seed {seed}, {name}: {float(regret[-1]):.1f} in {steps} steps")
    return pd.DataFrame(rows)

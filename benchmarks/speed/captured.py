"""What a captured step asks of a device, beside a plain one: kernels, values the host waits for."""

from typing import Any

import pandas as pd

from bandits_torch import make, recipes
from benchmarks.gpu.stepping import both
from benchmarks.pages import say
from benchmarks.speed.page import Settings

# Recipe, problem, options of the recipe.
_CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("igp_ucb", "gp", {}),
    ("gp_ucb", "gp", {}),
    ("sw_gp_ucb", "gp", {"window": 50}),
    ("r_gp_ucb", "gp", {"interval": 1_000_000}),
    ("tv_gp_ucb", "tv-gp", {}),
    ("et_gp_ucb", "gp", {}),
    ("gp_ts", "gp", {}),
    ("auto", "gp", {}),
)


def measure(settings: Settings) -> pd.DataFrame:
    arms, replicates, before, steps, k = (12, 2, 60, 4, 4) if settings.fast else (100, 25, 100, 320, 32)
    rows = []
    for recipe, name, options in _CASES:
        say(recipe)
        problem = make(name, num_arms=arms, replicates=replicates).to(settings.device)
        policy = recipes.build(recipe, problem, replicates=replicates, horizon=100_000, **options)
        k_here = min(k, 16) if recipe == "auto" else k
        measured = both(policy, problem, before, steps, settings.device, k_here, True)
        sizes = {"recipe": recipe, "arms": arms, "replicates": replicates, "steps_in_a_block": k_here}
        rows.append(sizes | measured)
    return pd.DataFrame(rows)

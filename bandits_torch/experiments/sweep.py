"""Policies against problems, the same noise for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bandits_torch import validation
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem


def race(
    policies: Mapping[str, Policy],
    problem: Problem,
    horizon: int,
    *,
    seed: int = 0,
    first_replicate: int = 0,
    progress: bool = False,
) -> dict[str, History]:
    """Play each policy against the same problem, one after the other, with the same noise.

    Args:
        policies: by the names they shall have in tables and plots; each plays from the state it is in.
        problem, horizon, seed, first_replicate, progress: as for ``run``.

    Raises ValueError for an empty race, and whatever ``run`` refuses.
    """
    validation.require(len(policies) > 0, "policies", dict(policies), "at least one policy")
    histories = {}
    for name, policy in policies.items():
        title = name if progress else False
        history = run(policy, problem, horizon, seed=seed, first_replicate=first_replicate, progress=title)
        history.meta["policy"] = name
        histories[name] = history
    return histories


def sweep(
    problems: Mapping[str, Problem],
    policies: Mapping[str, Callable[[Problem], Policy]],
    horizon: int,
    *,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, dict[str, History]]:
    """Race policies, built afresh for each problem, on several problems.

    Args:
        problems: by name.
        policies: by name, functions that build a policy for a problem (from its ``arms`` and ``knowledge``).
        horizon: T, cut to a problem's own horizon where that is shorter.
        seed, progress: as for ``run``.

    Returns the histories by problem, then policy.

    Raises ValueError for a horizon below 1, and whatever ``race`` refuses.
    """
    validation.positive_integer("horizon", horizon)
    histories = {}
    for name, problem in problems.items():
        built = {label: build(problem) for label, build in policies.items()}
        steps = min(horizon, problem.horizon or horizon)
        histories[name] = race(built, problem, steps, seed=seed, progress=progress)
        for history in histories[name].values():
            history.meta["problem"] = name
    return histories

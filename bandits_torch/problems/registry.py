"""The problems by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bandits_torch import naming, validation
from bandits_torch.naming import unknown_name
from bandits_torch.problems import continuous, datasets, drifting, replay, stationary, tv_gp
from bandits_torch.problems.problem import PROBLEMS, REGISTERED, NamedProblem, Problem

_LISTED = (stationary, drifting, tv_gp, continuous, replay, datasets)
# The package's problems are listed in this order, and others after them.
_PLACE = {module.__name__: place for place, module in enumerate(_LISTED)}
for _name in sorted(PROBLEMS, key=lambda name: _PLACE.get(PROBLEMS[name].__module__, len(_PLACE))):
    PROBLEMS[_name] = PROBLEMS.pop(_name)


def make(
    name: str,
    *,
    replicates: int = 1,
    horizon: int | None = None,
    seed: int = 0,
    data: str | Path | None = None,
    **options: Any,
) -> Problem:
    """Build the problem of that name.

    Args:
        name: a key of ``PROBLEMS``.
        replicates: number of reward functions (for real data: of runs on the table) in the batch.
        horizon: number of steps; None: the problem's default. Static problems without an end ignore it.
        seed: of all random numbers of the problem.
        data: file (or its folder) of a problem that replays real data.
        options: the problem's own arguments (``options_of``).

    Raises:
        ValueError: unknown name or option (the message lists the known ones); missing or superfluous data;
            whatever the problem itself refuses.
    """
    about = registered(name)
    validation.known_names(f"options of problem {name!r}", options, about.options)
    parameters = about.parameters
    if "data" in parameters and data is None:
        raise ValueError(f"data must be given for problem {name!r}: the path of its file, got None")
    if "data" not in parameters and data is not None:
        raise ValueError(f"data must be None for problem {name!r}, which reads no file, got {str(data)!r}")
    common: dict[str, Any] = {"replicates": replicates, "seed": seed}
    common |= {key: value for key, value in {"horizon": horizon, "data": data}.items() if value is not None}
    given = {key: value for key, value in common.items() if key in parameters}
    return PROBLEMS[name](**given, **options)


def registered(name: str) -> NamedProblem:
    """The registration of a problem: its factory, its options, its kind.

    ``name``: of a problem, of an entry point of the group ``bandits_torch.problems``, or ``module:class``. Raises
    ValueError for an unknown name.
    """
    if isinstance(name, str) and name not in PROBLEMS:
        found = naming.find("problems", name)
        about = next((one for one in REGISTERED.values() if one.factory is found), None)
        validation.require(found is None or about is not None, "problem name", name, "of a problem (@named)")
        if about is not None:
            REGISTERED[name], PROBLEMS[name] = about, about.factory
    if not isinstance(name, str) or name not in PROBLEMS:
        raise ValueError(unknown_name("problem name", name, PROBLEMS, "`bandits-torch list` shows all"))
    return REGISTERED[name]


def options_of(name: str) -> dict[str, Any]:
    """The options of a problem beyond those of ``make``, with their defaults."""
    return registered(name).options


def needs_data(name: str) -> bool:
    """Whether the problem replays real data, so that ``make`` must be given ``data``."""
    return registered(name).needs_data


def describe() -> dict[str, str]:
    """One line on every problem, the first of its docstring."""
    return {name: registered(name).summary for name in PROBLEMS}

"""The problems by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bandits_torch.problems.datasets import (
    BeijingPM25,
    IntelHumidity,
    IntelLight,
    IntelTemperature,
    MoleneTemperature,
    MoleneWind,
)
from bandits_torch.problems.drifting import (
    DriftingCosine,
    SphereOneSwitch,
    SphereTwoSwitches,
    SwitchingFunctions,
)
from bandits_torch.problems.dynamic_functions import (
    DynamicAckley,
    DynamicGriewank,
    DynamicHartmann6,
    DynamicLevy,
    DynamicShekel,
    DynamicStyblinskiTang,
)
from bandits_torch.problems.hills import Hills
from bandits_torch.problems.intel_priors import IntelTemperaturePriors
from bandits_torch.problems.many_arms import GridDraws, RegressionTable, VarianceStarvation
from bandits_torch.problems.moving_peaks import MovingPeaks
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.replay import replay
from bandits_torch.problems.standard_functions import Hartmann3, Rosenbrock
from bandits_torch.problems.synthetic import GPDraws, RKHSFunctions
from bandits_torch.problems.tv_gp import TVGPDraws

# Arguments of ``make``, and what the classes behind some names are built from.
_NOT_OPTIONS = {
    *("replicates", "horizon", "seed", "data"),
    *("function", "table", "times", "arms", "history", "history_times"),
}

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "gp": GPDraws,
    "rkhs": RKHSFunctions,
    "switching": SwitchingFunctions,
    "sphere-one-switch": SphereOneSwitch,
    "sphere-two-switches": SphereTwoSwitches,
    "tv-gp": TVGPDraws,
    "cosine": DriftingCosine,
    "rosenbrock": Rosenbrock,
    "hartmann3": Hartmann3,
    "moving-peaks": MovingPeaks,
    "dynamic-ackley": DynamicAckley,
    "dynamic-hartmann6": DynamicHartmann6,
    "dynamic-shekel": DynamicShekel,
    "dynamic-griewank": DynamicGriewank,
    "dynamic-levy": DynamicLevy,
    "dynamic-styblinski-tang": DynamicStyblinskiTang,
    "grid": GridDraws,
    "regression-table": RegressionTable,
    "variance-starvation": VarianceStarvation,
    "hills": Hills,
    "replay": replay,
    "intel-temperature": IntelTemperature,
    "intel-temperature-priors": IntelTemperaturePriors,
    "intel-light": IntelLight,
    "intel-humidity": IntelHumidity,
    "molene-wind": MoleneWind,
    "molene-temperature": MoleneTemperature,
    "beijing-pm25": BeijingPM25,
}


def make(
    name: str,
    *,
    replicates: int = 1,
    horizon: int | None = None,
    seed: int = 0,
    data: str | Path | None = None,
    **options: Any,
) -> Problem:
    """The problem of that name.

    Args:
        name: a key of ``PROBLEMS``.
        replicates: how many reward functions (and how many runs of a table of real rewards) side by side.
        horizon: how many steps; None: the problem's own default. Ignored by problems that never change and
            have no end.
        seed: of everything random in the problem.
        data: file (or folder that holds it) of a problem that replays real data.
        options: the problem's own arguments (``options_of``).

    Raises:
        ValueError: unknown name or option (the message lists those there are); data missing or not wanted;
            whatever the problem itself refuses.
    """
    known = options_of(name)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"options of problem {name!r} must be among {', '.join(known)}, got {', '.join(unknown)}"
        )
    parameters = _parameters(PROBLEMS[name])
    if "data" in parameters and data is None:
        raise ValueError(f"data must be given for problem {name!r}: the path of its file, got None")
    if "data" not in parameters and data is not None:
        raise ValueError(f"data must be None for problem {name!r}, which reads no file, got {str(data)!r}")
    common: dict[str, Any] = {"replicates": replicates, "horizon": horizon, "seed": seed, "data": data}
    given = {key: value for key, value in common.items() if key in parameters and value is not None}
    return PROBLEMS[name](**given, **options)


def options_of(name: str) -> dict[str, Any]:
    """The options of a problem beyond those of ``make``, with their defaults."""
    parameters = _parameters(_factory(name))
    return {key: p.default for key, p in parameters.items() if key not in _NOT_OPTIONS}


def needs_data(name: str) -> bool:
    """Whether the problem replays real data, so that ``make`` must be given ``data``."""
    return "data" in _parameters(_factory(name))


def _factory(name: str) -> Callable[..., Problem]:
    if not isinstance(name, str) or name not in PROBLEMS:
        raise ValueError(f"problem name must be one of {', '.join(PROBLEMS)}, got {name!r}")
    return PROBLEMS[name]


def describe() -> dict[str, str]:
    """One line on every problem, the first of its docstring; nothing where Python strips docstrings (``-OO``)."""
    return {name: (inspect.getdoc(one) or "").partition("\n")[0] for name, one in PROBLEMS.items()}


def _parameters(factory: Callable[..., Problem]) -> dict[str, inspect.Parameter]:
    """Named parameters of a factory; one that takes ``**options`` passes them to the class above it."""
    parameters = dict(inspect.signature(factory).parameters)
    passes_on = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {key: p for key, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
    if not (passes_on and isinstance(factory, type)):
        return named
    return named | {key: p for key, p in _parameters(factory.__mro__[1]).items() if key not in named}

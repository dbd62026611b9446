"""How a problem gets its name, once: by a decorator over what makes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bandits_torch import validation
from bandits_torch.problems.problem import Problem

Factory = TypeVar("Factory", bound=Callable[..., Problem])
# Arguments of ``make``, and what the classes behind some names are built from.
_NOT_OPTIONS = {
    *("replicates", "horizon", "seed", "data"),
    *("function", "table", "times", "arms", "history", "history_times"),
}


@dataclass(frozen=True)
class NamedProblem:
    """The registration of a problem, read by command line, documentation and universal tests.

    Attributes:
        name: the argument of ``make``.
        factory: the class or function that makes it.
        stationary: whether its functions never change.
        random: whether they are drawn at random, from seed and number of replicate.
        quick: options that make it small, for universal tests.
    """

    name: str
    factory: Callable[..., Problem]
    stationary: bool = False
    random: bool = False
    quick: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.factory) or "").partition("\n")[0]

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Everything that it takes, by name."""
        return _parameters(self.factory)

    @property
    def options(self) -> dict[str, Any]:
        """What it takes beyond the arguments of ``make``, with the defaults."""
        return {key: p.default for key, p in self.parameters.items() if key not in _NOT_OPTIONS}

    @property
    def needs_data(self) -> bool:
        """Whether it replays real data."""
        return "data" in self.parameters


REGISTERED: dict[str, NamedProblem] = {}


def named(name: str, **about: Any) -> Callable[[Factory], Factory]:
    """Register the decorated class or function under this name; the keywords are those of ``NamedProblem``.

    Raises ValueError for a name that is taken.
    """

    def register(factory: Factory) -> Factory:
        validation.require(name not in REGISTERED, "name of a problem", name, "new")
        REGISTERED[name] = NamedProblem(name, factory, **about)
        return factory

    return register


def _parameters(factory: Callable[..., Problem]) -> dict[str, inspect.Parameter]:
    """Named parameters of a factory; one that takes ``**options`` passes them to the class above it."""
    parameters = dict(inspect.signature(factory).parameters)
    passes_on = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {key: p for key, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
    if not (passes_on and isinstance(factory, type)):
        return named
    return named | {key: p for key, p in _parameters(factory.__mro__[1]).items() if key not in named}

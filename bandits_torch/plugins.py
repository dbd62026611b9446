"""Find recipes, problems and kernels of other packages, by entry point or ``module:name``. Imports nothing slow."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@cache
def installed(kind: str) -> dict[str, EntryPoint]:
    """The entry points of the group ``bandits_torch.KIND`` by name; ``kind``: recipes, problems or kernels."""
    from importlib.metadata import entry_points  # takes tens of milliseconds

    return {point.name: point for point in entry_points(group=f"bandits_torch.{kind}")}


def find(kind: str, name: str) -> Any:
    """The object that the entry point ``name``, or ``module:name``, refers to; None if ``name`` is neither.

    Raises ValueError if it cannot be imported.
    """
    module, colon, attribute = name.partition(":")
    try:
        if colon:
            return getattr(import_module(module), attribute)
        return installed(kind)[name].load() if name in installed(kind) else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{kind[:-1]} {name!r} cannot be imported: {error}") from error

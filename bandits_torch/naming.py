"""Names and numbers as text: error messages that suggest a similar name, digits, and lookup of recipes, problems and
kernels of other packages by entry point or ``module:name``. Importing this module is fast."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


_SHOWN = 8


def counted(count: float, one: str, several: str = "") -> str:
    """``count``, to four digits if it is no integer, and a noun: "1 row", "1.5 rows", "10 000 rows"; ``several``: a
    plural that is not ``one`` and an s."""
    number = written(count, 4, between=" " if count >= 10_000 else "")
    return f"{number} {one if number == '1' else several or one + 's'}"


def some(names: Collection[str], shown: int = _SHOWN) -> str:
    """The first ``shown`` names, separated by commas, and how many more there are."""
    more = len(names) - shown
    first = [name for name, _ in zip(names, range(shown), strict=False)]
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def digits_of(values: Iterable[float], least: int) -> int:
    """The number of significant digits, at least ``least``, that shows how these values differ, to two digits."""
    known = [value for value in values if math.isfinite(value)]
    between = max(known, default=0.0) - min(known, default=0.0)
    if between == 0:
        return least
    return min(15, max(least, 2 + math.ceil(math.log10(max(map(abs, known)) / between))))


def written(value: float, digits: int, sign: str = "", between: str = " ") -> str:
    """A number to so many significant digits, and below 1e12 to no fewer than those of its whole part, so without a
    positive exponent; empty for NaN. ``between``: what separates thousands."""
    if math.isnan(value):
        return ""
    whole = len(f"{abs(value):.0f}") if abs(value) < 1e12 else 0
    return f"{value:{sign},.{max(digits, whole)}g}".replace(",", between)


def named_values(values: Mapping[Any, Any]) -> str:
    """Names and values, numbers to four digits: "price=12.5, mode=a"."""
    return ", ".join(
        f"{name}={written(one, 4) if isinstance(one, float) else one}" for name, one in values.items()
    )


def close_name(name: object, known: Iterable[str]) -> str | None:
    """The closest known name, or None if none is close, or ``name`` is no word. Case is ignored, and - counts as _."""
    if not isinstance(name, str):
        return None
    from difflib import get_close_matches  # slow to import, and only needed for messages

    by_plain = {_plain(one): one for one in known}
    close = get_close_matches(_plain(name), by_plain, n=1, cutoff=0.75)
    return by_plain[close[0]] if close else None


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """``: did you mean ...?`` if a known name is close, else an empty string."""
    close = close_name(name, known)
    return "" if close is None else f": did you mean {close}?"


def unknown_name(what: str, name: object, known: Collection[str], more: str = "") -> str:
    """The message for an unknown name: it suggests a similar name, and lists the known names. If there are many, it
    lists the first eight, and ``more`` says where to find all of them."""
    guess = did_you_mean(name, known)
    if len(known) <= _SHOWN:
        return f"{what} must be one of {', '.join(known)}, got {name!r}{guess}"
    seen = f" ({more})" if more else ""
    return f"{what} must be a known name, got {name!r}{guess or ';'} there are {some(known)}{seen}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


@cache
def installed(kind: str) -> dict[str, EntryPoint]:
    """The entry points of the group ``bandits_torch.KIND`` by name; ``kind``: recipes, problems or kernels."""
    from importlib.metadata import entry_points  # takes tens of milliseconds

    return {point.name: point for point in entry_points(group=f"bandits_torch.{kind}")}


def registered(kind: str, what: str, name: object, entries: dict[str, Any], registry: dict[str, Any]) -> Any:
    """The entry of a name: of the registry, of an entry point of the group ``bandits_torch.KIND``, or ``module:name``.

    ``kind``: recipes or problems; ``what``: what the name is called in messages. Raises ValueError for an unknown name,
    and for what cannot be imported or is not registered.
    """
    if isinstance(name, str) and name not in registry and (":" in name or name in installed(kind)):
        module, colon, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute) if colon else installed(kind)[name].load()
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"{kind[:-1]} {name!r} cannot be imported: {error}") from error
        first = next((one for one, made in registry.items() if made is found), None)
        if first is None:
            raise ValueError(f"{what} must be that of a registered {kind[:-1]}, got {name!r}")
        entries[name], registry[name] = entries[first], found
    if not isinstance(name, str) or name not in registry:
        raise ValueError(unknown_name(what, name, registry, "`bandits-torch list` shows all"))
    return entries[name]


def register(what: str, entry: Any, made: Any, entries: dict[str, Any], registry: dict[str, Any]) -> None:
    """Put ``made`` into ``registry``, and its ``entry`` into ``entries``, under the name of the entry.

    A second definition in the same module, by a cell of a notebook or by a reload, replaces the first, also under its
    other names. Raises ValueError if something else has the name.
    """
    place, old_place = (
        (one.__module__, getattr(one, "__qualname__", one)) for one in (made, registry.get(entry.name, made))
    )
    if place != old_place:
        raise ValueError(f"{what} must be new, got {entry.name!r}")
    first = entries.get(entry.name)
    others = [name for name, one in entries.items() if one is first]
    for name in {entry.name: None} | dict.fromkeys(others):
        entries[name], registry[name] = entry, made

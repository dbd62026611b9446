"""``key=value`` settings of the command line: read, and sent to the problem or policies that take them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bandits_torch.naming import did_you_mean, some, unknown_name

FILE = click.Path(path_type=Path)  # or a folder
MOST_THREADS = 1024  # more than machines have; many more and the system grants none
NOT_OPTIONS = {"replicates", "first_replicate", "horizon", "seed"}  # set by flags, or never
_TAKERS_SHOWN = 2  # whose options a message lists
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def parse_value(text: str) -> Any:
    """An int, float, true/false/none or JSON list, object or string; anything else is the text itself."""
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    if word[:1] in ("[", "{", '"'):
        try:
            return json.loads(word)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"option value {text!r} must be JSON, as it starts with {word[0]}: {error}"
            ) from error
    return text


def settable(options: Iterable[str]) -> list[str]:
    """Those of a problem's or a recipe's options that ``--option`` may set."""
    return [key for key in options if key not in NOT_OPTIONS]


def whole_number(name: str, value: int | None, least: int, most: int | None = None) -> None:
    """ValueError unless the number is None or an integer >= ``least``, and <= ``most`` if that is given."""
    if value is not None and (value < least or (most is not None and value > most)):
        span = f">= {least}" if most is None else f"in {least}, ..., {most}"
        raise ValueError(f"{name} must be an integer {span}, got {value}")


def known_name(kind: str, name: str, known: Collection[str]) -> str:
    """The name; ValueError unless it is known, with the closest known one if there is any."""
    if name not in known:
        raise ValueError(unknown_name(kind, name, known, "`bandits-torch list` shows all"))
    return name


def different_names(kind: str, text: str, known: Collection[str]) -> list[str]:
    """Names separated by commas; ValueError unless there are some, all known and all different."""
    names = [name.strip() for name in text.split(",")]
    if "" in names or len(set(names)) < len(names):
        several = {"policy": "policies"}.get(kind, f"{kind}s")
        raise ValueError(f"{several} must be different names separated by commas, got {text!r}")
    return [known_name(kind, name, known) for name in names]


def send_options(
    options: Sequence[str], accepted: Mapping[str, Collection[str]], problem: str = "problem"
) -> dict[str, dict[str, Any]]:
    """Sort ``key=value`` settings by who takes them.

    Args:
        options: ``taker.key=value``; or ``key=value`` for the problem if it accepts the key, else for every
            policy that does and has no ``taker.key=value`` of its own.
        accepted: the keys each taker accepts, by the taker's name: ``problem`` and the raced policies.
        problem: the taker's name of the problem; a name that no taker has sends a bare key to all that accept it.

    Returns the settings of each taker. Raises ValueError for a setting that is no ``key=value``, given twice,
    of an unknown taker, or accepted by nobody or by both the problem and a policy; it lists what is accepted.
    """
    general: dict[str, dict[str, Any]] = {taker: {} for taker in accepted}
    named: dict[str, dict[str, Any]] = {taker: {} for taker in accepted}
    seen = set()
    for option in options:
        name, equals, text = option.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"option must be key=value, got {option!r}")
        if name in seen:
            raise ValueError(f"option {name!r} must be given once, got it again in {option!r}")
        seen.add(name)
        taker, dot, key = name.rpartition(".")
        if dot:
            _check_named(taker, key, accepted)
            named[taker][key] = parse_value(text)
        else:
            general |= {
                taker: general[taker] | {key: parse_value(text)} for taker in _takers(key, accepted, problem)
            }
    return {taker: general[taker] | named[taker] for taker in accepted}


def _check_named(taker: str, key: str, accepted: Mapping[str, Collection[str]]) -> None:
    if taker not in accepted:
        close = did_you_mean(taker, accepted)
        raise ValueError(f"option {taker}.{key} must be for one of {some(accepted)}, got {taker!r}{close}")
    if key not in accepted[taker]:
        close = did_you_mean(key, accepted[taker])
        all_of_them = some(accepted[taker]) or "none"
        raise ValueError(f"option {key!r} is not one of {taker}'s options{close} ({all_of_them})")


def _takers(key: str, accepted: Mapping[str, Collection[str]], problem: str) -> list[str]:
    takers = [taker for taker, keys in accepted.items() if key in keys]
    if not takers:
        everything = "; ".join(_listed(taker, accepted) for taker in [*accepted][:_TAKERS_SHOWN])
        more = len(accepted) - _TAKERS_SHOWN
        hidden = f"; and those of {more} more" if more > 0 else ""
        close = did_you_mean(key, {one: None for keys in accepted.values() for one in keys}) or ";"
        raise ValueError(f"option {key!r} is accepted by nobody{close} there are {everything}{hidden}")
    if problem in takers and len(takers) > 1:
        raise ValueError(
            f"option {key!r} must say for whom: {' or '.join(f'{taker}.{key}' for taker in takers)}"
        )
    return takers


def _listed(taker: str, accepted: Mapping[str, Collection[str]]) -> str:
    return f"{taker}'s options ({some(accepted[taker]) or 'none'})"

"""What a call with a bad argument comes to."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.public import ALSO_CALLED

REFUSED = "ValueError that names the argument"


def outcome(call: Callable[[], Any], *names: str) -> str:
    """REFUSED, or what went wrong: accepted, another exception, or a ValueError without one of the names."""
    names = (*names, *(other for name in names for other in ALSO_CALLED.get(name, [])))
    try:
        call()
    except ValueError as error:
        named = any(re.search(rf"\b{re.escape(name)}\b", str(error)) for name in names)
        return REFUSED if named else f"ValueError that names none of {names}: {error}"
    except Exception as error:  # the report lists whatever comes
        return f"{type(error).__name__}: {error}"
    return "accepted"


@cache
def drawn(strategy: Any, count: int) -> list[Any]:
    """The first values of a strategy, the same in every run."""
    values: list[Any] = []
    quiet = {"database": None, "derandomize": True, "deadline": None, "phases": [Phase.generate]}
    everything = {"suppress_health_check": list(HealthCheck)}

    @settings(max_examples=count, **quiet, **everything)
    @given(strategy)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values

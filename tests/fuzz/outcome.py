"""What a call with a bad argument comes to."""

import re
from collections.abc import Callable
from typing import Any

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


def shown(value: Any) -> str:
    """A value as a message shows it."""
    try:
        return repr(value)
    except ValueError:  # Python does not write all integers
        return "an integer of many digits"

"""Cases of a test: some in the short form, all in the long one."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def every(nth: int, *axes: Iterable[Any]) -> list[Any]:
    """The product of the axes as parameters, of which the short form takes every nth. With nth and the lengths of the
    axes coprime, each value of each axis comes up."""
    cases = enumerate(itertools.product(*axes))
    return [pytest.param(*case, marks=pytest.mark.long if k % nth else ()) for k, case in cases]

"""What a benchmark is: a question, a measurement that gives a table, and the words that go with the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from benchmarks.speed.measuring import Result, alone


def _silent(line: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Attributes:
        fast: sizes so small that the figures mean nothing: to see that everything runs.
        device: ``"cpu"`` or ``"cuda"``.
        say: called with a line on what is measured next.
    """

    fast: bool = False
    device: str = "cpu"
    say: Callable[[str], None] = field(default=_silent)

    def alone(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What ``function(*arguments)`` gives in a fresh process. A fast run spares the seconds that its imports take:
        it shares this one, memory and all."""
        return function(*arguments) if self.fast else alone(function, *arguments)


@dataclass(frozen=True)
class Benchmark:
    """A measurement by name.

    Attributes:
        name: on the command line, and of its result files.
        question: what it answers, in one line.
        measure: gives one row per measurement.
        describe: Markdown for the page, from the rows alone, so that the page can be written again from files.
    """

    name: str
    question: str
    measure: Callable[[Settings], pd.DataFrame]
    describe: Callable[[pd.DataFrame], str]

"""Ranges of hyperparameters, numbers and categories, as columns of the unit cube and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation


@dataclass(frozen=True)
class Numbers:
    """The numbers from ``low`` to ``high``, both included.

    Attributes:
        low, high: the ends; equal ends leave nothing to choose.
        log: whether equal ratios, not equal differences, are equal steps.
        step: only multiples of it; 0: any number.
        whole: whether values are integers. None: where the value that is replaced is one.

    Raises ValueError for ends that are no finite numbers or decrease, ``low`` <= 0 with ``log``, and a negative step.
    """

    low: float
    high: float
    log: bool = False
    step: float = 0.0
    whole: bool | None = None
    choices = 0

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        numbers = all(validation.is_number(end) and math.isfinite(end) for end in ends)
        validation.require(numbers and self.low <= self.high, "range", ends, "[low, high], low <= high, finite")
        validation.require(not self.log or self.low > 0, "range", ends, "above 0 on a logarithmic scale")
        validation.non_negative("step", self.step)

    @property
    def columns(self) -> int:
        """How many columns of the unit cube it takes."""
        return int(self.high > self.low)

    def encode(self, value: Any) -> list[float]:
        """The place of a value, clamped to the range."""
        if not self.columns:
            return []
        low, high = self._scaled(self.low), self._scaled(self.high)
        return [(self._scaled(min(max(float(value), self.low), self.high)) - low) / (high - low)]

    def decode(self, columns: Sequence[float], like: Any) -> Any:
        """The value at a place, of the type of ``like``: the value that it replaces."""
        value = self.low
        if self.columns:
            low, high = self._scaled(self.low), self._scaled(self.high)
            value = low + columns[0] * (high - low)
            value = math.exp(value) if self.log else value
        whole = isinstance(like, int) and not isinstance(like, bool) if self.whole is None else self.whole
        step = self.step or float(whole)
        if step:
            least, most = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            value = step * min(max(round(value / step), least), most)
        value = min(max(value, self.low), self.high)
        return round(value) if whole else float(value)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else float(value)


@dataclass(frozen=True)
class Categories:
    """A few values without order, of any type; each takes a column, 1 where it is the value.

    Raises ValueError for no values.
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        validation.require(len(self.values) > 0, "categories", self.values, "at least one value")

    @property
    def columns(self) -> int:
        """How many columns of the unit cube it takes."""
        return len(self.values) if len(self.values) > 1 else 0

    choices = columns

    def encode(self, value: Any) -> list[float]:
        """A one among zeros; zeros alone for a value that is none of them."""
        return [float(value == own and type(value) is type(own)) for own in self.values][: self.columns]

    def decode(self, columns: Sequence[float], like: Any) -> Any:
        """The value whose column is largest."""
        return self.values[max(range(len(columns)), key=columns.__getitem__)] if self.columns else self.values[0]


Range = Numbers | Categories


class Space:
    """Ranges by name, side by side in one unit cube: D columns.

    Args:
        ranges: at least one that leaves something to choose.

    Raises ValueError for ranges that leave nothing.
    """

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = dict(ranges)
        self.dim = sum(part.columns for part in self.ranges.values())
        validation.require(self.dim > 0, "ranges", ranges, "such that there is something to choose")

    def encode(self, values: Mapping[str, Any]) -> list[float]:
        """Columns (D,) of a value for each name."""
        return [column for name, part in self.ranges.items() for column in part.encode(values[name])]

    def decode(self, columns: Tensor, like: Mapping[str, Any]) -> dict[str, Any]:
        """Values by name at a point (D,), each of the type of that in ``like``."""
        found, at = {}, columns.tolist()
        for name, part in self.ranges.items():
            found[name] = part.decode(at[: part.columns], like.get(name))
            at = at[part.columns :]
        return found

    def snap(self, X: Tensor, like: Mapping[str, Any]) -> Tensor:
        """Points (n, D) moved to where a value is."""
        return torch.tensor([self.encode(self.decode(x, like)) for x in X], dtype=X.dtype)

    def fixed(self, like: Mapping[str, Any]) -> list[int]:
        """Columns in which only some places are values: categories, integers, multiples of a step."""
        found, start = [], 0
        for name, part in self.ranges.items():
            value = like.get(name)
            if isinstance(part, Categories):
                some = True
            elif part.whole is None:
                some = part.step > 0 or (isinstance(value, int) and not isinstance(value, bool))
            else:
                some = part.whole or part.step > 0
            if some:
                found += range(start, start + part.columns)
            start += part.columns
        return found

"""Ranges of hyperparameters, numbers and categories, as columns of a unit cube and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from bandits_torch import validation

Scale = Literal["linear", "log", "both"]
_SCALES = ("linear", "log", "both")


@dataclass(frozen=True)
class Numbers:
    """The numbers from ``low`` to ``high``, both included.

    Attributes:
        low, high: the ends; equal ends leave nothing to choose.
        scale: "linear": equal differences are equal steps; "log": equal ratios are; "both": a model sees both, and
            finds out which matters.
        step: only multiples of it; 0: any number.
        whole: whether values are integers. None: where the value that is replaced is one.

    Raises ValueError for ends that are no finite numbers or decrease, ``low`` <= 0 unless linear, another scale, and a
    negative step.
    """

    low: float
    high: float
    scale: Scale = "linear"
    step: float = 0.0
    whole: bool | None = None

    def __post_init__(self) -> None:
        for name, end in (("low", self.low), ("high", self.high)):
            validation.finite_number(name, end)
        validation.require(self.low <= self.high, "low", self.low, f"at most high, {self.high}")
        validation.require(self.scale in _SCALES, "scale", self.scale, f"one of {_SCALES}")
        validation.require(self.scale == "linear" or self.low > 0, "low", self.low, "above 0 unless linear")
        validation.non_negative("step", self.step)

    @property
    def columns(self) -> int:
        """How many columns of the unit cube it takes: 1, or 0 where there is nothing to choose."""
        return int(self.high > self.low)

    def stepped(self, like: Any) -> bool:
        """Whether only some places are values, for values of the type of ``like``."""
        return self.step > 0 or self._is_whole(like)

    def encode(self, value: Any) -> list[float]:
        """The place of a value, clamped to the range; on a logarithmic scale unless that is linear."""
        if not self.columns:
            return []
        low, high, here = (self._scaled(x) for x in (self.low, self.high, self._clamped(float(value))))
        return [(here - low) / (high - low)]

    def decode(self, columns: Sequence[float], like: Any) -> Any:
        """The value at a place, an int or a float of Python, as ``whole`` says or as ``like`` is."""
        value = self.low
        if self.columns:
            low, high = self._scaled(self.low), self._scaled(self.high)
            value = low + columns[0] * (high - low)
            value = value if self.scale == "linear" else math.exp(value)
        whole = self._is_whole(like)
        step = self.step or float(whole)
        if step:
            least, most = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            value = step * min(max(round(value / step), least), most)
        return round(value) if whole else float(self._clamped(value))

    def linear(self, u: Tensor) -> Tensor:
        """Places on the linear scale of those on the logarithmic one."""
        ratio = math.log(self.high / self.low)
        return torch.expm1(ratio * u) / math.expm1(ratio)

    def logarithmic(self, v: Tensor) -> Tensor:
        """The inverse of ``linear``."""
        ratio = math.log(self.high / self.low)
        return torch.log1p(v * math.expm1(ratio)) / ratio

    def _is_whole(self, like: Any) -> bool:
        return (isinstance(like, int) and not isinstance(like, bool)) if self.whole is None else self.whole

    def _clamped(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def _scaled(self, value: float) -> float:
        return float(value) if self.scale == "linear" else math.log(value)


@dataclass(frozen=True)
class Categories:
    """A few values without order, of any type; each takes a column, 1 where it is the value.

    Raises ValueError for no values.
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        validation.require(len(self.values) > 0, "values", self.values, "at least one value")

    @property
    def columns(self) -> int:
        """How many columns of the unit cube it takes: one a value, or 0 where there is nothing to choose."""
        return len(self.values) if len(self.values) > 1 else 0

    def stepped(self, like: Any) -> bool:
        """True: only some places are values."""
        return True

    def encode(self, value: Any) -> list[float]:
        """A one among zeros; zeros alone for a value that is none of them."""
        return [float(type(value) is type(own) and value == own) for own in self.values][: self.columns]

    def decode(self, columns: Sequence[float], like: Any) -> Any:
        """The value whose column is largest, the object given."""
        return self.values[max(range(self.columns), key=columns.__getitem__) if self.columns else 0]


Range = Numbers | Categories


class Space:
    """Ranges by name, side by side in one unit cube of D columns.

    Args:
        ranges: at least one that leaves something to choose.

    Attributes:
        dim: D.

    Raises ValueError for ranges that leave nothing to choose.
    """

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = dict(ranges)
        self.dim = sum(part.columns for part in self.ranges.values())
        validation.require(self.dim > 0, "ranges", self.ranges, "such that there is something to choose")
        self._both: list[tuple[int, Numbers]] = []
        self._numbers: list[int] = []
        start = 0
        for part in self.ranges.values():
            if isinstance(part, Numbers) and part.columns:
                self._numbers.append(start)
                if part.scale == "both":
                    self._both.append((start, part))
            start += part.columns

    def encode(self, values: Mapping[str, Any]) -> list[float]:
        """Columns, D numbers, of a value for each name."""
        return [column for name, part in self.ranges.items() for column in part.encode(values[name])]

    def decode(self, point: Tensor, like: Mapping[str, Any]) -> dict[str, Any]:
        """Values by name at a point (D,), each of the type of that in ``like``."""
        found, left = {}, point.tolist()
        for name, part in self.ranges.items():
            found[name] = part.decode(left[: part.columns], like.get(name))
            left = left[part.columns :]
        return found

    def snap(self, X: Tensor, like: Mapping[str, Any]) -> Tensor:
        """Points (n, D) moved to where values are, each of the type of that in ``like``."""
        if not any(part.stepped(like.get(name)) for name, part in self.ranges.items()):
            return X
        return torch.tensor([self.encode(self.decode(x, like)) for x in X], dtype=X.dtype)

    def features(self, X: Tensor) -> Tensor:
        """What a model sees of points (n, D): their columns, and the linear one of each range on both scales."""
        return torch.cat([X, *(part.linear(X[:, c : c + 1]) for c, part in self._both)], -1)

    def off_middle(self, X: Tensor) -> Tensor:
        """How far points (n, D) are from the middle of the ranges of numbers, (n,): the mean of (2 x_j - 1)^2, 0 in the
        middle of all and 1 where all are at their ends; 0 where there are categories alone."""
        if not self._numbers:
            return X.new_zeros(len(X))
        return (2 * X[:, self._numbers] - 1).square().mean(-1)

    def sample(self, n: int, seed: int) -> Tensor:
        """n scrambled Sobol points (n, D); on ranges of both scales every other one is even on the linear one."""
        engine = torch.quasirandom.SobolEngine(self.dim, scramble=True, seed=seed)
        X = engine.draw(n, dtype=torch.float64)
        for c, part in self._both:
            X[1::2, c] = part.logarithmic(X[1::2, c])
        return X

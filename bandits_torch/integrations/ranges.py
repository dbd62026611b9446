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
        low, high: the ends; with equal ends there is nothing to choose.
        scale: "linear": equal differences are equal distances; "log": equal ratios are; "both": a model gets both
            scales as inputs, and learns which matters.
        step: values are multiples of it; 0: any number.
        whole: whether values are integers. None: if the value that is replaced is one.

    Raises ValueError for ends that are not finite or decrease, ``low`` <= 0 unless linear, another scale, and a
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
        validation.one_of("scale", self.scale, *_SCALES)
        validation.require(self.scale == "linear" or self.low > 0, "low", self.low, "above 0 unless linear")
        validation.non_negative("step", self.step)

    @property
    def columns(self) -> int:
        """Number of its columns in the unit cube: 1, or 0 if there is nothing to choose."""
        return int(self.high > self.low)

    def stepped(self, like: Any) -> bool:
        """Whether only some places in the column are values, for values of the type of ``like``."""
        return self.step > 0 or self._is_whole(like)

    def encode(self, value: Any) -> list[float]:
        """The place of a value, clamped to the range; on a logarithmic scale unless ``scale`` is "linear"."""
        if not self.columns:
            return []
        low, high, here = (self._scaled(x) for x in (self.low, self.high, self._clamped(float(value))))
        return [(here - low) / (high - low)]

    def decode(self, columns: Sequence[float], like: Any) -> Any:
        """The value at a place, a Python int or float according to ``whole``, or to the type of ``like``."""
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
        """Places on the linear scale, from those on the logarithmic one."""
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
    """Unordered values of any type, one-hot: each has a column.

    Raises ValueError for no values.
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        validation.require(len(self.values) > 0, "values", self.values, "at least one value")

    @property
    def columns(self) -> int:
        """Number of its columns in the unit cube: one per value, or 0 if there is nothing to choose."""
        return len(self.values) if len(self.values) > 1 else 0

    def stepped(self, like: Any) -> bool:
        """True: only some places in its columns are values."""
        return True

    def encode(self, value: Any) -> list[float]:
        """One-hot columns; all zeros for a value that is not in ``values``."""
        return [float(type(value) is type(one) and value == one) for one in self.values][: self.columns]

    def decode(self, columns: Sequence[float], like: Any) -> Any:
        """The object in ``values`` whose column is largest."""
        return self.values[max(range(self.columns), key=columns.__getitem__) if self.columns else 0]


Range = Numbers | Categories


class Space:
    """Ranges by name, side by side in one unit cube of D columns.

    Args:
        ranges: by name, at least one with something to choose.

    Attributes:
        dim: D.

    Raises ValueError if no range has anything to choose.
    """

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = dict(ranges)
        self.dim = sum(part.columns for part in self.ranges.values())
        validation.require(self.dim > 0, "ranges", self.ranges, "ranges with something to choose")
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
        """Points (n, D) rounded to values, each of the type of that in ``like``."""
        if not any(part.stepped(like.get(name)) for name, part in self.ranges.items()):
            return X
        return torch.tensor([self.encode(self.decode(x, like)) for x in X], dtype=X.dtype)

    def features(self, X: Tensor) -> Tensor:
        """Inputs of a model at points (n, D): their columns, and a linear one for each range on both scales."""
        return torch.cat([X, *(part.linear(X[:, c : c + 1]) for c, part in self._both)], -1)

    def off_middle(self, X: Tensor) -> Tensor:
        """Distance of points (n, D) from the middle of the ranges of numbers, (n,): the mean of (2 x_j - 1)^2.

        It is 0 in the middle of all ranges, 1 at the ends of all, and 0 if there are categories only.
        """
        if not self._numbers:
            return X.new_zeros(len(X))
        return (2 * X[:, self._numbers] - 1).square().mean(-1)

    def sample(self, n: int, seed: int) -> Tensor:
        """n scrambled Sobol points (n, D); for ranges of both scales, every second is uniform on the linear scale."""
        engine = torch.quasirandom.SobolEngine(self.dim, scramble=True, seed=seed)
        X = engine.draw(n, dtype=torch.float64)
        for c, part in self._both:
            X[1::2, c] = part.logarithmic(X[1::2, c])
        return X

"""Conversions between users' values and a policy's numbers: names of arms, masks, dates, settings by name, rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeGuard, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.description import Described
from bandits_torch.mixed_points import Axis, Space

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "D": 86400.0}  # per unit of time
_PERIODS = {"day": 86400.0, "week": 7 * 86400.0}  # in seconds
SEQUENCES = (list, tuple, np.ndarray, pd.Index, pd.Series)
_WORDS = ("log", "integer")
_UNKNOWN_ZONES = ("date", "zone")  # of dates, before the first one decides the zone


def is_sequence_of_words(value: Any) -> TypeGuard[Sequence[str]]:
    """Whether this is a non-empty list of strings."""
    return isinstance(value, SEQUENCES) and len(value) > 0 and all(isinstance(one, str) for one in value)


def checked_names(names: Any, num_arms: int, of: str = "arm") -> tuple[str, ...]:
    """The names of ``num_arms`` arms or contexts. Raises ValueError unless they are that many different words."""
    words = isinstance(names, SEQUENCES) and all(isinstance(one, str) and one for one in names)
    right = words and len(set(names)) == len(names) == num_arms
    expected = f"{num_arms} different words, one for each {of}"
    validation.require(right, "names" if of == "arm" else f"{of}_names", names, expected)
    return tuple(map(str, names))


def number_of_arm(name: str, arm: str, names: Sequence[str] | None) -> int:
    """The number of ``arm`` among ``names``; ``name`` is the argument's name. Raises ValueError for an unknown arm."""
    if names is None:
        raise ValueError(f"{name} must be a number, or left out, if arms have no names, got {arm!r}")
    validation.known_names(name, [arm], names)
    return names.index(arm)


def mask_of_arms(available: Any, names: tuple[str, ...] | None, num_arms: int) -> Any:
    """The mask (N,) for a list of booleans or of names, or a ``Series`` of booleans, by name if its index holds words;
    None, a tensor and an ``ArmContext`` are returned as they are. Raises ValueError for anything else."""
    if available is None or isinstance(available, Tensor | ArmContext):
        return available
    given = list(available) if isinstance(available, (*SEQUENCES, set, frozenset)) else []
    if given and all(isinstance(one, bool | np.bool_) for one in given):
        index = list(available.index) if isinstance(available, pd.Series) else []
        if names and is_sequence_of_words(index):
            right = sorted(index) == sorted(names)
            validation.require(right, "available", index, f"a boolean for each of {names}")
            given = [given[index.index(name)] for name in names]
        validation.require(len(given) == num_arms, "available", available, f"{num_arms} booleans")
        return torch.tensor([bool(one) for one in given])
    expected = f"a list of {num_arms} booleans" + (f", or of names among {names}" if names else "")
    words = names is not None and bool(given) and all(isinstance(one, str) for one in given)
    validation.require(words, "available", available, expected)
    assert names is not None
    validation.known_names("available", given, names)
    return torch.tensor([name in given for name in names])


def context_of(context: Any, names: tuple[str, ...] | None) -> ArmContext:
    """The ``ArmContext`` for a number, numbers, or a listed context's name; an ``ArmContext`` unchanged."""
    if isinstance(context, ArmContext):
        return context
    if isinstance(context, str):
        if names is None:
            raise ValueError(f"context must be numbers: contexts have no names, got {context!r}")
        validation.known_names("context", [context], names)
        context = names.index(context)
    if not isinstance(context, Tensor):
        try:
            context = torch.from_numpy(np.array(context, dtype=np.float64))  # a copy: theirs may be read-only
        except (TypeError, ValueError):
            validation.require(False, "context", context, "numbers, or an ArmContext")
    return ArmContext(context.reshape(1) if context.dim() == 0 else context)


class Times:
    """Converts times to numbers and back; all times must be of the same kind as the first.

    The number of a date is the time since 1970 in ``time_unit``. Without a zone, every day has 24 hours. Dates are
    shown in the zone of the first.

    Args:
        time_unit: unit of the numbers of dates: "s", "min", "h" or "D".

    Attributes:
        zone: "": no time was given yet; "number": times are numbers; "date": times will be dates, with or without a
            zone; "zone": times will be dates with a zone; "none": dates without a zone; else the zone of the dates, a
            name such as "Europe/Berlin", or an offset such as "+01:00".
        reason: why times must be of this kind, for messages.

    Raises ValueError for any other unit.
    """

    def __init__(self, time_unit: str) -> None:
        validation.one_of("time_unit", time_unit, *SECONDS)
        self.unit, self.zone, self.reason = time_unit, "", "as the times before"

    def read(self, name: str, value: Any) -> tuple[float, str]:
        """The number of a time, and the value of ``zone`` once the time is accepted; changes nothing. Raises ValueError
        for a time of a different kind from those before."""
        moment = self._moment(name, value)
        if isinstance(value, np.integer | np.floating) and not isinstance(value, np.timedelta64):
            value = value.item()
        if moment is None:
            zone, number = "number", validation.finite_number(name, value)
        else:
            zone = "none"
            if moment.utcoffset() is not None:
                called = getattr(moment.tzinfo, "key", None) or getattr(moment.tzinfo, "zone", None)
                zone = str(called or moment.isoformat(timespec="seconds")[19:])  # +01:00, or with seconds
            start = datetime(1970, 1, 1, tzinfo=None if zone == "none" else UTC)
            number = (moment - start).total_seconds() / SECONDS[self.unit]
        zoned = "a date with a zone"
        kinds = {"number": "a number", "date": "a date", "none": "a date without a zone", "zone": zoned}
        before, now = (kinds.get(kind, zoned) for kind in (self.zone, zone))
        where = "" if self.zone in kinds else f", in zone {self.zone!r}"
        expected = f"{before}, {self.reason}{where}"
        fits = not self.zone or before == now or (self.zone == "date" and zone != "number")
        validation.require(fits, name, value, expected)
        return number, zone if self.zone in ("", *_UNKNOWN_ZONES) else self.zone

    def read_all(self, name: str, values: Iterable[Any]) -> Tensor:
        """The numbers (T,) of times; later times must be of their kind. Raises ValueError unless all are of one."""
        numbers = []
        for value in values:
            number, self.zone = self.read(name, value)
            numbers.append(number)
        return torch.tensor(numbers, dtype=torch.float64)

    def periods(self, cycles: Any) -> tuple[Any, bool]:
        """Cycles with "day" and "week" converted to numbers, anything else as it is; and whether there are such
        names."""
        several = [cycles] if isinstance(cycles, str) else cycles
        named = [isinstance(one, str) and one in _PERIODS for one in several]
        periods = [
            _PERIODS[one] / SECONDS[self.unit] if is_name else one
            for one, is_name in zip(several, named, strict=True)
        ]
        return periods[0] if isinstance(cycles, str) else periods, any(named)

    @staticmethod
    def _moment(name: str, value: Any) -> datetime | None:
        """The date that is given, with its time of day; None for a number."""
        expected = "a finite number, a date, or a string in ISO 8601"
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value)
            except ValueError:
                validation.require(False, name, value, expected)
        if isinstance(value, np.datetime64):
            given, value = value, value.astype("datetime64[us]").item()
            validation.require(isinstance(value, datetime), name, given, expected)
        if isinstance(value, date) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime):
            return None
        validation.require(value == value, name, value, expected)  # not pandas.NaT
        return value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value

    def shown(self, number: float) -> Any:
        """A time in readable form: a ``datetime`` in the zone, or the number."""
        if self.zone in ("", "number"):
            return float(number)
        since = timedelta(seconds=number * SECONDS[self.unit])
        if self.zone in ("date", "none"):
            return datetime(1970, 1, 1) + since
        return (datetime(1970, 1, 1, tzinfo=UTC) + since).astimezone(_zone_called(self.zone))


def rewards_of_table(name: str, table: pd.DataFrame, names: Sequence[str] | None) -> Tensor:
    """The rewards (T, N) in the columns of a table, in the order of the arms' names; NaN where one is missing. Raises
    ValueError if the columns have other names, and for cells that are not numbers."""
    if names is not None:
        right = len(table.columns) == len(names) and set(table.columns) == set(names)
        validation.require(right, name, list(table.columns), f"a table with the columns {', '.join(names)}")
        table = table[list(names)]
    try:
        return torch.from_numpy(table.to_numpy(dtype=np.float64, copy=True, na_value=np.nan))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error


def _zone_called(zone: str) -> Any:
    if zone == "zone":
        return UTC
    if zone[0] in "+-":
        return datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").tzinfo
    return ZoneInfo(zone)


def checked_zone(zone: Any) -> str:
    """A zone read from a state. Raises ValueError if it is not a zone."""
    try:
        right = isinstance(zone, str) and (
            zone in ("", "number", *_UNKNOWN_ZONES, "none") or _zone_called(zone) is not None
        )
    except (ValueError, ZoneInfoNotFoundError):
        right = False
    validation.require(right, "state['zone']", zone, "a time zone that this machine knows")
    return str(zone)


class Settings(Described):
    """Settings by name, as points of the unit cube.

    Args:
        ranges: by name, a range of numbers ``(low, high)``, with "log", "integer" or both words after it; or a list of
            at least two different values without an order.

    Raises ValueError, which names the setting, for anything else.
    """

    def __init__(self, ranges: Mapping[str, Any]) -> None:
        validation.instance("ranges", ranges, Mapping, "ranges by name")
        self.values: dict[str, list[Any]] = {}
        axes = {}
        for name, given in ranges.items():
            validation.require(isinstance(name, str) and bool(name), "a setting's name", name, "a word")
            axes[name] = self._axis(name, given)
        self.space = Space(axes)

    def _axis(self, name: str, given: Any) -> Axis:
        expected = (
            "(low, high), low < high, then 'log' or 'integer', or a list of at least two different values"
        )
        if isinstance(given, list | tuple):
            plain = [one.item() if isinstance(one, np.generic) else one for one in given]
            given = plain if isinstance(given, list) else tuple(plain)
        if isinstance(given, list):
            right = len(given) > 1 and all(isinstance(v, (str, int, float, bool)) for v in given)
            different = len({(type(v), v) for v in given}) == len(given) if right else False
            validation.require(different, name, given, expected)
            self.values[name] = list(given)
            return Axis(choices=len(given))
        right = isinstance(given, tuple) and len(given) >= 2 and all(map(validation.is_number, given[:2]))
        right = right and {*given[2:]} <= {*_WORDS} and -math.inf < given[0] < given[1] < math.inf
        validation.require(right, name, given, expected)
        low, high, *words = given
        log, whole = (word in words for word in _WORDS)
        validation.require(not log or low > 0, name, given, "a range above 0 with 'log'")
        integers = low == int(low) and high == int(high)
        validation.require(not whole or integers, name, given, "a range of integers")
        return Axis(float(low), float(high), log=log, step=1.0 if whole else None)

    def moves(self, limits: Any, prices: Any, start_at: Any) -> dict[str, Any]:
        """``max_move``, ``move_price`` and ``start_at`` as ``CostlyMoves`` takes them.

        Args:
            limits: by name, how far a setting may move, in its unit, or by which factor if its range has "log"; or one
                share of the range for all settings. Lists of values have no limit.
            prices: cost of a move across the whole range, or to another value of a list, by name or one for all.
            start_at: a value for every name, or None.

        Raises ValueError, which names the setting, for numbers out of range.
        """
        far, price = torch.full((self.space.dim,), torch.inf).double(), torch.zeros(self.space.dim).double()
        for name, axis in self.space.axes.items():
            at, listed = self.space.columns[name], name in self.values
            ends = torch.tensor([axis.low, axis.high], dtype=torch.float64)
            whole = 1.0 if listed else float(axis.to_unit(ends).diff())  # in columns
            by_name = isinstance(limits, Mapping)
            limit = limits.get(name) if by_name else None if listed else limits
            if limit is not None:
                validation.require(not listed, f"max_move[{name!r}]", limit, "none for a list of values")
                least = 1.0 if by_name and axis.step and not axis.log else 0.0
                expected = f"a number above {1.0 if by_name and axis.log else 0.0:g}"
                expected = "a number of at least 1, a whole step" if least else expected
                right = validation.is_number(limit) and limit >= least and limit > float(by_name and axis.log)
                validation.require(right, f"max_move[{name!r}]", limit, expected)
                span = math.log(axis.high / axis.low) if axis.log else axis.high - axis.low
                share = (math.log(limit) if axis.log else limit) / span if by_name else limit
                far[at] = share * whole
            each = prices.get(name, 0.0) if isinstance(prices, Mapping) else prices
            right = validation.is_number(each) and 0 <= each < math.inf
            validation.require(right, f"move_price[{name!r}]", each, "a finite number >= 0")
            price[at] = each / (2 if listed else whole)
        for name, given in (("max_move", limits), ("move_price", prices)):
            validation.known_names(name, given if isinstance(given, Mapping) else (), self.space.axes)
        at_first = None if start_at is None else self.point("start_at", start_at)
        return {"max_move": None if limits is None else far, "move_price": price, "start_at": at_first}

    def point(self, name: str, settings: Any) -> Tensor:
        """The point (d,) for a mapping with a value for every name."""
        validation.instance(name, settings, Mapping, f"a value for each of {[*self.space.axes]}")
        validation.known_names(name, settings, self.space.axes)
        lacks = [one for one in self.space.axes if one not in settings]
        validation.require(not lacks, name, dict(settings), f"with a value for {lacks}")
        return self.space.encode({one: self._number(one, value) for one, value in settings.items()})

    def _number(self, name: str, value: Any) -> float:
        if name in self.values:
            known = self.values[name]
            at = [k for k, one in enumerate(known) if type(one) is type(value) and one == value]
            validation.require(bool(at), name, value, f"one of {known}")
            return float(at[0])
        axis = self.space.axes[name]
        inside = axis.low <= validation.finite_number(name, value) <= axis.high
        validation.require(inside, name, value, f"from {axis.low:g} to {axis.high:g}")
        validation.require(not axis.step or value == int(value), name, value, "an integer")
        return float(value)

    def settings(self, point: Tensor) -> dict[str, Any]:
        """Plain values by name at a point (d,)."""
        numbers = self.space.decode(point)
        whole = {name: round(value) for name, value in numbers.items() if self.space.axes[name].discrete}
        return numbers | whole | {name: listed[whole[name]] for name, listed in self.values.items()}

    def domain(self, limits: Any) -> Any:
        """The ``Domain`` under limits by name, each a value or a narrower ``(low, high)``. Anything but a mapping is
        returned as it is."""
        if not isinstance(limits, Mapping):
            return limits
        validation.known_names("available", limits, self.space.axes)
        ranges, fixed = {}, {}
        for name, given in limits.items():
            if isinstance(given, tuple):
                two = len(given) == 2 and name not in self.values
                validation.require(two, name, given, "(low, high) of a range, or a value")
                low, high = (self._number(name, end) for end in given)
                validation.require(low < high, name, given, "increasing")
                ranges[name] = (low, high)
            else:
                fixed[name] = self._number(name, given)
        validation.require(len(fixed) < len(self.space.axes), "available", dict(limits), "one setting free")
        return self.space.domain(ranges, fixed)


def shown_choice(arm: Tensor, names: tuple[str, ...] | None, settings: Settings | None) -> Any:
    """A choice (S,) or (S, d) as plain values: an arm's name or number, settings by name, or a list of numbers; for
    several replicates, a list of these."""
    each: list[Any] = arm.tolist() if settings is None else [settings.settings(point) for point in arm]
    if names is not None:
        each = [names[k] for k in each]
    return each[0] if len(each) == 1 else each


def points_of(points: Any, settings: Settings | None) -> Any:
    """Points (N, d) for a list of settings by name; a tensor or None as it is, as is anything without settings. Raises
    ValueError for anything else."""
    if settings is None or points is None or isinstance(points, Tensor):
        return points
    named = isinstance(points, Sequence) and all(isinstance(one, Mapping) for one in points)
    validation.require(named and len(points) > 0, "points", points, "a list of settings by name, or a tensor")
    return torch.stack([settings.point(f"points[{k}]", one) for k, one in enumerate(points)])


# -- rewards and outcomes ---------------------------------------------------------------------------------------


def numbers(name: str, value: Any) -> Tensor:
    """A float64 tensor of finite numbers, up to 1e140 in size, from a number, a tensor, an array or a sequence."""
    if isinstance(value, np.ndarray | pd.Series):
        value = np.array(value)  # without labels, and in memory that PyTorch can use
    is_real = not (value.is_complex() if isinstance(value, Tensor) else np.iscomplexobj(value))
    try:
        numbers = torch.as_tensor(value if is_real else None, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        validation.require(False, name, value, "a finite number, or a tensor of such")
        raise
    return validation.rewards(name, numbers.detach())


def listed(name: str, value: Any) -> list[Any]:
    """The items of a sequence other than text. Raises ValueError for anything else."""
    try:
        items = None if isinstance(value, str) else list(value)
    except TypeError:
        items = None
    validation.require(items is not None, name, value, "a list")
    return cast(list[Any], items)


def for_each(name: str, value: Tensor, replicates: int) -> Tensor:
    """A number for each replicate, (S,)."""
    fits = value.shape in ((), (replicates,))
    validation.shape_is(name, value, fits, f"() or ({replicates},)")
    return value.expand(replicates)


def outcomes_of(given: Any, names: tuple[str, ...], replicates: int) -> Tensor:
    """Outcomes (S, m) in the order of their names, from a mapping by name or from numbers in that order."""
    S = replicates
    validation.require(len(names) > 0, "outcomes", given, "None: the policy learns only the reward")
    if isinstance(given, pd.Series) and is_sequence_of_words(given.index):
        given = given.to_dict()
    if isinstance(given, Mapping):
        validation.known_names("outcomes", given, names)
        validation.require(set(given) == set(names), "outcomes", tuple(given), f"all of {names}")
        columns = {name: numbers(f"outcomes[{name!r}]", given[name]) for name in names}
        return torch.stack(
            [for_each(f"outcomes[{name!r}]", column, S) for name, column in columns.items()], -1
        )
    values = numbers("outcomes", given)
    fits = values.shape in ((len(names),), (S, len(names)))
    validation.shape_is("outcomes", values, fits, f"({len(names)},) or ({S}, {len(names)}), {names}")
    return values.expand(S, len(names))

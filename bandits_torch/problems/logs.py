"""Logs of past pulls, each with time, arm, reward and perhaps propensity and context; and readers of such files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.naming import counted, some
from bandits_torch.problems.table_files import (
    TEXT,
    empty_row,
    find_time,
    is_numeric,
    known_columns,
    numbers,
    read_frame,
    read_times,
    words,
)
from bandits_torch.problems.tables import PROPENSITY_NAMES, REWARD_NAMES, RewardTable, names_given, table_of

_ARM = ("arm", "arms", "action", "variant", "choice", "item")
_AVAILABLE = ("available", "available_arms", "arms_available", "eligible")


@validation.names_arguments
@dataclass(frozen=True)
class Log:
    """A log of past choices: one row per pull. It copies the tensors that it is given to the CPU.

    Attributes:
        times: (n,), never decreasing; like all real numbers here, converted to float64.
        arms: (n,) integers 0, ..., N - 1: the arm pulled.
        rewards: (n,): its reward.
        arm_names: N >= 2 different names; default "0", "1", ... up to the largest index in ``arms``.
        propensity: (n,) in (0, 1]: the probability with which the pulled arm was drawn; None: not known.
        available: (n, N) booleans: which arms could be pulled; None: all, always.
        notes: what ``read_log`` noted about the file, one line each.
        contexts: (n, c), the context of each pull; None: no contexts.
        context_names: if each context is one of M, their names; ``contexts`` is then (n, 1), with numbers 0 to M - 1.
        dated: whether times are dates, in seconds since 1970.
        zoned: whether these dates have a time zone, and so count in UTC; None: not known.

    Raises ValueError for anything else, and for a pull of an arm that was not available.
    """

    times: Tensor
    arms: Tensor
    rewards: Tensor
    arm_names: tuple[str, ...] = ()
    propensity: Tensor | None = None
    available: Tensor | None = None
    notes: tuple[str, ...] = ()
    contexts: Tensor | None = None
    context_names: tuple[str, ...] = ()
    dated: bool = False
    zoned: bool | None = None

    def __post_init__(self) -> None:
        arms = validation.tensor("arms", self.arms)
        whole = not (arms.is_floating_point() or arms.is_complex() or arms.dtype == torch.bool)
        validation.require(whole, "arms", arms.dtype, "integers")
        validation.shape_is("arms", arms, arms.dim() == 1 and len(arms) > 0, "(n,), n >= 1")
        n = len(arms)
        names = validation.names("arm_names", self.arm_names) or tuple(map(str, range(int(arms.max()) + 1)))
        object.__setattr__(self, "arm_names", names)
        object.__setattr__(self, "arms", arms.to("cpu", copy=True))
        validation.require(len(set(names)) == len(names) >= 2, "arm_names", names, "two or more, different")
        within = int(arms.min()) >= 0 and int(arms.max()) < len(names)
        validation.require(within, "arms", arms, f"0 to {len(names) - 1}")
        for name in ("times", "rewards", "propensity"):
            column = getattr(self, name)
            if column is not None or name != "propensity":
                column = validation.finite_tensor(name, validation.real(name, column))
                validation.of_shape(name, column, (n,), note=", one for each pull")
                object.__setattr__(self, name, column.clone())
        validation.rewards("rewards", self.rewards)
        validation.require(bool((self.times.diff() >= 0).all()), "times", self.times, "in order of time")
        if self.propensity is not None:
            row = int(((self.propensity <= 0) | (self.propensity > 1)).long().argmax())
            chance, expected = float(self.propensity[row]), "above 0 and at most 1 (of the arm pulled)"
            validation.require(
                0 < chance <= 1, "propensity", f"{chance:.4g} in row {row + 1} by time", expected
            )
        if self.available is not None:
            validation.tensor("available", self.available)
            fits = self.available.shape == (n, len(names)) and self.available.dtype == torch.bool
            validation.shape_is("available", self.available, fits, f"({n}, {len(names)}) and dtype bool")
            object.__setattr__(self, "available", self.available.to("cpu", copy=True))
            pulled = self.available.gather(1, self.arms.long().unsqueeze(1)).squeeze(1)
            said = f"False in row {int(pulled.long().argmin()) + 1} by time"
            validation.require(bool(pulled.all()), "available", said, "True for its arm")
        if self.contexts is None:
            validation.require(not self.context_names, "context_names", self.context_names, "()")
        else:
            contexts = validation.rewards("contexts", validation.real("contexts", self.contexts)).clone()
            object.__setattr__(self, "contexts", contexts)
            fits = contexts.dim() == 2 and len(contexts) == n and contexts.shape[1] > 0
            validation.shape_is("contexts", contexts, fits, f"({n}, c), one for each pull")
            names = validation.names("context_names", self.context_names)
            object.__setattr__(self, "context_names", names)
            if names:
                different = len(set(names)) == len(names)
                validation.require(different, "context_names", names, "different from each other")
                indices = torch.arange(len(names)).to(self.contexts)
                fits = self.contexts.shape[1] == 1 and bool(torch.isin(self.contexts, indices).all())
                validation.require(fits, "contexts", self.contexts, f"({n}, 1), 0 to {len(names) - 1}")

    @property
    def num_arms(self) -> int:
        """N."""
        return len(self.arm_names)

    @property
    def context_options(self) -> dict[str, int]:
        """The options of ``recipes.auto`` for these contexts; empty without contexts."""
        if self.contexts is None:
            return {}
        number = len(self.context_names)
        return {"contexts": number} if number else {"context_dim": self.contexts.shape[1]}

    def over(self, names: Sequence[str]) -> Log:
        """The same pulls over arms with these names, in this order; arms that the log lacks are unavailable.

        Raises ValueError if an arm of the log is not among them.
        """
        validation.known_names("log", self.arm_names, names)
        number = torch.tensor([list(names).index(name) for name in self.arm_names])
        available = self.available
        if len(names) > self.num_arms or available is not None:
            known = True if available is None else available
            available = torch.zeros(len(self.arms), len(names), dtype=torch.bool)
            available[:, number] = known
        return replace(self, arms=number[self.arms.long()], arm_names=tuple(names), available=available)

    def under(self, names: Sequence[str]) -> Log:
        """The same pulls, with contexts numbered by their places in ``names``.

        Raises ValueError if contexts have no names, or if one of the log's contexts is not among these.
        """
        validation.require(bool(self.context_names), "log", "contexts without names", "one of named contexts")
        validation.known_names("contexts of the log", self.context_names, names)
        number = torch.tensor([list(names).index(name) for name in self.context_names]).double()
        contexts = number[cast(Tensor, self.contexts).long()]
        return replace(self, contexts=contexts, context_names=tuple(names))

    def __str__(self) -> str:
        """A description in sentences."""
        known = "not known" if self.propensity is None else f"at least {float(self.propensity.min()):.3g}"
        lines = [
            f"A log: {counted(len(self.arms), 'pull')} of {counted(self.num_arms, 'arm')}, a reward each. "
            "What other arms would have paid is not known. Means are given with their standard errors.",
            f"Propensities (the probabilities with which arms were drawn): {known}.",
        ]
        if self.available is not None:
            lines += [f"Arms available at a pull: {float(self.available.sum(1).double().mean()):.3g} (mean)."]
        if self.context_names:
            lines += [f"Contexts: {', '.join(self.context_names)}."]
        elif self.contexts is not None:
            lines += [f"Numbers of a context: {self.contexts.shape[1]}."]
        for k, name in enumerate(self.arm_names):
            own = self.rewards[self.arms == k]
            error = f" ± {float(own.std()) / len(own) ** 0.5:.2g}" if len(own) > 1 else ""
            mean = f", mean reward {float(own.mean()):.4g}{error}" if len(own) else ""
            lines += [f"{name}: {counted(len(own), 'pull')}{mean}."]
        return "\n".join(lines)


def read_log(
    path: str | Path,
    *,
    time_column: str = "auto",
    arm: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    available: str | None = None,
    contexts: Sequence[str] | str | None = None,
    arm_names: Sequence[str] | str | None = None,
    time: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    epoch: str | None = None,
) -> Log:
    """Read a log from CSV or Parquet, one row per pull. Rows are sorted by time; equal times keep their order.

    Args:
        path: the file.
        time_column: the column of times, numbers or dates; ``"auto"``: recognised as by ``read_table``.
        arm: the column of the arm pulled. None: one called arm, arms, action, variant, choice or item; otherwise the
            only other column of text.
        reward: the column of its reward. None: one called reward, rewards, value or y; otherwise the only other column
            without text.
        propensity: the column of the probability with which the arm was drawn. None: one called propensity,
            propensities, propensity_score, probability, prob or p, if there is one.
        available: the column that lists the arms that could be pulled, separated by |, ; or commas. None: one called
            available, available_arms, arms_available or eligible, if there is one.
        contexts: names of the columns that were known before each choice (a sequence, or one string with commas):
            columns of numbers, or one column of text, whose different entries are then numbered in alphabetical order.
        arm_names: all arms, in order (likewise); None: those pulled or available, by size if all are numbers, else in
            alphabetical order.
        time: another name of the argument ``time_column``.
        separator, decimal, encoding, epoch: as for ``read_table``.

    Raises ValueError for a file that cannot be read, a column that is missing or not recognised, an empty cell in a
    column that is read, and whatever ``Log`` refuses.
    """
    columns = {"arm": arm, "reward": reward, "propensity": propensity, "available": available}
    for name, column in {**columns, "time": time}.items():
        validation.instance(name, column, (str, type(None)), "the name of a column, or None")
    validation.require(
        time is None or time_column == "auto", "time", time, "left out if time_column is given"
    )
    under, every = names_given("contexts", contexts) or [], names_given("arm_names", arm_names)
    as_text = {*_ARM, *_AVAILABLE} | {name.lower() for name in (arm, available) if name}
    reading: Any = {"separator": separator, "encoding": encoding, "decimal": decimal, "epoch": epoch}
    asked = time or time_column
    frame, found, mark = read_frame(path, (), as_text, asked, kinds=(*TEXT, ".parquet"), **reading)
    return _log_of(frame, mark, found, columns, under, every)


def read_data(path: str | Path, **reading: Any) -> RewardTable | Log:
    """Read a file as a table of rewards or as a log of pulls, whichever it is.

    A file with columns of time, arm and reward (as ``read_log`` recognises them) is a table with one row per reward if
    every arm has exactly one row at every time, otherwise a log. So is one with columns of time, arm and propensity (or
    available arms), whose column of rewards must then be named. Any other file is a table with one column per arm
    (``read_table``).

    ``path``: a CSV, Parquet or NPZ file. ``reading``: time_column, header, separator, decimal, encoding, epoch
    as for ``read_table``.

    Raises ValueError for a file that is neither.
    """
    frame, time, mark = read_frame(path, (), {*_ARM, *_AVAILABLE}, **reading)
    claimed = {
        name for known in (PROPENSITY_NAMES, _AVAILABLE) for name in _called(known, list(frame.columns))
    }
    time_column = find_time(frame, time, mark)
    arms, rewards = _arm_and_reward(frame, {time_column, *claimed})
    if time_column is None or len(arms) != 1 or not (len(rewards) == 1 or claimed):
        return table_of(frame, mark, time_column=time)
    log = _log_of(frame, mark, time_column, {"arm": arms[0]})
    pairs = torch.stack([log.times, log.arms.double()]).unique(dim=1).shape[1]
    whole = len(log.arms) == pairs == log.num_arms * len(log.times.unique())
    return table_of(frame, mark, time_column=time, long=f"{arms[0]},{rewards[0]}") if whole else log


def _called(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that are among the known ones, ignoring case."""
    return [name for name in names if name.strip().lower() in known]


def _arm_and_reward(
    frame: pd.DataFrame,
    claimed: set[str | None],
    arm: str | None = None,
    reward: str | None = None,
    contexts: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Columns that may hold the arm, and columns that may hold the reward, without those ``claimed`` for other uses."""
    left = [name for name in frame.columns if name not in claimed]
    arms = [arm] if arm else _called(_ARM, left)
    rewards = [reward] if reward else _called(REWARD_NAMES, left)
    if not (arms and rewards):
        left = [name for name in left if name not in contexts]
        texts = [name for name in left if not is_numeric(frame[name]) and len(words(frame[name]))]
        arms = arms or [name for name in texts if name not in rewards]
        rewards = rewards or [name for name in left if name not in {*texts, *arms}]
    return arms, rewards


def _log_of(
    frame: pd.DataFrame,
    mark: str,
    time: str | None,
    columns: Mapping[str, str | None],
    contexts: Sequence[str] = (),
    arm_names: Sequence[str] | None = None,
) -> Log:
    """The log in a file; ``columns``: the columns that the user named, by argument of ``read_log``."""
    names = list(frame.columns)
    for argument, name in columns.items():
        known_columns(argument, [] if name is None else [name], names)

    def one(argument: str, found: Sequence[str]) -> str:
        if len(found) != 1:
            raise ValueError(f"{argument} must be the name of a column, got None; there are {some(names)}")
        return found[0]

    optional: dict[str, str | None] = {}
    for argument, known in (("propensity", PROPENSITY_NAMES), ("available", _AVAILABLE)):
        found = [column] if (column := columns.get(argument)) else _called(known, names)
        optional[argument] = one(argument, found) if found else None
    time_found = find_time(frame, time, mark)
    time_column = one("time_column", [] if time_found is None else [time_found])
    claimed = {time_column, *optional.values()}
    arms, rewards = _arm_and_reward(frame, claimed, columns.get("arm"), columns.get("reward"), contexts)
    arm_column, reward_column = one("arm", arms), one("reward", rewards)
    clock = read_times(time_column, frame[time_column], mark)
    order = np.argsort(clock.values, kind="stable")
    chosen = [time_column, arm_column, reward_column]
    chosen += [column for column in optional.values() if column is not None]
    expected = "different, for time, arm, reward, propensity and available"
    validation.require(len({*chosen}) == len(chosen), "columns", chosen, expected)
    validation.require(len({*contexts}) == len(contexts), "contexts", contexts, "different from each other")
    known_columns("contexts", contexts, names)
    taken = [name for name in contexts if name in chosen]
    validation.require(not taken, "contexts", taken, "no column of time, arm, reward or propensity")
    for name in [*chosen[1:], *contexts]:
        if (row := empty_row(frame[name])) is not None:
            raise ValueError(
                f"row {row}, column {name!r} must not be empty (leave out pulls of which it is not known)"
            )
    pulled = [str(cell).strip() for cell in frame[arm_column]]
    listed = optional["available"]
    lists = [] if listed is None else [_listed(cell) for cell in frame[listed]]
    seen = {*pulled}.union(*lists)
    every = _in_order(seen) if arm_names is None else list(arm_names)
    unknown = sorted(seen - {*every})
    validation.require(not unknown, "arm_names", every, f"with all arms of the file (lacks {some(unknown)})")
    place = {name: k for k, name in enumerate(every)}
    mask = torch.tensor([[name in those for name in every] for those in lists])
    others = [name for name in names if name not in {*chosen, *contexts}]
    pulls = f"{counted(len(frame), 'pull')} of {counted(len(every), 'arm')}"
    notes = [f"log: {pulls}; times: {time_column!r}, {clock.unit}; {arm_column!r}, {reward_column!r}"]
    notes += [f"left out: {some(others)}"] if others else []

    def values(name: str) -> Tensor:
        return torch.from_numpy(numbers(name, frame[name], mark)[order])

    texts = [name for name in contexts if len(words(frame[name]))]
    alone = not texts or len(contexts) == 1
    validation.require(alone, "contexts", list(contexts), f"{texts[:1]} alone, or columns of numbers")
    context_names, context_values = [], None
    if texts:
        cells = [str(cell).strip() for cell in frame[texts[0]]]
        context_names = sorted(set(cells))
        context_values = torch.tensor([[context_names.index(cell)] for cell in cells])[order].double()
    elif contexts:
        context_values = torch.stack([values(name) for name in contexts], -1)
    drawn_with = optional["propensity"]
    return Log(
        times=torch.from_numpy(clock.values[order]),
        arms=torch.tensor([place[name] for name in pulled])[order],
        rewards=values(reward_column),
        arm_names=tuple(every),
        propensity=None if drawn_with is None else values(drawn_with),
        available=mask[order] if lists else None,
        notes=tuple(notes),
        contexts=context_values,
        context_names=tuple(context_names),
        dated=clock.dated,
        zoned=clock.zoned if clock.dated else None,
    )


def _in_order(names: Collection[str]) -> list[str]:
    """Names in alphabetical order; by size if all are numbers, so arm 2 comes before arm 10."""
    try:
        return sorted(names, key=lambda name: (Decimal(name), name))
    except InvalidOperation:  # a word, or NaN, which has no place among numbers
        return sorted(names)


def _listed(cell: Any) -> set[str]:
    """The arms listed in a cell; a number is a list of one."""
    if not isinstance(cell, str):
        return {str(one) for one in (cell if isinstance(cell, Iterable) else [cell])}
    named = re.split(r"[|;,]", cell.strip().strip("[](){}"))
    return {one.strip(" '\"") for one in named} - {""}

"""A cell of a sweep: one policy on one problem, for one block of replicates. The result is the same wherever it
runs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import torch

from bandits_torch import problems, recipes, validation
from bandits_torch._version import __version__
from bandits_torch.history import PER_REPLICATE, History
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem


@dataclass(frozen=True)
class Block:
    """A batch of replicates.

    Args:
        replicates: their number; they are numbered from ``first_replicate``.
        horizon: number of steps of each.
        first_replicate: number of the first.
        seed: of all random numbers.

    Raises ValueError for numbers below 1, or below 0 for the last two.
    """

    replicates: int
    horizon: int
    first_replicate: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        validation.positive_integer("replicates", self.replicates)
        validation.positive_integer("horizon", self.horizon)
        validation.natural("first_replicate", self.first_replicate)
        validation.natural("seed", self.seed)


@dataclass(frozen=True)
class ProblemSetting:
    """A problem by its name, with its options: built for any block of replicates.

    Args:
        name: a key of ``problems.PROBLEMS``.
        options: the problem's own (``problems.options_of``), plain values.
        data: path of a problem that replays real data; its steps are the rows of the data.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None

    def __call__(self, block: Block) -> Problem:
        """The problem of these replicates."""
        known = problems.options_of(self.name)
        first = {"first_replicate": block.first_replicate} if "first_replicate" in known else {}
        return problems.make(
            self.name,
            replicates=block.replicates,
            horizon=block.horizon if self.data is None else None,
            seed=block.seed,
            data=self.data,
            **{**first, **self.options},
        )


@dataclass(frozen=True)
class RecipeSetting:
    """A recipe by its name, with its options: built for a problem and a block of its replicates.

    Args:
        name: a key of ``recipes.RECIPES``.
        options: the recipe's own (``recipes.options_of``), plain values.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, problem: Problem, block: Block) -> Policy:
        """The policy of these replicates."""
        numbered = "first_replicate" in recipes.options_of(self.name)
        first = {"first_replicate": block.first_replicate} if numbered else {}
        return recipes.build(
            self.name,
            problem,
            replicates=block.replicates,
            horizon=block.horizon,
            seed=block.seed,
            **{**first, **self.options},
        )


MakeProblem = Callable[[Block], Problem]
MakePolicy = Callable[[Problem, Block], Policy]


@dataclass(frozen=True, eq=False)
class Cell:
    """One policy on one problem, for one block of replicates.

    Args:
        problem, policy: their names in tables and files.
        make_problem: ``ProblemSetting``, or any other function of a block.
        make_policy: ``RecipeSetting``, or any other function of a problem and a block.
        block: replicates and number of steps (fewer if the problem ends earlier).
    """

    problem: str
    policy: str
    make_problem: MakeProblem
    make_policy: MakePolicy
    block: Block

    def run(self) -> History:
        """Build problem and policy, and play. The result depends on the cell alone (and on torch's threads)."""
        problem = self.make_problem(self.block)
        steps = min(self.block.horizon, problem.horizon or self.block.horizon)
        block = Block(self.block.replicates, steps, self.block.first_replicate, self.block.seed)
        policy = self.make_policy(problem, block)
        history = run(policy, problem, steps, seed=block.seed, first_replicate=block.first_replicate)
        history.meta |= {"problem": self.problem, "policy": self.policy}
        return history

    @property
    def title(self) -> str:
        """Problem, policy and replicates in words."""
        first, count = self.block.first_replicate, self.block.replicates
        return f"{self.problem}, {self.policy}, replicates {first} to {first + count - 1}"

    @property
    def key(self) -> str:
        """File name of the result: readable labels and replicates, then a digest of all that determines the result.

        The digest covers problem and policy with all options, block, seed and this package's version; of real data, the
        path but not the content. Raises ValueError for settings that cannot be described: a lambda, an option that is
        an object.
        """
        parts = {"block": asdict(self.block), "labels": [self.problem, self.policy], "version": __version__}
        for name, maker in (("problem", self.make_problem), ("policy", self.make_policy)):
            try:
                parts[name] = json.dumps(maker, sort_keys=True, default=_plain)
            except TypeError as error:
                expected = (
                    "a setting, a dataclass or a function of a module, with plain options, to name its file"
                )
                raise ValueError(f"{name} must be {expected}, got {error}") from error
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        first, count = self.block.first_replicate, self.block.replicates
        label = re.sub(r"[^\w.=-]+", "_", f"{self.problem}-{self.policy}-{first}-{first + count - 1}")
        return f"{label}-{digest}.npz"


def make_cells(
    problems: Mapping[str, MakeProblem],
    policies: Mapping[str, MakePolicy],
    block: Block,
    size: int | None = None,
) -> list[Cell]:
    """Every policy on every problem, problem by problem, in blocks of at most ``size`` replicates (None: one block).

    A policy may choose a setting, such as a window, by an average over the replicates of its block. The division into
    blocks is therefore part of what defines a result.
    """
    size = block.replicates if size is None else validation.positive_integer("block", size)
    end = block.first_replicate + block.replicates
    blocks = [
        Block(min(size, end - first), block.horizon, first, block.seed)
        for first in range(block.first_replicate, end, size)
    ]
    return [
        Cell(problem, policy, make_problem, make_policy, part)
        for problem, make_problem in problems.items()
        for policy, make_policy in policies.items()
        for part in blocks
    ]


def join_blocks(histories: Sequence[History]) -> History:
    """The history of all replicates of blocks that follow one another; seconds are the sum over the blocks."""
    if len(histories) == 1:
        return histories[0]
    ends = {history.horizon for history in histories}
    validation.require(len(ends) == 1, "histories", sorted(ends), "of the same number of steps")
    each = {name: torch.cat([getattr(history, name) for history in histories]) for name in PER_REPLICATE}
    traces = [set(history.trace) for history in histories]
    trace = {
        name: torch.cat([h.trace[name].expand(h.replicates, h.horizon) for h in histories])
        for name in histories[0].trace
        if all(name in names for names in traces)
    }
    seconds = torch.stack([history.seconds for history in histories]).sum(0)
    wall = sum(float(history.meta["wall_seconds"]) for history in histories)
    meta = histories[0].meta | {"wall_seconds": wall}
    return History(**each, times=histories[0].times, seconds=seconds, trace=trace, meta=meta)


def _plain(value: Any) -> Any:
    """Plain values in place of what JSON cannot write: a tensor, a mapping, a dataclass with its class, a function's
    place."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        held = {item.name: getattr(value, item.name) for item in fields(value)}
        return {"class": f"{type(value).__module__}.{type(value).__qualname__}", **held}
    place = getattr(value, "__qualname__", "<")
    if "<" in place:
        raise TypeError(repr(value))
    return f"{value.__module__}.{place}"

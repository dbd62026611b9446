"""What happened in a run, step by step and replicate by replicate."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.files import atomic_write, interrupts_held_back
from bandits_torch.state_files import read_archive, whole_or_refused

FORMAT = "bandits_torch history"
FORMAT_VERSION = 1
COLUMNS = ("replicate", "step", "time", "arm", "reward", "expected", "best", "regret")
PER_REPLICATE = ("arms", "rewards", "expected_rewards", "best")
_PER_STEP = ("times", "seconds")


@dataclass(eq=False)
class History:
    """The record of one run: S replicates, T steps. Every tensor lies on the CPU.

    Attributes:
        arms: (S, T) integers, the arms pulled; on a continuous domain (S, T, d), the points played.
        rewards: (S, T) rewards that the policy observed, with noise.
        expected_rewards: (S, T) mean rewards of the arms pulled.
        best: (S, T) highest mean reward among the arms available at the step.
        times: (T,) time of each step, in the problem's unit.
        seconds: (T,) wall-clock time of ``choose`` plus ``learn`` for all replicates. On a GPU this is the time to
            launch the work; ``meta["wall_seconds"]`` is exact on any device.
        trace: values that the policy reported at each step, by name, (S, T) or (T,); NaN if it reported none.
        meta: plain values: names of policy and problem, seed, device, versions, wall_seconds.

    Raises ValueError for a tensor of another shape, and for a name in ``trace`` that is one of ``COLUMNS``.
    """

    arms: Tensor
    rewards: Tensor
    expected_rewards: Tensor
    best: Tensor
    times: Tensor
    seconds: Tensor
    trace: dict[str, Tensor] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = validation.tensor("arms", self.arms).shape[:2]
        validation.shape_is("arms", self.arms, self.arms.dim() in (2, 3), "(S, T), or (S, T, d) of points")
        for name in PER_REPLICATE[1:]:
            value = validation.tensor(name, getattr(self, name))
            validation.shape_is(name, value, value.shape == shape, f"{tuple(shape)}, as arms")
        for name in _PER_STEP:
            value = validation.tensor(name, getattr(self, name))
            validation.shape_is(name, value, value.shape == shape[1:], f"({shape[1]},), one per step")
        for name, value in self.trace.items():
            validation.require(name not in COLUMNS, "trace", name, f"without the names {COLUMNS}")
            ok = validation.tensor(f"trace[{name!r}]", value).shape in (shape, shape[1:])
            validation.shape_is(f"trace[{name!r}]", value, ok, f"{tuple(shape)} or ({shape[1]},)")

    @property
    def replicates(self) -> int:
        """S."""
        return self.arms.shape[0]

    @property
    def horizon(self) -> int:
        """T."""
        return self.arms.shape[1]

    @property
    def regret(self) -> Tensor:
        """Dynamic regret of each step, max_x f_t(x) - f_t(x_t) over the arms available at t, (S, T)."""
        return self.best - self.expected_rewards

    @property
    def cumulative_regret(self) -> Tensor:
        """Regret summed up to each step, (S, T)."""
        return self.regret.cumsum(-1)

    @property
    def mean_cumulative_regret(self) -> float:
        """Mean over the replicates of the regret summed over the whole run."""
        return float(self.regret.sum(-1).mean())

    @property
    def standard_error(self) -> float:
        """Standard error of ``mean_cumulative_regret``; NaN for a single replicate, and for identical ones."""
        return math.nan if self.identical else float(standard_error(self.regret.sum(-1)))

    @property
    def identical(self) -> bool:
        """Whether all replicates pulled the same arms and saw the same rewards without noise. Then nothing in the run
        was random, and their spread of 0 measures nothing."""
        return all(
            bool((values == values[:1]).all()) for values in (self.arms, self.rewards, self.expected_rewards)
        )

    @property
    def ms_per_step(self) -> float:
        """Milliseconds per step for all replicates together: on a CPU, of ``choose`` and ``learn``; on a GPU, of the
        whole loop with problem and scoring, because timing its parts would slow it down."""
        on_cpu = str(self.meta.get("device", "cpu")) == "cpu"
        total = float(self.seconds.sum()) if on_cpu else float(self.meta["wall_seconds"])
        return 1e3 * total / self.horizon

    def to_frame(self) -> pd.DataFrame:
        """One row per replicate and step: the columns ``COLUMNS``, then one per trace name.

        On a continuous domain, the coordinates' columns x0, x1, ... replace ``arm``.

        Replicates are numbered from ``meta["first_replicate"]``, steps from 1.
        """
        S, T = self.arms.shape[:2]
        points = self.arms.dim() == 3
        first = int(self.meta.get("first_replicate", 0))
        columns = {
            "replicate": torch.arange(first, first + S).unsqueeze(1).expand(S, T),
            "step": torch.arange(1, T + 1).expand(S, T),
            "time": self.times.expand(S, T),
            **({f"x{i}": x for i, x in enumerate(self.arms.unbind(-1))} if points else {"arm": self.arms}),
            "reward": self.rewards,
            "expected": self.expected_rewards,
            "best": self.best,
            "regret": self.regret,
        }
        columns |= {name: value.expand(S, T) for name, value in self.trace.items()}
        return pd.DataFrame({name: value.reshape(-1).numpy() for name, value in columns.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a compressed ``.npz`` of plain arrays and a JSON header, whole or not at all."""
        header = {"format": FORMAT, "version": FORMAT_VERSION, "meta": self.meta, "trace": list(self.trace)}
        arrays = {name: getattr(self, name).numpy() for name in PER_REPLICATE + _PER_STEP}
        arrays |= {f"trace{i}": value.numpy() for i, value in enumerate(self.trace.values())}
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        with interrupts_held_back(), atomic_write(path) as file:
            np.savez_compressed(file, **arrays)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> History:
        """Read a file that ``save`` wrote, without executing anything in it.

        Raises FileNotFoundError, and ValueError for a file that is truncated, damaged, not a history or of
        a newer format version.
        """
        name, (header, arrays) = os.fspath(path), read_archive(path, "history")
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"{name!r} is not a history file: its header says {str(header)[:80]!r}")
        version = header.get("version")
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise ValueError(f"{name!r} has history format {version}; this version reads {FORMAT_VERSION}")
        with whole_or_refused(name, "history"):
            trace = {one: torch.from_numpy(arrays[f"trace{i}"]) for i, one in enumerate(header["trace"])}
            tensors = {one: torch.from_numpy(arrays[one]) for one in PER_REPLICATE + _PER_STEP}
            return History(**tensors, trace=trace, meta=header["meta"])


def standard_error(values: Tensor) -> Tensor:
    """Standard error of the mean over the first dimension; NaN for a single row."""
    count = values.shape[0]
    if count == 1:
        return torch.full_like(values[0], torch.nan)
    return values.std(0) / count**0.5

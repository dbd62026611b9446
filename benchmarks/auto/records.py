"""Tables of the protocol: a firm's, made up, and records that nothing was developed on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch.experiments.cells import Block
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.tables import RewardTable
from bandits_torch.streams import ReplicateStreams
from benchmarks.leaderboard import settings
from benchmarks.leaderboard.environments import Record, RecordSetting

_MID_JUNE_2013, _NEW_YEAR_2014 = 1_371_254_400, 1_388_534_400


class FirmTable(Replay):
    """A table such as a firm would have: 40 arms in five groups, a season of 24 hours, drift, a jump, irregular times,
    3 % missing, noise of 15 % of the variance, rewards in thousands, two arms whose reward is constant.

    The first fifth is history, noise and all; what is played gives the table's rewards, and regret is counted in
    expected ones. One replicate; a seed makes another table.
    """

    def __init__(self, seed: int, rows: int = 625) -> None:
        g = np.random.default_rng(seed)
        n = 40
        hours = np.cumsum(g.exponential(1.0, rows) * np.where(g.random(rows) < 0.03, 12.0, 1.0))
        group = g.integers(5, size=n)
        level, season = g.normal(0, 0.7, 5)[group] + g.normal(0, 0.5, n), g.normal(0, 0.5, 5)[group]
        phase = g.uniform(0, 2 * np.pi, 5)[group] + g.normal(0, 0.2, n)
        walk = np.cumsum(g.normal(0, 0.05, (rows, 5)), 0)[:, group] + np.cumsum(
            g.normal(0, 0.02, (rows, n)), 0
        )
        jump = np.where(np.arange(rows)[:, None] >= int(rows * g.uniform(0.4, 0.8)), g.normal(0, 1.0, n), 0.0)
        clean = level + season * np.cos(2 * np.pi * hours[:, None] / 24 + phase) + walk + jump
        clean = 5.0 + clean
        clean[:, :2] = 5.0
        noise = g.normal(0, math.sqrt(0.15 * clean[:, 2:].var()), (rows, n))
        noise[:, :2] = 0.0
        table = 1000 * (clean + noise)
        table[g.random((rows, n)) < 0.03] = np.nan
        super().__init__(RewardTable(torch.from_numpy(table), torch.from_numpy(3600.0 * hours)))
        self._clean = 1000 * torch.from_numpy(clean[-len(self.table) :])
        assert len(self.table) == self.horizon

    def expected_rewards(self, step: int) -> Tensor:
        """The rewards without their noise, NaN where missing, (1, N)."""
        table = super().expected_rewards(step)
        return torch.where(table.isnan(), table, self._clean[step - 1])

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """What the table has beyond that."""
        difference = super().expected_rewards(step) - self._clean[step - 1]
        return difference.expand(len(arm), -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True)
class Firm:
    """A firm's table for the seed of the block."""

    def __call__(self, block: Block) -> Problem:
        """One replicate, whose table is that of the block's seed plus its first replicate."""
        return FirmTable(block.seed + block.first_replicate)


@dataclass(frozen=True)
class Unseen:
    """A record that nothing was developed on, played from evenly spread starts as on the leaderboard.

    cmu-light: the laboratory's own split, 144 steps; molene-rain: hourly rain, January 2014, the first fifth is
    history, 240 steps; beijing-o3: hourly ozone from 2014 on, 90 days before it are history, 500 of 1 000 steps.
    """

    name: str
    data: str

    def __call__(self, block: Block) -> Problem:
        """The problem of these replicates."""
        table, arms, history, steps = getattr(self, "_" + self.name.replace("-", "_"))()
        replay = Replay(table, arms=arms, history=history)
        steps = min(steps, block.horizon)
        return Record(replay, steps, settings.REPLICATES, block.first_replicate, block.replicates)

    def _cmu_light(self) -> tuple[Tensor, Tensor, Tensor | None, int]:
        table, history, xy = (_array(self.data, "cmu_light.npz", name) for name in ("test", "train", "xy"))
        return table, xy, history, 144

    def _molene_rain(self) -> tuple[Tensor, Tensor, Tensor | None, int]:
        table, xy = (_array(self.data, "molene_weather.npz", name) for name in ("rain", "rain_xy_km"))
        return table, xy, None, 240

    def _beijing_o3(self) -> tuple[Tensor, Tensor, Tensor | None, int]:
        table, time = (_array(self.data, "beijing_air.npz", name) for name in ("o3", "time"))
        first = int((time < _NEW_YEAR_2014).sum())
        place = _array(self.data, "beijing_air.npz", "latlon_approx")
        return table[first : first + 1000], place, table[first - 90 * 24 : first], 500


_EARLY: dict[str, tuple[str, dict[str, Any], int]] = {
    "light-early": ("intel-light", {"day": "2004-03-06", "days": 5}, 288),
    "humidity-early": ("intel-humidity", {"day": "2004-03-06", "days": 5}, 288),
    "pm25-early": ("beijing-pm25", {"start": "2013-09-01"}, 500),
    "molene-temperature": ("molene-temperature", {}, 240),
}
DEVELOPED_ON = (*_EARLY, "o3-early", "cmu-light-training")


@dataclass(frozen=True)
class Developed:
    """A record for development: earlier days of what is played elsewhere, or another quantity, ten starts.

    o3-early: hourly ozone from 15 June 2013, 90 days before it are history; cmu-light-training: the last 300 rows of
    the laboratory's own training split, the others are history.
    """

    name: str
    data: str

    def __call__(self, block: Block) -> Problem:
        """The problem of these replicates."""
        if self.name in _EARLY:
            problem, options, steps = _EARLY[self.name]
            return RecordSetting(problem, options, self.data, steps, 10)(block)
        if self.name == "o3-early":
            table, time = (_array(self.data, "beijing_air.npz", name) for name in ("o3", "time"))
            first = int((time < _MID_JUNE_2013).sum())
            arms = _array(self.data, "beijing_air.npz", "latlon_approx")
            record = Replay(
                table[first : first + 1000], arms=arms, history=table[max(first - 90 * 24, 0) : first]
            )
            steps = 500
        else:
            rows, arms = (_array(self.data, "cmu_light.npz", name) for name in ("train", "xy"))
            record, steps = Replay(rows[301:], arms=arms, history=rows[:301]), 144
        return Record(record, min(steps, block.horizon), 10, block.first_replicate, block.replicates)


def _array(data: str, file: str, name: str) -> Tensor:
    with np.load(Path(data) / file, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays[name].astype(np.float64))

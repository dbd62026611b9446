"""Tables of the protocol: a firm's, made up, and records that nothing was developed on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch.experiments.engines import Block
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.tables import RewardTable
from bandits_torch.streams import ReplicateStreams
from benchmarks.leaderboard import settings
from benchmarks.leaderboard.environments import Record, RecordSetting

_MID_JUNE_2013, _NEW_YEAR_2014 = 1_371_254_400, 1_388_534_400


UNSEEN = ("cmu-light", "molene-rain", "beijing-o3")  # nothing was developed on these
_EARLY: dict[str, tuple[str, dict[str, Any], int]] = {
    "light-early": ("intel-light", {"day": "2004-03-06", "days": 5}, 288),
    "humidity-early": ("intel-humidity", {"day": "2004-03-06", "days": 5}, 288),
    "pm25-early": ("beijing-pm25", {"start": "2013-09-01"}, 500),
    "molene-temperature": ("molene-temperature", {}, 240),
}
DEVELOPED_ON = (*_EARLY, "o3-early", "cmu-light-training")


class CleanTable(Replay):
    """A table whose rewards without noise are known: regret is counted in these. One replicate.

    A subclass sets ``_clean``, (T, N), of the rows played.
    """

    _clean: Tensor

    def expected_rewards(self, step: int) -> Tensor:
        """The rewards without their noise, NaN where missing, (1, N)."""
        table = super().expected_rewards(step)
        return torch.where(table.isnan(), table, self._clean[step - 1])

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """What the table has beyond that."""
        return (self.table[step - 1] - self._clean[step - 1])[arm]


class FirmTable(CleanTable):
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


def record(name: str, block: Block, data: Path) -> Record:
    """One of ``UNSEEN``, from as many evenly spread starts as on the leaderboard, or of ``DEVELOPED_ON``, from ten.

    cmu-light: the laboratory's own split, 144 steps; cmu-light-training: the last 300 rows of its training split, the
    others are history. molene-rain: hourly rain, January 2014, the first fifth is history, 240 steps. beijing-o3:
    hourly ozone from 2014 on, and o3-early, from 15 June 2013 on: 90 days before are history, 500 of 1 000 steps. The
    others: earlier days of what is played elsewhere, or another quantity.
    """
    starts, history = settings.REPLICATES if name in UNSEEN else 10, None
    if name in _EARLY:
        problem, options, steps = _EARLY[name]
        return RecordSetting(problem, options, str(data), steps, starts)(block)
    if name == "molene-rain":
        (table, arms), steps = _arrays(data / "molene_weather.npz", "rain", "rain_xy_km"), 240
    elif name in ("beijing-o3", "o3-early"):
        ozone, time, arms = _arrays(data / "beijing_air.npz", "o3", "time", "latlon_approx")
        first = int((time < (_NEW_YEAR_2014 if name == "beijing-o3" else _MID_JUNE_2013)).sum())
        table, history, steps = ozone[first : first + 1000], ozone[max(first - 90 * 24, 0) : first], 500
    else:
        table, history, arms = _arrays(data / "cmu_light.npz", "test", "train", "xy")
        if name == "cmu-light-training":
            table, history = history[301:], history[:301]
        steps = 144
    replay = Replay(table, arms=arms, history=history)
    return Record(replay, min(steps, block.horizon), starts, block.first_replicate, block.replicates)


def _arrays(file: Path, *names: str) -> list[Tensor]:
    with np.load(file, allow_pickle=False) as arrays:
        return [torch.from_numpy(arrays[name].astype(np.float64)) for name in names]

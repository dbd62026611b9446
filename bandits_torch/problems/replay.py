"""A problem that replays a table of real rewards, with prior knowledge estimated from earlier rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.arms import ArmCovarianceKernel, estimate_covariance
from bandits_torch.naming import counted, some
from bandits_torch.problems.diagnosis import kind_of_values, unit_of
from bandits_torch.problems.forgetting_fit import (
    ForgettingFit,
    fit_forgetting,
    fit_forgetting_of_shares,
    fit_forgetting_rate,
    without_noise,
)
from bandits_torch.problems.periods import FIND, checked_periods, fit_cycles
from bandits_torch.problems.problem import Knowledge, Problem, named
from bandits_torch.problems.simulated import regularised_norm
from bandits_torch.problems.tables import RewardTable, read_table
from bandits_torch.streams import ReplicateStreams

_WARM_UP = 0.2
_SHOWN = 6  # names listed in a summary
_NORM_ROWS = 100  # past rows, at most, for the bound on the RKHS norm


class Replay(Problem):
    """A table of real rewards: pulling arm n at step t gives the table's entry (t, n), without noise.

    Prior knowledge is estimated from past rows, which are not played: from ``history`` or, without one, from the first
    ``warm_up`` of the table.

    * kernel: covariance between arms, by index: ``estimate_covariance`` minus the noise;
    * prior mean: the mean of each arm, about which the covariance is estimated; ``"grand"`` gives all arms one
      mean, for a history too short to distinguish arms;
    * noise variance, and forgetting rate per unit of time: joint maximum likelihood estimates
      (``fit_forgetting``); ``fit`` has them with their intervals. For rewards of 0 and 1 the noise is the same share
      of every arm's variance, and the noise variance is the mean over the arms;
    * RKHS bound: the largest norm of the fits to past rows within the noise variance (``regularised_norm``), over
      at most 100 evenly spread rows. Later rows may exceed it.

    The unit of time is the median gap between rows; the first row after the history is at time 1. Rows without any
    reward are not played. An arm without a reward cannot be pulled then: ``available`` masks it, and its expected
    reward is NaN. So a log of pulls cannot be replayed (``read_table`` refuses it).

    Args:
        table: (T, N) rewards in order of time, NaN where missing, or a ``RewardTable``, which also has times and names.
        times: (T,) increasing; None: one row per unit of time.
        arms: (N, d) features of the arms, None for none. ``problem.arms`` is (N, 1 + d): the arm's index,
            which the kernel reads, then the features.
        history: (T', N) rewards before the table's, NaN where missing, never played.
        history_times: (T',) in the units of ``times`` and before them; given if and only if both
            ``history`` and ``times`` are. Without times, history ends just before the table.
        warm_up: share of the table, in (0, 1), that serves as history if none is given; None: 0.2.
        prior_mean: ``"arm"``, ``"grand"``, or a number.
        noise_fraction: share in (0, 1) of the arms' average variance that is the noise variance, instead of the
            estimate (Chowdhury & Gopalan 2017, section 6, use 0.05).
        forgetting_rate: in [0, 1), instead of the estimate.
        cycles: periods, in median gaps between rows, of the arms' cycles in past rows, for ``auto``: a number or
            several; ``"find"``: those found in these rows (``find_periods``); None: no cycles.
        horizon: number of rows to play; None: all.
        replicates: number of runs in the batch; all see the same rewards.

    Raises:
        ValueError: bad shapes, infinities, times that do not increase, an arm with fewer than two rewards
            in the history, a constant history, more steps than rows with a reward.
    """

    noise_is_added = True
    fit: ForgettingFit | None

    def __init__(
        self,
        table: Tensor | RewardTable,
        times: Tensor | None = None,
        arms: Tensor | None = None,
        *,
        history: Tensor | None = None,
        history_times: Tensor | None = None,
        warm_up: float | None = None,
        prior_mean: str | float = "arm",
        noise_fraction: float | None = None,
        forgetting_rate: float | None = None,
        cycles: str | float | Sequence[float] | None = None,
        horizon: int | None = None,
        replicates: int = 1,
    ) -> None:
        checked_periods(cycles)
        if isinstance(table, RewardTable):
            validation.require(times is None, "times", times, "None with a RewardTable, which has its own")
        else:
            table = RewardTable(validation.tensor("table", table), times)
        self.replicates = validation.positive_integer("replicates", replicates)
        self.arm_names = table.arm_names
        if history is None and warm_up is None:
            warm_up = _WARM_UP
        self._record, past = _record_of(table, history, history_times, warm_up)
        self.arms = torch.arange(table.rewards.shape[1], dtype=torch.float64).unsqueeze(-1)
        if arms is not None:
            validation.of_shape("arms", validation.finite_tensor("arms", arms), (self.num_arms, "d"))
            self.arms = torch.cat([self.arms, arms.to(self.arms)], dim=-1)
        rows, times = self._record.rewards, self._record.times
        times = torch.arange(len(rows), dtype=torch.float64) if times is None else times
        gap = times.diff().median()
        clock = (times - times[past]) / gap + 1
        self._step_length = "one row"
        if table.times is not None and not table.in_seconds:
            self._step_length = f"{float(gap):.6g} of the time's units (the median gap)"
        elif table.times is not None:  # in the largest unit up to the gap
            name, size = unit_of(float(gap))
            self._step_length = f"{counted(float(gap) / size, name)} (the median gap)"
        self.history, self.history_times = rows[:past], clock[:past]
        known = self._estimated(warm_up, prior_mean, noise_fraction, forgetting_rate)
        self.knowledge = replace(known, cycles=fit_cycles(rows[:past].numpy(), clock[:past].numpy(), cycles))
        rewards, clock = rows[past:], clock[past:]
        has_reward = ~torch.isnan(rewards).all(-1)
        steps = int(has_reward.sum())
        if horizon is not None:
            ok = 1 <= validation.positive_integer("horizon", horizon) <= steps
            validation.require(ok, "horizon", horizon, f"an integer in 1, ..., {steps}, the rows to play")
        # Tables that differ in any number have different digests.
        parts = (self.history, rewards, clock)
        numbers = b"".join(part.cpu().contiguous().numpy().tobytes() for part in parts)
        self.digest = hashlib.sha256(numbers).hexdigest()[:16]
        self.horizon = steps if horizon is None else horizon
        validation.require(self.horizon >= 1, "table", table.rewards, "a table with rewards left to play")
        self.table = rewards[has_reward][: self.horizon]
        available = ~torch.isnan(self.table)
        self._available = None if bool(available.all()) else available
        self._times: list[float] = clock[has_reward].tolist()
        self._notes = table.notes
        empty, beyond = len(has_reward) - steps, steps - self.horizon
        self._left_out = {"without any reward": empty, "left out by the horizon": beyond}

    def _estimated(
        self,
        warm_up: float | None,
        prior_mean: str | float,
        noise_fraction: float | None,
        forgetting_rate: float | None,
    ) -> Knowledge:
        """The prior knowledge from the history, without cycles. Sets ``fit``; None with a ``noise_fraction``.

        ``warm_up``: None if the past rows were given as ``history``; error messages name the one or the other.

        Raises ValueError for an arm with fewer than two rewards, rewards that never vary, and numbers out of range.
        """
        history, times = self.history, self.history_times
        rewards = (~torch.isnan(history)).sum(0)
        poor = [self.arm_names[n] for n in (rewards < 2).nonzero().squeeze(-1).tolist()]
        name, rows = ("history", "a table") if warm_up is None else ("warm_up", "a share of the rows")
        advice = "these have fewer; ignore= leaves columns out of a race"
        validation.require(not poor, name, poor, f"{rows} with two rewards of every arm ({advice})")
        if forgetting_rate is not None:
            validation.below_one("forgetting_rate", forgetting_rate)
        covariance = estimate_covariance(history)
        given, varies = history if warm_up is None else warm_up, float(covariance.diagonal().mean()) > 0
        validation.require(varies, name, given, f"{rows} with rewards that vary")
        rate, self.fit = forgetting_rate, None
        if noise_fraction is None:
            binary = kind_of_values(history) == "0/1"
            self.fit = fit = (fit_forgetting_of_shares if binary else fit_forgetting)(
                history, times, covariance
            )
            covariance, noise_variance = fit.covariance, fit.noise_variance
            rate = fit.forgetting_rate if rate is None else rate
        else:
            validation.probability("noise_fraction", noise_fraction)
            noise_variance = noise_fraction * float(covariance.diagonal().mean())
            covariance = without_noise(covariance, noise_variance)
            if rate is None:
                rate = fit_forgetting_rate(history, times, covariance, noise_variance)
        mean: float | Tensor
        if isinstance(prior_mean, str):
            known = prior_mean in ("arm", "grand")
            validation.require(known, "prior_mean", prior_mean, "'arm', 'grand' or a number")
            mean = history.nanmean(0)
            mean = mean if prior_mean == "arm" else float(mean.mean())
        else:
            mean = validation.finite_number("prior_mean", prior_mean)
        centred = (history - mean)[~torch.isnan(history).all(-1)]
        evenly = torch.linspace(0, len(centred) - 1, min(len(centred), _NORM_ROWS)).round().long()
        picked, seen = centred[evenly], ~torch.isnan(centred[evenly])
        complete = seen.all(-1)
        norms = [regularised_norm(covariance, picked[complete], noise_variance)]
        for row, has in zip(picked[~complete], seen[~complete], strict=True):
            norms.append(regularised_norm(covariance[has][:, has], row[has], noise_variance).reshape(1))
        return Knowledge(
            kernel=ArmCovarianceKernel(covariance, active_dims=(0,)),
            noise_variance=noise_variance,
            prior_mean=mean,
            rkhs_bound=float(torch.cat(norms).max()),
            forgetting_rate=rate,
        )

    def expected_rewards(self, step: int) -> Tensor:
        """The step's row, (replicates, N); NaN where a reward is missing."""
        self.check_step(step)
        return self.table[step - 1].expand(self.replicates, -1)

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Zeros: rewards are the table's entries."""
        return self.table.new_zeros(arm.shape)

    def available(self, step: int) -> Tensor | None:
        """Mask (N,) of the arms with a reward at this step; None if the played rows miss none."""
        self.check_step(step)
        return None if self._available is None else self._available[step - 1]

    def summary(self) -> list[str]:
        """Lines on what was read (rows, arms, times, missing rewards, constant arms) and what was estimated."""
        rows = torch.cat([self.history, self.table])
        kinds = [len(column[~column.isnan()].unique()) for column in rows.T]
        constant = [name for name, count in zip(self.arm_names, kinds, strict=True) if count == 1]
        left_out = "".join(f", {count} {why}" for why, count in self._left_out.items() if count)
        missing = int(torch.isnan(rows).sum())
        lines = [
            f"{self.num_arms} arms ({some(self.arm_names, _SHOWN)}), "
            f"{counted(len(self.history), 'row')} learned from, {len(self.table)} played{left_out}",
            *self._notes,
            f"one step: {self._step_length}",
            f"missing rewards: {missing} of {rows.numel()} ({missing / rows.numel():.1%})"
            + (", treated as arms that cannot be pulled then" if missing else ""),
        ]
        alone = int(((~torch.isnan(self.table)).sum(-1) == 1).sum())
        where = f"{alone} of the {self.horizon} steps"
        lines += [f"only one arm can be pulled at {where}: regret is 0 there"] if alone else []
        lines += [f"arms that never change: {some(constant, _SHOWN)}"] if constant else []
        if self.knowledge.cycles is not None:
            periods = ", ".join(f"{one:.4g}" for one in self.knowledge.cycles.periods)
            lines += [f"cycles in the rows learned from: {periods} steps; auto uses them"]
        return lines + ([] if self.fit is None else self.fit.describe())

    def record(self) -> RewardTable:
        """All given rows in order, with history and rows that are not played; times are as given."""
        return self._record

    def time(self, step: int) -> float:
        """The time of the step, in median gaps between rows; 1 for the first row after the history."""
        self.check_step(step)
        return self._times[step - 1]


@named("replay", passes_to=(read_table, Replay))
def replay(
    data: str | Path,
    *,
    warm_up: float = 0.2,
    cycles: str | float | Sequence[float] | None = FIND,
    **options: Any,
) -> Replay:
    """A table of your own rewards, from a CSV, Parquet or NPZ file.

    Args:
        data: the file.
        warm_up, cycles: as for ``Replay``.
        options: of ``read_table``: rewards, time_column, ignore, long, missing, header, separator, decimal, encoding,
            epoch; of ``Replay``: prior_mean, noise_fraction, forgetting_rate, horizon, replicates.
    """
    reading = {name: options.pop(name) for name in signature(read_table).parameters if name in options}
    return Replay(read_table(data, **reading), warm_up=warm_up, cycles=cycles, **options)


def _record_of(
    table: RewardTable, history: Tensor | None, history_times: Tensor | None, warm_up: float | None
) -> tuple[RewardTable, int]:
    """All rows, and how many of them, from the first on, are past."""
    rewards, times = table.rewards, table.times
    if history is None:
        validation.require(history_times is None, "history_times", history_times, "None without history")
        past = round(validation.probability("warm_up", cast(float, warm_up)) * len(rewards))
        enough = 0 < past < len(rewards)
        validation.require(enough, "table", rewards, "long enough for a warm_up and a row to play")
        return table, past
    validation.require(warm_up is None, "warm_up", warm_up, "None when a history is given")
    validation.of_shape("history", history, ("rows", rewards.shape[1]))
    fits = (history_times is None) == (times is None)
    validation.require(fits, "history_times", history_times, "given with times")
    if history_times is not None:
        validation.tensor("history_times", history_times)
    before = RewardTable(history, history_times, table.arm_names)
    if before.times is not None and times is not None:
        early = bool(before.times[-1] < times[0])
        validation.require(early, "history_times", history_times, "before the times")
        times = torch.cat([before.times, times])
    return replace(table, rewards=torch.cat([before.rewards, rewards]), times=times), len(history)

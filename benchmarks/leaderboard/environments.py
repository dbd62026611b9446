"""Environments that tell every recipe the same: centred rewards, and records of real data played from many starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import problems, recipes, validation
from bandits_torch.experiments import Block, ProblemSetting
from bandits_torch.experiments.engines import MakeProblem
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.policies import Policy
from bandits_torch.problems import Knowledge, Problem, Replay
from bandits_torch.problems.simulated import regularised_norm
from bandits_torch.streams import ReplicateStreams

_NORM_ROWS = 100


class Centred(Problem):
    """A problem minus the one number that is its prior mean; policies know a prior mean of zero."""

    def __init__(self, inner: Problem) -> None:
        self.inner, self.offset = inner, float(inner.knowledge.prior_mean)
        self.arms, self.replicates, self.horizon = inner.arms, inner.replicates, inner.horizon
        self.knowledge = replace(inner.knowledge, prior_mean=0.0)
        self._before: tuple[Tensor, Tensor] | None = None

    def expected_rewards(self, step: int) -> Tensor:
        """The inner problem's minus the mean; the same tensor while those are the same."""
        rewards = self.inner.expected_rewards(step)
        if self._before is None or self._before[0] is not rewards:
            self._before = rewards, rewards - self.offset
        return self._before[1]

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        return self.inner.noise(step, arm, streams)


@dataclass(frozen=True)
class CentredSetting:
    """A problem of its setting, centred."""

    inner: ProblemSetting

    def __call__(self, block: Block) -> Centred:
        return Centred(self.inner(block))


class Record(Problem):
    """A table of real rewards in which replicate k starts at a row of its own; without noise.

    Start k of n is row round(k (T - horizon) / (n - 1)) of the T rows, so the replicates' spread is that of the record
    over time; where horizon n exceeds T they overlap, and a standard error over them is too small. Rewards are in units
    of the prior's standard deviation, about the history's one mean. All knowledge is in the kernel, the second moments
    of the history's rows about that mean: K = Cov + d d^T, d the arms' own means. B is the largest norm of a row of the
    history (``regularised_norm``, 100 rows evenly spread).
    """

    def __init__(self, record: Replay, horizon: int, starts: int, first: int, replicates: int) -> None:
        rows = len(record.table)
        validation.require(1 <= horizon <= rows, "horizon", horizon, f"an integer in 1, ..., {rows}")
        most = starts - first
        validation.require(replicates <= most, "replicates", replicates, f"at most {most} of {starts} starts")
        self.arms, self.replicates, self.horizon = record.arms, replicates, horizon
        all_starts = torch.linspace(0, rows - horizon, starts, dtype=torch.float64).round().long()
        self.starts = all_starts[first : first + replicates]
        self.knowledge, mean, scale = _second_moments(record)
        self._rewards = (record.table - mean) / scale
        self._seen = ~torch.isnan(record.table)

    def expected_rewards(self, step: int) -> Tensor:
        """Each replicate's row of the table, (replicates, N); NaN where a reward is missing."""
        self.check_step(step)
        return self._rewards[self.starts + step - 1]

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        return self._rewards.new_zeros(arm.shape)

    def available(self, step: int) -> Tensor | None:
        """Mask (replicates, N) of the arms with a reward; None where none is missing."""
        self.check_step(step)
        return None if bool(self._seen.all()) else self._seen[self.starts + step - 1]


@dataclass(frozen=True)
class RecordSetting:
    """A problem that replays real data, as a ``Record``."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    horizon: int = 1
    starts: int = 1

    def __call__(self, block: Block) -> Record:
        replay = problems.make(self.name, data=self.data, **self.options)
        steps = min(self.horizon, block.horizon)
        return Record(replay, steps, self.starts, block.first_replicate, block.replicates)


@dataclass(frozen=True)
class AutoWithoutKernel:
    """``auto`` given the arms alone: their features, where they have any, else their number."""

    name: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, problem: Problem, block: Block) -> Policy:
        return recipes.auto(problem.choices, replicates=block.replicates, **self.options)


@dataclass(frozen=True)
class Cached:
    """A setting that builds each problem once in a process: policies play it one after the other, as in a race."""

    inner: MakeProblem

    def __call__(self, block: Block) -> Problem:
        key = repr(self.inner), block
        if key not in _BUILT:
            _BUILT[key] = self.inner(block)
        return _BUILT[key]


_BUILT: dict[tuple[str, Block], Problem] = {}


def _second_moments(record: Replay) -> tuple[Knowledge, float, float]:
    """Knowledge about centred and scaled rewards; the mean and the scale."""
    known, history = record.knowledge, record.history
    own = torch.as_tensor(known.prior_mean).double()
    mean = float(own.mean())
    with torch.no_grad():
        K = known.kernel(record.arms).to_dense() + torch.outer(own - mean, own - mean)
    scale = float(K.diagonal().mean().sqrt())
    K, noise_variance = K / scale**2, float(known.noise_variance) / scale**2
    rows = torch.where(torch.isnan(history), own, history)
    some = rows[torch.linspace(0, len(rows) - 1, min(len(rows), _NORM_ROWS)).long()]
    norm = float(regularised_norm(K, (some - mean) / scale, noise_variance).max())
    kernel = ArmCovarianceKernel(K, active_dims=(0,))
    knowledge = Knowledge(kernel, noise_variance, 0.0, norm, known.forgetting_rate, None)
    return knowledge, mean, scale

"""Total rewards of policies, compared with random play and the best arms; and summaries of regret."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from bandits_torch import validation
from bandits_torch.history import History, standard_error
from bandits_torch.naming import digits_of, written
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.diagnosis import kind_of_values, two_more_rare
from bandits_torch.problems.problem import Problem, available_rewards
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.smoothing import best_smoothed

RANDOM, SMOOTHED = "random (expected)", "best by the smoothed table"  # references, as tables name them
# Of differences between totals to the total of drawing at random, from which on they are in %.
_LEAST_RATIO = 0.01
_ROUNDED = 1e-12  # a total below this share of another is a rounding error


def random_regret(problem: Problem, horizon: int) -> Tensor:
    """Expected regret of a uniformly random available arm, max_x f_t(x) - mean_x f_t(x).

    It is exact over arms; on a continuous domain, the mean is over 512 quasi-random points. The maximum is the one by
    which runs are scored (``Problem.score``): with limits, over the arms within them.

    Returns (R, horizon) on the CPU, with R the replicates of the problem, or of its masks. Cost O(R N) per step.

    Raises ValueError for a ``horizon`` below 1.
    """
    validation.positive_integer("horizon", horizon)
    regrets = []
    for step in range(1, horizon + 1):
        if isinstance(problem, ContinuousProblem):
            regrets.append(problem.best(step) - problem.random_reward(step))
            continue
        expected, available = problem.expected_rewards(step), problem.available(step)
        rewards = available_rewards(expected, available)
        mask = torch.isfinite(rewards)
        mean = rewards.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)
        _, best = problem.score(step, torch.zeros_like(mean, dtype=torch.long), available)
        regrets.append(best - mean)
    return torch.stack(regrets, dim=-1).double().cpu()


def best_arms(problem: Problem, horizon: int) -> Tensor:
    """The available arm of largest expected reward at each step; ties go to the smallest index.

    Args:
        problem: over arms; read at steps 1 to T.
        horizon: T, number of steps.

    Returns (R, T) integers on the CPU, R as for ``random_regret``. Cost O(R N) per step. Raises ValueError for a
    horizon below 1, and for a problem over the points of a domain.
    """
    validation.positive_integer("horizon", horizon)
    validation.require(problem.dim == 0, "problem", type(problem).__name__, "one over arms")
    steps = range(1, horizon + 1)
    rewards = (available_rewards(problem.expected_rewards(step), problem.available(step)) for step in steps)
    return torch.stack([reward.nan_to_num(nan=-torch.inf).argmax(-1) for reward in rewards], dim=-1).cpu()


def summary(histories: Mapping[str, History]) -> pd.DataFrame:
    """One row for each policy of ``histories``: mean_cumulative_regret, its standard_error, ms_per_step. Raises
    ValueError for what is no mapping."""
    validation.instance("histories", histories, Mapping, "a mapping of names to histories")
    rows = {
        name: {
            "mean_cumulative_regret": history.mean_cumulative_regret,
            "standard_error": history.standard_error,
            "ms_per_step": history.ms_per_step,
        }
        for name, history in histories.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("policy")


def standings(histories: Mapping[str, History], random: Tensor) -> tuple[pd.DataFrame, float]:
    """``summary``, the best policy first, and the expected total regret of drawing arms at random.

    ``random``: (R, T) expected regret of drawing at random. The column ``of_random`` is the regret in % of its total;
    NaN if nothing could be lost.
    """
    frame, at_random = summary(histories), float(random.sum(-1).mean())
    share = 100 * frame["mean_cumulative_regret"] / at_random if at_random > 0 else math.nan
    return frame.assign(of_random=share).sort_values("mean_cumulative_regret"), at_random


def per_step(histories: Mapping[str, History]) -> pd.DataFrame:
    """One row for each policy of ``histories`` and step: time, mean regret of the step, mean cumulative regret, and the
    standard error of the latter (NaN for a single replicate). Raises ValueError without a history."""
    validation.by_name("histories", histories, "history")
    parts = []
    for name, history in histories.items():
        cumulative = history.cumulative_regret
        columns = {
            "policy": name,
            "step": range(1, history.horizon + 1),
            "time": history.times.numpy(),
            "mean_regret": history.regret.mean(0).numpy(),
            "mean_cumulative_regret": cumulative.mean(0).numpy(),
            "standard_error": standard_error(cumulative).numpy(),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


_CLEARLY = 0.1  # of the possible gain over random play


def _quantile(share: float, freedom: int | None) -> float:
    """The ``share`` quantile of Student's t, or of the standard normal distribution if ``freedom`` is None."""
    return float(stats.norm.ppf(share) if freedom is None else stats.t.ppf(share, freedom))


@dataclass(frozen=True)
class Earned:
    """Total rewards of a run, averaged over replicates.

    Attributes:
        steps: T, the number of steps.
        noun: the name of a total: ``"conversions"`` for 0/1, ``"sum"`` for counts, else ``"reward"``.
        policies: total of each policy, the largest first; for a simulation the expected total, without noise.
        more: by policy, the 90 % interval of its gain over drawing at random; None if it is unknown.
        random: expected total of drawing available arms at random.
        best_arm: name and total of the single arm that earns most in hindsight, with random draws while it is not
            available. None: there are no arms, or replicates have different functions.
        attainable: total of the best arm of each step; for a table, estimated without the row's own noise.
        bandwidth: with which a table was smoothed for ``attainable``, in steps; None for a simulation.
        maximum: total of the largest reward of each step; for a table, noise included.
        ratio: whether percentages of rewards make sense: rewards of a table, none of them negative.
        freedom: degrees of freedom of the intervals: for a simulation, one less than replicates; None for a table.
    """

    steps: int
    noun: str
    policies: dict[str, float]
    more: dict[str, tuple[float, float] | None]
    random: float
    best_arm: tuple[str, float] | None
    attainable: float
    bandwidth: float | None
    maximum: float
    ratio: bool
    freedom: int | None = None

    @property
    def noisy(self) -> bool:
        """Whether regret is measured against a noisy maximum, as for a table of rewards."""
        return self.bandwidth is not None

    @property
    def unavoidable(self) -> float | None:
        """The regret of the best arms by the smoothed table; None for a simulation."""
        return self.maximum - self.attainable if self.noisy else None

    def gain(self, total: float) -> float:
        """The gain of a total over drawing at random, as a share of the possible gain; NaN if no gain was possible."""
        could = self.attainable - self.random
        return (total - self.random) / could if could > 0 else math.nan

    def share(self, total: float) -> str:
        """``gain`` as text, at most 100 %, because luck may exceed an estimate; empty if it is NaN."""
        gain = self.gain(total)
        return "" if math.isnan(gain) else f"{100 * min(1.0, gain):z.0f} %"

    def ahead(self) -> tuple[str, ...]:
        """Policies that surely gained over random play, at least a tenth of the possible gain; the confidence is 95 %
        for all of them together."""
        raced = [name for name in self.policies if name != "random"]
        needed = _quantile(1 - 0.05 / max(1, len(raced)), self.freedom)
        found = []
        for name in raced:
            low, high = self.more[name] or (0.0, 0.0)
            error = (high - low) / (2 * _quantile(0.95, self.freedom))
            if low + high > 2 * needed * error and not self.gain(self.policies[name]) < _CLEARLY:
                found.append(name)
        return tuple(found)

    def record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        finite = self.bandwidth is None or math.isfinite(self.bandwidth)
        gains = {name: self.gain(total) for name, total in self.policies.items()}
        shares = {name: None if math.isnan(gain) else gain for name, gain in gains.items()}
        a_step = {name: total / self.steps for name, total in self.policies.items()}
        derived = {"bandwidth": self.bandwidth if finite else "infinite", "a_step": a_step, "gain": shares}
        return asdict(self) | derived | {"smoothing": self.smoothing, "unit": "steps"}

    @property
    def smoothing(self) -> str | None:
        """How ``attainable`` was found; None for a simulation."""
        if self.bandwidth is None:
            return None
        unit = "step" if self.bandwidth == 1 else "steps"
        weights = f"weights exp(-distance / {self.bandwidth:.3g} {unit})"
        if math.isinf(self.bandwidth):
            weights = "equal weights"
        return (
            "at each row, the arm that is best by the other rows (before and after), with "
            f"{weights}, which cross-validation chose"
        )

    @property
    def references(self) -> dict[str, float]:
        """The totals that those of the policies are compared with, by name."""
        alone = {} if self.best_arm is None else {f"best single arm, {self.best_arm[0]}": self.best_arm[1]}
        return {
            RANDOM: self.random,
            **alone,
            SMOOTHED if self.noisy else "best of every step": self.attainable,
        }

    @property
    def _totals(self) -> list[float]:
        return [*self.references.values(), *self.policies.values()]

    def above_random(self, total: float) -> str:
        """The gain over drawing at random: in % if that makes sense and totals differ by 1 % or more, else in units."""
        between = max(self._totals) - min(self._totals)
        if self.ratio and between >= _LEAST_RATIO * self.random > 0:
            return f"{100 * (more := total / self.random - 1):+z.{0 if abs(more) > 0.0995 else 1}f} %"
        return written(total - self.random, 4, "+")

    def total(self, value: float) -> str:
        """A total as text."""
        if self.noun != "reward" and value < 1e15:
            return written(round(value), 1)
        return written(value, digits_of(self._totals, 5))

    def a_step(self, total: float) -> str:
        """A total per step as text."""
        return written(total / self.steps, digits_of(self._totals, 4))

    def sentence(self, name: str) -> str:
        """A sentence: what a policy earned, compared with ``random``, ``best_arm`` and ``attainable``."""
        total = self.total(self.policies[name])
        what = f"{total} conversions" if self.noun == "conversions" else f"a {self.noun} of {total}"
        words = f"{name} earned {what} in {self.steps} steps. "
        words += f"Drawing arms at random earned {self.total(self.random)} ({self.above_random(self.policies[name])}"
        interval = self.more[name]
        if interval is not None:
            low, high = (self.above_random(self.random + end) for end in interval)
            words += f"; 90 % interval {low.removesuffix(' %')} to {high}"
        words += ")"
        if self.best_arm is not None:
            words += f"; the best single arm in hindsight, {self.best_arm[0]}, {self.total(self.best_arm[1])}"
        chosen = ", chosen without its noise," if self.noisy else ""
        share = self.share(self.policies[name])
        got = f" So {name} got {share} of what could be gained." if share else ""
        return f"{words}; the best arm of every step{chosen} {self.total(self.attainable)}.{got}"

    def about_regret(self) -> list[str]:
        """What regret against a noisy maximum means, and how ``attainable`` was found; empty for a simulation."""
        if not self.noisy:
            return []
        lost, at_random = max(0.0, self.maximum - self.attainable), self.maximum - self.random
        share = f"{100 * lost / at_random:.0f} % of what random play loses" if at_random > 0 else "nothing"
        return [
            "Regret here is measured against the largest reward of each row, noise included, which cannot be known "
            f"in advance: even the best arm by the smoothed table loses {share}.",
            f"The smoothed table: {self.smoothing}.",
        ]


def earned(problem: Problem, histories: Mapping[str, History], random: Tensor) -> Earned:
    """What the policies of a race earned, and what random play, a single arm and the best arm of each step would have.

    The rewards of a table (``Replay``) are noisy, so the largest reward of a row is partly luck. The attainable total
    is therefore estimated: the best arm of a row is chosen from all other rows (``smoothing.best_smoothed``), so that
    the row's own noise has no influence. The estimate is low if arms change faster than noise can be averaged out.

    The intervals for a table are about its noise: if nothing can be learned, the sum over rows of a policy's reward
    minus the row's mean is a martingale, whose variance is estimated by the sum of squares. If most rewards are equal,
    for example 0, two rewards of the rare kind are added (``two_more_rare``). The intervals for a simulation are about
    its replicates, whose totals are taken to be normal.

    ``problem`` is the one that was played; ``histories`` and ``random`` as for ``standings``.

    Cost: O(T N log(T)^2) for a table, O(T R N) for a simulation of R replicates.
    """
    first = next(iter(histories.values()))
    at_random = first.best.double() - random  # S x T
    maximum = float(first.best.double().sum(1).mean())
    attainable, bandwidth, ratio, noun, sums, more_rare = maximum, None, False, "reward", None, 0.0
    if isinstance(problem, Replay):
        rows = problem.table[: first.horizon].double().cpu()
        times = np.array([problem.time(step) for step in range(1, first.horizon + 1)])
        worth, _, bandwidth = best_smoothed(rows.numpy(), times)
        attainable = float(worth.sum())
        sums = torch.where(rows.isnan(), rows.nanmean(1, keepdim=True), rows).sum(0, keepdim=True)
        ratio = bool((rows.nan_to_num(nan=0.0) >= 0).all())
        more_rare = two_more_rare(rows[~rows.isnan()].numpy())
        nouns = {"0/1": "conversions", "counts": "sum"}
        noun = nouns.get(kind_of_values(problem.record().rewards), "reward")
    elif not isinstance(problem, ContinuousProblem):
        sums = torch.zeros(problem.replicates, problem.num_arms, dtype=torch.float64)
        for step in range(1, first.horizon + 1):
            rewards = available_rewards(problem.expected_rewards(step), problem.available(step))
            rewards = rewards.double().cpu()
            mean = at_random[: len(rewards), step - 1 : step]
            sums = sums + torch.where(rewards.isfinite(), rewards, mean)
    drawn = float(at_random.sum(1).mean())
    if abs(drawn) < _ROUNDED * abs(maximum):
        drawn = 0.0  # the arms' rewards sum to 0 up to rounding
    best_arm = None
    if sums is not None and bool((sums == sums[0]).all()):  # the same functions in all replicates
        names = problem.arm_names or range(problem.num_arms)
        best_arm = (str(names[int(sums[0].argmax())]), float(sums.max()))
    known = bandwidth is None and first.replicates > 1
    freedom = first.replicates - 1 if known else None
    totals: dict[str, float] = {}
    more: dict[str, tuple[float, float] | None] = {}
    for name in sorted(histories, key=lambda one: -float(histories[one].expected_rewards.sum(1).mean())):
        gained = histories[name].expected_rewards.double() - at_random
        sum_of_all = gained.sum(1)
        if bandwidth is not None and gained.shape[1] > 1:
            squares = (gained - gained.mean(1, keepdim=True)).square().sum(1).mean()
            error = float((squares + more_rare).sqrt())
        else:
            error = float(sum_of_all.std() / len(gained) ** 0.5) if known else math.nan
        middle, half = float(sum_of_all.mean()), _quantile(0.95, freedom) * error
        totals[name] = float(histories[name].expected_rewards.sum(1).mean())
        more[name] = None if math.isnan(error) else (middle - half, middle + half)
    return Earned(
        first.horizon,
        noun,
        totals,
        more,
        drawn,
        best_arm,
        attainable,
        bandwidth,
        maximum,
        ratio,
        freedom=freedom,
    )

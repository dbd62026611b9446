"""ADA-OPKB without tuning: a GP sets all scales, and a test on its residuals detects changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.opkb.opkb import draw
from bandits_torch.policies.policy import Choice, Observation, Policy
from bandits_torch.state import HasState
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.optimal_design import (
    estimated_gaps,
    exploration_problem,
    features_of_covariance,
    optimal_design,
)

_SHIFTS = (0.5, 1.0, 2.0, 4.0, 8.0)
_TOLERANCE = 1e-6
_MOST_FIRST_STEPS = 10**6


class ShiryaevRoberts(HasState):
    """Sum of Shiryaev-Roberts statistics over arms and over shifts of several sizes.

    Before a change, a correct model's standardised residuals z_t = (y_t - mu(x_t)) / sqrt(sigma^2(x_t)
    + lambda) are independent N(0, 1), for any choice of arms. For arm x and shift a (both signs)

        R_x,a <- (R_x,a + 1/G) exp(a z_t - a^2 / 2)    when x is pulled, unchanged otherwise,

    with G shifts. The factor has mean 1, so sum R - t is a martingale and the time of the first alarm,
    sum R >= A, is at least A on average (Pollak 1985; for sums of such e-detectors Shin, Ramdas & Rinaldo 2024).
    A shift of s standard deviations is detected after about 2 ln(A G)/s^2 pulls of the arm.

    Args:
        num_arms, replicates: N, S.
        run_length: A, a lower bound on the mean number of steps before a false alarm.
        shifts: sizes a > 0 in standard deviations of the residual; each in both directions, so G is twice their number.
        like: dtype and device of the statistics.

    Cost: O(S G) per step, and a sum over (S, N, G).
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int,
        run_length: float = 1e5,
        shifts: Sequence[float] = _SHIFTS,
        like: Tensor | None = None,
    ) -> None:
        self.run_length = validation.positive("run_length", run_length)
        validation.require(len(shifts) > 0, "shifts", shifts, "at least one size")
        sizes = [validation.positive("shifts", size) for size in shifts]
        base = torch.zeros((), dtype=torch.float64) if like is None else like
        self._shifts = base.new_tensor([*sizes, *(-size for size in sizes)])
        self._rows, self._shape = torch.arange(replicates, device=base.device), (replicates, num_arms)
        self._begin()

    _statistics: Tensor  # (S, N, G)

    def _fresh(self) -> dict[str, Any]:
        return {"_statistics": self._shifts.new_zeros(*self._shape, len(self._shifts))}

    @property
    def total(self) -> Tensor:
        """sum R of each replicate, (S,)."""
        return self._statistics.sum((-2, -1))

    def update(self, arm: Tensor, residual: Tensor) -> Tensor:
        """Add the standardised residuals (S,) at arms (S,). Returns the replicates with an alarm, (S,) booleans."""
        ratio = torch.exp(self._shifts * residual.unsqueeze(-1) - 0.5 * self._shifts.square())
        old = self._statistics[self._rows, arm]
        self._statistics[self._rows, arm] = (old + 1 / len(self._shifts)) * ratio
        return self.total >= self.run_length


class CalibratedOPKB(Policy):
    """Blocks, designs and restarts of ADA-OPKB, calibrated by a GP over the data since the last restart.

    Differences from Algorithm 3:

    * Change test: ``ShiryaevRoberts`` on the GP's standardised residuals at every step, instead of equation 8 at the
      ends of replays, which cost more regret than their information saves.
    * Gaps: of the upper confidence bounds mu + ``width`` sigma, instead of IPS estimates, whose variance is y^2 times
      the leverage even if the other arms are well known.
    * OP: a block of n steps plays argmin_P n sum P gap - c log det S(P, lambda/n), with lambda the noise variance and
      c = ``price`` sqrt(lambda) the regret paid for a nat of information. So sigma/T becomes lambda/n, and 2/beta
      becomes c/n. An arm of gap D gets about c/D pulls a block, as in algorithms of logarithmic regret.
    * E is the smallest n, up to 10 %, that is at least ``first`` times the effective dimension sum_x pi(x) h(x), with h
      the leverages at ridge lambda/n. Blocks grow by the factor ``growth``. A share ``design`` E/n of each block plays
      the optimal design pi, which detects changes of arms that are otherwise not pulled.

    No quantity depends on the horizon. Under slow drift it restarts whenever the change since the last restart is
    detectable. Unavailable arms are excluded from the draw. Rewards may arrive in any order. When arms are added or
    retired (``AskTell``), it forgets everything and starts again with the current arms, as after an alarm.

    ``benchmarks/papers/results/hong/RESULTS.md`` has its regret, delays and false alarms. The defaults of ``price``,
    ``width``, ``first``, ``growth`` and ``design`` were chosen from five settings on other replicates.

    Args:
        model: an ``ArmGP`` of batch shape (S,) that does not drift.
        run_length: a lower bound on the mean number of steps between false alarms, if the model is correct.
        price, width, first, growth, design: see above; the defaults rarely need a change.
        seed, first_replicate: seed of the draws of arms, and the number of the first replicate.

    Cost: that of the model, and a convex program of O(N^3) per block and replicate.

    Source: Hong, Li & Tewari 2023, Algorithm 3, with the differences above.

    Raises ValueError for a model that drifts or has batch dimensions other than replicates, and for a setting out of
    range: ``price`` and ``first`` > 0, ``width`` and ``design`` >= 0, ``growth`` > 1.
    """

    restarts_with_arms = "its blocks are designs over all arms"

    def __init__(
        self,
        model: ArmGP,
        *,
        run_length: float = 1e5,
        price: float = 1.0,
        width: float = 1.0,
        first: float = 0.5,
        growth: float = 1.5,
        design: float = 0.02,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.instance("model", model, ArmGP, "an ArmGP")
        shape = tuple(model.batch_shape)
        validation.require(len(shape) == 1, "model.batch_shape", shape, "(S,), replicates alone")
        validation.require(not model.drifts, "model", model, "one whose kernel has no time part")
        self.price, self.first = validation.positive("price", price), validation.positive("first", first)
        self.width = validation.non_negative("width", width)
        self.growth = validation.positive("growth", growth)
        validation.require(growth > 1, "growth", growth, "a number > 1")
        self.design = validation.non_negative("design", design)
        self.model, self.replicates, self.num_arms = model, shape[0], model.num_arms
        self._choices = Arms(self.num_arms, self.replicates, model.arms.dtype)
        S = self.replicates
        covariance = model.prior.matrix()
        phi = features_of_covariance(covariance)
        self._phi = phi.expand(S, -1, -1)
        self._unit = covariance.diagonal(dim1=-2, dim2=-1).amax(-1).sqrt().expand(S)  # of rewards
        self._noise = model.noise_variance.expand(S)
        first_block = cache(self._first_block)  # once for replicates that are equal
        each = enumerate(self._noise.tolist())
        found = [first_block(s if len(covariance) > 1 else 0, noise) for s, noise in each]
        self._base = [base for base, _ in found]
        self._pi = torch.stack([pi for _, pi in found])
        self._alarm = ShiryaevRoberts(self.num_arms, S, run_length, like=phi)
        self._streams = ReplicateStreams(seed, S, purpose="policy", first=first_replicate, like=phi)
        self._begin()

    def _first_block(self, s: int, noise: float) -> tuple[int, Tensor]:
        """E and pi, (N,)."""
        # The dimension grows with n: it is the slope in log n of max log det, which is convex in log n.
        n, dimension = 1, 0.0
        while n < _MOST_FIRST_STEPS:
            if n >= self.first * dimension:
                design = optimal_design(self._phi[s], noise / n, tolerance=_TOLERANCE)
                dimension = float((design.probabilities * design.leverages).sum())
                if n >= self.first * dimension:
                    break
            n = max(n + 1, math.ceil(1.1 * n))
        return n, design.probabilities

    # -- one step --------------------------------------------------------------------------------------

    @property
    def playing_distribution(self) -> Tensor:
        """The distribution from which the next arm is drawn, (S, N)."""
        return self._playing.clone()

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        self._choices.check_available(available)
        return Choice(draw(self._playing, self._streams, available))

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Test the residual, restart replicates with an alarm, observe, and begin the blocks that are due."""
        self._choices.check(observation)
        arm, reward = observation.arm, observation.reward.to(self._noise.dtype)
        mean, variance = (m.gather(1, arm.unsqueeze(1)).squeeze(1) for m in self.model.marginals())
        alarm = self._alarm.update(arm, (reward - mean) / (variance + self._noise).sqrt())
        if bool(alarm.any()):
            restarts = self._restarts
            self.reset(alarm)
            self._restarts = restarts + alarm
        self._detected = alarm.to(mean)
        self.model.take(arm, reward, observation.time)
        self._left = [left - 1 for left in self._left]
        begin = [s for s, left in enumerate(self._left) if left <= 0]
        if begin:
            self._begin_blocks(begin)

    def changes_found(self) -> Tensor:
        return self._restarts.clone()

    def trace(self) -> dict[str, Tensor | float]:
        """Restarts so far, 1 if this step raised an alarm, the block's index, log of the alarm's statistic."""
        block = torch.tensor(self._block, dtype=self._playing.dtype)
        statistic = self._alarm.total.clamp_min(1e-30).log()
        said: dict[str, Tensor | float] = {"restarts": self.changes_found(), "detected": self._detected}
        return said | {"block": block, "log_statistic": statistic}

    def _begin_blocks(self, replicates: list[int]) -> None:
        """P = (1 - share) P* + share pi for the next, longer block of each of these replicates."""
        mean, variance = (m[replicates] for m in self.model.marginals())
        gaps = estimated_gaps(mean + self.width * variance.sqrt())
        lengths = [math.ceil(self._length[s] * self.growth) for s in replicates]
        n, noise = gaps.new_tensor(lengths), self._noise[replicates].to(gaps)
        unit = self._unit[replicates]  # the tolerance is a share of it
        price = self.price * noise.sqrt() / unit
        solved = exploration_problem(
            self._phi[replicates], gaps / unit.unsqueeze(-1), noise / n, price / n, tolerance=_TOLERANCE
        )
        base = gaps.new_tensor([self._base[s] for s in replicates])
        share = (self.design * base / n).clamp_max(1.0).unsqueeze(-1)
        self._playing[replicates] = (1 - share) * solved.probabilities + share * self._pi[replicates]
        for s, length in zip(replicates, lengths, strict=True):
            self._length[s] = self._left[s] = length
            self._block[s] += 1

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("model", "_alarm", "_streams")
    _playing: Tensor  # the block's distribution, (S, N)
    _length: list[int]  # of the block, by replicate, as the next two
    _left: list[int]  # steps left in the block
    _block: list[int]  # its index
    _restarts: Tensor
    _detected: Tensor

    def _fresh(self) -> dict[str, Any]:
        lists = {"_length": list(self._base), "_left": list(self._base), "_block": [0] * self.replicates}
        zeros = self._phi.new_zeros(self.replicates)
        return {"_playing": self._pi.clone(), "_restarts": zeros, "_detected": zeros.clone()} | lists

    def _restarted(self, where: Tensor | None) -> None:
        for s in [] if where is None else where.nonzero().flatten().tolist():
            self._length[s] = self._left[s] = self._base[s]
            self._block[s] = 0

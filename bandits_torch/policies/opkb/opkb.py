"""OPKB and ADA-OPKB: blocks of doubling length; in each, arms are drawn from a distribution fixed at its start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.opkb.features import FeatureSource
from bandits_torch.policies.policy import Choice, Observation, Policy, check_turn
from bandits_torch.state import HasState, unchanged_on_error
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.optimal_design import (
    estimated_gaps,
    optimal_design,
    optimal_exploration,
    propensity_matrix,
)

WARM_UP = "warm-up"  # ``reward_scale`` for which centre and scale are learned


def subgaussian_scale(rkhs_bound: float, noise_scale: float, horizon: int, delta: float = 0.1) -> float:
    """B + sigma sqrt(2 ln(T/delta)): with probability 1 - 2 delta none of T rewards exceeds it in size.

    It replaces S + B of section 2 if the noise is sigma-sub-Gaussian, sigma = ``noise_scale``; the guarantees then
    hold with probability 1 - 2 delta. ``rkhs_bound``: B; ``horizon``: T.

    Source: Hong, Li & Tewari 2023, appendix D.7, Lemma D.6. The lemma truncates each side at this size.

    Raises ValueError for a negative bound or scale, a ``horizon`` below 1 and ``delta`` outside (0, 1).
    """
    validation.non_negative("rkhs_bound", rkhs_bound)
    validation.non_negative("noise_scale", noise_scale)
    validation.positive_integer("horizon", horizon)
    validation.probability("delta", delta)
    return rkhs_bound + noise_scale * math.sqrt(2 * math.log(horizon / delta))


@validation.names_arguments
@dataclass(frozen=True)
class Constants:
    """Constants of Hong, Li & Tewari (2023), Algorithms 1-3, appendix D.1.

    With L = ln(C0 N / delta), C0 = 8 T log2 T, gamma = gamma_{phi,T} (``fractional_gain``, no factor 1/2) and
    alpha = c4 sigma / L:

    | quantity | formula | used for |
    |---|---|---|
    | E | ceil(c3 gamma L) | length of block 0; block j has 2^j E steps |
    | mu_j | min(1, c1 2^{-j/2}) | share of the optimal design in P^(j) |
    | beta_j | c2 gamma 2^{j/2} | exploitation in OP |
    | A | gap <= 2 alpha gamma / beta_j | arms of OP's design |
    | threshold_j | 4 c0 mu_j | change test (equation 8) |

    Attributes:
        sigma: regulariser; the ridge of S is sigma/T.
        delta: failure probability; None: 1/T.
        c0, c2: None: the theory's 40 + 16 sqrt(alpha) and 1 / (10 + 4 sqrt(alpha)).
        c1, c3, c4: 1/2, 4 and 1/4 in theory.
        design_share: share s of pi(A) in Q = (1 - s) P* + s pi(A); 1/2 in the paper.
        first_replay: smallest index that is replayed; 0 in the paper.
        reward_scale: rewards are divided by it; the theory needs |y| <= 1 afterwards, so it is S + B in section 2.
            ``"warm-up"``: centre and scale are learned from the rewards (``RewardUnits``), and E is at least 2, because
            one reward has no scale. For sigma-sub-Gaussian noise use ``subgaussian_scale`` (D.7).

    Raises ValueError unless 0 <= ``design_share`` <= 1, 0 < ``delta`` < 1, ``first_replay`` is an integer >= 0 and
    every other constant is positive.
    """

    sigma: float = 1.0
    delta: float | None = 0.1
    c0: float | None = None
    c1: float = 0.5
    c2: float | None = None
    c3: float = 4.0
    c4: float = 0.25
    design_share: float = 0.5
    first_replay: int = 0
    reward_scale: float | str = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            left_open = value is None and field.name in ("c0", "c2")
            if field.name == "reward_scale" and isinstance(value, str):
                validation.require(value == WARM_UP, field.name, value, f"a number > 0 or {WARM_UP!r}")
            elif not left_open and field.name not in ("first_replay", "delta", "design_share"):
                validation.positive(field.name, value)
        if self.delta is not None:
            validation.probability("delta", self.delta)
        validation.share("design_share", self.design_share)
        validation.natural("first_replay", self.first_replay)

    @staticmethod
    def theory(delta: float = 0.1) -> Constants:
        """Appendix D.1. Its blocks are too long for practice: see ``Schedule.describe``."""
        return Constants(delta=delta)

    @staticmethod
    def tuned() -> Constants:
        """Tuned at T = 10 000 and N = 100 on the sphere with one switch, as in the paper.

        The published experiment differs from the theory: sigma = 100, delta = 1/T, E times 0.01, beta times 50, mu
        times 0.2, thresholds times 0.005, a mixture of 0.2, no replay below index 4, and gamma halved (1/2 log det =
        34.65 at N = 100; 69.3 here). That is c1 = 0.1, c2 = 1.81, c3 = 0.02, c4 = 0.125, and c0 = 0.276 if the
        thresholds use the smaller mu too. A coordinate search of 12 settings from there (``benchmarks/papers``, hong
        tuning) gave larger thresholds (c0) and shorter blocks (c3).
        """
        c = {"c0": 3.0, "c1": 0.1, "c2": 1.81, "c3": 0.01, "c4": 0.125}
        return Constants(sigma=100.0, delta=None, **c, design_share=0.2, first_replay=4)

    def schedule(self, num_arms: int, horizon: int, gain: float) -> Schedule:
        """The schedule for N arms, T steps and gamma = ``gain``."""
        validation.positive_integer("num_arms", num_arms)
        validation.require(isinstance(horizon, int) and horizon >= 2, "horizon", horizon, "an integer >= 2")
        validation.positive("gain", gain)
        delta = 1 / horizon if self.delta is None else self.delta
        log_term = math.log(8 * horizon * math.log2(horizon) * num_arms / delta)
        alpha = self.c4 * self.sigma / log_term
        c0 = 40 + 16 * math.sqrt(alpha) if self.c0 is None else self.c0
        c2 = 1 / (10 + 4 * math.sqrt(alpha)) if self.c2 is None else self.c2
        least = 2 if self.reward_scale == WARM_UP else 1
        base = max(least, math.ceil(self.c3 * gain * log_term))
        return Schedule(self, horizon, gain, base, alpha, c0, c2)


@dataclass(frozen=True)
class Schedule:
    """Block lengths, mixtures, exploitation and thresholds of one run.

    Attributes:
        constants, horizon, gain: from which the schedule was computed.
        base: E.
        alpha, c0, c2: see ``Constants``.
    """

    constants: Constants
    horizon: int
    gain: float
    base: int
    alpha: float
    c0: float
    c2: float

    @property
    def ridge(self) -> float:
        """sigma/T."""
        return self.constants.sigma / self.horizon

    def length(self, index: int) -> int:
        """2^j E, steps of block or replay j."""
        return 2**index * self.base

    def mixture(self, index: int) -> float:
        """mu_j, clamped at 1."""
        return min(1.0, self.constants.c1 * 2 ** (-index / 2))

    def beta(self, index: int) -> float:
        """beta_j."""
        return self.c2 * self.gain * 2 ** (index / 2)

    def threshold(self, index: int) -> float:
        """4 c0 mu_j of the change test, equation 8."""
        return 4 * self.c0 * self.mixture(index)

    def describe(self) -> str:
        """The lengths of the blocks in words, and whether the change test can ever fire."""
        blocks: list[int] = []
        total = 0
        while total < self.horizon:
            blocks.append(self.length(len(blocks)))
            total += blocks[-1]
        lowest = self.threshold(len(blocks) - 1)
        said = f"gamma_T = {self.gain:.4g}, E = {self.base}: blocks of {', '.join(map(str, blocks))} steps "
        said += f"(horizon {self.horizon})."
        if len(blocks) == 1:
            said += "\nBlock 0 is pure exploration and lasts longer than the run: nothing is ever exploited."
        if lowest > 2:
            said += "\nThe change test compares gaps, which are at most 2, with thresholds of at least "
            said += f"{lowest:.3g}: short of an extreme estimate it cannot fire."
        return said


_MOST_STRATEGIES = 40  # blocks of an epoch: 2^40 E steps
_DESIGN_TOLERANCE = 1e-6  # of the objectives: regret a step, or nats


@dataclass
class Interval:
    """Steps [start, end) of an epoch in which the strategy of one index is scheduled; ``before``: the epoch's reward
    sums (J, N) when it started."""

    index: int
    start: int
    end: int
    before: Tensor | None = None


class Epoch(HasState):
    """State of one replicate since its last restart.

    Attributes:
        clock: steps made.
        block: j.
        pending, active: intervals that have not begun, and those under way; the active one with the smallest index is
            played.
        cumulative: reward sums by strategy (J, N) and number of steps of C(k), for each finished block k.
        matrices: M(P^(m)) of the strategies m = 0, ..., j, (j + 1, N, N), in the features of block j.
        phi: the features of block j. They are read only when the block begins, and are not part of the state.
    """

    clock: int
    block: int
    pending: list[Interval]
    active: list[Interval]
    cumulative: list[tuple[Tensor, int]]
    matrices: Tensor | None
    phi: Tensor

    def __init__(self) -> None:
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        lists: dict[str, Any] = {name: [] for name in ("pending", "active", "cumulative")}
        return lists | {"clock": 0, "block": -1, "matrices": None}

    def state_changed(self) -> None:
        for name in ("pending", "active"):
            each = getattr(self, name)
            setattr(self, name, [one if isinstance(one, Interval) else Interval(**one) for one in each])

    def _check_has(self, state: Any, where: str) -> None:
        super()._check_has(state, where)
        validation.tensor("matrices", state["matrices"])
        for interval in [*state["pending"], *state["active"]]:
            for name in ("index", "start", "end"):
                validation.natural(name, interval[name])
        under_way = [Interval(**interval).before for interval in state["active"]]
        for sums, steps in state["cumulative"]:
            validation.tensor("cumulative", sums)
            validation.positive_integer("cumulative", steps)
        known = bool(under_way) and all(isinstance(before, Tensor) for before in under_way)
        expected = "intervals with the sums of their start, at least one"
        validation.require(known, "active", len(under_way), expected)


class RewardUnits(HasState):
    """Rewards y become (y - centre) / scale, for each replicate.

    If the scale is a number, the centre is 0. With ``"warm-up"`` both are learned in block 0 of an epoch, which plays
    the optimal design whatever the rewards are. When it ends, the centre is set to the mean of all rewards since the
    last reset, and the scale to their largest distance from it; both stay until the next epoch. Later rewards may be
    larger, so |y| <= 1 holds only for the past.

    Args:
        scale: a number > 0, or ``"warm-up"``.
        like: (S,) zeros of the dtype and device wanted.
    """

    def __init__(self, scale: float | str, like: Tensor) -> None:
        self.learns = scale == WARM_UP
        self._first_scale = torch.ones_like(like) if self.learns else torch.full_like(like, float(scale))
        self._begin()

    centre: Tensor
    scale: Tensor
    total: Tensor  # (S,), of all rewards since the last reset, as the next three
    count: Tensor
    lowest: Tensor
    highest: Tensor

    def _fresh(self) -> dict[str, Any]:
        scale = self._first_scale
        zeros = {name: torch.zeros_like(scale) for name in ("centre", "total", "count")}
        ends = {"lowest": torch.full_like(scale, torch.inf), "highest": torch.full_like(scale, -torch.inf)}
        return zeros | {"scale": scale.clone()} | ends

    def of(self, reward: Tensor) -> Tensor:
        """The rewards (S,) in these units."""
        if self.learns:
            self.total, self.count = self.total + reward, self.count + 1
            self.lowest, self.highest = self.lowest.minimum(reward), self.highest.maximum(reward)
        return (reward - self.centre) / self.scale

    def raw(self, s: int) -> None:
        """Begin an epoch of replicate s, whose rewards are summed unscaled during block 0."""
        if self.learns:
            self.centre[s], self.scale[s] = 0.0, 1.0

    def learn(self, s: int, sums: Tensor, counts: Tensor) -> Tensor:
        """Learn the units after block 0 of replicate s. Returns its reward ``sums`` (N,), of ``counts`` (N,) pulls, in
        these units."""
        if not self.learns:
            return sums
        centre = self.total[s] / self.count[s]
        spread = torch.maximum(self.highest[s] - centre, centre - self.lowest[s])
        self.centre[s], self.scale[s] = centre, torch.where(spread > 0, spread, 1.0)
        return (sums - centre * counts) / self.scale[s]


class OPKB(Policy):
    """OPKB (Hong, Li & Tewari 2023, Algorithm 2); with neural features, OPNN (Algorithm 5).

    It draws arms from P^(0) = pi for E steps, then in block j = 1, 2, ... from P^(j) = (1 - mu_j) Q^(j) + mu_j pi for
    2^j E steps, with Q^(j) the solution of OP for the gaps of the IPS estimates over all earlier blocks. With
    ``Constants.theory()``, block 0 lasts thousands of steps; ``policy.schedules[0].describe()`` shows why.

    A step costs O(S N) for all replicates; the start of a replicate's block costs two convex programs, about 10 ms
    together at N = 100. Unavailable arms are excluded from the draw. If all available arms have probability 0, the draw
    is uniform over them. The IPS estimates do not correct for that.

    The strategy played now learns the reward, so a reward of a choice made before the last reward is a ValueError.

    When arms are added or retired (``AskTell``), a new epoch begins, with designs and schedule for the current arms and
    the same T. Each such change adds the regret of a block 0.

    Args:
        features: the feature source; sizes S and N come from it.
        horizon: T.
        constants: see ``Constants``.
        seed, first_replicate: for drawing arms and random schedules.
    """

    restarts_with_arms = "its strategies are designs over all arms"
    needs_unit = "it learns rewards in turn, and their unit by reward_scale='warm-up'"

    def __init__(
        self,
        features: FeatureSource,
        horizon: int,
        constants: Constants,
        *,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.instance("features", features, FeatureSource, "a FeatureSource, such as FixedFeatures")
        validation.instance("constants", constants, Constants, "a Constants")
        self.features, self.constants = features, constants
        self.replicates, self.num_arms = features.replicates, features.num_arms
        self._choices = Arms(self.num_arms, self.replicates)
        S, N = self.replicates, self.num_arms
        ridge = constants.sigma / validation.positive_integer("horizon", horizon)
        self._initial = [features.initial(s) for s in range(S)]
        phi = self._initial[0]
        shared = all(other is phi for other in self._initial)
        rows = 1 if shared else S
        designs = [optimal_design(self._initial[s], ridge, tolerance=_DESIGN_TOLERANCE) for s in range(rows)]
        self._pi = torch.stack([design.probabilities for design in designs]).expand(S, N)
        gains = [float(design.log_det) for design in designs]
        expected = (
            "of a scale beside which rewards of about 1 tell something (a reward_scale sets their unit)"
        )
        largest = max(float(one.abs().max()) for one in self._initial[:rows])
        validation.require(min(gains) > 0, "features", f"numbers up to {largest:g} in size", expected)
        schedules = [constants.schedule(N, horizon, gain) for gain in gains]
        self.schedules: list[Schedule] = schedules * S if shared else schedules
        self._streams = ReplicateStreams(seed, S, purpose="policy", first=first_replicate, like=phi)
        self._schedule_streams = [
            ReplicateStreams(seed, 1, purpose="schedule", first=first_replicate + s) for s in range(S)
        ]
        self._rows = torch.arange(S, device=phi.device)
        self._units = RewardUnits(constants.reward_scale, phi.new_zeros(S).double())
        self._epochs = [Epoch() for _ in range(S)]
        self._begin()
        self._restarted(None)

    # -- hooks for ADA-OPKB ----------------------------------------------------------------------------

    def _replays(self, s: int, start: int, block: int) -> list[Interval]:
        """Intervals inside block j, which starts at ``start``, in which older strategies are played."""
        return []

    def _over(self, s: int, interval: Interval) -> bool:
        """Whether the interval that has just ended shows a change."""
        return False

    # -- one step --------------------------------------------------------------------------------------

    @property
    def playing_distribution(self) -> Tensor:
        """The distribution from which the next arm is drawn, (S, N)."""
        return self._strategies[self._rows, self._playing]

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        self._choices.check_available(available)
        return Choice(draw(self.playing_distribution, self._streams, available), {"turn": self._turn})

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Add the reward to its strategy's sums. At the end of an interval test for a change; begin the next block."""
        self._choices.check(observation)
        check_turn(observation, self._turn)
        ends = (max(interval.end for interval in epoch.active) - epoch.clock for epoch in self._epochs)
        may_fail = [self] if self.features.refuses and 1 in ends else []
        with unchanged_on_error(*may_fail):
            self._learn(observation.arm, observation.reward)

    def _learn(self, arm: Tensor, reward: Tensor) -> None:
        self._turn += 1
        self._detected.zero_()
        reward = self._units.of(reward.to(self._sums))
        self._sums.index_put_((self._rows, self._playing, arm), reward, accumulate=True)
        self._counts.index_put_((self._rows, arm), torch.ones_like(reward), accumulate=True)
        begin = []
        for s, epoch in enumerate(self._epochs):
            epoch.clock += 1
            events = [i.end for i in epoch.active] + [i.start for i in epoch.pending]
            if epoch.clock == min(events) and self._advance(s):
                begin.append(s)
        self._begin_blocks(begin)

    def changes_found(self) -> Tensor:
        return self._restarts.clone()

    def trace(self) -> dict[str, Tensor | float]:
        """Restarts so far, 1 if this step detected a change, the block's and the strategy's index."""
        said = {"restarts": self._restarts, "detected": self._detected, "block": self._block}
        return {name: value.clone() for name, value in (said | {"strategy": self._playing}).items()}

    # -- events ----------------------------------------------------------------------------------------

    def _advance(self, s: int) -> bool:
        """Test the intervals of replicate s that end now. Returns whether a block begins, also after a restart."""
        epoch = self._epochs[s]
        ended = [i for i in epoch.active if i.end == epoch.clock]
        epoch.active = [i for i in epoch.active if i.end > epoch.clock]
        if any(self._over(s, interval) for interval in ended):
            self._restarts[s] += 1
            self._detected[s] = 1
            self._new_epoch(s)
            return True
        if epoch.block == 0:
            self._sums[s, 0] = self._units.learn(s, self._sums[s, 0], self._counts[s])
        if epoch.active:
            self._start_pending(s)
            return False
        epoch.cumulative.append((self._sums[s, : epoch.block + 1].clone(), epoch.clock))
        return True

    def _new_epoch(self, s: int) -> None:
        self._epochs[s] = Epoch()
        self._units.raw(s)
        self._sums[s] = 0
        self._counts[s] = 0

    def _begin_blocks(self, replicates: Sequence[int]) -> None:
        """Begin the next block of each of these replicates; replicates with the same features are solved together."""
        alike: dict[Any, list[int]] = {}
        for s in replicates:
            epoch, first = self._epochs[s], self._initial[s]
            epoch.block += 1
            if epoch.block == 0:
                epoch.phi = first
                self._strategies[s, 0] = self._pi[s]
                continue
            history = torch.stack([self._counts[s], self._sums[s].sum(0)]).to(first)
            epoch.phi = self.features.learnt(s, *history)
            if epoch.phi is not first:
                epoch.matrices = self._matrices(s, epoch.block)
            alike.setdefault((epoch.phi.shape, epoch.phi is first), []).append(s)
        for group in alike.values():
            estimates = [self._estimates(s, self._sums[s], self._epochs[s].clock) for s in group]
            strategies = self._next_strategies(group, torch.stack([estimated_gaps(one) for one in estimates]))
            for s, strategy in zip(group, strategies, strict=True):
                self._strategies[s, self._epochs[s].block] = strategy
        for s in replicates:
            epoch = self._epochs[s]
            j = epoch.block
            epoch.matrices = self._matrices(s, j + 1)
            end = epoch.clock + self.schedules[s].length(j)
            epoch.pending = [Interval(j, epoch.clock, end), *self._replays(s, epoch.clock, j)]
            self._block[s] = j
            self._start_pending(s)

    def _next_strategies(self, replicates: Sequence[int], gaps: Tensor) -> Tensor:
        """P^(j) = (1 - mu_j) Q^(j) + mu_j pi of each. (Algorithms 3 and 7 misprint Q^(m_t) for Q^(j).)

        ``gaps``: (n, N). The features of all n blocks have one shape; all or none are the initial ones.
        """
        plans = [(self.schedules[s], self._epochs[s].block) for s in replicates]
        numbers = [(one.gain, one.beta(j), one.alpha, one.mixture(j)) for one, j in plans]
        gain, beta, alpha, mu = gaps.new_tensor(numbers).unbind(-1)
        features, ridge = [self._epochs[s].phi for s in replicates], plans[0][0].ridge
        phi, pi = torch.stack(features), self._pi[list(replicates)]  # the ridge sigma/T is that of all
        if features[0] is not self._initial[replicates[0]]:
            design = optimal_design(phi, ridge, tolerance=_DESIGN_TOLERANCE)
            pi, gain = design.probabilities, design.log_det  # the gain is that of the optimal design
        share = self.constants.design_share
        Q = optimal_exploration(
            phi, gaps, ridge, beta, alpha, gain, design_share=share, tolerance=_DESIGN_TOLERANCE
        )
        mu = mu.unsqueeze(-1)
        return (1 - mu) * Q + mu * pi

    def _start_pending(self, s: int) -> None:
        epoch = self._epochs[s]
        before = self._sums[s, : epoch.block + 1].clone()
        for interval in [i for i in epoch.pending if i.start == epoch.clock]:
            interval.before = before
            epoch.active.append(interval)
        epoch.pending = [i for i in epoch.pending if i.start > epoch.clock]
        self._playing[s] = min(i.index for i in epoch.active)

    # -- estimates -------------------------------------------------------------------------------------

    def _matrices(self, s: int, count: int) -> Tensor:
        """M(P^(m)), m = 0, ..., count - 1, in the features of the block; computes only those that are missing."""
        epoch = self._epochs[s]
        known = epoch.matrices if epoch.phi is self._initial[s] else None
        kept = 0 if known is None else len(known)
        fresh = propensity_matrix(epoch.phi, self._strategies[s, kept:count], self.schedules[s].ridge)
        return fresh if known is None else torch.cat([known, fresh])

    def _estimates(self, s: int, sums: Tensor, steps: int) -> Tensor:
        """IPS estimates (N,) from reward sums by strategy, (J, N), over ``steps`` steps."""
        matrices = self._epochs[s].matrices
        assert matrices is not None
        J = min(sums.shape[0], matrices.shape[0])
        return (matrices[:J].to(sums) @ sums[:J].unsqueeze(-1)).sum(0).squeeze(-1) / steps

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("_epochs", "_units", "_streams", "_schedule_streams")
    _sums: Tensor  # of rewards by strategy and arm, (S, strategies, N), in float64
    _counts: Tensor  # pulls in the epoch, (S, N), in float64
    _strategies: Tensor  # P^(m), (S, strategies, N)
    _playing: Tensor  # index of the strategy that each replicate plays, (S,)
    _restarts: Tensor
    _detected: Tensor
    _block: Tensor
    _turn: int  # rewards learned
    _lasting = ("_turn",)

    def _fresh(self) -> dict[str, Any]:
        zeros, S, N = self._initial[0].new_zeros, self.replicates, self.num_arms
        sums, counts = (zeros(shape, dtype=torch.float64) for shape in ((S, _MOST_STRATEGIES, N), (S, N)))
        numbers = {name: zeros(S) for name in ("_restarts", "_detected", "_block")}
        strategies = {"_strategies": zeros(S, _MOST_STRATEGIES, N), "_playing": self._rows.clone()}
        return {"_sums": sums, "_counts": counts, "_turn": 0} | strategies | numbers

    def _restarted(self, where: Tensor | None) -> None:
        which = range(self.replicates) if where is None else where.nonzero().flatten().tolist()
        for s in which:
            self._new_epoch(s)
        self._begin_blocks(which)


class AdaOPKB(OPKB):
    """ADA-OPKB (Hong, Li & Tewari 2023, Algorithms 3 and 4); with neural features, ADA-OPNN (Algorithm 7).

    * Schedule: inside block j, for each m < j from ``first_replay`` on, at every multiple of 2^m E steps a replay of
      P^(m) of length 2^m E starts with probability 2^{(m - j)/2}. The scheduled strategy of smallest index is played.
    * Test: when a scheduled interval I of index m (the block itself has index j) ends, restart if for some
      k < j and x, with C(k) the blocks 0, ..., k,
      gap_I(x) - 4 gap_C(k)(x) > 4 c0 mu_{min(m, k)}, or the same with I and C(k) exchanged (equation 8).

    Corrections of the print: P^(j) uses Q^(j), not Q^(m_t), which is not yet defined; E and alpha keep the C0 of
    Algorithm 2. Arguments and cost: ``OPKB``.
    """

    def _replays(self, s: int, start: int, block: int) -> list[Interval]:
        """Algorithm 4."""
        schedule, first = self.schedules[s], self.constants.first_replay
        replays = []
        for m in range(first, block):
            slots = 2 ** (block - m)
            drawn = self._schedule_streams[s].uniform(slots).squeeze(0).tolist()
            length, probability = schedule.length(m), 2 ** ((m - block) / 2)
            for slot, u in enumerate(drawn):
                if u < probability:
                    begin = start + slot * length
                    replays.append(Interval(m, begin, begin + length))
        return replays

    def _over(self, s: int, interval: Interval) -> bool:
        epoch, schedule = self._epochs[s], self.schedules[s]
        if not epoch.cumulative:
            return False
        assert interval.before is not None
        sums = self._sums[s, : epoch.block + 1] - interval.before
        now = estimated_gaps(self._estimates(s, sums, interval.end - interval.start))
        for k, (past, steps) in enumerate(epoch.cumulative):
            then = estimated_gaps(self._estimates(s, past, steps))
            difference = max(float((now - 4 * then).max()), float((then - 4 * now).max()))
            if difference > schedule.threshold(min(interval.index, k)):
                return True
        return False


def draw(P: Tensor, streams: ReplicateStreams, available: Tensor | None = None) -> Tensor:
    """Arms (S,) drawn from P (S, N) with the next uniform numbers of ``streams``, among those ``available`` (a checked
    mask); uniformly if these have no probability."""
    if available is not None:
        P = P * available
        P = torch.where(P.sum(-1, keepdim=True) > 0, P, available.to(P))
    cumulative = P.cumsum(-1)
    passed = cumulative > streams.uniform().unsqueeze(-1) * cumulative[:, -1:]
    return passed.to(torch.uint8).argmax(-1)  # the first arm whose cumulative share passes

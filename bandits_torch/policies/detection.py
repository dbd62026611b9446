"""Policies that adapt a stationary policy to rewards that change: by restarts after a test for changes
(``DetectionAugmented``), and by MASTER (``Master``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.arm_policy import ArmPolicy
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.classical import forced_turn, has_changed, tuned_test, with_one
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy, check_turn
from bandits_torch.policies.wrapping import WrappingPolicy
from bandits_torch.state import HasState
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import checked


class DetectionAugmented(WrappingPolicy):
    """Plays an inner policy, and some arms in turn. It resets the inner policy when a test detects a change.

    After k - 1 restarts, the steps since the last one are divided into periods of floor(M / a_k) steps, with
    a_k = min(``exploration`` sqrt(k), 1). The first M steps of a period play the M watched arms in turn. An arm that is
    not available loses its turn. The inner policy chooses at all other steps, and learns every reward. Then a
    generalised likelihood ratio for Gaussian noise of scale R tests the n rewards of the arm just pulled since the last
    restart:

        max_s s (mean_{1:s} - mean_{1:n})^2 / (2 R^2) + (n - s) (mean_{s+1:n} - mean_{1:n})^2 / (2 R^2)
            > ln(n^{3/2} / delta).

    If it exceeds the threshold, the inner policy is reset and all rewards are forgotten.

    Args:
        policy: over arms, for rewards that do not change; an ``IndexPolicy`` or an ``ArmPolicy`` that can learn the
            reward of an arm that it did not choose (its ``needed`` is empty), without contexts.
        horizon: T.
        noise_scale: R > 0, the sub-Gaussian scale of the noise, a number or (S,).
        watched: int64 (M,), different arms; None for all. Every change should show in the rewards of some of them.
        delta: error probability of the test; None for 1 / sqrt(T), at most 1/2.
        exploration: in [0, 1]; None for sqrt(M ln T / T), at most 0.1.

    Each replicate restarts separately. ``trace`` adds the number of ``restarts``. Pending pulls use up turns.

    Cost: that of the policy and O(S t) per step, because the test keeps all rewards.

    Source: detection augmented learning (Gerogiannis, Huang, Bose & Veeravalli 2025, arXiv 2501.19401) and its form for
    unrelated arms (Huang, Gerogiannis, Bose & Veeravalli 2025, arXiv 2501.01291). Only their abstracts and
    introductions were read. They combine any stationary algorithm with a change detector, forced exploration and
    restarts, without knowledge of the changes. Schedule, threshold and constants are those of GLR-klUCB (``GLRKLUCB``,
    Besson et al. 2022), with Gaussian instead of Bernoulli likelihoods. That the policy learns from forced pulls is
    ours. No theorem is claimed.

    Raises ValueError for a policy of the wrong kind, and numbers out of range.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        horizon: int,
        noise_scale: float | Tensor,
        watched: Tensor | None = None,
        delta: float | None = None,
        exploration: float | None = None,
    ) -> None:
        expected = "an IndexPolicy or ArmPolicy over arms that learns any arm's reward"
        validation.require(self.takes(policy), "policy", type(policy).__name__, expected)
        self._around(policy)
        T, N, S = validation.positive_integer("horizon", horizon), self.num_arms, self.replicates
        if watched is None:
            watched = torch.arange(N)
        right = validation.tensor("watched", watched).dtype == torch.long and watched.dim() == 1
        right = right and len(watched) == len(watched.unique()) > 0
        right = right and bool(((watched >= 0) & (watched < N)).all())
        validation.require(right, "watched", watched, f"different arms from 0 to {N - 1}, int64")
        scale = validation.numbers("noise_scale", noise_scale, torch.ones(S, dtype=torch.float64))
        validation.of_shape("noise_scale", checked(validation.positive, "noise_scale", scale), (), (S,))
        self.horizon, self.watched = horizon, watched
        self.noise_scale = scale.expand(S).to(watched.device)
        self.delta, self.exploration = tuned_test(T, len(watched), delta, exploration)
        self._begin()

    @staticmethod
    def takes(policy: Any) -> bool:
        """Whether ``policy`` can be the inner policy."""
        kind = isinstance(policy, IndexPolicy | ArmPolicy)
        return kind and not (policy.needed or policy.dim or policy.takes_contexts)

    @property
    def knows_past(self) -> bool:  # type: ignore[override]
        """As the inner policy; False after a restart."""
        return self.policy.knows_past and not bool(self._since.any())

    @torch.no_grad()
    def choose(self, time: float, available: Any = None) -> Choice:
        """The watched arm whose turn it is, or the inner policy's choice."""
        choice, M = self.policy.choose(time, available), len(self.watched)
        clock = (self._length + self._pending - self._since).double()
        turn = forced_turn(clock, self.exploration, self._changes, M)
        arm, forced = self.watched[turn.clamp(max=M - 1)], turn < M
        if available is not None:
            forced = forced & available.expand(self.replicates, -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        return replace(choice, arm=torch.where(forced, arm, choice.arm))

    _pending = 0  # number of pending pulls

    _expects = ("policy", "_pending")

    def expect(self, pending: Pending, time: float) -> None:
        """As for the inner policy; each pending pull takes a turn."""
        super().expect(pending, time)
        self._pending += 1

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        noise = observation.noise_variance
        expected = "None: the test has one noise scale for all rewards"
        validation.require(noise is None, "noise_variance", noise, expected)
        self.policy.learn(observation)
        length = self._length
        self._arms = with_one(self._arms, length, observation.arm)
        self._rewards = with_one(self._rewards, length, observation.reward)
        self._length = length + 1
        seen, since = (self._arms[:, : length + 1], self._rewards[:, : length + 1]), self._since.unsqueeze(-1)
        twice = 2 * self.noise_scale.square().unsqueeze(-1)
        changed = has_changed(*seen, since, self.delta, lambda p, q: (p - q).square() / twice)
        if bool(changed.any()):
            self.policy.reset(changed)
            self._since = torch.where(changed, self._length, self._since)
            self._changes = self._changes + changed

    def changes_found(self) -> Tensor:
        return self._changes.clone()

    def trace(self) -> dict[str, Tensor | float]:
        return self.policy.trace() | {"restarts": self.changes_found()}

    # -- state -----------------------------------------------------------------------------------------

    _arms: Tensor  # arms pulled, (S, length and room for more)
    _rewards: Tensor
    _length: int
    _since: Tensor  # number of rewards learned before the last restart, (S,)
    _changes: Tensor  # number of changes found, (S,)

    def _fresh(self) -> dict[str, Any]:
        none = torch.zeros(self.replicates, dtype=torch.long, device=self.watched.device)
        arms = none.new_zeros(self.replicates, 0)
        kept = {"_arms": arms, "_rewards": arms.double(), "_length": 0}
        return kept | {"_since": none, "_changes": none.clone()}

    def _restarted(self, where: Tensor | None) -> None:
        """The rewards of replicates that are reset no longer count; they are removed only if all are reset."""
        if where is not None:
            self._since = torch.where(where, self._length, self._since)


@validation.names_arguments
@dataclass(frozen=True)
class MasterThresholds:
    """Thresholds of MASTER's two tests, in multiples of rho^(t) = ``inflation`` rho(t), and which copies may start.

    Attributes:
        inflation: 6 (log2 T + 1) ln(T/delta) in theory.
        rise: threshold of test 1: by how much a copy's mean reward may exceed the smallest optimism; 9 in theory.
        fall: threshold of test 2: by how much the mean optimism may exceed the mean reward; 3 in theory.
        learnt: a copy of order m may start at random only if rho(2^m) <= ``learnt`` rho(1); 1 in theory: all may.

    Source: Wei & Luo 2021; Hong, Li & Tewari 2023, appendix E. Raises ValueError for a number that is not positive.
    """

    inflation: float
    rise: float = 9.0
    fall: float = 3.0
    learnt: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            validation.positive(field.name, getattr(self, field.name))

    @staticmethod
    def theory(horizon: int, delta: float = 0.1) -> MasterThresholds:
        """Wei & Luo (2021), Algorithms 2 and 3. At practical horizons neither test can fire. Raises ValueError for a
        ``horizon`` T below 1 and ``delta`` outside (0, 1)."""
        validation.positive_integer("horizon", horizon)
        validation.probability("delta", delta)
        return MasterThresholds(6 * (math.log2(horizon) + 1) * math.log(horizon / delta))

    @staticmethod
    def calibrated() -> MasterThresholds:
        """For ``simulated_rate``, which is an estimate of rho and not a bound."""
        return MasterThresholds(4.0, rise=1.0, fall=1.0, learnt=0.1)


@dataclass
class _Copy:
    """A copy of the base policy: order m, active in [start, end), with the rewards of its whole interval."""

    order: int
    start: int
    end: int
    rewards: float = 0.0


def simulated_rate(base: Policy, functions: Tensor, noise: Tensor) -> Tensor:
    """rho(1), ..., rho(T), (T,): the excess of a base policy's optimism over its rewards when nothing changes.

    The base plays fixed functions; rho(t) is the largest mean of f~ - y over the first t' steps, over all runs and all
    t' >= t, at least 0. The theory's rho bounds the same mean by Cauchy-Schwarz at the rate t^{-1/2}. If arms differ,
    the mean itself falls like ln(t)/t: it is ten times smaller after 4 000 steps on 100 independent arms.

    Args:
        base: a fresh policy of S replicates; its ``Choice.why["index"]`` holds f~.
        functions: (S, N), such as draws of the prior.
        noise: (T, S).

    Cost: T steps of the base.
    """
    excess = torch.zeros_like(noise)
    for t, eta in enumerate(noise):
        choice = base.choose(t + 1.0)
        reward = functions.gather(1, choice.arm.unsqueeze(1)).squeeze(1) + eta
        base.learn(Observation(t + 1.0, choice.arm, reward, choice.why))
        excess[t] = choice.why["index"] - reward
    steps = torch.arange(1, len(noise) + 1, dtype=noise.dtype, device=noise.device)
    largest = (excess.cumsum(0) / steps.unsqueeze(-1)).amax(-1)
    return largest.flip(0).cummax(0).values.flip(0).clamp_min(0.0)


class Master(Policy):
    """MASTER (Wei & Luo 2021; Hong, Li & Tewari 2023, appendix E) over an optimistic base policy.

    Block n lasts 2^n steps and begins with a copy of order n. At every multiple of 2^m steps inside it a copy of
    order m < n starts with probability rho(2^n)/rho(2^m). The active copy of smallest order plays and learns; the
    others wait. Let f~_t be the optimism of the copy that plays (its largest index), U_t the smallest f~ since the
    block began, and rho^ = inflation rho. A replicate restarts at block 0 when

    * test 1: a copy of order m ends, and the mean reward over its interval is >= U_t + rise rho^(2^m);
    * test 2: the mean of f~ - y over the steps t' since the block began is >= fall rho^(t').

    Args:
        base: makes a fresh base policy of S replicates, such as an ``IndexPolicy``, that ``learns_where`` and whose
            acquisition draws no random numbers; its ``Choice.why["index"]`` is f~.
        rho: rho(t), the base's mean regret over t steps, non-increasing.
        thresholds: those of both tests.
        num_arms, replicates, seed, first_replicate: N, S, and the random schedule's numbers.
        device: where the returned arms are.

    The active copies of a replicate are a stack: each ends before, or with, those below it. For each height in the
    stack there is one base policy of all replicates. Cost: one step of the base for each height at which any replicate
    plays.

    The copy that plays now learns the reward. So a reward whose choice was made before the last reward was learned is a
    ValueError.

    Raises ValueError for ``replicates`` or ``num_arms`` below 1, and for a base of the wrong kind or size.
    """

    needs_unit = "it learns rewards in turn, with the optimism of their choice in units of reward"

    def __init__(
        self,
        base: Callable[[], IndexPolicy],
        rho: Callable[[int], float],
        thresholds: MasterThresholds,
        num_arms: int,
        *,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self._choices = Arms(num_arms, replicates)
        self.num_arms, self.replicates = num_arms, replicates
        validation.function("base", base, "a function that makes a policy of all replicates")
        validation.function("rho", rho, "a function of the number of steps")
        validation.instance("thresholds", thresholds, MasterThresholds, "a MasterThresholds")
        self.base, self.thresholds, self.rho = base, thresholds, rho
        first = validation.natural("first_replicate", first_replicate)
        self._device = device
        self._streams = [
            ReplicateStreams(seed, 1, purpose="schedule", first=first + s) for s in range(replicates)
        ]
        self._blocks = [_Block(s, rho, thresholds, streams) for s, streams in enumerate(self._streams)]
        self._bases = [one := base()]
        draws = getattr(getattr(one, "acquisition", None), "is_draw", False)
        fits = isinstance(one, Policy) and one.learns_where and not draws
        fits = fits and (one.replicates, one.num_arms) == (replicates, num_arms)
        expected = (
            f"a policy of {replicates} replicates over {num_arms} arms that learns_where and draws nothing"
        )
        validation.require(fits, "base", base, f"a function that makes {expected}")
        self._begin()

    def _playing(self) -> Iterator[tuple[IndexPolicy, Tensor]]:
        """The base policies that play, each with the replicates in which it plays, (S,) booleans."""
        top = torch.tensor([len(block.copies) - 1 for block in self._blocks], device=self._device)
        for height in sorted(set(top.tolist())):
            yield self._bases[height], top == height

    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        self._choices.check_available(available)
        arm = torch.zeros(self.replicates, dtype=torch.long, device=self._device)
        optimism = torch.zeros_like(self._detected)
        for policy, where in self._playing():
            choice = policy.choose(time, available)
            arm = torch.where(where, choice.arm, arm)
            optimism = torch.where(where, choice.why["index"], optimism)
        return Choice(arm, {"index": optimism, "turn": self._turn})

    _expects = ("_bases",)

    def expect(self, pending: Pending, time: float) -> None:
        """The copies that play expect the pull. Of several choices made together, only one reward can be learned."""
        for policy, _ in self._playing():
            policy.expect(pending, time)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        self._choices.check(observation, "index")
        check_turn(observation, self._turn)
        self._turn += 1
        for policy, where in self._playing():
            policy.learn_where(observation, where)
        rewards, optimism = observation.reward.tolist(), observation.why["index"].tolist()
        detected = [block.learn(r, f) for block, r, f in zip(self._blocks, rewards, optimism, strict=True)]
        started: dict[int, list[int]] = {}  # height to replicates
        for s, block in enumerate(self._blocks):
            for height in block.move_on(detected[s]):
                started.setdefault(height, []).append(s)
        for height in sorted(started):
            if height == len(self._bases):
                self._bases.append(self.base())
            where = torch.zeros(self.replicates, dtype=torch.bool)
            where[started[height]] = True
            self._bases[height].reset(where.to(self._device))
        self._detected = torch.tensor(detected, dtype=torch.float64, device=self._device)
        self._restarts = self._restarts + self._detected

    def changes_found(self) -> Tensor:
        return self._restarts.clone()

    def trace(self) -> dict[str, Tensor | float]:
        """Restarts so far, 1 if a test fired, the block's order, and the order of the copy that plays next."""
        orders = [(block.order, block.copies[-1].order) for block in self._blocks]
        block, player = torch.tensor(orders, dtype=torch.float64).unbind(-1)
        return {"restarts": self.changes_found(), "detected": self._detected, "block": block, "copy": player}

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("_blocks", "_streams", "_bases")
    _bases: list[IndexPolicy]  # by height
    _turn: int  # rewards learned
    _restarts: Tensor
    _detected: Tensor
    _lasting = ("_turn",)

    def _fresh(self) -> dict[str, Any]:
        zeros = torch.zeros(self.replicates, dtype=torch.float64, device=self._device)
        return {"_turn": 0, "_restarts": zeros, "_detected": zeros.clone()}

    def state_changed(self) -> None:
        """Check that there is a base policy for every copy of a loaded state."""
        highest = max(len(block.copies) for block in self._blocks)
        expected = f"at most {len(self._bases)}, as many as bases"
        validation.require(highest <= len(self._bases), "copies", highest, expected)

    def _make_room(self, state: Mapping[str, Any]) -> None:
        self._bases = [*self._bases, *(self.base() for _ in state["bases"][len(self._bases) :])]
        del self._bases[len(state["bases"]) :]


class _Block(HasState):
    """The current block of one replicate: its copies, U_t and the sums of the tests.

    ``streams``: random numbers for the schedule; they belong to the state of the ``Master``.
    """

    order: int
    clock: int
    excess: float
    lowest: float
    copies: list[_Copy]  # the active ones; the last in the list plays

    def __init__(
        self,
        replicate: int,
        rho: Callable[[int], float],
        thresholds: MasterThresholds,
        streams: ReplicateStreams,
    ) -> None:
        self.replicate, self.rho, self.thresholds, self.streams = replicate, rho, thresholds, streams
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        return {"order": 0, "clock": 0, "excess": 0.0, "lowest": math.inf, "copies": [_Copy(0, 0, 1)]}

    def state_changed(self) -> None:
        self.copies = [one if isinstance(one, _Copy) else _Copy(**one) for one in self.copies]

    def reset(self, where: Tensor | None = None) -> None:
        """Return to block 0, if ``where`` (S,) is None or True for this replicate."""
        if where is None or bool(where[self.replicate]):
            self._begin()

    def move_on(self, restart: bool) -> list[int]:
        """Go to block 0 after a ``restart``, or to the next block at the end of one, and start the copies that begin
        now, largest order first. Returns their heights in the stack."""
        if restart or self.clock == 2**self.order:
            order = 0 if restart else self.order + 1
            self._begin()
            self.order, self.copies = order, []
        due = [m for m in range(self.order, -1, -1) if self.clock % 2**m == 0]
        starting = [m for m in due if m == self.order or self._drawn(m)]
        self.copies += [_Copy(m, self.clock, self.clock + 2**m) for m in starting]
        return list(range(len(self.copies) - len(starting), len(self.copies)))

    def _drawn(self, order: int) -> bool:
        """Whether a copy of order m < n starts, with probability rho(2^n)/rho(2^m). Every call draws one number."""
        rho, u = self.rho, float(self.streams.uniform())
        learnt = rho(2**order) <= self.thresholds.learnt * rho(1)
        return learnt and u < rho(2**self.order) / rho(2**order)

    def learn(self, reward: float, optimism: float) -> bool:
        """Count a step; returns whether a test fires."""
        thresholds, rho = self.thresholds, self.rho
        self.clock += 1
        self.excess += optimism - reward
        self.lowest = min(self.lowest, optimism)
        changed = self.excess / self.clock >= thresholds.fall * thresholds.inflation * rho(self.clock)
        for copy in self.copies:
            copy.rewards += reward
            if copy.end == self.clock:
                allowed = thresholds.rise * thresholds.inflation * rho(2**copy.order)
                changed |= copy.rewards / 2**copy.order >= self.lowest + allowed
        self.copies = [copy for copy in self.copies if copy.end > self.clock]
        return changed

"""MASTER: a policy over policies that adapts an optimistic policy for stationary rewards to unknown changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy, check_turn
from bandits_torch.state import HasState
from bandits_torch.streams import ReplicateStreams


@validation.names_arguments
@dataclass(frozen=True)
class MasterThresholds:
    """Thresholds of MASTER's two tests, in multiples of rho^(t) = ``inflation`` rho(t), and the choice of copies.

    Attributes:
        inflation: 6 (log2 T + 1) ln(T/delta) in theory.
        rise: test 1, 9 in theory: the allowed excess of a copy's mean reward over the smallest optimism.
        fall: test 2, 3 in theory: the allowed excess of the optimism over the mean reward.
        learnt: a copy of order m is started at random only if rho(2^m) <= ``learnt`` rho(1); 1 in theory: all are.

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
        """Wei & Luo (2021), Algorithms 2 and 3. At practical horizons no test of theirs can fire.

        Raises ValueError for a ``horizon`` T below 1 and ``delta`` outside (0, 1).
        """
        validation.positive_integer("horizon", horizon)
        validation.probability("delta", delta)
        return MasterThresholds(6 * (math.log2(horizon) + 1) * math.log(horizon / delta))

    @staticmethod
    def calibrated() -> MasterThresholds:
        """For ``simulated_rate``, which estimates what happens without a change instead of bounding it."""
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

    The base plays fixed functions; rho(t) is the largest, over the runs, of the mean of f~ - y over the first t' >= t
    steps. The theory's rho bounds the same mean by Cauchy-Schwarz at the rate t^{-1/2}, although it falls like ln(t)/t
    if arms differ: a factor of ten after 4 000 steps on 100 independent arms.

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
    order m < n starts with probability rho(2^n)/rho(2^m). The active copy of smallest order plays and learns;
    the others rest. With f~_t the optimism of the copy that plays (its largest index), U_t = min f~ since the
    block began and rho^ = inflation rho, everything restarts at block 0 when

    * test 1: a copy of order m ends, and the mean reward over its interval is >= U_t + rise rho^(2^m);
    * test 2: the mean of f~ - y since the block began is >= fall rho^(its steps).

    Args:
        base: makes a fresh base policy of S replicates, which can ``learn_where``: an ``IndexPolicy`` over an ``ArmGP``
            that keeps everything. Its acquisition draws no random numbers; its ``Choice.why["index"]`` is f~.
        rho: rho(t), the base's mean regret over t steps, non-increasing.
        thresholds: of the tests.
        num_arms, replicates, seed, first_replicate: N, S, and the random schedule's numbers.
        device: of the arms returned.

    The active copies of a replicate are a stack: each ends before, or with, those below it. There is a base policy of
    all replicates for each height in it. Cost: one step of the base for each height at which any replicate plays.

    A reward is assigned to the copy being played, so a reward of a choice before the last reward is a ValueError.

    Raises ValueError for ``replicates`` or ``num_arms`` below 1, and for a base that cannot ``learn_where``.
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
        self.replicates = validation.positive_integer("replicates", replicates)
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self._choices = Arms(num_arms, replicates)
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
        self._bases = [base()]
        expected = f"a function that makes a policy of {replicates} replicates with learn_where"
        fits = hasattr(self._bases[0], "learn_where") and self._bases[0].replicates == replicates
        validation.require(fits, "base", base, expected)
        self._begin()

    def _playing(self) -> Iterator[tuple[IndexPolicy, Tensor]]:
        """The base policies that play, each with the replicates where it does, (S,) booleans."""
        top = torch.tensor([len(block.copies) - 1 for block in self._blocks], device=self._device)
        for height in sorted(set(top.tolist())):
            yield self._bases[height], top == height

    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The choice of the active copy of smallest order in each replicate."""
        if available is not None:
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
        """The copies that play expect the pending pulls. (Of choices made together, the policy learns only the first
        reward.)"""
        for policy, _ in self._playing():
            policy.expect(pending, time)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Let the copy that played learn, then run both tests, in each replicate."""
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
        """Restarts so far."""
        return self._restarts

    def trace(self) -> dict[str, Tensor | float]:
        """Restarts so far, 1 if a test fired, the block's order, and the order of the copy that plays next."""
        orders = [(block.order, block.copies[-1].order) for block in self._blocks]
        block, player = torch.tensor(orders, dtype=torch.float64).unbind(-1)
        return {"restarts": self._restarts, "detected": self._detected, "block": block, "copy": player}

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("_blocks", "_streams", "_bases")
    _bases: list[IndexPolicy]  # by height
    _turn: int  # rewards learnt
    _restarts: Tensor
    _detected: Tensor
    _lasting = ("_turn",)

    def _fresh(self) -> dict[str, Any]:
        zeros = torch.zeros(self.replicates, dtype=torch.float64, device=self._device)
        return {"_turn": 0, "_restarts": zeros, "_detected": zeros.clone()}

    def state_changed(self) -> None:
        """Check that there is a base policy for every copy of a loaded state."""
        highest = max(len(block.copies) for block in self._blocks)
        validation.require(
            highest <= len(self._bases), "copies", highest, f"at most {len(self._bases)}, as many as bases"
        )

    def _make_room(self, state: Mapping[str, Any]) -> None:
        self._bases = [*self._bases, *(self.base() for _ in state["bases"][len(self._bases) :])]
        del self._bases[len(state["bases"]) :]


class _Block(HasState):
    """The block of one replicate: its copies, U_t and the sums of the tests.

    ``streams``: for the schedule; they belong to the state of the ``Master``.
    """

    order: int
    clock: int
    excess: float
    lowest: float
    copies: list[_Copy]  # that are active, the one that plays last

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
        """Block 0 and its copy."""
        return {"order": 0, "clock": 0, "excess": 0.0, "lowest": math.inf, "copies": [_Copy(0, 0, 1)]}

    def state_changed(self) -> None:
        """Make copies of the mappings in a loaded state."""
        self.copies = [one if isinstance(one, _Copy) else _Copy(**one) for one in self.copies]

    def reset(self, where: Tensor | None = None) -> None:
        """Block 0 again, if ``where`` (S,) is True for this replicate."""
        if where is None or bool(where[self.replicate]):
            self._begin()

    def move_on(self, restart: bool) -> list[int]:
        """Go to block 0 after a ``restart``, or to the next block after the last step of one, and start the copies that
        begin now, largest order first. Returns their heights in the stack."""
        if restart or self.clock == 2**self.order:
            order = 0 if restart else self.order + 1
            self._begin()
            self.order, self.copies = order, []
        begun = [
            m
            for m in range(self.order, -1, -1)
            if self.clock % 2**m == 0 and (m == self.order or self._drawn(m))
        ]
        self.copies += [_Copy(m, self.clock, self.clock + 2**m) for m in begun]
        return list(range(len(self.copies) - len(begun), len(self.copies)))

    def _drawn(self, order: int) -> bool:
        """Whether a copy of order m < n starts, with probability rho(2^n)/rho(2^m); a number is drawn in any case."""
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

"""MASTER: a policy over policies that adapts an optimistic policy for stationary rewards to unknown changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
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
        """Wei & Luo (2021), Algorithms 2 and 3. At practical horizons no test of theirs can fire."""
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
        base: makes a fresh base policy of one replicate, for the replicate's number; its ``Choice.why["index"]``
            holds the optimism f~ (``IndexPolicy`` has it).
        rho: rho(t), the base's mean regret over t steps, non-increasing.
        thresholds: of the tests.
        num_arms, replicates, seed, first_replicate: N, S, and the random schedule's numbers.
        device: of the arms returned.

    Copies are reused, one per order and replicate. Cost: one step of the base per replicate.

    A reward is assigned to the copy being played, so a reward of a choice before the last reward is a ValueError.

    Raises ValueError for ``replicates`` or ``num_arms`` below 1.
    """

    needs_unit = "it learns rewards in turn, with the optimism of their choice in units of reward"

    def __init__(
        self,
        base: Callable[[int], Policy],
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
        validation.function("base", base, "a function that makes a policy of one replicate")
        validation.function("rho", rho, "a function of the number of steps")
        validation.instance("thresholds", thresholds, MasterThresholds, "a MasterThresholds")
        self.thresholds, self.rho = thresholds, rho
        first = validation.natural("first_replicate", first_replicate)
        self._device = device
        self._begin()
        self._streams = [
            ReplicateStreams(seed, 1, purpose="schedule", first=first + s) for s in range(replicates)
        ]
        self._blocks = [
            _Block(s, partial(base, first + s), rho, thresholds, streams)
            for s, streams in enumerate(self._streams)
        ]

    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The choice of the active copy of smallest order in each replicate."""
        if available is not None:
            self._choices.check_available(available)
        arms, optimism = [], []
        for s, block in enumerate(self._blocks):
            mask = available[s] if available is not None and available.dim() == 2 else available
            choice = block.policy.choose(time, mask)
            arms.append(choice.arm)
            optimism.append(choice.why["index"])
        return Choice(torch.cat(arms), {"index": torch.cat(optimism), "turn": self._turn})

    _expects = ("_blocks",)

    def expect(self, pending: Pending, time: float) -> None:
        """The copies that play expect what is pending. (Of choices made together it learns only the first reward.)"""
        for s, block in enumerate(self._blocks):
            block.policy.expect(Pending(pending.time, pending.arm[s : s + 1]), time)

    def learn(self, observation: Observation) -> None:
        """The copy that played learns; then both tests, in each replicate."""
        arm, reward = observation.arm, observation.reward
        self._choices.check(observation, "index")
        check_turn(observation, self._turn)
        self._turn += 1
        optimism = observation.why["index"]
        self._detected = torch.zeros_like(self._detected)
        for s, block in enumerate(self._blocks):
            one = slice(s, s + 1)
            block.policy.learn(Observation(observation.time, arm[one], reward[one]))
            if block.learn(float(reward[s]), float(optimism[s])):
                self._restarts[s] += 1
                self._detected[s] = 1
                block.begin(0)
            elif block.clock == 2**block.order:
                block.begin(block.order + 1)
            else:
                block.schedule()
            self._order[s] = block.player.order

    def changes_found(self) -> Tensor:
        """Restarts so far."""
        return self._restarts

    def trace(self) -> dict[str, Tensor | float]:
        """Restarts so far, 1 where a test fired, the block's order and that of the copy that plays next."""
        block = torch.tensor([float(b.order) for b in self._blocks], dtype=torch.float64)
        return {
            "restarts": self._restarts.clone(),
            "detected": self._detected,
            "block": block,
            "copy": self._order,
        }

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("_blocks", "_streams")
    _turn: int  # rewards learnt
    _restarts: Tensor
    _detected: Tensor
    _order: Tensor  # of the copies that play
    _lasting = ("_turn",)

    def _fresh(self) -> dict[str, Any]:
        zeros = torch.zeros(self.replicates, dtype=torch.float64, device=self._device)
        return {"_turn": 0, "_restarts": zeros, "_detected": zeros.clone(), "_order": zeros.clone()}


class _Block(HasState):
    """The block of one replicate: its copies, U_t and the sums of the tests.

    ``make``: a fresh base policy of this replicate. ``streams``: for the schedule; they are a part of the ``Master``.
    """

    _parts = ("pool",)
    order: int
    clock: int
    excess: float
    lowest: float
    copies: list[_Copy]

    def __init__(
        self,
        replicate: int,
        make: Callable[[], Policy],
        rho: Callable[[int], float],
        thresholds: MasterThresholds,
        streams: ReplicateStreams,
    ) -> None:
        self.replicate, self.make = replicate, make
        self.rho, self.thresholds, self.streams = rho, thresholds, streams
        self.pool: dict[int, Policy] = {}  # by order; those at rest keep random streams, and more
        self.begin(0)

    def _fresh(self) -> dict[str, Any]:
        return {"order": 0, "clock": 0, "excess": 0.0, "lowest": math.inf, "copies": []}

    def state_changed(self) -> None:
        """Make copies of the mappings in a loaded state."""
        self.copies = [one if isinstance(one, _Copy) else _Copy(**one) for one in self.copies]
        orders = [one.order for one in self.copies]
        validation.require(set(orders) <= set(self.pool), "orders of copies", orders, f"of {list(self.pool)}")

    def _make_room(self, state: Mapping[str, Any]) -> None:
        self.pool = {order: self.pool.get(order) or self.make() for order in state["pool"]}

    def reset(self, where: Tensor | None = None) -> None:
        """Block 0 again, if ``where`` (S,) says so of this replicate."""
        if where is None or bool(where[self.replicate]):
            self.begin(0)

    def begin(self, order: int) -> None:
        """Start block ``order``, every copy afresh."""
        self._begin()
        self.order = order
        self.schedule()

    def schedule(self) -> None:
        """Start the copies that begin at this step, largest order first."""
        for m in range(self.order, -1, -1):
            if self.clock % 2**m == 0 and (m == self.order or self._drawn(m)):
                if m not in self.pool:
                    self.pool[m] = self.make()
                self.pool[m].reset()
                self.copies.append(_Copy(m, self.clock, self.clock + 2**m))

    def _drawn(self, order: int) -> bool:
        """Whether chance, rho(2^n)/rho(2^m), starts a copy of order m < n; a number is drawn in any case."""
        rho, u = self.rho, float(self.streams.uniform())
        learnt = rho(2**order) <= self.thresholds.learnt * rho(1)
        return learnt and u < rho(2**self.order) / rho(2**order)

    @property
    def player(self) -> _Copy:
        """The active copy of smallest order; of one order no two are active at once."""
        return min(self.copies, key=lambda copy: copy.order)

    @property
    def policy(self) -> Policy:
        """The policy of the player."""
        return self.pool[self.player.order]

    @contextmanager
    def put_aside(self, names: Iterable[str] | None = None) -> Iterator[None]:
        """See ``HasState``: of the player's policy alone."""
        with self.policy.put_aside():
            yield

    def learn(self, reward: float, optimism: float) -> bool:
        """Count a step; whether a test fires."""
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

"""The doubling trick: a policy without a horizon from one that must be told it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.policy import Choice, Expect, Observation, Pending, Policy
from bandits_torch.policies.wrapping import WrappingPolicy


class DoublingTrick(WrappingPolicy):
    """Anytime play: phase k = 0, 1, ... is a new policy, told the horizon T_k = ``first`` 2^k, for T_k observations.

    At the end of a phase all it learned is forgotten. If the policy's regret is at most c T^a for every horizon T it is
    told, that of the phases together is at most

        c 2^a / (2^a - 1) (T + first)^a    after T steps:

    3.4 times as much for a = 1/2, 2.5 times for a = 3/4 (the trick keeps polynomial bounds, not logarithmic ones). That
    holds for any reward functions, changing ones too, with the bound of the whole run's change told to every phase.

    A reward of a choice made in an earlier phase is ignored: the phase's end has forgotten it already.

    Args:
        base: makes a policy for a horizon, its only argument, such as
            ``lambda T: recipes.sw_gp_ucb(arms, kernel, 0.01, horizon=T)``. It is called once a phase. Horizons differ,
            so that they may seed a policy that draws (``seed=T``).
        first: T_0.

    Cost: that of the policies, made anew log2(T / ``first``) times.

    Source: Auer, Cesa-Bianchi, Freund & Schapire 2002; Besson & Kaufmann 2018 (arXiv 1803.06971), the geometric trick.
    Raises ValueError for a ``base`` that is no function or makes no
    policy, or others in number of arms or replicates than before, and a ``first`` below 1.
    """

    def __init__(self, base: Callable[[int], Policy], *, first: int = 64) -> None:
        self.base = base
        validation.function("base", base, "a function that makes a policy for a horizon")
        self.first = validation.positive_integer("first", first)
        self._begin_phase(0)

    def _begin_phase(self, phase: int) -> None:
        policy = self.base(self.first * 2**phase)
        validation.instance("base", policy, Policy, "a function that makes a policy for a horizon")
        if phase:
            before = (self.replicates, self.num_arms, self.dim)
            now = (policy.replicates, policy.num_arms, policy.dim)
            validation.require(
                now == before, "base", now, f"the replicates, arms and dimension of before, {before}"
            )
        self.phase, self._count = phase, 0
        self._around(policy)
        self.outcome_names = policy.outcome_names

    @property
    def knows_past(self) -> bool:  # type: ignore[override]
        """As the phase's policy, in the first phase."""
        return self.phase == 0 and super().knows_past

    def choose(self, time: float, available: Any = None) -> Choice:
        """As the phase's policy chooses."""
        choice = self.policy.choose(time, available)
        return replace(choice, why={**choice.why, "phase": self.phase})

    @contextmanager
    def expecting(self, time: float) -> Iterator[Expect]:
        """As the phase's policy; what is pending of earlier phases is not counted."""
        with self.policy.expecting(time) as inside:

            def expect(pending: Pending) -> None:
                if pending.why.get("phase", self.phase) == self.phase:
                    inside(pending)

            yield expect

    def learn(self, observation: Observation) -> None:
        """The phase's policy learns; after T_k observations the next phase begins."""
        if observation.why.get("phase", self.phase) != self.phase:
            return
        self.policy.learn(observation)
        self._count += 1
        if self._count == self.first * 2**self.phase:
            self._begin_phase(self.phase + 1)

    def trace(self) -> dict[str, Tensor | float]:
        """What the phase's policy tells, and the number of the ``phase``."""
        return self.policy.trace() | {"phase": float(self.phase)}

    phase: int
    _count: int  # observations in it

    def _fresh(self) -> dict[str, Any]:
        return {"phase": 0, "_count": 0}

    def _restarted(self, where: Tensor | None) -> None:
        """Phase 0 again; some replicates alone begin the phase of now anew."""
        if where is None or bool(where.all()):
            self._begin_phase(0)

    def _make_room(self, state: Mapping[str, Any]) -> None:
        if state["phase"] != self.phase:
            self._begin_phase(validation.natural("phase", state["phase"]))

"""Captured steps of policies whose state is a dictionary of tensors (``ArmPolicy``): their own methods are called."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

import torch
from torch import Tensor

from bandits_torch.captured.steps import Books, CapturedSteps, Given, Pull, refused, write_back
from bandits_torch.policies.arm_policy import ArmPolicy
from bandits_torch.policies.policy import Observation
from bandits_torch.state import copied
from bandits_torch.streams import ReplicateStreams


class Draws:
    """Stands in for the streams: notes which random numbers are drawn from them, or returns those drawn in advance."""

    def __init__(self, streams: ReplicateStreams | None = None, laid: Sequence[Tensor] = ()) -> None:
        self._streams, self._laid = streams, iter(laid)
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def normal(self, *shape: int) -> Tensor:
        """See ``ReplicateStreams``."""
        return self._next("normal", shape)

    def uniform(self, *shape: int) -> Tensor:
        """See ``ReplicateStreams``."""
        return self._next("uniform", shape)

    def _next(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        self.asked.append((kind, shape))
        return next(self._laid) if self._streams is None else getattr(self._streams, kind)(*shape)


class ArmSteps(CapturedSteps):
    """Calls ``choice`` and ``learned`` with random numbers drawn in advance, then copies the new state to the old.

    Raises ValueError for a policy that is not ``fixed``, or whose state holds anything but tensors.
    """

    def __init__(self, policy: ArmPolicy) -> None:
        of_tensors = all(isinstance(value, Tensor) for value in policy.state.values())
        if not (policy.fixed and of_tensors):
            raise refused(type(policy).__name__, "its steps read values, or its state grows")
        self.policy = policy

    def begin(self, steps: int, most: int) -> None:
        """Choose once to see which random numbers a step draws, and restore the streams."""
        policy, before = self.policy, self.policy.streams.state_dict()
        policy.state = copied(policy.state)  # no two tensors in one place
        draws = Draws(policy.streams)
        with torch.no_grad():
            policy.choice(policy.state, 0.0, None, cast(ReplicateStreams, draws))
        policy.streams.load_state_dict(before)
        self._asked = draws.asked

    def most(self, times: Sequence[float]) -> int:
        """All of the steps: no tensor grows."""
        return len(times)

    def given(self, times: Sequence[float]) -> Given:
        """The times, and the random numbers."""
        streams, device = self.policy.streams, self.policy.device
        drawn = [[getattr(streams, kind)(*shape) for kind, shape in self._asked] for _ in times]
        given = {f"draw {i}": torch.stack(of) for i, of in enumerate(zip(*drawn, strict=True))}
        return given | {"time": torch.tensor(times, dtype=torch.float64, device=device)}

    def key(self) -> Hashable:
        """Where the state is stored, which changes at a reset."""
        return tuple(value.data_ptr() for value in self.policy.state.values())

    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """A step of the policy, with its state updated in place."""
        policy, time = self.policy, cast(float, given["time"][j])
        draws = Draws(laid=[given[f"draw {i}"][j] for i in range(len(self._asked))])
        choice = policy.choice(policy.state, time, available, cast(ReplicateStreams, draws))
        reward = pull(choice.arm).double()
        state = policy.learned(dict(policy.state), Observation(time, choice.arm, reward, choice.why))
        # Copies: a new value may be, or share, another's old one.
        write_back(
            [(old, state[name].clone()) for name, old in policy.state.items() if state[name] is not old]
        )
        told = {name: torch.as_tensor(value).clone() for name, value in policy.trace().items()}
        return {"arm": choice.arm} | told

    def after(self, times: Sequence[float], rows: Given) -> None:
        """Nothing to do: everything is in the state."""

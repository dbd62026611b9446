"""Variances of a few arms of a sketch, kept up to date pull by pull, where all arms would be too many to look at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.sketch.sketch import Sketch
from bandits_torch.state import HasState


class WatchedArms(HasState):
    """The posterior variance of n arms now, at O(n m) a pull in place of the O(N m) that all arms take.

    Args:
        sketch: that the arms belong to; what it learns in the meantime is followed, another dictionary too.
        arms: (n,), by index.

    Attributes:
        arms: (n,), in the order they joined.
    """

    def __init__(self, sketch: Sketch, arms: Tensor) -> None:
        self.arms = arms
        self._sketch = sketch
        self._look()

    def __len__(self) -> int:
        return len(self.arms)

    def join(self, arms: Tensor) -> None:
        """Watch these arms (j,) too, none of which is watched yet."""
        more = WatchedArms(self._sketch, arms)
        self._variance = torch.cat([self._up_to_date(), more._variance])
        self._z: Tensor = torch.cat([self._z, more._z], 1)
        self.arms = torch.cat([self.arms, arms])

    def variance(self) -> Tensor:
        """Of the arms as they stand in ``arms``, (n,)."""
        return self._up_to_date().clamp_min(0.0)

    def _look(self) -> None:
        sketch = self._sketch
        self._z = sketch.embedding.of(self.arms)
        self._variance = sketch.marginals.variance_at(self.arms, self._z, sketch.regression)
        self._era, self._pulls = self._now(), sketch.marginals.pulls

    def _now(self) -> tuple[int, int]:
        """The dictionary, and the last pass over all arms: after another of either, pulls are counted anew."""
        return self._sketch.draws, self._sketch.marginals.settled

    def _up_to_date(self) -> Tensor:
        marginals = self._sketch.marginals
        if self._era != self._now():
            self._look()
        elif self._pulls < marginals.pulls:
            for fall in marginals.falls_since(self._pulls):
                passed = self._z.mT @ fall  # a vector on the left would take twice as long
                self._variance.addcmul_(passed, passed, value=-1)
            self._pulls = marginals.pulls
        return self._variance

    # -- state -----------------------------------------------------------------------------------------

    arms: Tensor
    _variance: Tensor  # after so many pulls of an era
    _era: tuple[int, int]
    _pulls: int

    def _fresh(self) -> dict[str, Any]:
        none = self._sketch.prior_variance.new_zeros(0)
        return {"arms": none.long(), "_variance": none, "_era": self._now(), "_pulls": 0}

    def state_changed(self) -> None:
        """The sketch has been put back to the same moment before."""
        self._z = self._sketch.embedding.of(self.arms)

    def _check_has(self, state: Any, where: str) -> None:
        """And that they are numbers of arms, and a variance of each."""
        super()._check_has(state, where)
        n = validation.tensor("arms", state["arms"]).shape
        for name, dtype in (("arms", torch.long), ("variance", self._sketch.prior_variance.dtype)):
            value = validation.tensor(name, state[name])
            ok = value.dtype == dtype and value.dim() == 1 and value.shape == n
            validation.shape_is(name, value, ok, f"(n,) and dtype {dtype}")
        validation.natural("pulls", state["pulls"])

"""Numbers that a part of a policy keeps for each replicate."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from bandits_torch.description import Described
from bandits_torch.state import HasState


class ReplicateState(Described, HasState, ABC):
    """Holds the tensors that ``_start`` names as attributes, each with the replicates as first dimension."""

    @abstractmethod
    def _start(self) -> dict[str, Tensor]:
        """The tensors by name as they are before the first observation."""

    def _fresh(self) -> dict[str, Tensor]:
        return self._start()

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors."""
        return tuple(self._start())

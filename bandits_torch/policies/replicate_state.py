"""Numbers that a part of a policy keeps for each replicate: begun, reset where asked, put aside and taken up again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bandits_torch.description import Described


class ReplicateState(Described, ABC):
    """Holds the tensors that ``_start`` names as attributes, each with the replicates as first dimension."""

    @abstractmethod
    def _start(self) -> dict[str, Tensor]:
        """The tensors by name as they are before the first observation."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors."""
        return tuple(self._start())

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the start, in the replicates with ``where`` (S,) True."""
        for name, value in self._start().items():
            if where is not None:
                shape = (-1, *[1] * (value.dim() - 1))
                value = torch.where(where.reshape(shape), value, getattr(self, name))
            setattr(self, name, value)
        self.changed()

    def changed(self) -> None:
        """The tensors are others than before: what was read off them holds no more."""
        return

    def state_dict(self) -> dict[str, Any]:
        """Copies of the tensors."""
        return {name: getattr(self, name).clone() for name in self._start()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the one that gave ``state`` stood."""
        for name in self._start():
            setattr(self, name, state[name].clone())
        self.changed()

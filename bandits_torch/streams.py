"""Random numbers for replicates that run side by side.

Replicate k of a batch of S must live the same life as replicate k run alone, so one generator for the
whole batch will not do: each replicate draws from a generator of its own, seeded by (seed, purpose, k).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation

_BLOCK_NUMBERS = 16_384  # numbers drawn ahead per replicate and refill, so a step seldom calls a generator
_PURPOSES = {"noise": 0, "problem": 1, "policy": 2, "arms": 3, "sketch": 4, "schedule": 5, "network": 6}


class ReplicateStreams:
    """One independent stream of random numbers per replicate.

    Args:
        seed: the run's seed, an integer >= 0.
        replicates: S, how many streams.
        purpose: ``"noise"``, ``"problem"``, ``"policy"``, ``"sketch"``, ``"arms"`` (arms that all replicates share),
            ``"schedule"`` (a policy's random schedules, drawn at other times in each replicate) or
            ``"network"`` (first weights of neural networks); streams of different purposes are independent.
        first: number of the first replicate, so that ``first=k, replicates=1`` is replicate k alone.
        dtype, device: of the numbers handed out. They are always drawn on the CPU in float64, so a run
            on a GPU sees the same noise as one on a CPU.

    Numbers are drawn ahead in blocks; the block length depends on the shape asked for and never on S.
    """

    def __init__(
        self,
        seed: int,
        replicates: int = 1,
        *,
        purpose: str = "noise",
        first: int = 0,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        validation.natural("seed", seed)
        validation.natural("first_replicate", first)
        validation.require(purpose in _PURPOSES, "purpose", purpose, f"one of {sorted(_PURPOSES)}")
        self.replicates = validation.positive_integer("replicates", replicates)
        self.dtype, self.device = dtype, torch.device(device)
        self._generators = []
        for k in range(first, first + replicates):
            entropy = np.random.SeedSequence(seed, spawn_key=(_PURPOSES[purpose], k)).generate_state(
                1, np.uint64
            )
            self._generators.append(torch.Generator().manual_seed(int(entropy[0])))
        self._blocks: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._used: dict[tuple[str, tuple[int, ...]], int] = {}

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, S x shape."""
        return self._next("normal", shape)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers uniform on [0, 1), S x shape."""
        return self._next("uniform", shape)

    def _next(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        key = (kind, shape)
        block, used = self._blocks.get(key), self._used.get(key, 0)
        if block is None or used == block.shape[0]:
            block, used = self._refill(kind, shape), 0
            self._blocks[key] = block
        self._used[key] = used + 1
        return block[used]

    def _refill(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        length = max(1, min(1024, _BLOCK_NUMBERS // max(1, math.prod(shape))))
        draw = torch.randn if kind == "normal" else torch.rand
        rows = [draw(length, *shape, generator=g, dtype=torch.float64) for g in self._generators]
        return torch.stack(rows, dim=1).to(dtype=self.dtype, device=self.device)

    def state_dict(self) -> dict[str, Any]:
        """Everything the next draws depend on, as tensors and plain values."""
        return {
            "generators": torch.stack([g.get_state() for g in self._generators]),
            "blocks": [(kind, list(shape), block.clone()) for (kind, shape), block in self._blocks.items()],
            "used": [(kind, list(shape), used) for (kind, shape), used in self._used.items()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the streams that gave ``state`` stood."""
        states = state["generators"]
        validation.require(
            len(states) == self.replicates,
            "state['generators']",
            len(states),
            f"{self.replicates} replicates",
        )
        for generator, generator_state in zip(self._generators, states, strict=True):
            generator.set_state(generator_state.clone())  # torch crashes on a view into a longer tensor
        self._blocks = {
            (k, tuple(s)): b.to(dtype=self.dtype, device=self.device) for k, s, b in state["blocks"]
        }
        self._used = {(k, tuple(s)): used for k, s, used in state["used"]}

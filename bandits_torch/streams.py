"""Random numbers for replicates in a batch.

Each replicate k has its own generator, seeded by (seed, purpose, k), so it gives the same run alone as in a batch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation

_BLOCK_NUMBERS = 16_384  # numbers drawn ahead per replicate, so that a step seldom calls a generator
_MANY_NUMBERS, _THREADS = 2**19, 8  # a block of this many numbers or more is drawn by up to eight threads
_PURPOSES = ("noise", "problem", "policy", "arms", "sketch", "schedule", "network", "control")

_Key = tuple[str, tuple[int, ...]]  # kind of numbers, shape


class ReplicateStreams:
    """One independent stream of random numbers per replicate.

    Args:
        seed: the run's seed, an integer >= 0.
        replicates: S, the number of streams.
        purpose: ``"noise"``, ``"problem"``, ``"policy"``, ``"sketch"``, ``"arms"`` (arms that all replicates share),
            ``"schedule"`` (drawn at different steps in each replicate), ``"network"`` (initial weights) or
            ``"control"`` (which steps play a control); streams of different purposes are independent.
        first: number of the first replicate, so ``first=k, replicates=1`` is replicate k alone.
        dtype, device: for the result. Numbers are drawn on the CPU in float64, so a GPU gets the same noise.
        like: a tensor whose dtype and device replace these.

    Numbers are drawn ahead in blocks, whose length depends on the shape requested but not on S.
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
        like: Tensor | None = None,
    ) -> None:
        validation.natural("seed", seed)
        validation.natural("first_replicate", first)
        validation.one_of("purpose", purpose, *_PURPOSES)
        self.replicates = validation.positive_integer("replicates", replicates)
        self.dtype, self.device = (dtype, torch.device(device)) if like is None else (like.dtype, like.device)
        self._generators = []
        for k in range(first, first + replicates):
            sequence = np.random.SeedSequence(seed, spawn_key=(_PURPOSES.index(purpose), k))
            number = int(sequence.generate_state(1, np.uint64)[0])
            self._generators.append(torch.Generator().manual_seed(number))
        # The numbers drawn ahead, how many rows of them are used, and the generators' states before they were drawn.
        self._blocks: dict[_Key, tuple[Tensor, int, Tensor]] = {}

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, S x shape."""
        return self._next("normal", shape)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers uniform on [0, 1), S x shape."""
        return self._next("uniform", shape)

    def _next(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        key = (kind, shape)
        block, used, before = self._blocks.get(key, (None, 0, None))
        if block is None or before is None or used == block.shape[0]:
            before = self._states()
            block, used = self._refill(kind, shape), 0
        self._blocks[key] = block, used + 1, before
        return block[used]

    def _states(self) -> Tensor:
        return torch.stack([generator.get_state() for generator in self._generators])

    def _set_states(self, states: Tensor) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state.clone())  # torch crashes on a view into a longer tensor

    def _refill(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        length = max(1, min(1024, _BLOCK_NUMBERS // max(1, math.prod(shape))))
        block = torch.empty(self.replicates, length, *shape, dtype=torch.float64)

        def fill(k: int) -> None:
            draw = block[k].normal_ if kind == "normal" else block[k].uniform_
            draw(generator=self._generators[k])

        if block.numel() < _MANY_NUMBERS:
            for k in range(self.replicates):
                fill(k)
        else:  # each replicate has its own generator, so the order of drawing makes no difference
            with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
                list(pool.map(fill, range(self.replicates)))
        if kind == "uniform":  # the last numbers below 1 would be 1 in a shorter dtype
            block.clamp_(max=1 - torch.finfo(self.dtype).eps / 2)
        return block.transpose(0, 1).to(dtype=self.dtype, device=self.device).contiguous()

    def state_dict(self) -> dict[str, Any]:
        """The state of all generators: 5 KB per replicate, and as much for each kind and shape of numbers requested.
        Loading draws the blocks again, of 131 KB per replicate at most unless a single request is larger."""
        drawn = self._blocks.items()
        blocks = [(kind, list(shape), used, before.clone()) for (kind, shape), (_, used, before) in drawn]
        return {"generators": self._states(), "blocks": blocks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``. Raises ValueError for any other number of replicates."""
        count = len(state["generators"])
        expected = f"{self.replicates} replicates"
        validation.require(count == self.replicates, "state['generators']", count, expected)
        self._blocks = {}
        for kind, shape, used, before in state["blocks"]:
            self._set_states(before)
            self._blocks[kind, tuple(shape)] = self._refill(kind, tuple(shape)), used, before.clone()
        self._set_states(state["generators"])

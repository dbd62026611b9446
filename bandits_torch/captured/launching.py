"""How a block of captured steps is launched: as a plain call or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from bandits_torch.captured.steps import Given
from bandits_torch.problems.problem import available_rewards

Block = Callable[[Given], Given]


class PlainCalls:
    """Calls the block. On a CPU launches are cheap: blocks save the Python between the kernels."""

    block_steps = 32

    @property
    def said(self) -> str:
        """How blocks were launched."""
        return "plain calls"

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block."""
        return block(given)


class CudaGraphs:
    """Replays CUDA graphs, one for each kind of block.

    The first block of a kind runs on a side stream, as a warm-up. The second is captured, which runs nothing, and is
    replayed from then on. The inputs of a block are copied to where the graph reads them. They include the random
    numbers: a graph draws none.

    The ``most`` graphs used last are kept. A graph takes the memory of the intermediate results of its block.
    """

    block_steps = 32
    most = 16
    said = "CUDA graphs"

    def __init__(self) -> None:
        self._side = torch.cuda.Stream()
        self._warm: set[Hashable] = set()
        self._graphs: dict[Hashable, tuple[Any, Given, Given]] = {}
        self.captured = 0  # graphs captured so far

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block, valid until the next block of this kind."""
        shapes = tuple((name, tuple(value.shape), value.dtype) for name, value in sorted(given.items()))
        key = (key, shapes)
        if key in self._graphs:
            graph, held, rows = self._graphs[key] = self._graphs.pop(key)  # the latest last
            for name, value in given.items():
                if held[name].data_ptr() != value.data_ptr():
                    held[name].copy_(value)
            graph.replay()
            return dict(rows)
        if key not in self._warm:
            self._warm.add(key)
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                rows = block(given)
            torch.cuda.current_stream().wait_stream(self._side)
            return rows
        if len(self._graphs) >= self.most:
            self._graphs.pop(next(iter(self._graphs)))
        held = {name: value.clone() for name, value in given.items()}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._side):
            rows = block(held)
        self.captured += 1
        self._graphs[key] = graph, held, rows
        graph.replay()
        return dict(rows)


def launcher(device: torch.device) -> PlainCalls | CudaGraphs:
    """The launcher of blocks for this device."""
    return CudaGraphs() if device.type == "cuda" else PlainCalls()


def best(given: Given) -> Tensor:
    """The best expected rewards among the available arms, (k, S), or fewer rows that broadcast to it."""
    return available_rewards(given["expected"], given.get("available")).amax(-1)

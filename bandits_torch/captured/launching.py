"""How a block of captured steps is launched: as a plain call, or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from bandits_torch.captured.steps import Given

Block = Callable[[Given], Given]


class PlainCalls:
    """Calls the block. On a CPU launches are cheap, and what is saved is the Python around the kernels."""

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

    The first block of a kind runs as it is on a side stream, which warms up what kernels need; the second is captured,
    which runs nothing, and replayed from then on. What a block is given is copied to where the graph reads it. The
    random numbers are among it, so that a graph draws none.

    ``most`` graphs are kept, those used last; a graph's memory is that of the intermediate results of its block.
    """

    block_steps = 32
    said = "CUDA graphs"

    def __init__(self, most: int = 16) -> None:
        self.most = most
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
    """What launches blocks on this device."""
    return CudaGraphs() if device.type == "cuda" else PlainCalls()


def rows_of(block_rows: list[Given]) -> Given:
    """Rows of steps, by name, stacked: (k, ...)."""
    stacked: dict[str, Tensor] = {}
    for name in block_rows[0]:
        stacked[name] = torch.stack([row[name] for row in block_rows])
    return stacked

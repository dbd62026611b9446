"""How a block of captured steps is launched: as a plain call, as a CUDA graph, or as a compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bandits_torch.captured.index_steps import IndexSteps
from bandits_torch.captured.steps import CapturedSteps, Given
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.posterior_of_counts import FRAIL, REMOVED
from bandits_torch.problems.problem import available_rewards
from bandits_torch.theory.widths import Width

Block = Callable[[Given], Given]
_UNSEEN = {  # in place of inputs that a block does not have
    "available": torch.ones(1, 1, 1, dtype=torch.bool),
    **dict.fromkeys(("kept", "gained"), torch.zeros(1, 1, 1, dtype=torch.float64)),
    "leaving_arm": torch.zeros(1, 1, dtype=torch.long),
    "leaving": torch.zeros(1, 1, dtype=torch.float64),
    "normal": torch.zeros(1, 1, 1, dtype=torch.float64),
}


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


class CompiledBlocks(PlainCalls):
    """Plays a block replicate by replicate, all its steps one after the other, so that the replicate's covariance is
    read from memory once a block and not once a step. Compiled by numba, which the extra ``fast`` installs.

    It plays upper confidence bounds and Thompson sampling over an ``ArmGP`` in the covariance form, in float64, with a
    width that depends on the step and the information gain alone (``Width.root_of_gain``), with windows, restarts at
    intervals, drift and masks of arms. Any other block is played like those of ``PlainCalls``. ``said`` counts both.

    The algebra is that of ``CovarianceForm``, whose state it changes in place. Arms differ from those of plain steps
    only where two indices agree up to rounding.

    Cost: O(N^2) a step and replicate, at the speed of the cache while N^2 numbers fit in it.
    """

    block_steps = 256  # the first pass over C, from memory, is paid once in so many

    def __init__(self, steps: IndexSteps) -> None:
        from bandits_torch.captured.compiled_loop import play

        self._play: Any = play
        self._steps = steps
        self._compiled, self._plain = 0, 0  # steps played either way

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block."""
        count = len(given["noise"])
        roots = self._roots(given, count)
        if roots is None:
            self._plain += count
            return super().__call__(key, block, given)
        self._compiled += count
        return self._rows(given, count, roots)

    @property
    def said(self) -> str:
        """How many steps were played which way."""
        return f"{self._compiled} compiled, {self._plain} in plain calls"

    def _roots(self, given: Given, count: int) -> list[Tensor] | None:
        """[A, P, Q] of the widths A + sqrt(P gain + Q) of the steps, (k, S) each; None for a block that the loop cannot
        play."""
        policy, model, form = self._steps.policy, self._steps.model, self._steps.belief.form
        fits = isinstance(form, CovarianceForm) and form.mean.dtype == torch.float64
        if not fits or policy.width is None or "clock" not in given:
            return None
        roots = policy.width.root_of_gain(given["clock"].unsqueeze(-1), model)
        if roots is None:
            return None
        shape = (count, policy.replicates)
        A, P, Q = (torch.as_tensor(part, dtype=torch.float64).expand(shape) for part in roots)
        first = A[0] + (P[0] * model.information_gain + Q[0]).sqrt()
        same = torch.allclose(first, policy.width.at(given["clock"][0], model).expand(shape[1:]), rtol=1e-9)
        return [A, P, Q] if same else None  # a subclass may have another width than its base

    def _rows(self, given: Given, count: int, roots: list[Tensor]) -> Given:
        belief = self._steps.belief
        form = belief.form
        assert isinstance(form, CovarianceForm)
        form.fold()
        arm = torch.zeros(count, len(form.mean), dtype=torch.long)
        reward, expected, width = (torch.zeros(arm.shape, dtype=torch.float64) for _ in range(3))
        told = form.prior_covariance, belief.prior_mean, form.noise_variance.squeeze(-1)
        world = (
            given["expected"].double(),
            given["noise"].double(),
            given.get("available", _UNSEEN["available"]),
        )
        moves = [
            given.get(name, _UNSEEN[name]) for name in ("kept", "gained", "leaving_arm", "leaving", "normal")
        ]
        form.root = None if form.root is None else form.root.contiguous()
        root = _UNSEEN["normal"] if form.root is None else form.root
        state = form.mean, form.covariance, form.gain, form.surprise, form.removed, form.frail
        self._play(
            *(part.numpy() for part in state),
            *(np.ascontiguousarray(part.numpy()) for part in (*told, *world, *roots, *moves)),
            root.numpy(),
            *(name in given for name in ("kept", "available", "leaving", "normal")),
            *(part.numpy() for part in (arm, reward, expected, width)),
            FRAIL,
            REMOVED,
        )
        form.variance.copy_(form.covariance.diagonal(dim1=-2, dim2=-1))
        one = cast(Width, self._steps.policy.width).at(given["clock"][0], self._steps.model)
        rows = {"arm": arm, "reward": reward.to(given["noise"]), "expected": expected.to(given["expected"])}
        return rows | {"width": width if one.dim() else width[:, 0].clone(), "best": best(given)}


def compiled_blocks(steps: CapturedSteps, device: torch.device) -> CompiledBlocks | None:
    """A launcher of compiled blocks for these steps; None for other policies, on another device, or without numba."""
    if device.type != "cpu" or not isinstance(steps, IndexSteps) or steps.by_mask:
        return None
    try:
        import numba  # noqa: F401
    except ImportError:
        return None
    return CompiledBlocks(steps)


def rows_of(block_rows: list[Given]) -> Given:
    """Rows of steps, by name, stacked: (k, ...)."""
    stacked: dict[str, Tensor] = {}
    for name in block_rows[0]:
        stacked[name] = torch.stack([row[name] for row in block_rows])
    return stacked


def best(given: Given) -> Tensor:
    """The best expected rewards there were, (k, S) or of fewer rows that broadcast to it."""
    return available_rewards(given["expected"], given.get("available")).amax(-1)

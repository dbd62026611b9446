"""Blocks of steps of index policies as one compiled loop, whose covariance stays in the processor's cache."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bandits_torch.captured.index_steps import IndexSteps
from bandits_torch.captured.launching import Block, PlainCalls
from bandits_torch.captured.steps import CapturedSteps, Given
from bandits_torch.captured.world import best
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.posterior_of_counts import FRAIL, REMOVED
from bandits_torch.theory.widths import Width

_UNSEEN = {  # for what the loop is not given
    "available": torch.ones(1, 1, 1, dtype=torch.bool),
    **dict.fromkeys(("kept", "gained"), torch.zeros(1, 1, 1, dtype=torch.float64)),
    "leaving_arm": torch.zeros(1, 1, dtype=torch.long),
    "leaving": torch.zeros(1, 1, dtype=torch.float64),
    "normal": torch.zeros(1, 1, 1, dtype=torch.float64),
}


class CompiledBlocks(PlainCalls):
    """Plays a block replicate by replicate, all its steps one after the other, so that the replicate's covariance is
    read from memory once a block and not once a step. Compiled by numba, which the extra ``fast`` installs.

    It plays upper confidence bounds and Thompson sampling over an ``ArmGP`` in the covariance form, in float64, with a
    width that depends on the step and the information gain alone (``Width.root_of_gain``); windows, restarts at
    intervals, drift and masks of arms. Any other block is played as ``PlainCalls`` plays it. ``said`` counts both.

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
        """What was played how."""
        return f"{self._compiled} compiled, {self._plain} in plain calls"

    def _roots(self, given: Given, count: int) -> list[Tensor] | None:
        """[A, P, Q] of the widths A + sqrt(P gain + Q) of the steps, (k, S) each; None where the block is not for the
        loop."""
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
    """What plays compiled blocks of these steps, or None: for other policies, on another device, without numba."""
    if device.type != "cpu" or not isinstance(steps, IndexSteps) or steps.by_mask:
        return None
    try:
        import numba  # noqa: F401
    except ImportError:
        return None
    return CompiledBlocks(steps)

"""Blocks of captured steps as loops that numba compiles: which can be played, and what the loops are given."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from torch import Tensor

from bandits_torch.captured.averaging_steps import AveragingSteps, frames_of
from bandits_torch.captured.index_steps import IndexSteps
from bandits_torch.captured.launching import Block, PlainCalls, best
from bandits_torch.captured.steps import CapturedSteps, Given
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.members import PENDING, ArmMembers, SmoothMembers
from bandits_torch.policies.learned_units import MemberScale
from bandits_torch.policies.sharing import FixedShare

_NONE = torch.zeros(1, 1, 1, dtype=torch.float64)
_UNSEEN = {  # in place of inputs that a block does not have
    "leaving_arm": torch.zeros(1, 1, dtype=torch.long),
    "leaving": _NONE[0],
    **dict.fromkeys(("kept", "gained", "normal"), _NONE),
}


class CompiledBlocks(PlainCalls):
    """Plays a block replicate by replicate, all its steps one after the other, so that what the replicate's policy
    holds is read from memory once a block and not once a step. Compiled by numba, which the extra ``fast`` installs.

    Any block that the loop cannot play is played like those of ``PlainCalls``. ``said`` counts both. Arms differ from
    those of plain steps only where two indices agree up to rounding.

    Args:
        steps: the captured steps.
        play: ``index_block`` or ``averaging_block``: plays a block and writes its arms, rewards and their expectations,
            (k, S) each. Returns its other rows; None, with nothing changed, if the loop cannot.
        block_steps: the most in a block.
    """

    def __init__(self, steps: CapturedSteps, play: Callable[..., Given | None], block_steps: int) -> None:
        self.steps, self.play, self.block_steps = steps, play, block_steps
        self._compiled, self._plain = 0, 0  # steps played either way

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block."""
        count, replicates = given["noise"].shape
        arm = torch.zeros(count, replicates, dtype=torch.long)
        reward, expected = torch.zeros(2, count, replicates, dtype=torch.float64)
        available = given.get("available", _NONE.bool())
        world = _arrays(given["expected"].double(), given["noise"].double(), available)
        rows = self.play(self.steps, given, world, (arm, reward, expected))
        if rows is None:
            self._plain += count
            return super().__call__(key, block, given)
        self._compiled += count
        rows |= {"arm": arm, "reward": reward.to(given["noise"]), "expected": expected.to(given["expected"])}
        return rows | {"best": best(given)}

    @property
    def said(self) -> str:
        """How many steps were played which way."""
        return f"{self._compiled} compiled, {self._plain} in plain calls"


def index_block(
    steps: Any, given: Given, world: tuple[Any, ...], written: tuple[Tensor, ...]
) -> Given | None:
    """A block of ``IndexSteps``: upper confidence bounds, Thompson sampling or improvements over an ``ArmGP`` in the
    covariance form, in float64, with a width that depends on the step and the information gain alone
    (``Width.root_of_gain``).

    Cost: O(N^2) a step and replicate, at the speed of the cache while N^2 numbers fit in it; O(32 N), and a fold every
    32 rows, where rows wait.
    """
    from bandits_torch.captured import compiled_loop

    loop: Any = compiled_loop
    policy, belief, improves = steps.policy, steps.belief, steps.improves
    form, width = belief.form, policy.width
    k, S = written[0].shape
    zeros, bounds = torch.zeros(k, S, dtype=torch.float64), improves is None and width is not None
    if not isinstance(form, CovarianceForm) or form.mean.dtype != torch.float64:
        return None
    if bounds and "clock" not in given:
        return None
    roots = 1 + zeros, zeros, zeros  # of a draw that nothing multiplies
    if bounds:
        roots = width.root_of_gain(given["clock"].unsqueeze(-1), steps.model)
    if roots is None:
        return None
    A, P, Q = (torch.as_tensor(part, dtype=torch.float64).expand(zeros.shape) for part in roots)
    if bounds:  # a subclass may have another width than its base
        at, first = width.at(given["clock"][0], steps.model), A[0] + (P[0] * form.gain + Q[0]).sqrt()
        if not torch.allclose(first, at.expand(len(first)), rtol=1e-9):
            return None
    slides, draws, largest = "leaving" in given, "normal" in given, hasattr(policy, "largest")
    over = (0, 0.0)  # what is improved on, as the loop numbers it, and the margin
    if improves is not None:
        kind = 1 + (improves.acquisition is LogExpectedImprovement) + 2 * largest
        over = kind, improves.margin
    by_root = draws and not slides
    root, units = _NONE, _NONE
    if draws:
        form.root = root = cast(Tensor, form.root).contiguous()
    if by_root:
        form.fold()
        units = zeros.new_empty(S, k, form.size)
    variance = form.variance.contiguous()  # a copy where it is read off C
    state = form.mean, variance, form.covariance, form.gain, form.surprise, form.removed, form.frail
    waiting = form.rows, form.weight, form.kept, form.gained, form.written, form.written_arm
    told = form.prior_covariance, belief.prior_mean, form.noise_variance.squeeze(-1)
    names = "kept", "gained", "leaving_arm", "leaving", "normal"
    moves = _arrays(*(given.get(name, _UNSEEN[name]) for name in names))
    has = "kept" in given, "available" in given, slides, draws
    inputs = _arrays(*told), world, _arrays(A, P, Q), moves, has
    out = *_shared(root, units), _shared(*written, zeros)
    loop.play(_shared(*state), _shared(*waiting), form.filled, *inputs, *out, *over, steps.largest.numpy())
    if by_root:
        _after_root(form, root, written[0].mT, units)
    else:
        form.played(k, k * slides)
    if form.waiting == 1 or by_root:
        form.covariance.diagonal(dim1=-2, dim2=-1).copy_(variance)
    return {"width": zeros if at.dim() else zeros[:, 0].clone()} if bounds else {}


def _after_root(form: CovarianceForm, root: Tensor, arm: Tensor, units: Tensor) -> None:
    """C after k steps that its root has taken, of these arms (S, k) and rows (S, k, N). Rows of the arms are read off
    the root, as are all where that costs less."""
    _, k, N = units.shape
    if k >= N:
        torch.bmm(root.mT, root, out=form.covariance)
        return
    form.covariance.baddbmm_(units.mT, units, alpha=-1)
    form.write(arm, root.gather(-1, arm.unsqueeze(1).expand(-1, N, -1)).mT @ root)


def averaging_block(
    steps: Any, given: Given, world: tuple[Any, ...], written: tuple[Tensor, ...]
) -> Given | None:
    """A block of ``AveragingSteps``: ``auto`` over ``ArmMembers`` and ``SmoothMembers`` in float64, with
    ``look_again``, once origin and unit of rewards, and something of every scale, are known.

    Cost: that of the members, at the speed of the cache while P N 24 numbers fit in it.
    """
    from bandits_torch.captured import averaging_loop

    loop: Any = averaging_loop
    policy, parts = steps.policy, steps.parts
    scale, sharing, frame, noise = policy.scale, policy.sharing, policy.frame, policy.model.noise_variance
    if not all(type(part) in (ArmMembers, SmoothMembers) for part in parts) or policy.looks is None:
        return None
    if (type(scale), type(sharing), noise.dtype) != (MemberScale, FixedShare, torch.float64):
        return None
    if bool(
        (frame.unit.isnan() & scale.learn_offset.any()).any() | (scale.strength + scale.count == 0).any()
    ):
        return None
    found = {}
    for state in (scale, sharing, policy.range, policy.looks, policy):
        for name, value in state.snapshot.items():
            setattr(state, name, value.contiguous())
            found[name.lstrip("_")] = getattr(state, name)
    rates, which = policy.model.forgetting_rate.unique(return_inverse=True)
    members = sharing.log_prior, scale.strength, scale.learn_offset, policy.forgetting_rate, rates, which
    of_all = noise.expand(policy.model.batch_shape), frame.offset.squeeze(-1), frame.factor.squeeze(-1)
    numbers = policy.range.expected, scale.memory, scale.tail, scale.clip
    shared = sharing.share, sharing.behind, sharing.memory, sharing.at_once
    of_parts = tuple(
        loop.Part(
            *_arrays(part.covariances, part.alike, part.kernel, part.prior_mean, part.prior_variance),
            *_shared(part.mean, part.reduction, part.rows, part.pending),
            *_arrays(given[frames_of(k)]),
        )
        for k, part in enumerate(parts)
    )
    held = loop.Held(*_shared(*(found[name] for name in loop.Held._fields)))
    told = loop.Told(*_arrays(*members, *of_all), *numbers, *shared, policy.plausible, policy.try_all)
    asked = loop.Asked(*_arrays(*(given[name] for name in loop.Asked._fields)))
    trace = noise.new_zeros(len(loop.TRACE), *written[0].shape)
    out = _shared(*written, trace)
    loop.play(of_parts, held, told, asked, steps.turn, *world, "available" in given, *out)
    scale.state_changed()
    rows = dict(zip(loop.TRACE, trace, strict=True))
    return rows | {name: rows[name].long() for name in ("resets", "doubted")}


def _shared(*values: Tensor) -> tuple[Any, ...]:
    """Arrays that are the tensors."""
    return tuple(value.numpy() for value in values)


def _arrays(*values: Tensor) -> tuple[Any, ...]:
    """Arrays to read."""
    return tuple(np.ascontiguousarray(value.numpy()) for value in values)


def compiled_blocks(steps: CapturedSteps, device: torch.device) -> CompiledBlocks | None:
    """A launcher of compiled blocks for these steps; None for other policies, on another device, or without numba."""
    if device.type != "cpu" or find_spec("numba") is None:
        return None
    if isinstance(steps, AveragingSteps):
        return CompiledBlocks(steps, averaging_block, PENDING)
    # 256: the first pass over C, from memory, is paid once in so many
    by_index = isinstance(steps, IndexSteps) and not steps.by_mask
    return CompiledBlocks(steps, index_block, 256) if by_index else None

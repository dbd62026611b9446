"""Blocks of captured steps as loops that numba compiles: what they are given of the policy, and which can be played."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bandits_torch.captured.averaging_steps import AveragingSteps, frames_of
from bandits_torch.captured.index_steps import IndexSteps
from bandits_torch.captured.launching import Block, PlainCalls, best
from bandits_torch.captured.steps import CapturedSteps, Given
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.members import PENDING, ArmMembers, SmoothMembers
from bandits_torch.models.arms.posterior_of_counts import FRAIL, REMOVED
from bandits_torch.policies.learned_units import MemberScale
from bandits_torch.policies.sharing import FixedShare
from bandits_torch.theory.widths import Width

_UNSEEN = {  # in place of inputs that a block does not have
    "available": torch.ones(1, 1, 1, dtype=torch.bool),
    **dict.fromkeys(("kept", "gained"), torch.zeros(1, 1, 1, dtype=torch.float64)),
    "leaving_arm": torch.zeros(1, 1, dtype=torch.long),
    "leaving": torch.zeros(1, 1, dtype=torch.float64),
    "normal": torch.zeros(1, 1, 1, dtype=torch.float64),
}


class CompiledBlocks(PlainCalls):
    """Blocks that a compiled loop plays where it can, and others like those of ``PlainCalls``. ``said`` counts both."""

    def __init__(self, steps: Any) -> None:
        self._steps = steps
        self._compiled, self._plain = 0, 0  # steps played either way

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block."""
        count = len(given["noise"])
        rows = self._compiled_rows(given, count)
        if rows is None:
            self._plain += count
            return super().__call__(key, block, given)
        self._compiled += count
        return rows

    @property
    def said(self) -> str:
        """How many steps were played which way."""
        return f"{self._compiled} compiled, {self._plain} in plain calls"

    def _compiled_rows(self, given: Given, count: int) -> Given | None:
        """The rows of the block; None, with nothing changed, for one that the loop cannot play."""
        raise NotImplementedError


class CompiledIndexBlocks(CompiledBlocks):
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

        super().__init__(steps)
        self._play: Any = play

    def _compiled_rows(self, given: Given, count: int) -> Given | None:
        roots = self._roots(given, count)
        return None if roots is None else self._rows(given, count, roots)

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


class CompiledAveragingBlocks(CompiledBlocks):
    """Plays blocks of ``auto``: all steps of a replicate one after the other, so that its members stay in the cache.

    It plays ``ArmMembers`` and ``SmoothMembers`` in float64, with ``look_again``, once origin and unit of rewards are
    known. The algebra is that of ``RecursiveMembers``, whose state it changes in place; of members whose turn it is, one
    fold is a product of matrices. Arms differ from those of plain steps only where two indices agree up to rounding.

    Cost: that of ``ArmMembers`` and ``SmoothMembers``.
    """

    block_steps = PENDING

    def __init__(self, steps: AveragingSteps) -> None:
        from bandits_torch.captured import averaging_loop

        super().__init__(steps)
        self._loop: Any = averaging_loop

    def _compiled_rows(self, given: Given, count: int) -> Given | None:
        steps: AveragingSteps = self._steps
        policy, loop = steps.policy, self._loop
        scale, sharing, frame, noise = policy.scale, policy.sharing, policy.frame, policy.model.noise_variance
        known = frame.unit.isfinite().all() or not scale.learn_offset.any()
        fits = all(type(part) in (ArmMembers, SmoothMembers) for part in steps.parts) and policy.looks is not None
        rules = type(scale) is MemberScale and type(sharing) is FixedShare
        if not (fits and rules and bool(known) and noise.dtype == torch.float64):
            return None
        found = {}
        for state in (scale, frame, sharing, policy.range, policy.looks, policy):
            for name, value in cast(Any, state).snapshot.items():
                setattr(state, name, value.contiguous())
                found[name.lstrip("_")] = getattr(state, name).numpy()
        held = loop.Held(*(found[name] for name in loop.Held._fields))
        rates, which = policy.model.forgetting_rate.unique(return_inverse=True)
        of_members = sharing.log_prior, scale.strength, scale.learn_offset, policy.forgetting_rate, rates, which
        noise = noise.expand(policy.model.batch_shape)
        of_rewards = frame.offset.squeeze(-1), frame.factor.squeeze(-1)
        told = loop.Told(
            *map(_array, (*of_members, noise, *of_rewards)),
            policy.range.expected,
            *(scale.memory, scale.tail, scale.clip),
            *(sharing.share, sharing.behind, sharing.memory, sharing.at_once),
            policy.plausible,
            policy.try_all,
        )
        parts = tuple(
            loop.Part(
                *map(_array, (part.covariances, part.alike, part.kernel, part.prior_mean)),
                *(value.numpy() for value in (part.mean, part.reduction, part.rows, part.pending)),
                _array(given[frames_of(k)]),
            )
            for k, part in enumerate(steps.parts)
        )
        asked = loop.Asked(*(_array(given[name]) for name in loop.Asked._fields))
        arm = torch.zeros(count, policy.replicates, dtype=torch.long)
        reward, expected = (torch.zeros(arm.shape, dtype=torch.float64) for _ in range(2))
        trace = torch.zeros(len(loop.TRACE), *arm.shape, dtype=torch.float64)
        world = given["expected"].double(), given["noise"].double(), given.get("available", _UNSEEN["available"])
        written = (value.numpy() for value in (arm, reward, expected, trace))
        loop.play(parts, held, told, asked, steps.turn, *map(_array, world), "available" in given, *written)
        scale.state_changed()
        for k, part in enumerate(steps.parts):
            part.frame = given[frames_of(k)][-1].clone()
            part.frame[part.whose_turn(steps.turn + count)] = torch.eye(part.states).to(part.frame)
        rows = dict(zip(loop.TRACE, trace.unbind(0), strict=True))
        rows |= {name: rows[name].long() for name in ("resets", "doubted")}
        rows |= {"arm": arm, "reward": reward.to(given["noise"]), "expected": expected.to(given["expected"])}
        return rows | {"best": best(given)}


def _array(value: Tensor) -> Any:
    return np.ascontiguousarray(value.numpy())


def compiled_blocks(steps: CapturedSteps, device: torch.device) -> CompiledBlocks | None:
    """A launcher of compiled blocks for these steps; None for other policies, on another device, or without numba."""
    averaging = isinstance(steps, AveragingSteps)
    if device.type != "cpu" or not (averaging or isinstance(steps, IndexSteps) and not steps.by_mask):
        return None
    try:
        import numba  # noqa: F401
    except ImportError:
        return None
    return CompiledAveragingBlocks(steps) if averaging else CompiledIndexBlocks(cast(IndexSteps, steps))

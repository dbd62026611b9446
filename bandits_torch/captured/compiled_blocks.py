"""Blocks of captured steps as loops that numba compiles: which can be played, and what the loops are given."""

from __future__ import annotations

from collections.abc import Hashable
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
from bandits_torch.theory.widths import Width

_NONE = torch.zeros(1, 1, 1, dtype=torch.float64)
_UNSEEN = {  # in place of inputs that a block does not have
    "available": torch.ones(1, 1, 1, dtype=torch.bool),
    "leaving_arm": torch.zeros(1, 1, dtype=torch.long),
    "leaving": _NONE[0],
    **dict.fromkeys(("kept", "gained", "normal"), _NONE),
}


class CompiledBlocks(PlainCalls):
    """Plays a block replicate by replicate, all its steps one after the other, so that what the replicate's policy
    holds is read from memory once a block and not once a step. Compiled by numba, which the extra ``fast`` installs.

    Any block that the loop cannot play is played like those of ``PlainCalls``. ``said`` counts both. Arms differ from
    those of plain steps only where two indices agree up to rounding.
    """

    def __init__(self, steps: Any) -> None:
        self.steps = steps
        self._compiled, self._plain = 0, 0  # steps played either way

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block."""
        count = len(given["noise"])
        rows = self.rows(given, count)
        if rows is None:
            self._plain += count
            return super().__call__(key, block, given)
        self._compiled += count
        given_as = {"reward": given["noise"], "expected": given["expected"]}
        return rows | {name: rows[name].to(one) for name, one in given_as.items()} | {"best": best(given)}

    @property
    def said(self) -> str:
        """How many steps were played which way."""
        return f"{self._compiled} compiled, {self._plain} in plain calls"

    def rows(self, given: Given, count: int) -> Given | None:
        """The rows of a block of ``count`` steps, played; None, with nothing changed, if the loop cannot play it."""
        raise NotImplementedError


class IndexBlocks(CompiledBlocks):
    """Upper confidence bounds and Thompson sampling over an ``ArmGP`` in the covariance form, in float64, with a width
    that depends on the step and the information gain alone (``Width.root_of_gain``), with windows, restarts at
    intervals, drift and masks of arms. The algebra is that of ``CovarianceForm``, whose state it changes in place.

    Cost: O(N^2) a step and replicate, at the speed of the cache while N^2 numbers fit in it.
    """

    block_steps = 256  # the first pass over C, from memory, is paid once in so many

    def rows(self, given: Given, count: int) -> Given | None:
        """Of a block."""
        from bandits_torch.captured.compiled_loop import play

        roots, belief = self._roots(given, count), self.steps.belief
        if roots is None:
            return None
        form = cast(CovarianceForm, belief.form)
        form.fold()
        form.root = None if form.root is None else form.root.contiguous()
        root = _NONE if form.root is None else form.root
        state = form.mean, form.covariance, form.gain, form.surprise, form.removed, form.frail
        told = form.prior_covariance, belief.prior_mean, form.noise_variance.squeeze(-1)
        names = "kept", "gained", "leaving_arm", "leaving", "normal"
        moves = _arrays(*(given.get(name, _UNSEEN[name]) for name in names))
        has = tuple(name in given for name in ("kept", "available", "leaving", "normal"))
        steps, improves = self.steps, self.steps.improves
        over = (0, 0.0)  # what is improved on: neither, the probability, or the expectation; and the margin
        if improves is not None:
            over = 1 + (improves.acquisition is LogExpectedImprovement), improves.margin
        written = _to_write(count, len(form.mean), 3)
        play(
            *(_shared(*state), _arrays(*told), _world(given), _arrays(*roots), moves, root.numpy(), has),
            *(_shared(*written), *over, steps.largest.numpy(), hasattr(steps.policy, "largest")),
        )
        form.variance.copy_(form.covariance.diagonal(dim1=-2, dim2=-1))
        arm, reward, expected, width = written
        rows = {"arm": arm, "reward": reward, "expected": expected}
        if improves is not None:
            return rows
        one = cast(Width, steps.policy.width).at(given["clock"][0], steps.model)
        return rows | {"width": width if one.dim() else width[:, 0].clone()}

    def _roots(self, given: Given, count: int) -> list[Tensor] | None:
        """[A, P, Q] of the widths A + sqrt(P gain + Q) of the steps, (k, S) each; None for a block that the loop cannot
        play."""
        policy, model, form = self.steps.policy, self.steps.model, self.steps.belief.form
        fits = isinstance(form, CovarianceForm) and form.mean.dtype == torch.float64
        if fits and self.steps.improves is not None:
            return [torch.zeros(count, policy.replicates, dtype=torch.float64)] * 3
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


class AveragingBlocks(CompiledBlocks):
    """``auto`` over ``ArmMembers`` and ``SmoothMembers`` in float64, with ``look_again``, once origin and unit of
    rewards are known. The algebra is that of ``RecursiveMembers``, whose state it changes in place.

    Cost: theirs, at the speed of the cache while P N 24 numbers fit in it.
    """

    block_steps = PENDING

    def rows(self, given: Given, count: int) -> Given | None:
        """Of a block."""
        from bandits_torch.captured import averaging_loop as loop

        steps, policy = cast(AveragingSteps, self.steps), self.steps.policy
        scale, sharing, frame, noise = policy.scale, policy.sharing, policy.frame, policy.model.noise_variance
        fits = (
            all(type(part) in (ArmMembers, SmoothMembers) for part in steps.parts)
            and policy.looks is not None
        )
        fits = (
            fits
            and type(scale) is MemberScale
            and type(sharing) is FixedShare
            and noise.dtype == torch.float64
        )
        if not fits or bool((frame.unit.isnan() & scale.learn_offset.any()).any()):
            return None
        found = {}
        for state in (scale, sharing, policy.range, policy.looks, policy):
            for name, value in state.snapshot.items():
                setattr(state, name, value.contiguous())
                found[name.lstrip("_")] = getattr(state, name)
        rates, which = policy.model.forgetting_rate.unique(return_inverse=True)
        of_members = (
            sharing.log_prior,
            scale.strength,
            scale.learn_offset,
            policy.forgetting_rate,
            rates,
            which,
        )
        noise = noise.expand(policy.model.batch_shape)
        told = _arrays(*of_members, noise, frame.offset.squeeze(-1), frame.factor.squeeze(-1))
        told += policy.range.expected, scale.memory, scale.tail, scale.clip
        told += (
            sharing.share,
            sharing.behind,
            sharing.memory,
            sharing.at_once,
            policy.plausible,
            policy.try_all,
        )
        parts = []
        for k, part in enumerate(steps.parts):
            settings = part.covariances, part.alike, part.kernel, part.prior_mean, part.prior_variance
            held = part.mean, part.reduction, part.rows, part.pending
            parts.append(loop.Part(*_arrays(*settings), *_shared(*held), *_arrays(given[frames_of(k)])))
        held = loop.Held(*_shared(*(found[name] for name in loop.Held._fields)))
        asked = loop.Asked(*_arrays(*(given[name] for name in loop.Asked._fields)))
        arm, reward, expected = _to_write(count, policy.replicates, 2)
        trace = reward.new_zeros(len(loop.TRACE), *reward.shape)
        written = _shared(arm, reward, expected, trace)
        has = "available" in given
        loop.play(tuple(parts), held, loop.Told(*told), asked, steps.turn, *_world(given), has, *written)
        scale.state_changed()
        rows = dict(zip(loop.TRACE, trace, strict=True))
        rows |= {name: rows[name].long() for name in ("resets", "doubted")}
        return rows | {"arm": arm, "reward": reward, "expected": expected}


def _to_write(count: int, replicates: int, numbers: int) -> list[Tensor]:
    """Arms, and so many numbers, of each step."""
    shape = (count, replicates)
    return [torch.zeros(shape, dtype=torch.long), *torch.zeros(numbers, *shape, dtype=torch.float64)]


def _world(given: Given) -> tuple[Any, ...]:
    """Expected rewards, noise and masks."""
    available = given.get("available", _UNSEEN["available"])
    return _arrays(given["expected"].double(), given["noise"].double(), available)


def _shared(*values: Tensor) -> tuple[Any, ...]:
    """Arrays that are the tensors."""
    return tuple(value.numpy() for value in values)


def _arrays(*values: Tensor) -> tuple[Any, ...]:
    """Arrays to read."""
    return tuple(np.ascontiguousarray(value.numpy()) for value in values)


def compiled_blocks(steps: CapturedSteps, device: torch.device) -> CompiledBlocks | None:
    """A launcher of compiled blocks for these steps; None for other policies, on another device, or without numba."""
    index = isinstance(steps, IndexSteps) and not steps.by_mask
    if device.type != "cpu" or not (index or isinstance(steps, AveragingSteps)):
        return None
    try:
        import numba  # noqa: F401
    except ImportError:
        return None
    return IndexBlocks(steps) if index else AveragingBlocks(steps)

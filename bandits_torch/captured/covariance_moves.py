"""Captured moves of ``CovarianceForm``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from bandits_torch.captured.steps import Books, Given
from bandits_torch.models.arms.belief import ArmBelief
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.posterior_of_counts import FRAIL, REMOVED


class CovarianceMoves:
    """Observations come and go by the form's own algebra. What no step reads, it books once a block: the surprise, what
    was removed of it, and which removals were frail.

    The gain moves by -1/2 log of lambda / s, for an observation and the one that leaves at once: what log1p would add
    in figures is below the rounding of the sum.

    Args:
        restarts: whether members may start anew within a block; the surprise is then booked at every step.
        static: whether blocks may be replayed, which says nothing to the host.
    """

    def __init__(self, belief: ArmBelief, restarts: bool = False, static: bool = True) -> None:
        assert isinstance(belief.form, CovarianceForm)
        self.form: CovarianceForm = belief.form
        self._restarts, self._static = restarts, static
        self._least = torch.finfo(self.form.mean.dtype).eps * self.form.noise_variance

    def most(self, wanted: int) -> int:
        """As many as wanted: nothing grows."""
        return wanted

    def given(self, times: Sequence[float]) -> Given:
        """Nothing."""
        self._filled = self.form.filled
        return {}

    def key(self) -> Hashable:
        """How many rows wait; another root, made anew after a restart, lies elsewhere."""
        return self._filled, None if self.form.root is None else self.form.root.data_ptr()

    def tell(self, given: Given, j: int, arm: Tensor, residual: Tensor, books: Books) -> None:
        """Observe ``residual`` (b,) of ``arm`` (b,); the oldest observation leaves, if any is given."""
        form = self.form
        column, variance = form.told_by(arm)
        total = variance + form.noise_variance
        left = form.noise_variance / total
        if form.root is not None:
            form._turn_root(form.root, arm, 1, None, form.noise_variance)
        innovation = form.revise(arm, residual, column, total.rsqrt(), left, 1)
        if self._restarts:
            form.surprise.addcmul_(innovation, innovation)
        else:
            books["added"].append(innovation)
        if "leaving_arm" in given:
            left = left * self._take(given["leaving_arm"][j], given["leaving"][j], books)
        form.gain.add_(left.log().squeeze(-1), alpha=-0.5)

    def _take(self, arm: Tensor, residual: Tensor, books: Books) -> Tensor:
        """Remove an observation of every member; lambda / (lambda - C_jj), (b, 1)."""
        form = self.form
        column, variance = form.told_by(arm)
        rest = torch.maximum(form.noise_variance - variance, self._least)
        left = form.noise_variance / rest
        if form.root is not None:
            form._turn_root(form.root, arm, -1, None, form.noise_variance)
        books["gone"].append(form.revise(arm, residual, column, rest.rsqrt(), left, -1))
        books["rest"].append(rest)
        return left

    def close(self, books: Books) -> None:
        """Book what was added and removed."""
        form = self.form
        if books["added"]:
            form.surprise.add_(torch.stack(books["added"]).square().sum(0))
        if books["gone"]:
            gone = torch.stack(books["gone"]).square().sum(0)
            form.surprise.sub_(gone)
            lost = form.removed.add_(gone) > REMOVED * (1 + form.surprise)
            small = torch.stack(books["rest"]).amin(0) < FRAIL * form.noise_variance
            form.frail.logical_or_(small.squeeze(-1) | lost)

    def after(self, steps: int, rows: int) -> None:
        """So many rows wait now, as a replayed block does not tell; ``rows``: of a step."""
        if self._static:
            self.form.filled = (self._filled + rows * steps) % self.form.waiting

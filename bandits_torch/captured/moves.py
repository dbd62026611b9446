"""Captured moves of the two forms of ``ArmGP``: how observations come and go within a block."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from bandits_torch.captured.steps import Books, Given
from bandits_torch.models.arms.belief import ArmBelief
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.factor_form import FactorForm
from bandits_torch.models.arms.posterior_of_counts import FRAIL, REMOVED
from bandits_torch.models.arms.prior import ArmPrior

_PRIORS: WeakValueDictionary[int, ArmPrior] = WeakValueDictionary()
_FEW = 64  # spare rows that always cost little


class CovarianceMoves:
    """Observations are added and removed with the algebra of the form. What no step reads is booked once a block: the
    surprise, how much of it was removed, and which removals lost too many digits.

    The gain changes by -1/2 log of lambda / s, at once for an observation and the one that leaves. The digits that
    log1p would add are below the rounding of the sum.

    Args:
        restarts: whether members may start anew within a block; the surprise is then booked at every step.
        static: whether blocks may be replayed, which does not tell the host anything.
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
        """How many rows wait, and where the root lies: one computed after a restart lies elsewhere."""
        return self._filled, None if self.form.root is None else self.form.root.data_ptr()

    def observe(self, given: Given, j: int, arm: Tensor, residual: Tensor, books: Books) -> None:
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
        """Count the rows that wait now, since a replayed block does not; ``rows``: of a step."""
        if self._static:
            self.form.filled = (self._filled + rows * steps) % self.form.waiting


@torch.library.custom_op("bandits_torch::prior_rows", mutates_args=())
def prior_rows(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    """K between the arms (n,) and all N arms, (batch, n, N), of the prior of that number."""
    return _PRIORS[prior].rows(arm).contiguous()


@prior_rows.register_fake
def _(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    return like.new_empty(batch, len(arm), like.shape[-1])


def opaque_rows(prior: ArmPrior) -> Callable[[Tensor], Tensor]:
    """``prior.rows`` as one operation, for as long as the prior lives."""
    number, batch, like = id(prior), prior.flat_batch, prior.diagonal()
    _PRIORS[number] = prior

    def rows(arm: Tensor) -> Tensor:
        return prior_rows(arm, like, number, batch)

    return rows


class FactorMoves:
    """Observations are added and removed with ``add`` and ``remove`` of the form.

    The form grows by a row and a point for every new arm (under drift, a point for every observation). Within a segment
    its room is fixed, and every step works as if all arms were new, so that no value is read. Once a block the host
    reads how much room is left, and moves to a larger one when it is short.

    Args:
        static: whether no value may be read; else, on a CPU, the form reads values and does only what is needed.
    """

    def __init__(self, belief: ArmBelief, static: bool = True) -> None:
        assert isinstance(belief.form, FactorForm)
        self.form: FactorForm = belief.form
        self.belief, self.static = belief, static
        self._all = torch.ones_like(self.form.frail)
        self._rows_of = opaque_rows(self.form.prior)
        self.segments = 0  # how often room was made

    def most(self, wanted: int) -> int:
        """So many that there are few spare rows compared with those in use; makes room for them."""
        form, rows, members = self.form, self.form.rows, len(self.form.mean)
        if not self.static:
            return wanted
        wanted = max(1, min(wanted, max(_FEW, rows._bound) // members))
        if form._points_bound + wanted > form.size or rows._bound + wanted * members > rows.rows.shape[1]:
            self._make_room(wanted)
        return wanted

    def _make_room(self, steps: int) -> None:
        """Read what is in use; take a larger room if too little is left for so many steps."""
        form, rows, members = self.form, self.form.rows, len(self.form.mean)
        form._points_bound = int((form.point_count > 0).sum(-1).max())
        if form._points_bound + steps > form.size:
            form._pack(self.belief.now or 0.0, 2 * steps)
            self.segments += 1
        rows._bound = int(rows.used)
        if rows._bound + steps * members > rows.rows.shape[1]:
            rows.pack(steps * members, form.point_arm[form.point_count > 0])
            self.segments += 1
        form._deep_held = form._deep(self.belief.now or 0.0)

    def given(self, times: Sequence[float]) -> Given:
        """The times, by which points are identified."""
        return {"now": torch.tensor(times, dtype=torch.float64, device=self.form.mean.device)}

    def key(self) -> Hashable:
        """Which room: the next may have the same size, but lies elsewhere."""
        return self.segments, self.form.size, self.form.rows.rows.data_ptr()

    def observe(self, given: Given, j: int, arm: Tensor, residual: Tensor, books: Books) -> None:
        """Observe ``residual`` (b,) of ``arm`` (b,); the oldest observation leaves, if any is given."""
        form, now = self.form, self._now(given, j)
        if self.static:
            form.captured_rows = self._rows_of
        form.add(arm, residual, now)  # type: ignore[arg-type]
        if "leaving_arm" in given:
            gone = given["leaving_arm"][j], given["leaving"][j], given["leaving_time"][j]
            form.remove(*gone, now, self._all)  # type: ignore[arg-type]
        form.captured_rows = None

    def _now(self, given: Given, j: int) -> Tensor | float:
        if self.form.prior.time_kernel is None:
            return 0.0
        now = given["now"][j]
        return now.expand(len(self.form.mean), 1) if self.static else float(now)

    def close(self, books: Books) -> None:
        """Nothing: the form is complete after every step."""

    def after(self, steps: int, rows: int) -> None:
        """At most so many points and rows are new."""
        if self.static:
            self.form._points_bound += steps
            self.form.rows._bound += steps * len(self.form.mean)

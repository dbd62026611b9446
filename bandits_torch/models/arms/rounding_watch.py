"""When to look at the rounding errors of a belief over arms, and to rebuild the members where they have grown."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.factor_form import FactorForm
from bandits_torch.models.arms.observation_buffer import ObservationBuffer

_FIRST_PAUSE = 64  # observations before the first look


class RoundingWatch(torch.nn.Module):
    """The part of ``ArmBelief`` that looks at rounding errors, for each member apart, so that a replicate does not
    depend on its neighbours. Attributes: see ``ArmBelief``."""

    form: CovarianceForm | FactorForm
    observations: ObservationBuffer
    prior_mean: Tensor
    now: float | None
    drifts: bool
    _WATCHED = ("_learned", "_pauses", "_looks", "_next_look")

    def _watch(self, b: int) -> None:
        """Nothing learned yet, by b members."""
        self._learned, self._pauses, self._looks = 0, [_FIRST_PAUSE] * b, [_FIRST_PAUSE] * b
        self._next_look = _FIRST_PAUSE

    def _widen_watch(self, source: list[int]) -> None:
        self._pauses = [self._pauses[m] for m in source]
        self._looks = [self._looks[m] for m in source]

    def _mend(self, time: float, look: list[bool]) -> None:
        """Rebuild members whose rounding errors have grown, and look again sooner; or later, if they have not.

        ``look``: at which members. At most so often that the looks and rebuilds cost no more than the steps. Waits
        for a GPU. The covariance form under drift is left alone: it keeps no points to rebuild from, and its errors
        fade.
        """
        size = self.form.size
        shortest, longest = max(16, size // 4, self._learned // 500), max(1000, 10 * size)
        at = torch.tensor(look, device=self.prior_mean.device)
        mended: list[int] = []
        if self.form.can_mend:
            count, total, squares = self._counts()
            if isinstance(self.form, FactorForm):
                total = self._point_totals(self.form, total)
            mended = self.form.mend(count, total, squares, time, at)
        for m in (m for m, looked in enumerate(look) if looked):
            pause = self._pauses[m] // 4 if m in mended else 2 * self._pauses[m]
            self._pauses[m] = max(shortest, min(longest, pause))
            self._looks[m] = self._learned + self._pauses[m]
        self._next_look = min(self._looks)

    def _counts(self) -> tuple[Tensor, Tensor, Tensor]:
        """How often each arm was observed, the sum of its residuals, (b, N), and all their squares, (b,); float64.

        An observation of noise variance r counts lambda / r times.
        """
        arm, reward, _, valid = self.observations.held()
        residual = (reward - self.prior_mean.gather(-1, arm)).double() * valid
        zeros = torch.zeros_like(self.prior_mean, dtype=torch.float64)
        times, lam = valid.double(), self.form.noise_variance.double()
        noise = self.observations.noises(lam)
        if noise is not None:
            times = times * lam / noise.double()
        count = zeros.scatter_add(-1, arm, times)
        return count, zeros.scatter_add(-1, arm, residual * times), (residual.square() * times).sum(-1)

    def _point_totals(self, form: FactorForm, total: Tensor) -> Tensor:
        """Sums of the residuals at each point, (b, n), from what is held; ``total``: by arm. Those that the form counts
        along keep rounding errors of what was forgotten."""
        held = form.point_count > 0
        if not self.drifts:
            return total.gather(-1, form.point_arm) * held
        arm, reward, time, valid = self.observations.held()
        residual = (reward - self.prior_mean.gather(-1, arm)).double()
        same = (form.point_arm.unsqueeze(-1) == arm.unsqueeze(-2)) & valid.unsqueeze(-2)
        same &= form.point_time.unsqueeze(-1) == time.unsqueeze(-2)
        return (same * residual.unsqueeze(-2)).sum(-1) * held

    def _settle(self, frail: Tensor, emptied: Tensor) -> None:
        """Learn frail members again; those that hold nothing are as before the first observation, to the last bit.

        A GPU is not waited for: the next look will see to what is frail, and to the covariance of what is empty.
        """
        if not frail.is_cpu:
            for state in (self.form.gain, self.form.surprise, self.form.mean):
                state.masked_fill_(emptied if state.dim() == 1 else emptied.unsqueeze(-1), 0.0)
            return
        self.form.reset(self._present(), emptied)
        if bool((frail & ~emptied).any()):
            self._mend(self.now or 0.0, (frail & ~emptied).tolist())

    def _present(self) -> Tensor | float:
        """Prior variance now, in units of that over the arms."""
        return 1.0 if self.now is None else self.form.prior.present(self.now)

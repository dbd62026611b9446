"""Members whose arms share a level, which moves all arms alike and faster than their differences change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.models.arms.members import _FADED, RecursiveMembers, SmoothMembers, Time


class LevelMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each: the sum of a part for each arm and a common level:

        y = f(arm, t) + l(t) + noise,    Cov(f(i, t), f(j, t')) = K_ij (1 - eps)^{|t - t'| / 2},
        Cov(l(t), l(t')) = v (1 + r) e^{-r},    r = sqrt(3) |t - t'| / timescale,

    so the kernel is K (x) k_time + 1 1^T (x) k_level. For example, l is the rise of all rewards by day and their fall
    by night. Arms are compared by f alone.

    This is the recursion of ``RecursiveMembers`` with s = 3 numbers for each arm, (f, l, l' timescale / sqrt(3)). Their
    prior covariances are K, v 1 1^T and v 1 1^T, and an observation sees the first two: h = (1, 1, 0). F is block
    diagonal, with (1 - eps)^{gap / 2} and the F of ``SmoothMembers``.

    ``at`` and ``rewards`` refer to f + l, the reward. ``marginals`` and ``covariance_with`` compare arms: they return
    the mean of the lift f - f_control, and the covariance of f given the level at that time. Without the level f stays
    uncertain, because the level may be higher and all arms lower. This uncertainty is common to all arms and does not
    tell which arm is best; conditioning on l removes it.

    Args:
        arms, covariances, kernel, noise_variance, prior_mean, replicates: of ``ArmMembers``.
        forgetting_rate: (P,) eps in [0, 1), of the arms' parts.
        level_variance: (P,) v > 0.
        timescale: (P,) > 0.05, of the level.
        control: the arm that lifts are over.

    Cost: nine times the memory and the folds of ``ArmMembers``. Raises ValueError as ``ArmMembers`` does, and for
    numbers out of range.

    Source: Kalman's filter over fixed places with a sum of kernels (Sarkka, Solin & Hartikainen 2013, section 4); the
    dense solution of the same equations agrees with it (tests). The comparison of arms is ours.
    """

    states = 3

    def __init__(
        self,
        arms: Tensor | int,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        *,
        level_variance: Tensor,
        timescale: Tensor,
        control: int,
        prior_mean: float | Tensor = 0.0,
        replicates: int = 1,
    ) -> None:
        super().__init__(
            arms,
            covariances,
            kernel,
            noise_variance,
            forgetting_rate,
            prior_mean=prior_mean,
            replicates=replicates,
        )
        for name, value, least in (("level_variance", level_variance, 0.0), ("timescale", timescale, 0.05)):
            validation.finite_tensor(name, value)
            fits = value.shape == self.kernel.shape
            validation.shape_is(name, value, fits, f"({len(self.kernel)},), one for each member")
            validation.require(bool((value > least).all()), name, value, f"> {least}")
        inside = validation.natural("control", control) < self.num_arms
        validation.require(inside, "control", control, f"an arm, 0 to {self.num_arms - 1}")
        self.control = control
        rate = -torch.expm1(-math.sqrt(3) / timescale.double())
        held = {"level_variance": level_variance, "timescale": timescale, "_level_rate": rate}
        for name, value in (held | {"_variance_of_f": self.prior_variance}).items():
            self.register_buffer(name, value.to(self.prior_mean), persistent=False)
        self.level_variance: Tensor
        self._level_rate: Tensor
        self._variance_of_f: Tensor
        self.prior_variance = self.prior_variance + self.level_variance.unsqueeze(-1)
        self._least = torch.finfo(self._least.dtype).eps * self.prior_variance

    # -- time ------------------------------------------------------------------------------------------

    def passing(self, rate: Tensor, gap: float | Tensor) -> Tensor:  # type: ignore[override]
        """F, block diagonal."""
        level = SmoothMembers.passing(self._level_rate.reshape(-1, *[1] * (rate.dim() - 1)), gap)
        F = pad(level, (1, 0, 1, 0))
        F[..., 0, 0] = (1 - rate) ** (gap / 2)
        return F

    @staticmethod
    def far(frame: Tensor) -> Tensor:
        return torch.minimum(frame[:, 0, 0].square(), torch.linalg.det(frame[:, 1:, 1:]).abs()) < _FADED

    def _seen_at(self, time: Time | None) -> Tensor:
        return self._frame_at(time)[:, :2].sum(1)

    def _origin_of(self) -> Tensor:
        return torch.linalg.solve(
            self.frame, self.frame.new_tensor([1.0, 1.0, 0.0]).expand(len(self.frame), 3)
        )

    def _prior_column(self, row: Tensor, start: Tensor) -> Tensor:
        level = self.level_variance.unsqueeze(-1) * start[:, 1:]
        of_level = level.unsqueeze(-1).expand(*row.shape[:-1], 2, row.shape[-1])
        return torch.cat([(row * start[:, :1]).unsqueeze(-2), of_level], -2)

    # -- predicting ------------------------------------------------------------------------------------

    def rewards(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm's expected reward, including the level, at ``time`` (default: now): (S, P,
        N)."""
        return super().marginals(time)

    def level(self, time: Time | None = None) -> Tensor:
        """Posterior mean of the level at ``time`` (default: now), (S, P)."""
        return (self._frame_at(time)[:, 1, 1:] * self.mean[:, :, 1:, 0]).sum(-1)

    def marginals(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        """Mean of every arm's lift over the control, and variance of its part given the level at ``time``."""
        g = self._frame_at(time)[:, :1, 0]
        mean = self.prior_mean + g * self.mean[:, :, 0]
        shared, unsure = self._with_level(time)
        variance = self._variance_of_f - g.square() * self.reduction[:, :, 0] - shared.square() / unsure
        lift = mean - mean[..., self.control].unsqueeze(-1)
        return lift, torch.maximum(variance, torch.finfo(variance.dtype).eps * self._variance_of_f)

    def covariance_with(self, arm: Tensor, time: Time | None = None) -> Tensor:
        """Posterior covariance of every arm's part with that of one arm per replicate, ``arm`` (S,), given the level at
        ``time``: (S, P, N)."""
        g = pad(self._frame_at(time)[:, :1, 0], (0, 2))
        row = self._prior_row(arm)
        shared, unsure = self._with_level(time)
        of_arm = shared[self._run, :, arm].unsqueeze(-1)
        return row - g[:, :1] * self._learned_of(arm, row, g)[:, :, 0] - of_arm * shared / unsure

    def _with_level(self, time: Time | None) -> tuple[Tensor, Tensor]:
        """Covariance of every arm's part with the level, and the variance of the level, (S, P, N) each."""
        frame = self._frame_at(time)
        g, (u, w) = frame[:, :1, 0], frame[:, 1, 1:].unsqueeze(-1).unbind(1)
        _, fl, fd, ll, ld, dd = self.reduction.unbind(2)
        unsure = self.level_variance.unsqueeze(-1) - (u * u * ll + 2 * u * w * ld + w * w * dd)
        return -g * (u * fl + w * fd), torch.maximum(unsure, self._least)

    # -- learning --------------------------------------------------------------------------------------

    def forget_level(self, where: Tensor) -> None:
        """Return the level to its prior in the members with ``where`` (S, P) True, because it has jumped; the posterior
        of the arms' parts stays."""
        run, member = where.nonzero(as_tuple=True)
        n = self.rows.shape[-1] // 3
        self.mean[run, member, 1:] = 0.0
        self.reduction[run, member, 1:] = 0.0
        self.pending[member, run, :, 1:] = 0.0
        self.rows[member, run, n:] = 0.0
        self.rows[member, run, :, n:] = 0.0

    def prior_between(self, arms: Tensor, times: Sequence[Time]) -> Tensor:
        F = self._passing_between(times, times)
        return self._between(arms) * F[..., 0, 0] + self.level_variance[:, None, None] * F[..., 1, 1]

    def condition_mean(self, where: Tensor, arms: Tensor, times: Sequence[Time], weights: Tensor) -> None:
        F = self._passing_between(times[-1] if self.now is None else self.now, times)  # (P, K, 3, 3)
        level = self.level_variance.unsqueeze(-1) * torch.einsum("zpk,pki->zpi", weights, F[..., 1:, 1])
        of_f = self._combined(arms, weights * F[..., 0, 0])
        now = torch.cat([of_f.unsqueeze(-2), level.unsqueeze(-1).expand(-1, -1, -1, self.num_arms)], -2)
        self.mean.copy_(torch.where(where[..., None, None], torch.linalg.solve(self.frame, now), self.mean))

    def _extension(self, small: RecursiveMembers) -> Tensor:
        of_f = super()._extension(small)[:, :1]
        of_level = torch.zeros_like(of_f)
        of_level[..., 0] = 1.0  # the level is the same at every arm
        return torch.cat([of_f, of_level, of_level], 1)

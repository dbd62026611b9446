"""Gaussian processes over the same arms, with a level that moves all arms alike and faster than they differ."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arms.members import MembersOverArms, SmoothMembers


class LevelMembers(MembersOverArms):
    """P Gaussian processes over N arms, S replicates of each, that are sums of a common level and a part of each arm:

        y = f(arm, t) + l(t) + noise,    Cov(f(i, t), f(j, t')) = K_ij (1 - eps)^{|t - t'| / 2},
        Cov(l(t), l(t')) = v (1 + r) e^{-r},    r = sqrt(3) |t - t'| / timescale,

    so that the kernel is K (x) k_time + 1 1^T (x) k_level. Where all rewards rise by day and fall by night, that is l.
    Arms are compared by f alone.

    With z = (f, l, l' timescale / sqrt(3)), Cov z = P = blockdiag(K, v, v) at every time before any observation, and
    over a gap z moves by F = blockdiag((1 - eps)^{gap / 2} I, F_level), F_level that of ``SmoothMembers``. The
    posterior covariance is C = P - D, so that

        time passes:      m <- F m,              D <- F D F^T;
        arm i pays y:     c = C h, h = e_i + e_l, s = h^T c + lambda,  m += c (y - h^T m) / s,  D += c c^T / s.

    ``at`` and ``rewards`` are of f + l, what is paid. ``marginals`` and ``covariance_with`` are what arms are compared
    by: the mean of the lift f - f_control, and the covariance of f where the level of now is known. Of f alone much is
    never known: the level may be higher and all arms lower. That part is common to all arms and says nothing of which
    is best, and knowing l(now) takes it away.

    Args:
        covariances: (G, N, N), symmetric positive semi-definite: the different K.
        kernel: (P,) integers in 0, ..., G - 1, which of them each member has.
        noise_variance: (P,) lambda > 0.
        forgetting_rate: (P,) eps in [0, 1), of the arms' parts.
        level_variance: (P,) v > 0.
        timescale: (P,) > 0.05, of the level.
        control: the arm that lifts are over.
        replicates: S.

    Attributes:
        mean: (S, P, N + 2), m.
        reduction: (S, P, N + 2, N + 2), D.

    Cost: O(S P N^2) a step, in time and memory. Times must not decrease; an earlier time counts as now.

    Source: Kalman's filter over fixed places with a sum of kernels (Sarkka, Solin & Hartikainen 2013, section 4); the
    dense solution of the same equations agrees with it (tests). What arms are compared by is ours.

    Raises ValueError for shapes that do not fit and numbers out of range.
    """

    can_condition_mean = False

    mean: Tensor
    reduction: Tensor
    prior: Tensor
    level_variance: Tensor
    timescale: Tensor
    _level_rate: Tensor
    _likeness: Tensor
    _has_kernel: Tensor
    _run: Tensor

    def __init__(
        self,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        level_variance: Tensor,
        timescale: Tensor,
        *,
        control: int,
        replicates: int = 1,
    ) -> None:
        super().__init__()
        validation.finite_tensor("covariances", covariances)
        n, P = covariances.shape[-1], len(validation.tensor("kernel", kernel))
        fits = covariances.dim() == 3 and covariances.shape[1] == n and n > 0
        validation.shape_is("covariances", covariances, fits, "(G, N, N)")
        for group, covariance in enumerate(covariances):
            try:
                ArmCovarianceKernel(covariance)
            except ValueError as error:
                raise ValueError(f"covariances[{group}]: {error}") from error
        inside = bool(((kernel >= 0) & (kernel < len(covariances))).all()) and kernel.dtype == torch.long
        validation.require(inside, "kernel", kernel, f"(P,) int64 from 0 to {len(covariances) - 1}")
        settings = {
            "noise_variance": (noise_variance, noise_variance > 0, "> 0"),
            "forgetting_rate": (forgetting_rate, (forgetting_rate >= 0) & (forgetting_rate < 1), "in [0, 1)"),
            "level_variance": (level_variance, level_variance > 0, "> 0"),
            "timescale": (timescale, timescale > 0.05, "> 0.05"),
        }
        for name, (value, ok, expected) in settings.items():
            validation.finite_tensor(name, value)
            validation.shape_is(name, value, value.shape == (P,), f"({P},), one for each member")
            validation.require(bool(ok.all()), name, value, expected)
            self.register_buffer(name, value.to(covariances), persistent=False)
        self.control, self.replicates = validation.natural("control", control), replicates
        validation.require(control < n, "control", control, f"an arm, 0 to {n - 1}")
        validation.positive_integer("replicates", replicates)
        centred = covariances - covariances.mean(-1, keepdim=True)
        centred = centred - centred.mean(-2, keepdim=True)
        spread = centred.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)
        sizes = spread.unsqueeze(-1) * spread.unsqueeze(-2)
        P_0 = covariances.new_zeros(P, n + 2, n + 2)
        P_0[:, :n, :n] = covariances[kernel]
        P_0[:, n:, n:] = torch.diag_embed(level_variance.to(covariances).unsqueeze(-1).expand(-1, 2))
        held = {
            "arms": torch.arange(n).to(covariances).unsqueeze(-1),
            "prior_mean": covariances.new_zeros(P, n),
            "prior": P_0,
            "_level_rate": -torch.expm1(-math.sqrt(3) / self.timescale.double()).to(covariances),
            "_likeness": torch.where(sizes > 0, centred.square() / sizes, 0.0),
            "_has_kernel": torch.nn.functional.one_hot(kernel, len(covariances)).to(covariances),
            "_run": torch.arange(replicates),
        }
        for name, value in held.items():
            self.register_buffer(name, value.to(covariances.device), persistent=False)
        self.register_buffer("mean", covariances.new_zeros(replicates, P, n + 2))
        self.register_buffer("reduction", covariances.new_zeros(replicates, P, n + 2, n + 2))
        self.now: float | None = None

    # -- time ------------------------------------------------------------------------------------------

    def _passing(self, time: float | None) -> tuple[Tensor, Tensor]:
        """(1 - eps)^{gap / 2}, (P, 1), and F_level, (P, 2, 2), from now to ``time``."""
        gap = 0.0 if time is None or self.now is None else max(0.0, time - self.now)
        kept = (1 - self.forgetting_rate) ** (gap / 2)
        return kept.unsqueeze(-1), SmoothMembers.passing(self._level_rate, gap)

    def _advance(self, time: float | None) -> None:
        if time is None or (self.now is not None and time <= self.now):
            return
        if self.now is not None:
            kept, F = self._passing(time)
            n = self.num_arms
            self.mean[..., :n] *= kept
            self.mean[..., n:] = (F @ self.mean[..., n:, None]).squeeze(-1)
            D = self.reduction
            D[..., :n, :] *= kept.unsqueeze(-1)
            D[..., n:, :] = F @ D[..., n:, :]
            D[..., :n] *= kept.unsqueeze(-1)
            D[..., n:] = D[..., n:] @ F.mT
        self.now = time

    # -- predicting ------------------------------------------------------------------------------------

    def _moments(self, time: float | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Of f: mean and variance, (S, P, N) each; its covariance with the level, (S, P, N); of the level: mean and
        variance, (S, P, 1) each."""
        kept, F = self._passing(time)
        n, u = self.num_arms, F[:, 0]  # (P, 2)
        mean = kept * self.mean[..., :n]
        variance = (
            self.prior.diagonal(dim1=-2, dim2=-1)[:, :n]
            - kept.square() * self.reduction.diagonal(dim1=-2, dim2=-1)[..., :n]
        )
        shared = -kept * (self.reduction[..., :n, n:] @ u.unsqueeze(-1)).squeeze(-1)
        level = (self.mean[..., n:] * u).sum(-1, keepdim=True)
        known = (u.unsqueeze(-2) @ self.reduction[..., n:, n:] @ u.unsqueeze(-1)).squeeze(-1)
        return mean, variance, shared, level, self.level_variance.unsqueeze(-1) - known

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean of every arm's lift over the control, and variance of its part where the level of then is known."""
        mean, variance, shared, _, unsure = self._moments(time)
        lift = mean - mean[..., self.control].unsqueeze(-1)
        return lift, (variance - shared.square() / self._at_least(unsure)).clamp_min(0.0)

    def rewards(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm's expected reward, level and all, at ``time`` (default: now): (S, P, N)."""
        mean, variance, shared, level, unsure = self._moments(time)
        return mean + level, (variance + 2 * shared + unsure).clamp_min(0.0)

    def level(self, time: float | None = None) -> Tensor:
        """Posterior mean of the level at ``time`` (default: now), (S, P)."""
        return self._moments(time)[3].squeeze(-1)

    def at(self, arm: Tensor, time: float | None = None) -> tuple[Tensor, Tensor]:
        """``rewards`` of one arm per replicate, ``arm`` (S,): (S, P) each."""
        mean, variance = self.rewards(time)
        return mean[self._run, :, arm], self._at_least(variance[self._run, :, arm])

    def prior_at(self, arm: Tensor) -> tuple[Tensor, Tensor]:
        """``at`` before the first observation."""
        variance = self.prior.diagonal(dim1=-2, dim2=-1).T[arm] + self.level_variance
        return torch.zeros_like(variance), variance

    def covariance_with(self, arm: Tensor, time: float | None = None) -> Tensor:
        """Posterior covariance of every arm's part with that of one per replicate, ``arm`` (S,), where the level at
        ``time`` is known: (S, P, N)."""
        kept, _ = self._passing(time)
        n = self.num_arms
        row = self.prior[:, arm, :n].transpose(0, 1) - kept.square() * self.reduction[self._run, :, arm, :n]
        _, _, shared, _, unsure = self._moments(time)
        own = shared[self._run, :, arm].unsqueeze(-1)
        return row - own * shared / self._at_least(unsure)

    def likeness(self, arm: Tensor, weights: Tensor) -> Tensor:
        """See ``MembersOverArms``."""
        of_kernels = (weights @ self._has_kernel).unsqueeze(-2)
        return (of_kernels @ self._likeness[:, arm].transpose(0, 1)).squeeze(-2)

    def _at_least(self, variance: Tensor) -> Tensor:
        """A variance that rounding has not brought below that of the prior's last digits."""
        return variance.clamp_min(torch.finfo(variance.dtype).eps * float(self.level_variance.max()))

    # -- learning --------------------------------------------------------------------------------------

    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: float | None = None, where: Tensor | None = None
    ) -> None:
        """Learn one reward per member, ``reward`` that broadcasts to (S, P), of one arm per replicate, (S, 1); with
        ``where``, that broadcasts to (S, P), in the members that have True there."""
        self._advance(time)
        arm = arm.reshape(-1).expand(self.replicates)
        self.learn_now(arm, reward, self.at(arm), 0, where)

    def learn_now(
        self, arm: Tensor, reward: Tensor, at: tuple[Tensor, Tensor], turn: int, where: Tensor | None = None
    ) -> None:
        """``observe_arms`` at the present time, of arms (S,) whose moments are ``at``."""
        mean, variance = at
        scale = (variance + self.noise_variance).rsqrt()
        innovation = ((reward.to(mean) - mean) * scale).unsqueeze(-1)
        if where is not None:
            scale = scale * where
        n = self.num_arms
        prior = self.prior[:, arm].transpose(0, 1) + self.prior[:, n]
        column = prior - self.reduction[self._run, :, arm] - self.reduction[:, :, n]
        column = column * scale.unsqueeze(-1)
        self.mean.addcmul_(column, innovation)
        self.reduction.addcmul_(column.unsqueeze(-1), column.unsqueeze(-2))

    def prior_between(self, arms: Tensor, times: list[float]) -> Tensor:
        """Not defined: the mean of these members is not set anew (``can_condition_mean``)."""
        raise NotImplementedError("LevelMembers keep the origin of their first reward")

    def condition_mean(self, where: Tensor, arms: Tensor, times: list[float], weights: Tensor) -> None:
        """Not defined: the mean of these members is not set anew (``can_condition_mean``)."""
        raise NotImplementedError("LevelMembers keep the origin of their first reward")

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the prior in the members with ``where`` (S, P) True; the clock goes on."""
        if where is None:
            self.mean.zero_()
            self.reduction.zero_()
            self.now = None
            return
        self.mean[where] = 0.0
        self.reduction[where] = 0.0

    # -- state -----------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """The clock."""
        return {"now": self.now}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``."""
        self.now = state["now"]

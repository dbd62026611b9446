"""Many exact Gaussian processes over the same arms, with kernels, noises and forgetting rates of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models import arm_inputs

_PENDING = 32  # observations between two passes over the N x N matrices
_FADED = 1e-8  # a factor below which what is held is rescaled


class ArmMembers(torch.nn.Module):
    """P Gaussian processes over N arms, S replicates of each: ``ArmGP`` of batch shape (S, P) for large P.

    Member p has the covariance K_g(p), the noise variance lambda_p and exponential forgetting at rate eps_p,

        Cov(f(x, t), f(x', t')) = K(x, x') (1 - eps)^{|t - t'| / 2}.

    The posterior covariance is never stored as such. With a = prod (1 - eps)^{dt} since the last rescaling,

        C = K - a (R + W^T W),   mean = prior mean + sqrt(a) m,   diag C = diag K - a d,

    so that the passing of time changes the number a alone. Observing y at arm i, with c = C_i and s = c_i + lambda,

        m += c (y - mean_i) / (s sqrt(a)),   d += c^2 / (s a),   W gets the row c / sqrt(s a),

    and every 32 observations W^T W is added to R. So a step reads a row of R and the few rows of W, O(P N), and a pass
    over R comes once in 32 steps, as one matrix product.

    Args:
        arms: ``(N, d)`` features, carried along; or N.
        covariances: (G, N, N), symmetric positive semi-definite: the different K.
        kernel: (P,) integers in 0, ..., G - 1, which of them each member has.
        noise_variance: (P,) or (S, P) lambda > 0.
        forgetting_rate: (P,) eps in [0, 1), per unit of time.
        prior_mean: number, (N,) or (P, N).
        replicates: S.

    Cost: O(S P N) a step, and O(S P N^2) on average, at the speed of a matrix product. Memory O(S P N^2 + G N^2).
    Times must not decrease; an earlier time counts as now. Raises ValueError for shapes that do not fit, numbers out of
    range and reversed time in ``marginals``.

    Source: the recursion of ``CovarianceForm``; ``ArmGP`` of the same priors agrees with it (tests).
    """

    mean: Tensor
    reduction: Tensor
    rows: Tensor
    pending: Tensor
    fade: Tensor

    def __init__(
        self,
        arms: Tensor | int,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        replicates: int = 1,
    ) -> None:
        super().__init__()
        features = arm_inputs.features_of(arms, None, None)
        n, groups = features.shape[-2], covariances.shape[0]
        fits = covariances.dim() == 3 and covariances.shape[1:] == (n, n)
        validation.shape_is("covariances", covariances, fits, f"(G, {n}, {n})")
        count = kernel.shape[0]
        ok = kernel.dtype == torch.long and bool(((kernel >= 0) & (kernel < groups)).all())
        validation.require(ok, "kernel", kernel, f"int64 from 0 to {groups - 1}")
        validation.positive_integer("replicates", replicates)
        fits = noise_variance.shape in ((count,), (replicates, count))
        validation.shape_is("noise_variance", noise_variance, fits, f"({count},) or ({replicates}, {count})")
        fits = forgetting_rate.shape == (count,)
        validation.shape_is("forgetting_rate", forgetting_rate, fits, f"({count},), a number for each member")
        ok = bool((noise_variance.isfinite() & (noise_variance > 0)).all())
        validation.require(ok, "noise_variance", noise_variance, "finite and > 0")
        ok = bool(((forgetting_rate >= 0) & (forgetting_rate < 1)).all())
        validation.require(ok, "forgetting_rate", forgetting_rate, "in [0, 1)")
        self.replicates = replicates
        self.register_buffer("arms", features, persistent=False)
        self.register_buffer("covariances", covariances.to(features), persistent=False)
        self.register_buffer("kernel", kernel.to(features.device), persistent=False)
        self.register_buffer("noise_variance", noise_variance.to(features), persistent=False)
        self.register_buffer("forgetting_rate", forgetting_rate.to(features), persistent=False)
        mean = validation.numbers("prior_mean", prior_mean, features)
        self.register_buffer("prior_mean", mean.expand(count, n).clone(), persistent=False)
        variance = covariances.diagonal(dim1=-2, dim2=-1).to(features)[self.kernel]
        self.register_buffer("prior_variance", variance, persistent=False)
        batch = (replicates, count)
        for name, shape in (
            ("mean", (n,)),
            ("reduction", (n,)),
            ("rows", (n, n)),
            ("pending", (_PENDING, n)),
        ):
            self.register_buffer(name, features.new_zeros(*batch, *shape))
        self.register_buffer("fade", features.new_ones(count))
        self.now: float | None = None
        self._held = 0  # rows of ``pending`` in use

    # -- what it is ------------------------------------------------------------------------------------

    arms: Tensor
    covariances: Tensor
    kernel: Tensor
    noise_variance: Tensor
    forgetting_rate: Tensor
    prior_mean: Tensor
    prior_variance: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """(S, P)."""
        return torch.Size((self.replicates, len(self.kernel)))

    @property
    def num_arms(self) -> int:
        """N."""
        return self.arms.shape[-2]

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): (S, P, N) each. O(S P N)."""
        fade = self._fade_at(time)
        mean = torch.addcmul(self.prior_mean, self.mean, fade.sqrt().unsqueeze(-1))
        least = torch.finfo(mean.dtype).eps * self.prior_variance
        variance = torch.addcmul(self.prior_variance, self.reduction, fade.unsqueeze(-1), value=-1)
        return mean, torch.maximum(variance, least)

    def at(self, arm: Tensor, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one arm per replicate, ``arm`` (S,), under every member: (S, P) each."""
        fade, run = self._fade_at(time), torch.arange(self.replicates, device=arm.device)
        mean = self.prior_mean.T[arm] + self.mean[run, :, arm] * fade.sqrt()
        prior = self.prior_variance.T[arm]
        least = torch.finfo(mean.dtype).eps * prior
        return mean, torch.maximum(prior - self.reduction[run, :, arm] * fade, least)

    # -- learning --------------------------------------------------------------------------------------

    def observe_arms(self, arm: Tensor, reward: Tensor, time: float | None = None) -> None:
        """Learn one reward per member, ``reward`` that broadcasts to (S, P), of one arm per replicate, (S, 1)."""
        shape = self.batch_shape
        self._advance(time)
        arm = arm.reshape(-1).expand(self.replicates)
        run = torch.arange(self.replicates, device=arm.device)
        mean, variance = self.at(arm)
        deviation = (variance + self.noise_variance).sqrt()
        scaled = self._column(run, arm) / deviation.unsqueeze(-1)
        innovation = (reward.to(mean).expand(shape) - mean) / deviation
        self.mean.addcmul_(scaled, innovation.unsqueeze(-1))
        self.reduction.addcmul_(scaled, scaled)
        self.pending[:, :, self._held] = scaled
        self._held += 1
        if self._held == _PENDING:
            self._absorb()

    def _column(self, run: Tensor, arm: Tensor) -> Tensor:
        """The posterior covariance of everything with the arm of each replicate, over sqrt(a): (S, P, N)."""
        root = self.fade.sqrt()
        known = self.rows[run, :, arm]
        if self._held:
            pending = self.pending[:, :, : self._held]
            weights = pending[run, :, :, arm]  # (S, P, held)
            known = known + (weights.unsqueeze(-2) @ pending).squeeze(-2)
        prior = self.covariances[:, arm].movedim(0, 1)[:, self.kernel]
        return prior / root.unsqueeze(-1) - known * root.unsqueeze(-1)

    def _advance(self, time: float | None) -> None:
        fade = self._fade_at(time)
        self.fade = fade
        if bool((fade < _FADED).any()):
            self._absorb()
        if time is not None:
            self.now = time if self.now is None else max(self.now, time)

    def _fade_at(self, time: float | None) -> Tensor:
        if time is None or self.now is None or time <= self.now:
            return self.fade
        return self.fade * (1 - self.forgetting_rate) ** (time - self.now)

    def _absorb(self) -> None:
        """R <- a (R + W^T W), and so for mean and reduction; then a = 1 and W is empty."""
        S, P, n = self.replicates, len(self.kernel), self.num_arms
        if self._held:
            pending = self.pending[:, :, : self._held].reshape(S * P, self._held, n)
            self.rows.view(S * P, n, n).baddbmm_(pending.mT, pending)
        self.rows.mul_(self.fade[:, None, None])
        self.mean.mul_(self.fade.sqrt().unsqueeze(-1))
        self.reduction.mul_(self.fade.unsqueeze(-1))
        self.fade = torch.ones_like(self.fade)
        self._held = 0

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the prior in the members with ``where`` (S, P) True; the clock goes on."""
        state = (self.mean, self.reduction, self.rows, self.pending)
        if where is None:
            for tensor in state:
                tensor.zero_()
            self.fade, self.now, self._held = torch.ones_like(self.fade), None, 0
            return
        at = where.nonzero(as_tuple=True)
        for tensor in state:
            tensor[at] = 0.0

    # -- state -----------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Clock and how many rows are pending."""
        return {"now": self.now, "held": self._held}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``."""
        self.now, self._held = state["now"], state["held"]

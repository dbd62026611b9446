"""Exact posterior over N arms as a mean vector and a covariance matrix: O(N^2) a step for any horizon."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch.models.algebra.posterior_of_counts import (
    FRAIL,
    REMOVED,
    TOLERANCE,
    column_error,
    posterior_of_counts,
)
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.online_model import ResizableState, held_elsewhere


class CovarianceForm(ResizableState):
    """State of ``ArmGP``: mean m and covariance C of f(., now), for b flattened batch members.

    The mean is kept relative to the prior mean. With s = C_ii + lambda, an observation of arm i is
    m += C_i (y - m_i) / s,  C -= C_i C_i^T / s, and its removal the same with s = lambda - C_ii and
    the signs reversed. As time moves, f(., t) = a f(., now) + independent GP with covariance c K:
    m *= a,  C = a^2 C + c K, with a and c read off the time kernel.

    Beside them ``gain`` = 1/2 log det(I + K_t / lambda) and ``surprise`` = r^T (K_t + lambda I)^{-1} r of the
    residuals r, which add up from one prediction to the next; together they are the marginal likelihood.

    Memory O(b N^2) for C and O(q N^2) for K. An observation reads and writes C once.

    For joint draws a matrix F with F^T F = C is kept from the first time it is asked for (static priors; O(b N^2)
    more). With f the column of F that belongs to arm i, so that C_ii = f^T f, the update above is

        C - C_i C_i^T / s = F^T (I - f f^T / s) F,   and  I - f f^T / s = (I - f f^T / (s + sqrt(lambda s)))^2,

    so F -= f (f^T F) / (s + sqrt(lambda s)), and plus for a removal (Potter's square root filter): O(N^2) where a
    Cholesky factor of C would cost O(N^3), and F^T F is positive semi-definite whatever the rounding.

    Row i after an update is written as C_i lambda / s, a product: the difference C_ii - C_ii^2 / s would
    lose k / lambda of machine precision, and the removal of a lone observation as much again.
    """

    mean: Tensor
    covariance: Tensor
    prior_covariance: Tensor
    gain: Tensor
    surprise: Tensor
    removed: Tensor  # (b,), surprise removed since the last rebuild
    frail: Tensor  # (b,), whether a removal since then has cost too many figures
    root: Tensor | None

    def __init__(self, prior: ArmPrior, batch: int, noise_variance: Tensor) -> None:
        super().__init__()
        self.prior: ArmPrior
        held_elsewhere(self, prior=prior)
        self.register_buffer("prior_covariance", prior.matrix())
        self.register_buffer("noise_variance", noise_variance.clone(), persistent=False)
        self.noise_variance: Tensor
        copies = batch // prior.flat_batch
        self.register_buffer("covariance", self.prior_covariance.repeat(copies, 1, 1))
        self.register_buffer("prior_variance", self.covariance.diagonal(dim1=-2, dim2=-1).clone())
        self.prior_variance: Tensor
        self.register_buffer("mean", torch.zeros_like(self.prior_variance))
        self.register_buffer("gain", self.prior_covariance.new_zeros(batch))
        self.register_buffer("surprise", self.prior_covariance.new_zeros(batch))
        self.register_buffer("removed", torch.zeros_like(self.gain))
        self.register_buffer("frail", torch.zeros_like(self.gain, dtype=torch.bool))
        self.register_buffer("_member", torch.arange(batch, device=self.mean.device), persistent=False)
        self._member: Tensor
        self.register_buffer("root", None)

    @property
    def lasting(self) -> tuple[Any, ...]:
        """What no observation changes."""
        return self.prior, self.prior_covariance

    @property
    def can_forget(self) -> bool:
        """An observation that has drifted since is no rank-one change of C, so only static priors can forget."""
        return self.prior.time_kernel is None

    @property
    def variance(self) -> Tensor:
        """Diagonal of C: (b, N)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    def advance(self, kept: Tensor, gained: Tensor) -> None:
        """Let time pass: f <- kept * f + independent GP of covariance gained * K; both (b, 1) or (1, 1)."""
        self.mean.mul_(kept)
        self.covariance.mul_((kept * kept).unsqueeze(-1))
        self._by_prior(self.covariance).addcmul_(self.prior_covariance, self._by_prior(gained.unsqueeze(-1)))

    def add(
        self,
        arm: Tensor,
        residual: Tensor,
        now: float,
        where: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        """Observe y - prior mean = ``residual`` (b,) at ``arm`` (b,); ``noise``: its own variance (b, 1)."""
        (column, variance), noise = self.told_by(arm), self.noise_variance if noise is None else noise
        total = variance + noise
        scale, left = total.rsqrt(), noise / total
        ratio = variance / noise
        if where is not None:
            mask = where.unsqueeze(-1)
            scale, left, ratio = scale * mask, torch.where(mask, left, 1.0), ratio * mask
        if self.root is not None:
            self._turn_root(self.root, arm, 1, where, noise)
        innovation = self.revise(arm, residual, column, scale, left, 1)
        self.surprise.add_(innovation.square())
        self.gain.add_(torch.log1p(ratio).squeeze(-1), alpha=0.5)

    def remove(self, arm: Tensor, residual: Tensor, time: Tensor, now: float, where: Tensor) -> None:
        """Undo ``add(arm, residual)`` in the members with ``where`` True. Static priors only."""
        mask = where.unsqueeze(-1)
        column, variance = self.told_by(arm)
        eps = torch.finfo(column.dtype).eps
        rest = (self.noise_variance - variance).clamp_min(eps * self.noise_variance)
        scale, left = rest.rsqrt() * mask, torch.where(mask, self.noise_variance / rest, 1.0)
        if self.root is not None:
            self._turn_root(self.root, arm, -1, where)
        gone = self.revise(arm, residual, column, scale, left, -1).square()
        self.surprise.sub_(gone)
        lost = self.removed.add_(gone) > REMOVED * (1 + self.surprise)
        # error / rest: what is left of an arm that one observation alone told of is mostly rounding
        self.frail.logical_or_((rest < FRAIL * self.noise_variance).logical_and_(mask).squeeze(-1) | lost)
        # 1 - 1e-15 is 1 in float32, and its logarithm infinite
        ratio = -(variance / self.noise_variance).clamp_max(1 - eps) * mask
        self.gain.add_(torch.log1p(ratio).squeeze(-1), alpha=0.5)

    def told_by(self, arm: Tensor) -> tuple[Tensor, Tensor]:
        """C_i, (b, N), and C_ii, (b, 1), of each member's arm (b,)."""
        column = self.covariance[self._member, arm]
        return column, column.gather(-1, arm.unsqueeze(-1))

    def revise(
        self, arm: Tensor, residual: Tensor, column: Tensor, scale: Tensor, left: Tensor, sign: int
    ) -> Tensor:
        """Mean and covariance after an observation (sign 1) or a removal (-1), in place; the innovation, (b,).

        ``column`` (b, N) is C_i, ``scale`` 1 / sqrt(s) and ``left`` lambda / s, (b, 1) each.
        """
        unit = column * scale  # C_i / sqrt(s): C stays symmetric to the last bit
        innovation = (residual.unsqueeze(-1) - self.mean.gather(-1, arm.unsqueeze(-1))) * scale
        self.mean.addcmul_(unit, innovation, value=sign)
        self.covariance.addcmul_(unit.unsqueeze(-1), unit.unsqueeze(-2), value=-sign)
        row = column * left  # C_i - C_i C_ii / s without the difference
        self.covariance[self._member, arm] = row
        self.covariance[self._member, :, arm] = row
        return innovation.squeeze(-1)

    def _turn_root(
        self, root: Tensor, arm: Tensor, sign: int, where: Tensor | None, noise: Tensor | None = None
    ) -> None:
        """The root after an observation (sign 1) or a removal (-1) of ``arm``, in place."""
        noise = self.noise_variance if noise is None else noise
        column = root[self._member, :, arm]  # f, (b, N)
        tiny = torch.finfo(column.dtype).eps * noise
        total = (noise + sign * column.square().sum(-1, keepdim=True)).clamp_min(tiny)
        scale = sign / (total + (noise * total).sqrt())
        scale = scale if where is None else scale * where.unsqueeze(-1)
        root.addcmul_((column * scale).unsqueeze(-1), column.unsqueeze(-2) @ root, value=-1)

    def joint_root(self) -> Tensor | None:
        """A root of C, (b, N, N), times its transpose C; None under drift, where none is kept."""
        if self.prior.time_kernel is not None:
            return None
        if self.root is None:
            self.root = _root(self.covariance)
        return self.root.mT

    @property
    def size(self) -> int:
        """N."""
        return self.mean.shape[-1]

    @property
    def can_mend(self) -> bool:
        """Only static priors can be rebuilt from counts."""
        return self.prior.time_kernel is None

    def mend(self, count: Tensor, total: Tensor, squares: Tensor, now: float, look: Tensor) -> list[int]:
        """Rebuild those of the members to ``look`` at, (b,), that have drifted from what was observed; which?

        Looks at the mean and at the column of the arm pulled most: O(N^2), and O(N^3) for a member that is rebuilt.
        Computes in float64. Waits for the device.

        Args:
            count: (b, N), how often each arm was observed.
            total, squares: (b, N) and (b,), sums of the residuals and of their squares. All float64.
        """
        noise, K = self.noise_variance.double(), self.prior_covariance.double()
        arm = count.argmax(-1)
        kernel = torch.arange(len(arm), device=arm.device) % K.shape[0]
        drifted = ((self._drifted(count, total, arm, K) | self.frail) & look).nonzero().flatten().tolist()
        self.frail &= ~look
        self.removed[drifted] = 0.0
        for m in drifted:
            exact = posterior_of_counts(K[kernel[m]], count[m], total[m], noise[m])
            self.mean[m], self.covariance[m] = exact.among()
            self.gain[m] = exact.gain
            self.surprise[m] = exact.surprise(count[m], total[m], squares[m], noise[m])
            if self.root is not None:
                self.root[m] = _root(self.covariance[m])
        return drifted

    def _drifted(self, count: Tensor, total: Tensor, arm: Tensor, K: Tensor) -> Tensor:
        """Which members are off by more than the tolerance: (b,)."""
        C, noise = self.covariance.double(), self.noise_variance.double()
        own = K[self._member % K.shape[0], arm]
        K = K[self._member % K.shape[0]] if K.shape[0] > 1 else K
        error = column_error(own, K, C[self._member, arm], C, count / noise).abs().amax(-1)
        off = ((C @ (total / noise).unsqueeze(-1)).squeeze(-1) - self.mean).abs().amax(-1)
        scale, tolerance = self.prior_variance.amax(-1).double(), TOLERANCE[self.mean.dtype]
        return ~(
            (error <= tolerance * scale) & (off <= tolerance * (scale.sqrt() + self.mean.abs().amax(-1)))
        )

    def reset(self, scale: Tensor | float, where: Tensor | None = None) -> None:
        """Back to the prior, whose covariance is now ``scale`` (a number, (b, 1) or (1, 1)) times K."""
        scale = torch.as_tensor(scale, dtype=self.mean.dtype, device=self.mean.device).reshape(-1, 1, 1)
        prior = self._by_prior(scale) * self.prior_covariance
        covariance = self._by_prior(self.covariance)
        if where is None:
            covariance.copy_(prior)
            self.mean.zero_()
            self.gain.zero_()
            self.surprise.zero_()
            self.removed.zero_()
            self.frail.zero_()
            self.root = None
            return
        covariance.copy_(torch.where(self._by_prior(where[:, None, None]), prior, covariance))
        if self.root is not None:  # of the members reset alone, so that none depends on its neighbours
            self.root = torch.where(where[:, None, None], _root(self.covariance), self.root)
        self.mean.masked_fill_(where.unsqueeze(-1), 0.0)
        self.gain.masked_fill_(where, 0.0)
        self.surprise.masked_fill_(where, 0.0)
        self.removed.masked_fill_(where, 0.0)
        self.frail.masked_fill_(where, False)

    def widen(self, source: Tensor) -> None:
        """Become a batch of len(source) members, member m a copy of what member source[m] was."""
        old_q, new_q = self.prior_covariance.shape[0], self.prior.flat_batch
        for name, held in list(self.named_buffers(recurse=False)):
            if name != "prior_covariance":
                setattr(self, name, held[source])
        if new_q != old_q:
            self.prior_covariance = self.prior_covariance[source[:new_q] % old_q]
        self._member = torch.arange(len(source), device=source.device)

    def among(self, arm: Tensor, now: float) -> Tensor:
        """C among the points of each member: arm (T, b, n) -> (T, b, n, n)."""
        member = self._member[:, None, None]
        return self.covariance[member, arm.unsqueeze(-1), arm.unsqueeze(-2)]

    def full(self, now: float) -> Tensor:
        """C over all arms: (b, N, N)."""
        return self.covariance

    def _by_prior(self, value: Tensor) -> Tensor:
        """(b, ...) as (b/q, q, ...), so that it broadcasts against K (q, N, N); (1, ...) as (1, 1, ...)."""
        q = self.prior_covariance.shape[0] if value.shape[0] > 1 else 1
        return value.unflatten(0, (-1, q))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        incoming = state_dict.get(prefix + "root")
        self.root = None if incoming is None else torch.empty_like(self.covariance)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _root(covariance: Tensor) -> Tensor:
    """F with F^T F = C for each matrix C; eigenvalues that rounding made negative count as 0."""
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0.0).sqrt().unsqueeze(-1) * vectors.mT

"""Weighted kernel regression over a finite set of arms: recent observations have larger weights (WGP-UCB)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from botorch.posteriors import GPyTorchPosterior
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.arm_model import StaticArmModel
from bandits_torch.models.online_model import joint_posterior

MOST = 0.75  # share of arms pulled above which the regression includes all arms, which needs no copies


class _Belief(NamedTuple):
    """The posterior, see ``WeightedGP``. Attributes: the mean minus the prior mean, (*batch, N); and for n arms, which
    include all pulled ones, ``half`` L^{-1} R K and ``rows`` R C = L^{-T} L^{-1} R K, (*batch, n, N) each, and ``lost``
    1 - w~ / w, (*batch, n, 1)."""

    mean: Tensor
    half: Tensor
    rows: Tensor
    lost: Tensor

    def taken(self, half: Tensor, rows: Tensor) -> Tensor:
        """The reduction of prior covariances by the observations, among the arms of these columns."""
        return half.mT @ half + (rows * self.lost).mT @ rows


class WeightedGP(StaticArmModel):
    """Regression with weights w_s = discount^{t - s}, and the sandwich variance of WGP-UCB (Deng et al. 2022).

    With V = sum_s w_s phi phi^T + lambda I and V~ = sum_s w_s^2 phi phi^T + lambda I,

        mean(x) = phi^T V^{-1} sum_s w_s y_s phi_s,    variance(x) = lambda phi^T V^{-1} V~ V^{-1} phi,
        information_gain = 1/2 log det(V~ / lambda),

    so that Deng's bound, (sqrt(lambda) B + R sqrt(2 ln(1/delta) + log det(V~/lambda))) times
    sqrt(phi^T V^{-1} V~ V^{-1} phi), is ``IGPWidth`` (theory form, realised gain) times the standard deviation.
    It holds at each step with probability 1 - delta. All weights change at every step, so no martingale covers all
    steps at once: in a long run the bound fails at some step (tests/claims). For T steps at once, use delta / T. At
    discount 1 this is the exact GP, and the bound holds at all steps.

    Sums of weights are stored per arm and shrink by ``discount`` (and its square) at each step, so lambda is constant
    and nothing overflows, unlike the weights discount^{-s} of the paper with growing lambda.

    Inputs are indices of arms, X[..., 0] = 0, ..., N - 1.

    Args:
        arms, kernel, noise_variance, batch_shape: as for ``ArmGP``, but the kernel without a time part; lambda is the
            regulariser, at least 1e-10 of the largest prior variance (1e-5 in float32).
        prior_mean: prior mean reward, a number, (N,) or (*batch_shape, N); it is subtracted from rewards.
        discount: weight per step, in (0, 1].

    Memory O(N^2). An observation costs O(N), the next prediction O(n^2 N) if n arms were pulled, whatever t; O(N^3) if
    most were, and on a GPU, where counting them would wait. The model cannot ``forget``.
    With C the weighted posterior covariance, variance = C - C diag(w - w~) C / lambda, where w sums the weights of each
    arm and w~ their squares. With R = (diag(w) / lambda)^{1/2} and L L^T = I + R K R, R C = L^{-T} L^{-1} R K.
    """

    def __init__(
        self,
        arms: Tensor | int,
        kernel: Kernel | Tensor,
        noise_variance: float | Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        discount: float = 0.999,
        batch_shape: tuple[int, ...] | torch.Size = (),
    ) -> None:
        super().__init__()
        ok = validation.is_number(discount) and 0 < discount <= 1
        validation.require(ok, "discount", discount, "a number in (0, 1]")
        self.discount = float(discount)
        prior = ArmGP(arms, kernel, noise_variance, prior_mean=prior_mean, batch_shape=batch_shape)
        validation.require(
            not prior.drifts, "kernel", kernel, "without a time part: the weights discount old rewards"
        )
        self.batch_shape, self.num_arms = prior.batch_shape, prior.num_arms
        self.register_buffer("arms", prior.arms)
        self.register_buffer("noise_variance", prior.noise_variance)
        K = prior.prior.matrix()
        self.register_buffer("prior_covariance", K.reshape(*prior.prior.batch_shape, *K.shape[-2:]))
        self.prior_covariance: Tensor
        self.register_buffer("prior_mean", prior.marginals()[0].clone())  # *batch x N
        self.prior_mean: Tensor
        zeros = K.new_zeros(*self.batch_shape, self.num_arms)
        for name in ("weight", "square", "reward"):  # sums of w_s, w_s^2 and w_s y_s for each arm
            self.register_buffer(name, zeros.clone())
        self.weight: Tensor
        self.square: Tensor
        self.reward: Tensor
        self.register_buffer("count", zeros[..., 0].long())
        self.count: Tensor
        self._belief: _Belief | None = None
        self._gain: Tensor | None = None
        self.eval()

    # -- properties ------------------------------------------------------------------------------------

    @property
    def num_observations(self) -> Tensor:
        """The number of observations since the last ``reset``, ``batch_shape``, whatever their weights."""
        return self.count.clone()

    @property
    def tells_past(self) -> bool:  # type: ignore[override]
        """True only for ``discount`` 1: otherwise the posterior is for the present step."""
        return self.discount == 1

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(V~ / lambda), ``batch_shape``; O(n^3) at the first call after an observation."""
        if self._gain is None:
            factor = self._factor(self.square)[0]
            self._gain = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self._gain.clone()

    # -- learning --------------------------------------------------------------------------------------

    def _index(self, X: Tensor) -> Tensor:
        """Arms of inputs ``... x q x 1``. Values are checked on a CPU only, to avoid waiting for a GPU."""
        validation.tensor("X", X)
        if X.is_cpu:
            return inputs.split(X, self.num_arms, False)[0]
        validation.shape_is("X", X, X.dim() >= 2 and X.shape[-1] == 1, "batch_shape x q x 1")
        return X.squeeze(-1).long()

    def _learn(self, arm: Tensor, reward: Tensor, where: Tensor | None) -> None:
        shape = (*self.batch_shape, 1)
        arm = arm.reshape(shape)
        reward = reward.reshape(shape).to(self.weight) - self.prior_mean.gather(-1, arm)
        where = None if where is None else where.reshape(shape)
        ones = torch.ones_like(reward)
        changed = (
            ("weight", self.discount, ones),
            ("square", self.discount**2, ones),
            ("reward", self.discount, reward),
        )
        for name, kept, added in changed:
            old = getattr(self, name)
            new = (old * kept).scatter_add(-1, arm, added)
            setattr(self, name, new if where is None else torch.where(where, new, old))
        self.count = self.count + (1 if where is None else where.squeeze(-1))
        self._belief = self._gain = None

    @property
    def lasting(self) -> tuple[Any, ...]:
        """Every tensor: learning replaces them and changes none."""
        return self._belief, self._gain, *self.buffers()

    def expect_arms(self, arm: Tensor, time: float) -> None:
        """``expect`` of one pull per member: an observation with weight 1 that does not discount the others."""
        gain, mean = self.information_gain, self._now().mean
        arm = self._flat_arm(arm).reshape(*self.batch_shape, 1)
        one = self.weight.new_ones(*self.batch_shape, 1)
        for name, added in (("weight", one), ("square", one), ("reward", mean.gather(-1, arm))):
            setattr(self, name, getattr(self, name).scatter_add(-1, arm, added))
        self._belief, self._gain = None, gain

    def reset(self, where: Tensor | None = None) -> None:
        mask = self._mask(where)
        every = torch.ones_like(self.count, dtype=torch.bool)
        where = every if mask is None else mask.reshape(self.batch_shape)
        for name in ("weight", "square", "reward"):
            setattr(self, name, torch.where(where.unsqueeze(-1), 0.0, getattr(self, name)))
        self.count = torch.where(where, 0, self.count)
        self._belief = self._gain = None

    # -- predicting ------------------------------------------------------------------------------------

    def _now(self) -> _Belief:
        if self._belief is None:
            factor, rows, arm = self._factor(self.weight)
            half = torch.linalg.solve_triangular(factor, rows, upper=False)
            rows = torch.linalg.solve_triangular(factor.mT, half, upper=True)
            weight, square, reward = (_at(sums, arm) for sums in (self.weight, self.square, self.reward))
            held = weight > 0  # arms without weight have rows of zeros
            # The sums underflow together, so their quotient remains of the size of a reward.
            root = (weight / self.noise_variance.unsqueeze(-1)).sqrt()
            share = torch.where(held, reward / weight * root, 0.0)
            mean = (share.unsqueeze(-2) @ rows).squeeze(-2)
            lost = torch.where(held, 1 - square / weight, 0.0).unsqueeze(-1)
            self._belief = _Belief(mean, half, rows, lost)
        return self._belief

    def _factor(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """For n arms that include all pulled ones: the Cholesky factor of I + R K R, R = (diag(weight) / lambda)^{1/2};
        R K, ``batch_shape x n x N``; and their indices, ``batch_shape x n``, or None for all arms in order.

        Replicates with fewer pulled arms have others with weight 0.
        """
        N = self.num_arms
        n = max(1, int((weight > 0).sum(-1).max())) if weight.is_cpu else N
        arm = weight.topk(n, -1).indices if n <= MOST * N else None
        root = (_at(weight, arm) / self.noise_variance.unsqueeze(-1)).sqrt().unsqueeze(-1)
        if arm is None:
            rows = among = root * self.prior_covariance
        else:
            K = self.prior_covariance.expand(*arm.shape[:-1], N, N)
            rows = root * K.gather(-2, arm.unsqueeze(-1).expand(*arm.shape, N))
            among = rows.gather(-1, arm.unsqueeze(-2).expand(*rows.shape[:-1], -1))
        among = among * root.mT
        among.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return torch.linalg.cholesky(among), rows, arm

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean and sandwich variance of every arm, ``batch_shape x N`` each; ``time`` is ignored. O(n N)."""
        held = self._now()
        taken = held.half.square().sum(-2) + (held.rows.square() * held.lost).sum(-2)
        variance = self.prior_covariance.diagonal(dim1=-2, dim2=-1) - taken  # may be below 0 by rounding
        return held.mean + self.prior_mean, variance.clamp_min(0.0)

    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean ``batch_shape x N`` and sandwich covariance ``batch_shape x N x N`` of all arms. O(n N^2)."""
        held = self._now()
        covariance = self.prior_covariance - held.taken(held.half, held.rows)
        return held.mean + self.prior_mean, covariance

    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
        """See ``OnlineModel``: mean and sandwich covariance at X, ``batch x q x 1`` indices."""
        index, held = self._index(X), self._now()
        batch, q = inputs.points_of(X, self.batch_shape), X.shape[-2]
        arm = index.expand(*batch, q)
        if q == 1:
            mean, variance = (part.expand(*batch, -1).gather(-1, arm) for part in self.marginals())
            return joint_posterior(mean, variance.unsqueeze(-1), noise)
        at = (held.mean + self.prior_mean).expand(*batch, -1).gather(-1, arm)
        among = arm.unsqueeze(-2).expand(*batch, held.rows.shape[-2], q)
        half, rows = (part.expand(*batch, -1, -1).gather(-1, among) for part in (held.half, held.rows))
        pair = (arm.unsqueeze(-1) * self.num_arms + arm.unsqueeze(-2)).flatten(-2)
        prior = self.prior_covariance.flatten(-2).expand(*batch, -1).gather(-1, pair).unflatten(-1, (q, q))
        return joint_posterior(at, prior - held.taken(half, rows), noise)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._belief = self._gain = None
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._belief = self._gain = None
        super()._load_from_state_dict(*args)

    def grow_from(self, small: WeightedGP) -> None:  # type: ignore[override]
        """Take the observations of ``small``, a model over the first of these arms."""
        for name in ("weight", "square", "reward"):
            getattr(self, name)[..., : small.num_arms] = getattr(small, name)
        self.count = small.count.clone()
        self._belief = self._gain = None

    def widen(self, batch_shape: torch.Size) -> None:
        super().widen(batch_shape)
        self._belief = self._gain = None
        for name in ("weight", "square", "reward", "prior_mean"):
            setattr(self, name, getattr(self, name).expand(*batch_shape, self.num_arms).clone())
        self.count = self.count.expand(batch_shape).clone()


def _at(values: Tensor, arm: Tensor | None) -> Tensor:
    """Entries of ``values``, ``* x N``, for the arms ``batch_shape x n``; None: for all arms."""
    return values if arm is None else values.gather(-1, arm)

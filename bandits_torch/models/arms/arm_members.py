"""Many exact Gaussian processes over the same arms, with kernels, noises and forgetting rates of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.arms.recursive_members import RecursiveMembers

_FADED = 1e-8  # a factor below which what is held is rescaled


class ArmMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each: ``ArmGP`` of batch shape (S, P) for large P.

    Member p has the covariance K_g(p), the noise variance lambda_p and exponential forgetting at rate eps_p,

        Cov(f(x, t), f(x', t')) = K(x, x') (1 - eps)^{|t - t'| / 2}.

    The posterior covariance is never stored as such. With a = prod (1 - eps)^{dt} since the last rescaling,

        C = K - a (R + W^T W),   mean = prior mean + sqrt(a) m,   diag C = diag K - a d,

    so that the passing of time changes the number a alone. Observing y at arm i, with c = C_i and s = c_i + lambda,

        m += c (y - mean_i) / (s sqrt(a)),   d += c^2 / (s a),   W gets the row c / sqrt(s a),

    and W^T W is added to R every 24 observations. So a step reads a row of R and the rows of W, O(P N), and passes over
    R for 1 / 24 of the members, as one matrix product.

    Args:
        arms: ``(N, d)`` features, carried along; or N.
        covariances: (G, N, N), symmetric positive semi-definite: the different K.
        kernel: (P,) integers in 0, ..., G - 1, which of them each member has.
        noise_variance: (P,) or (S, P) lambda > 0.
        forgetting_rate: (P,) eps in [0, 1), per unit of time.
        prior_mean: number, (N,) or (P, N).
        replicates: S.

    Cost: O(S P N) a step, and O(S P N^2) at the speed of a matrix product. Memory O(S P N^2 + G N^2).
    Times must not decrease; an earlier time counts as now. Raises ValueError for shapes that do not fit, numbers out of
    range and reversed time in ``marginals``.

    Source: the recursion of ``CovarianceForm``; ``ArmGP`` of the same priors agrees with it (tests).
    """

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): (S, P, N) each. O(S P N)."""
        fade = self._fade_at(time)
        mean = torch.addcmul(self.prior_mean, self.mean, fade.sqrt().unsqueeze(-1))
        variance = torch.addcmul(self.prior_variance, self.reduction, fade.unsqueeze(-1), value=-1)
        return mean, torch.maximum(variance, self._least, out=variance)

    def at(self, arm: Tensor, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one arm per replicate, ``arm`` (S,), under every member: (S, P) each."""
        fade, (mean, variance) = self._fade_at(time), self.prior_at(arm)
        mean = mean + self.mean[self._run, :, arm] * fade.sqrt()
        return mean, torch.maximum(variance - self.reduction[self._run, :, arm] * fade, self._least.T[arm])

    def covariance_with(self, arm: Tensor, time: float | None = None) -> Tensor:
        """Posterior covariance of every arm with one per replicate, ``arm`` (S,), at ``time``: (S, P, N). O(S P N)."""
        fade = self._fade_at(time).clamp_min(_FADED**4)  # of less nothing is left, and 0 would divide 0
        return self._over_arms(self._column(arm, fade)) * fade.sqrt().unsqueeze(-1)

    def prior_between(self, arms: Tensor, times: list[float]) -> Tensor:
        """Prior covariances between observations of ``arms`` (S, K) at ``times``: (S, P, K, K)."""
        return self._between(arms) * self._fading(times, times)

    def condition_mean(self, where: Tensor, arms: Tensor, times: list[float], weights: Tensor) -> None:
        """Set the mean to that of a posterior with ``weights`` (S, P, K) on the prior covariances with observations of
        ``arms`` (S, K) at ``times``, in the members with ``where`` (S, P) True. The covariance stays."""
        now = times[-1] if self.now is None else self.now
        faded = weights * self._fading(now, times)
        mean = self._combined(arms, faded) / self.fade.sqrt().unsqueeze(-1)
        self.mean.copy_(torch.where(where.unsqueeze(-1), mean, self.mean))

    def _fading(self, time: float | list[float], times: list[float]) -> Tensor:
        """(1 - eps)^{|t - t'| / 2}, (P, ..., K)."""
        gap = self._gap(time, times)
        return (1 - self.forgetting_rate.reshape(-1, *[1] * gap.dim())) ** (gap / 2)

    def _column(self, arm: Tensor, fade: Tensor) -> Tensor:
        """C_i / sqrt(a), a = ``fade``: (S, P, N)."""
        root = fade.sqrt().unsqueeze(-1)
        weights = self.pending[:, self._run, :, arm].transpose(0, 1).unsqueeze(-2)  # (P, S, 1, 24)
        known = self._counted(self.rows[:, self._run, arm])
        known.flatten(0, 1).unsqueeze(1).baddbmm_(weights.flatten(0, 1), self.pending.flatten(0, 1))
        prior = self.covariances[self.kernel, arm.unsqueeze(-1)]
        return prior.div_(root).sub_(known.transpose(0, 1).mul_(root))

    def _counted(self, held: Tensor) -> Tensor:
        """What members hold in R, (P, S, n), where it still counts; in place."""
        return held if self.counting is None else held.mul_(self.counting.unsqueeze(-1))

    def _learn(self, scaled: Tensor, innovation: Tensor) -> None:
        over_arms = self._over_arms(scaled)
        self.mean.addcmul_(over_arms, innovation.unsqueeze(-1))
        self.reduction.addcmul_(over_arms, over_arms)

    def _over_arms(self, column: Tensor) -> Tensor:
        """What a column stands for at every arm, (S, P, N)."""
        return column

    # -- the frame: a factor ---------------------------------------------------------------------------

    @staticmethod
    def whole(like: Tensor) -> Tensor:
        """1."""
        return like.new_ones(())

    @staticmethod
    def passing(rate: Tensor, gap: float | Tensor) -> Tensor:
        """(1 - eps)^gap, (..., P)."""
        return (1 - rate) ** gap

    @staticmethod
    def moved(fade: Tensor, passing: Tensor) -> Tensor:
        """Their product."""
        return fade * passing

    @staticmethod
    def far(fade: Tensor) -> Tensor:
        """Where less than 1e-8 is left, (P,)."""
        return fade < _FADED

    def _bring_back(self, members: slice) -> None:
        fade, rows, pending = self.fade[members], self.rows[members], self.pending[members].flatten(0, 1)
        rows.flatten(0, 1).baddbmm_(pending.mT, pending)
        rows.mul_(fade[:, None, None, None])
        self.mean[:, members].mul_(fade.sqrt().unsqueeze(-1))
        self.reduction[:, members].mul_(fade.unsqueeze(-1))

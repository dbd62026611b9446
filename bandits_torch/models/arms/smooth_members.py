"""Many exact Gaussian processes over the same arms that change smoothly: what rises goes on rising for a while."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.recursive_members import RecursiveMembers

_FADED = 1e-8  # determinant of a frame below which what is held is brought back


class SmoothMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each, whose rewards drift smoothly.

    They are ``ArmMembers`` with

        Cov(f(x, t), f(x', t')) = K(x, x') (1 + r) e^{-r},    r = c |t - t'|,  c = sqrt(3) / timescale,

    the Matern kernel of smoothness 3/2 over time. With g = f' / c each arm's (f, g) is a Markov process that is K at
    every time in both parts and moves over a gap by

        F = e^{-r} [[1 + r, r], [-r, 1 - r]],

    so the posterior covariance of all f and g is K (x) I - G (R + W^T W) G^T, the means are prior mean + G m, with G
    the product of the F since what is held was last brought back: the passing of time changes the 2 x 2 matrix G alone.
    Observing y at arm i, with c the covariances with f_i and s = Var(f_i) + lambda,

        m += G^{-1} c (y - mean_i) / s,    W gets the row G^{-1} c / sqrt(s),

    and R <- G (R + W^T W) G^T, G = I for 1 / 24 of the members at every step.

    Args:
        timescale: (P,) > 0, length-scale of the kernel over time.
        arms, covariances, kernel, noise_variance, prior_mean, replicates: of ``ArmMembers``.

    ``forgetting_rate`` is 1 - e^{-c}, that of the exponential forgetting whose kernel has the same integral.

    Cost: O(S P N) a step, and O(S P N^2) for 1 / 24 of the members. Memory O(4 S P N^2 + G N^2).
    Raises ValueError as ``ArmMembers`` does.

    Source: Matern 3/2 as a state of two numbers (Hartikainen & Sarkka 2010, section 4.1; here in units in which its
    stationary covariance is I), arms as in Sarkka, Solin & Hartikainen 2013; the frame is ours. ``ArmGP`` of the same
    priors agrees with it (tests).
    """

    _held_of_an_arm = (2,), (3,), (4,)  # of f and g; of ff, fg and gg; of ff, fg, gf and gg

    def __init__(
        self,
        arms: Tensor | int,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        timescale: Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        replicates: int = 1,
    ) -> None:
        fits = validation.tensor("timescale", timescale).dim() == 1
        one_each = validation.tensor("kernel", kernel).dim() != 1 or len(kernel) == timescale.numel()
        validation.shape_is("timescale", timescale, fits and one_each, "(P,), one for each member")
        rate = -torch.expm1(-math.sqrt(3) / timescale.double())
        ok = bool(((rate > 0) & (rate < 1) & (timescale > 0)).all())
        validation.require(ok, "timescale", timescale, "finite numbers > 0.05")
        super().__init__(
            arms, covariances, kernel, noise_variance, rate, prior_mean=prior_mean, replicates=replicates
        )

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): (S, P, N) each. O(S P N)."""
        fade = self._fade_at(time)
        told = (_congruence(fade)[:, :1] @ self.reduction).squeeze(-2)
        mean = self.prior_mean + (fade[:, :1] @ self.mean).squeeze(-2)
        return mean, torch.maximum(self.prior_variance - told, self._least)

    def at(self, arm: Tensor, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one arm per replicate, ``arm`` (S,), under every member: (S, P) each."""
        fade, (mean, variance) = self._fade_at(time), self.prior_at(arm)
        told = (self.reduction[self._run, ..., arm] * _congruence(fade)[:, 0]).sum(-1)
        mean = mean + (self.mean[self._run, ..., arm] * fade[:, 0]).sum(-1)
        return mean, torch.maximum(variance - told, self._least.T[arm])

    def covariance_with(self, arm: Tensor, time: float | None = None) -> Tensor:
        """Posterior covariance of every arm with one per replicate, ``arm`` (S,), at ``time``: (S, P, N). O(S P N)."""
        fade = self._fade_at(time)
        prior = self.covariances[self.kernel, arm.unsqueeze(-1)]
        return prior - (fade[:, :1] @ self._known(arm, fade)).squeeze(-2)

    def prior_between(self, arms: Tensor, times: list[float]) -> Tensor:
        """Prior covariances between observations of ``arms`` (S, K) at ``times``: (S, P, K, K)."""
        moves = self._over_time(times, times)
        return self._between(arms) * moves[..., 0, 0]

    def condition_mean(self, where: Tensor, arms: Tensor, times: list[float], weights: Tensor) -> None:
        """Set the mean to that of a posterior with ``weights`` (S, P, K) on the prior covariances with observations of
        ``arms`` (S, K) at ``times``, in the members with ``where`` (S, P) True. The covariance stays."""
        now = times[-1] if self.now is None else self.now
        moves = self._over_time(now, times)  # (P, K, 2, 2)
        both = torch.stack([self._combined(arms, weights * moves[..., i, 0]) for i in (0, 1)], -2)
        mean = torch.linalg.solve(self.fade, both)
        self.mean.copy_(torch.where(where[..., None, None], mean, self.mean))

    def _over_time(self, time: float | list[float], times: list[float]) -> Tensor:
        """F of |t - t'|, (P, ..., K, 2, 2)."""
        gap = self._gap(time, times)
        return self.passing(self.forgetting_rate.reshape(-1, *[1] * gap.dim()), gap)

    def _known(self, arm: Tensor, fade: Tensor) -> Tensor:
        """(R + W^T W) G^T of f at each replicate's arm, (S, P, 2, N)."""
        g = fade[:, 0]  # (P, 2)
        of_arm = self.rows.unflatten(2, (2, 2))[:, self._run, :, :, arm]  # (S, P, 2, 2, N)
        known = torch.einsum("pi,spijn->spjn", g, of_arm)
        if self.counting is not None:
            known = known * self.counting.mT[..., None, None]
        weights = torch.einsum("pi,spki->psk", g, self.pending[:, self._run, :, :, arm]).unsqueeze(-2)
        pending = (weights @ self.pending.flatten(-2)).squeeze(-2)  # (P, S, 2 N)
        return known + pending.unflatten(-1, (2, -1)).transpose(0, 1)

    def _column(self, arm: Tensor, fade: Tensor) -> Tensor:
        """G^{-1} c, (S, P, 2, N)."""
        prior = self.covariances[self.kernel, arm.unsqueeze(-1)]
        first = torch.stack([fade[:, 1, 1], -fade[:, 1, 0]], -1)  # of G^{-1}, over its determinant
        of_f = first / _determinant(fade).unsqueeze(-1)
        return of_f.unsqueeze(-1) * prior.unsqueeze(-2) - self._known(arm, fade)

    def _learn(self, scaled: Tensor, innovation: Tensor) -> None:
        f, g = scaled.unbind(-2)
        self.mean.addcmul_(scaled, innovation[..., None, None])
        self.reduction.add_(torch.stack([f * f, f * g, g * g], -2))

    # -- the frame: G ----------------------------------------------------------------------------------

    @staticmethod
    def whole(like: Tensor) -> Tensor:
        """I."""
        return torch.eye(2, dtype=like.dtype, device=like.device)

    @staticmethod
    def passing(rate: Tensor, gap: float | Tensor) -> Tensor:
        """F, (..., P, 2, 2)."""
        r = -torch.log1p(-rate) * gap
        left = (-r).exp()
        # After a pause without end nothing is left: left = 0, and r times it must be 0 and not NaN.
        r = r.clamp_max(1e3)
        F = torch.stack([(1 + r) * left, r * left, -r * left, (1 - r) * left], -1)
        return F.unflatten(-1, (2, 2))

    @staticmethod
    def moved(fade: Tensor, passing: Tensor) -> Tensor:
        """F G."""
        return passing @ fade

    @staticmethod
    def far(fade: Tensor) -> Tensor:
        """Where the determinant of G is below 1e-8, (P,)."""
        return _determinant(fade) < _FADED

    def _bring_back(self, members: slice) -> None:
        # Blocks ff, fg, gf, gg of G R G^T are sums of those of R, one product with G (x) G; (W G^T)^T (W G^T) is added.
        G, rows = self.fade[members], self.rows[members]
        batch = rows.shape[:2]
        moved = _kron(G).repeat_interleave(batch[1], 0) @ rows.flatten(0, 1).flatten(-2)
        W = (G[:, None, None] @ self.pending[members]).transpose(2, 3)  # (p, S, 2, 24, N)
        left = W.unsqueeze(3).expand(*batch, 2, 2, *W.shape[-2:]).flatten(0, 3)
        right = W.unsqueeze(2).expand(*batch, 2, 2, *W.shape[-2:]).flatten(0, 3)
        blocks = rows.flatten(0, 2)
        torch.baddbmm(moved.reshape(blocks.shape), left.mT, right, out=blocks)
        self.mean[:, members] = G @ self.mean[:, members]
        self.reduction[:, members] = _congruence(G) @ self.reduction[:, members]


def _kron(G: Tensor) -> Tensor:
    """G (x) G, (p, 4, 4)."""
    return (G[:, :, None, :, None] * G[:, None, :, None, :]).flatten(3).flatten(1, 2)


def _determinant(G: Tensor) -> Tensor:
    return G[..., 0, 0] * G[..., 1, 1] - G[..., 0, 1] * G[..., 1, 0]


def _congruence(G: Tensor) -> Tensor:
    """What D -> G D G^T does to the numbers (D_00, D_01, D_11) of a symmetric 2 x 2 matrix D, (..., 3, 3)."""
    a, b, c, d = G.flatten(-2).unbind(-1)
    M = torch.stack(
        [a * a, 2 * a * b, b * b, a * c, a * d + b * c, b * d, c * c, 2 * c * d, d * d],
        -1,
    )
    return M.unflatten(-1, (3, 3))

"""BKB's posterior for a dictionary that lasts one step: computed from counts and totals alone, and not stored."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.cholesky import safe_cholesky

_KEPT = 2**27  # bytes of prior covariances of the arms pulled with all arms; above they are computed anew
_ARMS_AT_ONCE, _PANELS = 1024, 3  # columns whose products stay in a cache; panels of a triangular factor
_JITTER = 1e-13  # of the largest prior variance: for arms within the span of others


class OneStepPosterior:
    """Mean and variance of arms under a dictionary S, from the arms pulled.

    The posterior that BKB computes (DTC) is the exact posterior of other data, on S alone: a pull of an arm outside S
    is divided among the arms of S by the weights T = K_S^{-1} k_S(x) of its projection. With counts D and totals r of
    the arms in S, and D', r' and T of those pulled outside,

        B = D + T D' T^T,    V = K_S + lambda B^{-1},
        mean(x) = k_S(x)^T V^{-1} B^{-1} (r + T r'),    variance(x) = k(x, x) - k_S(x)^T V^{-1} k_S(x).

    The reason is that A = Phi_S B Phi_S^T is the sum of the projected features' outer products over all pulls. Unlike
    K_S, the matrix V is well conditioned, so one product with the inverse of its Cholesky factor suffices for all arms.

    Args:
        prior: of the arms.
        prior_variance: of all arms, (N,).
        chunk_size: see ``SketchedGP``; a number keeps no prior covariances.

    Cost: O(m^2 u + m^3), then O(m^2) for an arm. Memory O(u N), up to 128 MiB; above that O(m N).
    """

    def __init__(self, prior: ArmPrior, prior_variance: Tensor, chunk_size: int | None) -> None:
        self.prior, self.variance, self.chunk_size = prior, prior_variance, chunk_size
        new = prior_variance.new_zeros
        self._rows, self._square, self._known = new(0, len(prior_variance)), new(0, 0), 0
        self._scale = float(prior_variance.max())

    def solve(
        self, arm: Tensor, count: Tensor, total: Tensor, dictionary: Tensor, noise_variance: Tensor
    ) -> None:
        """Compute the posterior from the arms pulled (u,), in the order of their first pulls, each with a count of at
        least 1 and the sum of its residuals, and from the places of the dictionary's arms among them, (m,)."""
        self._know(arm)
        self._dictionary, self._places = arm[dictionary], dictionary
        outside = torch.ones_like(arm, dtype=torch.bool)
        rest = outside.index_fill_(0, dictionary, False).nonzero().flatten()
        known = self._square[: len(arm), : len(arm)]
        with_dictionary = known.index_select(0, dictionary) if self._known else self._cross(arm)
        by_arm = with_dictionary.mT.contiguous()  # its rows are chosen faster than columns
        K, weights, rewards = by_arm.index_select(0, dictionary), count[dictionary], total[dictionary]
        identity = torch.eye(len(K), dtype=K.dtype, device=K.device)
        if len(rest):
            lifted = torch.add(K, identity, alpha=_JITTER * self._scale)
            shared = torch.cholesky_solve(by_arm.index_select(0, rest).mT, safe_cholesky(lifted))
            B = (shared * count[rest]) @ shared.mT
            B.diagonal().add_(weights)
            noise = torch.cholesky_inverse(safe_cholesky(B))
            rewards = noise @ torch.addmv(rewards, shared, total[rest])
            V = torch.add(K, noise, alpha=float(noise_variance))
        else:
            rewards, V = rewards / weights, K + torch.diag(noise_variance / weights)
        self._root = torch.linalg.solve_triangular(safe_cholesky(V), identity, upper=False)
        self._weights = self._root.mT @ (self._root @ rewards)

    def marginals(self, arms: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean minus the prior mean, and variance, of arms by index; by default of all."""
        variance = (self.variance if arms is None else self.variance[arms]).clone()
        mean = torch.empty_like(variance)
        step, m = self.chunk_size or _ARMS_AT_ONCE, len(self._root)
        panel = max(1, -(-m // _PANELS))
        # The root is lower triangular.
        panels = [self._root[top : top + panel, : top + panel] for top in range(0, m, panel)]
        for start in range(0, len(mean), step):
            part = slice(start, start + step)
            covariance, left = self._cross(part if arms is None else arms[part]), variance[part]
            mean[part] = self._weights @ covariance
            for rows in panels:
                left -= (rows @ covariance[: rows.shape[1]]).square_().sum(0)
        return mean, variance.clamp_min_(0.0)

    def _cross(self, columns: Tensor | slice) -> Tensor:
        """Prior covariance of the dictionary with arms by index."""
        if not self._known:
            x = self.prior.inputs
            return self.prior.space_kernel(x[self._dictionary], x[columns]).to_dense()
        return self._rows[:, columns].index_select(0, self._places)

    def _know(self, arm: Tensor) -> None:
        """Keep the prior covariances of arms pulled for the first time, computed one by one: computed together, a
        kernel may round differently, and a resumed run must give the same numbers."""
        u, N = len(arm), len(self.variance)
        if self.chunk_size is not None or 8 * u * N > _KEPT:
            self._rows, self._known = self._rows[:0].clone(), 0
            return
        if u > len(self._rows):
            more = u + max(32, u // 4) - len(self._rows)
            self._rows, self._square = pad(self._rows, (0, 0, 0, more)), pad(self._square, (0, more, 0, more))
        for place in range(self._known, u):
            one = self.prior.inputs[arm[place : place + 1]]
            self._rows[place] = self.prior.space_kernel(one, self.prior.inputs).to_dense()
            self._square[place, : place + 1] = self._square[: place + 1, place] = self._rows[
                place, arm[: place + 1]
            ]
        self._known = u

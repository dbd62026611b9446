"""Mean and variance of all arms under a dictionary: of one that stays, updated with what was learned since they were
last read; and of one that lasts a single step (BKB), from counts and totals alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.cholesky import safe_cholesky
from bandits_torch.models.online_model import ResizableState
from bandits_torch.models.sketch.embedding import ArmEmbedding
from bandits_torch.models.sketch.feature_regression import FeatureRegression


class SketchMarginals(ResizableState):
    """mean = z^T theta and variance = k - z^T z + z^T C z of N arms, stored and updated with what was learned since.

    Cost of ``refresh``: O(q m N) for q pulls since the last, O(m^2 N) after another dictionary, and always if the
    embedding keeps no rows.
    """

    mean: Tensor
    variance: Tensor
    prior_variance: Tensor
    _LOOSE = ("_falls", "_steps", "_shift")

    def __init__(self, prior_variance: Tensor) -> None:
        super().__init__()
        self.register_buffer("prior_variance", prior_variance, persistent=False)
        self.register_buffer("mean", torch.zeros_like(prior_variance))
        self.register_buffer("variance", prior_variance.clone())
        self.settled = 0  # how often
        self.settle(True)

    def settle(self, kept: bool) -> None:
        """Note that the marginals are up to date, or (not ``kept``) that they must be computed anew."""
        self.kept = kept
        self.settled += 1
        self._falls: list[Tensor] = []  # by pull since: the variance falls by the square of this times z,
        self._steps: list[Tensor] = []  # and the mean moves by this times that
        self._shift: Tensor | None = None  # of the weights, in addition

    def note_pull(self, fall: Tensor, step: Tensor) -> None:
        """Note what ``regression.observe`` returned for a pull."""
        self._falls.append(fall)
        self._steps.append(step)

    def note_shift(self, shift: Tensor) -> None:
        """Note what ``regression.correct`` returned."""
        self._shift = shift if self._shift is None else self._shift + shift

    def append(
        self, weights: Tensor, schur: Tensor, noise_variance: Tensor, added: Tensor, passed: Tensor
    ) -> None:
        """New features: ``regression.append`` gave weights (j,) and H (j, j); ``added`` (j, N) are the features and
        ``passed`` (j, N) is G^T times the old ones. The marginals must have been refreshed."""
        change = added - passed
        self.mean.addmv_(change.mT, weights)
        self.variance.sub_(added.square().sum(0))
        lifted = torch.linalg.solve_triangular(schur, change, upper=False).square().sum(0)
        self.variance.addcmul_(lifted, noise_variance)

    def refresh(self, embedding: ArmEmbedding, regression: FeatureRegression) -> None:
        """Bring ``mean`` and ``variance`` up to date."""
        count = len(self._falls)
        if self.kept and not count and self._shift is None:
            return
        if not self.kept or embedding.rows is None or count > max(8, embedding.size):
            for arms, z in embedding.chunks():
                self.mean[arms] = regression.weights @ z
                self.variance[arms] = self._variance(arms, z, regression)
        else:
            vectors = self._falls if self._shift is None else [*self._falls, self._shift]
            passed = embedding.rows.product(torch.stack(vectors))
            for fall, step in zip(passed[:count], self._steps, strict=True):
                self.variance.addcmul_(fall, fall, value=-1)
                self.mean.addcmul_(fall, step)
            if self._shift is not None:
                self.mean.add_(passed[-1])
        self.settle(True)

    def variance_at(self, arms: Tensor, z: Tensor, regression: FeatureRegression) -> Tensor:
        """The present variance of arms (n,) with features z (m, n), without refreshing all arms: O(n m q), or O(n
        m^2)."""
        if not self.kept:
            return self._variance(arms, z, regression)
        if not self._falls:
            return self.variance[arms]
        return self.variance[arms] - (torch.stack(self._falls) @ z).square().sum(0)

    @property
    def pulls(self) -> int:
        """The number of pulls noted since the marginals were settled."""
        return len(self._falls)

    def falls_since(self, pull: int) -> list[Tensor]:
        """The vector ``fall`` of each pull after the first ``pull``: at features z the variance falls by (fall^T
        z)^2."""
        return self._falls[pull:]

    def _variance(self, arms: Tensor | slice, z: Tensor, regression: FeatureRegression) -> Tensor:
        return self.prior_variance[arms] - (z * (z - regression.covariance @ z)).sum(0)

    # -- state -----------------------------------------------------------------------------------------

    _PLAIN = ("kept", "settled", *_LOOSE)


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

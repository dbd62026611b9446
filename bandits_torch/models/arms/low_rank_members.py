"""Many Gaussian processes over many arms, each of low rank: a step costs O(N r) and memory O(N r + r^2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_members import ArmMembers


class LowRankMembers(ArmMembers):
    """``ArmMembers`` for covariances K = B B^T, given by roots B: exact for those, whatever N.

    f = B z with z ~ N(0, I) in r dimensions, so the recursion of ``ArmMembers`` runs over z, with the row of B of an
    arm in place of its row of K; means and variances of the arms follow by one product with B.

    Args:
        covariances: (G, N, r), the roots B (``pivoted_root`` makes them); zero columns fill up a lesser rank.
        arms, kernel, noise_variance, forgetting_rate, prior_mean, replicates: see ``ArmMembers``.

    Cost: O(S P (N r + r^2)) a step; memory O(S P (N + r^2) + G N r). Raises ValueError as ``ArmMembers`` does.

    Source: the weight-space view (Rasmussen & Williams 2006, section 2.1).
    """

    def _size(self, n: int, covariances: Tensor) -> tuple[int, Tensor]:
        validation.finite_tensor("covariances", covariances)
        fits = covariances.dim() == 3 and covariances.shape[1] == n
        validation.shape_is("covariances", covariances, fits, f"(G, {n}, r), roots")
        return covariances.shape[-1], covariances.square().sum(-1)

    def _centred(self, covariances: Tensor) -> Tensor:
        """Roots of the correlations of f less its mean over arms, (G, N, r)."""
        return torch.nn.functional.normalize(covariances - covariances.mean(-2, keepdim=True), dim=-1)

    def likeness(self, arm: Tensor) -> Tensor:
        """Squared prior correlation of every arm with one per replicate once the mean over arms is off: (S, P, N)."""
        correlation = self._likeness[:, arm] @ self._likeness.mT  # (G, S, N)
        return correlation.square()[self.kernel].transpose(0, 1)

    def _between(self, arms: Tensor) -> Tensor:
        rows = self.covariances[:, arms]
        return (rows @ rows.mT)[self.kernel].transpose(0, 1)

    def _combined(self, arms: Tensor, weights: Tensor) -> Tensor:
        rows = self.covariances[:, arms][self.kernel].transpose(0, 1)  # (S, P, K, r)
        return self._over_arms((weights.unsqueeze(-2) @ rows).squeeze(-2))

    def _column(self, arm: Tensor, fade: Tensor) -> Tensor:
        """(I - a (R + W^T W)) b / sqrt(a), b the row of B of the arm of each replicate: (S, P, r)."""
        root = fade.sqrt().unsqueeze(-1)
        b = self.covariances[:, arm][self.kernel]  # (P, S, r)
        weights = self.pending @ b.unsqueeze(-1)  # (P, S, 24, 1)
        held = self._counted((self.rows @ b.unsqueeze(-1)).squeeze(-1))
        known = held + (weights.mT @ self.pending).squeeze(-2)
        return (b.transpose(0, 1) / root) - known.transpose(0, 1) * root

    _groups: list[Tensor] | None = None

    def _of_groups(self) -> list[Tensor]:
        """The members of each root; looked up once, which waits for the device."""
        if self._groups is None or self._groups[0].device != self.kernel.device:
            numbers = range(len(self.covariances))
            self._groups = [(self.kernel == group).nonzero().squeeze(-1) for group in numbers]
        return self._groups

    def _over_arms(self, column: Tensor) -> Tensor:
        out = column.new_empty(*column.shape[:-1], self.num_arms)
        for of_group, root in zip(self._of_groups(), self.covariances, strict=True):
            out[:, of_group] = column[:, of_group] @ root.mT
        return out


def pivoted_root(
    column: Callable[[int], Tensor], variance: Tensor, rank: int, tolerance: float = 1e-6
) -> Tensor:
    """B (N, rank) with B B^T near K: the pivoted Cholesky factor, one column of K for each column of B.

    Stops, leaving zeros, once no variance left out exceeds ``tolerance`` times the largest one.

    Args:
        column: i to K[:, i], (N,).
        variance: (N,), the diagonal of K.
        rank: at most so many columns.

    Cost: O(N rank^2). Source: Harbrecht, Peters & Schneider 2012.
    """
    left = variance.clone()
    root = variance.new_zeros(len(variance), rank)
    for k in range(min(rank, len(variance))):
        pivot = int(left.argmax())
        if left[pivot] <= tolerance * variance.max():
            break
        new = (column(pivot) - root[:, :k] @ root[pivot, :k]) / left[pivot].sqrt()
        root[:, k] = new
        left = (left - new.square()).clamp_min(0.0)
        left[pivot] = 0.0
    return root

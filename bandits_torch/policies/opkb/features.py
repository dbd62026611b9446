"""Where the optimisation-based policies take their features from."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described


class FeatureSource(Described, ABC):
    """Features of the arms, which may be learnt anew for each block."""

    replicates: int
    num_arms: int

    @abstractmethod
    def initial(self, replicate: int) -> Tensor:
        """phi of block 0, (N, p)."""

    @abstractmethod
    def learnt(self, replicate: int, counts: Tensor, sums: Tensor) -> Tensor:
        """phi of a later block, (N, p), from the epoch's pulls and summed rewards of each arm, (N,) each.

        Features that did not change are told by the very tensor of ``initial``: nothing is then designed anew.
        """


class FixedFeatures(FeatureSource):
    """The same features in every block.

    Of a kernel: ``features_of_covariance(kernel(arms))``. Linear: the arms themselves.

    Args:
        features: (N, p), or (S, N, p) for replicates that differ.
        replicates: S.

    Source: phi of Hong, Li & Tewari 2023, section 2. Raises ValueError for another shape, NaN or infinity.
    """

    def __init__(self, features: Tensor, replicates: int = 1) -> None:
        validation.positive_integer("replicates", replicates)
        validation.tensor("features", features)
        ok = (features.numel() > 0 and features.dim() == 2) or (
            features.dim() == 3 and features.shape[0] == replicates
        )
        validation.shape_is("features", features, ok, f"(N, p) or ({replicates}, N, p)")
        validation.finite_tensor("features", features)
        self.features, self.replicates, self.num_arms = features, replicates, features.shape[-2]
        self._of_replicate = [*features] if features.dim() == 3 else [features] * replicates

    def initial(self, replicate: int) -> Tensor:
        """phi, (N, p)."""
        return self._of_replicate[replicate]

    def learnt(self, replicate: int, counts: Tensor, sums: Tensor) -> Tensor:
        """phi, (N, p): nothing is learnt."""
        return self.initial(replicate)

"""Mean and variance of all arms under a dictionary, updated with what was learned since they were last read."""

from __future__ import annotations

import torch
from torch import Tensor

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

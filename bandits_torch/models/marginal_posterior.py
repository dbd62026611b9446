"""A posterior known by its marginals, for scoring many candidates one at a time."""

from __future__ import annotations

import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor


class MarginalPosterior(GPyTorchPosterior):
    """``GPyTorchPosterior`` over q = 1 point whose distribution is built only if somebody samples from it.

    Reading ``mean`` and ``variance`` costs nothing: no linear operator, and none of the checks on
    values with which ``MultivariateNormal`` would make a GPU wait.

    Args:
        mean, variance: ``batch_shape x 1`` tensors.
    """

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        self._mean, self._variance, self._is_mt = mean, variance, False
        self._device, self._dtype = mean.device, mean.dtype

    @property
    def distribution(self) -> MultivariateNormal:  # type: ignore[override]
        """The same marginals as a GPyTorch distribution."""
        return MultivariateNormal(self._mean, DiagLinearOperator(self._variance))

    @property
    def mean(self) -> Tensor:
        """Posterior mean, ``batch_shape x 1 x 1``."""
        return self._mean.unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """Posterior variance, ``batch_shape x 1 x 1``."""
        return self._variance.unsqueeze(-1)

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return sample_shape + self._mean.shape + torch.Size([1])

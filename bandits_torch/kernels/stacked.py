"""Different kernels as one batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
class StackedKernel(Kernel):
    """P different kernels as one kernel of batch shape (..., P): the candidate priors of one model.

    Args:
        kernels: P kernels over the same inputs; their own batch shapes (replicates) broadcast and come before P.

    Inputs are ``... x n x d`` with P or 1 in the dimension before n, if there is one. Cost: that of the P kernels.

    Source: the batch of priors of Ziomek et al. 2024, Algorithm 1. Raises ValueError unless
    ``kernels`` has at least one entry and all are kernels.
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        some = isinstance(kernels, Sequence) and len(kernels) > 0
        all_kernels = some and all(isinstance(kernel, Kernel) for kernel in kernels)
        validation.require(all_kernels, "kernels", kernels, "at least one kernel, in a sequence")
        own = torch.broadcast_shapes(*[kernel.batch_shape for kernel in kernels])
        super().__init__(batch_shape=torch.Size([*own, len(kernels)]))
        self.kernels = torch.nn.ModuleList(kernels)

    @property
    def is_stationary(self) -> bool:
        """Whether all kernels are."""
        return all(kernel.is_stationary for kernel in self.kernels)

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """None, so that GPyTorch does not broadcast their batch shapes with the stack's."""
        return ()

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Covariance ``... x P x n x m`` (``... x P x n`` with ``diag``)."""
        parts = [
            to_dense(kernel(_of_member(x1, p), _of_member(x2, p), diag=diag, **params))
            for p, kernel in enumerate(self.kernels)
        ]
        return torch.stack(torch.broadcast_tensors(*parts), -2 if diag else -3)


def _of_member(x: Tensor, p: int) -> Tensor:
    return x if x.dim() == 2 else x.select(-3, p if x.shape[-3] > 1 else 0)

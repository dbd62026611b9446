"""The rows of a prior as one operation, which ``torch.compile`` does not look into: GPyTorch's kernels break graphs."""

from collections.abc import Callable
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from bandits_torch.models.arms.prior import ArmPrior

_PRIORS: WeakValueDictionary[int, ArmPrior] = WeakValueDictionary()


@torch.library.custom_op("bandits_torch::prior_rows", mutates_args=())
def prior_rows(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    """K between the arms (n,) and all N arms, (batch, n, N), of the prior of that number."""
    return _PRIORS[prior].rows(arm).contiguous()


@prior_rows.register_fake
def _(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    return like.new_empty(batch, len(arm), like.shape[-1])


def opaque_rows(prior: ArmPrior) -> Callable[[Tensor], Tensor]:
    """``prior.rows`` as one operation, for as long as the prior lives."""
    number, batch, like = id(prior), prior.flat_batch, prior.diagonal()
    _PRIORS[number] = prior

    def rows(arm: Tensor) -> Tensor:
        return prior_rows(arm, like, number, batch)

    return rows

"""The probability of playing an arm, as an acquisition function."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.models.model import Model
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.t_batches import over_t_batches


class PlayingProbability(AcquisitionFunction):
    """P(x), the probability with which a randomised policy (the OPKB family) pulls arm x next.

    Args:
        model: a model whose inputs are arm indices (``ArmGP``); it is stored and not evaluated.
        probabilities: ``N`` or ``batch x N``, such as ``policy.playing_distribution``.

    Called with X, ``t_batch x 1 x d`` with arm indices in the first column, it returns ``t_batch`` values, broadcast
    with the batch of ``probabilities``. Its maximiser is the most probable arm, which need not be the next one.
    Source: Hong, Li & Tewari 2023, Algorithms 2 and 3.

    Raises ValueError unless ``probabilities`` are finite, non-negative and sum to 1.
    """

    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor

    def __init__(self, model: Model, probabilities: Tensor) -> None:
        validation.instance("model", model, Model, "a BoTorch model")
        super().__init__(model=model)
        validation.finite_tensor("probabilities", probabilities)
        total = probabilities.sum(-1)
        proper = bool((probabilities >= 0).all()) and torch.allclose(total, torch.ones_like(total))
        validation.require(proper, "probabilities", probabilities, "non-negative numbers with sum 1")
        self.register_buffer("probabilities", probabilities)
        self.probabilities: Tensor

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Raises ValueError for pending points: what has been played does not change the probabilities."""
        _none_pending(X_pending)

    @over_t_batches(expected_q=1, any_output=True)
    def forward(self, X: Tensor) -> Tensor:
        """P of the arms X, ``t_batch x 1 x d``."""
        arm = X[..., 0, 0].long()
        shape = torch.broadcast_shapes(arm.shape, self.probabilities.shape[:-1])
        P = self.probabilities.expand(*shape, -1)
        return P.gather(-1, arm.expand(shape).unsqueeze(-1)).squeeze(-1)


def _none_pending(X_pending: Tensor | None) -> None:
    none = X_pending is None
    validation.require(none, "X_pending", X_pending, "None: draw q arms from the probabilities instead")


@acqf_input_constructor(PlayingProbability)
def _inputs_of_playing_probability(
    model: Model, probabilities: Tensor, X_pending: Tensor | None = None, **_unused: Any
) -> dict[str, Any]:
    _none_pending(X_pending)
    return {"model": model, "probabilities": probabilities}

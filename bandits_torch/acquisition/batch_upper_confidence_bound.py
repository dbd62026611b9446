"""Joint UCB of q points, by Monte Carlo, whose confidence width comes from a theorem."""

from __future__ import annotations

import math
from typing import Any

from botorch import acquisition
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import MCAcquisitionObjective, PosteriorTransform
from botorch.models.model import Model
from botorch.sampling.base import MCSampler
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import width_now
from bandits_torch.theory.widths import Width


class qUpperConfidenceBound(acquisition.qUpperConfidenceBound):  # BoTorch's name and habit
    """E[max_i (mu(x_i) + width sqrt(pi / 2) |f(x_i) - mu(x_i)|)] jointly over q points.

    BoTorch's acquisition function of this name with beta = width^2. The width may differ between batch members, and
    may be a ``Width``, which is evaluated once. For q = 1 its expectation is ``UpperConfidenceBound``.

    Args:
        model: any single-output BoTorch model; a ``Width`` needs an ``OnlineModel``.
        width: a number >= 0, a tensor that broadcasts to ``model.batch_shape``, or a ``Width``.
        sampler, objective, posterior_transform, X_pending: as in BoTorch.

    Called with X, ``t_batch x q x d``, it returns ``t_batch`` values in units of reward. Source: Wilson et al. 2017,
    The reparameterization trick for acquisition functions, appendix A.

    Raises ValueError for a ``model`` that is not a BoTorch model and a ``width`` that is negative or of another shape.
    """

    def __init__(
        self,
        model: Model,
        width: float | Tensor | Width,
        sampler: MCSampler | None = None,
        objective: MCAcquisitionObjective | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        validation.instance("model", model, Model, "a BoTorch model")
        now = width_now(width, model)
        super().__init__(model, 0.0, sampler, objective, posterior_transform, X_pending)
        shape = (*now.shape, 1) if now.dim() else ()  # one for all q points
        self.register_buffer("width", now)
        self.width: Tensor
        del self.beta_prime
        self.register_buffer("beta_prime", now.reshape(shape) * math.sqrt(math.pi / 2))


@acqf_input_constructor(qUpperConfidenceBound)
def _inputs_of_q_upper_confidence_bound(
    model: Model,
    width: float | Tensor | Width = 2.0,
    sampler: MCSampler | None = None,
    objective: MCAcquisitionObjective | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    **_unused: Any,
) -> dict[str, Any]:
    return {
        "model": model,
        "width": width,
        "sampler": sampler,
        "objective": objective,
        "posterior_transform": posterior_transform,
        "X_pending": X_pending,
    }

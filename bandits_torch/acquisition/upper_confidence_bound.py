"""UCB whose confidence width comes from a theorem."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.t_batches import over_t_batches
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.widths import Width


class UpperConfidenceBound(AcquisitionFunction):
    """mu(x) + width * sigma(x), the index of GP-UCB and its variants.

    BoTorch's ``UpperConfidenceBound`` takes beta = width^2, one number for the whole batch. Here the width may differ
    between replicates and priors, and may be a ``Width``, which is evaluated once, at the step after the model's
    observations.

    Args:
        model: any single-output BoTorch model; a ``Width`` needs an ``OnlineModel``.
        width: a number >= 0, a tensor that broadcasts to ``model.batch_shape``, or a ``Width``.
        posterior_transform: as for BoTorch's analytic acquisitions, such as a change of sign to minimise.
        X_pending: points chosen and not yet observed, ``m x d``, as ``set_X_pending`` takes them.

    Called with X, ``t_batch x 1 x d``, it returns ``t_batch`` values in units of reward (broadcast with the
    model's batch shape). Differentiable in X where the model is. Source: Srinivas et al. 2010, equation 6.

    Choose batches of q > 1 points one at a time, as BoTorch does with ``sequential=True``. At pending points the model
    observes its posterior mean, which leaves mu unchanged and lowers sigma (GP-BUCB, Desautels et al. 2014, section
    3.2). The width does not change, although their theorem multiplies it by a constant. For joint optimisation of q > 1
    points (``optimize_acqf`` without ``sequential``, ``optimize_acqf_mixed``) use ``qUpperConfidenceBound``.

    Raises ValueError for a ``model`` that is not a BoTorch model, a ``width`` that is negative or of another shape, and
    X with q > 1.
    """

    width: Tensor
    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor
    _hallucinated: Model | None

    def __init__(
        self,
        model: Model,
        width: float | Tensor | Width,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        right = isinstance(width, Tensor) and (not width.is_cpu or bool((width >= 0).all()))  # at a glance
        if not (right and isinstance(model, Model) and cast(Tensor, width).shape in ((), model.batch_shape)):
            validation.instance("model", model, Model, "a BoTorch model")
            width = width_now(width, model)
        super().__init__(model=model)
        self.register_buffer("width", cast(Tensor, width))
        self.posterior_transform = posterior_transform
        self._hallucinated = None
        if X_pending is not None:
            self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Points chosen and not yet observed, ``m x d``; None: there are none. Cost: that of m observations."""
        super().set_X_pending(X_pending)
        self._hallucinated = None
        if self.X_pending is None or not len(self.X_pending):
            return
        with torch.no_grad():
            mean = cast(GPyTorchPosterior, self.model.posterior(self.X_pending)).mean
            self._hallucinated = self.model.condition_on_observations(self.X_pending, mean)

    @over_t_batches()
    def forward(self, X: Tensor) -> Tensor:
        """Upper confidence bounds of X, ``t_batch x 1 x d``."""
        if X.shape[-2] != 1:
            validation.require(
                False, "q", X.shape[-2], "1: qUpperConfidenceBound values several points jointly"
            )
        posterior: Any = self.model.posterior(X, posterior_transform=self.posterior_transform)
        mean = posterior.mean.squeeze(-1).squeeze(-1)
        if self._hallucinated is not None:
            posterior = self._hallucinated.posterior(X, posterior_transform=self.posterior_transform)
        deviation = posterior.variance.squeeze(-1).squeeze(-1).clamp_min(1e-12).sqrt()
        return torch.addcmul(mean, self.width.to(mean), deviation)


def width_now(width: float | Tensor | Width, model: Model) -> Tensor:
    """A width given as a number, a tensor or a ``Width`` (at the step after the model's observations), as a tensor."""
    if isinstance(width, Width):
        online = isinstance(model, OnlineModel)
        validation.require(
            online, "model", type(model).__name__, "an OnlineModel, for a Width to be evaluated"
        )
        return width(cast(OnlineModel, model).num_observations + 1, cast(OnlineModel, model))
    if isinstance(width, Tensor):
        return _checked(width, model.batch_shape)
    return torch.tensor(validation.non_negative("width", width), dtype=torch.float64)


def _checked(width: Tensor, batch_shape: torch.Size) -> Tensor:
    """``width`` if it is one number >= 0 for each member of the batch (values are looked at on a CPU only)."""
    members = batch_shape.numel()
    try:
        fits = torch.broadcast_shapes(width.shape, batch_shape).numel() == members
    except RuntimeError:
        fits = False
    validation.shape_is("width", width, fits, f"a shape that broadcasts to {tuple(batch_shape)}")
    if width.is_cpu:
        validation.require(bool((width >= 0).all()), "width", width, "numbers >= 0")
    return width


@acqf_input_constructor(UpperConfidenceBound)
def _inputs_of_upper_confidence_bound(
    model: Model,
    width: float | Tensor | Width = 2.0,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    **_unused: Any,
) -> dict[str, Any]:
    given = {"posterior_transform": posterior_transform, "X_pending": X_pending}
    return {"model": model, "width": width} | given

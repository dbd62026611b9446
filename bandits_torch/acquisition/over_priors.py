"""Acquisition functions over a batch of candidate priors: they reduce the scores under all priors to one value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.models.model import Model
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import over_t_batches
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.theory.widths import Width


class OverPriors(AcquisitionFunction, ABC):
    """Scores points under every candidate prior, and reduces the P scores of a point to one value.

    Called with X, ``t_batch x 1 x d``, it returns ``t_batch`` values, broadcast with the other batch dimensions of the
    model, so it works in ``optimize_acqf`` and ``optimize_acqf_discrete``. ``prior(X)`` is the index of the prior that
    gives the value. Pending points are those of ``base``: give it ``X_pending=``, or call ``set_X_pending`` here.

    Args:
        base: an acquisition function for q = 1, over a model of batch shape ``(..., P)``.

    Raises ValueError if ``base`` is not an acquisition function, or if its model has no batch dimension.
    """

    def __init__(self, base: AcquisitionFunction) -> None:
        if not (isinstance(base, AcquisitionFunction) and base.model.batch_shape):
            validation.instance("base", base, AcquisitionFunction, "a BoTorch acquisition function")
            validation.require(False, "base.model.batch_shape", (), "(..., P), with the priors last")
        super().__init__(model=base.model)
        self.base = base

    @property
    def X_pending(self) -> Tensor | None:  # type: ignore[override]
        """Points chosen and not yet observed, ``m x d``, of the base acquisition."""
        return getattr(self.base, "X_pending", None)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points chosen and not yet observed, ``m x d``, of the base acquisition."""
        self.base.set_X_pending(X_pending)

    @property
    def num_priors(self) -> int:
        """P, the number of candidate priors."""
        return self.model.batch_shape[-1]

    @abstractmethod
    def reduce(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Reduce scores ``... x P`` to values ``...`` and the indices ``...`` of the priors that give them."""

    @over_t_batches(expected_q=1, any_output=True)
    def forward(self, X: Tensor) -> Tensor:
        return self.reduce(self.base(X.unsqueeze(-3)))[0]

    @over_t_batches(expected_q=1, any_output=True)
    def prior(self, X: Tensor) -> Tensor:
        """Index of the prior that gives the value at X, ``t_batch x 1 x d``."""
        return self.reduce(self.base(X.unsqueeze(-3)))[1]

    def _check_per_prior(self, name: str, value: Tensor) -> Tensor:
        fits = validation.tensor(name, value).shape[-1:] == (self.num_priors,)
        validation.shape_is(name, value, fits, f"(..., {self.num_priors}), one entry per prior")
        if value.is_cpu:  # on a GPU, a check of values would synchronise
            validation.require(not bool(value.isnan().any()), name, value, "free of NaN")
        return value

    def _log_evidence(self, name: str, value: Tensor | None) -> Tensor:
        """``value``, or ``log_likelihood`` of the model if it is None, for each prior."""
        if value is None:
            value = getattr(self.model, "log_likelihood", None)
            kept = value is not None
            validation.require(kept, "model", type(self.model).__name__, "one that has a log_likelihood")
        return self._check_per_prior(name, cast(Tensor, value))


class OptimisticOverPriors(OverPriors):
    """max_p a^p(x) over the priors not yet eliminated: optimistic about the function and about the prior.

    Source: Ziomek et al. 2024, Algorithm 1, line 7.

    Args:
        surviving: booleans that broadcast to ``model.batch_shape``, False for an eliminated prior. Default: all True.

    Raises ValueError unless ``surviving`` is boolean and True for at least one prior. On a GPU values are not checked.
    """

    def __init__(self, base: AcquisitionFunction, surviving: Tensor | None = None) -> None:
        super().__init__(base)
        if surviving is not None:
            validation.tensor("surviving", surviving)
            validation.require(surviving.dtype == torch.bool, "surviving", surviving.dtype, "booleans")
            self._check_per_prior("surviving", surviving)
            if surviving.is_cpu:  # on a GPU, a check of values would synchronise
                any_survives = bool(surviving.any(-1).all())
                validation.require(any_survives, "surviving", surviving, "True for at least one prior")
        self.register_buffer("surviving", surviving)
        self.surviving: Tensor | None

    def reduce(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The largest score among the surviving priors, and the index of its prior."""
        if self.surviving is not None:
            scores = scores.masked_fill(~self.surviving, -torch.inf)
        best = scores.max(-1)
        return best.values, best.indices


class BayesianOverPriors(OverPriors):
    """sum_p P(p | D) a^p(x): fully Bayesian over the priors, with P(p | D) proportional to P(D | p) P(p).

    Source: Ziomek et al. 2024, section 7.

    ``log_weights``: log P(D | p) + log P(p) up to a constant, broadcasting to ``model.batch_shape``; default: the
    model's ``log_likelihood``, for equal P(p). Raises ValueError for a model without one.
    """

    def __init__(self, base: AcquisitionFunction, log_weights: Tensor | None = None) -> None:
        super().__init__(base)
        self.register_buffer("weights", torch.softmax(self._log_evidence("log_weights", log_weights), -1))
        self.weights: Tensor

    def reduce(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The posterior-weighted mean of the scores, and the index of the prior with the largest weight."""
        values = scores[..., 0] * self.weights[..., 0]
        for p in range(1, self.num_priors):  # a fixed order: the rounding of torch.sum depends on the batch
            values = values + scores[..., p] * self.weights[..., p]
        return values, self.weights.argmax(-1).expand(values.shape)


class LikeliestPrior(OverPriors):
    """a^p(x) under the prior with the largest marginal likelihood (type II maximum likelihood over the set).

    ``log_likelihood``: log P(D | p), broadcasting to ``model.batch_shape``; default: that of the model. Source:
    Rasmussen & Williams 2006, section 5.4.1, over a finite set. Raises ValueError for a model without one.
    """

    def __init__(self, base: AcquisitionFunction, log_likelihood: Tensor | None = None) -> None:
        super().__init__(base)
        self.register_buffer("likeliest", self._log_evidence("log_likelihood", log_likelihood).argmax(-1))
        self.likeliest: Tensor

    def reduce(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The scores under the likeliest prior, and its index."""
        prior = self.likeliest.expand(scores.shape[:-1])
        return scores.gather(-1, prior.unsqueeze(-1)).squeeze(-1), prior


@acqf_input_constructor(OptimisticOverPriors, BayesianOverPriors, LikeliestPrior)
def _over_upper_bounds(
    model: Model,
    width: float | Tensor | Width = 2.0,
    X_pending: Tensor | None = None,
    surviving: Tensor | None = None,
    log_weights: Tensor | None = None,
    log_likelihood: Tensor | None = None,
) -> dict[str, Any]:
    own = {"surviving": surviving, "log_weights": log_weights, "log_likelihood": log_likelihood}
    base = UpperConfidenceBound(model, width, X_pending=X_pending)
    return {"base": base} | {name: value for name, value in own.items() if value is not None}

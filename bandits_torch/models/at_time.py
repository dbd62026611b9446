"""A view of a model over space and time at one moment."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors import GPyTorchPosterior, Posterior
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel


def with_time(X: Tensor, time: float) -> Tensor:
    """Inputs ``... x d`` with a last column of this time, ``... x (d + 1)``, in float64 for any dtype of X: float32
    resolves a clock of seconds since 1970 to two minutes."""
    return torch.cat([X.double(), torch.full_like(X[..., :1], time, dtype=torch.float64)], -1)


@validation.names_arguments
class AtTime(Model, FantasizeMixin):
    """A BoTorch model whose last input is time, seen as a model over the other inputs: f( . , time).

    Some acquisition functions add the observed inputs to the candidates (max-value entropy, noisy expected improvement
    from ``train_inputs``, proximal weights). Given the model, they evaluate f at the times of observation; given this
    view, at ``time``. Conditioning observes at ``time``.

    Args:
        model: any BoTorch model over inputs ``x, time``: an ``OnlineGP`` or ``ArmGP`` with a ``SpatioTemporalKernel``,
            or a ``SingleTaskGP`` with one.
        time: the moment. ``ArmGP`` predicts at or after its latest observation only.

    The view changes as the model learns. Raises ValueError for a ``model`` that is not a BoTorch model, an ``ArmGP``
    without a time column and a ``time`` that is not finite.
    """

    def __init__(self, model: Model, time: float) -> None:
        super().__init__()
        validation.instance("model", model, Model, "a BoTorch model")
        validation.require(getattr(model, "drifts", True), "model", model, "one whose last input is time")
        self.model: Any = model  # BoTorch's Model does not declare the observations
        self.time = validation.finite_number("time", time)
        self.eval()

    @property
    def num_outputs(self) -> int:
        """As of the model."""
        return self.model.num_outputs

    @property
    def batch_shape(self) -> torch.Size:
        """As of the model."""
        return self.model.batch_shape

    @property
    def likelihood(self) -> Any:
        """As of the model."""
        return self.model.likelihood

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Inputs observed, without their times."""
        return (self.model.train_inputs[0][..., :-1],)

    @property
    def train_targets(self) -> Tensor:
        """As of the model."""
        return self.model.train_targets

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Joint posterior at X, ``t_batch x q x d``, and the moment."""
        return self.model.posterior(self._inputs(X), output_indices, observation_noise, posterior_transform)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """``posterior`` as a distribution."""
        posterior = self.posterior(X)
        assert isinstance(posterior, GPyTorchPosterior)
        return posterior.distribution

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> AtTime:
        """A view of a copy of the model that has observed Y at X and this moment."""
        return AtTime(self.model.condition_on_observations(self._inputs(X), Y, **kwargs), self.time)

    def fantasize(
        self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any
    ) -> AtTime:
        """A view of the fantasies of the model at X and this moment."""
        return AtTime(self.model.fantasize(self._inputs(X), sampler, observation_noise, **kwargs), self.time)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> AtTime:
        """``condition_on_observations`` as GPyTorch has it: targets without their last dimension, ``batch x n``."""
        return self.condition_on_observations(inputs, targets.unsqueeze(-1), **kwargs)

    def subset_output(self, idcs: list[int]) -> AtTime:
        """A view of that subset of the outputs of the model."""
        return AtTime(self.model.subset_output(idcs), self.time)

    def transform_inputs(self, X: Tensor, input_transform: torch.nn.Module | None = None) -> Tensor:
        """Inputs are passed on as they are."""
        return X

    def _inputs(self, X: Tensor) -> Tensor:
        timed = with_time(X, self.time)
        # BoTorch's own models take inputs in the dtype of their data.
        return timed if isinstance(self.model, OnlineModel) else timed.to(X)

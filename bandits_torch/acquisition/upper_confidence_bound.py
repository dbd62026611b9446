"""Upper confidence bounds: one point or q jointly, a band over all arms, and bounds that differ per arm."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from botorch import acquisition
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import MCAcquisitionObjective, PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling.base import MCSampler
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import StepContext, at_arms, built_by_name, over_t_batches
from bandits_torch.description import Described
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel, QuickModule
from bandits_torch.theory.mixture_widths import DualMixtureWidth
from bandits_torch.theory.prior_widths import rank, simultaneous_width
from bandits_torch.theory.widths import Width


@built_by_name(width=2.0)
class UpperConfidenceBound(QuickModule, AcquisitionFunction):
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
    model's batch shape). Differentiable in X if the model is. Source: Srinivas et al. 2010, equation 6.

    Choose batches of q > 1 points one at a time, as BoTorch does with ``sequential=True``. Sigma is that of a copy of
    the model that observed its posterior mean at the pending points; mu does not change (GP-BUCB, Desautels et al.
    2014, section 3.2), nor does the width (see ``GPBUCBWidth``). ``qUpperConfidenceBound`` optimises q > 1 points
    jointly (``optimize_acqf`` without ``sequential``, ``optimize_acqf_mixed``).

    Raises ValueError for a ``model`` that is not a BoTorch model, a ``width`` that is negative or of the wrong shape,
    and X with q > 1.
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
        if not isinstance(model, Model):
            validation.instance("model", model, Model, "a BoTorch model")
        super().__init__(model=model)
        self.register_buffer("width", width_now(width, model))
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
        mean = posterior.mean.squeeze((-2, -1))
        if self._hallucinated is not None:
            posterior = self._hallucinated.posterior(X, posterior_transform=self.posterior_transform)
        return self.of(mean, posterior.variance.squeeze((-2, -1)), self.width)

    def is_of_marginals(self, model: Model) -> bool:
        """Whether ``of`` with the marginals of this model gives its values: it has this model, no transform and no
        pending points."""
        return self.model is model and self.posterior_transform is None and self._hallucinated is None

    @staticmethod
    def of(mean: Tensor, variance: Tensor, width: Tensor) -> Tensor:
        """The bounds for these moments, in any unit of rewards."""
        least = torch.finfo(variance.dtype).tiny  # here the gradient of the square root is still finite
        return torch.addcmul(mean, width.to(mean), variance.clamp_min(least).sqrt())


def width_now(width: float | Tensor | Width, model: Model) -> Tensor:
    """A width as a tensor; a ``Width`` is evaluated at the step after the model's observations.

    Raises ValueError unless the width has one number >= 0 for all members of the batch or for each (values are checked
    on a CPU only).
    """
    if isinstance(width, Width):
        online = isinstance(model, OnlineModel)
        expected = "an OnlineModel, because a Width reads its observations"
        validation.require(online, "model", type(model).__name__, expected)
        return width(cast(OnlineModel, model).num_observations + 1, cast(OnlineModel, model))
    if not isinstance(width, Tensor):
        return torch.tensor(validation.non_negative("width", width), dtype=torch.float64)
    if width.shape not in ((), model.batch_shape):
        batch = model.batch_shape
        try:
            fits = torch.broadcast_shapes(width.shape, batch).numel() == batch.numel()
        except RuntimeError:
            fits = False
        validation.shape_is("width", width, fits, f"that broadcasts to {tuple(batch)}")
    if width.is_cpu and width.numel() and not width.min().item() >= 0:
        validation.require(False, "width", width, "numbers >= 0")
    return width


@built_by_name(width=2.0)
class qUpperConfidenceBound(acquisition.qUpperConfidenceBound):  # named as in BoTorch
    """E[max_i (mu(x_i) + width sqrt(pi / 2) |f(x_i) - mu(x_i)|)] jointly over q points, by Monte Carlo.

    BoTorch's acquisition function of this name with beta = width^2. The width may differ between batch members, and
    may be a ``Width``, which is evaluated once. For q = 1 its expectation is ``UpperConfidenceBound``.

    Args:
        model: any single-output BoTorch model; a ``Width`` needs an ``OnlineModel``.
        width: a number >= 0, a tensor that broadcasts to ``model.batch_shape``, or a ``Width``.
        sampler, objective, posterior_transform, X_pending: as in BoTorch.

    Called with X, ``t_batch x q x d``, it returns ``t_batch`` values in units of reward. Source: Wilson et al. 2017,
    The reparameterization trick for acquisition functions, appendix A.

    Raises ValueError for a ``model`` that is not a BoTorch model, and a negative or misshapen ``width``.
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
        shape = (*now.shape, 1) if now.dim() else ()  # the same width for all q points
        self.register_buffer("width", now)
        self.width: Tensor
        del self.beta_prime
        self.register_buffer("beta_prime", now.reshape(shape) * math.sqrt(math.pi / 2))


class SimultaneousBand(Described):
    """mu + width sigma, where the width is a quantile of max_x |f(x) - mu(x)| / sigma(x) under the joint posterior.

    It is the narrowest width that is valid at all arms at once. Calling it with a model returns the UCB at the time of
    the latest observation; a policy passes the step's time and random numbers. The theorem (see ``simultaneous_width``)
    is Bayesian: for f drawn from the model's prior, with the model's drift and Gaussian noise of variance lambda, the
    band of each step contains f at all arms with probability 1 - delta. ``mean_excess`` gives the consequence for the
    regret.

    Source: Srinivas et al. 2010, Lemma 5.1, with the quantile instead of its union bounds; derived in
    ``theory/prior_widths.py``.

    Args:
        delta: failure probability of a step.
        draws: M; the width is conservative by at most 1/(M + 1) in probability, and varies less for larger M.

    Cost: that of ``joint_root``, O(N^3) per step under drift, and O(M N^2) for the draws.

    Raises ValueError unless 0 < ``delta`` < 1 and ``draws`` is an integer >= 1/delta - 1.
    """

    def __init__(self, delta: float = 0.1, draws: int = 199) -> None:
        rank(draws, delta)  # checks both
        self.delta, self.draws = delta, draws

    def __call__(self, model: ArmModel) -> UpperConfidenceBound:
        """The UCB at the time of the latest observation, with random numbers from PyTorch's global generator."""
        return self.at_step(model, StepContext())

    @torch.no_grad()
    def at_step(self, model: ArmModel, step: StepContext) -> UpperConfidenceBound:
        """The UCB of one step of a policy, from its random numbers."""
        validation.instance("model", model, ArmModel, "a model over arms, such as ArmGP")
        root = model.joint_root(step.time)[1]
        samples = step.base_samples(self.draws)
        if samples is None:
            samples = torch.randn(
                *root.shape[:-2], self.draws, root.shape[-1], dtype=root.dtype, device=root.device
            )
        draws, deviation = samples.to(root) @ root.mT, root.square().sum(-1).sqrt()
        return UpperConfidenceBound(model, simultaneous_width(draws, deviation, self.delta))


class UniformFirst(UpperConfidenceBound):
    """mu + width sigma, except that the first arm of each replicate is drawn uniformly.

    Before a replicate's first observation the index is a random number for each arm. This is the first line of Figure
    1, Calandriello et al. (2019). X are indices of the arms of an ``ArmModel``.

    Args:
        model, width: as for ``UpperConfidenceBound``.
        first: independent, identically distributed numbers, ``model.batch_shape x N``; None once all replicates have
            observations.
    """

    def __init__(self, model: ArmModel, width: float | Tensor | Width, first: Tensor | None = None) -> None:
        super().__init__(model, width)
        self._random = first
        self._is_new = None if first is None else model.num_observations == 0

    @classmethod
    def at_step(cls, model: ArmModel, step: StepContext) -> UniformFirst:
        """The index of one step; random numbers are drawn while any replicate has no observation."""
        width = 0.0 if step.width is None else step.width
        return cls(model, width, step.base_samples() if bool((model.num_observations == 0).any()) else None)

    def forward(self, X: Tensor) -> Tensor:
        """The index of X, ``t_batch x 1 x 1`` arms."""
        index = super().forward(X)
        if self._random is None or self._is_new is None:
            return index
        return torch.where(self._is_new, at_arms(self._random, X[..., 0, 0].long()), index)


class DualMixtureBound(AcquisitionFunction):
    """The upper bounds of Flynn & Reeb (``DualMixtureWidth.bounds``), computed at construction.

    X are indices of the arms of an ``ArmGP``. Source: Flynn & Reeb 2024 (arXiv 2403.12732). For custom index policies:
    ``IndexPolicy(model, lambda model: DualMixtureBound(model, bound))``. The bounds are valid under the same conditions
    as ``DualMixtureWidth``, whose width is one number for all arms, so its band is at least as wide at each arm.

    Args:
        model: an ``ArmGP`` that does not drift.
        bound: a ``DualMixtureWidth``.

    Cost: that of ``DualMixtureWidth``. Raises ValueError for a ``bound`` of the wrong kind, and a ``model`` that it
    does not support.
    """

    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor

    def __init__(self, model: ArmGP, bound: DualMixtureWidth) -> None:
        super().__init__(model)
        validation.instance("bound", bound, DualMixtureWidth, "a DualMixtureWidth")
        self.register_buffer("upper", bound.bounds(model)[1])
        self.upper: Tensor

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Raises ValueError for pending points, which the theorem does not cover."""
        none = X_pending is None
        validation.require(none, "X_pending", X_pending, "None: the bounds hold for observed rewards alone")

    @over_t_batches(expected_q=1)
    def forward(self, X: Tensor) -> Tensor:
        """Upper bounds of X, ``t_batch x 1 x 1``."""
        return at_arms(self.upper, X[..., 0, 0].long())

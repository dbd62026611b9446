"""A fitted ``SingleTaskGP`` to an ``OnlineGP`` and back: its transforms become part of kernel and prior mean."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import Standardize, StratifiedStandardize
from botorch.sampling.pathwise.features.generators import GenKernelFeatures, gen_kernel_features
from botorch.sampling.pathwise.features.maps import KernelFeatureMap
from botorch.sampling.pathwise.utils import ChainedTransform
from botorch.settings import validate_input_scaling
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from gpytorch.means import Mean
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.composed import ByKernel


class _InUnits:
    """Holds the transforms for kernel and mean, and keeps them in evaluation mode, in which they do not learn."""

    input_transform: InputTransform | None
    outcome_transform: Standardize | None

    def inputs(self, x: Tensor) -> Tensor:
        """Transform inputs in the user's units."""
        return x if self.input_transform is None else self.input_transform.transform(x)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)  # type: ignore[misc]
        for transform in (self.input_transform, self.outcome_transform):
            if transform is not None:
                transform.eval()
        return self


class TransformedKernel(_InUnits, Kernel):
    """s^2 k(T(x), T(x')) in the user's units: k is the fitted kernel, T the input transform, s the outcomes' deviation.

    ``running``: whether s follows the data (``OnlineGP.from_botorch``).
    """

    def __init__(
        self,
        base_kernel: Kernel,
        input_transform: InputTransform | None,
        outcome_transform: Standardize | None,
        running: bool = False,
    ) -> None:
        super().__init__()
        self.base_kernel, self.running = base_kernel, running
        self.input_transform, self.outcome_transform = input_transform, outcome_transform

    @property
    def is_stationary(self) -> bool:
        """Whether k(x, x) is the same everywhere."""
        return bool(self.base_kernel.is_stationary)

    @property
    def scale(self) -> Tensor:
        """s, a tensor without dimensions."""
        return _scale_of(self.outcome_transform, next(self.base_kernel.parameters()))

    def scaled(self, values: Tensor) -> Tensor:
        """s times ``values``, those of a function with covariance k."""
        return self.scale * values

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """The matrix, or its diagonal."""
        return self.scale**2 * self.base_kernel(self.inputs(x1), self.inputs(x2), diag=diag, **params)


class TransformedMean(_InUnits, Mean):
    """mu + s m(T(x)), in the user's units: m is the fitted prior mean, mu and s the outcomes' mean and deviation."""

    def __init__(
        self, base_mean: Mean, input_transform: InputTransform | None, outcome_transform: Standardize | None
    ) -> None:
        super().__init__()
        self.base_mean = base_mean
        self.input_transform, self.outcome_transform = input_transform, outcome_transform

    def forward(self, x: Tensor) -> Tensor:
        """The mean at each point."""
        mean = self.base_mean(self.inputs(x))
        if self.outcome_transform is None:
            return mean
        return self.outcome_transform.means.squeeze() + self.outcome_transform.stdvs.squeeze() * mean


def _scale_of(transform: Standardize | None, like: Tensor) -> Tensor:
    return like.new_ones(()) if transform is None else transform.stdvs.squeeze()


def relearn(transform: Standardize, targets: Tensor) -> None:
    """Set mean and deviation of ``transform`` to those of these targets, (n,)."""
    transform.train()
    transform(targets.unsqueeze(-1))
    transform.eval()


def parts_of(fitted: SingleTaskGP, running: bool) -> tuple[dict[str, Any], Tensor, Tensor, Likelihood]:
    """Arguments of ``OnlineGP``, the data, (n, d) and (n, 1) in the user's units, and a copy of the likelihood. Raises
    ValueError for a ``fitted`` that ``OnlineGP.from_botorch`` refuses."""
    validation.require(type(fitted) is SingleTaskGP, "fitted", type(fitted).__name__, "a SingleTaskGP")
    shape = tuple(fitted.batch_shape)
    validation.require(shape == (), "fitted.batch_shape", shape, "(): one model")
    validation.require(fitted.num_outputs == 1, "fitted.num_outputs", fitted.num_outputs, "1")
    validation.require(type(running) is bool, "running", running, "True or False")
    inward, outward = getattr(fitted, "input_transform", None), getattr(fitted, "outcome_transform", None)
    alike = inward is None or (
        inward.transform_on_train and inward.transform_on_eval and not inward.is_one_to_many
    )
    expected = "one that maps each point to one point, in the same way whether observed or not"
    validation.require(alike, "fitted.input_transform", inward, expected)
    affine = isinstance(outward, Standardize) and not isinstance(outward, StratifiedStandardize)
    expected = "Standardize or None. For another transform, transform the outcomes before the fit"
    validation.require(outward is None or affine, "fitted.outcome_transform", outward, expected)
    expected = "False, because fitted.outcome_transform is not a Standardize"
    validation.require(affine or not running, "running", running, expected)
    likelihood = fitted.likelihood
    known = isinstance(likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood)
    validation.require(known, "fitted.likelihood", likelihood, "a Gaussian likelihood")
    noise = likelihood.noise.detach()
    same = torch.allclose(noise, noise.mean(), rtol=1e-6, atol=0.0)
    validation.require(same, "fitted.likelihood.noise", noise, "the same for all observations")

    training, cache = fitted.training, fitted.prediction_strategy
    fitted.train()  # in this mode ``train_inputs`` are not transformed
    X, Y = fitted.train_inputs[0].detach(), fitted.train_targets.detach().unsqueeze(-1)
    if inward is not None:
        inward.eval()  # while it trains, a chain of transforms would learn bounds again from these inputs
    fitted.train(training)
    fitted.prediction_strategy = cache
    if outward is not None:
        Y = outward.untransform(Y)[0].detach()
    transforms = [None if one is None else copy.deepcopy(one).eval() for one in (inward, outward)]
    kernel, mean = copy.deepcopy(fitted.covar_module), copy.deepcopy(fitted.mean_module)
    if inward is not None or outward is not None:
        kernel = TransformedKernel(kernel, transforms[0], transforms[1], running)
        mean = TransformedMean(mean, *transforms)
    arguments = {
        "kernel": kernel.eval(),
        "noise_variance": noise.mean() * _scale_of(outward, Y) ** 2,
        "prior_mean": mean.eval(),
        "input_dim": X.shape[-1],
        "dtype": Y.dtype,
        "device": Y.device,
    }
    return arguments, X, Y, copy.deepcopy(likelihood)


def twin_of(model: Any, likelihood: Likelihood | None, standardise: bool = False) -> SingleTaskGP:
    """A ``SingleTaskGP`` with the data and parts of an ``OnlineGP``. ``standardise``: fit its outcome transform to the
    data first."""
    shape = tuple(model.batch_shape)
    validation.require(shape == (), "model.batch_shape", shape, "(): one model")
    count = int(model.num_observations)
    validation.require(count > 0, "num_observations", count, "at least 1: a SingleTaskGP has data")
    kernel, mean = copy.deepcopy(model.kernel), copy.deepcopy(model.prior_mean)
    inward = outward = None
    if isinstance(kernel, TransformedKernel):
        inward, outward, kernel = kernel.input_transform, kernel.outcome_transform, kernel.base_kernel
    if isinstance(mean, TransformedMean):
        mean = mean.base_mean
    X, Y = model.train_inputs[0].clone(), model.train_targets.unsqueeze(-1).to(model.input_dtype)
    noise = (model.noise_variance / _scale_of(outward, Y) ** 2).to(Y)
    if outward is not None:
        if standardise:
            relearn(outward, Y.squeeze(-1))
        Y = outward(Y)[0]
    variances = None
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        variances, likelihood = noise.expand_as(Y).clone(), None
    else:
        likelihood = copy.deepcopy(likelihood)
        if likelihood is None:
            likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6 * float(noise))).to(Y)
        likelihood.noise = noise
    with validate_input_scaling(False):  # the input transform is set below
        twin = SingleTaskGP(X, Y, variances, likelihood, kernel, mean, outcome_transform=None)
    if outward is not None:
        twin.outcome_transform = outward
    if inward is not None:
        twin.input_transform = inward
    return twin.eval()


@GenKernelFeatures.register(TransformedKernel)
def _features(kernel: TransformedKernel, *, num_inputs: int, num_outputs: int) -> KernelFeatureMap:
    """s times BoTorch's random features of the fitted kernel at transformed inputs."""
    example = next(kernel.base_kernel.parameters()).new_zeros(1, num_inputs)
    columns = kernel.inputs(example).shape[-1]
    features = gen_kernel_features(kernel.base_kernel, num_inputs=columns, num_outputs=num_outputs)
    inward = ByKernel(kernel, TransformedKernel.inputs)
    outward = ByKernel(kernel, TransformedKernel.scaled)
    present: Any = features.input_transform
    features.input_transform = inward if present is None else ChainedTransform(present, inward)
    present = features.output_transform
    features.output_transform = outward if present is None else ChainedTransform(outward, present)
    return features

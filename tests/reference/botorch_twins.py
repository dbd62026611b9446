"""Models of ours with their twins of BoTorch's: the same data, kernel and noise."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, AtTime, LeverageSampling, OnlineGP, SketchedGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from tests.reference.arm_gp_twins import smooth

NOISE, NOW, ARMS = 0.05, 6.0, 8
F64 = {"dtype": torch.float64}


# -- models and their twins --------------------------------------------------------------------------------


@dataclass
class Case:
    """A model of ours, BoTorch's twin, all choices (n x d), and whether they are arms."""

    model: Model
    twin: Model
    choices: Tensor
    arms: bool
    observed: Tensor


def time_kernel() -> Kernel:
    return ExponentialForgettingKernel(0.1)


def single_task_gp(X: Tensor, Y: Tensor, kernel: Kernel) -> SingleTaskGP:
    likelihood = GaussianLikelihood().double()
    likelihood.noise = NOISE
    twin = SingleTaskGP(X, Y, covar_module=kernel, likelihood=likelihood, outcome_transform=None)
    twin.mean_module.constant.data.zero_()
    return twin.requires_grad_(False).eval()


def over_arms(make: Callable[[Tensor], Model]) -> Case:
    covariance = smooth(ARMS, 0.3)
    X, Y = torch.tensor([[0.0], [3.0], [6.0]], **F64), torch.tensor([[0.1], [0.9], [-0.4]], **F64)
    model = make(covariance)
    model.observe(X, Y)
    twin = single_task_gp(X, Y, ArmCovarianceKernel(covariance))
    return Case(model, twin, torch.arange(ARMS, **F64).unsqueeze(-1), True, X)


def drifting_arms() -> Case:
    kernel = SpatioTemporalKernel(ArmCovarianceKernel(smooth(ARMS, 0.3)), time_kernel())
    X = torch.tensor([[0.0, 1.0], [3.0, 2.0], [6.0, 5.0]], **F64)
    Y = torch.tensor([[0.1], [0.9], [-0.4]], **F64)
    model = ArmGP(ARMS, kernel, NOISE)
    model.observe(X, Y)
    choices = torch.arange(ARMS, **F64).unsqueeze(-1)
    twin = single_task_gp(X, Y, kernel)
    return Case(AtTime(model, NOW), AtTime(twin, NOW), choices, True, X[:, :1])


def points() -> tuple[Tensor, Tensor, Kernel]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(5, 2, generator=generator, **F64)
    kernel = MaternKernel(2.5).double()
    kernel.lengthscale = 0.4
    return X, torch.sin(6 * X).sum(-1, keepdim=True), kernel


def over_points() -> Case:
    X, Y, kernel = points()
    model = OnlineGP(kernel, NOISE, input_dim=2)
    model.observe(X, Y)
    choices = torch.rand(ARMS, 2, generator=torch.Generator().manual_seed(1), **F64)
    return Case(model.requires_grad_(False), single_task_gp(X, Y, kernel), choices, False, X)


def drifting_points() -> Case:
    X, Y, space = points()
    kernel = SpatioTemporalKernel(space, time_kernel())
    X = torch.cat([X, torch.arange(1, 6, **F64).unsqueeze(-1)], -1)
    model = OnlineGP(kernel, NOISE, input_dim=3)
    model.observe(X, Y)
    case = over_points()
    case.model = AtTime(model.requires_grad_(False), NOW)
    case.twin = AtTime(single_task_gp(X, Y, kernel), NOW)
    return case


MODELS: dict[str, Callable[[], Case]] = {
    "ArmGP, covariance": lambda: over_arms(lambda K: ArmGP(ARMS, K, NOISE, form="covariance")),
    "ArmGP, factor": lambda: over_arms(lambda K: ArmGP(ARMS, K, NOISE, form="factor")),
    "ArmGP at a time": drifting_arms,
    "SketchedGP": lambda: over_arms(lambda K: SketchedGP(ARMS, K, NOISE, sampling=LeverageSampling(1e6))),
    "WeightedGP": lambda: over_arms(lambda K: WeightedGP(ARMS, K, NOISE, discount=1.0)),
    "OnlineGP": over_points,
    "OnlineGP at a time": drifting_points,
}

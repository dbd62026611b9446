"""Every recipe and model, a few steps into its life, and the bad things that are said to it there."""

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmContext, models, recipes
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import Observation
from tests.fuzz.bad_values import COVARIANCE, FEATURES, N
from tests.reference import all_recipes

S, ARMS, STEPS = 2, 11, 4


def policy_of(name: str) -> Any:
    """A policy of this recipe, or variant, that has learned ``STEPS`` observations."""
    return _lived(all_recipes.build(name, S, 20, num_arms=ARMS)[0])


def policy_over_points(name: str) -> Any:
    """The same on a domain of two dimensions."""
    return _lived(all_recipes.build_over_points(name, S, 20)[0])


CONTEXT = ArmContext(torch.tensor([0.5]).double())


def policy_under_contexts(name: str, listed: bool) -> Any:
    """The same under contexts of one number, of three or any."""
    told: dict[str, Any] = {"contexts": torch.tensor([[0.1], [0.5], [0.9]]).double()} if listed else {}
    if name != "auto":
        told |= {
            "kernel": RBFKernel().double(),
            "noise_variance": 0.1,
            "context_kernel": RBFKernel().double(),
        }
    arms = torch.linspace(0, 1, ARMS).double().unsqueeze(-1)
    return _lived(getattr(recipes, name)(arms, context_dim=1, replicates=S, **told), CONTEXT)


def _lived(policy: Any, under: Any = None) -> Any:
    for step in range(1, STEPS + 1):
        choice = policy.choose(float(step), under)
        policy.learn(Observation(float(step), choice.arm, numbers(0.1, -0.2) * step, choice.why))
    return policy


def _drifting() -> SpatioTemporalKernel:
    return SpatioTemporalKernel(ArmCovarianceKernel(COVARIANCE), ExponentialForgettingKernel(0.1))


MODELS: dict[str, Callable[[], Any]] = {
    "ArmGP, covariance": lambda: models.ArmGP(N, COVARIANCE, 0.1, form="covariance", batch_shape=(S,)),
    "ArmGP, factor": lambda: models.ArmGP(N, COVARIANCE, 0.1, form="factor", batch_shape=(S,)),
    "ArmGP, covariance, drift": lambda: models.ArmGP(
        N, _drifting(), 0.1, form="covariance", batch_shape=(S,)
    ),
    "ArmGP, factor, drift": lambda: models.ArmGP(N, _drifting(), 0.1, form="factor", batch_shape=(S,)),
    "OnlineGP": lambda: models.OnlineGP(RBFKernel().double(), 0.1, input_dim=1, batch_shape=(S,)),
    "SketchedGP": lambda: models.SketchedGP(FEATURES, RBFKernel().double(), 0.1, batch_shape=(S,)),
    "WeightedGP": lambda: WeightedGP(N, COVARIANCE, 0.1, discount=0.9, batch_shape=(S,)),
}


def model_of(name: str) -> Any:
    """A model that has observed ``STEPS`` rewards."""
    model = MODELS[name]()
    for step in range(1, STEPS + 1):
        x = torch.full((S, 1, 1), step % N).double()
        x = torch.cat([x, torch.full_like(x, step)], -1) if "drift" in name else x
        model.observe(x, torch.full((S, 1, 1), 0.1 * step).double())
    return model


def state_of(model: Any) -> dict[str, Any]:
    """A copy of a model's state."""
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values).double()

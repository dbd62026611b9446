"""Every recipe and model, a few steps into its life, and the bad things that are said to it there."""

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmContext, make, models, recipes
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import Observation
from tests.fuzz.bad_values import COVARIANCE, FEATURES, N

S = 2
_SMALL = {"hidden": 8, "depth": 2, "training_steps": 2, "least_reward": -1.0}


def policy_of(name: str, steps: int = 3, **options: Any) -> Any:
    """A policy of this recipe that has learned ``steps`` observations."""
    problem = make("hills", num_arms=11, replicates=S)
    small = {key: value for key, value in _SMALL.items() if key in recipes.options_of(name)}
    if recipes.registered(name).one_mean:
        small["prior_mean"] = 0.5  # for the arms' own, which it cannot take
    return _lived(recipes.build(name, problem, replicates=S, horizon=20, **small | options), steps)


def policy_over_points(name: str, steps: int = 3) -> Any:
    """The same on a domain of two dimensions."""
    problem = make("dynamic-levy", dim=2, horizon=20, replicates=S)
    search = {"search": {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 2}}}
    options = search if "search" in recipes.options_of(name) else {}
    return _lived(recipes.build(name, problem, replicates=S, horizon=20, **options), steps)


CONTEXT = ArmContext(torch.tensor([0.5]).double())


def policy_under_contexts(name: str, listed: bool) -> Any:
    """The same under contexts of one number, of three or any."""
    arms, told = make("hills", num_arms=11, replicates=S).arms, {}
    if name != "auto":
        told = {"kernel": RBFKernel().double(), "noise_variance": 0.1, "context_kernel": RBFKernel().double()}
    of_contexts = {"contexts": torch.tensor([[0.1], [0.5], [0.9]]).double()} if listed else {}
    policy = getattr(recipes, name)(arms, context_dim=1, replicates=S, **told, **of_contexts)
    return _lived(policy, 3, CONTEXT)


def _lived(policy: Any, steps: int, under: Any = None) -> Any:
    for step in range(1, steps + 1):
        choice = policy.choose(float(step), under)
        policy.learn(Observation(float(step), choice.arm, numbers(0.1, -0.2) * step, choice.why))
    return policy


def _drifting() -> SpatioTemporalKernel:
    return SpatioTemporalKernel(ArmCovarianceKernel(COVARIANCE), ExponentialForgettingKernel(0.1))


OVER_POINTS = ("auto", "random", "gp_ucb", "gp_ts", "tv_gp_ucb", "et_gp_ucb", "pe_gp_ucb")
# What sw_gp_ucb can be told to learn beside rewards; all of it was chosen or fitted in the steps before.
MORE = {
    "its window": {"window": {"candidates": [2, 9], "every": 2}},
    "its hyperparameters": {"window": 9, "learn_hyperparameters": {"first": 2, "every": 1}},
}

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


def model_of(name: str, steps: int = 3) -> Any:
    """A model that has observed ``steps`` rewards."""
    model = MODELS[name]()
    for step in range(1, steps + 1):
        x = torch.full((S, 1, 1), step % N).double()
        x = torch.cat([x, torch.full_like(x, step)], -1) if "drift" in name else x
        model.observe(x, torch.full((S, 1, 1), 0.1 * step).double())
    return model


def state_of(model: Any) -> dict[str, Any]:
    """A copy of a model's state."""
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values).double()

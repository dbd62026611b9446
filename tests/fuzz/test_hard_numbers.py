"""Settings that are legal and hard: whatever they are, an arm that is there is chosen, by a number that is one."""

import re

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import models, policies, recipes, validation
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import Observation
from tests.reference.kernels import rbf

N, S, T = 6, 2, 12
LINE = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)
MODELS = {
    "covariance": lambda arms, kernel, noise: models.ArmGP(arms, kernel, noise, form="covariance"),
    "factor": lambda arms, kernel, noise: models.ArmGP(arms, kernel, noise, form="factor"),
    "OnlineGP": lambda arms, kernel, noise: models.OnlineGP(kernel, noise, input_dim=1, dtype=arms.dtype),
    "SketchedGP": lambda arms, kernel, noise: models.SketchedGP(
        arms, kernel, noise, sampling=models.LeverageSampling(1e12)
    ),
    "WeightedGP": lambda arms, kernel, noise: WeightedGP(arms, kernel, noise, discount=1 - 1e-12),
}
SMALL = {"hidden": 8, "depth": 2, "training_steps": 2, "least_reward": -1.0}

# arms, noise variance, what the rewards are multiplied by, and what is added to them
HARD = {
    "noise variance 1e-10": (LINE, 1e-10, 1.0, 0.0),
    "noise variance 1e6": (LINE, 1e6, 1.0, 0.0),
    "noise as large as the prior variance": (LINE, 1.0, 1.0, 0.0),
    "one arm": (LINE[3:4], 0.1, 1.0, 0.0),
    "two arms": (LINE[3:5], 0.1, 1.0, 0.0),
    "duplicates, a singular covariance": (LINE[[0, 0, 0, 3, 3, 5]], 1e-4, 1.0, 0.0),
    "nearly identical arms": (0.5 + 1e-9 * LINE, 1e-4, 1.0, 0.0),
    "constant rewards": (LINE, 0.1, 0.0, 3.0),
    "rewards that are all 0": (LINE, 0.1, 0.0, 0.0),
    "rewards of size 1e12": (LINE, 0.1, 1e12, 0.0),
    "rewards about 1e12": (LINE, 0.1, 1.0, 1e12),
    "rewards as large as may be": (LINE, 0.1, 2e139, 0.0),
    "rewards whose squares are 0": (LINE, 0.1, 1e-200, 0.0),
    "rewards without a normal number": (LINE, 0.1, 1e-310, 0.0),
}


def policy_over(name, arms, noise_variance):
    settings = recipes.options_of(name)
    wanted = {"replicates": S, "horizon": T, **SMALL}
    options = {key: value for key, value in wanted.items() if key in settings}
    build = recipes.RECIPES[name]
    kernel = rbf(0.3)
    priors = [models.CandidatePrior(kernel), models.CandidatePrior(kernel, mean=0.5)]
    belief = {"priors": priors, "prior": priors[0]}.get(recipes.registered(name).belief, kernel)
    return build(arms, belief, noise_variance, **options)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=pytest.mark.slow if (i + j) % 2 else ())
        for i, name in enumerate(recipes.RECIPES)
        for j, case in enumerate(HARD)
    ],
)
def test_an_arm_that_is_there_is_chosen(name, case):
    arms, noise_variance, scale, shift = HARD[case]
    if name in ("opnn", "ada_opnn"):
        scale = min(scale, 1e30)  # powers of a reward, by the depth of the network: see the test below
    policy = policy_over(name, arms, noise_variance)
    random = torch.Generator().manual_seed(0)
    for step in range(1, T + 1):
        available = torch.arange(len(arms)) % 2 == (step % 2 if len(arms) > 1 else 0)
        choice = policy.choose(float(step), available)
        assert available[choice.arm].all()
        for value in choice.why.values():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                assert not value.isnan().any()
        reward = scale * torch.randn(S, generator=random, dtype=torch.float64) + shift
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))


def test_rewards_that_no_network_can_be_trained_on_are_refused_by_name():
    features = policies.NeuralFeatures(LINE, width=8, depth=2, training_steps=2)
    counts, sums = torch.ones(N, dtype=torch.float64), 2e139 * LINE.squeeze(-1)
    with pytest.raises(ValueError, match="reward must be of a size near 1, for arms of norms near 1"):
        features.learnt(0, counts, sums)


@pytest.mark.parametrize("dtype", validation.LARGEST_REWARD)
@pytest.mark.parametrize("name", MODELS)
def test_the_largest_reward_leaves_finite_likelihoods_and_a_larger_one_is_refused(name, dtype):
    """In the dtype that computes, whatever that of the rewards."""
    model, most = (
        MODELS[name](torch.eye(2, 1, dtype=dtype), RBFKernel(), 0.01),
        validation.LARGEST_REWARD[dtype],
    )
    X = torch.zeros(1, 1, dtype=dtype)
    for reward in (1.5 * most, -2 * most, 1e200):
        with pytest.raises(ValueError, match=rf"Y must be at most {re.escape(f'{most:g}')} in size"):
            model.observe(X, torch.tensor([[reward]], dtype=torch.float64))
    for _ in range(5):
        for reward in (most, -most):
            model.observe(X, torch.tensor([[reward]], dtype=torch.float64))
    if name not in ("SketchedGP", "WeightedGP"):
        assert model.log_likelihood.isfinite()
    posterior = model.posterior(X)
    assert posterior.mean.isfinite().all()
    assert (posterior.mean.abs() < 1e-3 * most).all()


def truth(arms, kernel, noise, pulled, rewards):
    """Mean and variance by an eigendecomposition, which no singular matrix troubles."""
    with torch.no_grad():
        K = kernel(arms).to_dense()
    A = K[pulled][:, pulled] + noise * torch.eye(len(pulled), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(A)
    weights = K[:, pulled] @ (vectors / values) @ vectors.mT
    return weights @ rewards, K.diagonal() - (weights * K[:, pulled]).sum(-1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("name", MODELS)
def test_the_posterior_is_the_dense_one(name, case):
    arms, noise_variance, scale, shift = HARD[case]
    kernel = rbf(0.3)
    model = MODELS[name](arms, kernel, noise_variance)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(kernel(arms).to_dense())
    function = vectors @ (
        values.clamp_min(0).sqrt() * torch.randn(len(arms), generator=random, dtype=torch.float64)
    )
    pulled = torch.arange(2 * len(arms)) % len(arms)
    noise = noise_variance**0.5 * torch.randn(len(pulled), generator=random, dtype=torch.float64)
    rewards = scale * (function[pulled] + noise) + shift
    index = pulled.double().unsqueeze(-1)
    model.observe(arms[pulled] if name == "OnlineGP" else index, rewards.unsqueeze(-1))
    X = arms if name == "OnlineGP" else torch.arange(len(arms)).double().unsqueeze(-1)
    with torch.no_grad():
        posterior = model.posterior(X.unsqueeze(-2))
    mean, variance = truth(arms, kernel, noise_variance, pulled, rewards)
    size = max(1.0, float(rewards.abs().max()))
    assert float((posterior.mean.flatten() - mean).abs().max()) < 1e-5 * size
    assert float((posterior.variance.flatten() - variance).abs().max()) < 1e-5

"""What theory says of every posterior: data never raise a variance, their order does not matter, forgetting undoes, and
no history holds more information than the bound on the maximum."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from bandits_torch.models import ArmGP, LeverageSampling, OnlineGP, SketchedGP
from bandits_torch.theory import MaximumGain
from tests.reference.kernels import rbf

N = 6
ARMS = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)
few = settings(max_examples=25, deadline=None, derandomize=True)
histories = st.lists(st.tuples(st.integers(0, N - 1), st.floats(-5, 5)), min_size=1, max_size=12)
noises = st.sampled_from([1e-4, 0.1, 10.0])


def kernel():
    return rbf(0.3).requires_grad_(False)


K = kernel()(ARMS).to_dense()
MODELS = {
    "covariance": lambda noise: ArmGP(ARMS, kernel(), noise, form="covariance"),
    "factor": lambda noise: ArmGP(ARMS, kernel(), noise, form="factor"),
    "OnlineGP": lambda noise: OnlineGP(kernel(), noise, input_dim=1),
    "SketchedGP": lambda noise: SketchedGP(ARMS, kernel(), noise, sampling=LeverageSampling(1e12)),
}
every_model = pytest.mark.parametrize("name", MODELS)


def learn(model, history):
    for arm, reward in history:
        x = ARMS[arm] if isinstance(model, OnlineGP) else torch.tensor([float(arm)], dtype=torch.float64)
        model.observe(x.unsqueeze(0), torch.tensor([[reward]], dtype=torch.float64))
    return model


def belief(model):
    x = ARMS if isinstance(model, OnlineGP) else torch.arange(N, dtype=torch.float64).unsqueeze(-1)
    posterior = model.posterior(x.unsqueeze(-2))
    return posterior.mean.flatten(), posterior.variance.flatten()


@pytest.mark.sampled(3)
@every_model
@few
@given(history=histories, noise=noises)
def test_data_never_raise_a_variance(name, history, noise):
    model = MODELS[name](noise)
    before = belief(model)[1]
    for observation in history:
        after = belief(learn(model, [observation]))[1]
        assert (after <= before + 1e-9).all()
        before = after


@every_model
@few
@given(history=histories, noise=noises)
def test_information_lies_between_its_bounds(name, history, noise):
    """At least what the first observation gives, 1/2 ln(1 + k/lambda); at most n times that, and at most gamma_n."""
    model = learn(MODELS[name](noise), history)
    gain, n = float(model.information_gain), len(history)
    assert gain >= 0.5 * math.log1p(1 / noise) - 1e-9
    assert gain <= float(MaximumGain(K, noise, n)(n, model)) + 1e-6
    assert gain <= 0.5 * n * math.log1p(1 / noise) + 1e-9

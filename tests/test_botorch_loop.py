"""A BoTorch user's own loops, with our kernels, models and acquisitions in the places of BoTorch's."""

import math

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    PosteriorStandardDeviation,
    qLowerBoundMaxValueEntropy,
    qMaxValueEntropy,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.utils import standardize
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from bandits_torch import ArmGP, OnlineGP, ThompsonSampling, UpperConfidenceBound
from bandits_torch.acquisition import OptimisticOverPriors
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import AtTime
from bandits_torch.theory import SrinivasBayesianWidth
from tests.reference.arm_gp_twins import smooth

SPACE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def moving_hill(X):
    """A hill whose top goes round a circle; X is n x 3, time last in [0, 1]."""
    angle = 2 * math.pi * X[:, 2]
    top = 0.5 + 0.3 * torch.stack([angle.cos(), angle.sin()], -1)
    return (-8 * (X[:, :2] - top).square().sum(-1)).exp().unsqueeze(-1)


def moving_kernel():
    kernel = SpatioTemporalKernel(MaternKernel(nu=2.5), ExponentialForgettingKernel(0.9)).double()
    kernel.space_kernel.lengthscale = 0.3
    return kernel


def built_anew():
    def model_of(X, Y):
        noise, covariance = torch.full_like(Y, 1e-4), ScaleKernel(moving_kernel()).double()
        return SingleTaskGP(X, standardize(Y), noise, covar_module=covariance, outcome_transform=None)

    return model_of


def told_what_is_new():
    model = OnlineGP(moving_kernel(), 1e-4, input_dim=3)

    def model_of(X, Y):
        known = int(model.num_observations)
        model.observe(X[known:], Y[known:])
        return model

    return model_of


@pytest.mark.parametrize("way", [built_anew, told_what_is_new])
def test_a_moving_optimum_is_followed_with_time_as_a_fixed_feature(way):
    model_of, X = way(), torch.rand(6, 3).double()
    X[:, 2] = torch.linspace(0.0, 0.05, 6)
    Y = moving_hill(X)
    for step in range(24):
        time = 0.05 + 0.02 * step
        bounds = torch.cat([SPACE, torch.tensor([[0.0], [1.0]]).double()], -1)
        ucb, search = UpperConfidenceBound(model_of(X, Y), 1.0), {"num_restarts": 2, "raw_samples": 64}
        x, _ = optimize_acqf(ucb, bounds, q=1, fixed_features={2: time}, **search)
        assert x[0, 2] == time
        X, Y = torch.cat([X, x]), torch.cat([Y, moving_hill(x)])
    anywhere = torch.rand(4000, 3).double()
    assert Y[-10:].mean() > 2 * moving_hill(anywhere).mean()


def test_our_kernels_are_fitted_as_any_other():
    X = torch.cat([torch.rand(40, 1), torch.arange(40).unsqueeze(-1)], -1).double()
    space, time = MaternKernel(nu=2.5), ExponentialForgettingKernel(0.5)
    truth = SpatioTemporalKernel(MaternKernel(nu=2.5).double(), ExponentialForgettingKernel(0.05))
    with torch.no_grad():
        root = torch.linalg.cholesky(truth(X).to_dense() + 1e-8 * torch.eye(40).double())
    Y = root @ torch.randn(40, 1).double()
    kernel = ScaleKernel(SpatioTemporalKernel(space, time)).double()
    model = SingleTaskGP(
        X, standardize(Y), torch.full_like(Y, 1e-3), covar_module=kernel, outcome_transform=None
    )
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    before = likelihood(model(*model.train_inputs), model.train_targets, *model.train_inputs).item()
    model.eval()
    fit_gpytorch_mll(likelihood)
    assert time.forgetting_rate.item() < 0.4  # from 0.5 towards 0.05
    model.train()
    assert likelihood(model(*model.train_inputs), model.train_targets, *model.train_inputs).item() > before


def test_arm_gp_takes_over_the_kernel_and_noise_that_botorch_has_fitted():
    arms = torch.rand(15, 2).double()
    X, Y = arms[:10], moving_hill(torch.cat([arms[:10], torch.zeros(10, 1)], -1))
    fitted = SingleTaskGP(X, standardize(Y), outcome_transform=None)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(fitted.likelihood, fitted))
    mean, noise = fitted.mean_module.constant, fitted.likelihood.noise.squeeze(-1)
    for form in ("covariance", "factor"):
        model = ArmGP(arms, fitted.covar_module, noise, prior_mean=mean, form=form)
        model.observe(torch.arange(10).double().unsqueeze(-1), standardize(Y))
        assert not model.marginals()[0].requires_grad
        with torch.no_grad():
            expected = fitted.posterior(arms)
        torch.testing.assert_close(model.marginals()[0], expected.mean.squeeze(-1), rtol=0, atol=1e-6)
        torch.testing.assert_close(model.marginals()[1], expected.variance.squeeze(-1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("acquisition", ["ours", "thompson", "theirs"])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_arm_gp_in_a_loop_over_a_list_of_candidates(form, acquisition):
    arms = 60
    f = torch.linalg.cholesky(smooth(arms) + 1e-8 * torch.eye(arms).double()) @ torch.randn(arms).double()
    model = ArmGP(arms, smooth(arms), 0.01, form=form)
    choices = model.candidates().squeeze(-2)
    for _ in range(30):
        if acquisition == "ours":
            scored = UpperConfidenceBound(model, SrinivasBayesianWidth(arms, 0.1))
        elif acquisition == "thompson":
            scored = ThompsonSampling(model)
        else:
            scored = LogExpectedImprovement(model, best_f=model.marginals()[0].max())
        x, _ = optimize_acqf_discrete(scored, q=1, choices=choices)
        y = f[x.long()] + 0.1 * torch.randn(1, 1).double()
        model.observe(x, y)
    assert model.train_inputs[0].shape == (30, 1)
    recommended = f[model.marginals()[0].argmax()]
    assert f.max() - recommended < 0.1 * (f.max() - f.mean())


def test_arm_gp_under_drift_in_a_loop_over_a_list_of_candidates():
    """BoTorch's condition_on_observations serves as well as observe: it returns the model of the next step."""
    arms = 20
    time = ExponentialForgettingKernel(0.05)
    model = ArmGP(arms, SpatioTemporalKernel(ArmCovarianceKernel(smooth(arms)), time), 0.01)
    for step in range(15):
        choices = model.candidates(float(step)).squeeze(-2)
        x, _ = optimize_acqf_discrete(UpperConfidenceBound(model, 2.0), q=1, choices=choices)
        y = torch.sin(x[:, :1] / 3 + step / 5)
        following = model.condition_on_observations(x, y)
        assert model.num_observations == step
        model = following
    assert model.num_observations == 15
    assert model.now == 14.0


BATCHES = {
    "thompson": lambda model, arms: ThompsonSampling(model),
    "ucb": lambda model, arms: UpperConfidenceBound(model, 2.0),
    "max-value entropy": qMaxValueEntropy,
    "gibbon": qLowerBoundMaxValueEntropy,
}


@pytest.mark.filterwarnings("ignore:A not p.d.")  # an arm and its own past, seen beside each other
@pytest.mark.parametrize("name", BATCHES)
def test_arms_are_chosen_three_at_a_time(name):
    arms = 30
    f = torch.linalg.cholesky(smooth(arms) + 1e-8 * torch.eye(arms).double()) @ torch.randn(arms).double()
    model = ArmGP(arms, smooth(arms), 0.01)
    choices = model.candidates().squeeze(-2)
    model.observe(choices[:1], f[:1].unsqueeze(-1))
    for _ in range(6):
        x, _ = optimize_acqf_discrete(BATCHES[name](model, choices), q=3, choices=choices)
        assert len(x.unique()) == 3
        model.observe(x, f[x.long()] + 0.1 * torch.randn(3, 1).double())
    assert model.num_observations == 19
    assert f.max() - f[model.marginals()[0].argmax()] < 0.2 * (f.max() - f.mean())


@pytest.mark.filterwarnings("ignore:A not p.d.")
def test_drifting_arms_are_chosen_in_batches_by_entropy_at_the_present():
    arms = torch.arange(12).double().unsqueeze(-1)
    time = ExponentialForgettingKernel(0.05)
    model = ArmGP(12, SpatioTemporalKernel(ArmCovarianceKernel(smooth(12)), time), 0.01)
    for step in range(6):
        now = AtTime(model, float(step))
        x, _ = optimize_acqf_discrete(qLowerBoundMaxValueEntropy(now, arms, train_inputs=arms[:0]), 2, arms)
        model = now.condition_on_observations(x, torch.sin(x / 3 + step / 5)).model
    assert model.num_observations == 12
    assert model.now == 5.0


@pytest.mark.filterwarnings("ignore:All acquisition values")  # they are the same
@pytest.mark.parametrize("of", ["bound", "bound over priors", "deviation"])
def test_a_loop_begins_before_the_first_observation(of):
    batch = (2,) if of == "bound over priors" else ()
    model = OnlineGP(MaternKernel(2.5), 0.1, prior_mean=0.5, input_dim=2, batch_shape=batch)
    score = PosteriorStandardDeviation(model) if of == "deviation" else UpperConfidenceBound(model, 2.0)
    if batch:
        score = OptimisticOverPriors(score)
    square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    x, value = optimize_acqf(score, square, q=1, num_restarts=2, raw_samples=4)
    assert bool(((x >= 0) & (x <= 1)).all())
    assert value == (1.0 if of == "deviation" else 2.5)

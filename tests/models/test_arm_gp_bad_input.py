"""Bad input raises ValueError that names the argument, and nothing has changed."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.acquisition import ThompsonSampling
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.forgetting import SlidingWindow
from bandits_torch.policies.index import IndexPolicy
from tests.reference.arm_gp_twins import smooth

N, S = 6, 2
NAN = math.nan
FORMS = ["covariance", "factor"]


def drifting_kernel():
    return SpatioTemporalKernel(
        ArmCovarianceKernel(smooth(N)), ExponentialForgettingKernel(torch.tensor(0.2).double())
    )


def model_of(form, drifts=False):
    model = ArmGP(N, drifting_kernel() if drifts else smooth(N), 0.1, form=form, batch_shape=(S,))
    for step in range(3):
        model.observe_arms(torch.tensor([step, 1]), torch.tensor([1.0, -1.0]), float(step))
    return model


def numbers(*values):
    return torch.tensor(values).double()


def state_of(model):
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}


def assert_unchanged(model, before):
    after = model.state_dict()
    assert after.keys() == before.keys()
    for name, value in before.items():
        same = torch.equal(after[name], value) if isinstance(value, torch.Tensor) else after[name] == value
        assert same, name


X, Y = torch.zeros(S, 2, 1).double(), torch.ones(S, 2, 1).double()
TIMED = torch.tensor([[0.0, 5.0], [1.0, 6.0]]).double().expand(S, 2, 2)  # arm, time


def with_value(tensor, value):
    tensor = tensor.clone()
    tensor[0, -1, 0] = value
    return tensor


# What is called, with what, and the name the message must hold.
BAD_CALLS = {
    "NaN reward": ("observe", (X, with_value(Y, NAN)), "Y"),
    "infinite reward": ("observe", (X, with_value(Y, math.inf)), "Y"),
    "NaN arm": ("observe", (with_value(X, NAN), Y), "X"),
    "arm too large": ("observe", (with_value(X, N), Y), "X"),
    "negative arm": ("observe", (with_value(X, -1), Y), "X"),
    "fraction of an arm": ("observe", (with_value(X, 0.5), Y), "X"),
    "X of one dimension": ("observe", (X[0, 0], Y), "X"),
    "X with features": ("observe", (X.expand(S, 2, 3), Y), "X"),
    "X of another batch": ("observe", (X[:1].expand(3, 2, 1), Y), "X"),
    "X of more batch dimensions": ("observe", (X.expand(4, S, 2, 1), Y), "X"),
    "Y of one dimension": ("observe", (X, Y[0, :, 0]), "Y"),
    "Y of two outputs": ("observe", (X, Y.expand(S, 2, 2)), "Y"),
    "Y of another length": ("observe", (X, Y[:, :1]), "Y"),
    "Y of another batch": ("observe", (X, Y[:1].expand(3, 2, 1)), "Y"),
    "where of another shape": ("observe", (X, Y, torch.ones(3, dtype=torch.bool)), "where"),
    "where of numbers": ("observe", (X, Y, torch.ones(S)), "where"),
    "NaN pulled": ("observe_arms", (torch.tensor([0, 1]), numbers(1, NAN)), "reward"),
    "infinity pulled": ("observe_arms", (torch.tensor([0, 1]), numbers(1, -math.inf)), "reward"),
    "arm pulled too large": ("observe_arms", (torch.tensor([0, N]), numbers(1, 1)), "arm"),
    "arm pulled negative": ("observe_arms", (torch.tensor([-1, 0]), numbers(1, 1)), "arm"),
    "arm pulled no integer": ("observe_arms", (numbers(0, 1), numbers(1, 1)), "arm"),
    "arms pulled of another shape": ("observe_arms", (torch.tensor([0, 1, 2]), numbers(1, 1)), "arm"),
    "rewards of another shape": ("observe_arms", (torch.tensor([0, 1]), numbers(1, 1, 1)), "reward"),
    "mask of another shape": (
        "observe_arms",
        (torch.tensor(0), numbers(1, 1), None, torch.ones(3) > 0),
        "where",
    ),
    "forget nothing": ("forget", (0,), "count"),
    "forget a fraction": ("forget", (1.5,), "count"),
    "forget more than held": ("forget", (4,), "count"),
    "forget where of another shape": ("forget", (1, torch.ones(3) > 0), "where"),
    "reset where of another shape": ("reset", (torch.ones(3) > 0,), "where"),
    "reset where of numbers": ("reset", (torch.ones(S),), "where"),
    "posterior of no arm": ("posterior", (torch.full((1, 1), 6.0),), "X"),
    "posterior of two columns": ("posterior", (torch.zeros(1, 2),), "X"),
    "posterior of another batch": ("posterior", (torch.zeros(3, 1, 1),), "X"),
}
BAD_TIMED_CALLS = {
    "time missing": ("observe_arms", (torch.tensor(0), numbers(1, 1)), "time"),
    "time missing in X": ("observe", (X, Y), "X"),
    "reversed time": ("observe_arms", (torch.tensor(0), numbers(1, 1), 1.9), "time"),
    "NaN time": ("observe_arms", (torch.tensor(0), numbers(1, 1), NAN), "time"),
    "infinite time": ("observe_arms", (torch.tensor(0), numbers(1, 1), math.inf), "time"),
    "reversed time in X": ("observe", (TIMED - numbers(0, 4), Y), "time"),
    "times in X that decrease": ("observe", (TIMED.flip(-2), Y), "X"),
    "NaN time in X": ("observe", (TIMED * NAN, Y), "X"),
    "times that differ between members": ("observe", (TIMED + numbers(0, 1).reshape(S, 1, 1), Y), "X"),
    "late NaN reward": ("observe_arms", (torch.tensor(0), numbers(1, NAN), 9.0), "reward"),
    "late arm that is none": ("observe_arms", (torch.tensor(N), numbers(1, 1), 9.0), "arm"),
    "late rewards of another shape": ("observe_arms", (torch.tensor(0), numbers(1, 1, 1), 9.0), "reward"),
    "late mask of another shape": (
        "observe_arms",
        (torch.tensor(0), numbers(1, 1), 9.0, torch.ones(3) > 0),
        "where",
    ),
    "candidates in the past": ("candidates", (1.0,), "time"),
    "candidates at no time": ("candidates", (), "time"),
    "marginals in the past": ("marginals", (1.0,), "time"),
    "joint in the past": ("joint", (1.0,), "time"),
    "posterior in the past": ("posterior", (numbers(0, 1).reshape(1, 2),), "time"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
@pytest.mark.parametrize("form", FORMS)
def test_bad_call_is_refused_by_name_and_changes_nothing(form, case):
    model = model_of(form)
    before = state_of(model)
    method, arguments, name = BAD_CALLS[case]
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        getattr(model, method)(*arguments)
    assert_unchanged(model, before)


@pytest.mark.parametrize("case", BAD_TIMED_CALLS)
@pytest.mark.parametrize("form", FORMS)
def test_bad_call_on_a_drifting_model_is_refused_by_name_and_changes_nothing(form, case):
    model = model_of(form, drifts=True)
    before = state_of(model)
    method, arguments, name = BAD_TIMED_CALLS[case]
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        getattr(model, method)(*arguments)
    assert_unchanged(model, before)


def test_covariance_form_cannot_forget_under_drift():
    model = model_of("covariance", drifts=True)
    assert not model.can_forget
    before = state_of(model)
    with pytest.raises(ValueError, match="form"):
        model.forget()
    assert_unchanged(model, before)


def test_a_window_over_a_model_that_cannot_forget_fails_where_it_is_built():
    for form in ("factor", "auto"):
        assert model_of(form, drifts=True).can_forget
    with pytest.raises(ValueError, match="SlidingWindow needs a model that can forget"):
        IndexPolicy(model_of("covariance", drifts=True), ThompsonSampling, forgetting=SlidingWindow(3))


def test_observations_that_differ_in_number_cannot_be_listed():
    model = model_of("factor")
    model.forget(where=torch.tensor([True, False]))
    for listing in ("train_inputs", "train_targets"):
        with pytest.raises(ValueError, match="num_observations"):
            getattr(model, listing)


ASYMMETRIC = torch.tensor([[1.0, 0.5], [0.1, 1.0]]).double()
INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]]).double()
BAD_MODELS = {
    "no arms": (lambda: ArmGP(0, smooth(1), 0.1), "arms"),
    "negative number of arms": (lambda: ArmGP(-3, smooth(1), 0.1), "arms"),
    "empty arm set": (lambda: ArmGP(torch.zeros(0, 2), RBFKernel(), 0.1), "arms"),
    "arms of one dimension": (lambda: ArmGP(torch.zeros(4), RBFKernel(), 0.1), "arms"),
    "NaN arm": (lambda: ArmGP(torch.full((2, 1), NAN), RBFKernel(), 0.1), "arms"),
    "asymmetric covariance": (lambda: ArmGP(2, ASYMMETRIC, 0.1), "covariance"),
    "indefinite covariance": (lambda: ArmGP(2, INDEFINITE, 0.1), "covariance"),
    "NaN covariance": (lambda: ArmGP(2, torch.full((2, 2), NAN), 0.1), "covariance"),
    "covariance not square": (lambda: ArmGP(2, torch.zeros(2, 3), 0.1), "covariance"),
    "covariance of more arms": (lambda: ArmGP(2, smooth(3), 0.1), "kernel"),
    "covariance of fewer arms": (lambda: ArmGP(4, smooth(3), 0.1), "kernel"),
    "noise 0": (lambda: ArmGP(2, smooth(2), 0.0), "noise_variance"),
    "negative noise": (lambda: ArmGP(2, smooth(2), -0.1), "noise_variance"),
    "NaN noise": (lambda: ArmGP(2, smooth(2), NAN), "noise_variance"),
    "infinite noise": (lambda: ArmGP(2, smooth(2), math.inf), "noise_variance"),
    "one bad noise of several": (lambda: ArmGP(2, smooth(2), torch.tensor([0.1, 0.0])), "noise_variance"),
    "prior mean of another length": (
        lambda: ArmGP(2, smooth(2), 0.1, prior_mean=torch.zeros(3)),
        "prior_mean",
    ),
    "NaN prior mean": (lambda: ArmGP(2, smooth(2), 0.1, prior_mean=NAN), "prior_mean"),
    "unknown form": (lambda: ArmGP(2, smooth(2), 0.1, form="fast"), "form"),
    "batches that do not broadcast": (
        lambda: ArmGP(2, smooth(2), torch.ones(3), batch_shape=(2,)),
        "batch_shape",
    ),
    "time kernel that is not Markov": (
        lambda: ArmGP(2, SpatioTemporalKernel(ArmCovarianceKernel(smooth(2)), RBFKernel()), 0.1),
        "kernel.time_kernel",
    ),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_model_is_refused_by_name(case):
    build, name = BAD_MODELS[case]
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        build()


def test_a_kernel_that_is_none_is_refused():
    with pytest.raises(ValueError, match="kernel"):
        ArmGP(2, "rbf", 0.1)

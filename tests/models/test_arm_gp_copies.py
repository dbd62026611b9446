"""Copies of ArmGP that learn apart, fantasies, and state that comes back."""

import copy

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, SketchedGP
from tests.reference.arm_gp_twins import isolated, smooth
from tests.reference.kernels import rbf

N = 8
FORMS = ["covariance", "factor"]


def blank(form, drifts=False, batch=()):
    """A model of batch (*batch, 2): two priors of different covariance, drift and noise."""
    kernel = ArmCovarianceKernel(torch.stack([smooth(N, 0.3), isolated(N)]))
    if drifts:
        rates = torch.tensor([0.1, 0.5]).double()
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(rates, batch_shape=(2,)))
    return ArmGP(N, kernel, torch.tensor([0.01, 0.2]), prior_mean=0.3, form=form, batch_shape=(*batch, 2))


def learn(model, steps, first=0):
    shape = model.batch_shape
    for step in range(first, first + steps):
        where = torch.rand(shape) < 0.8
        model.observe_arms(torch.randint(N, shape), torch.randn(shape).double(), float(step), where)
    return model


@pytest.mark.parametrize("form", FORMS)
def test_kernels_of_the_outer_dimension_expand_in_the_inner(form):
    kernels = torch.stack([smooth(N), 2 * smooth(N, 0.1)]).unsqueeze(1)  # 2 x 1
    model = learn(ArmGP(N, kernels, 0.1, form=form), 9)
    wide = model.expand(torch.Size([2, 3]))
    arm, reward = torch.randint(N, (2, 3)), torch.randn(2, 3).double()
    wide.observe_arms(arm, reward)
    for k in range(3):
        alone = copy.deepcopy(model)
        alone.observe_arms(arm[:, k : k + 1], reward[:, k : k + 1])
        for together, apart in zip(wide.joint(), alone.joint(), strict=True):
            torch.testing.assert_close(together[:, k], apart[:, 0])
    wide.reset()
    torch.testing.assert_close(wide.joint()[1], kernels.expand(2, 3, N, N))


def test_hyperparameters_that_come_with_a_state_are_used():
    """A step of the same length as the last must not be taken at the old rate."""
    slow, fast = (
        ArmGP(N, SpatioTemporalKernel(ArmCovarianceKernel(smooth(N)), ExponentialForgettingKernel(rate)), 0.1)
        for rate in (0.01, 0.5)
    )
    for model in (slow, fast):
        for time in (1.0, 2.0):
            model.observe_arms(torch.tensor(3), torch.tensor(1.0), time)
    slow.load_state_dict(fast.state_dict())
    torch.testing.assert_close(slow.marginals(3.0), fast.marginals(3.0), rtol=0, atol=0)


def test_state_of_another_model_is_refused():
    state = learn(blank("covariance"), 4).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        ArmGP(N + 1, smooth(N + 1), 0.1, batch_shape=(2,)).load_state_dict(state)


@pytest.mark.parametrize("prior_mean", [0.0, torch.zeros(N)])
def test_loading_writes_into_nothing_of_the_caller_s(prior_mean):
    arms, noise = torch.rand(N, 2).double(), torch.tensor(0.1).double()
    kept = arms.clone()
    model = ArmGP(arms, RBFKernel().double(), noise, prior_mean=prior_mean)
    other = ArmGP(arms + 1, RBFKernel().double(), 0.2, prior_mean=1.0)
    model.load_state_dict(other.state_dict())
    assert torch.equal(arms, kept)
    assert noise == torch.tensor(0.1).double()


def hyperparameters_in(state):
    return [key for key in state if key.endswith("raw_lengthscale")], [
        key for key in state if key.endswith("noise_variance")
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("form", ["covariance", "factor", "SketchedGP"])
def test_a_state_holds_hyperparameters_once_and_all_parts_follow_them(form, dtype):
    def model(lengthscale, noise):
        kernel = rbf(lengthscale)
        arms = torch.linspace(0, 1, N, dtype=dtype).unsqueeze(-1)
        if form == "SketchedGP":
            return SketchedGP(arms, kernel, noise, batch_shape=(2,))
        return ArmGP(arms, kernel, noise, form=form, batch_shape=(2,))

    source, target = model(0.3, 0.1), model(0.7, 0.5)
    assert [len(found) for found in hyperparameters_in(source.state_dict())] == [1, 1]
    for step in range(3):
        source.observe_arms(torch.tensor(step), torch.tensor(0.5, dtype=dtype))
    target.load_state_dict(source.state_dict())
    for step in range(3, 7):  # arms whose rows of the prior are evaluated after the state was taken up
        for one in (source, target):
            one.observe_arms(torch.tensor(step % N), torch.tensor(-0.5, dtype=dtype))
    torch.testing.assert_close(source.marginals(), target.marginals(), rtol=0, atol=0)


@pytest.mark.parametrize("wide_from_start", [False, True])
def test_a_state_is_taken_whether_the_batch_was_wide_from_the_start_or_made_wide(wide_from_start):
    """Rows wait in large batches: what one form holds, the other would not have begun with."""
    n, batch = 400, torch.Size((8,))
    made = ArmGP(n, smooth(n, 0.1), 0.1, form="covariance").expand(batch)
    begun = ArmGP(n, smooth(n, 0.1), 0.1, form="covariance", batch_shape=batch)
    told, other = (begun, made) if wide_from_start else (made, begun)
    learn(told, 5)
    other.load_state_dict(told.state_dict())
    for model in (told, other):
        torch.manual_seed(0)
        learn(model, 40)
    torch.testing.assert_close(
        (*told.joint(), *told.marginals()), (*other.joint(), *other.marginals()), rtol=0, atol=0
    )

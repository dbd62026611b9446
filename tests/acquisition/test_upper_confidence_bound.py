"""UpperConfidenceBound against BoTorch's, and what it adds."""

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound as BoTorchUCB
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from botorch.utils import standardize
from gpytorch.kernels import MaternKernel

from bandits_torch import ArmGP, OnlineGP, UpperConfidenceBound
from bandits_torch.theory import ConstantWidth, IGPWidth, RealisedGain, SrinivasBayesianWidth
from tests.reference.arm_gp_twins import smooth

N = 9
exactly = {"rtol": 1e-12, "atol": 1e-12}


def arm_gp(batch=()):
    model = ArmGP(N, smooth(N), 0.05, batch_shape=batch)
    for _ in range(5):
        model.observe_arms(torch.randint(N, batch), torch.randn(batch).double())
    return model


def continuous(kind):
    X, Y = torch.rand(8, 2).double(), torch.randn(8, 1).double()
    if kind == "SingleTaskGP":
        return SingleTaskGP(X, standardize(Y), outcome_transform=None)
    model = OnlineGP(MaternKernel(nu=2.5).double(), 0.1, input_dim=2)
    model.observe(X, Y)
    return model


@pytest.mark.parametrize("width", [0.0, 0.1, 1.81, 7.0])
@pytest.mark.parametrize("kind", ["ArmGP", "SingleTaskGP", "OnlineGP"])
def test_equals_botorch_with_beta_the_square_of_the_width(kind, width):
    model = arm_gp() if kind == "ArmGP" else continuous(kind)
    X = model.candidates() if kind == "ArmGP" else torch.rand(20, 1, 2).double()
    with torch.no_grad():
        ours = UpperConfidenceBound(model, width)(X)
        theirs = BoTorchUCB(model, beta=torch.tensor(width**2, dtype=torch.float64))(X)
    assert ours.shape == (len(X),)
    torch.testing.assert_close(ours, theirs, **exactly)


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_rewards_may_be_in_any_unit(unit):
    def values(unit):
        model = ArmGP(N, unit**2 * smooth(N), 0.05 * unit**2)
        model.observe_arms(torch.tensor(2), torch.tensor(0.7 * unit).double())
        return UpperConfidenceBound(model, 2.0)(model.candidates())

    assert torch.equal(values(unit), unit * values(1.0))


def test_every_replicate_has_its_own_width():
    model = arm_gp((3,))
    widths = torch.tensor([0.0, 1.0, 5.0])  # float32: taken over into the model's dtype
    values = UpperConfidenceBound(model, widths)(model.candidates())
    assert values.shape == (N, 3)
    mean, variance = model.marginals()
    for k, width in enumerate(widths.tolist()):
        torch.testing.assert_close(values[:, k], mean[k] + width * variance[k].sqrt(), **exactly)


def test_widths_of_replicates_and_priors_broadcast():
    model = arm_gp((2, 3))
    widths = torch.tensor([[1.0, 2.0, 3.0]]).double()  # one per prior
    values = UpperConfidenceBound(model, widths)(model.candidates())
    mean, variance = model.marginals()
    expected = mean + widths.unsqueeze(-1) * variance.sqrt()
    torch.testing.assert_close(values, expected.movedim(-1, 0), **exactly)


@pytest.mark.parametrize(
    "width", [SrinivasBayesianWidth(N, 0.1), ConstantWidth(2.5), IGPWidth(1.0, 0.2, 0.1, RealisedGain())]
)
def test_a_width_is_evaluated_at_the_step_after_the_observations(width):
    model = arm_gp((2,))
    model.forget(where=torch.tensor([True, False]))
    acquisition = UpperConfidenceBound(model, width)
    torch.testing.assert_close(acquisition.width, width(torch.tensor([5, 6]), model))


def test_a_width_on_a_model_that_counts_no_observations_is_refused():
    with pytest.raises(ValueError, match="model must be an OnlineModel"):
        UpperConfidenceBound(continuous("SingleTaskGP"), SrinivasBayesianWidth(N, 0.1))


def test_is_found_by_name_and_optimised_over_choices():
    model = arm_gp()
    assert get_acqf_input_constructor(UpperConfidenceBound)(model=model, training_data=None)["width"] == 2.0
    arguments = get_acqf_input_constructor(UpperConfidenceBound)(model=model, training_data=None, width=1.5)
    acquisition = UpperConfidenceBound(**arguments)
    best, value = optimize_acqf_discrete(acquisition, q=1, choices=model.candidates().squeeze(-2))
    mean, variance = model.marginals()
    index = mean + 1.5 * variance.sqrt()
    assert int(best) == int(index.argmax())
    torch.testing.assert_close(value, index.max())


def test_more_than_one_point_at_a_time_is_refused():
    with pytest.raises(ValueError, match="q must be 1: qUpperConfidenceBound"):
        UpperConfidenceBound(arm_gp(), 1.0)(torch.zeros(4, 2, 1).double())

"""Bad input raises ValueError that names the argument, and nothing has changed."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, IndexPolicy, ThompsonSampling
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import SlidingWindow
from tests.reference.arm_gp_twins import smooth

N, S = 6, 2


def drifting_kernel():
    return SpatioTemporalKernel(ArmCovarianceKernel(smooth(N)), ExponentialForgettingKernel(0.2))


def model_of(form, drifts=False):
    model = ArmGP(N, drifting_kernel() if drifts else smooth(N), 0.1, form=form, batch_shape=(S,))
    for step in range(3):
        model.observe_arms(torch.tensor([step, 1]), torch.tensor([1.0, -1.0]), float(step))
    return model


def test_covariance_form_cannot_forget_under_drift():
    model = model_of("covariance", drifts=True)
    assert not model.can_forget
    with pytest.raises(ValueError, match="form"):
        model.forget()


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


BAD_MODELS = {
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
    """Other arguments, and what a model is told: tests/fuzz."""
    build, name = BAD_MODELS[case]
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        build()

"""One joint draw of the whole function: what it is made of, whose it is, where it can be asked."""

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from botorch.utils import standardize
from gpytorch.kernels import MaternKernel

from bandits_torch import ArmGP, OnlineGP, ThompsonSampling
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.theory import ConstantWidth
from tests.reference.arm_gp_twins import isolated, smooth

N = 7
exactly = {"rtol": 1e-9, "atol": 1e-9}


def arm_gp(batch=(), kernel=None, form="covariance", steps=5):
    model = ArmGP(N, smooth(N, 0.3) if kernel is None else kernel, 0.05, batch_shape=batch, form=form)
    for step in range(steps):
        model.observe_arms(torch.randint(N, batch), torch.randn(batch).double(), float(step))
    return model


def drifting_kernel(rate=0.3):
    time = ExponentialForgettingKernel(rate)
    return SpatioTemporalKernel(ArmCovarianceKernel(smooth(N, 0.3)), time)


def draw_of(model, X, **arguments):
    return ThompsonSampling(model, **arguments)(X)


@pytest.mark.parametrize("width", [1.0, 2.5, ConstantWidth(2.5), torch.tensor([0.5, 3.0])])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_moments_of_the_draw_are_the_posterior_s_with_the_width_on_sigma(form, width):
    """The draw is linear in its base samples, so unit vectors show its mean and its whole covariance."""
    model = arm_gp((2,), form=form)
    X, zero = model.candidates(), torch.zeros(2, N).double()
    centre = draw_of(model, X, width=width, base_samples=zero)
    unit = torch.eye(N).double()
    root = torch.stack(
        [draw_of(model, X, width=width, base_samples=unit[k].expand(2, N)) - centre for k in range(N)], -1
    )
    mean, covariance = model.joint()
    factor = torch.as_tensor(width.value if isinstance(width, ConstantWidth) else width).double().expand(2)
    for k in range(2):
        torch.testing.assert_close(centre[:, k], mean[k], **exactly)
        torch.testing.assert_close(root[:, k] @ root[:, k].T, factor[k] ** 2 * covariance[k], **exactly)


def test_the_draw_is_of_the_time_at_which_arms_will_be_pulled():
    model = arm_gp(kernel=drifting_kernel())
    X, samples = model.candidates(9.0), torch.randn(N).double()
    mean, covariance = model.joint(9.0)
    lifted = covariance + 1e-12 * covariance.diagonal().max() * torch.eye(N).double()
    expected = mean + torch.linalg.cholesky(lifted) @ samples
    torch.testing.assert_close(draw_of(model, X, base_samples=samples, time=9.0), expected, **exactly)
    assert not torch.allclose(draw_of(model, X, base_samples=samples), expected)


def test_asked_again_it_answers_the_same():
    model = arm_gp((3,))
    acquisition = ThompsonSampling(model)
    first = acquisition(model.candidates())
    assert first.shape == (N, 3)
    assert torch.equal(acquisition(model.candidates().clone()), first)
    shuffled = torch.randperm(N)
    assert torch.equal(acquisition(model.candidates()[shuffled]), first[shuffled])


def test_every_batch_member_has_a_draw_of_its_own():
    model = ArmGP(N, smooth(N), 0.1, batch_shape=(40,))
    best = ThompsonSampling(model)(model.candidates()).argmax(0)
    assert best.unique().numel() > 2


def test_replicates_draw_as_they_would_alone_also_beside_one_that_is_singular():
    """An almost certain, singular member needs more jitter; the others must not get it."""
    good, samples = isolated(N), torch.randn(2, N).double()
    bad = smooth(N, 1e6) * 0.5 + 0.5  # every arm the same: rank one up to rounding, and slightly indefinite
    bad = bad - 1e-9 * torch.eye(N).double()
    both = ArmGP(N, torch.stack([good, bad]), 0.1)
    alone = ArmGP(N, good, 0.1)
    drawn = draw_of(both, both.candidates(), base_samples=samples)
    assert torch.isfinite(drawn).all()
    assert torch.equal(drawn[:, 0], draw_of(alone, alone.candidates(), base_samples=samples[0]))


def test_arms_with_one_value_between_them_are_drawn_as_one():
    model = ArmGP(N, torch.ones(N, N).double(), 0.1)
    drawn = draw_of(model, model.candidates())
    assert (drawn - drawn[0]).abs().max() < 1e-5


def continuous(kind, batch=()):
    X, Y = torch.rand(*batch, 6, 2).double(), torch.randn(*batch, 6, 1).double()
    if kind == "SingleTaskGP":
        return SingleTaskGP(X, standardize(Y), outcome_transform=None)
    model = OnlineGP(MaternKernel(nu=2.5).double(), 0.1, input_dim=2, batch_shape=batch)
    model.observe(X, Y)
    return model


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("kind", ["SingleTaskGP", "OnlineGP"])
def test_choices_of_any_other_model_are_drawn_jointly(kind, batch):
    model, choices = continuous(kind, batch), torch.rand(N, 2).double()
    samples = torch.randn(*batch, N).double()
    acquisition = ThompsonSampling(model, base_samples=samples, choices=choices)
    X = choices.reshape(N, *[1] * len(batch), 1, 2)
    drawn = acquisition(X)
    assert drawn.shape == (N, *batch)
    with torch.no_grad():
        posterior = model.posterior(choices)
        mean, covariance = posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix
        scale = covariance.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None, None]
        factor = torch.linalg.cholesky(covariance + 1e-12 * scale * torch.eye(N).double())
    expected = mean + (factor @ samples.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(drawn, expected.movedim(-1, 0), **exactly)
    assert torch.equal(acquisition(X[[4, 1]]), drawn[[4, 1]])


def test_a_point_that_is_no_choice_is_refused():
    choices = torch.rand(N, 2).double()
    acquisition = ThompsonSampling(continuous("SingleTaskGP"), choices=choices)
    with pytest.raises(ValueError, match="X must be rows of the choices"):
        acquisition(torch.rand(3, 1, 2).double())


def test_another_model_without_choices_is_refused():
    with pytest.raises(ValueError, match="choices"):
        ThompsonSampling(continuous("SingleTaskGP"))


def test_a_time_in_the_past_is_refused():
    with pytest.raises(ValueError, match="time"):
        ThompsonSampling(arm_gp(kernel=drifting_kernel()), time=1.0)


def test_built_by_name_takes_what_the_constructor_takes():
    model, samples = arm_gp(), torch.linspace(-1, 1, N, dtype=torch.float64)
    by_name = get_acqf_input_constructor(ThompsonSampling)
    named = ThompsonSampling(**by_name(model=model, training_data=None, base_samples=samples))
    given = ThompsonSampling(model, base_samples=samples)
    assert torch.equal(named(model.candidates()), given(model.candidates()))
    with pytest.raises(TypeError, match="widht"):
        ThompsonSampling(**by_name(model=model, widht=2.0))


def test_is_found_by_name_and_optimised_over_choices():
    model = arm_gp()
    arguments = get_acqf_input_constructor(ThompsonSampling)(model=model, training_data=None, width=2.0)
    acquisition = ThompsonSampling(**arguments)
    best, value = optimize_acqf_discrete(acquisition, q=1, choices=model.candidates().squeeze(-2))
    drawn = acquisition(model.candidates())
    assert int(best) == int(drawn.argmax())
    assert value == drawn.max()

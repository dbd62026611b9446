"""Joint draws of the whole function, one or q of them: what they are made of, and where they can be asked."""

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound as PlainUpperConfidenceBound
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.exceptions import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.utils import standardize

from bandits_torch.acquisition import (
    BayesianOverPriors,
    DualMixtureBound,
    LikeliestPrior,
    OptimisticOverPriors,
    PathwisePointDraw,
    PathwiseThompsonSampling,
    PlayingProbability,
    ThompsonSampling,
    UpperConfidenceBound,
)
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, OnlineGP
from bandits_torch.theory import ConstantWidth, DualMixtureWidth
from tests.reference.arm_gp_twins import isolated, smooth
from tests.reference.kernels import rbf

N = 7
F64 = {"dtype": torch.float64}
exactly = {"rtol": 1e-9, "atol": 1e-9}


def arm_gp(batch=(), kernel=None, form="covariance", steps=5):
    model = ArmGP(N, smooth(N, 0.3) if kernel is None else kernel, 0.05, batch_shape=batch, form=form)
    for step in range(steps):
        model.observe_arms(torch.randint(N, batch), torch.randn(batch).double(), float(step))
    return model


def drifting_kernel(rate=0.3):
    time = ExponentialForgettingKernel(rate)
    return SpatioTemporalKernel(ArmCovarianceKernel(smooth(N, 0.3)), time)


def continuous(kind="OnlineGP", batch=()):
    X, Y = torch.rand(*batch, 6, 2, **F64), torch.randn(*batch, 6, 1, **F64)
    if kind == "SingleTaskGP":
        return SingleTaskGP(X, standardize(Y), outcome_transform=None)
    model = OnlineGP(rbf(0.3).requires_grad_(False), 0.1, input_dim=2, batch_shape=batch)
    model.observe(X, Y)
    return model


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


def test_built_by_name_takes_what_the_constructor_takes():
    model, given = arm_gp(), {"width": 2.0, "base_samples": torch.linspace(-1, 1, N, **F64)}
    by_name = get_acqf_input_constructor(ThompsonSampling)
    named = ThompsonSampling(**by_name(model=model, training_data=None, **given))
    assert torch.equal(named(model.candidates()), draw_of(model, model.candidates(), **given))
    with pytest.raises(TypeError, match="widht"):
        ThompsonSampling(**by_name(model=model, widht=2.0))


def make(kind):
    """An acquisition and the choices it knows."""
    points, arms = torch.rand(N, 2, **F64), torch.arange(N, **F64).unsqueeze(-1)
    if kind == "choices":
        return ThompsonSampling(continuous(), choices=points), points
    if kind == "points":
        return PathwisePointDraw(continuous(), seeds=(5,), features=256), points
    model = arm_gp(form="factor" if kind == "factor" else "covariance")
    if kind == "pathwise":
        return PathwiseThompsonSampling(model, seed=3)(model), arms
    return ThompsonSampling(model, 2.0 if kind == "factor" else 1.0), arms


KINDS = ["exact", "factor", "choices", "pathwise", "points"]


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_three_choices_are_the_best_of_three_draws_and_the_first_is_as_before(kind, unique):
    acquisition, choices = make(kind)
    X = choices.unsqueeze(-2)
    alone = acquisition(X)
    chosen, values = optimize_acqf_discrete(acquisition, q=3, choices=choices, unique=unique)
    assert acquisition.X_pending is None
    assert torch.equal(acquisition(X), alone)
    left = list(range(N))
    for k in range(3):
        acquisition.set_X_pending(choices[:k] if k else None)
        draw = acquisition(X)
        best = max(left, key=lambda i, draw=draw: float(draw[i]))
        assert torch.equal(chosen[k], choices[best])
        torch.testing.assert_close(values[k], draw[best], rtol=0, atol=1e-12)
        if unique:
            left.remove(best)


@pytest.mark.parametrize("kind", ["exact", "points"])
def test_pending_points_are_taken_where_a_draw_is_built_too(kind):
    plain, choices = make(kind)
    cls, model, pending = type(plain), plain.model, choices[:2]
    by_name = get_acqf_input_constructor(cls)(model=model, training_data=None, X_pending=pending)
    for given in ({"model": model, "X_pending": pending}, by_name):
        torch.manual_seed(7)
        built = cls(**given)(choices.unsqueeze(-2))
        torch.manual_seed(7)
        told = cls(model)
        told.set_X_pending(pending)
        assert torch.equal(built, told(choices.unsqueeze(-2)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_joint_batch_is_valued_by_the_sum_of_its_draws(kind):
    acquisition, choices = make(kind)
    X = choices.unsqueeze(-2)
    first = acquisition(X)
    acquisition.set_X_pending(choices[:1])
    second = acquisition(X)
    acquisition.set_X_pending(None)
    joint = acquisition(torch.stack([choices, choices.flip(0)], -2))
    torch.testing.assert_close(joint, first + second.flip(0), rtol=0, atol=1e-12)


def test_further_draws_have_the_moments_of_the_posterior_and_no_correlation_with_the_first():
    """20 000 pairs of draws of two isolated arms."""
    model = ArmGP(2, isolated(2), 0.5, batch_shape=(20_000,))
    model.observe(torch.zeros(1, 1, **F64), torch.ones(1, 1, **F64))
    acquisition = ThompsonSampling(model, 2.0)
    first = acquisition(model.candidates())
    acquisition.set_X_pending(torch.zeros(1, 1, **F64))
    second = acquisition(model.candidates())
    mean, variance = (m[0] for m in model.marginals())
    spread = 4 * variance.sqrt()
    assert ((second.mean(1) - mean).abs() < 4 * spread / 20_000**0.5).all()
    assert (second.var(1) / (4 * variance) - 1).abs().max() < 0.05
    assert torch.corrcoef(torch.cat([first, second])).triu(1).abs().max() < 0.04


def test_points_are_found_one_after_the_other_by_optimize_acqf():
    torch.manual_seed(0)
    acquisition, _ = make("points")
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **F64)
    X, values = optimize_acqf(acquisition, bounds, q=3, num_restarts=4, raw_samples=64, sequential=True)
    grid = torch.cartesian_prod(torch.linspace(0, 1, 25, **F64), torch.linspace(0, 1, 25, **F64))
    for k in range(3):
        acquisition.set_X_pending(X[:k] if k else None)
        with torch.no_grad():
            assert values[k] >= acquisition(grid.unsqueeze(-2)).max() - 1e-3
    jointly, _ = optimize_acqf(make("points")[0], bounds, q=2, num_restarts=2, raw_samples=16)
    assert jointly.shape == (2, 2)


@pytest.mark.parametrize("over", [OptimisticOverPriors, BayesianOverPriors, LikeliestPrior])
def test_pending_arms_over_priors_are_those_of_the_index_under_every_prior(over):
    model = arm_gp((2,), torch.stack([smooth(N, 0.1), smooth(N, 0.6)]))
    rest = () if over is OptimisticOverPriors else (model.log_likelihood,)
    acquisition = over(UpperConfidenceBound(model, 2.0), *rest)
    choices = torch.arange(N, **F64).unsqueeze(-1)
    chosen, _ = optimize_acqf_discrete(acquisition, q=3, choices=choices, unique=False)
    assert acquisition.X_pending is None
    base = UpperConfidenceBound(model, 2.0)
    for k in range(3):
        base.set_X_pending(chosen[:k] if k else None)
        scores = base(choices.reshape(N, 1, 1, 1))
        wanted = over(base, *rest).reduce(scores)[0]
        assert wanted[int(chosen[k])] == wanted.max()
    by_name = get_acqf_input_constructor(over)(model=model, training_data=None, X_pending=chosen[:2])
    assert torch.equal(over(**by_name).X_pending, chosen[:2])
    with pytest.raises(UnsupportedError, match="X_pending"):
        over(PlainUpperConfidenceBound(model, 4.0), *rest).set_X_pending(choices[:1])


def playing_probability(**given):
    by_name = get_acqf_input_constructor(PlayingProbability)
    given = {
        "model": arm_gp(),
        "training_data": None,
        "probabilities": torch.full((N,), 1 / N, **F64),
    } | given
    return PlayingProbability(**by_name(**given))


def test_playing_probabilities_are_those_given_to_each_replicate():
    P = torch.tensor([[0.1, 0.2, 0.6, 0.1], [0.0, 1.0, 0.0, 0.0]], **F64)
    model = ArmGP(4, torch.eye(4, **F64), 0.1)
    values = PlayingProbability(model, P)(torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1))
    assert values.tolist() == [[0.2, 1.0], [0.6, 0.0]]
    acquisition = playing_probability()
    acquisition.set_X_pending(None)
    assert acquisition(torch.arange(N, **F64).reshape(N, 1, 1)).sum() == pytest.approx(1.0)


def two_of(acquisition):
    choices = torch.arange(N, **F64).unsqueeze(-1)
    acquisition.set_X_pending(None)
    optimize_acqf_discrete(acquisition, q=2, choices=choices, unique=False)


REFUSED = [
    ("X must be rows of the choices", lambda: make("choices")[0](torch.rand(3, 1, 2, **F64))),
    ("choices", lambda: ThompsonSampling(continuous("SingleTaskGP"))),
    ("time", lambda: ThompsonSampling(arm_gp(kernel=drifting_kernel()), time=1.0)),
    ("X_pending must be None: draw q arms", lambda: two_of(playing_probability())),
    ("X_pending must be None: draw q arms", lambda: playing_probability(X_pending=torch.zeros(1, 1, **F64))),
    (
        "X_pending must be None: the bounds hold for",
        lambda: two_of(DualMixtureBound(arm_gp(), DualMixtureWidth(1.0, 0.3, 0.1))),
    ),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_what_cannot_be_drawn_is_refused_by_name(message, call):
    with pytest.raises(ValueError, match=message):
        call()

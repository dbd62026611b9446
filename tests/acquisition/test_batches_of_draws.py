"""q points by q independent draws of the posterior, as BoTorch asks for them."""

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound as PlainUpperConfidenceBound
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.exceptions import UnsupportedError
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.kernels import MaternKernel

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
from bandits_torch.models import ArmGP, OnlineGP
from bandits_torch.theory import DualMixtureWidth
from tests.reference.arm_gp_twins import isolated, smooth

N = 6
F64 = {"dtype": torch.float64}


def arm_gp(batch=(), covariance=None, form="covariance"):
    model = ArmGP(N, smooth(N, 0.3) if covariance is None else covariance, 0.1, batch_shape=batch, form=form)
    model.observe(torch.tensor([[1.0], [4.0]], **F64), torch.tensor([[0.2], [0.5]], **F64))
    return model


def online_gp():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    model = OnlineGP(kernel.requires_grad_(False), 0.1, input_dim=2)
    X = torch.rand(6, 2, **F64)
    model.observe(X, torch.sin(5 * X).sum(-1, keepdim=True))
    return model


def choices_of(model):
    return model.candidates().squeeze(-2) if isinstance(model, ArmGP) else torch.rand(N, 2, **F64)


def make(kind):
    """An acquisition and the choices it knows."""
    if kind == "exact":
        model = arm_gp()
        return ThompsonSampling(model), choices_of(model)
    if kind == "factor":
        model = arm_gp(form="factor")
        return ThompsonSampling(model, 2.0), choices_of(model)
    if kind == "choices":
        model, choices = online_gp(), torch.rand(N, 2, **F64)
        return ThompsonSampling(model, choices=choices), choices
    if kind == "pathwise":
        model = arm_gp()
        return PathwiseThompsonSampling(model, seed=3)(model), choices_of(model)
    model = online_gp()
    return PathwisePointDraw(model, seeds=(5,), features=256), torch.rand(N, 2, **F64)


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


# -- what has no draws -------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [OptimisticOverPriors, BayesianOverPriors, LikeliestPrior])
def test_pending_arms_over_priors_are_those_of_the_index_under_every_prior(over):
    model = arm_gp(covariance=torch.stack([smooth(N, 0.1), smooth(N, 0.6)]))
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


def test_playing_probabilities_refuse_pending_arms_by_name():
    model = arm_gp()
    acquisition = PlayingProbability(model, torch.full((N,), 1 / N, **F64))
    acquisition.set_X_pending(None)
    with pytest.raises(ValueError, match="X_pending must be None: draw q arms"):
        optimize_acqf_discrete(acquisition, q=2, choices=choices_of(model))
    by_name = get_acqf_input_constructor(PlayingProbability)
    given = {"model": model, "training_data": None, "probabilities": acquisition.probabilities}
    assert PlayingProbability(**by_name(**given))(model.candidates()).sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="X_pending must be None: draw q arms"):
        PlayingProbability(**by_name(**given, X_pending=torch.zeros(1, 1, **F64)))


def test_bounds_of_a_theorem_refuse_pending_arms_by_name():
    model = arm_gp()
    acquisition = DualMixtureBound(model, DualMixtureWidth(1.0, 0.3, 0.1))
    acquisition.set_X_pending(None)
    with pytest.raises(ValueError, match="X_pending must be None: the bounds hold for"):
        optimize_acqf_discrete(acquisition, q=2, choices=choices_of(model), unique=False)

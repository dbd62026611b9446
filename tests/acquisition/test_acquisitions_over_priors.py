"""Acquisitions over a batch of priors: numbers by hand, BoTorch's optimisers, the prior of the winner."""

import math

import pytest
import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean

from bandits_torch.acquisition import (
    BayesianOverPriors,
    LikeliestPrior,
    OptimisticOverPriors,
    UpperConfidenceBound,
)
from bandits_torch.models import CandidatePrior, arm_gp_over_priors

P = 3


class Lookup(AcquisitionFunction):
    """Scores by hand: X = 0, 1, ... names a row, whose P numbers are the scores under the priors."""

    TABLE = torch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 3.0]], dtype=torch.float64)

    def __init__(self):
        super().__init__(model=arm_gp_over_priors(2, [CandidatePrior(torch.eye(2))] * P, 0.1))

    def forward(self, X):
        return self.TABLE[X.reshape(-1).long()]


X = torch.tensor([[[0.0]], [[1.0]]], dtype=torch.float64)


def test_optimistic_is_the_largest_score_of_a_surviving_prior() -> None:
    everyone = OptimisticOverPriors(Lookup())
    assert everyone(X).tolist() == [5.0, 4.0]
    assert everyone.prior(X).tolist() == [1, 0]
    fewer = OptimisticOverPriors(Lookup(), torch.tensor([True, False, True]))
    assert fewer(X).tolist() == [2.0, 4.0]
    assert fewer.prior(X).tolist() == [2, 0]


def test_bayesian_is_the_mean_score_by_posterior_probability() -> None:
    log_weights = torch.tensor([math.log(0.5), math.log(0.2), math.log(0.3)], dtype=torch.float64) + 1000
    bayes = BayesianOverPriors(Lookup(), log_weights)
    torch.testing.assert_close(bayes(X), torch.tensor([0.5 + 1.0 + 0.6, 2.0 + 0.9], dtype=torch.float64))
    assert bayes.prior(X).tolist() == [0, 0]


def test_likeliest_is_the_score_under_the_prior_of_largest_likelihood() -> None:
    likeliest = LikeliestPrior(Lookup(), torch.tensor([-3.0, -5.0, -2.0]))
    assert likeliest(X).tolist() == [2.0, 3.0]
    assert likeliest.prior(X).tolist() == [2, 2]


def single_task_gp(lengthscales=(0.05, 0.2, 1.0)) -> tuple[SingleTaskGP, torch.Tensor]:
    """A SingleTaskGP of batch shape (P,), one fixed kernel per prior, and the log likelihood of each."""
    x = torch.tensor([[0.1], [0.35], [0.6], [0.9]], dtype=torch.float64)
    y = torch.sin(6 * x)
    kernel = RBFKernel(batch_shape=torch.Size([P]))
    kernel.lengthscale = torch.tensor(lengthscales, dtype=torch.float64).reshape(P, 1, 1)
    likelihood = GaussianLikelihood(batch_shape=torch.Size([P]))
    likelihood.noise = torch.full((P, 1), 1e-3)
    model = SingleTaskGP(
        x.expand(P, 4, 1),
        y.expand(P, 4, 1),
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=ZeroMean(batch_shape=torch.Size([P])),
        outcome_transform=None,
    ).double()
    K = kernel.double()(x).to_dense() + 1e-3 * torch.eye(4, dtype=torch.float64)
    zero = torch.zeros(P, 4, dtype=torch.float64)
    return model.eval(), torch.distributions.MultivariateNormal(zero, K.detach()).log_prob(y.squeeze(-1))


BOUNDS = torch.tensor([[0.0], [1.0]], dtype=torch.float64)


@pytest.mark.parametrize("kind", ["optimistic", "dropped", "bayes", "likeliest"])
@pytest.mark.parametrize("base", ["ucb", "ei"])
def test_optimize_acqf_finds_the_maximum_on_a_continuous_domain_and_names_the_prior(kind, base) -> None:
    model, likelihood = single_task_gp()
    inner = UpperConfidenceBound(model, 2.0) if base == "ucb" else LogExpectedImprovement(model, best_f=0.5)
    over = {
        "optimistic": lambda: OptimisticOverPriors(inner),
        "dropped": lambda: OptimisticOverPriors(inner, torch.tensor([False, True, True])),
        "bayes": lambda: BayesianOverPriors(inner, likelihood),
        "likeliest": lambda: LikeliestPrior(inner, likelihood),
    }[kind]()
    torch.manual_seed(0)
    best, value = optimize_acqf(over, BOUNDS, q=1, num_restarts=4, raw_samples=64)
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64).reshape(-1, 1, 1)
    with torch.no_grad():
        scores = inner(grid.unsqueeze(-3))  # 2001 x P, each prior by itself
        values, priors = over.reduce(scores)
        torch.testing.assert_close(over(grid), values)
    place = values.argmax()
    assert float(value) >= float(values[place]) - 1e-6
    assert over.prior(best.unsqueeze(0)).item() == priors[place].item()
    if kind == "dropped":
        assert over.prior(best.unsqueeze(0)).item() != 0


def test_replicates_and_priors_give_a_value_for_each_replicate() -> None:
    model = arm_gp_over_priors(
        4, [CandidatePrior(torch.eye(4), float(p)) for p in range(P)], 0.1, replicates=2
    )
    over = OptimisticOverPriors(UpperConfidenceBound(model, 1.0))
    X = torch.tensor([1.0, 2.0], dtype=torch.float64).reshape(2, 1, 1)  # an arm for each replicate
    assert over(X).tolist() == pytest.approx([3.0, 3.0])
    assert over.prior(X).tolist() == [2, 2]


@pytest.mark.parametrize("kind", [OptimisticOverPriors, BayesianOverPriors, LikeliestPrior])
def test_input_constructors_build_upper_confidence_bounds_over_the_priors(kind) -> None:
    model = arm_gp_over_priors(2, [CandidatePrior(torch.eye(2), m) for m in (0.0, 1.0)], 0.1, replicates=1)
    model.observe_arms(torch.tensor([[0]]), torch.tensor([[1.2]], dtype=torch.float64))
    built = kind(**get_acqf_input_constructor(kind)(model, width=3.0))
    by_hand = {
        OptimisticOverPriors: lambda base: kind(base),
        BayesianOverPriors: lambda base: kind(base, model.log_likelihood),
        LikeliestPrior: lambda base: kind(base, model.log_likelihood),
    }[kind](UpperConfidenceBound(model, 3.0))
    x = torch.ones(1, 1, 1, dtype=torch.float64)
    torch.testing.assert_close(built(x), by_hand(x))


@pytest.mark.parametrize("kind", [BayesianOverPriors, LikeliestPrior])
def test_the_likelihood_that_a_model_does_not_keep_must_be_given(kind) -> None:
    with pytest.raises(ValueError, match="model must be one that has a log_likelihood"):
        kind(UpperConfidenceBound(single_task_gp()[0], 1.0))


def test_a_model_without_priors_is_refused() -> None:
    x = torch.rand(3, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"base.model.batch_shape must be \(..., P\)"):
        OptimisticOverPriors(UpperConfidenceBound(SingleTaskGP(x, x), 1.0))

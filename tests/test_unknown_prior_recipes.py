"""The recipes for an unknown prior: alike where there is nothing to choose, with the widths of their theorems."""

import pytest
import torch

from bandits_torch import Domain, make, recipes, run
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import Observation
from bandits_torch.theory import PriorEliminationContinuousWidth
from tests.reference.kernels import rbf

NAMES = ["pe_gp_ucb", "mle_gp_ucb", "bayes_gp_ucb", "regret_balancing"]


@pytest.fixture(scope="module")
def problem():
    return make("hills", replicates=2, seed=3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_with_the_true_prior_alone_in_the_set_each_is_the_oracle(problem, name, form) -> None:
    known = {"horizon": 40, "replicates": 2, "form": form}
    noise, true = problem.knowledge.noise_variance, problem.true_prior
    oracle = recipes.known_prior_gp_ucb(problem.arms, true, noise, **known)
    policy = recipes.RECIPES[name](problem.arms, [true], noise, **known)
    assert torch.equal(run(policy, problem, 40).arms, run(oracle, problem, 40).arms)


def test_widths_of_the_continuous_theorem_may_differ_between_priors(problem) -> None:
    b = torch.linspace(1.0, 9.0, 11, dtype=torch.float64)
    width = PriorEliminationContinuousWidth(1, horizon=20, r=1.0, a=1.0, b=b, delta=0.1)
    policy = recipes.build("pe_gp_ucb", problem, replicates=2, horizon=20, width=width)
    choice = policy.choose(1)
    expected = width(1, policy.model)[choice.why["prior"]]
    torch.testing.assert_close(choice.why["width"], expected)
    assert bool(torch.isfinite(run(policy, problem, 20).regret).all())


SQUARE = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
FEW = {"num_restarts": 1, "raw_samples": 16, "options": {"maxiter": 5}}


@pytest.mark.parametrize("name", ["pe_gp_ucb", "mle_gp_ucb", "bayes_gp_ucb"])
def test_over_points_every_prior_has_the_width_of_its_own_derivatives(name) -> None:
    """A partial derivative of a draw of the squared exponential kernel has standard deviation 1 / lengthscale."""
    priors = [CandidatePrior(rbf(0.1)), CandidatePrior(rbf(0.4))]
    policy = getattr(recipes, name)(SQUARE, priors, 0.1, horizon=20, replicates=2, search=FEW)
    for p, lengthscale in enumerate((0.1, 0.4)):
        b = 2**0.5 / lengthscale
        own = PriorEliminationContinuousWidth(2, horizon=20, r=1.0, a=1.0, b=b, delta=0.1)
        width = policy.width.at(3, policy.model)[:, p]
        torch.testing.assert_close(width, own.at(3, policy.model).expand(2), rtol=1e-5, atol=0)
    assert bool((policy.width.at(3, policy.model)[:, 0] > policy.width.at(3, policy.model)[:, 1]).all())


@pytest.mark.parametrize("name", ["mle_gp_ucb", "bayes_gp_ucb"])
def test_over_points_baselines_with_one_prior_twice_are_those_with_it_once(name) -> None:
    def played(count):
        priors = [CandidatePrior(rbf(0.3))] * count
        policy = getattr(recipes, name)(SQUARE, priors, 0.1, horizon=9, width=2.0, search=FEW, seed=3)
        chosen = []
        for t in range(1, 6):
            choice = policy.choose(float(t))
            chosen.append(choice.arm)
            policy.learn(Observation(float(t), choice.arm, choice.arm.sum(-1), choice.why))
        return torch.stack(chosen)

    torch.testing.assert_close(played(2), played(1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["pe_gp_ucb", "pe_gp_ts"])
def test_a_noise_scale_for_each_replicate_is_not_one_for_each_prior(name) -> None:
    priors = [CandidatePrior(1e-4 * torch.eye(1).double(), mean=mean) for mean in (0.0, 5.0)]
    scales = torch.tensor([0.01, 100.0])
    policy = getattr(recipes, name)(1, priors, 0.01, horizon=20, replicates=2, noise_scale=scales)
    for t in range(1, 4):
        choice = policy.choose(t)
        policy.learn(Observation(t, choice.arm, torch.zeros(2), choice.why))
    assert policy.surviving.tolist() == [[True, False], [True, True]]
    with pytest.raises(ValueError, match="noise_scale"):
        getattr(recipes, name)(1, priors, 0.01, horizon=20, replicates=3, noise_scale=scales)

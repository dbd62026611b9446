"""Recipes over a domain with a fixed coordinate of no range, and with bounds that differ between replicates."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import Domain, recipes
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import Observation
from tests.reference.kernels import rbf


@pytest.mark.parametrize("recipe", [recipes.gp_ucb, recipes.auto])
def test_a_domain_with_a_fixed_coordinate_of_no_range_is_played(recipe):
    bounds = torch.tensor([[0.0, 0.4], [1.0, 0.4]]).double()
    options = {"search": QUICK | {"initial": 0}}
    arm = recipe(Domain(bounds, fixed_features={1: 0.4}), rbf(0.3), 0.01, **options).choose(0.0).arm
    assert arm[0, 1] == 0.4
    assert 0 <= arm[0, 0] <= 1


def test_a_domain_stays_as_it_was_when_what_its_caller_gave_changes():
    square, two = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(), torch.ones(2).double()
    bounds, constraints = square.clone(), [(torch.arange(2), two.clone(), 1.0)]
    fixed, of_each = {1: 0.4}, torch.tensor([0.25, 0.5]).double()
    constrained, one = Domain(bounds, constraints), Domain(bounds, fixed_features=fixed)
    each = Domain(bounds, fixed_features={1: of_each})
    bounds += 5.0
    constraints[0][1].zero_()
    constraints.append((torch.arange(2), two, 9.0))
    fixed[1] = 0.9
    of_each.zero_()
    assert torch.equal(one.bounds, square)
    assert constrained.contains(torch.tensor([[0.2, 0.2], [0.9, 0.9]]).double()).tolist() == [False, True]
    assert one.fix(torch.ones(2, 2).double())[:, 1].tolist() == [0.4, 0.4]
    assert each.fix(torch.ones(2, 2).double())[:, 1].tolist() == [0.25, 0.5]


def test_the_width_over_a_domain_is_the_same_in_any_units_of_its_coordinates():
    widths = []
    for units in ([1.0, 1.0], [600.0, 1e-3]):
        units = torch.tensor(units).double()
        kernel = RBFKernel(ard_num_dims=2).double()
        kernel.lengthscale = 0.3 * units
        policy = recipes.gp_ucb(Domain(torch.stack([0 * units, units])), kernel, 0.01)
        widths.append(policy.width(torch.tensor(5.0), policy.model))
    torch.testing.assert_close(widths[1], widths[0], rtol=1e-3, atol=0)


# lower and upper bounds of two replicates, of two coordinates
OWN_BOUNDS = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [200.0, 0.1]]]).double()
QUICK = {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 10}}


def test_hyperparameters_are_learned_in_the_units_of_each_replicates_bounds():
    def played(bounds, at, **replicates):
        options = {"width": 2.0, "search": QUICK, "learn_hyperparameters": {"first": 4, "every": 5}}
        policy = recipes.igp_ucb(Domain(bounds), rbf(0.5), 0.01, **options, **replicates)
        generator = torch.Generator().manual_seed(0)
        for time in range(10):
            share = torch.rand(2, 2, generator=generator).double()
            X, reward = share * OWN_BOUNDS[1], (6 * share[:, 0]).sin() + share[:, 1]
            policy.learn(Observation(float(time), X[at], reward[at]))
        assert (policy.trace()["refits"] >= 2).all()
        return policy.model.kernel.base_kernel.lengthscale.detach(), policy.choose(10.0).arm

    together, arms = played(OWN_BOUNDS, [0, 1], replicates=2)
    for r in (0, 1):
        alone, arm = played(OWN_BOUNDS[:, r], [r], first_replicate=r)
        torch.testing.assert_close(together[r : r + 1], alone.reshape(1, 1, 2), rtol=1e-9, atol=0)
        torch.testing.assert_close(arms[r : r + 1], arm, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    "made",
    [
        lambda domain: recipes.gp_ucb(domain, rbf(0.3), 0.01, replicates=2),
        lambda domain: recipes.sw_gp_ucb(domain, rbf(0.3), 0.01, replicates=2, horizon=50),
        lambda domain: recipes.pe_gp_ucb(domain, [CandidatePrior(rbf(0.3))], 0.01, replicates=2, horizon=9),
        lambda domain: recipes.auto(domain, rbf(0.3), 0.01, replicates=2),
        lambda domain: recipes.auto(domain, replicates=2),
    ],
)
def test_bounds_that_differ_between_replicates_are_refused_by_name_where_one_box_is_needed(made):
    with pytest.raises(ValueError, match=r"^bounds must (be of|have) shape \(2, d\)"):
        made(Domain(OWN_BOUNDS))


def test_whole_numbers_as_bounds_are_refused_with_their_dtype():
    with pytest.raises(ValueError, match=r"floating point, got shape \(2, 2\), dtype int64$"):
        Domain(torch.tensor([[10, 1], [50, 9]]))


CONSTRAINTS = {
    "none": [],
    "of a free coordinate": [(torch.tensor([0]), torch.ones(1).double(), 0.3)],
    "of both": [(torch.tensor([0, 1]), torch.tensor([1.0, -0.1]).double(), -0.2)],  # x >= 0.3 where y is 5
    "that leave little": [(torch.tensor([0, 1]), torch.tensor([1.0, -0.1]).double(), 0.47)],
}
RECIPES = {
    "gp_ucb": lambda domain: recipes.gp_ucb(domain, rbf(0.3), 0.01, search=QUICK),
    "auto": lambda domain: recipes.auto(domain, search=QUICK),
    "random": recipes.random,
    "safe_gp_ucb": lambda domain: recipes.safe_gp_ucb(
        domain,
        rbf(0.3),
        0.01,
        least_reward=-5.0,
        safe_points=torch.tensor([[0.9995, 5.0]]).double(),
        search=QUICK,
    ),
}


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("name", RECIPES)
def test_a_fixed_value_outside_the_bounds_is_played(name, constraints):
    """As in BoTorch's ``optimize_acqf``."""
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    domain = Domain(bounds, CONSTRAINTS[constraints], fixed_features={1: 5.0})
    policy = RECIPES[name](domain)
    for time in (1.0, 2.0):
        choice = policy.choose(time)
        assert choice.arm[0, 1] == 5
        assert (-1e-6 if constraints == "none" else 0.3 - 1e-6) <= choice.arm[0, 0] <= 1 + 1e-6
        policy.learn(Observation(time, choice.arm, torch.ones(1).double(), choice.why))


def test_a_fixed_value_whose_square_is_not_finite_is_refused():
    """Such a value made all later choices of ``auto`` an error of the linear algebra."""
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    for value in (1e160, torch.tensor([-1e200], dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"fixed_features must be at most 1e\+140 in size"):
            Domain(box, fixed_features={1: value})

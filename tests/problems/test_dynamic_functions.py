"""Standard functions whose last input is time: what they are worth, and how well their best value is known."""

import pytest
import torch
from botorch.test_functions import Ackley, Griewank, Hartmann, Levy, Shekel, StyblinskiTang

from bandits_torch.problems import PROBLEMS, DynamicFunction, make
from bandits_torch.streams import ReplicateStreams

FUNCTIONS = {
    "dynamic-ackley": Ackley(dim=4, dtype=torch.float64),
    "dynamic-hartmann6": Hartmann(dim=6, dtype=torch.float64),
    "dynamic-shekel": Shekel(m=10, dtype=torch.float64),
    "dynamic-griewank": Griewank(dim=4, bounds=[(-5.0, 5.0)] * 4, dtype=torch.float64),
    "dynamic-levy": Levy(dim=4, dtype=torch.float64),
    "dynamic-styblinski-tang": StyblinskiTang(dim=4, dtype=torch.float64),
}


def test_all_dynamic_functions_are_here():
    assert {name for name in PROBLEMS if name.startswith("dynamic-")} == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rewards_are_the_function_at_the_share_of_the_horizon_up_to_scale(name):
    """Straight from BoTorch: minus the function, the last input at step/T of its range, the same scale for all."""
    problem, function = make(name, horizon=40), FUNCTIONS[name]
    low, high = torch.as_tensor(function.bounds).double()
    X = torch.rand(30, 1, problem.dim).double()
    plain, scaled = [], []
    for step in (1, 17, 40):
        inputs = torch.cat([X[:, 0], torch.full((30, 1), step / 40, dtype=torch.float64)], -1)
        plain.append(-function(low + (high - low) * inputs))
        scaled.append(problem.expected(step, X)[:, 0])
    plain, scaled = torch.cat(plain), torch.cat(scaled)
    low, high = plain.argmin(), plain.argmax()
    slope = (scaled[high] - scaled[low]) / (plain[high] - plain[low])
    assert slope > 0
    torch.testing.assert_close(scaled - scaled[low], slope * (plain - plain[low]), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "minimiser"),
    [("dynamic-ackley", 0.0), ("dynamic-levy", 1.0), ("dynamic-styblinski-tang", -2.903534027771177)],
)
def test_best_value_is_within_a_millionth_of_the_closed_form(name, minimiser):
    """Their minimum over the other inputs lies at the same place whatever the last input is."""
    problem = make(name, horizon=60)
    low, high = (float(b) for b in FUNCTIONS[name].bounds[:, 0])
    x = torch.full((1, problem.dim), (minimiser - low) / (high - low)).double()
    for step in (1, 20, 30, 47, 60):
        truth = problem.expected(step, x)
        assert float(problem.best(step)) == pytest.approx(float(truth), abs=1e-6)
        assert problem.best(step) <= truth + 1e-9


@pytest.mark.parametrize("name", ["dynamic-hartmann6", "dynamic-shekel", "dynamic-griewank"])
def test_best_value_is_not_below_what_a_dense_search_finds(name):
    problem = make(name, horizon=60)
    X = problem.domain.sample(2**15, seed=5).unsqueeze(1)
    for step in (3, 29, 58):
        found = problem.expected(step, X).max()
        assert problem.best(step) >= found
        assert problem.best(step) <= found + 3.0  # of a function of standard deviation 1, with narrow peaks


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_contract(name):
    problem = make(name, horizon=40, replicates=2, noise_scale=0.3)
    assert problem.num_arms == 0
    assert problem.dim == problem.domain.dim == FUNCTIONS[name].dim - 1
    assert problem.best(7).shape == (2,)
    assert problem.best(7) is problem.best(7)  # computed once
    assert problem.time(7) == 7.0
    X = torch.rand(2, problem.dim).double()
    rewards = torch.stack([problem.pull(7, X, ReplicateStreams(seed, 2)) for seed in range(300)])
    assert ((rewards.mean(0) - problem.expected(7, X)).abs() < 4 * 0.3 / 300**0.5).all()
    assert rewards.std(0) == pytest.approx([0.3, 0.3], rel=0.2)
    values = torch.stack([problem.random_reward(step) for step in range(1, 41)])
    assert abs(float(values.mean())) < 0.3
    assert problem.expected_rewards(7).shape == (2, 0)
    for step in (0, 41):
        with pytest.raises(ValueError, match="step must be an integer in 1"):
            problem.best(step)
    known = problem.knowledge
    assert 0 < known.forgetting_rate < 1
    assert known.noise_variance == pytest.approx(0.09)
    assert 0 < known.variation_budget < known.rkhs_variation_budget


def test_the_forgetting_rate_gives_the_correlation_over_a_tenth_of_the_horizon():
    problem = make("dynamic-hartmann6", horizon=100)
    X = problem.domain.sample(2000, seed=9).unsqueeze(1)
    steps = range(10, 101, 10)
    values = torch.stack([problem.expected(step, X)[:, 0] for step in steps])
    correlation = (values[1:] * values[:-1]).mean() / values.square().mean()
    assert (1 - problem.knowledge.forgetting_rate) ** 5 == pytest.approx(float(correlation), abs=0.1)


def test_dtype_can_be_changed():
    problem = make("dynamic-shekel", horizon=10)
    before = problem.best(4)
    assert problem.to(torch.float32) is problem
    X = torch.rand(1, 3)
    assert problem.expected(4, X).dtype == torch.float32
    assert problem.best(4).dtype == torch.float32
    torch.testing.assert_close(problem.best(4).double(), before, rtol=1e-5, atol=1e-5)


def test_a_function_whose_optima_nobody_wrote_down_is_taken_too():
    function = Hartmann(dim=4, dtype=torch.float64)
    with pytest.raises(NotImplementedError):
        _ = function.optimizers
    problem = DynamicFunction(function, horizon=20)
    X = problem.domain.sample(2**12, seed=5).unsqueeze(1)
    assert float(problem.best(10)) >= float(problem.expected(10, X).max())

"""Index policies over a domain: what they play is the best point, and the driver plays them as any other."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bandits_torch import Domain, History, IndexPolicy, OnlineGP, UpperConfidenceBound, recipes, run
from bandits_torch.acquisition import PointSearch
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import Observation
from bandits_torch.problems import ContinuousProblem, Knowledge, make
from bandits_torch.theory import ConstantWidth

SQUARE = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
THOROUGH = PointSearch(num_restarts=8, raw_samples=256, options={"maxiter": 200})


def moving_kernel(rate=0.05):
    space = MaternKernel(nu=2.5).double()
    space.lengthscale = 0.3
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(rate))


def hill(X, time):
    top = 0.5 + 0.3 * torch.tensor([math.cos(0.1 * time), math.sin(0.1 * time)]).double()
    return (-8 * (X - top).square().sum(-1)).exp()


class MovingHill(ContinuousProblem):
    def __init__(self, replicates=1, domains=None):
        super().__init__(SQUARE, replicates, 0.05, 50)
        self.domains = domains or {}
        self.knowledge = Knowledge(kernel=moving_kernel().space_kernel, noise_variance=0.01)

    def expected(self, step, X):
        self.check_step(step)
        return hill(X, step)

    def available(self, step):
        return self.domains.get(step)


def policy_over_the_square(replicates=None, kernel=None, **options):
    kernel = kernel or moving_kernel()
    has_time = isinstance(kernel, SpatioTemporalKernel)
    batch = () if replicates is None else (replicates,)
    model = OnlineGP(kernel, 0.01, input_dim=2 + has_time, batch_shape=batch)
    options = {"width": ConstantWidth(1.5), "search": THOROUGH} | options
    return IndexPolicy(model, UpperConfidenceBound, choices=SQUARE, **options)


def teach(policy, steps, generator=None):
    generator = generator or torch.Generator().manual_seed(1)
    for step in range(1, steps + 1):
        X = torch.rand(policy.replicates, 2, generator=generator, dtype=torch.float64)
        policy.learn(Observation(float(step), X, hill(X, step)))


def grid(side):
    axis = torch.linspace(0, 1, side).double()
    return torch.cartesian_prod(axis, axis)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("kernel", [moving_kernel(), moving_kernel().space_kernel])
def test_the_point_played_is_as_good_as_the_best_of_a_fine_grid(kernel, constrained):
    """Of 10 201 points, or of those that the constraint leaves; and it lies beside the best of them."""
    policy = policy_over_the_square(kernel=kernel)
    teach(policy, 20)
    below = (torch.tensor([0, 1]), torch.tensor([-1.0, -2.0]).double(), -0.9)
    domain = Domain(SQUARE.bounds, [below] if constrained else [])
    choice, points = policy.choose(21.0, domain), grid(101)
    points = points[domain.contains(points, 0.0)]
    now = [torch.full_like(points[:, :1], 21.0)] if policy.model.input_dim == 3 else []
    with torch.no_grad():
        index = UpperConfidenceBound(policy.model, 1.5)(torch.cat([points, *now], -1).unsqueeze(-2))
    assert index.max() - 1e-6 <= choice.why["index"] <= index.max() + 0.01
    assert (choice.arm[0] - points[index.argmax()]).abs().max() < 0.02


def test_a_warm_start_never_hurts_and_helps_where_raw_samples_are_few():
    """The index with a warm start at a good point is at least that without, and better on the whole."""
    rough, gains = moving_kernel(0.01), []
    rough.space_kernel.lengthscale = 0.1  # an index of many local optima
    for seed in range(12):
        indices = []
        for warm in (True, False):
            search = PointSearch(num_restarts=1, raw_samples=2, warm_start=warm, options={"maxiter": 60})
            policy = policy_over_the_square(kernel=rough, search=search, seed=seed, width=ConstantWidth(0.5))
            teach(policy, 24)
            best = torch.tensor([[0.5 + 0.3 * math.cos(2.5), 0.5 + 0.3 * math.sin(2.5)]]).double()
            policy.learn(Observation(25.0, best, hill(best, 25)))
            indices.append(float(policy.choose(25.5).why["index"]))
        gains.append(indices[0] - indices[1])
    assert min(gains) > -1e-6
    assert sum(gains) > 0.05


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_widths_of_recipes_do_not_depend_on_the_unit_of_rewards(unit):
    def widths(unit):
        kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
        kernel.base_kernel.lengthscale, kernel.outputscale = 0.3, unit**2
        priors = [CandidatePrior(kernel, 3 * unit)]
        one = recipes.gp_ucb(SQUARE, kernel, 0.01 * unit**2)
        several = recipes.pe_gp_ucb(SQUARE, priors, 0.01 * unit**2, horizon=50)
        return torch.stack([p.width(t, p.model).reshape(()) for p in (one, several) for t in (1, 9)])

    torch.testing.assert_close(widths(unit), widths(1.0))


def test_the_opening_is_a_sobol_sequence_and_then_the_acquisition_decides():
    policy = policy_over_the_square(2, search=PointSearch(2, 32, initial=3), seed=4)
    first = SQUARE.sample(3, 4)
    for step in range(3):
        choice = policy.choose(float(step))
        assert torch.equal(choice.arm, first[step].expand(2, 2))
        assert choice.why["index"].shape == (2,)
        policy.learn(Observation(float(step), choice.arm, hill(choice.arm, step)))
    index = policy.choose(3.0).why["index"]
    with torch.no_grad():
        again = UpperConfidenceBound(policy.model, 1.5)(policy.choices.inputs_of(first[2].expand(2, 2), 3.0))
    assert (index > again + 1e-3).all()


def test_bounds_constraints_and_contexts_of_a_step_are_kept():
    policy = policy_over_the_square(2)
    teach(policy, 10)
    corner = Domain(torch.tensor([[0.0, 0.6], [0.4, 1.0]]).double())
    below = Domain(SQUARE.bounds, [(torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]).double(), -0.5)])
    context = Domain(SQUARE.bounds, fixed_features={0: torch.tensor([0.2, 0.9]).double()})
    for domain in (corner, below, context):
        point = policy.choose(11.0, domain).arm
        assert domain.contains(point).all()
    assert (policy.choose(11.0, below).arm.sum(-1) <= 0.5 + 1e-6).all()
    assert torch.equal(policy.choose(11.0, context).arm[:, 0], torch.tensor([0.2, 0.9]).double())
    free = policy.choose(11.0).why["index"]
    for domain in (corner, below, context):
        assert (policy.choose(11.0, domain).why["index"] <= free + 1e-6).all()


def test_a_fixed_value_may_lie_outside_the_bounds_under_constraints():
    """BoTorch corrects a point that misses a constraint by rounding, and then wants all values within the bounds."""
    bounds = torch.tensor([[0.0, 0.0, 5.0], [1.0, 1.0, 5.0]]).double()
    domain = Domain(bounds, [(torch.tensor([0, 2]), torch.tensor([-1.0, 0.1]).double(), 0.2)], {2: 7.0})
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.5
    search = PointSearch(num_restarts=2, raw_samples=16, options={"maxiter": 5})
    policy = recipes.gp_ts(domain, kernel, 0.1, seed=1, replicates=2, search=search)
    g = torch.Generator().manual_seed(0)
    for step in range(8):
        point = policy.choose(float(step)).arm
        assert domain.contains(point).all()
        assert (point[:, 2] == 7.0).all()
        policy.learn(Observation(float(step), point, torch.randn(2, generator=g, dtype=torch.float64)))


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_a_narrow_polytope_is_sampled(unit):
    sliver = Domain(unit * SQUARE.bounds, [(torch.tensor([0, 1]), torch.ones(2).double(), 1.99 * unit)])
    assert sliver.contains(sliver.sample(5, 0), 1e-9).all()


def test_the_driver_plays_points_and_the_history_keeps_them(tmp_path):
    domains = {step: Domain(torch.tensor([[0.0, 0.0], [0.5, 0.5]]).double()) for step in range(10, 15)}
    problem = MovingHill(replicates=2, domains=domains)
    policy = policy_over_the_square(2, search=PointSearch(2, 32), width=ConstantWidth(0.5))
    history = run(policy, problem, 30)
    assert history.arms.shape == (2, 30, 2)
    assert (history.arms[:, 9:14] <= 0.5 + 1e-6).all()
    steps = torch.arange(1, 31)
    truth = torch.stack([hill(history.arms[:, t], int(step)) for t, step in enumerate(steps)], -1)
    torch.testing.assert_close(history.expected_rewards, truth, rtol=0, atol=1e-12)
    assert (history.regret >= -1e-6).all()
    assert history.best[0, 0] == pytest.approx(1.0, abs=1e-6)  # the top of the hill is in the square
    cut = float(hill(torch.tensor([[0.5, 0.5]]).double(), 12))
    assert history.best[0, 11] >= cut - 1e-9  # at step 12 only a quarter is open
    assert history.best[0, 11] < 0.9
    frame = history.to_frame()
    assert "arm" not in frame
    assert torch.equal(torch.tensor(frame["x1"].to_numpy()), history.arms[..., 1].reshape(-1))
    history.save(tmp_path / "run.npz")
    assert torch.equal(History.load(tmp_path / "run.npz").arms, history.arms)
    random = run(recipes.build("random", problem, replicates=2, horizon=30), problem, 30)
    assert history.mean_cumulative_regret < 0.5 * random.mean_cumulative_regret


def test_a_point_outside_the_domain_is_refused():
    problem = MovingHill(domains={3: Domain(torch.tensor([[0.0, 0.0], [0.1, 0.1]]).double())})
    policy = policy_over_the_square(search=PointSearch(1, 4))
    policy.choose = lambda time, available=None: type(policy).choose(policy, time)
    with pytest.raises(ValueError, match=r"chose arm \[.*\], which is not available, at step 3"):
        run(policy, problem, 5)


def test_what_does_not_fit_is_refused_by_name():
    policy, points, arms = policy_over_the_square(2), policy_over_the_square(), make("gp", num_arms=5)
    nothing = Domain(SQUARE.bounds, [(torch.tensor([0, 1]), torch.ones(2).double(), 3.0)])
    five = OnlineGP(RBFKernel(), 0.1, input_dim=5)
    over_arms = recipes.build("gp_ucb", arms, replicates=1, horizon=3)
    for message, call in {
        "inequality_constraints must leave some of the box": lambda: nothing.sample(5, 0),
        r"policy\.dim must be the problem's 0": lambda: run(points, arms, 3),
        r"policy\.dim must be the problem's 2": lambda: run(over_arms, MovingHill(), 3),
        "available must be a Domain of 2 dimensions": lambda: policy.choose(
            1.0, Domain(SQUARE.bounds[:, :1])
        ),
        "input_dim 2, or 3": lambda: IndexPolicy(five, UpperConfidenceBound, choices=SQUARE),
        "raw_samples must be at least 9": lambda: PointSearch(num_restarts=9, raw_samples=8),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()

"""Model averaging over points: its slow twin, units and clocks that do not matter, outliers, members that adapt."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from bandits_torch import Domain, make, recipes, run
from bandits_torch.acquisition import PointSearch
from bandits_torch.models import PointMembers
from bandits_torch.policies import Observation, PointAveraging
from bandits_torch.policies.sharing import heaviest
from bandits_torch.recipes.averaging import auto_over_points
from tests.reference.plain_points import PlainPointAveraging, Process

BOX = Domain(torch.tensor([[-1.0, 0.0], [3.0, 2.0]], dtype=torch.float64))
GRID = [
    (x, rate, scale) for x in (0.2, 0.7) for rate, scale in ((0.0, math.inf), (0.2, math.inf), (0.0, 5.0))
]
NOISES = [0.01, 0.05, 0.1, 0.02, 0.3, 0.04]
S = 2


def averaging(domain=BOX, replicates=S, capacity=9, **options):
    lengthscale, rate, timescale = zip(*GRID, strict=True)
    double = {"dtype": torch.float64}
    members = PointMembers(
        domain.bounds,
        torch.tensor(lengthscale, **double),
        torch.tensor(NOISES, **double),
        torch.tensor(rate, **double),
        torch.tensor(timescale, **double),
        replicates=replicates,
        capacity=capacity,
    )
    return PointAveraging(domain, members, **({"typical_gap": False} | options))


def somewhere(g, *shape):
    low, high = BOX.bounds
    return low + (high - low) * torch.rand(*shape, 2, generator=g, dtype=torch.float64)


def reward_of(x, step):
    sign = -2.0 if step >= 25 else 1.0
    return sign * torch.sin(2 * x[..., 0] + x[..., 1])


@pytest.mark.parametrize(
    "doubtful", [{}, {0: [300.0, 0.0], 3: [0.0, 1e4], 11: [-400.0, 0.0], 19: [500.0, 500.0]}]
)
def test_agrees_with_the_plain_twin(doubtful):
    policy = averaging(refined=0, share=0.02, behind=4.0)
    rules = {"share": 0.02, "behind": 4.0, "memory": 0.9, "at_once": 2.0}
    rules |= {"forget": 0.99, "tail": 8.0, "clip": 4.0}
    twins = [
        PlainPointAveraging(
            [Process([x] * 2, noise, *t) for (x, *t), noise in zip(GRID, NOISES, strict=True)],
            capacity=9,
            **rules,
        )
        for _ in range(S)
    ]
    g = torch.Generator().manual_seed(3)
    low, high = BOX.bounds
    time = 0.0
    for step in range(40):
        points = somewhere(g, 3)
        mean, variance = policy.marginals(time + 5, points)
        for k, twin in enumerate(twins):
            for i, point in enumerate((points - low) / (high - low)):
                m, v = twin.predict(point.tolist(), time)
                assert math.isclose(mean[k, i], m, rel_tol=1e-7, abs_tol=1e-8)
                assert math.isclose(variance[k, i], v, rel_tol=1e-6, abs_tol=1e-8)
        x = somewhere(g, S)
        reward = reward_of(x, step) + 0.1 * torch.randn(S, generator=g, dtype=torch.float64)
        reward = reward + (8.0 if step % 15 == 7 else 0.0) + (20.0 if step >= 25 else 0.0)
        reward = reward + torch.tensor(doubtful.get(step, [0.0, 0.0]), dtype=torch.float64)
        policy.learn(Observation(time + 5, x, reward))
        for k, twin in enumerate(twins):
            twin.learn(((x[k] - low) / (high - low)).tolist(), float(reward[k]), time)
        weights = torch.tensor([twin.w for twin in twins], dtype=torch.float64)
        torch.testing.assert_close(policy.sharing.weights, weights, rtol=0, atol=1e-7)
        assert policy.trace()["resets"].tolist() == [twin.resets for twin in twins]
        assert policy.trace()["doubted"].tolist() == [twin.range.doubted for twin in twins]
        time += 0.3 + float(torch.rand(1, generator=g))
    assert policy.members.inputs.shape[1] == 9  # so the run has seen observations dropped
    assert any(0 < twin.anew < twin.resets for twin in twins)  # members that follow, with and without data
    loss = torch.tensor([twin.log_loss for twin in twins], dtype=torch.float64)
    torch.testing.assert_close(policy.sharing.log_loss, loss, rtol=1e-7, atol=1e-7)


def taught(policy, g):
    for step in range(12):
        x = somewhere(g, policy.replicates)
        policy.learn(Observation(float(step), x, reward_of(x, 0)))
    return policy


def test_plays_the_largest_upper_bound_of_the_mixture():
    (low, high), g = BOX.bounds, torch.Generator().manual_seed(0)
    policy = averaging(replicates=1, search=PointSearch(initial=0), width=1.3, ends=0.5, capacity=30)
    played = taught(policy, g).choose(13.0).arm
    points = somewhere(g, 4000)
    mean, variance = policy.marginals(13.0, torch.cat([played, points]))
    bounds = mean[0] + 1.3 * variance[0].sqrt()
    unit = float((policy.sharing.weights * policy.scale.scale).sum().sqrt())
    z = (torch.cat([played, points]) - low) / (high - low)
    bounds = bounds - 0.5 * unit / (1 + (12 / 20) ** 2) * (2 * z - 1).square().mean(-1)
    assert bounds[0] >= bounds[1:].max() - 1e-6


def test_a_search_leaves_out_the_lightest_members_that_have_a_hundredth_together():
    weights = torch.tensor(
        [[0.004, 0.5, 0.003, 0.4, 0.09, 0.003], [0.995, *[0.001] * 5]], dtype=torch.float64
    )
    member, share = heaviest(weights, 0.01)
    assert member[0].tolist() == [1, 3, 4]
    torch.testing.assert_close(share[0], torch.tensor([0.5, 0.4, 0.09]).double() / 0.99)
    assert member[1, 0] == 0
    assert share[1].tolist() == [1.0, 0.0, 0.0]  # two more than it needs, for the other replicate's sake
    (low, high), g = BOX.bounds, torch.Generator().manual_seed(1)
    policy = taught(averaging(capacity=30), g)
    policy.sharing.log_weight = weights.log()
    points = somewhere(g, 5, S)
    X = torch.cat([points, torch.full((5, S, 1), 13.0, dtype=torch.float64)], -1).unsqueeze(-2)
    found = policy.acquisition()(X)
    mean, variance = policy.members.moments(points.movedim(0, 1), torch.full((S, 5), 13.0).double())
    for k in range(S):
        w, chosen = share[k], member[k]
        s = policy.scale.scale[k, chosen]
        m = w @ mean[k, chosen]
        v = w @ (s.unsqueeze(-1) * variance[k, chosen] + (mean[k, chosen] - m).square())
        z = (points[:, k] - low) / (high - low)
        lost = (2 * z - 1).square().mean(-1) / (1 + (12 / 20) ** 2)
        expected = (m + policy.width * v.sqrt()) / (w @ s).sqrt() - lost
        torch.testing.assert_close(found[:, k], expected, rtol=1e-9, atol=1e-9)


def played(reward, steps, domain=BOX, **options):
    options = {"search": {"initial": 6, "raw_samples": 32}, "capacity": 15} | options
    policy, points = auto_over_points(domain, **options), []
    for step in range(steps):
        choice = policy.choose(float(step))
        points.append(choice.arm)
        policy.learn(Observation(float(step), choice.arm, reward(choice.arm, step), choice.why))
    return torch.stack(points), policy


def test_auto_plays_a_domain_and_takes_what_is_told_as_a_beginning():
    problem = make("dynamic-griewank", horizon=20)
    policy = recipes.build("auto", problem, replicates=2, horizon=20, search={"initial": 4}, seed=5)
    assert isinstance(policy, PointAveraging)
    told = problem.knowledge.kernel.lengthscale.item()
    begins = policy.members.beginning[0][:, 0].tolist()
    assert begins == pytest.approx([0.2 * math.sqrt(3)] * 7 + [told] * 7)
    assert policy.members.beginning[1].tolist() == pytest.approx([0.02] * 7 + [0.0025] * 7)
    history = run(policy, make("dynamic-griewank", horizon=20, replicates=2), 20)
    assert history.arms.shape == (2, 20, 3)
    assert {"effective_rate", "effective_members", "noise_scale", "scale", "resets"} <= set(history.trace)
    free = recipes.auto(problem.domain, seed=5)
    assert free.search.initial == 8  # 2 (d + 1)
    for name, given in (
        ("kernel", {"kernel": torch.eye(3)}),
        ("kernel", {"kernel": RBFKernel(active_dims=[0])}),
        ("kernel", {"kernel": ScaleKernel(RBFKernel(active_dims=[0]))}),
        ("kernel", {"kernel": ScaleKernel(RBFKernel(), active_dims=[0])}),
        ("noise_variance", {"noise_variance": 0.1}),
        (
            "noise_variance",
            {"kernel": RBFKernel(), "noise_variance": torch.tensor([0.1, 0.3]), "replicates": 2},
        ),
        ("history", {"history": torch.ones(4, 3)}),
        ("prior_mean", {"prior_mean": 1.0}),
        ("plausible", {"plausible": 2.0}),
    ):
        with pytest.raises(ValueError, match=name):
            recipes.auto(problem.domain, **given)


@pytest.mark.filterwarnings("error")
def test_constraints_and_a_context_of_each_replicate_are_kept():
    constraint = (torch.tensor([0, 1]), torch.tensor([1.0, 1.0], dtype=torch.float64), 2.0)
    tilted = Domain(BOX.bounds, [constraint])
    points, _ = played(lambda x, step: -x.sum(-1), 14, domain=tilted)
    assert tilted.contains(points).all()
    assert (points[-3:].sum(-1) - 2).abs().max() < 0.2  # the best lies on the edge
    policy = averaging(capacity=30, search=PointSearch(initial=2))
    for step in range(12):
        context = Domain(BOX.bounds, fixed_features={1: torch.tensor([0.3, 1.5], dtype=torch.float64)})
        choice = policy.choose(float(step), context)
        assert choice.arm[:, 1].tolist() == [0.3, 1.5]
        policy.learn(Observation(float(step), choice.arm, reward_of(choice.arm, 0)))
    with pytest.raises(ValueError, match="available"):
        policy.choose(12.0, Domain(torch.tensor([[0.0] * 3, [1.0] * 3]).double()))


def test_some_replicates_begin_anew():
    _, policy = played(reward_of, 14, replicates=2)
    before = policy.members.targets[1].clone()
    policy.reset(torch.tensor([True, False]))
    assert policy.members.num_held[0].sum() == 0
    assert torch.equal(policy.members.targets[1], before)
    assert policy.scale.origin.isnan().tolist() == [True, False]


def test_no_more_can_be_refined_than_there_are():
    with pytest.raises(ValueError, match="refined"):
        averaging(refined=len(GRID) + 1)

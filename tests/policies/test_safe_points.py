"""Safe policies over a domain: points within the limits of dense processes alone are played, and limits are kept."""

import pytest
import torch

from bandits_torch import AskTell, Domain, recipes
from bandits_torch.checkpoint import described
from bandits_torch.models import OnlineGP, OutcomeConstraint
from bandits_torch.policies import Observation, Pending, SafePointPolicy
from bandits_torch.policies.safe import NoSafeArmError
from bandits_torch.state import differing
from bandits_torch.theory import ConstantWidth, PosteriorSafetyWidth
from benchmarks.safety.__main__ import SafePointDraws, play_points
from tests.reference import dense_safe_set
from tests.reference.kernels import rbf as kernel

RATE, NOISE = 0.05, 0.04
SQUARE = Domain(torch.tensor([[0.0, -1.0], [1.0, 3.0]]).double())
START = torch.tensor([[0.5, 1.0]]).double()


LIMITED = (
    OutcomeConstraint("heat", high=0.9, kernel=kernel(0.6), noise_variance=0.02, forgetting_rate=0.03),
    OutcomeConstraint("flow", -1.6, 1.8, kernel=kernel(0.5), forgetting_rate=0.0),
)


def policy(**options):
    settings = {"constraints": LIMITED, "safe_points": START, "forgetting_rate": RATE}
    settings |= {"width": 1.5, "safety_width": 1.3, "search": {"raw_samples": 64}}
    return recipes.safe_gp_ucb(SQUARE, kernel(0.4), NOISE, **(settings | options))


def outcomes_at(step, x):
    return torch.stack([torch.sin(3 * x[:, 0] + 0.05 * step) - 0.6, torch.cos(x[:, 1] - 0.1 * step)], -1)


def play_on(policy, steps, first=0):
    points = []
    for step in range(first, first + steps):
        choice = policy.choose(float(step))
        reward = torch.sin(4 * choice.arm[:, 0] + choice.arm[:, 1] + 0.1 * step)
        told = Observation(float(step), choice.arm, reward, choice.why, outcomes_at(step, choice.arm))
        policy.learn(told)
        points.append(choice.arm.clone())
    return points


@pytest.mark.parametrize("least_reward", [None, -1.2])
def test_what_is_within_limits_and_what_is_played_are_of_dense_processes(least_reward):
    """At 24 points and the one played: its bounds are the dense ones, and none of the 24 that is safe is better."""
    ours = policy(least_reward=least_reward)
    probe = SQUARE.sample(24, 3)
    data, certain = [], 0
    for step in range(12):
        choice = ours.choose(float(step))
        told = torch.cat([probe, choice.arm])
        zero, low = torch.zeros(len(told) + len(data)).double(), -float("inf")
        everywhere = torch.cat([told, *[x for x, *_ in data]])
        dense = [
            dense_safe_set.DenseOutcome(
                kernel(0.4), everywhere, RATE, NOISE, zero, least_reward or low, -low
            ),
            dense_safe_set.DenseOutcome(kernel(0.6), everywhere, 0.03, 0.02, zero, low, 0.9),
            dense_safe_set.DenseOutcome(kernel(0.5), everywhere, 0.0, NOISE, zero, -1.6, 1.8),
        ]
        for k, (_, time, *values) in enumerate(data):
            for one, value in zip(dense, values, strict=True):
                one.data.append((len(told) + k, time, value))
        limited = dense[1:] if least_reward is None else dense
        safe = dense_safe_set.safe_set(limited, float(step), 1.3)[: len(told)] if data else []
        expected = [x for x, ok in enumerate(safe) if ok]
        if data:
            inside = ours.within_limits(float(step), told)[0]
            assert inside.nonzero().flatten().tolist() == expected
            assert bool(choice.why["certain"]) == (24 in expected)
        if 24 in expected:
            certain += 1
            mean, variance = (part.detach() for part in ours.choices.marginals(float(step), told))
            upper = (mean + 1.5 * variance.sqrt())[0]
            assert float(upper[24]) == pytest.approx(float(choice.why["index"]))
            assert upper[24] >= max(float(upper[x]) for x in expected) - 1e-9
        y = torch.sin(4 * choice.arm[:, 0] + choice.arm[:, 1] + 0.1 * step)
        measured = outcomes_at(step, choice.arm)
        ours.learn(Observation(float(step), choice.arm, y, choice.why, measured))
        data.append((choice.arm, float(step), float(y), *measured[0].tolist()))
    assert certain > 5


@pytest.mark.slow
def test_limits_are_broken_with_at_most_probability_delta_where_the_constraint_drifts():
    S, T, delta = 6, 20, 0.2
    problem = SafePointDraws(T, S, seed=3, forgetting_rate=0.03)
    safe = play_points(problem, "safe_gp_ucb", {"guarantee": "step", "delta": delta, "width": 2.0}, T)
    free = play_points(problem, "tv_gp_ucb", {"width": 2.0}, T)
    inside = 1 - safe.trace["fallback"]
    share = float((safe.trace["violation"] * inside).sum() / inside.sum())
    assert share <= delta
    assert float(free.trace["violation"].mean()) > 2 * max(share, 0.05)
    assert float(inside.mean()) > 0.5


def test_the_search_stays_near_the_safe_points_and_in_the_domain_of_the_step():
    ours = policy()
    first = ours.choose(0.0)
    assert torch.equal(first.arm, START)
    assert bool(first.why["certain"])
    play_on(ours, 6)
    half = Domain(SQUARE.bounds, [(torch.tensor([0]), torch.ones(1).double(), 0.6)], {1: 0.5})
    found = ours.choose(6.0, half).arm
    assert bool(half.contains(found).all())
    assert float(found[0, 1]) == 0.5
    with pytest.raises(ValueError, match="available"):
        ours.choose(6.0, Domain(SQUARE.bounds[:, :1]))


def test_where_no_point_is_safe_the_likeliest_is_played_or_those_vouched_for_or_none():
    tight = (OutcomeConstraint("heat", -0.01, 0.01, kernel=kernel(0.6)),)

    def told(ours):
        choice = ours.choose(0.0)
        assert bool(choice.why["certain"])
        ours.learn(Observation(0.0, choice.arm, torch.ones(1).double(), {}, torch.ones(1, 1).double()))
        return ours

    likeliest = told(policy(constraints=tight))
    away = likeliest.choose(1.0)
    assert not bool(away.why["certain"])
    assert float(likeliest.trace()["fallback"]) == 1.0
    assert float((away.arm - START).norm()) > 0.3  # it was too hot there
    vouched = told(policy(constraints=tight, when_empty="safe_points")).choose(1.0)
    assert torch.equal(vouched.arm, START)
    assert not bool(vouched.why["certain"])
    always = told(policy(constraints=tight, trust="always")).choose(1.0)
    assert torch.equal(always.arm, START)
    assert bool(always.why["certain"])
    stops = told(policy(constraints=tight, when_empty="raise"))
    before = described(stops.state_dict())
    with pytest.raises(NoSafeArmError, match=r"no point found .* in replicates \[0\]"):
        stops.choose(1.0)
    assert described(stops.state_dict()) == before


@pytest.mark.parametrize("least_reward", [None, -1.2])
def test_open_questions_make_no_point_safer(least_reward):
    ours = policy(least_reward=least_reward)
    play_on(ours, 8)
    asked = AskTell(ours)
    before = described(ours.state_dict())
    questions = asked.ask(14.0, count=5)
    assert described(ours.state_dict()) == before
    points = torch.cat([q.arm for q in questions])
    with ours.expecting(14.0) as expect:
        for q in questions:
            expect(Pending(14.0, q.arm))
        pending = ours.within_limits(14.0, points)
    assert torch.equal(pending, ours.within_limits(14.0, points))
    assert len(points.unique(dim=0)) > 2


def test_each_open_question_is_a_step_of_the_guarantee():
    run_long = policy(safety_width=PosteriorSafetyWidth(3, 0.1))
    widths = []
    with run_long.expecting(0.0) as expect:
        for _ in range(3):
            expect(Pending(0.0, run_long.choose(0.0).arm))
            widths.append(float(run_long.trace()["safety_width"]))
    expected = [float(run_long.safety_width(t, run_long.model)) for t in (1, 2, 3)]
    assert widths == pytest.approx(expected)
    run_long.choose(0.0)
    assert float(run_long.trace()["safety_width"]) == widths[0]


def test_bad_settings_are_refused_by_name():
    gp = OnlineGP(kernel(0.4), NOISE, input_dim=2)
    widths = {"width": ConstantWidth(1.0), "safety_width": ConstantWidth(1.0), "domain": SQUARE}
    limits = {"reward": (0.0, 1.0)}
    cases = [
        (
            lambda: SafePointPolicy(gp, {}, {"heat": (0.0, 1.0)}, **widths),
            "limits must be of outcomes that have",
        ),
        (lambda: SafePointPolicy(gp, {"heat": gp}, limits, **widths), "outcomes must be named in limits"),
        (lambda: SafePointPolicy(gp, {}, limits, **(widths | {"domain": None})), "domain must be"),
        (lambda: policy(safe_points=None, when_empty="safe_points"), "safe_points must be given"),
        (lambda: policy(when_empty="safe_arms"), "when_empty must be 'likeliest'"),
        (lambda: policy(safe_arms=torch.ones(3) > 0), "safe_arms must be None"),
        (lambda: policy(search={"initial": 4}), "search.initial must be 0"),
        (lambda: recipes.safe_opt(SQUARE, kernel(0.4), NOISE, least_reward=0.0), "arms must be arms"),
        (
            lambda: recipes.safe_gp_ucb(5, torch.eye(5).double(), NOISE, least_reward=0.0, safe_points=START),
            "safe_p",
        ),
    ]
    for act, message in cases:
        with pytest.raises(ValueError, match=message):
            act()
    ours, large = policy(), torch.tensor([[0.0, 1e160]], dtype=torch.float64)
    before = ours.state_dict()
    for outcomes, message in ((None, "outcomes must be given"), (large, "outcomes must be at most")):
        with pytest.raises(ValueError, match=message):
            ours.learn(Observation(0.0, START, torch.ones(1).double(), outcomes=outcomes))
        assert differing(ours.state_dict(), before) == []


def test_after_a_reset_no_point_of_before_is_tried():
    again = policy()
    play_on(again, 5)
    again.reset()
    assert again.state_dict()["played"].shape == policy().state_dict()["played"].shape

"""Safe policies over arms and over points: what is safe is what dense Gaussian processes say, and limits are kept."""

import math
from copy import deepcopy
from functools import partial

import pandas as pd
import pytest
import torch

from bandits_torch import ArmGP, AskTell, Domain, OnlineGP, make, recipes, run
from bandits_torch.border import Settings
from bandits_torch.checkpoint import described
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.mixed_points import MixedSearch
from bandits_torch.models import OutcomeConstraint
from bandits_torch.policies import Observation, Pending, SafePointPolicy
from bandits_torch.policies.safe import Bounded, NoSafeArmError, SafePolicy, expanders, safe_set
from bandits_torch.state import differing
from bandits_torch.theory import ConstantWidth, PosteriorSafetyWidth
from tests.reference import dense_safe_set
from tests.reference.kernels import rbf as kernel

N, RATE, NOISE = 9, 0.05, 0.04
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1) ** 1.3  # unevenly, so that no two arms are tied
FIRST = torch.arange(N) == N // 2
SQUARE = Domain(torch.tensor([[0.0, -1.0], [1.0, 3.0]]).double())
START = torch.tensor([[0.5, 1.0]]).double()
LIMITED = {
    "arms": (
        OutcomeConstraint("heat", high=0.9, kernel=kernel(0.4), noise_variance=0.02, forgetting_rate=0.03),
        OutcomeConstraint("flow", -1.6, 1.8, kernel=kernel(0.3), prior_mean=0.2 * torch.cos(6 * ARMS[:, 0])),
    ),
    "points": (
        OutcomeConstraint("heat", high=0.9, kernel=kernel(0.6), noise_variance=0.02, forgetting_rate=0.03),
        OutcomeConstraint("flow", -1.6, 1.8, kernel=kernel(0.5), forgetting_rate=0.0),
    ),
}


def policy(over="arms", explore="ucb", **options):
    build = recipes.safe_gp_ucb if explore == "ucb" else recipes.safe_opt
    known = {"constraints": LIMITED[over], "forgetting_rate": RATE, "width": 1.5, "safety_width": 1.3}
    if over == "arms":
        return build(ARMS, kernel(0.2), NOISE, **(known | {"safe_arms": FIRST} | options))
    known |= {"safe_points": START, "search": {"raw_samples": 64}}
    return build(SQUARE, kernel(0.4), NOISE, **(known | options))


def measured(step, arm):
    x, y = arm.unbind(-1) if arm.dim() == 2 else (ARMS[arm, 0], 0.0)
    flow = y if arm.dim() == 2 else 5 * x
    outcomes = torch.stack([torch.sin(3 * x + 0.05 * step) - 0.6, torch.cos(flow - 0.1 * step)], -1)
    return torch.sin(4 * x + y + 0.1 * step), outcomes


def play(policy, steps):
    for step in range(steps):
        choice = policy.choose(float(step))
        reward, outcomes = measured(step, choice.arm)
        policy.learn(Observation(float(step), choice.arm, reward, choice.why, outcomes))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("explore", ["ucb", "safeopt"])
@pytest.mark.parametrize("least_reward", [None, -1.2])
def test_safe_set_and_choices_are_those_of_dense_gaussian_processes(explore, least_reward):
    ours = policy("arms", explore, least_reward=least_reward, replicates=2)
    zero = torch.zeros(N).double()
    low = -math.inf if least_reward is None else least_reward
    reward = dense_safe_set.DenseOutcome(kernel(0.2), ARMS, RATE, NOISE, zero, low, math.inf)
    heat = dense_safe_set.DenseOutcome(kernel(0.4), ARMS, 0.03, 0.02, zero, -math.inf, 0.9)
    flow = dense_safe_set.DenseOutcome(
        kernel(0.3), ARMS, RATE, NOISE, LIMITED["arms"][1].prior_mean, -1.6, 1.8
    )
    limited = [heat, flow] + ([] if least_reward is None else [reward])
    sizes, lost = set(), 0
    for step in range(14):
        time = step + 3.0 * (step > 8)
        expected = dense_safe_set.safe_set(limited, time, 1.3)
        assert ours.safe_set(time).tolist() == [expected] * 2
        choice = ours.choose(time)
        initial = FIRST.nonzero().flatten().tolist() if step == 0 else []
        try:
            best = dense_safe_set.chosen(reward, limited, initial, time, 1.5, 1.3, explore)
            assert choice.arm.tolist() == [best] * 2
            assert choice.why["certain"].tolist() == [True] * 2
        except LookupError:
            lost += 1
            assert not bool(choice.why["certain"].any())
        sizes.add(sum(expected))
        y, outcomes = measured(step, choice.arm)
        ours.learn(Observation(time, choice.arm, y, choice.why, outcomes))
        arm = int(choice.arm[0])
        for one, value in ((reward, y[0]), (heat, outcomes[0, 0]), (flow, outcomes[0, 1])):
            one.data.append((arm, time, float(value)))
    assert len(sizes) >= 3
    assert lost < 10


@pytest.mark.parametrize("least_reward", [None, -1.2])
def test_what_is_within_limits_and_what_is_played_are_of_dense_processes(least_reward):
    """At 24 points and the one played: its bounds are the dense ones, and none of the 24 that is safe is better."""
    ours = policy("points", least_reward=least_reward)
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
        y, outcomes = measured(step, choice.arm)
        ours.learn(Observation(float(step), choice.arm, y, choice.why, outcomes))
        data.append((choice.arm, float(step), float(y), *outcomes[0].tolist()))
    assert certain > 5


def test_the_search_stays_near_the_safe_points_and_in_the_domain_of_the_step():
    ours = policy("points")
    first = ours.choose(0.0)
    assert torch.equal(first.arm, START)
    assert bool(first.why["certain"])
    play(ours, 6)
    half = Domain(SQUARE.bounds, [(torch.tensor([0]), torch.ones(1).double(), 0.6)], {1: 0.5})
    found = ours.choose(6.0, half).arm
    assert bool(half.contains(found).all())
    assert float(found[0, 1]) == 0.5
    with pytest.raises(ValueError, match="available"):
        ours.choose(6.0, Domain(SQUARE.bounds[:, :1]))


@pytest.mark.parametrize("guarantee", ["step", "run"])
def test_limits_are_broken_with_at_most_probability_delta_where_the_constraint_drifts(guarantee):
    """Over draws of the model, by steps in the safe set and by runs that never left it; without limits far oftener."""
    S, T, delta = 60, 60, 0.2
    problem = make("safe-tv-gp", replicates=S, num_arms=30, forgetting_rate=0.03, climb=3.0, seed=11)
    common = {"replicates": S, "horizon": T, "delta": delta}
    safe = run(recipes.build("safe_gp_ucb", problem, guarantee=guarantee, **common), problem, T)
    free = run(recipes.build("tv_gp_ucb", problem, width=2.0, **common), problem, T)
    broken = safe.trace["violation"] * (1 - safe.trace["fallback"])
    share = float(broken.amax(-1).mean() if guarantee == "run" else broken.mean())
    unlimited = free.trace["violation"]
    assert share <= delta
    assert float(unlimited.amax(-1).mean() if guarantee == "run" else unlimited.mean()) > 2 * share
    if guarantee == "step":  # it goes to the edge: the limit bites
        assert share > delta / 100
    assert float(safe.trace["fallback"].mean()) < 0.2


def test_the_width_is_the_quantile_of_its_failure_probability():
    model = ArmGP(N, torch.eye(N).double(), 0.1)
    normal = torch.distributions.Normal(0.0, torch.ones(()).double())
    each = PosteriorSafetyWidth(3, 0.3, "step")
    assert float(1 - normal.cdf(each(7, model))) == pytest.approx(0.1)
    run_long = PosteriorSafetyWidth(2, 0.2)
    failures = [2 * float(1 - normal.cdf(run_long(t, model))) for t in range(1, 2000)]
    assert sum(failures) == pytest.approx(0.2, rel=1e-3)
    assert float(PosteriorSafetyWidth(1, 0.9, "step")(1, model)) == 0.0


@pytest.mark.parametrize("over", ["arms", "points"])
def test_the_width_of_the_reward_is_that_of_the_next_step(over):
    class Noted(ConstantWidth):
        def at(self, step, model):
            steps.add(int(step))
            return super().at(step, model)

    steps = set()
    ours = policy(over, width=Noted(1.5))
    for step in range(1, 4):
        steps.clear()
        choice = ours.choose(float(step))
        assert steps == {step}
        reward, outcomes = measured(step, choice.arm)
        ours.learn(Observation(float(step), choice.arm, reward, choice.why, outcomes))


@pytest.mark.parametrize("over", ["arms", "points"])
def test_each_open_question_is_a_step_of_the_guarantee(over):
    run_long = policy(over, safety_width=PosteriorSafetyWidth(3, 0.1))
    widths = []
    with run_long.expecting(0.0) as expect:
        for _ in range(3):
            expect(Pending(0.0, run_long.choose(0.0).arm))
            widths.append(float(run_long.trace()["safety_width"]))
    expected = [float(run_long.safety_width(t, run_long.model)) for t in (1, 2, 3)]
    assert widths == pytest.approx(expected)
    run_long.choose(0.0)
    assert float(run_long.trace()["safety_width"]) == widths[0]


def impossible(over="arms", **options):
    own = {"prior_mean": torch.arange(N).double() / N} if over == "arms" else {"kernel": kernel(0.6)}
    return policy(over, constraints=(OutcomeConstraint("heat", -0.01, 0.01, **own),), **options)


def after_one(ours):
    choice = ours.choose(1.0)
    assert bool(choice.why["certain"])
    hot = torch.ones(1, 1).double()
    ours.learn(Observation(1.0, choice.arm, torch.ones(1).double(), choice.why, hot))
    return ours


def test_where_nothing_is_safe_the_likeliest_is_played_and_counted():
    ours = impossible(safe_arms=None)
    choice = ours.choose(1.0)
    assert choice.arm.tolist() == [0]
    assert not bool(choice.why["certain"])
    assert float(ours.trace()["fallback"]) == 1.0
    assert ours.choose(1.0, torch.arange(N) > 0).arm.tolist() == [1]
    ours = after_one(impossible("points"))
    choice = ours.choose(2.0)
    assert float((choice.arm - START).norm()) > 0.3  # it was too hot there
    assert not bool(choice.why["certain"])
    assert float(ours.trace()["fallback"]) == 1.0


@pytest.mark.parametrize("over", ["arms", "points"])
def test_or_what_is_vouched_for_or_nothing(over):
    told = torch.isin(torch.arange(N), torch.tensor([2, 4]))
    options = {"safe_arms": told} if over == "arms" else {}
    fallback, always = {"when_empty": f"safe_{over}"}, {"trust": "always"}
    for rule, certain in ((fallback, False), (always, True)):
        ours = after_one(impossible(over, **options, **rule))
        choice = ours.choose(2.0)
        assert bool(told[choice.arm]) if over == "arms" else torch.equal(choice.arm, START)
        assert bool(choice.why["certain"]) == certain
        assert float(ours.trace()["fallback"]) == 1.0 - certain
    stops = after_one(impossible(over, **options, when_empty="raise"))
    before = described(stops.state_dict())
    with pytest.raises(NoSafeArmError, match=r"no (arm|point found) .* in replicates \[0\]"):
        stops.choose(2.0)
    assert described(stops.state_dict()) == before


ELSEWHERE = {
    "arms": [~torch.isin(torch.arange(N), torch.tensor([2, 4]))],
    "points": [
        Domain(torch.tensor([[0.0, -1.0], [0.2, 3.0]]).double()),
        Domain(SQUARE.bounds, fixed_features={1: 2.5}),
        Domain(SQUARE.bounds, [(torch.tensor([0, 1]), torch.ones(2).double(), 2.0)]),
    ],
}


@pytest.mark.parametrize("over", ["arms", "points"])
def test_what_is_vouched_for_is_played_only_at_a_step_that_allows_it(over):
    given = {"safe_arms": ~ELSEWHERE["arms"][0]} if over == "arms" else {}
    vouched, likeliest = (
        impossible(over, **given, when_empty=rule) for rule in (f"safe_{over}", "likeliest")
    )
    for step, elsewhere in enumerate(ELSEWHERE[over]):
        choice, expected = (one.choose(float(step), elsewhere) for one in (vouched, likeliest))
        assert torch.equal(choice.arm, expected.arm)
        assert bool(elsewhere[choice.arm] if over == "arms" else elsewhere.contains(choice.arm))
        assert not bool(choice.why["certain"])


@pytest.mark.parametrize("trust", ["start", "always"])
def test_a_safe_point_is_not_vouched_for_at_another_value_of_a_coordinate(trust):
    ours = impossible("points", trust=trust)
    there, elsewhere = (Domain(SQUARE.bounds, fixed_features={1: value}) for value in (1.0, 2.5))
    assert torch.equal(ours.choose(0.0, there).arm, START)
    assert bool(ours.choose(0.0, there).why["certain"])
    assert not bool(ours.choose(0.0, elsewhere).why["certain"])
    assert float(ours.trace()["fallback"]) == 1.0
    stops = impossible("points", trust=trust, when_empty="raise")
    with pytest.raises(NoSafeArmError):
        stops.choose(0.0, elsewhere)


def test_limits_hold_for_rounded_settings():
    settings = Settings({"n": (0, 1, "integer"), "x": (0.0, 1.0)})
    start = settings.point("start", {"n": 0, "x": 0.5}).unsqueeze(0)
    heat = OutcomeConstraint("heat", high=1.2, kernel=kernel(0.5), noise_variance=0.01)
    about = {"constraints": (heat,), "safe_points": start, "safety_width": 2.0, "width": 2.0}
    safe = partial(recipes.safe_gp_ucb, settings.space.domain(), kernel(0.5), 0.01, **about)
    with pytest.raises(ValueError, match="search must be a MixedSearch over"):
        AskTell(safe(), settings=settings)
    ours = safe(search=MixedSearch(space=settings.space))
    live = AskTell(ours, settings=settings)
    for step in range(8):
        question = live.ask(float(step))
        assert step == 0 or bool(ours.within_limits(float(step), question.arm))
        n, x = question.name["n"], question.name["x"]
        live.tell(question, n + x, outcomes={"heat": 2.0 * n - 0.5})
    assert live.history()["n"].sum() <= 1  # no more than once, before it was measured


@pytest.mark.parametrize(
    ("over", "options"),
    [("arms", {}), ("arms", {"explore": "safeopt"}), ("points", {}), ("points", {"least_reward": -1.2})],
)
def test_open_questions_make_nothing_safer_and_are_not_asked_again(over, options):
    ours = policy(over, **options)
    play(ours, 8)
    before = described(ours.state_dict())
    asked = torch.cat([question.arm for question in AskTell(ours).ask(14.0, count=6)])
    assert described(ours.state_dict()) == before
    assert len(asked.unique(dim=0)) > 2
    everywhere = SQUARE.sample(99, 0)

    def safe():
        return ours.safe_set(14.0)[0] if over == "arms" else ours.within_limits(14.0, everywhere)

    now = safe()
    with ours.expecting(14.0) as expect:
        for arm in asked.split(1):
            expect(Pending(14.0, arm))
        hoped = safe()
    if over == "points":
        assert torch.equal(hoped, now)
    else:
        assert bool(now[asked].all())
        assert bool((hoped & ~now).any())  # what would be safe if the means were measured: not played


def test_expanders_are_those_of_copies_that_observed_the_favourable_outcome():
    """Over random posteriors with two outcomes, one of them limited from both sides."""
    torch.manual_seed(3)
    found = []
    for _ in range(12):
        models = [ArmGP(ARMS, kernel(0.3), 0.05), ArmGP(ARMS, kernel(0.5), 0.1)]
        for model in models:
            for arm in torch.randint(N, (3,)):
                model.observe_arms(arm, torch.randn(()).double() * 0.4)
        limits, w = [(-0.6, math.inf), (-1.0, 1.1)], 1.0

        def bounded(index, model, limits=limits, w=w):
            mean, variance = model.marginals()
            width = torch.full((1, 1), w).double()
            return Bounded(mean[None], variance.sqrt()[None], width, limits[index])

        functions = [bounded(i, m) for i, m in enumerate(models)]
        safe = safe_set(functions)
        noise = [m.noise_variance.reshape(1, 1) for m in models]
        ours = expanders(safe, functions, [m.joint()[1][None] for m in models], noise)[0].tolist()
        for x in range(N):
            reached = ~safe[0]
            for i, model in enumerate(models):
                for side in (0, 1):
                    if math.isinf(limits[i][side]):
                        continue
                    half = w * functions[i].deviation[0, x]
                    value = functions[i].mean[0, x] + (half if side == 0 else -half)
                    copy = deepcopy(model)
                    copy.observe_arms(torch.tensor(x), value)
                    after = bounded(i, copy)
                    one = after.mean - w * after.deviation if side == 0 else after.mean + w * after.deviation
                    reached &= (one >= limits[i][0] if side == 0 else one <= limits[i][1])[0]
            assert ours[x] == (bool(safe[0, x]) and bool(reached.any()))
        found += ours
    assert 5 < sum(found) < len(found) - 5


def test_bounds_are_compared_in_the_prior_deviations_of_their_own_replicate():
    def build(scales):
        K = torch.stack([scale * kernel(0.1)(ARMS).to_dense() for scale in scales])
        model = ArmGP(ARMS, ArmCovarianceKernel(K), 0.01, batch_shape=(len(scales),))
        heat = ArmGP(ARMS, kernel(0.6), 0.01, batch_shape=(len(scales),))
        widths = {"width": ConstantWidth(1.0), "safety_width": ConstantWidth(1.0)}
        vouched = {"safe_arms": torch.ones(N, dtype=torch.bool), "trust": "always"}
        return SafePolicy(
            model, {"heat": heat}, {"heat": (-5.0, 5.0)}, explore="safeopt", **widths, **vouched
        )

    both, alone = build([1.0, 1e4]), build([1.0])
    for step in range(12):
        choices = [both.choose(float(step)), alone.choose(float(step))]
        assert choices[0].arm[0] == choices[1].arm[0]
        for one, choice in zip((both, alone), choices, strict=True):
            told = torch.zeros(len(choice.arm)).double()
            one.learn(Observation(float(step), choice.arm, told, choice.why, told.unsqueeze(-1)))


def test_after_a_reset_no_point_of_before_is_tried():
    again = policy("points")
    play(again, 5)
    again.reset()
    assert again.state_dict()["played"].shape == policy("points").state_dict()["played"].shape


def test_outcomes_are_told_by_name_or_in_order():
    by_name, in_order = AskTell(policy()), AskTell(policy())
    for step in range(5):
        one, other = by_name.ask(float(step)), in_order.ask(float(step))
        assert one.arm.tolist() == other.arm.tolist()
        heat, flow = measured(step, one.arm)[1][0].tolist()
        named = {"flow": flow, "heat": heat}
        by_name.tell(one.id, 0.3, outcomes=pd.Series(named) if step % 2 else named)
        in_order.tell(other.id, 0.3, outcomes=[heat, flow])
    assert described(by_name.state_dict()) == described(in_order.state_dict())


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        (None, r"outcomes must be given, .*'heat', 'flow'.*, got None"),
        ({"heat": 1.0}, r"outcomes must be .*'heat', 'flow'"),
        ({"heat": 1.0, "flow": 0.0, "glow": 0.0}, "glow .did you mean flow"),
        ({"heat": 1.0, "flow": 0.0, 1: 0.0}, "outcomes must be among heat, flow, got 1"),
        ([1.0], r"outcomes must have shape .* got shape \(1,\)"),
        ([1.0, math.nan], "outcomes must be finite"),
        (torch.zeros(3, 2), "outcomes must have shape"),
    ],
)
def test_outcomes_that_lack_or_exceed_are_refused_with_nothing_changed(outcomes, message):
    asked = AskTell(policy())
    question = asked.ask(1.0)
    before = described(asked.state_dict())
    with pytest.raises(ValueError, match=message):
        asked.tell(question.id, 0.5, outcomes=outcomes)
    assert described(asked.state_dict()) == before


def test_limits_without_outcomes_and_other_bad_settings_are_refused():
    widths = {"width": ConstantWidth(1.0), "safety_width": ConstantWidth(1.0)}
    gp, over_points = ArmGP(ARMS, kernel(0.2), 0.1), OnlineGP(kernel(0.4), NOISE, input_dim=2)
    on_square = partial(SafePointPolicy, over_points, domain=SQUARE, **widths)
    heat, reward = {"heat": (0.0, 1.0)}, {"reward": (0.0, 1.0)}
    cases = [
        (lambda: policy(constraints=None), "constraints must be given"),
        (lambda: policy(safe_arms=None, when_empty="safe_arms"), "safe_arms must be given"),
        (lambda: policy(constraints=LIMITED["arms"][:1] * 2), "constraints must be of different names"),
        (lambda: OutcomeConstraint("heat", high=1.0, noise_variance=-0.1), "noise_variance must be"),
        (lambda: OutcomeConstraint("heat"), "limits of 'heat' must be"),
        (lambda: on_square({}, reward, domain=None), "domain must be"),
        (lambda: policy("points", safe_points=None, when_empty="safe_points"), "safe_points must be given"),
        (lambda: policy("points", when_empty="safe_arms"), "when_empty must be 'likeliest'"),
        (lambda: policy("points", safe_arms=FIRST), "safe_arms must be None"),
        (lambda: policy("points", search={"initial": 4}), "search.initial must be 0"),
        (
            lambda: recipes.safe_opt(SQUARE, kernel(0.4), NOISE, least_reward=0.0),
            "safe_opt does not play a Domain",
        ),
        (lambda: policy(safe_points=START), "safe_points must be None"),
        (
            lambda: run(policy(), make("tv-gp", num_arms=N), 3),
            r"policy.outcome_names must be \(\) or what the problem measures, \(\)",
        ),
    ]
    for kind, model in ((partial(SafePolicy, gp, **widths), gp), (on_square, over_points)):
        cases += [
            (partial(kind, {}, heat), "limits must be of outcomes that have"),
            (partial(kind, {"heat": model}, reward), "outcomes must be named in limits"),
            (partial(kind, {}, {}), "limits must be of at least one outcome"),
            (partial(kind, {}, {"reward": (-math.inf, math.inf)}), "one finite"),
        ]
    for act, message in cases:
        with pytest.raises(ValueError, match=message):
            act()


def test_outcomes_over_points_that_lack_or_are_too_large_are_refused_with_nothing_changed():
    ours, large = policy("points"), torch.tensor([[0.0, 1e160]], dtype=torch.float64)
    before = ours.state_dict()
    for outcomes, message in ((None, "outcomes must be given"), (large, "outcomes must be at most")):
        with pytest.raises(ValueError, match=message):
            ours.learn(Observation(0.0, START, torch.ones(1).double(), outcomes=outcomes))
        assert differing(ours.state_dict(), before) == []


def test_best_is_the_best_arm_within_the_limit():
    problem = make("safe-tv-gp", replicates=3, num_arms=20, seed=2)
    for step in (1, 7, 200):
        f, g = problem.expected_rewards(step), problem.expected_outcomes(step)[..., 0]
        chosen, best = problem.score(step, torch.tensor([0, 1, 2]), None)
        for s in range(3):
            inside = [float(f[s, x]) for x in range(20) if g[s, x] <= problem.limit]
            assert float(best[s]) == (max(inside) if inside else float(f[s, g[s].argmin()]))
            assert float(chosen[s]) == float(f[s, s])
    assert not bool((g <= problem.limit).any(-1).all())  # at the last step one replicate had no such arm

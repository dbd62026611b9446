"""Safe policies: the safe set is that of dense Gaussian processes, limits are kept, and nothing is taken unsaid."""

import math
from copy import deepcopy

import pytest
import torch

from bandits_torch import ArmGP, AskTell, make, recipes, run
from bandits_torch.checkpoint import described
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models import OutcomeConstraint
from bandits_torch.policies import Observation, Pending
from bandits_torch.policies.safe import Bounded, NoSafeArmError, SafePolicy, expanders, safe_set
from bandits_torch.theory import ConstantWidth, PosteriorSafetyWidth
from tests.reference import dense_safe_set
from tests.reference.kernels import rbf as kernel

N, RATE, NOISE = 9, 0.05, 0.04
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1) ** 1.3  # unevenly, so that no two arms are tied
FIRST = torch.zeros(N, dtype=torch.bool)
FIRST[N // 2] = True


LIMITED = (
    OutcomeConstraint("heat", high=0.9, kernel=kernel(0.4), noise_variance=0.02, forgetting_rate=0.03),
    OutcomeConstraint("flow", -1.6, 1.8, kernel=kernel(0.3), prior_mean=0.2 * torch.cos(6 * ARMS[:, 0])),
)


def policy(explore="ucb", **options):
    build = recipes.safe_gp_ucb if explore == "ucb" else recipes.safe_opt
    settings = {
        "constraints": LIMITED,
        "safe_arms": FIRST,
        "forgetting_rate": RATE,
        "width": 1.5,
        "safety_width": 1.3,
    }
    return build(ARMS, kernel(0.2), NOISE, **(settings | options))


def outcomes_at(step, arm):
    x = ARMS[arm, 0]
    return torch.stack([torch.sin(3 * x + 0.05 * step) - 0.6, torch.cos(5 * x - 0.1 * step)], -1)


def play(policy, steps, first=0):
    arms = []
    for step in range(first, first + steps):
        choice = policy.choose(float(step))
        reward = torch.sin(4 * ARMS[choice.arm, 0] + 0.1 * step)
        told = Observation(float(step), choice.arm, reward, choice.why, outcomes_at(step, choice.arm))
        policy.learn(told)
        arms.append(choice.arm.tolist())
    return arms


# -- the safe set ---------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("explore", ["ucb", "safeopt"])
@pytest.mark.parametrize("least_reward", [None, -1.2])
def test_safe_set_and_choices_are_those_of_dense_gaussian_processes(explore, least_reward):
    ours = policy(explore, least_reward=least_reward, replicates=2)
    zero = torch.zeros(N).double()
    low = -math.inf if least_reward is None else least_reward
    reward = dense_safe_set.DenseOutcome(kernel(0.2), ARMS, RATE, NOISE, zero, low, math.inf)
    heat = dense_safe_set.DenseOutcome(kernel(0.4), ARMS, 0.03, 0.02, zero, -math.inf, 0.9)
    flow = dense_safe_set.DenseOutcome(kernel(0.3), ARMS, RATE, NOISE, LIMITED[1].prior_mean, -1.6, 1.8)
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
        y = torch.sin(4 * ARMS[choice.arm, 0] + 0.1 * step)
        measured = outcomes_at(step, choice.arm)
        ours.learn(Observation(time, choice.arm, y, choice.why, measured))
        arm = int(choice.arm[0])
        for one, value in ((reward, y[0]), (heat, measured[0, 0]), (flow, measured[0, 1])):
            one.data.append((arm, time, float(value)))
    assert len(sizes) >= 3
    assert lost < 10


# -- the guarantee --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("guarantee", "per"), [("step", "step"), ("run", "run")])
def test_limits_are_broken_with_at_most_probability_delta_where_the_constraint_drifts(guarantee, per):
    """Over draws of the model, by steps in the safe set and by runs that never left it; without limits far oftener."""
    S, T, delta = 60, 60, 0.2
    problem = make("safe-tv-gp", replicates=S, num_arms=30, forgetting_rate=0.03, climb=3.0, seed=11)
    common = {"replicates": S, "horizon": T, "delta": delta}
    safe = run(recipes.build("safe_gp_ucb", problem, guarantee=guarantee, **common), problem, T)
    free = run(recipes.build("tv_gp_ucb", problem, width=2.0, **common), problem, T)
    broken = safe.trace["violation"] * (1 - safe.trace["fallback"])
    share = float(broken.amax(-1).mean() if per == "run" else broken.mean())
    unlimited = free.trace["violation"]
    assert share <= delta
    assert float(unlimited.amax(-1).mean() if per == "run" else unlimited.mean()) > 2 * share
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


# -- what is played where nothing is safe ---------------------------------------------------------------


def impossible(**options):
    """No arm is ever within these limits by its bounds."""
    tight = (OutcomeConstraint("heat", -0.01, 0.01, prior_mean=torch.arange(N).double() / N),)
    return policy(constraints=tight, **options)


def test_where_no_arm_is_safe_the_likeliest_is_played_and_counted():
    ours = impossible(safe_arms=None)
    choice = ours.choose(1.0)
    assert choice.arm.tolist() == [0]
    assert not bool(choice.why["certain"])
    assert float(ours.trace()["fallback"]) == 1.0
    without_first = torch.ones(N, dtype=torch.bool)
    without_first[0] = False
    assert ours.choose(1.0, without_first).arm.tolist() == [1]


def test_the_fallback_may_be_the_arms_vouched_for_or_a_stop():
    told = FIRST.clone()
    told[2] = True
    vouched = impossible(safe_arms=told, when_empty="safe_arms")
    stops = impossible(when_empty="raise")
    for ours in (vouched, stops):  # at first they are the safe set
        choice = ours.choose(1.0)
        assert bool(told[choice.arm])
        assert bool(choice.why["certain"])
        ours.learn(
            Observation(1.0, choice.arm, torch.ones(1).double(), choice.why, torch.zeros(1, 1).double())
        )
    assert bool(told[vouched.choose(2.0).arm])
    assert float(vouched.trace()["fallback"]) == 1.0
    before = described(stops.state_dict())
    with pytest.raises(NoSafeArmError, match=r"no arm .* in replicates \[0\]"):
        stops.choose(2.0)
    assert described(stops.state_dict()) == before
    always = impossible(trust="always")
    play_one = always.choose(1.0)
    always.learn(Observation(1.0, play_one.arm, torch.ones(1).double(), {}, torch.zeros(1, 1).double()))
    assert bool(FIRST[always.choose(2.0).arm])
    assert float(always.trace()["fallback"]) == 0.0


@pytest.mark.parametrize("explore", ["ucb", "safeopt"])
def test_open_questions_make_no_arm_safer_and_are_not_asked_again(explore):
    ours = policy(explore)
    play(ours, 8)
    asked, safe = AskTell(ours), ours.safe_set(20.0)[0]
    before = described(ours.state_dict())
    questions = asked.ask(20.0, count=6)
    assert described(ours.state_dict()) == before
    assert all(bool(safe[q.arm]) for q in questions)
    with ours.expecting(20.0) as expect:
        for q in questions:
            expect(Pending(20.0, q.arm))
        hoped = ours.safe_set(20.0)[0]
    assert bool((hoped & ~safe).any())  # what would be safe if the means were measured: not played
    assert len({int(q.arm) for q in questions}) > 1


def test_limits_are_kept_in_a_run_however_many_questions_are_open():
    """Of independent arms each may break the limit with the probability of the first step, 0.06; eight are asked."""
    S, N = 400, 30
    first = PosteriorSafetyWidth(1, 0.1)(1, ArmGP(1, torch.eye(1).double(), 0.1))
    f = torch.randn(S, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    limit = -1.0001 * float(first)
    ours = recipes.safe_gp_ucb(
        N, torch.eye(N).double(), 0.1, least_reward=limit, delta=0.1, forgetting_rate=0.0, replicates=S
    )
    broken = torch.zeros(S, dtype=torch.bool)
    for choice in ours.choose_many(1.0, 8):
        value = f.gather(1, choice.arm.unsqueeze(1)).squeeze(1)
        broken |= choice.why["certain"] & (value < limit)
    assert 0.01 < float(broken.double().mean()) <= 0.1


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


# -- state, replicates, masks ---------------------------------------------------------------------------


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


def test_a_mask_is_kept():
    ours = policy()
    play(ours, 6)
    mask = torch.zeros(N, dtype=torch.bool)
    mask[[0, 5]] = True
    assert int(ours.choose(6.0, mask).arm) in (0, 5)


# -- asked and told -------------------------------------------------------------------------------------


def test_outcomes_are_told_by_name_or_in_order():
    by_name, in_order = AskTell(policy()), AskTell(policy())
    for step in range(5):
        one, other = by_name.ask(float(step)), in_order.ask(float(step))
        assert one.arm.tolist() == other.arm.tolist()
        heat, flow = outcomes_at(step, one.arm)[0].tolist()
        by_name.tell(one.id, 0.3, outcomes={"flow": flow, "heat": heat})
        in_order.tell(other.id, 0.3, outcomes=[heat, flow])
    assert described(by_name.state_dict()) == described(in_order.state_dict())


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        (None, r"outcomes must be given, .*'heat', 'flow'.*, got None"),
        ({"heat": 1.0}, r"outcomes must be .*'heat', 'flow'"),
        ({"heat": 1.0, "flow": 0.0, "glow": 0.0}, "glow .did you mean flow"),
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


@pytest.mark.parametrize("name", ["gp_ucb", "tv_gp_ucb", "ucb1", "random"])
def test_a_policy_without_limits_refuses_outcomes(name):
    about = recipes.registered(name)
    beliefs = () if about.belief is None else (kernel(0.2), 0.1)
    options = {"horizon": 9} if "horizon" in about.options else {}
    asked = AskTell(getattr(recipes, name)(ARMS, *beliefs, **options))
    question = asked.ask(1.0)
    with pytest.raises(ValueError, match="outcomes must be None"):
        asked.tell(question.id, 0.5, outcomes=[0.0])
    assert asked.open == (question.id,)


def test_limits_without_outcomes_and_other_bad_settings_are_refused():
    gp = ArmGP(ARMS, kernel(0.2), 0.1)
    widths = {"width": ConstantWidth(1.0), "safety_width": ConstantWidth(1.0)}
    cases = [
        (lambda: SafePolicy(gp, {}, {"heat": (0.0, 1.0)}, **widths), "limits must be of outcomes that have"),
        (
            lambda: SafePolicy(gp, {"heat": gp}, {"reward": (0.0, 1.0)}, **widths),
            "outcomes must be named in limits",
        ),
        (lambda: SafePolicy(gp, {}, {}, **widths), "limits must be of at least one outcome"),
        (lambda: SafePolicy(gp, {}, {"reward": (-math.inf, math.inf)}, **widths), "one finite"),
        (lambda: policy(constraints=None), "constraints must be given"),
        (lambda: policy(safe_arms=None, when_empty="safe_arms"), "safe_arms must be given"),
        (lambda: policy(constraints=LIMITED[:1] * 2), "constraints must be of different names"),
        (lambda: OutcomeConstraint("heat", high=1.0, noise_variance=-0.1), "noise_variance must be"),
        (lambda: OutcomeConstraint("heat"), "limits of 'heat' must be"),
    ]
    for act, message in cases:
        with pytest.raises(ValueError, match=message):
            act()


def test_a_problem_that_measures_nothing_does_not_fit_a_policy_that_needs_it():
    ours = policy()
    problem = make("tv-gp", num_arms=N)
    with pytest.raises(
        ValueError, match=r"policy.outcome_names must be \(\) or what the problem measures, \(\)"
    ):
        run(ours, problem, 3)


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

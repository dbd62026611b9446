"""Contexts over arms: CGP-UCB against a dense twin, late rewards, bad input, and what takes no context."""

import math

import pytest
import torch
from gpytorch.kernels import ScaleKernel

from bandits_torch import (
    ArmContext,
    AskTell,
    OnlineGP,
    ThompsonSampling,
    load_policy,
    make,
    recipes,
    run,
    save_policy,
)
from bandits_torch.acquisition import SimultaneousBand
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.policies import ContextualPolicy, Observation, StandardisedPolicy
from bandits_torch.problems import Log
from tests.reference import kernels
from tests.reference.plain_contextual import PlainCGPUCB, forgetting, se

N, D, C, S, NOISE = 6, 2, 2, 2, 0.05
ARMS = torch.rand(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def rbf(lengthscale):
    """A Python number would be rounded, by which twins in plain Python would differ."""
    return kernels.rbf(torch.tensor(lengthscale, dtype=torch.float64))


def policy_of(replicates=S, *, name="cgp_ucb", kernel=None, **options):
    common = {"context_dim": C, "context_kernel": rbf(0.6), "replicates": replicates, "prior_mean": 0.3}
    return getattr(recipes, name)(
        ARMS, rbf(0.4) if kernel is None else kernel, NOISE, **{**common, **options}
    )


def twins_of(count=S, **options):
    width = options.pop("width", lambda t: math.sqrt(2 * math.log(N * math.pi**2 * t**2 / 0.6)))
    return [PlainCGPUCB(se(0.4), se(0.6), NOISE, width=width, mean=0.3, **options) for _ in range(count)]


def steps_of(count, seed=1, features=False):
    """(time, ArmContext, features (S, N, d), contexts (S, c), mask (N,)) of steps of several kinds."""
    draw = torch.Generator().manual_seed(seed)
    for k in range(count):
        time, kind = float(k + 1), k % 4
        context = torch.rand(*((S, C) if kind == 1 else (C,)), generator=draw, dtype=torch.float64)
        moved = None
        if features and kind in (1, 2):
            moved = torch.rand(*((S, N, D) if kind == 2 else (N, D)), generator=draw, dtype=torch.float64)
        mask = torch.rand(N, generator=draw) < 0.7 if kind == 3 else None
        if mask is not None:
            mask[k % N] = True
        own = (ARMS if moved is None else moved).expand(S, N, D)
        open_to = torch.ones(N, dtype=torch.bool) if mask is None else mask
        yield time, ArmContext(context, moved, mask), own, context.expand(S, C), open_to


def reward_of(features, context):
    return torch.sin(5 * features[..., 0] + 4 * context[..., 0]) + features[..., 1] * context[..., 1]


def indices(policy, twins, time, step, features, contexts, mask):
    """(S, N) of dense processes made anew, with which the policy's moments agree; -inf where an arm is not open."""
    mean, variance = policy.marginals(time, step)
    found = []
    for s, twin in enumerate(twins):
        at = features[s].tolist(), contexts[s].tolist(), time
        plain_mean, deviation = twin.posterior(*at)
        assert mean[s].tolist() == pytest.approx(plain_mean, abs=1e-9)
        assert variance[s].sqrt().tolist() == pytest.approx(deviation, abs=1e-7)
        found.append(torch.from_numpy(twin.index(*at)).masked_fill(~mask, -torch.inf))
    return torch.stack(found)


LISTED = torch.rand(5, C, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def listed_steps(count, seed=1):
    """As ``steps_of``, with one of ``LISTED`` for a context."""
    draw = torch.Generator().manual_seed(seed)
    for k, (time, step, own, _, mask) in enumerate(steps_of(count)):
        number = torch.randint(len(LISTED), (S,) if k % 2 else (), generator=draw)
        context = LISTED[number]
        yield time, ArmContext(context, None, step.available), own, context.expand(S, C), mask


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "any"])
@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({}, {}),
        ({"combine": "sum"}, {"combine": "sum"}),
        ({"combine": "additive"}, {"combine": "additive"}),
        ({"window": 9}, {"window": 9}),
        ({"name": "tv_cgp_ucb", "forgetting_rate": 0.1}, {"over_time": forgetting(0.1)}),
        ({"name": "tv_cgp_ucb", "forgetting_rate": 0.1, "window": 12}, {"over_time": forgetting(0.1), "window": 12}),
    ],
    ids=["product", "sum", "additive", "window", "drift", "drift-window"],
)  # fmt: skip
def test_live_choices_are_those_of_a_dense_process_late_rewards_too(options, plain, listed, tmp_path) -> None:
    """Each reward counts under the context of its question, in another process too, the latest told first."""
    options = options | ({"contexts": LISTED} if listed else {})
    live, twins, asked = AskTell(policy_of(**options)), twins_of(**plain), {}
    for k, (time, step, *of_step) in enumerate(listed_steps(36) if listed else steps_of(24, features=True)):
        features, contexts, _ = of_step
        index, opened = indices(live.policy, twins, time, step, *of_step), list(live.open)
        question = live.ask(time, step)
        assert opened or torch.equal(question.arm, index.argmax(-1))
        asked[question.id] = time, features[torch.arange(S), question.arm], contexts
        if k == 13:
            save_policy(tmp_path / "live.pt", live)
            live = AskTell(policy_of(**options))
            load_policy(tmp_path / "live.pt", live)
        if k % 3 == 2 or "window" in options:  # a window goes by time in the one and by arrival in the other
            for id in reversed(live.open):
                then, told, under = asked[id]
                reward = reward_of(told, under)
                assert live.tell(id, reward)
                for s, twin in enumerate(twins):
                    twin.learn(told[s].tolist(), under[s].tolist(), then, float(reward[s]))


COVARIANCE = rbf(0.4)(ARMS).to_dense().detach()


@pytest.mark.parametrize("kernel", [None, COVARIANCE, ScaleKernel(ArmCovarianceKernel(COVARIANCE))])
def test_open_questions_under_listed_contexts_count_as_they_do_under_any(kernel) -> None:
    one, other = (AskTell(policy_of(kernel=kernel, width=2.0, contexts=listed)) for listed in (LISTED, None))
    for k in range(12):
        step = ArmContext(LISTED[k % 5])
        asked = [live.ask(float(k), step, count=3) for live in (one, other)]
        assert [q.arm.tolist() for q in asked[0]] == [q.arm.tolist() for q in asked[1]]
        for live, questions in zip((one, other), asked, strict=True):
            for question in questions[: 1 + k % 3]:
                live.tell(question.id, float(k % 4))


@pytest.mark.parametrize("acquisition", [ThompsonSampling, SimultaneousBand(0.1, 39)])
def test_what_draws_at_every_arm_draws_over_listed_contexts(acquisition) -> None:
    from bandits_torch.models import ArmGP
    from bandits_torch.policies.choices.contexts import pairs_of

    model = ArmGP(pairs_of(ARMS, LISTED), rbf(0.5), NOISE, batch_shape=(S,))
    policy = ContextualPolicy(model, acquisition, choices=ARMS, context_dim=C, contexts=LISTED)
    drawn = [policy.choose(1.0, ArmContext(LISTED[0])) for _ in range(20)]
    assert len(torch.stack([choice.why["index"] for choice in drawn]).unique()) > 2
    with pytest.raises(ValueError, match="context must be one of the contexts given"):
        policy.joint(1.0, torch.zeros(S, 2, dtype=torch.long))
    model = OnlineGP(rbf(0.5), NOISE, input_dim=D + C, batch_shape=(S,))
    policy = ContextualPolicy(model, ThompsonSampling, choices=ARMS, context_dim=C, seed=3)
    drawn = [policy.choose(1.0, ArmContext(LISTED[0])).why["index"] for _ in range(4)]
    assert len(torch.stack(drawn).unique()) > 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"contexts": LISTED[:, :1]}, "contexts"),
        ({"context_dim": 0}, "context_kernel"),
        ({"context_kernel": None}, "context_kernel"),
        ({"name": "tv_cgp_ucb", "stale": 0.1, "window": 5}, "stale"),
        ({"name": "tv_cgp_ucb", "stale": 0.1, "forgetting_rate": 0}, "stale"),
        ({"name": "tv_cgp_ucb", "stale": 0.1, "contexts": LISTED}, "stale"),
    ],
)
def test_settings_that_are_none_or_contradict_each_other_are_refused_by_name(options, match) -> None:
    with pytest.raises(ValueError, match=match):
        policy_of(**options)


def test_open_questions_count_with_their_own_context() -> None:
    """Eight questions of two contexts: each choice is that of a twin that has seen its own mean for the others."""
    live = AskTell(policy_of())
    twins = twins_of()
    for time, step, features, contexts, _ in steps_of(6):
        question = live.ask(time, step)
        chosen = features[torch.arange(S), question.arm]
        reward = reward_of(chosen, contexts)
        live.tell(question.id, reward)
        for s, twin in enumerate(twins):
            twin.learn(chosen[s].tolist(), contexts[s].tolist(), time, float(reward[s]))
    told = [([0.1, 0.9], 4), ([0.8, 0.2], 4)]
    for context, count in told:
        questions = live.ask(7.0, ArmContext(torch.tensor(context).double()), count=count)
        for question in questions:
            for s, twin in enumerate(twins):
                mean, deviation = twin.posterior(ARMS.tolist(), context, 7.0)
                arm = int((mean + twin.width(7) * deviation).argmax())
                assert int(question.arm[s]) == arm
                twin.learn(ARMS[arm].tolist(), context, 7.0, float(mean[arm]))
    assert len(live.open) == 8


def test_what_will_be_best_is_asked_under_a_context() -> None:
    live, step = AskTell(policy_of()), ArmContext(torch.tensor([0.3, 0.4]).double())
    live.tell(live.ask(1.0, step).id, 2.0)
    mean, deviation = live.predict(5.0, context=step)
    expected, variance = live.policy.marginals(5.0, step)
    assert torch.equal(mean, expected)
    assert torch.equal(deviation, variance.sqrt())
    bare, _ = live.predict(5.0, context=torch.tensor([0.3, 0.4]).double())
    assert torch.equal(bare, mean)
    with pytest.raises(ValueError, match=r"context must be \d number"):
        live.predict(5.0, context=None)
    with pytest.raises(ValueError, match="context must be None"):
        AskTell(recipes.gp_ucb(ARMS, rbf(0.4), NOISE)).predict(5.0, context=step)


def test_stale_observations_are_dropped_and_what_is_lost_is_bounded() -> None:
    problem = make("contextual-gp", forgetting_rate=0.1, num_arms=6, seed=5)
    settings = {"replicates": 1, "horizon": 300, "width": 2.0}
    bounded, whole = (recipes.build("tv_cgp_ucb", problem, **settings, stale=s) for s in (1e-3, None))
    history = run(bounded, problem, 300)
    for step in range(1, 301):
        time, available = problem.time(step), problem.available(step)
        inputs = torch.cat([problem.arms[history.arms[0, step - 1]], available.context]).unsqueeze(0)
        why = {"inputs": inputs}
        whole.learn(Observation(time, history.arms[:, step - 1], history.rewards[:, step - 1], why))
    held = [int(policy.model.num_observations[0]) for policy in (bounded, whole)]
    assert held[0] < 200 < held[1] == 300
    means = [policy.marginals(301.0, problem.available(301))[0] for policy in (bounded, whole)]
    assert (means[0] - means[1]).abs().max() < 1e-3


def test_steps_under_a_context_are_not_captured() -> None:
    problem = make("contextual-gp", horizon=20)
    policy = recipes.build("cgp_ucb", problem, replicates=1, horizon=20)
    with pytest.raises(ValueError, match="ContextualPolicy cannot be captured"):
        run(policy, problem, 20, capture=True)
    blind = recipes.gp_ucb(problem.arms, problem.knowledge.kernel, 0.01)
    with pytest.raises(ValueError, match="every step has a context"):
        run(blind, problem, 20, capture=True)


def test_a_context_whose_squares_are_not_finite_is_refused_before_it_is_learned() -> None:
    live, far = AskTell.auto(3, context_dim=2), torch.tensor([[0.0], [1e200]], dtype=torch.float64)
    for name, call in (
        ("context", lambda: live.ask(0.0, context=[1e160, 1.0])),
        ("features", lambda: ArmContext(features=far)),
        ("contexts", lambda: AskTell.auto(3, contexts=far)),
        ("contexts", lambda: Log(torch.arange(2.0), torch.arange(2), torch.zeros(2), contexts=far)),
    ):
        with pytest.raises(ValueError, match=rf"{name} must be at most 1e\+140 in size"):
            call()
    live.tell(live.ask(1.0, context=[1e100, 1.0]).id, 1.0)
    assert live.beliefs(context=[1.0, 1.0])["mean"].notna().all()


def test_nothing_of_a_step_is_left_behind_and_no_arm_is_added_under_listed_contexts() -> None:
    policy, listed = policy_of(), policy_of(contexts=LISTED)
    policy.choose(1.0, ArmContext(LISTED[3]))
    with pytest.raises(ValueError, match="context must be a context"):
        policy.choices.inputs(2.0)
    with pytest.raises(ValueError, match="arms must be those"):
        listed.add_arms(ARMS[:1])


@pytest.mark.parametrize("name", ["gp_ucb", "auto", "ucb1", "bkb"])
def test_what_takes_no_context_says_so(name) -> None:
    policy = recipes.build(name, make("gp", num_arms=5), replicates=1, horizon=10)
    assert (StandardisedPolicy(policy_of()).takes_contexts, policy.takes_contexts) == (True, False)
    for one, match in (
        (policy, "available must be a mask of arms only: this policy takes no context"),
        (policy_of(context_dim=0, context_kernel=None), "context must be None: the policy takes none"),
    ):
        with pytest.raises(ValueError, match=match):
            one.choose(1.0, ArmContext(torch.zeros(1)))


def test_only_what_takes_contexts_is_built_for_a_problem_that_has_them() -> None:
    problem = make("contextual-gp", horizon=5)
    for name in ("cgp_ucb", "tv_cgp_ucb", "random"):
        assert run(recipes.build(name, problem, replicates=1, horizon=5), problem, 5).arms.shape == (1, 5)
    said = "takes a context, such as cgp_ucb, tv_cgp_ucb or random, because the problem has a context at every step"
    with pytest.raises(ValueError, match=said):
        recipes.build("gp_ucb", problem, replicates=1, horizon=5)

"""Many GPs that share arms are the posteriors they claim to be: by dense solves, alone and stacked, of every kind."""

import math
from itertools import product

import pytest
import torch

from bandits_torch.models import ArmMembers, CyclicMembers, LevelMembers, SmoothMembers, StackedMembers
from bandits_torch.models.arms.members import LowRankMembers, pivoted_root
from tests.reference.arm_gp_twins import smooth
from tests.reference.dense_arm_gp import DenseArmGP, forgetting
from tests.reference.dense_cycles import DenseMember, DenseTerms, constant, matern, times

N, S = 7, 2
KERNELS = torch.stack([smooth(N, 0.3), 2 * torch.eye(N).double()])
ROOTS = torch.randn(2, N, 3, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
ROOTS[:, :4, 2] = 0.0  # a column of later arms alone
MEAN = torch.linspace(-1, 1, N).double()
PERIODS, HARMONICS = (7.0, 31.5), (2, 1)
WAVES = ((7.0, 1, 1.0), (7.0, 2, 0.25), (31.5, 1, 1.0))
PROFILE = torch.randn(6, N, generator=torch.Generator().manual_seed(9), dtype=torch.float64)

# Kind: kernel, noise, how it changes over time (a rate, or a time scale), and a share and rate of the cycle, or a
# variance and a time scale of the level.
GRIDS = {
    "fading": list(product((0, 1), (0.01, 1.0), (0.0, 0.01, 0.4))),
    "low rank": list(product((0, 1), (0.05, 1.0), (0.0, 0.4))),
    "smooth": list(product((0, 1), (0.05, 1.0), (1.0, 12.0, 300.0))),
    "cyclic": [*product((0, 1), (0.05,), (0.0, 0.1), (0.0, 0.6), (0.01,)), (0, 1.0, 0.1, 0.6, 0.0)],
    "level": [(0, 0.3, 0.0, 50.0, 8.0), (1, 1.0, 0.1, 2.0, 30.0), (1, 0.1, 0.02, 10.0, 3.0)],
    "lifts": [(0, 0.3, 0.0, 50.0, 8.0), (1, 1.0, 0.1, 2.0, 30.0), (1, 0.1, 0.02, 10.0, 3.0)],
    "cyclic without cycles": list(product((0, 1), (0.05, 1.0), (0.0, 0.1), (0.0,), (0.01,))),
}
every_kind = pytest.mark.parametrize("kind", GRIDS)
every_kind_that_stacks = pytest.mark.parametrize("kind", [kind for kind in GRIDS if kind != "lifts"])
LEVEL = ("level", "lifts")  # of rewards, and of lifts over a control


def members(kind, arms=N, replicates=S, unit=1.0, like=range(N)):
    """Over the first of the arms, which vary like these, for rewards in this unit."""
    like = torch.tensor([*like])[:arms]
    kernel, *numbers = zip(*GRIDS[kind], strict=True)
    noise, change, *cycle = (torch.tensor(part, dtype=torch.float64) for part in numbers)
    told = torch.tensor(kernel), unit**2 * noise, change
    options = {"prior_mean": unit * MEAN[:arms], "replicates": replicates}
    if kind == "low rank":
        return LowRankMembers(arms, unit * ROOTS[:, like, : 2 if arms <= 4 else 3], *told, **options)
    if kind.startswith("cyclic"):
        options |= {"periods": PERIODS, "harmonics": HARMONICS, "profile": unit * PROFILE[:, :arms]}
        options |= {"share": cycle[0], "cycle_rate": cycle[1]}
    if kind in LEVEL:
        options |= {"level_variance": unit**2 * cycle[0], "timescale": cycle[1]}
        options |= {"control": 1} if kind == "lifts" else {}
    build = {"fading": ArmMembers, "smooth": SmoothMembers, **dict.fromkeys(LEVEL, LevelMembers)}
    build = build.get(kind, CyclicMembers)
    return build(arms, unit**2 * KERNELS[:, like][:, :, like], *told, **options)


def dense_member(kind, kernel, noise, change, *cycle):
    if kind.startswith("cyclic"):
        total = sum(q for *_, q in WAVES)
        waves = [(p, h, q / total, PROFILE[2 * j], PROFILE[2 * j + 1]) for j, (p, h, q) in enumerate(WAVES)]
        return DenseMember(KERNELS[kernel], noise, change, *cycle, MEAN, waves)
    if kind in LEVEL:  # which one arm more, never pulled, pays alone
        terms = torch.nn.functional.pad(KERNELS[kernel], (0, 1, 0, 1)), forgetting(change)
        level = torch.ones(N + 1, N + 1).double(), times(constant(cycle[0]), matern(1.5, cycle[1]))
        return DenseTerms([terms, level], noise, torch.nn.functional.pad(MEAN, (0, 1)))
    K = ROOTS[kernel] @ ROOTS[kernel].mT if kind == "low rank" else KERNELS[kernel]
    return DenseArmGP(K, noise, MEAN, matern(1.5, change) if kind == "smooth" else forgetting(change))


def dense(kind):
    """A dense Gaussian process for every replicate and member."""
    return {(s, p): dense_member(kind, *told) for s in range(S) for p, told in enumerate(GRIDS[kind])}


def steps(kind, count, seed=0, longest=2.0):
    """Times, with cycles also ones that turn, which now and then go back; arms and rewards."""
    g, time, turn = torch.Generator().manual_seed(seed), 0.0, 1e3
    for k in range(count):
        time += longest * float(torch.rand(1, generator=g))
        turn += 3.0 * float(torch.rand(1, generator=g)) - (11.0 if k % 7 == 6 else 0.0)
        arm = torch.randint(N, (S,), generator=g)
        reward = torch.randn(S, len(GRIDS[kind]), generator=g).double()
        yield (time, turn) if kind.startswith("cyclic") else time, arm, reward


def later(time, pause):
    return (time[0] + pause, time[1] + 2 * pause) if isinstance(time, tuple) else time + pause


def observe(twins, time, arm, reward):
    for (s, p), twin in twins.items():
        twin.observe(arm[s], reward[s, p], time)


def apart(twin, now):
    """Mean and covariance of the arms' parts, their covariances with the level, and its variance."""
    mean, joint = twin.joint(now)
    parts = joint - joint[N] - joint[:, N:] + joint[N, N]
    return (mean - mean[N])[:N], parts[:N, :N], (joint[N] - joint[N, N])[:N], joint[N, N]


def expected(twin, now, arm, control):
    """Mean and variance of all arms, and their covariances with an arm; of members with a level the covariances given
    the level, and with a control the lifts over it. Then mean and variance of the arm's reward."""
    mean, joint = twin.joint(now)
    of_arm = mean[arm], joint[arm, arm]
    if len(mean) > N:
        rewards = mean[:N]
        parts, joint, shared, unsure = apart(twin, now)
        mean = rewards if control is None else parts - parts[control]
        joint = joint - shared.outer(shared) / unsure
    return mean, joint.diagonal(), joint[arm], *of_arm


def assert_agree(twins, model, now):
    """Means, variances and covariances of all arms, and of one arm for each replicate."""
    mean, variance = model.marginals(now)
    arm, control = torch.arange(model.replicates), model.control
    (at_mean, at_variance), covariance = model.at(arm, now), model.covariance_with(arm, now)
    for (s, p), twin in twins.items():
        ours = mean[s, p], variance[s, p], covariance[s, p], at_mean[s, p], at_variance[s, p]
        torch.testing.assert_close(ours, expected(twin, now, s, control), rtol=0, atol=1e-8)


def some(kind, seed, share):
    return torch.rand(S, len(GRIDS[kind]), generator=torch.Generator().manual_seed(seed)) < share


@every_kind
@pytest.mark.parametrize("longest", [2.0, 60.0])
def test_members_are_the_exact_posteriors_whoever_is_left_out_or_begins_anew(kind, longest):
    twins, model = dense(kind), members(kind)
    for k, (time, arm, reward) in enumerate(steps(kind, 60, longest=longest)):
        where = some(kind, k, 0.6) if k % 3 else None
        where = some(kind, k, 0.6)[:, :1] if k % 9 == 4 else where
        model.observe_arms(arm.unsqueeze(-1), reward, time, where)
        told = torch.ones(S, len(GRIDS[kind])) > 0 if where is None else where.expand(S, len(GRIDS[kind]))
        observe({key: twin for key, twin in twins.items() if told[key]}, time, arm, reward)
        if k in (3, 17, 40):
            begun = some(kind, k, 0.3)
            model.reset(begun)
            twins |= {key: twin for key, twin in dense(kind).items() if begun[key]}
        if k in (0, 18, 33, 59):
            for pause in (0.0, 0.7, 25.0):
                assert_agree(twins, model, later(time, pause))
    model.reset()
    assert_agree(dense(kind), model, (0.0, 0.0) if kind.startswith("cyclic") else 0.0)


@every_kind
def test_a_thousand_steps_leave_no_error_behind(kind):
    twins, model = dense(kind), members(kind)
    few = {(1, p): twins[1, p] for p in range(0, len(GRIDS[kind]), 2)}
    for time, arm, reward in steps(kind, 250 if kind.startswith("cyclic") else 1000, seed=4):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
        observe(few, time, arm, reward)
    assert_agree(few, model, later(time, 1.0))


@every_kind
def test_a_mean_is_set_anew_from_weights_on_what_was_observed(kind):
    model, g = members(kind), torch.Generator().manual_seed(0)
    P = len(GRIDS[kind])
    arms, times = torch.randint(N, (S, 5), generator=g), [0.5, 1.0, 3.0, 3.5, 9.0]
    if kind.startswith("cyclic"):
        times = list(zip(times, [9.0, 10.0, 8.0, 20.0, 24.5], strict=True))
    for k, time in enumerate(times):
        model.observe_arms(arms[:, k : k + 1], torch.randn(S, P, generator=g).double(), time)
    twins, rewards = dense(kind), torch.randn(S, P, 5, generator=g).double()
    for k, time in enumerate(times):
        observe(twins, time, arms[:, k], rewards[..., k])
    between = model.prior_between(arms, times)
    means = torch.stack([model.prior_at(arms[:, k], time)[0] for k, time in enumerate(times)], -1)
    seen = rewards - means
    A = between + torch.diag_embed(model.noise_variance.reshape(1, -1, 1).expand_as(seen))
    weights = torch.linalg.solve(A, seen.unsqueeze(-1)).squeeze(-1)
    now = later(times[-1], 1.0)
    before, _ = model.marginals(now)
    where = torch.arange(P).expand(S, -1) % 2 == 0
    model.condition_mean(where, arms, times, weights)
    assert_agree({key: twin for key, twin in twins.items() if where[key]}, model, now)
    assert torch.equal(model.marginals(now)[0][~where], before[~where])


@every_kind_that_stacks
def test_a_state_goes_on_alike_alone_and_stacked(kind):
    models = [StackedMembers([members("fading"), members(kind)]) for _ in range(2)]
    parts, half = (members("fading"), members(kind)), len(GRIDS["fading"])
    for k, (time, arm, reward) in enumerate(steps(kind, 45, seed=2)):
        faded = torch.randn(S, half, generator=torch.Generator().manual_seed(k)).double()
        told = arm.unsqueeze(-1), torch.cat([faded, reward], -1), time
        where = torch.tensor([[True]] * (S - 1) + [[k % 7 != 3]])
        for model in models[: 1 + (k > 20)]:
            model.observe_arms(*told, where)
        parts[0].observe_arms(told[0], faded, time[0] if isinstance(time, tuple) else time, where)
        parts[1].observe_arms(told[0], reward, time, where)
        if k == 20:
            models[1].load_state_dict(models[0].state_dict())
        if k == 30:
            where = torch.rand(S, models[0].batch_shape[1], generator=torch.Generator().manual_seed(1)) < 0.3
            share = where[:, half:]
            for model in models:
                model.reset(where)
                forgotten = model.forget_level(~where)
                assert torch.equal(forgotten[:, half:], ~share if kind == "level" else share & ~share)
                assert not forgotten[:, :half].any()
            parts[0].reset(where[:, :half])
            parts[1].reset(share)
            parts[1].forget_level(~share)
    now, at, whole = later(time, 1.0), torch.arange(S), models[0]
    assert whole.batch_shape == (S, half + len(GRIDS[kind]))
    answers = []
    for model in (*models, *parts):
        own = now[0] if isinstance(now, tuple) and model is parts[0] else now
        answers.append(
            [
                *model.marginals(own),
                *model.rewards(own),
                *model.at(at),
                *model.prior_at(at, own),
                model.covariance_with(at),
            ]
        )
    for ours, again, first, second in zip(*answers, strict=True):
        assert torch.equal(ours, again)
        assert torch.equal(ours, torch.cat([first, second], 1))
    if isinstance(time, float):
        assert whole.now == time
    arms = torch.zeros(S, 2, dtype=torch.long)
    times = [(0.0, 3.0), (1.0, 9.0)] if isinstance(time, tuple) else [0.0, 1.0]
    expected = [parts[0].prior_between(arms, [0.0, 1.0]), parts[1].prior_between(arms, times)]
    assert torch.equal(whole.prior_between(arms, times), torch.cat(expected, 1))
    whole.reset()
    fresh = torch.cat([part.prior_variance for part in parts]).expand(S, -1, -1)
    assert torch.equal(whole.rewards()[1], fresh)


def test_a_stack_may_have_one_part():
    part, whole = members("fading"), StackedMembers([members("fading")])
    for time, arm, reward in steps("fading", 5):
        for model in (part, whole):
            model.observe_arms(arm.unsqueeze(-1), reward, time)
    assert torch.equal(whole.marginals(6.0)[0], part.marginals(6.0)[0])


@every_kind
def test_in_another_unit_of_rewards_members_say_the_same_to_the_last_bit(kind):
    plain, scaled = members(kind), members(kind, unit=1024.0)
    for time, arm, reward in steps(kind, 60):
        plain.observe_arms(arm.unsqueeze(-1), reward, time)
        scaled.observe_arms(arm.unsqueeze(-1), 1024.0 * reward, time)
    (mean, variance), (theirs, their_variance) = plain.marginals(70.0), scaled.marginals(70.0)
    assert torch.equal(1024.0 * mean, theirs)
    assert torch.equal(1024.0**2 * variance, their_variance)


@pytest.mark.parametrize("kind", ["fading", "smooth"])
def test_after_a_pause_without_end_nothing_is_left_of_what_changes(kind):
    model, twins = members(kind), dense(kind)
    changing = {key for key in twins if GRIDS[kind][key[1]][2] > 0}
    for time, arm, reward in steps(kind, 20):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
    twins = {key: twins[key] for key in changing}
    for pause in (1e7, 1e300):
        assert_agree(twins, model, pause)
    arm, reward = torch.zeros(S, dtype=torch.long), torch.ones(S, len(GRIDS[kind])).double()
    model.observe_arms(arm.unsqueeze(-1), reward, 1e300)
    observe(twins, 1e300, arm, reward)
    assert_agree(twins, model, 1e300)


def test_a_smooth_rate_is_that_of_the_exponential_forgetting_of_equal_integral():
    gap = torch.linspace(0, 20000, 200_001).double()
    for rate, (_, _, timescale) in zip(members("smooth").forgetting_rate, GRIDS["smooth"], strict=True):
        over_time = matern(1.5, timescale)(gap, torch.zeros(1).double())[:, 0]
        assert float(torch.trapezoid(over_time, gap)) == pytest.approx(
            -2 / math.log1p(-float(rate)), rel=2e-3
        )


def test_a_short_time_scale_in_float32_leaves_covariances_at_one_time_as_they_are():
    kernels, noise = KERNELS[:1].float(), torch.ones(1)
    short = torch.full((1,), 0.08)  # the forgetting rate rounds to 1
    fast = SmoothMembers(torch.zeros(N, 1), kernels, torch.zeros(1).long(), noise, short)
    between = fast.prior_between(torch.tensor([[0, 1]]), [0.0, 0.0])[0, 0]
    torch.testing.assert_close(between, kernels[0, :2, :2])


def test_a_number_is_the_time_that_fades_and_turns():
    models = members("cyclic"), members("cyclic")
    assert models[0].states == 7
    assert members("cyclic without cycles").states == 1
    for (time, _), arm, reward in steps("cyclic", 30, seed=3):
        models[0].observe_arms(arm.unsqueeze(-1), reward, time)
        models[1].observe_arms(arm.unsqueeze(-1), reward, (time, time))
    later = models[0].marginals(time + 3), models[1].marginals((time + 3, time + 3))
    assert all(torch.equal(one, two) for one, two in zip(*later, strict=True))


def test_now_is_the_phase_of_the_latest_reward_although_no_time_has_passed():
    model, other = members("cyclic"), members("cyclic")
    arm, reward = torch.zeros(S).long(), torch.ones(model.batch_shape).double()
    for k in range(20):  # no member folds at the last steps
        time = (5.0, 3.0 * k)
        at = other.at(arm, time)
        for one in (model, other):
            one.observe_residuals(arm, reward - at[0], at, time)
        now = model.marginals(), other.marginals(time)
        assert all(torch.equal(one, two) for one, two in zip(*now, strict=True))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [0, 1, 24, 61])
@pytest.mark.parametrize("like", [range(N), [0, 1, 2, 1, 4, 5, 2]], ids=["regular", "singular"])
@every_kind
def test_members_over_more_arms_know_what_they_would_have_known(kind, like, count):
    """Singular: an old arm and a new one are each the same as one before."""
    whole, few, grown = members(kind, like=like), members(kind, 4, like=like), members(kind, like=like)
    told = whole, few
    for k, (time, arm, reward) in enumerate(steps(kind, count + 30, seed=6)):
        if k == count:
            grown.grow_from(few)
            told = whole, grown
        for model in told:
            model.observe_arms(
                (arm % 4 if k < count else arm).unsqueeze(-1), reward, time, some(kind, k, 0.9)
            )
            if k == 17:
                model.reset(some(kind, k, 0.4))
    now = later(time, 1.0)
    torch.testing.assert_close(grown.marginals(now), whole.marginals(now), rtol=1e-8, atol=1e-7)
    for which in (torch.tensor([arm, N - 1 - arm]) for arm in (0, 5, 6)):
        ours, theirs = grown.covariance_with(which, now), whole.covariance_with(which, now)
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-7)


def test_a_level_that_is_forgotten_is_as_before_the_first_reward_and_arms_are_known_as_well():
    """And so it is learned from the next reward."""
    model, twins = members("lifts"), dense("lifts")
    for time, arm, reward in steps("lifts", 40):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
        observe(twins, time, arm, reward)
    now, where = time + 1.0, torch.tensor([[True, False, True], [False, True, True]])
    lift, level, (mean, variance) = model.marginals(now)[0], model.level(now), model.rewards(now)
    assert torch.equal(model.forget_level(where), where)
    assert torch.equal(model.marginals(now)[0], lift)
    assert torch.equal(model.rewards(now)[0][~where], mean[~where])
    assert torch.equal(model.rewards(now)[1][~where], variance[~where])
    known = model.marginals(now)[1]
    model.observe_arms(arm.unsqueeze(-1), reward, now)
    after, unsure = model.rewards(now)
    for (s, p), twin in twins.items():
        of_rewards, joint = twin.joint(now)
        said = mean[s, p], variance[s, p], level[s, p]
        exact = of_rewards[:N], joint.diagonal()[:N], of_rewards[N]
        torch.testing.assert_close(said, exact, rtol=0, atol=1e-8)
        if where[s, p]:
            (parts, covariance, _, _), (_, noise, _, of_level, _) = apart(twin, now), GRIDS["lifts"][p]
            column = covariance[arm[s]] + of_level
            total = column[arm[s]] + noise
            told = parts + column * (reward[s, p] - parts[arm[s]]) / total
            exact = covariance.diagonal(), told, covariance.diagonal() + of_level - column.square() / total
            torch.testing.assert_close((known[s, p], after[s, p], unsure[s, p]), exact, rtol=0, atol=1e-8)


def test_members_of_low_rank_do_not_grow_from_those_of_other_arms():
    with pytest.raises(ValueError, match="must be the roots of the first arms"):
        members("low rank").grow_from(members("low rank", 4, like=range(N)[::-1]))


OTHERS = members("fading", replicates=1), members("fading", arms=4), members("lifts"), "members"


@pytest.mark.parametrize("other", OTHERS)
def test_parts_of_other_replicates_arms_or_meaning_do_not_stack(other):
    with pytest.raises(ValueError, match="parts"):
        StackedMembers([members("smooth"), other])


def test_a_pivoted_root_leaves_little_out():
    x = torch.linspace(0, 1, 300).double()
    K = torch.exp(-((x.unsqueeze(-1) - x) ** 2) / (2 * 0.1**2))
    root = pivoted_root(lambda i: K[:, i], K.diagonal(), 60, 1e-9)
    assert int((root.abs().amax(0) > 0).sum()) < 40  # it stops by itself
    assert float((root @ root.T - K).diagonal().abs().max()) < 1e-8
    whole = [pivoted_root(lambda i, K=K: K[:, i], K.diagonal(), N, 0.0) for K in KERNELS]
    torch.testing.assert_close(torch.stack([root @ root.mT for root in whole]), KERNELS, rtol=0, atol=1e-8)

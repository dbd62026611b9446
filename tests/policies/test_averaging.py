"""Model averaging: its slow twin, units and clocks that do not matter, outliers, members that start anew."""

import math
from itertools import product

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bandits_torch import ArmContext, Domain, make, recipes
from bandits_torch.kernels import estimate_covariance
from bandits_torch.models import ArmMembers, CyclicMembers
from bandits_torch.models.arms.members import LowRankMembers
from bandits_torch.policies import FixedShare, MemberScale, ModelAveraging, Observation, Pending
from bandits_torch.state import differing
from tests.reference.arm_gp_twins import smooth
from tests.reference.dense_cycles import DenseMember
from tests.reference.dense_priors import DensePrior
from tests.reference.plain_averaging import Member, PlainAveraging

N, S = 12, 2
RULES = {"share": 0.02, "behind": 4.0, "memory": 0.8, "forget": 0.95, "tail": 6.0, "clip": 2.5}
RULES |= {"width": 1.3, "wide": 3.0, "plausible": 2.0}
KERNELS = torch.stack([smooth(N), torch.eye(N).double() + 1.0])
GRID = list(product(range(2), (0.05, 0.5), (0.0, 0.2)))


def some(*names):
    return {name: RULES[name] for name in names}


def averaging(model, plain):
    """The policy over a model, and the twin of each replicate over the members as the twin has them."""
    weight, strength, learns_offset = (torch.tensor(each) for each in list(zip(*plain, strict=True))[1:])
    policy = ModelAveraging(
        model,
        sharing=FixedShare(weight.double(), S, **some("share", "behind", "memory")),
        scale=MemberScale(
            strength.double(), learns_offset, S, memory=RULES["forget"], **some("tail", "clip")
        ),
        **some("width", "wide", "plausible"),
    )
    return policy, [PlainAveraging(plain, **RULES) for _ in range(S)]


def members(strengths, offsets):
    means = torch.linspace(-0.5, 0.5, N).double()
    kernel, noise, rate = zip(*GRID, strict=True)
    told = torch.tensor([not o for o in offsets]).unsqueeze(-1)
    prior_mean = torch.where(told, means, 0.0)
    model = ArmMembers(
        N,
        KERNELS,
        torch.tensor(kernel),
        torch.tensor(noise, dtype=torch.float64),
        torch.tensor(rate, dtype=torch.float64),
        prior_mean=prior_mean,
        replicates=S,
    )
    priors = [DensePrior(KERNELS[g], prior_mean[p], rate[p], noise[p]) for p, g in enumerate(kernel)]
    weights = [1.0 + p for p in range(len(GRID))]
    return averaging(model, [*map(Member, priors, weights, strengths, offsets)])


DAY, CYCLES = (
    10.0,
    [(0.05, 0.0, 0.0), (0.05, 0.1, 0.5), (0.5, 0.1, 0.0), (0.5, 0.0, 0.7)],
)  # noise, rate, share


def with_cycles(strengths, offsets):
    noise, rate, share = (torch.tensor(part, dtype=torch.float64) for part in zip(*CYCLES, strict=True))
    told = not offsets[0]
    K, level = smooth(N) + (0.0 if told else 1.0), torch.linspace(-0.5, 0.5, N).double() * told
    profile = told * torch.randn(2, N, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    model = CyclicMembers(
        *(N, K.unsqueeze(0), torch.zeros(len(CYCLES), dtype=torch.long), noise, rate),
        periods=[DAY],
        harmonics=[1],
        profile=profile,
        share=share,
        cycle_rate=0.02,
        prior_mean=level,
        replicates=S,
    )
    waves = [(DAY, 1, 1.0, *profile)]
    priors = [DenseMember(K, *numbers, 0.02, level, waves) for numbers in CYCLES]
    return averaging(model, [*map(Member, priors, [1.0] * len(CYCLES), strengths, offsets)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("build", "strengths", "offsets", "doubtful", "tiny"),
    [
        (members, [0.0] * 8, [True] * 8, {}, 0),
        (members, [0.0] * 8, [True] * 8, {9: torch.zeros(S)}, 9),
        (members, [0.0] * 8, [True] * 8, {}, -1),
        (members, [10.0] * 4 + [0.0] * 4, [False] * 4 + [True] * 4, {}, -1),
        (
            *(members, [0.0] * 8, [True] * 8),
            *({0: 600.0, 13: torch.tensor([900.0, 0.0]), 40: -800.0, 44: 5000.0}, 0),
        ),
        (
            members,
            [10.0] * 4 + [0.0] * 4,
            [False] * 4 + [True] * 4,
            {3: torch.tensor([0.0, -800.0]), 9: 900.0, 20: 500.0},
            0,
        ),
        (members, [math.inf] * 8, [False] * 8, {2: 700.0, 33: -900.0}, 0),
        (with_cycles, [10.0] * 4, [False] * 4, {}, 0),
        (with_cycles, [0.0] * 4, [True] * 4, {}, 0),
    ],
    ids=[
        *("nothing told", "rounding first", "0 and 1", "0 and 1, some told"),
        *("outliers", "some told", "all told"),
        *("a cycle told", "a cycle, nothing told"),
    ],
)
def test_agrees_with_the_plain_twin(build, strengths, offsets, doubtful, tiny):
    """Some rewards come late."""
    policy, twins = build(strengths, offsets)
    cyclic = build is with_cycles
    g = torch.Generator().manual_seed(3)
    f = torch.randn(S, N, generator=g).double()
    time, passed, resets = 0.0, 0.0, 0
    for step in range(60):
        time += float(torch.rand(1, generator=g)) * 2
        if step == 30:
            f = -2 * f
        mean, variance = policy.marginals(time)
        arm, now = policy.choose(time).arm, (time, time) if cyclic else time
        for k, twin in enumerate(twins):  # arms of which nothing is known are level, but for rounding
            index = twin.index(now)
            assert float(index[arm[k]]) >= float(index.max()) - 1e-9
        for k, twin in enumerate(twins):
            m, v = twin.predict(now)
            torch.testing.assert_close(mean[k], m, rtol=0, atol=1e-8)
            torch.testing.assert_close(variance[k], v, rtol=1e-7, atol=1e-8)
        reward = f.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + 0.2 * torch.randn(S, generator=g).double()
        if step in (1, 7, 27, 47):
            reward = reward + 8.0
        if step in doubtful:
            reward = reward + doubtful[step]
        reward = reward * 1e-9 if step < tiny else reward
        reward = (reward > 1.5).double() if tiny < 0 else reward
        late = time - 3.7 if step % 9 == 8 else time
        policy.learn(Observation(late, arm, reward))
        passed = max(passed, late)
        for k, twin in enumerate(twins):
            twin.learn(int(arm[k]), float(reward[k]), (passed, late) if cyclic else passed)
        weights = torch.tensor([twin.w for twin in twins], dtype=torch.float64)
        torch.testing.assert_close(policy.sharing.weights, weights, rtol=0, atol=1e-8)
        trace = policy.trace()
        assert trace["resets"].tolist() == [twin.resets for twin in twins]
        assert trace["doubted"].tolist() == [twin.range.doubted for twin in twins]
        for k, twin in enumerate(twins):
            priors = [member.prior for member in twin.members]
            scales = [w * twin.scale(p) for p, w in enumerate(twin.w)]
            noise = sum(s * prior.noise_variance for s, prior in zip(scales, priors, strict=True))
            assert float(trace["noise_scale"][k]) == pytest.approx(math.sqrt(noise), rel=1e-7)
            assert float(trace["scale"][k]) == pytest.approx(math.sqrt(sum(scales)), rel=1e-7)
            rate = sum(w * prior.rate for w, prior in zip(twin.w, priors, strict=True))
            assert float(trace["effective_rate"][k]) == pytest.approx(rate, rel=1e-7)
            entropy = -sum(w * math.log(w) for w in twin.w)
            assert float(trace["effective_members"][k]) == pytest.approx(math.exp(entropy), rel=1e-7)
        resets = max(resets, int(policy.trace()["resets"].max()))
    loss = torch.tensor([twin.log_loss for twin in twins], dtype=torch.float64)
    torch.testing.assert_close(policy.sharing.log_loss, loss, rtol=1e-8, atol=1e-8)
    assert resets > 0  # so the run has seen members that start anew
    assert bool((trace["doubted"] > 0).any()) == bool(doubtful)


@pytest.mark.parametrize("way", ["arms", "many arms", "contexts"])
@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_told_a_kernel_the_unit_of_rewards_does_not_matter(way, unit):
    x = torch.linspace(0, 1, 520 if way == "many arms" else 9).double().unsqueeze(-1)
    contexts = {"contexts": x[::4], "context_kernel": RBFKernel().double()} if way == "contexts" else {}

    def made(unit):
        kernel = ScaleKernel(RBFKernel()).double()
        kernel.base_kernel.lengthscale, kernel.outputscale = 0.2, unit**2
        return recipes.auto(x, kernel, 0.01 * unit**2, **contexts)

    policies = {1.0: made(1.0), unit: made(unit)}
    if not contexts:
        for policy in (policies[unit], recipes.auto(x)):
            assert (type(policy.model) is LowRankMembers) == (way == "many arms")
    for step in range(8):
        under = ArmContext(contexts["contexts"][step % 3]) if contexts else None
        (mean, variance), (other, scaled) = (one.marginals(float(step), under) for one in policies.values())
        torch.testing.assert_close(other / unit, mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(scaled / unit**2, variance, rtol=1e-6, atol=1e-6)
        arm = torch.tensor([step * 5 % len(x)])
        for size, policy in policies.items():
            why = policy.choose(float(step), under).why
            policy.learn(Observation(float(step), arm, size * (6 * x[arm, 0]).cos(), why))


@pytest.mark.parametrize("domain", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_rare_success_is_no_outlier(domain):
    """Of random arms, or points of a domain: means are near the chances, and intervals of 90 % hold most of these."""
    g, S, steps = torch.Generator().manual_seed(5), 8, 300 if domain else 800
    chance = 0.02 + 0.03 * torch.rand(S, 6, generator=g, dtype=torch.float64)
    policy = recipes.auto(Domain(torch.tensor([[0.0], [1.0]]).double()) if domain else 6, replicates=S)
    for step in range(steps):
        arm = torch.randint(6, (S,), generator=g)
        success = torch.rand(S, generator=g).double() < chance[torch.arange(S), arm]
        played = (arm.unsqueeze(-1) + 0.5).double() / 6 if domain else arm
        policy.learn(Observation(float(step), played, success.double()))
    points = (torch.arange(6).double().unsqueeze(-1) + 0.5) / 6 if domain else None
    mean, variance = policy.marginals(float(steps), points)
    assert 0.75 < float(mean.mean() / chance.mean()) < 1.25
    assert float(((mean - chance).abs() <= 1.645 * variance.sqrt()).double().mean()) > 0.8


@pytest.mark.parametrize("features", [True, False])
def test_few_arms_are_all_tried_and_not_all_at_once(features):
    """After t observations 2 sqrt(t + 1) arms, or all that there have been; an arm that appears is one of them."""
    g = torch.Generator().manual_seed(0)
    policy = recipes.auto(torch.rand(15, 2, generator=g).double() if features else 15)
    mask, played = torch.arange(15) != 2, []
    for step in range(80):
        few = len(set(played)) < 2 * math.sqrt(step + 1)
        fresh = [arm for arm in range(15) if arm not in played and (arm != 2 or step >= 60)]
        choice = policy.choose(float(step), mask if step < 60 else None)
        if few and fresh:
            assert int(choice.arm) == fresh[0]
        played.append(int(choice.arm))
        policy.learn(Observation(float(step), choice.arm, -choice.arm.double(), choice.why))
    assert set(played) == set(range(15))
    assert len(set(played[:40])) < 14
    assert 2 in played[60:62]


def test_pulls_that_are_pending_count_as_tried():
    policy = recipes.auto(9)
    with policy.expecting(0.0) as expect:
        asked = []
        for _ in range(3):
            arm = policy.choose(0.0).arm
            asked.append(int(arm))
            expect(Pending(0.0, arm))
    assert asked == [0, 1, 2]
    assert int(policy.choose(0.0).arm) == 0  # expected no more


def test_a_replicate_that_starts_anew_while_rewards_are_held_keeps_the_first_as_origin():
    policy = recipes.auto(4, replicates=2)
    for step, y in enumerate([7.0, 1.0, 2.0, 3.0, 4.0, 5.0]):
        if step == 2:
            policy.reset(torch.tensor([True, False]))
        arm = torch.full((2,), step % 4)
        policy.learn(Observation(float(step), arm, torch.full((2,), y).double()))
    assert policy.frame.origin.tolist() == [7.0, 3.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_where_all_arms_tie_the_first_is_played_in_every_replicate(dtype):
    """Rounding would choose, and depends on where a replicate lies in its batch."""
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)).to(dtype)
    kernel.outputscale, kernel.base_kernel.lengthscale = 0.8, torch.tensor([0.4, 0.7])
    arms = torch.rand(9, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for replicates in (1, 3, 25):
        policy = recipes.auto(arms, kernel, 0.04, prior_mean=0.3, cycles=[24.0, 100.0], replicates=replicates)
        assert policy.choose(0.0).arm.tolist() == [0] * replicates


def test_only_who_tells_a_kernel_and_no_width_gets_wider_bounds():
    history = torch.randn(30, N, generator=torch.Generator().manual_seed(0)).double()
    assert recipes.auto(N, smooth(N), 0.01).wide == recipes.auto(N, history=history).wide == 2.0
    assert recipes.auto(N).wide == recipes.auto(N, smooth(N), 0.01, width=1.0).wide == 0.0


def test_calm_hours_do_not_take_the_unit_told_from_those_who_believe_the_noise_told_as_well():
    """Lights that are off all night: to follow them in the morning, the unit must not have shrunk to the night's."""
    policy = recipes.auto(N, smooth(N), 0.01)
    noise, told = policy.model.noise_variance[0], ~policy.scale.learn_offset
    firm = told & (noise == 0.01)
    assert 0 < firm.sum() < told.sum()
    for step in range(1, 151):
        policy.learn(Observation(float(step), torch.tensor([step % N]), torch.zeros(1).double()))
    assert policy.scale.scale[0, firm].min() > 0.9
    assert policy.scale.scale[0, told & ~firm].max() < 0.15


def test_a_history_tells_what_its_covariance_and_means_tell():
    g = torch.Generator().manual_seed(2)
    mixed = torch.randn(80, 3, generator=g).double() @ torch.randn(3, 7, generator=g).double()
    history = 50 + mixed + torch.linspace(0, 5, 7).double()
    holes = torch.rand(80, 7, generator=g) < 0.05
    history = torch.where(holes, torch.nan, history)
    told = recipes.auto(7, estimate_covariance(history), prior_mean=history.nanmean(0))
    learned = recipes.auto(7, history=history)
    for step in range(20):
        a, b = told.choose(float(step)), learned.choose(float(step))
        assert a.arm.tolist() == b.arm.tolist()
        for policy in (told, learned):
            policy.learn(Observation(float(step), a.arm, 50 + a.arm.double()))
    assert int(learned.choose(21.0).arm) == 6


def test_what_is_told_and_cannot_be_used_is_refused():
    table, one = torch.randn(20, 4).double(), torch.eye(4).double()
    model, sharing = members([0.0] * 8, [True] * 8)[0].model, FixedShare(torch.ones(3).double(), S)
    for name, call in {
        "sharing": lambda: ModelAveraging(model, sharing=sharing),
        "noise_variance": lambda: recipes.auto(4, noise_variance=0.1),
        "prior_mean": lambda: recipes.auto(4, prior_mean=2.0),
        "kernel": lambda: recipes.auto(4, torch.eye(4).double(), history=table),
        "history": lambda: recipes.auto(4, history=table[:, :3]),
        "arms": lambda: recipes.auto(501),
        "prior_mean must be 0": lambda: recipes.auto(4, history=table, prior_mean=3.0),
        "prior_mean must have": lambda: recipes.auto(4, one, 0.1, prior_mean=torch.zeros(3).double()),
        "prior_mean must have shape": lambda: recipes.auto(
            4, one, 0.1, prior_mean=torch.zeros(2, 4).double(), replicates=2
        ),
        "noise_variance must have": lambda: recipes.auto(4, one, torch.ones(3).double()),
        "noise_variance must be at least": lambda: recipes.auto(4, one, 1e-30),
        "noise_variance must be at": lambda: recipes.auto(4, history=table, noise_variance=1e-30),
        "arms must be float32": lambda: recipes.auto(table.half()),
        "arms must be": lambda: recipes.auto(table.to(torch.complex128)),
        "kernel must be real": lambda: recipes.auto(4, one.to(torch.complex128)),
        "history must be real": lambda: recipes.auto(4, history=table.to(torch.complex128)),
        "plausible must be left": lambda: recipes.auto(
            Domain(torch.tensor([[0.0], [1.0]]).double()), plausible=2.0
        ),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()


def test_what_is_left_out_where_nothing_is_in_doubt_would_change_no_bit(monkeypatch):
    problem = make("switching", num_arms=20, replicates=S)
    # So soon that arms are overdue now and then.
    options = {"replicates": S, "horizon": 60, "look_again": 0.5}
    short, long = (recipes.build("auto", problem, **options) for _ in range(2))
    monkeypatch.setattr(long.frame, "holds", lambda reward: False)
    monkeypatch.setattr(long.scale, "look", lambda: None)
    monkeypatch.setattr(long.range, "_is_near", lambda reward: False)
    tau = long.looks.tau
    monkeypatch.setattr(long.looks, "tau", lambda count: torch.tensor(tau(count)).double())
    noise = torch.randn(60, S, generator=torch.Generator().manual_seed(0)).double()
    noise[40, 0] += 1e4  # one that is in doubt
    for step in range(60):
        arm = short.choose(float(step)).arm
        assert long.choose(float(step)).arm.equal(arm), step
        reward = problem.expected_rewards(step + 1).expand(S, -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        observation = Observation(float(step), arm, reward.double() + 0.1 * noise[step], {})
        short.learn(observation)
        long.learn(observation)
        assert not differing(short.state_dict(), long.state_dict()), step
    assert int(short.range.doubted.max()) > 0


@pytest.mark.parametrize("tail", [8.0, 150.0])  # a weight passes 150 for a strength of 60 alone
def test_what_a_scale_keeps_is_what_it_would_compute(tail):
    g = torch.Generator().manual_seed(0)
    strength = torch.tensor([0.0, 60.0, torch.inf]).double()
    looked, plain = (MemberScale(strength, strength == 0, 4, tail=tail) for _ in range(2))
    for step in range(120):
        residual = torch.randn(4, 3, generator=g).double()
        variance = 0.5 + torch.rand(4, 3, generator=g).double()
        if step == 100:
            for scale in (looked, plain):
                scale.forget(torch.arange(3).expand(4, 3) == 0)
        looked.look()
        for kept, computed in zip(
            looked.update(residual, variance), plain.update(residual, variance), strict=True
        ):
            assert torch.equal(kept, computed)
        assert torch.equal(looked.scale, plain.scale)

"""Members with cycles are the posteriors they claim to be: by a dense solve, on two clocks, alone and stacked."""

from itertools import product

import pytest
import torch

from bandits_torch.models import ArmMembers, CyclicMembers, StackedMembers
from tests.reference.arm_gp_twins import smooth
from tests.reference.dense_cycles import DenseMember
from tests.reference.member_twins import assert_agree, observe

N, S = 6, 2
KERNELS = torch.stack([smooth(N, 0.3), 2 * torch.eye(N).double()])
GRID = [*product((0, 1), (0.05,), (0.0, 0.1), (0.0, 0.6), (0.01,)), (0, 1.0, 0.1, 0.6, 0.0)]
PERIODS, HARMONICS = (7.0, 31.5), (2, 1)
WAVES = ((7.0, 1, 1.0), (7.0, 2, 0.25), (31.5, 1, 1.0))
MEAN = torch.linspace(-1, 1, N).double()
PROFILE = torch.randn(6, N, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def of_grid():
    kernel, *numbers = zip(*GRID, strict=True)
    return torch.tensor(kernel), *(torch.tensor(part, dtype=torch.float64) for part in numbers)


def members(share=None, profile=PROFILE, replicates=S):
    kernel, noise, rate, shares, cycle_rate = of_grid()
    return CyclicMembers(
        N,
        KERNELS,
        kernel,
        noise,
        rate,
        periods=PERIODS,
        harmonics=HARMONICS,
        profile=profile,
        share=shares if share is None else share,
        cycle_rate=cycle_rate,
        prior_mean=MEAN,
        replicates=replicates,
    )


def dense(share=None):
    total = sum(q for *_, q in WAVES)
    waves = [(p, h, q / total, PROFILE[2 * j], PROFILE[2 * j + 1]) for j, (p, h, q) in enumerate(WAVES)]
    return {
        (s, p): DenseMember(KERNELS[g], noise, rate, v if share is None else share, slow, MEAN, waves)
        for s in range(S)
        for p, (g, noise, rate, v, slow) in enumerate(GRID)
    }


def steps(count, seed=0, longest=2.0):
    """Times that fade, ones that turn, which now and then go back, arms and rewards."""
    g, time, turn = torch.Generator().manual_seed(seed), 0.0, 1e3
    for k in range(count):
        time += longest * float(torch.rand(1, generator=g))
        turn += 3.0 * float(torch.rand(1, generator=g)) - (11.0 if k % 7 == 6 else 0.0)
        arm = torch.randint(N, (S,), generator=g)
        yield (time, turn), arm, torch.randn(S, len(GRID), generator=g).double()


@pytest.mark.parametrize("share", [None, 0.0])
@pytest.mark.parametrize("longest", [2.0, 60.0])
def test_members_are_the_exact_posteriors_at_irregular_times(longest, share):
    twins, model = dense(share), members(share)
    assert model.states == (7 if share is None else 1)
    for k, (time, arm, reward) in enumerate(steps(60, longest=longest)):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
        observe(twins, time, arm, reward)
        if k in (0, 59):
            for later in (0.0, 25.0):
                assert_agree(twins, model, (time[0] + later, time[1] + 2 * later))


def test_a_number_is_the_time_that_fades_and_turns():
    models = members(), members()
    for (time, _), arm, reward in steps(30, seed=3):
        models[0].observe_arms(arm.unsqueeze(-1), reward, time)
        models[1].observe_arms(arm.unsqueeze(-1), reward, (time, time))
    for one, two in zip(
        models[0].marginals(time + 3), models[1].marginals((time + 3, time + 3)), strict=True
    ):
        assert torch.equal(one, two)


def test_a_reset_member_starts_from_its_prior_and_the_others_go_on():
    twins, model = dense(), members()
    for k, (time, arm, reward) in enumerate(steps(40, seed=1)):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
        observe(twins, time, arm, reward)
        if k in (3, 17, 18):
            where = torch.rand(S, len(GRID), generator=torch.Generator().manual_seed(k)) < 0.3
            model.reset(where)
            twins |= {key: twin for key, twin in dense().items() if where[key]}
    assert_agree(twins, model, time)
    model.reset()
    assert_agree(dense(), model, (0.0, 0.0))


def test_members_that_are_left_out_learn_nothing():
    twins, model = dense(), members()
    for k, (time, arm, reward) in enumerate(steps(30, seed=5)):
        where = torch.rand(S, len(GRID), generator=torch.Generator().manual_seed(k)) < 0.6
        model.observe_arms(arm.unsqueeze(-1), reward, time, where)
        observe({key: twin for key, twin in twins.items() if where[key]}, time, arm, reward)
    assert_agree(twins, model, (time[0] + 0.5, time[1] + 0.5))


def test_a_mean_is_set_anew_from_weights_on_what_was_observed():
    model, g = members(), torch.Generator().manual_seed(0)
    arms = torch.randint(N, (S, 5), generator=g)
    times = [(0.5, 9.0), (1.0, 10.0), (3.0, 8.0), (3.5, 20.0), (9.0, 24.5)]
    for k, time in enumerate(times):
        model.observe_arms(arms[:, k : k + 1], torch.randn(S, len(GRID), generator=g).double(), time)
    twins, rewards = dense(), torch.randn(S, len(GRID), 5, generator=g).double()
    for k, time in enumerate(times):
        observe(twins, time, arms[:, k], rewards[..., k])
    between = model.prior_between(arms, times)
    for (s, p), twin in twins.items():
        own = twin.covariance[arms[s]][:, arms[s]] * twin.between(times, times)
        torch.testing.assert_close(between[s, p], own, rtol=0, atol=1e-12)
    means = torch.stack([model.prior_at(arms[:, k], time)[0] for k, time in enumerate(times)], -1)
    seen = rewards - means
    A = between + torch.diag_embed(model.noise_variance.reshape(1, -1, 1).expand_as(seen))
    weights = torch.linalg.solve(A, seen.unsqueeze(-1)).squeeze(-1)
    where = torch.arange(len(GRID)).expand(S, -1) % 2 == 0
    model.condition_mean(where, arms, times, weights)
    assert_agree({key: twin for key, twin in twins.items() if where[key]}, model, (10.0, 30.0))


def test_a_thousand_steps_leave_no_error_behind_and_none_without_a_cycle():
    kernel, noise, rate, *_ = of_grid()
    plain = ArmMembers(N, KERNELS, kernel, noise, rate, prior_mean=MEAN, replicates=S)
    cyclic, pure = members(profile=0.0), members(share=0.0, profile=0.0)
    for time, arm, reward in steps(1000, seed=4):
        for model in (plain, cyclic, pure):
            model.observe_arms(arm.unsqueeze(-1), reward, time)
    none = of_grid()[3] == 0
    for exact, ours, also in zip(plain.marginals(), cyclic.marginals(), pure.marginals(), strict=True):
        torch.testing.assert_close(ours[:, none], exact[:, none], rtol=0, atol=1e-8)
        torch.testing.assert_close(also, exact, rtol=0, atol=1e-8)


def test_a_state_goes_on_alike_alone_and_stacked():
    kernel, noise, rate, *_ = of_grid()
    others = [ArmMembers(N, KERNELS, kernel, noise, rate, replicates=S) for _ in range(3)]
    models = [StackedMembers([others[k], members()]) for k in range(2)]
    parts = others[2], members()
    for k, (time, arm, reward) in enumerate(steps(45, seed=2)):
        told = torch.cat([reward, -reward], -1)
        models[0].observe_arms(arm.unsqueeze(-1), told, time)
        parts[0].observe_arms(arm.unsqueeze(-1), reward, time[0])
        parts[1].observe_arms(arm.unsqueeze(-1), -reward, time)
        if k == 20:
            models[1].load_state_dict(models[0].state_dict())
        if k > 20:
            models[1].observe_arms(arm.unsqueeze(-1), told, time)
    at, later = torch.arange(S), (time[0] + 1, time[1] + 2)
    answers = [
        [*model.marginals(later), *model.at(at), *model.prior_at(at, later), model.covariance_with(at)]
        for model in (*models, *parts)
    ]
    for ours, again, first, second in zip(*answers, strict=True):
        assert torch.equal(ours, again)
        assert torch.equal(ours, torch.cat([first, second], 1))


def test_members_over_more_arms_know_what_those_over_the_first_of_them_learned():
    whole, n = members(), 4
    kernel, noise, rate, shares, cycle_rate = of_grid()
    few = CyclicMembers(
        *(n, KERNELS[:, :n, :n], kernel, noise, rate),
        periods=PERIODS,
        harmonics=HARMONICS,
        profile=PROFILE[:, :n],
        share=shares,
        cycle_rate=cycle_rate,
        prior_mean=MEAN[:n],
        replicates=S,
    )
    grown = members()
    for time, arm, reward in steps(40, seed=6):
        for model in (whole, few):
            model.observe_arms(arm.unsqueeze(-1) % n, reward, time)
    grown.grow_from(few)
    for later in (None, (time[0] + 1, time[1] + 5)):
        for exact, ours in zip(whole.marginals(later), grown.marginals(later), strict=True):
            torch.testing.assert_close(ours, exact, rtol=0, atol=1e-7)


def test_what_does_not_fit_is_refused_by_name():
    index, one = torch.zeros(2, dtype=torch.long), torch.ones(2).double()
    valid = {"covariances": KERNELS, "kernel": index, "noise_variance": one, "forgetting_rate": one / 2}
    valid |= {"periods": [24.0], "harmonics": [2]}
    for name, value in {
        "periods": [0.0],
        "harmonics": [2, 1],
        "profile": torch.zeros(3, N).double(),
        "share": one,
        "cycle_rate": -one,
    }.items():
        with pytest.raises(ValueError, match=name):
            CyclicMembers(N, **(valid | {name: value}))

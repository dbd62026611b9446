"""Members that change smoothly are the posteriors they claim to be, and stack with the others."""

import math
from itertools import product

import pytest
import torch

from bandits_torch.kernels import ArmCovarianceKernel, SpatioTemporalKernel
from bandits_torch.kernels.smooth_time import MaternTimeKernel
from bandits_torch.models import ArmGP, ArmMembers, SmoothMembers, StackedMembers
from tests.reference.arm_gp_twins import smooth
from tests.reference.dense_arm_gp import DenseArmGP
from tests.reference.member_twins import assert_agree, observe

N, S = 9, 2
KERNELS = torch.stack([smooth(N, 0.3), 2 * torch.eye(N).double()])
NOISES, TIMESCALES = (0.05, 1.0), (1.0, 12.0, 300.0)
GRID = list(product(range(2), NOISES, TIMESCALES))
MEAN = torch.linspace(-1, 1, N).double()


def members(prior_mean=0.0):
    kernel, noise, timescale = zip(*GRID, strict=True)
    wanted = torch.tensor(kernel), *(torch.tensor(part, dtype=torch.float64) for part in (noise, timescale))
    return SmoothMembers(N, KERNELS, *wanted, prior_mean=prior_mean, replicates=S)


def others():
    kernel, noise, _ = zip(*GRID, strict=True)
    rate = torch.linspace(0, 0.3, len(GRID)).double()
    noises = torch.tensor(noise, dtype=torch.float64)
    return ArmMembers(N, KERNELS, torch.tensor(kernel), noises, rate, replicates=S)


def matern(timescale):
    def over_time(s, t):
        r = math.sqrt(3) * (s.unsqueeze(-1) - t).abs() / timescale
        return (1 + r) * (-r).exp()

    return over_time


def dense(prior_mean=0.0):
    return {
        (s, p): DenseArmGP(KERNELS[g], noise, prior_mean, matern(timescale))
        for s in range(S)
        for p, (g, noise, timescale) in enumerate(GRID)
    }


def steps(count, seed=0, longest=2.0):
    g, time = torch.Generator().manual_seed(seed), 0.0
    for _ in range(count):
        time += longest * float(torch.rand(1, generator=g))
        arm = torch.randint(N, (S,), generator=g)
        yield time, arm, torch.randn(S, len(GRID), generator=g).double()


@pytest.mark.parametrize("longest", [2.0, 60.0])
def test_members_are_the_exact_posteriors_at_irregular_times(longest):
    twins, model = dense(MEAN), members(MEAN)
    for k, (time, arm, reward) in enumerate(steps(60, longest=longest)):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
        observe(twins, time, arm, reward)
        if k % 9 == 0 or k == 59:
            for later in (0.0, 0.7, 25.0):
                assert_agree(twins, model, time + later)


def test_thousands_of_steps_leave_no_error_behind():
    model = members()
    kernels = [SpatioTemporalKernel(ArmCovarianceKernel(KERNELS[g]), MaternTimeKernel(t)) for g, _, t in GRID]
    twins = [ArmGP(N, k, noise, batch_shape=(S,)) for k, (_, noise, _) in zip(kernels, GRID, strict=True)]
    for time, arm, reward in steps(2000, seed=4):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
        for p, twin in enumerate(twins):
            twin.observe_arms(arm, reward[:, p], time)
    for p, twin in enumerate(twins):
        for ours, exact in zip(model.marginals(time + 1), twin.marginals(time + 1), strict=True):
            torch.testing.assert_close(ours[:, p], exact, rtol=0, atol=1e-7)


def test_a_reset_member_starts_from_its_prior_and_the_others_go_on():
    twins, model = dense(), members()
    for k, (time, arm, reward) in enumerate(steps(40, seed=1)):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
        observe(twins, time, arm, reward)
        if k in (3, 17, 18):
            where = torch.rand(S, len(GRID), generator=torch.Generator().manual_seed(k)) < 0.3
            model.reset(where)
            twins |= {key: twin for key, twin in dense().items() if where[key]}
    assert_agree(twins, model, time + 0.5)
    model.reset()
    assert_agree(dense(), model, 0.0)


def test_after_a_pause_without_end_nothing_is_left():
    model = members(MEAN)
    for time, arm, reward in steps(20):
        model.observe_arms(arm.unsqueeze(-1), reward, time)
    for pause in (1e7, 1e300):
        assert_agree(dense(MEAN), model, pause)
    model.observe_arms(torch.zeros(S, 1, dtype=torch.long), torch.ones(S, len(GRID)).double(), 1e300)
    twins = dense(MEAN)
    observe(twins, 1e300, torch.zeros(S, dtype=torch.long), torch.ones(S, len(GRID)))
    assert_agree(twins, model, 1e300)


def test_the_rate_is_that_of_the_exponential_forgetting_of_equal_integral():
    model = members()
    gap = torch.linspace(0, 20000, 2_000_001).double()
    for rate, (_, _, timescale) in zip(model.forgetting_rate, GRID, strict=True):
        integral = float(torch.trapezoid(matern(timescale)(gap, torch.zeros(1).double())[:, 0], gap))
        assert integral == pytest.approx(-2 / math.log1p(-float(rate)), rel=1e-3)


def test_a_mean_is_set_anew_from_weights_on_what_was_observed():
    model, g = members(MEAN), torch.Generator().manual_seed(0)
    arms, times = torch.randint(N, (S, 5), generator=g), [0.5, 1.0, 3.0, 3.5, 9.0]
    for k, time in enumerate(times):
        model.observe_arms(arms[:, k : k + 1], torch.randn(S, len(GRID), generator=g).double(), time)
    twins, rewards = dense(MEAN), torch.randn(S, len(GRID), 5, generator=g).double()
    for k, time in enumerate(times):
        observe(twins, time, arms[:, k], rewards[..., k])
    between = model.prior_between(arms, times)
    noise = model.noise_variance.reshape(1, -1, 1)
    seen = rewards - MEAN[arms].unsqueeze(1)
    A = between + torch.diag_embed(noise.expand_as(seen))
    weights = torch.linalg.solve(A, seen.unsqueeze(-1)).squeeze(-1)
    before, _ = model.marginals(10.0)
    where = torch.arange(len(GRID)).expand(S, -1) % 2 == 0
    model.condition_mean(where, arms, times, weights)
    assert_agree({key: twin for key, twin in twins.items() if where[key]}, model, 10.0)
    assert torch.equal(model.marginals(10.0)[0][~where], before[~where])


def test_members_that_are_left_out_learn_nothing():
    twins, model = dense(MEAN), members(MEAN)
    for k, (time, arm, reward) in enumerate(steps(30, seed=5)):
        where = torch.rand(S, len(GRID), generator=torch.Generator().manual_seed(k)) < 0.6
        model.observe_arms(arm.unsqueeze(-1), reward, time, where)
        observe({key: twin for key, twin in twins.items() if where[key]}, time, arm, reward)
    assert_agree(twins, model, time + 0.5)


def test_a_state_goes_on_alike_alone_and_stacked():
    models = [StackedMembers([others(), members()]) for _ in range(2)]
    parts = others(), members()
    half = len(GRID)
    for k, (time, arm, reward) in enumerate(steps(45, seed=2)):
        told = torch.cat([reward, -reward], -1)
        where = torch.tensor([[True]] * (S - 1) + [[k % 7 != 3]])
        models[0].observe_arms(arm.unsqueeze(-1), told, time, where)
        parts[0].observe_arms(arm.unsqueeze(-1), reward, time, where)
        parts[1].observe_arms(arm.unsqueeze(-1), -reward, time, where)
        if k == 20:
            models[1].load_state_dict(models[0].state_dict())
        if k > 20:
            models[1].observe_arms(arm.unsqueeze(-1), told, time, where)
        if k == 30:
            where = torch.rand(S, 2 * half, generator=torch.Generator().manual_seed(1)) < 0.3
            for model in models:
                model.reset(where)
            parts[0].reset(where[:, :half])
            parts[1].reset(where[:, half:])
    whole = models[0]
    assert whole.batch_shape == (S, 2 * half)
    assert whole.now == time
    at = torch.arange(S)
    answers = [
        [*model.marginals(time + 1), *model.at(at), *model.prior_at(at), model.covariance_with(at)]
        for model in (*models, *parts)
    ]
    for ours, again, first, second in zip(*answers, strict=True):
        assert torch.equal(ours, again)
        assert torch.equal(ours, torch.cat([first, second], 1))
    arms, times = torch.zeros(S, 2, dtype=torch.long), [0.0, 1.0]
    expected = torch.cat([part.prior_between(arms, times) for part in parts], 1)
    assert torch.equal(whole.prior_between(arms, times), expected)
    whole.reset()
    assert whole.now is None
    assert torch.equal(
        whole.marginals()[1], torch.cat([part.prior_variance for part in parts]).expand(S, -1, -1)
    )


def test_what_does_not_fit_is_refused_by_name():
    kernel, one = torch.zeros(2, dtype=torch.long), torch.ones(2).double()
    valid = {"covariances": KERNELS, "kernel": kernel, "noise_variance": one, "timescale": one}
    for name, value in {
        "covariances": -KERNELS,
        "kernel": kernel + 2,
        "noise_variance": 0 * one,
        "timescale": 0 * one,
    }.items():
        with pytest.raises(ValueError, match=name):
            SmoothMembers(N, **(valid | {name: value}))
    for wrong in (one * torch.inf, one * torch.nan, 0.01 * one, one.unsqueeze(0)):
        with pytest.raises(ValueError, match="timescale"):
            SmoothMembers(N, **(valid | {"timescale": wrong}))
    fewer = ArmMembers(N, KERNELS, kernel, one, 0 * one)
    for parts in ([], [members(), fewer], [members(), "members"]):
        with pytest.raises(ValueError, match="parts"):
            StackedMembers(parts)

"""Cycles and smooth drift over arms: the state agrees with a dense GP."""

import pytest
import torch
from gpytorch.kernels import ConstantKernel, ScaleKernel

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    PeriodicTimeKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
)
from bandits_torch.models import ArmGP
from tests.reference import dense_cycles as over
from tests.reference.arm_gp_twins import isolated, smooth
from tests.reference.dense_arm_gp import forgetting
from tests.reference.dense_cycles import DenseTerms
from tests.reference.kernels import scaled

F64 = torch.float64
N, NOISE = 5, 0.05
K = smooth(N, 0.4)


def in_time(time_kernel, covariance=K):
    return SpatioTemporalKernel(ArmCovarianceKernel(covariance), time_kernel)


def always(value=1.0):
    kernel = ConstantKernel().double()
    kernel.constant = torch.tensor([value], dtype=F64)
    return kernel


def several():
    """A level that stays, a daily cycle that changes slowly, and drift, each with a covariance of its own."""
    cycle = QuasiPeriodicKernel(7.0, 1.0, 30.0)
    level, drift = (
        in_time(always(), isolated(N)),
        in_time(ExponentialForgettingKernel(0.1), 2 * smooth(N, 0.1)),
    )
    return in_time(cycle) + scaled(level, 0.5) + drift


# kernel, and the terms of the dense twin
KERNELS = {
    "matern-1/2": (lambda: in_time(MaternTimeKernel(6.0, 0.5)), [(K, over.matern(0.5, 6.0))]),
    "matern-3/2": (lambda: in_time(MaternTimeKernel(6.0, 1.5)), [(K, over.matern(1.5, 6.0))]),
    "matern-5/2": (lambda: in_time(MaternTimeKernel(6.0, 2.5)), [(K, over.matern(2.5, 6.0))]),
    "periodic": (lambda: in_time(PeriodicTimeKernel(7.0, 1.0)), [(K, over.periodic(7.0, 1.0))]),
    "quasi-periodic": (
        lambda: in_time(QuasiPeriodicKernel(7.0, 1.0, 30.0, nu=1.5)),
        [(K, over.times(over.periodic(7.0, 1.0), over.matern(1.5, 30.0)))],
    ),
    "sum over time": (
        lambda: in_time(PeriodicTimeKernel(7.0, 2.0) + ExponentialForgettingKernel(0.1) * always(0.4)),
        [(K, over.plus(over.periodic(7.0, 2.0), over.times(forgetting(0.1), over.constant(0.4))))],
    ),
    "sum of separable": (
        several,
        [
            (K, over.times(over.periodic(7.0, 1.0), over.matern(0.5, 30.0))),
            (isolated(N), over.constant(0.5)),
            (2 * smooth(N, 0.1), forgetting(0.1)),
        ],
    ),
}
each = pytest.mark.parametrize("kind", KERNELS)


def weights_of(kernel):
    """Of the harmonics of a periodic kernel."""
    return kernel.state_space().components[0].weight.tolist()


def reward_of(arm, time, k=0.0):
    """A cycle of period 7, a slow trend and some noise."""
    phase = torch.as_tensor(time, dtype=F64) * 2 * torch.pi / 7 + arm + k
    return (
        phase.sin() + 0.3 * torch.sin(torch.as_tensor(time / 40, dtype=F64)) + 0.2 * torch.randn(phase.shape)
    )


def told(model, twin, steps, start=0.0, gap=0.37):
    for step in range(steps):
        arm, time = step * 3 % N, start + gap * step
        reward = reward_of(torch.tensor(arm), time)
        model.observe_arms(torch.tensor(arm), reward, time)
        if twin is not None:
            twin.observe(arm, float(reward), time)
    return model


def assert_agree(model, twins, time, tolerance=1e-8):
    """Mean, covariance, gain and likelihood of every member at ``time``."""
    said = [
        part.reshape(len(twins), *part.shape[-k:])
        for part, k in zip((*model.joint(time), *model.marginals(time)), (1, 2, 1, 1), strict=True)
    ]
    for k, twin in enumerate(twins):
        answers = twin.answers(time)
        right = [*answers[:2], answers.mean, answers.covariance.diagonal()]
        torch.testing.assert_close([part[k] for part in said], right, rtol=0, atol=tolerance)
        gain, likelihood = model.information_gain.reshape(-1)[k], model.log_likelihood.reshape(-1)[k]
        assert float(gain) == pytest.approx(answers.information_gain, abs=tolerance)
        assert float(likelihood) == pytest.approx(answers.log_likelihood, rel=tolerance, abs=10 * tolerance)


def test_replicates_and_priors_are_one_batch():
    """Each prior has its own period, memory, covariance, noise and mean; each replicate its own observations."""
    torch.manual_seed(6)
    periods, memories = torch.tensor([5.0, 7.0, 11.0]).double(), torch.tensor([9.0, 30.0, 15.0]).double()
    rates, shares = torch.tensor([0.05, 0.3, 0.1]).double(), torch.tensor([1.0, 0.3, 2.0]).double()
    covariances = torch.stack([smooth(N, 0.2), smooth(N, 0.7), isolated(N)])
    share = ScaleKernel(
        MaternTimeKernel(memories.flip(0), batch_shape=torch.Size([3])), batch_shape=torch.Size([3])
    ).double()
    share.outputscale = shares
    kernel = in_time(
        QuasiPeriodicKernel(periods, 1.0, memories, order=2, batch_shape=(3,)) + share, covariances
    )
    kernel = kernel + in_time(ExponentialForgettingKernel(rates, batch_shape=(3,)))
    noises, means = torch.tensor([0.1, 0.02, 0.3]).double(), torch.tensor([0.0, 1.0, -0.5]).double()
    model = ArmGP(N, kernel, noises, prior_mean=means.unsqueeze(-1).expand(3, N), batch_shape=(2, 3))
    assert model.batch_shape == (2, 3)
    weights = weights_of(PeriodicTimeKernel(7.0, 1.0, order=2))
    twins = []
    for _ in range(2):
        for p in range(3):
            cycle = over.times(over.cosines(float(periods[p]), weights), over.matern(0.5, float(memories[p])))
            slow = over.times(over.constant(float(shares[p])), over.matern(1.5, float(memories.flip(0)[p])))
            terms = [(covariances[p], over.plus(cycle, slow)), (K, forgetting(float(rates[p])))]
            twins.append(DenseTerms(terms, float(noises[p]), float(means[p])))
    for step in range(80):
        arm = torch.randint(N, (2, 1)).expand(2, 3)
        reward = reward_of(arm[:, :1], 0.7 * step).expand(2, 3)
        where = torch.rand(2, 3) < 0.8
        model.observe_arms(arm, reward, 0.7 * step, where)
        for k, twin in enumerate(twins):
            if where.flatten()[k]:
                twin.observe(int(arm.flatten()[k]), float(reward.flatten()[k]), 0.7 * step)
    assert_agree(model, twins, 60.3, 1e-9)
    points = torch.stack([torch.tensor([0.0, 3.0, 1.0]), torch.tensor([58.0, 56.5, 80.0])], -1).double()
    posterior = model.posterior(points)
    for k, twin in enumerate(twins):
        place = divmod(k, 3)
        said = posterior.mean[place].squeeze(-1), posterior.distribution.covariance_matrix[place]
        torch.testing.assert_close(said, twin.joint(points[:, 1], points[:, 0].long()), rtol=0, atol=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("start", [0.0, 1.7e9])
@each
def test_learning_and_points_of_several_times_equal_a_dense_solve(kind, start):
    kernel, terms = KERNELS[kind]
    model, twin = ArmGP(N, kernel(), NOISE, prior_mean=0.3), DenseTerms(terms, NOISE, 0.3)
    arms, times = torch.tensor([0, 3, 3, 1]), start + torch.tensor([25.0, 22.5, 31.0, 25.0]).double()
    X = torch.stack([arms.double(), times], -1)
    for learned in (0, 60):
        told(model, twin, learned, start)
        for later in (0.0, 0.6, 3.5, 7.0, 500.0):
            assert_agree(model, [twin], (model.now or start) + later, 1e-9)
        posterior, alone = model.posterior(X), model.posterior(X.unsqueeze(-2))
        mean, covariance = twin.joint(times, arms)
        said = posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix
        torch.testing.assert_close(said, (mean, covariance), rtol=0, atol=1e-9)
        said = alone.mean.flatten(), alone.variance.flatten()
        torch.testing.assert_close(said, (mean, covariance.diagonal()), rtol=0, atol=1e-9)


def test_nothing_builds_up_over_thousands_of_rounds():
    torch.manual_seed(2)
    kernel = PeriodicTimeKernel(7.0, 1.0, order=2)
    model = ArmGP(N, in_time(kernel), NOISE)
    twin = DenseTerms([(K, over.cosines(7.0, weights_of(kernel)))], NOISE)
    for k, arm in enumerate(torch.randint(N, (2_000,))):
        time = 1.7e9 + 0.5 * k
        reward = reward_of(arm, 0.5 * k)
        model.observe_arms(arm, reward, time)
        twin.observe(arm, reward, time)
    assert_agree(model, [twin], time + 3.0)


def test_a_state_over_many_arms_has_the_only_form_that_there_is():
    """From 1 500 arms on a prior that is not stationary takes the factor form, which needs a Markov kernel."""
    n = 1501
    model = ArmGP(n, in_time(MaternTimeKernel(1.0), torch.eye(n, dtype=F64)), NOISE)
    model.observe_arms(torch.tensor(7), torch.tensor(1.0, dtype=F64), 0.0)
    mean, _ = model.marginals(0.0)
    torch.testing.assert_close(mean[7], torch.tensor(1 / (1 + NOISE), dtype=F64), rtol=1e-12, atol=0)

"""ArmGP against a dense solve in float64: after long lives, and jointly at several times."""

import pytest
import torch

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.arms import covariance_form
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.arm_gp_twins import isolated, smooth
from tests.reference.dense_arm_gp import DenseArmGP, forgetting, wiener

WAITING = "covariance, rows wait"  # which is what many arms have
NUM_ARMS = 40


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


NOISE = numbers(1e-4, 1e-4, 1e-2, 1.0)
COVARIANCES = torch.stack(
    [smooth(NUM_ARMS, 0.1), isolated(NUM_ARMS), smooth(NUM_ARMS, 0.3), isolated(NUM_ARMS, 2.0)]
)
PRIOR_MEANS = torch.linspace(-1, 1, NUM_ARMS).double() * numbers(1.0, 0.0, 3.0, 0.5).unsqueeze(-1)
RATES = ExponentialForgettingKernel, forgetting, numbers(0.01, 0.05, 0.2, 0.001)
FAST = ExponentialForgettingKernel, forgetting, numbers(0.5, 0.7, 0.9, 0.8)
VARIANCES = WienerKernel, wiener, numbers(0.001, 0.01, 0.1, 0.01)


def twins(form, drift):
    """Four members: smooth and isolated arms, three noise variances, each its own prior mean and drift."""
    kernel, times = ArmCovarianceKernel(COVARIANCES), [None] * 4
    if drift:
        kind, dense, values = drift
        kernel = SpatioTemporalKernel(kernel, kind(values, batch_shape=(4,)))
        times = [dense(float(value)) for value in values]
    model = ArmGP(NUM_ARMS, kernel, NOISE, prior_mean=PRIOR_MEANS, form=form.split(",")[0])
    return model, [DenseArmGP(*own) for own in zip(COVARIANCES, NOISE, PRIOR_MEANS, times, strict=True)]


def pull(model, dense, time):
    """Half of the pulls are of one of three arms, so that arms are pulled over and over."""
    arm = torch.where(torch.rand(4) < 0.5, torch.randint(3, (4,)), torch.randint(NUM_ARMS, (4,)))
    reward = PRIOR_MEANS.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + torch.randn(4).double()
    model.observe_arms(arm, reward, time)
    for k, twin in enumerate(dense):
        twin.observe(arm[k], reward[k], time)


def assert_exact(model, dense, time):
    said = *model.marginals(time), model.information_gain
    for k, twin in enumerate(dense):
        mean, covariance, gain, likelihood = twin.answers(time)
        own = tuple(value[k] for value in said)
        torch.testing.assert_close(own, (mean, covariance.diagonal(), numbers(gain)[0]), rtol=0, atol=1e-8)
        assert float(model.log_likelihood[k]) == pytest.approx(likelihood, rel=1e-8)
        assert int(model.num_observations[k]) == len(twin.held)


# form, drift, mean gap between times, most observations held
LIVES = [
    *((form, None, 0.0, held) for form in ("covariance", WAITING, "factor") for held in (None, 50)),
    ("covariance", RATES, 0.8, None),
    ("factor", FAST, 0.8, None),
    ("covariance", VARIANCES, 0.01, None),
    ("factor", VARIANCES, 0.13, None),
    *((form, drift, 0.05, 30) for form in ("factor", "auto") for drift in (RATES, VARIANCES)),
    # Points whose correlation with the present has faded away are held all the same.
    *((form, FAST, 1.0, 150) for form in ("factor", "auto")),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("form", "drift", "gap", "held"), LIVES)
def test_it_is_exact_after_many_steps_at_irregular_times(form, drift, gap, held, full, monkeypatch):
    if form == WAITING:
        monkeypatch.setattr(covariance_form, "WAITS_FROM", 0)
    (model, dense), time = twins(form, drift), 0.0
    grows = form == "factor" and drift == VARIANCES and not held  # with every point
    for step in range(2000 if full and not grows else 150 if grows else 300 if drift else 500):
        # One in five at the time before.
        time += 2.5 * gap * float(torch.rand(())) * float(torch.rand(()) < 0.8)
        pull(model, dense, time)
        if held and step >= held:
            model.forget()
            for twin in dense:
                twin.forget()
    assert_exact(model, dense, time)
    assert_exact(model, dense, time + 1.7)


@pytest.mark.parametrize("drift", [None, FAST, VARIANCES], ids=["static", "rates", "drift variances"])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_joint_posterior_at_several_times_equals_the_dense_one(form, drift):
    (model, dense), arm = twins(form, drift), torch.randint(NUM_ARMS, (4, 4))
    time = numbers(6.0, 6.0, 7.5, 30.0)
    X = torch.stack([arm.double(), time.expand(4, 4)], -1)[..., : 2 if drift else 1]
    for learned in (0, 6):
        for step in range(learned):
            pull(model, dense, float(step))
        posterior = model.posterior(X)
        said = posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix
        right = zip(*(twin.joint(time, arm[k]) for k, twin in enumerate(dense)), strict=True)
        right = tuple(map(torch.stack, right))
        torch.testing.assert_close(said, right, rtol=1e-9, atol=1e-9)
        variance = right[1].diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(posterior.variance.squeeze(-1), variance, rtol=1e-9, atol=1e-9)


def test_a_window_of_one_in_many_members_finds_room_for_arms_held_before():
    """Members pull apart until rows are reused, then all the same arm, then the arms before it and new ones."""
    S, N = 100, 1900
    covariance = smooth(N)
    model = ArmGP(N, ArmCovarianceKernel(covariance), 0.1, form="factor", batch_shape=(S,))
    each = torch.arange(S)
    apart = [each + k for k in range(0, N - S, S)]
    newcomers = torch.where(each == 0, N - 1, apart[-1])
    for step, arms in enumerate([*apart, apart[-1][-1].expand(S), newcomers]):
        model.observe(arms.reshape(S, 1, 1), torch.ones(S, 1, 1, dtype=torch.float64))
        if step:
            model.forget()
    row = covariance[newcomers]
    torch.testing.assert_close(model.marginals(), (row / 1.1, 1 - row.square() / 1.1), rtol=0, atol=1e-9)

"""ArmGP against dense solves at several times, arms that come late, and points that leave or come back."""

import pytest
import torch

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.arm_gp_twins import isolated, smooth
from tests.reference.dense_arm_gp import DenseArmGP, forgetting, wiener
from tests.reference.kernels import rbf

NUM_ARMS = 40


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


NOISES = numbers(1e-4, 1e-4, 1e-2, 1.0)
COVARIANCES = torch.stack(
    [smooth(NUM_ARMS, 0.1), isolated(NUM_ARMS), smooth(NUM_ARMS, 0.3), isolated(NUM_ARMS, 2.0)]
)
PRIOR_MEANS = torch.linspace(-1, 1, NUM_ARMS).double() * numbers(1.0, 0.0, 3.0, 0.5).unsqueeze(-1)
FAST = ExponentialForgettingKernel, forgetting, numbers(0.5, 0.7, 0.9, 0.8)
VARIANCES = WienerKernel, wiener, numbers(0.001, 0.01, 0.1, 0.01)


def twins(form, drift):
    """Four members: smooth and isolated arms, three noise variances, each its own prior mean and drift."""
    kernel, times = ArmCovarianceKernel(COVARIANCES), [None] * 4
    if drift:
        kind, dense, values = drift
        kernel = SpatioTemporalKernel(kernel, kind(values, batch_shape=(4,)))
        times = [dense(float(value)) for value in values]
    model = ArmGP(NUM_ARMS, kernel, NOISES, prior_mean=PRIOR_MEANS, form=form)
    return model, [DenseArmGP(*own) for own in zip(COVARIANCES, NOISES, PRIOR_MEANS, times, strict=True)]


def pull(model, dense, time):
    """Half of the pulls are of one of three arms, so that arms are pulled over and over."""
    arm = torch.where(torch.rand(4) < 0.5, torch.randint(3, (4,)), torch.randint(NUM_ARMS, (4,)))
    reward = PRIOR_MEANS.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + torch.randn(4).double()
    model.observe_arms(arm, reward, time)
    for k, twin in enumerate(dense):
        twin.observe(arm[k], reward[k], time)


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


@pytest.mark.parametrize("form", ["factor", "auto"])
def test_a_window_holds_points_whose_correlation_with_the_present_has_faded_away(form):
    model, dense = twins(form, FAST)
    for step in range(190):
        pull(model, dense, float(step))
        if step >= 150:
            for each in (model, *dense):
                each.forget()
    right = [twin.answers(190.0) for twin in dense]
    said = model.information_gain, model.log_likelihood
    exact = [numbers(*values) for values in zip(*(answers[2:] for answers in right), strict=True)]
    torch.testing.assert_close(said, tuple(exact), rtol=1e-8, atol=0)
    mean = torch.stack([answers.mean for answers in right])
    torch.testing.assert_close(model.marginals(190.0)[0], mean, rtol=0, atol=1e-8)


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


ARMS = torch.linspace(0, 1, 7).double().unsqueeze(-1)
MORE = torch.tensor([[0.05], [1.3]], dtype=torch.float64)
SPACE = rbf(0.3)
OVER_TIME = {
    "static": None,
    "fading": ExponentialForgettingKernel(0.1),
    "wandering": WienerKernel(0.2),
    "smooth": MaternTimeKernel(6.0, 1.5),
}


@pytest.mark.parametrize("first", [1, 7])
@pytest.mark.parametrize("form", ["auto", "factor"])
@pytest.mark.parametrize("kind", OVER_TIME)
def test_a_model_over_more_arms_is_one_that_had_them(kind, form, first):
    """Beside the arms of each member; rewards may have come late, and some are forgotten before and after."""
    if kind == "smooth" and form == "factor":
        return
    kernel = SpatioTemporalKernel(SPACE, OVER_TIME[kind]) if OVER_TIME[kind] else SPACE
    own = torch.stack([ARMS[:first], 2 * ARMS[:first]])
    everything = torch.cat([own, MORE.expand(2, 2, 1)], -2)
    means = numbers(*[0.4] * first, 0.4, -1.0)
    noises = numbers(0.1, 0.3)
    few = ArmGP(own, kernel, noises, prior_mean=0.4, form=form)
    whole = ArmGP(everything, kernel, noises, prior_mean=means, form=form)

    def learn(times, arms, *models):
        for time in times:
            arm, reward = torch.randint(arms, (2,)), torch.randn(2).double()
            for model in models:
                model.observe_arms(arm, reward, time, late=True)

    def forget(*models):
        for model in models:
            model.forget(1)

    learn((2.0, 4.0, 1.0, 4.0, 3.0, 3.0), first, few, whole)
    forget(few, whole)
    before = few.joint(9.5)
    wider = few.with_arms(MORE, means[-2:])
    assert torch.equal(wider.arms, everything)
    learn((11.0, 7.0), first + 2, wider, whole)
    forget(wider, whole)
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(wider.joint(13.0), whole.joint(13.0), **close)
    torch.testing.assert_close(wider.log_likelihood, whole.log_likelihood, **close)
    torch.testing.assert_close(wider.information_gain, whole.information_gain, **close)
    torch.testing.assert_close(few.joint(9.5), before, **close)  # which stays what it was


def test_new_arms_have_the_prior_mean_that_all_arms_share_or_one_of_their_own():
    model = ArmGP(ARMS, SPACE, 0.1, prior_mean=0.4)
    assert model.with_arms(MORE).prior_mean.tolist() == [0.4] * 9
    model = ArmGP(ARMS, SPACE, 0.1, prior_mean=torch.arange(7).double(), batch_shape=(2,))
    wider = model.with_arms(MORE, torch.tensor([7.0, 8.0]))
    assert wider.marginals()[0].tolist() == [list(range(9))] * 2
    expected = "prior_mean must be given, because the present arms have different means"
    with pytest.raises(ValueError, match=expected):
        model.with_arms(MORE)


def test_points_dropped_as_faint_leave_the_posterior_of_the_others_exact():
    """Observed one unit of time apart, so that many points lie close to each one that is dropped."""
    rates, noise = numbers(0.26, 0.34), numbers(1e-3, 3e-4)
    space = ArmCovarianceKernel(torch.stack([smooth(8, 0.25), smooth(8, 1.0)]))
    kernel = SpatioTemporalKernel(space, ExponentialForgettingKernel(rates, batch_shape=(2,)))
    factor, covariance = (ArmGP(8, kernel, noise, form=form) for form in ("factor", "covariance"))
    for step in range(330):
        arm, reward = torch.randint(8, (2,)), torch.randn(2).double()
        for model in (factor, covariance):
            model.observe_arms(arm, reward, float(step))
    assert factor.belief.form._dropped_any
    torch.testing.assert_close(factor.marginals(331.0), covariance.marginals(331.0), rtol=0, atol=1e-9)
    torch.testing.assert_close(factor.joint(331.0), covariance.joint(331.0), rtol=0, atol=1e-9)
    torch.testing.assert_close(factor.log_likelihood, covariance.log_likelihood, rtol=1e-9, atol=0)

"""ArmGP against a dense solve in float64, after long lives."""

import pytest
import torch

from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arms import covariance_form
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.arm_gp_twins import Twins, isolated, smooth

WAITING = "covariance, rows wait"  # which is what many arms have
FORMS = ("covariance", WAITING, "factor")
NUM_ARMS = 40
NOISE = torch.tensor([1e-4, 1e-4, 1e-2, 1.0], dtype=torch.float64)
COVARIANCES = torch.stack(
    [smooth(NUM_ARMS, 0.1), isolated(NUM_ARMS), smooth(NUM_ARMS, 0.3), isolated(NUM_ARMS, 2.0)]
)
PRIOR_MEANS = torch.linspace(-1, 1, NUM_ARMS).double() * torch.tensor([[1.0], [0.0], [3.0], [0.5]])


@pytest.fixture(autouse=True)
def rows_wait(request, monkeypatch):
    """Of few arms, too, where a test says so."""
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("form") == WAITING:
        monkeypatch.setattr(covariance_form, "WAITS_FROM", 0)


def twins(form, **drift):
    """Four members: smooth and isolated arms, three noise variances, each its own prior mean and drift."""
    return Twins(COVARIANCES, NOISE, prior_means=PRIOR_MEANS, form=form.split(",")[0], **drift)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def some_arms():
    """Half of the pulls are of one of three arms, so that arms are pulled over and over."""
    favourite = torch.rand(4) < 0.5
    return torch.where(favourite, torch.randint(3, (4,)), torch.randint(NUM_ARMS, (4,)))


def some(share):
    return torch.rand(4) < share


def assert_exact(pair, time=0.0, tolerance=1e-8):
    errors = pair.largest_errors(time)
    assert max(errors.values()) < tolerance, errors


@pytest.mark.parametrize("form", FORMS)
def test_static_model_is_exact_after_many_observations(form, full):
    pair = twins(form)
    for _ in range(2000 if full else 500):
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm))
    assert_exact(pair)


@pytest.mark.parametrize("form", FORMS)
def test_window_equals_refit_on_the_last_w_points_after_many_steps(form, full):
    pair = twins(form)
    for step in range(2000 if full else 500):
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm))
        if step >= 50:
            pair.forget()
    assert len(pair.dense[0].held) == 50
    assert_exact(pair)


@pytest.mark.parametrize("form", FORMS)
def test_members_that_observe_forget_and_restart_apart_stay_exact(form):
    pair = twins(form)
    for step in range(2000):
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm), where=some(0.7))
        held = torch.tensor([len(twin.held) for twin in pair.dense])
        pair.forget(where=(held > 60) & some(0.9))
        if step % 333 == 200:
            pair.reset(some(0.5))
        if step == 1900:
            pair.reset()
    assert_exact(pair)


@pytest.mark.parametrize(
    ("form", "rates"),
    [("covariance", (0.01, 0.05, 0.2, 0.001)), ("factor", (0.5, 0.6, 0.9, 0.5))],
)
def test_forgetting_kernel_at_irregular_times_is_exact_after_many_steps(form, rates, full):
    pair = twins(form, rates=numbers(*rates))
    time = 0.0
    for _ in range(2000 if full else 500):
        time += 2 * float(torch.rand(())) * float(torch.rand(()) < 0.8)  # one in five at the time before
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm, time), time)
    assert_exact(pair, time)
    assert_exact(pair, time + 1.7)


@pytest.mark.parametrize(("form", "steps"), [("covariance", 2000), ("factor", 150)])
def test_uncertainty_injection_is_exact(form, steps):
    pair = twins(form, drift_variances=numbers(0.001, 0.01, 0.1, 0.01))
    time = 0.0
    for _ in range(steps):
        time += float(torch.rand(())) * 20 / steps
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm, time), time, where=some(0.9))
    assert_exact(pair, time)
    assert_exact(pair, time + 3.0)


@pytest.mark.every(3)
@pytest.mark.parametrize("drift", ["rates", "drift_variances"])
@pytest.mark.parametrize("form", ["factor", "auto"])
def test_window_under_drift_equals_refit_on_the_last_w_points(form, drift, full):
    pair = twins(form, **{drift: numbers(0.01, 0.05, 0.1, 0.2)})
    time = 0.0
    long = form == "factor" and (full or drift == "drift_variances")
    for step in range(2000 if long else 200):
        time += 0.1 * float(torch.rand(()))
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm, time), time)
        if step >= 30:
            pair.forget()
    assert_exact(pair, time)
    assert_exact(pair, time + 2.0)


@pytest.mark.parametrize("form", ["factor", "auto"])
def test_window_longer_than_the_memory_of_the_drift_is_exact_in_gain_too(form):
    """Points whose correlation with the present has faded away are held all the same."""
    pair = twins(form, rates=numbers(0.5, 0.7, 0.9, 0.8))
    for step in range(1, 400):
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm, step), float(step))
        if step > 150:
            pair.forget()
    assert_exact(pair, 400.0)


def test_members_restart_apart_exactly_under_drift():
    pair = twins("covariance", rates=numbers(0.01, 0.05, 0.2, 0.1))
    for step in range(1, 200):
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm, step), float(step), where=some(0.8))
        if step % 60 == 50:
            pair.reset(some(0.5))
    assert_exact(pair, 200.0)


@pytest.mark.parametrize("form", FORMS)
def test_rewards_far_from_the_model_leave_relative_errors_small(form):
    """Adversarial: neighbouring arms, almost one function value, are said to be 1000 and -1000."""
    pair = twins(form)
    for step in range(2000):
        arm = torch.full((4,), step % NUM_ARMS)
        pair.observe(arm, torch.full((4,), 1e3 * (-1) ** step, dtype=torch.float64))
        if step >= 300:
            pair.forget()
    errors = pair.largest_errors()
    largest = max(1.0, *(float(twin.joint()[0].abs().max()) for twin in pair.dense))
    assert errors["mean"] < 1e-8 * largest, errors
    assert max(errors["variance"], errors["gain"], errors["likelihood"]) < 1e-8, errors


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
    mean, variance = model.marginals()
    row = covariance[newcomers]
    assert torch.allclose(mean, row / 1.1, atol=1e-9)
    assert torch.allclose(variance, 1 - row.square() / 1.1, atol=1e-9)

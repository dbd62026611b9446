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


def assert_exact(pair, time=0.0, tolerance=1e-8):
    errors = pair.largest_errors(time)
    assert max(errors.values()) < tolerance, errors


RATES, VARIANCES = numbers(0.01, 0.05, 0.2, 0.001), numbers(0.001, 0.01, 0.1, 0.01)
FAST = numbers(0.5, 0.7, 0.9, 0.8)
# form, drift, mean gap between times, most observations held
LIVES = [
    *((form, {}, 0.0, held) for form in FORMS for held in (None, 50)),
    ("covariance", {"rates": RATES}, 0.8, None),
    ("factor", {"rates": FAST}, 0.8, None),
    ("covariance", {"drift_variances": VARIANCES}, 0.01, None),
    ("factor", {"drift_variances": VARIANCES}, 0.13, None),
    *((form, {"rates": RATES}, 0.05, 30) for form in ("factor", "auto")),
    *((form, {"drift_variances": VARIANCES}, 0.05, 30) for form in ("factor", "auto")),
    # Points whose correlation with the present has faded away are held all the same.
    *((form, {"rates": FAST}, 1.0, 150) for form in ("factor", "auto")),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("form", "drift", "gap", "held"), LIVES)
def test_it_is_exact_after_many_steps_at_irregular_times(form, drift, gap, held, full):
    pair, time = twins(form, **drift), 0.0
    grows = form == "factor" and "drift_variances" in drift and not held  # with every point
    for step in range(2000 if full and not grows else 150 if grows else 500 if not drift else 300):
        # One in five at the time before.
        time += 2.5 * gap * float(torch.rand(())) * float(torch.rand(()) < 0.8)
        arm = some_arms()
        pair.observe(arm, pair.rewards(arm, time), time)
        if held and step >= held:
            pair.forget()
    assert_exact(pair, time)
    assert_exact(pair, time + 1.7)


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

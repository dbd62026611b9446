"""A step of ArmGP costs the same however many steps went before: numbers touched are counted, not seconds."""

import statistics
from contextlib import nullcontext

import pytest
import torch

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.arm_gp_twins import smooth
from tests.reference.count_work import CountWork

N = 20


def model_of(form, drift=None, **options):
    time = {
        "forgetting": lambda: ExponentialForgettingKernel(torch.tensor(0.6).double()),
        "wiener": lambda: WienerKernel(torch.tensor(0.01).double()),
    }
    kernel = ArmCovarianceKernel(smooth(N))
    if drift:
        kernel = SpatioTemporalKernel(kernel, time[drift]())
    return ArmGP(N, kernel, 0.1, form=form, batch_shape=(2,), **options)


def work_of_steps(model, window=None, until=1000):
    """Median work of a step of learning (and forgetting) and of asking, around steps 200 and ``until``."""
    counts = {200: [], until: []}
    for step in range(1, until + 1):
        arm, reward = torch.randint(N, (2,)), torch.randn(2).double()
        around = next((t for t in counts if t - 21 < step <= t), None)
        with CountWork() if around else nullcontext() as work:
            model.observe_arms(arm, reward, float(step))
            if window and step > window:
                model.forget(where=model.num_observations > window)
            model.posterior(model.candidates(step + 1.0)).variance.sqrt()
            model.information_gain.sqrt()
        if around:
            counts[around].append(work.numbers)
    return [statistics.median(counts[t]) for t in counts]


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("form", "drift", "window"),
    [
        ("covariance", None, None),
        ("covariance", None, 50),
        ("covariance", "forgetting", None),
        ("covariance", "wiener", None),
        ("factor", None, None),
        ("factor", None, 50),
        ("factor", "forgetting", None),
        ("factor", "forgetting", 50),
        ("auto", "wiener", 50),
    ],
)
def test_a_step_does_not_grow_with_time(form, drift, window, full):
    model = model_of(form, drift)
    early, late = work_of_steps(model, window, until=5000 if full else 600)
    assert early > N * N * 2 if form == "covariance" else early > N
    assert late <= 1.1 * early, (early, late)


def test_a_step_does_grow_where_it_must():
    """The count sees growth: under a drift that never fades the factor form keeps every point."""
    early, late = work_of_steps(model_of("factor", "wiener"), until=400)
    assert late > 2 * early, (early, late)


def room(model):
    return sum(buffer.numel() for buffer in model._belief.form.buffers())


def test_memory_of_the_factor_form_under_fading_drift_is_bounded():
    """Beside 24 bytes for each observation, which the model keeps so that it can forget."""
    model = model_of("factor", "forgetting")
    sizes = []
    for step in range(1, 1501):
        model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double(), float(step))
        if step % 300 == 0:
            sizes.append(room(model))
    assert max(sizes[1:]) <= sizes[0]


def test_members_that_pull_the_same_new_arms_share_their_rows():
    model = ArmGP(50, smooth(50), 0.1, form="factor", batch_shape=(30,))
    for arm in range(20):
        model.observe_arms(torch.full((30,), arm), torch.randn(30).double())
    assert int(model._belief.form.rows.used) == 20


def test_asking_all_arms_does_not_touch_the_covariance_between_them():
    model = model_of("covariance")
    model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double())
    with CountWork() as work:
        model.posterior(model.candidates()).variance.sqrt()
    assert work.numbers < 2 * 2 * N * 5


def test_a_fantasy_costs_a_copy_and_not_the_past_again():
    counts = []
    for steps in (20, 400):
        model = model_of("covariance")
        for _ in range(steps):
            model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double())
        with CountWork() as work:
            model.condition_on_observations(model.candidates()[0], torch.randn(8, 2, 1, 1).double())
        counts.append(work.numbers)
    assert counts[1] < 3 * counts[0], counts

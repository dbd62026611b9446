"""What a step costs as observations come in: numbers touched and multiplications are counted, not seconds."""

import statistics
from contextlib import nullcontext

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models import ArmGP, LeverageSampling, OnlineGP, SketchedGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from tests.reference.arm_gp_twins import smooth
from tests.reference.count_work import CountWork
from tests.reference.kernels import rbf

N = 20
DRIFTS = {"forgetting": lambda: ExponentialForgettingKernel(0.6), "wiener": lambda: WienerKernel(0.01)}


def work_of_steps(ends, step):
    """Mean numbers touched, and multiplications, of the steps from half of each end to the end, (2, ends).

    From half to the whole, so that what is copied whenever a buffer doubles is counted once.
    """
    counts = {end: [] for end in ends}
    for t in range(1, max(ends) + 1):
        end = next((m for m in ends if m // 2 < t <= m), None)
        with CountWork() if end else nullcontext() as work:
            step(t)
        if end:
            counts[end].append((work.numbers, work.flops))
    return [[statistics.mean(one[k] for one in counts[end]) for end in ends] for k in range(2)]


def arm_gp(form, drift=None):
    kernel = ArmCovarianceKernel(smooth(N))
    if drift:
        kernel = SpatioTemporalKernel(kernel, DRIFTS[drift]())
    return ArmGP(N, kernel, 0.1, form=form, batch_shape=(2,))


def arm_step(model, window=None):
    """Learn, forget, and ask for all arms."""

    def step(t):
        arm, reward = torch.randint(N, (2,)), torch.randn(2).double()
        model.observe_arms(arm, reward, float(t))
        if window and t > window:
            model.forget(where=model.num_observations > window)
        model.posterior(model.candidates(t + 1.0)).variance.sqrt()
        model.information_gain.sqrt()

    return step


def sketch_step(model):
    def step(t):
        model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double())
        model.marginals()

    return step


def point_step(window=None):
    """Learn, forget, and ask for N points."""
    model, points = OnlineGP(RBFKernel(), 0.1, input_dim=2), torch.rand(N, 2).double()

    def step(t):
        model.observe(torch.rand(1, 2).double(), torch.randn(1, 1).double())
        if window and t > window:
            model.forget()
        model.posterior(points).variance.sqrt()

    return step


def sketch(growth):
    """Its dictionary holds at most the N arms; the last of them are drawn late."""
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.05
    sampling = LeverageSampling.practical(5.0, growth)
    arms = torch.linspace(0, 1, N).double().unsqueeze(-1)
    return SketchedGP(arms, kernel, 0.1, sampling=sampling, batch_shape=(2,))


STEPS = {
    "covariance": (lambda: arm_step(arm_gp("covariance")), 1.1),
    "covariance, window": (lambda: arm_step(arm_gp("covariance"), 50), 1.1),
    "covariance, forgetting": (lambda: arm_step(arm_gp("covariance", "forgetting")), 1.1),
    "covariance, wiener": (lambda: arm_step(arm_gp("covariance", "wiener")), 1.1),
    "factor": (lambda: arm_step(arm_gp("factor")), 1.1),
    "factor, window": (lambda: arm_step(arm_gp("factor"), 50), 1.1),
    "factor, forgetting": (lambda: arm_step(arm_gp("factor", "forgetting")), 1.1),
    "factor, forgetting, window": (lambda: arm_step(arm_gp("factor", "forgetting"), 50), 1.1),
    "auto, wiener, window": (lambda: arm_step(arm_gp("auto", "wiener"), 50), 1.1),
    "WeightedGP": (lambda: sketch_step(WeightedGP(N, smooth(N), 0.1, discount=0.99, batch_shape=(2,))), 1.1),
    "SketchedGP, each step": (lambda: sketch_step(sketch(1.0)), 1.3),
    "SketchedGP": (lambda: sketch_step(sketch(2.0)), 1.3),
    "OnlineGP, window": (lambda: point_step(50), 1.1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_does_not_grow_with_time(name, full):
    make, most = STEPS[name]
    for early, late in work_of_steps((128, 2048 if full else 512), make()):
        assert early > N
        assert late <= most * early, (early, late)


def test_a_step_of_online_gp_grows_with_the_square_of_what_it_holds_and_no_faster():
    _, (first, second, third) = work_of_steps((64, 128, 256), point_step())
    assert second <= 4.4 * first, (first, second)
    assert third <= 4.4 * second, (second, third)
    assert third > 2 * second  # the count sees growth


def test_the_counts_see_growth():
    """Under a drift that never fades the factor form keeps every point; and a factorisation in a step is cubic."""
    (early, late), _ = work_of_steps((100, 400), arm_step(arm_gp("factor", "wiener")))
    assert late > 2 * early, (early, late)
    _, (early, late) = work_of_steps((64, 128), lambda t: torch.linalg.cholesky(torch.eye(t).double()))
    assert late > 6 * early


def test_memory_of_the_factor_form_under_fading_drift_is_bounded():
    """Beside 24 bytes for each observation, which the model keeps so that it can forget."""
    model = arm_gp("factor", "forgetting")
    sizes = []
    for step in range(1, 1501):
        model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double(), float(step))
        if step % 300 == 0:
            sizes.append(sum(buffer.numel() for buffer in model._belief.form.buffers()))
    assert max(sizes[1:]) <= sizes[0]


def test_members_that_pull_the_same_new_arms_share_their_rows():
    model = ArmGP(50, smooth(50), 0.1, form="factor", batch_shape=(30,))
    for arm in range(20):
        model.observe_arms(torch.full((30,), arm), torch.randn(30).double())
    assert int(model._belief.form.rows.used) == 20


def test_asking_all_arms_does_not_touch_the_covariance_between_them():
    model = arm_gp("covariance")
    model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double())
    with CountWork() as work:
        model.posterior(model.candidates()).variance.sqrt()
    assert work.numbers < 2 * 2 * N * 5


def test_points_of_a_sketch_asked_one_by_one_share_a_solve():
    arms = torch.rand(400, 2).double()
    model = SketchedGP(arms, rbf(0.1).requires_grad_(False), 0.1)
    for arm in range(60):
        model.observe_arms(torch.tensor(arm), torch.zeros(()).double())
    m, points = int(model.dictionary_size), model.off_arms()
    with CountWork() as work:
        points.posterior(arms.unsqueeze(-2))
    assert work.numbers < 30 * len(arms) * m < len(arms) * m**2


def test_a_fantasy_costs_a_copy_and_not_the_past_again():
    counts = []
    for steps in (20, 400):
        model = arm_gp("covariance")
        for _ in range(steps):
            model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double())
        with CountWork() as work:
            model.condition_on_observations(model.candidates()[0], torch.randn(8, 2, 1, 1).double())
        counts.append(work.numbers)
    assert counts[1] < 3 * counts[0], counts

"""What a step costs as observations come in, for every model: counted multiplications against what its docstring says.

``test_arm_gp_cost`` counts the numbers that the two forms of ArmGP touch; here stand the others, and ArmGP's
multiplications, which a factorisation hidden in a step would betray.
"""

import statistics
from contextlib import nullcontext

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.models.sketch.leverage_sampling import LeverageSampling
from bandits_torch.models.sketch.sketched_gp import SketchedGP
from tests.reference.arm_gp_twins import smooth
from tests.reference.count_work import CountFlops

N = 20


def flops_until(ends, step):
    """Mean multiplications of the steps from half of each end to the end; ``step(t)`` plays step t.

    From half to the whole, so that what is copied whenever a buffer doubles is counted once.
    """
    counts = {end: [] for end in ends}
    for t in range(1, max(ends) + 1):
        end = next((m for m in ends if m // 2 < t <= m), None)
        with CountFlops() if end else nullcontext() as work:
            step(t)
        if end:
            counts[end].append(work.flops)
    return [statistics.mean(counts[end]) for end in ends]


def arm_step(model, window=None):
    """Learn, forget, and ask for all arms."""

    def step(t):
        model.observe_arms(torch.randint(N, model.batch_shape), torch.randn(model.batch_shape).double())
        if window and t > window:
            model.forget()
        model.posterior(model.candidates()).variance.sqrt()

    return step


def index_step(model):
    """As ``arm_step`` for models whose inputs are arms by number."""

    def step(t):
        X = torch.randint(N, (*model.batch_shape, 1, 1)).double()
        model.observe(X, torch.randn(*model.batch_shape, 1, 1).double())
        model.posterior(torch.arange(N).double().unsqueeze(-1)).variance.sqrt()

    return step


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("form", "window"), [("covariance", None), ("covariance", 30), ("factor", None), ("factor", 30)]
)
def test_arm_gp_multiplies_as_much_late_as_early(form, window):
    model = ArmGP(N, smooth(N), 0.1, form=form, batch_shape=(2,))
    early, late = flops_until((128, 512), arm_step(model, window))
    assert late <= 1.1 * early, (early, late)


def test_weighted_gp_multiplies_as_much_late_as_early():
    model = WeightedGP(N, smooth(N), 0.1, discount=0.99, batch_shape=(2,))
    early, late = flops_until((128, 512), index_step(model))
    assert early > N**2
    assert late <= 1.1 * early, (early, late)


def sketch_step(model):
    """Learn, and ask for the marginals of all arms, as a policy does."""

    def step(t):
        model.observe_arms(torch.randint(N, model.batch_shape), torch.randn(model.batch_shape).double())
        model.marginals()

    return step


@pytest.mark.parametrize("growth", [1.0, 2.0])
def test_sketched_gp_multiplies_as_much_late_as_early(growth):
    """Its dictionary holds at most the N arms; the last of them are drawn late."""
    arms, kernel = torch.linspace(0, 1, N).double().unsqueeze(-1), RBFKernel().double()
    kernel.lengthscale = 0.05
    model = SketchedGP(arms, kernel, 0.1, sampling=LeverageSampling.practical(5.0, growth), batch_shape=(2,))
    early, late = flops_until((128, 512), sketch_step(model))
    assert early > N**2
    assert late <= 1.3 * early, (early, late)


def online_step(model, window=None):
    """Learn, forget, and ask for N points."""
    points = torch.rand(N, 2).double()

    def step(t):
        model.observe(torch.rand(1, 2).double(), torch.randn(1, 1).double())
        if window and t > window:
            model.forget()
        model.posterior(points).variance.sqrt()

    return step


def test_a_step_of_online_gp_grows_with_the_square_of_what_it_holds_and_no_faster():
    model = OnlineGP(RBFKernel(), 0.1, input_dim=2)
    first, second, third = flops_until((64, 128, 256), online_step(model))
    assert second <= 4.4 * first, (first, second)
    assert third <= 4.4 * second, (second, third)
    assert third > 2 * second  # the count sees growth


def test_a_step_of_online_gp_with_a_window_does_not_grow():
    model = OnlineGP(RBFKernel(), 0.1, input_dim=2)
    early, late = flops_until((128, 512), online_step(model, window=50))
    assert late <= 1.1 * early, (early, late)


def test_a_factorisation_hidden_in_a_step_would_be_seen():
    def step(t):
        torch.linalg.cholesky(torch.eye(t).double())

    first, second = flops_until((64, 128), step)
    assert second > 6 * first

"""Every time kernel at clocks of 0, 1.7e9 (seconds since 1970) and 1e12, with steps of 1e-3, 1 and 1e6.

The twin in extended precision is told the same rounded times and takes their differences exactly: at 1e12 the spacing
of float64 is 1.2e-4, so a step "of 1e-3" is a multiple of that, which both sides know. Our own kernels are told times
of any clock in random lives (``test_attack_models.py``).
"""

import math

import numpy as np
import pytest
import torch
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import PeriodicKernel, RBFKernel

from bandits_torch.acquisition import PathwisePointDraw, PathwiseThompsonSampling
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models import ArmGP, ArmMembers, AtTime, OnlineGP, SmoothMembers
from bandits_torch.models.arms import factor_form
from bandits_torch.models.arms.factor_form import FactorForm
from tests.reference import precise
from tests.reference.arm_gp_twins import smooth

N, STEPS = 5, 60
NOISE = 0.01
CLOCKS = [(t0, step) for t0 in (0.0, 1.7e9, 1e12) for step in (1e-3, 1.0, 1e6)]
KERNELS = {"exponential": ExponentialForgettingKernel(0.05), "Wiener": WienerKernel(0.01)}

pytestmark = pytest.mark.skipif(not precise.IS_PRECISE, reason="this machine has no extended precision")


def data(t0, step):
    random = torch.Generator().manual_seed(0)
    arm = torch.randint(N, (STEPS,), generator=random)
    reward = 0.1 * torch.randn(STEPS, generator=random, dtype=torch.float64).cumsum(0)
    return arm, reward, [t0 + k * step for k in range(STEPS)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("window", [None, 15])
@pytest.mark.parametrize("noises", [(0.01,), (1e-5,), (0.01, 1e-5)])
@pytest.mark.parametrize("name", KERNELS)
def test_rows_from_the_prior_and_from_the_latest_points_agree(name, noises, window, monkeypatch):
    """The cheap way is taken where the prior variance is at most 1e4 of the noise, by each member for itself."""
    told = []

    def play(deep=None, noises=noises):
        taken = []
        if deep is not None:
            monkeypatch.setattr(factor_form, "_DEEP", deep)
        whole = FactorForm._row_since
        monkeypatch.setattr(FactorForm, "_row_since", lambda *args: taken.append(1) or whole(*args))
        noise = torch.tensor(noises, dtype=torch.float64)
        kernel = SpatioTemporalKernel(ArmCovarianceKernel(smooth(N, 0.3)), KERNELS[name])
        model = ArmGP(N, kernel, noise, form="factor")
        for k, (arm, reward, time) in enumerate(zip(*data(0.0, 1.0), strict=True)):
            model.observe_arms(arm, reward, time)
            if window and k >= window:
                model.forget()
        monkeypatch.undo()
        told.append(len(taken))
        return torch.stack(model.marginals(model.now + 0.5), 1)

    said = play()
    assert told.pop() == (STEPS if min(noises) < 1e-4 else 0)
    for deep, rows in ((0.0, STEPS), (math.inf, 0)):
        torch.testing.assert_close(play(deep), said, rtol=0, atol=1e-7 if window else 1e-9)
        assert told.pop() == rows
    for m, noise in enumerate(noises):
        assert torch.equal(play(noises=[noise] * len(noises))[m], said[m])


def of_gpytorch(name, lengthscale):
    kernel = RBFKernel() if name == "squared exponential" else PeriodicKernel()
    kernel = kernel.double()
    kernel.lengthscale = torch.tensor(lengthscale if name == "squared exponential" else 1.0).double()
    if name == "periodic":
        kernel.period_length = torch.tensor(lengthscale).double()
    return kernel.requires_grad_(False)


def differences_first(kernel):
    length = precise.precise(kernel.lengthscale.item())
    if isinstance(kernel, RBFKernel):
        return lambda s, t: np.exp(-(((s - t) / length) ** 2) / 2)
    period = precise.precise(kernel.period_length.item())
    return lambda s, t: np.exp(-2 * np.sin(np.pi * precise.precise(1.0) * (s - t) / period) ** 2 / length)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["squared exponential", "periodic"])
@pytest.mark.parametrize(("t0", "step"), CLOCKS)
def test_kernels_of_gpytorch_over_time_are_right_at_any_clock(t0, step, name):
    """They divide times by a length-scale or a period before they subtract: 1e12 s over 5e-3 s has 16 digits too."""
    kernel = of_gpytorch(name, 7.3 * step)
    model = OnlineGP(SpatioTemporalKernel(ArmCovarianceKernel(smooth(N, 0.3)), kernel), NOISE, input_dim=2)
    arm, reward, times = data(t0, step)
    X = torch.stack([arm.double(), torch.tensor(times, dtype=torch.float64)], -1)
    for k in range(STEPS):
        model.observe(X[k : k + 1], reward[k].reshape(1, 1))
    points = torch.stack(
        [torch.arange(N).double(), torch.full((N,), times[-1] + step / 2, dtype=torch.float64)], -1
    )
    with torch.no_grad():
        posterior = model.posterior(points.unsqueeze(-2))
    k, s, t = differences_first(kernel), precise.precise(times), precise.precise(points[0, -1].item())
    one = precise.precise(1.0)
    K = precise.precise(smooth(N, 0.3).numpy())
    right = precise.gp(K, arm.tolist(), reward.tolist(), NOISE, k(s[:, None], s), k(s, t), one)
    assert np.abs(posterior.mean.flatten().numpy() - right.mean).max() < 1e-10
    assert np.abs(posterior.variance.flatten().numpy() - np.diagonal(right.covariance)).max() < 1e-10


F32 = torch.float32


def in_float32(start):
    """A model that was told rewards a second apart, of points and times in float64."""
    kernel = SpatioTemporalKernel(RBFKernel().double(), ExponentialForgettingKernel(0.05))
    model = OnlineGP(kernel, NOISE, input_dim=2, dtype=F32)
    gaps = torch.arange(12, dtype=torch.float64)
    X = torch.stack([(0.37 * gaps) % 1, start + gaps], -1)
    model.observe(X, torch.sin(3 * X[:, :1] + gaps.unsqueeze(-1)))
    return model


def answers(model, X):
    with torch.no_grad():
        posterior = model.posterior(X)
    return torch.stack([posterior.mean.flatten(), posterior.variance.flatten()])


def test_views_and_paths_of_a_model_in_float32_have_its_times():
    drawn = []
    for start in (0.0, 1.7e9):
        model, now = in_float32(start), start + 13.5
        x = torch.linspace(0, 1, 5).reshape(5, 1, 1)
        X = torch.cat([x.double(), torch.full_like(x, now, dtype=torch.float64)], -1)
        seen = [answers(AtTime(model, now), x)]
        assert torch.equal(seen[0], answers(model, X))
        fantasies = AtTime(model, now).condition_on_observations(x[2], torch.ones(1, 1))
        seen.append(answers(fantasies, x))
        draw = PathwisePointDraw(model, time=now, seeds=(1,), features=64)
        seen.append(draw(X).detach().reshape(1, -1).float())
        drawn.append(seen)
        torch.manual_seed(0)
        path = draw_matheron_paths(AtTime(model, now), sample_shape=torch.Size([1]))
        assert path(x).isfinite().all()
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", [ArmMembers, SmoothMembers])
def test_members_in_float32_take_differences_of_times_in_float64(kind):
    g = torch.Generator().manual_seed(0)
    K, noise = smooth(N, 0.3).float().unsqueeze(0), torch.tensor([0.1, 0.3])
    over_time = torch.tensor([0.05, 0.2]) if kind is ArmMembers else torch.tensor([30.0, 7.0])
    arms, gaps = torch.randint(N, (1, 4), generator=g), [0.0, 1.0, 2.0, 5.0]
    weights, answers = torch.randn(1, 2, 4, generator=g), []
    for start in (0.0, 1.7e9):
        model = kind(torch.rand(N, 1, generator=g), K, torch.tensor([0, 0]), noise, over_time)
        times = [start + gap for gap in gaps]
        for k, time in enumerate(times):
            model.observe_arms(arms[:, k : k + 1], torch.ones(1, 2), time)
        between = model.prior_between(arms, times)
        model.condition_mean(torch.ones(1, 2, dtype=torch.bool), arms, times, weights)
        answers.append((between, model.marginals(times[-1] + 3.0)[0]))
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_draws_of_many_arms_in_float32_tell_times_apart():
    drawn = []
    for start in (0.0, 1.7e9):
        kernel = SpatioTemporalKernel(
            ArmCovarianceKernel(smooth(N, 0.3).float()), ExponentialForgettingKernel(0.05)
        )
        model = ArmGP(N, kernel, NOISE, dtype=F32)
        for arm, reward, time in zip(*data(start, 1.0), strict=True):
            model.observe_arms(arm, reward, time)
        drawn.append(PathwiseThompsonSampling(model, seed=3).paths(model, model.now + 1.0))
    torch.testing.assert_close(*drawn, rtol=0, atol=1e-5)

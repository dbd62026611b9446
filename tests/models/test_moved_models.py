"""Models that have learned are moved to float32, as BoTorch's acquisitions move theirs, and go on learning."""

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
)
from bandits_torch.models import ArmGP, LeverageSampling, OnlineGP, SketchedGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from tests.reference.arm_gp_twins import smooth

N, NOISE, F64 = 6, 0.1, torch.float64
T0 = 1.7e9


def drifting():
    return SpatioTemporalKernel(ArmCovarianceKernel(smooth(N)), ExponentialForgettingKernel(0.05))


def cycling():
    cycle, drift = QuasiPeriodicKernel(7.0, memory=30.0, order=2), MaternTimeKernel(9.0)
    return SpatioTemporalKernel(ArmCovarianceKernel(smooth(N)), cycle + drift)


MODELS = {
    "drifting in states": lambda: ArmGP(N, cycling(), NOISE),
    "covariance": lambda: ArmGP(N, smooth(N), NOISE, form="covariance"),
    "factor": lambda: ArmGP(N, smooth(N), NOISE, form="factor"),
    "drifting covariance": lambda: ArmGP(N, drifting(), NOISE, form="covariance"),
    "drifting factor": lambda: ArmGP(N, drifting(), NOISE, form="factor"),
    "SketchedGP": lambda: SketchedGP(N, smooth(N), NOISE, sampling=LeverageSampling.practical(2.0, 2.0)),
    "SketchedGP without rows": lambda: SketchedGP(N, smooth(N), NOISE, chunk_size=4),
    "WeightedGP": lambda: WeightedGP(N, smooth(N), NOISE, discount=0.9),
    "OnlineGP": lambda: OnlineGP(ArmCovarianceKernel(smooth(N)), NOISE, input_dim=1),
}


def learn(model, steps, drifts, read):
    for step in steps:
        columns = [step * 5 % N, T0 + step][: 1 + drifts]
        Y = torch.tensor([[0.3 * (step % 4) - 0.4]])
        model.observe(torch.tensor([columns], dtype=F64), Y)
        if read and step % 3 == 0:
            said(model, drifts)


def said(model, drifts):
    X = torch.arange(N, dtype=F64).reshape(N, 1, 1)
    if drifts:
        X = torch.cat([X, torch.full_like(X, T0 + 60)], -1)
    with torch.no_grad():
        posterior = model.posterior(X)
    return torch.stack([posterior.mean.flatten(), posterior.variance.flatten()])


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_moved_to_float32_goes_on(name, read):
    moved, stays = MODELS[name](), MODELS[name]()
    drifts = name.startswith("drifting")
    for model in (moved, stays):
        learn(model, range(17), drifts, read)
    moved.float()
    for model in (moved, stays):
        learn(model, range(17, 40), drifts, read)
    answer = said(moved, drifts)
    assert answer.dtype == torch.float32
    torch.testing.assert_close(answer.double(), said(stays, drifts), rtol=0, atol=2e-5)


def test_what_was_placed_before_a_move_is_rewarded_after():
    moved, stays = MODELS["SketchedGP"](), MODELS["SketchedGP"]()
    for model in (moved, stays):
        learn(model, range(5), False, True)
        model.place(torch.tensor(3))
    moved.float()
    for model in (moved, stays):
        model.reward(torch.tensor([3]), torch.tensor([0.7]))
    torch.testing.assert_close(said(moved, False).double(), said(stays, False), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_an_acquisition_of_botorch_given_float32_leaves_a_model_that_goes_on(name):
    model, drifts = MODELS[name](), name.startswith("drifting")
    learn(model, range(9), drifts, False)
    X = torch.zeros(1, 1, 1 + drifts)
    if drifts:
        X[..., 1] = T0 + 256  # float32 keeps this one
    UpperConfidenceBound(model, beta=2.0)(X)
    learn(model, range(10, 12), drifts, False)
    assert torch.isfinite(said(model, drifts)).all()


def test_times_stay_exact_in_float32():
    model = MODELS["drifting factor"]()
    learn(model, range(3), True, False)
    model.float()
    assert model._belief.observations.time[0, :3].tolist() == [T0, T0 + 1, T0 + 2]

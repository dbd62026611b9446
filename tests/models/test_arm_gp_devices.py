"""Steps of ArmGP, and of policies over it, stay on their device and read nothing from it.

Tensors on PyTorch's meta device have no values: reading one is an error, and so is mixing them with others.
"""

import copy

import pytest
import torch

from bandits_torch import ArmGP, UpperConfidenceBound
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.policies import IndexPolicy, Observation, PeriodicRestart, SlidingWindow
from bandits_torch.theory import RestartWidth, SlidingWindowWidth
from tests.reference.arm_gp_twins import smooth

N, S, STEPS = 12, 3, 9  # so few that nothing has to be packed, which does read how much there is


def model_of(form, drift=None):
    kernel = ArmCovarianceKernel(smooth(N))
    if drift == "forgetting":
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(0.1))
    if drift == "wiener":
        kernel = SpatioTemporalKernel(kernel, WienerKernel(0.1))
    return ArmGP(N, kernel, 0.1, prior_mean=0.3, form=form, batch_shape=(S,))


def on_device(*values):
    return torch.tensor(values, device="meta")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("form", "drift"),
    [
        ("covariance", None),
        ("covariance", "forgetting"),
        ("covariance", "wiener"),
        ("factor", None),
        ("factor", "forgetting"),
        ("factor", "wiener"),
    ],
)
def test_steps_run_on_a_device_without_reading_from_it(form, drift, masked):
    model = model_of(form, drift).to("meta")
    where = on_device(True, False, True) if masked else None
    everyone = on_device(True, True, True)
    for step in range(STEPS):
        model.observe_arms(on_device(0, 1, 2), on_device(0.1, 0.2, 0.3).double(), float(step), where)
        if step >= 4 and model.can_forget:
            model.forget(1, everyone)
        posterior = model.posterior(model.candidates(step + 0.5))
        assert posterior.mean.shape == posterior.variance.shape == (N, S, 1, 1)
        mean, covariance = model.joint(step + 0.5)
        for value in (mean, covariance, model.information_gain, model.log_likelihood, model.num_observations):
            assert value.device.type == "meta"
    model.reset(where)


@pytest.mark.parametrize(
    ("rule", "width"),
    [(SlidingWindow(4), SlidingWindowWidth(horizon=100)), (PeriodicRestart(4), RestartWidth(horizon=100))],
)
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_a_policy_s_steps_run_on_a_device_without_reading_from_it(form, rule, width):
    policy = IndexPolicy(model_of(form), UpperConfidenceBound, width=width, forgetting=rule)
    policy.model.to("meta")
    policy.restarts = policy.restarts.to("meta")  # made on the model's device, had it been there at first
    mask = torch.ones(S, N, dtype=torch.bool, device="meta")
    for step in range(1, STEPS + 1):
        choice = policy.choose(float(step), mask if step % 2 else None)
        assert choice.arm.device.type == "meta"
        policy.learn(Observation(float(step), choice.arm, torch.zeros(S, device="meta").double()))
        assert all(value.device.type == "meta" for value in policy.trace().values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("drift", [None, "forgetting"])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_a_gpu_computes_what_a_cpu_computes(form, drift):
    cpu = model_of(form, drift)
    gpu = copy.deepcopy(cpu).to("cuda")
    for step in range(200):
        told = torch.randint(N, (S,)), torch.randn(S).double(), float(step), torch.rand(S) < 0.8
        cpu.observe_arms(*told)
        gpu.observe_arms(*(part if isinstance(part, float) else part.cuda() for part in told))
        if step > 50 and cpu.can_forget:
            one = torch.tensor([True, False, False])
            cpu.forget(1, one)
            gpu.forget(1, one.cuda())
    for value, expected in zip(gpu.joint(210.0), cpu.joint(210.0), strict=True):
        torch.testing.assert_close(value.cpu(), expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(gpu.information_gain.cpu(), cpu.information_gain, rtol=1e-8, atol=1e-8)

"""Captured steps on a GPU: one launch a block, nobody waits, and the plain run's choices."""

import pytest
import torch

from bandits_torch import run
from bandits_torch.captured.blocks import CudaGraphs, PlainCalls, launcher
from benchmarks.gpu.stepping import Stepper, ucb
from benchmarks.speed.saturation import host_waits
from tests.captured.test_captured_runs import CASES, HORIZON, REFUSED, averaging, built

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_cpu_gets_plain_calls():
    assert isinstance(launcher(torch.device("cpu")), PlainCalls)


@needs_gpu
@pytest.mark.parametrize("name", [name for name in CASES if name != REFUSED])
def test_a_run_in_cuda_graphs_chooses_as_the_plain_run_on_the_cpu(name):
    expected = run(*built(name), HORIZON, seed=7)
    policy, problem = built(name, device="cuda")
    history = run(policy, problem, HORIZON, seed=7, capture=8)
    assert torch.equal(history.arms, expected.arms)
    torch.testing.assert_close(history.rewards, expected.rewards)
    for row, value in expected.trace.items():
        torch.testing.assert_close(history.trace[row], value, rtol=1e-9, atol=1e-9, equal_nan=True)


@needs_gpu
@pytest.mark.parametrize("name", ["switching", "low rank"])
def test_auto_in_cuda_graphs_chooses_as_on_the_cpu(name):
    expected = run(*averaging(name), 80, seed=7)
    history = run(*averaging(name, device="cuda"), 80, seed=7, capture=True)
    assert torch.equal(history.arms, expected.arms)


@needs_gpu
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_graphs_are_captured_once_and_a_block_waits_for_nothing(form):
    policy, problem = ucb(60, 3, "cuda", form=form)
    stepper = Stepper(policy, problem, k=8)
    stepper.captured(200)
    assert isinstance(stepper.launch, CudaGraphs)
    assert stepper.launch.captured >= 1
    before = stepper.launch.captured
    waits = host_waits(lambda: stepper.captured(8), "cuda")
    if form == "covariance":
        assert stepper.launch.captured == before
        assert waits == 0

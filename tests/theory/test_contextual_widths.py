"""The width of CGP-UCB: its value, and how often it fails to cover draws of the prior under chosen contexts."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmContext, OnlineGP, recipes
from bandits_torch.policies import Observation
from bandits_torch.theory import CGPUCBWidth, SrinivasBayesianWidth


def test_it_is_the_formula_over_pairs() -> None:
    model = OnlineGP(RBFKernel().double(), 0.1, input_dim=1)
    width = CGPUCBWidth(20, 40, 0.1)
    for step in (1, 7, 2000):
        expected = math.sqrt(2 * math.log(20 * 40 * step**2 * math.pi**2 / (6 * 0.1)))
        assert float(width(step, model)) == pytest.approx(expected, rel=1e-12)
        assert float(CGPUCBWidth(20, 1, 0.1)(step, model)) == float(
            SrinivasBayesianWidth(20, 0.1)(step, model)
        )


@pytest.mark.parametrize("nature", ["random", "where it has failed"])
def test_it_covers_at_all_pairs_even_where_contexts_are_chosen_against_it(nature) -> None:
    """400 draws over 4 arms x 5 contexts, delta .5, 25 steps: shares of draws with any failure at any pair. An
    adversary shows, at every step, the context of the largest error in standard deviations."""
    S, N, M, T, delta, noise = 400, 4, 5, 25, 0.5, 0.25
    draw = torch.Generator().manual_seed(0)
    arms, contexts = torch.rand(N, 1, generator=draw).double(), torch.rand(M, 1, generator=draw).double()
    kernel, width = RBFKernel().double(), CGPUCBWidth(N, M, delta)
    kernel.lengthscale = torch.tensor(0.3).double()
    pairs = torch.cat([arms.repeat_interleave(M, 0), contexts.repeat(N, 1)], -1)
    K = kernel(pairs[:, :1]).to_dense() * kernel(pairs[:, 1:]).to_dense()
    root = torch.linalg.cholesky(K.detach() + 1e-10 * torch.eye(N * M).double())
    f = torch.randn(S, N * M, generator=draw, dtype=torch.float64) @ root.T
    options = {"context_dim": 1, "context_kernel": kernel, "num_contexts": M, "delta": delta, "replicates": S}
    policy = recipes.cgp_ucb(arms, kernel, noise, **options)
    failed, narrow = torch.zeros(S, dtype=torch.bool), torch.zeros(S, dtype=torch.bool)
    for step in range(1, T + 1):
        moments = [policy.marginals(float(step), ArmContext(z)) for z in contexts]
        mean, deviation = (torch.stack(parts, -1).flatten(1) for parts in zip(*moments, strict=True))
        ratio = (f - mean).abs() / deviation.sqrt()
        failed |= (ratio > width(step, policy.model)).any(-1)
        narrow |= (ratio > 0.4 * width(step, policy.model)).any(-1)
        worst = ratio.reshape(S, N, M).amax(1).argmax(-1)
        number = worst if nature != "random" else torch.randint(M, (S,), generator=draw)
        choice = policy.choose(float(step), ArmContext(contexts[number]))
        reward = f[torch.arange(S), choice.arm * M + number]
        reward = reward + noise**0.5 * torch.randn(S, generator=draw, dtype=torch.float64)
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    assert failed.double().mean() <= delta
    assert narrow.double().mean() > delta  # or the test sees nothing

"""How often the elimination test of PE-GP-UCB rejects the only prior, which is the true one."""

import math

import torch
from torch import Tensor

from tests.reference.simulate_coverage import CovarianceGP, draws_of


def rejected(
    covariance: Tensor,
    noise_scale: float,
    steps: int,
    runs: int,
    delta: float,
    *,
    sigma_after: bool,
    seed: int = 0,
) -> Tensor:
    """Whether |sum eta_i| > sqrt(xi_t t) + sum width_i sigma_i at some step t, (runs,).

    f is a draw of GP(0, covariance); each run plays argmax mu + width sigma with the width of their theorem.

    Args:
        sigma_after: sigma_i is the deviation at the arm after its observation, as printed; else before.
    """
    generator = torch.Generator().manual_seed(seed)
    arms, run = len(covariance), torch.arange(runs)
    f = draws_of(covariance, generator, runs)
    model = CovarianceGP(covariance, noise_scale**2, runs)
    error, bound = torch.zeros(runs, dtype=torch.float64), torch.zeros(runs, dtype=torch.float64)
    fired = torch.zeros(runs, dtype=torch.bool)
    for t in range(1, steps + 1):
        width = math.sqrt(2 * math.log(steps * arms * math.pi**2 * t**2 / (3 * delta)))
        arm = (model.mean + width * model.sigma).argmax(-1)
        before = model.sigma[run, arm]
        reward = f[run, arm] + noise_scale * torch.randn(runs, generator=generator, dtype=torch.float64)
        error += reward - model.mean[run, arm]
        model.observe(arm, reward)
        bound += width * (model.sigma[run, arm] if sigma_after else before)
        xi = 2 * noise_scale**2 * math.log(2 * math.pi**2 * t**2 / (3 * delta))
        fired |= error.abs() > math.sqrt(xi * t) + bound
    return fired

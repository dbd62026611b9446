"""A function with one tall hill among short ones, and a candidate prior for every place it may be."""

from __future__ import annotations

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.candidate_prior import CandidatePrior
from bandits_torch.problems.problem import Knowledge, per_replicate
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import (
    SMALLEST_RIDGE,
    covariance,
    covariance_root,
    gp_draws,
    place_arms,
    problem_streams,
    regularised_norm,
)
from bandits_torch.problems.synthetic import StationaryProblem

_ROUNDING = 1e-9  # of distances between arms and hills, so that both ends of a region count


@named("hills", stationary=True)
class Hills(StationaryProblem):
    """Find the tall hill: draws of one of eleven Gaussian-process priors whose means differ in one hill.

    The toy problem of Ziomek et al. (2024), section 7. Hill h of ten stands at (h - 1)/10 on [0, 1]; prior 0
    has ten short hills, prior n its n-th tall, and all share the kernel amplitude exp(-|x - x'|^2 / (2 l)), with
    l where l^2 is usual. The truth is a draw from prior 2. At odd steps all arms are available, at even steps
    those farther than ``excluded`` from the top of the true tall hill.

    The paper does not give the heights, the hills' shape and width, l, the noise, the arms and the excluded region.
    With the defaults, a hill's height shows only on the hill itself, as the paper's results require. Hills of width
    0.015 or 0.02 reach the neighbouring tops, where even 1e-10 of their height identifies the prior without a visit
    (benchmarks/papers: sensitivity table).

    Known beforehand: the eleven priors and the noise variance R^2, but not which prior is true. The prior mean
    is the average over the priors, and B the norm of the draw's fit about it.

    Args:
        short, tall: heights of the hills, in units of reward.
        hill_width: standard deviation w of a hill exp(-(x - c)^2 / (2 w^2)).
        amplitude: prior variance of the function about its mean.
        squared_lengthscale: l.
        excluded: half-width of the region that is unavailable at even steps.
        true_prior: number of the prior that functions are drawn from, 1 to 10.
        noise_scale: R.
        num_arms: N, an even grid of [0, 1]; 101 puts an arm on every top.
        replicates, seed, first_replicate: as for ``GPDraws``.

    Raises ValueError unless ``true_prior`` is in 1, ..., 10, ``noise_scale`` and ``hill_width`` > 0, and ``excluded``
    >= 0 leaves an arm.
    """

    def __init__(
        self,
        *,
        short: float = 1.0,
        tall: float = 3.0,
        hill_width: float = 0.01,
        amplitude: float = 1.0,
        squared_lengthscale: float = 0.5,
        excluded: float = 0.05,
        true_prior: int = 2,
        noise_scale: float = 0.01,
        num_arms: int = 101,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        inside = 1 <= validation.positive_integer("true_prior", true_prior) <= 10
        validation.require(inside, "true_prior", true_prior, "an integer in 1, ..., 10")
        validation.positive("noise_scale", noise_scale)
        validation.non_negative("excluded", excluded)
        arms, kernel = place_arms("grid", num_arms, 1, seed), _kernel(amplitude, squared_lengthscale)
        tops = torch.arange(10, dtype=torch.float64) / 10
        priors = [
            CandidatePrior(kernel, mean, name=f"hill {n} tall" if n else "no hill tall")
            for n, mean in enumerate(
                _means(arms, tops, short, tall, validation.positive("hill_width", hill_width))
            )
        ]
        K, streams = covariance(kernel, arms), problem_streams(seed, replicates, first_replicate)
        draws = gp_draws(covariance_root(K), streams.normal(num_arms))
        self.true_prior = priors[true_prior]
        super().__init__(arms, draws + self.true_prior.mean, noise_scale)
        self._outside = (arms.squeeze(-1) - tops[true_prior - 1]).abs() > excluded + _ROUNDING
        validation.require(bool(self._outside.any()), "excluded", excluded, "small enough to leave an arm")
        average = torch.stack([torch.as_tensor(prior.mean) for prior in priors]).mean(0)
        norm = regularised_norm(K, self.functions - average, max(noise_scale**2, SMALLEST_RIDGE))
        self.knowledge = Knowledge(
            kernel=kernel,
            noise_variance=float(noise_scale) ** 2,
            prior_mean=average,
            rkhs_bound=per_replicate(norm),
            forgetting_rate=0.0,
            variation_budget=0.0,
            rkhs_variation_budget=0.0,
            priors=priors,
        )

    def available(self, step: int) -> Tensor | None:
        """None (all arms) at odd steps, a mask (N,) without the true tall hill at even ones."""
        self.check_step(step)
        return None if step % 2 else self._outside


def _kernel(amplitude: float, squared_lengthscale: float) -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = validation.positive("amplitude", amplitude)
    kernel.base_kernel.lengthscale = validation.positive("squared_lengthscale", squared_lengthscale) ** 0.5
    return kernel.requires_grad_(False)


def _means(arms: Tensor, tops: Tensor, short: float, tall: float, width: float) -> Tensor:
    """Prior means (1 + hills, N): all hills short, then each of them tall."""
    validation.finite_number("short", short)
    validation.finite_number("tall", tall)
    bumps = torch.exp(-((arms - tops) ** 2) / (2 * width**2))  # N x hills
    heights = torch.full((len(tops) + 1, len(tops)), float(short), dtype=arms.dtype)
    heights[1:].fill_diagonal_(float(tall))
    return heights @ bumps.mT

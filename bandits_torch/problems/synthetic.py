"""Functions that stay as they are: draws of a Gaussian process and members of its RKHS."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.problem import Knowledge, per_replicate
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import (
    SimulatedProblem,
    covariance,
    covariance_root,
    gp_draws,
    make_kernel,
    place_arms,
    problem_streams,
    range_noise_scale,
)


class StationaryProblem(SimulatedProblem):
    """Reward functions that never change.

    Args:
        arms: (N, d).
        functions: (replicates, N), the expected rewards.
        noise_scale: R, a number or (replicates,).

    Raises ValueError for arms or functions of another shape, or that are not finite.
    """

    def __init__(self, arms: Tensor, functions: Tensor, noise_scale: float | Tensor) -> None:
        validation.rewards("functions", functions)
        validation.shape_is("arms", arms, isinstance(arms, Tensor) and arms.dim() == 2, "(N, d)")
        ok = functions.dim() == 2 and functions.shape[-1] == arms.shape[0]
        validation.shape_is("functions", functions, ok, "(replicates, N), a number for each of the N arms")
        super().__init__(arms, len(functions), noise_scale)
        self.functions = functions

    def expected_rewards(self, step: int) -> Tensor:
        """The functions (replicates, N): the same tensor at every step."""
        self.check_step(step)
        return self.functions


@named("gp", stationary=True, random=True)
class GPDraws(StationaryProblem):
    """Draws of a Gaussian process, f ~ GP(0, k), on a finite set of arms.

    The second experiment of Chowdhury & Gopalan (2017), section 6: 100 points uniform in [0, 1], squared
    exponential or Matern 5/2 kernel of lengthscale 0.2, R^2 = 1 % of each function's range.

    Known beforehand: the kernel, noise variance R^2, B = the RKHS norm of the draw on the arms.

    Args:
        kernel: ``"se"`` or ``"matern"``; ``nu`` is the smoothness of the latter.
        lengthscale: of the kernel, in units of the arms' features.
        num_arms, dim, layout: N, d and the placement of the arms (see ``place_arms``).
        noise_scale: R; None: R^2 = 1 % of each function's range (max - min).
        replicates, seed, first_replicate: replicate ``first_replicate + k`` of a seed is always the same
            function; all replicates share their arms.
    """

    def __init__(
        self,
        *,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        num_arms: int = 100,
        dim: int = 1,
        layout: str = "uniform",
        noise_scale: float | None = None,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        arms, k = place_arms(layout, num_arms, dim, seed), make_kernel(kernel, lengthscale, nu)
        root = covariance_root(covariance(k, arms))
        weights = problem_streams(seed, replicates, first_replicate).normal(num_arms)
        functions = gp_draws(root, weights)
        super().__init__(arms, functions, range_noise_scale(functions, noise_scale))
        self.knowledge = stationary_knowledge(self, k, weights[:, : root.shape[1]].norm(dim=-1))


@named("rkhs", random=True, stationary=True)
class RKHSFunctions(StationaryProblem):
    """Functions of known RKHS norm: posterior means of a Gaussian process given a noisy sample of a draw.

    The first experiment of Chowdhury & Gopalan (2017), section 6: draw y on the arms, then take the posterior
    mean f = K alpha, alpha = (K + s I)^{-1} y. The paper does not give the posterior's noise variance s; here y
    is a draw of the process plus noise of variance s = ``sample_noise``. Its RKHS norm is
    B = sqrt(alpha^T K alpha) (the paper prints B^2 = f^T K f; f^T K^{-1} f is meant, and equals this).

    Known beforehand: the kernel, noise variance R^2, B exactly.

    Args:
        sample_noise: s, in squared units of reward.
        kernel, lengthscale, nu, num_arms, dim, layout, noise_scale, replicates, seed, first_replicate: as for
            ``GPDraws``.

    Raises ValueError unless ``sample_noise`` > 0.
    """

    def __init__(
        self,
        *,
        sample_noise: float = 0.01,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        num_arms: int = 100,
        dim: int = 1,
        layout: str = "uniform",
        noise_scale: float | None = None,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.positive("sample_noise", sample_noise)
        arms, k = place_arms(layout, num_arms, dim, seed), make_kernel(kernel, lengthscale, nu)
        K, streams = covariance(k, arms), problem_streams(seed, replicates, first_replicate)
        draws = gp_draws(covariance_root(K), streams.normal(num_arms))
        samples = draws + sample_noise**0.5 * streams.normal(num_arms)
        factor = torch.linalg.cholesky(K + sample_noise * torch.eye(num_arms, dtype=K.dtype))
        alpha = torch.stack([torch.cholesky_solve(y.unsqueeze(-1), factor).squeeze(-1) for y in samples])
        functions = torch.stack([K @ a for a in alpha])
        super().__init__(arms, functions, range_noise_scale(functions, noise_scale))
        self.representer_weights = alpha
        self.knowledge = stationary_knowledge(self, k, (alpha * functions).sum(-1).sqrt())


def stationary_knowledge(problem: SimulatedProblem, kernel: torch.nn.Module, norms: Tensor) -> Knowledge:
    """Knowledge of functions that never change: no forgetting, no variation, B = ``norms`` (replicates,)."""
    return Knowledge(
        kernel=kernel,
        noise_variance=per_replicate(problem.noise_scale**2),
        rkhs_bound=per_replicate(norms),
        forgetting_rate=0.0,
        variation_budget=0.0,
        rkhs_variation_budget=0.0,
    )

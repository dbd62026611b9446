"""Gaussian-process draws over arm x context: which arm is best depends on the context of the step."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.problems.problem import Knowledge
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import (
    SimulatedProblem,
    covariance,
    covariance_root,
    gp_draws,
    make_kernel,
    place_arms,
    problem_streams,
)
from bandits_torch.problems.tv_gp import DriftingPath, likely_norm

_CONTEXTS_AHEAD = 1024  # contexts are drawn in blocks of so many steps
_CONTEXTS = 7  # keeps their seeds apart from those of ``ReplicateStreams``


@named("contextual-gp", random=True)
class ContextualGPDraws(SimulatedProblem):
    """Draws over arm x context, Cov = k(x, x') h(z, z') (1 - eps)^{|t - t'|/2}; each step has one of M contexts.

    The simulated setting of Krause & Ong (2011, section 6), with drift. Contexts are points drawn uniformly on
    [0, 1]^c once, and one of them at every step, uniformly and independently of the rewards, the same in all
    replicates; ``available`` gives it as an ``ArmContext``. Functions are drawn exactly, from the roots of both
    covariances.

    Known beforehand: both kernels, c, the noise variance R^2, eps, and a bound on the RKHS norm over arm x context at
    all steps (up to ``horizon``, or 10 000) with probability 0.9, as for ``TVGPDraws``.

    Args:
        num_contexts: M.
        context_dim: c.
        context_lengthscale: of h, a squared exponential kernel or a Matern kernel, as ``kernel`` says.
        forgetting_rate: eps per step, in [0, 1); 0 for functions that do not change.
        horizon: the last step, None for no end.
        noise_scale: R; 0.1 against functions of standard deviation 1.
        kernel, lengthscale, nu, num_arms, dim, layout, replicates, seed, first_replicate: as for ``GPDraws``.

    Cost: O((N M)^2) a step with drift, O(N) without. Raises ValueError for a ``forgetting_rate`` outside [0, 1),
    ``noise_scale`` < 0, and numbers below 1.
    """

    def __init__(
        self,
        *,
        num_contexts: int = 40,
        context_dim: int = 1,
        context_lengthscale: float = 0.2,
        forgetting_rate: float = 0.0,
        horizon: int | None = None,
        noise_scale: float = 0.1,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        num_arms: int = 20,
        dim: int = 1,
        layout: str = "uniform",
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.positive_integer("num_contexts", num_contexts)
        validation.positive_integer("context_dim", context_dim)
        if validation.finite_number("forgetting_rate", forgetting_rate) != 0:
            validation.probability("forgetting_rate", forgetting_rate)
        validation.positive("context_lengthscale", context_lengthscale)
        validation.non_negative("noise_scale", noise_scale)
        if horizon is not None:
            validation.positive_integer("horizon", horizon)
        arms, k = place_arms(layout, num_arms, dim, seed), make_kernel(kernel, lengthscale, nu)
        super().__init__(arms, replicates, noise_scale, horizon)
        h = make_kernel(kernel, context_lengthscale, nu)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_CONTEXTS,)))
        self.contexts = torch.from_numpy(rng.uniform(size=(num_contexts, context_dim)))
        self._seed, self._ahead = seed, (-1, [0])  # block, its contexts
        root = torch.kron(covariance_root(covariance(k, arms)), covariance_root(covariance(h, self.contexts)))
        source = (seed, replicates, first_replicate)
        self._drifting = DriftingPath(root, forgetting_rate, source) if forgetting_rate > 0 else None
        self._pairs = gp_draws(root, problem_streams(*source).normal(len(root)))  # replicates x N M
        self.knowledge = Knowledge(
            kernel=k,
            noise_variance=float(noise_scale) ** 2,
            rkhs_bound=likely_norm(root.shape[1], horizon),
            forgetting_rate=forgetting_rate,
            context_dim=context_dim,
            context_kernel=h,
        )

    def context_of(self, step: int) -> int:
        """The number, 0 to M - 1, of the context of a step."""
        self.check_step(step)
        block, place = divmod(step - 1, _CONTEXTS_AHEAD)
        if self._ahead[0] != block:
            sequence = np.random.SeedSequence(self._seed, spawn_key=(_CONTEXTS, block))
            drawn = np.random.default_rng(sequence).integers(len(self.contexts), size=_CONTEXTS_AHEAD)
            self._ahead = block, drawn.tolist()
        return self._ahead[1][place]

    def available(self, step: int) -> ArmContext:
        """The context of the step, for all arms."""
        return ArmContext(self.contexts[self.context_of(step)])

    def expected_rewards(self, step: int) -> Tensor:
        """f_step under the context of the step, (replicates, N)."""
        number = self.context_of(step)
        pairs = self._pairs if self._drifting is None else self._drifting.at(step, self.arms)
        return pairs.reshape(self.replicates, self.num_arms, -1)[..., number].clone()

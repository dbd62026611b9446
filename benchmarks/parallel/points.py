"""The simulated problems over arms, over points: draws of a Gaussian process that stand still, switch or drift."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bandits_torch import Domain
from bandits_torch.problems import ContinuousProblem
from bandits_torch.problems.problem import Knowledge

_FEATURES, _LENGTHSCALE, _NOISE, _RATE, _SIDE = 256, 0.2, 0.1, 0.03, 64


class PointDraws(ContinuousProblem):
    """f(x, t) = phi(x)^T w(t) on the unit square, phi random Fourier features of a squared exponential kernel.

    ``kind``: ``"gp"``, w stays; ``"switching"``, w is drawn anew four times in the horizon; ``"tv-gp"``, w is an
    autoregression of rate ``drift``. The best value of a step is that of a grid of 64 x 64 points.
    """

    functions_differ = True

    def __init__(self, kind: str, horizon: int, replicates: int, seed: int, drift: float = _RATE) -> None:
        domain = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
        super().__init__(domain, replicates, _NOISE, horizon)
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self._frequencies = normal(replicates, 2, _FEATURES // 2) / _LENGTHSCALE
        weights = [normal(replicates, _FEATURES)]
        for step in range(1, horizon):
            fresh = normal(replicates, _FEATURES)
            if kind == "gp":
                weights.append(weights[0])
            elif kind == "switching":
                weights.append(fresh if step % math.ceil(horizon / 5) == 0 else weights[-1])
            else:
                weights.append(math.sqrt(1 - drift) * weights[-1] + math.sqrt(drift) * fresh)
        self._weights = torch.stack(weights)
        line = torch.linspace(0, 1, _SIDE).double()
        self.grid = torch.cartesian_prod(line, line)
        self._grid = self._phi(self.grid.unsqueeze(1))  # one row for each point and replicate
        kernel = RBFKernel().double()
        kernel.lengthscale = _LENGTHSCALE
        rate = {"gp": 0.0, "switching": 5 / horizon, "tv-gp": drift}[kind]
        self.knowledge = Knowledge(kernel=kernel, noise_variance=_NOISE**2, forgetting_rate=rate)

    def expected(self, step: int, X: Tensor) -> Tensor:
        """See ``ContinuousProblem``."""
        return (self._phi(X) * self._weights[step - 1]).sum(-1)

    def best(self, step: int) -> Tensor:
        """See ``ContinuousProblem``."""
        return self.on_grid(step).amax(-1)

    def on_grid(self, step: int) -> Tensor:
        """f_step at the points of the grid, (S, n)."""
        return (self._grid * self._weights[step - 1]).sum(-1).mT

    def _phi(self, X: Tensor) -> Tensor:
        angle = (X.unsqueeze(-2) @ self._frequencies).squeeze(-2)
        return torch.cat([angle.cos(), angle.sin()], -1) / math.sqrt(_FEATURES // 2)

"""The neural tangent kernel of a fully connected ReLU network of infinite width."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
class NeuralTangentKernel(Kernel):
    """H(x, x') = lim <grad f(x), grad f(x')> / m for f = sqrt(m) W_L relu(W_{L-1} ... relu(W_1 x)), weights N(0, 2/m).

    With S_0 = x^T x', n = |x| |x'|, t_l = arccos(S_l / n) and l = 0, ..., L - 2,

        S_{l+1} = n (sin t_l + (pi - t_l) cos t_l) / pi,     H_{l+1} = H_l (pi - t_l) / pi + S_{l+1},   H_0 = S_0,

    (Jacot et al. 2018; arc-cosine kernels of Cho & Saul 2009). H(x, x) = L |x|^2: for a bound of 1 on the unit
    sphere set ``normalise``. The network has no biases, so H is homogeneous: scale the inputs to similar norms.

    Args:
        depth: L, number of weight matrices, >= 1; 1 gives the linear kernel.
        normalise: divide by L.

    Cost O(L n m) for n and m inputs.

    Raises ValueError for a ``depth`` below 1.
    """

    is_stationary = False

    def __init__(self, depth: int = 3, normalise: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.depth = validation.positive_integer("depth", depth)
        self.normalise = normalise

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """H between two sets of inputs, ``... x n x m`` (``... x n`` with ``diag``)."""
        first, second = x1.norm(dim=-1), x2.norm(dim=-1)
        if diag:
            inner, scale = (x1 * x2).sum(-1), first * second
        else:
            inner, scale = x1 @ x2.mT, first.unsqueeze(-1) * second.unsqueeze(-2)
        covariance = tangent = inner
        for _ in range(self.depth - 1):
            cosine = (covariance / scale.clamp_min(1e-300)).clamp(-1.0, 1.0)
            angle = torch.arccos(cosine)
            share = (math.pi - angle) / math.pi
            covariance = scale * ((1 - cosine.square()).clamp_min(0.0).sqrt() / math.pi + share * cosine)
            tangent = tangent * share + covariance
        return tangent / self.depth if self.normalise else tangent

"""Inverse propensity score (IPS) estimates of all arms' rewards from randomly drawn arms.

Hong, Li & Tewari (2023), Definition 4.1: with P the distribution x_t was drawn from,

    R^_t(x) = phi(x)^T S(P, sigma/T)^{-1} phi(x_t) y_t = M(P)[x, x_t] y_t,      M = phi S^{-1} phi^T.

Each step has its own estimate, so a change of the rewards does not bias the estimates of other steps. The mean is
r - (sigma/T) phi^T S^{-1} theta for r = phi theta: the bias vanishes with the ridge sigma/T. Its variance is
at most the leverage M(P)[x, x] when |y| <= 1 (Lemma 4.3).
"""

from __future__ import annotations

from torch import Tensor

from bandits_torch import validation
from bandits_torch.theory.design_solvers import whitened


def propensity_matrix(features: Tensor, probabilities: Tensor, ridge: float) -> Tensor:
    """M(P) = phi S(P, r)^{-1} phi^T, (..., N, N), from features (..., N, p) and P (..., N). O(N p^2 + N^2 p).

    P is ``probabilities``. Raises ValueError unless there is one per arm and ``ridge`` > 0.

    Source: Hong, Li & Tewari 2023, Definition 4.1.
    """
    validation.positive("ridge", ridge)
    validation.finite_tensor("features", features)
    validation.shape_is("features", features, features.dim() >= 2 and features.shape[-2] > 0, "(..., N, p)")
    validation.finite_tensor("probabilities", probabilities)
    ok = probabilities.dim() >= 1 and probabilities.shape[-1] == features.shape[-2]
    validation.shape_is("probabilities", probabilities, ok, f"(..., {features.shape[-2]}), one per arm")
    V, _ = whitened(features, probabilities, ridge)
    return V.mT @ V


def estimated_gaps(estimates: Tensor) -> Tensor:
    """max_x' R^(x') - R^(x), (..., N).

    Source: Hong, Li & Tewari 2023, Algorithm 2. Raises ValueError for anything but a tensor.
    """
    validation.tensor("estimates", estimates)
    return estimates.amax(-1, keepdim=True) - estimates

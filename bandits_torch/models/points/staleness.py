"""What the oldest observations can still change under exponential forgetting, and how much is lost without them."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.algebra.rank_one import solve_transposed
from bandits_torch.models.points.online_gp import OnlineGP


def space_and_time(kernel: Kernel) -> SpatioTemporalKernel | None:
    """The product of space and time in a kernel that is one, or a multiple of one; None for another."""
    inner = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    return inner if isinstance(inner, SpatioTemporalKernel) else None


def time_kernel_of(model: OnlineGP) -> Any:
    """The kernel over time of a model that has one."""
    parts = space_and_time(model.kernel)
    assert parts is not None
    return parts.time_kernel


def check_forgets_exponentially(model: OnlineGP) -> None:
    """Raise ValueError unless the model is an ``OnlineGP`` over k_S times exponential forgetting."""
    validation.instance("model", model, OnlineGP, "an OnlineGP")
    parts = space_and_time(model.kernel)
    fits = parts is not None and isinstance(parts.time_kernel, ExponentialForgettingKernel)
    expected = "a SpatioTemporalKernel with an ExponentialForgettingKernel over time"
    validation.require(fits, "model.kernel", model.kernel, expected)


def kept_over(model: OnlineGP, before: Tensor, after: Tensor) -> Tensor:
    """rho, the correlation over time between two moments, (S, ...) each, in the model's dtype."""
    return time_kernel_of(model).covariance(before, after).to(model.noise_variance)


@torch.no_grad()
def loss_of_oldest(model: OnlineGP, count: int, now: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds (l, b), ``batch_shape`` each, on what the ``count`` oldest observations still tell at ``now``.

    With P and P' the posterior covariances of f(., now) with and without them, e the difference of the means,

        |e(x)| <= l sqrt(P'(x, x)),    (1 - b) P' <= P <= P'    (as operators: for every linear functional).

    Let A = K + lambda I over all that are held, O those to go, C = A^{-1}_{., O}, alpha = A^{-1} (y - m) and
    r_i = rho(now - t_i). Without O the weights change by d = C (A^{-1}_{OO})^{-1} alpha_O, and P' - P is
    F (A^{-1}_{OO})^{-1} F^T with the functions F = k_S(., X) diag(r) C (block inversion), so e = F (A^{-1}_{OO})^{-1}
    alpha_O. Given f(., now), the observations that stay are its values times r and noise of covariance N = lambda I +
    k_S o (rho(|t_i - t_j|) - r_i r_j) >= lambda I (Markov; Schur), so P'^{-1} = k_S^{-1} + (r h)^T N^{-1} (r h) and

        F^T P'^{-1} F <= G = (r C)^T K_S (r C) + V^T V / lambda,    V = r_i F(x_i) at those that stay,
        l^2 = alpha_O^T (A^{-1}_{OO})^{-1} G (A^{-1}_{OO})^{-1} alpha_O,    b = tr((A^{-1}_{OO})^{-1} G).

    ``now``: (S,) or one, not before any observation held. Infinite for members that hold fewer than ``count``. Source:
    derived here, from Rasmussen & Williams 2006, equations 2.25-2.26. Cost: O(n^2 count + n^2 d).
    """
    if model.data.ragged:
        model.data.compact()
    rows, noise = model.data.rows(), model.noise_variance[..., None, None]
    if model.data.size < count:
        infinite = rows.targets.new_full(model.batch_shape, torch.inf)
        return infinite, infinite
    unit = torch.eye(model.data.size, count, dtype=rows.corner.dtype, device=rows.corner.device)
    whitened = solve_transposed(rows.corner, unit.expand(*rows.corner.shape[:-1], count))
    C = torch.linalg.solve_triangular(rows.corner, whitened, upper=True)
    alpha = torch.linalg.solve_triangular(rows.corner, rows.whitened.unsqueeze(-1), upper=True)
    held = rows.held.unsqueeze(-1)
    r = kept_over(model, rows.inputs[..., -1], now.unsqueeze(-1)).unsqueeze(-1) * held
    places = torch.cat([rows.inputs[..., :-1], torch.zeros_like(rows.inputs[..., -1:])], -1)
    weights = r * C
    F = model._prior.covariance(places, places) @ weights
    V = (r * F)[..., count:, :]
    G = weights.mT @ F + V.mT @ V / noise
    corner = torch.linalg.cholesky(C[..., :count, :])
    T = torch.cholesky_solve(alpha[..., :count, :], corner)
    mean = (T.mT @ G @ T).clamp_min(0.0).sqrt()[..., 0, 0]
    variance = torch.cholesky_solve(G, corner).diagonal(dim1=-2, dim2=-1).sum(-1)
    enough = rows.held.sum(-1) >= count
    mean, variance = (torch.where(enough, b, torch.inf).expand(model.batch_shape) for b in (mean, variance))
    return mean, variance

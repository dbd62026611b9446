"""Forgetting rules that drop the observations with the least influence on later predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import scipy.special
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.kernels.composed import unscaled
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.forgetting import ForgettingRule

_NODES = 8  # of Gauss-Laguerre quadrature: exact for all of GPyTorch's Matern kernels over time


def space_and_time(kernel: Kernel) -> SpatioTemporalKernel | None:
    """The kernel itself, or the base kernel of a ``ScaleKernel``, if it is a ``SpatioTemporalKernel``; else None."""
    inner, _ = unscaled(kernel)
    return inner if isinstance(inner, SpatioTemporalKernel) else None


def time_kernel_of(model: OnlineGP) -> Any:
    """The kernel over time of a model that has one."""
    parts = space_and_time(model.kernel)
    assert parts is not None
    return parts.time_kernel


def kept_over(model: OnlineGP, before: Tensor, after: Tensor) -> Tensor:
    """rho, the correlation over time between two moments, (S, ...) each, in the model's dtype."""
    return time_kernel_of(model).covariance(before, after).to(model.noise_variance)


@torch.no_grad()
def loss_of_oldest(model: OnlineGP, count: int, now: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds (l, b), ``batch_shape`` each, on how much the ``count`` oldest observations change the posterior at
    ``now``.

    With P and P' the posterior covariances of f(., now) with and without them, and e the difference of the means,

        |e(x)| <= l sqrt(P'(x, x)),    (1 - b) P' <= P <= P'    (as operators: for every linear functional).

    Let A = K + lambda I over all observations held, O those to drop, C = A^{-1}_{., O}, alpha = A^{-1} (y - m) and
    r_i = rho(now - t_i). Without O the weights change by d = C (A^{-1}_{OO})^{-1} alpha_O, and P' - P is
    F (A^{-1}_{OO})^{-1} F^T with the functions F = k_S(., X) diag(r) C (block inversion), so e = F (A^{-1}_{OO})^{-1}
    alpha_O. Given f(., now), the remaining observations are its values times r plus noise of covariance N = lambda I +
    k_S o (rho(|t_i - t_j|) - r_i r_j) >= lambda I (Markov; Schur), so P'^{-1} = k_S^{-1} + (r h)^T N^{-1} (r h) and

        F^T P'^{-1} F <= G = (r C)^T K_S (r C) + V^T V / lambda,    V = r_i F(x_i) at the remaining observations,
        l^2 = alpha_O^T (A^{-1}_{OO})^{-1} G (A^{-1}_{OO})^{-1} alpha_O,    b = tr((A^{-1}_{OO})^{-1} G).

    ``now``: (S,) or one, not before any observation held. Both bounds are infinite for members that hold fewer than
    ``count`` observations. Source: derived here, from Rasmussen & Williams 2006, equations 2.25-2.26. Cost:
    O(n^2 count + n^2 d).
    """
    if model.data.ragged:
        model.data.compact()
    rows, noise = model.data.rows(), model.noise_variance[..., None, None]
    if model.data.size < count:
        infinite = rows.targets.new_full(model.batch_shape, torch.inf)
        return infinite, infinite
    unit = torch.eye(model.data.size, count, dtype=rows.corner.dtype, device=rows.corner.device)
    C = torch.cholesky_solve(unit.expand(*rows.corner.shape[:-1], count), rows.corner, upper=True)
    alpha = torch.linalg.solve_triangular(rows.corner, rows.whitened.unsqueeze(-1), upper=True)
    held = rows.held.unsqueeze(-1)
    r = kept_over(model, rows.inputs[..., -1], now.unsqueeze(-1)).unsqueeze(-1) * held
    places = torch.cat([rows.inputs[..., :-1], torch.zeros_like(rows.inputs[..., -1:])], -1)
    weights = r * C
    F = model.prior.covariance(places, places) @ weights
    V = (r * F)[..., count:, :]
    G = weights.mT @ F + V.mT @ V / noise
    corner = torch.linalg.cholesky(C[..., :count, :])
    T = torch.cholesky_solve(alpha[..., :count, :], corner)
    mean = (T.mT @ G @ T).clamp_min(0.0).sqrt()[..., 0, 0]
    variance = torch.cholesky_solve(G, corner).diagonal(dim1=-2, dim2=-1).sum(-1)
    enough = rows.held.sum(-1) >= count
    mean, variance = (torch.where(enough, b, torch.inf).expand(model.batch_shape) for b in (mean, variance))
    return mean, variance


@torch.no_grad()
def relevance(model: OnlineGP, now: Tensor) -> Tensor:
    """R_i of every observation held, (S, n): its effect on the posterior, relative to the effect of all observations.

    With D the observations held, and W the 2-Wasserstein distance between the normal marginals of two posteriors,
    integrated over all of space and all times from ``now`` onwards,

        R_i = W(D, D without i) / W(D, nothing).

    Both distances are replaced by their upper bounds from (sigma - sigma')^2 <= |sigma^2 - sigma'^2|. With
    A = K + lambda I, alpha = A^{-1} (y - m) and C_ij = integral of k((x, t), z_i) k((x, t), z_j), removing i changes
    mean and variance by alpha_i / A^{-1}_{ii} and 1 / A^{-1}_{ii} times sums over A^{-1}_{.i}, so

        W(D, D without i)^2 = (alpha_i^2 / (A^{-1}_{ii})^2 + 1 / A^{-1}_{ii}) (A^{-1} C A^{-1})_{ii},
        W(D, nothing)^2 = alpha^T C alpha + tr(A^{-1} C).

    C is a product of convolutions: over space a kernel of the same family, over time an integral from ``now`` onwards.
    R_i is infinite for rows that a member does not hold. ``now``: (S,).

    Source: Bardou, Thiran & Ranieri 2024 (arXiv 2405.14540), its criterion and its two bounds; the short form of the
    sums is ours. Cost: O(n^3).
    """
    if model.data.ragged:
        model.data.compact()
    rows = model.data.rows()
    held = rows.held.to(rows.targets)
    both = held.unsqueeze(-1) * held.unsqueeze(-2)
    inverse = torch.cholesky_inverse(rows.corner, upper=True) * both
    alpha = (inverse @ (rows.targets - model.prior.mean(rows.inputs)).unsqueeze(-1)).squeeze(-1)
    C = convolution(model.kernel, rows.inputs, now).to(both) * both
    product = inverse @ C
    of_each = (product * inverse).sum(-1)
    diagonal = inverse.diagonal(dim1=-2, dim2=-1)
    safe = torch.where(rows.held, diagonal, 1.0)
    squared = (alpha.square() / safe.square() + 1 / safe) * of_each
    total = (alpha.unsqueeze(-2) @ C @ alpha.unsqueeze(-1))[..., 0, 0]
    total = total + product.diagonal(dim1=-2, dim2=-1).sum(-1)
    ratio = (squared / total.clamp_min(torch.finfo(total.dtype).tiny).unsqueeze(-1)).clamp_min(0.0).sqrt()
    return torch.where(rows.held, ratio, torch.inf)


def convolution(kernel: Kernel, inputs: Tensor, now: Tensor) -> Tensor:
    """Integral of k((x, t), z_i) k((x, t), z_j) over all x and all t >= ``now``, ``... x n x n``."""
    parts, outer = unscaled(kernel)
    space, scale = unscaled(parts.space_kernel)
    squared = (outer * scale).square()[..., None, None] * _over_space(space, inputs[..., :-1])
    return squared * _over_time(parts.time_kernel, inputs[..., -1], now)


def _over_space(kernel: Kernel, x: Tensor) -> Tensor:
    """(k * k)(x_i - x_j). Matern of smoothness nu: by its spectral density, Matern of smoothness 2 nu + d/2."""
    d, lengthscale = x.shape[-1], cast(Tensor, kernel.lengthscale)
    volume = lengthscale.expand(*lengthscale.shape[:-1], d).prod(-1, keepdim=True)
    r = torch.cdist(x / lengthscale, x / lengthscale)
    if isinstance(kernel, RBFKernel):
        return volume * math.pi ** (d / 2) * (-0.25 * r.square()).exp()
    nu = cast(MaternKernel, kernel).nu
    gamma, order = scipy.special.gammaln, 2 * nu + d / 2
    log_total = d * math.log(2) + d / 2 * math.log(math.pi) - d / 2 * math.log(2 * nu)
    log_total += 2 * gamma(nu + d / 2) + gamma(order) - 2 * gamma(nu) - gamma(2 * nu + d)
    z = (math.sqrt(2 * nu) * r).clamp_min(1e-8)
    log_bessel = np.log(scipy.special.kve(order, z.cpu().numpy())) - z.cpu().numpy()
    log_matern = (1 - order) * math.log(2) - gamma(order) + order * z.log()
    log_matern = log_matern + torch.as_tensor(log_bessel).to(z)
    return volume * math.exp(log_total) * log_matern.exp()


def _over_time(kernel: Kernel, times: Tensor, now: Tensor) -> Tensor:
    """Integral of k_T(t - t_i) k_T(t - t_j) over t from ``now`` onwards: a polynomial times exp(-2 decay t)."""
    if isinstance(kernel, ExponentialForgettingKernel):
        decay = kernel.decay.squeeze(-1)
    else:
        matern = cast(MaternKernel, kernel)
        decay = math.sqrt(2 * matern.nu) / cast(Tensor, matern.lengthscale)[..., 0, 0]
    nodes, weights = (torch.as_tensor(v).to(times) for v in np.polynomial.laguerre.laggauss(_NODES))
    later = now.unsqueeze(-1) + nodes / (2 * decay.unsqueeze(-1))  # ... x nodes
    stacked = torch.cat([times, later], -1).unsqueeze(-1)
    cross = kernel(stacked, stacked).to_dense()[..., : times.shape[-1], times.shape[-1] :]  # ... x n x nodes
    share = weights * nodes.exp() / (2 * decay.unsqueeze(-1))
    return (cross * share.unsqueeze(-2)) @ cross.mT


_FEWEST = 2  # observations that ``WassersteinForgetting`` keeps in any case


class _Dropping(ForgettingRule):
    """Base class: drops observations of an ``OnlineGP`` that holds none at first."""

    now: Tensor  # the latest time of an observation, batch
    dropped: Tensor  # number of observations dropped so far, batch
    _lasting = ("dropped",)

    def _set_capacity(self, capacity: int | None, least: int, expected: str) -> None:
        self.capacity = capacity
        if capacity is not None:
            validation.positive_integer("capacity", capacity)
            validation.require(capacity >= least, "capacity", capacity, expected)

    def check(self, model: OnlineModel) -> None:
        self._check_empty(model)

    def _over(self, model: OnlineGP) -> Tensor:
        """Which members hold more than ``capacity``, batch."""
        return model.num_observations > (math.inf if self.capacity is None else self.capacity)

    def _fresh(self) -> dict[str, Any]:
        return {"now": self._zeros.double(), "dropped": torch.zeros_like(self._zeros, dtype=torch.long)}

    def _advance(self, point: Callable[[], Tensor], model: OnlineModel) -> Tensor:
        """Update ``now``. Returns its value before, or after if this is the first observation."""
        time = point()[..., 0, -1].expand(self.now.shape).to(self.now)
        first = model.num_observations == 1
        before, self.now = self.now, torch.where(first, time, torch.maximum(self.now, time))
        return torch.where(first, self.now, before)


class StaleObservations(_Dropping):
    """Drops the oldest observations of an ``OnlineGP`` under exponential forgetting once they carry no information.

    The rule keeps two numbers, L and B. For all points x, all times t from the latest observation on, and any rewards,
    even if the model is wrong,

        |mu_all(x, t) - mu_held(x, t)| <= L sigma_held(x, t) <= L sqrt(k(x, x)),
        (1 - B) sigma_held^2(x, t) <= sigma_all^2(x, t) <= sigma_held^2(x, t),

    with "all" the model that has dropped nothing. After every ``every`` observations the oldest ``every`` are dropped
    if L and B stay within ``tolerance``, and then the next. Both are 0 at first, and change as follows:

        drop            L <- L + l,                    B <- B + b            (l, b of ``loss_of_oldest``),
        time            L <- rho L,                    B <- rho^2 B,         rho = (1 - eps)^{tau / 2},
        observation     L <- L + B (|z| + L) sigma / sqrt(lambda),

    with z the standardised error of the observation and sigma the standard deviation before it. Idea of the proof: L
    bounds the difference e of the means in the norm of P^{-1}, with P the covariance of f(., now) held, and
    0 <= P - P_all <= B P. Dropping makes P larger, so the bounds of earlier drops still hold. Time changes P into
    P' = rho^2 P + (1 - rho^2) K >= P, because K >= P, and e into rho e. An observation changes e into (I - G h) e, with
    G the gain, which is shorter in the norm of P^{-1}. The two gains differ by (P - P_all) h / lambda after it, at most
    B times the new deviation over lambda.

    So the number held does not grow with the horizon: with eps = .03 and one observation a step it is 900 to 1 000.

    Args:
        tolerance: largest L and B.
        every: number of observations dropped together.
        capacity: the largest number held, whatever their influence; L and B may then exceed ``tolerance``, as ``trace``
            shows. None: no such limit.

    Cost: O(n^2) per observation on average, n held. ``trace``: dropped, stale_mean (L), stale_variance (B).

    A refit of hyperparameters sets L and B to 0: they then compare with a model that has the new hyperparameters and
    the observations held at the refit. Late rewards are learned, but the bound does not cover them.

    Source: derived here. Raises ValueError for numbers out of range, a ``capacity`` below ``every``, and for a model
    that is not an ``OnlineGP`` over a product with an ``ExponentialForgettingKernel``, or already holds observations.
    """

    def __init__(self, tolerance: float = 1e-6, *, every: int = 16, capacity: int | None = None) -> None:
        self.tolerance = validation.positive("tolerance", tolerance)
        self.every = validation.positive_integer("every", every)
        self._set_capacity(capacity, every, f"at least every, {every}, or None")

    def check(self, model: OnlineModel) -> None:
        validation.instance("model", model, OnlineGP, "an OnlineGP")
        kernel = cast(OnlineGP, model).kernel
        parts = space_and_time(kernel)
        fits = parts is not None and isinstance(parts.time_kernel, ExponentialForgettingKernel)
        expected = "a SpatioTemporalKernel with an ExponentialForgettingKernel over time"
        validation.require(fits, "model.kernel", kernel, expected)
        super().check(model)

    def _fresh(self) -> dict[str, Any]:
        own = {"mean": self._zeros.clone(), "variance": self._zeros.clone(), "since": self._zeros.long()}
        return super()._fresh() | own

    mean: Tensor  # L, batch
    variance: Tensor  # B, batch
    since: Tensor  # observations since the last attempt to drop some, batch

    @torch.no_grad()
    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """Update L and B for the time that has passed and for the observation."""
        model = cast(OnlineGP, model)
        before = self._advance(point, model)
        rows = model.data.rows()
        z = rows.whitened[..., -1].abs()
        kept = kept_over(model, before.unsqueeze(-1), self.now.unsqueeze(-1)).squeeze(-1)
        noise = model.noise_variance
        deviation = (rows.corner[..., -1, -1].square() / noise - 1).clamp_min(0.0).sqrt()
        self.variance, mean = self.variance * kept.square(), self.mean * kept
        self.mean = mean + self.variance * (z + mean) * deviation
        self.since = self.since + 1

    @torch.no_grad()
    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        """Every ``every`` observations, and above the capacity, drop the stale ones."""
        model, due = cast(OnlineGP, model), self.since >= self.every
        if not bool((due | self._over(model)).any()):
            return False
        self.since = self.since.masked_fill(due, 0)
        while True:
            bounds = loss_of_oldest(model, self.every, self.now)
            mean, variance = (bound.reshape(due.shape) for bound in bounds)
            lost = torch.maximum(self.mean + mean, self.variance + variance)
            due = ((due & (lost <= self.tolerance)) | self._over(model)) & mean.isfinite()
            if not bool(due.any()):
                return False
            self.mean = torch.where(due, self.mean + mean, self.mean)
            self.variance = torch.where(due, self.variance + variance, self.variance)
            self.dropped = self.dropped + self.every * due
            model.forget(self.every, where=None if bool(due.all()) else due)

    def refitted(self, model: OnlineModel, where: Tensor) -> None:
        mask = where.reshape(self.since.shape)
        self.mean, self.variance = self.mean.masked_fill(mask, 0.0), self.variance.masked_fill(mask, 0.0)

    def trace(self) -> dict[str, Tensor | float]:
        values = {"dropped": self.dropped, "stale_mean": self.mean, "stale_variance": self.variance}
        return {name: value.reshape(-1) for name, value in values.items()}


class WassersteinForgetting(_Dropping):
    """Drops the observations of an ``OnlineGP`` with least influence on all later predictions (W-DBO).

    The budget b is 1 at first. With R_i the ``relevance`` of observation i, a ratio of integrated 2-Wasserstein
    distances, after each observation

        b <- b (1 + alpha)^{tau / l_T},
        while more than 2 are held and 1 + min R < b: drop the observation of least R, b <- b / (1 + min R),

    with tau the time since the observation before and l_T the length-scale over time. So in a time l_T these distances
    lose at most the factor 1 + alpha. A drop that leaves 2 also sets b to 1 (this is ours: after a pause of many l_T, b
    is huge or infinite, and later observations would be dropped for as long, or for ever). There is no bound on a
    single prediction: ``StaleObservations`` has one, and holds more. The integrals over space are over all of R^d, as
    in the paper's approximation.

    Args:
        alpha: the loss allowed per length-scale over time.
        capacity: the largest number held, whatever the budget, which stays at least 1; None: no limit.

    Cost: O(n^3) per observation, and O(n^3) for each that is dropped. ``trace``: dropped, budget.

    Source: Bardou, Thiran & Ranieri 2024 (arXiv 2405.14540), with their alpha = 1. The relevance agrees with the
    authors' package ``wdbo-criterion``; budget and removals are in the order of ``wdbo-algo``, but for pauses. Raises
    ValueError for an ``alpha`` that is not positive, a ``capacity`` below 2, a model that is not an ``OnlineGP`` whose
    kernel is squared exponential or Matern over space and Matern or exponential over time, and a model that holds
    observations.
    """

    def __init__(self, alpha: float = 1.0, *, capacity: int | None = None) -> None:
        self.alpha = validation.positive("alpha", alpha)
        self._set_capacity(capacity, _FEWEST, "an integer >= 2, or None")

    def check(self, model: OnlineModel) -> None:
        validation.instance("model", model, OnlineGP, "an OnlineGP")
        kernel = cast(OnlineGP, model).kernel
        parts = space_and_time(kernel)
        fits = False
        if parts is not None:
            space = parts.space_kernel
            fits = isinstance(unscaled(space)[0], RBFKernel | MaternKernel) and space.active_dims is None
            fits = fits and isinstance(parts.time_kernel, MaternKernel | ExponentialForgettingKernel)
        expected = "squared exponential or Matern over space, Matern or exponential over time"
        validation.require(fits, "model.kernel", kernel, f"a SpatioTemporalKernel, {expected}")
        super().check(model)

    def _fresh(self) -> dict[str, Any]:
        return super()._fresh() | {"budget": self._zeros + 1}

    budget: Tensor  # b, batch

    @torch.no_grad()
    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        before, time = self._advance(point, model), time_kernel_of(cast(OnlineGP, model))
        if isinstance(time, ExponentialForgettingKernel):  # the same kernel as a Matern-1/2
            lengthscale = 1 / time.decay.squeeze(-1)
        else:
            lengthscale = cast(Tensor, time.lengthscale)[..., 0, 0]
        growth = (1 + self.alpha) ** ((self.now - before) / lengthscale)
        self.budget = self.budget * growth.to(self.budget)

    @torch.no_grad()
    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        model = cast(OnlineGP, model)
        while True:
            several, over = model.num_observations > _FEWEST, self._over(model)
            if not bool((several & ((self.budget > 1) | over)).any()):
                return False
            least, row = (part.expand(self.budget.shape) for part in relevance(model, self.now).min(-1))
            due = several & ((1 + least < self.budget) | over)
            if not bool(due.any()):
                return False
            left = torch.where(
                model.num_observations > _FEWEST + 1, self.budget / (1 + least), 1.0
            ).clamp_min(1.0)
            self.budget = torch.where(due, left, self.budget)
            self.dropped = self.dropped + due
            model.remove(row, where=due)

    def trace(self) -> dict[str, Tensor | float]:
        return {"dropped": self.dropped.reshape(-1), "budget": self.budget.reshape(-1)}

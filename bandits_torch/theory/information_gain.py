"""Three providers of the maximum information gain gamma_n, for confidence widths.

gamma_n = max over n points of 1/2 log det(I + K_n / lambda). Every provider is called the same way,

    gain(points, model) -> tensor that broadcasts to model.batch_shape

with ``points`` the number of observations n, an integer or a tensor of integers that broadcasts to
``model.batch_shape``. Report the provider with each result: their values differ by large factors.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel, within

_KINDS = ("squared_exponential", "matern", "linear")


class GainProvider(Protocol):
    """Any callable ``gain(points, model)``."""

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        """gamma of ``points`` observations, broadcastable to ``model.batch_shape``."""


class RealisedGain:
    """The gain of the observations held, 1/2 log det(I + K_t / lambda); ``points`` is ignored.

    Never above gamma_n. Valid where the proof uses gamma_n only as a bound on this log determinant, as for
    the widths of Chowdhury & Gopalan (2017) and Zhou & Shroff (2021). Theorem 3 of Srinivas et al. (2010) is
    stated for the maximum. Cost: O(1); the model keeps it.
    """

    counts_points = False  # a width need not compute ``points``

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        """The model's ``information_gain``, shape ``model.batch_shape``."""
        return model.information_gain


@validation.names_arguments
class MaximumGain:
    """The maximum over a finite arm set with repeated pulls, computed greedily.

    Each pick is the arm of largest posterior variance. The gain is monotone and submodular, so greedy
    reaches at least 1 - 1/e of gamma_n (Nemhauser, Wolsey & Fisher 1978):
    greedy_n <= gamma_n <= greedy_n / (1 - 1/e).

    Args:
        covariance: prior covariance K over the arms, N x N or P x N x N.
        noise_variance: lambda > 0, a number or a tensor that broadcasts to the covariance's batch (P,).
        max_points: the largest n of any call.
        upper_bound: True gives greedy_n / (1 - 1/e), what a confidence width needs; False gives greedy_n.

    Cost: O(P N^2) for each of ``max_points`` picks, once (in float64 on the CPU); O(1) per call.
    Values have the model's dtype; keep ``covariance`` on the model's device.

    Raises:
        ValueError: when built on a matrix that is not a covariance, a noise variance that is not
            positive or ``max_points`` below 1; when called with an n outside 0..``max_points``. On a GPU, where
            a check of a tensor would synchronise, such entries give NaN instead.
    """

    def __init__(
        self, covariance: Tensor, noise_variance: float | Tensor, max_points: int, upper_bound: bool = True
    ) -> None:
        self.max_points = validation.positive_integer("max_points", max_points)
        prior = validation.covariance("covariance", covariance).detach().to(dtype=torch.float64, device="cpu")
        batch = covariance.shape[:-2]
        noise = validation.numbers("noise_variance", noise_variance, prior)
        positive = bool((torch.isfinite(noise) & (noise > 0)).all())
        validation.require(positive, "noise_variance", noise_variance, "finite and > 0")
        expected = f"that broadcasts to {tuple(batch)}"
        validation.shape_is("noise_variance", noise, within(batch, noise.shape), expected)
        table = _greedy_gains(prior, noise.expand(batch), max_points)
        self._table = (table / (1 - math.exp(-1)) if upper_bound else table).to(covariance)

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        """gamma of ``points`` observations, shape (P,) broadcast with the shape of ``points``."""
        table = self._table.to(model.noise_variance)
        expected = f"between 0 and max_points = {self.max_points}"
        if not isinstance(points, Tensor):
            validation.require(0 <= points <= self.max_points, "points", points, expected)
            return table[..., points]
        outside = (points < 0) | (points > self.max_points)
        if points.device.type == "cpu":
            validation.require(not bool(outside.any()), "points", points, expected)
        shape = torch.broadcast_shapes(points.shape, table.shape[:-1])
        index = points.clamp(0, self.max_points).expand(shape).unsqueeze(-1)
        found = table.expand(*shape, -1).gather(-1, index.to(table.device)).squeeze(-1)
        return torch.where(outside.to(table.device), math.nan, found)


@validation.names_arguments
class GrowthBound:
    """The known growth rate of gamma_n, times a constant that the theorems do not give.

    * ``"squared_exponential"``: (ln n)^{d+1}
    * ``"matern"``: n^{d/(2 nu + d)} (ln n)^{2 nu/(2 nu + d)}, the version of Vakili et al. (2021);
      Srinivas et al. (2010), as Chowdhury & Gopalan (2017) quote them, had n^{d(d+1)/(2 nu + d(d+1))} ln n
    * ``"linear"``: d ln n

    These are orders of growth on a compact domain: the true factor depends on the length-scale, the domain
    and lambda, so a width built on them is guaranteed only if ``constant`` is known to be
    large enough. An n from 1 to e counts as e, since gamma_1 > 0 = ln 1; gamma_0 = 0.

    Args:
        kind: one of the three names above.
        dim: d, dimension of the inputs.
        nu: smoothness of the Matern kernel, for ``"matern"`` only.
        constant: the unknown factor, > 0.

    Raises:
        ValueError: on an unknown kind, a missing or superfluous ``nu``, or a number out of range.
    """

    of_points_alone = True  # and not of the model's state

    def __init__(self, kind: str, dim: int, nu: float | None = None, constant: float = 1.0) -> None:
        validation.one_of("kind", kind, *_KINDS)
        validation.require((nu is not None) == (kind == "matern"), "nu", nu, "given only with 'matern'")
        self.kind = kind
        self.dim = validation.positive_integer("dim", dim)
        self.nu = None if nu is None else validation.positive("nu", nu)
        self.constant = validation.positive("constant", constant)

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        """The bound at ``points`` observations, in the shape of ``points``."""
        if not isinstance(points, Tensor):
            validation.require(points >= 0, "points", points, "an integer >= 0")
            points = model.noise_variance.new_full((), points)
        n = points.to(model.noise_variance)
        return torch.where(n > 0, self.constant * self._growth(n.clamp(min=math.e)), 0.0)

    def _growth(self, n: Tensor) -> Tensor:
        d, log_n = self.dim, torch.log(n)
        if self.kind == "squared_exponential":
            return log_n ** (d + 1)
        if self.nu is None:
            return d * log_n
        return n ** (d / (2 * self.nu + d)) * log_n ** (2 * self.nu / (2 * self.nu + d))


def _greedy_gains(covariance: Tensor, noise_variance: Tensor, max_points: int) -> Tensor:
    """Gains of 0, 1, ..., max_points greedy picks, P x (max_points + 1): sums of 1/2 ln(1 + C_ii/lambda)."""
    C = covariance.clone()
    size = C.shape[-1]
    largest = C.new_empty(max_points, *C.shape[:-2])
    variance = torch.diagonal(C, dim1=-2, dim2=-1)  # a view: it follows C
    for n in range(max_points):
        largest[n], arm = variance.max(-1)
        row = C.gather(-2, arm[..., None, None].expand(*arm.shape, 1, size)).squeeze(-2)
        scaled = row / (largest[n] + noise_variance).unsqueeze(-1)
        C.addcmul_(row.unsqueeze(-1), scaled.unsqueeze(-2), value=-1)  # C -= C_i C_i^T / (C_ii + lambda)
    gains = 0.5 * torch.log1p(largest.clamp(min=0) / noise_variance).cumsum(0)
    return torch.cat([torch.zeros_like(gains[:1]), gains]).movedim(0, -1)

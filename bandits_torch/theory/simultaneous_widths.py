"""The narrowest band that holds a Gaussian function at all arms of a step at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation

_CELLS = 10_000  # of a sum that stands for an integral over [0, 1]
_ROUNDING = 1e-9


def rank(draws: int, delta: float) -> int:
    """k = ceil((M + 1)(1 - delta)), of the least of M draws that is passed with probability at most delta.

    Raises ValueError unless 0 < ``delta`` < 1 and ``draws`` is an integer M >= 1/delta - 1, so that k <= M.
    """
    validation.probability("delta", delta)
    k = math.ceil((validation.positive_integer("draws", draws) + 1) * (1 - delta) - _ROUNDING)
    validation.require(k <= draws, "draws", draws, f"at least {1 / delta - 1:g} for delta = {delta}")
    return max(k, 1)


def simultaneous_width(draws: Tensor, deviation: Tensor, delta: float) -> Tensor:
    """The k-th least of max_x |g_m(x)| / sigma(x) over M draws g_m ~ N(0, C), k = ceil((M + 1)(1 - delta)): (...,).

    Theorem. Let f given the past be N(mu, C) over the arms, and the draws independent of f given the past. Then
    max_x |f(x) - mu(x)| / sigma(x) and the M maxima of the draws are exchangeable, so with probability at least
    k/(M + 1) >= 1 - delta, given the past,

        |f(x) - mu(x)| <= width sigma(x)    for all arms x at once.

    It is exactly k/(M + 1) for a continuous law: no union bound, however the arms correlate, and no error of
    simulation. Valid for each step, whatever rule has chosen the arms before; over T steps at once with delta/T.
    Srinivas et al. 2010, Theorem 1, is the union bound in place of the quantile.

    Args:
        draws: ``... x M x N`` of N(0, C).
        deviation: sigma, ``... x N``; arms with sigma = 0 are left out.
        delta: failure probability.

    Raises ValueError unless 0 < ``delta`` < 1 and M >= 1/delta - 1.
    """
    k = rank(draws.shape[-2], delta)
    known = (deviation <= 0).unsqueeze(-2)
    ratio = (draws.abs() / deviation.unsqueeze(-2)).masked_fill(known, 0.0).amax(-1)
    return ratio.kthvalue(k, dim=-1).values


def mean_excess(delta: float, draws: int) -> float:
    """E h(A), h(a) = phi(c_a) - c_a a, A ~ Beta(M + 1 - k, k): what a band from M draws misses on average, at most.

    Theorem. For Gaussian g with sigma = 1 and P(max_x |g(x)| > w) = a: E (max_x |g(x)| - w)_+ <= h(a), c_a the 1 - a
    quantile of N(0, 1). For max_x |g(x)| is a function of Lipschitz constant 1 of standard normal numbers, and by the
    Gaussian isoperimetric inequality (Borell 1975) P(max_x |g(x)| > w + u) <= 1 - Phi(c_a + u); integrate over u >= 0.
    The k-th of M draws misses with a probability A of that Beta law.

    With it a band that holds at each step with probability 1 - delta bounds the regret, which GP-UCB's proof otherwise
    takes from a band that holds at all steps at once: given the past, for the arm x_t of the largest mu + w_t sigma,

        E [max_x f_t(x) - f_t(x_t)] <= E [w_t sigma_t(x_t)] + E h(A) max_x sigma_t(x),

    since f_t(x*) <= mu(x*) + w sigma(x*) + (Z - w)_+ sigma(x*) with Z the largest ratio, and E f_t(x_t) = mu(x_t).
    .048 at delta = .1 and 199 draws. Raises ValueError as ``simultaneous_width``.
    """
    k = rank(draws, delta)
    a = (torch.arange(_CELLS, dtype=torch.float64) + 0.5) / _CELLS
    weight = torch.softmax((draws - k) * a.log() + (k - 1) * torch.log1p(-a), 0)
    quantile = -torch.special.ndtri(a)
    density = torch.exp(-(quantile**2) / 2) / math.sqrt(2 * math.pi)
    return float(weight @ (density - quantile * a))


@torch.no_grad()
def standardised_draws(root: Tensor, base_samples: Tensor) -> tuple[Tensor, Tensor]:
    """Draws ``... x M x N`` of N(0, root root^T) from standard normal numbers of that shape, and their sigma."""
    return base_samples.to(root) @ root.mT, root.square().sum(-1).sqrt()

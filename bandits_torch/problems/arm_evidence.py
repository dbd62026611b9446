"""The likelihood of every arm's rewards by itself: a fading process seen in noise, its mean integrated out."""

from __future__ import annotations

import torch
from torch import Tensor


def arm_evidence(
    rows: Tensor, times: Tensor, variances: Tensor, noise_variance: Tensor, rates: Tensor
) -> tuple[Tensor, Tensor]:
    """Quadratic form and log-determinant (G,) of G batch members, each summed over the arms.

    An arm's rewards are m + f_t + noise, f_t = a f_s + sqrt(1 - a^2) g, a = (1 - eps)^{(t - s)/2}, g ~ N(0, variance):
    a scalar Kalman filter. A flat prior on m (Rasmussen & Williams 2006, equation 2.45) uses up one of an arm's n
    rewards; up to a constant their log density is -(form + log-determinant) / 2.

    Args:
        rows: (T, N), or (T, G, N) with a table for each member; NaN where a reward is missing, and at least one
            reward of every arm.
        times: (T,) increasing.
        variances, noise_variance, rates: (G,), one for all arms of a member.

    Cost: O(G T N), in T steps.
    """
    prior, noise = variances.unsqueeze(-1), noise_variance.unsqueeze(-1)
    shape = (len(rates), rows.shape[-1])
    spread, mean = prior.expand(shape), rows.new_zeros(2, *shape)
    products, log_det = rows.new_zeros(3, *shape), rows.new_zeros(shape)
    held = (~torch.isnan(rows)).to(rows.dtype)
    for row, seen, fade in zip(rows.nan_to_num(), held, fades(times, rates), strict=True):
        square = fade.square()
        spread, mean = square * spread + (1 - square) * prior, fade * mean
        total = spread + noise
        gain = seen * spread / total
        error = (
            torch.stack([row.expand_as(total), torch.ones_like(total)]) - mean
        )  # of the reward, of the mean's 1
        mean, spread = mean + gain * error, spread * (1 - gain)
        pairs = torch.stack([error[0].square(), error[0] * error[1], error[1].square()])
        products, log_det = products + seen / total * pairs, log_det + seen * total.log()
    own, cross, ones = products
    return (own - cross.square() / ones).sum(-1), (log_det + ones.log()).sum(-1)


def draw_tables(
    covariance: Tensor, noise_variance: float, rate: float, times: Tensor, count: int, seed: int = 0
) -> Tensor:
    """Tables (T, count, N) of the process f_t = a f_s + sqrt(1 - a^2) g, g ~ N(0, covariance), seen in noise."""
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp_min(0.0).sqrt()).mT
    generator = torch.Generator().manual_seed(seed)
    g, noise = torch.randn(2, len(times), count, len(covariance), generator=generator, dtype=torch.float64)
    fade = fades(times, torch.tensor([rate], dtype=torch.float64))
    rows = [g[0] @ root]
    for draw, a in zip(g[1:] @ root, fade[1:], strict=True):
        rows.append(a * rows[-1] + (1 - a.square()).sqrt() * draw)
    return torch.stack(rows) + noise_variance**0.5 * noise


def fades(times: Tensor, rates: Tensor) -> Tensor:
    """a of every row since the one before it, (T, G, 1); 1 for the first, before which f is stationary."""
    gaps = torch.cat([times.new_zeros(1), times.diff()])
    return ((1 - rates) ** (gaps.unsqueeze(-1) / 2)).unsqueeze(-1)

"""How fast a table of rewards forgets: the forgetting rate of greatest likelihood."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel

RATES = (1e-5, 0.99)  # the slowest and the fastest looked for
_COARSE, _FINE = 17, 9
_LOG_TWO_PI = math.log(2 * math.pi)


def checked_record(table: Tensor, times: Tensor, covariance: Tensor) -> int:
    """N, of rewards (T, N), their times (T,) and the covariance (N, N) of their arms; ValueError for other shapes."""
    validation.tensor("table", table)
    validation.shape_is("table", table, table.dim() == 2 and len(table) >= 2, "(T, N) with T >= 2")
    T, N = table.shape
    validation.require(not bool(torch.isinf(table).any()), "table", table, "free of infinities")
    validation.finite_tensor("times", times)
    validation.shape_is("times", times, times.shape == (T,), f"({T},), a time for each row of table")
    validation.require(bool((times.diff() > 0).all()), "times", times, "increasing")
    validation.tensor("covariance", covariance)
    validation.shape_is("covariance", covariance, covariance.shape == (N, N), f"({N}, {N})")
    return N


def fit_forgetting_rate(
    table: Tensor,
    times: Tensor,
    covariance: Tensor,
    noise_variance: float,
    *,
    max_rows: int = 1000,
    max_arms: int = 50,
) -> float:
    """The rate eps of greatest likelihood when f ~ GP(0, C (1 - eps)^{|t - t'|/2}) is seen in noise.

    Args:
        table: (T, N) rewards, NaN where missing. Each arm is centred by its own mean.
        times: (T,) increasing; eps is per unit of these.
        covariance: C, (N, N), positive semi-definite.
        noise_variance: lambda > 0.
        max_rows, max_arms: a longer table is fitted on its last ``max_rows`` rows, a wider one on ``max_arms``
            evenly spaced arms.

    Returns:
        eps between 1e-5 and 0.99: the best of 17 rates evenly spaced in logarithm, refined by 9 between its
        neighbours. An end of the range means that the data suggest a value outside it.

    Raises:
        ValueError: bad shapes, infinities, noise_variance not above 0, times that do not increase.

    Cost: O(26 T N^3) with T and N as limited.
    """
    N = checked_record(table, times, covariance)
    covariance = ArmCovarianceKernel(covariance).covariance
    validation.positive("noise_variance", noise_variance)
    validation.positive_integer("max_rows", max_rows)
    validation.positive_integer("max_arms", max_arms)
    centred = table - table.nanmean(0)
    kept = torch.linspace(0, N - 1, min(N, max_arms), device=table.device).round().long()
    centred, times = centred[-max_rows:, kept], times[-max_rows:]
    covariance = covariance[kept][:, kept]

    def best(low: float, high: float, count: int) -> tuple[Tensor, int]:
        rates = torch.linspace(math.log(low), math.log(high), count).to(table).exp()
        likelihood = forgetting_log_likelihood(centred, times, covariance, noise_variance, rates)
        return rates, int(likelihood.argmax())

    rates, place = best(*RATES, _COARSE)
    rates, place = best(float(rates[max(place - 1, 0)]), float(rates[min(place + 1, _COARSE - 1)]), _FINE)
    return float(rates[place])


def forgetting_log_likelihood(
    centred: Tensor, times: Tensor, covariance: Tensor, noise_variance: float, rates: Tensor
) -> Tensor:
    """Log-likelihood (G,) of a centred table (T, N) under each of the forgetting ``rates`` (G,).

    Exact, by the Kalman filter of the process f_t = a f_s + sqrt(1 - a^2) g, a = (1 - eps)^{(t - s)/2},
    g ~ N(0, C); missing entries (NaN) are left out. Cost O(G T N^3).
    """
    G, N = len(rates), centred.shape[1]
    mean, spread = centred.new_zeros(G, N), covariance.expand(G, N, N)
    total = centred.new_zeros(G)
    gaps = torch.cat([times.new_zeros(1), times.diff()])
    for row, gap in zip(centred, gaps, strict=True):
        fade = ((1 - rates) ** (gap / 2)).unsqueeze(-1)
        mean, square = fade * mean, fade.unsqueeze(-1) ** 2
        spread = square * spread + (1 - square) * covariance
        seen = ~torch.isnan(row)
        if not bool(seen.any()):
            continue
        # A missing arm counts as an observation of 0 with variance 1, uncorrelated with everything else.
        held = seen.to(row.dtype)
        cross = spread * held  # (G, N, N): covariance of all arms with the observed ones
        system = held.unsqueeze(-1) * cross + torch.diag(noise_variance * held + (1 - held))
        factor = torch.linalg.cholesky(system)
        error = torch.where(seen, row - mean, 0.0).unsqueeze(-1)
        half = torch.linalg.solve_triangular(factor, torch.cat([error, cross.mT], dim=-1), upper=False)
        whitened, gain = half[..., :1], half[..., 1:]
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        total = total - (whitened.square().sum((-2, -1)) + log_det + held.sum() * _LOG_TWO_PI) / 2
        mean = mean + (gain.mT @ whitened).squeeze(-1)
        spread = spread - gain.mT @ gain
    return total

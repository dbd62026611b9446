"""Maximum likelihood estimates of the forgetting rate and the noise variance from a table of rewards."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.special import wrightomega
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel

RATES = (1e-5, 0.99)  # range searched
_COARSE, _FINE = 17, 9  # rates tried
_LOG_TWO_PI = math.log(2 * math.pi)


def _record(table: Tensor, times: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards (T, N), their times (T,) and their arms' covariance (N, N), in float64 on the CPU. Raises ValueError for
    anything else."""
    table, times, covariance = (
        validation.real(name, value)
        for name, value in (("table", table), ("times", times), ("covariance", covariance))
    )
    validation.shape_is("table", table, table.dim() == 2 and len(table) >= 2, "(T, N) with T >= 2")
    T, N = table.shape
    validation.require(not bool(torch.isinf(table).any()), "table", table, "free of infinities")
    validation.finite_tensor("times", times)
    validation.of_shape("times", times, (T,), note=", a time for each row of table")
    validation.require(bool((times.diff() > 0).all()), "times", times, "increasing")
    validation.of_shape("covariance", covariance, (N, N))
    return table, times, ArmCovarianceKernel(covariance).covariance


def fit_forgetting_rate(
    table: Tensor,
    times: Tensor,
    covariance: Tensor,
    noise_variance: float,
    *,
    max_rows: int = 1000,
    max_arms: int = 50,
) -> float:
    """The maximum likelihood estimate of the rate eps of f ~ GP(0, C (1 - eps)^{|t - t'|/2}), observed with noise.

    Args:
        table: (T, N) rewards, NaN where missing; converted to float64 on the CPU. Each arm is centred by its own mean.
        times: (T,) increasing; eps is per unit of these.
        covariance: C, (N, N), positive semi-definite.
        noise_variance: lambda > 0.
        max_rows, max_arms: a longer table is fitted on its last ``max_rows`` rows, a wider one on ``max_arms``
            evenly spaced arms.

    Returns:
        eps between 1e-5 and 0.99: the best of 17 rates, refined by 9 between its neighbours, evenly spaced in
        logarithm. An end of the range means that the data suggest a value outside it.

    Raises:
        ValueError: bad shapes, infinities, noise_variance not above 0, times that do not increase.

    Cost: O(26 T N^3) with T and N as limited.
    """
    table, times, covariance = _record(table, times, covariance)
    N = len(covariance)
    validation.positive("noise_variance", noise_variance)
    validation.positive_integer("max_rows", max_rows)
    validation.positive_integer("max_arms", max_arms)
    centred = table - table.nanmean(0)
    kept = torch.linspace(0, N - 1, min(N, max_arms)).round().long()
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
    for row, fade in zip(centred, fades(times, rates), strict=True):
        mean, square = fade * mean, fade.unsqueeze(-1) ** 2
        spread = square * spread + (1 - square) * covariance
        seen = ~torch.isnan(row)
        if not bool(seen.any()):
            continue
        # A missing reward counts as an observation of 0 with variance 1, uncorrelated with all others.
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


# --- rate and noise together ---

_MOST_ROWS = 1000  # a longer table is fitted on its last rows
_SHARES = (0.01, 0.99)  # range of the noise, as a share of the arms' average variance
_GRID = (13, 9)  # rates and shares
_FACTOR_SPREAD = 1.0  # prior standard deviation of the logarithm of the factor
_STEPS, _CLOSE, _SPACING = 20, 1e-3, 0.05  # Newton steps, tolerance, spacing of differences
_DRAWS = 64  # tables drawn for the intervals
_NINETY_FIVE = 1.959964  # standard normal, two-sided 95 %
_SMALLEST_CURVATURE = 0.05
_NAMES = ("forgetting_rate", "noise_variance")


@dataclass(frozen=True)
class ForgettingFit:
    """A forgetting rate and a noise variance, fitted together, and the covariance between arms without the noise.

    Attributes:
        forgetting_rate: eps, per unit of time.
        noise_variance: lambda, in squared units of reward.
        covariance: C, (N, N): the given one minus the noise on its diagonal, times ``factor``.
        factor: variance of the process over the variance of the record about its own mean.
        rate_interval, noise_interval: approximate 95 % confidence intervals. If eps is at an end of its range, its
            interval is the range; if lambda is, its interval begins at 0.
        at_end: which of "forgetting_rate" and "noise_variance" lie at an end of the range searched: the data suggest a
            value outside it, or do not determine the value.
    """

    forgetting_rate: float
    noise_variance: float
    covariance: Tensor
    factor: float
    rate_interval: tuple[float, float]
    noise_interval: tuple[float, float]
    at_end: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """One line per estimate, with its interval."""
        lines = []
        for name, (low, high) in zip(_NAMES, (self.rate_interval, self.noise_interval), strict=True):
            end = ", at an end of the range searched" if name in self.at_end else ""
            value = getattr(self, name)
            lines.append(f"{name.replace('_', ' ')}: {value:.3g} (95 %: {low:.3g} to {high:.3g}{end})")
        return lines


def fit_forgetting(table: Tensor, times: Tensor, covariance: Tensor) -> ForgettingFit:
    """Forgetting rate and noise variance together, from rewards and the covariance estimated from them.

    Maximises the product of the arms' likelihoods (a composite likelihood, Varin, Reid & Firth 2011), each with its
    mean integrated out, and all with one signal variance. The likelihood of whole rows would treat the covariance,
    estimated from the same rows, as exact, and give a rate several times too high. For correlated arms the product is
    raised to the power N_eff / N, N_eff = tr(C)^2 / tr(C^2).

    A slow process varies more than a record of it about the record's own mean: its variance is ``factor`` times larger.
    The factor has a log-normal prior around 1 (standard deviation 1 of the logarithm). Without it, a record shorter
    than the process's memory fits a random walk of any variance.

    The intervals are normal in log(-log(1 - eps)) and log(lambda). Their covariance is the sandwich
    A^-1 (J + P) A^-1: A is the curvature of the penalised likelihood, P that of the prior, and J the covariance of the
    score over 64 tables drawn from the fit (with a fixed seed, so the result is deterministic).

    If the record is hardly longer than the process's memory 2 / eps, the rate is overestimated, and its interval is too
    high. In simulations the interval contained the rate of 28 of 30 records of three memories (200 rows), but of 56 of
    92 records of one memory (400 rows), where the estimate was two to three times the rate.

    Args:
        table: (T, N) rewards, NaN where missing, converted to float64 on the CPU; of a longer table only the last 1000
            rows are used.
        times: (T,) increasing; eps is per unit of these.
        covariance: (N, N) of the rewards, noise included, as ``estimate_covariance`` gives it.

    Returns:
        eps in [1e-5, 0.99], lambda between 1 and 99 % of the average variance (times ``factor``).

    Warns:
        UserWarning: eps at an end of its range, or lambda at its upper end. At its lower end, common for good
            sensors, lambda appears only in ``at_end``.

    Raises:
        ValueError: bad shapes, times that do not increase, a covariance of 0, no arm with two rewards.

    Cost: O(T N) for each of some hundreds of evaluations, 320 of them for the intervals.
    """
    return _fitted(table, times, covariance)


def fit_forgetting_of_shares(table: Tensor, times: Tensor, covariance: Tensor) -> ForgettingFit:
    """``fit_forgetting`` of rewards of 0 and 1, in units of each arm's standard deviation.

    The noise variance of 0 and 1 with probability p is p (1 - p), a share of the arm's variance that hardly depends on
    p. With one noise variance for all arms, the larger noise of an arm near 1/2 would count as change.
    """
    variance = covariance.diagonal()
    deviation = torch.where(variance > 0, variance, 1.0).sqrt()
    both = deviation * deviation.unsqueeze(-1)
    return _fitted(table / deviation, times, covariance / both, both=both, usual=float(variance.mean()))


def _fitted(
    table: Tensor, times: Tensor, covariance: Tensor, both: Tensor | float = 1.0, usual: float = 1.0
) -> ForgettingFit:
    """The fit, its covariance times ``both`` and its noise variance times ``usual``."""
    table, times, covariance = _record(table, times, covariance)
    validation.require(float(covariance.diagonal().mean()) > 0, "covariance", covariance, "not 0")
    rows, times = table[-_MOST_ROWS:], times[-_MOST_ROWS:]
    variance = float(covariance.diagonal().mean())
    unit = covariance / variance
    seen = (~torch.isnan(rows)).sum(0) >= 2
    validation.require(bool(seen.any()), "table", table, "with two rewards of an arm in its last rows")
    arms = _Arms(rows[:, seen] / variance**0.5, times, unit[seen][:, seen])
    place = arms.climb()
    factor = float(arms.concentrated(place.unsqueeze(0))[1].exp())
    rate, share = -math.expm1(-math.exp(place[0])), math.exp(place[1])
    signal = factor * without_noise(unit, share)
    rate_spread, noise_spread = arms.spreads(place, factor, signal[seen][:, seen])
    noise = share * factor * variance
    at_low = place <= arms.low + _CLOSE
    rate_at_end, noise_at_end = (at_low | (place >= arms.high - _CLOSE)).tolist()
    z = [float(arms.low[0]), float(arms.high[0])]
    if not rate_at_end:  # at an end the curvature says nothing
        z = [min(max(float(place[0]) + s * rate_spread, z[0]), z[1]) for s in (-1, 1)]
    least = 0.0 if noise_at_end else noise * math.exp(-noise_spread)
    fit = ForgettingFit(
        forgetting_rate=rate,
        noise_variance=usual * noise,
        covariance=signal * variance * both,
        factor=factor,
        rate_interval=(-math.expm1(-math.exp(z[0])), -math.expm1(-math.exp(z[1]))),
        noise_interval=(usual * least, usual * (noise * math.exp(noise_spread))),
        at_end=tuple(name for name, at in zip(_NAMES, (rate_at_end, noise_at_end), strict=True) if at),
    )
    for line, at in zip(fit.describe(), (rate_at_end, noise_at_end and not at_low[1]), strict=True):
        if at:
            warnings.warn(f"{line}; the rewards suggest a value outside it, if any", stacklevel=3)
    return fit


def without_noise(covariance: Tensor, noise_variance: float) -> Tensor:
    """The covariance minus the noise on its diagonal, with negative eigenvalues set to 0."""
    values, vectors = torch.linalg.eigh(covariance)
    means = (vectors * (values - noise_variance).clamp_min(0.0)) @ vectors.mT
    return (means + means.mT) / 2


class _Arms:
    """The penalised composite likelihood of rewards with average variance 1, at places (log(-log(1 - eps)), log of the
    noise's share), sometimes with the log of the factor as third number."""

    def __init__(self, rows: Tensor, times: Tensor, covariance: Tensor) -> None:
        self.rows, self.times = rows - rows.nanmean(0), times
        self.count = int((~torch.isnan(rows)).sum()) - rows.shape[1]
        N, trace = len(covariance), covariance.diagonal().sum()
        self.weight = float(trace.square() / covariance.square().sum()) / N
        ends = [[math.log(-math.log1p(-eps)), math.log(s)] for eps, s in zip(RATES, _SHARES, strict=True)]
        self.low, self.high = torch.tensor(ends, dtype=torch.float64)

    def evidence(self, places: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        share, rates = places[:, 1].exp(), -torch.expm1(-places[:, 0].exp())
        rows = self.rows if rows is None else rows
        return arm_evidence(rows, self.times, (1 - share).clamp_min(0.0), share, rates)

    def score(self, form: Tensor, log_det: Tensor, log_factor: Tensor) -> Tensor:
        """Weighted composite log-likelihood, up to a constant."""
        return -self.weight * (form * (-log_factor).exp() + log_det + self.count * log_factor) / 2

    def penalised(self, form: Tensor, log_det: Tensor, k: Tensor) -> Tensor:
        """The score with the prior of the factor, exp(k)."""
        return self.score(form, log_det, k) - k.square() / (2 * _FACTOR_SPREAD**2)

    def concentrated(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Penalised likelihood (G,) at places (G, 2), each with its best factor, and the logs of the factors."""
        form, log_det = self.evidence(places)
        half = self.weight * _FACTOR_SPREAD**2 / 2
        a, b = half * form, half * self.count
        k = torch.from_numpy(wrightomega((a.log() + b).numpy())) - b  # where a exp(-k) = b + k
        return self.penalised(form, log_det, k), k

    def climb(self) -> Tensor:
        """The best place (2,), from a grid and then by Newton steps in the range, each with the best of 8 lengths."""
        ranges = zip(self.low.tolist(), self.high.tolist(), _GRID, strict=True)
        grid = torch.cartesian_prod(*(torch.linspace(*one) for one in ranges)).double()
        place = grid[int(self.concentrated(grid)[0].argmax())]
        for _ in range(_STEPS):
            slope, bend = _derivatives(lambda places: self.concentrated(places)[0], place)
            outward = ((place <= self.low) & (slope < 0)) | ((place >= self.high) & (slope > 0))
            slope = torch.where(outward, 0.0, slope)
            bend = torch.where(outward | outward.unsqueeze(-1), -torch.eye(2).double(), bend)
            values, vectors = torch.linalg.eigh(bend)
            step = vectors @ ((vectors.mT @ slope) / values.abs().clamp_min(_SMALLEST_CURVATURE))
            lengths = torch.cat([torch.zeros(1), 0.5 ** torch.arange(-1.0, 7.0)]).double()
            tried = torch.minimum(torch.maximum(place + lengths.unsqueeze(-1) * step, self.low), self.high)
            best = tried[int(self.concentrated(tried)[0].argmax())]
            moved, place = float((best - place).abs().max()), best
            if moved < _CLOSE:
                break
        return place

    def spreads(self, place: Tensor, factor: float, signal: Tensor) -> tuple[float, float]:
        """Half widths of the intervals of log(-log(1 - eps)) and log(lambda)."""
        rate, k = -math.expm1(-math.exp(place[0])), torch.tensor([math.log(factor)], dtype=torch.float64)
        drawn = draw_tables(signal, factor * math.exp(place[1]), rate, self.times, _DRAWS)
        drawn = torch.where(torch.isnan(self.rows).unsqueeze(1), math.nan, drawn)
        around = torch.cat([place.unsqueeze(0) + s * _SPACING * torch.eye(2).double() for s in (1, -1)])
        form, log_det = self.evidence(around.repeat_interleave(_DRAWS, 0), drawn.repeat(1, 4, 1))
        up, down = self.score(form, log_det, k).view(2, 2, _DRAWS)
        at, _ = self.evidence(place.expand(_DRAWS, 2), drawn)
        by_factor = self.weight * (at * (-k).exp() - self.count) / 2
        J = torch.cov(torch.cat([(up - down) / (2 * _SPACING), by_factor.unsqueeze(0)]))
        _, bend = _derivatives(lambda at: self.penalised(*self.evidence(at), at[:, 2]), torch.cat([place, k]))
        values, vectors = torch.linalg.eigh(-bend)
        A = (vectors / values.clamp_min(_SMALLEST_CURVATURE)) @ vectors.mT
        spread = A @ (J + torch.diag(torch.tensor([0.0, 0.0, _FACTOR_SPREAD**-2]).double())) @ A
        rate_spread, noise_spread = spread[0, 0].sqrt(), spread[1:, 1:].sum().sqrt()
        return _NINETY_FIVE * float(rate_spread), _NINETY_FIVE * float(noise_spread)


def _derivatives(function: Callable[[Tensor], Tensor], place: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (n,) and Hessian (n, n) by central differences, in one call of the function."""
    n, h = len(place), _SPACING
    unit = h * torch.eye(n, dtype=place.dtype)
    pairs = unit.unsqueeze(0) + unit.unsqueeze(1)
    mixed = unit.unsqueeze(1) - unit.unsqueeze(0)
    moves = torch.cat([unit, -unit, pairs.flatten(0, 1), -pairs.flatten(0, 1), mixed.flatten(0, 1)])
    values = function(place + moves)
    up, down = values[:n], values[n : 2 * n]
    both, neither, split = values[2 * n :].view(3, n, n)
    # For i = j the moves are 2h, -2h and 0 twice: the same formula with the double step.
    return (up - down) / (2 * h), (both + neither - split - split.mT) / (4 * h * h)


# --- the likelihood of every arm by itself ---


def arm_evidence(
    rows: Tensor, times: Tensor, variances: Tensor, noise_variance: Tensor, rates: Tensor
) -> tuple[Tensor, Tensor]:
    """Quadratic form and log-determinant (G,) of G batch members, each summed over the arms, by scalar Kalman filters.

    An arm's rewards are m + f_t + noise, f_t = a f_s + sqrt(1 - a^2) g, a = (1 - eps)^{(t - s)/2}, g ~ N(0, variance),
    with a flat prior on m (Rasmussen & Williams 2006, equation 2.45), which costs one of the arm's n rewards. Up to a
    constant, their log density is -(form + log-determinant) / 2.

    Args:
        rows: (T, N), or (T, G, N) with a table for each member; NaN where missing; at least one reward of every arm.
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
        # Innovations of the reward, and of the regressor 1 of the mean m.
        error = torch.stack([row.expand_as(total), torch.ones_like(total)]) - mean
        mean, spread = mean + gain * error, spread * (1 - gain)
        pairs = torch.stack([error[0].square(), error[0] * error[1], error[1].square()])
        products, log_det = products + seen / total * pairs, log_det + seen * total.log()
    squares, cross, ones = products
    return (squares - cross.square() / ones).sum(-1), (log_det + ones.log()).sum(-1)


def draw_tables(covariance: Tensor, noise_variance: float, rate: float, times: Tensor, count: int) -> Tensor:
    """Tables (T, count, N) of the process f_t = a f_s + sqrt(1 - a^2) g, g ~ N(0, covariance), with noise; the same
    at every call."""
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp_min(0.0).sqrt()).mT
    generator = torch.Generator().manual_seed(0)
    g, noise = torch.randn(2, len(times), count, len(covariance), generator=generator, dtype=torch.float64)
    fade = fades(times, torch.tensor([rate], dtype=torch.float64))
    rows = [g[0] @ root]
    for draw, a in zip(g[1:] @ root, fade[1:], strict=True):
        rows.append(a * rows[-1] + (1 - a.square()).sqrt() * draw)
    return torch.stack(rows) + noise_variance**0.5 * noise


def fades(times: Tensor, rates: Tensor) -> Tensor:
    """a between each row and the row before, (T, G, 1); 1 for the first row, which has the stationary law."""
    gaps = torch.cat([times.new_zeros(1), times.diff()])
    return ((1 - rates) ** (gaps.unsqueeze(-1) / 2)).unsqueeze(-1)

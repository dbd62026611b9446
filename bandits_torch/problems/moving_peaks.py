"""Branke's moving peaks."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.problem import Knowledge, per_replicate
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import (
    SMALLEST_RIDGE,
    SimulatedProblem,
    covariance,
    make_kernel,
    place_arms,
    problem_streams,
    regularised_norm,
)
from bandits_torch.streams import ReplicateStreams

# Scenario 2, in units of a domain of side 1 and of rewards divided by 100: heights 30 to 70, widths (slopes
# of the cones) 1 to 12 per unit of a domain of side 100.
_HEIGHTS = (0.30, 0.70)
_WIDTHS = (1.0, 12.0)
_LANDSCAPES = 256  # drawn to learn what a user of the benchmark knows of its mean and variance


@named("moving-peaks", random=True)
class MovingPeaks(SimulatedProblem):
    """Moving peaks (Branke 1999): f_t(x) = max_i (height_i - width_i |x - centre_i|), piecewise constant in time.

    Every ``period`` steps each height and width moves by a normal step and each centre by a step of fixed
    length in a random direction; all bounce off their limits. Defaults are scenario 2 (10 cones, heights 30
    to 70 with severity 7, widths 1 to 12 with severity 1, centres in [0, 100]^d moving by 1, uncorrelated),
    with the domain scaled to [0, 1]^d and rewards divided by 100. The original has d = 5 and a change every
    5000 evaluations; here d = 2, so that 100 arms see the peaks, and ``period`` is 500. Its starting
    heights are all 50; here they are uniform, as widths and centres are. The original has no noise.

    Known beforehand: noise variance R^2; mean and variance of a landscape of these settings, from 256
    others; a kernel of that variance (Matern 3/2 with lengthscale 0.3 makes those 256 likeliest among the
    squared exponential and Matern kernels tried, at the default settings); B = the largest norm of a
    landscape of the run, fitted about the mean to within the noise (``regularised_norm``); both variation
    budgets of the run, in the RKHS norm that of these fits.

    Args:
        horizon: T.
        period: steps between changes; steps 1..period see the first landscape.
        num_peaks: how many cones.
        shift: length of a centre's move, in sides of the domain.
        height_severity, width_severity: standard deviations of the moves of heights (rewards) and widths
            (rewards per side of the domain).
        noise_scale: R.
        kernel, lengthscale, nu: of the known kernel.
        num_arms, dim, layout, replicates, seed, first_replicate: as for ``GPDraws``; a sphere makes no
        sense here.

    Raises ValueError unless 0 <= ``shift`` < 1, counts are integers >= 1, sizes and ``noise_scale`` >= 0, and
    ``layout`` is one of the two.
    """

    def __init__(
        self,
        *,
        horizon: int = 10_000,
        period: int = 500,
        num_peaks: int = 10,
        shift: float = 0.01,
        height_severity: float = 0.07,
        width_severity: float = 1.0,
        noise_scale: float = 0.05,
        kernel: str = "matern",
        lengthscale: float = 0.3,
        nu: float = 1.5,
        num_arms: int = 100,
        dim: int = 2,
        layout: str = "grid",
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        for name, count in (("horizon", horizon), ("period", period), ("num_peaks", num_peaks)):
            validation.positive_integer(name, count)
        for name, size in (("height_severity", height_severity), ("width_severity", width_severity)):
            validation.non_negative(name, size)
        validation.below_one("shift", shift)
        validation.non_negative("noise_scale", noise_scale)
        validation.require(layout in ("uniform", "grid"), "layout", layout, "'uniform' or 'grid'")
        super().__init__(place_arms(layout, num_arms, dim, seed), replicates, noise_scale, horizon)
        self.period = period
        severities = torch.tensor([height_severity, width_severity], dtype=torch.float64)
        streams = problem_streams(seed, replicates, first_replicate)
        peaks = [_first_peaks(streams, num_peaks, dim)]
        for _ in range((horizon - 1) // period):
            peaks.append(_move(peaks[-1], streams.normal(num_peaks, 2 + dim), shift, severities))
        self._peaks = torch.stack(peaks)  # (changes + 1, replicates, peaks, height | width | centre)
        self._piece, self._latest = 0, _landscape(self.arms, self._peaks[0])
        self.knowledge = self._know(make_kernel(kernel, lengthscale, nu))

    def expected_rewards(self, step: int) -> Tensor:
        """The landscape (replicates, N) at this step: computed when it changes, else the same tensor."""
        self.check_step(step)
        piece = (step - 1) // self.period
        if piece != self._piece:
            self._piece, self._latest = piece, _landscape(self.arms, self._peaks[piece])
        return self._latest

    def _know(self, shape: Kernel) -> Knowledge:
        num_peaks, dim = self._peaks.shape[2], self.arms.shape[1]
        others = ReplicateStreams(0, _LANDSCAPES, purpose="arms", first=1)
        landscapes = _landscape(self.arms, _first_peaks(others, num_peaks, dim))
        mean = float(landscapes.mean())
        kernel = ScaleKernel(shape).double()
        kernel.outputscale = float(((landscapes - mean) ** 2).mean())
        K, ridge = covariance(kernel, self.arms), max(float(self.noise_scale[0]) ** 2, SMALLEST_RIDGE)
        zeros = torch.zeros(self.replicates, dtype=torch.float64)
        norms, largest, in_norm, before = zeros, zeros, zeros, _landscape(self.arms, self._peaks[0])
        for peaks in self._peaks:
            now = _landscape(self.arms, peaks)
            norms = torch.maximum(norms, regularised_norm(K, now - mean, ridge))
            largest = largest + (now - before).abs().amax(-1)
            in_norm = in_norm + regularised_norm(K, now - before, ridge)
            before = now
        return Knowledge(
            kernel=kernel.requires_grad_(False),
            noise_variance=float(self.noise_scale[0]) ** 2,
            prior_mean=mean,
            rkhs_bound=per_replicate(norms),
            variation_budget=per_replicate(largest),
            rkhs_variation_budget=per_replicate(in_norm),
        )


def _first_peaks(streams: ReplicateStreams, num_peaks: int, dim: int) -> Tensor:
    """Heights, widths and centres uniform within their limits, (S, peaks, 2 + d)."""
    low, high = _limits(dim)
    return low + (high - low) * streams.uniform(num_peaks, 2 + dim)


def _move(peaks: Tensor, normals: Tensor, shift: float, severities: Tensor) -> Tensor:
    """One change of the peaks (S, peaks, 2 + d), from standard normal numbers of that shape."""
    steps = torch.cat(
        [normals[..., :2] * severities, shift * torch.nn.functional.normalize(normals[..., 2:], dim=-1)], -1
    )
    low, high = _limits(peaks.shape[-1] - 2)
    # Reflected at both limits, however far the step goes: a walk on a circle of twice the length.
    length = high - low
    around = torch.remainder(peaks + steps - low, 2 * length)
    return low + torch.minimum(around, 2 * length - around)


def _limits(dim: int) -> tuple[Tensor, Tensor]:
    bounds = torch.tensor([_HEIGHTS, _WIDTHS, *[(0.0, 1.0)] * dim], dtype=torch.float64)
    return bounds[:, 0], bounds[:, 1]


def _landscape(arms: Tensor, peaks: Tensor) -> Tensor:
    """max_i (height_i - width_i |x - centre_i|) at the arms (N, d) for peaks (S, peaks, 2 + d): (S, N)."""
    distance = (arms.unsqueeze(-2) - peaks[..., 2:].unsqueeze(-3)).norm(dim=-1)  # (S, N, peaks)
    return (peaks[..., 0].unsqueeze(-2) - peaks[..., 1].unsqueeze(-2) * distance).amax(-1)

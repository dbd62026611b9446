"""Problems whose reward functions change: at switches, by a moving phase, as moving peaks."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.problem import Knowledge, named, per_replicate
from bandits_torch.problems.simulated import (
    SMALLEST_RIDGE,
    SimulatedProblem,
    covariance,
    covariance_root,
    gp_draws,
    make_kernel,
    norm_on_arms,
    place_arms,
    problem_streams,
    regularised_norm,
)
from bandits_torch.streams import ReplicateStreams

_AMPLITUDE = 0.8
_FREQUENCY = 3.0
# Shares of the horizon: the phase rises between the first two and between the last two.
_PHASE_BREAKS = (0.1, 0.3, 0.4, 0.6)


@named("switching", random=True)
class SwitchingFunctions(SimulatedProblem):
    """Gaussian-process draws that are replaced, or change sign, at given steps.

    The switching environment of Hong, Li & Tewari (2023), section 6: r ~ N(0, K), scaled to max |r| = 0.8,
    noise of scale 0.1, 10 000 steps with a switch at 3000 (``switches=(0.3,)``) or at 1500 and 5000
    (``(0.15, 0.5)``). They place the arms on the unit sphere of R^10 (``layout="sphere", dim=10``), where a
    lengthscale of 0.2 leaves arms nearly independent; the default here is correlated arms in [0, 1].

    Known in advance: the kernel of the draws before scaling, noise variance R^2, B = the largest RKHS norm
    among the pieces, both variation budgets (sums over the switches of the largest change of any arm, and of the
    RKHS norm of the change), and a forgetting rate. With m switches at random steps, its correlation of successive
    steps is their average correlation: (1 - eps)^{1/2} = 1 - m/T for fresh draws, 1 - 2m/T for changes of sign.

    Args:
        horizon: T.
        switches: when the functions change; numbers below 1 are fractions of the horizon, others steps. The
            new functions hold from that step on.
        change: ``"fresh"``, an independent draw, or ``"flip"``, the same function with its sign changed.
        noise_scale: R.
        kernel, lengthscale, nu, num_arms, dim, layout, replicates, seed, first_replicate: as for ``GPDraws``.

    Raises ValueError for any other ``change``, a negative ``noise_scale``, and switches that are not increasing steps
    from 2 to T, after fractions are rounded to steps.
    """

    def __init__(
        self,
        *,
        horizon: int = 10_000,
        switches: Sequence[float] = (0.3,),
        change: str = "fresh",
        noise_scale: float = 0.1,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        num_arms: int = 100,
        dim: int = 1,
        layout: str = "uniform",
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.one_of("change", change, "fresh", "flip")
        validation.non_negative("noise_scale", noise_scale)
        validation.positive_integer("horizon", horizon)
        expected = f"increasing, in 2, ..., {horizon} or shares of it"
        several = isinstance(switches, Sequence) and all(validation.is_number(s) for s in switches)
        validation.require(several, "switches", switches, f"a sequence of numbers, {expected}")
        steps = [round(s * horizon) if s < 1 else s for s in switches]
        ok = all(isinstance(s, int) and 2 <= s <= horizon for s in steps) and sorted(set(steps)) == steps
        validation.require(ok, "switches", switches, expected)
        self.switches = [int(s) for s in steps]
        arms, k = place_arms(layout, num_arms, dim, seed), make_kernel(kernel, lengthscale, nu)
        root = covariance_root(covariance(k, arms))
        streams = problem_streams(seed, replicates, first_replicate)
        pieces, fresh = len(self.switches) + 1, change == "fresh"
        draws = [streams.normal(num_arms) for _ in range(pieces if fresh else 1)]
        weights = torch.stack(draws if fresh else [draws[0] * (-1) ** j for j in range(pieces)])
        functions = gp_draws(root, weights)
        scale = _AMPLITUDE / functions.abs().amax(-1, keepdim=True)
        weights, functions = scale * weights[..., : root.shape[1]], functions * scale
        super().__init__(arms, replicates, noise_scale, horizon)
        self.functions = functions  # (pieces, replicates, N)
        turn = (1.0 if fresh else 2.0) * len(self.switches) / horizon
        self.knowledge = Knowledge(
            kernel=k,
            noise_variance=float(noise_scale) ** 2,
            rkhs_bound=per_replicate(weights.norm(dim=-1).amax(0)),
            forgetting_rate=1 - max(0.0, 1 - turn) ** 2,
            variation_budget=per_replicate(functions.diff(dim=0).abs().amax(-1).sum(0)),
            rkhs_variation_budget=per_replicate(weights.diff(dim=0).norm(dim=-1).sum(0)),
        )

    def expected_rewards(self, step: int) -> Tensor:
        """The scaled draws (replicates, N) of the step's piece, a view."""
        self.check_step(step)
        return self.functions[bisect.bisect_right(self.switches, step)]


@named("sphere-one-switch", random=True)
class SphereOneSwitch(SwitchingFunctions):
    """First environment of Hong, Li & Tewari (2023), section 6: arms on a sphere in R^10, a switch at 0.3 T.

    ``change`` is ``"flip"``, the sign change in their published code, or ``"fresh"``, the new draw in their
    text. They truncate the noise so that |reward| <= 1; here it is normal. Other options: ``SwitchingFunctions``.
    """

    def __init__(
        self,
        *,
        switches: Sequence[float] = (0.3,),
        change: str = "flip",
        dim: int = 10,
        layout: str = "sphere",
        **options: Any,
    ) -> None:
        super().__init__(switches=switches, change=change, dim=dim, layout=layout, **options)


@named("sphere-two-switches", random=True)
class SphereTwoSwitches(SphereOneSwitch):
    """The second environment of Hong, Li & Tewari (2023), section 6: the first, with switches at 0.15 T and 0.5 T.

    Options: ``SphereOneSwitch``.
    """

    def __init__(self, *, switches: Sequence[float] = (0.15, 0.5), **options: Any) -> None:
        super().__init__(switches=switches, **options)


@named("cosine", random=True)
class DriftingCosine(SimulatedProblem):
    """A cosine wave whose phase moves: r_t(x) = 0.8 cos(3 x^T theta + phi(t)).

    Hong, Li & Tewari (2023), appendix J.3, whose cosine has amplitude 1; 0.8 is that of their switching functions. The
    direction theta is uniform on the unit sphere. At T = 10 000 the phase phi is 0 until step 1000, rises linearly to
    pi at 3000, stays, rises from 4000 to 2 pi at 6000 and stays; other horizons scale these steps.

    Known in advance: noise variance R^2; a squared exponential kernel of variance 0.8^2/2 and, unless another is given,
    lengthscale sqrt(d)/3 (to second order in the distance, the covariance of r averaged over theta and phase);
    B = the largest norm, over all phases, of the wave fitted on the arms to within the noise (``regularised_norm``);
    both variation budgets, exactly, one in the RKHS norm on the arms (``norm_on_arms``); and the forgetting rate
    eps = 1 - 2^{-12/T}, which halves the correlation while the phase moves by pi/3 at its mean speed 2 pi / T.

    Args:
        horizon: T.
        num_arms, dim: N, d.
        layout: ``"sphere"`` as in the paper, or ``"uniform"`` or ``"grid"`` in [0, 1]^d.
        lengthscale: length-scale of the known kernel; None: sqrt(d)/3.
        noise_scale: R.
        stationary: keep the phase at 0 (appendix J.2).
        replicates, seed, first_replicate: as for ``GPDraws``; every replicate has its own theta.

    Raises ValueError for a ``horizon`` below 1 and a negative ``noise_scale``.
    """

    def __init__(
        self,
        *,
        horizon: int = 10_000,
        num_arms: int = 100,
        dim: int = 10,
        layout: str = "sphere",
        lengthscale: float | None = None,
        noise_scale: float = 0.1,
        stationary: bool = False,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.positive_integer("horizon", horizon)
        validation.non_negative("noise_scale", noise_scale)
        self.stationary = stationary
        arms = place_arms(layout, num_arms, dim, seed)
        directions = problem_streams(seed, replicates, first_replicate).normal(dim)
        self.theta = torch.nn.functional.normalize(directions, dim=-1)  # (replicates, d)
        super().__init__(arms, replicates, noise_scale, horizon)
        angle = _FREQUENCY * torch.stack([arms @ theta for theta in self.theta])
        self._cosine, self._sine = _AMPLITUDE * angle.cos(), _AMPLITUDE * angle.sin()  # (replicates, N)
        lengthscale = math.sqrt(dim) / _FREQUENCY if lengthscale is None else lengthscale
        k = ScaleKernel(make_kernel("se", lengthscale)).double()
        k.outputscale = _AMPLITUDE**2 / 2
        K, ridge = covariance(k, arms), max(noise_scale**2, SMALLEST_RIDGE)
        largest, in_norm = self._variation(covariance_root(K))
        # The wave is u cos(phi) - v sin(phi), so its squared norm is a quadratic form of (cos, sin) and at most the
        # largest eigenvalue of the Gram matrix of u and v.
        gram = self._gram(partial(regularised_norm, K, ridge=ridge))
        self.knowledge = Knowledge(
            kernel=k.requires_grad_(False),
            noise_variance=float(noise_scale) ** 2,
            rkhs_bound=per_replicate(torch.linalg.eigvalsh(gram)[:, -1].sqrt()),
            forgetting_rate=0.0 if stationary else 1 - 2 ** (-12 / horizon),
            variation_budget=per_replicate(largest),
            rkhs_variation_budget=per_replicate(in_norm),
        )

    def phase(self, step: int) -> float:
        """phi(step), in radians."""
        if self.stationary:
            return 0.0
        breaks = [share * (self.horizon or 0) for share in _PHASE_BREAKS]
        return float(np.interp(step, breaks, [0, math.pi, math.pi, 2 * math.pi]))

    def expected_rewards(self, step: int) -> Tensor:
        """0.8 cos(3 x^T theta + phi(step)), (replicates, N)."""
        self.check_step(step)
        phase = self.phase(step)
        # cos(a + phi) = cos(a) cos(phi) - sin(a) sin(phi)
        return math.cos(phase) * self._cosine - math.sin(phase) * self._sine

    def _gram(self, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """Inner products (replicates, 2, 2) of the cosine u and the sine v, from the norms of u, v and u + v."""
        u, v, sums = norm(self._cosine), norm(self._sine), norm(self._cosine + self._sine)
        cross = (sums**2 - u**2 - v**2) / 2
        return torch.stack([u**2, cross, cross, v**2], dim=-1).reshape(-1, 2, 2)

    def _variation(self, root: Tensor) -> tuple[Tensor, Tensor]:
        """Both variation budgets, (replicates,) each, computed for 256 steps at a time."""
        phases = torch.tensor([self.phase(t) for t in range(1, (self.horizon or 0) + 1)], dtype=torch.float64)
        moving = phases.diff() > 0
        largest, in_norm = torch.zeros(2, self.replicates, dtype=torch.float64)
        gram = self._gram(partial(norm_on_arms, root))
        for before, after in zip(phases[:-1][moving].split(256), phases[1:][moving].split(256), strict=True):
            cosine, sine = self._cosine.unsqueeze(-2), self._sine.unsqueeze(-2)
            by_cosine = (after.cos() - before.cos()).unsqueeze(-1)
            by_sine = (after.sin() - before.sin()).unsqueeze(-1)
            largest += (cosine * by_cosine - sine * by_sine).abs().amax(-1).sum(-1)
            change = torch.cat([by_cosine, -by_sine], -1)  # steps x 2
            in_norm += (change @ gram * change).sum(-1).clamp_min(0).sqrt().sum(-1)
        return largest, in_norm


# --- Branke's moving peaks ---

# Scenario 2 has heights of 30 to 70 and widths (slopes of the cones) of 1 to 12 on a domain of side 100. Here the side
# is 1, and rewards are divided by 100.
_HEIGHTS = (0.30, 0.70)
_WIDTHS = (1.0, 12.0)
_LANDSCAPES = 256  # draws from which the known mean and variance are estimated


@named("moving-peaks", random=True)
class MovingPeaks(SimulatedProblem):
    """Moving peaks (Branke 1999): f_t(x) = max_i (height_i - width_i |x - centre_i|), piecewise constant in time.

    Every ``period`` steps each height and width moves by a normal step and each centre by a step of fixed
    length in a random direction; all bounce off their limits. Defaults are scenario 2 (10 cones, heights 30
    to 70 with severity 7, widths 1 to 12 with severity 1, centres in [0, 100]^d moving by 1, uncorrelated),
    with the domain scaled to [0, 1]^d and rewards divided by 100. The original has d = 5, a change every 5000
    evaluations, starting heights of 50 and no noise. Here d = 2, so 100 arms resolve the peaks, ``period``
    is 500, and starting heights are uniform, as widths and centres are.

    Known in advance: noise variance R^2; mean and variance of a landscape with these settings, from 256
    others; a kernel of that variance (at the default settings Matern 3/2 with lengthscale 0.3 has the highest
    likelihood of those 256 among the squared exponential and Matern kernels tried); B = the largest norm of a
    landscape of the run, fitted about the mean to within the noise (``regularised_norm``); both variation
    budgets of the run, in the RKHS norm those of such fits to the changes.

    Args:
        horizon: T.
        period: steps between changes; steps 1..period see the first landscape.
        num_peaks: how many cones.
        shift: length of a centre's move, in sides of the domain.
        height_severity, width_severity: standard deviations of the moves of heights (rewards) and widths
            (rewards per side of the domain).
        noise_scale: R.
        kernel, lengthscale, nu: the known kernel, as for ``GPDraws``.
        num_arms, dim, layout, replicates, seed, first_replicate: as for ``GPDraws``, without ``"sphere"``.

    Raises ValueError unless 0 <= ``shift`` < 1, counts are integers >= 1, severities and ``noise_scale`` >= 0, and
    ``layout`` is ``"uniform"`` or ``"grid"``.
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
        validation.positive_integer("horizon", horizon)
        validation.positive_integer("period", period)
        validation.positive_integer("num_peaks", num_peaks)
        validation.non_negative("height_severity", height_severity)
        validation.non_negative("width_severity", width_severity)
        validation.below_one("shift", shift)
        validation.non_negative("noise_scale", noise_scale)
        validation.one_of("layout", layout, "uniform", "grid")
        super().__init__(place_arms(layout, num_arms, dim, seed), replicates, noise_scale, horizon)
        self.period = period
        severities = torch.tensor([height_severity, width_severity], dtype=torch.float64)
        streams = problem_streams(seed, replicates, first_replicate)
        peaks = [_first_peaks(streams, num_peaks, dim)]
        for _ in range((horizon - 1) // period):
            peaks.append(_move(peaks[-1], streams.normal(num_peaks, 2 + dim), shift, severities))
        self._peaks = torch.stack(peaks)  # (changes + 1, replicates, peaks, height | width | centre)
        self._piece, self._latest = 0, _landscape(self.arms, self._peaks[0])
        others = ReplicateStreams(0, _LANDSCAPES, purpose="arms", first=1)
        landscapes = _landscape(self.arms, _first_peaks(others, num_peaks, dim))
        mean = float(landscapes.mean())
        k = ScaleKernel(make_kernel(kernel, lengthscale, nu)).double()
        k.outputscale = float(((landscapes - mean) ** 2).mean())
        K, ridge = covariance(k, self.arms), max(noise_scale**2, SMALLEST_RIDGE)
        norms, largest, in_norm = torch.zeros(3, replicates, dtype=torch.float64)
        before = self._latest
        for each in self._peaks:
            now = _landscape(self.arms, each)
            norms = torch.maximum(norms, regularised_norm(K, now - mean, ridge))
            largest = largest + (now - before).abs().amax(-1)
            in_norm = in_norm + regularised_norm(K, now - before, ridge)
            before = now
        self.knowledge = Knowledge(
            kernel=k.requires_grad_(False),
            noise_variance=float(noise_scale) ** 2,
            prior_mean=mean,
            rkhs_bound=per_replicate(norms),
            variation_budget=per_replicate(largest),
            rkhs_variation_budget=per_replicate(in_norm),
        )

    def expected_rewards(self, step: int) -> Tensor:
        """The landscape (replicates, N) at this step; the same tensor until it changes."""
        self.check_step(step)
        piece = (step - 1) // self.period
        if piece != self._piece:
            self._piece, self._latest = piece, _landscape(self.arms, self._peaks[piece])
        return self._latest


def _first_peaks(streams: ReplicateStreams, num_peaks: int, dim: int) -> Tensor:
    """Heights, widths and centres uniform within their limits, (S, peaks, 2 + d)."""
    low, length = _limits(dim)
    return low + length * streams.uniform(num_peaks, 2 + dim)


def _move(peaks: Tensor, normals: Tensor, shift: float, severities: Tensor) -> Tensor:
    """One change of the peaks (S, peaks, 2 + d), from standard normal numbers of that shape."""
    directions = torch.nn.functional.normalize(normals[..., 2:], dim=-1)
    steps = torch.cat([normals[..., :2] * severities, shift * directions], -1)
    low, length = _limits(peaks.shape[-1] - 2)
    # Reflection at both limits, however long the step, is a walk on a circle of twice the length.
    around = torch.remainder(peaks + steps - low, 2 * length)
    return low + torch.minimum(around, 2 * length - around)


def _limits(dim: int) -> tuple[Tensor, Tensor]:
    """The least height, width and centre, (2 + d,), and the lengths of their ranges."""
    bounds = torch.tensor([_HEIGHTS, _WIDTHS, *[(0.0, 1.0)] * dim], dtype=torch.float64)
    return bounds[:, 0], bounds[:, 1] - bounds[:, 0]


def _landscape(arms: Tensor, peaks: Tensor) -> Tensor:
    """max_i (height_i - width_i |x - centre_i|) at the arms (N, d) for peaks (S, peaks, 2 + d): (S, N)."""
    distance = (arms.unsqueeze(-2) - peaks[..., 2:].unsqueeze(-3)).norm(dim=-1)  # (S, N, peaks)
    return (peaks[..., 0].unsqueeze(-2) - peaks[..., 1].unsqueeze(-2) * distance).amax(-1)

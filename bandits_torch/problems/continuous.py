"""Problems over a continuous domain: points take the place of arms. Standard test functions that change with time."""

from __future__ import annotations

import contextlib
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from botorch.generation.gen import gen_candidates_scipy
from botorch.test_functions import Ackley, Griewank, Hartmann, Levy, Shekel, StyblinskiTang
from botorch.test_functions.synthetic import SyntheticTestFunction
from gpytorch.kernels import MaternKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.kernels import SpatioTemporalKernel
from bandits_torch.models.candidate_priors import CandidatePrior
from bandits_torch.problems.problem import Knowledge, Problem, named
from bandits_torch.problems.simulated import SMALLEST_RIDGE, covariance, regularised_norm
from bandits_torch.streams import ReplicateStreams

_RAW, _LOCAL = 4096, 8  # for the maximum of a step: points evaluated, local searches from the best
_RADII, _NEAR = (0.1, 0.03, 0.01), 128  # further points around the best, within these shares of the box
_SAMPLE = 512  # points for the mean of a step


class ContinuousProblem(Problem):
    """A problem over the points of a domain. It has no arms: ``num_arms`` is 0.

    Attributes:
        domain: the set of points; ``available(step)`` is the ``Domain`` of a step, or None for this one.
        dim: d.
        functions_differ: whether replicates have different functions.
        hints: (k, d) points that may be near a maximum at some step: further starts for ``best``.
    """

    domain: Domain
    functions_differ = False

    def __init__(
        self, domain: Domain, replicates: int, noise_scale: float, horizon: int | None = None
    ) -> None:
        self.domain, self.dim = domain, domain.dim
        self.arms = domain.bounds[:0]  # none, in the right dtype and on the right device
        self.replicates, self.horizon = replicates, horizon
        self.noise_scale = domain.bounds.new_full((replicates,), noise_scale)
        self.hints = self.arms
        self._best: dict[int, Tensor] = {}

    def available(self, step: int) -> Domain | None:  # type: ignore[override]
        """The domain of this step if it differs, by bounds, constraints or a context; None for the usual one."""
        return None

    @abstractmethod
    def expected(self, step: int, X: Tensor) -> Tensor:
        """Mean rewards ``... x S`` at step 1, 2, ... of points X, ``... x S x d``, one per replicate; differentiable
        in X. For the scorer and ``pull`` only."""

    @property
    def choices(self) -> Domain:
        """The domain."""
        return self.domain

    def score(self, step: int, points: Tensor, available: Domain | None) -> tuple[Tensor, Tensor]:
        """Expected rewards (S,) of points (S, d), minus infinity outside the step's domain; and ``best``."""
        domain = self.domain if available is None else available
        inside = domain.contains(points) & (points - domain.fix(points)).eq(0).all(-1)
        return self.expected(step, points).where(inside, -math.inf), self.best(step)

    def expected_rewards(self, step: int) -> Tensor:
        """(replicates, 0): there are no arms."""
        self.check_step(step)
        return self.arms.new_zeros(self.replicates, 0)

    def pull(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Rewards (S,) of the points (S, d) played: the expected ones plus ``noise``."""
        with torch.no_grad():
            return self.expected(step, arm) + self.noise(step, arm, streams)

    def best(self, step: int) -> Tensor:
        """Maximum (replicates,) of the expected reward over the step's domain, computed once, by ``maximum``: not above
        the true one, and within 1e-6 of known maxima (tests/problems)."""
        self.check_step(step)
        if step not in self._best:
            domain = self.available(step) or self.domain
            differ = self.functions_differ or any(map(domain.differs, domain.fixed_features.values()))
            replicates = self.replicates if differ else 1
            best = maximum(lambda X: self.expected(step, X), domain, replicates, hints=self.hints)
            self._best[step] = best.expand(self.replicates)
        return self._best[step].to(self.arms)

    def random_reward(self, step: int) -> Tensor:
        """Mean (replicates,) of the expected reward over the step's domain, from 512 evenly spread points."""
        domain = self.available(step) or self.domain
        with torch.no_grad():
            return self.expected(step, domain.samples(_SAMPLE, 0, self.replicates)).mean(0)


def maximum(
    function: Callable[[Tensor], Tensor], domain: Domain, replicates: int = 1, *, hints: Tensor | None = None
) -> Tensor:
    """The maximum (replicates,) of a differentiable function, ``n x replicates x d`` to ``n x replicates``.

    Local searches start from the best of 4 096 evenly spread points and the hints (k, d), then from the best of 128
    random points in ever smaller boxes around the best point so far.
    """
    raw = domain.sample(_RAW, 0)
    if hints is not None:
        raw = torch.cat([raw, hints[domain.contains(hints)]])
    raw = domain.fix(raw.unsqueeze(1).repeat(1, replicates, 1))
    with validation.gradients():
        return torch.stack([_maximum_of(function, domain, raw, k) for k in range(replicates)])


def _maximum_of(function: Callable[[Tensor], Tensor], domain: Domain, raw: Tensor, k: int) -> Tensor:
    """The maximum of replicate k; ``raw``: n x replicates x d."""

    def of_replicate(X: Tensor) -> Tensor:
        return function(X.expand(-1, raw.shape[1], -1))[:, k]

    given = domain.fixed_features.items()
    fixed = {i: float(v[k] if isinstance(v, Tensor) and v.dim() else v) for i, v in given}
    low, high = domain.bounds
    generator = torch.Generator().manual_seed(0)
    points, best = raw[:, k : k + 1], low.new_full((), -torch.inf)
    for radius in (*_RADII, 0.0):
        with torch.no_grad():
            order = of_replicate(points).topk(_LOCAL).indices
        with warnings.catch_warnings(record=True):  # a line search that ends early at a cusp warns
            X, values = gen_candidates_scipy(
                points[order],
                of_replicate,  # type: ignore[arg-type]
                low,
                high,
                inequality_constraints=list(domain.inequality_constraints) or None,
                fixed_features=fixed or None,
            )
        X, values = torch.cat([points[order], X]), torch.cat([of_replicate(points[order]).detach(), values])
        values = values.masked_fill(~domain.contains(X[:, 0]), -torch.inf)
        if values.max() > best:
            best, top = values.max(), X[values.argmax()]
        spread = 2 * torch.rand(_NEAR, 1, domain.dim, generator=generator, dtype=torch.float64) - 1
        near = (top + radius * (high - low) * spread.to(top)).clamp(low, high)
        near[..., list(fixed)] = top[..., list(fixed)]
        points = torch.cat([near[domain.contains(near[:, 0], 0.0)], X])
    return best


# --- standard test functions that move ---

_POINTS, _MOMENTS = 256, 11  # from which knowledge is estimated
_LAG = 0.1  # between two of the moments, as a share of the horizon


class DynamicFunction(ContinuousProblem):
    """A BoTorch test function of d + 1 inputs, negated, whose last input is time: f_t(x) = -F(x, t / T).

    All inputs are scaled from F's bounds to [0, 1]. Rewards have mean 0 and standard deviation 1 over 256 points and 11
    moments from step 1 to T. ``time(step)`` is the step. ``best``, the reference of the regret, is computed
    numerically.

    Known in advance: a Matern 5/2 kernel of lengthscale 0.3 sqrt(d) (a guess: the function is not a draw from it);
    noise variance R^2, at least 1e-6; from these points and moments, B = the largest norm of the function's fits
    (``regularised_norm``), the forgetting rate that gives the correlation over a tenth of the horizon, and both
    variation budgets (in the RKHS norm those of such fits to the changes); and four candidate priors: that kernel
    without change, with forgetting at that rate, and times a Matern 5/2 kernel over time of lengthscale T/10 and T/3.

    Args:
        function: a BoTorch test function, to be minimised.
        horizon: T.
        noise_scale: R, in units of the scaled rewards.
        replicates: all have the same function, and independent noise.

    Raises ValueError unless ``horizon`` and ``replicates`` are integers >= 1 and ``noise_scale`` >= 0.
    """

    def __init__(
        self,
        function: SyntheticTestFunction,
        *,
        horizon: int = 200,
        noise_scale: float = 0.05,
        replicates: int = 1,
    ) -> None:
        validation.instance("function", function, SyntheticTestFunction, "a BoTorch test function")
        validation.positive_integer("horizon", horizon)
        validation.positive_integer("replicates", replicates)
        validation.non_negative("noise_scale", noise_scale)
        d = function.dim - 1
        box = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64)
        super().__init__(Domain(box), replicates, noise_scale, horizon)
        self._function = function.to(torch.float64)
        self._low, self._high = torch.as_tensor(function.bounds, dtype=torch.float64)
        with contextlib.suppress(NotImplementedError):  # as for Hartmann's function of four inputs
            if isinstance(function.optimizers, Tensor):
                optima = function.optimizers.to(box)
                self.hints = ((optima - self._low) / (self._high - self._low))[:, :-1]
        points = self.domain.sample(_POINTS, 0)
        moments = [1 + (horizon - 1) * i / (_MOMENTS - 1) for i in range(_MOMENTS)]
        values = torch.stack([self._at(moment, points) for moment in moments])
        self._mean, self._deviation = float(values.mean()), float(values.std())
        self.knowledge = self._known((values - self._mean) / self._deviation, points, horizon)

    def expected(self, step: int, X: Tensor) -> Tensor:
        """-F(x, step / T), scaled."""
        self.check_step(step)
        return (self._at(step, X) - self._mean) / self._deviation

    def _at(self, moment: float, X: Tensor) -> Tensor:
        share = torch.full_like(X[..., :1], moment / (self.horizon or 1))
        inputs = self._low + (self._high - self._low) * torch.cat([X, share], -1)
        flat = inputs.reshape(-1, inputs.shape[-1])  # some functions take one batch dimension
        return -self._function.evaluate_true(flat).reshape(X.shape[:-1])

    def _known(self, values: Tensor, points: Tensor, horizon: int) -> Knowledge:
        """The knowledge estimated from scaled values (moments x points)."""
        kernel = MaternKernel(nu=2.5).double()
        kernel.lengthscale = 0.3 * math.sqrt(self.dim)
        noise_variance = max(float(self.noise_scale[0]) ** 2, SMALLEST_RIDGE)
        K = covariance(kernel, points)
        norms = regularised_norm(K, values, noise_variance)
        correlation = float((values[1:] * values[:-1]).mean() / values.square().mean())
        rate = 1 - min(max(correlation, 0.05), 1 - 1e-4) ** (2 / (_LAG * horizon))
        priors = [
            CandidatePrior(kernel, name="static"),
            CandidatePrior(kernel, forgetting_rate=rate, name="forgetting"),
        ]
        for share, name in ((0.1, "smooth, fast"), (1 / 3, "smooth, slow")):
            time = MaternKernel(nu=2.5).double()
            time.lengthscale = share * horizon
            smooth = SpatioTemporalKernel(kernel, time.requires_grad_(False))
            priors.append(CandidatePrior(smooth, name=name))
        return Knowledge(
            kernel=kernel.requires_grad_(False),
            noise_variance=noise_variance,
            rkhs_bound=float(norms.max()),
            forgetting_rate=rate,
            variation_budget=float(values.diff(dim=0).abs().amax(-1).sum()),
            rkhs_variation_budget=float(regularised_norm(K, values.diff(dim=0), noise_variance).sum()),
            priors=priors,
        )


class _OfAnyDimension(DynamicFunction):
    """A function that exists in every dimension; ``function`` makes it with d + 1 inputs."""

    function: ClassVar[Callable[..., SyntheticTestFunction]]

    def __init__(self, *, dim: int = 3, **options: Any) -> None:
        validation.positive_integer("dim", dim)
        super().__init__(type(self).function(dim=dim + 1, dtype=torch.float64), **options)


@named("dynamic-ackley")
class DynamicAckley(_OfAnyDimension):
    """Ackley's function, with time as last input: many local optima around one basin whose floor rises and falls.

    Args:
        dim: d, coordinates of a point.
        options: options of ``DynamicFunction``.
    """

    function = Ackley


@named("dynamic-hartmann6")
class DynamicHartmann6(DynamicFunction):
    """Hartmann's function of six inputs, the sixth of them time: hills that rise and sink in turn.

    Options: ``DynamicFunction``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(Hartmann(dim=6, dtype=torch.float64), **options)


@named("dynamic-shekel")
class DynamicShekel(DynamicFunction):
    """Shekel's function of four inputs, the fourth of them time: narrow peaks that come and go.

    Options: ``DynamicFunction``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(Shekel(m=10, dtype=torch.float64), **options)


@named("dynamic-griewank")
class DynamicGriewank(_OfAnyDimension):
    """Griewank's function, with time as last input: ripples that move over a wide bowl.

    Options: ``DynamicAckley``.
    """

    @staticmethod
    def function(dim: int, dtype: torch.dtype) -> SyntheticTestFunction:
        """On [-5, 5]^dim."""
        return Griewank(dim=dim, bounds=[(-5.0, 5.0)] * dim, dtype=dtype)


@named("dynamic-levy")
class DynamicLevy(_OfAnyDimension):
    """Levy's function, with time as last input: a ridged valley that is lifted as time passes.

    Options: ``DynamicAckley``.
    """

    function = Levy


@named("dynamic-styblinski-tang")
class DynamicStyblinskiTang(_OfAnyDimension):
    """Styblinski and Tang's function, with time as last input: two wells per coordinate, lifted as time passes.

    Options: ``DynamicAckley``.
    """

    function = StyblinskiTang

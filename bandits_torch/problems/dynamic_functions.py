"""Standard test functions that move: their last input is time."""

from __future__ import annotations

import math
from typing import Any

import torch
from botorch.test_functions import Ackley, Griewank, Hartmann, Levy, Shekel, StyblinskiTang
from botorch.test_functions.synthetic import SyntheticTestFunction
from gpytorch.kernels import Kernel, MaternKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.kernels import SpatioTemporalKernel
from bandits_torch.models.candidate_prior import CandidatePrior
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.problem import Knowledge
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import SMALLEST_RIDGE, covariance, regularised_norm

_POINTS, _MOMENTS = 256, 11  # what the knowledge is estimated from
_LAG = 0.1  # of the horizon, at which the correlation over time is measured


class DynamicFunction(ContinuousProblem):
    """A BoTorch test function of d + 1 inputs, negated, whose last input is time: f_t(x) = -F(x, t / T).

    Points are the domain of the first d inputs scaled to [0, 1]^d; the last input goes through its own bounds
    from step 1 to step T, however long a step takes. Rewards are scaled to mean 0 and standard deviation 1 over
    points and steps. ``time(step)`` is the step.

    Known beforehand: a Matern kernel of smoothness 5/2, lengthscale 0.3 sqrt(d) (a guess: the function is not a
    draw of it), noise variance R^2; estimated from the function at 256 points and 11 moments: B = the largest
    norm of its fit there, the forgetting rate that gives the correlation over a tenth of the horizon, and both
    variation budgets, in the RKHS norm that of the fits; and four candidate priors: that kernel
    without change, with forgetting at that rate, and times a Matern kernel over time of lengthscale T/10 and T/3.

    ``best``, the reference of the regret, is computed numerically.

    Args:
        function: a BoTorch test function, to be minimised.
        horizon: T.
        noise_scale: R, in standard deviations of the function.
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
        known = _optimizers(function)
        if known is not None:
            self.hints = ((known.to(box) - self._low) / (self._high - self._low))[:, :-1]
        self._mean, self._deviation = 0.0, 1.0
        points = self.domain.sample(_POINTS, 0)
        moments = [1 + (horizon - 1) * i / (_MOMENTS - 1) for i in range(_MOMENTS)]
        values = torch.stack([self._at(moment, points) for moment in moments])
        self._mean, self._deviation = float(values.mean()), float(values.std())
        self.knowledge = self._known((values - self._mean) / self._deviation, points, horizon)

    def expected(self, step: int, X: Tensor) -> Tensor:
        """-F(x, t / T), scaled."""
        self.check_step(step)
        return (self._at(step, X) - self._mean) / self._deviation

    def _at(self, moment: float, X: Tensor) -> Tensor:
        share = torch.full_like(X[..., :1], moment / (self.horizon or 1))
        inputs = self._low + (self._high - self._low) * torch.cat([X, share], -1)
        flat = inputs.reshape(-1, inputs.shape[-1])  # Shekel's and Hartmann's take no longer batches
        return -self._function.evaluate_true(flat).reshape(X.shape[:-1])

    def _known(self, values: Tensor, points: Tensor, horizon: int) -> Knowledge:
        """What an honest user would know, from values (moments x points)."""
        kernel = MaternKernel(nu=2.5).double()
        kernel.lengthscale = 0.3 * math.sqrt(self.dim)
        noise_variance = max(float(self.noise_scale[0]) ** 2, SMALLEST_RIDGE)
        K = covariance(kernel, points)
        norms = regularised_norm(K, values, noise_variance)
        correlation = float((values[1:] * values[:-1]).mean() / values.square().mean())
        rate = 1 - min(max(correlation, 0.05), 1 - 1e-4) ** (2 / (_LAG * horizon))
        return Knowledge(
            kernel=kernel.requires_grad_(False),
            noise_variance=noise_variance,
            rkhs_bound=float(norms.max()),
            forgetting_rate=rate,
            variation_budget=float(values.diff(dim=0).abs().amax(-1).sum()),
            rkhs_variation_budget=float(regularised_norm(K, values.diff(dim=0), noise_variance).sum()),
            priors=_candidates(kernel, rate, horizon),
        )

    def to(self, *args: Any, **kwargs: Any) -> DynamicFunction:
        """Move every tensor the problem holds, as ``Tensor.to`` does; returns self."""
        super().to(*args, **kwargs)
        self._function = self._function.to(*args, **kwargs)
        return self


def _optimizers(function: SyntheticTestFunction) -> Tensor | None:
    """Where its optima are, as far as BoTorch knows: of Hartmann's function of four inputs, say, it does not."""
    try:
        known = function.optimizers
    except NotImplementedError:
        return None
    return known if isinstance(known, Tensor) else None


def _candidates(kernel: Kernel, rate: float, horizon: int) -> list[CandidatePrior]:
    """No change, memory that fades, and smooth change over a tenth and over a third of the horizon."""
    smooth = []
    for share in (0.1, 1 / 3):
        time = MaternKernel(nu=2.5).double()
        time.lengthscale = share * horizon
        smooth.append(SpatioTemporalKernel(kernel, time.requires_grad_(False)))
    return [
        CandidatePrior(kernel, name="static"),
        CandidatePrior(kernel, forgetting_rate=rate, name="forgetting"),
        CandidatePrior(smooth[0], name="smooth, fast"),
        CandidatePrior(smooth[1], name="smooth, slow"),
    ]


@named("dynamic-ackley")
class DynamicAckley(DynamicFunction):
    """Ackley's function, its last input time: many local optima around one basin whose floor rises and falls.

    Args:
        dim: d, coordinates of a point.
        options: of ``DynamicFunction``.
    """

    def __init__(self, *, dim: int = 3, **options: Any) -> None:
        validation.positive_integer("dim", dim)
        super().__init__(Ackley(dim=dim + 1, dtype=torch.float64), **options)


@named("dynamic-hartmann6")
class DynamicHartmann6(DynamicFunction):
    """Hartmann's function in six dimensions, the sixth time: hills that rise and sink by turns.

    Args:
        options: of ``DynamicFunction``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(Hartmann(dim=6, dtype=torch.float64), **options)


@named("dynamic-shekel")
class DynamicShekel(DynamicFunction):
    """Shekel's function in four dimensions, the fourth time: narrow peaks that come and go.

    Args:
        options: of ``DynamicFunction``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(Shekel(m=10, dtype=torch.float64), **options)


@named("dynamic-griewank")
class DynamicGriewank(DynamicFunction):
    """Griewank's function, its last input time: ripples that move over a wide bowl.

    Args:
        dim: d, coordinates of a point.
        options: of ``DynamicFunction``.
    """

    def __init__(self, *, dim: int = 3, **options: Any) -> None:
        validation.positive_integer("dim", dim)
        bounds = [(-5.0, 5.0)] * (dim + 1)
        super().__init__(Griewank(dim=dim + 1, bounds=bounds, dtype=torch.float64), **options)


@named("dynamic-levy")
class DynamicLevy(DynamicFunction):
    """Levy's function, its last input time: a ridged valley that is lifted as time passes.

    Args:
        dim: d, coordinates of a point.
        options: of ``DynamicFunction``.
    """

    def __init__(self, *, dim: int = 3, **options: Any) -> None:
        validation.positive_integer("dim", dim)
        super().__init__(Levy(dim=dim + 1, dtype=torch.float64), **options)


@named("dynamic-styblinski-tang")
class DynamicStyblinskiTang(DynamicFunction):
    """Styblinski and Tang's function, its last input time: two wells a coordinate, lifted as time passes.

    Args:
        dim: d, coordinates of a point.
        options: of ``DynamicFunction``.
    """

    def __init__(self, *, dim: int = 3, **options: Any) -> None:
        validation.positive_integer("dim", dim)
        super().__init__(StyblinskiTang(dim=dim + 1, dtype=torch.float64), **options)

"""Standard test functions of global optimisation on a finite set of points."""

from __future__ import annotations

from typing import Any

import torch
from botorch.test_functions import Hartmann
from botorch.test_functions import Rosenbrock as BoTorchRosenbrock
from botorch.test_functions.synthetic import SyntheticTestFunction

from bandits_torch import validation
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import (
    SMALLEST_RIDGE,
    covariance,
    make_kernel,
    place_arms,
    range_noise_scale,
    regularised_norm,
)
from bandits_torch.problems.synthetic import StationaryProblem, stationary_knowledge


class StandardFunction(StationaryProblem):
    """A BoTorch test function, negated so that its minimum is the best arm, on random points of its domain.

    Chowdhury & Gopalan (2017), section 6: 100 d points uniform in the domain, squared exponential kernel of
    lengthscale 0.2, R^2 = 1 % of the range. The paper does not give its scaling; here the arms' features are
    the domain scaled to [0, 1]^d, and rewards are scaled.

    Known beforehand: the kernel (a guess: the function is not a draw of it), noise variance R^2,
    B = the norm of the function fitted on the arms to within the noise (``regularised_norm``).

    Args:
        function: a BoTorch test function, to be minimised.
        num_arms: N; None: 100 d.
        scale: ``"standardise"``: mean 0 and standard deviation 1 over the arms; ``"range"``: from 0 to 1.
        noise_scale: R; None: R^2 = 1 % of the range (of the scaled rewards).
        kernel, lengthscale, nu: of the known kernel.
        replicates: all have the same function and arms, and independent noise.
        seed: of the points.

    Raises ValueError for another ``scale``, fewer than 2 arms, and ``replicates`` below 1.
    """

    def __init__(
        self,
        function: SyntheticTestFunction,
        *,
        num_arms: int | None = None,
        scale: str = "standardise",
        noise_scale: float | None = None,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        replicates: int = 1,
        seed: int = 0,
    ) -> None:
        validation.require(scale in ("standardise", "range"), "scale", scale, "'standardise' or 'range'")
        validation.positive_integer("replicates", replicates)
        num_arms = 100 * function.dim if num_arms is None else num_arms
        validation.require(
            isinstance(num_arms, int) and num_arms >= 2, "num_arms", num_arms, "an integer >= 2"
        )
        arms = place_arms("uniform", num_arms, function.dim, seed)
        low, high = torch.as_tensor(function.bounds, dtype=arms.dtype)
        rewards = -function.evaluate_true(low + (high - low) * arms)
        if scale == "standardise":
            rewards = (rewards - rewards.mean()) / rewards.std()
        else:
            rewards = (rewards - rewards.min()) / (rewards.max() - rewards.min())
        functions = rewards.expand(replicates, -1)
        super().__init__(arms, functions, range_noise_scale(functions, noise_scale))
        k = make_kernel(kernel, lengthscale, nu)
        ridge = max(float(self.noise_scale[0]) ** 2, SMALLEST_RIDGE)
        norm = regularised_norm(covariance(k, arms), rewards, ridge)
        self.knowledge = stationary_knowledge(self, k, norm.expand(replicates))


@named("rosenbrock", stationary=True)
class Rosenbrock(StandardFunction):
    """Rosenbrock's valley, negated, on 100 d random points of its domain.

    Args:
        dim: d.
        options: as for ``StandardFunction``.

    Raises ValueError unless ``dim`` is an integer >= 2.
    """

    def __init__(self, *, dim: int = 2, **options: Any) -> None:
        validation.require(validation.positive_integer("dim", dim) >= 2, "dim", dim, "an integer >= 2")
        super().__init__(BoTorchRosenbrock(dim=dim), **options)


@named("hartmann3", stationary=True)
class Hartmann3(StandardFunction):
    """Hartmann's function in three dimensions, negated, on 300 random points of its domain.

    Args:
        options: as for ``StandardFunction``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(Hartmann(dim=3), **options)

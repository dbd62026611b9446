"""Confidence widths for a reward function drawn from the model's own prior (the Bayesian setting).

With f ~ GP(prior) and Gaussian noise of variance lambda, f(x) given the data is exactly
N(mu_{t-1}(x), sigma_{t-1}^2(x)); a union bound over arms and steps gives the width. The model must hold
all observations that its choices depended on, so these widths are not valid for sliding windows. For the definition of
a width, and for functions of bounded RKHS norm, see ``widths.py``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.parameters import Parameter, check_step, checked, clock, like
from bandits_torch.theory.widths import Width


class SrinivasBayesianWidth(Width):
    """GP-UCB on N arms: width_t = sqrt(2 ln(N pi^2 t^2 / (6 delta))).

    Source: Srinivas et al. 2010, Theorem 1 (Lemma 5.1); equals sqrt(beta_t). Also TV-GP-UCB (Bogunovic et al.
    2016) with a model that drifts as the function does. Valid for f drawn from the prior and Gaussian noise
    of variance lambda; after a restart, ``step`` counts from 1 again and the guarantee is per interval.

    Args:
        num_arms: N >= 1.
        delta: failure probability.

    Raises ValueError unless ``num_arms`` is an integer >= 1 and 0 < ``delta`` < 1.
    """

    def __init__(self, num_arms: int, delta: Parameter) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.delta = checked(validation.probability, "delta", delta)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """sqrt(2 ln(N pi^2 t^2 / (6 delta)))."""
        t, delta = clock(step, model), like(model.noise_variance, self.delta)
        return torch.sqrt(2 * torch.log(self.num_arms * math.pi**2 * t**2 / (6 * delta)))

    def root_of_gain(self, step: Tensor, model: OnlineModel) -> tuple[Any, Any, Any]:
        """By the step alone."""
        return self.at(step, model), 0.0, 0.0


class SrinivasContinuousWidth(Width):
    """GP-UCB on [0, r]^d: width_t = sqrt(2 ln(2 pi^2 t^2/(3 delta)) + 2 d ln(d t^2 b r sqrt(ln(4 d a/delta)))).

    Source: Srinivas et al. 2010, Theorem 2; equals sqrt(beta_t). Valid for f drawn from the prior with
    P(sup_x |df/dx_j| > L) <= a exp(-(L/b)^2) for every j, and Gaussian noise of variance lambda; at the points
    played, and elsewhere at the nearest grid point, up to 1/t^2.

    Args:
        dim: d, dimension of the domain.
        r: side of the domain, > 0.
        a, b: constants of the derivative bound, > 0, with 4 d a > delta; b in units of reward over length.
        delta: failure probability.

    Raises ValueError unless ``dim`` is an integer >= 1 and ``a`` > delta / (4 dim).
    """

    def __init__(self, dim: int, r: Parameter, a: Parameter, b: Parameter, delta: Parameter) -> None:
        self.dim = validation.positive_integer("dim", dim)
        self.r = checked(validation.positive, "r", r)
        self.a = checked(validation.positive, "a", a)
        self.b = checked(validation.positive, "b", b)
        self.delta = checked(validation.probability, "delta", delta)
        too_small = 4 * dim * torch.as_tensor(a).min().item() <= torch.as_tensor(delta).max().item()
        validation.require(not too_small, "a", a, f"above delta/(4 dim), with delta = {delta}")

    _moments = 1  # T: the times at which the function is predicted

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """sqrt(2 ln(2 pi^2 t^2/(3 delta)) + 2 d ln(tau_t T)), tau_t = max(1, d t^2 b r sqrt(ln(4 d a/delta)))."""
        t, d = clock(step, model), self.dim
        r, a, b, delta = (like(model.noise_variance, p) for p in (self.r, self.a, self.b, self.delta))
        steepest = b * torch.sqrt(torch.log(torch.ones_like(t) * (4 * d * a / delta)))
        tau = (d * t**2 * r * steepest).clamp(min=1)  # grid points per side, and there is one at least
        points = torch.log(self._moments * tau)
        return torch.sqrt(2 * torch.log(2 * math.pi**2 * t**2 / (3 * delta)) + 2 * d * points)


class PriorEliminationFiniteWidth(Width):
    """PE-GP-UCB on N arms: width_t = sqrt(2 ln(T N pi^2 t^2 / (3 delta))).

    Source: Ziomek et al. 2024, Theorem 4.1 (A); equals their beta_t^p. It is their Theorem 3.1 at
    delta_A = delta/2: the other half covers the noise of the elimination test, so the band fails with
    probability at most delta/2. T counts the times at which the function is predicted: with a space-time prior, the
    band holds at every arm and time. Valid under the true prior, with Gaussian noise of variance lambda.

    Args:
        num_arms: N >= 1.
        horizon: T >= 1.
        delta: failure probability of the whole algorithm.

    Raises ValueError unless ``num_arms`` and ``horizon`` are integers >= 1 and 0 < ``delta`` < 1.
    """

    def __init__(self, num_arms: int, horizon: int, delta: Parameter) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.horizon = validation.positive_integer("horizon", horizon)
        self.delta = checked(validation.probability, "delta", delta)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """sqrt(2 ln(T N pi^2 t^2 / (3 delta)))."""
        t, delta = clock(step, model), like(model.noise_variance, self.delta)
        return torch.sqrt(2 * torch.log(self.horizon * self.num_arms * math.pi**2 * t**2 / (3 * delta)))


class PriorEliminationContinuousWidth(SrinivasContinuousWidth):
    """PE-GP-UCB on [0, r]^d: width_t = sqrt(2 ln(pi^2 t^2/(3 D)) + 2 d ln(T d t^2 r b sqrt(ln(2 d a/D)))).

    Source: Ziomek et al. 2024, Theorem 4.1 (B); equals their beta_t^p; D is their delta_A. Two corrections.
    The theorem leaves delta_A open: D = delta/2, as part (A) has it. And b is that of Srinivas et al. 2010,
    P(sup_x |df/dx_j| > L) <= a exp(-(L/b)^2) for every j and all times: the exp(-L^2/b) printed in their
    Assumption 3.2 would need sqrt(b) in the width, so that its b makes the width too small wherever b < 1.

    Valid at the points played, and elsewhere at the nearest point of a grid and up to 1/t^2; under the true
    prior, with Gaussian noise of variance lambda. T enters to the power d where the proof needs it once. At T = 1 it is
    ``SrinivasContinuousWidth``.

    Args:
        dim: d, dimension of the domain.
        horizon: T >= 1.
        r: side of the domain, > 0.
        a, b: constants of the derivative bound, > 0, with 2 d a > delta/2; b in units of reward over length.
        delta: failure probability of the whole algorithm.

    Raises:
        ValueError: also when 2 d a <= delta/2: the inner logarithm would not be positive.
    """

    def __init__(
        self, dim: int, horizon: int, r: Parameter, a: Parameter, b: Parameter, delta: Parameter
    ) -> None:
        super().__init__(dim, r, a, b, delta)
        self.horizon = self._moments = validation.positive_integer("horizon", horizon)


def elimination_xi(
    step: int | Tensor, num_priors: int, noise_scale: float | Tensor, delta: float, form: str = "two-sided"
) -> float | Tensor:
    """xi_t = 2 R^2 ln(2 |U| pi^2 t^2 / (3 delta)): |sum of n noises| <= sqrt(xi_t n) for every prior and step.

    Source: Ziomek et al. 2024, Lemma 5.1 at delta_B = delta/2, so it fails with probability at most delta/2. Their
    print lacks the 2 inside the logarithm; since the event is two-sided, that form fails with probability up to delta.

    Args:
        step: t >= 1.
        num_priors: |U|, the initial number of priors.
        noise_scale: R.
        delta: failure probability of the whole algorithm.
        form: ``"two-sided"`` or ``"printed"``.

    ``step``, ``noise_scale``: numbers or tensors that broadcast together, as the result. Raises ValueError for another
    ``form``.
    """
    validation.require(form in ("two-sided", "printed"), "form (xi)", form, "'two-sided' or 'printed'")
    check_step(step)
    validation.positive_integer("num_priors", num_priors)
    validation.probability("delta", delta)
    if not isinstance(noise_scale, Tensor):
        validation.positive("noise_scale", noise_scale)
    return xi_at(step, num_priors, noise_scale, delta, 2 if form == "two-sided" else 1)


def xi_at(
    step: int | Tensor, num_priors: int, noise_scale: float | Tensor, delta: float, sides: int
) -> float | Tensor:
    """``elimination_xi`` of what was checked; ``sides``: 2, or 1 as printed."""
    events = sides * num_priors * math.pi**2 * step**2 / (3 * delta)
    return 2 * noise_scale**2 * (torch.log(events) if isinstance(events, Tensor) else math.log(events))

"""Widths for a reward function drawn from the model's prior (the Bayesian setting).

With f ~ GP(prior) and Gaussian noise of variance lambda, f(x) given the data is exactly
N(mu_{t-1}(x), sigma_{t-1}^2(x)). Most widths are union bounds, over arms and steps or over the limits of one arm.
``simultaneous_width`` is a quantile of the joint posterior over all arms of one step. The model must hold all
observations on which the choices depended, so the widths are not valid for sliding windows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.widths import Parameter, Width, check_step, checked, clock, like, log, root


class SrinivasBayesianWidth(Width):
    """GP-UCB on N arms: width_t = sqrt(2 ln(N pi^2 t^2 / (6 delta))).

    Source: Srinivas et al. 2010, Theorem 1 (Lemma 5.1); equals sqrt(beta_t). Also for TV-GP-UCB (Bogunovic et al.
    2016), whose model drifts as the function does. Valid for f drawn from the prior and Gaussian noise of variance
    lambda. After a restart ``step`` counts from 1 again. If restarts do not depend on rewards, the guarantee holds for
    each interval separately.

    Args:
        num_arms: N >= 1.
        delta: failure probability.

    Raises ValueError unless ``num_arms`` is an integer >= 1 and 0 < ``delta`` < 1.
    """

    of_steps_alone = True
    _events = 1  # the factor by which there are more events than N at each step

    def __init__(self, num_arms: int, delta: Parameter) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.delta = checked(validation.probability, "delta", delta)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        noise = model.noise_variance
        t, delta = like(noise, step), like(noise, self.delta)
        return root(noise, 2 * log(self._events * self.num_arms * math.pi**2 * t**2 / (6 * delta)))


class CGPUCBWidth(SrinivasBayesianWidth):
    """CGP-UCB on N arms under M contexts: width_t = sqrt(2 ln(N M pi^2 t^2 / (6 delta))).

    Source: Krause & Ong 2011, Theorem 1, case 1; equals sqrt(beta_t), with |X| = N M pairs of arm and context.
    Valid for f over the pairs drawn from the model's prior and Gaussian noise of variance lambda, for any sequence of
    contexts, even one that depends on f.

    With ``num_contexts`` 1 the union is over the N pairs of each step's context. This is valid for any number of
    contexts, even infinitely many, if they do not depend on f given the past observations (drawn at random, or by rules
    that use rewards alone). Given the past, f at these pairs is then N(mu_{t-1}, sigma_{t-1}^2), as in Srinivas et
    al. 2010, Lemma 5.1, and the regret bound of Theorem 1 needs no other pairs.

    Args:
        num_arms, num_contexts, delta: N, M >= 1, and the failure probability.

    Raises ValueError unless ``num_arms`` and ``num_contexts`` are integers >= 1 and 0 < ``delta`` < 1.
    """

    def __init__(self, num_arms: int, num_contexts: int, delta: Parameter) -> None:
        validation.positive_integer("num_arms", num_arms)
        self.num_contexts = validation.positive_integer("num_contexts", num_contexts)
        super().__init__(num_arms * num_contexts, delta)


class SrinivasContinuousWidth(Width):
    """GP-UCB on [0, r]^d: width_t = sqrt(2 ln(2 pi^2 t^2/(3 delta)) + 2 d ln(d t^2 b r sqrt(ln(4 d a/delta)))).

    Source: Srinivas et al. 2010, Theorem 2; equals sqrt(beta_t). Valid for f drawn from the prior with
    P(sup_x |df/dx_j| > L) <= a exp(-(L/b)^2) for every j, and Gaussian noise of variance lambda. It holds at the points
    played, and elsewhere at the nearest grid point, up to 1/t^2.

    Args:
        dim: d, dimension of the domain.
        r: side of the domain, > 0.
        a, b: constants of the derivative bound, > 0, with 4 d a > delta; b in units of reward over length.
        delta: failure probability.

    Raises ValueError unless ``dim`` is an integer >= 1 and ``a`` > delta / (4 dim).
    """

    _times = 1  # T: the number of times at which the function is predicted

    def __init__(self, dim: int, r: Parameter, a: Parameter, b: Parameter, delta: Parameter) -> None:
        self.dim = validation.positive_integer("dim", dim)
        self.r = checked(validation.positive, "r", r)
        self.a = checked(validation.positive, "a", a)
        self.b = checked(validation.positive, "b", b)
        self.delta = checked(validation.probability, "delta", delta)
        too_small = 4 * dim * torch.as_tensor(a).min().item() <= torch.as_tensor(delta).max().item()
        validation.require(not too_small, "a", a, f"above delta/(4 dim), with delta = {delta}")

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """sqrt(2 ln(2 pi^2 t^2/(3 delta)) + 2 d ln(tau_t T)), tau_t = max(1, d t^2 b r sqrt(ln(4 d a/delta)))."""
        t, d = clock(step, model), self.dim
        r, a, b, delta = (like(model.noise_variance, p) for p in (self.r, self.a, self.b, self.delta))
        steepest = b * torch.sqrt(torch.log(torch.ones_like(t) * (4 * d * a / delta)))
        tau = (d * t**2 * r * steepest).clamp(min=1)  # grid points per side, at least one
        points = torch.log(self._times * tau)
        return torch.sqrt(2 * torch.log(2 * math.pi**2 * t**2 / (3 * delta)) + 2 * d * points)


class PriorEliminationFiniteWidth(SrinivasBayesianWidth):
    """PE-GP-UCB on N arms: width_t = sqrt(2 ln(T N pi^2 t^2 / (3 delta))).

    Source: Ziomek et al. 2024, Theorem 4.1 (A); equals their beta_t^p. It is their Theorem 3.1 at delta_A = delta/2, so
    the band fails with probability at most delta/2; the other half covers the noise of the elimination test. T is the
    number of times at which the function is predicted: with a space-time prior, the band holds at every arm and time.
    Valid under the true prior, with Gaussian noise of variance lambda.

    Args:
        num_arms: N >= 1.
        horizon: T >= 1.
        delta: failure probability of the whole algorithm.

    Raises ValueError unless ``num_arms`` and ``horizon`` are integers >= 1 and 0 < ``delta`` < 1.
    """

    def __init__(self, num_arms: int, horizon: int, delta: Parameter) -> None:
        super().__init__(num_arms, delta)
        self.horizon = validation.positive_integer("horizon", horizon)
        self._events = 2 * horizon


class PriorEliminationContinuousWidth(SrinivasContinuousWidth):
    """PE-GP-UCB on [0, r]^d: width_t = sqrt(2 ln(pi^2 t^2/(3 D)) + 2 d ln(T d t^2 r b sqrt(ln(2 d a/D)))).

    Source: Ziomek et al. 2024, Theorem 4.1 (B); equals their beta_t^p; D is their delta_A. Two corrections.
    The theorem leaves delta_A open: here D = delta/2, as in part (A). And b is defined as by Srinivas et al. 2010,
    P(sup_x |df/dx_j| > L) <= a exp(-(L/b)^2) for every j and all times. The exp(-L^2/b) printed in their
    Assumption 3.2 would need sqrt(b) in the width, and makes the width too small if b < 1.

    Valid under the true prior, with Gaussian noise of variance lambda, at the points played, and elsewhere at the
    nearest grid point, up to 1/t^2. The print has T to the power d, although the proof needs only T. At T = 1 it is
    ``SrinivasContinuousWidth``.

    Args:
        dim: d, dimension of the domain.
        horizon: T >= 1.
        r: side of the domain, > 0.
        a, b: constants of the derivative bound, > 0, with 2 d a > delta/2; b in units of reward over length.
        delta: failure probability of the whole algorithm.

    Raises ValueError unless ``dim`` and ``horizon`` are integers >= 1 and 2 d a > delta/2 (the inner logarithm is > 0).
    """

    def __init__(
        self, dim: int, horizon: int, r: Parameter, a: Parameter, b: Parameter, delta: Parameter
    ) -> None:
        super().__init__(dim, r, a, b, delta)
        self.horizon = self._times = validation.positive_integer("horizon", horizon)


def elimination_xi(
    step: int | Tensor, num_priors: int, noise_scale: float | Tensor, delta: float, form: str = "two-sided"
) -> float | Tensor:
    """xi_t = 2 R^2 ln(2 |U| pi^2 t^2 / (3 delta)): |sum of n noises| <= sqrt(xi_t n) for every prior and step.

    Source: Ziomek et al. 2024, Lemma 5.1 at delta_B = delta/2, so it fails with probability at most delta/2. The paper
    prints no 2 inside the logarithm: the last line of its proof drops that of the two-sided bound 2 exp(-xi/(2 R^2))
    for sub-Gaussian noise. Without it, the bound is delta. For normal noise it is delta/2 all the same, because
    P(|Z| > c) <= exp(-c^2/2).

    Args:
        step: t >= 1.
        num_priors: |U|, the initial number of priors.
        noise_scale: R.
        delta: failure probability of the whole algorithm.
        form: ``"two-sided"`` or ``"printed"``.

    ``step`` and ``noise_scale`` are numbers or tensors that broadcast together, and so is the result. Raises ValueError
    for any other ``form``, and numbers out of range.
    """
    validation.one_of("form (xi)", form, "two-sided", "printed")
    check_step(step)
    validation.positive_integer("num_priors", num_priors)
    validation.probability("delta", delta)
    if not isinstance(noise_scale, Tensor):
        validation.positive("noise_scale", noise_scale)
    return xi_at(step, num_priors, noise_scale, delta, 2 if form == "two-sided" else 1)


def xi_at(
    step: int | Tensor, num_priors: int, noise_scale: float | Tensor, delta: float, sides: int
) -> float | Tensor:
    """``elimination_xi`` without checks, for use at every step; ``sides``: 2, or 1 as printed."""
    events = sides * num_priors * math.pi**2 * step**2 / (3 * delta)
    return 2 * noise_scale**2 * (torch.log(events) if isinstance(events, Tensor) else math.log(events))


class PosteriorSafetyWidth(Width):
    """A safe arm's distance from each limit, in sigma: width_t = z(1 - delta_t / k), z the normal quantile, k limits.

    ``guarantee="step"``, delta_t = delta: at each step, the chosen arm breaks a limit with probability at most delta.
    ``guarantee="run"``, delta_t = 6 delta / (pi^2 t^2): with probability 1 - delta, no chosen arm ever breaks one. Safe
    policies count choices: t is one more than the rewards learned plus the open questions. So the guarantee does not
    cover questions that never got a reward.

    Valid for functions drawn from their models' priors, including drift, and Gaussian noise of known variance. Given
    the data, g(x, t) is normal with the posterior's moments, and the chosen arm is a function of the data. So it breaks
    a limit that is width_t deviations away with probability at most delta_t / k. The union is over limits and steps,
    not over arms, unlike in widths that hold for all arms at once (``SrinivasBayesianWidth``). Not valid for functions
    of bounded RKHS norm (use ``IGPWidth``), nor for models that forget data on which choices depended.

    Source: the union bound of Srinivas et al. 2010, Lemma 5.1, over chosen arms only; the width is ours.

    Args:
        limits: k >= 1, the number of finite limits over all outcomes; an outcome with two limits counts twice.
        guarantee: ``"run"`` or ``"step"``.

    Raises ValueError for arguments out of range.
    """

    def __init__(self, limits: int, delta: float, guarantee: str = "run") -> None:
        self.limits = validation.positive_integer("limits", limits)
        self.delta = validation.probability("delta", delta)
        validation.one_of("guarantee", guarantee, "run", "step")
        self.guarantee = guarantee

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        t = clock(step, model)
        delta = torch.full_like(t, self.delta)
        if self.guarantee == "run":
            delta = 6 * delta / (math.pi * t) ** 2
        return -torch.special.ndtri(delta / self.limits).clamp_max(0.0)


def rank(draws: int, delta: float) -> int:
    """k = ceil((M + 1)(1 - delta)): the k-th least of M draws is exceeded with probability at most delta.

    Raises ValueError unless 0 < ``delta`` < 1 and ``draws`` is an integer M >= 1/delta - 1, so k <= M.
    """
    validation.probability("delta", delta)
    k = math.ceil((validation.positive_integer("draws", draws) + 1) * (1 - delta) - 1e-9)  # against rounding
    validation.require(k <= draws, "draws", draws, f"at least {1 / delta - 1:g} for delta = {delta}")
    return max(k, 1)


def simultaneous_width(draws: Tensor, deviation: Tensor, delta: float) -> Tensor:
    """The k-th least of max_x |g_m(x)| / sigma(x) over M draws g_m ~ N(0, C), k = ceil((M + 1)(1 - delta)): (...,).

    Theorem. Let f given the past be N(mu, C) over the arms, and the draws independent of f given the past. Then
    max_x |f(x) - mu(x)| / sigma(x) and the M maxima of the draws are exchangeable, so with probability at least
    k/(M + 1) >= 1 - delta, given the past,

        |f(x) - mu(x)| <= width sigma(x)    for all arms x at once.

    For a continuous distribution the probability is exactly k/(M + 1): there is no union bound over correlated arms,
    and no simulation error. Valid at each step, for any rule that chose the earlier arms; with delta/T, over T steps at
    once. Srinivas et al. 2010, Theorem 1, has a union bound instead of the quantile.

    Args:
        draws: ``... x M x N`` of N(0, C).
        deviation: sigma, ``... x N``; arms with sigma = 0 do not count.
        delta: failure probability.

    Raises ValueError unless 0 < ``delta`` < 1 and M >= 1/delta - 1.
    """
    k = rank(draws.shape[-2], delta)
    certain = (deviation <= 0).unsqueeze(-2)
    ratio = (draws.abs() / deviation.unsqueeze(-2)).masked_fill(certain, 0.0).amax(-1)
    return ratio.kthvalue(k, dim=-1).values


def mean_excess(delta: float, draws: int) -> float:
    """E h(A), h(a) = phi(c_a) - c_a a, A ~ Beta(M + 1 - k, k): bounds the mean excess over a band from M draws.

    Theorem. Let g be Gaussian with sigma = 1 and P(max_x |g(x)| > w) = a. Then E (max_x |g(x)| - w)_+ <= h(a), with c_a
    the 1 - a quantile of N(0, 1). Proof: max_x |g(x)| is a function of standard normal numbers with Lipschitz constant
    1, so by the Gaussian isoperimetric inequality (Borell 1975) P(max_x |g(x)| > w + u) <= 1 - Phi(c_a + u). Integrate
    over u >= 0. The k-th least of M draws is exceeded with a probability A that has this Beta distribution.

    So a band that holds at each step with probability 1 - delta suffices for a regret bound, although the proof of
    GP-UCB uses one that holds at all steps at once. Given the past, for the arm x_t of the largest mu + w_t sigma,

        E [max_x f_t(x) - f_t(x_t)] <= E [w_t sigma_t(x_t)] + E h(A) max_x sigma_t(x),

    since f_t(x*) <= mu(x*) + w sigma(x*) + (Z - w)_+ sigma(x*) with Z the largest ratio, and E f_t(x_t) = mu(x_t).
    E h(A) is .048 at delta = .1 and 199 draws. Raises ValueError as ``simultaneous_width`` does.
    """
    k = rank(draws, delta)
    cells = 10_000  # of a sum that approximates the integral over [0, 1]
    a = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    weight = torch.softmax((draws - k) * a.log() + (k - 1) * torch.log1p(-a), 0)
    quantile = -torch.special.ndtri(a)
    density = torch.exp(-(quantile**2) / 2) / math.sqrt(2 * math.pi)
    return float(weight @ (density - quantile * a))

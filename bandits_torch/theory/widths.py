"""Widths for a function of bounded RKHS norm, with growing data and with forgetting, and the maximum information gain
gamma_n that they use. The package's docstring defines a width and the symbols.

gamma_n = max over n points of 1/2 log det(I + K_n / lambda). Every provider is called the same way,

    gain(points, model) -> tensor that broadcasts to model.batch_shape

with ``points`` the number of observations n, an integer or a tensor of integers that broadcasts to
``model.batch_shape``. Report the provider with each result: their values differ by large factors.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel, require_within, within
from bandits_torch.models.sketch.sketched_gp import SketchedGP

GainProvider = Callable[[int | Tensor, OnlineModel], Tensor]
_KINDS = ("squared_exponential", "matern", "linear")


class RealisedGain:
    """The gain of the observations held, 1/2 log det(I + K_t / lambda), which the model keeps; ``points`` is ignored.

    Never above gamma_n. Valid if the proof uses gamma_n only as a bound on this log determinant, as for the widths of
    Chowdhury & Gopalan (2017) and Zhou & Shroff (2021). Theorem 3 of Srinivas et al. (2010) is stated for the maximum.
    """

    counts_points = False  # a width need not compute ``points``

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        """The model's ``information_gain``, shape ``model.batch_shape``."""
        return model.information_gain


@validation.names_arguments
class MaximumGain:
    """The greedy maximum over a finite arm set with repeated pulls.

    Each pick is the arm of largest posterior variance. The gain is monotone and submodular, so (Nemhauser, Wolsey &
    Fisher 1978) greedy_n <= gamma_n <= greedy_n / (1 - 1/e).

    Args:
        covariance: prior covariance K over the arms, N x N or P x N x N.
        noise_variance: lambda > 0, a number or a tensor that broadcasts to the covariance's batch (P,).
        max_points: the largest n of any call.
        upper_bound: True gives greedy_n / (1 - 1/e), which a confidence width needs; False gives greedy_n.

    Cost: O(P N^2) for each of ``max_points`` picks, once (in float64 on the CPU); O(1) per call.
    Values have the model's dtype; keep ``covariance`` on the model's device.

    Raises ValueError at construction for a matrix that is not a covariance, a noise variance that is not positive and
    ``max_points`` below 1, and at a call for an n outside 0..``max_points``. On a GPU a check would synchronise, so
    such entries of a tensor give NaN instead.
    """

    of_arms = True

    def __init__(
        self, covariance: Tensor, noise_variance: float | Tensor, max_points: int, upper_bound: bool = True
    ) -> None:
        self.max_points = validation.positive_integer("max_points", max_points)
        prior = validation.covariance("covariance", covariance).detach().to(dtype=torch.float64, device="cpu")
        batch = covariance.shape[:-2]
        given = validation.numbers("noise_variance", noise_variance, prior)
        noise = checked(validation.positive, "noise_variance", given)
        expected = f"that broadcasts to {tuple(batch)}"
        validation.shape_is("noise_variance", noise, within(batch, noise.shape), expected)
        C, noise, size = prior.clone(), noise.expand(batch), prior.shape[-1]
        largest = C.new_empty(max_points, *batch)
        variance = torch.diagonal(C, dim1=-2, dim2=-1)  # a view: it follows C
        for n in range(max_points):
            largest[n], arm = variance.max(-1)
            row = C.gather(-2, arm[..., None, None].expand(*batch, 1, size)).squeeze(-2)
            scaled = row / (largest[n] + noise).unsqueeze(-1)
            C.addcmul_(row.unsqueeze(-1), scaled.unsqueeze(-2), value=-1)  # C -= C_i C_i^T / (C_ii + lambda)
        gains = 0.5 * torch.log1p(largest.clamp(min=0) / noise).cumsum(0)
        table = torch.cat([torch.zeros_like(gains[:1]), gains]).movedim(0, -1)  # of 0, 1, ..., max_points
        self._table = (table / (1 - math.exp(-1)) if upper_bound else table).to(covariance)

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        """gamma of ``points`` observations, shape (P,) broadcast with the shape of ``points``."""
        table = self._table.to(model.noise_variance)
        expected = f"between 0 and max_points = {self.max_points}"
        if not isinstance(points, Tensor):
            validation.require(0 <= points <= self.max_points, "points", points, expected)
            return table[..., points]
        outside = (points < 0) | (points > self.max_points)
        if points.device.type == "cpu":
            validation.require(not bool(outside.any()), "points", points, expected)
        shape = torch.broadcast_shapes(points.shape, table.shape[:-1])
        index = points.clamp(0, self.max_points).expand(shape).unsqueeze(-1)
        found = table.expand(*shape, -1).gather(-1, index.to(table.device)).squeeze(-1)
        return torch.where(outside.to(table.device), math.nan, found)


@validation.names_arguments
class GrowthBound:
    """The known growth rate of gamma_n, times a constant that the theorems do not give.

    * ``"squared_exponential"``: (ln n)^{d+1}
    * ``"matern"``: n^{d/(2 nu + d)} (ln n)^{2 nu/(2 nu + d)}, the version of Vakili et al. (2021);
      Srinivas et al. (2010), as Chowdhury & Gopalan (2017) quote them, had n^{d(d+1)/(2 nu + d(d+1))} ln n
    * ``"linear"``: d ln n

    These are orders of growth on a compact domain. The true factor depends on the length-scale, the domain and lambda,
    so a width built on them is guaranteed only if ``constant`` is large enough. An n from 1 to e counts as e, because
    gamma_1 > 0 = ln 1; gamma_0 = 0.

    Args:
        kind: one of the three names above.
        dim: d, dimension of the inputs.
        nu: smoothness of the Matern kernel, for ``"matern"`` only.
        constant: the unknown factor, > 0.

    Raises ValueError for arguments out of range.
    """

    of_points_alone = True  # whether it depends on the number of points alone, not on the model's state

    def __init__(self, kind: str, dim: int, nu: float | None = None, constant: float = 1.0) -> None:
        validation.one_of("kind", kind, *_KINDS)
        validation.require((nu is not None) == (kind == "matern"), "nu", nu, "given only with 'matern'")
        self.kind = kind
        self.dim = validation.positive_integer("dim", dim)
        self.nu = None if nu is None else validation.positive("nu", nu)
        self.constant = validation.positive("constant", constant)

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        """The bound at ``points`` observations, in the shape of ``points``."""
        if not isinstance(points, Tensor):
            validation.require(points >= 0, "points", points, "an integer >= 0")
            points = model.noise_variance.new_full((), points)
        n = points.to(model.noise_variance)
        at_least_e, d = n.clamp(min=math.e), self.dim
        log_n = torch.log(at_least_e)
        if self.kind == "squared_exponential":
            growth = log_n ** (d + 1)
        elif self.nu is None:
            growth = d * log_n
        else:
            growth = at_least_e ** (d / (2 * self.nu + d)) * log_n ** (2 * self.nu / (2 * self.nu + d))
        return torch.where(n > 0, self.constant * growth, 0.0)


Parameter = float | Tensor  # a tensor has one value per member of a model's batch
_FORMS = ("theory", "printed")


class Width(Described, ABC):
    """A rule for the number that multiplies sigma. Subclasses implement ``at``."""

    of_steps_alone = False  # whether it depends on the step alone, not on what the model has learned

    @property
    def of_arms(self) -> bool:
        """Whether it, its ``base`` or its ``gain`` was made for one set of arms, by their number or covariance."""
        parts = vars(self).values()
        return hasattr(self, "num_arms") or any(getattr(part, "of_arms", False) for part in parts)

    def __call__(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """``at``, after checks: ValueError for an integer step below 1, and for a width that must be bound first."""
        check_step(step)
        self.check_bound()
        return self.at(step, model)

    @abstractmethod
    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """The width before the choice at ``step``.

        Args:
            step: 1, 2, ... since the last restart, an integer or an integer tensor that broadcasts to
                ``model.batch_shape``. Since that restart, n = step - 1 observations have been made.
            model: the model whose sigma the width multiplies.

        Returns:
            A tensor that broadcasts to ``model.batch_shape``, of the dtype and device of its noise variance.
        """

    def root_of_gain(self, step: Tensor, model: OnlineModel) -> tuple[Any, Any, Any] | None:
        """(A, P, Q) such that ``at`` is A + sqrt(P g + Q) at these steps, (k, 1), g the model's realised gain.

        None for a width of another form. Compiled blocks of steps use it.
        """
        return (self.at(step, model), 0.0, 0.0) if self.of_steps_alone else None

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        """The width for a policy with this model and forgetting rule: itself, or a copy with values read from the rule.

        Raises ValueError if the width and the rule have different values, or if neither has one, and for a parameter
        that does not have one number for all members of the model's batch or for each.
        """
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                require_within(model.batch_shape, value.shape, name)
        return self

    def check_bound(self) -> None:
        """Raise ValueError if the width needs a value from a policy's forgetting rule and has not been bound to one."""


class WidthAround(Width):
    """Base class of widths that modify another width, ``base``."""

    base: Width

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        """A copy around the bound ``base``."""
        super().bind(model, forgetting)
        base = self.base.bind(model, forgetting)
        if base is self.base:
            return self
        bound = copy.copy(self)
        bound.base = base
        return bound

    def check_bound(self) -> None:
        self.base.check_bound()


class ConstantWidth(Width):
    """width = c, for tuning. No theorem covers it. Raises ValueError unless c >= 0."""

    of_steps_alone = True

    def __init__(self, value: Parameter) -> None:
        self.value = checked(validation.non_negative, "value", value)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        return clock(self.value, model)


class NormWidth(Width):
    """Base class of widths for a function of bounded RKHS norm: checks B, R and delta."""

    def __init__(self, rkhs_bound: Parameter, noise_scale: Parameter | None, delta: Parameter) -> None:
        self.rkhs_bound = checked(validation.non_negative, "rkhs_bound", rkhs_bound)
        given = noise_scale is not None
        self.noise_scale = checked(validation.positive, "noise_scale", noise_scale) if given else None
        self.delta = checked(validation.probability, "delta", delta)

    def constants(self, model: OnlineModel) -> tuple[Parameter, Parameter, Parameter]:
        """(B, R, delta) for arithmetic with the model's noise variance."""
        noise = model.noise_variance
        return like(noise, self.rkhs_bound), scale_of(noise, self.noise_scale), like(noise, self.delta)


class SrinivasRKHSWidth(Width):
    """GP-UCB for a function of bounded norm: width_t = sqrt(2 B^2 + 300 gamma_{t-1} ln^3(t/delta)).

    Source: Srinivas et al. 2010, Theorem 3, as quoted by Chowdhury & Gopalan 2017, section 3.1; equals their
    beta~_t. The beta_t of Srinivas et al. is its square, with gamma_t in place of gamma_{t-1}. Valid for noise bounded
    by R almost surely in a model with lambda = R^2, growing data, and the maximum gain gamma_n. It is very loose, and
    kept for comparison.

    Args:
        rkhs_bound, delta, gain: B, delta and the provider of gamma_n.

    Raises ValueError unless B >= 0 and 0 < delta < 1.
    """

    def __init__(self, rkhs_bound: Parameter, delta: Parameter, gain: GainProvider) -> None:
        self.rkhs_bound = checked(validation.non_negative, "rkhs_bound", rkhs_bound)
        self.delta = checked(validation.probability, "delta", delta)
        validation.function("gain", gain, "a provider of information gain, such as RealisedGain()")
        self.gain, self.of_steps_alone = gain, getattr(gain, "of_points_alone", False)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        t = clock(step, model)
        B, delta = (like(model.noise_variance, p) for p in (self.rkhs_bound, self.delta))
        return torch.sqrt(2 * B**2 + 300 * self.gain(step - 1, model) * torch.log(t / delta) ** 3)


class IGPWidth(NormWidth):
    """IGP-UCB: width_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{t-1} + 2 ln(1/delta)), with ``form="theory"``.

    Source: Chowdhury & Gopalan 2017, Theorem 1, for every lambda > 0 (Zhou & Shroff 2021, equation 8; at
    lambda = 1 + 2/T it implies Theorem 2); equals their beta_t. Algorithm 1 prints
    B + R sqrt(2 (gamma_{t-1} + 1 + ln(1/delta))), ``form="printed"``, proved for lambda = 1 + 2/T. For lambda >= 1 it
    is wider than the theory form, so it is valid. For lambda < 1 it lacks the factor 1/sqrt(lambda) and is not valid,
    although the experiments of Chowdhury & Gopalan use it with lambda = R^2.

    Valid for conditionally R-sub-Gaussian noise and growing data, at all steps at once; ``gain`` may be the realised
    gain. For a ``WeightedGP`` it is valid at each step alone. Raises ValueError for arguments out of range.
    """

    num_events = 1  # m, the number of events in the union bound, each of probability delta/m
    window: int | None = None  # the largest number of observations held; None: no limit

    def __init__(
        self,
        rkhs_bound: Parameter,
        noise_scale: Parameter | None,
        delta: Parameter,
        gain: GainProvider,
        form: str = "theory",
    ) -> None:
        super().__init__(rkhs_bound, noise_scale, delta)
        validation.one_of("form", form, *_FORMS)
        validation.function("gain", gain, "a provider of information gain, such as RealisedGain()")
        self.gain, self.form = gain, form
        self.of_steps_alone = getattr(gain, "of_points_alone", False)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        noise, w = model.noise_variance, self.window
        B, delta = like(noise, self.rkhs_bound), like(noise, self.delta)
        points: int | Tensor = 0  # unused by a gain that reads the model, so no kernel is launched on a GPU
        if getattr(self.gain, "counts_points", True):
            points = step - 1
            if w is not None:
                points = step.clamp(max=w) if isinstance(step, Tensor) else min(step, w)
        gamma, log_term = self.gain(points, model), log(self.num_events / delta)
        if self.form == "printed":
            return B + scale_of(noise, self.noise_scale) * torch.sqrt(2 * (gamma + 1 + log_term))
        deviation = torch.sqrt(2 * gamma + 2 * log_term)
        if self.noise_scale is None and deviation.shape == noise.shape:  # R = sqrt(lambda)
            return B + deviation
        return B + scale_of(noise, self.noise_scale) / torch.sqrt(noise) * deviation

    def root_of_gain(self, step: Tensor, model: OnlineModel) -> tuple[Any, Any, Any] | None:
        if type(self.gain) is not RealisedGain:
            return super().root_of_gain(step, model)
        B, R, delta = self.constants(model)
        printed = self.form == "printed"
        P = 2 * R**2 / (1.0 if printed else model.noise_variance)
        return B, P, P * (log(self.num_events / delta) + printed)


class GPTSWidth(IGPWidth):
    """GP-TS: v_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{t-1} + 2 ln(2/delta)), the scale of the sampled function.

    Source: Chowdhury & Gopalan 2017, Algorithm 2 (f_t ~ GP(mu_{t-1}, v_t^2 k_{t-1})) and Lemma 6; equals
    their v_t. Printed: B + R sqrt(2 (gamma_{t-1} + 1 + ln(2/delta))), ``form="printed"``, for lambda >= 1.
    As a confidence band it fails with probability at most delta/2; the other half covers the sampling. Valid as
    ``IGPWidth``.
    """

    num_events = 2


class BKBWidth(NormWidth):
    """BKB: width_t = 2 (R/sqrt(lambda)) sqrt(alpha l_t d_t + ln(1/delta)) + (1 + 1/sqrt(1 - eps)) B.

    d_t = sum_s sigma~_t^2(x_s) over the observations, sigma~ with its 1/lambda (the model's
    ``effective_dimension``); l_t = 1 + ln(1 + kappa^2 t / lambda), kappa^2 = max k(x, x). In both forms t is the step:
    one more than the number of observations, which is t in the paper.

    Source: Calandriello et al. 2019, Theorem 2; equals their beta~_t / sqrt(lambda), because theirs multiplies
    sigma~ = sigma / sqrt(lambda). Correction: the print has l_t = ln(kappa^2 t), ``form="printed"``, which is 0 at
    t = kappa = 1 and ignores lambda. Its source, equation 6, has 1 + ln(|K| / lambda + 1) with |K| <= kappa^2 t.
    Their appendix D.1 replaces 1 + ln(kappa^2 t + 1) by 2 ln(kappa^2 t), which is less if kappa^2 t < 3.49. This is
    where the factor 2 comes from: with our l_t, sqrt(2) suffices.
    Valid for R-sub-Gaussian noise and every lambda > 0, at all steps at once with probability 1 - delta, if the
    dictionary is epsilon-accurate (their equation 12), which ``LeverageSampling.theory`` achieves. It is loose:
    ``RealisedInformationWidth`` is several times narrower, but proved only for the exact posterior.

    Args:
        rkhs_bound, noise_scale, delta: B (their F), R (their xi; None: the square root of the model's lambda), delta.
        form: ``"theory"`` (default) or ``"printed"``.
        stretch: C >= 1, for batch BKB, which freezes means while variances fall by a factor of up to C. It multiplies
            the width by sqrt(C), because sigma_frozen^2 <= (1 + sum sigma~^2(x_s) / lambda) sigma_now^2.
        bound_is_guess: B is a first guess F_0 of an unknown norm. The width uses the least F_0 2^k that the data do
            not refute: some w with ||w|| <= F_0 2^k lies in the theorem's confidence set,
            ||w - w~_t||_A~ <= beta~_t(F_0 2^k). The paper says only that "standard guess-and-double techniques can
            be applied"; this is our reading. The noise enters the set in the same way for every guess, so delta is
            not split: with probability 1 - delta no guess at or above the norm is ever refuted, and the width stays
            below the width for twice the norm (or for F_0). The theorem's regret bound holds from the first guess at or
            above the norm. Until a lower guess is refuted, its width is too small, and an arm whose value only a larger
            norm explains may not be played. ``a_gp_ucb`` instead raises its bound with time, whatever the data.

    Cost: O(m^3). Raises ValueError unless B >= 0 (> 0 for a guess), R > 0 and 0 < delta < 1, and when called with a
    model that is not a ``SketchedGP``.
    """

    def __init__(
        self,
        rkhs_bound: Parameter,
        noise_scale: Parameter | None,
        delta: Parameter,
        form: str = "theory",
        stretch: float = 1.0,
        bound_is_guess: bool = False,
    ) -> None:
        validation.instance("bound_is_guess", bound_is_guess, bool, "True or False")
        if bound_is_guess:
            checked(validation.positive, "rkhs_bound", rkhs_bound)
        super().__init__(rkhs_bound, noise_scale, delta)
        self.bound_is_guess = bound_is_guess
        validation.one_of("form", form, *_FORMS)
        self.form, self.stretch = form, validation.at_least_one("stretch", stretch)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        if not isinstance(model, SketchedGP):
            raise ValueError(f"model must be a SketchedGP for BKB's width, got {type(model).__name__}")
        noise = model.noise_variance
        B, R, delta = self.constants(model)
        t, kappa2 = clock(step, model), model.largest_prior_variance
        printed = self.form == "printed"
        growth = torch.log(kappa2 * t).clamp_min(0) if printed else 1 + torch.log1p(kappa2 * t / noise)
        noise_part = torch.sqrt(model.sampling.alpha * growth * model.effective_dimension - log(delta))
        bias = 1 + 1 / math.sqrt(1 - model.sampling.epsilon)
        for_noise = math.sqrt(self.stretch) * 2 * R / torch.sqrt(noise) * noise_part
        per_norm = math.sqrt(self.stretch) * bias
        if self.bound_is_guess:
            B = noise.new_ones(model.batch_shape) * B
            # Refuted: the ball of radius B does not meet the confidence set.
            while bool((refuted := model.distance_to_ball(B) > for_noise + per_norm * B).any()):
                B = torch.where(refuted, 2 * B, B)
        return for_noise + per_norm * B


class GPBUCBWidth(WidthAround):
    """GP-BUCB: exp(C) base, with C = (B - 1) gamma_n / n, a bound on the information in B - 1 pending pulls.

    The mean uses the rewards learned; the deviation sigma_{t-1} also counts the pending pulls:
    sigma_learned(x) / sigma_{t-1}(x) = exp(I(f(x); pending | learned)) <= exp(C), I the conditional mutual
    information. So if the base is valid, |f - mu| <= base sigma_learned, then |f - mu| <= exp(C) base sigma_{t-1},
    and the regret bound is at most exp(C) times the bound for one choice at a time.

    Source: Desautels, Krause & Burdick 2014 (JMLR 15), section 4. It equals the root of their
    beta_t = exp(2 C) alpha_fb[t], with their C after uncertainty sampling: each of its n pulls takes the largest
    variance, so the gains do not increase, the last is at most gamma_n / n, and no later pull gains more.

    Valid if ``base`` counts only the learned rewards (widths are evaluated at the step after the last reward), at most
    B - 1 pulls are pending at a choice, the model holds n observations chosen by ``uncertainty_sampling`` and forgets
    nothing, and the kernel has no time part. With drift or forgetting, or without the first n pulls, no theorem holds.
    For many pending pulls the factor is large. In practice it is often set to a constant such as 1 (their section 6).

    Args:
        base: the width for one choice at a time.
        count: B, the number of choices without a reward between them, or of questions open at once.
        initial: n.
        gain: a provider of gamma_n. The proof needs only the gain of the first n pulls, which ``MaximumGain(...,
            max_points=n, upper_bound=False)`` gives. ``RealisedGain`` counts all data and is invalid.

    Raises ValueError for arguments out of range.
    """

    def __init__(self, base: Width, count: int, *, initial: int, gain: GainProvider) -> None:
        validation.instance("base", base, Width, "a Width")
        validation.function("gain", gain, "a provider of information gain, such as MaximumGain(...)")
        self.base, self.gain = base, gain
        self.count = validation.positive_integer("count", count)
        self.initial = validation.positive_integer("initial", initial)

    def information(self, model: OnlineModel) -> Tensor:
        """C, which broadcasts to ``model.batch_shape``."""
        return (self.count - 1) * self.gain(self.initial, model) / self.initial

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        return self.information(model).exp().to(model.noise_variance) * self.base.at(step, model)


@torch.no_grad()
def uncertainty_sampling(model: ArmModel, count: int, time: float = 0.0) -> Tensor:
    """``count`` arms, ``count x batch_shape``, each with the largest variance after the arms before it are observed.

    The choice needs no reward. Once all of them are pulled and learned, ``GPBUCBWidth`` is valid. The model does not
    change. Source: Desautels, Krause & Burdick 2014, section 4. Cost: one step of the model for each arm.

    Args:
        model: over arms, such as ``ArmGP``.
        count: n >= 1.
        time: time of the pulls, for a model that drifts.

    Raises ValueError for a model that is not over arms, and a ``count`` below 1.
    """
    validation.instance("model", model, ArmModel, "a model over arms")
    validation.positive_integer("count", count)
    validation.finite_number("time", time)
    chosen = []
    with model.provisional():
        for _ in range(count):
            chosen.append(model.marginals(time if model.drifts else None)[1].argmax(-1))
            model.expect_arms(chosen[-1], time)
    return torch.stack(chosen)


# Functions that change: restarts, windows, batches in random order, and a term for the drift. A forgetting rule keeps
# only part of the data, which breaks the martingale behind the widths above. Each class names the union bound that
# repairs it. Interval and window are read from the policy's forgetting rule.


class RestartWidth(IGPWidth):
    """R-GP-UCB: width_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{t-t0} + 2 ln(M/delta)), restarted at t0.

    Source: Zhou & Shroff 2021, Algorithm 1 and Lemma 1; equals their beta_t. ``step`` counts from the
    restart, so n = t - t0. Correction: the paper has ln(1/delta), but its Lemma 1 covers one interval;
    ln(M/delta) is the union bound over the M = ceil(T/H) intervals of a run.
    Valid if f does not change inside an interval; otherwise wrap it in ``DriftAwareWidth``.

    Args:
        num_intervals: M, the number of intervals that the guarantee covers, >= 1; 1 gives the paper's width. None:
            ceil(T/H), with H the interval of the policy's ``PeriodicRestart``.
        rkhs_bound, noise_scale, delta, gain, form: as ``IGPWidth``.
        horizon: T, for ``num_intervals=None``.

    Raises ValueError unless ``num_intervals`` or ``horizon`` is an integer >= 1, B >= 0, R > 0 and 0 < delta < 1. With
    ``horizon``, ``bind`` raises it for a rule that has no interval, or one that does not give M intervals.
    """

    def __init__(
        self,
        num_intervals: int | None = None,
        rkhs_bound: Parameter = 1.0,
        noise_scale: Parameter | None = None,
        delta: Parameter = 0.1,
        gain: GainProvider | None = None,
        form: str = "theory",
        *,
        horizon: int | None = None,
    ) -> None:
        super().__init__(rkhs_bound, noise_scale, delta, RealisedGain() if gain is None else gain, form)
        if num_intervals is not None or horizon is None:
            self.num_events = validation.positive_integer("num_intervals", num_intervals)
        self.num_intervals = num_intervals
        self.horizon = None if horizon is None else validation.positive_integer("horizon", horizon)

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        """A copy with M = ceil(T/H), H the interval of the rule; the width itself if it has no ``horizon``."""
        super().bind(model, forgetting)
        if self.horizon is None:
            return self
        bound, interval = copy.copy(self), getattr(forgetting, "interval", None)
        count = None if interval is None else math.ceil(self.horizon / interval)
        count = _value_of_rule("num_intervals", self.num_intervals, count, "an interval")
        bound.num_events = bound.num_intervals = count
        return bound

    def check_bound(self) -> None:
        given = "given, or the width bound to a rule with an interval"
        validation.require(self.num_intervals is not None, "num_intervals", None, given)


class SlidingWindowWidth(IGPWidth):
    """SW-GP-UCB: width_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{min(t,w)} + 2 ln(T/delta)).

    Source: Zhou & Shroff 2021, Lemma 2; equals the beta_t there. Correction: their Algorithm 2 prints
    B + R sqrt(2 (gamma_{min(t,w)} + 1 + ln(1/delta))). Removing observations breaks the martingale, so the
    guarantee is a union bound over T steps (Lemma 2): both forms use ln(T/delta). The first term of Lemma 2, the
    drift, lacks the factor of Lemma 1.
    Valid at steps up to T if f does not change inside a window; otherwise wrap it in ``DriftAwareWidth``.

    Args:
        window: w, the largest number of observations held, >= 1; None: the window of the policy's rule.
        horizon: T, the number of steps that the guarantee covers, >= 1.
        rkhs_bound, noise_scale, delta, gain, form: as ``IGPWidth``.

    Raises ValueError unless ``window`` (if given) and ``horizon`` are integers >= 1, B >= 0, R > 0 and 0 < delta < 1.
    ``bind`` raises it for a rule that has another window, or none.
    """

    def __init__(
        self,
        window: int | None = None,
        horizon: int | None = None,
        rkhs_bound: Parameter = 1.0,
        noise_scale: Parameter | None = None,
        delta: Parameter = 0.1,
        gain: GainProvider | None = None,
        form: str = "theory",
    ) -> None:
        super().__init__(rkhs_bound, noise_scale, delta, RealisedGain() if gain is None else gain, form)
        self.window = None if window is None else validation.positive_integer("window", window)
        self.num_events = validation.positive_integer("horizon", horizon)

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        super().bind(model, forgetting)
        bound, window = copy.copy(self), getattr(forgetting, "window", None)
        bound.window = _value_of_rule("window", self.window, window, "a window")
        return bound

    def check_bound(self) -> None:
        given = "given, or the width bound to a rule with a window"
        validation.require(self.window is not None, "window", None, given)


class PermutationWidth(NormWidth):
    """width = B + sqrt((R^2 + V^2)/lambda) sqrt(2 ln(2 N M/delta)), for the average function of a batch.

    Theorem. Let n fixed arms be pulled in a uniformly random order. Let f be the average of f_t over the batch, with
    ||f|| <= B, and |f_s(x) - f_t(x)| <= V for all arms and all s, t in the batch. With the posterior of the batch
    alone, |f(x) - mu(x)| <= width sigma(x) for N arms and M batches at once, with probability at least 1 - delta.

    Proof. mu(x) = sum_j a_j y_j. The error due to f is at most B sigma(x). The noise is sub-Gaussian with
    R^2 |a|^2. The rest, sum_j a_j (f_{tau(j)}(x_j) - f(x_j)), tau the random order, has mean 0. Reveal tau(j) in
    descending order of |a_j|. Two values of one tau(j) are coupled by a swap with a later one and change the sum by at
    most 2 V |a_j|, so by Azuma and Hoeffding the sum is sub-Gaussian with V^2 |a|^2. The two are independent, and
    lambda |a|^2 <= sigma^2(x). Without the random order, drift costs V sqrt(n/lambda) (``DriftAwareWidth``).

    Source: Iwazaki & Takeno 2024 (arXiv 2410.16052) for the idea and the existence of such a bound; the constants are
    derived here. It contains no information gain, because the arms of a batch do not depend on its rewards.

    Args:
        num_arms, batches: N and M >= 1.
        rkhs_bound, noise_scale, delta: B, R (None: sqrt(lambda)) and delta.
        drift: V >= 0; 2 B max_x sqrt(k(x, x)) is always valid.

    Raises ValueError unless N and M are integers >= 1, B >= 0, R > 0, V >= 0 and 0 < delta < 1.
    """

    def __init__(
        self,
        num_arms: int,
        batches: int,
        rkhs_bound: Parameter = 1.0,
        noise_scale: Parameter | None = None,
        delta: Parameter = 0.1,
        drift: Parameter = 0.0,
    ) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.batches = validation.positive_integer("batches", batches)
        super().__init__(rkhs_bound, noise_scale, delta)
        self.drift = checked(validation.non_negative, "drift", drift)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        noise = model.noise_variance
        B, R, delta = self.constants(model)
        V = like(noise, self.drift)
        events = torch.ones_like(noise) * log(2 * self.num_arms * self.batches / delta)
        return B + torch.sqrt((R**2 + V**2) / noise * 2 * events)


class DriftAwareWidth(WidthAround):
    """base + V sqrt(n / lambda): n observations are held, and f moved by at most V since the oldest.

    Source: the bias of the posterior mean is sum_s a_s (f_s(x_s) - f_t(x_s)) with a_s = C(x, x_s)/lambda;
    lambda sum_s a_s^2 <= sigma^2(x) and Cauchy-Schwarz give |bias(x)| <= V sqrt(n/lambda) sigma(x). With noise
    variances of single rewards, n/lambda is the sum of their inverses.
    Valid if V bounds max_x |f_s(x) - f_t(x)| between the current step t and every step s of an observation held, and if
    ``base`` is valid for every f_t: its B bounds their norms, and a ``RealisedInformationWidth`` has a ``horizon``.
    ``drift`` is V >= 0, in units of reward. Raises ValueError for arguments out of range.
    """

    def __init__(self, base: Width, drift: Parameter) -> None:
        validation.instance("base", base, Width, "a Width")
        self.base = base
        self.drift = checked(validation.non_negative, "drift", drift)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        drift = like(model.noise_variance, self.drift)
        return self.base.at(step, model) + drift * torch.sqrt(model.total_precision)


def _value_of_rule(name: str, given: int | None, of_rule: int | None, what: str) -> int:
    """``of_rule``, checked. Raises ValueError if the rule has none, or if the width has another value."""
    if of_rule is None:
        raise ValueError(f"{name} of the width must come from a forgetting rule with {what}")
    fits = given is None or given == of_rule
    validation.require(fits, f"{name} of the width", given, f"{of_rule}, as in the forgetting rule")
    return of_rule


def checked(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    """``check(name, value)`` for a number, or for each entry of a tensor (which is returned as it is)."""
    if not isinstance(value, Tensor):
        return check(name, value)
    for entry in value.flatten().tolist():
        check(name, entry)
    return value


def scale_of(noise: Tensor, noise_scale: Parameter | None) -> Parameter:
    """R, or sqrt(lambda) if it is None, with lambda = ``noise``."""
    return noise.sqrt() if noise_scale is None else like(noise, noise_scale)


def check_step(step: int | Tensor) -> None:
    """Check that an integer step is at least 1. A tensor is not checked: that would synchronise with the device."""
    if not isinstance(step, Tensor):
        validation.positive_integer("step", step)


def clock(step: int | Tensor, model: OnlineModel) -> Tensor:
    """The step as a tensor with the dtype and device of the model's noise variance."""
    noise = model.noise_variance
    return step.to(noise) if isinstance(step, Tensor) else noise.new_full((), step)


def like(noise: Tensor, value: Parameter) -> Parameter:
    """A parameter ready for arithmetic with ``noise``: tensors in its dtype and on its device."""
    return value.to(noise) if isinstance(value, Tensor) else value


def log(value: Parameter) -> Parameter:
    """Natural logarithm of a number or a tensor."""
    return torch.log(value) if isinstance(value, Tensor) else math.log(value)


def root(noise: Tensor, value: Parameter) -> Tensor:
    """The square root as a tensor of the dtype and device of ``noise``. Numbers need a tenth of a tensor's time."""
    return torch.sqrt(value) if isinstance(value, Tensor) else noise.new_full((), math.sqrt(value))

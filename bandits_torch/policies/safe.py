"""Policies that play only arms, or points, whose measurements stay within limits with high probability.

Bounds are posterior means plus or minus ``width`` posterior standard deviations, without a Lipschitz constant:
Berkenkamp, Krause & Schoellig 2016/2021 (GP-SafeOpt), after Sui et al. 2015.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.outcome_constraint import check_limits
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.choices import ModelChoices
from bandits_torch.policies.choices.arms import ModelArms, best_available
from bandits_torch.policies.choices.points import ModelPoints
from bandits_torch.policies.forgetting import ForgettingRule, KeepEverything
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.state import copied
from bandits_torch.theory.widths import Width

Limits = tuple[float, float]  # low, high; one may be infinite
Moments = dict[str, tuple[Tensor, Tensor]]  # posterior mean and variance of functions by name, (S, N) each


@dataclass(frozen=True)
class Bounded:
    """A function that must stay within limits: posterior moments (S, N) and the width (S, 1) of its bounds."""

    mean: Tensor
    deviation: Tensor
    width: Tensor
    limits: Limits

    @property
    def certain(self) -> Tensor:
        """Whether both confidence bounds lie within the limits, (S, N) booleans."""
        low, high = self.limits
        half = self.width * self.deviation
        return (self.mean - half >= low) & (self.mean + half <= high)

    @property
    def margin(self) -> Tensor:
        """Distance of the mean from the nearest limit in posterior deviations, negative outside, (S, N)."""
        low, high = self.limits
        room = torch.minimum(self.mean - low, high - self.mean)
        return room / self.deviation.clamp_min(torch.finfo(room.dtype).tiny)


def safe_set(functions: list[Bounded]) -> Tensor:
    """Arms whose functions are all certainly within their limits, (S, N) booleans."""
    return torch.stack([one.certain for one in functions]).all(0)


def least_margin(functions: list[Bounded]) -> Tensor:
    """The smallest margin of any function, (S, N)."""
    return torch.stack([one.margin for one in functions]).amin(0)


class NoSafeArmError(RuntimeError):
    """No arm, or no point found, is certainly within the limits, and ``when_empty`` is ``"raise"``."""


class LimitedPolicy(Policy):
    """Base class: a model of the reward, and one of each outcome. Every outcome has limits; the reward may have some.

    A subclass calls ``_set_up`` and defines ``choose``. ``learn`` passes each model its measurements.
    """

    needs_choices = "only what it chooses is within its limits"
    choices: ModelChoices
    model: OnlineModel
    trust: str
    when_empty: str
    _clock: int | Tensor
    _pending: int  # choices whose rewards are expected

    def _set_up(
        self,
        model: OnlineModel,
        outcomes: Mapping[str, OnlineModel],
        limits: Mapping[str, Limits],
        widths: tuple[Width, Width],
        kind: type[Any],
        over: Callable[[Any], ModelChoices],
        forgetting: Mapping[str, ForgettingRule] | None = None,
    ) -> None:
        """``kind``: class of the models; ``over``: makes the choices over one."""
        validation.instance("outcomes", outcomes, Mapping, "models by name")
        for name, one in {"reward": model, **outcomes}.items():
            validation.instance(f"model of {name!r}", one, kind, f"an {kind.__name__}")
            found, same = ((getattr(of, "num_arms", 0), tuple(of.batch_shape)) for of in (one, model))
            expected = f"of {same[0]} arms and batch shape {same[1]}, () or (S,)"
            validation.require(found == same and len(found[1]) <= 1, f"model of {name!r}", found, expected)
        validation.require("reward" not in outcomes, "outcomes", "reward", "named otherwise")
        validation.instance("limits", limits, Mapping, "(low, high) by name of an outcome, or 'reward'")
        validation.require(len(limits) > 0, "limits", limits, "of at least one outcome, or of 'reward'")
        without = sorted(set(limits) - set(outcomes) - {"reward"})
        known = f"of outcomes that have a model, {tuple(outcomes)}, or of 'reward'"
        validation.require(not without, "limits", without, known)
        free = sorted(set(outcomes) - set(limits))
        validation.require(not free, "outcomes", free, f"named in limits, {tuple(limits)}")
        self.limits = {name: check_limits(name, pair) for name, pair in limits.items()}
        for name, value in zip(("width", "safety_width"), widths, strict=True):
            validation.instance(name, value, Width, "a Width")
        self.model, self.outcomes = model, dict(outcomes)
        self.choices = over(model)
        self._others = {name: over(one) for name, one in self.outcomes.items()}
        self._each = {"reward": self.choices, **self._others}
        self.replicates, self.num_arms = self.choices.replicates, self.choices.num_arms
        self.dim = self.choices.dim
        self.outcome_names = tuple(self.outcomes)
        given = dict(forgetting or {})
        for name, rule in given.items():
            validation.require(name in self._each, "forgetting", name, f"rules of {tuple(self._each)}")
            validation.instance("forgetting", rule, ForgettingRule, "ForgettingRules by name")
        rules = {name: given.get(name, KeepEverything()).begin(one.model) for name, one in self._each.items()}
        self._rules = list(rules.values())
        width, self.safety_width = widths
        self.width = width.bind(model, self._rules[0])
        self._safety = {
            name: self.safety_width.bind(self._each[name].model, rules[name]) for name in self.limits
        }
        self._begin()
        self._pending = 0
        self._traced: dict[str, Tensor | float] = {}

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """That the reward has limits; empty if it has none."""
        return "it holds limits of the reward, in units of reward" if "reward" in self.limits else ""

    def _set_fallback(self, trust: str, when_empty: str, name: str, initial: Tensor | None) -> None:
        """Set when the initial safe set (argument ``name``) counts, and what is played if nothing is safe."""
        validation.one_of("trust", trust, "start", "always")
        validation.one_of("when_empty", when_empty, "likeliest", name, "raise")
        missing = when_empty == name and initial is None
        validation.require(not missing, name, None, f"given where when_empty is {name!r}")
        self.trust, self.when_empty = trust, when_empty

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Each model learns its measurement. Raises ValueError, with nothing changed, if one is missing."""
        measured = observation.outcomes
        self.choices.check(replace(observation, outcomes=None))
        shape = (self.replicates, len(self.outcome_names))
        expected = f"given, {shape} numbers for {self.outcome_names}"
        validation.require(measured is not None or not self.outcome_names, "outcomes", None, expected)
        if measured is not None:
            validation.of_shape("outcomes", measured, shape)
            validation.require(measured.is_floating_point(), "outcomes", measured.dtype, "real numbers")
            if measured.is_cpu:
                for one, value in zip(self._others.values(), measured.unbind(-1), strict=True):
                    validation.rewards("outcomes", value, one.model.noise_variance.dtype)
        values = [observation.reward, *(() if measured is None else measured.unbind(-1))]
        arm, time, clock = observation.arm, observation.time, self._clock + 1
        for one, rule, value in zip(self._each.values(), self._rules, values, strict=True):
            one.observe(arm, value, time, late=True)
            rule.observed(partial(one.inputs_of, arm, time), value, one.model)
            rule.after(one.model, clock)
        self._clock = clock

    def trace(self) -> dict[str, Tensor | float]:
        """Of the last choice: ``safe``, the size of S_t (a share over a domain), ``fallback``, ``safety_width``."""
        return dict(self._traced)

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("choices", "_others", "_rules")
    _clocks = ("_clock",)

    def _fresh(self) -> dict[str, Any]:
        return {"_clock": 0}

    def _safety_of(self, name: str) -> Tensor:
        """The safety width, (S, 1). Pending choices also count as steps."""
        return self._column(self._safety[name].at(self._clock + self._pending + 1, self._each[name].model))

    def _column(self, value: Tensor) -> Tensor:
        return value.expand(self.replicates).unsqueeze(-1)

    def _bounded(self, moments: Moments) -> list[Bounded]:
        """The functions with limits, in the order of ``moments``."""
        limits = self.limits
        return [Bounded(m, v.sqrt(), self._safety_of(name), limits[name]) for name, (m, v) in moments.items()]

    def _first(self) -> Tensor:
        """Replicates that have learned nothing yet, (S, 1)."""
        return self._column(torch.as_tensor(self._clock == 0, device=self.model.noise_variance.device))

    def _record(self, safe: Tensor, lost: Tensor, what: str) -> None:
        """Record a choice for ``trace``. Raises NoSafeArmError if a replicate is ``lost``, (S,) booleans, and
        ``when_empty`` is ``"raise"``."""
        if self.when_empty == "raise" and bool(lost.any()):
            where = lost.nonzero().flatten().tolist()[:8]
            raise NoSafeArmError(f"no {what} is certainly within the limits, in replicates {where}")
        width = self._safety_of(next(iter(self.limits))).squeeze(-1)
        self._traced = {"safe": safe.double(), "fallback": lost.double(), "safety_width": width}


class SafePolicy(LimitedPolicy):
    """Plays arms whose reward and outcomes lie within their limits by the confidence bounds of their models.

    At every step the safe set is computed from the posteriors at that time,

        S_t = {x: low_i <= mu_i(x, t) - w_t sigma_i(x, t) and mu_i(x, t) + w_t sigma_i(x, t) <= high_i for all i},

    so under drift an arm leaves it when its last measurement is too old (TVSafeOpt, Li et al. 2024). There is no
    Lipschitz constant over arms or time (GP-SafeOpt). ``explore`` decides which safe arm is played:

    * ``"ucb"``: the one with the largest upper bound of the reward, the better choice for regret;
    * ``"safeopt"``: among maximisers (which may be the best) and expanders (which may enlarge the safe set), the one
      with the widest bounds relative to the prior. No theorem bounds the regret of either under drift.

    Args:
        model: the model of the reward, an ``ArmModel`` of batch shape () or (S,).
        outcomes: models of the other measurements, by name, of the same arms and batch shape.
        limits: (low, high) of each outcome, by name, and of ``"reward"`` if it has limits.
        width: width of the reward's bounds that score arms.
        safety_width: w_t; ``PosteriorSafetyWidth`` states the theorem.
        safe_arms: (N,) or (S, N) booleans, an initial safe set S_0.
        trust: when S_0 is part of S_t: ``"start"``, before the first reward; ``"always"``, because it is known to be
            safe.
        when_empty: what is played if no available arm is in S_t: ``"likeliest"``, the arm with the most posterior
            deviations to its nearest limit; ``"safe_arms"``, the best available one of S_0 by upper bound, whatever the
            models say, or the likeliest if there is none; or ``"raise"``, ``NoSafeArmError``. No guarantee holds at
            such a step; ``trace`` shows it as ``fallback``.

    Late rewards are learned exactly under drift, at the cost of learning all again (``ArmGP``). Cost: that of the
    models, and O(m N) for m functions with limits, O(m N^2) with ``"safeopt"``.

    Source: Sui et al. 2015; Berkenkamp, Krause & Schoellig 2016 and 2021; Li et al. 2024 (arXiv 2409.18000). Raises
    ValueError for limits without outcomes, outcomes without limits, models of other arms or batches, and names and
    masks of other kinds.
    """

    model: ArmModel
    choices: ModelArms

    def __init__(
        self,
        model: ArmModel,
        outcomes: Mapping[str, ArmModel],
        limits: Mapping[str, Limits],
        *,
        width: Width,
        safety_width: Width,
        safe_arms: Tensor | None = None,
        trust: str = "start",
        when_empty: str = "likeliest",
        explore: str = "ucb",
    ) -> None:
        self._set_fallback(trust, when_empty, "safe_arms", safe_arms)
        validation.one_of("explore", explore, "ucb", "safeopt")
        self._set_up(model, outcomes, limits, (width, safety_width), ArmModel, ModelArms)
        self.explore, shape = explore, (self.replicates, self.num_arms)
        if safe_arms is None:
            safe_arms = torch.zeros(shape, dtype=torch.bool)
        else:
            dtype = validation.tensor("safe_arms", safe_arms).dtype
            validation.require(dtype == torch.bool, "safe_arms", dtype, "booleans, a mask")
            validation.of_shape("safe_arms", safe_arms, shape[1:], shape)
            some = bool(safe_arms.any(-1).all())
            validation.require(some, "safe_arms", safe_arms, "a mask with an arm in every replicate")
        self.safe_arms = safe_arms.to(model.noise_variance.device).expand(shape).clone()
        models = {"reward": model, **outcomes}
        self._scale = {name: one.marginals()[1].amax(-1, keepdim=True).sqrt() for name, one in models.items()}
        self._before_pending: Moments | None = None

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The best available arm of the safe set; ``why["certain"]`` (S,) says whether it was in S_t. Raises
        NoSafeArmError if there is none and ``when_empty`` is ``"raise"``."""
        self.choices.check_available(available)
        functions = self._bounded(self._moments(time))  # conditioned on pending pulls
        learned = functions if self._before_pending is None else self._bounded(self._before_pending)
        certain = safe_set(learned)
        initial = self.safe_arms if self.trust == "always" else self.safe_arms & self._first()
        safe = certain | initial
        allowed = safe if available is None else safe & available
        lost = ~allowed.any(-1)
        self._record(certain.sum(-1), lost, "arm")
        margin = least_margin(learned)
        if available is not None:
            margin = margin.masked_fill(~available, -torch.inf)
        if self.when_empty == "safe_arms":
            given = self.safe_arms if available is None else self.safe_arms & available
            margin = torch.where(given.any(-1, keepdim=True), given.to(margin), margin)
        fallback = margin == margin.amax(-1, keepdim=True)
        played = torch.where(lost.unsqueeze(-1), fallback, allowed)
        mean, variance = self.choices.marginals(time)
        half = self._column(self.width.at(self._clock + 1, self.model)) * variance.sqrt()
        if self.explore == "ucb":
            score = mean + half
        else:
            models: list[Any] = [self._each[name].model for name in self.limits]
            shape = (self.replicates, self.num_arms, self.num_arms)
            joint = [model.joint(time)[1].reshape(shape) for model in models]
            noise = [self._column(model.noise_variance) for model in models]
            expanding = expanders(safe, functions, joint, noise)
            # Of a maximiser the upper bound is at least the best lower bound.
            best = (mean - half).masked_fill(~played, -torch.inf).amax(-1, keepdim=True)
            played = played & ((mean + half >= best) | expanding)
            # The widest bound of each arm, in prior standard deviations.
            deviations = [variance.sqrt() / self._scale["reward"]]
            of_limits = zip(self.limits, functions, strict=True)
            deviations += [one.deviation / self._scale[name] for name, one in of_limits]
            score = torch.stack(deviations).amax(0)
        index, arm = best_available(score.mT, played)
        return Choice(arm, {"index": index, "certain": ~lost})

    @torch.no_grad()
    def safe_set(self, time: float) -> Tensor:
        """S_t, (S, N) booleans: arms within all limits by the bounds at ``time``, without the initial safe set."""
        return safe_set(self._bounded(self._moments(time)))

    def _moments(self, time: float) -> Moments:
        return {name: self._each[name].marginals(time) for name in self.limits}

    _expects = ("choices", "_others", "_before_pending", "_pending")

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls lower the variances that score arms. They do not change the safe set, because nothing has been
        measured yet."""
        if self._before_pending is None:
            self._before_pending = copied(self._moments(time))
        self._pending += 1
        for one in self._each.values():
            one.expect(pending.arm, pending.time)


def expanders(
    safe: Tensor, functions: list[Bounded], joint: list[Tensor], noise_variance: list[Tensor]
) -> Tensor:
    """Safe arms whose most favourable outcome would make an arm safe that is not, (S, N) booleans.

    For a lower limit the most favourable outcome of arm x is u(x), for an upper limit l(x). The bounds at x' are those
    of the posterior after that observation (Berkenkamp et al., equation of G_n). Cost: O(S N^2) per limit.

    Args:
        safe: (S, N).
        joint: posterior covariance (S, N, N) of each function.
        noise_variance: (S, 1) of each function.
    """
    reached = ~safe.unsqueeze(-2)  # x in rows, x' in columns
    for one, covariance, noise in zip(functions, joint, noise_variance, strict=True):
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        gain = covariance / (variance + noise).unsqueeze(-1)  # C(x, x') / (C(x, x) + lambda)
        left = (variance.unsqueeze(-2) - gain * covariance).clamp_min(0).sqrt()
        half, width = (one.width * one.deviation).unsqueeze(-1), one.width.unsqueeze(-1)
        for limit, sign in zip(one.limits, (1.0, -1.0), strict=True):
            if math.isfinite(limit):
                bound = one.mean.unsqueeze(-2) + sign * (gain * half - width * left)
                reached = reached & (sign * (bound - limit) >= 0)
    return safe & reached.any(-1)


_KEPT = 32  # latest points played that a search tries again
# Standard deviations of the steps around the best point, as shares of the box's sides.
_SAME = 1e-9  # of a range: points closer than this are the same
_RADII = (0.3, 0.1, 0.03, 0.01, 0.003)
_PER_RADIUS = 48


class SafePointPolicy(LimitedPolicy):
    """Plays points whose reward and outcomes lie within their limits by the confidence bounds of their models.

    ``SafePolicy`` over a ``Domain``: of the points of S_t that a search finds, it plays the one with the largest upper
    bound of the reward. The search tries Sobol points of the domain, ``safe_points``, the latest 32 points played, and
    ever shorter normal steps around the best point so far. It uses no gradient, and accepts only points within all
    limits. ``PosteriorSafetyWidth`` holds for the point played, because that is a function of the data.

    Args:
        model: model of the reward, an ``OnlineGP`` of batch shape () or (S,) over d inputs, or d + 1 with time last.
        outcomes: models of the other measurements, by name, of the same kind.
        domain: where points are played.
        limits, width, safety_width, trust: see ``SafePolicy``.
        safe_points: (k, d) or (S, k, d), an initial safe set. At a step only those in its domain count, with the values
            of coordinates that it fixes.
        when_empty: if no point found is safe, as in ``SafePolicy``: ``"likeliest"``, ``"safe_points"`` (if none counts,
            the likeliest) or ``"raise"``.
        forgetting: rules of the models (``StaleObservations``) by the outcome's name, or ``"reward"``; default: none.
        raw_samples: Sobol points tried at each step.
        search: one that rounds points, if not every point may be played (``MixedSearch``); only its rounding is used.
        seed: seed of the points tried; replicates share it.

    Cost: predictions of all models at about ``raw_samples`` + k + 280 points, O(n^2) each. In ``trace`` ``safe`` is
    the share of Sobol points within the limits.

    Source: as for ``SafePolicy``; the search is ours. Raises ValueError as ``SafePolicy`` does, for a domain of another
    dimension, and for ``safe_points`` outside the domain.
    """

    model: OnlineGP
    choices: ModelPoints
    _others: dict[str, ModelPoints]  # type: ignore[assignment]

    def __init__(
        self,
        model: OnlineGP,
        outcomes: Mapping[str, OnlineGP],
        limits: Mapping[str, Limits],
        *,
        domain: Domain,
        width: Width,
        safety_width: Width,
        safe_points: Tensor | None = None,
        trust: str = "start",
        when_empty: str = "likeliest",
        forgetting: Mapping[str, ForgettingRule] | None = None,
        raw_samples: int = 256,
        search: PointSearch | None = None,
        seed: int = 0,
    ) -> None:
        self.search = PointSearch() if search is None else search
        validation.instance("search", self.search, PointSearch, "a PointSearch")
        if forgetting is not None:
            validation.instance("forgetting", forgetting, Mapping, "ForgettingRules by name")
        self._set_fallback(trust, when_empty, "safe_points", safe_points)
        self.raw_samples = validation.positive_integer("raw_samples", raw_samples)
        self._seed = validation.natural("seed", seed)
        over, widths = partial(ModelPoints, domain=domain), (width, safety_width)
        self._set_up(model, outcomes, limits, widths, OnlineGP, over, forgetting)
        S, d = self.replicates, domain.dim
        if safe_points is None:
            safe_points = domain.bounds.new_zeros(0, d)
        else:
            validation.finite_tensor("safe_points", safe_points)
            fits = safe_points.shape[-1:] == (d,) and safe_points.numel() > 0
            fits = fits and (safe_points.dim() == 2 or safe_points.shape[:-2] == (S,))
            validation.shape_is("safe_points", safe_points, fits, f"(k, {d}) or ({S}, k, {d}), k >= 1")
        self.safe_points = safe_points.to(domain.bounds).expand(S, -1, -1).clone()
        inside = bool(domain.contains(self.safe_points).all())
        validation.require(inside, "safe_points", safe_points, "within the domain")
        self._before_pending: ModelPoints | None = None

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Domain | None = None) -> Choice:
        """The best safe point found, (S, d); ``why["certain"]`` (S,) says whether it was within the safe set. Raises
        NoSafeArmError if none was found and ``when_empty`` is ``"raise"``."""
        self.choices.check_available(available)
        domain = self.choices.domain if available is None else available
        best, certain, share = self._searched(domain, time)
        lost = ~certain
        self._record(share, lost, "point found")
        if self.when_empty == "safe_points" and bool(lost.any()):
            initial, counts = self._initial(domain)
            index = self._scored(initial, time)[0].masked_fill(~counts, -torch.inf)
            here = (lost & counts.any(-1)).unsqueeze(-1)
            best = torch.where(here, _taken(initial, index.argmax(-1)), best)
        index, _, _ = self._scored(best.unsqueeze(0), time)
        return Choice(best, {"index": index.squeeze(-1), "certain": ~lost})

    def _searched(self, domain: Domain, time: float) -> tuple[Tensor, Tensor, Tensor]:
        """The best point, (S, d), whether it is within the limits, and the share of Sobol points that are."""
        seed = (1_000_003 * self._seed + self.choices.steps) % 2**31
        S, low, high = self.replicates, *domain.bounds
        raw = self._playable(domain.samples(self.raw_samples, seed, S), domain)
        initial, counts = self._initial(domain)
        X = torch.cat([raw, initial, domain.fix(self._played.movedim(1, 0))])
        trusted = torch.zeros(S, len(X), dtype=torch.bool, device=X.device)
        vouched = counts & (self._first() | (self.trust == "always"))
        trusted[:, len(raw) : len(raw) + len(initial)] = vouched
        best, kept, found, certain = self._best_of(X, trusted, domain, time)
        share = certain[:, : len(raw)].double().mean(-1)
        generator = torch.Generator().manual_seed(seed)
        for radius in _RADII:
            step = torch.randn(_PER_RADIUS, 1, domain.dim, generator=generator, dtype=torch.float64).to(X)
            around = self._playable((best + radius * (high - low) * step).clamp(low, high), domain)
            X = torch.cat([best.unsqueeze(0), around])
            trusted = torch.cat([kept, kept.new_zeros(S, len(around))], -1)
            best, kept, found, _ = self._best_of(X, trusted, domain, time)
        return best, found, share

    def _best_of(
        self, X: Tensor, trusted: Tensor, domain: Domain, time: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The best of points X (n, S, d), (S, d): of those that are certainly within the limits or ``trusted`` (S, n),
        or else the likeliest. And whether it is trusted, (S, 1), whether it is of those, (S,), and which are certain,
        (S, n)."""
        inside = domain.contains(X).mT
        index, certain, margin = self._scored(X, time)
        safe = (certain | trusted) & inside
        some, lowest = safe.any(-1, keepdim=True), torch.finfo(index.dtype).min
        value = torch.where(some, torch.where(safe, index, lowest), torch.where(inside, margin, lowest))
        place = value.argmax(-1)
        return _taken(X, place), trusted.gather(-1, place.unsqueeze(-1)), some.squeeze(-1), certain

    def _initial(self, domain: Domain) -> tuple[Tensor, Tensor]:
        """``safe_points`` as the step may play them, (k, S, d), and which of them count, (S, k): those in its domain
        that are not moved by its fixed coordinates or by rounding."""
        told = self.safe_points.movedim(1, 0)
        initial = self._playable(told, domain)
        rounding = _SAME * self.choices.domain.bounds.diff(dim=0)
        same = ((initial - told).abs() <= rounding).all(-1)
        return initial, (same & domain.contains(initial)).mT

    def _playable(self, X: Tensor, domain: Domain) -> Tensor:
        """The points of the step's domain that may be played, nearest to X (n, S, d)."""
        return domain.fix(self.search.values(X))

    def _scored(self, X: Tensor, time: float) -> tuple[Tensor, Tensor, Tensor]:
        """Upper bounds of the reward at points (n, S, d), whether they are within all limits, and the smallest margins,
        (S, n) each."""
        mean, variance = self.choices.moments(X, time)
        index = mean + self._column(self.width.at(self._clock + 1, self.model)) * variance.sqrt()
        moments = {name: one.moments(X, time) for name, one in self._others.items()}
        if "reward" in self.limits:
            before = self._before_pending
            moments["reward"] = (mean, variance) if before is None else before.moments(X, time)
        functions = self._bounded(moments)
        return index, safe_set(functions), least_margin(functions)

    @torch.no_grad()
    def within_limits(self, time: float, points: Tensor) -> Tensor:
        """Whether points (n, d) are within all limits at ``time``, by the bounds alone, (S, n)."""
        return self._scored(points.unsqueeze(1).expand(-1, self.replicates, -1), time)[1]

    _expects = ("choices", "_before_pending", "_pending")

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls lower the variance of the reward that scores points; see ``SafePolicy``."""
        if "reward" in self.limits and self._before_pending is None:
            self._before_pending = ModelPoints(copy.deepcopy(self.model), self.choices.domain)
        self._pending += 1
        self.choices.expect(pending.arm, pending.time)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """See ``LimitedPolicy``; later searches try the point again."""
        super().learn(observation)
        latest = observation.arm.to(self._played).unsqueeze(1)
        self._played = torch.cat([self._played, latest], 1)[:, -_KEPT:]

    # -- state -----------------------------------------------------------------------------------------

    _played: Tensor  # the latest points, (S, k, d), k <= 32

    def _fresh(self) -> dict[str, Any]:
        none = self.choices.domain.bounds.new_zeros(self.replicates, 0, self.dim)
        return super()._fresh() | {"_played": none}


def _taken(X: Tensor, place: Tensor) -> Tensor:
    """Point number ``place`` (S,) of each replicate of X (n, S, d): (S, d)."""
    return X.gather(0, place.reshape(1, -1, 1).expand(1, -1, X.shape[-1])).squeeze(0)

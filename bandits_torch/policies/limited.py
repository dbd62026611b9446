"""The base of policies with limits: which arms or points are certainly within them, and how models learn.

A bound is a posterior mean plus or minus ``width`` posterior standard deviations, and there is no Lipschitz constant:
Berkenkamp, Krause & Schoellig 2016/2021 (GP-SafeOpt), after Sui et al. 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.outcome_constraint import check_limits
from bandits_torch.policies.choices import ModelChoices
from bandits_torch.policies.forgetting import ForgettingRule, KeepEverything
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.theory.widths import Width

Limits = tuple[float, float]  # low, high; one may be infinite


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
        """Posterior deviations from the nearest limit, negative outside, (S, N)."""
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
    """A reward and measured outcomes, each with a model, and limits on some of them.

    ``_set_up`` takes them, and ``learn`` passes every model its own measurements. A subclass defines ``choose``.
    """

    choices: ModelChoices
    model: OnlineModel
    trust: str
    when_empty: str
    _clock: int | Tensor

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
        """``kind``: of the models; ``over``: the choices that one is of; ``forgetting``: their rules by name."""
        validation.instance("outcomes", outcomes, Mapping, "models by name")
        for name, one in {"reward": model, **outcomes}.items():
            validation.instance(f"model of {name!r}", one, kind, f"an {kind.__name__}")
            found, same = ((getattr(of, "num_arms", 0), tuple(of.batch_shape)) for of in (one, model))
            expected = f"of {same[0]} arms and batch shape {same[1]}, () or (S,)"
            validation.require(found == same and len(found[1]) <= 1, f"model of {name!r}", found, expected)
        validation.require("reward" not in outcomes, "outcomes", "reward", "named otherwise")
        self.limits = _checked_limits(limits, outcomes)
        for name, value in zip(("width", "safety_width"), widths, strict=True):
            validation.instance(name, value, Width, "a Width")
        self.model, self.outcomes = model, dict(outcomes)
        self.choices = over(model)
        self._others = {name: over(one) for name, one in self.outcomes.items()}
        self.replicates, self.num_arms = self.choices.replicates, self.choices.num_arms
        self.dim = self.choices.dim
        self.outcome_names = tuple(self.outcomes)
        models, given = {"reward": model, **self.outcomes}, dict(forgetting or {})
        for name, rule in given.items():
            validation.require(name in models, "forgetting", name, f"rules of {tuple(models)}")
            validation.instance("forgetting", rule, ForgettingRule, "ForgettingRules by name")
        rules = {name: given.get(name, KeepEverything()).begin(one) for name, one in models.items()}
        self._rules = list(rules.values())
        width, self.safety_width = widths
        self.width = width.bind(model, self._rules[0])
        self._safety = {name: self.safety_width.bind(self._model(name), rules[name]) for name in self.limits}
        self._begin()
        self._told: dict[str, Tensor | float] = {}

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """The reason why the policy needs the unit of rewards: the reward has limits. Empty if it has none."""
        return "it holds limits of the reward, in units of reward" if "reward" in self.limits else ""

    def _set_fallback(self, trust: str, when_empty: str, name: str, initial: Tensor | None) -> None:
        """Set how long the initial safe set (the argument ``name``) counts, and what is played if nothing is safe."""
        validation.one_of("trust", trust, "start", "always")
        validation.one_of("when_empty", when_empty, "likeliest", name, "raise")
        missing = when_empty == name and initial is None
        validation.require(not missing, name, None, f"given where when_empty is {name!r}")
        self.trust, self.when_empty = trust, when_empty

    # -- learning --------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Every model learns its measurement. Raises ValueError, with nothing changed, unless there is one for each."""
        measured = observation.outcomes
        self.choices.check(replace(observation, outcomes=None))
        shape = (self.replicates, len(self.outcome_names))
        if self.outcome_names:
            expected = f"given, ({shape[0]}, {shape[1]}) numbers for {self.outcome_names}"
            validation.require(measured is not None, "outcomes", None, expected)
        if measured is not None:
            validation.shape_is("outcomes", measured, measured.shape == shape, f"{shape}")
            validation.require(measured.is_floating_point(), "outcomes", measured.dtype, "real numbers")
            if measured.is_cpu:
                for one, value in zip(self._others.values(), measured.unbind(-1), strict=True):
                    validation.rewards("outcomes", value, one.model.noise_variance.dtype)
        values = [observation.reward, *(() if measured is None else measured.unbind(-1))]
        arm, time, clock = observation.arm, observation.time, self._clock + 1
        for one, rule, value in zip((self.choices, *self._others.values()), self._rules, values, strict=True):
            one.observe(arm, value, time, late=True)
            rule.observed(partial(one.inputs_of, arm, time), value, one.model)
            rule.after(one.model, clock)
        self._clock = clock

    def trace(self) -> dict[str, Tensor | float]:
        """Size of the safe set, whether the fallback was played, and the width of safety, of the last choice."""
        return dict(self._told)

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("choices", "_others", "_rules")
    _clocks = ("_clock",)

    def _fresh(self) -> dict[str, Any]:
        return {"_clock": 0}

    # -- helpers ---------------------------------------------------------------------------------------

    def _model(self, name: str) -> Any:
        return self.outcomes.get(name, self.model)

    def _safety_of(self, name: str) -> Tensor:
        return self._column(self._safety[name].at(self._clock + 1, self._model(name)))

    def _column(self, value: Tensor) -> Tensor:
        """() or (S,) as (S, 1)."""
        return value.expand(self.replicates).unsqueeze(-1)

    def _bounded(self, name: str, mean: Tensor, variance: Tensor) -> Bounded:
        """The bounds for moments (S, n) of a function that has limits."""
        return Bounded(mean, variance.sqrt(), self._safety_of(name), self.limits[name])

    def _first(self) -> Tensor:
        """Replicates that have learned nothing yet, (S, 1)."""
        return self._column(torch.as_tensor(self._clock == 0, device=self.model.noise_variance.device))

    def _check_not_lost(self, lost: Tensor, what: str) -> None:
        """Raises NoSafeArmError if a replicate is ``lost``, (S,) booleans, and ``when_empty`` is ``"raise"``."""
        if self.when_empty == "raise" and bool(lost.any()):
            where = lost.nonzero().flatten().tolist()[:8]
            raise NoSafeArmError(f"no {what} is certainly within the limits, in replicates {where}")

    def _tell(self, safe: Tensor, lost: Tensor) -> None:
        width = self._safety_of(next(iter(self.limits))).squeeze(-1)
        self._told = {
            "safe": safe.double(),
            "fallback": lost.double(),
            "safety_width": width.expand(self.replicates),
        }


def _checked_limits(limits: Mapping[str, Limits], outcomes: Mapping[str, OnlineModel]) -> dict[str, Limits]:
    validation.instance("limits", limits, Mapping, "(low, high) by name of an outcome, or 'reward'")
    validation.require(len(limits) > 0, "limits", limits, "of at least one outcome, or of 'reward'")
    without = sorted(set(limits) - set(outcomes) - {"reward"})
    known = f"of outcomes that have a model, {tuple(outcomes)}, or of 'reward'"
    validation.require(not without, "limits", without, known)
    free = sorted(set(outcomes) - set(limits))
    validation.require(not free, "outcomes", free, "without those that have no limits")
    return {name: check_limits(name, pair) for name, pair in limits.items()}


def count_limits(limits: Mapping[str, Limits]) -> int:
    """Finite bounds among all limits."""
    return sum(math.isfinite(x) for pair in limits.values() for x in pair)

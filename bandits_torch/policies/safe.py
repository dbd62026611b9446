"""Policies that play only where what is measured stays within limits, with high probability."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.outcome_constraint import check_limits
from bandits_torch.policies.choices.arms import ModelArms, best_available
from bandits_torch.policies.forgetting import KeepEverything
from bandits_torch.policies.policy import Choice, Expect, Observation, Pending, Policy, copied_state
from bandits_torch.policies.safe_sets import (
    Bounded,
    Limits,
    expanders,
    least_margin,
    maximisers,
    safe_set,
)
from bandits_torch.theory.widths import Width


class NoSafeArmError(RuntimeError):
    """No arm is certainly within the limits, and the policy was told to stop then."""


class SafePolicy(Policy):
    """Plays arms whose reward and outcomes lie within their limits by the confidence bounds of their models.

    At every step the safe set is computed anew from the posteriors at that time,

        S_t = {x: low_i <= mu_i(x, t) - w_t sigma_i(x, t) and mu_i(x, t) + w_t sigma_i(x, t) <= high_i for all i},

    so models that drift let arms leave it as their last measurement ages (TVSafeOpt, Li et al. 2024), with no Lipschitz
    constant over arms or time (GP-SafeOpt). In it the policy plays, by ``explore``:

    * ``"ucb"``: the largest upper bound of the reward: goal-oriented, the better choice for regret;
    * ``"safeopt"``: of the maximisers (which may be the best) and expanders (which may enlarge the safe set), the arm
      of the widest bounds in units of its prior. No theorem bounds the regret of either under drift.

    Args:
        model: of the reward, an ``ArmModel`` of batch shape () or (S,).
        outcomes: models of what is measured beside it, by name, of the same arms and batch shape.
        limits: (low, high) of each outcome, by name, and of ``"reward"`` if it has limits.
        width: of the reward's bounds in choosing.
        safety_width: w_t; ``PosteriorSafetyWidth`` has the theorem.
        safe_arms: (N,) or (S, N) booleans, an initial safe set S_0. It is part of S_t before the first reward
            (``trust="start"``), or always (``trust="always"``: somebody vouches for it).
        when_empty: what is played when S_t is empty: ``"likeliest"``, the arm with the most posterior deviations to its
            nearest limit; ``"safe_arms"``, the best of those by upper bound, whatever the models say of them; or
            ``"raise"``, ``NoSafeArmError``. No guarantee holds at such a step; ``trace`` counts it as ``fallback``.

    Late rewards are learned exactly under drift, at the cost of learning all again (``ArmGP``). Cost: that of the
    models, O(m N), and O(m N^2) with ``"safeopt"``.

    Source: Sui et al. 2015; Berkenkamp, Krause & Schoellig 2016 and 2021; Li et al. 2024 (arXiv 2409.18000).

    Raises ValueError for limits without outcomes, outcomes without limits, models of other arms or batches, and names
    and masks of other kinds.
    """

    changeable = ("width",)

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
        validation.instance("outcomes", outcomes, Mapping, "models by name")
        self.outcomes = dict(outcomes)
        for name, one in {"reward": model, **self.outcomes}.items():
            validation.instance(f"model of {name!r}", one, ArmModel, "an ArmModel, such as ArmGP")
            found = (one.num_arms, tuple(one.batch_shape))
            expected = (model.num_arms, tuple(model.batch_shape))
            same = found == expected and len(found[1]) <= 1
            validation.require(same, f"model of {name!r}", found, f"of arms and batch shape {expected}")
        validation.require("reward" not in outcomes, "outcomes", "reward", "named otherwise")
        self.limits = _checked_limits(limits, self.outcomes)
        for name, value, kind in (("width", width, Width), ("safety_width", safety_width, Width)):
            validation.instance(name, value, kind, "a Width")
        _one_of("trust", trust, "start", "always")
        _one_of("when_empty", when_empty, "likeliest", "safe_arms", "raise")
        _one_of("explore", explore, "ucb", "safeopt")
        self.model, self.trust, self.when_empty, self.explore = model, trust, when_empty, explore
        self.choices = ModelArms(model)
        self._others = {name: ModelArms(one) for name, one in self.outcomes.items()}
        self.replicates, self.num_arms = self.choices.replicates, self.choices.num_arms
        self.outcome_names = tuple(self.outcomes)
        self.safe_arms = self._checked_arms(safe_arms)
        needed = when_empty == "safe_arms" and safe_arms is None
        validation.require(not needed, "safe_arms", None, "given where when_empty is 'safe_arms'")
        self.width = width.bind(model, KeepEverything())
        self.safety_width = safety_width
        self._safety = {name: safety_width.bind(self._model(name), KeepEverything()) for name in self.limits}
        models = {"reward": model, **self.outcomes}  # with nothing observed yet
        self._scale = {name: one.marginals()[1].amax().sqrt() for name, one in models.items()}
        self._clock: int | Tensor = 0
        self._told: dict[str, Tensor | float] = {}
        self._learned: dict[str, Bounded] | None = None

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The best of the safe set that is available; ``why["certain"]`` (S,) says whether it was in S_t.

        Raises NoSafeArmError where there is none and ``when_empty`` is ``"raise"``.
        """
        if available is not None:
            self.choices.check_available(available)
        functions = self._functions(time)  # with what is pending, if anything is
        learned = functions if self._learned is None else self._learned
        certain = safe_set(list(learned.values()))
        safe = certain | self._vouched()
        allowed = safe if available is None else safe & available
        lost = ~allowed.any(-1)
        played = torch.where(lost.unsqueeze(-1), self._fallback(learned, available, lost), allowed)
        mean, variance = self.choices.marginals(time)
        half = self._column(self.width.at(self._clock + 1, self.model)) * variance.sqrt()
        if self.explore == "ucb":
            score = mean + half
        else:
            played = self._worth_a_look(played, safe, functions, mean, half, time)
            score = self._uncertainty(functions, variance.sqrt())
        index, arm = best_available(score.mT, played)
        width = self._safety_of(next(iter(self.limits)))
        self._told = {
            "safe": certain.sum(-1).double(),
            "fallback": lost.double(),
            "safety_width": width.squeeze(-1).expand(self.replicates),
        }
        return Choice(arm, {"index": index, "certain": ~lost})

    def safe_set(self, time: float) -> Tensor:
        """S_t, (S, N) booleans: arms within all limits by the bounds at ``time``, without those vouched for."""
        with torch.no_grad():
            return safe_set(list(self._functions(time).values()))

    def _functions(self, time: float) -> dict[str, Bounded]:
        """Posteriors and bounds of what has limits."""
        functions = {}
        for name, limits in self.limits.items():
            mean, variance = self._others.get(name, self.choices).marginals(time)
            functions[name] = Bounded(mean, variance.sqrt(), self._safety_of(name), limits)
        return functions

    def _vouched(self) -> Tensor:
        """Arms that are safe because somebody says so, (S, N)."""
        if self.trust == "always":
            return self.safe_arms
        first = torch.as_tensor(self._clock == 0, device=self.safe_arms.device)
        return self.safe_arms & self._column(first)

    def _fallback(self, functions: dict[str, Bounded], available: Tensor | None, lost: Tensor) -> Tensor:
        """Arms (S, N) to play where no arm is safe."""
        if self.when_empty == "raise" and bool(lost.any()):
            where = lost.nonzero().flatten().tolist()[:8]
            raise NoSafeArmError(f"no arm is certainly within the limits, in replicates {where}")
        margin = least_margin(list(functions.values()))
        if available is not None:
            margin = margin.masked_fill(~available, -torch.inf)
        if self.when_empty == "safe_arms":
            told = self.safe_arms if available is None else self.safe_arms & available
            margin = torch.where(told.any(-1, keepdim=True), told.to(margin), margin)
        return margin == margin.amax(-1, keepdim=True)

    def _worth_a_look(
        self,
        played: Tensor,
        safe: Tensor,
        functions: dict[str, Bounded],
        mean: Tensor,
        half: Tensor,
        time: float,
    ) -> Tensor:
        """Maximisers and expanders among the arms that may be played."""
        models = [self._model(name) for name in functions]
        shape = (self.replicates, self.num_arms, self.num_arms)
        joint = [model.joint(time)[1].reshape(shape) for model in models]
        noise = [self._column(model.noise_variance) for model in models]
        telling = expanders(safe, list(functions.values()), joint, noise)
        return played & (maximisers(played, mean, half) | telling)

    def _uncertainty(self, functions: dict[str, Bounded], deviation: Tensor) -> Tensor:
        """The widest of an arm's bounds, in prior standard deviations, (S, N)."""
        deviations = {"reward": deviation} | {name: one.deviation for name, one in functions.items()}
        return torch.stack([value / self._scale[name] for name, value in deviations.items()]).amax(0)

    @contextmanager
    def expecting(self, time: float) -> Iterator[Expect]:
        """Pending pulls lower the variances that score arms; the safe set is of what has been learned alone, since a
        measurement that is only expected makes nothing safer."""
        with ExitStack() as stack, torch.no_grad():
            self._learned = self._functions(time)
            stack.callback(setattr, self, "_learned", None)
            each = [stack.enter_context(one.provisional()) for one in (self.choices, *self._others.values())]

            @torch.no_grad()
            def expect(pending: Pending) -> None:
                for one in each:
                    one(pending.arm, pending.time)

            yield expect

    # -- learning --------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Every model learns its own; ValueError, with nothing changed, without an outcome for each."""
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
                validation.finite_tensor("outcomes", measured)
        arm, time = observation.arm, observation.time
        self.choices.observe(arm, observation.reward, time, late=True)
        for column, one in enumerate(self._others.values()):
            one.observe(arm, measured[:, column], time, late=True)  # type: ignore[index]
        self._clock = self._clock + 1

    def trace(self) -> dict[str, Tensor | float]:
        """Size of the safe set, whether the fallback was played, and the width of safety, of the last choice."""
        return dict(self._told)

    # -- state -----------------------------------------------------------------------------------------

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the priors and the initial safe set."""
        for model in (self.model, *self.outcomes.values()):
            if where is None:
                model.reset()
            else:
                model.reset(where.reshape(model.batch_shape))
        self._clock = 0 if where is None else torch.where(where, 0, self._clock)

    def state_dict(self) -> dict[str, Any]:
        """The models' states and the clock."""
        outcomes = {name: copied_state(model) for name, model in self.outcomes.items()}
        return {"model": copied_state(self.model), "outcomes": outcomes, "clock": self._clock}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        self.model.load_state_dict(state["model"])
        for name, model in self.outcomes.items():
            model.load_state_dict(state["outcomes"][name])
        self._clock = state["clock"]

    # -- helpers ---------------------------------------------------------------------------------------

    def _model(self, name: str) -> ArmModel:
        return self.outcomes.get(name, self.model)

    def _safety_of(self, name: str) -> Tensor:
        return self._column(self._safety[name].at(self._clock + 1, self._model(name)))

    def _column(self, value: Tensor) -> Tensor:
        """() or (S,) as (S, 1)."""
        return value.expand(self.replicates).unsqueeze(-1)

    def _checked_arms(self, safe_arms: Tensor | None) -> Tensor:
        shape = (self.replicates, self.num_arms)
        device = self.model.noise_variance.device
        if safe_arms is None:
            return torch.zeros(shape, dtype=torch.bool, device=device)
        validation.tensor("safe_arms", safe_arms)
        validation.require(safe_arms.dtype == torch.bool, "safe_arms", safe_arms.dtype, "booleans, a mask")
        fits = safe_arms.shape in (shape, shape[1:])
        validation.shape_is("safe_arms", safe_arms, fits, f"{shape[1:]} or {shape}")
        some = bool(safe_arms.any(-1).all())
        validation.require(some, "safe_arms", safe_arms, "a mask with an arm in every replicate")
        return safe_arms.to(device).expand(shape).clone()


def _checked_limits(limits: Mapping[str, Limits], outcomes: Mapping[str, ArmModel]) -> dict[str, Limits]:
    validation.instance("limits", limits, Mapping, "(low, high) by name of an outcome, or 'reward'")
    validation.require(len(limits) > 0, "limits", limits, "of one outcome at least, or of 'reward'")
    without = sorted(set(limits) - set(outcomes) - {"reward"})
    known = f"of outcomes that have a model, {tuple(outcomes)}, or of 'reward'"
    validation.require(not without, "limits", without, known)
    free = sorted(set(outcomes) - set(limits))
    validation.require(not free, "outcomes", free, "without those that have no limits")
    return {name: check_limits(name, pair) for name, pair in limits.items()}


def count_limits(limits: Mapping[str, Limits]) -> int:
    """Finite bounds among all limits."""
    return sum(math.isfinite(x) for pair in limits.values() for x in pair)


def _one_of(name: str, value: str, *known: str) -> None:
    validation.require(value in known, name, value, " or ".join(map(repr, known)))

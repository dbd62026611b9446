"""A generation node for Ax whose models expect the objective to change: ``pip install ".[ax]"`` in a checkout."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from ax.core.base_trial import BaseTrial
from ax.core.data import Data
from ax.core.experiment import Experiment
from ax.core.parameter import ChoiceParameter, FixedParameter, Parameter, ParameterType, RangeParameter
from ax.generation_strategy.external_generation_node import ExternalGenerationNode
from ax.generation_strategy.transition_criterion import TransitionCriterion

from bandits_torch import recipes, validation
from bandits_torch.integrations import RECENT
from bandits_torch.mixed_points import Axis, Space, SpacePolicy
from bandits_torch.policies.policy import Policy

__all__ = ["BanditNode"]
_Values = Mapping[str, Any]


class BanditNode(ExternalGenerationNode):
    """Generates the choices of a policy over a ``Domain``. The policy learns each arm of every completed trial once.

    Every parameter has coordinates in the policy's unit cube: one for a range, its logarithm, an integer or an ordered
    choice (its rank), and one per value for other choices. Fixed and disabled parameters, and ``fixed_parameters`` of a
    call, have their values. Points that are pending in Ax, or of trials that run, count as pending
    (``Policy.choose_many``), but not those of completed trials. So do points of the latest 50 trials that failed, were
    abandoned or stopped early, or lack a value of at most 1e140 in size, so they are not generated forever.

    If the objective's metric or direction, a parameter's range or choices, or a value that was learned changes, all
    trials are learned again. A parameter that a trial lacks has its backfill value. A value without a place, such as
    one that is none of a parameter's choices, None, or 0 on a logarithmic scale, is learned in the middle of all.

    A point may be generated again, because the objective may have changed there. Standard errors in Ax's data are not
    used. Ax cannot save external nodes, so save the experiment with another generation strategy. After loading, a new
    node learns the experiment's trials again.

    Args:
        policy: called with a ``Domain``, ``search`` and ``seed``; by default ``recipes.auto``. Other recipes take a
            kernel over the unit cube.
        standardise: whether the policy learns values in units of their spread (``StandardisedPolicy``), for a policy
            that, unlike ``auto``, does not learn the spread.
        time: ``"number"``, the index of a trial; or ``"clock"``, its start in seconds, or else its creation. The next
            trial is then chosen for the present.
        seed: seed of all random numbers.
        name, transition_criteria: see ``GenerationNode``.

    Cost: a step of the policy for each arm learned and each pending arm.

    Raises ValueError for arguments of the wrong type, and while generating for several objectives, constraints on
    outcomes or parameters, parameters that depend on others or are a fidelity or a task, and no parameter of several
    values.
    """

    def __init__(
        self,
        policy: Callable[..., Policy] = recipes.auto,
        *,
        standardise: bool = False,
        time: str = "number",
        seed: int = 0,
        name: str = "Bandit",
        transition_criteria: Sequence[TransitionCriterion] | None = None,
    ) -> None:
        validation.function("policy", policy, "a function of a Domain, search and seed")
        validation.one_of("time", time, "number", "clock")
        self._seed = validation.natural("seed", seed)
        super().__init__(name=name, should_deduplicate=False, transition_criteria=transition_criteria)
        self._build, self._standardise, self._time = policy, standardise, time
        self._parameters: dict[str, Parameter] = {}
        self._about: tuple[Any, ...] = ()  # axes, values of choices, metric and sign of the rewards learned
        self._learned: dict[tuple[int, str], float] = {}  # values by (trial, arm)
        self._now = 0.0
        self._trials = 0
        self._given: set[tuple[Any, ...]] = set()  # points generated since the latest trial
        self._completed: set[tuple[Any, ...]] = set()  # points of completed trials and of no other trial
        self._failed: list[_Values] = []
        self._running: list[_Values] = []
        self._fixed: dict[str, Any] = {}

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        """See Ax: learn the new trials."""
        config = experiment.optimization_config
        validation.require(config is not None, "optimization_config", config, "one with an objective")
        weights = config.objective.metric_weights
        single = len(weights) == 1
        validation.require(single, "objective", config.objective, "one metric: a bandit has one reward")
        limits = config.outcome_constraints
        validation.require(not limits, "outcome_constraints", limits, "none: this node learns the objective")
        ((metric, weight),) = weights
        sign = math.copysign(1.0, weight)  # -1 if it is minimised
        constraints = experiment.search_space.parameter_constraints
        validation.require(not constraints, "parameter_constraints", constraints, "none")
        self._parameters = dict(experiment.search_space.parameters)
        self._filled = experiment.search_space.backfill_values()
        axes = {
            name: _axis(one)
            for name, one in self._parameters.items()
            if not isinstance(one, FixedParameter)
            and not (isinstance(one, ChoiceParameter) and len(one.values) == 1)
        }
        kinds = self._parameters.values()
        choices = [list(one.values) for one in kinds if isinstance(one, ChoiceParameter)]
        several = "one with a parameter of several values"
        validation.require(len(axes) > 0, "search_space", experiment.search_space, several)
        about = (axes, choices, metric, sign)
        table = data.df
        table = table[table["metric_signature"] == metric] if len(table) else table
        values = {(int(row.trial_index), row.arm_name): float(row.mean) for row in table.itertuples()}
        largest = validation.largest_reward(torch.float64)
        if len(experiment.trials) != self._trials:
            self._trials, self._given = len(experiment.trials), set()
        completed: set[tuple[Any, ...]] = set()
        found: dict[tuple[int, str], float] = {}
        self._failed, self._running, recent = [], [], sorted(experiment.trials)[-RECENT:]
        other = set(self._given)
        latest = -math.inf
        for index, trial in sorted(experiment.trials.items()):
            latest, done = max(latest, self._time_of(trial)), trial.status.is_completed
            for arm in trial.arms:
                (completed if done else other).add(self._values(arm.parameters))
                value = values.get((index, arm.name), math.nan)
                if done and abs(value) <= largest and arm not in trial.abandoned_arms:
                    found[index, arm.name] = value
                elif not trial.status.is_terminal:
                    self._running.append(arm.parameters)
                elif index in recent:
                    self._failed.append(arm.parameters)
        self._completed = completed - other
        if about != self._about or any(found.get(key) != value for key, value in self._learned.items()):
            # First the policy: it may raise.
            self._policy = SpacePolicy(Space(axes), self._build, None, self._seed, self._standardise)
            self._about, self._learned = about, {}
        for (index, name), value in found.items():
            if (index, name) not in self._learned:
                trial = experiment.trials[index]
                numbers = self._numbers(trial.arms_by_name[name].parameters)
                self._policy.learn(self._time_of(trial), numbers, sign * value)
                self._learned[index, name] = value
        present = latest + 1.0 if self._time == "number" else max(latest, time.time())
        self._now = max(present, 0.0)

    def _gen(self, experiment: Experiment, *args: Any, fixed_features: Any = None, **given: Any) -> Any:
        """See Ax: generate arms with the values in ``fixed_features`` and of disabled parameters."""
        fixed = experiment.search_space.get_disabled_parameter_fixed_features(fixed_features)
        self._fixed = {} if fixed is None else fixed.parameters
        known = experiment.search_space.parameters
        validation.known_names("fixed_parameters", self._fixed, known)
        for name, value in self._fixed.items():
            one = known[name]
            validation.require(one.validate(value), f"fixed_parameters[{name!r}]", value, f"a value of {one}")
        return super()._gen(experiment, *args, fixed_features=fixed_features, **given)

    def get_next_candidate(self, pending_parameters: list[Any]) -> Any:
        """See Ax: the next choice of the policy."""
        known = self._completed.union(map(self._values, self._failed))
        waiting = {self._values(values): values for values in [*self._running, *pending_parameters]}
        unknown = [values for place, values in waiting.items() if place not in known]
        pending = map(self._numbers, self._failed + unknown)
        given = {name: self._fixed[name] for name in self._policy.space.axes if name in self._fixed}
        fixed = {name: _number(self._parameters[name], value) for name, value in given.items()}
        numbers = self._policy.choose(self._now, pending, fixed)
        found = {name: _value(one, numbers.get(name)) for name, one in self._parameters.items()} | self._fixed
        self._given.add(self._values(found))
        self._completed.discard(self._values(found))
        return found

    def _values(self, parameters: _Values) -> tuple[Any, ...]:
        return tuple(parameters.get(name) for name in self._parameters)

    def _numbers(self, values: _Values) -> dict[str, float]:
        """The numbers of these values; NaN for one that is missing."""
        values = {**self._filled, **values}
        return {name: _number(self._parameters[name], values.get(name)) for name in self._policy.space.axes}

    def _time_of(self, trial: BaseTrial) -> float:
        if self._time == "number":
            return float(trial.index)
        return (trial.time_run_started or trial.time_created).timestamp()


def _axis(one: Parameter) -> Axis:
    validation.require(one.target_value is None, one.name, one, "without a target value: no fidelity or task")
    if isinstance(one, RangeParameter):
        validation.require(not one.logit_scale, one.name, one, "without a logit scale")
        whole = one.parameter_type == ParameterType.INT
        return Axis(float(one.lower), float(one.upper), one.log_scale, 1.0 if whole else None)
    plain = isinstance(one, ChoiceParameter) and not one.is_hierarchical
    expected = "a range, a choice or a fixed value, on which no other parameter depends"
    validation.require(plain, one.name, one, expected)
    count = len(one.values)
    return Axis(0.0, count - 1.0, step=1.0) if one.is_ordered else Axis(choices=count)


def _number(one: Parameter, value: Any) -> float:
    """The number of a value: the position of a choice; NaN for None and for a value that is none of the choices."""
    if isinstance(one, ChoiceParameter):
        return float(one.values.index(value)) if value in one.values else math.nan
    return math.nan if value is None else float(value)


def _value(one: Parameter, number: float | None) -> Any:
    """The value of a parameter at a number; without a number, its only value."""
    if isinstance(one, ChoiceParameter):
        return one.values[round(number or 0.0)]
    if number is None:
        return one.value
    if one.parameter_type == ParameterType.INT:  # a float is coarser than large integers
        return min(max(round(number), one.lower), one.upper)
    return one.cast(number)

"""A sampler for Optuna whose models expect the objective to change: ``pip install ".[optuna]"`` in a checkout."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from bandits_torch import recipes, validation
from bandits_torch.integrations import RECENT
from bandits_torch.mixed_points import Axis, Space, SpacePolicy
from bandits_torch.policies.policy import Policy

__all__ = ["BanditSampler"]
_SEEN = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
_TIMES = "'number', 'clock' or a function of a trial"


class BanditSampler(BaseSampler):
    """Samples the choices of a policy over a ``Domain``. The policy learns every completed trial once.

    Every parameter ever suggested has coordinates in the policy's unit cube: one for a float or an integer (its
    logarithm with ``log=True``), and one per choice for a categorical parameter. If a trial did not suggest a parameter
    because of a condition, the policy learns it at the middle of the parameter's range. If an enqueued trial gives some
    values, the others are chosen for these. A new parameter is first sampled by ``independent_sampler``. Then the
    policy is built again over the larger cube and learns all trials again.

    Running trials count as pending (``Policy.choose_many``), so ``n_jobs`` works, and so do several processes on one
    storage. Failed and pruned trials are not learned, and pruners do not use the sampler. Those among the latest 50
    trials count as pending, so a point that fails is not sampled again and again. An infinite value is learned as the
    worst (or best) finite value so far; until there is one, its trial also counts as pending.

    Args:
        policy: called with a ``Domain``, ``search`` and ``seed``; by default ``recipes.auto``. Other recipes, such as
            ``functools.partial(recipes.tv_gp_ucb, kernel=kernel, noise_variance=0.1)``, take a kernel over the unit
            cube.
        standardise: whether the policy learns values in units of their spread (``StandardisedPolicy``), for a policy
            that, unlike ``auto``, does not learn the spread.
        time: time of a trial: ``"number"``, its number; ``"clock"``, its start in seconds; or a function of the trial.
        n_startup_trials: number of first trials that are points of a Sobol sequence; None: 2 (d + 1) in dimension d.
        independent_sampler: by default ``RandomSampler``.
        seed: seed of all random numbers; None: a different one for every sampler.

    Cost: a step of the policy for each trial learned and each one pending; all again when the parameters change.

    Raises ValueError for arguments of the wrong type, and while sampling for several objectives and for constraints.
    """

    def __init__(
        self,
        policy: Callable[..., Policy] = recipes.auto,
        *,
        standardise: bool = False,
        time: str | Callable[[FrozenTrial], float] = "number",
        n_startup_trials: int | None = None,
        independent_sampler: BaseSampler | None = None,
        seed: int | None = None,
    ) -> None:
        validation.function("policy", policy, "a function of a Domain, search and seed")
        validation.require(callable(time) or time in ("number", "clock"), "time", time, _TIMES)
        if n_startup_trials is not None:
            validation.natural("n_startup_trials", n_startup_trials)
        if seed is not None:
            validation.natural("seed", seed)
        if independent_sampler is not None:
            validation.instance("independent_sampler", independent_sampler, BaseSampler, "a BaseSampler")
        self._build, self._standardise, self._time = policy, standardise, time
        self._startup = n_startup_trials
        self._independent = independent_sampler or RandomSampler(seed=seed)
        self._seed = int(np.random.default_rng(seed).integers(2**31))
        self._turn = threading.RLock()  # the threads of ``n_jobs`` share the sampler
        self._study = ""
        self._axes: dict[str, Axis] = {}
        self._asked: dict[int, Mapping[str, float]] = {}
        # The start of each trial asked or learned. Together they identify the study.
        self._begun: dict[int, Any] = {}

    def reseed_rng(self) -> None:
        """Use other random numbers, in a policy from when it is next built.

        The present policy goes on: Optuna calls this before every trial of ``n_jobs``, whose threads share it.
        """
        self._independent.reseed_rng()
        self._seed = int(np.random.default_rng().integers(2**31))

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without the policy, which learns again from the study."""
        with self._turn:
            return {name: value for name, value in vars(self).items() if name not in ("_turn", "_policy")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _turn=threading.RLock(), _axes={})

    # -- what Optuna calls -----------------------------------------------------------------------------

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The latest range of every parameter suggested so far that has more than one value."""
        _one_objective(study)
        latest, _ = _parameters(study.get_trials(deepcopy=False, states=_SEEN))
        return {name: given for name, given in latest.items() if not given.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The choice of the policy."""
        _one_objective(study)
        if not search_space:
            return {}
        with self._turn:
            every = study.get_trials(deepcopy=False)
            trials = [one for one in every if one.state in _SEEN]
            latest, axes = _parameters(trials, search_space)
            starts = {one.number: one.datetime_start for one in every}
            same = all(k in starts and starts[k] == start for k, start in self._begun.items())
            if not same or (study.study_name, axes) != (self._study, self._axes):
                self._begin(study.study_name, axes)
            self._begun[trial.number] = starts[trial.number]
            for one in sorted(trials, key=lambda t: (self._time_of(t), t.number)):
                self._learn(one, study.direction)
            now = max(self._time_of(trial), self._now)
            ended = [t for t in every[-RECENT:] if t.state.is_finished() and t.params]
            failed = [t for t in ended if t.number not in self._learned]
            running = [t for t in trials if t.state == TrialState.RUNNING and t.number != trial.number]
            running = [t for t in running if t.number in self._asked or t.params]
            ranges = {name: _ends(latest[name]) for name, axis in axes.items() if not axis.choices}
            held = axes.keys() - search_space.keys()  # of one value now, or set by another sampler
            last = [(name, t) for t in trials for name in t.params if name in held]
            values = {name: t.distributions[name].to_internal_repr(t.params[name]) for name, t in last}
            for name, value in trial.system_attrs.get("fixed_params", {}).items():  # of an enqueued trial
                if name in search_space:
                    low, high = _ends(search_space[name])
                    values[name] = min(max(search_space[name].to_internal_repr(value), low), high)
            numbers = self._policy.choose(now, map(self._numbers, failed + running), values, ranges)
            self._asked[trial.number] = numbers
            return {name: _value(given, numbers[name]) for name, given in search_space.items()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value that ``independent_sampler`` samples."""
        _one_objective(study)
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._independent.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Any) -> None:
        self._independent.after_trial(study, trial, state, values)

    # -- the policy ------------------------------------------------------------------------------------

    def _begin(self, study: str, axes: dict[str, Axis]) -> None:
        # First the policy: it may raise.
        self._policy = SpacePolicy(Space(axes), self._build, self._startup, self._seed, self._standardise)
        self._study, self._axes = study, axes
        self._learned: set[int] = set()
        self._asked, self._begun = {}, {}
        self._now, self._values = -math.inf, (math.inf, -math.inf)

    def _learn(self, trial: FrozenTrial, direction: StudyDirection) -> None:
        """Learn a completed trial, if it is new."""
        if trial.state != TrialState.COMPLETE or trial.number in self._learned:
            return
        limited = getattr(trial, "constraints", None) or trial.system_attrs.get("constraints")
        validation.require(not limited, "constraints", limited, "none: this sampler learns only the value")
        assert trial.value is not None
        least, most = self._values
        if math.isfinite(trial.value):
            self._values = min(least, trial.value), max(most, trial.value)
        elif least > most:
            return  # learned later, once a finite value can replace it
        value = min(max(trial.value, self._values[0]), self._values[1])
        largest = validation.largest_reward(torch.float64)
        reward = min(max(-value if direction == StudyDirection.MINIMIZE else value, -largest), largest)
        time = self._time_of(trial)
        self._policy.learn(time, self._numbers(trial), reward)
        self._learned.add(trial.number)
        self._begun[trial.number] = trial.datetime_start
        self._asked.pop(trial.number, None)
        self._now = max(self._now, time)

    def _numbers(self, trial: FrozenTrial) -> dict[str, float]:
        """The numbers of a trial's values; of a running one those sampled, or suggested since."""
        known = dict(self._asked.get(trial.number, {})) if trial.state == TrialState.RUNNING else {}
        for name, value in trial.params.items():
            given = trial.distributions[name]
            if name in self._axes and _choices(given) == self._axes[name].choices:
                known[name] = given.to_internal_repr(value)
        return known

    def _time_of(self, trial: FrozenTrial) -> float:
        if self._time == "number":
            return float(trial.number)
        if callable(self._time):
            return validation.finite_number("time(trial)", self._time(trial))
        assert trial.datetime_start is not None
        return trial.datetime_start.timestamp()


def _one_objective(study: Study) -> None:
    count = len(study.directions)
    validation.require(count == 1, "study.directions", study.directions, "one: a bandit has one reward")


def _parameters(
    trials: Sequence[FrozenTrial], also: Mapping[str, BaseDistribution] | None = None
) -> tuple[dict[str, BaseDistribution], dict[str, Axis]]:
    """The latest distribution of every parameter, and by name the axis over all values that it ever had, if several."""
    latest: dict[str, BaseDistribution] = {}
    axes: dict[str, Axis] = {}
    for distributions in [*(trial.distributions for trial in trials), also or {}]:
        for name, given in distributions.items():
            if latest.get(name) == given:
                continue
            latest[name] = given
            if name in axes or not given.single():
                axes[name] = _around(axes.get(name), given)
    return latest, {name: _on_grid(axis, latest[name]) for name, axis in axes.items()}


def _choices(given: BaseDistribution) -> int:
    return len(given.choices) if isinstance(given, CategoricalDistribution) else 0


def _around(axis: Axis | None, given: BaseDistribution) -> Axis:
    """The axis extended to the values of a distribution; if their kinds differ, the axis of the distribution."""
    if isinstance(given, CategoricalDistribution):
        return Axis(choices=len(given.choices))
    low, high = _ends(given)
    if axis is not None and not axis.choices and axis.log == given.log:
        low, high = min(low, axis.low), max(high, axis.high)
    return Axis(low, high, given.log, given.step)


def _on_grid(axis: Axis, given: BaseDistribution) -> Axis:
    """The axis, extended if necessary so that the values of a distribution are among its values."""
    if axis.step is None:
        return axis
    below, above = (given.low - axis.low) / axis.step, (axis.high - given.low) / axis.step
    if all(math.isclose(count, round(count), abs_tol=1e-6) for count in (below, above)):
        return axis
    low, high = given.low - math.ceil(below) * axis.step, given.low + math.ceil(above) * axis.step
    return replace(axis, low=float(low), high=float(high))


def _ends(given: BaseDistribution) -> tuple[float, float]:
    if isinstance(given, CategoricalDistribution):
        return 0.0, len(given.choices) - 1.0
    return float(given.low), float(given.high)


def _value(given: BaseDistribution, number: float) -> Any:
    """The value of a distribution nearest to a number."""
    if not isinstance(given, CategoricalDistribution):
        if given.step is not None:
            number = given.low + round((number - given.low) / given.step) * given.step
        number = min(max(number, given.low), given.high)
    return given.to_external_repr(number)

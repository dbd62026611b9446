"""Population-based bandits in Ray Tune, with models of noise and drift: ``pip install ".[ray]"`` in a checkout."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.search.sample import Categorical, Float, Integer, LogUniform, Normal, Quantized

from bandits_torch import validation
from bandits_torch.files import atomic_write
from bandits_torch.integrations.population import Population, Range, Ranges

__all__ = ["PB2"]
_FILE = "bandits_torch_pb2.json"  # in Tune's folder of an experiment
_OF_A_TRIAL = ("last_score", "last_train_time", "last_perturbation_time")
_ABSENT = object()  # in place of a value that a configuration lacks
_LOG_FROM = 30.0  # least high / low of a list that models also see on a logarithmic scale


class PB2(PopulationBasedTraining):
    """Population-based bandits (Parker-Holder et al. 2020), a replacement for ``ray.tune.schedulers.pb2.PB2``.

    As in Ray's class, trials in the lower quantile continue from the weights of a trial in the upper quantile, with
    hyperparameters that a Gaussian process chooses; arguments and files are the same. The choice differs
    (``Population``): it averages over noise, length-scales and drift, weighted by the likelihood of the observed gains.
    Other trials in training lower the variance. A failed run, whose score is not finite, counts as the worst gain and
    is the first to be replaced. Ranges may be logarithmic, of integers, of multiples and of categories.

    Args:
        time_attr: the name of the time in a result.
        metric, mode: the metric, ``"max"`` or ``"min"``; None: those of ``TuneConfig``.
        perturbation_interval: > 0, in units of ``time_attr``.
        hyperparam_bounds: ranges by name, nested or not. ``[low, high]``: integers if the trial's value is one; models
            also see a logarithmic scale if ``low`` > 0 and ``high`` >= 30 ``low``. ``tune.uniform``, ``loguniform``,
            ``randint``, ``lograndint`` and their quantized forms. ``tune.choice``, or equivalently
            ``tune.grid_search``. A trial whose configuration lacks a name begins at a Sobol point.
        quantile_fraction: from 0 to 0.5, the share of trials whose weights are copied, and of those that copy them.
        log_config, require_attrs, synch: as in Ray.
        custom_explore_fn: changes the chosen configuration, and returns it, with a value for every name.

    Attributes:
        population: the members and the model of their gains.

    The seed is drawn from Python's ``random``. ``Tuner.restore`` continues the run from a state file in Tune's folder.
    ``save`` and ``restore`` pickle the whole scheduler, as Ray's do; restore only files that you trust.

    Raises ValueError that names a bad argument. Cost: tens of milliseconds when a trial is replaced, otherwise none.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        named = isinstance(time_attr, str) and bool(time_attr)
        validation.require(named, "time_attr", time_attr, "the name of the time in a result")
        validation.require(metric is None or isinstance(metric, str), "metric", metric, "a name, or None")
        validation.require(mode in (None, "min", "max"), "mode", mode, "'min', 'max' or None")
        interval = validation.positive("perturbation_interval", perturbation_interval)
        fits = validation.share("quantile_fraction", quantile_fraction) <= 0.5
        validation.require(fits, "quantile_fraction", quantile_fraction, "a number from 0 to 0.5")
        for name, value in {"log_config": log_config, "require_attrs": require_attrs, "synch": synch}.items():
            validation.instance(name, value, bool, "True or False")
        if custom_explore_fn is not None:
            validation.function("custom_explore_fn", custom_explore_fn, "a function of a configuration")
        bounds = validation.instance("hyperparam_bounds", hyperparam_bounds, Mapping, "ranges by name")
        self._paths = {"/".join(path): path for path, _ in _leaves(bounds)}
        self._entries = {"/".join(path): _entry(path, given) for path, given in _leaves(bounds)}
        ranges = {name: entry.range for name, entry in self._entries.items() if entry.range}
        validation.require(len(ranges) > 0, "hyperparam_bounds", bounds, "not all of a single value")
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            hyperparam_mutations=dict(bounds),
            quantile_fraction=quantile_fraction,
            resample_probability=0,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        self.population = Population(Ranges(ranges), interval, seed=random.getrandbits(31))
        self._begun: dict[str, dict[str, Any]] | None = None  # saved state by trial, once this is known
        self._saved = False

    # -- what Tune calls -------------------------------------------------------------------------------

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add the hyperparameters that the trial's configuration lacks."""
        for above in (path[:k] for path in self._paths.values() for k in range(1, len(path))):
            validation.instance("trial.config" + _keys(above), _at(trial.config, above, {}), dict, "a dict")
        given = {name: _at(trial.config, path, _ABSENT) for name, path in self._paths.items()}
        lacking = [name for name, value in given.items() if not self._entries[name].takes(value)]
        if lacking:
            values = self._values(self.population.opening(), {})
            for name in lacking:
                _put(trial.config, self._paths[name], values[name])
                trial.evaluated_params[name] = values[name]
        super().on_trial_add(tune_controller, trial)
        if self._begun is None and trial.last_result:  # Tune may add trials that start anew before it
            self._begun = self._restored(trial)
        for name, value in (self._begun or {}).get(trial.trial_id, {}).items():
            setattr(self._trial_state[trial], name, value)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Learn the trial's gain and decide, as ``PopulationBasedTraining`` does."""
        time, score = result.get(self._time_attr), result.get(self._metric)
        if time is not None and score is not None:
            numbers = self._numbers("trial.config", trial.config)
            self.population.meet(trial.trial_id, numbers, time, self._metric_op * float(score))
        self._saved = False
        decision = super().on_trial_result(tune_controller, trial, result)
        if self._saved:
            self._write(trial)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        self.population.leave(trial.trial_id)
        super().on_trial_complete(tune_controller, trial, result)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """The trial failed; if Tune tries it again, it counts as new."""
        self.population.leave(trial.trial_id)
        super().on_trial_error(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        self.population.leave(trial.trial_id)
        super().on_trial_remove(tune_controller, trial)

    # -- what ``PopulationBasedTraining`` calls --------------------------------------------------------

    def _save_trial_state(self, state: Any, time: Any, result: dict[str, Any], trial: Trial) -> float:
        score = float(super()._save_trial_state(state, time, result, trial))
        numbers = self._numbers("trial.config", trial.config)
        self.population.report(trial.trial_id, numbers, float(time), score)
        if not math.isfinite(score):
            state.last_score = -math.inf  # Ray would leave a trial out whose score is not a number, for good
        self._saved = True
        return score

    def _quantiles(self) -> tuple[list[Trial], list[Trial]]:
        lower, upper = super()._quantiles()
        sound = [trial for trial in upper if math.isfinite(self._trial_state[trial].last_score)]
        return (lower, sound) if sound else ([], [])

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[dict[str, Any], dict[str, str]]:
        member, source = trial.trial_id, trial_to_clone.trial_id
        like = {name: _at(trial_to_clone.config, path) for name, path in self._paths.items()}
        ranges = {name: entry.like(like[name]) for name, entry in self._entries.items() if entry.range}
        chosen = self._values(self.population.propose(member, source, Ranges(ranges)), like)
        config = copy.deepcopy(trial_to_clone.config)
        for name, path in self._paths.items():
            _put(config, path, chosen[name])
        if self._custom_explore_fn is not None:
            config = self._custom_explore_fn(config)
            validation.instance("custom_explore_fn(config)", config, dict, "a configuration")
            kept = all(_at(config, path, _ABSENT) is not _ABSENT for path in self._paths.values())
            expected = f"a configuration with each of {', '.join(self._paths)}"
            validation.require(kept, "custom_explore_fn(config)", config, expected)
        self.population.move(member, source, self._numbers("custom_explore_fn(config)", config))
        return config, {}

    # -- state -----------------------------------------------------------------------------------------

    def save(self, checkpoint_path: str) -> None:
        """Pickle the scheduler into a file."""
        with atomic_write(Path(checkpoint_path)) as file:
            pickle.dump(self.__dict__, file)

    def restore(self, checkpoint_path: str) -> None:
        """Continue from the scheduler that wrote the file."""
        self.__dict__.update(pickle.loads(Path(checkpoint_path).read_bytes()))  # noqa: S301  # as Ray's schedulers do

    def _write(self, trial: Trial) -> None:
        """Write the state that Tune does not save into its folder of the experiment."""
        folder = Path(trial.local_experiment_path)
        if not trial.local_experiment_path or not folder.is_dir():
            return
        states = {t.trial_id: state for t, state in self._trial_state.items()}
        trials = {name: {key: getattr(state, key) for key in _OF_A_TRIAL} for name, state in states.items()}
        kept = {
            "population": self.population.state_dict(),
            "trials": trials,
            "next": self._next_perturbation_sync,
        }
        self._begun = self._begun or {}  # from now on the file is this run's
        with atomic_write(folder / _FILE) as file:
            file.write(json.dumps(kept, default=float).encode())

    def _restored(self, trial: Trial) -> dict[str, dict[str, Any]]:
        """Load the state of a restored experiment; the states of its trials by name, empty if it has no file."""
        path = Path(trial.local_experiment_path or "") / _FILE
        if not path.is_file():
            return {}
        kept = json.loads(path.read_bytes())
        # Trials go back to their checkpoints, so the stretches in progress are dropped.
        self.population.load_state_dict({**kept["population"], "now": {}})
        self._next_perturbation_sync = kept["next"]
        return kept["trials"]

    def _numbers(self, what: str, config: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a configuration's values, by name; ``what`` the configuration is called in errors."""
        paths = {name: self._paths[name] for name in self.population.space.axes}
        return {
            name: self._entries[name].number(what + _keys(path), _at(config, path))
            for name, path in paths.items()
        }

    def _values(self, numbers: Mapping[str, float], like: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: entry.value(numbers.get(name, entry.only), like.get(name))
            for name, entry in self._entries.items()
        }


@dataclass(frozen=True)
class _Entry:
    """An entry of ``hyperparam_bounds``.

    Attributes:
        range: the range of values; None if there is only one.
        only: the number of this value.
        whole: whether values are integers; None: integers if the replaced value is one.
        categories: values of any type, whose numbers are their positions. Equal values of different types differ.
    """

    range: Range | None
    only: float = 0.0
    whole: bool | None = None
    categories: tuple[Any, ...] = ()

    def takes(self, value: Any) -> bool:
        """Whether there is a value; None is one of categories only."""
        return value is not _ABSENT and (value is not None or bool(self.categories))

    def number(self, name: str, value: Any) -> float:
        """The number of a value: the nearest in the range; for categories its position, or -1.

        Raises ValueError, which calls the value ``name``, if it is no number.
        """
        if self.categories:
            return float(_place(value, self.categories))
        assert self.range is not None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        validation.require(not math.isnan(number), name, value, "a number")
        return min(max(number, self.range.low), self.range.high)

    def value(self, number: float, like: Any) -> Any:
        """The value at a number, of the type of the value ``like`` that it replaces."""
        if self.categories:
            return self.categories[int(number)]
        return round(number) if self._is_whole(like) else number

    def like(self, value: Any) -> Range:
        """The range of values that may replace ``value``."""
        assert self.range is not None
        return replace(self.range, step=1.0) if self.whole is None and self._is_whole(value) else self.range

    def _is_whole(self, like: Any) -> bool:
        integer = isinstance(like, Integral) and not isinstance(like, bool)
        return integer if self.whole is None else self.whole


def _place(value: Any, values: Sequence[Any]) -> int:
    """The position of the first value that is equal and of the same type, or -1."""
    same = (k for k, one in enumerate(values) if type(one) is type(value) and one == value)
    return next(same, -1)


def _leaves(bounds: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in bounds.items():
        path = (*above, key)
        validation.instance("hyperparam_bounds" + _keys(path), key, str, "called by a string")
        if isinstance(value, Mapping) and set(value) != {"grid_search"}:
            yield from _leaves(value, path)
        else:
            yield path, value


def _entry(path: tuple[str, ...], given: Any) -> _Entry:
    name = "hyperparam_bounds" + _keys(path)
    if isinstance(given, Categorical | Mapping):
        values = given["grid_search"] if isinstance(given, Mapping) else given.categories
        listed = isinstance(values, list | tuple) and len(values) > 0
        validation.require(listed, name, given, "a list of at least one value")
        different = tuple(value for k, value in enumerate(values) if _place(value, values) in (k, -1))
        count = len(different)
        return _Entry(Range(choices=count) if count > 1 else None, categories=different)
    sampler = given.get_sampler() if isinstance(given, Float | Integer) else None
    step = sampler.q if isinstance(sampler, Quantized) else None
    sampler = sampler.sampler if isinstance(sampler, Quantized) else sampler
    if isinstance(given, Float | Integer) and not isinstance(sampler, Normal):
        whole: bool | None = isinstance(given, Integer)
        ends = (given.lower, given.upper, 1 if step is None else step)
        validation.require(
            all(isinstance(end, Real) for end in ends), name, ends, "numbers (low, high, step)"
        )
        # The upper end of integers without a larger step is excluded.
        low, high = given.lower, given.upper - (whole and step in (None, 1.0))
        log, both = isinstance(sampler, LogUniform), False
        step = float(step) if step else 1.0 if whole else None
    else:
        two = isinstance(given, list | tuple) and len(given) == 2
        two = two and all(validation.is_number(end) for end in given)
        spaces = "tune.uniform, loguniform, randint, lograndint, a quantized form, or choice"
        validation.require(two, name, given, f"[low, high], or {spaces}")
        (low, high), whole = given, None
        log = both = low > 0 and high >= _LOG_FROM * low
    ordered = math.isfinite(low) and math.isfinite(high) and low <= high
    validation.require(ordered, name, given, "finite, low <= high")
    axis = Range(float(low), float(high), log, step, both=both) if low < high else None
    return _Entry(axis, float(low), whole)


def _keys(path: tuple[str, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _at(config: Mapping[str, Any], path: tuple[str, ...], absent: Any = None) -> Any:
    """The value under nested keys; ``absent`` if there is none."""
    here: Any = config
    for key in path:
        if not isinstance(here, Mapping) or key not in here:
            return absent
        here = here[key]
    return here


def _put(config: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value

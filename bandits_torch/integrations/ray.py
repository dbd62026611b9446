"""Ray Tune: population-based bandits on models that learn noise and drift. Needs ``pip install "bandits_torch[ray]"``."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Normal, Quantized

from bandits_torch import validation
from bandits_torch.files import atomic_write
from bandits_torch.integrations.population.population import Population
from bandits_torch.integrations.population.ranges import Categories, Numbers, Range, Space

_FILE = "bandits_torch_pb2.json"  # beside Tune's own files of an experiment
_KEPT_OF_A_TRIAL = ("last_score", "last_train_time", "last_perturbation_time")


class PB2(PopulationBasedTraining):
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
        validation.require(named, "time_attr", time_attr, "the name of what counts time")
        validation.require(metric is None or isinstance(metric, str), "metric", metric, "a name, or None")
        validation.require(mode in (None, "min", "max"), "mode", mode, "'min', 'max' or None")
        interval = validation.positive("perturbation_interval", perturbation_interval)
        share = validation.is_number(quantile_fraction) and 0 <= quantile_fraction <= 0.5
        validation.require(share, "quantile_fraction", quantile_fraction, "a number from 0 to 0.5")
        for name, value in {"log_config": log_config, "require_attrs": require_attrs, "synch": synch}.items():
            validation.instance(name, value, bool, "True or False")
        if custom_explore_fn is not None:
            validation.function("custom_explore_fn", custom_explore_fn, "a function of a configuration, or None")
        validation.instance("hyperparam_bounds", hyperparam_bounds, Mapping, "ranges by name")
        self._paths = {"/".join(path): path for path, _ in _leaves(hyperparam_bounds)}
        ranges = {"/".join(path): _range_of("/".join(path), given) for path, given in _leaves(hyperparam_bounds)}
        validation.require(any(r.columns for r in ranges.values()), "hyperparam_bounds", hyperparam_bounds, "ranges that leave something to choose")
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=interval,
            hyperparam_mutations=dict(hyperparam_bounds),
            quantile_fraction=quantile_fraction,
            resample_probability=0,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        self.population = Population(Space(ranges), interval, seed=random.getrandbits(31))

    def on_trial_add(self, tune_controller, trial) -> None:
        lacking = {name: path for name, path in self._paths.items() if _at(trial.config, path) is None}
        if lacking:
            values = self.population.opening()
            for name, path in lacking.items():
                _put(trial.config, path, values[name])
                trial.evaluated_params[name] = values[name]
        super().on_trial_add(tune_controller, trial)
        self.population.begin(trial.trial_id)
        self._go_on(trial)

    def on_trial_result(self, tune_controller, trial, result) -> str:
        time, score = result.get(self._time_attr), result.get(self._metric)
        if time is not None and score is not None:
            self.population.meet(trial.trial_id, self._values(trial.config), float(time), self._metric_op * float(score))
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller, trial, result) -> None:
        self.population.leave(trial.trial_id)
        super().on_trial_complete(tune_controller, trial, result)

    def on_trial_error(self, tune_controller, trial) -> None:
        self.population.leave(trial.trial_id)
        super().on_trial_error(tune_controller, trial)

    def on_trial_remove(self, tune_controller, trial) -> None:
        self.population.leave(trial.trial_id)
        super().on_trial_remove(tune_controller, trial)

    def save(self, checkpoint_path: str) -> None:
        with atomic_write(Path(checkpoint_path)) as file:
            pickle.dump(self.__dict__, file)

    def restore(self, checkpoint_path: str) -> None:
        self.__dict__.update(pickle.loads(Path(checkpoint_path).read_bytes()))

    def _save_trial_state(self, state, time, result, trial) -> float:
        score = float(super()._save_trial_state(state, time, result, trial))
        self.population.report(trial.trial_id, self._values(trial.config), float(time), score)
        return score

    def _get_new_config(self, trial, trial_to_clone):
        like = self._values(trial_to_clone.config)
        chosen = self.population.propose(trial.trial_id, trial_to_clone.trial_id, like)
        config = copy.deepcopy(trial_to_clone.config)
        for name, path in self._paths.items():
            _put(config, path, chosen[name])
        if self._custom_explore_fn is not None:
            config = self._custom_explore_fn(config)
            validation.instance("custom_explore_fn", config, dict, "a function that returns a configuration")
        self.population.move(trial.trial_id, trial_to_clone.trial_id, self._values(config))
        return config, {}

    def _values(self, config):
        return {name: _at(config, path) for name, path in self._paths.items()}

    def _go_on(self, trial) -> None:
        pass


def _leaves(bounds: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Ranges of a nested mapping, each with its keys."""
    for key, value in bounds.items():
        if isinstance(value, Mapping) and set(value) != {"grid_search"}:
            yield from _leaves(value, (*above, str(key)))
        else:
            yield (*above, str(key)), value


def _range_of(name: str, given: Any) -> Range:
    """What is chosen from."""
    name = f"hyperparam_bounds[{name!r}]"
    if isinstance(given, Mapping):
        return Categories(tuple(given["grid_search"]))
    if isinstance(given, Categorical):
        return Categories(tuple(given.categories))
    if isinstance(given, list | tuple):
        two = len(given) == 2 and all(validation.is_number(end) or type(end) is int for end in given)
        validation.require(two, name, given, "[low, high], two numbers; tune.choice of other values")
        low, high = given
        ordered = math.isfinite(low) and math.isfinite(high) and low <= high
        validation.require(ordered, name, given, "[low, high] with low <= high, finite")
        return Numbers(float(low), float(high))
    sampler = given.get_sampler() if isinstance(given, Float | Integer) else None
    step = float(sampler.q) if isinstance(sampler, Quantized) else 0.0
    sampler = sampler.sampler if isinstance(sampler, Quantized) else sampler
    bounded = isinstance(given, Float | Integer) and not isinstance(sampler, Normal)
    validation.require(bounded, name, given, "[low, high], or tune.uniform, loguniform, randint, lograndint, their quantized forms, or choice")
    whole = isinstance(given, Integer)
    top = given.upper - 1 if whole and step in (0.0, 1.0) else given.upper
    ordered = math.isfinite(given.lower) and math.isfinite(top) and given.lower <= top
    validation.require(ordered, name, given, "a range with low <= high, finite")
    return Numbers(float(given.lower), float(top), isinstance(sampler, LogUniform), step, whole)


def _at(config: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value under nested keys; None where there is none."""
    for key in path:
        if not isinstance(config, Mapping) or key not in config:
            return None
        config = config[key]
    return config


def _put(config: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value

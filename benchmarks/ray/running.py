"""A small stand-in for Tune's controller: it asks a scheduler, Ray's own object, what Tune asks, in one process,
without Ray's workers."""

import copy
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

SCORE, ITERATION = "score", "training_iteration"


class Training:
    """What is trained: ``begin`` gives a state, ``step`` changes it by an iteration and returns what is reported."""

    def begin(self, seed: int) -> Any:
        """The state of an untrained model."""
        raise NotImplementedError

    def step(self, state: Any, config: dict[str, Any]) -> dict[str, float]:
        """Train for an iteration, in place; returns ``score`` and what else is of interest."""
        raise NotImplementedError


@dataclass
class Saved:
    """A checkpoint. Its text leaves out what was trained, as that of Tune's, which is a path: Ray formats it often."""

    state: Any = field(repr=False)
    iteration: int


class Member:
    """What schedulers look at of a ``Trial``."""

    def __init__(self, number: int, config: dict[str, Any]) -> None:
        self.trial_id, self.experiment_tag = f"{number:05d}", str(number)
        self.config, self.evaluated_params = config, {}
        self.status, self.last_result = Trial.PENDING, {}
        self.local_experiment_path = self.local_dir = ""
        self.temporary_state = SimpleNamespace(saving_to=None)
        manager = SimpleNamespace(
            checkpoint_config=SimpleNamespace(num_to_keep=None), _latest_checkpoint_result=None
        )
        self.run_metadata = SimpleNamespace(checkpoint_manager=manager)
        self.state: Any = None
        self.iteration = 0

    def __str__(self) -> str:
        return self.trial_id

    @property
    def checkpoint(self) -> Saved:
        return self.run_metadata.checkpoint_manager._latest_checkpoint_result.checkpoint

    def is_finished(self) -> bool:
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def set_config(self, config: dict[str, Any]) -> None:
        self.config = config

    def set_experiment_tag(self, tag: str) -> None:
        self.experiment_tag = tag

    def save(self) -> Saved:
        """A checkpoint of now, which is the latest from now on."""
        saved = Saved(copy.deepcopy(self.state), self.iteration)
        self.run_metadata.checkpoint_manager._latest_checkpoint_result = SimpleNamespace(checkpoint=saved)
        return saved

    def restore(self) -> None:
        self.state, self.iteration = copy.deepcopy(self.checkpoint.state), self.checkpoint.iteration


@dataclass
class Record:
    """What a run gave: for each iteration of the budget the best score so far and the best among the latest ones."""

    best: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    other: list[dict[str, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class Controller:
    """What schedulers ask of ``TuneController``."""

    search_alg = None

    def __init__(self, scheduler: TrialScheduler, training: Training, slots: int, horizon: int) -> None:
        self.scheduler, self.training, self.slots, self.horizon = scheduler, training, slots, horizon
        self.trials: list[Member] = []

    def get_trials(self) -> list[Member]:
        return self.trials

    def get_live_trials(self) -> list[Member]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def pause_trial(self, trial: Member, should_checkpoint: bool = True) -> None:
        if should_checkpoint:
            trial.save()
        trial.status = Trial.PAUSED

    def _schedule_trial_save(self, trial: Member, result: dict[str, Any] | None = None) -> Saved:
        return trial.save()

    def add(self, config: dict[str, Any], seed: int) -> None:
        trial = Member(len(self.trials), dict(config))
        trial.state = self.training.begin(seed)
        self.trials.append(trial)
        self.scheduler.on_trial_add(self, trial)
        trial.save()

    def fill(self) -> None:
        """Start trials while there are slots."""
        while sum(trial.status == Trial.RUNNING for trial in self.trials) < self.slots:
            trial = self.scheduler.choose_trial_to_run(self)
            if trial is None:
                return
            trial.restore()
            trial.status = Trial.RUNNING

    def step(self, trial: Member, record: Record) -> None:
        """One iteration of a trial, and the scheduler's decision on it."""
        reported = self.training.step(trial.state, trial.config)
        trial.iteration += 1
        result = {**reported, ITERATION: trial.iteration}
        if trial.iteration >= self.horizon:
            trial.last_result, trial.status = result, Trial.TERMINATED
            self.scheduler.on_trial_complete(self, trial, result)
            return
        before = getattr(self.scheduler, "_num_perturbations", 0)
        begun = time.thread_time()
        decision = self.scheduler.on_trial_result(self, trial, result)
        if getattr(self.scheduler, "_num_perturbations", 0) > before:
            record.seconds.append(time.thread_time() - begun)
        trial.last_result = result
        if decision == TrialScheduler.PAUSE and trial.status == Trial.RUNNING:
            self.pause_trial(trial)
        elif decision == TrialScheduler.STOP:
            trial.status = Trial.TERMINATED
            self.scheduler.on_trial_complete(self, trial, result)


def run(
    scheduler: TrialScheduler,
    training: Training,
    configs: Callable[[], dict[str, Any]],
    *,
    population: int,
    horizon: int,
    seed: int,
    slots: int | None = None,
    replace: bool = False,
) -> Record:
    """Train ``population`` trials, begun with ``configs()``, ``slots`` at a time, by ``population * horizon``
    iterations altogether; ``replace``: a trial that was stopped is replaced by a new one (ASHA)."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # what Ray draws from
    slots = population if slots is None else slots
    controller, record = Controller(scheduler, training, slots, horizon), Record()
    for number in range(population):
        controller.add(configs(), 1000 * seed + number)
    best, order = -np.inf, random.Random(seed)
    for done in range(population * horizon):
        controller.fill()
        running = [trial for trial in controller.trials if trial.status == Trial.RUNNING]
        if not running and replace:
            controller.add(configs(), 1000 * seed + len(controller.trials))
            controller.fill()
            running = [trial for trial in controller.trials if trial.status == Trial.RUNNING]
        if not running:
            break
        least = min(trial.iteration for trial in running)
        trial = order.choice([trial for trial in running if trial.iteration == least])
        controller.step(trial, record)
        if replace and trial.is_finished() and done < population * horizon - 1:
            controller.add(configs(), 1000 * seed + len(controller.trials))
        best = max(best, trial.last_result[SCORE])
        scored = [other.last_result for other in controller.trials if other.last_result]
        record.best.append(best)
        record.other.append(max(scored, key=lambda result: result[SCORE]))
        record.last.append(record.other[-1][SCORE])
    return record

"""``PB2`` in Ray Tune: the schedulers' own calls, played in one process, and a real ``Tuner``."""

import inspect
import json
import math
import pickle
import random
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason='Ray Tune is not installed: pip install ".[ray]"')

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import pb2 as rays

from bandits_torch.integrations.population import Range
from bandits_torch.integrations.ray import PB2
from benchmarks.ray.running import ITERATION, SCORE, Controller, Member, Record, Saved, Training, run

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's and its dependencies' own
COMMON = {"time_attr": ITERATION, "metric": SCORE, "mode": "max"}
COMMON |= {"perturbation_interval": 2, "log_config": False}


class Rates(Training):
    """Gains fall with the distance of the rate from 0.01 in decades; what was trained with is noted."""

    def __init__(self, score=None):
        self.seen, self.score = [], score

    def begin(self, seed):
        return {SCORE: 0.0}

    def step(self, state, config):
        self.seen.append(config)
        state[SCORE] += 1 - abs(math.log10(config["lr"] / 0.01)) / 2 + 0.05 * random.gauss(0, 1)
        return {SCORE: state[SCORE] if self.score is None else self.score(self, state[SCORE])}


def played(bounds, start, training=None, *, population=4, horizon=16, seed=0, slots=None, **options):
    sizes = {"population": population, "horizon": horizon, "seed": seed, "slots": slots}
    random.seed(seed)
    scheduler = PB2(hyperparam_bounds=bounds, **{**COMMON, **options})
    training = Rates() if training is None else training
    run(scheduler, training, lambda: dict(start), **sizes)
    return scheduler, training.seen


def test_it_takes_the_arguments_of_rays_own():
    ours, theirs = (inspect.signature(cls).parameters for cls in (PB2, rays.PB2))
    assert list(ours) == list(theirs)
    assert {name: p.default for name, p in ours.items()} == {name: p.default for name, p in theirs.items()}


@pytest.mark.parametrize(
    "options", [{}, {"synch": True}, {"quantile_fraction": 0.5}, {"quantile_fraction": 0}]
)
@pytest.mark.parametrize("slots", [4, 2])
def test_populations_train_to_the_end_whatever_waits_for_what(options, slots):
    scheduler, seen = played({"lr": [1e-4, 1.0]}, {"lr": 1e-3}, slots=slots, **options)
    assert len(seen) == 4 * 16
    assert all(1e-4 <= config["lr"] <= 1.0 for config in seen)
    assert (scheduler._num_perturbations > 0) == (options.get("quantile_fraction") != 0)


def test_rates_near_the_best_one_are_found():
    _, seen = played({"lr": [1e-4, 1.0]}, {"lr": 1e-4}, population=6, horizon=30)
    late = [config["lr"] for config in seen[-30:]]
    assert sum(0.002 < rate < 0.05 for rate in late) > 15


def test_a_minimised_metric_is_minimised():
    class Losses(Rates):
        def step(self, state, config):
            return {SCORE: -super().step(state, config)[SCORE]}

    scheduler, _ = played({"lr": [1e-4, 1.0]}, {"lr": 0.01}, Losses(), mode="min")
    assert sum(rate > 0 for _, rate in scheduler.population.gains) > 0.8 * len(scheduler.population.gains)


def test_configurations_that_lack_a_name_begin_at_different_points():
    _, seen = played({"lr": [1e-4, 1.0], "b": {"c": tune.randint(0, 4)}}, {}, horizon=1)
    assert len({config["lr"] for config in seen}) == 4
    assert {config["b"]["c"] for config in seen} <= {0, 1, 2, 3}
    bounds = {"lr": [1e-4, 1.0], "a": tune.choice([None, "x", "y"])}
    _, seen = played(bounds, {"lr": None, "a": None}, population=8, horizon=1)  # no rate, but a category
    assert len({config["lr"] for config in seen}) == 8
    assert {config["a"] for config in seen} == {None}


def test_a_custom_function_has_the_last_word_and_is_what_is_learned():
    def halved(config):
        return {**config, "lr": 0.5, "touched": True}

    scheduler, seen = played({"lr": [1e-4, 1.0]}, {"lr": 0.01}, custom_explore_fn=halved)
    assert any(config.get("touched") for config in seen)
    halves = {round(s.columns[0], 6) for s, _ in scheduler.population.gains}
    assert halves == {0.5, round(float(Range(1e-4, 1.0, log=True).encode(0.5)), 6)}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (None, " must be a configuration, "),
        ({}, " must be a configuration with each of lr, kind, got {}"),
        ({"lr": 0.5}, " must be a configuration with each of lr, kind, "),
        ({"lr": "fast", "kind": "a"}, r"\['lr'\] must be a number, got 'fast'"),
        ({"lr": math.nan, "kind": "a"}, r"\['lr'\] must be a number, got nan"),
    ],
)
def test_what_a_custom_function_returns_is_refused_by_name(changed, said):
    bounds, start = {"lr": [1e-4, 1.0], "kind": tune.choice(["a", "b"])}, {"lr": 0.01, "kind": "a"}
    with pytest.raises(ValueError, match=rf"^custom_explore_fn\(config\){said}"):
        played(bounds, start, custom_explore_fn=lambda config: changed)


def test_a_start_that_is_no_number_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^trial\.config\['lr'\] must be a number, got 'fast'"):
        played({"lr": [1e-4, 1.0]}, {"lr": "fast"}, Breaking(0, 0.0))


@pytest.mark.parametrize("value", [3, None, [0.01]])
def test_a_start_with_a_value_in_place_of_nested_ones_is_refused_by_name_and_left_as_it_is(value):
    start = {"deep": {"optimiser": value}}
    said = rf"^trial\.config\['deep'\]\['optimiser'\] must be a dict, got {re.escape(repr(value))}"
    with pytest.raises(ValueError, match=said):
        played({"a": [0, 1], "deep": {"optimiser": {"lr": [1e-4, 1.0]}}}, start)
    assert start == {"deep": {"optimiser": value}}


def test_42180_new_values_are_of_the_types_that_python_has_and_the_trial_had():
    bounds = {"lr": [1e-4, 1.0], "batch": [16, 256], "gamma": [0, 1], "deep": {"clip": [0.1, 0.3]}}
    _, seen = played(bounds, {"lr": 0.01, "batch": 32, "gamma": 0.9, "deep": {"clip": 0.2}})
    assert {type(c["lr"]) for c in seen} == {type(c["gamma"]) for c in seen} == {float}
    assert {type(c["batch"]) for c in seen} == {int}
    assert {type(c["deep"]["clip"]) for c in seen} == {float}
    assert all(16 <= c["batch"] <= 256 and 0.1 <= c["deep"]["clip"] <= 0.3 for c in seen)
    assert len({c["lr"] for c in seen}) > 3
    _, seen = played({"lr": [1e-4, 1.0], "batch": [16, 256]}, {"lr": 0.01, "batch": np.int64(32)})
    assert {type(c["batch"]) for c in seen} == {int, np.int64}


def test_37638_and_14187_many_trials_clone_each_other_and_nothing_is_sorted_by_trial():
    scheduler, _ = played({"lr": [1e-6, 1e-3], "x": [0.0, 1.0]}, {"x": 0.5}, population=8, horizon=20)
    assert scheduler._num_perturbations > 5
    assert all(type(name) is str for name in scheduler.population.now)


@pytest.mark.parametrize("ends", [[1e-3, 1e-6], (2, 1)])
def test_14187_reversed_bounds_are_refused_by_name(ends):
    with pytest.raises(ValueError, match=r"hyperparam_bounds\['lr'\] must be finite, low <= high, got"):
        PB2(hyperparam_bounds={"lr": ends})


def test_20923_search_spaces_of_tune_are_ranges():
    bounds = {
        "lr": tune.qloguniform(1e-4, 1e-1, 1e-5),
        "epochs": tune.qrandint(3, 15, 3),
        "batch": tune.grid_search([16, 32, 64, 128]),
        "act": tune.choice(["relu", "tanh", None]),
        "width": tune.lograndint(8, 65),
        "drop": tune.uniform(0.0, 0.5),
        "part": tune.quniform(0.0, 1.0, 0.25),
    }
    scheduler, seen = played(bounds, {}, population=6, horizon=20)
    for config in seen:
        assert config["lr"] / 1e-5 == pytest.approx(round(config["lr"] / 1e-5))
        assert config["epochs"] in (3, 6, 9, 12, 15)
        assert type(config["epochs"]) is type(config["width"]) is type(config["batch"]) is int
        assert config["batch"] in (16, 32, 64, 128)
        assert config["act"] in ("relu", "tanh", None)
        assert 8 <= config["width"] <= 64
        assert 0 <= config["drop"] <= 0.5
        assert config["part"] in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert len({config["act"] for config in seen}) > 1
    ranges = scheduler.population.space.axes
    assert {name for name, one in ranges.items() if one.log} == {"lr", "width"}
    assert (ranges["batch"].choices, ranges["act"].choices) == (4, 3)


def test_categories_are_told_apart_by_type_and_come_back_as_they_were_given():
    values = [1, True, "1", None, math.sin]
    bounds = {"a": tune.choice([*values, 1]), "lr": [1e-4, 1.0]}
    scheduler, seen = played(bounds, {"a": "another"}, population=8, horizon=20)
    assert seen[0]["a"] == "another"
    chosen = [config["a"] for config in seen if config["a"] != "another"]
    assert len({type(value) for value in chosen}) >= 4
    assert all(any(value is one for one in values) for value in chosen)
    held = {tuple(sorted(s.columns[:5])) for s, _ in scheduler.population.gains}
    assert held == {(0, 0, 0, 0, 0), (0, 0, 0, 0, 1)}


def test_one_value_is_no_choice_and_stays():
    bounds = {"a": [2, 2], "b": tune.choice(["x"]), "c": tune.randint(3, 4), "lr": [1e-4, 1.0]}
    scheduler, seen = played(bounds, {"a": 2.0})
    assert {(config["a"], type(config["a"]), config["b"], config["c"]) for config in seen} == {
        (2.0, float, "x", 3)
    }
    assert scheduler.population.space.dim == 1


@pytest.mark.parametrize(
    "given",
    [
        tune.randn(),
        tune.sample_from(lambda spec: 1),
        [1, 2, 3],
        [1],
        ["adam", "sgd"],
        [True, False],
        0.1,
        None,
        lambda: 1.0,
        [0.0, math.inf],
        [math.nan, 1.0],
        tune.choice([]),
        {"grid_search": 3},
        {"grid_search": "ab"},
        {1: [0, 1]},
        tune.randint("a", "b"),
        tune.qrandint(1, 5, "x"),
    ],
)
def test_20923_what_is_no_range_is_refused_by_name(given):
    with pytest.raises(ValueError, match=r"hyperparam_bounds\['a'\]\['lr'\](\[1\])? must be"):
        PB2(hyperparam_bounds={"a": {"lr": given}, "b": [0, 1]})


def test_the_same_configuration_and_score_again_and_again_is_no_trouble():
    scheduler, seen = played({"lr": [1e-4, 1.0]}, {"lr": 0.01}, Rates(lambda self, score: 1.0))
    assert scheduler._num_perturbations > 0
    assert len(seen) == 64


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        ("time_attr", ""),
        ("time_attr", 3),
        ("metric", 3),
        ("mode", "maximum"),
        ("perturbation_interval", 0),
        ("perturbation_interval", math.nan),
        ("quantile_fraction", 0.6),
        ("quantile_fraction", -0.1),
        ("hyperparam_bounds", None),
        ("hyperparam_bounds", {}),
        ("hyperparam_bounds", {"lr": [1.0, 1.0]}),
        ("log_config", 1),
        ("require_attrs", None),
        ("synch", "yes"),
        ("custom_explore_fn", 3),
    ],
)
def test_bad_arguments_are_refused_by_name(argument, bad):
    with pytest.raises(ValueError, match=argument):
        PB2(**{"hyperparam_bounds": {"lr": [0, 1]}, argument: bad})


def test_runs_that_break_are_left_behind():
    def broken(self, score):
        return math.nan if len(self.seen) % 7 == 0 else score

    scheduler, seen = played({"lr": [1e-4, 1.0]}, {"lr": 0.01}, Rates(broken), horizon=30)
    assert len(seen) == 120
    assert any(rate == -math.inf for _, rate in scheduler.population.gains)


class Breaking(Training):
    """Some runs break in their second iteration, and stay broken with their weights. ``seen``: which were sound."""

    def __init__(self, many, score):
        self.many, self.score, self.seen = many, score, []

    def begin(self, seed):
        return {"seed": seed, "iteration": 0}

    def step(self, state, config):
        state["iteration"] += 1
        broken = state["seed"] < self.many and state["iteration"] > 1
        self.seen.append(not broken)
        return {SCORE: self.score if broken else float(state["iteration"])}


@pytest.mark.parametrize("synch", [False, True])
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_run_that_stays_broken_takes_over_the_weights_of_a_sound_one(score, synch):
    for many in (1, 3, 4):  # of 4
        options = {"horizon": 20, "synch": synch, "quantile_fraction": 0.5}
        _, sound = played({"lr": [1e-4, 1.0]}, {"lr": 0.01}, Breaking(many, score), **options)
        assert len(sound) == 80
        assert not all(sound)
        assert all(sound[40:]) if many < 4 else not any(sound[40:])


def controlled(scheduler, count=3, start=None):
    controller = Controller(scheduler, Rates(), count, 100)
    for number in range(count):
        controller.add({"lr": 0.01} if start is None else start, number)
    controller.fill()
    return controller


def test_a_trial_that_fails_and_is_tried_again_gains_from_its_next_report():
    scheduler = PB2(hyperparam_bounds={"lr": [1e-4, 1.0]}, **COMMON)
    controller = controlled(scheduler)
    for _ in range(2):
        for trial in controller.trials:
            controller.step(trial, Record())
    trial = controller.trials[0]
    before = len(scheduler.population.gains)
    scheduler.on_trial_error(controller, trial)
    assert trial.trial_id not in scheduler.population.now
    scheduler.on_trial_add(controller, trial)
    trial.status = Trial.RUNNING
    for _ in range(3):  # Ray decides at once, and then again after an interval
        controller.step(trial, Record())
    assert len(scheduler.population.gains) == before + 1
    scheduler.on_trial_complete(controller, trial, {})
    scheduler.on_trial_remove(controller, controller.trials[1])
    assert list(scheduler.population.now) == [controller.trials[2].trial_id]


def test_a_restored_population_goes_on_although_its_latest_trial_starts_anew(tmp_path):
    """Ray adds first what reported last; with ``restart_errored`` this may be a trial without results."""
    scheduler = PB2(hyperparam_bounds={"lr": [1e-4, 1.0]}, **COMMON)
    controller = controlled(scheduler)
    for trial in controller.trials:
        trial.local_experiment_path = str(tmp_path)
    for _ in range(4):
        for trial in controller.trials:
            controller.step(trial, Record())
    learned, now = list(scheduler.population.gains), dict(scheduler.population.now)
    scheduler.on_trial_add(controller, controller.trials[0])  # Tune adds one again: it is not a restore
    assert learned
    assert (scheduler.population.gains, scheduler.population.now) == (learned, now)
    again = PB2(hyperparam_bounds={"lr": [1e-4, 1.0]}, **COMMON)
    anew = Member(9, {"lr": 0.01})
    anew.local_experiment_path = str(tmp_path)
    for trial in [anew, *controller.trials]:
        again.on_trial_add(controller, trial)
    assert again.population.gains == learned
    times = [again._trial_state[trial].last_train_time for trial in [anew, *controller.trials]]
    assert times == [0, 4, 4, 4]


def test_a_result_without_the_metric_is_refused_or_passed_over_as_in_ray():
    for demanding in (True, False):
        scheduler = PB2(hyperparam_bounds={"lr": [1e-4, 1.0]}, **COMMON, require_attrs=demanding)
        controller = controlled(scheduler)
        if demanding:
            with pytest.raises(RuntimeError, match="metric score"):
                scheduler.on_trial_result(controller, controller.trials[0], {ITERATION: 2})
        else:
            assert scheduler.on_trial_result(controller, controller.trials[0], {ITERATION: 2}) == "CONTINUE"


def test_seeds_follow_pythons_random():
    first, second, other = (played({"lr": [1e-4, 1.0]}, {}, seed=seed)[1] for seed in (3, 3, 4))
    assert first == second != other


def test_a_scheduler_that_was_pickled_or_saved_goes_on_alike(tmp_path):
    scheduler, _ = played({"lr": [1e-4, 1.0]}, {"lr": 0.01}, horizon=8)
    scheduler._trial_state = {}  # of stand-ins for trials
    scheduler.save(str(tmp_path / "state"))
    fresh = PB2(hyperparam_bounds={"lr": [1e-4, 1.0]}, **COMMON)
    fresh.restore(str(tmp_path / "state"))
    assert scheduler.population.gains
    for other in (fresh, pickle.loads(pickle.dumps(scheduler))):
        assert other.population.state_dict() == scheduler.population.state_dict()
        assert other._num_perturbations == scheduler._num_perturbations


def counting():
    """A class that is pickled by value, since workers cannot import this file."""

    class Counting(tune.Trainable):
        def setup(self, config):
            self.config, self.count = config, 0.0

        def reset_config(self, config):
            self.setup(config)
            return True

        def step(self):
            marker = Path(self.config["marker"])
            if self.iteration == 5 and not marker.exists():
                marker.touch()
                raise RuntimeError("once")
            self.count += self.config["lr"] + random.random()
            return {SCORE: self.count}

        def save_checkpoint(self, folder):
            (Path(folder) / "count.json").write_text(json.dumps(self.count))

        def load_checkpoint(self, folder):
            self.count = json.loads((Path(folder) / "count.json").read_text())

    return Counting


@pytest.fixture(scope="module")
def local_ray():
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    yield
    ray.shutdown()


def sloping():
    class Sloping(counting()):
        def step(self):
            self.count += 1 - abs(math.log10(self.config["lr"] / 0.01)) / 2
            return {SCORE: self.count}

    return Sloping


class Sloped(Training):
    def begin(self, seed):
        return {SCORE: 0.0}

    def step(self, state, config):
        state[SCORE] += 1 - abs(math.log10(config["lr"] / 0.01)) / 2
        return dict(state)


def test_the_stand_in_for_the_controller_asks_a_scheduler_as_tune_does(local_ray, tmp_path):
    learned = []
    for real in (True, False):
        random.seed(5)
        scheduler = PB2(hyperparam_bounds={"lr": [1e-4, 1.0]}, **{**COMMON, "synch": True})
        if real:
            tune.Tuner(
                sloping(),
                tune_config=tune.TuneConfig(scheduler=scheduler, num_samples=4, reuse_actors=True),
                run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0, stop={ITERATION: 10}),
            ).fit()
        else:
            run(scheduler, Sloped(), dict, population=4, horizon=10, seed=5)
        gains = [(s.time, *s.columns, s.score, rate) for s, rate in scheduler.population.gains]
        learned.append((scheduler._num_perturbations, sorted(gains)))
    (real, there), (alone, here) = learned
    assert real == alone > 2
    assert len(there) == len(here)
    for one, other in zip(there, here, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def test_the_text_of_a_checkpoint_is_short_whatever_was_trained():
    """Ray formats every trial's checkpoint at each decision; Tune's is a path."""
    assert len(repr(Saved(["weights"] * 1000, 3))) < 30


def test_a_tuner_runs_and_what_was_learned_outlives_a_restore(local_ray, tmp_path):
    bounds = {"lr": [1e-4, 0.02], "width": tune.randint(8, 65), "act": tune.choice(["relu", "tanh"])}
    scheduler = PB2(hyperparam_bounds=bounds, **{**COMMON, "metric": None, "mode": None, "log_config": True})
    trainable = counting()
    tuner = tune.Tuner(
        trainable,
        param_space={"lr": 1e-4, "marker": str(tmp_path / "failed")},
        tune_config=tune.TuneConfig(
            scheduler=scheduler, metric=SCORE, mode="max", num_samples=4, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name="run",
            storage_path=str(tmp_path),
            verbose=0,
            stop={ITERATION: 8},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        ),
    )
    results = tuner.fit()
    assert len(results.errors) == 1
    kept = json.loads((tmp_path / "run" / "bandits_torch_pb2.json").read_text())
    learned = kept["population"]["gains"]
    assert learned
    again = tune.Tuner.restore(str(tmp_path / "run"), trainable, resume_errored=True)
    results = again.fit()
    assert not results.errors
    assert all(result.metrics[ITERATION] == 8 for result in results)
    assert all(type(result.config["width"]) is int for result in results)
    after = json.loads((tmp_path / "run" / "bandits_torch_pb2.json").read_text())["population"]["gains"]
    assert after[: len(learned)] == learned

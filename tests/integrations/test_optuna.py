"""``BanditSampler`` in Optuna: what it learns of trials, when, and that it follows an objective that moves."""

import functools
import math
import pickle

import pytest
import torch
from gpytorch.kernels import RBFKernel

pytest.importorskip("optuna", reason='Optuna is not installed: pip install ".[optuna]"')

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from bandits_torch import recipes
from bandits_torch.integrations.optuna import BanditSampler
from bandits_torch.models import CandidatePrior
from tests.integrations.recorded import Recorded

optuna.logging.set_verbosity(optuna.logging.WARNING)


def study_of(sampler, direction="minimize", **options):
    return optuna.create_study(sampler=sampler, direction=direction, **options)


def moving(trial):
    """Best at a place that moves with the number of the trial, with the second kind and few layers."""
    top = 0.5 + 0.4 * math.sin(trial.number / 12)
    x = trial.suggest_float("x", 0.0, 1.0)
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    layers = trial.suggest_int("layers", 1, 6)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    off = (math.log10(rate) + 3) / 2
    return 8 * (x - top) ** 2 + 0.3 * off**2 + 0.1 * (layers - 2) ** 2 + 0.5 * (kind == "a")


def test_it_follows_an_objective_that_moves():
    means = {}
    for name, sampler in {
        "ours": BanditSampler(seed=0),
        "random": optuna.samplers.RandomSampler(seed=0),
    }.items():
        study = study_of(sampler)
        study.optimize(moving, n_trials=60)
        means[name] = sum(trial.value for trial in study.trials[30:]) / 30
    assert means["ours"] < 0.4 * means["random"]


def test_the_largest_value_of_the_negative_is_sought_where_the_least_is():
    points = {}
    for sign, direction in ((1, "minimize"), (-1, "maximize")):
        study = study_of(BanditSampler(seed=3), direction)
        study.optimize(lambda trial, sign=sign: sign * (trial.suggest_float("x", -5, 5) - 1) ** 2, n_trials=9)
        points[direction] = [trial.params["x"] for trial in study.trials]
    assert points["minimize"] == points["maximize"]


def test_the_same_seed_samples_the_same_and_a_new_sampler_goes_on_with_a_study():
    def play(first, then):
        study = study_of(first)
        study.optimize(moving, n_trials=14)
        study.sampler = then
        study.optimize(moving, n_trials=1)
        return [trial.params for trial in study.trials]

    sampler = BanditSampler(seed=1)
    whole = play(sampler, sampler)
    begun = BanditSampler(seed=1)
    assert play(begun, BanditSampler(seed=1)) == whole
    resumed = pickle.loads(pickle.dumps(sampler))
    assert play(BanditSampler(seed=1), resumed) == whole
    assert play(BanditSampler(seed=2), BanditSampler(seed=2)) != whole


def test_every_completed_trial_is_learned_once_failed_and_pruned_ones_never():
    policy = Recorded()
    study = study_of(BanditSampler(policy, seed=0))
    space = {"x": FloatDistribution(0, 1)}
    for k in range(8):
        trial = study.ask(space)
        state = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL][k % 3]
        study.tell(trial, float(k) if state == TrialState.COMPLETE else None, state=state)
    study.ask(space)
    assert policy.built == 1
    assert [(one.time, float(one.reward)) for one in policy.learned] == [(0, 0), (3, -3), (6, -6)]
    expected = [study.trials[k].params["x"] for k in (0, 3, 6)]
    assert [float(one.arm) for one in policy.learned] == pytest.approx(expected)


@pytest.mark.parametrize("failure", [RuntimeError, optuna.TrialPruned])
def test_points_that_fail_are_not_sampled_again(failure):
    def fails_on_the_right(trial):
        x = trial.suggest_float("x", 0, 1)
        if x > 0.5:
            raise failure
        return (x - 0.45) ** 2

    study = study_of(BanditSampler(seed=0))
    study.optimize(fails_on_the_right, n_trials=20, catch=(RuntimeError,))
    assert len({trial.params["x"] for trial in study.trials}) == 20
    assert study.best_value < 0.01


def test_a_pruner_prunes_as_it_does_without_us():
    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        for step in range(3):
            trial.report(x + step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    study = study_of(BanditSampler(seed=0), pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.optimize(objective, n_trials=16)
    done = {state: [t for t in study.trials if t.state == state] for state in TrialState}
    assert done[TrialState.PRUNED]
    assert len(done[TrialState.PRUNED]) + len(done[TrialState.COMPLETE]) == 16


def test_conditional_parameters_are_learned_in_the_middle_where_they_play_no_part():
    policy = Recorded()
    study = study_of(BanditSampler(policy, seed=0))

    def objective(trial):
        if trial.suggest_categorical("kind", ["tree", "net"]) == "net":
            return trial.suggest_float("rate", 1e-4, 1e-2, log=True)
        return float(trial.suggest_int("depth", 1, 9))

    study.optimize(objective, n_trials=12)
    study.ask().suggest_categorical("kind", ["tree", "net"])
    assert len(policy.learned) == 12
    order = list(study.sampler._axes)
    for one, trial in zip(policy.learned, study.trials, strict=False):
        values = study.sampler._policy.space.columns
        inactive = {"rate", "depth"} - set(trial.params)
        assert len(inactive) == 1
        for name in inactive:
            assert float(one.arm[0, values[name]]) == 0.5
        tree = one.arm[0, values["kind"]].tolist() == [1.0, 0.0]
        assert tree == (trial.params["kind"] == "tree")
    assert sorted(order) == ["depth", "kind", "rate"]


def test_a_parameter_that_comes_up_late_and_ranges_that_move_are_taken_up():
    policy = Recorded()
    study = study_of(BanditSampler(policy, seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=4)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_int("n", 0, 4), n_trials=4)
    built = policy.built
    study.optimize(lambda t: t.suggest_float("x", 0.5, 2) + t.suggest_int("n", 0, 4), n_trials=6)
    assert policy.built == built + 1  # a wider cube; only the first trial of the new range finds it out
    assert policy.domain.dim == 2
    assert len(policy.learned) == 13
    assert all(0.5 <= trial.params["x"] <= 2 for trial in study.trials[8:])
    assert any(trial.params["x"] > 1 for trial in study.trials[9:])


@pytest.mark.parametrize("scale", [1, 0.1])
def test_every_value_of_steps_that_have_moved_can_be_sampled(scale):
    suggest = (
        (lambda trial, *ends: trial.suggest_int("n", *ends, step=2))
        if scale == 1
        else (lambda trial, *ends: trial.suggest_float("n", *(scale * end for end in ends), step=2 * scale))
    )
    study = study_of(BanditSampler(seed=0))
    for ends in ((0, 10), (1, 11)):
        study.optimize(lambda trial, ends=ends: abs(suggest(trial, *ends) - 7 * scale), n_trials=9)
    assert study.best_params["n"] == pytest.approx(7 * scale)
    assert all(round(t.params["n"] / scale) % 2 == 1 for t in study.trials[9:])


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_parameter_that_another_sampler_has_fixed_keeps_its_value():
    policy = Recorded()
    sampler = BanditSampler(policy, seed=0)
    study = study_of(optuna.samplers.PartialFixedSampler({"x": 0.9}, sampler))

    def objective(trial):
        trial.suggest_categorical("kind", ["only"])
        return trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1)

    study.optimize(objective, n_trials=3)
    study.ask().suggest_float("y", 0, 1)
    assert sampler._asked[3]["x"] == pytest.approx(0.9)


@pytest.mark.parametrize("given", [{"x": 0.9}, {"kind": "a"}, {"x": 2.0}, {"x": 0.1, "y": 3, "kind": "a"}])
@pytest.mark.filterwarnings("ignore:Fixed parameter '?x'? with value 2.0 is out of range")
def test_the_values_of_an_enqueued_trial_are_known_when_the_others_are_sampled(given):
    sampler = BanditSampler(Recorded(), seed=0)
    study = study_of(sampler)
    space = {"x": FloatDistribution(0, 1), "y": IntDistribution(1, 9), "kind": CategoricalDistribution("ab")}
    study.tell(study.ask(space), 0.0)
    study.enqueue_trial(given)
    trial = study.ask(space)
    trial.suggest_float("new", 0, 1)  # Optuna asks the sampler as soon as a value is not given
    params = trial.params
    asked = sampler._asked[1]
    assert asked["x"] == pytest.approx(min(params["x"], 1.0))
    assert (asked["y"], "ab"[int(asked["kind"])]) == (params["y"], params["kind"])


@pytest.mark.filterwarnings("ignore:Fixed parameter '?x'? with value inf is out of range")
def test_an_infinite_value_that_was_enqueued_is_learned_in_the_middle_of_the_range():
    policy = Recorded()
    study = study_of(BanditSampler(policy, seed=0))
    space = {"x": FloatDistribution(0, 1), "rate": FloatDistribution(1e-4, 1e-2, log=True)}
    study.tell(study.ask(space), 0.0)
    study.enqueue_trial({"x": math.inf, "rate": 1e-4})
    study.tell(study.ask(space), 1.0)
    study.ask(space)
    assert policy.learned[1].arm.tolist() == [[0.5, pytest.approx(0.0, abs=1e-9)]]


def test_running_trials_are_pending_wherever_they_run():
    storage = optuna.storages.InMemoryStorage()
    space = {"x": FloatDistribution(0, 1), "n": IntDistribution(1, 9), "k": CategoricalDistribution("ab")}
    study = study_of(BanditSampler(seed=0, n_startup_trials=1), storage=storage, study_name="shared")
    for k in range(6):
        study.tell(study.ask(space), float(k % 3))
    first = study.ask(space)
    other = optuna.load_study(
        study_name="shared", storage=storage, sampler=BanditSampler(seed=0, n_startup_trials=1)
    )
    second, third = other.ask(space), study.ask(space)
    assert first.params != second.params
    assert third.params not in (first.params, second.params)


def test_threads_share_a_policy_which_learns_each_trial_once_although_optuna_reseeds_the_sampler_for_each():
    policy = Recorded()
    study = study_of(BanditSampler(policy, seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=12, n_jobs=3)
    study.ask({"x": FloatDistribution(0, 1)})
    assert policy.built == 1
    assert sorted(one.time for one in policy.learned) == list(range(12))


def test_threads_share_a_sampler():
    study = study_of(BanditSampler(seed=0))
    study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=12, n_jobs=3)
    assert len({trial.params["x"] for trial in study.trials}) == 12


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("number", lambda trial: trial.number),
        ("clock", lambda trial: trial.datetime_start.timestamp()),
        (lambda trial: trial.number**2, lambda trial: trial.number**2),
    ],
)
def test_time_is_the_number_the_clock_or_what_is_told(time, expected):
    policy = Recorded()
    study = study_of(BanditSampler(policy, time=time, seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=4)
    study.ask({"x": FloatDistribution(0, 1)})
    assert [one.time for one in policy.learned] == [expected(trial) for trial in study.trials[:4]]


def test_startup_trials_are_sobol_points_and_can_be_none():
    for startup in (0, 3):
        policy = Recorded()
        study = study_of(BanditSampler(policy, n_startup_trials=startup, seed=0))
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        assert policy.search.initial == startup


def test_infinite_values_are_learned_as_the_worst_finite_one():
    policy = Recorded()
    study = study_of(BanditSampler(policy, seed=0))
    for value in (math.inf, 2.0, 5.0, math.inf, -math.inf):
        study.tell(study.ask({"x": FloatDistribution(0, 1)}), value)
    study.ask({"x": FloatDistribution(0, 1)})
    learned = sorted((one.time, float(one.reward)) for one in policy.learned)
    assert [reward for _, reward in learned if _ in (1.0, 2.0, 3.0, 4.0)] == [-2.0, -5.0, -5.0, -2.0]
    assert len(learned) == 5  # the first, too, once there is a finite one


def test_a_point_of_infinite_value_is_not_sampled_again_while_no_value_is_finite():
    study = study_of(BanditSampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) * math.inf, n_trials=6)
    assert len({trial.params["x"] for trial in study.trials}) == 6


def test_another_recipe_with_a_kernel_over_the_unit_cube():
    build = functools.partial(recipes.tv_gp_ucb, kernel=RBFKernel().double(), noise_variance=0.01, width=2.0)
    study = study_of(BanditSampler(build, standardise=True, n_startup_trials=4, seed=0))
    study.optimize(lambda trial: 100 * (trial.suggest_float("x", 0, 50) - 20) ** 2, n_trials=16)
    assert abs(study.trials[-1].params["x"] - 20) < 8


def test_reseeding_changes_what_is_sampled():
    points = []
    for _ in range(2):
        study = study_of(BanditSampler(seed=0))
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        study.sampler.reseed_rng()
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        points.append(study.trials[-1].params["x"])
    assert points[0] != points[1]


def test_several_objectives_and_constraints_are_refused_by_name():
    several = optuna.create_study(directions=["minimize", "maximize"], sampler=BanditSampler(seed=0))
    with pytest.raises(ValueError, match=r"^study\.directions must be one"):
        several.ask({"x": FloatDistribution(0, 1)})
    study = study_of(BanditSampler(seed=0))
    trial = study.ask({"x": FloatDistribution(0, 1)})
    if hasattr(trial, "set_constraint"):
        trial.set_constraint("power", 1.0)
    else:  # before Optuna 5 a sampler of Optuna's wrote them
        study._storage.set_trial_system_attr(trial._trial_id, "constraints", [1.0])
    study.tell(trial, 0.0)
    with pytest.raises(ValueError, match=r"^constraints must be none"):
        study.ask({"x": FloatDistribution(0, 1)})


@pytest.mark.parametrize(
    "bad",
    [
        {"policy": "auto"},
        {"time": "date"},
        {"n_startup_trials": -1},
        {"seed": -1},
        {"independent_sampler": 3},
    ],
)
def test_arguments_are_refused_by_name(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=f"^{name} must be"):
        BanditSampler(**bad)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"time": lambda trial: math.nan}, r"time\(trial\)"),
        ({"policy": lambda domain, search, seed: torch.zeros(3)}, "policy"),
    ],
)
def test_what_is_told_by_functions_is_refused_by_name(options, named):
    study = study_of(BanditSampler(**options, seed=0))
    study.tell(study.ask({"x": FloatDistribution(0, 1)}), 0.0)
    with pytest.raises(ValueError, match=f"^{named} must be"):
        study.ask({"x": FloatDistribution(0, 1)})


@pytest.mark.parametrize("deleted", [False, True])
def test_a_study_of_the_same_name_that_is_another_is_learned_anew(deleted):
    """A cell of a notebook that is run twice; a study that is deleted and made again."""
    recorded, storage = Recorded(), optuna.storages.InMemoryStorage() if deleted else None
    sampler = BanditSampler(recorded, n_startup_trials=1, seed=0)
    for count, best in ((6, 0.2), (9, 0.8)):
        study = study_of(sampler, study_name="mine", storage=storage)
        study.optimize(lambda trial, best=best: (trial.suggest_float("x", 0, 1) - best) ** 2, n_trials=count)
        assert [float(one.reward) for one in recorded.learned] == [-t.value for t in study.trials[:-1]]
        if deleted:
            optuna.delete_study(study_name="mine", storage=storage)


def test_why_a_policy_cannot_be_built_is_said_of_every_trial():
    priors = [CandidatePrior(RBFKernel().double())] * 2
    of_priors = functools.partial(recipes.mle_gp_ucb, priors=priors, noise_variance=0.1, horizon=9)
    one_column = r"policy must be of one replicate over points of 1 dimension\(s\), got"
    for build, said in (
        (recipes.tv_gp_ucb, "kernel"),
        (functools.partial(recipes.auto, replicates=2), one_column),
        (lambda domain, search, seed: recipes.auto(5), one_column),
        (of_priors, "policy must be one that learns points which it did not choose"),
    ):
        study = study_of(BanditSampler(build, seed=0))
        study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=1)
        for _ in range(2):
            with pytest.raises(ValueError, match=said):
                study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=1)

"""``BanditNode`` in Ax: what it learns of an experiment, and that it follows an objective that moves."""

import functools
import math
import time

import pandas as pd
import pytest
from gpytorch.kernels import RBFKernel

pytest.importorskip("ax", reason='Ax is not installed: pip install ".[ax]"')

from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.data import Data
from ax.core.metric import Metric
from ax.core.objective import Objective
from ax.core.optimization_config import OptimizationConfig
from ax.core.parameter import ParameterType, RangeParameter
from ax.exceptions.core import AxError
from ax.generation_strategy.generation_strategy import GenerationStep, GenerationStrategy

from bandits_torch import recipes
from bandits_torch.integrations.ax import BanditNode
from tests.integrations.recorded import Recorded

pytestmark = pytest.mark.filterwarnings("ignore")  # Ax's and its dependencies' own
X = RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))
ALL = [
    X,
    RangeParameterConfig(name="rate", parameter_type="float", bounds=(1e-5, 1e-1), scaling="log"),
    RangeParameterConfig(name="layers", parameter_type="int", bounds=(1, 6)),
    ChoiceParameterConfig(name="kind", parameter_type="str", values=["a", "b", "c"], is_ordered=False),
    ChoiceParameterConfig(name="size", parameter_type="int", values=[8, 64, 512], is_ordered=True),
]


def client_of(node, parameters=(X,), objective="-loss", **constraints):
    client = Client(random_seed=0)
    client.configure_experiment(parameters=list(parameters))
    client.configure_optimization(objective=objective, **constraints)
    client.set_generation_strategy(GenerationStrategy(name="ours", nodes=[node]))
    return client


def play(client, trials, loss):
    rows = []
    for _ in range(trials):
        ((index, values),) = client.get_next_trials(1).items()
        rows.append((values, loss(index, values)))
        client.complete_trial(index, raw_data={"loss": rows[-1][1]})
    return rows


def moving(index, values):
    top = 0.5 + 0.4 * math.sin(index / 12)
    return 8 * (values["x"] - top) ** 2 + 0.5 * (values.get("kind", "b") != "b")


def test_it_follows_an_objective_that_moves():
    rows = play(client_of(BanditNode(), [X, ALL[3]]), 40, moving)
    late = [loss for _, loss in rows[20:]]
    at_random = 8 * (1 / 12 + 0.08) + 0.5 * 2 / 3
    assert sum(late) / len(late) < 0.4 * at_random


def test_values_are_of_every_kind_of_parameter_and_come_back_as_they_were():
    policy = Recorded()
    node = BanditNode(policy)
    client = client_of(node, ALL)
    rows = play(client, 6, lambda index, values: float(index))
    client.get_next_trials(1)
    assert policy.built == 1
    for one, (values, loss) in zip(policy.learned, rows, strict=True):
        assert 0 <= values["x"] <= 1
        assert 1e-5 <= values["rate"] <= 1e-1
        assert type(values["layers"]) is int
        assert 1 <= values["layers"] <= 6
        assert values["kind"] in ("a", "b", "c")
        assert values["size"] in (8, 64, 512)
        numbers = node._policy.space.decode(one.arm[0])
        assert numbers["x"] == pytest.approx(values["x"])
        assert numbers["rate"] == pytest.approx(values["rate"])
        assert "abc"[int(numbers["kind"])] == values["kind"]
        assert (8, 64, 512)[int(numbers["size"])] == values["size"]
        assert float(one.reward) == -loss  # it is minimised
    assert [one.time for one in policy.learned] == list(range(6))


def test_integers_too_large_for_a_float_stay_in_their_range():
    low, high = 10**16 + 1, 10**16 + 5
    large = RangeParameterConfig(name="n", parameter_type="int", bounds=(low, high))
    client = client_of(BanditNode(), [large], objective="loss")
    rows = play(client, 8, lambda index, values: (values["n"] - low) / (high - low))
    assert all(low <= values["n"] <= high for values, _ in rows)


@pytest.mark.parametrize("end", ["failed", "early_stopped", "abandoned"])
def test_a_point_that_fails_is_not_generated_again(end):
    client = client_of(BanditNode(seed=0))
    rows = []
    for _ in range(6):
        ((index, values),) = client.get_next_trials(1).items()
        client.attach_data(index, raw_data={"loss": 1.0})
        getattr(client, f"mark_trial_{end}")(index)
        rows.append(values["x"])
    assert len(set(rows)) == 6


def test_completed_trials_are_learned_once_running_ones_are_pending():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    first = client.get_next_trials(3)
    client.complete_trial(1, raw_data={"loss": 5.0})
    client.mark_trial_failed(2)
    client.get_next_trials(1)
    client.get_next_trials(1)
    assert [(one.time, float(one.reward)) for one in policy.learned] == [(1.0, -5.0)]
    waiting = [[float(one.arm) for one in pending] for pending in policy.pending]
    assert [len(pending) for pending in waiting] == [0, 1, 2, 2, 3]
    assert waiting[3] == pytest.approx([first[2]["x"], first[0]["x"]])


def test_a_running_trial_is_pending_although_it_has_data():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    for count in range(3):
        ((index, _),) = client.get_next_trials(1).items()
        client.attach_data(index, raw_data={"loss": 1.0}, progression=1)
        assert len(policy.pending[-1]) == count
    assert not policy.learned


def test_a_value_that_is_corrected_replaces_the_one_that_was_learned():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    play(client, 3, lambda index, values: 1.0)
    client.get_next_trials(1)
    client.attach_data(1, raw_data={"loss": 7.0})
    client.get_next_trials(1)
    assert [float(one.reward) for one in policy.learned] == [-1.0, -7.0, -1.0]


def test_fixed_parameters_and_disabled_ones_have_their_values():
    client = client_of(BanditNode(), ALL)
    for values in client.get_next_trials(2, fixed_parameters={"kind": "c", "rate": 0.01}).values():
        assert (values["kind"], values["rate"]) == ("c", 0.01)
    for bad in ({"kind": "z"}, {"layers": 9}):
        with pytest.raises(ValueError, match=r"fixed_parameters\['\w+'\] must be a value of"):
            client.get_next_trials(1, fixed_parameters=bad)
    with pytest.raises(ValueError, match="fixed_parameters must be among x, rate"):
        client.get_next_trials(1, fixed_parameters={"kinds": "a"})
    client._experiment.disable_parameters_in_search_space({"size": 64, "x": 0.5})
    (values,) = client.get_next_trials(1, fixed_parameters={"layers": 2}).values()
    assert (values["size"], values["x"], values["layers"]) == (64, 0.5, 2)
    every = {"x": 0.5, "rate": 0.01, "layers": 2, "kind": "c", "size": 64}
    assert list(client.get_next_trials(2, fixed_parameters=every).values()) == [every, every]


def test_a_parameter_that_is_added_has_its_backfill_value_in_earlier_trials():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    play(client, 2, lambda index, values: 1.0)
    added = RangeParameter("z", ParameterType.FLOAT, 0.0, 10.0, backfill_value=1.0)
    client._experiment.add_parameters_to_search_space([added])
    client.get_next_trials(1)
    assert [float(one.arm[0, 1]) for one in policy.learned] == pytest.approx([0.1, 0.1])


def test_all_trials_are_learned_again_for_other_choices():
    policy = Recorded()
    client = client_of(BanditNode(policy), [X, ALL[3]])
    (index,) = client.get_next_trials(1, fixed_parameters={"kind": "c"})
    client.complete_trial(index, raw_data={"loss": 1.0})
    for choices, place in ((["a", "b", "c"], [0, 0, 1]), (["c", "d", "e"], [1, 0, 0])):
        client._experiment.search_space.parameters["kind"].set_values(choices)
        client.get_next_trials(1)
        assert policy.learned[0].arm[0, 1:].tolist() == place


def test_a_completed_trial_is_not_pending_while_another_metric_lacks_data():
    policy = Recorded()
    client = client_of(BanditNode(policy), [ALL[4]])
    client.configure_tracking_metrics(["seconds"])
    play(client, 9, lambda index, values: float(index))
    asked = [*client.get_next_trials(3).values(), *client.get_next_trials(1).values()]
    waiting = [values["size"] for values in asked]
    assert len(policy.learned) == 9
    # Ax passes equal points once.
    assert [len(pending) for pending in policy.pending] == [0] * 9 + [len({*waiting[:k]}) for k in range(4)]


def test_values_of_a_metric_with_a_signature_of_its_own_are_learned():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    client._experiment.update_metric(Metric(name="loss", lower_is_better=True, signature_override="loss_v2"))
    renamed = Objective("-loss", metric_name_to_signature={"loss": "loss_v2"})
    client._experiment.optimization_config = OptimizationConfig(renamed)
    play(client, 2, lambda index, values: 3.0)
    client.get_next_trials(1)
    assert [float(one.reward) for one in policy.learned] == [-3.0, -3.0]


def test_a_node_that_goes_on_to_another_experiment_begins_again():
    policy = Recorded()
    node = BanditNode(policy)
    play(client_of(node), 6, lambda index, values: 1.0)
    play(client_of(node), 2, lambda index, values: 2.0)
    assert policy.times == [0.0, 1.0]
    assert [(one.time, float(one.reward)) for one in policy.learned] == [(0.0, -2.0)]


def test_an_arm_of_a_batch_that_was_abandoned_counts_as_a_failure():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    (run,) = client._generation_strategy.gen(client._experiment, n=3)[0]
    trial = client._experiment.new_batch_trial(generator_run=run).mark_running(no_runner_required=True)
    rows = [{"arm_name": arm.name, "mean": float(k), "sem": 0.0} for k, arm in enumerate(trial.arms)]
    about = {"trial_index": trial.index, "metric_name": "loss", "metric_signature": "loss"}
    client._experiment.attach_data(Data(df=pd.DataFrame([row | about for row in rows])))
    trial.mark_arm_abandoned(trial.arms[1].name)
    trial.mark_completed()
    client.get_next_trials(1)
    assert [float(one.reward) for one in policy.learned] == [0.0, -2.0]
    (pending,) = policy.pending[-1]
    assert float(pending.arm) == pytest.approx(trial.arms[1].parameters["x"])


def test_values_that_no_policy_can_learn_count_as_failures():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    for value in (1e200, -1e200, 3.0, math.inf):
        play(client, 1, lambda index, values, value=value: value)
    client.get_next_trials(1)
    assert [float(one.reward) for one in policy.learned] == [-3.0]
    assert len(policy.pending[-1]) == 3


def test_the_largest_value_is_sought_where_the_objective_is_maximised():
    policy = Recorded()
    client = client_of(BanditNode(policy), objective="loss")
    play(client, 2, lambda index, values: 3.0)
    client.get_next_trials(1)
    assert [float(one.reward) for one in policy.learned] == [3.0, 3.0]


def test_all_trials_are_learned_again_for_another_direction_or_metric():
    policy = Recorded()
    client = client_of(BanditNode(policy))
    for k in range(3):
        (index,) = client.get_next_trials(1)
        client.complete_trial(index, raw_data={"loss": float(k), "cost": 10.0 + k})
    for objective, rewards in (("-loss", [0, -1, -2]), ("loss", [0, 1, 2]), ("-cost", [-10, -11, -12])):
        client.configure_optimization(objective=objective)
        client.get_next_trials(1)
        assert [float(one.reward) for one in policy.learned] == rewards


def test_a_trial_whose_choice_the_parameter_does_not_have_is_learned_in_the_middle_of_all():
    policy = Recorded()
    client = client_of(BanditNode(policy), ALL[3:])
    play(client, 1, lambda index, values: 1.0)
    client.complete_trial(client.attach_trial({"kind": "z", "size": 9}), raw_data={"loss": 2.0})
    client.get_next_trials(1)
    assert policy.learned[-1].arm.tolist() == [pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.5])]


def test_a_trial_whose_value_has_no_place_is_learned_in_the_middle_of_the_range():
    policy = Recorded()
    client = client_of(BanditNode(policy), ALL[:2])
    without = ({"x": None, "rate": 0.0}, {"x": 0.25, "rate": -1.0}, {"x": math.nan, "rate": math.inf})
    for values in without:
        client.complete_trial(client.attach_trial(values), raw_data={"loss": 2.0})
    client.get_next_trials(1)
    assert [one.arm.tolist() for one in policy.learned] == [[[0.5, 0.5]], [[0.25, 0.5]], [[0.5, 0.5]]]


def test_on_the_clock_a_trial_is_chosen_for_the_present(monkeypatch):
    policy = Recorded()
    client = client_of(BanditNode(policy, time="clock"))
    play(client, 1, lambda index, values: 1.0)
    present = time.time() + 3600.0
    monkeypatch.setattr("time.time", lambda: present)
    client.get_next_trials(1)
    assert policy.times[-1] == present


def test_time_may_be_the_clock():
    policy = Recorded()
    client = client_of(BanditNode(policy, time="clock"))
    play(client, 3, lambda index, values: 1.0)
    client.get_next_trials(1)
    trials = client._experiment.trials.values()
    started = [trial.time_run_started.timestamp() for trial in trials if trial.status.is_completed]
    assert [one.time for one in policy.learned] == started


def test_an_experiment_saved_under_another_strategy_goes_on_with_a_new_node(tmp_path):
    client, path = client_of(BanditNode()), str(tmp_path / "saved.json")
    play(client, 6, moving)
    ours = client._generation_strategy
    sobol = GenerationStep(generator=Generators.SOBOL, num_trials=-1)
    client.set_generation_strategy(GenerationStrategy(name="plain", nodes=[sobol]))
    client.save_to_json_file(path)
    client.set_generation_strategy(ours)
    loaded = Client.load_from_json_file(path)
    loaded.set_generation_strategy(GenerationStrategy(name="ours", nodes=[BanditNode()]))
    (there,), (here,) = (one.get_next_trials(1).values() for one in (loaded, client))
    assert there["x"] == pytest.approx(here["x"], abs=1e-6)


def test_another_recipe_with_a_kernel_over_the_unit_cube():
    build = functools.partial(recipes.tv_gp_ucb, kernel=RBFKernel().double(), noise_variance=0.01, width=2.0)
    far = RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 50.0))
    rows = play(
        client_of(BanditNode(build, standardise=True), [far]), 14, lambda _, v: 100 * (v["x"] - 20) ** 2
    )
    assert abs(rows[-1][0]["x"] - 20) < 8


def test_what_it_cannot_do_is_refused_by_name():
    y = RangeParameterConfig(name="y", parameter_type="float", bounds=(0.0, 1.0))
    tied = Client(random_seed=0)
    tied.configure_experiment(parameters=[X, y], parameter_constraints=["x + y <= 1"])
    tied.configure_optimization(objective="loss")
    tied.set_generation_strategy(GenerationStrategy(name="ours", nodes=[BanditNode()]))
    only = ChoiceParameterConfig(name="kind", parameter_type="str", values=["a"])
    of_fidelity = client_of(BanditNode())
    shares = RangeParameter("x", ParameterType.FLOAT, 0.0, 1.0, is_fidelity=True, target_value=1.0)
    of_fidelity._experiment.search_space.update_parameter(shares)
    without_kernel = client_of(BanditNode(recipes.tv_gp_ucb))
    for named, client in (
        ("objective must be", client_of(BanditNode(), objective="loss, -cost")),
        ("outcome_constraints must be", client_of(BanditNode(), outcome_constraints=["cost <= 3"])),
        ("objective must be one metric", client_of(BanditNode(), objective="0 * loss")),
        ("parameter_constraints must be", tied),
        ("search_space must be one with a parameter of several values", client_of(BanditNode(), [only])),
        ("x must be without a target value: no fidelity or task", of_fidelity),
        *[("kernel", without_kernel)] * 2,  # it is said of every trial
    ):
        with pytest.raises((ValueError, AxError), match=named):
            client.get_next_trials(1)
    for bad in ({"policy": "auto"}, {"time": "date"}, {"seed": -1}):
        with pytest.raises(ValueError, match=f"^{next(iter(bad))} must be"):
            BanditNode(**bad)

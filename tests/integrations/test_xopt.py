"""``TimeVaryingUCBGenerator`` in Xopt: what it learns of the data, constraints, YAML."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("xopt", reason='Xopt is not installed: pip install ".[xopt]"')

from xopt import VOCS, Evaluator, Xopt
from xopt.errors import VOCSError

from bandits_torch import Domain, recipes
from bandits_torch.integrations.xopt import TimeVaryingUCBGenerator, _Feasible
from bandits_torch.policies import Observation

pytestmark = pytest.mark.filterwarnings("ignore")  # Xopt's and its dependencies' own
QUICK = {"search": {"initial": 4, "num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 15}}}
LIMIT = {"c": ["LESS_THAN", 0.5]}
BOX = {"a": [-1.0, 1.0], "b": [10.0, 30.0]}


def problem(**options):
    return VOCS(**({"variables": BOX, "objectives": {"f": "MINIMIZE"}} | options))


def generator(vocs=None, **options):
    return TimeVaryingUCBGenerator(vocs=vocs or problem(), options=QUICK, capacity=40, **options)


def session(made, function):
    return Xopt(generator=made, evaluator=Evaluator(function=function))


class Moving:
    def __init__(self):
        self.calls = 0

    def __call__(self, inputs):
        self.calls += 1
        top = 0.6 * math.sin(self.calls / 10)
        return {"f": 50 + 10 * ((inputs["a"] - top) ** 2 + ((inputs["b"] - 20) / 10) ** 2)}


def test_it_plays_what_the_recipe_auto_plays():
    made = generator(seed=3)
    domain = Domain(torch.tensor(list(BOX.values())).double().mT)
    policy = recipes.auto(domain, seed=3, search=QUICK["search"])
    twin = Moving()
    X = session(made, Moving())
    for shot in range(10):
        arm = policy.choose(float(shot)).arm
        X.step()
        off = X.data[["a", "b"]].iloc[-1].to_numpy() - arm[0].numpy()
        assert np.abs(off / [2.0, 20.0]).max() < 1e-5  # rounding, which searches enlarge
        value = twin(dict(zip("ab", arm[0].tolist(), strict=True)))["f"]
        policy.learn(Observation(float(shot), arm, torch.tensor([-value]).double()))


def test_the_largest_of_the_negative_is_sought_where_the_least_is():
    points = []
    for direction, sign in (("MINIMIZE", 1.0), ("MAXIMIZE", -1.0)):
        moving = Moving()
        made = generator(problem(objectives={"f": direction}))
        X = session(made, lambda inputs, sign=sign, moving=moving: {"f": sign * moving(inputs)["f"]})
        for _ in range(8):
            X.step()
        points.append(X.data[["a", "b"]].to_numpy())
    np.testing.assert_allclose(*points)


@pytest.mark.parametrize(
    ("constraint", "holds", "bound"),
    [
        (["LESS_THAN", 0.2], lambda a: a <= 0.2, 0.2),
        (["GREATER_THAN", -0.2], lambda a: a >= -0.2, -0.2),
        (["BOUNDS", -0.2, 0.2], lambda a: abs(a) <= 0.2, 0.2),
    ],
)
def test_shots_settle_where_constraints_hold(constraint, holds, bound):
    aim = math.copysign(1.0, bound)  # the least of the objective lies beyond the bound
    made = generator(problem(constraints={"c": constraint}))
    X = session(made, lambda inputs: {"f": (inputs["a"] - aim) ** 2, "c": inputs["a"]})
    for _ in range(24):
        X.step()
    late = X.data["a"].iloc[-8:]
    assert holds(late + (-0.02 * aim)).mean() >= 0.75
    assert late.mean() == pytest.approx(bound, abs=0.15)


def test_what_is_maximised_is_the_bound_plus_the_log_probability_of_the_constraints():
    made = generator(problem(constraints={"c": ["LESS_THAN", 0.2], "d": ["BOUNDS", 12.0, 20.0]}))
    X = session(made, lambda inputs: {"f": inputs["a"] ** 2, "c": inputs["a"], "d": inputs["b"]})
    for _ in range(9):
        X.step()
    first, *others = made_models = X.generator._models
    acquisition = first.acquisition()
    assert isinstance(acquisition, _Feasible)
    at = torch.tensor([[0.5, 15.0], [-0.4, 25.0]]).double()
    clock = first.clock.at(9.0)
    inputs = torch.cat([at, torch.full((2, 1), clock).double()], -1)[:, None, None]
    normal = torch.distributions.Normal(0.0, 1.0)
    expected = super(type(first), first).acquisition()(inputs).reshape(-1)
    for model, (low, high) in zip(others, [(-math.inf, 0.2), (12.0, 20.0)], strict=True):
        mean, variance = model.marginals(9.0, at)
        spread = variance.sqrt()
        inside = normal.cdf((high - mean) / spread) - normal.cdf((low - mean) / spread)
        expected = expected + inside.log().reshape(-1)
    assert len(made_models) == 3
    torch.testing.assert_close(acquisition(inputs).reshape(-1), expected, rtol=1e-4, atol=1e-4)


def test_constraints_in_a_small_unit_hold_where_they_would_in_any_other():
    shots = []
    for unit in (1.0, 2.0**-30):
        made = generator(problem(constraints={"c": ["LESS_THAN", 0.2 * unit]}))
        X = session(made, lambda inputs, unit=unit: {"f": (inputs["a"] - 1) ** 2, "c": unit * inputs["a"]})
        for _ in range(14):
            X.step()
        shots.append(torch.tensor(X.data[["a", "b"]].to_numpy()))
    torch.testing.assert_close(*shots, rtol=0, atol=0.02)


def _often_broken(inputs):
    broken = int(abs(inputs["a"]) * 1000) % 4 == 2
    return {"f": math.nan if broken else (inputs["a"] - 0.9) ** 2, "c": inputs["a"]}


def test_no_variable_travels_further_than_its_limit_from_the_last_shot_yaml_and_failed_shots_too():
    far = np.array([0.1 * 2.0, 0.05 * 20.0])
    made = generator(problem(constraints={"c": ["LESS_THAN", 0.5]}), max_travel_distances=[0.1, 0.05])

    X = session(made, _often_broken)
    X.evaluate_data(pd.DataFrame({"a": [-0.5], "b": [25.0]}))
    for shot in range(7):
        X.evaluate_data(pd.DataFrame(X.generator.generate(2)))
        if shot == 3:
            X = Xopt.from_yaml(X.yaml())
    assert X.data["f"].isna().any()
    moved = np.abs(np.diff(X.data[["a", "b"]].to_numpy(), axis=0))
    assert (moved <= far + 1e-9).all()
    assert moved.max(0)[0] > 0.9 * far[0]
    assert X.data["a"].iloc[-1] > 0.0


def test_a_price_of_moving_saves_moves():
    paths = []
    for price in (0.0, 50.0):
        X = session(generator(move_price=price), Moving())
        for _ in range(12):
            X.step()
        paths.append(float(X.data[["a", "b"]].diff().abs().div([2.0, 20.0]).sum().sum()))
    assert paths[1] < 0.5 * paths[0]


@pytest.mark.parametrize("names", ["ab", "ba"])  # YAML sorts them
def test_a_session_goes_on_from_its_yaml_with_the_same_bits(names):
    limits = {"d": ["LESS_THAN", 9.0], "c": ["LESS_THAN", 0.5]}
    vocs = VOCS(
        variables={name: BOX[name] for name in names}, objectives={"f": "MINIMIZE"}, constraints=limits
    )
    X = session(generator(vocs, max_travel_distances=[0.1, 0.3]), _plain)
    for _ in range(7):
        X.step()
    back = Xopt.from_yaml(X.yaml())
    for _ in range(3):
        X.step()
        back.step()
    assert X.data[["a", "b"]].iloc[7:].equals(back.data[["a", "b"]].iloc[7:])
    again = Xopt.from_yaml(back.yaml())
    X.step()
    again.step()
    assert X.data["a"].iloc[-1] == again.data["a"].iloc[-1]


def _plain(inputs):
    return {"f": inputs["a"] ** 2 + inputs["b"], "c": inputs["a"], "d": inputs["b"]}


def test_shots_lie_within_bounds_that_float32_would_round():
    (shot,) = generator(VOCS(variables={"x": [0.1, 0.1 + 1e-9]}, objectives={"f": "MINIMIZE"})).generate(1)
    assert 0.1 <= shot["x"] <= 0.1 + 1e-9


def test_it_is_found_by_name_and_without_state_learns_the_data_again():
    X = session(generator(), _plain)
    for _ in range(6):
        X.step()
    settings = {"name": "time_varying_ucb", "vocs": problem(), "capacity": 40, "options": QUICK}
    other = Xopt(generator=settings, evaluator=Evaluator(function=_plain), data=X.data.copy())
    for session_ in (X, other):
        session_.step()
    np.testing.assert_allclose(X.data[["a", "b"]].iloc[-1], other.data[["a", "b"]].iloc[-1], atol=1e-6)


def test_shots_are_learned_once_and_all_again_when_data_are_removed():
    X = session(generator(), _plain)
    for _ in range(6):
        X.step()
    held = lambda: int(X.generator._models[0].members.num_held.max())  # noqa: E731
    assert held() == 6
    X.remove_data([0, 3])
    X.step()
    assert held() == 5
    X.reset_data()
    X.step()
    assert held() == 1


def test_rows_without_a_number_are_left_out():
    made = generator(problem(constraints={"c": ["LESS_THAN", 0.5]}))
    rows = {"a": [0.1, 0.2, 0.3], "b": [11.0, 12.0, 13.0]}
    rows |= {"f": [1.0, math.nan, 2.0], "c": [0.0, 0.0, math.inf]}
    made.add_data(pd.DataFrame(rows))
    assert int(made._models[0].members.num_held.max()) == 1
    assert len(made.generate(1)) == 1


@pytest.mark.parametrize("options", [{}, {"max_travel_distances": [0.5, 0.5]}])
def test_shots_that_fail_are_not_chosen_again(options):
    def fails_on_the_right(inputs):
        return {"f": math.nan if inputs["a"] > 0 else (inputs["a"] + 0.1) ** 2}

    X = session(generator(**options), fails_on_the_right)
    for _ in range(12):
        X.step()
    assert len(X.data["a"].drop_duplicates()) == 12
    assert X.data["f"].min() < 0.01


@pytest.mark.parametrize("failure", [math.nan, RuntimeError])
def test_a_shot_without_a_time_does_not_stop_a_session_on_the_clock(failure):
    calls = []

    def machine(inputs):
        calls.append(inputs)
        if len(calls) == 3 and failure is RuntimeError:
            raise failure
        return {"f": inputs["a"], "time": math.nan if len(calls) == 3 else 100.0 + len(calls)}

    X = Xopt(generator=generator(clock="time"), evaluator=Evaluator(function=machine), strict=False)
    for _ in range(6):
        X.step()
    assert len(X.data) == 6
    assert int(X.generator._models[0].members.num_held.max()) == 5


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("vocs", problem(objectives={"f": "MAXIMIZE"}, constraints={"c": ["LESS_THAN", 0.5]})),
        ("vocs", problem(constraints={"c": ["LESS_THAN", -0.5]})),
        ("vocs", problem(constraints={"c": ["GREATER_THAN", 0.5]})),
        ("vocs", problem(variables={"a": [-5.0, 0.5], "b": [10.0, 30.0]}, constraints=LIMIT)),
        ("width", 3.0),
    ],
)
def test_what_is_changed_in_a_session_holds_from_the_next_shot_on(change, value):
    before = {"vocs": problem(constraints={"c": ["LESS_THAN", 0.5]})}
    X = session(generator(**before), _plain)
    for _ in range(7):
        X.step()
    setattr(X.generator, change, value)
    anew = generator(**{**before, change: value})
    anew.add_data(X.data)
    assert X.generator.generate(1) == anew.generate(1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MinimizeObjective", "MaximizeObjective"),
        ("- 30.0", "- 40.0"),
        ("capacity: 40", "capacity: 5"),
        ("max_travel_distances: null", "max_travel_distances: [0.1, 0.1]"),
        ("move_price: 0.0", "move_price: 0.5"),
    ],
)
def test_a_session_whose_yaml_was_changed_learns_its_data_again(old, new):
    X = session(generator(), _plain)
    for _ in range(7):
        X.step()
    text = X.yaml().replace(old, new)
    assert text != X.yaml()
    X = Xopt.from_yaml(text)
    anew = TimeVaryingUCBGenerator(**X.generator.model_dump() | {"state": None})
    anew.add_data(X.data)
    assert X.generator.generate(1) == anew.generate(1)


def test_several_shots_at_once_differ():
    made = generator()
    made.add_data(pd.DataFrame({"a": [0.1, 0.5, -0.3], "b": [11.0, 25.0, 18.0], "f": [1.0, 3.0, 2.0]}))
    made.add_data(pd.DataFrame({"a": [0.7], "b": [14.0], "f": [0.5]}))
    shots = pd.DataFrame(made.generate(3))
    assert list(shots) == ["a", "b"]
    assert len(shots.round(6).drop_duplicates()) == 3


def test_the_clock_may_be_the_column_of_times(monkeypatch):
    made = generator(clock="time", added_time=2.0)
    rows = pd.DataFrame({"a": [0.1, 0.2], "b": [11.0, 12.0], "f": [1.0, 2.0], "time": [100.0, 103.0]})
    made.add_data(rows)
    seen = []
    monkeypatch.setattr("bandits_torch.integrations.xopt.time.time", lambda: 110.0)
    policy = made._models[0]
    choose = policy.choose_many
    monkeypatch.setattr(policy, "choose_many", lambda now, *rest: seen.append(now) or choose(now, *rest))
    made.generate(1)
    assert seen == [112.0]
    assert policy.clock._latest == 103.0
    with pytest.raises(ValueError, match=r"^data must be"):
        generator(clock="time").add_data(rows.drop(columns="time"))
    dated = rows.assign(time=pd.to_datetime(rows["time"], unit="s"))
    with pytest.raises(ValueError, match=r"^data\.loc\[0, 'time'\] must be a number"):
        generator(clock="time").add_data(dated)
    with pytest.raises(ValueError, match=r"^data must be with a column for each of \['a', 'b'\]"):
        generator().add_data(rows.rename(columns={"b": "B"}))


def test_shots_enter_a_range_that_was_narrowed_away_from_the_last_shot():
    X = session(generator(max_travel_distances=[0.1, 0.1]), _plain)
    X.evaluate_data(pd.DataFrame({"a": [0.9], "b": [11.0]}))
    X.generator.vocs = problem(variables={"a": [-1.0, 0.2], "b": [10.0, 30.0]})
    for _ in range(3):
        X.step()
    a = X.data["a"].to_numpy()
    assert (np.diff(np.minimum(a, 0.2)) >= -0.1 * 1.2 - 1e-9).all()
    assert (a[1:] <= 0.2).all()


@pytest.mark.parametrize("text", ["xxx", "", "AAAA"])
def test_a_state_that_cannot_be_read_is_refused_again_and_without_it_the_data_are_learned(text):
    made = generator(state=text)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"^state must be .*, or None, so that the data are learned again, got"
        ):
            made.generate(1)
    made.state = None
    assert made.generate(1) == generator().generate(1)


@pytest.mark.parametrize("name", ["domain", "kind", "width", "capacity", "seed"])
def test_options_that_are_set_elsewhere_are_refused(name):
    made = TimeVaryingUCBGenerator(vocs=problem(), options={name: 3})
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"^options must be without .*, got \['{name}'\]"):
            made.generate(1)


@pytest.mark.parametrize("bad", [{"f": 1e200}, {"f": "high"}, {"a": 1e200}])
def test_a_row_that_cannot_be_learned_is_named_and_all_others_are_learned_once(bad):
    X = session(generator(), _plain)
    X.step()
    rows = pd.DataFrame({"a": [0.1, 0.2], "b": [11.0, 12.0], "f": [1.0, 2.0]}, index=[1, 2]).astype(object)
    rows.loc[2, list(bad)] = list(bad.values())
    name, value = *bad, *bad.values()
    said = re.escape(f"data.loc[2, {name!r}] must be a number up to 1e140 in size; remove_data([2])")
    for refused in (lambda: X.add_data(rows), X.step):
        with pytest.raises(ValueError, match=f"^{said} removes its row, got {re.escape(repr(value))}"):
            refused()
    X.remove_data([2])
    X.step()
    assert int(X.generator._models[0].members.num_held.max()) == len(X.data) == 3


def test_rows_are_learned_once_although_a_later_one_is_refused():
    made = generator(problem(constraints=LIMIT))
    rows = pd.DataFrame({"a": [0.1, 0.2], "b": [11.0, 12.0], "f": [1.0, 2.0], "c": [0.0, 0.1]})
    made.add_data(rows)
    learn, calls = made._models[1].learn, []
    made._models[1].learn = lambda one: calls.append(one) or (1 / 0 if len(calls) == 2 else learn(one))
    with pytest.raises(ZeroDivisionError):
        made.add_data(rows + 0.5)
    made._models[1].learn = learn
    made.data = made.data.iloc[:3]
    made.generate(1)
    assert int(made._models[1].members.num_held.max()) == 3


def test_a_change_that_is_refused_is_refused_again():
    X = session(generator(), _plain)
    X.step()
    X.generator.max_travel_distances = [0.1]
    for _ in range(2):
        with pytest.raises(ValueError, match="max_travel_distances must be one for each of"):
            X.generator.generate(1)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(VOCSError, match="multi-objective"):
        generator(problem(objectives={"f": "MINIMIZE", "g": "MAXIMIZE"}))
    with pytest.raises(ValueError, match=r"objectives\['f'\] must be MINIMIZE or MAXIMIZE"):
        generator(problem(objectives={"f": "EXPLORE"}))
    bad = [("width", -1.0), ("capacity", 1), ("clock", "day"), ("seed", -1)]
    for name, value in [*bad, ("added_time", -1.0), ("added_time", math.inf)]:
        with pytest.raises(ValueError, match=name):
            TimeVaryingUCBGenerator(vocs=problem(), **{name: value})
    limited = problem(constraints={"c": ["LESS_THAN", 0.5]})
    for message, options in {
        "max_travel_distances must be one for each of": {"max_travel_distances": [0.1]},
        "max_move must be above 0": {"max_travel_distances": [0.1, 0.0]},
        "move_price must be 0 with": {"move_price": 0.1, "vocs": limited},
    }.items():
        with pytest.raises(ValueError, match=message):
            generator(**options).generate(1)

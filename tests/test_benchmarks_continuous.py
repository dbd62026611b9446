"""The race on continuous domains in small: rivals are played by the same loop, and it goes on where it stopped."""

import pandas as pd
import pytest
import torch

from bandits_torch import make, run
from benchmarks.continuous import race as races
from benchmarks.continuous.race import INITIAL, OURS, SMOOTH, continued, has_wdbo, racers
from benchmarks.continuous.rivals import PlainBoTorch


def test_plain_botorch_is_played_by_the_same_loop_after_its_sobol_points():
    problem = make("dynamic-griewank", horizon=6)
    for over_time in (True, False):
        rival = PlainBoTorch(problem.domain, 6, 4, 3, acquisition="ucb", over_time=over_time)
        history = run(rival, problem, 6)
        assert torch.equal(history.arms[0, :4], problem.domain.sample(4, 3))
        assert problem.domain.contains(history.arms[0]).all()
        assert (history.seconds[4:] > history.seconds[:4].max()).all()  # it fits from then on


def test_every_policy_named_on_the_page_races():
    problem = make("dynamic-shekel", horizon=20)
    built = racers(problem, 20, 0)
    assert {"tv_gp_ucb", "sw_gp_ucb", "et_gp_ucb", "pe_gp_ucb", SMOOTH} == set(OURS) <= set(built)
    assert ("W-DBO" in built) == has_wdbo()
    for name in OURS:
        policy = built[name]()
        assert policy.policy.choices.search.initial == policy.first == INITIAL
        assert torch.equal(policy.choose(1.0).arm, problem.domain.sample(INITIAL, 0)[:1])
    over_time = built[SMOOTH]().model.kernel.time_kernel
    assert (over_time.nu, over_time.lengthscale.item()) == (1.5, pytest.approx(20 / 3))
    assert {built[f"BoTorch UCB of width {w}, blind to time"]().width for w in (1, 2)} == {1.0, 2.0}


def test_a_race_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    played = []

    def one(name, horizon, replicate, only=()):
        played.append((horizon, replicate))
        if len(played) == 2:
            raise KeyboardInterrupt
        return pd.DataFrame({"replicate": replicate, "step": range(1, horizon + 1)})

    monkeypatch.setattr(races, "race", one)
    table = tmp_path / "race.csv"
    with pytest.raises(KeyboardInterrupt):
        continued("dynamic-levy", 5, 3, table)
    assert len(pd.read_csv(table)) == 5
    continued("dynamic-levy", 5, 3, table)
    assert played == [(5, 0), (5, 1), (5, 1), (5, 2)]
    assert pd.read_csv(table)["replicate"].tolist() == [0] * 5 + [1] * 5 + [2] * 5
    continued("dynamic-levy", 6, 1, table)  # another horizon: begun anew
    assert pd.read_csv(table)["step"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_policy_can_be_played_again_while_the_others_rows_stay(tmp_path, monkeypatch):
    def one(name, horizon, replicate, only=()):
        policies = [policy for policy in ("a", "b", "c") if policy in (only or "abc")]
        steps = [
            {"policy": policy, "replicate": replicate, "step": s + 1} for policy in policies for s in range(3)
        ]
        return pd.DataFrame(steps).assign(regret=7.0 if only else 1.0, seconds=0.1)

    monkeypatch.setattr(races, "race", one)
    table = tmp_path / "race.csv"
    continued("dynamic-levy", 3, 2, table)
    before = pd.read_csv(table)
    continued("dynamic-levy", 3, 2, table, again=["b"])
    after = pd.read_csv(table)
    assert after["regret"].tolist() == 2 * [1.0, 1.0, 1.0, 7.0, 7.0, 7.0, 1.0, 1.0, 1.0]
    assert after.drop(columns="regret").equals(before.drop(columns="regret"))


def test_a_policy_to_be_played_again_must_be_one_of_the_race():
    with pytest.raises(ValueError, match="only must be policies among random; tv_gp_ucb"):
        races.race("dynamic-levy", 3, 0, ["nobody"])

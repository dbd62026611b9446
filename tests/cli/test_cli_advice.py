"""A race ends with advice, and with lines of Python that work."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from tests.cli.shell import call

GOOD_AND_BAD = "gp_ucb,sw_gp_ucb,random"
OPTIONS = ["--option", "gp_ucb.width=1", "--option", "sw_gp_ucb.window=1", "--replicates", "2"]
GIVEN = ["--option", "forgetting_rate=0.1", "--option", "noise_fraction=0.5"]  # nothing is estimated
FEW_ROWS = pytest.mark.filterwarnings("ignore")  # of estimates from so few rows


def shops(rows):
    """Six shops, one of which is best all the time; rewards of 5 000 and something."""
    g = np.random.default_rng(0)
    level = 5000 + 400 * np.array([0.0, 1.0, 3.0, 0.5, 1.5, 0.2])
    drift = 15 * np.cumsum(g.normal(size=(rows, 6)), 0)
    return level + drift + 100 * g.normal(size=(rows, 6))


def raced(folder, rewards, *arguments):
    """What a race on these rewards says, its advice, and its page; without rewards, on a simulation."""
    folder.mkdir(exist_ok=True)
    data = [] if rewards is None else ["--data", folder / "past.csv"]
    if rewards is not None:
        names = [f"shop {n}" for n in range(rewards.shape[1])]
        pd.DataFrame(rewards, columns=names).to_csv(folder / "past.csv", index=False)
    output = call("race", *data, *arguments, "--out", folder / "out").output
    advice = json.loads((folder / "out" / "run.json").read_text())["advice"]
    return output, advice, (folder / "out" / "report.html").read_text()


def test_a_planted_winner_is_advised_and_its_lines_work(tmp_path):
    output, advice, page = raced(tmp_path, shops(500), "--policies", GOOD_AND_BAD, *OPTIONS)
    assert "Take gp_ucb: over 8 plays from different starts of the record, 50 rows each, it lost" in output
    assert "less than sw_gp_ucb (90 % interval:" in output
    assert "It is surely the best of the 2: confidence above 99 %." in output
    assert (advice["verdict"], advice["policy"], advice["next"]) == ("sure", "gp_ucb", "sw_gp_ucb")
    assert advice["less"][1] > 0
    assert advice["python"] in output
    assert "width=1" in advice["python"]
    live = {"reward": 6200.0}
    exec(advice["python"], live)
    assert live["arm"].startswith("shop ")
    assert live["live"].open == ()
    assert "Take gp_ucb: over 8 plays from different starts" in page
    assert re.search(r"wrote .*report\.html", output, re.DOTALL)


@FEW_ROWS
@pytest.mark.parametrize(("rows", "played"), [(50, 40), (250, 200)])
def test_a_short_record_is_said_to_be_short(tmp_path, rows, played):
    output, advice, page = raced(tmp_path, shops(rows), "--policies", GOOD_AND_BAD, *OPTIONS)
    assert f"The record is too short to tell which policy is best: {played} rows were played" in output
    assert "at least 5 stretches of 50 are needed" in output
    assert "gp_ucb lost least, which may be chance." in output
    assert advice["python"] is None
    assert "Too short to tell" in page


@FEW_ROWS
@pytest.mark.usefixtures("without_a_page")
def test_of_a_short_record_the_earnings_told_are_of_the_policy_that_lost_least(tmp_path):
    """Another policy leads in the short plays: a window costs little there, and more in a play through all rows."""
    g = np.random.default_rng(0)
    rewards = np.repeat([[0.0, 1.0, 0.2], [0.0, 0.9, 2.0]], [150, 100], 0) + 0.1 * g.normal(size=(250, 3))
    asked = ["--policies", "ucb1,sliding_window_ucb", "--option", "sliding_window_ucb.window=20", *GIVEN]
    output, advice, _ = raced(tmp_path, rewards, *asked)
    assert (advice["verdict"], advice["policy"]) == ("short", "sliding_window_ucb")
    assert "ucb1 lost least, which may be chance.\nucb1 earned a reward of" in output


@pytest.mark.usefixtures("without_a_page")
def test_replicates_of_a_simulation_are_compared(tmp_path):
    small = ["--problem", "gp", "--horizon", 60, "--option", "num_arms=20", "--policies", GOOD_AND_BAD]
    output, advice, _ = raced(tmp_path, None, *small, *OPTIONS[:4], "--replicates", 8)
    assert "Take gp_ucb: over 8 replicates, it lost" in output
    assert advice["python"] is None
    assert advice["units"] == 8
    output, _, _ = raced(tmp_path / "few", None, *small, *OPTIONS[:4], "--replicates", 3)
    assert "3 replicates are too few to tell which policy is best" in output


@pytest.mark.parametrize("policies", ["gp_ucb", "gp_ucb,random"])
def test_one_policy_alone_needs_no_advice(tmp_path, policies):
    small = ["--problem", "gp", "--horizon", 10, "--option", "num_arms=5", "--policies", policies]
    _, advice, page = raced(tmp_path, None, *small)
    assert advice is None
    assert page


@FEW_ROWS
@pytest.mark.usefixtures("without_a_page")
def test_policies_no_better_than_chance_are_said_to_be(tmp_path):
    """Rewards without any memory: nothing can be learned."""
    rewards = np.random.default_rng(1).normal(size=(500, 6))
    output, advice, _ = raced(tmp_path, rewards, "--policies", f"auto,{GOOD_AND_BAD}", *OPTIONS)
    assert "None of the policies is surely better than drawing arms at random" in output
    assert advice["verdict"] == "random"
    assert advice["python"] is None
    # What is earned is of the long play, of which the best of the starts says nothing.
    assert "auto earned a reward of" in output


@pytest.mark.slow
def test_a_tie_is_auto_and_nobody_who_was_stuck(tmp_path):
    """Five products that are worth more or less from one day to the next, three times each in the record."""
    g = np.random.default_rng(51)
    worth = np.zeros((400, 5))
    for n in range(5):
        changes = np.sort(g.choice(400, 3, replace=False))
        worth[:, n] = g.uniform(0, 1, 4)[np.searchsorted(changes, np.arange(400))]
    rewards = worth + 0.2 * g.normal(size=worth.shape)
    policies = ["--policies", "igp_ucb,et_gp_ucb,auto,random", "--replicates", 1]
    output, advice, page = raced(tmp_path, rewards, *policies)
    assert "No policy is surely the best: igp_ucb, et_gp_ucb and auto cannot be told apart." in output
    assert (advice["verdict"], advice["policy"], advice["taken"]) == ("tie", "igp_ucb", "auto")
    assert (
        "Do not take igp_ucb: played once through all 320 rows, it pulled only 'shop 1' from step" in output
    )
    assert "lost more than twice what auto did." in output
    assert "Of these, take auto, which needs the least prior knowledge." in output
    assert 'recipes.build("auto"' in advice["python"]
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    where = advice["stuck"]["igp_ucb"]
    pulled = run["results"]["igp_ucb"]["arms"][0][where["first"] - 1 : where["last"]]
    assert set(pulled) == {where["arm"]} == {1}
    for name in ("auto", "et_gp_ucb", "igp_ucb"):
        assert f"{name}: the stronger the blue, the more often" in page


def test_where_nothing_could_be_lost_nobody_lost_least(tmp_path):
    rewards = np.vstack([np.random.default_rng(0).normal(size=(30, 3)), np.ones((120, 3))])
    for horizon in (120, 40):  # some starts, and none
        asked = ["--horizon", horizon, "--policies", "ucb1,exp3_s", *GIVEN, "--overwrite"]
        output, advice, page = raced(tmp_path, rewards, *asked)
        assert "Nothing could be lost" in output
        assert "lost least" not in output
        assert advice["sentences"][0].startswith("Nothing could be lost")
        assert "100 %</td>" not in page


@pytest.mark.parametrize("unit", [1e-30, 1e-3, 1e30])
def test_regret_is_readable_in_any_unit(tmp_path, unit):
    rewards = unit * np.random.default_rng(0).normal(size=(50, 3))
    output, _, page = raced(tmp_path, rewards, "--policies", "ucb1,random", *GIVEN, "--replicates", "1")
    lost = float((rewards[10:].max(1) - rewards[10:].mean(1)).sum())
    assert f"{lost:.4g}" in output
    assert f"{lost:.4g}" in page


@pytest.mark.usefixtures("without_a_page")
def test_all_rows_of_a_record_are_played_and_how_long_that_takes_is_said_beforehand(tmp_path):
    asked = ["--policies", "ucb1,exp3_s", "--replicates", 1, *GIVEN]
    output, _, _ = raced(tmp_path, shops(1300), *asked)
    assert "260 rows learned from, 1040 played\n" in output
    assert "replay: 1040 steps, 1 replicate" in output
    plays = "1040 steps of 2 policies, each once through and once from 10 starts"
    said = re.search(rf"{plays}: about [\d.]+ (second|minute)s?; --horizon sets fewer steps", output)
    assert output.index(said[0]) < output.index("regret to")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["horizon"] == 1040
    output, _, _ = raced(tmp_path / "few", shops(1300), *asked, "--horizon", 100)
    assert "260 rows learned from, 100 played, 940 left out by the horizon" in output
    assert "--horizon sets fewer steps" not in output

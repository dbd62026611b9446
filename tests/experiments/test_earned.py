"""What was earned is counted in the user's units, and what was attainable has no luck in it."""

import json
import math
import re
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from bandits_torch import make, recipes
from bandits_torch.experiments import race, random_regret
from bandits_torch.experiments.earned import Earned, earned
from bandits_torch.experiments.report import earned_table, results_table
from bandits_torch.problems import Replay
from bandits_torch.problems.smoothing import best_smoothed, others_smoothed
from tests.cli.shell import call


@pytest.mark.parametrize("bandwidth", [0.3, 4.0, 50.0, math.inf])
def test_smoothing_is_a_weighted_mean_of_the_other_rows(bandwidth):
    g = np.random.default_rng(0)
    rewards, times = g.standard_normal((60, 3)), np.cumsum(g.exponential(size=60))
    rewards[g.random(rewards.shape) < 0.3] = np.nan
    found = others_smoothed(rewards, times, bandwidth)
    for t in range(60):
        for n in range(3):
            others = [s for s in range(60) if s != t and not np.isnan(rewards[s, n])]
            weights = np.exp(-np.abs(times[others] - times[t]) / bandwidth)
            assert found[t, n] == pytest.approx(weights @ rewards[others, n] / weights.sum(), rel=1e-6)


def test_the_bandwidth_follows_how_fast_arms_change():
    g = np.random.default_rng(1)
    t = np.arange(400.0)
    still = np.arange(4) + 3 * g.standard_normal((400, 4))
    swinging = 5 * np.sin(2 * np.pi * t[:, None] / 40 + np.arange(4)) + g.standard_normal((400, 4))
    level = 50 * np.sin(t / 3)[:, None]  # common to all arms: which is the best does not depend on it
    assert best_smoothed(still + level, t)[2] > 50
    assert 1 <= best_smoothed(swinging + level, t)[2] <= 8


def played(rewards, name="random", seed=0):
    problem = Replay(torch.from_numpy(rewards), noise_fraction=0.5, forgetting_rate=0.1)
    policy = recipes.build(name, problem, replicates=1, horizon=problem.horizon, seed=seed)
    histories = race({name: policy}, problem, problem.horizon)
    return earned(problem, histories, random_regret(problem, problem.horizon)), problem, histories


def test_what_is_attainable_does_not_depend_on_the_level_of_rewards():
    g = np.random.default_rng(2)
    times = np.arange(300.0)
    rewards = 3 * np.sin(times[:, None] / 20 + np.arange(4)) + g.standard_normal((300, 4))
    worth, arm, bandwidth = best_smoothed(rewards, times)
    raised, same, again = best_smoothed(rewards + 1e9, times)
    np.testing.assert_allclose(raised - 1e9, worth, atol=1e-4)
    assert (same == arm).all()
    assert again == bandwidth


def test_no_policy_is_said_to_have_got_more_than_could_be_gained():
    found = Earned(9, "reward", {"a": 7.0}, {"a": None}, 1.0, None, 5.0, 2.0, 9.0, True)
    assert found.gain(7.0) == 1.5
    assert found.sentence("a").endswith("So a got 100 % of what could be gained.")
    assert (found.share(2.0), found.share(0.0)) == ("25 %", "-25 %")


def test_totals_far_from_0_are_told_with_the_digits_in_which_they_differ():
    """To five digits and in % all were the same."""
    policies = {"sliding_window_ucb": 2.4e8 + 17, "ucb1": 2.4e8 + 9}
    found = Earned(
        240,
        "reward",
        policies,
        {},
        2.4e8,
        ("a name that is rather long", 2.4e8 + 20),
        2.4e8 + 25,
        2.0,
        3e8,
        True,
    )
    assert [found.total(total) for total in policies.values()] == ["240 000 017", "240 000 009"]
    assert [found.above_random(total) for total in policies.values()] == ["+17", "+9"]
    assert found.a_step(policies["ucb1"]) == "1 000 000.04"


def test_tables_of_80_columns_hold_every_digit_and_policy():
    policies = {"sliding_window_ucb": 1_154_366_129.0}
    found = Earned(
        240, "conversions", policies, {}, 9e8, ("a name that is rather long", 1e9), 1e9, 2.0, 3e9, True
    )
    history = SimpleNamespace(
        mean_cumulative_regret=170_714_366.0, standard_error=887_432.5, ms_per_step=100.0
    )
    random = torch.full((1, 2), 1.8e8)
    told = StringIO()
    console = Console(file=told, width=80)
    console.print(earned_table("", found))
    console.print(results_table("", {"sliding_window_ucb": history}, random, 170_928.34))
    text = told.getvalue()
    assert "…" not in text
    assert text.count("sliding_window_ucb") == 2
    assert all(
        number in text for number in ("1 154 366 129", "4 809 859", "170 714 366", "887 432", "360 000 000")
    )


def test_one_row_of_a_table_tells_no_interval():
    table = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    problem = Replay(table, noise_fraction=0.5, forgetting_rate=0.1, horizon=1)
    histories = race({"random": recipes.build("random", problem, replicates=1, horizon=1)}, problem, 1)
    assert earned(problem, histories, random_regret(problem, 1)).more == {"random": None}


def test_in_noise_alone_nothing_is_attainable_and_the_interval_covers_it():
    g, beyond, lucky, covered = np.random.default_rng(2), [], [], 0
    for k in range(100):
        found, _, _ = played((g.random((150, 5)) < 0.3) * 1.0, seed=k)
        beyond.append(found.attainable - found.random)
        lucky.append(found.best_arm[1] - found.random)
        low, high = found.more["random"]
        covered += low <= 0 <= high
        assert found.maximum > 1.5 * found.random
    assert 0 <= np.mean(beyond) < 0.5 * np.mean(lucky)
    assert 83 <= covered <= 96


def test_intervals_of_rare_conversions_hold_though_a_policy_may_have_none():
    g, covered, below = np.random.default_rng(3), 0, 0
    for k in range(100):
        rewards = (g.random((150, 5)) < 0.015) * 1.0
        rewards[0, 0] = 1.0  # in the rows that are not played: rewards must vary there
        low, high = played(rewards, seed=k)[0].more["random"]
        covered += low <= 0 <= high
        below += high < 0
    assert covered >= 87
    assert below <= 10


def test_two_best_arms_that_are_as_good_to_the_last_reward_are_worth_what_they_pay():
    """Of these the other rows name at each row the one that does not pay then."""
    g = np.random.default_rng(3)
    rewards = (g.random((400, 3)) < [0.5, 0.5, 0.2]) * 1.0
    rewards[:, 1] = g.permutation(rewards[:, 0])
    assert best_smoothed(rewards, np.arange(400.0))[0].sum() == pytest.approx(rewards[:, 0].sum(), rel=0.02)


def test_what_is_missing_is_drawn_at_random_by_a_single_arm():
    rewards = np.array([[1.0, 5.0, 3.0]] * 4 + [[1.0, np.nan, 3.0]] * 4 + [[1.0, 5.0, 3.0]] * 2)
    rewards[:2] += [[0.0, 1.0, 2.0], [2.0, 0.0, 1.0]]
    found, problem, histories = played(rewards)
    assert problem.table.shape == (8, 3)
    assert found.random == pytest.approx(2 * 3 + 4 * 2 + 2 * 3)
    assert found.best_arm == ("1", pytest.approx(4 * 5 + 4 * 2))  # the third arm: 8 x 3
    assert found.policies["random"] == pytest.approx(float(histories["random"].rewards.sum()))
    assert found.maximum == pytest.approx(4 * 5 + 4 * 3)
    assert found.noun == "sum"
    assert found.sentence("random").startswith(
        f"random earned a sum of {found.policies['random']:.0f} in 8 steps"
    )


def test_replicates_of_one_function_have_one_best_arm():
    problem = make("hartmann3", num_arms=9, replicates=2)
    policy = recipes.build("random", problem, replicates=2, horizon=5)
    found = earned(problem, race({"random": policy}, problem, 5), random_regret(problem, 5))
    best = problem.functions[0].argmax()
    assert found.best_arm == (str(int(best)), pytest.approx(5 * float(problem.functions[0, best])))


def test_of_a_simulation_the_best_arm_of_every_step_is_known():
    problem = make("switching", horizon=40, replicates=3, num_arms=8)
    policies = {"gp_ucb": recipes.build("gp_ucb", problem, replicates=3, horizon=40)}
    histories = race(policies, problem, 40)
    random = random_regret(problem, 40)
    found = earned(problem, histories, random)
    assert found.attainable == found.maximum == pytest.approx(float(histories["gp_ucb"].best.sum(1).mean()))
    assert found.random == pytest.approx(found.maximum - float(random.sum(1).mean()))
    assert found.about_regret() == []
    assert found.record()["smoothing"] is None


@pytest.mark.parametrize("replicates", [2, 3])
def test_intervals_of_few_replicates_hold_what_playing_at_random_gains(replicates):
    held, ahead = [], []
    for seed in range(100):
        problem = make("switching", horizon=10, replicates=replicates, num_arms=5, seed=seed)
        settings = {"replicates": replicates, "horizon": 10, "seed": seed, "epsilon": 1.0}
        policy = recipes.build("epsilon_greedy", problem, **settings)
        histories = race({"draws": policy}, problem, 10)
        found = earned(problem, histories, random_regret(problem, 10))
        low, high = found.more["draws"]
        held.append(low <= 0 <= high)
        ahead.append(bool(found.ahead()))
    assert np.mean(held) >= 0.84
    assert np.mean(ahead) <= 0.1


def test_an_arm_far_ahead_of_all_others_loses_nothing_and_not_minus_nothing():
    noise, t = np.random.default_rng(0).standard_normal((200, 2)), np.arange(200.0)[:, None]
    found = played(noise + [0.0, 20.0] + 5 * np.sin(t / 10 + np.arange(2)))[0]
    assert found.attainable > found.maximum  # an estimate, and no other arm is ever the largest
    assert "loses 0 % of what random play loses" in found.about_regret()[0]


def test_arms_whose_rewards_cancel_earn_nothing_and_not_a_rounding_error_at_random():
    found = played(np.cos(2 * np.pi * (np.arange(100)[:, None] / 50 + np.arange(12) / 12)))[0]
    assert found.random == 0.0
    assert "Drawing arms at random earned 0 (" in found.sentence("random")


def test_six_advertisements_are_told_in_conversions(tmp_path):
    """Regret to the noisy maximum says 92 % of random where 27 % more was earned."""
    g, t = np.random.default_rng(1), np.arange(1000)
    chance = 0.12 + 0.1 * np.cos(2 * np.pi * (t[:, None] / 1200 + np.arange(6) / 6))
    clicks = (g.random(chance.shape) < chance).astype(int)
    pd.DataFrame(clicks, columns=[f"ad {n}" for n in range(1, 7)]).to_csv(tmp_path / "ads.csv", index=False)
    asked = ["--policies", "discounted_ts,ucb1,random", "--replicates", "1", "--out", str(tmp_path / "out")]
    result = call("race", "--data", tmp_path / "ads.csv", *asked)
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    told = run["earned"]
    played, best = clicks[200:], chance[200:].argmax(1)
    arms = np.array(run["results"]["discounted_ts"]["arms"][0])
    mine, random = int(played[range(800), arms].sum()), played.mean(1).sum()
    true_best = int(played[range(800), best].sum())
    assert mine > 1.2 * random
    assert told["policies"]["discounted_ts"] == mine
    assert abs(told["attainable"] - true_best) < 0.15 * true_best
    assert run["results"]["discounted_ts"]["mean_cumulative_regret"] > 0.9 * run["references"]["random"]
    above = f"{100 * (mine / random - 1):+.0f} %"
    assert re.search(rf"discounted_ts +│ +{mine} .*{re.escape(above)}", result.output)
    assert "regret to" in result.output
    assert "noisy" in result.output
    assert f"discounted_ts earned {mine} conversions in 800 steps" in result.output
    assert f"Drawing arms at random earned {random:.0f} ({above}; 90 % interval" in result.output
    assert "no policy is surely the best" not in result.output.lower()
    assert run["advice"]["taken"] == "discounted_ts"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "regret to the largest rewards, noise included" in page
    assert f"discounted_ts earned {mine} conversions" in page

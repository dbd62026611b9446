"""A diagnosis says what was put into a table, and what is unknown."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread

from bandits_torch import diagnose
from bandits_torch.experiments.comparison import policies_for, unseen_cycles
from bandits_torch.experiments.plots.diagnosis import plot_diagnosis
from bandits_torch.problems.diagnosis import _noise
from bandits_torch.problems.periods import Period
from bandits_torch.problems.replay import Replay, replay
from bandits_torch.problems.tables import RewardTable, read_table
from benchmarks.diagnosis import sharing
from tests.cli.shell import call


@pytest.mark.parametrize(
    ("rewards", "values"),
    [([[0.0, 1.0]], "0/1"), ([[0.0, 3.0]], "counts"), ([[0.5, 1.0]], "numbers"), ([[-1.0, 2.0]], "numbers")],
)
def test_kinds_of_values_in_a_record_too_short_for_more(rewards, values):
    found = diagnose(torch.tensor(rewards * 10, dtype=torch.float64))
    assert found.values == values
    assert found.noise is None
    assert "unknown" in str(found)


def test_a_few_missing_days_of_three_years_are_not_zero_percent():
    days = torch.arange(1096, dtype=torch.float64)
    days = days[days % 365 != 100]
    table = RewardTable(torch.rand(len(days), 2).double(), days)
    assert "irregular: 0.3% of the gaps" in str(diagnose(table))


@pytest.mark.parametrize(
    ("level", "scale", "told"), [(1e6, 0.1, r"1 000 000\.\d\d"), (3e6, 1e6, r"\d \d{3} \d{3}")]
)
def test_what_is_earned_is_told_in_full_where_four_digits_tell_nothing(level, scale, told):
    noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    said = str(diagnose(level + scale * (noise + torch.tensor([0.0, 1.0, 3.0]))))
    assert len(set(re.findall(rf"{told}(?=\d* a row|\d*[.:])", said))) >= 2
    assert "e+0" not in said


def test_the_interval_of_noise_covers_it_where_rows_are_few():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        _, (low, high) = _noise(generator.standard_normal((45, 1)), 0.0, 0.0)
        covered += low <= 1.0 <= high
    assert 860 <= covered <= 940


def test_the_interval_of_noise_is_in_the_unit_of_rewards_however_large():
    table = np.random.default_rng(0).standard_normal((120, 3))
    for unit in (1e-100, 1e130):
        told = np.array(_noise(unit * table, 0.0, 0.0)[1]) / unit
        np.testing.assert_allclose(told, _noise(table, 0.0, 0.0)[1], rtol=1e-9)


def test_noise_is_told_of_a_record_with_an_outage_or_of_rare_rewards():
    generator = np.random.default_rng(33)
    table = 2.0 * generator.standard_normal((400, 3))
    table[100:160] = np.nan
    found = diagnose(torch.from_numpy(table))
    low, high = found.noise_interval
    assert low < 2.0 < high < 2.3
    assert found.noise == pytest.approx(2.0, rel=0.1)
    rare = (generator.random((400, 3)) < 0.01).astype(float)
    low, high = diagnose(torch.from_numpy(rare)).noise_interval
    assert 0.05 < low < 0.01**0.5 < high < 0.2
    table[::2] = np.nan
    said = str(diagnose(torch.from_numpy(table)))
    assert "Noise: unknown; 40 rows are needed where an arm has a reward, and also before and after." in said
    assert "Rewards of two arms have a mean correlation of" in said


def test_a_jump_between_times_in_milliseconds_is_told_to_the_millisecond():
    g = np.random.default_rng(34)
    rewards = g.standard_normal((200, 2)) + 8 * (np.arange(200) >= 100)[:, None]
    times = 1783933200000 + 7.0 * torch.arange(200).double()
    said = str(diagnose(RewardTable(torch.from_numpy(rewards), times)))
    assert "between time 1783933200693 and time 1783933200700" in said


def test_a_jump_within_a_second_of_dates_is_told_to_the_fraction():
    generator = np.random.default_rng(4)
    rewards = generator.standard_normal((300, 2)) + 9.0 * (np.arange(300) >= 150)[:, None]
    times = 1.7e9 + 0.004 * np.arange(300)
    table = RewardTable(torch.tensor(rewards), torch.tensor(times), in_seconds=True, dated=True)
    assert diagnose(table).jump_times == (("2023-11-14 22:13:20.596", "2023-11-14 22:13:20.6"),)


def test_durations_are_told_and_drawn_as_durations(tmp_path):
    rewards = np.random.default_rng(4).standard_normal((60, 2)) + 8.0 * (np.arange(60) >= 30)[:, None]
    times = pd.to_timedelta(1.5 * np.arange(60) - 10, unit="h")
    pd.DataFrame({"time": times, "a": rewards[:, 0], "b": rewards[:, 1]}).to_parquet(
        tmp_path / "table.parquet"
    )
    table = read_table(tmp_path / "table.parquet")
    table = Replay(table, forgetting_rate=0.1, noise_fraction=0.1).record()
    found = diagnose(table)
    assert found.jump_times == (("1 day, 9:30:00", "1 day, 11:00:00"),)
    ax = plot_diagnosis(table, found).axes[0]
    assert ax.get_xlabel() == "time (days)"
    assert ax.get_lines()[0].get_xdata()[0] == pytest.approx(-10 / 24)


def test_arms_without_rewards_do_not_affect_the_noise():
    generator = np.random.default_rng(3)
    levels = generator.standard_normal((400, 3)).cumsum(0)
    levels += 20 * np.sin(2 * np.pi * np.arange(400) / 25)[:, None]
    rewards = torch.tensor(levels + generator.standard_normal((400, 3)))
    empty = torch.full((400, 9), np.nan).double()
    expected = diagnose(rewards)
    assert len(expected.periods) == 1
    assert diagnose(torch.cat([rewards, empty], 1)).noise == pytest.approx(expected.noise)


def test_look_draws_what_it_found(tmp_path):
    generator = np.random.default_rng(5)
    rewards = generator.standard_normal((300, 8))
    rewards[150:] += 3 * generator.standard_normal(8)
    file, plot = tmp_path / "my.csv", tmp_path / "my.png"
    np.savetxt(file, rewards, delimiter=",", header=",".join("abcdefgh"), comments="")
    result = call("look", file, "--plot", plot)
    assert "Jumps: between row 150 and row 151" in result.output
    assert "300 rows, 8 arms, rewards are numbers" in result.output
    assert json.dumps(diagnose(torch.from_numpy(rewards)).to_dict())
    assert imread(plot).shape[:2] == (750, 1200)
    result = call("look", file, "--plot", "my.doc", code=2)
    assert result.output == "error: plot must be a file ending in .png, .svg or .pdf, got 'my.doc'\n"


def test_a_table_brings_in_the_policies_that_fit_it():
    generator = np.random.default_rng(6)
    clicks = diagnose(torch.from_numpy((generator.random((200, 4)) < 0.2) * 1.0))
    names, why = policies_for(clicks)
    assert {"discounted_ts", "glr_kl_ucb", "auto", "random"} <= {*names}
    assert "0/1" in why
    assert "log_odds_ucb" in names
    counts = diagnose((torch.arange(800).reshape(200, 4) % 7).double())
    assert "log_odds_ucb" not in policies_for(counts)[0]
    alone = diagnose(torch.from_numpy(np.cumsum(generator.standard_normal((200, 4)), 0)))
    assert (alone.shared, "discounted_ts" in policies_for(alone)[0]) == (False, True)
    common = generator.standard_normal((200, 1)) + 0.3 * generator.standard_normal((200, 4))
    together = diagnose(torch.from_numpy(common))
    assert (together.shared, "discounted_ts" in policies_for(together)[0]) == (True, False)


@pytest.mark.slow
def test_a_race_of_zeros_and_ones_races_what_fits_unless_an_option_is_for_a_policy(tmp_path):
    clicks = (np.random.default_rng(7).random((150, 3)) < 0.4).astype(int)
    np.savetxt(tmp_path / "c.csv", clicks, fmt="%d", delimiter=",", header="a,b,c", comments="")
    asked = ["race", "--data", str(tmp_path / "c.csv"), "--replicates", "1", "--horizon", "10"]
    asked += ["--option", "problem.noise_fraction=0.5", "--option", "problem.forgetting_rate=0.1"]
    for option, fits in (([], True), (["--option", "r_gp_ucb.interval=9"], False)):
        out = tmp_path / f"out{fits}"
        result = call(*asked, *option, "--out", out)
        assert ("Because rewards are 0/1" in result.output) == fits
        raced = list(json.loads((out / "run.json").read_text())["results"])
        assert ("glr_kl_ucb" in raced, "r_gp_ucb" in raced) == (fits, not fits)


def test_an_arm_seen_only_when_all_was_good_is_not_the_best():
    generator = np.random.default_rng(14)
    rewards = (
        10 * (np.arange(300)[:, None] % 10 == 0) + 0.1 * generator.standard_normal((300, 3)) + [0, 1, 0.5]
    )
    rewards[np.arange(300) % 10 != 0, 2] = np.nan  # in good rows alone
    found = diagnose(torch.from_numpy(rewards))
    others = np.where(np.isnan(rewards), np.nanmean(rewards, 1, keepdims=True), rewards)
    assert found.best_arm == ("1", pytest.approx(others[:, 1].mean()))
    assert found.best_fixed == pytest.approx(found.best_arm[1])
    assert "1, 1.99 (drawn at random where it has no reward)" in str(found)


def test_what_arms_share_is_told_though_no_row_is_whole():
    generator = np.random.default_rng(15)
    common = generator.standard_normal((400, 1))
    rewards = common + 0.5 * generator.standard_normal((400, 6))
    rewards[generator.random(rewards.shape) < 0.3] = np.nan
    rewards[:, 3] = np.nan
    found = diagnose(torch.from_numpy(rewards))
    assert found.correlation == pytest.approx(0.8, abs=0.06)  # 1 / (1 + .25)
    assert found.shared is True
    rewards -= np.where(np.isnan(rewards), 0, common)
    alone = diagnose(torch.from_numpy(rewards))
    assert abs(alone.correlation) < 0.06
    assert alone.shared is False


@pytest.mark.parametrize("kind", [kind for kind in sharing.KINDS if kind.startswith("each arm")])
def test_arms_that_move_each_by_itself_share_nothing(kind):
    """Two tests at the level .01: more than 1 of 9 has a chance of .013."""
    assert sum(sharing.said(kind, 8, 2000 + k) for k in range(9)) <= 1


@pytest.mark.parametrize("kind", ["one random walk", "one trend, by 3", "one jump, by 1.5"])
def test_arms_that_move_together_share_it(kind):
    assert all(sharing.said(kind, 8, 2000 + k) for k in range(3))


@pytest.mark.parametrize("sizes", [[1.0, 1.0, 0.5], [1.0, 0.0, 0.0]], ids=["common", "of one arm"])
@pytest.mark.parametrize("hours", [2000, 8760])
def test_a_week_in_months_of_hours_is_no_drift(hours, sizes):
    drifts = 0
    for seed in range(8):
        wave = 3 * np.sin(2 * np.pi * np.arange(hours) / 168 + seed)
        noise = np.random.default_rng(seed).normal(0, 0.3, (hours, 3))
        drifts += diagnose(torch.from_numpy(wave[:, None] * sizes + noise)).drift > 0
    assert drifts <= 1  # of 8 at 1 %: two or more have probability 0.003


def test_parts_of_a_cycle_are_named_as_that_and_few_of_single_arms():
    table = RewardTable(torch.rand(60, 2).double(), 3600.0 * torch.arange(60).double(), in_seconds=True)
    day, part, other = Period(86400.0, 1e-20), Period(9601.0, 1e-5), Period(10100.0, 1e-5)
    own = {f"arm {n}": (part, other)[n % 2] for n in range(7)}
    said = str(replace(diagnose(table), periods=(day, part), own_periods=own)).splitlines()
    assert [line for line in said if line.startswith("Cycles")] == [
        "Cycles: 1 day (p < 1e-16); 2.667 hours (p = 1e-05, 1/9 of 1 day); 2.667 hours in arm 0 alone, 1/9 of 1 day; "
        "2.806 hours in arm 1 alone; 2.667 hours in arm 2 alone, 1/9 of 1 day; 2.806 hours in arm 3 alone; cycles of 3 "
        "more arms alone. A period of 1/n of a cycle describes the shape of that cycle, such as edges."
    ]


def test_one_more_cycle_of_a_single_arm_is_written_in_the_singular():
    table = RewardTable(torch.rand(60, 2).double())
    own = {f"arm {n}": Period(10.0, 1e-5) for n in range(5)}
    said = str(replace(diagnose(table), periods=(), own_periods=own))
    assert "10 rows in arm 3 alone; a cycle of 1 more arm alone.\n" in said


def test_a_long_record_says_in_which_rows_there_is_no_cycle():
    """A day of 1440 rows for 14 days is not seen in the last 2048 rows."""
    generator, minutes = np.random.default_rng(35), torch.arange(20_000).double()
    rewards = torch.sin(2 * torch.pi * minutes / 1440)[:, None] + torch.from_numpy(
        generator.standard_normal((20_000, 2))
    )
    said = str(diagnose(RewardTable(rewards, 60 * minutes, in_seconds=True)))
    assert (
        "Cycles: none that drift does not explain in the last 2048 rows (1.422 days); earlier rows are not searched."
        in said
    )
    assert "none that drift does not explain." in str(diagnose(rewards[:2048]))
    assert "in the last 2048 rows; earlier" in str(diagnose(rewards))


def test_one_row_is_in_the_singular():
    assert str(diagnose(torch.ones(1, 2).double())).startswith("A full table: 1 row, 2 arms, rewards are")


def test_a_long_record_says_of_which_rows_the_gain_is():
    generator = np.random.default_rng(16)
    rewards = generator.standard_normal((10_500, 2)) + np.array([0.0, 1.0])
    said = str(diagnose(torch.from_numpy(rewards)))
    assert "In the last 10 000 rows, pulling in each row the arm that is best" in said
    assert "Pulling in each row the arm that is best" in str(diagnose(torch.from_numpy(rewards[:300])))


def test_a_race_says_which_cycle_its_past_rows_do_not_show(tmp_path):
    generator, t = np.random.default_rng(6), np.arange(400)
    rewards = 3 * np.sin(2 * np.pi * t[:, None] / 24) + generator.standard_normal((400, 3))
    file = tmp_path / "my.csv"
    np.savetxt(file, rewards, delimiter=",", header="a,b,c", comments="")
    found = diagnose(read_table(file))
    assert unseen_cycles(replay(file), found) == [
        "the rows that are not played show no cycle, so the cycle of 24 steps counts as change; --option "
        "problem.cycles=24 passes it to auto"
    ]
    told = replay(file, cycles=24)
    assert unseen_cycles(told, found) == []
    assert "cycles in the rows learned from: 24 steps; auto uses them" in told.summary()
    assert unseen_cycles(replay(file, warm_up=0.6), found) == []
    t = np.arange(744)
    tide = 3 * np.sin(2 * np.pi * t[:, None] / 24.84) + generator.standard_normal((744, 3))
    np.savetxt(file, tide, delimiter=",", header="a,b,c", comments="")
    (advice,) = unseen_cycles(replay(file, cycles=None), diagnose(read_table(file)))
    advised = float(re.search(r"cycles=([\d.]+)", advice)[1])
    assert 744 * abs(1 / advised - 1 / 24.84) < 0.02  # cycles that the phase is off at the end

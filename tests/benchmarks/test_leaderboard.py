"""The leaderboard: its ranks against slow twins, its environments, and a short run from command to page."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from bandits_torch import make, recipes, run
from bandits_torch.experiments import Block, ProblemSetting
from bandits_torch.experiments.engines import Failure
from bandits_torch.problems import Replay
from bandits_torch.recipes import build
from benchmarks.leaderboard import __main__ as command
from benchmarks.leaderboard import running, settings
from benchmarks.leaderboard.environments import Cached, Centred, Record
from benchmarks.leaderboard.page import mean_ranks, rank_intervals, ranking, regrets, shares, write_page
from benchmarks.options import chosen
from tests.reference import plain_ranks


def totals_of(values, environments, policies):
    of = environments, policies, range(values.shape[2])
    frame = pd.MultiIndex.from_product(of, names=["environment", "policy", "replicate"]).to_frame(index=False)
    return frame.assign(horizon=9, regret=values.ravel(), ms_per_step=1.0).sample(frac=1, random_state=0)


@pytest.fixture
def values():
    """Six environments, five policies, seven replicates; two policies are level on one environment."""
    random = np.random.default_rng(3)
    made = random.normal(10 + np.arange(5)[:, None], 4, size=(6, 5, 7))
    made[2, 1] = made[2, 3]
    return made


def test_mean_ranks_and_their_intervals_are_those_of_the_plain_twin(values):
    plain = np.array(plain_ranks.rank_intervals(values.tolist(), 3000))
    np.testing.assert_allclose(mean_ranks(values), plain_ranks.mean_ranks(values.tolist()), atol=1e-12)
    ours = rank_intervals(values, 3000)
    assert np.abs(ours - plain).max() < 0.2  # means of six ranks lie 1/6 apart, ties aside
    assert (ours[:, 0] < mean_ranks(values)).all()
    assert (ours[:, 1] > mean_ranks(values)).all()
    assert (np.diff(ours) > 0.8).any()


def test_a_policy_that_always_wins_has_no_interval(values):
    values[:, 2] -= 1000
    assert rank_intervals(values)[2].tolist() == [1, 1]


def test_replicates_are_drawn_together_for_all_policies():
    """Policy 1 is 1 worse on every replicate, whose levels lie far apart: it loses in every sample."""
    level = np.random.default_rng(0).normal(0, 100, size=(1, 1, 20))
    both = np.concatenate([level, level + 1], axis=1)
    assert rank_intervals(both).tolist() == [[1, 1], [2, 2]]


def test_regrets_of_environments_come_in_the_order_asked_for(values):
    environments, policies = list("abcdef"), ["random", "v", "w", "x", "y"]
    totals = totals_of(values, environments, policies)
    np.testing.assert_array_equal(regrets(totals, environments[::-1], policies[1:3]), values[::-1, 1:3])
    lost = totals[(totals["policy"] != "w") | (totals["environment"] != "c") | (totals["replicate"] != 4)]
    with pytest.raises(ValueError, match=r"missing some of \('c', 'w'\)"):
        regrets(lost, environments, policies)
    with pytest.raises(ValueError, match=r"missing some of \('c', 'w'\)"):
        regrets(totals[(totals["policy"] != "w") | (totals["environment"] != "c")], environments, policies)


def test_environments_may_differ_in_how_many_replicates_they_have(values):
    """The first three have four replicates, the others seven."""
    environments, policies = list("abcdef"), ["random", "v", "w", "x", "y"]
    totals = totals_of(values, environments, policies)
    totals = totals[(totals["replicate"] < 4) | totals["environment"].isin(["d", "e", "f"])]
    uneven = regrets(totals, environments, policies)
    assert [own.shape for own in uneven] == [(5, 4)] * 3 + [(5, 7)] * 3
    lists = [own.tolist() for own in uneven]
    np.testing.assert_allclose(mean_ranks(uneven), plain_ranks.mean_ranks(lists), rtol=0, atol=1e-12)
    plain = np.array(plain_ranks.rank_intervals(lists, 3000))
    assert np.abs(rank_intervals(uneven, 3000) - plain).max() < 0.2


def test_shares_are_of_randoms_mean():
    values = np.array([[[1.0, 3.0], [8.0, 8.0]], [[6.0, 6.0], [2.0, 4.0]]])
    assert shares(values, 1).tolist() == [[0.25, 1.0], [2.0, 1.0]]
    ranks = ranking(totals_of(values, ["a", "b"], ["x", "random"]), ["a", "b"], ["x", "random"])
    assert ranks.loc["x", "share"] == 1.125
    assert ranks["first"].tolist() == [1, 1]
    level = ranking(
        totals_of(values[:1].repeat(2, 1), ["a"], ["x", "y", "z", "random"]), ["a"], ["x", "y", "random"]
    )
    assert level["first"].to_dict() == {"x": 1, "y": 1, "random": 0}
    assert level["mean_rank"].to_dict() == {"x": 1.5, "y": 1.5, "random": 3}


def test_every_recipe_races_somewhere():
    raced = {setting.name for setting in (settings.POLICIES | settings.PRIOR_POLICIES).values()}
    assert raced == {name for name in recipes.RECIPES if recipes.registered(name).race}
    assert len(settings.RANKED) >= 10


@pytest.mark.parametrize("label", settings.POLICIES | settings.PRIOR_POLICIES)
def test_options_are_the_recipes_own(label):
    setting = (settings.POLICIES | settings.PRIOR_POLICIES)[label]
    assert set(setting.options) <= set(recipes.options_of(setting.name))


def table(rows=60, arms=4):
    random = np.random.default_rng(0)
    return torch.from_numpy(20 + np.arange(arms) + random.standard_normal((rows, arms)).cumsum(0) / 5)


def test_replicates_of_a_record_start_evenly_spread_and_know_the_second_moments():
    rewards, history = table(), table(40) + 1
    replay = Replay(rewards, history=history)
    record = Record(replay, 21, 4, 0, 4)
    assert record.starts.tolist() == [0, 13, 26, 39]
    mean, known = float(history.mean()), record.knowledge
    unscaled = replay.knowledge.kernel(replay.arms).to_dense() + torch.outer(
        history.mean(0) - mean, history.mean(0) - mean
    )
    scale = float(unscaled.diagonal().mean().sqrt())
    torch.testing.assert_close(known.kernel(record.arms).to_dense(), unscaled / scale**2)
    torch.testing.assert_close(record.expected_rewards(5)[2], (rewards[30] - mean) / scale)
    assert known.prior_mean == 0
    assert known.noise_variance == pytest.approx(replay.knowledge.noise_variance / scale**2)
    assert record.available(1) is None


def test_a_block_of_a_records_replicates_plays_their_starts():
    whole = Record(Replay(table()), 20, 4, 0, 4)
    part = Record(Replay(table()), 20, 4, 2, 2)
    assert torch.equal(part.expected_rewards(3), whole.expected_rewards(3)[2:])
    with pytest.raises(ValueError, match="replicates must be at most 2 of 4 starts"):
        Record(Replay(table()), 20, 4, 2, 3)
    with pytest.raises(ValueError, match=r"horizon must be an integer in 1, \.\.\., 48"):
        Record(Replay(table()), 49, 4, 0, 4)


def test_missing_rewards_of_a_record_are_masked_by_replicate():
    rewards = table()
    rewards[33, 2] = torch.nan
    record = Record(Replay(rewards, history=table(40)), 20, 3, 0, 3)  # starts 0, 20, 40
    assert record.available(14).tolist() == [[True] * 4, [True, True, False, True], [True] * 4]
    history = run(build("random", record, replicates=3, horizon=20), record, 20)
    assert bool((history.regret >= 0).all())


def test_centring_changes_the_rewards_by_one_number_and_no_regret():
    plain = make("moving-peaks", replicates=2, horizon=30, num_arms=16, period=10)
    centred = Centred(make("moving-peaks", replicates=2, horizon=30, num_arms=16, period=10))
    assert plain.knowledge.prior_mean != 0
    assert centred.knowledge.prior_mean == 0
    histories = [run(build("random", p, replicates=2, horizon=30), p, 30) for p in (plain, centred)]
    torch.testing.assert_close(histories[0].regret, histories[1].regret)
    shift = histories[0].rewards - histories[1].rewards
    torch.testing.assert_close(shift, torch.full_like(shift, plain.knowledge.prior_mean))
    assert centred.expected_rewards(1) is centred.expected_rewards(2)


def test_a_cached_setting_builds_a_problem_once_for_a_block():
    setting = Cached(ProblemSetting("gp", {"num_arms": 7}))
    again = Cached(ProblemSetting("gp", {"num_arms": 7}))
    assert setting(Block(2, 5)) is again(Block(2, 5))
    assert setting(Block(3, 5)) is not setting(Block(2, 5))
    assert setting(Block(2, 5)).num_arms == 7


def call(*arguments):
    return CliRunner().invoke(command.app, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture
def small(monkeypatch):
    """Two small environments, one of them in need of data that are not there."""
    monkeypatch.setattr(settings, "_MADE_UP", {"a": ProblemSetting("gp", {"num_arms": 6})})
    monkeypatch.setattr(settings, "RANKED", ("a", "far"))
    monkeypatch.setattr(settings, "DRAWN", ("a",))
    monkeypatch.setattr(settings, "NEED_DATA", ("far",))
    monkeypatch.setattr(command, "near_by", lambda: None)


def test_from_command_to_page_and_on_from_there(small, tmp_path, monkeypatch):
    asked = ["--fast", "--out", tmp_path, "--environments", "a,far,hills"]
    result = call(*asked, "--policies", "random,gp_ucb,pe_gp_ucb")
    assert result.exit_code == 0, result.output
    assert "far: skipped, no data" in result.output
    page = (tmp_path / "RESULTS.md").read_text()
    assert "* far: not played." in page
    assert "* `igp_ucb`: not played." in page
    assert page.count("| `gp_ucb` |") == 4  # ranking, regret, shares, candidate priors
    assert page.count("| `pe_gp_ucb` |") == 1
    assert {"ranks.png", "environments.png"} <= {path.name for path in tmp_path.iterdir()}
    totals = pd.read_csv(tmp_path / "totals.csv")
    assert list(totals.columns) == list(running.TOTALS)
    assert len(totals) == 2 * (3 + 2) + 3 * 3  # a second block where replicates are drawn and ranked
    assert sorted(totals.query("environment == 'a' and policy == 'random'")["replicate"]) == [0, 1, 2, 3, 4]

    refused = call(*asked, "--policies", "random,gp_ucb,igp_ucb")
    assert refused.exit_code == 2
    assert "--resume" in refused.output
    ran = []
    monkeypatch.setattr("bandits_torch.experiments.engines.play", lambda cell, threads: ran.append(cell))
    assert call(*asked, "--resume", "--policies", "random,gp_ucb").exit_code == 0
    assert ran == []
    assert (tmp_path / "RESULTS.md").read_text() == page
    monkeypatch.undo()


def test_a_cell_that_fails_is_named_and_the_page_written(small, tmp_path, monkeypatch):
    def play(cell, threads):
        return Failure("ValueError: no", "") if cell.policy == "gp_ucb" else cell.run()

    monkeypatch.setattr("bandits_torch.experiments.engines.play", play)
    result = call("--fast", "--out", tmp_path, "--environments", "a", "--policies", "random,gp_ucb")
    assert result.exit_code == 1
    assert "a, gp_ucb, replicates 0 to 2: ValueError: no" in result.output
    assert "* `gp_ucb`: not played." in (tmp_path / "RESULTS.md").read_text()


def test_rows_that_are_played_again_replace_the_old_ones(small, tmp_path):
    for horizon in (5, 8):
        todo = running.cells(["a"], ["random", "gp_ucb"], None, horizon, 2, 1)
        played = running.play(todo, tmp_path, tmp_path / "cells", False)
        assert [failure for _, failure in played] == [None] * 4
    tables = running.Tables(tmp_path)
    assert len(tables.totals) == 6
    assert set(tables.totals["horizon"]) == {8}
    assert tables.curves.groupby("policy")["step"].count().to_dict() == {"random": 8, "gp_ucb": 8}
    first = running.cells(["a"], ["random"], None, 6, 2)  # of its rows these two alone
    list(running.play(first, tmp_path, tmp_path / "cells", False))
    now = running.Tables(tmp_path).totals.query("policy == 'random'").set_index("replicate")["horizon"]
    assert now.to_dict() == {0: 6, 1: 6, 2: 8}
    assert list(now.index) == [0, 1, 2]


def test_replicates_of_the_second_block_are_those_of_one_large_block(small, tmp_path):
    for folder, sizes in (("two", (2, 3)), ("one", (5,))):
        todo = running.cells(["a"], ["gp_ts"], None, 12, *sizes)
        list(running.play(todo, tmp_path / folder, tmp_path / folder / "cells", False))
    two, one = (running.Tables(tmp_path / folder).totals["regret"] for folder in ("two", "one"))
    np.testing.assert_allclose(two, one, rtol=1e-9)
    assert two.nunique() == 5


def test_a_name_with_a_comma_can_be_said():
    known = ("auto", "auto, no kernel", "gp_ucb")
    said = {
        "gp_ucb,auto": ["gp_ucb", "auto"],
        "auto, no kernel": [known[1]],
        "gp_ucb; auto, no kernel": [*known[:0:-1]],
    }
    for text, names in said.items():
        assert chosen(text, known, "policies") == names


def test_an_empty_folder_has_a_page_that_says_so(tmp_path):
    write_page(tmp_path)
    assert "* stationary: not played." in (tmp_path / "RESULTS.md").read_text()


@pytest.mark.slow
def test_the_committed_page_is_what_the_program_writes_from_the_committed_tables(tmp_path):
    committed = command.HERE / "results"
    for name in ("totals.csv", "curves.csv"):
        shutil.copy(committed / name, tmp_path)
    write_page(tmp_path)
    text = (committed / "RESULTS.md").read_text(encoding="utf-8")
    written = (tmp_path / "RESULTS.md").read_text(encoding="utf-8").splitlines(keepends=True)
    # A recipe that came after the page was written has not been played: no more is to be said of it.
    new = [line for line in written if line.endswith(": not played.\n") and line not in text]
    assert "".join(line for line in written if line not in new) == text, (
        "run python -m benchmarks.leaderboard"
    )

"""The protocol of ``auto``: its environments, a short run from command to page, and the page that is committed."""

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bandits_torch.experiments.cells import Block
from benchmarks.auto import __main__ as command
from benchmarks.auto import environments, page, playing
from benchmarks.auto.records import FirmTable
from benchmarks.leaderboard import settings
from tests.reference.real_data import REAL, needs_data

RESULTS = Path(command.HERE) / "results"


def test_development_and_validation_share_the_leaderboard_s_environments():
    assert set(playing.DEVELOPMENT) | set(playing.VALIDATION) == set(settings.RANKED)
    assert not set(playing.DEVELOPMENT) & set(playing.VALIDATION)
    assert len(playing.DEVELOPMENT) == len(playing.VALIDATION)
    assert not set(playing.UNSEEN) & set(settings.RANKED)


@pytest.mark.parametrize("name", sorted(environments._MAKE))
def test_a_simulated_environment_s_replicate_is_the_same_alone(name):
    together = environments.Simulated(name)(Block(3, 60, 0, 7))
    alone = environments.Simulated(name)(Block(1, 60, 2, 7))
    for step in (1, 31, 60):
        rewards = together.expected_rewards(step)
        assert rewards.shape == (3, together.num_arms)
        torch.testing.assert_close(alone.expected_rewards(step)[0], rewards[2], rtol=0, atol=1e-12)
    assert not torch.equal(rewards[0], rewards[1])


def test_partial_switches_leave_most_arms_as_they_were():
    problem = environments.Simulated("partial-switches")(Block(4, 500, 0, 7))
    changed = (problem.expected_rewards(100) - problem.expected_rewards(101)).abs() > 0.05
    assert 0.05 < float(changed.double().mean()) < 0.6


def test_a_firm_s_table_is_what_it_says():
    problem = FirmTable(3)
    rows = torch.stack([problem.expected_rewards(step)[0] for step in range(1, problem.horizon + 1)])
    assert problem.num_arms == 40
    assert float(rows.nanmean()) > 1000  # thousands
    assert 0.01 < float(rows.isnan().double().mean()) < 0.05
    assert all(float(rows[:, arm].nan_to_num(5000.0).std()) == 0.0 for arm in (0, 1))
    gaps = torch.tensor([problem.time(step + 1) - problem.time(step) for step in range(1, problem.horizon)])
    assert float(gaps.std()) > 0.3 * float(gaps.mean())  # irregular
    noise = torch.stack([problem.table[step] - rows[step] for step in range(problem.horizon)])[:, 2:]
    share = float(noise[~noise.isnan()].var()) / float(rows[:, 2:][~rows[:, 2:].isnan()].var())
    assert 0.08 < share < 0.3


@pytest.mark.every(2)
@needs_data
@pytest.mark.parametrize("name", playing.UNSEEN)
def test_an_unseen_record_can_be_played(name):
    problem = playing.make_problem(name, Block(2, 20, 0, 0), REAL)
    assert problem.expected_rewards(1).shape == (2, problem.num_arms)
    assert problem.horizon == 20


def test_from_command_to_page(tmp_path):
    short = ["--horizon", "12", "--replicates", "2", "--out", str(tmp_path), "--data", str(REAL or tmp_path)]
    done = CliRunner().invoke(
        command.app, ["--environments", "heavy-tails,bernoulli", "--policies", "random;auto", *short]
    )
    assert done.exit_code == 0, done.output
    text = (tmp_path / "RESULTS.md").read_text()
    assert "heavy-tails" in text
    assert "bernoulli" in text


def test_the_committed_page_is_what_the_program_writes_from_the_committed_table(tmp_path):
    shutil.copy(RESULTS / "totals.csv", tmp_path)
    page.write_page(tmp_path)
    assert (tmp_path / "RESULTS.md").read_text() == (RESULTS / "RESULTS.md").read_text()

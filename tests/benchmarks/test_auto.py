"""The protocol of ``auto``: its environments, what it is told wrongly, and a short run from command to page."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from bandits_torch.experiments.engines import Block
from bandits_torch.problems import make
from benchmarks import options
from benchmarks.auto import __main__ as command
from benchmarks.auto import days, environments, limit, playing, weeks
from benchmarks.auto.environments import FirmTable
from benchmarks.leaderboard import __main__ as leaderboard
from benchmarks.leaderboard import settings
from benchmarks.speed import __main__ as speed
from tests.reference.real_data import REAL, needs_data

RESULTS = Path(command.__file__).parent / "results"


def test_development_and_validation_share_the_leaderboard_s_environments():
    assert set(playing.DEVELOPMENT) | set(playing.VALIDATION) == set(settings.RANKED)
    assert not set(playing.DEVELOPMENT) & set(playing.VALIDATION)
    assert len(playing.DEVELOPMENT) == len(playing.VALIDATION)
    assert not set(playing.UNSEEN) & set(settings.RANKED)


@pytest.mark.parametrize("name", sorted(environments.SIMULATED))
def test_a_simulated_environment_s_replicate_is_the_same_alone(name):
    together = environments.SIMULATED[name](Block(3, 60, 0, 7))
    alone = environments.SIMULATED[name](Block(1, 60, 2, 7))
    for step in (1, 31, 60):
        rewards = together.expected_rewards(step)
        assert rewards.shape == (3, together.num_arms)
        torch.testing.assert_close(alone.expected_rewards(step)[0], rewards[2], rtol=0, atol=1e-12)
    assert not torch.equal(rewards[0], rewards[1])


def test_partial_switches_leave_most_arms_as_they_were():
    problem = environments.SIMULATED["partial-switches"](Block(4, 500, 0, 7))
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


@pytest.mark.sampled(2)
@needs_data
@pytest.mark.parametrize("name", playing.UNSEEN)
def test_an_unseen_record_can_be_played(name):
    problem = playing.make_problem(name, Block(2, 20, 0, 0), REAL)
    assert problem.expected_rewards(1).shape == (2, problem.num_arms)
    assert problem.horizon == 20


def test_from_command_to_page(tmp_path):
    short = ["--horizon", "12", "--replicates", "2", "--out", str(tmp_path), "--data", str(REAL or tmp_path)]
    done = CliRunner().invoke(
        options.command(command.main),
        ["--environments", "heavy-tails,bernoulli", "--policies", "random;auto", *short],
    )
    assert done.exit_code == 0, done.output
    text = (tmp_path / "RESULTS.md").read_text()
    assert "heavy-tails" in text
    assert "bernoulli" in text


NAMES = (command, "--environments"), (command, "--policies"), (days, "--seeds"), (weeks, "--seeds")
NAMES += (
    (leaderboard, "--policies"),
    (leaderboard, "--environments"),
    (speed,),
    (speed, "igp_30000", "--device"),
)


@pytest.mark.parametrize(("program", "words"), [(program, words) for program, *words in NAMES])
def test_a_name_that_is_not_there_is_refused_before_anything_is_played(program, words, tmp_path):
    asked = [*words, "nonsense", "--out", str(tmp_path)]
    done = CliRunner().invoke(options.command(program.main), asked)
    assert done.exit_code == 2
    assert "nonsense" in done.output
    assert not list(tmp_path.iterdir())


def test_what_is_told_in_other_units_is_right_once_it_is_converted():
    problem = make("gp", num_arms=20)
    told = playing.MISTAKES["auto, rewards times 1 000 plus 5 000"](problem.knowledge)
    right = problem.knowledge
    covariance = told.kernel(problem.arms).to_dense() * 1000**2
    torch.testing.assert_close(covariance, right.kernel(problem.arms).to_dense())
    assert told.noise_variance * 1000**2 == pytest.approx(right.noise_variance)
    assert 1000 * told.prior_mean + 5000 == pytest.approx(right.prior_mean)


def test_a_mistake_is_made_in_a_copy():
    problem = make("gp", num_arms=20)
    before = float(problem.knowledge.kernel.lengthscale)
    told = playing.MISTAKES["auto, length-scale times 5"](problem.knowledge)
    assert float(told.kernel.lengthscale) == pytest.approx(5 * before)
    assert float(problem.knowledge.kernel.lengthscale) == before


def test_the_limit_is_the_least_of_all_settings(monkeypatch, tmp_path):
    monkeypatch.setattr(limit, "RATES", (0.0, 0.3))
    monkeypatch.setattr(limit, "WIDTHS", (0.5, 2.0))
    monkeypatch.setattr(limit, "TABLE", tmp_path / "limit.csv")
    monkeypatch.setattr(limit.settings, "HORIZON", 12)
    for _ in range(2):  # what is played again takes the place of what was there
        limit.main(["stationary"])
    rows = pd.read_csv(tmp_path / "limit.csv")
    assert len(rows) == 4
    assert rows["regret"].nunique() == 4

"""Regret in summary against numbers by hand and against play."""

import math

import pytest
import torch

from bandits_torch import make, recipes, run
from bandits_torch.experiments import per_step, random_regret, summary
from bandits_torch.experiments.earned import earned
from bandits_torch.policies import RandomPolicy
from tests.reference.stubs import FixedPolicy, TableProblem

# 2 replicates, 2 steps, 3 arms.
TABLE = [[[0.0, 1.0, 0.5], [2.0, 1.0, 0.5]], [[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]]]


def test_random_regret_equals_best_minus_mean():
    regret = random_regret(TableProblem(TABLE), 2)
    expected = [[1 - 0.5, 2 - 3.5 / 3], [3 - 1, 0]]
    torch.testing.assert_close(regret, torch.tensor(expected, dtype=torch.float64))


def test_random_regret_counts_available_arms_only():
    masks = [torch.tensor([True, False, True]), torch.tensor([[True, True, False], [False, False, True]])]
    regret = random_regret(TableProblem(TABLE, masks), 2)
    torch.testing.assert_close(regret, torch.tensor([[0.25, 0.5], [1.5, 0.0]], dtype=torch.float64))


def test_random_regret_looks_past_unknown_rewards_of_unavailable_arms():
    problem = TableProblem([[[0.0, 1.0, math.nan]]], [torch.tensor([True, True, False])])
    assert random_regret(problem, 1).tolist() == [[0.5]]


def test_random_play_is_compared_with_the_best_arm_within_a_limit():
    problem = make("safe-tv-gp", num_arms=8, horizon=60, replicates=2)
    arm = torch.zeros(2, dtype=torch.long)
    best = torch.stack([problem.score(step, arm, None)[1] for step in range(1, 61)], -1)
    mean = torch.stack([problem.expected_rewards(step).mean(-1) for step in range(1, 61)], -1)
    torch.testing.assert_close(random_regret(problem, 60), best - mean)
    history = run(RandomPolicy(8, 2), problem, 60)
    found = earned(problem, {"random": history}, random_regret(problem, 60))
    assert found.random == pytest.approx(float(mean.sum(-1).mean()))


def test_the_summary_has_one_row_per_policy():
    problem = TableProblem(TABLE)
    histories = {"a": run(FixedPolicy([[0, 0], [0, 0]], 3), problem, 2)}
    histories["b"] = run(FixedPolicy([[1, 0], [0, 0]], 3), problem, 2)
    table = summary(histories)
    assert table.index.tolist() == ["a", "b"]
    assert table.loc["a", ["mean_cumulative_regret", "standard_error"]].tolist() == [0.5, 0.5]
    assert table.loc["b", ["mean_cumulative_regret", "standard_error"]].tolist() == [0, 0]
    assert table.loc["a", "ms_per_step"] > 0


def test_per_step_averages_equal_the_sums_by_hand():
    frame = per_step({"a": run(FixedPolicy([[0, 1], [1, 0]], 3), TableProblem(TABLE), 2)})
    # regrets: replicate 0: 1, 1; replicate 1: 3, 0
    assert frame["step"].tolist() == [1, 2]
    assert frame["time"].tolist() == [10, 20]
    assert frame["mean_regret"].tolist() == [2, 0.5]
    assert frame["mean_cumulative_regret"].tolist() == [2, 2.5]
    assert frame["standard_error"].tolist() == pytest.approx([1, 0.5])


def test_one_replicate_has_no_standard_error():
    frame = per_step({"a": run(FixedPolicy([[0, 1]], 3), TableProblem(TABLE[:1]), 2)})
    assert frame["standard_error"].isna().all()


def test_random_regret_on_a_continuous_domain_is_that_of_play_at_random():
    problem = make("dynamic-levy", horizon=6)
    found = random_regret(problem, 6)
    policy = recipes.build("random", problem, replicates=1, horizon=6)
    played = torch.stack([run(policy, problem, 6, seed=seed).regret for seed in range(200)])[:, 0]
    error = played.std(0) / 200**0.5
    assert found.shape == (1, 6)
    assert ((played.mean(0) - found[0]).abs() < 4 * error).all()

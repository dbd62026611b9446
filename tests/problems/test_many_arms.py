"""Problems with many arms: the law of grid draws, tables turned into arms, where variances starve."""

import numpy as np
import pandas as pd
import pytest
import torch

from bandits_torch import loop, problems, recipes
from bandits_torch.problems import GridDraws, RegressionTable, VarianceStarvation


def test_grid_draws_have_the_kernels_covariance():
    problem = GridDraws(side=4, dim=2, lengthscale=0.5, replicates=1000, seed=0)
    f = problem.expected_rewards(1)
    sample = f.mT @ f / len(f)
    torch.testing.assert_close(sample, problem.knowledge.kernel(problem.arms).to_dense(), atol=0.17, rtol=0)


def test_a_drifting_grid_keeps_its_law_and_forgets_at_its_rate():
    problem = GridDraws(side=3, dim=2, forgetting_rate=0.2, replicates=1000, seed=1)
    first, later = problem.expected_rewards(1), problem.expected_rewards(4)
    K = problem.knowledge.kernel(problem.arms).to_dense()
    torch.testing.assert_close(later.mT @ later / len(later), K, atol=0.17, rtol=0)
    torch.testing.assert_close(first.mT @ later / len(later), K * 0.8**1.5, atol=0.17, rtol=0)
    assert torch.equal(problem.expected_rewards(1), first)


def test_a_grid_of_a_million_arms_is_made_without_a_matrix():
    problem = GridDraws(side=10, dim=6, seed=0)
    assert problem.expected_rewards(1).shape == (1, 10**6)
    assert float(problem.expected_rewards(1).std()) == pytest.approx(1, abs=0.5)


@pytest.fixture
def table():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 3))
    return pd.DataFrame(
        {"a": X[:, 0], "b": 5 * X[:, 1], "name": "x", "c": X[:, 2], "y": 3 + X[:, 0] - X[:, 1]}
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".NPZ"])
def test_rows_of_a_table_become_arms(tmp_path, table, suffix):
    path = tmp_path / f"table{suffix}"
    if suffix == ".csv":
        table.to_csv(path, index=False)
    elif suffix == ".parquet":
        table.to_parquet(path)
    else:
        with path.open("wb") as file:  # NumPy adds .npz to other names
            np.savez(file, X=table[["a", "b", "c"]].to_numpy(), y=table["y"].to_numpy())
    problem = problems.make("regression-table", data=path, replicates=2)
    assert problem.arms.shape == (40, 3)
    rewards = problem.expected_rewards(1)
    assert rewards.shape == (2, 40)
    assert int(rewards[0].argmax()) == int(table["y"].argmax())
    assert float(rewards[0].std()) == pytest.approx(1)
    loop.run(recipes.build("bbkb", problem, replicates=2, horizon=20), problem, 20)


def test_rows_with_a_missing_value_are_left_out(tmp_path, table):
    table.loc[3, "a"] = np.nan
    table.to_csv(tmp_path / "table.csv", index=False)
    problem = RegressionTable(data=tmp_path / "table.csv", target="c", lengthscale=2.0)
    assert problem.num_arms == 39
    assert float(problem.knowledge.kernel.lengthscale) == pytest.approx(2.0)


def test_only_the_left_half_of_the_starvation_example_can_be_pulled():
    problem = VarianceStarvation(num_arms=101)
    assert int(problem.available(1).sum()) == 51
    policy = recipes.build("bkb", problem, replicates=1, horizon=30)
    loop.run(policy, problem, 30)
    assert float(policy.model.marginals()[1][0, -20:].min()) > 0.99  # not starved where nothing was pulled


BAD = {
    "target must be one of": lambda path: RegressionTable(data=path, target="z"),
    "target must be a column of numbers": lambda path: RegressionTable(data=path, target="name"),
    "path must be a file ending": lambda path: RegressionTable(data=path.with_suffix(".xls")),
    "path must be a readable .parquet file": lambda path: RegressionTable(data=path.with_suffix(".parquet")),
    "data must be the path of a file": lambda path: RegressionTable(data=5),
    "replicates": lambda path: RegressionTable(data=path, replicates=0),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(tmp_path, table, name):
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "table.parquet").write_bytes(b"no Parquet")
    with pytest.raises(ValueError, match=name):
        BAD[name](tmp_path / "table.csv")

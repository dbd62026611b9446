"""The races under contexts in small: the dense refit plays as ours does, the page says what was measured."""

import pandas as pd
import pytest
import torch

from benchmarks.contexts import auto, dense, linear
from benchmarks.contexts.__main__ import write_page


@pytest.mark.parametrize("kind", dense.PROBLEMS)
def test_the_dense_refit_plays_the_same_arms_while_nothing_is_dropped(kind) -> None:
    table = dense.race(kind, dense.Size(40, 1))
    assert set(table["step"]) == set(range(4, 41, 4))
    same = table[table["step"] == 40].set_index("policy")["same"]
    assert same[dense.LISTED] == 1.0
    assert same[dense.WHOLE if kind == "fixed" else dense.DROPPED] == same[dense.DENSE] == 1.0
    assert same[dense.BLIND] < 1.0
    regret = table.groupby("policy")["regret"].sum()
    assert regret[dense.DENSE] < regret[dense.RANDOM]


@pytest.mark.parametrize("kind", dense.PROBLEMS)
def test_a_dense_refit_that_is_asked_now_and_then_plays_as_one_that_always_is(kind, monkeypatch) -> None:
    monkeypatch.setattr(dense, "TIMED", 5)
    always, sometimes = (dense.race(kind, dense.Size(40, 1, k)) for k in (1, 7))
    both = [table[table["policy"] == dense.DENSE].set_index("step") for table in (always, sometimes)]
    assert both[0]["regret"].tolist() == both[1]["regret"].tolist()
    assert both[0]["asked"].iloc[-1] == 40
    assert both[1]["asked"].iloc[-1] == 10  # 7, 14, ..., 35, and 36 to 40
    assert both[1]["ms"].iloc[-1] > 0


def test_the_page_tells_ratios_and_what_was_left_out(tmp_path) -> None:
    rows = [
        {
            "problem": kind,
            "seed": 0,
            "policy": name,
            "step": step,
            "regret": regret,
            "ms": ms,
            "same": 1.0,
            "asked": 20,
        }
        for kind in dense.PROBLEMS
        for name, regret, ms in ((dense.DENSE, 10.0, 50.0), (dense.DROPPED, 10.5, 2.0))
        for step in (10, 20)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "dense-fixed-0.csv", index=False)
    text = write_page(tmp_path).read_text()
    assert "| 20.0 | 1.000 | 1.000 | 50.00 | 1.0 | 1.0 |" in text
    assert "| 21.0 | 1.050 | 1.050 | 2.00 | 25.0 | 25.0 |" in text
    assert "Left out: the package `coba` is not installed." in text
    write_coba(tmp_path / "coba.csv", {"CGP-UCB": 0.8, "LinUCB (coba)": 0.7, "best arms": 0.9})
    assert "| mlp | 0.1000 +- 0.0000 | 0.2000 +- 0.0000 |" in write_page(tmp_path).read_text()


def write_coba(path, rewards) -> None:
    """Races in an environment of coba, two seeds with the same mean reward of each policy."""
    rows = [
        {"environment": "mlp", "policy": name, "setting": "", "seed": seed, "reward": reward}
        for name, reward in rewards.items()
        for seed in (1, 2)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)


def test_the_page_has_auto_over_the_policy_that_is_told(tmp_path) -> None:
    table = auto.race("drifting", 3, 12, 6)
    assert table.groupby("policy")["step"].max().to_dict() == {
        auto.ALL_KNOWN: 12,
        auto.LISTED: 12,
        auto.FEATURES: 6,
    }
    assert table[table["policy"] == auto.ALL_KNOWN]["step"].tolist() == [6, 12]  # beside each of the others
    table.to_csv(tmp_path / "auto-drifting-3.csv", index=False)
    assert f"| drifting | 6 | {auto.FEATURES} |" in write_page(tmp_path).read_text()
    (tmp_path / "auto-drifting-3.csv").unlink()
    steps = {
        (auto.ALL_KNOWN, 12): 8.0,
        (auto.ALL_KNOWN, 6): 4.0,
        (auto.LISTED, 12): 6.0,
        (auto.FEATURES, 6): 5.0,
    }
    rows = [
        {"problem": "fixed", "seed": 3, "policy": name, "step": step, "regret": regret}
        for (name, step), regret in steps.items()
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "auto-fixed-3.csv", index=False)
    rewards = {linear.AUTO: 0.8, **dict.fromkeys(linear.LINEAR, 0.7), "best arms": 0.9}
    write_coba(tmp_path / "auto-coba.csv", rewards)
    text = write_page(tmp_path).read_text()
    assert f"| fixed | 12 | {auto.LISTED} | 6.0 | 8.0 | 0.75 |" in text
    assert f"| fixed | 6 | {auto.FEATURES} | 5.0 | 4.0 | 1.25 |" in text
    assert "ahead of both on 1 of 1" in text


def test_environments_of_coba_are_problems() -> None:
    pytest.importorskip("coba", reason="coba is not installed: pip install --no-deps coba")
    problem = linear.CobaProblem("mlp", 30, range(1, 3))
    best = problem.rewards.amax(-1).mean(-1)
    means = {name: linear.theirs(problem, name, 0.1) for name in ("LinUCBLearner", "LinTSLearner", "random")}
    means["ours"] = linear.ours(problem, 1.0, 1.0)
    for mean in means.values():
        assert mean.shape == (2,)
        assert (mean < best).all()
    assert torch.equal(problem.available(3).context, problem.contexts[:, 2])

"""The races under contexts in small: the dense refit plays as ours does."""

import pytest
import torch

from benchmarks.contexts import auto, dense, linear


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


def test_auto_plays_beside_the_policy_that_is_told_and_for_fewer_steps_over_features() -> None:
    steps = auto.race("drifting", 3, 12, 6).groupby("policy")["step"].agg(list).to_dict()
    assert steps == {auto.ALL_KNOWN: [6, 12], auto.LISTED: [6, 12], auto.FEATURES: [6]}


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

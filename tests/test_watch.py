"""What one can see of a live system: beliefs, history, and that looking changes nothing."""

import math
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel
from scipy.special import ndtri

from bandits_torch import AskTell, load_policy, recipes, save_policy
from bandits_torch.policies import ControlledPolicy, CostlyMoves, LatentRewards
from bandits_torch.problems import Log
from tests.reference import all_recipes, plain_best
from tests.reference.asking import bits

ARMS = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)


def play(live, steps, *, start=0, every=0, noise=0.3, means=(1.0, 2.0, 3.0, 2.8, 0.0)):
    """Ask and tell; every ``every``-th question stays open."""
    rng = np.random.default_rng(start)
    for k in range(start, start + steps):
        question = live.ask(float(k))
        at = question.arm if live.num_arms else question.arm.sum(-1).long()
        reward = torch.tensor([means[a % len(means)] for a in at.tolist()]).double()
        if not every or k % every:
            live.tell(question.id, reward + noise * rng.normal())
    return live


@pytest.mark.parametrize("name", all_recipes.of_every_kind())
def test_looking_changes_no_choice_and_no_bit_of_the_state(name):
    policy, _ = all_recipes.build(name, 2, 12)
    other, _ = all_recipes.build(name, 2, 12)
    looked, alone = AskTell(policy), AskTell(other)
    for k in range(12):
        for live in (looked, alone):
            question = live.ask(float(k))
            live.tell(question.id, torch.sin(0.7 * question.arm.double() + 0.1 * k))
        before, chance = bits(looked.state_dict()), torch.get_rng_state()
        table = looked.beliefs()
        looked.history(), looked.beliefs(level=0.5), repr(looked)
        assert bits(looked.state_dict()) == before
        assert torch.equal(torch.get_rng_state(), chance)
    assert bits(looked.state_dict()) == bits(alone.state_dict())
    assert len(table) == 2 * looked.num_arms
    assert table["plays"].sum() == 24
    for _, one in table.groupby("replicate"):
        sure = one["probability_best"]
        assert sure.isna().all() or sure.sum() == pytest.approx(1.0)
        believed = one["lower"].notna()
        assert ((one["lower"] <= one["mean"]) & (one["mean"] <= one["upper"]))[believed].all()


def test_the_probability_of_being_best_and_the_interval_of_auto_are_those_of_its_mixture():
    live = play(AskTell.auto(4), 40)
    table, policy = live.beliefs(level=0.8), live.policy
    weights, mean, covariance = (part[0].numpy() for part in policy.joint(39.0, torch.arange(4).unsqueeze(0)))
    exact = plain_best.probability_best(weights, mean, covariance)
    assert table["probability_best"].to_numpy() == pytest.approx(exact, abs=0.01)
    assert 0.02 < table["probability_best"].max() < 0.999, "else a test of nothing"
    moments = live.predict(39.0)
    assert table["mean"].to_numpy() == pytest.approx(moments[0][0].numpy())
    scale = (moments[1][0].numpy() / np.sqrt(_spread(weights, mean, covariance))).mean()
    for name, share in (("lower", 0.1), ("upper", 0.9)):
        for arm in range(4):
            z = plain_best.quantile(share, weights, mean[:, arm], covariance[:, arm, arm])
            wanted = table["mean"][arm] + scale * (z - weights @ mean[:, arm])
            assert table[name][arm] == pytest.approx(wanted, abs=1e-6)


def _spread(weights, mean, covariance):
    centre = weights @ mean
    return weights @ (covariance.diagonal(axis1=-2, axis2=-1) + (mean - centre) ** 2)


def test_the_probability_of_being_best_counts_what_is_known_of_arms_together():
    kernel = RBFKernel()
    kernel.lengthscale = 2.0
    live = play(AskTell(recipes.gp_ucb(ARMS, kernel, 0.5)), 6, means=(0.0,))
    table = live.beliefs()
    mean, covariance = (part[0] for part in live.policy.model.joint(5.0))
    exact = plain_best.probability_best(np.ones(1), mean.numpy()[None], covariance.numpy()[None])
    assert table["probability_best"].to_numpy() == pytest.approx(exact, abs=0.01)
    apart = np.diag(covariance.numpy().diagonal())
    alone = plain_best.probability_best(np.ones(1), mean.numpy()[None], apart[None])
    assert abs(alone - exact).max() > 0.1, "else draws of each arm by itself would do"
    half = live.beliefs(level=0.5)
    assert (half["upper"] - half["mean"]).to_numpy() == pytest.approx(
        0.67449 * live.predict(5.0)[1][0].numpy()
    )


def test_what_is_not_known_is_not_said():
    live = play(AskTell(recipes.glr_kl_ucb(5, horizon=50)), 2)
    table = live.beliefs()
    assert table["mean"].notna().tolist() == [True, True, False, False, False]
    assert table[["lower", "upper", "probability_best"]].isna().all(axis=None)
    told = live.history()["reward"]
    assert table["mean"][:2].tolist() == pytest.approx(told.tolist())
    shifted = play(AskTell(recipes.ucb1(5), standardise=True), 12)
    by_arm = shifted.history().groupby("arm")["reward"].mean()
    assert shifted.beliefs()["mean"].to_numpy() == pytest.approx(by_arm.to_numpy())
    many = AskTell.auto(300)
    assert many.beliefs()["probability_best"].isna().all()


def test_a_context_or_time_that_does_not_fit_is_refused_and_not_unknown():
    listed, numbers = AskTell.auto(3, contexts=2), AskTell.auto(3, context_dim=2)
    alone, counted = AskTell.auto(3), AskTell(recipes.ucb1(3))
    points = AskTell.auto({"x": (0.0, 1.0)})
    for live, told in ((listed, {"context": 7}), (numbers, {"context": 1.0}), (alone, {"context": 1.0})):
        with pytest.raises(ValueError, match="context must"):
            live.beliefs(**told)
    for live, told in ((counted, {"context": 1.0}), (points, {"context": 1.0})):
        with pytest.raises(ValueError, match=r"must be one that predicts|context must be None over a domain"):
            live.beliefs(**told)
    listed.tell(listed.ask(5.0, context=0).id, 1.0)
    with pytest.raises(ValueError, match="at must be at or after the latest reward"):
        listed.beliefs(at=4.0, context=0)
    assert listed.beliefs()["mean"].isna().all()
    assert listed.beliefs(context=0)["mean"].notna().all()


@pytest.mark.parametrize("kind", ["binary", "counts"])
def test_rewards_of_0_and_1_and_counts_have_intervals_of_such_whatever_is_around_the_policy(kind):
    for around in (None, partial(CostlyMoves, move_price=0.1), partial(ControlledPolicy, control=0)):
        policy, alone = recipes.gp_ucb(ARMS, RBFKernel(), 1.0), around is None
        live = AskTell(policy, rewards=kind) if alone else AskTell(around(LatentRewards(policy, kind)))
        for k in range(10):
            question = live.ask(float(k))
            live.tell(question.id, float(int(question.arm) == 2))
        table = live.beliefs(level=0.99)
        mean, deviation = (one[0].numpy() for one in live.predict(10.0, latent=True))
        ends = [mean + ndtri(share) * deviation for share in (0.005, 0.995)]
        expected = np.exp(ends) if kind == "counts" else 1 / (1 + np.exp(np.negative(ends)))
        np.testing.assert_allclose(table[["lower", "upper"]].to_numpy().T, expected, rtol=1e-12)
        assert table["probability_best"].idxmax() == table["mean"].idxmax()


def test_when_an_arm_was_played_in_dates():
    zone = datetime(2026, 3, 1, tzinfo=UTC)
    live = AskTell.auto(["a", "b", "c"], time_unit="h")
    for k, name in enumerate("aab"):
        live.tell(live.ask(zone + timedelta(hours=k), [name]).id, 1.0 * k)
    live.ask(zone + timedelta(hours=10), ["a"])  # open: no play
    table = live.beliefs().set_index("arm")
    assert table["plays"].to_dict() == {"a": 2, "b": 1, "c": 0}
    assert table["unseen"].to_dict() == {
        "a": timedelta(hours=9),
        "b": timedelta(hours=8),
        "c": timedelta(hours=10),  # since the first question
    }
    assert table["last_played"]["a"] == zone + timedelta(hours=1)
    assert pd.isna(table["last_played"]["c"])
    later = live.beliefs(at=zone + timedelta(hours=20))
    assert later["unseen"].max() == timedelta(hours=20)


@pytest.mark.parametrize("unit", ["s", "min", "h", "D"])
def test_what_is_believed_after_a_log_whose_dates_have_nanoseconds(unit):
    times = 1_704_067_200 + torch.tensor([0.1234569, 2.7777779, 60.9999994], dtype=torch.float64)
    log = Log(
        times, torch.tensor([0, 1, 1]), torch.tensor([1.0, 2.0, 3.0]), ("a", "b"), dated=True, zoned=False
    )
    live = AskTell.auto(log=log, time_unit=unit)
    last = pd.Timestamp("2024-01-01 00:01:00.9999994")
    torch.testing.assert_close(live.predict(last)[0].squeeze(0).tolist(), live.beliefs()["mean"].tolist())


def test_how_long_ago_counts_the_hour_that_a_clock_skips():
    zone = ZoneInfo("Europe/Berlin")  # where 2:00 on 31 March 2024 was followed by 3:00
    live = AskTell.auto(["a", "b"], time_unit="h")
    live.tell(live.ask(datetime(2024, 3, 31, 0, 30, tzinfo=zone), ["a"]), 1.0)
    live.ask(datetime(2024, 3, 31, 4, 30, tzinfo=zone))
    assert live.beliefs()["unseen"].tolist() == [timedelta(hours=3)] * 2
    assert live.alarms()["time"].dtype == live.history()["time"].dtype


def test_over_settings_those_told_are_listed_the_best_first():
    live = play(AskTell.auto({"mean": (0.0, 4.0), "mode": ["x", "y"]}), 8, every=4)
    table, told = live.beliefs(), live.history().query("state == 'told'")
    assert list(table.columns[:2]) == ["mean (setting)", "mode"]
    assert sorted(table["mean (setting)"]) == sorted(told["mean (setting)"])
    assert table["mean"].is_monotonic_decreasing
    assert table["probability_best"].sum() == pytest.approx(1.0)
    points = [
        dict(zip(("mean", "mode"), row, strict=True)) for row in table.iloc[:, :2].itertuples(index=False)
    ]
    mean, deviation = live.predict(7.0, points)
    assert table["mean"].to_numpy() == pytest.approx(mean[0].numpy())
    assert (table["upper"] - table["lower"]).to_numpy() == pytest.approx(
        2 * 1.645 * deviation[0].numpy(), rel=0.25
    )
    assert AskTell.auto({"mean": (0.0, 4.0)}).beliefs().empty


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, math.nan, "high"])
def test_a_level_out_of_range_is_refused(level):
    with pytest.raises(ValueError, match="level must be"):
        AskTell.auto(3).beliefs(level=level)


def test_the_history_says_what_was_asked_and_told():
    live = AskTell.auto(["a", "b"])
    one, two, three, four = (live.ask(0.5 * k) for k in range(4))
    live.tell(three.id, 3.0)
    live.tell(one.id, 1.0)
    live.drop(ids=[two.id])
    table = live.history()
    assert table["id"].tolist() == [0, 1, 2, 3]
    assert table["time"].tolist() == [0.0, 0.5, 1.0, 1.5]
    assert table["arm"].tolist() == [q.name for q in (one, two, three, four)]
    assert table["reward"].fillna(-1.0).tolist() == [1.0, -1.0, 3.0, -1.0]
    assert table["late"].tolist() == [True, False, False, False]
    assert table["state"].tolist() == ["told", "dropped", "told", "open"]


def test_the_history_is_bounded_and_moves_with_the_file(tmp_path):
    live = play(AskTell.auto(3, keep=4), 10, every=4)
    assert live.history()["id"].tolist() == [6, 7, 8, 9]
    assert live.tell(0, 1.0)  # older than what is kept
    assert live.history()["reward"].isna().tolist() == [False, False, True, False]
    save_policy(tmp_path / "live", live)
    other = AskTell.auto(3, keep=4)
    load_policy(tmp_path / "live", other)
    pd.testing.assert_frame_equal(other.history(), live.history())
    pd.testing.assert_frame_equal(other.beliefs(), live.beliefs())
    none = play(AskTell.auto(3, keep=0), 3)
    assert none.history().empty
    assert none.history()["time"].dtype == live.history()["time"].dtype
    assert none.beliefs()["plays"].sum() == 3


def test_several_replicates_have_rows_of_their_own():
    live = play(AskTell.auto(3, replicates=2), 5)
    table = live.history()
    assert table["id"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert table["replicate"].tolist() == [0, 1] * 5
    plays = table.groupby(["replicate", "arm"]).size()
    beliefs = live.beliefs().set_index(["replicate", "arm"])["plays"]
    assert beliefs[beliefs > 0].to_dict() == plays.to_dict()
    assert list(table["arm"]) == live._watch.arms[:, :5].T.reshape(-1).tolist()


def test_a_live_system_says_in_a_line_how_it_stands():
    assert repr(AskTell.auto(3)) == "<AskTell ModelAveraging over 3 arms; 0 asked, 0 told, 0 open>"
    live = play(AskTell.auto(["a", "b", "c", "d"]), 40, every=10)
    sure = live.beliefs().set_index("arm")["probability_best"]
    best = sure.idxmax()
    assert repr(live) == (
        "<AskTell ModelAveraging over 4 arms: a, b, c, d; 40 asked, 36 told, 4 open; "
        f"best now {best}, with probability {sure[best]:.2f}>"
    )
    classical = play(AskTell(recipes.ucb1(3)), 5)
    assert repr(classical).endswith("; best now 2>")
    settings = play(AskTell.auto({"heat": (0.0, 4.0)}), 4)
    assert "best known heat=" in repr(settings)


def test_arms_that_come_and_go_are_in_all_tables(tmp_path):
    live = play(AskTell.auto(["a", "b"]), 12)
    live.add_arms(["c", "d"])
    table = live.beliefs().set_index("arm")
    assert table["plays"].tolist()[2:] == [0, 0]
    assert table["probability_best"].sum() == pytest.approx(1.0)
    before = bits(live.state_dict())
    live.beliefs(), live.history(), live.alarms(), repr(live), live.report(tmp_path / "live.html")
    assert bits(live.state_dict()) == before
    play(live, 12, start=12)
    live.retire_arms(["c"])
    table = live.beliefs().set_index("arm")
    assert table["retired"].to_dict() == {"a": False, "b": False, "c": True, "d": False}
    assert table["plays"]["c"] > 0
    assert table["probability_best"]["c"] == 0.0
    assert table["mean"].idxmax() == "c"
    assert "best now c" not in repr(live)
    assert table["plays"].sum() == len(live.history()) == 24
    save_policy(tmp_path / "live", live)
    other = AskTell.auto(["a", "b"])
    load_policy(tmp_path / "live", other)
    pd.testing.assert_frame_equal(other.beliefs(), live.beliefs())
    pd.testing.assert_frame_equal(other.history(), live.history())


def test_with_cycles_the_draws_are_of_the_time_asked_about():
    past = torch.zeros(240, 3, dtype=torch.float64)
    hours = torch.arange(240.0)
    past[:, 0], past[:, 1] = torch.sin(hours * torch.pi / 12), -torch.sin(hours * torch.pi / 12)
    past += 0.1 * torch.from_numpy(np.random.default_rng(0).normal(size=past.shape))
    live = AskTell.auto(["day", "night", "none"], history=past)
    live.tell(live.ask(1.0).id, 0.0)
    for at in (6.0, 18.0):
        table = live.beliefs(at=at).set_index("arm")
        weights, mean, covariance = live.policy.joint(at, torch.tensor([[0, 1, 2]]))
        centre = (weights.unsqueeze(-2) @ mean).squeeze()
        assert centre.argmax() == table["mean"].argmax()
        assert table["probability_best"].idxmax() == table["mean"].idxmax()
        variance = live.policy.components(at)[2]
        torch.testing.assert_close(covariance.diagonal(dim1=-2, dim2=-1), variance, rtol=1e-6, atol=1e-9)
    assert live.beliefs(at=6.0)["mean"].idxmax() != live.beliefs(at=18.0)["mean"].idxmax()


@pytest.mark.parametrize(
    ("names", "value"), [(["arms"], 3), (["arms"], -1), (["marks"], 6), (["arm_tests", "runs"], 0)]
)
def test_a_record_of_arms_and_marks_that_there_are_not_is_refused(names, value):
    state = play(AskTell.auto(3), 4).state_dict()
    *groups, last = names
    inside = state["watch"]
    for group in groups:
        inside = inside[group]
    inside[last] = torch.full_like(inside[last], value)[:, : -1 if groups else None]
    with pytest.raises(ValueError, match=last):
        AskTell.auto(3).load_state_dict(state)

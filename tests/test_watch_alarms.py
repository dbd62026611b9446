"""Alarms: how often they are false, how soon a change is found, and what a policy's own test adds."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import AskTell, load_policy, recipes, save_policy
from bandits_torch.watch import ArmTest, Watch
from tests.reference.asking import bits

LAWS = {
    "normal": lambda rng, *shape: rng.normal(size=shape),
    "heavy": lambda rng, *shape: 1e6 * rng.standard_t(2, size=shape),
    "skewed": lambda rng, *shape: np.exp(2 * rng.normal(size=shape)),
    "rare": lambda rng, *shape: (rng.random(shape) < 0.05).astype(float),
    "even": lambda rng, *shape: (rng.random(shape) < 0.5).astype(float),
}


@pytest.fixture
def rng():
    """The same numbers for a test, whichever ran before it."""
    return np.random.default_rng(7)


@dataclass
class Arms:
    """As much of a policy as ``Watch`` looks at."""

    replicates: int
    num_arms: int = 1
    dim: int = 0

    def changes_found(self):
        return None


def alarms_of(rewards, num_arms=1):
    """The alarms of rewards (R, T), each replicate's of arms in turn."""
    policy = Arms(len(rewards), num_arms)
    watch = Watch(policy, 0)
    found = []
    for t, reward in enumerate(torch.from_numpy(rewards).T):
        arm = torch.full((len(rewards),), t % num_arms)
        watch.learned(t, t + 1, float(t), arm, reward, policy)
        found += [one for one in watch.rung if one["id"] == t]
    return found


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("steps", [600, pytest.param(6000, marks=pytest.mark.slow)])
def test_at_most_one_false_alarm_in_10_000_rewards_whatever_their_noise(law, steps, rng):
    runs = 200 if law not in ("rare", "even") else 50
    promised = runs * steps / 10_000
    found = alarms_of(LAWS[law](rng, runs, steps), num_arms=3)
    assert len(found) <= promised + 3 * promised**0.5
    assert all(one["once_in"] >= 10_000 for one in found)
    if law == "normal":
        assert found, "a test that never rings promises nothing"


@pytest.mark.parametrize(("before", "pulls"), [(20, 14), (50, 8), (300, 7)])
def test_a_jump_of_three_noise_deviations_is_found_in_a_few_pulls(before, pulls, rng):
    """After 20, 50 and 300 pulls."""
    rewards = rng.normal(size=(100, before + 40))
    rewards[:50, before:] += 3
    rewards[50:, before:] -= 3
    delays = {}
    for one in alarms_of(rewards):
        if one["id"] >= before:
            delays.setdefault(one["replicate"], one)
    assert len(delays) >= 98
    assert np.quantile([one["id"] - before + 1 for one in delays.values()], 0.9) <= pulls
    assert abs(np.median([one["since"] - before for one in delays.values()])) <= 1
    for s, one in delays.items():
        assert (one["after"] > one["before"]) == (s < 50)
    assert np.median([abs(one["after"] - one["before"]) for one in delays.values()]) == pytest.approx(
        3, abs=0.3
    )


@pytest.mark.parametrize(("rates", "least", "most"), [((0.2, 0.6), 0.6, 0.85), ((0.02, 0.1), 0.0, 0.15)])
def test_a_change_of_rewards_of_0_and_1_is_found_as_often_as_the_page_says(rates, least, most):
    g = np.random.default_rng(12)
    found = 0
    for _ in range(100):
        test = ArmTest()
        told = [test.hear(float(g.random() < rates[t >= 100]), float(t)) for t in range(500)]
        found += any(told[100:])
    assert least <= found / 100 <= most


def test_ranks_and_the_likelihood_ratio_are_those_of_the_definition(rng):
    """The sums and the ratio, term by term, over all rewards that are held."""
    from scipy.stats import norm

    rewards = np.round(rng.normal(size=(1, 130)), 1)
    watch, sums = Watch(Arms(1), 0), {0.5: (0.0, 0.0), 1.0: (0.0, 0.0)}
    for t, reward in enumerate(rewards[0]):
        watch.learned(t, t + 1, float(t), torch.tensor([0]), torch.tensor([reward]).double(), Arms(1))
        held = rewards[0, max(0, t - 100) : t]
        z = norm.ppf((np.sum(held < reward) + np.sum(held == reward) / 2 + 0.5) / (len(held) + 1))
        for k in sums:
            sums[k] = max(0.0, sums[k][0] + z - k), max(0.0, sums[k][1] - z - k)
        assert watch.arm_tests.each[0, 0].sums == pytest.approx([*sums[0.5], *sums[1.0]])
    assert not watch.rung
    ones = [0.0] * 40 + [1.0] * 20
    found = alarms_of(np.array([ones]))
    n = found[0]["id"] + 1
    m = (n - 40) / n  # split at 40: one part all 0, the other all 1, so the ratio is n times the entropy of m
    ratio = -n * (m * np.log(m) + (1 - m) * np.log(1 - m))
    assert found[0]["once_in"] == pytest.approx(10_000 * np.exp(0.85 * (ratio - 10.25)))
    assert (found[0]["since"], found[0]["before"], found[0]["after"]) == (40.0, 0.0, 1.0)


def jump(live, at, steps, *, names=None, noise=10.0):
    rng = np.random.default_rng(2)
    for k in range(steps):
        question = live.ask(float(k))
        arm = int(question.arm)
        level = 500.0 if arm == 0 else 100.0 * arm
        live.tell(question.id, level - (400 if arm == 0 and k >= at else 0) + noise * rng.normal())
    return live


@pytest.mark.parametrize(
    "built",
    [
        lambda: AskTell.auto(["north", "south", "east"]),
        lambda: AskTell(recipes.ucb1(3), names=["north", "south", "east"]),
        lambda: AskTell(recipes.glr_kl_ucb(3, horizon=300), names=["north", "south", "east"]),
    ],
    ids=["auto", "ucb1", "glr"],
)
def test_a_live_system_rings_when_the_arm_that_it_plays_falls(built, tmp_path):
    live = jump(built(), 120, 220)
    table = live.alarms()
    first = table[table["by"] == "rewards"].iloc[0]
    assert first["arm"] == "north"
    assert 120 <= first["time"] <= 200
    assert first["since"] >= 119
    assert first["before"] == pytest.approx(500, abs=20)
    assert first["after"] == pytest.approx(100, abs=60)
    assert first["once_in"] > 10_000
    save_policy(tmp_path / "live", live)
    other = built()
    load_policy(tmp_path / "live", other)
    assert other.alarms().equals(table)
    assert bits(other.state_dict()) == bits(live.state_dict())
    again = copy.deepcopy(live)
    assert again.alarms().equals(table)


@pytest.mark.parametrize(
    ("name", "options", "earliest"),
    [
        ("ada_opkb_calibrated", {}, 150),
        ("glr_kl_ucb", {"horizon": 400}, 150),
        ("dal", {"horizon": 400}, 150),
        ("ada_opkb", {"horizon": 400}, 150),
        ("master_gp_ucb", {"horizon": 400, "width": 0.3}, 0),  # so narrow a width rings without a change, too
    ],
)
def test_every_restart_of_a_detector_is_an_alarm_where_arms_change_places(name, options, earliest):
    arms = torch.linspace(0, 1, 3, dtype=torch.float64).unsqueeze(-1)
    live = AskTell(getattr(recipes, name)(arms, RBFKernel(), 0.01, **options))
    noise = np.random.default_rng(0)
    for k in range(400):
        question = live.ask(float(k))
        values = (0.0, 0.5, 1.0) if k < 150 else (1.0, 0.5, 0.0)
        live.tell(question.id, values[int(question.arm)] + 0.1 * noise.normal())
    own = live.alarms().query("by == 'policy'")
    assert len(own) == int(live.policy.trace()["restarts"].sum()) >= 1
    assert (own["time"] >= earliest).all()


def test_a_restart_on_a_schedule_is_no_alarm():
    arms = torch.linspace(0, 1, 3, dtype=torch.float64).unsqueeze(-1)
    scheduled = recipes.r_gp_ucb(arms, RBFKernel(), 0.1, horizon=40, interval=5)
    live = AskTell(scheduled)
    for k in range(40):
        live.tell(live.ask(float(k)).id, 0.1 * (k % 3))
    assert scheduled.restarts.item() > 3
    assert (live.alarms()["by"] == "policy").sum() == 0
    triggered = recipes.et_gp_ucb(arms, RBFKernel(), 0.01)
    live = AskTell(triggered)
    for k in range(40):
        live.tell(live.ask(float(k)).id, 0.0 if k < 30 else 9.0)
    assert (live.alarms()["by"] == "policy").sum() == triggered.restarts.item() > 0


def test_no_alarm_is_a_table_of_no_rows():
    table = AskTell.auto(3).alarms()
    assert table.empty
    assert list(table) == ["id", "time", "arm", "by", "since", "before", "after", "once_in"]
    assert "arm" not in AskTell.auto({"heat": (0.0, 1.0)}).alarms()


def test_the_change_is_since_a_time_no_later_than_its_alarm_s_in_whatever_order_rewards_come():
    test, g = ArmTest(), np.random.default_rng(0)
    times = g.permutation(200.0 * np.arange(200))
    found = [
        (time, rung)
        for k, time in enumerate(times)
        if (rung := test.hear(g.normal() + 3.0 * (k >= 100), time)) is not None
    ]
    assert found
    assert all(rung["since"] <= time for time, rung in found)

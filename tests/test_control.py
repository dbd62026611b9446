"""A test against a control, as its user runs it: ask, tell, look at lifts; and what an interval promises."""

import numpy as np
import pytest
import torch

from bandits_torch import AskTell, load_policy, recipes, save_policy
from bandits_torch.policies import Choice, ControlledPolicy, Observation, Policy
from tests.reference.kernels import rbf
from tests.reference.plain_lift import lift

WORTH = {"A": 0.0, "B": 1.0, "C": -0.5}


def live(**told):
    return AskTell.auto([*WORTH], control="A", **told)


def play(one, first, last, seed=0, size=10.0):
    """Rewards of three arms, noise of deviation 1 and a daily level of ``size``; what was asked."""
    noise = np.random.default_rng(seed).normal(size=last)
    names = []
    for t in range(first, last):
        question = one.ask(float(t))
        one.tell(question.id, WORTH[question.name] + size * np.sin(2 * np.pi * t / 100) + noise[t])
        names.append(question.name)
    return names


def test_the_better_arm_is_found_and_decided_under_a_daily_level():
    one = live()
    names = play(one, 0, 1000)
    table = one.lift().set_index("arm")
    assert list(table["decided"]) == ["control", "better", "open"]
    assert table["lower"]["B"] < WORTH["B"] < table["upper"]["B"]
    assert table["lift"]["A"] == table["lower"]["A"] == table["upper"]["A"] == 0.0
    assert names[500:].count("B") > 400
    assert 0.05 < names[500:].count("A") / 500 < 0.2


def test_beliefs_are_of_rewards_level_and_all():
    one = live()
    play(one, 0, 325)
    table = one.beliefs().set_index("arm")
    paid = 10 * np.sin(2 * np.pi * 324 / 100) + WORTH["B"]
    assert abs(table["mean"]["B"] - paid) < 1.5
    assert table["lower"]["B"] < paid < table["upper"]["B"]
    assert table["upper"]["B"] - table["lower"]["B"] > 0.3  # the level of now is not known
    assert table["probability_best"]["B"] > 0.9
    assert "best now B" in repr(one)


def test_a_state_of_before_is_read_where_there_is_no_control_and_refused_where_there_is(tmp_path):
    plain = AskTell.auto([*WORTH])
    play(plain, 0, 20)
    save_policy(tmp_path / "state", plain)
    again = AskTell.auto([*WORTH])
    load_policy(tmp_path / "state", again)
    assert play(plain, 20, 40) == play(again, 20, 40)
    with pytest.raises(ValueError, match="policy"):
        load_policy(tmp_path / "state", live())
    with pytest.raises(ValueError, match="control"):
        plain.lift()


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"control": "D"}, "control must be among A, B, C, got D"),
        ({"control": 3}, "control"),
        ({"control": "A", "control_share": 0.0}, "control_share"),
        ({"control": "A", "control_share": 0.6}, "control_share"),
        ({"control_share": 0.2}, "control_share"),
        ({"control": "A", "cycles": 24.0}, "cycles"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(told, named):
    with pytest.raises(ValueError, match=named):
        AskTell.auto([*WORTH], **told)
    with pytest.raises(ValueError, match="control must be a number, or left out, if arms have no names"):
        AskTell.auto({"x": (0.0, 1.0)}, control="x")


def test_a_policy_under_contexts_is_refused_whose_inputs_would_be_those_of_the_arm_proposed():
    arms = torch.linspace(0, 1, 5).double().unsqueeze(-1)
    with pytest.raises(ValueError, match="policy must be one over arms, with marginals, without contexts"):
        ControlledPolicy(recipes.cgp_ucb(arms, rbf(0.2), 0.01), 0)


class Proposes(Policy):
    """Proposes the arms of a list in turn, and predicts what it is told to."""

    def __init__(self, arms, predicted, replicates):
        self.arms, self.predicted, self.replicates = arms, predicted, replicates
        self.num_arms = len(predicted)

    def choose(self, time, available=None):
        return Choice(torch.full((self.replicates,), self.arms[int(time) % len(self.arms)]))

    def marginals(self, time, points=None):
        mean = torch.tensor(self.predicted).double() + np.sin(time)
        return mean.expand(self.replicates, -1), torch.ones(self.replicates, self.num_arms).double()

    def learn(self, observation):
        pass


def stubborn(arms, replicates, share=0.1):
    return ControlledPolicy(Proposes(arms, [0.5, -1.0, 2.0], replicates), 0, share)


def test_lifts_are_those_of_their_definition_whatever_the_order_of_the_rewards():
    one, random, S = stubborn([1, 1, 2, 0, 1], 2, 0.3), np.random.default_rng(0), 2
    asked = []
    for t in range(400):
        available = None if t % 7 else torch.tensor([False, True, True])
        asked.append((t, one.choose(float(t), available), random.normal(size=S), available))
    records = [[] for _ in range(S)]
    for k in random.permutation(400):
        t, choice, reward, available = asked[k]
        one.learn(Observation(float(t), choice.arm, torch.tensor(reward), choice.why))
        for s in range(S):
            proposed = one.policy.arms[t % 5]
            compared = proposed != 0 and available is None
            means = [0.5, -1.0, 2.0]
            predicted = means[proposed] + np.sin(t), means[0] + np.sin(t)
            records[s].append((proposed if compared else None, int(choice.arm[s]), predicted, reward[s]))
    found = torch.stack(one.lifts(0.9))
    for s in range(S):
        for arm in (1, 2):
            np.testing.assert_allclose(found[:, s, arm], lift(records[s], arm, 0, 0.3, 0.9), rtol=1e-9)


def test_a_replicate_that_restarts_learns_fifty_rewards_before_it_compares_again():
    one = stubborn([1], 2, 0.3)
    compared = []
    for t in range(160):
        if t == 80:
            one.reset(torch.tensor([True, False]))
        choice = one.choose(float(t))
        one.learn(Observation(float(t), choice.arm, torch.ones(2).double(), choice.why))
        compared.append(one.compared[:, 1].tolist())
    assert compared[79] == [30, 30]
    assert [compared[t][0] for t in (80, 129, 130, 159)] == [0, 0, 1, 30]
    assert compared[159][1] == 110


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_intervals_hold_at_all_looks_together_whatever_the_level_and_the_predictions(share):
    """Lifts 1 and -2 under a level of ten and predictions that are wrong throughout; 400 runs of 600 rewards."""
    one, random, S = stubborn([1, 2, 1], 400, share), np.random.default_rng(1), 400
    worth, held = torch.tensor([0.0, 1.0, -2.0]).double(), torch.ones(S, 3, dtype=torch.bool)
    for t in range(600):
        choice, noise = one.choose(float(t)), torch.tensor(random.normal(size=S))
        one.learn(
            Observation(float(t), choice.arm, worth[choice.arm] + 10 * np.sin(t / 15) + noise, choice.why)
        )
        _, low, high = one.lifts(0.9)
        held &= (low <= worth) & (worth <= high)
    assert held.double().mean(0).min() >= 0.9
    assert low[:, 1:].isfinite().double().mean() > 0.99


@pytest.mark.parametrize(("chance", "rewards"), [(0.01, 3000), (0.05, 600), (0.1, 600)])
def test_intervals_of_rare_successes_hold_though_the_control_has_none_for_a_while(chance, rewards):
    """400 runs of rewards of 0 and 1, all arms alike, a tenth to the control."""

    class Steady(Proposes):
        def marginals(self, time, points=None):
            return torch.full((400, 2), chance).double(), torch.ones(400, 2).double()

    one, random = ControlledPolicy(Steady([1], [0.0, 0.0], 400), 0, 0.1), np.random.default_rng(11)
    held = torch.ones(400, dtype=torch.bool)
    for t in range(rewards):
        choice, reward = one.choose(float(t)), torch.tensor(random.random(400) < chance).double()
        one.learn(Observation(float(t), choice.arm, reward, choice.why))
        _, low, high = one.lifts(0.95)
        held &= (low[:, 1] <= 0) & (high[:, 1] >= 0)
    assert held.double().mean() >= 0.95


def test_a_test_takes_up_arms_and_does_without_those_that_go():
    one = live()
    play(one, 0, 150)
    before = one.lift()
    one.add_arms(["D"])
    after = one.lift()
    assert before.equals(after[:3])
    assert after["decided"][3] == "open"
    WORTH["D"] = 3.0
    try:
        names = play(one, 150, 400)
    finally:
        del WORTH["D"]
    assert names[-100:].count("D") > 70
    one.retire_arms(["A"])
    assert list(one.lift()["retired"]) == [True, False, False, False]
    compared = one.lift()["compared"].sum()
    assert one.ask(400.0).name != "A"
    one.tell(one.asked - 1, 0.0)
    assert one.lift()["compared"].sum() == compared  # without the control nothing is compared


def test_the_page_of_a_live_test_shows_lifts(tmp_path):
    one = live()
    play(one, 0, 60)
    one.report(tmp_path / "live.html")
    assert "Against the control" in (tmp_path / "live.html").read_text()
    plain = AskTell.auto(3)
    plain.report(tmp_path / "plain.html")
    assert "Against the control" not in (tmp_path / "plain.html").read_text()


def test_a_kernel_and_a_history_tell_what_arms_do_not_have_in_common():
    """A level that is common in the history changes no covariance of the members."""
    past = torch.randn(300, 3, generator=torch.Generator().manual_seed(0)).double()
    day = 20 * torch.sin(torch.arange(300) / 10).unsqueeze(-1)
    with_day, without = (recipes.auto(3, history=one, control=0).policy.model for one in (past + day, past))
    assert torch.allclose(with_day.covariances, without.covariances, atol=0.1)
    assert with_day.covariances[0].diagonal().mean() == pytest.approx(2.0)

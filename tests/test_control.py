"""A test against a control, as its user runs it: ask, tell, look at lifts; and what an interval promises."""

import numpy as np
import pytest
import torch

from bandits_torch import AskTell, load_policy, recipes, save_policy
from bandits_torch.policies import Observation

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


def test_a_saved_test_goes_on_with_the_same_bits(tmp_path):
    one, other = live(), live()
    play(one, 0, 120)
    open_before = [one.ask(120.0).id for _ in range(2)]
    save_policy(tmp_path / "state", one)
    load_policy(tmp_path / "state", other)
    for each in (one, other):
        each.tell(open_before[1], 3.0)
        each.tell(open_before[0], -3.0)
    assert play(one, 121, 200) == play(other, 121, 200)
    assert one.lift().equals(other.lift())


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
        ({"control": "D"}, "control"),
        ({"control": 3}, "control"),
        ({"control": "A", "control_share": 0.0}, "control_share"),
        ({"control": "A", "control_share": 0.6}, "control_share"),
        ({"control": "A", "history": torch.randn(50, 3)}, "control"),
        ({"control": "A", "kernel": torch.eye(3).double()}, "control"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(told, named):
    with pytest.raises(ValueError, match=named):
        AskTell.auto([*WORTH], **told)


def test_replicates_play_the_same_alone_as_in_a_batch():
    both, second = (recipes.auto(3, control=0, replicates=n, first_replicate=k) for n, k in ((2, 0), (1, 1)))
    for t in range(40):
        choices = [one.choose(float(t)) for one in (both, second)]
        assert choices[0].arm[-1] == choices[1].arm[-1]
        for one, choice in zip((both, second), choices, strict=True):
            one.learn(Observation(float(t), choice.arm, choice.arm + torch.tensor(np.sin(t)), choice.why))

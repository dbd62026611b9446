"""Several questions open at once: they count, they give their places back, and files and threads keep them."""

import pytest
import torch

from bandits_torch import AskTell, recipes
from bandits_torch.checkpoint import described
from tests.reference.asking import live, refused, reward_of
from tests.reference.kernels import rbf


def by_features(name="gp_ucb", **options):
    kernel = rbf(0.1)
    arms = torch.linspace(0, 1, 20).double().unsqueeze(-1)
    return AskTell(getattr(recipes, name)(arms, kernel, 0.05, **options))


def arms_of(questions):
    return [int(question.arm) for question in questions]


@pytest.mark.parametrize(
    "name", ["gp_ucb", "tv_gp_ucb", "auto", "pe_gp_ucb", "bkb", "gp_ts", "ucb1", "random"]
)
def test_several_at_once_are_what_repeated_calls_ask(name):
    together, repeated = live(name), live(name)
    for step in range(4):
        questions = together.ask(float(step), count=3)
        again = [repeated.ask(float(step)) for _ in range(3)]
        assert arms_of(questions) == arms_of(again)
        assert [q.id for q in questions] == [q.id for q in again] == [3 * step, 3 * step + 1, 3 * step + 2]
        for asked in (together, repeated):
            assert asked.tell(3 * step, reward_of(questions[0]))
    assert together.asked == 12
    assert together.open == repeated.open == (1, 2, 4, 5, 7, 8, 10, 11)
    if name not in ("bkb", "gp_ts", "random"):
        assert described(together.state_dict()) == described(repeated.state_dict())


@pytest.mark.parametrize(
    "ask", [by_features, lambda: by_features("tv_gp_ucb", forgetting_rate=0.03), lambda: AskTell.auto(20)]
)
def test_four_questions_ask_of_four_arms(ask):
    """At first, where nothing tells the arms apart but what is open."""
    asked = ask()
    assert len(set(arms_of(asked.ask(0.0, count=4)))) == 4
    assert len(set(arms_of([*(asked.ask(0.0) for _ in range(4))]))) == 4


@pytest.mark.parametrize("name", ["gp_ucb", "tv_gp_ucb", "auto", "regret_balancing", "ucb1", "glr_kl_ucb"])
def test_a_question_that_is_dropped_gives_its_place_back(name):
    dropping, plain = live(name), live(name)
    for step in range(3):
        dropping.ask(float(step))  # one more than the other asks
        assert dropping.drop(ids=[dropping.open[-1]]) == 1
        one, other = dropping.ask(float(step)), plain.ask(float(step))
        assert torch.equal(one.arm, other.arm)
    assert len(dropping.open) == len(plain.open) == 3
    assert dropping.drop(before=float("inf")) == 3
    assert described(dropping.policy.state_dict()) == described(plain.policy.state_dict())
    assert torch.equal(dropping.ask(9.0).arm, live(name).ask(9.0).arm)


def test_what_cannot_be_dropped_or_told_together_is_refused():
    asked = live()
    question = asked.ask(0.0)
    for one in (0, question, "0", None, torch.tensor(0)):
        refused(asked, lambda one=one: asked.tell_many(one, [1.0]), "ids must be a list, got")
        if one is not None:
            refused(asked, lambda one=one: asked.drop(ids=one), "ids must be a list, got")
    for reward in (1.0, "1", torch.tensor(1.0)):
        refused(asked, lambda reward=reward: asked.tell_many([0], reward), "rewards must be a list, got")
    refused(asked, lambda: asked.tell_many([0], [1.0], noise_variance=0.1), "noise_variance must be a list")
    refused(asked, lambda: asked.drop(), "before and ids must be a time, or numbers of questions, not both")
    refused(asked, lambda: asked.drop(1.0, ids=[0]), "before and ids must be")
    refused(asked, lambda: asked.drop(ids=[0, 5]), "id must be the number of a question, 0 to 0, got 5")
    refused(asked, lambda: asked.drop(before=float("nan")), "before must be a finite number")
    assert asked.drop(ids=[0, 0]) == 1
    assert asked.drop(ids=[0]) == 0
    assert not asked.tell(0, 1.0)


def test_several_that_cannot_be_chosen_leave_none_asked():
    asked = live("tv_gp_ucb")
    question = asked.ask(5.0)
    asked.tell(question.id, 1.0)
    asked.ask(5.0)
    refused(asked, lambda: asked.ask(4.0, count=3), "time must be at or after the latest reward learned, 5.0")
    none = torch.zeros(12, dtype=torch.bool)
    refused(asked, lambda: asked.ask(6.0, none, count=3), "available must")

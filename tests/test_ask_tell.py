"""Live systems: rewards late, twice, out of order or never; arms that come; what is refused."""

import numpy as np
import pytest
import torch

from bandits_torch import AskTell, Domain, IndexPolicy, UpperConfidenceBound, recipes
from bandits_torch.policies import EventTriggeredRestart, Observation, SlidingWindow
from bandits_torch.theory import ConstantWidth, SrinivasBayesianWidth
from tests.reference.asking import IN_TURN, live, refused, reward_of
from tests.reference.index_policies import ARMS, KERNEL, N, arm_gp, drifting


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe_takes_or_refuses_late_rewards_as_documented(name):
    """Three questions open at once, answered in another order than asked."""
    asked = live(name)
    for step in range(0, 12, 3):
        questions = [asked.ask(float(step + k)) for k in range(3)]
        first, late = questions[2], (questions[0], questions[1])
        assert asked.tell(first.id, reward_of(first))
        for question in late:
            tell = lambda q=question: asked.tell(q.id, reward_of(q))  # noqa: E731
            if name in IN_TURN:
                refused(asked, tell, r"why\['turn'\] must be \d+, of a choice made since the last reward")
                assert question.id in asked.open
            else:
                assert tell()
    assert len(asked.open) == (8 if name in IN_TURN else 0)
    asked.ask(13.0)  # and it goes on


def test_under_drift_the_window_goes_by_time():
    def policy():
        model = arm_gp((1,), kernel=drifting(KERNEL))
        return IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(1.0), forgetting=SlidingWindow(3))

    late, in_time = policy(), policy()
    told = {1.0: 5, 4.0: 1, 2.0: 3, 6.0: 0, 3.0: 4, 5.0: 2}  # in the order of arrival
    for model, times in ((late, told), (in_time, sorted(told))):
        for time in times:
            arm = torch.tensor([told[time]])
            model.learn(Observation(time, arm, arm.double()))
    assert late.model.num_observations.tolist() == [3]
    torch.testing.assert_close(
        torch.stack(late.model.marginals(7.0)), torch.stack(in_time.model.marginals(7.0))
    )


def test_over_a_domain_rewards_come_late_in_any_order_and_each_counts_once():
    box = Domain(torch.tensor([[10.0, 0.1], [50.0, 0.9]], dtype=torch.float64))
    asked = AskTell.auto(box, search={"initial": 4, "num_restarts": 2, "raw_samples": 16})
    for step in range(6):
        asked.tell(asked.ask(float(step)).id, 0.1 * step)
    late = [asked.ask(6.0 + 0.5 * k) for k in range(3)]
    for question in (late[2], late[0], late[1]):
        assert asked.tell(question.id, 1.0)
        assert not asked.tell(question.id, 0.0)
    members = asked.policy.members
    assert int(members.num_held.max()) == 9
    last = torch.cat([late[k].arm for k in (2, 0, 1)])
    torch.testing.assert_close(members.inputs[0, -3:], members.unit_cube(last))
    assert (members.times.diff() >= 0).all()  # what is late counts as of now
    assert box.contains(asked.ask(9.0).arm).all()


def test_what_must_predict_a_reward_first_cannot_do_so_for_a_past_that_drifted():
    model = arm_gp((1,), kernel=drifting(KERNEL))
    rule = EventTriggeredRestart(0.1)
    asked = AskTell(IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(1.0), forgetting=rule))
    first, second = asked.ask(1.0), asked.ask(2.0)
    asked.tell(second.id, 0.5)
    refused(
        asked, lambda: asked.tell(first.id, 0.5), r"time must be .* at or after the latest observation, 2.0"
    )
    assert asked.drop(before=1.0) == 0
    assert asked.drop(before=2.0) == 1


@pytest.mark.parametrize(
    ("name", "act", "message"),
    [
        ("tv_gp_ucb", lambda asked: asked.predict(float("nan")), "at must be a finite number"),
        ("tv_gp_ucb", lambda asked: asked.predict("soon"), "at must be a finite number"),
        ("tv_gp_ucb", lambda asked: asked.predict(-1.0), "at must be at or after the latest reward learned"),
        ("tv_gp_ucb", lambda asked: asked.predict(3.0, torch.zeros(1, 2)), "points must be None if arms"),
        (
            "random",
            lambda asked: asked.predict(3.0),
            "policy must be one that predicts: .* got 'RandomPolicy'",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(name, act, message):
    asked = live(name)
    question = asked.ask(2.0)
    asked.tell(question.id, 0.3)
    refused(asked, lambda: act(asked), message)


def test_a_reward_is_of_the_arm_asked_about_whatever_becomes_of_the_question_s_tensor():
    asked, question = (one := live("gp_ucb")), one.ask(1.0)
    arm = question.arm.clone()
    question.arm.sub_(100)
    asked.tell(question, 1.0)
    assert torch.equal(asked.policy.model.train_inputs[0].flatten(), arm.double())


def test_arms_that_come_to_a_policy_come_with_the_width_of_their_number():
    policy = IndexPolicy(arm_gp((1,)), UpperConfidenceBound, width=SrinivasBayesianWidth(N, 0.1))
    with pytest.raises(
        ValueError, match="width must be given: SrinivasBayesianWidth was made for the present"
    ):
        policy.add_arms(ARMS[:1] + 5)
    wider = SrinivasBayesianWidth(N + 1, 0.1)
    policy.add_arms(ARMS[:1] + 5, width=wider)
    policy.choose(1.0)
    assert float(policy.trace()["width"]) == pytest.approx(float(wider(1, policy.model)))


def test_auto_is_told_what_the_recipe_can_be_told():
    asked = AskTell.auto(5, kernel=torch.eye(5).double(), noise_variance=0.1, replicates=3)
    assert asked.ask(1.0).arm.shape == (3,)
    with pytest.raises(TypeError, match="kernle"):
        AskTell.auto(5, kernle=torch.eye(5))
    with pytest.raises(ValueError, match="arms must be an integer >= 1, got 0"):
        AskTell.auto(0)
    with pytest.raises(ValueError, match="choices must be of one setting or more, got"):
        AskTell.auto({})


@pytest.mark.parametrize("choices", [2.5, "north", np.int64(3), np.eye(3), [[0.1], [0.2]]], ids=repr)
def test_choices_of_another_kind_are_refused_with_what_they_may_be(choices):
    with pytest.raises(ValueError, match=r"choices must be how many arms there are, .* or a Domain, got"):
        AskTell.auto(choices)


def test_text_is_the_name_of_an_arm_and_an_integer_the_number_of_a_question():
    live = AskTell.auto(["2", "1"])
    first, second = live.ask(0.0), live.ask(1.0)
    assert (first.name, second.name) == ("2", "1")
    assert live.tell("1", 5.0)
    assert live.open == (first.id,)
    assert not live.tell(1, 5.0)  # the second question, which was told
    with pytest.raises(ValueError, match="id must be the number of a question, 0 to 1, got 2"):
        live.tell(2, 5.0)

"""IndexPolicy: it plays the best available arm, and bad input is refused with nothing changed."""

import math

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition import UpperConfidenceBound as BoTorchUCB

from bandits_torch import ArmGP, IndexPolicy, OnlineGP, ThompsonSampling, UpperConfidenceBound
from bandits_torch.acquisition import StepContext
from bandits_torch.policies import Observation
from bandits_torch.policies.choices import choices_of
from bandits_torch.state import differing
from bandits_torch.theory import ConstantWidth
from tests.reference.arm_gp_twins import smooth
from tests.reference.index_policies import ARMS, KERNEL, POLICIES, N, S, arm_gp, drifting, play


@pytest.mark.parametrize("name", ["ucb", "drift", "online", "online, drift"])
def test_plays_the_arm_of_the_largest_index(name):
    policy = POLICIES[name]()
    play(policy, 5)
    if policy.acquisition is ThompsonSampling:
        policy.acquisition, policy.width = UpperConfidenceBound, ConstantWidth(2.0)
    mean, deviation = zip(
        *[policy.predict(torch.full((policy.replicates,), k), 6.0) for k in range(N)], strict=True
    )
    index = torch.stack(mean) + 2.0 * torch.stack(deviation)
    assert torch.equal(policy.choose(6.0).arm, index.argmax(0))


class FallingWidth(ConstantWidth):
    def at(self, step, model):
        return torch.tensor(2.0 - step, dtype=torch.float64)


def test_a_width_is_read_and_checked_at_every_step():
    policy = IndexPolicy(arm_gp(()), UpperConfidenceBound, width=FallingWidth(0.0))
    play(policy, 1)
    mean, _ = policy.marginals(2.0)
    assert float(policy.choose(2.0).why["index"]) == float(mean.max())  # the width is 0
    play(policy, 1, first=2)
    with pytest.raises(ValueError, match="width must be numbers >= 0, got"):
        policy.choose(3.0)


def test_a_policy_whose_model_is_replaced_plays_by_the_new_one():
    policy, other = (IndexPolicy(arm_gp(()), UpperConfidenceBound, width=ConstantWidth(2.0)) for _ in "ab")
    play(policy, 6)
    play(other, 2)
    expected = other.choose(7.0)
    assert policy.choose(7.0).why["index"] != expected.why["index"]
    policy.model = policy.choices.model = other.model
    assert torch.equal(policy.choose(7.0).why["index"], expected.why["index"])


class Scores(AcquisitionFunction):
    def __init__(self, model, scores):
        super().__init__(model)
        self.scores = scores

    def forward(self, X):
        return self.scores


def chosen(scores, available=None):
    scores = torch.tensor(scores, dtype=torch.float64)
    model = ArmGP(len(scores), smooth(len(scores)), 0.1, batch_shape=(scores.shape[1],))
    return IndexPolicy(model, lambda m: Scores(m, scores)).choose(1.0, available).arm.tolist()


def test_a_function_that_makes_acquisitions_is_not_called_before_the_first_choice():
    calls = []
    model = ArmGP(3, smooth(3), 0.1)
    policy = IndexPolicy(model, lambda m: calls.append(m) or Scores(m, torch.zeros(3, 1)))
    assert calls == []
    policy.choose(1.0)
    assert calls == [model]


NAN, INF = math.nan, math.inf
SECOND_AND_FOURTH = torch.tensor([False, True, False, True])


@pytest.mark.parametrize(
    ("scores", "available", "arms"),
    [
        ([[1.0, 2.0], [3.0, 2.0], [3.0, 1.0]], None, [1, 0]),
        ([[NAN, -1e300], [-1e300, NAN], [NAN, NAN]], None, [1, 0]),
        ([[1e308, -INF], [INF, -1e308]], None, [1, 1]),
        ([[5.0], [NAN], [INF], [NAN]], SECOND_AND_FOURTH, [1]),
        ([[5.0], [-INF], [INF], [-INF]], SECOND_AND_FOURTH, [1]),
    ],
    ids=["the first of equals", "any number before nan", "infinities", "a mask, nan", "a mask, -inf"],
)
def test_the_largest_available_index_is_chosen(scores, available, arms):
    assert chosen(scores, available) == arms


@pytest.mark.parametrize("batch", [(), (S,)])
@pytest.mark.parametrize("acquisition", [UpperConfidenceBound, ThompsonSampling])
@pytest.mark.parametrize("drift", [False, True])
def test_a_model_over_any_inputs_plays_as_the_arm_model_does(drift, acquisition, batch):
    kernel = drifting(KERNEL) if drift else KERNEL
    model = arm_gp(batch, kernel=kernel, form="factor")  # draws from a Cholesky factor, as over any inputs
    over_arms = IndexPolicy(model, acquisition, width=ConstantWidth(1.5), seed=2)
    online = OnlineGP(kernel, 0.1, input_dim=2 if drift else 1, batch_shape=batch)
    over_inputs = IndexPolicy(online, acquisition, width=ConstantWidth(1.5), choices=ARMS, seed=2)
    assert torch.equal(play(over_inputs, 15), play(over_arms, 15))


@pytest.mark.parametrize("bad", [0, 2.5, True, "three", None, torch.zeros(3)])
def test_what_is_nothing_to_choose_from_is_refused(bad):
    with pytest.raises(ValueError, match="choices"):
        choices_of(bad)


def test_a_plain_botorch_class_or_function_knows_nothing_of_a_step():
    asked = []

    def with_width(model, width):
        asked.append(width)
        return BoTorchUCB(model, beta=float(width) ** 2)

    model = arm_gp(())
    plain = IndexPolicy(model, lambda model: BoTorchUCB(model, beta=4.0))
    assert plain.choose(1.0).arm.shape == (1,)
    wide = IndexPolicy(model, with_width, width=ConstantWidth(2.0))
    assert torch.equal(wide.choose(1.0).why["index"], plain.choose(1.0).why["index"])
    assert [float(width) for width in asked] == [2.0]


def test_an_acquisition_that_wants_more_is_told_time_and_width():
    seen = []

    class Spy(ThompsonSampling):
        @classmethod
        def at_step(cls, model, step):
            seen.append(step)
            return super().at_step(model, step)

    IndexPolicy(arm_gp(()), Spy, width=ConstantWidth(1.5)).choose(4.0)
    assert isinstance(seen[0], StepContext)
    assert (seen[0].time, float(seen[0].width)) == (4.0, 1.5)


def test_bad_parts_are_refused_and_change_nothing():
    policy, over_inputs = POLICIES["ucb"](), OnlineGP(KERNEL, 0.1, input_dim=1)
    play(policy, 3)
    model, before = policy.model, policy.state_dict()
    observation = Observation(1.0, torch.zeros(S, dtype=torch.long), torch.ones(S, dtype=torch.float64))
    everywhere = torch.ones(S, dtype=torch.bool)
    for message, call in (
        ("choices", lambda: IndexPolicy(arm_gp(), UpperConfidenceBound, choices=ARMS)),
        ("choices", lambda: IndexPolicy(over_inputs, UpperConfidenceBound)),
        ("model.batch_shape", lambda: IndexPolicy(arm_gp((2, 3)), UpperConfidenceBound)),
        ("width", lambda: IndexPolicy(arm_gp(), UpperConfidenceBound)),
        ("keeps everything", lambda: POLICIES["restart"]().learn_where(observation, everywhere)),
        ("width must be a Width", lambda: policy.add_arms(ARMS[:2] + 0.01, width=2.0)),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert policy.model is model
    assert policy.num_arms == N
    assert not differing(policy.state_dict(), before)


@pytest.mark.parametrize("name", ["ucb", "drift"])
def test_what_is_learned_in_some_replicates_is_learned_there_alone(name):
    policy, alone = POLICIES[name](), POLICIES[name]()
    for each in (policy, alone):
        play(each, 3)
    before = [moments.clone() for moments in alone.marginals(6.0)]
    where = torch.arange(S) == 1
    observation = Observation(5.0, torch.full((S,), 2), torch.ones(S, dtype=torch.float64))
    policy.learn_where(observation, where)
    alone.learn(observation)
    for learned, same, wrong in zip(policy.marginals(6.0), alone.marginals(6.0), before, strict=True):
        torch.testing.assert_close(learned[where], same[where], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(learned[~where], wrong[~where], rtol=1e-12, atol=1e-12)
    assert torch.equal(policy.clock, 3 + where.long())

"""What one option of an ``AskTell`` does under another: units and kinds of rewards, contexts, points, predictions."""

import math

import pytest
import torch

from bandits_torch import ArmContext, AskTell, Domain, recipes
from bandits_torch.policies import CentredPolicy, Observation
from tests.reference.kernels import rbf
from tests.reference.plain_contextual import PlainCGPUCB, forgetting, se

ARMS = torch.linspace(0, 1, 5).double().unsqueeze(-1)
CONTEXTS = torch.tensor([[0.1], [0.5], [0.9]]).double()
DOMAIN = Domain(torch.tensor([[0.0], [1.0]]).double())


def kernel(scale=0.3):
    return rbf(scale)


def contextual(**options):
    told = {"context_dim": 1, "context_kernel": kernel(0.5), "width": 2.0}
    return recipes.cgp_ucb(ARMS, kernel(), 0.04, **told, **options)


def at(k):
    return ArmContext(CONTEXTS[k % 3])


def play(asked, steps, reward, context=True):
    told = []
    for step in range(steps):
        question = asked.ask(float(step), at(step)) if context else asked.ask(float(step))
        told.append((int(question.arm), reward(step)))
        asked.tell(question.id, told[-1][1])
    return told


@pytest.mark.parametrize("listed", [False, True])
def test_a_unit_is_learned_under_contexts_and_predicted_in(listed):
    options = {"contexts": CONTEXTS} if listed else {}
    scaled = AskTell(contextual(**options), standardise=True)
    told = play(scaled, 8, lambda step: 1_000.0 + 30.0 * step)
    offset, scale = scaled.unit
    plain = AskTell(contextual(**options))  # told of the same in that unit
    for step, (arm, reward) in enumerate(told):
        mask = torch.arange(5) == arm
        question = plain.ask(float(step), ArmContext(CONTEXTS[step % 3], available=mask))
        plain.tell(question.id, (reward - float(offset)) / float(scale))
    mean, deviation = scaled.predict(9.0, context=at(1))
    expected, spread = plain.predict(9.0, context=at(1))
    torch.testing.assert_close(mean, offset + scale * expected, rtol=0, atol=1e-8 * float(scale))
    torch.testing.assert_close(deviation, scale * spread, rtol=0, atol=1e-8 * float(scale))


def test_predictions_of_arms_and_points_are_in_the_unit_of_rewards():
    over_arms = AskTell(recipes.gp_ucb(ARMS, kernel(), 0.01, width=2.0), standardise=True)
    over_points = AskTell(recipes.gp_ucb(DOMAIN, kernel(), 0.01, width=2.0), standardise=True)
    for asked, points in ((over_arms, None), (over_points, ARMS)):
        play(asked, 8, lambda step: 500.0 + step % 2, context=False)
        mean, deviation = asked.predict(8.0, points)
        assert mean.shape == deviation.shape == (1, 5)
        assert bool(((mean > 498) & (mean < 503) & (deviation < 3)).all())


def test_the_past_under_contexts_is_told_with_all_that_is_known_since():
    space, under = (rbf(torch.tensor(scale, dtype=torch.float64)) for scale in (0.3, 0.5))
    options = {"context_dim": 1, "context_kernel": under, "width": 2.0, "forgetting_rate": 0.2}
    live = AskTell(recipes.tv_cgp_ucb(ARMS, space, 0.04, **options))
    twin = PlainCGPUCB(se(0.3), se(0.5), 0.04, width=lambda t: 2.0, over_time=forgetting(0.2))
    for t, (arm, reward) in enumerate(play(live, 12, lambda step: math.sin(0.7 * step))):
        twin.learn(ARMS[arm].tolist(), CONTEXTS[t % 3].tolist(), float(t), reward)
    mean, deviation = live.predict(4.0, context=at(1))
    expected, spread = twin.posterior(ARMS.tolist(), CONTEXTS[1].tolist(), 4.0)
    assert mean[0].tolist() == pytest.approx(expected, rel=1e-8, abs=1e-10)
    assert deviation[0].tolist() == pytest.approx(spread, rel=1e-8, abs=1e-10)


def test_rewards_of_0_and_1_are_learned_in_their_own_contexts():
    live = AskTell(contextual(contexts=CONTEXTS), rewards="binary")
    play(live, 30, lambda step: int(step % 3 == 0))  # always in the first context, never in the others
    yes, no = (live.predict(30.0, context=at(k))[0].max() for k in (0, 2))
    assert float(yes) > 0.57
    assert float(no) < 0.5
    yes, no = (live.predict(30.0, context=at(k), latent=True)[0].max() for k in (0, 2))
    assert float(yes) > 0.3
    assert float(no) < 0.0


def test_late_binary_rewards_count_in_the_context_of_their_question():
    live, prompt = (AskTell(contextual(contexts=CONTEXTS), rewards="binary") for _ in range(2))
    other = ArmContext(CONTEXTS[2], available=torch.arange(5) == 3)
    late = live.ask(0.0, at(0))
    live.tell(live.ask(1.0, other).id, 0)
    live.tell(late.id, 1)
    prompt.tell(prompt.ask(1.0, other).id, 0)
    same = ArmContext(CONTEXTS[0], available=torch.arange(5) == int(late.arm))
    prompt.tell(prompt.ask(2.0, same).id, 1)
    for k in range(3):
        torch.testing.assert_close(
            live.predict(2.0, context=at(k)), prompt.predict(2.0, context=at(k)), rtol=0, atol=1e-12
        )


def test_a_policy_around_one_that_believes_nothing_is_refused_by_the_inner_name():
    asked = AskTell(recipes.ucb1(5), standardise=True)
    with pytest.raises(ValueError, match=r"policy must be one that predicts.*'UCB1'"):
        asked.predict(0.0)


@pytest.mark.parametrize("options", [{}, {"contexts": CONTEXTS}])
def test_a_context_by_itself_is_refused_with_the_way_to_tell_it(options):
    asked = AskTell(contextual(**options))
    with pytest.raises(ValueError, match="available must be a mask of booleans; a context in an ArmContext"):
        asked.ask(0.0, CONTEXTS[0])
    assert asked.asked == 0
    for call in (asked.ask, asked.predict, asked.policy.choose):
        with pytest.raises(ValueError, match=r"^context must be 1 number .*: `context=` of .*ArmContext"):
            call(0.0)
    with pytest.raises(ValueError, match=r"pass `choice\.why` to the observation"):
        asked.policy.learn(Observation(0.0, torch.tensor([0]), torch.ones(1).double()))
    assert asked.asked == 0


def test_a_missing_name_of_a_context_is_refused_with_the_names():
    live = AskTell.auto(["short", "long"], contexts=["phone", "desk"])
    for call in (live.ask, live.predict):
        with pytest.raises(ValueError, match=r"^context must be one of phone, desk, got None"):
            call(0.0)


@pytest.mark.parametrize("over", ["arms", "points", "contexts"])
def test_a_prior_mean_that_is_taken_off_is_put_back_into_predictions(over):
    def build(**options):
        if over == "contexts":
            return contextual(**options)
        return recipes.gp_ucb(ARMS if over == "arms" else DOMAIN, kernel(), 0.01, width=2.0, **options)

    plain, known = AskTell(CentredPolicy(build(), 40.0)), AskTell(build(prior_mean=40.0))
    told, context = {"points": ARMS if over == "points" else None}, over == "contexts"
    told |= {"context": at(6)} if context else {}
    for asked in (plain, known):
        play(asked, 6, lambda step: 40.0 + 0.1 * step, context=context)
    atol = 1e-5 if over == "points" else 1e-9  # a search ends within its tolerance
    torch.testing.assert_close(plain.predict(6.0, **told), known.predict(6.0, **told), rtol=0, atol=atol)
    for reward in (float("nan"), 1e200):
        with pytest.raises(ValueError, match=r"^reward must be"):
            plain.tell(plain.ask(6.0, **({"available": at(6)} if context else {})).id, reward)

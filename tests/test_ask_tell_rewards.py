"""Rewards as they come: in any unit, 0 and 1, counts, several at once."""

import math

import pytest
import torch

from bandits_torch import ArmGP, AskTell, load_policy, recipes, save_policy
from bandits_torch.checkpoint import described
from bandits_torch.policies import CentredPolicy, CostlyMoves, LatentRewards
from bandits_torch.policies.counted import as_gaussian, in_rewards
from bandits_torch.state import differing
from tests.reference.asking import alike, refused
from tests.reference.kernels import rbf

N = 7
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
KERNEL = rbf(0.3)
DOUBLE = {"dtype": torch.float64}


def wave(arm, step):
    return torch.sin(1.7 * arm.double() + 0.3 * step)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 16, 64, 90])
def test_belief_is_that_of_the_prior_moved_and_stretched_told_of_the_rewards_as_they_are(steps):
    """Through the warm-up and past it, each replicate by its own unit."""
    asked = AskTell(recipes.gp_ucb(ARMS, KERNEL, 0.1, prior_mean=0.2, replicates=2), standardise=True)
    seen = []

    def reward(arm, step):
        value = torch.tensor([5000.0, -3.0], **DOUBLE) + torch.tensor([800.0, 0.02], **DOUBLE) * wave(
            arm, step
        )
        seen.append((arm, value))
        return value

    alike(range(steps), reward, asked)
    offset, scale = asked.unit
    counted = min(64, 2 ** int(math.log2(steps)))
    first = torch.stack([value for _, value in seen[:counted]])
    torch.testing.assert_close(offset, first.mean(0))
    torch.testing.assert_close(scale, first.std(0, correction=0) if steps > 1 else torch.ones(2, **DOUBLE))
    mean, variance = asked.policy.marginals(float(steps))
    with torch.no_grad():
        K = KERNEL(ARMS).to_dense()
    for s in range(2):
        own = ArmGP(
            N,
            float(scale[s]) ** 2 * K,
            0.1 * float(scale[s]) ** 2,
            prior_mean=float(offset[s] + 0.2 * scale[s]),
        )
        for arm, value in seen:
            own.observe_arms(arm[s], value[s])
        expected = own.marginals()
        torch.testing.assert_close(mean[s], expected[0], rtol=1e-9, atol=1e-9 * float(scale[s]))
        torch.testing.assert_close(variance[s], expected[1], rtol=1e-7, atol=1e-9 * float(scale[s]) ** 2)


def test_a_standardised_policy_is_saved_in_its_warm_up_and_goes_on(tmp_path):
    def made():
        return AskTell(recipes.tv_gp_ucb(ARMS, KERNEL, 0.1), standardise=True)

    one, other = made(), made()
    alike(range(21), wave, one)
    save_policy(tmp_path / "live", one)
    load_policy(tmp_path / "live", other)
    alike(range(21, 81), wave, one, other)
    assert torch.equal(one.unit[1], other.unit[1])


def test_equal_rewards_leave_the_scale_at_1_and_noise_is_in_units_of_reward():
    asked = AskTell(gp(), standardise=True)
    alike(range(8), lambda arm, step: torch.tensor([1e6 + 0.1], **DOUBLE), asked)
    assert asked.unit[1].tolist() == [1.0]
    asked = AskTell(gp(), standardise=True)
    for step, reward in enumerate((10.0, 30.0)):
        asked.tell(asked.ask(float(step)).id, reward, noise_variance=25.0)
    own = ArmGP(ARMS, KERNEL, 0.1)
    offset, scale = (float(x) for x in asked.unit)
    assert (offset, scale) == (20.0, 10.0)
    arms = asked.policy.policy.model.train_inputs[0].flatten().long().tolist()
    for arm, reward in zip(arms, (-1.0, 1.0), strict=True):
        own.observe_arms(torch.tensor(arm), torch.tensor(reward, **DOUBLE), noise_variance=torch.tensor(0.25))
    torch.testing.assert_close(asked.policy.policy.model.marginals()[1][0], own.marginals()[1])


def by_quadrature(kind, rewards, mean, variance):
    """Mean and variance of f given rewards of one arm, on a grid."""
    half = 12 * math.sqrt(variance) + 12
    f = torch.linspace(mean - half, mean + half, 400_001, **DOUBLE)
    log = -((f - mean) ** 2) / (2 * variance)
    for y in rewards:
        log = log + (y * f - torch.nn.functional.softplus(f) if kind == "binary" else y * f - f.exp())
    share = torch.softmax(log, -1)
    after = (share * f).sum()
    return float(after), float((share * (f - after) ** 2).sum())


@pytest.mark.parametrize("kind", ["binary", "counts"])
@pytest.mark.parametrize("variance", [0.01, 1.0, 25.0])
@pytest.mark.parametrize("mean", [-4.0, 0.0, 2.5])
def test_one_reward_changes_the_belief_as_quadrature_says(kind, variance, mean):
    rewards = torch.tensor([0.0, 1.0] if kind == "binary" else [0.0, 1.0, 7.0, 300.0], **DOUBLE)
    replicates = (torch.full_like(rewards, x) for x in (mean, variance))
    for y, z, r in zip(rewards, *as_gaussian(kind, rewards, *replicates), strict=True):
        precision = 1 / variance + 1 / float(r)
        exact = by_quadrature(kind, [y], mean, variance)
        assert 1 / precision == pytest.approx(exact[1], rel=2e-5)
        found = (mean / variance + float(z / r)) / precision
        assert found == pytest.approx(exact[0], abs=2e-5 * math.sqrt(exact[1]) + 1e-9)


def test_one_reward_changes_an_almost_flat_belief_as_quadrature_says():
    """Newton's steps towards the mode of this belief go back and forth across it, inside any bracket."""
    mean, variance = -2.881, 8835.5
    z, r = as_gaussian("binary", *(torch.tensor([x], **DOUBLE) for x in (1.0, mean, variance)))
    after, narrowed = by_quadrature("binary", [1.0], mean, variance)
    assert float(r) == pytest.approx(1 / (1 / narrowed - 1 / variance), rel=1e-6)
    assert float(z) == pytest.approx(float(r) * (after / narrowed - mean / variance), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "rewards"), [("binary", [1, 0, 1, 1, 1, 0, 1, 1] * 4), ("counts", [3, 5, 4, 6, 2, 4, 3, 5])]
)
def test_many_rewards_of_an_arm_agree_with_quadrature_to_a_tenth_of_a_deviation(kind, rewards):
    """The approximation: the belief is taken for a Gaussian after each of them."""
    asked = AskTell(recipes.gp_ucb(1, torch.eye(1, **DOUBLE), 0.1), rewards=kind)
    for step, reward in enumerate(rewards):
        asked.tell(asked.ask(float(step)).id, reward)
    mean, variance = (float(x) for x in asked.policy.latent_marginals(0.0))
    exact = by_quadrature(kind, rewards, 0.0, 1.0)
    assert abs(mean - exact[0]) < 0.1 * math.sqrt(exact[1])
    assert variance == pytest.approx(exact[1], rel=0.1)
    assert exact[1] < 0.3  # much was learned


def of_rewards(kind, mean, deviation):
    """Mean and deviation of a probability or a rate whose f is N(mean, deviation^2), on a grid."""
    f = mean + deviation * torch.linspace(-20, 20, 400_001, **DOUBLE)
    share = torch.softmax(-((f - mean) ** 2) / (2 * deviation**2), -1)
    value = torch.sigmoid(f) if kind == "binary" else f.exp()
    expected = (share * value).sum()
    return float(expected), float((share * (value - expected) ** 2).sum().sqrt())


@pytest.mark.parametrize(
    ("kind", "variance"),
    [(kind, v) for kind in ("binary", "counts") for v in (1e-8, 0.01, 1.0, 9.0)] + [("binary", 400.0)],
)
@pytest.mark.parametrize("mean", [-30.0, -4.0, 0.0, 2.5])
def test_beliefs_in_rewards_are_those_of_quadrature(kind, variance, mean):
    found = in_rewards(kind, *(torch.tensor([[x]], **DOUBLE) for x in (mean, variance)))
    exact = of_rewards(kind, mean, math.sqrt(variance))
    assert float(found[0]) == pytest.approx(exact[0], rel=1e-7)
    assert float(found[1].sqrt()) == pytest.approx(exact[1], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_are_predicted_in_counts_and_answers_of_0_and_1_as_probabilities(dtype):
    """60 counts of 50; 60 answers of which 45 are 1: the belief's deviation is near that of their mean."""
    prior = (1, torch.full((1, 1), 16.0, dtype=dtype), 0.1)
    counts = AskTell(recipes.gp_ucb(*prior), rewards="counts")
    answers = AskTell(recipes.gp_ucb(*prior), rewards="binary")
    for step in range(60):
        counts.tell(counts.ask(float(step)).id, 50)
        answers.tell(answers.ask(float(step)).id, int(step % 4 > 0))
    mean, deviation = (float(x) for x in counts.predict(60.0))
    assert mean == pytest.approx(50, rel=0.01)
    assert deviation == pytest.approx(math.sqrt(50 / 60), rel=0.05)
    mean, deviation = (float(x) for x in answers.predict(60.0))
    assert mean == pytest.approx(0.75, abs=0.02)
    assert deviation == pytest.approx(math.sqrt(0.75 * 0.25 / 60), rel=0.1)
    for live, expected in ((counts, math.log(50)), (answers, math.log(3))):
        mean, _ = live.predict(60.0, latent=True)
        assert float(mean) == pytest.approx(expected, rel=0.1)


def test_several_rewards_at_once_are_those_told_one_by_one():
    one, many = (AskTell(gp()) for _ in range(2))
    for asked in (one, many):
        asked.ask(1.0, count=4)
    noise = [0.1, None, 0.5, 0.2]
    for id, r in zip((2, 0, 3, 1), noise, strict=True):
        one.tell(id, float(id), noise_variance=r)
    assert many.tell_many([2, 0, 3, 1, 2], [2.0, 0.0, 3.0, 1.0, 9.0], noise_variance=[*noise, None]) == [
        *[True] * 4,
        False,
    ]
    assert described(one.state_dict()) == described(many.state_dict())


@pytest.mark.parametrize(
    ("ids", "rewards", "options", "message"),
    [
        ([0, 1], [1.0, math.nan], {}, "reward must be finite"),
        ([0, 9], [1.0, 2.0], {}, "id must be the number of a question"),
        ([0, 1], [1.0], {}, "rewards must be one for each of the 2 ids"),
        ([0, 1], [1.0, 2.0], {"noise_variance": [0.1, -0.1]}, "noise_variance must be above 0"),
        ([0, 1], [1.0, 2.0], {"outcomes": [None, [1.0]]}, "outcomes must be None"),
    ],
)
def test_several_rewards_are_learned_all_or_none(ids, rewards, options, message):
    asked = AskTell(recipes.tv_gp_ucb(ARMS, KERNEL, 0.1))
    asked.ask(1.0, count=3)
    refused(asked, lambda: asked.tell_many(ids, rewards, **options), message)


def test_several_rewards_are_learned_all_or_none_if_interrupted(monkeypatch):
    asked = AskTell(recipes.tv_gp_ucb(ARMS, KERNEL, 0.1))
    asked.ask(1.0, count=3)
    before, learn = asked.state_dict(), asked.policy.learn

    def interrupted(observation):
        learn(observation)
        if len(asked.open) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(asked.policy, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        asked.tell_many([0, 1, 2], [1.0, 2.0, 3.0])
    assert not differing(asked.state_dict(), before)


FACTOR, LATENT = {"form": "factor"}, "latent must be False unless rewards are binary or counts"
NO_SYSTEM = [
    (lambda: AskTell(gp(), rewards="counts", standardise=True), "standardise must be False"),
    (lambda: AskTell(recipes.ucb1(N), rewards="binary"), "policy must be an IndexPolicy"),
    (
        lambda: AskTell(recipes.auto(N), standardise=True),
        r"it learns the unit by itself\), got .ModelAveraging",
    ),
    (lambda: AskTell(gp(**FACTOR), rewards="binary"), "form='factor'"),
    (
        lambda: CentredPolicy(CostlyMoves(LatentRewards(gp(), "binary")), 0.5),
        "policy must be one that learns any numbers, not 0 and 1, or counts, got 'CostlyMoves'",
    ),
    *(
        (lambda one=one: AskTell(gp(), standardise=one).predict(0.0, latent=True), LATENT)
        for one in (False, True)
    ),
]


def gp(**options):
    return recipes.gp_ucb(ARMS, KERNEL, 0.1, **options)


@pytest.mark.parametrize(("act", "message"), NO_SYSTEM)
def test_what_does_not_fit_is_refused_by_name(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.parametrize(("kind", "wrong"), [("binary", 2.0), ("counts", 1.5)])
def test_rewards_of_another_kind_are_refused(kind, wrong):
    asked = AskTell(gp(), rewards=kind)
    question = asked.ask(1.0)
    refused(asked, lambda: asked.tell(question.id, 1.0, noise_variance=0.1), "noise_variance must be None")
    expected = {"binary": "reward must be 0 or 1", "counts": "reward must be integers"}[kind]
    refused(asked, lambda: asked.tell(question.id, wrong), expected)
    refused(asked, lambda: asked.tell(question.id, -1.0), "reward must be")
    assert AskTell(gp()).unit is None

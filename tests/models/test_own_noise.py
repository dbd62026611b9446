"""Rewards with a noise variance of their own: copies, rebuilding, questions, and who refuses them."""

import math

import pytest
import torch

from bandits_torch import ArmGP, AskTell, recipes
from bandits_torch.checkpoint import described
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import Observation
from tests.reference import all_recipes
from tests.reference.kernels import rbf

N, NOISE, RATE = 8, 0.1, 0.1
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
SPACE = rbf(0.3)
DRIFTING = SpatioTemporalKernel(SPACE, ExponentialForgettingKernel(RATE))


def told(count, seed=0, members=2):
    """(arm, reward, time, noise or None) of every observation, a third of them of the model's noise."""
    generator = torch.Generator().manual_seed(seed)
    for k in range(count):
        arm = torch.randint(N, (members,), generator=generator)
        reward = torch.randn(members, generator=generator).double()
        noise = 0.01 * 100 ** torch.rand(members, generator=generator).double()
        yield arm, reward, float(k), None if k % 3 == 0 else noise


def model_of(kernel=SPACE, **options):
    return ArmGP(ARMS, kernel, NOISE, prior_mean=0.3, batch_shape=(2,), **options)


def learn(model, seen):
    for arm, reward, time, noise in seen:
        model.observe_arms(arm, reward, time if model.drifts else None, noise_variance=noise)
    return model


def assert_same(one, other, now=100.0):
    """Moments, gain and likelihood."""
    said = [(*m.joint(now if m.drifts else None), m.information_gain, m.log_likelihood) for m in (one, other)]
    torch.testing.assert_close(*said, rtol=1e-9, atol=1e-9)


def test_a_rebuild_for_rounding_errors_counts_each_reward_by_its_precision():
    model, sound = (learn(model_of(form="covariance"), told(30)) for _ in range(2))
    model._belief.form.mean.add_(1e-3)
    model._belief.form.suspect.fill_(True)
    model._belief._mend(0.0, [True, True])
    assert_same(model, sound)


def test_after_a_reset_rewards_have_the_models_noise_again():
    model, plain = learn(model_of(), told(5)), [(*seen, None) for *seen, _ in told(9, seed=4)]
    model.reset()
    assert_same(learn(model, plain), learn(model_of(), plain))
    model.forget()


def test_what_needs_one_noise_variance_refuses_several():
    model = ArmGP(ARMS, SPACE, NOISE)
    model.observe_arms(torch.tensor(1), torch.tensor(0.25).double(), noise_variance=torch.tensor(0.2))
    for act in (model.forget, model.held, lambda: model.slide(3)):
        with pytest.raises(
            ValueError, match="noise_variance of single rewards must be None for every reward held"
        ):
            act()
    assert model.train_targets.tolist() == [0.25]
    factor = ArmGP(ARMS, SPACE, NOISE, form="factor")
    for bad, of, message in (
        (torch.tensor(0.2), factor, "noise_variance must be None for form='factor'"),
        (torch.tensor(-0.2), model, "noise_variance must be above 0"),
        (torch.tensor(math.nan), model, "noise_variance must be finite"),
        (torch.tensor(2), model, "noise_variance must be real numbers"),
    ):
        before = described(of.state_dict())
        with pytest.raises(ValueError, match=message):
            of.observe_arms(torch.tensor(1), torch.tensor(0.3).double(), noise_variance=bad)
        assert described(of.state_dict()) == before


@pytest.mark.parametrize("name", ["gp_ucb", "tv_gp_ucb", "band_gp_ucb", "igp_ucb", "predictive_sampling"])
def test_a_question_is_answered_with_its_noise(name):
    drifts = name in ("tv_gp_ucb", "band_gp_ucb", "predictive_sampling")
    rate = {"forgetting_rate": RATE} if drifts else {}
    policy = getattr(recipes, name)(ARMS, SPACE, NOISE, replicates=2, prior_mean=0.3, **rate)
    asked, seen = AskTell(policy), []
    for step in range(7):
        question = asked.ask(float(step))
        noise = None if step == 2 else torch.tensor([0.5, 0.02 + step]).double()
        reward = torch.tensor([1.0, -0.3 * step]).double()
        asked.tell(question.id, reward, noise_variance=noise)
        seen.append((question.arm, reward, float(step), noise))
    assert_same(policy.model, learn(model_of(DRIFTING if drifts else SPACE), seen))


TAKEN = {"gp_ucb", "tv_gp_ucb", "ui_gp_ucb", "band_gp_ucb", "igp_ucb", "gp_ts", "known_prior_gp_ucb"}
TAKEN |= {"gp_ei", "gp_pi", "predictive_sampling"}


@pytest.mark.parametrize("name", sorted(recipes.RECIPES.keys() - TAKEN))
def test_every_other_recipe_refuses_a_noise_of_its_own_and_outcomes_by_name(name):
    policy, _ = all_recipes.build(name, 1, 20)
    asked = AskTell(policy)
    question = asked.ask(1.0)
    before = described(asked.state_dict())
    for told in ({"noise_variance": 0.1}, {"outcomes": [0.0]}):
        with pytest.raises(ValueError, match=f"{next(iter(told))} must be None"):
            asked.tell(question.id, 0.5, **told)
    assert described(asked.state_dict()) == before
    bare = Observation(
        1.0, question.arm, torch.tensor([0.5]).double(), {}, None, torch.tensor([0.1]).double()
    )
    with pytest.raises(ValueError, match="must be"):
        policy.learn(bare)

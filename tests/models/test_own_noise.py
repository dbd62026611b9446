"""Rewards with a noise variance of their own: the posterior is that of a dense Gaussian process."""

import copy
import math

import pytest
import torch

from bandits_torch import ArmGP, AskTell, recipes
from bandits_torch.checkpoint import described
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import Observation
from tests.reference import all_recipes
from tests.reference.dense_gp import dense_posterior
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


def agree(model, seen, drifts, now):
    """Means, variances, gain and likelihood with those of one dense solve for each member."""
    mean, variance = model.marginals(now) if drifts else model.marginals()
    for m in range(2):
        X = torch.stack([torch.tensor([float(ARMS[arm[m]]), time]).double() for arm, _, time, _ in seen])
        y = torch.stack([reward[m] for _, reward, _, _ in seen])
        noise = torch.stack(
            [torch.tensor(NOISE, dtype=torch.float64) if r is None else r[m] for *_, r in seen]
        )

        def k(a, b):
            with torch.no_grad():
                space = SPACE(a[:, :1], b[:, :1]).to_dense()
            return space * (1 - RATE) ** ((a[:, 1:] - b[:, 1]).abs() / 2) if drifts else space

        test = torch.cat([ARMS, torch.full_like(ARMS, now)], -1)
        dense = dense_posterior(k, X, y - 0.3, noise, test)
        torch.testing.assert_close(mean[m], dense.mean + 0.3, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(variance[m], dense.covariance.diagonal(), rtol=1e-9, atol=1e-9)
        assert float(model.information_gain[m]) == pytest.approx(dense.gain, rel=1e-9)
        A = k(X, X) + noise.diag()
        fit = -0.5 * ((y - 0.3) @ torch.linalg.solve(A, y - 0.3) + torch.linalg.slogdet(A).logabsdet)
        expected = float(fit) - 0.5 * len(y) * math.log(2 * math.pi)
        assert float(model.log_likelihood[m]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize("form", ["auto", "covariance"])
def test_posterior_gain_and_likelihood_are_those_of_a_dense_gp(form, drifts):
    """Past the first look at rounding errors, through a copy of the state, and in a wider batch."""
    model = ArmGP(ARMS, DRIFTING if drifts else SPACE, NOISE, prior_mean=0.3, form=form, batch_shape=(2,))
    seen = []
    for arm, reward, time, noise in told(90):
        model.observe_arms(arm, reward, time if drifts else None, noise_variance=noise)
        seen.append((arm, reward, time, noise))
        if len(seen) in (1, 2, 40, 90):
            agree(model, seen, drifts, time + 1.5)
    again = ArmGP(ARMS, DRIFTING if drifts else SPACE, NOISE, prior_mean=0.3, form=form, batch_shape=(2,))
    again.load_state_dict(copy.deepcopy(model.state_dict()))
    wide = model.expand(torch.Size([3, 2]))
    for arm, reward, time, noise in told(5, seed=1):
        seen.append((arm, reward, time + 90, noise))
        for one in (model, again, wide):
            one.observe_arms(arm, reward, time + 90 if drifts else None, noise_variance=noise)
    agree(model, seen, drifts, 96.0)
    agree(again, seen, drifts, 96.0)
    torch.testing.assert_close(wide.marginals()[0][1], model.marginals()[0], rtol=0, atol=1e-12)
    model._belief.relearn(model._belief.form_name)  # nothing of it hangs on the order of learning
    agree(model, seen, drifts, 96.0)


def test_a_rebuild_for_rounding_errors_counts_each_reward_by_its_precision():
    model = ArmGP(ARMS, SPACE, NOISE, prior_mean=0.3, form="covariance", batch_shape=(2,))
    seen = list(told(30))
    for arm, reward, _, noise in seen:
        model.observe_arms(arm, reward, noise_variance=noise)
    model._belief.form.mean.add_(1e-3)
    model._belief.form.suspect.fill_(True)
    model._belief._mend(0.0, [True, True])
    agree(model, seen, False, 0.0)


def test_late_rewards_keep_their_noise():
    model = ArmGP(ARMS, DRIFTING, NOISE, prior_mean=0.3, batch_shape=(2,))
    seen = list(told(14))
    for arm, reward, time, noise in [*seen[:4], *seen[9:], *seen[4:9]]:
        model.observe_arms(arm, reward, time, noise_variance=noise, late=True)
    agree(model, seen, True, 15.0)


def test_after_a_reset_rewards_have_the_models_noise_again():
    model = ArmGP(ARMS, SPACE, NOISE, prior_mean=0.3, batch_shape=(2,))
    for arm, reward, _, noise in told(5):
        model.observe_arms(arm, reward, noise_variance=noise)
    model.reset()
    seen = [(arm, reward, time, None) for arm, reward, time, _ in told(9, seed=4)]
    for arm, reward, _, _ in seen:
        model.observe_arms(arm, reward)
    agree(model, seen, False, 0.0)
    model.forget()


def test_what_needs_one_noise_variance_refuses_several():
    model = ArmGP(ARMS, SPACE, NOISE)
    model.observe_arms(torch.tensor(1), torch.tensor(0.25).double(), noise_variance=torch.tensor(0.2))
    for act in (model.forget, model.held, lambda: model.slide(3)):
        with pytest.raises(ValueError, match="noise_variance of single rewards must be the model's"):
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
    policy = getattr(recipes, name)(ARMS, SPACE, NOISE, replicates=2, prior_mean=0.3)
    asked, seen = AskTell(policy), []
    drifts = name in ("tv_gp_ucb", "band_gp_ucb", "predictive_sampling")
    if drifts:
        build = getattr(recipes, name)
        policy = build(ARMS, SPACE, NOISE, replicates=2, prior_mean=0.3, forgetting_rate=RATE)
        asked = AskTell(policy)
    for step in range(7):
        question = asked.ask(float(step))
        noise = None if step == 2 else torch.tensor([0.5, 0.02 + step]).double()
        reward = torch.tensor([1.0, -0.3 * step]).double()
        asked.tell(question.id, reward, noise_variance=noise)
        seen.append((question.arm, reward, float(step), noise))
    agree(policy.model, seen, drifts, 7.0)


TAKEN = {"gp_ucb", "tv_gp_ucb", "ui_gp_ucb", "band_gp_ucb", "igp_ucb", "gp_ts", "known_prior_gp_ucb"}
TAKEN |= {"gp_ei", "gp_pi", "predictive_sampling"}


@pytest.mark.parametrize("name", sorted(recipes.RECIPES.keys() - TAKEN))
def test_every_other_recipe_refuses_a_noise_of_its_own_by_name(name):
    policy, _ = all_recipes.build(name, 1, 20)
    asked = AskTell(policy)
    question = asked.ask(1.0)
    before = described(asked.state_dict())
    with pytest.raises(ValueError, match="noise_variance must be None"):
        asked.tell(question.id, 0.5, noise_variance=0.1)
    assert described(asked.state_dict()) == before
    bare = Observation(
        1.0, question.arm, torch.tensor([0.5]).double(), {}, None, torch.tensor([0.1]).double()
    )
    with pytest.raises(ValueError, match="must be"):
        policy.learn(bare)


def test_rewards_keep_their_noise_where_arms_are_added():
    grown = recipes.gp_ucb(ARMS[:6], SPACE, NOISE, width=2.0)
    whole = recipes.gp_ucb(ARMS, SPACE, NOISE, width=2.0)
    for k, (arm, reward, time, _) in enumerate(told(12, members=1)):
        if k == 6:
            grown.add_arms(ARMS[6:])
        noise = torch.tensor([0.02 * (1 + k)]).double()
        for policy in (grown, whole):
            policy.learn(Observation(time, arm % (6 if k < 6 else N), reward, noise_variance=noise))
    torch.testing.assert_close(grown.marginals(12.0), whole.marginals(12.0), rtol=1e-9, atol=1e-9)

"""Weighted GP: no growth, no overflow, and what a policy has checked. The formulas see ``test_attack_models.py``."""

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import Observation


def covariance(num_arms: int = 8) -> torch.Tensor:
    x = torch.linspace(0, 1, num_arms, dtype=torch.float64)
    return torch.exp(-0.5 * (x[:, None] - x).square() / 0.09)


def data(steps: int, num_arms: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    arm = torch.randint(num_arms, (steps, 1), generator=generator).double()
    return arm, torch.randn(steps, 1, generator=generator, dtype=torch.float64)


def test_nothing_overflows_or_grows_in_a_long_run() -> None:
    model = WeightedGP(8, covariance(), 0.1, discount=0.9)
    arm, reward = data(3000)
    model.observe(arm, reward)
    assert model.weight.sum() <= 1 / (1 - 0.9) + 1e-9  # raw weights 0.9^{-t} would stand at 1e137
    recent = WeightedGP(8, covariance(), 0.1, discount=0.9)
    recent.observe(arm[-400:], reward[-400:])
    every = torch.arange(8, dtype=torch.float64).unsqueeze(-1)
    torch.testing.assert_close(model.posterior(every).mean, recent.posterior(every).mean)


def test_marginals_and_joint_are_the_posterior_of_all_arms() -> None:
    model = WeightedGP(8, covariance(), 0.1, discount=0.9, prior_mean=0.3, batch_shape=(2,))
    for step in range(12):
        model.observe_arms(torch.tensor([step % 8, 3]), torch.tensor([0.5, -1.0]).double())
    posterior = model(torch.arange(8).double().unsqueeze(-1))
    for mean, spread, own in (
        (*model.marginals(), posterior.variance),
        (*model.joint(), posterior.covariance_matrix),
    ):
        torch.testing.assert_close(mean, posterior.mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(spread, own, rtol=0, atol=1e-12)


def test_what_a_policy_has_checked_is_learnt_the_same_and_not_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, twin = (recipes.w_gp_ucb(8, covariance(), 0.1, replicates=2, prior_mean=0.3) for _ in range(2))
    told = [(torch.tensor([step % 8, 3]), torch.tensor([0.5, -1.0]).double()) for step in range(9)]
    for arm, reward in told:
        twin.model.observe_arms(arm, reward)
    monkeypatch.setattr(WeightedGP, "observe", lambda *given: pytest.fail("checked twice"))
    for step, (arm, reward) in enumerate(told):
        policy.learn(Observation(float(step), arm, reward))
    torch.testing.assert_close(policy.model.state_dict(), twin.model.state_dict(), rtol=0, atol=0)

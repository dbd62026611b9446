"""Weighted GP, whose formulas ``test_attack_models.py`` has, and pending pulls that no random life has."""

import pytest
import torch
from gpytorch.kernels import MaternKernel

from bandits_torch import recipes
from bandits_torch.checkpoint import described
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import Observation


def covariance(num_arms: int = 8) -> torch.Tensor:
    x = torch.linspace(0, 1, num_arms, dtype=torch.float64)
    return torch.exp(-0.5 * (x[:, None] - x).square() / 0.09)


def data(steps: int, num_arms: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    arm = torch.randint(num_arms, (steps, 1), generator=generator).double()
    return arm, torch.randn(steps, 1, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("discount", "steps"), [(0.9, 3000), (0.5, 1071)])
def test_nothing_overflows_or_grows_in_a_long_run(discount: float, steps: int) -> None:
    """Also while the weight of an arm pulled once, at first, underflows."""
    model, recent = (WeightedGP(8, covariance(), 1e-4, discount=discount) for _ in range(2))
    arm, reward = data(steps)
    arm[1:] %= 7
    arm[0] = 7
    model.observe(arm, reward)
    assert model.weight[7] > 0
    assert model.weight.sum() <= 1 / (1 - discount) + 1e-9  # raw weights 0.9^{-t} would stand at 1e137
    recent.observe(arm[-400:], reward[-400:])
    every = torch.arange(8, dtype=torch.float64).unsqueeze(-1)
    torch.testing.assert_close(model.posterior(every).mean, recent.posterior(every).mean)


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


N = 9
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
SPACE = MaternKernel(2.5).double()
SPACE.lengthscale = 0.4


def test_a_weighted_model_expects_with_weight_one_and_its_mean_stays():
    model = WeightedGP(ARMS, SPACE, 0.1, discount=0.9, prior_mean=0.3)
    index = torch.arange(N).double().reshape(-1, 1, 1)
    for arm, reward in ((3, 0.4), (7, -1.0), (3, 0.9), (0, 0.3)):
        model.observe(torch.tensor([[float(arm)]]).double(), torch.tensor([[reward]]).double())
    kept, before, gain = described(model.state_dict()), model.posterior(index), model.information_gain
    with model.provisional():
        model.expect(torch.tensor([[5.0]]).double())
        after = model.posterior(index)
        torch.testing.assert_close(after.mean, before.mean)
        # regression with weights w and squares v, written out
        w, v = model.weight.clone(), model.square.clone()
        K = model.prior_covariance
        V = torch.linalg.inv(torch.linalg.inv(K + 1e-13 * torch.eye(N)) + torch.diag(w) / 0.1)
        right = V @ (torch.linalg.inv(K + 1e-13 * torch.eye(N)) + torch.diag(v) / 0.1) @ V
        torch.testing.assert_close(after.variance.flatten(), right.diagonal(), rtol=0, atol=1e-6)
        assert torch.equal(model.information_gain, gain)
        assert bool((after.variance <= before.variance + 1e-12).all())
        assert float(w[5]) == 1.0
        assert [float(w[arm]) for arm in (0, 7)] == pytest.approx([1.0, 0.81])  # none of the others faded
    assert described(model.state_dict()) == kept

"""Pending pulls of models whose random lives (``test_attack_models.py``) have none, and what an error leaves."""

import pytest
import torch
from gpytorch.kernels import MaternKernel

from bandits_torch.checkpoint import described
from bandits_torch.models import ArmGP, OnlineGP
from bandits_torch.models.arms.weighted_gp import WeightedGP

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


def test_points_of_members_that_hold_different_rows_are_not_counted_while_they_are_pending():
    """Some rows of the second member came last, where those of the pending pulls stood for the first."""
    model, X = OnlineGP(SPACE, 0.1, input_dim=1, batch_shape=(2,)), ARMS[:4]
    model.observe(X, torch.sin(9 * X))
    model.reset(torch.tensor([True, False]))
    model.forget(2, where=torch.tensor([False, True]))
    said = "num_observations", "information_gain", "log_likelihood"
    before = [getattr(model, name) for name in said]
    assert before[0].tolist() == [0, 2]
    with model.provisional():
        for k in range(6):
            model.expect(ARMS[k : k + 1])
            for name, value in zip(said, before, strict=True):
                torch.testing.assert_close(getattr(model, name), value, rtol=1e-12, atol=0)


def test_it_is_put_back_after_an_error_too():
    model = ArmGP(ARMS, SPACE, 0.1)
    kept = described(model.state_dict())

    def fails():
        with model.provisional():
            model.expect_arms(torch.tensor(1), 0.0)
            model.expect_arms(torch.tensor(99), 0.0)

    with pytest.raises((IndexError, RuntimeError)):
        fails()
    assert described(model.state_dict()) == kept

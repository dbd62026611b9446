"""An extreme reward that was forgotten leaves nothing behind, whatever else is forgotten, reset or batched with it."""

from __future__ import annotations

import math

import pytest
import torch

from bandits_torch import models
from tests.reference.kernels import rbf

N, NOISE, S = 6, 0.1, 2
ARMS = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)


def kernel():
    return rbf(0.3)


MODELS = {
    "OnlineGP": lambda: models.OnlineGP(kernel(), NOISE, input_dim=1, batch_shape=(S,), prior_mean=0.5),
    "covariance": lambda: models.ArmGP(
        ARMS, kernel(), NOISE, form="covariance", batch_shape=(S,), prior_mean=0.5
    ),
    "factor": lambda: models.ArmGP(ARMS, kernel(), NOISE, form="factor", batch_shape=(S,), prior_mean=0.5),
}


def truth(pulled, rewards):
    """Mean of all arms and log-likelihood, by a dense solve."""
    with torch.no_grad():
        K = kernel()(ARMS).to_dense()
    A = K[pulled][:, pulled] + NOISE * torch.eye(len(pulled), dtype=torch.float64)
    r = torch.tensor(rewards, dtype=torch.float64) - 0.5
    weights = torch.linalg.solve(A, r)
    constant = len(pulled) / 2 * math.log(2 * math.pi)
    return 0.5 + K[:, pulled] @ weights, -0.5 * r @ weights - 0.5 * torch.logdet(A) - constant


@pytest.mark.every(5)
@pytest.mark.parametrize("size", [1e6, 1e9, 1e12])
@pytest.mark.parametrize("falling", [False, True], ids=["twice", "falling by a factor of 5"])
@pytest.mark.parametrize("name", MODELS)
def test_a_forgotten_outlier_leaves_nothing_behind(name, falling, size):
    """Replicates are pulled alike; the second forgets one more, which makes rows of its factor null rows."""
    model, random = MODELS[name](), torch.Generator().manual_seed(1)
    held, looked = [[], []], 0
    for step in range(70):
        arm = int(torch.randint(N, (), generator=random))
        reward = float(torch.randn((), generator=random, dtype=torch.float64))
        if falling:
            reward = max(size / 5.0**step, 1.0) * reward
        elif step in (10, 25):
            reward = size
        x = ARMS[arm] if name == "OnlineGP" else torch.tensor([float(arm)]).double()
        model.observe(x.unsqueeze(-1), torch.tensor([[reward]], dtype=torch.float64))
        for s, window in enumerate((20, 17)):
            held[s].append((arm, reward))
            if len(held[s]) > window:
                held[s].pop(0)
                model.forget(1, where=torch.arange(S) == s)
        if step == 50:
            model.reset(where=torch.tensor([True, False]))
            held[0].clear()
        for s in range(S):
            if held[s] and max(abs(reward) for _, reward in held[s]) < 100:
                looked += 1
                X = (ARMS if name == "OnlineGP" else torch.arange(N).double().unsqueeze(-1)).reshape(
                    N, 1, 1, 1
                )
                mean, likelihood = truth(*map(list, zip(*held[s], strict=True)))
                found = model.posterior(X).mean[:, s].flatten()
                torch.testing.assert_close(found, mean, rtol=0, atol=1e-10)
                torch.testing.assert_close(model.log_likelihood[s], likelihood, rtol=1e-10, atol=0)
    assert looked > 40

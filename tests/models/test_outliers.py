"""An extreme reward that was forgotten leaves nothing behind, whatever else is forgotten, reset or batched with it."""

from __future__ import annotations

import pytest
import torch

from bandits_torch import models
from tests.reference.dense_arm_gp import DenseArmGP
from tests.reference.kernels import rbf

N, NOISE, S = 6, 0.1, 2
ARMS = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)


def kernel():
    return rbf(0.3)


K = kernel()(ARMS).to_dense().detach()


MODELS = {
    "OnlineGP": lambda: models.OnlineGP(kernel(), NOISE, input_dim=1, batch_shape=(S,), prior_mean=0.5),
    "covariance": lambda: models.ArmGP(
        ARMS, kernel(), NOISE, form="covariance", batch_shape=(S,), prior_mean=0.5
    ),
    "factor": lambda: models.ArmGP(ARMS, kernel(), NOISE, form="factor", batch_shape=(S,), prior_mean=0.5),
}


@pytest.mark.sampled(5)
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
                dense = DenseArmGP(K, NOISE, 0.5)
                for one in held[s]:
                    dense.observe(*one)
                mean, _, _, likelihood = dense.answers()
                found = model.posterior(X).mean[:, s].flatten()
                torch.testing.assert_close(found, mean, rtol=0, atol=1e-10)
                assert float(model.log_likelihood[s]) == pytest.approx(likelihood, rel=1e-10)
    assert looked > 40

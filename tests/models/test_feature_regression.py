"""The regression of a sketch against solving its normal equations anew."""

import pytest
import torch

from bandits_torch.models.sketch.feature_regression import FeatureRegression


@pytest.mark.parametrize("noise_variance", [1e-6, 0.1])
def test_growing_regression_is_that_of_all_features_at_once(noise_variance):
    generator = torch.Generator().manual_seed(0)
    features, rewards = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((90, 13), (90,))
    )
    model, noise = FeatureRegression(torch.tensor(noise_variance, dtype=torch.float64)), noise_variance
    model.append_unseen(5)
    for t in range(90):
        if t in (10, 40, 41):  # features that were there from the start join late
            old, new = features[:t, : model.size], features[:t, model.size : model.size + 3 - t % 2]
            model.append(old.T @ new, new.T @ new, new.T @ rewards[:t])
        model.observe(features[t, : model.size], rewards[t])
        seen = features[: t + 1, : model.size]
        V = seen.T @ seen + noise * torch.eye(model.size, dtype=torch.float64)
        wanted = torch.linalg.solve(V, seen.T @ rewards[: t + 1])
        if t >= model.size:  # before, the weights are the inverse of next to nothing
            torch.testing.assert_close(model.weights, wanted, rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(model.covariance / noise, torch.linalg.inv(V), rtol=1e-3, atol=1e-5)
    assert model.size == 5 + 3 + 3 + 2

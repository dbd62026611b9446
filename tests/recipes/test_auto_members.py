"""Members of ``auto`` over arms that correct what was told."""

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.policies import Observation
from bandits_torch.recipes.auto_members import families, sharper
from tests.reference.kernels import rbf


def gaussian(x, lengthscale):
    return torch.exp(-torch.cdist(x, x).square() / (2 * lengthscale**2))


@pytest.mark.parametrize("power", [9, 25])
def test_a_power_of_the_correlations_divides_the_length_scale_by_its_root(power):
    g = torch.Generator().manual_seed(power)
    x = torch.rand(20, 2, generator=g, dtype=torch.float64)
    deviation = torch.rand(20, generator=g, dtype=torch.float64) + 0.5
    sizes = deviation.unsqueeze(-1) * deviation
    found = sharper(sizes * gaussian(x, 0.6), power)
    torch.testing.assert_close(found, sizes * gaussian(x, 0.6 / power**0.5), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("power", [9, 25])
def test_negative_correlations_and_arms_without_variance_stay_a_covariance(power):
    g = torch.Generator().manual_seed(power)
    root = torch.randn(12, 3, generator=g, dtype=torch.float64)
    root[4] = 0.0
    covariance = root @ root.T
    found = sharper(covariance, power)
    assert bool((covariance < 0).any())
    assert bool((found[4] == 0).all())
    torch.testing.assert_close(found.diagonal(), covariance.diagonal())
    assert float(torch.linalg.eigvalsh(found).min()) > -1e-12 * float(found.diagonal().max())


def test_a_length_scale_told_five_times_too_long_is_found_out():
    x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
    kernel = rbf(0.5)
    policy = recipes.auto(x, kernel, 0.01, replicates=4)
    groups = families(x, kernel, 0.01)
    close = torch.tensor([torch.allclose(group.shape, gaussian(x, 0.1), atol=1e-9) for group in groups])
    assert int(close.sum()) == 1
    g = torch.Generator().manual_seed(1)
    values, vectors = torch.linalg.eigh(gaussian(x, 0.1))
    root = vectors * values.clamp_min(0.0).sqrt()
    f = torch.randn(4, 40, generator=g, dtype=torch.float64) @ root.T
    for step in range(1, 61):
        arm = torch.randint(40, (4,), generator=g)
        noise = 0.1 * torch.randn(4, generator=g, dtype=torch.float64)
        policy.learn(Observation(float(step), arm, f.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + noise))
    believed = policy.sharing.weights[:, close[policy.model.kernel]].sum(-1)
    assert bool((believed > 0.5).all()), believed

"""Neural features: Gram matrices without gradients, training, OPNN."""

import math

import pytest
import torch

from bandits_torch.kernels.arms import NeuralTangentKernel
from bandits_torch.policies.opkb import OPKB, Constants
from bandits_torch.policies.opkb.features import FixedFeatures, NeuralFeatures, layers
from bandits_torch.policies.policy import Observation
from bandits_torch.state import differing


def sphere(num_arms: int, dim: int = 4) -> torch.Tensor:
    x = torch.randn(num_arms, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1)


@pytest.mark.parametrize("depth", [2, 3])
def test_wide_networks_have_the_tangent_kernel_as_gram_matrix(depth: int) -> None:
    x = sphere(5)
    grams = [NeuralFeatures(x, width=1024, depth=depth, seed=s)._gram[0] for s in range(6)]
    H = NeuralTangentKernel(depth)(x).to_dense()
    error = (torch.stack(grams).mean(0) - H).abs().max()
    assert error < 0.12 * depth


def test_tangent_kernel_of_simple_inputs_is_known() -> None:
    x = torch.eye(2, dtype=torch.float64)
    H = NeuralTangentKernel(2)(x).to_dense()  # S_1 = 1/pi, share 1/2, S_0 = 0
    expected = torch.tensor([[2.0, 1 / math.pi], [1 / math.pi, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(H, expected)
    torch.testing.assert_close(NeuralTangentKernel(1)(x).to_dense(), x @ x.T)
    y = sphere(7)
    K = NeuralTangentKernel(3, normalise=True)
    torch.testing.assert_close(K(y).to_dense().diagonal(), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(K(y, diag=True), torch.ones(7, dtype=torch.float64))
    assert torch.linalg.eigvalsh(K(y).to_dense()).min() > 0
    assert not K.is_stationary
    assert not torch.equal(K(y + 1.0).to_dense(), K(y).to_dense())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_input_of_zeros_has_tangent_kernel_0(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=dtype)
    expected = torch.tensor([[0.0, 0.0], [0.0, 15.0]], dtype=dtype)
    torch.testing.assert_close(NeuralTangentKernel(3)(x).to_dense(), expected)


@pytest.mark.parametrize("dim", [1, 3])
def test_the_tangent_kernel_has_a_gradient_where_inputs_are_parallel(dim: int) -> None:
    x = torch.rand(4, dim, generator=torch.Generator().manual_seed(1)).double().requires_grad_(True)
    K = NeuralTangentKernel(3)
    (of_variances,) = torch.autograd.grad(K(x, diag=True).sum(), x)  # 3 |x|^2
    torch.testing.assert_close(of_variances, 6 * x.detach())
    (of_matrix,) = torch.autograd.grad(K(x).to_dense().sum(), x)
    assert bool(of_matrix.isfinite().all())
    other = x.detach()[:1] / 2 + torch.eye(dim).double()[:1]
    assert torch.autograd.gradcheck(lambda x: K(x, other).to_dense(), x)


def test_without_training_the_features_stay_the_first() -> None:
    features = NeuralFeatures(sphere(5), width=16, training_steps=0)
    ones = torch.ones(5, dtype=torch.float64)
    assert features.learnt(0, ones, ones) is features.initial(0)


@pytest.mark.parametrize("source", [NeuralFeatures, FixedFeatures])
def test_features_stay_those_of_the_arms_that_were_given(source: type) -> None:
    x = sphere(5)
    expected, given = source(sphere(5)), source(x)
    x.zero_()
    told = torch.ones(5, dtype=torch.float64), torch.arange(5).double()
    assert torch.equal(given.learnt(0, *told), expected.learnt(0, *told))


@pytest.mark.parametrize("size", [1.0, 30.0, 1e6])
def test_training_on_large_rewards_fits_them_better_than_no_network(size: float) -> None:
    arms, mean = sphere(10), size * torch.linspace(-1, 1, 10, dtype=torch.float64)
    weights = NeuralFeatures(arms, width=64).train(0, torch.ones_like(mean), mean)
    assert (layers(weights, arms)[0] - mean).norm() < mean.norm()


def test_a_reward_on_which_training_diverges_is_refused_before_anything_changes() -> None:
    constants = Constants(sigma=5.0, c1=0.2, c2=1.0, c3=0.03)
    made = OPKB(NeuralFeatures(sphere(10), width=16), 100, constants)
    for left in reversed(range(made.schedules[0].base)):
        choice, before = made.choose(1.0), made.state_dict()
        last = Observation(1.0, choice.arm, torch.tensor([1e100], dtype=torch.float64), choice.why)
        if left:
            made.learn(last)
    with pytest.raises(ValueError, match="reward must be of a size near 1"):
        made.learn(last)
    assert not differing(before, made.state_dict())

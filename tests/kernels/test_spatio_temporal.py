"""The product of a space and a time kernel."""

import unittest

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel

F64 = {"dtype": torch.float64}


class TestSpatioTemporalInGPyTorch(BaseKernelTestCase, unittest.TestCase):
    def create_kernel_no_ard(self, batch_shape=(), **kwargs):
        shape = torch.Size(batch_shape)
        return SpatioTemporalKernel(
            RBFKernel(batch_shape=shape),
            ExponentialForgettingKernel(torch.tensor(0.1), batch_shape=shape),
            **kwargs,
        )


def test_values_are_the_product_of_space_and_time():
    x, z = torch.rand(6, 3, **F64), torch.rand(4, 3, **F64)
    space, time = ScaleKernel(RBFKernel(ard_num_dims=2)).double(), ExponentialForgettingKernel(0.4).double()
    kernel = SpatioTemporalKernel(space, time)
    distance = ((x[:, None, :2] - z[None, :, :2]) / space.base_kernel.lengthscale).square().sum(-1)
    elapsed = (x[:, None, 2] - z[None, :, 2]).abs()
    expected = space.outputscale * torch.exp(-distance / 2) * (1 - time.forgetting_rate) ** (elapsed / 2)
    torch.testing.assert_close(kernel(x, z).to_dense(), expected)
    torch.testing.assert_close(kernel(x, diag=True), kernel(x).to_dense().diagonal())


def test_a_time_kernel_built_from_a_number_keeps_its_figures_beside_a_space_kernel_of_float32():
    kernel = SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel(0.1))
    assert kernel.dtype == torch.float64
    assert kernel.time_kernel.covariance(0.0, 2.0).item() == pytest.approx(0.9, rel=1e-15)
    assert kernel.float().dtype == torch.float32


def test_any_kernel_serves_as_time_kernel():
    x = torch.rand(5, 2, **F64)
    kernel = SpatioTemporalKernel(RBFKernel(), MaternKernel(0.5)).double()
    expected = kernel.space_kernel(x[:, :1]).to_dense() * kernel.time_kernel(x[:, 1:]).to_dense()
    torch.testing.assert_close(kernel(x).to_dense(), expected)


@pytest.mark.parametrize(
    ("space_shape", "time_shape"), [((), (3,)), ((3,), ()), ((2, 1), (3,)), ((2, 3), (3,))]
)
def test_batch_shapes_of_the_two_kernels_broadcast(space_shape, time_shape):
    rates = torch.rand(time_shape, **F64) * 0.5 + 0.1
    space = RBFKernel(batch_shape=torch.Size(space_shape)).double()
    space.lengthscale = torch.rand(*space_shape, 1, 1, **F64) + 0.2
    kernel = SpatioTemporalKernel(space, ExponentialForgettingKernel(rates, batch_shape=time_shape))
    shape = torch.broadcast_shapes(space_shape, time_shape)
    assert kernel.batch_shape == shape
    x = torch.rand(5, 2, **F64)
    whole = kernel(x).to_dense().expand(*shape, 5, 5)
    index = tuple(size - 1 for size in shape)
    one = SpatioTemporalKernel(
        space.expand_batch(shape)[index], ExponentialForgettingKernel(rates.expand(shape)[index])
    )
    torch.testing.assert_close(whole[index], one(x).to_dense())
    torch.testing.assert_close(kernel[index](x).to_dense(), one(x).to_dense())
    torch.testing.assert_close(kernel(x, diag=True), kernel(x).to_dense().diagonal(dim1=-1, dim2=-2))


def test_stationary_only_if_both_kernels_are():
    assert SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel()).is_stationary
    assert not SpatioTemporalKernel(RBFKernel(), WienerKernel()).is_stationary


def test_plain_botorch_model_fits_its_parameters():
    torch.manual_seed(0)
    times = torch.arange(30, **F64).unsqueeze(-1)
    X = torch.cat([torch.rand(30, 1, **F64), times], -1)
    Y = torch.sin(6 * X[:, :1]) + 0.1 * torch.randn(30, 1, **F64)
    rate = ExponentialForgettingKernel(0.5, forgetting_rate_prior=LogNormalPrior(-3.0, 1.0))
    model = SingleTaskGP(X, Y, covar_module=SpatioTemporalKernel(RBFKernel(), rate))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    before = mll(model(*model.train_inputs), model.train_targets).item()
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 15}, "timeout_sec": 20})
    mll.train()
    after = mll(model(*model.train_inputs), model.train_targets).item()
    assert after > before
    assert model.covar_module.time_kernel.forgetting_rate.item() < 0.4  # the function does not change

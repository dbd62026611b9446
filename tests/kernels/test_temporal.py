"""Time kernels and their products with space kernels: values, parameters, GPyTorch's habits."""

import copy
import math
import pickle
import unittest

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior, UniformPrior
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from bandits_torch.kernels import (
    ExponentialForgettingKernel,
    MaternTimeKernel,
    NeuralTangentKernel,
    SpatioTemporalKernel,
    StackedKernel,
    SumOfTimeKernels,
    WienerKernel,
)

F64 = {"dtype": torch.float64}


class OneColumn(BaseKernelTestCase):
    """GPyTorch's own kernel tests on inputs of one column."""

    def create_data_single_batch(self):
        return torch.randn(2, 3, 1)

    def create_data_double_batch(self):
        return torch.randn(3, 2, 50, 1)

    def test_active_dims_list(self):
        x = self.create_data_no_batch()
        picked = self.create_kernel_no_ard(active_dims=[4])(x).to_dense()
        self.assertAllClose(picked, self.create_kernel_no_ard()(x[:, [4]]).to_dense())

    def test_active_dims_range(self):
        x = self.create_data_no_batch()
        picked = self.create_kernel_no_ard(active_dims=list(range(3, 4)))(x).to_dense()
        self.assertAllClose(picked, self.create_kernel_no_ard()(x[:, 3:4]).to_dense())


class TestExponentialForgettingInGPyTorch(OneColumn, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return ExponentialForgettingKernel(torch.tensor(0.2), **kwargs)


class TestWienerInGPyTorch(OneColumn, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return WienerKernel(torch.tensor(0.2), start=-1.0, **kwargs)


def exponential(rate, s, t):
    return (1 - rate) ** (abs(s - t) / 2)


def wiener(variance, s, t):
    return 1 + variance * max(0.0, min(s, t) - 2.0)


CASES = [
    pytest.param(lambda v, **k: ExponentialForgettingKernel(v, **k), exponential, id="exponential"),
    pytest.param(lambda v, **k: WienerKernel(v, start=2.0, **k), wiener, id="wiener"),
]


@pytest.mark.parametrize(("make", "formula"), CASES)
@pytest.mark.parametrize("value", [1e-9, 0.03, 0.5])
def test_covariance_matrix_is_the_formula_entry_by_entry(make, formula, value):
    times = [0.0, 1.0, 1.5, 2.0, 4.25, 30.0]
    x = torch.tensor(times, **F64).unsqueeze(-1)
    expected = torch.tensor([[formula(value, s, t) for t in times] for s in times], **F64)
    kernel = make(torch.tensor(value, **F64))
    torch.testing.assert_close(kernel(x).to_dense(), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(kernel(x, x[:2]).to_dense(), expected[:, :2], rtol=1e-12, atol=0)
    torch.testing.assert_close(kernel(x, diag=True), expected.diagonal(), rtol=1e-12, atol=0)


def test_tiny_forgetting_rates_keep_their_relative_accuracy():
    kernel = ExponentialForgettingKernel(torch.tensor(1e-14, **F64))
    lost = 1 - kernel.covariance(0.0, 1e6).item()
    assert lost == pytest.approx(0.5e-8, rel=1e-6)


@pytest.mark.parametrize(("make", "formula"), CASES)
def test_covariance_of_numbers_and_of_rows_of_times_is_elementwise(make, formula):
    values = torch.tensor([0.1, 0.2, 0.3], **F64)
    kernel = make(values, batch_shape=(3,))
    s, t = torch.rand(5, 3, 4, **F64) * 9, torch.rand(4, **F64) * 9
    expected = torch.tensor([[formula(v, 3.0, 5.0)] for v in values.tolist()], **F64)
    torch.testing.assert_close(kernel.covariance(3.0, torch.tensor(5.0, **F64)), expected)
    assert make(0.1).covariance(3.0, 5.0).shape == (1,)
    result = kernel.covariance(s, t)
    assert result.shape == (5, 3, 4)
    assert result[3, 1, 2].item() == pytest.approx(formula(0.2, s[3, 1, 2].item(), t[2].item()), rel=1e-12)


@pytest.mark.parametrize(("make", "formula"), CASES)
def test_batch_of_parameters_equals_kernels_one_by_one(make, formula):
    values = torch.tensor([[0.1, 0.2, 0.3]], **F64).expand(2, 3)
    kernel = make(values, batch_shape=(2, 3))
    x = torch.rand(4, 1, 3, 5, 1, **F64) * 9
    whole, diagonal = kernel(x).to_dense(), kernel(x, diag=True)
    assert whole.shape == (4, 2, 3, 5, 5)
    assert diagonal.shape == (4, 2, 3, 5)
    one = make(values[1, 2])(x[3, 0, 2])
    torch.testing.assert_close(whole[3, 1, 2], one.to_dense())
    torch.testing.assert_close(diagonal[3, 1, 2], one.diagonal(dim1=-1, dim2=-2))
    torch.testing.assert_close(kernel[1, 2](x[3, 0, 2]).to_dense(), one.to_dense())


@pytest.mark.parametrize(("make", "formula"), CASES)
def test_gradient_of_the_raw_parameter_agrees_with_finite_differences(make, formula):
    kernel = make(torch.tensor(0.2, **F64))
    x = torch.rand(4, 1, **F64) * 9
    (raw,) = kernel.parameters()

    def matrix(value):
        return torch.func.functional_call(
            kernel, {next(iter(dict(kernel.named_parameters()))): value}, (x, x, True)
        )

    assert torch.autograd.gradcheck(matrix, (raw.detach().clone().requires_grad_(True),))


NAMES = [(ExponentialForgettingKernel, "forgetting_rate"), (WienerKernel, "drift_variance")]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_parameter_can_be_read_set_saved_and_loaded(kind, name):
    kernel = kind(batch_shape=(2,)).double()
    assert getattr(kernel, name).shape == (2, 1)
    setattr(kernel, name, torch.tensor([0.2, 0.4]))
    torch.testing.assert_close(getattr(kernel, name), torch.tensor([[0.2], [0.4]], **F64), rtol=1e-6, atol=0)
    other = kind(batch_shape=(2,)).double()
    other.load_state_dict(kernel.state_dict())
    assert torch.equal(getattr(other, name), getattr(kernel, name))
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert torch.equal(getattr(twin, name), getattr(kernel, name))


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_prior_scores_and_sets_the_parameter(kind, name):
    torch.manual_seed(0)
    kernel = kind(0.3, **{f"{name}_prior": UniformPrior(0.2, 0.6)})
    kernel = pickle.loads(pickle.dumps(copy.deepcopy(kernel)))
    (found,) = kernel.named_priors()
    _, module, _prior, closure, _ = found
    assert torch.equal(closure(module), getattr(kernel, name))
    kernel.sample_from_prior(f"{name}_prior")
    assert 0.2 < getattr(kernel, name).item() < 0.6
    assert getattr(kernel, name).item() != pytest.approx(0.3)


def test_correlations_fall_at_the_rate_of_decay():
    kernel = ExponentialForgettingKernel(0.3)
    torch.testing.assert_close(kernel.covariance(1.0, 3.0), torch.exp(-2 * kernel.decay))
    kernel.decay = torch.tensor(0.05, **F64)
    assert kernel.forgetting_rate.item() == pytest.approx(1 - math.exp(-0.1), rel=1e-12)


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_parameter_takes_the_dtype_of_a_tensor_and_keeps_the_figures_of_a_number(kind, name):
    assert getattr(kind(torch.tensor(0.1, **F64)), name).dtype == torch.float64
    assert getattr(kind(torch.tensor(0.1)), name).dtype == torch.float32
    assert getattr(kind(0.1), name).item() == pytest.approx(0.1, rel=1e-15)
    moved = copy.deepcopy(kind(0.1)).double()
    assert getattr(moved, name).item() == pytest.approx(0.1, rel=1e-15)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_forgetting_rate_outside_the_unit_interval_is_not_set(value):
    kernel = ExponentialForgettingKernel(0.25)
    with pytest.raises(ValueError, match="forgetting_rate"):
        kernel.forgetting_rate = value
    assert kernel.forgetting_rate.item() == pytest.approx(0.25)


def test_a_prior_that_is_none_is_a_type_error_as_in_gpytorch():
    with pytest.raises(TypeError, match="Prior"):
        WienerKernel(0.1, drift_variance_prior=0.5)


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


@pytest.mark.parametrize(
    "space",
    [
        (RBFKernel() + MaternKernel()).double(),
        (RBFKernel(batch_shape=torch.Size([3])) * MaternKernel(batch_shape=torch.Size([3]))).double(),
        NeuralTangentKernel(),
        StackedKernel(
            [RBFKernel().double(), RBFKernel().double() + MaternKernel().double(), NeuralTangentKernel()]
        ),
    ],
    ids=["sum", "product of a batch", "without parameters", "stack"],
)
def test_a_member_of_a_batch_has_its_own_kernels_whatever_they_consist_of(space):
    rates = torch.tensor([[0.1], [0.3]], **F64)
    time = SumOfTimeKernels([ExponentialForgettingKernel(rates, batch_shape=(2, 1)), MaternTimeKernel(2.0)])
    x = torch.rand(5, 3, **F64)
    for kernel in (SpatioTemporalKernel(space, time), StackedKernel([SpatioTemporalKernel(space, time)])):
        whole = kernel(x).to_dense()
        for index in (1, (0, -1), (slice(1, 2), 0)):
            torch.testing.assert_close(kernel[index](x).to_dense(), whole[index])


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

"""Kernels over time with a state: GPyTorch's covariances, their equation, and what both say of each other."""

import math
import unittest

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
)

from bandits_torch.kernels import (
    ExponentialForgettingKernel,
    MaternTimeKernel,
    PeriodicTimeKernel,
    ProductOfTimeKernels,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
    SumOfTimeKernels,
    WienerKernel,
    state_space_of,
)
from bandits_torch.models import ArmGP
from tests.kernels.test_temporal import OneColumn
from tests.reference.dense_state_space import dense as dense_state
from tests.reference.kernels import scaled

F64 = torch.float64


def theirs(kind, **parameters):
    """A kernel of GPyTorch's in float64 with these parameters."""
    options = {"nu": parameters.pop("nu")} if "nu" in parameters else {}
    kernel = kind(**options).double()
    for name, value in parameters.items():
        setattr(kernel, name, torch.tensor(value, dtype=F64))
    return kernel


def matern(nu, lengthscale):
    return theirs(MaternKernel, nu=nu, lengthscale=lengthscale)


def periodic(period, lengthscale):
    return theirs(PeriodicKernel, period_length=period, lengthscale=lengthscale)


def forgetting(rate):
    """Exponential forgetting is Matern-1/2."""
    return matern(0.5, -2 / math.log1p(-rate))


# ours, GPyTorch's, and how many numbers the state has
PAIRS = {
    "matern-1/2": (lambda: MaternTimeKernel(3.0, 0.5), lambda: matern(0.5, 3.0), 1),
    "matern-3/2": (lambda: MaternTimeKernel(3.0, 1.5), lambda: matern(1.5, 3.0), 2),
    "matern-5/2": (lambda: MaternTimeKernel(3.0, 2.5), lambda: matern(2.5, 3.0), 3),
    "periodic": (lambda: PeriodicTimeKernel(7.0, 1.0), lambda: periodic(7.0, 1.0), 23),
    "sharply periodic": (lambda: PeriodicTimeKernel(7.0, 0.1), lambda: periodic(7.0, 0.1), 53),
    "quasi-periodic": (
        lambda: QuasiPeriodicKernel(7.0, 1.0, 30.0, nu=1.5),
        lambda: periodic(7.0, 1.0) * matern(1.5, 30.0),
        46,
    ),
    "sum": (
        lambda: MaternTimeKernel(9.0, 2.5) + PeriodicTimeKernel(7.0, 2.0) + ExponentialForgettingKernel(0.1),
        lambda: matern(2.5, 9.0) + periodic(7.0, 2.0) + forgetting(0.1),
        3 + 19 + 1,
    ),
    "two cycles": (
        lambda: PeriodicTimeKernel(7.0, 5.0) * PeriodicTimeKernel(3.0, 5.0),
        lambda: periodic(7.0, 5.0) * periodic(3.0, 5.0),
        15**2,
    ),
    "product of drifts": (
        lambda: MaternTimeKernel(9.0, 1.5) * MaternTimeKernel(4.0, 2.5),
        lambda: matern(1.5, 9.0) * matern(2.5, 4.0),
        6,
    ),
    "GPyTorch's own": (
        lambda: (
            scaled(matern(1.5, 4.0), 0.3) * theirs(CosineKernel, period_length=5.0)
            + theirs(ConstantKernel, constant=0.5)
        ),
        lambda: (
            scaled(matern(1.5, 4.0), 0.3) * theirs(CosineKernel, period_length=5.0)
            + theirs(ConstantKernel, constant=0.5)
        ),
        5,
    ),
}
each = pytest.mark.parametrize("name", PAIRS)


def size_of(space):
    """How many numbers the state has."""
    return sum(part.dimension for part in space.components)


def dense(kernel, x, y=None):
    with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        return kernel(x, x if y is None else y).to_dense()


def spread_times(n=40):
    generator = torch.Generator().manual_seed(3)
    return 30 * torch.rand(n, 1, generator=generator, dtype=F64)


@each
def test_the_kernel_is_gpytorchs(name):
    ours, gpytorchs, _ = PAIRS[name]
    x = spread_times()
    torch.testing.assert_close(dense(ours(), x), dense(gpytorchs(), x), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        dense(ours(), x[:7], x[9:]), dense(gpytorchs(), x[:7], x[9:]), rtol=0, atol=1e-12
    )


@each
def test_the_state_gives_the_covariance_of_gpytorchs_kernel(name):
    """h^T A(tau) P h, with the matrices of the standard form."""
    ours, gpytorchs, size = PAIRS[name]
    space = state_space_of(ours())
    F, P, h = dense_state(space)
    assert len(h) == size == size_of(space)
    # GPyTorch's clamps distances at 0.
    tau = torch.tensor([0.05, 0.3, 1.0, 2.2, 6.9, 7.0, 31.7, 400.0], dtype=F64)
    told = torch.stack([h @ torch.linalg.matrix_exp(F * t) @ P @ h for t in tau])
    expected = dense(gpytorchs(), tau.unsqueeze(-1), torch.zeros(1, 1, dtype=F64)).squeeze(-1)
    torch.testing.assert_close(told, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(space.value(tau), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(space.value(-tau), expected, rtol=0, atol=1e-10)


@each
def test_the_state_keeps_its_stationary_covariance_and_decays_as_the_matrix_exponential(name):
    space = state_space_of(PAIRS[name][0]())
    F, P, _ = dense_state(space)
    diffusion = -(F @ P + P @ F.mT)  # the Lyapunov equation
    assert torch.linalg.eigvalsh(diffusion)[0] > -1e-13
    for part in space.components:
        own = part.shift - part.rate * torch.eye(len(part.measurement), dtype=F64)
        for elapsed in torch.tensor([0.0, 0.01, 0.7, 12.5], dtype=F64):
            exact = torch.linalg.matrix_exp(own * elapsed)
            torch.testing.assert_close(part.decay(elapsed), exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize("lengthscale", [0.05, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-8, 1e-12])
def test_harmonics_left_out_add_up_to_less_than_the_tolerance(lengthscale, tolerance):
    kernel = PeriodicTimeKernel(7.0, lengthscale, tolerance=tolerance)
    tau = torch.linspace(0, 7, 301, dtype=F64)
    error = (kernel.state_space().value(tau) - dense(kernel, tau[:, None], tau[:1, None])[:, 0]).abs().max()
    assert error <= tolerance + 1e-15
    harmonics = (size_of(kernel.state_space()) - 1) // 2
    fewer = PeriodicTimeKernel(7.0, lengthscale, order=harmonics - 1).state_space()
    assert 1 - fewer.value(0.0) > tolerance  # and no more are taken than that needs


def test_of_a_given_order_kernel_and_state_are_the_same_series():
    kernel = PeriodicTimeKernel(7.0, 0.3, order=2)
    space = state_space_of(kernel)
    assert size_of(space) == 5
    x = spread_times()
    torch.testing.assert_close(dense(kernel, x), space.value(x - x.mT), rtol=0, atol=1e-14)
    z = 1 / 0.3  # q_0 = I_0(z) e^{-z}, by the integral of the Bessel function
    theta = (torch.arange(20_000, dtype=F64) + 0.5) * math.pi / 20_000
    q = [(torch.exp(z * theta.cos() - z) * (j * theta).cos()).mean() * (1 + (j > 0)) for j in range(3)]
    assert space.value(0.0) == pytest.approx(sum(q).item(), abs=1e-12)


@pytest.mark.parametrize("start", [1.7e9, 1e12])
def test_clocks_lose_nothing(start):
    """Times that are whole numbers of float64's at that size, so that differences are exact."""
    x = (spread_times() * 8).round() / 8
    for name in ("matern-1/2", "matern-5/2", "periodic", "quasi-periodic", "sum"):
        kernel = PAIRS[name][0]()
        torch.testing.assert_close(dense(kernel, x + start), dense(kernel, x), rtol=0, atol=0)


def test_a_batch_is_its_kernels_one_by_one():
    period, lengthscale, memory = torch.tensor(
        [[5.0, 6.0, 7.0], [1.0, 0.5, 2.0], [9.0, 20.0, 4.0]], dtype=F64
    )
    batch = QuasiPeriodicKernel(period, lengthscale, memory, nu=1.5, batch_shape=(3,))
    x, space = spread_times(9), batch.state_space()
    tau = torch.tensor(2.3, dtype=F64)
    for k in range(3):
        one = QuasiPeriodicKernel(float(period[k]), float(lengthscale[k]), float(memory[k]), nu=1.5)
        torch.testing.assert_close(dense(batch, x)[k], dense(one, x))
        torch.testing.assert_close(dense(batch[k], x), dense(one, x))
        torch.testing.assert_close(space.value(tau)[k], one.state_space().value(tau))


def test_operators_keep_the_state_and_leave_the_rest_to_gpytorch():
    cycle, drift = PeriodicTimeKernel(7.0), MaternTimeKernel(3.0)
    assert isinstance(cycle + drift, SumOfTimeKernels)
    assert isinstance(cycle * drift, ProductOfTimeKernels)
    assert isinstance(cycle + matern(1.5, 2.0), SumOfTimeKernels)
    for kernel in (cycle + RBFKernel(), cycle * RBFKernel(), cycle + WienerKernel()):
        assert isinstance(kernel, AdditiveKernel | ProductKernel)
        with pytest.raises(ValueError, match="kernel must be one with a state space"):
            state_space_of(kernel)


def test_a_kernel_without_a_state_is_refused_by_what_is_possible_there():
    """Alone, a kernel over time may also be Markov; in a sum or a product it may not."""
    wiener, drift, space = WienerKernel(), MaternTimeKernel(3.0), RBFKernel().double()
    with pytest.raises(
        ValueError, match=r"kernels\[1\] must be one with a state space: .*, got 'WienerKernel'"
    ):
        SumOfTimeKernels([drift, wiener])
    both = SpatioTemporalKernel(space, drift) + SpatioTemporalKernel(space, wiener)
    with pytest.raises(
        ValueError, match=r"time_kernel must be one with a state space: .*, got 'WienerKernel'"
    ):
        ArmGP(torch.zeros(2, 1).double(), both, 0.1)
    with pytest.raises(
        ValueError, match=r"time_kernel must be Markov \(a MarkovTimeKernel\), or one with a state"
    ):
        ArmGP(torch.zeros(2, 1).double(), SpatioTemporalKernel(space, space), 0.1)


def dense_with(kernel, x, values):
    """The covariance with other values of the raw hyperparameters. A lazy one would forget them."""
    names = [name for name, _ in kernel.named_parameters()]
    with gpytorch.settings.lazily_evaluate_kernels(False):
        return torch.func.functional_call(kernel, dict(zip(names, values, strict=True)), (x, x)).to_dense()


@pytest.mark.parametrize("order", [None, 3])
def test_gradients_reach_every_hyperparameter(order):
    kernel = QuasiPeriodicKernel(7.0, 1.0, 30.0, nu=2.5, order=order) + MaternTimeKernel(2.0)
    x = spread_times(6)
    values = [p.detach().clone().requires_grad_(True) for p in kernel.parameters()]
    assert len(values) == 4
    assert all(v.abs().max() > 0 for v in torch.autograd.grad(dense_with(kernel, x, values).sum(), values))
    assert torch.autograd.gradcheck(lambda *values: dense_with(kernel, x, values), tuple(values))


@pytest.mark.parametrize("lengthscale", [0.1, 1.0, 30.0])
def test_gradients_reach_each_length_scale_of_a_batch_of_a_given_order(lengthscale):
    kernel = PeriodicTimeKernel(7.0, torch.tensor([lengthscale, 2.0]).double(), order=3, batch_shape=(2,))
    x = spread_times(6)
    values = tuple(p.detach().clone().requires_grad_(True) for p in kernel.parameters())
    assert torch.autograd.gradcheck(lambda *values: dense_with(kernel, x, values), values)
    assert torch.autograd.gradgradcheck(lambda *values: dense_with(kernel, x, values), values)


def test_numbers_give_float64_and_tensors_their_dtype():
    assert MaternTimeKernel(0.1).lengthscale.item() == pytest.approx(0.1, rel=1e-15)
    assert QuasiPeriodicKernel(24.0, 1.0, 100.0).state_space().value(0.0).dtype == F64
    assert MaternTimeKernel(torch.tensor(0.1)).lengthscale.dtype == torch.float32


class TestMaternInGPyTorch(OneColumn, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return MaternTimeKernel(torch.tensor(0.7), 2.5, **kwargs)


class TestPeriodicInGPyTorch(OneColumn, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return PeriodicTimeKernel(torch.tensor(0.7), torch.tensor(1.3), **kwargs)

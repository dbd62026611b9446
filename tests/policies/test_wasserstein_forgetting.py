"""W-DBO's rule against distances summed over a grid, and its algorithm played with them."""

import functools

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.stale_observations import WassersteinForgetting, convolution, relevance
from tests.reference import dense_staleness as dense
from tests.reference.kernels import scaled

RATE, NOISE, LENGTH = 0.2, 0.05, 0.3


def model(space, noise=NOISE):
    space = space.double()
    space.lengthscale = torch.tensor(LENGTH, dtype=torch.float64)  # GPyTorch rounds a Python number
    kernel = SpatioTemporalKernel(space, ExponentialForgettingKernel(RATE))
    return OnlineGP(kernel.requires_grad_(False), noise, input_dim=2, batch_shape=(1,))


def history(count):
    generator = torch.Generator().manual_seed(count)
    x = torch.rand(count, 1, generator=generator).double()
    t = torch.arange(count).double().unsqueeze(-1)
    return torch.cat([x, t], -1), torch.sin(5 * x[:, 0] + 0.3 * t[:, 0])


def grid_from(now, step=0.02):
    x = torch.arange(-2.0, 3.0, step).double() + step / 2
    t = now + torch.arange(0.0, 60.0, 0.25).double() + 0.125
    return torch.cartesian_prod(x, t)


CELL = 0.02 * 0.25


@pytest.mark.parametrize("nu", [None, 2.5])
def test_relevance_is_the_ratio_of_distances_summed_over_a_grid(nu):
    z, y = history(9)
    own = model(RBFKernel() if nu is None else MaternKernel(nu=nu))
    own.observe(z.unsqueeze(0), y.reshape(1, -1, 1))
    kernel = functools.partial(dense.covariance, lengthscale=LENGTH, rate=RATE, nu=nu)
    plain = dense.relevance(z, y, NOISE, kernel, grid_from(8.0), CELL)
    torch.testing.assert_close(relevance(own, z[-1:, -1])[0], plain, rtol=2e-3, atol=0.0)


@pytest.mark.parametrize(("d", "of_space", "over_time"), [(2, 2.5, 1.5), (1, 1.5, 2.5)])
def test_relevance_is_that_of_the_authors_package(d, of_space, over_time):
    theirs = pytest.importorskip("wdbo_criterion", reason="wdbo-criterion is not installed")
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(12, d, generator=generator, dtype=torch.float64)
    t = torch.rand(12, generator=generator, dtype=torch.float64).sort().values
    y = torch.randn(12, generator=generator, dtype=torch.float64)
    kernels = theirs.MaternKernel(0.3, of_space), theirs.MaternKernel(0.4, over_time)
    expected = theirs.wasserstein_criterion(
        x.numpy(), y.numpy(), t.numpy(), 12, d, 1.7, 0.1, *kernels, 1.05, 0, 1
    )
    space, time = MaternKernel(nu=of_space).double(), MaternKernel(nu=over_time).double()
    space.lengthscale, time.lengthscale = torch.tensor([0.3, 0.4], dtype=torch.float64)
    whole = SpatioTemporalKernel(scaled(space, 1.7), time).requires_grad_(False)
    own = OnlineGP(whole, 0.1, input_dim=d + 1, batch_shape=(1,))
    own.observe(torch.cat([x, t.unsqueeze(-1)], -1).unsqueeze(0), y.reshape(1, -1, 1))
    found = relevance(own, torch.tensor([1.05], dtype=torch.float64))[0]
    torch.testing.assert_close(found, torch.as_tensor(expected), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("nu", [None, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("over_time", ["exponential", 1.5, 2.5])
def test_convolutions_are_the_sums_over_a_grid(nu, d, over_time):
    space = RBFKernel(ard_num_dims=d).double() if nu is None else MaternKernel(nu=nu, ard_num_dims=d).double()
    space.lengthscale = torch.tensor([0.5, 0.8][:d]).double()
    if over_time == "exponential":
        time = ExponentialForgettingKernel(RATE)
    else:
        time = MaternKernel(nu=over_time).double()
        time.lengthscale = 4.0
    whole = scaled(space, 1.7)
    kernel = SpatioTemporalKernel(whole, time).requires_grad_(False)
    z = torch.cat([torch.rand(3, d).double(), torch.tensor([[0.0], [1.5], [2.0]]).double()], -1)
    side = torch.arange(-6.0, 7.0, 0.1).double() if d == 2 else torch.arange(-9.0, 10.0, 0.005).double()
    x = torch.cartesian_prod(*[side] * d).reshape(-1, d)
    t = 2.5 + torch.arange(0.0, 80.0, 0.02).double() + 0.01
    of_space = whole(x, z[:, :-1]).to_dense()
    of_time = time(t.unsqueeze(-1), z[:, -1:]).to_dense()
    summed = (of_space.mT @ of_space * float(side[1] - side[0]) ** d) * (of_time.mT @ of_time * 0.02)
    found = convolution(kernel, z.unsqueeze(0), torch.tensor([2.5]).double())[0]
    torch.testing.assert_close(found, summed, rtol=2e-2 if nu == 0.5 else 2e-3, atol=0.0)


def observed(model, rule, z, y, i):
    inputs = z[i].reshape(1, 1, 2)
    model.observe(inputs, y[i].reshape(1, 1, 1))
    rule.observed(lambda: inputs, y[i : i + 1], model)
    rule.after(model, i + 1)


def test_the_rule_holds_what_the_paper_s_algorithm_holds():
    z, y = history(22)
    own = model(RBFKernel())
    rule = WassersteinForgetting(0.5).begin(own)
    lengthscale = -2 / torch.log1p(torch.tensor(-RATE).double())
    kernel = functools.partial(dense.covariance, lengthscale=LENGTH, rate=RATE)
    coarse = functools.partial(grid_from, step=0.05)
    plain = dense.w_dbo(z, y, NOISE, kernel, 0.5, float(lengthscale), coarse, 0.05 * 0.25)
    for i in range(22):
        observed(own, rule, z, y, i)
        rows = own.data.rows()
        times = rows.inputs[0, rows.held[0], -1]
        assert times.long().tolist() == plain[i]
    assert len(plain[-1]) < 15  # it does drop
    assert plain[-1] != list(range(22 - len(plain[-1]), 22))  # and not just the oldest


def test_it_learns_again_after_a_pause_however_long():
    z, y = history(22)
    z[8:, -1] += 1e6  # b would be infinite
    own = model(RBFKernel())
    rule = WassersteinForgetting(0.5).begin(own)
    for i in range(22):
        observed(own, rule, z, y, i)
    assert int(own.num_observations) > 4
    assert float(rule.trace()["budget"]) < 10


def test_a_capacity_holds_and_what_does_not_fit_is_refused():
    z, y = history(20)
    own = model(RBFKernel())
    rule = WassersteinForgetting(1e-9, capacity=6).begin(own)
    for i in range(20):
        observed(own, rule, z, y, i)
    assert int(own.num_observations) == 6
    assert rule.trace()["dropped"].tolist() == [14]
    for row in (torch.tensor([40]), torch.tensor([-1]), torch.tensor([1, 2]), torch.tensor([1.0])):
        with pytest.raises(ValueError, match="row"):
            own.remove(row)
    some = ScaleKernel(RBFKernel(), active_dims=[0])
    for kernel in (RBFKernel(), SpatioTemporalKernel(some, ExponentialForgettingKernel(0.1))):
        with pytest.raises(ValueError, match="kernel"):
            WassersteinForgetting().begin(OnlineGP(kernel.double(), 0.1, input_dim=3))

"""Batches of OnlineGPs: every member is the model it would be alone, whatever the others do."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models.points.conditioning import new_rows, predict
from bandits_torch.models.points.online_gp import OnlineGP
from tests.reference.gp_histories import Histories

F64 = {"dtype": torch.float64}
RATES = [0.01, 0.1, 0.4]


def priors(batch_shape):
    """A kernel per candidate prior, the last batch dimension."""
    rates = torch.tensor(RATES, **F64).expand(batch_shape)
    space = RBFKernel(batch_shape=torch.Size(batch_shape)).double()
    space.lengthscale = torch.linspace(0.3, 0.6, rates.numel(), **F64).reshape(*batch_shape, 1, 1)
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(rates, batch_shape=batch_shape))


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), **F64)


def assert_exact(model, twin, kernel_of, noise_of=lambda index: 1e-2, A=None):
    A = 1.5 * draw(9, 2, seed=5) if A is None else A
    k = len(model.batch_shape)
    with torch.no_grad():
        marginal = model.posterior(A.reshape(9, *[1] * k, 1, 2))
        joint = model.posterior(A)
        gain, counts = model.information_gain, model.num_observations
    assert marginal.mean.shape == (9, *model.batch_shape, 1, 1)
    assert joint.mean.shape == (*model.batch_shape, 9, 1)
    close = {"atol": 1e-8, "rtol": 0}
    for index in twin.members:
        dense = twin.posterior(index, kernel_of(index), noise_of(index), A)
        torch.testing.assert_close(marginal.mean[(slice(None), *index, 0, 0)], dense.mean, **close)
        variance = marginal.variance[(slice(None), *index, 0, 0)]
        torch.testing.assert_close(variance, dense.covariance.diagonal(), **close)
        torch.testing.assert_close(joint.distribution.covariance_matrix[index], dense.covariance, **close)
        assert gain[index].item() == pytest.approx(dense.gain, abs=1e-8)
        assert counts[index].item() == len(twin.members[index])


def test_replicates_of_one_design_share_one_factor():
    kernel = RBFKernel().double()
    model, twin = OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(5,)), Histories((5,))
    for t in range(20):
        for one in (model, twin):
            one.observe(draw(1, 2, seed=t), draw(5, 1, 1, seed=100 + t))
    assert model.data.factor_shape == (1,)
    assert_exact(model, twin, lambda index: kernel)
    for one in (model, twin):
        one.observe(draw(5, 1, 2, seed=50), draw(5, 1, 1, seed=51))
    assert model.data.factor_shape == (5,)
    assert_exact(model, twin, lambda index: kernel)


def test_a_mask_on_one_design_gives_every_member_its_own_factor():
    kernel, mask = RBFKernel().double(), torch.tensor([True, False, True])
    model, twin = OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(3,)), Histories((3,))
    for one in (model, twin):
        one.observe(draw(6, 2), draw(3, 6, 1, seed=1))
        one.forget(2, where=mask)
        one.observe(draw(2, 2, seed=2), draw(3, 2, 1, seed=3), where=~mask)
    assert_exact(model, twin, lambda index: kernel)
    rows = model.data.rows()
    null = ~rows.held
    assert null.any()
    assert torch.equal(rows.corner[null], torch.eye(8, **F64).expand(3, 8, 8)[null])
    assert torch.equal(rows.corner.mT[null], torch.eye(8, **F64).expand(3, 8, 8)[null])
    assert (rows.whitened[null] == 0).all()


MASK = st.lists(st.booleans(), min_size=6, max_size=6)
STEP = st.tuples(
    st.sampled_from(["observe", "observe", "observe", "forget", "reset", "compact"]), MASK, st.integers(1, 3)
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=st.lists(STEP, max_size=25))
def test_any_history_of_masked_operations_is_exact(steps):
    kernel = priors((3,))
    model, twin = OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(2, 3)), Histories((2, 3))
    for seed, (action, bits, n) in enumerate(steps):
        where = torch.tensor(bits).reshape(2, 3)
        if action == "observe":
            X, Y = draw(2, 1, n, 2, seed=seed), draw(2, 3, n, 1, seed=100 + seed)
            model.observe(X, Y, where)
            twin.observe(X, Y, where)
        elif action == "forget":
            where &= model.num_observations >= n
            model.forget(n, where)
            twin.forget(n, where)
        elif action == "reset":
            model.reset(where)
            twin.reset(where)
        else:
            model.data.compact()
    assert_exact(model, twin, lambda index: kernel[index[1]])


def test_windows_restarting_at_different_times_stay_exact_and_bounded():
    kernel = priors((3,))
    model, twin = OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(2, 3)), Histories((2, 3))
    sizes = []
    for t in range(400):
        X, Y = draw(2, 1, 1, 2, seed=t), draw(2, 1, 1, 1, seed=1000 + t)
        restart = torch.tensor([t % 37 == 0, t % 53 == 0]).unsqueeze(-1)
        full = model.num_observations >= 30
        for one in (model, twin):
            one.reset(restart)
            one.forget(1, full & ~restart)
            one.observe(X, Y)
        sizes.append(model.data.size)
    assert_exact(model, twin, lambda index: kernel[index[1]])
    assert max(sizes) <= 2 * 30
    assert model.data.capacity <= 4 * 30


def test_a_window_in_lockstep_keeps_the_buffers_bounded_and_is_not_ragged():
    model = OnlineGP(RBFKernel(), 1e-2, input_dim=2, batch_shape=(2,))
    for t in range(300):
        model.observe(draw(2, 1, 2, seed=t), draw(2, 1, 1, seed=100 + t))
        if t >= 20:
            model.forget()
    assert model.data.size == 20
    assert model.data.capacity <= 32
    assert not model.data.ragged


def test_members_that_hold_the_same_number_list_their_data_in_their_own_order():
    model = OnlineGP(RBFKernel(), 1e-2, input_dim=2, batch_shape=(2,))
    X, Y = draw(2, 6, 2), draw(2, 6, 1, seed=1)
    for t in range(6):
        model.observe(X[:, t : t + 1], Y[:, t : t + 1], where=torch.tensor([t < 3, t >= 3]))
    assert torch.equal(model.train_inputs[0], torch.stack([X[0, :3], X[1, 3:]]))
    assert torch.equal(model.train_targets, torch.stack([Y[0, :3, 0], Y[1, 3:, 0]]))
    model.forget(where=torch.tensor([True, False]))
    with pytest.raises(ValueError, match="the same in every member"):
        _ = model.train_inputs


def test_predicting_evaluates_the_kernel_once_per_training_point():
    seen = []

    class Watched(RBFKernel):
        def forward(self, x1, x2, diag=False, **params):
            seen.append((diag, x1.shape, x2.shape))
            return super().forward(x1, x2, diag=diag, **params)

    model = OnlineGP(Watched(batch_shape=torch.Size([3])), 1e-2, input_dim=2, batch_shape=(4, 3))
    model.observe(draw(4, 1, 7, 2), draw(4, 3, 7, 1, seed=1))
    seen.clear()
    model.posterior(draw(50, 1, 1, 1, 2))
    ((_, train, test),) = [call for call in seen if not call[0]]
    assert train.numel() == 4 * 3 * 7 * 2 or train.numel() == 4 * 7 * 2
    assert test[-2:] == (50, 2)


class Waits(TorchDispatchMode):
    """Counts operations for which a host waits for its GPU: values read, shapes that depend on values."""

    names = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique", "_unique2")

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.__name__.split(".")[0] in self.names
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("masked", [False, True])
def test_steps_run_on_a_device_without_reading_from_it(masked):
    """Tensors on the meta device have no values, and mixing them with the CPU's is an error.

    The steps are so few that masked members need no compaction, which does read (see below).
    """
    kernel = SpatioTemporalKernel(WienerKernel(0.4), ExponentialForgettingKernel(0.1))
    model = OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(3,), prior_mean=0.3).to("meta")
    where = torch.ones(3, dtype=torch.bool, device="meta") if masked else None
    for t in range(30):
        model.observe(draw(3, 1, 2).to("meta"), draw(3, 1, 1).to("meta"), where)
        if t >= 15:
            model.forget(1, where)
        assert model.posterior(draw(5, 1, 1, 2).to("meta")).mean.shape == (5, 3, 1, 1)
        assert model.posterior(draw(5, 3, 4, 2).to("meta")).mean.shape == (5, 3, 4, 1)
        assert model.information_gain.device.type == model.num_observations.device.type == "meta"
    model.reset(where)


def test_masked_steps_read_values_from_the_device_only_when_compacting():
    kernel = SpatioTemporalKernel(WienerKernel(0.4), ExponentialForgettingKernel(0.1)).double()
    model = OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(3,))
    prior, data = model._prior, model.data
    with Waits() as waits, torch.no_grad():
        for t in range(200):
            where = draw(3, seed=t) < 0.8
            data.make_room(1)
            data.widen(where.shape)
            data.append(new_rows(prior, data, draw(3, 1, 2, seed=t), draw(3, 1, seed=100 + t), where))
            data.ragged = True
            data.drop_oldest(data.rows().held.sum(-1) > 60)
            predict(prior, data, draw(5, 1, 1, 2, seed=200 + t))
    assert 0 < waits.count <= 3 * 200 / 15

"""Batches of OnlineGPs: every member is the model it would be alone, whatever the others do."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch.utils._python_dispatch import TorchDispatchMode

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models.points.conditioning import new_rows, predict
from bandits_torch.models.points.online_gp import OnlineGP

F64 = {"dtype": torch.float64}


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), **F64)


def test_replicates_of_one_design_share_one_factor():
    model = OnlineGP(RBFKernel(), 1e-2, input_dim=2, batch_shape=(5,))
    alone = [OnlineGP(RBFKernel(), 1e-2, input_dim=2) for _ in range(5)]
    A = draw(9, 1, 1, 2, seed=5)
    for t in range(21):
        X = draw(1, 2, seed=t) if t < 20 else draw(5, 1, 2, seed=t)
        Y = draw(5, 1, 1, seed=100 + t)
        model.observe(X, Y)
        for k, one in enumerate(alone):
            one.observe(X.expand(5, 1, 2)[k], Y[k])
        assert model.data.factor_shape == ((1,) if t < 20 else (5,))
        if t >= 19:
            for k, one in enumerate(alone):
                ours, theirs = model.posterior(A), one.posterior(A.squeeze(1))
                torch.testing.assert_close(ours.mean[:, k], theirs.mean, atol=1e-8, rtol=0)
                torch.testing.assert_close(ours.variance[:, k], theirs.variance, atol=1e-8, rtol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_windows_that_restart_or_not_keep_the_buffers_bounded(masked):
    model = OnlineGP(RBFKernel(), 1e-2, input_dim=2, batch_shape=(2,))
    sizes = []
    for t in range(200):
        if masked:
            model.reset(torch.tensor([t % 37 == 0, t % 53 == 0]))
        model.forget(1, model.num_observations >= 30) if masked else t < 30 or model.forget()
        model.observe(draw(2, 1, 2, seed=t), draw(2, 1, 1, seed=1000 + t))
        sizes.append(model.data.size)
    assert max(sizes) <= (60 if masked else 31)
    assert model.data.capacity <= (120 if masked else 64)
    assert model.data.ragged == masked


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
    prior, data = model.prior, model.data
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

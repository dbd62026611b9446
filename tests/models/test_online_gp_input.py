"""What OnlineGP refuses, and that a refusal changes nothing."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.models.points.online_gp import OnlineGP

F64 = {"dtype": torch.float64}
NAN = float("nan")


def make_model(batch_shape=(2,)):
    model = OnlineGP(RBFKernel(), 1e-2, input_dim=2, batch_shape=batch_shape)
    model.observe(torch.rand(5, 2, **F64), torch.rand(5, 1, **F64))
    return model


def state(model):
    tensors = {name: tensor.clone() for name, tensor in model.named_buffers()}
    return tensors, model.data.get_extra_state()


def assert_refused(model, match, action):
    tensors, extra = state(model)
    with pytest.raises(ValueError, match=match):
        action()
    after, extra_after = state(model)
    assert extra == extra_after
    assert all(torch.equal(tensors[name], after[name]) for name in tensors)


def test_forgetting_more_than_a_chosen_member_holds_is_refused():
    model = make_model()
    model.forget(3, where=torch.tensor([True, False]))
    assert_refused(model, "count", lambda: model.forget(3))
    assert_refused(model, "count", lambda: model.forget(3, where=torch.tensor([True, False])))
    model.forget(3, where=torch.tensor([False, True]))
    model.forget(7, where=torch.tensor([False, False]))
    assert model.num_observations.tolist() == [2, 2]


def test_conditioning_refuses_what_it_cannot_do():
    model = make_model()
    X, Y = torch.rand(4, 2, 1, 2, **F64), torch.rand(4, 2, 1, 1, **F64)
    assert_refused(model, "noise", lambda: model.condition_on_observations(X, Y, noise=-Y))
    assert_refused(
        model, "broadcast", lambda: model.condition_on_observations(X[:, :1].expand(4, 3, 1, 2), Y)
    )
    assert_refused(model, "broadcast", lambda: model.expand(torch.Size([3])))
    assert_refused(model, "Y must be finite", lambda: model.condition_on_observations(X, Y * NAN))


def test_a_kernel_that_is_not_positive_definite_leaves_the_data_unchanged():
    class Negative(RBFKernel):
        def forward(self, x1, x2, **params):
            return -super().forward(x1, x2, **params)

    model = OnlineGP(Negative(), 1e-2, input_dim=2)
    with pytest.raises(torch.linalg.LinAlgError):
        model.observe(torch.rand(3, 2, **F64), torch.rand(3, 1, **F64))
    assert model.num_observations == 0

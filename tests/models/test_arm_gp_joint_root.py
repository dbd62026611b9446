"""The root of the covariance that joint draws are made from, turned step by step, against the covariance itself."""

import copy

import pytest
import torch

from bandits_torch import ArmGP, make, recipes, run
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from tests.reference.arm_gp_twins import smooth

N, NOISE = 8, 0.05
closely = {"rtol": 0.0, "atol": 1e-11}


def model_of(batch=(3,), noise=NOISE, **options):
    return ArmGP(N, smooth(N, 0.3), noise, batch_shape=batch, form="covariance", **options)


def pull(model, steps, where=None):
    for _ in range(steps):
        arm, reward = torch.randint(N, model.batch_shape), torch.randn(model.batch_shape).double()
        model.observe_arms(arm, reward, where=where)


def assert_root(model, **tolerance):
    mean, covariance = model.joint()
    centre, root = model.joint_root()
    assert torch.equal(centre, mean)
    torch.testing.assert_close(root @ root.mT, covariance, **(tolerance or closely))


def test_it_follows_observations_removals_and_resets_of_some_members():
    model, some = model_of(), torch.tensor([True, False, True])
    pull(model, 4)
    assert_root(model)
    for act in (
        lambda: pull(model, 30),
        lambda: pull(model, 5, some),
        lambda: model.forget(10),
        lambda: model.forget(3, ~some),
        lambda: model.reset(some),
        lambda: pull(model, 20),
        lambda: model.reset(),
        lambda: pull(model, 1),
    ):
        act()
        assert_root(model)


def test_after_two_thousand_steps_of_a_window_it_is_as_good_as_the_covariance():
    model = model_of((2,), noise=1e-3)
    model.joint_root()
    for _ in range(2_000):
        pull(model, 1)
        if int(model.num_observations[0]) > 50:
            model.forget(1)
    assert_root(model, rtol=0.0, atol=1e-9)


def test_a_member_has_the_root_that_it_has_alone_also_when_others_are_reset():
    arms, rewards = torch.randint(N, (30, 2)), torch.randn(30, 2).double()
    both, alone = model_of((2,)), model_of((1,))
    for model, members in ((both, [0, 1]), (alone, [0])):
        model.joint_root()
        for k in range(30):
            model.observe_arms(arms[k, members], rewards[k, members])
            if k == 15 and len(members) == 2:
                model.reset(torch.tensor([False, True]))
    assert torch.equal(both.joint_root()[1][0], alone.joint_root()[1][0])


def test_a_copy_and_a_loaded_state_have_the_very_same_root():
    model, other = model_of(), model_of()
    pull(model, 5)
    model.joint_root()
    pull(model, 5)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.joint_root()[1], model.joint_root()[1])
    assert torch.equal(copy.deepcopy(model).joint_root()[1], model.joint_root()[1])
    wide = model.expand(torch.Size((2, 3)))
    assert torch.equal(wide.joint_root()[1][1], model.joint_root()[1])
    fresh = model_of()
    pull(fresh, 2)
    other.load_state_dict(fresh.state_dict())  # a state without a root
    assert_root(other)


@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_under_drift_it_is_a_cholesky_factor_of_the_covariance_at_that_time(form):
    time = ExponentialForgettingKernel(0.2)
    kernel = SpatioTemporalKernel(ArmCovarianceKernel(smooth(N, 0.3)), time)
    model = ArmGP(N, kernel, NOISE, batch_shape=(2,), form=form)
    for step in range(6):
        model.observe_arms(torch.randint(N, (2,)), torch.randn(2).double(), float(step))
    mean, root = model.joint_root(8.0)
    torch.testing.assert_close(mean, model.joint(8.0)[0])
    torch.testing.assert_close(root @ root.mT, model.joint(8.0)[1], rtol=0.0, atol=1e-10)
    assert torch.equal(root, root.tril())


def test_a_run_of_thompson_sampling_factors_no_matrix(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a Cholesky factor was made")

    problem = make("gp", num_arms=20, replicates=2)
    policy = recipes.build("gp_ts", problem, replicates=2, horizon=50)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", refuse)
    monkeypatch.setattr(torch.linalg, "cholesky", refuse)
    history = run(policy, problem, 50)
    assert float(history.regret[:, -10:].mean()) < float(history.regret[:, :10].mean())

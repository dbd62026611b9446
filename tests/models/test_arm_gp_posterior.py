"""What ArmGP answers when asked as a BoTorch model, of copies and states too, and what roots of its covariance cost."""

import copy

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import make, recipes, run
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP
from tests.reference.arm_gp_twins import isolated, smooth

N = 8
BATCHES = [(), (2,), (2, 3)]
FORMS = ["covariance", "factor"]
exactly = {"rtol": 1e-9, "atol": 1e-9}


def model_of(form, batch=(), rate=None, observations=6):
    kernel = ArmCovarianceKernel(smooth(N, 0.3))
    if rate is not None:
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(rate))
    model = ArmGP(N, kernel, 0.05, prior_mean=torch.arange(N) / 4, form=form, batch_shape=batch)
    for step in range(observations):
        model.observe_arms(torch.randint(N, batch), torch.randn(batch).double(), float(step))
    return model


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("batch", BATCHES)
def test_inputs_broadcast_against_the_batch(batch, q):
    model = model_of("covariance", batch)
    wide = torch.randint(N, (5, *batch, q, 1)).double()
    narrow = torch.randint(N, (q, 1)).double()
    assert model.posterior(wide).mean.shape == (5, *batch, q, 1)
    assert model.posterior(narrow).mean.shape == (*batch, q, 1)
    for k in range(5):
        alone = model.posterior(wide[k])
        torch.testing.assert_close(model.posterior(wide).mean[k], alone.mean)
        torch.testing.assert_close(model.posterior(wide).variance[k], alone.variance)


@pytest.mark.parametrize("form", FORMS)
def test_forgetting_in_one_member_leaves_no_nan_in_another_that_is_sure_of_nothing(form):
    """In float32 the gain of a masked removal was minus infinity times zero."""
    model = ArmGP(3, isolated(3), 0.1, form=form, batch_shape=(2,), dtype=torch.float32)
    model.observe_arms(torch.tensor([0, 0]), torch.ones(2), where=torch.tensor([True, False]))
    model.forget(where=torch.tensor([True, True]))
    torch.testing.assert_close(model.information_gain, torch.zeros(2), rtol=0, atol=1e-5)


def test_numbers_of_arms_and_noise_may_be_anything_that_broadcasts():
    features = torch.rand(3, N, 2).double()  # arms of their own in each of 3 replicates
    kernel = RBFKernel().double()
    model = ArmGP(features, kernel, torch.tensor([[0.1], [0.2]]), prior_mean=torch.ones(1, 3, N))
    assert model.batch_shape == (2, 3)
    model.observe_arms(torch.randint(N, (2, 3)), torch.randn(2, 3).double())
    for i in range(2):
        for j in range(3):
            alone = ArmGP(features[j], kernel, 0.1 * (i + 1), prior_mean=1.0)
            alone.observe(model.train_inputs[0][i, j], model.train_targets[i, j].unsqueeze(-1))
            torch.testing.assert_close(model.marginals()[0][i, j], alone.marginals()[0])
            torch.testing.assert_close(model.marginals()[1][i, j], alone.marginals()[1])


def learn(model, steps):
    shape = model.batch_shape
    for step in range(steps):
        where = torch.rand(shape) < 0.8
        model.observe_arms(torch.randint(N, shape), torch.randn(shape).double(), float(step), where)
    return model


@pytest.mark.parametrize("form", FORMS)
def test_kernels_of_the_outer_dimension_expand_in_the_inner(form):
    kernels = torch.stack([smooth(N), 2 * smooth(N, 0.1)]).unsqueeze(1)  # 2 x 1
    model = learn(ArmGP(N, kernels, 0.1, form=form), 9)
    wide = model.expand(torch.Size([2, 3]))
    arm, reward = torch.randint(N, (2, 3)), torch.randn(2, 3).double()
    wide.observe_arms(arm, reward)
    for k in range(3):
        alone = copy.deepcopy(model)
        alone.observe_arms(arm[:, k : k + 1], reward[:, k : k + 1])
        for together, apart in zip(wide.joint(), alone.joint(), strict=True):
            torch.testing.assert_close(together[:, k], apart[:, 0])
    wide.reset()
    torch.testing.assert_close(wide.joint()[1], kernels.expand(2, 3, N, N))


@pytest.mark.parametrize("prior_mean", [0.0, torch.zeros(N)])
def test_loading_writes_into_nothing_of_the_caller_s(prior_mean):
    arms, noise = torch.rand(N, 2).double(), torch.tensor(0.1).double()
    kept = arms.clone()
    model = ArmGP(arms, RBFKernel().double(), noise, prior_mean=prior_mean)
    other = ArmGP(arms + 1, RBFKernel().double(), 0.2, prior_mean=1.0)
    model.load_state_dict(other.state_dict())
    assert torch.equal(arms, kept)
    assert noise == torch.tensor(0.1).double()


@pytest.mark.parametrize("form", FORMS)
def test_who_writes_into_a_prior_mean_that_was_returned_changes_no_model(form):
    model = model_of(form)
    before = model.marginals()[0]
    model.prior_mean.zero_()
    assert torch.equal(model.marginals()[0], before)


@pytest.mark.parametrize("wide_from_start", [False, True])
def test_a_state_is_taken_whether_the_batch_was_wide_from_the_start_or_made_wide(wide_from_start):
    """Rows wait in large batches: what one form holds, the other would not have begun with."""
    n, batch = 400, torch.Size((8,))
    made = ArmGP(n, smooth(n, 0.1), 0.1, form="covariance").expand(batch)
    begun = ArmGP(n, smooth(n, 0.1), 0.1, form="covariance", batch_shape=batch)
    told, other = (begun, made) if wide_from_start else (made, begun)
    learn(told, 5)
    other.load_state_dict(told.state_dict())
    for model in (told, other):
        torch.manual_seed(0)
        learn(model, 40)
    torch.testing.assert_close(
        (*told.joint(), *told.marginals()), (*other.joint(), *other.marginals()), rtol=0, atol=0
    )


def test_a_run_of_thompson_sampling_factors_no_matrix(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a Cholesky factor was made")

    problem = make("gp", num_arms=20, replicates=2)
    policy = recipes.build("gp_ts", problem, replicates=2, horizon=50)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", refuse)
    monkeypatch.setattr(torch.linalg, "cholesky", refuse)
    history = run(policy, problem, 50)
    assert float(history.regret[:, -10:].mean()) < float(history.regret[:, :10].mean())


@pytest.mark.parametrize("unit", [1.0, 2.0**-50])
def test_a_root_computed_after_observations_changes_as_little_as_the_covariance(unit: float) -> None:
    """So a replicate draws the same alone as in a batch, whose sums round otherwise."""
    roots = []
    for seed in (0, 1):
        noise = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        covariance = torch.eye(6).double() + 1e-14 * (noise + noise.mT)
        model = ArmGP(6, unit**2 * covariance, 0.1 * unit**2, form="covariance")
        model.observe_arms(torch.tensor(2), torch.tensor(unit).double())
        roots.append(model.joint_root()[1] / unit)
    torch.testing.assert_close(roots[0] @ roots[0].mT, model.joint()[1] / unit**2, rtol=0, atol=1e-12)
    torch.testing.assert_close(*roots, rtol=0, atol=1e-12)

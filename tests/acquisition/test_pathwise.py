"""Pathwise draws over arms and over points: their law over space and time, and their errors where they have any."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, ScaleKernel

from bandits_torch import ArmGP, Domain, IndexPolicy, recipes
from bandits_torch.acquisition import PathwisePointDraw, PathwiseThompsonSampling, ThompsonSampling
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.problems import GridDraws
from bandits_torch.theory import ConstantWidth
from tests.reference.kernels import rbf, scaled

DRAWS = 1500


@pytest.fixture
def space():
    return rbf(0.3).requires_grad_(False)


def model_with_data(kernel, batch_shape=(), num_arms=12):
    arms = torch.linspace(0, 1, num_arms, dtype=torch.float64).unsqueeze(-1)
    model = ArmGP(arms, kernel, 0.1, prior_mean=0.5, batch_shape=batch_shape)
    for t, (arm, reward) in enumerate([(2, 1.0), (7, -0.5), (2, 1.4), (9, 0.3)]):
        model.observe_arms(
            torch.tensor(arm), torch.tensor(reward).double(), float(t) if model.drifts else None
        )
    return model


def assert_law(sampler, model, time):
    """The moments of many draws are the posterior's."""
    paths = torch.stack([sampler.paths(model, time)[0] for _ in range(DRAWS)])
    expected = model.joint(time)
    torch.testing.assert_close((paths.mean(0), torch.cov(paths.mT)), expected, atol=0.15, rtol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [None, lambda: ExponentialForgettingKernel(0.2), lambda: WienerKernel(0.3)])
def test_draws_have_the_posteriors_law(space, make):
    model = model_with_data(space if make is None else SpatioTemporalKernel(space, make()))
    assert_law(PathwiseThompsonSampling(model, seed=1), model, None if make is None else 5.0)


def test_a_given_root_serves_a_grid_exactly():
    problem = GridDraws(side=5, dim=2, lengthscale=0.4)
    root, K = problem.root(), problem.knowledge.kernel(problem.arms).to_dense()
    torch.testing.assert_close(root @ root.mT, K, atol=1e-9, rtol=0)
    model = ArmGP(problem.arms, problem.knowledge.kernel, 0.1)
    model.observe_arms(torch.tensor(3), torch.ones((), dtype=torch.float64))
    assert_law(PathwiseThompsonSampling(model, root=root), model, None)


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel,
        lambda: RBFKernel(active_dims=[1]),
        lambda: MaternKernel(nu=2.5),
        lambda: ScaleKernel(MaternKernel(nu=0.5)),
    ],
)
def test_the_error_of_random_features_is_as_stated(monkeypatch, kernel):
    monkeypatch.setattr("bandits_torch.acquisition.thompson_sampling._EXACT_UP_TO", 1)
    made, N = kernel().double().requires_grad_(False), 200
    getattr(made, "base_kernel", made).lengthscale = 0.3
    arms = torch.rand(N, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = ArmGP(arms, made, 0.1)
    for features in (256, 4096):
        root = PathwiseThompsonSampling(model, features=features).root
        error = (root @ root.mT - made(arms).to_dense()).abs().max()
        assert float(error) < 2 * (torch.log(torch.tensor(float(N))) / features).sqrt()


def test_width_scales_the_draw_round_the_mean_and_replicates_draw_apart(space):
    model = model_with_data(space, batch_shape=(2,))
    still = PathwiseThompsonSampling(model)(model, width=0.0)(model.candidates())
    torch.testing.assert_close(still, model.marginals()[0].mT)
    draw = PathwiseThompsonSampling(model)(model)(model.candidates())
    assert not torch.allclose(draw[:, 0], draw[:, 1])


@pytest.mark.parametrize(
    "over_time",
    [
        lambda: MaternTimeKernel(5.0, 1.5),
        lambda: QuasiPeriodicKernel(24.0, 1.0, 100.0, order=2),
        lambda: ScaleKernel(MaternTimeKernel(5.0, 2.5)).double(),
    ],
)
def test_a_kernel_over_time_with_a_state_space_is_refused_and_plain_thompson_sampling_takes_it(
    space, over_time
):
    model = model_with_data(SpatioTemporalKernel(space, over_time()))
    with pytest.raises(ValueError, match=r"^model's kernel over time must be a MarkovTimeKernel: .*Thompson"):
        PathwiseThompsonSampling(model)
    with pytest.raises(ValueError, match=r"^model's kernel over time"):
        PathwiseThompsonSampling(model, root=torch.eye(12).double())
    batch = model_with_data(SpatioTemporalKernel(space, over_time()), batch_shape=(2,))
    assert IndexPolicy(batch, ThompsonSampling).choose(5.0).arm.shape == (2,)


def test_a_batch_of_kernels_is_refused_over_time_as_over_arms(space):
    rates = ExponentialForgettingKernel(torch.tensor([0.1, 0.3]).double(), batch_shape=(2,))
    model = model_with_data(SpatioTemporalKernel(space, rates), batch_shape=(2,))
    with pytest.raises(ValueError, match=r"^model must be one kernel for the whole batch, got \(2,\)"):
        PathwiseThompsonSampling(model)


def test_draws_over_other_arms_are_refused(space):
    model = model_with_data(space, (1,))
    policy = IndexPolicy(model, PathwiseThompsonSampling(model))
    policy.add_arms(torch.rand(2, 1).double())
    with pytest.raises(ValueError, match="model must be one of 12 arms, as the draws were built for, got 14"):
        policy.choose(0.0)


def test_a_policy_draws_on_from_its_saved_state(space):
    def policy(seed):
        model = model_with_data(space, batch_shape=(1,))
        return IndexPolicy(model, PathwiseThompsonSampling(model, seed=seed), width=ConstantWidth(3.0))

    first, second = policy(1), policy(2)
    for step in range(5):
        first.choose(step)
    second.load_state_dict(first.state_dict())
    indices = [[p.choose(step).why["index"].item() for step in range(5)] for p in (first, second)]
    assert indices[0] == indices[1]
    assert len(set(indices[0])) == 5


def smooth_in_time():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 4.0
    return kernel


TIME_KERNELS = {
    "static": None,
    "forgetting": ExponentialForgettingKernel(0.1),
    "wiener": WienerKernel(0.05),
    "smooth": smooth_in_time(),
}


def taught_model(time_kernel, batch_shape=()):
    kernel = scaled(rbf(0.3), 1.7)
    if time_kernel is not None:
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    d = 2 + (time_kernel is not None)
    model = OnlineGP(kernel, 0.05, prior_mean=0.4, input_dim=d, batch_shape=batch_shape)
    X = torch.rand(*batch_shape, 8, 2).double()
    if time_kernel is not None:
        X = torch.cat([X, torch.arange(8.0).double().unsqueeze(-1).expand(*batch_shape, 8, 1)], -1)
    model.observe(X, torch.sin(7 * X[..., :1]))
    return model


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("static", 1),
        ("forgetting", 2),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("wiener", "smooth")),
    ],
)
def test_mean_and_covariance_of_many_draws_are_the_posterior_s(name, width):
    model = taught_model(TIME_KERNELS[name])
    points = torch.rand(5, 2).double()
    now = None if name == "static" else 9.5
    X = points if now is None else torch.cat([points, torch.full((5, 1), now).double()], -1)
    draws = []
    with torch.no_grad():
        for seed in range(400):
            draw = PathwisePointDraw(model, width, time=now, seeds=[seed], features=256)
            draws.append(draw(X.unsqueeze(-2)))
        posterior = model.posterior(X)
    draws = torch.stack(draws)
    covariance = posterior.distribution.covariance_matrix * width**2
    scale = covariance.diagonal().sqrt()
    off = (draws.mean(0) - posterior.mean.squeeze(-1)).abs() / (scale / 400**0.5)
    assert (off < 4).all()
    error = (torch.cov(draws.T) - covariance).abs() / (scale.unsqueeze(0) * scale.unsqueeze(1))
    assert (error < 5 / 400**0.5).all()


def assert_drawn_as_alone(model, kernels, X, seed=5):
    """Every member of a batch of three draws at X what a model of its own kernel and data draws."""
    now = 9.0 if X.shape[-1] == 3 else None
    with torch.no_grad():
        together = PathwisePointDraw(model, 1.0, time=now, seeds=[seed + k for k in range(3)])(X)
        assert together.shape == (4, 3)
        rows = model.data.rows()
        for k, kernel in enumerate(kernels):
            alone, held = OnlineGP(kernel, 0.05, prior_mean=0.4, input_dim=X.shape[-1]), rows.held[k]
            if bool(held.any()):
                alone.observe(rows.inputs[k][held], rows.targets[k][held].unsqueeze(-1))
            own = PathwisePointDraw(alone, 1.0, time=now, seeds=[seed + k])(X.squeeze(1))
            torch.testing.assert_close(own, together[:, k], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["static", "forgetting"])
@pytest.mark.parametrize("forget", [0, 3, 8])
def test_members_of_a_batch_draw_as_they_would_alone_whatever_others_forget(name, forget):
    model = taught_model(TIME_KERNELS[name], (3,))
    if forget:
        model.forget(forget, torch.tensor([True, False, True]))
    assert_drawn_as_alone(model, [model.kernel] * 3, torch.rand(4, 1, 1, model.input_dim).double())


@pytest.mark.parametrize("batch", [1, 3])
def test_members_draw_from_their_kernels_that_see_some_columns(batch):
    kernel = RBFKernel(active_dims=[1], batch_shape=torch.Size([batch])).double()
    kernel.lengthscale = 0.2 + torch.arange(float(batch)).double().reshape(batch, 1, 1)
    model = OnlineGP(kernel, 0.05, prior_mean=0.4, input_dim=2, batch_shape=(3,))
    model.observe(torch.rand(3, 5, 2).double(), torch.rand(3, 5, 1).double())
    kernels = [RBFKernel(active_dims=[1]).double() for _ in range(3)]
    for k, own in enumerate(kernels):
        own.lengthscale = kernel.lengthscale[k % batch]
    assert_drawn_as_alone(model, kernels, torch.rand(4, 1, 1, 2).double())


@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_policy_over_listed_inputs_makes_another_draw_at_each_step_and_in_each_replicate(space, batch):
    arms = torch.linspace(0, 1, 9).double().unsqueeze(-1)

    def indices(batch, **seeds):
        model = OnlineGP(space, 0.1, input_dim=1, batch_shape=batch)
        policy = IndexPolicy(model, PathwisePointDraw, choices=arms, **seeds)
        return torch.stack([policy.choose(step).why["index"] for step in range(4)])

    values = torch.cat([indices(batch, seed=seed) for seed in (1, 2)])
    assert len(values.unique()) == values.numel()
    for k in range(values.shape[1]):
        alone = indices((1,), seed=1, first_replicate=k)
        torch.testing.assert_close(alone[:, 0], values[:4, k])


def test_a_draw_is_a_function_with_a_gradient():
    model = taught_model(TIME_KERNELS["forgetting"])
    draw = PathwisePointDraw(model, 1.0, time=9.0, seeds=[1])
    X = torch.rand(3, 1, 3).double().requires_grad_(True)
    assert torch.equal(draw(X), draw(X))
    assert torch.autograd.gradcheck(lambda x: draw(x), (X,))


def test_what_cannot_be_drawn_is_refused():
    indices = OnlineGP(ArmCovarianceKernel(torch.eye(3).double()), 0.1, input_dim=1)
    square = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
    late = ScaleKernel(SpatioTemporalKernel(rbf(0.3), WienerKernel(0.05)))
    big = ArmGP(torch.rand(2001, 1, dtype=torch.float64), RQKernel().double(), 0.1)
    for message, draw in (
        ("time must be a number", lambda: PathwisePointDraw(taught_model(TIME_KERNELS["wiener"]))),
        ("kernel must be RBFKernel or MaternKernel", lambda: PathwisePointDraw(indices)),
        ("kernel must be RBFKernel", lambda: PathwiseThompsonSampling(big)),
        ("got 'ScaleKernel of SpatioTemporalKernel'", lambda: recipes.gp_ts(square, late, 0.1)),
    ):
        with pytest.raises(ValueError, match=message):
            draw()

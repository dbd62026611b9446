"""OnlineGP: exact whatever was observed and forgotten, alone and in batches; a BoTorch model; and what it refuses."""

from __future__ import annotations

import copy

import gpytorch
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models.points import growing_cholesky
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.state import differing
from tests.fuzz.living import state_of
from tests.reference.dense_gp import dense_posterior

F64 = {"dtype": torch.float64}
TOLERANCE = 1e-8


def space_kernel(kind=RBFKernel, **kwargs):
    kernel = kind(**kwargs).double()
    kernel.lengthscale = 0.4
    return kernel


KERNELS = {
    "rbf": lambda: space_kernel(),
    "matern": lambda: ScaleKernel(space_kernel(MaternKernel, nu=2.5)).double(),
    "tv": lambda: SpatioTemporalKernel(space_kernel(), ExponentialForgettingKernel(0.05)),
    "wiener": lambda: SpatioTemporalKernel(space_kernel(), WienerKernel(0.02, start=3.0)),
}


def stream(steps, noise, seed=0):
    """Inputs with two columns of space and one of irregular times, and noisy targets."""
    generator = torch.Generator().manual_seed(seed)
    space = torch.rand(steps, 2, generator=generator, **F64)
    times = (3 * torch.rand(steps, 1, generator=generator, **F64)).cumsum(0)
    targets = torch.sin(5 * space.sum(-1, keepdim=True) + 0.05 * times)
    targets = targets + noise**0.5 * torch.randn(steps, 1, generator=generator, **F64)
    return torch.cat([space, times], -1), targets


def candidates(after, seed=1):
    space = torch.rand(40, 2, generator=torch.Generator().manual_seed(seed), **F64)
    return torch.cat([space, torch.full((40, 1), after, **F64)], -1)


def assert_exact(model, kernel, X, Y, noise, prior_mean=0.0):
    """Marginals, joint and gain of the model equal those of a dense solve on X, Y."""
    A = candidates(X[-1, -1].item() + 0.5 if len(X) else 1.0)
    dense = dense_posterior(kernel, X, Y[:, 0], noise, A, prior_mean)
    with torch.no_grad():
        marginal, joint = model.posterior(A.unsqueeze(-2)), model.posterior(A)
        gain = model.information_gain
    close = {"atol": TOLERANCE, "rtol": 0}
    torch.testing.assert_close(marginal.mean[:, 0, 0], dense.mean, **close)
    torch.testing.assert_close(marginal.variance[:, 0, 0], dense.covariance.diagonal(), **close)
    torch.testing.assert_close(joint.mean[:, 0], dense.mean, **close)
    torch.testing.assert_close(joint.distribution.covariance_matrix, dense.covariance, **close)
    assert gain.item() == pytest.approx(dense.information_gain, abs=TOLERANCE * max(1, len(X)))
    assert model.num_observations.item() == len(X)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("rbf", 1e-4),
        ("tv", 1e-4),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("matern", 1e-2), ("wiener", 1e-4), ("wiener", 1.0))
        ),
    ],
)
def test_window_equals_a_dense_solve_on_the_last_200_points_after_many_steps(name, noise, full):
    kernel = KERNELS[name]()
    model = OnlineGP(kernel, noise, input_dim=3)
    steps = 2000 if full else 500
    X, Y = stream(steps, noise)
    for t in range(steps):
        model.observe(X[t : t + 1], Y[t : t + 1])
        if t >= 200:
            model.forget()
        if t in (0, 1, 16, 33, 199, 200, 217, 499, 1999):
            held = slice(max(0, t - 199), t + 1)
            assert_exact(model, kernel, X[held], Y[held], noise)
    assert model.data.capacity <= 3 * 200


@pytest.mark.parametrize("size", [2, 15, 16, 17, 18, 33, 256, 257, 258, 300, 513])
def test_forgetting_is_exact_at_every_block_boundary(size):
    kernel = KERNELS["tv"]()
    model = OnlineGP(kernel, 1e-2, input_dim=3)
    X, Y = stream(size, 1e-2)
    model.observe(X, Y)
    model.forget()
    assert_exact(model, kernel, X[1:], Y[1:], 1e-2)


def linear_mean():
    mean = LinearMean(3).double()
    mean.weights.data = torch.tensor([[0.5], [-1.0], [0.01]], **F64)
    mean.bias.data.fill_(0.3)
    return mean


def constant_mean():
    mean = ConstantMean().double()
    mean.constant.data.fill_(-0.7)
    return mean


@pytest.mark.parametrize(
    "make", [lambda: 2.1, constant_mean, linear_mean], ids=["number", "constant", "linear"]
)
def test_prior_mean_is_that_of_a_dense_solve(make):
    kernel, mean = KERNELS["tv"](), make()
    model = OnlineGP(kernel, 1e-2, prior_mean=mean, input_dim=3)
    X, Y = stream(80, 1e-2)
    assert_exact(model, kernel, X[:0], Y[:0], 1e-2, mean)
    model.observe(X[:50], Y[:50])
    model.forget(10)
    for t in range(50, 80):
        model.observe(X[t : t + 1], Y[t : t + 1])
    assert_exact(model, kernel, X[10:], Y[10:], 1e-2, mean)


def test_a_numeric_prior_mean_is_not_rounded():
    model = OnlineGP(RBFKernel(), 1.0, prior_mean=0.1, input_dim=1)
    assert model.posterior(torch.zeros(1, 1, **F64)).mean.item() == 0.1


def test_it_is_exact_whatever_gpytorch_s_settings_are():
    kernel = KERNELS["rbf"]()
    X, Y = stream(120, 1e-2)
    with (
        gpytorch.settings.max_cholesky_size(1),
        gpytorch.settings.fast_computations(True, True, True),
        gpytorch.settings.lazily_evaluate_kernels(True),
        gpytorch.settings.eval_cg_tolerance(1.0),
    ):
        model = OnlineGP(kernel, 1e-2, input_dim=3)
        model.observe(X, Y)
        model.forget(20)
        assert_exact(model, kernel, X[20:], Y[20:], 1e-2)


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), **F64)


def test_replicates_of_one_design_share_one_factor():
    model = OnlineGP(RBFKernel(), 1e-2, input_dim=2, batch_shape=(5,))
    own = OnlineGP(RBFKernel(batch_shape=torch.Size([5])), 1e-2, input_dim=2, batch_shape=(5,))
    A = draw(9, 1, 1, 2, seed=5)
    for t in range(21):
        X = draw(1, 2, seed=t) if t < 20 else draw(5, 1, 2, seed=t)
        for each in (model, own):
            each.observe(X, draw(5, 1, 1, seed=100 + t))
        assert model.data.factor_shape == ((1,) if t < 20 else (5,))
        if t >= 19:
            ours, theirs = model.posterior(A), own.posterior(A)
            torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-8, rtol=0)
            torch.testing.assert_close(ours.variance, theirs.variance, atol=1e-8, rtol=0)
    assert own.data.factor_shape == (5,)


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


def test_data_read_earlier_stay_as_they_were():
    model, X, Y = OnlineGP(RBFKernel(), 1e-2, input_dim=2), draw(6, 2), draw(6, 1, seed=1)
    model.observe(X, Y)
    (inputs,), targets = model.train_inputs, model.train_targets
    model.forget()
    assert torch.equal(inputs, X)
    assert torch.equal(targets, Y.squeeze(-1))
    targets.zero_()
    assert torch.equal(model.train_targets, Y[1:].squeeze(-1))


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


@pytest.mark.parametrize("masked", [False, True])
def test_steps_run_on_a_device_without_reading_from_it(masked):
    """Tensors of PyTorch's meta device have no values; so few steps need no compaction of rows, which does read."""
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


pytestmark = pytest.mark.filterwarnings("ignore:Data .* is not:botorch.exceptions.warnings.InputDataWarning")


def make_kernel(batch_shape=()):
    return space_kernel(MaternKernel, nu=2.5, batch_shape=torch.Size(batch_shape))


def botorch_twin(model):
    (X,), Y = model.train_inputs, model.train_targets.unsqueeze(-1)
    noise = model.noise_variance.expand(model.batch_shape)[..., None, None].expand_as(Y)
    twin = SingleTaskGP(
        X,
        Y,
        noise.clone(),
        covar_module=copy.deepcopy(model.kernel),
        mean_module=None,
        outcome_transform=None,
    )
    twin.mean_module.constant.data.zero_()
    return twin


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("t_batch", ["none", "many", "own", "many ones", "many own"])
@pytest.mark.parametrize("q", [1, 4])
def test_shapes_and_values_are_those_of_a_botorch_model(batch, t_batch, q, noisy):
    model = OnlineGP(make_kernel(batch), 1e-2, input_dim=2, batch_shape=batch)
    model.observe(draw(*batch, 12, 2), draw(*batch, 12, 1, seed=1))
    ones = [1] * len(batch)
    shape = {
        "none": [],
        "many": [5, *ones],
        "own": batch,
        "many ones": [5, 2, *ones],
        "many own": [5, *batch],
    }
    X = draw(*shape[t_batch], q, 2, seed=2)
    ours = model.posterior(X, observation_noise=noisy)
    theirs = botorch_twin(model).posterior(X, observation_noise=noisy)
    assert ours.mean.shape == theirs.mean.shape
    torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-8, rtol=0)
    torch.testing.assert_close(ours.variance, theirs.variance, atol=1e-8, rtol=0)
    covariance = theirs.distribution.covariance_matrix
    torch.testing.assert_close(ours.distribution.covariance_matrix, covariance, atol=1e-8, rtol=0)
    assert ours.rsample(torch.Size([6])).shape == theirs.rsample(torch.Size([6])).shape


def test_members_beyond_the_model_s_singleton_batch_come_from_the_candidates():
    model = OnlineGP(make_kernel(), 1e-2, input_dim=2, batch_shape=(1,))
    model.observe(draw(12, 2), draw(12, 1, seed=1))
    X = draw(4, 5, 1, 2, seed=2)
    posterior = model.posterior(X)
    assert posterior.mean.shape == (4, 5, 1, 1)
    torch.testing.assert_close(posterior.mean[2, 3], model.posterior(X[2, 3]).mean[0])


@pytest.mark.parametrize("size", [0, 12])
@pytest.mark.parametrize("q", [1, 3])
def test_gradients_with_respect_to_candidates_agree_with_finite_differences(q, size):
    kernel = SpatioTemporalKernel(RBFKernel(ard_num_dims=2), ExponentialForgettingKernel(0.2)).double()
    model = OnlineGP(kernel, 1e-2, input_dim=3, batch_shape=(2,))
    if size:
        model.observe(draw(2, size, 3), draw(2, size, 1, seed=1))
        model.forget(3, where=torch.tensor([True, False]))

    def moments(X):
        posterior = model.posterior(X)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(moments, (draw(4, 1, q, 3, seed=2).requires_grad_(True),))


def test_gradients_with_respect_to_observations_conditioned_on_agree_with_finite_differences():
    model = OnlineGP(RBFKernel(ard_num_dims=2).double(), 1e-2, input_dim=2)
    model.observe(draw(10, 2), draw(10, 1, seed=1))
    A = draw(4, 1, 1, 1, 2, seed=2)

    def moments(X, Y):
        posterior = model.condition_on_observations(X, Y).posterior(A)
        return posterior.mean, posterior.variance

    X, Y = draw(3, 2, 2, seed=3).requires_grad_(True), draw(5, 3, 2, 1, seed=4).requires_grad_(True)
    assert torch.autograd.gradcheck(moments, (X, Y))


def test_learning_records_no_graph():
    model = OnlineGP(make_kernel(), 1e-3, input_dim=2)
    model.observe(draw(9, 2).requires_grad_(True), draw(9, 1))
    model.forget(3)
    model.rebuild()
    assert not any(buffer.requires_grad for buffer in model.buffers())


def test_forgetting_more_than_a_chosen_member_holds_is_refused():
    model = OnlineGP(RBFKernel(), 1e-2, input_dim=2, batch_shape=(2,))
    model.observe(torch.rand(5, 2, **F64), torch.rand(5, 1, **F64))
    model.forget(3, where=torch.tensor([True, False]))
    before = state_of(model)
    for where in (None, torch.tensor([True, False])):
        with pytest.raises(ValueError, match="count"):
            model.forget(3, where=where)
        assert not differing(before, state_of(model))
    model.forget(3, where=torch.tensor([False, True]))
    model.forget(7, where=torch.tensor([False, False]))
    assert model.num_observations.tolist() == [2, 2]


def test_a_kernel_that_is_not_positive_definite_leaves_the_data_unchanged():
    class Negative(RBFKernel):
        def forward(self, x1, x2, **params):
            return -super().forward(x1, x2, **params)

    model = OnlineGP(Negative(), 1e-2, input_dim=2)
    with pytest.raises(torch.linalg.LinAlgError):
        model.observe(torch.rand(3, 2, **F64), torch.rand(3, 1, **F64))
    assert model.num_observations == 0


DRIFT = 0.01


def over_time(start=0.0, dtype=torch.float64):
    return SpatioTemporalKernel(RBFKernel(), WienerKernel(DRIFT, start=start)).to(dtype)


def rows(t0, n=5):
    arms = torch.tensor([0.1, 0.1, 0.3, 0.3, 0.1], dtype=torch.float64)[:n]
    return torch.stack([arms, torch.full_like(arms, t0)], -1)


def rewards(k, n=5):
    return torch.randn(n, 1, generator=torch.Generator().manual_seed(k), dtype=torch.float64)


@pytest.mark.parametrize("rows_at_once", [1, 5])
@pytest.mark.parametrize(
    ("kernel", "X", "noise", "dtype"),
    [
        (over_time(), rows(1.7e9), 1e-8, torch.float64),
        (over_time(), rows(1e12), 1e-6, torch.float64),
        (over_time(), rows(1.7e9), 1e-2, torch.float32),
        (LinearKernel().double(), torch.full((5, 2), 1e9, dtype=torch.float64), 1e-2, torch.float64),
    ],
    ids=["clock", "milliseconds", "float32", "far away"],
)
def test_a_variance_that_has_outgrown_the_noise_is_refused_where_it_is_observed(
    kernel, X, noise, dtype, rows_at_once
):
    model = OnlineGP(kernel, noise, input_dim=2, dtype=dtype)
    X, Y = X[:rows_at_once], rewards(0, rows_at_once)
    for call in (model.observe, model.condition_on_observations):
        with pytest.raises(
            ValueError, match=r"X must be where noise_variance is at least .* of the prior variance"
        ):
            call(X, Y)
    assert model.num_observations == 0
    model.observe(torch.zeros_like(X), Y)  # here it has not


@pytest.mark.parametrize("n", [1, 2, 3])
def test_it_is_refused_of_any_number_of_rows_beside_the_number_of_kernels(n):
    wander = WienerKernel(torch.tensor([1e16, 1e-3]).double(), batch_shape=(2,))
    kernel = SpatioTemporalKernel(RBFKernel().double(), wander)
    model = OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(2,))
    late = torch.cat([rows(0.0, n - 1), rows(100.0, 1)])  # too much for the first kernel alone
    with pytest.raises(ValueError, match="X must be where noise_variance"):
        model.observe(late, rewards(0, n))


def test_noise_that_the_observed_variance_has_outgrown_is_not_adopted():
    model = OnlineGP(over_time(), 1e-4, input_dim=2)
    model.observe(rows(1.7e9), rewards(0))
    with pytest.raises(ValueError, match="noise_variance"):
        model.adopt(torch.tensor(1e-8, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64))
    assert model.noise_variance == 1e-4


def test_rows_that_cannot_be_held_replace_none():
    model = OnlineGP(over_time(), 1e-8, input_dim=2)
    model.observe(rows(0.0), rewards(0))
    before = model.train_inputs[0].clone()
    late = torch.cat([rows(1.0, 1), rows(1.7e9, 1)])  # the second has too large a variance
    with pytest.raises(ValueError, match="X must be where noise_variance"):
        model.hold(late, rewards(1, 2), torch.tensor([True, True]))
    assert torch.equal(model.train_inputs[0], before)


@pytest.mark.parametrize("start", [1.7e9, 1e12])
def test_the_same_rows_counted_from_a_start_are_not_refused(start):
    model = OnlineGP(over_time(start), 1e-8, input_dim=2)
    model.observe(rows(start + 5.0), rewards(0))
    assert model.log_likelihood.isfinite()


def blocks_that_fail(monkeypatch):
    """From now on several rows cannot be learned as one block. Returns the list of the blocks that are tried."""
    learned, blocks = growing_cholesky.new_rows, []

    def new_rows(prior, data, X, *more):
        if X.shape[-2] > 1:
            blocks.append(X)
            raise torch.linalg.LinAlgError("as LAPACK finds")
        return learned(prior, data, X, *more)

    monkeypatch.setattr(growing_cholesky, "new_rows", new_rows)
    return blocks


def test_rows_that_are_no_positive_definite_matrix_together_are_learned_one_after_the_other(monkeypatch):
    """As it happens where little more than the noise is left of K + lambda I."""
    X, Y = rows(1.7e9), 0.01 * rewards(0)
    one, other = (OnlineGP(over_time(), 1e-4, input_dim=2) for _ in range(2))
    one.observe(X, Y)
    for k in range(5):
        other.observe(X[k : k + 1], Y[k : k + 1])
    blocks = blocks_that_fail(monkeypatch)
    third = OnlineGP(over_time(), 1e-4, input_dim=2)
    third.observe(X, Y)
    fourth = OnlineGP(over_time(), 1e-4, input_dim=2).condition_on_observations(X, Y)
    assert len(blocks) == 2
    points = rows(1.7e9 + 1).unsqueeze(-2)
    for model in (one, third, fourth):
        torch.testing.assert_close(
            model.posterior(points).mean, other.posterior(points).mean, rtol=0, atol=1e-6
        )
        torch.testing.assert_close(model.log_likelihood, other.log_likelihood, rtol=1e-4, atol=0)


def test_rows_that_cannot_be_factored_anew_are_learned_again(monkeypatch):
    model = OnlineGP(over_time(), 1e-4, input_dim=2, batch_shape=(2,))
    for k in range(6):
        where = torch.tensor([True, k != 2])
        model.observe(rows(1.7e9 + k), 0.01 * rewards(k), where)
    before = model.posterior(rows(1.7e9 + 6).unsqueeze(-2).unsqueeze(-3)).mean, model.log_likelihood
    blocks = blocks_that_fail(monkeypatch)
    model.rebuild()
    assert len(blocks) == 1
    assert model.num_observations.tolist() == [30, 25]
    torch.testing.assert_close(
        model.posterior(rows(1.7e9 + 6).unsqueeze(-2).unsqueeze(-3)).mean, before[0], rtol=0, atol=1e-6
    )
    torch.testing.assert_close(model.log_likelihood, before[1], rtol=1e-4, atol=0)


@pytest.mark.parametrize("noise", [2e-7, 1e-6])
def test_no_factorisation_fails_where_the_ratio_is_allowed(noise):
    """Ratios of 1e-14 and 6e-14: blocks, and the rows factored anew, are only just positive definite, or not."""
    model = OnlineGP(over_time(), noise, input_dim=2)
    for k in range(20):
        model.observe(rows(1.7e9 + k), noise**0.5 * rewards(k))
        model.rebuild()
        assert model.log_likelihood.isfinite()
    assert (model.posterior(rows(1.7e9 + 20).unsqueeze(-2)).variance > 0).all()

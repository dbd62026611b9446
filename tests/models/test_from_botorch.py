"""OnlineGP from a fitted SingleTaskGP, streaming beside plain BoTorch, and back."""

import copy
import io

import pytest
import torch
from botorch import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import ChainedInputTransform, Normalize, Round, Warp
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from bandits_torch.acquisition import PathwisePointDraw
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import OnlineGP
from bandits_torch.state import differing
from tests.fuzz.living import state_of

F64 = {"dtype": torch.float64}
LOW, RANGE = torch.tensor([1000.0, -3.0], **F64), torch.tensor([100.0, 5.0], **F64)
pytestmark = pytest.mark.filterwarnings("ignore:Data .* is not:botorch.exceptions.warnings.InputDataWarning")


def points(n, seed, q=None):
    shape = (n, 2) if q is None else (n, q, 2)
    return LOW + RANGE * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), **F64)


def outcomes(X, seed):
    noise = torch.randn(*X.shape[:-1], 1, generator=torch.Generator().manual_seed(seed), **F64)
    return 5000 + 300 * torch.sin(X[..., :1] / 20) * X[..., 1:] + 10 * noise


def warped():
    return ChainedInputTransform(to_unit=Normalize(2), warp=Warp(d=2, indices=[0, 1]))


OVER_TIME = SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel(0.3))
SETTINGS = {
    "standardised and normalised": lambda: {"input_transform": Normalize(2)},
    "standardised": dict,
    "plain": lambda: {"outcome_transform": None},
    "normalised": lambda: {"outcome_transform": None, "input_transform": Normalize(2)},
    "warped": lambda: {"input_transform": warped()},
    "rounded": lambda: {"input_transform": ChainedInputTransform(a=Round([0]), b=Normalize(2))},
    "scaled Matern, linear mean": lambda: {
        "input_transform": Normalize(2),
        "covar_module": ScaleKernel(MaternKernel(1.5, ard_num_dims=2)),
        "mean_module": LinearMean(2),
    },
    "over time": lambda: {"input_transform": Normalize(2), "covar_module": copy.deepcopy(OVER_TIME)},
    "known noise": lambda: {"input_transform": Normalize(2), "train_Yvar": torch.full((25, 1), 90.0, **F64)},
}


def fit(setting="standardised and normalised", n=25):
    X = points(n, 0)
    gp = SingleTaskGP(X, outcomes(X, 1), **SETTINGS[setting]()).double()
    options = {"optimizer_kwargs": {"options": {"maxiter": 10}}, "max_attempts": 1}
    fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp), warning_handler=lambda w: True, **options)
    return gp


@pytest.fixture(scope="module")
def fitted():
    return {name: fit(name) for name in SETTINGS}


def rebuilt(gp, X, Y, learn_units):
    """Plain BoTorch on these data: hyperparameters of ``gp``, its transforms too, or those that the outcomes have."""
    outward = copy.deepcopy(getattr(gp, "outcome_transform", None))
    if learn_units:
        outward.train()
    variances = None
    if outward is not None:
        Y = outward(Y)[0]
    if not hasattr(gp.likelihood, "raw_noise"):
        variances = gp.likelihood.noise.mean().expand_as(Y)
    new = SingleTaskGP(X, Y, variances, None, copy.deepcopy(gp.covar_module), None, outcome_transform=None)
    if variances is None:
        new.likelihood = copy.deepcopy(gp.likelihood)
    new.mean_module = copy.deepcopy(gp.mean_module)
    if outward is not None:
        new.outcome_transform = outward.eval()
    if hasattr(gp, "input_transform"):
        new.input_transform = copy.deepcopy(gp.input_transform).eval()
    return new.eval()


@torch.no_grad()
def assert_same(ours, theirs, A, unit=1.0, tolerance=1e-8):
    """Means, variances and covariances differ by at most 1e-8 of the outcomes' unit, and of its square."""
    for noisy in (False, True):
        a, b = (model.posterior(A, observation_noise=noisy) for model in (ours, theirs))
        torch.testing.assert_close(a.mean / unit, b.mean / unit, atol=tolerance, rtol=0)
        torch.testing.assert_close(a.variance / unit**2, b.variance / unit**2, atol=tolerance, rtol=0)
    a, b = (model.posterior(A.squeeze(-2)).distribution.covariance_matrix for model in (ours, theirs))
    torch.testing.assert_close(a / unit**2, b / unit**2, atol=tolerance, rtol=0)


def unit_of(gp):
    return float(gp.outcome_transform.stdvs) if hasattr(gp, "outcome_transform") else 1e3


@pytest.mark.parametrize("name", list(SETTINGS))
def test_predictions_are_those_of_the_fitted_model_and_stay_so_while_it_learns_and_forgets(name, fitted):
    gp, A = fitted[name], points(40, 2, 1)
    model = OnlineGP.from_botorch(gp)
    assert_same(model, gp, A, unit_of(gp))
    assert_same(model.to_botorch(), gp, A, unit_of(gp))
    X, Y = points(6, 3), outcomes(points(6, 3), 4)
    for x, y in zip(X, Y, strict=True):
        model.observe(x[None], y[None])
    model.forget(10)
    all_X = torch.cat([points(25, 0), X])[10:]
    all_Y = torch.cat([outcomes(points(25, 0), 1), Y])[10:]
    assert_same(model, rebuilt(gp, all_X, all_Y, False), A, unit_of(gp))
    torch.testing.assert_close(model.train_inputs[0], all_X)
    torch.testing.assert_close(model.train_targets, all_Y.squeeze(-1))


@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize("running", [False, True])
def test_two_hundred_steps_of_streaming_are_two_hundred_refits_with_the_same_hyperparameters(
    running, window, fitted
):
    gp, A = fitted["standardised and normalised"], points(20, 2, 1)
    model = OnlineGP.from_botorch(gp, running=running)
    X, Y = points(25, 0), outcomes(points(25, 0), 1)
    for step in range(200):
        x = points(1, 100 + step)
        y = outcomes(x, 400 + step) + (20.0 + 3.0 * step) * step / 50  # level and spread drift
        model.observe(x, y)
        X, Y = torch.cat([X, x]), torch.cat([Y, y])
        if window is not None and len(X) > window:
            model.forget()
            X, Y = X[1:], Y[1:]
        if step % 10 == 9:
            twin = rebuilt(gp, X, Y, running)
            assert_same(model, twin, A, float(twin.outcome_transform.stdvs))
            torch.testing.assert_close(model.kernel.scale, twin.outcome_transform.stdvs.squeeze())
    assert model.num_observations == (225 if window is None else window)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("name", ["standardised and normalised", "warped", "known noise"])
def test_one_call_refits_as_botorch_does(name, running, fitted):
    gp = fitted[name]
    model = OnlineGP.from_botorch(gp, running=running)
    X = points(15, 9)
    model.observe(X, outcomes(X, 10) + 500)
    twin, A = model.to_botorch(), points(30, 2, 1)
    assert_same(model, twin, A, float(twin.outcome_transform.stdvs))
    before = twin.posterior(A).mean
    with torch.no_grad():
        held = torch.cat([points(25, 0), X]), torch.cat([outcomes(points(25, 0), 1), outcomes(X, 10) + 500])
    theirs = rebuilt(gp, *held, True)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(theirs.likelihood, theirs))
    model.refit()
    unit = float(theirs.outcome_transform.stdvs)
    assert float((model.posterior(A).mean - before).detach().abs().max()) > 1e-3 * unit
    assert_same(model, theirs, A, unit, tolerance=1e-5)
    model.observe(points(1, 11), outcomes(points(1, 11), 12))
    assert model.num_observations == 41
    assert_same(model, model.to_botorch(), A, unit)


def test_a_fit_that_fails_leaves_the_model_as_it_was(fitted):
    model = OnlineGP.from_botorch(fitted["standardised and normalised"], running=True)
    before = state_of(model)

    def fails(*_args, **_kwargs):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.refit(optimizer=fails)
    assert not differing(before, state_of(model))


def test_what_it_takes_is_a_copy_and_what_it_saves_is_all_of_it(fitted):
    gp, A = fitted["warped"], points(10, 2, 1)
    kept = copy.deepcopy(gp.state_dict())
    gp.posterior(A)  # what it caches lets it be conditioned on more
    model = OnlineGP.from_botorch(gp, running=True)
    model.observe(points(5, 3), outcomes(points(5, 3), 4) + 1e4)
    assert all(torch.equal(v, gp.state_dict()[k]) for k, v in kept.items())
    assert gp.condition_on_observations(points(1, 3), outcomes(points(1, 3), 4)).train_targets.shape == (26,)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = OnlineGP.from_botorch(gp, running=True)
    other.load_state_dict(torch.load(file))
    for each in (model, other):
        each.train()  # which BoTorch's transforms take as leave to learn
        each.observe(points(5, 5), outcomes(points(5, 5), 6))
    assert torch.equal(model.posterior(A).mean, other.posterior(A).mean)
    assert_same(model, model.to_botorch(), A, float(model.kernel.scale))


@pytest.mark.parametrize("name", ["standardised and normalised", "warped", "rounded"])
def test_bounds_of_the_inputs_stay_where_later_observations_lie_outside(name, fitted):
    gp, A = fitted[name], points(10, 2, 1)
    gp.posterior(A)
    conditioned = gp.condition_on_observations(points(1, 3) + RANGE, outcomes(points(1, 3), 4))
    kept = copy.deepcopy(conditioned.state_dict())
    model = OnlineGP.from_botorch(conditioned)
    assert all(torch.equal(v, conditioned.state_dict()[k]) for k, v in kept.items())
    assert_same(model, conditioned, A, unit_of(gp))
    model.observe(points(1, 5) - RANGE, outcomes(points(1, 5), 6))
    assert_same(OnlineGP.from_botorch(model.to_botorch()), model, A, unit_of(gp))


def test_what_is_pending_moves_no_unit(fitted):
    model, A = OnlineGP.from_botorch(fitted["standardised and normalised"], running=True), points(10, 2, 1)
    before, scale = model.posterior(A), model.kernel.scale.clone()
    with model.provisional():
        model.expect(points(1, 5))
        assert torch.equal(model.kernel.scale, scale)
        torch.testing.assert_close(model.posterior(A).mean, before.mean)
    assert torch.equal(model.posterior(A).variance, before.variance)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["standardised and normalised", "scaled Matern, linear mean", "over time"])
def test_pathwise_draws_have_the_posterior_s_moments(name, fitted):
    model, A = OnlineGP.from_botorch(fitted[name]), points(6, 2, 1)
    at = torch.cat([A[..., :1], torch.full_like(A[..., 1:], 1.0)], -1) if name == "over time" else A
    time = 1.0 if name == "over time" else None
    draws = [PathwisePointDraw(model.expand(torch.Size([200])), time=time, seeds=range(200))(A.unsqueeze(-3))]
    if name == "standardised and normalised":  # BoTorch's own paths, each with features of its own
        few = [draw_matheron_paths(model, sample_shape=torch.Size([1]))(A.squeeze(-2))[0] for _ in range(100)]
        draws.append(torch.stack(few))
    truth = model.posterior(at)
    mean, deviation = truth.mean[:, 0, 0].detach(), truth.variance[:, 0, 0].detach().sqrt()
    for some in draws:
        some = some.detach().T if len(some) == len(A) else some.detach()
        assert float(((some.mean(0) - mean) / deviation).abs().max()) < 5 / len(some) ** 0.5
        assert float((some.std(0) / deviation - 1).abs().max()) < 3.7 / len(some) ** 0.5


def test_a_plain_model_goes_to_botorch_too():
    model = OnlineGP(MaternKernel(2.5).double(), 1e-3, prior_mean=2.0, input_dim=2)
    with pytest.raises(ValueError, match="num_observations"):
        model.to_botorch()
    X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), **F64)
    model.observe(X, X.sum(-1, keepdim=True))
    assert_same(model, model.to_botorch(), X[:, None] + 0.1)
    model.refit()
    assert type(model.kernel) is MaternKernel
    assert_same(model, model.to_botorch(), X[:, None] + 0.1)


def test_units_follow_the_data_of_one_model_alone_without_noise_of_its_own(fitted):
    new, row = (points(1, 0), outcomes(points(1, 0), 1)), torch.tensor(0)
    model = OnlineGP.from_botorch(fitted["standardised"], running=True)
    many = model.expand(torch.Size([3]))
    noisy = model.condition_on_observations(new[0], torch.ones(1, 1, **F64), noise=torch.ones(1, 1, **F64))
    A = points(5, 2, 1)
    before = noisy.posterior(A).mean
    for match, change in (
        ("running=True follows one model", lambda: many.observe(*new)),
        ("running=True follows one model", many.forget),
        ("conditioned with noise=", lambda: noisy.observe(*new)),
        ("conditioned with noise=", noisy.forget),
        ("conditioned with noise=", lambda: noisy.remove(row)),
        ("conditioned with noise=", lambda: noisy.total_precision),
    ):
        with pytest.raises(ValueError, match=match):
            change()
    assert torch.equal(noisy.posterior(A).mean, before)
    OnlineGP.from_botorch(fitted["standardised"]).expand(torch.Size([3])).observe(*new)


def test_noise_variances_are_in_the_unit_of_outcomes_where_botorch_s_are_of_standardised_ones():
    X, new, A = points(12, 0), points(3, 1), points(5, 2)
    Y, Y_new = outcomes(X, 3), outcomes(new, 4)
    fitted = SingleTaskGP(X, Y, torch.full_like(Y, 100.0), input_transform=Normalize(2)).eval()
    fitted.posterior(A)
    own, unit = torch.tensor([[50.0], [400.0], [900.0]], **F64), fitted.outcome_transform.stdvs
    ours = OnlineGP.from_botorch(fitted).condition_on_observations(new, Y_new, noise=own).posterior(A)
    theirs = fitted.condition_on_observations(new, Y_new, noise=own / unit**2).posterior(A)
    assert torch.allclose(ours.mean, theirs.mean, rtol=1e-8)
    assert torch.allclose(ours.variance, theirs.variance, rtol=1e-6)

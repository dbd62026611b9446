"""What BoTorch's and GPyTorch's functions call on a model, paths too: beside a ``SingleTaskGP``, or refused by name."""

import copy
import re
import subprocess
import sys
import textwrap

import gpytorch
import pytest
import torch
from botorch.acquisition import UpperConfidenceBound, get_acquisition_function, qKnowledgeGradient
from botorch.acquisition.analytic import LogExpectedImprovement, PosteriorMean
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import IdentityMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.acquisition.utils import prune_inferior_points
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling, gen_candidates_scipy, get_best_candidates
from botorch.optim import optimize_acqf
from botorch.optim.initializers import gen_batch_initial_conditions, gen_one_shot_kg_initial_conditions
from botorch.optim.optimize import optimize_acqf_list
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths, gen_kernel_features
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from bandits_torch import UpperConfidenceBound as OurUpperConfidenceBound
from bandits_torch import models
from bandits_torch.acquisition.thompson_sampling import PathwisePointDraw
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models import AtTime, OnlineGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from tests.acquisition.test_botorch_acquisitions import drifting
from tests.reference import botorch_twins as twins
from tests.reference.kernels import scaled

F64 = {"dtype": torch.float64}
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **F64)
pytestmark = pytest.mark.filterwarnings("ignore:A not p.d.")


@pytest.fixture(params=list(twins.MODELS))
def case(request):
    return twins.MODELS[request.param]()


def assert_same(ours, theirs, tolerance=1e-6):
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=0, atol=tolerance)
    covariances = [p.distribution.covariance_matrix for p in (ours, theirs)]
    torch.testing.assert_close(*covariances, rtol=0, atol=tolerance)


def both(case):
    case.twin.posterior(case.choices[:1])  # GPyTorch conditions a model that has predicted
    return case.model, case.twin


@pytest.mark.parametrize("noise", [False, True, "each", "one"])
@pytest.mark.parametrize("q", [1, 3])
def test_observation_noise_is_added_as_asked(case, q, noise):
    X = case.choices[:6].reshape(6 // q, q, -1)
    if noise == "each":
        noise = 0.1 + torch.rand(6 // q, q, 1, **F64)
    elif noise == "one":
        noise = torch.full((1, 1), 0.3, **F64)
    model, twin = both(case)
    with torch.no_grad():
        assert_same(model.posterior(X, observation_noise=noise), twin.posterior(X, observation_noise=noise))


def test_one_output_and_its_transforms(case):
    model, X = case.model, case.choices
    negative = ScalarizedPosteriorTransform(torch.tensor([-2.0], **F64), offset=1.0)
    for inputs in (X, X.unsqueeze(-2)):
        plain, turned = model.posterior(inputs), model.posterior(inputs, posterior_transform=negative)
        torch.testing.assert_close(turned.mean, 1 - 2 * plain.mean)
        torch.testing.assert_close(turned.variance, 4 * plain.variance)
    assert model.num_outputs == 1
    assert torch.equal(model.posterior(X, output_indices=[0]).mean, model.posterior(X).mean)
    with pytest.raises(ValueError, match="output_indices must be None or"):
        model.posterior(X, output_indices=[1])
    assert torch.equal(model.subset_output([0]).posterior(X).mean, model.posterior(X).mean)
    with pytest.raises(ValueError, match="idcs must be"):
        model.subset_output([1])


def test_conditioning_and_fantasies_are_botorch_s(case):
    X, at = case.choices, case.choices[3:6]
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    Y = torch.tensor([[0.3], [-0.2]], **F64)
    before = case.model.posterior(at).mean.clone()
    with torch.no_grad():
        model, twin = both(case)
        assert_same(
            model.condition_on_observations(X[:2], Y).posterior(at),
            twin.condition_on_observations(X[:2], Y).posterior(at),
        )
        assert_same(
            model.get_fantasy_model(X[:2], Y[:, 0]).posterior(at),
            model.condition_on_observations(X[:2], Y).posterior(at),
            1e-12,
        )
        for inputs in (X[:2], X[:4].reshape(2, 2, -1)):
            assert_same(
                model.fantasize(inputs, sampler).posterior(at),
                twin.fantasize(inputs, sampler).posterior(at),
                1e-5,
            )
    assert torch.equal(case.model.posterior(at).mean, before)


@pytest.mark.parametrize("kind", [models.ArmGP, models.SketchedGP, WeightedGP])
def test_observations_whose_batch_does_not_fit_are_refused(kind):
    model, X = kind(3, torch.eye(3, **F64), 0.1, batch_shape=(2,)), torch.zeros(2, 1, 1, **F64)
    with pytest.raises(ValueError, match="the batches of X, Y and the model must broadcast together"):
        model.condition_on_observations(torch.zeros(3, 1, 1, **F64), X)
    with pytest.raises(ValueError, match="X must be a tensor"):
        model.condition_on_observations([[0.0]], X)
    with pytest.raises(ValueError, match="the batches of noise and the model must broadcast together"):
        model.condition_on_observations(X, X, noise=torch.full((3, 1, 1), 0.1, **F64))
    one = model.condition_on_observations(X, X, noise=torch.full((1, 1), 0.1, **F64))
    assert torch.equal(one.num_observations, torch.tensor([1, 1]))


def test_a_conditioned_model_can_be_copied():
    """Its rows record a graph of the kernel's parameters, and PyTorch refuses to copy such tensors."""
    model, X = models.OnlineGP(gpytorch.kernels.RBFKernel(), 0.1, input_dim=2), torch.rand(3, 2, **F64)
    model.observe(X, X[:, :1])
    conditioned = model.condition_on_observations(1 - X, X[:, 1:])
    copied = copy.deepcopy(conditioned)
    assert torch.equal(copied.posterior(X / 2).mean, conditioned.posterior(X / 2).mean)
    copied.forget()
    assert int(conditioned.num_observations) == 6


@pytest.mark.parametrize("kind", [models.ArmGP, models.SketchedGP, WeightedGP])
def test_a_model_over_arms_that_learned_rewards_with_a_graph_can_be_copied(kind):
    rewards = torch.ones(2, 1, **F64, requires_grad=True)
    conditioned = kind(3, torch.eye(3, **F64), 0.1).condition_on_observations(
        torch.eye(2, **F64)[:, :1], 2 * rewards
    )
    X = torch.zeros(1, 1, **F64)
    assert torch.equal(copy.deepcopy(conditioned).posterior(X).mean, conditioned.posterior(X).mean)


def test_fantasies_of_a_sketch_can_be_fantasized_again():
    model, sampler = models.SketchedGP(X := torch.rand(5, 2, **F64), RBFKernel(), 0.1), SobolQMCNormalSampler
    model.observe(torch.tensor([[0.0], [3.0]], **F64), X[:2, :1])
    twice = model
    for shape in ([4], [2]):
        twice = twice.fantasize(torch.tensor([[1.0], [2.0]], **F64), sampler(torch.Size(shape), seed=0))
    assert twice.posterior(torch.tensor([[4.0]], **F64)).mean.shape == (2, 4, 1, 1)


@pytest.mark.parametrize("label", [label for label in twins.MODELS if "OnlineGP" not in label])
def test_models_over_arms_know_one_noise_and_refuse_another(label):
    """It was dropped without a word: joint entropy search conditioned on noisy optima."""
    model, X = twins.MODELS[label]().model, torch.tensor([[1.0], [2.0]], **F64)
    Y, own = torch.ones(2, 1, **F64), torch.full((2, 1), twins.NOISE, **F64)
    same = model.condition_on_observations(X, Y, noise=own).posterior(X).mean
    assert torch.equal(same, model.condition_on_observations(X, Y).posterior(X).mean)
    with pytest.raises(ValueError, match=r"noise must be noise_variance, 0\.05"):
        model.condition_on_observations(X, Y, noise=2 * own)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    with pytest.raises(ValueError, match="noise must be noise_variance"):
        model.fantasize(X, sampler, observation_noise=2 * own)


@pytest.mark.parametrize("label", twins.MODELS)
def test_botorch_s_fit_is_refused_with_what_learns_hyperparameters_here(label):
    model = twins.MODELS[label]().model
    with pytest.raises(ValueError, match=r"has no likelihood.*fit_hyperparameters\(model, \[0\]\)"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def test_the_example_of_what_learns_hyperparameters_runs():
    """That of the docstring."""
    text = textwrap.dedent(re.search(r"::\n\n((?: {8}.*\n)+)", models.fit_hyperparameters.__doc__)[1])
    X = torch.rand(20, 2, **F64)
    known = {"X": X, "Y": torch.sin(6 * X[:, :1]), **vars(models), **vars(gpytorch.kernels)}
    exec(text, known)
    assert not torch.equal(known["model"].noise_variance, torch.tensor(0.1, **F64))


def test_a_call_gives_the_posterior_as_a_distribution(case):
    model, twin = both(case)
    with torch.no_grad():
        ours, theirs = model(case.choices), twin.posterior(case.choices).distribution
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(ours.covariance_matrix, theirs.covariance_matrix, rtol=0, atol=1e-8)


@pytest.mark.parametrize("label", ["SketchedGP", "WeightedGP", "ArmGP, factor", "OnlineGP"])
def test_the_same_input_twice_can_be_sampled(label):
    case = twins.MODELS[label]()
    X = case.choices[[1, 1, 2]]
    assert torch.isfinite(case.model.posterior(X).rsample(torch.Size([3]))).all()


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_samples_have_the_posterior_s_variance_in_any_unit_of_rewards(unit):
    model = models.ArmGP(3, unit**2 * (torch.eye(3, **F64) + 1), 0.1 * unit**2)
    X = torch.tensor([[0.0], [1.0], [1.0]], **F64)
    posterior = model.posterior(X)
    drawn = SobolQMCNormalSampler(torch.Size([512]), seed=0)(posterior)
    torch.testing.assert_close(drawn.var(0), posterior.variance, rtol=0.1, atol=0)
    assert (drawn[:, 1] - drawn[:, 2]).abs().max() < 1e-3 * unit


def test_utilities_over_lists_take_it(case):
    model, X = case.model, case.choices
    assert 1 <= len(prune_inferior_points(model, X)) <= len(X)
    torch.manual_seed(0)
    drawn = MaxPosteriorSampling(model)(X, num_samples=3)
    assert all((row == X).all(-1).any() for row in drawn)
    noisy = get_acquisition_function("qLogNEI", model, IdentityMCObjective(), case.observed, mc_samples=8)
    assert noisy(X[:1].unsqueeze(0)).shape == (1,)


BY_NAME = [
    UpperConfidenceBound,
    PosteriorMean,
    LogExpectedImprovement,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
]


@pytest.mark.parametrize("cls", BY_NAME)
def test_acquisitions_are_built_by_name(case, cls):
    names = [f"x{i}" for i in range(case.choices.shape[-1])]
    data = SupervisedDataset(
        case.observed, torch.zeros(len(case.observed), 1, **F64), feature_names=names, outcome_names=["y"]
    )
    values = []
    for model in both(case):
        torch.manual_seed(0)
        acquisition = cls(**get_acqf_input_constructor(cls)(model=model, training_data=data))
        assert acquisition(case.choices.unsqueeze(-2)).shape == (len(case.choices),)
        values.append(acquisition(case.choices.unsqueeze(-2)).detach())
    if cls not in (qLogNoisyExpectedImprovement,):  # GPyTorch's models draw its samples another way
        torch.testing.assert_close(*values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("label", ["OnlineGP", "OnlineGP at a time"])
def test_utilities_over_bounds_take_models_over_points(label):
    torch.manual_seed(0)
    model = twins.MODELS[label]().model
    ucb = UpperConfidenceBound(model, 4.0)
    starts = gen_batch_initial_conditions(ucb, BOUNDS, q=1, num_restarts=3, raw_samples=16)
    assert starts.shape == (3, 1, 2)
    points, values = gen_candidates_scipy(starts, ucb, 0.0, 1.0, options={"maxiter": 20})
    best = get_best_candidates(points, values)
    torch.testing.assert_close(ucb(best)[0], values.max(), rtol=0, atol=1e-12)
    gradient = qKnowledgeGradient(model, num_fantasies=2)
    assert gen_one_shot_kg_initial_conditions(gradient, BOUNDS, 1, 2, 8).shape == (2, 3, 2)
    # Analytic ones know no pending points.
    ours = [OurUpperConfidenceBound(model, width) for width in (2.0, 1.0)]
    listed, _ = optimize_acqf_list(ours, BOUNDS, num_restarts=2, raw_samples=8)
    assert listed.shape == (2, 2)
    assert (listed[0] - listed[1]).abs().max() > 0.01


@pytest.mark.parametrize("arms", [True, False])
@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("q", [1, 3])
def test_it_is_the_model_with_a_column_of_that_time(arms, noisy, q):
    model = drifting(arms)
    X = torch.arange(q, **F64).reshape(q, 1).expand(4, q, 1) if arms else torch.rand(4, q, 2, **F64)
    ours = models.AtTime(model, 9.5).posterior(X, observation_noise=noisy)
    with_time = torch.cat([X, torch.full((4, q, 1), 9.5, **F64)], -1)
    theirs = model.posterior(with_time, observation_noise=noisy)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.variance, theirs.variance)
    assert torch.equal(models.AtTime(model, 9.5)(X).mean, ours.mean.squeeze(-1))


def test_it_follows_what_the_model_learns_and_lists_inputs_without_their_times():
    model = drifting()
    view = models.AtTime(model, 9.0)
    before = view.posterior(torch.zeros(1, 1, **F64)).mean
    model.observe(torch.tensor([[0.0, 8.0]], **F64), torch.tensor([[5.0]], **F64))
    assert view.posterior(torch.zeros(1, 1, **F64)).mean > before + 1
    assert view.train_inputs[0].tolist() == [[0.0], [3.0], [0.0]]
    assert view.condition_on_observations(torch.zeros(1, 1, **F64), torch.ones(1, 1, **F64)).time == 9.0
    assert view.train_targets.tolist() == [3.0, 0.1, 5.0]
    assert view.num_outputs == 1
    assert view.batch_shape == ()


DRAWS = torch.Size([4000])


def forgetting(rate=0.3):
    return ExponentialForgettingKernel(rate)


def matern(nu=2.5, d=None):
    kernel = MaternKernel(nu=nu, ard_num_dims=d).double()
    kernel.lengthscale = 0.4 if d is None else torch.linspace(0.3, 0.6, d, **F64)
    return kernel


PRODUCTS = {
    "matern": lambda: SpatioTemporalKernel(matern(), forgetting()),
    "rbf, two lengths": lambda: SpatioTemporalKernel(RBFKernel(ard_num_dims=2).double(), forgetting()),
    "scaled inside": lambda: SpatioTemporalKernel(scaled(matern(1.5), 2.0), forgetting()),
    "scaled outside": lambda: scaled(SpatioTemporalKernel(matern(2.5, 2), forgetting()), 0.5),
    "scaled everywhere": lambda: scaled(
        SpatioTemporalKernel(scaled(matern(), 2.0), scaled(forgetting(), 3.0)), 0.5
    ),
    "matern over time": lambda: SpatioTemporalKernel(matern(), matern(1.5)),
}


@pytest.mark.parametrize("shift", [0.0, 1.7e9])
@pytest.mark.parametrize("name", PRODUCTS)
def test_features_of_a_product_have_its_covariance(name, shift):
    """Over 2^14 frequencies the error is below 4 / sqrt(2^14) of the variance, at any clock."""
    kernel = PRODUCTS[name]().requires_grad_(False)
    X = torch.rand(12, 3, **F64)
    X[:, 2] = X[:, 2] * 6 + shift
    phi = gen_kernel_features(kernel, num_inputs=3, num_outputs=2**15)(X)
    exact = kernel(X).to_dense()
    assert (phi @ phi.mT - exact).abs().max() < 4 / 2**7 * exact.max()


def learned(kernel, d, n=6):
    model = OnlineGP(kernel.requires_grad_(False), 0.05, input_dim=d, prior_mean=0.7)
    X = torch.rand(n, d, **F64)
    if d == 3:
        X[:, 2] = torch.arange(n, **F64)
    model.observe(X, torch.sin(6 * X[:, :1]))
    return model


def assert_moments(model, X, posterior):
    """Of 4000 paths at X."""
    drawn = torch.cat([draw_matheron_paths(model, torch.Size([250]))(X) for _ in range(16)])
    mean, covariance = posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix
    assert drawn.shape == (4000, 3)
    assert ((drawn.mean(0) - mean).abs() < 5 * (covariance.diagonal() / 4000).sqrt() + 0.01).all()
    assert (torch.cov(drawn.mT) - covariance).abs().max() < 0.1 * covariance.max()


@pytest.mark.parametrize("kind", ["points", "space and time", "at a time", "arms", "sketch", "weighted"])
def test_draws_have_the_moments_of_the_posterior(kind):
    torch.manual_seed(4)
    if kind in ("arms", "sketch", "weighted"):
        label = {"arms": "ArmGP at a time", "sketch": "SketchedGP", "weighted": "WeightedGP"}[kind]
        model = twins.MODELS[label]().model
        X = torch.tensor([[0.0], [2.0], [5.0]], **F64)
    elif kind == "points":
        model, X = learned(matern(), 2), torch.rand(3, 2, **F64)
    else:
        model, X = learned(PRODUCTS["matern"](), 3), torch.rand(3, 3, **F64)
        X[:, 2] = 7.0
        if kind == "at a time":
            model, X = AtTime(model, 7.0), X[:, :2]
    assert_moments(model, X, model.posterior(X))


@pytest.mark.parametrize("start", [1e9, 1.7e9])
def test_draws_by_features_have_the_posteriors_moments_at_clocks_of_seconds(start):
    """Of space and time by BoTorch's Matheron paths; and the draws of a policy are those at a clock from 0."""
    torch.manual_seed(4)
    near, far = (
        learned(PRODUCTS["matern"](), 3),
        OnlineGP(PRODUCTS["matern"]().requires_grad_(False), 0.05, input_dim=3, prior_mean=0.7),
    )
    (X,) = near.train_inputs
    shift = torch.tensor([0.0, 0.0, start], **F64)
    far.observe(X + shift, near.train_targets.unsqueeze(-1))
    at = torch.tensor([[0.2, 0.3, 6.0], [0.8, 0.1, 6.5], [0.5, 0.9, 7.0]], **F64)
    assert_moments(far, at + shift, near.posterior(at))
    here = PathwisePointDraw(near, time=7.0, seeds=(3,))(at.unsqueeze(-2))
    there = PathwisePointDraw(far, time=7.0 + start, seeds=(3,))((at + shift).unsqueeze(-2))
    torch.testing.assert_close(there, here, atol=1e-6, rtol=0)


def test_paths_are_those_of_a_single_task_gp_from_the_same_random_numbers():
    X, Y, kernel = twins.points()
    twin = twins.single_task_gp(X, Y, kernel)
    model = OnlineGP(kernel, twins.NOISE, input_dim=2)
    model.observe(X, Y)
    at = torch.rand(9, 2, **F64)
    drawn = []
    for one in (model, twin):
        torch.manual_seed(0)
        drawn.append(draw_matheron_paths(one, torch.Size([5]))(at))
    torch.testing.assert_close(*drawn, rtol=0, atol=1e-6)


@pytest.mark.parametrize("q", [1, 2])
def test_botorch_s_thompson_sampling_is_optimised_on_online_gp(q):
    torch.manual_seed(0)
    model = AtTime(learned(PRODUCTS["matern"](), 3), 7.0)
    acquisition = PathwiseThompsonSampling(model)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **F64)
    X, value = optimize_acqf(acquisition, bounds, q=q, num_restarts=3, raw_samples=64)
    assert X.shape == (q, 2)
    assert value >= acquisition(torch.rand(200, q, 2, **F64)).max() - 0.01


def test_paths_before_any_observation_are_those_of_the_prior():
    torch.manual_seed(0)
    model = OnlineGP(matern(), 0.05, input_dim=2, prior_mean=3.0)
    drawn = draw_matheron_paths(model, DRAWS)(torch.rand(1, 2, **F64))
    assert abs(drawn.mean() - 3) < 0.08
    assert abs(drawn.var() - 1) < 0.1
    assert draw_kernel_feature_paths(model, torch.Size([2]))(torch.rand(4, 2, **F64)).shape == (2, 4)


def test_a_kernel_without_features_is_named():
    with pytest.raises(NotImplementedError, match="WienerKernel"):
        draw_matheron_paths(learned(SpatioTemporalKernel(matern(), WienerKernel(0.1).double()), 3), DRAWS)


ALONE = """
import sys, torch
from botorch.sampling.pathwise import draw_matheron_paths, gen_kernel_features
from gpytorch.kernels import RBFKernel
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
kernel = SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel(0.1))
gen_kernel_features(kernel, num_inputs=2, num_outputs=8)
assert "bandits_torch.models" not in sys.modules
from bandits_torch.models import ArmGP
draw_matheron_paths(ArmGP(3, torch.eye(3), 0.1), sample_shape=torch.Size([1]))
assert "bandits_torch.acquisition" not in sys.modules
"""


def test_a_kernel_or_a_model_alone_is_known_to_botorch():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

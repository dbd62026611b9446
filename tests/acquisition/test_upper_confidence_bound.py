"""UpperConfidenceBound and q-UCB with our widths beside BoTorch's, each replicate's own width, and pending points."""

import copy

import pytest
import torch
from botorch import acquisition as plain
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils import standardize

from bandits_torch.acquisition import UpperConfidenceBound, qUpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, OnlineGP
from bandits_torch.policies.choices import choices_over
from bandits_torch.theory import ConstantWidth, IGPWidth, RealisedGain, SrinivasBayesianWidth
from tests.reference.arm_gp_twins import smooth
from tests.reference.kernels import rbf

N = 9
F64 = {"dtype": torch.float64}
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **F64)
exactly = {"rtol": 1e-12, "atol": 1e-12}


def arm_gp(batch=()):
    model = ArmGP(N, smooth(N), 0.05, batch_shape=batch)
    for _ in range(5):
        model.observe_arms(torch.randint(N, batch), torch.randn(batch).double())
    return model


def online_gp(batch=()):
    model = OnlineGP(rbf(0.3), 0.01, input_dim=2, batch_shape=batch, prior_mean=0.3)
    X = torch.rand(*batch, 8, 2, **F64)
    model.observe(X, torch.sin(5 * X).sum(-1, keepdim=True))
    return model


def single_task_gp():
    X, Y = torch.rand(8, 2, **F64), torch.randn(8, 1, **F64)
    return SingleTaskGP(X, standardize(Y), outcome_transform=None)


def sampler(n=64):
    return SobolQMCNormalSampler(torch.Size([n]), seed=1)


@pytest.mark.parametrize("width", [0.0, 0.1, 1.81, 7.0])
@pytest.mark.parametrize("make", [arm_gp, online_gp, single_task_gp])
def test_equals_botorch_with_beta_the_square_of_the_width(make, width):
    model = make()
    X = model.candidates() if make is arm_gp else torch.rand(20, 1, 2, **F64)
    with torch.no_grad():
        ours = UpperConfidenceBound(model, width)(X)
        theirs = plain.UpperConfidenceBound(model, beta=torch.tensor(width**2, **F64))(X)
    assert ours.shape == (len(X),)
    torch.testing.assert_close(ours, theirs, **exactly)


# The first are float32: taken over into the model's dtype.
@pytest.mark.parametrize("widths", [torch.tensor([0.0, 1.0, 5.0]), torch.tensor([[1.0], [2.0]], **F64)])
def test_widths_of_replicates_and_priors_broadcast(widths):
    model = arm_gp((2, 3))
    values = UpperConfidenceBound(model, widths)(model.candidates())
    mean, variance = model.marginals()
    expected = mean + widths.double().expand(2, 3).unsqueeze(-1) * variance.sqrt()
    torch.testing.assert_close(values, expected.movedim(-1, 0), **exactly)


@pytest.mark.parametrize(
    "width", [SrinivasBayesianWidth(N, 0.1), ConstantWidth(2.5), IGPWidth(1.0, 0.2, 0.1, RealisedGain())]
)
def test_a_width_is_evaluated_at_the_step_after_the_observations(width):
    model = arm_gp((2,))
    model.forget(where=torch.tensor([True, False]))
    for kind in (UpperConfidenceBound, qUpperConfidenceBound):
        torch.testing.assert_close(kind(model, width).width, width(torch.tensor([5, 6]), model))


def test_a_width_on_a_model_that_counts_no_observations_is_refused():
    with pytest.raises(ValueError, match="model must be an OnlineModel"):
        UpperConfidenceBound(single_task_gp(), SrinivasBayesianWidth(N, 0.1))


def test_is_found_by_name_and_optimised_over_choices():
    model, make = arm_gp(), get_acqf_input_constructor(UpperConfidenceBound)
    assert make(model=model, training_data=None)["width"] == 2.0
    acquisition = UpperConfidenceBound(**make(model=model, training_data=None, width=1.5))
    best, value = optimize_acqf_discrete(acquisition, q=1, choices=model.candidates().squeeze(-2))
    mean, variance = model.marginals()
    index = mean + 1.5 * variance.sqrt()
    assert int(best) == int(index.argmax())
    torch.testing.assert_close(value, index.max())


@pytest.mark.parametrize("width", [2.5, torch.tensor(2.5, **F64), ConstantWidth(2.5)])
@pytest.mark.parametrize("q", [1, 3])
def test_it_is_botorch_s_with_the_width_squared_for_beta(q, width):
    model, X = online_gp(), torch.rand(7, q, 2, **F64)
    ours = qUpperConfidenceBound(model, width, sampler())(X)
    theirs = plain.qUpperConfidenceBound(model, beta=6.25, sampler=sampler())(X)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_every_replicate_has_a_width_of_its_own():
    model, X = online_gp((3,)), torch.rand(7, 1, 2, 2, **F64)
    widths = torch.tensor([0.0, 1.0, 4.0], **F64)
    ours = qUpperConfidenceBound(model, widths, sampler())(X)
    assert ours.shape == (7, 3)
    for k, width in enumerate(widths.tolist()):
        theirs = plain.qUpperConfidenceBound(model, beta=width**2, sampler=sampler())(X)
        torch.testing.assert_close(ours[:, k], theirs[:, k], rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:A not p.d.")  # a pair of the same point twice
def test_two_points_are_found_jointly_and_with_mixed_features():
    torch.manual_seed(0)
    model = online_gp()
    ucb = qUpperConfidenceBound(model, 2.0, sampler())
    pairs = torch.rand(400, 2, 2, **F64)
    with torch.no_grad():
        values = ucb(pairs)
    best = pairs[values.topk(3).indices]
    X, value = optimize_acqf(ucb, BOUNDS, q=2, num_restarts=3, batch_initial_conditions=best)
    assert X.shape == (2, 2)
    assert value > values.max() + 1e-3  # there is a gradient to climb
    mixed, value = optimize_acqf_mixed(
        ucb, BOUNDS, q=2, num_restarts=2, raw_samples=32, fixed_features_list=[{0: 0.0}, {0: 1.0}]
    )
    assert set(mixed[:, 0].tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(value.squeeze(), ucb(mixed).squeeze(), rtol=0, atol=1e-12)
    grid = torch.cartesian_prod(torch.tensor([0.0, 1.0], **F64), torch.linspace(0, 1, 40, **F64))
    with torch.no_grad():
        assert value >= ucb(grid[torch.randint(80, (300, 2))]).max() - 0.02


def test_the_index_of_one_point_says_which_acquisition_takes_two():
    ucb = UpperConfidenceBound(online_gp(), 2.0)
    for search in (
        lambda: optimize_acqf(ucb, BOUNDS, q=2, num_restarts=2, raw_samples=8),
        lambda: optimize_acqf_mixed(
            ucb, BOUNDS, q=2, num_restarts=2, raw_samples=8, fixed_features_list=[{0: 0.0}, {0: 1.0}]
        ),
    ):
        with pytest.raises(ValueError, match="q must be 1: qUpperConfidenceBound values several points"):
            search()


@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize("told", ["alone", "pending", "least first", "another model"])
def test_policies_score_all_arms_as_a_call_with_their_inputs_does(drifts, told):
    covariance = smooth(N)
    if drifts:
        over_time = ExponentialForgettingKernel(0.2).double()
        covariance = SpatioTemporalKernel(ArmCovarianceKernel(covariance), over_time)
    model = ArmGP(N, covariance, 0.05, batch_shape=(3,), prior_mean=torch.linspace(0, 1, N).double())
    choices = choices_over(model)
    for k in range(5):
        choices.observe(torch.randint(N, (3,)), torch.randn(3).double(), float(k))
    bound = UpperConfidenceBound(model, torch.tensor([0.5, 1.0, 2.0], **F64))
    if told == "pending":
        bound.set_X_pending(model.candidates(6.0)[4])
    if told == "another model":
        bound = UpperConfidenceBound(copy.deepcopy(model), 1.0)
        bound.model.observe_arms(torch.tensor([4, 4, 4]), 5 * torch.ones(3).double(), 5.0)
    if told == "least first":
        bound.posterior_transform = ScalarizedPosteriorTransform(torch.tensor([-1.0], **F64))
    mask = torch.rand(3, N) < 0.6
    mask[:, 0] = True
    with torch.no_grad():
        arm, value = choices.best(bound, 6.0, mask)
        scores = bound(choices.inputs(6.0)).masked_fill(~mask.mT, -torch.inf)
    assert torch.equal(arm, scores.argmax(0))
    torch.testing.assert_close(value, scores.amax(0), **exactly)


def test_it_is_found_by_name_and_moves_with_its_model():
    model = online_gp()
    arguments = get_acqf_input_constructor(qUpperConfidenceBound)(
        model=model, training_data=None, width=1.5, X_pending=torch.rand(1, 2, **F64)
    )
    ucb = qUpperConfidenceBound(**arguments)
    assert ucb.width == 1.5
    assert ucb.X_pending.shape == (1, 2)
    assert {"width", "beta_prime"} <= dict(ucb.named_buffers()).keys()


def test_pending_points_are_a_hand_made_fantasy_at_the_mean_however_they_are_told():
    """Solved densely: K over data and pending points, targets and the mean there."""
    model = online_gp()
    pending, X = torch.rand(3, 2, **F64), torch.rand(7, 1, 2, **F64)
    alone, told = UpperConfidenceBound(model, 1.5), UpperConfidenceBound(model, 1.5)
    told.set_X_pending(pending)
    make = get_acqf_input_constructor(UpperConfidenceBound)  # as Ax builds it
    named = make(model=model, training_data=None, width=1.5, X_pending=pending)
    with torch.no_grad():
        inputs = torch.cat([model.train_inputs[0], pending])
        K = model.kernel(inputs).to_dense() + 0.01 * torch.eye(11, **F64)
        k = model.kernel(X[:, 0], inputs).to_dense()
        variance = 1.0 - (k @ torch.linalg.solve(K, k.T)).diagonal()
        mean = model.posterior(X).mean[:, 0, 0]
        built = UpperConfidenceBound(model, 1.5, X_pending=pending)
        for ucb in (told, built, UpperConfidenceBound(**named)):
            torch.testing.assert_close(ucb(X), mean + 1.5 * variance.sqrt(), rtol=0, atol=1e-9)
            assert (ucb(X) < alone(X)).all()
            assert torch.equal(ucb.X_pending, pending)
        told.set_X_pending(None)
        assert torch.equal(told(X), alone(X))
    assert model.num_observations == 8


def test_arms_are_chosen_in_batches_and_drift_is_no_hindrance():
    time = ExponentialForgettingKernel(0.1)
    model = ArmGP(12, SpatioTemporalKernel(ArmCovarianceKernel(smooth(12)), time), 0.05)
    model.observe(torch.tensor([[2.0, 0.0], [5.0, 1.0]]).double(), torch.tensor([[0.5], [1.0]]).double())
    choices = model.candidates(2.0).squeeze(-2)
    ucb = UpperConfidenceBound(model, 2.0)
    X, _ = optimize_acqf_discrete(ucb, q=3, choices=choices, unique=False)
    wanted, copy = [], model
    for _ in range(3):  # by hand: the index with sigma of a copy that has seen the means
        with torch.no_grad():
            mean = model.posterior(choices.unsqueeze(-2)).mean.squeeze()
            index = mean + 2.0 * copy.posterior(choices.unsqueeze(-2)).variance.squeeze().sqrt()
            best = choices[index.argmax()]
            wanted.append(best)
            copy = copy.condition_on_observations(best.unsqueeze(0), mean[index.argmax()].reshape(1, 1))
    assert torch.equal(X, torch.stack(wanted))


def test_fantasies_with_a_noise_of_their_own_tell_less():
    model, X = online_gp(), torch.rand(2, 3, 2, **F64)
    loud = model.fantasize(X, sampler(4), observation_noise=torch.full((3, 1), 0.7, **F64))
    assert loud.batch_shape == (4, 2)
    at = torch.rand(1, 2, **F64)
    assert (loud.posterior(at).variance > model.fantasize(X, sampler(4)).posterior(at).variance).all()

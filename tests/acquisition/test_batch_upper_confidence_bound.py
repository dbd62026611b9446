"""q-UCB with our widths: BoTorch's where one number is all it takes, and each replicate's own where it is not."""

import pytest
import torch
from botorch import acquisition as plain
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.optim import optimize_acqf, optimize_acqf_mixed
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel

from bandits_torch.acquisition import UpperConfidenceBound, qUpperConfidenceBound
from bandits_torch.models import ArmGP, OnlineGP
from bandits_torch.theory import ConstantWidth, SrinivasBayesianWidth
from tests.reference.arm_gp_twins import smooth

F64 = {"dtype": torch.float64}
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **F64)


def online_gp(batch=()):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    model = OnlineGP(kernel.requires_grad_(False), 0.01, input_dim=2, batch_shape=batch)
    X = torch.rand(*batch, 8, 2, **F64)
    model.observe(X, torch.sin(5 * X).sum(-1, keepdim=True))
    return model


def sampler(n=64):
    return SobolQMCNormalSampler(torch.Size([n]), seed=1)


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


def test_for_one_point_its_expectation_is_the_index():
    model, X = online_gp(), torch.rand(20, 1, 2, **F64)
    many = qUpperConfidenceBound(model, 3.0, sampler(8192))(X)
    torch.testing.assert_close(many, UpperConfidenceBound(model, 3.0)(X), rtol=0, atol=2e-3)


def test_a_width_from_a_theorem_is_that_of_the_next_step():
    model = ArmGP(5, smooth(5), 0.1)
    model.observe(torch.tensor([[1.0], [4.0]], **F64), torch.tensor([[0.2], [0.5]], **F64))
    rule = SrinivasBayesianWidth(5, 0.1)
    assert torch.equal(qUpperConfidenceBound(model, rule).width, rule(3, model))


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


def test_it_is_found_by_name_and_moves_with_its_model():
    model = online_gp()
    arguments = get_acqf_input_constructor(qUpperConfidenceBound)(
        model=model, training_data=None, width=1.5, X_pending=torch.rand(1, 2, **F64)
    )
    ucb = qUpperConfidenceBound(**arguments)
    assert ucb.width == 1.5
    assert ucb.X_pending.shape == (1, 2)
    assert {"width", "beta_prime"} <= dict(ucb.named_buffers()).keys()

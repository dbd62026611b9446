"""Pending points: sigma as if the mean had been observed there, mu as it is, as BoTorch passes them on."""

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.optim import optimize_acqf_discrete
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel

from bandits_torch import ArmGP, OnlineGP, UpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from tests.reference.arm_gp_twins import smooth
from tests.reference.kernels import rbf


def taught_gp(batch_shape=()):
    kernel = rbf(0.2)
    model = OnlineGP(kernel, 0.01, input_dim=2, batch_shape=batch_shape, prior_mean=0.3)
    X = torch.rand(*batch_shape, 10, 2).double()
    model.observe(X, torch.sin(6 * X.sum(-1, keepdim=True)))
    return model


def test_pending_points_are_a_hand_made_fantasy_at_the_mean():
    """Solved densely: K over data and pending points, targets and the mean there."""
    model = taught_gp()
    pending, X = torch.rand(3, 2).double(), torch.rand(7, 1, 2).double()
    plain = UpperConfidenceBound(model, 1.5)
    ucb = UpperConfidenceBound(model, 1.5)
    ucb.set_X_pending(pending)
    with torch.no_grad():
        inputs = torch.cat([model.train_inputs[0], pending])
        K = model.kernel(inputs).to_dense() + 0.01 * torch.eye(13).double()
        k = model.kernel(X[:, 0], inputs).to_dense()
        variance = 1.0 - (k @ torch.linalg.solve(K, k.T)).diagonal()
        mean = model.posterior(X).mean[:, 0, 0]
        torch.testing.assert_close(ucb(X), mean + 1.5 * variance.sqrt(), rtol=0, atol=1e-9)
        assert (ucb(X) < plain(X)).all()
        ucb.set_X_pending(None)
        assert torch.equal(ucb(X), plain(X))
    assert model.num_observations == 10


@pytest.mark.parametrize("way", ["constructor", "input constructor"])
def test_pending_points_are_taken_where_an_acquisition_is_built_too(way):
    model = taught_gp()
    pending, X = torch.rand(3, 2).double(), torch.rand(7, 1, 2).double()
    told = UpperConfidenceBound(model, 1.5)
    told.set_X_pending(pending)
    if way == "constructor":
        built = UpperConfidenceBound(model, 1.5, X_pending=pending)
    else:  # as Ax builds it
        make = get_acqf_input_constructor(UpperConfidenceBound)
        built = UpperConfidenceBound(**make(model=model, training_data=None, width=1.5, X_pending=pending))
    assert torch.equal(built.X_pending, pending)
    assert torch.equal(built(X), told(X))
    assert (built(X) < UpperConfidenceBound(model, 1.5)(X)).all()


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


def test_replicates_have_pending_points_together():
    model = taught_gp((2,))
    pending, X = torch.rand(2, 2).double(), torch.rand(4, 1, 1, 2).double()
    ucb = UpperConfidenceBound(model, torch.tensor([1.0, 2.0]).double())
    ucb.set_X_pending(pending)
    assert ucb(X).shape == (4, 2)


# -- noise of their own --------------------------------------------------------------------------------


def test_observations_conditioned_on_have_the_noise_they_came_with():
    kernel = MaternKernel(nu=2.5).double()
    model = OnlineGP(kernel, 0.1, input_dim=2)
    first, X = torch.rand(4, 2).double(), torch.rand(3, 2).double()
    model.observe(first, first[:, :1])
    noise = torch.tensor([[0.5], [0.01], [2.0]]).double()
    copy = model.condition_on_observations(X, X[:, 1:], noise=noise)
    inputs = torch.cat([first, X])
    diagonal = torch.cat([torch.full((4,), 0.1, dtype=torch.float64), noise[:, 0]])
    y = torch.cat([first[:, 0], X[:, 1]])
    test = torch.rand(5, 2).double()
    with torch.no_grad():
        K = kernel(inputs).to_dense() + torch.diag(diagonal)
        k = kernel(test, inputs).to_dense()
        posterior = copy.posterior(test.unsqueeze(-2))
        torch.testing.assert_close(posterior.mean[:, 0, 0], k @ torch.linalg.solve(K, y), rtol=0, atol=1e-9)
        variance = 1 - (k @ torch.linalg.solve(K, k.T)).diagonal()
        torch.testing.assert_close(posterior.variance[:, 0, 0], variance, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="must be one whose observations all have its noise_variance"):
        copy.rebuild()
    plain = model.condition_on_observations(X, X[:, 1:], noise=torch.full((3, 1), 0.1, dtype=torch.float64))
    same = model.condition_on_observations(X, X[:, 1:])
    torch.testing.assert_close(plain.posterior(test).mean, same.posterior(test).mean, rtol=0, atol=1e-12)


def test_fantasies_with_a_noise_of_their_own():
    model = taught_gp()
    X = torch.rand(2, 3, 2).double()
    noise = torch.full((1, 1), 0.7, dtype=torch.float64)
    fantasies = model.fantasize(
        X, SobolQMCNormalSampler(torch.Size([4]), seed=1), observation_noise=noise.expand(3, 1)
    )
    assert fantasies.batch_shape == (4, 2)
    test = torch.rand(1, 2).double()
    loud = fantasies.posterior(test).variance
    plain = model.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=1)).posterior(test).variance
    assert (loud > plain).all()


@pytest.mark.parametrize(
    "noise", [torch.zeros(3, 1), torch.full((3, 1), float("nan")), torch.ones(2, 1), torch.ones(3)]
)
def test_bad_noise_is_refused(noise):
    X = torch.rand(3, 2).double()
    with pytest.raises(ValueError, match="noise must"):
        taught_gp().condition_on_observations(X, X[:, :1], noise=noise.double())

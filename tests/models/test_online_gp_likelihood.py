"""OnlineGP's log marginal likelihood is that of a dense Gaussian, and priors can be weighed by it in BoTorch loops."""

import pytest
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch import OnlineGP
from bandits_torch.acquisition import (
    BayesianOverPriors,
    LikeliestPrior,
    OptimisticOverPriors,
    UpperConfidenceBound,
)

P, NOISE, MEAN = 3, 0.05, 0.3


def model(batch=(P,), kernel=RBFKernel) -> OnlineGP:
    made = kernel(batch_shape=torch.Size([P])).double()
    made.lengthscale = torch.tensor([0.05, 0.3, 1.0], dtype=torch.float64).reshape(P, 1, 1)
    return OnlineGP(made, NOISE, prior_mean=MEAN, input_dim=1, batch_shape=batch)


def dense(gp: OnlineGP, p: int, x: torch.Tensor, y: torch.Tensor) -> float:
    K = gp.kernel(x).to_dense()[p] + NOISE * torch.eye(len(x), dtype=torch.float64)
    mean = torch.full((len(x),), MEAN, dtype=torch.float64)
    return torch.distributions.MultivariateNormal(mean, K).log_prob(y.squeeze(-1)).item()


def data(n: int, seed: int = 0):
    x = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, torch.sin(7 * x)


@pytest.mark.parametrize("kernel", [RBFKernel, MaternKernel])
def test_equals_the_dense_likelihood_as_observations_come_and_go(kernel) -> None:
    gp, (x, y) = model(kernel=kernel), data(12)
    assert gp.log_likelihood.tolist() == [0.0] * P
    for t in range(12):
        gp.observe(x[t : t + 1], y[t : t + 1])
        first = max(0, t - 6)  # a window of seven
        if t >= 7:
            gp.forget()
        expected = [dense(gp, p, x[first : t + 1], y[first : t + 1]) for p in range(P)]
        assert gp.log_likelihood.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_members_that_hold_different_observations_have_their_own_likelihood() -> None:
    gp, (x, y) = model(batch=(2, P)), data(9)
    for t in range(9):
        where = torch.tensor([[True], [t % 2 == 0]]).expand(2, P)
        gp.observe(x[t : t + 1], y[t : t + 1], where=where)
    even = torch.arange(0, 9, 2)
    for p in range(P):
        assert gp.log_likelihood[0, p].item() == pytest.approx(dense(gp, p, x, y), rel=1e-9)
        assert gp.log_likelihood[1, p].item() == pytest.approx(dense(gp, p, x[even], y[even]), rel=1e-9)


@pytest.mark.parametrize("kind", [OptimisticOverPriors, BayesianOverPriors, LikeliestPrior])
def test_a_botorch_loop_over_priors_finds_the_maximum_and_names_the_prior(kind) -> None:
    gp, played = model(), []
    gp.observe(*data(1))
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    torch.manual_seed(0)
    for _ in range(12):
        base = UpperConfidenceBound(gp, 2.0)
        over = kind(base) if kind is OptimisticOverPriors else kind(base, gp.log_likelihood)
        x, _ = optimize_acqf(over, bounds, q=1, num_restarts=2, raw_samples=32)
        played.append(int(over.prior(x.unsqueeze(0))))
        gp.observe(x, torch.sin(7 * x))
    best = torch.pi / 14
    assert abs(float(x) - best) < 0.15 or float(torch.sin(7 * gp.train_inputs[0]).max()) > 0.99
    assert set(played) <= set(range(P))
    if kind is LikeliestPrior:  # after the first steps the smooth priors explain a sine best
        assert played[-1] == int(gp.log_likelihood.argmax()) != 0

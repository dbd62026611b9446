"""A band of level 1 - delta holds all arms in 1 - delta of the steps, neither more nor less, whoever chooses the arms;
and the regret keeps below the bound that follows from it."""

import pytest
import torch

from bandits_torch.theory.prior_widths import mean_excess, simultaneous_width
from tests.reference.simulate_coverage import CovarianceGP

RUNS, ARMS, STEPS, DRAWS, NOISE = 300, 40, 40, 99, 0.1
X = torch.linspace(0, 1, ARMS, dtype=torch.float64)
K = torch.exp(-((X[:, None] - X) ** 2) / (2 * 0.1**2))
ROOT = torch.linalg.cholesky(K + 1e-9 * torch.eye(ARMS).double())


def roots(covariance):
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp_min(0).sqrt().unsqueeze(-2)


def simulate(delta, rate, adaptive=True, truth_lengthscale=None, runs=RUNS):
    """What multiple of the width each step needed, its regret, and the bound on it: (STEPS, RUNS) each."""
    generator = torch.Generator().manual_seed(11)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    root = ROOT
    if truth_lengthscale is not None:
        other = torch.exp(-((X[:, None] - X) ** 2) / (2 * truth_lengthscale**2))
        root = torch.linalg.cholesky(other + 1e-9 * torch.eye(ARMS).double())
    f, model, run = normal(runs, ARMS) @ root.T, CovarianceGP(K, NOISE, runs), torch.arange(runs)
    needed, regret, bound = [], [], []
    for t in range(STEPS):
        if t and rate:
            f = (1 - rate) ** 0.5 * f + rate**0.5 * (normal(runs, ARMS) @ root.T)
            model.drift(rate)
        sigma = model.sigma
        width = simultaneous_width(normal(runs, DRAWS, ARMS) @ roots(model.C).mT, sigma, delta)
        needed.append(((f - model.mean).abs() / (width[:, None] * sigma)).amax(-1))
        index = model.mean + width[:, None] * sigma
        arm = index.argmax(-1) if adaptive else torch.full((runs,), t % ARMS)
        regret.append(f.amax(-1) - f[run, arm])
        bound.append(width * sigma[run, arm] + mean_excess(delta, DRAWS) * sigma.amax(-1))
        model.observe(arm, f[run, arm] + NOISE**0.5 * normal(runs))
    return tuple(torch.stack(each) for each in (needed, regret, bound))


def misses(needed, factor=1.0):
    """Fraction of steps whose band missed an arm, and the standard error over runs."""
    of_run = (needed > factor).double().mean(0)
    return of_run.mean().item(), (of_run.std() / RUNS**0.5).item()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("adaptive", "rate", "delta"),
    [
        (True, 0.0, 0.3),
        (True, 0.05, 0.1),
        (False, 0.05, 0.3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(True, 0.0, 0.1), (True, 0.05, 0.3)]
            + [(False, rate, delta) for rate, delta in ((0.0, 0.1), (0.0, 0.3), (0.05, 0.1))]
        ),
    ],
)
def test_band_has_its_level_and_no_more(adaptive, rate, delta):
    needed, regret, bound = simulate(delta, rate, adaptive)
    missed, error = misses(needed)
    assert abs(missed - delta) < 4 * error
    assert misses(needed, 0.9)[0] > delta + 4 * error
    if adaptive:
        assert regret.mean() < bound.mean()
    if adaptive and rate:  # within a factor five of what it bounds
        assert bound.mean() < 5 * regret.mean()


def test_band_needs_the_functions_to_be_the_model_s():
    """Bayesian: rougher functions than the prior's leave the band far more often than delta."""
    needed, _, _ = simulate(0.1, 0.0, truth_lengthscale=0.03, runs=60)
    assert misses(needed)[0] > 0.5


def test_union_bound_over_arms_is_wider():
    """Srinivas et al.'s Theorem 1 in one step, sqrt(2 ln(N/delta)), is .5 or more above the joint quantile here."""
    draws = torch.randn(999, ARMS, generator=torch.Generator().manual_seed(2), dtype=torch.float64) @ ROOT.T
    joint = simultaneous_width(draws, ROOT.square().sum(-1).sqrt(), 0.1)
    assert joint + 0.5 < (2 * torch.log(torch.tensor(ARMS / 0.1))).sqrt()

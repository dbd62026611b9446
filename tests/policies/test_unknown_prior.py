"""Policies for an unknown prior equal a run that refits every prior at every step, and refuse what makes no sense."""

import copy
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bandits_torch import Domain
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, CandidatePrior, arm_gp_over_priors
from bandits_torch.models.candidate_priors import online_gp_over_priors
from bandits_torch.policies import BayesianPriorPolicy, LikeliestPriorPolicy, Observation, PriorElimination
from bandits_torch.theory import ConstantWidth, PriorEliminationFiniteWidth, elimination_xi
from tests.reference.dense_priors import DensePrior, DenseRun

N, S, STEPS, NOISE = 7, 3, 40, 0.05
ARMS = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)
POLICIES = {"eliminate": PriorElimination, "likeliest": LikeliestPriorPolicy, "bayes": BayesianPriorPolicy}


def kernel(family: str, lengthscale: float):
    made = ScaleKernel(RBFKernel() if family == "se" else MaternKernel(nu=1.5)).double()
    made.base_kernel.lengthscale, made.outputscale = lengthscale, 0.8
    return made.requires_grad_(False)


def past_day():
    table = torch.randn(30, N, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return table.T.cov() + 0.1 * torch.eye(N, dtype=torch.float64)


def priors(kind: str) -> list[CandidatePrior]:
    bump = torch.zeros(N, dtype=torch.float64)
    bump[2] = 3.0
    slope = 0.01 * torch.arange(N, dtype=torch.float64)  # no ties between arms, which rounding would decide
    shared = kernel("se", 0.2)
    sets = {
        "means": [CandidatePrior(shared, mean) for mean in (slope, slope + bump, slope - 1)],
        "families": [
            CandidatePrior(kernel("se", 0.2), 0.1),
            CandidatePrior(kernel("matern", 0.5)),
            CandidatePrior(past_day(), bump, noise_variance=0.2),
        ],
        "forgetting": [
            CandidatePrior(shared, forgetting_rate=0.0),
            CandidatePrior(kernel("matern", 0.3), bump, forgetting_rate=0.05),
            CandidatePrior(past_day(), forgetting_rate=0.3),
        ],
    }
    return sets[kind]


def dense(candidates: list[CandidatePrior], noise_variance: float = NOISE) -> list[DensePrior]:
    out = []
    for prior in candidates:
        K = prior.kernel if isinstance(prior.kernel, torch.Tensor) else prior.kernel(ARMS).to_dense().detach()
        mean = torch.as_tensor(prior.mean, dtype=torch.float64).expand(N)
        own = prior.noise_variance or noise_variance
        out.append(DensePrior(K, mean, prior.forgetting_rate, own))
    return out


def masks(step: int) -> torch.Tensor | None:
    if step % 3 == 0:
        return None
    generator = torch.Generator().manual_seed(step)
    shape = (N,) if step % 3 == 1 else (S, N)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[..., step % N] = True
    return mask


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["means", "families", "forgetting"])
@pytest.mark.parametrize("rule", POLICIES)
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_equals_a_run_that_refits_every_prior_at_every_step(rule, kind, form) -> None:
    candidates = priors(kind)
    model = arm_gp_over_priors(ARMS, candidates, NOISE, replicates=S, form=form)
    width = PriorEliminationFiniteWidth(N, STEPS, 0.1) if kind != "families" else ConstantWidth(1.5)
    policy = POLICIES[rule](model, width)
    slow = [DenseRun(dense(candidates), rule, lambda t: float(width(t, model)), delta=0.1) for _ in range(S)]
    generator = torch.Generator().manual_seed(1)
    truth = 2.0 * torch.randn(S, N, generator=generator, dtype=torch.float64)
    dropped = 0
    for step in range(1, STEPS + 1):
        time = step + 0.5 * (step // 10)  # uneven gaps
        available = masks(step)
        choice = policy.choose(time, available)
        means, variances = model.marginals(time)
        likelihood = model.log_likelihood
        reward = truth[torch.arange(S), choice.arm] + 0.2 * torch.randn(S, generator=generator).double()
        policy.learn(Observation(time, choice.arm, reward, choice.why))
        for s, run in enumerate(slow):
            mask = available if available is None or available.dim() == 1 else available[s]
            arm, prior, w, fits = run.choose(time, mask)
            seen = run.learn(arm, prior, w, float(reward[s]), time, fits)
            assert (int(choice.arm[s]), int(choice.why["prior"][s])) == (arm, prior)
            torch.testing.assert_close(means[s], seen.means, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(variances[s], seen.variances, rtol=1e-8, atol=1e-8)
            expected = torch.tensor(seen.likelihoods, dtype=torch.float64)
            torch.testing.assert_close(likelihood[s], expected, rtol=1e-8, atol=1e-7)
            if rule == "eliminate":
                assert policy.surviving[s].tolist() == seen.surviving
                assert bool(policy.trace()["all_refuted"][s]) == seen.all_refuted
                dropped += len(candidates) - sum(seen.surviving)
    if rule == "eliminate":
        assert dropped > 0  # or the test would show nothing of eliminations


def elimination(candidates=None, width=1.0, replicates=S, **options) -> PriorElimination:
    model = arm_gp_over_priors(ARMS, candidates or priors("means"), NOISE, replicates=replicates)
    return PriorElimination(model, ConstantWidth(width), **options)


def test_when_all_priors_are_refuted_the_last_one_stays_and_the_trace_says_so() -> None:
    wrong = [CandidatePrior(kernel("se", 0.2), mean) for mean in (30.0, 20.0, 10.0)]
    policy = elimination(wrong, replicates=1)
    seen = []
    for step in range(1, 60):
        choice = policy.choose(step)
        policy.learn(Observation(step, choice.arm, torch.zeros(1, dtype=torch.float64), choice.why))
        seen.append({name: int(value[0]) for name, value in policy.trace().items()})
    assert [row["dropped"] for row in seen if row["dropped"] >= 0] == [0, 1]
    assert seen[-1]["surviving"] == 1
    assert policy.surviving[0].tolist() == [False, False, True]
    refuted = [row["all_refuted"] for row in seen]
    assert refuted[-1] == 1
    assert refuted == sorted(refuted)
    assert all(row["surviving"] == 1 for row in seen if row["all_refuted"])


def test_xi_has_the_papers_form_and_the_two_sided_one() -> None:
    xi = elimination_xi(7, 11, 0.3, 0.05)
    assert xi == pytest.approx(2 * 0.09 * math.log(2 * 11 * math.pi**2 * 49 / 0.15))
    printed = elimination_xi(7, 11, 0.3, 0.05, "printed")
    assert xi - printed == pytest.approx(2 * 0.09 * math.log(2))
    steps = torch.tensor([[1], [7]])
    torch.testing.assert_close(elimination_xi(steps, 11, 0.3, 0.05)[1, 0].item(), xi)
    # Union bounds over 11 priors and all n: the print's is delta/2 for normal noise alone, where P(|Z| > c) <=
    # exp(-c^2/2); sub-Gaussian noise has 2 exp(-c^2/2). What is beyond the largest n is at most delta / n.
    n = torch.arange(1, 100_000).double()
    squared = {form: elimination_xi(n, 11, 1.0, 0.05, form) for form in ("two-sided", "printed")}
    fails = {form: 11 * 2 * (-c / 2).exp().sum() for form, c in squared.items()}
    assert fails["two-sided"] <= 0.025 < 0.0499 < fails["printed"]
    assert 11 * torch.erfc((squared["printed"] / 2).sqrt()).sum() + 1e-6 <= 0.025


@pytest.mark.parametrize("xi", ["two-sided", "printed"])
def test_a_prior_is_judged_by_xi_of_the_step_that_it_was_played_at(xi) -> None:
    """Dropped at step 1 by an error between the thresholds of steps 1 and 2, not by one just below the first."""
    for below in (False, True):
        policy = elimination(replicates=1, xi=xi)
        choice = policy.choose(1)
        mean, variance = (value[0, choice.why["prior"], choice.arm] for value in policy.model.marginals(1))
        first, second = (
            math.sqrt(elimination_xi(t, policy.num_priors, NOISE**0.5, policy.delta, xi)) for t in (1, 2)
        )
        error = (0.99 * first if below else (first + second) / 2) + choice.why["width"] * variance.sqrt()
        policy.learn(Observation(1, choice.arm, mean + error, choice.why))
        assert int(policy.trace()["dropped"][0]) == (-1 if below else int(choice.why["prior"][0]))


def test_an_arm_not_available_is_never_played_even_if_every_other_index_is_nan() -> None:
    policy = elimination(replicates=1)
    policy.model._belief.form.mean[:] = torch.nan
    available = torch.zeros(N, dtype=torch.bool)
    available[4] = True
    assert policy.choose(1, available).arm.tolist() == [4]


def test_sets_of_priors_and_models_that_make_no_sense_are_refused() -> None:
    rbf, K = CandidatePrior(RBFKernel()), torch.eye(N)
    drifts = SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel(0.1))
    for message, candidates in {
        r"priors\[1\].mean": [rbf, CandidatePrior(RBFKernel(), torch.zeros(N + 1))],
        r"priors\[1\].kernel must have shape \(7, 7\)": [CandidatePrior(K), CandidatePrior(torch.eye(N - 2))],
        r"priors\[1\].kernel: .*positive semi-definite": [rbf, CandidatePrior(-K)],
        r"priors\[1\].kernel: .*symmetric": [rbf, CandidatePrior(K.cumsum(0))],
        r"priors\[0\].kernel must be a kernel over arms alone": [CandidatePrior(drifts)],
    }.items():
        with pytest.raises(ValueError, match=message):
            arm_gp_over_priors(ARMS, candidates, NOISE, replicates=1)
    with pytest.raises(ValueError, match=r"model.batch_shape must be \(S, P\)"):
        PriorElimination(ArmGP(ARMS, RBFKernel(), NOISE, batch_shape=(3,)), ConstantWidth(1.0))


def test_a_kernel_given_to_a_prior_keeps_its_dtype() -> None:
    given = RBFKernel().float()
    arm_gp_over_priors(ARMS, [CandidatePrior(given)], NOISE, replicates=1)
    assert given.lengthscale.dtype == torch.float32


def test_noise_variances_of_replicates_and_priors_combine() -> None:
    candidates = [CandidatePrior(RBFKernel()), CandidatePrior(RBFKernel(), noise_variance=0.7)]
    model = arm_gp_over_priors(ARMS, candidates, torch.tensor([0.1, 0.2, 0.3]), replicates=3)
    noise = model.noise_variance.expand(model.batch_shape)
    torch.testing.assert_close(
        noise, torch.tensor([[0.1, 0.7], [0.2, 0.7], [0.3, 0.7]]).double(), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("form", ["scaled", "sum"])
def test_a_prior_over_points_that_contains_a_time_kernel_has_time_as_its_last_input(form) -> None:
    static = kernel("se", 0.4)
    in_time = SpatioTemporalKernel(static, ExponentialForgettingKernel(0.3))
    moving = ScaleKernel(in_time).double() if form == "scaled" else in_time + copy.deepcopy(in_time)
    square = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))
    model = online_gp_over_priors(square, [CandidatePrior(moving), CandidatePrior(static)], 0.1)
    assert model.input_dim == 3
    X = torch.tensor([[0.2, 0.3, 0.0], [0.7, 0.1, 5.0]], dtype=torch.float64)
    expected = torch.stack([moving(X).to_dense(), static(X[:, :2]).to_dense()])
    torch.testing.assert_close(model.posterior(X).distribution.covariance_matrix[0], expected)
    with pytest.raises(ValueError, match="forgetting_rate must be 0 for a kernel over time"):
        online_gp_over_priors(square, [CandidatePrior(moving, forgetting_rate=0.1)], 0.1)

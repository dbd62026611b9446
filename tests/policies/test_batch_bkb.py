"""BKB and batch BKB as policies: lazy scoring, frozen means, delayed rewards, recipes."""

import pytest
import torch

from bandits_torch import ArmGP, IndexPolicy, UpperConfidenceBound, loop, recipes
from bandits_torch.models import LeverageSampling, SketchedGP
from bandits_torch.policies import BatchBKB, Observation, Pending
from bandits_torch.problems import GPDraws
from bandits_torch.theory import BKBWidth, ConstantWidth


@pytest.fixture
def problem():
    return GPDraws(num_arms=300, dim=2, lengthscale=0.2, noise_scale=0.1, seed=4, replicates=2)


def make(problem, growth=5.0, width=None, **options):
    sampling, batch = LeverageSampling.practical(3.0, growth), (problem.replicates,)
    about = problem.arms, problem.knowledge.kernel, 0.01
    model = SketchedGP(*about, batch_shape=batch, sampling=sampling, **options)
    return BatchBKB(model, width or BKBWidth(1.0, 0.1, 0.1))


def full_scores(policy):
    """Index of every arm from the frozen mean and width and the dense posterior of now, nothing stale."""
    variance = policy.model.joint()[1].diagonal(dim1=-2, dim2=-1).clamp_min(0.0)
    return policy._mean + policy._width.unsqueeze(-1) * variance.sqrt()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("width", [None, ConstantWidth(2.0)])
def test_lazy_scoring_chooses_what_full_scoring_would(problem, width, masked):
    policy, generator = make(problem, width=width), torch.Generator().manual_seed(0)
    f = problem.functions
    for step in range(120):
        if step % 7 == 6:
            policy.model.marginals()  # a pass over all arms, between two choices of a batch
        mask = torch.rand(2, 300, generator=generator) < 0.5 if masked else None
        choice = policy.choose(0.0, mask)
        scores = full_scores(policy)
        if masked:
            scores = scores.masked_fill(~mask, -torch.inf)
        best = scores.gather(-1, choice.arm.unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(best, scores.amax(-1), rtol=0, atol=1e-6)
        noise = 0.1 * torch.randn(2, generator=generator, dtype=torch.float64)
        policy.learn(Observation(0.0, choice.arm, f.gather(-1, choice.arm.unsqueeze(-1)).squeeze(-1) + noise))
    assert int(policy.trace()["arms_scored"].max()) <= 300


def test_few_arms_are_scored_again(problem):
    policy = make(problem)
    history = loop.run(policy, problem, 200)
    scored = history.trace["arms_scored"].double()
    assert float(scored[..., 100:].mean()) < 40


def test_means_are_frozen_inside_a_batch(problem):
    policy, draws, mean = make(problem, growth=20.0), None, None
    for _ in range(60):
        choice = policy.choose(0.0)
        if draws is not None and torch.equal(draws, policy.model.draws):
            assert torch.equal(policy._mean, mean)
        mean, draws = policy._mean.clone(), policy.model.draws
        policy.learn(Observation(0.0, choice.arm, torch.ones(2, dtype=torch.float64)))
    assert int(policy.model.draws.max()) < 60


def test_growth_one_is_bkb_step_by_step(problem):
    batch, other = make(problem, growth=1.0), make(problem, growth=1.0)
    plain = IndexPolicy(other.model, UpperConfidenceBound, width=other.width)
    one, other = loop.run(plain, problem, 80, seed=2), loop.run(batch, problem, 80, seed=2)
    assert torch.equal(one.arms, other.arms)


def test_a_batch_is_chosen_before_any_of_its_rewards(problem):
    """With the mean at its start, although pending pulls make a dictionary due."""
    policy = make(problem)
    loop.run(policy, problem, 250)
    before, draws, means, chosen = policy.model.marginals(), policy.model.draws, [], []
    with torch.no_grad(), policy.expecting(251.0) as expect:
        for _ in range(12):
            arm = policy.choose(251.0).arm
            best = full_scores(policy).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
            torch.testing.assert_close(best, full_scores(policy).amax(-1), rtol=0, atol=1e-6)
            expect(Pending(251.0, arm, {}))
            chosen.append(arm)
            means.append(policy._mean.clone())
        assert all(torch.equal(mean, means[0]) for mean in means)
        assert bool((policy.model.draws > draws).any())
    assert policy.model.num_observations.tolist() == [250, 250]
    for value, was in zip(policy.model.marginals(), before, strict=True):
        assert torch.equal(value, was)
    assert torch.equal(
        torch.stack([choice.arm for choice in policy.choose_many(251.0, 12)]), torch.stack(chosen)
    )
    assert len(set(torch.stack(chosen)[:, 0].tolist())) > 6  # every pick lowers the variance round it


@pytest.mark.parametrize("dictionary", ["redrawn", "kept"])
def test_bkb_with_everything_in_its_dictionary_chooses_as_exact_gp_ucb(problem, dictionary):
    """From its own first arm on, which is uniform where the dictionary is redrawn."""
    about = (problem.arms, problem.knowledge.kernel, 0.01)
    exact = recipes.gp_ucb(*about, width=2.0, replicates=2)
    options = {"oversampling": 1e12, "growth": 1.0, "dictionary": dictionary}
    played = loop.run(recipes.bkb(*about, width=2.0, replicates=2, **options), problem, 60)
    assert isinstance(exact.model, ArmGP)
    for k in range(60):
        if k or dictionary == "kept":
            assert torch.equal(exact.choose(k + 1.0).arm, played.arms[:, k])
        exact.learn(Observation(k + 1.0, played.arms[:, k], played.rewards[:, k]))


def test_batches_and_models_that_cannot_be_are_refused_by_name(problem):
    for name, call in {
        "horizon": lambda: recipes.bkb(
            problem.arms, problem.knowledge.kernel, 0.01, preset="theory", horizon=0
        ),
        "model": lambda: BKBWidth(1.0, 0.1, 0.1)(1, ArmGP(3, torch.eye(3), 0.1)),
        "rkhs_bound must be": lambda: BKBWidth(0.0, 0.1, 0.1, bound_is_guess=True),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()


def test_width_is_the_formula(problem):
    model = SketchedGP(problem.arms, problem.knowledge.kernel, 0.04)
    for arm in (pulled := [3, 5, 3, 9]):
        model.observe_arms(torch.tensor(arm), torch.ones((), dtype=torch.float64))
    d = float(model.marginals()[1][pulled].sum() / 0.04)
    log = torch.log(torch.tensor(5 / 0.04 + 1, dtype=torch.float64))
    root = (3 * (1 + log) * d + torch.log(torch.tensor(10.0))).sqrt()
    wanted = 2 * 0.3 / 0.2 * root + (1 + 2**0.5) * 1.5
    assert float(BKBWidth(1.5, 0.3, 0.1)(5, model)) == pytest.approx(float(wanted))
    root = (3 * torch.log(torch.tensor(5.0)) * d + torch.log(torch.tensor(10.0))).sqrt()
    wanted = 2 * 0.3 / 0.2 * root + (1 + 2**0.5) * 1.5
    assert float(BKBWidth(1.5, 0.3, 0.1, form="printed", stretch=4.0)(5, model)) == pytest.approx(
        2 * float(wanted), rel=1e-6
    )

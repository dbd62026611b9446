"""A policy that learns its hyperparameters: when it refits, what becomes of its state, and that recipes offer it."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.means import LinearMean

from bandits_torch import Domain, IndexPolicy, OnlineGP, UpperConfidenceBound, recipes
from bandits_torch.models import learnable
from bandits_torch.models.candidate_priors import CandidatePrior
from bandits_torch.policies import ContextualPolicy, LearnedHyperparameters, Observation
from bandits_torch.theory import ConstantWidth
from tests.reference.kernels import rbf

LINE = Domain(torch.tensor([[0.0], [1.0]]).double())
QUICK = {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 10}}


def policy_over_the_line(replicates=1, **schedule):
    kernel = rbf(0.3)
    options = {"width": 1.0, "search": QUICK, "learn_hyperparameters": schedule or True}
    return recipes.gp_ucb(LINE, kernel, 0.01, replicates=replicates, **options)


def teach(policy, steps, reward, first=1):
    generator = torch.Generator().manual_seed(first)
    refits = []
    for step in range(first, first + steps):
        X = torch.rand(policy.replicates, 1, generator=generator, dtype=torch.float64)
        policy.learn(Observation(float(step), X, reward(X)))
        refits.append(policy.trace()["refits"].clone())
    return torch.stack(refits)


def smooth(X):
    return torch.sin(6 * X[:, 0])


def test_it_refits_on_its_schedule():
    policy = policy_over_the_line(first=4, every=10, tolerance=1e9)
    refits = teach(policy, 35, smooth)[:, 0]
    assert refits.diff().nonzero().flatten().add(2).tolist() == [4, 14, 24, 34]


def test_it_refits_when_predictions_turn_bad_in_the_replicates_where_they_do():
    """Replicate 1's function jumps by ten standard deviations; nothing is due by the schedule."""
    policy = policy_over_the_line(2, first=5, every=1000, tolerance=1.0, memory=4)
    assert teach(policy, 20, smooth)[-1].tolist() == [1, 1]
    jump = torch.tensor([0.0, 10.0]).double()
    refits = teach(policy, 8, lambda X: smooth(X) + jump, first=21)
    assert refits[-1, 0] == 1
    assert refits[-1, 1] >= 2


def test_a_restart_brings_a_refit_to_all_that_was_seen_in_the_replicate_that_restarts():
    """An event says that the prior was wrong or the function has changed: nothing else is due."""
    kernel = rbf(0.3)
    schedule = {"first": 5, "every": 1000, "tolerance": 1e9}
    policy = recipes.et_gp_ucb(
        LINE, kernel, 0.01, replicates=2, width=1.0, search=QUICK, learn_hyperparameters=schedule
    )
    refits = teach(policy, 20, smooth)[-1]
    restarts = policy.policy.restarts.clone()
    scale = policy.model.kernel.outputscale.detach().clone()
    jump = torch.tensor([0.0, 10.0]).double()
    after = teach(policy, 1, lambda X: smooth(X) + jump, first=21)[-1]
    assert (policy.policy.restarts - restarts).tolist() == (after - refits).tolist() == [0, 1]
    assert policy.model.num_observations[1] == 1
    grown = policy.model.kernel.outputscale / scale
    assert grown[0] == 1
    assert grown[1] > 1.2  # one reward alone teaches nothing


def test_a_reset_forgets_the_observations_and_keeps_what_was_learned():
    policy = policy_over_the_line(first=4, every=5)
    teach(policy, 12, smooth)
    noise = policy.model.noise_variance.clone()
    policy.reset()
    assert policy.model.num_observations == 0
    assert torch.equal(policy.model.noise_variance, noise)


def test_what_it_cannot_wrap_is_refused():
    over_lines = OnlineGP(learnable(RBFKernel(), 1), 0.1, input_dim=1, prior_mean=LinearMean(1).double())
    model, width = OnlineGP(rbf(0.3), 0.01, input_dim=2), ConstantWidth(1.0)
    under_contexts = ContextualPolicy(
        model, UpperConfidenceBound, choices=LINE.bounds, context_dim=1, width=width
    )
    eye, tenth = torch.eye(3).double(), torch.tensor(0.1).double()
    with_slopes = IndexPolicy(over_lines, UpperConfidenceBound, choices=LINE, width=width)
    shared = recipes.gp_ucb(torch.arange(3.0).double().unsqueeze(-1), rbf(1.0), 0.1, replicates=2)
    for message, call in {
        r"model\.prior_mean must be a ConstantMean, to be learned": lambda: LearnedHyperparameters(
            with_slopes
        ),
        r"kernel\.batch_shape must be \(2,\), as from learnable": lambda: LearnedHyperparameters(shared),
        "policy must be an index policy": lambda: LearnedHyperparameters(recipes.random(5)),
        "policy must be an index policy .* without contexts": lambda: LearnedHyperparameters(under_contexts),
        "learn_hyperparameters must be False": lambda: recipes.gp_ucb(
            3, eye, 0.1, learn_hyperparameters=True
        ),
        r"model\.prior_mean must be a ConstantMean": lambda: over_lines.adopt(tenth, 0 * tenth),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_a_policy_that_keeps_restarting_learns_from_what_it_saw_before():
    """A flat prior surprised at every reward: the event fires again and again; the model never holds `first`."""
    kernel = rbf(3.0)
    options = {"width": 1.0, "search": QUICK, "learn_hyperparameters": {"first": 6, "every": 8}}
    policy = recipes.et_gp_ucb(LINE, kernel, 1e-4, **options)
    teach(policy, 7, lambda X: 0.01 * X[:, 0])  # the first fit says: nearly flat
    before = policy.trace()["restarts"].item()
    teach(policy, 8, lambda X: 3 * torch.sin(25 * X[:, 0]), first=8)
    refits, restarts = (policy.trace()[name].item() for name in ("refits", "restarts"))
    assert refits >= 2
    assert restarts > before
    teach(policy, 24, lambda X: 3 * torch.sin(25 * X[:, 0]), first=16)
    assert policy.trace()["restarts"].item() - restarts <= 6  # without: at every second reward
    assert policy.model.num_observations.item() >= 6


@pytest.mark.parametrize("drift", [False, True])
def test_a_window_shorter_than_the_first_fit_does_not_keep_from_fitting(drift, monkeypatch):
    """What is fitted then: the features, the times and the rewards of all that was seen, of arms too."""
    fitted = []

    def spy(model, members, most, data, seconds=None):
        assert most == 200
        fitted.append({k: (X.clone(), y.clone()) for k, (X, y) in data.items()})
        return []

    monkeypatch.setattr("bandits_torch.policies.learned_hyperparameters.fit_hyperparameters", spy)
    arms = torch.linspace(0, 1, 5).double().unsqueeze(-1) ** 2
    options = {"forgetting_rate": 0.01} if drift else {"window": 3, "horizon": 30}
    recipe = recipes.tv_gp_ucb if drift else recipes.sw_gp_ucb
    options |= {"width": 1.0, "replicates": 2, "learn_hyperparameters": {"first": 6}}
    options |= {"prior_mean": 0.5 * torch.arange(5).double()}
    policy = recipe(arms, RBFKernel().double(), 0.01, **options)
    for step in range(1, 7):
        if drift and step == 4:
            policy.policy.reset(torch.tensor([False, True]))  # as a restart does
        arm = torch.tensor([step % 5, (step + 1) % 5])
        policy.learn(Observation(float(step), arm, torch.tensor([0.1, 0.2]).double() * step))
    assert len(fitted) == 1
    assert sorted(fitted[0]) == ([1] if drift else [0, 1])
    X, y = fitted[0][1]
    arm = (torch.arange(1, 7) + 1) % 5
    torch.testing.assert_close(y, 0.2 * torch.arange(1.0, 7.0).double() - 0.5 * arm)
    expected = arms[arm]
    if drift:
        expected = torch.cat([expected, torch.arange(1.0, 7.0).double().unsqueeze(-1)], -1)
    torch.testing.assert_close(X, expected)


def test_whatever_the_policy_offers_is_offered_with_learning_on():
    arms = torch.linspace(0, 1, 8).double().unsqueeze(-1)
    over_arms = recipes.gp_ucb(arms, RBFKernel().double(), 0.01, learn_hyperparameters={"first": 3})
    for policy in (policy_over_the_line(), over_arms):
        inner = policy.policy
        public = {name for name in [*dir(inner), *vars(inner)] if not name.startswith("_")}
        assert {"marginals", "restarts", "forgetting", "acquisition"} <= public
        for name in public:
            assert hasattr(policy, name), name
        for name in ("replicates", "num_arms", "dim"):
            assert getattr(policy, name) == getattr(inner, name)
    for name in ("_nothing", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(policy, name)


def test_a_budget_of_seconds_is_shared_and_counted_and_none_or_plenty_are_the_same(monkeypatch):
    """Two replicates are due at once: each gets half. A fit out of time keeps what it has found so far."""
    from bandits_torch.models import hyperparameters

    given, real = [], hyperparameters.fit_gpytorch_mll

    def recorded(mll, **options):
        given.append(options["optimizer_kwargs"]["timeout_sec"])
        return real(mll, **options)

    monkeypatch.setattr(hyperparameters, "fit_gpytorch_mll", recorded)
    schedule = {"first": 5, "every": 5, "tolerance": 1e9}
    free, rich, poor = (
        policy_over_the_line(2, **schedule, **budget) for budget in ({}, {"budget": 1e6}, {"budget": 1e-9})
    )
    for policy, share in ((free, None), (rich, 5e5), (poor, 5e-10)):
        teach(policy, 10, smooth)
        assert given == [share] * 4
        assert policy.trace()["refits"].tolist() == [2, 2]
        given.clear()
    noise = [policy.model.noise_variance for policy in (free, rich, poor)]
    assert torch.equal(noise[0], noise[1])
    assert not torch.equal(noise[0], noise[2])
    assert "fit_seconds" not in free.trace()
    assert rich.trace()["fit_seconds"] > poor.trace()["fit_seconds"] > 0
    again = policy_over_the_line(2, **schedule, budget=1e6)
    again.load_state_dict(rich.state_dict())
    assert again.trace()["fit_seconds"] == rich.trace()["fit_seconds"]


def test_a_reward_is_judged_by_the_prior_that_chose_it_and_not_by_the_one_before():
    priors = [CandidatePrior(rbf(0.1)), CandidatePrior(rbf(0.1), mean=5.0, noise_variance=9.0)]
    schedule = {"first": 100, "memory": 1}
    policy = recipes.pe_gp_ucb(
        LINE, priors, 0.01, horizon=50, width=1.0, search=QUICK, learn_hyperparameters=schedule
    )
    for prior, x, reward, z in ((0, 0.1, 0.0, 0.0), (1, 0.9, 15.0, 10 / 10**0.5)):
        why = {"prior": torch.tensor([prior]), "width": torch.ones(1).double()}
        policy.learn(Observation(1.0, torch.tensor([[x]]).double(), torch.tensor([reward]).double(), why))
        assert policy.state_dict()["shortfall"].item() == pytest.approx(0.5 * (z**2 - 1), abs=1e-2)

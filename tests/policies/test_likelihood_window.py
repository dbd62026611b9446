"""A window chosen by predictive likelihood: which, and what is held then."""

import copy
import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, Domain, IndexPolicy, OnlineGP, UpperConfidenceBound, recipes
from bandits_torch.acquisition import PointSearch
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import SketchedGP
from bandits_torch.policies import LikelihoodWindow, Observation, SlidingWindow
from bandits_torch.theory import ConstantWidth
from tests.reference.arm_gp_twins import smooth
from tests.reference.dense_windows import dense_window_densities
from tests.reference.kernels import rbf

N, S, NOISE = 9, 3, 0.01
LINE = Domain(torch.tensor([[0.0], [1.0]]).double())
QUICK = PointSearch(1, 8, options={"maxiter": 10})
RULE = {"candidates": (40, 5, 12), "every": 4, "memory": 10, "margin": 1.0}


def drifting():
    return SpatioTemporalKernel(ArmCovarianceKernel(smooth(N, 0.3)), ExponentialForgettingKernel(0.001))


def over_arms(rule=None, replicates=S, kernel=None, form="auto"):
    kernel = ArmCovarianceKernel(smooth(N, 0.3)) if kernel is None else kernel
    model = ArmGP(N, kernel, NOISE, batch_shape=(replicates,), form=form)
    rule = LikelihoodWindow(**RULE) if rule is None else rule
    return IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(1.0), forgetting=rule)


def over_points(rule=None, replicates=S):
    kernel = rbf(0.3)
    model = OnlineGP(kernel, NOISE, input_dim=1, batch_shape=(replicates,))
    rule = LikelihoodWindow(**RULE) if rule is None else rule
    parts = {"width": ConstantWidth(1.0), "forgetting": rule, "search": QUICK}
    return IndexPolicy(model, UpperConfidenceBound, choices=LINE, **parts)


POLICIES = {
    "arms": over_arms,
    "arms, factor": lambda *given: over_arms(*given, form="factor"),
    "arms, drift": lambda *given: over_arms(*given, kernel=drifting()),
    "points": over_points,
}
EVERY = ["arms", pytest.param("arms, factor", marks=pytest.mark.slow), "arms, drift", "points"]


def observations(policy, steps, first=1, seed=3):
    """Random arms or points; the function changes its sign at step 60 + 10 k in replicate k."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(1, first + steps):
        if policy.dim:
            arm = torch.rand(S, 1, generator=generator, dtype=torch.float64)
            at = arm[:, 0]
        else:
            arm = torch.randint(N, (S,), generator=generator)
            at = arm.double() / (N - 1)
        sign = torch.where(step < 60 + 10 * torch.arange(S), 1.0, -1.0).double()
        noise = math.sqrt(NOISE) * torch.randn(S, generator=generator, dtype=torch.float64)
        if step >= first:
            yield Observation(float(step), arm, sign * torch.cos(4 * at) + noise)


def of_replicate(observation, k):
    return Observation(observation.time, observation.arm[k : k + 1], observation.reward[k : k + 1])


def dense_choice(policy, told, k):
    """The window of replicate k by direct solves, and the scores now."""
    X = torch.cat([policy.choices.inputs_of(o.arm, o.time)[k] for o in told])
    y = torch.stack([o.reward[k] for o in told])
    if policy.dim:
        covariance = policy.model.kernel(X).to_dense().detach()
    else:
        arm = X[:, 0].long()
        covariance = smooth(N, 0.3)[arm][:, arm]
        if policy.model.drifts:
            covariance = covariance * 0.999 ** ((X[:, 1:] - X[:, 1]).abs() / 2)
    windows = sorted(RULE["candidates"], reverse=True)
    densities = dense_window_densities(covariance, NOISE, y, windows)
    length = windows[0]
    for t in range(RULE["every"], len(told) + 1, RULE["every"]):
        score = densities[max(0, t - RULE["memory"]) : t].sum(0)
        length = next(w for w, own in zip(windows, score, strict=True) if own >= score.max() - RULE["margin"])
    return length, densities[-RULE["memory"] :].sum(0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", EVERY)
def test_the_window_is_that_of_direct_solves_and_what_is_held_is_the_last_window(kind):
    """When it shrinks, and when it grows back."""
    policy, told, lengths, chosen = POLICIES[kind](), [], [], []
    for observation in observations(policy, 130):
        policy.learn(observation)
        told.append(observation)
        lengths.append(policy.trace()["window"].clone())
        assert policy.model.num_observations.tolist() == lengths[-1].clamp(max=len(told)).tolist()
        if len(told) % 16 == 0 and 56 < len(told) < 104:
            own = lengths[-1].tolist()
            windows, scores = zip(*[dense_choice(policy, told, k) for k in range(S)], strict=True)
            assert own == [*windows]
            torch.testing.assert_close(policy.forgetting.scores, torch.stack(scores), rtol=0, atol=1e-7)
            chosen.append(tuple(own))
        if len(told) % 26 == 0:
            for k, length in enumerate(lengths[-1].tolist()):
                fresh = POLICIES[kind](SlidingWindow(length), 1)
                for old in told[-length:]:
                    fresh.learn(of_replicate(old, k))
                grid = (torch.arange(N).double() / (N - 1)).unsqueeze(-1)
                asked = (observation.time, grid) if policy.dim else (observation.time,)
                for own, exact in zip(policy.marginals(*asked), fresh.marginals(*asked), strict=True):
                    torch.testing.assert_close(own[k], exact[0], rtol=0, atol=1e-8)
    assert {window for own in chosen for window in own} == set(RULE["candidates"])
    assert any(len(set(own)) > 1 for own in chosen)  # each replicate has its own
    for own in torch.stack(lengths).T.tolist():
        assert own[50] == 40  # nothing has changed yet
        assert min(own[55:110]) == 5
        assert own[-1] == 40  # all of it is of the new function


def test_one_rule_serves_two_policies_and_what_is_kept_is_bounded():
    rule = LikelihoodWindow(**RULE)
    first, second = over_arms(rule), over_arms(rule)
    for observation in observations(first, 120):
        first.learn(observation)
    assert second.trace()["window"].tolist() == [40] * S
    assert not second.forgetting.scores.any()
    assert first.forgetting._densities.inputs.shape == (S, 50, 1)


@pytest.mark.parametrize("over", ["arms", "points"])
def test_after_a_refit_the_scores_are_those_of_the_new_hyperparameters(over):
    kernel = rbf(0.2)
    choices = LINE if over == "points" else (torch.arange(N).double() / (N - 1)).unsqueeze(-1)
    options = {"learn_hyperparameters": {"first": 14, "every": 1000, "tolerance": math.inf}}
    options |= {"window": {"candidates": [16, 6], "every": 1000}, "replicates": S}
    options |= {"search": QUICK} if over == "points" else {}
    policy = recipes.sw_gp_ucb(choices, kernel, NOISE, horizon=100, width=1.0, **options)
    told = []
    for observation in observations(policy, 14):
        told.append(observation)
        if len(told) == 14:
            before = policy.policy.forgetting.scores.clone()
        policy.learn(observation)
    assert policy.trace()["refits"].tolist() == [1] * S
    again = LikelihoodWindow((16, 6), every=1000).begin(copy_without_data(policy.model))
    for o in told:
        again.observed(lambda o=o: policy.policy.choices.inputs_of(o.arm, o.time), o.reward, policy.model)
    torch.testing.assert_close(policy.policy.forgetting.scores, again.scores, rtol=0, atol=1e-7)
    assert (policy.policy.forgetting.scores - before).abs().max() > 1.0
    policy.model.noise_variance.mul_(2.0)
    policy.policy.forgetting.refitted(policy.model, torch.tensor([True, False, True]))
    changed = (policy.policy.forgetting.scores != again.scores).all(-1)
    assert changed.tolist() == [True, False, True]  # of the others nothing is computed again


def copy_without_data(model):
    empty = copy.deepcopy(model)
    empty.reset()
    return empty


def test_the_recipe_takes_it_by_name_or_by_its_arguments():
    def rule(**options):
        return recipes.sw_gp_ucb(5, smooth(5, 0.3), 0.1, **options).forgetting

    default = rule(horizon=10_000, window="likelihood")
    assert default.candidates == (256, 128, 64, 32, 16, 8)
    assert (default.every, default.memory, default.margin) == (10, 30, 2.0)
    assert rule(horizon=100, window="likelihood").candidates == (100, 64, 32, 16, 8)
    own = rule(horizon=100, window={"candidates": [7, 30], "every": 3, "margin": 0})
    assert (own.candidates, own.every, own.margin) == ((30, 7), 3, 0.0)
    policy = recipes.sw_gp_ucb(5, smooth(5, 0.3), 0.1, horizon=100, window={"candidates": [7, 30]})
    plain = recipes.sw_gp_ucb(5, smooth(5, 0.3), 0.1, horizon=200, window=30)
    assert policy.width(3, policy.model) == plain.width(3, plain.model)  # ln(W T/delta)
    with pytest.raises(ValueError, match="window must be among candidates, every, margin, memory"):
        rule(horizon=100, window={"length": 3})
    with pytest.raises(ValueError, match="window must be an integer"):
        rule(horizon=100, window="longest")


def test_a_model_it_cannot_work_with_is_refused():
    rule = LikelihoodWindow((3, 5))
    sketched = SketchedGP((torch.arange(4) / 3).double().unsqueeze(-1), RBFKernel().double(), 0.1)
    with pytest.raises(ValueError, match="model must be an ArmGP or an OnlineGP"):
        IndexPolicy(sketched, UpperConfidenceBound, width=ConstantWidth(1.0), forgetting=rule)
    with pytest.raises(ValueError, match="needs a model that can forget"):
        over_arms(rule, kernel=drifting(), form="covariance")
    model = ArmGP(N, smooth(N, 0.3), NOISE, batch_shape=(S,))
    model.observe_arms(torch.tensor(0), torch.tensor(1.0))
    with pytest.raises(ValueError, match="num_observations"):
        IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(1.0), forgetting=rule)


def test_where_the_covariance_has_no_factor_there_is_no_score_and_no_error():
    model = ArmGP(2, torch.ones(2, 2).double(), 0.1, batch_shape=(2,))
    rule = LikelihoodWindow((3, 1), memory=1).begin(model)
    model.noise_variance.fill_(1e-30)  # less than a constructor takes
    for _ in range(6):
        rule.observed(lambda: torch.zeros(2, 1, 1).double(), torch.ones(2).double(), model)
    assert rule.scores.eq(0).all()


def test_rewards_that_come_late_under_drift_are_scored_and_held():
    policy = over_arms(kernel=drifting())
    told = list(observations(policy, 110))
    for first in range(0, 110, 2):  # each second one comes before its elder
        for observation in (told[first + 1], told[first]):
            policy.learn(observation)
    assert policy.trace()["window"].tolist() == policy.model.num_observations.tolist()
    assert torch.isfinite(policy.forgetting.scores).all()
    assert policy.trace()["window"].min() < 40

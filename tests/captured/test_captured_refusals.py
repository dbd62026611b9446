"""What cannot be captured is refused by name, with the reason, before anything has changed."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmContext, ArmGP, IndexPolicy, OnlineGP, UpperConfidenceBound, make, recipes, run
from bandits_torch.captured.blocks import ProblemInputs
from bandits_torch.kernels import SpatioTemporalKernel, WienerKernel
from bandits_torch.policies.forgetting import SlidingWindow
from bandits_torch.problems.simulated import GPDraws
from bandits_torch.state_files import described
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import DriftAwareWidth, DualMixtureWidth, Width
from bandits_torch.theory.widths import ConstantWidth
from tests.captured.test_captured_runs import built, never_looks


def refused(policy, problem, match):
    before = described(policy.state_dict())
    with pytest.raises(ValueError, match=match):
        run(policy, problem, 30, capture=True)
    assert described(policy.state_dict()) == before


@pytest.mark.parametrize(
    ("recipe", "options", "match"),
    [
        (
            "predictive_sampling",
            {},
            "acquisition .* cannot be captured: UpperConfidenceBound, ThompsonSampling",
        ),
        ("random", {}, "RandomPolicy cannot be captured"),
        ("sw_gp_ucb", {"window": "likelihood"}, "LikelihoodWindow cannot be captured"),
        ("bkb", {}, "SketchedGP cannot be captured"),
        ("gp_ucb", {"learn_hyperparameters": True}, "LearnedHyperparameters cannot be captured"),
        ("auto", {"cycles": 5.0}, "CyclicMembers cannot be captured"),
        ("tv_gp_ucb", {"time_kernel": "matern-5/2:9"}, "a kernel over time with a state space"),
        ("gp_ts", {"form": "factor"}, "ThompsonSampling cannot be captured: form='factor' keeps no root"),
    ],
)
def test_policies_without_captured_steps(recipe, options, match):
    problem = make("gp", replicates=2, num_arms=12)
    refused(recipes.build(recipe, problem, replicates=2, horizon=30, **options), problem, match)


class CountingWidth(Width):
    """A width of a user that falls with the number of observations."""

    def at(self, step, model):
        return 3 / (1.0 + model.num_observations).sqrt()


@pytest.mark.parametrize(
    "width",
    [CountingWidth(), DriftAwareWidth(ConstantWidth(1.0), 0.1), DualMixtureWidth(1.0, None, 0.1, horizon=30)],
)
def test_widths_that_read_the_observations_which_a_block_stores_at_its_end(width):
    problem = make("gp", replicates=2, num_arms=12)
    policy = recipes.build("gp_ucb", problem, replicates=2, horizon=30, width=width)
    refused(policy, problem, f"{type(width).__name__} cannot be captured: it reads the observations")
    assert run(policy, problem, 5, capture="auto").meta["steps"] == "one by one"


class MistakenWidth(Width):
    def at(self, step, model):
        return model.num_observation


def test_a_mistake_in_a_width_is_shown_as_it_is():
    problem = make("gp", replicates=2, num_arms=12)
    policy = recipes.build("gp_ucb", problem, replicates=2, horizon=30, width=MistakenWidth())
    with pytest.raises(AttributeError, match="num_observation'"):
        run(policy, problem, 5, capture=True)


def test_models_domains_and_windows_without_captured_steps(monkeypatch):
    points = make("dynamic-levy", replicates=1, dim=2)
    refused(recipes.build("gp_ucb", points, replicates=1, horizon=30), points, "cannot be captured")
    problem = make("gp", replicates=2, num_arms=12)
    parts = {"acquisition": UpperConfidenceBound, "width": ConstantWidth(1.0)}
    over_inputs = OnlineGP(RBFKernel().double(), 0.1, input_dim=1, batch_shape=(2,))
    policy = IndexPolicy(over_inputs, choices=problem.arms, **parts)
    refused(policy, problem, "OnlineGP cannot be captured: the steps of an ArmGP can")
    drifting = SpatioTemporalKernel(problem.knowledge.kernel, WienerKernel())
    draws = recipes.gp_ts(problem.arms, drifting, 0.1, replicates=2)
    refused(draws, problem, "under drift every step factors")
    model = ArmGP(problem.arms, problem.knowledge.kernel, 0.1, batch_shape=(2,))
    policy = IndexPolicy(model, forgetting=SlidingWindow(20), **parts)
    run(policy, problem, 5)
    policy.reset(torch.tensor([True, False]))
    refused(policy, problem, "SlidingWindow cannot be captured: its replicates hold different numbers")
    never_looks(monkeypatch)
    grows = "form='factor' cannot be captured: under a kernel whose variance grows"
    refused(*built("ui_gp_ucb, factor"), grows)


class NoisyArms(GPDraws):
    def noise(self, step, arm, streams):
        return arm * streams.normal()


class OwnPull(GPDraws):
    def pull(self, step, arm, streams):
        return super().pull(step, arm, streams)


class OwnTrace(GPDraws):
    def trace(self, step, arm):
        return {"pulled": arm.double()}


class StepNoise(NoisyArms):
    noise_is_added = True

    def noise(self, step, arm, streams):
        return streams.normal()


@pytest.mark.parametrize("policy", ["gp_ucb", "ucb1"])
@pytest.mark.parametrize(
    "mask",
    [
        torch.zeros(12, dtype=torch.bool),
        torch.ones(12),
        torch.ones(12, dtype=torch.long),
        torch.ones(11, dtype=torch.bool),
        torch.ones(1, dtype=torch.bool),
        torch.ones(3, 12, dtype=torch.bool),
        [True] * 12,
        ArmContext(torch.ones(1)),
    ],
)
def test_masks_that_plain_steps_refuse_in_the_same_words(policy, mask):
    said = []
    for capture in (False, 8):
        problem = make("gp", replicates=2, num_arms=12)
        problem.available = lambda step: mask if step == 20 else None
        with pytest.raises(ValueError, match="available must") as refusal:
            run(recipes.build(policy, problem, replicates=2, horizon=30), problem, 30, capture=capture)
        said.append(str(refusal.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("first", [1, 20])
@pytest.mark.parametrize("shape", [(12,), (1, 12), (2, 13)])
@pytest.mark.parametrize("policy", ["gp_ucb", "ucb1"])
def test_expected_rewards_of_another_shape_are_refused_in_the_words_of_plain_steps(policy, shape, first):
    said = []
    for capture in (False, 8):
        problem = make("gp", replicates=2, num_arms=12)
        right = problem.expected_rewards(1)
        problem.expected_rewards = lambda step, right=right: torch.zeros(shape) if step >= first else right
        with pytest.raises(
            ValueError, match=r"expected_rewards must have shape \(2, 12\), got shape"
        ) as refusal:
            run(recipes.build(policy, problem, replicates=2, horizon=30), problem, 30, capture=capture)
        said.append(str(refusal.value))
    assert said[0] == said[1]


def test_problems_whose_rewards_cannot_be_laid_out_and_one_that_says_its_can():
    for kind, match in (
        (NoisyArms, "its noise may depend on the arms"),
        (OwnPull, "overrides pull, score or trace"),
        (OwnTrace, "overrides pull, score or trace"),
    ):
        problem = kind(num_arms=12)
        refused(recipes.build("gp_ucb", problem, replicates=1, horizon=30), problem, match)
    ProblemInputs(StepNoise(num_arms=12), ReplicateStreams(0))

"""What cannot be captured is refused by name, with the reason, before anything has changed."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, IndexPolicy, OnlineGP, UpperConfidenceBound, make, recipes, run
from bandits_torch.captured.blocks import ProblemInputs
from bandits_torch.kernels import SpatioTemporalKernel, WienerKernel
from bandits_torch.policies.forgetting import SlidingWindow
from bandits_torch.problems.simulated import GPDraws
from bandits_torch.state_files import described
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import DriftAwareWidth, DualMixtureWidth, Width
from bandits_torch.theory.widths import ConstantWidth
from tests.captured.test_captured_runs import built, never_looks


def refused(policy, problem, match, horizon=30):
    before = described(policy.state_dict())
    with pytest.raises(ValueError, match=match):
        run(policy, problem, horizon, capture=True)
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
    ],
)
def test_policies_without_captured_steps(recipe, options, match):
    problem = make("gp", replicates=2, num_arms=12)
    policy = recipes.build(recipe, problem, replicates=2, horizon=30, **options)
    refused(policy, problem, match)


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


def test_models_other_than_arm_gp():
    problem = make("gp", replicates=1, num_arms=12)
    model = OnlineGP(RBFKernel().double(), 0.1, input_dim=1)
    policy = IndexPolicy(model, UpperConfidenceBound, choices=problem.arms, width=ConstantWidth(1.0))
    refused(policy, problem, "OnlineGP cannot be captured: the steps of an ArmGP can")


def test_domains():
    problem = make("dynamic-levy", replicates=1, dim=2)
    policy = recipes.build("gp_ucb", problem, replicates=1, horizon=30)
    refused(policy, problem, "cannot be captured")


def test_a_window_whose_replicates_differ():
    problem = make("gp", replicates=2, num_arms=12)
    model = ArmGP(problem.arms, problem.knowledge.kernel, 0.1, batch_shape=(2,))
    policy = IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(1.0), forgetting=SlidingWindow(20))
    run(policy, problem, 5)
    policy.reset(torch.tensor([True, False]))
    refused(policy, problem, "SlidingWindow cannot be captured: its replicates hold different numbers")


def test_the_factor_form_for_draws_and_where_its_work_depends_on_what_was_pulled(monkeypatch):
    never_looks(monkeypatch)
    refused(
        *built("ui_gp_ucb, factor"), "form='factor' cannot be captured: under a kernel whose variance grows"
    )
    problem = make("gp", replicates=2, num_arms=12)
    policy = recipes.build("gp_ts", problem, replicates=2, horizon=30, form="factor")
    refused(policy, problem, "ThompsonSampling cannot be captured: form='factor' keeps no root")


def test_draws_under_drift():
    policy = recipes.gp_ts(*drifting())
    refused(policy, make("gp", replicates=1, num_arms=12), "under drift every step factors")


def drifting():
    problem = make("gp", replicates=1, num_arms=12)
    return problem.arms, SpatioTemporalKernel(problem.knowledge.kernel, WienerKernel()), 0.1


class NoisyArms(GPDraws):
    def noise(self, step, arm, streams):
        return arm * streams.normal()


class OwnPull(GPDraws):
    def pull(self, step, arm, streams):
        return super().pull(step, arm, streams)


class StepNoise(NoisyArms):
    noise_is_added = True

    def noise(self, step, arm, streams):
        return streams.normal()


@pytest.mark.parametrize(
    ("kind", "match"), [(NoisyArms, "its noise may depend on the arms"), (OwnPull, "overrides pull or score")]
)
def test_problems_whose_rewards_cannot_be_laid_out(kind, match):
    problem = kind(num_arms=12)
    refused(recipes.build("gp_ucb", problem, replicates=1, horizon=30), problem, match)


def test_a_noise_that_says_it_does_not_ask_for_the_arms_is_taken():
    ProblemInputs(StepNoise(num_arms=12), ReplicateStreams(0))

"""Every public constructor and function: a valid call, and what each of its arguments must refuse.

Both are read from the signatures and from two tables by the parameter's name: ``GOOD`` has values, ``BAD`` what is
refused. A parameter takes None where its default is None. A new export needs a row only for what is new about it:
``test_nothing_public_is_left_out`` names a parameter that no row knows.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import torch
from botorch.test_functions import Branin
from gpytorch.kernels import RBFKernel

from bandits_torch import (
    Domain,
    acquisition,
    kernels,
    models,
    policies,
    problems,
    recipes,
    save_policy,
    theory,
)
from bandits_torch.problems.forgetting_fit import draw_tables
from tests.fuzz import bad_values as bad
from tests.fuzz.bad_values import COVARIANCE, FEATURES, N, st

ROOMS = [
    "",
    ".acquisition",
    ".kernels",
    ".models",
    ".policies",
    ".policies.classical",
    ".problems",
    ".recipes",
    ".theory",
]
T = 20
DOMAIN = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())


@cache
def exports() -> dict[str, Any]:
    """Public names with what they stand for, abstract classes and modules left out."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module("bandits_torch" + room)
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not inspect.isabstract(thing):
                found[f"{room.lstrip('.') or 'bandits_torch'}.{name}"] = thing
    return found


# -- good values ---------------------------------------------------------------------------------------


def kernel():
    return RBFKernel().double()


def arm_gp(**options):
    return models.ArmGP(N, COVARIANCE, 0.1, **({"batch_shape": (2,)} | options))


def sketched():
    return models.SketchedGP(FEATURES, kernel(), 0.1, sampling=models.LeverageSampling(2.0), batch_shape=(2,))


def priors():
    return [models.CandidatePrior(COVARIANCE), models.CandidatePrior(COVARIANCE + 0.5)]


def over_priors():
    return models.arm_gp_over_priors(FEATURES, priors(), 0.1, replicates=2)


def ucb(model=None):
    return acquisition.UpperConfidenceBound(over_priors() if model is None else model, 2.0)


def point_members():
    three = torch.tensor([0.1, 0.2, 0.3]).double()
    return models.PointMembers(DOMAIN.bounds, three, three, three, 10 * three, replicates=2, capacity=8)


def over_points(batch=(2,)):
    space = kernels.SpatioTemporalKernel(kernel(), kernels.ExponentialForgettingKernel(0.1).double())
    return models.OnlineGP(space, 0.1, input_dim=3, batch_shape=batch)


def learnable_gp():
    """Two replicates of a model that can learn its hyperparameters, with some rewards."""
    model = models.ArmGP(FEATURES, models.learnable(kernel(), 1, 2), 0.1, batch_shape=(2,))
    for arm in range(3):
        model.observe_arms(torch.tensor(arm), torch.tensor(0.1 * arm).double())
    return model


def ucb_policy(model=arm_gp):
    return policies.IndexPolicy(model(), acquisition.UpperConfidenceBound, width=theory.ConstantWidth(1.0))


def learnable_policy():
    return ucb_policy(learnable_gp)


def ones(*shape):
    return torch.ones(*shape).double()


def zeros(*shape):
    return torch.zeros(*shape).double()


FILES = Path(tempfile.mkdtemp())


def saved():
    path = FILES / "policy"
    save_policy(path, policies.RandomPolicy(5), overwrite=True)
    return path


def members():
    rest = torch.tensor([0, 0]), ones(2), zeros(2)
    return models.ArmMembers(len(COVARIANCE), COVARIANCE.unsqueeze(0), *rest)


def uniform(*shape):
    return torch.full(shape, 1 / shape[-1]).double()


def design_features():
    return theory.features_of_covariance(COVARIANCE)


# -- the tables ----------------------------------------------------------------------------------------
# A row: what, for which parameters, of which exports. Names of exports are patterns; a later row goes before an earlier
# one, and a row without exports is of all that have the parameter.

_MEMBERS = "models.*Members"
_SAFE = "policies.SafePolicy policies.SafePointPolicy"
_SWITCHING = "problems.SwitchingFunctions problems.Sphere*Switch* problems.TVGPDraws problems.MovingPeaks"
_STATIONARY = "problems.GPDraws problems.RKHSFunctions"
_SIMULATED = f"{_STATIONARY} {_SWITCHING} problems.DriftingCosine problems.VarianceStarvation"
_OVER_POINTS = "policies.IndexPolicy policies.RewardImprovementPolicy policies.ContextualPolicy"
_ACQUISITIONS = "acquisition.*UpperConfidenceBound acquisition.ThompsonSampling acquisition.PathwisePointDraw"
_OF_PRIORS = (
    "policies.BayesianPriorPolicy policies.LikeliestPriorPolicy policies.PriorElimination policies.RegretB*"
)

# A value, or a function that makes one. A row without exports is for where the parameter has no default, one with
# exports for all of them; None leaves the parameter out.
GOOD: list[tuple[Any, str] | tuple[Any, str, str]] = [
    (FEATURES, "arms choices"),
    (kernel, "kernel space_kernel arm_kernel context_kernel"),
    (lambda: kernels.ExponentialForgettingKernel(0.1), "time_kernel"),
    (COVARIANCE, "covariance"),
    (0.1, "noise_variance forgetting_rate drift_variance delta drift ridge"),
    (1.0, "noise_scale rkhs_bound value inflation weight beta r a b"),
    (0.5, "alpha"),
    (0.9, "discount"),
    (2.0, "oversampling"),
    (1, "dim context_dim"),
    (2, "input_dim replicates num_priors arm_dim"),
    (3, "interval window step batches num_contexts initial"),
    (4, "count"),
    (5, "max_points"),
    (T, "horizon"),
    (N, "num_arms"),
    (priors, "priors"),
    (lambda: priors()[0], "prior"),
    (arm_gp, "model"),
    (ucb, "base"),
    (ucb_policy, "policy"),
    (lambda: acquisition.UpperConfidenceBound, "acquisition"),
    (theory.RealisedGain, "gain"),
    (lambda: theory.ConstantWidth(1.0), "width safety_width"),
    (lambda: theory.DualMixtureWidth(1.0, None, 0.1), "bound"),
    (design_features, "features"),
    (lambda: torch.rand(N).double(), "gaps estimates"),
    (lambda: uniform(N), "probabilities"),
    (policies.Constants, "constants"),
    (DOMAIN, "domain"),
    (DOMAIN.bounds, "bounds"),
    (lambda: torch.rand(30, N).double(), "table"),
    (lambda: problems.make("gp", num_arms=5), "problem"),
    ("gp", "name"),
    (lambda: {"heat": (-1.0, 1.0)}, "limits"),
    (lambda: {"heat": arm_gp()}, "outcomes"),
    (point_members, "members"),
    (torch.stack([COVARIANCE, COVARIANCE + 0.5]), "covariances"),
    (lambda: [members(), members()], "parts"),
    (ones(3), "lengthscale timescale level_variance strength"),
    (zeros(2), "log_weights log_likelihood offset"),
    (ones(2), "unit"),
    (torch.tensor([True, False, True]), "learn_offset"),
    (lambda: lambda n: 1.0, "rho"),
    (lambda: policies.MasterThresholds(1.0), "thresholds"),
    ("binary", "rewards"),
    ("matern", "kind"),
    (Branin, "function"),
    (torch.rand(2, N).double(), "functions"),
    # set wherever they occur: quick, and two replicates
    (2, "replicates depth training_steps", "*"),
    (8, "hidden", "*"),
    (3, "first", "*"),
    (20, "most", "*"),
    (4, "memory", "*"),
    # models
    (N, "arms", "models.ArmGP"),
    (COVARIANCE, "kernel", "models.ArmGP recipes.dal"),
    (torch.tensor([0, 1, 1]), "kernel", _MEMBERS),
    (0.1 * ones(3), "noise_variance", _MEMBERS),
    (zeros(3), "forgetting_rate", _MEMBERS),
    ([24.0], "periods", "models.CyclicMembers"),
    ([1], "harmonics", "models.CyclicMembers"),
    (1, "control", "models.LevelMembers policies.ControlledPolicy"),
    (ones(3), "noise_variance", "models.PointMembers"),
    (8, "capacity", "models.PointMembers"),
    (ones(2, 3) / 3, "weights", "models.MemberMixture"),
    (ones(2, 3), "scale", "models.MemberMixture"),
    (learnable_gp, "model", "models.fit_hyperparameters"),
    ([0, 1], "members", "models.fit_hyperparameters"),
    ("heat", "name", "models.OutcomeConstraint"),
    (1.0, "high", "models.OutcomeConstraint"),
    (over_points, "model", f"models.AtTime acquisition.PathwisePointDraw policies.SafePoint* {_OVER_POINTS}"),
    (1.0, "time", "models.AtTime acquisition.PathwisePointDraw"),
    # kernels
    (lambda: [kernel(), kernel()], "kernels", "kernels.StackedKernel"),
    (
        lambda: [kernels.MaternTimeKernel(2.0), kernels.PeriodicTimeKernel(3.0)],
        "kernels",
        "kernels.*OfTimeKernels",
    ),
    (lambda: kernels.MaternTimeKernel(2.0), "kernel", "kernels.state_space_of"),
    (lambda: torch.rand(6, N).double(), "table", "kernels.estimate_covariance"),
    # theory
    (2, "num_intervals", "theory.RestartWidth"),
    (19, "draws", "theory.mean_excess"),
    (lambda: theory.ConstantWidth(1.0), "base", "theory.DriftAwareWidth theory.GPBUCBWidth"),
    (2.5, "nu", "theory.GrowthBound"),
    (T, "horizon", f"theory.SlidingWindowWidth {_SWITCHING}"),
    (1.0, "gain", "theory.optimal_exploration"),
    (2, "limits", "theory.PosteriorSafetyWidth"),
    # acquisitions
    (torch.ones(2) > 0, "surviving", "acquisition.OptimisticOverPriors"),
    (1.0, "width", _ACQUISITIONS),
    ((0, 1), "seeds", "acquisition.PathwisePointDraw"),
    (64, "features", "acquisition.PathwisePointDraw acquisition.PathwiseThompsonSampling"),
    (0, "seed", "acquisition.PathwiseThompsonSampling"),
    (lambda: uniform(2, N), "probabilities", "acquisition.PlayingProbability"),
    ([(torch.tensor([0, 1]), ones(2), 0.1)], "inequality_constraints", "bandits_torch.Domain"),
    ({1: 0.5}, "fixed_features", "bandits_torch.Domain"),
    # policies
    (DOMAIN, "choices", _OVER_POINTS),
    (lambda: theory.ConstantWidth(1.0), "width", _OVER_POINTS),
    (1, "context_dim", "policies.ContextualPolicy"),
    ((3, 5), "candidates", "policies.LikelihoodWindow"),
    (DOMAIN, "domain", "policies.CostlyMoves"),
    (FEATURES[:, :1], "choices", "policies.ContextualPolicy"),
    (N, "choices", "policies.RandomPolicy"),
    (0.1, "noise_scale", "policies.DetectionAugmented"),
    (0.2, "control_share", "policies.ControlledPolicy"),
    (lambda: {"heat": over_points()}, "outcomes", "policies.SafePointPolicy"),
    (lambda: policies.FixedFeatures(design_features(), 2), "features", "policies.OPKB policies.AdaOPKB"),
    (sketched, "model", "policies.BatchBKB"),
    (over_priors, "model", f"{_OF_PRIORS} policies.SampledPriorPolicy policies.ModelAveraging"),
    (0.5, "first", "policies.CalibratedOPKB"),
    (0.5, "prior_mean", "policies.CentredPolicy"),
    (lambda: recipes.gp_ucb(DOMAIN, kernel(), 0.1, replicates=2), "policy", "policies.CostlyMoves"),
    (learnable_policy, "policy", "policies.LearnedHyperparameters"),
    (ones(3), "prior", "policies.FixedShare"),
    (0.9, "memory", "policies.FixedShare policies.MemberScale"),
    (11.0, "every", "policies.LookingAgain"),
    (members, "model", "policies.LookingAgain"),
    (7.0, "every", "policies.LookingAtPoints"),
    (lambda: ucb_policy, "base", "policies.Master"),
    (lambda: lambda n: ucb_policy(), "base", "policies.DoublingTrick"),
    (8, "width", "policies.NeuralFeatures"),
    # problems
    (9, "num_arms", f"{_SIMULATED} problems.Rosenbrock problems.Hartmann3"),
    (None, "function", "problems.Rosenbrock problems.Hartmann3"),
    (11, "num_arms", "problems.Hills"),
    (0.1, "noise_scale", f"{_SIMULATED} problems.StationaryProblem problems.DynamicFunction"),
    (4, "side", "problems.GridDraws"),
    (2, "dim", "problems.GridDraws problems.DriftingCosine"),
    ("sphere", "layout", "problems.DriftingCosine"),
    (0.1, "outcome_noise_scale", "problems.SafeTVGPDraws"),
    (10, "horizon", "problems.Replay"),
    (0.1, "forgetting_rate", "problems.Replay"),
    (0.05, "noise_fraction", "problems.Replay"),
    (torch.rand(6, N).double(), "rewards", "problems.RewardTable"),
    (lambda: torch.rand(8, N).double(), "table", "problems.fit_forgetting_rate"),
    (torch.arange(8).double(), "times", "problems.fit_forgetting_rate"),
    (5, "max_rows", "problems.fit_forgetting_rate"),
    (3, "max_arms", "problems.fit_forgetting_rate"),
    (
        lambda: draw_tables(COVARIANCE, 0.3, 0.2, torch.arange(80).double(), 1)[:, 0],
        "table",
        "problems.fit_forgetting",
    ),
    (torch.arange(80).double(), "times", "problems.fit_forgetting"),
    (COVARIANCE + 0.3 * torch.eye(N).double(), "covariance", "problems.fit_forgetting"),
    (80, "max_rows", "problems.fit_forgetting"),
    # recipes, the loop
    (-1.0, "least_reward", "recipes.safe_gp_ucb recipes.safe_opt"),
    (0.1, "noise_variance", "recipes.dal"),
    (0.99, "discount", "recipes.w_gp_ucb"),
    ("gp_ucb", "name", "recipes.options_of recipes.registered recipes.build"),
    (1, "replicates", "recipes.build"),
    (lambda: policies.RandomPolicy(5), "policy", "bandits_torch.*"),
    (FILES / "saved", "path", "bandits_torch.save_policy"),
    (saved, "path", "bandits_torch.load_policy"),
    (True, "overwrite", "bandits_torch.save_policy"),
    ("error", "on_difference", "bandits_torch.load_policy"),
    (3, "horizon", "bandits_torch.run"),
]

_NAMES = bad.words(*problems.PROBLEMS, *recipes.RECIPES)
_THING_OR_NONE = bad.things(none=True)
_SHARE_OR_NONE = bad.numbers(lambda x: 0 <= x <= 1, none=True)
_AT_LEAST_0 = bad.numbers(lambda x: x > 0)
_TIME = bad.numbers(bad.math.isfinite)
_CONTEXTS = bad.spoiled(torch.rand(3, 1).double(), torch.ones(3, 1)).filter(lambda x: x is not None)
_NO_KERNELS = ([], (), None, "rbf", 3, ["rbf"])
_OF_MEMBERS = bad.spoiled(ones(3), torch.zeros(3), -torch.ones(3), torch.ones(2, 3, 4))
_STEPS = torch.arange(80).double()
one_of = st.sampled_from

# What a parameter must refuse, as a strategy, or None: it is not looked at, or by another test. Without exports, None
# is right where it is the default.
BAD: list[tuple[Any, str] | tuple[Any, str, str]] = [
    (
        bad.positive,
        "noise_variance noise_scale lengthscale sigma ridge run_length price oversampling c0 c1 c2 c3",
    ),
    (
        bad.positive,
        "c4 nu constant inflation rise fall learnt hill_width squared_lengthscale amplitude beta alpha",
    ),
    (bad.positive, "tolerance r a b regulariser scale drift_variance sample_noise weight noise_fraction"),
    (bad.positive, "period_length changes sharing exploration context_lengthscale tail clip"),
    (bad.positive_or_none, "reward_scale outcome_noise_scale outcome_forgetting_rate seconds budget"),
    (
        bad.non_negative,
        "rkhs_bound drift value design rkhs_variation_budget variation_budget safety_width climb",
    ),
    (bad.non_negative, "width variance look_again move_price plausible wide ends"),
    (bad.finite, "margin prior_mean start short tall limit least_reward"),
    (bad.share, "delta epsilon warm_up shrink"),
    (bad.numbers(lambda x: 0 <= x <= 1), "shrinkage design_share"),
    (bad.numbers(lambda x: 0 < x <= 1), "discount step_size"),
    (bad.rate, "forgetting_rate shift cycle_rate share"),
    (bad.numbers(lambda x: x == 0.1), "control_share"),
    (bad.at_least_one, "growth stretch"),
    (_AT_LEAST_0, "anisotropy behind"),
    (bad.numbers(lambda x: x > 0, none=True), "max_move"),
    (
        bad.count,
        "num_arms replicates horizon interval num_intervals dim max_points max_rows max_arms side hidden",
    ),
    (bad.count, "period num_peaks input_dim num_priors step every memory most first chunk_size"),
    (bad.count, "num_restarts draws batches num_contexts arm_dim refine_every rounds count"),
    (bad.natural, "order seed first_replicate initial first_replay training_steps keep context_dim refined"),
    (bad.integers(0), "control true_prior"),
    (bad.integers(2), "depth raw_samples"),
    (bad.arms, "arms"),
    (bad.features, "features"),
    (bad.bounds, "bounds"),
    (bad.constraints, "inequality_constraints"),
    (bad.covariances, "kernel covariance"),
    (bad.tables, "table"),
    (bad.paths, "data path"),
    (bad.windows, "candidates"),
    (bad.thing, "model base gain problem policy space_kernel time_kernel priors prior acquisition domain"),
    (bad.thing, "function arm_kernel context_kernel outcomes members rho bound estimates"),
    (bad.things(), "settings"),
    (_THING_OR_NONE.filter(lambda x: x != {}), "search"),  # no arguments: the defaults
    (bad.count.filter(lambda x: x != {}), "window"),  # of a recipe: LikelihoodWindow without arguments
    (bad.words("local", "global"), "restarts"),
    (bad.words("start", "always"), "trust"),
    (bad.words("likeliest", "raise"), "when_empty"),
    (bad.words("ucb", "safeopt"), "explore"),
    (bad.words("run", "step"), "guarantee"),
    (bad.words("numbers", "binary", "counts"), "rewards"),
    (bad.words("auto", "bernoulli", "gaussian"), "likelihood"),
    (bad.words("auto", "covariance", "factor"), "form"),
    (bad.words("theory", "printed"), "width_form"),
    (bad.words("mean", "reward"), "incumbent"),
    (bad.words("s", "min", "h", "D"), "time_unit"),
    (bad.words("uniform", "grid", "sphere"), "layout"),
    (bad.words("fresh", "flip", "shift"), "change"),
    (bad.words("two-sided", "printed", "one-sided"), "xi"),
    (bad.words("practical", "theory"), "preset"),
    (bad.words("redrawn", "kept"), "dictionary"),
    (bad.words("calibrated", "theory"), "thresholds"),
    (bad.words("tuned", "theory", "practical"), "constants"),
    (bad.words("product", "sum", "additive"), "combine"),
    (bad.words("squared_exponential", "matern", "linear"), "kind"),
    (bad.words("error", "file"), "on_difference"),
    (bad.words("auto", "newton", "first-order", "multiplicative", "frank-wolfe"), "method"),
    (one_of(["yes", 1, None, 0.0, []]), "bound_is_guess"),
    (one_of([None, 1, 0.0, "yes", []]), "warm_start"),
    (one_of([3, "all", (), (1.0,), (1, 0), (2, 2), (0, bad.NAN), (0, bad.INF), ("a", 1)]), "reward_range"),
    (one_of([0, -1, 1.5, "ten", bad.NAN, True]), "grid_until"),
    (one_of([0.0, -1.0, bad.NAN, bad.INF, "oldest", []]), "stale"),
    (one_of([-1, 1.5, "a", bad.NAN, torch.ones(3), 99, []]), "start_at"),
    (one_of([torch.ones(N), torch.ones(2, 3) > 0, torch.zeros(N) > 0, "arms", [True], 3]), "safe_arms"),
    (one_of([{}, {"flow": (0.0, 1.0)}, {"reward": (1.0, 0.0)}, {"reward": 3.0}, 3, None]), "limits"),
    (one_of([[], [0.0], [bad.NAN], [-1.0, 2.0], ["day"], 24.0, None]), "periods"),
    (one_of([0.0, -1.0, bad.NAN, bad.INF, "day", [], [24.0, 24.0], [-1.0], {}, [None]]), "cycles"),
    (one_of([[], [0], [1.5], [1, 2], 1, None]), "harmonics"),
    (one_of([["a", "a"], ["a"], [1, 2, 3, 4, 5], ["", *"bcde"], "abcde", 3, {}]), "names context_names"),
    (one_of([3, "heat", ["heat"], [None], {"heat": (0.0, 1.0)}]), "constraints"),
    (one_of([[], [None], "parts", 3, None]), "parts"),
    (one_of([None, "w", torch.zeros(3), [0.0, 0.0]]), "log_weights log_likelihood"),
    (one_of(["all", torch.ones(3) > 0, torch.zeros(2) > 0, torch.ones(2), [True, True]]), "surviving"),
    (one_of([torch.ones(3), torch.ones(2) > 0, "yes", None, [True]]), "learn_offset"),
    (one_of([None, 1, (), (1,), (0, 1, 2), (0, -1), (0.5, 1), "01", (None, 0)]), "seeds"),
    (
        one_of([-torch.ones(3), torch.ones(2, 3), "ones", None, [1.0], torch.tensor([bad.NAN, 1.0, 1.0])]),
        "strength",
    ),
    (
        one_of(
            [None, 3, "x", [1], {2: 0.5}, {-1: 0.5}, {"x": 0.5}, {True: 0.5}, {0.0: 1.0}, {0: 0.5, 1: 0.5}]
            + [{1: value} for value in (bad.NAN, "half", None, torch.ones(2))]
        ),
        "fixed_features",
    ),
    (bad.spoiled(torch.zeros(2, N).double(), torch.zeros(3, N), "profile"), "profile"),
    (bad.spoiled(ones(3), torch.zeros(3), torch.ones(2), 0.1), "level_variance timescale"),
    (
        bad.spoiled(torch.stack([COVARIANCE] * 2), COVARIANCE, torch.stack([COVARIANCE, -COVARIANCE])),
        "covariances",
    ),
    (bad.spoiled(torch.rand(N).double(), torch.rand(3)), "gaps"),
    (bad.spoiled(torch.full((N,), 1 / N), torch.full((3,), 1 / 3)), "probabilities"),
    (bad.spoiled(torch.rand(2, N).double(), torch.rand(2, 3)), "functions"),
    (
        bad.spoiled(torch.rand(3, 1).double(), torch.full((1, 1), 99.0)).filter(lambda x: x is not None),
        "safe_points",
    ),
    (_CONTEXTS, "contexts"),
    # not looked at: torch's and GPyTorch's own, what is handed on, switches
    (None, "batch_shape active_dims options X_pending learn_hyperparameters progress"),
    (None, "notes"),  # lines that are printed
    (None, "capture"),  # tests/captured
    (None, "choices"),  # of a policy with a model: tests/policies/test_choices.py
    (
        None,
        "sampling root times history history_times among typical_gap excluded switches arm_names checkpoint log",
    ),
    (None, "height_severity width_severity watched pending base_samples unit offset"),
    # models
    (bad.thing, "kernel", "models.OnlineGP models.SketchedGP models.learnable kernels.state_space_of"),
    (None, "kernel noise_variance prior_mean", "models.OutcomeConstraint"),
    (bad.rate_or_none, "forgetting_rate", "models.OutcomeConstraint"),
    (one_of(["", "reward", 3, None]), "name", "models.OutcomeConstraint"),
    (one_of([bad.NAN, 1.0, 7.0, bad.INF, "low"]), "low", "models.OutcomeConstraint"),
    (one_of([bad.NAN, -bad.INF, "high", None]), "high", "models.OutcomeConstraint"),
    (
        one_of(
            [
                torch.tensor([0, 2, 0]),
                torch.tensor([-1, 0, 0]),
                torch.zeros(3),
                torch.zeros(2, 3).long(),
                "k",
                None,
            ]
        ),
        "kernel",
        _MEMBERS,
    ),
    (bad.spoiled(ones(3), torch.zeros(3), torch.ones(2), 0.1), "noise_variance", _MEMBERS),
    (bad.spoiled(zeros(3), torch.ones(3), torch.zeros(2), 0.1), "forgetting_rate", _MEMBERS),
    (bad.spoiled(ones(3), torch.zeros(3), torch.zeros(2), 0.1), "timescale", "models.SmoothMembers"),
    (bad.spoiled(DOMAIN.bounds, DOMAIN.bounds[:1], DOMAIN.bounds.flip(0)), "bounds", "models.PointMembers"),
    (_OF_MEMBERS, "lengthscale noise_variance", "models.PointMembers"),
    (
        bad.spoiled(zeros(3), torch.ones(3), -torch.ones(3), torch.ones(2, 3)),
        "forgetting_rate",
        "models.PointMembers",
    ),
    (
        one_of([-torch.ones(3), torch.ones(2), "ones", None, torch.tensor([bad.NAN] * 3)]),
        "timescale",
        "models.PointMembers",
    ),
    (bad.integers(2), "capacity", "models.PointMembers"),
    (None, "weights scale", "models.MemberMixture"),
    (one_of([None, 1, "all", [2], [-1], [0.5], [True], [None], torch.ones(2)]), "members", "models.fit_*"),
    (None, "data", "models.fit_hyperparameters"),
    (bad.features, "arms", "models.SketchedGP"),
    (bad.non_negative, "rise", "models.LeverageSampling"),
    (_TIME, "time", "models.AtTime"),
    # kernels
    (bad.share, "forgetting_rate", "kernels.ExponentialForgettingKernel"),
    (one_of([*_NO_KERNELS, [kernel(), None], kernel()]), "kernels", "kernels.StackedKernel"),
    (one_of([*_NO_KERNELS, [kernel()], kernels.MaternTimeKernel()]), "kernels", "kernels.*OfTimeKernels"),
    (bad.count, "context_dim", "kernels.arm_context_kernel"),
    (bad.count, "depth", "kernels.NeuralTangentKernel"),
    (bad.positive, "memory", "kernels.QuasiPeriodicKernel"),
    # theory
    (bad.words("theory", "printed"), "form", "theory.*Width"),
    (bad.words("two-sided", "printed", "one-sided"), "form", "theory.elimination_xi"),
    (bad.positive_or_none, "noise_scale", "theory.DualMixtureWidth"),
    (bad.count_or_none, "horizon", "theory.DualMixtureWidth"),
    (None, "horizon", "theory.RestartWidth"),
    (bad.count, "horizon", "theory.SlidingWindowWidth"),
    (bad.count, "initial", "theory.GPBUCBWidth"),
    (bad.count, "limits", "theory.PosteriorSafetyWidth"),
    (None, "time", "theory.uncertainty_sampling"),
    (
        bad.spoiled(torch.rand(N).double(), torch.rand(3)).filter(lambda x: x is not None),
        "gaps",
        "theory.explor*",
    ),
    (None, "method", "theory.exploration_problem"),
    (bad.non_negative, "gain", "theory.optimal_exploration"),
    # acquisitions
    (bad.numbers(bad.math.isfinite, none=True), "time", "acquisition.PathwisePointDraw"),
    (bad.integers(1).filter(lambda x: x != 64), "features", "acquisition.PathwisePointDraw"),
    (bad.integers(1), "features", "acquisition.PathwiseThompsonSampling"),
    (one_of([None, 5, "fast", [50]]), "options", "acquisition.PointSearch"),
    (
        bad.spoiled(torch.full((2, N), 1 / N), torch.rand(3)),
        "probabilities",
        "acquisition.PlayingProbability",
    ),
    (None, "time", "acquisition.ThompsonSampling"),
    # policies
    (bad.positive, "interval", "acquisition.PredictiveSampling recipes.predictive_sampling"),
    (bad.integers(16, none=True), "capacity", "policies.StaleObservations"),
    (bad.integers(2, none=True), "capacity", "policies.WassersteinForgetting"),
    (_THING_OR_NONE, "width safety_width", _SAFE),
    (bad.count, "raw_samples", "policies.SafePointPolicy"),
    (
        one_of(["window", 3, {"heat": 3}, {"cold": policies.KeepEverything()}]),
        "forgetting",
        "policies.SafePoint*",
    ),
    (bad.numbers(lambda x: 0 < x <= 0.5), "control_share", "policies.ControlledPolicy"),
    (bad.words("binary", "counts"), "rewards", "policies.LatentRewards"),
    (bad.thing, "features constants", "policies.OPKB policies.AdaOPKB"),
    (bad.thing, "width", f"policies.BatchBKB {_OF_PRIORS}"),
    (one_of(["yes", 1, None, 0.0, []]), "draws", _OF_PRIORS),
    (bad.above_one, "growth", "policies.CalibratedOPKB"),
    (bad.positive, "first", "policies.CalibratedOPKB"),
    (bad.share_or_none, "delta", "policies.Constants"),
    (bad.positive_or_none, "c0 c2", "policies.Constants"),
    (_THING_OR_NONE, "search", "policies.CostlyMoves policies.PointAveraging"),
    (bad.thing, "domain", "policies.CostlyMoves"),
    (bad.things(none=False), "width", _OVER_POINTS),
    (one_of(["window", 3]), "forgetting", _OVER_POINTS),
    (bad.spoiled(ones(3), torch.zeros(3), -torch.ones(3), torch.ones(2, 3)), "prior", "policies.FixedShare"),
    (_AT_LEAST_0, "at_once", "policies.FixedShare"),
    (bad.natural, "at_once", "policies.ModelAveraging policies.LookingAgain"),
    (bad.rate, "memory", "policies.FixedShare"),
    (bad.share, "memory", "policies.MemberScale"),
    (bad.numbers(lambda x: 2 < x < bad.INF), "tail", "policies.MemberScale"),
    (None, "sharing scale forgetting_rate", "policies.ModelAveraging"),
    (bad.positive, "every", "policies.LookingA*"),
    (_AT_LEAST_0, "tolerance", "policies.LearnedHyperparameters"),
    (bad.non_negative, "margin", "policies.LikelihoodWindow"),
    (bad.thing, "thresholds", "policies.Master"),
    (_AT_LEAST_0, "learnt", "policies.MasterThresholds"),
    (bad.count, "width", "policies.NeuralFeatures"),
    (bad.count, "choices", "policies.RandomPolicy"),
    (
        bad.numbers(lambda x: 0 <= x <= 1),
        "epsilon",
        "recipes.epsilon_greedy policies.classical.EpsilonGreedy",
    ),
    (_SHARE_OR_NONE, "exploration", "policies.classical.GLRKLUCB policies.classical.EXP3S"),
    (
        _SHARE_OR_NONE,
        "exploration",
        "policies.DetectionAugmented recipes.glr_kl_ucb recipes.exp3_s recipes.dal",
    ),
    # problems
    (bad.non_negative, "noise_scale", f"{_SWITCHING} problems.GridDraws problems.DriftingCosine"),
    (
        bad.non_negative,
        "noise_scale",
        "problems.*TVGPDraws problems.StationaryProblem problems.DynamicFunction",
    ),
    (bad.non_negative, "noise_scale", "problems.ContextualGPDraws"),
    (
        bad.numbers(lambda x: 0 <= x < bad.INF, none=True),
        "noise_scale",
        f"{_STATIONARY} problems.VarianceStarvation problems.Rosenbrock problems.Hartmann3",
    ),
    (bad.words("se", "matern"), "kernel", f"{_STATIONARY} {_SWITCHING}"),
    (bad.integers(2), "dim", "problems.Rosenbrock"),
    (None, "function", "problems.Rosenbrock problems.Hartmann3"),
    (bad.features, "arms", "problems.StationaryProblem policies.NeuralFeatures"),
    (
        bad.words("arm", "grand").filter(lambda x: not isinstance(x, (int, float))),
        "prior_mean",
        "problems.Replay",
    ),
    (bad.share_or_none, "noise_fraction warm_up", "problems.Replay"),
    (None, "arms", "problems.Replay"),
    (
        one_of(
            [
                torch.rand(6),
                torch.zeros(0, 2),
                torch.zeros(3, 1),
                torch.full((3, 2), bad.INF),
                None,
                "t",
                [[1.0]],
            ]
        ),
        "rewards",
        "problems.RewardTable",
    ),
    (bad.spoiled(_STEPS[:8], _STEPS[:3], -_STEPS[:8]), "times", "problems.fit_forgetting_rate"),
    (bad.spoiled(_STEPS, _STEPS[:3], -_STEPS), "times", "problems.fit_forgetting"),
    (_NAMES, "name", "problems.make problems.needs_data recipes.build *.options_of *.registered"),
    (None, "data horizon", "problems.make"),
    (
        None,
        "rewards time_column ignore missing long header separator decimal encoding",
        "problems.read_table",
    ),
    # recipes, the loop
    (bad.features, "arms", "recipes.bkb recipes.bbkb recipes.opnn recipes.ada_opnn"),
    (bad.positive_or_none, "noise_scale noise_variance", "recipes.dal"),
    (one_of([None, 3, "gp_ucbb", "exp3_s", "auto", []]), "base", "recipes.dal"),
    (bad.numbers(lambda x: 0 <= x < bad.INF, none=True), "width", "recipes.auto"),
    (bad.covariances.filter(lambda x: x is not None), "kernel", "recipes.auto"),
    (bad.positive_or_none, "noise_variance", "recipes.auto"),
    (one_of([[0], 0, "all", [2.5]]), "matters", "recipes.auto"),  # without a context, and none of columns
    (_CONTEXTS, "contexts", "recipes.auto"),
    (None, "domain", "recipes.memory_length"),
    (None, "path", "bandits_torch.*_policy"),  # the system speaks of a path
]
# Whose arguments go by their annotation: a switch, and what is torch's, GPyTorch's or BoTorch's own.
NOT_OURS = {"bool", "Prior", "Interval", "PosteriorTransform", "MCSampler", "MCAcquisitionObjective"}
NOT_OURS |= {"torch.dtype", "torch.device"}
NO_DATA = "a folder of data is needed for a valid call: tests/problems has its bad files"
LEFT_OUT = {
    "bandits_torch.Value": "a record that value makes",
    "bandits_torch.value": "tests/test_off_policy.py",
    "problems.Log": "a record that checks itself: tests/test_off_policy.py",
    "problems.read_data": "tests/test_off_policy.py",
    "problems.read_log": "tests/test_off_policy.py",
    "bandits_torch.History": "a record that the loop makes",
    "models.CandidatePrior": "a record; the model over it checks it: bad ones are in BAD_PRIORS",
    "bandits_torch.ArmContext": "a record that checks itself: tests/policies/test_contextual.py",
    "policies.PairAveraging": "tests/policies/test_context_averaging.py",
    "policies.ContextAveraging": "tests/policies/test_context_averaging.py",
    "models.WideningMembers": "tests/policies/test_context_averaging.py",
    "policies.Choice": "a record that policies make",
    "acquisition.StepContext": "a record that policies make",
    "bandits_torch.Question": "a record that AskTell makes",
    "policies.Observation": "a record; the policy that learns it checks it",
    "policies.Pending": "a record that ``choose_many`` looks at; tests/policies/test_choose_many.py",
    "problems.ForgettingFit": "a record that fit_forgetting makes",
    "problems.Knowledge": "a record; the recipe that reads it checks it",
    "problems.NamedProblem": "a record that the registration makes",
    "problems.named": "a decorator: tests/problems/test_problem_contract.py",
    "recipes.Recipe": "a record that the registration makes",
    "recipes.Setup": "a record; models and policies check it: every recipe here is called through one",
    "recipes.recipe": "a decorator: tests/recipes",
    "theory.Design": "a record that the solvers make",
    "problems.gaussian_noise": "a formula; what it takes has been checked by the problem that calls it",
    "problems.StandardFunction": "its argument is a BoTorch test function; its options are those of Rosenbrock",
    "problems.RegressionTable": NO_DATA,
    **dict.fromkeys(
        (f"problems.{name}" for name in ("BeijingPM25", "IntelHumidity", "IntelLight", "IntelTemperature")),
        NO_DATA,
    ),
    **dict.fromkeys((f"problems.{name}" for name in ("MoleneTemperature", "MoleneWind")), NO_DATA),
}
BAD_PRIORS = [
    lambda: models.CandidatePrior("rbf"),
    lambda: models.CandidatePrior(COVARIANCE[:3]),
    lambda: models.CandidatePrior(COVARIANCE, mean=bad.NAN),
    lambda: models.CandidatePrior(COVARIANCE, mean=torch.zeros(3)),
    lambda: models.CandidatePrior(COVARIANCE, mean="zero"),
    *(
        lambda rate=rate: models.CandidatePrior(COVARIANCE, forgetting_rate=rate)
        for rate in (1.0, -0.1, bad.NAN, "slow")
    ),
    *(
        lambda noise=noise: models.CandidatePrior(COVARIANCE, noise_variance=noise)
        for noise in (0.0, -1.0, bad.NAN)
    ),
]
# What a message may call an argument beside its own name.
ALSO_CALLED = {
    "kernel": ["covariance", "space_kernel"],
    "width_form": ["form"],
    "arms": ["num_arms"],
    "choices": ["num_arms"],
    "table": ["rewards"],
    "width": ["value"],
}


# -- what signatures tell ------------------------------------------------------------------------------


@cache
def names() -> tuple[str, ...]:
    """What is fuzzed: every export that takes something, by the name of its home."""
    public = exports()
    home = {id(thing): name for name, thing in public.items() if not name.startswith("bandits_torch.")}
    at_home = {name for name, thing in public.items() if home.get(id(thing), name) == name}
    return tuple(name for name in public if name in at_home - set(LEFT_OUT) and parameters(name))


@cache
def parameters(name: str) -> dict[str, inspect.Parameter]:
    """The arguments of a public name, those of the class above too where it passes on its own."""
    thing = exports()[name]
    found: dict[str, inspect.Parameter] = {}
    for one in thing.__mro__ if isinstance(thing, type) else [thing]:
        if not one.__module__.startswith("bandits_torch"):
            break
        own = dict(inspect.signature(one).parameters)
        found |= {key: p for key, p in own.items() if key not in found}
        if name.startswith("kernels.") or not any(p.kind is p.VAR_KEYWORD for p in own.values()):
            break
    return {key: p for key, p in found.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


@cache
def rows(table: str, argument: str) -> list[Any]:
    """The rows of ``GOOD`` or ``BAD`` that are of a parameter, the last first."""
    return [row for row in reversed(globals()[table]) if argument in row[1].split()]


def row(table: str, name: str, argument: str) -> Any:
    """The row that holds for a parameter of an export; None where there is none."""
    of = (
        row
        for row in rows(table, argument)
        if len(row) == 2 or any(fnmatchcase(name, pattern) for pattern in row[2].split())
    )
    return next(of, None)


def valid(name: str) -> dict[str, Any]:
    """The arguments of a call that works."""
    given = {}
    for key, parameter in parameters(name).items():
        good = row("GOOD", name, key)
        if good is not None and (len(good) == 3 or parameter.default is parameter.empty):
            value = good[0]
            given[key] = value() if inspect.isfunction(value) or inspect.isclass(value) else value
    return {key: value for key, value in given.items() if value is not None}


@cache
def kind_of(name: str, argument: str) -> Any:
    """Strategy of bad values; None for an argument that takes anything, or whose values another test has."""
    room, _, recipe = name.partition(".")
    found, parameter = row("BAD", name, argument), parameters(name)[argument]
    if found is None or found[0] is None or len(found) == 3:
        return found and found[0]
    of_a_recipe = argument in ("kernel", "noise_variance") and room == "recipes" and recipe in recipes.RECIPES
    if of_a_recipe and argument not in recipes.registered(recipe).uses:
        return None
    takes_none = parameter.default is None or "None" in str(parameter.annotation)
    return without_none(found[0]) if takes_none else found[0]


@cache
def without_none(kind: Any) -> Any:
    return kind.filter(lambda value: value is not None)


def ends(name: str, argument: str) -> list[Any]:
    """Numbers at the ends of what it takes, and odd ones, for an argument that must be one number."""
    kind = row("BAD", name, argument)[0]
    return next(([*at, *bad.ODD_NUMBERS] for numeric, at in bad.NUMERIC if numeric is kind), [])


def cases() -> list[tuple[str, str]]:
    """(name, argument) of everything that is fuzzed."""
    return [
        (name, argument)
        for name in names()
        for argument in parameters(name)
        if kind_of(name, argument) is not None
    ]


def unknown() -> list[str]:
    """Arguments of which nothing says what they must refuse."""
    return [
        f"{name}({argument})"
        for name in names()
        for argument, parameter in parameters(name).items()
        if row("BAD", name, argument) is None and str(parameter.annotation).split(" | ")[0] not in NOT_OURS
    ]

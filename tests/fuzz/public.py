"""Every public constructor and function: a valid call, and what each of its arguments must refuse.

Both go by the argument's annotation: a float must be finite and above 0, an int at least 1, a Kernel a kernel, and so
on. A row is needed only for what an annotation does not say: a shape, another range. A new export whose arguments take
what their annotations' tables refuse, or lack a value for the valid call, fails in ``test_bad_arguments``.
"""

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

from bandits_torch import Domain, acquisition, kernels, models, policies, problems, recipes, theory
from bandits_torch.policy_files import save_policy
from bandits_torch.problems.forgetting_fit import draw_tables
from tests.fuzz import bad_values as bad
from tests.fuzz.bad_values import COVARIANCE, FEATURES, INF, NAN, N

ROOMS = [
    "",
    "acquisition",
    "kernels",
    "models",
    "policies",
    "policies.classical",
    "problems",
    "recipes",
    "theory",
]
T = 20
DOMAIN = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())


@cache
def exports() -> dict[str, Any]:
    """Public names with what they stand for, abstract classes and modules left out."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module(f"bandits_torch.{room}".rstrip("."))
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not inspect.isabstract(thing):
                found[f"{room or 'bandits_torch'}.{name}"] = thing
    return found


# -- good values ---------------------------------------------------------------------------------------


def kernel():
    return RBFKernel().double()


def arm_gp():
    return models.ArmGP(N, COVARIANCE, 0.1, batch_shape=(2,))


def sketched():
    return models.SketchedGP(FEATURES, kernel(), 0.1, sampling=models.LeverageSampling(2.0), batch_shape=(2,))


def priors():
    return [models.CandidatePrior(COVARIANCE), models.CandidatePrior(COVARIANCE + 0.5)]


def over_priors():
    return models.arm_gp_over_priors(FEATURES, priors(), 0.1, replicates=2)


def ucb():
    return acquisition.UpperConfidenceBound(over_priors(), 2.0)


def point_members():
    three = torch.tensor([0.1, 0.2, 0.3]).double()
    return models.PointMembers(DOMAIN.bounds, three, three, three, 10 * three, replicates=2, capacity=8)


def over_points():
    space = kernels.SpatioTemporalKernel(kernel(), kernels.ExponentialForgettingKernel(0.1).double())
    return models.OnlineGP(space, 0.1, input_dim=3, batch_shape=(2,))


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


def numbers(*values):
    return torch.tensor(values).double()


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


def log():
    n = torch.arange(80)
    return problems.Log(n.double(), n % N, (n % 3).double(), propensity=ones(80) / N)


def design_features():
    return theory.features_of_covariance(COVARIANCE)


# -- the tables ----------------------------------------------------------------------------------------
# A row: what, and for which arguments. An argument's name alone is of all exports that have it, a name with dots of the
# exports that it matches, and goes first. Of several rows the last one holds.
Rows = list[tuple[Any, str]]
_SWITCHING = "problems.*Switch*.horizon problems.TVGPDraws.horizon problems.MovingPeaks.horizon"
_WIDTHS = "policies.IndexPolicy.width policies.ContextualPolicy.width policies.RewardImprovementPolicy.width"
_STEPS = torch.arange(80).double()

# A value of an annotation, or a function that makes one.
OF_TYPE: dict[str, Any] = {
    "int": 3,
    "float": 0.5,
    "Tensor": FEATURES,
    "arms": FEATURES,
    "covariance": kernel,
    "Kernel": kernel,
    "ArmGP": arm_gp,
    "ArmModel": arm_gp,
    "Model": arm_gp,
    "OnlineGP": over_points,
    "OnlineModel": over_points,
    "SketchedGP": sketched,
    "MembersOverArms": members,
    "MemberPosterior": point_members,
    "PointMembers": point_members,
    "AcquisitionFunction": ucb,
    "Callable[..., AcquisitionFunction]": lambda: acquisition.UpperConfidenceBound,
    "Policy": ucb_policy,
    "IndexPolicy": learnable_policy,
    "Callable[[int], Policy]": lambda: lambda n: ucb_policy(),
    "Callable[[], IndexPolicy]": lambda: ucb_policy,
    "Callable[[int], float]": lambda: lambda n: 1.0,
    "FeatureSource": lambda: policies.FixedFeatures(design_features(), 2),
    "Constants": policies.Constants,
    "MasterThresholds": lambda: policies.MasterThresholds(1.0),
    "GainProvider": theory.RealisedGain,
    "Width": lambda: theory.ConstantWidth(1.0),
    "DualMixtureWidth": lambda: theory.DualMixtureWidth(1.0, None, 0.1),
    "CandidatePrior": lambda: priors()[0],
    "Sequence[CandidatePrior]": priors,
    "Domain": DOMAIN,
    "Problem": lambda: problems.make("gp", num_arms=5),
    "SyntheticTestFunction": Branin,
}

# A value, or a function that makes one. A name alone is for where there is no default; None leaves the argument out.
GOOD: Rows = [
    (1, "dim context_dim control"),
    (2, "num_priors"),
    (N, "num_arms"),
    (T, "horizon"),
    (COVARIANCE, "covariance"),
    (torch.stack([COVARIANCE, COVARIANCE + 0.5]), "covariances"),
    (DOMAIN.bounds, "bounds"),
    (design_features, "theory.*.features policies.FixedFeatures.features"),
    (ones(N) / N, "probabilities gaps estimates"),
    (torch.rand(30, N).double(), "table"),
    (torch.rand(6, N).double(), "rewards"),
    (torch.rand(2, N).double(), "functions"),
    (ones(3), "lengthscale timescale level_variance strength"),
    (zeros(2), "log_weights log_likelihood offset"),
    (ones(2), "unit"),
    (torch.tensor([True, False, True]), "learn_offset"),
    (lambda: kernels.ExponentialForgettingKernel(0.1), "time_kernel"),
    (lambda: [kernels.MaternTimeKernel(2.0), kernels.PeriodicTimeKernel(3.0)], "kernels"),
    (lambda: [members(), members()], "parts"),
    ([24.0], "periods"),
    ([1], "harmonics"),
    ("matern", "kind"),
    ("gp", "name"),
    # quick, and two replicates
    (2, "*.replicates *.depth *.training_steps"),
    (8, "*.hidden policies.NeuralFeatures.width models.PointMembers.capacity"),
    (20, "*.most"),
    (4, "policies.Learn*.memory policies.LikelihoodWindow.memory problems.GridDraws.side"),
    (9, "problems.*.num_arms"),
    (T, f"theory.SlidingWindowWidth.horizon {_SWITCHING}"),
    # models, acquisitions and kernels
    (N, "models.ArmGP.arms policies.RandomPolicy.choices"),
    (COVARIANCE, "models.ArmGP.kernel recipes.dal.kernel"),
    (torch.tensor([0, 1, 1]), "models.*Members.kernel"),
    (0.1 * ones(3), "models.*Members.noise_variance policies.FixedShare.prior"),
    (zeros(3), "models.*Members.forgetting_rate"),
    (ones(2, 3) / 3, "models.MemberMixture.weights models.MemberMixture.scale"),
    (learnable_gp, "models.fit_hyperparameters.model"),
    ([0, 1], "models.fit_hyperparameters.members"),
    (ones(1), "models.learnable.ranges"),
    ("heat", "models.OutcomeConstraint.name"),
    (1.0, "models.OutcomeConstraint.high acquisition.PathwisePointDraw.time"),
    (over_points, "models.AtTime.model"),
    (ones(2) > 0, "acquisition.OptimisticOverPriors.surviving"),
    ((0, 1), "acquisition.PathwisePointDraw.seeds"),
    (64, "acquisition.Pathwise*.features"),
    (ones(2, N) / N, "acquisition.PlayingProbability.probabilities"),
    (lambda: kernels.MaternTimeKernel(2.0), "kernels.state_space_of.kernel"),
    # theory
    (2, "theory.RestartWidth.num_intervals"),
    (2.5, "theory.GrowthBound.nu"),
    # policies
    (over_priors, "policies.*Prior*.model policies.RegretBalancing.model policies.ModelAveraging.model"),
    (DOMAIN, "policies.IndexPolicy.choices policies.Reward*.choices policies.CostlyMoves.domain"),
    (lambda: theory.ConstantWidth(1.0), _WIDTHS),
    (FEATURES, "policies.ContextualPolicy.choices"),
    (1, "policies.ContextualPolicy.context_dim"),
    ((3, 5), "policies.LikelihoodWindow.candidates"),
    (lambda: {"heat": (-1.0, 1.0)}, "policies.*.limits"),
    (lambda: {"heat": arm_gp()}, "policies.SafePolicy.outcomes"),
    (lambda: {"heat": over_points()}, "policies.SafePointPolicy.outcomes"),
    (lambda: recipes.gp_ucb(DOMAIN, kernel(), 0.1, replicates=2), "policies.CostlyMoves.policy"),
    ("binary", "policies.LatentRewards.rewards"),
    # problems
    (None, "problems.Rosenbrock.function problems.Hartmann3.function"),
    (0.1, "problems.Replay.forgetting_rate problems.Replay.noise_fraction problems.*.outcome_noise_scale"),
    (torch.rand(8, N).double(), "problems.fit_forgetting_rate.table"),
    (torch.arange(8).double(), "problems.fit_forgetting_rate.times"),
    (lambda: draw_tables(COVARIANCE, 0.3, 0.2, _STEPS, 1)[:, 0], "problems.fit_forgetting.table"),
    (_STEPS, "problems.fit_forgetting.times"),
    (COVARIANCE + 0.3 * torch.eye(N).double(), "problems.fit_forgetting.covariance"),
    # logs
    (torch.arange(3).double(), "problems.Log.times"),
    (torch.tensor([0, 1, 1]), "problems.Log.arms"),
    (ones(3), "problems.Log.rewards"),
    (log, "bandits_torch.value.log"),
    # recipes, the loop
    (-1.0, "recipes.safe_gp_ucb.least_reward recipes.safe_opt.least_reward"),
    (0.1, "recipes.dal.noise_variance"),
    ("gp_ucb", "recipes.*.name"),
    (1, "recipes.build.replicates"),
    (lambda: policies.RandomPolicy(5), "bandits_torch.*.policy"),
    (3, "bandits_torch.run.horizon"),
    ([(torch.tensor([0, 1]), ones(2), 0.1)], "bandits_torch.Domain.inequality_constraints"),
    ({1: 0.5}, "bandits_torch.Domain.fixed_features"),
    (FILES / "saved", "bandits_torch.save_policy.path"),
    (saved, "bandits_torch.load_policy.path"),
    (True, "bandits_torch.save_policy.overwrite"),
]

# Annotations that go by the table of another.
ALIKE = {
    "Number": "float",
    "Parameter": "float",
    "Any": "float",
    "Tensor | float": "float",
    "Tensor | int": "arms",
    "Choices": "arms",
    "Kernel | Tensor": "covariance",
}

_CONTEXTS = bad.spoiled(torch.rand(3, 1).double(), torch.ones(3, 1), torch.rand(3), torch.rand(0, 1), 0)
_NO_TIME_KERNELS = ["quasi:24", "quasi-periodic", "quasi-periodic:", "periodic:0", "exponential:2", "", "+"]
_NO_KERNELS = [[], (), None, "rbf", 3, ["rbf"]]
_OUTSIDE = (0.0, -3, 1, 7.5, 1001)  # no step within 20
_OF_POINTS = bad.spoiled(ones(3), -ones(3), ones(2, 3, 4))


# By the annotation: what an argument must refuse, or None where it is not looked at, or by another test. The value None
# is left out where the argument may be None.
BAD: dict[str, Rows] = {
    "bool": [
        (None, "*"),
        (["yes", 1, None, 0.0, []], "bound_is_guess warm_start policies.*.draws"),
        ([0, -3, 2.5, "always"], "bandits_torch.run.capture"),
    ],
    "int": [
        (bad.count, "*"),
        (bad.natural, "order seed first_replicate first_replay initial training_steps keep refined"),
        (bad.natural, "context_dim control true_prior at_once"),
        (bad.integers(2), "replays depth raw_samples capacity warm_up problems.Rosenbrock.dim"),
        (bad.integers(16), "policies.StaleObservations.capacity"),
        (bad.count, "theory.GPBUCBWidth.initial kernels.arm_context_kernel.context_dim"),
        (bad.count, "kernels.NeuralTangentKernel.depth policies.SafePointPolicy.raw_samples"),
        ([-1, 1.5, "a", NAN, torch.ones(3), 99, []], "start_at"),
        ([*bad.count, 7], "acquisition.Pathwise*.features"),  # an even number
        ([*bad.count, 20], "grid_until"),  # over arms none
        ([*bad.natural, N], "models.LevelMembers.control"),
        ([value for value in bad.count if value != {}], "window"),  # {}: LikelihoodWindow without arguments
        (None, "theory.RestartWidth.horizon problems.make.horizon"),
    ],
    "float": [
        (bad.positive, "*"),
        (bad.non_negative, "rkhs_bound drift value design rkhs_variation_budget variation_budget climb"),
        (bad.non_negative, "width safety_width variance look_again move_price plausible wide ends"),
        (bad.non_negative, "height_severity width_severity problems.*.noise_scale theory.*.gain"),
        (bad.non_negative, "models.LeverageSampling.rise policies.LikelihoodWindow.margin"),
        (bad.positive, "problems.Hills.noise_scale"),
        ([x for x in bad.non_negative if x is not None], "problems.VarianceStarvation.noise_scale"),
        (bad.finite, "margin prior_mean start short tall limit least_reward time"),
        (bad.probability, "delta epsilon warm_up shrink policies.MemberScale.memory"),
        (bad.probability, "problems.Replay.noise_fraction kernels.*.forgetting_rate"),
        (bad.share, "shrinkage design_share excluded *epsilon_greedy.epsilon *EpsilonGreedy.epsilon"),
        (bad.share, "*EXP3S.exploration *GLRKLUCB.exploration policies.DetectionAugmented.exploration"),
        (bad.share, "recipes.glr_kl_ucb.exploration recipes.exp3_s.exploration recipes.dal.exploration"),
        (bad.positive_share, "discount step_size"),
        (bad.rate, "forgetting_rate shift cycle_rate share policies.FixedShare.memory"),
        (bad.numbers(lambda x: 0 < x <= 0.5), "control_share"),
        (bad.numbers(lambda x: x == 0.1), "recipes.auto.control_share"),  # there is no control
        (bad.at_least_one, "growth stretch"),
        (bad.rate, "bandits_torch.value.warm_up"),
        (bad.above_one, "policies.CalibratedOPKB.growth"),
        (bad.positive_or_infinite, "anisotropy behind max_move at_once"),
        (bad.positive_or_infinite, "policies.Learned*.tolerance policies.MasterThresholds.learnt"),
        (bad.numbers(lambda x: 2 < x < INF), "policies.MemberScale.tail"),
        ([NAN, 1.0, 7.0, INF, "low"], "models.OutcomeConstraint.low"),
        ([NAN, -INF, "high", None], "models.OutcomeConstraint.high"),
        (bad.spoiled(torch.zeros(2, N).double(), torch.zeros(3, N), "profile"), "profile"),
        (None, "models.OutcomeConstraint.prior_mean models.OutcomeConstraint.noise_variance"),
        (None, "acquisition.ThompsonSampling.time"),
        ([*bad.non_negative, numbers(1, -1), numbers(1, NAN), ones(3)], "acquisition.*Upper*.width"),
        ([*bad.rate, zeros(2), numbers(0, 1, 0)], "models.CyclicMembers.share *.cycle_rate"),
    ],
    "str": [
        (bad.words, "*"),
        ([*bad.words, "sphere"], "problems.MovingPeaks.layout"),
        ([0, 1.5, None, [], {}, object, ones(N)], "bandits_torch.value.policy"),
        (["", "reward", 3, None], "models.OutcomeConstraint.name"),
        ([word for word in bad.words if word not in (0, 1.5)], "problems.Replay.prior_mean"),
        ([None, 3, "gp_ucbb", "exp3_s", "auto", []], "recipes.dal.base"),
        ([0.0, -1.0, NAN, INF, "day", [], [24.0, 24.0], [-1.0], {}, [None]], "cycles"),
        (None, "data checkpoint theory.exploration_problem.method problems.read_table.*"),
        (None, "bandits_torch.*.path"),  # the system speaks of a path
        (["", "no/such/file.csv", "no/such/file.npz", 3, None, [], "."], "problems.read_table.path"),
    ],
    "arms": [
        (bad.arms, "*"),
        (bad.features, "models.SketchedGP.arms *bkb.arms recipes.*opnn.arms"),
        (_CONTEXTS, "contexts"),
    ],
    "covariance": [
        (bad.covariances, "*"),
        (bad.things, "models.SketchedGP.kernel"),
        (None, "models.Out*.kernel"),
    ],
    "Tensor": [
        (lambda good: bad.spoiled(good, good[..., :-1]), "*"),
        (bad.features, "arms features"),
        (bad.covariances, "covariance"),
        (bad.bounds, "bounds"),
        (bad.tables, "table"),
        (bad.things, "estimates"),
        (bad.count, "policies.RandomPolicy.choices"),
        (_CONTEXTS, "contexts"),
        (bad.spoiled(torch.rand(3, 1).double(), torch.full((1, 1), 99.0)), "safe_points"),
        (bad.spoiled(ones(3), zeros(3), ones(2), 0.1), "level_variance timescale noise_variance"),
        (bad.spoiled(zeros(3), ones(3), zeros(2), 0.1), "forgetting_rate"),
        (_OF_POINTS, "models.PointMembers.lengthscale models.PointMembers.noise_variance policies.*.prior"),
        ([*_OF_POINTS, ones(3)], "models.PointMembers.forgetting_rate"),
        ([-ones(3), NAN * ones(3), ones(2, 3), "ones", None], "models.PointMembers.timescale strength"),
        (lambda good: bad.spoiled(good, good[:3], -good), "problems.fit_*.times"),
        (bad.spoiled(DOMAIN.bounds, DOMAIN.bounds[:1], DOMAIN.bounds.flip(0)), "models.PointMembers.bounds"),
        ([torch.rand(6), ones(0, 2), ones(3, 1), INF * ones(3, 2), None, "t", [[1.0]]], "rewards"),
        ([COVARIANCE, torch.stack([COVARIANCE, -COVARIANCE]), *bad.spoiled(COVARIANCE)], "covariances"),
        ([torch.tensor([0, 2, 0]), torch.tensor([-1, 0, 0]), zeros(3), zeros(2, 3).long(), "k"], "kernel"),
        ([ones(N), ones(2, 3) > 0, zeros(N) > 0, "arms", [True], 3], "safe_arms"),
        (["all", ones(3) > 0, zeros(2) > 0, ones(2), [True, True]], "surviving"),
        ([ones(3), ones(2) > 0, "yes", None, [True]], "learn_offset"),
        (["w", zeros(3), [0.0, 0.0], NAN * ones(2)], "log_weights log_likelihood"),
        ([zeros(N) > 0, ones(6) > 0, [True] * N], "among"),
        ([[0.0] * N, zeros(N + 1), zeros(3, N)], "base_samples"),
        ([[[1.0]], torch.eye(4).double(), zeros(3, 3)], "root"),
        ([zeros(N, 1)], "acquisition.ThompsonSampling.choices"),
        (bad.spoiled(ones(2), torch.tensor(1.0)), "*.ArmContext.context"),
        (bad.spoiled(ones(3, 2), zeros(3)), "*.ArmContext.features"),
        ([[True], "all", 1], "*.ArmContext.available"),
        (lambda good: bad.spoiled(good, good[:2], -good), "problems.Log.times"),
        (
            [numbers(0, 1, 1), torch.tensor([-1, 0, 1]), ones(3) > 0, zeros(0).long(), [0, 1]],
            "problems.Log.arms",
        ),
        (bad.spoiled(ones(3), ones(2), 1e200 * ones(3)), "problems.Log.rewards"),
        (bad.spoiled(ones(3), ones(2), zeros(3), 2 * ones(3)), "problems.Log.propensity"),
        ([zeros(3, 2) > 0, ones(3, 2), ones(2, 2) > 0, [True]], "problems.Log.available"),
        (bad.spoiled(ones(3, 1), ones(3)), "problems.Log.contexts"),
        (None, "X_pending choices times history history_times watched pending"),
        (None, "unit offset models.MemberMixture.weights models.MemberMixture.scale problems.Replay.arms"),
    ],
}
OTHER: Rows = [
    (bad.things, "*"),
    (None, "dtype device *_prior *_constraint posterior_transform objective sampler"),  # not ours
    ([thing for thing in bad.things if thing != {}], "search"),  # no arguments: the defaults
    ([*bad.things, (3, 3), (True,), (2.5,), (4, None), (0,), (NAN,), "8"], "candidates"),
    (bad.constraints, "inequality_constraints"),
    ([*bad.things, *_NO_TIME_KERNELS], "recipes.*.time_kernel"),
    ([*_NO_KERNELS, [kernel(), None], kernel()], "kernels.StackedKernel.kernels"),
    ([*_NO_KERNELS, [kernel()], kernels.MaternTimeKernel()], "kernels.*OfTimeKernels.kernels"),
    ([3, "all", (), (1.0,), (1, 0), (2, 2), (0, NAN), (0, INF), ("a", 1)], "reward_range"),
    ([{}, {"flow": (0.0, 1.0)}, {"reward": (1.0, 0.0)}, {"reward": 3.0}, 3, None], "limits"),
    ([[], [0.0], [NAN], [-1.0, 2.0], ["day"], 24.0, None], "periods"),
    ([[], [0], [1.5], [1, 2], 1, None], "harmonics"),
    ([0.3, None, "0.3", ["0.3"], (None,), (5, 5), (9, 3), (0.5, 0.2), *([x] for x in _OUTSIDE)], "switches"),
    ([["a", "a"], ["a"], [1, 2, 3, 4, 5], ["", *"bcde"], "abcde", 3, {}], "names context_names"),
    ([("a", "a"), ("a",), ("x", "y", "y")], "problems.Log.arm_names"),
    ([("x", "y")], "problems.Log.context_names"),  # without contexts
    ([3, "heat", ["heat"], [None], {"heat": (0.0, 1.0)}], "constraints"),
    ([[], [None], "parts", 3, None], "parts"),
    ([None, 1, (), (1,), (0, 1, 2), (0, -1), (0.5, 1), "01", (None, 0)], "seeds"),
    ([[0], 0, "all", [2.5]], "matters"),  # without a context, and none of columns
    ([None, 5, "fast", [50]], "acquisition.PointSearch.options"),
    (["window", 3, {"heat": 3}, {"cold": policies.KeepEverything()}], "policies.SafePointPolicy.forgetting"),
    ([None, 1, "all", [2], [-1], [0.5], [True], [None], ones(2)], "models.fit_hyperparameters.members"),
    (
        [None, 3, "x", [1], {2: 0.5}, {-1: 0.5}, {"x": 0.5}, {True: 0.5}, {0.0: 1.0}, {0: 0.5, 1: 0.5}]
        + [{1: value} for value in (NAN, "half", None, ones(2))],
        "fixed_features",
    ),
    (None, "batch_shape active_dims arm_names notes problems.read_table.*"),
    (None, "models.fit_hyperparameters.data recipes.auto.log"),
    (None, "policies.ModelAveraging.scale policies.ModelAveraging.sharing"),
    (None, "recipes.memory_length.domain problems.Rosenbrock.function problems.Hartmann3.function"),
    (None, "policies.*.choices"),  # of a policy with a model: tests/policies/test_choose_many.py
]
# May be None by its annotation, and not in the valid call, where it has no default.
NEEDED = f"{_WIDTHS} policies.CostlyMoves.domain"

# What is fuzzed elsewhere, or has nothing to check, by the reason.
_RECORD = "a record that the package makes, or that its reader checks"
_NO_DATA = "a folder of data is needed for a valid call: tests/problems has its bad files"
LEFT_OUT: dict[str, str] = {
    _RECORD: """bandits_torch.Value bandits_torch.History bandits_torch.Question models.CandidatePrior
        policies.Choice policies.Observation policies.Pending acquisition.StepContext problems.ForgettingFit
        problems.Knowledge problems.NamedProblem recipes.Recipe recipes.Setup theory.Design""",
    _NO_DATA: """problems.RegressionTable problems.BeijingPM25 problems.IntelHumidity problems.IntelLight
        problems.IntelTemperature problems.MoleneTemperature problems.MoleneWind""",
    "tests/test_off_policy.py": "problems.read_data problems.read_log",
    "tests/policies/test_context_averaging.py": """policies.PairAveraging policies.ContextAveraging
        models.WideningMembers""",
    "a decorator: tests/problems/test_problem_contract.py, tests/recipes": "problems.named recipes.recipe",
    "a formula; what it takes has been checked by the problem that calls it": "problems.gaussian_noise",
    "its argument is a BoTorch test function; its options are those of Rosenbrock": "problems.StandardFunction",
}
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
    return tuple(name for name in public if name in at_home - left_out() and parameters(name))


def left_out() -> set[str]:
    return set(" ".join(LEFT_OUT.values()).split())


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


def fits(pattern: str, name: str, argument: str) -> bool:
    """Whether a row's pattern is of this argument."""
    return fnmatchcase(f"{name}.{argument}", pattern if "." in pattern else f"*.{pattern}")


def row(table: Rows, name: str, argument: str) -> Any:
    """What a table has for an argument, and the pattern; None where there is nothing."""
    found = [(value, one) for value, them in table for one in them.split() if fits(one, name, argument)]
    dotted = [(value, one) for value, one in found if "." in one]
    return (dotted or found or [None])[-1]


def kind(name: str, argument: str) -> str:
    """The annotation of an argument, as the tables have it: without None, and of several the first."""
    annotation = str(parameters(name)[argument].annotation).replace(" | None", "")
    first = annotation.split(" | ")[0]
    return ALIKE.get(annotation, ALIKE.get(first, first))


def table_of(name: str, argument: str) -> Rows:
    """The table of what an argument must refuse."""
    return BAD.get(kind(name, argument), OTHER)


def valid(name: str) -> dict[str, Any]:
    """The arguments of a call that works."""
    given = {}
    for key, parameter in parameters(name).items():
        value, pattern = row(GOOD, name, key) or (OF_TYPE.get(kind(name, key)), "")
        if "." in pattern or parameter.default is parameter.empty:
            given[key] = value() if inspect.isfunction(value) or inspect.isclass(value) else value
    return {key: value for key, value in given.items() if value is not None}


@cache
def bad_values(name: str, argument: str) -> list[Any] | None:
    """What an argument must refuse; None for one that is not looked at, or by another test."""
    room, _, recipe = name.partition(".")
    of_a_recipe = argument in ("kernel", "noise_variance") and room == "recipes" and recipe in recipes.RECIPES
    values, pattern = row(table_of(name, argument), name, argument)
    if values is None or (
        of_a_recipe and "." not in pattern and argument not in recipes.registered(recipe).uses
    ):
        return None
    if callable(values):
        values = values(valid(name)[argument])
    parameter = parameters(name)[argument]
    needed = any(fits(one, name, argument) for one in NEEDED.split())
    optional = parameter.default is None or "None" in str(parameter.annotation)
    return [value for value in values if value is not None or needed or not optional]


def cases() -> list[tuple[str, str]]:
    """(name, argument) of everything that is fuzzed."""
    return [(name, key) for name in names() for key in parameters(name) if bad_values(name, key) is not None]

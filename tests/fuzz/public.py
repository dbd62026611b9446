"""Every public constructor and function: a valid call, and what each of its arguments must refuse.

Both are read from the signatures. A parameter's kind goes by its name (``KINDS``), and takes None where its default is
None; one without a default gets the value its name has in ``VALUES``, one in ``SMALL`` is set wherever it occurs. What
that does not tell of a name stands in ``SPECS``. A new export needs a line here only for what is new about it:
``test_nothing_public_is_left_out`` names a parameter of no kind.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
from dataclasses import dataclass, field
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


def learnable_policy():
    return policies.IndexPolicy(
        learnable_gp(), acquisition.UpperConfidenceBound, width=theory.ConstantWidth(1.0)
    )


def index_policy():
    return policies.IndexPolicy(arm_gp(), acquisition.UpperConfidenceBound, width=theory.ConstantWidth(1.0))


FILES = Path(tempfile.mkdtemp())


def saved():
    path = FILES / "policy"
    save_policy(path, policies.RandomPolicy(5), overwrite=True)
    return path


def _members():
    rest = torch.tensor([0, 0]), torch.ones(2).double(), torch.zeros(2).double()
    return models.ArmMembers(len(COVARIANCE), COVARIANCE.unsqueeze(0), *rest)


def uniform(*shape):
    return torch.full(shape, 1 / shape[-1]).double()


def design_features():
    return theory.features_of_covariance(COVARIANCE)


# Of a parameter that has no default, by its name: a value, or a function that makes one.
VALUES: dict[str, Any] = {
    "arms": FEATURES,
    "kernel": kernel,
    "covariance": COVARIANCE,
    "noise_variance": 0.1,
    "noise_scale": 1.0,
    "priors": priors,
    "prior": lambda: priors()[0],
    "model": arm_gp,
    "base": ucb,
    "policy": index_policy,
    "acquisition": lambda: acquisition.UpperConfidenceBound,
    "gain": theory.RealisedGain,
    "width": lambda: theory.ConstantWidth(1.0),
    "features": design_features,
    "space_kernel": kernel,
    "time_kernel": lambda: kernels.ExponentialForgettingKernel(0.1),
    "forgetting_rate": 0.1,
    "drift_variance": 0.1,
    "horizon": T,
    "num_arms": N,
    "rkhs_bound": 1.0,
    "delta": 0.1,
    "drift": 0.1,
    "value": 1.0,
    "dim": 1,
    "ridge": 0.1,
    "gaps": lambda: torch.rand(N).double(),
    "probabilities": lambda: uniform(N),
    "constants": policies.Constants,
    "domain": DOMAIN,
    "input_dim": 2,
    "discount": 0.9,
    "interval": 3,
    "window": 3,
    "table": lambda: torch.rand(30, N).double(),
    "problem": lambda: problems.make("gp", num_arms=5),
    "name": "gp",
    "choices": FEATURES,
    **dict.fromkeys(["weight", "beta", "r", "a", "b"], 1.0),
    **dict.fromkeys(["replicates", "num_priors"], 2),
    "alpha": 0.5,
    "oversampling": 2.0,
    "inflation": 1.0,
    "step": 3,
    "bounds": DOMAIN.bounds,
}
# Set wherever it occurs: quick, and two replicates.
SMALL: dict[str, Any] = {
    "replicates": 2,
    "hidden": 8,
    "training_steps": 2,
    "depth": 2,
    "first": 3,
    "most": 20,
    "memory": 4,
}

# -- bad values ----------------------------------------------------------------------------------------

KINDS: dict[str, Any] = {
    **dict.fromkeys(
        ["noise_variance", "noise_scale", "lengthscale", "sigma", "ridge", "run_length"], bad.positive
    ),
    **dict.fromkeys(
        ["price", "oversampling", "c0", "c1", "c2", "c3", "c4", "nu", "constant"],
        bad.positive,
    ),
    "reward_scale": bad.positive_or_none,
    **dict.fromkeys(
        ["inflation", "rise", "fall", "learnt", "hill_width", "squared_lengthscale", "amplitude"],
        bad.positive,
    ),
    **dict.fromkeys(["beta", "alpha", "tolerance", "r", "a", "b", "regulariser", "scale"], bad.positive),
    **dict.fromkeys(["drift_variance", "sample_noise", "weight", "noise_fraction"], bad.positive),
    "period_length": bad.positive,
    "order": bad.natural,
    **dict.fromkeys(["rkhs_bound", "drift", "value", "design"], bad.non_negative),
    **dict.fromkeys(["rkhs_variation_budget", "variation_budget"], bad.non_negative),
    **dict.fromkeys(["margin", "mean", "prior_mean", "start", "short", "tall"], bad.finite),
    **dict.fromkeys(["delta", "epsilon", "warm_up", "shrink"], bad.share),
    **dict.fromkeys(["shrinkage", "design_share"], bad.numbers(lambda x: 0 <= x <= 1)),
    **dict.fromkeys(["forgetting_rate", "shift"], bad.rate),
    **dict.fromkeys(["discount", "step_size"], bad.numbers(lambda x: 0 < x <= 1)),
    **dict.fromkeys(["changes", "sharing", "exploration"], bad.positive),
    "reward_range": st.sampled_from(
        [3, "all", (), (1.0,), (1, 0), (2, 2), (0, bad.NAN), (0, bad.INF), ("a", 1)]
    ),
    "restarts": bad.words("local", "global"),
    "trust": bad.words("start", "always"),
    "bound_is_guess": st.sampled_from(["yes", 1, None, 0.0, []]),
    "grid_until": st.sampled_from([0, -1, 1.5, "ten", bad.NAN, True]),
    "when_empty": bad.words("likeliest", "raise"),
    "explore": bad.words("ucb", "safeopt"),
    "guarantee": bad.words("run", "step"),
    "rewards": bad.words("numbers", "binary", "counts"),
    "safety_width": bad.non_negative,
    "safe_arms": st.sampled_from(
        [torch.ones(N), torch.ones(2, 3) > 0, torch.zeros(N) > 0, "arms", [True], 3]
    ),
    "outcomes": bad.thing,
    "limits": st.sampled_from([{}, {"flow": (0.0, 1.0)}, {"reward": (1.0, 0.0)}, {"reward": 3.0}, 3, None]),
    **dict.fromkeys(["outcome_noise_scale", "outcome_forgetting_rate"], bad.positive_or_none),
    **dict.fromkeys(["limit", "least_reward"], bad.finite),
    "climb": bad.non_negative,
    "periods": st.sampled_from([[], [0.0], [bad.NAN], [-1.0, 2.0], ["day"], 24.0, None]),
    "harmonics": st.sampled_from([[], [0], [1.5], [1, 2], 1, None]),
    "profile": bad.spoiled(torch.zeros(2, N).double(), torch.zeros(3, N), "profile"),
    "cycle_rate": bad.rate,
    "level_variance": bad.spoiled(torch.ones(3).double(), torch.zeros(3), torch.ones(2), 0.1),
    "timescale": bad.spoiled(torch.ones(3).double(), torch.zeros(3), torch.ones(2), 0.1),
    "control": bad.integers(0),
    "control_share": bad.numbers(lambda x: x == 0.1),
    "cycles": st.sampled_from([0.0, -1.0, bad.NAN, bad.INF, "day", [], [24.0, 24.0], [-1.0], {}, [None]]),
    "likelihood": bad.words("auto", "bernoulli", "gaussian"),
    **dict.fromkeys(["growth", "stretch"], bad.at_least_one),
    "anisotropy": bad.numbers(lambda x: x > 0),
    **dict.fromkeys(["num_arms", "replicates", "horizon", "interval", "num_intervals", "dim"], bad.count),
    **dict.fromkeys(["max_points", "max_rows", "max_arms", "side", "hidden"], bad.count),
    **dict.fromkeys(["period", "num_peaks", "history_days", "input_dim", "num_priors", "step"], bad.count),
    **dict.fromkeys(
        ["every", "memory", "most", "first", "chunk_size", "num_restarts", "draws", "batches"], bad.count
    ),
    **dict.fromkeys(
        ["seed", "first_replicate", "initial", "first_replay", "training_steps", "keep"], bad.natural
    ),
    **dict.fromkeys(["seconds", "budget"], bad.positive_or_none),
    "stale": st.sampled_from([0.0, -1.0, bad.NAN, bad.INF, "oldest", []]),
    "depth": bad.integers(2),
    "raw_samples": bad.integers(2),
    "true_prior": bad.integers(0),
    "window": bad.count.filter(lambda x: x != {}),  # of a recipe: LikelihoodWindow without arguments
    "candidates": bad.windows,
    "arms": bad.arms,
    "bounds": bad.bounds,
    "inequality_constraints": bad.constraints,
    **dict.fromkeys(["kernel", "covariance"], bad.covariances),
    **dict.fromkeys(["model", "base", "gain", "problem", "policy", "space_kernel", "time_kernel"], bad.thing),
    **dict.fromkeys(["priors", "prior", "policies", "acquisition", "domain", "function"], bad.thing),
    "gaps": bad.spoiled(torch.rand(N).double(), torch.rand(3)),
    "probabilities": bad.spoiled(torch.full((N,), 1 / N), torch.full((3,), 1 / 3)),
    "table": bad.tables,
    **dict.fromkeys(["data", "path"], bad.paths),
    "form": bad.words("auto", "covariance", "factor"),
    "width_form": bad.words("theory", "printed"),
    "incumbent": bad.words("mean", "reward"),
    "time_unit": bad.words("s", "min", "h", "D"),
    **dict.fromkeys(
        ["names", "context_names"],
        st.sampled_from([["a", "a"], ["a"], [1, 2, 3, 4, 5], ["", "b", "c", "d", "e"], "abcde", 3, {}]),
    ),
    "settings": bad.things(),
    "layout": bad.words("uniform", "grid", "sphere"),
    "change": bad.words("fresh", "flip", "shift"),
    "xi": bad.words("two-sided", "printed", "one-sided"),
    "preset": bad.words("practical", "theory"),
    "dictionary": bad.words("redrawn", "kept"),
    "thresholds": bad.words("calibrated", "theory"),
    "constants": bad.words("tuned", "theory", "practical"),
    "name": bad.words(),
    "search": bad.things(none=True).filter(lambda x: x != {}),  # no arguments: the defaults
    "width": bad.non_negative,
    **dict.fromkeys(["num_contexts", "arm_dim"], bad.count),
    "context_dim": bad.natural,
    "safe_points": bad.spoiled(torch.rand(3, 1).double(), torch.full((1, 1), 99.0)).filter(
        lambda x: x is not None
    ),
    "contexts": bad.spoiled(torch.rand(3, 1).double(), torch.ones(3, 1)).filter(lambda x: x is not None),
    "context_lengthscale": bad.positive,
    "combine": bad.words("product", "sum", "additive"),
    **dict.fromkeys(["arm_kernel", "context_kernel"], bad.thing),
    **dict.fromkeys(["variance", "look_again", "move_price"], bad.non_negative),
    "max_move": bad.numbers(lambda x: x > 0, none=True),
    "start_at": st.sampled_from([-1, 1.5, "a", bad.NAN, torch.ones(3), 99, []]),
}
# What is not fuzzed, with what says so: by its annotation, a switch and what is torch's, GPyTorch's or BoTorch's own;
NOT_OURS = {"bool", "Prior", "Interval", "PosteriorTransform", "MCSampler", "MCAcquisitionObjective"}
NOT_OURS |= {"torch.dtype", "torch.device"}
# and by its name.
NO_KIND = {
    **dict.fromkeys(["batch_shape", "active_dims"], "torch's and GPyTorch's own; tests/models"),
    **dict.fromkeys(["args", "kwargs", "options", "about", "X_pending"], "handed on"),
    "choices": "of a policy with a model: tests/policies/test_choices.py",
    "notes": "lines that are printed",
    "capture": "a switch or a count; tests/captured",
    **dict.fromkeys(["learn_hyperparameters", "progress"], "a switch"),
}


@dataclass
class Spec:
    """What the signature does not tell of a name: ``values`` of its valid call, and ``kinds`` of its arguments.

    A kind None says that the argument is not looked at, or goes by another test.
    """

    values: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, Any] = field(default_factory=dict)


_TWO_FORMS = {"form": bad.words("theory", "printed")}
_QUIET = {"noise_scale": bad.non_negative}
_QUIET_OR_NONE = {"noise_scale": bad.numbers(lambda x: 0 <= x < bad.INF, none=True)}
_SIMULATED = {"num_arms": 9, "noise_scale": 0.1}
_KERNEL_NAME = {"kernel": bad.words("se", "matern")}
_FEATURES = {"features": bad.features}
_WEIGHTS = st.sampled_from([None, "w", torch.zeros(3), [0.0, 0.0]])
_WIDTH_OF_A_MODEL = {"width": bad.non_negative}
_AN_ACQUISITION = {
    "width": bad.things(none=False),
    "forgetting": st.sampled_from(["window", 3]),
    "arms": None,
}
_SHARE_OR_NONE = bad.numbers(lambda x: 0 <= x <= 1, none=True)
_OF_PRIORS = Spec({"model": over_priors}, {"width": bad.thing, "draws": KINDS["bound_is_guess"]})
_OF_FEATURES = Spec(
    {"features": lambda: policies.FixedFeatures(design_features(), 2)},
    {"features": bad.thing, "constants": bad.thing},
)
_NAMES = {"name": bad.words(*problems.PROBLEMS, *recipes.RECIPES)}

_NOT_CONSTRAINTS = st.sampled_from([3, "heat", ["heat"], [None], {"heat": (0.0, 1.0)}])

OF_MEMBERS = bad.spoiled(torch.ones(3).double(), torch.zeros(3), -torch.ones(3), torch.ones(2, 3, 4))


def _members_spec(rate, good, wrong, **more):
    """Members whose change over time is told by the argument ``rate``."""
    return Spec(
        {
            "covariances": torch.stack([COVARIANCE, COVARIANCE + 0.5]),
            "kernel": torch.tensor([0, 1, 1]),
            "noise_variance": 0.1 * torch.ones(3).double(),
            rate: good,
            **more,
        },
        {
            "covariances": bad.spoiled(
                torch.stack([COVARIANCE, COVARIANCE]), COVARIANCE, torch.stack([COVARIANCE, -COVARIANCE])
            ),
            "kernel": st.sampled_from(
                [
                    torch.tensor([0, 2, 0]),
                    torch.tensor([-1, 0, 0]),
                    torch.zeros(3),
                    torch.zeros(2, 3).long(),
                    "k",
                    None,
                ]
            ),
            "noise_variance": bad.spoiled(torch.ones(3).double(), torch.zeros(3), torch.ones(2), 0.1),
            "share": bad.rate,
            rate: bad.spoiled(good, wrong, torch.zeros(2), 0.1),
        },
    )


SPECS: dict[str, Spec] = {
    "policies.StaleObservations": Spec(kinds={"capacity": bad.integers(16, none=True)}),
    "policies.WassersteinForgetting": Spec(kinds={"capacity": bad.integers(2, none=True)}),
    "policies.SafePolicy": Spec(
        {
            "outcomes": lambda: {"heat": arm_gp()},
            "limits": lambda: {"heat": (-1.0, 1.0)},
            "safety_width": lambda: theory.ConstantWidth(1.0),
        },
        {"width": bad.things(none=True), "safety_width": bad.things(none=True), "outcomes": bad.thing},
    ),
    "policies.DetectionAugmented": Spec(
        {"policy": index_policy, "noise_scale": 0.1, "watched": None},
        {"noise_scale": bad.positive, "watched": None, "exploration": _SHARE_OR_NONE},
    ),
    "policies.ControlledPolicy": Spec(
        {"policy": index_policy, "control": 1, "control_share": 0.2},
        {"control": bad.natural, "control_share": bad.numbers(lambda x: 0 < x <= 0.5)},
    ),
    "policies.DoublingTrick": Spec({"base": lambda: lambda horizon: index_policy()}),
    "policies.SafePointPolicy": Spec(
        {
            "model": over_points,
            "outcomes": lambda: {"heat": over_points()},
            "limits": lambda: {"heat": (-1.0, 1.0)},
            "domain": DOMAIN,
            "safety_width": lambda: theory.ConstantWidth(1.0),
        },
        {
            "width": bad.things(none=True),
            "safety_width": bad.things(none=True),
            "outcomes": bad.thing,
            "forgetting": st.sampled_from(["window", 3, {"heat": 3}, {"cold": policies.KeepEverything()}]),
            "when_empty": bad.words("likeliest", "raise"),
            "raw_samples": bad.count,
        },
    ),
    "policies.LatentRewards": Spec({"rewards": "binary"}, {"rewards": bad.words("binary", "counts")}),
    "theory.PosteriorSafetyWidth": Spec({"limits": 2}, {"limits": bad.count}),
    # models
    "models.OutcomeConstraint": Spec(
        {"name": "heat", "high": 1.0},
        {
            "name": st.sampled_from(["", "reward", 3, None]),
            "low": st.sampled_from([bad.NAN, 1.0, 7.0, bad.INF, "low"]),
            "high": st.sampled_from([bad.NAN, -bad.INF, "high", None]),
            "kernel": None,
            "noise_variance": None,
            "prior_mean": None,
            "forgetting_rate": bad.rate_or_none,
        },
    ),
    "models.ArmMembers": _members_spec("forgetting_rate", torch.zeros(3).double(), torch.ones(3)),
    "models.SmoothMembers": _members_spec("timescale", torch.ones(3).double(), torch.zeros(3)),
    "models.CyclicMembers": _members_spec(
        "forgetting_rate", torch.zeros(3).double(), torch.ones(3), periods=[24.0], harmonics=[1]
    ),
    "models.LevelMembers": _members_spec(
        "forgetting_rate",
        torch.zeros(3).double(),
        torch.ones(3),
        level_variance=torch.ones(3).double(),
        timescale=torch.ones(3).double(),
        control=1,
    ),
    "models.StackedMembers": Spec(
        {"parts": [_members(), _members()]},
        {"parts": st.sampled_from([[], [None], "parts", 3, None])},
    ),
    "models.ArmGP": Spec({"arms": N, "kernel": COVARIANCE}),
    "models.OnlineGP": Spec({}, {"kernel": bad.thing}),
    "models.SketchedGP": Spec({}, {"kernel": bad.thing, "arms": bad.features, "sampling": None}),
    "models.MemberMixture": Spec(
        {
            "members": point_members,
            "weights": torch.ones(2, 3).double() / 3,
            "scale": torch.ones(2, 3).double(),
            "offset": torch.zeros(2).double(),
            "unit": torch.ones(2).double(),
        },
        {"members": bad.thing} | dict.fromkeys(["weights", "scale", "offset", "unit", "time", "pending"]),
    ),
    "models.PointMembers": Spec(
        {
            "lengthscale": torch.ones(3).double(),
            "noise_variance": torch.ones(3).double(),
            "forgetting_rate": torch.zeros(3).double(),
            "timescale": torch.ones(3).double(),
            "capacity": 8,
        },
        {
            "bounds": bad.spoiled(DOMAIN.bounds, DOMAIN.bounds[:1], DOMAIN.bounds.flip(0)),
            "lengthscale": OF_MEMBERS,
            "noise_variance": OF_MEMBERS,
            "forgetting_rate": bad.spoiled(
                torch.zeros(3).double(), torch.ones(3), -torch.ones(3), torch.ones(2, 3)
            ),
            "timescale": st.sampled_from(
                [-torch.ones(3), torch.ones(2), "ones", None, torch.tensor([bad.NAN] * 3)]
            ),
            "capacity": bad.integers(2),
        },
    ),
    "models.fit_hyperparameters": Spec(
        {"model": learnable_gp, "members": [0, 1]},
        {
            "members": st.sampled_from([None, 1, "all", [2], [-1], [0.5], [True], [None], torch.ones(2)]),
            "data": None,
        },
    ),
    "models.LeverageSampling": Spec({}, {"rise": bad.non_negative}),
    "models.learnable": Spec({}, {"kernel": bad.thing}),
    # kernels
    "kernels.ExponentialForgettingKernel": Spec({}, {"forgetting_rate": bad.share}),
    "kernels.StackedKernel": Spec(
        {"kernels": lambda: [kernel(), kernel()]},
        {"kernels": st.sampled_from([[], (), None, "rbf", 3, [kernel(), None], ["rbf"], kernel()])},
    ),
    **{
        f"kernels.{name}": Spec(
            {"kernels": lambda: [kernels.MaternTimeKernel(2.0), kernels.PeriodicTimeKernel(3.0)]},
            {
                "kernels": st.sampled_from(
                    [[], (), None, "rbf", 3, [kernel()], ["rbf"], kernels.MaternTimeKernel()]
                )
            },
        )
        for name in ("SumOfTimeKernels", "ProductOfTimeKernels")
    },
    "kernels.arm_context_kernel": Spec(
        {"arm_kernel": kernel, "context_kernel": kernel, "arm_dim": 2, "context_dim": 1},
        {"context_dim": bad.count},
    ),
    "kernels.NeuralTangentKernel": Spec({}, {"depth": bad.count}),
    "kernels.QuasiPeriodicKernel": Spec({}, {"memory": bad.positive}),
    "kernels.state_space_of": Spec({"kernel": lambda: kernels.MaternTimeKernel(2.0)}, {"kernel": bad.thing}),
    "kernels.estimate_covariance": Spec({"table": lambda: torch.rand(6, N).double()}),
    # theory
    "theory.PermutationWidth": Spec({"batches": 3}),
    "theory.mean_excess": Spec({"draws": 19}),
    "theory.CGPUCBWidth": Spec({"num_contexts": 3}),
    "theory.BKBWidth": Spec({}, _TWO_FORMS),
    "theory.DriftAwareWidth": Spec({"base": lambda: theory.ConstantWidth(1.0)}),
    "theory.DualMixtureWidth": Spec({}, {"noise_scale": bad.positive_or_none, "horizon": bad.count_or_none}),
    "theory.GPBUCBWidth": Spec(
        {"base": lambda: theory.ConstantWidth(1.0), "count": 4, "initial": 3},
        {"count": bad.count, "initial": bad.count},
    ),
    "theory.uncertainty_sampling": Spec({"count": 4}, {"count": bad.count, "time": None}),
    "theory.GrowthBound": Spec(
        {"kind": "matern", "nu": 2.5}, {"kind": bad.words("squared_exponential", "matern", "linear")}
    ),
    "theory.MaximumGain": Spec({"max_points": 5}),
    "theory.RestartWidth": Spec({"num_intervals": 2}, _TWO_FORMS | {"horizon": None}),
    "theory.SlidingWindowWidth": Spec({"horizon": T}, _TWO_FORMS | {"horizon": bad.count}),
    "theory.IGPWidth": Spec({}, _TWO_FORMS),
    "theory.GPTSWidth": Spec({}, _TWO_FORMS),
    "theory.elimination_xi": Spec({}, {"form": bad.words("two-sided", "printed", "one-sided")}),
    "theory.estimated_gaps": Spec({"estimates": lambda: torch.rand(N)}, {"estimates": bad.thing}),
    "theory.exploration_problem": Spec(
        {},
        _FEATURES | {"gaps": KINDS["gaps"].filter(lambda x: x is not None), "among": None, "method": None},
    ),
    "theory.fractional_gain": Spec({}, _FEATURES),
    "theory.optimal_design": Spec(
        {},
        _FEATURES
        | {
            "method": bad.words("auto", "newton", "first-order", "multiplicative", "frank-wolfe"),
            "among": None,
        },
    ),
    "theory.optimal_exploration": Spec({"gain": 1.0}, _FEATURES | {"gain": bad.non_negative}),
    "theory.propensity_matrix": Spec({}, _FEATURES),
    # acquisitions
    "acquisition.BayesianOverPriors": Spec(
        {"log_weights": torch.zeros(2).double()}, {"log_weights": _WEIGHTS}
    ),
    "acquisition.LikeliestPrior": Spec(
        {"log_likelihood": torch.zeros(2).double()}, {"log_likelihood": _WEIGHTS}
    ),
    "acquisition.OptimisticOverPriors": Spec(
        {"surviving": torch.ones(2) > 0},
        {
            "surviving": st.sampled_from(
                ["all", torch.ones(3) > 0, torch.zeros(2) > 0, torch.ones(2), [True, True]]
            )
        },
    ),
    "acquisition.PathwisePointDraw": Spec(
        {"model": over_points, "width": 1.0, "time": 1.0, "seeds": (0, 1), "features": 64},
        _WIDTH_OF_A_MODEL
        | {
            "time": bad.numbers(bad.math.isfinite, none=True),
            "seeds": st.sampled_from([None, 1, (), (1,), (0, 1, 2), (0, -1), (0.5, 1), "01", (None, 0)]),
            "features": bad.integers(1).filter(lambda x: x != 64),
        },
    ),
    "acquisition.PointSearch": Spec(
        {},
        {
            "warm_start": st.sampled_from([None, 1, 0.0, "yes", []]),
            "options": st.sampled_from([None, 5, "fast", [50]]),
        },
    ),
    "acquisition.DualMixtureBound": Spec(
        {"bound": lambda: theory.DualMixtureWidth(1.0, None, 0.1)}, {"bound": bad.thing}
    ),
    "acquisition.PathwiseThompsonSampling": Spec(
        {"seed": 0, "features": 64}, {"features": bad.integers(1), "root": None}
    ),
    "acquisition.PlayingProbability": Spec(
        {"probabilities": lambda: uniform(2, N)},
        {"probabilities": bad.spoiled(torch.full((2, N), 1 / N), torch.rand(3))},
    ),
    "acquisition.PredictiveSampling": Spec({}, {"interval": bad.positive}),
    "acquisition.ThompsonSampling": Spec(
        {"width": 1.0, "choices": None},
        _WIDTH_OF_A_MODEL | dict.fromkeys(["base_samples", "choices", "time", "root"]),
    ),
    "acquisition.qUpperConfidenceBound": Spec({"width": 1.0}, _WIDTH_OF_A_MODEL),
    "models.AtTime": Spec({"model": over_points, "time": 1.0}, {"time": bad.numbers(bad.math.isfinite)}),
    "acquisition.UpperConfidenceBound": Spec({"width": 1.0}, _WIDTH_OF_A_MODEL),
    "bandits_torch.Domain": Spec(
        {
            "inequality_constraints": [(torch.tensor([0, 1]), torch.ones(2).double(), 0.1)],
            "fixed_features": {1: 0.5},
        },
        {
            "fixed_features": st.sampled_from(
                [
                    *(None, 3, "x", [1], {2: 0.5}, {-1: 0.5}, {"x": 0.5}, {True: 0.5}, {0.0: 1.0}),
                    *({0: 0.5, 1: 0.5}, {1: bad.NAN}, {1: "half"}, {1: None}, {1: torch.ones(2)}),
                ]
            )
        },
    ),
    # policies
    "policies.OPKB": _OF_FEATURES,
    "policies.AdaOPKB": _OF_FEATURES,
    "policies.BatchBKB": Spec({"model": sketched}, {"width": bad.thing}),
    "policies.BayesianPriorPolicy": _OF_PRIORS,
    "policies.LikeliestPriorPolicy": _OF_PRIORS,
    "policies.PriorElimination": _OF_PRIORS,
    "policies.SampledPriorPolicy": Spec({"model": over_priors}),
    "policies.CalibratedOPKB": Spec(
        {"first": 0.5}, _WIDTH_OF_A_MODEL | {"growth": bad.above_one, "first": bad.positive}
    ),
    "policies.Constants": Spec(
        {}, dict.fromkeys(["delta"], bad.share_or_none) | dict.fromkeys(["c0", "c2"], bad.positive_or_none)
    ),
    "policies.CentredPolicy": Spec({"prior_mean": 0.5}),
    "policies.CostlyMoves": Spec(
        {"policy": lambda: recipes.gp_ucb(DOMAIN, kernel(), 0.1, replicates=2), "domain": DOMAIN},
        {"search": bad.things(none=True), "domain": bad.things(none=False)},
    ),
    "policies.FixedFeatures": Spec({}, _FEATURES),
    "policies.IndexPolicy": Spec(
        {"model": over_points, "choices": DOMAIN, "width": lambda: theory.ConstantWidth(1.0)}, _AN_ACQUISITION
    ),
    "policies.RewardImprovementPolicy": Spec(
        {"model": over_points, "choices": DOMAIN, "width": lambda: theory.ConstantWidth(1.0)},
        _AN_ACQUISITION | {"forgetting": st.sampled_from(["window", 3])},
    ),
    "policies.ContextualPolicy": Spec(
        {
            "model": over_points,
            "choices": FEATURES[:, :1],
            "context_dim": 1,
            "width": lambda: theory.ConstantWidth(1.0),
        },
        _AN_ACQUISITION | {"forgetting": st.sampled_from(["window", 3])},
    ),
    "policies.FixedShare": Spec(
        {"prior": torch.ones(3).double(), "memory": 0.9},
        {
            "prior": bad.spoiled(torch.ones(3).double(), torch.zeros(3), -torch.ones(3), torch.ones(2, 3)),
            "share": bad.rate,
            "behind": bad.numbers(lambda x: x > 0),
            "at_once": bad.numbers(lambda x: x > 0),
            "memory": bad.rate,
        },
    ),
    "policies.MemberScale": Spec(
        {
            "strength": torch.ones(3).double(),
            "learn_offset": torch.tensor([True, False, True]),
            "memory": 0.9,
        },
        {
            "strength": st.sampled_from(
                [-torch.ones(3), torch.ones(2, 3), "ones", None, [1.0], torch.tensor([bad.NAN, 1.0, 1.0])]
            ),
            "learn_offset": st.sampled_from([torch.ones(3), torch.ones(2) > 0, "yes", None, [True]]),
            "memory": bad.share,
            "tail": bad.numbers(lambda x: 2 < x < bad.INF),
            "clip": bad.positive,
        },
    ),
    "policies.ModelAveraging": Spec(
        {"model": over_priors},
        {"width": bad.non_negative, "plausible": bad.non_negative, "wide": bad.non_negative}
        | {"at_once": bad.natural}
        | dict.fromkeys(["sharing", "scale", "forgetting_rate", "typical_gap"]),
    ),
    "policies.PointAveraging": Spec(
        {"members": point_members},
        {
            "domain": bad.thing,
            "search": bad.things(none=True),
            "members": bad.thing,
            "ends": bad.non_negative,
            "share": bad.rate,
            "behind": bad.numbers(lambda x: x > 0),
            "refined": bad.natural,
            "refine_every": bad.count,
            "rounds": bad.count,
            "typical_gap": None,
        },
    ),
    "policies.LookingAgain": Spec(
        {"every": 11.0, "model": _members},
        {"every": bad.positive, "model": bad.thing, "at_once": bad.natural},
    ),
    "policies.LookingAtPoints": Spec(
        {"every": 7.0, "members": point_members},
        {"every": bad.positive, "domain": bad.thing, "members": bad.thing},
    ),
    "policies.LearnedHyperparameters": Spec(
        {"policy": learnable_policy}, {"tolerance": bad.numbers(lambda x: x > 0)}
    ),
    "policies.LikelihoodWindow": Spec({"candidates": (3, 5)}, {"margin": bad.non_negative}),
    "policies.Master": Spec(
        {
            "base": lambda: lambda n: index_policy(),
            "rho": lambda: lambda n: 1.0,
            "thresholds": lambda: policies.MasterThresholds(1.0),
        },
        {"rho": bad.thing, "thresholds": bad.thing},
    ),
    "policies.MasterThresholds": Spec({}, {"learnt": bad.numbers(lambda x: x > 0)}),
    "policies.NeuralFeatures": Spec({"width": 8}, {"width": bad.count, "arms": bad.features}),
    "policies.RegretBalancing": Spec({"policies": lambda: [index_policy(), index_policy()]}),
    **{
        f"{room}.{name}": Spec({}, {"epsilon": bad.numbers(lambda x: 0 <= x <= 1)})
        for room, name in (("recipes", "epsilon_greedy"), ("policies.classical", "EpsilonGreedy"))
    },
    **{
        f"{room}.{name}": Spec({}, {"exploration": _SHARE_OR_NONE})
        for room, names in {
            "recipes": ("glr_kl_ucb", "exp3_s"),
            "policies.classical": ("GLRKLUCB", "EXP3S"),
        }.items()
        for name in names
    },
    "policies.RandomPolicy": Spec({"choices": N}, {"choices": bad.count}),
    # problems
    "problems.GPDraws": Spec(_SIMULATED, _KERNEL_NAME | _QUIET_OR_NONE),
    "problems.RKHSFunctions": Spec(_SIMULATED, _KERNEL_NAME | _QUIET_OR_NONE),
    "problems.GridDraws": Spec({"side": 4, "dim": 2}, _QUIET),
    "problems.DriftingCosine": Spec(_SIMULATED | {"dim": 2, "layout": "sphere"}, _QUIET),
    **{
        f"problems.{name}": Spec(_SIMULATED | {"horizon": T}, _KERNEL_NAME | _QUIET | {"switches": None})
        for name in ("SwitchingFunctions", "SphereOneSwitch", "SphereTwoSwitches", "TVGPDraws")
    },
    "problems.MovingPeaks": Spec(
        _SIMULATED | {"horizon": T},
        _KERNEL_NAME | _QUIET | {"height_severity": None, "width_severity": None},
    ),
    "problems.ContextualGPDraws": Spec({}, _QUIET),
    "problems.SafeTVGPDraws": Spec({"outcome_noise_scale": 0.1}, _QUIET),
    "problems.Hills": Spec({"num_arms": 11}, {"excluded": None}),
    "problems.VarianceStarvation": Spec(_SIMULATED, _QUIET_OR_NONE),
    "problems.Rosenbrock": Spec({"num_arms": 9}, _QUIET_OR_NONE | {"dim": bad.integers(2), "function": None}),
    "problems.Hartmann3": Spec({"num_arms": 9}, _QUIET_OR_NONE | {"function": None}),
    "problems.StationaryProblem": Spec(
        {"functions": torch.rand(2, N).double(), "noise_scale": 0.1},
        _QUIET
        | {"arms": bad.features, "functions": bad.spoiled(torch.rand(2, N).double(), torch.rand(2, 3))},
    ),
    "problems.Replay": Spec(
        {"horizon": 10, "forgetting_rate": 0.1, "noise_fraction": 0.05},
        {"prior_mean": bad.words("arm", "grand").filter(lambda x: not isinstance(x, (int, float)))}
        | {"noise_fraction": bad.share_or_none, "warm_up": bad.share_or_none}
        | dict.fromkeys(["arms", "times", "history", "history_times"]),
    ),
    "problems.RewardTable": Spec(
        {"rewards": torch.rand(6, N).double()},
        {
            "rewards": st.sampled_from(
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
            "times": None,
            "arm_names": None,
        },
    ),
    "problems.fit_forgetting_rate": Spec(
        {
            "table": lambda: torch.rand(8, N).double(),
            "times": torch.arange(8).double(),
            "max_rows": 5,
            "max_arms": 3,
        },
        {"times": bad.spoiled(torch.arange(8).double(), torch.arange(3).double(), -torch.arange(8).double())},
    ),
    "problems.fit_forgetting": Spec(
        {
            "table": lambda: draw_tables(COVARIANCE, 0.3, 0.2, torch.arange(80).double(), 1)[:, 0],
            "times": torch.arange(80).double(),
            "covariance": COVARIANCE + 0.3 * torch.eye(N).double(),
            "max_rows": 80,
        },
        {
            "times": bad.spoiled(
                torch.arange(80).double(), torch.arange(3).double(), -torch.arange(80).double()
            )
        },
    ),
    "problems.make": Spec({}, _NAMES | {"data": None, "horizon": None}),
    "problems.needs_data": Spec({}, _NAMES),
    "problems.DynamicFunction": Spec({"function": Branin, "noise_scale": 0.1}, _QUIET),
    "problems.options_of": Spec({}, _NAMES),
    "problems.registered": Spec({}, _NAMES),
    "problems.read_table": Spec(
        {},
        dict.fromkeys(
            [
                "rewards",
                "time_column",
                "ignore",
                "missing",
                "long",
                "header",
                "separator",
                "decimal",
                "encoding",
            ]
        ),
    ),
    # recipes
    **{
        f"recipes.{name}": Spec(
            {}, {"arms": bad.features} if name in ("bkb", "bbkb", "opnn", "ada_opnn") else {}
        )
        for name in recipes.RECIPES
        if name not in ("auto", "epsilon_greedy", "glr_kl_ucb", "exp3_s")
    },
    **{
        f"recipes.{name}": Spec({"least_reward": -1.0}, {"constraints": _NOT_CONSTRAINTS})
        for name in ("safe_gp_ucb", "safe_opt")
    },
    "recipes.predictive_sampling": Spec({}, {"interval": bad.positive}),
    "recipes.dal": Spec(
        {"kernel": COVARIANCE, "noise_variance": 0.1},
        {
            "noise_scale": bad.positive_or_none,
            "base": st.sampled_from([None, 3, "gp_ucbb", "exp3_s", "auto", []]),
        }
        | {"noise_variance": bad.positive_or_none, "exploration": _SHARE_OR_NONE},
    ),
    "recipes.auto": Spec(
        {},
        {
            "width": bad.numbers(lambda x: 0 <= x < bad.INF, none=True),
            "share": bad.rate,
            "behind": bad.numbers(lambda x: x > 0),
            "plausible": bad.non_negative,
            "kernel": bad.covariances.filter(lambda x: x is not None),
            "noise_variance": bad.positive_or_none,
            "history": None,
            "history_times": None,
            "log": None,
            "matters": st.sampled_from([[0], 0, "all", [2.5]]),  # without a context, and none of columns
            "contexts": bad.spoiled(torch.rand(3, 1).double(), torch.ones(3, 1)).filter(
                lambda x: x is not None
            ),
        },
    ),
    "recipes.w_gp_ucb": Spec({"discount": 0.99}),
    "recipes.memory_length": Spec({}, {"domain": None}),
    "recipes.options_of": Spec({"name": "gp_ucb"}, _NAMES),
    "recipes.registered": Spec({"name": "gp_ucb"}, _NAMES),
    "recipes.build": Spec({"name": "gp_ucb", "replicates": 1}, _NAMES),
    "bandits_torch.save_policy": Spec(
        {"path": FILES / "saved", "policy": lambda: policies.RandomPolicy(5), "overwrite": True},
        {"path": None},
    ),
    "bandits_torch.load_policy": Spec(
        {"path": saved, "policy": lambda: policies.RandomPolicy(5), "on_difference": "error"},
        {"path": None, "on_difference": bad.words("error", "file")},  # the system speaks of a path
    ),
    "bandits_torch.run": Spec(
        {"policy": lambda: policies.RandomPolicy(5), "horizon": 3, "replicates": None}, {"checkpoint": None}
    ),
}
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


def valid(name: str) -> dict[str, Any]:
    """The arguments of a call that works."""
    told = SPECS.get(name, Spec()).values
    given = {}
    for key, parameter in parameters(name).items():
        value = told[key] if key in told else SMALL.get(key)
        if value is None and key not in told and parameter.default is parameter.empty:
            value = VALUES.get(key)
        if value is not None:
            given[key] = value() if inspect.isfunction(value) or inspect.isclass(value) else value
    return given


def kind_of(name: str, argument: str) -> Any:
    """Strategy of bad values; None for an argument that takes anything."""
    room, _, recipe = name.partition(".")
    looked_at = recipes.registered(recipe).uses if room == "recipes" and recipe in recipes.RECIPES else KINDS
    if argument in ("kernel", "noise_variance") and argument not in looked_at:
        return None
    kind, parameter = given_kind(name, argument), parameters(name)[argument]
    if argument in SPECS.get(name, Spec()).kinds:
        return kind
    takes_none = parameter.default is None or "None" in str(parameter.annotation)
    return kind.filter(lambda value: value is not None) if kind is not None and takes_none else kind


def given_kind(name: str, argument: str) -> Any:
    """What stands in the tables above."""
    return SPECS.get(name, Spec()).kinds.get(argument, KINDS.get(argument))


def numeric_cases() -> list[tuple[str, str, list[Any]]]:
    """(name, argument, numbers at the ends of what it takes) of what must be one number."""
    return [(*case, ends) for case in cases() for kind, ends in bad.NUMERIC if given_kind(*case) is kind]


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
        for argument in parameters(name)
        if argument not in {*KINDS, *NO_KIND, *SPECS.get(name, Spec()).kinds}
        and str(parameters(name)[argument].annotation).split(" | ")[0] not in NOT_OURS
    ]

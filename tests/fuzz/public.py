"""Every public constructor and function: a valid call, and the kind of each argument.

``SPECS`` must name whatever the package exports (``test_nothing_public_is_left_out``); a new export needs a line here,
or one with a reason in ``LEFT_OUT``. Arguments of one name are of one kind wherever they stand (``KINDS``), unless a
spec says otherwise; None there says that the argument is not looked at.
"""

from __future__ import annotations

import importlib
import inspect
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
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
from bandits_torch.problems.arm_evidence import draw_tables
from tests.fuzz import bad_values as bad
from tests.fuzz.bad_values import COVARIANCE, FEATURES, N

ROOMS = ["", ".acquisition", ".kernels", ".models", ".policies", ".problems", ".recipes", ".theory"]


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


@dataclass
class Spec:
    """``valid`` gives the arguments of a call that works; ``kinds`` of arguments differ from ``KINDS``."""

    valid: Callable[[], dict[str, Any]] = dict
    kinds: dict[str, Any] = field(default_factory=dict)


KINDS = {
    **dict.fromkeys(
        ["noise_variance", "noise_scale", "lengthscale", "sigma", "ridge", "run_length"], bad.positive
    ),
    **dict.fromkeys(
        ["price", "first", "oversampling", "c3", "c1", "reward_scale", "nu", "constant"], bad.positive
    ),
    **dict.fromkeys(
        ["inflation", "rise", "fall", "hill_width", "squared_lengthscale", "amplitude"], bad.positive
    ),
    **dict.fromkeys(
        ["beta", "alpha", "tolerance", "r", "a", "b", "timeout", "regulariser", "scale"], bad.positive
    ),
    **dict.fromkeys(["width_value", "rkhs_bound", "drift", "value", "design", "margin"], bad.non_negative),
    **dict.fromkeys(["delta", "epsilon", "warm_up"], bad.share),
    **dict.fromkeys(["forgetting_rate"], bad.rate),
    **dict.fromkeys(
        ["num_arms", "replicates", "horizon", "window", "interval", "num_intervals", "dim"], bad.count
    ),
    **dict.fromkeys(
        ["max_points", "max_rows", "max_arms", "side", "depth", "hidden", "training_steps"], bad.count
    ),
    **dict.fromkeys(
        ["period", "num_peaks", "history_days", "input_dim", "num_priors", "step", "features_count"],
        bad.count,
    ),
    **dict.fromkeys(["every", "memory", "most"], bad.count),
    **dict.fromkeys(["seed", "first_replicate", "training_steps"], bad.natural),
    **dict.fromkeys(["arms"], bad.arms),
    **dict.fromkeys(["kernel", "covariance"], bad.covariances),
    **dict.fromkeys(["model", "base", "gain", "problem", "policy", "space_kernel", "time_kernel"], bad.thing),
    **dict.fromkeys(["priors", "prior", "policies", "acquisition"], bad.thing),
    **dict.fromkeys(["table"], bad.tables),
    **dict.fromkeys(["data", "path"], bad.paths),
    "form": bad.words("auto", "covariance", "factor"),
    "width_form": bad.words("theory", "printed"),
    "layout": bad.words("uniform", "grid", "sphere"),
    "xi": bad.words("two-sided", "printed", "one-sided"),
    "prior_mean": bad.finite,
    "mean": bad.finite,
    "name": bad.words(),
}

T = 20
DOMAIN = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
PRIOR_RECIPE = {"arms": FEATURES, "noise_variance": 0.1}


FILES = Path(tempfile.mkdtemp())


def saved():
    path = FILES / "policy"
    save_policy(path, policies.RandomPolicy(5), overwrite=True)
    return path


def recipe(**more):
    return lambda: PRIOR_RECIPE | {"kernel": kernel(), "replicates": 2} | more


def over(**more):
    return lambda: PRIOR_RECIPE | {"priors": priors(), "horizon": T, "replicates": 2} | more


def simulated(**more):
    return lambda: (
        {"num_arms": 9, "replicates": 2, "seed": 0, "first_replicate": 0, "noise_scale": 0.1} | more
    )


def design_features():
    return theory.features_of_covariance(COVARIANCE)


QUIET = {"noise_scale": bad.non_negative}
QUIET_OR_NONE = {"noise_scale": bad.numbers(lambda x: 0 <= x < bad.INF, none=True)}
own_scale = {"noise_scale": bad.positive_or_none}
WINDOW = {
    "window": bad.count_or_none.filter(lambda x: x != {}),  # LikelihoodWindow without arguments
    "interval": bad.count_or_none,
    "variation_budget": bad.numbers(lambda x: 0 <= x < bad.INF, none=True),
}
KERNEL_NAME = {"kernel": bad.words("se", "matern")}
NO_DATA = "a folder of data is needed for a valid call: tests/problems has its bad files"

OF_MEMBERS = bad.spoiled(torch.ones(3).double(), torch.zeros(3), -torch.ones(3), torch.ones(2, 3, 4))

SPECS: dict[str, Spec] = {
    # models
    "models.ArmGP": Spec(
        lambda: {"arms": N, "kernel": COVARIANCE, "noise_variance": 0.1, "prior_mean": 0.0, "form": "auto"}
    ),
    "models.ArmMembers": Spec(
        lambda: {
            "arms": FEATURES,
            "covariances": torch.stack([COVARIANCE, COVARIANCE + 0.5]),
            "kernel": torch.tensor([0, 1, 1]),
            "noise_variance": 0.1 * torch.ones(3).double(),
            "forgetting_rate": torch.zeros(3).double(),
            "prior_mean": 0.0,
            "replicates": 2,
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
            "forgetting_rate": bad.spoiled(torch.zeros(3).double(), torch.ones(3), torch.zeros(2), 0.1),
        },
    ),
    "models.LeverageSampling": Spec(
        lambda: {"oversampling": 2.0, "growth": 1.0, "epsilon": 0.5}, {"growth": bad.at_least_one}
    ),
    "models.MemberMixture": Spec(
        lambda: {
            "members": point_members(),
            "weights": torch.ones(2, 3).double() / 3,
            "scale": torch.ones(2, 3).double(),
            "offset": torch.zeros(2).double(),
            "unit": torch.ones(2).double(),
        },
        {"members": bad.thing},
    ),
    "models.PointMembers": Spec(
        lambda: {
            "bounds": DOMAIN.bounds,
            "lengthscale": torch.ones(3).double(),
            "noise_variance": torch.ones(3).double(),
            "forgetting_rate": torch.zeros(3).double(),
            "timescale": torch.ones(3).double(),
            "replicates": 2,
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
                [-torch.ones(3), torch.ones(2), "ones", None, torch.tensor([math.nan] * 3)]
            ),
            "capacity": bad.integers(2),
        },
    ),
    "models.OnlineGP": Spec(
        lambda: {"kernel": kernel(), "noise_variance": 0.1, "prior_mean": 0.0, "input_dim": 2},
        {"kernel": bad.thing},
    ),
    "models.SketchedGP": Spec(
        lambda: {
            "arms": FEATURES,
            "kernel": kernel(),
            "noise_variance": 0.1,
            "seed": 0,
            "first_replicate": 0,
            "chunk_size": 4,
        },
        {"kernel": bad.thing, "chunk_size": bad.count_or_none, "arms": bad.features},
    ),
    "models.arm_gp_of_prior": Spec(
        lambda: {"arms": N, "prior": priors()[0], "noise_variance": 0.1, "replicates": 2, "form": "auto"}
    ),
    "models.arm_gp_over_priors": Spec(
        lambda: {"arms": N, "priors": priors(), "noise_variance": 0.1, "replicates": 2, "form": "auto"},
        {"replicates": bad.count_or_none},
    ),
    "models.fit_hyperparameters": Spec(
        lambda: {"model": learnable_gp(), "members": [0, 1], "most": 10},
        {"members": bad.st.sampled_from([None, 1, "all", [2], [-1], [0.5], [True], [None], torch.ones(2)])},
    ),
    "models.learnable": Spec(
        lambda: {"kernel": kernel(), "dim": 1, "replicates": 2, "anisotropy": 0.3},
        {"kernel": bad.thing, "anisotropy": bad.numbers(lambda x: x > 0)},
    ),
    # kernels
    "kernels.ArmCovarianceKernel": Spec(lambda: {"covariance": COVARIANCE}),
    "kernels.ExponentialForgettingKernel": Spec(
        lambda: {"forgetting_rate": 0.1}, {"forgetting_rate": bad.share}
    ),
    "kernels.NeuralTangentKernel": Spec(lambda: {"depth": 3}),
    "kernels.SpatioTemporalKernel": Spec(
        lambda: {"space_kernel": kernel(), "time_kernel": kernels.ExponentialForgettingKernel(0.1)}
    ),
    "kernels.StackedKernel": Spec(
        lambda: {"kernels": [kernel(), kernel()]},
        {"kernels": bad.st.sampled_from([[], (), None, "rbf", 3, [kernel(), None], ["rbf"], kernel()])},
    ),
    "kernels.WienerKernel": Spec(
        lambda: {"drift_variance": 0.1, "start": 0.0}, {"drift_variance": bad.positive, "start": bad.finite}
    ),
    "kernels.estimate_covariance": Spec(
        lambda: {"table": torch.rand(6, N).double(), "shrinkage": 0.5},
        {"shrinkage": bad.numbers(lambda x: 0 <= x <= 1)},
    ),
    # theory
    "theory.BKBWidth": Spec(
        lambda: {"rkhs_bound": 1.0, "noise_scale": 1.0, "delta": 0.1, "form": "theory", "stretch": 1.0},
        {"form": bad.words("theory", "printed"), "stretch": bad.at_least_one},
    ),
    "theory.ConstantWidth": Spec(lambda: {"value": 1.0}),
    "theory.DriftAwareWidth": Spec(lambda: {"base": theory.ConstantWidth(1.0), "drift": 0.1}),
    "theory.GrowthBound": Spec(
        lambda: {"kind": "matern", "dim": 1, "nu": 2.5, "constant": 1.0},
        {"kind": bad.words("squared_exponential", "matern", "linear")},
    ),
    "theory.MaximumGain": Spec(lambda: {"covariance": COVARIANCE, "noise_variance": 0.1, "max_points": 5}),
    "theory.PriorEliminationContinuousWidth": Spec(
        lambda: {"dim": 1, "horizon": T, "r": 1.0, "a": 1.0, "b": 1.0, "delta": 0.1}
    ),
    "theory.PriorEliminationFiniteWidth": Spec(lambda: {"num_arms": N, "horizon": T, "delta": 0.1}),
    "theory.RealisedInformationWidth": Spec(
        lambda: {"rkhs_bound": 1.0, "noise_scale": 1.0, "delta": 0.1, "horizon": T},
        {"horizon": bad.count_or_none},
    ),
    "theory.SrinivasBayesianWidth": Spec(lambda: {"num_arms": N, "delta": 0.1}),
    "theory.SrinivasContinuousWidth": Spec(lambda: {"dim": 1, "r": 1.0, "a": 1.0, "b": 1.0, "delta": 0.1}),
    "theory.SrinivasRKHSWidth": Spec(
        lambda: {"rkhs_bound": 1.0, "delta": 0.1, "gain": theory.RealisedGain()}
    ),
    **{
        f"theory.{name}": Spec(
            lambda more=more: (
                {
                    "rkhs_bound": 1.0,
                    "noise_scale": 1.0,
                    "delta": 0.1,
                    "gain": theory.RealisedGain(),
                    "form": "theory",
                }
                | more
            ),
            {"form": bad.words("theory", "printed")},
        )
        for name, more in {
            "IGPWidth": {},
            "GPTSWidth": {},
            "RestartWidth": {"num_intervals": 2},
            "SlidingWindowWidth": {"window": 3, "horizon": T},
        }.items()
    },
    "theory.elimination_xi": Spec(
        lambda: {"step": 3, "num_priors": 2, "noise_scale": 1.0, "delta": 0.1, "form": "two-sided"},
        {"form": bad.words("two-sided", "printed", "one-sided")},
    ),
    "theory.estimated_gaps": Spec(lambda: {"estimates": torch.rand(N)}, {"estimates": bad.thing}),
    "theory.exploration_problem": Spec(
        lambda: {"features": design_features(), "gaps": torch.rand(N).double(), "ridge": 0.1, "weight": 1.0},
        {
            "features": bad.features,
            "gaps": bad.spoiled(torch.rand(N).double(), torch.rand(3)).filter(lambda x: x is not None),
            "weight": bad.positive,
        },
    ),
    "theory.features_of_covariance": Spec(lambda: {"covariance": COVARIANCE}),
    "theory.fractional_gain": Spec(
        lambda: {"features": design_features(), "ridge": 0.1}, {"features": bad.features}
    ),
    "theory.ips_estimates": Spec(
        lambda: {
            "features": design_features(),
            "probabilities": torch.full((N,), 1 / N).double(),
            "ridge": 0.1,
            "arm": torch.tensor([0, 1]),
            "reward": torch.tensor([0.1, 0.2]).double(),
        },
        {
            "features": bad.features,
            "probabilities": bad.spoiled(torch.full((N,), 1 / N), torch.full((3,), 1 / 3)),
            "arm": bad.st.sampled_from(
                [torch.tensor([0, N]), torch.tensor([-1, 0]), torch.tensor([0.5, 1]), None, "0"]
            ),
            "reward": bad.spoiled(torch.rand(2), torch.rand(3)),
        },
    ),
    "theory.optimal_design": Spec(
        lambda: {"features": design_features(), "ridge": 0.1, "method": "auto"},
        {
            "features": bad.features,
            "method": bad.words("auto", "newton", "first-order", "multiplicative", "frank-wolfe"),
        },
    ),
    "theory.optimal_exploration": Spec(
        lambda: {
            "features": design_features(),
            "gaps": torch.rand(N).double(),
            "ridge": 0.1,
            "beta": 1.0,
            "alpha": 0.5,
            "gain": 1.0,
        },
        {
            "features": bad.features,
            "gaps": bad.spoiled(torch.rand(N).double(), torch.rand(3)),
            "gain": bad.non_negative,
        },
    ),
    "theory.propensity_matrix": Spec(
        lambda: {
            "features": design_features(),
            "probabilities": torch.full((N,), 1 / N).double(),
            "ridge": 0.1,
        },
        {
            "features": bad.features,
            "probabilities": bad.spoiled(torch.full((N,), 1 / N), torch.full((3,), 1 / 3)),
        },
    ),
    # acquisitions
    "acquisition.BayesianOverPriors": Spec(
        lambda: {"base": ucb(), "log_weights": torch.zeros(2).double()},
        {"log_weights": bad.st.sampled_from([None, "w", torch.zeros(3), [0.0, 0.0]])},
    ),
    "acquisition.LikeliestPrior": Spec(
        lambda: {"base": ucb(), "log_likelihood": torch.zeros(2).double()},
        {"log_likelihood": bad.st.sampled_from([None, "w", torch.zeros(3), [0.0, 0.0]])},
    ),
    "acquisition.OptimisticOverPriors": Spec(
        lambda: {"base": ucb(), "surviving": torch.ones(2) > 0},
        {"surviving": bad.st.sampled_from(["all", torch.ones(3) > 0, torch.ones(2), [True, True]])},
    ),
    "acquisition.PathwisePointDraw": Spec(
        lambda: {"model": over_points(), "width": 1.0, "time": 1.0, "seeds": (0, 1), "features": 64},
        {
            "width": bad.non_negative,
            "time": bad.numbers(bad.math.isfinite, none=True),
            "seeds": bad.st.sampled_from([None, 1, (), (1,), (0, 1, 2), (0, -1), (0.5, 1), "01", (None, 0)]),
            "features": bad.integers(1).filter(lambda x: x != 64),
        },
    ),
    "acquisition.PointSearch": Spec(
        lambda: {"num_restarts": 2, "raw_samples": 4, "warm_start": True, "options": {}, "initial": 0},
        {
            "num_restarts": bad.count,
            "raw_samples": bad.integers(2),
            "warm_start": bad.st.sampled_from([None, 1, 0.0, "yes", []]),
            "options": bad.st.sampled_from([None, 5, "fast", [50]]),
            "initial": bad.natural,
        },
    ),
    "acquisition.PathwiseThompsonSampling": Spec(
        lambda: {"model": arm_gp(), "seed": 0, "features": 64}, {"features": bad.integers(1)}
    ),
    "acquisition.PlayingProbability": Spec(
        lambda: {"model": arm_gp(), "probabilities": torch.full((2, N), 1 / N).double()},
        {"probabilities": bad.spoiled(torch.full((2, N), 1 / N), torch.rand(3))},
    ),
    "acquisition.ThompsonSampling": Spec(
        lambda: {"model": arm_gp(), "width": 1.0}, {"width": bad.non_negative}
    ),
    "acquisition.UpperConfidenceBound": Spec(
        lambda: {"model": arm_gp(), "width": 1.0}, {"width": bad.non_negative}
    ),
    "acquisition.qUpperConfidenceBound": Spec(
        lambda: {"model": arm_gp(), "width": 1.0}, {"width": bad.non_negative}
    ),
    "models.AtTime": Spec(
        lambda: {"model": over_points(), "time": 1.0}, {"time": bad.numbers(bad.math.isfinite)}
    ),
    "bandits_torch.Domain": Spec(
        lambda: {
            "bounds": DOMAIN.bounds,
            "inequality_constraints": [(torch.tensor([0, 1]), torch.ones(2).double(), 0.1)],
            "fixed_features": {1: 0.5},
        },
        {
            "bounds": bad.bounds,
            "inequality_constraints": bad.constraints,
            "fixed_features": bad.st.sampled_from(
                [
                    *(None, 3, "x", [1], {2: 0.5}, {-1: 0.5}, {"x": 0.5}, {True: 0.5}, {0.0: 1.0}),
                    *({0: 0.5, 1: 0.5}, {1: bad.NAN}, {1: "half"}, {1: None}, {1: torch.ones(2)}),
                ]
            ),
        },
    ),
    # policies
    **{
        f"policies.{name}": Spec(
            lambda: {
                "features": policies.FixedFeatures(design_features(), 2),
                "horizon": T,
                "constants": policies.Constants(),
                "seed": 0,
                "first_replicate": 0,
            },
            {"features": bad.thing, "constants": bad.thing},
        )
        for name in ("OPKB", "AdaOPKB")
    },
    "policies.BatchBKB": Spec(
        lambda: {"model": sketched(), "width": theory.BKBWidth(1.0, 1.0, 0.1)}, {"width": bad.thing}
    ),
    **{
        f"policies.{name}": Spec(
            lambda: {"model": over_priors(), "width": theory.ConstantWidth(1.0)}, {"width": bad.thing}
        )
        for name in ("BayesianPriorPolicy", "LikeliestPriorPolicy")
    },
    "policies.PriorElimination": Spec(
        lambda: {
            "model": over_priors(),
            "width": theory.ConstantWidth(1.0),
            "delta": 0.1,
            "noise_scale": 0.1,
            "xi": "two-sided",
        },
        {"width": bad.thing} | own_scale,
    ),
    "policies.CalibratedOPKB": Spec(
        lambda: (
            {
                "model": arm_gp(),
                "run_length": 1e4,
                "price": 1.0,
                "width": 1.0,
                "first": 0.5,
                "growth": 1.5,
                "design": 0.02,
            }
            | {"seed": 0, "first_replicate": 0}
        ),
        {"width": bad.non_negative, "growth": bad.above_one},
    ),
    "policies.Constants": Spec(
        lambda: (
            {
                "sigma": 1.0,
                "delta": 0.1,
                "c0": 1.0,
                "c1": 0.5,
                "c2": 1.0,
                "c3": 4.0,
                "c4": 0.25,
                "design_share": 0.5,
            }
            | {"first_replay": 0, "reward_scale": 1.0}
        ),
        {
            "delta": bad.share_or_none,
            "c0": bad.positive_or_none,
            "c2": bad.positive_or_none,
            "c4": bad.positive,
            "design_share": bad.numbers(lambda x: 0 <= x <= 1),
            "first_replay": bad.natural,
        },
    ),
    "policies.EventTriggeredRestart": Spec(lambda: {"delta": 0.1, "noise_scale": 0.1}, own_scale),
    "policies.FixedFeatures": Spec(
        lambda: {"features": FEATURES, "replicates": 2}, {"features": bad.features}
    ),
    "policies.IndexPolicy": Spec(
        lambda: {
            "model": arm_gp(),
            "acquisition": acquisition.UpperConfidenceBound,
            "width": theory.ConstantWidth(1.0),
            "forgetting": policies.SlidingWindow(3),
            "seed": 0,
            "first_replicate": 0,
        },
        {"width": bad.things(none=False), "forgetting": bad.st.sampled_from(["window", 3])},
    ),
    "policies.ContinuousIndexPolicy": Spec(
        lambda: {
            "model": over_points(),
            "acquisition": acquisition.UpperConfidenceBound,
            "domain": DOMAIN,
            "width": theory.ConstantWidth(1.0),
            "forgetting": policies.SlidingWindow(3),
            "search": acquisition.PointSearch(1, 4),
            "seed": 0,
            "first_replicate": 0,
        },
        {
            "domain": bad.thing,
            "width": bad.things(none=False),
            "forgetting": bad.st.sampled_from(["window", 3]),
            "search": bad.things(none=True),
        },
    ),
    "policies.ContinuousPriorElimination": Spec(
        lambda: {
            "model": over_points((2, 2)),
            "width": theory.ConstantWidth(1.0),
            "domain": DOMAIN,
            "delta": 0.1,
            "noise_scale": 0.1,
            "xi": "two-sided",
            "search": acquisition.PointSearch(1, 4),
            "seed": 0,
        },
        {"width": bad.thing, "domain": bad.thing, "search": bad.things(none=True)} | own_scale,
    ),
    "policies.LearnedHyperparameters": Spec(
        lambda: {
            "policy": learnable_policy(),
            "every": 5,
            "first": 3,
            "tolerance": 1.0,
            "memory": 4,
            "most": 20,
        },
        {"first": bad.count, "tolerance": bad.numbers(lambda x: x > 0)},
    ),
    "policies.LikelihoodWindow": Spec(
        lambda: {"candidates": (3, 5), "every": 2, "memory": 4, "margin": 1.0},
        {"candidates": bad.windows},
    ),
    "policies.Master": Spec(
        lambda: {
            "base": lambda n: index_policy(),
            "rho": lambda n: 1.0,
            "thresholds": policies.MasterThresholds(1.0),
            "num_arms": N,
            "replicates": 2,
            "seed": 0,
            "first_replicate": 0,
        },
        {"rho": bad.thing, "thresholds": bad.thing},
    ),
    "policies.MasterThresholds": Spec(lambda: {"inflation": 1.0, "rise": 9.0, "fall": 3.0}),
    "policies.NeuralFeatures": Spec(
        lambda: (
            {
                "arms": FEATURES,
                "width": 8,
                "depth": 2,
                "training_steps": 2,
                "regulariser": 0.1,
                "replicates": 2,
            }
            | {"seed": 0, "first_replicate": 0}
        ),
        {"width": bad.count, "arms": bad.features, "depth": bad.integers(2)},
    ),
    "policies.FixedShare": Spec(
        lambda: {
            "prior": torch.ones(3).double(),
            "replicates": 2,
            "share": 0.01,
            "behind": 9.0,
            "memory": 0.9,
        },
        {
            "prior": bad.spoiled(torch.ones(3).double(), torch.zeros(3), -torch.ones(3), torch.ones(2, 3)),
            "share": bad.rate,
            "behind": bad.numbers(lambda x: x > 0),
            "memory": bad.rate,
        },
    ),
    "policies.MemberScale": Spec(
        lambda: {
            "strength": torch.ones(3).double(),
            "learn_offset": torch.tensor([True, False, True]),
            "replicates": 2,
            "memory": 0.9,
            "tail": 5.0,
            "clip": 3.0,
        },
        {
            "strength": st.sampled_from(
                [-torch.ones(3), torch.ones(2, 3), "ones", None, [1.0], torch.tensor([math.nan, 1.0, 1.0])]
            ),
            "learn_offset": st.sampled_from([torch.ones(3), torch.ones(2) > 0, "yes", None, [True]]),
            "memory": bad.share,
            "tail": bad.numbers(lambda x: 2 < x < math.inf),
            "clip": bad.positive,
        },
    ),
    "policies.ModelAveraging": Spec(
        lambda: {"model": over_priors(), "width": 1.0, "plausible": 2.0},
        {"width": bad.non_negative, "plausible": bad.non_negative},
    ),
    "policies.PointAveraging": Spec(
        lambda: {
            "domain": DOMAIN,
            "members": point_members(),
            "width": 1.0,
            "share": 0.01,
            "behind": 9.0,
            "search": acquisition.PointSearch(1, 4),
            "refine_every": 2,
            "refined": 2,
            "rounds": 2,
            "seed": 0,
        },
        {
            "domain": bad.thing,
            "search": bad.things(none=True),
            "members": bad.thing,
            "width": bad.non_negative,
            "share": bad.rate,
            "behind": bad.numbers(lambda x: x > 0),
            "refined": bad.natural,
            "refine_every": bad.count,
            "rounds": bad.count,
        },
    ),
    "policies.PeriodicRestart": Spec(lambda: {"interval": 3}),
    "policies.RandomPolicy": Spec(lambda: {"num_arms": N, "replicates": 2, "seed": 0, "first_replicate": 0}),
    "policies.RegretBalancing": Spec(
        lambda: {
            "policies": [index_policy(), index_policy()],
            "delta": 0.1,
            "noise_scale": 0.1,
            "xi": "two-sided",
        },
        own_scale,
    ),
    "policies.SlidingWindow": Spec(lambda: {"window": 3}),
    # problems
    "problems.GPDraws": Spec(simulated(lengthscale=0.2), KERNEL_NAME | QUIET_OR_NONE),
    "problems.RKHSFunctions": Spec(
        simulated(lengthscale=0.2, sample_noise=0.01),
        KERNEL_NAME | QUIET_OR_NONE | {"sample_noise": bad.positive},
    ),
    "problems.GridDraws": Spec(
        lambda: {
            "side": 4,
            "dim": 2,
            "lengthscale": 0.2,
            "forgetting_rate": 0.0,
            "noise_scale": 0.1,
            "replicates": 2,
            "seed": 0,
        },
        QUIET,
    ),
    "problems.DriftingCosine": Spec(simulated(horizon=T, dim=2, layout="sphere"), QUIET),
    "problems.SwitchingFunctions": Spec(
        simulated(horizon=T, lengthscale=0.2, change="fresh"),
        KERNEL_NAME | QUIET | {"change": bad.words("fresh", "flip", "shift")},
    ),
    "problems.SphereOneSwitch": Spec(simulated(horizon=T), KERNEL_NAME | QUIET),
    "problems.SphereTwoSwitches": Spec(simulated(horizon=T), KERNEL_NAME | QUIET),
    "problems.TVGPDraws": Spec(
        simulated(horizon=T, lengthscale=0.2, forgetting_rate=0.03),
        KERNEL_NAME | QUIET | {"horizon": bad.count_or_none},
    ),
    "problems.MovingPeaks": Spec(
        simulated(horizon=T, period=5, num_peaks=2, shift=0.01, lengthscale=0.3),
        KERNEL_NAME | QUIET | {"shift": bad.rate},
    ),
    "problems.Hills": Spec(
        simulated(num_arms=11, short=1.0, tall=3.0, hill_width=0.01, amplitude=1.0, true_prior=2),
        {"short": bad.finite, "tall": bad.finite, "true_prior": bad.integers(0)},
    ),
    "problems.VarianceStarvation": Spec(simulated(), QUIET_OR_NONE),
    "problems.Rosenbrock": Spec(
        lambda: {"dim": 2, "num_arms": 9, "replicates": 2, "lengthscale": 0.2},
        {"dim": bad.integers(2), "num_arms": bad.count_or_none},
    ),
    "problems.Hartmann3": Spec(
        lambda: {"num_arms": 9, "replicates": 2, "lengthscale": 0.2}, {"num_arms": bad.count_or_none}
    ),
    "problems.StationaryProblem": Spec(
        lambda: {"arms": FEATURES, "functions": torch.rand(2, N).double(), "noise_scale": 0.1},
        {
            "arms": bad.features,
            "functions": bad.spoiled(torch.rand(2, N).double(), torch.rand(2, 3)),
            "noise_scale": bad.non_negative,
        },
    ),
    "problems.Replay": Spec(
        lambda: (
            {"table": torch.rand(30, N).double(), "warm_up": 0.3, "prior_mean": "arm", "noise_fraction": 0.05}
            | {"forgetting_rate": 0.1, "horizon": 10, "replicates": 2}
        ),
        {
            "warm_up": bad.share_or_none,
            "prior_mean": bad.words("arm", "grand").filter(lambda x: not isinstance(x, (int, float))),
            "noise_fraction": bad.share_or_none,
            "forgetting_rate": bad.rate_or_none,
            "horizon": bad.count_or_none,
        },
    ),
    "problems.RewardTable": Spec(
        lambda: {"rewards": torch.rand(6, N).double()},
        {
            "rewards": bad.st.sampled_from(
                [
                    torch.rand(6),
                    torch.zeros(0, 2),
                    torch.zeros(3, 1),
                    torch.full((3, 2), bad.INF),
                    None,
                    "t",
                    [[1.0]],
                ]
            )
        },
    ),
    "problems.fit_forgetting_rate": Spec(
        lambda: {
            "table": torch.rand(8, N).double(),
            "times": torch.arange(8).double(),
            "covariance": COVARIANCE,
            "noise_variance": 0.1,
            "max_rows": 5,
            "max_arms": 3,
        },
        {"times": bad.spoiled(torch.arange(8).double(), torch.arange(3).double(), -torch.arange(8).double())},
    ),
    "problems.fit_forgetting": Spec(
        lambda: {
            "table": draw_tables(COVARIANCE, 0.3, 0.2, torch.arange(80).double(), 1)[:, 0],
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
    "problems.make": Spec(
        lambda: {"name": "gp", "replicates": 2, "seed": 0}, {"name": bad.words(*problems.PROBLEMS)}
    ),
    "problems.needs_data": Spec(lambda: {"name": "gp"}, {"name": bad.words(*problems.PROBLEMS)}),
    "problems.DynamicFunction": Spec(
        lambda: {"function": Branin(), "horizon": T, "noise_scale": 0.1, "replicates": 2},
        QUIET | {"function": bad.thing},
    ),
    "problems.options_of": Spec(lambda: {"name": "gp"}, {"name": bad.words(*problems.PROBLEMS)}),
    "problems.read_table": Spec(dict, {"path": bad.paths}),
    # recipes
    "recipes.random": Spec(
        lambda: recipe()() | {"seed": 0, "first_replicate": 0}, {"kernel": None, "noise_variance": None}
    ),
    "recipes.auto": Spec(
        recipe(width=1.0, share=0.01, behind=9.0, plausible=2.0),
        {
            "width": bad.non_negative,
            "share": bad.rate,
            "behind": bad.numbers(lambda x: x > 0),
            "plausible": bad.non_negative,
            "kernel": bad.covariances.filter(lambda x: x is not None),
            "noise_variance": bad.positive_or_none,
        },
    ),
    "recipes.gp_ucb": Spec(recipe(delta=0.1)),
    "recipes.igp_ucb": Spec(
        recipe(delta=0.1, rkhs_bound=1.0, noise_scale=0.1, width_form="theory"), own_scale
    ),
    "recipes.gp_ts": Spec(
        recipe(delta=0.1, rkhs_bound=1.0, noise_scale=0.1, seed=0, first_replicate=0), own_scale
    ),
    "recipes.gp_ei": Spec(recipe()),
    "recipes.gp_pi": Spec(recipe(margin=0.01), {"margin": bad.finite}),
    "recipes.r_gp_ucb": Spec(recipe(horizon=T, variation_budget=1.0, delta=0.1), WINDOW),
    "recipes.sw_gp_ucb": Spec(recipe(horizon=T, variation_budget=1.0, delta=0.1), WINDOW),
    "recipes.tv_gp_ucb": Spec(
        recipe(forgetting_rate=0.1, time_kernel=None, delta=0.1),
        {"time_kernel": bad.thing.filter(lambda x: x is not None)},
    ),
    "recipes.ui_gp_ucb": Spec(recipe(drift_variance=0.1, delta=0.1), {"drift_variance": bad.positive}),
    "recipes.et_gp_ucb": Spec(recipe(delta=0.1, noise_scale=0.1), own_scale),
    **{
        f"recipes.{name}": Spec(
            recipe(
                delta=0.1,
                noise_scale=0.1,
                rkhs_bound=1.0,
                oversampling=2.0,
                growth=2.0,
                seed=0,
                preset="practical",
            ),
            own_scale
            | {"growth": bad.at_least_one, "preset": bad.words("practical", "theory"), "arms": bad.features},
        )
        for name in ("bkb", "bbkb")
    },
    **{f"recipes.{name}": Spec(over(delta=0.1)) for name in ("bayes_gp_ucb", "mle_gp_ucb")},
    **{
        f"recipes.{name}": Spec(over(delta=0.1, noise_scale=0.1, xi="two-sided"), own_scale)
        for name in ("pe_gp_ucb", "regret_balancing")
    },
    "recipes.known_prior_gp_ucb": Spec(
        lambda: PRIOR_RECIPE | {"prior": priors()[0], "horizon": T, "replicates": 2, "delta": 0.1}
    ),
    **{
        f"recipes.{name}": Spec(
            recipe(horizon=T, constants="tuned", seed=0, first_replicate=0),
            {"constants": bad.words("tuned", "theory", "practical")},
        )
        for name in ("opkb", "ada_opkb")
    },
    **{
        f"recipes.{name}": Spec(
            recipe(horizon=T, hidden=8, depth=2, training_steps=2, regulariser=0.1),
            {"kernel": None, "noise_variance": None, "arms": bad.features, "depth": bad.integers(2)},
        )
        for name in ("opnn", "ada_opnn")
    },
    "recipes.ada_opkb_calibrated": Spec(recipe(run_length=1e4, seed=0)),
    "recipes.master_gp_ucb": Spec(
        recipe(horizon=T, thresholds="calibrated", delta=0.1, noise_scale=0.1),
        {"thresholds": bad.words("calibrated", "theory")} | own_scale,
    ),
    "recipes.w_gp_ucb": Spec(recipe(discount=0.99, delta=0.1), {"discount": bad.share}),
    "recipes.memory_length": Spec(
        lambda: {"model": arm_gp(), "horizon": T, "variation_budget": 1.0},
        {"variation_budget": WINDOW["variation_budget"]},
    ),
    "recipes.options_of": Spec(lambda: {"name": "gp_ucb"}, {"name": bad.words(*recipes.RECIPES)}),
    "recipes.build": Spec(
        lambda: {"name": "gp_ucb", "problem": problems.make("gp", num_arms=5), "replicates": 1, "horizon": T},
        {"name": bad.words(*recipes.RECIPES)},
    ),
    "policies.AskTell": Spec(lambda: {"policy": index_policy()}),
    "bandits_torch.save_policy": Spec(
        lambda: {"path": FILES / "saved", "policy": policies.RandomPolicy(5), "overwrite": True},
        {"path": None},
    ),
    "bandits_torch.load_policy": Spec(
        lambda: {"path": saved(), "policy": policies.RandomPolicy(5), "on_difference": "error"},
        {"path": None, "on_difference": bad.words("error", "file", "mine")},  # the system speaks of a path
    ),
    "bandits_torch.run": Spec(
        lambda: {
            "policy": policies.RandomPolicy(5),
            "problem": problems.make("gp", num_arms=5),
            "horizon": 3,
            "seed": 0,
        }
    ),
}
SPECS |= {
    f"bandits_torch.{name}": SPECS[room]
    for name, room in {
        "ArmGP": "models.ArmGP",
        "AskTell": "policies.AskTell",
        "OnlineGP": "models.OnlineGP",
        "IndexPolicy": "policies.IndexPolicy",
        "ThompsonSampling": "acquisition.ThompsonSampling",
        "UpperConfidenceBound": "acquisition.UpperConfidenceBound",
        "make": "problems.make",
    }.items()
}
LEFT_OUT = {
    "bandits_torch.History": "a record that the loop makes",
    "models.CandidatePrior": "a record; the model over it checks it: bad ones are in BAD_PRIORS",
    "policies.Choice": "a record that policies make",
    "policies.Question": "a record that AskTell makes",
    "policies.Observation": "a record; the policy that learns it checks it",
    "problems.ForgettingFit": "a record that fit_forgetting makes",
    "problems.Knowledge": "a record; the recipe that reads it checks it",
    "theory.Design": "a record that the solvers make",
    "theory.RealisedGain": "takes nothing",
    "policies.KeepEverything": "takes nothing",
    "policies.ForgettingRule": "takes nothing",
    "problems.describe": "takes nothing",
    "problems.gaussian_noise": "a formula; what it takes has been checked by the problem that calls it",
    "problems.StandardFunction": "its argument is a BoTorch test function; its options are those of Rosenbrock",
    "problems.RegressionTable": NO_DATA,
    "problems.fetch": "downloads: tests/problems/test_download.py",
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
    "table": ["rewards"],
}
ALIASES = {name for name in SPECS if name.startswith("bandits_torch.") and name != "bandits_torch.run"}


def kind_of(name: str, argument: str) -> Any:
    """Strategy of bad values; None for an argument that takes anything."""
    spec = SPECS[name]
    return spec.kinds[argument] if argument in spec.kinds else KINDS.get(argument)


def cases() -> list[tuple[str, str]]:
    """(name, argument) of everything that is fuzzed."""
    return [
        (name, argument)
        for name, spec in SPECS.items()
        if name not in ALIASES
        for argument in dict.fromkeys([*spec.valid(), *spec.kinds])
        if argument in (set(spec.valid()) | {"path"}) and kind_of(name, argument) is not None
    ]

"""Every acquisition function of BoTorch, found in its modules, tried on every model of ours beside a ``SingleTaskGP``.

``python -m tests.reference.acquisition_table`` writes ``docs/acquisitions.md``. An acquisition works on a model if its
values are those it has on a ``SingleTaskGP`` with the same data, kernel and noise, and BoTorch's optimiser over points
or over a list finds its best.
"""

import importlib
import inspect
import pkgutil
import re
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botorch
import botorch.acquisition
import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.acquisition.acquisition import OneShotAcquisitionFunction
from botorch.acquisition.multioutput_acquisition import MultiOutputAcquisitionFunction
from botorch.acquisition.objective import LinearMCObjective
from botorch.acquisition.penalized import L2Penalty
from botorch.exceptions import UnsupportedError
from botorch.models.model import Model, ModelList
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning
from torch import Tensor

from tests.reference.botorch_twins import F64, MODELS, Case

PAGE = Path(__file__).parents[2] / "docs" / "acquisitions.md"
# -- acquisitions ------------------------------------------------------------------------------------------


def found() -> dict[str, type[AcquisitionFunction]]:
    """Every acquisition that BoTorch's modules define, by name, abstract ones left out."""
    classes = {}
    for info in pkgutil.walk_packages(botorch.acquisition.__path__, "botorch.acquisition."):
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            is_acquisition = inspect.isclass(thing) and issubclass(thing, AcquisitionFunction)
            own = is_acquisition and thing.__module__ == info.name and not name.startswith("_")
            if own and not inspect.isabstract(thing):
                classes[name] = thing
    return dict(sorted(classes.items(), key=lambda item: item[0].lower()))


def arguments(case: Case, model: Model) -> dict[str, Any]:
    """A value for every name of an argument that BoTorch's constructors need."""
    d, choices = case.choices.shape[-1], case.choices
    outcomes = torch.tensor([[0.2, 0.5], [0.6, 0.1]], **F64)
    ucb = UpperConfidenceBound(model, 2.0) if model.num_outputs == 1 else None
    return {
        **dict.fromkeys(["model", "pref_model"], model),
        "best_f": 0.3,
        "beta": 2.0,
        **dict.fromkeys(["X_observed", "X_baseline"], case.observed),
        "mc_points": choices,
        # BoTorch adds the inputs observed, which some of ours do not keep: their candidates are all arms, seen or not
        "candidate_set": choices if keeps_data(model) else torch.cat([choices, case.observed]),
        **dict.fromkeys(["acq_function", "raw_acqf", "base_value_function"], ucb),
        "acqfs": [ucb, ucb],
        "d": d,
        "columns": [0],
        "values": [float(choices[1, 0])],
        "objective": LinearMCObjective(torch.ones(1, **F64)),
        "weights": torch.ones(1, **F64),
        "objective_index": 0,
        "batch_sizes": [1],
        "optimal_inputs": choices[:2],
        "optimal_outputs": torch.tensor([[1.2], [1.5]], **F64),
        "prior_module": lambda X: (-X.square().sum(-1)).exp(),
        "proximal_weights": torch.full((d,), 2.0, **F64),
        "penalty_func": L2Penalty(choices[2]),
        "regularization_parameter": 0.1,
        "project": lambda X: X,
        "ref_point": torch.tensor([-1.0, -1.0], **F64),
        "partitioning": NondominatedPartitioning(torch.full((2,), -1.0, **F64), outcomes),
        # how many samples are taken, where the default is dear
        "num_fantasies": 4,
        "num_mv_samples": 4,
        "num_pareto": 2,
        "cache_root": False,  # another way to draw the same samples, on GPyTorch's models alone
    }


def keeps_data(model: Model) -> bool:
    return hasattr(model, "train_inputs")


OPTIONAL = ("num_fantasies", "num_mv_samples", "num_pareto", "cache_root")


@dataclass
class Recipe:
    """How one acquisition is made where its arguments' names do not tell."""

    outputs: int = 1
    more: Callable[[Case, Model], dict[str, Any]] = lambda case, model: {}
    q: int = 1
    keep: Callable[[Tensor], Tensor] = lambda X: X


def within(case: Case, model: Model) -> dict[str, Any]:
    return {"constraints": {0: (-0.5, 1.5)}}


def a_callable(case: Case, model: Model) -> dict[str, Any]:
    return {"constraints": [lambda Y: Y[..., 0] - 0.5]}


def limited(case: Case, model: Model) -> dict[str, Any]:
    return {"constraints": {1: (None, 0.5)}}


RECIPES = {
    "ConstrainedExpectedImprovement": Recipe(2, limited),
    "LogConstrainedExpectedImprovement": Recipe(2, limited),
    "LogProbabilityOfFeasibility": Recipe(1, within),
    "qLogProbabilityOfFeasibility": Recipe(1, a_callable),
    **dict.fromkeys(["PairwiseMCPosteriorVariance", "AnalyticExpectedUtilityOfBestOption"], Recipe(q=2)),
    **dict.fromkeys(
        ["PairwiseBayesianActiveLearningByDisagreement", "qExpectedUtilityOfBestOption"], Recipe(q=2)
    ),
    "MultiOutputPosteriorMean": Recipe(2),
    "qMultiStepLookahead": Recipe(more=lambda case, model: {"num_fantasies": [4]}),
    "qJointEntropySearch": Recipe(more=lambda case, model: {"condition_noiseless": False}),
    "ProximalAcquisitionFunction": Recipe(more=lambda case, model: {"beta": 1.0}),
    "qLogNParEGO": Recipe(2),
    "qMultiObjectivePredictiveEntropySearch": Recipe(
        1, lambda case, model: {"pareto_sets": case.choices[:4].reshape(2, 2, -1)}
    ),
    "qLowerBoundMultiObjectiveMaxValueEntropySearch": Recipe(
        1, lambda case, model: {"hypercell_bounds": torch.tensor([[[[-9.0]], [[1.2]]]] * 2, **F64)}
    ),
    "qLowerBoundMultiObjectiveJointEntropySearch": Recipe(
        1,
        lambda case, model: {
            "pareto_sets": case.choices[:2].unsqueeze(-2),
            "pareto_fronts": torch.tensor([[[1.2]], [[1.5]]], **F64),
            "hypercell_bounds": torch.tensor([[[[-9.0]], [[1.2]]], [[[-9.0]], [[1.5]]]], **F64),
        },
    ),
    "FixedFeatureAcquisitionFunction": Recipe(keep=lambda X: X[..., 1:]),
    "qHypervolumeKnowledgeGradient": Recipe(2),
    "qMultiFidelityHypervolumeKnowledgeGradient": Recipe(
        2, lambda case, model: {"target_fidelities": {-1: float(case.choices[-1, -1])}}
    ),
}


def build(name: str, cls: type[AcquisitionFunction], case: Case, ours: bool) -> AcquisitionFunction:
    recipe = RECIPES.get(name, Recipe(2 if "ref_point" in inspect.signature(cls).parameters else 1))
    model = case.model if ours else case.twin
    if recipe.outputs == 2:
        model = ModelList(model, model)
    known = arguments(case, model) | recipe.more(case, model)
    given = {}
    for p in inspect.signature(cls.__init__).parameters.values():
        required = p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if p.name == "self" or not (required or p.name in OPTIONAL or p.name in recipe.more(case, model)):
            continue
        given[p.name] = known[p.name]
    torch.manual_seed(0)
    return cls(**given)


# -- one try -----------------------------------------------------------------------------------------------


def batch(acquisition: AcquisitionFunction, name: str, case: Case) -> Tensor:
    """Inputs n x q x d: every choice first in a batch of its own, with as many more as the acquisition takes."""
    recipe = RECIPES.get(name, Recipe())
    q = recipe.q
    if isinstance(acquisition, OneShotAcquisitionFunction):
        q = acquisition.get_augmented_q_batch_size(1)
    choices = case.choices
    # At an arm it has seen, improvement is a tiny difference of samples.
    if hasattr(acquisition, "X_baseline"):
        choices = choices[(choices.unsqueeze(1) != case.observed).any(-1).all(-1)]
    n = len(choices)
    turns = [torch.roll(choices, -2 * k, 0) for k in range(q)]
    return recipe.keep(torch.stack(turns, -2).reshape(n, q, -1))


def evaluate(name: str, cls: type[AcquisitionFunction], case: Case, ours: bool) -> tuple[Any, Tensor, Tensor]:
    acquisition = build(name, cls, case, ours)
    X = batch(acquisition, name, case)
    torch.manual_seed(1)
    return acquisition, X, acquisition(X).detach()


def optimise(acquisition: AcquisitionFunction, name: str, X: Tensor, values: Tensor, case: Case) -> None:
    """Raise AssertionError unless BoTorch's optimiser finds the best choice, or a point as good as the best."""
    torch.manual_seed(2)
    q, d = X.shape[-2:]
    one_shot = isinstance(acquisition, OneShotAcquisitionFunction)
    if case.arms:
        choices = X.squeeze(-2) if q == 1 else X[:, 0]
        best, value = optimize_acqf_discrete(acquisition, q=1, choices=choices)
        assert torch.isfinite(value).all(), "a value that is not finite"
        assert torch.equal(best, choices[values.argmax()].reshape(1, -1)), "another arm than the best"
        return
    bounds = torch.tensor([[0.0] * d, [1.0] * d], **F64)
    found, value = optimize_acqf(
        acquisition,
        bounds,
        q=1 if one_shot else q,
        num_restarts=len(X),
        batch_initial_conditions=X,
        options={"maxiter": 3},
        return_best_only=True,
    )
    assert torch.isfinite(found).all(), "a point that is not finite"
    assert value >= values.max() - 1e-6, "a worse point than it began with"


def waiting(name: str, cls: type[AcquisitionFunction], case: Case, ours: bool) -> Tensor:
    """Values with one choice pending, at the others."""
    acquisition = build(name, cls, case, ours)
    X = batch(acquisition, name, case)
    torch.manual_seed(1)
    acquisition.set_X_pending(X[-1, :1])
    return acquisition(X[:-1]).detach()


def compare(name: str, cls: type[AcquisitionFunction], case: Case, values: Tensor) -> str:
    """Empty if values are BoTorch's, also with pending points where BoTorch knows them, else what differs."""
    _, _, theirs = evaluate(name, cls, case, False)
    if not torch.allclose(values, theirs, rtol=1e-5, atol=1e-6):
        return f"values differ by {float((values - theirs).abs().max()):.1e}"
    if RECIPES.get(name, Recipe()).q == 2:  # of pairs there is none half chosen
        return ""
    try:
        theirs = waiting(name, cls, case, False)
    except (UnsupportedError, NotImplementedError, RuntimeError):
        return ""
    try:
        values = waiting(name, cls, case, True)
    except Exception as error:  # whatever it is, it is reported
        return f"with pending points: {type(error).__name__}: {error}"
    same = torch.allclose(values, theirs, rtol=1e-5, atol=1e-6)
    return "" if same else f"values with pending points differ by {float((values - theirs).abs().max()):.1e}"


YES = "yes"
REASONS = {  # what is said where something goes wrong: why, and what to do
    "one-shot acquisition": "values agree; BoTorch optimises one-shot acquisition functions over continuous inputs, "
    "not over a list (`SketchedGP.off_arms` takes such inputs)",
    "multiple of 2|Expected X to be `batch_shape x q=2|pairs": "values agree; it scores pairs, and "
    "`optimize_acqf_discrete` scores single arms",
    "several values": "values agree, one per outcome: for BoTorch's multi-objective optimisers",
    "Only single-output `SingleTaskGP`": "BoTorch requires a `SingleTaskGP`; `qLogNoisyExpectedImprovement` is the "
    "same for any model",
    "Fully Bayesian acquisition functions": "BoTorch requires a fully Bayesian model, with sampled hyperparameters; "
    "`BayesianOverPriors` averages over ours",
    "no input left": "the arm's index is the only input; the time of a drifting `ArmGP` can be fixed (`columns=[1]`)",
    "datapoints": "it needs a model of pairwise comparisons, such as `PairwiseGP`",
    "train_inputs": "it reads single observations; this model keeps only their sums",
}


def attempt(name: str, cls: type[AcquisitionFunction], case: Case) -> str:
    """``YES`` if the acquisition works on the model, else what goes wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            acquisition, X, ours = evaluate(name, cls, case, True)
        except Exception as error:  # whatever it is, it is reported
            return f"{type(error).__name__}: {error}"
        if not (name == "PathwiseThompsonSampling" and case.arms):  # BoTorch has no features of such kernels
            said = compare(name, cls, case, ours)
            if said:
                return said
        if isinstance(acquisition, MultiOutputAcquisitionFunction):
            return "several values"
        if X.shape[-1] == 0:
            return "no input left"
        if case.arms and X.shape[-2] == 2 and RECIPES.get(name, Recipe()).q == 2:
            return "pairs"
        try:
            optimise(acquisition, name, X, ours, case)
        except Exception as error:
            return f"optimiser: {type(error).__name__}: {error}"
    return YES


def reason(said: str) -> int:
    """Which of ``REASONS`` explains this, from 1; 0 if it works, ValueError if none does."""
    if said == YES:
        return 0
    for number, pattern in enumerate(REASONS, 1):
        if re.search(pattern, said):
            return number
    raise ValueError(f"no reason is known for: {said}")


HEAD = """# BoTorch's acquisition functions on our models

The table covers every acquisition function of BoTorch {version} on each of our models. *Yes* means that three checks
passed: it can be constructed; its values equal those on a `SingleTaskGP` with the same data, kernel and noise, with and
without a pending point; and BoTorch's optimiser (`optimize_acqf` over points, `optimize_acqf_discrete` over arms) finds
the maximum. A number refers to a reason below the table. `python -m tests.reference.acquisition_table` generates this
page, and a test checks that it is up to date.

The models have batch shape (), the only one that BoTorch's entropies and pathwise draws support. *At a time* means
`bandits_torch.models.AtTime`: a model with a kernel over space and time, viewed at one moment. Without it, a drifting
model works where the acquisition function uses only its given inputs, with time in the last column. Acquisition
functions that add the observed inputs (max-value entropies, GIBBON, noisy improvements over `train_inputs`) then refer
to the function at the times of observation. An `ArmGP`, which predicts only the present, refuses them.

"""

NOTES = """
Settings of the comparison: acquisition functions of two outcomes get a `ModelList` of two models. `qJointEntropySearch`
uses `condition_noiseless=False`, since models over arms have one noise variance (an `OnlineGP` also supports the
default). Noisy improvements use `cache_root=False`, so both models draw the same samples.
`PathwiseThompsonSampling` over arms is an exact draw and has no `SingleTaskGP` to compare with, because BoTorch has no
random features for such kernels. `WeightedGP` has discount 1 and `SketchedGP` has a dictionary of every arm pulled,
which makes both exact.

For joint batches with a width per replicate, use `bandits_torch.acquisition.qUpperConfidenceBound`.
"""


def column(label: str, names: Collection[str] | None = None) -> dict[str, str]:
    """What the page says of these acquisitions (None: of every one) on a model, from a try of each."""
    tried = {name: cls for name, cls in found().items() if names is None or name in names}
    cells = {name: reason(attempt(name, cls, MODELS[label]())) for name, cls in tried.items()}
    return {name: str(cell) if cell else "yes" for name, cell in cells.items()}


def page(columns: dict[str, dict[str, str]]) -> str:
    """The page, from the columns of all models."""
    lines = ["| acquisition | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| `{name}` | " + " | ".join(of[name] for of in columns.values()) + " |" for name in found()]
    reasons = [f"{number}. {text}" for number, text in enumerate(REASONS.values(), 1)]
    version = ".".join(botorch.__version__.split(".")[:2])
    return HEAD.format(version=version) + "\n".join([*lines, "", *reasons]) + "\n" + NOTES


def written() -> dict[str, dict[str, str]]:
    """The columns of the page as it is written."""
    rows = [
        line.strip("|").split("|")
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line[:1] == "|"
    ]
    cells = [[cell.strip() for cell in row] for row in rows]
    return {label: {row[0].strip("`"): row[k] for row in cells[2:]} for k, label in enumerate(cells[0]) if k}


if __name__ == "__main__":
    PAGE.write_text(page({label: column(label) for label in MODELS}), encoding="utf-8")

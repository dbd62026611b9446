"""GP-UCB over arms as a BoTorch user would write it: two ways to keep the model, two ways to score the arms."""

import warnings
from collections.abc import Callable
from typing import cast

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from gpytorch.means import ZeroMean
from torch import Tensor

from benchmarks.speed.workload import NOISE_VARIANCE, WIDTH, prior

Score = Callable[[UpperConfidenceBound, Tensor], int]
Learn = Callable[[SingleTaskGP, Tensor, Tensor], SingleTaskGP]


def gp(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """Exact GP on X (t x d), Y (t x 1): the benchmark's prior and noise, outcomes as they are, ready to predict."""
    with warnings.catch_warnings():  # outcomes are on the prior's scale, not standardised
        warnings.simplefilter("ignore", InputDataWarning)
        model = SingleTaskGP(
            X,
            Y,
            train_Yvar=torch.full_like(Y, NOISE_VARIANCE),
            covar_module=prior().to(X),
            mean_module=ZeroMean(),
            outcome_transform=None,
        )
    return model.eval()


def ucb(model: SingleTaskGP) -> UpperConfidenceBound:
    """BoTorch's UCB, whose beta is the width squared."""
    return UpperConfidenceBound(model, beta=WIDTH**2)


def score_in_one_call(acquisition: UpperConfidenceBound, arms: Tensor) -> int:
    """Best arm from one call on A x 1 x d."""
    return int(acquisition(arms.unsqueeze(-2)).argmax())


def score_discrete(acquisition: UpperConfidenceBound, arms: Tensor) -> int:
    """Best arm from ``optimize_acqf_discrete``, which returns the point and not its number."""
    point, _ = optimize_acqf_discrete(acquisition, q=1, choices=arms)
    return int((arms == point).all(-1).to(torch.uint8).argmax())


def rebuild(model: SingleTaskGP, x: Tensor, y: Tensor) -> SingleTaskGP:
    """A new model on the data with (x, y), 1 x d and 1 x 1, at their end."""
    return gp(torch.cat([model.train_inputs[0], x]), torch.cat([model.train_targets.unsqueeze(-1), y]))


def condition(model: SingleTaskGP, x: Tensor, y: Tensor) -> SingleTaskGP:
    """``condition_on_observations``, which keeps what the model has cached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)
        conditioned = model.condition_on_observations(x, y, noise=torch.full_like(y, NOISE_VARIANCE))
    return cast(SingleTaskGP, conditioned)


WAYS: dict[str, tuple[Learn, Score]] = {
    "rebuild, A x 1 x d": (rebuild, score_in_one_call),
    "rebuild, optimize_acqf_discrete": (rebuild, score_discrete),
    "condition, A x 1 x d": (condition, score_in_one_call),
    "condition, optimize_acqf_discrete": (condition, score_discrete),
}

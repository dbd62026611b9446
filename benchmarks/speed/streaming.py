"""A fitted BoTorch model that goes on learning: in place, conditioned again and again, or built anew at each step."""

import copy
import warnings
from typing import Any, cast

import pandas as pd
import torch
from botorch import fit_gpytorch_mll
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from bandits_torch import OnlineGP
from benchmarks.speed.measuring import at_work
from benchmarks.speed.page import Settings

DIM, PLACES = 3, 200


def measure(settings: Settings) -> pd.DataFrame:
    """All ways learn the same outcomes and predict at the same points, interleaved, after one fit."""
    first, steps = (20, 5) if settings.fast else (100, 200)
    X, Y = _data(first, 0)
    fitted = SingleTaskGP(X, Y, input_transform=Normalize(DIM))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(fitted.likelihood, fitted))
    fitted.posterior(X)  # condition_on_observations needs what it caches
    ours, conditioned = OnlineGP.from_botorch(fitted), fitted
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        x, y = _data(1, 1 + step)
        places = _data(PLACES, 1000 + step)[0].unsqueeze(-2)
        before = at_work("cpu")
        ours.observe(x, y)
        found = [_predicted(ours, places)]
        seconds = [at_work("cpu") - before]
        before = at_work("cpu")
        conditioned = cast(SingleTaskGP, conditioned.condition_on_observations(x, y))
        found.append(_predicted(conditioned, places))
        seconds.append(at_work("cpu") - before)
        X, Y = torch.cat([X, x]), torch.cat([Y, y])
        before = at_work("cpu")
        found.append(_predicted(_anew(fitted, X, Y), places))
        seconds.append(at_work("cpu") - before)
        unit = float(fitted.outcome_transform.stdvs)
        for way, time, (mean, variance) in zip(WAYS, seconds, found, strict=True):
            off = (mean - found[-1][0]).abs().max() / unit, (variance - found[-1][1]).abs().max() / unit**2
            row = {"way": way, "observations": len(X), "seconds": time}
            rows.append(row | {"mean_off": float(off[0]), "variance_off": float(off[1])})
    return pd.DataFrame(rows)


WAYS = ("OnlineGP.from_botorch, observe", "condition_on_observations", "a new SingleTaskGP")


def _data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = 100 * torch.rand(count, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    return X, 5000 + 300 * torch.sin(X / 20).sum(-1, keepdim=True) + 30 * noise


@torch.no_grad()
def _predicted(model: Any, places: Tensor) -> tuple[Tensor, Tensor]:
    posterior = model.posterior(places)
    return posterior.mean, posterior.variance


def _anew(fitted: SingleTaskGP, X: Tensor, Y: Tensor) -> SingleTaskGP:
    """Plain BoTorch on these data with the hyperparameters and transforms of the fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)
        parts = (fitted.likelihood, fitted.covar_module, fitted.mean_module)
        gp = SingleTaskGP(X, fitted.outcome_transform(Y)[0], None, *parts, outcome_transform=None)
    gp.outcome_transform = fitted.outcome_transform
    gp.input_transform = copy.deepcopy(fitted.input_transform)
    return gp.eval()

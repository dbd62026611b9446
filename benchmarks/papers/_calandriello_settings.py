"""Which setting do the published regrets come from? Exact UCB on several kinds of functions, under several widths."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bandits_torch import loop
from bandits_torch.acquisition import UpperConfidenceBound
from bandits_torch.models import ArmGP, LeverageSampling, SketchedGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.problems import GPDraws
from bandits_torch.theory import BKBWidth, ConstantWidth, RealisedInformationWidth

# kind: (layout of the arms, RKHS function of 20 centres in place of a draw of the GP, largest |f| in place of its own)
_KINDS = {
    "GP draw, max 1": ("uniform", False, 1.0),
    "GP draw": ("uniform", False, None),
    "GP draw, max 1, grid": ("grid", False, 1.0),
    "RKHS, max 1": ("uniform", True, 1.0),
    "RKHS": ("uniform", True, None),
}


def compare(fast: bool, noise: float, noise_variance: float, delta: float) -> pd.DataFrame:
    """Mean cumulative regret after T = 1 000, one row for each kind of function, one column for each width."""
    horizon, replicates = (10, 2) if fast else (1000, 3)
    root = noise_variance**0.5
    # (width, epsilon, which sets alpha = (1 + eps) / (1 - eps) in BKB's)
    widths: dict[str, tuple[Any, float]] = {
        "sqrt(2)": (ConstantWidth(2**0.5), 0.5),
        "realised": (RealisedInformationWidth(1.0, noise, delta), 0.5),
        "realised, R for R/sqrt(lambda)": (RealisedInformationWidth(1.0, noise * root, delta), 0.5),
        "BKB": (BKBWidth(1.0, noise, delta, form="printed"), 0.5),
        "BKB, alpha 1": (BKBWidth(1.0, noise, delta, form="printed"), 1e-9),
        "BKB, alpha 1, no factor 2": (BKBWidth(1.0, noise / 2, delta, form="printed"), 1e-9),
    }
    rows = []
    for kind, (layout, rkhs, largest) in _KINDS.items():
        problem = GPDraws(
            num_arms=1024 if layout == "grid" else 1000,
            dim=2,
            lengthscale=0.2,
            layout=layout,
            noise_scale=noise,
            seed=0,
            replicates=replicates,
        )
        if rkhs:
            problem.functions = _rkhs_functions(problem, replicates)
        if largest is not None:
            problem.functions = largest * problem.functions / problem.functions.abs().amax(-1, keepdim=True)
        row: dict[str, Any] = {"function": kind}
        for name, (width, epsilon) in widths.items():
            given = (problem.arms, problem.knowledge.kernel, noise_variance)
            if isinstance(width, BKBWidth):  # which a sketch alone has, here of all arms pulled
                exact = {"sampling": LeverageSampling(1e12, 1.0, epsilon), "batch_shape": (replicates,)}
                model: ArmGP | SketchedGP = SketchedGP(*given, **exact)
            else:
                model = ArmGP(*given, batch_shape=(replicates,))
            history = loop.run(
                IndexPolicy(model, UpperConfidenceBound, width=width), problem, horizon, capture="auto"
            )
            row[name] = round(float(history.regret.sum(-1).mean()), 1)
        print("settings:", row, flush=True)
        rows.append(row)
    return pd.DataFrame(rows)


def _rkhs_functions(problem: GPDraws, replicates: int) -> Tensor:
    """sum_j a_j k(c_j, .) with 20 random arms c_j and a_j uniform on [-1, 1], (replicates, N)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randint(problem.num_arms, (replicates, 20), generator=generator)
    weights = 2 * torch.rand(replicates, 1, 20, generator=generator, dtype=torch.float64) - 1
    covariance = problem.knowledge.kernel(problem.arms[centres], problem.arms).to_dense()
    return (weights @ covariance).squeeze(1).detach()

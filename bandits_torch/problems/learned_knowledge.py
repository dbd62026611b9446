"""What the past rows of a table tell of the arms before the first step: covariance, noise, forgetting rate, norm."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.arms import ArmCovarianceKernel, estimate_covariance
from bandits_torch.problems.forgetting_fit import fit_forgetting_rate
from bandits_torch.problems.joint_fit import ForgettingFit, fit_forgetting, without_noise
from bandits_torch.problems.problem import Knowledge
from bandits_torch.problems.simulated import regularised_norm
from bandits_torch.problems.tables import RewardTable

_NORM_ROWS = 100  # that the bound on the RKHS norm is taken over


def knowledge_from(
    past: RewardTable,
    warm_up: float | None,
    prior_mean: str | float,
    noise_fraction: float | None,
    forgetting_rate: float | None,
) -> tuple[Knowledge, ForgettingFit | None]:
    """What ``Replay`` knows beforehand (its docstring says what), and the fit it came from unless the noise was given.

    ``warm_up``: the share of the table that the past rows are, which errors then name; None: they are its ``history``.

    Raises ValueError for an arm with fewer than two rewards, rewards that never vary, and numbers out of range.
    """
    history, times = past.rewards, past.times
    assert times is not None
    rewards = (~torch.isnan(history)).sum(0)
    poor = [past.arm_names[n] for n in (rewards < 2).nonzero().squeeze(-1).tolist()]
    name, rows = ("history", "a table") if warm_up is None else ("warm_up", "a share of the rows")
    validation.require(
        not poor, name, poor, f"{rows} with two or more rewards of every arm (these have fewer)"
    )
    if forgetting_rate is not None:
        validation.below_one("forgetting_rate", forgetting_rate)
    covariance, fit = estimate_covariance(history), None
    varies = float(covariance.diagonal().mean()) > 0
    validation.require(
        varies, name, history if warm_up is None else warm_up, f"{rows} with rewards that vary"
    )
    if noise_fraction is None:
        fit = fit_forgetting(history, times, covariance)
        covariance, noise_variance = fit.covariance, fit.noise_variance
        rate = fit.forgetting_rate if forgetting_rate is None else forgetting_rate
    else:
        validation.probability("noise_fraction", noise_fraction)
        noise_variance = noise_fraction * float(covariance.diagonal().mean())
        covariance = without_noise(covariance, noise_variance)
        rate = (
            fit_forgetting_rate(history, times, covariance, noise_variance)
            if forgetting_rate is None
            else forgetting_rate
        )
    mean = _prior_mean(history, prior_mean)
    knowledge = Knowledge(
        kernel=ArmCovarianceKernel(covariance, active_dims=(0,)),
        noise_variance=noise_variance,
        prior_mean=mean,
        rkhs_bound=_largest_norm(history - mean, covariance, noise_variance),
        forgetting_rate=rate,
    )
    return knowledge, fit


def _prior_mean(history: Tensor, asked: str | float) -> float | Tensor:
    if not isinstance(asked, str):
        return validation.finite_number("prior_mean", asked)
    validation.require(asked in ("arm", "grand"), "prior_mean", asked, "'arm', 'grand' or a number")
    arm_means = history.nanmean(0)
    return arm_means if asked == "arm" else float(arm_means.mean())


def _largest_norm(centred: Tensor, covariance: Tensor, noise_variance: float) -> float:
    """Largest norm of a row's fit, over at most 100 rows evenly spread; a fit leaves missing entries out."""
    centred = centred[~torch.isnan(centred).all(-1)]
    picked = torch.linspace(0, len(centred) - 1, min(len(centred), _NORM_ROWS)).round().long()
    rows = centred[picked]
    seen = ~torch.isnan(rows)
    complete = seen.all(-1)
    norms = [regularised_norm(covariance, rows[complete], noise_variance)]
    for row, held in zip(rows[~complete], seen[~complete], strict=True):
        norms.append(regularised_norm(covariance[held][:, held], row[held], noise_variance).reshape(1))
    return float(torch.cat(norms).max())

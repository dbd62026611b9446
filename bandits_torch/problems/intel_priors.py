"""The Intel laboratory's temperatures with a candidate prior from every earlier day."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.arms import estimate_covariance
from bandits_torch.models.candidate_prior import CandidatePrior
from bandits_torch.problems.datasets import IntelTemperature
from bandits_torch.problems.forgetting_fit import fit_forgetting_rate
from bandits_torch.problems.joint_fit import without_noise
from bandits_torch.problems.problem import gaussian_noise
from bandits_torch.problems.registration import named
from bandits_torch.streams import ReplicateStreams

_STEPS_A_DAY = 144


@named("intel-temperature-priors")
class IntelTemperaturePriors(IntelTemperature):
    """Find the hottest spot of the Intel laboratory, with a candidate prior from every earlier day.

    The second experiment of Ziomek et al. (2024), section 7: on 14 March 2004 there are 13 priors, one from each
    earlier day of the record, with kernel Cov(i, i') (1 - eps)^{|t - t'|/2}: Cov is the covariance between sensors over
    that day's readings, shrunk towards independent sensors (``estimate_covariance``), minus the noise, and eps is that
    day's rate of greatest likelihood (``fit_forgetting_rate``). A day on which an arm has fewer than two readings gives
    no prior.

    The paper leaves two choices open. Its priors have mean zero, but temperatures are about 22 degrees; here
    every prior's mean is ``prior_mean`` of ``Replay``, by default the average over the earlier days, which amounts to
    zero mean on centred rewards. The paper does not say how seeds differ; here rewards carry normal noise of standard
    deviation ``noise_scale``, by default the R that the policies know.

    ``true_prior``, for an oracle only, is made from the played day itself in the same way: the best of its kind in
    hindsight, with the day's own covariance.

    Args:
        data, day, filled: as for ``IntelTemperature``.
        shrinkage: of the days' covariances, ``"auto"`` or a number in [0, 1].
        noise_scale: of the rewards, in degrees C.
        prior_mean, options: as for ``Replay``.
    """

    def __init__(
        self,
        data: str | Path,
        *,
        day: str = "2004-03-14",
        filled: bool = True,
        shrinkage: float | str = "auto",
        noise_scale: float | None = None,
        prior_mean: str | float = "grand",
        **options: Any,
    ) -> None:
        super().__init__(data, day=day, filled=filled, prior_mean=prior_mean, **options)
        known_variance = float(self.knowledge.noise_variance)
        self.noise_scale = torch.tensor(
            known_variance**0.5
            if noise_scale is None
            else validation.non_negative("noise_scale", noise_scale),
            dtype=torch.float64,
        )
        rate = options.get("forgetting_rate")
        past, times = self.history, torch.as_tensor(self.history_times)
        days = ((times - 1) / _STEPS_A_DAY).floor()
        priors = []
        for d in days.unique().tolist():
            readings = past[days == d]
            if bool(((~torch.isnan(readings)).sum(0) >= 2).all()):
                priors.append(
                    self._prior(
                        readings, times[days == d], str(np.datetime64(day, "D") + int(d)), shrinkage, rate
                    )
                )
        validation.require(len(priors) > 0, "day", day, "after a day on which every arm has two readings")
        self.knowledge = replace(self.knowledge, priors=priors)
        played = torch.tensor(self._times[: self.horizon], dtype=torch.float64)
        self.true_prior = self._prior(self.table, played, "the day itself", shrinkage, rate)

    def _prior(
        self, readings: Tensor, times: Tensor, name: str, shrinkage: float | str, rate: float | None
    ) -> CandidatePrior:
        """The prior of one day's readings (T, N), NaN where missing."""
        noise_variance = float(self.knowledge.noise_variance)
        covariance = without_noise(estimate_covariance(readings, shrinkage), noise_variance)
        if rate is None:
            seen = ~torch.isnan(readings).all(-1)
            rate = fit_forgetting_rate(readings[seen], times[seen], covariance, noise_variance)
        return CandidatePrior(covariance, self.knowledge.prior_mean, rate, name=name)

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Normal noise (S,) of standard deviation ``noise_scale``."""
        return gaussian_noise(self.noise_scale, streams)

"""Problems that measure something beside the reward which must stay within limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.problems.problem import gaussian_noise
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import covariance, covariance_root
from bandits_torch.problems.tv_gp import DriftingPath, TVGPDraws
from bandits_torch.streams import ReplicateStreams

_OF_OUTCOME = 1_000_003  # what is added to the seed for the outcome's own path


@named("safe-tv-gp", random=True)
class SafeTVGPDraws(TVGPDraws):
    """Drifting Gaussian-process draws with a measured outcome, a drifting draw too, that must stay below a limit.

    The outcome "load" of arm x is g_t(x) = climb (|x - c| / r - 1) + h_t(x), with h_t an independent draw of the same
    process, c the middle arm's features and r the distance of the farthest arm; its limit is g <= ``limit``. With
    ``climb`` 0 any arm may become unsafe; with 4, say, arms near the middle hardly ever do, by a prior mean that is
    known.

    Regret is against the best arm within the limit, or, at a step where there is none, the arm of the least outcome.
    A policy that breaks the limit may therefore have negative regret. The record of a run has ``violation``, 1 where
    the arm's expected outcome is above the limit, and ``feasible``, the share of arms below it.

    Known beforehand: beside what ``TVGPDraws`` tells, the outcome's prior and limit, and as ``safe_arms`` the arm of
    the least outcome at step 1.

    Args:
        limit: of the outcome, whose standard deviation is 1.
        climb: how far the prior mean rises from the middle arm to the farthest, >= 0.
        outcome_forgetting_rate: epsilon of the outcome; None: ``forgetting_rate``.
        outcome_noise_scale: standard deviation of a measurement; None: ``noise_scale``.
        options: those of ``TVGPDraws``.

    Source: ours, after the model of Bogunovic, Scarlett & Cevher 2016. Raises ValueError for numbers out of range.
    """

    outcome_names = ("load",)
    noise_is_added = False  # what is measured is drawn beside it

    def __init__(
        self,
        *,
        limit: float = 0.5,
        climb: float = 0.0,
        outcome_forgetting_rate: float | None = None,
        outcome_noise_scale: float | None = None,
        **options: Any,
    ) -> None:
        self.limit = validation.finite_number("limit", limit)
        climb = validation.non_negative("climb", climb)
        super().__init__(**options)
        own = self.knowledge
        rate = own.forgetting_rate if outcome_forgetting_rate is None else outcome_forgetting_rate
        scale = float(self.noise_scale[0]) if outcome_noise_scale is None else outcome_noise_scale
        validation.probability("outcome_forgetting_rate", rate)
        source = (
            options.get("seed", 0) + _OF_OUTCOME,
            self.replicates,
            options.get("first_replicate", 0),
        )
        self._outcome = DriftingPath(covariance_root(covariance(own.kernel, self.arms)), rate, source)
        away = (self.arms - self.arms[self.num_arms // 2]).norm(dim=-1)
        self._level = climb * (away / away.max().clamp_min(1e-12) - 1)
        self._outcome_scale = validation.positive("outcome_noise_scale", scale)
        load = OutcomeConstraint(
            "load",
            high=self.limit,
            kernel=own.kernel,
            noise_variance=self._outcome_scale**2,
            prior_mean=self._level.clone(),
            forgetting_rate=rate,
        )
        first = self.expected_outcomes(1)[..., 0]
        least = torch.nn.functional.one_hot(first.argmin(-1), self.num_arms).bool()
        self.knowledge = replace(own, constraints=(load,), safe_arms=least)

    def expected_outcomes(self, step: int) -> Tensor:
        """g_step, (replicates, N, 1). For the scorer only."""
        self.check_step(step)
        return (self._outcome.at(step, self.arms) + self._level).unsqueeze(-1)

    def measure(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """The outcome with normal noise, (S, 1)."""
        return (self._at(step, arm) + gaussian_noise(self._outcome_scale, streams)).unsqueeze(-1)

    def score(self, step: int, arm: Tensor, available: Any) -> tuple[Tensor, Tensor]:
        """Expected rewards of what was chosen, and of the best arm within the limit."""
        outcome = self.expected_outcomes(step)[..., 0]
        allowed = (outcome <= self.limit) | (outcome == outcome.amin(-1, keepdim=True))
        if available is not None:
            inside = outcome.masked_fill(~available, torch.inf)
            allowed = (allowed & available) | (inside == inside.amin(-1, keepdim=True))
        chosen, _ = super().score(step, arm, available)
        return chosen, self.expected_rewards(step).masked_fill(~allowed, -torch.inf).amax(-1)

    def trace(self, step: int, arm: Tensor) -> dict[str, Tensor | float]:
        """``violation`` and ``feasible``, (S,) each."""
        feasible = (self.expected_outcomes(step)[..., 0] <= self.limit).double().mean(-1)
        violation = (self._at(step, arm) > self.limit).double()
        return {"violation": violation, "feasible": feasible.expand_as(violation)}

    def _at(self, step: int, arm: Tensor) -> Tensor:
        outcome = self.expected_outcomes(step)[..., 0].expand(len(arm), -1)
        return outcome.gather(-1, arm.unsqueeze(-1)).squeeze(-1)

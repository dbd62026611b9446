"""A policy that plays only points whose measurements stay within limits, with high probability."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.choices.points import ModelPoints
from bandits_torch.policies.forgetting import ForgettingRule
from bandits_torch.policies.limited import LimitedPolicy, Limits, least_margin, safe_set
from bandits_torch.policies.policy import Choice, Observation, Pending
from bandits_torch.theory.widths import Width

_KEPT = 32  # of the latest points played, each of which may be played again
_RADII = (0.3, 0.1, 0.03, 0.01, 0.003)  # of the box's sides: how far from the best so far the next are drawn
_PER_RADIUS = 48


class SafePointPolicy(LimitedPolicy):
    """Plays points whose reward and outcomes lie within their limits by the confidence bounds of their models.

    ``SafePolicy`` over a ``Domain``: among points x with low_i <= mu_i(x, t) - w_t sigma_i(x, t) and mu_i(x, t) + w_t
    sigma_i(x, t) <= high_i for all i, it plays the one with the largest upper bound of the reward that a search finds.
    The search tries Sobol points of the domain, the latest points played, ``safe_points``, and ever shorter normal
    steps around the best of them. A point counts only if it is within all limits, so the search needs no gradient and
    never leaves the safe set. ``PosteriorSafetyWidth`` holds for the point played, however it was found, because it is
    a function of the data.

    Args:
        model: of the reward, an ``OnlineGP`` of batch shape () or (S,) over d inputs, or d + 1 with time the last.
        outcomes: models of the other measurements, by name, of the same kind.
        limits: (low, high) of each outcome, by name, and of ``"reward"`` if it has limits.
        domain: where points are played.
        width: of the reward's bounds in choosing.
        safety_width: w_t.
        safe_points: (k, d) or (S, k, d), an initial safe set. It is part of the safe set before the first reward
            (``trust="start"``), or always (``trust="always"``).
        when_empty: what is played if no point found is safe: ``"likeliest"``, the one with the most posterior
            deviations to its nearest limit; ``"safe_points"``, the best of those by upper bound; or ``"raise"``,
            ``NoSafeArmError``. No guarantee holds at such a step; ``trace`` counts it as ``fallback``.
        forgetting: rules of the models, such as ``StaleObservations``, by the outcome's name, or ``"reward"``; default:
            keep all.
        raw_samples: Sobol points tried at each step.
        seed: of the points tried; replicates share it.

    Cost: that of the models' predictions at ``raw_samples`` + 270 points, O(n^2) each. ``trace``: safe, the share of
    Sobol points within the limits, fallback, safety_width.

    Source: as for ``SafePolicy``; the search is ours. Raises ValueError as ``SafePolicy`` does, for a domain of another
    dimension, and for ``safe_points`` outside of the domain.
    """

    model: OnlineGP
    choices: ModelPoints
    _others: dict[str, ModelPoints]  # type: ignore[assignment]

    def __init__(
        self,
        model: OnlineGP,
        outcomes: Mapping[str, OnlineGP],
        limits: Mapping[str, Limits],
        *,
        domain: Domain,
        width: Width,
        safety_width: Width,
        safe_points: Tensor | None = None,
        trust: str = "start",
        when_empty: str = "likeliest",
        forgetting: Mapping[str, ForgettingRule] | None = None,
        raw_samples: int = 256,
        seed: int = 0,
    ) -> None:
        validation.instance("domain", domain, Domain, "a Domain")
        if forgetting is not None:
            validation.instance("forgetting", forgetting, Mapping, "ForgettingRules by name")
        self._set_fallback(trust, when_empty, "safe_points", safe_points)
        self.raw_samples = validation.positive_integer("raw_samples", raw_samples)
        self._seed = validation.natural("seed", seed)
        over, widths = partial(ModelPoints, domain=domain), (width, safety_width)
        self._set_up(model, outcomes, limits, widths, OnlineGP, over, forgetting)
        self.safe_points = self._checked_points(safe_points)
        self._settled: ModelPoints | None = None

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Domain | None = None) -> Choice:
        """The best safe point found, (S, d); ``why["certain"]`` (S,) says whether it was within the safe set.

        Raises NoSafeArmError if none was found and ``when_empty`` is ``"raise"``.
        """
        if available is not None:
            self.choices.check_available(available)
        domain = self.choices.domain if available is None else available
        best, certain, share = self._searched(domain, time)
        lost = ~certain
        self._check_not_lost(lost, "point found")
        if self.when_empty == "safe_points" and bool(lost.any()):
            initial = domain.fix(self.safe_points.movedim(1, 0))
            index, _, _ = self._scored(initial, time)
            index = index.masked_fill(~domain.contains(initial).mT, torch.finfo(index.dtype).min)
            best = torch.where(lost.unsqueeze(-1), _taken(initial, index.argmax(-1)), best)
        self._tell(share, lost)
        index, _, _ = self._scored(best.unsqueeze(0), time)
        return Choice(best, {"index": index.squeeze(-1), "certain": ~lost})

    def _searched(self, domain: Domain, time: float) -> tuple[Tensor, Tensor, Tensor]:
        """The best point, (S, d), whether it is within the limits, and the share of Sobol points that are."""
        seed = (1_000_003 * self._seed + self.choices.steps) % 2**31
        S, low, high = self.replicates, *domain.bounds
        raw = domain.samples(self.raw_samples, seed, S)
        initial = domain.fix(self.safe_points.movedim(1, 0))
        X = torch.cat([raw, initial, domain.fix(self._played.movedim(1, 0))])
        vouched = torch.zeros(S, len(X), dtype=torch.bool, device=X.device)
        vouched[:, len(raw) : len(raw) + len(initial)] = self._first() | (self.trust == "always")
        inside = domain.contains(X).mT
        generator = torch.Generator().manual_seed(seed)
        share, best, kept = None, X[0], vouched[:, 0]
        for radius in (*_RADII, 0.0):
            index, certain, margin = self._scored(X, time)
            share = certain[:, : len(raw)].double().mean(-1) if share is None else share
            safe = (certain | vouched) & inside
            some, lowest = safe.any(-1, keepdim=True), torch.finfo(index.dtype).min
            value = torch.where(some, torch.where(safe, index, lowest), torch.where(inside, margin, lowest))
            place = value.argmax(-1)
            best, kept = _taken(X, place), vouched.gather(-1, place.unsqueeze(-1))
            if radius == 0.0:
                break
            step = torch.randn(_PER_RADIUS, 1, domain.dim, generator=generator, dtype=torch.float64).to(X)
            around = domain.fix((best + radius * (high - low) * step).clamp(low, high))
            X = torch.cat([best.unsqueeze(0), around])
            inside = domain.contains(X).mT
            vouched = torch.cat([kept, torch.zeros_like(inside[:, 1:])], -1)
        assert share is not None
        return best, some.squeeze(-1), share

    def _scored(self, X: Tensor, time: float) -> tuple[Tensor, Tensor, Tensor]:
        """For points (n, S, d): upper bounds of the reward, whether they are within all limits, and least margins, (S,
        n)."""
        mean, variance = self.choices.moments(X, time)
        index = mean + self._column(self.width.at(self._clock + 1, self.model)) * variance.sqrt()
        functions = []
        for name in self.limits:
            moments = mean, variance
            if name != "reward":
                moments = self._others[name].moments(X, time)
            elif self._settled is not None:
                moments = self._settled.moments(X, time)
            functions.append(self._bounded(name, *moments))
        return index, safe_set(functions), least_margin(functions)

    @torch.no_grad()
    def within_limits(self, time: float, points: Tensor) -> Tensor:
        """Which points (n, d) are within all limits by the bounds at ``time``, without the initial safe set: (S, n)."""
        return self._scored(points.unsqueeze(1).expand(-1, self.replicates, -1), time)[1]

    _expects = ("choices", "_settled")

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls lower the variance of the reward that scores points. The safe set depends only on learned
        measurements, because a measurement that is only expected makes nothing safer."""
        if "reward" in self.limits and self._settled is None:
            self._settled = ModelPoints(copy.deepcopy(self.model), self.choices.domain)
        self.choices.expect(pending.arm, pending.time)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """See ``LimitedPolicy``; searches try the point from now on."""
        super().learn(observation)
        latest = observation.arm.to(self._played).unsqueeze(1)
        self._played = torch.cat([self._played, latest], 1)[:, -_KEPT:]

    # -- state -----------------------------------------------------------------------------------------

    _played: Tensor  # the latest points, (S, k, d): tried at every step

    def _fresh(self) -> dict[str, Any]:
        none = self.choices.domain.bounds.new_zeros(self.replicates, 0, self.dim)
        return super()._fresh() | {"_played": none}

    def _checked_points(self, points: Tensor | None) -> Tensor:
        domain, S = self.choices.domain, self.replicates
        if points is None:
            return domain.bounds.new_zeros(S, 0, domain.dim)
        validation.finite_tensor("safe_points", points)
        d = domain.dim
        fits = points.dim() in (2, 3) and points.shape[-1] == d and points.shape[-2] > 0
        fits = fits and (points.dim() == 2 or len(points) == S)
        validation.shape_is("safe_points", points, fits, f"(k, {d}) or ({S}, k, {d}), k >= 1")
        points = points.to(domain.bounds).expand(S, -1, -1).clone()
        inside = bool(domain.contains(points).all())
        validation.require(inside, "safe_points", points, "within the domain")
        return points


def _taken(X: Tensor, place: Tensor) -> Tensor:
    """Point number ``place`` (S,) of each replicate of X (n, S, d): (S, d)."""
    return X.gather(0, place.reshape(1, -1, 1).expand(1, -1, X.shape[-1])).squeeze(0)

"""Observations that can no longer change a prediction are dropped, with a bound on what is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.models.points.staleness import check_forgets_exponentially, kept_over, loss_of_oldest
from bandits_torch.policies.forgetting import ForgettingRule


class StaleObservations(ForgettingRule):
    """Drops the oldest observations of an ``OnlineGP`` under exponential forgetting once they tell nothing any more.

    Every ``every`` observations the oldest ``every`` are tried, and dropped where both accounts below stay within
    ``tolerance``. The rule keeps two numbers, L and B, for which at all points x and all times t from the latest
    observation on, whatever the rewards were and whether or not the model is right,

        |mu_all(x, t) - mu_held(x, t)| <= L sigma_held(x, t) <= L sqrt(k(x, x)),
        (1 - B) sigma_held^2(x, t) <= sigma_all^2(x, t) <= sigma_held^2(x, t),

    "all" the model that has dropped nothing. Both are 0 at first, and

        dropping          L <- L + l,                    B <- B + b            (l, b of ``loss_of_oldest``),
        time going on     L <- rho L,                    B <- rho^2 B,         rho = (1 - eps)^{tau / 2},
        an observation    L <- L + B (|z| + L) sigma / sqrt(lambda),           z its standardised error,

    sigma its standard deviation before. Idea of the proof: L bounds the difference of the means in the norm of P^{-1},
    P the covariance held of f(., now), and 0 <= P - P_all <= B P. Dropping makes P larger, so neither grows for what
    was dropped before. Time makes P' = rho^2 P + (1 - rho^2) K >= P of it and rho e of the difference e, as K >= P. An
    observation takes e to (I - G h) e, G the gain, which shrinks in the norm of P^{-1}; the gains themselves differ by
    (P - P_all) h / lambda after it, at most B times the new deviation over lambda.

    So the number held does not grow with the horizon: under eps = .03 and one observation a step 900 to 1 000 stay.

    Args:
        tolerance: of L and of B.
        every: observations that are tried together.
        capacity: at most so many are held, whatever they still tell; the accounts then exceed ``tolerance``, and
            ``trace`` says so. None: no such limit.

    Cost: O(n^2) an observation on average, n observations held. ``trace``: dropped, stale_mean (L), stale_variance
    (B).

    A refit changes what dropped observations would tell: the accounts begin anew then and hold for the new
    hyperparameters over what was held. Rewards that come late are learned, but the bound does not cover them.

    Source: derived here. Raises ValueError for numbers out of range, a ``capacity`` below ``every``, and for a model
    that is no ``OnlineGP`` over a product with an ``ExponentialForgettingKernel``, or already holds observations.
    """

    def __init__(self, tolerance: float = 1e-6, *, every: int = 16, capacity: int | None = None) -> None:
        self.tolerance = validation.positive("tolerance", tolerance)
        self.every = validation.positive_integer("every", every)
        self.capacity = capacity
        if capacity is not None:
            validation.positive_integer("capacity", capacity)
            validation.require(capacity >= every, "capacity", capacity, f"at least every, {every}, or None")

    def check(self, model: OnlineModel) -> None:
        """The model must forget exponentially, and begin empty."""
        check_forgets_exponentially(cast(OnlineGP, model))
        held = int(model.num_observations.max())
        validation.require(held == 0, "model.num_observations", held, "0 where StaleObservations begins")

    def _fresh(self) -> dict[str, Any]:
        none = torch.zeros_like(self._zeros, dtype=torch.long)
        accounts = {name: self._zeros.clone() for name in ("mean", "variance")}
        return accounts | {"now": self._zeros.double(), "since": none, "dropped": none.clone()}

    _lasting = ("dropped",)
    mean: Tensor  # L, batch
    variance: Tensor  # B, batch
    now: Tensor  # the latest time of an observation, batch
    since: Tensor  # observations since the oldest were tried, batch
    dropped: Tensor  # observations, batch

    @torch.no_grad()
    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """Carry the accounts to the time of the observation, and over it."""
        model = cast(OnlineGP, model)
        time = point()[..., 0, -1].expand(self.now.shape).to(self.now)
        first = model.num_observations == 1
        now = torch.where(first, time, torch.maximum(self.now, time))
        rows = model.data.rows()
        z = rows.whitened[..., -1].abs()
        before = torch.where(first, now, self.now)
        kept = kept_over(model, before.unsqueeze(-1), now.unsqueeze(-1)).squeeze(-1)
        noise = model.noise_variance
        deviation = (rows.corner[..., -1, -1].square() / noise - 1).clamp_min(0.0).sqrt()
        self.variance = self.variance * kept.square()
        self.mean = self.mean * kept
        self.mean = self.mean + self.variance * (z + self.mean) * deviation
        self.now, self.since = now, self.since + 1

    @torch.no_grad()
    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        """Drop what has become stale, where it is time to look."""
        if not bool((self.since >= self.every).any()):
            return False
        model = cast(OnlineGP, model)
        due = self.since >= self.every
        self.since = self.since.masked_fill(due, 0)
        while True:
            mean, variance = (
                bound.reshape(due.shape) for bound in loss_of_oldest(model, self.every, self.now)
            )
            lost = torch.maximum(self.mean + mean, self.variance + variance)
            due = due & (lost <= self.tolerance)
            if self.capacity is not None:
                due = due | (model.num_observations > self.capacity)
            due = due & mean.isfinite()
            if not bool(due.any()):
                return False
            self.mean = torch.where(due, self.mean + mean, self.mean)
            self.variance = torch.where(due, self.variance + variance, self.variance)
            self.dropped = self.dropped + self.every * due
            model.forget(self.every, where=None if bool(due.all()) else due)

    def refitted(self, model: OnlineModel, where: Tensor) -> None:
        """The accounts begin anew."""
        mask = where.reshape(self.since.shape)
        self.mean, self.variance = self.mean.masked_fill(mask, 0.0), self.variance.masked_fill(mask, 0.0)

    def trace(self) -> dict[str, Tensor | float]:
        """Observations dropped so far, and the two accounts."""
        return {
            "dropped": self.dropped.reshape(-1),
            "stale_mean": self.mean.reshape(-1),
            "stale_variance": self.variance.reshape(-1),
        }

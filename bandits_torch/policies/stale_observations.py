"""Rules that drop the observations with least influence on later predictions, within a bound or budget on the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.models.points.staleness import (
    check_forgets_exponentially,
    check_has_distances,
    kept_over,
    loss_of_oldest,
    relevance,
    time_lengthscale,
)
from bandits_torch.policies.forgetting import ForgettingRule

_FEWEST = 2  # observations that ``WassersteinForgetting`` keeps in any case


class _Dropping(ForgettingRule):
    """A rule that drops the observations of an ``OnlineGP`` that matter least, for a model that begins empty."""

    now: Tensor  # the latest time of an observation, batch
    dropped: Tensor  # observations so far, batch
    _lasting = ("dropped",)

    def _set_capacity(self, capacity: int | None, least: int, expected: str) -> None:
        self.capacity = capacity
        if capacity is not None:
            validation.positive_integer("capacity", capacity)
            validation.require(capacity >= least, "capacity", capacity, expected)

    def check(self, model: OnlineModel) -> None:
        """The model must begin empty."""
        self._check_empty(model)

    def _fresh(self) -> dict[str, Any]:
        return {"now": self._zeros.double(), "dropped": torch.zeros_like(self._zeros, dtype=torch.long)}

    def _advance(self, point: Callable[[], Tensor], model: OnlineModel) -> Tensor:
        """The latest time before this observation, and ``now`` with it: the same for the first observation."""
        time = point()[..., 0, -1].expand(self.now.shape).to(self.now)
        first = model.num_observations == 1
        before, self.now = self.now, torch.where(first, time, torch.maximum(self.now, time))
        return torch.where(first, self.now, before)


class StaleObservations(_Dropping):
    """Drops the oldest observations of an ``OnlineGP`` under exponential forgetting once they carry no information.

    Every ``every`` observations the oldest ``every`` are tried, and dropped if both accounts below stay within
    ``tolerance``. The rule keeps two numbers, L and B, for which at all points x and all times t from the latest
    observation on, whatever the rewards were and whether or not the model is right,

        |mu_all(x, t) - mu_held(x, t)| <= L sigma_held(x, t) <= L sqrt(k(x, x)),
        (1 - B) sigma_held^2(x, t) <= sigma_all^2(x, t) <= sigma_held^2(x, t),

    where "all" is the model that has dropped nothing. Both are 0 at first, and

        dropping          L <- L + l,                    B <- B + b            (l, b of ``loss_of_oldest``),
        time going on     L <- rho L,                    B <- rho^2 B,         rho = (1 - eps)^{tau / 2},
        an observation    L <- L + B (|z| + L) sigma / sqrt(lambda),           z its standardised error,

    sigma its standard deviation before. Idea of the proof: L bounds the difference of the means in the norm of P^{-1},
    with P the covariance of f(., now) held, and 0 <= P - P_all <= B P. Dropping makes P larger, so the accounts of
    earlier drops do not grow. Time turns P into P' = rho^2 P + (1 - rho^2) K >= P, as K >= P, and the difference e into
    rho e. An observation turns e into (I - G h) e, with G the gain, which is shorter in the norm of P^{-1}. The gains
    themselves differ by (P - P_all) h / lambda after it, at most B times the new deviation over lambda.

    So the number held does not grow with the horizon: under eps = .03 and one observation a step 900 to 1 000 stay.

    Args:
        tolerance: of L and of B.
        every: number of observations tried together.
        capacity: the largest number held, whatever their influence; the accounts may then exceed ``tolerance``, and
            ``trace`` shows it. None: no such limit.

    Cost: O(n^2) an observation on average, n observations held. ``trace``: dropped, stale_mean (L), stale_variance
    (B).

    A refit changes the influence of dropped observations: the accounts then start again from 0 and hold for the new
    hyperparameters over what was held. Rewards that come late are learned, but the bound does not cover them.

    Source: derived here. Raises ValueError for numbers out of range, a ``capacity`` below ``every``, and for a model
    that is not an ``OnlineGP`` over a product with an ``ExponentialForgettingKernel``, or already holds observations.
    """

    def __init__(self, tolerance: float = 1e-6, *, every: int = 16, capacity: int | None = None) -> None:
        self.tolerance = validation.positive("tolerance", tolerance)
        self.every = validation.positive_integer("every", every)
        self._set_capacity(capacity, every, f"at least every, {every}, or None")

    def check(self, model: OnlineModel) -> None:
        """The model must forget exponentially, and begin empty."""
        check_forgets_exponentially(cast(OnlineGP, model))
        super().check(model)

    def _fresh(self) -> dict[str, Any]:
        accounts = {name: self._zeros.clone() for name in ("mean", "variance")}
        since = torch.zeros_like(self._zeros, dtype=torch.long)
        return super()._fresh() | accounts | {"since": since}

    mean: Tensor  # L, batch
    variance: Tensor  # B, batch
    since: Tensor  # observations since the oldest were tried, batch

    @torch.no_grad()
    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """Update the accounts for the passing of time and for the observation."""
        model = cast(OnlineGP, model)
        before = self._advance(point, model)
        rows = model.data.rows()
        z = rows.whitened[..., -1].abs()
        kept = kept_over(model, before.unsqueeze(-1), self.now.unsqueeze(-1)).squeeze(-1)
        noise = model.noise_variance
        deviation = (rows.corner[..., -1, -1].square() / noise - 1).clamp_min(0.0).sqrt()
        self.variance = self.variance * kept.square()
        self.mean = self.mean * kept
        self.mean = self.mean + self.variance * (z + self.mean) * deviation
        self.since = self.since + 1

    @torch.no_grad()
    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        """Drop stale observations, in steps where they are tried."""
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
        """The accounts start again from 0."""
        mask = where.reshape(self.since.shape)
        self.mean, self.variance = self.mean.masked_fill(mask, 0.0), self.variance.masked_fill(mask, 0.0)

    def trace(self) -> dict[str, Tensor | float]:
        """Observations dropped so far, and the two accounts."""
        return {
            "dropped": self.dropped.reshape(-1),
            "stale_mean": self.mean.reshape(-1),
            "stale_variance": self.variance.reshape(-1),
        }


class WassersteinForgetting(_Dropping):
    """Drops the observations of an ``OnlineGP`` with least influence on all later predictions (W-DBO).

    The budget b is 1 at first. With R_i the ``relevance`` of observation i, a ratio of integrated 2-Wasserstein
    distances, after each observation

        b <- b (1 + alpha)^{tau / l_T},
        while more than 2 are held and 1 + min R < b: drop the observation of least R, b <- b / (1 + min R),

    tau the time since the observation before and l_T the length-scale over time. So the loss in a time l_T is at most
    the factor 1 + alpha in those distances. There is no bound on a single prediction: ``StaleObservations`` has one,
    and holds more. The integrals over space are over all of R^d, as in the paper's approximation.

    Args:
        alpha: the loss allowed in a length-scale over time.
        capacity: the largest number held, whatever the budget; None: no such limit.

    Cost: O(n^3) an observation and one more for each that is dropped. ``trace``: dropped, budget.

    Source: Bardou, Thiran & Ranieri 2024 (arXiv 2405.14540), with their alpha = 1. The relevance agrees with that of
    the authors' package ``wdbo-criterion``; budget and removals go in the order of ``wdbo-algo``. Raises ValueError for
    an ``alpha`` that is not positive, a ``capacity`` below 2, and for a model that is not an ``OnlineGP`` whose kernel
    is squared exponential or Matern over space and Matern or exponential over time, or that holds observations.
    """

    def __init__(self, alpha: float = 1.0, *, capacity: int | None = None) -> None:
        self.alpha = validation.positive("alpha", alpha)
        self._set_capacity(capacity, _FEWEST, "an integer >= 2, or None")

    def check(self, model: OnlineModel) -> None:
        """The distances must be known for the kernel, and the model must begin empty."""
        check_has_distances(cast(OnlineGP, model))
        super().check(model)

    def _fresh(self) -> dict[str, Any]:
        return super()._fresh() | {"budget": self._zeros + 1}

    budget: Tensor  # b, batch

    @torch.no_grad()
    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """The budget grows with the time since the observation before."""
        before = self._advance(point, model)
        elapsed = self.now - before
        growth = (1 + self.alpha) ** (elapsed / time_lengthscale(cast(OnlineGP, model)))
        self.budget = self.budget * growth.to(self.budget)

    @torch.no_grad()
    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        """Drop what the budget allows."""
        model = cast(OnlineGP, model)
        while True:
            held = model.num_observations
            several = held > _FEWEST
            over = torch.zeros_like(several) if self.capacity is None else held > self.capacity
            if not bool((several & ((self.budget > 1) | over)).any()):
                return False
            least, row = (part.expand(self.budget.shape) for part in relevance(model, self.now).min(-1))
            due = several & ((1 + least < self.budget) | over)
            if not bool(due.any()):
                return False
            self.budget = torch.where(due, (self.budget / (1 + least)).clamp_min(1.0), self.budget)
            self.dropped = self.dropped + due
            model.remove(row, where=due)

    def trace(self) -> dict[str, Tensor | float]:
        """Observations dropped so far, and the budget."""
        return {"dropped": self.dropped.reshape(-1), "budget": self.budget.reshape(-1)}

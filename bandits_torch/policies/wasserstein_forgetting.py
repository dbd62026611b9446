"""W-DBO's rule: the observations that matter least for what is to come are dropped, within a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.models.points.staleness import check_has_distances, relevance, time_lengthscale
from bandits_torch.policies.forgetting import ForgettingRule

_FEWEST = 2


class WassersteinForgetting(ForgettingRule):
    """Drops the observations of an ``OnlineGP`` with the least part in all predictions to come (W-DBO).

    The budget b is 1 at first. With R_i the ``relevance`` of observation i, a ratio of integrated 2-Wasserstein
    distances, after each observation

        b <- b (1 + alpha)^{tau / l_T},
        while more than 2 are held and 1 + min R < b: drop the observation of least R, b <- b / (1 + min R),

    tau the time that has gone by and l_T the length-scale over time. So what is lost in a time l_T is at most the
    factor 1 + alpha, in the sense of those distances. There is no bound on a single prediction: ``StaleObservations``
    has one, and holds more. The integrals over space are over all of R^d, as in the paper's approximation.

    Args:
        alpha: what may be lost in a length-scale over time.
        capacity: at most so many are held, whatever the budget; None: no such limit.

    Cost: O(n^3) an observation and one more for each that is dropped. ``trace``: dropped, budget.

    Source: Bardou, Thiran & Ranieri 2024 (arXiv 2405.14540), with their alpha = 1. The relevance agrees with that of
    the authors' package ``wdbo-criterion``; budget and removals go in the order of ``wdbo-algo``. Raises ValueError for
    an ``alpha`` that is not positive, a ``capacity`` below 2, and for a model that is no ``OnlineGP`` whose kernel is
    squared exponential or Matern over space and Matern or exponential over time, or that holds observations.
    """

    def __init__(self, alpha: float = 1.0, *, capacity: int | None = None) -> None:
        self.alpha = validation.positive("alpha", alpha)
        self.capacity = capacity
        if capacity is not None:
            validation.positive_integer("capacity", capacity)
            validation.require(capacity >= _FEWEST, "capacity", capacity, "an integer >= 2, or None")

    def check(self, model: OnlineModel) -> None:
        """The distances must be known for the kernel, and the model must begin empty."""
        check_has_distances(cast(OnlineGP, model))
        held = int(model.num_observations.max())
        validation.require(held == 0, "model.num_observations", held, "0 where WassersteinForgetting begins")

    def _fresh(self) -> dict[str, Any]:
        zeros = self._zeros
        return {
            "budget": zeros + 1,
            "now": zeros.double(),
            "dropped": torch.zeros_like(zeros, dtype=torch.long),
        }

    _lasting = ("dropped",)
    budget: Tensor  # b, batch
    now: Tensor  # the latest time of an observation, batch
    dropped: Tensor  # observations, batch

    @torch.no_grad()
    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """The budget grows with the time since the observation before."""
        time = point()[..., 0, -1].expand(self.now.shape).to(self.now)
        first = model.num_observations == 1
        now = torch.where(first, time, torch.maximum(self.now, time))
        elapsed = torch.where(first, 0.0, now - self.now)
        growth = (1 + self.alpha) ** (elapsed / time_lengthscale(cast(OnlineGP, model)))
        self.budget = self.budget * growth.to(self.budget)
        self.now = now

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

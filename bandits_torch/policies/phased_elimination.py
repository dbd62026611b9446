"""Phased elimination in random order, restarted: batches of arms that are planned before their rewards are known."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.choices import choices_over
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import Width


def batch_sizes(interval: int) -> list[int]:
    """n_i = ceil(sqrt(H n_{i-1})), n_0 = 1, the last cut so that they add up to H (Li & Scarlett 2022)."""
    sizes, left, size = [], validation.positive_integer("interval", interval), 1
    while left:
        size = min(left, math.ceil(math.sqrt(interval * size) - 1e-9))
        sizes.append(size)
        left -= size
    return sizes


class PhasedElimination(Policy):
    """R-PERP: plan a batch by uncertainty sampling, pull it in random order, drop arms that are worse; restart.

    In batch i of an interval of H steps, n_i arms (``batch_sizes``) are chosen one after the other, each with the
    largest posterior variance among the remaining arms. They are played in a uniformly random order. After the batch,
    with the posterior of the batch alone, an arm stays if mu + width sigma >= max_x (mu - width sigma) over the
    remaining arms. After H steps all arms return.

    Source: Iwazaki & Takeno 2024 (arXiv 2410.16052): restarts, phased elimination and the random permutation; written
    from its abstract, with the batches of Li & Scarlett 2022 and the width that ``PermutationWidth`` proves.

    Args:
        model: an ``ArmGP`` of batch shape (S,) that does not drift.
        width: evaluated at the end of a batch.
        interval: H.
        seed, first_replicate: of the permutations, and the number of the first replicate.

    Arms that are not available wait, and the next in the order is played. If none of the batch is available, the
    available arm with the largest variance is played, a remaining one if possible. A reward outside the plan also
    counts as a step of the batch. Rewards of a batch may arrive in any order. When arms are added or removed
    (``AskTell``), a new interval begins with the present arms and the width for their number; the bound counts each
    such change as one more restart.

    Cost of a batch: n_i steps of the model to plan, and to learn.

    Raises ValueError for another model, and an ``interval`` below 1.
    """

    restarts_with_arms = "it plans batches over all arms, and drops those that fall behind the best"

    def __init__(
        self, model: ArmGP, width: Width, interval: int, *, seed: int = 0, first_replicate: int = 0
    ) -> None:
        validation.instance("model", model, ArmGP, "an ArmGP")
        fits = len(model.batch_shape) == 1 and not model.drifts
        validation.require(fits, "model", tuple(model.batch_shape), "of batch shape (S,), and without drift")
        validation.instance("width", width, Width, "a Width")
        self.model, self.width = model, width.bind(model, None)
        self.sizes, self.interval = batch_sizes(interval), interval
        self.choices = choices_over(model)
        self.replicates, self.num_arms = self.choices.replicates, self.choices.num_arms
        self._streams = ReplicateStreams(
            seed, self.replicates, purpose="policy", first=first_replicate, like=model.noise_variance
        )
        self._ends = torch.tensor(self.sizes, device=model.noise_variance.device).cumsum(0)
        self._begin()
        self._plan(torch.ones_like(self._clock, dtype=torch.bool))

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The next arm of the plan that is available, (S,)."""
        if available is not None:
            self.choices.check_available(available)
        every = torch.ones_like(self._left)
        allowed = every if available is None else available.expand_as(every)
        waiting = (self._queue >= 0) & allowed.gather(-1, self._queue.clamp_min(0))
        first = waiting.to(torch.uint8).argmax(-1, keepdim=True)
        planned = self._queue.gather(-1, first).squeeze(-1)
        left = self._left & allowed
        allowed = torch.where(left.any(-1, keepdim=True), left, allowed)
        uncertain = self.model.marginals()[1].masked_fill(~allowed, -torch.inf)
        return Choice(torch.where(waiting.any(-1), planned, uncertain.argmax(-1)))

    _expects = ("_queue",)

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls count as played."""
        self._queue = self._played(pending.arm)

    def _played(self, arm: Tensor) -> Tensor:
        """The queue without the first entry of this arm, (S,), if it has one."""
        same = self._queue == arm.unsqueeze(-1)
        first = same & (same.cumsum(-1) == 1)
        return self._queue.masked_fill(first, -1)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Observe; at the end of a batch drop arms, at the end of an interval restore all, and plan the next batch."""
        self.choices.check(observation)
        self.choices.observe(observation.arm, observation.reward, observation.time)
        self._queue, self._clock = self._played(observation.arm), self._clock + 1
        ended = (self._clock.unsqueeze(-1) == self._ends).any(-1)
        if not bool(ended.any()):
            return
        mean, variance = self.model.marginals()
        reach = self.width.at(1, self.model).unsqueeze(-1) * variance.sqrt()
        best = (mean - reach).masked_fill(~self._left, -torch.inf).amax(-1, keepdim=True)
        over = self._clock == self.interval
        kept = (self._left & (mean + reach >= best)) | over.unsqueeze(-1)
        self._left = torch.where(ended.unsqueeze(-1), kept, self._left)
        self.restarts = self.restarts + over
        self._clock = torch.where(over, 0, self._clock)
        self._plan(ended)

    def _plan(self, where: Tensor) -> None:
        """Plan a batch for these replicates, whose data are forgotten; random numbers are drawn for all replicates."""
        self.model.reset(where)
        batch = (self._clock.unsqueeze(-1) >= self._ends).sum(-1)
        size = self._ends.diff(prepend=self._ends.new_zeros(1))[batch]
        chosen = []
        with self.model.provisional():
            for _ in range(int(size[where].max())):
                variance = self.model.marginals()[1].masked_fill(~self._left, -torch.inf)
                chosen.append(variance.argmax(-1))
                self.model.expect_arms(chosen[-1], 0.0)
        arms = torch.stack(chosen, -1)
        place = torch.arange(arms.shape[-1], device=arms.device)
        order = self._streams.uniform(arms.shape[-1])
        order = order.masked_fill(place >= size.unsqueeze(-1), torch.inf).argsort(-1)
        planned = torch.full_like(self._queue, -1)
        shuffled = arms.gather(-1, order)
        planned[:, : arms.shape[-1]] = shuffled.masked_fill(place >= size.unsqueeze(-1), -1)
        self._queue = torch.where(where.unsqueeze(-1), planned, self._queue)

    def trace(self) -> dict[str, Tensor | float]:
        """The number of remaining arms, and the restarts so far."""
        return {"surviving": self._left.sum(-1), "restarts": self.restarts}

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("choices", "_streams")
    _clock: Tensor  # steps of the interval, (S,)
    restarts: Tensor
    _left: Tensor  # (S, N)
    _queue: Tensor  # the arms to come, (S, most of a batch); -1: none, or played

    def _fresh(self) -> dict[str, Any]:
        clock = torch.zeros(self.replicates, dtype=torch.long, device=self._ends.device)
        left = torch.ones(self.replicates, self.num_arms, dtype=torch.bool, device=clock.device)
        queue = clock.new_full((self.replicates, max(self.sizes)), -1)
        return {"_clock": clock, "restarts": clock.clone(), "_left": left, "_queue": queue}

    @torch.no_grad()
    def _restarted(self, where: Tensor | None) -> None:
        """The first batch of an interval is planned anew."""
        where = torch.ones_like(self._clock, dtype=torch.bool) if where is None else where
        if bool(where.any()):
            self._plan(where)

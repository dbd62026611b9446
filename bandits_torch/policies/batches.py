"""Policies that plan a batch of arms before its rewards are known: batch BKB, and phased elimination (R-PERP)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.online_model import put_back
from bandits_torch.models.sketch.sketch import WatchedArms
from bandits_torch.models.sketch.sketched_gp import SketchedGP
from bandits_torch.policies.choices import Arms, choices_over
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import Width

_WATCHED_FIRST = 32  # arms watched from the start of a batch


class BatchBKB(Policy):
    """Batch BKB: plays the arm with the largest score mu~_b + width_b sigma~_t, with the mean and width at the start of
    the batch, and the current deviation.

    A batch ends when the model draws its next dictionary: once 1 + sum sigma~_b^2(x_s) / lambda passes
    ``model.sampling.growth``. Within a batch scores can only fall, so an earlier score is an upper bound. The policy
    watches the variances of the 32 arms that scored highest at the start. It watches more, twice as many each time,
    until the best watched score exceeds the earlier scores of all others. So it chooses the same arm as if it scored
    every arm. A batch needs no rewards: ``choose_many`` picks q arms before any reward arrives. If variances fall by
    more than the factor ``model.sampling.growth`` in the meantime, the frozen mean is older than the theory allows.

    Source: Calandriello et al. 2020, Near-linear time Gaussian process optimization with adaptive batching and
    resparsification (ICML, PMLR 119), for frozen means and the sum of variances that ends a batch; their constants are
    not copied. Tests verify that every choice equals that of full scoring, that means stay frozen inside a batch, and
    that growth 1 is BKB. Their width allows for the frozen mean: pass ``BKBWidth(..., stretch=growth)``.

    Args:
        model: a ``SketchedGP`` of batch shape () or (S,).
        width: a ``Width``, evaluated at the start of every batch.

    Cost: O(N + a m + m^2) per step inside a batch, with a watched arms; the model's O(m N) to O(m^2 N) per new batch.
    Ties go to the smallest arm. Rewards may arrive in any order.

    Raises ValueError for a model with batch dimensions other than replicates.
    """

    def __init__(self, model: SketchedGP, width: Width) -> None:
        validation.instance("model", model, SketchedGP, "a SketchedGP")
        validation.instance("width", width, Width, "a Width, such as ConstantWidth(2.0)")
        one_batch = len(model.batch_shape) <= 1
        shape = tuple(model.batch_shape)
        validation.require(one_batch, "model.batch_shape", shape, "() or (S,), replicates only")
        self.model, self.width = model, width.bind(model, None)
        self.replicates, self.num_arms = model.batch_shape.numel(), model.num_arms
        self._choices = Arms(self.num_arms, self.replicates, model.arms.dtype)
        self._watched: dict[int, WatchedArms] = {}  # by replicate, from its first batch on
        self._begin()

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float = 0.0, available: Tensor | None = None) -> Choice:
        self._choices.check_available(available)
        mask = None if available is None else available.expand(self.replicates, -1)
        self._begin_batches()
        return Choice(torch.stack([self._best(k, mask) for k in range(self.replicates)]))

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Learn one reward per replicate; the frozen mean changes with the next batch."""
        arm, reward = observation.arm, observation.reward
        self._choices.check(observation)
        shape = self.model.batch_shape
        self.model.take(arm.reshape(shape), reward.reshape(shape), observation.time)

    @contextmanager
    def put_aside(self) -> Iterator[None]:
        """See ``HasState``; begins the batches that are due, and copies everything. O(N m)."""
        with torch.no_grad():
            self._begin_batches()
        with put_back(self, self.model, shared=self.model.lasting):
            yield

    def expect(self, pending: Pending, time: float) -> None:
        """Lower the variances by a pull of each replicate's arm, and draw the dictionaries that are due."""
        self.model.expect_arms(pending.arm.reshape(self.model.batch_shape), time)
        for k, sketch in enumerate(self.model.sketches):
            if self._draws[k] != sketch.draws:  # the bounds hold only under the earlier dictionary
                self._score_all(k)

    def trace(self) -> dict[str, Tensor | float]:
        """The width, the trace of the model, and ``arms_scored``, the number of arms watched at the last choice."""
        scored = torch.tensor([len(self._watched.get(k, ())) for k in range(self.replicates)])
        return {"width": self._width.clone(), **self.model.trace(), "arms_scored": scored}

    # -- parts -----------------------------------------------------------------------------------------

    def _begin_batches(self) -> None:
        """Freeze mean and width of the replicates whose dictionary is new, and score all their arms."""
        begin = [k for k, s in enumerate(self.model.sketches) if self._draws[k] != s.draws]
        if not begin:
            return
        width = self.width.at(self.model.num_observations + 1, self.model)
        width = width.expand(self.model.batch_shape).reshape(-1)
        for k in begin:
            self._width[k] = width[k]
            self._mean[k] = self.model.sketches[k].moments()[0] + self.model.prior_mean_of(k)
            self._score_all(k)

    def _score_all(self, k: int) -> None:
        """Score all arms of replicate k, with the frozen mean and width, and watch the best of them."""
        sketch, bound = self.model.sketches[k], self._bound[k]
        variance = sketch.moments()[1]
        torch.addcmul(self._mean[k], self._width[k], variance.clamp_min(0.0).sqrt(), out=bound)
        self._draws[k] = sketch.draws
        self._watched[k] = WatchedArms(sketch, bound.new_zeros(0, dtype=torch.long))
        self._watch_more(k, bound, _WATCHED_FIRST)

    def _watch_more(self, k: int, among: Tensor, count: int) -> None:
        """Also watch the ``count`` arms with the largest values of ``among`` (N,), except those with -inf."""
        more = torch.topk(among, min(count, int((among > -torch.inf).sum()))).indices
        self._watched[k].join(more)
        self._bound[k, more] = -torch.inf
        self._largest_bound[k] = float(self._bound[k].max())

    def _best(self, k: int, mask: Tensor | None) -> Tensor:
        """The arm with the largest score: watches more arms until it exceeds the earlier scores of all others."""
        watched = self._watched[k]
        while True:
            score = torch.addcmul(self._mean[k, watched.arms], self._width[k], watched.variance().sqrt())
            others, largest = self._bound[k], self._largest_bound[k]
            if mask is not None:
                score = score.masked_fill(~mask[k, watched.arms], -torch.inf)
                others = others.masked_fill(~mask[k], -torch.inf)
                largest = float(others.max())
            best = float(score.max())
            if best > largest or largest == -torch.inf:  # -inf: every other arm is watched or not available
                return watched.arms[score == best].min()
            self._watch_more(k, others, len(watched))

    # -- state -----------------------------------------------------------------------------------------

    def grow_from(self, small: BatchBKB) -> None:
        """See ``HasState``; new arms begin a batch, with the current mean and width."""
        self.model.grow_from(small.model)

    _parts = ("model", "_watched")
    _mean: Tensor  # from the start of the batch, (S, N)
    _bound: Tensor  # upper bounds on the scores of arms that are not watched, (S, N); -inf for watched arms
    _width: Tensor  # (S,)
    _draws: list[int | None]  # how many dictionaries had been drawn when the batch began

    def _fresh(self) -> dict[str, Any]:
        S, N, new = self.replicates, self.num_arms, self.model.arms.new_zeros
        return {"_mean": new(S, N), "_bound": new(S, N), "_width": new(S), "_draws": [None] * S}

    def state_changed(self) -> None:
        """Compute the largest bound of an arm that is not watched."""
        self._largest_bound = {k: float(self._bound[k].max()) for k in self._watched}

    def _restarted(self, where: Tensor | None) -> None:
        for k in [] if where is None else where.nonzero().flatten().tolist():
            self._draws[k] = None

    def _make_room(self, state: Mapping[str, Any]) -> None:
        none = torch.zeros(0, dtype=torch.long, device=self._bound.device)
        self._watched = {
            k: self._watched.get(k) or WatchedArms(self.model.sketches[k], none) for k in state["watched"]
        }


def batch_sizes(interval: int) -> list[int]:
    """n_i = ceil(sqrt(H n_{i-1})), n_0 = 1; the last is cut so that the sum is H (Li & Scarlett 2022)."""
    sizes, left, size = [], validation.positive_integer("interval", interval), 1
    while left:
        size = min(left, math.ceil(math.sqrt(interval * size) - 1e-9))
        sizes.append(size)
        left -= size
    return sizes


class PhasedElimination(Policy):
    """R-PERP: plans a batch by uncertainty sampling, plays it in random order, drops worse arms, and restarts.

    In batch i of an interval of H steps, n_i arms (``batch_sizes``) are chosen one after another, each with the
    largest posterior variance among the remaining arms. They are played in a uniformly random order. After the batch
    an arm stays if mu + width sigma >= max_x (mu - width sigma) over the remaining arms, in the posterior of this
    batch's rewards. After H steps all arms return.

    Source: Iwazaki & Takeno 2024 (arXiv 2410.16052): restarts, phased elimination and the random permutation; written
    from its abstract, with the batches of Li & Scarlett 2022 and the width that ``PermutationWidth`` proves.

    Args:
        model: an ``ArmGP`` of batch shape (S,) that does not drift.
        width: evaluated at the end of a batch.
        interval: H.
        seed, first_replicate: the seed of the permutations, and the number of the first replicate.

    If an arm is not available, the next in the order is played. If no arm of the batch is available, the available arm
    with the largest variance is played, a remaining one if possible. A reward outside the plan also counts as a step of
    the batch. Rewards of a batch may arrive in any order. When arms are added or removed (``AskTell``), a new interval
    begins with the current arms and the width for their number; the bound counts each such change as one more restart.

    Cost of a batch: n_i steps of the model to plan it, and n_i to learn it.

    Raises ValueError for any other model, and an ``interval`` below 1.
    """

    restarts_with_arms = "it plans batches over all arms, and drops those that fall behind the best"

    def __init__(
        self, model: ArmGP, width: Width, interval: int, *, seed: int = 0, first_replicate: int = 0
    ) -> None:
        validation.instance("model", model, ArmGP, "an ArmGP")
        fits = len(model.batch_shape) == 1 and not model.drifts
        validation.require(fits, "model", tuple(model.batch_shape), "of batch shape (S,), and without drift")
        validation.instance("width", width, Width, "a Width, such as ConstantWidth(2.0)")
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
        self._queue = self._played(pending.arm)

    def _played(self, arm: Tensor) -> Tensor:
        """The queue without the first entry of this arm, (S,), if it has one."""
        same = self._queue == arm.unsqueeze(-1)
        first = same & (same.cumsum(-1) == 1)
        return self._queue.masked_fill(first, -1)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Observe. At the end of a batch drop arms and plan the next; at the end of an interval restore all arms."""
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
        """Forget the data of these replicates and plan their next batch. All replicates draw random numbers."""
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
        return {"surviving": self._left.sum(-1), "restarts": self.restarts}

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("choices", "_streams")
    _clock: Tensor  # steps of the interval so far, (S,)
    restarts: Tensor  # (S,)
    _left: Tensor  # the remaining arms, (S, N) booleans
    _queue: Tensor  # the planned arms in order, (S, size of the largest batch); -1: none, or played

    def _fresh(self) -> dict[str, Any]:
        clock = torch.zeros(self.replicates, dtype=torch.long, device=self._ends.device)
        left = torch.ones(self.replicates, self.num_arms, dtype=torch.bool, device=clock.device)
        queue = clock.new_full((self.replicates, max(self.sizes)), -1)
        return {"_clock": clock, "restarts": clock.clone(), "_left": left, "_queue": queue}

    @torch.no_grad()
    def _restarted(self, where: Tensor | None) -> None:
        where = torch.ones_like(self._clock, dtype=torch.bool) if where is None else where
        if bool(where.any()):
            self._plan(where)

"""Captured steps of index policies over ``ArmGP``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

import torch
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from torch import Tensor

from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.captured.steps import Books, CapturedSteps, Given, Pull, refused
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.prior import StateSpacePrior
from bandits_torch.policies.choices.arms import best_available
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    KeepEverything,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import (
    Improvement,
    IndexPolicy,
    RewardImprovementPolicy,
    incumbent,
    with_reward,
)
from bandits_torch.theory.widths import Width

_RULES = (KeepEverything, SlidingWindow, PeriodicRestart, EventTriggeredRestart)
_ACQUISITIONS = (UpperConfidenceBound, ThompsonSampling)


class IndexSteps(CapturedSteps):
    """Steps of GP-UCB, GP-TS and their variants: any width, window and drift, restarts at intervals or by mask.

    Width, index, the test of a restart and the change of the posterior are the functions that plain steps call. All
    else that a plain step does is done once a block.

    Args:
        policy: an ``IndexPolicy`` over an ``ArmGP``.

    Raises ValueError that says why for a policy that cannot be captured.
    """

    def __init__(self, policy: IndexPolicy) -> None:
        _check(policy)
        self.policy, self.model = policy, cast(ArmGP, policy.model)
        self.belief, self.rule = self.model.belief, policy.forgetting
        self.samples = policy.acquisition is ThompsonSampling
        self.improves: Improvement | None = policy.acquisition if _improves(policy) else None
        self.by_mask = type(self.rule) is EventTriggeredRestart
        self.window = self.rule.window if isinstance(self.rule, SlidingWindow) else None
        self.interval = self.rule.interval if isinstance(self.rule, PeriodicRestart) else None

    # -- between blocks --------------------------------------------------------------------------------

    def begin(self, steps: int, most: int) -> None:
        """Look once at what is held, and make room for what is to come."""
        held, clock = self.belief.observations.count, self.policy.clock
        self._held = int(held.max())  # of every member, while all hold the same; else of the fullest
        even = bool((held == self._held).all()) and not isinstance(clock, Tensor)
        if self.window is not None and not (even and self._held == min(clock, self.window)):
            raise refused("SlidingWindow", "its replicates hold different numbers of observations")
        if self.interval is not None and not even:
            raise refused("PeriodicRestart", "its replicates do not restart together")
        if self.samples and self.by_mask:
            raise refused("ThompsonSampling", "a restart by mask would factor its covariance")
        if self.samples:
            self.belief.want_root()  # as the first draw of a plain step would
        factor, kernel = self.belief.form_name == "factor", self.belief.prior.time_kernel
        if self.samples and factor:
            raise refused("ThompsonSampling", "form='factor' keeps no root of the covariance")
        if self.static and factor and kernel is not None and not kernel.is_stationary:
            raise refused(
                "form='factor'", "under a kernel whose variance grows, work depends on what was pulled"
            )
        least = self.window or self.interval  # of what is held from then on
        room = steps if least is None else min(steps, least)
        self.belief.observations.reserve(room + most, self._held)
        self._even, each = even, self.by_mask or not even
        # The largest rewards so far, -inf where what is to be improved is the largest mean.
        none = self.model.noise_variance.new_full((self.policy.replicates, 1), -torch.inf)
        self.largest = getattr(self.policy, "largest", none).clone()
        clock = torch.as_tensor(clock, device=held.device).expand(self.policy.replicates)
        self._clock = clock.clone() if each else None  # a counter for each replicate, on the device
        self._centred = not bool(self.belief.prior_mean.any())  # x + 0 is x

    @property
    def _full(self) -> bool:
        """Whether an observation leaves for each that comes."""
        return self.window is not None and self._held >= self.window

    def most(self, times: Sequence[float]) -> int:
        """Until the window is full, the next restart at an interval, or the next look at the form's costs, and as
        there is room for."""
        belief, clock, wanted = self.belief, self.policy.clock, self.belief.before_look(len(times))
        if self.window is not None:
            wanted = min(wanted, self.window if self._full else self.window - self._held)
            if self._full and not (belief.forgets and belief.form.can_forget):
                return 0  # the first removal is the model's to prepare for
        if self.interval is not None:
            wanted = min(wanted, self.interval - cast(int, clock) % self.interval)
        if belief.drifts and belief.now is None:
            return 0  # the clock starts with the first observation
        if self.samples:
            belief.form.joint_root()  # kept from now on
        return belief.form.reserve(wanted, belief.now or 0.0, self.static)

    def given(self, times: Sequence[float]) -> Given:
        """Clock, drift, normal numbers, and the observations that leave."""
        k, belief, given = len(times), self.belief, dict[str, Tensor]()
        device = self.model.noise_variance.device
        if self._clock is None and self.policy.width is not None:
            clock = cast(int, self.policy.clock)
            given["clock"] = torch.arange(clock + 1, clock + k + 1, device=device)
        if belief.drifts:
            prior, moves, now = belief.form.prior, [], cast(float, belief.now)
            for time in times:
                self.model.check_not_past(time)
                moves.append(prior.drift(now, time))
                now = time
            kept, gained = zip(*moves, strict=True)
            given |= {"kept": torch.stack(kept), "gained": torch.stack(gained)}
            if belief.form_name == "factor":  # which tells points by it
                given["time"] = torch.tensor(times, dtype=torch.float64, device=device)
            if self.by_mask:
                given["prior"] = torch.stack([prior.present(time) for time in times])
        if self.samples:
            draws = [self.policy.streams.normal(self.model.num_arms) for _ in range(k)]
            given["normal"] = torch.stack(draws)
        if self._full:
            arm, reward, then, _ = belief.observations.held(k)
            leaving = {"leaving_arm": arm, "leaving": belief.residual(arm, reward)}
            if belief.form_name == "factor":
                leaving["leaving_time"] = then
            given |= {name: value.mT.contiguous() for name, value in leaving.items()}
        return given

    def key(self) -> Hashable:
        """Which form, where what it works on lies, and with or without a removal."""
        return id(self.belief.form), self._full, self.belief.form.place

    # -- in a block ------------------------------------------------------------------------------------

    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """Advance time, pull the best available arm, restart where the reward refutes the model, and learn."""
        belief, form, policy = self.belief, self.belief.form, self.policy
        told: Given = {}
        if belief.drifts:
            form.advance(given["kept"][j], given["gained"][j])
        width = None
        if policy.width is not None:
            counted = self._clock if self._clock is None else self._clock + 1
            step = given["clock"][j] if counted is None else counted.reshape(self.model.batch_shape)
            width = told["width"] = policy.width.at(step, self.model)
        told["arm"] = arm = best_available(self._index(given, j, width, available).mT, available)[1]
        reward = pull(arm).to(belief.prior_mean.dtype)
        if self.by_mask:
            told["restarted"] = self._restart(arm, reward, given["prior"][j] if "prior" in given else 1.0)
        if self._clock is not None:
            self._clock.add_(1)
        if isinstance(policy, RewardImprovementPolicy):
            self.largest.copy_(with_reward(self.largest, arm, reward))
        residual = reward if self._centred else belief.residual(arm, reward)
        now = given["time"][j] if "time" in given else 0.0
        leaving = [given[name][j] for name in ("leaving_arm", "leaving", "leaving_time") if name in given]
        later = None if self.by_mask else books  # a restart must find all counted
        form.observe(arm, residual, now, leaving or None, later, self.static)
        return told

    def _index(self, given: Given, j: int, width: Tensor | None, available: Tensor | None) -> Tensor:
        """Of every arm, (S, N): UCB, or the draw of Thompson sampling."""
        belief, form = self.belief, self.belief.form
        mean = form.mean if self._centred else form.mean + belief.prior_mean
        mean = mean.to(belief.prior_mean.dtype)
        if self.samples:
            width = None if width is None else width.reshape(-1)
            return ThompsonSampling.of(mean, cast(Tensor, form.joint_root()), given["normal"][j], width)
        if self.improves is not None:
            among = mean if available is None else mean.masked_fill(~available, -torch.inf)
            best = incumbent(self.largest, among.amax(-1, keepdim=True), available)
            return self.improves.of(mean, form.variance.to(mean.dtype), best)
        return UpperConfidenceBound.of(mean, form.variance.to(mean.dtype), cast(Tensor, width).reshape(-1, 1))

    def _restart(self, arm: Tensor, reward: Tensor, prior: Tensor | float) -> Tensor:
        """Which replicates (S,) start anew before they learn, ``prior``: its variance now."""
        policy, clock = self.policy, cast(Tensor, self._clock)

        def predict() -> tuple[Tensor, Tensor]:
            mean, variance = self.model.at(arm)
            return mean.reshape(-1), variance.reshape(-1).sqrt()

        where = cast(Tensor, self.rule.refuted(reward, predict, clock, self.model)).reshape(-1)
        self.belief.form.reset(prior, where)
        clock.masked_fill_(where, 0)
        policy.restarts.add_(where)
        return where

    def close(self, books: Books) -> None:
        """Count what is counted once a block."""
        self.belief.form.close(books)

    # -- after a block ---------------------------------------------------------------------------------

    def after(self, times: Sequence[float], rows: Given) -> None:
        """Keep the observations, advance the clocks, and check rounding errors when that is due."""
        belief, policy, k, full = self.belief, self.policy, len(times), self._full
        if self.static:
            belief.form.played(k, k if full else 0)
        belief.keep(rows["arm"].mT, rows["reward"].to(belief.prior_mean.dtype).mT, times, self._held)
        rows["restarts"] = policy.restarts.repeat(k, 1)
        if self.by_mask:
            restarted, step = rows.pop("restarted"), torch.arange(k, device=policy.restarts.device)
            last = torch.where(restarted, step.unsqueeze(-1), -1).amax(0)
            belief.observations.clear(last >= 0, k - last)
            rows["restarts"] += restarted.cumsum(0) - restarted.sum(0)
        if full:
            belief.observations.drop_oldest(k)
            belief.settle(belief.observations.count == 0)
        else:
            self._held += k
        belief.count(k)
        policy.clock = self._clock.clone() if self._clock is not None else cast(int, policy.clock) + k
        if isinstance(policy, RewardImprovementPolicy):
            policy.largest = self.largest.clone()
        policy.used_width = rows["width"][-1] if "width" in rows else None
        if self.interval is not None and cast(int, policy.clock) % self.interval == 0:
            policy.restart(True)
            self._held = 0
            rows["restarts"][-1] = policy.restarts

    def finish(self) -> tuple[str, ...]:
        """A clock that no restart has changed becomes one number again; so does a width that depends on it alone."""
        policy, clock = self.policy, self.policy.clock
        if not (self._even and isinstance(clock, Tensor)) or bool(policy.restarts.any()):
            return ()
        policy.clock = int(clock[0])
        width = policy.used_width
        if width is None or not width.dim() or cast(Width, policy.width).at(policy.clock, self.model).dim():
            return ()
        policy.used_width = width[0]
        return ("width",)


def _improves(policy: IndexPolicy) -> bool:
    kinds = LogExpectedImprovement, LogProbabilityOfImprovement
    return isinstance(policy.acquisition, Improvement) and policy.acquisition.acquisition in kinds


def _check(policy: IndexPolicy) -> None:
    """ValueError for an index policy that cannot be captured."""
    model, rule, name = policy.model, policy.forgetting, type(policy.model).__name__
    if type(model) is not ArmGP:
        raise refused(name, "the steps of an ArmGP can")
    if isinstance(model.prior, StateSpacePrior):
        raise refused("a kernel over time with a state space", "those with a MarkovTimeKernel can")
    if policy.acquisition not in _ACQUISITIONS and not (_improves(policy) and type(rule) is KeepEverything):
        shown = getattr(policy.acquisition, "__name__", type(policy.acquisition).__name__)
        raise refused(f"acquisition {shown}", "UpperConfidenceBound, ThompsonSampling, gp_ei and gp_pi can")
    if type(rule) not in _RULES:
        raise refused(type(rule).__name__, f"{', '.join(kind.__name__ for kind in _RULES)} can")
    if policy.acquisition is ThompsonSampling and model.drifts:
        raise refused("ThompsonSampling", "under drift every step factors an N x N covariance")

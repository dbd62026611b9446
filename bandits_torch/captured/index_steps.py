"""Captured steps of index policies over ``ArmGP``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

import torch
from torch import Tensor

from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.captured.moves import CovarianceMoves, FactorMoves
from bandits_torch.captured.steps import Books, CapturedSteps, Given, Pull, refused
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.prior import StateSpacePrior
from bandits_torch.policies.choices.arms import best_available
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    KeepEverything,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import IndexPolicy

_RULES = (KeepEverything, SlidingWindow, PeriodicRestart, EventTriggeredRestart)
_ACQUISITIONS = (UpperConfidenceBound, ThompsonSampling)


class IndexSteps(CapturedSteps):
    """Steps of GP-UCB, GP-TS and their variants: any width, window and drift, restarts at intervals or by mask.

    Args:
        policy: an ``IndexPolicy`` over an ``ArmGP``.

    Raises ValueError that says why for a policy that cannot be captured.
    """

    def __init__(self, policy: IndexPolicy) -> None:
        _check(policy)
        self.policy, self.model = policy, cast(ArmGP, policy.model)
        self.belief, self.rule = self.model._belief, policy.forgetting
        self.samples = policy.acquisition is ThompsonSampling
        self.by_mask = type(self.rule) is EventTriggeredRestart
        self.window = self.rule.window if isinstance(self.rule, SlidingWindow) else None
        self.interval = self.rule.interval if isinstance(self.rule, PeriodicRestart) else None

    _moves: CovarianceMoves | FactorMoves

    # -- between blocks --------------------------------------------------------------------------------

    def begin(self, steps: int, most: int) -> None:
        """Look once at what is held, and make room for what is to come."""
        held = self.belief.observations.count
        self._held = int(held.max())  # of every member, while all hold the same; else of the fullest
        even = bool((held == self._held).all()) and not isinstance(self.policy._clock, Tensor)
        if self.window is not None and not (even and self._held == min(self.policy._clock, self.window)):
            raise refused("SlidingWindow", "its replicates hold different numbers of observations")
        if self.interval is not None and not even:
            raise refused("PeriodicRestart", "its replicates do not restart together")
        if self.samples and self.by_mask:
            raise refused("ThompsonSampling", "a restart by mask would factor its covariance")
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
        self._even = even
        if self.by_mask or not even:  # a counter for each replicate, on the device
            clock = torch.as_tensor(self.policy._clock, device=held.device)
            self._clock: Tensor | None = clock.expand(self.policy.replicates).clone()
        else:
            self._clock = None
        self._centred = not bool(self.belief.prior_mean.any())  # x + 0 is x

    def most(self, times: Sequence[float]) -> int:
        """Until the window is full, until the next restart at an interval, and as there is room for."""
        belief, clock, wanted = self.belief, self.policy._clock, len(times)
        if self.window is not None:
            full = self._held >= self.window
            wanted = min(wanted, self.window if full else self.window - self._held)
            if full and not (belief.forgets and belief.form.can_forget):
                return 0  # the first removal is the model's to prepare for
        if self.interval is not None:
            wanted = min(wanted, self.interval - cast(int, clock) % self.interval)
        if belief.drifts and belief.now is None:
            return 0  # the clock starts with the first observation
        if self.samples:
            belief.form.joint_root()  # kept from now on
        if not hasattr(self, "_moves") or self._moves.form is not belief.form:
            if belief.form_name == "covariance":
                self._moves = CovarianceMoves(belief, self.by_mask, self.static)
            else:
                self._moves = FactorMoves(belief, self.static)
        return self._moves.most(wanted)

    def given(self, times: Sequence[float]) -> Given:
        """Clock, drift, normal numbers, and the observations that leave."""
        k, belief, given = len(times), self.belief, self._moves.given(times)
        device = self.model.noise_variance.device
        if self._clock is None and self.policy.width is not None:
            clock = cast(int, self.policy._clock)
            given["clock"] = torch.arange(clock + 1, clock + k + 1, device=device)
        if belief.drifts:
            moves, now = [], cast(float, belief.now)
            for time in times:
                self.model._check_not_past(time)
                moves.append(belief.form.prior.drift(now, time))
                now = time
            kept, gained = zip(*moves, strict=True)
            given |= {"kept": torch.stack(kept), "gained": torch.stack(gained)}
        if self.samples:
            draws = [self.policy._streams.normal(self.model.num_arms) for _ in range(k)]
            given["normal"] = torch.stack(draws)
        if self.window is not None and self._held >= self.window:
            store = belief.observations
            at = store.start.unsqueeze(-1) + torch.arange(k, device=device)
            arm, reward = store.arm.gather(-1, at), store.reward.gather(-1, at)
            residual = reward - belief.prior_mean.gather(-1, arm)
            given |= {"leaving_arm": arm.mT.contiguous(), "leaving": residual.mT.contiguous()}
            given["leaving_time"] = store.time.gather(-1, at).mT.contiguous()
        return given

    def key(self) -> Hashable:
        """Which form, with or without a removal."""
        full = self.window is not None and self._held >= self.window
        return id(self.belief.form), full, self._moves.key()

    # -- in a block ------------------------------------------------------------------------------------

    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """Advance time, pull the best available arm, restart where the reward refutes the model, and learn."""
        belief = self.belief
        told: Given = {}
        if "kept" in given:
            belief.form.advance(given["kept"][j], given["gained"][j])
        width = self._width(given, j)
        arm = best_available(self._index(given, j, width).mT, available)[1]
        reward = pull(arm).to(belief.prior_mean.dtype)
        if self.by_mask:
            told["restarted"] = self._restart(arm, reward)
        if self._clock is not None:
            self._clock.add_(1)
        residual = reward if self._centred else reward - self._prior_mean_at(arm)
        self._moves.observe(given, j, arm, residual, books)
        return {"arm": arm} | told | ({} if width is None else {"width": width})

    def _width(self, given: Given, j: int) -> Tensor | None:
        if self.policy.width is None:
            return None
        if self._clock is None:
            return self.policy.width.at(given["clock"][j], self.model)
        return self.policy.width.at((self._clock + 1).reshape(self.model.batch_shape), self.model)

    def _index(self, given: Given, j: int, width: Tensor | None) -> Tensor:
        """Of every arm, (S, N): UCB, or the draw of Thompson sampling."""
        form, mean = self.belief.form, self._mean()
        if not self.samples:
            deviation = form.variance.clamp_min(1e-12).to(mean.dtype).sqrt()
            return torch.addcmul(mean, cast(Tensor, width).to(mean).reshape(-1, 1), deviation)
        root = cast(Tensor, cast(CovarianceForm, form).root)  # F^T F = C
        draw = (given["normal"][j].to(mean).unsqueeze(-2) @ root).squeeze(-2)
        return mean + (draw if width is None else width.to(mean).reshape(-1, 1) * draw)

    def _mean(self) -> Tensor:
        """Of every arm, (S, N), in the model's dtype."""
        belief = self.belief
        mean = belief.form.mean if self._centred else belief.form.mean + belief.prior_mean
        return mean.to(belief.prior_mean.dtype)

    def _prior_mean_at(self, arm: Tensor) -> Tensor:
        return self.belief.prior_mean.gather(-1, arm.unsqueeze(-1)).squeeze(-1)

    def _restart(self, arm: Tensor, reward: Tensor) -> Tensor:
        """Which replicates (S,) start anew before they learn."""
        form, at, clock = self.belief.form, arm.unsqueeze(-1), cast(Tensor, self._clock)

        def predict() -> tuple[Tensor, Tensor]:
            variance = form.variance.clamp_min(0.0).to(reward.dtype)
            return self._mean().gather(-1, at).squeeze(-1), variance.gather(-1, at).squeeze(-1).sqrt()

        where = cast(Tensor, self.rule.refuted(reward, predict, clock, self.model)).reshape(-1)
        form.reset(form.prior.present(0.0) if self.belief.drifts else 1.0, where)
        clock.masked_fill_(where, 0)
        self.policy._restarts.add_(where)
        return where

    def close(self, books: Books) -> None:
        """Book what the moves left for the end of the block."""
        self._moves.close(books)

    # -- after a block ---------------------------------------------------------------------------------

    def after(self, times: Sequence[float], rows: Given) -> None:
        """Keep the observations, advance the clocks, and check rounding errors when that is due."""
        belief, policy, k = self.belief, self.policy, len(times)
        store, full = belief.observations, self.window is not None and self._held >= self.window
        reward = rows["reward"].to(belief.prior_mean.dtype)
        # A tensor of times only where they matter: a static model's observations are all of time 0.
        at = torch.tensor(
            times if belief.drifts else [0.0] * k, dtype=torch.float64, device=store.time.device
        )
        before = store.end.clone()
        store.extend(rows["arm"].mT, reward.mT, at, self._held)
        rows["restarts"] = policy._restarts.repeat(k, 1)
        if self.by_mask:
            moved = store.end - k - before  # by packing
            restarted, step = rows.pop("restarted"), torch.arange(k, device=at.device)
            last = torch.where(restarted, step.unsqueeze(-1), -1).amax(0)
            store.start.copy_(torch.where(last >= 0, before + moved + last, store.start))
            rows["restarts"] += restarted.cumsum(0) - restarted.sum(0)
        if full:
            store.start.add_(k)
        else:
            self._held += k
        policy._clock = self._clock.clone() if self._clock is not None else cast(int, policy._clock) + k
        policy._width = rows["width"][-1] if "width" in rows else None
        if belief.drifts:
            belief.now = times[-1]
        self._moves.after(k, 2 if full else 1)
        self._look(k)
        if self.interval is not None and cast(int, policy._clock) % self.interval == 0:
            policy._restart(True)
            self._held = 0
            rows["restarts"][-1] = policy._restarts

    def _look(self, k: int) -> None:
        """Check rounding errors, as often as after plain steps."""
        belief = self.belief
        belief._learned += k
        look = [at <= belief._learned for at in belief._looks]
        if belief.form.frail.is_cpu and bool(belief.form.frail.any()):
            look = [a or b for a, b in zip(look, belief.form.frail.tolist(), strict=True)]
        if any(look):
            belief._mend(belief.now or 0.0, look)
        belief.weigh_forms(belief._learned - k)

    def finish(self) -> tuple[str, ...]:
        """A clock that no restart has changed becomes one number again; so does a width that depends on it alone."""
        policy, clock = self.policy, self.policy._clock
        if not (self._even and isinstance(clock, Tensor)) or bool(policy._restarts.any()):
            return ()
        policy._clock = int(clock[0])
        if policy.width is None or policy.width.at(policy._clock, self.model).dim():
            return ()
        policy._width = cast(Tensor, policy._width)[0]
        return ("width",)


def _check(policy: IndexPolicy) -> None:
    """ValueError for an index policy that cannot be captured."""
    model, rule, name = policy.model, policy.forgetting, type(policy.model).__name__
    if type(model) is not ArmGP:
        raise refused(name, "the steps of an ArmGP can")
    if isinstance(model.prior, StateSpacePrior):
        raise refused("a kernel over time with a state space", "those with a MarkovTimeKernel can")
    if policy.acquisition not in _ACQUISITIONS:
        shown = getattr(policy.acquisition, "__name__", type(policy.acquisition).__name__)
        raise refused(f"acquisition {shown}", "UpperConfidenceBound and ThompsonSampling can")
    if type(rule) not in _RULES:
        raise refused(type(rule).__name__, f"{', '.join(kind.__name__ for kind in _RULES)} can")
    if policy.acquisition is ThompsonSampling and model.drifts:
        raise refused("ThompsonSampling", "under drift every step factors an N x N covariance")

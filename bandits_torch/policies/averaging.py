"""Model averaging: UCB of a mixture of models, weighted by how well each predicts; with or without contexts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.members import MembersOverArms
from bandits_torch.policies.choices.arms import Arms, best_available
from bandits_torch.policies.choices.contexts import (
    INPUTS,
    check_contexts,
    check_inputs,
    checked_features,
    inputs_under,
    number_of,
    number_under,
    pairs_of,
)
from bandits_torch.policies.learned_units import (
    HELD,
    FirstRewards,
    MemberScale,
    RewardFrame,
    TwoValues,
    TypicalClock,
)
from bandits_torch.policies.looking_again import LookingAgain
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.policies.reward_range import RewardRange
from bandits_torch.policies.sharing import FixedShare, effective_number, mixture_moments
from bandits_torch.policies.wrapping import WrappingPolicy
from bandits_torch.state import HasState, only_where

_FIRST_CHECK, _LONGEST = 8, 100  # observations before the first check; most observations between two
_WIDE_EVERY = 10  # observations
TIE = 1e-9  # indices tie within this share of their range
ROUNDINGS = 64  # and this many rounding errors of the largest
_FRESH = 2.0  # after t observations at least this times sqrt(t + 1) arms have been tried


class _Units(NamedTuple):
    """Origin and unit of rewards of each member, -origin / unit, the square of the unit and its logarithm, (S, P)
    each."""

    origin: Tensor
    unit: Tensor
    shift: Tensor
    square: Tensor
    log: Tensor


class ModelAveraging(Policy):
    """Plays argmax over arms of m + width sqrt(v), with m and v the moments of a weighted mixture of P models.

    Every member observes every reward, and ``FixedShare`` weighs the members. They differ in what is unknown: kernel,
    noise, rate of change. Members far behind start again from their prior.

    Checks: a wrong but confident member can keep the policy at an arm at which all members predict equally well, so
    that nothing refutes it. Therefore the policy sometimes plays the arm with the largest mu_p + width sigma_p under
    any member whose evidence, ln(w_p / pi_p), is within ``plausible`` nats of the best: after 8 observations, then
    after every half of the observations so far, at least 8 and at most 100. Even if all members are right, the width
    can be too small to notice that an arm has risen: with ``wide`` every tenth choice uses at least this width.

    Arms that are not played: with ``look_again`` an arm that has gone unexamined for about ``look_again`` sqrt(t + 300)
    of t observations is played (``LookingAgain``).

    Members with ``scale.learn_offset`` learn origin and unit of rewards: they predict (y - o) / u (``RewardFrame``,
    ``FirstRewards``). An ``ArmGP`` keeps the first reward as its origin.

    Outliers: a reward in doubt (``RewardRange``) is not learned, and its arm does not count as tried. If it is high,
    the arm is played again at once.

    Args:
        model: batch shape (S, P): an ``ArmGP`` (``arm_gp_over_priors``), or ``ArmMembers``, ``SmoothMembers`` or both,
            ``StackedMembers``; or ``LevelMembers``, with a control all with a learned origin.
        sharing: the weights; default: equal prior weights and the defaults of ``FixedShare``.
        scale: whether origin and unit are learned (``MemberScale``); default: they are known, 0 and 1.
        width: multiplies the mixture's standard deviation.
        plausible: nats; 0: no checks.
        wide: the least width at every tenth choice; 0: always ``width``.
        try_all: play arms that have not been played, in order, so at least 2 sqrt(t + 1) are tried after t
            observations; the index may avoid some. For few or uncorrelated arms.
        look_again: c of ``LookingAgain``; not for an ``ArmGP``. 0: never; an arm that becomes best unseen may then
            never be found.
        at_once: see ``LookingAgain``.
        typical_gap: count time in typical gaps between observations (``TypicalClock``); False: in the model's unit.

    Cost: a step of the model and O(S P N). Every step reads whether a member must be reset, so it waits for a GPU. An
    observation older than the latest is learned as if it were made now, but members with cycles use its own phase.
    ``trace``: effective_rate (the mean of the members' rates by weight), effective_members (exp of the weights'
    entropy), noise_scale (standard deviation of the noise, by weight), scale (sqrt of the factor of the covariances, by
    weight), resets (members reset so far), doubted (rewards that were in doubt so far), longest_unseen (observations;
    only with ``look_again``).

    No theorem bounds its regret. The bound of ``FixedShare`` on its predictions holds for the rewards believed.

    Source: Herbster & Warmuth 1998 for the weights; UCB of a mixture as in the fully Bayesian baseline of Ziomek et al.
    2024, section 7, which averages upper confidence bounds instead.

    Raises ValueError for a model of another batch shape and parts that do not fit it.
    """

    _pending_columns: Tensor | None = None  # u of q pending pulls, (q, S, N): each lowers variances by u^2
    needs_unit = "it learns the unit by itself"

    def __init__(
        self,
        model: ArmGP | MembersOverArms,
        *,
        sharing: FixedShare | None = None,
        scale: MemberScale | None = None,
        width: float = 1.25,
        plausible: float = 4.0,
        wide: float = 0.0,
        try_all: bool = False,
        look_again: float = 0.0,
        at_once: int = 0,
        typical_gap: bool = False,
    ) -> None:
        validation.instance("model", model, (ArmGP, MembersOverArms), "an ArmGP or ArmMembers")
        framed = scale is not None and bool(scale.learn_offset.all())
        fits = framed or model.control is None
        learns = "one that learns the origin of all members, over LevelMembers with a control"
        validation.require(fits, "scale", scale, learns)
        two = len(model.batch_shape) == 2
        validation.require(two, "model.batch_shape", tuple(model.batch_shape), "(S, P): replicates, members")
        self.model, self.num_arms = model, model.num_arms
        self.replicates, self.num_members = model.batch_shape
        noise = model.noise_variance
        self.choices = Arms(self.num_arms, self.replicates, noise.dtype)
        ones = noise.new_ones(self.num_members)
        self.sharing = sharing or FixedShare(ones, self.replicates)
        self.scale = scale or MemberScale(torch.inf * ones, ones < 0, self.replicates)
        fits = self.sharing.log_weight.shape == self.scale.count.shape == model.batch_shape
        shapes = tuple(self.sharing.log_weight.shape), tuple(self.scale.count.shape)
        validation.require(fits, "sharing and scale", shapes, f"of shape {tuple(model.batch_shape)}")
        self.width = validation.non_negative("width", width)
        self.plausible = validation.non_negative("plausible", plausible)
        self.wide = validation.non_negative("wide", wide)
        self.try_all = try_all
        self.looks: LookingAgain | None = None
        validation.natural("at_once", at_once)
        if validation.non_negative("look_again", look_again):
            fits, without = isinstance(model, MembersOverArms), "0 with a model that is no MembersOverArms"
            validation.require(fits, "look_again", look_again, without)
            self.looks = LookingAgain(look_again, cast(MembersOverArms, model), at_once)
        rates = getattr(model, "forgetting_rate", torch.zeros_like(ones))
        self.forgetting_rate = rates.to(noise).expand(self.num_members)  # for the trace alone
        self.clock = TypicalClock(typical_gap)
        self.frame = RewardFrame(noise, self.replicates)
        self._framed = self.scale.learn_offset  # (P,)
        self._all_framed, self._some_framed = bool(self._framed.all()), bool(self._framed.any())
        self._mixed = self._some_framed and not self._all_framed
        known, expected = self.scale.strength > 0, 0.0
        if bool(known.any()):  # members of known unit expect the range of their prior means, plus a deviation
            with torch.no_grad():
                mean, variance = (moment[:, known] for moment in model.marginals())
                expected = float(mean.max() - mean.min() + variance.max().sqrt())
        self.range = RewardRange(noise, noise.new_zeros(self.replicates).long(), expected)
        self._first = FirstRewards(model, self.scale, self.frame)
        self.two_values = TwoValues(noise, self.replicates)
        # The parts that a reward in doubt does not change.
        self.judged: list[HasState] = [self.frame, self.scale, self.two_values, self.sharing]
        self.judged += filter(None, [self.looks])
        self._begin()

    @torch.no_grad()
    def marginals(self, time: float, points: None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm's expected reward under the mixture at ``time``, (S, N) each.

        Raises ValueError for a time before the latest observation.
        """
        self.clock.check_not_past(validation.finite_number("time", time))
        mean, variance = mixture_moments(*self.components(time))
        if self._all_framed:
            unit = self.frame.factor
            return mean * unit + self.frame.offset, variance * unit * unit
        return mean, variance

    @torch.no_grad()
    def components(self, time: float, points: None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The mixture's parts: weights (S, P); mean and variance of every arm under each member, (S, P, N) each, with
        one common unit and origin, which may differ from those of rewards."""
        if not self.model.has_level:
            return self.sharing.weights, *self.members(time)
        # The marginals of LevelMembers are without the level's uncertainty, and with a control without the level.
        return self.sharing.weights, *self.in_one_unit(
            *cast(MembersOverArms, self.model).rewards(self._at(time))
        )

    @torch.no_grad()
    def joint(self, time: float, arms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the mixture's joint posterior at arms (S, K), for differences between arms: weights (S, P),
        means (S, P, K) and covariances (S, P, K, K). O(S P N K)."""
        weights, (mean, _) = self.sharing.weights, self.members(time)
        at, now = arms.unsqueeze(-2).expand(-1, self.num_members, -1), self._at(time)
        columns = [self.model.covariance_with(arm, now).gather(-1, at) for arm in arms.unbind(-1)]
        return weights, mean.gather(-1, at), torch.stack(columns, -1) * self._factors()[..., None, None]

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The available arm with the largest m + width sqrt(v), unless it is time for a check, a new arm or a look."""
        self.choices.check_available(available)
        asked = self.asked(self.count + (0 if self._pending_columns is None else len(self._pending_columns)))
        return Choice(self.pick(self.members(time), asked, available))

    def asked(self, count: int) -> dict[str, float | bool]:
        """The numbers on which the choice after ``count`` observations depends: its width; whether it is a check; the
        number of tried arms below which a new one is tried; how long an arm may go unexamined."""
        wide = count > 0 and count % _WIDE_EVERY == 0
        return {
            "width": max(self.width, self.wide) if wide else self.width,
            "check": self.plausible > 0 and count == self._next_check,
            "few": _FRESH * math.sqrt(count + 1),
            "tau": self.looks.tau(count) if self.looks is not None else math.inf,
        }

    def pick(
        self,
        members: tuple[Tensor, Tensor],
        asked: Mapping[str, Any],
        available: Tensor | None,
        again: bool = True,
    ) -> Tensor:
        """The arms to play, (S,), given the members' moments (S, P, N) and ``asked``, of numbers or tensors.
        ``again``: whether arms whose reward is in doubt are played again."""
        width, check = asked["width"], asked["check"]
        weights = self.sharing.weights
        mean, variance = mixture_moments(weights, *members)
        if self._pending_columns is not None:
            variance = (variance - self._pending_columns.square().sum(0)).clamp_min(0.0)
        index = mean + width * variance.sqrt()
        if isinstance(check, Tensor):
            index = torch.where(check, self._optimistic(*members, width), index)
        elif check:
            index = self._optimistic(*members, width)
        if self.try_all:
            fresh = ~self._pulled if available is None else ~self._pulled & available
            few = self._pulled.sum(-1, keepdim=True) < asked["few"]
            index = torch.where(fresh.any(-1, keepdim=True) & few, fresh.to(index), index)
        if self.looks is not None:
            index = self.looks.first(index, mean, weights, asked["tau"], available)
        arm = self._best(index, available)
        return self._asked_again(arm, available) if again else arm

    def numbers_per_step(self, observations: int) -> int:
        """A tenth of the members' covariances: most steps read a few rows, and some read all."""
        return super().numbers_per_step(observations) * self.num_members // 10

    _expects = ("_pending_columns", "_pulled", "looks", "range")

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls, as if made at ``time``, reduce the mixture's variance as a linear estimate would.

        With the mixture's covariance K(x, y) = sum_p w_p (C_p(x, y) + (mu_p(x) - m(x)) (mu_p(y) - m(y))) and its noise
        L, a pull of arm i leaves K(x, y) - K(x, i) K(i, y) / (K(i, i) + L): the reward of i will also reduce the
        members' disagreement. Mean and weights do not change. Pending pulls count as observations for the next check,
        as plays of their arms and as examinations. O(S P N) each.
        """
        weights, scale = self.sharing.weights, self._factors()
        mean, _ = self.members(time)
        off = mean - weights.unsqueeze(-2) @ mean
        column = self.model.covariance_with(pending.arm, self._at(time)) * scale.unsqueeze(-1)
        at = pending.arm.reshape(-1, 1, 1).expand(-1, self.num_members, 1)
        column = (weights.unsqueeze(-2) @ (column + off * off.gather(-1, at))).squeeze(-2)
        at, before = pending.arm.unsqueeze(-1), self._pending_columns
        before = column.new_zeros(0, *column.shape) if before is None else before
        column = column - (before * before.gather(-1, at.expand(len(before), -1, 1))).sum(0)
        noise = (weights * scale * self.model.noise_variance).sum(-1, keepdim=True)
        u = column / (column.gather(-1, at).clamp_min(0.0) + noise).sqrt()
        self._pending_columns = torch.cat([before, u.unsqueeze(0)])
        self._pulled = self._pulled.scatter(-1, at, True)
        self._examine(pending.arm)
        self.range.latest = torch.zeros_like(self.range.latest)

    def _asked_again(self, arm: Tensor, available: Tensor | None) -> Tensor:
        """``arm`` (S,), or the arm whose high reward is in doubt, in replicates that have one."""
        at, again = self.range.arm, self.range.latest == 1
        if available is not None:
            again = again & available.expand_as(self._pulled).gather(-1, at.unsqueeze(-1)).squeeze(-1)
        return torch.where(again, at, arm)

    def _best(self, index: Tensor, available: Tensor | None) -> Tensor:
        """The available arm with the largest index (S, N), the first of those that tie, (S,).

        Uncorrelated arms that have not been played tie. The choice among them must not depend on rounding errors, which
        depend on the unit of rewards.
        """
        largest = best_available(index.mT, available)[0].unsqueeze(-1)
        rounding = ROUNDINGS * torch.finfo(index.dtype).eps  # matters if all arms tie
        near = torch.lerp(largest, index.amin(-1, keepdim=True), TIE).sub_(largest.abs(), alpha=rounding)
        among = index >= near
        if available is None:
            return among.max(-1).indices
        return best_available(among.to(index).mT, available)[1]

    def _examine(self, arm: Tensor) -> None:
        """Record that these arms (S,) are examined."""
        if self.looks is not None:
            self.looks.examine(arm, self.sharing.weights)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Unless the reward is in doubt: weigh the members, reset those far behind, and let all observe it."""
        self.choices.check(observation)
        self.range.teach(observation, self._learn, self.reset)

    def _learn(self, observation: Observation, believed: Tensor | None) -> None:
        arm, time = observation.arm, self._timed(self.clock.tick(observation.time), observation.time)
        reward = observation.reward.to(self.model.noise_variance)
        where = None if believed is None else believed.unsqueeze(-1)
        holding = self.count < HELD
        exempt = ~self._first.settled.unsqueeze(-1) & self._framed if holding else None
        mean, variance = self.model.at(arm, time)  # in the units of the members
        self.scale.look()
        self.two_values.look()
        settled, confirmed = self.frame.holds(reward), self.range.borne_out
        due, seen, learned = self.weigh(arm, reward, (mean, variance), believed, confirmed, exempt, settled)
        if bool(due.any()):
            self.model.reset(due)
            mean, variance = self.model.at(arm, time)
            learned = torch.where(due, seen - mean, learned)
        at = mean, variance
        if self.model.has_level:
            at, learned = self.without_jumps(arm, seen, at, learned, where, time)
        self.model.observe_residuals(arm, learned, at, time, where)
        self.tried(arm, where)
        if holding:
            self._first.hold(arm, reward if believed is None else reward.where(believed, torch.nan), time)
        self.counted()

    def without_jumps(
        self,
        arm: Tensor,
        seen: Tensor,
        at: tuple[Tensor, Tensor],
        learned: Tensor,
        where: Tensor | None,
        time: Any = None,
        blind: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Forget the level of the members whose residual ``learned`` is clipped: it has jumped. The rest is as for
        ``weigh``. Returns what each member then expects of the arm, and the residual to learn. ``blind``: read no
        value on the host."""
        clipped = learned != seen - at[0]
        clipped = clipped if where is None else clipped & where
        if not (blind or bool(clipped.any())):
            return at, learned
        jumped = cast(MembersOverArms, self.model).forget_level(clipped)
        at = self.model.at(arm, time)
        return at, torch.where(jumped, seen - at[0], learned)

    def takes_all(self, least: Tensor, most: Tensor) -> bool:
        """Whether any rewards from ``least`` to ``most`` (S,) would all be believed and leave origin and unit as they
        are, with enough known of every scale (``MemberScale.full``). Waits for a GPU."""
        self.scale.look()
        self.two_values.look()
        believed = self.scale.full and bool(self.range.believes_all(least, most).all())
        return believed and self.frame.holds(torch.stack([least, most]))

    def weigh(
        self,
        arm: Tensor,
        reward: Tensor,
        at: tuple[Tensor, Tensor],
        believed: Tensor | None,
        confirmed: Tensor | None,
        exempt: Tensor | None = None,
        settled: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weigh the members, whose moments of ``arm`` (S,) are ``at``, (S, P) each, by its reward, (S,), in the
        replicates with ``believed`` (S,) True (None: all). ``confirmed`` (S,): the reward is far out, but no outlier
        (None: in no replicate). ``settled``: the reward does not change origin and unit.

        Returns, (S, P) each: the members due for a reset, never those that are ``exempt``; the reward in each member's
        unit; and the clipped residual that each must learn.
        """
        mean, variance = at
        with only_where(believed, *self.judged):
            log_unit = self._member_units().log[:, 0] if self._all_framed else None
            rounding = None
            if not settled:
                smaller = self.frame.meet(reward).unsqueeze(-1)
                grows = smaller < 1.0  # members in the frame have learned rounding errors so far
                log_unit = None if log_unit is None else log_unit * ~grows.squeeze(-1)
                rounding = grows & self._framed
                mean = torch.where(rounding, mean * smaller, mean)
                self.scale.forget(rounding)
            own, seen = self._member_units(), reward.unsqueeze(-1).expand(-1, self.num_members)
            if self._some_framed:
                seen = torch.addcdiv(own.shift, seen, own.unit)  # exact: units are powers of two
            unit = own.unit if self._mixed else None
            two = self.two_values.meet(reward)
            density, learned = self.scale.update(
                seen - mean, variance + self.model.noise_variance, unit, confirmed, two
            )
            density = density - own.log if self._mixed else density  # per unit of rewards
            due = self.sharing.update(density, exempt, log_unit)
            if rounding is not None:
                due = due | (rounding if exempt is None else rounding & ~exempt)
            self._examine(arm)
        return due if believed is None else due & believed.unsqueeze(-1), seen, learned

    def counted(self) -> None:
        """Count an observation."""
        if self.count == self._next_check:
            self._next_check += min(max(_FIRST_CHECK, self.count // 2), _LONGEST)
        self.count += 1

    def tried(self, arm: Tensor, where: Tensor | None) -> None:
        """Record that these arms (S,) were pulled, in the replicates with ``where`` (S, 1) True (None: in all)."""
        at = arm.unsqueeze(-1)
        if where is None:
            self._pulled.scatter_(-1, at, True)
        else:
            self._pulled.scatter_(-1, at, self._pulled.gather(-1, at) | where)

    def _optimistic(self, mean: Tensor, variance: Tensor, width: float | Tensor) -> Tensor:
        """The largest upper bound of each arm under any plausible member, (S, N)."""
        evidence = self.sharing.log_weight - self.sharing.log_prior
        implausible = evidence < evidence.amax(-1, keepdim=True) - self.plausible
        bounds = mean + width * variance.sqrt()
        return bounds.masked_fill(implausible.unsqueeze(-1), -torch.inf).amax(-2)

    def members(self, time: float) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm under every member at ``time``, (S, P, N) each, ``in_one_unit``."""
        return self.in_one_unit(*self.model.marginals(self._at(time)))

    def in_one_unit(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Moments of the members (S, P, N) in units of reward, or of the frame if all members are in it."""
        if self._mixed:
            own = self._member_units()
            mean = torch.addcmul(own.origin.unsqueeze(-1), mean, own.unit.unsqueeze(-1))
        return mean, variance * self._factors().unsqueeze(-1)

    def _at(self, time: float) -> Any:
        return self._timed(self.clock.at(time), time)

    def _timed(self, passed: float, time: float) -> Any:
        """A time as the model takes it: on the clock, and for members with cycles also in the given unit."""
        return (passed, time) if self.model.has_cycles else passed

    def _factors(self) -> Tensor:
        """Factors of the members' variances, (S, P), in the units of ``members``."""
        return self.scale.scale * self._member_units().square if self._mixed else self.scale.scale

    def _member_units(self) -> _Units:
        """Origin and unit of rewards of each member. The result is cached until those of the frame change."""
        frame = self.frame.offset, self.frame.factor
        if self._units is None or self._units[0] is not frame[0] or self._units[1] is not frame[1]:
            origin, unit = (torch.where(self._framed, *pair) for pair in ((frame[0], 0.0), (frame[1], 1.0)))
            self._units = *frame, _Units(origin, unit, -origin / unit, unit.square(), unit.log())
        return self._units[2]

    _units: tuple[Tensor, Tensor, _Units] | None = None

    def trace(self) -> dict[str, Tensor | float]:
        return {**self.trace_of(self.traced())}

    def traced(self) -> dict[str, Tensor]:
        """The tensors from which ``trace_of`` computes the trace."""
        state = {
            "log_weight": self.sharing.log_weight,
            "scale": self.scale.scale,
            "unit": self.frame.factor.squeeze(-1),
            "square": self._member_units().square,
            "resets": self.sharing.resets,
            "doubted": self.range.doubted,
        }
        return state if self.looks is None else state | {"unseen": self.looks.unseen}

    def trace_of(self, traced: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The trace of one step, or of several if tensors have a dimension of steps before the others."""
        weights, scale = traced["log_weight"].exp(), traced["scale"]
        scale = scale * traced["square"] if self._mixed else scale
        unit = traced["unit"] if self._all_framed else 1.0  # multiplied last, because its square may overflow
        noise = (weights * scale * self.model.noise_variance).sum(-1)
        trace = {
            "effective_rate": (weights * self.forgetting_rate).sum(-1),
            "effective_members": effective_number(weights),
            "noise_scale": noise.sqrt() * unit,
            "scale": (weights * scale).sum(-1).sqrt() * unit,
            "resets": traced["resets"],
            "doubted": traced["doubted"],
        }
        if self.looks is not None:
            trace["longest_unseen"] = traced["unseen"].amax(-1)
        return trace

    # -- state -----------------------------------------------------------------------------------------

    # If only some replicates are reset, the clock and the origin, unit and range of rewards stay.
    _parts = ("model", "sharing", "scale", "frame", "two_values", "clock", "_first", "looks", "range")
    count: int  # observations
    _next_check: int  # number of observations before the next check
    _pulled: Tensor  # which arms have been pulled, (S, N)

    def _fresh(self) -> dict[str, Any]:
        shape, device = (self.replicates, self.num_arms), self.model.noise_variance.device
        pulled = torch.zeros(shape, dtype=torch.bool, device=device)
        return {"count": 0, "_next_check": _FIRST_CHECK, "_pulled": pulled}


class UnderContexts(WrappingPolicy):
    """Base class: a policy over N arms under a context, around a policy that averages over members.

    ``choose`` takes an ``ArmContext``. ``why["inputs"]`` (S, d + c) holds the features and context of the chosen arm,
    so a reward is learned with the inputs of its choice, however late it comes.
    """

    takes_contexts = True
    policy: ModelAveraging | PointAveraging

    def _over(self, policy: Policy, arms: Tensor, context_dim: int) -> None:
        self._around(policy)
        self.arms = checked_features("arms", arms)
        self.context_dim = validation.positive_integer("context_dim", context_dim)
        self.num_arms, self.dim = len(arms), 0
        self.choices = Arms(self.num_arms, self.replicates, arms.dtype)

    @abstractmethod
    def _known_as(self, arm: Tensor, inputs: Tensor) -> Tensor:
        """The inner policy's choice for arms (S,) with these inputs (S, d + c)."""

    def learn(self, observation: Observation) -> None:
        self.choices.check(observation)
        self.policy.learn(self._inside(observation))

    def _inside(self, one: Any) -> Any:
        inputs = check_inputs(one, (self.replicates, self.arms.shape[-1] + self.context_dim))
        return replace(one, arm=self._known_as(one.arm, inputs), why={})

    @property
    def innermost(self) -> Policy:
        """This policy, because the inner one is not over its arms."""
        return self

    @abstractmethod
    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm's expected reward at ``time`` under a context, an ``ArmContext``: (S, N) each.

        Raises ValueError for a time before the latest observation.
        """

    @abstractmethod
    def components(self, time: float, points: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """The mixture's parts under a context: see the ``components`` of the inner policy."""


class PairAveraging(UnderContexts):
    """``ModelAveraging`` over the N M pairs of N arms and M contexts; a step chooses among the pairs of its context.

    Args:
        policy: over the pairs, those of the first arm first.
        arms: features, (N, d).
        contexts: (M, c), all possible contexts.

    Cost: a step of ``policy``. Source: arms are chosen under the step's context as in CGP-UCB (Krause & Ong 2011,
    Algorithm 1). Raises ValueError for a policy over another number of arms, and for contexts that are listed twice;
    ``choose`` raises it for an unlisted context.
    """

    policy: ModelAveraging

    def __init__(self, policy: ModelAveraging, arms: Tensor, contexts: Tensor) -> None:
        validation.instance("policy", policy, ModelAveraging, "a ModelAveraging")
        check_contexts(contexts)
        self._over(policy, arms, contexts.shape[-1])
        self.contexts = contexts.to(arms)
        check_contexts(self.contexts)
        self._pairs = pairs_of(arms, self.contexts)
        fits, expected = policy.num_arms == len(self._pairs), f"over {len(self._pairs)} pairs"
        validation.require(fits, "policy", policy.num_arms, expected)

    def choose(self, time: float, available: Any = None) -> Choice:
        """The best available arm (S,), among the pairs with the step's context."""
        number, mask = number_under(available, self.choices, self.contexts)
        S, N, M = self.replicates, self.num_arms, len(self.contexts)
        open_to = torch.nn.functional.one_hot(number, M).bool().unsqueeze(-2).expand(S, N, M)
        if mask is not None:
            open_to = open_to & mask.unsqueeze(-1)
        pair = self.policy.choose(time, open_to.reshape(S, N * M)).arm
        return Choice(pair // M, {INPUTS: self._pairs[pair]})

    def _known_as(self, arm: Tensor, inputs: Tensor) -> Tensor:
        number = number_of(f"why[{INPUTS!r}]", inputs[..., self.arms.shape[-1] :], self.contexts)
        return arm * len(self.contexts) + number

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        mean, variance = (self._under(points, moment) for moment in self.policy.marginals(time))
        return mean, variance

    def components(self, time: float, points: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        weights, mean, variance = self.policy.components(time)
        return weights, self._under(points, mean), self._under(points, variance)

    def _under(self, context: Any, values: Tensor) -> Tensor:
        """The entries of values (S, ..., N M) under a context, (S, ..., N)."""
        number, _ = number_under(context, self.choices, self.contexts)
        each = values.unflatten(-1, (self.num_arms, -1))
        at = number.reshape(-1, *[1] * (each.dim() - 1)).expand(*each.shape[:-1], 1)
        return each.gather(-1, at).squeeze(-1)


class ContextAveraging(UnderContexts):
    """``PointAveraging`` over features and context; a step chooses among N points: the arms under its context.

    Args:
        policy: over d + c inputs, or those that matter. Its width is used, but not its search and its looks.
        arms: features, (N, d), unless a step has others.
        context_dim: c.
        matters: columns of the context that the policy uses; None: all.
        counted: ``arms`` are the numbers 0, ..., N - 1, (N, 1), and the policy's inputs are the context and then one
            input for each arm, 1 for that arm and 0 for the others.

    Cost: a step of ``policy`` and O(S P N n^2) for n observations held, without a search. Source: as ``PairAveraging``.
    Raises ValueError for a policy over another number of inputs, and contexts of another shape.
    """

    policy: PointAveraging

    def __init__(
        self,
        policy: PointAveraging,
        arms: Tensor,
        context_dim: int,
        matters: Sequence[int] | None = None,
        *,
        counted: bool = False,
    ) -> None:
        validation.instance("policy", policy, PointAveraging, "a PointAveraging")
        self._over(policy, arms, context_dim)
        d, columns = arms.shape[-1], range(context_dim) if matters is None else matters
        self._columns = torch.tensor([*range(d), *(d + k for k in columns)], device=arms.device)
        self.counted = counted
        own = len(self._columns) + (self.num_arms - 1 if counted else 0)
        expected = f"over {own} inputs, features and context"
        validation.require(policy.dim == own, "policy", policy.dim, expected)

    def choose(self, time: float, available: Any = None) -> Choice:
        """The available arm (S,) with the largest m + width sqrt(v) under the step's context."""
        rows, mask = self._rows(available)
        _, arm = best_available(self.policy.values(time, self._seen(rows)).mT, mask)
        return Choice(arm, {INPUTS: rows[torch.arange(len(rows), device=arm.device), arm]})

    def _rows(self, available: Any) -> tuple[Tensor, Tensor | None]:
        """Inputs of all arms, (S, N, d + c), and the mask."""
        rows, mask = inputs_under(available, self.choices, self.arms, self.context_dim)
        return rows.expand(self.replicates, *rows.shape[-2:]), mask

    def _known_as(self, arm: Tensor, inputs: Tensor) -> Tensor:
        if self.counted and inputs.is_cpu and not torch.equal(inputs[:, 0], arm.to(inputs)):
            expected = f"those of arm {arm.tolist()}, which comes first"
            validation.require(False, f"why[{INPUTS!r}]", inputs, expected)
        return self._seen(inputs)

    def _seen(self, inputs: Tensor) -> Tensor:
        """The columns of inputs (..., d + c) that the inner policy uses."""
        seen = inputs[..., self._columns]
        if not self.counted:
            return seen
        arm = torch.nn.functional.one_hot(seen[..., 0].long(), self.num_arms)
        return torch.cat([seen[..., 1:], arm.to(seen)], -1)

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        return self.policy.marginals(time, self._seen(self._rows(points)[0]))

    def components(self, time: float, points: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        return self.policy.components(time, self._seen(self._rows(points)[0]))

"""Units that ``auto`` learns online: origin and unit of rewards, the scale of each member, and the unit of time."""

from __future__ import annotations

import copy
import math
import statistics
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.members import MembersOverArms, Time
from bandits_torch.state import HasState, only_where

_FAR = 8.0  # median deviations from the median: about 5.4 standard deviations of normal numbers
_GAPS = 64  # number of latest gaps between observations; their median is the unit of time
_KNOWN = 1e12  # a prior strength at which nothing is learned
LEAST = 1e-12  # a scale below this share of the largest squared residual comes from rounding
ROUNDING = LEAST**-0.5  # a difference this many times smaller than others comes from rounding
OF_TWO_VALUES = 0.998  # g of ``MemberScale`` for rewards that have two values
HELD = 5  # number of first rewards; their median becomes the origin


class RewardFrame(Described, HasState):
    """Rewards as y' = (y - o) / u, with an origin o and a unit u for each replicate.

    The origin is the first reward. The unit is the least power of two above the first nonzero difference from it (1
    until then). So y' is near 1 in any unit of rewards, and the same bit for bit if rewards are multiplied by a power
    of two. After K rewards ``settle`` sets both again: the origin to their median, the unit by their largest deviation.
    If a reward is more than a million units from the origin, earlier differences were rounding errors (as in 0, 1e-17,
    3), and its difference sets the unit.

    Args:
        like: dtype and device.
        replicates: S.

    Attributes:
        origin: (S,) o, NaN before the first reward.
        unit: (S,) u, NaN before the first difference.
    """

    origin: Tensor
    unit: Tensor

    def __init__(self, like: Tensor, replicates: int = 1) -> None:
        self.replicates = validation.positive_integer("replicates", replicates)
        self._like = like.new_empty(0)
        self._begin()

    @property
    def offset(self) -> Tensor:
        """o, (S, 1); 0 before the first reward."""
        if self._offset is None:
            self._offset = self.origin.nan_to_num().unsqueeze(-1)
        return self._offset

    @property
    def factor(self) -> Tensor:
        """u, (S, 1); 1 before the first difference."""
        if self._factor is None:
            self._factor = self.unit.nan_to_num(nan=1.0).unsqueeze(-1)
        return self._factor

    # The lock of ``functools.cached_property`` in Python 3.11 cannot be compiled by PyTorch.
    _offset: Tensor | None = None
    _factor: Tensor | None = None

    def state_changed(self) -> None:
        """Clear the cache of ``offset`` and ``factor``."""
        self._offset = self._factor = None

    def holds(self, reward: Tensor) -> bool:
        """Whether ``meet`` would change nothing for these rewards (..., S), in any replicate. Waits for a GPU."""
        return bool(((reward - self.origin).abs() / ROUNDING <= self.unit).all())

    def meet(self, reward: Tensor) -> Tensor:
        """Set the origin to the first reward, (S,), and the unit by the first difference, or by one above a million
        units.

        Returns the factors by which numbers in the frame change, (S,): 1 if the unit did not grow.
        """
        self.state_changed()
        self.origin = torch.where(self.origin.isnan(), reward, self.origin)
        size, before = (reward - self.origin).abs(), self.unit
        grows = size / ROUNDING > before
        self.unit = torch.where(before.isnan() | grows, power_of_two(size), before)
        return torch.where(grows, before / self.unit, 1.0)

    def settle(self, rewards: Tensor, where: Tensor) -> Tensor:
        """Set the origin to the median (the lower of two) of rewards (S, K), NaN: none, in the replicates with
        ``where`` (S,) True, and the unit by their largest deviation.

        Returns the rewards in the new frame, (S, K). Rewards further from the median than 8 times the median deviation
        are moved to that distance. Rewards nearer than a millionth of the largest distance are moved to the median; if
        these are more than half, no reward is too far.
        """
        origin = rewards.nanmedian(-1, keepdim=True).values
        deviation = (rewards - origin).abs()
        usual = deviation.nanmedian(-1, keepdim=True).values
        equal = deviation.nan_to_num().amax(-1, keepdim=True) / ROUNDING
        bound = torch.where(usual > equal, _FAR * usual, torch.inf)
        near = (rewards - origin).clamp(-bound, bound)
        near = near.masked_fill(deviation < equal, 0.0)
        unit = power_of_two(near.abs().nan_to_num().amax(-1))
        self.origin = torch.where(where, origin.squeeze(-1), self.origin)
        self.unit = torch.where(where, torch.where(unit.isnan(), self.unit, unit), self.unit)
        self.state_changed()
        return near / self.factor

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything. With ``where`` nothing changes: replicates that start again keep their frame."""
        if where is None:
            super().reset()

    def _fresh(self) -> dict[str, Tensor]:
        unknown = self._like.new_full((self.replicates,), torch.nan)
        return {"origin": unknown, "unit": unknown.clone()}


def power_of_two(size: Tensor) -> Tensor:
    """The least power of two above ``size`` >= 0; NaN for 0."""
    mantissa, _ = torch.frexp(size)
    return size / mantissa


class TypicalClock(HasState):
    """The time since the first observation, with each interval in units of the median of the 64 gaps before it.

    So rates are per observation, whether time is in seconds or in days. A time before the latest observation counts as
    the time of that. With ``typical`` False, the time is used as given.
    """

    _gaps: list[float]
    _latest: float | None
    _now: float

    def __init__(self, typical: bool = True) -> None:
        self.typical = typical
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        return {"_gaps": [], "_latest": None, "_now": 0.0}

    def at(self, time: float) -> float:
        """``time`` on this clock. Raises ValueError unless it is a finite number."""
        validation.finite_number("time", time)
        if self._latest is not None and time <= self._latest:
            return self._now
        if not self.typical:
            return float(time)
        if self._latest is None:
            return self._now
        gap = time - self._latest
        return self._now + gap / (statistics.median(self._gaps) if self._gaps else gap)

    def check_not_past(self, time: float) -> None:
        """Raises ValueError for a time before the latest observation."""
        latest = self._latest
        past = latest is not None and time < latest
        validation.require(not past, "time", time, f"at or after the latest observation, {latest}")

    def tick(self, time: float) -> float:
        """Record an observation at ``time``. Returns the time on this clock."""
        self._now = self.at(time)
        if self._latest is not None and time > self._latest:
            self._gaps = [*self._gaps[1 - _GAPS :], time - self._latest]
        self._latest = time if self._latest is None else max(time, self._latest)
        return self._now


class TwoValues(Described, HasState):
    """Whether the rewards of a replicate have taken two values so far, such as 0 and 1, and one of them twice.

    Such rewards have no outliers, however rare one value is, and their noise changes only with their mean. Rewards that
    all differ never count: none of the first three repeats.

    Args:
        like: dtype and device.
        replicates: S.

    Attributes:
        first, second: (S,), the two values; NaN before they occur. Once there is a third, ``second`` is infinite.
        repeats: (S,), whether a reward has equalled one of the two before it.
    """

    first: Tensor
    second: Tensor
    repeats: Tensor
    over = False  # True: there is a third value in every replicate

    def __init__(self, like: Tensor, replicates: int = 1) -> None:
        self._none = like.new_full((replicates,), torch.nan)
        self._begin()

    def meet(self, reward: Tensor) -> Tensor | None:
        """Count a reward (S,). Returns whether the rewards so far have two values, (S,); None once it is ``over``."""
        if self.over:
            return None
        known = ~self.first.isnan()
        again = (reward == self.first) | (reward == self.second)
        new = torch.where(self.second.isnan(), reward, torch.inf)
        self.second = torch.where(known & ~again, new, self.second)
        self.first = torch.where(known, self.first, reward)
        self.repeats = self.repeats | (again & ~self.second.isinf())
        return self.repeats & self.second.isfinite()

    def look(self) -> None:
        """Read whether it is ``over``. May wait for a GPU."""
        if not self.over:
            self.over = bool(self.second.isinf().all())

    def state_changed(self) -> None:
        self.over = False

    def _fresh(self) -> dict[str, Tensor]:
        none = self._none
        return {"first": none.clone(), "second": none.clone(), "repeats": torch.zeros_like(none).bool()}


class MemberScale(Described, HasState):
    """Origin and scale of rewards for members whose covariance is known up to a factor, and robust densities.

    Member p predicts e = y - o with mean mu_p and variance s_p v_p, with v_p its variance (with noise) in units of its
    covariance. The origin o is the first reward for members that ``learn_offset`` (whose covariance needs a constant
    part) and 0 for the others. The factor s has the conjugate
    inverse-gamma prior of strength nu_0 about 1; with nu_0 = 0 it is improper, and the data alone determine s:

        s = (nu_0 + sum g^{t-i} z_i^2) / (nu_0 + sum g^{t-i}),   z_i = (e_i - mu_p) / sqrt(v_p) at observation i.

    Because g < 1, s follows noise whose size changes. The density of the next reward is Student's t with nu_0 + sum
    g^{t-i} degrees of freedom, at least 1 and at most ``tail``, so one outlier costs little. Before members learn
    residuals e - mu_p, these are clipped at ``clip`` deviations (more while few rewards are known), as by Huber's score
    function. Rewards of ``TwoValues`` are not clipped, and g is .998 for them: one value may be rare, and the noise
    does not change between two of these. If nu_0 = 0 for all members, the weights do not depend on the unit and origin
    of rewards.

    Args:
        strength: (P,) nu_0 >= 0; infinity: the scale is known.
        learn_offset: (P,) booleans.
        replicates: S.
        memory: g, in (0, 1).
        tail: largest number of degrees of freedom, > 2.
        clip: deviations, > 0.

    Attributes:
        origin: (S,), the first reward; NaN before.
        count, squares: (S, P), the sums of g^{t-i} and of g^{t-i} z_i^2.
        largest: (S, P), the largest z_i^2.

    Source: conjugate normal-inverse-gamma model (Gelman et al. 2013, ch. 3); Huber 1981 for the clipping; forgetting
    and the bound on the degrees of freedom are ours.

    Raises ValueError for numbers out of range.
    """

    origin: Tensor
    count: Tensor
    squares: Tensor
    largest: Tensor
    _SUMS = ("count", "squares", "largest")

    def __init__(
        self,
        strength: Tensor,
        learn_offset: Tensor,
        replicates: int = 1,
        *,
        memory: float = 0.99,
        tail: float = 8.0,
        clip: float = 4.0,
    ) -> None:
        validation.tensor("strength", strength)
        ok = strength.dim() == 1 and len(strength) > 0 and bool((strength >= 0).all())
        validation.require(ok, "strength", strength, "(P,) numbers >= 0")
        fits = validation.tensor("learn_offset", learn_offset).dtype == torch.bool
        fits = fits and learn_offset.shape == strength.shape
        validation.shape_is("learn_offset", learn_offset, fits, f"{tuple(strength.shape)} and dtype bool")
        self.replicates = validation.positive_integer("replicates", replicates)
        self.memory = validation.probability("memory", memory)
        validation.require(validation.positive("tail", tail) > 2, "tail", tail, "a number > 2")
        self.tail, self.clip = float(tail), validation.positive("clip", clip)
        self.strength, self.learn_offset = strength.clamp_max(_KNOWN), learn_offset
        self._some_known = bool((strength > 0).any())
        self._one, self._clip = strength.new_ones(()), strength.new_tensor(self.clip)
        self._begin()

    @property
    def offset(self) -> Tensor:
        """o of each member, (S, P); 0 before the first reward."""
        return self.origin.nan_to_num().unsqueeze(-1) * self.learn_offset

    @property
    def scale(self) -> Tensor:
        """s, (S, P); 1 if nothing is known about it yet. The result is cached."""
        if self._scale is None:
            weight = self.weight if self.full else self.weight.clamp_min(1.0)
            scale = torch.maximum((self.strength + self.squares) / weight, LEAST * self.largest)
            self._scale = scale if self._all_known else scale.masked_fill_(self.weight <= 0, 1.0)
        return self._scale

    @property
    def weight(self) -> Tensor:
        """nu_0 + sum g^{t-i}, (S, P). The result is cached."""
        if self._weight is None:
            self._weight = self.strength + self.count
        return self._weight

    def _tails(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of the densities with n degrees of freedom, c - (n + 1) ln sqrt(n + z^2): n + 1, sqrt(n) and c, (S, P) each.
        The result is cached once every n is ``tail``."""
        if self._of_tail is not None:
            return self._of_tail
        dof = self.weight.clamp(1.0, self.tail)
        more, half = dof + 1, dof / 2
        gammas = torch.lgamma(more / 2) - torch.lgamma(half)
        tails = more, dof.sqrt(), gammas + torch.xlogy(half, dof) - math.log(math.pi) / 2
        self._of_tail = tails if self.full else None
        return tails

    _scale: Tensor | None = None
    _weight: Tensor | None = None
    _of_tail: tuple[Tensor, Tensor, Tensor] | None = None
    _all_known = False  # True: every weight is above 0
    full = False  # True: every weight is at least ``tail``, and stays so

    def state_changed(self) -> None:
        self._all_known = self.full = False
        self.read_anew()

    def read_anew(self) -> None:
        """Clear the cache of ``scale``, ``weight`` and densities."""
        self._scale = self._weight = self._of_tail = None

    def look(self) -> None:
        """Read from the weights whether every scale is known, and ``full``. May wait for a GPU."""
        if not self.full:
            least = float(self.weight.min())
            # A sum of g^{t-i} above ``tail`` stays above it only if its limit, 1 / (1 - g), is.
            self._all_known, self.full = least > 0, least >= self.tail and self.tail * (1 - self.memory) <= 1

    def meet(self, reward: Tensor) -> None:
        """Set the origin to the first reward, (S,). If a reward is more than a million deviations away, the differences
        before were rounding errors, and the scale is forgotten (if nu_0 = 0)."""
        self.origin = torch.where(self.origin.isnan(), reward, self.origin)
        least = LEAST * (reward - self.origin).square().unsqueeze(-1)
        self.forget((self.strength == 0) & (least * self.count > self.squares))

    def update(
        self,
        residual: Tensor,
        variance: Tensor,
        unit: Tensor | None = None,
        borne_out: Tensor | None = None,
        two: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Learn the clipped residuals. Returns ln density of the residuals y - o - mu, (S, P), for the members'
        variances v (S, P), and the residuals for members to learn, (S, P): clipped, except in replicates with
        ``borne_out`` (S,) True, whose rewards are no outliers. ``unit`` (S, P): each member's unit of residuals, if
        they differ; densities are per that unit. ``two`` (S,): whose rewards have ``TwoValues``; None: none."""
        spread, weight = (self.scale * variance).sqrt(), self.weight
        unknown = None if self._all_known else weight == 0
        more, root, constant = self._tails()
        density = torch.addcmul(constant, more, torch.hypot(residual / spread, root).log(), value=-1)
        density = density - spread.log()
        known = weight if self.full else weight.clamp_min(1e-6)
        # clip (1 + 5 / known), in one operation
        bound = torch.addcdiv(self._clip, self._one, known, value=5 * self.clip) * spread
        if unknown is not None:
            flat = torch.zeros_like(density)
            if self._some_known:  # to compare with members of known scale: a Cauchy density ten times as wide
                wide = 10.0 * (variance if unit is None else variance / unit.square()).sqrt()
                flat = -(math.pi * wide).log() - 2 * torch.hypot(residual / wide, self._one).log()
            density = torch.where(unknown, flat, density)
            bound = bound.masked_fill(unknown, torch.inf)
        clipped = residual.clamp(-bound, bound)
        if two is not None:
            clipped = torch.where(two.unsqueeze(-1), residual, clipped)
        squared = clipped.square() / variance
        count, squares = self._summed(squared, self.memory)
        if two is not None:
            of_two = zip(self._summed(squared, OF_TWO_VALUES), (count, squares), strict=True)
            count, squares = (torch.where(two.unsqueeze(-1), slow, fast) for slow, fast in of_two)
        if unknown is not None:  # rewards that are all equal say nothing about the scale
            none = unknown & (residual == 0)
            count, squares = torch.where(none, self.count, count), torch.where(none, self.squares, squares)
        self.count, self.squares, self.largest = count, squares, torch.maximum(self.largest, squared)
        self._scale = self._weight = None
        return density, clipped if borne_out is None else residual.where(borne_out.unsqueeze(-1), clipped)

    def _summed(self, squared: Tensor, memory: float) -> tuple[Tensor, Tensor]:
        """``count`` and ``squares`` after one more z^2, (S, P) each, with g = ``memory``."""
        one, count, squares = self._one, self.count, self.squares
        return torch.add(one, count, alpha=memory), torch.add(squared, squares, alpha=memory)

    def forget(self, where: Tensor) -> None:
        """Forget the scale of members with ``where`` (S, P) True."""
        for name in self._SUMS:
            setattr(self, name, getattr(self, name).masked_fill(where, 0.0))
        self.state_changed()

    def take(self, other: MemberScale, where: Tensor) -> None:
        """Take over what ``other`` learned, for the members with ``where`` (S, P) True."""
        for name in self._SUMS:
            setattr(self, name, torch.where(where, getattr(other, name), getattr(self, name)))
        self.state_changed()

    def _fresh(self) -> dict[str, Tensor]:
        zeros = self.strength.new_zeros
        sums = {name: zeros(self.replicates, len(self.strength)) for name in self._SUMS}
        return {"origin": zeros(self.replicates).fill_(torch.nan), **sums}


class FirstRewards(HasState):
    """Holds the first five rewards. At the fifth, ``RewardFrame.settle`` sets origin and unit again. Members in the
    frame are then as if they had learned the five in the new frame; their weights stay.

    Nothing is settled if no member is in the frame, or if the model cannot ``condition_mean``.

    Args:
        model: has batch shape (S, P).
        scale: scale of its members; ``learn_offset`` says which are in the frame.
        frame: origin and unit.

    Attributes:
        settled: (S,), True in replicates whose frame does not change any more.
    """

    settled: Tensor
    _held: list[tuple[Tensor, Tensor, Time]]  # arms, rewards and the model's times

    def __init__(self, model: ArmGP | MembersOverArms, scale: MemberScale, frame: RewardFrame) -> None:
        self.model, self.scale, self.frame = model, scale, frame
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        settles = self.model.can_condition_mean and bool(self.scale.learn_offset.any())
        device = self.model.noise_variance.device
        return {"settled": torch.full((self.frame.replicates,), not settles, device=device), "_held": []}

    def _restarted(self, where: Tensor | None) -> None:
        """If only some replicates start again, the frame does not change."""
        if where is not None:
            self.settled = self.settled | where

    def hold(self, arm: Tensor, reward: Tensor, time: Time) -> None:
        """Hold one of the first rewards (S,), NaN if it is not believed; at the fifth settle the frame."""
        self._held.append((arm.clone(), reward.clone(), time))
        if len(self._held) == HELD:
            arms, rewards, times = zip(*self._held, strict=True)
            if not bool(self.settled.all()):
                model, where, played = cast(MembersOverArms, self.model), ~self.settled, torch.stack(arms, -1)
                seen = self.frame.settle(torch.stack(rewards, -1), where)
                scale, weights = _learned_again(model, self.scale, played, seen, list(times))
                members = where.unsqueeze(-1) & self.scale.learn_offset
                model.condition_mean(members, played, list(times), weights)
                self.scale.take(scale, members)
            self.settled, self._held = torch.ones_like(self.settled), []


def _learned_again(
    model: MembersOverArms, scale: MemberScale, arms: Tensor, rewards: Tensor, times: list[Time]
) -> tuple[MemberScale, Tensor]:
    """The scale after only these K rewards (S, K) in the frame (NaN: not learned), and the weights (S, P, K) of the
    prior covariances in the posterior means (``condition_mean``).

    With L L^T = K_AA + lambda I over the observations, mu_j = sum_{k < j} L_jk z_k is the prediction of the j-th
    reward, L_jj^2 its variance, z_j = (clipped residual) / L_jj, and the weights are L^-T z.
    """
    believed = rewards.isfinite()
    means = [model.prior_at(arm, time)[0] for arm, time in zip(arms.unbind(-1), times, strict=True)]
    seen = rewards.nan_to_num().unsqueeze(1) - torch.stack(means, -1)  # (S, P, K)
    noise = model.noise_variance.expand(model.batch_shape).unsqueeze(-1)
    both = (believed.unsqueeze(-1) & believed.unsqueeze(-2)).unsqueeze(1)
    prior = model.prior_between(arms, times) * both
    L = torch.linalg.cholesky(prior + torch.diag_embed(noise.expand(seen.shape)))
    scale, z = copy.copy(scale), torch.zeros_like(seen)
    scale.reset()
    for j in range(len(times)):
        predicted, deviation = (L[..., j, :] * z).sum(-1), L[..., j, j]
        with only_where(believed[:, j], scale):
            _, learned = scale.update(seen[..., j] - predicted, deviation.square())
        z[..., j] = (learned / deviation).where(believed[:, j : j + 1], 0.0)
    return scale, torch.linalg.solve_triangular(L.mT, z.unsqueeze(-1), upper=True).squeeze(-1)

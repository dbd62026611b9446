"""Model averaging over the points of a domain: UCB of a mixture of Gaussian processes that adapt."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import LoweredEnds, PointSearch
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.models.online_model import with_time
from bandits_torch.models.points.member_posterior import MemberMixture
from bandits_torch.models.points.point_members import PointMembers, refine
from bandits_torch.policies.choices.points import Points
from bandits_torch.policies.learned_units import LEAST, MemberScale, TwoValues, TypicalClock, power_of_two
from bandits_torch.policies.looking_again import LookingAtPoints, LookOutcome
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.policies.reward_range import RewardRange
from bandits_torch.policies.sharing import FixedShare, heaviest
from bandits_torch.state import only_where

_LIGHT = 0.01  # total weight of the lightest members, which a search leaves out
_MANY = 50  # with k times as many observations held, refinements come every k ``refine_every`` observations
_ENOUGH = 1e10  # a local search ends with a round that gains fewer rounding errors of the bound
_FADES = 20.0  # number of observations held at which the expected loss at the ends is half
_LEAST_HELD = 5  # fewest observations of a member whose hyperparameters are refined
_FAR = 2.0**400  # largest reward in the internal unit; squares of much larger ones overflow
_LARGEST = 2.0**1022  # largest factor of rewards


class PointAveraging(Policy):
    """Plays argmax over the points of a domain of m + width sqrt(v), with m and v the moments of a weighted mixture of
    P Gaussian processes over points and time. The lightest members, together 1 % of the weight, are left out.

    * While little is known, the ends of ranges are expected to be worse than their middle: with n observations held, u
      ``ends`` / (1 + (n / 20)^2) times the mean of (2 z_j - 1)^2 is subtracted from the bound, with z the point in the
      unit cube and u the mixture's prior deviation (``LoweredEnds``). So an optimum in a corner is found later.
    * Every member observes every reward, and ``FixedShare`` weighs the members. Unit and origin of rewards are learned
      (``MemberScale``): multiplying or shifting rewards changes choices only by rounding, and by a power of two not at
      all. The internal unit is the least power of two above the first reward that is not 0.
    * A reward in doubt (``RewardRange``) is learned by no member. If it is high, its point is played again at once.
    * Members keep their kernel over time. Their length-scales and noises are refitted (``refine``): every
      ``refine_every`` observations those of the heaviest member and of ``refined`` - 1 others in turn, by ``rounds``
      rounds of search from the values of the member and of the heaviest one; with 50 k observations held, every
      k ``refine_every``. A member with its refinements is one predictor, so the bound of ``FixedShare`` holds.
    * A member ``behind`` nats behind the best, to which one reward adds at most half, is replaced by the heaviest,
      except for its kernel over time. If it remembers longer, old observations misled it, and it starts from its prior.
    * With ``look_again``, points that have gone unexamined for too long are played, and points around one that pays
      much more than predicted (``LookingAtPoints``).

    Args:
        domain: where points may be played unless ``choose`` gets another domain.
        members: over the domain's box; S replicates.
        width: multiplies the mixture's standard deviation.
        ends: expected loss of a corner relative to the middle, in prior deviations; 0: none.
        share, behind: see ``FixedShare``.
        search: how the acquisition is maximised; default: the first 2 (d + 1) points are of a Sobol sequence, and local
            searches end when a round gains less than 2e-6 of the bound.
        refine_every, refined, rounds: see above; ``refined`` 0: never.
        typical_gap: count time in typical gaps (``TypicalClock``); False: in its unit, from the first observation.
        look_again: c of ``LookingAtPoints``. 0: never; an optimum that rises unseen may then never be found.
        seed: seed of the raw samples of a search.

    ``choose`` takes a ``Domain`` instead of a mask of arms: other bounds, constraints, or a context, for this step.
    An observation older than the latest is learned as if made now (with ``typical_gap`` False: at its own time).
    ``trace``: as of ``ModelAveraging`` (a smooth kernel over time counts as the forgetting rate of equal integral;
    resets are replacements), and lengthscale (geometric mean, of the unit cube).

    Cost: O(S P n^3) per step and O(S P n^2) per point of its search, n <= ``members.capacity`` observations held.

    No theorem bounds its regret. The bound of ``FixedShare`` on its predictions holds for the rewards believed, and the
    bound of ``PointMembers`` on the loss by dropped observations.

    Raises ValueError for members over another box and numbers out of range.
    """

    needs_unit = "it learns the unit by itself"

    def __init__(
        self,
        domain: Domain,
        members: PointMembers,
        *,
        width: float = 1.0,
        ends: float = 1.0,
        share: float = 0.001,
        behind: float = 12.0,
        search: PointSearch | None = None,
        refine_every: int = 5,
        refined: int = 3,
        rounds: int = 8,
        typical_gap: bool = True,
        look_again: float = 0.0,
        seed: int = 0,
    ) -> None:
        validation.instance("domain", domain, Domain, "a Domain")
        validation.instance("members", members, PointMembers, "PointMembers")
        fits = torch.equal(members.bounds, domain.bounds.double())
        validation.require(fits, "members.bounds", members.bounds, "the bounds of the domain")
        self.domain, self.members, self.dim, self.num_arms = domain, members, domain.dim, 0
        self.replicates, self.num_members = members.batch_shape
        self.choices = Points(domain, self.replicates)
        self.width = validation.non_negative("width", width)
        self.ends = validation.non_negative("ends", ends)
        own = PointSearch(initial=2 * (self.dim + 1), options={"maxiter": 50, "factr": _ENOUGH})
        self.search = own if search is None else search
        validation.instance("search", self.search, PointSearch, "a PointSearch")
        ones = members.bounds.new_ones(self.num_members)
        behind = validation.positive_or_infinite("behind", behind)
        self.sharing = FixedShare(ones, self.replicates, share=share, behind=behind, at_once=behind / 2)
        self.scale = MemberScale(0 * ones, ones > 0, self.replicates)
        self.two_values = TwoValues(ones, self.replicates)
        self.range = RewardRange(ones, domain.bounds.new_zeros(self.replicates, self.dim))
        self.refine_every = validation.positive_integer("refine_every", refine_every)
        self.refined = validation.natural("refined", refined)
        validation.require(refined <= self.num_members, "refined", refined, f"at most {self.num_members}")
        self.rounds = validation.positive_integer("rounds", rounds)
        self.typical_gap, self._seed = typical_gap, validation.natural("seed", seed)
        self.looks: LookingAtPoints | None = None
        if validation.non_negative("look_again", look_again):
            self.looks = LookingAtPoints(look_again, domain, members)
        self.clock = TypicalClock()
        self._begin()

    # -- choosing --------------------------------------------------------------------------------------

    def mixture(self) -> MemberMixture:
        """The members' mixture in units of reward, as a BoTorch model over [x, time on the clock]."""
        return self._mixture(self._factor)

    def _mixture(self, unit: Tensor) -> MemberMixture:
        """The mixture in the internal unit of rewards, (S,)."""
        weights, scale, offset = self.sharing.weights, self.scale.scale, self.scale.offset[:, 0]
        return MemberMixture(self.members, weights, scale, offset, unit, self._pending)

    _pending: Tensor | None = None  # [x, time on the clock], (S, k, d + 1)

    def numbers_per_step(self, observations: int) -> int:
        """0: threads do not pay for many small matrices."""
        return 0

    _expects = ("_pending", "_steps", "looks", "range")

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls, as if made at ``time``, lower the mixture's variance (``MemberMixture``) and examine points;
        mean and weights stay. They count as steps of the opening and for the seeds of searches."""
        point = self._inputs(pending.arm, time).unsqueeze(1)
        self._pending = point if self._pending is None else torch.cat([self._pending, point], 1)
        self._examine(pending.arm)
        self._steps += 1
        self.range.latest = torch.zeros_like(self.range.latest)

    @torch.no_grad()
    def _examine(self, points: Tensor, outcome: LookOutcome | None = None) -> None:
        """Record that these points (S, d) are examined, with the ``outcome`` of a look."""
        if self.looks is not None:
            self.looks.examine(points, self.sharing.weights, self._steps, outcome)

    def choose(self, time: float, available: Domain | None = None) -> Choice:
        self.choices.check_available(available)
        domain, now = self.domain if available is None else available, self._time(time)
        first = self.search.opening(domain, self._steps, self.replicates, self._seed)
        if first is not None:
            return Choice(self._asked_again(first, domain))
        due = None
        if self.looks is not None:
            due, looks = self.looks.due(domain, self.sharing.weights, self._steps)
            if bool(due.all()):
                return Choice(self._asked_again(looks, domain))
        points, _ = self.search.maximise(
            self.acquisition(),
            domain,
            replicates=self.replicates,
            time=now,
            starts=self._starts(now),
            seed=(1_000_003 * self._seed + self._steps) % 2**31,
        )
        points = points if due is None else torch.where(due.unsqueeze(-1), looks, points)
        return Choice(self._asked_again(points, domain))

    def _asked_again(self, points: Tensor, domain: Domain) -> Tensor:
        """``points`` (S, d), or the point of the domain whose high reward is in doubt, in replicates that have one."""
        point = domain.fix(self.range.arm)
        again = (self.range.latest == 1) & domain.contains(point)
        return torch.where(again.unsqueeze(-1), point, points)

    def acquisition(self) -> AcquisitionFunction:
        """The function of [x, time on the clock] that ``choose`` maximises: the upper bound of the heaviest members'
        mixture minus the expected loss at the ends of ranges, in a unit that does not depend on that of rewards."""
        member, weights = heaviest(self.sharing.weights, _LIGHT)
        scale = self.scale.scale.gather(-1, member)
        unit = (weights * scale).sum(-1).sqrt()
        origin = torch.zeros_like(unit)
        mixture = MemberMixture(self.members.of(member), weights, scale, origin, unit, self._pending)
        ends = self.ends / (1 + (self.members.inputs.shape[1] / _FADES) ** 2)
        return LoweredEnds(UpperConfidenceBound(mixture, self.width), self.domain.bounds, ends)

    @torch.no_grad()
    def values(self, time: float, points: Tensor) -> Tensor:
        """The values that ``choose`` maximises, at points (S, N, d): (S, N)."""
        X = with_time(points, self._time(time)).transpose(0, 1).unsqueeze(-2)  # N x S x 1 x (d + 1)
        return self.acquisition()(X).mT

    @torch.no_grad()
    def _starts(self, now: float) -> Tensor | None:
        """Starts of a search, (S, 2, d): the latest point, and the point held with the largest mean ``now``."""
        if not self._latest.shape[1]:
            return None
        best = (self.sharing.weights.unsqueeze(-1) * self.members.means_held(now)).sum(1).argmax(-1)
        leader = self.members.points[torch.arange(self.replicates, device=best.device), best].to(self._latest)
        return torch.cat([self._latest, leader.unsqueeze(1)], 1)

    @torch.no_grad()
    def marginals(self, time: float, points: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the mixture at points (N, d), or (S, N, d): (S, N) each. Raises ValueError for a time
        before the latest observation."""
        self.clock.check_not_past(validation.finite_number("time", time))
        each = points.expand(self.replicates, *points.shape[-2:]).transpose(0, 1)
        unit = self._factor.unsqueeze(-1)  # divided by last, because its square may overflow
        posterior = self._mixture(torch.ones_like(self._factor)).posterior(
            self._inputs(each, time).unsqueeze(-2)
        )
        moments = posterior.mean, posterior.variance
        mean, variance = (moment.reshape(-1, self.replicates).mT for moment in moments)
        return mean / unit, variance / unit / unit

    @torch.no_grad()
    def components(self, time: float, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mixture's parts: weights (S, P), and mean and variance of points (N, d), or (S, N, d), under each member,
        (S, P, N) each, with one common unit and origin, which differ from those of rewards."""
        X = points.expand(self.replicates, *points.shape[-2:])
        mean, variance = self.members.moments(X, X.new_full(X.shape[:-1], self._time(time)))
        return self.sharing.weights, mean, self.scale.scale.unsqueeze(-1) * variance

    @torch.no_grad()
    def joint(self, time: float, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``components`` of points (S, K, d), with their covariances: (S, P), (S, P, K) and (S, P, K, K)."""
        weights, mean, _ = self.components(time, points)
        then = points.new_full(points.shape[:-1], self._time(time))
        covariance = self.members.between(points, then, points, then)
        return weights, mean, self.scale.scale[..., None, None] * covariance

    def _inputs(self, points: Tensor, time: float) -> Tensor:
        return with_time(points, self._time(time))

    def _time(self, time: float) -> float:
        if self.typical_gap:
            return self.clock.at(time)
        validation.finite_number("time", time)
        return 0.0 if self._start is None else float(time) - self._start

    # -- learning --------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Unless the reward is in doubt: weigh members, replace those far behind, let all observe, and refine some."""
        self.choices.check(observation)
        self.range.teach(observation, self._learn, self.reset)

    def _learn(self, observation: Observation, believed: Tensor | None) -> None:
        where = None if believed is None else believed.unsqueeze(-1)
        x, reward = observation.arm.double(), self._in_internal_unit(observation.reward.double(), believed)
        self._start = observation.time if self._start is None else self._start
        tick = self.clock.tick(observation.time)
        now = tick if self.typical_gap else self._time(observation.time)
        self.two_values.look()
        with only_where(believed, self.scale, self.sharing, self.two_values):
            self.scale.meet(reward)
            two = self.two_values.meet(observation.reward.double())
            moments = self.members.moments(x.unsqueeze(1), x.new_full((len(x), 1), now))
            mean, variance = (moment.squeeze(-1) for moment in moments)
            residual, borne_out = reward.unsqueeze(-1) - self.scale.offset, self.range.borne_out
            outcome = self._outcome(x, residual, mean, now, believed)
            variance = variance + self.members.noise_variance
            has_density = (self.scale.weight > 0).any(-1)  # else it is 1 in any unit
            log_unit = -self._factor.log() * has_density
            density, learned = self.scale.update(residual - mean, variance, borne_out=borne_out, two=two)
            due = self.sharing.update(density, log_unit=log_unit)
        due = due if where is None else due & where
        target = mean + learned
        if bool(due.any()):
            target = self._replace(due, target, residual)
        self.members.observe(x, target, now, self.sharing.weights, where)
        self._examine(observation.arm, outcome)
        self._steps += 1
        self._latest = observation.arm.detach().clone().unsqueeze(1)
        every = self.refine_every * max(1, self.members.inputs.shape[1] // _MANY)
        if self.refined and self._steps % every == 0:
            self._refine(self._steps // every)

    def _outcome(
        self, x: Tensor, residual: Tensor, mean: Tensor, now: float, believed: Tensor | None
    ) -> LookOutcome | None:
        """The outcome of looks at points (S, d), given the members' ``residual`` and ``mean`` (S, P); None if no
        replicate makes a look. A reward that is not ``believed`` (S,) counts as the mean."""
        weights = self.sharing.weights
        if self.looks is None or not bool((looked := self.looks.is_look(x, weights, self._steps)).any()):
            return None
        best = (weights.unsqueeze(-1) * self.members.means_held(now)).sum(1).amax(-1)
        noise = (weights * self.scale.scale * self.members.noise_variance).sum(-1).sqrt()
        reward, predicted = (weights * residual).sum(-1), (weights * mean).sum(-1)
        reward = reward if believed is None else torch.where(believed, reward, predicted)
        return LookOutcome(looked, reward, predicted, noise, best)

    def _in_internal_unit(self, reward: Tensor, believed: Tensor | None) -> Tensor:
        """Rewards (S,) in the internal unit, the least power of two above the first that is not 0. A reward far above
        it sets it again, and everything learned is scaled."""
        scale, size = self.scale, reward.abs()
        zeros = (scale.count == 0).all(-1) & (scale.origin.nan_to_num() == 0)
        sets = (zeros & (size > 0)) | (size * self._factor > _FAR)
        factor = torch.where(sets, (1 / power_of_two(size)).clamp_max(_LARGEST), self._factor)
        factor = factor if believed is None else torch.where(believed, factor, self._factor)
        if not torch.equal(factor, self._factor):
            ratio = (factor / self._factor).unsqueeze(-1)
            self._factor, scale.origin = factor, scale.origin * ratio.squeeze(-1)
            scale.squares, scale.largest = (v * ratio * ratio for v in (scale.squares, scale.largest))
            known = scale.squares > (LEAST / _FAR) ** 2  # smaller ones are as good as 0
            scale.count = torch.where(known, scale.count, 0.0)
            scale.state_changed()
            self.members.targets = self.members.targets * ratio.unsqueeze(-1)
            self.members.weights = self.members.weights * ratio.unsqueeze(-1)
        return (reward if believed is None else reward.where(believed, 0.0)) * factor

    def _replace(self, due: Tensor, target: Tensor, residual: Tensor) -> Tensor:
        """Replace the members that are due by the heaviest one, with its scale. Returns the targets (S, P) to learn."""
        leader = self.sharing.log_weight.argmax(-1)
        run = torch.arange(self.replicates, device=leader.device)
        for name in ("count", "squares"):
            own = getattr(self.scale, name)
            setattr(self.scale, name, torch.where(due, own[run, leader].unsqueeze(1), own))
        target = torch.where(due, target[run, leader].unsqueeze(1), target)
        return torch.where(self.members.follow(due, leader), residual, target)

    def _refine(self, turn: int) -> None:
        """Refine the hyperparameters of the heaviest member and of the members whose turn it is."""
        members, best = self.members, self.sharing.log_weight.argmax(-1)
        among = torch.arange(self.refined - 1, device=best.device)
        others = (among + turn * (self.refined - 1)) % self.num_members
        chosen = torch.cat([best.unsqueeze(-1), others.expand(self.replicates, -1)], -1)
        theta = refine(members, chosen, best, self.rounds)
        enough = (members.num_held >= _LEAST_HELD).gather(-1, chosen)
        known = torch.cat([members.lengthscale.log(), members.noise_variance.log().unsqueeze(-1)], -1)
        where = torch.zeros_like(members.num_held, dtype=torch.bool).scatter(-1, chosen, enough)
        index = chosen.unsqueeze(-1).expand_as(theta)
        new = known.scatter(1, index, theta).exp()
        members.adopt(where, new[..., :-1], new[..., -1])
        # The scale follows from the observations that each member holds.
        squared = members.squares / (members.num_held - 1).clamp_min(1)
        self.scale.squares = torch.where(where, self.scale.count * squared, self.scale.squares)

    # -- trace -----------------------------------------------------------------------------------------

    def trace(self) -> dict[str, Tensor | float]:
        weights, scale, members = self.sharing.weights, self.scale.scale, self.members
        unit = self._factor
        trace: dict[str, Tensor | float] = {
            "effective_rate": (weights * members.effective_rate).sum(-1),
            "effective_members": self.sharing.effective_members,
            "noise_scale": (weights * scale * members.noise_variance).sum(-1).sqrt() / unit,
            "scale": (weights * scale).sum(-1).sqrt() / unit,
            "lengthscale": (weights * members.lengthscale.log().mean(-1)).sum(-1).exp(),
            "resets": self.sharing.resets,
            "doubted": self.range.doubted,
        }
        if self.looks is not None:
            trace["longest_unseen"] = self.looks.longest
        return trace

    # -- state -----------------------------------------------------------------------------------------

    # If only some replicates are reset, the clock, the opening and the range of rewards stay.
    _parts = ("members", "sharing", "scale", "two_values", "clock", "looks", "range")
    _start: float | None  # time of the first observation
    _steps: int  # observations
    _latest: Tensor  # the latest points, (S, 0 or 1, d), where the next search starts
    _factor: Tensor  # by which rewards are multiplied before they are learned, (S,): a power of two

    def _fresh(self) -> dict[str, Any]:
        none = self.domain.bounds.new_zeros(self.replicates, 0, self.dim)
        factor = self.members.bounds.new_ones(self.replicates)
        return {"_start": None, "_steps": 0, "_latest": none, "_factor": factor}

"""Looking again: how long each arm, or point of a domain, has not been examined, and when that is too long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.domain import Domain
from bandits_torch.models.arms.members import MembersOverArms
from bandits_torch.models.points.point_members import PointMembers
from bandits_torch.state import HasState

ALIKE = 0.5  # smallest squared correlation with which a play also examines another arm
SETTLED = 0.5  # smallest mean of (1 - eps_p)^{clock} over the members, by weight, for which an arm is settled
_PROBES = 64  # number of points of a domain that have clocks
_AT_ONCE = 8  # most looks at them within one deadline, and number of points that a look can make due
_STANDS_OUT = 3.0  # deviations of the noise by which a look must exceed its prediction to be followed
SOONEST, LATEST = 0.5, 2.0  # shortest and longest deadline of an arm, in units of c sqrt(t + 300)
_BEFORE = 300.0  # imagined observations without a change, before the first


class LookingAgain(Described, HasState):
    """When to play an arm again because it may have changed unseen.

    A model learns the rate of change from the arms that are played. Even if these did not change, another may have. So
    every arm has a clock: the observations since it was last examined. An arm is examined when it, or a similar arm, is
    played. Arms are similar if their squared prior correlation, averaged over the members by weight and with the mean
    over all arms subtracted, is at least 1/2 (a negative correlation counts as 0). After t observations arm i is due
    when its clock reaches

        tau_i(t) = c sqrt(t + 300) min(max(sqrt(g_i / g), 1/2), 2),

    if it is settled: sum_p w_p (1 - eps_p)^{clock} >= 1/2, with w_p and eps_p the members' weights and rates. The
    members are uncertain about an arm that is not settled, and its upper bound decides when it is played.
    g_i = max_j m_j - m_i is the gap in posterior mean, and g the mean gap of the arms. If any available arm is due, the
    one with the largest ratio of clock to tau_i is played. So no available settled arm goes unexamined for longer than
    2 c sqrt(t + 300) observations, plus those spent on other arms that are due at the same time, and with ``at_once``
    those until the next step at which a look is allowed.

    Derivation: if no change was seen in t observations, its hazard is about 1 / (2 t) (Krichevsky & Trofimov 1981).
    With 300 imagined observations without a change before the first, it is about 1 / (2 (t + 300)). Suppose that the
    policy looks every tau observations at the cost g_i, and that an arm that became best costs L an observation until
    it is found. Then a step costs g_i / tau + L tau / (4 (t + 300)) on average. The minimum is at
    tau = 2 sqrt((t + 300) g_i / L), which grows with the square roots of time and gap. If N unrelated arms have one
    hazard in common, and none of them has changed, it is about 1 / (2 N t), so c grows with the square root of N.

    Args:
        every: c > 0.
        model: the members, of batch shape (S, P); only their prior correlations and rates are read, not their state.
        at_once: k, the largest number of looks within c sqrt(t + 300) observations; 0: no limit.

    Attributes:
        unseen: (S, N), the clocks.

    Cost: O(S (Q + G) N) per observation, for Q different rates and G different covariances. Source: the rule and its
    constants are ours; ``benchmarks/auto/PROTOCOL.md`` says how they were chosen. Besson et al. 2022
    (GLR-klUCB) have forced exploration that becomes rarer with time.

    Raises ValueError unless c > 0 and k is an integer >= 0, and for any other kind of model.
    """

    unseen: Tensor

    def __init__(self, every: float, model: MembersOverArms, at_once: int = 0) -> None:
        self.every = validation.positive("every", every)
        self.at_once = validation.natural("at_once", at_once)
        validation.instance("model", model, MembersOverArms, "members over arms")
        self.model = model
        rates, which = model.forgetting_rate.unique(return_inverse=True)
        self._fade = torch.log1p(-rates).unsqueeze(-1)  # (Q, 1), of the different rates
        self._has_rate = torch.nn.functional.one_hot(which, len(rates)).to(rates)  # (P, Q)
        self._begin()

    def tau(self, count: int) -> float:
        """c sqrt(t + 300) after t = ``count`` observations; infinite if ``at_once`` allows no look at this step."""
        before, now = (math.sqrt(max(count - k, 0) + _BEFORE) for k in (1, 0))
        turns = 2 * self.at_once / self.every
        none = self.at_once and math.floor(turns * before) == math.floor(turns * now)
        return math.inf if none else self.every * now

    def may_be_due(self, taus: Sequence[float]) -> bool:
        """Whether an arm can be due at one of the next steps, with these ``tau``. May wait for a GPU."""
        least = SOONEST * min(taus)
        return least < math.inf and float(self.longest.max()) + len(taus) >= least

    def settled(self, weights: Tensor) -> Tensor:
        """Whether each arm is settled, (S, N), for weights (S, P)."""
        kept = (self.unseen.unsqueeze(-2) * self._fade).exp()  # (S, Q, N)
        return ((weights @ self._has_rate).unsqueeze(-2) @ kept).squeeze(-2) >= SETTLED

    def first(
        self, index: Tensor, mean: Tensor, weights: Tensor, tau: float | Tensor, available: Tensor | None
    ) -> Tensor:
        """``index`` (S, N) if no available arm is due, otherwise how late the settled arms are, due from ``tau`` on (0
        for unavailable arms)."""
        known = not isinstance(tau, Tensor)
        if known and tau == math.inf:
            return index
        if available is None:
            gap = mean.amax(-1, keepdim=True) - mean
            usual = gap.mean(-1, keepdim=True)
        else:
            best = mean.masked_fill(~available, -torch.inf).amax(-1, keepdim=True)
            gap = (best - mean).clamp_min(0.0)
            usual = (gap * available).sum(-1, keepdim=True) / available.sum(-1, keepdim=True)
        share = (gap / usual).nan_to_num(nan=1.0)  # 0 / 0 where all means are equal
        late = self.unseen / share.clamp(SOONEST**2, LATEST**2).sqrt()  # clocks over deadlines with tau = 1
        if available is not None:
            late = late.masked_fill(~available, 0.0)
        if known and late.is_cpu and not bool((late >= tau).any()):
            return index
        overdue = self.settled(weights) * late
        return torch.where((overdue >= tau).any(-1, keepdim=True), overdue.to(index), index)

    def examine(self, arm: Tensor, weights: Tensor) -> None:
        """Count an observation of arms (S,), with these weights (S, P) of the members."""
        alike = self.model.likeness(arm, weights) >= ALIKE
        seen = alike.scatter_(-1, arm.unsqueeze(-1), True)
        self.unseen = (self.unseen + 1.0).masked_fill_(seen, 0.0)

    @property
    def longest(self) -> Tensor:
        """The longest that an arm has gone unexamined, (S,) observations."""
        return self.unseen.amax(-1)

    def _fresh(self) -> dict[str, Tensor]:
        model = self.model
        return {"unseen": model.noise_variance.new_zeros(model.replicates, model.num_arms)}


class LookOutcome(NamedTuple):
    """What a mixture predicted of a reward (S,), and the reward, in one unit and from one origin: (S,) each.

    Attributes:
        looked: whether the play examined a point that was due.
        reward: the reward.
        mean: the predicted mean at its point.
        noise: the deviation of the noise.
        best: the largest mean of the points held.
    """

    looked: Tensor
    reward: Tensor
    mean: Tensor
    noise: Tensor
    best: Tensor

    @property
    def leads(self) -> Tensor:
        """Whether the reward of a look is above the largest mean, (S,)."""
        return self.looked & (self.reward > self.best)

    @property
    def stands_out(self) -> Tensor:
        """Whether the reward of a look is not above the largest mean but so far above its prediction that points around
        it are worth a look, (S,)."""
        above, gap = self.reward - self.mean, self.best - self.mean
        return self.looked & (above >= _STANDS_OUT * self.noise) & (above >= gap / 4) & ~self.leads


class LookingAtPoints(Described, HasState):
    """``LookingAgain`` over a domain: 64 points have clocks, the first points of its Sobol sequence.

    A clock counts the observations since the last play whose squared prior correlation with the point was at least 1/2,
    with the unknown mean subtracted, averaged over the members by weight with their length-scales at that time. After t
    observations a point is due when its clock reaches

        tau(t) = c sqrt(t + 300),

    if it is settled: sum_p w_p k_p(clock)^2 >= 1/2, with k_p the members' kernels over time and one unit of it per
    observation. For the others see ``LookingAgain``. Of the points that are due and can be played, the one with the
    largest clock is played, at most one in tau / 8 observations. So no settled point goes unexamined for longer than
    tau (1 + 64 / 8), or 2 tau if plays of eight points examine all 64, plus the plays that follow looks. In higher
    dimensions 64 points cover a domain less finely: from four inputs on, a region between them can be missed.

    A look may meet the slope of an optimum that has risen nearby. The members can predict it well and still keep to the
    optimum that they know. So a look is followed if it pays more than the mixture predicted for its point, by at least
    three deviations of the noise and a quarter of the predicted gap to the largest mean of the points held, but no more
    than that mean (``LookOutcome``). The eight points with clocks that are most like it and not examined by it, without
    those examined within the last tau / 8 observations, are then due at once, until a play examines them. A look that
    pays more than the largest mean ends this: from there the bound leads.

    If a step has another domain (a context, other bounds), a point waits unless a point of that domain examines it.

    Args:
        every: c > 0.
        domain: whose points have clocks.
        members: over its box.

    Attributes:
        probes: (64, d), the points; unseen: (S, 64), their clocks; since: (S,), observations since the latest look.
        at_once: (S, 64), whether a point is due at once.

    Cost: O(64 S P d) per observation. Source: as of ``LookingAgain``.

    Raises ValueError unless c > 0, for a ``domain`` that is not a ``Domain``, and for any other kind of members.
    """

    unseen: Tensor
    since: Tensor
    at_once: Tensor

    def __init__(self, every: float, domain: Domain, members: PointMembers) -> None:
        self.every = validation.positive("every", every)
        validation.instance("domain", domain, Domain, "a Domain")
        validation.instance("members", members, PointMembers, "PointMembers")
        self.members, self.probes = members, domain.sample(_PROBES, 0)
        self._begin()

    def tau(self, count: int) -> float:
        """The deadline after t = ``count`` observations."""
        return self.every * math.sqrt(count + _BEFORE)

    def due(self, domain: Domain, weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The replicates in which a point is due, (S,) booleans, and the point with the largest clock, (S, d)."""
        probes = self.probes.unsqueeze(1).expand(-1, len(self.unseen), -1)
        places = domain.fix(probes).transpose(0, 1)  # (S, 64, d)
        late = self._late(weights, count) & (self.since >= self.tau(count) / _AT_ONCE).unsqueeze(-1)
        late = late | self.at_once
        if bool(late.any()):
            late = late & domain.contains(places.transpose(0, 1)).mT
            late = late & (self._likeness(places, weights).diagonal(dim1=-2, dim2=-1) >= ALIKE)
            first = late & self.at_once
            late = torch.where(first.any(-1, keepdim=True), first, late)
        at = torch.where(late, self.unseen, -1.0).argmax(-1)
        return late.any(-1), places[torch.arange(len(places), device=at.device), at]

    def is_look(self, x: Tensor, weights: Tensor, count: int) -> Tensor:
        """Whether a play of points (S, d) examines a point that is due, (S,)."""
        waiting = self._late(weights, count) | self.at_once
        if not bool(waiting.any()):  # as at most steps: then no likeness is needed
            return waiting.any(-1)
        return (waiting & (self._likeness(x.unsqueeze(1), weights).squeeze(1) >= ALIKE)).any(-1)

    def _late(self, weights: Tensor, count: int) -> Tensor:
        """Whether each point's clock has reached the deadline, and the point is settled, (S, 64)."""
        late = self.unseen >= self.tau(count)
        if bool(late.any()):
            kept = self.members.over_time(self.unseen[:, None, None]).squeeze(-2)  # (S, P, 64)
            late = late & ((weights.unsqueeze(-1) * kept.square()).sum(1) >= SETTLED)
        return late

    def examine(self, x: Tensor, weights: Tensor, count: int, outcome: LookOutcome | None = None) -> None:
        """Count an observation of points (S, d), after ``count`` others and with these weights (S, P) of members.
        ``outcome``: of the look, if it is one; None: it is not followed."""
        likeness = self._likeness(x.unsqueeze(1), weights).squeeze(1)
        seen = likeness >= ALIKE
        self.since = torch.where((seen & self._late(weights, count)).any(-1), 0.0, self.since + 1.0)
        self.unseen = torch.where(seen, 0.0, self.unseen + 1.0)
        self.at_once = self.at_once & ~seen
        if outcome is not None:
            nearest = likeness.masked_fill(seen, -1.0).topk(_AT_ONCE).indices
            around = torch.zeros_like(seen).scatter_(-1, nearest, True) & (
                self.unseen > self.tau(count) / _AT_ONCE
            )
            follows, ends = outcome.stands_out.unsqueeze(-1), outcome.leads.unsqueeze(-1)
            self.at_once = (self.at_once & ~ends) | (around & follows)

    def _likeness(self, X: Tensor, weights: Tensor) -> Tensor:
        """How much plays of points X (S, b, d) say about the probes, (S, b, 64): 1/2 is enough to examine one."""
        return (weights[..., None, None] * self.members.likeness(X, self.probes)).sum(1)

    @property
    def longest(self) -> Tensor:
        """The longest that a point has gone unexamined, (S,) observations."""
        return self.unseen.amax(-1)

    def _fresh(self) -> dict[str, Tensor]:
        zeros, S = self.members.bounds.new_zeros, self.members.replicates
        return {"unseen": zeros(S, _PROBES), "since": zeros(S), "at_once": zeros(S, _PROBES).bool()}

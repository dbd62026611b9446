"""Looking again: how long each arm has gone unexamined, and when that is too long."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.arms.members_over_arms import MembersOverArms
from bandits_torch.state import HasState

_ALIKE = 0.5  # squared correlation from which on a play examines an arm
_SOONEST, _LATEST = 0.5, 2.0  # times c sqrt(t)


class LookingAgain(Described, HasState):
    """When to play an arm again because too much can have happened to it unseen.

    A model that learns one rate of change for all arms learns it from the arms that are played. That these stood still
    says nothing of an arm that nobody looked at. So every arm has a clock: the observations since it was last
    examined. It is examined when an arm is played that is alike: squared prior correlation at least 1/2, averaged over
    the members by weight, once the mean over all arms is taken off. After t observations arm i is due when its clock
    reaches

        tau_i(t) = c sqrt(t) min(max(sqrt(g_i / g), 1/2), 2),

    g_i = max_j m_j - m_i the gap in posterior mean and g its mean over arms. If any available arm is due, that of the
    largest clock over tau is played. So no available arm goes unexamined for longer than 2 c sqrt(t) observations, and
    those that other arms, due at the same time, take.

    Why: a change that was not seen in t observations has a hazard of about 1 / (2 t) (Krichevsky & Trofimov 1981). With
    a look every tau observations, each at the cost g_i, and a loss of L an observation from an arm that became best
    until it is found, a step costs g_i / tau + L tau / (4 t) on average. The least is at tau = 2 sqrt(t g_i / L): it
    grows with the root of time, and with that of the gap.

    Args:
        every: c > 0.
        model: the members, of batch shape (S, P); their prior correlations are looked at, not their state.

    Attributes:
        unseen: (S, N), the clocks.

    Cost: O(S P N) an observation. Source: the rule and its constants are ours; ``benchmarks/auto/PROTOCOL.md`` says how
    they were chosen. Forced exploration on a schedule that thins out: Besson et al. 2022 (GLR-klUCB).

    Raises ValueError unless c > 0, and for another kind of model.
    """

    unseen: Tensor

    def __init__(self, every: float, model: MembersOverArms) -> None:
        self.every = validation.positive("every", every)
        validation.instance("model", model, MembersOverArms, "members over arms")
        self.model = model
        self._begin()

    def overdue(self, mean: Tensor, root: float | Tensor) -> Tensor:
        """Clocks over tau, (S, N), with posterior means (S, N) and ``root`` = sqrt(t): due from 1 on."""
        gap = mean.amax(-1, keepdim=True) - mean
        usual = gap.mean(-1, keepdim=True)
        share = torch.where(usual > 0, gap / usual, 1.0).sqrt().clamp(_SOONEST, _LATEST)
        return self.unseen / (self.every * root * share)

    def first(self, index: Tensor, mean: Tensor, root: float | Tensor, available: Tensor | None) -> Tensor:
        """``index`` (S, N) where no available arm is due, elsewhere how much each is overdue."""
        overdue = self.overdue(mean, root)
        if available is not None:
            overdue = torch.where(available, overdue, 0.0)
        return torch.where((overdue >= 1.0).any(-1, keepdim=True), overdue.to(index), index)

    def examine(self, arm: Tensor, weights: Tensor) -> None:
        """One observation more, of arms (S,), with these weights (S, P) of the members."""
        alike = (weights.unsqueeze(-2) @ self.model.likeness(arm)).squeeze(-2) >= _ALIKE
        own = torch.zeros_like(alike).scatter(-1, arm.unsqueeze(-1), True)
        self.unseen = torch.where(alike | own, 0.0, self.unseen + 1.0)

    @property
    def longest(self) -> Tensor:
        """The longest that an arm has gone unexamined, (S,) observations."""
        return self.unseen.amax(-1)

    def _fresh(self) -> dict[str, Tensor]:
        model = self.model
        return {"unseen": model.noise_variance.new_zeros(model.replicates, model.num_arms)}

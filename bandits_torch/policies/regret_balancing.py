"""Regret balancing: a policy over policies that plays the least played and drops those outdone in reward."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.policies.choices import choices_of
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.over_priors import checked_noise_scale, outdone
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.theory.prior_widths import elimination_xi


class RegretBalancing(Policy):
    """Regret balancing over UCB policies, one per candidate prior; every policy learns every reward.

    With S_p the steps at which p was followed, the surviving policy of the smallest |S_p| + 1 is followed
    (suspected regret R^p(t) = t). Once all survivors were followed, with

        L(p) = sum_{i in S_p} y_i / |S_p| - sqrt(xi_t / |S_p|),

    p stays if L(p) + sum_{i in S_p} width_i sigma^p_{i-1}(x_i) / |S_p| >= max over survivors of L.

    Source: Ziomek et al. 2024, Algorithm 2, as printed, with xi_t of their Theorem 4.1 (``elimination_xi``). The
    test compares rewards of different steps, so it holds for functions and arm sets that do not change. The
    policy of the largest L always stays.

    Args:
        policies: P new index policies with a width, over the same arms, or the points of one domain, and replicates.
        delta: failure probability.
        noise_scale: R, a number or a tensor that broadcasts to (S, P); default: sqrt(lambda) of each policy.
        xi: ``"two-sided"`` or ``"printed"``, the form of xi_t.

    ``trace`` records the policy followed as ``prior``, and the number of survivors. A step costs one step of
    every policy. Rewards may arrive in any order.

    Raises ValueError unless 0 < ``delta`` < 1 and ``noise_scale`` > 0.
    """

    needs_unit = "its choices carry bounds of the reward, in units of reward"

    def __init__(
        self,
        policies: Sequence[IndexPolicy],
        *,
        delta: float = 0.1,
        noise_scale: float | Tensor | None = None,
        xi: str = "two-sided",
    ) -> None:
        validation.instance("policies", policies, Sequence, "a sequence of IndexPolicy")
        self.policies = list(policies)
        self.replicates, self.num_arms, self.dim = _common_sizes(self.policies)
        over = cast(Domain, self.policies[0].choices.given) if self.dim else self.num_arms
        self._choices = choices_of(over, self.replicates)
        self.delta, self.xi = validation.probability("delta", delta), xi
        each = [policy.model.noise_variance.sqrt().expand(self.replicates) for policy in self.policies]
        usual = torch.stack(each, -1)
        self._noise_scale = checked_noise_scale(noise_scale, usual).expand_as(usual)
        elimination_xi(
            1, len(self.policies), self._noise_scale, self.delta, xi
        )  # ValueError for another ``xi``
        self._begin()

    # Of each policy's choices, with what was learned alone: where pulls are pending.
    _deviations: list[Callable[[Tensor], Tensor]] | None = None

    @torch.no_grad()
    def choose(self, time: float, available: Any = None) -> Choice:
        """What the least played survivor chooses, in each replicate."""
        followed = self._plays.masked_fill(~self.surviving, torch.inf).argmin(-1)
        each, arms, bounds = torch.arange(self.replicates, device=followed.device), [], []
        for policy in self.policies:
            arms.append(policy.choose(time, available).arm)
            deviation = self._deviation(len(arms) - 1, arms[-1], time)
            bounds.append(torch.as_tensor(policy.trace()["width"]).to(deviation) * deviation)
        arm, bound = (torch.stack(of_all)[followed, each] for of_all in (arms, bounds))
        return Choice(arm, {"prior": followed, "bound": bound})

    def _deviation(self, p: int, arm: Tensor, time: float) -> Tensor:
        """Of policy p at the arm, with what has been learned alone."""
        if self._deviations is not None:
            return self._deviations[p](arm)
        return self.policies[p].predict(arm, time)[1]

    def _alone(self, policy: IndexPolicy, time: float) -> Callable[[Tensor], Tensor]:
        """Standard deviations of a policy's choices as they stand now, whatever comes to be pending."""
        if self.dim:
            kept = copy.deepcopy(policy)
            return lambda point: kept.predict(point, time)[1]
        deviation = policy.marginals(time)[1].sqrt()
        return lambda arm: deviation.gather(-1, arm.unsqueeze(-1)).squeeze(-1)

    _expects = ("policies", "_plays", "_deviations")

    def expect(self, pending: Pending, time: float) -> None:
        """Every policy expects what is pending, which counts as a play of the policy that was followed."""
        if self._deviations is None:
            self._deviations = [self._alone(policy, time) for policy in self.policies]
        for policy in self.policies:
            policy.expect(pending, time)
        self._plays.scatter_add_(-1, pending.why["prior"].unsqueeze(-1), torch.ones_like(self._plays[:, :1]))

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Every policy learns the reward; then the survivors' records are compared."""
        self._choices.check(observation, "prior", "bound")
        for policy in self.policies:
            policy.learn(Observation(observation.time, observation.arm, observation.reward))
        self._clock = self._clock + 1
        self._prior = observation.why["prior"]
        at = self._prior.unsqueeze(-1)
        self._rewards.scatter_add_(-1, at, observation.reward.to(self._rewards).unsqueeze(-1))
        self._bounds.scatter_add_(-1, at, observation.why["bound"].unsqueeze(-1))
        self._plays.scatter_add_(-1, at, torch.ones_like(self._plays[:, :1]))
        step = self._clock.unsqueeze(-1) if isinstance(self._clock, Tensor) else self._clock
        xi = elimination_xi(step, len(self.policies), self._noise_scale, self.delta, self.xi)
        reach = self._bounds / self._plays - torch.sqrt(xi / self._plays)
        self.surviving &= ~outdone(self._rewards, self._plays, reach, xi, self.surviving)

    def trace(self) -> dict[str, Tensor | float]:
        """The policy followed, and how many survive."""
        return {"prior": self._prior, "surviving": self.surviving.sum(-1)}

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("policies",)
    _clocks = ("_clock",)
    _clock: int | Tensor
    _prior: Tensor  # followed last, (S,)
    surviving: Tensor  # (S, P), as the others
    _rewards: Tensor
    _bounds: Tensor
    _plays: Tensor

    def _fresh(self) -> dict[str, Any]:
        zeros = torch.zeros_like(self._noise_scale)
        records = {name: zeros.clone() for name in ("_rewards", "_bounds", "_plays")}
        return {"_clock": 0, "_prior": zeros[:, 0].long(), "surviving": zeros == 0} | records


def _common_sizes(policies: Sequence[IndexPolicy]) -> tuple[int, int, int]:
    """Replicates, arms and dimension of all policies; ValueError if there is no policy or they disagree."""
    validation.require(len(policies) > 0, "policies", list(policies), "at least one IndexPolicy")
    for p, policy in enumerate(policies):
        validation.instance(f"policies[{p}]", policy, IndexPolicy, "an IndexPolicy")
    sizes = {(policy.replicates, policy.num_arms, policy.dim) for policy in policies}
    expected = "one (replicates, arms, dimension) of all policies"
    validation.require(len(sizes) == 1, "policies", sorted(sizes), expected)
    for p, policy in enumerate(policies):
        validation.require(policy.width is not None, f"policies[{p}].width", policy.width, "a Width")
    return next(iter(sizes))

"""A test against a control: a random share of the traffic goes to it, and lifts over it get confidence intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.policy import Choice, Observation, Policy
from bandits_torch.policies.wrapping import WrappingPolicy
from bandits_torch.streams import ReplicateStreams

_LEARNING = 50  # number of first rewards that do not count for lifts
_FEW = 8  # fewest compared rewards of an arm, and of the control in its place, for a lift
_ALIKE = 100.0  # weight of the mean over all arms in the variance of an arm's noise, in rewards
_TIGHTEST = 500.0  # number of comparisons for which the interval is narrowest


class ControlledPolicy(WrappingPolicy):
    """Plays the arm that an inner policy proposes, or with probability ``control_share`` the control in its place.

    If arm a is proposed at time t, only a random draw decides between a and the control c. So the rewards of both come
    from the same times, and a level that changes with time affects both alike. With p the share and m the policy's
    prediction before the choice, the mean of

        psi_t = m_a - m_c + 1{played a} (y - m_a) / (1 - p) - 1{played c} (y - m_c) / p

    given the past is the lift of a over c at t, whether or not the prediction is right; a good prediction reduces the
    variance of psi. The mean of psi over the n times when a was proposed estimates the mean lift at those times,
    and

        mean psi +- sigma sqrt(2 (n rho^2 + 1) / (n^2 rho^2) log(sqrt(n rho^2 + 1) / alpha))

    contains it for all n at once with probability 1 - alpha, asymptotically. So you may look after each reward and stop
    at any time. sigma^2 is the larger of the variance of psi and v_a / (1 - p) + v_c / p. Here v is the mean squared
    prediction error of an arm, to which the mean over all arms is added as a hundred more rewards: if successes are
    rare, the first rewards of the control may all be 0, and their variance would be 0. rho makes the interval narrowest
    at n = 500. In simulations of two equal arms with probabilities of success of .005 to .1, at most 6 % of 95 %
    intervals were wrong at some time in 4000 comparisons.

    The first 50 rewards do not count, nor do times at which the control was not available or was itself proposed. The
    prediction of a reward is from the time of its choice, so late rewards do no harm.

    Args:
        policy: over arms, with ``marginals`` and without contexts; it learns every reward.
        control: the arm, 0 to N - 1.
        control_share: the control's share of the traffic, in (0, 1/2].
        seed, first_replicate: for the random draws, which do not use the policy's streams.

    Cost: ``marginals`` once a choice.

    Source: augmented inverse propensity weights (Robins, Rotnitzky & Zhao 1994) with known propensities; the interval
    is the asymptotic confidence sequence of Waudby-Smith et al. 2024 (theorem 2.2; theorem 2.5 for means that vary).
    The choice of times that are compared, and the variance, are ours.

    Raises ValueError for an arm or a share out of range, and another policy.
    """

    _parts = ("policy", "_streams")
    _clocks = ("count",)
    needs_unit = "its lifts are in units of reward"
    needs_choices = "its lifts need its draws to be played"

    count: int | Tensor  # rewards, (S,) once some replicates have restarted
    compared: Tensor  # (S, N), number of rewards that count, by the arm proposed
    total: Tensor  # (S, N), sum of psi
    squares: Tensor  # (S, N), sum of psi^2
    controls: Tensor  # (S, N), how many of ``compared`` were of the control
    played: Tensor  # (S, N), number of rewards that count, by the arm played
    errors: Tensor  # (S, N), sum of their squared prediction errors

    def __init__(
        self,
        policy: Policy,
        control: int,
        control_share: float = 0.1,
        *,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        self._around(policy)
        fits = policy.dim == 0 and hasattr(policy.innermost, "marginals")
        fits = fits and not policy.takes_contexts and not policy.needs_choices
        expected = "one over arms, with marginals, without contexts, that does not need its choices"
        validation.require(fits, "policy", type(policy).__name__, expected)
        inside = validation.natural("control", control) < policy.num_arms
        validation.require(inside, "control", control, f"an arm, 0 to {policy.num_arms - 1}")
        half = validation.positive("control_share", control_share) <= 0.5
        validation.require(half, "control_share", control_share, "in (0, 0.5]")
        self.control, self.control_share = control, control_share
        self._streams = ReplicateStreams(seed, self.replicates, purpose="control", first=first_replicate)
        self._arms = Arms(self.num_arms, self.replicates)
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        zeros = torch.zeros(self.replicates, self.num_arms, dtype=torch.float64)
        names = ("compared", "total", "squares", "controls", "played", "errors")
        return {"count": 0} | {name: zeros.clone() for name in names}

    def choose(self, time: float, available: Any = None) -> Choice:
        mean = self.policy.marginals(time)[0]  # type: ignore[attr-defined]  # refuses a past time before draws
        choice = self.policy.choose(time, available)
        proposed = choice.arm
        control = torch.full_like(proposed, self.control)
        drawn = (self._streams.uniform() < self.control_share).to(proposed.device)
        free = proposed != self.control
        if available is not None:
            free = free & available[..., self.control].to(proposed.device)
        predicted = mean.mT.gather(0, torch.stack([proposed, control]))
        why = {"proposed": torch.where(free, proposed, -1), "predicted": predicted}
        return Choice(torch.where(drawn & free, control, proposed), {**choice.why, **why})

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Pass the reward to the policy. If it counts, add it to the lift of the proposed arm."""
        self._arms.check(observation)
        why = dict(observation.why)
        proposed, predicted = why.pop("proposed", None), why.pop("predicted", None)
        S, N = self.compared.shape
        for name, value, shape in (("proposed", proposed, (S,)), ("predicted", predicted, (2, S))):
            if value is not None:
                validation.finite_tensor(
                    f"why[{name!r}]", validation.of_shape(f"why[{name!r}]", value, shape)
                )
        if proposed is not None:
            arms = proposed.dtype == torch.long and bool(((proposed >= -1) & (proposed < N)).all())
            validation.require(arms, "why['proposed']", proposed, f"int64 from -1 to {N - 1}")
        self.policy.learn(replace(observation, why=why))
        self.count = self.count + 1
        if proposed is None or predicted is None:
            return
        proposed, predicted = proposed.cpu(), predicted.double().cpu()
        arm, reward = observation.arm.cpu(), observation.reward.double().cpu()
        counts = torch.as_tensor(self.count > _LEARNING).cpu()
        here, control = ((proposed >= 0) & counts).double(), arm == self.control
        error = reward - torch.where(control, predicted[1], predicted[0])
        weighted = torch.where(control, -error / self.control_share, error / (1 - self.control_share))
        psi = predicted[0] - predicted[1] + weighted
        of_proposed = {"compared": here, "total": psi, "squares": psi.square(), "controls": control.double()}
        of_played = {"played": here, "errors": error.square()}
        for at, values in ((proposed.clamp_min(0), of_proposed), (arm, of_played)):
            for name, value in values.items():
                before = getattr(self, name)
                setattr(self, name, before.scatter_add(-1, at.unsqueeze(-1), (here * value).unsqueeze(-1)))

    def lifts(self, level: float = 0.95) -> tuple[Tensor, Tensor, Tensor]:
        """Lift of every arm over the control, and both ends of its interval, (S, N) each, in units of reward.

        NaN with an unbounded interval until 8 rewards of the arm and 8 of the control in its place count; 0 for the
        control.
        """
        alpha = 1 - validation.probability("level", level)
        n = self.compared.clamp_min(1)
        mean = self.total / n
        alike = self.errors.sum(-1, keepdim=True) / self.played.sum(-1, keepdim=True).clamp_min(1)
        of_arms = (self.errors + _ALIKE * alike) / (self.played + _ALIKE)
        of_control = of_arms[:, self.control].unsqueeze(-1)
        expected = of_arms / (1 - self.control_share) + of_control / self.control_share
        variance = torch.maximum((self.squares / n - mean.square()).clamp_min(0.0), expected)
        rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / _TIGHTEST
        wide = 2 * (n * rho2 + 1) / (n.square() * rho2) * ((n * rho2 + 1).sqrt() / alpha).log()
        half = (variance * wide).sqrt()
        known = torch.minimum(self.controls, self.compared - self.controls) >= _FEW
        mean, half = mean.where(known, torch.nan), half.where(known, torch.inf)
        low, high = (torch.where(known, mean + sign * half, sign * torch.inf) for sign in (-1, 1))
        at = torch.arange(self.num_arms) == self.control
        return tuple(one.masked_fill(at, 0.0) for one in (mean, low, high))  # type: ignore[return-value]

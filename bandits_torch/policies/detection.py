"""Makes a policy for constant rewards usable for changing ones: forced exploration, a change test, a restart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.arm_policy import ArmPolicy
from bandits_torch.policies.classical.confidence_bounds import (
    forced_turn,
    likelihood_ratio,
    tuned_test,
    with_one,
)
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.policies.wrapping import WrappingPolicy


class DetectionAugmented(WrappingPolicy):
    """An inner policy plays, some arms are also played in turn, and the policy is reset when a test detects a change.

    Of every floor(M / a_k) steps since the last restart the first M play the M watched arms in turn, with a_k =
    ``exploration`` sqrt(k), at most 1, after k - 1 restarts. An arm that is not available loses its turn. The policy
    chooses at all other steps. It learns every reward. Then the n rewards of the arm just pulled, since the last
    restart, are tested by the generalised likelihood ratio of Gaussian noise of scale R:

        max_s s (mean_{1:s} - mean_{1:n})^2 / (2 R^2) + (n - s) (mean_{s+1:n} - mean_{1:n})^2 / (2 R^2)
            > ln(n^{3/2} / delta),

    and if it exceeds the threshold, the policy is reset and all rewards are forgotten.

    Args:
        policy: over arms, for rewards that do not change; an ``IndexPolicy`` or an ``ArmPolicy`` that can learn the
            reward of an arm that it did not choose (it ``needs`` nothing of its choice, and takes no contexts).
        horizon: T.
        noise_scale: R > 0, the sub-Gaussian scale of the noise, a number or (S,).
        watched: int64 (M,), different arms; None for all. Every change should show in the rewards of some of them.
        delta: of the test; None for 1 / sqrt(T).
        exploration: a, in [0, 1]; None for sqrt(M ln T / T), but at most 0.1.

    Each replicate restarts by itself. ``trace`` adds the number of ``restarts``. Pending pulls use up turns.

    Cost: that of the policy and O(S t) a step, since all rewards are kept for the test.

    Source: detection augmented learning (Gerogiannis, Huang, Bose & Veeravalli 2025, arXiv 2501.19401) and its form for
    unrelated arms (Huang, Gerogiannis, Bose & Veeravalli 2025, arXiv 2501.01291). Their abstracts and introductions
    alone were read: any stationary algorithm, a change detector, forced exploration, a restart, no knowledge of the
    changes. Schedule, threshold and their constants are those of GLR-klUCB here (``GLRKLUCB``, Besson et al. 2022),
    with Gaussian in place of Bernoulli likelihoods. Letting the policy learn from forced pulls is ours. No
    theorem is claimed. Raises ValueError for a policy of another kind, and numbers out of range.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        horizon: int,
        noise_scale: float | Tensor,
        watched: Tensor | None = None,
        delta: float | None = None,
        exploration: float | None = None,
    ) -> None:
        expected = "an IndexPolicy or ArmPolicy over arms that learns any arm's reward"
        validation.require(self.takes(policy), "policy", type(policy).__name__, expected)
        self._around(policy)
        T, N, S = validation.positive_integer("horizon", horizon), self.num_arms, self.replicates
        if watched is None:
            watched = torch.arange(N)
        numbers = validation.tensor("watched", watched).dtype == torch.long
        some = numbers and watched.dim() == 1 and len(watched) > 0
        within = some and bool(((watched >= 0) & (watched < N)).all())
        different = within and len(watched.unique()) == len(watched)
        validation.require(different, "watched", watched, f"different arms from 0 to {N - 1}, int64")
        scale = validation.numbers("noise_scale", noise_scale, torch.ones(S, dtype=torch.float64))
        right = scale.shape in ((), (S,)) and bool((scale.isfinite() & (scale > 0)).all())
        validation.require(right, "noise_scale", noise_scale, f"a finite number > 0, or ({S},) of them")
        self.horizon, self.watched = horizon, watched
        self.noise_scale = scale.expand(S).to(watched.device)
        self.delta, self.exploration = tuned_test(T, len(watched), delta, exploration)
        self._begin()

    @staticmethod
    def takes(policy: Any) -> bool:
        """Whether it can be the policy inside."""
        kind = isinstance(policy, IndexPolicy | ArmPolicy)
        return kind and not (policy.needed or policy.dim or policy.takes_contexts)

    @property
    def knows_past(self) -> bool:  # type: ignore[override]
        """As for the inner policy, before any restart."""
        return self.policy.knows_past and not bool(self._since.any())

    # -- choosing --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Any = None) -> Choice:
        """The watched arm whose turn it is, or the inner policy's choice."""
        choice, M = self.policy.choose(time, available), len(self.watched)
        clock = (self._length + self._pending - self._since).double()
        turn = forced_turn(clock, self.exploration, self._changes, M)
        arm, forced = self.watched[turn.clamp(max=M - 1)], turn < M
        if available is not None:
            forced = forced & available.expand(self.replicates, -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        return replace(choice, arm=torch.where(forced, arm, choice.arm))

    _pending = 0  # pulls that are to be counted as made

    _expects = ("policy", "_pending")

    def expect(self, pending: Pending, time: float) -> None:
        """As for the inner policy; each pending pull takes a turn."""
        super().expect(pending, time)
        self._pending += 1

    # -- learning --------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Let the inner policy learn, then test, and restart the replicates with a change."""
        noise = observation.noise_variance
        validation.require(
            noise is None, "noise_variance", noise, "None: the test has one noise scale for all rewards"
        )
        self.policy.learn(observation)
        length = self._length
        self._arms = with_one(self._arms, length, observation.arm)
        self._rewards = with_one(self._rewards, length, observation.reward)
        self._length = length + 1
        position = torch.arange(self._length, device=self.watched.device)
        own = self._arms[:, : self._length] == observation.arm.unsqueeze(-1)
        own = own & (position >= self._since.unsqueeze(-1))
        twice = 2 * self.noise_scale.square().unsqueeze(-1)
        ratio, n = likelihood_ratio(
            own, self._rewards[:, : self._length], lambda p, q: (p - q).square() / twice
        )
        changed = ratio > 1.5 * n.log() - math.log(self.delta)
        if bool(changed.any()):
            self.policy.reset(changed)
            self._since = torch.where(changed, self._length, self._since)
            self._changes = self._changes + changed

    def changes_found(self) -> Tensor:
        """Restarts so far."""
        return self._changes

    def trace(self) -> dict[str, Tensor | float]:
        """The trace of the inner policy, and the number of ``restarts``."""
        return self.policy.trace() | {"restarts": self._changes}

    # -- state -----------------------------------------------------------------------------------------

    _arms: Tensor  # pulled, (S, length and room for more)
    _rewards: Tensor
    _length: int
    _since: Tensor  # rewards learned before the last restart, (S,)
    _changes: Tensor  # found, (S,)

    def _fresh(self) -> dict[str, Any]:
        none = torch.zeros(self.replicates, dtype=torch.long, device=self.watched.device)
        arms = none.new_zeros(self.replicates, 0)
        return {
            "_arms": arms,
            "_rewards": arms.double(),
            "_length": 0,
            "_since": none,
            "_changes": none.clone(),
        }

    def _restarted(self, where: Tensor | None) -> None:
        """Rewards are kept until all replicates are reset; those of a replicate that was reset no longer count."""
        if where is not None:
            self._since = torch.where(where, self._length, self._since)

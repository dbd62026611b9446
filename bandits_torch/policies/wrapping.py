"""Policies around one other policy: rewards shifted, rewards standardised, and horizons that double."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy, natural_in
from bandits_torch.state import unchanged_on_error


class _OfInner:
    """The attribute of the same name of the inner policy."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, around: Any, owner: type) -> Any:
        return self if around is None else getattr(around.policy, self._name)


_of_inner: Any = _OfInner


class WrappingPolicy(Policy):
    """Base class: a policy around ``policy``. All but ``learn`` is that of the inner policy, unless a subclass changes
    it."""

    _parts: ClassVar[tuple[str, ...]] = ("policy",)
    _expects: ClassVar[tuple[str, ...] | None] = ("policy",)
    policy: Policy
    innermost = _of_inner()
    takes_contexts = _of_inner()
    needs_unit = _of_inner()
    restarts_with_arms = _of_inner()
    needs_choices = _of_inner()
    search = _of_inner()
    knows_past = _of_inner()
    choose = _of_inner()
    numbers_per_step = _of_inner()
    changes_found = _of_inner()
    mean_rewards = _of_inner()
    trace = _of_inner()
    marginals = _of_inner()
    latent_marginals = _of_inner()  # which only ``LatentRewards`` has
    in_rewards = _of_inner()

    def _around(self, policy: Policy) -> None:
        validation.instance("policy", policy, Policy, "a Policy")
        self.policy = policy
        self.replicates, self.num_arms, self.dim = policy.replicates, policy.num_arms, policy.dim
        self.outcome_names = policy.outcome_names

    def _inside(self, one: Any) -> Any:
        """What the inner policy is told of an observation or a pending choice; None: nothing."""
        return one

    def expect(self, pending: Pending, time: float) -> None:
        if (inside := self._inside(pending)) is not None:
            self.policy.expect(inside, time)

    def dropped(self, pending: Pending) -> None:
        if (inside := self._inside(pending)) is not None:
            self.policy.dropped(inside)


class SomeArms(WrappingPolicy):
    """Plays only some of N arms. The inner policy is over these, numbered from 0.

    Args:
        policy: over as many arms as ``here`` has True.
        here: (N,) booleans, True for the arms that are played.

    Source: ours. Raises ValueError for any other policy or mask; ``learn`` raises it for any other arm.
    """

    def __init__(self, policy: Policy, here: Tensor) -> None:
        self._around(policy)
        fits = validation.tensor("here", here).dim() == 1 and here.dtype == torch.bool
        fits = fits and int(here.sum()) == policy.num_arms
        validation.require(fits, "here", here, f"(N,) booleans, {policy.num_arms} of them True")
        self.num_arms, self.here = len(here), here
        self._numbers, self._places = here.nonzero().flatten(), here.cumsum(0) - 1

    def choose(self, time: float, available: Any = None) -> Choice:
        if available is not None:
            Arms(self.num_arms, self.replicates).check_available(available)
            available = available[..., self._numbers.to(available.device)]
        choice = self.policy.choose(time, available)
        return replace(choice, arm=self._numbers.to(choice.arm.device)[choice.arm])

    def learn(self, observation: Observation) -> None:
        Arms(self.num_arms, self.replicates).check(observation)
        known = bool(self.here.to(observation.arm.device)[observation.arm].all())
        validation.require(known, "arm", observation.arm, f"among {self._numbers.tolist()}")
        self.policy.learn(self._inside(observation))

    def mean_rewards(self) -> Tensor | None:
        mean = self.policy.mean_rewards()
        return None if mean is None else self._of_all(mean)

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        mean, variance = super().marginals(time, points)
        return self._of_all(mean), self._of_all(variance)

    def _of_all(self, values: Tensor) -> Tensor:
        """Values (S, n) of the arms that are played as values (S, N) of all arms, NaN for the others."""
        every = values.new_full((self.replicates, self.num_arms), torch.nan)
        every[:, self._numbers.to(values.device)] = values
        return every

    def _inside(self, one: Any) -> Any:
        return replace(one, arm=self._places.to(one.arm.device)[one.arm])


class CentredPolicy(WrappingPolicy):
    """Passes reward - ``prior_mean`` to the inner policy: exact for a policy whose prior mean is 0.

    ``prior_mean`` is one number for all arms, because with different numbers the best arm of the differences could be
    another arm.

    Args:
        policy: it learns the differences. Its own limits and ranges of rewards are those of the differences.
        prior_mean: in units of reward.

    Source: ours, a shift of the rewards. Raises ValueError for a ``prior_mean`` that is no reward: not a finite number,
    or larger than 1e140; and for a policy that learns rewards of 0 and 1, or counts (``LatentRewards``).
    """

    def __init__(self, policy: Policy, prior_mean: float) -> None:
        self._around(policy)
        shifts = not hasattr(policy, "latent_marginals")
        expected = "one that learns any numbers, not 0 and 1, or counts"
        validation.require(shifts, "policy", type(policy).__name__, expected)
        self.prior_mean = validation.finite_number("prior_mean", prior_mean)
        validation.rewards("prior_mean", torch.tensor(self.prior_mean, dtype=torch.float64))

    def learn(self, observation: Observation) -> None:
        reward = validation.of_shape("reward", observation.reward, (self.replicates,))
        if reward.is_cpu:
            validation.rewards("reward", reward)
        self.policy.learn(replace(observation, reward=reward - self.prior_mean))

    def mean_rewards(self) -> Tensor | None:
        mean = self.policy.mean_rewards()
        return None if mean is None else mean + self.prior_mean

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        mean, variance = super().marginals(time, points)
        return mean + self.prior_mean, variance


class StandardisedPolicy(WrappingPolicy):
    """Passes (reward - ``offset``) / ``scale`` to the inner policy, with the mean and standard deviation of the first
    rewards.

    After rewards number 1, 2, 4, ..., ``warm_up`` both are recomputed from all rewards so far, and the inner policy is
    reset and learns these again in the new unit. After the warm-up both stay fixed, whatever later rewards are
    (``recipes.auto`` follows changes of level and spread). Let the inner policy have prior mean m, covariance k and
    noise variance lambda. The posterior is then exactly that of a policy with prior mean offset + scale m, covariance
    scale^2 k and noise variance scale^2 lambda that learns the rewards unchanged. So choices do not depend on the unit
    and the origin of rewards. While all rewards are equal, ``scale`` is 1. Each replicate has its own of both.

    Args:
        policy: any that can learn an observation again after ``reset`` in another unit. A policy that cannot states the
            reason in ``needs_unit``: it holds limits or ranges in units of reward, learns rewards in turn, or learns
            the unit itself.
        warm_up: number of rewards from which unit and origin are learned.

    Cost: up to ``warm_up`` steps at a reward that changes the unit; nothing after the warm-up, which drops the stored
    rewards. Norm bounds and noise scales given to widths are in units of ``scale``.

    Source: ours; an affine change of a Gaussian process. Raises ValueError for any other policy, and a ``warm_up``
    below 2.
    """

    needs_unit = "it learns the unit by itself"

    def __init__(self, policy: Policy, *, warm_up: int = 64) -> None:
        self._around(policy)
        why = policy.needs_unit
        expected = f"one that can learn its rewards again in another unit ({why})"
        validation.require(not why, "policy", type(policy.innermost).__name__, expected)
        enough = validation.positive_integer("warm_up", warm_up) >= 2
        validation.require(enough, "warm_up", warm_up, "an integer >= 2")
        self.warm_up = warm_up
        self._begin()

    offset: Tensor
    scale: Tensor
    _told: list[Observation]
    _count: int
    _lasting = ("offset", "scale")

    def _fresh(self) -> dict[str, Any]:
        offset = torch.zeros(self.replicates, dtype=torch.float64)
        return {"offset": offset, "scale": torch.ones_like(offset), "_told": [], "_count": 0}

    def state_changed(self) -> None:
        self._told = [one if isinstance(one, Observation) else Observation(**one) for one in self._told]

    def _restarted(self, where: Tensor | None) -> None:
        """If all replicates restart, the unit is learned again; if only some do, it stays."""
        if where is None or bool(where.all()):
            self._begin()
        else:
            self._told, self._count = [], self.warm_up

    def learn(self, observation: Observation) -> None:
        """Learn the reward in the current unit or, if a new unit is due, all rewards in the unit computed from them. If
        one is refused, nothing changes."""
        reward = validation.of_shape("reward", observation.reward, (self.replicates,))
        count = self._count + 1
        first = []
        if count <= self.warm_up:
            validation.rewards("reward", reward)
            first = [*self._told, observation]
        if first and (count & (count - 1) == 0 or count == self.warm_up):
            rewards = torch.stack([one.reward.double() for one in first])  # (n, S)
            offset, spread = rewards.mean(0), rewards.std(0, correction=0)
            # A smaller spread is one of rounding errors.
            scale = torch.where(spread > 1e-12 * rewards.abs().amax(0), spread, 1.0)
            with unchanged_on_error(self.policy):
                self.policy.reset()
                for one in first:
                    self.policy.learn(_standard(one, offset, scale))
            self.offset, self.scale = offset, scale
        else:
            self.policy.learn(_standard(observation, self.offset, self.scale))
        self._count, self._told = count, first if count < self.warm_up else []

    def mean_rewards(self) -> Tensor | None:
        mean = self.policy.mean_rewards()
        return None if mean is None else self.offset.unsqueeze(-1) + self.scale.unsqueeze(-1) * mean

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        mean, variance = super().marginals(time, points)
        offset, scale = self.offset.to(mean).unsqueeze(-1), self.scale.to(mean).unsqueeze(-1)
        return offset + scale * mean, scale.square() * variance

    def trace(self) -> dict[str, Tensor | float]:
        return self.policy.trace() | {"offset": self.offset, "scale": self.scale}


def _standard(observation: Observation, offset: Tensor, scale: Tensor) -> Observation:
    """The observation in this unit."""
    reward, noise = observation.reward, observation.noise_variance
    offset, scale = offset.to(reward), scale.to(reward)
    noise = None if noise is None else noise / scale.square()
    return replace(observation, reward=(reward - offset) / scale, noise_variance=noise)


class DoublingTrick(WrappingPolicy):
    """Anytime play: phase k = 0, 1, ... is a new policy for the horizon T_k = ``first`` 2^k, played T_k times.

    A new phase knows nothing of earlier ones. If the regret of the policy for a horizon T is at most c T^a for every T,
    the regret of all phases together is at most

        c 2^a / (2^a - 1) (T + first)^a    after T steps:

    3.4 times as much for a = 1/2, 2.5 times for a = 3/4 (the trick keeps polynomial bounds, not logarithmic ones). This
    holds for any reward functions. If they change, build the policy of every phase with a bound on the change in the
    whole run. Limits and prices of moves belong around this policy (``CostlyMoves``), because the policy of a new phase
    does not know where the setting is, and its first move would be unlimited and free.

    Rewards, pending pulls and drops of choices made in an earlier phase are ignored.

    Args:
        base: makes the policy of a phase from its horizon, the only argument, such as
            ``lambda T: recipes.sw_gp_ucb(arms, kernel, 0.01, horizon=T)``. The horizon may serve as the seed of a
            policy that draws (``seed=T``).
        first: T_0.

    Cost: that of the policies, and of making about log2(T / ``first``) of them.

    Source: Auer, Cesa-Bianchi, Freund & Schapire 2002; Besson & Kaufmann 2018 (arXiv 1803.06971), the geometric trick.
    Raises ValueError for a ``base`` that is not a function, or whose result is not a policy, has phases itself, limits
    moves, or has other numbers of arms or replicates than before, and for a ``first`` below 1.
    """

    def __init__(self, base: Callable[[int], Policy], *, first: int = 64) -> None:
        self.base = base
        validation.function("base", base, "a function that makes a policy for a horizon")
        self.first = validation.positive_integer("first", first)
        self._begin_phase(0)

    def _policy_of(self, phase: int) -> Policy:
        """A new policy for a phase."""
        policy = self.base(self.first * 2**phase)
        validation.instance("base", policy, Policy, "a function that makes a policy for a horizon")
        inside: Any = policy
        while isinstance(inside, WrappingPolicy):  # its choices would carry the phase of the outer one alone
            doubles = isinstance(inside, DoublingTrick)
            validation.require(not doubles, "base", inside, "a function that makes a policy without phases")
            limit = getattr(inside, "max_move", None)
            validation.require(
                limit is None, "max_move", limit, "None in a phase: limit moves around all phases"
            )
            inside = inside.policy
        if phase:
            before = (self.replicates, self.num_arms, self.dim)
            now = (policy.replicates, policy.num_arms, policy.dim)
            expected = f"the same replicates, arms and dimension as before, {before}"
            validation.require(now == before, "base", now, expected)
        return policy

    def _begin_phase(self, phase: int, policy: Policy | None = None) -> None:
        self._around(policy or self._policy_of(phase))
        self.phase, self._count = phase, 0

    @property
    def knows_past(self) -> bool:  # type: ignore[override]
        """As the phase's policy; False after the first phase."""
        return self.phase == 0 and super().knows_past

    def choose(self, time: float, available: Any = None) -> Choice:
        choice = self.policy.choose(time, available)
        return replace(choice, why={**choice.why, "phase": self.phase})

    def _inside(self, one: Any) -> Any:
        return one if natural_in(one, "phase", self.phase) == self.phase else None

    def learn(self, observation: Observation) -> None:
        """The phase's policy learns; after T_k observations the next phase begins. If ``base`` fails, nothing
        changes."""
        if self._inside(observation) is None:
            return
        is_last = self._count + 1 == self.first * 2**self.phase
        following = self._policy_of(self.phase + 1) if is_last else None
        self.policy.learn(observation)
        self._count += 1
        if is_last:
            self._begin_phase(self.phase + 1, following)

    def trace(self) -> dict[str, Tensor | float]:
        return self.policy.trace() | {"phase": float(self.phase)}

    phase: int
    _count: int  # observations in it

    def _fresh(self) -> dict[str, Any]:
        return {"phase": 0, "_count": 0}

    def _restarted(self, where: Tensor | None) -> None:
        """Return to phase 0; if only some replicates restart, they begin the current phase again."""
        if where is None or bool(where.all()):
            self._begin_phase(0)

    def _make_room(self, state: Mapping[str, Any]) -> None:
        if state["phase"] != self.phase:
            self._begin_phase(validation.natural("phase", state["phase"]))

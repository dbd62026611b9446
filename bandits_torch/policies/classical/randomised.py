"""Classical policies that draw: epsilon-greedy, discounted Thompson sampling, EXP3.S."""

from __future__ import annotations

import math

import torch
from scipy.special import betaincinv
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices.arms import best_available
from bandits_torch.policies.classical.arm_policy import ArmPolicy, Range
from bandits_torch.policies.classical.confidence_bounds import checked_discount
from bandits_torch.policies.policy import Choice, Observation, Pending
from bandits_torch.streams import ReplicateStreams

_LIKELIHOODS = ("auto", "bernoulli", "gaussian")


class RandomisedArmPolicy(ArmPolicy):
    """An ``ArmPolicy`` with random streams of its own, one for each replicate.

    Args:
        num_arms, replicates, reward_range, device: as for ``ArmPolicy``.
        seed, first_replicate: of the draws, and the number of the first replicate.
    """

    _parts = ("_streams",)

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        reward_range: Range | None = None,
        seed: int = 0,
        first_replicate: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(num_arms, replicates, reward_range=reward_range, device=device)
        self._streams = ReplicateStreams(
            seed, self.replicates, purpose="policy", first=first_replicate, device=self.device
        )

    def _mask(self, available: Tensor | None) -> Tensor:
        """The available arms, (S, N) booleans."""
        if available is None:
            return torch.ones(self.replicates, self.num_arms, dtype=torch.bool, device=self.device)
        self.choices.check_available(available)
        return available.expand(self.replicates, self.num_arms)


class EpsilonGreedy(RandomisedArmPolicy):
    """With probability epsilon an available arm at random, else the one of the largest mean Q_i.

    Q_i <- Q_i + a (reward - Q_i) at a pull of arm i, the exponentially weighted mean of its rewards, which begins with
    the first of them. It needs no scale of rewards.

    Args:
        num_arms, replicates, seed, first_replicate, device: as for ``RandomisedArmPolicy``.
        epsilon: in [0, 1].
        step_size: a, in (0, 1].

    Source: Sutton & Barto 2018, sections 2.2 and 2.5. Raises ValueError for numbers out of range.
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        epsilon: float = 0.1,
        step_size: float = 0.1,
        seed: int = 0,
        first_replicate: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.epsilon = validation.share("epsilon", epsilon)
        self.step_size = validation.positive("step_size", step_size)
        validation.require(step_size <= 1, "step_size", step_size, "a number in (0, 1]")
        super().__init__(num_arms, replicates, seed=seed, first_replicate=first_replicate, device=device)

    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The arm of the largest mean, or any."""
        mask = self._mask(available)
        explores, which = self._streams.uniform(2).unbind(-1)
        _, greedy = best_available(self._scores().mT, mask)
        rank = (which * mask.sum(-1)).long()
        drawn = (mask.cumsum(-1) > rank.unsqueeze(-1)).long().argmax(-1)
        return Choice(torch.where(explores < self.epsilon, drawn, greedy))

    def _expect(self, pending: Pending, time: float) -> None:
        """Count a pull of the arm (S,); Q stays, or is the mean of all where there is none."""
        count, Q = self._numbers["count"], self._numbers["sum"]
        at, pulled = pending.arm.unsqueeze(-1), count > 0
        everywhere = (Q * pulled).sum(-1, keepdim=True) / pulled.sum(-1, keepdim=True).clamp_min(1)
        Q.scatter_(-1, at, torch.where(pulled.gather(-1, at), Q.gather(-1, at), everywhere))
        count.scatter_add_(-1, at, torch.ones_like(everywhere))

    def _update(self, rows: Tensor, arm: Tensor, reward: Tensor) -> None:
        mean, count = self._numbers["sum"][rows, arm], self._numbers["count"][rows, arm]
        step = torch.where(count == 0, 1.0, self.step_size)
        self._numbers["sum"][rows, arm] = mean + step * (reward - mean)  # Q, in place of a sum
        self._numbers["count"][rows, arm] += 1

    def _index(self) -> Tensor:
        return self._numbers["sum"]


class DiscountedThompsonSampling(RandomisedArmPolicy):
    """A mean drawn for each arm from its posterior, in which what is t steps old counts gamma^t; the largest is played.

    With discounted counts N_i and sums S_i of rewards: for rewards of 0 and 1 the draw is from
    Beta(1 + S_i, 1 + N_i - S_i); for others from the normal posterior of a mean with prior N(m, v) and noise of
    variance s^2, precision 1/v + N_i/s^2 and mean (m/v + S_i/s^2) / precision. m and v are mean and variance of all
    rewards so far, and s^2 too is v where ``noise_variance`` is not given: an upper bound on it.

    Args:
        num_arms, replicates, seed, first_replicate, device: as for ``RandomisedArmPolicy``.
        discount: gamma, in (0, 1].
        likelihood: ``"bernoulli"``, ``"gaussian"``, or ``"auto"``: the former in replicates that have seen nothing but
            0 and 1, the latter in the others.
        noise_variance: s^2, a number or (S,), of the Gaussian likelihood; None for unknown.

    Source: Raj & Kalyani 2017 (Beta), Qi, Wang & Zhu 2023 (Gaussian), with the prior fitted as said. Raises ValueError
    for numbers out of range, and with ``"bernoulli"`` for a reward outside [0, 1].
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        discount: float,
        likelihood: str = "auto",
        noise_variance: float | Tensor | None = None,
        seed: int = 0,
        first_replicate: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.discount = checked_discount(discount)
        validation.require(likelihood in _LIKELIHOODS, "likelihood", likelihood, f"one of {_LIKELIHOODS}")
        self.likelihood = likelihood
        super().__init__(num_arms, replicates, seed=seed, first_replicate=first_replicate, device=device)
        self.noise_variance = None if noise_variance is None else self._checked_noise(noise_variance)

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """Rewards of 0 and 1 have one."""
        return "its rewards lie in [0, 1]" if self.likelihood == "bernoulli" else super().needs_unit

    def _checked_noise(self, noise_variance: float | Tensor) -> Tensor:
        noise = validation.numbers("noise_variance", noise_variance, self._numbers["clock"])
        for value in noise.flatten().tolist():
            validation.positive("noise_variance", value)
        fits = noise.shape in ((), (1,), (self.replicates,))
        validation.shape_is("noise_variance", noise, fits, f"() or ({self.replicates},)")
        return noise.expand(self.replicates)

    def _initial(self) -> dict[str, Tensor]:
        binary = self._zeros() + (self.likelihood != "gaussian")
        return super()._initial() | {"mean": self._zeros(), "squares": self._zeros(), "binary": binary}

    def _expect(self, pending: Pending, time: float) -> None:
        """Draws are independent, and pending pulls count for nothing but that an arm is not the first any more."""
        if bool((self._numbers["count"].gather(-1, pending.arm.unsqueeze(-1)) == 0).any()):
            super()._expect(pending, time)

    def _check(self, observation: Observation) -> None:
        if self.likelihood == "bernoulli":
            least, most = torch.aminmax(observation.reward)
            within = bool(least >= 0) and bool(most <= 1)
            validation.require(within, "reward", observation.reward, "in [0, 1], with likelihood='bernoulli'")

    def _update(self, rows: Tensor, arm: Tensor, reward: Tensor) -> None:
        numbers = self._numbers
        for name in ("count", "sum"):
            numbers[name] *= self.discount
        super()._update(rows, arm, reward)
        if self.likelihood == "auto":
            numbers["binary"] *= (reward == 0) | (reward == 1)
        off = reward - numbers["mean"]  # Welford's recursion
        numbers["mean"] += off / numbers["clock"]
        numbers["squares"] += off * (reward - numbers["mean"])

    def _index(self) -> Tensor:
        numbers = self._numbers
        u = self._streams.uniform(self.num_arms)
        variance = (numbers["squares"] / numbers["clock"]).unsqueeze(-1)
        noise = variance if self.noise_variance is None else self.noise_variance.unsqueeze(-1)
        precision = 1 / variance + numbers["count"] / noise
        center = (numbers["mean"].unsqueeze(-1) / variance + numbers["sum"] / noise) / precision
        normal = center + torch.special.ndtri(u.clamp(1e-16, 1 - 1e-16)) / precision.sqrt()
        binary = numbers["binary"].bool().unsqueeze(-1)
        if not bool(binary.any()):
            return normal
        wins = 1 + numbers["sum"]
        losses = 1 + (numbers["count"] - numbers["sum"]).clamp_min(0)
        beta = torch.from_numpy(betaincinv(*(x.cpu().numpy() for x in (wins, losses, u)))).to(normal)
        return torch.where(binary, beta, normal)


class EXP3S(RandomisedArmPolicy):
    """Draws from p_i = (1 - g) w_i / sum w + g / K, and learns w_i <- w_i exp(g x_i / (p_i K)) + (e a / K) sum w.

    x_i is the reward in [0, 1] of the arm pulled, 0 for the others; K arms. What is not available is left out of the
    sums and of K. With g = min(1, sqrt(K (Y ln(K T) + e) / ((e - 1) T))) and a = 1/T the regret against every sequence
    of arms with at most Y - 1 changes is at most 2 sqrt(e - 1) sqrt(K T (Y ln(K T) + e)). At K = 100 and T = 500 that
    g is 1, and the policy plays at random.

    Args:
        num_arms, replicates, reward_range, seed, first_replicate, device: as for ``RandomisedArmPolicy``.
        horizon: T.
        changes: Y, of the default of g.
        exploration: g, in (0, 1]; None for the default.
        sharing: a > 0; None for 1/T.

    Source: Auer, Cesa-Bianchi, Freund & Schapire 2002, section 8 and Corollary 8.2. Raises ValueError for numbers out
    of range.
    """

    needed = ("probability",)

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        horizon: int,
        changes: float = 1.0,
        exploration: float | None = None,
        sharing: float | None = None,
        reward_range: Range | None = None,
        seed: int = 0,
        first_replicate: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        T, Y = validation.positive_integer("horizon", horizon), validation.positive("changes", changes)
        K = validation.positive_integer("num_arms", num_arms)
        tuned = min(1.0, math.sqrt(K * (Y * math.log(K * T) + math.e) / ((math.e - 1) * T)))
        self.exploration = validation.positive("exploration", tuned if exploration is None else exploration)
        validation.require(self.exploration <= 1, "exploration", exploration, "a number in (0, 1]")
        self.sharing = validation.positive("sharing", 1 / T if sharing is None else sharing)
        super().__init__(
            num_arms,
            replicates,
            reward_range=reward_range,
            seed=seed,
            first_replicate=first_replicate,
            device=device,
        )

    def _initial(self) -> dict[str, Tensor]:
        return super()._initial() | {"weight": self._zeros(self.num_arms) + 1 / self.num_arms}

    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """An arm drawn; its probability is ``why["probability"]``, (S,)."""
        mask = self._mask(available)
        weight = self._numbers["weight"] * mask
        share = weight / weight.sum(-1, keepdim=True)
        p = (1 - self.exploration) * share + self.exploration * mask / mask.sum(-1, keepdim=True)
        reached = p.cumsum(-1) > (self._streams.uniform() * p.sum(-1)).unsqueeze(-1)
        arm = (reached & mask).long().argmax(-1)
        return Choice(arm, {"probability": p.gather(-1, arm.unsqueeze(-1)).squeeze(-1)})

    def learn(self, observation: Observation) -> None:
        """Raise the weight of the arm by its reward over its probability."""
        super().learn(observation)
        rows = torch.arange(self.replicates, device=self.device)
        weight, p = self._numbers["weight"], observation.why["probability"].to(self._numbers["weight"])
        gain = self.exploration * self._scaled(observation.reward.to(weight)) / (p * self.num_arms)
        shared = math.e * self.sharing / self.num_arms * weight.sum(-1, keepdim=True)
        weight[rows, observation.arm] *= gain.exp()
        weight = weight + shared
        self._numbers["weight"] = weight / weight.sum(-1, keepdim=True)  # as good, and finite for ever

    def _index(self) -> Tensor:
        return self._numbers["weight"]

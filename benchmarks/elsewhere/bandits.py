"""The bandits of ``river.bandit.envs``, played by our policies and by those of river, mabwiser and bayesianbandits.

Policies know the number of arms alone; those with a setting are played with the settings that their documentation
shows. A step of bayesianbandits' over 100 arms takes some forty milliseconds: there it is not played.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from river import bandit, preprocessing, proba, stats, utils
from river.bandit.envs import CandyCaneContest, KArmedTestbed

from bandits_torch import recipes
from bandits_torch.policies import Observation, Policy
from benchmarks.pages import say

ENVIRONMENTS: dict[str, tuple[Any, int, int]] = {  # environment, arms, steps
    "candy-cane": (CandyCaneContest, 100, CandyCaneContest.n_steps),
    "testbed": (KArmedTestbed, 10, KArmedTestbed.n_steps),
}
SLOW = ("candy-cane", "bayesianbandits")  # an environment, and whose policies are too slow for it


class Player(Protocol):
    """A policy of one replicate."""

    def pull(self) -> int:
        """The arm to play."""

    def update(self, arm: int, reward: float) -> None:
        """Learn its reward."""


class _River:
    def __init__(self, policy: Any, arms: int) -> None:
        self.policy, self.arms = policy, range(arms)

    def pull(self) -> int:
        return self.policy.pull(self.arms)

    def update(self, arm: int, reward: float) -> None:
        self.policy.update(arm, reward)


class _Mabwiser:
    def __init__(self, learning: Any, arms: int, seed: int) -> None:
        from mabwiser.mab import MAB

        self.mab, self.arms = MAB(list(range(arms)), learning, seed=seed), arms
        self.seen = 0

    def pull(self) -> int:
        return self.mab.predict() if self.seen >= self.arms else self.seen  # every arm once, to be fitted

    def update(self, arm: int, reward: float) -> None:
        (self.mab.partial_fit if self.seen else self.mab.fit)([arm], [reward])
        self.seen += 1


class _BayesianBandits:
    """Thompson sampling over normal arms of unknown noise; an arm forgets by the rate given when it is observed."""

    def __init__(self, arms: int, seed: int, rate: float | None) -> None:
        import bayesianbandits as theirs

        forgetting = None if rate is None else theirs.StabilizedForgetting(rate)
        normal = partial(theirs.NormalInverseGammaRegressor, forgetting=forgetting)
        learners = [theirs.Arm(i, learner=normal()) for i in range(arms)]
        self.agent = theirs.Agent(learners, theirs.ThompsonSampling(), random_seed=seed)

    def pull(self) -> int:
        return self.agent.pull()[0]

    def update(self, arm: int, reward: float) -> None:
        self.agent.select_for_update(arm).update(np.array([reward]))


def _rivals(arms: int, binary: bool) -> dict[str, Callable[[int], Player]]:
    """By name, built from a seed."""
    from mabwiser.mab import LearningPolicy

    def river(make: Callable[[int], Any]) -> Callable[[int], Player]:
        return lambda seed: _River(make(seed), arms)

    def mabwiser(learning: Any) -> Callable[[int], Player]:
        return lambda seed: _Mabwiser(learning, arms, seed)

    scaler = preprocessing.TargetStandardScaler
    players: dict[str, Callable[[int], Player]] = {
        "river UCB, delta 1": river(lambda s: bandit.UCB(1, reward_scaler=scaler(None), seed=s)),
        "river UCB, delta 100": river(lambda s: bandit.UCB(100, reward_scaler=scaler(None), seed=s)),
        "river epsilon-greedy .1": river(lambda s: bandit.EpsilonGreedy(0.1, seed=s)),
        "river epsilon-greedy .1, mean of 50": river(
            lambda s: bandit.EpsilonGreedy(0.1, reward_obj=utils.Rolling(stats.Mean(), 50), seed=s)
        ),
        "river epsilon-greedy .1, weighted mean": river(
            lambda s: bandit.EpsilonGreedy(0.1, reward_obj=stats.EWMean(0.1), seed=s)
        ),
        "river Thompson, normal": river(
            lambda s: bandit.ThompsonSampling(reward_obj=proba.Gaussian(), burn_in=2, seed=s)
        ),
        "river Exp3 .1": river(lambda s: bandit.Exp3(0.1, seed=s)),
        "mabwiser UCB1 1.25": mabwiser(LearningPolicy.UCB1(1.25)),
        "mabwiser epsilon-greedy .15": mabwiser(LearningPolicy.EpsilonGreedy(0.15)),
        "bayesianbandits Thompson": lambda seed: _BayesianBandits(arms, seed, None),
        "bayesianbandits Thompson, forgets .99": lambda seed: _BayesianBandits(arms, seed, 0.99),
    }
    if binary:
        players["river Thompson, beta"] = river(
            lambda s: bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=s)
        )
        players["mabwiser Thompson, beta"] = mabwiser(LearningPolicy.ThompsonSampling())
    return players


OURS = ("auto", "ucb1", "epsilon_greedy", "discounted_ts", "sliding_window_ucb", "random")


def _ours(name: str, arms: int, horizon: int, replicates: int) -> Policy:
    options: dict[str, Any] = {"horizon": horizon} if name in ("discounted_ts", "sliding_window_ucb") else {}
    return getattr(recipes, name)(arms, replicates=replicates, seed=0, **options)


def race(name: str, replicates: int) -> pd.DataFrame:
    """Sum of the rewards of every policy and replicate of an environment."""
    _, arms, steps = ENVIRONMENTS[name]
    ours = ((f"ours: {policy}", _ours(policy, arms, steps, replicates)) for policy in OURS)
    rivals = _rivals(arms, name == "candy-cane").items()
    theirs = {policy: build for policy, build in rivals if (name, policy.split()[0]) != SLOW}
    rows = _played(name, ours, theirs, range(replicates))
    return pd.DataFrame(rows, columns=["problem", "policy", "replicate", "reward"])


FRESH = range(2000, 2010)  # environments that chose nothing (PROTOCOL.md)


def race_fresh(name: str) -> pd.DataFrame:
    """The final environments of PROTOCOL.md: ``auto``, wider, given what a beta prior says, and who was ahead of it."""
    arms, binary = ENVIRONMENTS[name][1], name == "candy-cane"
    options_of: dict[str, dict[str, Any]] = {"auto": {}, "auto, width 2": {"width": 2.0}}
    ahead = ["river UCB, delta 1"]
    if binary:
        spread = torch.eye(arms, dtype=torch.float64) / 12
        beta = {"kernel": spread, "noise_variance": 0.2, "prior_mean": 0.5}
        options_of["auto, given mean, spread and noise"] = beta
        ahead.append("mabwiser Thompson, beta")
    auto = partial(recipes.auto, arms, replicates=len(FRESH), seed=0)
    ours = ((policy, auto(**options)) for policy, options in options_of.items())
    rivals = _rivals(arms, binary)
    rows = _played(name, ours, {policy: rivals[policy] for policy in ahead}, FRESH)
    return pd.DataFrame(rows, columns=["problem", "policy", "environment", "total"])


def _played(
    name: str,
    ours: Iterable[tuple[str, Policy]],
    theirs: dict[str, Callable[[int], Player]],
    seeds: Sequence[int],
) -> list[tuple[str, str, int, float]]:
    """Environment, policy, seed and the sum of its rewards; ours play all seeds at once, theirs one by one."""
    environment, _, steps = ENVIRONMENTS[name]
    totals = chain(
        ((policy, _play_batch(built, environment, steps, seeds)) for policy, built in ours),
        (
            (policy, [_play(build(k), environment, steps, k) for k in seeds])
            for policy, build in theirs.items()
        ),
    )
    rows = []
    for policy, earned in totals:
        rows += [(name, policy, k, total) for k, total in zip(seeds, earned, strict=True)]
        say(f"{name} {policy}: {np.mean(earned):.1f}")
    return rows


def _play(player: Player, environment: Any, steps: int, seed: int) -> float:
    env, total = environment(), 0.0
    env.reset(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            arm = player.pull()
            reward = env.step(arm)[1]
            player.update(arm, reward)
            total += reward
    return total


def _play_batch(policy: Policy, environment: Any, steps: int, seeds: Sequence[int]) -> list[float]:
    envs, totals = [environment() for _ in seeds], np.zeros(len(seeds))
    for k, env in zip(seeds, envs, strict=True):
        env.reset(seed=k)
    for step in range(1, steps + 1):
        choice = policy.choose(step)
        rewards = np.array([env.step(int(arm))[1] for env, arm in zip(envs, choice.arm, strict=True)])
        policy.learn(Observation(step, choice.arm, torch.as_tensor(rewards), choice.why))
        totals += rewards
    return totals.tolist()

"""The race against a dense Gaussian process that is factored anew at every step, side by side in one process."""

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import Policy, make, recipes
from bandits_torch.arm_context import mask_of
from bandits_torch.policies import Choice, Observation
from bandits_torch.policies.wrapping import WrappingPolicy
from bandits_torch.problems import ContextualGPDraws
from bandits_torch.streams import ReplicateStreams
from benchmarks.pages import say

WIDTH, WINDOW, STALE, DRIFT = 2.0, 400, 0.01, 0.02
DENSE, WINDOWED, WHOLE = "dense refit", f"ours, window {WINDOW}", "ours, all held"
DROPPED, LISTED = f"ours, stale {STALE}", "ours, contexts listed"
BLIND, RANDOM = "blind to the context", "random"
PROBLEMS = {"fixed": 0.0, "drifting": DRIFT}
TIMED = 50  # last steps of each tenth, whose times count


@dataclass(frozen=True)
class Size:
    """Steps, seeds of the problem, and how often the dense refit is asked: see ``race``."""

    horizon: int
    seeds: int
    every: int = 1

    def asks(self, step: int) -> bool:
        """Whether the dense refit chooses by itself at this step."""
        return step % self.every == 0 or step > self.horizon - TIMED


class DenseRefit(Policy):
    """CGP-UCB by the textbook: all data, one Cholesky factor anew at every step, O(t^3)."""

    def __init__(self, arms: Tensor, kernel: Kernel, noise_variance: float, width: float) -> None:
        self.arms, self.kernel, self.noise, self.width = arms, kernel, noise_variance, width
        self.replicates, self.num_arms = 1, len(arms)
        self.inputs, self.rewards = torch.zeros(0, 0).double(), torch.zeros(0).double()

    @torch.no_grad()
    def choose(self, time: float, available: Any = None) -> Choice:
        """By the formulas of Rasmussen & Williams (2006), equations 2.25-2.26."""
        given = torch.cat([available.context, torch.tensor([time]).double()])
        rows = torch.cat([self.arms, given.expand(len(self.arms), -1)], -1)
        mean, variance = torch.zeros(len(rows)).double(), self.kernel(rows, diag=True)
        if len(self.rewards):
            K = self.kernel(self.inputs).to_dense()
            factor = torch.linalg.cholesky(K + self.noise * torch.eye(len(K)).double())
            cross = torch.linalg.solve_triangular(
                factor, self.kernel(self.inputs, rows).to_dense(), upper=False
            )
            whitened = torch.linalg.solve_triangular(factor, self.rewards.unsqueeze(-1), upper=False)
            mean, variance = (cross.T @ whitened).squeeze(-1), variance - cross.square().sum(0)
        arm = (mean + self.width * variance.clamp_min(0).sqrt()).argmax().reshape(1)
        return Choice(arm, {"inputs": rows[arm, :-1]})

    def learn(self, observation: Observation) -> None:
        inputs = observation.why["inputs"]
        inputs = torch.cat([inputs, torch.full_like(inputs[:, :1], observation.time)], -1)
        self.inputs = torch.cat([self.inputs.reshape(-1, inputs.shape[-1]), inputs])
        self.rewards = torch.cat([self.rewards, observation.reward])


class Blind(WrappingPolicy):
    """A policy that is given the mask alone."""

    def __init__(self, policy: Policy) -> None:
        self._around(policy)

    def choose(self, time: float, available: Any = None) -> Choice:
        return self.policy.choose(time, mask_of(available))

    def learn(self, observation: Observation) -> None:
        self.policy.learn(observation)


def policies(problem: ContextualGPDraws, horizon: int, window: int = WINDOW) -> dict[str, Policy]:
    """Who races: ours in several ways, the dense refit with the very same kernel, and two that ignore the context."""
    known = problem.knowledge

    def built(**options: Any) -> Policy:
        return recipes.build("tv_cgp_ucb", problem, replicates=1, horizon=horizon, width=WIDTH, **options)

    whole = built(stale=None)
    kernel: Any = whole.model.kernel
    if known.forgetting_rate == 0:  # inputs without time
        kernel = _Without(kernel)
    ours = {LISTED: built(contexts=problem.contexts), WHOLE: whole}
    if known.forgetting_rate:
        del ours[WHOLE]
        ours |= {DROPPED: built(stale=STALE), WINDOWED: built(window=window)}
    rate = known.forgetting_rate
    blind = recipes.tv_gp_ucb(
        problem.arms, known.kernel, known.noise_variance, forgetting_rate=rate, width=WIDTH
    )
    return ours | {
        DENSE: DenseRefit(problem.arms, kernel, float(known.noise_variance), WIDTH),
        BLIND: Blind(blind),
        RANDOM: recipes.random(problem.arms),
    }


class _Without:
    """A kernel of all inputs but the last, time."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, x1: Tensor, x2: Tensor | None = None, **options: Any) -> Any:
        return self.kernel(x1[..., :-1], None if x2 is None else x2[..., :-1], **options)


def race(kind: str, size: Size, seed: int = 0) -> pd.DataFrame:
    """One row for each policy and tenth of the horizon: regret in it, and the median time of a step at its end.

    All policies take every step in turn. Between the steps at which the dense refit is asked it plays the choice of the
    exact model over all pairs of arm and context, which has the same posterior. ``same``: the share of the steps asked
    at which a policy chose its arm.
    """
    problem, rows = make("contextual-gp", horizon=size.horizon, seed=seed, forgetting_rate=PROBLEMS[kind]), []
    racing = policies(problem, size.horizon, min(WINDOW, size.horizon // 2))
    streams = {name: ReplicateStreams(seed, 1, purpose="noise") for name in racing}
    regret = {name: torch.zeros(size.horizon).double() for name in racing}
    seconds = {name: torch.zeros(size.horizon).double() for name in racing}
    arms = {name: torch.zeros(size.horizon, dtype=torch.long) for name in racing}
    asked = torch.tensor([size.asks(step) for step in range(1, size.horizon + 1)])
    for step in range(1, size.horizon + 1):
        time, available = problem.time(step), problem.available(step)
        expected, listed = problem.expected_rewards(step)[0], Choice(torch.zeros(0))
        for name, policy in racing.items():
            start = perf_counter()
            asks = name != DENSE or size.asks(step)
            choice = policy.choose(time, available) if asks else listed
            listed = choice if name == LISTED else listed
            took = perf_counter() - start
            reward = problem.pull(step, choice.arm, streams[name])
            start = perf_counter()
            policy.learn(Observation(time, choice.arm, reward, choice.why))
            seconds[name][step - 1] = took + perf_counter() - start
            arms[name][step - 1] = choice.arm
            regret[name][step - 1] = expected.max() - expected[choice.arm]
    part = max(1, size.horizon // 10)
    for name in racing:
        for end in range(part, size.horizon + 1, part):
            last = slice(max(0, end - min(part, TIMED)), end)
            seen, same = asked[:end], arms[name][:end] == arms[DENSE][:end]
            own = seconds[name][last][asked[last]] if name == DENSE else seconds[name][last]
            row = {"problem": kind, "seed": seed, "policy": name, "step": end}
            row |= {
                "regret": float(regret[name][end - part : end].sum()),
                "ms": 1e3 * float(own.median()) if len(own) else math.nan,
                "same": float(same[seen].double().mean()),
                "asked": int(seen.sum()),
            }
            rows.append(row)
    say(f"{kind}, seed {seed}: " + ", ".join(f"{n} {float(regret[n].sum()):.1f}" for n in racing))
    return pd.DataFrame(rows)

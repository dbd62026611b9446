"""The same problem from several starts: how policies compare on one stretch after another of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.experiments.regret import random_regret
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.streams import ReplicateStreams

MOST_STARTS = 10
SHORTEST = 50  # steps from a start to the next
Build = Callable[[Problem, int], Policy]


class FromStep(Problem):
    """A problem without the first steps of another: its step 1 is step ``first`` of the other.

    Prior knowledge and clock are those of the other.

    Args:
        problem: the whole, over arms.
        first: a step of it, 1 for all of it.
        horizon: T, how many steps from there.

    Raises ValueError for steps that the problem does not have, and for a problem over the points of a domain.
    """

    def __init__(self, problem: Problem, first: int, horizon: int) -> None:
        validation.instance("problem", problem, Problem, "a Problem")
        validation.require(problem.dim == 0, "problem", type(problem).__name__, "one over arms")
        validation.positive_integer("first", first)
        last = first + validation.positive_integer("horizon", horizon) - 1
        fits = problem.horizon is None or last <= problem.horizon
        validation.require(fits, "horizon", horizon, f"at most the {problem.horizon} steps from {first}")
        self._problem, self._before, self.horizon = problem, first - 1, horizon
        self.arms, self.replicates, self.knowledge = problem.arms, problem.replicates, problem.knowledge
        self.true_prior, self.outcome_names = problem.true_prior, problem.outcome_names

    def expected_rewards(self, step: int) -> Tensor:
        """(replicates, N)."""
        return self._problem.expected_rewards(self._of(step))

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Noise (S,)."""
        return self._problem.noise(self._of(step), arm, streams)

    def score(self, step: int, arm: Tensor, available: Any) -> tuple[Tensor, Tensor]:
        """Expected rewards (S,), and the best there was."""
        return self._problem.score(self._of(step), arm, available)

    def measure(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor | None:
        """Outcomes (S, m)."""
        return self._problem.measure(self._of(step), arm, streams)

    def trace(self, step: int, arm: Tensor) -> dict[str, Tensor | float]:
        """What the record of a run keeps."""
        return self._problem.trace(self._of(step), arm)

    def available(self, step: int) -> Tensor | ArmContext | None:
        """Mask (N,) or (S, N) of the arms that can be pulled."""
        return self._problem.available(self._of(step))

    def time(self, step: int) -> float:
        """The time of the step, by the clock of the other problem."""
        return self._problem.time(self._of(step))

    def _of(self, step: int) -> int:
        self.check_step(step)
        return self._before + step


@dataclass(frozen=True)
class Starts:
    """Regret of policies that were begun anew at several starts.

    Attributes:
        regret: by policy, (K,) mean regret of a step from each start to the next, over the replicates.
        random: (K,) the same, in expectation, for drawing arms at random.
        steps: number of steps from one start to the next; 0 if there are no starts.
    """

    regret: Mapping[str, Tensor]
    random: Tensor
    steps: int

    def of_whole(self, regret: Tensor) -> Tensor:
        """(K,) mean regret per step and replicate on the same stretches, from one play of the whole, (S, T)."""
        K = len(self.random)
        return regret[:, : K * self.steps].mean(0).reshape(K, self.steps).mean(-1)


def starts_of(horizon: int) -> tuple[int, ...]:
    """The first step of each stretch: at most 10 stretches of equal length, of at least 50 steps, in 1, ..., T."""
    count = min(MOST_STARTS, horizon // SHORTEST)
    return tuple(1 + k * (horizon // count) for k in range(count))


def play_starts(
    problem: Problem, policies: Mapping[str, Build], horizon: int, *, seed: int = 0, progress: bool = False
) -> Starts:
    """Play policies, built anew at each start, on stretches of a problem that do not overlap.

    Args:
        problem: its first T steps are cut into stretches (``starts_of``).
        policies: by name, each a function of a problem and its number of steps that builds the policy.
        horizon: T.
        seed: of the noise; start k plays with ``seed`` + k.
        progress: show a bar for each play.

    Cost: about that of playing each policy once for T steps. Raises whatever ``run`` refuses.
    """
    firsts = starts_of(validation.positive_integer("horizon", horizon))
    steps = horizon // len(firsts) if firsts else 0
    regret: dict[str, list[float]] = {name: [] for name in policies}
    by_chance = []
    for k, first in enumerate(firsts):
        stretch = FromStep(problem, first, steps)
        by_chance.append(float(random_regret(stretch, steps).mean()))
        for name, build in policies.items():
            title = f"{name} from step {first}" if progress else False
            history = run(build(stretch, steps), stretch, steps, seed=seed + k, progress=title)
            regret[name].append(float(history.regret.mean()))
    numbers = {name: torch.tensor(values, dtype=torch.float64) for name, values in regret.items()}
    return Starts(numbers, torch.tensor(by_chance, dtype=torch.float64), steps)

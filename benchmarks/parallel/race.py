"""The race with one question open and with eight, and the regret that waiting costs anyone (``floor``)."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bandits_torch import Domain, make, recipes
from bandits_torch.experiments import random_regret
from bandits_torch.policies import Observation, Pending, Policy
from bandits_torch.problems import ContinuousProblem, Knowledge, Problem
from bandits_torch.streams import ReplicateStreams
from benchmarks.pages import say

_FEATURES, _LENGTHSCALE, _NOISE, _RATE, _SIDE = 256, 0.2, 0.1, 0.03, 64


class PointDraws(ContinuousProblem):
    """f(x, t) = phi(x)^T w(t) on the unit square, phi random Fourier features of a squared exponential kernel;
    ``"gp"``: w stays, ``"switching"``: it is drawn anew four times, ``"tv-gp"``: an autoregression of rate ``drift``.
    """

    functions_differ = True

    def __init__(self, kind: str, horizon: int, replicates: int, seed: int, drift: float = _RATE) -> None:
        domain = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
        super().__init__(domain, replicates, _NOISE, horizon)
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self._frequencies = normal(replicates, 2, _FEATURES // 2) / _LENGTHSCALE
        weights = [normal(replicates, _FEATURES)]
        for step in range(1, horizon):
            fresh = normal(replicates, _FEATURES)
            if kind == "gp":
                weights.append(weights[0])
            elif kind == "switching":
                weights.append(fresh if step % math.ceil(horizon / 5) == 0 else weights[-1])
            else:
                weights.append(math.sqrt(1 - drift) * weights[-1] + math.sqrt(drift) * fresh)
        self._weights = torch.stack(weights)
        line = torch.linspace(0, 1, _SIDE).double()
        self.grid = torch.cartesian_prod(line, line)
        self._grid = self._phi(self.grid.unsqueeze(1))  # one row for each point and replicate
        kernel = RBFKernel().double()
        kernel.lengthscale = _LENGTHSCALE
        rate = {"gp": 0.0, "switching": 5 / horizon, "tv-gp": drift}[kind]
        self.knowledge = Knowledge(kernel=kernel, noise_variance=_NOISE**2, forgetting_rate=rate)

    def expected(self, step: int, X: Tensor) -> Tensor:
        return (self._phi(X) * self._weights[step - 1]).sum(-1)

    def best(self, step: int) -> Tensor:
        return self.on_grid(step).amax(-1)

    def on_grid(self, step: int) -> Tensor:
        """f_step at the points of the grid, (S, n)."""
        return (self._grid * self._weights[step - 1]).sum(-1).mT

    def _phi(self, X: Tensor) -> Tensor:
        angle = (X.unsqueeze(-2) @ self._frequencies).squeeze(-2)
        return torch.cat([angle.cos(), angle.sin()], -1) / math.sqrt(_FEATURES // 2)


Q = 8
NEAR = 1e-2  # of the unit square: points nearer than this are one
KINDS = ("gp", "switching", "tv-gp")
POLICIES: dict[str, dict[str, dict[str, Any]]] = {
    "gp": {"gp_ucb": {}, "gp_ucb, width 2": {"width": 2.0}, "gp_ts": {"width": 1.0}, "auto": {}},
    "switching": {
        "sw_gp_ucb": {"window": 40, "width": 2.0},
        "tv_gp_ucb": {"width": 2.0},
        "et_gp_ucb": {"width": 2.0},
        "auto": {},
    },
    "tv-gp": {"tv_gp_ucb": {"width": 2.0}, "sw_gp_ucb": {"window": 40, "width": 2.0}, "auto": {}},
}
OVER_POINTS, LONG = {"gp_ucb", "tv_gp_ucb", "auto"}, {"gp_ucb", "gp_ts"}  # the others take as long again
LEFT_OUT: dict[str, set[str]] = {
    "arms": set(),
    "points": {"8 workers", "8 rolling, not counted"},
    "arms, long": {"8 workers", "8 rolling, not counted", "8 in batches, not counted"},
}
MODES = {
    "one at a time": (1, "rolling", True),
    "8 rolling": (Q, "rolling", True),
    "8 in batches": (Q, "batches", True),
    "8 workers": (Q, "workers", True),
    "8 rolling, not counted": (Q, "rolling", False),
    "8 in batches, not counted": (Q, "batches", False),
}


@dataclass(frozen=True)
class Size:
    """Steps, replicates and seed of a race over arms or points."""

    horizon: int
    replicates: int
    seed: int = 100


SIZES = {"arms": Size(400, 16), "arms, long": Size(3000, 8), "points": Size(80, 3)}


def problem_of(kind: str, over: str, size: Size) -> Problem:
    """Over ``"arms"`` or ``"points"``."""
    if over == "points":
        return PointDraws(kind, size.horizon, size.replicates, size.seed)
    return make(kind, horizon=size.horizon, replicates=size.replicates, seed=size.seed)


@cache
def random_pull(kind: str, over: str, size: Size) -> float:
    """Mean regret of an arm or a point drawn uniformly at random, over all steps and replicates."""
    return float(random_regret(problem_of(kind, over, size), size.horizon).mean())


def policy_of(name: str, options: dict[str, Any], problem: Problem, over: str, size: Size) -> Policy:
    if over == "points":
        search: dict[str, Any] = {"num_restarts": 1, "raw_samples": 64, "options": {"maxiter": 10}}
        search |= {"initial": 6} if name == "auto" else {}
        options = options | {"search": search}
    recipe = name.partition(",")[0]
    return recipes.build(
        recipe, problem, replicates=size.replicates, horizon=size.horizon, seed=size.seed, **options
    )


def play(
    policy: Policy, problem: Problem, size: Size, q: int, mode: str, counts: bool
) -> tuple[Tensor, Tensor]:
    """Regret of each replicate, (S,), and the share of its questions of which another that was open asked the same.

    Rolling: a question each step, q open, the oldest answered first. In batches: q questions of one moment, answered
    last first, and the next batch q steps later; workers: one step later. Every policy gets the same number of rewards.
    """
    streams = ReplicateStreams(size.seed, size.replicates, purpose="noise", dtype=torch.float64)
    regret, twice = torch.zeros(size.replicates).double(), torch.zeros(size.replicates).double()
    opened: list[tuple[Pending, Tensor]] = []

    def ask(step: int, count: int) -> None:
        time = problem.time(step)
        pending = [one for one, _ in opened] if counts else []
        asked = [count] if counts else [1] * count
        chosen = [policy.choose_many(time, k, problem.available(step), pending) for k in asked]
        for choice in chain(*chosen):
            same = [_same(choice.arm, one.arm) for one, _ in opened]
            if same:
                twice.add_(torch.stack(same).any(0))
            value, best = problem.score(step, choice.arm, None)
            regret.add_(best - value)
            reward = problem.pull(step, choice.arm, streams)
            opened.append((Pending(time, choice.arm, choice.why), reward))

    def tell(which: int) -> None:
        one, reward = opened.pop(which)
        policy.learn(Observation(one.time, one.arm, reward, one.why))

    if mode == "rolling":
        for step in range(1, size.horizon + 1):
            ask(step, 1)
            if len(opened) == q:
                tell(0)
    else:
        for number, step in enumerate(range(1, size.horizon + 1, q), 1):
            ask(number if mode == "workers" else step, q)
            while opened:
                tell(-1)
    return regret, twice / size.horizon


def _same(one: Tensor, other: Tensor) -> Tensor:
    return one == other if one.dim() == 1 else (one - other).norm(dim=-1) < NEAR


def race(kind: str, over: str, size: Size, modes: Collection[str] = MODES) -> pd.DataFrame:
    """One row for each policy, mode and replicate; over points and at length some policies and modes are left out."""
    rows, problem = [], problem_of(kind, over, size)  # one: it keeps the best value of each step
    for name, options in POLICIES[kind].items():
        if (over == "points" and name not in OVER_POINTS) or (over == "arms, long" and name not in LONG):
            continue
        for mode in modes:
            q, order, counts = MODES[mode]
            if mode in LEFT_OUT[over] or (kind == "gp" and mode == "8 workers"):
                continue
            policy = policy_of(name, options, problem, over, size)
            regret, twice = play(policy, problem, size, q, order, counts)
            say(f"{over} {kind} {name} {mode}: regret {regret.mean():.2f}, duplicates {twice.mean():.2f}")
            played = {"over": over, "problem": kind, "policy": name, "mode": mode}
            played |= {"replicate": range(len(regret)), "regret": regret.numpy(), "twice": twice.numpy()}
            rows.append(pd.DataFrame(played))
    return pd.concat(rows, ignore_index=True)


@cache
def floor(kind: str, over: str, size: Size, mode: str) -> Tensor:
    """Regret of each replicate, (S,), that no policy is below in expectation, whatever it was told so far.

    A question of step t can use the answers to questions asked ``late`` steps before. The player here knows all of f_{t
    - late} and plays its maximum, which is that of the mean of f_t given it (tv-gp is a Markov process). Where f was
    drawn anew in between, or nothing was answered yet, the mean regret over all choices counts.
    """
    problem, late = problem_of(kind, over, size), Q if mode.startswith(f"{Q} rolling") else 1
    asked = 1 if late == Q or MODES[mode][0] == 1 else Q  # questions of a step
    steps = range(1, size.horizon + 1)
    if mode.startswith(f"{Q} in batches"):
        steps, late = range(1, size.horizon + 1, Q), Q
    elif mode == f"{Q} workers":
        steps = range(1, size.horizon // Q + 1)
    drifts = kind == "tv-gp"
    total = torch.zeros(size.replicates).double()
    for step in steps:
        values = _values(problem, step)
        played, known = values.mean(-1), _values(problem, step - late) if step > late else None
        if known is not None and (drifts or torch.equal(known, values)):
            played = values.gather(-1, known.argmax(-1, keepdim=True)).squeeze(-1)
        total += asked * (values.amax(-1) - played)
    return total


def _values(problem: Problem, step: int) -> Tensor:
    """f_step of all arms, or of the points of a grid, (S, N)."""
    if isinstance(problem, PointDraws):
        return problem.on_grid(step)
    values = problem.expected_rewards(step)
    return values.expand(problem.replicates, -1)

"""Seconds of BKB, batch BKB and the exact posterior, and the bytes that a step of each must move."""

from __future__ import annotations

from time import perf_counter

import pandas as pd
import torch
from torch import Tensor

from bandits_torch import loop, recipes
from bandits_torch.history import History
from bandits_torch.models import ArmGP
from bandits_torch.problems import GPDraws, Problem
from bandits_torch.problems.many_arms import GridDraws
from bandits_torch.theory import BKBWidth
from benchmarks.speed.measuring import copy_seconds

BKB, EXACT = "BKB, a draw a step", "exact, on the pulls of BKB"


def measure(fast: bool, noise: float, noise_variance: float, delta: float) -> pd.DataFrame:
    """Seconds of the policy alone (choose and learn), one thread, in the published settings and an easier one."""
    width, rows = BKBWidth(1.0, noise, delta, form="printed"), []
    for num_arms, horizon, lengthscale in ((1000, 2000, 0.2), (10_000, 500, 0.2), (10_000, 2000, 0.5)):
        problem = (
            GPDraws(num_arms=1000, dim=2, lengthscale=lengthscale, noise_scale=noise, seed=1)
            if num_arms == 1000
            else GridDraws(side=100, dim=2, lengthscale=lengthscale, noise_scale=noise, seed=1)
        )
        arguments = (problem.arms, problem.knowledge.kernel, noise_variance)
        runs = {
            BKB: lambda a=arguments: recipes.bkb(*a, width=width, growth=1.0),
            "kept, C 2": lambda a=arguments: recipes.bkb(*a, width=width, dictionary="kept"),
            "batch BKB, C 5": lambda a=arguments: recipes.bbkb(*a, width=width),
        }
        for name, build in runs.items():
            policy = build()
            history = loop.run(policy, problem, 20 if fast else horizon)
            pulled = len(set(history.arms.flatten().tolist()))
            row = {"arms": num_arms, "steps": horizon, "lengthscale": lengthscale, "arms_pulled": pulled}
            m, draws = int(policy.model.dictionary_size), int(policy.model.draws)
            watched = history.trace.get("arms_scored")
            read = (
                num_arms
                if watched is None
                else float(watched.double().mean()) + 2 * num_arms * draws / horizon
            )
            found = {name: (float(history.seconds.sum()), m, 8 * m * (read + 4 * m))}
            if name == BKB:
                seconds = float(exact_seconds(problem, history, noise_variance).sum())
                found[EXACT] = (seconds, pulled, 8 * pulled * (num_arms + pulled))
            for policy_name, (seconds, held, moved) in found.items():
                share = copy_seconds(int(moved), "cpu") * horizon / seconds
                facts = {"seconds": seconds, "held": held, "MB_a_step": moved / 1e6, "share_of_copy": share}
                rows.append({**row, "policy": policy_name, **facts})
                print("times:", *rows[-1].values(), flush=True)
    return pd.DataFrame(rows)


def exact_seconds(problem: Problem, history: History, noise_variance: float) -> Tensor:
    """Seconds of every step of the exact posterior in its factor form, fed the pulls of another run."""
    model = ArmGP(problem.arms, problem.knowledge.kernel, noise_variance, form="factor")
    seconds = []
    for arm, reward in zip(history.arms.flatten(), history.rewards.flatten(), strict=True):
        start = perf_counter()
        mean, variance = model.marginals()
        (mean + 2 * variance.sqrt()).argmax()
        model.observe_arms(arm, reward)
        seconds.append(perf_counter() - start)
    return torch.tensor(seconds)

"""Ziomek, Adachi & Osborne 2024, Time-varying Gaussian process bandits with unknown prior: figures 2 to 4.

``python -m benchmarks.papers ziomek [toy|intel|sensitivity|speed|report ...] [--data DIR] [--fast] [--out DIR]``

Without a name all parts run (Intel ones need ``--data``, the folder of intel_temperature.npz). Each part writes CSV
files and pictures; RESULTS.md and claims.csv are then written from the CSV files alone.
"""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from bandits_torch import History, Problem, make, problems, recipes, run
from bandits_torch.experiments import per_step, plot_priors, plot_regret, random_regret
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import Observation
from benchmarks.pages import save, say
from benchmarks.papers import _ziomek_page as page
from benchmarks.papers._folders import Job
from benchmarks.papers._folders import run as run_parts

POLICIES = ("pe_gp_ucb", "mle_gp_ucb", "bayes_gp_ucb", "regret_balancing", "known_prior_gp_ucb", "random")
RIVALS = POLICIES[:4]
REPLICATES, HORIZON = 30, 500
_ROWS = 100  # steps per policy kept in a CSV

# One setting at a time is changed from the defaults; "policy." marks an option of the recipes.
TOY_SETTINGS: dict[str, Sequence[Any]] = {
    "hill_width": (0.005, 0.01, 0.015, 0.02, 0.03),
    "noise_scale": (0.01, 0.05, 0.1),
    "squared_lengthscale": (0.05, 0.5, 2.0),
    "amplitude": (0.25, 1.0, 4.0),
    "tall": (2.0, 3.0, 5.0),
    "excluded": (0.02, 0.05, 0.1),
    "true_prior": (1, 2, 6, 10),
    "seed": (0, 1, 2),
    "policy.width": (None, 3.0, 2.0, 1.0),
    "policy.delta": (0.01, 0.1, 0.5),
    "horizon": (200, 500, 1000),
}
INTEL_SETTINGS: dict[str, Sequence[Any]] = {
    "prior_mean": ("grand", "arm", 0.0),
    "noise_scale": (None, 0.1, 2.0),
    "noise_fraction": (0.01, 0.05, 0.2),
    "shrinkage": ("auto", 0.0, 0.5),
    "forgetting_rate": (None, 0.01, 0.1),
    "policy.width": (None, 3.0, 2.0, 1.0, 0.5),
}


def main(arguments: list[str]) -> None:
    parts = {part.__name__: part for part in (toy, intel, sensitivity, speed)}
    file, fast = "intel_temperature.npz", "3 replicates, 40 steps, two values a setting"
    about, report = __doc__.split("\n")[0], lambda job: page.write(job.out)
    run_parts("ziomek", about, arguments, parts, report, fast=fast, need=("intel",), file=file)


def toy(job: Job) -> None:
    """Figure 2: the toy problem. Figure 3: its priors."""
    horizon = 40 if job.fast else HORIZON
    problem = make("hills", replicates=_replicates(job.fast))
    _race(job.out / "figure2", problem, horizon, "hills")
    means = torch.stack([torch.as_tensor(prior.mean) for prior in problem.knowledge.priors or []])
    figure = Figure(figsize=(8, 8), dpi=100, layout="constrained")
    for p, ax in enumerate(figure.subplots(4, 3, sharex=True, sharey=True).flat):
        ax.set_visible(p < len(means))
        if p < len(means):
            ax.plot(problem.arms.squeeze(-1), means[p], linewidth=1.2)
            ax.set_title(f"prior {p}" + (" (the true one)" if p == 2 else ""), fontsize=9)
    figure.savefig(job.out / "figure3.png")


def intel(job: Job) -> None:
    """Figure 4: temperatures of 14 March 2004."""
    problem = make("intel-temperature-priors", data=job.data, replicates=_replicates(job.fast))
    _race(job.out / "figure4", problem, 40 if job.fast else 144, "intel-temperature-priors")


def sensitivity(job: Job) -> None:
    """What changes when the choices that the paper leaves open change, one at a time."""
    _vary(job.out / "sensitivity_toy.csv", "hills", TOY_SETTINGS, HORIZON, job.fast, {})
    if job.data is not None:
        path, data = job.out / "sensitivity_intel.csv", {"data": job.data}
        _vary(path, "intel-temperature-priors", INTEL_SETTINGS, 144, job.fast, data)


def speed(job: Job) -> None:
    """Seconds that PE-GP-UCB takes at the size of the Intel run and with a thousand priors."""
    rows = []
    for priors, arms, steps, replicates in ((13, 46, 144, 30), (1000, 100, 200, 1)):
        steps = 10 if job.fast else steps
        generator = torch.Generator().manual_seed(0)
        tables = torch.randn(priors, arms, 2 * arms, generator=generator, dtype=torch.float64)
        means = torch.randn(priors, arms, generator=generator, dtype=torch.float64)
        both = zip(tables, means, strict=True)
        given = [CandidatePrior(table.cov(), mean, forgetting_rate=0.03) for table, mean in both]
        start = perf_counter()
        policy = recipes.pe_gp_ucb(arms, given, 0.1, horizon=steps, replicates=replicates)
        built = perf_counter() - start
        truth = torch.randn(replicates, arms, generator=generator, dtype=torch.float64)
        start = perf_counter()
        for step in range(1, steps + 1):
            choice = policy.choose(step)
            reward = truth.gather(1, choice.arm.unsqueeze(1)).squeeze(1)
            policy.learn(Observation(step, choice.arm, reward, choice.why))
        sizes = {"priors": priors, "arms": arms, "steps": steps, "replicates": replicates}
        seconds = {"build seconds": built, "run seconds": perf_counter() - start}
        rows.append(sizes | {"threads": torch.get_num_threads()} | seconds)
    save(pd.DataFrame(rows), job.out / "speed.csv", 3)


def _replicates(fast: bool) -> int:
    return 3 if fast else REPLICATES


def _play(name: str, problem: Problem, horizon: int, seed: int = 0, **options: Any) -> History:
    given = {"replicates": problem.replicates, "horizon": horizon, "seed": seed}
    policy = recipes.build(name, problem, **given, **options)
    return run(policy, problem, horizon, seed=seed, capture="auto")


def _race(stem: Path, problem: Problem, horizon: int, name: str) -> None:
    """A figure's regret (a) and priors (b), each as a picture and a CSV, and the totals."""
    histories = {policy: _play(policy, problem, horizon) for policy in POLICIES}
    for history in histories.values():
        history.meta["problem"] = name
    rows = per_step(histories)
    rows["average_regret"] = rows["mean_cumulative_regret"] / rows["step"]
    every = max(1, horizon // _ROWS)
    kept = rows[rows["step"] % every == 0].drop(columns="time")
    save(kept, f"{stem}a.csv")
    plot_regret(histories, random=random_regret(problem, horizon)).figure.savefig(f"{stem}a.png", dpi=100)
    totals = pd.DataFrame({policy: history.regret.sum(-1).numpy() for policy, history in histories.items()})
    save(totals.rename_axis("replicate").reset_index(), f"{stem}_totals.csv")
    names = [prior.name for prior in problem.knowledge.priors or []]
    left = histories["pe_gp_ucb"].trace["surviving"].double().mean(0)  # priors, by step
    steps = range(1, len(left) + 1)
    save(pd.DataFrame({"step": steps, "surviving": left.numpy()}), f"{stem}_survivors.csv", 5)
    of_priors = {policy: history for policy, history in histories.items() if "prior" in history.trace}
    plot_priors(of_priors, names).savefig(f"{stem}b.png", dpi=100)
    shares = {"prior": names}
    for policy, history in of_priors.items():
        played = history.trace["prior"].long().flatten().numpy()
        shares[policy] = np.bincount(played, minlength=len(names)) / len(played)
    save(pd.DataFrame(shares).round(4), f"{stem}b.csv")


def _vary(
    path: Path,
    name: str,
    settings: dict[str, Sequence[Any]],
    horizon: int,
    fast: bool,
    common: dict[str, Any],
) -> None:
    """One row for each value of each setting: mean total regret and its standard error, by policy; equal runs are
    played once."""
    rows, played = [], {}
    defaults = {"seed": 0, **problems.options_of(name)}
    for setting, values in settings.items():
        for value in values[:2] if fast else values:
            ours = not setting.startswith("policy.")
            steps = 40 if fast else value if setting == "horizon" else horizon
            same = setting not in defaults or value in (None, defaults[setting])
            changed = {} if same else {setting: value}
            problem, histories = make(name, replicates=_replicates(fast), **common, **changed), {}
            for policy in RIVALS:
                has, option = recipes.options_of(policy), setting.removeprefix("policy.")
                options = {} if ours or option not in has or value in (None, has[option]) else {option: value}
                key = policy, steps, *changed.items(), *options.items()
                if key not in played:
                    played[key] = _play(policy, problem, steps, changed.get("seed", 0), **options)
                histories[policy] = played[key]
            shown = value if value is not None else "default" if ours else "theorem"
            row: dict[str, Any] = {"setting": setting, "value": shown}
            for policy, history in histories.items():
                row[policy] = history.mean_cumulative_regret
                row[f"{policy} se"] = history.standard_error
            rows.append(row)
            say(" ".join([name, setting, str(shown), *(f"{p} {row[p]:.1f}" for p in RIVALS)]))
            save(pd.DataFrame(rows), path, 5)

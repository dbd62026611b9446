"""Chowdhury & Gopalan 2017, On kernelized multi-armed bandits: figures 1 to 4.

``python -m benchmarks.papers chowdhury [figure1|...|figure4|1a|...|4b|robustness|sensitivity|report ...] [--fast]``

GP-UCB, IGP-UCB, GP-TS, GP-EI and GP-PI with the printed widths, 25 trials of 30 000 steps. Without a name all parts
run; figure 4 needs the folder of intel_temperature.npz and cmu_light.npz, ``--data`` or $BANDITS_TORCH_DATA. Each part
writes CSV files and pictures; RESULTS.md and claims.csv are then written from the CSV files alone.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
import torch

from bandits_torch import History, run
from bandits_torch.experiments import plot_regret
from benchmarks.pages import save, say
from benchmarks.papers import _chowdhury_page as page
from benchmarks.papers._chowdhury_problems import POLICIES, Setting, build, settings, variants
from benchmarks.papers._folders import Job, positive
from benchmarks.papers._folders import run as run_parts

_LATE = 0.1  # share of the steps that "late" regret is over


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)  # a step this short gains nothing from a second thread
    run_parts(
        "chowdhury",
        __doc__.split("\n")[0],
        arguments,
        PARTS | {panel: partial(_panel, panel) for panel in page.PANELS},
        lambda job: page.write(job.out),
        fast="3 trials of 60 steps",
        default=PARTS,
        need=("figure4", "4a", "4b"),
        file="cmu_light.npz",
        more={"--steps": {"type": positive, "help": "at most so many a run; the page says how many"}},
    )


def _trials(job: Job) -> int:
    """Functions, or runs of one function."""
    return 3 if job.fast else 25


def _steps(job: Job, full: int = 30_000) -> int:
    return 60 if job.fast else min(full, job.asked.steps or full)


def _panels(figure: str, job: Job) -> None:
    for side in "ab":
        _panel(f"{figure}{side}", job)


def robustness(job: Job) -> None:
    """The conjecture at figure 3: how regret on Rosenbrock changes with the lengthscale that is taken for known."""
    rows = []
    for lengthscale in (0.05, 0.1, 0.2, 0.4, 0.8):
        setting = settings("3a", _trials(job), None, lengthscale=lengthscale)
        histories = _play(setting, _steps(job, 2000), f"lengthscale {lengthscale:g}")
        rows.append({"lengthscale": lengthscale, "steps": _steps(job, 2000)} | _means(histories))
        save(pd.DataFrame(rows), job.out / "robustness.csv", 5)


def sensitivity(job: Job) -> None:
    """What changes when the choices that the paper leaves open, or misprints, change, one at a time."""
    rows, steps = [], _steps(job, 3000)
    for panel in ("1a", "1b"):
        for words, (setting, options) in variants(panel, _trials(job), steps).items():
            names = ("gp_ucb", "igp_ucb", "gp_ts")
            histories = _play(setting, steps, f"{panel} {words}", names, **options)
            rows.append({"panel": panel, "choice": words, "steps": steps} | _means(histories))
    choices: tuple[dict[str, Any], ...] = ({}, {"prior_mean": "grand"}, {"scaled": False})
    for panel in ("4a", "4b") if job.data else ():
        for options in (*choices, {"whole_days": True}) if panel == "4a" else choices:
            words = ", ".join(f"{key} = {value}" for key, value in options.items()) or "default"
            setting = settings(panel, min(_trials(job), 24), job.data, **options)
            histories = _play(setting, steps, f"{panel} {words}")
            rows.append({"panel": panel, "choice": words, "steps": steps} | _means(histories))
    save(pd.DataFrame(rows), job.out / "sensitivity.csv", 5)


PARTS: dict[str, Callable[[Job], None]] = {
    **{f"figure{number}": partial(_panels, number) for number in "1234"},
    "robustness": robustness,
    "sensitivity": sensitivity,
}


def _panel(panel: str, job: Job) -> None:
    """Picture of a panel, regret of each trial, what was set."""
    setting = settings(panel, _trials(job), job.data)
    histories = _play(setting, _steps(job), f"figure {panel}")
    stem = f"{job.out / 'figure'}{panel}"
    save(trials(histories), f"{stem}_trials.csv")
    save(_facts(setting, histories), f"{stem}_facts.csv", 4)
    functions = setting.problem.expected_rewards(1)
    gap = (functions.amax(-1) - functions.mean(-1)).unsqueeze(-1).expand(-1, _steps(job))
    axes = plot_regret({page.NAMES[name]: h for name, h in histories.items()}, random=gap)
    axes.set_title(f"Figure {panel}. {axes.get_title(loc='left')}", loc="left", fontsize=10, pad=12)
    axes.figure.savefig(f"{stem}.png", dpi=100)


def _play(
    setting: Setting, horizon: int, title: str, names: tuple[str, ...] = POLICIES, **options: Any
) -> dict[str, History]:
    histories = {}
    for name in names:
        taken = options if name in ("igp_ucb", "gp_ts") else {}
        policy = build(name, setting, horizon, **taken)
        history = run(policy, setting.problem, horizon, progress=f"{title}: {name}", capture="auto")
        history.meta["problem"] = setting.words
        regret, error = history.mean_cumulative_regret, history.standard_error
        say(f"{title:34} {name:8} {regret:10.1f} ± {error:.1f}  {history.meta['wall_seconds']:.1f} s")
        histories[name] = history
    return histories


def trials(histories: Mapping[str, History]) -> pd.DataFrame:
    """By policy and trial: the regret of the whole run, and the regret a step in the last tenth of it."""
    parts = []
    for name, history in histories.items():
        late = history.regret[:, -max(1, round(_LATE * history.horizon)) :].mean(-1)
        columns = {"policy": name, "trial": range(history.replicates)}
        columns |= {"regret": history.regret.sum(-1).numpy(), "late": late.numpy()}
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _facts(setting: Setting, histories: Mapping[str, History]) -> pd.DataFrame:
    """A row by policy: sizes, R^2 and B (means over the trials), regret a step of random play, last width, seconds."""
    problem, rows = setting.problem, []
    functions = problem.expected_rewards(1)
    for name, history in histories.items():
        width = history.trace.get("width")
        rows.append(
            {
                "policy": name,
                "setting": setting.words,
                "arms": problem.num_arms,
                "trials": history.replicates,
                "steps": history.horizon,
                "R^2": float(torch.as_tensor(problem.knowledge.noise_variance, dtype=torch.float64).mean()),
                "B": float(torch.as_tensor(problem.knowledge.rkhs_bound, dtype=torch.float64).mean()),
                "random": float((functions.amax(-1) - functions.mean(-1)).mean()),
                "width": float("nan") if width is None else float(width[..., -1].mean()),
                "seconds": history.meta["wall_seconds"],
            }
        )
    return pd.DataFrame(rows)


def _means(histories: Mapping[str, History]) -> dict[str, float]:
    """Mean regret and its standard error by policy."""
    means: dict[str, float] = {}
    for name, history in histories.items():
        means |= {name: history.mean_cumulative_regret, f"{name} se": history.standard_error}
    return means

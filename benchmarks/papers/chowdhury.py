"""Chowdhury & Gopalan 2017, On kernelized multi-armed bandits: figures 1 to 4.

``python -m benchmarks.papers chowdhury [figure1|...|figure4|1a|...|4b|robustness|sensitivity|report ...] [--fast]``

GP-UCB, IGP-UCB, GP-TS, GP-EI and GP-PI with the printed widths, 25 trials of 30 000 steps. Without a name all parts
run; figure 4 needs the folder of the readings, ``--data`` or $BANDITS_TORCH_DATA. Each part writes CSV files and
pictures; RESULTS.md and claims.csv are then written from the CSV files alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bandits_torch import History, run
from bandits_torch.experiments.plots import plot_regret
from benchmarks.pages import save
from benchmarks.papers import _chowdhury_page as page
from benchmarks.papers._chowdhury_problems import POLICIES, Setting, build, settings, variants
from benchmarks.papers._folders import PaperParser, data_folder, results_folder

_LATE = 0.1  # share of the steps that "late" regret is over


@dataclass(frozen=True)
class Job:
    """What a part is run with: where results go, where data are, at what length."""

    out: Path
    data: Path | None
    fast: bool
    most: int | None = None

    @property
    def trials(self) -> int:
        """Functions, or runs of one function."""
        return 3 if self.fast else 25

    def steps(self, full: int = 30_000) -> int:
        """T, at most ``most``."""
        return 60 if self.fast else min(full, self.most or full)


def main(arguments: list[str]) -> None:
    parts = f"{', '.join(PARTS)} or report; default: all"
    parser = PaperParser("chowdhury", __doc__.split("\n")[0], parts, "3 trials of 60 steps")
    parser.add_argument(
        "--data",
        type=Path,
        help="folder of intel_temperature.npz and cmu_light.npz; default: $BANDITS_TORCH_DATA",
    )
    parser.add_argument(
        "--steps", type=int, help="at most so many steps a run; the page says how many there were"
    )
    parser.add_argument("--no-report", action="store_true", help="while other parts are played beside")
    asked = parser.asked(arguments, [*PARTS, *page.PANELS, "report"])
    data = data_folder(asked.data, "cmu_light.npz")
    if asked.steps is not None and asked.steps < 1:
        parser.error(f"--steps must be at least 1, got {asked.steps}")
    if data is None and {"figure4", "4a", "4b"} & set(asked.parts):
        parser.error("figure 4 needs --data or $BANDITS_TORCH_DATA")
    job = Job(results_folder("chowdhury", asked.fast, asked.out), data, asked.fast, asked.steps)
    torch.set_num_threads(1)  # a step this short gains nothing from a second thread
    for part in asked.parts or PARTS:
        if part == "figure4" and data is None:
            print("figure4 left out: no --data", flush=True)
        elif part in PARTS:
            PARTS[part](job)
        elif part in page.PANELS:
            _panel(part, job)
    if not asked.no_report:
        page.write(job.out)


def _panels(figure: str, job: Job) -> None:
    for side in "ab":
        _panel(f"{figure}{side}", job)


def robustness(job: Job) -> None:
    """The conjecture at figure 3: how regret on Rosenbrock changes with the lengthscale that is taken for known."""
    rows = []
    for lengthscale in (0.05, 0.1, 0.2, 0.4, 0.8):
        setting = settings("3a", job.trials, None, lengthscale=lengthscale)
        histories = _play(setting, job.steps(2000), f"lengthscale {lengthscale:g}")
        rows.append({"lengthscale": lengthscale, "steps": job.steps(2000)} | _means(histories))
        save(pd.DataFrame(rows), job.out / "robustness.csv", 5)


def sensitivity(job: Job) -> None:
    """What changes when the choices that the paper leaves open, or misprints, change, one at a time."""
    rows = []
    for panel in ("1a", "1b"):
        for words, (setting, options) in variants(panel, job.trials, job.steps(3000)).items():
            names = ("gp_ucb", "igp_ucb", "gp_ts")
            rows.append(
                {"panel": panel, "choice": words, "steps": job.steps(3000)}
                | _means(_play(setting, job.steps(3000), f"{panel} {words}", names, **options))
            )
    choices: tuple[dict[str, Any], ...] = ({}, {"prior_mean": "grand"}, {"scaled": False})
    for panel in ("4a", "4b") if job.data else ():
        for options in (*choices, {"whole_days": True}) if panel == "4a" else choices:
            words = ", ".join(f"{key} = {value}" for key, value in options.items()) or "default"
            setting = settings(panel, min(job.trials, 24), job.data, **options)
            histories = _play(setting, job.steps(3000), f"{panel} {words}")
            rows.append({"panel": panel, "choice": words, "steps": job.steps(3000)} | _means(histories))
    save(pd.DataFrame(rows), job.out / "sensitivity.csv", 5)


PARTS: dict[str, Callable[[Job], None]] = {
    **{f"figure{number}": partial(_panels, number) for number in "1234"},
    "robustness": robustness,
    "sensitivity": sensitivity,
}


def _panel(panel: str, job: Job) -> None:
    """Picture of a panel, regret of each trial, what was set."""
    setting = settings(panel, job.trials, job.data)
    histories = _play(setting, job.steps(), f"figure {panel}")
    stem = f"{job.out / 'figure'}{panel}"
    save(trials(histories), f"{stem}_trials.csv")
    save(_facts(setting, histories), f"{stem}_facts.csv", 4)
    functions = setting.problem.expected_rewards(1)
    gap = (functions.amax(-1) - functions.mean(-1)).unsqueeze(-1).expand(-1, job.steps())
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
        regret, error, wall = (
            history.mean_cumulative_regret,
            history.standard_error,
            history.meta["wall_seconds"],
        )
        print(f"{title:34} {name:8} {regret:10.1f} ± {error:.1f}  {wall:.1f} s", flush=True)
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
    return {
        key: value
        for name, history in histories.items()
        for key, value in ((name, history.mean_cumulative_regret), (f"{name} se", history.standard_error))
    }

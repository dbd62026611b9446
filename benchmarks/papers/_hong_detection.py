"""False alarms and delays of ADA-OPKB calibrated: functions that never change, and functions that do once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.problems import make
from benchmarks.pages import save
from benchmarks.papers._hong_environments import SEED

_UNCHANGING: dict[str, tuple[str, dict[str, Any]]] = {
    "GP draws, d = 1": ("gp", {"noise_scale": 0.1}),
    "GP draws, d = 2": ("gp", {"dim": 2, "noise_scale": 0.1}),
    "sphere draws, scaled": ("sphere-one-switch", {"switches": ()}),
    "cosine, kernel only close": ("cosine", {"stationary": True}),
}
_CHANGING: dict[str, tuple[str, dict[str, Any]]] = {
    "sphere": ("sphere-one-switch", {"switches": (0.5,)}),
    "correlated, d = 2, l = 0.2": ("switching", {"switches": (0.5,), "dim": 2}),
    "correlated, d = 3, l = 1": ("switching", {"switches": (0.5,), "dim": 3, "lengthscale": 1.0}),
}
_RUN_LENGTHS = (1e3, 1e4, 1e5)


def measure(out: Path, fast: bool) -> None:
    """Write false_alarms.csv and delays.csv."""
    horizon, replicates = (40, 2) if fast else (5000, 20)
    rows = []
    for name, (problem, options) in _UNCHANGING.items():
        for run_length in _RUN_LENGTHS:
            history = _play(problem, options, horizon, replicates, run_length)
            alarms, steps = int(history.trace["restarts"][:, -1].sum()), horizon * replicates
            promised = f"{steps / run_length:.3g}"
            rows.append((name, f"{run_length:.0e}", steps, alarms, promised))
            print(*rows[-1], flush=True)
    columns = ["problem", "run length A", "steps", "false alarms", "promised at most, on average"]
    save(pd.DataFrame(rows, columns=columns), out / "false_alarms.csv", None)
    horizon, replicates = (40, 2) if fast else (2000, 50)
    found = []
    for name, (problem, options) in _CHANGING.items():
        for change in ("flip", "fresh"):
            history = _play(problem, options | {"change": change}, horizon, replicates, 1e5)
            found.append({"problem": name, "change": change, **_delays(history, horizon // 2)})
            print(*found[-1].values(), flush=True)
    save(pd.DataFrame(found), out / "delays.csv", None)


def _play(problem: str, options: dict[str, Any], horizon: int, replicates: int, run_length: float) -> History:
    timed = {} if problem == "gp" else {"horizon": horizon}
    made = make(problem, replicates=replicates, seed=SEED, **timed, **options)
    policy = recipes.build(
        "ada_opkb_calibrated", made, replicates=replicates, horizon=horizon, seed=SEED, run_length=run_length
    )
    return run(policy, made, horizon, seed=SEED, capture="auto")


def _delays(history: History, switch: int) -> dict[str, Any]:
    """Steps from the switch to the first detection after it; pulls of a changed arm are what it waits for."""
    detected = history.trace["detected"] > 0
    before, after = detected[:, : switch - 1], detected[:, switch - 1 :]
    found = after.any(-1)
    steps = after.to(torch.uint8).argmax(-1)[found].double()
    quantile = (lambda q: float(steps.quantile(q))) if len(steps) else (lambda q: float("nan"))
    return {
        "replicates": history.replicates,
        "median delay": quantile(0.5),
        "90 % within": quantile(0.9),
        "longest": quantile(1.0),
        "missed": int((~found).sum()),
        "false alarms before": int(before.sum()),
    }

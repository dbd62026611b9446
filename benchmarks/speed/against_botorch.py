"""One run, the same arms at every step: a step of ours and a step of plain BoTorch, each way in its own process."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.pages import say
from benchmarks.speed.measuring import alone, clock, copy_seconds, median, peak_mib
from benchmarks.speed.page import Settings
from benchmarks.speed.plain_botorch import WAYS, gp, ucb
from benchmarks.speed.workload import bytes_of_step, held, make_task, play, ucb_on_arms

OURS = "bandits_torch"
_WARM_UP_ARMS = 256


@dataclass(frozen=True)
class Case:
    """N arms, t observations before the steps that are timed, as the policy chose them (``"ucb"``) or t different arms
    at random (``"distinct"``), the most that our factor form can be made to hold."""

    num_arms: int
    observations: int
    pulled: str
    steps: int
    botorch_steps: int

    def __str__(self) -> str:
        return f"{self.num_arms} arms, {self.observations} observations ({self.pulled})"


_CASES = (
    Case(1_000, 1_000, "ucb", 300, 3),
    Case(10_000, 1_000, "ucb", 300, 3),
    Case(10_000, 1_000, "distinct", 100, 3),
    Case(100_000, 1_000, "ucb", 100, 2),
)
_FAST_CASES = (Case(100, 20, "ucb", 4, 2),)


def measure(settings: Settings) -> pd.DataFrame:
    """One row for ours and one for each BoTorch way, for every case."""
    rows: list[dict[str, Any]] = []
    for case in _FAST_CASES if settings.fast else _CASES:
        with tempfile.TemporaryDirectory() as folder:
            played = Path(folder) / "played.pt"
            say(f"{case}: {OURS}")
            ours = alone(_play_ours, case, settings.device, played)
            rows.append(ours)
            for way in WAYS:
                say(f"{case}: {way}")
                row = settings.alone(_play_botorch, way, case, settings.device, played)
                row["times_ours"] = row["seconds_per_step"] / ours["seconds_per_step"]
                rows.append(row)
    return pd.DataFrame(rows)


def _play_ours(case: Case, device: str, played: Path) -> dict[str, Any]:
    """Drive the policy to t observations, time the steps after that, and write down what was played."""
    task = make_task(case.num_arms, device)
    start_mib = peak_mib(device)
    policy = ucb_on_arms(task)
    spread = torch.randperm(case.num_arms, generator=torch.Generator().manual_seed(1)).to(device)
    steps = case.observations + case.steps
    # Laid out beforehand: a small tensor kept from every step would pin the heap between the large ones.
    arms, rewards = torch.empty(steps, dtype=torch.long), torch.empty(steps, dtype=torch.float64)
    seconds = []
    for step in range(steps):
        forced = spread[step : step + 1] if case.pulled == "distinct" and step < case.observations else None
        arms[step : step + 1], rewards[step : step + 1], taken = play(policy, task, step, forced)
        seconds.append(taken)
    torch.save({"arm": arms.to(device), "reward": rewards.to(device)}, played)
    peak = peak_mib(device)
    form, rows, points = held(policy)
    moved = bytes_of_step(policy)
    return _row(case, OURS, seconds[case.observations :], peak, start_mib) | {
        "times_ours": 1.0,
        "form": form,
        "rows": rows,
        "points": points,
        "bytes_per_step": moved,
        "copy_seconds": copy_seconds(moved, device),
    }


@torch.no_grad()
def _play_botorch(way: str, case: Case, device: str, played: Path) -> dict[str, Any]:
    """Hand BoTorch the same t observations, then time its steps along the arms that were played."""
    learn, score = WAYS[way]
    task = make_task(case.num_arms, device)
    data = torch.load(played)
    arm, reward = data["arm"], data["reward"].unsqueeze(-1)
    X, t = task.arms[arm], case.observations
    start_mib = peak_mib(device)
    model = gp(X[:t], reward[:t])
    score(ucb(model), task.arms[:_WARM_UP_ARMS])  # first-time costs, and the caches that conditioning keeps
    same, seconds = 0, []
    for step in range(t, t + case.botorch_steps):
        start = clock(device)
        best = score(ucb(model), task.arms)
        model = learn(model, X[step : step + 1], reward[step : step + 1])
        seconds.append(clock(device) - start)
        same += best == int(arm[step])
    return _row(case, way, seconds, peak_mib(device), start_mib) | {"same_arms": same}


def _row(case: Case, way: str, seconds: list[float], peak: float, start: float) -> dict[str, Any]:
    """BoTorch is given its fastest step, ours its median: what noise there is counts against us."""
    return {
        "arms": case.num_arms,
        "observations": case.observations,
        "pulled": case.pulled,
        "way": way,
        "steps": len(seconds),
        "seconds_per_step": median(seconds) if way == OURS else min(seconds),
        "peak_mib": peak,
        "start_mib": start,
    }

"""One run, the same arms at every step: a step of ours and a step of plain BoTorch, each way in its own process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.pages import duration, figures, markdown, of, say, table, whole
from benchmarks.speed.measuring import alone, clock, copy_seconds, median, peak_mib
from benchmarks.speed.page import Settings
from benchmarks.speed.plain_botorch import WAYS, gp, ucb
from benchmarks.speed.workload import bytes_of_step, held, make_task, play, ucb_on_arms

QUESTION = "How much faster than plain BoTorch is a step?"

OURS = "bandits_torch"
_WARM_UP_ARMS = 256


@dataclass(frozen=True)
class Case:
    """N arms, t observations before the steps that are timed, and where those observations came from.

    ``pulled``: "ucb", as the policy chose them; "distinct", t different arms at random, the most that our
    factor form can be made to hold.
    """

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


def describe(frame: pd.DataFrame) -> str:
    """The ratio to the fastest BoTorch way, then every way, then how far a step is from the memory's speed."""

    def of_factor_form(column: str) -> Callable[[dict[Any, Any]], str]:
        return lambda row: "-" if row["form"] == "covariance" else whole(row[column])

    case = {"arms": of("arms", whole), "observations": of("observations", whole), "pulled": of("pulled")}
    every = case | {
        "way": of("way"),
        "a step": of("seconds_per_step", duration),
        "times ours": of("times_ours", figures),
        "peak": lambda row: f"{row['peak_mib'] / 1024:.2f}",
        "of that, its own": lambda row: f"{(row['peak_mib'] - row['start_mib']) / 1024:.2f}",
    }
    bandwidth = case | {
        "form": of("form"),
        "rows u": of_factor_form("rows"),
        "points n": of_factor_form("points"),
        "MiB a step": lambda row: f"{row['bytes_per_step'] / 2**20:.1f}",
        "copy GB/s": lambda row: figures(row["bytes_per_step"] / row["copy_seconds"] / 1e9),
        "such a copy": of("copy_seconds", duration),
        "our step": of("seconds_per_step", duration),
        "copy / step": lambda row: f"{row['copy_seconds'] / row['seconds_per_step']:.0%}",
    }
    rows = []
    for (arms, observations, pulled), part in frame.groupby([*case], sort=False):
        is_ours = part["way"] == OURS
        ours, theirs = part[is_ours].iloc[0], part[~is_ours]
        fastest = theirs.loc[theirs["seconds_per_step"].idxmin()]
        seconds = duration(ours["seconds_per_step"]), duration(fastest["seconds_per_step"])
        same = f"{theirs['same_arms'].sum():.0f} of {theirs['steps'].sum()}"
        times = f"**{figures(fastest['times_ours'])}**"
        rows.append((whole(arms), whole(observations), pulled, *seconds, fastest["way"], times, same))
    heads = (*case, "ours", "fastest BoTorch", "which", "times faster", "same arm")
    memory = (
        "Every way, with the most memory its process held (GiB) and how much of that came after start-up:\n"
    )
    ours_alone = table(frame[frame["way"] == OURS], bandwidth)
    return "\n".join(
        [_WORDS, markdown(heads, rows), memory, table(frame, every), _BANDWIDTH_WORDS, ours_alone]
    )


_WORDS = """Our policy plays until the observations are there (`ucb`: the arms it chooses; `distinct`: as many different
arms, drawn at random, so that nothing repeats). The same observations go to each of four plain BoTorch programs:
`SingleTaskGP` built anew every step, or `condition_on_observations`; scored in one call on A x 1 x d, or by
`optimize_acqf_discrete`. Then each plays the next steps. BoTorch has float64, `no_grad`, fixed noise, no outcome
transform, all threads, a warm-up that is not timed, and its fastest step is compared with our median.
"Same arm" counts the steps, over the four ways, at which BoTorch's best arm is the one we played.
"""

_BANDWIDTH_WORDS = """How far a step is from the limit that memory sets: bytes that the model's form cannot avoid moving
(covariance form: the N x N matrix read and written; factor form: u prior rows read, an n x n matrix read and
written), against a copy of as many bytes measured in the same process (read + write, buffers of that size, so that
caches help both alike):
"""

"""``python -m benchmarks.continuous [--fast] [--problems a,b] [--again p] [--step] [--page]``.

Races go to results/race-PROBLEM.csv, the cost of a long step to results/step.csv; the page and the picture are
drawn from all there are. Replicates that a table of the same horizon holds are not played again, except by the
policies of ``--again``. ``--step`` measures the step alone, ``--page`` draws alone.

``--clock [--seconds 30] [--evaluation 0.5]`` races over a simulated clock, that a policy's computing advances, on eight
functions (PROTOCOL-CLOCK.md): tables clock-SECONDS.csv, page CLOCK.md. Runs that a table holds are not played again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from benchmarks.continuous import clock, clock_page
from benchmarks.continuous.auto_step import auto_step
from benchmarks.continuous.page import write_page
from benchmarks.continuous.race import PROBLEMS, continued
from benchmarks.continuous.step import step_ratio

RESULTS = Path(__file__).parent / "results"
HORIZON, REPLICATES = 60, 6


def main() -> None:
    """Measure what was asked for, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.continuous", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="a shrunk run into a temporary folder")
    parser.add_argument("--problems", default="")
    parser.add_argument("--horizon", type=int, default=HORIZON)
    parser.add_argument("--replicates", type=int, default=REPLICATES)
    parser.add_argument("--again", default="", help="policies, by ';', to play again in replicates played")
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--seconds", type=float, default=30.0, help="horizon of --clock")
    parser.add_argument("--only", default="", help="policies, by ';', that play with --clock; default: all")
    parser.add_argument("--evaluation", type=float, default=clock.EVALUATION, help="seconds, of --clock")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    known = clock.FUNCTIONS if asked.clock else PROBLEMS
    names = asked.problems.split(",") if asked.problems else list(known)
    again = [policy for policy in asked.again.split(";") if policy]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"problems must be among {', '.join(known)}, got {', '.join(unknown)}")
    if asked.clock:
        _clock(asked, names)
        return
    results, horizon, replicates, observations = RESULTS, asked.horizon, asked.replicates, 1000
    if asked.fast:
        results, names, horizon, replicates, observations = (
            Path(tempfile.mkdtemp()),
            names[:1],
            14,
            1,
            60,
        )
    results.mkdir(exist_ok=True)
    if not asked.page and not asked.step:
        for name in names:
            table = results / f"race-{name}.csv"
            continued(name, horizon, replicates, table, lambda line: print(line, flush=True), again)
    if asked.step or asked.fast:
        step_ratio(observations).to_csv(results / "step.csv", index=False, float_format="%.6g")
        longer = auto_step((15, 20), 5) if asked.fast else auto_step()
        longer.to_csv(results / "step-auto.csv", index=False, float_format="%.6g")
    print(f"wrote {write_page(results, fast=asked.fast)}")


def _clock(asked: argparse.Namespace, names: list[str]) -> None:
    """The race against the clock, and its page."""
    RESULTS.mkdir(exist_ok=True)
    if not asked.page:
        table = RESULTS / f"clock-{asked.seconds:g}.csv"
        tell = lambda line: print(line, flush=True)  # noqa: E731
        only = filter(None, asked.only.split(";"))
        clock.race(
            names, asked.seconds, asked.replicates, table, tell, evaluation=asked.evaluation, only=only
        )
    print(f"wrote {clock_page.write_page(RESULTS)}")


if __name__ == "__main__":
    main()

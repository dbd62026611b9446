"""``python -m benchmarks.continuous``: our recipes with learned hyperparameters against plain BoTorch and W-DBO over
domains, and the cost of a step (``--step``).

Replicates that a table of the same horizon holds are not played again, except by the policies of ``--again``.
``--clock`` races over a simulated clock that a policy's computing advances (PROTOCOL-CLOCK.md), with ``--turned`` on
functions rotated and shifted.
"""

from typing import Annotated

import torch
import typer

from benchmarks import options, pages
from benchmarks.continuous import clock
from benchmarks.continuous.page import write_page
from benchmarks.continuous.race import PROBLEMS, continued
from benchmarks.continuous.step import auto_step, step_ratio

HORIZON, REPLICATES = 60, 6


def main(
    problems: Annotated[str, typer.Option(help="Comma-separated; default: all.")] = "",
    horizon: Annotated[int, typer.Option(help="Steps of the race.")] = HORIZON,
    replicates: Annotated[int, typer.Option(help="Of either race.")] = REPLICATES,
    again: Annotated[str, typer.Option(help="Policies, by ';', to play again in replicates played.")] = "",
    step: Annotated[bool, typer.Option("--step", help="Measure the step alone.")] = False,
    on_clock: Annotated[bool, typer.Option("--clock", help="The race against the clock.")] = False,
    turned: Annotated[
        bool, typer.Option("--turned", help="Of --clock, functions turned and shifted.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Horizon of --clock.")] = 30.0,
    only: Annotated[str, typer.Option(help="Policies, by ';', that play with --clock; default: all.")] = "",
    page: options.PageAlone = False,
) -> None:
    """Measure what was asked for, then write the page."""
    torch.set_num_threads(1)
    of_clock = [*clock.TURNED] if turned else clock.FUNCTIONS
    names = options.chosen(problems, of_clock if on_clock else PROBLEMS, "problems")
    results = pages.results_folder(__file__)
    if on_clock:
        if not page:
            kind, players = "turned" if turned else "clock", filter(None, only.split(";"))
            table = results / f"{kind}-{seconds:g}.csv"
            clock.race(names, seconds, replicates, table, only=players)
        pages.say(f"wrote {clock.write_page(results)}")
        return
    if not page and not step:
        for name in names:
            policies = [policy for policy in again.split(";") if policy]
            continued(name, horizon, replicates, results / f"race-{name}.csv", policies)
    if step:
        pages.save(step_ratio(), results / "step.csv")
        pages.save(auto_step(), results / "step-auto.csv")
    pages.say(f"wrote {write_page(results)}")


if __name__ == "__main__":
    options.command(main)()

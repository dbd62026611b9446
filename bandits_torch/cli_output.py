"""What the command line shows: tables, and errors in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.table import Table
from torch import Tensor

from bandits_torch.experiments.regret import summary
from bandits_torch.history import History


def results_table(title: str, histories: Mapping[str, History], random: Tensor) -> Table:
    """Policies from best to worst, then what playing at random and the oracle come to."""
    at_random = float(random.sum(-1).mean())
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for column in ("cumulative regret", "standard error", "% of random", "ms per step"):
        table.add_column(column, justify="right")
    for name, row in summary(histories).sort_values("mean_cumulative_regret").iterrows():
        regret, error, ms = row["mean_cumulative_regret"], row["standard_error"], row["ms_per_step"]
        cells = [
            f"{regret:.2f}",
            "" if error != error else f"{error:.2f}",
            _percent(regret, at_random),
            f"{ms:.3f}",
        ]
        table.add_row(str(name), *cells)
    table.add_section()
    table.add_row(
        "random (expected)", f"{at_random:.2f}", "", _percent(at_random, at_random), "", style="dim"
    )
    table.add_row("oracle", "0.00", "", _percent(0.0, at_random), "", style="dim")
    return table


def _percent(regret: float, at_random: float) -> str:
    return f"{100 * regret / at_random:.1f}" if at_random > 0 else ""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn any error into one line on standard error and exit code 2."""
    try:
        yield
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except ValueError as error:
        _fail(str(error))
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)

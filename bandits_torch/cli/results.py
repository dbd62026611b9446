"""The table that a race ends with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table
from torch import Tensor

from bandits_torch.experiments.regret import WRITTEN_OUT, summary
from bandits_torch.history import History


def results_table(title: str, histories: Mapping[str, History], random: Tensor) -> Table:
    """Policies from best to worst, then what playing at random and the oracle come to."""
    at_random = float(random.sum(-1).mean())
    frame = summary(histories).sort_values("mean_cumulative_regret")
    most = max(at_random, float(frame["mean_cumulative_regret"].abs().max()))
    digits = ".2f" if most == 0 or 1 <= most < WRITTEN_OUT else ".4g"  # all in the unit of the rewards
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for column in ("cumulative regret", "standard error", "% of random", "ms per step"):
        table.add_column(column, justify="right")
    for name, row in frame.iterrows():
        regret, error, ms = row["mean_cumulative_regret"], row["standard_error"], row["ms_per_step"]
        cells = [
            f"{regret:{digits}}",
            "" if error != error else f"{error:{digits}}",
            _percent(regret, at_random),
            f"{ms:.3f}",
        ]
        table.add_row(str(name), *cells)
    table.add_section()
    table.add_row(
        "random (expected)", f"{at_random:{digits}}", "", _percent(at_random, at_random), "", style="dim"
    )
    table.add_row("oracle", "0.00", "", _percent(0.0, at_random), "", style="dim")
    return table


def _percent(regret: float, at_random: float) -> str:
    return f"{100 * regret / at_random:.1f}" if at_random > 0 else ""


def why_no_error(histories: Mapping[str, History]) -> Iterator[str]:
    """A line on the policies that have replicates and no standard error."""
    same = [name for name, history in histories.items() if history.replicates > 1 and history.identical]
    if same:
        yield (
            f"no standard error of {', '.join(same)}: all replicates are identical, as neither the rewards nor the "
            "policy has anything random"
        )

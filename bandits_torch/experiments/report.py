"""The report of a race: files with a table, a picture and a record of all settings, and tables for the screen."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import Tensor

from bandits_torch.experiments.earned import RANDOM, SMOOTHED, Earned, per_step, standings
from bandits_torch.experiments.plots.runs import plot_regret
from bandits_torch.files import atomic_write
from bandits_torch.history import History, versions
from bandits_torch.naming import written

REPORT = ("regret.csv", "regret.png", "report.html", "run.json")
_LARGE = 100_000  # regret from which on hundredths are left out
FORMAT = "bandits_torch race"
FORMAT_VERSION = 2  # version 1 lacks the size for which the problem was built


def write_report(
    directory: str | os.PathLike[str],
    histories: Mapping[str, History],
    random: Tensor,
    settings: Mapping[str, Any],
    *,
    page: str | None = None,
) -> list[Path]:
    """Write ``regret.csv``, ``regret.png``, ``report.html`` and ``run.json`` into a folder.

    All are written before the first of them replaces an earlier one; if that fails, nothing has changed. ``run.json``
    comes last and an earlier one is removed before, so a report cut off in between has none.

    Args:
        directory: created if missing; files of these names are replaced.
        histories, random: by policy, and (R, T) expected regret of the random policy (``random_regret``).
        settings: plain values, without NaN and infinity, added at the top level of ``run.json``.
        page: the text of ``report.html`` (``page.page``); None: that file is not written.

    Returns the paths written. In ``run.json``, ``results`` holds for every policy its ``mean_cumulative_regret``,
    ``standard_error`` (null for one replicate or identical ones), ``ms_per_step``, ``wall_seconds``, and for each
    replicate the ``cumulative_regret`` and a list of the ``arms`` pulled; ``references`` holds the mean cumulative
    regret of the random policy and of the oracle.

    Raises ValueError for settings that JSON cannot hold; then nothing is written.
    """
    try:
        _json(settings)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"settings must be plain values, without NaN and infinity, got {settings!r}"
        ) from error
    results = {
        name: {
            "mean_cumulative_regret": history.mean_cumulative_regret,
            "standard_error": None if math.isnan(history.standard_error) else history.standard_error,
            "ms_per_step": history.ms_per_step,
            "wall_seconds": history.meta["wall_seconds"],
            "cumulative_regret": history.regret.sum(-1).tolist(),
            "arms": history.arms.tolist(),
        }
        for name, history in histories.items()
    }
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": versions(),
        **settings,
        "results": results,
        "references": {"random": float(random.sum(-1).mean()), "oracle": 0.0},
    }
    picture = io.BytesIO()
    plot_regret(histories, random=random).figure.canvas.print_figure(picture, format="png")
    contents = {
        "regret.csv": per_step(histories).to_csv(index=False, float_format="%.10g").encode(),
        "regret.png": picture.getvalue(),
        "report.html": None if page is None else page.encode(),
        "run.json": (_json(record) + "\n").encode(),
    }
    written = [(Path(directory) / name, content) for name, content in contents.items() if content is not None]
    with ExitStack() as entered:  # the last one entered replaces its file first
        for path, content in reversed(written):
            file = entered.enter_context(atomic_write(path))
            file.write(content)
            file.flush()
        written[-1][0].resolve().unlink(missing_ok=True)
    return [path for path, _ in written]


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a ``run.json``: the settings given to ``write_report`` and the report's own keys.

    Raises OSError, and ValueError for a file that is not a record of a race or has another format version.
    """
    with open(path, encoding="utf-8") as file:
        try:
            record = json.load(file)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r} is not a race's run.json: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)!r} is not a race's run.json: {str(record)[:80]!r}")
    version = record.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{os.fspath(path)!r} has race format {version}; this version reads {FORMAT_VERSION}"
        )
    return record


def _json(value: Any, indent: str = "") -> str:
    """Indented JSON, with each list of plain values on one line."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{json.dumps(str(key))}: {_json(item, inner)}" for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        items = [_json(item, inner) for item in value]
    else:
        return json.dumps(value, allow_nan=False)
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{closing}"


def earned_table(title: str, earned: Earned) -> Table:
    """What each policy, random play and the best single arm earned, and the attainable total."""
    table = Table(title=title, title_justify="left")
    table.add_column("policy", min_width=max(map(len, earned.policies)))
    for column in (earned.noun, "a step", "above\nrandom", "of what could\nbe gained"):
        table.add_column(column, justify="right", no_wrap=True)

    def row(name: str, total: float, **look: Any) -> None:
        written = earned.total(total), earned.a_step(total), earned.above_random(total), earned.share(total)
        table.add_row(name, *written, **look)

    for name, total in earned.policies.items():
        row(name, total)
    table.add_section()
    for name, total in earned.references.items():
        row(name, total, style="dim")
    return table


def results_table(
    title: str, histories: Mapping[str, History], random: Tensor, unavoidable: float | None = None
) -> Table:
    """The policies from best to worst, then random play and the oracle.

    ``unavoidable``: that of ``Earned``; None if regret has no noise.
    """
    frame, at_random = standings(histories, random)
    most = max(at_random, float(frame["mean_cumulative_regret"].abs().max()))
    hundredths = most == 0 or 1 <= most < _LARGE

    def regret(value: float) -> str:
        return f"{value:.2f}" if hundredths and not math.isnan(value) else written(value, 4)

    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    against = "cumulative\nregret" if unavoidable is None else "regret to\nnoisy maximum"
    for column in (against, "standard\nerror", "% of\nrandom", "ms per\nstep"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in frame.iterrows():
        table.add_row(
            str(name),
            regret(row["mean_cumulative_regret"]),
            regret(row["standard_error"]),
            f"{row['of_random']:.1f}" if at_random > 0 else "",
            f"{row['ms_per_step']:.3f}",
        )
    table.add_section()
    shares = ("100.0", "0.0") if at_random > 0 else ("", "")
    table.add_row(RANDOM, regret(at_random), "", shares[0], "", style="dim")
    if unavoidable is not None:
        share = f"{100 * unavoidable / at_random:.1f}" if at_random > 0 else ""
        table.add_row(SMOOTHED, regret(unavoidable), "", share, "", style="dim")
    oracle = "oracle" if unavoidable is None else "noisy maximum"
    table.add_row(oracle, "0.00", "", shares[1], "", style="dim")
    return table


def why_no_error(histories: Mapping[str, History]) -> Iterator[str]:
    """A line about policies that have several replicates but no standard error."""
    same = [name for name, history in histories.items() if history.replicates > 1 and history.identical]
    if same:
        yield (
            f"no standard error of {', '.join(same)}: all replicates are identical, because neither the rewards nor "
            "the policy are random"
        )

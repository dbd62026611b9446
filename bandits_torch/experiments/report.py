"""A race as files: a table, a picture and a record of how it came about."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bandits_torch.experiments.plots import plot_regret
from bandits_torch.experiments.regret import per_step
from bandits_torch.files import atomic_write
from bandits_torch.history import History
from bandits_torch.recorder import versions

REPORT = ("regret.csv", "regret.png", "run.json")
FORMAT = "bandits_torch race"
FORMAT_VERSION = 2  # 1 does not say what the problem was built for


def write_report(
    directory: str | os.PathLike[str],
    histories: Mapping[str, History],
    random: Tensor,
    settings: Mapping[str, Any],
) -> list[Path]:
    """Write ``regret.csv``, ``regret.png`` and ``run.json`` into a folder, each atomically.

    Args:
        directory: created if missing; files of these names are replaced.
        histories: by policy.
        random: (R, T) expected regret of the random policy (``random_regret``).
        settings: plain values added at the top level of ``run.json``.

    Returns the paths written. ``run.json`` holds, under ``results``, for every policy its
    ``mean_cumulative_regret``, ``standard_error`` (null for one replicate or identical ones),
    ``ms_per_step``, ``wall_seconds``, ``cumulative_regret`` of every replicate and the ``arms`` it pulled, a list
    of each replicate; under ``references`` the mean cumulative regret of the random policy and of the oracle.
    """
    paths = [Path(directory) / name for name in REPORT]
    with atomic_write(paths[0]) as file:
        per_step(histories).to_csv(file, index=False, float_format="%.10g")
    canvas = plot_regret(histories, random=random).figure.canvas
    with atomic_write(paths[1]) as file:
        canvas.print_figure(file, format="png")
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": versions(),
        **settings,
        "results": {name: _result(history) for name, history in histories.items()},
        "references": {"random": float(random.sum(-1).mean()), "oracle": 0.0},
    }
    with atomic_write(paths[2]) as file:
        file.write((_json(record) + "\n").encode())
    return paths


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a ``run.json``: the settings given to ``write_report`` and the report's own keys.

    Raises OSError, and ValueError for a file that is not a record of a race or has a newer format version.
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
            f"{os.fspath(path)!r} has race format {version}, and this version reads {FORMAT_VERSION}"
        )
    return record


def _json(value: Any, indent: str = "") -> str:
    """JSON, indented; a list of plain values, however long, in one line."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{json.dumps(str(key))}: {_json(item, inner)}" for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        items = [_json(item, inner) for item in value]
    else:
        return json.dumps(value, allow_nan=False)
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{closing}"


def _result(history: History) -> dict[str, Any]:
    error = history.standard_error
    return {
        "mean_cumulative_regret": history.mean_cumulative_regret,
        "standard_error": None if math.isnan(error) else error,
        "ms_per_step": history.ms_per_step,
        "wall_seconds": history.meta["wall_seconds"],
        "cumulative_regret": history.regret.sum(-1).tolist(),
        "arms": history.arms.tolist(),
    }

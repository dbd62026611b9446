"""The page: regret of each kernel over time on the reported part, and paired differences with their intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.cycles.playing import RECORDS, steps_of_a_day
from benchmarks.pages import markdown, opening, write

_HEAD = """
`tv_gp_ucb` with a kernel over time of three families, on records that have days. The kernel over arms, the noise
variance and the prior mean are learned from what lies before the part played (90 days in Beijing, the days of March
before on the Intel records). Each family has twelve settings (six kernels, widths 1 and 2); the one of least mean
regret on the development part is played on the reported part, which chose nothing. Rewards are in units of the prior's
standard deviation.

* exponential: (1 - rate)^{tau / 2}, rate .003 to .3 a step;
* matern-3/2: length-scale 7 to 400 steps;
* quasi-periodic: share x (a day's cycle of three harmonics, shape kept for five days) + (1 - share) x exponential.

Differences are paired by run, family minus exponential: negative is less regret. The interval is two standard errors.
Runs of the Beijing records do not overlap. Those of the Intel records do (ten runs of three days in ten days), so
their standard error has the covariances of overlapping runs in it (Hansen & Hodrick). Ten days hold only three runs
that do not overlap, so that error is itself uncertain, and a difference of two of it is weak evidence.

"""


def overlap(record: str) -> int:
    """How many of the next runs share rows with a run of the reported part."""
    part = RECORDS[record]["report"]
    rows = part.rows if record.startswith("beijing") else part.rows * steps_of_a_day(record)
    apart = (rows - part.horizon) / (part.starts - 1)
    return max(0, int(np.ceil(part.horizon / apart)) - 1)


def standard_error(differences: np.ndarray, lags: int) -> float:
    """Of the mean of runs in order, with the covariances of runs up to ``lags`` apart (Hansen & Hodrick 1980).

    Never below that of independent runs: with few runs the covariances may add up to anything.
    """
    n, centred = len(differences), differences - differences.mean()
    variance = centred @ centred / (n - 1)
    for lag in range(1, lags + 1):
        variance += 2 * (centred[lag:] @ centred[:-lag]) / (n - 1)
    return float(np.sqrt(max(variance, centred @ centred / (n - 1)) / n))


def write_page(out: Path) -> Path:
    """Write ``RESULTS.md`` beside the table it is made from."""
    table = pd.read_csv(out / "totals.csv")
    rows, ahead = [], []
    for record in (name for name in RECORDS if (table["record"] == name).any()):
        own = table[(table["record"] == record) & (table["part"] == "report")]
        runs = own.pivot(index="run", columns="family", values="regret")
        random = float(runs.pop("random").mean())
        for family in runs:
            cell = own[own["family"] == family]
            mean = float(runs[family].mean())
            row = [record, family, cell["setting"].iloc[0], len(runs), f"{mean:.1f}", f"{mean / random:.1%}"]
            if family == "exponential":
                row += ["", ""]
            else:
                difference = (runs[family] - runs["exponential"]).to_numpy()
                error = standard_error(difference, overlap(record))
                row += [f"{difference.mean():+.1f} ± {2 * error:.1f}", f"{difference.mean() / error:+.1f}"]
                if difference.mean() < -2 * error:
                    ahead.append(f"{family} on {record}")
            rows.append([*row, f"{cell['ms_per_step'].iloc[0]:.1f}"])
    heads = [
        "record",
        "kernel over time",
        "setting chosen",
        "runs",
        "regret",
        "share of random",
        "paired difference",
    ]
    told = "; ".join(ahead) or "none"
    compared = 2 * len({row[0] for row in rows})
    answer = (
        f"Less regret than exponential forgetting, beyond two standard errors: {told} (of {compared} comparisons, not "
        "corrected for their number)."
    )
    title = "Cycles and smooth drift against exponential forgetting"
    table = markdown([*heads, "in standard errors", "ms a step, all runs"], rows)
    return write(out / "RESULTS.md", opening(title, answer, "python -m benchmarks.cycles") + _HEAD + table)

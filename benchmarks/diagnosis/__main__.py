"""``python -m benchmarks.diagnosis``: does a diagnosis say what was put into a table?"""

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from bandits_torch import diagnose, validation
from bandits_torch.problems import read_table
from benchmarks import options, pages

TAILS = ("Student's t, 3", "5 % ten times as wide", "10 % five times as wide", "lognormal")


@dataclass(frozen=True)
class Truth:
    """What a file holds. ``period`` is in units of its times, None for none; ``jumps`` are the rows after them,
    ``sizes`` the root mean squares over the arms that jump, in deviations of the noise."""

    kind: str
    rows: int
    arms: int
    period: float | None
    drift: float
    jumps: tuple[int, ...]
    sizes: tuple[float, ...]
    noise: float
    missing: float


def heavy(g: np.random.Generator, tails: str, shape: tuple[int, ...]) -> np.ndarray:
    """Noise of standard deviation 1 with one of ``TAILS``; that of the lognormal is skewed, too."""
    if tails == TAILS[0]:
        return g.standard_t(3, shape) / 3**0.5
    if tails == TAILS[3]:
        return (np.exp(g.standard_normal(shape)) - np.exp(0.5)) / (np.exp(2) - np.exp(1)) ** 0.5
    share, wide = (0.05, 10.0) if tails == TAILS[1] else (0.1, 5.0)
    scale = np.where(g.random(shape) < share, wide, 1.0)
    return scale * g.standard_normal(shape) / (1 + share * (wide**2 - 1)) ** 0.5


def draw(number: int, path: Path, *, tails: bool = False, follows: bool = False) -> Truth:
    """Write the file of this number as CSV, and return its truth.

    ``tails``: numbers with noise of ``TAILS``; ``follows``: numbers with a cycle that is in proportion to the level.
    """
    g = np.random.default_rng([20261125, number])
    kind = "numbers" if tails or follows else ("numbers", "0/1", "numbers", "counts", "numbers")[number % 5]
    steps = float(np.exp(g.uniform(np.log(6), np.log(200)))) if number % 10 in (0, 1, 3, 4, 6, 8) else None
    rows = max(int(g.integers(300, 900)), 0 if steps is None else int(8 * steps) + 1)
    arms = int(g.integers(3, 9))
    t = np.arange(rows, dtype=float)
    if number % 4 >= 2:
        t = np.cumsum(g.uniform(0.5, 1.5, rows))
    f = 0.7 * g.standard_normal(arms) * np.ones((rows, 1))
    wave = np.zeros((rows, arms))
    if steps is not None:
        size, phase = g.uniform(0.8, 2.0), g.uniform(0, 2 * np.pi, arms)
        wave = size * np.sin(2 * np.pi * t[:, None] / steps + phase)
        f = f if follows else f + wave
    drift = float(np.exp(g.uniform(np.log(0.01), np.log(0.06)))) if number % 2 else 0.0
    f = f + drift * np.cumsum(g.standard_normal((rows, arms)), 0)
    jumps, sizes = [], []
    for k in range(number // 5 % 4):
        low = 30 + k * (rows - 60) // 3
        at = int(g.integers(low, low + (rows - 60) // 3 - 30))
        moved = np.ones(arms, dtype=bool) if g.random() < 0.5 else g.permutation(arms) < (arms + 1) // 2
        by = 3 * g.standard_normal(arms) * moved
        f[at:] += by
        jumps.append(at)
        sizes.append(float(np.sqrt(np.square(by[moved]).mean())))
    if follows:
        f = (10 + f) * (1 + wave / 5)
    if kind == "numbers":
        unit = 10.0 ** g.uniform(-3, 3)
        errors = heavy(g, TAILS[number // 4 % len(TAILS)], f.shape) if tails else g.standard_normal(f.shape)
        y, noise = unit * (100 + f + errors), unit
    elif kind == "0/1":
        p = 1 / (1 + np.exp(-(0.8 * f - 0.5)))
        y, noise = (g.random(f.shape) < p).astype(float), float(np.sqrt((p * (1 - p)).mean()))
    else:
        rate = np.exp(np.minimum(1.0 + 0.35 * f, 5.0))
        y, noise = g.poisson(rate).astype(float), float(np.sqrt(rate.mean()))
    missing = float(g.uniform(0, 0.3)) if g.random() < 0.7 else 0.0
    y[g.random(y.shape) < missing] = np.nan
    frame = pd.DataFrame(y, columns=[f"arm {n}" for n in range(arms)])
    gap = 1.0
    if number % 4 == 3:
        gap = 3600.0
        start = np.datetime64("2026-01-05", "s")
        frame.insert(0, "time", start + (t * gap).round().astype("timedelta64[s]"))
    elif number % 4 == 2:
        frame.insert(0, "time", t)
    frame.to_csv(path, index=False)
    period = None if steps is None else steps * gap
    return Truth(kind, rows, arms, period, drift, tuple(jumps), tuple(sizes), noise, missing)


# By table: the number of the first file, how many there are, and what ``draw`` makes of them.
TABLES: dict[str, tuple[tuple[int, int], dict[str, bool]]] = {
    "files": ((0, 50), {}),
    "heavy": ((4000, 130), {"tails": True}),
    "following": ((6000, 60), {"follows": True}),
}
_NEAR, _CLEAR = 5, 2.0  # rows; deviations of the noise


def judge(number: int, **of_file: bool) -> dict[str, object]:
    """The truth of a file beside what was said of it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        path = Path(folder) / "file.csv"
        truth = draw(number, path, **of_file)
        found = diagnose(read_table(path))
    reported = [one.after for one in found.jumps or ()]
    left, hits = list(reported), []
    for at in truth.jumps:
        near = [one for one in left if abs(one - at) <= _NEAR]
        hits.append(bool(near))
        if near:
            left.remove(min(near, key=lambda one: abs(one - at)))
    right = [truth.period is not None and abs(one.length / truth.period - 1) < 0.05 for one in found.periods]
    low, high = found.noise_interval or (float("nan"), float("nan"))
    return {
        "file": number,
        "kind": truth.kind,
        "said": found.values,
        "rows": truth.rows,
        "arms": truth.arms,
        "missing": truth.missing,
        "period": truth.period,
        "periods_reported": " ".join(f"{one.length:.5g}" for one in found.periods),
        "periods_right": sum(right),
        "own_reported": len(found.own_periods),
        "drift": truth.drift,
        "drift_reported": bool(found.drift),
        "jumps": " ".join(map(str, truth.jumps)),
        "sizes": " ".join(f"{size:.2f}" for size in truth.sizes),
        "jumps_reported": " ".join(map(str, reported)),
        "jumps_found": sum(hits),
        "clear": sum(size >= _CLEAR for size in truth.sizes),
        "clear_found": sum(hit for hit, size in zip(hits, truth.sizes, strict=True) if size >= _CLEAR),
        "noise": truth.noise,
        "low": low,
        "high": high,
        "covered": low <= truth.noise <= high,
    }


def shares(table: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Precision and recall of what was reported of the files of a table, in words."""
    cycles, drifts = table["period"].notna(), table["drift"] > 0
    count = {name: _count(table[name]).sum() for name in ("jumps", "jumps_reported", "periods_reported")}
    found, right = table["jumps_found"].sum(), (table["drift_reported"] & drifts).sum()
    periods = table["periods_right"].sum(), (table.loc[cycles, "periods_right"] > 0).sum()

    def share(part: float, whole: float) -> str:
        return f"{int(part)} of {int(whole)}" + (f" ({part / whole:.2f})" if whole else "")

    return {
        "kind": (share((table["kind"] == table["said"]).sum(), len(table)), ""),
        "cycle, of all arms": (share(periods[0], count["periods_reported"]), share(periods[1], cycles.sum())),
        "jumps": (share(found, count["jumps_reported"]), share(found, count["jumps"])),
        "jumps of two deviations or more": ("", share(table["clear_found"].sum(), table["clear"].sum())),
        "drift": (share(right, table["drift_reported"].sum()), share(right, drifts.sum())),
    }


def _count(cells: pd.Series) -> pd.Series:
    """How many numbers each cell has."""
    return cells.astype("string").fillna("").str.split().map(len)


def write_page(folder: Path) -> Path:
    files, tails, following = (pd.read_csv(folder / f"{name}.csv") for name in TABLES)
    mistaken = (_count(tails["jumps_reported"]) > tails["jumps_found"]).sum()
    shown = {
        "files": files,
        "tails": tails,
        "shares": shares(files),
        "heavy": shares(tails),
        "follow": following,
        "following": shares(following),
        "mistaken": mistaken,
    }
    return pages.render(folder / "RESULTS.md", "diagnosis/RESULTS.md.jinja", **shown)


@options.with_page(write_page)
def main(
    folder: Path,
    table: Annotated[str, typer.Option(help="Which files: files, heavy or following.")] = "files",
) -> None:
    """Draw, diagnose, and write what came of it; other files of the table stay."""
    validation.one_of("table", table, *TABLES)
    (start, count), of_file = TABLES[table]
    rows = pd.DataFrame([judge(number, **of_file) for number in range(start, start + count)])
    pages.keep(folder / f"{table}.csv", rows, ("file",))
    if not all((folder / f"{name}.csv").exists() for name in TABLES):
        pages.say(f"no page: it needs the tables {', '.join(TABLES)}")
        raise typer.Exit


if __name__ == "__main__":
    options.command(main)()

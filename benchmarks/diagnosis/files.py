"""Files of rewards whose truth is known: kind, cycle, drift, jumps, noise, gaps, times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

TAILS = ("Student's t, 3", "5 % ten times as wide", "10 % five times as wide", "lognormal")


@dataclass(frozen=True)
class Truth:
    """What a file holds. ``period`` is in units of its times, None for none; ``jumps`` are the rows after them."""

    kind: str
    rows: int
    arms: int
    period: float | None
    drift: float
    jumps: tuple[int, ...]
    sizes: tuple[
        float, ...
    ]  # of each jump, root mean square over the arms that jump, in deviations of the noise
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


def draw(number: int, path: Path, *, tails: bool = False) -> Truth:
    """Write the file of this number as CSV, and return its truth. ``tails``: numbers with noise of ``TAILS``."""
    g = np.random.default_rng([20261125, number])
    kind = "numbers" if tails else ("numbers", "0/1", "numbers", "counts", "numbers")[number % 5]
    steps = float(np.exp(g.uniform(np.log(6), np.log(200)))) if number % 10 in (0, 1, 3, 4, 6, 8) else None
    rows = max(int(g.integers(300, 900)), 0 if steps is None else int(8 * steps) + 1)
    arms = int(g.integers(3, 9))
    t = np.arange(rows, dtype=float)
    if number % 4 >= 2:
        t = np.cumsum(g.uniform(0.5, 1.5, rows))
    f = 0.7 * g.standard_normal(arms) * np.ones((rows, 1))
    if steps is not None:
        f = f + g.uniform(0.8, 2.0) * np.sin(2 * np.pi * t[:, None] / steps + g.uniform(0, 2 * np.pi, arms))
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

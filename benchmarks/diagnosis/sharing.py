"""``python -m benchmarks.diagnosis.sharing``: how often arms are said to share something, in tables of known truth: 300
rows, with noise of variance 1 but where rewards are 0 and 1. Some 20 minutes."""

from collections.abc import Callable

import numpy as np
import torch

from bandits_torch import diagnose
from benchmarks import options, pages

ROWS, ARMS = 300, (3, 8, 30)
FIRST, TABLES = 1000, 100  # of each kind and number of arms; tables 0 to 19 chose the test
_MEMORY = 30  # rows of a stationary drift


def _drift(g: np.random.Generator, arms: int) -> np.ndarray:
    """Ornstein-Uhlenbeck, variance 1."""
    paths, kept = np.zeros((ROWS, arms)), np.exp(-1 / _MEMORY)
    paths[0] = g.normal(size=arms)
    news = g.normal(size=(ROWS, arms)) * (1 - kept * kept) ** 0.5
    for t in range(1, ROWS):
        paths[t] = kept * paths[t - 1] + news[t]
    return paths


def _walk(g: np.random.Generator, arms: int) -> np.ndarray:
    return g.normal(size=(ROWS, arms)).cumsum(0) / ROWS**0.5 * 3


def _cycle(g: np.random.Generator, arms: int) -> np.ndarray:
    return 1.5 * np.sin(2 * np.pi * (STEP / g.uniform(5, 60, arms) + g.random(arms)))


def _nearby(g: np.random.Generator, arms: int) -> np.ndarray:
    apart = np.subtract.outer(np.arange(arms), np.arange(arms)) / 1.5
    return np.asarray(np.linalg.cholesky(np.exp(-(apart**2) / 2) + 1e-9 * np.eye(arms)).T)


STEP = np.arange(ROWS)[:, None]
KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "noise alone": lambda g, n: np.zeros((ROWS, n)),
    "each arm a stationary drift (Ornstein-Uhlenbeck, 30 rows) of variance 1": _drift,
    "each arm a random walk, deviation 3 at the end": _walk,
    "each arm a trend of deviation 4": lambda g, n: STEP / ROWS * g.normal(size=n) * 4,
    "each arm a jump of deviation 3": lambda g, n: (g.integers(1, ROWS, n) <= STEP) * g.normal(size=n) * 3,
    "each arm a cycle of amplitude 1.5": _cycle,
    "one stationary drift": lambda g, n: _drift(g, 1),
    "one random walk": lambda g, n: _walk(g, 1),
    "one trend, by 3": lambda g, n: STEP / ROWS * 3,
    "one jump, by 1.5": lambda g, n: (g.integers(ROWS // 5, 4 * ROWS // 5) <= STEP) * 1.5,
    "one cycle of amplitude 1.5": lambda g, n: _cycle(g, 1),
    "common noise of deviation .7": lambda g, n: 0.7 * g.normal(size=(ROWS, 1)),
    "neighbours' stationary drifts are correlated": lambda g, n: _drift(g, n) @ _nearby(g, n),
    "one random walk, and one of each arm, by .7": lambda g, n: 0.7 * (_walk(g, 1) + _walk(g, n)),
}
RARE = {"5 % of successes": 0.0, "5 %, and 15 % in common times": 0.1}


def draw(kind: str, arms: int, number: int) -> np.ndarray:
    """The rewards of a table, ``(300, arms)``."""
    g = np.random.default_rng([number, arms, [*KINDS, *RARE].index(kind)])
    if kind in RARE:
        return np.asarray(g.random((ROWS, arms)) < 0.05 + RARE[kind] * (_drift(g, 1) > 1)) * 1.0
    return KINDS[kind](g, arms) + g.normal(size=(ROWS, arms))


def said(kind: str, arms: int, number: int) -> bool:
    """Whether the arms of a table are said to share something."""
    return diagnose(torch.from_numpy(draw(kind, arms, number))).shared is True


def main() -> None:
    """Print how often it is said."""
    rows = [
        [kind, *(sum(said(kind, arms, FIRST + k) for k in range(TABLES)) for arms in ARMS)]
        for kind in (*KINDS, *RARE)
    ]
    pages.say(pages.markdown([f"of {TABLES} tables", *(f"{arms} arms" for arms in ARMS)], rows))


if __name__ == "__main__":
    options.command(main)()

"""Ten kinds of records of 0 and 1 whose chances are known: still, switching, drifting, swinging, rare and related."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

ROWS = 1000
Chances = np.ndarray


def _logit(p: Chances | float) -> Chances:
    return np.log(p) - np.log1p(-np.asarray(p))


def _between(g: np.random.Generator, low: float, high: float, *shape: int) -> Chances:
    return g.uniform(low, high, shape)


def _switching(g: np.random.Generator, arms: int, switches: int) -> Chances:
    at = np.sort(g.choice(np.arange(150, ROWS - 100), switches, replace=False))
    levels = _between(g, 0.05, 0.45, switches + 1, arms)
    return levels[np.searchsorted(at, np.arange(ROWS), side="right")]


def _drifting(g: np.random.Generator, arms: int, memory: float, related: float = 0.0) -> Chances:
    """Log-odds that forget: a process of correlation exp(-tau / memory), related over arms by a length-scale."""
    place = np.arange(arms)
    covariance = np.exp(-0.5 * ((place[:, None] - place) / related) ** 2) if related else np.eye(arms)
    root = np.linalg.cholesky(covariance + 1e-6 * np.eye(arms))
    a, f = np.exp(-1 / memory), np.empty((ROWS, arms))
    f[0] = root @ g.standard_normal(arms)
    for t in range(1, ROWS):
        f[t] = a * f[t - 1] + np.sqrt(1 - a * a) * (root @ g.standard_normal(arms))
    return 1 / (1 + np.exp(-(_logit(0.2) + 0.8 * f)))


def _swinging(g: np.random.Generator, arms: int, period: float) -> Chances:
    t, phase = np.arange(ROWS)[:, None], g.uniform(0, 2 * np.pi, arms)
    return 0.2 + _between(g, 0.05, 0.15, arms) * np.cos(2 * np.pi * t / period + phase)


KINDS: dict[str, Callable[[np.random.Generator], Chances]] = {
    "still, 6 arms": lambda g: np.tile(_between(g, 0.05, 0.25, 6), (ROWS, 1)),
    "still, 20 arms": lambda g: np.tile(_between(g, 0.05, 0.45, 20), (ROWS, 1)),
    "rare, 8 arms": lambda g: np.tile(_between(g, 0.005, 0.05, 8), (ROWS, 1)),
    "often, 4 arms": lambda g: np.tile(_between(g, 0.6, 0.95, 4), (ROWS, 1)),
    "a switch, 6 arms": lambda g: _switching(g, 6, 1),
    "3 switches, 10 arms": lambda g: _switching(g, 10, 3),
    "drift over 500, 6 arms": lambda g: _drifting(g, 6, 500.0),
    "drift over 100, 6 arms": lambda g: _drifting(g, 6, 100.0),
    "cycle of 400, 5 arms": lambda g: _swinging(g, 5, 400.0),
    "related, 25 arms": lambda g: _drifting(g, 25, 500.0, related=4.0),
}


def drawn(kind: str, seed: int) -> tuple[Chances, np.ndarray]:
    """The chances and the record (ROWS, N) of a kind."""
    g = np.random.default_rng([seed, list(KINDS).index(kind)])
    chances = KINDS[kind](g)
    return chances, (g.random(chances.shape) < chances).astype(float)

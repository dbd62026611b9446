"""Generators of Xopt on the drifting lattice, all on one clock of the simulation."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from xopt.generator import Generator
from xopt.generators.bayesian.upper_confidence_bound import (
    TDUpperConfidenceBoundGenerator,
    UpperConfidenceBoundGenerator,
)
from xopt.generators.random import RandomGenerator
from xopt.generators.sequential.neldermead import NelderMeadGenerator
from xopt.vocs import VOCS

from bandits_torch.integrations.xopt import TimeVaryingUCBGenerator
from benchmarks.continuous.rivals import SimulatedClock, xopt_reads
from benchmarks.xopt.lattice import LIMIT, QUADRUPOLES, DriftingLattice
from benchmarks.xopt.page import OPENING, OURS

_SEED = 1_000  # keeps the seeds of openings apart from those of lattices


def vocs() -> Any:
    """Strengths within their limits; the size is minimised."""
    bounds = {name: [-LIMIT, LIMIT] for name in QUADRUPOLES}
    return VOCS(variables=bounds, objectives={"size": "MINIMIZE"})


PLAYERS: dict[str, Callable[[int], Generator]] = {
    OURS: lambda seed: TimeVaryingUCBGenerator(vocs=vocs(), seed=seed),
    "Xopt, time-dependent UCB": lambda seed: TDUpperConfidenceBoundGenerator(vocs=vocs(), added_time=0.9),
    "Xopt, UCB": lambda seed: UpperConfidenceBoundGenerator(vocs=vocs()),
    "Xopt, Nelder-Mead": lambda seed: NelderMeadGenerator(vocs=vocs()),
    "random": lambda seed: RandomGenerator(vocs=vocs()),
}


def play(build: Callable[[int], Any], shots: int, seed: int) -> pd.DataFrame:
    """One run of the generator that ``build(seed)`` gives: value without noise and its seconds of processor time at
    every shot. Shots are a second apart on the clock that Xopt reads. A failure (of a fit, say) costs a shot at the
    point before."""
    lattice, clock = DriftingLattice(seed), SimulatedClock(1.0, 0.01)
    torch.manual_seed(seed)
    opening = torch.Generator().manual_seed(_SEED + seed)
    generator = build(seed)
    rows, point = [], torch.zeros(4, dtype=torch.float64)
    with xopt_reads(clock):
        for shot in range(shots):
            clock.now, failed, began = float(shot), 0, time.process_time()
            if shot < OPENING:
                point = (2 * torch.rand(4, generator=opening, dtype=torch.float64) - 1) * LIMIT
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        (chosen,) = generator.generate(1)
                        point = torch.tensor([float(chosen[q]) for q in QUADRUPOLES], dtype=torch.float64)
                    except (RuntimeError, ValueError):
                        failed = 1
            seconds = time.process_time() - began
            with torch.no_grad():
                value = float(lattice.value(point, torch.tensor(shot)))
            data = dict(zip(QUADRUPOLES, point.tolist(), strict=True)) | {"time": float(shot)}
            data["size"] = value + float(lattice.noise[shot])  # what the screen shows
            began = time.process_time()
            generator.add_data(pd.DataFrame([data]))
            seconds += time.process_time() - began
            rows.append((shot, value, seconds, failed))
    return pd.DataFrame(rows, columns=["shot", "value", "seconds", "failed"])

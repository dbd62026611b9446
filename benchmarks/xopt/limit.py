"""What the drift alone costs: ``python -m benchmarks.xopt.limit``.

A tracker that knows the beam line exactly descends along the exact gradient from the best strengths. Beside it the same
strengths are played as many shots late as it takes to learn where they are.
"""

import pandas as pd
import torch

from benchmarks.options import Out, command
from benchmarks.pages import keep, results_folder, say
from benchmarks.xopt.lattice import LIMIT, SHOTS, DriftingLattice
from benchmarks.xopt.page import LATE, OPENING, TRACKER

LAGS = (5, 10, 20)  # shots
SAME = 150  # shots that every generator has, for a mean of their own
SEEDS = range(10, 15)
_RATE, _STEPS, _DRAWS = 0.05, 12, 20_000


def errors(seed: int, shots: int) -> pd.DataFrame:
    """Error of every shot after the opening, of the tracker and of its strengths so many shots late."""
    lattice = DriftingLattice(seed)
    generator = torch.Generator().manual_seed(seed)
    drawn = (2 * torch.rand(_DRAWS, 4, generator=generator, dtype=torch.float64) - 1) * LIMIT
    with torch.no_grad():
        k = drawn[lattice.value(drawn, torch.tensor(0)).argmin()].clone().requires_grad_(True)
    optimiser, path = torch.optim.Adam([k], lr=_RATE), []
    for shot in range(shots):
        for _ in range(_STEPS):
            optimiser.zero_grad()
            lattice.value(k, torch.tensor(shot)).backward()
            optimiser.step()
            with torch.no_grad():
                k.clamp_(-LIMIT, LIMIT)
        path.append(k.detach().clone())
    played = torch.stack(path)
    first = max(OPENING, *LAGS)
    shot = torch.arange(first, shots)
    least, of = lattice.least(shots)[first:], {TRACKER: played[first:]}
    of |= {LATE.format(lag): played[first - lag : shots - lag] for lag in LAGS}
    with torch.no_grad():
        found = {name: lattice.value(points, shot) - least for name, points in of.items()}
    return pd.DataFrame(found).assign(shot=shot.numpy())


def main(out: Out = None) -> None:
    """Play, and keep each seed as soon as it is there."""
    torch.set_num_threads(1)
    for seed in SEEDS:
        error = errors(seed, SHOTS)
        early = error[error["shot"] < SAME]
        names = error.columns.drop("shot")
        rows = [(seed, name, early[name].mean(), error[name].mean()) for name in names]
        table = pd.DataFrame(rows, columns=["seed", "what", "early", "all"])
        keep(results_folder(__file__, out) / "limit.csv", table, ("seed", "what"))
        say(table.to_string(index=False))


if __name__ == "__main__":
    command(main)()

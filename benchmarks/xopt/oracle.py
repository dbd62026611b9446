"""What knowing the hyperparameters is worth on the beam line: ``python -m benchmarks.xopt.oracle``.

An upper confidence bound of the width of ours, 1, over an exact Gaussian process of all shots, whose hyperparameters
maximise the marginal likelihood of 500 values that no generator sees: drawn over all strengths and shots, or the
smallest tenth of 5 000, since a generator soon plays where values are small.
"""

from functools import partial
from typing import Any

import pandas as pd
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.options import Out, command
from benchmarks.pages import keep, results_folder, say
from benchmarks.xopt.lattice import LIMIT, NOISE, QUADRUPOLES, DriftingLattice
from benchmarks.xopt.page import OPENING, ORACLE, ORACLE_OF_LEAST, OURS
from benchmarks.xopt.playing import PLAYERS, play

_FITTED, _SPAN = 500, 100.0  # values that hyperparameters are fitted to; shots in a unit of time
_RESTARTS, _RAW = 6, 128
SHOTS, SEEDS = 150, range(110, 115)  # development lines begin at 100


def _inputs(strengths: Tensor, shot: Tensor) -> Tensor:
    """Strengths on [0, 1] and the shot in units of ``_SPAN``."""
    return torch.cat([(strengths / LIMIT + 1) / 2, shot.double().unsqueeze(-1) / _SPAN], -1)


def _model(X: Tensor, y: Tensor) -> SingleTaskGP:
    space, time = MaternKernel(2.5, ard_num_dims=4, active_dims=(0, 1, 2, 3)), RBFKernel(active_dims=(4,))
    noise = torch.full_like(y, NOISE**2)
    return SingleTaskGP(X, y, noise, covar_module=ScaleKernel(space * time), outcome_transform=None)


class Oracle:
    """A generator as ``play`` asks it, given the hyperparameters of this seed's line, fitted to the least of ``drawn``
    values."""

    def __init__(self, seed: int, shots: int, drawn: int) -> None:
        lattice, generator = DriftingLattice(seed), torch.Generator().manual_seed(seed)
        uniform = torch.rand(drawn, 5, generator=generator, dtype=torch.float64)
        strengths, shot = (2 * uniform[:, :4] - 1) * LIMIT, (uniform[:, 4] * shots).long()
        with torch.no_grad():
            y = -lattice.value(strengths, shot).unsqueeze(-1)
        used = y[:, 0].topk(_FITTED).indices
        fitted = _model(_inputs(strengths, shot)[used], y[used])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(fitted.likelihood, fitted))
        self._known = {name: value for name, value in fitted.state_dict().items() if "likelihood" not in name}
        self._strengths, self._y = (torch.zeros(0, columns, dtype=torch.float64) for columns in (4, 1))

    def add_data(self, data: pd.DataFrame) -> None:
        strengths = torch.tensor(data[list(QUADRUPOLES)].to_numpy(), dtype=torch.float64)
        self._strengths = torch.cat([self._strengths, strengths])
        self._y = torch.cat([self._y, -torch.tensor(data["size"].to_numpy()).double().unsqueeze(-1)])

    def generate(self, count: int) -> list[dict[str, Any]]:
        now = len(self._y)
        model = _model(_inputs(self._strengths, torch.arange(now)), self._y)
        model.load_state_dict(self._known, strict=False)
        bounds = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=torch.float64)
        bounds = torch.cat([bounds, torch.full((2, 1), now / _SPAN, dtype=torch.float64)], -1)
        found, _ = optimize_acqf(
            UpperConfidenceBound(model, beta=1.0),
            bounds,
            q=1,
            num_restarts=_RESTARTS,
            raw_samples=_RAW,
            fixed_features={4: now / _SPAN},
        )
        strengths = (2 * found[0, :4] - 1) * LIMIT
        return [dict(zip(QUADRUPOLES, strengths.tolist(), strict=True))]


def main(out: Out = None) -> None:
    """Play, and keep each seed as soon as it is there."""
    torch.set_num_threads(1)
    for seed in SEEDS:
        least = DriftingLattice(seed).least(SHOTS)
        given = {ORACLE: _FITTED, ORACLE_OF_LEAST: 10 * _FITTED}
        players = {name: partial(Oracle, shots=SHOTS, drawn=drawn) for name, drawn in given.items()}
        for name, build in ({OURS: PLAYERS[OURS]} | players).items():
            error = play(build, SHOTS, seed)["value"].to_numpy() - least.numpy()
            row = (seed, name, error[OPENING:].mean(), error[SHOTS // 2 :].mean())
            table = pd.DataFrame([row], columns=["seed", "what", "error", "late"])
            keep(results_folder(__file__, out) / "oracle.csv", table, ("seed", "what"))
            say(table.to_string(index=False))


if __name__ == "__main__":
    command(main)()

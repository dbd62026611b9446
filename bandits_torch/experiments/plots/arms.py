"""Which arm was pulled when."""

from __future__ import annotations

from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.legend import Legend
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import (
    COLOURS,
    axes_or_new,
    check_replicate,
    finish,
    named,
    title_of,
)
from bandits_torch.history import History


def plot_arms(
    history: History,
    ax: Axes | None = None,
    *,
    replicate: int = 0,
    best: Tensor | None = None,
    positions: Tensor | None = None,
    coordinate: int = 0,
) -> Axes:
    """The arm pulled at each step of one replicate, as dots, beside the best arm, as a line.

    Args:
        history: of one run.
        ax: axes to draw on; None: a new figure.
        replicate: its row in the history, from 0.
        best: (R, T) or (T,) index of the best arm at each step (``best_arms``), with one row for each replicate
            or one for all; None: no line.
        positions: (N,) vertical position of each arm (its coordinate, its rank); None: its index.
        coordinate: which of the d coordinates to draw, for a history over a continuous domain.

    Raises ValueError for a replicate or coordinate that does not exist, for ``best`` or ``positions`` of another size,
    and for either of them on a continuous domain.
    """
    check_replicate(history, replicate)
    points = history.arms.dim() == 3
    if points:
        validation.require(best is None, "best", best, "None where points were played")
        validation.require(positions is None, "positions", positions, "None where points were played")
        d = history.arms.shape[-1]
        validation.require(coordinate in range(d), "coordinate", coordinate, f"an integer in 0, ..., {d - 1}")
    T = history.horizon
    arms = history.arms[replicate, :, coordinate] if points else history.arms[replicate]
    steps = np.arange(1, T + 1)
    if positions is not None:
        most = int(arms.max() if best is None else max(arms.max(), best.max())) + 1
        ok = positions.dim() == 1 and len(positions) >= most
        validation.shape_is("positions", positions, ok, f"(N,), with N at least {most}")
    ax = axes_or_new(ax, height=3.5)
    size = float(np.clip(4000 / T, 3, 24))
    ax.scatter(
        steps,
        _at(arms, positions),
        s=size,
        color=COLOURS[0],
        alpha=0.7,
        linewidths=0,
        label="point played" if points else "arm pulled",
    )
    if best is not None:
        rows = best.reshape(-1, best.shape[-1])
        ok = rows.shape[-1] == T and rows.shape[0] in (1, history.replicates)
        validation.shape_is("best", best, ok, f"({T},), (1, {T}) or ({history.replicates}, {T})")
        row = rows[replicate if len(rows) > 1 else 0]
        ax.plot(
            steps,
            _at(row, positions),
            drawstyle="steps-mid",
            color=COLOURS[1],
            linewidth=1.2,
            label="best arm",
        )
    ax.set_xlim(0, T + 1)
    ((name, _),) = named(history).items()
    text = title_of({name: history}, f"{name}, replicate {replicate}")
    label = f"coordinate {coordinate}" if points else "arm" if positions is None else "position of the arm"
    finish(ax, text, "step", label, legend=True)
    cast(PathCollection, cast(Legend, ax.get_legend()).legend_handles[0]).set_sizes(
        [24.0]
    )  # however small the dots
    return ax


def _at(arms: Tensor, positions: Tensor | None) -> np.ndarray:
    return (arms if positions is None else positions.cpu()[arms.cpu()]).cpu().numpy()

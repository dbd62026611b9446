"""Which arms were pulled when, and which were best: step by step, or as shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import (
    COLOURS,
    axes_or_new,
    check_replicate,
    finish,
    label_rows,
    named,
    title_of,
)
from bandits_torch.history import History

_SHARES = LinearSegmentedColormap.from_list("pulls", [to_rgba(COLOURS[0], a) for a in (0.0, 0.6, 1.0)])
_LONGEST_NAME = 18


def plot_arms(
    history: History,
    ax: Axes | None = None,
    *,
    replicate: int = 0,
    best: Tensor | None = None,
    positions: Tensor | None = None,
    coordinate: int = 0,
) -> Axes:
    """The arm pulled at each step of one replicate, as dots, with the best arm as a line.

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
    if best is not None:
        validation.tensor("best", best)
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
        validation.tensor("positions", positions)
        most = int(arms.max() if best is None else max(arms.max(), best.max())) + 1
        ok = positions.dim() == 1 and len(positions) >= most
        validation.shape_is("positions", positions, ok, f"(N,), with N at least {most}")
    ax = axes_or_new(ax, height=3.5)
    size = float(np.clip(4000 / T, 3, 24))
    what = "point played" if points else "arm pulled"
    dots: Any = {"s": size, "color": COLOURS[0], "alpha": 0.7, "linewidths": 0, "label": what}
    ax.scatter(steps, _at(arms, positions), **dots)
    if best is not None:
        rows = best.reshape(-1, best.shape[-1])
        ok = rows.shape[-1] == T and rows.shape[0] in (1, history.replicates)
        validation.shape_is("best", best, ok, f"({T},), (1, {T}) or ({history.replicates}, {T})")
        row = rows[replicate if len(rows) > 1 else 0]
        look: Any = {"drawstyle": "steps-mid", "color": COLOURS[1], "linewidth": 1.2, "label": "best arm"}
        ax.plot(steps, _at(row, positions), **look)
    ax.set_xlim(0, T + 1)
    ((name, _),) = named(history).items()
    text = title_of({name: history}, f"{name}, replicate {replicate}")
    label = f"coordinate {coordinate}" if points else "arm" if positions is None else "position of the arm"
    finish(ax, text, "step", label, legend=True)
    legend: Any = ax.get_legend()
    legend.legend_handles[0].set_sizes([24.0])  # however small the dots
    return ax


def _at(arms: Tensor, positions: Tensor | None) -> np.ndarray:
    return (arms if positions is None else positions.cpu()[arms.cpu()]).cpu().numpy()


def plot_pulls(
    history: History,
    best: Tensor,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    most: int = 24,
    columns: int = 50,
) -> Axes:
    """How often each arm was pulled, stretch by stretch, as depth of colour, and a bar at the arm best most often.

    Args:
        history: of a run over arms; shares are over the steps of a stretch and the replicates.
        best: (R, T) index of the best arm at each step (``best_arms``), R 1 or the history's replicates.
        ax: where to draw; None: in a new figure.
        names: of the N arms, shown as they are; None: their numbers.
        most: the largest number of arms shown: those pulled or best most often.
        columns: stretches, at most.

    Raises ValueError for a history over points, ``best`` of another shape, fewer names than arms, and ``most`` or
    ``columns`` below 1.
    """
    validation.require(history.arms.dim() == 2, "history", tuple(history.arms.shape), "of a run over arms")
    T = history.horizon
    ok = (
        validation.tensor("best", best).dim() == 2
        and best.shape[1] == T
        and best.shape[0] in (1, history.replicates)
    )
    validation.shape_is("best", best, ok, f"(1, {T}) or ({history.replicates}, {T})")
    count = int(max(history.arms.max(), best.max())) + 1
    if names is not None:
        validation.require(len(names) >= count, "names", len(names), f"names of {count} or more arms")
        count = len(names)
    columns = min(validation.positive_integer("columns", columns), T)
    pulled, was_best = (_shares(arms, count, columns) for arms in (history.arms, best))
    shown = (pulled.sum(-1) + was_best.sum(-1)).topk(min(validation.positive_integer("most", most), count))
    order = shown.indices.sort().values
    ax = axes_or_new(ax, height=1.2 + 0.2 * len(order))
    extent = (0.5, T + 0.5, len(order) - 0.5, -0.5)
    ax.imshow(
        pulled[order].numpy(), _SHARES, aspect="auto", vmin=0, vmax=1, extent=extent, interpolation="nearest"
    )
    _mark_best(ax, was_best[order], T)
    labels = [_short(str(n) if names is None else names[n]) for n in order.tolist()]
    label_rows(ax, labels, fontsize=8)
    ax.set_ylim(len(order) - 0.5, -0.5)
    ((name, _),) = named(history).items()
    finish(ax, title_of({name: history}, f"arms that {name} pulled; bars: the best arm"), "step", "")
    ax.grid(visible=False)
    return ax


def _shares(arms: Tensor, count: int, columns: int) -> Tensor:
    """(N, columns): share of each arm among the steps of a stretch and the rows."""
    T = arms.shape[1]
    stretch = torch.arange(T) * columns // T
    cells = (arms * columns + stretch).flatten()
    counts = torch.bincount(cells, minlength=count * columns).reshape(count, columns).double()
    return counts / counts.sum(0)


def _mark_best(ax: Axes, was_best: Tensor, horizon: int) -> None:
    """A bar over each stretch, at the arm that was best most often in it."""
    columns = was_best.shape[1]
    row = was_best.argmax(0).numpy()
    edges = np.ceil(np.arange(columns + 1) * horizon / columns) + 0.5
    ax.hlines(row, edges[:-1], edges[1:], color=COLOURS[1], linewidth=1.6)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"

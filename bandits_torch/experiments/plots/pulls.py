"""Which arms were pulled over time, as shares, beside those that were best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import COLOURS, axes_or_new, finish, named, title_of
from bandits_torch.history import History

_SHARES = LinearSegmentedColormap.from_list("pulls", [to_rgba(COLOURS[0], a) for a in (0.0, 0.6, 1.0)])
_LONGEST_NAME = 18


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
        names: of the N arms; None: their numbers. They are shown as they are written.
        most: of more arms, only as many are shown as were pulled or best most often.
        columns: stretches, at most.

    Raises ValueError for a history over points, ``best`` of another shape, fewer names than arms, and ``most`` or
    ``columns`` below 1.
    """
    validation.require(history.arms.dim() == 2, "history", tuple(history.arms.shape), "of a run over arms")
    T = history.horizon
    ok = best.dim() == 2 and best.shape[1] == T and best.shape[0] in (1, history.replicates)
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
    ax.set_yticks(range(len(order)), labels, fontsize=8)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)  # an arm may be called $x
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

"""Plots of what happened in runs: regret, summed over the steps and start by start, and the arms that were pulled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import (
    COLOURS,
    GREY,
    axes_or_new,
    check_replicate,
    finish,
    label_rows,
    looks,
    named,
    shortened,
    thinned,
    title_of,
)
from bandits_torch.history import History, standard_error

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
    points, T = history.arms.dim() == 3, history.horizon
    if points:
        validation.require(best is None, "best", best, "None where points were played")
        validation.require(positions is None, "positions", positions, "None where points were played")
        d = history.arms.shape[-1]
        validation.require(coordinate in range(d), "coordinate", coordinate, f"an integer in 0, ..., {d - 1}")
    if best is not None:
        best = validation.of_shape("best", best, (T,), (1, T), (history.replicates, T)).reshape(-1, T)
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
    ax.scatter(steps, _at(arms, positions), size, COLOURS[0], alpha=0.7, linewidths=0, label=what)
    if best is not None:
        row = _at(best[replicate if len(best) > 1 else 0], positions)
        ax.plot(steps, row, drawstyle="steps-mid", color=COLOURS[1], linewidth=1.2, label="best arm")
    ax.set_xlim(0, T + 1)
    ((name, _),) = named(history).items()
    text = title_of({name: history}, f"{name}, replicate {replicate}")
    label = f"coordinate {coordinate}" if points else "arm" if positions is None else "position of the arm"
    finish(ax, text, "step", label, legend=True)
    if positions is None and not points:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
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
    validation.of_shape("best", best, (1, T), (history.replicates, T))
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
    look: Any = {"aspect": "auto", "vmin": 0, "vmax": 1, "interpolation": "nearest"}
    ax.imshow(pulled[order].numpy(), _SHARES, extent=extent, **look)
    edges = np.ceil(np.arange(columns + 1) * T / columns) + 0.5
    ax.hlines(was_best[order].argmax(0).numpy(), edges[:-1], edges[1:], color=COLOURS[1], linewidth=1.6)
    labels = [shortened(str(n) if names is None else names[n], _LONGEST_NAME) for n in order.tolist()]
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


_LABEL_GAP = 0.048  # least distance between two labels, as a share of the axes' height
_ARROW = {"relpos": (0.0, 0.5), "shrinkA": 1, "shrinkB": 0}
_OFF_SCALE = 5.0  # lines that end above this many times the median line don't set the scale


def plot_regret(
    histories: History | Mapping[str, History],
    ax: Axes | None = None,
    *,
    random: Tensor | None = None,
    labels: bool = True,
) -> Axes:
    """Mean cumulative regret of each policy by step, in a band of ± two standard errors, down to no regret at most.

    Args:
        histories: by label of the line; or a single one.
        ax: axes to draw on; None: a new figure, ``axes.figure``, which pyplot does not manage.
        random: (R, T) expected regret of the random policy (``random_regret``), drawn as a dotted reference.
        labels: False: no names beside the lines, for a picture whose colours are explained elsewhere.

    Each line is labelled at its end with its name and final value. A single replicate has no band. The axis
    ends at five times the median final value, so that one bad policy does not flatten the others; labels of lines
    beyond it have an arrow.

    Raises ValueError without a history to draw.
    """
    shown = named(histories)
    ax = axes_or_new(ax)
    look = looks(shown)
    lines = [_draw(ax, name, history.cumulative_regret, *look[name]) for name, history in shown.items()]
    if random is not None:
        cumulative = random.cumsum(-1).mean(0, keepdim=True)
        lines.append(_draw(ax, "random (expected)", cumulative, GREY, (0, (1, 1.5))))
    usual = [line for line in lines if line.end <= _OFF_SCALE * np.median([line.end for line in lines])]
    low, high = min(0.0, *(line.low for line in lines)), max(line.high for line in usual or lines)
    room = 0.05 * (high - low) or 1.0
    ax.set(xlim=(0, max(history.horizon for history in shown.values())))
    ax.set(ylim=(low - room if low < 0 else 0.0, high + room))
    if labels:
        _label_ends(ax, lines)
    most = max(history.replicates for history in shown.values())
    text = f"mean of {most} replicates ± 2 standard errors" if most > 1 else "one replicate"
    return finish(ax, title_of(shown, text), "step", "cumulative regret")


class _Line(NamedTuple):
    """A drawn line: its name, its end, and the lowest and highest point of its band."""

    name: str
    colour: str
    end: float
    low: float
    high: float


def _draw(ax: Axes, name: str, cumulative: Tensor, colour: str, dash: Any) -> _Line:
    """Draw one line with its band, thinned to at most 1000 points."""
    S, T = cumulative.shape
    kept = thinned(T)
    steps, mean = kept + 1, cumulative.mean(0)[kept].numpy()
    error = 2 * standard_error(cumulative)[kept].numpy() if S > 1 else np.zeros_like(mean)
    low, high = np.maximum(mean - error, np.minimum(mean, 0.0)), mean + error
    ax.plot(steps, mean, linewidth=1.6, color=colour, linestyle=dash, label=name)
    if S > 1:
        ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    return _Line(name, colour, float(mean[-1]), float(low.min()), float(high.max()))


def _label_ends(ax: Axes, lines: list[_Line]) -> None:
    """Write names at the right ends of the lines, moved apart where they would overlap.

    Their places are as close to the ends as a minimal gap between neighbours allows: least squares over ascending
    z_i = place_i - i gap (isotonic regression), then clamped.
    """
    lines = sorted(lines, key=lambda line: line.end)
    low, high = ax.get_ylim()
    wanted = [min(1.0, (line.end - low) / (high - low)) for line in lines]
    apart = min(_LABEL_GAP, 1 / len(lines)) * np.arange(len(lines))
    places = isotonic_regression(wanted - apart).x.clip(0.0, 1 - apart[-1]) + apart
    for place, at, line in zip(places.tolist(), wanted, lines, strict=True):
        ax.annotate(
            f"{line.name}  {line.end:.4g}{' ↑' if line.end > high else ''}",
            xy=(1.0, at),
            xytext=(1.03, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=line.colour,
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": line.colour, "linewidth": 0.6, **_ARROW},
            annotation_clip=False,
        )


def plot_starts(regret: Mapping[str, Tensor], random: Tensor, ax: Axes | None = None) -> Axes:
    """Regret of each policy on each unit (a start of a record, a replicate) as a share of random play's, and its mean.

    Args:
        regret: by policy, (K,) each (``Starts.regret``).
        random: (K,) expected regret of drawing arms at random.
        ax: where to draw; None: in a new figure.

    A dot is a unit, and the tick is the mean. The policy with the least mean comes first. Shares are of the mean of
    ``random`` over the units.

    Raises ValueError without a policy, and for regrets of another shape.
    """
    validation.require(len(regret) > 0, "regret", dict(regret), "of one policy or more")
    validation.tensor("random", random)
    for name, values in regret.items():
        validation.of_shape(f"regret of {name}", values, random.shape)
    ax = axes_or_new(ax, height=1.2 + 0.32 * len(regret))
    colours = {name: colour for name, (colour, _) in looks(regret).items()}
    order = sorted(regret, key=lambda name: float(regret[name].mean()))
    for row, name in enumerate(order):
        shares = (100 * regret[name] / random.mean()).double().numpy()
        at = np.full(len(shares), row)
        ax.plot(shares, at, "o", alpha=0.45, markersize=5, markeredgewidth=0, color=colours[name])
        ax.plot(shares.mean(), row, "|", color=colours[name], markersize=16, markeredgewidth=2.4)
    ax.axvline(100, color=GREY, linestyle=":", linewidth=0.9, zorder=0)
    ax.set_yticks(range(len(order)), order, fontsize=9)
    ax.set(ylim=(len(order) - 0.5, -0.5), xlim=(min(0.0, ax.get_xlim()[0]), None))
    finish(ax, f"{len(random)} starts, and their mean", "% of what drawing at random loses", "")
    ax.grid(visible=False, axis="y")
    return ax

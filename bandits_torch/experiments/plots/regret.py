"""Plots of regret: summed over the steps, with a label at the end of each line, and start by start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy.optimize import isotonic_regression
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import GREY, axes_or_new, finish, looks, named, thinned, title_of
from bandits_torch.history import History, standard_error

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
    _scale(ax, lines, max(history.horizon for history in shown.values()))
    if labels:
        _label_ends(ax, lines)
    most = max(history.replicates for history in shown.values())
    text = f"mean of {most} replicates ± 2 standard errors" if most > 1 else "one replicate"
    return finish(ax, title_of(shown, text), "step", "cumulative regret")


@dataclass(frozen=True)
class _Line:
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


def _scale(ax: Axes, lines: list[_Line], horizon: int) -> None:
    """Limits of the axes: from 0 to the highest line, those far above the others left aside."""
    shown = [line for line in lines if line.end <= _OFF_SCALE * np.median([line.end for line in lines])]
    low, high = min(0.0, *(line.low for line in lines)), max(line.high for line in shown or lines)
    room = 0.05 * (high - low) or 1.0
    ax.set(xlim=(0, horizon), ylim=(low - room if low < 0 else 0.0, high + room))


def _label_ends(ax: Axes, lines: list[_Line]) -> None:
    """Write names at the right ends of the lines, moved apart where they would overlap."""
    lines = sorted(lines, key=lambda line: line.end)
    low, high = ax.get_ylim()
    wanted = [min(1.0, (line.end - low) / (high - low)) for line in lines]
    for place, at, line in zip(_spread(wanted), wanted, lines, strict=True):
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


def _spread(wanted: list[float]) -> list[float]:
    """Places in [0, 1] as close to the wanted ones (ascending) as a minimal gap between neighbours allows.

    Least squares over ascending z_i = place_i - i gap (isotonic regression), then clamped.
    """
    gap = min(_LABEL_GAP, 1 / len(wanted))
    steps = gap * np.arange(len(wanted))
    return (isotonic_regression(wanted - steps).x.clip(0.0, 1 - steps[-1]) + steps).tolist()


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
        fits = validation.tensor(f"regret of {name}", values).shape == random.shape
        validation.shape_is(f"regret of {name}", values, fits, f"{tuple(random.shape)}")
    ax = axes_or_new(ax, height=1.2 + 0.32 * len(regret))
    colours = {name: colour for name, (colour, _) in looks(regret).items()}
    order = sorted(regret, key=lambda name: float(regret[name].mean()))
    for row, name in enumerate(order):
        shares = (100 * regret[name] / random.mean()).double().numpy()
        dots: Any = {"alpha": 0.45, "markersize": 5, "markeredgewidth": 0, "color": colours[name]}
        ax.plot(shares, np.full(len(shares), row), "o", **dots)
        ax.plot(shares.mean(), row, "|", color=colours[name], markersize=16, markeredgewidth=2.4)
    ax.axvline(100, color=GREY, linestyle=":", linewidth=0.9, zorder=0)
    ax.set_yticks(range(len(order)), order, fontsize=9)
    ax.set(ylim=(len(order) - 0.5, -0.5), xlim=(min(0.0, ax.get_xlim()[0]), None))
    finish(ax, f"{len(random)} starts, and their mean", "% of what drawing at random loses", "")
    ax.grid(visible=False, axis="y")
    return ax

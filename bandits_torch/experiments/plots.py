"""Pictures of regret, and of the priors behind it, that read without the table beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bandits_torch import validation
from bandits_torch.history import History, standard_error

_MOST_POINTS = 1000
_MOST_COLUMNS = 500
# Okabe and Ito's colours, told apart with any kind of colour vision; the eighth line starts over, dashed.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_LABEL_GAP = 0.048  # least distance between two labels, as a share of the axes' height
_OFF_SCALE = 5.0  # lines that end above this many times the median line don't set the scale


def plot_regret(
    histories: Mapping[str, History], ax: Axes | None = None, *, random: Tensor | None = None
) -> Axes:
    """Mean cumulative regret of each policy over the steps, in a band of two standard errors either way.

    Args:
        histories: by the names the lines shall have.
        ax: where to draw; None: in a new figure, ``axes.figure``, which no window manager knows of.
        random: (R, T) expected regret of playing at random (``random_regret``), drawn as a dotted reference.

    Each line is labelled at its end with its name and final value. A single replicate has no band. Lines that
    end above five times the median line leave through the top, and their labels say so with an arrow, so that
    one bad line does not press the others flat.
    """
    validation.require(len(histories) > 0, "histories", dict(histories), "at least one history")
    if ax is None:
        ax = Figure(figsize=(8, 5), dpi=150, layout="constrained").add_subplot()
    lines = []
    for i, (name, history) in enumerate(histories.items()):
        colour, dash = COLOURS[i % len(COLOURS)], _DASHES[i // len(COLOURS) % len(_DASHES)]
        lines.append(_draw(ax, name, history.cumulative_regret, colour, dash))
    if random is not None:
        cumulative = random.cumsum(-1).mean(0, keepdim=True)
        lines.append(_draw(ax, "random (expected)", cumulative, "#777777", (0, (1, 1.5))))
    _scale(ax, lines, max(history.horizon for history in histories.values()))
    _label_ends(ax, lines)
    ax.set_title(_title(histories), loc="left", fontsize=10)
    ax.set(xlabel="step", ylabel="cumulative regret")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def plot_priors(histories: Mapping[str, History], names: Sequence[str] | None = None) -> Figure:
    """Which prior was played when, how often in all, and how many survived; a row of panels for each policy.

    Args:
        histories: by policy; those whose trace has no ``prior`` are left out.
        names: of the P priors; default: their numbers, as many as were played.

    Left, the share of replicates that played each prior, over the steps; where the trace has ``surviving``, a line over
    it, by the axis on the right, is the mean number of surviving priors. Right, the share of all steps and replicates.
    Returns a figure that no window manager knows of.
    """
    played = {name: h.trace["prior"] for name, h in histories.items() if "prior" in h.trace}
    validation.require(
        len(played) > 0, "histories", list(histories), "at least one with 'prior' in its trace"
    )
    most = int(max(prior.max() for prior in played.values())) + 1
    count = most if names is None else len(names)
    validation.require(count >= most, "names", names, f"names of {most} or more priors")
    figure = Figure(figsize=(9, 0.6 + (0.9 + 0.11 * count) * len(played)), dpi=150, layout="constrained")
    axes = figure.subplots(len(played), 2, squeeze=False, sharey=True, width_ratios=[4, 1])
    ticks = list(range(count)) if names is None else [f"{p}  {name}" for p, name in enumerate(names)]
    for (left, right), (name, prior) in zip(axes, played.items(), strict=True):
        shares = torch.stack([(prior == p).double().mean(0) for p in range(count)])  # P x T
        steps = -(-prior.shape[1] // _MOST_COLUMNS)  # to a column
        columns = torch.nn.functional.avg_pool1d(shares, steps, ceil_mode=True).numpy()
        extent = (0.5, columns.shape[1] * steps + 0.5, count - 0.5, -0.5)
        left.imshow(columns, "Blues", aspect="auto", vmin=0, vmax=1, extent=extent, interpolation="nearest")
        left.set_xlim(0.5, prior.shape[1] + 0.5)
        left.set_title(name, loc="left", fontsize=10)
        left.set_yticks(range(count), ticks, fontsize=6)
        right.barh(range(count), shares.mean(-1).numpy(), color=COLOURS[0])
        right.set_xlim(0, 1)
        _draw_surviving(left, histories[name], count)
    axes[-1][0].set_xlabel("step (colour: share of replicates; line, right axis: priors surviving)")
    axes[-1][1].set_xlabel("share of all plays")
    return figure


def _draw_surviving(ax: Axes, history: History, count: int) -> None:
    if "surviving" not in history.trace:
        return
    mean = history.trace["surviving"].mean(0).numpy()
    twin = ax.twinx()
    twin.plot(np.arange(1, len(mean) + 1), mean, color=COLOURS[1], linewidth=1.4)
    twin.set_ylim(0, count + 0.5)
    twin.tick_params(axis="y", labelcolor=COLOURS[1], labelsize=7)


@dataclass(frozen=True)
class _Line:
    """A line as drawn: what it is called, where it ends, the lowest and highest point of its band."""

    name: str
    colour: str
    end: float
    low: float
    high: float


def _draw(ax: Axes, name: str, cumulative: Tensor, colour: str, dash: Any) -> _Line:
    """Draw one line with its band, thinned to at most 1000 points."""
    S, T = cumulative.shape
    kept = np.unique(np.linspace(0, T - 1, min(T, _MOST_POINTS)).round().astype(int))
    steps, mean = kept + 1, cumulative.mean(0)[kept].numpy()
    error = 2 * standard_error(cumulative)[kept].numpy() if S > 1 else np.zeros_like(mean)
    ax.plot(steps, mean, linewidth=1.6, color=colour, linestyle=dash)
    if S > 1:
        ax.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)
    return _Line(name, colour, float(mean[-1]), float((mean - error).min()), float((mean + error).max()))


def _scale(ax: Axes, lines: list[_Line], horizon: int) -> None:
    """Limits of the axes: from 0 to the highest line, those far above the others left aside."""
    shown = [line for line in lines if line.end <= _OFF_SCALE * np.median([line.end for line in lines])]
    low, high = min(0.0, *(line.low for line in lines)), max(line.high for line in shown or lines)
    room = 0.05 * (high - low) or 1.0
    ax.set(xlim=(0, horizon), ylim=(low - room if low < 0 else 0.0, high + room))


def _title(histories: Mapping[str, History]) -> str:
    problems = sorted(
        {str(history.meta["problem"]) for history in histories.values() if "problem" in history.meta}
    )
    most = max(history.replicates for history in histories.values())
    shown = f"mean of {most} replicates ± 2 standard errors" if most > 1 else "one replicate"
    return f"{', '.join(problems)}: {shown}" if problems else shown


def _label_ends(ax: Axes, lines: list[_Line]) -> None:
    """Names at the right of the lines' ends, pushed apart where they would overlap."""
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
            arrowprops={
                "arrowstyle": "-",
                "color": line.colour,
                "linewidth": 0.6,
                "relpos": (0.0, 0.5),
                "shrinkA": 1,
                "shrinkB": 0,
            },
            annotation_clip=False,
        )


def _spread(wanted: list[float]) -> list[float]:
    """Places in [0, 1] as near the wanted ones (ascending) as a least gap between neighbours allows.

    Least squares over ascending z_i = place_i - i gap: runs that collide share their mean; then clamped.
    """
    gap = min(_LABEL_GAP, 1 / len(wanted))
    runs: list[tuple[float, int]] = []  # mean of wanted_i - i gap over the run, and its length
    for i, want in enumerate(wanted):
        runs.append((want - i * gap, 1))
        while len(runs) > 1 and runs[-2][0] > runs[-1][0]:
            (last, n), (before, m) = runs.pop(), runs.pop()
            runs.append(((last * n + before * m) / (n + m), n + m))
    highest = 1 - (len(wanted) - 1) * gap
    starts = [min(max(start, 0.0), highest) for start, length in runs for _ in range(length)]
    return [start + i * gap for i, start in enumerate(starts)]

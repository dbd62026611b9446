"""The common style of all plots: colours, dashes, grids, and legends outside the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date
from matplotlib.figure import Figure
from torch import Tensor

from bandits_torch import validation
from bandits_torch.history import History

# Okabe and Ito's colours, and a brown: they differ for all kinds of colour vision. From the ninth line on, dashes too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E2C00", "#000000")
# For a dark page, without black.
ON_DARK = ("#4FA9E2", "#F0843F", "#2FC498", "#DD94C0", "#EFB23F", "#86CDF2", "#A65E2E")
DASHES = ("-", "--", ":", "-.")
GREY, GREY_ON_DARK = "#777777", "#9AA1AB"
GRID = "#DDDDDD"
_MOST_POINTS = 1000  # of a line


def looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and dashes of each line by its name; ``random`` is grey, so leaving it out changes no other line."""
    lines = [name for name in names if name != "random"]
    numbered = {
        name: (COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)])
        for i, name in enumerate(lines)
    }
    return numbered | {"random": (GREY, "--")}


def axes_or_new(ax: Axes | None, height: float = 5.0) -> Axes:
    """``ax``, or the axes of a new figure, 8 inches wide, which pyplot does not manage."""
    return ax or Figure(figsize=(8.0, height), dpi=150, layout="constrained").add_subplot()


def label_rows(ax: Axes, names: Sequence[str], **look: Any) -> None:
    """Write names at the rows 0, 1, ..., from top to bottom, literally: a name such as $x$ is not mathematics."""
    ax.set_yticks(range(len(names)), names, **look)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)
    ax.set_ylim(len(names) - 0.4, -0.6)


def shortened(names: Sequence[str], most: int) -> list[str]:
    """The names, cut to at most ``most`` characters: at the end, or, where that leaves several alike, at the beginning
    that these share."""
    cut = [_cut(name, most) for name in names]
    alike = {short: [name for name, one in zip(names, cut, strict=True) if one == short] for short in cut}
    for i, name in enumerate(names):
        group = alike[cut[i]]
        if len(set(group)) > 1:
            letters = enumerate(zip(*group, strict=False))
            shared = next((k for k, several in letters if len(set(several)) > 1), min(map(len, group)))
            word = name.rfind(" ", 0, shared) + 1
            begin = word if shared - word < most // 2 else shared  # the differing word, if it begins near
            begin = max(0, min(begin, len(name) - most + 1))  # and as much before it as there is room for
            cut[i] = _cut("…" + name[begin:], most)
    return cut


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def in_dates(ax: Axes, **about: Any) -> None:
    """Short dates on the horizontal axis; ``about``: arguments of ``AutoDateLocator``."""
    locator = AutoDateLocator(**about)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(_ShortDates(locator, tz=about.get("tz")))


class _ShortDates(ConciseDateFormatter):
    """Matplotlib writes the month of the last tick beside the axis; this writes only what all ticks share."""

    _shared = ""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        first, last = num2date([values[0], values[-1]], self._tz)
        formats = ("%Y-%b-%d %H:%M", "%Y-%b-%d", "%Y-%b", "%Y")
        shared = [last.strftime(form) for form in formats if last.strftime(form) == first.strftime(form)]
        self._shared = shared[0] if shared else f"{first:%Y} to {last:%Y}"
        return list(super().format_ticks(values))

    def get_offset(self) -> str:
        return min(super().get_offset(), self._shared, key=len)


def finish(ax: Axes, title: str, xlabel: str, ylabel: str, *, legend: bool = False) -> Axes:
    """Set the title, labels, a light grid, and a legend between title and axes, in as few rows as fit."""
    rows = 0
    if legend:
        names = ax.get_legend_handles_labels()[1]
        columns = fitting_columns(ax.figure, names)
        rows = -(-len(names) // columns)
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=columns,
            frameon=False,
            fontsize=8,
            borderaxespad=0.2,
            handlelength=1.5,
            columnspacing=1.2,
        )
        ax.yaxis.set_offset_position("right")  # "1e6" would lie on the legend
    ax.set_title(title, loc="left", fontsize=10, pad=6 + 16 * rows)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def fitting_columns(figure: Any, names: Sequence[str]) -> int:
    """The number of columns of a legend in small print that is no wider than the figure."""
    inches = figure.bbox.width / figure.dpi
    fitting = int(14 * inches / (max(map(len, names), default=0) + 8))  # 14 characters an inch
    return max(1, min(fitting, len(names)))


def named(histories: History | Mapping[str, History]) -> dict[str, History]:
    """Histories by name; a single history gets the name of its policy."""
    if isinstance(histories, History):
        return {str(histories.meta.get("policy", "policy")): histories}
    validation.instance("histories", histories, Mapping, "a History, or a mapping of names to histories")
    validation.require(len(histories) > 0, "histories", dict(histories), "at least one history")
    return dict(histories)


def with_trace(histories: Mapping[str, History], names: Sequence[str]) -> dict[str, History]:
    """The histories whose trace has all these names. Raises ValueError if there is none."""
    found = {name: h for name, h in histories.items() if all(one in h.trace for one in names)}
    expected = f"at least one with {', '.join(map(repr, names))} in its trace"
    validation.require(len(found) > 0, "histories", list(histories), expected)
    return found


def traced(history: History, name: str) -> Tensor:
    """The trace of this name for every replicate, (S, T), also if the history has one value per step for all."""
    return history.trace[name].expand(history.arms.shape[:2])


def title_of(histories: Mapping[str, History], text: str) -> str:
    """The names of the problems played, if known, followed by the text."""
    names = {str(history.meta["problem"]) for history in histories.values() if "problem" in history.meta}
    return f"{', '.join(sorted(names))}: {text}" if names else text


def thinned(horizon: int) -> np.ndarray:
    """Indices of at most 1000 steps to draw, evenly spread, with the first and the last."""
    return np.unique(np.linspace(0, horizon - 1, min(horizon, _MOST_POINTS)).round().astype(int))


def check_replicate(history: History, replicate: int) -> None:
    """Raise ValueError unless the history has this replicate, counting from 0."""
    ok = type(replicate) is int and 0 <= replicate < history.replicates
    validation.require(ok, "replicate", replicate, f"an integer in 0, ..., {history.replicates - 1}")


def mark_switches(ax: Axes, switches: Any) -> None:
    """Dotted vertical lines at the steps when a problem changed."""
    for step in switches:
        ax.axvline(step, color=GREY, linestyle=":", linewidth=0.9, zorder=0)

"""A plot of a table's diagnosis: levels of the arms over time, jumps, and the shape of the clearest cycle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from bandits_torch.experiments.plots.style import COLOURS, GREY, finish, fitting_columns, in_dates, shortened
from bandits_torch.problems.diagnosis import Diagnosis, unit_of
from bandits_torch.problems.periods import ROWS
from bandits_torch.problems.smoothing import mean_of_held, others_smoothed
from bandits_torch.problems.tables import RewardTable

_ARMS, _BINS, _PHASES, _SMOOTH, _LONGEST_NAME = 6, 1000, 24, 60, 20
_MARKS = "os^Dv*"  # of the arms, for a reader who does not see their colours


def plot_diagnosis(table: RewardTable, found: Diagnosis, figure: Figure | None = None) -> Figure:
    """Draw the levels of the arms, smoothed over a sixtieth of the time; jumps as dotted lines; and the clearest cycle,
    from the last rows, in which it was found.

    ``found``: the result of ``diagnose`` for the table. ``figure``: where to draw; None: a new one. If there are more
    than six arms, the five with the largest means and the one with the smallest mean are drawn.
    """
    figure = Figure(figsize=(8.0, 5.0), dpi=150, layout="constrained") if figure is None else figure
    rewards = table.rewards.numpy()
    T, N = rewards.shape
    times = np.arange(1.0, T + 1) if table.times is None else table.times.numpy()
    means = mean_of_held(rewards)
    order = np.argsort(-np.nan_to_num(means, nan=-np.inf))
    shown = order if N <= _ARMS else np.array([*order[: _ARMS - 1], order[-1]])
    cycle = found.periods[0] if found.periods else None
    axes = figure.subplots(1, 2, width_ratios=(2.4, 1)) if cycle is not None else [figure.subplots()]
    size = -(-T // _BINS)
    bins = np.split(
        np.arange(T), range(size, T, size)
    )  # of one size: a change of it would look like one of rewards
    middle = np.array([times[part].mean() for part in bins])
    dates = found.unit == "seconds" and table.dated
    unit, size = unit_of(float(times[-1] - times[0])) if found.unit == "seconds" else ("", 1)

    def place(moments: np.ndarray) -> np.ndarray:
        return np.asarray(date2num(moments.astype("datetime64[s]"))) if dates else moments / size

    x = place(middle)
    ax = axes[0]
    binned = np.stack([mean_of_held(rewards[part][:, shown]) for part in bins])
    levels = others_smoothed(binned, middle, max(1e-9, float(times[-1] - times[0])) / _SMOOTH)
    names = shortened([table.arm_names[n] for n in shown], _LONGEST_NAME)
    for k, (name, line) in enumerate(zip(names, levels.T, strict=True)):
        # Matplotlib reads mathematics between dollars, and leaves names with a leading underscore out of the legend.
        ax.plot(x, line, label=name.replace("$", r"\$").lstrip("_"), **_look(k, len(x)))
    for one in found.jumps or ():
        where = place(np.array([(times[one.before] + times[one.after]) / 2]))
        ax.axvline(float(where[0]), color=GREY, linestyle=":", linewidth=1.2, zorder=0)
    if dates:
        in_dates(ax)
    in_unit = "date" if dates else f"time ({unit}s)"
    what = {"rows": "row", "seconds": in_unit, "times": "time"}[found.unit]
    dotted = "; dotted: jumps" if found.jumps else ""
    finish(ax, f"Smoothed rewards{dotted}", what, "reward")
    figure.legend(frameon=False, fontsize=8, ncols=fitting_columns(figure, names), loc="outside lower center")
    if cycle is not None:
        ax = axes[1]
        rewards, times = rewards[-ROWS:], times[-ROWS:]  # an error of the length would blur a longer average
        phases = int(np.clip(len(times) / 30, 8, _PHASES))
        phase = np.floor(phases * ((times - times[0]) / cycle.length % 1.0)).astype(int) % phases
        centred = rewards - np.nan_to_num(mean_of_held(rewards))
        for k, n in enumerate(shown):
            curve = pd.Series(centred[:, n]).groupby(phase).mean().reindex(range(phases))
            ax.plot((np.arange(phases) + 0.5) / phases, curve, **_look(k, phases))
        finish(ax, f"A cycle of {found.span(cycle)}", "share of the cycle", "minus the arm's mean")
    return figure


def _look(k: int, points: int) -> dict[str, Any]:
    """The look of arm ``k``'s line through so many points: marks at about eight of them, between those of others."""
    every = max(1, points // 8)
    marks = {"marker": _MARKS[k], "markersize": 4, "markevery": (k * every // _ARMS, every)}
    return {"color": COLOURS[k], "linewidth": 1.2, **marks}

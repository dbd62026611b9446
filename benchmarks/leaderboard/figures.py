"""The leaderboard's pictures: who ranks where, and regret over the steps in every environment."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bandits_torch.experiments.plots import COLOURS

_GREY = "#BBBBBB"
_BEST = 5
_COLUMNS = 3
_DASHES = ("-", "--", ":")


def plot_ranks(ranks: pd.DataFrame) -> Figure:
    """Mean rank and its interval, a line per policy, best on top; filled: width of a theorem, open: a constant."""
    figure = Figure(figsize=(8, 1.2 + 0.24 * len(ranks)), dpi=150, layout="constrained")
    ax = figure.add_subplot()
    for place, (name, row) in enumerate(ranks.iterrows()):
        constant = " w=" in str(name)
        colour = COLOURS[1] if constant else COLOURS[0]
        ax.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2, alpha=0.5)
        face = "white" if constant else colour
        ax.plot(row["mean_rank"], place, "o", color=colour, markerfacecolor=face, markersize=6)
    best = ranks.iloc[0]
    ax.axvspan(best["low"], best["high"], color=COLOURS[2], alpha=0.12, linewidth=0)
    ax.set_yticks(range(len(ranks)), list(ranks.index), fontsize=8)
    ax.set_ylim(len(ranks) - 0.4, -0.6)
    ax.set_xlabel(
        "mean rank over the environments (1 is best); bar: 95 % bootstrap interval; band: the leader's"
    )
    ax.set_title("blue: the recipe's own settings; orange, open: a constant width", loc="left", fontsize=9)
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    return figure


def plot_environments(
    curves: pd.DataFrame, totals: pd.DataFrame, environments: Sequence[str], named: Sequence[str]
) -> Figure:
    """Mean cumulative regret over the steps, a panel per environment.

    Args:
        curves: columns environment, policy, step, mean_cumulative_regret, standard_error.
        totals: one row per environment, policy and replicate.
        named: policies in colour in every panel, in a band of two standard errors, with a legend; the others are grey,
            and the best of a panel, if grey, is named in it.
    """
    rows = math.ceil(len(environments) / _COLUMNS)
    figure = Figure(figsize=(11, 0.6 + 2.6 * rows), dpi=130, layout="constrained")
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).flatten()
    means = totals.groupby(["environment", "policy"])["regret"].mean()
    for ax, name in zip(panels, environments, strict=False):
        own = curves[curves["environment"] == name]
        _panel(ax, own, means[name], named)
        ax.set_title(name, loc="left", fontsize=9)
    for ax in panels[len(environments) :]:
        ax.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.supxlabel("step (grey: all other policies; bands: two standard errors)", fontsize=9)
    figure.supylabel("mean cumulative regret", fontsize=9)
    return figure


def _panel(ax: Axes, curves: pd.DataFrame, means: pd.Series, named: Sequence[str]) -> None:
    for policy, line in curves.groupby("policy", sort=False):
        if policy not in named:
            ax.plot(line["step"], line["mean_cumulative_regret"], color=_GREY, linewidth=0.7)
    for i, policy in enumerate(named):
        line = curves[curves["policy"] == policy]
        if line.empty:
            continue
        colour, dash = COLOURS[i % len(COLOURS)], _DASHES[i // len(COLOURS)]
        mean, error = line["mean_cumulative_regret"], 2 * line["standard_error"]
        ax.plot(line["step"], mean, color=colour, linestyle=dash, linewidth=1.5, label=policy)
        ax.fill_between(line["step"], mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)
    best = [str(name) for name in means.index[means == means.min()]]
    others = f" and {len(best) - 1} level" if len(best) > 1 else ""
    ax.text(0.03, 0.95, f"best: {best[0]}{others}", transform=ax.transAxes, va="top", fontsize=7.5)
    top = 1.15 * float(means.get("random", means.max()))
    ax.set(xlim=(0, int(curves["step"].max())), ylim=(0, top))
    ax.tick_params(labelsize=7)
    ax.spines[["top", "right"]].set_visible(False)

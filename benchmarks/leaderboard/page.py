"""RESULTS.md and the pictures of the leaderboard. Ranks, shares and their intervals are of one total of regret per
environment, policy and replicate."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

from bandits_torch.experiments import COLOURS
from bandits_torch.files import atomic_write
from benchmarks.leaderboard import settings
from benchmarks.leaderboard.running import Tables
from benchmarks.pages import render

RESAMPLES = 4000
LEVEL = 0.95
_NAMED = 7  # policies in colour, the best by rank, and random


def regrets(totals: pd.DataFrame, environments: list[str], policies: list[str]) -> list[np.ndarray]:
    """Totals of each environment, (policies, replicates), which may differ in replicates; ValueError where one is
    missing."""
    missing, made = [], []
    for environment in environments:
        own = totals[(totals["environment"] == environment) & totals["policy"].isin(policies)]
        table = own.pivot(index="policy", columns="replicate", values="regret").reindex(policies)
        missing += [str((environment, name)) for name in table.index[table.isna().any(axis=1)]]
        made.append(table.to_numpy())
    if missing:
        some = ", ".join(sorted(missing))
        raise ValueError(f"totals must have every replicate of every policy, missing some of {some}")
    return made


def mean_ranks(values: Sequence[np.ndarray]) -> np.ndarray:
    """(policies,) average over environments of the rank (1: least) of each policy's mean regret; ties share their
    ranks."""
    return rankdata(_means(values), axis=-1).mean(0)


def rank_intervals(
    values: Sequence[np.ndarray], resamples: int = RESAMPLES, level: float = LEVEL, seed: int = 0
) -> np.ndarray:
    """Percentile bootstrap intervals of ``mean_ranks``, (policies, 2): environments are drawn with replacement, and
    within each its replicates, the same ones for all policies, as they met the same functions and noise."""
    E, P = len(values), len(values[0])
    generator = np.random.default_rng(seed)
    times = generator.multinomial(E, [1 / E] * E, size=resamples)  # an environment is drawn, (resamples, E)
    total = np.zeros((resamples, P))
    for own, drawn in zip(values, times.T, strict=True):
        S = own.shape[-1]
        for turn in range(drawn.max(initial=0)):  # drawn twice, its replicates are drawn twice
            at = np.flatnonzero(drawn > turn)
            replicates = generator.integers(S, size=(len(at), S))
            total[at] += rankdata(own[:, replicates].mean(-1).T, axis=-1)
    means = total / E
    tail = 50 * (1 - level)
    return np.percentile(means, [tail, 100 - tail], axis=0).T


def _means(values: Sequence[np.ndarray]) -> np.ndarray:
    """Of each environment and policy, (environments, policies)."""
    return np.stack([own.mean(-1) for own in values])


def shares(values: Sequence[np.ndarray], random: int) -> np.ndarray:
    """Mean regret of each policy as a share of that of the policy number ``random``, (environments, policies)."""
    means = _means(values)
    return means / means[:, [random]]


def ranking(totals: pd.DataFrame, environments: list[str], policies: list[str]) -> pd.DataFrame:
    """A row per policy, best first: mean rank and its interval, the mean share of random's regret, and in how many
    environments no mean regret is less."""
    values = regrets(totals, environments, policies)
    low, high = rank_intervals(values).T
    means = _means(values)
    columns = {
        "mean_rank": mean_ranks(values),
        "low": low,
        "high": high,
        "share": shares(values, policies.index("random")).mean(0),
        "first": (means == means.min(-1, keepdims=True)).sum(0),
    }
    return pd.DataFrame(columns, index=pd.Index(policies, name="policy")).sort_values(["mean_rank", "share"])


def summary(totals: pd.DataFrame) -> pd.DataFrame:
    """By environment and policy: mean regret, its standard error, milliseconds a step of the first replicates."""
    groups = totals.sort_values("replicate", kind="stable").groupby(["environment", "policy"], sort=False)
    regret = groups["regret"]
    return pd.DataFrame(
        {
            "regret": regret.mean(),
            "standard_error": regret.std() / regret.count() ** 0.5,
            "ms_per_step": groups["ms_per_step"].first(),
        }
    )


def write_page(folder: Path) -> list[Path]:
    """Write the page and its pictures into the folder of the tables; returns their paths."""
    tables = Tables(folder)
    totals, curves = tables.totals, tables.curves
    played, policies, absent = _raced(totals)
    shown: dict[str, Any] = {"absent": absent}
    written = []
    if played and policies:
        ranked = totals[totals["environment"].isin(played) & totals["policy"].isin(policies)]
        ranks = ranking(ranked, played, policies)
        order = list(ranks.index)
        named = list(dict.fromkeys([*order[: _NAMED - 1], "random"]))
        shown |= {"played": played, "ranked": ranked, "ranks": ranks, "level": LEVEL, "resamples": RESAMPLES}
        of_random = shares(regrets(ranked, played, order), order.index("random")).T
        shown |= {
            "seed": settings.SEED,
            "known": summary(ranked),
            "shares": dict(zip(order, of_random, strict=True)),
        }
        written.append(_save(plot_ranks(ranks), folder / "ranks.png"))
        written.append(_save(plot_environments(curves, ranked, played, named), folder / "environments.png"))
    priors = [name for name in settings.WITH_PRIORS if name in set(totals["environment"])]
    if priors:
        others = totals[totals["environment"].isin(priors)]
        order = list(others.groupby("policy")["regret"].mean().sort_values().index)
        shown["priors"] = {"played": priors, "order": order, "totals": others, "known": summary(others)}
    return [render(folder / "RESULTS.md", "leaderboard/RESULTS.md.jinja", **shown), *written]


def _raced(totals: pd.DataFrame) -> tuple[list[str], list[str], list[str]]:
    """Environments that were played, policies that raced in all of them, and a line on everything left out."""
    pairs = set(totals[["environment", "policy"]].itertuples(index=False, name=None))
    played = [name for name in settings.RANKED if (name, "random") in pairs]
    lines = [f"* {name}: not played." for name in settings.RANKED if name not in played]
    ranked = []
    for policy in settings.POLICIES:
        absent = [name for name in played if (name, policy) not in pairs]
        if not absent:
            ranked.append(policy)
        elif absent == played:
            lines.append(f"* `{policy}`: not played.")
        else:
            lines.append(f"* `{policy}`: not ranked, as it was not played on {', '.join(absent)}.")
    return played, ranked, lines


def _save(figure: Figure, path: Path) -> Path:
    with atomic_write(path) as file:
        figure.canvas.print_figure(file, format="png")
    return path


_GREY = "#BBBBBB"
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
    """Mean cumulative regret over the steps, a panel per environment: policies named in colour, in a band of two
    standard errors, the others grey; the best of a panel is named in it."""
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

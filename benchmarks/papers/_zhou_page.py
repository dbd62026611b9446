"""Pictures, RESULTS.md and claims.csv of the measured theorems of Zhou & Shroff 2021, from their CSV files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bandits_torch.experiments.plots import COLOURS
from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._zhou_claims import COMMAND, SWEEPS, groups, make_claims, regrets, slope

_MARKS = {"R-GP-UCB": "o", "SW-GP-UCB": "s", "IGP-UCB": "^"}
_HEAD = """
The paper has theorems and no experiments: here its
bounds' growth is compared with measured regret.

Functions: f_t = cos(phi_t) g + sin(phi_t) h on 50 points of [0, 1], g and h orthogonal of norm B = 1 in the RKHS of the
squared exponential kernel (lengthscale 0.2), so that the norm of every f_t is B and P_T = sum |f_(t+1) - f_t| is met
exactly; a steady drift, or jumps of a quarter turn. Noise R = 0.1, lambda = R^2, delta = 0.1, 20 pairs (g, h). H and w
are the tuned gamma_T^(1/4) (T/P_T)^(1/2), or gamma_T^(1/4) T^(1/2) where P_T is unknown, gamma_T the greedy maximum.
Widths: "theory" is B + (R/sqrt(lambda)) sqrt(2 gamma + 2 ln(e/delta)) with the realised gamma and e = T/H or T;
"constant" the best of five constants at T = 1 000 on other functions. IGP-UCB never forgets.

A slope is fitted by least squares to the logarithm of the mean regret; its 95 % interval comes from 2 000 bootstrap
samples of the replicates. "Bound" is the slope, over the same points, of the bound itself with the constants of the
proof and the numeric gamma: what the exponent comes to at these horizons, logarithms and rounding included. A claim of
growth holds if the whole interval lies at or below the exponent, and is otherwise not decided. A bound is about the
worst function: measured growth below it does not prove it, and growth above it at finite horizons does not refute it,
as it may still be bending. Theorems 1 and 2 are vacuous in the sweeps, where random play meets their bounds too; at
T = 20 000 and lambda = 1 they lie below random play's regret for P_T = 1e-5 and above it for 1e-4, and the former is
played.
Standard errors are over 20 pairs of functions on one grid of arms.
"""

_BITES = """T = 20 000, P_T = 1e-5, lambda = 1 (R is 0.1 as before), the theorems' widths, H and w those of the least
bound; means of five pairs of functions. That H and w are T says it: where the theorems bite, they are those of a
function that stays.
"""


def write(out: Path) -> None:
    """Draw and write whatever there are CSV files for."""
    frames = {name: pd.read_csv(path) for name in SWEEPS if (path := out / f"{name}.csv").is_file()}
    gaps = pd.read_csv(out / "gap.csv") if (out / "gap.csv").is_file() else None
    bites = pd.read_csv(out / "bound.csv") if (out / "bound.csv").is_file() else None
    claims = make_claims(frames, gaps, bites)
    _claims.write(out, claims)
    head = _claims.opening("Zhou & Shroff 2021: restarts and windows", claims, COMMAND) + _HEAD
    parts = [head, "## What the paper says, and what was measured\n", _claims.table(claims)]
    for name, frame in frames.items():
        _draw(name, frame).savefig(out / f"{name}.png", dpi=100)
        parts += [
            f"## {SWEEPS[name].title}\n",
            f"![{SWEEPS[name].title}]({name}.png)\n",
            _table(name, frame),
        ]
    if bites is not None:
        means = bites.groupby("policy")[["memory", "regret", "bound", "random"]].mean().round(1)
        parts += ["## Where the bounds say something\n", _BITES, pages.markdown_of(means.reset_index())]
    if (out / "tuning.csv").is_file():
        tuning = pd.read_csv(out / "tuning.csv").pivot(index="width", columns="policy", values="regret")
        parts += ["## The constant widths\n", pages.markdown_of(tuning.reset_index().round(1))]
    pages.write(out / "RESULTS.md", "\n".join(parts))


def _table(name: str, frame: pd.DataFrame) -> str:
    rows = []
    for environment, lines in groups(name, frame):
        for policy, width, x, line in lines:
            regret, memory = regrets(line), line.groupby("x")["memory"].first()
            error = regret.std(0, ddof=1) / len(regret) ** 0.5
            cells = {
                f"{SWEEPS[name].axis} = {v:.5g}": f"{m:.4g} ± {e:.2g}"
                for v, m, e in zip(x, regret.mean(0), error, strict=True)
            }
            kept = "" if policy == "IGP-UCB" else f"{memory.iloc[0]} to {memory.iloc[-1]}"
            head = {"environment": environment, "policy": policy, "width": width, "H or w": kept}
            rows.append(head | {"slope": str(slope(x, regret))} | cells)
        random = frame if name == "gain" else frame[frame["environment"] == environment]
        means = random.groupby("x")["random"].mean()
        cells = {f"{SWEEPS[name].axis} = {v:.5g}": f"{m:.4g}" for v, m in means.items()}
        rows.append(
            {"environment": environment, "policy": "random (expected)", "width": "", "H or w": ""} | cells
        )
    return pages.markdown_of(pd.DataFrame(rows).fillna(""))


def _draw(name: str, frame: pd.DataFrame) -> Figure:
    """A panel for each environment: regret with two standard errors, on logarithmic axes, and the bound's exponent."""
    panels, sweep = groups(name, frame), SWEEPS[name]
    figure = Figure(figsize=(5.6 * len(panels) + 2.2, 4.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (environment, lines) in zip(axes, panels, strict=True):
        for policy, width, x, line in lines:
            regret = regrets(line)
            mean, error = regret.mean(0), 2 * regret.std(0, ddof=1) / len(regret) ** 0.5
            colour = COLOURS[list(_MARKS).index(policy)]
            dash, fill = ("-", colour) if width == "theory" else ("--", "white")
            style = {"color": colour, "linestyle": dash, "marker": _MARKS[policy], "markerfacecolor": fill}
            ax.errorbar(
                x, mean, np.minimum(error, 0.9 * mean), label=f"{policy}, {width} width", capsize=2, **style
            )
        part = frame if name == "gain" else frame[frame["environment"] == environment]
        random = part.groupby("x")["random"].mean()
        at = random.index.to_numpy(dtype=float)
        ax.plot(at, random.to_numpy(), color="#777777", linestyle=":", label="random (expected)")
        exponent, lowest = (
            sweep.exponent(environment),
            part.groupby(["policy", "width", "x"])["regret"].mean().min(),
        )
        guide = 0.5 * lowest * (at / at[0]) ** exponent
        ax.plot(at, guide, color="black", linewidth=0.8, label="slope of the bound's exponent")
        ax.annotate(
            f"slope {exponent:g}",
            (at[-1], guide[-1]),
            (0, 4),
            textcoords="offset points",
            fontsize=8,
            ha="right",
        )
        ax.set(xscale="log", yscale="log", xlabel=sweep.axis)
        ax.set_title(_PANEL.get((name, environment), environment), loc="left", fontsize=10)
        ax.grid(color="#DDDDDD", linewidth=0.6)
    axes[0].set_ylabel("dynamic regret over the run (± 2 standard errors)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    return figure


_PANEL = {
    ("horizon", "drift"): "steady drift, P_T fixed and known",
    ("horizon", "jumps"): "quarter turns, P_T fixed and known",
    ("budget", "known"): "steady drift, P_T known",
    ("budget", "unknown"): "steady drift, P_T unknown",
    ("gain", "drift"): "steady drift, P_T fixed and known",
}

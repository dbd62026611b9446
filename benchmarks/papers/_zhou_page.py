"""Pictures, claims.csv and RESULTS.md of the measured theorems of Zhou & Shroff 2021, from their CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bandits_torch.experiments.plots import COLOURS
from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._claims import (
    FAILS,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    UNTESTED,
    VACUOUS,
    Claim,
    Finding,
    judged,
    of_table,
)

PAPER = "Zhou & Shroff 2021"
COMMAND = "python -m benchmarks.papers zhou"
_OWN = ("R-GP-UCB", "SW-GP-UCB")


@dataclass(frozen=True)
class Slope:
    """Slope of the logarithms, with a 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def slope(x: np.ndarray, regret: np.ndarray, samples: int = 2000) -> Slope:
    """Slope of log mean regret against log x; ``regret`` is (replicates, len(x)), resampled by replicate.

    NaN for a single point.
    """
    if len(x) < 2:
        return Slope(np.nan, np.nan, np.nan)
    log_x = np.log(x)
    centred = (log_x - log_x.mean()) / ((log_x - log_x.mean()) ** 2).sum()
    picked = np.random.default_rng(0).integers(len(regret), size=(samples, len(regret)))
    resampled = np.log(regret[picked].mean(1)) @ centred
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Slope(float(np.log(regret.mean(0)) @ centred), float(low), float(high))


def grows_at_most(found: Slope, exponent: float) -> str:
    """The verdict on a claimed exponent of an upper bound: growth above it, or on both sides of it, decides nothing, as
    it may still be bending at these horizons. Not testable without an interval."""
    if np.isnan(found.value):
        return UNTESTED
    return HOLDS if found.high <= exponent else UNDECIDED


@dataclass(frozen=True)
class Sweep:
    title: str
    axis: str
    exponents: dict[str, float]  # by environment

    def exponent(self, environment: str) -> float:
        return self.exponents.get(environment, self.exponents.get("", np.nan))


SWEEPS = {
    "horizon": Sweep("Regret against the horizon", "T", {"": 0.75}),
    "budget": Sweep("Regret against the variation budget", "P_T", {"known": 0.25, "unknown": 1.0}),
    "gain": Sweep("Regret against the information gain", "gamma_T", {"": 0.875}),
}


def groups(
    name: str, frame: pd.DataFrame
) -> list[tuple[str, list[tuple[str, str, np.ndarray, pd.DataFrame]]]]:
    """Panels of a sweep: environment, and its lines (policy, width, x, regret by replicate and x)."""
    if name == "gain":
        frame = frame.assign(environment="drift")
    panels = []
    for environment, part in frame.groupby("environment", sort=False):
        lines = []
        for (policy, width), line in part.groupby(["policy", "width"], sort=False):
            lines.append((str(policy), str(width), np.unique(line["x"].to_numpy(dtype=float)), line))
        panels.append((str(environment), lines))
    return panels


def regrets(line: pd.DataFrame) -> np.ndarray:
    return line.pivot(index="replicate", columns="x", values="regret").to_numpy()


def make_claims(
    frames: dict[str, pd.DataFrame], gaps: pd.DataFrame | None, bites: pd.DataFrame | None = None
) -> list[Claim]:
    """The theorems, remarks and statements of the paper that a run can speak to."""
    claims: list[Claim] = []

    def add(where: str, claim: str, finding: Finding, part: str) -> None:
        claims.append(
            Claim(PAPER, where, claim, finding.verdict, finding.numbers, f"{COMMAND} {part}".strip())
        )

    for number, policy in enumerate(_OWN, 1):
        words = (
            f"The regret of {policy} is below sqrt(gamma) m^(3/2) P_T + beta T sqrt(gamma/m), m its H or w"
        )
        says, swept = f"{words} (with the proof's constants)", list(frames.values())
        add(f"Theorem {number}", f"{says}: the sweeps", _below_bound(swept, policy), "")
        near = [] if bites is None else [bites]
        still = "where next to nothing changes, so that it lies below random play's"
        add(f"Theorem {number}", f"{says}: {still}", _below_bound(near, policy), "bound")
    words_of = {"theory": "theory width", "constant": "constant width: no theorem covers it"}
    said = {
        "horizon": ("Remark 2", "grows no faster than T^(3/4) with P_T known and H or w tuned"),
        "budget": ("Remark 2", "grows no faster than P_T^(1/4) with P_T, from 1 up, known"),
        "budget unknown": ("Remark 3", "grows no faster than P_T, from 1 up, with P_T unknown"),
        "gain": ("Remark 2", "grows no faster than gamma_T^(7/8)"),
    }
    for key, (where, words) in said.items():
        name, _, environment = key.partition(" ")
        for policy in _OWN:
            for width in ("theory", "constant"):
                environments = ("drift", "jumps") if name == "horizon" else (environment or "known",)
                for place in environments:
                    of = "drift" if name == "gain" else place
                    finding = _growth(frames.get(name), name, of, policy, width)
                    shown = f", {place}" if name == "horizon" else ""
                    add(where, f"The regret of {policy} {words} ({words_of[width]}{shown})", finding, name)
    for policy in _OWN:
        for width in ("theory", "constant"):
            sub = _sublinear(frames.get("horizon"), policy, width)
            add("Section III-B", f"{policy} has sublinear dynamic regret ({width} width)", sub, "horizon")
    for width in ("theory", "constant"):
        alike = _compare(frames.get("horizon"), width, "R-GP-UCB", "SW-GP-UCB", same=True)
        add("Remark 1", f"R-GP-UCB and SW-GP-UCB have similar regret ({width} width)", alike, "horizon")
        for policy in _OWN:
            less = _compare(frames.get("horizon"), width, policy, "IGP-UCB", same=False)
            pays = f"Forgetting pays: {policy} has less regret than IGP-UCB ({width} width)"
            add("Section I", pays, less, "horizon")
    exceeds = "The operator norm in Claim 2, bounded by 1 in earlier work, can exceed 1"
    add("Section IV-B", exceeds, _exceeds(gaps), "gap")
    add("Claim 2", "It is at most (1/lambda) sqrt(2 H (1 + lambda) gamma_H)", _within(gaps), "gap")
    untested = Finding(UNTESTED, "a statement about the formulas; nothing to run")
    add("Remark 4", "With a linear kernel the results are those known for linear bandits", untested, "")
    return claims


def _below_bound(frames: list[pd.DataFrame], policy: str) -> Finding:
    """Whether every regret lies below the bound, which is vacuous where random play's expected regret does too."""
    if not frames:
        return NOT_RUN
    rows = pd.concat(frames)
    rows = rows[(rows["policy"] == policy) & (rows["width"] == "theory")]
    share, loose = rows["regret"] / rows["bound"], rows["bound"] / rows["random"]
    numbers = (
        f"largest regret / bound of {len(rows)} runs: {share.max():.2g}; the bound is {loose.min():.3g} to "
    )
    numbers += f"{loose.max():.3g} times the regret of random play"
    met = VACUOUS if loose.min() >= 1 else HOLDS
    return Finding(met if share.max() <= 1 else FAILS, numbers)


def _line(frame: pd.DataFrame | None, name: str, place: str, policy: str, width: str) -> pd.DataFrame | None:
    for environment, lines in groups(name, frame) if frame is not None else []:
        for own, kind, _, line in lines:
            if (environment, own, kind) == (place, policy, width):
                return line
    return None


def _growth(frame: pd.DataFrame | None, name: str, place: str, policy: str, width: str) -> Finding:
    line = _line(frame, name, place, policy, width)
    if line is None:
        return NOT_RUN
    x = np.unique(line["x"])
    found, exponent = slope(x, regrets(line)), SWEEPS[name].exponent(place)
    bound = slope(x, line.pivot(index="replicate", columns="x", values="bound").to_numpy(), 1).value
    share = (line.groupby("x")["regret"].mean() / line.groupby("x")["random"].mean()).to_numpy()
    ends = f"{100 * share[0]:.0f} % to {100 * share[-1]:.0f} % of random play's"
    numbers = f"slope {found} for an exponent of {exponent:g} ({SWEEPS[name].axis} from {x[0]:.5g} to {x[-1]:.5g}); "
    return Finding(grows_at_most(found, exponent), f"{numbers}bound {bound:.2f}; regret {ends}")


def _sublinear(frame: pd.DataFrame | None, policy: str, width: str) -> Finding:
    findings = []
    for place in ("drift", "jumps"):
        line = _line(frame, "horizon", place, policy, width)
        if line is None:
            return NOT_RUN
        x = np.unique(line["x"])
        found = slope(x[-2:], regrets(line)[:, -2:])
        numbers = f"{place}: slope {found} between the last two horizons, {x[-2]:.0f} and {x[-1]:.0f}"
        findings.append(Finding(grows_at_most(found, 1.0), numbers))
    return _claims.every(findings)


def _compare(frame: pd.DataFrame | None, width: str, policy: str, other: str, same: bool) -> Finding:
    findings = []
    for place in ("drift", "jumps"):
        lines = [_line(frame, "horizon", place, name, width) for name in (policy, other)]
        if any(line is None for line in lines):
            return NOT_RUN
        first, second = (regrets(line)[:, -1] for line in lines if line is not None)
        rule = _claims.alike if same else _claims.less
        arguments = {"within": 0.2} if same else {}
        found = rule(first, second, (policy, other), **arguments)
        findings.append(Finding(found.verdict, f"{place}, longest horizon: {found.numbers}"))
    return _claims.every(findings)


@of_table
def _exceeds(gaps: pd.DataFrame) -> Finding:
    largest = gaps.groupby("dim")["norm"].max()
    share = 100 * (gaps["norm"] > 1).mean()
    numbers = ", ".join(f"{value:.3g} in R^{dim}" for dim, value in largest.items())
    said = f"largest norm {numbers}; above 1 in {share:.0f} % of {len(gaps)} designs"
    return judged(largest.max() > 1, said)


@of_table
def _within(gaps: pd.DataFrame) -> Finding:
    share = (gaps["norm"] / gaps["bound"]).max()
    return judged(share <= 1, f"largest norm / bound {share:.2g} in {len(gaps)} designs")


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
    gaps, bites, tuning = (pages.read(out / f"{name}.csv") for name in ("gap", "bound", "tuning"))
    claims = make_claims(frames, gaps, bites)
    _claims.write(out, claims)
    parts = [_HEAD, "## What the paper says, and what was measured\n", _claims.table(claims)]
    for name, frame in frames.items():
        _draw(name, frame).savefig(out / f"{name}.png", dpi=100)
        parts += [f"## {SWEEPS[name].title}\n", f"![{SWEEPS[name].title}]({name}.png)\n", _table(name, frame)]
    if bites is not None:
        means = bites.groupby("policy")[["memory", "regret", "bound", "random"]].mean().round(1)
        parts += ["## Where the bounds say something\n", _BITES, pages.markdown_of(means.reset_index())]
    if tuning is not None:
        tuned = tuning.pivot(index="width", columns="policy", values="regret").reset_index()
        parts += ["## The constant widths\n", pages.markdown_of(tuned.round(1))]
    _claims.write_page(out, "Zhou & Shroff 2021: restarts and windows", claims, COMMAND, parts)


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
        rows.append({"environment": environment, "policy": "random (expected)"} | cells)
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
        exponent = sweep.exponent(environment)
        lowest = part.groupby(["policy", "width", "x"])["regret"].mean().min()
        guide = 0.5 * lowest * (at / at[0]) ** exponent
        ax.plot(at, guide, color="black", linewidth=0.8, label="slope of the bound's exponent")
        end, look = (at[-1], guide[-1]), {"textcoords": "offset points", "fontsize": 8, "ha": "right"}
        ax.annotate(f"slope {exponent:g}", end, (0, 4), **look)
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

"""Pictures, claims.csv and RESULTS.md of the measured theorems of Zhou & Shroff 2021, from their CSV files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bandits_torch.experiments import COLOURS
from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._claims import NOT_RUN, Claim, Finding, judged, of_table

PAPER = "Zhou & Shroff 2021"
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
    """Slope of log mean regret against log x, NaN for a single point; ``regret`` (replicates, len(x)) is resampled by
    replicate."""
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
        return _claims.UNTESTED
    return _claims.HOLDS if found.high <= exponent else _claims.UNDECIDED


# By sweep: what is varied; and by its environments: a panel's title, and the exponent of the bound.
SWEEPS = {"horizon": "T", "budget": "P_T", "gain": "gamma_T"}
_PANELS = {
    ("horizon", "drift"): ("steady drift, P_T fixed and known", 0.75),
    ("horizon", "jumps"): ("quarter turns, P_T fixed and known", 0.75),
    ("budget", "known"): ("steady drift, P_T known", 0.25),
    ("budget", "unknown"): ("steady drift, P_T unknown", 1.0),
    ("gain", "drift"): ("steady drift, P_T fixed and known", 0.875),
}
# Sweep, environments, where the paper says it and what.
_GROWTHS = (
    (
        "horizon",
        ("drift", "jumps"),
        "Remark 2",
        "grows no faster than T^(3/4) with P_T known and H or w tuned",
    ),
    ("budget", ("known",), "Remark 2", "grows no faster than P_T^(1/4) with P_T, from 1 up, known"),
    ("budget", ("unknown",), "Remark 3", "grows no faster than P_T, from 1 up, with P_T unknown"),
    ("gain", ("drift",), "Remark 2", "grows no faster than gamma_T^(7/8)"),
)
_WIDTHS = {"theory": "theory width", "constant": "constant width: no theorem covers it"}


def make_claims(
    frames: dict[str, pd.DataFrame], gaps: pd.DataFrame | None, bites: pd.DataFrame | None = None
) -> list[Claim]:
    """The theorems, remarks and statements of the paper that a run can speak to."""
    return _claims.of_rows("zhou", ((PAPER, *row) for row in _said(frames, gaps, bites)))


def _said(
    frames: dict[str, pd.DataFrame], gaps: pd.DataFrame | None, bites: pd.DataFrame | None
) -> Iterator[tuple[str, str, Finding, str]]:
    swept = pd.concat(frames.values()) if frames else None
    for number, policy in enumerate(_OWN, 1):
        says = (
            f"The regret of {policy} is below sqrt(gamma) m^(3/2) P_T + beta T sqrt(gamma/m), m its H or w (with the "
            "proof's constants)"
        )
        yield f"Theorem {number}", f"{says}: the sweeps", _below_bound(swept, policy), ""
        still = "where next to nothing changes, so that it lies below random play's"
        yield f"Theorem {number}", f"{says}: {still}", _below_bound(bites, policy), "bound"
    for name, places, where, words in _GROWTHS:
        for policy, width, place in product(_OWN, _WIDTHS, places):
            setting = _WIDTHS[width] + (f", {place}" if places[1:] else "")
            found = _growth(frames.get(name), name, place, policy, width)
            yield where, f"The regret of {policy} {words} ({setting})", found, name
    over_time = frames.get("horizon")
    for policy, width in product(_OWN, _WIDTHS):
        says = f"{policy} has sublinear dynamic regret ({width} width)"
        yield "Section III-B", says, _sublinear(over_time, policy, width), "horizon"
    for width in _WIDTHS:
        alike = _compare(over_time, width, _claims.alike, *_OWN, within=0.2)
        yield "Remark 1", f"R-GP-UCB and SW-GP-UCB have similar regret ({width} width)", alike, "horizon"
        for policy in _OWN:
            less = _compare(over_time, width, _claims.less, policy, "IGP-UCB")
            says = f"Forgetting pays: {policy} has less regret than IGP-UCB ({width} width)"
            yield "Section I", says, less, "horizon"
    exceeds = "The operator norm in Claim 2, bounded by 1 in earlier work, can exceed 1"
    yield "Section IV-B", exceeds, _exceeds(gaps), "gap"
    yield "Claim 2", "It is at most (1/lambda) sqrt(2 H (1 + lambda) gamma_H)", _within(gaps), "gap"
    untested = Finding(_claims.UNTESTED, "a statement about the formulas; nothing to run")
    yield "Remark 4", "With a linear kernel the results are those known for linear bandits", untested, ""


@of_table
def _below_bound(rows: pd.DataFrame, policy: str) -> Finding:
    """Whether every regret lies below the bound, which is vacuous where random play's expected regret does too."""
    rows = rows[(rows["policy"] == policy) & (rows["width"] == "theory")]
    share, loose = rows["regret"] / rows["bound"], rows["bound"] / rows["random"]
    numbers = (
        f"largest regret / bound of {len(rows)} runs: {share.max():.2g}; the bound is {loose.min():.3g} to "
        f"{loose.max():.3g} times the regret of random play"
    )
    met = _claims.VACUOUS if loose.min() >= 1 else _claims.HOLDS
    return Finding(met if share.max() <= 1 else _claims.FAILS, numbers)


def _by_x(line: pd.DataFrame, column: str = "regret") -> tuple[np.ndarray, np.ndarray]:
    """The values of x, ascending, and a column of a sweep, (replicates, len(x))."""
    wide = line.pivot(index="replicate", columns="x", values=column)
    return wide.columns.to_numpy(dtype=float), wide.to_numpy()


def _line(frame: pd.DataFrame, place: str, policy: str, width: str) -> pd.DataFrame:
    of = (frame["environment"] == place) & (frame["policy"] == policy) & (frame["width"] == width)
    return frame[of]


@of_table
def _growth(frame: pd.DataFrame, name: str, place: str, policy: str, width: str) -> Finding:
    line = _line(frame, place, policy, width)
    if line.empty:
        return NOT_RUN
    x, regret = _by_x(line)
    found, (_, exponent) = slope(x, regret), _PANELS[name, place]
    bound = slope(*_by_x(line, "bound"), 1).value
    share = (line.groupby("x")["regret"].mean() / line.groupby("x")["random"].mean()).to_numpy()
    numbers = (
        f"slope {found} for an exponent of {exponent:g} ({SWEEPS[name]} from {x[0]:.5g} to {x[-1]:.5g}); bound "
        f"{bound:.2f}; regret {100 * share[0]:.0f} % to {100 * share[-1]:.0f} % of random play's"
    )
    return Finding(grows_at_most(found, exponent), numbers)


@of_table
def _sublinear(frame: pd.DataFrame, policy: str, width: str) -> Finding:
    findings = []
    for place in ("drift", "jumps"):
        line = _line(frame, place, policy, width)
        if line.empty:
            return NOT_RUN
        x, regret = _by_x(line)
        found = slope(x[-2:], regret[:, -2:])
        numbers = f"{place}: slope {found} between the last two horizons, {x[-2]:.0f} and {x[-1]:.0f}"
        findings.append(Finding(grows_at_most(found, 1.0), numbers))
    return _claims.every(findings)


@of_table
def _compare(
    frame: pd.DataFrame, width: str, rule: Callable[..., Finding], policy: str, other: str, **options: Any
) -> Finding:
    """What a rule says of two policies at the longest horizon."""
    findings = []
    for place in ("drift", "jumps"):
        lines = [_line(frame, place, name, width) for name in (policy, other)]
        if any(line.empty for line in lines):
            return NOT_RUN
        first, second = (_by_x(line)[1][:, -1] for line in lines)
        found = rule(first, second, (policy, other), **options)
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


def write(out: Path) -> None:
    """Draw and write whatever there are CSV files for."""
    frames = {name: pd.read_csv(path) for name in SWEEPS if (path := out / f"{name}.csv").is_file()}
    if "gain" in frames:
        frames["gain"]["environment"] = "drift"  # the length-scale sets gamma, all else is the same
    gaps, bound, tuning = (pages.read(out / f"{name}.csv") for name in ("gap", "bound", "tuning"))
    for name, frame in frames.items():
        _draw(name, frame).savefig(out / f"{name}.png", dpi=100)
    shown: dict[str, Any] = {name: _table(name, frame) for name, frame in frames.items()}
    if bound is not None:
        means = bound.groupby("policy")[["memory", "regret", "bound", "random"]].mean().round(1)
        shown["bound"] = means.reset_index()
    if tuning is not None:
        tuned = tuning.pivot(index="width", columns="policy", values="regret")
        shown["tuning"] = tuned.reset_index().round(1)
    _claims.write_page(out, "zhou", PAPER, make_claims(frames, gaps, bound), **shown)


def _table(name: str, frame: pd.DataFrame) -> dict[str, Any]:
    """What is varied, its values, and a row for each policy and width of an environment, and for random play."""
    rows = []
    for environment, part in frame.groupby("environment", sort=False):
        for (policy, width), line in part.groupby(["policy", "width"], sort=False):
            (x, regret), memory = _by_x(line), line.groupby("x")["memory"].first().tolist()
            error = regret.std(0, ddof=1) / len(regret) ** 0.5
            means = dict(zip(x, zip(regret.mean(0), error, strict=True), strict=True))
            row = {"environment": environment, "policy": policy, "width": width, "means": means}
            rows.append(row | {"memory": "" if policy == "IGP-UCB" else memory, "slope": slope(x, regret)})
        random = {x: (mean,) for x, mean in part.groupby("x")["random"].mean().items()}
        row = {"environment": environment, "policy": "random (expected)", "means": random}
        rows.append(row | dict.fromkeys(("width", "memory", "slope"), ""))
    values = list(dict.fromkeys(x for row in rows for x in row["means"]))
    return {"x": SWEEPS[name], "values": values, "rows": rows}


_MARKS = {"R-GP-UCB": "o", "SW-GP-UCB": "s", "IGP-UCB": "^"}


def _draw(name: str, frame: pd.DataFrame) -> Figure:
    """A panel for each environment: regret with two standard errors, on logarithmic axes, and the bound's exponent."""
    panels = list(frame.groupby("environment", sort=False))
    figure = Figure(figsize=(5.6 * len(panels) + 2.2, 4.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (environment, part) in zip(axes, panels, strict=True):
        for (policy, width), line in part.groupby(["policy", "width"], sort=False):
            x, regret = _by_x(line)
            mean, error = regret.mean(0), 2 * regret.std(0, ddof=1) / len(regret) ** 0.5
            colour = COLOURS[list(_MARKS).index(policy)]
            dash, fill = ("-", colour) if width == "theory" else ("--", "white")
            style = {"color": colour, "linestyle": dash, "marker": _MARKS[policy], "markerfacecolor": fill}
            ax.errorbar(
                x, mean, np.minimum(error, 0.9 * mean), label=f"{policy}, {width} width", capsize=2, **style
            )
        random = part.groupby("x")["random"].mean()
        at = random.index.to_numpy(dtype=float)
        ax.plot(at, random.to_numpy(), color="#777777", linestyle=":", label="random (expected)")
        title, exponent = _PANELS[name, str(environment)]
        lowest = part.groupby(["policy", "width", "x"])["regret"].mean().min()
        guide = 0.5 * lowest * (at / at[0]) ** exponent
        ax.plot(at, guide, color="black", linewidth=0.8, label="slope of the bound's exponent")
        end, look = (at[-1], guide[-1]), {"textcoords": "offset points", "fontsize": 8, "ha": "right"}
        ax.annotate(f"slope {exponent:g}", end, (0, 4), **look)
        ax.set(xscale="log", yscale="log", xlabel=SWEEPS[name])
        ax.set_title(title, loc="left", fontsize=10)
        ax.grid(color="#DDDDDD", linewidth=0.6)
    axes[0].set_ylabel("dynamic regret over the run (± 2 standard errors)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    return figure

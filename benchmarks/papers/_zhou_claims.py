"""What the theorems of Zhou & Shroff 2021 say, against what the sweeps measured: fitted slopes and verdicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.papers import _claims
from benchmarks.papers._claims import FAILS, HOLDS, UNDECIDED, UNTESTED, VACUOUS, Claim, Finding

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
                    finding = _growth(
                        frames.get(name), name, "drift" if name == "gain" else place, policy, width
                    )
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
            add(
                "Section I",
                f"Forgetting pays: {policy} has less regret than IGP-UCB ({width} width)",
                less,
                "horizon",
            )
    add(
        "Section IV-B",
        "The operator norm in Claim 2, bounded by 1 in earlier work, can exceed 1",
        _exceeds(gaps),
        "gap",
    )
    add("Claim 2", "It is at most (1/lambda) sqrt(2 H (1 + lambda) gamma_H)", _within(gaps), "gap")
    untested = Finding(UNTESTED, "a statement about the formulas; nothing to run")
    add("Remark 4", "With a linear kernel the results are those known for linear bandits", untested, "")
    return claims


def _not_run() -> Finding:
    return Finding(UNTESTED, "not run")


def _below_bound(frames: list[pd.DataFrame], policy: str) -> Finding:
    """Whether every regret lies below the bound, which is vacuous where random play's expected regret does too."""
    if not frames:
        return _not_run()
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
        return _not_run()
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
            return _not_run()
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
            return _not_run()
        first, second = (regrets(line)[:, -1] for line in lines if line is not None)
        rule = _claims.alike if same else _claims.less
        arguments = {"within": 0.2} if same else {}
        found = rule(first, second, (policy, other), **arguments)
        findings.append(Finding(found.verdict, f"{place}, longest horizon: {found.numbers}"))
    return _claims.every(findings)


def _exceeds(gaps: pd.DataFrame | None) -> Finding:
    if gaps is None:
        return _not_run()
    largest = gaps.groupby("dim")["norm"].max()
    share = 100 * (gaps["norm"] > 1).mean()
    numbers = ", ".join(f"{value:.3g} in R^{dim}" for dim, value in largest.items())
    return Finding(
        HOLDS if largest.max() > 1 else FAILS,
        f"largest norm {numbers}; above 1 in {share:.0f} % of {len(gaps)} designs",
    )


def _within(gaps: pd.DataFrame | None) -> Finding:
    if gaps is None:
        return _not_run()
    share = (gaps["norm"] / gaps["bound"]).max()
    return Finding(HOLDS if share <= 1 else FAILS, f"largest norm / bound {share:.2g} in {len(gaps)} designs")

"""RESULTS.md and claims.csv of the figures of Chowdhury & Gopalan 2017, from their CSV files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._chowdhury_problems import OVER_MEAN
from benchmarks.papers._claims import HOLDS, NOT_RUN, UNTESTED, Claim, Finding, judged, of_table

PAPER = "Chowdhury & Gopalan 2017"
Rule = Callable[[Mapping[str, np.ndarray]], Finding]  # of the regrets by policy
PLAYED = {"gp_ucb": "GP-UCB", "igp_ucb": "IGP-UCB", "gp_ts": "GP-TS", "gp_ei": "GP-EI", "gp_pi": "GP-PI"}
NAMES = PLAYED | {key: f"{PLAYED[of]} over means" for key, of in OVER_MEAN.items()}
PANELS = ("1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b")
_COMMAND = "python -m benchmarks.papers chowdhury"
_SIMILAR = 0.2  # share of the larger that two regrets may differ by to be called similar
_STEPS = 30_000
_GOOD = 0.1  # share of random play's regret a step that is called performing well
_RULES = """
What a claim in words is taken to mean: "better" is a difference beyond two standard errors (se) of the paired
differences between trials; "similar" and "the same" a difference of at most 20 % of the larger; "reasonably well" and
"competitive" a regret below twice that of the other; "well in practice" a regret a step, in the last tenth of the run,
below 10 % of random play's. Verdicts are of the reading in which GP-EI and GP-PI improve on the largest reward; where
they improve on the largest posterior mean, "over means" says what becomes of the claim.
"""
_HEAD = """
Regret is cumulative, mean over trials ± one
standard error, conditional on the arms, which all trials of a panel share; `sd` is the standard deviation over the
trials, `a step` the regret divided by the steps, `late` the regret a step in the last tenth of them, `width` the last
multiple of sigma. Seconds are of all trials in one batch on
one thread, on a machine with other work. Bands in the pictures are two standard errors; a line that leaves through the
top has its last value at its label.

As in section 6: 100 points uniform in [0, 1] (figures 1, 2) or 100 d in the domain (figure 3), lengthscale 0.2,
Matern 5/2, R^2 = 1 % of the function's range, lambda = R^2, delta = 0.1, B the RKHS norm of the function on the arms,
25 trials of 30 000 steps, unless a panel below says otherwise. Widths as printed: beta~_t of GP-UCB = sqrt(2 B^2 +
300 gamma ln^3(t/delta)), beta_t of IGP-UCB = B + R sqrt(2 (gamma + 1 + ln(1/delta))), v_t of GP-TS the same with
2/delta. With lambda = R^2 below 1 the printed beta_t and v_t have no guarantee; `sensitivity` shows the form that has
one.

Where the paper is silent, chosen: gamma_t = (ln t)^(d+1) and t^(d(d+1)/(2 nu + d(d+1))) ln t with constant 1 (it says
"theoretical upper bounds"); normal noise; B^2 = f^T K^-1 f (it prints f^T K f); Rosenbrock and Hartmann 3 negated, on
the unit cube, standardised, B from a fit to within the noise; GP-PI with a margin of 0.01. What GP-EI and GP-PI
improve on the paper does not say. Both readings are played: the largest reward, as in the papers that it cites and the
code of its time (f(x+) of a function without noise), and the largest posterior mean, as is usual now. The paper prints
curves and no numbers: there are none to compare digit by digit.
"""
_FIGURES = {
    "1": "## Figure 1: functions of the RKHS\n\nPosterior means given a noisy draw (noise variance 0.01).\n",
    "2": "## Figure 2: draws of the Gaussian process\n",
    "3": "## Figure 3: Rosenbrock and Hartmann 3\n\nThe kernel is a guess here: no function is a draw of it.\n",
    "4": """## Figure 4: sensors

(a) Readings from 8 to 9 o'clock: covariance, means and R^2 = 5 % of the average variance from the first five days of
the record, here 1 to 5 March 2004 (28 and 29 February are missing); the functions are the readings of the two following
days, one a trial: 12, as the record at hand is ten-minute means, where the paper had one every 30 seconds. gamma_t = 1,
as in the paper. (b) The paper's data and split: light of 41 sensors in the CMU Intelligent Workplace in November 2005,
601 rows to learn from, and a trial for each of the 192 test rows. Readings are divided by the root of their average
variance, and centred by each sensor's mean.
""",
}

_BESIDE = {
    "robustness": "## The conjecture at figure 3\n\nRegret on Rosenbrock by the kernel's lengthscale.\n",
    "sensitivity": "## Sensitivity\n\nOne choice changed at a time.\n",
}


def write(out: Path) -> None:
    claims = make_claims(out)
    _claims.write(out, claims)
    parts = [_HEAD, "## What the paper says, and what holds\n", _RULES, _claims.table(claims)]
    for figure, text in _FIGURES.items():
        there = [panel for panel in PANELS if (out / f"figure{panel}_trials.csv").is_file()]
        panels = [panel for panel in there if panel[0] == figure]
        parts += [text] * bool(panels) + [_panel(out, panel) for panel in panels]
    for name, words in _BESIDE.items():
        if (frame := pages.read(out / f"{name}.csv")) is not None:
            parts += [words, _with_errors(frame)]
    _claims.write_page(out, "Chowdhury & Gopalan 2017: kernelized bandits", claims, _COMMAND, parts)


def make_claims(out: Path) -> list[Claim]:
    """Every claim of the paper's experiment section, and those elsewhere that its experiments are to support."""
    regrets = {panel: found for panel in PANELS if (found := _of_trials(out, panel, "regret")) is not None}
    rows = [
        (f"Figure {panel}", claim, finding, panel)
        for panel in PANELS
        for claim, finding in _of_panel(panel, regrets.get(panel))
    ]
    compare = "The methods compare on draws of the GP as on functions of the RKHS"
    for kernel in "ab":
        first, second = regrets.get(f"1{kernel}"), regrets.get(f"2{kernel}")
        same = _by_both_readings(same_order, first, second) if first and second else NOT_RUN
        rows.append((f"Figure 2{kernel}", compare, same, "figure2"))
    rows.append(("Figure 3, text", _CONJECTURE, robustness(pages.read(out / "robustness.csv")), "robustness"))
    validated = Finding(UNTESTED, "the paper does not say over which values or with which score")
    rows.append(("Figure 4, text", "gamma_t = 1 was found by cross-validation", validated, "figure4"))
    pairs = [_claims.less(f["igp_ucb"], f["gp_ucb"], (p, "GP-UCB")) for p, f in regrets.items()]
    better = _claims.every(pairs) if pairs else NOT_RUN
    much = "IGP-UCB is much better than GP-UCB on synthetic functions and on sensors"
    well = "IGP-UCB and GP-TS perform well on synthetic and real data"
    rows += [("Section 4.1", much, better, ""), ("Section 7", well, _perform_well(out), "")]
    rows.sort(key=lambda row: row[0])
    short = _cut_short(out, regrets)
    rows = [(where, claim, *_flagged(found, where, short, part)) for where, claim, found, part in rows]
    return [Claim(PAPER, w, c, f.verdict, f.numbers, f"{_COMMAND} {part}".strip()) for w, c, f, part in rows]


def _cut_short(out: Path, panels: Iterable[str]) -> dict[str, int]:
    """The steps of the panels that were played for fewer than the paper's."""
    steps = {panel: int(pd.read_csv(out / f"figure{panel}_facts.csv")["steps"].iloc[0]) for panel in panels}
    return {panel: count for panel, count in steps.items() if count < _STEPS}


def _flagged(finding: Finding, where: str, short: Mapping[str, int], part: str) -> tuple[Finding, str]:
    """The finding with a word on the steps, and what to run, where it rests on a panel that was cut short."""
    panel = where.removeprefix("Figure ")
    of = {panel: short[panel]} if panel in short else {} if where.startswith("Figure") else short
    if not of:
        return finding, part
    told = ", ".join(f"{panel} after {count} steps" for panel, count in of.items())
    shown = f"{part} --steps {max(of.values())}".strip()
    return Finding(finding.verdict, f"{finding.numbers} [not {_STEPS}: {told}]"), shown


_CONJECTURE = (
    "Conjecture: UCB and TS are less robust to the choice of the kernel than EI and PI (taken as: between the best and "
    "the worst lengthscale the regrets of IGP-UCB and GP-TS change by a larger factor than those of GP-EI and GP-PI)"
)


def _by_both_readings(judge: Callable[..., Finding], *panels: Mapping[str, np.ndarray]) -> Finding:
    """The finding where GP-EI and GP-PI improve on the largest reward; beside it that over the largest mean."""
    finding = judge(*({name: panel[name] for name in PLAYED} for panel in panels))
    means = {of: mean for mean, of in OVER_MEAN.items()}
    other = judge(*({name: panel[means.get(name, name)] for name in PLAYED} for panel in panels))
    if finding == other:
        return finding
    return Finding(finding.verdict, f"{finding.numbers} [over means: {other.verdict}, {other.numbers}]")


def _of_panel(panel: str, found: Mapping[str, np.ndarray] | None) -> list[tuple[str, Finding]]:
    return [
        (claim, _by_both_readings(rule, found) if found else NOT_RUN) for claim, rule in _said(panel).items()
    ]


def _least(own: str, rivals: Sequence[str], factor: float = 1.0) -> Rule:
    def judge(found: Mapping[str, np.ndarray]) -> Finding:
        named = {NAMES[name]: regrets for name, regrets in found.items()}
        return _claims.least(NAMES[own], [NAMES[rival] for rival in rivals], named, factor)

    return judge


def _alike(first: str, second: str) -> Rule:
    names = (NAMES[first], NAMES[second])
    return lambda found: _claims.alike(found[first], found[second], names, _SIMILAR)


def _all(rules: Sequence[Rule]) -> Rule:
    return lambda found: _claims.every([rule(found) for rule in rules])


def _said(panel: str) -> dict[str, Rule]:
    """What the paper says of one panel, and how it is judged by one reading."""
    three, others = ("gp_ucb", "igp_ucb", "gp_ts"), ("gp_ei", "gp_pi")
    said = {"GP-EI and GP-PI perform similarly (footnote 11)": _alike("gp_ei", "gp_pi")}
    if panel[0] == "1":
        said |= {
            "IGP-UCB improves on GP-UCB significantly": _least("igp_ucb", ["gp_ucb"]),
            "IGP-UCB performs best of all": _least("igp_ucb", [p for p in PLAYED if p != "igp_ucb"]),
            "GP-TS fares reasonably well compared with GP-UCB": _least("gp_ts", ["gp_ucb"], 2),
            "GP-TS fares reasonably well compared with GP-EI and GP-PI": _least("gp_ts", others, 2),
        }
    if panel[0] == "3":
        competitive = _all([_least(own, others, 2) for own in three[1:]])
        said |= {
            "GP-EI and GP-PI perform better than the rest": _all([_least(own, three) for own in others]),
            "IGP-UCB and GP-TS are competitive (with GP-EI and GP-PI)": competitive,
        }
    if panel[0] == "4":
        best = _least("gp_ts", [p for p in PLAYED if p != "gp_ts"])
        said["GP-TS performs better than all others"] = best
    if panel == "4a":
        said["IGP-UCB and GP-UCB perform the same"] = _alike("igp_ucb", "gp_ucb")
    if panel == "4b":
        said["IGP-UCB performs better than GP-EI and GP-PI"] = _least("igp_ucb", others)
    return said


def same_order(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> Finding:
    """Whether no pair of policies that both panels tell apart, beyond two standard errors, changes places."""
    kept, turned = [], []
    for a, b in combinations(first, 2):
        signs = []
        for panel in (first, second):
            pair = (panel[a], panel[b])
            below = _claims.less(*pair, (a, b)).verdict == HOLDS
            above = _claims.less(*pair[::-1], (b, a)).verdict == HOLDS
            signs.append(below - above)
        if signs[0] * signs[1]:
            (kept if signs[0] == signs[1] else turned).append(f"{NAMES[a]} and {NAMES[b]}")
    orders = [
        " < ".join(NAMES[p] for p in sorted(panel, key=lambda p: panel[p].mean()))
        for panel in (first, second)
    ]
    numbers = (
        f"figure 1: {orders[0]}; figure 2: {orders[1]}; told apart in both and in the same order: {len(kept)} pairs, "
        f"in the other order: {', '.join(turned) or 'none'}"
    )
    return judged(bool(kept) and not turned, numbers)


@of_table
def robustness(frame: pd.DataFrame) -> Finding:
    """Whether the regrets of IGP-UCB and GP-TS change more with the lengthscale than those of GP-EI and GP-PI."""
    return _by_both_readings(_robust, {name: frame[name].to_numpy() for name in NAMES})


def _robust(regrets: Mapping[str, np.ndarray]) -> Finding:
    change = {name: float(values.max() / values.min()) for name, values in regrets.items()}
    numbers = "worst to best: " + ", ".join(f"{PLAYED[p]} {change[p]:.3g}" for p in PLAYED)
    holds = min(change["igp_ucb"], change["gp_ts"]) > max(change["gp_ei"], change["gp_pi"])
    return judged(holds, numbers)


def _perform_well(out: Path) -> Finding:
    told, well = [], True
    for panel in PANELS:
        late = _of_trials(out, panel, "late")
        if late is not None:
            random = float(pd.read_csv(out / f"figure{panel}_facts.csv")["random"].iloc[0])
            shares = [float(late[p].mean()) / random for p in ("igp_ucb", "gp_ts")]
            well &= max(shares) < _GOOD
            told.append(f"{panel}: {100 * shares[0]:.2g} % and {100 * shares[1]:.2g} %")
    if not told:
        return NOT_RUN
    return judged(well, "late regret as a share of random play's, " + ", ".join(told))


def _of_trials(out: Path, panel: str, column: str) -> dict[str, np.ndarray] | None:
    """A column of a panel's trials, by policy, in the order of the trials."""
    path = out / f"figure{panel}_trials.csv"
    if not path.is_file():
        return None
    frame = pd.read_csv(path).sort_values("trial")
    return {name: frame.loc[frame["policy"] == name, column].to_numpy() for name in NAMES}


def _panel(out: Path, panel: str) -> str:
    regret, late = _of_trials(out, panel, "regret"), _of_trials(out, panel, "late")
    assert regret is not None
    assert late is not None
    facts = pd.read_csv(out / f"figure{panel}_facts.csv").set_index("policy")
    first, rows = facts.iloc[0], []
    for name in sorted(regret, key=lambda p: regret[p].mean()):
        values, own = pd.Series(regret[name]), facts.loc[name]
        rows.append(
            {
                "policy": NAMES[name],
                "regret": pages.with_error(values),
                "sd": f"{values.std():.1f}",
                "a step": f"{values.mean() / own['steps']:.3g}",
                "late": f"{late[name].mean():.3g}",
                "width": "" if np.isnan(own["width"]) else f"{own['width']:.3g}",
                "seconds": f"{own['seconds']:.0f}",
            }
        )
    words = (
        f"({panel[1]}) {first['setting']}: {first['arms']} arms, {first['trials']} trials of {first['steps']} steps, "
        f"R^2 = {first['R^2']:.3g}, B = {first['B']:.3g} on average; random play loses {first['random']:.3g} a step.\n"
    )
    return f"{words}\n![Figure {panel}](figure{panel}.png)\n\n{pages.markdown_of(pd.DataFrame(rows))}"


def _with_errors(frame: pd.DataFrame) -> str:
    """Columns ``p`` and ``p se`` as one."""
    played = [name for name in NAMES if name in frame]
    shown = frame.drop(columns=[*played, *(f"{name} se" for name in played)])
    for name in played:
        cells = zip(frame[name], frame[f"{name} se"], strict=True)
        shown[NAMES[name]] = ["" if np.isnan(v) else f"{v:.4g} ± {e:.2g}" for v, e in cells]
    return pages.markdown_of(shown)

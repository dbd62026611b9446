"""RESULTS.md and claims.csv of the figures of Chowdhury & Gopalan 2017, from their CSV files."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._chowdhury_problems import OVER_MEAN
from benchmarks.papers._claims import HOLDS, NOT_RUN, UNTESTED, Claim, Finding, judged, of_table

PAPER = "Chowdhury & Gopalan 2017"
PLAYED = {"gp_ucb": "GP-UCB", "igp_ucb": "IGP-UCB", "gp_ts": "GP-TS", "gp_ei": "GP-EI", "gp_pi": "GP-PI"}
NAMES = PLAYED | {key: f"{PLAYED[of]} over means" for key, of in OVER_MEAN.items()}
PANELS = ("1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b")
_CLAIMS = tomllib.loads(Path(__file__).with_name("chowdhury.toml").read_text(encoding="utf-8"))["claims"]
_SIMILAR = 0.2  # share of the larger that two regrets may differ by to be called similar
_STEPS = 30_000
_GOOD = 0.1  # share of random play's regret a step that is called performing well
_CONJECTURE = (
    "Conjecture: UCB and TS are less robust to the choice of the kernel than EI and PI (taken as: between the best and "
    "the worst lengthscale the regrets of IGP-UCB and GP-TS change by a larger factor than those of GP-EI and GP-PI)"
)
Regrets = Mapping[str, np.ndarray]  # of the trials, by policy


def write(out: Path) -> None:
    figures: dict[str, list[dict[str, Any]]] = {}
    for panel in PANELS:
        if (out / f"figure{panel}_trials.csv").is_file():
            figures.setdefault(panel[0], []).append(_panel(out, panel))
    beside = {name: pages.read(out / f"{name}.csv") for name in ("robustness", "sensitivity")}
    shown = {name: _with_errors(frame) for name, frame in beside.items() if frame is not None}
    _claims.write_page(out, "chowdhury", PAPER, make_claims(out), figures=figures, **shown)


def make_claims(out: Path) -> list[Claim]:
    """Every claim of the paper's experiment section, and those elsewhere that its experiments are to support."""
    panels = {panel: found for panel in PANELS if (found := _of_trials(out, panel, "regret")) is not None}
    steps = {panel: int(pd.read_csv(out / f"figure{panel}_facts.csv")["steps"].iloc[0]) for panel in panels}
    short = {panel: count for panel, count in steps.items() if count < _STEPS}  # than the paper's
    rows = sorted(_said(out, panels), key=lambda row: row[0])
    return _claims.of_rows("chowdhury", [(PAPER, *_flagged(*row, short)) for row in rows])


def _flagged(
    where: str, claim: str, finding: Finding, part: str, short: Mapping[str, int]
) -> tuple[str, str, Finding, str]:
    """The row with a word on the steps, and what to run, where it rests on a panel that was cut short."""
    panel = where.removeprefix("Figure ")
    of = {panel: short[panel]} if panel in short else {} if where.startswith("Figure") else short
    if not of:
        return where, claim, finding, part
    cut = ", ".join(f"{panel} after {count} steps" for panel, count in of.items())
    numbers, shown = f"{finding.numbers} [not {_STEPS}: {cut}]", f"{part} --steps {max(of.values())}"
    return where, claim, Finding(finding.verdict, numbers), shown.strip()


def _said(out: Path, panels: Mapping[str, Regrets]) -> Iterator[tuple[str, str, Finding, str]]:
    """(where, claim, finding, part of the command)."""
    for panel in PANELS:
        claims = dict(_of_panel(panel, None))
        if panel in panels:
            claims = _by_both_readings(
                lambda found, panel=panel: dict(_of_panel(panel, found)), panels[panel]
            )
        for claim, finding in claims.items():
            yield f"Figure {panel}", claim, finding, panel
    compare = "The methods compare on draws of the GP as on functions of the RKHS"
    for kernel in "ab":
        both = [panels[figure + kernel] for figure in "12" if figure + kernel in panels]
        same = NOT_RUN
        if len(both) == 2:
            (same,) = _by_both_readings(lambda *found: {compare: same_order(*found)}, *both).values()
        yield f"Figure 2{kernel}", compare, same, "figure2"
    yield "Figure 3, text", _CONJECTURE, robustness(pages.read(out / "robustness.csv")), "robustness"
    validated = Finding(UNTESTED, "the paper does not say over which values or with which score")
    yield "Figure 4, text", "gamma_t = 1 was found by cross-validation", validated, "figure4"
    pairs = [_claims.less(f["igp_ucb"], f["gp_ucb"], (p, "GP-UCB")) for p, f in panels.items()]
    much = "IGP-UCB is much better than GP-UCB on synthetic functions and on sensors"
    yield "Section 4.1", much, _claims.every(pairs) if pairs else NOT_RUN, ""
    yield "Section 7", "IGP-UCB and GP-TS perform well on synthetic and real data", _perform_well(out), ""


def _by_both_readings(judge: Callable[..., dict[str, Finding]], *panels: Regrets) -> dict[str, Finding]:
    """The findings where GP-EI and GP-PI improve on the largest reward; beside each that over the largest mean, where
    that is another. ``judge`` gets the regrets of each panel by the shown names."""
    means = {of: mean for mean, of in OVER_MEAN.items()}
    found = judge(*({PLAYED[name]: panel[name] for name in PLAYED} for panel in panels))
    other = judge(*({PLAYED[name]: panel[means.get(name, name)] for name in PLAYED} for panel in panels))
    beside = {}
    for claim, (verdict, numbers) in found.items():
        if other[claim] != found[claim]:
            numbers = f"{numbers} [over means: {other[claim].verdict}, {other[claim].numbers}]"
        beside[claim] = Finding(verdict, numbers)
    return beside


def _of_panel(panel: str, regrets: Regrets | None) -> Iterator[tuple[str, Finding]]:
    """What the paper says of one panel, judged by one reading; not run where there are no regrets."""
    for one in _CLAIMS:
        if not panel.startswith(tuple(one["panels"])):
            continue
        if regrets is None:
            found = NOT_RUN
        elif names := one.get("alike"):
            found = _claims.alike(*(regrets[name] for name in names), names, _SIMILAR)
        else:
            rivals, factor = one.get("rivals", PLAYED.values()), one.get("factor", 1.0)
            others = {own: [name for name in rivals if name != own] for own in one["least"]}
            found = _claims.every([_claims.least(*each, regrets, factor) for each in others.items()])
        yield one["says"], found


def same_order(first: Regrets, second: Regrets) -> Finding:
    """Whether no pair of policies that both panels tell apart, beyond two standard errors, changes places."""
    kept, turned = [], []
    for names in combinations(first, 2):
        signs = []
        for panel in (first, second):
            pair = [panel[name] for name in names]
            below = _claims.less(*pair, names).verdict == HOLDS
            above = _claims.less(*pair[::-1], names[::-1]).verdict == HOLDS
            signs.append(below - above)
        if signs[0] * signs[1]:
            (kept if signs[0] == signs[1] else turned).append(" and ".join(names))
    orders = [" < ".join(sorted(panel, key=lambda name: panel[name].mean())) for panel in (first, second)]
    numbers = (
        f"figure 1: {orders[0]}; figure 2: {orders[1]}; told apart in both and in the same order: {len(kept)} pairs, "
        f"in the other order: {', '.join(turned) or 'none'}"
    )
    return judged(bool(kept) and not turned, numbers)


@of_table
def robustness(frame: pd.DataFrame) -> Finding:
    """Whether the regrets of IGP-UCB and GP-TS change more with the lengthscale than those of GP-EI and GP-PI."""
    regrets = {name: frame[name].to_numpy() for name in NAMES}
    return _by_both_readings(lambda found: {"": _robust(found)}, regrets)[""]


def _robust(regrets: Regrets) -> Finding:
    change = {name: float(values.max() / values.min()) for name, values in regrets.items()}
    numbers = "worst to best: " + ", ".join(f"{name} {value:.3g}" for name, value in change.items())
    holds = min(change["IGP-UCB"], change["GP-TS"]) > max(change["GP-EI"], change["GP-PI"])
    return judged(holds, numbers)


def _perform_well(out: Path) -> Finding:
    found, well = [], True
    for panel in PANELS:
        late = _of_trials(out, panel, "late")
        if late is not None:
            random = float(pd.read_csv(out / f"figure{panel}_facts.csv")["random"].iloc[0])
            shares = [float(late[p].mean()) / random for p in ("igp_ucb", "gp_ts")]
            well &= max(shares) < _GOOD
            found.append(f"{panel}: {100 * shares[0]:.2g} % and {100 * shares[1]:.2g} %")
    if not found:
        return NOT_RUN
    return judged(well, "late regret as a share of random play's, " + ", ".join(found))


def _of_trials(out: Path, panel: str, column: str) -> dict[str, np.ndarray] | None:
    """A column of a panel's trials, by policy, in the order of the trials."""
    frame = pages.read(out / f"figure{panel}_trials.csv")
    if frame is None:
        return None
    frame = frame.sort_values("trial")
    return {name: frame.loc[frame["policy"] == name, column].to_numpy() for name in NAMES}


def _panel(out: Path, panel: str) -> dict[str, Any]:
    """What was set, and the trials of each policy, those of the least mean regret first."""
    trials = pd.read_csv(out / f"figure{panel}_trials.csv").groupby("policy")
    facts = pd.read_csv(out / f"figure{panel}_facts.csv").set_index("policy")
    order = trials["regret"].mean().sort_values().index
    played = [(NAMES[name], facts.loc[name], trials.get_group(name)) for name in order]
    return {"name": panel, "played": played, **facts.iloc[0]}


def _with_errors(frame: pd.DataFrame) -> dict[str, Any]:
    """The rows of a table, what is set in them, and who was played, whose columns are ``p`` and ``p se``."""
    played = {name: NAMES[name] for name in NAMES if name in frame}
    own = [name for name in frame if name.removesuffix(" se") not in played]
    return {"rows": frame.to_dict("records"), "own": own, "played": played}

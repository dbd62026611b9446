"""What Ziomek, Adachi & Osborne 2024 say of their figures 2 and 4, and whether it holds here, from the CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pandas as pd

from benchmarks.papers import _claims
from benchmarks.papers._claims import FAILS, HOLDS, UNTESTED, Claim, Finding

PAPER = "Ziomek, Adachi & Osborne 2024"
COMMAND = "python -m benchmarks.papers ziomek"
NAMES = {
    "pe_gp_ucb": "PE-GP-UCB",
    "mle_gp_ucb": "MLE",
    "bayes_gp_ucb": "fully Bayesian",
    "regret_balancing": "regret balancing",
    "random": "random",
}
_SIMILAR = 0.2  # share of the larger that two regrets may differ by to be called similar
_UNIFORM = 2.0  # largest share of plays over smallest, up to which plays are called roughly uniform
_RIVALS = ("mle_gp_ucb", "bayes_gp_ucb", "regret_balancing")


def make_claims(out: Path) -> list[Claim]:
    """One claim for each statement of section 7; "not run" where a file is missing."""
    rows = [("Figure 2", claim, found, "toy") for claim, found in _toy(out)]
    rows += [("Figure 4", claim, found, "intel --data DIR") for claim, found in _intel(out)]
    return [Claim(PAPER, w, claim, f.verdict, f.numbers, f"{COMMAND} {part}") for w, claim, f, part in rows]


def _toy(out: Path) -> list[tuple[str, Finding]]:
    totals, shares = _read(out, "figure2_totals.csv"), _read(out, "figure2b.csv")
    true = "hill 2 tall"
    similar = [(a, b) for a, b in combinations(_RIVALS, 2)]
    return [
        ("PE-GP-UCB has the lowest regret", _least(totals, "pe_gp_ucb", (*_RIVALS, "random"))),
        (
            "MLE, the fully Bayesian policy and regret balancing perform similarly",
            _every([_alike(totals, *pair) for pair in similar]),
        ),
        ("All three outperform random search", _every([_least(totals, own, ["random"]) for own in _RIVALS])),
        (
            "MLE keeps selecting the same wrong prior",
            _sticks(shares, "mle_gp_ucb", lambda prior: prior != true),
        ),
        ("Regret balancing tries the priors roughly uniformly", _uniform(shares, "regret_balancing")),
        ("PE-GP-UCB commits to the true prior", _sticks(shares, "pe_gp_ucb", lambda prior: prior == true)),
        ("PE-GP-UCB explores all the priors", _explores(shares, "pe_gp_ucb")),
    ]


def _intel(out: Path) -> list[tuple[str, Finding]]:
    totals, shares, curve = (_read(out, f"figure4{part}.csv") for part in ("_totals", "b", "a"))
    return [
        ("Regret balancing is for most iterations no better than random search", _mostly_no_better(curve)),
        (
            "MLE performs slightly better than regret balancing",
            _least(totals, "mle_gp_ucb", ["regret_balancing"]),
        ),
        (
            "MLE is not significantly better than random search in the first half",
            _not(_at(curve, 0.5, "mle_gp_ucb", "random")),
        ),
        ("The fully Bayesian policy outperforms MLE", _least(totals, "bayes_gp_ucb", ["mle_gp_ucb"])),
        ("PE-GP-UCB outperforms the fully Bayesian policy", _least(totals, "pe_gp_ucb", ["bayes_gp_ucb"])),
        (
            "... especially in the beginning (taken as: already after a quarter of the steps)",
            _at(curve, 0.25, "pe_gp_ucb", "bayes_gp_ucb"),
        ),
        ("PE-GP-UCB has the lowest regret", _least(totals, "pe_gp_ucb", (*_RIVALS, "random"))),
        (
            "MLE commits to the prior of 7 March",
            _sticks(shares, "mle_gp_ucb", lambda prior: prior == "2004-03-07"),
        ),
        (
            "PE-GP-UCB mostly relies on 4 and 12 March",
            _relies(shares, "pe_gp_ucb", ["2004-03-04", "2004-03-12"]),
        ),
    ]


def _read(out: Path, name: str) -> pd.DataFrame | None:
    return pd.read_csv(out / name) if (out / name).is_file() else None


_NOT_RUN = Finding(UNTESTED, "not run")


def _every(findings: Sequence[Finding]) -> Finding:
    return _NOT_RUN if _NOT_RUN in findings else _claims.every(findings)


def _least(totals: pd.DataFrame | None, own: str, rivals: Sequence[str]) -> Finding:
    if totals is None:
        return _NOT_RUN
    named = {NAMES[name]: totals[name].to_numpy() for name in NAMES}
    return _claims.least(NAMES[own], [NAMES[rival] for rival in rivals], named)


def _alike(totals: pd.DataFrame | None, first: str, second: str) -> Finding:
    if totals is None:
        return _NOT_RUN
    names = (NAMES[first], NAMES[second])
    return _claims.alike(totals[first].to_numpy(), totals[second].to_numpy(), names, _SIMILAR)


def _sticks(shares: pd.DataFrame | None, policy: str, expected) -> Finding:
    """Whether one prior has more than half of all plays, and it is as expected."""
    if shares is None:
        return _NOT_RUN
    most = shares.loc[shares[policy].idxmax()]
    holds = bool(most[policy] > 0.5 and expected(most["prior"]))
    numbers = f"most played: {most['prior']}, {100 * most[policy]:.0f} % of all plays (asked: more than half)"
    return Finding(HOLDS if holds else FAILS, numbers)


def _relies(shares: pd.DataFrame | None, policy: str, priors: Sequence[str]) -> Finding:
    if shares is None:
        return _NOT_RUN
    of = shares.set_index("prior")[policy]
    most = ", ".join(f"{prior} {100 * share:.0f} %" for prior, share in of.nlargest(2).items())
    together = of[list(priors)].sum()
    numbers = f"together {100 * together:.1f} % of all plays (asked: more than half); most played: {most}"
    return Finding(HOLDS if together > 0.5 else FAILS, numbers)


def _uniform(shares: pd.DataFrame | None, policy: str) -> Finding:
    if shares is None:
        return _NOT_RUN
    low, high = shares[policy].min(), shares[policy].max()
    numbers = (
        f"shares of plays from {100 * low:.1f} to {100 * high:.1f} % (asked: within a factor of {_UNIFORM:g})"
    )
    return Finding(HOLDS if high <= _UNIFORM * low else FAILS, numbers)


def _explores(shares: pd.DataFrame | None, policy: str) -> Finding:
    if shares is None:
        return _NOT_RUN
    played = int((shares[policy] > 0).sum())
    return Finding(HOLDS if played == len(shares) else FAILS, f"{played} of {len(shares)} priors were played")


def _mostly_no_better(curve: pd.DataFrame | None) -> Finding:
    """Whether at more than half of the steps the average regret so far is not below random's beyond two errors."""
    if curve is None:
        return _NOT_RUN
    own, other = (curve[curve["policy"] == name].set_index("step") for name in ("regret_balancing", "random"))
    gap = other["mean_cumulative_regret"] - own["mean_cumulative_regret"]
    error = (own["standard_error"] ** 2 + other["standard_error"] ** 2) ** 0.5
    share = float((gap <= 2 * error).mean())
    return Finding(
        HOLDS if share > 0.5 else FAILS,
        f"not beyond two standard errors better in {100 * share:.0f} % of steps",
    )


def _at(curve: pd.DataFrame | None, part: float, first: str, second: str) -> Finding:
    """Whether the first's regret is less after that part of the steps."""
    if curve is None:
        return _NOT_RUN
    step = round(part * curve["step"].max())
    rows = curve[curve["step"] == step].set_index("policy")
    pairs = [tuple(rows.loc[name, ["mean_cumulative_regret", "standard_error"]]) for name in (first, second)]
    found = _claims.less_of_means(*pairs, (NAMES[first], NAMES[second]))
    return Finding(found.verdict, f"step {step}: {found.numbers}")


def _not(finding: Finding) -> Finding:
    turned = {HOLDS: FAILS, FAILS: HOLDS, UNTESTED: UNTESTED}
    return Finding(turned[finding.verdict], finding.numbers)

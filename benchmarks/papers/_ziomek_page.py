"""Claims.csv and RESULTS.md of the figures of Ziomek et al. 2024, from their CSV files."""

import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._claims import FAILS, HOLDS, UNTESTED, Claim, Finding, every, judged, of_table

PAPER = "Ziomek, Adachi & Osborne 2024"
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
    rows = []
    for one in _CLAIMS:
        of, rule = _RULES[one["rule"]]
        table = pages.read(out / f"figure{one['figure']}{of}.csv")
        found = every([rule(table, *given) for given in one["given"]])
        said = _not(found) if "denied" in one else found
        part = {2: "toy", 4: "intel --data DIR"}[one["figure"]]
        rows.append((PAPER, f"Figure {one['figure']}", one["says"], said, part))
    return _claims.of_rows("ziomek", rows)


@of_table
def _least(totals: pd.DataFrame, own: str, *rivals: str) -> Finding:
    named = {NAMES[name]: totals[name].to_numpy() for name in NAMES}
    return _claims.least(NAMES[own], [NAMES[rival] for rival in rivals], named)


@of_table
def _alike(totals: pd.DataFrame, first: str, second: str) -> Finding:
    names = (NAMES[first], NAMES[second])
    return _claims.alike(totals[first].to_numpy(), totals[second].to_numpy(), names, _SIMILAR)


@of_table
def _sticks(shares: pd.DataFrame, policy: str, prior: str, other: bool = False) -> Finding:
    """Whether this prior, or one other, has more than half of all plays."""
    most = shares.loc[shares[policy].idxmax()]
    numbers = f"most played: {most['prior']}, {100 * most[policy]:.0f} % of all plays (asked: more than half)"
    return judged(most[policy] > 0.5 and (most["prior"] == prior) != other, numbers)


@of_table
def _relies(shares: pd.DataFrame, policy: str, *priors: str) -> Finding:
    of = shares.set_index("prior")[policy]
    most = ", ".join(f"{prior} {100 * share:.0f} %" for prior, share in of.nlargest(2).items())
    together = of[list(priors)].sum()
    numbers = f"together {100 * together:.1f} % of all plays (asked: more than half); most played: {most}"
    return judged(together > 0.5, numbers)


@of_table
def _uniform(shares: pd.DataFrame, policy: str) -> Finding:
    low, high = shares[policy].min(), shares[policy].max()
    asked = f"asked: within a factor of {_UNIFORM:g}"
    return judged(
        high <= _UNIFORM * low, f"shares of plays from {100 * low:.1f} to {100 * high:.1f} % ({asked})"
    )


@of_table
def _explores(shares: pd.DataFrame, policy: str) -> Finding:
    played = int((shares[policy] > 0).sum())
    return judged(played == len(shares), f"{played} of {len(shares)} priors were played")


@of_table
def _mostly_no_better(curve: pd.DataFrame, *names: str) -> Finding:
    """Whether at more than half of the steps the first's regret so far is not below the other's beyond two errors."""
    own, other = (curve[curve["policy"] == name].set_index("step") for name in names)
    gap = other["mean_cumulative_regret"] - own["mean_cumulative_regret"]
    error = (own["standard_error"] ** 2 + other["standard_error"] ** 2) ** 0.5
    share = float((gap <= 2 * error).mean())
    return judged(share > 0.5, f"not beyond two standard errors better in {100 * share:.0f} % of steps")


@of_table
def _at(curve: pd.DataFrame, part: float, first: str, second: str) -> Finding:
    """Whether the first's regret is less after that part of the steps."""
    step = round(part * curve["step"].max())
    rows = curve[curve["step"] == step].set_index("policy")
    pairs = [tuple(rows.loc[name, ["mean_cumulative_regret", "standard_error"]]) for name in (first, second)]
    found = _claims.less_of_means(*pairs, (NAMES[first], NAMES[second]))
    return Finding(found.verdict, f"step {step}: {found.numbers}")


# By their names in ziomek.toml, with the table that they judge.
_RULES = {
    "least": ("_totals", _least),
    "alike": ("_totals", _alike),
    "sticks to": ("b", _sticks),
    "sticks to another than": ("b", partial(_sticks, other=True)),
    "relies on": ("b", _relies),
    "uniform": ("b", _uniform),
    "explores": ("b", _explores),
    "mostly no better": ("a", _mostly_no_better),
    "less after": ("a", _at),
}
_CLAIMS = tomllib.loads(Path(__file__).with_name("ziomek.toml").read_text(encoding="utf-8"))["claims"]


def _not(finding: Finding) -> Finding:
    turned = {HOLDS: FAILS, FAILS: HOLDS, UNTESTED: UNTESTED}
    return Finding(turned[finding.verdict], finding.numbers)


def write(out: Path) -> None:
    varied = {}
    for name in ("sensitivity_toy", "sensitivity_intel"):
        if (out / f"{name}.csv").is_file():
            rows = pd.read_csv(out / f"{name}.csv", dtype={"value": str})
            varied[name] = _sensitivity(rows)
            if name == "sensitivity_toy":
                _draw_hills(rows, out / "hill_width.png")
    figures = {figure: _played(out, figure) for figure in ("figure2", "figure4")}
    speed = pages.read(out / "speed.csv")
    _claims.write_page(out, "ziomek", PAPER, make_claims(out), speed=speed, **varied, **figures)


def _played(out: Path, figure: str) -> dict[str, Any] | None:
    """What the page shows of a figure: totals, PE-GP-UCB against each other one, shares of plays, and how many priors
    elimination has left at the end, on average; None where it was not played."""
    totals = pages.read(out / f"{figure}_totals.csv")
    if totals is None:
        return None
    totals, survivors = totals.set_index("replicate"), pages.read(out / f"{figure}_survivors.csv")
    left = None if survivors is None else survivors["surviving"]
    mean, error = totals.mean().sort_values(), totals.sem()
    rows = [(policy, pages.with_error(totals[policy])) for policy in mean.index]
    ours = (mean["pe_gp_ucb"], error["pe_gp_ucb"])
    return {
        "replicates": len(totals),
        "regret": pd.DataFrame(rows, columns=["policy", "regret"]),
        "against": {name: _verdict(*ours, mean[name], error[name]) for name in (*_RIVALS, "random")},
        "left": None if left is None else left.iloc[-1],
        "idle": left is not None and left.iloc[-1] > 0.95 * left.iloc[0],
        "shares": pd.read_csv(out / f"{figure}b.csv").round(3),
    }


def _draw_hills(rows: pd.DataFrame, path: Path) -> None:
    """Regret with two standard errors against the width of the hills."""
    rows = rows[rows["setting"] == "hill_width"]
    x = rows["value"].astype(float).to_numpy()
    figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
    ax = figure.subplots()
    for name in _policies(rows):
        ax.errorbar(x, rows[name], 2 * rows[f"{name} se"], marker="o", capsize=2, label=NAMES[name])
    ax.set(xlabel="width of the hills", ylabel="cumulative regret")
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8)
    figure.savefig(path)


def _policies(rows: pd.DataFrame) -> list[str]:
    return [column for column in rows.columns[2:] if not column.endswith(" se")]


def _verdict(mean: float, error: float, other: float, other_error: float) -> str:
    z = _z(mean, error, other, other_error)
    words = "lower" if z > 0 else "higher"
    beyond = "beyond" if abs(z) > 2 else "within"
    return f"{words}, {beyond} two standard errors ({other - mean:+.1f}, {z:+.1f} standard errors)."


def _z(mean: float, error: float, other: float, other_error: float) -> float:
    return (other - mean) / max((error**2 + other_error**2) ** 0.5, 1e-12)


def _sensitivity(rows: pd.DataFrame) -> dict[str, Any]:
    """The rows of one sensitivity, and for each whether PE-GP-UCB is the lowest."""
    names, own, lowest = _policies(rows), "pe_gp_ucb", []
    for row in rows.to_dict("records"):
        least = min(_z(row[own], row[f"{own} se"], row[p], row[f"{p} se"]) for p in names if p != own)
        lowest.append("yes" if least > 2 else "lowest" if least > 0 else "no")
    return {"rows": rows.assign(lowest=lowest).to_dict("records"), "policies": names, "lowest": lowest}

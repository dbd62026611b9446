"""What papers claim and whether it holds here: claims.csv, a ``Claim`` for every sentence that experiments can test.

"A has less regret than B" holds if the difference exceeds two standard errors (of the differences replicate by
replicate, where both played the same functions and noise). "Not decided" is what no finite experiment can settle, such
as growth above an upper bound's exponent, which may still bend. "Vacuous here" is a bound that random play meets too.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks import pages

HOLDS, FAILS, UNDECIDED, VACUOUS = "holds", "does not hold", "not decided", "vacuous here"
UNTESTED = "not testable here"
VERDICTS = (HOLDS, FAILS, UNDECIDED, VACUOUS, UNTESTED)


class Finding(NamedTuple):
    """A verdict and the numbers it rests on."""

    verdict: str
    numbers: str


_ALONE = "a single replicate has no standard error"
NOT_RUN = Finding(UNTESTED, "not run")


@dataclass(frozen=True)
class Claim:
    """One row of claims.csv: ``claim`` in our own words, ``verdict`` one of ``VERDICTS``, ``numbers`` with standard
    errors, or why nothing could be measured, and the ``command`` line that gives them."""

    paper: str
    where: str
    claim: str
    verdict: str
    numbers: str
    command: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {VERDICTS}, got {self.verdict!r}")
        empty = [field.name for field in fields(self) if not getattr(self, field.name).strip()]
        if empty:
            raise ValueError(f"{', '.join(empty)} of a claim must be a text, got ''")


COLUMNS = tuple(field.name for field in fields(Claim))


def of_table(rule: Callable[..., Finding]) -> Callable[..., Finding]:
    """A rule whose first argument is a table: "not run" where that is None, since its file is not there."""

    @wraps(rule)
    def found(table: pd.DataFrame | None, *arguments: Any, **options: Any) -> Finding:
        return NOT_RUN if table is None else rule(table, *arguments, **options)

    return found


def judged(holds: bool, numbers: str) -> Finding:
    return Finding(HOLDS if holds else FAILS, numbers)


def of_rows(module: str, rows: Iterable[tuple[str, str, str, Finding, str]]) -> list[Claim]:
    """Claims of rows: who says it, where, what, the finding, and the part of the paper's command that gives it."""
    return [
        Claim(paper, where, claim, *finding, f"python -m benchmarks.papers {module} {part}".strip())
        for paper, where, claim, finding, part in rows
    ]


def write(folder: Path, claims: Iterable[Claim]) -> None:
    pages.save(pd.DataFrame(claims, columns=COLUMNS), folder / "claims.csv")


def read(folder: Path) -> list[Claim]:
    """The claims in ``folder/claims.csv``; ValueError for other columns or a verdict that is none."""
    return parse((folder / "claims.csv").read_text(encoding="utf-8"), str(folder / "claims.csv"))


def parse(text: str, name: str) -> list[Claim]:
    table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    if tuple(table) != COLUMNS:
        raise ValueError(f"columns of {name} must be {COLUMNS}, got {tuple(table)}")
    return [Claim(*row) for row in table.itertuples(index=False)]


def changes(before: Iterable[Claim], now: Iterable[Claim]) -> list[str]:
    """The claims whose verdict is another, or that are in one of the lists alone, in words."""
    old, new = ({(claim.where, claim.claim): claim.verdict for claim in claims} for claims in (before, now))
    return [
        f'{key[0]}, "{key[1]}": {old.get(key, "no claim")} -> {new.get(key, "no claim")}'
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def table(claims: Iterable[Claim]) -> str:
    """The claims of one paper as a Markdown table."""
    rows = [(c.where, c.claim, f"**{c.verdict}**", c.numbers) for c in claims]
    plain = [[" ".join(text.split()).replace("|", "/") for text in row] for row in rows]
    return pages.markdown(["where", "what the paper says", "verdict", "numbers"], plain)


def summary(claims: Iterable[Claim]) -> str:
    """How many claims have which verdict, and where those stand that do not hold."""
    claims = list(claims)
    counts = Counter(claim.verdict for claim in claims)
    said = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
    failed: dict[str, list[str]] = {}
    for claim in claims:
        if claim.verdict == FAILS:
            failed.setdefault(claim.where, []).append(f'"{claim.claim.split(" (")[0]}"')
    where = "; ".join(f"{place}, {', '.join(dict.fromkeys(texts))}" for place, texts in failed.items())
    return f"Verdicts on {len(claims)} claims of the paper: {said}." + (
        f" Does not hold: {where}." if where else ""
    )


def write_page(folder: Path, module: str, paper: str, claims: Sequence[Claim], **values: Any) -> None:
    """claims.csv, where there are claims, and the page of a paper by its template ``MODULE.md.jinja``: the ``summary``
    of what ``paper`` says, its ``claims``, those that were ``asked`` of this library besides, and the values that are
    not None."""
    if claims:
        write(folder, claims)
    own, asked = ([claim for claim in claims if (claim.paper == paper) is its] for its in (True, False))
    shown = {name: value for name, value in values.items() if value is not None}
    lists = {
        "summary": summary(own),
        "claims": table(own) if own else "",
        "asked": table(asked) if asked else "",
    }
    pages.render(folder / "RESULTS.md", f"papers/{module}.md.jinja", **lists, **shown)


def less(
    first: Sequence[float], second: Sequence[float], names: tuple[str, str], factor: float = 1.0
) -> Finding:
    """Whether the first's mean is less than ``factor`` times the second's, replicate by replicate."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    difference, error = _mean_and_error(factor * b - a)
    said = f"{names[0]} {_shown(a)}, {names[1]} {_shown(b)}"
    return _beyond(difference, error, said if factor == 1 else f"{said}, asked: below {factor:g} times")


def less_of_means(first: tuple[float, float], second: tuple[float, float], names: tuple[str, str]) -> Finding:
    """Whether one mean is less than another, each given as (mean, standard error) of independent replicates."""
    (a, error), (b, other) = first, second
    said = f"{names[0]} {a:.4g} ± {error:.2g}, {names[1]} {b:.4g} ± {other:.2g}"
    return _beyond(b - a, float(np.hypot(error, other)), said)


def least(
    own: str, rivals: Iterable[str], regrets: Mapping[str, Sequence[float]], factor: float = 1.0
) -> Finding:
    """Whether ``own`` has less regret than ``factor`` times that of every rival, replicate by replicate; after each
    rival stands how many standard errors ``own`` lies below."""
    a = np.asarray(regrets[own], dtype=float)
    found, beside = [], []
    for rival in rivals:
        b = np.asarray(regrets[rival], dtype=float)
        found.append(less(a, b, (own, rival), factor))
        difference, error = _mean_and_error(factor * b - a)
        beside.append(f"{rival} {_shown(b)} ({_z(difference, error):+.1f} se)")
    asked = f" (asked: below {factor:g} times theirs)" if factor != 1 else ""
    numbers = f"{own} {_shown(a)}{asked}; {', '.join(beside)}"
    return Finding(every(found).verdict, numbers)


def alike(
    first: Sequence[float], second: Sequence[float], names: tuple[str, str], within: float = 0.1
) -> Finding:
    """Whether two means differ by at most ``within`` of the larger: what a reader of a plot would call the same."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    share = abs(a.mean() - b.mean()) / max(a.mean(), b.mean(), 1e-300)
    numbers = f"{names[0]} {_shown(a)}, {names[1]} {_shown(b)}: they differ by {100 * share:.3g} %"
    return judged(share <= within, f"{numbers} (asked: at most {100 * within:g} %)")


def within(values: Sequence[float], name: str, low: float, high: float) -> Finding:
    """Whether a mean lies in a range, two standard errors allowed for."""
    numbers = np.asarray(values, dtype=float)
    mean, error = _mean_and_error(numbers)
    said = f"{name} {_shown(numbers)}, asked: {low:g} to {high:g}, give or take two standard errors"
    if not np.isfinite(error):
        return Finding(UNTESTED, f"{said}: {_ALONE}")
    inside = low - 2 * error <= mean <= high + 2 * error
    return judged(inside, said)


def every(findings: Sequence[Finding]) -> Finding:
    """Whether all of several findings hold; else "not run" where that is one of them, or the first verdict found of:
    fails, untested, undecided, vacuous."""
    if NOT_RUN in findings:
        return NOT_RUN
    verdicts = {finding.verdict for finding in findings}
    verdict = next((one for one in (FAILS, UNTESTED, UNDECIDED, VACUOUS) if one in verdicts), HOLDS)
    return Finding(verdict, "; ".join(finding.numbers for finding in findings))


def _beyond(difference: float, error: float, said: str) -> Finding:
    if not np.isfinite(error):
        return Finding(UNTESTED, f"{said}: {_ALONE}")
    z = _z(difference, error)
    words = "beyond" if abs(z) > 2 else "within"
    numbers = f"{said}: {difference:+.4g}, {words} two standard errors ({z:+.1f})"
    return judged(z > 2, numbers)


def _z(difference: float, error: float) -> float:
    """Without any spread a difference is beyond or within by its sign alone."""
    if error == 0:
        return float(np.sign(difference)) * np.inf if difference else 0.0
    return difference / error


def _shown(values: np.ndarray) -> str:
    mean, error = _mean_and_error(values)
    return f"{mean:.4g} ± {error:.2g}"


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    if len(values) < 2:
        return float(values.mean()), float("nan")
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)

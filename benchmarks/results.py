"""benchmarks/RESULTS.md: what was found, in five minutes: the answer of every page, and of every paper what holds, what
does not, and why.

    python -m benchmarks.results

Written from the first paragraphs of the pages, ``papers/results/PAPER/claims.csv``, ``papers/NOTES.md`` and pictures,
and from nothing else: a page that is out of date with its files is a mistake, and a test finds it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from benchmarks import pages
from benchmarks.papers import _claims

HERE = Path(__file__).parent
# A paper's module in ``benchmarks.papers``, and its title.
PAPERS = {
    "chowdhury": "Chowdhury & Gopalan 2017: IGP-UCB and GP-TS",
    "zhou": "Zhou & Shroff 2021: R-GP-UCB and SW-GP-UCB",
    "hong": "Hong, Li & Tewari 2023: OPKB, ADA-OPKB, OPNN, ADA-OPNN",
    "calandriello": "Calandriello et al. 2019: BKB",
    "ziomek": "Ziomek, Adachi & Osborne 2024: PE-GP-UCB",
}
# Pages of results other than the papers', in the order shown, each with its question. A test finds one that is missing.
_OTHERS = {
    "speed/RESULTS.md": "Speed, a step's time beside BoTorch's",
    "leaderboard/results/RESULTS.md": "Leaderboard, every recipe on many environments, with settings fixed once",
    "auto/results/RESULTS.md": "Auto, and what it costs to know no kernel, by a protocol fixed before",
    "auto/results/ASKED.md": "Looking again, what was asked and what came of it",
    "auto/results/DAYS.md": "Tables with a day",
    "auto/results/WEEKS.md": "A day and a week, and wrong periods",
    "bernoulli/results/RESULTS.md": "Rewards of 0 and 1",
    "bernoulli/results/LOG_ODDS.md": "Log-odds, a policy for rewards of 0 and 1",
    "diagnosis/results/RESULTS.md": "Diagnosis, what `look` says of files whose truth is known",
    "diagnosis/results/RECORDS.md": "Real records, what `look` says of them beside what is known",
    "logs/results/RESULTS.md": "Logs, policies valued from what others pulled",
    "widths/results/RESULTS.md": "Widths with a theorem, unknown length-scales, R-PERP",
    "control/results/RESULTS.md": "Control, tests under a level that all arms share",
    "safety/results/RESULTS.md": "Safety, limits on a measured outcome that drifts",
    "safety/results/POINTS.md": "Safety over the unit square",
    "continuous/results/RESULTS.md": "Continuous, dynamic standard functions over domains",
    "continuous/results/CLOCK.md": "Clock, functions that move on as a policy computes",
    "continuous/results/TEMPERATURE.md": "Temperature, what W-DBO keeps as it ships, and why it falls to two",
    "contexts/results/RESULTS.md": "Contexts, against dense and linear models",
    "cycles/results/RESULTS.md": "Cycles, kernels with a day",
    "moves/results/RESULTS.md": "Moves, limits on settings and prices of switching",
    "parallel/results/RESULTS.md": "Parallel, eight questions open at once",
    "elsewhere/results/RESULTS.md": "Elsewhere, problems that others wrote",
    "ray/results/RESULTS.md": "Ray Tune, schedulers of populations",
    "xopt/results/RESULTS.md": "Xopt, a beam line that drifts",
}
_PICTURES = {
    "leaderboard/results/ranks.png": "Mean ranks of the leaderboard",
    "continuous/results/regret.png": "Regret on dynamic standard functions",
}
# The most telling picture of each paper.
_FIRST = {
    "chowdhury": "figure1a",
    "zhou": "horizon",
    "hong": "sphere-two-switches",
    "calandriello": "figure_2",
    "ziomek": "figure2a",
}
_READING = re.compile(r"\[(.+?): (holds|does not hold),")  # of a claim another way, in its numbers
_PAPERS = """
## What the papers say

A claim *holds* or *does not hold* by the numbers on the paper's page, is *not decided* where no finite experiment can,
*vacuous here* if it is a bound that random play meets too, or is *not testable here*; "A is better than B" holds if the
difference exceeds two standard errors. What was asked of this library besides is counted with the paper's claims.

"""


def write(folder: Path = HERE) -> Path:
    """Write ``RESULTS.md`` into the folder that holds ``papers/results``; returns its path."""
    return pages.write(folder / "RESULTS.md", page(folder))


def page(folder: Path = HERE) -> str:
    others = "".join(_other(folder / link, link, title) for link, title in _OTHERS.items())
    drawn = {link: name for link, name in _PICTURES.items() if (folder / link).exists()}
    pictures = "".join(f"\n![{name}]({link})\n" for link, name in drawn.items())
    sections = [_section(name, folder) for name in PAPERS]
    claims = [claim for name in PAPERS for claim in _claims_of(name, folder)]
    counts = Counter(claim.verdict for claim in claims)
    answer = (
        f"Of {len(claims)} claims, of {len(PAPERS)} papers or asked of this library, {counts[_claims.HOLDS]} hold and "
        f"{counts[_claims.FAILS]} do not; the others cannot be decided or tested. What else was measured comes first, "
        "in the words of each page."
    )
    head = pages.opening("Results", answer, "python -m benchmarks.results")
    measured = f"{head}\n## What was measured\n\n{others}{pictures}{_PAPERS}{_overview(folder)}"
    return "\n".join([measured, *sections])


def _other(path: Path, link: str, title: str) -> str:
    """A page's link, what was asked, and its answer: its first paragraph."""
    if not path.exists():
        return ""
    _, _, answer = path.read_text(encoding="utf-8").partition("\n\n")
    name, comma, asked = title.partition(", ")
    return pages.bullet(f"[{name}]({link}){comma}{asked}: {answer.partition(chr(10) * 2)[0]}")


def _overview(folder: Path) -> str:
    rows = []
    for name, title in PAPERS.items():
        counts = Counter(claim.verdict for claim in _claims_of(name, folder))
        numbers = [counts[verdict] for verdict in _claims.VERDICTS]
        if not counts:
            numbers = [*[""] * (len(numbers) - 1), "no claims recorded"]
        rows.append([f"[{title}](#{name})", *numbers])
    return pages.markdown(["paper", *_claims.VERDICTS], rows)


def _section(name: str, folder: Path) -> str:
    claims = _claims_of(name, folder)
    reasons, results = why(name), folder / "papers" / "results" / name
    parts = [f'<a id="{name}"></a>\n## {PAPERS[name]}\n']
    picture, own = results / f"{_FIRST[name]}.png", results / "RESULTS.md"
    if picture.exists():
        parts.append(f"![{picture.stem}]({picture.relative_to(folder).as_posix()})\n")
    if own.exists():
        link = own.relative_to(folder).as_posix()
        parts.append(
            f"[Its page]({link}) has the numbers, settings, seeds and all pictures. [Notes](papers/NOTES.md#{name})\n"
            "say where print and published code differ from what runs here.\n"
        )
    if not claims:
        parts.append(f"No claims recorded: `python -m benchmarks.papers {name}`.\n")
    for verdict in _claims.VERDICTS:
        found: dict[str, list[_claims.Claim]] = {}
        for claim in claims:
            if claim.verdict == verdict:
                found.setdefault(short(claim), []).append(claim)
        if found:
            parts.append(f"**{verdict[0].upper()}{verdict[1:]}**\n")
            parts.append("".join(_line(text, of, claims, reasons) for text, of in found.items()))
    return "\n".join(parts)


def _line(text: str, of: list[_claims.Claim], claims: list[_claims.Claim], reasons: dict[str, str]) -> str:
    """A claim that has one verdict in some places, with the reason where it fails."""
    every = sum(short(claim) == text for claim in claims)
    where = ", ".join(dict.fromkeys(claim.where for claim in of))
    where += f"; {len(of)} of {every}" if len(of) < every else ""
    others = Counter(match.groups() for claim in of if (match := _READING.search(claim.numbers)))
    for (reading, verdict), count in others.items():
        if verdict != of[0].verdict:
            where += f"; {reading}: {verdict}" + (f" in {count} of {len(of)}" if count < len(of) else "")
    reason = f". {reasons.get(text, 'It is not known why.')}" if of[0].verdict == _claims.FAILS else ""
    return pages.bullet(f"{text} ({where}){reason}")


def short(claim: _claims.Claim) -> str:
    """What a claim says, without the settings in which it was tried."""
    return re.sub(r" \([a-zA-Z].*", "", claim.claim)


def why(name: str) -> dict[str, str]:
    """Of a paper, from ``papers/NOTES.md``, the reason for each claim that does not hold."""
    text = (HERE / "papers" / "NOTES.md").read_text(encoding="utf-8")
    own = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    reasons = own.partition("\n### Why claims do not hold\n")[2].strip()
    found = re.findall(r'^\* "(.+?)": (.+?)(?=\n\* |\Z)', reasons, re.M | re.S)
    return {" ".join(claim.split()): " ".join(reason.split()) for claim, reason in found}


def _claims_of(name: str, folder: Path) -> list[_claims.Claim]:
    place = folder / "papers" / "results" / name
    return _claims.read(place) if (place / "claims.csv").exists() else []


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit("usage: python -m benchmarks.results")
    print(f"wrote {write()}")

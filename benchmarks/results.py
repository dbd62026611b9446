"""benchmarks/RESULTS.md: every claim of the papers with its verdict, and the way to every other page of results.

    python -m benchmarks.results

Written from ``papers/results/PAPER/claims.csv`` and the pages and pictures beside them, and from nothing else: a page
that is out of date with its files is a mistake, and a test finds it.
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
# Pages of results but for the papers' own, in the order in which they are told of; a test finds one that is missing.
_OTHERS = {
    "speed/RESULTS.md": "[Speed]({}): a step's time against arms, observations, replicates, window, beside BoTorch's.",
    "leaderboard/results/RESULTS.md": "[Leaderboard]({}): every recipe on many environments, with settings fixed once.",
    "auto/results/RESULTS.md": "[Auto]({}): what `auto` costs that is told nothing, by a protocol fixed before.",
    "auto/results/DAYS.md": "[Tables with a day]({}): `auto` with cycles, without, and a kernel told the true day.",
    "bernoulli/results/RESULTS.md": "[Rewards of 0 and 1]({}): what a race advises beside policies for such rewards.",
    "diagnosis/results/RESULTS.md": "[Diagnosis]({}): what `look` says of fifty files whose truth is known.",
    "widths/results/RESULTS.md": "[Widths]({}): widths with a theorem, unknown length-scales, R-PERP.",
    "safety/results/RESULTS.md": "[Safety]({}): limits on a measured outcome that drifts, broken and kept.",
    "safety/results/POINTS.md": "[Safety over points]({}): the same over the unit square.",
    "continuous/results/RESULTS.md": "[Continuous]({}): dynamic standard functions over domains.",
    "continuous/results/CLOCK.md": "[Clock]({}): the same while the function moves on as a policy computes.",
    "contexts/results/RESULTS.md": "[Contexts]({}): rewards that depend on a context, against dense and linear models.",
    "cycles/results/RESULTS.md": "[Cycles]({}): kernels with a day, against exponential forgetting.",
    "parallel/results/RESULTS.md": "[Parallel]({}): eight questions open at once, against one.",
    "elsewhere/results/RESULTS.md": "[Elsewhere]({}): moving peaks and bandits that others wrote.",
    "ray/results/RESULTS.md": "[Ray Tune]({}): schedulers of populations.",
    "xopt/results/RESULTS.md": "[Xopt]({}): a beam line that drifts.",
}
_PAPERS = """
The papers' experiments, claim by claim. A claim *holds* or *does not hold* by the numbers beside it, is *not
decided* where no finite experiment can, *vacuous here* if it is a bound that random play meets too, or is *not testable
here* for the reason given; "A is better than B" holds if the difference exceeds two standard errors.

"""


def write(folder: Path = HERE) -> Path:
    """Write ``RESULTS.md`` into the folder that holds ``papers/results``; returns its path."""
    return pages.write(folder / "RESULTS.md", page(folder))


def page(folder: Path = HERE) -> str:
    """The page's text."""
    others = "".join(f"* {line.format(link)}\n" for link, line in _OTHERS.items() if (folder / link).exists())
    differences = (HERE / "papers" / "DIFFERENCES.md").read_text(encoding="utf-8")
    notes = dict(re.findall(r"^## (\w+)\n\n(.*?\n)(?=\n## |\Z)", differences, re.M | re.S))
    sections = [_section(name, notes[name], folder) for name in PAPERS]
    claims = [claim for name in PAPERS for claim in _claims_of(name, folder)]
    counts = Counter(claim.verdict for claim in claims)
    answer = (
        f"Of {len(claims)} claims, of {len(PAPERS)} papers or asked of this library, {counts[_claims.HOLDS]} hold and "
        f"{counts[_claims.FAILS]} do not; the others cannot be decided or tested. What else is measured stands on the "
        "pages listed next, each with its answer first."
    )
    head = pages.opening("Results", answer, "python -m benchmarks.results")
    return "\n".join([f"{head}\n{others}{_PAPERS}{_overview(folder)}", *sections])


def _overview(folder: Path) -> str:
    rows = []
    for name, title in PAPERS.items():
        counts = Counter(claim.verdict for claim in _claims_of(name, folder))
        told = (
            [counts[verdict] for verdict in _claims.VERDICTS]
            if counts
            else [*[""] * (len(_claims.VERDICTS) - 1), "no claims recorded"]
        )
        rows.append([f"[{title}](#{name})", *told])
    return pages.markdown(["paper", *_claims.VERDICTS], rows)


def _section(name: str, differences: str, folder: Path) -> str:
    claims = _claims_of(name, folder)
    parts = [f'<a id="{name}"></a>\n## {PAPERS[name]}\n', f"{_links(name, folder)}\n"]
    if claims:
        commands = dict.fromkeys(claim.command for claim in claims)
        told = ", ".join(f"`{command}`" for command in commands)
        parts += [_claims.table(claims), f"Run by {told}.\n"]
    else:
        parts.append(f"No claims recorded: `python -m benchmarks.papers {name}`.\n")
    return "\n".join([*parts, f"Where print and published code differ from what runs here:\n\n{differences}"])


def _claims_of(name: str, folder: Path) -> list[_claims.Claim]:
    place = folder / "papers" / "results" / name
    return _claims.read(place) if (place / "claims.csv").exists() else []


def _links(name: str, folder: Path) -> str:
    """The paper's own page and pictures, those there are."""
    results = folder / "papers" / "results"
    pages = [page for page in (results / name / "RESULTS.md", results / f"{name}.md") if page.exists()]
    pictures = sorted((results / name).glob("*.png")) + sorted(results.glob(f"{name}_*.png"))
    shown = [f"[its page]({path.relative_to(folder).as_posix()})" for path in pages]
    shown += [f"[{path.stem}]({path.relative_to(folder).as_posix()})" for path in pictures]
    return ", ".join(shown) if shown else "No results yet."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit("usage: python -m benchmarks.results")
    print(f"wrote {write()}")

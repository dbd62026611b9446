"""``python -m benchmarks.results``: benchmarks/RESULTS.md, the answer of every page, and of every paper what holds,
what does not, and why, from the first paragraphs of the pages, claims.csv, ``papers/NOTES.md`` and pictures."""

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.papers import _claims

HERE = Path(__file__).parent
_SHOWN = tomllib.loads((HERE / "results.toml").read_text(encoding="utf-8"))
# By their modules in ``benchmarks.papers``.
PAPERS = {name: paper["title"] for name, paper in _SHOWN["papers"].items()}
_READING = re.compile(r"\[(.+?): (holds|does not hold),")  # of a claim another way, in its numbers


def write(folder: Path = HERE) -> Path:
    """Write ``RESULTS.md`` into the folder that holds ``papers/results``; returns its path."""
    return pages.write(folder / "RESULTS.md", page(folder))


def page(folder: Path = HERE) -> str:
    places = {name: folder / "papers" / "results" / name for name in PAPERS}
    claims = {name: _claims.read(at) if (at / "claims.csv").exists() else [] for name, at in places.items()}
    return pages.filled(
        "RESULTS.md.jinja",
        counts=Counter(claim.verdict for own in claims.values() for claim in own),
        others=[
            _other(folder / link, link, title)
            for link, title in _SHOWN["pages"].items()
            if (folder / link).exists()
        ],
        pictures={link: name for link, name in _SHOWN["pictures"].items() if (folder / link).exists()},
        possible=_claims.VERDICTS,
        papers=[_paper(name, own, folder) for name, own in claims.items()],
    )


def _other(path: Path, link: str, title: str) -> str:
    """A page's link, what was asked, and its answer: its first paragraph."""
    _, _, answer = path.read_text(encoding="utf-8").partition("\n\n")
    name, comma, asked = title.partition(", ")
    return f"[{name}]({link}){comma}{asked}: {answer.partition(chr(10) * 2)[0]}"


def _paper(name: str, claims: list[_claims.Claim], folder: Path) -> dict[str, Any]:
    """What its section shows: links, where there is what they lead to, and the claims of each verdict, in lines."""
    results, verdicts = Path("papers", "results", name), {}
    picture, own = results / f"{_SHOWN['papers'][name]['picture']}.png", results / "RESULTS.md"
    for verdict in _claims.VERDICTS:
        found: dict[str, list[_claims.Claim]] = {}
        for claim in claims:
            if claim.verdict == verdict:
                found.setdefault(short(claim), []).append(claim)
        if found:
            verdicts[verdict] = [_line(text, of, claims, why(name)) for text, of in found.items()]
    links = {"picture": picture, "page": own}
    there = {kind: path if (folder / path).exists() else None for kind, path in links.items()}
    counts = Counter(claim.verdict for claim in claims)
    return {"name": name, "title": PAPERS[name], "verdicts": verdicts, "counts": counts, **there}


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
    return f"{text} ({where}){reason}"


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


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit("usage: python -m benchmarks.results")
    print(f"wrote {write()}")

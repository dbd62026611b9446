"""benchmarks/RESULTS.md is what the program writes from the committed result files, and its links lead somewhere."""

import re

import pytest

from benchmarks import results
from benchmarks.papers import __main__ as papers
from benchmarks.papers import _claims


def claim(**changes):
    row = {
        "paper": "Ziomek et al. 2024",
        "where": "Figure 2",
        "claim": "It wins",
        "verdict": _claims.HOLDS,
        "numbers": "1 ± 0.1 against 2 ± 0.1",
        "command": "python -m benchmarks.papers ziomek toy",
    }
    return _claims.Claim(**row | changes)


def folder_of(root, name, claims):
    folder = root / "papers" / "results" / name
    folder.mkdir(parents=True)
    _claims.write(folder, claims)
    return folder


def test_the_committed_page_is_what_the_program_writes():
    text = (results.HERE / "RESULTS.md").read_text(encoding="utf-8")
    assert text == results.page(), "run python -m benchmarks.results"


def test_every_page_of_results_is_linked():
    pages = {
        path.relative_to(results.HERE).as_posix()
        for path in results.HERE.glob("**/*.md")
        if not path.name.startswith(("PROTOCOL", "NOTES")) and path.parent != results.HERE
    }
    links = re.findall(r"\]\(([^)#]+)\)", results.page())
    assert len(pages) >= 17
    assert pages <= set(links)


def test_a_page_that_does_not_exist_is_not_linked(tmp_path):
    (tmp_path / "ray" / "results").mkdir(parents=True)
    assert "](ray/" not in results.page(tmp_path)
    (tmp_path / "ray" / "results" / "RESULTS.md").write_text("# Ray\n\nOurs is ahead.\nRarely.\n\nMore.\n")
    page = results.page(tmp_path)
    assert "* [Ray Tune](ray/results/RESULTS.md), schedulers of populations: Ours is ahead. Rarely.\n" in page
    assert "](xopt/" not in page


def test_links_of_the_committed_page_lead_to_files_and_sections():
    text = (results.HERE / "RESULTS.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) >= 4 * len(results.PAPERS)
    for link in links:
        path, _, name = link.partition("#")
        target = (results.HERE / path).read_bytes() if path else text.encode()
        heads = (f'<a id="{name}"></a>', f"\n## {name}\n")
        assert not name or any(head.encode() in target for head in heads), link


def test_every_paper_has_its_section():
    assert set(papers.papers()) <= set(results.PAPERS)


def test_every_claim_stands_there_once_with_where_it_holds_and_why_not(tmp_path):
    again = "2 ± 0.1 against 3 ± 0.1 [over means: does not hold, 3 ± 1 against 3 ± 1]"
    rows = [
        claim(),
        claim(where="Figure 3", claim="It wins (drift)", numbers=again),
        claim(where="Figure 4", claim="PE-GP-UCB has the lowest regret", verdict=_claims.FAILS),
        claim(where="Figure 5", claim="It wins (jumps)", verdict=_claims.FAILS),
        claim(where="Table 1", claim="It never (1/2) loses", verdict=_claims.UNTESTED),
    ]
    folder = folder_of(tmp_path, "ziomek", rows)
    (folder / "RESULTS.md").write_text("")
    (folder / "figure2a.png").write_bytes(b"")
    page = results.write(tmp_path).read_text(encoding="utf-8")
    assert "* It wins (Figure 2, Figure 3; 2 of 3; over means: does not hold in 1 of 2)\n" in page
    assert "* PE-GP-UCB has the lowest regret (Figure 4). It has the lowest mean" in page
    assert "* It wins (Figure 5; 1 of 3). It is not known why.\n" in page
    assert "* It never (1/2) loses (Table 1)\n" in page
    assert "(#ziomek) | 2 | 2 | 0 | 0 | 1 |" in page
    assert "[Its page](papers/results/ziomek/RESULTS.md)" in page
    assert "![figure2a](papers/results/ziomek/figure2a.png)" in page
    assert "No claims recorded: `python -m benchmarks.papers hong`." in page


@pytest.mark.parametrize("name", results.PAPERS)
def test_a_reason_is_given_for_every_claim_that_does_not_hold_and_for_no_other(name):
    kept = _claims.read(results.HERE / "papers" / "results" / name)
    failed = {results.short(one) for one in kept if one.verdict == _claims.FAILS}
    assert set(results.why(name)) == failed

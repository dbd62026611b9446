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
        if path.name not in ("PROTOCOL.md", "PROTOCOL-CLOCK.md", "DIFFERENCES.md")
        and path.parent != results.HERE
    }
    links = re.findall(r"\]\(([^)#]+)\)", results.page())
    assert len(pages) >= 17
    assert pages <= set(links)


def test_a_page_that_does_not_exist_is_not_linked(tmp_path):
    (tmp_path / "ray" / "results").mkdir(parents=True)
    assert "](ray/" not in results.page(tmp_path)
    (tmp_path / "ray" / "results" / "RESULTS.md").write_text("")
    page = results.page(tmp_path)
    assert "* [Ray Tune](ray/results/RESULTS.md): " in page
    assert "](xopt/" not in page


def test_links_of_the_committed_page_lead_to_files_and_sections():
    text = (results.HERE / "RESULTS.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) >= 2 * len(results.PAPERS)
    for link in links:
        found = (
            f'<a id="{link[1:]}"></a>' in text if link.startswith("#") else (results.HERE / link).is_file()
        )
        assert found, link


def test_every_paper_has_its_section():
    assert set(papers.papers()) <= set(results.PAPERS)


def test_every_claim_stands_there_with_verdict_numbers_and_command(tmp_path):
    rows = [
        claim(),
        claim(where="Section 7", claim="It always wins", verdict=_claims.FAILS, numbers="2 | 3"),
        claim(where="Table 1", verdict=_claims.UNTESTED, numbers="no such data", command="none"),
    ]
    folder = folder_of(tmp_path, "ziomek", rows)
    (folder / "RESULTS.md").write_text("")
    (folder / "figure2.png").write_bytes(b"")
    page = results.write(tmp_path).read_text(encoding="utf-8")
    assert "| Figure 2 | It wins | **holds** | 1 ± 0.1 against 2 ± 0.1 |" in page
    assert "| Section 7 | It always wins | **does not hold** | 2 / 3 |" in page
    assert "Run by `python -m benchmarks.papers ziomek toy`, `none`." in page
    assert "(#ziomek) | 1 | 1 | 0 | 0 | 1 |" in page
    assert (
        "[its page](papers/results/ziomek/RESULTS.md), [figure2](papers/results/ziomek/figure2.png)" in page
    )
    assert "No claims recorded: `python -m benchmarks.papers hong`." in page


def test_a_claim_that_changes_changes_the_page(tmp_path):
    folder_of(tmp_path, "hong", [claim()])
    before = results.page(tmp_path)
    _claims.write(tmp_path / "papers" / "results" / "hong", [claim(verdict=_claims.FAILS)])
    assert results.page(tmp_path) != before


def test_a_table_of_other_columns_is_refused(tmp_path):
    folder = folder_of(tmp_path, "hong", [claim()])
    (folder / "claims.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns of"):
        results.page(tmp_path)

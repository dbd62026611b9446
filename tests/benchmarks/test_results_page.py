"""benchmarks/RESULTS.md is what the program writes from the committed result files, and its links lead somewhere."""

import re

import pytest

from benchmarks import results
from benchmarks.papers import __main__ as papers
from benchmarks.papers import _claims


def test_the_committed_page_is_what_the_program_writes():
    text = (results.HERE / "RESULTS.md").read_text(encoding="utf-8")
    assert text == results.page(), "run python -m benchmarks.results"


def test_every_page_of_results_is_linked():
    pages = {
        path.relative_to(results.HERE).as_posix()
        for path in results.HERE.glob("**/*.md")
        if not path.name.startswith(("PROTOCOL", "NOTES")) and path.parent != results.HERE
        if "fast" not in path.parts  # of short runs here, not kept
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


@pytest.mark.parametrize("name", results.PAPERS)
def test_a_reason_is_given_for_every_claim_that_does_not_hold_and_for_no_other(name):
    kept = _claims.read(results.HERE / "papers" / "results" / name)
    failed = {results.short(one) for one in kept if one.verdict == _claims.FAILS}
    assert set(results.why(name)) == failed

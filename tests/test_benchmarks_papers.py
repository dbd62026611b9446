"""The figures of papers come from one command, and their page from the files it wrote."""

import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers import _ziomek_page, ziomek


def test_the_toy_part_writes_its_figures_and_the_page(tmp_path) -> None:
    papers.main(["ziomek", "toy", "--fast", "--out", str(tmp_path)])
    written = {path.name for path in tmp_path.iterdir()}
    assert {
        "figure2a.csv",
        "figure2a.png",
        "figure2b.csv",
        "figure2b.png",
        "figure3.png",
        "RESULTS.md",
    } <= written
    page = (tmp_path / "RESULTS.md").read_text()
    assert "PE-GP-UCB against mle_gp_ucb: " in page
    assert "Figure 4" not in page


def test_the_page_says_lower_only_beyond_two_standard_errors() -> None:
    assert _ziomek_page._verdict(10, 3, 21, 4) == (
        "lower, beyond two standard errors (+11.0, +2.2 standard errors)."
    )
    assert "lower, within two standard errors" in _ziomek_page._verdict(10, 3, 19, 4)
    assert "higher, beyond two standard errors" in _ziomek_page._verdict(21, 3, 10, 4)


def test_sensitivity_rows_say_where_the_ordering_does_not_hold(tmp_path) -> None:
    names = ",".join(f"{name},{name} se" for name in ziomek.RIVALS)
    rows = ["a,1,1,1,9,1,9,1,9,1", "a,2,8,1,9,1,9,1,9,1", "a,3,9,1,8,1,9,1,9,1"]
    (tmp_path / "sensitivity_toy.csv").write_text("\n".join([f"setting,value,{names}", *rows]))
    _ziomek_page.write(tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    ends = [line.split("|")[-2].strip() for line in page.splitlines() if line.startswith("| a |")]
    assert ends == ["yes", "lowest", "no"]
    assert "Of 3 rows: yes in 1, lowest in 1, no in 1." in page


@pytest.mark.parametrize("arguments", [[], ["nobody"], ["ziomek", "nothing"], ["ziomek", "intel"]])
def test_misuse_is_refused(arguments) -> None:
    with pytest.raises(SystemExit):
        papers.main(arguments)

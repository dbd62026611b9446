"""The figures of papers come from one command, and their page from the files it wrote."""

import dataclasses
import sys

import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers import _chowdhury_page, _claims, _zhou_page, _ziomek_page, chowdhury
from benchmarks.papers._claims import UNTESTED
from benchmarks.papers._folders import RESULTS, data_folder, results_folder
from benchmarks.papers.hong import RACES


def test_the_toy_part_writes_its_figures_and_the_page(tmp_path) -> None:
    papers.main(["ziomek", "toy", "--fast", "--out", str(tmp_path)])
    written = {path.name for path in tmp_path.iterdir()}
    figures = {"figure2a.csv", "figure2a.png", "figure2b.csv", "figure2b.png", "figure3.png"}
    assert figures | {"RESULTS.md"} <= written
    page = (tmp_path / "RESULTS.md").read_text()
    assert "PE-GP-UCB against mle_gp_ucb: " in page
    assert "## Figure 4" not in page
    assert (tmp_path / "claims.csv").is_file()


@pytest.mark.parametrize("page", [_chowdhury_page, _zhou_page, _ziomek_page])
def test_what_was_not_run_is_not_testable_and_has_a_page(page, tmp_path) -> None:
    page.write(tmp_path)
    assert {claim.verdict for claim in _claims.read(tmp_path)} == {UNTESTED}
    assert "not testable here" in (tmp_path / "RESULTS.md").read_text()


def test_the_page_says_lower_only_beyond_two_standard_errors() -> None:
    said = "lower, beyond two standard errors (+11.0, +2.2 standard errors)."
    assert _ziomek_page._verdict(10, 3, 21, 4) == said
    assert "lower, within two standard errors" in _ziomek_page._verdict(10, 3, 19, 4)
    assert "higher, beyond two standard errors" in _ziomek_page._verdict(21, 3, 10, 4)


MISUSE = "", "nobody", "ziomek nothing", "ziomek intel", "--all --quick", "--fast"
MISUSE += "zhou nothing", "chowdhury figure5", "chowdhury 4b", "chowdhury report --steps 0"
MISUSE += "hong everything", "hong 3"


@pytest.mark.parametrize("arguments", MISUSE)
def test_misuse_is_refused(arguments, monkeypatch) -> None:
    monkeypatch.delenv("BANDITS_TORCH_DATA", raising=False)
    with pytest.raises(SystemExit):
        papers.main(arguments.split())


def test_list_names_every_paper(capsys) -> None:
    papers.main(["list"])
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == papers.papers()
    assert {"calandriello", "chowdhury", "hong", "ziomek", "zhou"} <= set(papers.papers())


def test_all_runs_every_paper_and_tells_times_and_failures(monkeypatch, capsys, tmp_path) -> None:
    script = (
        "import os, pathlib, sys; paper, *flags = sys.argv[1:];"
        "words = ' '.join([*flags, os.environ['BANDITS_TORCH_DATA'], '']);"
        f"open(pathlib.Path({str(tmp_path)!r}, paper), 'a').write(words);"
        "sys.exit(paper == 'hong')"
    )
    monkeypatch.setattr(
        papers, "_command", lambda words, flags: [sys.executable, "-c", script, *words, *flags]
    )
    with pytest.raises(SystemExit, match="failed: hong"):
        papers.main(["--all", "--fast", "--data", str(tmp_path / "somewhere"), "--processes", "2"])
    asked = {file.name: file.read_text() for file in tmp_path.iterdir()}
    for paper, wanted in {"hong": [*RACES, "detection", "theory"], "chowdhury": [*chowdhury.PARTS]}.items():
        played = asked.pop(paper).split()
        assert sorted(set(wanted) & set(played)) == sorted(wanted)
        # The page is written once, when all parts are there.
        assert played.count("--no-report") == len(wanted)
        assert played[-3:] == ["report", "--fast", str(tmp_path / "somewhere")]
    assert asked == dict.fromkeys(asked, f"--fast {tmp_path / 'somewhere'} ")
    assert set(asked) == set(papers.papers()) - {"hong", "chowdhury"}
    printed = capsys.readouterr().out.splitlines()
    for paper in papers.papers():
        assert any(line.startswith(paper) and "s of a core" in line for line in printed)
        assert any(line.startswith(paper) and "claims" in line for line in printed)
    assert any(line.startswith("hong") and line.endswith("failed") for line in printed)
    assert printed[-1].startswith("together")


def test_verdicts_are_compared_with_those_committed(tmp_path) -> None:
    committed = _claims.read(RESULTS / "zhou")
    assert _claims.changes(committed, committed) == []
    other = dataclasses.replace(committed[0], verdict=UNTESTED)
    (said,) = _claims.changes(committed, [other, *committed[1:]])
    assert committed[0].claim in said
    assert said.endswith(f"{committed[0].verdict} -> {UNTESTED}")
    (said,) = _claims.changes(committed, committed[1:])
    assert said.endswith("-> no claim")
    _claims.write(tmp_path, committed)
    assert papers._verdicts("zhou", tmp_path) == f"{len(committed)} claims, the verdicts committed"


def test_fast_forms_write_elsewhere_than_results(tmp_path) -> None:
    assert results_folder("zhou", fast=True).parent.name == "fast"
    assert results_folder("zhou", fast=False) == RESULTS / "zhou"
    assert results_folder("zhou", True, tmp_path / "own").is_dir()


def test_data_come_from_the_argument_or_the_environment(tmp_path, monkeypatch) -> None:
    (tmp_path / "table.npz").write_text("")
    monkeypatch.delenv("BANDITS_TORCH_DATA", raising=False)
    assert data_folder(None, "table.npz") is None
    assert data_folder(tmp_path, "table.npz") == tmp_path
    with pytest.raises(ValueError, match=r"data must be a folder with other\.npz"):
        data_folder(tmp_path, "other.npz")
    monkeypatch.setenv("BANDITS_TORCH_DATA", str(tmp_path))
    assert data_folder(None, "table.npz") == tmp_path
    assert data_folder(None, "other.npz") is None

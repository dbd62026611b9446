"""The figures of papers come from one command, and their page from the files it wrote."""

import dataclasses
import sys

import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers import _claims, _ziomek_page, chowdhury, ziomek
from benchmarks.papers._claims import FAILS, HOLDS, UNTESTED
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


@pytest.mark.parametrize(
    "arguments",
    [[], ["nobody"], ["ziomek", "nothing"], ["ziomek", "intel"], ["--all", "--quick"], ["--fast"]],
)
def test_misuse_is_refused(arguments, monkeypatch) -> None:
    monkeypatch.delenv("BANDITS_TORCH_DATA", raising=False)
    with pytest.raises(SystemExit):
        papers.main(arguments)


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


def ziomek_claims(tmp_path, figure) -> dict[str, str]:
    return {c.claim: c.verdict for c in _ziomek_page.make_claims(tmp_path) if c.where == figure}


def test_ziomek_s_claims_follow_the_files(tmp_path) -> None:
    assert {c.verdict for c in _ziomek_page.make_claims(tmp_path)} == {UNTESTED}
    (tmp_path / "figure2_totals.csv").write_text(
        "replicate,pe_gp_ucb,mle_gp_ucb,bayes_gp_ucb,regret_balancing,random\n"
        "0,1,10,10.5,11,90\n1,2,12,11.5,11,95\n2,1,11,11,11,92\n"
    )
    (tmp_path / "figure2b.csv").write_text(
        "prior,pe_gp_ucb,mle_gp_ucb,bayes_gp_ucb,regret_balancing\n"
        "hill 1 tall,0.1,0.9,0,0.4\nhill 2 tall,0.9,0.1,1,0.6\n"
    )
    assert set(ziomek_claims(tmp_path, "Figure 2").values()) == {HOLDS}
    (tmp_path / "figure2_totals.csv").write_text(
        "replicate,pe_gp_ucb,mle_gp_ucb,bayes_gp_ucb,regret_balancing,random\n"
        "0,50,10,20.5,31,9\n1,50,12,21.5,31,9\n2,50,11,21,31,9\n"
    )
    (tmp_path / "figure2b.csv").write_text(
        "prior,pe_gp_ucb,mle_gp_ucb,bayes_gp_ucb,regret_balancing\n"
        "hill 1 tall,1.0,0.1,0,0.1\nhill 2 tall,0.0,0.9,1,0.9\n"
    )
    assert set(ziomek_claims(tmp_path, "Figure 2").values()) == {FAILS}


def test_ziomek_s_claims_on_real_data_follow_the_files(tmp_path) -> None:
    names = ("pe_gp_ucb", "mle_gp_ucb", "bayes_gp_ucb", "regret_balancing", "random")

    def files(totals, slopes, shares) -> None:
        rows = [",".join(["0", *(f"{v + r}" for v in totals)]) for r in (0, 1)]
        (tmp_path / "figure4_totals.csv").write_text("\n".join([f"replicate,{','.join(names)}", *rows]))
        rows = [f"{n},{t},{s * t},0.1" for n, s in zip(names, slopes, strict=True) for t in range(1, 41)]
        head = "policy,step,mean_cumulative_regret,standard_error"
        (tmp_path / "figure4a.csv").write_text("\n".join([head, *rows]))
        days = ("2004-03-04", "2004-03-07", "2004-03-12")
        rows = [f"{d},{pe},{mle}" for d, (pe, mle) in zip(days, shares, strict=True)]
        (tmp_path / "figure4b.csv").write_text("\n".join(["prior,pe_gp_ucb,mle_gp_ucb", *rows]))

    files((1, 3, 2, 4, 9), (1, 4, 2, 4, 4), ((0.4, 0.1), (0.2, 0.8), (0.4, 0.1)))
    assert set(ziomek_claims(tmp_path, "Figure 4").values()) == {HOLDS}
    files((9, 3, 5, 2, 1), (3, 1, 2, 1, 4), ((0.1, 0.8), (0.8, 0.1), (0.1, 0.1)))
    assert set(ziomek_claims(tmp_path, "Figure 4").values()) == {FAILS}

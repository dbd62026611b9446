"""Tables of results that grow from run to run."""

from pathlib import Path
from typing import Annotated

import pandas as pd
import pytest
import typer
from jinja2 import UndefinedError
from typer.testing import CliRunner

from benchmarks import options, pages


def test_rows_take_the_place_of_those_of_their_key_and_no_other(tmp_path):
    path = tmp_path / "new folder" / "table.csv"
    pages.keep(
        path, pd.DataFrame({"name": ["b", "b", "a"], "seed": [1, 1, 1], "value": [1.0, 2.0, 3.0]}), ("name",)
    )
    pages.keep(path, pd.DataFrame({"name": ["b"], "seed": [2], "value": [9.0]}), ("name",))
    assert pd.read_csv(path).to_numpy().tolist() == [["a", 1, 3.0], ["b", 2, 9.0]]
    pages.keep(path, pd.DataFrame({"name": ["b"], "seed": [1], "value": [4.0]}), ("name", "seed"))
    assert pd.read_csv(path).to_numpy().tolist() == [["a", 1, 3.0], ["b", 1, 4.0], ["b", 2, 9.0]]


def test_rows_are_put_at_the_end_and_what_was_played_is_known_by_its_key(tmp_path):
    path = tmp_path / "table.csv"
    assert pages.played(path, ("name", "seed")) == set()
    for name, seed in (("b", 1), ("a", 2), ("b", 1)):
        pages.append(path, pd.DataFrame([{"name": name, "seed": seed, "value": 0.123456}]), 4)
    assert pd.read_csv(path).to_numpy().tolist() == [["b", 1, 0.1235], ["a", 2, 0.1235], ["b", 1, 0.1235]]
    assert pages.played(path, ("name", "seed")) == {("b", 1), ("a", 2)}
    assert pages.played(path, ("seed",)) == {1, 2}


def test_a_template_shows_what_it_is_given_and_refuses_to_show_what_it_is_not(tmp_path):
    shown = {"summary": "All hold.", "claims": "| claim |\n", "asked": ""}
    frame = pd.DataFrame({"t": [6], "deviation": [0.5]})
    page = pages.render(
        tmp_path / "page.md", "papers/calandriello.md.jinja", starvation=frame, **shown
    ).read_text()
    assert page.startswith(
        "# Calandriello et al. (2019): BKB\n\nAll hold.\n\nWritten by `python -m benchmarks.papers"
    )
    assert "\n## What the paper says\n\n| claim |\n\n## Figure 2: variance" in page
    assert page.endswith("\n\n| t | deviation |\n| --- | --- |\n| 6 | 0.5 |\n")
    for template, name in (("papers/calandriello.md.jinja", "summary"), ("safety/RESULTS.md.jinja", "step")):
        with pytest.raises(UndefinedError, match=f"'{name}' is undefined"):
            pages.render(tmp_path / "other.md", template)
    assert not (tmp_path / "other.md").exists()


def test_seeds_are_told_and_said_to_be_few_and_a_single_value_has_no_error():
    rows = pd.DataFrame({"problem": list("aaaabbbcd"), "seed": [0, 1, 2, 1000, 5, 6, 5, 0, 0]})
    told = "4 seeds (0 to 2, 1000) of a; 2 seeds (5, 6) of b; 1 seed (0) of c, d"
    assert pages.seeds_of(rows, "seed", "problem") == told
    assert "Fewer than 5 seeds" in pages.too_few(rows, "seed", "problem")
    assert not pages.too_few(pd.DataFrame({"problem": "a", "seed": range(5)}), "seed", "problem")
    assert pages.with_error(pd.Series([1.0]), 2) == "1.00"


def test_a_command_with_a_page_plays_into_its_folder_unless_the_page_alone_is_asked_for(tmp_path):
    @options.with_page(lambda folder: pages.write(folder / "PAGE.md", "words"))
    def main(folder: Path, seed: Annotated[int, typer.Option(help="Of the noise.")] = 1) -> None:
        """Play it all."""
        (folder / f"{seed}.csv").touch()

    def call(*asked):
        return CliRunner().invoke(options.command(main), [*asked, "--out", str(tmp_path / "new")])

    help = CliRunner().invoke(options.command(main), ["--help"]).output
    assert all(words in help for words in ("Play it all.", "--seed", "Of the noise.", "--out", "--page"))
    assert "folder" not in help.replace("Folder of", "")
    assert call("--page").output == f"wrote {tmp_path / 'new' / 'PAGE.md'}\n"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["PAGE.md"]
    assert call("--seed", "3").exit_code == 0
    assert (tmp_path / "new" / "3.csv").exists()


def test_a_ratio_of_pairs_has_the_error_of_what_is_left_of_its_base():
    base = pd.Series([1.0, 2.0, 3.0])
    assert pages.ratio(2 * base, base) == (2.0, 0.0)
    ratio, error = pages.ratio(2 * base + [0.3, 0.0, -0.3], base)
    assert (ratio, error) == pytest.approx((2.0, 0.3 / 3**0.5 / 2))
    assert pd.isna(pages.ratio(base[:1], base[:1])[1])

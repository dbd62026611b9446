"""Pages are written from whichever parts of their tables there are."""

import pandas as pd
import pytest

from benchmarks.moves import __main__ as moves
from benchmarks.published import HERE
from benchmarks.xopt.page import write_page


@pytest.mark.parametrize("part", moves.PARTS)
def test_one_part_of_the_moves_alone_has_a_page(part, tmp_path):
    table = pd.read_csv(HERE / "moves" / "results" / "moves.csv")
    table[table["part"] == part].to_csv(tmp_path / "moves.csv", index=False)
    text = moves.write_page(tmp_path).read_text()
    assert ("## Limits" in text) == (part == "limits")
    assert ("## Prices" in text) == (part != "limits")
    assert ("(*index*)" in text) == (part == "arms")


@pytest.mark.parametrize("absent", ["ours", "Xopt, time-dependent UCB"])
def test_there_is_no_verdict_on_xopt_while_only_some_have_played(absent, tmp_path):
    table = pd.read_csv(HERE / "xopt" / "results" / "shots.csv")
    table[table["player"] != absent].to_csv(tmp_path / "shots.csv", index=False)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "| Xopt, UCB |" in text
    assert "Asked" not in text

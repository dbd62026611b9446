"""The page of moves is written from whichever parts of its table there are."""

import pandas as pd
import pytest

from benchmarks.moves import __main__ as moves
from benchmarks.published import HERE


@pytest.mark.parametrize("part", moves.PARTS)
def test_one_part_alone_has_a_page(part, tmp_path):
    table = pd.read_csv(HERE / "moves" / "results" / "moves.csv")
    table[table["part"] == part].to_csv(tmp_path / "moves.csv", index=False)
    text = moves.write_page(tmp_path).read_text()
    assert ("## Limits" in text) == (part == "limits")
    assert ("## Prices" in text) == (part != "limits")
    assert ("(*index*)" in text) == (part == "arms")

"""Tables of results that grow from run to run."""

from __future__ import annotations

import pandas as pd

from benchmarks.pages import keep, seeds_of, too_few


def test_rows_take_the_place_of_those_of_their_key_and_no_other(tmp_path):
    path = tmp_path / "new folder" / "table.csv"
    keep(
        path, pd.DataFrame({"name": ["b", "b", "a"], "seed": [1, 1, 1], "value": [1.0, 2.0, 3.0]}), ("name",)
    )
    keep(path, pd.DataFrame({"name": ["b"], "seed": [2], "value": [9.0]}), ("name",))
    assert pd.read_csv(path).to_numpy().tolist() == [["a", 1, 3.0], ["b", 2, 9.0]]
    keep(path, pd.DataFrame({"name": ["b"], "seed": [1], "value": [4.0]}), ("name", "seed"))
    assert pd.read_csv(path).to_numpy().tolist() == [["a", 1, 3.0], ["b", 1, 4.0], ["b", 2, 9.0]]


def test_seeds_are_told_by_number_and_name_and_of_whom_where_they_differ():
    table = pd.DataFrame({"problem": list("aaaabbbcd"), "seed": [0, 1, 2, 1000, 5, 6, 5, 0, 0]})
    told = "4 seeds (0 to 2, 1000) of a; 2 seeds (5, 6) of b; 1 seed (0) of c, d"
    assert seeds_of(table, "seed", "problem") == told
    assert seeds_of(table[:3], "seed", "problem") == "3 seeds (0 to 2)"
    assert seeds_of(table[-2:], "seed", "problem", "replicate") == "1 replicate (0)"
    assert seeds_of(table, "seed") == "6 seeds (0 to 2, 5, 6, 1000)"
    assert "Fewer than 5 seeds" in too_few(table, "seed", "problem")
    assert not too_few(pd.DataFrame({"problem": "a", "seed": range(5)}), "seed", "problem")

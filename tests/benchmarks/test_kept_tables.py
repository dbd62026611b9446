"""Tables of results that grow from run to run."""

from __future__ import annotations

import pandas as pd

from benchmarks.tables import keep


def test_rows_take_the_place_of_those_of_their_key_and_no_other(tmp_path):
    path = tmp_path / "new folder" / "table.csv"
    keep(
        path, pd.DataFrame({"name": ["b", "b", "a"], "seed": [1, 1, 1], "value": [1.0, 2.0, 3.0]}), ("name",)
    )
    keep(path, pd.DataFrame({"name": ["b"], "seed": [2], "value": [9.0]}), ("name",))
    assert pd.read_csv(path).to_numpy().tolist() == [["a", 1, 3.0], ["b", 2, 9.0]]
    keep(path, pd.DataFrame({"name": ["b"], "seed": [1], "value": [4.0]}), ("name", "seed"))
    assert pd.read_csv(path).to_numpy().tolist() == [["a", 1, 3.0], ["b", 1, 4.0], ["b", 2, 9.0]]

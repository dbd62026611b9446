"""The kept results of diagnoses are what a sample of the files gives now, and the true cases are judged as such."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.bernoulli.__main__ import KINDS, ROWS, drawn
from benchmarks.diagnosis.__main__ import draw, judge

KEPT = Path(__file__).parents[2] / "benchmarks" / "diagnosis" / "results" / "files.csv"


@pytest.mark.parametrize("number", [0, 6, 13, 27, 41])
def test_a_file_drawn_again_gets_the_same_diagnosis(number):
    kept = pd.read_csv(KEPT).set_index("file").loc[number]
    now = judge(number)
    for name in ("kind", "said", "rows", "arms", "periods_right", "drift_reported", "jumps_found", "covered"):
        assert kept[name] == now[name], name
    assert str(kept["jumps_reported"]).replace(".0", "").replace("nan", "") == now["jumps_reported"]
    assert kept["low"] == pytest.approx(now["low"], rel=1e-4)


def test_truths_lie_in_the_ranges_that_the_protocol_names(tmp_path):
    truths = [draw(number, tmp_path / "file.csv") for number in range(40)]
    assert {truth.kind for truth in truths} == {"numbers", "0/1", "counts"}
    assert {len(truth.jumps) for truth in truths} == {0, 1, 2, 3}
    assert all(0 <= truth.missing <= 0.3 for truth in truths)
    assert sum(truth.period is not None for truth in truths) == 24


def test_records_of_0_and_1_have_the_chances_that_score_them():
    for kind in KINDS:
        chances, record = drawn(kind, 1)
        assert record.shape == chances.shape
        assert len(record) == ROWS
        assert ((record == 0) | (record == 1)).all()
        assert abs(record.mean() - chances.mean()) < 0.03

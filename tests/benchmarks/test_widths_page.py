"""The page of widths says what its tables do, and the claim that it makes holds in them."""

from benchmarks.widths import races, ratios
from benchmarks.widths.__main__ import within


def test_band_is_within_half_of_width_2_on_ten_environments_or_more():
    table = races.band()
    assert len(within(table)) >= 10
    assert set(races.MODEL_HOLDS) <= set(within(table))
    assert len(within(table, "tv_gp_ucb")) < 10


def test_ratios_are_of_bounds_that_are_narrower(monkeypatch):
    monkeypatch.setattr(ratios, "STEPS", (1, 4))
    monkeypatch.setattr(ratios, "REPLICATES", 2)
    rows = list(ratios._run("se", {"kernel": "se"}, "stationary"))
    assert {row["step"] for row in rows} == {1, 4}
    assert all(row["ratio"] <= 1 + 1e-9 for row in rows)

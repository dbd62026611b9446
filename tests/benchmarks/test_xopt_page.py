"""The page on Xopt says met or missed by the numbers of its table."""

import pandas as pd
import pytest

from benchmarks.xopt.page import LATE, ORACLE, OURS, TRACKER, write_page


def table(ours, seconds):
    """Ten shots after the opening, two seeds; Xopt's error is 1 with drift, 2 without."""
    rows = []
    players = {
        "ours": (ours, seconds, 40),
        "Xopt, time-dependent UCB": (1.0, 1.0, 20),
        "Xopt, UCB": (2.0, 1.0, 20),
    }
    for seed in (0, 1):
        for name, (error, cost, shots) in players.items():
            rows += [(name, seed, shot, cost, 0, 99.0 if shot < 10 else error) for shot in range(shots)]
    return pd.DataFrame(rows, columns=["player", "seed", "shot", "seconds", "failed", "error"])


@pytest.mark.parametrize(
    ("ours", "seconds", "error", "rate"),
    [
        (0.4, 0.05, "0.40 of it: met", "20.0 times: met"),
        (0.6, 0.2, "0.60 of it: missed", "5.0 times: missed"),
    ],
)
def test_what_is_asked_is_met_or_missed_by_the_table(tmp_path, ours, seconds, error, rate):
    table(ours, seconds).to_csv(tmp_path / "shots.csv", index=False)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert f"Xopt's best (Xopt, time-dependent UCB): ours is {error}." in text
    assert f"time-dependent UCB: {rate}." in text
    assert (
        "--shots 40 --rival-shots 20 --first 0 --seeds 2`. Shots of ours: 40 on seed 0, 40 on seed 1." in text
    )
    assert "99" not in text.split("## The same")[1]  # the opening counts for nobody


@pytest.mark.parametrize("absent", ["ours", "Xopt, time-dependent UCB"])
def test_there_is_no_verdict_while_only_some_have_played(tmp_path, absent):
    played = table(0.4, 0.05)
    played[played["player"] != absent].to_csv(tmp_path / "shots.csv", index=False)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "| Xopt, UCB | 2 |" in text
    assert "Asked" not in text


def test_the_page_says_what_the_drift_alone_costs(tmp_path):
    table(0.6, 0.2).to_csv(tmp_path / "shots.csv", index=False)
    assert "exact tracker" not in write_page(tmp_path).read_text(encoding="utf-8")
    late = LATE.format(5)
    rows = [(0, TRACKER, 0.1, 0.2), (1, TRACKER, 0.3, 0.2), (0, late, 0.5, 0.6), (1, late, 0.5, 0.8)]
    limit = pd.DataFrame(rows, columns=["seed", "what", "early", "all"])
    limit.to_csv(tmp_path / "limit.csv", index=False)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "| exact tracker | 0.200 ± 0.200 | 0.200 ± 0.000 |" in text
    assert "| the same, 5 shots late | 0.500 ± 0.000 | 0.700 ± 0.200 |" in text


def test_the_oracle_stands_beside_ours_seed_by_seed(tmp_path):
    table(0.4, 0.05).to_csv(tmp_path / "shots.csv", index=False)
    told = [
        (seed, what, 0.5 + 0.1 * seed + less, 0.3)
        for seed in (0, 1)
        for what, less in ((OURS, 0.2), (ORACLE, 0.0))
    ]
    told.append((2, OURS, 99.0, 99.0))  # has no partner
    pd.DataFrame(told, columns=["seed", "what", "error", "late"]).to_csv(tmp_path / "oracle.csv", index=False)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "| all shots after the opening | 0.750 ± 0.100 | 0.550 ± 0.100 (0.200 ± 0.000) |" in text
    assert "99" not in text.split("## What knowing")[1]

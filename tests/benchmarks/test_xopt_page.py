"""The page on Xopt says met or missed by the numbers of its table."""

import pandas as pd
import pytest

from benchmarks.xopt.page import write_page


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

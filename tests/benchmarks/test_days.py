"""Tables with a day: what they hold, and a table played again."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from bandits_torch.problems.periods import find_periods
from benchmarks import options
from benchmarks.auto import days, weeks

RESULTS = Path(days.__file__).parent / "results"


def test_a_table_is_what_it_says():
    table, without = days.DaysTable(3), days.DaysTable(3, cycle=False)
    assert (table.horizon, table.num_arms, len(table.history)) == (1152, 30, 288)
    (found,) = find_periods(table.history.numpy())
    assert found.length == pytest.approx(24, rel=0.01)
    assert find_periods(without.history.numpy()) == []
    expected = torch.stack([table.expected_rewards(step)[0] for step in range(1, 1153)])
    noise = torch.stack([table.noise(step, torch.arange(30), None) for step in (1, 500, 1152)])
    torch.testing.assert_close(expected[[0, 499, 1151]] + noise, table.table[[0, 499, 1151]])
    day = expected - torch.stack([without.expected_rewards(step)[0] for step in range(1, 1153)])
    usual = day[:288]  # before the jump
    torch.testing.assert_close(usual[24:], usual[:-24], rtol=0, atol=1e-9)
    drop = expected.argmax(-1).bincount(minlength=30)
    assert int(drop.count_nonzero()) > 1


@pytest.mark.slow
def test_a_table_played_again_is_what_is_kept():
    kept = pd.read_csv(RESULTS / "days.csv").set_index(["seed", "cycle", "policy"])["regret"]
    again = days.play(201, True, (days.FOUND,)).iloc[0]
    assert again["regret"] == pytest.approx(kept[201, True, days.FOUND], rel=1e-4)


def test_seeds_are_numbers_or_have_a_name():
    assert options.seeds_of("3,1") == [3, 1]
    assert options.seeds_of("some", {"some": range(2)}) == [0, 1]


def test_a_week_is_in_a_table_of_weeks():
    history = weeks.TABLES[weeks.BOTH](3).history.numpy()
    assert sorted(one.length for one in find_periods(history)) == pytest.approx([24, 168], rel=0.02)

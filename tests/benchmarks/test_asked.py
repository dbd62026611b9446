"""What was asked of looking again: ranks, and what a rank needs."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.auto import asked
from benchmarks.leaderboard import settings
from tests.benchmarks.test_auto import RESULTS

MEANS = pd.DataFrame(
    {"auto": [3.0, 1.0], "a": [1.0, 2.0], "b": [2.0, 3.0], "c": [5.0, 0.5]}, index=["stationary", "cosine"]
)


def test_a_mean_rank_counts_who_lost_less():
    assert asked.mean_rank(MEANS, "auto", ["a", "b", "c"]) == 2.5  # third, and second
    assert asked.mean_rank(MEANS, "auto", ["a"]) == 1.5


@pytest.mark.parametrize("rank", [2.0, 2.5])
def test_a_rank_needs_this_regret_and_no_less(rank):
    most = asked.most_for(MEANS, "auto", ["a", "b", "c"], rank, "stationary")
    for regret, enough in ((most - 0.01, True), (most + 0.01, False)):
        means = MEANS.copy()
        means.loc["stationary", "auto"] = regret
        assert (asked.mean_rank(means, "auto", ["a", "b", "c"]) <= rank) == enough


def test_no_regret_is_enough_for_a_rank_that_is_lost_elsewhere():
    assert np.isnan(asked.most_for(MEANS, "auto", ["a", "b", "c"], 1.0, "stationary"))


def test_the_ranks_asked_for_are_those_of_the_auto_of_then():
    board = asked.leaderboard(pd.read_csv(asked.LEADERBOARD))
    then = pd.read_csv(RESULTS / "then.csv").pivot(index="environment", columns="policy", values="regret")
    assert sorted(then.index) == sorted(settings.RANKED)
    before = board.assign(**{name: then[name] for name in asked.POLICIES}).drop(
        columns=list(asked.CAME_SINCE)
    )
    for own, rank in asked.RANK.items():
        assert asked.mean_rank(before, own, [name for name in before if name != own]) == pytest.approx(
            rank, abs=5e-3
        )

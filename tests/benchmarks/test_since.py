"""The comparison with another commit times the steps that it is asked for, and says whose step failed."""

import pytest

from benchmarks.speed.since import ROOT, steps_of


@pytest.mark.slow
def test_it_times_the_steps_after_those_before():
    seconds = steps_of(ROOT, "sw_gp_ucb", 20, 5, 3)
    assert len(seconds) == 5
    assert all(second > 0 for second in seconds)


@pytest.mark.slow
def test_a_recipe_that_the_commit_lacks_is_named():
    with pytest.raises(RuntimeError, match=r"no_such with 20 arms in (.|\n)*got 'no_such'"):
        steps_of(ROOT, "no_such", 20, 5, 3)

"""Beliefs over time: what is drawn is what the trace holds."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from bandits_torch import make, recipes, run
from bandits_torch.experiments import plot_beliefs
from bandits_torch.experiments.plots.beliefs import BELIEFS
from bandits_torch.history import History

T = 40


def history(replicates=3, name="auto"):
    problem = make("gp", num_arms=6)
    played = run(recipes.build(name, problem, horizon=T, replicates=replicates), problem, T)
    played.meta["policy"] = name
    return played


def test_lines_are_medians_and_bands_reach_from_least_to_largest():
    played = history()
    figure = plot_beliefs(played, switches=[20])
    assert len(figure.axes) == 4
    drawn = {"effective_rate": 0, "effective_members": 1, "noise_scale": 2, "resets": 3}
    for belief, i in drawn.items():
        lines = [line for line in figure.axes[i].lines if len(line.get_xdata()) == T]
        expected = played.trace[belief].double()
        np.testing.assert_allclose(lines[0].get_ydata(), expected.median(0).values)
        band = figure.axes[i].collections[0].get_paths()[0].vertices[:, 1]
        assert band.min() == pytest.approx(float(expected.min()))
        assert band.max() == pytest.approx(float(expected.max()))
        assert [line for line in figure.axes[i].lines if list(line.get_xdata()) == [20, 20]]


def test_policies_without_beliefs_are_left_out_and_one_replicate_has_no_band():
    one = history(1)
    given = Figure(figsize=(4, 6))
    figure = plot_beliefs({"ucb": history(1, "gp_ucb"), "auto": one}, given)
    assert not figure.axes[0].collections
    assert figure is given
    assert len(given.axes) == 4
    with pytest.raises(ValueError, match="effective_rate"):
        plot_beliefs({"ucb": history(1, "gp_ucb")})


def test_no_noise_and_traces_of_one_row_are_drawn():
    """Rewards that never varied have no noise; the axis needs a height all the same."""
    played = history(1)
    trace = {belief: torch.zeros(T) for belief in BELIEFS}
    parts = (played.arms, played.rewards, played.expected_rewards, played.best, played.times, played.seconds)
    plot_beliefs(History(*parts, trace=trace)).canvas.draw()


def test_long_runs_are_thinned():
    played = history(2)
    wide = {belief: played.trace[belief].repeat(1, 500) for belief in BELIEFS}
    parts = (played.arms, played.rewards, played.expected_rewards, played.best)
    long = History(
        *(part.repeat(1, 500) for part in parts), torch.arange(500 * T), torch.zeros(500 * T), trace=wide
    )
    steps = plot_beliefs(long).axes[0].lines[0].get_xdata()
    assert len(steps) <= 1000
    assert (steps[0], steps[-1]) == (1, 500 * T)

"""Arms as pictures: what is drawn is what was pulled, and what was best."""

import numpy as np
import torch

from bandits_torch.experiments import best_arms, plot_arms, plot_pulls
from bandits_torch.problems import make
from tests.experiments.made_up import history

ARMS = torch.tensor([[0, 2, 1, 1], [3, 3, 0, 2]])
BEST = torch.tensor([[2, 2, 1, 1], [3, 0, 0, 0]])


def two_runs():
    return history(ARMS, policy="one", problem="made up")


def test_dots_are_the_arms_of_one_replicate_and_the_line_its_best_arms() -> None:
    ax = plot_arms(two_runs(), replicate=1, best=BEST)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), [[1, 3], [2, 3], [3, 0], [4, 2]])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 3], [2, 0], [3, 0], [4, 0]])
    assert ax.get_title("left") == "made up: one, replicate 1"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["arm pulled", "best arm"]
    for best in (BEST[1], BEST[1:]):  # one row serves every replicate
        np.testing.assert_allclose(plot_arms(two_runs(), best=best).lines[0].get_ydata(), [3, 0, 0, 0])


def test_arms_are_whole_numbers_on_their_axis() -> None:
    few = plot_arms(history(torch.tensor([[0, 2, 1, 1]]), policy="one", problem="made up"))
    ticks = few.get_yticks()
    np.testing.assert_array_equal(ticks, ticks.round())
    assert {0, 1, 2} <= set(ticks)


def test_positions_place_dots_and_line() -> None:
    ax = plot_arms(two_runs(), best=BEST, positions=torch.tensor([0.1, 0.2, 0.3, 0.4]))
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], [0.1, 0.3, 0.2, 0.2], rtol=1e-6)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.3, 0.3, 0.2, 0.2], rtol=1e-6)


def test_the_legend_stands_above_the_axes_and_the_unit_of_ticks_beside_it() -> None:
    ax = plot_arms(two_runs(), best=BEST, positions=1e8 * torch.arange(4.0))
    ax.figure.draw_without_rendering()
    legend, unit = ax.get_legend().get_window_extent(), ax.yaxis.get_offset_text()
    assert legend.y0 >= ax.get_window_extent().y1 - 1
    assert unit.get_text()
    assert not legend.overlaps(unit.get_window_extent())


def test_best_arms_are_those_of_regret_zero() -> None:
    problem = make("hills", replicates=3)  # every other step some arms are not available
    best = best_arms(problem, 4)
    assert best.shape == (3, 4)
    for step in range(1, 5):
        rewards = problem.expected_rewards(step)
        mask = problem.available(step)
        shown = rewards if mask is None else rewards.masked_fill(~mask, -torch.inf)
        at_best = shown.gather(1, best[:, step - 1 : step]).squeeze(1)
        torch.testing.assert_close(at_best, shown.amax(1))
    assert len(set(best[0].tolist())) > 1


def test_points_are_drawn_by_one_coordinate() -> None:
    played = history(torch.arange(8.0, dtype=torch.float64).reshape(1, 4, 2))
    ax = plot_arms(played, coordinate=1)
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], [1, 3, 5, 7])
    assert ax.get_ylabel() == "coordinate 1"


def test_depth_is_the_share_of_pulls_of_a_stretch():
    arms = torch.tensor([[0, 0, 1, 1, 2, 2, 2, 0], [0, 1, 1, 1, 2, 2, 2, 2]])
    best = torch.tensor([[0, 0, 0, 1, 2, 2, 1, 1]])
    ax = plot_pulls(history(arms), best, columns=2, names=["a", "b", "c", "never"])
    shares = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(shares, [[3 / 8, 1 / 8], [5 / 8, 0], [0, 7 / 8], [0, 0]])
    (bars,) = ax.collections
    # Best: 0 three times of four, then 1 and 2 tie.
    assert [segment[0][1] for segment in bars.get_segments()] == [0, 1]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b", "c", "never"]


def test_of_many_arms_those_that_matter_are_shown_under_their_names():
    arms = torch.tensor([[7] * 5 + [3] * 5])
    best = torch.full((1, 10), 11)
    ax = plot_pulls(
        history(arms), best, names=[f"$\\bad{n}$ and a very long name" for n in range(20)], most=3
    )
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["$\\bad3$ and a ver…", "$\\bad7$ and a ver…", "$\\bad11$ and a ve…"]
    ax.figure.canvas.draw()  # which no name breaks


def test_long_names_that_begin_alike_are_told_apart():
    arms = torch.tensor([[0, 1, 2]])
    names = ["northern region, banner 10 of may", "northern region, banner 11 of may", "north"]
    labels = [label.get_text() for label in plot_pulls(history(arms), arms, names=names).get_yticklabels()]
    assert labels == ["… banner 10 of may", "… banner 11 of may", "north"]

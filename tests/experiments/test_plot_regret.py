"""Regret as a picture: what is drawn is what happened, and it can be read."""

import itertools

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from bandits_torch.experiments import plot_regret, plot_starts
from bandits_torch.experiments.plots.style import GREY
from tests.experiments import made_up


def history(slope, replicates=4, horizon=300):
    lost = slope * torch.linspace(0.5, 1.5, replicates, dtype=torch.float64).unsqueeze(1)
    return losing(lost.expand(replicates, horizon))


def losing(lost):
    return made_up.history(torch.zeros_like(lost).long(), expected=-lost, problem="made up")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def boxes(ax):
    """Where the words of the labels stand, in pixels, lines to them left out."""
    ax.figure.draw_without_rendering()
    return [Text.get_window_extent(text) for text in ax.texts]


def test_lines_are_mean_cumulative_regret_in_bands_of_two_standard_errors():
    one = history(1.0)
    ax = plot_regret({"one": one})
    line, band = ax.lines[0], ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(line.get_xdata(), np.arange(1, 301))
    np.testing.assert_allclose(line.get_ydata(), one.cumulative_regret.mean(0).numpy())
    at_end = band[band[:, 0] == 300][:, 1]
    assert at_end.max() == pytest.approx(one.mean_cumulative_regret + 2 * one.standard_error)
    assert at_end.min() == pytest.approx(one.mean_cumulative_regret - 2 * one.standard_error)
    assert ax.get_title(loc="left") == "made up: mean of 4 replicates ± 2 standard errors"


def test_a_band_of_regret_ends_at_none():
    """One replicate of four lost all there is: two standard errors below the mean is less than nothing."""
    lost = torch.zeros(4, 300, dtype=torch.float64)
    lost[0] = 1.0
    ax = plot_regret({"one": losing(lost)})
    assert ax.collections[0].get_paths()[0].vertices[:, 1].min() == 0
    assert ax.get_ylim()[0] == 0


def test_who_is_left_out_changes_no_colour():
    all_of_them = {name: history(1.0 + n) for n, name in enumerate(("a", "random", "b", "c"))}
    drawn = {
        line.get_label(): (line.get_color(), line.get_linestyle()) for line in plot_regret(all_of_them).lines
    }
    few = {name: one for name, one in all_of_them.items() if name != "random"}
    assert {
        line.get_label(): (line.get_color(), line.get_linestyle()) for line in plot_regret(few).lines
    } == {name: look for name, look in drawn.items() if name != "random"}
    assert drawn["random"][0] == GREY


def test_a_single_replicate_has_no_band():
    ax = plot_regret({"one": history(1.0, replicates=1)})
    assert len(ax.collections) == 0
    assert ax.get_title(loc="left") == "made up: one replicate"


def test_long_runs_are_thinned_and_keep_both_ends():
    steps = plot_regret({"one": history(1.0, horizon=30_000)}).lines[0].get_xdata()
    assert len(steps) <= 1000
    assert steps[0] == 1
    assert steps[-1] == 30_000


def test_every_line_is_labelled_and_no_two_labels_overlap():
    names = [f"policy {i}" for i in range(18)]
    ax = plot_regret({name: history(1.0 + 0.001 * i) for i, name in enumerate(names)})
    assert sorted(text.split("  ")[0] for text in texts(ax)) == sorted(names)
    extents = sorted(boxes(ax), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(extents))
    width, height = ax.figure.canvas.get_width_height()
    assert all(box.x0 >= 0 and box.x1 <= width for box in extents)
    assert all(box.y0 >= 0 and box.y1 <= height for box in extents)


def test_colours_and_dashes_tell_all_lines_apart():
    ax = plot_regret({f"policy {i}": history(1.0 + i) for i in range(14)})
    looks = [(to_hex(line.get_color()), line.get_linestyle()) for line in ax.lines]
    assert len({*looks}) == 14
    assert len({colour for colour, _ in looks[:8]}) == 8


def test_large_regrets_are_written_with_prefixes():
    ax = plot_regret({"a": history(2e3)})
    ax.figure.draw_without_rendering()
    assert {label.get_text()[-1] for label in ax.get_yticklabels()[1:]} <= {"k", "M"}
    assert not ax.yaxis.get_offset_text().get_text()


def test_a_line_far_above_the_others_does_not_press_them_flat():
    ax = plot_regret({"a": history(1.0), "b": history(1.2), "awful": history(100.0)})
    assert ax.get_ylim()[1] < 1000
    assert any(text.startswith("awful") and text.endswith("↑") for text in texts(ax))
    assert sum(text.endswith("↑") for text in texts(ax)) == 1


def test_the_random_reference_is_drawn_without_a_band():
    ax = plot_regret({"one": history(1.0)}, random=torch.full((3, 300), 2.0))
    assert ax.lines[1].get_ydata()[-1] == pytest.approx(600)
    assert any("random (expected)  600" in text for text in texts(ax))
    assert len(ax.collections) == 1


def test_axes_given_are_drawn_on():
    axes = Figure().subplots(1, 2)
    assert plot_regret({"one": history(1.0)}, axes[1]) is axes[1]
    assert not axes[0].lines


def test_no_regret_at_all_can_be_drawn():
    ax = plot_regret({"oracle": history(0.0)})
    assert ax.get_ylim() == (0, 1)


def test_starts_are_dots_and_their_mean_a_tick_least_first():
    regret = {"late": torch.tensor([3, 5]), "first": torch.tensor([1, 2])}  # in whole numbers
    ax = plot_starts(regret, torch.tensor([8, 12]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "late"]
    dots, tick = ax.lines[0], ax.lines[1]
    np.testing.assert_allclose(dots.get_xdata(), [10, 20])
    np.testing.assert_allclose(tick.get_xdata(), [15])

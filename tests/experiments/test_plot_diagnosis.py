"""The picture of a table shows what its labels say."""

from datetime import UTC, datetime

import numpy as np
import torch

from bandits_torch.experiments.plots.diagnosis import plot_diagnosis
from bandits_torch.problems import RewardTable
from bandits_torch.problems.diagnosis import diagnose


def test_a_cycle_of_a_long_record_has_its_size_and_the_length_that_is_told():
    rows = np.arange(60_000)
    noise = np.random.default_rng(0).normal(0, 0.3, (len(rows), 2))
    table = RewardTable(torch.from_numpy(np.sin(2 * np.pi * rows / 168)[:, None] * [1.0, 0.5] + noise))
    found = diagnose(table)
    cycle = plot_diagnosis(table, found).axes[1]
    assert "Cycles: 168 rows" in str(found)
    assert "Over all rows, drawing arms at random earns" in str(found)  # a race tells it for those it plays
    assert cycle.get_title(loc="left") == "A cycle of 168 rows"
    sizes = sorted(np.ptp(line.get_ydata()) / 2 for line in cycle.lines)
    np.testing.assert_allclose(sizes, [0.5, 1.0], rtol=0.1)


def test_the_legend_of_long_names_is_within_the_picture_and_tells_them_apart():
    names = [f"a banner in the northern region, number {n}" for n in range(6)]
    table = RewardTable(
        torch.rand(60, 6, generator=torch.Generator().manual_seed(0)).double(), arm_names=names
    )
    figure = plot_diagnosis(table, diagnose(table))
    figure.canvas.draw()
    (legend,) = figure.legends
    assert len({text.get_text() for text in legend.get_texts()}) == 6
    for look in ("get_color", "get_marker"):
        assert len({getattr(line, look)() for line in legend.get_lines()}) == 6
    drawn = legend.get_window_extent()
    assert 0 <= drawn.x0 < drawn.x1 <= figure.bbox.width


def test_a_steady_cycle_leaves_the_same_ripple_in_all_of_a_record_and_dates_are_told_once():
    """1440 rows are two to a bin, not two to some and one to the others. The ticks lie in three months."""
    hours = 3600 * np.arange(1440)
    rewards = torch.from_numpy(np.sin(2 * np.pi * np.arange(1440) / 24))[:, None].repeat(1, 2)
    start = datetime(2025, 3, 1, tzinfo=UTC).timestamp()
    table = RewardTable(rewards, torch.from_numpy(start + hours), in_seconds=True, dated=True)
    figure = plot_diagnosis(table, diagnose(table))
    figure.draw_without_rendering()
    levels = figure.axes[0].lines[0].get_ydata()
    early, late = (np.ptp(part[len(part) // 4 : -len(part) // 4]) for part in np.array_split(levels, 2))
    np.testing.assert_allclose(early, late, rtol=0.05)
    assert figure.axes[0].xaxis.get_offset_text().get_text() == "2025"
    assert figure.axes[0].get_xlabel() == "date"

"""Detections on the regret curves."""

import torch

from bandits_torch.experiments.plots import mark_detections, plot_regret
from bandits_torch.history import History


def history(detected: torch.Tensor | None) -> History:
    S, T = 2, 6
    ones = torch.ones(S, T, dtype=torch.float64)
    trace = {} if detected is None else {"detected": detected}
    arms = torch.zeros(S, T, dtype=torch.long)
    return History(arms, ones, 0 * ones, ones, torch.arange(1.0, T + 1), torch.zeros(T), trace)


def test_dots_lie_on_the_mean_curve_at_the_steps_that_detected() -> None:
    detected = torch.zeros(2, 6, dtype=torch.float64)
    detected[0, 2], detected[1, 4] = 1, 1
    histories = {"plain": history(None), "adaptive": history(detected)}
    axes = plot_regret(histories)
    before = len(axes.lines)
    mark_detections(axes, histories, switches=[3])
    switch, dots = axes.lines[before:]
    assert list(switch.get_xdata()) == [3, 3]
    assert dots.get_xdata().tolist() == [3, 5]
    assert dots.get_ydata().tolist() == [3.0, 5.0]
    assert dots.get_color() == axes.lines[1].get_color()

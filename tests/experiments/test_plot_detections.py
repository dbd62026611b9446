"""plot_detections: a tick where a change was detected, for each policy and replicate."""

import numpy as np
import pytest
import torch

from bandits_torch.experiments import plot_detections
from bandits_torch.history import History


def history(**trace: torch.Tensor) -> History:
    zeros = torch.zeros(2, 6, dtype=torch.float64)
    return History(zeros.long(), zeros, zeros, zeros, zeros[0], zeros[0], trace, {})


DETECTED = torch.tensor([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 1, 0]], dtype=torch.float64)


def test_ticks_stand_at_the_steps_that_detected_in_their_replicates_row() -> None:
    ax = plot_detections({"plain": history(), "one": history(detected=DETECTED)}, switches=[3])
    switch, ticks = ax.lines
    assert list(switch.get_xdata()) == [3, 3]
    np.testing.assert_allclose(ticks.get_xydata(), [[3, -0.2], [2, 0.2], [5, 0.2]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["one\n1.5 a run"]  # "plain" tells nothing


def test_restarts_serve_where_nothing_is_said_of_detections() -> None:
    restarts = torch.tensor([[0, 0, 1, 1, 1, 2], [1, 1, 1, 1, 1, 1]], dtype=torch.float64)
    ticks = plot_detections(
        {"none": history(detected=0 * DETECTED), "one": history(restarts=restarts)}
    ).lines[1]
    np.testing.assert_allclose(ticks.get_xydata(), [[3, 0.8], [6, 0.8], [1, 1.2]])


def test_one_trace_for_all_replicates_is_drawn_in_every_row() -> None:
    ticks = plot_detections(history(restarts=torch.tensor([0.0, 0, 0, 1, 1, 1]))).lines[0]
    np.testing.assert_allclose(ticks.get_xydata(), [[4, -0.2], [4, 0.2]])


def test_histories_that_tell_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="histories must be at least one with 'detected' or 'restarts'"):
        plot_detections({"plain": history()})

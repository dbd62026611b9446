"""Where policies that detect changes did so, on the curves of ``plot_regret``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from bandits_torch.experiments.plots import COLOURS
from bandits_torch.history import History


def mark_detections(ax: Axes, histories: Mapping[str, History], switches: Sequence[int] = ()) -> Axes:
    """Mark the detections on the curves of ``plot_regret``, and the steps at which the problem really changed.

    Args:
        ax: axes that ``plot_regret`` drew these histories on, in the same order.
        histories: those whose trace has ``detected`` (1 at a step that detected a change) get a dot on their
            mean curve for each detection of each replicate; the darker, the more replicates agree.
        switches: steps of the true changes, drawn as dotted vertical lines.
    """
    for step in switches:
        ax.axvline(step, color="#777777", linestyle=":", linewidth=0.8, zorder=0)
    for i, history in enumerate(histories.values()):
        detected = history.trace.get("detected")
        if detected is None:
            continue
        steps = (detected > 0).nonzero()[:, 1]
        height = history.cumulative_regret.mean(0)[steps]
        share = max(0.15, 1 / history.replicates)
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(steps + 1, height, "o", markersize=4, color=colour, alpha=share, markeredgewidth=0, zorder=3)
    return ax

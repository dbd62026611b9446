"""Where policies that detect changes did so: in rows of their own, or on the curves of ``plot_regret``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import (
    axes_or_new,
    finish,
    looks,
    mark_switches,
    named,
    title_of,
)
from bandits_torch.history import History


def plot_detections(
    histories: History | Mapping[str, History], ax: Axes | None = None, *, switches: Sequence[int] = ()
) -> Axes:
    """When each policy detected a change: one band per policy, with one row of ticks per replicate.

    Args:
        histories: by policy, or one alone. Their trace must have ``detected`` (1 at a step that detected a change)
            or ``restarts`` (a cumulative count: a tick where it grows). Histories with neither are omitted.
        ax: axes to draw on; None: a new figure.
        switches: steps of the true changes, drawn as dotted vertical lines.

    Raises ValueError where no history has such a trace.
    """
    shown = named(histories)
    found = {name: at for name, history in shown.items() if (at := _detected(history)) is not None}
    expected = "at least one with 'detected' or 'restarts' in its trace"
    validation.require(len(found) > 0, "histories", list(shown), expected)
    ax = axes_or_new(ax, height=1.2 + 0.6 * len(found))
    mark_switches(ax, switches)
    look = looks(shown)
    for i, (name, detected) in enumerate(found.items()):
        replicate, step = detected.nonzero(as_tuple=True)
        S = detected.shape[0]
        height = i - 0.4 + 0.8 * (replicate + 0.5) / S
        size = min(12.0, max(3.0, 80.0 / S))
        ax.plot(step + 1, height, "|", color=look[name][0], markersize=size, markeredgewidth=1.2, label=name)
    horizon = max(shown[name].horizon for name in found)
    counts = [f"{name}\n{float(at.sum()) / len(at):.3g} a run" for name, at in found.items()]
    ax.set(xlim=(0, horizon + 1), ylim=(len(found) - 0.5, -0.5))
    ax.set_yticks(range(len(found)), counts, fontsize=8)
    finish(ax, title_of(shown, "detected changes, a row of ticks a replicate"), "step", "")
    ax.grid(visible=False)
    return ax


def mark_detections(ax: Axes, histories: Mapping[str, History], switches: Sequence[int] = ()) -> Axes:
    """Mark detections on the curves of ``plot_regret``, and the steps of the true changes.

    Args:
        ax: axes on which ``plot_regret`` drew these histories, in the same order.
        histories: those whose trace has ``detected`` (1 at a step that detected a change) get a dot on their
            mean curve per detection and replicate; coinciding detections are darker.
        switches: steps of the true changes, drawn as dotted vertical lines.
    """
    mark_switches(ax, switches)
    look = looks(histories)
    for name, history in histories.items():
        detected = history.trace.get("detected")
        if detected is None:
            continue
        steps = (detected > 0).nonzero()[:, 1]
        height = history.cumulative_regret.mean(0)[steps]
        share = max(0.15, 1 / history.replicates)
        colour = look[name][0]
        ax.plot(steps + 1, height, "o", markersize=4, color=colour, alpha=share, markeredgewidth=0, zorder=3)
    return ax


def _detected(history: History) -> Tensor | None:
    """(S, T) booleans, or None where the trace does not say."""
    if "detected" in history.trace:
        return history.trace["detected"].expand(history.arms.shape) > 0
    if "restarts" not in history.trace:
        return None
    restarts = history.trace["restarts"].expand(history.arms.shape)
    return torch.diff(restarts, prepend=torch.zeros_like(restarts[:, :1])) > 0

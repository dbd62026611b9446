"""What a policy that averages models came to believe: rate of change, noise, how many models count, resets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import COLOURS, finish, mark_switches, named, title_of
from bandits_torch.history import History

_PANELS = {
    "effective_rate": "forgetting rate",
    "noise_scale": "noise scale",
    "effective_members": "models that count",
    "resets": "models reset a step",
}
_LEAST_RATE = 1e-4  # at the bottom of the panel
_SMOOTHED = 10  # steps, of the resets


def plot_beliefs(history: History, *, switches: Sequence[float] = ()) -> Figure:
    """What ``ModelAveraging`` believed over the steps: median of the replicates, and a band of their middle 80 %.

    Four panels: the mean forgetting rate of its models by their weights (logarithmic), the standard deviation of the
    noise, the effective number of models, and how many started anew (mean over 10 steps).

    Args:
        history: of a policy whose trace has effective_rate, noise_scale, effective_members and resets.
        switches: steps at which the problem changed, drawn as dotted lines.

    Returns a figure that no window manager knows of. Raises ValueError for a history without such a trace.
    """
    lacking = [name for name in _PANELS if name not in history.trace]
    expected = f"one with {', '.join(_PANELS)}"
    validation.require(not lacking, "history.trace", sorted(history.trace), expected)
    figure = Figure(figsize=(8, 8), dpi=150, layout="constrained")
    panels = figure.subplots(len(_PANELS), 1, sharex=True)
    for ax, (name, label) in zip(panels, _PANELS.items(), strict=True):
        values = history.trace[name].double()
        if name == "resets":
            values = _per_step(values)
        if name == "effective_rate":
            ax.set_yscale("log")
            values = values.clamp_min(_LEAST_RATE)
        _band(ax, values.numpy())
        mark_switches(ax, switches)
        finish(ax, "", "", label)
    ((policy, _),) = named(history).items()
    panels[0].set_title(title_of({policy: history}, f"what {policy} believed"), loc="left", fontsize=10)
    panels[-1].set_xlabel("step")
    return figure


def _per_step(total: Tensor) -> Tensor:
    """Growth of a running total (S, T) a step, averaged over the last steps."""
    length = min(_SMOOTHED, total.shape[-1])
    before = total.roll(length, -1)
    before[..., :length] = 0.0
    return (total - before).clamp_min(0.0) / length


def _band(ax: Axes, values: np.ndarray) -> None:
    steps = np.arange(1, values.shape[-1] + 1)
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9], axis=0)
    ax.fill_between(steps, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
    ax.plot(steps, middle, color=COLOURS[0], linewidth=1.4)

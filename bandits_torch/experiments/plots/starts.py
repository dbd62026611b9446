"""How policies compare, start by start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import GREY, axes_or_new, finish, looks


def plot_starts(regret: Mapping[str, Tensor], random: Tensor, ax: Axes | None = None) -> Axes:
    """Regret of each policy on each unit (a start of a record, a replicate) as a share of random's, and its mean.

    Args:
        regret: by policy, (K,) each (``Starts.regret``).
        random: (K,) expected regret of drawing arms at random.
        ax: where to draw; None: in a new figure.

    A dot is a unit, the tick the mean; least mean first. The share is of the mean over the units of ``random``.

    Raises ValueError where there is no policy, and for regrets of another shape.
    """
    validation.require(len(regret) > 0, "regret", dict(regret), "of one policy or more")
    for name, values in regret.items():
        validation.shape_is(
            f"regret of {name}", values, values.shape == random.shape, f"{tuple(random.shape)}"
        )
    ax = axes_or_new(ax, height=1.2 + 0.32 * len(regret))
    colours = {name: colour for name, (colour, _) in looks(regret).items()}
    order = sorted(regret, key=lambda name: float(regret[name].mean()))
    for row, name in enumerate(order):
        shares = (100 * regret[name] / random.mean()).double().numpy()
        ax.plot(
            shares,
            np.full(len(shares), row),
            "o",
            color=colours[name],
            alpha=0.45,
            markersize=5,
            markeredgewidth=0,
        )
        ax.plot(shares.mean(), row, "|", color=colours[name], markersize=16, markeredgewidth=2.4)
    ax.axvline(100, color=GREY, linestyle=":", linewidth=0.9, zorder=0)
    ax.set_yticks(range(len(order)), order, fontsize=9)
    ax.set(ylim=(len(order) - 0.5, -0.5), xlim=(min(0.0, ax.get_xlim()[0]), None))
    finish(ax, f"{len(random)} starts, and their mean", "% of what drawing at random loses", "")
    ax.grid(visible=False, axis="y")
    return ax

"""Which of several candidate priors was played, and which survived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import COLOURS, axes_or_new, finish, named, title_of
from bandits_torch.history import History

_MOST_COLUMNS = 500


def plot_priors(histories: Mapping[str, History], names: Sequence[str] | None = None) -> Figure:
    """Which prior was played when, how often in total, and how many survived; one row of panels per policy.

    Args:
        histories: by policy; those whose trace has no ``prior`` are omitted.
        names: of the P priors; default: the numbers of those played.

    Left: the share of replicates that played each prior, by step; if the trace has ``surviving``, a line on the right
    axis shows the mean number of surviving priors. Right: the share of all steps and replicates. Returns a figure that
    pyplot does not manage. Raises ValueError where no history has such a trace, and for
    fewer names than priors.
    """
    played = {name: h.trace["prior"] for name, h in histories.items() if "prior" in h.trace}
    validation.require(
        len(played) > 0, "histories", list(histories), "at least one with 'prior' in its trace"
    )
    most = int(max(prior.max() for prior in played.values())) + 1
    count = most if names is None else len(names)
    validation.require(count >= most, "names", names, f"names of {most} or more priors")
    figure = Figure(figsize=(9, 0.6 + (0.9 + 0.11 * count) * len(played)), dpi=150, layout="constrained")
    axes = figure.subplots(len(played), 2, squeeze=False, sharey=True, width_ratios=[4, 1])
    for (left, right), (name, prior) in zip(axes, played.items(), strict=True):
        shares = torch.stack([(prior == p).double().mean(0) for p in range(count)])  # P x T
        columns, steps = _columns(shares)
        _heat(left, columns, steps, prior.shape[1])
        left.set_title(name, loc="left", fontsize=10)
        left.set_yticks(range(count), _ticks(count, names), fontsize=6)
        right.barh(range(count), shares.mean(-1).numpy(), color=COLOURS[0])
        right.set_xlim(0, 1)
        _draw_surviving(left, histories[name], count)
    axes[-1][0].set_xlabel("step (colour: share of replicates; line, right axis: priors surviving)")
    axes[-1][1].set_xlabel("share of all plays")
    return figure


def plot_surviving_priors(
    history: History, ax: Axes | None = None, *, names: Sequence[str] | None = None
) -> Axes:
    """In how many replicates each candidate prior survives, by step.

    Args:
        history: of a policy that drops priors (``PriorElimination``): its trace has ``dropped``, the prior dropped at a
            step (-1: none), and ``surviving``, the number left.
        ax: axes to draw on; None: a new figure.
        names: of the P priors; None: their numbers.

    Raises ValueError for a history without that trace, and for a number of names other than P.
    """
    lacking = [name for name in ("dropped", "surviving") if name not in history.trace]
    validation.require(
        not lacking, "history.trace", sorted(history.trace), "one with 'dropped' and 'surviving'"
    )
    dropped, surviving = history.trace["dropped"], history.trace["surviving"]
    count = int(surviving[0, 0] + (dropped[0, 0] >= 0))
    fits = names is None or len(names) == count
    validation.require(fits, "names", names, f"None or {count} names, one for each prior")
    gone = torch.stack([(dropped == p).cummax(-1).values for p in range(count)])  # P x S x T
    columns, width = _columns(1.0 - gone.double().mean(1))
    ax = axes_or_new(ax, height=1.4 + 0.22 * count)
    image = _heat(ax, columns, width, history.horizon)
    ax.set_yticks(range(count), _ticks(count, names), fontsize=8)
    ax.figure.colorbar(image, ax=ax, label="share of replicates", pad=0.02)
    ((name, _),) = named(history).items()
    finish(ax, title_of({name: history}, f"priors that {name} has not dropped"), "step", "prior")
    ax.grid(visible=False)
    return ax


def _columns(shares: Tensor) -> tuple[np.ndarray, int]:
    """Shares (P, T) averaged over as many steps to a column as make at most 500 columns, and how many those are."""
    steps = -(-shares.shape[1] // _MOST_COLUMNS)
    return torch.nn.functional.avg_pool1d(shares, steps, ceil_mode=True).numpy(), steps


def _heat(ax: Axes, columns: np.ndarray, steps: int, horizon: int) -> AxesImage:
    extent = (0.5, columns.shape[1] * steps + 0.5, len(columns) - 0.5, -0.5)
    image = ax.imshow(columns, "Blues", aspect="auto", vmin=0, vmax=1, extent=extent, interpolation="nearest")
    ax.set_xlim(0.5, horizon + 0.5)
    return image


def _ticks(count: int, names: Sequence[str] | None) -> list[str]:
    return (
        [str(p) for p in range(count)] if names is None else [f"{p}  {name}" for p, name in enumerate(names)]
    )


def _draw_surviving(ax: Axes, history: History, count: int) -> None:
    if "surviving" not in history.trace:
        return
    mean = history.trace["surviving"].mean(0).numpy()
    twin = ax.twinx()
    twin.plot(np.arange(1, len(mean) + 1), mean, color=COLOURS[1], linewidth=1.4)
    twin.set_ylim(0, count + 0.5)
    twin.tick_params(axis="y", labelcolor=COLOURS[1], labelsize=7)

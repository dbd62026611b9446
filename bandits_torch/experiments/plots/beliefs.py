"""What a policy that averages over models came to believe: rate of change, noise, and how sure it is of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.plots.style import finish, looks, mark_switches, named, thinned, title_of
from bandits_torch.history import History

_TITLES = {
    "effective_rate": "rate of change, per usual gap",
    "effective_members": "models in play",
    "noise_scale": "noise, in units of reward",
    "resets": "models begun anew so far",
}
BELIEFS = tuple(_TITLES)
_LEFT_OUT = 0.01  # of the noises, at either end of the axis
_LEAST_RATE = 1e-3  # below, the axis is linear, down to no change at all


def plot_beliefs(
    histories: History | Mapping[str, History], figure: Figure | None = None, *, switches: Sequence[int] = ()
) -> Figure:
    """Four panels over the steps: rate of change, effective number of models, noise, resets.

    Args:
        histories: by policy, or one alone; those whose trace lacks ``BELIEFS`` (``ModelAveraging`` has them) are left
            out.
        figure: an empty one to draw into; None: a new one, which no window manager knows of.
        switches: steps of the true changes, drawn as dotted vertical lines.

    Lines are medians over the replicates, bands reach from the least to the largest, of 1000 steps at most; colours are
    those of ``plot_regret`` of the same histories. The rate's axis is logarithmic above 0.001; a rate epsilon means
    that two expected rewards of one arm, n usual gaps between observations apart, have correlation
    (1 - epsilon)^(n/2). The noise is the standard deviation of a reward about its expectation. ``scale`` of the trace
    is not drawn: its unit is the covariance's, which differs between models.

    Returns the figure. Raises ValueError where no history has such a trace.
    """
    shown = named(histories)
    found = {name: h for name, h in shown.items() if all(belief in h.trace for belief in BELIEFS)}
    validation.require(
        len(found) > 0, "histories", list(shown), f"at least one with {', '.join(BELIEFS)} in its trace"
    )
    if figure is None:
        figure = Figure(figsize=(8.0, 7.2), dpi=150, layout="constrained")
    axes, look = figure.subplots(len(_TITLES), 1, sharex=True), looks(shown)
    for ax, (belief, title) in zip(axes, _TITLES.items(), strict=True):
        mark_switches(ax, switches)
        for name, history in found.items():
            _draw(ax, history.trace[belief], *look[name], name)
        finish(ax, title, "", "", legend=belief == "effective_rate" and len(found) > 1)
    axes[0].set_yscale("symlog", linthresh=_LEAST_RATE, linscale=0.6)
    axes[0].set_ylim(0, 1)
    axes[1].set_ylim(0)
    _noise_axis(axes[2], torch.cat([h.trace["noise_scale"].reshape(-1) for h in found.values()]))
    for ax in axes:
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[3].set_ylim(0, max(1.0, axes[3].get_ylim()[1]))
    axes[-1].set(xlabel="step", xlim=(0, max(history.horizon for history in found.values())))
    most = max(history.replicates for history in found.values())
    bands = f": median of {most} replicates, least to largest" if most > 1 else ""
    text = title_of(found, f"what {', '.join(found)} came to believe{bands}")
    figure.suptitle(text, x=0.01, ha="left", fontsize=11)
    return figure


def _noise_axis(ax: Axes, noise: Tensor) -> None:
    """From 0; the first guesses, of a step or two, may lie outside."""
    high = float(noise.double().quantile(1 - _LEFT_OUT))
    ax.set_ylim(0, 1.15 * high or 1.0)


def _draw(ax: Axes, values: Tensor, colour: str, dash: str, label: str) -> None:
    values = values.double().reshape(-1, values.shape[-1])
    kept = thinned(values.shape[-1])
    steps, values = kept + 1, values[:, kept]
    ax.plot(steps, values.median(0).values.numpy(), color=colour, linestyle=dash, linewidth=1.4, label=label)
    if len(values) > 1:
        low, high = values.amin(0).numpy(), values.amax(0).numpy()
        ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)

"""Plots of what policies believe during a run: the posterior of every arm, rate of change and noise, candidate
priors, and when something changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.experiments.plots.style import (
    COLOURS,
    axes_or_new,
    check_replicate,
    finish,
    looks,
    mark_switches,
    named,
    thinned,
    title_of,
    traced,
    with_trace,
)
from bandits_torch.history import History
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Observation
from bandits_torch.theory.widths import ConstantWidth

_POINTS = 200


def plot_posterior(
    history: History,
    policy: IndexPolicy | OnlineModel,
    steps: int | Sequence[int],
    ax: Axes | None = None,
    *,
    replicate: int = 0,
    width: float = 2.0,
    recent: int = 20,
    truth: Tensor | None = None,
    arms: Tensor | None = None,
    legend: bool = True,
) -> Axes:
    """Posterior mean ± width standard deviations over the arms, after given steps of a run.

    A history holds no posteriors, so a reset copy of the policy learns the history again up to each step, forgetting
    included. The given policy stays unchanged.

    Args:
        history: of the run.
        policy: the index policy that played it, or one of the same prior; or a model over arms, which then forgets
            nothing. It has as many replicates as the history, or one. On a continuous domain, of one dimension.
        steps: one step, or several in ascending order, a colour each. The posterior is shown at the time of the step.
        ax: axes to draw on; None: a new figure.
        replicate: its row in the history, from 0.
        width: how many posterior standard deviations either way.
        recent: number of last rewards to mark at each step; older ones are paler.
        truth: (N,) or (len(steps), N) expected rewards, drawn dashed; None: not drawn.
        arms: (N, d) candidates, for a bare model over any inputs (``OnlineGP``); None: the policy's own, or 200 points
            evenly spread over its domain.
        legend: False for small multiples.

    Arms with one coordinate are drawn over it, as a line in a band; any others over their index, as dots with
    error bars. Cost: that of learning these steps again.

    Raises ValueError for steps or a replicate outside the history, and for sizes that disagree.
    """
    check_replicate(history, replicate)
    wanted = [steps] if isinstance(steps, int) else list(steps)
    ok = bool(wanted) and wanted == sorted(set(wanted)) and wanted[0] >= 1 and wanted[-1] <= history.horizon
    validation.require(ok, "steps", steps, f"ascending integers in 1, ..., {history.horizon}")
    learner, shown = _empty_copy(policy, arms)
    given, count = learner.replicates, history.replicates
    validation.require(given in (1, count), "policy.replicates", given, f"1 or the history's {count}")
    on_a_line = shown.dim() == 2 and shown.shape[-1] == 1
    position = shown[:, 0].detach().cpu() if on_a_line else torch.arange(shown.shape[-2])
    order = position.argsort()
    if truth is not None:
        validation.of_shape("truth", truth, (len(position),), (len(wanted), len(position)))
    ax = axes_or_new(ax, height=3.5)
    for i, (step, mean, deviation) in enumerate(_replayed(history, learner, shown, replicate, wanted)):
        colour = COLOURS[i % len(COLOURS)]
        label = f"step {step}: mean ± {width:g} sd"
        x, m, r = (value[order].numpy() for value in (position, mean, width * deviation))
        if on_a_line:
            ax.plot(x, m, color=colour, linewidth=1.6, label=label)
            ax.fill_between(x, m - r, m + r, color=colour, alpha=0.18, linewidth=0)
        else:
            ax.errorbar(x, m, r, fmt="_", color=colour, elinewidth=3, alpha=0.5, markersize=7, label=label)
        seen = slice(max(0, step - recent), step)
        pulled = history.arms[replicate, seen]
        at = pulled[:, 0] if pulled.dim() == 2 else position[pulled]
        faded = [to_rgba(colour, float(share)) for share in torch.linspace(0.15, 1.0, recent)[-len(at) :]]
        ax.scatter(at, history.rewards[replicate, seen], s=16, color=faded, linewidths=0, zorder=3)
    if truth is not None:
        for i, row in enumerate(truth.expand(len(wanted), -1).detach().cpu()):
            colour = COLOURS[-1] if len(wanted) == 1 else COLOURS[i % len(COLOURS)]
            name = "truth" if i == 0 else None
            ax.plot(position[order], row[order], color=colour, linewidth=1.1, linestyle="--", label=name)
    return finish(ax, "", "arm", "reward", legend=legend)


def _empty_copy(policy: IndexPolicy | OnlineModel, arms: Tensor | None) -> tuple[IndexPolicy, Tensor]:
    """A policy that has learned nothing yet, and the arms or points (N, d) to show."""
    model = copy.deepcopy(policy if isinstance(policy, OnlineModel) else policy.model)
    model.reset()
    if isinstance(policy, OnlineModel):
        learner = IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(1.0), choices=arms)
        return learner, learner.choices.shown()
    choices = policy.choices
    points = arms is None or policy.dim > 0
    validation.require(points, "arms", arms, "None with a policy over arms, which has its own")
    about: Any = {"choices": choices.given, "width": policy.width, "forgetting": policy.forgetting}
    learner = IndexPolicy(model, policy.acquisition, **about)
    return learner, choices.shown(_POINTS) if arms is None else arms


@torch.no_grad()
def _replayed(
    history: History, learner: IndexPolicy, shown: Tensor, replicate: int, steps: Sequence[int]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each step, with the posterior mean and deviation of all arms or points (N,) after it, at its time."""
    many = learner.replicates > 1
    rows, row = (slice(None), replicate) if many else (slice(replicate, replicate + 1), 0)
    noise = learner.model.noise_variance
    arms, rewards = history.arms[rows].to(noise.device), history.rewards[rows].to(noise)
    for step in range(1, steps[-1] + 1):
        time = float(history.times[step - 1])
        learner.learn(Observation(time, arms[:, step - 1], rewards[:, step - 1]))
        if step in steps:
            mean, variance = learner.marginals(time, shown)
            yield step, mean[row].cpu(), variance[row].clamp_min(0).sqrt().cpu()


_TITLES = {
    "effective_rate": "rate of change, per usual gap",
    "effective_members": "models in play",
    "noise_scale": "noise, in units of reward",
    "resets": "models restarted so far",
}
BELIEFS = tuple(_TITLES)
_LEFT_OUT = 0.01  # of the noises, above the axis
_MOST_COLUMNS = 500  # of a picture of shares
_LEAST_RATE = 1e-3  # below, the axis is linear, down to no change at all


def plot_beliefs(
    histories: History | Mapping[str, History], figure: Figure | None = None, *, switches: Sequence[int] = ()
) -> Figure:
    """Four panels over the steps: rate of change, effective number of models, noise, resets.

    Args:
        histories: by policy, or one alone; those without ``BELIEFS`` (``ModelAveraging`` has them) are left out.
        figure: an empty figure to draw into; None: a new one, which pyplot does not manage.
        switches: steps of the true changes, drawn as dotted vertical lines.

    Lines are medians over the replicates, and bands reach from the least to the largest value; at most 1000 steps are
    drawn. Colours are those of ``plot_regret`` for the same histories. The rate's axis is logarithmic above 0.001; a
    rate epsilon means that two expected rewards of one arm, n usual gaps between observations apart, have correlation
    (1 - epsilon)^(n/2). The noise is the standard deviation of a reward about its expectation. ``scale`` of the trace
    is not drawn: its unit is the covariance's, which differs between models.

    Returns the figure. Raises ValueError if no history has such a trace.
    """
    shown = named(histories)
    found = with_trace(shown, BELIEFS)
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
    noise = torch.cat([history.trace["noise_scale"].reshape(-1) for history in found.values()])
    highest = float(noise.double().quantile(1 - _LEFT_OUT))  # first estimates may lie above
    axes[2].set_ylim(0, 1.15 * highest or 1.0)
    for ax in axes:
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[3].set_ylim(0, max(1.0, axes[3].get_ylim()[1]))
    axes[-1].set(xlabel="step", xlim=(0, max(history.horizon for history in found.values())))
    most = max(history.replicates for history in found.values())
    bands = f": median of {most} replicates, least to largest" if most > 1 else ""
    text = title_of(found, f"what {', '.join(found)} came to believe{bands}")
    figure.suptitle(text, x=0.01, ha="left", fontsize=11)
    return figure


def _draw(ax: Axes, values: Tensor, colour: str, dash: str, label: str) -> None:
    values = values.double().reshape(-1, values.shape[-1])
    kept = thinned(values.shape[-1])
    steps, values = kept + 1, values[:, kept]
    ax.plot(steps, values.median(0).values.numpy(), color=colour, linestyle=dash, linewidth=1.4, label=label)
    if len(values) > 1:
        low, high = values.amin(0).numpy(), values.amax(0).numpy()
        ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)


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
    played = {name: traced(h, "prior") for name, h in with_trace(histories, ["prior"]).items()}
    most = int(max(prior.max() for prior in played.values())) + 1
    count = most if names is None else len(names)
    validation.require(count >= most, "names", names, f"names of {most} or more priors")
    figure = Figure(figsize=(9, 0.6 + (0.9 + 0.11 * count) * len(played)), dpi=150, layout="constrained")
    axes = figure.subplots(len(played), 2, squeeze=False, sharey=True, width_ratios=[4, 1])
    for (left, right), (name, prior) in zip(axes, played.items(), strict=True):
        shares = torch.stack([(prior == p).double().mean(0) for p in range(count)])  # P x T
        _heat(left, shares)
        left.set_title(name, loc="left", fontsize=10)
        left.set_yticks(range(count), _ticks(count, names), fontsize=6)
        right.barh(range(count), shares.mean(-1).numpy(), color=COLOURS[0])
        right.set_xlim(0, 1)
        if "surviving" in histories[name].trace:
            mean = traced(histories[name], "surviving").mean(0).numpy()
            twin = left.twinx()
            twin.plot(np.arange(1, len(mean) + 1), mean, color=COLOURS[1], linewidth=1.4)
            twin.set_ylim(0, count + 0.5)
            twin.tick_params(axis="y", labelcolor=COLOURS[1], labelsize=7)
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
    validation.require(not lacking, "history.trace", sorted(history.trace), "with 'dropped', 'surviving'")
    dropped, surviving = traced(history, "dropped"), traced(history, "surviving")
    count = int(surviving[0, 0] + (dropped[0, 0] >= 0))
    fits = names is None or len(names) == count
    validation.require(fits, "names", names, f"None or {count} names, one for each prior")
    gone = torch.stack([(dropped == p).cummax(-1).values for p in range(count)])  # P x S x T
    ax = axes_or_new(ax, height=1.4 + 0.22 * count)
    image = _heat(ax, 1.0 - gone.double().mean(1))
    ax.set_yticks(range(count), _ticks(count, names), fontsize=8)
    ax.figure.colorbar(image, ax=ax, label="share of replicates", pad=0.02)
    ((name, _),) = named(history).items()
    finish(ax, title_of({name: history}, f"priors that {name} has not dropped"), "step", "prior")
    ax.grid(visible=False)
    return ax


def _heat(ax: Axes, shares: Tensor) -> AxesImage:
    """Shares (P, T) as depth of colour, averaged over the steps of each of at most 500 columns."""
    P, T = shares.shape
    steps = -(-T // _MOST_COLUMNS)  # of a column
    columns = torch.nn.functional.avg_pool1d(shares, steps, ceil_mode=True).numpy()
    extent = (0.5, columns.shape[1] * steps + 0.5, P - 0.5, -0.5)
    image = ax.imshow(columns, "Blues", aspect="auto", vmin=0, vmax=1, extent=extent, interpolation="nearest")
    ax.set_xlim(0.5, T + 0.5)
    return image


def _ticks(count: int, names: Sequence[str] | None) -> list[str]:
    return [str(p) if names is None else f"{p}  {names[p]}" for p in range(count)]


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
        if "detected" not in history.trace:
            continue
        steps = (traced(history, "detected") > 0).nonzero()[:, 1]
        height = history.cumulative_regret.mean(0)[steps]
        share = max(0.15, 1 / history.replicates)
        colour = look[name][0]
        ax.plot(steps + 1, height, "o", markersize=4, color=colour, alpha=share, markeredgewidth=0, zorder=3)
    return ax


def _detected(history: History) -> Tensor | None:
    """(S, T) booleans, or None where the trace does not say."""
    if "detected" in history.trace:
        return traced(history, "detected") > 0
    if "restarts" not in history.trace:
        return None
    restarts = traced(history, "restarts")
    return torch.diff(restarts, prepend=torch.zeros_like(restarts[:, :1])) > 0

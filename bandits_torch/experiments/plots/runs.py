"""Plots of runs: regret, arms pulled, and what policies believe: posteriors, rates of change and noise, candidate
priors, and detected changes. They draw on the axes ``ax``; None: a new figure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import EngFormatter, MaxNLocator
from scipy.optimize import isotonic_regression
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.experiments.plots.style import (
    COLOURS,
    GREY,
    axes_or_new,
    check_replicate,
    finish,
    label_rows,
    looks,
    mark_switches,
    named,
    shortened,
    thinned,
    title_of,
    traced,
    with_trace,
)
from bandits_torch.history import History, standard_error
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.naming import written
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Observation
from bandits_torch.theory.widths import ConstantWidth

_SHARES = LinearSegmentedColormap.from_list("pulls", [to_rgba(COLOURS[0], a) for a in (0.0, 0.6, 1.0)])
_LONGEST_NAME = 18


def plot_arms(
    history: History,
    ax: Axes | None = None,
    *,
    replicate: int = 0,
    best: Tensor | None = None,
    positions: Tensor | None = None,
    coordinate: int = 0,
) -> Axes:
    """The arm pulled at each step of one replicate, as dots, with the best arm as a line.

    Args:
        history: the record of one run.
        replicate: its row in the history, from 0.
        best: (R, T) or (T,) index of the best arm at each step (``best_arms``), one row for each replicate or one for
            all; None: no line.
        positions: (N,) vertical position of each arm, such as its coordinate; None: its index.
        coordinate: which of the d coordinates to draw, for a history over a continuous domain.

    Raises ValueError for a replicate or coordinate that does not exist, for ``best`` or ``positions`` of the wrong
    size, and for either of them on a continuous domain.
    """
    check_replicate(history, replicate)
    points, T = history.arms.dim() == 3, history.horizon
    if points:
        validation.require(best is None, "best", best, "None if points were played")
        validation.require(positions is None, "positions", positions, "None if points were played")
        d = history.arms.shape[-1]
        validation.require(coordinate in range(d), "coordinate", coordinate, f"an integer in 0, ..., {d - 1}")
    if best is not None:
        best = validation.of_shape("best", best, (T,), (1, T), (history.replicates, T)).reshape(-1, T)
    arms = history.arms[replicate, :, coordinate] if points else history.arms[replicate]
    steps = np.arange(1, T + 1)
    if positions is not None:
        validation.tensor("positions", positions)
        most = int(arms.max() if best is None else max(arms.max(), best.max())) + 1
        ok = positions.dim() == 1 and len(positions) >= most
        validation.shape_is("positions", positions, ok, f"(N,), with N at least {most}")
    ax = axes_or_new(ax, height=3.5)
    size = float(np.clip(4000 / T, 3, 24))
    what = "point played" if points else "arm pulled"
    ax.scatter(steps, _heights(arms, positions), size, COLOURS[0], alpha=0.7, linewidths=0, label=what)
    if best is not None:
        row = _heights(best[replicate if len(best) > 1 else 0], positions)
        ax.plot(steps, row, drawstyle="steps-mid", color=COLOURS[1], linewidth=1.2, label="best arm")
    ax.set_xlim(0, T + 1)
    ((name, _),) = named(history).items()
    text = title_of({name: history}, f"{name}, replicate {replicate}")
    label = f"coordinate {coordinate}" if points else "arm" if positions is None else "position of the arm"
    finish(ax, text, "step", label, legend=True)
    if positions is None and not points:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    legend: Any = ax.get_legend()
    legend.legend_handles[0].set_sizes([24.0])  # visible even if the dots are small
    return ax


def _heights(arms: Tensor, positions: Tensor | None) -> np.ndarray:
    return (arms if positions is None else positions.cpu()[arms.cpu()]).cpu().numpy()


def plot_pulls(
    history: History,
    best: Tensor,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    most: int = 24,
    columns: int = 50,
) -> Axes:
    """Shares of the arms in the pulls of each stretch of steps, as shades; a bar marks the arm best most often.

    Args:
        history: the record of a run over arms; shares are over the steps of a stretch and the replicates.
        best: (R, T) index of the best arm at each step (``best_arms``), with R = 1 or the history's replicates.
        names: names of the N arms, shown literally; None: their numbers.
        most: the largest number of arms shown: those pulled or best most often.
        columns: the largest number of stretches.

    Raises ValueError for a history over points, ``best`` of the wrong shape or not of integers, fewer names than arms,
    and ``most`` or ``columns`` below 1.
    """
    validation.require(history.arms.dim() == 2, "history", tuple(history.arms.shape), "of a run over arms")
    T = history.horizon
    validation.of_shape("best", best, (1, T), (history.replicates, T))
    validation.require(not best.is_floating_point(), "best", best.dtype, "integers")
    count = int(max(history.arms.max(), best.max())) + 1
    if names is not None:
        validation.require(len(names) >= count, "names", len(names), f"names of {count} or more arms")
        count = len(names)
    columns = min(validation.positive_integer("columns", columns), T)
    pulled, was_best = (_shares(arms, count, columns) for arms in (history.arms, best))
    shown = (pulled.sum(-1) + was_best.sum(-1)).topk(min(validation.positive_integer("most", most), count))
    order = shown.indices.sort().values
    ax = axes_or_new(ax, height=1.2 + 0.2 * len(order))
    extent = (0.5, T + 0.5, len(order) - 0.5, -0.5)
    look: Any = {"aspect": "auto", "vmin": 0, "vmax": 1, "interpolation": "nearest"}
    ax.imshow(pulled[order].numpy(), _SHARES, extent=extent, **look)
    edges = np.ceil(np.arange(columns + 1) * T / columns) + 0.5
    ax.hlines(was_best[order].argmax(0).numpy(), edges[:-1], edges[1:], color=COLOURS[1], linewidth=1.6)
    labels = shortened([str(n) if names is None else names[n] for n in order.tolist()], _LONGEST_NAME)
    label_rows(ax, labels, fontsize=8)
    ax.set_ylim(len(order) - 0.5, -0.5)
    ((name, _),) = named(history).items()
    finish(ax, title_of({name: history}, f"arms that {name} pulled; bars: the best arm"), "step", "")
    ax.grid(visible=False)
    return ax


def _shares(arms: Tensor, count: int, columns: int) -> Tensor:
    """(N, columns): share of each arm in the pulls (R, T) of each stretch of steps."""
    T = arms.shape[1]
    stretch = torch.arange(T) * columns // T
    cells = (arms * columns + stretch).flatten()
    counts = torch.bincount(cells, minlength=count * columns).reshape(count, columns).double()
    return counts / counts.sum(0)


_LABEL_GAP = 0.048  # least distance between two labels, as a share of the axes' height
_ARROW = {"relpos": (0.0, 0.5), "shrinkA": 1, "shrinkB": 0}
_LARGE = 10_000  # regret from which on the axis has prefixes
_OFF_SCALE = 5.0  # lines that end above this many times the median end do not determine the scale


def plot_regret(
    histories: History | Mapping[str, History],
    ax: Axes | None = None,
    *,
    random: Tensor | None = None,
    labels: bool = True,
) -> Axes:
    """Mean cumulative regret of each policy by step, with a band of ± two standard errors that does not extend below 0.

    Args:
        histories: by label of the line; or a single one.
        random: (R, T) expected regret of the random policy (``random_regret``), drawn as a dotted reference; T is the
            horizon of the longest history.
        labels: whether to write names beside the lines.

    Each line is labelled at its end with its name and final value. A single replicate has no band. Lines that end above
    five times the median final value do not determine the scale, so one bad policy does not flatten the others; if
    they end outside the axes, their labels have an arrow.

    Raises ValueError without a history to draw, and for ``random`` of the wrong shape.
    """
    shown = named(histories)
    ax = axes_or_new(ax)
    look = looks(shown)
    lines = [_draw_total(ax, name, history.cumulative_regret, *look[name]) for name, history in shown.items()]
    if random is not None:
        longest = max(history.horizon for history in shown.values())
        validation.of_shape("random", random, ("R", longest), note=", as long as the longest history")
        cumulative = random.cumsum(-1).mean(0, keepdim=True)
        lines.append(_draw_total(ax, "random (expected)", cumulative, GREY, (0, (1, 1.5))))
    usual = [line for line in lines if line.end <= _OFF_SCALE * np.median([line.end for line in lines])]
    low, high = min(0.0, *(line.low for line in lines)), max(line.high for line in usual or lines)
    room = 0.05 * (high - low) or 1.0
    ax.set(xlim=(0, max(history.horizon for history in shown.values())))
    ax.set(ylim=(low - room if low < 0 else 0.0, high + room))
    if high >= _LARGE:
        ax.yaxis.set_major_formatter(EngFormatter(sep=""))  # 4M and 20k
    if labels:
        _label_ends(ax, lines)
    most = max(history.replicates for history in shown.values())
    text = f"mean of {most} replicates ± 2 standard errors" if most > 1 else "one replicate"
    return finish(ax, title_of(shown, text), "step", "cumulative regret")


class _Line(NamedTuple):
    """A drawn line: its name, its end, and the lowest and highest point of its band."""

    name: str
    colour: str
    end: float
    low: float
    high: float


def _draw_total(ax: Axes, name: str, cumulative: Tensor, colour: str, dash: Any) -> _Line:
    """Draw the mean of ``cumulative`` (S, T) with its band, thinned to at most 1000 points."""
    S, T = cumulative.shape
    kept = thinned(T)
    steps, mean = kept + 1, cumulative.mean(0)[kept].numpy()
    error = 2 * standard_error(cumulative)[kept].numpy() if S > 1 else np.zeros_like(mean)
    low, high = np.maximum(mean - error, np.minimum(mean, 0.0)), mean + error
    ax.plot(steps, mean, linewidth=1.6, color=colour, linestyle=dash, label=name)
    if S > 1:
        ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    return _Line(name, colour, float(mean[-1]), float(low.min()), float(high.max()))


def _label_ends(ax: Axes, lines: list[_Line]) -> None:
    """Write names at the right ends of the lines, moved apart if they would overlap.

    Least squares over ascending z_i = place_i - i gap (isotonic regression) keeps a minimal gap between neighbours.
    """
    lines = sorted(lines, key=lambda line: line.end)
    low, high = ax.get_ylim()
    wanted = [min(1.0, (line.end - low) / (high - low)) for line in lines]
    apart = min(_LABEL_GAP, 1 / len(lines)) * np.arange(len(lines))
    places = isotonic_regression(wanted - apart).x.clip(0.0, 1 - apart[-1]) + apart
    for place, at, line in zip(places.tolist(), wanted, lines, strict=True):
        ax.annotate(
            f"{line.name}  {written(line.end, 4)}{' ↑' if line.end > high else ''}",
            xy=(1.0, at),
            xytext=(1.03, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=line.colour,
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": line.colour, "linewidth": 0.6, **_ARROW},
            annotation_clip=False,
        )


def plot_starts(regret: Mapping[str, Tensor], random: Tensor, ax: Axes | None = None) -> Axes:
    """Regret of each policy on each unit (a start of a record) and its mean, in % of the mean regret of random play.

    Args:
        regret: by policy, (K,) each (``Starts.regret``).
        random: (K,) expected regret of drawing arms at random.

    A dot is a unit, and the tick is the mean. The policy with the least mean comes first.

    Raises ValueError without a policy, and for regrets of the wrong shape.
    """
    validation.by_name("regret", regret, "policy's regret")
    validation.tensor("random", random)
    for name, values in regret.items():
        validation.of_shape(f"regret of {name}", values, random.shape)
    ax = axes_or_new(ax, height=1.2 + 0.32 * len(regret))
    colours = {name: colour for name, (colour, _) in looks(regret).items()}
    order = sorted(regret, key=lambda name: float(regret[name].double().mean()))
    for row, name in enumerate(order):
        shares = (100 * regret[name].double() / random.double().mean()).numpy()
        at = np.full(len(shares), row)
        ax.plot(shares, at, "o", alpha=0.45, markersize=5, markeredgewidth=0, color=colours[name])
        ax.plot(shares.mean(), row, "|", color=colours[name], markersize=16, markeredgewidth=2.4)
    ax.axvline(100, color=GREY, linestyle=":", linewidth=0.9, zorder=0)
    ax.set_yticks(range(len(order)), order, fontsize=9)
    ax.set(ylim=(len(order) - 0.5, -0.5), xlim=(min(0.0, ax.get_xlim()[0]), None))
    finish(ax, f"{len(random)} starts, and their mean", "% of what drawing at random loses", "")
    ax.grid(visible=False, axis="y")
    return ax


# --- what policies believe ---

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

    A history has no posteriors, so a reset copy of the policy learns (and forgets) the history again up to each step.
    The given policy stays unchanged.

    Args:
        history: the record of the run.
        policy: the index policy that played it, or one with the same prior; or a model, which then forgets nothing.
            It has as many replicates as the history, or one.
        steps: one step, or several in ascending order, with a colour each. The posterior is at the time of the step.
        replicate: its row in the history, from 0.
        width: number of posterior standard deviations on either side.
        recent: number of last rewards to mark at each step; older ones are paler.
        truth: (N,) or (len(steps), N) expected rewards, drawn dashed; None: not drawn.
        arms: (N, d) candidates, for a bare model over any inputs (``OnlineGP``); None: the policy's arms, or 200 points
            evenly spread over its domain.
        legend: whether to draw a legend.

    Arms with one coordinate are drawn over it, as a line in a band; other arms over their index, as dots with error
    bars. Cost: learning these steps again.

    Raises ValueError for points of several dimensions, for steps or a replicate outside the history, for sizes that
    disagree, and for any other policy.
    """
    check_replicate(history, replicate)
    shape = tuple(history.arms.shape)
    expected = "of arms, or of points of one dimension"
    validation.require(len(shape) == 2 or shape[-1] == 1, "history", shape, expected)
    validation.instance("policy", policy, (IndexPolicy, OnlineModel), "an IndexPolicy or an OnlineModel")
    wanted = list(steps) if isinstance(steps, Iterable) else [steps]
    ok = bool(wanted) and not any(isinstance(step, (bool, float)) for step in wanted)
    ok = ok and wanted == sorted(set(wanted)) and wanted[0] >= 1 and wanted[-1] <= history.horizon
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
    """A copy of the policy that has learned nothing, and the arms or points (N, d) to show."""
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
_LEFT_OUT = 0.01  # share of the noise values that may lie above the axis
_MOST_COLUMNS = 500  # of a picture of shares
_LEAST_RATE = 1e-3  # the axis is logarithmic above this rate, and linear from 0 to it


def plot_beliefs(
    histories: History | Mapping[str, History], figure: Figure | None = None, *, switches: Sequence[int] = ()
) -> Figure:
    """Four panels over the steps: rate of change, effective number of models, noise, resets.

    Args:
        histories: by policy, or a single one; those without a trace of ``BELIEFS`` (as of ``ModelAveraging``) are left
            out.
        figure: an empty figure to draw into; None: a new one, which pyplot does not manage.
        switches: steps of the true changes, drawn as dotted vertical lines.

    Lines are medians over the replicates, and bands reach from the least to the largest value; at most 1000 steps are
    drawn. Colours are those of ``plot_regret`` for the same histories. The axis of the rate is logarithmic above 0.001.
    With a rate epsilon, two expected rewards of one arm at a distance of n usual gaps between observations have
    correlation (1 - epsilon)^(n/2). The noise is the standard deviation of a reward about its expectation.

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
            kept, (colour, dash) = thinned(history.horizon), look[name]
            values = history.trace[belief].double().reshape(-1, history.horizon)[:, kept]
            middle, steps = values.median(0).values.numpy(), kept + 1
            ax.plot(steps, middle, color=colour, linestyle=dash, linewidth=1.4, label=name)
            if len(values) > 1:
                low, high = values.amin(0).numpy(), values.amax(0).numpy()
                ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        finish(ax, title, "", "", legend=belief == "effective_rate" and len(found) > 1)
    axes[0].set_yscale("symlog", linthresh=_LEAST_RATE, linscale=0.6)
    axes[0].set_ylim(0, 1)
    axes[1].set_ylim(0)
    noise = torch.cat([history.trace["noise_scale"].reshape(-1) for history in found.values()])
    highest = float(noise.double().quantile(1 - _LEFT_OUT))  # the first estimates may be far too large
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


def plot_priors(histories: Mapping[str, History], names: Sequence[str] | None = None) -> Figure:
    """Which prior was played when, how often in total, and how many survived; one row of panels per policy.

    Args:
        histories: by policy; those whose trace has no ``prior`` are left out.
        names: names of the P priors; None: their numbers, up to the largest played.

    Left: the share of replicates that played each prior, by step; if the trace has ``surviving``, a line on the right
    axis shows the mean number of surviving priors. Right: the share in all steps and replicates. Returns a figure that
    pyplot does not manage. Raises ValueError if no history has such a trace, and for fewer names than priors.
    """
    played = {name: traced(h, "prior") for name, h in with_trace(histories, ["prior"]).items()}
    most = int(max(prior.max() for prior in played.values())) + 1
    count = most if names is None else len(names)
    validation.require(count >= most, "names", names, f"names of {most} or more priors")
    figure = Figure(figsize=(9, 0.6 + (0.9 + 0.11 * count) * len(played)), dpi=150, layout="constrained")
    axes = figure.subplots(len(played), 2, squeeze=False, sharey=True, width_ratios=[4, 1])
    for (left, right), (name, prior) in zip(axes, played.items(), strict=True):
        shares = torch.stack([(prior == p).double().mean(0) for p in range(count)])  # P x T
        _heat(left, shares, names, fontsize=6)
        left.set_title(name, loc="left", fontsize=10)
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
    """The share of replicates in which each candidate prior survives, by step.

    Args:
        history: from a policy that drops priors (``PriorElimination``). Its trace has ``dropped``, the prior dropped at
            each step (-1: none), and ``surviving``, the number left.
        names: names of the P priors; None: their numbers.

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
    image = _heat(ax, 1.0 - gone.double().mean(1), names, fontsize=8)
    ax.figure.colorbar(image, ax=ax, label="share of replicates", pad=0.02)
    ((name, _),) = named(history).items()
    finish(ax, title_of({name: history}, f"priors that {name} has not dropped"), "step", "prior")
    ax.grid(visible=False)
    return ax


def _heat(ax: Axes, shares: Tensor, names: Sequence[str] | None, fontsize: int) -> AxesImage:
    """Draw shares (P, T) of P priors as depth of colour, averaged over the steps of each of at most 500 columns."""
    P, T = shares.shape
    steps = -(-T // _MOST_COLUMNS)  # of a column
    columns = torch.nn.functional.avg_pool1d(shares, steps, ceil_mode=True).numpy()
    extent = (0.5, columns.shape[1] * steps + 0.5, P - 0.5, -0.5)
    image = ax.imshow(columns, "Blues", aspect="auto", vmin=0, vmax=1, extent=extent, interpolation="nearest")
    ax.set_xlim(0.5, T + 0.5)
    labels = [str(p) if names is None else f"{p}  {names[p]}" for p in range(P)]
    ax.set_yticks(range(P), labels, fontsize=fontsize)
    return image


def plot_detections(
    histories: History | Mapping[str, History], ax: Axes | None = None, *, switches: Sequence[int] = ()
) -> Axes:
    """When each policy detected a change: one band per policy, with one row of ticks per replicate.

    Args:
        histories: by policy, or a single one. Ticks are at the steps at which ``detected`` of the trace is positive, or
            else ``restarts``, a cumulative count, grows. Histories with neither are left out.
        switches: steps of the true changes, drawn as dotted vertical lines.

    Raises ValueError if no history has such a trace.
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
    finish(ax, title_of(shown, "detected changes, one row of ticks per replicate"), "step", "")
    ax.grid(visible=False)
    return ax


def mark_detections(
    ax: Axes, histories: History | Mapping[str, History], switches: Sequence[int] = ()
) -> Axes:
    """Mark detections on the curves of ``plot_regret``, and the steps of the true changes.

    Args:
        ax: axes on which ``plot_regret`` drew these histories, in the same order.
        histories: by policy, or a single one; if the trace has ``detected`` (1 at a step that detected a change), each
            detection of each replicate is a dot on the mean curve; coinciding dots are darker.
        switches: steps of the true changes, drawn as dotted vertical lines.
    """
    mark_switches(ax, switches)
    shown = named(histories)
    look = looks(shown)
    for name, history in shown.items():
        if "detected" not in history.trace:
            continue
        steps = (traced(history, "detected") > 0).nonzero()[:, 1]
        height = history.cumulative_regret.mean(0)[steps]
        share = max(0.15, 1 / history.replicates)
        colour = look[name][0]
        ax.plot(steps + 1, height, "o", markersize=4, color=colour, alpha=share, markeredgewidth=0, zorder=3)
    return ax


def _detected(history: History) -> Tensor | None:
    """The detections (S, T), or None if the trace has none."""
    if "detected" in history.trace:
        return traced(history, "detected") > 0
    if "restarts" not in history.trace:
        return None
    restarts = traced(history, "restarts")
    return torch.diff(restarts, prepend=torch.zeros_like(restarts[:, :1])) > 0

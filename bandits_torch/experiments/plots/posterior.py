"""The posterior of every arm at some steps of a run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.experiments.plots.style import COLOURS, axes_or_new, check_replicate, finish
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
    sizes = (1, history.replicates)
    expected = f"1 or the history's {history.replicates}"
    given = learner.replicates
    validation.require(given in sizes, "policy.replicates", given, expected)
    position, on_a_line = _positions(shown)
    if truth is not None:
        shapes = ((len(position),), (len(wanted), len(position)))
        validation.shape_is("truth", truth, truth.shape in shapes, f"{shapes[0]} or {shapes[1]}")
    ax = axes_or_new(ax, height=3.5)
    for i, (step, mean, deviation) in enumerate(_replayed(history, learner, shown, replicate, wanted)):
        colour = COLOURS[i % len(COLOURS)]
        label = f"step {step}: mean ± {width:g} sd"
        _slice(ax, position, mean, width * deviation, colour, label, on_a_line)
        seen = slice(max(0, step - recent), step)
        pulled = history.arms[replicate, seen]
        at = pulled[:, 0] if pulled.dim() == 2 else position[pulled]
        faded = [to_rgba(colour, float(share)) for share in torch.linspace(0.15, 1.0, recent)[-len(at) :]]
        ax.scatter(at, history.rewards[replicate, seen], s=16, color=faded, linewidths=0, zorder=3)
    if truth is not None:
        order = position.argsort()
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
    learner = IndexPolicy(
        model, policy.acquisition, choices=choices.given, width=policy.width, forgetting=policy.forgetting
    )
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


def _positions(arms: Tensor) -> tuple[Tensor, bool]:
    """Where arms stand on the horizontal axis, (N,), and whether that is a coordinate."""
    if arms.dim() == 2 and arms.shape[-1] == 1:
        return arms[:, 0].detach().cpu(), True
    return torch.arange(arms.shape[-2]), False


def _slice(
    ax: Axes, position: Tensor, mean: Tensor, reach: Tensor, colour: str, label: str, on_a_line: bool
) -> None:
    if on_a_line:
        order = position.argsort()
        x, m, r = (value[order].numpy() for value in (position, mean, reach))
        ax.plot(x, m, color=colour, linewidth=1.6, label=label)
        ax.fill_between(x, m - r, m + r, color=colour, alpha=0.18, linewidth=0)
    else:
        x, m, r = position.numpy(), mean.numpy(), reach.numpy()
        ax.errorbar(x, m, r, fmt="_", color=colour, elinewidth=3, alpha=0.5, markersize=7, label=label)

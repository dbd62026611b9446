"""A race as one HTML file for people who would rather look: no script, nothing from a network."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from torch import Tensor

from bandits_torch.experiments import page_figures
from bandits_torch.experiments.plots.beliefs import BELIEFS, plot_beliefs
from bandits_torch.experiments.plots.pulls import plot_pulls
from bandits_torch.experiments.plots.regret import plot_regret
from bandits_torch.experiments.plots.starts import plot_starts
from bandits_torch.experiments.plots.style import looks
from bandits_torch.experiments.regret import WRITTEN_OUT, best_arms, summary
from bandits_torch.experiments.starts import Starts
from bandits_torch.history import History
from bandits_torch.problems.problem import Problem

_TEMPLATE = Path(__file__).with_name("page.html")
_MOST_ARMS = 24
_LARGE = 10_000
_VERDICTS = {
    "sure": "Sure",
    "likely": "Likely",
    "tie": "Cannot be told apart",
    "split": "Depends on how long it runs",
    "late": "Told by the long play alone",
    "random": "No better than chance",
    "short": "Too short to tell",
}


@dataclass(frozen=True)
class PageText:
    """What a page says beside what the histories show.

    Attributes:
        heading: of the page, the name of the problem or the data.
        advice: sentences, the first the one that matters.
        verdict: of ``Advice``; None: not known.
        policies: whose pulls are shown, before those of ``auto``; none: that of the least regret.
        python: lines to begin with; None for none.
        starts: what the advice comes from; None for none.
        facts: names and values at the end of the page.
    """

    heading: str
    advice: Sequence[str] = ()
    verdict: str | None = None
    policies: Sequence[str] = ()
    python: str | None = None
    starts: Starts | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def page(histories: Mapping[str, History], random: Tensor, problem: Problem, told: PageText) -> str:
    """The whole page. Every name is escaped, and the page forbids scripts and loading anything.

    Args:
        histories: by policy.
        random: (R, T) expected regret of playing at random.
        problem: that was played, for its summary and the best arms.
    """
    first = next(iter(histories.values()))
    shown = {name: h for name, h in histories.items() if name != "random"} or histories
    size = f"{_count(first.horizon, 'step')}, {_count(len(histories), 'policy', 'policies')}, "
    size += _count(first.replicates, "replicate")
    sections = [
        _advice(told),
        _read(problem.summary()),
        _results(shown, random),
        "" if told.starts is None or not told.starts.steps else _starts(told.starts, list(shown)),
        _pulls(shown, problem, told.policies),
        _beliefs(shown),
        _facts(told.facts),
    ]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=html.escape(f"{told.heading}: which policy loses least?"),
        heading=html.escape(told.heading),
        size=html.escape(size),
        colours=page_figures.palette(),
        colours_on_dark=page_figures.palette(dark=True),
        sections="\n".join(section for section in sections if section),
    )


def _advice(told: PageText) -> str:
    if not told.advice:
        return ""
    lead, *rest = told.advice
    badge = f'<span class="badge">{html.escape(_VERDICTS[told.verdict])}</span>' if told.verdict else ""
    parts = [f'<section class="advice">{badge}<p class="lead">{html.escape(lead)}</p>']
    parts += [f"<p>{html.escape(line)}</p>" for line in rest]
    if told.python is not None:
        code = html.escape(told.python)
        parts.append(f"<details><summary>Put it to work, in Python</summary><pre>{code}</pre></details>")
    return "".join([*parts, "</section>"])


def _read(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return (
        "<h2>What was read</h2><p>Check this first: if it is not what the table holds, nothing below is right.</p>"
        f'<ul class="read">{items}</ul>'
    )


def _results(histories: Mapping[str, History], random: Tensor) -> str:
    at_random = float(random.sum(-1).mean())
    look = looks(histories)
    frame = summary(histories).sort_values("mean_cumulative_regret")
    most = max(at_random, float(frame["mean_cumulative_regret"].max())) or 1.0
    rows = []
    for name, row in frame.iterrows():
        regret = float(row["mean_cumulative_regret"])
        colour = page_figures.page_colour(look[str(name)][0])
        rows.append(
            f'<tr><td class="name"><span class="dot" style="background:{colour}"></span>{html.escape(str(name))}</td>'
            f'<td class="bar"><span style="width:{max(0.0, 100 * regret / most):.1f}%;background:{colour}"></span></td>'
            f'<td class="n">{_share(regret, at_random)}</td><td class="n spare">{_number(regret)}</td>'
            f'<td class="n spare">{row["ms_per_step"]:.2f}</td></tr>'
        )
    whole = "100 %" if at_random > 0 else ""
    rows.append(
        '<tr class="reference"><td>drawing at random</td><td class="bar"><span style="width:'
        f'{100 * at_random / most:.1f}%;background:var(--grey)"></span></td><td class="n">{whole}</td>'
        f'<td class="n spare">{_number(at_random)}</td><td class="n spare"></td></tr>'
    )
    head = (
        '<th>policy</th><th></th><th class="n">of random</th><th class="n spare">regret</th>'
        '<th class="n spare">ms a step</th>'
    )
    bands = _bands(histories, "two standard errors either way")
    picture = page_figures.figure(
        "regret",
        lambda made: _readable(plot_regret(histories, made.add_subplot(), random=random, labels=False)),
        3.6,
        "Regret added up over the steps, colours as in the table; dotted: drawing at random. A line that lies flat "
        f"has found the best arm; one that bends upwards has lost it.{bands}",
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return (
        "<h2>What each policy lost</h2><p>Regret is what was lost by not pulling the best arm of every step: "
        f'the less, the better.</p><div class="scroll">{table}</div>{picture}'
    )


def _starts(starts: Starts, order: Sequence[str]) -> str:
    regret = {name: starts.regret[name] for name in order if name in starts.regret}
    K = len(starts.random)
    picture = page_figures.figure(
        "starts",
        lambda made: _plain(plot_starts(regret, starts.random, made.add_subplot())),
        0.9 + 0.32 * len(regret),
        f"Each dot is a start, played for {starts.steps} steps; the tick is the mean. Where the clouds of two "
        "policies lie over each other, their order is chance.",
    )
    return (
        f"<h2>How sure is that?</h2><p>Every policy was begun anew at {K} places of the record, which do not overlap. "
        "The advice rests on these, and on the one play of the whole above.</p>"
        f"{picture}"
    )


def _pulls(histories: Mapping[str, History], problem: Problem, first: Sequence[str]) -> str:
    if problem.dim or problem.num_arms < 2:
        return ""
    horizon = next(iter(histories.values())).horizon
    best = best_arms(problem, horizon)
    if bool((best == best[:1]).all()):
        best = best[:1]
    lead = first or [str(summary(histories)["mean_cumulative_regret"].idxmin())]
    shown = dict.fromkeys(name for name in (*lead, "auto") if name in histories)
    names = [str(name) for name in getattr(problem, "arm_names", range(problem.num_arms))]
    height = 0.9 + 0.19 * min(_MOST_ARMS, problem.num_arms)
    left_out = problem.num_arms - _MOST_ARMS
    note = f" The {_MOST_ARMS} arms that matter most of {problem.num_arms}." if left_out > 0 else ""
    pictures = []
    for i, name in enumerate(shown):
        one = _of_one_function(histories[name], best)
        pictures.append(
            page_figures.figure(
                f"pulls{i}",
                partial(_draw_pulls, one, best[:1], names),
                height,
                f"{html.escape(name)}: the darker, the more often it pulled that arm; orange: the arm that was best "
                f"most often at the time.{note}",
            )
        )
    return f"<h2>What was pulled, and what was best</h2>{''.join(pictures)}"


def _draw_pulls(history: History, best: Tensor, names: Sequence[str], made: Figure) -> None:
    _plain(plot_pulls(history, best, made.add_subplot(), names=names))


def _of_one_function(history: History, best: Tensor) -> History:
    """All replicates where one function is played by all, else the first alone."""
    if len(best) == 1:
        return history
    return History(
        history.arms[:1],
        history.rewards[:1],
        history.expected_rewards[:1],
        history.best[:1],
        history.times,
        history.seconds,
        meta=history.meta,
    )


def _beliefs(histories: Mapping[str, History]) -> str:
    found = [name for name, h in histories.items() if all(belief in h.trace for belief in BELIEFS)]
    if not found:
        return ""
    name, history = found[0], histories[found[0]]
    shown = {one: h for one, h in histories.items() if one == name or one not in found}  # with their colours
    bands = _bands({name: history}, "from the least to the largest")
    picture = page_figures.figure(
        "beliefs",
        lambda made: _untitled(plot_beliefs(shown, made)),
        6.0,
        "From above: the rate of change; how many of its models still count; the noise of a reward; how many models it "
        f"has begun anew.{' Lines: medians.' if bands else ''}{bands}",
    )
    return f"<h2>What {html.escape(name)} came to believe</h2><p>{_said_of_change(history)}</p>{picture}"


def _bands(histories: Mapping[str, History], reach: str) -> str:
    """What the bands of a picture are, where there are any to be seen."""
    most = max(history.replicates for history in histories.values())
    seen = any(history.replicates > 1 and not history.identical for history in histories.values())
    return f" Bands: {reach}, of {_count(most, 'replicate')}." if seen else ""


def _said_of_change(history: History) -> str:
    """The rate of the last quarter in words, and what was forgotten beside."""
    rates = history.trace["effective_rate"].double().reshape(-1, history.horizon)
    quarter = max(1, history.horizon // 4)
    rate = float(rates[:, -quarter:].median())
    half = _half_life(rate)
    resets = history.trace["resets"].double().reshape(-1, history.horizon)
    begun, grown = round(float(resets[:, -1].median())), resets.diff() > 0
    anew = ""
    if begun:
        last = int(grown.any(0).nonzero().max()) + 2 if bool(grown.any()) else 1
        anew = (
            f" Models that fell behind were begun anew {_count(begun, 'time')}, the last at step {last}: these have "
            "forgotten what came before."
        )
    if half > history.horizon:
        always = _half_life(float(rates[:, quarter - 1 :].median(0).values.max())) > history.horizon
        kept = ": what it saw first still counts" if always and not begun else ""
        return f"Over the last quarter it believed that hardly anything changes{kept}.{anew}"
    return (
        f"Over the last quarter it believed in a rate of {rate:.2g} a step: what an arm was worth "
        f"{_count(max(1, round(half)), 'step')} ago tells half of what it is worth now.{anew}"
    )


def _half_life(rate: float) -> float:
    """Steps until what an arm was worth tells half of what it is worth."""
    return math.inf if rate <= 0 else 2 * math.log(0.5) / math.log1p(-min(rate, 0.999))


def _facts(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    rows = "".join(f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>" for k, v in facts.items())
    return f"<h2>How it was made</h2><dl>{rows}</dl>"


def _plain(ax: Axes) -> None:
    """Without a title, which the page has above."""
    ax.set_title("", loc="left")


def _readable(ax: Axes) -> None:
    """As ``_plain``, with 4M and 20k for large numbers."""
    _plain(ax)
    if ax.get_ylim()[1] >= _LARGE:
        ax.yaxis.set_major_formatter(EngFormatter(sep=""))


def _untitled(made: Figure) -> None:
    made.suptitle("")


def _share(regret: float, at_random: float) -> str:
    return f"{100 * regret / at_random:.1f} %" if at_random > 0 else ""


def _number(value: float) -> str:
    whole = 1000 <= abs(value) < WRITTEN_OUT
    return f"{value:,.0f}".replace(",", "\u202f") if whole else f"{value:.4g}"


def _count(number: int, word: str, words: str | None = None) -> str:
    return f"{number:,} {word if number == 1 else words or word + 's'}".replace(",", " ")

"""A race as one HTML file for people who would rather look: no script, nothing from a network.

``page.html`` is its template, and here are the values and pictures that it shows.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from torch import Tensor

from bandits_torch.experiments.comparison import Comparison
from bandits_torch.experiments.earned import Earned
from bandits_torch.experiments.plots.arms import plot_pulls
from bandits_torch.experiments.plots.beliefs import BELIEFS, plot_beliefs
from bandits_torch.experiments.plots.diagnosis import plot_diagnosis
from bandits_torch.experiments.plots.regret import plot_regret, plot_starts
from bandits_torch.experiments.plots.style import COLOURS, GREY, GREY_ON_DARK, GRID, ON_DARK, looks
from bandits_torch.experiments.regret import WRITTEN_OUT, best_arms, standings, summary
from bandits_torch.experiments.starts import Starts
from bandits_torch.history import History
from bandits_torch.problems.diagnosis import Diagnosis
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.replay import Replay

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_MOST_ARMS = 24
_LARGE = 10_000
_SCREEN, _PHONE = 7.6, 4.0  # widths of a picture in inches
_VERDICTS = {
    "sure": "Sure",
    "likely": "Likely",
    "tie": "Cannot be told apart",
    "split": "Depends on how long it runs",
    "late": "Only the long play tells",
    "random": "No better than chance",
    "short": "Too short to tell",
}
_CSS_COLOURS = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS[:-1])}
_CSS_COLOURS |= {COLOURS[-1]: "var(--ink)", GREY: "var(--grey)", GRID.lower(): "var(--grid)"}
_DIGITS = re.compile(r"(\.\d\d)\d+")  # beyond a hundredth of a point, which no screen shows


def page(
    histories: Mapping[str, History],
    random: Tensor,
    problem: Problem,
    heading: str,
    compared: Comparison | None = None,
    python: str | None = None,
    facts: Mapping[str, Any] | None = None,
    gained: Earned | None = None,
    found: Diagnosis | None = None,
) -> str:
    """The whole page. Every name is escaped, and the page forbids scripts and loading anything.

    Args:
        histories: by policy.
        random: (R, T) expected regret of playing at random.
        problem: that was played, for its summary and the best arms.
        heading: the name of the problem or the data.
        compared: the advice to begin with; None for none.
        python: lines that put the policy to work; None for none.
        facts: names and values at the end of the page.
        gained: what the policies earned; None: the page does not say.
        found: what the table holds that was replayed; None: the page does not say.
    """
    first = next(iter(histories.values()))
    shown = {name: h for name, h in histories.items() if name != "random"} or dict(histories)
    counts = (first.horizon, "step"), (len(histories), "policy", "policies"), (first.replicates, "replicate")
    advice = None if compared is None else compared.advice
    return _TEMPLATES.get_template("page.html").render(
        heading=heading,
        size=", ".join(_count(*each) for each in counts),
        colours=_css_variables(COLOURS[:-1], GREY),
        colours_on_dark=_css_variables(ON_DARK, GREY_ON_DARK),
        advice=[] if compared is None else compared.sentences,
        verdict=_VERDICTS["short" if advice is None else advice.verdict],
        python=python,
        read=problem.summary(),
        holds=_holds(problem, found),
        earned=_earned(shown, gained),
        noisy=gained is not None and gained.noisy,
        **_table(
            shown, random, None if gained is None or not gained.noisy else gained.maximum - gained.attainable
        ),
        regret=_picture("regret", 3.6, partial(_draw_regret, shown, random)),
        bands=_bands(shown),
        starts=_starts(None if compared is None else compared.starts, shown),
        pulls=_pulls(shown, problem, compared),
        arms=0 if problem.dim else problem.num_arms,
        most_arms=_MOST_ARMS,
        beliefs=_beliefs(shown),
        facts=facts or {},
    )


def _holds(problem: Problem, found: Diagnosis | None) -> dict[str, Any] | None:
    """What a table holds, in sentences and as a picture."""
    if found is None or not isinstance(problem, Replay):
        return None
    table = problem.record()
    picture = _picture("holds", 3.8, lambda figure: plot_diagnosis(table, found, figure), titles=True)
    return {"lines": str(found).splitlines(), "picture": picture, "jumps": bool(found.jumps)}


def _earned(histories: Mapping[str, History], gained: Earned | None) -> dict[str, Any] | None:
    """A row for each policy, the one that earned most first, and rows for what it is compared with."""
    if gained is None:
        return None
    look, could = looks(histories), gained.attainable - gained.random

    def cells(name: str, total: float) -> dict[str, str]:
        share = (total - gained.random) / could if could > 0 else math.nan
        return {
            "name": name,
            "total": gained.total(total),
            "a_step": f"{total / gained.steps:.4g}",
            "above": gained.above_random(total),
            "share": "" if math.isnan(share) else f"{100 * share:.0f} %",
            "width": "0%" if math.isnan(share) else f"{100 * min(1.0, max(0.0, share)):.1f}%",
            "colour": _CSS_COLOURS[look[name][0].lower()] if name in look else "var(--grey)",
        }

    arm = (
        []
        if gained.best_arm is None
        else [cells(f"best single arm in hindsight: {gained.best_arm[0]}", gained.best_arm[1])]
    )
    known = "best arm by the smoothed table" if gained.noisy else "best arm of every step"
    return {
        "noun": gained.noun,
        "rows": [cells(name, total) for name, total in gained.policies.items() if name in histories],
        "references": [cells("drawing at random", gained.random), *arm, cells(known, gained.attainable)],
        "about": gained.about_regret(),
    }


def _table(histories: Mapping[str, History], random: Tensor, attainable: float | None) -> dict[str, Any]:
    """A row for each policy, the best first, and one for drawing at random; one for what was attainable."""
    look, (frame, at_random) = looks(histories), standings(histories, random)
    most = max(at_random, float(frame["mean_cumulative_regret"].max())) or 1.0

    def cells(regret: float) -> dict[str, str]:
        written_out = 1000 <= abs(regret) < WRITTEN_OUT
        return {
            "width": f"{max(0.0, 100 * regret / most):.1f}%",
            "regret": f"{regret:,.0f}".replace(",", "\u202f") if written_out else f"{regret:.4g}",
        }

    rows = [
        {
            "name": name,
            "colour": _CSS_COLOURS[look[str(name)][0].lower()],
            "share": "" if math.isnan(row["of_random"]) else f"{row['of_random']:.1f} %",
            "ms": f"{row['ms_per_step']:.2f}",
            **cells(row["mean_cumulative_regret"]),
        }
        for name, row in frame.iterrows()
    ]
    beside = [{"name": "drawing at random", **cells(at_random), "share": "100 %" if at_random > 0 else ""}]
    if attainable is not None:
        share = f"{100 * attainable / at_random:.1f} %" if at_random > 0 else ""
        beside.append({"name": "best arm by the smoothed table", **cells(attainable), "share": share})
    return {"rows": rows, "references": beside}


def _draw_regret(histories: Mapping[str, History], random: Tensor, figure: Figure) -> None:
    ax = plot_regret(histories, figure.add_subplot(), random=random, labels=False)
    if ax.get_ylim()[1] >= _LARGE:
        ax.yaxis.set_major_formatter(EngFormatter(sep=""))  # 4M and 20k


def _starts(starts: Starts | None, order: Mapping[str, History]) -> dict[str, Any] | None:
    if starts is None or not starts.steps:
        return None
    regret = {name: starts.regret[name] for name in order if name in starts.regret}

    def draw(figure: Figure) -> None:
        plot_starts(regret, starts.random, figure.add_subplot())

    picture = _picture("starts", 0.9 + 0.32 * len(regret), draw)
    return {"count": len(starts.random), "steps": starts.steps, "picture": picture}


def _pulls(
    histories: Mapping[str, History], problem: Problem, compared: Comparison | None
) -> dict[str, dict[str, str]]:
    """Pictures of what the policies that the advice is about pulled, and ``auto``, where there are arms."""
    if problem.dim or problem.num_arms < 2:
        return {}
    best = best_arms(problem, next(iter(histories.values())).horizon)
    rows = (
        slice(None) if bool((best == best[:1]).all()) else slice(1)
    )  # one, where each has a function of its own
    if compared is None or compared.advice is None:
        lead = [str(summary(histories)["mean_cumulative_regret"].idxmin())]
    else:
        advice, stuck = compared.advice, compared.stuck
        lead = [
            advice.taken or advice.policy,
            advice.policy,
            *(name for name in advice.tied if name in stuck),
        ]
    shown = dict.fromkeys(name for name in (*lead, "auto") if name in histories)
    names = [str(name) for name in getattr(problem, "arm_names", range(problem.num_arms))]
    height = 0.9 + 0.19 * min(_MOST_ARMS, problem.num_arms)

    def draw(history: History, figure: Figure) -> None:
        kept = {
            name: getattr(history, name)[rows] for name in ("arms", "rewards", "expected_rewards", "best")
        }
        plot_pulls(replace(history, **kept, trace={}), best[:1], figure.add_subplot(), names=names)

    return {
        name: _picture(f"pulls{i}", height, partial(draw, histories[name])) for i, name in enumerate(shown)
    }


def _beliefs(histories: Mapping[str, History]) -> dict[str, Any] | None:
    """What the first policy that averages over models came to believe; None where there is none."""
    found = [name for name, h in histories.items() if all(belief in h.trace for belief in BELIEFS)]
    if not found:
        return None
    name, history = found[0], histories[found[0]]
    shown = {one: h for one, h in histories.items() if one == name or one not in found}  # with their colours
    return {
        "name": name,
        "picture": _picture("beliefs", 6.0, lambda figure: plot_beliefs(shown, figure)),
        "bands": _bands({name: history}),
        "of_change": _said_of_change(history),
    }


def _bands(histories: Mapping[str, History]) -> str:
    """Of how many replicates the bands of a picture are; empty where there are none to be seen."""
    most = max(history.replicates for history in histories.values())
    seen = any(history.replicates > 1 and not history.identical for history in histories.values())
    return _count(most, "replicate") if seen else ""


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


def _count(number: int, word: str, words: str | None = None) -> str:
    return f"{number:,} {word if number == 1 else words or word + 's'}".replace(",", " ")


def _css_variables(colours: Sequence[str], grey: str) -> str:
    named = {f"c{i}": colour for i, colour in enumerate(colours)} | {"grey": grey}
    return " ".join(f"--{name}: {colour.lower()};" for name, colour in named.items())


def _picture(
    name: str, height: float, draw: Callable[[Figure], object], *, titles: bool = False
) -> dict[str, str]:
    """A picture for a screen, ``wide``, and for a phone, ``narrow``, ``height`` inches high.

    ``name`` is of letters and digits; no two pictures of a page may share it. What ``draw`` makes of an empty figure
    is left without titles, unless these are asked for, since the page has them.
    """
    made = {}
    for kind, width in (("wide", _SCREEN), ("narrow", _PHONE)):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        if len(figure.axes) == 1 and not titles:
            figure.axes[0].set_title("", loc="left")
        if figure.get_suptitle():
            figure.suptitle("")
        made[kind] = _svg(figure, f"{name}-{kind}")
    return made


def _svg(figure: Figure, name: str) -> str:
    """A figure as an SVG element: text as text, the colours of the plots as variables of the page.

    The page shows it as it is: matplotlib escapes the text that it writes.
    """
    file = io.StringIO()
    for ax in figure.axes:
        ax.patch.set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # names of groups, the same in every figure
    text = re.sub(r' d="[^"]*"', lambda path: _DIGITS.sub(r"\1", path[0]), text)
    return re.sub(
        "|".join(_CSS_COLOURS), lambda found: _CSS_COLOURS[found[0].lower()], text, flags=re.IGNORECASE
    )

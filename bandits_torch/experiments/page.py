"""Pages about a race or a live system: one HTML file without scripts that loads nothing.

The templates are ``page.html`` and ``live.html``; this module computes the values and pictures in them.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bandits_torch.experiments.comparison import Comparison, unseen_cycles
from bandits_torch.experiments.earned import RANDOM, SMOOTHED, Earned, best_arms, standings, summary
from bandits_torch.experiments.plots.diagnosis import plot_diagnosis
from bandits_torch.experiments.plots.runs import BELIEFS, plot_beliefs, plot_pulls, plot_regret, plot_starts
from bandits_torch.experiments.plots.style import (
    COLOURS,
    GREY,
    GREY_ON_DARK,
    GRID,
    ON_DARK,
    finish,
    in_dates,
    label_rows,
    looks,
    shortened,
)
from bandits_torch.experiments.sweep import Starts
from bandits_torch.history import PER_REPLICATE, History
from bandits_torch.naming import counted, digits_of, named_values, written
from bandits_torch.problems.diagnosis import Diagnosis, kind_of_values
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.smoothing import best_smoothed

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_MOST_ARMS = 24  # in a picture
_MOST_ROWS, _LATEST = 50, 15  # of a table
_MOST_COLOURS = 6
_LONGEST_NAME = 24
_SCREEN, _PHONE = 7.6, 4.0  # widths of a picture in inches
_VERDICTS = {
    "sure": "Sure",
    "likely": "Likely",
    "tie": "Cannot be told apart",
    "split": "Depends on how long it runs",
    "late": "Only the long play decides",
    "random": "No better than chance",
    "short": "Too short to tell",
}
_CSS_COLOURS = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS[:-1])}
_CSS_COLOURS |= {COLOURS[-1]: "var(--ink)", GREY: "var(--grey)", GRID.lower(): "var(--grid)"}
_DIGITS = re.compile(r"(\.\d\d)\d+")  # digits beyond a hundredth of a point, which no screen shows


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
    """The page of a race. Every name is escaped, and the page forbids scripts and loading anything.

    ``histories``, ``random`` and ``problem`` as for ``compare``. Parts that are None are left out: ``compared``, the
    advice at the beginning; ``python``, code that deploys the policy; ``facts``, names and values at the end;
    ``gained``, what the policies earned; ``found``, the diagnosis of the replayed table.
    """
    first = next(iter(histories.values()))
    shown = {name: h for name, h in histories.items() if name != "random"} or dict(histories)
    counts = (first.horizon, "step"), (len(histories), "policy", "policies"), (first.replicates, "replicate")
    advice = None if compared is None else compared.advice
    look, (frame, at_random) = looks(shown), standings(shown, random)
    unavoidable = None if gained is None else gained.unavoidable
    references = {RANDOM: at_random} | ({} if unavoidable is None else {SMOOTHED: unavoidable})
    # Whether several arms of a row often share the largest reward.
    ties = isinstance(problem, Replay) and kind_of_values(problem.table) in ("0/1", "counts")
    holds = None
    if found is not None and isinstance(problem, Replay):
        draw = partial(plot_diagnosis, problem.record(), found)
        picture = _picture("holds", 3.8, draw, titles=True)
        holds = {"lines": str(found).splitlines(), "picture": picture, "jumps": bool(found.jumps)}

    def draw_regret(figure: Figure) -> None:
        plot_regret(shown, figure.add_subplot(), random=random, labels=figure.get_figwidth() > _PHONE)

    return _rendered(
        "page.html",
        heading=heading,
        size=", ".join(counted(*each) for each in counts),
        advice=[] if compared is None else compared.sentences,
        verdict=_VERDICTS["short" if advice is None else advice.verdict],
        python=python,
        read=[*problem.summary(), *unseen_cycles(problem, found)],
        holds=holds,
        colour={name: _CSS_COLOURS[colour.lower()] for name, (colour, _) in look.items() if name in shown},
        earned=gained,
        noisy=unavoidable is not None,
        rows=frame.reset_index().to_dict("records"),
        at_random=at_random,
        references=references,
        most=max(at_random, float(frame["mean_cumulative_regret"].max())) or 1.0,
        regret=_picture("regret", 3.6, draw_regret),
        bands=_bands(shown),
        starts=_starts(None if compared is None else compared.starts, shown),
        pulls=_pulls(shown, problem, compared, ties),
        ties=ties,
        arms=0 if problem.dim else problem.num_arms,
        most_arms=_MOST_ARMS,
        beliefs=_beliefs(shown),
        facts=facts or {},
    )


def live_page(
    beliefs: pd.DataFrame,
    history: pd.DataFrame,
    alarms: pd.DataFrame,
    heading: str,
    facts: Mapping[str, Any],
    *,
    level: float,
    refresh: int | None = None,
    lift: Sequence[pd.DataFrame] = (),
) -> str:
    """The page of one replicate of a live system. Every name is escaped, and the page forbids scripts.

    ``AskTell`` returns ``beliefs``, with intervals of this ``level``, ``history``, ``alarms`` and, if there is a
    control, ``lift``. ``facts``: at the end. ``refresh``: seconds after which a browser loads the file again.
    """
    over_arms = "arm" in beliefs
    settings = [] if over_arms else list(beliefs.columns[: list(beliefs.columns).index("mean")])
    if over_arms:
        beliefs = beliefs[~beliefs["retired"]]
    names = beliefs["arm"].astype(str) if over_arms else _named_settings(beliefs, settings)
    order = ["probability_best", "mean", "plays"]
    table = beliefs.assign(name=names).sort_values(order, ascending=False, kind="stable")
    rewarded = history[history["state"] == "told"]
    chosen = history["arm"].astype(str) if over_arms else _named_settings(history, settings)
    shown = table[:_MOST_ROWS]
    height = 0.7 + 0.2 * min(len(table), _MOST_ARMS)
    pictures = {}
    if bool(table["lower"].notna().any()):
        pictures["beliefs"] = _picture("beliefs", height, partial(_draw_intervals, table[:_MOST_ARMS]))
    if len(rewarded):
        pictures["rewards"] = _picture("rewards", 3.0, partial(_draw_rewards, rewarded, alarms, over_arms))
    if over_arms and len(rewarded):
        order = list(table["name"][:_MOST_ARMS])
        plays = rewarded.assign(arm=rewarded["arm"].astype(str))
        pictures["plays"] = _picture("plays", height, partial(_draw_plays, plays, order))
    latest = history.assign(name=chosen)[::-1][:_LATEST]
    return _rendered(
        "live.html",
        heading=heading,
        what="arm" if over_arms else "settings",
        refresh=refresh,
        level=f"{100 * level:g} %",
        digits=digits_of(table[["mean", "lower", "upper"]].to_numpy().ravel(), 4),
        learned=bool(beliefs["mean"].notna().any()) and len(rewarded) > 0,
        rows=shown.to_dict("records"),
        left_out=len(table) - len(shown),
        lifts=[row for one in lift for row in one[:_MOST_ROWS].to_dict("records")],
        pictures=pictures,
        most_arms=_MOST_ARMS,
        of=len(table),
        alarms=alarms[::-1][:_LATEST].to_dict("records"),
        alarms_in_all=counted(len(alarms), "alarm"),
        latest=latest.to_dict("records"),
        facts=facts,
    )


def _named_settings(table: pd.DataFrame, settings: Sequence[str]) -> pd.Series:
    rows = table[list(settings)].to_dict("records")
    return pd.Series([named_values(row) for row in rows], index=table.index, dtype=object)


def _moment(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.15g}" if isinstance(value, float) else f"{value:%Y-%m-%d %H:%M}"


def _duration(value: Any) -> str:
    if isinstance(value, float):
        return _number(value)
    if pd.isna(value):
        return ""
    days, hours, minutes, seconds = pd.Timedelta(value).components[:4]
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((i for i, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


def _number(value: float, digits: int = 4) -> str:
    return written(value, digits, between="\u202f")  # at which no line breaks


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.1f} %"


def _bar(share: float) -> str:
    """The width of a bar in CSS; 0 for NaN."""
    return "0%" if math.isnan(share) else f"{100 * min(1.0, max(0.0, share)):.1f}%"


_TEMPLATES.filters |= {"moment": _moment, "duration": _duration, "number": _number}
_TEMPLATES.filters |= {"percent": _percent, "bar": _bar}


def _draw_intervals(table: pd.DataFrame, figure: Figure) -> None:
    ax, at = figure.add_subplot(), range(len(table))
    label_rows(ax, shortened(list(table["name"]), _LONGEST_NAME))
    ax.hlines(at, table["lower"], table["upper"], color=COLOURS[0], linewidth=2)
    ax.plot(table["mean"], at, "o", color=COLOURS[0], markersize=5)
    finish(ax, "", "expected reward", "")
    ax.grid(axis="x", color=GRID, linewidth=0.6)


def _draw_rewards(rewarded: pd.DataFrame, alarms: pd.DataFrame, over_arms: bool, figure: Figure) -> None:
    ax = figure.add_subplot()
    named = over_arms and rewarded["arm"].nunique() <= _MOST_COLOURS  # else one colour, as there is no legend
    groups = rewarded.groupby("arm", sort=False) if named else [("", rewarded)]
    look = looks([str(name) for name in rewarded["arm"].value_counts().index] if named else [""])
    short = shortened([str(name) for name, _ in groups], _LONGEST_NAME)
    for label, (name, one) in zip(short, groups, strict=True):
        label = label.lstrip("_").replace("$", r"\$")
        ax.plot(one["time"], one["reward"], ".", color=look[str(name)][0], markersize=4, label=label)
    for time in alarms["time"][alarms["time"] >= rewarded["time"].min()]:
        ax.axvline(time, color=GREY, linestyle=":", linewidth=1.2, zorder=0)
    finish(ax, "", "time", "reward", legend=named)
    _in_dates(ax, rewarded["time"])


def _in_dates(ax: Axes, times: pd.Series) -> None:
    """Show short dates on the axis, in their own zone, if times are dates."""
    if isinstance(times.iloc[0], pd.Timestamp):
        in_dates(ax, minticks=2, maxticks=5, tz=times.iloc[0].tz)  # some spans have no unit for 3 or more


def _draw_plays(rewarded: pd.DataFrame, order: Sequence[str], figure: Figure) -> None:
    ax = figure.add_subplot()
    row = {name: i for i, name in enumerate(order)}
    plays = rewarded[rewarded["arm"].isin(row)]
    ax.plot(plays["time"], [row[name] for name in plays["arm"]], "|", color=COLOURS[0], markersize=7)
    label_rows(ax, shortened(order, _LONGEST_NAME))
    finish(ax, "", "time", "")
    _in_dates(ax, rewarded["time"])


def _starts(starts: Starts | None, order: Mapping[str, History]) -> dict[str, Any] | None:
    if starts is None or not starts.steps:
        return None
    regret, random = {name: starts.regret[name] for name in order if name in starts.regret}, starts.random
    height = 0.9 + 0.32 * len(regret)
    picture = _picture("starts", height, lambda figure: plot_starts(regret, random, figure.add_subplot()))
    return {"count": len(random), "steps": starts.steps, "picture": picture}


def _pulls(
    histories: Mapping[str, History], problem: Problem, compared: Comparison | None, ties: bool
) -> dict[str, dict[str, str]]:
    """Pictures of the arms pulled by the policies named in the advice and by ``auto``; empty without several arms.

    If rows have ``ties``, the best arm is taken from the smoothed table.
    """
    if problem.dim or problem.num_arms < 2:
        return {}
    horizon = next(iter(histories.values())).horizon
    if isinstance(problem, Replay) and ties:
        times = np.array([problem.time(step) for step in range(1, horizon + 1)])
        smoothed = best_smoothed(problem.table[:horizon].double().cpu().numpy(), times)
        best = torch.from_numpy(smoothed[1])[None]
    else:
        best = best_arms(problem, horizon)
    rows = slice(None) if bool((best == best[:1]).all()) else slice(1)  # else the first replicate alone
    if compared is None or compared.advice is None:
        lead = [str(summary(histories)["mean_cumulative_regret"].idxmin())]
    else:
        advice = compared.advice
        lead = [advice.taken or advice.policy, advice.policy]
        lead += [name for name in advice.tied if name in compared.stuck]
    shown = dict.fromkeys(name for name in (*lead, "auto") if name in histories)
    names = [str(name) for name in problem.arm_names or range(problem.num_arms)]
    height = 0.9 + 0.19 * min(_MOST_ARMS, problem.num_arms)

    def draw(history: History, figure: Figure) -> None:
        kept = {one: getattr(history, one)[rows] for one in PER_REPLICATE}
        plot_pulls(replace(history, **kept, trace={}), best[:1], figure.add_subplot(), names=names)

    drawn = {name: partial(draw, histories[name]) for name in shown}
    return {name: _picture(f"pulls{i}", height, each) for i, (name, each) in enumerate(drawn.items())}


def _beliefs(histories: Mapping[str, History]) -> dict[str, Any] | None:
    """The beliefs of the first policy that averages over models; None if there is none."""
    found = [name for name, h in histories.items() if all(belief in h.trace for belief in BELIEFS)]
    if not found:
        return None
    name, history = found[0], histories[found[0]]
    shown = {one: h for one, h in histories.items() if one == name or one not in found}  # keeps colours
    return {
        "name": name,
        "picture": _picture("beliefs", 6.0, lambda figure: plot_beliefs(shown, figure)),
        "bands": _bands({name: history}),
        "of_change": _said_of_change(history),
    }


def _bands(histories: Mapping[str, History]) -> str:
    """The number of replicates behind the bands of a picture; empty if it has no bands."""
    most = max(history.replicates for history in histories.values())
    seen = any(history.replicates > 1 and not history.identical for history in histories.values())
    return counted(most, "replicate") if seen else ""


def _said_of_change(history: History) -> str:
    """The rate of change over the last quarter, in words, and when models were restarted."""
    rates = history.trace["effective_rate"].double().reshape(-1, history.horizon)
    quarter = max(1, history.horizon // 4)
    rate = float(rates[:, -quarter:].median())
    half = _half_life(rate)
    resets = history.trace["resets"].double().reshape(-1, history.horizon)
    restarts, grown = round(float(resets[:, -1].median())), resets.diff() > 0
    restarted = ""
    if restarts:
        last = int(grown.any(0).nonzero().max()) + 2 if bool(grown.any()) else 1
        restarted = (
            f" Models that predicted poorly were restarted {counted(restarts, 'time')}, the last at step {last}; a "
            "restarted model has forgotten earlier rewards."
        )
    if half > history.horizon:
        always = _half_life(float(rates[:, quarter - 1 :].median(0).values.max())) > history.horizon
        kept = ": its first rewards still count" if always and not restarts else ""
        return (
            f"Over the last quarter of the steps it inferred that hardly anything changes{kept}.{restarted}"
        )
    return (
        f"Over the last quarter of the steps it inferred a rate of change of {rate:.2g} a step: the values of an arm "
        f"{counted(max(1, round(half)), 'step')} apart have a correlation of 1/2.{restarted}"
    )


def _half_life(rate: float) -> float:
    """The number of steps after which the correlation (1 - rate)^(n/2) of an arm's values is 1/2."""
    return math.inf if rate <= 0 else 2 * math.log(0.5) / math.log1p(-min(rate, 0.999))


def _rendered(template: str, **values: Any) -> str:
    for name, colours, grey in (("colours", COLOURS[:-1], GREY), ("colours_on_dark", ON_DARK, GREY_ON_DARK)):
        named = {f"c{i}": colour for i, colour in enumerate(colours)} | {"grey": grey}
        values[name] = " ".join(f"--{one}: {colour.lower()};" for one, colour in named.items())
    return _TEMPLATES.get_template(template).render(**values)


def _picture(
    name: str, height: float, draw: Callable[[Figure], object], *, titles: bool = False
) -> dict[str, str]:
    """SVG elements for a screen, ``wide``, and for a phone, ``narrow``, ``height`` inches high, with text as text,
    which matplotlib escapes, and colours as variables of the page.

    ``name`` is unique on the page. ``draw`` fills an empty figure; its titles are removed unless ``titles``.
    """
    made = {}
    for kind, width in (("wide", _SCREEN), ("narrow", _PHONE)):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        if len(figure.axes) == 1 and not titles:
            figure.axes[0].set_title("", loc="left")
        if figure.get_suptitle():
            figure.suptitle("")
        for ax in figure.axes:
            ax.patch.set_visible(False)
        file = io.StringIO()
        salted = mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{name}-{kind}"})
        with salted, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # browsers have it
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = file.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'<g id="[^"]*"', "<g", text)  # names of groups, the same in every figure
        text = re.sub(r' d="[^"]*"', lambda path: _DIGITS.sub(r"\1", path[0]), text)
        any_colour = re.compile("|".join(_CSS_COLOURS), re.IGNORECASE)
        made[kind] = any_colour.sub(lambda found: _CSS_COLOURS[found[0].lower()], text)
    return made

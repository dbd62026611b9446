"""The advice that a race ends with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from bandits_torch.cli.asked import Race
from bandits_torch.experiments.advice import Advice, Stuck, advise, stuck, with_whole_run
from bandits_torch.experiments.advice_text import advice_of_record, advice_of_replicates, snippet, too_short
from bandits_torch.experiments.starts import Starts, play_starts
from bandits_torch.history import History
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.replay import Replay


@dataclass(frozen=True)
class Told:
    """What a race tells in the end: sentences, maybe lines of Python, and the figures behind them."""

    sentences: list[str]
    python: str | None
    advice: Advice | None
    starts: Starts | None = None
    stuck: Mapping[str, Stuck] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Plain values; None for a number that there is not."""
        figures = {} if self.advice is None else dataclasses.asdict(self.advice)
        return {
            "sentences": self.sentences,
            "python": self.python,
            "stuck": {name: dataclasses.asdict(where) for name, where in self.stuck.items()},
        } | {key: _plain(value) for key, value in figures.items()}


def tell(
    asked: Race,
    problem: Problem,
    histories: Mapping[str, History],
    random: Tensor,
    build: Callable[[str, Problem, int], Policy],
) -> Told | None:
    """Compare the policies; None where fewer than two raced, or one replicate of a simulation.

    A record is played again, from several starts; replicates of a simulation are compared as they are.
    """
    if len(set(histories) - {"random"}) < 2:
        return None
    if not compares(histories, problem):
        units = next(iter(histories.values())).replicates
        if units == 1:
            return None
        regret = {name: history.regret.mean(-1) for name, history in histories.items()}
        advice = advise(regret, random.mean(-1).expand(units))
        return Told(advice_of_replicates(advice), None, advice)
    starts = play_starts(
        problem,
        {name: partial(build, name) for name in histories},
        asked.horizon,
        seed=asked.seed,
        progress=True,
    )
    if not starts.steps:
        own = [name for name in histories if name != "random"]
        least = min(own, key=lambda name: histories[name].mean_cumulative_regret)
        some = bool((random > 0).any())  # could be lost
        return Told(too_short(asked.horizon, least if some else None), None, None, starts)
    whole = advise(
        {name: starts.of_whole(history.regret) for name, history in histories.items()}, starts.random
    )
    bad = stuck(histories, random, starts.steps)
    found = with_whole_run(advise(starts.regret, starts.random), whole, bad)
    names = list(getattr(problem, "arm_names", ()))
    sentences = advice_of_record(found, whole, bad, starts.steps, asked.horizon, names)
    python = None
    if found.taken is not None and asked.problem == "replay" and asked.data is not None:
        python = snippet(found.taken, asked.data, asked.options["problem"], asked.options[found.taken])
    return Told(sentences, python, found, starts, bad)


def compares(policies: Iterable[str], problem: Problem) -> bool:
    """Whether these policies are played again from several starts, to be compared."""
    return isinstance(problem, Replay) and len(set(policies) - {"random"}) >= 2


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value

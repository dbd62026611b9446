"""Advice in words, and as lines of Python to begin with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bandits_torch.experiments.advice import FEWEST, Advice
from bandits_torch.experiments.starts import SHORTEST


def advice_of_record(advice: Advice | None, horizon: int, steps: int, longest: str) -> list[str]:
    """Sentences for a record that was played from several starts.

    Args:
        advice: from one unit a start; None where there was no start.
        horizon: rows of the record played in all.
        steps: from a start to the next.
        longest: the policy of the least regret when played once through all rows.
    """
    if advice is None or advice.verdict == "short":
        lines = [
            f"The record is too short to tell which policy is best: {horizon} rows were played, and {FEWEST} stretches "
            f"of {SHORTEST} are the least that can tell."
        ]
        return [*lines, f"{longest} lost least, which may be chance."]
    told_by = f"begun anew at {advice.units} starts of the record, {steps} rows each"
    lines = _sentences(advice, told_by)
    if longest != advice.policy and longest not in advice.tied:
        lines.append(
            f"Played once through all {horizon} rows {longest} lost least: what is best may depend on how long it runs."
        )
    return lines


def advice_of_replicates(advice: Advice) -> list[str]:
    """Sentences for a simulation, of which each replicate is a unit."""
    if advice.verdict == "short":
        return [f"{advice.units} replicates are too few to tell which policy is best: {FEWEST} is the least."]
    return _sentences(advice, f"over {advice.units} replicates")


def _sentences(advice: Advice, told_by: str) -> list[str]:
    level = f"{_percent(advice.of_random)} of what drawing arms at random loses"
    if math.isnan(advice.of_random):
        return ["Nothing could be lost: at every step one arm alone could be pulled, or all paid the same."]
    if advice.verdict == "random":
        return [
            f"None of the policies is surely better than drawing arms at random: {told_by}, the best of them, "
            f"{advice.policy}, lost {level}.",
            "What is best in a row says little about the next rows, or the record is too short to learn it.",
        ]
    if advice.verdict == "tie":
        lines = [
            f"No policy is surely the best: {_and(advice.tied)} cannot be told apart. {told_by.capitalize()}, "
            f"{advice.policy} lost {level}{_beside(advice)}."
        ]
        return [*lines, "Of these auto needs to be told least."] if "auto" in advice.tied else lines
    certain = "is sure" if advice.verdict == "sure" else "is likely, not sure"
    of = f" of the {advice.rivals}" if advice.rivals > 1 else ", better than chance,"
    lead = f"Take {advice.policy}: {told_by}, it lost {level}"
    return [f"{lead}{_beside(advice)}. That it is the best{of} {certain}: {_confidence(advice.confidence)}."]


def _beside(advice: Advice) -> str:
    middle, low, high = advice.less
    if advice.next is None or math.isnan(middle):
        return ""
    said = f"{_percent(middle)} less than" if _percent(middle) != _percent(0.0) else "as much as"
    if math.isnan(low) or low == high:
        return f", {said} {advice.next}"
    ends = f"{_percent(low)}" if low >= 0 else f"{_percent(-low)} more"
    return f", {said} {advice.next} (90 % interval: {ends} to {_percent(high)}{' less' if low < 0 else ''})"


def snippet(policy: str, data: str, problem_options: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Python that builds the policy, lets it learn from the record, and asks it in a live system."""
    told = "".join(f", {key}={value!r}" for key, value in problem_options.items())
    own = "".join(f", {key}={value!r}" for key, value in options.items())
    return "\n".join(
        [
            "from bandits_torch import AskTell, make, recipes, run",
            "",
            f'problem = make("replay", data={data!r}{told})',
            f'policy = recipes.build("{policy}", problem, replicates=1, horizon=problem.horizon{own})',
            "run(policy, problem, problem.horizon)                          # learns from the record",
            "live = AskTell(policy)                                         # keep it with save_policy, load_policy",
            "question = live.ask(problem.time(problem.horizon) + 1)         # one usual gap between rows later",
            "arm = problem.arm_names[int(question.arm)]                     # pull it, and when its reward is known:",
            "live.tell(question.id, reward)",
        ]
    )


def _percent(share: float) -> str:
    digits = 1 if abs(share) < 0.0995 else 0
    return f"{100 * share:.{digits}f} %"


def _confidence(confidence: float) -> str:
    return "confidence above 99 %" if confidence > 0.99 else f"confidence {math.floor(100 * confidence)} %"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

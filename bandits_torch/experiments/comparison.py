"""How the policies of a race compare: in figures, and in sentences for whoever must choose one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from bandits_torch.experiments.advice import FEWEST, Advice, Stuck, advise, stuck, with_whole_run
from bandits_torch.experiments.earned import Earned
from bandits_torch.experiments.starts import SHORTEST, Starts, play_starts
from bandits_torch.history import History
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.diagnosis import Diagnosis
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.replay import Replay

_NOTHING = "Nothing could be lost: at every step one arm alone could be pulled, or all paid the same."


_COUNTED = "auto,random,discounted_ts,glr_kl_ucb,sliding_window_ucb,epsilon_greedy,tv_gp_ucb,et_gp_ucb"
_BINARY = _COUNTED.replace("random,", "random,log_odds_ucb,")
_RELATED = "auto,random,igp_ucb,gp_ts,r_gp_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"
_ALONE = "auto,random,discounted_ts,glr_kl_ucb,sliding_window_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"


def policies_for(found: Diagnosis) -> tuple[list[str], str]:
    """The policies that fit a table, and the reasons.

    Rewards of 0 and 1, and counts, add policies that model them as such: Thompson sampling with a Beta distribution and
    bounds by Kullback-Leibler divergence, and for 0 and 1 bounds on the log-odds. Unrelated arms add policies that
    treat each arm by itself.
    """
    if found.values in ("0/1", "counts"):
        names = _BINARY if found.values == "0/1" else _COUNTED
        return names.split(","), f"As rewards are {found.values}"
    if found.shared is False:
        return _ALONE.split(","), "As nothing is clear that arms share"
    return _RELATED.split(","), "As rewards are numbers"


def unseen_cycles(problem: Problem, found: Diagnosis | None) -> list[str]:
    """A line if the clearest common cycle of a table cannot be seen in the rows that policies learn from."""
    if found is None or not found.periods or problem.knowledge.cycles is not None:
        return []
    steps = f"{found.periods[0].length / found.gap:.3g}"
    return [
        f"a cycle of {steps} steps was not found in the rows learned from, so it counts as change there; --option "
        f"problem.cycles={steps} tells auto"
    ]


@dataclass(frozen=True)
class Comparison:
    """The result of comparing a race's policies.

    Attributes:
        sentences: the advice, the most important sentence first.
        advice: the figures behind it; None if the record is too short.
        starts: the plays from several starts; None for replicates of a simulation, which are compared as they are.
        stuck: the policies that were stuck when they played the whole record.
    """

    sentences: list[str]
    advice: Advice | None
    starts: Starts | None = None
    stuck: Mapping[str, Stuck] = field(default_factory=dict)

    @property
    def taken(self) -> str | None:
        """The policy advised; None if none is."""
        return None if self.advice is None else self.advice.taken

    def record(self) -> dict[str, Any]:
        """Plain values for JSON; None for a missing number."""
        figures = {} if self.advice is None else dataclasses.asdict(self.advice)
        where = {name: dataclasses.asdict(one) for name, one in self.stuck.items()}
        plain = {key: _plain(value) for key, value in figures.items()}
        return {"sentences": self.sentences, "stuck": where} | plain


def is_compared_from_starts(policies: Iterable[str], problem: Problem) -> bool:
    """Whether a race of these policies ends with plays from several starts of a record."""
    return isinstance(problem, Replay) and len(set(policies) - {"random"}) >= 2


def compare(
    problem: Problem,
    histories: Mapping[str, History],
    random: Tensor,
    build: Callable[[str, Problem, int], Policy],
    seed: int,
    earned: Earned | None = None,
) -> Comparison | None:
    """Compare the policies of a race; None if fewer than two raced, or for a single replicate of a simulation.

    A record is played again, from several starts; replicates of a simulation are compared as they are.

    Args:
        problem: the problem that was played.
        histories: by policy; ``random`` is not compared.
        random: (R, T) expected regret of drawing arms at random.
        build: makes the policy of a name for a problem and its number of steps.
        seed: of the noise of what is played again.
        earned: what the policies earned; None: nothing is said of it.
    """
    raced = [name for name in histories if name != "random"]
    first = next(iter(histories.values()))
    if len(raced) < 2:
        return None
    if not is_compared_from_starts(raced, problem):
        if first.replicates == 1:
            return None
        regret = {name: history.regret.mean(-1) for name, history in histories.items()}
        advice = advise(regret, random.mean(-1).expand(first.replicates))
        return Comparison([*advice_of_replicates(advice), *_of_earned(advice, earned)], advice)
    horizon = first.horizon
    again = {name: partial(build, name) for name in histories}
    starts = play_starts(problem, again, horizon, seed=seed, progress=True)
    if not starts.steps:
        least = min(raced, key=lambda name: histories[name].mean_cumulative_regret)
        could_lose = bool((random > 0).any())
        said = _too_short(horizon, least if could_lose else None)
        told = [earned.sentence(least)] if earned is not None and could_lose else []
        return Comparison([*said, *told], None, starts)
    whole = advise(
        {name: starts.of_whole(history.regret) for name, history in histories.items()}, starts.random
    )
    bad = stuck(histories, random, starts.steps)
    ahead = () if earned is None else earned.ahead()
    counted = earned is not None and earned.noun == "conversions"
    advice = with_whole_run(
        advise(starts.regret, starts.random), whole, bad, ahead, preferred=None if counted else "auto"
    )
    names = list(getattr(problem, "arm_names", ()))
    said = advice_of_record(advice, whole, bad, starts.steps, horizon, names)
    chance = None
    if advice.verdict == "random":  # the best of the starts says nothing of the long play
        chance = "auto" if "auto" in raced else whole.policy
    return Comparison([*said, *_of_earned(advice, earned, chance)], advice, starts, bad)


def _of_earned(advice: Advice, earned: Earned | None, policy: str | None = None) -> list[str]:
    """What this policy, or the one advised, earned; empty if nothing could be lost."""
    if earned is None or math.isnan(advice.of_random):
        return []
    return [earned.sentence(policy or advice.taken or advice.policy)]


def advice_of_record(
    advice: Advice,
    whole: Advice,
    stuck: Mapping[str, Stuck],
    steps: int,
    horizon: int,
    arm_names: Sequence[str],
) -> list[str]:
    """Sentences for a record that was played once from its beginning, and from several starts.

    Args:
        advice: with one unit per start, after the whole run (``with_whole_run``).
        whole: the comparison on the same stretches of the play from the beginning.
        stuck: policies that were stuck in it.
        steps: number from one start to the next.
        horizon: number of rows played in all.
        arm_names: of the record.
    """
    if advice.verdict == "short":
        return _too_short(horizon, None if math.isnan(whole.of_random) else whole.policy)
    basis = f"begun anew at {advice.units} starts of the record, {steps} rows each"
    once = f"played once through all {horizon} rows"
    lost = "of what drawing arms at random loses"
    lines = _sentences(advice, basis)
    if advice.verdict == "split":
        fell = "was stuck" if advice.policy in stuck else f"is surely not the best: {whole.policy} lost less"
        lines = [
            f"Short plays and the long one disagree: {basis}, {advice.policy} lost least, "
            f"{_percent(advice.of_random)} {lost}{_beside(advice)}; but {once} it {fell}."
        ]
    if advice.verdict == "late":
        lines = [
            f"Only the long play tells: {basis}, no policy is surely better than drawing arms at random; "
            f"{once}, {whole.policy} lost {_percent(whole.of_random)} {lost}."
        ]
    for name in (one for one in advice.tied if one in stuck):
        where = stuck[name]
        lines.append(
            f"{name} is not to be taken: {once} it pulled {arm_names[where.arm]!r} alone from step {where.first} to "
            f"{where.last}, and for {steps} of these steps or more lost over twice what {where.rival} did."
        )
    if advice.verdict in ("sure", "likely", "random"):
        differs = whole.policy not in advice.tied
        late = f"P{once[1:]} {whole.policy} lost least: what is best may depend on how long it runs."
        return [*lines, late] if differs else lines
    if advice.taken is None:
        return [*lines, "None of them is advised."]
    least = f"lost least{'' if advice.taken == whole.policy else ' of those left'}, {once}"
    take = "Of these take" if advice.verdict == "tie" and advice.taken in advice.tied else "Take"
    return [
        *lines,
        f"{take} {advice.taken}, which {'needs the least prior knowledge' if advice.taken == 'auto' else least}.",
    ]


def _too_short(horizon: int, least: str | None) -> list[str]:
    """Sentences for a record of too few rows, with the policy that lost least (None: nothing could be lost)."""
    if least is None:
        return [_NOTHING]
    return [
        f"The record is too short to tell which policy is best: {horizon} rows were played, and {FEWEST} stretches "
        f"of {SHORTEST} are the least that can tell.",
        f"{least} lost least, which may be chance.",
    ]


def advice_of_replicates(advice: Advice) -> list[str]:
    """Sentences for a simulation, where each replicate is a unit."""
    if advice.verdict == "short":
        return [f"{advice.units} replicates are too few to tell which policy is best: {FEWEST} is the least."]
    lines = _sentences(advice, f"over {advice.units} replicates")
    tied = advice.verdict == "tie" and "auto" in advice.tied
    return [*lines, "Of these auto needs the least prior knowledge."] if tied else lines


def _sentences(advice: Advice, basis: str) -> list[str]:
    level = f"{_percent(advice.of_random)} of what drawing arms at random loses"
    if math.isnan(advice.of_random):
        return [_NOTHING]
    if advice.verdict == "random":
        return [
            f"None of the policies is surely better than drawing arms at random: {basis}, the best of them, "
            f"{advice.policy}, lost {level}.",
            "What is best in a row says little about the next rows, or the record is too short to learn it.",
        ]
    if advice.verdict == "tie":
        return [
            f"No policy is surely the best: {_and(advice.tied)} cannot be told apart. {basis.capitalize()}, "
            f"{advice.policy} lost {level}{_beside(advice)}."
        ]
    certain = "is sure" if advice.verdict == "sure" else "is likely, not sure"
    of = f" of the {advice.rivals}" if advice.rivals > 1 else ", better than chance,"
    lead = f"Take {advice.policy}: {basis}, it lost {level}"
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
    of_problem, of_policy = (
        "".join(f", {key}={value!r}" for key, value in given.items()) for given in (problem_options, options)
    )
    return "\n".join(
        [
            "from bandits_torch import AskTell, make, recipes, run",
            "",
            f'problem = make("replay", data={data!r}{of_problem})',
            f'policy = recipes.build("{policy}", problem, replicates=1, horizon=problem.horizon{of_policy})',
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


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value

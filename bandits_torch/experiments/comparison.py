"""Comparison of the policies of a race: which one to take, and how certain that is, in numbers and in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.earned import Earned
from bandits_torch.experiments.sweep import SHORTEST, Starts, play_starts
from bandits_torch.history import History
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.diagnosis import Diagnosis
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.replay import Replay

FEWEST = 5  # units; with fewer no lead can be sure, because 2^-4 > 0.05
SURE, LIKELY = 0.95, 0.8
_INTERVAL = 0.9
_ALL_PATTERNS = 12  # up to this many units, every pattern of signs is tried
_SOME_PATTERNS = 4096
_CLEARLY_LESS = (
    0.9  # times random's regret; required as well as the test, which one record's replays pass too easily
)
# A policy that stays at one arm and loses more than these multiples of random's and a rival's regret is stuck.
_TIMES_RANDOM, _TIMES_RIVAL = 0.6, 2.0


@dataclass(frozen=True)
class Advice:
    """The leading policy, and how certain its lead is.

    Attributes:
        verdict: ``"sure"`` (confidence 95 % or more), ``"likely"`` (80 % or more), ``"tie"`` (less), ``"random"``
            (no policy is surely better than drawing arms at random), ``"short"`` (too few units to tell), or, if the
            play of the whole record disagrees, ``"split"`` or ``"late"`` (``with_whole_run``).
        policy: the policy with the least mean regret.
        next: the policy with the second least; None if only one was compared.
        confidence: in [0, 1], that no other policy has less regret than ``policy``.
        less: by what share of ``next``'s mean regret ``policy`` has less regret, and the ends of the 90 % interval.
            Unknown numbers are NaN.
        of_random: regret of ``policy`` as a share of the regret of drawing arms at random.
        tied: ``policy``, then the policies that are not surely worse, in order of regret.
        rivals: number of policies compared, ``policy`` included.
        units: K, the number of units.
        taken: the policy advised; None if no policy is.
    """

    verdict: str
    policy: str
    next: str | None
    confidence: float
    less: tuple[float, float, float]
    of_random: float
    tied: tuple[str, ...]
    rivals: int
    units: int
    taken: str | None = None


@dataclass(frozen=True)
class Stuck:
    """How a policy was ``stuck``: it pulled only ``arm`` from step ``first`` to ``last``, while ``rival`` lost less."""

    arm: int
    first: int
    last: int
    rival: str


def advise(regret: Mapping[str, Tensor], random: Tensor) -> Advice:
    """Compare policies by their regret on the same units: stretches of a record, or replicates of a simulation.

    Let A be the policy with the least mean regret. It is the best with confidence 1 - max_c p_c, where c runs over all
    other policies and drawing arms at random. p_c is a p-value: the probability that some policy would appear as far
    ahead of c as A does, if c were as good as all of them. Let D_kj be the regret of c minus the regret of j on unit k,
    t_j = mean(D_j) / (standard deviation(D_j) / sqrt(K)), and s a sign for each unit. Then

        p_c = share of s in {-1, 1}^K with max_j t_j(s_1 D_1j, ..., s_K D_Kj) >= t_A,

    over all patterns of signs for K <= 12, and over 4096 drawn patterns for K > 12. This is exact if units are
    independent, and differences are symmetric about 0 for equally good policies. If units depend on each other, the
    confidence is too high: use long units.

    If a policy seldom loses much, differences are skewed. So p_c is at least the share of s with
    t_A(s_1 D_1A, ..., s_K D_KA) >= h_A, where with the skewness g of D_A and w = t_A / sqrt(K)

        h_A = sqrt(K) (w + g w^2 / 3 + g^2 w^3 / 27 + g / (6 K)).

    No test can detect a loss so rare that no unit shows it: ``docs/advice.md`` says how often the advice is then wrong.

    Args:
        regret: by policy, (K,) each: mean regret per step on each unit. A policy called ``random`` is left out unless
            it is the only one, because the argument ``random`` is its regret without noise.
        random: (K,) expected regret of drawing arms at random.

    Cost: O(min(2^K, 4096) K M^2) for M policies. Source: sign-flip tests (Fisher 1935), their maximum over many
    comparisons (Westfall & Young 1993), comparisons with the best (Hsu 1981), and the correction of t for skewness
    (Hall 1992). The interval inverts a sign-flip test for a ratio (Fieller 1954; the ratios over subsets of units are
    typical values as in Hartigan 1969). Raises ValueError without a policy, and for regrets that are empty, have
    different lengths or are not finite.
    """
    validation.by_name("regret", regret, "policy's regret")
    raced = {name: value for name, value in regret.items() if name != "random"} or dict(regret)
    size = validation.tensor("regret of random", random).numel()
    for name, value in {**raced, "random": random}.items():
        validation.finite_tensor(f"regret of {name}", value)
        validation.shape_is(f"regret of {name}", value, value.shape == (size,) != (0,), f"({size},)")
    raced, random = {name: value.double() for name, value in raced.items()}, random.double()
    names = sorted(raced, key=lambda name: float(raced[name].mean()))
    table = torch.stack([*(raced[name] for name in names), random], -1)  # least regret first
    signs, others = _patterns(len(table)), range(1, table.shape[1])
    doubt = torch.ones(len(others))
    if len(table) > 1:
        doubt = torch.stack([_doubt(table, c, signs) for c in others])
    tied = (names[0], *(name for name, p in zip(names[1:], doubt, strict=False) if p > 1 - SURE))
    confidence = 1 - float(doubt.max())
    if len(table) < FEWEST:
        verdict = "short"
    elif float(doubt[-1]) > 1 - SURE:
        verdict = "random"
    else:
        verdict = "sure" if confidence >= SURE else "likely" if confidence >= LIKELY else "tie"
    leader, following = names[0], names[1] if len(names) > 1 else None
    return Advice(
        verdict,
        leader,
        following,
        confidence,
        (math.nan,) * 3 if following is None else _less(raced[leader], raced[following]),
        float(raced[leader].mean() / random.mean()),
        tied,
        len(names),
        len(table),
        leader if verdict in ("sure", "likely") else None,
    )


def stuck(histories: Mapping[str, History], random: Tensor, steps: int) -> dict[str, Stuck]:
    """The policies that were stuck at one arm when they played a record once, each with the longest such stretch.

    A policy is stuck if it pulls a single arm for ``steps`` steps or more, and over ``steps`` of them in a row loses
    more than 60 % of what drawing arms at random loses and more than twice what another policy loses. If there are
    several replicates, half of them must be stuck. A policy that stays at a good arm is not stuck, and neither is one
    whose rivals all lost as much.

    ``histories`` and ``random`` as for ``compare``, over arms; ``steps``: number of steps between two ``Starts``.
    """
    regret = {name: history.regret for name, history in histories.items() if name != "random"}
    mean = {name: _moving_sum(values.mean(0), steps) for name, values in regret.items()}
    at_random, found = _moving_sum(random.mean(0), steps), {}
    for name, history in histories.items():
        rivals = [rival for rival in mean if rival != name]
        if name == "random" or not rivals:
            continue
        least, which = torch.stack([mean[rival] for rival in rivals]).min(0)
        lost = _moving_sum(regret[name], steps)
        turned = (history.arms.diff() != 0).cumsum(-1)
        start = turned.new_zeros(len(turned), 1)
        run = torch.cat([start, turned], -1)  # (S, T), the number of the run of one arm
        alone = run[:, : lost.shape[-1]] == run[:, steps - 1 :]
        where = alone & (lost > _TIMES_RANDOM * at_random) & (lost > _TIMES_RIVAL * least)
        bad = where.any(-1).nonzero().squeeze(-1).tolist()
        if 2 * len(bad) < len(where) or not bad:
            continue
        lengths = {s: run[s].bincount()[run[s, : lost.shape[-1]]] * where[s] for s in bad}
        s = max(bad, key=lambda one: int(lengths[one].max()))
        t = int(lengths[s].argmax())
        first = int((run[s] == run[s, t]).nonzero()[0]) + 1
        last = first + int(lengths[s][t]) - 1
        found[name] = Stuck(int(history.arms[s, t]), first, last, rivals[int(which[t])])
    return found


def _moving_sum(values: Tensor, steps: int) -> Tensor:
    """Sums over ``steps`` consecutive steps, (..., T - steps + 1), from (..., T)."""
    total = torch.nn.functional.pad(values.double().cumsum(-1), (1, 0))
    return total[..., steps:] - total[..., :-steps]


def with_whole_run(
    advice: Advice,
    whole: Advice,
    stuck: Collection[str],
    ahead: Collection[str] = (),
    *,
    preferred: str | None = "auto",
) -> Advice:
    """The advice from several short plays, revised by one play of the whole record.

    A policy that was stuck in the long play, or surely worse there than another, is excluded. A leader that is not
    excluded, and at least likely the best, is advised. There are three other cases. The best policies left cannot be
    told apart (``"tie"``); or the leader is excluded (``"split"``); or only the long play shows that one is better than
    chance (``"late"``: it is surely better and lost less than nine tenths of what chance lost, or surely earned more).
    Then ``preferred`` is advised if it is among the best left, otherwise the one that lost least in the long play.

    Args:
        advice: the advice from the short plays.
        whole: the comparison on the same stretches of the long play.
        stuck: policies that were stuck in the long play (``stuck``).
        ahead: policies that surely earned more than chance in the long play (``Earned.ahead``).
        preferred: the policy to advise among equals, by default ``auto``, which needs the least prior knowledge; None
            for rewards of 0 and 1 and counts, where other policies need no more.
    """
    clear = whole.verdict != "random" and whole.of_random < _CLEARLY_LESS
    late = advice.verdict == "random" and (clear or whole.policy in ahead)
    if advice.verdict == "short" or (advice.verdict == "random" and not late):
        return advice
    sound = [name for name in whole.tied if name not in stuck]
    if advice.taken in sound:
        return advice
    among = [name for name in sound if (name in ahead if late else name in advice.tied)] or sound
    taken = preferred if preferred in among else next(iter(among), None)
    verdict = "late" if late else "tie" if advice.taken is None else "split"
    return replace(advice, verdict=verdict, taken=taken)


def _doubt(table: Tensor, c: int, signs: Tensor) -> Tensor:
    """p_c for column c of the regrets (K, M + 1), leader first; ``signs``: (patterns, K), the first pattern all +1."""
    difference = table[:, c : c + 1] - table[:, [j for j in range(table.shape[1]) if j != c]]
    K, size = len(difference), difference.abs().amax(0)
    difference = difference / size.where(size > 0, 1.0)  # squares must not underflow
    mean = signs @ difference / K
    spread = (difference.square().sum(0) / K - mean.square()).clamp_min(0).mul(K / (K - 1)).sqrt()
    # Without a spread t is infinite: the floor keeps it finite. Without any difference there is no lead.
    t = torch.where(size > 0, math.sqrt(K) * mean / spread.clamp_min(1e-12), 0.0)
    leader = t[0, 0]
    of_all = (t.amax(-1) >= leader - 1e-9 * leader.abs()).double().mean()
    w = leader / math.sqrt(K)
    if leader != 0 and w.abs() <= 1e6:  # differences that are equal, but for rounding, have no skewness
        centred = difference[:, 0] - difference[:, 0].mean()
        g = (centred / centred.square().mean().sqrt()).pow(3).mean()
        leader = math.sqrt(K) * (w + g * w.square() / 3 + g.square() * w.pow(3) / 27 + g / (6 * K))
    of_pair = (t[:, 0] >= leader - 1e-9 * leader.abs()).double().mean()
    return torch.maximum(of_all, of_pair)


def _patterns(units: int) -> Tensor:
    """Signs, (patterns, K), the first pattern all +1."""
    if units <= _ALL_PATTERNS:
        bits = torch.arange(2**units).unsqueeze(-1) >> torch.arange(units)
        return 1.0 - 2.0 * (bits & 1).double()
    drawn = torch.randint(2, (_SOME_PATTERNS, units), generator=torch.Generator().manual_seed(0))
    drawn[0] = 0
    return 1.0 - 2.0 * drawn.double()


def _less(leader: Tensor, other: Tensor) -> tuple[float, float, float]:
    """How much less regret the leader has, as a share of the other's regret, with a 90 % interval; NaN if unknown.

    The interval is 1 - rho for the ratios rho of mean regrets that a sign-flip test of mean(leader_k - rho other_k) = 0
    does not reject. Flipping the signs of a set of units leaves the distance of that mean from 0 unchanged at two
    values of rho: the ratios of the sums over the set and over the other units. So the ends are quantiles of these
    ratios over all patterns.
    """
    total = float(other.sum())
    if total <= 0 or float(other.min()) < 0:
        return (math.nan,) * 3
    middle = 1 - float(leader.sum()) / total
    if len(leader) < FEWEST:
        return middle, math.nan, math.nan
    flipped = (_patterns(len(leader)) < 0).double()
    ratios = torch.stack([(units @ leader) / (units @ other) for units in (flipped, 1 - flipped)])
    bounding = ~ratios.isnan().any(0)  # the other patterns, such as all signs +, reject no rho
    low = torch.where(bounding, ratios.amin(0), -torch.inf).quantile(1 - _INTERVAL)
    high = torch.where(bounding, ratios.amax(0), torch.inf).quantile(_INTERVAL)
    if not math.isfinite(low) or not math.isfinite(high):
        return middle, math.nan, math.nan
    return middle, 1 - float(high), 1 - float(low)


_NO_LOSS = "Nothing could be lost: at every step only one arm was available, or all arms paid the same."
_FOR_COUNTS = "auto,random,discounted_ts,glr_kl_ucb,sliding_window_ucb,epsilon_greedy,tv_gp_ucb,et_gp_ucb"
_FOR_BINARY = _FOR_COUNTS.replace("random,", "random,log_odds_ucb,")
_FOR_CORRELATED = "auto,random,igp_ucb,gp_ts,r_gp_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"
_FOR_SEPARATE = "auto,random,discounted_ts,glr_kl_ucb,sliding_window_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"


def policies_for(found: Diagnosis) -> tuple[list[str], str]:
    """The policies that fit a table, and the reason in words.

    For rewards of 0 and 1, and for counts, there are policies that model them as such: Thompson sampling with a Beta
    distribution, and bounds from the Kullback-Leibler divergence; for 0 and 1 also bounds on the log-odds. If arms are
    not clearly correlated, policies that treat each arm separately replace some of the others.
    """
    if found.values in ("0/1", "counts"):
        names = _FOR_BINARY if found.values == "0/1" else _FOR_COUNTS
        return names.split(","), f"Because rewards are {found.values}"
    if found.shared is False:
        return _FOR_SEPARATE.split(","), "Because arms are not clearly correlated"
    return _FOR_CORRELATED.split(","), "Because rewards are numbers"


def unseen_cycles(problem: Problem, found: Diagnosis | None) -> list[str]:
    """A line if the arms clearly share a cycle, but none was found in the rows that policies learn from first."""
    if found is None or not found.periods or problem.knowledge.cycles is not None:
        return []
    steps = f"{found.periods[0].rounded(found.rows * found.gap, found.gap):.6g}"
    return [
        f"the rows that are not played show no cycle, so the cycle of {steps} steps counts as change; --option "
        f"problem.cycles={steps} passes it to auto"
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
        """The policy advised; None if no policy is."""
        return None if self.advice is None else self.advice.taken

    def record(self) -> dict[str, Any]:
        """Plain values for JSON; None for an unknown number."""
        figures = {} if self.advice is None else asdict(self.advice)
        where = {name: asdict(one) for name, one in self.stuck.items()}
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
    capture: bool | int | str = False,
) -> Comparison | None:
    """Compare the policies of a race; None if fewer than two raced, or for a single replicate of a simulation.

    A record is played again, from several starts; replicates of a simulation are compared as they are.

    Args:
        problem: the problem that was played.
        histories: by policy; ``random`` is not compared.
        random: (R, T) expected regret of drawing arms at random.
        build: builds a policy from its name, a problem and the number of steps.
        seed: seed of the noise in the plays from several starts.
        earned: what the policies earned; None: no sentence about it.
        capture: as for ``run``, in the plays from several starts.
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
        return Comparison([*advice_of_replicates(advice), *_earned_sentence(advice, earned)], advice)
    horizon = first.horizon
    again = {name: partial(build, name) for name in histories}
    starts = play_starts(problem, again, horizon, seed=seed, progress=True, capture=capture)
    if not starts.steps:
        least = min(raced, key=lambda name: histories[name].mean_cumulative_regret)
        could_lose = bool((random > 0).any())
        said = _too_short(horizon, least if could_lose else None)
        more = [earned.sentence(least)] if earned is not None and could_lose else []
        return Comparison([*said, *more], None, starts)
    by_stretch = {name: starts.of_whole(history.regret) for name, history in histories.items()}
    whole = advise(by_stretch, starts.random)
    bad = stuck(histories, random, starts.steps)
    ahead = () if earned is None else earned.ahead()
    preferred = None if earned is not None and earned.noun != "reward" else "auto"
    advice = advise(starts.regret, starts.random)
    advice = with_whole_run(advice, whole, bad, ahead, preferred=preferred)
    said = advice_of_record(advice, whole, bad, starts.steps, horizon, problem.arm_names)
    leader = None
    if advice.verdict in ("random", "short"):  # which policy leads in the short plays is then chance
        leader = "auto" if advice.verdict == "random" and "auto" in raced else whole.policy
    return Comparison([*said, *_earned_sentence(advice, earned, leader)], advice, starts, bad)


def _earned_sentence(advice: Advice, earned: Earned | None, policy: str | None = None) -> list[str]:
    """What ``policy`` earned, by default the one advised, or else the leader; empty if nothing could be lost."""
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
    """Sentences for a record of ``horizon`` rows, played from several starts, ``steps`` rows each, and once from its
    beginning. ``advice`` is what ``with_whole_run`` returned for ``whole`` and ``stuck``."""
    if advice.verdict == "short":
        return _too_short(horizon, None if math.isnan(whole.of_random) else whole.policy)
    basis = f"over {advice.units} plays from different starts of the record, {steps} rows each"
    once = f"played once through all {horizon} rows"
    lost = "of what drawing arms at random loses"
    lines = _sentences(advice, basis)
    if advice.verdict == "split":
        fell = "was stuck" if advice.policy in stuck else f"is surely not the best: {whole.policy} lost less"
        lines = [
            f"Short plays and the long one disagree: {basis}, {advice.policy} lost least, "
            f"{_percent(advice.of_random)} {lost}{_against_next(advice)}; but {once} it {fell}."
        ]
    if advice.verdict == "late":
        lines = [
            f"Only the long play decides: {basis}, no policy is surely better than drawing arms at random; "
            f"{once}, {whole.policy} lost {_percent(whole.of_random)} {lost}."
        ]
    for name in (one for one in advice.tied if one in stuck):
        where = stuck[name]
        lines.append(
            f"Do not take {name}: {once}, it pulled only {arm_names[where.arm]!r} from step {where.first} to "
            f"{where.last}, and over {steps} of these steps in a row lost more than twice what {where.rival} did."
        )
    if advice.verdict in ("sure", "likely", "random"):
        differs = whole.policy not in advice.tied
        late = f"P{once[1:]}, {whole.policy} lost least: which policy is best may depend on how long it runs."
        return [*lines, late] if differs else lines
    if advice.taken is None:
        return [*lines, "No policy is advised."]
    why = f"lost least{'' if advice.taken == whole.policy else ' of those left'}, {once}"
    why = "needs the least prior knowledge" if advice.taken == "auto" else why
    take = "Of these, take" if advice.verdict == "tie" and advice.taken in advice.tied else "Take"
    return [*lines, f"{take} {advice.taken}, which {why}."]


def _too_short(horizon: int, least: str | None) -> list[str]:
    """Sentences for a record of too few rows, with the policy that lost least (None: nothing could be lost)."""
    if least is None:
        return [_NO_LOSS]
    return [
        f"The record is too short to tell which policy is best: {horizon} rows were played, but at least {FEWEST} "
        f"stretches of {SHORTEST} are needed.",
        f"{least} lost least, which may be chance.",
    ]


def advice_of_replicates(advice: Advice) -> list[str]:
    """Sentences for a simulation, where each replicate is a unit."""
    if advice.verdict == "short":
        return [
            f"{advice.units} replicates are too few to tell which policy is best: at least {FEWEST} are needed."
        ]
    lines = _sentences(advice, f"over {advice.units} replicates")
    tied = advice.verdict == "tie" and "auto" in advice.tied
    return [*lines, "Of these, auto needs the least prior knowledge."] if tied else lines


def _sentences(advice: Advice, basis: str) -> list[str]:
    level = f"{_percent(advice.of_random)} of what drawing arms at random loses"
    if math.isnan(advice.of_random):
        return [_NO_LOSS]
    if advice.verdict == "random":
        return [
            f"None of the policies is surely better than drawing arms at random: {basis}, the best of them, "
            f"{advice.policy}, lost {level}.",
            "The best arm of one row says little about the next rows, or the record is too short to learn it.",
        ]
    if advice.verdict == "tie":
        *first, last = advice.tied
        alike = f"{', '.join(first)} and {last}" if first else last
        return [
            f"No policy is surely the best: {alike} cannot be told apart. {basis.capitalize()}, "
            f"{advice.policy} lost {level}{_against_next(advice)}."
        ]
    certain = "surely" if advice.verdict == "sure" else "likely, but not surely,"
    rank = f"the best of the {advice.rivals}" if advice.rivals > 1 else "better than chance"
    percent = f"{math.floor(100 * advice.confidence)} %" if advice.confidence <= 0.99 else "above 99 %"
    lead = f"Take {advice.policy}: {basis}, it lost {level}"
    return [
        f"{lead}{_against_next(advice)}. It is {certain} {rank}: confidence {percent}. "
        "This does not account for rare heavy losses that none of these plays showed."
    ]


def _against_next(advice: Advice) -> str:
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
    given = (problem_options, options)
    of_problem, of_policy = ("".join(f", {key}={value!r}" for key, value in one.items()) for one in given)
    return f"""\
from bandits_torch import AskTell, make, recipes, run

problem = make("replay", data={data!r}{of_problem})
policy = recipes.build("{policy}", problem, replicates=1, horizon=problem.horizon{of_policy})
run(policy, problem, problem.horizon)                          # learns from the record
live = AskTell(policy)                                         # save_policy and load_policy keep it in a file
question = live.ask(problem.time(problem.horizon) + 1)         # one usual gap between rows later
arm = problem.arm_names[int(question.arm)]                     # pull it, and when its reward is known:
live.tell(question.id, reward)"""


def _percent(share: float) -> str:
    digits = 1 if abs(share) < 0.0995 else 0
    return f"{100 * share:.{digits}f} %"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value

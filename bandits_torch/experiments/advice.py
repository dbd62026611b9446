"""Which policy to take, by how much it is ahead, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.history import History

FEWEST = 5  # units; of fewer nothing is ever sure, as 2^-4 > 0.05
SURE, LIKELY = 0.95, 0.8
_INTERVAL = 0.9
_ALL_PATTERNS = 12  # units of which every pattern of signs is tried
_SOME_PATTERNS = 4096
_CLEARLY = 0.9  # of random's regret, beside a test that two plays of the same record pass too easily
_OF_RANDOM, _OF_RIVAL = 0.6, 2.0  # shares of their regret beyond which a policy at one arm is stuck


@dataclass(frozen=True)
class Advice:
    """The policy that is ahead, and what is to be thought of its lead.

    Attributes:
        verdict: ``"sure"`` (confidence 95 % or more), ``"likely"`` (80 %), ``"tie"``, ``"random"`` (none is surely
            better than drawing arms at random), ``"short"`` (too few units to tell), and where one play of the whole
            record says otherwise ``"split"`` or ``"late"`` (``with_whole_run``).
        policy: that of the least mean regret.
        next: the best of the others; None where it raced alone.
        confidence: that no other has less regret than ``policy``, in [0, 1].
        less: regret a step of ``next`` less that of ``policy``, as a share of ``next``'s, and the ends of its 90 %
            interval; NaN where there is no other, or no interval.
        of_random: regret of ``policy`` as a share of that of drawing arms at random.
        tied: policies that are not surely worse than ``policy``, itself first, by their regret.
        rivals: how many policies were compared.
        units: K.
        taken: the policy to work with; None where none is advised.
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
    """Where a policy was stuck (``stuck``): steps ``first`` to ``last``, at one arm, while the rival lost less."""

    arm: int
    first: int
    last: int
    rival: str


def advise(regret: Mapping[str, Tensor], random: Tensor) -> Advice:
    """Compare policies by their regret on the same units: stretches of a record, or replicates of a simulation.

    The policy A of the least mean regret is the best with confidence 1 - max_c p_c, over all others c and drawing arms
    at random. To be called the best wrongly, A must look better than the true best. So p_c asks how often, were c as
    good as every other, any other would look as far ahead of c as A does. With D_kj the regret of c less that of j on
    unit k, t_j = mean(D_j) / (standard deviation(D_j) / sqrt(K)), and signs s of the units,

        p_c = share of s in {-1, 1}^K with max_j t_j(s_1 D_1j, ..., s_K D_Kj) >= t_A,

    over all patterns for K <= 12, 4096 drawn ones beyond. That is exact where units are independent and differences
    symmetric about 0 when there is none; it holds for the maximum over the policies, so having raced many of them costs
    what it must. Units that depend on each other make it too sure: take them long.

    Args:
        regret: by policy, (K,) each: mean regret of a step on unit k. One called ``random`` is left out, as ``random``
            stands for it without its noise.
        random: (K,) expected regret of drawing arms at random.

    Cost: O(min(2^K, 4096) K M^2) for M policies.

    Source: sign-flip tests (Fisher 1935), their maximum over many comparisons (Westfall & Young 1993), and comparisons
    with the best (Hsu 1981). The interval inverts such a test for a ratio (Fieller 1954; the ratios over subsets of
    units are typical values as in Hartigan 1969).

    Raises ValueError for no policy, and regrets of different lengths or that are not finite.
    """
    raced = {name: value for name, value in regret.items() if name != "random"} or dict(regret)
    validation.require(len(raced) > 0, "regret", dict(regret), "of one policy or more")
    size = validation.tensor("regret of random", random).numel()
    for name, value in {**raced, "random": random}.items():
        validation.finite_tensor(f"regret of {name}", value)
        validation.shape_is(f"regret of {name}", value, value.shape == (size,) != (0,), f"({size},)")
    raced, random = {name: value.double() for name, value in raced.items()}, random.double()
    names = sorted(raced, key=lambda name: float(raced[name].mean()))
    table = torch.stack([*(raced[name] for name in names), random], -1)  # least regret first
    signs, others = _patterns(len(table)), range(1, table.shape[1])
    doubt = (
        torch.stack([_doubt(table, c, signs) for c in others]) if len(table) > 1 else torch.ones(len(others))
    )
    tied = (names[0], *(name for name, p in zip(names[1:], doubt, strict=False) if p > 1 - SURE))
    confidence = 1 - float(doubt.max())
    verdict = _verdict(len(table), confidence, float(doubt[-1]))
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
    """The policies that were stuck at an arm when they played a record once, with the longest time that each was.

    A policy is stuck where it pulls one arm alone for so many steps or more, without a single other, and loses over
    ``steps`` of them more than 60 % of what drawing arms at random loses and more than twice what another policy lost.
    Of several replicates half must be. One that stays at an arm that stays good is not stuck, nor where all others
    lost as much.

    Args:
        histories: of runs over arms, by policy, all of the same T steps. ``random`` is left out.
        random: (R, T) expected regret of drawing arms at random (``random_regret``).
        steps: how long is long: a stretch of ``Starts``.
    """
    regret = {name: history.regret for name, history in histories.items() if name != "random"}
    mean = {name: _over(values.mean(0), steps) for name, values in regret.items()}
    at_random, found = _over(random.mean(0), steps), {}
    for name, history in histories.items():
        rivals = [rival for rival in mean if rival != name]
        if name == "random" or not rivals:
            continue
        least, which = torch.stack([mean[rival] for rival in rivals]).min(0)
        lost = _over(regret[name], steps)
        turned = (history.arms.diff() != 0).cumsum(-1)
        start = turned.new_zeros(len(turned), 1)
        run = torch.cat([start, turned], -1)  # (S, T), the number of the run of one arm
        alone = run[:, : lost.shape[-1]] == run[:, steps - 1 :]
        where = alone & (lost > _OF_RANDOM * at_random) & (lost > _OF_RIVAL * least)
        bad = where.any(-1).nonzero().squeeze(-1).tolist()
        if 2 * len(bad) < len(where) or not bad:
            continue
        lengths = {s: run[s].bincount()[run[s, : lost.shape[-1]]] * where[s] for s in bad}
        s = max(bad, key=lambda one: int(lengths[one].max()))
        t = int(lengths[s].argmax())
        first = int((run[s] == run[s, t]).nonzero()[0]) + 1
        found[name] = Stuck(
            int(history.arms[s, t]), first, first + int(lengths[s][t]) - 1, rivals[int(which[t])]
        )
    return found


def _over(values: Tensor, steps: int) -> Tensor:
    """Sums over so many steps on end, (..., T - steps + 1) of (..., T)."""
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
    """The same advice after one play of the whole record, which short plays do not outvote.

    Whoever was stuck there, or surely worse than another, is not taken. If the leader is none of these, and likely the
    best, it is taken. Among those that cannot be told apart, where the leader fell (``"split"``), and where only the
    whole shows a policy to be better than chance (``"late"``: it lost less than nine tenths of what chance did, or
    earned surely more), it is the ``preferred`` one, ``auto``, which needs the least prior knowledge, else who lost
    least in the whole.

    Args:
        advice: of several starts.
        whole: of the same stretches, as one play went through them.
        stuck: policies that were (``stuck``).
        ahead: policies that earned surely more than chance in the whole (``Earned.ahead``).
        preferred: among equals; None for rewards of 0 and 1 and counts, whose own policies need to know as little.
    """
    late = advice.verdict == "random" and (
        (whole.verdict != "random" and whole.of_random < _CLEARLY) or whole.policy in ahead
    )
    if advice.verdict == "short" or (advice.verdict == "random" and not late):
        return advice
    sound = [name for name in whole.tied if name not in stuck]
    if advice.taken in sound:
        return advice
    among = [name for name in sound if (name in ahead if late else name in advice.tied)] or sound
    taken = preferred if preferred in among else next(iter(among), None)
    verdict = "late" if late else "tie" if advice.taken is None else "split"
    return replace(advice, verdict=verdict, taken=taken)


def _verdict(units: int, confidence: float, doubt_of_random: float) -> str:
    if units < FEWEST:
        return "short"
    if doubt_of_random > 1 - SURE:
        return "random"
    if confidence >= SURE:
        return "sure"
    return "likely" if confidence >= LIKELY else "tie"


def _doubt(table: Tensor, c: int, signs: Tensor) -> Tensor:
    """p_c of a column; the first leads."""
    others = [j for j in range(table.shape[1]) if j != c]
    largest = _t(table[:, c : c + 1] - table[:, others], signs)
    leader = largest[0, 0]
    return (largest.amax(-1) >= leader - 1e-9 * leader.abs()).double().mean()


def _t(difference: Tensor, signs: Tensor) -> Tensor:
    """t of each pattern of signs and column, (patterns, M), of differences (K, M)."""
    K, size = len(difference), difference.abs().amax(0)
    mean = signs @ difference / K
    spread = (difference.square().sum(0) / K - mean.square()).clamp_min(0).mul(K / (K - 1)).sqrt()
    # Units that all differ by the same are as far apart as can be; without any difference there is no lead.
    return torch.where(size > 0, math.sqrt(K) * mean / torch.maximum(spread, 1e-12 * size), 0.0)


@cache
def _patterns(units: int) -> Tensor:
    """Signs, (patterns, K), the first all +1. Nobody writes into them: all who ask get the same."""
    if units <= _ALL_PATTERNS:
        bits = torch.arange(2**units).unsqueeze(-1) >> torch.arange(units)
        return 1.0 - 2.0 * (bits & 1).double()
    drawn = torch.randint(2, (_SOME_PATTERNS, units), generator=torch.Generator().manual_seed(0))
    drawn[0] = 0
    return 1.0 - 2.0 * drawn.double()


def _less(leader: Tensor, other: Tensor) -> tuple[float, float, float]:
    """How much less regret than the other, as a share of the other's, with a 90 % interval.

    The interval is 1 - rho for the ratios rho of mean regrets that a sign-flip test keeps, one of mean(leader_k -
    rho other_k) = 0. Under signs that are -1 on a set of units, that mean is as far from 0 as without them between
    two values of rho: the ratio of the sums over the set, and that over the other units. So the ends are quantiles
    of these ratios over all patterns. They lie between the least and the largest ratio of a unit, hence nobody is
    said to lose more than 100 % less.
    """
    total = float(other.sum())
    if total <= 0 or float(other.min()) < 0:
        return (math.nan,) * 3
    middle = 1 - float(leader.sum()) / total
    if len(leader) < FEWEST:
        return middle, math.nan, math.nan
    flipped = (_patterns(len(leader)) < 0).double()
    ratios = torch.stack([(units @ leader) / (units @ other) for units in (flipped, 1 - flipped)])
    bounding = ~ratios.isnan().any(0)  # the others, such as all signs +, keep every rho
    low = torch.where(bounding, ratios.amin(0), -torch.inf).quantile(1 - _INTERVAL)
    high = torch.where(bounding, ratios.amax(0), torch.inf).quantile(_INTERVAL)
    if not math.isfinite(low) or not math.isfinite(high):
        return middle, math.nan, math.nan
    return middle, 1 - float(high), 1 - float(low)

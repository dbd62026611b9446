"""Which policy to take, how far it is ahead, and how certain that is."""

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
    """The leading policy, and how certain its lead is.

    Attributes:
        verdict: ``"sure"`` (confidence 95 % or more), ``"likely"`` (80 %), ``"tie"``, ``"random"`` (none is surely
            better than drawing arms at random), ``"short"`` (too few units to tell), or, where one play of the whole
            record disagrees, ``"split"`` or ``"late"`` (``with_whole_run``).
        policy: the policy with the least mean regret.
        next: the best of the others; None if it raced alone.
        confidence: that no other has less regret than ``policy``, in [0, 1].
        less: mean regret per step of ``next`` minus that of ``policy``, as a share of ``next``'s, and the ends of its
            90 % interval; NaN if there is no other policy, or no interval.
        of_random: regret of ``policy`` as a share of the regret of drawing arms at random.
        tied: ``policy``, then the policies that are not surely worse, by their regret.
        rivals: number of policies compared.
        units: K.
        taken: the policy advised; None if none is.
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
    """When a policy was stuck (``stuck``): it pulled one arm in steps ``first`` to ``last`` while the rival lost
    less."""

    arm: int
    first: int
    last: int
    rival: str


def advise(regret: Mapping[str, Tensor], random: Tensor) -> Advice:
    """Compare policies by their regret on the same units: stretches of a record, or replicates of a simulation.

    The policy A with the least mean regret is the best with confidence 1 - max_c p_c, over all others c and drawing
    arms at random. If A is wrongly called the best, it looks better than the true best. So p_c is the probability that
    some policy would look as far ahead of c as A does if c were as good as every other. With D_kj the regret of c minus
    that of j on unit k, t_j = mean(D_j) / (standard deviation(D_j) / sqrt(K)), and signs s of the units,

        p_c = share of s in {-1, 1}^K with max_j t_j(s_1 D_1j, ..., s_K D_Kj) >= t_A,

    over all patterns for K <= 12, and over 4096 drawn ones beyond. This is exact if units are independent, and
    differences symmetric about 0 for equally good policies. The maximum over the policies accounts for their number.
    If units depend on each other, the confidence is too high: use long units.

    Args:
        regret: by policy, (K,) each: mean regret of a step on unit k. A policy called ``random`` is left out, because
            the argument ``random`` is its regret without noise.
        random: (K,) expected regret of drawing arms at random.

    Cost: O(min(2^K, 4096) K M^2) for M policies.

    Source: sign-flip tests (Fisher 1935), their maximum over many comparisons (Westfall & Young 1993), and comparisons
    with the best (Hsu 1981). The interval inverts such a test for a ratio (Fieller 1954; the ratios over subsets of
    units are typical values as in Hartigan 1969).

    Raises ValueError without a policy, and for regrets that have different lengths or are not finite.
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
    """The policies that were stuck at an arm when they played a record once, with the longest stretch of each.

    A policy is stuck if it pulls a single arm for ``steps`` steps or more, and over ``steps`` of them loses more than
    60 % of what drawing arms at random loses and more than twice what another policy lost. Of several replicates, half
    must be stuck. A policy that stays at a good arm is not stuck, and neither is one if all others lost as much.

    Args:
        histories: of runs over arms, by policy, all of the same T steps. ``random`` is left out.
        random: (R, T) expected regret of drawing arms at random (``random_regret``).
        steps: length of a stretch of ``Starts``.
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
    """The advice, revised by one play of the whole record, which short plays do not override.

    A policy that was stuck there, or surely worse than another, is not advised. If the leader is neither, and likely
    the best, it is advised. Otherwise the ``preferred`` policy is advised (``auto``, which needs the least prior
    knowledge), or else the one that lost least on the whole record. This happens if the best policies cannot be told
    apart, if the leader was excluded (``"split"``), and if only the whole record shows that a policy is better than
    chance (``"late"``: it lost less than nine tenths of what chance did, or earned surely more).

    Args:
        advice: from plays of several starts.
        whole: the comparison on the same stretches of one play of the whole record.
        stuck: policies that were stuck in it (``stuck``).
        ahead: policies that earned surely more than chance on the whole record (``Earned.ahead``).
        preferred: the policy to advise among equals; None for rewards of 0 and 1 and counts, where other policies need
            no more prior knowledge.
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
    """p_c for a column; the first column is the leader."""
    others = [j for j in range(table.shape[1]) if j != c]
    largest = _t(table[:, c : c + 1] - table[:, others], signs)
    leader = largest[0, 0]
    return (largest.amax(-1) >= leader - 1e-9 * leader.abs()).double().mean()


def _t(difference: Tensor, signs: Tensor) -> Tensor:
    """t for each pattern of signs and each column, (patterns, M), from differences (K, M)."""
    K, size = len(difference), difference.abs().amax(0)
    mean = signs @ difference / K
    spread = (difference.square().sum(0) / K - mean.square()).clamp_min(0).mul(K / (K - 1)).sqrt()
    # Units that all differ by the same are as far apart as can be; without any difference there is no lead.
    return torch.where(size > 0, math.sqrt(K) * mean / torch.maximum(spread, 1e-12 * size), 0.0)


@cache
def _patterns(units: int) -> Tensor:
    """Signs, (patterns, K), the first all +1. The tensor is shared, so no caller may change it."""
    if units <= _ALL_PATTERNS:
        bits = torch.arange(2**units).unsqueeze(-1) >> torch.arange(units)
        return 1.0 - 2.0 * (bits & 1).double()
    drawn = torch.randint(2, (_SOME_PATTERNS, units), generator=torch.Generator().manual_seed(0))
    drawn[0] = 0
    return 1.0 - 2.0 * drawn.double()


def _less(leader: Tensor, other: Tensor) -> tuple[float, float, float]:
    """How much less regret than the other, as a share of the other's, with a 90 % interval.

    The interval is 1 - rho for the ratios rho of mean regrets that a sign-flip test of mean(leader_k - rho other_k) = 0
    does not reject. Flipping the signs of a set of units leaves the distance of that mean from 0 unchanged at two
    values of rho: the ratio of the sums over the set, and the ratio of the sums over the other units. So the ends are
    quantiles of these ratios over all patterns. They lie between the smallest and the largest ratio of a unit, so no
    policy is said to lose more than 100 % less.
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

"""The members of ``auto`` over arms: covariances, noises and rates of change, with or without a given kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.members import pivoted_root
from bandits_torch.policies.choices.contexts import pairs_of
from bandits_torch.recipes.registration import Number

RATES: Sequence[float] = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_UNKNOWN_RATES = (0.0, 0.01, 0.03, 0.1, 0.3)
_FEW_RATES = (0.0, 0.01, 0.1)
_LENGTHSCALES = (0.05, 0.1, 0.2, 0.4, 0.8)  # of features spread like the unit interval, times sqrt(d)
_FEW_LENGTHSCALES = (0.05, 0.2, 0.8)
_NOISES = (0.01, 0.1, 1.0)  # as shares of the variance of the function
_TIMESCALES = (15.0, 40.0, 120.0)  # of smooth drift, in typical gaps
_SMOOTH_NOISES, _SMOOTH_LENGTHSCALES, _SMOOTH_WEIGHT = (0.01, 0.1), (0.1, 0.4), 0.25
_FEW_NOISES = (0.01, 0.3)
_GIVEN_NOISES = (0.25, 1.0, 4.0)  # times the given noise variance
_STRENGTH, _FIRM = 10.0, 1000.0  # of the prior on the given unit, in observations; with the given noise
_PARTS = ((0.0, 0.6), (0.03, 0.2), (0.3, 0.2))  # share of the variance independent for each arm; weight
_SHARPER, _SHARPER_WEIGHT = (9, 25), 0.05  # powers of the correlations; share of the given kernel's weight
_GIVEN = 0.9  # prior weight of the members with the given kernel
_CYCLIC = 0.5  # prior weight of the members with cycles, if there are any
_LEVEL = 0.5  # prior weight of the members whose arms share a level, beside others
_CYCLE_SHARES = (0.3, 0.7)  # of the variance, for cycles that are learned
# If arms share a level: variances of the arms' parts, relative to the noise, and their rates of change; pairs of the
# level's variance, relative to the noise, and its time-scale.
LIFTS, LEVEL_RATES = (0.03, 0.3, 3.0), (0.0, 0.01)
_LEVELS = tuple(product((10.0, 100.0), (20.0, 80.0, 320.0)))
_PAIR_SCALES = (0.1, 0.3, 0.8)  # length-scales, of arms and of contexts
_PAIR_RATES = (0.0, 0.01, 0.03, 0.1)
_SHIFT = 4.0  # variance of what a context adds to the rewards of all arms, relative to the variance of an arm
_ALONE = 4  # with up to this many columns of contexts, some members depend on one of them alone
FULL_UP_TO, _RANK = 500, 100  # most arms at the start with full covariances; with more, the members' rank


@dataclass(frozen=True)
class Family:
    """Members that share a covariance or its root ``shape``, one for each noise and rate.

    ``strengths``: for each noise, the strength of the prior on the unit (``MemberScale``); empty if there is no prior.
    ``smooth``: they drift smoothly (``SmoothMembers``), and ``rates`` are time-scales.
    ``cycle``: they have cycles (``CyclicMembers``), which have this share of their variance.
    ``level``: their arms share a level (``LevelMembers``) with this variance, relative to the noise, and time-scale.
    """

    shape: Tensor
    noises: Sequence[Tensor]
    rates: Sequence[float]
    weight: float
    strengths: Sequence[float] = ()
    smooth: bool = False
    cycle: float | None = None
    level: tuple[float, float] | None = None


def families(
    features: Tensor, kernel: Kernel | Tensor | None, noise_variance: Number | None, first: int | None = None
) -> list[Family]:
    """The members, with or without a ``kernel``; above 500 arms fewer, of low rank. The spread of features and the rank
    depend only on the ``first`` arms, those at the start (None: all)."""
    many, x = len(features[:first]) > FULL_UP_TO, spread(features, first)
    if many and x is None and kernel is None:
        expected = f"features, or at most {FULL_UP_TO} arms if there is no kernel"
        validation.require(False, "arms", len(features), expected)
    if kernel is None and many:
        return _unknown(features, x, first, 1.0, _LENGTHSCALES, _FEW_NOISES, _FEW_RATES)
    if kernel is None:  # fewer of them drift smoothly
        of_smooth = _SMOOTH_LENGTHSCALES, _SMOOTH_NOISES, _TIMESCALES
        smooth = _unknown(features, x, first, _SMOOTH_WEIGHT, *of_smooth)
        rough = _unknown(features, x, first, 1 - _SMOOTH_WEIGHT, _LENGTHSCALES, _NOISES, _UNKNOWN_RATES)
        return rough + [replace(one, smooth=True) for one in smooth]
    without = _unknown(features, x, first, 1 - _GIVEN, _FEW_LENGTHSCALES, _FEW_NOISES, _FEW_RATES)
    return _with_kernel(features, kernel, noise_variance, first) + without


def _with_kernel(
    features: Tensor, kernel: Kernel | Tensor, noise_variance: Number | None, first: int | None
) -> list[Family]:
    """Members with the given kernel, with an independent part added for each arm, and with sharper correlations."""
    n, own = len(features), inputs.kernel_over(features, kernel)
    if isinstance(kernel, Tensor):
        features = torch.arange(n, dtype=features.dtype, device=features.device).unsqueeze(-1)
    with inputs.takes_columns(own, features.shape[-1]):
        own(features[:2]).to_dense()
    with torch.no_grad():
        variance = own(features, diag=True).expand(n)
        s = float(variance[:first].mean())
        noises = [s * features.new_tensor(share) for share in _NOISES]
        strengths = [_STRENGTH] * len(noises)
        if noise_variance is not None:
            given = inputs.noise_over(features, noise_variance)
            inputs.check_ratio(given, variance)
            noises = [times * given for times in _GIVEN_NOISES]
            strengths = [_FIRM if times == 1 else _STRENGTH for times in _GIVEN_NOISES]
        if len(features[:first]) > FULL_UP_TO:
            column = lambda i: own(features[i : i + 1], features).to_dense().squeeze(0)  # noqa: E731
            root = pivoted_root(column, variance, _RANK, first=first)
            return [Family(root, noises, _UNKNOWN_RATES, _GIVEN, strengths)]
        K = own(features).to_dense()
    one = torch.eye(n, dtype=K.dtype, device=K.device)
    believed, share = _GIVEN * (1 - _SHARPER_WEIGHT), _GIVEN * _SHARPER_WEIGHT / len(_SHARPER)
    groups = [(K + part * s * one, RATES, believed * weight) for part, weight in _PARTS]
    groups += [(sharper(K, power), _UNKNOWN_RATES, share) for power in _SHARPER]
    return [Family(shape, noises, rates, weight, strengths) for shape, rates, weight in groups]


def with_cycles(
    groups: Sequence[Family], features: Tensor, residuals: Tensor | None, noise_variance: Number | None
) -> list[Family]:
    """These families, and families with cycles.

    ``residuals``: (N, N), the covariance about the known cycles. None: only the periods are known. Members then learn
    the cycles, with the given kernel, or without one with the covariances and every second noise of ``groups``.
    """
    kept = [replace(one, weight=(1 - _CYCLIC) * one.weight) for one in groups]
    if residuals is not None:
        kept = [replace(one, rates=_FEW_RATES) for one in kept]
        about = _with_kernel(features, residuals, noise_variance, None)
        of_cycles = [replace(one, cycle=0.0) for one in about]
    else:
        plain = [one for one in groups if not one.smooth and not one.strengths]
        given = [one for one in groups if one.strengths][: len(_PARTS)]
        some = given or [replace(one, noises=one.noises[::2]) for one in plain]
        some = [replace(one, rates=_FEW_RATES) for one in some]
        of_cycles = [replace(one, cycle=share) for one in some for share in _CYCLE_SHARES]
    total = sum(one.weight for one in of_cycles)
    return kept + [replace(one, weight=_CYCLIC * one.weight / total) for one in of_cycles]


def with_level(groups: Sequence[Family]) -> list[Family]:
    """These families, and families whose arms share a level, of every second size and time-scale."""
    kept = [replace(one, weight=(1 - _LEVEL) * one.weight) for one in groups]
    return kept + [replace(one, weight=_LEVEL * one.weight) for one in of_level(groups, _LEVELS[1::2])]


def of_level(groups: Sequence[Family], levels: Sequence[tuple[float, float]] = _LEVELS) -> list[Family]:
    """Families whose arms share a level and whose unit is learned.

    With a given kernel: its correlations without the part common to all arms, with and without an independent part,
    and independent arms. Without one: independent arms, and two length-scales if there are features.
    """
    plain = [one for one in groups if not one.smooth and not one.strengths and one.cycle is None]
    given = [one for one in groups if one.strengths and one.cycle is None][: len(_PARTS) : 2]
    for i, one in enumerate(given):
        rows = one.shape.mean(-1, keepdim=True)
        rest = one.shape - rows - rows.mT + rows.mean(-2, keepdim=True)  # of f minus its mean over arms
        variance = rest.diagonal().mean().clamp_min(torch.finfo(rest.dtype).tiny)
        given[i] = replace(one, shape=rest / variance + 1.0)  # with a constant part, as in ``_unknown``
    some = [*given, plain[0], *([] if given else plain[2:5:2])]
    noises, weight = [plain[0].shape.new_tensor(1 / size) for size in LIFTS], 1 / (len(some) * len(levels))
    some = [replace(one, noises=noises, rates=LEVEL_RATES, weight=weight, strengths=()) for one in some]
    return [replace(one, level=level) for one in some for level in levels]


def families_of_pairs(
    arms: Tensor,
    contexts: Tensor,
    kernel: Kernel | None,
    noise_variance: Number | None,
    first: int | None,
    matters: list[int] | None,
) -> list[Family]:
    """The members over the N M pairs of arms and contexts, sorted by arm; ``kernel``: over the joined features of both.

    Members without the kernel have covariances

        K = A (x) C + 1,    A (x) 1 + 4 (1 (x) C) + 1,    A (x) (1 + C) + 4 (1 (x) C) + 1.

    A is Matern over the arms' features, or I for unrelated arms. C is 1 everywhere, if the context does not matter;
    Matern over the contexts' features, all together and, if there are two to four, each alone; I for unrelated
    contexts; or without features the mean of 1 and I. In the second and third K, one of each, a context shifts the
    rewards of all arms. Above 500 pairs K is of low rank.

    ``first``: the number of arms at the start (None: all), which alone decide the spread of features and the rank.
    ``matters``: the columns of the contexts that count (None: all).
    """
    given, m = [], len(contexts)
    pairs = None if first is None else first * m
    if kernel is not None:
        given = _with_kernel(pairs_of(arms, contexts), kernel, noise_variance, pairs)
    weight = 1 - _GIVEN if given else 1.0
    x, z = spread(arms, first), spread(contexts if matters is None else contexts[:, matters])
    own, apart = (torch.eye(len(rows), dtype=arms.dtype, device=arms.device) for rows in (arms, contexts))
    same = torch.ones_like(apart)
    related = [] if x is None else [_matern(x, x, scale * math.sqrt(x.shape[-1])) for scale in _PAIR_SCALES]
    alike = [] if z is None else [_matern(z, z, scale * math.sqrt(z.shape[-1])) for scale in _PAIR_SCALES]
    middle = alike[1:2] or [(same + apart) / 2]
    if z is not None and 1 < z.shape[-1] <= _ALONE:
        alike += [_matern(column, column, _PAIR_SCALES[1]) for column in z.split(1, -1)]
    shapes: list[tuple[tuple[Tensor, Tensor], ...]] = [((A, C),) for A, C in product(related, [same, *alike])]
    shapes += [((own, C),) for C in (same, *middle, apart)] + [((A, apart),) for A in related[1:2]]
    A, C = [*related[1:2], own][0], [*alike[1:2], apart][0]
    shifted = ((A, same), (_SHIFT * torch.ones_like(own), C))
    shapes += [shifted, (*shifted, (A, C))]
    if len(arms[:first]) * m <= FULL_UP_TO:
        covariances = [torch.stack([torch.kron(A, C) for A, C in terms]).sum(0) + 1.0 for terms in shapes]
    else:
        roots = [_root_of_products(terms, pairs) for terms in shapes]
        covariances = [_with_constant(root) for root, share in roots if share > 0.5]
        expected = f"features, or at most {FULL_UP_TO} pairs of arm and context"
        validation.require(z is not None and len(covariances) > 0, "contexts", m, expected)
    noises = [arms.new_tensor(share) for share in _FEW_NOISES]
    without = [Family(K, noises, _PAIR_RATES, weight / len(covariances)) for K in covariances]
    return in_one_unit(given + without, pairs)


def in_one_unit(groups: Sequence[Family], first: int | None) -> list[Family]:
    """These families, of which those without a unit begin with the unit of the given kernel, the root of its mean
    variance over the ``first`` arms (None: all)."""
    root = groups[0].shape
    full = root.shape[0] == root.shape[1]
    variance = (root.diagonal() if full else root.square().sum(-1))[:first].mean()
    if not groups[0].strengths or variance == 0:  # no kernel is given, or it is 0
        return list(groups)
    factor = variance if full else variance.sqrt()
    return [
        one
        if one.strengths
        else replace(one, shape=factor * one.shape, noises=[variance * noise for noise in one.noises])
        for one in groups
    ]


def _root_of_products(terms: Sequence[tuple[Tensor, Tensor]], first: int | None) -> tuple[Tensor, float]:
    """A root of low rank of the sum of A (x) C over the terms, and its share of the variance of the ``first`` pairs."""
    m = len(terms[0][1])

    def column(i: int) -> Tensor:
        return torch.stack([torch.kron(A[:, i // m], C[:, i % m]) for A, C in terms]).sum(0)

    variance = torch.stack([torch.kron(A.diagonal(), C.diagonal()) for A, C in terms]).sum(0)
    root = pivoted_root(column, variance, _RANK, first=first)
    return root, float(root[:first].square().sum() / variance[:first].sum())


def _with_constant(root: Tensor) -> Tensor:
    """The root of K + 1; the columns of arms added later stay last."""
    return torch.cat([root[:, :_RANK], torch.ones_like(root[:, :1]), root[:, _RANK:]], -1)


def sharper(covariance: Tensor, power: int) -> Tensor:
    """The covariance with the same variances, and with the correlations raised to a power, (N, N).

        K'_ij = s_i s_j (K_ij / (s_i s_j))^p,   s_i = sqrt(K_ii).

    For a squared exponential kernel this divides length-scales by sqrt(p) in any dimension. It needs no features.
    Positive semi-definite for every integer p >= 1 by Schur's product theorem (Horn & Johnson 2013, 7.5.3).

    Args:
        covariance: K, (N, N), positive semi-definite.
        power: p, an integer >= 1.
    """
    deviation = covariance.diagonal().sqrt()
    sizes = deviation.unsqueeze(-1) * deviation
    correlation = torch.where(sizes > 0, covariance / sizes, 0.0)
    return sizes * correlation**power


def _unknown(
    features: Tensor,
    x: Tensor | None,
    first: int | None,
    weight: float,
    lengthscales: Sequence[float],
    noises: Sequence[float],
    rates: Sequence[float],
) -> list[Family]:
    """Members without a given kernel, over features, if there are any. The constant part of their covariances is needed
    because rewards are relative to the first ones."""
    n, smooth = len(features), []
    full = len(features[:first]) <= FULL_UP_TO
    if x is not None:
        scales = [scale * math.sqrt(x.shape[-1]) for scale in lengthscales]
        smooth = [_matern(x, x, scale) if full else _matern_root(x, scale, first) for scale in scales]
    if full:
        one = torch.eye(n, dtype=features.dtype, device=features.device)
        mixed = [(smooth[len(smooth) // 2] + one) / 2] if smooth else []
        shapes = [K + 1.0 for K in (one, *smooth, *mixed)]
    else:
        shapes = [_with_constant(root) for root in smooth]
    ratios = [features.new_tensor(share) for share in noises]
    return [Family(shape, ratios, rates, weight / len(shapes)) for shape in shapes]


def spread(features: Tensor, first: int | None = None) -> Tensor | None:
    """Features scaled to the standard deviation of the uniform distribution on the unit interval, without constant
    columns and without a first column of arm indices; None if no column is left. ``first``: the number of arms that
    decide the scale (None: all)."""
    x = features
    index = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)
    if x.shape[-1] > 0 and torch.equal(x[:first, 0], index[:first]):
        x = x[:, 1:]
    x = x[:, x[:first].amax(0) > x[:first].amin(0)] if x.shape[-1] else x
    if x.shape[-1] == 0:
        return None
    return (x - x[:first].mean(0)) / (math.sqrt(12) * x[:first].std(0, unbiased=False))


def _matern(x: Tensor, y: Tensor, lengthscale: float) -> Tensor:
    """Matern 5/2 covariance of the rows of x with those of y."""
    r = math.sqrt(5) * torch.cdist(x, y) / lengthscale
    return (1 + r + r.square() / 3) * (-r).exp()


def _matern_root(x: Tensor, lengthscale: float, first: int | None) -> Tensor:
    """A root of low rank of the Matern 5/2 covariance of the rows of x."""
    return pivoted_root(
        lambda i: _matern(x, x[i : i + 1], lengthscale).squeeze(-1), x.new_ones(len(x)), _RANK, first=first
    )

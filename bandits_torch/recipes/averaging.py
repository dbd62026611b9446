"""What needs to be told nothing but the choices: a mixture over kernels, noises and rates of change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.kernels import estimate_covariance
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.members import ArmMembers, LowRankMembers, RecursiveMembers, SmoothMembers
from bandits_torch.models.arms.stacked_members import StackedMembers
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.learned_units import MemberScale
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.policies.sharing import FixedShare
from bandits_torch.problems.logs import Log
from bandits_torch.recipes.auto_members import FULL_UP_TO, Family, families, spread
from bandits_torch.recipes.point_averaging import auto_over_points
from bandits_torch.recipes.registration import RUN, recipe
from bandits_torch.recipes.setup import Number, Setup

PLAUSIBLE = 4.0  # nats
_LOOK_AGAIN, _LOOK_AGAIN_RELATED = 7.0, 12.0  # c of ``LookingAgain``
_AT_ONCE = 6  # looks within c sqrt(t + 300), where a kernel is told that relates arms
_WIDE = 2.0  # of ``ModelAveraging``, where a kernel is told
_FEW = 16  # arms: up to so many are all tried, features or not, where no kernel is told


@recipe(takes=(*RUN, "prior_mean", "search"), optional=True, points=True)
def auto(
    setup: Setup,
    *,
    history: Tensor | None = None,
    log: Log | None = None,
    width: float | None = None,
    share: float = 0.001,
    behind: float = 12.0,
    plausible: float = PLAUSIBLE,
    look_again: float | None = None,
) -> Policy:
    """Told only what can be chosen: averages over kernels, noises and rates of change by how well each predicts.

    Members are weighed by ``ModelAveraging``.
    Told nothing, the choices are the same when rewards are multiplied or shifted, or time is counted in another unit.
    Where no kernel is told, up to 16 arms, and any number without features, are all tried in time (``try_all``).
    A kernel or a noise variance that is told is used; members that do without it stay, so being wrong costs little.
    Up to 500 arms, so do members with a kernel of shorter range (``sharper``: length-scales divided by 3 and 5).
    Where no kernel is told, a quarter of the weight is on members whose rewards drift smoothly (``SmoothMembers``).
    Over a ``Domain`` less is expected of the ends of ranges than of their middle, until more is known.

    Args:
        kernel: None: not known; else as for the other recipes.
        noise_variance: None: not known; given only with ``kernel`` or ``history``.
        prior_mean: given only with ``kernel``.
        history: (T, N) past rewards of the arms, NaN where missing, in place of ``kernel`` and ``prior_mean``: their
            covariance (``estimate_covariance``) and means are what is told.
        log: a ``Log`` of past pulls, drawn in any way: each reward is learned with its time, in order, as if the policy
            had pulled the arm. Times go on from there, in the same unit. ``reset`` forgets it. Over arms only.
        width: multiplies the mixture's standard deviation; by default 1.25, where a kernel or history is told 2 at
            every tenth choice, over a ``Domain`` 1.
        share, behind: of ``FixedShare``.
        look_again: c of ``ModelAveraging``, by default 7, and 12 where a kernel is told that relates arms (a squared
            correlation of 1/2 or more), with at most six looks within c sqrt(t + 300) there; over a ``Domain`` of
            ``PointAveraging``, by default 7. 0: never.
        plausible: of ``ModelAveraging``; not for a ``Domain``, over whose points there are no such checks.
        search, seed: how a ``Domain`` is searched (``auto_over_points``, which says what it takes of a ``kernel``).

    Members: P = 21 (arms without features) to 123 up to 500 arms, fewer and of rank 100 above; memory O(S P N^2), above
    that O(S P N).

    Source: fixed share (Herbster & Warmuth 1998); the grids, the unit learned on line and the checks are ours. No
    theorem bounds its regret. Raises ValueError for what is told twice or cannot be used, and for more than 500 arms of
    which neither features nor a kernel are known.
    """
    if setup.domain is not None:
        validation.require(plausible == PLAUSIBLE, "plausible", plausible, "left as it is over a Domain")
        own = {
            "width": 1.0 if width is None else width,
            "share": share,
            "behind": behind,
            "look_again": _LOOK_AGAIN if look_again is None else look_again,
        }
        validation.require(log is None, "log", log, "None where the choices are a Domain")
        return _over_points(setup, history, own)
    features = _features(setup.choices)
    kernel, noise_variance, prior_mean = setup.kernel, setup.noise_variance, setup.prior_mean
    said = {"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, "history": history}
    for name, value in said.items():
        real = not (isinstance(value, Tensor) and value.is_complex())
        validation.require(real, name, getattr(value, "dtype", None), "real numbers")
    if history is not None:
        validation.require(kernel is None, "kernel", kernel, "None where a history tells it")
        validation.require(_is_zero(prior_mean), "prior_mean", prior_mean, "0 where a history tells it")
        kernel, prior_mean = _of_history(features, history)
    unused = kernel is None and noise_variance is not None
    validation.require(
        not unused, "noise_variance", noise_variance, "None where neither kernel nor history is given"
    )
    told = kernel is not None or _is_zero(prior_mean)
    validation.require(told, "prior_mean", prior_mean, "0 where no kernel is given")
    if noise_variance is not None:
        noise = inputs.noise_over(features, noise_variance)
        one_each = noise.shape in ((), (setup.replicates,))
        validation.shape_is("noise_variance", noise, one_each, f"() or ({setup.replicates},)")
    groups = families(features, kernel, noise_variance)
    related = setup.kernel is not None and _related(groups[0].shape)
    if look_again is None:
        look_again = _LOOK_AGAIN_RELATED if related else _LOOK_AGAIN
    if log is not None:
        validation.instance("log", log, Log, "a Log")
        validation.require(log.num_arms == len(features), "log", log.num_arms, f"one of {len(features)} arms")
    policy = _policy(
        features,
        groups,
        prior_mean,
        setup.replicates,
        {
            "width": 1.25 if width is None else width,
            "wide": _WIDE if width is None and kernel is not None else 0.0,
            "plausible": plausible,
            "look_again": look_again,
            "at_once": _AT_ONCE if related else 0,
            "try_all": kernel is None and (len(features) <= _FEW or spread(features) is None),
        },
        {"share": share, "behind": behind},
    )
    if log is not None:
        past = (log.times.tolist(), log.arms.long().to(features.device), log.rewards.to(features))
        for time, arm, reward in zip(*past, strict=True):
            policy.learn(Observation(time, arm.expand(setup.replicates), reward.expand(setup.replicates)))
    return policy


def _related(covariance: Tensor) -> bool:
    """Whether a play of one arm says much of another, by a covariance (N, N) or the root of one, (N, r)."""
    n, columns = covariance.shape
    if n != columns:
        return True
    variance = covariance.diagonal()
    return bool((covariance.square() >= 0.5 * variance.unsqueeze(-1) * variance).sum() > n)


def _is_zero(prior_mean: Number) -> bool:
    """Whether it is what it is when none is told."""
    return not isinstance(prior_mean, Tensor) and prior_mean == 0.0


def _features(choices: object) -> Tensor:
    """The arms' features, (N, d)."""
    if isinstance(choices, Tensor) and (choices.is_floating_point() or choices.is_complex()):
        fits = choices.dtype in (torch.float32, torch.float64)
        validation.require(fits, "arms", choices.dtype, "float32 or float64")
    features = inputs.features_of(cast(Tensor | int, choices), None, None)
    validation.shape_is("arms", features, features.dim() == 2, "(N, d), the same for every replicate")
    return features


def _over_points(setup: Setup, history: Tensor | None, own: dict[str, Any]) -> PointAveraging:
    kernel, prior_mean = setup.kernel, setup.prior_mean
    validation.require(history is None, "history", history, "None where the choices are a Domain")
    validation.require(not isinstance(kernel, Tensor), "kernel", kernel, "a kernel over points, or None")
    validation.require(_is_zero(prior_mean), "prior_mean", prior_mean, "0 over a Domain, where it is learned")
    return auto_over_points(
        cast(Domain, setup.domain),
        cast(Kernel | None, kernel),
        setup.noise_variance,
        replicates=setup.replicates,
        seed=setup.seed,
        search=setup.search,
        **own,
    )


def _of_history(features: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance and means of past rewards."""
    n = len(features)
    validation.tensor("history", history)
    fits = history.dim() == 2 and history.shape[1] == n
    validation.shape_is("history", history, fits, f"(T, {n}), a column for each arm")
    try:
        covariance = estimate_covariance(history.to(features))
    except ValueError as error:
        raise ValueError(f"history: {error}") from error
    return covariance, history.to(features).nanmean(0)


def _policy(
    features: Tensor,
    groups: Sequence[Family],
    prior_mean: Number,
    replicates: int,
    own: dict[str, Any],
    sharing: dict[str, Any],
) -> ModelAveraging:
    mean = inputs.prior_mean_over(features, prior_mean)
    n = features.shape[-2]
    validation.shape_is("prior_mean", mean, mean.shape in ((), (n,)), f"() or ({n},)")
    forgetting = [family for family in groups if not family.smooth]
    smooth = [family for family in groups if family.smooth]
    build = LowRankMembers if n > FULL_UP_TO else ArmMembers
    kinds = [(build, forgetting)] + ([(SmoothMembers, smooth)] if smooth else [])
    parts, weights, strengths = [], [], []
    for kind, of_kind in kinds:
        part, weight, strength = _members(kind, features, of_kind, mean.expand(n), replicates)
        parts.append(part)
        weights += weight
        strengths += strength
    believed = features.new_tensor(strengths)
    return ModelAveraging(
        StackedMembers(parts) if len(parts) > 1 else parts[0],
        sharing=FixedShare(features.new_tensor(weights), replicates, **sharing),
        scale=MemberScale(believed, believed == 0, replicates),
        typical_gap=True,
        **own,
    )


def _members(
    kind: type[ArmMembers] | type[SmoothMembers],
    features: Tensor,
    groups: Sequence[Family],
    prior_mean: Tensor,
    replicates: int,
) -> tuple[RecursiveMembers, list[float], list[float]]:
    """A model of the members of these families, and the prior weight and the strength of each."""
    members = [
        (g, noise, rate, family.weight / (len(family.noises) * len(family.rates)), strength)
        for g, family in enumerate(groups)
        for (noise, strength), rate in product(
            zip(family.noises, family.strengths, strict=True), family.rates
        )
    ]
    kernel, noise, rate, weight, strength = zip(*members, strict=True)
    believes = features.new_tensor(strength) > 0
    rank = max(family.shape.shape[-1] for family in groups)
    shapes = [pad(family.shape, (0, rank - family.shape.shape[-1])) for family in groups]
    model = kind(
        features,
        torch.stack(shapes),
        torch.tensor(kernel, device=features.device),
        torch.stack([value.expand(replicates) for value in noise], -1),
        features.new_tensor(rate),
        prior_mean=torch.where(believes.unsqueeze(-1), prior_mean, 0.0),
        replicates=replicates,
    )
    return model, list(weight), list(strength)

"""``auto``: averages over kernels, noises and rates of change, and needs only arms or a domain of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.kernels import arm_context_kernel, estimate_covariance
from bandits_torch.kernels.composed import unscaled
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.members import ArmMembers, LowRankMembers, RecursiveMembers, SmoothMembers
from bandits_torch.models.arms.structured_members import CyclicMembers, LevelMembers, StackedMembers
from bandits_torch.models.points.point_members import PointMembers, WideningMembers
from bandits_torch.policies.averaging import ContextAveraging, ModelAveraging, PairAveraging, UnderContexts
from bandits_torch.policies.choices.contexts import INPUTS, check_contexts, pairs_of
from bandits_torch.policies.control import ControlledPolicy
from bandits_torch.policies.learned_units import MemberScale
from bandits_torch.policies.moves import CostlyMoves
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.policies.sharing import FixedShare
from bandits_torch.problems.logs import Log
from bandits_torch.problems.periods import FIND, Cycles, checked_periods, fit_cycles
from bandits_torch.recipes.auto_members import (
    FULL_UP_TO,
    Family,
    families,
    families_of_pairs,
    in_one_unit,
    of_level,
    spread,
    with_cycles,
    with_level,
)
from bandits_torch.recipes.parts import kernel_over_arms
from bandits_torch.recipes.registration import RUN, Number, Setup, recipe

_RATES = (0.0, 0.01, 0.05, 0.3)  # per typical gap between observations
_TIMESCALES = (10.0, 30.0, 100.0)  # in typical gaps
_LENGTHSCALES = (0.2, 0.6)  # of the unit cube, times sqrt(d)
_NOISE = 0.02  # share of the variance of the function
_GIVEN_LENGTHSCALE = 0.5  # a given length-scale under contexts, as a share of the side of the members' box
_CAPACITY = 200  # observations that a member holds
_IGNORED = 10.0  # length-scale of a context that hardly matters, as a multiple of its range


def auto_over_points(
    domain: Domain,
    kernel: Kernel | None = None,
    noise_variance: float | Tensor | None = None,
    *,
    replicates: int = 1,
    width: float = 1.0,
    capacity: int = _CAPACITY,
    search: PointSearch | Mapping[str, Any] | None = None,
    seed: int = 0,
    kind: type[PointAveraging] = PointAveraging,
    **options: Any,
) -> PointAveraging:
    """``PointAveraging`` with 14 members: seven kernels over time, from none to fast change, times two length-scales.

    Args:
        kernel: squared exponential or Matern, or None if unknown. The second half of the members begins with its
            length-scales; later all members adapt theirs.
        noise_variance: only with ``kernel``. The second half begins with it, divided by the kernel's variance.
        replicates: S.
        width, search, seed: see ``PointAveraging``.
        capacity: see ``PointMembers``.
        kind: the class of the policy, ``PointAveraging`` or a subclass.
        options: further arguments of ``PointAveraging``.

    Raises ValueError for bounds or noises that differ between replicates, another kernel, one over some of the inputs,
    and a noise variance without a kernel.
    """
    validation.of_shape("bounds", domain.bounds, (2, "d"), note=", those of all replicates")
    scales = [[times * math.sqrt(domain.dim)] * domain.dim for times in _LENGTHSCALES]
    lengthscales, noises = domain.bounds.double().new_tensor(scales), [_NOISE] * len(scales)
    if kernel is not None:
        lengthscales[1], noises[1] = _given_scales(domain, kernel, noise_variance)
    else:
        _left_out("None without a kernel", noise_variance=noise_variance)
    grid = _over_time(lengthscales, noises)
    members = PointMembers(domain.bounds, *grid, replicates=replicates, capacity=capacity)
    if isinstance(search, Mapping):
        search = PointSearch(**search)
    return kind(domain, members, width=width, search=search, seed=seed, **options)


def _over_time(lengthscales: Tensor, noises: list[float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Length-scales (P, d), noise variances, rates and time-scales (P,) of members: one member for each pair of a row
    of ``lengthscales`` (L, d), with its noise, and a kernel over time."""
    over_time = [(rate, math.inf) for rate in _RATES] + [(0.0, scale) for scale in _TIMESCALES]
    rate, timescale = lengthscales.new_tensor(over_time).repeat(len(noises), 1).T
    noise = lengthscales.new_tensor(noises)
    return *(value.repeat_interleave(len(over_time), 0) for value in (lengthscales, noise)), rate, timescale


def _under_any_context(
    setup: Setup,
    arms: Tensor,
    context_dim: int,
    context_kernel: Kernel | None,
    matters: Sequence[int] | None,
    width: float,
    sharing: dict[str, Any],
) -> ContextAveraging:
    """``PointAveraging`` over the features of N arms, (N, d), joined with a context of ``context_dim`` numbers.

    Length-scales begin as shares of the ranges observed for features and contexts (``WideningMembers``). A third of the
    members begins with contexts that hardly matter. All members adapt the length-scale of each input separately, so the
    policy learns which inputs matter. Arms without features have one input each, which is 1 for this arm and 0 else.

    The kernels over arms and over contexts, both or neither, are as in ``auto_over_points``.
    """
    kernel, first = setup.kernel, setup.grown_from
    n, d = arms.shape
    columns = list(range(context_dim) if matters is None else matters)
    counts = arms[:, 0] == torch.arange(n, device=arms.device) if d == 1 else arms.new_zeros(n).bool()
    counted = bool(counts.all())
    consistent = counted or not bool(counts[:first].all())
    expected = "their indices, as for the first arms"
    validation.require(consistent, "features of new arms", arms[first:], expected)
    rows = torch.eye(n, dtype=torch.float64, device=arms.device) if counted else arms.double()
    d, c = rows.shape[-1], len(columns)
    bounds, known = rows.new_tensor([[0.0], [1.0]]).repeat(1, d + c), torch.arange(d + c) < d
    low, high = rows[:first].amin(0), rows[:first].amax(0)
    bounds[:, :d] = torch.stack([low, torch.where(high > low, high, low + 1)])
    root = math.sqrt((1 if counted else d) + c)
    scales, noises = [times * root for times in _LENGTHSCALES], [_NOISE] * 3
    if kernel is not None and context_kernel is not None:
        expected = "None for arms without features, or contexts listed"
        validation.require(not counted, "kernel", kernel, expected)
        of_arms, noise = _given_scales(_unit_box(d), cast(Kernel, kernel), setup.noise_variance)
        left = None if setup.noise_variance is None else noise
        of_context, noise = _given_scales(_unit_box(context_dim), context_kernel, left)
        length = torch.cat([of_arms.expand(d), of_context.expand(context_dim)[columns]]).to(rows)
        bounds, known = torch.stack([0 * length, length / _GIVEN_LENGTHSCALE]), known | True
        scales, noises = [_GIVEN_LENGTHSCALE / 3, _GIVEN_LENGTHSCALE], [_NOISE, noise, noise]
    lengthscales = rows.new_tensor([*scales, scales[-1]]).unsqueeze(-1).repeat(1, d + c)
    lengthscales[-1, d:] = _IGNORED
    if counted:  # the inputs of arms go last, so that arms added later extend them
        order = [*range(d, d + c), *range(d)]
        bounds, known, lengthscales = bounds[:, order], known[order], lengthscales[:, order]
    grid = _over_time(lengthscales, noises)
    size: dict[str, Any] = {"replicates": setup.replicates, "capacity": _CAPACITY}
    members = WideningMembers(known.to(rows.device), bounds, *grid, **size)
    policy = PointAveraging(Domain(bounds), members, width=width, ends=0.0, **sharing)
    return ContextAveraging(policy, arms.double(), context_dim, columns, counted=counted)


def _unit_box(dim: int) -> Domain:
    return Domain(torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, dim))


def _given_scales(
    domain: Domain, kernel: Kernel, noise_variance: float | Tensor | None
) -> tuple[Tensor, float]:
    """Length-scales as shares of the sides, (d,), and noise variance as a share of the kernel's variance."""
    base, variance = unscaled(kernel)
    expected = "squared exponential or Matern, over all inputs, the same for all replicates"
    validation.instance("kernel", base, (RBFKernel, MaternKernel), expected)
    whole = kernel.active_dims is None and len(kernel.batch_shape) == 0
    validation.require(whole, "kernel", kernel, expected)
    lengthscale = base.lengthscale.detach().reshape(-1).to(domain.bounds)
    validation.of_shape("kernel.lengthscale", lengthscale, (1,), (domain.dim,))
    low, high = domain.bounds
    side = torch.where(high > low, high - low, 1.0)
    if noise_variance is None:
        return (lengthscale / side).double(), _NOISE
    noise = validation.numbers("noise_variance", noise_variance, side).unique()
    right = len(noise) == 1 and bool(noise.isfinite() & (noise > 0))
    expected = "finite and > 0, the same for all replicates"
    validation.require(right, "noise_variance", noise_variance, expected)
    return (lengthscale / side).double(), float(noise / variance.detach())


PLAUSIBLE = 4.0  # nats
_LEARNED_UP_TO, _HARMONICS = 200, 2  # most arms with learned cycles or a control; harmonics of such cycles
# c of ``LookingAgain``: for unrelated arms, arms with features, arms related by a given kernel, related contexts.
_LOOK_AGAIN, _LOOK_AGAIN_FEATURES, _LOOK_AGAIN_RELATED, _LOOK_AGAIN_CONTEXTS = 7.0, 8.5, 14.0, 12.0
_UNRELATED = 30  # unrelated arms from which c grows with the square root of their number
_MANY_PAIRS = 64  # of arm and related context; with more, no pair is looked at again by default
_AT_ONCE = 6  # most looks within c sqrt(t + 300) steps if a kernel relates arms, or with many pairs
_WIDE = 2.0  # ``wide`` of ``ModelAveraging``, with a kernel
_LEAST = 1e-6  # share of the history's variance, added to the residual variance of cycles
_SHARE = 0.1  # of the traffic, for a control
# Others: None.
_DEFAULTS = {"control_share": _SHARE, "plausible": PLAUSIBLE, "prior_mean": 0.0, "shared_level": False}
_FEW = 16  # without a kernel, up to this number of arms all are tried, with features or not


@recipe(takes=(*RUN, "prior_mean", "search"), optional=True, points=True, contexts=True, scale_free=True)
def auto(
    setup: Setup,
    *,
    history: Tensor | None = None,
    history_times: Tensor | None = None,
    cycles: str | float | Sequence[float] | Cycles | None = FIND,
    log: Log | None = None,
    control: int | None = None,
    control_share: float = _SHARE,
    shared_level: bool = False,
    context_dim: int = 0,
    context_kernel: Kernel | None = None,
    contexts: Tensor | int | None = None,
    matters: Sequence[int] | None = None,
    width: float | None = None,
    share: float = 0.001,
    behind: float = 12.0,
    plausible: float = PLAUSIBLE,
    look_again: float | None = None,
    max_move: float | Tensor | None = None,
    move_price: float | Tensor = 0.0,
    start_at: int | Tensor | None = None,
) -> Policy:
    """Averages over kernels, noises and rates of change, weighted by how well each predicts; needs only the choices.

    Given only the choices, multiplying or shifting rewards, or another unit of time, does not change what it chooses.
    Without a kernel or history, all arms are tried eventually if there are up to 16 or they have no features
    (``try_all``); up to 500 arms, a quarter of the weight is then on members that drift smoothly (``SmoothMembers``).
    Members with a given kernel, or a history's, have 9/10 of the prior weight; the others limit the cost of a wrong
    one. Up to 500 arms there are also members with a kernel of shorter range (``sharper``). Over a ``Domain`` it first
    avoids the ends of ranges.

    Args:
        kernel: None if unknown, else as for the other recipes.
        noise_variance: None if unknown; only with ``kernel`` or ``history``.
        prior_mean: only with ``kernel``, over arms without contexts or with listed ones; elsewhere it is learned.
        history: (T, N) past rewards of the arms, NaN where missing. Their covariance (``estimate_covariance``) and
            means replace ``kernel`` and ``prior_mean``.
        history_times: (T,) times of its rows, in the policy's unit of time. None: the rows are one unit apart, the last
            at time 0, as in ``Replay``. Only cycles use them.
        cycles: one or several periods of the rewards, in units of time; ``"find"``: those found in the history
            (``find_periods``); None: none. Half of the prior weight is then on members with cycles
            (``CyclicMembers``). Each arm's cycle is fitted to a history (``fit_cycles``), up to 500 arms, or learned
            without one, up to 200 arms; such a member takes as much memory as 25 others. ``Cycles``: known together
            with a ``kernel``, as in ``Replay``.
        context_dim, context_kernel, contexts, matters: for steps with a context; see below.
        log: a ``Log`` of past pulls, drawn in any way. Each reward is learned with its time, in order, as if the policy
            had pulled the arm. Later times count in the same unit. ``reset`` forgets the log. Only over arms. It also
            sets the contexts if neither ``contexts`` nor ``context_dim`` is given.
        control: an arm with which the others are compared, among up to 200 arms. ``control_share`` of the traffic goes
            to it at random, and arms are chosen by their lift over it (``ControlledPolicy``, ``AskTell.lift``). Members
            learn a level, with its cycles, that is common to all arms (``LevelMembers``). A kernel or history sets only
            the correlations of the arms' differences.
        control_share: in (0, 1/2].
        shared_level: whether all rewards may rise and fall together, by day and night for example, while the order of
            the arms stays for longer; among up to 200 arms. Half of the prior weight is then on members with such a
            level, and no period need be known.
        width: multiplies the mixture's standard deviation. None: 1.25; with a kernel or history 2 at every tenth
            choice; over a ``Domain`` and under contexts that are not listed 1.
        share, behind: see ``FixedShare``.
        look_again: c of ``ModelAveraging``. None: 7, for more than 30 arms 7 sqrt(N / 30); but 8.5 with features and no
            kernel or history, and 14 with a kernel that relates arms (a squared correlation of 1/2 or more), then with
            at most six looks within c sqrt(t + 300) steps. Over a ``Domain``: c of ``PointAveraging``, None for 7. 0:
            never.
        max_move, move_price, start_at: see ``CostlyMoves``, which wraps the policy if any of them is given: how far a
            setting of a ``Domain`` may move in a step, as a share of its range; the price of a move or switch of arms.
        plausible: see ``ModelAveraging``; not for a ``Domain``, which has no such checks.
        search, seed: how a ``Domain`` is searched (``auto_over_points``, which says how it uses a ``kernel``).

    Members: up to 500 arms P = 21 (without features) to 129, with cycles up to 213 for one period; above 500 arms about
    30, of rank 100. Memory O(S P N^2), above 500 arms O(S P N). The number of arms at the start decides: members do not
    change when arms are added. Above 500 arms, a new arm with little correlation to the others adds to the rank (<=
    200).

    Under a context (``ArmContext``; ``context_dim`` numbers a step) ``contexts`` lists all that can occur, (M, c), or
    gives their number, for contexts 0 to M - 1. The members are then over the N M pairs of arm and context
    (``PairAveraging``). If contexts are not listed, members are over features and context (``ContextAveraging``), hold
    200 observations, and learn length-scales as over a ``Domain``. Members differ in whether the context matters at
    all, and in which of its numbers do; ``matters`` names the columns that do. ``context_kernel`` is given if and only
    if ``kernel`` is. For pairs with contexts that are only counted ``look_again`` is by default that of unrelated arms,
    and 12 if numbers or a kernel relate up to 64 pairs. With more pairs, and for contexts that are not listed, it is 0,
    because looks at many related pairs cost too much while nothing changes.

    Source: fixed share (Herbster & Warmuth 1998); the grids, the unit learned online and the checks are ours. No
    theorem bounds its regret. Raises ValueError for arguments that contradict each other or have no effect, and for
    more than 500 arms without features or a kernel.
    """
    validation.instance("shared_level", shared_level, bool, "True or False")
    of_contexts: dict[str, Any] = {"context_dim": validation.natural("context_dim", context_dim) or None}
    of_contexts |= {"contexts": contexts, "context_kernel": context_kernel, "matters": matters}
    if isinstance(log, Log) and context_dim == 0 and contexts is None:
        of_contexts |= log.context_options
    under_contexts = of_contexts["context_dim"] is not None or of_contexts["contexts"] is not None
    moves: dict[str, Any] = {"max_move": max_move, "move_price": move_price, "start_at": start_at}
    moves_cost = not (max_move is start_at is None and validation.is_number(move_price) and move_price == 0)
    alone = not moves_cost or (control is None and not under_contexts)
    validation.require(alone, ", ".join(moves), moves, "left out with a control or contexts")
    settings: dict[str, Any] = {"width": width, "plausible": plausible, "look_again": look_again}
    sharing: dict[str, Any] = {"share": share, "behind": behind}
    policy: Policy
    if control is None:
        _left_out(f"{_SHARE} without a control", control_share=control_share)
    if setup.domain is not None:
        past = {"log": log, "history": history, "history_times": history_times}
        _left_out("None if the choices are a Domain", control=control, **past)
        _left_out("left out over a Domain, where a context is a fixed feature", **of_contexts)
        _left_out("False if the choices are a Domain", shared_level=shared_level)
        without = isinstance(cycles, str | None) and not checked_periods(cycles)
        validation.require(without, "cycles", cycles, f"{FIND!r} or None if the choices are a Domain")
        _left_out("left at its default over a Domain", plausible=plausible)
        _left_out("0 over a Domain, where it is learned", prior_mean=setup.prior_mean)
        kernel = setup.kernel
        validation.require(not isinstance(kernel, Tensor), "kernel", kernel, "a kernel over points, or None")
        policy = auto_over_points(
            setup.domain,
            cast(Kernel | None, kernel),
            setup.noise_variance,
            replicates=setup.replicates,
            seed=setup.seed,
            search=setup.search,
            width=1.0 if width is None else width,
            look_again=_LOOK_AGAIN if look_again is None else look_again,
            **sharing,
        )
    else:
        features, kernel, prior_mean = _prior_of(setup, history)
        if control is not None:  # the level learns cycles
            unsaid = isinstance(cycles, Cycles) or cycles in (None, FIND)
            validation.require(unsaid, "cycles", cycles, f"{FIND!r} or None with a control")
            _left_out("False with a control, whose members always share a level", shared_level=shared_level)
            cycles = None
        known = _cycles(features, setup.grown_from, history, history_times, cycles)
        if under_contexts:
            given = None if known is None else cycles
            _left_out("None under contexts", history=history, cycles=given, control=control)
            _left_out("False under contexts", shared_level=shared_level)
            policy = _under_contexts(setup, features, of_contexts, settings | sharing)
        else:
            _left_out("None without a context (context_dim 0)", **of_contexts)
            of_kernel = isinstance(cycles, Cycles)  # its noise variance was estimated without the cycles
            policy = _over_arms(
                setup,
                features,
                kernel,
                prior_mean,
                known,
                of_kernel,
                control,
                shared_level,
                settings,
                sharing,
            )
        if log is not None:
            _learn_log(policy, log, features)
        if control is not None:
            policy = ControlledPolicy(policy, control, control_share, **setup.seeds)
    return CostlyMoves(policy, setup.domain, search=setup.point_search, **moves) if moves_cost else policy


def _left_out(expected: str, **given: Any) -> None:
    """Raise a ValueError that names the first of these arguments that is not at its default."""
    for name, value in given.items():
        usual = _DEFAULTS.get(name)
        same = value is None if usual is None else not isinstance(value, Tensor) and value == usual
        validation.require(same, name, value, expected)


def _prior_of(setup: Setup, history: Tensor | None) -> tuple[Tensor, Kernel | Tensor | None, Number | Tensor]:
    """Features, kernel and prior mean, given or estimated from the history.

    Raises ValueError for an argument that the history determines, or that would have no effect.
    """
    choices = setup.choices
    if isinstance(choices, Tensor) and (choices.is_floating_point() or choices.is_complex()):
        fits = choices.dtype in (torch.float32, torch.float64)
        validation.require(fits, "arms", choices.dtype, "float32 or float64")
    features = setup.features
    validation.of_shape("arms", features, ("N", "d"), note=", the same for every replicate")
    kernel, noise_variance, prior_mean = setup.kernel, setup.noise_variance, setup.prior_mean
    said = {"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, "history": history}
    for name, one in said.items():
        real = not (isinstance(one, Tensor) and one.is_complex())
        validation.require(real, name, getattr(one, "dtype", None), "real numbers")
    if history is not None:
        _left_out("None with a history, which determines it", kernel=kernel)
        _left_out("0 with a history, which determines it", prior_mean=prior_mean)
        validation.of_shape("history", history, ("T", len(features)), note=", a column for each arm")
        past = history.to(features)
        try:
            kernel, prior_mean = estimate_covariance(past), past.nanmean(0)
        except ValueError as error:
            raise ValueError(f"history: {error}") from error
        differ = bool(kernel.diagonal().mean() > 0)
        validation.require(differ, "history", history, "of rewards that differ within an arm")
    if kernel is None:
        _left_out("None if neither kernel nor history is given", noise_variance=noise_variance)
        _left_out("0 if no kernel is given", prior_mean=prior_mean)
    if noise_variance is not None:
        noise = inputs.noise_over(features, noise_variance)
        validation.of_shape("noise_variance", noise, (), (setup.replicates,))
    return features, kernel, prior_mean


def _over_arms(
    setup: Setup,
    features: Tensor,
    kernel: Kernel | Tensor | None,
    prior_mean: Number | Tensor,
    known: Cycles | None,
    of_kernel: bool,
    control: int | None,
    shared_level: bool,
    settings: dict[str, Any],
    sharing: dict[str, Any],
) -> ModelAveraging:
    """``auto`` over arms; ``of_kernel``: the known cycles were given with a kernel, not found in a history."""
    first = setup.grown_from
    groups = families(features, kernel, setup.noise_variance, first)
    if known is not None:
        residuals = None
        if len(known.residuals):
            residuals = estimate_covariance(torch.from_numpy(known.residuals).to(features))
            least = _LEAST * groups[0].shape.diagonal().mean()  # for arms that the cycles explain completely
            residuals = residuals + least * torch.eye(len(features)).to(features)
        groups = with_cycles(groups, features, residuals, None if of_kernel else setup.noise_variance)
    K, related = groups[0].shape[:first, :first], setup.kernel is not None
    if related and K.shape[0] == K.shape[1]:  # whether any two arms are strongly correlated
        variance = K.diagonal()
        strong = (K.square() >= 0.5 * variance.unsqueeze(-1) * variance) & (K != 0)
        related = bool(strong.fill_diagonal_(False).any())
    if len(features[:first]) > _LEARNED_UP_TO:
        _left_out(f"None for more than {_LEARNED_UP_TO} arms", control=control)
        _left_out(f"False for more than {_LEARNED_UP_TO} arms", shared_level=shared_level)
    if control is not None:
        groups = of_level(groups)
    elif shared_level:
        groups = with_level(groups)
    groups = in_one_unit(groups, first)
    width, look_again = settings["width"], settings["look_again"]
    alone = spread(features, first) is None
    if look_again is None and related:
        look_again = _LOOK_AGAIN_RELATED
    elif look_again is None:
        by_features = kernel is None and not alone
        look_again = _LOOK_AGAIN_FEATURES if by_features else _of_unrelated(len(features[:first]))
    own = {
        "width": 1.25 if width is None else width,
        "wide": _WIDE if width is None and kernel is not None else 0.0,
        "plausible": settings["plausible"],
        "look_again": look_again,
        "at_once": _AT_ONCE if related else 0,
        "try_all": kernel is None and (len(features) <= _FEW or alone),
    }
    return _policy(features, groups, prior_mean, setup.replicates, known, control, own, sharing)


def _of_unrelated(arms: int) -> float:
    """c of ``LookingAgain`` for this number of unrelated arms."""
    return _LOOK_AGAIN * math.sqrt(max(1.0, arms / _UNRELATED))


def _learn_log(policy: Policy, log: Log, features: Tensor) -> None:
    """Learn every reward of a log as if the policy had pulled its arm, under its context."""
    validation.instance("log", log, Log, "a Log")
    validation.require(log.num_arms == len(features), "log", log.num_arms, f"one of {len(features)} arms")
    past = (log.times.tolist(), log.arms.long().to(features.device), log.rewards.to(features))
    whys: list[dict[str, Tensor]] = [{}] * len(log.arms)
    if isinstance(policy, UnderContexts):
        c = policy.context_dim
        found = 0 if log.contexts is None else log.contexts.shape[1]
        validation.require(found == c, "log", found, f"one with {c} numbers of a context")
        inputs = torch.cat([policy.arms[past[1]], cast(Tensor, log.contexts).to(policy.arms)], -1)
        whys = [{INPUTS: row.expand(policy.replicates, -1)} for row in inputs]
    for time, arm, reward, why in zip(*past, whys, strict=True):
        policy.learn(Observation(time, arm.expand(policy.replicates), reward.expand(policy.replicates), why))


def _under_contexts(
    setup: Setup, arms: Tensor, given: dict[str, Any], own: dict[str, Any]
) -> PairAveraging | ContextAveraging:
    """``auto`` under contexts, listed or not."""
    contexts, context_kernel, matters = given["contexts"], given["context_kernel"], given["matters"]
    if isinstance(contexts, int):
        contexts = torch.arange(validation.positive_integer("contexts", contexts)).to(arms).unsqueeze(-1)
    c = given["context_dim"]
    if contexts is not None:
        check_contexts(contexts)
        c = c or contexts.shape[-1]
        validation.of_shape("contexts", contexts, ("M", c), note=f", with context_dim {c}")
    if matters is not None:
        columns = list(matters) if isinstance(matters, Sequence) else []
        fits = 0 < len(columns) == len(set(columns)) and all(k in range(c) for k in columns)
        validation.require(fits, "matters", matters, f"a list of different columns from 0 to {c - 1}")
    both = (setup.kernel is None) == (context_kernel is None)
    validation.require(both, "context_kernel", context_kernel, "given if kernel is, and only then")
    width, plausible, look_again = (own.pop(name) for name in ("width", "plausible", "look_again"))
    if contexts is None:
        _left_out(f"{PLAUSIBLE} if contexts are not listed", plausible=plausible)
        _left_out("0 if contexts are not listed", look_again=look_again or None)
        _left_out("0 if contexts are not listed: it is learned", prior_mean=setup.prior_mean)
        width = 1.0 if width is None else width
        return _under_any_context(setup, arms, c, context_kernel, matters, width, own)
    kernel, mean, contexts = setup.kernel, setup.prior_mean, contexts.to(arms)
    if kernel is not None:
        over_arms, arms = kernel_over_arms(setup, arms)
        kernel = arm_context_kernel(over_arms, context_kernel, arms.shape[-1], c)
    if isinstance(mean, Tensor) and mean.dim() == 1:
        mean = mean.repeat_interleave(len(contexts))
    groups = families_of_pairs(arms, contexts, kernel, setup.noise_variance, setup.grown_from, matters)
    related = kernel is not None or spread(contexts if matters is None else contexts[:, matters]) is not None
    many = related and (setup.grown_from or len(arms)) * len(contexts) > _MANY_PAIRS
    if look_again is None and related:
        look_again = 0.0 if many else _LOOK_AGAIN_CONTEXTS
    elif look_again is None:
        look_again = _of_unrelated((setup.grown_from or len(arms)) * len(contexts))
    settings = {"width": 1.25 if width is None else width, "plausible": plausible}
    settings |= {"look_again": look_again, "at_once": _AT_ONCE if many else 0}
    pairs = pairs_of(arms, contexts)
    policy = _policy(pairs, groups, mean, setup.replicates, None, None, settings, own)
    return PairAveraging(policy, arms, contexts)


def _cycles(
    features: Tensor,
    first: int | None,
    history: Tensor | None,
    times: Tensor | None,
    given: str | float | Sequence[float] | Cycles | None,
) -> Cycles | None:
    """The given cycles, or those found in the history; without residuals if only their periods are known. Limits on the
    number of arms count the ``first`` arms (None: all)."""
    n = len(features)
    if times is not None:
        validation.require(history is not None, "history_times", times, "None if there is no history")
        fits = validation.finite_tensor("history_times", times).shape == cast(Tensor, history).shape[:1]
        fits = fits and bool((times.diff() > 0).all())
        validation.require(fits, "history_times", times, "an increasing number for each row of history")
    if isinstance(given, Cycles):
        validation.require(history is None, "cycles", given, "periods if a history is given")
        profile = torch.from_numpy(given.profile)
        validation.of_shape("cycles", profile, ("2 J", n), note=", a column for each arm")
        return given if len(features[:first]) <= FULL_UP_TO else None
    lengths = checked_periods(given)
    most = FULL_UP_TO if history is not None else _LEARNED_UP_TO
    expected = f"{FIND!r} or None for more than {most} arms"
    few = len(features[:first]) <= most
    validation.require(few or not lengths, "cycles", given, expected)
    if history is not None and few:
        at = None if times is None else times.double().cpu().numpy()
        return fit_cycles(history.double().cpu().numpy(), at, lengths or cast(str | None, given))
    if not lengths:
        return None
    waves = (_HARMONICS,) * len(lengths)
    return Cycles(tuple(lengths), waves, np.zeros(n), np.zeros((2 * sum(waves), n)), np.zeros((0, n)))


def _policy(
    features: Tensor,
    groups: Sequence[Family],
    prior_mean: Number,
    replicates: int,
    cycles: Cycles | None,
    control: int | None,
    own: dict[str, Any],
    sharing: dict[str, Any],
) -> ModelAveraging:
    mean = inputs.prior_mean_over(features, prior_mean)
    n = features.shape[-2]
    validation.of_shape("prior_mean", mean, (), (n,))
    levelled = [family for family in groups if family.level is not None]
    forgetting = [
        family for family in groups if not (family.smooth or family.cycle is not None or family.level)
    ]
    smooth = [family for family in groups if family.smooth]
    cyclic = [family for family in groups if family.cycle is not None]
    rows, columns = groups[0].shape.shape
    build: Any = ArmMembers if rows == columns else LowRankMembers
    of_all = (build, forgetting), (SmoothMembers, smooth), (partial(LevelMembers, control=control), levelled)
    kinds: list[tuple[Any, list[Family], Tensor]] = [(*one, mean.expand(n)) for one in of_all if one[1]]
    if cycles is not None and len(cycles.residuals):
        profile, level = (torch.from_numpy(part).to(features) for part in (cycles.profile, cycles.levels))
        whole: dict[str, Any] = {"periods": cycles.periods, "harmonics": cycles.harmonics, "profile": profile}
        kinds += [(partial(CyclicMembers, **whole), cyclic, level)]
    elif cycles is not None:  # each member learns one cycle: a wrong period then misleads no other member
        each = [replace(family, weight=family.weight / len(cycles.periods)) for family in cyclic]
        for period, count in zip(cycles.periods, cycles.harmonics, strict=True):
            kinds += [(partial(CyclicMembers, periods=[period], harmonics=[count]), each, mean.expand(n))]
    parts, weights, strengths = [], [], []
    for kind, of_kind, level in kinds:
        part, weight, strength = _members(kind, features, of_kind, level, replicates)
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
    kind: Callable[..., RecursiveMembers],
    features: Tensor,
    groups: Sequence[Family],
    prior_mean: Tensor,
    replicates: int,
) -> tuple[RecursiveMembers, list[float], list[float]]:
    """A model of the members of these families, with the prior weight and the strength of each member."""
    members = [
        (g, noise, rate, family.weight / (len(family.noises) * len(family.rates)), strength)
        for g, family in enumerate(groups)
        for strengths in [family.strengths or [0.0] * len(family.noises)]
        for (noise, strength), rate in product(zip(family.noises, strengths, strict=True), family.rates)
    ]
    kernel, noise, rate, weight, strength = zip(*members, strict=True)
    believes = features.new_tensor(strength) > 0
    rank = max(family.shape.shape[-1] for family in groups)
    shapes = [pad(family.shape, (0, rank - family.shape.shape[-1])) for family in groups]
    own = {}
    if groups[0].cycle is not None:
        own = {"share": features.new_tensor([groups[g].cycle for g in kernel])}
    if groups[0].level is not None:
        ratio, timescale = features.new_tensor([groups[g].level for g in kernel]).T
        level_variance = ratio * torch.stack([value.mean() for value in noise])
        own = {"level_variance": level_variance, "timescale": timescale}
    model = kind(
        features,
        torch.stack(shapes),
        torch.tensor(kernel, device=features.device),
        torch.stack([value.expand(replicates) for value in noise], -1),
        features.new_tensor(rate),
        prior_mean=torch.where(believes.unsqueeze(-1), prior_mean, 0.0),
        replicates=replicates,
        **own,
    )
    return model, list(weight), list(strength)

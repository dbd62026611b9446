"""The contract of a policy: it chooses, it learns, and it never sees the problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.description import Described
from bandits_torch.state import HasState


@dataclass(frozen=True, eq=False)
class Origin:
    """The recipe call that made a policy, ``recipe(setup, **options)``. Copies of the policy share it."""

    recipe: Callable[..., Policy]
    setup: Any
    options: Mapping[str, Any]

    def __deepcopy__(self, memo: dict[int, Any]) -> Origin:
        return self


@dataclass(frozen=True)
class Choice:
    """The choice of a policy at a step.

    Attributes:
        arm: index of the arm of each replicate, (S,) integers; on a continuous domain its points, (S, d).
        why: what ``learn`` needs from this choice (the width, the prior, ...).
    """

    arm: Tensor
    why: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """The reward of a choice.

    Attributes:
        time: when the arm was pulled (not when the reward arrived), in the problem's unit.
        arm: (S,) integers or (S, d) points, as chosen.
        reward: (S,) rewards; the replicates learn together.
        why: the ``why`` of the choice.
        outcomes: (S, m) quantities measured with the reward, in the order of the policy's ``outcome_names``; None for
            a policy that learns none.
        noise_variance: (S,), of these rewards; None: the model's. Policies that cannot use it refuse it.
    """

    time: float
    arm: Tensor
    reward: Tensor
    why: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Tensor | None = None
    noise_variance: Tensor | None = None


@dataclass(frozen=True)
class Pending:
    """A choice whose reward is not known yet: what BoTorch calls a pending point.

    Attributes:
        time: when the choice was made, in the problem's unit.
        arm: (S,) integers or (S, d) points.
        why: the ``why`` of the choice.
    """

    time: float
    arm: Tensor
    why: Mapping[str, Any] = field(default_factory=dict)


Expect = Callable[[Pending], None]


class Policy(Described, HasState, ABC):
    """Chooses an arm, or a point, for each of S replicates and learns from the rewards.

    A subclass writes ``choose``, ``learn`` and, if observations change anything, ``_fresh`` and ``_parts``, from which
    ``reset``, ``state_dict`` and ``load_state_dict`` follow (``HasState``).

    ``choose`` advances the random streams and changes nothing else; ``learn`` updates the policy. ``run`` alternates
    the two. A live system may not; then every policy behaves as follows:

    * Missing: nothing is learned from a choice without a reward. Every clock (of widths, windows, restarts) counts
      learned observations, not choices.
    * Late or out of order: each policy documents whether it learns late rewards; otherwise they raise ValueError. By
      default, windows, weights, restarts and tests use the order of arrival.
    * Twice: an observation learned twice counts twice, because it has no number. ``AskTell`` numbers them.
    * Time may jump forward by any amount. If the model drifts, ``choose`` at a time before the latest
      observation is a ValueError.
    * The state is consistent between calls, so another process can take over (``save_policy``).

    Attributes:
        replicates: S.
        num_arms: N; 0 on a continuous domain.
        dim: d, the dimension of a point; 0 with arms.
        outcome_names: what it learns in addition to the reward; others refuse an observation with outcomes.
        needs_unit: why it cannot learn its rewards again in another unit (``StandardisedPolicy``); empty if it can.
        restarts_with_arms: why it starts again when arms are added or retired (``AskTell.add_arms``); empty if it
            continues.
        needs_choices: why what it chooses must be played as it is; empty if another arm or point may be played instead.
        search: over a domain, what rounds the points of a policy that ``needs_choices``.
        learns_where: whether it can learn a reward in some replicates only, with ``learn_where``, as ``Master`` needs.
        origin: how a recipe made it; None for a policy built otherwise.
        takes_contexts: whether ``choose`` and ``marginals`` take a context.
        knows_past: whether its posterior is also right at times before the latest reward learned, because it holds all
            rewards.
    """

    replicates: int
    num_arms: int
    dim: int = 0
    outcome_names: tuple[str, ...] = ()
    needs_unit: str = ""
    restarts_with_arms: str = ""
    needs_choices: str = ""
    search: PointSearch = PointSearch()
    learns_where: bool = False
    origin: Origin | None = None
    takes_contexts: bool = False
    knows_past: bool = False
    _expects: ClassVar[tuple[str, ...] | None] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a class that overrides ``expecting``, because policies around it would not use that method."""
        super().__init_subclass__(**kwargs)
        if "expecting" in vars(cls):
            raise TypeError(
                f"{cls.__name__} must say in expect() what a pending pull does, not in expecting()"
            )

    @property
    def innermost(self) -> Policy:
        """The policy whose beliefs are read: this one, or the one inside it."""
        return self

    @abstractmethod
    def choose(self, time: float, available: Any = None) -> Choice:
        """Choose at ``time`` among the arms with ``available`` True ((N,) or (S, N); None: all).

        On a continuous domain ``available`` is the ``Domain`` of this step; None: the policy's own. Policies over arms
        that take contexts also accept an ``ArmContext``. An arm that is not available is never chosen.
        """

    def choose_many(
        self, time: float, count: int, available: Any = None, pending: Sequence[Pending] = ()
    ) -> list[Choice]:
        """Make ``count`` choices at ``time``, one after another. Each counts those before it as pending.

        This is like BoTorch's sequential batches with ``X_pending``. A pending pull lowers the variance at once, but
        does not change the mean: the posterior is as if the model had observed its own posterior mean (GP-BUCB,
        Desautels, Krause & Burdick 2014, section 3.2). Policies that draw make independent draws. For policies without
        a model see ``expect``. Like ``choose``, it advances the random streams and changes nothing else.

        Args:
            time, available: see ``choose``; the same for all choices.
            count: q >= 1.
            pending: earlier choices that are not learned yet. One at a later time than ``time`` counts as made at
                ``time``.

        Cost: a copy of the belief, and a step for each of ``pending`` and of the choices. Raises ValueError as
        ``choose``, for a ``count`` that is not an integer >= 1, and for ``pending`` of the wrong kind.
        """
        validation.positive_integer("count", count)
        for one in pending:
            self._check_pending(one)
        if count == 1 and not pending:
            return [self.choose(time, available)]
        validation.finite_number("time", time)
        choices: list[Choice] = []
        with self.expecting(time) as expect:
            for one in pending:
                expect(one if one.time <= time else replace(one, time=time))
            for k in range(count):
                choices.append(self.choose(time, available))
                if k + 1 < count:
                    expect(Pending(time, choices[-1].arm, choices[-1].why))
        return choices

    def _check_pending(self, one: Any) -> None:
        """Raise ValueError unless this is a ``Pending`` choice of every replicate (values are checked on a CPU
        only)."""
        validation.instance("pending", one, Pending, "Pending choices")
        validation.finite_number("pending.time", one.time)
        validation.instance("pending.why", one.why, Mapping, "a mapping, the why of the choice")
        shape = (self.replicates, self.dim) if self.dim else (self.replicates,)
        arm = validation.of_shape("pending.arm", one.arm, shape)
        right = arm.is_floating_point() if self.dim else arm.dtype == torch.long
        if right and arm.is_cpu:
            right = bool((arm.isfinite() if self.dim else (arm >= 0) & (arm < self.num_arms)).all())
        expected = "finite points" if self.dim else f"int64 from 0 to {self.num_arms - 1}"
        validation.require(right, "pending.arm", arm, expected)

    def check_rounding(self, to: Any) -> None:
        """Raise ValueError if points are rounded ``to`` other values (``rounds_to``) than by the policy's own search,
        and it needs its choices."""
        fits = to is None or not self.needs_choices or self.search.rounds_to == to
        expected = f"a MixedSearch over the values to which points are rounded: {self.needs_choices}"
        validation.require(fits, "search", self.search, expected)

    @contextmanager
    def expecting(self, time: float) -> Iterator[Expect]:
        """Yields a function. Within the block, choices at ``time`` count the pulls passed to it as pending. Afterwards
        the policy is as before, to the last bit, except for its random streams."""
        with self.put_aside():
            yield torch.no_grad()(lambda pending: self.expect(pending, time))

    def expect(self, pending: Pending, time: float) -> None:
        """Count a pull as pending, for choices at ``time``. This changes only what ``_expects`` names, and is called
        only while that is ``put_aside``. A policy without this method ignores pending pulls, which is right if it
        draws every choice independently."""

    def dropped(self, pending: Pending) -> None:
        """The reward of this choice will never come. Most policies ignore this."""

    def numbers_per_step(self, observations: int) -> int:
        """About how many numbers a step reads: the covariance of all arms, or of the observations over a domain.

        ``run`` and ``AskTell`` use it to decide whether CPU threads pay.
        """
        return (self.num_arms or observations) ** 2 * self.replicates

    def changes_found(self) -> Tensor | None:
        """How often each replicate has restarted because its rewards contradicted what it had learned, (S,); None for a
        policy without such a test."""
        return None

    def mean_rewards(self) -> Tensor | None:
        """The mean rewards (S, N) that a policy without a posterior uses; None for any other policy."""
        return None

    @abstractmethod
    def learn(self, observation: Observation) -> None:
        """Learn the outcome of a choice. A ValueError leaves the policy unchanged."""

    def reset(self, where: Tensor | None = None) -> None:
        """See ``HasState``. Raises ValueError, with nothing changed, unless ``where`` is (S,) booleans."""
        if where is not None:
            validation.of_shape("where", where, (self.replicates,))
            validation.require(where.dtype == torch.bool, "where", where.dtype, "booleans")
        super().reset(where)

    def trace(self) -> dict[str, Tensor | float]:
        """Numbers that the loop records after a step, each a scalar or (S,)."""
        return {}


def natural_in(one: Observation | Pending, name: str, usual: int) -> int:
    """The integer >= 0 of this name in ``why``, or ``usual`` if there is none. Raises ValueError for other values."""
    validation.instance("why", one.why, Mapping, "a mapping, the why of the choice")
    return validation.natural(f"why[{name!r}]", one.why.get(name, usual))


def check_turn(observation: Observation, turn: int) -> None:
    """Raise ValueError if ``why["turn"]``, the number of rewards before the choice, is not the present number."""
    made = natural_in(observation, "turn", turn)
    expected = f"{turn}, of a choice made since the last reward: this policy learns no reward late or twice"
    validation.require(made == turn, "why['turn']", made, expected)

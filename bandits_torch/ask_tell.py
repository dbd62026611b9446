"""A policy in a live system: questions have numbers, and answers may come late, twice, out of order or never."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast, overload

import pandas as pd
import torch
from torch import Tensor

from bandits_torch import border, recipes, validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.border import Settings, Times, for_each, numbers, outcomes_of
from bandits_torch.description import Described
from bandits_torch.domain import Domain
from bandits_torch.growth import Roster
from bandits_torch.mixed_points import MixedSearch
from bandits_torch.policies.counted import KINDS, LatentRewards
from bandits_torch.policies.policy import Observation, Pending, Policy
from bandits_torch.policies.wrapping import StandardisedPolicy
from bandits_torch.problems.logs import Log
from bandits_torch.state import unchanged_on_error
from bandits_torch.threads import Turn, fitting
from bandits_torch.watch import Watch, Watched

_BEFORE = "before other arms"  # key in ``Pending.why``: the policy restarted with other arms after the choice


@dataclass(frozen=True)
class Question:
    """An arm to pull, and the number under which to report its reward.

    Attributes:
        id: 0, 1, 2, ... in the order of asking.
        time: when it was asked: a number, or a ``datetime`` where times are dates.
        arm: (S,) integers, or (S, d) points.
        name: the arm in plain values: its name, or its number; settings by name, or a list of numbers. With several
            replicates, a list of these.
    """

    id: int
    time: Any
    arm: Tensor
    name: Any = None

    def __repr__(self) -> str:
        return f"Question(id={self.id}, time={self.time}, name={self.name!r})"


class AskTell(Watched, Described):
    """Turns a policy's choices into numbered questions. A reward needs only the number of its question.

    * Late or out of order: the policy learns the reward as of the time of its question (``Policy``). One that cannot
      raises ValueError, with nothing changed: ``drop`` the question.
    * Twice: the first reward counts; a later ``tell`` of the same number is ignored and returns False.
    * Several at once: open questions are pending pulls (``Policy.choose_many``). They lower the variance and leave the
      mean, so q open questions differ unless one is worth asking twice.
    * Never: ``drop`` a question that nobody will answer. Until then it is pending and adds a step to every choice.
    * Threads: calls run one at a time. Copies (``copy``, ``pickle``) wait for their turn and are independent.
    * Interrupts: a KeyboardInterrupt within ``tell`` may leave a reward half learned; then load the last save.
    * CPU threads: a call uses one thread if its step is small; a number that you set yourself stays (see ``run``).
    * Forks: in the child, calls that change anything raise RuntimeError, because the child would repeat the parent's
      questions and random numbers. They work again once the child has loaded the file that the processes share.

    It moves between processes as a policy does, with its open questions and their history::

        live = AskTell(recipes.tv_gp_ucb(arms, kernel, noise_variance))
        load_policy(path, live)
        question = live.ask(time)
        save_policy(path, live)      # another process may tell

    If two processes load the same save and both ask or tell, the second to save gets a ValueError and must load, ask
    and tell again (``save_policy``). Act on a question only after saving.

    Args:
        policy: chooses and learns; use it only through this object.
        rewards: ``"numbers"``; or ``"binary"`` or ``"counts"``, for a policy over log-odds or the logarithm of a rate
            (``LatentRewards``).
        standardise: whether the policy learns (reward - mean) / standard deviation, for a policy that does not know the
            unit of rewards (``StandardisedPolicy``); ``unit`` returns both numbers.
        names: different words, one for each arm; files keep them. ``ask`` then takes a list of names as a mask.
        context_names: different words, one for each context listed as 0, 1, ...; ``ask`` then takes one of them.
        settings: settings by name, for a policy over the points of ``settings.space.domain()``.
        time_unit: "s", "min", "h" or "D", the unit in which the policy counts dates. A time may be a number, or a date:
            a ``datetime``, a ``date`` (its midnight), ``pandas.Timestamp``, ``numpy.datetime64`` or a string in
            ISO 8601. All times must be of the same kind as the first. Files keep its kind and its zone.
        keep: number of latest questions that ``history()`` shows, an integer >= 0; the state holds them.

    Raises ValueError for a policy that cannot learn such ``rewards`` or cannot ``standardise``, for ``standardise``
    with other rewards than numbers, and for other arguments out of range.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        rewards: str = "numbers",
        standardise: bool = False,
        names: Sequence[str] | None = None,
        context_names: Sequence[str] | None = None,
        settings: Settings | None = None,
        time_unit: str = "s",
        keep: int = 1000,
    ) -> None:
        validation.instance("policy", policy, Policy, "a Policy")
        validation.one_of("rewards", rewards, "numbers", *KINDS)
        alone = rewards == "numbers" or not standardise
        validation.require(alone, "standardise", standardise, f"False for rewards={rewards!r}")
        self._times = Times(time_unit)
        known = None if names is None else border.checked_names(names, policy.num_arms)
        self.context_names: tuple[str, ...] | None = None
        if context_names is not None:
            contexts = getattr(policy, "contexts", None)
            listed = validation.instance("context_names", contexts, Tensor, "None if contexts are not listed")
            self.context_names = border.checked_names(context_names, len(listed), "context")
        if settings is not None:
            validation.instance("settings", settings, Settings, "Settings")
            dim = settings.space.dim
            validation.require(policy.dim == dim, "settings", dim, f"of {policy.dim} columns, as the policy")
            policy.check_rounding(settings.space.rounds_to)
        self.settings = settings
        self._rewards, self._standardise = rewards, standardise
        retired = torch.zeros(policy.num_arms, dtype=torch.bool)
        self._take(self._wrapped(policy), Roster(policy.origin, policy.num_arms, retired, known))
        self._asked = 0
        self._open: dict[int, Pending] = {}
        self._latest: float | None = None  # time of the latest reward learned
        self._watch = Watch(policy, keep)
        self._turn = Turn()

    def _wrapped(self, policy: Policy) -> Policy:
        """``policy``, or the wrapper around it that ``rewards`` or ``standardise`` needs."""
        if self._rewards != "numbers":
            return LatentRewards(policy, self._rewards)
        return StandardisedPolicy(policy) if self._standardise else policy

    def _take(self, policy: Policy, roster: Roster) -> None:
        self.policy, self.replicates, self.num_arms = policy, policy.replicates, policy.num_arms
        self._roster, self.names = roster, roster.names

    @classmethod
    def auto(
        cls,
        choices: Tensor | int | Domain | Sequence[str] | Mapping[str, Any] | None = None,
        *,
        names: Sequence[str] | None = None,
        time_unit: str = "s",
        keep: int = 1000,
        **knowledge: Any,
    ) -> AskTell:
        """A live system that needs only the choices: the recipe ``auto`` (see ``recipes.auto``).

        Rewards may be in any unit, at any level, and change in any way::

            live = AskTell.auto(12)                       # twelve arms, nothing else known
            question = live.ask(time)
            live.tell(question.id, 5_430.0)

            live = AskTell.auto(["north", "south"])       # question.name is one of these
            live = AskTell.auto({"price": (10.0, 50.0), "mode": ["a", "b"]})

        Args:
            choices: (N, d) features of the arms, their number N, their names, a ``Domain`` of points, or settings by
                name (``Settings``): ``(low, high)``, also with "log" or "integer" after it, or a list of values.
                None: the arms and contexts of ``log=``, by their names.
            names: names of arms that are given by features or by number; arms of ``log=`` are identified by them.
            time_unit, keep: see above.
            knowledge: other keywords of ``recipes.auto``, such as a log of past pulls, a kernel, or replicates. In
                addition, ``cycles`` may be "day" and "week" if times are dates, ``contexts`` a list of names,
                ``control`` the name of an arm; ``max_move``, ``move_price`` and ``start_at`` may be given by name of
                setting (``Settings.moves``). ``history`` may be a ``DataFrame`` with one column per arm, and
                ``history_times`` a list or an index of dates or numbers, by default that of the ``DataFrame`` unless it
                is the ``RangeIndex`` of its rows. Without them, the rows of a history are counted, and later times must
                be numbers, unless ``cycles`` is None. After a ``log``, times are dates if the log's are, and otherwise
                numbers.

        Raises ValueError for choices and settings that the recipe does not take.
        """
        settings, times = None, Times(time_unit)
        log: Log | None = knowledge.get("log")
        if log is not None:
            validation.instance("log", log, Log, "a Log, as read_log returns it")
        if choices is None:
            validation.require(log is not None, "choices", choices, "given if there is no log")
            choices = cast(Log, log).num_arms
        if border.is_sequence_of_words(choices):
            validation.require(names is None, "names", names, "None if choices are names")
            names = border.checked_names(choices, len(choices))
            choices = len(names)
        elif isinstance(choices, Mapping):
            validation.require(len(choices) > 0, "choices", dict(choices), "of one setting or more")
            settings = Settings(choices)
            space = settings.space
            given = {} if (search := knowledge.get("search")) is None else search
            validation.instance("search", given, Mapping, "arguments of a PointSearch")
            knowledge["search"] = MixedSearch(**{"initial": 2 * (space.dim + 1), "space": space, **given})
            choices = space.domain()
            moves = {name: knowledge.pop(name, None) for name in ("max_move", "move_price", "start_at")}
            if any(one is not None for one in moves.values()):
                knowledge |= settings.moves(moves["max_move"], moves["move_price"] or 0.0, moves["start_at"])
        elif not isinstance(choices, Tensor | int | Domain):
            expected = "how many arms there are, their names, their features (a tensor), settings by name or a Domain"
            validation.require(False, "choices", choices, expected)
        if log is not None:
            numbered = log.arm_names == tuple(map(str, range(log.num_arms)))
            if names is None:
                names = None if numbered else log.arm_names
            elif not numbered or set(log.arm_names) <= set(names):
                log = log.over(names)
        by_name = False
        if isinstance(cycles := knowledge.get("cycles"), (str, list, tuple)):
            knowledge["cycles"], by_name = times.periods(cycles)
        moments, past = knowledge.get("history_times"), knowledge.get("history")
        if isinstance(past, pd.DataFrame):
            knowledge["history"] = border.rewards_of_table("history", past, names)
            counts_rows = isinstance(past.index, pd.RangeIndex) and past.index.equals(
                pd.RangeIndex(len(past))
            )
            moments = past.index if moments is None and not counts_rows else moments
        moments = moments.tolist() if isinstance(moments, Tensor) else moments
        if isinstance(moments, Iterable):
            knowledge["history_times"] = times.read_all("history_times", moments)
            times.reason = "as the times of the history"
        for argument in ("control", "start_at"):
            if isinstance(arm := knowledge.get(argument), str):
                knowledge[argument] = border.number_of_arm(argument, arm, names)
        context_names = None
        if border.is_sequence_of_words(knowledge.get("contexts")):
            context_names = knowledge["contexts"]
            knowledge["contexts"] = len(context_names)
            log = None if log is None else log.under(context_names)
        elif log is not None and log.context_names and not knowledge.get("context_dim"):
            context_names = log.context_names
        if log is not None:
            times.zone, times.reason = "number", "as the times of the log"
            if log.dated:
                times.zone = {None: "date", False: "none", True: "zone"}[log.zoned]
                seconds = (log.times * 1e6).floor() / 1e6  # dates have microseconds, as in ``Times``
                log = replace(log, times=seconds / border.SECONDS[time_unit])
            knowledge["log"] = log
        elif past is not None and knowledge.get("cycles", "") is not None and moments is None:
            times.zone = "number"
            times.reason = "as the rows of history are counted: history_times= may give their dates"
        if by_name:
            expected = f"numbers, as times must be, {times.reason}"
            validation.require(times.zone != "number", "cycles", cycles, expected)
            if not times.zone:
                times.zone, times.reason = "date", "as cycles are given by name"
        about: Any = {"names": names, "context_names": context_names, "settings": settings}
        live = cls(recipes.auto(cast(Any, choices), **knowledge), **about, time_unit=time_unit, keep=keep)
        live._times = times
        if log is not None:
            live._latest = float(log.times[-1])
        return live

    @property
    def name(self) -> str:
        """The policy's name."""
        return f"AskTell({type(self.policy).__name__})"

    @property
    def unit(self) -> tuple[Tensor, Tensor] | None:
        """The present offset and scale, (S,) each: the policy learns (y - offset) / scale for a reward y. None without
        ``standardise``."""
        with self._turn.any_process():
            policy = self.policy
            return (policy.offset, policy.scale) if isinstance(policy, StandardisedPolicy) else None

    @property
    def open(self) -> tuple[int, ...]:
        """Numbers of the open questions, oldest first."""
        with self._turn.any_process():
            return tuple(self._open)

    @property
    def asked(self) -> int:
        """How many questions there have been: the number of the next one."""
        with self._turn.any_process():
            return self._asked

    @overload
    def ask(self, time: Any, available: Any = None, *, context: Any = None) -> Question: ...

    @overload
    def ask(
        self, time: Any, available: Any = None, *, context: Any = None, count: int
    ) -> tuple[Question, ...]: ...

    def ask(
        self, time: Any, available: Any = None, *, context: Any = None, count: int | None = None
    ) -> Question | tuple[Question, ...]:
        """Choose at ``time`` among the arms with ``available`` True; see ``Policy.choose_many``.

        Args:
            time: a number, or a date (``time_unit``).
            available: over arms, a mask, also as a list of booleans or of names, or a ``Series`` of booleans by name,
                or an ``ArmContext``; over a domain, the ``Domain`` of this step, or settings by name that are fixed (a
                value) or narrower (``(low, high)``).
            context: over arms, the context of the step: a number, numbers (c,) or (S, c), or one of ``context_names``.
                The reward is learned with it, whenever it is told.
            count: q >= 1 questions, returned as a tuple, as in repeated calls. None: a single question.

        Cost: a step for each question asked or open, and a copy of the belief if any is open. Raises ValueError as
        ``Policy.choose_many``, with nothing asked.
        """
        with self._turn, self._fitting():
            pending = [one for one in self._open.values() if _BEFORE not in one.why]
            wanted = 1 if count is None else count
            number, zone = self._times.read("time", time)
            if self.policy.dim == 0:
                available = border.mask_of_arms(available, self.names, self.num_arms)
                if context is not None:
                    bare = not isinstance(available, ArmContext)
                    validation.require(bare, "context", context, "None together with an ArmContext")
                    available = replace(border.context_of(context, self.context_names), available=available)
                elif not isinstance(available, ArmContext):
                    self._needs_no_context()
                available = self._roster.of_those_here(available)
            else:
                expected = "None over a domain: fix settings instead"
                validation.require(context is None, "context", context, expected)
                if self.settings is not None:
                    available = self.settings.domain(available)
            try:
                choices = self.policy.choose_many(number, wanted, available, pending)
            except ValueError as error:
                if str(error).startswith("time must be"):
                    self._not_past("time", number)
                raise
            if self.settings is not None:
                choices = [replace(one, arm=self.settings.space.snap(one.arm)) for one in choices]
            self._times.zone = zone
            then = self._times.shown(number)
            shown = [border.shown_choice(choice.arm, self.names, self.settings) for choice in choices]
            questions = []
            for choice, name in zip(choices, shown, strict=True):
                questions.append(Question(self._asked, then, choice.arm.clone(), name))  # theirs to change
                self._open[self._asked] = Pending(number, choice.arm, choice.why)
                self._watch.asked(self._asked, number, choice.arm)
                self._asked += 1
            return questions[0] if count is None else tuple(questions)

    def tell(
        self,
        id: int | str | Question,
        reward: float | Tensor,
        *,
        outcomes: Any = None,
        noise_variance: float | Tensor | None = None,
    ) -> bool:
        """Learn the reward, a number or (S,), of a question. Returns False if it was told or dropped before.

        ``id``: the question, its number (an integer), or the name of its arm (text, also ``"2"``) if exactly one open
        question is about that arm.

        ``outcomes``: what was measured besides the reward, for a policy with ``outcome_names``: a mapping from these
        names to numbers or (S,), or numbers in their order, (m,) or (S, m). ``noise_variance``: of this reward alone, a
        number or (S,), in squared units of reward, for a policy that can use it exactly (``IndexPolicy``).

        Raises ValueError, with nothing changed, for an unknown number, a reward that is not finite or that the policy
        can no longer learn, missing outcomes, and outcomes or a noise variance that the policy does not learn.
        """
        value, S = numbers("reward", reward), self.replicates
        measured = None if outcomes is None else outcomes_of(outcomes, self.policy.outcome_names, S)
        noise = None if noise_variance is None else numbers("noise_variance", noise_variance)
        if noise is not None:
            validation.own_noise(noise)
        with self._turn, self._fitting():
            id = self._known(id)
            if id not in self._open:
                return False
            asked = self._open[id]
            device, time = asked.arm.device, asked.time
            rewards = for_each("reward", value, S).to(device)
            measured = None if measured is None else measured.to(device)
            noise = None if noise is None else for_each("noise_variance", noise, S).to(device)
            if _BEFORE not in asked.why:
                self.policy.learn(Observation(time, asked.arm, rewards, asked.why, measured, noise))
            self._latest = time if self._latest is None else max(time, self._latest)
            del self._open[id]
            self._watch.learned(id, self._asked, time, asked.arm, rewards, self.policy)
            return True

    def tell_many(
        self,
        ids: Sequence[int],
        rewards: Any,
        *,
        outcomes: Sequence[Any] | None = None,
        noise_variance: Sequence[Any] | None = None,
    ) -> list[bool]:
        """``tell`` several questions in this order: all of them or, with a ValueError or an interrupt, none.

        ``rewards``: a number or (S,) for each of ``ids``; ``outcomes`` and ``noise_variance`` likewise, if given.
        Cost: a ``tell`` for each, and a copy of the policy's state.
        """
        ids = border.listed("ids", ids)
        given = {"rewards": rewards, "outcomes": outcomes, "noise_variance": noise_variance}
        columns = {
            name: [None] * len(ids) if each is None else border.listed(name, each)
            for name, each in given.items()
        }
        for name, each in columns.items():
            fits = len(each) == len(ids)
            validation.require(fits, name, given[name], f"one for each of the {len(ids)} ids")
        with self._turn, self._fitting(), unchanged_on_error(self):
            return [
                self.tell(id, reward, outcomes=measured, noise_variance=noise)
                for id, reward, measured, noise in zip(ids, *columns.values(), strict=True)
            ]

    def _known(self, id: Any) -> int:
        """The number of a question that was asked; for an arm's name, the only open question about the arm."""
        if isinstance(id, Question):
            id = id.id
        if isinstance(id, str) and self.names is not None:
            arm = border.number_of_arm("id", id, self.names)
            about = [k for k, one in self._open.items() if bool((one.arm == arm).all())]
            expected = f"a name with one open question, or one of the numbers {about}"
            validation.require(len(about) == 1, "id", id, expected)
            return about[0]
        whole = hasattr(id, "__index__") and not isinstance(id, bool | Tensor)
        known = whole and 0 <= operator.index(id) < self._asked
        asked = f", 0 to {self._asked - 1}" if self._asked else " (none was asked yet)"
        validation.require(known, "id", id, f"the number of a question{asked}")
        return operator.index(id)

    def predict(
        self, at: Any, points: Any = None, *, context: Any = None, latent: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of every arm's expected reward at time ``at``, (S, N) each, in units of
        reward; for binary rewards, of a probability, and for counts, of a rate.

        Open questions have no influence.

        Args:
            at: a time, or a date; it may lie in the future. Only a policy that holds all rewards
                (``Policy.knows_past``) accepts a time before the latest reward, and then predicts from later rewards,
                too: an ``IndexPolicy`` that has forgotten nothing, over points, under contexts that are not listed, or
                without drift.
            points: over a domain, (N, d) points, or a list of settings by name.
            context: the context to predict under, if steps have one: as for ``ask``, or an ``ArmContext``.
            latent: whether to predict log-odds (binary rewards) or the logarithm of the rate (counts), whose posterior
                is normal.

        Raises ValueError for a policy without such a posterior (classical ones, the OPKB family, several priors), a
        time that is not finite or is past (see ``at``), points over arms, and no points over a domain. Changes nothing.
        """
        with self._turn.any_process(), self._fitting():
            at, _ = self._times.read("at", at)
            points = border.points_of(points, self.settings)
            over_points = self.policy.dim > 0
            expected = f"(N, {self.policy.dim}) points" if over_points else "None if arms are played"
            validation.require((points is not None) == over_points, "points", points, expected)
            if points is not None:
                size = validation.finite_tensor("points", points).shape
                fits = len(size) == 2 and size[0] > 0 and size[1] == self.policy.dim
                validation.shape_is("points", points, fits, f"(N, {self.policy.dim}), N >= 1")
            inside = self.policy.innermost
            believes = "one that predicts: an IndexPolicy, or an average over members"
            validation.require(hasattr(inside, "marginals"), "policy", type(inside).__name__, believes)
            if not self.policy.knows_past:
                self._not_past("at", at)
            beliefs: Any = self.policy
            known = not latent or hasattr(beliefs, "latent_marginals")
            validation.require(known, "latent", latent, "False unless rewards are binary or counts")
            marginals = beliefs.latent_marginals if latent else beliefs.marginals
            if context is None:
                self._needs_no_context()
            else:
                context = border.context_of(context, self.context_names)
                validation.require(inside.takes_contexts, "context", context, f"None: {self.name} takes none")
            mean, variance = marginals(at, points if context is None else context)
            return mean, variance.clamp_min(0.0).sqrt()

    def _not_past(self, name: str, number: float) -> None:
        """Raise ValueError, with times as they are given, if the time is before that of the latest reward learned."""
        if self._latest is not None and number < self._latest:
            latest, given = self._times.shown(self._latest), self._times.shown(number)
            raise ValueError(f"{name} must be at or after the latest reward learned, {latest}, got {given}")

    def _needs_no_context(self) -> None:
        """Raise ValueError if contexts have names: then one must be given."""
        names = self.context_names or ()
        validation.require(not names, "context", None, f"one of {', '.join(names)}")

    def drop(self, before: Any = None, *, ids: Sequence[int] | None = None) -> int:
        """Remove open questions, asked ``before`` a time (infinity: all) or with these numbers; returns how many.

        They no longer count as pending. Raises ValueError, with nothing changed, for both arguments or neither, a time
        of a different kind from those of questions, and a number that was never asked.
        """
        either = (before is None) != (ids is None)
        validation.require(
            either, "before and ids", (before, ids), "a time, or numbers of questions, not both"
        )
        with self._turn:
            if before is not None and before != float("inf"):
                before, _ = self._times.read("before", before)
            named = set() if ids is None else {self._known(id) for id in border.listed("ids", ids)}
            held = len(self._open)
            for id, one in list(self._open.items()):
                if id in named or (before is not None and one.time < before):
                    del self._open[id]
                    if _BEFORE not in one.why:
                        self.policy.dropped(one)
                    self._watch.dropped(id, self._asked)
            return held - len(self._open)

    def add_arms(
        self,
        arms: Sequence[str] | Sequence[int] | int,
        *,
        features: Tensor | None = None,
        covariance: Tensor | None = None,
        prior_mean: Tensor | None = None,
    ) -> tuple[int, ...]:
        """Add arms as if they had been there from the start, or bring retired arms back; returns their numbers.

        A retired arm comes back with all that is known about it. Open questions stay open, and what was learned stays.
        With features or a covariance, the prior relates a new arm to the others; otherwise nothing is known about it.

        A policy whose designs cover all arms (``Policy.restarts_with_arms``: the OPKB family, R-PERP) restarts with the
        present arms, here and in ``retire_arms``; its random numbers continue. It does not learn the rewards of
        questions that are open then; ``history`` shows them.

        Args:
            arms: names; for arms without names, the number of new arms, or the numbers of retired ones.
            features: (n, d), one row per new arm, if the policy was built with features.
            covariance: (N, N) of all arms, if the policy was built with such a matrix; the block of the old arms must
                be unchanged.
            prior_mean: (n,) of the new arms, if the policy was built with one for each arm.

        Cost: a few times as much as building the policy. An exact Gaussian process learns all its rewards again.

        Raises ValueError, with nothing changed, for arms that are here already, arguments that do not fit the policy,
        and a policy that no recipe made.
        """
        with self._turn, self._fitting():
            self._check_arms()
            about = {"features": features, "covariance": covariance, "prior_mean": prior_mean}
            roster, numbers = self._roster.with_arms(arms, **about)
            self._go_on_with(roster)
            return tuple(numbers)

    def retire_arms(self, arms: Sequence[str] | Sequence[int]) -> None:
        """Never ask these arms, by name or number, again, until ``add_arms`` brings them back.

        Open questions about them can still be answered, what was learned from them still informs the others, and
        ``predict`` still covers them. Raises ValueError, with nothing changed, for arms that are not here or are
        retired already, and if none would be left.
        """
        with self._turn, self._fitting():
            self._check_arms()
            self._go_on_with(self._roster.without(arms))

    def _go_on_with(self, roster: Roster) -> None:
        """Continue over these arms, with everything learned, or restart if the policy does so with other arms."""
        policy = self._policy_over(roster)
        if self.policy.restarts_with_arms:
            for new, old in zip(policy.random_streams(), self.policy.random_streams(), strict=True):
                new.load_state_dict(old.state_dict())
            policy.reset()
            still_open = self._open.items()
            self._open = {id: replace(one, why={**one.why, _BEFORE: True}) for id, one in still_open}
        elif policy is not self.policy:
            policy.grow_from(self.policy)
        self._take(policy, roster)
        self._watch.make_room(roster.num_arms)

    def _policy_over(self, roster: Roster) -> Policy:
        """The policy if it is over these arms; otherwise a new one that has learned nothing."""
        restarts = bool(self.policy.restarts_with_arms)
        if roster.is_over(self._roster, restarts=restarts):
            return self.policy
        return self._wrapped(roster.policy(restarts=restarts))

    def _check_arms(self) -> None:
        kind = type(self.policy).__name__
        validation.require(self.policy.dim == 0, "policy", kind, "over arms, not over the points of a domain")

    def with_arms_of(self, state: Mapping[str, Any]) -> AskTell:
        """This system, or a new one that has learned nothing, over the arms of the system that gave ``state``.

        Raises ValueError for the state of a system that began with other arms.
        """
        with self._turn.any_process():
            roster = self._roster.in_state(state["arms"])
            policy, other = self._policy_over(roster), self
            if policy is not self.policy:
                other = copy.deepcopy(self)
                other._take(policy, roster)
            return other

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block, calls of other threads wait: use it if several calls belong together."""
        with self._turn.any_process(), self._fitting():
            yield

    def _fitting(self) -> AbstractContextManager[None]:
        return fitting(self.policy.numbers_per_step(self._asked))

    def take_over(self, other: AskTell) -> None:
        """Take over everything from ``other``, which must not be used afterwards. Waiting threads continue with it."""
        with self.alone():
            vars(self).update({name: value for name, value in vars(other).items() if name != "_turn"})
            self._turn.own()

    def state_dict(self) -> dict[str, Any]:
        """The policy's state, the arms, the open questions and the history."""
        with self._turn.any_process():
            return {
                "policy": self.policy.state_dict(),
                "asked": self._asked,
                "open": [(id, one.time, one.arm, dict(one.why)) for id, one in self._open.items()],
                "latest": self._latest,
                "zone": self._times.zone,
                "arms": self._roster.state_dict(),
                "watch": self._watch.state_dict(),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``. Raises ValueError for any other state; only the policy may then have changed."""
        names = ("policy", "asked", "open", "latest", "zone", "arms", "watch")
        missing = [name for name in names if name not in state]
        expected = f"the state of an AskTell: {missing} is missing"
        validation.require(not missing, "state", sorted(state), expected)
        asked, latest = validation.natural("state['asked']", state["asked"]), state["latest"]
        if latest is not None:
            validation.finite_number("state['latest']", latest)
        zone = border.checked_zone(state["zone"])
        questions = {}
        for id, time, arm, why in state["open"]:
            validation.require(type(id) is int and 0 <= id < asked, "state['open']", id, f"below {asked}")
            validation.instance("why", why, Mapping, "a mapping")
            validation.tensor("arm", arm)
            questions[id] = Pending(validation.finite_number("time", time), arm, why)
        with self._turn.any_process():
            roster = self._roster.in_state(state["arms"])
            policy = self._policy_over(roster)
            watch = Watch(policy, self._watch.size)
            watch.load_state_dict(state["watch"])
            watch.make_room(policy.num_arms)
            policy.load_state_dict(state["policy"])
            self._take(policy, roster)
            self._asked, self._open, self._latest = asked, questions, latest
            self._watch, self._times.zone = watch, zone
            self._turn.own()

    def __deepcopy__(self, memo: dict[int, Any]) -> AskTell:
        with self._turn.any_process():  # another thread may be changing what is copied
            other = type(self).__new__(type(self))
            memo[id(self)] = other
            vars(other).update(copy.deepcopy(vars(self), memo))
            return other

    def __getstate__(self) -> dict[str, Any]:
        """A copy for ``pickle`` and ``copy.copy``, which read the state after the lock is released."""
        return vars(copy.deepcopy(self))

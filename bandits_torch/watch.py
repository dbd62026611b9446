"""Views of a live system: its current beliefs, its questions and rewards, and alarms about changes of the rewards."""

from __future__ import annotations

import math
import os
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from scipy.special import ndtri
from torch import Tensor

from bandits_torch import border, validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.border import Settings, Times
from bandits_torch.files import atomic_write
from bandits_torch.naming import counted, named_values, written
from bandits_torch.policies.control import ControlledPolicy
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.sharing import mixture_moments
from bandits_torch.problems.jumps import ratios_of_shares
from bandits_torch.state import HasState
from bandits_torch.threads import Turn

OPEN, TOLD, DROPPED = 0, 1, 2
_STATES = ("open", "told", "dropped")
_BELIEVED = ("mean", "lower", "upper", "probability_best")
_COLUMNS = {
    *("replicate", "arm", *_BELIEVED, "plays", "last_played", "unseen"),
    *("id", "time", "reward", "late", "state"),
}
_DRAWS = 16384  # of all arms' rewards, for the probability of being best
_CONTENDERS = 256  # at most so many arms are compared by draws
_FAR = 4.0  # standard deviations either way; an arm that lies below another by both is left out
_BISECTIONS = 60
_HEARD = 100  # the latest rewards of an arm, with which a new one is compared
# Sums of scores for small and for large changes, up and down: sign, allowance k, and the limit of the sum.
_SUMS = ((1, 0.5, 8.75), (-1, 0.5, 8.75), (1, 1.0, 4.4), (-1, 1.0, 4.4))
_LIMIT_OF_TWO = 10.25  # nats, of the log-likelihood ratio of rewards that have two values
# Least mean number of rewards between false alarms at the limit, and the growth of its logarithm per nat beyond it.
_FALSE, _STEEP = 10_000, 0.85
_ALARMS = 1000  # number kept


class ArmTest:
    """A test for changes of the rewards of one arm.

    Of the n <= 100 latest rewards since the previous alarm, let r be the number below a new reward, with equal ones
    counted half. The score of the new reward is z = Phi^{-1}((r + 1/2) / (n + 1)). It is added to the sums

        up <- max(0, up + z - k),    down <- max(0, down - z - k),    for k = 1/2 and k = 1.

    A sum above 8.75 (k = 1/2: a small change) or 4.4 (k = 1: a large change) raises an alarm, and the test starts
    again. Ranks do not depend on the unit or the distribution of rewards. Rewards with only two values raise an alarm
    if the log-likelihood ratio of a change within the latest 100 rewards, as in GLR-klUCB, exceeds 10.25 nats.

    While nothing changes, there is at most one false alarm in 10 000 rewards on average
    (``tests/test_watch_alarms.py``). For each further nat beyond a limit, an alarm is rarer by a factor of at least
    e^0.85; a unit of a sum counts as 2 k nats.

    Cost: a few microseconds a reward, some 50 if rewards have two values, and some 10 kB. Source: CUSUM (Page 1954) of
    the normal scores of sequential ranks (McDonald 1990; Lombard & Van Zyl 2018), over a window; Besson et al. 2022 for
    the ratio. Limits are ours, set by simulation.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(
        self,
        rewards: Iterable[float] = (),
        times: Iterable[float] = (),
        sums: Sequence[float] = (0.0,) * len(_SUMS),
        runs: Sequence[int] = (0,) * len(_SUMS),
    ) -> None:
        """Start from rewards and their times, oldest first, the four sums, and how many rewards ago each was 0."""
        self.rewards, self.times = deque(rewards, _HEARD), deque(times, _HEARD)
        self.sorted, self.sums, self.runs = sorted(self.rewards), list(sums), list(runs)

    def hear(self, reward: float, time: float) -> dict[str, Any] | None:
        """Add a reward. Returns the alarm that it raises (``since``, ``before``, ``after``, ``once_in``), or None."""
        held, sums, runs = self.sorted, self.sums, self.runs
        rank = (bisect_left(held, reward) + bisect_right(held, reward)) / 2
        score = float(ndtri((rank + 0.5) / (len(held) + 1)))
        beyond, run = -math.inf, 0
        for i, (sign, slack, limit) in enumerate(_SUMS):
            sums[i] = max(0.0, sums[i] + sign * score - slack)
            runs[i] = runs[i] + 1 if sums[i] else 0
            if 2 * slack * (sums[i] - limit) > beyond:
                beyond, run = 2 * slack * (sums[i] - limit), runs[i]
        if len(held) == _HEARD:
            del held[bisect_left(held, self.rewards[0])]
        insort(held, reward)
        self.rewards.append(reward)
        self.times.append(time)
        least, most = held[0], held[-1]
        if least < most and bisect_right(held, least) == bisect_left(held, most):  # two values
            ratios = ratios_of_shares(np.array(self.rewards) == most, np.ones(len(held))) / 2
            first = int(ratios.argmax())
            beyond, run = float(ratios[first]) - _LIMIT_OF_TWO, len(ratios) - first
        if beyond <= 0:
            return None
        rewards, run = np.array(self.rewards), min(run, len(held))
        before, after = rewards[:-run], rewards[-run:]
        since = min(list(self.times)[-run:])  # rewards may come in another order than their times
        self.begin()
        return {
            "since": since,
            "before": float(before.mean()) if len(before) else None,
            "after": float(after.mean()),
            "once_in": _FALSE * math.exp(_STEEP * beyond),
        }


class ArmTests:
    """The tests of all arms that were played, by replicate and arm."""

    def __init__(self) -> None:
        self.each: defaultdict[tuple[int, int], ArmTest] = defaultdict(ArmTest)

    def state_dict(self) -> dict[str, Tensor]:
        """Rewards and times of all tests, one after another, with each test's arm, number of rewards and sums."""
        tests, floats = list(self.each.values()), partial(torch.tensor, dtype=torch.float64)
        return {
            "of": torch.tensor(list(self.each), dtype=torch.long).reshape(-1, 2),
            "counts": torch.tensor([len(one.rewards) for one in tests], dtype=torch.long),
            "rewards": floats([reward for one in tests for reward in one.rewards]),
            "times": floats([time for one in tests for time in one.times]),
            "sums": floats([one.sums for one in tests]).reshape(-1, len(_SUMS)),
            "runs": torch.tensor([one.runs for one in tests], dtype=torch.long).reshape(-1, len(_SUMS)),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Counterpart of ``state_dict``."""
        own = [state[name].split(state["counts"].tolist()) for name in ("rewards", "times")]
        shape = (len(state["of"]), len(_SUMS))
        sums = [validation.of_shape(name, state[name], shape).tolist() for name in ("sums", "runs")]
        self.reset()
        for (s, arm), rewards, times, *more in zip(state["of"].tolist(), *own, *sums, strict=True):
            self.each[s, arm].begin(rewards.tolist(), times.tolist(), *more)

    def reset(self, where: Tensor | None = None) -> None:
        """Forget all rewards in the replicates with ``where`` True."""
        for key in list(self.each):
            if where is None or where[key[0]]:
                del self.each[key]


class Watch(HasState):
    """The record that a live system keeps of its questions, and its tests for changes. Choices do not depend on it.

    It keeps the latest ``keep`` questions with their rewards, how often and when each arm was played, and the latest
    1000 alarms: those of each arm's ``ArmTest``, and the restarts of a policy that itself tests for changes.

    Args:
        policy: the policy that chooses.
        keep: number of questions to keep, an integer >= 0.

    Cost: some microseconds a question and a reward, some 50 if rewards are 0 or 1. Memory, for each replicate: 16
    bytes an arm, up to 10 000 more once it is played, and about 30 a question kept. Raises ValueError for another
    ``keep``.
    """

    _parts = ("arm_tests",)
    plays: Tensor  # (S, N)
    last: Tensor  # (S, N), the time of the latest play
    first: float | None  # the time of the first question
    now: float | None  # the latest time that was asked about
    arms: Tensor  # (S, H) or (S, H, d), H = keep; question k is in column k mod H
    times: Tensor  # (1, H)
    rewards: Tensor  # (S, H)
    marks: Tensor  # (1, H), twice the state, plus one if the reward was late
    told: int  # the largest number of a question that was told; -1: none
    learned_so_far: int  # number of rewards
    restarts: Tensor  # (S,), the policy's restarts for changes, as last counted
    rung: list[dict[str, Any]]  # the alarms

    def __init__(self, policy: Policy, keep: int) -> None:
        self.size = validation.natural("keep", keep)
        self.replicates, self.num_arms, self.dim = policy.replicates, policy.num_arms, policy.dim
        self.arm_tests = ArmTests()
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        S, N, H = self.replicates, self.num_arms, self.size
        whole, zeros = torch.long, partial(torch.zeros, dtype=torch.float64)
        return {
            "plays": zeros(S, N, dtype=whole),
            "last": zeros(S, N) + torch.nan,
            "first": None,
            "now": None,
            "arms": zeros(S, H, self.dim) if self.dim else zeros(S, H, dtype=whole),
            "times": zeros(1, H),
            "rewards": zeros(S, H) + torch.nan,
            "marks": zeros(1, H, dtype=whole),
            "told": -1,
            "learned_so_far": 0,
            "restarts": zeros(S),
            "rung": [],
        }

    def state_changed(self) -> None:
        """Raises ValueError for marks and arms that there are not."""
        arms = self.arms[:, :0] if self.dim else self.arms
        for name, values, end in (("marks", self.marks, 2 * len(_STATES)), ("arms", arms, self.num_arms)):
            right = bool(((values >= 0) & (values < end)).all())
            validation.require(right, name, values, f"from 0 to {end - 1}")

    # -- what happens ----------------------------------------------------------------------------------

    def asked(self, id: int, time: float, arm: Tensor) -> None:
        """Note that question ``id`` was asked at a time, about ``arm`` (S,) or (S, d)."""
        if self.first is None or self.now is None:
            self.first = self.now = time
        self.now = max(self.now, time)
        if self.size:
            k = id % self.size
            self.arms.numpy()[:, k] = arm.detach().cpu().numpy()
            self.times.numpy()[0, k] = time
            self.rewards.numpy()[:, k] = math.nan
            self.marks.numpy()[0, k] = OPEN

    def learned(self, id: int, asked: int, time: float, arm: Tensor, reward: Tensor, policy: Policy) -> None:
        """Note that the policy learned the reward (S,) of question ``id``, when ``asked`` questions had been asked."""
        values = reward.tolist()
        if asked - id <= self.size:
            k = id % self.size
            self.rewards.numpy()[:, k] = values
            self.marks.numpy()[0, k] = 2 * TOLD + (id < self.told)
        self.told = max(self.told, id)
        self.learned_so_far += 1
        where = [] if self.dim else arm.tolist()
        plays, last = self.plays.numpy(), self.last.numpy()
        for s, number in enumerate(where):
            plays[s, number] += 1
            if not last[s, number] >= time:
                last[s, number] = time
            rung = self.arm_tests.each[s, number].hear(values[s], time)
            if rung is not None:
                self._note(id, time, s, number, **rung)
        found = policy.changes_found()
        if found is not None:
            now = found.detach().double().cpu().clone()
            for s in (now > self.restarts).nonzero().flatten().tolist():
                self._note(id, time, s, None if self.dim else where[s])
            self.restarts = now

    def dropped(self, id: int, asked: int) -> None:
        """Note that question ``id`` was dropped, when ``asked`` questions had been asked."""
        if asked - id <= self.size:
            self.marks.numpy()[0, id % self.size] = 2 * DROPPED

    def kept(self, asked: int) -> np.ndarray:
        """Numbers of the questions that are kept when ``asked`` have been asked, oldest first."""
        return np.arange(max(0, asked - self.size), asked)

    def make_room(self, num_arms: int) -> None:
        """Extend to ``num_arms`` arms; the new ones have not been played."""
        more, self.num_arms = num_arms - self.plays.shape[-1], num_arms
        self.plays = torch.nn.functional.pad(self.plays, (0, more))
        self.last = torch.nn.functional.pad(self.last, (0, more), value=math.nan)

    def _note(self, id: int, time: float, replicate: int, arm: int | None, **found: float | None) -> None:
        """Record an alarm of an ``ArmTest`` with its findings, or without findings an alarm of the policy."""
        one = {"id": id, "time": time, "replicate": replicate, "arm": arm, "own": not found}
        self.rung = [*self.rung, one | found][-_ALARMS:]


class Watched:
    """The views of a live system (``AskTell``). They change neither its choices nor its state."""

    policy: Policy
    names: tuple[str, ...] | None
    context_names: tuple[str, ...] | None
    settings: Settings | None
    replicates: int
    num_arms: int
    predict: Any
    _times: Times
    _turn: Turn
    _asked: int
    _latest: float | None
    _open: dict[int, Any]
    _watch: Watch
    _roster: Any  # ``growth.Roster``, which says which arms are retired

    @property
    def retired(self) -> tuple[Any, ...]:
        """The arms that are never asked again, by name, or by number if arms have no names."""
        with self._turn.any_process():
            arms = self._arms_shown
            return tuple(arms[k] for k in self._roster.retired.nonzero().flatten().tolist())

    @property
    def _arms_shown(self) -> list[Any]:
        """The arms by name, or by number if they have no names."""
        return list(range(self.num_arms)) if self.names is None else list(self.names)

    def beliefs(self, at: Any = None, *, level: float = 0.9, context: Any = None) -> pd.DataFrame:
        """The current posterior of every arm's expected reward: one row per arm (and replicate, if several).

        * ``arm``: name, or number.
        * ``mean``, ``lower``, ``upper``: posterior mean of the expected reward, and its central interval of probability
          ``level``; in units of reward.
        * ``probability_best``: the probability that the arm's expected reward is the largest among the arms that are
          not retired, within 0.01 (16 384 Sobol draws). NaN if more than 256 arms may be the best, or under a context.
        * ``plays``, ``last_played``, ``unseen``: how many of the arm's rewards were told (those of a ``log`` do not
          count), when it was last played, and how long ago that is (if never, the time since the first question).
        * ``retired``: whether the arm is never asked again (``retire_arms``).

        What a policy does not know is NaN: classical bandits know only means of arms that they have played; random,
        EXP3.S, the OPKB family and policies over several priors know none.

        Over a domain there is a row for each point whose reward was told among the questions kept (``keep``), with a
        column for each setting (``x0``, ``x1``, ... without names), the largest mean first. ``probability_best`` is
        then among these points.

        Args:
            at: a time or a date, not before the latest reward (see ``predict``); default: the latest time of a
                question or of a reward learned.
            level: in (0, 1).
            context: the context, for a policy that takes one; without it, means are NaN.

        Cost: the joint covariance of the arms, and the draws: milliseconds for ten arms of ``auto``, about a second for
        200. Raises ValueError for a ``level`` out of range, and for times and contexts as ``predict``.
        """
        validation.probability("level", level)
        with self._turn.any_process():
            watch, policy = self._watch, self.policy
            latest = max((time for time in (watch.now, self._latest) if time is not None), default=0.0)
            number = latest if at is None else self._times.read("at", at)[0]
            if context is not None:
                context = border.context_of(context, self.context_names)
            inside = policy.innermost
            if policy.dim:
                validation.require(context is None, "context", context, "None over a domain")
                return self._beliefs_of_settings(number, level, inside)
            mean, lower, upper = self._intervals(number, level, inside, None, context)
            best = torch.full_like(mean, torch.nan)
            if context is None and hasattr(inside, "joint") and not bool(mean.isnan().any()):
                best = _probability_best(inside, number, here=~self._roster.retired)
            named = zip(_BELIEVED, (mean, lower, upper, best), strict=True)
            columns = {name: value.double().cpu().numpy().reshape(-1) for name, value in named}
            columns["plays"] = watch.plays.numpy().reshape(-1)
            return self._rows_of_arms(columns | self._when(watch.last.reshape(-1).tolist(), number))

    def lift(self, *, level: float = 0.95) -> pd.DataFrame:
        """How much more each arm pays than the control (``control=`` of ``auto``), one row per arm (and replicate).

        * ``arm``: name, or number.
        * ``lift``: the arm's mean lift over the control, at the times when it was proposed; in units of reward.
        * ``lower``, ``upper``: the interval that contains the arm's lift with probability ``level`` at all times
          together, so you may stop at any time (``ControlledPolicy``). For m arms, pass 1 - (1 - ``level``) / m.
        * ``decided``: "better" or "worse" than the control if the interval excludes 0, else "open"; or "control".
        * ``compared``: the number of rewards compared, the control's included, at times when the arm was proposed.
        * ``retired``: whether the arm is never asked again (``retire_arms``).

        Lifts are NaN, without an interval, until 8 rewards of the arm and of the control count. Raises ValueError if
        there is no control, and for a ``level`` out of range.
        """
        with self._turn.any_process():
            policy = self.policy
            if not isinstance(policy, ControlledPolicy):
                raise ValueError("control must be given when this is built, got a policy without one")
            lift, low, high = policy.lifts(level)
            decided = np.select([low > 0, high < 0], ["better", "worse"], "open").astype(object)
            decided[:, policy.control] = "control"
            columns: dict[str, Any] = {"lift": lift, "lower": low, "upper": high, "decided": decided}
            columns |= {"compared": policy.compared.long()}
            return self._rows_of_arms({name: value.flatten() for name, value in columns.items()})

    def _when(self, last: Sequence[float], now: float) -> dict[str, Any]:
        """Two columns: when each arm or point was last played, and how long ago that is."""
        since = self._column_of_times(self._watch.first if math.isnan(time) else time for time in last)
        return {"last_played": self._column_of_times(last), "unseen": self._times.shown(now) - since}

    def _column_of_times(self, times: Iterable[float | None]) -> pd.Series:
        """Times in readable form; missing for None or NaN."""
        shown = [None if pd.isna(time) else self._times.shown(time) for time in times]
        if self._times.zone in ("", "number"):
            return pd.Series(shown, dtype="float64")
        typed = [*shown, self._times.shown(0.0)]  # an extra date sets the type if all others are missing
        return pd.to_datetime(pd.Series(typed)).iloc[:-1]

    def _rows_of_arms(self, columns: dict[str, Any]) -> pd.DataFrame:
        """A row for each arm of each replicate: its name, these columns (S * N,), and whether it is retired."""
        S, arms, gone = self.replicates, self._arms_shown, self._roster.retired.tolist()
        who: dict[str, Any] = {"replicate": np.repeat(np.arange(S), len(arms))} if S > 1 else {}
        return pd.DataFrame(who | {"arm": arms * S} | columns | {"retired": gone * S})

    def _intervals(
        self, now: float, level: float, inside: Any, points: Tensor | None, context: ArmContext | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and ends of the interval of every arm, or of points (K, d): (S, N) or (S, K) each, NaN if unknown."""
        at, where = self._times.shown(now), {"points": points, "context": context}
        latent: Any = self.policy if hasattr(self.policy, "latent_marginals") else None
        try:
            mean, deviation = self.predict(at, **where)
            centre, spread = self.predict(at, **where, latent=True) if latent else (mean, deviation)
        except ValueError:
            if context is not None or (hasattr(inside, "marginals") and not inside.takes_contexts):
                raise  # the policy predicts, but not for this time or context
            mean = self.policy.mean_rewards()
            if mean is None:
                mean = torch.full((self.replicates, self.num_arms), torch.nan, dtype=torch.float64)
            mean = mean.where(self._watch.plays.to(mean.device) > 0, torch.nan)
            return mean, torch.full_like(mean, torch.nan), torch.full_like(mean, torch.nan)
        given = points if context is None else context
        parts = inside.components(now, given) if hasattr(inside, "components") else None
        ends = []
        for share in ((1 - level) / 2, (1 + level) / 2):
            z = _standard_quantile(parts, share) if parts is not None else float(ndtri(share))
            end = centre + z * spread
            ends.append(latent.in_rewards(end) if latent else end)
        return mean, *ends

    def _beliefs_of_settings(self, now: float, level: float, inside: Any) -> pd.DataFrame:
        watch, frames = self._watch, []
        rows = watch.kept(self._asked)
        rows = rows[watch.marks.numpy()[0, rows % max(watch.size, 1)] // 2 == TOLD] % max(watch.size, 1)
        for s in range(self.replicates):
            played = watch.arms.numpy()[s, rows]
            points, which, plays = np.unique(played, axis=0, return_inverse=True, return_counts=True)
            which = which.reshape(-1)
            last = np.full(len(points), -math.inf)
            np.maximum.at(last, which, watch.times.numpy()[0, rows])
            columns: dict[str, Any] = {"replicate": s} if self.replicates > 1 else {}
            columns |= self._columns_of_points(torch.from_numpy(points))
            named = dict.fromkeys(_BELIEVED, torch.full((len(points),), torch.nan))
            if len(points) and hasattr(inside, "marginals"):
                X = torch.from_numpy(points)
                moments = self._intervals(now, level, inside, X, None)
                best = torch.full_like(moments[0], torch.nan)
                if hasattr(inside, "joint"):
                    best = _probability_best(inside, now, X)
                named = dict(zip(named, (one[s] for one in (*moments, best)), strict=True))
            columns |= {name: value.double().cpu().numpy() for name, value in named.items()}
            columns |= {"plays": plays} | self._when(last.tolist(), now)
            frames.append(pd.DataFrame(columns).sort_values("mean", ascending=False, kind="stable"))
        return pd.concat(frames, ignore_index=True)

    def _columns_of_points(self, points: Tensor) -> dict[str, list[Any]]:
        """Columns of points (K, d): settings by name, or ``x0``, ``x1``, ...; a setting named like another column of
        the table is called ``NAME (setting)``."""
        if self.settings is None:
            return {f"x{i}": points[:, i].tolist() for i in range(points.shape[-1])}
        each = [self.settings.settings(point) for point in points]
        names = {name: f"{name} (setting)" if name in _COLUMNS else name for name in self.settings.space.axes}
        return {column: [one[name] for one in each] for name, column in names.items()}

    def history(self) -> pd.DataFrame:
        """The latest questions and their rewards: one row per question (and replicate, if several).

        The constructor's ``keep=`` says how many are kept, 1000 by default; saved files hold them as well. Columns:
        ``id``, the question's number; ``time``, when it was asked; ``arm``, name or number, or a column for each
        setting; ``reward``, NaN if none was told; ``late``, whether the reward of a later question came first;
        ``state``, "open", "told" or "dropped".
        """
        with self._turn.any_process():
            watch, S = self._watch, self.replicates
            ids = watch.kept(self._asked)
            at = ids % max(watch.size, 1)
            marks = watch.marks.numpy()[0, at]
            columns: dict[str, Any] = {"id": np.repeat(ids, S)}
            if S > 1:
                columns["replicate"] = np.tile(np.arange(S), len(ids))
            times = self._column_of_times(watch.times.numpy()[0, at].tolist())
            columns["time"] = times.repeat(S).reset_index(drop=True)
            chosen = watch.arms[:, at].transpose(0, 1).flatten(0, 1)  # question by question
            if self.policy.dim:
                columns |= self._columns_of_points(chosen)
            else:
                shown = self._arms_shown
                columns["arm"] = [shown[arm] for arm in chosen.tolist()]
            columns["reward"] = watch.rewards.numpy()[:, at].T.reshape(-1)
            columns["late"] = np.repeat(marks % 2 == 1, S)
            columns["state"] = np.repeat(np.array(_STATES)[marks // 2], S)
            return pd.DataFrame(columns)

    def alarms(self) -> pd.DataFrame:
        """Alarms about changes: a row for each of the latest 1000, oldest first.

        * ``id``, ``time``: the question whose reward raised the alarm, and when it was asked.
        * ``arm``, and ``replicate`` if there are several: the arm of that question. Over a domain there is no ``arm``.
        * ``by``: "rewards" for the test of each arm's rewards; "policy" if a policy that itself tests for changes has
          restarted (GLR-klUCB, MASTER, ADA-OPKB, ET-GP-UCB), which may also concern other arms.
        * ``since``: when the change seems to have begun; ``before`` and ``after``: the arm's mean rewards until then
          and since. They and ``once_in`` are given only for "rewards".
        * ``once_in``: the strength of the alarm. If no arm changed, an alarm this strong would come once in this many
          rewards, or more rarely; the smallest value is 10 000.

        The test (``ArmTest``) compares each reward with the latest 100 of its arm since the arm's last alarm, by ranks,
        so an outlier has little influence. A change takes at least three rewards of its arm to be found, five if only
        twenty came before it, and more if fewer did; a jump of three noise deviations after 50 rewards takes 5
        (median). A slow drift raises an alarm once it has gone far enough, and so may a spell of one context. Over a
        domain only a policy's own test raises alarms, because a setting is seldom played twice.
        """
        with self._turn.any_process():
            names = ["id", "time", "replicate", "arm", "own", "since", "before", "after", "once_in"]
            table = pd.DataFrame(self._watch.rung, columns=names)
            table.insert(4, "by", np.where(table.pop("own").astype(bool), "policy", "rewards"))
            for name in ("time", "since"):
                table[name] = self._column_of_times(table[name])
            if self.names is not None:
                table["arm"] = [self.names[arm] for arm in table["arm"]]
            for name in ("before", "after", "once_in"):
                table[name] = table[name].astype("float64")
            left_out = ["replicate"] * (self.replicates == 1) + ["arm"] * (self.policy.dim > 0)
            return table.drop(columns=left_out)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        level: float = 0.9,
        refresh: int | None = None,
        replicate: int = 0,
    ) -> None:
        """Write beliefs, alarms, questions and rewards into one HTML file without scripts, which explains its terms.

        The file is written atomically, also again and again in a separate thread; other calls wait only while the
        tables are made.

        Args:
            path: the file to write; an existing one is replaced.
            title: title of the page; default: the policy and its choices.
            level: level of the intervals of beliefs, in (0, 1); those of lifts over a control have 95 %.
            refresh: seconds after which an open page is loaded again, an integer >= 1; None: never.
            replicate: which one to show, if there are several.

        Cost: the cost of ``beliefs``, and about a second for the pictures. Raises ValueError for numbers out of range,
        and OSError if the file cannot be written.
        """
        from bandits_torch.experiments.page import live_page  # matplotlib is slow to import

        if refresh is not None:
            validation.positive_integer("refresh", refresh)
        one = validation.natural("replicate", replicate)
        validation.require(one < self.replicates, "replicate", replicate, f"below {self.replicates}")
        with self._turn.any_process():
            tables = [self.beliefs(level=level), self.history(), self.alarms()]
            tables += [self.lift()] if isinstance(self.policy, ControlledPolicy) else []
            facts = {
                "policy": self._policy_and_choices,
                "asked": self._asked,
                "told": self._watch.learned_so_far,
                "open": len(self._open),
                "latest question": "none" if self._watch.now is None else self._times.shown(self._watch.now),
                "written": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
            }
        if self.replicates > 1:
            facts["replicate"] = replicate
            tables = [
                table[table["replicate"] == replicate].drop(columns="replicate").reset_index(drop=True)
                for table in tables
            ]
        beliefs, history, alarms, *lift = tables
        heading = self._policy_and_choices if title is None else str(title)
        page = live_page(beliefs, history, alarms, heading, facts, level=level, refresh=refresh, lift=lift)
        with atomic_write(path) as file:
            file.write(page.encode())

    @property
    def _policy_and_choices(self) -> str:
        if self.settings is not None:
            over = f"settings {', '.join(self.settings.space.axes)}"
        elif self.names is not None:
            few = self.names if len(self.names) <= 6 else (*self.names[:5], "...")
            over = f"{counted(self.num_arms, 'arm')}: {', '.join(few)}"
        else:
            over = (
                f"points of {self.policy.dim} numbers" if self.policy.dim else counted(self.num_arms, "arm")
            )
        more = f", {self.replicates} replicates" if self.replicates > 1 else ""
        return f"{type(self.policy.innermost).__name__} over {over}{more}"

    def __repr__(self) -> str:
        with self._turn.any_process():
            counts = f"{self._asked} asked, {self._watch.learned_so_far} told, {len(self._open)} open"
            return f"<AskTell {self._policy_and_choices}; {counts}{self._best_now()}>"

    def _best_now(self) -> str:
        """The best arm in words; empty for several replicates, and if nothing is known about any arm."""
        if self.replicates > 1 or not self._watch.learned_so_far:
            return ""
        table = self.beliefs()
        if not self.policy.dim:
            table = table[~table["retired"]]
        if table.empty or bool(table["mean"].isna().all()):
            return ""
        by = "mean" if self.policy.dim or bool(table["probability_best"].isna().any()) else "probability_best"
        best: Any = table[by].idxmax()
        if self.policy.dim:
            names = self._columns_of_points(torch.zeros(0, self.policy.dim))
            at = named_values({name: table[name][best] for name in names})
            return f"; best known {at}, mean {written(table['mean'][best], 4)}"
        sure = table["probability_best"][best]
        with_it = "" if math.isnan(sure) else f", with probability {sure:.2f}"
        return f"; best now {table['arm'][best]}{with_it}"


def _standard_quantile(parts: tuple[Tensor, Tensor, Tensor], share: float) -> Tensor:
    """The ``share`` quantile of a normal mixture with weights (S, P), means and variances (S, P, N), as its distance
    from the mixture's mean in its standard deviations, (S, N)."""
    weights, mean, variance = parts
    deviation = variance.sqrt()
    ends = mean + float(ndtri(share)) * deviation
    low, high = ends.amin(-2), ends.amax(-2)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        each = torch.special.ndtr((middle.unsqueeze(-2) - mean) / deviation)
        below = (weights.unsqueeze(-1) * each).sum(-2)
        low, high = torch.where(below < share, middle, low), torch.where(below < share, high, middle)
    centre, spread = mixture_moments(*parts)
    return (low - centre) / spread.sqrt()


@torch.no_grad()
def _probability_best(
    policy: Any, time: float, points: Tensor | None = None, here: Tensor | None = None
) -> Tensor:
    """Probability, by draws, that each arm, or each of points (K, d), has the largest expected reward, (S, N).

    Each member of the mixture ``policy.joint`` gets its share of the draws. The probability is 0 outside the mask
    ``here`` (N,), and for an arm whose mean + 4 deviations lies below another's mean - 4 deviations.
    """
    mean, variance = policy.marginals(time, points)
    spread = _FAR * variance.clamp_min(0).sqrt()
    low, high = mean - spread, mean + spread
    if here is not None:
        low, high = (end.masked_fill(~here.to(end.device), -torch.inf) for end in (low, high))
    K = int((high >= low.amax(-1, keepdim=True)).sum(-1).max())
    if K > _CONTENDERS:
        return torch.full_like(mean, torch.nan)
    arms = high.topk(K, dim=-1).indices.sort(-1).values  # (S, K)
    at = arms if points is None else points[arms]
    weights, centre, covariance = (part.double().cpu() for part in policy.joint(time, at))
    normal = draw_sobol_normal_samples(K, _DRAWS, seed=0, dtype=torch.float64)
    best = torch.zeros(*arms.shape, dtype=torch.float64)
    ends = (weights.cumsum(-1) * _DRAWS).round().long()
    ends[:, -1] = _DRAWS
    for s, bounds in enumerate(ends.tolist()):
        for p, (start, end) in enumerate(zip([0, *bounds[:-1]], bounds, strict=True)):
            if end > start:
                values, vectors = torch.linalg.eigh(covariance[s, p])
                root = vectors * values.clamp_min(0).sqrt()
                largest = (centre[s, p] + normal[start:end] @ root.mT).argmax(-1)
                best[s] += torch.bincount(largest, minlength=K) / _DRAWS
    return torch.zeros_like(mean).scatter(-1, arms, best.to(mean))

"""Many Gaussian processes over the same arms, with one recursion for all: the passing of time changes only a few
numbers of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arms import inputs
from bandits_torch.models.online_model import PlainState, empty

PENDING = 24  # observations between two folds of a member
SHORTEST = 0.05  # time scales of smooth drift are longer
_TIE = 1e-10  # variances that differ by less of the largest are equal: rounding depends on the number of arms
_LEFT_OUT = 0.01  # a new arm adds a column to a root if it leaves out a larger share of the arm's variance
FADED = 1e-8  # a member folds when what it has learned has faded to a smaller share of a variance
Time = float | tuple[float, float]  # a time, or two: for forgetting, and for the phase of cycles


class MembersOverArms(Described, PlainState):
    """P Gaussian processes over N arms, S replicates of each, that learn from the same pulls: those of ``parts``, one
    after the other.

    Times must not decrease; an earlier time counts as now. A time may be a pair: forgetting depends on the first
    number, and the phase of cycles on the second, which may decrease.
    """

    can_condition_mean = True
    has_cycles = False  # whether the second number of a time matters
    has_level = False  # whether some of the members are ``LevelMembers``
    control: int | None = None  # the arm over which ``marginals`` are lifts
    replicates: int
    now: float | None
    arms: Tensor  # (N, d)
    noise_variance: Tensor  # (P,) or (S, P)
    forgetting_rate: Tensor  # (P,), per unit of time; for a smooth kernel, the rate with the same integral
    prior_mean: Tensor  # (P, N)

    @property
    def parts(self) -> tuple[RecursiveMembers, ...]:
        """The ``RecursiveMembers`` that it consists of, in order."""
        raise NotImplementedError

    @property
    def batch_shape(self) -> torch.Size:
        """(S, P)."""
        return torch.Size((self.replicates, len(self.forgetting_rate)))

    @property
    def num_arms(self) -> int:
        """N."""
        return self.arms.shape[-2]

    def _each(self, *values: Tensor | None) -> list[tuple[RecursiveMembers, list[Tensor]]]:
        """Each part, with its slices of those ``values`` that are not None: tensors (S, P, ...) or that broadcast to
        (S, P)."""
        sizes = [len(part.forgetting_rate) for part in self.parts]
        wide = [value.expand(*self.batch_shape, *value.shape[2:]) for value in values if value is not None]
        shares = [value.split(sizes, 1) for value in wide]
        return [(part, [share[k] for share in shares]) for k, part in enumerate(self.parts)]

    def marginals(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): (S, P, N) each. O(S P N)."""
        return _joined([part.marginals(time) for part in self.parts])

    def rewards(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        """``marginals`` of expected rewards. They differ only in ``LevelMembers``, whose ``marginals`` compare arms."""
        return _joined([part.rewards(time) for part in self.parts])

    def at(self, arm: Tensor, time: Time | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one arm per replicate, ``arm`` (S,), under every member: (S, P) each."""
        return _joined([part.at(arm, time) for part in self.parts])

    def prior_at(self, arm: Tensor, time: Time | None = None) -> tuple[Tensor, Tensor]:
        """``at`` under the prior."""
        return _joined([part.prior_at(arm, time) for part in self.parts])

    def covariance_with(self, arm: Tensor, time: Time | None = None) -> Tensor:
        """Posterior covariance of every arm with one per replicate, ``arm`` (S,), at ``time``: (S, P, N). O(S P N)."""
        return torch.cat([part.covariance_with(arm, time) for part in self.parts], 1)

    def likeness(self, arm: Tensor, weights: Tensor) -> Tensor:
        """Squared prior correlation of every arm with one per replicate, ``arm`` (S,), averaged over the members by
        ``weights`` (S, P): (S, N). The mean over all arms is subtracted first, because a level that all arms share does
        not distinguish them. Negative correlations count as 0."""
        return reduce(torch.add, (part.likeness(arm, own) for part, (own,) in self._each(weights)))

    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: Time | None = None, where: Tensor | None = None
    ) -> None:
        """Learn one reward per member for one arm per replicate, ``arm`` (S, 1). ``reward`` and ``where``, True in the
        members that learn, broadcast to (S, P)."""
        arm = arm.reshape(-1).expand(self.replicates)
        mean, variance = self.at(arm, time)
        self.observe_residuals(arm, reward.to(mean) - mean, (mean, variance), time, where)

    def observe_residuals(
        self,
        arm: Tensor,
        residual: Tensor,
        at: tuple[Tensor, Tensor],
        time: Time | None = None,
        where: Tensor | None = None,
    ) -> None:
        """``observe_arms`` for arms (S,), given rewards minus posterior means, and what ``at`` returns at ``time``,
        (S, P) each."""
        for part, (left, mean, variance, *here) in self._each(residual, *at, where):
            part.observe_residuals(arm, left, (mean, variance), time, *here)

    def learn_now(
        self, arm: Tensor, residual: Tensor, variance: Tensor, turn: int, where: Tensor | None = None
    ) -> None:
        """``observe_residuals`` at the current time; ``turn`` is the row of ``pending`` to write."""
        for part, (left, own, *here) in self._each(residual, variance, where):
            part.learn_now(arm, left, own, turn, *here)

    def prior_between(self, arms: Tensor, times: Sequence[Time]) -> Tensor:
        """Prior covariances between observations of ``arms`` (S, K) at ``times``: (S, P, K, K)."""
        return torch.cat([part.prior_between(arms, times) for part in self.parts], 1)

    def condition_mean(self, where: Tensor, arms: Tensor, times: Sequence[Time], weights: Tensor) -> None:
        """Set the mean minus the prior mean to the sum, weighted by ``weights`` (S, P, K), of prior covariances with
        observations of ``arms`` (S, K) at ``times``, in members with ``where`` (S, P) True. The covariance stays."""
        for part, (here, own) in self._each(where, weights):
            part.condition_mean(here, arms, times, own)

    def forget_level(self, where: Tensor) -> Tensor:
        """Return the level to its prior in the ``LevelMembers`` with ``where`` (S, P) True, because it has jumped.
        Returns in which members this happened, (S, P)."""
        return torch.cat([part.forget_level(here) for part, (here,) in self._each(where)], 1)

    def grow_from(self, small: MembersOverArms) -> None:
        """Take what ``small`` has learned, members built like these over the first of these arms."""
        for part, other in zip(self.parts, small.parts, strict=True):
            part.grow_from(other)

    def reset(self, where: Tensor | None = None) -> None:
        """Return to the prior; with ``where`` (S, P), in the members with True, and without a change of ``now``."""
        for part, here in self._each(where):
            part.reset(*here)


def _joined(moments: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    mean, variance = zip(*moments, strict=True)
    return torch.cat(mean, 1), torch.cat(variance, 1)


class Seen(NamedTuple):
    """Functions of frames G (..., P, s, s). D is any symmetric (s, s) matrix, with m = s (s + 1) / 2 stored entries.

    Attributes:
        vector: (..., P, s), g: an observation of an arm measures g^T x, with x its numbers at the last fold.
        squares: (..., P, m), the coefficients of the entries of D in g^T D g.
        start: (..., P, s), G^{-1} h.
        congruence: (..., P, m, m), the linear map from the entries of D to the entries of G D G^T.
    """

    vector: Tensor
    squares: Tensor
    start: Tensor
    congruence: Tensor


class RecursiveMembers(MembersOverArms):
    """``MembersOverArms`` in which the function at each arm is the first of s numbers that form a Markov process.

    Let z stack these numbers over the N arms. Under the prior Cov z = I_s (x) K at every time, and over a gap of time
    E z is multiplied by F (x) I, with F (s, s) a function of the gap. Let G be the product of the F since the last
    *fold*. The posterior is

        C = I (x) K - (G (x) I) (R + W^T W) (G (x) I)^T,    mean = prior mean + (G (x) I) m,

    so the passing of time changes only G. Let c be the covariance of z with f at arm i, and v = Var f + lambda. An
    observation y of arm i is

        m += G^{-1} c (y - mean_i) / v,    W gets the row G^{-1} c / sqrt(v).

    The diagonals of R + W^T W, which reduce the variances, are stored separately. A fold sets R to
    G (R + W^T W) G^T and G to I. 1 / 24 of the members fold at every step, so all steps cost the same.

    Args: as for ``ArmMembers``.

    Attributes:
        frame: (P, s, s), G.
        mean: (S, P, s, N), m.
        reduction: (S, P, s (s + 1) / 2, N), the diagonals of R + W^T W, block by block.
        rows: (P, S, s n, s n), R; n is N, or the rank r. Members come first, so those that fold are contiguous.
        counts: (P, S), 0 for members that were reset since their last fold: their R counts as 0, and the fold empties
            it. 1 for the others.
        pending: (P, S, 24, s, n), W.
        turn: the row of ``pending`` to write next.

    Source: the recursion of ``CovarianceForm`` and, for s > 1, the Kalman filter over fixed places (Sarkka, Solin &
    Hartikainen 2013, section 4). G is ours. ``ArmGP`` of the same priors agrees with it (tests).
    """

    states: int  # s
    frame: Tensor
    mean: Tensor
    reduction: Tensor
    rows: Tensor
    counts: Tensor
    pending: Tensor
    covariances: Tensor
    kernel: Tensor
    prior_variance: Tensor
    alike: Tensor
    _has_kernel: Tensor
    _least: Tensor
    _run: Tensor
    _member: Tensor
    _whole: Tensor
    _PLAIN: tuple[str, ...] = ("now", "turn")

    def __init__(
        self,
        arms: Tensor | int,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        replicates: int = 1,
    ) -> None:
        super().__init__()
        features = inputs.features_of(arms, None, None)
        validation.of_shape("arms", features, ("N", "d"), note=", the same for every replicate")
        n = features.shape[-2]
        size, prior_variance = self._size(n, covariances)
        validation.positive_integer("replicates", replicates)
        _check(kernel, noise_variance, forgetting_rate, len(covariances), replicates)
        P, S, s = len(kernel), replicates, self.states
        mean = validation.rewards("prior_mean", validation.numbers("prior_mean", prior_mean, features))
        validation.of_shape("prior_mean", mean, (), (n,), (P, n))
        self.replicates = S
        kernel = kernel.to(features.device)
        variance = prior_variance.to(features)[kernel]
        settings = {
            "arms": features,
            "covariances": covariances.to(features),
            "kernel": kernel,
            "noise_variance": noise_variance.to(features),
            "forgetting_rate": forgetting_rate.to(features),
            "prior_mean": mean.expand(P, n).clone(),
            "prior_variance": variance,
            "alike": self._centred(covariances.to(features)),
            "_has_kernel": torch.nn.functional.one_hot(kernel, len(covariances)).to(features),  # (P, G)
            "_least": torch.finfo(features.dtype).eps * variance,  # lower bound of posterior variances
            "_run": torch.arange(S, device=features.device),
            "_member": torch.arange(P, device=features.device).unsqueeze(-1),
            "_whole": torch.eye(s).to(features),  # G after a fold
        }
        for name, value in settings.items():
            self.register_buffer(name, value, persistent=False)
        new = features.new_zeros
        self.register_buffer("frame", self._whole.repeat(P, 1, 1))
        self.register_buffer("mean", new(S, P, s, n))
        self.register_buffer("reduction", new(S, P, s * (s + 1) // 2, n))
        self.register_buffer("rows", new(P, S, s * size, s * size))
        self.register_buffer("counts", new(P, S) + 1)
        self.register_buffer("pending", new(P, S, PENDING, s, size))
        self.now: float | None = None
        self.turn = 0
        self._ahead: tuple[Tensor, float, Tensor] | None = None  # a frame, a later time, the frame then
        # A frame, a time, and what ``_weights_at`` found of them.
        self._weights: tuple[Tensor, Time | None, Tensor, Sequence[Tensor]] | None = None
        # In captured steps (``bandits_torch.captured``): functions of the present frame, and whether no value may be
        # read on the host.
        self.seen: Seen | None = None
        self.blind = False

    @property
    def parts(self) -> tuple[RecursiveMembers, ...]:
        """Itself."""
        return (self,)

    # -- time ------------------------------------------------------------------------------------------

    @staticmethod
    def passing(rate: Tensor, gap: float | Tensor) -> Tensor:
        """F over a gap of time, a number or a tensor that broadcasts with ``rate`` (P,), to shape (..., s, s)."""
        raise NotImplementedError

    @staticmethod
    def far(frame: Tensor) -> Tensor:
        """Whether each member must fold because its frame has faded too much to be inverted, (P,)."""
        size = determinant(frame)
        return (size.square() if frame.shape[-1] == 1 else size.abs()) < FADED

    def _frame_at(self, time: Time | None) -> Tensor:
        time = fading(time)
        if time is None or self.now is None or time <= self.now:
            return self.frame
        if self._ahead is None or self._ahead[0] is not self.frame or self._ahead[1] != time:
            then = _times(self.passing(self.forgetting_rate, time - self.now), self.frame)
            self._ahead = self.frame, time, then
        return self._ahead[2]

    def _advance(self, time: Time | None) -> None:
        time = fading(time)
        self.frame = self._frame_at(time)
        if bool(self.far(self.frame).any()):
            self._fold(slice(None))
        if time is not None:
            self.now = time if self.now is None else max(self.now, time)

    # -- predicting ------------------------------------------------------------------------------------

    def marginals(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        return self.rewards(time)

    def rewards(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        g, squares = self._weights_at(time)
        mean, variance = self._prior_mean_at(time), self.prior_variance
        for k in range(self.states):
            mean = torch.addcmul(mean, self.mean[:, :, k], g[:, k : k + 1])
        for k, square in enumerate(squares):
            variance = torch.addcmul(variance, self.reduction[:, :, k], square.unsqueeze(-1), value=-1)
        return mean, torch.maximum(variance, self._least, out=variance)

    def at(self, arm: Tensor, time: Time | None = None) -> tuple[Tensor, Tensor]:
        g, squares = self._weights_at(time)
        mean, variance = self.prior_at(arm, time)
        for value, weight in zip(self.mean[self._run, ..., arm].unbind(-1), g.unbind(-1), strict=True):
            mean = torch.addcmul(mean, value, weight)
        for value, weight in zip(self.reduction[self._run, ..., arm].unbind(-1), squares, strict=True):
            variance = torch.addcmul(variance, value, weight, value=-1)
        return mean, torch.maximum(variance, self._least.T[arm])

    def prior_at(self, arm: Tensor, time: Time | None = None) -> tuple[Tensor, Tensor]:
        return self._prior_mean_at(time).T[arm], self.prior_variance.T[arm]

    def _prior_mean_at(self, time: Time | None) -> Tensor:
        """(P, N)."""
        return self.prior_mean

    def _seen_at(self, time: Time | None) -> Tensor:
        """g = G^T h at ``time``, the measurement vector for an arm's numbers at the last fold: (P, s)."""
        return self._measured(self._frame_at(time))

    @staticmethod
    def _measured(frames: Tensor) -> Tensor:
        """G^T h of frames (..., P, s, s): (..., P, s)."""
        return frames[..., 0, :]

    @staticmethod
    def _started(frames: Tensor) -> Tensor:
        """G^{-1} h of frames (..., P, s, s): (..., P, s)."""
        return first_of_inverse(frames)

    def _weights_at(self, time: Time | None) -> tuple[Tensor, Sequence[Tensor]]:
        """g at ``time``, (P, s), and the coefficients of the stored entries of D in g^T D g, (P,) each."""
        if time is None and self.seen is not None:
            return self.seen.vector, self.seen.squares.unbind(-1)
        frame, found = self._frame_at(time), self._weights  # a choice and its reward ask for the same time
        if time is None or found is None or found[0] is not frame or found[1] != time:
            g = self._seen_at(time)
            found = self._weights = frame, time, g, _squares(g)
        return found[2:]

    def covariance_with(self, arm: Tensor, time: Time | None = None) -> Tensor:
        g = self._seen_at(time)
        row = self._prior_row(arm)
        learned = (g.unsqueeze(-1) * self._learned_of(arm, row, g)).sum(-2)
        return self._over_arms(row - learned)

    def likeness(self, arm: Tensor, weights: Tensor) -> Tensor:
        """See ``MembersOverArms``. O(S G N)."""
        of_kernels = (weights @ self._has_kernel).unsqueeze(-2)  # (S, 1, G)
        return (of_kernels @ self._likeness_to(arm).transpose(0, 1)).squeeze(-2)

    def _likeness_to(self, arm: Tensor) -> Tensor:
        """The same for each K, (G, S, N)."""
        return self.alike[:, arm]

    def prior_between(self, arms: Tensor, times: Sequence[Time]) -> Tensor:
        return self._between(arms) * self._passing_between(times, times)[..., 0, 0]

    def _carried(self, time: Time, times: Sequence[Time]) -> Tensor:
        """Prior covariance in units of K of an arm's numbers at ``time`` with observations at ``times``: (P, K, s)."""
        return self._passing_between(time, times)[..., 0]

    def _passing_between(self, time: Time | Sequence[Time], times: Sequence[Time]) -> Tensor:
        """F over |t - t'| from one time, or from each of several, to ``times`` (K): (P, ..., K, s, s)."""
        before = [fading(one) for one in time] if isinstance(time, list) else fading(cast(Time, time))
        one, two = (torch.tensor(value, dtype=torch.float64) for value in (before, [*map(fading, times)]))
        gap = (one.unsqueeze(-1) - two).abs().to(self.mean)  # the difference is taken in float64
        return self.passing(self.forgetting_rate.reshape(-1, *[1] * gap.dim()), gap)

    # -- learning --------------------------------------------------------------------------------------

    def observe_residuals(
        self,
        arm: Tensor,
        residual: Tensor,
        at: tuple[Tensor, Tensor],
        time: Time | None = None,
        where: Tensor | None = None,
    ) -> None:
        self._advance(time)
        self.learn_now(arm, residual, at[1], self.turn, where)
        self.turn = (self.turn + 1) % PENDING

    def learn_now(
        self, arm: Tensor, residual: Tensor, variance: Tensor, turn: int, where: Tensor | None = None
    ) -> None:
        scale = (variance + self.noise_variance).rsqrt()
        innovation = (residual * scale)[..., None, None]
        if where is not None:
            scale = scale * where
        row = self._prior_row(arm)
        learned = self._learned_of(arm, row, self._seen_at(None))
        # Not addcmul: it rounds the end of a row differently, and equal arms must have equal values, bit for bit.
        covariance = self._prior_column(row).sub_(learned)
        # G^{-1} c / sqrt(v), (S, P, s, n); this row of W has been 0 since the last fold.
        column = self.pending[:, :, turn].transpose(0, 1).addcmul_(covariance, scale[..., None, None])
        over_arms = self._over_arms(column)
        self.mean.addcmul_(over_arms, innovation)
        for k, (i, j) in enumerate(_blocks(self.states)):
            self.reduction[:, :, k].addcmul_(over_arms[:, :, i], over_arms[:, :, j])
        self._fold(self.whose_turn(turn + 1))

    def _learned_of(self, arm: Tensor, row: Tensor, g: Tensor) -> Tensor:
        """(R + W^T W) (g (x) e_i) for each replicate's arm i, (S, P, s, n): the reduction of its covariances by
        observations. ``row``: its row of K."""
        rows, weights = self._held_of(arm, row)
        of_rows = g.unsqueeze(1) * self.counts.unsqueeze(-1)  # (P, S, s)
        learned = rows[:, :, 0] * of_rows[..., :1]
        for k in range(1, self.states):
            learned.addcmul_(rows[:, :, k], of_rows[..., k : k + 1])
        weights = weights * g[:, None, None]
        weights = weights.squeeze(-1) if self.states == 1 else weights.sum(-1)  # (P, S, 24)
        pending = self.pending.flatten(-2).flatten(0, 1)
        learned.flatten(0, 1).unsqueeze(1).baddbmm_(weights.flatten(0, 1).unsqueeze(1), pending)
        return learned.unflatten(-1, (self.states, -1)).transpose(0, 1)

    def _prior_column(self, row: Tensor) -> Tensor:
        """G^{-1} times the prior covariance of all numbers with an observation of one arm, (S, P, s, n). ``row``: the
        row of K of that arm."""
        return row.unsqueeze(-2) * self._start().unsqueeze(-1)

    def _start(self) -> Tensor:
        """G^{-1} h, (P, s)."""
        return self._started(self.frame) if self.seen is None else self.seen.start

    def seen_in(self, frames: Tensor) -> Seen:
        """``Seen`` of frames (..., P, s, s), for members without cycles."""
        g = self._measured(frames)
        squares = torch.stack(_squares(g), -1)
        congruence = squares.unsqueeze(-1) if self.states == 1 else self._congruence(frames)
        return Seen(g, squares, self._started(frames), congruence)

    def whose_turn(self, turn: int) -> slice:
        """The members that fold before row ``turn`` of ``pending`` is written."""
        share, turn = -(-len(self.kernel) // PENDING), turn % PENDING
        return slice(turn * share, (turn + 1) * share)

    def _fold(self, members: slice) -> None:
        """Set R to G (R + W^T W) G^T, W to 0 and G to I for these members."""
        G, rows, pending = self.frame[members], self.rows[members], self.pending[members]
        if len(rows) == 0:
            return
        counts = self.counts[members, :, None, None]
        # G is nearly singular after a long time with s > 1: G W^T before the product, in which nothing then cancels.
        waiting = _times(G[:, None, None], pending).flatten(0, 1).flatten(-2)
        mean, reduction = self.mean[:, members], self.reduction[:, members]
        seen = self.seen
        if self.states == 1:
            square = G.square() if seen is None else seen.congruence[members]
            rows.mul_(square.unsqueeze(1) * counts)
            mean.mul_(G)
            reduction.mul_(square)
        else:
            rows.copy_(self._through_frame(rows, G, counts))
            mean.copy_(G @ mean)
            reduction.copy_((self._congruence(G) if seen is None else seen.congruence[members]) @ reduction)
        rows.flatten(0, 1).baddbmm_(waiting.mT, waiting)
        pending.zero_()
        counts.fill_(1.0)
        if seen is None:  # captured steps are given their frames
            self.frame = self.frame.clone()
            self.frame[members] = self._whole

    @staticmethod
    def _congruence(G: Tensor) -> Tensor:
        """The linear map from the stored entries of a symmetric D to the entries of G D G^T: (..., m, m)."""
        i, j = torch.triu_indices(G.shape[-1], G.shape[-1], device=G.device)
        one, two = G[..., i, :], G[..., j, :]  # (..., m, s)
        twice = one[..., i] * two[..., j]
        return twice + one[..., j] * two[..., i] * (i != j)

    def _through_frame(self, rows: Tensor, G: Tensor, counts: Tensor) -> Tensor:
        """(G (x) I) R (G (x) I)^T for R (p, S, s n, s n), times ``counts`` (p, S, 1, 1)."""
        s = self.states
        half = ((G[:, None] * counts) @ rows.unflatten(2, (s, -1)).flatten(3)).reshape(rows.shape)
        return (G[:, None, None] @ half.unflatten(3, (s, -1))).reshape(rows.shape)

    def forget_level(self, where: Tensor) -> Tensor:
        return torch.zeros_like(where)

    def condition_mean(self, where: Tensor, arms: Tensor, times: Sequence[Time], weights: Tensor) -> None:
        carried = self._carried(times[-1] if self.now is None else self.now, times)
        now = [self._combined(arms, weights * carried[..., k]) for k in range(self.states)]
        mean = torch.linalg.solve(self.frame, torch.stack(now, -2))
        self.mean.copy_(torch.where(where[..., None, None], mean, self.mean))

    def reset(self, where: Tensor | None = None) -> None:
        if where is None:
            empty((self.mean, self.reduction, self.rows, self.pending))
            self.counts.fill_(1.0)
            self.frame = self._whole.expand_as(self.frame).clone()
            self.now, self.turn = None, 0
        elif self.blind:
            empty((self.mean, self.reduction), where)
            empty((self.pending, self.counts), where.T)
        else:  # a few members of many
            run, member = where.nonzero(as_tuple=True)
            self.mean[run, member] = self.reduction[run, member] = 0.0
            self.pending[member, run] = self.counts[member, run] = 0.0

    def clear_rows(self) -> None:
        """Empty R where it does not count."""
        member, run = (self.counts == 0).nonzero(as_tuple=True)
        self.rows[member, run] = 0.0
        self.counts.fill_(1.0)

    def grow_from(self, small: RecursiveMembers) -> None:  # type: ignore[override]
        """Take what ``small`` has learned, members built like these over the first n of these arms. It is exact.

        What a member has learned is a combination of rows of K: m = K a, R + W^T W = K A K over the first arms. With
        E = K_all,first K_first^-1 it becomes E m and E (R + W^T W) E^T over all arms. Cost: O(G N^3 + S P N^2 m) for m
        new arms.
        """
        n, s = small.num_arms, self.states
        each = self._extension(small)
        small.clear_rows()
        self.frame = small.frame.clone()
        self.set_extra_state(small.get_extra_state())
        self.mean[..., :n] = small.mean
        self.mean[..., n:] = torch.einsum("psmn,zpsn->zpsm", each, small.mean)
        self.pending[..., :n] = small.pending
        self.pending[..., n:] = torch.einsum("psmn,pzwsn->pzwsm", each, small.pending)
        rows, old = (value.unflatten(-1, (s, -1)).unflatten(2, (s, -1)) for value in (self.rows, small.rows))
        half = torch.einsum("pimn,pzinjk->pzimjk", each, old)  # (P, S, s, m, s, n)
        rows[..., :n, :, :n] = old
        rows[..., n:, :, :n] = half
        rows[..., :n, :, n:] = half.transpose(2, 4).transpose(3, 5)
        rows[..., n:, :, n:] = torch.einsum("pzimjn,pjkn->pzimjk", half, each)
        self.reduction[..., :n] = small.reduction
        for k, (i, j) in enumerate(_blocks(s)):
            held = rows[:, :, i, n:, j, n:].diagonal(dim1=-2, dim2=-1)
            waiting = (self.pending[..., i, n:] * self.pending[..., j, n:]).sum(2)
            self.reduction[:, :, k, n:] = (held + waiting).transpose(0, 1)

    def _extension(self, small: RecursiveMembers) -> Tensor:
        """The last m rows of E for each number of an arm, (P, s, m, n)."""
        n = small.num_arms
        first = self.covariances[:, :n, :n].double()
        E = self.covariances.new_zeros(len(first), self.num_arms - n, n)
        for group, (K, new) in enumerate(zip(first, self.covariances[:, n:, :n].double(), strict=True)):
            # K may be singular, for example if two arms are equal.
            values, vectors = torch.linalg.eigh(K)
            kept = values > torch.finfo(K.dtype).eps * len(K) * values[-1]
            inverse = vectors * torch.where(kept, values, torch.inf).reciprocal()
            E[group] = (inverse @ (vectors.mT @ new.mT)).mT.to(E)
        return E[self.kernel].unsqueeze(1).expand(-1, self.states, -1, -1)

    # -- covariances of full rank ----------------------------------------------------------------------

    def _size(self, n: int, covariances: Tensor) -> tuple[int, Tensor]:
        """n, the number of columns of R per state, and the prior variances (G, N)."""
        validation.finite_tensor("covariances", covariances)
        validation.of_shape("covariances", covariances, ("G", n, n))
        for group, covariance in enumerate(covariances):
            try:
                ArmCovarianceKernel(covariance)
            except ValueError as error:
                raise ValueError(f"covariances[{group}]: {error}") from error
        return n, covariances.diagonal(dim1=-2, dim2=-1)

    def _centred(self, covariances: Tensor) -> Tensor:
        """Squared correlations of f minus its mean over arms, 0 for negative ones, (G, N, N), for ``likeness``."""
        rows = covariances.mean(-1, keepdim=True)
        centred = (covariances - rows - rows.mT + rows.mean(-2, keepdim=True)).clamp_min(0.0)
        variance = centred.diagonal(dim1=-2, dim2=-1)
        sizes = variance.unsqueeze(-1) * variance.unsqueeze(-2)
        return torch.where(sizes > 0, centred.square() / sizes, 0.0)

    def _prior_row(self, arm: Tensor) -> Tensor:
        """The row of K of each replicate's arm, (S, P, n)."""
        return self.covariances[self.kernel, arm.unsqueeze(-1)]

    def _held_of(self, arm: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of R of each replicate's arm, one for each state, (P, S, s, s n); and columns of W, (P, S, 24, s).
        ``row``: its row of K."""
        rows = self.rows.unflatten(2, (self.states, -1))[self._member, self._run, :, arm]
        return rows, self.pending[self._member, self._run, :, :, arm]

    def _over_arms(self, column: Tensor) -> Tensor:
        """A column (..., n) as values for all arms, (..., N)."""
        return column

    def _between(self, arms: Tensor) -> Tensor:
        """Prior covariances among ``arms`` (S, K) at one time, (S, P, K, K)."""
        return self.covariances[:, arms.unsqueeze(-1), arms.unsqueeze(-2)][self.kernel].transpose(0, 1)

    def _combined(self, arms: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum of the prior covariances of every arm with ``arms``, (S, P, N)."""
        columns = self.covariances[:, arms][self.kernel].transpose(0, 1)  # (S, P, K, n)
        return self._over_arms((weights.unsqueeze(-2) @ columns).squeeze(-2))

    # -- state -----------------------------------------------------------------------------------------

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self._ahead = self._weights = None


class ArmMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each: ``ArmGP`` of batch shape (S, P) for large P.

    Member p has the covariance K_g(p), the noise variance lambda_p and exponential forgetting at rate eps_p,

        Cov(f(x, t), f(x', t')) = K(x, x') (1 - eps)^{|t - t'| / 2}.

    This is the recursion of ``RecursiveMembers`` with s = 1 and F = (1 - eps)^{gap / 2}.

    Args:
        arms: ``(N, d)`` features, stored only; or N.
        covariances: (G, N, N), symmetric positive semi-definite: the different K.
        kernel: (P,) integers in 0, ..., G - 1, the index of each member's K.
        noise_variance: (P,) or (S, P) lambda > 0.
        forgetting_rate: (P,) eps in [0, 1), per unit of time.
        prior_mean: number, (N,) or (P, N).
        replicates: S.

    Cost: O(S P N^2) per step, all but O(S P N) of it in one matrix product. Memory O(S P N^2 + G N^2). Times must not
    decrease; an earlier time counts as now. Raises ValueError for shapes that do not fit and numbers out of range.

    Source: ``RecursiveMembers``.
    """

    states = 1

    @staticmethod
    def passing(rate: Tensor, gap: float | Tensor) -> Tensor:
        """(1 - eps)^{gap / 2}."""
        return ((1 - rate) ** (gap / 2))[..., None, None]


class SmoothMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each, that drift smoothly: a trend continues for a while.

    They are like ``ArmMembers``, with the Matern kernel of smoothness 3/2 over time,

        Cov(f(x, t), f(x', t')) = K(x, x') (1 + r) e^{-r},    r = c |t - t'|,  c = sqrt(3) / timescale.

    With g = f' / c, (f, g) of each arm is a Markov process, and both numbers have covariance K over arms at every time.
    This is the recursion of ``RecursiveMembers`` with s = 2 and

        F = e^{-r} [[1 + r, r], [-r, 1 - r]].

    Args:
        timescale: (P,) > 0.05, length-scale of the kernel over time.
        arms, covariances, kernel, noise_variance, prior_mean, replicates: as for ``ArmMembers``.

    ``forgetting_rate`` is 1 - e^{-c}, the rate of the exponential kernel with the same integral.

    Memory and cost of folds: four times those of ``ArmMembers``. Raises ValueError as ``ArmMembers`` does.

    Source: Matern 3/2 as a state of two numbers (Hartikainen & Sarkka 2010, section 4.1), here in units in which its
    stationary covariance is I.
    """

    states = 2

    def __init__(
        self,
        arms: Tensor | int,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        timescale: Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        replicates: int = 1,
    ) -> None:
        fits = validation.tensor("timescale", timescale).dim() == 1
        one_each = validation.tensor("kernel", kernel).dim() != 1 or len(kernel) == timescale.numel()
        validation.shape_is("timescale", timescale, fits and one_each, "(P,), one for each member")
        rate = -torch.expm1(-math.sqrt(3) / timescale.double())
        ok = bool(((rate > 0) & (rate < 1) & (timescale > 0)).all())
        validation.require(ok, "timescale", timescale, f"finite numbers > {SHORTEST}")
        shared = arms, covariances, kernel, noise_variance, rate
        super().__init__(*shared, prior_mean=prior_mean, replicates=replicates)

    @staticmethod
    def passing(rate: Tensor, gap: float | Tensor) -> Tensor:
        # In float32 a rate of a short time scale may round to 1.
        r = (-torch.log1p(-rate)).clamp_max(math.sqrt(3) / SHORTEST) * gap
        left = (-r).exp()
        # After a very long gap left = 0, and r left must be 0, not NaN.
        r = r.clamp_max(1e3)
        F = torch.stack([(1 + r) * left, r * left, -r * left, (1 - r) * left], -1)
        return F.unflatten(-1, (2, 2))


class LowRankMembers(ArmMembers):
    """``ArmMembers`` for covariances K = B B^T given by roots B: exact, with no N x N matrix.

    f = B z with z ~ N(0, I) in r dimensions. The recursion runs over z, with an arm's row of B instead of its row of
    K. Means and variances of the arms follow from one product with B.

    Args:
        covariances: (G, N, r), the roots B, for example of ``pivoted_root``; roots of lower rank have zero columns.
        arms, kernel, noise_variance, forgetting_rate, prior_mean, replicates: as for ``ArmMembers``.

    Cost: O(S P (N r + r^2)) per step; memory O(S P (N + r^2) + G N r). Raises ValueError as ``ArmMembers`` does.

    Source: the weight-space view (Rasmussen & Williams 2006, section 2.1).
    """

    def _size(self, n: int, covariances: Tensor) -> tuple[int, Tensor]:
        validation.finite_tensor("covariances", covariances)
        validation.of_shape("covariances", covariances, ("G", n, "r"), note=", roots")
        return covariances.shape[-1], covariances.square().sum(-1)

    def _centred(self, covariances: Tensor) -> Tensor:
        """Roots of the correlations of f minus its mean over arms, (G, N, r)."""
        return torch.nn.functional.normalize(covariances - covariances.mean(-2, keepdim=True), dim=-1)

    def _likeness_to(self, arm: Tensor) -> Tensor:
        return (self.alike[:, arm] @ self.alike.mT).clamp_min(0.0).square()

    def _prior_row(self, arm: Tensor) -> Tensor:
        return self.covariances[:, arm][self.kernel].transpose(0, 1)

    def grow_from(self, small: RecursiveMembers) -> None:  # type: ignore[override]
        """Take what ``small`` has learned; its roots must be the first rows and columns of these.

        R and W are over z, in which new columns of B are new dimensions; m = B mu with mu = B^+ m. Cost:
        O(G N r^2 + S P N r).
        """
        n, r = small.covariances.shape[1:]
        first = self.covariances[:, :n]
        more, atol = first.shape[-1] - r, 1e-4 * float(first.abs().max())
        extends = more >= 0 and torch.allclose(pad(small.covariances, (0, more)), first, rtol=1e-4, atol=atol)
        expected = "the roots of the first arms, with more rows"
        validation.require(extends, "covariances", "other roots", expected)
        small.clear_rows()
        self.frame = small.frame.clone()
        self.set_extra_state(small.get_extra_state())
        self.rows[..., :r, :r], self.pending[..., :r] = small.rows, small.pending
        self.mean[..., :n], self.reduction[..., :n] = small.mean, small.reduction
        inverse = torch.linalg.pinv(first.double(), rtol=1e-12).to(first)  # (G, r, n)
        for g, (members, root) in enumerate(zip(self._of_groups(), self.covariances[:, n:], strict=True)):
            self.mean[:, members, 0, n:] = small.mean[:, members, 0] @ inverse[g].mT @ root.mT
            half = root @ self.rows[members]  # (p, S, m, r)
            waiting = (self.pending[members].squeeze(-2) @ root.mT).square().sum(-2)
            self.reduction[:, members, 0, n:] = ((half * root).sum(-1) + waiting).transpose(0, 1)

    def _held_of(self, arm: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        b = row.transpose(0, 1)[:, :, None, :, None]  # (P, S, 1, r, 1)
        rows = (self.rows.unflatten(-1, (self.states, -1)) @ b).squeeze(-1).mT
        return rows, (self.pending @ b).squeeze(-1)

    def _between(self, arms: Tensor) -> Tensor:
        rows = self.covariances[:, arms]
        return (rows @ rows.mT)[self.kernel].transpose(0, 1)

    _groups: list[Tensor] | None = None

    def _of_groups(self) -> list[Tensor]:
        """The members of each root; the first call waits for the device."""
        if self._groups is None or self._groups[0].device != self.kernel.device:
            numbers = range(len(self.covariances))
            self._groups = [(self.kernel == group).nonzero().squeeze(-1) for group in numbers]
        return self._groups

    def _over_arms(self, column: Tensor) -> Tensor:
        out = column.new_empty(*column.shape[:-1], self.num_arms)
        for members, root in zip(self._of_groups(), self.covariances, strict=True):
            out[:, members] = column[:, members] @ root.mT
        return out


def fading(time: Time | None) -> float | None:
    """The part of a time on which forgetting depends."""
    return time[0] if isinstance(time, tuple) else time


def pivoted_root(
    column: Callable[[int], Tensor],
    variance: Tensor,
    rank: int,
    tolerance: float = 1e-6,
    first: int | None = None,
) -> Tensor:
    """B (N, rank) with B B^T near K: the pivoted Cholesky factor, one column of K for each column of B.

    Columns stay 0 once no variance left out exceeds ``tolerance`` times the largest variance.

    Args:
        column: a function from i to K[:, i], (N,).
        variance: (N,), the diagonal of K.
        rank: the number of columns.
        first: the pivots are among this many first rows (None: all). Each later row of which B leaves out more than 1 %
            of the variance then adds a column that is 0 for all rows before it, up to ``rank`` more columns. So rows do
            not change when others are added after them.

    Cost: O(N rank^2). Source: Harbrecht, Peters & Schneider 2012.
    """
    N, left = len(variance), variance.clone()
    root = variance.new_zeros(N, rank)

    def add(k: int, pivot: int, start: int) -> None:
        new = (column(pivot) - root[:, :k] @ root[pivot, :k]) / left[pivot].sqrt()
        root[start:, k] = new[start:]
        left[start:] = (left[start:] - new[start:].square()).clamp_min(0.0)
        left[pivot] = 0.0

    n = N if first is None else first
    largest = variance[:n].max()
    for k in range(min(rank, n)):
        most = left[:n].max()
        if most <= tolerance * largest:
            break
        add(k, int((left[:n] >= most - _TIE * largest).to(torch.uint8).argmax()), 0)
    used = rank
    for later in range(n, N):
        if used < 2 * rank and left[later] > _LEFT_OUT * variance[later]:
            root = torch.cat([root, root.new_zeros(N, 1)], -1)
            add(used, later, later)
            used += 1
    return root


def _times(G: Tensor, value: Tensor) -> Tensor:
    """G times ``value`` (..., s, n)."""
    return G * value if G.shape[-1] == 1 else G @ value


def _blocks(s: int) -> list[tuple[int, int]]:
    """The stored entries of a symmetric (s, s) matrix, in order."""
    return [(i, j) for i in range(s) for j in range(i, s)]


def _squares(g: Tensor) -> list[Tensor]:
    """The coefficient in g^T D g of each stored entry of a symmetric D, for g (P, s): (P,) each."""
    of = g.unbind(-1)
    return [of[i] * of[j] if i == j else 2 * of[i] * of[j] for i, j in _blocks(len(of))]


def first_of_inverse(G: Tensor) -> Tensor:
    """The first column of G^{-1}, for G (..., s, s) with s = 1 or 2: (..., s)."""
    if G.shape[-1] == 1:
        return G[..., 0].reciprocal()
    return torch.stack([G[..., 1, 1], -G[..., 1, 0]], -1) / determinant(G).unsqueeze(-1)


def determinant(G: Tensor) -> Tensor:
    if G.shape[-1] == 1:
        return G[..., 0, 0]
    both = G[..., 0, :] * G[..., 1, :].flip(-1)
    return both[..., 0] - both[..., 1]


def _check(kernel: Tensor, noise: Tensor, rate: Tensor, groups: int, replicates: int) -> None:
    """Raise ValueError unless these are kernels, noise variances and forgetting rates of P members."""
    ok = validation.tensor("kernel", kernel).dtype == torch.long and kernel.dim() == 1
    ok = ok and bool(((kernel >= 0) & (kernel < groups)).all())
    validation.require(ok, "kernel", kernel, f"(P,) int64 from 0 to {groups - 1}")
    count = len(kernel)
    validation.finite_tensor("noise_variance", noise)
    validation.of_shape("noise_variance", noise, (count,), (replicates, count))
    validation.require(bool((noise > 0).all()), "noise_variance", noise, "finite and > 0")
    validation.finite_tensor("forgetting_rate", rate)
    validation.of_shape("forgetting_rate", rate, (count,), note=", a number for each member")
    validation.require(bool(((rate >= 0) & (rate < 1)).all()), "forgetting_rate", rate, "in [0, 1)")

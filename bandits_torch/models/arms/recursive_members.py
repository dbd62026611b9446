"""Many Gaussian processes over the same arms, by a recursion that lets time pass by itself."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.members_over_arms import MembersOverArms

PENDING = 24  # observations between two passes over a member's matrix


class RecursiveMembers(MembersOverArms):
    """``MembersOverArms`` by a recursion that lets time pass by itself: what a member holds stays as it is, in a frame
    that moves, and 1 / 24 of the members is brought back from their frames at every step.

    Member p has the covariance K_g(p) over arms and the noise variance lambda_p.

    Args:
        arms: ``(N, d)`` features, carried along; or N.
        covariances: (G, N, N), symmetric positive semi-definite: the different K.
        kernel: (P,) integers in 0, ..., G - 1, which of them each member has.
        noise_variance: (P,) or (S, P) lambda > 0.
        forgetting_rate: (P,) in [0, 1).
        prior_mean: number, (N,) or (P, N).
        replicates: S.

    Attributes:
        mean, reduction: (S, P, ..., N) what was learned of mean and variance, in a member's frame.
        rows, pending: (P, S, ..., n, n) and (P, S, 24, ..., n), what was learned of the covariance. Members first:
            those whose turn it is lie together.
        fade: (P, ...) the frame of each member.
    """

    mean: Tensor
    reduction: Tensor
    rows: Tensor
    pending: Tensor
    fade: Tensor
    covariances: Tensor
    kernel: Tensor
    prior_variance: Tensor
    _likeness: Tensor
    _least: Tensor
    _run: Tensor

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
        validation.shape_is("arms", features, features.dim() == 2, "(N, d), the same for every replicate")
        n = features.shape[-2]
        size, prior_variance = self._size(n, covariances)
        validation.positive_integer("replicates", replicates)
        _check(kernel, noise_variance, forgetting_rate, len(covariances), replicates)
        count = len(kernel)
        self.replicates = replicates
        self.register_buffer("arms", features, persistent=False)
        self.register_buffer("covariances", covariances.to(features), persistent=False)
        self.register_buffer("kernel", kernel.to(features.device), persistent=False)
        self.register_buffer("noise_variance", noise_variance.to(features), persistent=False)
        self.register_buffer("forgetting_rate", forgetting_rate.to(features), persistent=False)
        mean = validation.rewards("prior_mean", validation.numbers("prior_mean", prior_mean, features))
        fits = mean.shape in ((), (n,), (count, n))
        validation.shape_is("prior_mean", mean, fits, f"(), ({n},) or ({count}, {n})")
        self.register_buffer("prior_mean", mean.expand(count, n).clone(), persistent=False)
        self.register_buffer("_likeness", self._centred(covariances.to(features)), persistent=False)
        self.register_buffer("prior_variance", prior_variance.to(features)[self.kernel], persistent=False)
        batch, whole = (replicates, count), self.whole(features)
        of_mean, of_variance, of_covariance = self._held_of_an_arm
        self.register_buffer("mean", features.new_zeros(*batch, *of_mean, n))
        self.register_buffer("reduction", features.new_zeros(*batch, *of_variance, n))
        self.register_buffer("rows", features.new_zeros(count, replicates, *of_covariance, size, size))
        self.register_buffer("pending", features.new_zeros(count, replicates, PENDING, *of_mean, size))
        self.register_buffer("fade", whole.repeat(count, *[1] * whole.dim()))
        least = torch.finfo(features.dtype).eps * self.prior_variance
        self.register_buffer("_least", least, persistent=False)  # a variance is at least that
        self.register_buffer("_run", torch.arange(replicates, device=features.device), persistent=False)
        self.now: float | None = None
        self._turn = 0  # the row of ``pending`` that is written next
        # In captured steps (``bandits_torch.captured``): 0 where a member's R no longer counts, else 1, (P, S). A reset
        # then marks, and the member's R is emptied when its turn comes.
        self.counting: Tensor | None = None

    _held_of_an_arm: tuple[tuple[int, ...], ...] = ((), (), ())  # by mean and pending, reduction, rows

    def _size(self, n: int, covariances: Tensor) -> tuple[int, Tensor]:
        """How many numbers a row of R has, and the prior variances (G, N)."""
        validation.finite_tensor("covariances", covariances)
        fits = covariances.dim() == 3 and covariances.shape[1:] == (n, n)
        validation.shape_is("covariances", covariances, fits, f"(G, {n}, {n})")
        for group, covariance in enumerate(covariances):
            try:
                ArmCovarianceKernel(covariance)
            except ValueError as error:
                raise ValueError(f"covariances[{group}]: {error}") from error
        return n, covariances.diagonal(dim1=-2, dim2=-1)

    def _centred(self, covariances: Tensor) -> Tensor:
        """What ``likeness`` is read off: the squared correlations of f less its mean over arms, (G, N, N)."""
        rows = covariances.mean(-1, keepdim=True)
        centred = covariances - rows - rows.mT + rows.mean(-2, keepdim=True)
        variance = centred.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)
        sizes = variance.unsqueeze(-1) * variance.unsqueeze(-2)
        return torch.where(sizes > 0, centred.square() / sizes, 0.0)

    @property
    def parts(self) -> tuple[RecursiveMembers, ...]:
        """These alone: what is held by one recursion."""
        return (self,)

    # -- frames ----------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def whole(like: Tensor) -> Tensor:
        """The frame in which all is as it is held."""

    @staticmethod
    @abstractmethod
    def passing(rate: Tensor, gap: float | Tensor) -> Tensor:
        """What a gap of time, a number or (k, 1), makes of the frames of members of rates (P,): (..., P, ...)."""

    @staticmethod
    @abstractmethod
    def moved(fade: Tensor, passing: Tensor) -> Tensor:
        """Frames after that."""

    @staticmethod
    @abstractmethod
    def far(fade: Tensor) -> Tensor:
        """Which frames are so far that what is held must be brought back from them, (P,)."""

    def _fade_at(self, time: float | None) -> Tensor:
        if time is None or self.now is None or time <= self.now:
            return self.fade
        return self.moved(self.fade, self.passing(self.forgetting_rate, time - self.now))

    def _advance(self, time: float | None) -> None:
        fade = self._fade_at(time)
        self.fade = fade
        if bool(self.far(fade).any()):
            self._absorb(slice(None))
        if time is not None:
            self.now = time if self.now is None else max(self.now, time)

    # -- learning --------------------------------------------------------------------------------------

    def likeness(self, arm: Tensor) -> Tensor:
        """Squared prior correlation of every arm with one per replicate once the mean over arms is off: (S, P, N)."""
        return self._likeness[:, arm][self.kernel].transpose(0, 1)

    def prior_at(self, arm: Tensor) -> tuple[Tensor, Tensor]:
        """``at`` before the first observation."""
        return self.prior_mean.T[arm], self.prior_variance.T[arm]

    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: float | None = None, where: Tensor | None = None
    ) -> None:
        """Learn one reward per member, ``reward`` that broadcasts to (S, P), of one arm per replicate, (S, 1); with
        ``where``, that broadcasts to (S, P), in the members that have True there."""
        self._advance(time)
        arm = arm.reshape(-1).expand(self.replicates)
        self.learn_now(arm, reward, self.at(arm), self._turn, where)
        self._turn = (self._turn + 1) % PENDING

    def learn_now(
        self, arm: Tensor, reward: Tensor, at: tuple[Tensor, Tensor], turn: int, where: Tensor | None = None
    ) -> None:
        """``observe_arms`` at the time it is now, of arms (S,) whose moments are ``at``; the row of ``pending`` that is
        written is ``turn``."""
        mean, variance = at
        deviation = (variance + self.noise_variance).sqrt()
        column = self._column(arm, self.fade)
        per_member = (*deviation.shape, *[1] * (column.dim() - 2))
        scaled = column.div_(deviation.reshape(per_member))
        if where is not None:
            scaled = scaled.mul_(where.expand(deviation.shape).reshape(per_member))
        innovation = (reward.to(mean).expand(self.batch_shape) - mean) / deviation
        self._learn(scaled, innovation)
        self.pending[:, :, turn] = scaled.transpose(0, 1)
        self._absorb(self.whose_turn(turn + 1))

    def whose_turn(self, turn: int) -> slice:
        """The members that are brought back from their frames before the row ``turn`` of ``pending`` is written."""
        share, turn = -(-len(self.kernel) // PENDING), turn % PENDING
        return slice(turn * share, (turn + 1) * share)

    @abstractmethod
    def _column(self, arm: Tensor, fade: Tensor) -> Tensor:
        """The posterior covariance of everything with each replicate's arm, in the frame: (S, P, ..., n)."""

    @abstractmethod
    def _learn(self, scaled: Tensor, innovation: Tensor) -> None:
        """Mean and reduction after a column (S, P, ..., n) and an innovation (S, P), over the reward's deviation."""

    @abstractmethod
    def _bring_back(self, members: slice) -> None:
        """R + W^T W, mean and reduction of these members, out of their frames."""

    def _absorb(self, members: slice) -> None:
        """R <- R + W^T W for these members, out of their frames, and so for mean and reduction; then W = 0."""
        rows = self.rows[members]
        if len(rows) == 0:
            return
        if self.counting is not None:
            counting = self.counting[members]
            rows.mul_(counting.reshape(*counting.shape, *[1] * (rows.dim() - 2)))
            self.counting[members] = 1.0
        self._bring_back(members)
        self.pending[members] = 0.0
        if self.counting is None:
            self.fade = self.fade.clone()
        self.fade[members] = self.whole(self.fade)

    def _between(self, arms: Tensor) -> Tensor:
        """Prior covariances of ``arms`` (S, K) among themselves at one time, (S, P, K, K)."""
        return self.covariances[:, arms.unsqueeze(-1), arms.unsqueeze(-2)][self.kernel].transpose(0, 1)

    def _combined(self, arms: Tensor, weights: Tensor) -> Tensor:
        """The sum of the prior covariances of every arm with ``arms`` by their weights, (S, P, N)."""
        columns = self.covariances[:, arms][self.kernel].transpose(0, 1)  # (S, P, K, N)
        return (weights.unsqueeze(-2) @ columns).squeeze(-2)

    def _gap(self, time: float | list[float], times: list[float]) -> Tensor:
        """|t - t'| of one time, (K,), or of each of several, (T, K): the difference of figures in float64."""
        one, two = (torch.tensor(value, dtype=torch.float64) for value in (time, times))
        return (one.unsqueeze(-1) - two).abs().to(self.mean)

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the prior in the members with ``where`` (S, P) True; the clock goes on."""
        if where is None:
            for tensor in (self.mean, self.reduction, self.rows, self.pending):
                tensor.zero_()
            self.fade = self.whole(self.fade).expand_as(self.fade).clone()
            self.now, self._turn = None, 0
            return
        if self.counting is not None:
            for held in (self.mean, self.reduction):
                held.masked_fill_(where.reshape(*where.shape, *[1] * (held.dim() - 2)), 0.0)
            turned = where.T.reshape(*where.T.shape, *[1] * (self.pending.dim() - 2))
            self.pending.masked_fill_(turned, 0.0)
            self.counting.masked_fill_(where.T, 0.0)
            return
        run, member = where.nonzero(as_tuple=True)
        self.mean[run, member] = 0.0
        self.reduction[run, member] = 0.0
        self.rows[member, run] = 0.0
        self.pending[member, run] = 0.0

    # -- state -----------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Clock, and which row of ``pending`` is next."""
        return {"now": self.now, "turn": self._turn}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``."""
        self.now, self._turn = state["now"], state["turn"]


def _check(kernel: Tensor, noise: Tensor, rate: Tensor, groups: int, replicates: int) -> None:
    """Raise ValueError unless these are P members' kernels, noise variances and forgetting rates."""
    ok = validation.tensor("kernel", kernel).dtype == torch.long and kernel.dim() == 1
    ok = ok and bool(((kernel >= 0) & (kernel < groups)).all())
    validation.require(ok, "kernel", kernel, f"(P,) int64 from 0 to {groups - 1}")
    count = len(kernel)
    validation.finite_tensor("noise_variance", noise)
    fits = noise.shape in ((count,), (replicates, count))
    validation.shape_is("noise_variance", noise, fits, f"({count},) or ({replicates}, {count})")
    validation.require(bool((noise > 0).all()), "noise_variance", noise, "finite and > 0")
    validation.finite_tensor("forgetting_rate", rate)
    fits = rate.shape == (count,)
    validation.shape_is("forgetting_rate", rate, fits, f"({count},), a number for each member")
    validation.require(bool(((rate >= 0) & (rate < 1)).all()), "forgetting_rate", rate, "in [0, 1)")

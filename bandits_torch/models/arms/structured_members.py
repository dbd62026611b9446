"""Members over arms with cycles, members over arms that share a level, and several kinds of members as one model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.models.arms.members import (
    FADED,
    SHORTEST,
    MembersOverArms,
    RecursiveMembers,
    SmoothMembers,
    Time,
    determinant,
    first_of_inverse,
)
from bandits_torch.models.online_model import empty


class CyclicMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each, with cycles of known periods.

    With harmonics j of frequencies w_j = 2 pi h / period, member p is

        f(x, t) = mean(x) + sum_j (cos(w_j u) a_j(x) + sin(w_j u) b_j(x)) + g(x, t),
        Cov(g(x, t), g(x', t')) = K(x, x') [(1 - v) (1 - eps)^{|t - t'| / 2}
                                            + v (1 - delta)^{|t - t'| / 2} sum_j q_j cos(w_j (u - u'))].

    The cycle a, b of the prior mean is given (``profile``); a cycle with the share v of the variance is learned.
    Forgetting depends on t, and the phase of a cycle on u. u is t, or the second number of a time that is a pair.

    This is the recursion of ``RecursiveMembers`` with s = 1 + 2 J numbers for J harmonics and diagonal frames. Each
    number fades on its own, and the measurement vector of an observation is

        h(u) = (sqrt(1 - v), sqrt(v q_1) cos(w_1 u), sqrt(v q_1) sin(w_1 u), ...)

    instead of (1, 0, ...). With v = 0 for all members, s = 1, and a step costs as much as with ``ArmMembers``.

    Args:
        arms, covariances, kernel, noise_variance, prior_mean, replicates: as for ``ArmMembers``.
        forgetting_rate: (P,) eps in [0, 1), per unit of t.
        periods: periods of the cycles, in units of u; finite and > 0.
        harmonics: for each period, the number of harmonics h = 1, 2, ...
        profile: (P, 2 J, N) or (2 J, N), a_1, b_1, a_2, b_2, ..., period after period; 0: none.
        share: v in [0, 1), (P,) or a number.
        cycle_rate: delta in [0, 1), (P,) or a number, per unit of t.

    q_j is proportional to 1 / h^2, with the same factor for all periods, and the q_j sum to 1.

    Memory and cost of folds: s^2 times those of ``ArmMembers``. Raises ValueError as ``ArmMembers`` does, and for
    numbers out of range.

    Source: cycles as rotating states (Solin & Sarkka 2014, section 3), here in coordinates that rotate with them.
    """

    has_cycles = True
    _PLAIN = (*RecursiveMembers._PLAIN, "turned")

    def __init__(
        self,
        arms: Tensor | int,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        *,
        periods: Sequence[float],
        harmonics: Sequence[int],
        profile: Tensor | float = 0.0,
        share: Tensor | float = 0.0,
        cycle_rate: Tensor | float = 0.0,
        prior_mean: float | Tensor = 0.0,
        replicates: int = 1,
    ) -> None:
        nonempty = isinstance(periods, (list, tuple)) and len(periods) > 0
        validation.require(nonempty, "periods", periods, "a list of numbers > 0")
        for period in periods:
            validation.positive("periods", period)
        fits = isinstance(harmonics, (list, tuple)) and len(harmonics) == len(periods)
        validation.require(fits, "harmonics", harmonics, f"{len(periods)} integers >= 1, one for each period")
        waves = [
            (float(period), h)
            for period, count in zip(periods, harmonics, strict=True)
            for h in range(1, validation.positive_integer("harmonics", count) + 1)
        ]
        like, J = validation.tensor("forgetting_rate", forgetting_rate), len(waves)
        v, rate = _shares("share", share, like), _shares("cycle_rate", cycle_rate, like)
        self.states = 1 + 2 * J if bool((v > 0).any()) else 1
        shared = arms, covariances, kernel, noise_variance, forgetting_rate
        super().__init__(*shared, prior_mean=prior_mean, replicates=replicates)
        P, N = self.prior_mean.shape
        given = validation.rewards("profile", validation.numbers("profile", profile, self.prior_mean))
        validation.of_shape("profile", given, (P, 2 * J, N), (2 * J, N), ())
        q = v.new_tensor([1 / h**2 for _, h in waves])
        of_cycles = (v.unsqueeze(-1) * q / q.sum()).sqrt().repeat_interleave(2, -1)
        amplitude = torch.cat([(1 - v).sqrt().unsqueeze(-1), of_cycles], -1)[:, : self.states]
        rates = torch.stack([like] + [rate] * (self.states - 1), -1)
        held = {"profile": given.expand(P, 2 * J, N), "share": v, "cycle_rate": rate, "_amplitude": amplitude}
        for name, value in (held | {"_rates": rates}).items():
            self.register_buffer(name, value.to(self.prior_mean).clone(), persistent=False)
        self.profile: Tensor
        self._amplitude: Tensor
        self._rates: Tensor
        self.periods, self.harmonics, self._waves = tuple(map(float, periods)), tuple(harmonics), waves
        self.turned: float | None = None  # u of the latest observation

    def waves(self, time: Time | None) -> Tensor:
        """cos(w_1 u), sin(w_1 u), cos(w_2 u), ...: (2 J,)."""
        u = self.turned if time is None else time[1] if isinstance(time, tuple) else time
        angles = [2 * math.pi * h * (math.fmod(u or 0.0, period) / period) for period, h in self._waves]
        return self.mean.new_tensor([wave(angle) for angle in angles for wave in (math.cos, math.sin)])

    def _seen_through(self, time: Time | None) -> Tensor:
        """h(u), (P, s), where ``_seen_at`` has g = G^T h."""
        amplitude = self._amplitude
        if self.states == 1:
            return amplitude
        return amplitude * torch.cat([amplitude.new_ones(1), self.waves(time)])

    def _seen_at(self, time: Time | None) -> Tensor:
        return self._seen_through(time) * self._frame_at(time).diagonal(dim1=-2, dim2=-1)

    def _prior_column(self, row: Tensor) -> Tensor:
        start = self._seen_through(None) / self.frame.diagonal(dim1=-2, dim2=-1)
        return row.unsqueeze(-2) * start.unsqueeze(-1)

    def _prior_mean_at(self, time: Time | None) -> Tensor:
        return self.prior_mean + self.waves(time) @ self.profile

    def _advance(self, time: Time | None) -> None:
        super()._advance(time)
        if time is not None:
            self.turned = time[1] if isinstance(time, tuple) else time

    def passing(self, rate: Tensor, gap: float | Tensor) -> Tensor:  # type: ignore[override]
        """F, diagonal: (1 - eps)^{gap / 2}, and (1 - delta)^{gap / 2} for the cycles."""
        gap = gap.unsqueeze(-1) if isinstance(gap, Tensor) else gap
        rates = self._rates.reshape(-1, *[1] * (rate.dim() - 1), self.states)
        return torch.diag_embed((1 - rates) ** (gap / 2))

    @staticmethod
    def far(frame: Tensor) -> Tensor:
        return frame.diagonal(dim1=-2, dim2=-1).amin(-1).square() < FADED

    def _carried(self, time: Time, times: Sequence[Time]) -> Tensor:
        seen = torch.stack([self._seen_through(one) for one in times], 1)  # (P, K, s)
        return self._passing_between(time, times).diagonal(dim1=-2, dim2=-1) * seen

    def prior_between(self, arms: Tensor, times: Sequence[Time]) -> Tensor:
        seen = torch.stack([self._seen_through(one) for one in times], 1)
        passed = self._passing_between(times, times).diagonal(dim1=-2, dim2=-1)  # (P, K, K, s)
        return self._between(arms) * (passed * seen.unsqueeze(-2) * seen.unsqueeze(-3)).sum(-1)

    @staticmethod
    def _congruence(G: Tensor) -> Tensor:
        d = G.diagonal(dim1=-2, dim2=-1)
        i, j = torch.triu_indices(d.shape[-1], d.shape[-1], device=d.device)
        return torch.diag_embed(d[..., i] * d[..., j])

    def _through_frame(self, rows: Tensor, G: Tensor, counts: Tensor) -> Tensor:
        d = G.diagonal(dim1=-2, dim2=-1).repeat_interleave(rows.shape[-1] // self.states, -1).unsqueeze(1)
        return rows * (d.unsqueeze(-1) * counts) * d.unsqueeze(-2)

    def reset(self, where: Tensor | None = None) -> None:
        super().reset(where)
        if where is None:
            self.turned = None


def _shares(name: str, value: Tensor | float, like: Tensor) -> Tensor:
    """Numbers in [0, 1), one for each member, in the shape of ``like``."""
    value = validation.numbers(name, value, like)
    validation.of_shape(name, value, (), tuple(like.shape))
    validation.require(bool(((value >= 0) & (value < 1)).all()), name, value, "in [0, 1)")
    return value.expand(like.shape)


class LevelMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each, with a part f for each arm and a common level l:

        y = f(arm, t) + l(t) + noise,    Cov(f(i, t), f(j, t')) = K_ij (1 - eps)^{|t - t'| / 2},
        Cov(l(t), l(t')) = v (1 + r) e^{-r},    r = sqrt(3) |t - t'| / timescale,

    so the kernel is K (x) k_time + 1 1^T (x) k_level. For example, all rewards rise by day and fall by night. Arms are
    compared by f alone.

    This is the recursion of ``RecursiveMembers`` with s = 3 numbers for each arm, (f, l, l' timescale / sqrt(3)). Their
    prior covariances are K, v 1 1^T and v 1 1^T, and an observation measures f + l: h = (1, 1, 0). F is block diagonal,
    with (1 - eps)^{gap / 2} and the F of ``SmoothMembers``.

    ``at`` and ``rewards`` refer to f + l, the reward. ``marginals`` and ``covariance_with`` compare arms: their
    variances and covariances are of f given the level at that time. If the level is unknown, it may be higher and all
    arms lower. This uncertainty is common to all arms and does not affect which arm is best; conditioning on l removes
    it. The means of ``marginals`` are those of f + l, or with a ``control`` those of the lift f - f_control.

    Args:
        arms, covariances, kernel, noise_variance, prior_mean, replicates: as for ``ArmMembers``.
        forgetting_rate: (P,) eps in [0, 1), of f.
        level_variance: (P,) v > 0.
        timescale: (P,) > 0.05, of the level.
        control: the arm with which lifts compare; None: means are of rewards.

    Memory and cost of folds: nine times those of ``ArmMembers``. Raises ValueError as ``ArmMembers`` does, and for
    numbers out of range.

    Source: the Kalman filter over fixed places with a sum of kernels (Sarkka, Solin & Hartikainen 2013, section 4); the
    dense solution of the same equations agrees with it (tests). The comparison of arms is ours.
    """

    states = 3
    has_level = True

    def __init__(
        self,
        arms: Tensor | int,
        covariances: Tensor,
        kernel: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        *,
        level_variance: Tensor,
        timescale: Tensor,
        control: int | None = None,
        prior_mean: float | Tensor = 0.0,
        replicates: int = 1,
    ) -> None:
        shared = arms, covariances, kernel, noise_variance, forgetting_rate
        super().__init__(*shared, prior_mean=prior_mean, replicates=replicates)
        bounds = ("level_variance", level_variance, 0.0), ("timescale", timescale, SHORTEST)
        for name, value, least in bounds:
            validation.finite_tensor(name, value)
            validation.of_shape(name, value, (len(self.kernel),), note=", one for each member")
            validation.require(bool((value > least).all()), name, value, f"> {least}")
        if control is not None:
            inside = validation.natural("control", control) < self.num_arms
            validation.require(inside, "control", control, f"None or an arm, 0 to {self.num_arms - 1}")
        self.control = control
        rate = -torch.expm1(-math.sqrt(3) / timescale.double())
        held = {"level_variance": level_variance, "timescale": timescale, "_level_rate": rate}
        for name, value in (held | {"_variance_of_f": self.prior_variance}).items():
            self.register_buffer(name, value.to(self.prior_mean), persistent=False)
        self.level_variance: Tensor
        self._level_rate: Tensor
        self._variance_of_f: Tensor
        self.prior_variance = self.prior_variance + self.level_variance.unsqueeze(-1)
        self._least = torch.finfo(self._least.dtype).eps * self.prior_variance

    # -- time ------------------------------------------------------------------------------------------

    def passing(self, rate: Tensor, gap: float | Tensor) -> Tensor:  # type: ignore[override]
        """F, block diagonal."""
        rate_of_level = self._level_rate.to(rate.device).reshape(-1, *[1] * (rate.dim() - 1))
        level = SmoothMembers.passing(rate_of_level, gap)
        F = pad(level, (1, 0, 1, 0))
        F[..., 0, 0] = (1 - rate) ** (gap / 2)
        return F

    @staticmethod
    def far(frame: Tensor) -> Tensor:
        return torch.minimum(frame[..., 0, 0].square(), determinant(frame[..., 1:, 1:]).abs()) < FADED

    @staticmethod
    def _measured(frames: Tensor) -> Tensor:
        return frames[..., :2, :].sum(-2)

    @staticmethod
    def _started(frames: Tensor) -> Tensor:
        return torch.cat([first_of_inverse(frames[..., :1, :1]), first_of_inverse(frames[..., 1:, 1:])], -1)

    def _prior_column(self, row: Tensor) -> Tensor:
        start = self._start()
        level = self.level_variance.unsqueeze(-1) * start[:, 1:]
        of_level = level.unsqueeze(-1).expand(*row.shape[:-1], 2, row.shape[-1])
        return torch.cat([(row * start[:, :1]).unsqueeze(-2), of_level], -2)

    # -- predicting ------------------------------------------------------------------------------------

    def level(self, time: Time | None = None) -> Tensor:
        """Posterior mean of the level at ``time`` (default: now), (S, P)."""
        return (self._frame_at(time)[:, 1, 1:] * self.mean[:, :, 1:, 0]).sum(-1)

    def marginals(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        """Mean of every arm's reward, or lift over the control, and variance of its f given the level at ``time``."""
        g = self._frame_at(time)[:, :1, 0]
        mean = self.prior_mean + g * self.mean[:, :, 0]
        shared, of_level = self._with_level(time)
        variance = self._variance_of_f - g.square() * self.reduction[:, :, 0] - shared.square() / of_level
        if self.control is None:
            mean = mean + self.level(time).unsqueeze(-1)
        else:
            mean = mean - mean[..., self.control].unsqueeze(-1)
        return mean, torch.maximum(variance, torch.finfo(variance.dtype).eps * self._variance_of_f)

    def covariance_with(self, arm: Tensor, time: Time | None = None) -> Tensor:
        """Posterior covariance of every arm's f with f of one arm per replicate, ``arm`` (S,), given the level at
        ``time``: (S, P, N)."""
        g = pad(self._frame_at(time)[:, :1, 0], (0, 2))
        row = self._prior_row(arm)
        shared, of_level = self._with_level(time)
        of_arm = shared[self._run, :, arm].unsqueeze(-1)
        return row - g[:, :1] * self._learned_of(arm, row, g)[:, :, 0] - of_arm * shared / of_level

    def _with_level(self, time: Time | None) -> tuple[Tensor, Tensor]:
        """Covariance of every arm's f with the level, and the variance of the level, (S, P, N) each."""
        # G takes f to g f and l to u l + w d, with d the third number; ``ld`` is the reduction of Cov(l, d).
        frame = self._frame_at(time)
        g, (u, w) = frame[:, :1, 0], frame[:, 1, 1:].unsqueeze(-1).unbind(1)
        _, fl, fd, ll, ld, dd = self.reduction.unbind(2)
        of_level = self.level_variance.unsqueeze(-1) - (u * u * ll + 2 * u * w * ld + w * w * dd)
        return -g * (u * fl + w * fd), torch.maximum(of_level, self._least)

    # -- learning --------------------------------------------------------------------------------------

    def forget_level(self, where: Tensor) -> Tensor:
        """See ``MembersOverArms``. The posterior of f stays."""
        n = self.rows.shape[-1] // 3
        if self.blind:
            empty((self.mean[:, :, 1:], self.reduction[:, :, 1:]), where)
            of_level = self.pending[..., 1:, :], self.rows[:, :, n:], self.rows[:, :, :n, n:]
            empty(of_level, where.T)
            return where
        run, member = where.nonzero(as_tuple=True)
        self.mean[run, member, 1:] = 0.0
        self.reduction[run, member, 1:] = 0.0
        self.pending[member, run, :, 1:] = 0.0
        self.rows[member, run, n:] = 0.0
        self.rows[member, run, :, n:] = 0.0
        return where

    def prior_between(self, arms: Tensor, times: Sequence[Time]) -> Tensor:
        F = self._passing_between(times, times)
        return self._between(arms) * F[..., 0, 0] + self.level_variance[:, None, None] * F[..., 1, 1]

    def condition_mean(self, where: Tensor, arms: Tensor, times: Sequence[Time], weights: Tensor) -> None:
        F = self._passing_between(times[-1] if self.now is None else self.now, times)  # (P, K, 3, 3)
        level = self.level_variance.unsqueeze(-1) * torch.einsum("zpk,pki->zpi", weights, F[..., 1:, 1])
        of_f = self._combined(arms, weights * F[..., 0, 0])
        now = torch.cat([of_f.unsqueeze(-2), level.unsqueeze(-1).expand(-1, -1, -1, self.num_arms)], -2)
        self.mean.copy_(torch.where(where[..., None, None], torch.linalg.solve(self.frame, now), self.mean))

    def _extension(self, small: RecursiveMembers) -> Tensor:
        of_f = super()._extension(small)[:, :1]
        of_level = torch.zeros_like(of_f)
        of_level[..., 0] = 1.0  # the level is the same at every arm
        return torch.cat([of_f, of_level, of_level], 1)


class StackedMembers(MembersOverArms):
    """The members of several models in one model: for example ``ArmMembers``, then ``SmoothMembers``.

    Args:
        parts: ``RecursiveMembers`` over the same arms, with equal ``replicates``; no ``LevelMembers`` with a control.

    Cost: the sum of the parts' costs. Source: see the parts; the combination is ours.
    Raises ValueError for parts of other kinds, of other arms or replicates than the first, and without a part.
    """

    def __init__(self, parts: Sequence[RecursiveMembers]) -> None:
        super().__init__()
        validation.instance("parts", parts, (list, tuple), "a list of models")
        validation.require(len(parts) > 0, "parts", parts, "at least one")
        for part in parts:
            validation.instance("parts", part, RecursiveMembers, "a model such as ArmMembers")
            validation.require(part.control is None, "parts", part, "LevelMembers without a control")
            fits = part.replicates == parts[0].replicates and torch.equal(part.arms, parts[0].arms)
            validation.require(fits, "parts", part, "models over the same arms, with equal replicates")
        self.stacked = torch.nn.ModuleList(parts)
        self.replicates = parts[0].replicates
        self.has_cycles = any(part.has_cycles for part in parts)
        self.has_level = any(part.has_level for part in parts)
        noises = [part.noise_variance.expand(part.batch_shape) for part in parts]
        self.register_buffer("noise_variance", torch.cat(noises, -1), persistent=False)
        for name in ("forgetting_rate", "prior_mean"):
            whole = torch.cat([getattr(part, name) for part in parts])
            self.register_buffer(name, whole, persistent=False)

    @property
    def parts(self) -> tuple[RecursiveMembers, ...]:
        return tuple(self.stacked)  # type: ignore[arg-type]

    @property
    def arms(self) -> Tensor:  # type: ignore[override]
        """(N, d)."""
        return self.parts[0].arms

    @property
    def now(self) -> float | None:  # type: ignore[override]
        """The time of the latest observation."""
        return self.parts[0].now

"""Members whose arms have cycles: in the prior mean, in the learned part, or in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.members import _FADED, RecursiveMembers, Time


class CyclicMembers(RecursiveMembers):
    """P Gaussian processes over N arms, S replicates of each, with cycles of known periods.

    With harmonics j of frequencies w_j = 2 pi h / period, member p is

        f(x, t) = mean(x) + sum_j (cos(w_j u) a_j(x) + sin(w_j u) b_j(x)) + g(x, t),
        Cov(g(x, t), g(x', t')) = K(x, x') [(1 - v) (1 - eps)^{|t - t'| / 2}
                                            + v (1 - delta)^{|t - t'| / 2} sum_j q_j cos(w_j (u - u'))].

    The cycle a, b of the prior mean is given (``profile``); a cycle with share v of the variance is learned. Forgetting
    depends on t, and the phase of a cycle on u: u = t, or the second number of a time that is a pair.

    This is the recursion of ``RecursiveMembers`` with s = 1 + 2 J numbers for J harmonics and diagonal frames: each
    number fades by itself, and the measurement vector of an observation is

        h(u) = (sqrt(1 - v), sqrt(v q_1) cos(w_1 u), sqrt(v q_1) sin(w_1 u), ...)

    in place of (1, 0, ...). With v = 0 for all members, s = 1, and a step costs as much as with ``ArmMembers``.

    Args:
        arms, covariances, kernel, noise_variance, prior_mean, replicates: of ``ArmMembers``.
        forgetting_rate: (P,) eps in [0, 1), per unit of t.
        periods: of the cycles, in units of u; finite and > 0.
        harmonics: of each period.
        profile: (P, 2 J, N), the a_j and b_j in turn, periods one after the other; 0: none.
        share: (P,) v in [0, 1).
        cycle_rate: (P,) delta in [0, 1).

    q_j is in proportion to 1 / h^2, for each period alike, and adds up to 1.

    Cost: s^2 times the memory and the folds of ``ArmMembers``. Raises ValueError as ``ArmMembers`` does, and for
    numbers out of range.

    Source: cycles as states that turn (Solin & Sarkka 2014, section 3), here in coordinates that turn with them.
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
        some = isinstance(periods, (list, tuple)) and len(periods) > 0
        validation.require(some, "periods", periods, "a list of numbers > 0")
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
        v, rate = (
            _shares(name, value, like) for name, value in (("share", share), ("cycle_rate", cycle_rate))
        )
        self.states = 1 + 2 * J if bool((v > 0).any()) else 1
        super().__init__(
            arms,
            covariances,
            kernel,
            noise_variance,
            forgetting_rate,
            prior_mean=prior_mean,
            replicates=replicates,
        )
        P, N = self.prior_mean.shape
        told = validation.rewards("profile", validation.numbers("profile", profile, self.prior_mean))
        fits = told.shape in ((), (2 * J, N), (P, 2 * J, N))
        validation.shape_is("profile", told, fits, f"({P}, {2 * J}, {N}), ({2 * J}, {N}) or ()")
        q = v.new_tensor([1 / h**2 for _, h in waves])
        size = (v.unsqueeze(-1) * q / q.sum()).sqrt().repeat_interleave(2, -1)
        size = torch.cat([(1 - v).sqrt().unsqueeze(-1), size], -1)[:, : self.states]
        rates = torch.stack([like] + [rate] * (self.states - 1), -1)
        held = {"profile": told.expand(P, 2 * J, N), "share": v, "cycle_rate": rate, "_amplitude": size}
        for name, value in (held | {"_rates": rates}).items():
            self.register_buffer(name, value.to(self.prior_mean).clone(), persistent=False)
        self.profile: Tensor
        self._amplitude: Tensor
        self._rates: Tensor
        self.periods, self.harmonics, self._waves = tuple(map(float, periods)), tuple(harmonics), waves
        self.turned: float | None = None  # where in the cycles the latest observation was

    def waves(self, time: Time | None) -> Tensor:
        """cos(w_1 u), sin(w_1 u), cos(w_2 u), ...: (2 J,)."""
        u = self.turned if time is None else time[1] if isinstance(time, tuple) else time
        angles = [2 * math.pi * h * (math.fmod(u or 0.0, period) / period) for period, h in self._waves]
        return self.mean.new_tensor([wave(angle) for angle in angles for wave in (math.cos, math.sin)])

    def _seen_through(self, time: Time | None) -> Tensor:
        """h, (P, s)."""
        size = self._amplitude
        if self.states == 1:
            return size
        return size * torch.cat([size.new_ones(1), self.waves(time)])

    def _seen_at(self, time: Time | None) -> Tensor:
        return self._seen_through(time) * self._frame_at(time).diagonal(dim1=-2, dim2=-1)

    def _origin_of(self) -> Tensor:
        return self._seen_through(None) / self.frame.diagonal(dim1=-2, dim2=-1)

    def _prior_mean_at(self, time: Time | None) -> Tensor:
        return self.prior_mean + self.waves(time) @ self.profile

    def _advance(self, time: Time | None) -> None:
        super()._advance(time)
        if time is not None:
            self.turned = time[1] if isinstance(time, tuple) else time

    def passing(self, rate: Tensor, gap: float | Tensor) -> Tensor:  # type: ignore[override]
        """Each number fades by its own rate: (1 - eps)^{gap / 2} and (1 - delta)^{gap / 2}."""
        gap = gap.unsqueeze(-1) if isinstance(gap, Tensor) else gap
        rates = self._rates.reshape(-1, *[1] * (rate.dim() - 1), self.states)
        return torch.diag_embed((1 - rates) ** (gap / 2))

    @staticmethod
    def far(frame: Tensor) -> Tensor:
        return frame.diagonal(dim1=-2, dim2=-1).amin(-1).square() < _FADED

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

    def _turned(self, rows: Tensor, G: Tensor) -> Tensor:
        d = G.diagonal(dim1=-2, dim2=-1).repeat_interleave(rows.shape[-1] // self.states, -1).unsqueeze(1)
        return rows * d.unsqueeze(-1) * d.unsqueeze(-2)

    def grow_from(self, small: RecursiveMembers) -> None:  # type: ignore[override]
        """Take over what ``small`` learned, a model built like these members over the first of these arms."""
        super().grow_from(small)
        self.turned = cast(CyclicMembers, small).turned

    def reset(self, where: Tensor | None = None) -> None:
        super().reset(where)
        if where is None:
            self.turned = None


def _shares(name: str, value: Tensor | float, like: Tensor) -> Tensor:
    """Numbers in [0, 1), one for each member, as ``like`` has."""
    value = validation.numbers(name, value, like)
    validation.shape_is(name, value, value.shape in ((), like.shape), f"() or {tuple(like.shape)}")
    validation.require(bool(((value >= 0) & (value < 1)).all()), name, value, "in [0, 1)")
    return value.expand(like.shape)

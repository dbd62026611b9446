"""Arms whose function over time has a state of several numbers: its Kalman filter, and the belief over the arms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch.kernels.state_space import block_diagonal, kron
from bandits_torch.models.arms.belief import ArmBelief
from bandits_torch.models.arms.factor_form import half_log1p
from bandits_torch.models.arms.prior import StateSpacePrior
from bandits_torch.models.online_model import ResizableState, held_elsewhere


class StateSpaceForm(ResizableState):
    """State of ``ArmGP`` over components c of s_c = p_c m_c numbers per arm: mean m and covariance C of all at once.

        f(i, t) = sum_c h_c(t)^T z_c(i, t),   Cov z_c(t) = K_c (x) P_c (x) W_c,
        z_c(t + dt) = (A_c(dt) (x) I) z_c(t) + q

    with h_c(t) = h_c (x) waves(t - origin): what turns is kept in coordinates that turn with it, so that a cycle alone
    does not move at all, and no rounding builds up over its rounds. As time moves by dt,

        m <- A m,   C <- A C A^T + sum_c K_c (x) (P_c - A_c P_c A_c^T) (x) W_c   (Kalman's prediction)

    A pull of arm i is Kalman's update, symmetric and of rank one: with g = h(t) at arm i, c = C g, v = g^T c + lambda,

        m += c (y - g^T m) / v,   C -= c c^T / v.

    An arm's variance keeps a relative accuracy of k / lambda of machine precision, as it does where the exact C g =
    c lambda / v is written into C afterwards. ``gain`` and ``surprise`` as in ``CovarianceForm``.

    At a later time f(t) = g^T z(now) + what is new, sum_c K_c (k_c(0) - g_c^T (P_c (x) W_c) g_c), g = A^T h(t): nothing
    moves until the next observation.

    Memory O(b (s N)^2). Time O((s N)^2) an observation; O(p (s N)^2) as time moves, p the largest p_c (1 to 3 of a
    Matern), nothing where all components stand still. Prediction of all arms O(s^2 N), jointly O((s N)^2).

    ``SmoothMembers``, the same posterior of one Matern 3/2 alone, leaves C where it was at the last fold, as
    ``CovarianceForm`` does: its step takes 0.7 of this one's time at 20 arms, 0.6 at 100 and 0.13 at 300 (one thread),
    and the two agree to 5e-14. Here sums of kernels over different K, and cycles, are learned too.

    Source: Sarkka, Solin & Hartikainen 2013, section 4 (equations of the Kalman filter over fixed places).
    """

    mean: Tensor  # (b, s N), arms last
    covariance: Tensor  # (b, s N, s N)
    gain: Tensor
    surprise: Tensor
    matrix_0: Tensor  # K_0, (q, N, N), and so on

    def __init__(self, prior: StateSpacePrior, batch: int, noise_variance: Tensor) -> None:
        super().__init__()
        self.prior: StateSpacePrior
        held_elsewhere(self, prior=prior)
        self.register_buffer("noise_variance", noise_variance.clone(), persistent=False)
        self.noise_variance: Tensor
        matrices = prior.matrices()
        for k, matrix in enumerate(matrices):
            self.register_buffer(f"matrix_{k}", matrix)
        states = sum(part.dimension for _, part in prior.components())
        size = states * prior.num_arms
        self.register_buffer("covariance", matrices[0].new_zeros(batch, size, size))
        self.register_buffer("mean", matrices[0].new_zeros(batch, size))
        self.register_buffer("gain", matrices[0].new_zeros(batch))
        self.register_buffer("surprise", matrices[0].new_zeros(batch))
        self.register_buffer("_member", torch.arange(batch, device=self.mean.device), persistent=False)
        self._member: Tensor
        self.origin: float | None = None  # of the waves' phases: the first time that anything was learned
        self._add_prior(self.covariance, [part.covariance.squeeze(1) for _, part in prior.components()])

    @property
    def states(self) -> int:
        """s, numbers per arm."""
        return self.mean.shape[-1] // self.prior.num_arms

    @property
    def size(self) -> int:
        """s N."""
        return self.mean.shape[-1]

    @property
    def lasting(self) -> tuple[Any, ...]:
        """What no observation changes."""
        return self.prior, *(getattr(self, f"matrix_{k}") for k in range(len(self.prior.terms)))

    can_mend = can_forget = False  # nothing is ever removed, so errors do not grow

    def joint_root(self) -> None:
        """None is kept."""

    # -- learning --------------------------------------------------------------------------------------

    def advance(self, now: float, time: float) -> None:
        """Let time pass: Kalman's prediction."""
        parts = self.prior.components()
        moving = [k for k, (_, part) in enumerate(parts) if not part.still]
        if not moving:
            return
        steps = self.prior.step(time - now)
        kept = [a for a, _ in steps]
        self.mean = self._moved(self.mean.unsqueeze(-1), kept).squeeze(-1)
        half = self._moved(self.covariance, kept)
        self.covariance = self._moved(half.mT.contiguous(), kept)
        self._add_prior(self.covariance, [q for _, q in steps], moving)

    def _moved(self, value: Tensor, kept: list[Tensor]) -> Tensor:
        """A times ``value`` (b, s N, n), in place where each number moves alone."""
        at, N = 0, self.prior.num_arms
        for (_, part), a in zip(self.prior.components(), kept, strict=True):
            length = part.dimension * N
            rows = value[:, at : at + length]
            at += length
            if part.still:
                continue
            p = len(part.measurement)
            if p == 1:
                rows.mul_(a)
            else:
                rows.copy_((a @ rows.unflatten(1, (p, -1)).flatten(2)).reshape(rows.shape))
        return value

    def _add_prior(self, to: Tensor, blocks: list[Tensor], only: list[int] | None = None) -> None:
        """Add K_c (x) block_c (x) W_c on the diagonal, block_c (b, p, p) or (1, p, p)."""
        at, N = 0, self.prior.num_arms
        for k, ((term, part), block) in enumerate(zip(self.prior.components(), blocks, strict=True)):
            p, m = len(part.measurement), part.width
            inside = slice(at, at + p * m * N)
            at += p * m * N
            if only is not None and k not in only:
                continue
            own = to[:, inside, inside].unflatten(2, (p, m, N)).unflatten(1, (p, m, N))
            own = own.diagonal(dim1=2, dim2=5)  # b, p, N, p, N, m
            weights = part.wave_weights().squeeze(1).to(to)
            K = getattr(self, f"matrix_{term}")
            value = self._by_prior(block.to(to))[..., :, None, :, None, None]
            value = value * self._by_prior(weights)[..., None, None, None, None, :]
            self._by_prior(own).add_(value * K[:, None, :, None, :, None])

    def add(self, arm: Tensor, residual: Tensor, now: float, where: Tensor | None = None) -> None:
        """Observe y - prior mean = ``residual`` (b,) at ``arm`` (b,)."""
        if self.origin is None:
            self.origin = now
        g = self.measured(now, now).expand(len(arm), -1)
        place = self._places(arm)
        rows = self.covariance[self._member.unsqueeze(-1), place]  # (b, s, s N)
        column = (g.unsqueeze(1) @ rows).squeeze(1)
        variance = (column.gather(-1, place) * g).sum(-1, keepdim=True).clamp_min(0.0)
        total = variance + self.noise_variance
        scale = total.rsqrt() if where is None else total.rsqrt() * where.unsqueeze(-1)
        unit = column * scale
        seen = (self.mean.gather(-1, place) * g).sum(-1, keepdim=True)
        innovation = (residual.unsqueeze(-1) - seen) * scale
        self.mean.addcmul_(unit, innovation)
        self.surprise.add_(innovation.squeeze(-1).square())
        self.covariance.addcmul_(unit.unsqueeze(-1), unit.unsqueeze(-2), value=-1)
        self.gain.add_(half_log1p(variance / self.noise_variance, where))

    def _places(self, arm: Tensor) -> Tensor:
        """Where the numbers of an arm are, (..., s), for arms (...)."""
        return arm.unsqueeze(-1) + self.prior.num_arms * torch.arange(self.states, device=arm.device)

    def reset(self, scale: Tensor | float, where: Tensor | None = None) -> None:
        """Back to the prior."""
        prior = torch.zeros_like(self.covariance)
        self._add_prior(prior, [part.covariance.squeeze(1) for _, part in self.prior.components()])
        if where is None:
            self.covariance, self.origin = prior, None
            self.mean.zero_()
            self.gain.zero_()
            self.surprise.zero_()
            return
        self.covariance = torch.where(where[:, None, None], prior, self.covariance)
        self.mean.masked_fill_(where.unsqueeze(-1), 0.0)
        self.gain.masked_fill_(where, 0.0)
        self.surprise.masked_fill_(where, 0.0)

    def widen(self, source: Tensor) -> None:
        """Become a batch of len(source) members, member m a copy of what member source[m] was."""
        for name, held in list(self.named_buffers(recurse=False)):
            if not name.startswith("matrix_"):
                setattr(self, name, held[source])
        for k, matrix in enumerate(self.prior.matrices()):
            setattr(self, f"matrix_{k}", matrix)
        self._member = torch.arange(len(source), device=source.device)

    # -- predicting ------------------------------------------------------------------------------------

    def measured(self, now: float | None, time: float | Tensor, term: int | None = None) -> Tensor:
        """g with f(time) = g^T z(now) + news: (b, s) or (1, s) of a number, (..., n, s) of times ``... x b x n``.

        ``term``: of that alone, its components in order.
        """
        number = not isinstance(time, Tensor)
        times = torch.full((1, 1), time, dtype=torch.float64) if number else time.double()  # type: ignore[union-attr, arg-type]
        times = times.to(self.mean.device)
        since, phase = times - (now or 0.0), times - (self.origin if self.origin is not None else now or 0.0)
        rows = []
        for k, part in self.prior.components():
            if term in (None, k):
                over = part.measurement @ part.decay(since)
                rows.append((over.unsqueeze(-1) * part.waves(phase).unsqueeze(-2)).flatten(-2))
        shape = torch.broadcast_shapes(*[row.shape[:-1] for row in rows])
        g = torch.cat([row.expand(*shape, -1) for row in rows], -1).to(self.mean)
        return g.squeeze(-2) if number else g

    def news(self, now: float, time: float) -> list[Tensor]:
        """Of each term, in units of K_c, the variance of f(time) that z(now) has no part in, (b, 1) or (1, 1)."""
        elapsed = torch.full((1, 1), time - now, dtype=torch.float64, device=self.mean.device)
        gained = [torch.zeros((), device=self.mean.device)] * len(self.prior.terms)
        for k, part in self.prior.components():
            if not part.still:
                over = part.measurement @ part.gained(elapsed) @ part.measurement
                gained[k] = gained[k] + over * part.weight.sum(-1)
        return [value.to(self.mean) for value in gained]

    def at_time(self, now: float, time: float) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm, (b, N) each, the mean relative to the prior's."""
        g = self.measured(now, time)
        N, s = self.prior.num_arms, self.states
        mean = (g.unsqueeze(-2) @ self.mean.unflatten(-1, (s, N))).squeeze(-2)
        own = self.covariance.unflatten(2, (s, N)).unflatten(1, (s, N)).diagonal(dim1=2, dim2=4)  # b, s, s, N
        known = ((own * g[..., None, :, None]).sum(2) * g.unsqueeze(-1)).sum(1)
        for k, gained in enumerate(self.news(now, time)):
            K = getattr(self, f"matrix_{k}").diagonal(dim1=-2, dim2=-1)
            known = (self._by_prior(known) + self._by_prior(gained) * K).flatten(0, 1)
        return mean, known

    def joint_at(self, now: float, time: float) -> Tensor:
        """Covariance among all arms, (b, N, N)."""
        g = self.measured(now, time)
        N, s = self.prior.num_arms, self.states
        half = (g.unsqueeze(-2) @ self.covariance.unflatten(1, (s, N)).flatten(2)).reshape(-1, N, s, N)
        known = (half * g[:, None, :, None]).sum(2)
        for k, gained in enumerate(self.news(now, time)):
            K = getattr(self, f"matrix_{k}")
            known = (self._by_prior(known) + self._by_prior(gained.unsqueeze(-1)) * K).flatten(0, 1)
        return known

    def among(self, arm: Tensor, now: float, times: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (T, b, n) and covariance (T, b, n, n) at points (T, b, n) of arms and times."""
        g, place = self.measured(now, times), self._places(arm)  # (T, b, n, s) each
        member = self._member[:, None]
        mean = (self.mean[member[..., None], place] * g).sum(-1)
        row, column = place.unsqueeze(-2).unsqueeze(-1), place[:, :, None, :, None, :]
        C = self.covariance[self._member[:, None, None, None, None], row, column]  # T, b, n, n, s, s
        known = ((C * g[:, :, None, :, None, :]).sum(-1) * g.unsqueeze(-2)).sum(-1)
        return mean, known + self.prior.in_time(arm, times) - self._explained(arm, now, times)

    def _explained(self, arm: Tensor, now: float, times: Tensor) -> Tensor:
        """What of the prior covariance among the points is that of z(now): (T, b, n, n)."""
        parts = self.prior.components()
        total = self.mean.new_zeros(())
        for k in range(len(self.prior.terms)):
            g = self.measured(now, times, k)
            own = [part for number, part in parts if number == k]
            P = block_diagonal(
                [kron(c.covariance, torch.diag_embed(c.wave_weights())).squeeze(1) for c in own]
            )
            between = (g @ P.to(g)) @ g.mT
            K = getattr(self, f"matrix_{k}")
            total = (
                total
                + between * K[(self._member % len(K))[:, None, None], arm.unsqueeze(-1), arm.unsqueeze(-2)]
            )
        return total

    def _by_prior(self, value: Tensor) -> Tensor:
        """(b, ...) as (b/q, q, ...), so that it broadcasts against K (q, N, N); (1, ...) as (1, 1, ...)."""
        q = len(self.matrix_0) if value.dim() and value.shape[0] > 1 else 1
        return value.unflatten(0, (-1, q)) if value.dim() else value

    # -- state -----------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """What the tensors alone do not tell."""
        return {"origin": self.origin}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``."""
        self.origin = state["origin"]


class StateSpaceBelief(ArmBelief):
    """``ArmBelief`` over a ``StateSpacePrior``: f at a later time is read off the state, several numbers per arm.

    Learning, late rewards, restarts and ``hold`` are those of ``ArmBelief``. Forgetting learns what is left again, at
    the cost of its steps: an observation that has drifted since is no rank-one change of the state.
    """

    prior: StateSpacePrior
    form: StateSpaceForm  # type: ignore[assignment]
    takes_noise = False
    forms = dict.fromkeys(("covariance", "state-space"), StateSpaceForm)
    forgetting_form = "state-space"

    @property
    def form_name(self) -> str:
        """``"state-space"``."""
        return "state-space"

    def check_spread(self, time: float | None, form: str | None = None) -> None:
        """Nothing to refuse: the prior variance stays what it is."""

    def forget(self, count: int, where: Tensor) -> None:
        """Unlearn the ``count`` oldest observations of the members with ``where`` True that hold any."""
        if where.is_cpu and not bool((where & (self.observations.count > 0)).any()):
            self.forgets = True
            return
        super().forget(count, where)

    def _present(self) -> float:
        return 1.0

    def _move_to(self, time: float) -> None:
        if self.now is not None and time != self.now:
            self.form.advance(self.now, time)
        self.now = time

    def _learned_mean(self) -> Tensor:
        now = self.now or 0.0
        return self.form.at_time(now, now)[0]

    # -- predicting ------------------------------------------------------------------------------------

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm at ``time`` (default: now), (b, N) each. O(s^2 N)."""
        then = (self.now or 0.0) if time is None else time
        mean, variance = self.form.at_time(then if self.now is None else self.now, then)
        return (mean + self.prior_mean).to(self.prior_mean), variance.clamp_min(0.0).to(self.prior_mean)

    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean (b, N) and covariance (b, N, N) over all arms at ``time`` (default: now). O((s N)^2)."""
        mean, _ = self.marginals(time)
        then = (self.now or 0.0) if time is None else time
        return mean, self._own(self.form.joint_at(then if self.now is None else self.now, then))

    def at(self, arm: Tensor, times: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean (T, b, n) and covariance (T, b, n, n) at points (T, b, n) of arms and times (None: now)."""
        if times is None:
            times = torch.full(arm.shape, self.now or 0.0, dtype=torch.float64, device=arm.device)
        now = float(times.min()) if self.now is None else self.now
        mean, covariance = self.form.among(arm, now, times)
        mean = mean + self.prior_mean.expand(arm.shape[0], *self.prior_mean.shape).gather(-1, arm)
        return self._own(mean), self._own(covariance)

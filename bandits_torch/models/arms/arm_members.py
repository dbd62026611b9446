"""Many exact Gaussian processes over the same arms, with kernels, noises and forgetting rates of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arms import inputs

_PENDING = 16  # observations between two passes over a member's N x N matrix
_FADED = 1e-8  # a factor below which what is held is rescaled


class ArmMembers(Described, torch.nn.Module):
    """P Gaussian processes over N arms, S replicates of each: ``ArmGP`` of batch shape (S, P) for large P.

    Member p has the covariance K_g(p), the noise variance lambda_p and exponential forgetting at rate eps_p,

        Cov(f(x, t), f(x', t')) = K(x, x') (1 - eps)^{|t - t'| / 2}.

    The posterior covariance is never stored as such. With a = prod (1 - eps)^{dt} since the last rescaling,

        C = K - a (R + W^T W),   mean = prior mean + sqrt(a) m,   diag C = diag K - a d,

    so that the passing of time changes the number a alone. Observing y at arm i, with c = C_i and s = c_i + lambda,

        m += c (y - mean_i) / (s sqrt(a)),   d += c^2 / (s a),   W gets the row c / sqrt(s a),

    and W^T W is added to R every 16 observations. So a step reads a row of R and the rows of W, O(P N), and passes over
    R for a sixteenth of the members, as one matrix product.

    Args:
        arms: ``(N, d)`` features, carried along; or N.
        covariances: (G, N, N), symmetric positive semi-definite: the different K.
        kernel: (P,) integers in 0, ..., G - 1, which of them each member has.
        noise_variance: (P,) or (S, P) lambda > 0.
        forgetting_rate: (P,) eps in [0, 1), per unit of time.
        prior_mean: number, (N,) or (P, N).
        replicates: S.

    Cost: O(S P N) a step, and O(S P N^2) at the speed of a matrix product. Memory O(S P N^2 + G N^2).
    Times must not decrease; an earlier time counts as now. Raises ValueError for shapes that do not fit, numbers out of
    range and reversed time in ``marginals``.

    Source: the recursion of ``CovarianceForm``; ``ArmGP`` of the same priors agrees with it (tests).
    """

    can_condition_mean = True  # which ``ArmModel`` cannot
    mean: Tensor
    reduction: Tensor
    rows: Tensor
    pending: Tensor
    fade: Tensor

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
        self.register_buffer("prior_variance", prior_variance.to(features)[self.kernel], persistent=False)
        batch = (replicates, count)
        self.register_buffer("mean", features.new_zeros(*batch, n))
        self.register_buffer("reduction", features.new_zeros(*batch, n))
        # Members first: those whose turn it is lie together.
        self.register_buffer("rows", features.new_zeros(count, replicates, size, size))
        self.register_buffer("pending", features.new_zeros(count, replicates, _PENDING, size))
        self.register_buffer("fade", features.new_ones(count))
        least = torch.finfo(features.dtype).eps * self.prior_variance
        self.register_buffer("_least", least, persistent=False)  # a variance is at least that
        self.register_buffer("_run", torch.arange(replicates, device=features.device), persistent=False)
        self.now: float | None = None
        self._turn = 0  # the row of ``pending`` that is written next
        # In captured steps (``bandits_torch.captured``): 0 where a member's R no longer counts, else 1, (P, S). A reset
        # then marks, and the member's R is emptied when its turn comes.
        self.counting: Tensor | None = None

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

    # -- what it is ------------------------------------------------------------------------------------

    arms: Tensor
    covariances: Tensor
    kernel: Tensor
    noise_variance: Tensor
    forgetting_rate: Tensor
    prior_mean: Tensor
    prior_variance: Tensor
    _least: Tensor
    _run: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """(S, P)."""
        return torch.Size((self.replicates, len(self.kernel)))

    @property
    def num_arms(self) -> int:
        """N."""
        return self.arms.shape[-2]

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): (S, P, N) each. O(S P N)."""
        fade = self._fade_at(time)
        mean = torch.addcmul(self.prior_mean, self.mean, fade.sqrt().unsqueeze(-1))
        variance = torch.addcmul(self.prior_variance, self.reduction, fade.unsqueeze(-1), value=-1)
        return mean, torch.maximum(variance, self._least, out=variance)

    def at(self, arm: Tensor, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one arm per replicate, ``arm`` (S,), under every member: (S, P) each."""
        fade, (mean, variance) = self._fade_at(time), self.prior_at(arm)
        mean = mean + self.mean[self._run, :, arm] * fade.sqrt()
        return mean, torch.maximum(variance - self.reduction[self._run, :, arm] * fade, self._least.T[arm])

    def prior_at(self, arm: Tensor) -> tuple[Tensor, Tensor]:
        """``at`` before the first observation."""
        return self.prior_mean.T[arm], self.prior_variance.T[arm]

    def covariance_with(self, arm: Tensor, time: float | None = None) -> Tensor:
        """Posterior covariance of every arm with one per replicate, ``arm`` (S,), at ``time``: (S, P, N). O(S P N)."""
        fade = self._fade_at(time).clamp_min(_FADED**4)  # of less nothing is left, and 0 would divide 0
        return self._over_arms(self._column(arm, fade)) * fade.sqrt().unsqueeze(-1)

    # -- learning --------------------------------------------------------------------------------------

    def observe_arms(self, arm: Tensor, reward: Tensor, time: float | None = None) -> None:
        """Learn one reward per member, ``reward`` that broadcasts to (S, P), of one arm per replicate, (S, 1)."""
        self._advance(time)
        arm = arm.reshape(-1).expand(self.replicates)
        self.learn_now(arm, reward, self.at(arm), self._turn)
        self._turn = (self._turn + 1) % _PENDING

    def learn_now(self, arm: Tensor, reward: Tensor, at: tuple[Tensor, Tensor], turn: int) -> None:
        """``observe_arms`` at the time it is now, of arms (S,) whose moments are ``at``; the row of ``pending`` that is
        written is ``turn``."""
        mean, variance = at
        deviation = (variance + self.noise_variance).sqrt()
        scaled = self._column(arm, self.fade).div_(deviation.unsqueeze(-1))
        innovation = (reward.to(mean).expand(self.batch_shape) - mean) / deviation
        over_arms = self._over_arms(scaled)
        self.mean.addcmul_(over_arms, innovation.unsqueeze(-1))
        self.reduction.addcmul_(over_arms, over_arms)
        self.pending[:, :, turn] = scaled.transpose(0, 1)
        share, following = -(-len(self.kernel) // _PENDING), (turn + 1) % _PENDING
        self._absorb(slice(following * share, (following + 1) * share))

    def prior_between(self, arms: Tensor, times: list[float]) -> Tensor:
        """Prior covariances between observations of ``arms`` (S, K) at ``times``: (S, P, K, K)."""
        return self._between(arms) * self._fading(self.mean.new_tensor(times).unsqueeze(-1), times)

    def condition_mean(self, where: Tensor, arms: Tensor, times: list[float], weights: Tensor) -> None:
        """Set the mean to that of a posterior with ``weights`` (S, P, K) on the prior covariances with observations of
        ``arms`` (S, K) at ``times``, in the members with ``where`` (S, P) True. The covariance stays."""
        now = times[-1] if self.now is None else self.now
        faded = weights * self._fading(self.mean.new_tensor(now), times)
        mean = self._combined(arms, faded) / self.fade.sqrt().unsqueeze(-1)
        self.mean.copy_(torch.where(where.unsqueeze(-1), mean, self.mean))

    def _fading(self, time: Tensor, times: list[float]) -> Tensor:
        """(1 - eps)^{|t - t'| / 2}, (P, ..., K)."""
        gap = (time - self.mean.new_tensor(times)).abs()
        rate = self.forgetting_rate.reshape(-1, *[1] * gap.dim())
        return (1 - rate) ** (gap / 2)

    def _between(self, arms: Tensor) -> Tensor:
        """(S, P, K, K)."""
        return self.covariances[:, arms.unsqueeze(-1), arms.unsqueeze(-2)][self.kernel].transpose(0, 1)

    def _combined(self, arms: Tensor, weights: Tensor) -> Tensor:
        """The sum of the prior covariances of every arm with ``arms`` by their weights, (S, P, N)."""
        columns = self.covariances[:, arms][self.kernel].transpose(0, 1)  # (S, P, K, N)
        return (weights.unsqueeze(-2) @ columns).squeeze(-2)

    def _column(self, arm: Tensor, fade: Tensor) -> Tensor:
        """The posterior covariance of everything with each replicate's arm, over sqrt(a), a = ``fade``: (S, P, N)."""
        root = fade.sqrt().unsqueeze(-1)
        weights = self.pending[:, self._run, :, arm].transpose(0, 1).unsqueeze(-2)  # (P, S, 1, 16)
        known = self._counted(self.rows[:, self._run, arm])
        known.flatten(0, 1).unsqueeze(1).baddbmm_(weights.flatten(0, 1), self.pending.flatten(0, 1))
        prior = self.covariances[self.kernel, arm.unsqueeze(-1)]
        return prior.div_(root).sub_(known.transpose(0, 1).mul_(root))

    def _counted(self, held: Tensor) -> Tensor:
        """What members hold in R, (P, S, n), where it still counts; in place."""
        return held if self.counting is None else held.mul_(self.counting.unsqueeze(-1))

    def _over_arms(self, column: Tensor) -> Tensor:
        """What a column stands for at every arm, (S, P, N)."""
        return column

    def _advance(self, time: float | None) -> None:
        fade = self._fade_at(time)
        self.fade = fade
        if bool((fade < _FADED).any()):
            self._absorb(slice(None))
        if time is not None:
            self.now = time if self.now is None else max(self.now, time)

    def _fade_at(self, time: float | None) -> Tensor:
        if time is None or self.now is None or time <= self.now:
            return self.fade
        return self.fade * (1 - self.forgetting_rate) ** (time - self.now)

    def _absorb(self, members: slice) -> None:
        """R <- a (R + W^T W) for these members, and so for mean and reduction; then their a = 1 and W = 0."""
        fade = self.fade[members]
        if len(fade) == 0:
            return
        pending, rows = self.pending[members], self.rows[members]  # views, as the following are
        if self.counting is not None:
            rows.mul_(self.counting[members, :, None, None])
            self.counting[members] = 1.0
        flat = pending.flatten(0, 1)
        rows.flatten(0, 1).baddbmm_(flat.mT, flat)
        rows.mul_(fade[:, None, None, None])
        pending.zero_()
        self.mean[:, members].mul_(fade.sqrt().unsqueeze(-1))
        self.reduction[:, members].mul_(fade.unsqueeze(-1))
        if self.counting is None:
            self.fade = self.fade.clone()
        self.fade[members] = 1.0

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the prior in the members with ``where`` (S, P) True; the clock goes on."""
        if where is None:
            for tensor in (self.mean, self.reduction, self.rows, self.pending):
                tensor.zero_()
            self.fade, self.now, self._turn = torch.ones_like(self.fade), None, 0
            return
        if self.counting is not None:
            self.mean.masked_fill_(where.unsqueeze(-1), 0.0)
            self.reduction.masked_fill_(where.unsqueeze(-1), 0.0)
            self.pending.masked_fill_(where.T[..., None, None], 0.0)
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

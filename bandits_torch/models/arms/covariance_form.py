"""Exact posterior over N arms as a mean vector and a covariance matrix: O(N^2) per step for any horizon.

Also ``Form``, the base class of this form and ``FactorForm``, and the static posterior from counts, O(n^3), by which
both check and rebuild what they hold. With K the prior covariance among the n points observed, c their counts,
W = diag(c / lambda) and y the sums of their residuals:

    P = K - K W^{1/2} B^{-1} W^{1/2} K,    mean = K W^{1/2} B^{-1} (lambda c)^{-1/2} y,    B = I + W^{1/2} K W^{1/2}

(Rasmussen & Williams 2006, equations 3.26-3.27), both as products of whitened factors, which stay bounded.
A point without observations has a row of I in B, so points need not be packed.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.online_model import ResizableState, empty, held_elsewhere

_TINY = torch.finfo(torch.float64).tiny  # replaces a count of 0 in a denominator; counts may be fractions
# Largest rounding error without a rebuild: of the covariance in units of the prior variance, of the mean in units of
# the prior standard deviation plus the largest mean.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
# A removal whose s is smaller, in units of lambda, calls for a rebuild: it may multiply rounding errors by 1 / s.
LEAST_LEFT = 1e-5
# Removals also call for a rebuild if the surprise that they removed exceeds this many times 1 + the surprise left. What
# is left has the rounding errors of both. One extreme reward reaches that at once, ordinary rewards after some windows.
REMOVED = 100.0


@dataclass(frozen=True)
class CountsPosterior:
    """Posterior over n points, in float64.

    Attributes:
        root, factor: W^{1/2}, (n,), and the lower Cholesky factor L of B, n x n.
        whitened: L^{-1} (lambda c)^{-1/2} y, (n,).
        prior: K, (n, n); negative eigenvalues are set to 0 if they make B indefinite.
    """

    root: Tensor
    factor: Tensor
    whitened: Tensor
    prior: Tensor

    def at(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (m,) of points whose prior covariances with the n points are ``cross`` (n, m), and V = L^{-1} W^{1/2}
        cross: the observations reduce their prior covariances by V^T V."""
        v = torch.linalg.solve_triangular(self.factor, self.root.unsqueeze(-1) * cross, upper=False)
        return self.whitened @ v, v

    def among(self) -> tuple[Tensor, Tensor]:
        """Mean (n,) and covariance P (n, n) of the n points.

        For points that observations determine, P is close to W^{-1}. A removal divides by the difference, B^{-1}
        scaled: computed directly, it keeps its digits. For other points P is close to K.
        """
        mean, v = self.at(self.prior)
        pinned = self.root.square() * self.prior.diagonal() > 1
        spread = torch.where(pinned, self.root, 1.0).reciprocal()
        near_spread = (
            torch.diag(spread.square()) - spread.unsqueeze(-1) * torch.cholesky_inverse(self.factor) * spread
        )
        near_prior = self.prior - v.mT @ v
        return mean, torch.where(pinned.unsqueeze(-1) & pinned, near_spread, near_prior)

    @property
    def gain(self) -> Tensor:
        """1/2 log det B, which is 1/2 log det(I + K_t / lambda)."""
        return self.factor.diagonal().log().sum()

    def surprise(self, count: Tensor, total: Tensor, squares: Tensor, noise: Tensor) -> Tensor:
        """r^T (K_t + lambda I)^{-1} r for residuals r whose squares sum to ``squares``."""
        within = squares - (total.square() / count.clamp_min(_TINY)).sum()
        return within.clamp_min(0.0) / noise.squeeze() + self.whitened.square().sum()


def posterior_of_counts(K: Tensor, count: Tensor, total: Tensor, noise: Tensor) -> CountsPosterior:
    """The posterior from K (n, n), count and total (n,), and noise (), all float64."""
    root = (count / noise).sqrt()
    factor, failed = torch.linalg.cholesky_ex(_lifted(root, K))
    if bool(failed):  # a matrix rounded to float32 can have eigenvalues below -1 / weight
        values, vectors = torch.linalg.eigh(K)
        K = (vectors * values.clamp_min(0.0)) @ vectors.mT
        factor = torch.linalg.cholesky(_lifted(root, K))
    scaled = torch.where(count > 0, total / (noise * count.clamp_min(_TINY)).sqrt(), 0.0)
    whitened = torch.linalg.solve_triangular(factor, scaled.unsqueeze(-1), upper=False).squeeze(-1)
    return CountsPosterior(root, factor, whitened, K)


def _lifted(root: Tensor, K: Tensor) -> Tensor:
    B = root.unsqueeze(-1) * K * root
    B.diagonal().add_(1.0)
    return B


def column_error(K_column: Tensor, K: Tensor, column: Tensor, C: Tensor, weight: Tensor) -> Tensor:
    """The error of ``column``, a column of the posterior covariance C: (b, n), in O(n^2).

    The exact column c solves (I + K W) c = k. The residual is multiplied by (I + K W)^{-1} = I - C W. K is (b, n, n) or
    (1, n, n); both columns and ``weight``, the diagonal of W, are (b, n).
    """
    left = K_column - column - (K @ (weight * column).unsqueeze(-1)).squeeze(-1)
    return left - (C @ (weight * left).unsqueeze(-1)).squeeze(-1)


Books = dict[str, list[Tensor]]  # values by name that the steps of a block add, for ``close``


class Form(ResizableState):
    """Mean and covariance C of f(., now) over N arms, for a flat batch of b members; a subclass stores them.

    The prior is static or Markov in time: f(., t) = a f(., now) + an independent GP of covariance c K, where a and c
    follow from the time kernel. So a prediction for a later time needs no change of state.

    Attributes:
        mean: (b, N), minus the prior mean.
        variance, prior_variance: (b, N), of f(., now) and of K.
        noise_variance: lambda, (b, 1).
        gain, surprise: (b,), 1/2 log det(I + K_t / lambda) and r^T (K_t + lambda I)^{-1} r for the residuals r. Each
            observation adds a term to both; together they give the log evidence.
        removed: (b,), surprise removed since the last rebuild.
        suspect: (b,), whether removals since then have lost too many digits, so a rebuild is due.
    """

    name: str
    prior: ArmPrior
    mean: Tensor
    variance: Tensor
    prior_variance: Tensor
    noise_variance: Tensor
    gain: Tensor
    surprise: Tensor
    removed: Tensor
    suspect: Tensor
    _member: Tensor

    def __init__(self, prior: ArmPrior, noise_variance: Tensor, prior_variance: Tensor) -> None:
        super().__init__()
        held_elsewhere(self, prior=prior)
        noise = noise_variance.to(prior_variance.dtype).clone()
        self.register_buffer("noise_variance", noise, persistent=False)
        self.register_buffer("prior_variance", prior_variance)
        self.register_buffer("mean", torch.zeros_like(prior_variance))
        for name in ("gain", "surprise", "removed"):
            self.register_buffer(name, torch.zeros_like(self.mean[:, 0]))
        self.register_buffer("suspect", torch.zeros_like(self.gain, dtype=torch.bool))
        self.register_buffer(
            "_member", torch.arange(len(self.mean), device=self.mean.device), persistent=False
        )

    @abstractmethod
    def advance(self, kept: Tensor, gained: Tensor) -> None:
        """Let time pass: f <- kept * f + independent GP of covariance gained * K; both (b, 1) or (1, 1). O(b N), in the
        covariance form of few arms O(b N^2)."""

    @abstractmethod
    def among(self, arm: Tensor, now: float) -> Tensor:
        """C among the points of each member: arm (T, b, n) -> (T, b, n, n)."""

    @abstractmethod
    def full(self, now: float) -> Tensor:
        """C over all arms: (b, N, N), a copy."""

    def close(self, books: Books) -> None:
        """Make the updates in ``books`` that ``observe`` left for the end of a block; by default it leaves none."""

    def joint_root(self) -> Tensor | None:
        """A root of C, (b, N, N), that is kept and updated; by default there is none."""
        return None

    def move(self, now: float, time: float) -> None:
        """Advance from ``now`` to ``time``."""
        self.advance(*self.prior.drift(now, time))

    def mend(self, count: Tensor, total: Tensor, squares: Tensor, now: float, look: Tensor) -> list[int]:
        """Rebuild the members among ``look`` (b,) whose rounding errors are too large, and return their indices.

        Checks the mean and one column of the covariance. Computes in float64. Waits for the device.

        Args:
            count: (b, N), observations of each arm; the factor form does not use it.
            total: (b, N), sums of residuals of each arm; in the factor form of each point, (b, n).
            squares: (b,), sums of all squared residuals.
        """
        error, off, largest = self._errors(count, total, now)
        most = TOLERANCE[self.mean.dtype]
        deviation = largest.sqrt() + self.mean.abs().amax(-1)
        fine = (error <= most * largest) & (off <= most * deviation)  # False for NaN
        wrong = ((~fine | self.suspect) & look).nonzero().flatten().tolist()
        self.suspect &= ~look
        self.removed[wrong] = 0.0
        for m in wrong:
            self._rebuild(m, count[m], total[m], squares[m], now)
        return wrong

    @abstractmethod
    def _errors(self, count: Tensor, total: Tensor, now: float) -> tuple[Tensor, Tensor, Tensor]:
        """The largest errors of a column of the covariance and of the mean, and the largest prior variance, (b,)."""

    @abstractmethod
    def _rebuild(self, m: int, count: Tensor, total: Tensor, squares: Tensor, now: float) -> None:
        """Compute the posterior of member m from its sums."""

    def _count_removed(self, gone: Tensor, left: Tensor) -> None:
        """Subtract the surprise ``gone`` (b,) of removals, whose largest lambda / s is ``left`` (b, 1), and mark
        suspects: if lambda / s is large, one observation had almost all information about an arm, and the rest is
        mostly rounding."""
        self.surprise.sub_(gone)
        lost = self.removed.add_(gone).sub(self.surprise, alpha=REMOVED) > REMOVED
        self.suspect.logical_or_((left > 1 / LEAST_LEFT).squeeze(-1) | lost)

    def at_time(self, now: float | None, time: float | None) -> tuple[Tensor, Tensor]:
        """Mean, minus the prior mean, and variance of every arm at ``time`` (None: at ``now``), (b, N) each. ``now`` is
        None before the first observation."""
        mean, variance = self.mean, self.variance
        if self.prior.time_kernel is None or time is None or time == now:
            return mean, variance
        if now is None:
            return mean, self.prior_variance * self.prior.over_time(time, time)
        kept, gained = self.prior.drift(now, time)
        return mean * kept, torch.addcmul(self.prior_variance * gained, variance, kept * kept)

    def joint_at(self, now: float | None, time: float | None) -> Tensor:
        """Covariance of all arms at ``time``, as in ``at_time``: (b, N, N)."""
        covariance = self.full(now or 0.0)
        if self.prior.time_kernel is None or time is None or time == now:
            return covariance
        prior = self.prior.matrix()
        prior = prior.repeat(covariance.shape[0] // prior.shape[0], 1, 1)
        if now is None:
            return prior * self.prior.over_time(time, time).unsqueeze(-1)
        kept, gained = self.prior.drift(now, time)
        return covariance * (kept * kept).unsqueeze(-1) + prior * gained.unsqueeze(-1)

    def at(self, arm: Tensor, now: float | None, times: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean (T, b, n) and covariance (T, b, n, n) at points (T, b, n) of arms and times (None: now).

        For n = 1 the covariance comes from ``variance``.
        """
        every_arm, n = (arm.shape[0], *self.mean.shape), arm.shape[-1]
        mean = self.mean.expand(every_arm).gather(-1, arm)
        if n == 1:
            covariance = self.variance.expand(every_arm).gather(-1, arm).unsqueeze(-1).clamp_min(0.0)
            prior = self.prior_variance.expand(every_arm).gather(-1, arm).unsqueeze(-1)
        else:
            covariance = self.among(arm, now or 0.0)
            prior = covariance if times is None else self.prior.among(arm)
        if times is None:
            return mean, covariance
        first = times.unsqueeze(-1).expand(*times.shape, n).flatten(-2)
        second = times.unsqueeze(-2).expand(*times.shape, n).flatten(-2)
        if now is None:
            return mean, prior * self.prior.over_time(first, second).unflatten(-1, (n, n))
        earlier, later = torch.minimum(first, second), torch.maximum(first, second)
        kept, _ = self.prior.transition(now, times)
        _, gained = self.prior.transition(now, earlier)  # both points share the independent GP up to then
        since, _ = self.prior.transition(earlier, later)
        new = (gained * since).unflatten(-1, (n, n)) * prior
        return mean * kept, covariance * kept.unsqueeze(-1) * kept.unsqueeze(-2) + new


FOLD = 32  # rows of W that are folded together
TWICE_FROM = 1_000  # N from which twice as many are, under drift: a fold then passes over C three times
WAITS_FROM = 1_000_000  # size of C from which a static prior has W: below, a pass over C is cheaper
PASSES = 20  # under drift W pays off from a size that is smaller by this factor: without it every step passes thrice


class CovarianceForm(Form):
    """State of ``ArmGP``: mean m, minus the prior mean, and covariance C of f(., now), for a flat batch of b members.

    With s = C_ii + lambda, an observation of arm i is m += C_i (y - m_i) / s,  C -= C_i C_i^T / s. Its removal has
    s = lambda - C_ii and the opposite signs. When time passes, m *= a and C = a^2 C + c K (``Form``).

    With many arms no N x N matrix changes with time, or at every observation. Let C_0 be the covariance at the last
    *fold*, and W the rows C_i / sqrt(s) of the observations and removals since. Then

        C = a^2 C_0 - W^T D W + e K,

    where a^2 and e are for the time since the fold. D is diagonal, with the a^2 for the time since each row's own step,
    and a minus for a removal. A step reads one row of C, O(w N). After w = 32 rows C_0 becomes C (``fold``), by one
    product of matrices instead of 32 passes over C, which are limited by the speed of memory. Under drift over 1 000
    arms or more w is 64. With few arms, b N^2 < 10^6 under a static prior and b N^2 < 50 000 under drift, w is 1 and
    C_0 is C. The current mean and variance of every arm, (b, N), are stored.

    Memory O(b N^2) for C_0 and O(q N^2) for K.

    The first joint draw under a static prior makes a matrix F with F^T F = C, which is then kept (O(b N^2) more
    memory). If f is the column of F for arm i, then C_ii = f^T f, and the update above is

        C - C_i C_i^T / s = F^T (I - f f^T / s) F,   and  I - f f^T / s = (I - f f^T / (s + sqrt(lambda s)))^2,

    so F -= f (f^T F) / (s + sqrt(lambda s)), with a plus for a removal (Potter's square root filter). This costs
    O(N^2), a Cholesky factor of C O(N^3), and F^T F is positive semi-definite whatever the rounding.

    Row i after an update is written as a product, C_i lambda / s. The difference C_ii - C_ii^2 / s would lose digits
    by a factor of k / lambda, and the removal of an arm's only observation as many again. Under a static prior, where
    observations may be removed, such rows are updated beside W until the fold (``written``).
    """

    name = "covariance"
    covariance: Tensor  # C_0
    diagonal: Tensor  # (b, N), of C; empty if w is 1
    prior_covariance: Tensor
    kept: Tensor  # a^2, (b, 1)
    gained: Tensor  # e, (b, 1)
    rows: Tensor  # W, (b, w, N)
    weight: Tensor  # D, (b, w), 0 if there is no row
    written: Tensor  # (b, w, N), rows of C for the arms pulled since the fold
    written_arm: Tensor  # (b, w), their arms; -1 if there is no row
    root: Tensor | None  # F
    _kernel: Tensor  # (b,), each member's index in K
    waiting: int  # w; 1: every row is folded at once, and W is empty
    _least: Tensor  # (b, 1), the least s of a removal in a block
    _PLAIN = ("filled",)

    def __init__(
        self, prior: ArmPrior, batch: int, noise_variance: Tensor, covariance: Tensor | None = None
    ) -> None:
        K, copies = prior.matrix(), batch // prior.flat_batch
        super().__init__(prior, noise_variance, K.diagonal(dim1=-2, dim2=-1).repeat(copies, 1))
        self.register_buffer("prior_covariance", K)
        self.register_buffer("_kernel", self._member % len(K), persistent=False)
        held = K.repeat(copies, 1, 1) if covariance is None else covariance
        self.register_buffer("covariance", held)
        n, new = self.mean.shape[-1], self.mean.new_zeros
        static = prior.time_kernel is None
        waiting = FOLD if static or n < TWICE_FROM else 2 * FOLD
        if batch * n * n < (WAITS_FROM if static else WAITS_FROM // PASSES):
            waiting = 0
        self.waiting, self.filled = max(1, waiting), 0  # ``filled``: rows of W
        self.register_buffer("diagonal", self.prior_variance[:, : n if waiting else 0].clone())
        self.register_buffer("rows", new(batch, waiting, n))
        self.register_buffer("weight", new(batch, waiting))
        written = waiting if static else 0
        self.register_buffer("written", new(batch, written, n))
        self.register_buffer("written_arm", torch.full_like(self.weight[:, :written], -1, dtype=torch.long))
        self.register_buffer("kept", torch.ones_like(self.mean[:, :1]))
        self.register_buffer("gained", torch.zeros_like(self.kept))
        self.register_buffer("root", None)
        self.register_buffer("_least", torch.zeros_like(self.noise_variance), persistent=False)

    @property
    def lasting(self) -> tuple[Any, ...]:
        """Tensors that no observation changes."""
        return self.prior, self.prior_covariance

    @property
    def can_forget(self) -> bool:
        """Whether observations can be removed, and members rebuilt from counts: only under static priors. Under drift
        a removal is not a rank-one update."""
        return self.prior.time_kernel is None

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        """Diagonal of C: (b, N)."""
        return self.diagonal if self.waiting > 1 else self.covariance.diagonal(dim1=-2, dim2=-1)

    def advance(self, kept: Tensor, gained: Tensor) -> None:
        squared = kept * kept
        self.mean.mul_(kept)
        if self.waiting == 1:
            gain = self._by_prior(gained.unsqueeze(-1))
            self._by_prior(self.covariance.mul_(squared.unsqueeze(-1))).addcmul_(self.prior_covariance, gain)
            return
        self.diagonal.mul_(squared).addcmul_(self.prior_variance, gained)
        self.gained.mul_(squared).add_(gained)
        self.kept.mul_(squared)
        self.weight.mul_(squared)

    def add(
        self,
        arm: Tensor,
        residual: Tensor,
        now: float,
        where: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        """Observe y - prior mean = ``residual`` (b,) at ``arm`` (b,); ``noise``: (b, 1), instead of lambda."""
        innovation, left = self.condition(arm, residual, None, where, noise)
        self.surprise.addcmul_(innovation, innovation)
        self.gain.add_(left.log().squeeze(-1), alpha=-0.5)  # log1p would differ by less than the sum rounds

    def remove(self, arm: Tensor, residual: Tensor, time: Tensor, now: float, where: Tensor | None) -> None:
        """Undo ``add(arm, residual)`` in the members with ``where`` True (None: in all). Static priors only."""
        least = torch.finfo(self.mean.dtype).eps * self.noise_variance
        innovation, left = self.condition(arm, residual, least, where)
        self._count_removed(innovation.square(), left)
        self.gain.add_(left.log().squeeze(-1), alpha=-0.5)

    def observe(
        self,
        arm: Tensor,
        residual: Tensor,
        now: Tensor | float,
        leaving: Sequence[Tensor] | None,
        books: Books | None,
        blind: bool,
    ) -> None:
        """``add``, then ``remove`` the observation ``leaving`` (arm, residual and time, (b,) each), in every member.

        ``close`` adds the terms of ``surprise`` in ``books``. Without ``books`` they are added now, and nothing leaves.
        No value is read on the host, ``blind`` or not.
        """
        if books is None:
            self.add(arm, residual, 0.0)
            return
        innovation, left = self.condition(arm, residual)
        books["added"].append(innovation)
        if leaving is not None:
            gone, rest = self.condition(leaving[0], leaving[1], self._least)
            books["gone"].append(gone)
            books["left"].append(rest)
            left = left * rest
        self.gain.add_(left.log().squeeze(-1), alpha=-0.5)

    def close(self, books: Books) -> None:
        """Add the terms in ``books`` to ``surprise``."""
        if books["added"]:
            self.surprise.add_(torch.stack(books["added"]).square().sum(0))
        if books["gone"]:
            gone = torch.stack(books["gone"]).square().sum(0)
            self._count_removed(gone, torch.stack(books["left"]).amax(0))

    def reserve(self, steps: int, now: float, blind: bool) -> int:
        """Prepare the next steps. Returns how many may be played before another call: all of them."""
        self._filled_before = self.filled
        torch.mul(self.noise_variance, torch.finfo(self.mean.dtype).eps, out=self._least)
        return steps

    def played(self, added: int, removed: int) -> None:
        """Count the observations added and removed since ``reserve``, perhaps by a replay of a captured graph."""
        self.filled = (self._filled_before + added + removed) % self.waiting

    @property
    def place(self) -> tuple[int, ...]:
        """A key that differs if steps would use other memory: the number of rows of W, and the address of the root."""
        return self.filled, 0 if self.root is None else self.root.data_ptr()

    def condition(
        self,
        arm: Tensor,
        residual: Tensor,
        least: Tensor | None = None,
        where: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Update the posterior in place, in the members with ``where`` True, after an observation; with ``least``
        (b, 1), after a removal, with s at least ``least``.

        Returns the innovation (y - m_i) / sqrt(s), (b,), and lambda / s, (b, 1); 0 and 1 for other members.
        """
        noise, sign = self.noise_variance if noise is None else noise, 1 if least is None else -1
        at = arm.unsqueeze(-1)
        column, variance, written = self._column_of(arm, at)
        total = variance + noise if least is None else torch.maximum(noise - variance, least)
        scale, left = total.rsqrt(), noise / total
        if where is not None:
            mask = where.unsqueeze(-1)
            scale, left = scale * mask, torch.where(mask, left, 1.0)
        if self.root is not None:
            self._turn_root(self.root, arm, sign, where, noise)
        unit = column * scale  # C_i / sqrt(s)
        innovation = (residual.unsqueeze(-1) - self.mean.gather(-1, at)) * scale
        row = column * left  # C_i - C_i C_ii / s without the difference
        self.mean.addcmul_(unit, innovation, value=sign)
        if self.waiting == 1:
            self.covariance.addcmul_(unit.unsqueeze(-1), unit.unsqueeze(-2), value=-sign)
            if self.can_forget:  # not ``write``: indexing several rows takes half as long again
                self.covariance[self._member, arm] = row
                self.covariance[self._member, :, arm] = row
            else:
                self.variance.scatter_(-1, at, row.gather(-1, at))
            return innovation.squeeze(-1), left
        self.diagonal.addcmul_(unit, unit, value=-sign).scatter_(-1, at, row.gather(-1, at))
        if written is not None:  # update the written rows, and add this one
            held, (same, slot) = slice(self.filled), written
            weight = unit.gather(-1, self.written_arm.clamp_min(0)).unsqueeze(-1)[:, held]
            self.written[:, held].baddbmm_(weight, unit.unsqueeze(-2), alpha=-sign)
            slot = torch.where(same, slot, self.filled)
            self.written[self._member, slot] = row
            self.written_arm[self._member, slot] = arm
        self.rows[:, self.filled] = unit
        self.weight[:, self.filled] = sign
        self.filled += 1
        if self.filled == self.waiting:
            self.fold()
        return innovation.squeeze(-1), left

    def _column_of(self, arm: Tensor, at: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        """C_i, (b, N), and C_ii, (b, 1), of each member's arm, (b,) and (b, 1); and if there are ``written`` rows,
        whether the arm has one, and its index, (b,) each."""
        column = self.covariance[self._member, arm]
        if self.waiting == 1:
            return column, column.gather(-1, at), None
        held = slice(self.filled)
        weight = (self.rows[self._member, :, arm] * self.weight).unsqueeze(-2)[..., held]
        if self.prior.time_kernel is not None:
            own = self.prior_covariance[self._kernel, arm]
            column = torch.addcmul(own * self.gained, column, self.kept)
        column = torch.baddbmm(column.unsqueeze(-2), weight, self.rows[:, held], alpha=-1).squeeze(-2)
        written = None
        if self.written.shape[1]:
            found, slot = (self.written_arm == at).to(torch.uint8).max(-1)
            same = found.bool()
            column = torch.where(same.unsqueeze(-1), self.written[self._member, slot], column)
            written = same, slot
        variance = self.diagonal.gather(-1, at)
        return column.scatter_(-1, at, variance), variance, written

    def fold(self) -> None:
        """Set C_0 to C."""
        if self.prior.time_kernel is not None:
            self.covariance.mul_(self.kept.unsqueeze(-1))
            gained = self._by_prior(self.gained.unsqueeze(-1))
            self._by_prior(self.covariance).addcmul_(self.prior_covariance, gained)
            rows = self.rows.mul_(self.weight.sqrt_().unsqueeze(-1))
            self.covariance.baddbmm_(rows.mT, rows, alpha=-1)
            self.kept.fill_(1.0)
            self.gained.zero_()
        elif self.filled:
            self.covariance.baddbmm_(self.rows.mT, self.rows * self.weight.unsqueeze(-1), alpha=-1)
            used = self.written_arm >= 0  # the first row always is; it replaces those that are not
            arm = torch.where(used, self.written_arm, self.written_arm[:, :1])
            self.write(arm, torch.where(used.unsqueeze(-1), self.written, self.written[:, :1]))
            self.written_arm.fill_(-1)
        self.weight.zero_()
        self.filled = 0

    def write(self, arm: Tensor, row: Tensor) -> None:
        """Write rows (b, k, N) of C_0 and the same columns, for these arms (b, k)."""
        member = self._member.unsqueeze(-1)
        self.covariance[member, arm] = row
        self.covariance[member, :, arm] = row

    def _turn_root(self, root: Tensor, arm: Tensor, sign: int, where: Tensor | None, noise: Tensor) -> None:
        """Update the root in place after an observation (sign 1) or a removal (-1) of ``arm``."""
        column = root[self._member, :, arm]  # f, (b, N)
        tiny = torch.finfo(column.dtype).eps * noise
        total = (noise + sign * column.square().sum(-1, keepdim=True)).clamp_min(tiny)
        scale = sign / (total + (noise * total).sqrt())
        scale = scale if where is None else scale * where.unsqueeze(-1)
        root.addcmul_((column * scale).unsqueeze(-1), column.unsqueeze(-2) @ root, value=-1)

    def joint_root(self) -> Tensor | None:
        """F^T, (b, N, N), which times its transpose is C; None under drift."""
        if self.prior.time_kernel is not None:
            return None
        if self.root is None:
            copies = len(self.covariance) // len(self.prior_covariance)
            if not bool(self.gain.any()):  # nothing has been observed
                self.root = _root(self.prior_covariance).repeat(copies, 1, 1)
            else:  # the symmetric root: rounding errors may turn the eigenvectors, but change it little
                own = _root(self.full(0.0))
                least = torch.finfo(own.dtype).tiny  # the default of 1e-12 may be above all rewards
                self.root = torch.nn.functional.normalize(own, dim=-1, eps=least).mT @ own
        return self.root.mT

    @property
    def size(self) -> int:
        """N."""
        return self.mean.shape[-1]

    def _errors(self, count: Tensor, total: Tensor, now: float) -> tuple[Tensor, Tensor, Tensor]:
        """Of the column of the arm pulled most: O(N^2)."""
        noise, K, C = self.noise_variance.double(), self.prior_covariance.double(), self.full(0.0).double()
        arm, kernel = count.argmax(-1), self._kernel
        whole = K[kernel] if K.shape[0] > 1 else K
        column = C[self._member, arm]
        error = column_error(K[kernel, arm], whole, column, C, count / noise).abs().amax(-1)
        off = ((C @ (total / noise).unsqueeze(-1)).squeeze(-1) - self.mean).abs().amax(-1)
        return error, off, self.prior_variance.amax(-1).double()

    def _rebuild(self, m: int, count: Tensor, total: Tensor, squares: Tensor, now: float) -> None:
        """O(N^3)."""
        K, noise = self.prior_covariance[self._kernel[m]].double(), self.noise_variance[m].double()
        exact = posterior_of_counts(K, count, total, noise)
        self.mean[m], self.covariance[m] = exact.among()
        self.variance[m] = self.covariance[m].diagonal()
        self.weight[m] = 0.0
        self.written[m] = self.covariance[m, self.written_arm[m].clamp_min(0)]
        self.gain[m], self.surprise[m] = exact.gain, exact.surprise(count, total, squares, noise)
        if self.root is not None:
            self.root[m] = _root(self.covariance[m])

    def reset(self, scale: Tensor | float, where: Tensor | None = None) -> None:
        """Return to the prior, with the covariance ``scale`` (a number, (b, 1) or (1, 1)) times K."""
        scale = torch.as_tensor(scale, dtype=self.mean.dtype, device=self.mean.device)
        prior = self._by_prior(scale.reshape(-1, 1, 1)) * self.prior_covariance
        mask = (torch.ones_like(self.suspect) if where is None else where).unsqueeze(-1)
        covariance = self._by_prior(self.covariance)
        if where is None:
            covariance.copy_(prior)
            self.written_arm.fill_(-1)
            self.filled = 0
            self.root = None
        else:
            covariance.copy_(torch.where(self._by_prior(mask.unsqueeze(-1)), prior, covariance))
            rows = self.prior_covariance[self._kernel.unsqueeze(-1), self.written_arm.clamp_min(0)]
            self.written.copy_(torch.where(mask.unsqueeze(-1), rows, self.written))
        if self.waiting > 1:
            self.diagonal.copy_(torch.where(mask, self.prior_variance * scale, self.diagonal))
        self.kept.masked_fill_(mask, 1.0)
        empty(
            (self.mean, self.gained, self.weight, self.gain, self.surprise, self.removed, self.suspect), where
        )
        if self.root is not None:  # only in the reset members, so that no member depends on others
            self.root = torch.where(mask.unsqueeze(-1), _root(self.full(0.0)), self.root)

    def widen(self, source: Tensor) -> None:
        """Become a batch of len(source) members; member m is a copy of member source[m]."""
        old_q, new_q = self.prior_covariance.shape[0], self.prior.flat_batch
        for name, held in list(self.named_buffers(recurse=False)):
            if name != "prior_covariance":
                setattr(self, name, held[source])
        if new_q != old_q:
            self.prior_covariance = self.prior_covariance[source[:new_q] % old_q]
        self._member = torch.arange(len(source), device=source.device)
        self._kernel = self._member % len(self.prior_covariance)

    def among(self, arm: Tensor, now: float) -> Tensor:
        member = self._member[:, None, None]
        known = self.covariance[member, arm.unsqueeze(-1), arm.unsqueeze(-2)]
        if self.waiting == 1:
            return known
        rows = self.rows.mT[self._member[:, None], arm]  # (T, b, n, w)
        if self.prior.time_kernel is not None:
            kept, gained = self.kept.unsqueeze(-1), self.gained.unsqueeze(-1)
            known = known * kept + self.prior.among(arm) * gained
        known = known - (rows * self.weight[:, None]) @ rows.mT
        if self.prior.time_kernel is None:
            same = self.written_arm.unsqueeze(-2) == arm.unsqueeze(-1)  # (T, b, n, w)
            slot = same.to(torch.uint8).argmax(-1)
            row = self.written[member, slot.unsqueeze(-1), arm.unsqueeze(-2)]
            has = same.any(-1)
            known = torch.where(has.unsqueeze(-2), row.mT, known)
            known = torch.where(has.unsqueeze(-1), row, known)
        variance = self.variance[self._member[:, None], arm].unsqueeze(-1)
        return torch.where(arm.unsqueeze(-1) == arm.unsqueeze(-2), variance, known)

    def full(self, now: float) -> Tensor:
        if self.waiting == 1 or (self.prior.time_kernel is None and not self.filled):
            return self.covariance.clone()
        copied = copy.deepcopy(self, {id(one): one for one in self.lasting})
        copied.fold()
        return copied.covariance

    def _by_prior(self, value: Tensor) -> Tensor:
        """(b, ...) as (b/q, q, ...) if it does not broadcast against K (q, N, N) as it is."""
        q = self.prior_covariance.shape[0]
        return value if q == 1 or len(value) in (1, q) else value.unflatten(0, (-1, q))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        incoming = state_dict.get(prefix + "root")
        self.root = None if incoming is None else torch.empty_like(self.covariance)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.waiting = max(1, self.rows.shape[1])  # as in the model that was saved


def _root(covariance: Tensor) -> Tensor:
    """F with F^T F = C for each matrix C; eigenvalues that rounding made negative count as 0."""
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0.0).sqrt().unsqueeze(-1) * vectors.mT

"""Features of N arms from a dictionary S of arms, z(x) = L^{-1} k_S(x); Bayesian regression on these features; and the
ridge-leverage-score sampling that draws the dictionary, its constants and their guarantees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.cholesky import bordered, independent, safe_cholesky, solve_lower
from bandits_torch.models.online_model import ResizableState, held_elsewhere

_ONE_PIECE = 2**26  # bytes; larger ``GrowingRows`` have several blocks
_NEWTON_STEPS, _CLOSE = 60, 1e-12  # at most (a handful suffice); relative tolerance
_ARMS_AT_ONCE = 8192  # columns solved together by default: they fit a core's cache


class GrowingRows:
    """Rows (m, N) in blocks of memory with spare capacity.

    Up to 64 MiB a full block is copied into a larger one, so products read one matrix. Above that a new block is
    added, so memory never holds the rows twice.

    Args:
        like: a tensor with N columns; its dtype and device are used.
    """

    def __init__(self, like: Tensor) -> None:
        self._blocks = [like[:0]]
        self._last = 0  # number of rows in use in the last block; the others are full

    @property
    def size(self) -> int:
        """m."""
        return sum(len(block) for block in self._blocks[:-1]) + self._last

    def append(self, rows: Tensor) -> None:
        """Append rows (j, N)."""
        room = len(self._blocks[-1]) - self._last
        first, rest = rows[:room], rows[room:]
        self._blocks[-1][self._last : self._last + len(first)] = first
        self._last += len(first)
        if len(rest):
            self._add_room(len(rest))
            self._blocks[-1][self._last : self._last + len(rest)] = rest
            self._last += len(rest)

    def start(self, size: int) -> None:
        """Start again with ``size`` rows for ``assign`` to fill. Reuses the memory if it is large enough."""
        if len(self._blocks) > 1 or size > len(self._blocks[0]):
            self._blocks, self._last = [self._blocks[0][:0].clone()], 0  # free the old memory first
            self._add_room(size)
        self._last = size

    def assign(self, columns: slice, values: Tensor) -> None:
        """Write some columns (m, n) of all rows."""
        start = 0
        for block in self._used():
            block[:, columns] = values[start : start + len(block)]
            start += len(block)

    def columns(self, index: Tensor | slice) -> Tensor:
        """The columns ``index``, (m, n)."""
        parts = [block[:, index] for block in self._used()]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def product(self, left: Tensor) -> Tensor:
        """left @ rows for ``left`` (q, m): (q, N)."""
        parts = self._used()
        total, start = left[:, : len(parts[0])] @ parts[0], len(parts[0])
        for block in parts[1:]:
            total.addmm_(left[:, start : start + len(block)], block)
            start += len(block)
        return total

    def _used(self) -> list[Tensor]:
        return [*self._blocks[:-1], self._blocks[-1][: self._last]]

    def _add_room(self, more: int) -> None:
        last, size = self._blocks[-1], self.size
        one_piece = len(self._blocks) == 1 and size * last.shape[1] * last.element_size() <= _ONE_PIECE
        kept = self._last if one_piece else 0
        block = last.new_empty(kept + more + max(16, size // 4), last.shape[1])
        block[:kept] = last[:kept]
        if one_piece:
            self._blocks = [block]
        else:
            self._blocks.append(block)
        self._last = kept

    # -- state -----------------------------------------------------------------------------------------

    def apply(self, change: Callable[[Tensor], Tensor]) -> None:
        """Move all blocks to another device or dtype."""
        self._blocks = [change(block) for block in self._blocks]

    def state_dict(self) -> dict[str, Any]:
        """The rows, block by block, and the capacity of the blocks."""
        rows = [block.clone() for block in self._used()]
        return {"rows": rows, "room": [len(block) for block in self._blocks]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of ``state_dict``."""
        like, blocks = self._blocks[0], []
        for rows, room in zip(state["rows"], state["room"], strict=True):
            block = like.new_empty(room, like.shape[1])
            block[: len(rows)] = rows
            blocks.append(block)
        self._blocks, self._last = blocks, len(state["rows"][-1])


class ArmEmbedding(ResizableState):
    """z(x) = L^{-1} k_S(x) with L the Cholesky factor of K_S, S the dictionary in the order its arms entered.

    z(x)^T z(y) is the prior covariance of the projections onto the dictionary. Calandriello et al. (2019) use
    K_S^{-1/2} instead of L^{-1}, which only rotates z. Appending arms to S does not change the existing rows of z.

    Args:
        prior: the prior over the arms.
        prior_variance: (N,), the prior variances.
        chunk_size: None stores z of all arms, ``rows`` (m, N); a number stores none and computes z again
            for ``chunk_size`` arms at a time.

    Cost: ``rebuild`` O(m^2 N), an appended arm O(m N); without ``rows`` O(m^3) and O(m^2).
    """

    inducing: Tensor
    lower: Tensor

    def __init__(self, prior: ArmPrior, prior_variance: Tensor, chunk_size: int | None) -> None:
        super().__init__()
        self.prior: ArmPrior
        held_elsewhere(self, prior=prior)
        self.chunk_size, self.num_arms = chunk_size, prior.num_arms
        self.scale = float(prior_variance.max())
        new = prior_variance.new_zeros
        self.register_buffer("inducing", torch.zeros(0, dtype=torch.long, device=prior_variance.device))
        self.register_buffer("lower", new(0, 0))
        self.rows = GrowingRows(new(0, self.num_arms)) if chunk_size is None else None

    @property
    def size(self) -> int:
        """m."""
        return self.lower.shape[0]

    @property
    def least(self) -> float:
        """An arm whose variance given the dictionary is at most this counts as within its span."""
        return (1e-12 if self.lower.dtype == torch.float64 else 1e-5) * self.scale

    def of(self, arms: Tensor) -> Tensor:
        """z of arms (n,) by index: (m, n)."""
        return self.rows.columns(arms) if self.rows is not None else self._computed(arms)

    def at(self, cross: Tensor) -> Tensor:
        """z of points whose covariance with the dictionary is ``cross`` (..., m, n)."""
        return solve_lower(self.lower, cross)

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Chunks that cover all arms: a slice of arms, and their z."""
        step = self.chunk_size or _ARMS_AT_ONCE
        for start in range(0, self.num_arms, step):
            arms = slice(start, min(start + step, self.num_arms))
            yield arms, self.rows.columns(arms) if self.rows is not None else self._computed(arms)

    def rebuild(self, inducing: Tensor) -> None:
        """Replace the dictionary by these arms, without those within the span of others."""
        kept, self.lower = independent(self.kernel(inducing, inducing), self.least)
        self.inducing = inducing[kept]
        self._make_rows(0)

    def grow_from(self, small: ArmEmbedding) -> None:
        """Copy the dictionary and rows of ``small``, an embedding of the first of these arms."""
        self.inducing, self.lower = small.inducing.clone(), small.lower.clone()
        self._make_rows(small.num_arms)
        if self.rows is not None and small.rows is not None:
            self.rows.assign(slice(0, small.num_arms), small.rows.columns(slice(0, small.num_arms)))

    def _make_rows(self, first: int) -> None:
        """Compute the rows, for the arms from ``first`` onwards."""
        if self.rows is not None:
            self.rows.start(self.size)
            for start in range(first, self.num_arms, _ARMS_AT_ONCE):
                arms = slice(start, min(start + _ARMS_AT_ONCE, self.num_arms))
                self.rows.assign(arms, self._computed(arms))

    def beyond(self, new: Tensor, z: Tensor, arm: Tensor) -> tuple[list[int], Tensor, Tensor, Tensor]:
        """For arms ``new`` (j,) with features z (m, j): the positions of those outside the span of the dictionary and
        of earlier ones in ``new``; their diagonal block of the larger L; their prior covariance with the arms ``arm``
        (n,); and that with all arms (without ``rows``: again with ``arm``)."""
        keeps_rows = self.rows is not None
        covariance = self._kernel_with_all(new) if keeps_rows else self.kernel(new, arm)
        own = covariance[:, new] if keeps_rows else self.kernel(new, new)
        kept, corner = independent(own - z.mT @ z, self.least)
        covariance = covariance if len(kept) == len(new) else covariance[kept]
        return kept, corner, covariance[:, arm] if keeps_rows else covariance, covariance

    def append(
        self, new: Tensor, z: Tensor, corner: Tensor, covariance: Tensor, left: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Append arms outside the span of the dictionary; the arguments come from ``beyond``.

        Returns the new rows (j, N), and ``left @ rows`` for the earlier rows and vectors ``left`` (q, m), computed in
        the same pass over the rows. Both are empty if no rows are stored."""
        if self.rows is not None:
            passed = self.rows.product(torch.cat([z.mT, left]))
            added = solve_lower(corner, covariance - passed[: len(new)])
            added[:, self.inducing] = 0.0  # exactly, without rounding errors
            self.rows.append(added)
        else:
            passed = added = covariance[:0]
        self.lower = bordered(self.lower, torch.zeros_like(z), z.mT, corner)
        self.inducing = torch.cat([self.inducing, new])
        return added, passed[len(new) :]

    def kernel(self, one: Tensor, other: Tensor | slice) -> Tensor:
        """Prior covariance between two sets of arms by index."""
        with torch.no_grad():
            return self.prior.space_kernel(self.prior.inputs[one], self.prior.inputs[other]).to_dense()

    def _kernel_with_all(self, arms: Tensor) -> Tensor:
        """Prior covariance of arms (j,) with all arms, (j, N). On a CPU in pieces: a kernel copies its inputs several
        times, and small copies stay in the cache (three times as fast at a million arms)."""
        if self.num_arms <= _ARMS_AT_ONCE or not self.lower.is_cpu:
            return self.kernel(arms, slice(None))
        starts = range(0, self.num_arms, _ARMS_AT_ONCE)
        return torch.cat([self.kernel(arms, slice(start, start + _ARMS_AT_ONCE)) for start in starts], 1)

    def _computed(self, arms: Tensor | slice) -> Tensor:
        return self.at(self.kernel(self.inducing, arms))

    # -- device, dtype, state --------------------------------------------------------------------------

    def _apply(self, fn: Any, recurse: bool = True) -> ArmEmbedding:
        if self.rows is not None:
            self.rows.apply(fn)
        super()._apply(fn, recurse)
        return self

    def get_extra_state(self) -> dict[str, Any]:
        return {} if self.rows is None else self.rows.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.rows is not None:
            self.rows.load_state_dict(state)


class FeatureRegression(ResizableState):
    """Bayesian linear regression, one observation at a time, on a growing number of features: the posterior of w for
    r = z^T w + noise with w ~ N(0, I_m) and noise of variance lambda.

    | symbol | here | meaning |
    |---|---|---|
    | A, b | ``gram``, ``moment`` | Z^T Z and Z^T r over all observations; V = A + lambda I |
    | C = lambda V^{-1} | ``covariance`` | posterior covariance of w |
    | theta = V^{-1} b | ``weights`` | posterior mean of w |

    Cost: an observation O(m^2); a new feature O(m^2). Every ``max(64, m)`` observations C is computed again, O(m^3), so
    that rounding errors do not accumulate. This is the recursion of ``CovarianceForm`` over features, without drift and
    folded at every observation, which is faster below some 400 features.

    Args:
        noise_variance: lambda, 0-dimensional.
    """

    noise_variance: Tensor
    _gram: Tensor
    _moment: Tensor
    covariance: Tensor
    weights: Tensor
    _LOOSE = ("_uncounted",)
    _PLAIN = ("_uncounted", "_since_anew")

    def __init__(self, noise_variance: Tensor) -> None:
        super().__init__()
        self.register_buffer("noise_variance", noise_variance.clone(), persistent=False)
        for name, shape in (("_gram", (0, 0)), ("_moment", (0,)), ("covariance", (0, 0)), ("weights", (0,))):
            self.register_buffer(name, noise_variance.new_zeros(shape))
        self._uncounted: list[tuple[Tensor, Tensor]] = []  # features and rewards to be added to A and b
        self._since_anew = 0

    @property
    def gram(self) -> Tensor:
        """A = Z^T Z (m, m), computed on request."""
        self._count()
        return self._gram

    @property
    def moment(self) -> Tensor:
        """b = Z^T r (m,), computed on request."""
        self._count()
        return self._moment

    def _count(self) -> None:
        if self._uncounted:
            features, rewards = zip(*self._uncounted, strict=True)
            z = torch.stack(features)
            self._gram.addmm_(z.mT, z)
            self._moment.addmv_(z.mT, torch.stack(rewards).to(z))
            self._uncounted = []

    @property
    def size(self) -> int:
        """m."""
        return self._gram.shape[0]

    def _precision(self) -> Tensor:
        """V."""
        lifted = self.gram.clone()
        lifted.diagonal().add_(self.noise_variance)
        return lifted

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(I + A / lambda). O(m^3)."""
        factor = safe_cholesky(self._precision())
        return (factor.diagonal().log() - self.noise_variance.log() / 2).sum()

    def distance_to_ball(self, radius: Tensor) -> Tensor:
        """min sqrt((w - theta)^T V (w - theta)) over all w with |w| <= ``radius``; 0-dimensional. O(m^3).

        The minimiser is w = (V + nu I)^{-1} V theta, with nu = 0 if theta is in the ball. Otherwise nu > 0 is the root
        of 1/|w| - 1/radius, which Newton's method approaches from below, starting at 0."""
        values, vectors = torch.linalg.eigh(self._precision())
        theta = vectors.mT @ self.weights
        nu = theta.new_zeros(())
        for _ in range(_NEWTON_STEPS):
            w = values * theta / (values + nu)
            length = w.norm()
            if bool(length <= radius * (1 + _CLOSE)):
                break
            nu = nu + (length / radius - 1) * length**2 / (w.square() / (values + nu)).sum()
        return (values.sqrt() * theta * (nu / (values + nu))).norm()

    def start(self, z: Tensor, count: Tensor, total: Tensor) -> None:
        """Start again with other features z (m, u) of the pulled arms and their counts and sums of rewards, (u,) each.
        O(m^2 u + m^3)."""
        self._gram, self._moment, self._uncounted = (z * count) @ z.mT, z @ total, []
        self._compute_anew()

    def observe(self, z: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
        """Learn ``reward`` at features z (m,). Returns g (m,) and c: the posterior variance at any features x falls by
        (g^T x)^2 and the mean rises by c g^T x."""
        g = self.covariance @ z
        deviation = (self.noise_variance + (z @ g).clamp_min(0.0)).sqrt()  # rounding may give z @ g < 0
        g = g / deviation
        step = (reward - z @ self.weights) / deviation
        self.covariance.addr_(g, g, alpha=-1)
        self.weights.addcmul_(g, step)
        self._uncounted.append((z, reward))
        self._since_anew += 1
        if self._since_anew >= max(64, self.size):
            self._compute_anew()
        return g, step

    def append(self, side: Tensor, corner: Tensor, moment: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Append j features, given the new blocks of A, ``side`` (m, j) and ``corner`` (j, j), and of b, (j,).

        Returns G = V^{-1} side (m, j), the Cholesky factor H (j, j) of the Schur complement in V, and the new weights
        (j,). With d = new features - G^T old features at any point, the term lambda z^T V^{-1} z of the variance grows
        by lambda |H^{-1} d|^2 and the mean by weights^T d.
        """
        against = self.covariance @ side / self.noise_variance
        lifted = corner - side.mT @ against
        lifted.diagonal().add_(self.noise_variance)
        schur = safe_cholesky(lifted, scale=corner.diagonal().amax() + self.noise_variance)
        weights = torch.cholesky_solve((moment - against.mT @ self.moment).unsqueeze(-1), schur).squeeze(-1)
        lifting = solve_lower(schur, torch.cat([-against.mT, torch.eye(len(schur)).to(schur)], 1))
        self.append_unseen(len(schur))
        size = self.size - len(schur)
        self._gram[:size, size:], self._gram[size:, :size], self._gram[size:, size:] = side, side.mT, corner
        self.moment[size:] = moment
        self.covariance[size:, size:] = 0
        self.covariance.addmm_(lifting.mT, lifting * self.noise_variance)
        self.weights[:size] -= against @ weights
        self.weights[size:] = weights
        return against, schur, weights

    def append_unseen(self, count: int) -> None:
        """Append ``count`` features that are 0 in every observation so far: their weights have the prior."""
        none = self.moment.new_zeros(self.size, count)
        one = torch.eye(count).to(none)
        self._gram = bordered(self.gram, none, none.mT, torch.zeros_like(one))
        self.covariance = bordered(self.covariance, none, none.mT, one)
        self._moment, self.weights = (pad(v, (0, count)) for v in (self.moment, self.weights))

    def _compute_anew(self) -> None:
        factor = safe_cholesky(self._precision())
        inverse = torch.cholesky_inverse(factor) if self.size else factor
        self.covariance = self.noise_variance * inverse
        self.weights = torch.cholesky_solve(self.moment.unsqueeze(-1), factor).squeeze(-1)
        self._since_anew = 0

    def set_extra_state(self, state: dict[str, Any]) -> None:
        tensors = all(isinstance(part, Tensor) for pair in state["uncounted"] for part in pair)
        validation.require(
            tensors, "state", state["uncounted"], "pairs of tensors: features and rewards to be added"
        )
        super().set_extra_state(state)


_SLACK = {"redrawn": 1.0, "kept": 4.0}


@validation.names_arguments
@dataclass(frozen=True)
class LeverageSampling:
    """Each observation x_s enters the dictionary with probability min(1, qbar_t sigma~^2(x_s) / lambda).

    At a draw for t observations, qbar_t = ``oversampling`` + ``rise`` ln(max(1, t / ``horizon``)).

    Build one with ``theory`` or ``practical``.

    Attributes:
        oversampling: qbar > 0 of Calandriello et al. (2019), Figure 1.
        growth: C >= 1: the dictionary is drawn again once 1 + sum sigma~^2(x_s) / lambda, summed over the
            observations since the last draw with the variances at that draw, exceeds C; 1 draws at every observation.
        epsilon: accuracy in (0, 1); alpha = (1 + eps) / (1 - eps) enters ``BKBWidth``.
        dictionary: ``"redrawn"``: a draw replaces the dictionary, as in Figure 1; ``"kept"``: it is added to the
            present dictionary while the union is at most four times as large as the draw (``Sketch``). Kept
            dictionaries are at least as accurate and cheaper to update, but often contain every pulled arm.
        rise, horizon: after ``horizon`` observations qbar grows by ``rise`` ln(t / horizon).

    Raises ValueError unless ``oversampling`` > 0, ``growth`` >= 1, 0 < ``epsilon`` < 1, ``dictionary`` is one of
    the two, ``rise`` >= 0 and ``horizon`` is a positive integer.
    """

    oversampling: float
    growth: float = 1.0
    epsilon: float = 0.5
    dictionary: str = "kept"
    rise: float = 0.0
    horizon: int = 1

    def __post_init__(self) -> None:
        validation.positive("oversampling", self.oversampling)
        validation.at_least_one("growth", self.growth)
        validation.probability("epsilon", self.epsilon)
        validation.one_of("dictionary", self.dictionary, *_SLACK)
        validation.non_negative("rise", self.rise)
        validation.positive_integer("horizon", self.horizon)

    @property
    def slack(self) -> float:
        """The dictionary is replaced once it would be more than this many times as large as the last draw."""
        return _SLACK[self.dictionary]

    @property
    def alpha(self) -> float:
        """(1 + epsilon) / (1 - epsilon), the factor between sketched and exact variances in Theorem 1."""
        return (1 + self.epsilon) / (1 - self.epsilon)

    @classmethod
    def theory(
        cls, horizon: int, delta: float = 0.1, epsilon: float = 0.5, dictionary: str = "redrawn"
    ) -> LeverageSampling:
        """qbar_t = 6 alpha ln(4 max(T, t) / delta) / eps^2, drawn at every observation (Calandriello et al. 2019,
        Theorem 1).

        With probability 1 - delta, sigma^2 / alpha <= sigma~^2 <= alpha sigma^2 at all arms and steps, and a redrawn
        dictionary has at most 3 (1 + kappa^2 / lambda) alpha qbar d_eff members. qbar is in
        the hundreds (763 at T = 1 000, delta = 0.1, eps = 0.5). An arm stays in the dictionary until it has been pulled
        about qbar times, so the dictionary saves little before t is in the thousands.

        The theorem ends at T. Beyond T the paper (section 3.2) raises qbar for another horizon and draws again from
        the pulled arms. Here every step t > T uses t as its horizon. Accuracy then holds at all steps, with the same
        delta, even for T = 1: by their appendix C.3 the draw of step t fails, given an accurate previous draw, with
        probability at most 4 t (delta / (4 t))^(9/4), and these sum to .81 delta^(9/4). (The exponent of their matrix
        Bernstein bound is 3 ln(4 t / delta) / (1 + eps / 3), and eps < 1.) Their bound on the size holds up to T. Each
        later step adds at most (delta / (4 t))^(12 kappa^2 / lambda) to its failure probability by their appendix C.4,
        which is summable if kappa^2 >= lambda / 6 and all prior variances are equal.
        """
        validation.positive_integer("horizon", horizon)
        validation.probability("delta", delta)
        validation.probability("epsilon", epsilon)
        alpha = (1 + epsilon) / (1 - epsilon)
        rise = 6 * alpha / epsilon**2
        return cls(rise * math.log(4 * horizon / delta), 1.0, epsilon, dictionary, rise, horizon)

    @classmethod
    def practical(
        cls, oversampling: float = 5.0, growth: float = 2.0, dictionary: str = "kept"
    ) -> LeverageSampling:
        """A small qbar, with a new draw when enough information has accumulated.

        Theorem 1 does not hold for so small a qbar, and ``epsilon`` = 0.5 in the width is a convention. Between draws
        the posterior is exact for its dictionary, and its variance at any point falls by at most a factor of
        ``growth``.
        """
        return cls(oversampling, growth, 0.5, dictionary)

    def at(self, observations: Tensor) -> Tensor:
        """qbar_t at a draw for t = ``observations``."""
        return self.oversampling + self.rise * torch.log((observations / self.horizon).clamp_min(1.0))

    def probabilities(self, leverage: Tensor, count: Tensor) -> Tensor:
        """1 - (1 - min(1, qbar_t sigma~^2 / lambda))^n: the probability that any of an arm's n observations enters.

        Args:
            leverage: sigma~^2 / lambda of each arm, (u,).
            count: n, (u,), of all arms pulled: t is their sum.
        """
        once = (self.at(count.sum()) * leverage).clamp(0.0, 1.0)
        return -torch.expm1(count * torch.log1p(-once))

"""Posterior over N arms seen through a small dictionary of them (DTC), resampled by ridge leverage scores."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bandits_torch.models.arm_prior import ArmPrior
from bandits_torch.models.cholesky import bordered, safe_cholesky, solve_lower
from bandits_torch.models.leverage_sampling import LeverageSampling
from bandits_torch.models.online_model import ResizableState
from bandits_torch.streams import ReplicateStreams

_SLACK = 1.25  # a dictionary may be this many times larger than the last draw before it is built anew
_ARMS_AT_ONCE = 8192  # columns solved together where memory is no concern: they fit a core's cache


class Sketch(ResizableState):
    """BKB's posterior for one batch member.

    | symbol | here | meaning |
    |---|---|---|
    | u, n_i, sum of r | ``arm``, ``count``, ``total`` | arms pulled, how often, their residuals |
    | S, m | ``dictionary``, ``size`` | places in ``arm`` of the inducing arms, and how many they are |
    | L | ``lower`` | Cholesky factor of K_S, rows in the order the arms entered |
    | z(x) = L^{-1} k_S(x) | ``rows`` (m x N), ``pulled`` (m x u) | embedding of all arms, and of those pulled |
    | A = sum_i n_i z_i z_i^T | ``gram`` | V = A + lambda I |
    | Z^T r | ``moment`` | |

    mean = z^T V^{-1} Z^T r and variance = k - z^T z + lambda z^T V^{-1} z, which is lambda times the sigma~^2 that
    Calandriello et al. (2019) print. Their z = K_S^{-1/2} k_S differs by a rotation, which changes neither.

    A draw S' is joined to the dictionary held as long as the union is at most 1.25 times as large as S': a
    superset projects onto more, so whatever accuracy S' has it has too, and a new row costs O(mN) where a new
    dictionary costs O(m^2 N). An arm within 1e-12 of the span of the dictionary gets no row.

    Cost: an observation O(m^2); ``mean`` and ``variance`` when next read O(mN), or O(m^2 N) after a new
    dictionary; a draw O(m^2 u). Memory O((N + u) m), or O(N + um) with ``chunk_size``: then nothing of size m x N
    is kept and reading the marginals costs O(m^2 N). The size of a dictionary depends on the data: every step
    waits for the device.
    """

    noise_variance: Tensor
    mean: Tensor
    variance: Tensor
    unexplained: Tensor
    arm: Tensor
    count: Tensor
    total: Tensor
    dictionary: Tensor
    lower: Tensor
    rows: Tensor
    pulled: Tensor
    gram: Tensor
    moment: Tensor

    def __init__(
        self,
        prior: ArmPrior,
        noise_variance: Tensor,
        sampling: LeverageSampling,
        streams: ReplicateStreams,
        chunk_size: int | None,
    ) -> None:
        super().__init__()
        self.prior, self.sampling, self._streams, self.chunk_size = prior, sampling, streams, chunk_size
        diagonal = prior.diagonal()[0]
        self.register_buffer("noise_variance", noise_variance)
        self.register_buffer("prior_variance", diagonal, persistent=False)
        self.prior_variance: Tensor
        for name in ("mean", "variance", "unexplained"):
            self.register_buffer(name, diagonal.new_zeros(0))
        for name in ("count", "total", "lower", "rows", "pulled", "gram", "moment"):
            self.register_buffer(name, diagonal.new_zeros(0))
        for name in ("arm", "dictionary"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.long, device=diagonal.device))
        self.reset()

    def reset(self) -> None:
        """Back to the prior; the random numbers go on."""
        new, n = self.prior_variance.new_zeros, self.prior_variance.shape[0]
        self.mean, self.variance = new(n), self.prior_variance.clone()
        self.arm, self.dictionary = self.arm[:0], self.dictionary[:0]
        self.count, self.total, self.moment = new(0), new(0), new(0)
        self.lower, self.gram, self.pulled = new(0, 0), new(0, 0), new(0, 0)
        self.rows = self._room = new(0, n if self.chunk_size is None else 0)
        self._place_of: dict[int, int] = {}
        self._in_dictionary: set[int] = set()
        self._drawn: list[int] | None = None
        self._ahead: dict[int, list[Tensor]] = {}
        self.observations = self.draws = 0
        self._factor: Tensor | None = None
        self._trace: Tensor | None = None  # of V^{-1}
        self._lost = new(0, 0)
        self._uncounted: list[int] = []  # places of the pulls that ``gram`` lacks
        self._project()
        self._losses, self._marginals_kept = 0, False
        self._rebase()
        self._start, self.spent = self._base, 0.0
        self._settled(True)

    @property
    def size(self) -> int:
        """m: arms in the dictionary with a row of their own."""
        return self.lower.shape[0]

    # -- learning --------------------------------------------------------------------------------------

    def observe(self, arm: int, residual: Tensor) -> None:
        """Learn reward - prior mean = ``residual`` of ``arm``, and draw a dictionary if one is due."""
        self.place(arm)
        self.reward(arm, residual)
        self.settle()

    def observe_ahead(self, arm: int) -> None:
        """Count a pull of ``arm`` whose ``reward`` comes later, as if it were the posterior mean: variances fall,
        dictionaries follow, the mean stays (but for what a new dictionary changes in it)."""
        place = self._place(arm)
        guess = self._weights() @ self.pulled[:, place]
        self.place(arm)
        self._take(arm, guess)
        self._ahead.setdefault(arm, []).append(guess)
        self.settle()

    def place(self, arm: int) -> None:
        """Count a pull of ``arm``: its part of the variances."""
        place = self._place(arm)
        z = self.pulled[:, place]
        half = solve_lower(self._base, z.unsqueeze(-1))
        at_start = half if self._start is self._base else solve_lower(self._start, z.unsqueeze(-1))
        self.spent += float(self.unexplained[place] / self.noise_variance + at_start.square().sum())
        self.count[place] += 1
        self.observations += 1
        if self.is_due:
            self._drawn = self._draw(place)  # with the variances of before this pull, as in Figure 1
        lost = self._lost[: self._losses]
        w = torch.linalg.solve_triangular(self._base.mT, half, upper=True).squeeze(-1) - (lost @ z) @ lost
        self._lose(w / torch.sqrt(1 + z @ w))
        self._uncounted.append(place)
        self._factor = None
        if self._losses >= max(64, self.size):
            self._rebase()

    def reward(self, arm: int, residual: Tensor) -> None:
        """Add the reward of an earlier ``place`` or ``observe_ahead``, whose guess it replaces."""
        guesses = self._ahead.get(arm)
        self._take(arm, residual - guesses.pop(0) if guesses else residual)

    def awaited(self, arm: int) -> int:
        """How many rewards of ``arm`` are still to come."""
        return len(self._ahead.get(arm, ()))

    def _take(self, arm: int, residual: Tensor) -> None:
        place = self._place_of[arm]
        self.total[place] += residual
        self.moment.add_(self.pulled[:, place] * residual)
        self._mean_is_old = True

    def settle(self) -> None:
        """Take up the dictionary that is due, if one is."""
        if self._drawn is None:
            return
        chosen = self._drawn
        new = [place for place in chosen if place not in self._in_dictionary]
        too_large = len(self._in_dictionary) + len(new) > _SLACK * len(chosen)
        if too_large or 2 * len(new) > max(8, self.size):  # joining costs two passes over the rows for each
            self._rebuild(chosen)
        elif new:
            self._append(new)
        self._drawn = None
        self.draws += 1
        self._rebase()
        self._start, self.spent = self._base, 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to draw: 1 + sum sigma~^2 / lambda > C since the last draw, or the first observation."""
        return self.spent > 0 and (1 + self.spent > self.sampling.growth or not self._in_dictionary)

    def _lose(self, w: Tensor) -> None:
        """Note that V^{-1} is now less by w w^T."""
        if self._losses == self._lost.shape[0]:
            self._lost = torch.cat([self._lost, self._lost.new_empty(max(16, self._losses), self.size)])
        self._lost[self._losses] = w
        self._losses += 1
        if self._trace is not None:
            self._trace = self._trace - w @ w

    def _rebase(self) -> None:
        """Factor V as it is now, and start a new list of what V^{-1} loses."""
        if self._marginals_kept:
            self.refresh()
        self._base = self.factor
        self._lost, self._losses, self._applied = self.gram.new_empty(0, self.size), 0, 0

    def _place(self, arm: int) -> int:
        """Where ``arm`` stands among the arms pulled; a new one is added."""
        if arm in self._place_of:
            return self._place_of[arm]
        place = self._place_of[arm] = len(self._place_of)
        index = torch.tensor([arm], device=self.arm.device)
        column = (
            self.rows[:, index]
            if self.chunk_size is None
            else self.embed(self._kernel(self._inducing(), index))
        )
        self.arm = torch.cat([self.arm, index])
        self.count, self.total = (torch.nn.functional.pad(v, (0, 1)) for v in (self.count, self.total))
        self.pulled = torch.cat([self.pulled, column], 1)
        left = self.prior_variance[index] - column.square().sum(0)
        self.unexplained = torch.cat([self.unexplained, left.clamp_min(0.0)])
        return place

    def _draw(self, newest: int) -> list[int]:
        """Places of a fresh dictionary: every observation flips its own coin; never empty."""
        lost = self._lost[: self._losses] @ self.pulled
        explained = solve_lower(self._base, self.pulled).square().sum(0) - lost.square().sum(0)
        leverage = self.unexplained / self.noise_variance + explained
        u = self.arm.shape[0]
        room = 1 << max(5, (u - 1).bit_length())  # blocks of random numbers are drawn per size
        coins = self._streams.uniform(room)[0, :u]
        chosen = torch.nonzero(coins < self.sampling.probabilities(leverage, self.count)).flatten().tolist()
        return chosen or [newest]

    # -- the dictionary --------------------------------------------------------------------------------

    def _rebuild(self, places: list[int]) -> None:
        """A dictionary of these places alone."""
        self.dictionary = torch.tensor(places, device=self.arm.device)
        inducing = self._inducing()
        self.lower = safe_cholesky(self._kernel(inducing, inducing), self._tolerance())
        if self.chunk_size is None:
            n = self.prior_variance.shape[0]
            if len(places) > self._room.shape[0]:
                self.rows = self._room = self.rows.new_empty(0, n)  # free the old before the new is made
                self._room = self.rows.new_empty(len(places) + max(16, len(places) // 4), n)
            self.rows = self._room[: len(places)]
            for arms in self._chunks():
                self.rows[:, arms] = self.embed(self._kernel(inducing, arms))
            self.pulled = self.rows[:, self.arm]
        else:
            self.pulled = self.embed(self._kernel(inducing, self.arm))
        self._project()
        self.gram, self._uncounted = (self.pulled * self.count) @ self.pulled.mT, []
        self.moment = self.pulled @ self.total
        self._in_dictionary = set(places)
        self._factor = None
        self._settled(False)  # and _rebase follows

    def _append(self, places: list[int]) -> None:
        """Join these places to the dictionary, and bring the marginals up to date in the same pass over the rows."""
        self._in_dictionary.update(places)
        scale = self.prior_variance.max()
        cross = self.pulled[:, places]
        kept = (self.unexplained[places] > self._tolerance() * scale).tolist()
        places = [place for place, keep in zip(places, kept, strict=True) if keep]
        if not places:
            return
        new, cross = self.arm[places], self.pulled[:, places]
        corner = safe_cholesky(self._kernel(new, new) - cross.mT @ cross, self._tolerance(), scale)
        to_pulled = solve_lower(corner, self._kernel(new, self.arm) - cross.mT @ self.pulled)  # j x u
        weighted = to_pulled * self.count
        side, end = self.pulled @ weighted.mT, to_pulled @ weighted.mT  # the new block of A
        old_factor, j = self.factor, len(places)
        # V^{-1} of the old rows against the new ones, and the Schur complement of the new ones.
        against = torch.cholesky_solve(side, old_factor)
        end_lifted = end + self.noise_variance * torch.eye(j, dtype=end.dtype, device=end.device)
        schur = safe_cholesky(end_lifted - side.mT @ against, scale=end_lifted.diagonal().amax())
        pull = self._pull_vectors()

        self.lower = bordered(self.lower, torch.zeros_like(cross), cross.mT, corner)
        self.gram = bordered(self.gram, side, side.mT, end)
        self.pulled = torch.cat([self.pulled, to_pulled])
        self._project()
        self.moment = torch.cat([self.moment, to_pulled @ self.total])
        self.dictionary = torch.cat([self.dictionary, torch.tensor(places, device=self.arm.device)])
        self._factor = bordered(old_factor, torch.zeros_like(side), solve_lower(old_factor, side).mT, schur)
        if self.chunk_size is not None or pull is None:
            if self.chunk_size is None:
                self._add_rows(solve_lower(corner, self._kernel(new, slice(None)) - cross.mT @ self.rows))
            self._settled(False)
            return
        weights = torch.cholesky_solve(self.moment.unsqueeze(-1), self._factor)
        size = self.rows.shape[0]
        by_pulls, by_cross, by_side, mean = torch.split(
            torch.cat([pull, cross.mT, against.mT, weights[:size].mT]) @ self.rows, [pull.shape[0], j, j, 1]
        )
        rows = solve_lower(corner, self._kernel(new, slice(None)) - by_cross)
        gained = solve_lower(schur, rows - by_side).square().sum(0) - by_pulls.square().sum(0)
        self.variance = self.variance - rows.square().sum(0) + self.noise_variance * gained
        self.mean = (mean + weights[size:].mT @ rows).squeeze(0)
        self._add_rows(rows)
        self._settled(True)

    def _add_rows(self, rows: Tensor) -> None:
        """Join rows of the embedding. Room is made ahead, a quarter of what there is, so that few are copied."""
        size, total = self.rows.shape[0], self.rows.shape[0] + rows.shape[0]
        if total > self._room.shape[0]:
            self._room = self.rows.new_empty(total + max(16, size // 4), rows.shape[1])
            self._room[:size] = self.rows
        self._room[size:total] = rows
        self.rows = self._room[:total]

    # -- predicting ------------------------------------------------------------------------------------

    @property
    def factor(self) -> Tensor:
        """Cholesky factor of V = A + lambda I."""
        if self._factor is None:
            z = self.pulled[:, self._uncounted]
            self.gram = torch.addmm(self.gram, z, z.mT)
            self._uncounted = []
            lifted = self.gram.clone()
            lifted.diagonal().add_(self.noise_variance)
            self._factor = safe_cholesky(lifted)
        return self._factor

    def refresh(self) -> None:
        """Bring ``mean`` and ``variance`` of all arms up to date with what was learned."""
        if self._marginals_kept and self._applied == self._losses and not self._mean_is_old:
            return
        pull, weights = self._pull_vectors(), self._weights().unsqueeze(0)
        if pull is None:
            self.mean, self.variance = (torch.empty_like(self.prior_variance) for _ in range(2))
            for arms in self._chunks():
                z = (
                    self.rows[:, arms]
                    if self.chunk_size is None
                    else self.embed(self._kernel(self._inducing(), arms))
                )
                self.mean[arms] = (weights @ z).squeeze(0)
                self.variance[arms] = self._variance(z, self.prior_variance[arms])
        else:
            passed = torch.cat([pull, weights]) @ self.rows
            self.mean = passed[-1]
            self.variance = self.variance - self.noise_variance * passed[:-1].square().sum(0)
        self._settled(True)

    def variance_of(self, arms: Tensor) -> Tensor:
        """Variance of these arms (n,) now, without refreshing all: O(n m q) for q pulls since the last refresh."""
        if self.chunk_size is None and self._marginals_kept:
            lost = self._lost[self._applied : self._losses] @ self.rows[:, arms]
            return (self.variance[arms] - self.noise_variance * lost.square().sum(0)).clamp_min(0.0)
        z = (
            self.rows[:, arms]
            if self.chunk_size is None
            else self.embed(self._kernel(self._inducing(), arms))
        )
        return self._variance(z, self.prior_variance[arms]).clamp_min(0.0)

    def at(self, cross: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean (..., n), z and V^{-1/2} z (..., m, n) of points whose covariance with it is ``cross`` (..., m, n)."""
        z = self.embed(cross)
        return self._weights() @ z, z, solve_lower(self.factor, z)

    @property
    def effective_dimension(self) -> Tensor:
        """sum_s sigma~^2(x_s) / lambda over the observations: sum n (k - z^T z) / lambda + m - lambda tr V^{-1}."""
        if self._trace is None:
            inverse = solve_lower(
                self.factor, torch.eye(self.size, dtype=self.gram.dtype, device=self.gram.device)
            )
            self._trace = inverse.square().sum()
        lost = self.count @ self.unexplained
        return lost / self.noise_variance + self.size - self.noise_variance * self._trace

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(I + Z Z^T / lambda)."""
        return (self.factor.diagonal().log() - self.noise_variance.log() / 2).sum()

    def embed(self, cross: Tensor) -> Tensor:
        """z = L^{-1} k_S for columns ``cross`` (..., m, n)."""
        return solve_lower(self.lower, cross)

    def inducing_inputs(self) -> Tensor:
        """Inputs of the dictionary, m x d."""
        return self.prior.inputs[self._inducing()]

    def _inducing(self) -> Tensor:
        return self.arm[self.dictionary]

    def _variance(self, z: Tensor, prior_variance: Tensor) -> Tensor:
        """k - z^T z + lambda z^T V^{-1} z for columns z (m, n)."""
        explained = z.square().sum(0) - self.noise_variance * solve_lower(self.factor, z).square().sum(0)
        return prior_variance - explained

    def _weights(self) -> Tensor:
        """V^{-1} Z^T r, (m,)."""
        lost = self._lost[: self._losses]
        at_base = torch.cholesky_solve(self.moment.unsqueeze(-1), self._base).squeeze(-1)
        return at_base - (lost @ self.moment) @ lost

    def _pull_vectors(self) -> Tensor | None:
        """The w (q, m) with variance -= lambda sum (w^T z)^2 since the last refresh; None: compute all anew."""
        q = self._losses - self._applied
        if not self._marginals_kept or self.chunk_size is not None or q > max(8, self.size):
            return None
        return self._lost[self._applied : self._losses]

    def _settled(self, kept: bool) -> None:
        """The marginals stand where the losses do, or (not ``kept``) must be computed anew."""
        self._marginals_kept, self._mean_is_old, self._applied = kept, False, self._losses

    def _project(self) -> None:
        """Note what of the arms pulled lies outside the span of the dictionary."""
        self.unexplained = (self.prior_variance[self.arm] - self.pulled.square().sum(0)).clamp_min(0.0)
        self._trace = None

    def _kernel(self, one: Tensor, other: Tensor | slice) -> Tensor:
        """Prior covariance between two sets of arms by index."""
        with torch.no_grad():
            return self.prior.space_kernel(self.prior.inputs[one], self.prior.inputs[other]).to_dense()

    def _chunks(self) -> Iterator[slice]:
        n, step = self.prior_variance.shape[0], self.chunk_size or _ARMS_AT_ONCE
        return (slice(start, start + step) for start in range(0, n, step))

    def _tolerance(self) -> float:
        return 1e-12 if self.lower.dtype == torch.float64 else 1e-5

    # -- state -----------------------------------------------------------------------------------------

    # What follows from the rest, but by other sums than those that led here, is kept too: a sketch taken up again
    # gives the numbers of one that never stopped, to the last bit.
    _PLAIN = (
        "observations",
        "draws",
        "spent",
        "_uncounted",
        "_losses",
        "_applied",
        "_marginals_kept",
        "_mean_is_old",
    )

    def get_extra_state(self) -> dict[str, Any]:
        """What the buffers alone do not tell."""
        optional = {"factor": self._factor, "trace": self._trace}
        return {
            "plain": {name: copy.copy(getattr(self, name)) for name in self._PLAIN},
            "ahead": {arm: list(guesses) for arm, guesses in self._ahead.items()},
            "in_dictionary": sorted(self._in_dictionary),
            "lost": self._lost[: self._losses].clone(),
            "base": self._base.clone(),
            "start": None if self._start is self._base else self._start.clone(),
            **{name: None if value is None else value.clone() for name, value in optional.items()},
            "streams": self._streams.state_dict(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``."""
        state = copy.deepcopy(state)
        for name, value in state["plain"].items():
            setattr(self, name, value)
        self._ahead, self._in_dictionary = state["ahead"], set(state["in_dictionary"])
        self._lost, self._base = state["lost"], state["base"]
        self._start = self._base if state["start"] is None else state["start"]
        self._factor, self._trace = state["factor"], state["trace"]
        self._streams.load_state_dict(state["streams"])
        self._place_of = {arm: place for place, arm in enumerate(self.arm.tolist())}
        self._room, self._drawn = self.rows, None

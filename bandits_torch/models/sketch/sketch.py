"""Posterior over N arms seen through a small dictionary of them (DTC), resampled by ridge leverage scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.cholesky import independent, safe_cholesky, solve_lower
from bandits_torch.models.online_model import ResizableState, held_elsewhere
from bandits_torch.models.sketch.embedding import ArmEmbedding, FeatureRegression, LeverageSampling
from bandits_torch.state import HasState
from bandits_torch.streams import ReplicateStreams

_LEAST_NOISE = 1e-6  # times the largest prior variance: with less noise ``OneStep`` is not accurate
_MOST_BYTES = 2**27  # of stored prior covariances between pulled arms and all arms
_ARMS_AT_ONCE, _PANELS = 1024, 3  # columns whose products stay in a cache; panels of a triangular factor


class Sketch(ResizableState):
    """BKB's posterior for one batch member.

    | symbol | here | meaning |
    |---|---|---|
    | u, n_i, sum of r | ``arm``, ``count``, ``total`` | pulled arms, number of pulls, sum of residuals of each |
    | S, m | ``embedding.inducing``, ``size`` | the dictionary's arms, and their number |
    | z(x) | ``embedding``, ``pulled`` (m, u) | features of all arms, and of the pulled arms |
    | V, theta | ``regression`` | the regression of the residuals on z |

    mean = z^T V^{-1} Z^T r and variance = k - z^T z + lambda z^T V^{-1} z, which is lambda times the sigma~^2 that
    Calandriello et al. (2019) print.

    A draw S' flips new coins for all pulled arms, as the proof of Theorem 1 needs: given the past they are independent.
    With ``dictionary="redrawn"`` S' is the dictionary, as in Figure 1. With ``"kept"`` S' is added to the present
    dictionary while the union is at most four times as large as S': a superset is at least as accurate, and a new row
    costs O(mN), a new dictionary O(m^2 N). An arm whose variance given the dictionary is below 1e-12 (float32: 1e-5) of
    the largest prior variance gets no row.

    ``StoredFeatures`` and, for a dictionary redrawn at every pull (C = 1), ``OneStep`` compute the posterior.

    Cost: an observation O(m^2); the next ``moments`` O(mN), or O(m^2 N) after a new dictionary and with ``chunk_size``;
    a draw O(u), or O(m^2 u) if the marginals are not up to date. Memory O((N + u) m), or O(N + um) with ``chunk_size``.
    The size of a dictionary depends on the data, so every step waits for the device.
    """

    noise_variance: Tensor
    prior_variance: Tensor
    unexplained: Tensor  # prior variance of the pulled arms given the dictionary
    pulled: Tensor
    arm: Tensor
    count: Tensor
    total: Tensor
    dictionary: Tensor  # places among the pulled arms, in increasing order
    _LOOSE = ("at_draw",)

    def __init__(
        self,
        prior: ArmPrior,
        noise_variance: Tensor,
        sampling: LeverageSampling,
        streams: ReplicateStreams,
        chunk_size: int | None,
    ) -> None:
        super().__init__()
        self.prior: ArmPrior
        held_elsewhere(self, prior=prior)
        self.sampling, self._streams, self.chunk_size = sampling, streams, chunk_size
        diagonal = prior.diagonal()[0]
        self.register_buffer("noise_variance", noise_variance, persistent=False)
        self.register_buffer("prior_variance", diagonal, persistent=False)
        for name in ("count", "total", "unexplained", "pulled"):
            self.register_buffer(name, diagonal.new_zeros(0))
        self.register_buffer("arm", torch.zeros(0, dtype=torch.long, device=diagonal.device))
        self.register_buffer("dictionary", self.arm.clone())
        self.reset()

    def reset(self) -> None:
        """Back to the prior; the stream of random numbers continues."""
        new = self.prior_variance.new_zeros
        self.solver = self._solver()
        self.arm, self.dictionary = self.arm[:0], self.dictionary[:0]
        self.count, self.total, self.unexplained, self.pulled = new(0), new(0), new(0), new(0, 0)
        self.embedding = ArmEmbedding(self.prior, self.prior_variance, self.chunk_size)
        self.regression = FeatureRegression(self.noise_variance)
        self._place_of: dict[int, int] = {}
        self.observations = self.draws = self.last_draw = 0
        self.at_draw: Tensor | None = None  # C at the start of the batch, unless it is the present C
        self.spent = 0.0
        self.marginals = SketchMarginals(self.prior_variance)

    @property
    def size(self) -> int:
        """m: the number of arms in the dictionary; with an embedding, of those that have a row."""
        return self.solver.size

    # -- learning --------------------------------------------------------------------------------------

    def observe(self, arm: int, residual: Tensor) -> None:
        """Draw a dictionary if one is due, then learn reward - prior mean = ``residual`` of ``arm``."""
        self._learn(self._prepare(arm), residual)

    def expect(self, arm: int) -> None:
        """Count a pending pull of ``arm``, as if its reward were the posterior mean: variances fall, dictionaries are
        drawn when due, and the mean changes only if the dictionary does."""
        place = self._prepare(arm)
        self._learn(place, self.solver.mean_of(place))

    def _prepare(self, arm: int) -> int:
        """The place of ``arm`` among the pulled arms. Draws a dictionary first if this pull makes one due: if 1 + sum
        sigma~^2 / lambda > C since the last draw, or if there is no dictionary yet."""
        place = self._place(arm)
        spent = self.spent + float(self.solver.variance_at_draw(place) / self.noise_variance)
        if spent > 0 and (1 + spent > self.sampling.growth or not len(self.dictionary)):
            drawn = self._draw(place)
            self.solver.take_up(drawn)
            self.draws, self.last_draw = self.draws + 1, len(drawn)
            spent, self.at_draw = 0.0, None  # the batch begins after this pull
        elif self.at_draw is None:
            self.at_draw = self.regression.covariance.clone()
        self.spent = spent
        return place

    def _learn(self, place: int, residual: Tensor) -> None:
        self.solver.learn(place, residual)
        self.count[place].add_(1)
        self.total[place].add_(residual)
        self.observations += 1

    def _place(self, arm: int) -> int:
        """The place of ``arm`` among the pulled arms; adds a new arm."""
        if arm in self._place_of:
            return self._place_of[arm]
        place = self._place_of[arm] = len(self._place_of)
        index = torch.tensor([arm], device=self.arm.device)
        self.arm = torch.cat([self.arm, index])
        self.count, self.total = (pad(v, (0, 1)) for v in (self.count, self.total))
        self.solver.add_arm(index)
        return place

    # -- the dictionary --------------------------------------------------------------------------------

    def _draw(self, newest: int) -> Tensor:
        """Places of a new dictionary, drawn with the variances before the newest pull (their Figure 1). Every
        observation flips its own coin. If the draw is empty, it is the newest arm."""
        count, u = self.count.clone(), len(self.arm)
        count[newest].add_(1)
        room = 1 << max(5, (u - 1).bit_length())  # blocks of random numbers are drawn per size
        probability = self.sampling.probabilities(self.solver.leverage() / self.noise_variance, count)
        coins = self._streams.uniform(room)[0, :u].to(count.device)
        drawn = torch.nonzero(coins < probability).flatten()
        return drawn if len(drawn) else drawn.new_tensor([newest])

    def rebuild(self, places: Tensor) -> None:
        """Replace the dictionary by the arms at these places."""
        self.dictionary = places
        self.embedding.rebuild(self.arm[places])
        self.pulled = self.embedding.of(self.arm)
        self._note_unexplained()
        self.regression.start(self.pulled, self.count, self.total)
        self.marginals.settle(False)

    def append(self, places: Tensor) -> None:
        """Add the arms at these places to the dictionary, and update the marginals in the same pass over the rows."""
        self.dictionary = torch.cat([self.dictionary, places]).sort().values
        places = places[self.unexplained[places] > self.embedding.least]
        if not len(places):
            return
        new, z = self.arm[places], self.pulled[:, places]
        kept, corner, at_pulled, covariance = self.embedding.beyond(new, z, self.arm)
        if not kept:
            return
        if len(kept) < len(places):
            new, z = new[kept], z[:, kept]
        keeps_marginals = self.marginals.kept and self.chunk_size is None
        if keeps_marginals:
            self.moments()
        at_pulled = solve_lower(corner, at_pulled - z.mT @ self.pulled)  # j x u
        spanned = [self._place_of[arm] for arm in self.embedding.inducing.tolist()]
        at_pulled[:, spanned] = 0.0  # exactly, because a small lambda multiplies rounding errors
        weighted = at_pulled * self.count
        if bool(weighted.any()):
            side, end = self.pulled @ weighted.mT, at_pulled @ weighted.mT
            against, schur, weights = self.regression.append(side, end, at_pulled @ self.total)
            added, passed = self.embedding.append(new, z, corner, covariance, against.mT)
            if keeps_marginals:
                self.marginals.append(weights, schur, self.regression.noise_variance, added, passed)
        else:  # the new features are 0 at all observations, so the posterior does not change
            self.regression.append_unseen(len(new))
            self.embedding.append(new, z, corner, covariance, z.mT[:0])
        self.pulled = torch.cat([self.pulled, at_pulled])
        self._note_unexplained()
        self.marginals.settle(keeps_marginals)

    def _note_unexplained(self) -> None:
        self.unexplained = (self.prior_variance[self.arm] - self.pulled.square().sum(0)).clamp_min(0.0)

    # -- predicting ------------------------------------------------------------------------------------

    def moments(self) -> tuple[Tensor, Tensor]:
        """Present posterior mean minus the prior mean, and variance, of all arms, (N,) each."""
        return self.solver.moments()

    def at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (..., n), minus the prior mean, and covariance (..., n, n) at inputs x (..., n, d)."""
        embedding, regression = self.solver.features()
        kernel = self.prior.space_kernel
        # All points are columns of one solve: a batch of solves would copy the factor for each.
        z = embedding.at(kernel(self.prior.inputs[embedding.inducing], x.flatten(0, -2)).to_dense())
        lost, mean = z - regression.covariance @ z, regression.weights @ z
        z, lost = (part.mT.unflatten(0, x.shape[:-1]) for part in (z, lost))
        return mean.unflatten(0, x.shape[:-1]), kernel(x).to_dense() - z @ lost.mT

    @property
    def effective_dimension(self) -> Tensor:
        """sum_s sigma~^2(x_s) / lambda over the observations."""
        return self.count @ (self.solver.leverage() / self.noise_variance)

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(I + Z Z^T / lambda)."""
        return self.solver.features()[1].information_gain

    def distance_to_ball(self, radius: Tensor) -> Tensor:
        """See ``FeatureRegression``."""
        return self.solver.features()[1].distance_to_ball(radius)

    def inducing_arms(self) -> Tensor:
        """The dictionary, (m,) by index, in the order of the rows of z."""
        return self.solver.features()[0].inducing

    # -- state -----------------------------------------------------------------------------------------

    # The state includes what could be computed again from pulls and dictionary, because another order of sums would
    # change the last bits: a loaded sketch continues bit for bit.
    _PLAIN = ("observations", "draws", "last_draw", "spent", "at_draw")

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"streams": self._streams.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        start = state["at_draw"]
        matrix = start is None or (isinstance(start, Tensor) and start.dim() == 2)
        validation.require(matrix, "state", start, "a matrix, or None, for the covariance at the last draw")
        super().set_extra_state(state)
        self._streams.load_state_dict(state["streams"])
        self._place_of = {arm: place for place, arm in enumerate(self.arm.tolist())}
        self.solver = self._solver()

    def _apply(self, fn: Any, recurse: bool = True) -> Sketch:
        before = self.solver
        super()._apply(fn, recurse)
        self.solver = self._solver()
        if type(self.solver) is not type(before):  # the dtype changed
            self.rebuild(self.dictionary)
        return self

    def grow_from(self, small: Sketch) -> None:
        """Copy the state of ``small``, a sketch over the first of these arms."""
        for name in ("arm", "count", "total", "unexplained", "pulled", "dictionary"):
            setattr(self, name, getattr(small, name).clone())
        self.embedding.grow_from(small.embedding)
        self.regression.load_state_dict(small.regression.state_dict())
        self.set_extra_state(small.get_extra_state())
        self.marginals.settle(not self.observations)

    def _solver(self) -> StoredFeatures:
        return OneStep(self) if OneStep.suits(self) else StoredFeatures(self)


class SketchMarginals(ResizableState):
    """mean = z^T theta and variance = k - z^T z + z^T C z of N arms, stored, and updated by ``refresh``.

    Cost of ``refresh``: O(q m N) for q pulls since the last one; O(m^2 N) after a new dictionary, for q > max(8, m),
    and always if the embedding stores no rows.
    """

    mean: Tensor
    variance: Tensor
    prior_variance: Tensor
    _LOOSE = ("falls", "steps")

    def __init__(self, prior_variance: Tensor) -> None:
        super().__init__()
        self.register_buffer("prior_variance", prior_variance, persistent=False)
        self.register_buffer("mean", torch.zeros_like(prior_variance))
        self.register_buffer("variance", prior_variance.clone())
        self.settled = 0  # number of calls of ``settle``
        self.settle(True)

    def settle(self, kept: bool) -> None:
        """Record that the marginals are up to date or, if not ``kept``, that they must be computed again."""
        self.kept = kept
        self.settled += 1
        self.falls: list[Tensor] = []  # g of each later pull: the variance falls by (g^T z)^2
        self.steps: list[Tensor] = []  # c of each later pull: the mean moves by c g^T z

    def append(
        self, weights: Tensor, schur: Tensor, noise_variance: Tensor, added: Tensor, passed: Tensor
    ) -> None:
        """Take j new features into account. ``regression.append`` returned weights (j,) and H (j, j); ``added`` (j, N)
        are the features and ``passed`` (j, N) is G^T times the old ones. Call ``refresh`` before."""
        change = added - passed
        self.mean.addmv_(change.mT, weights)
        self.variance.sub_(added.square().sum(0))
        lifted = torch.linalg.solve_triangular(schur, change, upper=False).square().sum(0)
        self.variance.addcmul_(lifted, noise_variance)

    def refresh(self, embedding: ArmEmbedding, regression: FeatureRegression) -> None:
        """Bring ``mean`` and ``variance`` up to date."""
        count = len(self.falls)
        if self.kept and not count:
            return
        if not self.kept or embedding.rows is None or count > max(8, embedding.size):
            for arms, z in embedding.chunks():
                self.mean[arms] = regression.weights @ z
                self.variance[arms] = self._variance(arms, z, regression)
        else:
            passed = embedding.rows.product(torch.stack(self.falls))
            for fall, step in zip(passed, self.steps, strict=True):
                self.variance.addcmul_(fall, fall, value=-1)
                self.mean.addcmul_(fall, step)
        self.settle(True)

    def variance_at(self, arms: Tensor, z: Tensor, regression: FeatureRegression) -> Tensor:
        """Present variance of arms (n,) with features z (m, n), without ``refresh``: O(n m q), or O(n m^2) if the
        marginals must be computed again."""
        if not self.kept:
            return self._variance(arms, z, regression)
        if not self.falls:
            return self.variance[arms]
        return self.variance[arms] - (torch.stack(self.falls) @ z).square().sum(0)

    def _variance(self, arms: Tensor | slice, z: Tensor, regression: FeatureRegression) -> Tensor:
        return self.prior_variance[arms] - (z * (z - regression.covariance @ z)).sum(0)

    # -- state -----------------------------------------------------------------------------------------

    _PLAIN = ("kept", "settled", *_LOOSE)


class StoredFeatures:
    """Stores z, V and theta, and updates them with every pull and dictionary. Places are among the pulled arms."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    @property
    def size(self) -> int:
        """The number of arms of the dictionary that have a row of z."""
        return self.sketch.embedding.size

    def add_arm(self, index: Tensor) -> None:
        """An arm (1,) is pulled for the first time: it gets a column of z."""
        sketch = self.sketch
        column = sketch.embedding.of(index)
        sketch.pulled = torch.cat([sketch.pulled, column], 1)
        left = sketch.prior_variance[index] - column.square().sum(0)
        sketch.unexplained = torch.cat([sketch.unexplained, left.clamp_min(0.0)])

    def features(self) -> tuple[ArmEmbedding, FeatureRegression]:
        """z, and the regression on it."""
        return self.sketch.embedding, self.sketch.regression

    def mean_of(self, place: int) -> Tensor:
        """Present mean of an arm, minus the prior mean. O(m)."""
        return self.sketch.pulled[:, place] @ self.sketch.regression.weights

    def variance_at_draw(self, place: int) -> Tensor:
        """Variance of an arm when the dictionary was drawn."""
        sketch, z = self.sketch, self.sketch.pulled[:, place]
        at_draw = sketch.regression.covariance if sketch.at_draw is None else sketch.at_draw
        return sketch.unexplained[place] + z @ (at_draw @ z)

    def take_up(self, drawn: Tensor) -> None:
        """Add this draw to the dictionary, or replace the dictionary if that costs less or the union is too large."""
        sketch = self.sketch
        new = drawn[~torch.isin(drawn, sketch.dictionary)]
        too_large = len(sketch.dictionary) + len(new) > sketch.sampling.slack * len(drawn)
        if too_large or 2 * len(new) > max(8, self.size):  # each arm costs two passes over the rows
            sketch.rebuild(drawn)
        elif len(new):
            sketch.append(new)

    def learn(self, place: int, residual: Tensor) -> None:
        """Learn one more residual, before it is counted. O(m^2)."""
        sketch = self.sketch
        fall, step = sketch.regression.observe(sketch.pulled[:, place], residual)
        sketch.marginals.falls.append(fall)
        sketch.marginals.steps.append(step)

    def leverage(self) -> Tensor:
        """Present variance of the pulled arms, (u,). O(u m q) for q pulls since the last ``refresh``."""
        sketch = self.sketch
        return sketch.marginals.variance_at(sketch.arm, sketch.pulled, sketch.regression).clamp_min(0.0)

    def variance_of(self, arms: Tensor) -> Tensor:
        """Present variance of arms (n,) by index. O(n m q), or O(n m^2)."""
        sketch = self.sketch
        z = sketch.embedding.of(arms)
        return sketch.marginals.variance_at(arms, z, sketch.regression).clamp_min(0.0)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Present mean, minus the prior mean, and variance of all arms; cost of ``SketchMarginals.refresh``."""
        marginals = self.sketch.marginals
        marginals.refresh(self.sketch.embedding, self.sketch.regression)
        return marginals.mean, marginals.variance


class OneStep(StoredFeatures):
    """The same for a dictionary S that lasts one step (C = 1), too short for an embedding of all arms. Mean and
    variance are computed from the pulled arms; z, V and theta only on request. Nothing of this is part of the state.

    BKB's posterior (DTC) is the exact posterior of other data, on S alone: a pull of an arm outside S is divided among
    the arms of S by the weights T = K_S^{-1} k_S(x) of its projection. Let D and r be counts and reward sums of the
    arms in S, and D' and r' those of the pulled arms outside S. Then

        B = D + T D' T^T,    V = K_S + lambda B^{-1},
        mean(x) = k_S(x)^T V^{-1} B^{-1} (r + T r'),    variance(x) = k(x, x) - k_S(x)^T V^{-1} k_S(x).

    The reason is that A = Phi_S B Phi_S^T is the sum of the projected features' outer products over all pulls. Unlike
    K_S, the matrix V is well conditioned, so one product with the inverse of its Cholesky factor suffices for all arms.
    An arm of S within the span of others has a row of zeros in T.

    Cost: O(m^2 u + m^3), then O(m^2) for an arm. Memory O(u N) for prior covariances up to 128 MiB; above that, and
    with ``chunk_size``, they are computed at each step, 1 024 or ``chunk_size`` arms at a time.
    """

    _moments: tuple[Tensor, Tensor] | None
    _features: tuple[ArmEmbedding, FeatureRegression] | None

    def __init__(self, sketch: Sketch) -> None:
        super().__init__(sketch)
        new = sketch.prior_variance.new_zeros
        self._rows, self._square, self._known = new(0, len(sketch.prior_variance)), new(0, 0), 0
        self._changed()

    @staticmethod
    def suits(sketch: Sketch) -> bool:
        """Whether every pull draws a dictionary, and noise and dtype are such that these formulas are accurate."""
        noisy = bool(sketch.noise_variance >= _LEAST_NOISE * sketch.prior_variance.max())
        exact = noisy and sketch.prior_variance.dtype == torch.float64
        return exact and sketch.sampling.growth == sketch.sampling.slack == 1

    @property
    def size(self) -> int:
        return len(self.sketch.dictionary)

    def add_arm(self, index: Tensor) -> None:
        """Nothing to do: no column of z is stored."""

    def features(self) -> tuple[ArmEmbedding, FeatureRegression]:
        """O(m^2 u), if anything has changed."""
        sketch = self.sketch
        if self._features is None:
            N = len(sketch.prior_variance)
            embedding = ArmEmbedding(sketch.prior, sketch.prior_variance, chunk_size=N)
            embedding.rebuild(sketch.arm[sketch.dictionary])
            regression = FeatureRegression(sketch.noise_variance)
            regression.start(embedding.of(sketch.arm), sketch.count, sketch.total)
            self._features = embedding, regression
        return self._features

    def mean_of(self, place: int) -> Tensor:
        """O(m^2), or O(m^2 u) before the arm's first pull is counted: the formulas above divide by its count."""
        arm = self.sketch.arm[place : place + 1]
        if not bool(self.sketch.count[place]):
            embedding, regression = self.features()
            return regression.weights @ embedding.of(arm)[:, 0]
        return self._computed(arm)[0][0]

    def variance_at_draw(self, place: int) -> Tensor:
        return self.leverage()[place]

    def take_up(self, drawn: Tensor) -> None:
        self._changed()
        self.sketch.dictionary = drawn

    def learn(self, place: int, residual: Tensor) -> None:
        self._changed()

    def _changed(self) -> None:
        """Discard what was computed; the sketch counts the residuals."""
        self._solved = False
        self._moments = self._features = None

    def leverage(self) -> Tensor:
        """From the variance of all arms, which the next choice needs anyway."""
        return self.moments()[1][self.sketch.arm]

    def variance_of(self, arms: Tensor) -> Tensor:
        """O(n m^2), or O(n) after ``moments``."""
        return self._computed(arms)[1] if self._moments is None else self._moments[1][arms]

    def moments(self) -> tuple[Tensor, Tensor]:
        """O(m^2 N), if anything has changed."""
        if self._moments is None:
            self._moments = self._computed()
        return self._moments

    def _computed(self, arms: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean, minus the prior mean, and variance of arms by index; by default of all."""
        if not self._solved:
            self._solve()
        prior_variance = self.sketch.prior_variance
        variance = (prior_variance if arms is None else prior_variance[arms]).clone()
        mean = torch.empty_like(variance)
        step, m = self.sketch.chunk_size or _ARMS_AT_ONCE, len(self._root)
        panel = max(1, -(-m // _PANELS))
        # The root is lower triangular: each panel of rows is cut off at its last nonzero column.
        panels = [self._root[top : top + panel, : top + panel] for top in range(0, m, panel)]
        for start in range(0, len(mean), step):
            part = slice(start, start + step)
            covariance, left = self._cross(part if arms is None else arms[part]), variance[part]
            mean[part] = self._weights @ covariance
            for rows in panels:
                left -= (rows @ covariance[: rows.shape[1]]).square_().sum(0)
        return mean, variance.clamp_min_(0.0)

    def _solve(self) -> None:
        """Compute the inverse Cholesky factor of V and the weights V^{-1} B^{-1} (r + T r')."""
        self._store_covariances()
        sketch, dictionary = self.sketch, self.sketch.dictionary
        arm, count, total = sketch.arm, sketch.count, sketch.total
        outside = torch.ones_like(arm, dtype=torch.bool)
        rest = outside.index_fill_(0, dictionary, False).nonzero().flatten()
        known = self._square[: len(arm), : len(arm)]
        with_dictionary = known.index_select(0, dictionary) if self._known else self._cross(arm)
        by_arm = with_dictionary.mT.contiguous()  # selecting rows is faster than selecting columns
        K, weights, rewards = by_arm.index_select(0, dictionary), count[dictionary], total[dictionary]
        identity = torch.eye(len(K), dtype=K.dtype, device=K.device)
        if len(rest):
            kept, factor = independent(K, sketch.embedding.least)
            shared = K.new_zeros(len(K), len(rest))
            shared[kept] = torch.cholesky_solve(by_arm.index_select(0, rest)[:, kept].mT, factor)
            B = (shared * count[rest]) @ shared.mT
            B.diagonal().add_(weights)
            noise = torch.cholesky_inverse(safe_cholesky(B))
            rewards = noise @ torch.addmv(rewards, shared, total[rest])
            V = torch.add(K, noise, alpha=float(sketch.noise_variance))
        else:
            rewards, V = rewards / weights, K + torch.diag(sketch.noise_variance / weights)
        self._root = torch.linalg.solve_triangular(safe_cholesky(V), identity, upper=False)
        self._weights = self._root.mT @ (self._root @ rewards)
        self._solved = True

    def _cross(self, columns: Tensor | slice) -> Tensor:
        """Prior covariance of the dictionary with arms by index."""
        dictionary = self.sketch.dictionary
        if self._known:
            return self._rows[:, columns].index_select(0, dictionary)
        return self.sketch.embedding.kernel(self.sketch.arm[dictionary], columns)

    def _store_covariances(self) -> None:
        """Store the prior covariances of arms pulled for the first time, one arm at a time: for several arms at once a
        kernel may round differently, and a resumed run must give the same numbers."""
        prior, arm, u = self.sketch.prior, self.sketch.arm, len(self.sketch.arm)
        if self.sketch.chunk_size is not None or 8 * u * prior.num_arms > _MOST_BYTES:
            self._rows, self._known = self._rows[:0].clone(), 0
            return
        if u > len(self._rows):
            more = u + max(32, u // 4) - len(self._rows)
            self._rows, self._square = pad(self._rows, (0, 0, 0, more)), pad(self._square, (0, more, 0, more))
        for place in range(self._known, u):
            self._rows[place] = self.sketch.embedding.kernel(arm[place : place + 1], slice(None))
            self._square[place, : place + 1] = self._square[: place + 1, place] = self._rows[
                place, arm[: place + 1]
            ]
        self._known = u


class WatchedArms(HasState):
    """The current posterior variance of n arms, at O(n m) per pull instead of O(N m) for all arms.

    Args:
        sketch: the posterior. Its later observations and dictionaries are taken into account.
        arms: (n,), by index.

    Attributes:
        arms: (n,), in the order they joined.
    """

    def __init__(self, sketch: Sketch, arms: Tensor) -> None:
        self.arms = arms
        self._sketch, self._era = sketch, (-1, -1)
        self._up_to_date()

    def __len__(self) -> int:
        return len(self.arms)

    def join(self, arms: Tensor) -> None:
        """Watch these arms (j,) too, none of which is watched yet."""
        sketch = self._sketch
        self._variance = torch.cat([self._up_to_date(), sketch.solver.variance_of(arms)])
        self._z: Tensor = torch.cat([self._z, sketch.embedding.of(arms)], 1)
        self.arms = torch.cat([self.arms, arms])

    def variance(self) -> Tensor:
        """Variance of the arms, (n,), in the order of ``arms``."""
        return self._up_to_date().clamp_min(0.0)

    def _now(self) -> tuple[int, int]:
        """The numbers of the current dictionary and of the last pass over all arms."""
        return self._sketch.draws, self._sketch.marginals.settled

    def _up_to_date(self) -> Tensor:
        sketch, falls = self._sketch, self._sketch.marginals.falls
        if self._era == self._now():
            for fall in falls[self._pulls :]:
                passed = self._z.mT @ fall  # a vector on the left would take twice as long
                self._variance.addcmul_(passed, passed, value=-1)
        else:
            self._variance = sketch.solver.variance_of(self.arms)
            self._z = sketch.embedding.of(self.arms)
            self._era = self._now()
        self._pulls = len(falls)
        return self._variance

    # -- state -----------------------------------------------------------------------------------------

    arms: Tensor
    _variance: Tensor  # after so many pulls of an era
    _era: tuple[int, int]
    _pulls: int

    def _fresh(self) -> dict[str, Any]:
        none = self._sketch.prior_variance.new_zeros(0)
        return {"arms": none.long(), "_variance": none, "_era": self._now(), "_pulls": 0}

    def state_changed(self) -> None:
        """The sketch's state is loaded before this one."""
        self._z = self._sketch.embedding.of(self.arms)

    def _check_has(self, state: Any, where: str) -> None:
        """Also check that the state has indices of arms, and a variance for each."""
        super()._check_has(state, where)
        n = validation.tensor("arms", state["arms"]).shape
        for name, dtype in (("arms", torch.long), ("variance", self._sketch.prior_variance.dtype)):
            value = validation.tensor(name, state[name])
            ok = value.dtype == dtype and value.dim() == 1 and value.shape == n
            validation.shape_is(name, value, ok, f"(n,) and dtype {dtype}")
        validation.natural("pulls", state["pulls"])

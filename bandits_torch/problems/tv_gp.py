"""Draws of a Gaussian process that drift at a known rate: plain, with a measured outcome, with contexts, on a grid."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.problems.problem import Knowledge, at_arms, gaussian_noise, named
from bandits_torch.problems.simulated import (
    SimulatedProblem,
    covariance,
    covariance_root,
    gp_draws,
    make_kernel,
    place_arms,
    problem_streams,
)
from bandits_torch.streams import ReplicateStreams

_BLOCK_STEPS = 128
_FAILURE_PROBABILITY = 0.1


@named("tv-gp", random=True)
class TVGPDraws(SimulatedProblem):
    """Gaussian-process draws that drift: f_{t+1} = sqrt(1 - eps) f_t + sqrt(eps) g_t.

    f_1 and all g_t are independent draws of GP(0, k). The model of TV-GP-UCB (Bogunovic, Scarlett & Cevher
    2016), simulated exactly: Cov(f_t(x), f_s(x')) = k(x, x') (1 - eps)^{|t - s|/2} at all steps.

    ``expected_rewards`` takes steps in any order and is deterministic. Steps are simulated in blocks of 128, and the
    last two blocks are kept. A step in order, or up to 128 steps back, costs O(N^2) or less. Going further back
    simulates again from step 1. Memory does not grow with the horizon.

    Known in advance: the kernel, noise variance R^2, eps, and a bound B on the RKHS norm that holds at all of T steps
    (``horizon``, or 10 000) with probability 0.9: the squared norm is chi-square with r = rank K degrees of
    freedom, at most r + 2 sqrt(r x) + 2 x with x = ln(T / 0.1) (Laurent & Massart 2000, lemma 1).

    Args:
        forgetting_rate: eps per step, strictly between 0 and 1.
        horizon: the last step, None for no end.
        noise_scale: R; 0.1 against functions of standard deviation 1.
        kernel, lengthscale, nu, num_arms, dim, layout, replicates, seed, first_replicate: as for ``GPDraws``.

    Raises ValueError unless 0 < ``forgetting_rate`` < 1, ``noise_scale`` >= 0 and ``horizon`` >= 1.
    """

    def __init__(
        self,
        *,
        forgetting_rate: float = 0.03,
        horizon: int | None = None,
        noise_scale: float = 0.1,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        num_arms: int = 100,
        dim: int = 1,
        layout: str = "uniform",
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.probability("forgetting_rate", forgetting_rate)
        validation.non_negative("noise_scale", noise_scale)
        arms, k = place_arms(layout, num_arms, dim, seed), make_kernel(kernel, lengthscale, nu)
        super().__init__(arms, replicates, noise_scale, horizon)
        root = covariance_root(covariance(k, arms))
        self._path = DriftingPath(root, forgetting_rate, (seed, replicates, first_replicate))
        self.knowledge = Knowledge(
            kernel=k,
            noise_variance=float(noise_scale) ** 2,
            rkhs_bound=likely_norm(root.shape[1], horizon),
            forgetting_rate=forgetting_rate,
        )

    def expected_rewards(self, step: int) -> Tensor:
        """f_step, (replicates, N): a view of its block."""
        self.check_step(step)
        return self._path.at(step, self.arms)


def likely_norm(rank: int, horizon: int | None) -> float:
    """The bound B of ``TVGPDraws``, for covariances of this rank."""
    x = math.log((horizon or 10_000) / _FAILURE_PROBABILITY)
    return math.sqrt(rank + 2 * math.sqrt(rank * x) + 2 * x)


class DriftingPath:
    """The path f_1, f_2, ..., simulated in blocks, on the CPU in float64: the same path on every device.

    Args: ``root`` A (N, r), A A^T = K; ``rate``: eps; ``source``: (seed, replicates, first replicate) of the streams.
    """

    def __init__(self, root: Tensor, rate: float, source: tuple[int, int, int]) -> None:
        self._root, self._rate, self._source = root, rate, source
        self._blocks: dict[int, Tensor] = {}
        # Row i of a block: f = (1-eps)^{(i+1)/2} f_before + sqrt(eps) sum_{j<=i} (1-eps)^{(i-j)/2} g_j
        ages = torch.arange(_BLOCK_STEPS, dtype=torch.float64)
        self._fade = (1 - rate) ** ((ages + 1) / 2)
        lags = ages.unsqueeze(-1) - ages
        self._mix = (rate**0.5 * (1 - rate) ** (lags.clamp_min(0) / 2)).tril()
        self._restart()

    def _restart(self) -> None:
        self._streams = problem_streams(*self._source)
        # f_0 ~ GP(0, k), one step before the first block, so f_1 has the stationary law too.
        self._last = gp_draws(self._root, self._streams.normal(len(self._root)))  # (replicates, N)
        self._next = 0

    def at(self, step: int, like: Tensor) -> Tensor:
        """f_step, (replicates, N), on the device and in the dtype of ``like``: a view of its block."""
        number, place = divmod(step - 1 if self._rate > 0 else 0, _BLOCK_STEPS)
        if number not in self._blocks:
            self._blocks[number] = self._block(number)
            for old in [n for n in self._blocks if n not in (number - 1, number)]:
                del self._blocks[old]
        block = self._blocks[number] = self._blocks[number].to(like)  # the problem may have moved
        return block[place]

    def _block(self, number: int) -> Tensor:
        """Steps number * 128 + 1, ..., (number + 1) * 128: (128, replicates, N)."""
        if number < self._next:
            self._restart()
        rank = self._root.shape[1]
        while self._next <= number:
            weights = self._streams.normal(_BLOCK_STEPS, len(self._root))
            steps = []
            for last, normal in zip(self._last, weights, strict=True):
                innovations = normal[:, :rank].clone() @ self._root.T  # for each replicate: see ``gp_draws``
                steps.append(torch.outer(self._fade, last) + self._mix @ innovations)
            block = torch.stack(steps, dim=1)
            self._last, self._next = block[-1], self._next + 1
        return block


# --- an outcome that must stay within limits ---

_OUTCOME_SEED = 1_000_003  # added to the seed for the path of the outcome


@named("safe-tv-gp", random=True)
class SafeTVGPDraws(TVGPDraws):
    """Drifting Gaussian-process draws with a measured outcome, which also drifts and must not exceed a limit.

    The outcome "load" of arm x is g_t(x) = climb (|x - c| / r - 1) + h_t(x). Here h_t is an independent draw of the
    same process, with ``outcome_forgetting_rate``; c is arm N // 2, and r the distance of the farthest arm from it. The
    limit is g <= ``limit``. With ``climb`` 0 any arm may become unsafe. With 4, for example, arms near c hardly ever
    do, and the known prior mean says so.

    Regret is measured against the best arm within the limit, or, if a step has none, the arm with the smallest outcome.
    So a policy that exceeds the limit may have negative regret. The record of a run has ``violation``, 1 if the
    expected outcome of the arm exceeds the limit, and ``feasible``, the share of arms within it.

    Known in advance: all that is known for ``TVGPDraws``, the prior and limit of the outcome, and, as ``safe_arms``,
    the arm with the smallest outcome at step 1.

    Args:
        limit: largest permitted outcome; its standard deviation is 1.
        climb: rise of the outcome's prior mean from c to the farthest arm, >= 0.
        outcome_forgetting_rate: epsilon of the outcome; None: ``forgetting_rate``.
        outcome_noise_scale: standard deviation of a measurement; None: ``noise_scale``.
        options: as for ``TVGPDraws``.

    Source: ours, after the model of Bogunovic, Scarlett & Cevher 2016. Raises ValueError for numbers out of range.
    """

    outcome_names = ("load",)
    noise_is_added = False  # the noise of the outcome is drawn from the same streams

    def __init__(
        self,
        *,
        limit: float = 0.5,
        climb: float = 0.0,
        outcome_forgetting_rate: float | None = None,
        outcome_noise_scale: float | None = None,
        **options: Any,
    ) -> None:
        self.limit = validation.finite_number("limit", limit)
        climb = validation.non_negative("climb", climb)
        super().__init__(**options)
        known = self.knowledge
        rate = known.forgetting_rate if outcome_forgetting_rate is None else outcome_forgetting_rate
        scale = float(self.noise_scale[0]) if outcome_noise_scale is None else outcome_noise_scale
        validation.probability("outcome_forgetting_rate", rate)
        source = (options.get("seed", 0) + _OUTCOME_SEED, self.replicates, options.get("first_replicate", 0))
        self._outcome = DriftingPath(covariance_root(covariance(known.kernel, self.arms)), rate, source)
        away = (self.arms - self.arms[self.num_arms // 2]).norm(dim=-1)
        self._level = climb * (away / away.max().clamp_min(1e-12) - 1)
        self._outcome_scale = validation.positive("outcome_noise_scale", scale)
        load = OutcomeConstraint(
            "load",
            high=self.limit,
            kernel=known.kernel,
            noise_variance=self._outcome_scale**2,
            prior_mean=self._level.clone(),
            forgetting_rate=rate,
        )
        first = self.expected_outcomes(1)[..., 0]
        least = torch.nn.functional.one_hot(first.argmin(-1), self.num_arms).bool()
        self.knowledge = replace(known, constraints=(load,), safe_arms=least)

    def expected_outcomes(self, step: int) -> Tensor:
        """g_step, (replicates, N, 1). For the scorer only."""
        self.check_step(step)
        return (self._outcome.at(step, self.arms) + self._level).unsqueeze(-1)

    def measure(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """The outcome with normal noise, (S, 1)."""
        outcome = at_arms(self.expected_outcomes(step)[..., 0], arm)
        return (outcome + gaussian_noise(self._outcome_scale, streams)).unsqueeze(-1)

    def score(self, step: int, arm: Tensor, available: Any) -> tuple[Tensor, Tensor]:
        """Expected rewards (S,) of the arms (S,) chosen, and of the arm that regret is measured against."""
        outcome = self.expected_outcomes(step)[..., 0]
        allowed = (outcome <= self.limit) | (outcome == outcome.amin(-1, keepdim=True))
        if available is not None:
            inside = outcome.masked_fill(~available, torch.inf)
            allowed = (allowed & available) | (inside == inside.amin(-1, keepdim=True))
        chosen, _ = super().score(step, arm, available)
        return chosen, self.expected_rewards(step).masked_fill(~allowed, -torch.inf).amax(-1)

    def trace(self, step: int, arm: Tensor) -> dict[str, Tensor | float]:
        """``violation`` and ``feasible``, (S,) each."""
        outcome = self.expected_outcomes(step)[..., 0]
        violation = (at_arms(outcome, arm) > self.limit).double()
        feasible = (outcome <= self.limit).double().mean(-1)
        return {"violation": violation, "feasible": feasible.expand_as(violation)}


# --- contexts ---

_CONTEXTS_AHEAD = 1024  # contexts are drawn in blocks of this many steps
_CONTEXTS_KEY = 7  # separates their seeds from those of ``ReplicateStreams``


@named("contextual-gp", random=True)
class ContextualGPDraws(SimulatedProblem):
    """Draws over arm x context, Cov = k(x, x') h(z, z') (1 - eps)^{|t - t'|/2}; each step has one of M contexts.

    The simulated setting of Krause & Ong (2011, section 6), with drift. M points are drawn once, uniformly on [0, 1]^c.
    Each step has one of them as its context, drawn uniformly and independently of the rewards, the same in all
    replicates; ``available`` gives it as an ``ArmContext``. Functions are drawn exactly.

    Known in advance: both kernels, c, the noise variance R^2, eps, and a bound on the RKHS norm over arm x context at
    all steps with probability 0.9, as for ``TVGPDraws``.

    Args:
        num_contexts: M.
        context_dim: c.
        context_lengthscale: length-scale of h, a kernel of the same kind as ``kernel``.
        forgetting_rate: eps per step, in [0, 1); 0 for functions that do not change.
        horizon: the last step, None for no end.
        noise_scale: R; 0.1 against functions of standard deviation 1.
        kernel, lengthscale, nu, num_arms, dim, layout, replicates, seed, first_replicate: as for ``GPDraws``.

    Cost: O((N M)^2) per step with drift, O(N) without. Raises ValueError for a ``forgetting_rate`` outside [0, 1),
    ``context_lengthscale`` <= 0, ``noise_scale`` < 0, and numbers below 1.
    """

    def __init__(
        self,
        *,
        num_contexts: int = 40,
        context_dim: int = 1,
        context_lengthscale: float = 0.2,
        forgetting_rate: float = 0.0,
        horizon: int | None = None,
        noise_scale: float = 0.1,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        num_arms: int = 20,
        dim: int = 1,
        layout: str = "uniform",
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.positive_integer("num_contexts", num_contexts)
        validation.positive_integer("context_dim", context_dim)
        validation.below_one("forgetting_rate", forgetting_rate)
        validation.positive("context_lengthscale", context_lengthscale)
        validation.non_negative("noise_scale", noise_scale)
        arms, k = place_arms(layout, num_arms, dim, seed), make_kernel(kernel, lengthscale, nu)
        super().__init__(arms, replicates, noise_scale, horizon)
        h = make_kernel(kernel, context_lengthscale, nu)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_CONTEXTS_KEY,)))
        self.contexts = torch.from_numpy(rng.uniform(size=(num_contexts, context_dim)))
        self._seed, self._ahead = seed, (-1, [0])  # block, its contexts
        root = torch.kron(covariance_root(covariance(k, arms)), covariance_root(covariance(h, self.contexts)))
        self._pairs = DriftingPath(root, forgetting_rate, (seed, replicates, first_replicate))
        self.knowledge = Knowledge(
            kernel=k,
            noise_variance=float(noise_scale) ** 2,
            rkhs_bound=likely_norm(root.shape[1], horizon),
            forgetting_rate=forgetting_rate,
            context_dim=context_dim,
            context_kernel=h,
        )

    def context_of(self, step: int) -> int:
        """The number of the step's context, 0 to M - 1."""
        self.check_step(step)
        block, place = divmod(step - 1, _CONTEXTS_AHEAD)
        if self._ahead[0] != block:
            sequence = np.random.SeedSequence(self._seed, spawn_key=(_CONTEXTS_KEY, block))
            drawn = np.random.default_rng(sequence).integers(len(self.contexts), size=_CONTEXTS_AHEAD)
            self._ahead = block, drawn.tolist()
        return self._ahead[1][place]

    def available(self, step: int) -> ArmContext:
        """The context of the step, for all arms."""
        return ArmContext(self.contexts[self.context_of(step)])

    def expected_rewards(self, step: int) -> Tensor:
        """f_step under the context of the step, (replicates, N)."""
        number = self.context_of(step)
        pairs = self._pairs.at(step, self.arms)
        return pairs.reshape(self.replicates, self.num_arms, -1)[..., number].clone()


# --- on a large grid ---


@named("grid", random=True)
class GridDraws(SimulatedProblem):
    """Draws of a Gaussian process on a large grid of [0, 1]^dim, static or drifting, without an N x N matrix.

    The squared exponential kernel is a product over the axes. So a draw is (A x ... x A) z, where A (side x r, r small)
    is the root of the kernel on one axis and z are r^dim normal numbers: N = side^dim may be in the millions. With a
    ``forgetting_rate`` eps the function drifts, z_{t+1} = sqrt(1 - eps) z_t + sqrt(eps) g, the model of TV-GP-UCB.

    ``expected_rewards`` takes any step and keeps the z of all steps so far, r^dim numbers each. Cost of a step:
    O(side^dim r). Known in advance: kernel, R^2, eps.

    Args:
        side: points per axis. dim: axes.
        lengthscale: in units of the axes.
        forgetting_rate: eps in [0, 1); 0: a static function.
        noise_scale: R.
        replicates, seed, first_replicate: as for ``GPDraws``.

    Raises ValueError unless ``side`` and ``dim`` >= 1, ``noise_scale`` >= 0 and 0 <= ``forgetting_rate`` < 1.
    """

    def __init__(
        self,
        *,
        side: int = 100,
        dim: int = 2,
        lengthscale: float = 0.2,
        forgetting_rate: float = 0.0,
        noise_scale: float = 0.1,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.positive_integer("side", side)
        validation.positive_integer("dim", dim)
        validation.non_negative("noise_scale", noise_scale)
        validation.below_one("forgetting_rate", forgetting_rate)
        axis = torch.linspace(0, 1, side, dtype=torch.float64)
        arms = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
        super().__init__(arms, replicates, noise_scale)
        kernel = make_kernel("se", lengthscale)
        self._root = covariance_root(covariance(kernel, axis.unsqueeze(-1)))
        self._dim, self._rate = dim, forgetting_rate
        self._streams = problem_streams(seed, replicates, first_replicate)
        self._weights = [self._normal()]
        self._place, self._latest = -1, self.arms[:0]  # the last f drawn
        variance = float(noise_scale) ** 2
        self.knowledge = Knowledge(kernel, variance, forgetting_rate=forgetting_rate)

    def expected_rewards(self, step: int) -> Tensor:
        """f_step, (replicates, N); the same tensor until f changes."""
        self.check_step(step)
        place = 0 if self._rate == 0 else step - 1
        if self._place != place:
            while len(self._weights) <= place:
                kept, gained = (1 - self._rate) ** 0.5, self._rate**0.5
                self._weights.append(kept * self._weights[-1] + gained * self._normal())
            self._place, self._latest = place, self._draw(self._weights[place]).to(self.arms)
        return self._latest

    def root(self) -> Tensor:
        """A x ... x A, (N, r^dim): a root of the covariance of all arms, for exact Thompson sampling."""
        return functools.reduce(torch.kron, [self._root] * self._dim)

    def _normal(self) -> Tensor:
        return self._streams.normal(*[self._root.shape[1]] * self._dim)

    def _draw(self, weights: Tensor) -> Tensor:
        """(A x ... x A) z for z (replicates, r, ..., r), axis by axis; copies as in ``gp_draws``."""
        root, draws = self._root.to(weights), []
        for z in weights:
            f = z.clone()
            for axis in range(self._dim):
                f = torch.tensordot(f, root, dims=([axis], [1])).movedim(-1, axis)
            draws.append(f.reshape(-1))
        return torch.stack(draws)

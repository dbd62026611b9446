"""Gaussian-process draws that drift at a known rate."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.problem import Knowledge
from bandits_torch.problems.registration import named
from bandits_torch.problems.simulated import (
    SimulatedProblem,
    covariance,
    covariance_root,
    gp_draws,
    make_kernel,
    place_arms,
    problem_streams,
)

_BLOCK_STEPS = 128
_FAILURE_PROBABILITY = 0.1


@named("tv-gp", random=True)
class TVGPDraws(SimulatedProblem):
    """Gaussian-process draws that drift: f_{t+1} = sqrt(1 - eps) f_t + sqrt(eps) g_t.

    f_1 and all g_t are independent draws of GP(0, k). The model of TV-GP-UCB (Bogunovic, Scarlett & Cevher
    2016), simulated exactly: at every step f_t ~ GP(0, k), and Cov(f_t(x), f_s(x')) = k(x, x') (1 -
    eps)^{|t - s|/2}.

    ``expected_rewards`` takes any step in any order and is deterministic. Steps are simulated in blocks of 128, of
    which
    the last two are kept: a step forward, or back by up to 128 steps, costs O(N^2); going further back simulates again
    from step 1. Memory
    does not grow with the horizon.

    Known beforehand: the kernel, noise variance R^2, eps, and a bound B on the RKHS norm at all of the first
    10 000 steps (or ``horizon``) with probability 0.9: the squared norm is chi-square with r = rank K
    degrees of freedom, at most r + 2 sqrt(r x) + 2 x with x = ln(T / 0.1) (Laurent & Massart 2000, lemma
    1).

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
        if horizon is not None:
            validation.positive_integer("horizon", horizon)
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
        """f_step, (replicates, N): a view of the block the step lies in."""
        self.check_step(step)
        return self._path.at(step, self.arms)


def likely_norm(rank: int, horizon: int | None) -> float:
    """A bound on the norms of draws of so many normal numbers at all of ``horizon`` (or 10 000) steps, with probability
    0.9: the chi-square tail of Laurent & Massart 2000, Lemma 1, at every step."""
    x = math.log((horizon or 10_000) / _FAILURE_PROBABILITY)
    return math.sqrt(rank + 2 * math.sqrt(rank * x) + 2 * x)


class DriftingPath:
    """The path f_1, f_2, ... block by block, always on the CPU in float64: the same path on every device.

    Args:
        root: (N, r), A A^T = K.
        rate: eps.
        source: (seed, replicates, first replicate) of the streams.
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
        # One step before the first block: f_0 ~ GP(0, k), so that f_1 has the stationary law too.
        self._last = gp_draws(self._root, self._streams.normal(len(self._root)))  # (replicates, N)
        self._next = 0

    def at(self, step: int, like: Tensor) -> Tensor:
        """f_step, (replicates, N), on the device and in the dtype of ``like``: a view of the block it lies in."""
        number, place = divmod(step - 1, _BLOCK_STEPS)
        if number not in self._blocks:
            self._blocks[number] = self.block(number).to(like)
            for old in [n for n in self._blocks if n not in (number - 1, number)]:
                del self._blocks[old]
        block = self._blocks[number]
        if block.device != like.device or block.dtype != like.dtype:  # the problem was moved since
            block = self._blocks[number] = block.to(like)
        return block[place]

    def block(self, number: int) -> Tensor:
        """Steps number * 128 + 1, ..., (number + 1) * 128: (128, replicates, N)."""
        if number < self._next:
            self._restart()
        while True:
            block = self._advance()
            if self._next > number:
                return block

    def _advance(self) -> Tensor:
        rank = self._root.shape[1]
        weights = self._streams.normal(_BLOCK_STEPS, len(self._root))
        steps = []
        for last, own in zip(self._last, weights, strict=True):  # one product per replicate: see gp_draws
            innovations = own[:, :rank].clone() @ self._root.T  # a copy: alignment too changes the last bits
            steps.append(torch.outer(self._fade, last) + self._mix @ innovations)
        block = torch.stack(steps, dim=1)
        self._last, self._next = block[-1], self._next + 1
        return block

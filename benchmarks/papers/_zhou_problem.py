"""Functions whose change in the RKHS norm is known exactly, and the bounds of Zhou & Shroff 2021 on their regret."""

import math

import torch
from torch import Tensor

from bandits_torch.problems import Knowledge, SimulatedProblem
from bandits_torch.problems.simulated import covariance, make_kernel, place_arms, problem_streams
from bandits_torch.theory import MaximumGain

NOISE_SCALE, DELTA = 0.1, 0.1
_CENTRES = 5


class TurningFunctions(SimulatedProblem):
    """f_t = cos(phi_t) g + sin(phi_t) h, g and h orthogonal members of the RKHS of norm B, sums of five kernel
    functions.

    So |f_t| = B at every step and |f_{t+1} - f_t| = 2 B sin(|phi_{t+1} - phi_t| / 2): the variation budget P_T is met
    exactly, and is known. ``change``: ``"drift"``, the same turn at every step, or ``"jumps"``, quarter turns (2^{1/2}
    B each, the last one shorter) evenly spread.
    """

    def __init__(
        self,
        horizon: int,
        budget: float,
        change: str = "drift",
        *,
        lengthscale: float = 0.2,
        num_arms: int = 50,
        rkhs_bound: float = 1.0,
        replicates: int = 1,
        seed: int = 0,
    ) -> None:
        arms, kernel = place_arms("grid", num_arms, 1, seed), make_kernel("se", lengthscale)
        super().__init__(arms, replicates, NOISE_SCALE, horizon)
        streams = problem_streams(seed, replicates, 0)
        centres, weights = streams.uniform(2 * _CENTRES), streams.normal(2 * _CENTRES)
        self.centres = centres.unsqueeze(-1)  # S x 2c x 1
        pairs = [_pair(covariance(kernel, c), w) for c, w in zip(self.centres, weights, strict=True)]
        self.weights = rkhs_bound * torch.stack(pairs)  # S x 2 x 2c: of g and h
        with torch.no_grad():
            rows = torch.stack([kernel(c, arms).to_dense() for c in self.centres])  # S x 2c x N
        self.g, self.h = (self.weights @ rows).unbind(1)
        self.angles = _angles(horizon, budget / rkhs_bound, change)
        self.knowledge = Knowledge(
            kernel=kernel,
            noise_variance=NOISE_SCALE**2,
            rkhs_bound=rkhs_bound,
            forgetting_rate=0.0,
            rkhs_variation_budget=budget,
        )

    def expected_rewards(self, step: int) -> Tensor:
        self.check_step(step)
        angle = float(self.angles[step - 1])
        return math.cos(angle) * self.g + math.sin(angle) * self.h


def _pair(K: Tensor, weights: Tensor) -> Tensor:
    """Weights (2, 2c) of two functions sum_j w_j k(c_j, .), orthogonal and of norm 1, by Gram-Schmidt in the inner
    product w^T K w', K the covariance of the centres: the first half of ``weights`` makes g, the second h."""
    half = len(weights) // 2
    g, h = torch.zeros(2, len(weights), dtype=weights.dtype)
    g[:half], h[half:] = weights[:half], weights[half:]
    g = g / (g @ K @ g).sqrt()
    h = h - (g @ K @ h) * g
    return torch.stack([g, h / (h @ K @ h).sqrt()])


def _angles(horizon: int, budget: float, change: str) -> Tensor:
    """phi_1, ..., phi_T with sum_t 2 sin(|phi_{t+1} - phi_t| / 2) = budget."""
    turns = torch.zeros(horizon, dtype=torch.float64)
    if change == "drift":
        turns[1:] = 2 * math.asin(budget / (2 * (horizon - 1)))
    else:
        quarter = math.sqrt(2)  # the chord of a quarter turn
        jumps = math.ceil(budget / quarter - 1e-9)
        chords = torch.full((jumps,), quarter, dtype=torch.float64)
        chords[-1] = budget - quarter * (jumps - 1)
        at = [round((j + 1) * horizon / (jumps + 1)) for j in range(jumps)]
        turns[at] = 2 * torch.asin(chords / 2)
    return turns.cumsum(0)


class Bounds:
    """gamma_n of a problem, and the bounds of Theorems 1 and 2 with the constants of their proofs.

    R(T) <= 2 xi m P_T + 2 beta S(T), m being H or w, from Lemma 1 and its use (the paper's Theorem keeps the orders
    alone):

    * xi = (1/lambda) sqrt(2 m (1 + lambda) gamma_m), Claim 2; each change is felt for at most m steps;
    * beta = B + (R/sqrt(lambda)) sqrt(2 gamma_m + 2 ln(e/delta)), e = ceil(T/H) intervals or e = T;
    * S(T) = sum of sigma over the choices <= ceil(T/m) sqrt(2 m gamma_m / ln(1 + 1/lambda)), the form of Chowdhury
      & Gopalan's Lemma 4 for any lambda.

    gamma_m is the greedy maximum over the arms divided by 1 - 1/e, with lambda = ``noise_variance``.
    """

    def __init__(self, problem: TurningFunctions, noise_variance: float = NOISE_SCALE**2) -> None:
        self.problem, known = problem, problem.knowledge
        self.horizon = int(problem.horizon or 0)
        self.noise = noise_variance
        self._gain = MaximumGain(covariance(known.kernel, problem.arms), self.noise, self.horizon)

    def gamma(self, points: int) -> float:
        return float(self._gain._table[points])

    def regret(self, memory: int, events: int) -> float:
        """The bound for an interval or window of ``memory`` steps and ``events`` to share delta."""
        known, gamma = self.problem.knowledge, self.gamma(memory)
        B, P = float(known.rkhs_bound), float(known.rkhs_variation_budget or 0.0)
        xi = math.sqrt(2 * memory * (1 + self.noise) * gamma) / self.noise
        beta = B + NOISE_SCALE / math.sqrt(self.noise) * math.sqrt(2 * gamma + 2 * math.log(events / DELTA))
        intervals = math.ceil(self.horizon / memory)
        sigmas = intervals * math.sqrt(2 * memory * gamma / math.log(1 + 1 / self.noise))
        return 2 * xi * memory * P + 2 * beta * sigmas

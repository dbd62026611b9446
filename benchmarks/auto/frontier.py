"""What finding a region that rises must cost while nothing changes: ``python -m benchmarks.auto.frontier``.

The region of ``risers.py`` has a centre c, uniform over the arms far from the best. Until a policy plays an arm of the
region R_c, what it sees has the law of the function at rest. So if it plays arm x n(x) times a step in expectation
while nothing changes, and does not look more often as time goes on,

    P(not found within k steps) >= 1 - k L_c,    L_c = sum_{x in R_c} n(x),

and what it loses in K = 500 steps until it finds the region, at least d_c in each of them, is on average at least

    d_c phi(L_c),    phi(L) = K - L K^2 / 2 if L K <= 1, else 1 / (2 L).

The looks cost sum_x n(x) (max f - f(x)) a step. Printed is the least mean of d_c phi(L_c) over centres and replicates
among all n >= 0 whose looks cost so much in 400 steps, a convex programme: a bound for every such policy, even one that
knows f and only not what rises, nor when. An arm belongs to R_c if it changes by two standard deviations of the noise
or more: less is not seen in one look.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize

from bandits_torch.experiments.cells import Block
from benchmarks.auto.environments import _arms, _draws
from benchmarks.auto.risers import _REACH, AFTER
from benchmarks.pages import say

PRICES = (100.0, 50.0, 30.0, 20.0, 10.0, 5.0, 2.0, 1.0)  # of a look, in losses until the region is found
STEPS, SEEN = 400, 0.2


def functions(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N,) and functions at rest (S, N) of ``region-of-100``."""
    arms, _, root = _arms(block)
    return arms[:, 0].numpy(), _draws(block, 62, 1, root)[0].numpy()


def regions(x: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which arms each region that may rise holds (C, N), and what a step without it costs at least, (C,)."""
    centres = x[np.abs(x - x[f.argmax()]) > 2 * _REACH][:, None]
    risen = 1 / (1 + np.exp(-(_REACH - np.abs(x - centres)) / 0.02))
    after = (1 - risen) * f + risen * (f.max() + 1 - (x - centres) ** 2)
    holds = np.abs(after - f) >= SEEN
    return holds, after.max(-1) - np.where(holds, -np.inf, after).max(-1)


def least(x: np.ndarray, f: np.ndarray, price: float) -> tuple[float, float]:
    """Loss until found and looks' cost in 400 steps, of the n that minimises loss + price * cost."""
    holds, lost = regions(x, f)
    gap = STEPS * (f.max() - f)

    def objective(n: np.ndarray) -> tuple[float, np.ndarray]:
        looks = holds @ n
        many = np.maximum(looks, 1 / AFTER)
        phi = np.where(looks * AFTER <= 1, AFTER - looks * AFTER**2 / 2, 1 / (2 * many))
        slope = np.where(looks * AFTER <= 1, -(AFTER**2) / 2, -1 / (2 * many**2))
        return float((lost * phi).mean() + price * gap @ n), holds.T @ (lost * slope) / len(
            lost
        ) + price * gap

    bounds, most = [(0, None)] * len(x), {"maxiter": 3_000, "maxfun": 10_000, "ftol": 1e-12}
    found = minimize(
        objective, np.full(len(x), 1e-3), jac=True, bounds=bounds, method="L-BFGS-B", options=most
    )
    cost = float(gap @ found.x)
    return float(found.fun) - price * cost, cost


def main() -> None:
    """Print what looks cost in 400 steps at rest, and the least loss until a region is found that they allow."""
    torch.set_num_threads(1)
    x, before = functions(Block(20, 1_000, 0, 9_000))
    say("looks, cost in 400 steps: least loss until found")
    for price in PRICES:
        loss, cost = np.mean([least(x, f, price) for f in before], 0)
        say(f"{cost:.1f}: {loss:.0f}")


if __name__ == "__main__":
    main()

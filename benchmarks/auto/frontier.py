"""What can be had: what finding something that rises must cost while nothing changes.

``python -m benchmarks.auto.frontier``. Something rises, one of several hypotheses c, at a time that is not known, and a
set R_c of arms shows it: until one of them is played, what a policy sees has the law of the rewards at rest. Say that
it plays arm x n(x) times a step in expectation while nothing changes, and not more often as time goes on. What it does
until it finds the change is what it would have done at rest, so by the union bound

    P(not found within k steps) >= 1 - k L_c,    L_c = sum_{x in R_c} n(x).

In each of those steps it loses at least d_c, so of the K = 500 steps counted, on average, at least

    d_c sum_{k=1}^K (1 - k L_c)^+ >= d_c phi(L_c),
    phi(L) = K - L K^2 / 2 - 1/2 if L K <= 1, else 1 / (2 L) - 1/2,

for a sum of convex terms is at least the integral from 0 to K less half of the first. Looks at rest cost
B = T sum_x n(x) g(x) in T = 400 steps, g(x) the gap of x. So for every p >= 0 the mean of d_c phi(L_c) over the
hypotheses is at least D(p) - p B with

    D(p) = min over n >= 0 of mean_c d_c phi(L_c) + p T sum_x n(x) g(x),

a convex programme; the best p of a grid is taken. It holds for every such policy, even one that knows all rewards at
rest and only not what rises, nor when: learning costs nothing here, and nothing is lost once it is found. Looks at
regular intervals attain phi. If each of m arms of gap g may be what rises, and costs d a step until it is found, then

    (loss until found) (B / T) >= m d g / 2,

but for the half step: who finds it twice as soon pays twice as much at rest, whatever he does.

Every policy is played on ``... after 500``. Nothing changes in steps 101 to 500, so the loss there is at least what it
pays for looks. An arm shows a change of two standard deviations of the noise or more: less is not seen in one look.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize

from bandits_torch import run
from bandits_torch.experiments import Block
from benchmarks.auto.environments import _HILL, _REACH, AFTER, DOMAINS, SHAPES, Riser, _arms, _draws
from benchmarks.auto.playing import HISTORY, POLICIES, make_policy
from benchmarks.options import command
from benchmarks.pages import keep, say

PRICES = tuple(float(price) for price in np.geomspace(0.05, 200.0, 20))  # of a look, in losses until found
STEPS, SEEN = 400, 0.2
REPLICATES, SEED = 20, 9_000
PLAYED = (*POLICIES, HISTORY, "r_gp_ucb w=2", "r_gp_ucb", "glr_kl_ucb", "discounted_ts")
ANY = "any"  # policy: a row of the frontier
COLUMNS, KEY = ["shape", "policy", "price", "paid", "least"], ("shape", "policy", "price")
TABLE = Path(__file__).parent / "results" / "frontier.csv"


class Hypotheses(NamedTuple):
    """Which of N arms show each of C hypotheses, (C, N); what a step costs until one of them is played times the
    hypothesis's probability, (C,); and what a look at each arm costs, (N,)."""

    shows: np.ndarray
    lost: np.ndarray
    gap: np.ndarray


def regions(x: np.ndarray, f: np.ndarray) -> Hypotheses:
    """Of ``region-of-100`` with inputs (N,) and this function at rest, (N,): every arm far from the best may be the
    centre."""
    centres = x[np.abs(x - x[f.argmax()]) > 2 * _REACH][:, None]
    risen = 1 / (1 + np.exp(-(_REACH - np.abs(x - centres)) / 0.02))
    after = (1 - risen) * f + risen * (f.max() + 1 - (x - centres) ** 2)
    shows = np.abs(after - f) >= SEEN
    lost = after.max(-1) - np.where(shows, -np.inf, after).max(-1)
    return Hypotheses(shows, lost / len(centres), f.max() - f)


def unrelated(f: np.ndarray) -> Hypotheses:
    """Of arms with these rewards at rest, (N,), of which any one, or of 30 any three, rise. One of 8 costs 3 000 a
    step; of 30, 2 000 until the arm of 16 000 is played, and 1 000 more until it or that of 14 000 is."""
    others, one = np.delete(np.arange(len(f)), f.argmax()), np.eye(len(f), dtype=bool)
    alone = one[others]
    gap = f.max() - f
    if len(f) == 8:
        return Hypotheses(alone, np.full(len(others), 3_000.0 / len(others)), gap)
    pairs = np.stack([one[i] | one[j] for k, i in enumerate(others) for j in others[:k]])
    lost = [np.full(len(alone), 2_000.0 / len(alone)), np.full(len(pairs), 1_000.0 / len(pairs))]
    return Hypotheses(np.concatenate([alone, pairs]), np.concatenate(lost), gap)


def hills(first: np.ndarray, side: int) -> Hypotheses:
    """Of a domain of d inputs with the first hill there, (d,): the points of a grid of ``side``^d may be played, and
    those far from the hill may be the second's place."""
    axis = (np.arange(side) + 0.5) / side
    points = np.stack(np.meshgrid(*[axis] * len(first), indexing="ij"), -1).reshape(-1, len(first))
    before = np.exp(-((points - first) ** 2).sum(-1) / (2 * _HILL**2))
    far = np.sqrt(((points - first) ** 2).sum(-1)) > 3 * _HILL
    centres = points[far & (np.abs(points - 0.5) <= 0.4).all(-1)]
    second = 2 * np.exp(-((points - centres[:, None]) ** 2).sum(-1) / (2 * _HILL**2))
    shows = np.maximum(second - before, 0) >= SEEN
    lost = 2 - np.where(shows, 0, np.maximum(before, second)).max(-1)
    return Hypotheses(shows, lost / len(centres), 1 - before)


def of_shape(shape: str) -> list[Hypotheses]:
    """Those of each replicate that is reported."""
    block = Block(REPLICATES, 1_000, 0, SEED)
    if shape in DOMAINS:
        problem = Riser(f"{shape} after 500")(block)
        side = 60 if shape == DOMAINS[0] else 16
        return [hills(first, side) for first in problem.first.numpy()]
    if shape == "region-of-100":
        arms, _, root = _arms(block)
        return [regions(arms[:, 0].numpy(), f) for f in _draws(block, 62, 1, root)[0].numpy()]
    return [unrelated(f) for f in Riser(f"{shape} after 500").rise(block).before.numpy()]


def phi(looks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps of 500 until something is found that is looked at so often a step, at least in the mean; the slope."""
    few, many = looks * AFTER <= 1, np.maximum(looks, 1 / AFTER)
    value = np.where(few, AFTER - looks * AFTER**2 / 2, 1 / (2 * many))
    return value - 0.5, np.where(few, -(AFTER**2) / 2, -1 / (2 * many**2))


def least(among: Hypotheses, price: float) -> tuple[float, float]:
    """What looks cost in 400 steps and what is lost until found, of the n that attains D(p)."""
    shows, gap = among.shows.astype(float), STEPS * among.gap
    unit = among.lost.sum()

    def objective(n: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = phi(shows @ n)
        total = among.lost @ value + price * gap @ n
        return float(total / unit), (shows.T @ (among.lost * slope) + price * gap) / unit

    most = {"maxiter": 3_000, "maxfun": 10_000, "ftol": 1e-12}
    bounds = [(0, None)] * len(gap)
    found = minimize(
        objective, np.full(len(gap), 1e-3), jac=True, bounds=bounds, method="L-BFGS-B", options=most
    )
    cost = float(gap @ found.x)
    return cost, float(found.fun) * unit - price * cost


def frontier(among: list[Hypotheses]) -> pd.DataFrame:
    """``least``, the mean over replicates, for each of ``PRICES``: price, paid, least."""
    points = [(price, *np.mean([least(one, price) for one in among], 0)) for price in PRICES]
    return pd.DataFrame(points, columns=["price", "paid", "least"])


def bound(points: pd.DataFrame, paid: float) -> float:
    """The least loss until found where looks cost ``paid`` in 400 steps."""
    return max(0.0, float((points["least"] + points["price"] * (points["paid"] - paid)).max()))


def needed(points: pd.DataFrame, loss: float) -> float:
    """What looks cost in 400 steps at least where no more than ``loss`` is lost until found."""
    return max(0.0, float(((points["least"] - loss) / points["price"] + points["paid"]).max()))


def at_rest(shape: str, policy: str) -> float:
    """The mean of what a policy loses in steps 101 to 500, before anything rises."""
    torch.manual_seed(SEED)
    name, steps = f"{shape} after 500", 100 + STEPS
    block = Block(REPLICATES, Riser(name).horizon, 0, SEED)
    problem = Riser(name)(block)
    built = make_policy(policy, name, problem, block)
    return float(run(built, problem, steps, seed=SEED).regret[:, 100:].sum(-1).mean())


def main() -> None:
    """Compute what can be had, play at rest, and keep both: results/frontier.csv."""
    torch.set_num_threads(1)
    for shape in (*SHAPES, *DOMAINS):
        points = frontier(of_shape(shape)).assign(shape=shape, policy=ANY)
        keep(TABLE, points[COLUMNS], KEY)
        for policy in PLAYED if shape not in DOMAINS else ():
            row = [shape, policy, np.nan, at_rest(shape, policy), np.nan]
            keep(TABLE, pd.DataFrame([row], columns=COLUMNS), KEY)
            say(f"{shape}, {policy}: {row[3]:.4g} at rest, so at least {bound(points, row[3]):.4g}")


if __name__ == "__main__":
    command(main)()

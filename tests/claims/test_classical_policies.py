"""What is claimed of the classical bandits: their bounds on the regret, and who wins where rewards change."""

import functools
import math

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.policies import Observation

MEANS = torch.tensor([0.9, 0.7, 0.6, 0.5, 0.5]).double()
N, S = len(MEANS), 20


def regret_of(policy, means, seed=0):
    """(S, T) regret so far on Bernoulli arms of expected rewards ``means`` (T, N)."""
    random = torch.Generator().manual_seed(seed)
    lost = []
    for t, row in enumerate(means):
        choice = policy.choose(t + 1.0)
        reward = (torch.rand(S, generator=random, dtype=torch.float64) < row[choice.arm]).double()
        policy.learn(Observation(t + 1.0, choice.arm, reward, choice.why))
        lost.append(row.max() - row[choice.arm])
    return torch.stack(lost, -1).cumsum(-1)


def still(T):
    return MEANS.expand(T, N)


def switched(T, at=0.5):
    """The best arm becomes the worst."""
    means = still(T).clone()
    means[int(at * T) :] = 1 - MEANS
    return means


def test_ucb1_s_regret_is_logarithmic_and_below_its_bound():
    T = 4000
    regret = regret_of(recipes.ucb1(N, replicates=S, reward_range=(0.0, 1.0)), still(T)).mean(0)
    gaps = (MEANS.max() - MEANS)[1:]
    for t in (500, 1000, 2000, 4000):
        bound = 8 * math.log(t) * (1 / gaps).sum() + (1 + math.pi**2 / 3) * gaps.sum()
        assert regret[t - 1] < bound
    # A logarithm adds as much at every doubling; sqrt(t) would add 2.8 times as much at the fourth as at the first.
    doublings = [float(regret[2 * t - 1] - regret[t - 1]) for t in (250, 500, 1000, 2000)]
    assert max(doublings) < 1.7 * min(doublings)


T = 1200


@functools.cache
def played(name, means):
    """(S, T) regret so far of a recipe with its defaults, and restarts (S,), if it has any."""
    known = {"horizon": T, "reward_range": (0.0, 1.0)}
    options = {key: value for key, value in known.items() if key in recipes.options_of(name)}
    policy = recipes.RECIPES[name](N, replicates=S, **options)
    return regret_of(policy, means(T)), policy.trace().get("restarts")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["ucb1", "discounted_ts", "glr_kl_ucb"])
def test_what_does_not_change_is_learnt(name):
    regret = played(name, still)[0].mean(0)
    at_random = float((MEANS.max() - MEANS).mean())
    assert regret[-1] - regret[-301] < 0.35 * 300 * at_random


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", ["discounted_ucb", "sliding_window_ucb", "discounted_ts", "epsilon_greedy", "glr_kl_ucb"]
)
def test_what_forgets_beats_ucb1_after_a_switch(name):
    after = [
        regret[:, -1] - regret[:, T // 2 - 1]
        for regret, _ in (played("ucb1", switched), played(name, switched))
    ]
    difference = after[0] - after[1]
    assert difference.mean() > 4 * difference.std() / math.sqrt(S)
    assert after[1].mean() < 0.75 * after[0].mean()


def test_exp3_s_keeps_within_its_bound_across_switches():
    T, changes = 3000, 2
    policy = recipes.exp3_s(N, replicates=S, horizon=T, changes=changes, reward_range=(0.0, 1.0))
    regret = regret_of(policy, switched(T)).mean(0)[-1]
    bound = 2 * math.sqrt(math.e - 1) * math.sqrt(N * T * (changes * math.log(N * T) + math.e))
    at_random = float((switched(T).amax(-1) - switched(T).mean(-1)).sum())
    assert regret < bound
    assert regret < 0.8 * at_random  # the bound itself is above what random play loses here


def test_glr_kl_ucb_finds_a_switch_and_seldom_one_that_is_not_there():
    assert (played("glr_kl_ucb", still)[1] > 0).double().mean() < 0.25
    assert (played("glr_kl_ucb", switched)[1] > 0).double().mean() > 0.9

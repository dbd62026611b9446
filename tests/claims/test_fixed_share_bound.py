"""The mixture's log loss is within its bound, exact constants and all, of the best sequence of members."""

import math
from itertools import pairwise, product

import pytest
import torch

from bandits_torch import make, recipes
from bandits_torch.policies import FixedShare, Observation
from tests.reference.real_data import REAL, needs_data


def test_fixed_share_is_bayes_over_all_sequences_of_members():
    """By enumeration: the mixture's probability is the sum over sequences of their prior times their likelihood."""
    share, T = 0.13, 6
    pi = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    density = torch.randn(T, 3, generator=torch.Generator().manual_seed(0)).double()
    sharing = FixedShare(pi, share=share)
    for row in density:
        sharing.update(row.unsqueeze(0))
    total = 0.0
    for sequence in product(range(3), repeat=T):
        prior = float(pi[sequence[0]])
        for before, after in pairwise(sequence):
            prior *= share * float(pi[after]) + (1 - share) * (before == after)
        total += prior * math.exp(sum(float(density[t, p]) for t, p in enumerate(sequence)))
    assert float(sharing.log_loss) == pytest.approx(-math.log(total), abs=1e-10)


def least_losses(losses, most_changes, begin=0.0, stay=0.0, change=0.0):
    """The least sum of losses (T, P) over sequences with exactly k changes, k = 0, ..., most_changes, and of what it
    costs to begin with a member, to stay with it and to change to it, (P,) each."""
    T, P = losses.shape
    best = torch.full((most_changes + 1, P), math.inf, dtype=torch.float64)
    begin, stay, change = (
        torch.as_tensor(cost, dtype=torch.float64).expand(P) for cost in (begin, stay, change)
    )
    best[0] = losses[0] + begin
    for t in range(1, T):
        new = best + stay
        for k in range(1, most_changes + 1):
            for p in range(P):
                others = torch.cat([best[k - 1, :p], best[k - 1, p + 1 :]])
                new[k, p] = min(new[k, p], others.min() + change[p])
        best = new + losses[t]
    return best.amin(-1)


def loss_and_densities(policy, problem, steps):
    """Play, and take down what each member's density of each reward was."""
    densities, update = [], policy.sharing.update

    def noted(log_density, exempt, log_unit):
        densities.append(log_density[0] - log_unit)
        return update(log_density, exempt, log_unit)

    policy.sharing.update = noted
    for step in range(1, steps + 1):
        choice = policy.choose(float(step))
        reward = problem.expected_rewards(step)[0][choice.arm]
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    return float(policy.sharing.log_loss[0]), torch.stack(densities)


def check(policy, problem, steps):
    """Prior pi, share a: -ln pi at first, -ln(a pi) at each of k changes, -ln(1 - a + a pi) at each stay."""
    loss, densities = loss_and_densities(policy, problem, steps)
    pi, a = policy.sharing.log_prior.exp(), policy.sharing.share
    costs = -pi.log(), -(1 - a + a * pi).log(), -(a * pi).log()
    assert bool((loss <= least_losses(-densities, 4, *costs) + 1e-9).all())
    regrets = loss - least_losses(-densities, 4)
    assert regrets.max() > 0  # the best sequence does better than the mixture: the bound is not empty


def test_the_bound_holds_on_a_function_that_switches():
    problem = make("switching", horizon=100, num_arms=15, switches=[0.5])
    policy = recipes.auto(problem.arms)
    check(policy, problem, 100)


@pytest.mark.slow
@needs_data
def test_the_bound_holds_on_real_rewards():
    problem = make("intel-temperature", data=REAL, horizon=120)
    policy = recipes.auto(problem.arms[:, 1:])
    check(policy, problem, 120)

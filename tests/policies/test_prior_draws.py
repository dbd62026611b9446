"""Thompson sampling over candidate priors chooses priors and arms as often as plain draws do."""

import numpy as np
import pytest
import torch

from bandits_torch.models import arm_gp_over_priors
from bandits_torch.policies import Observation, PriorElimination, SampledPriorPolicy
from bandits_torch.theory import ConstantWidth
from tests.policies.test_unknown_prior import ARMS, NOISE, N, dense, priors
from tests.reference.plain_draws import shares_of_hp_gp_ts, shares_of_pe_gp_ts

MANY = 1_500
PULLS = ((1, 0.4, 1.0), (4, -0.3, 2.0), (1, 0.6, 3.0), (6, 0.9, 5.0))  # arm, reward, time
KINDS = ("means", "families", "forgetting")


def learned(policy):
    for arm, reward, time in PULLS:
        at, none = torch.full((MANY,), arm), torch.zeros(MANY, dtype=torch.long)
        why = {"prior": none, "width": torch.ones(MANY).double()}
        policy.learn(Observation(time, at, torch.full((MANY,), reward).double(), why))
    return policy


def found(policy):
    """Shares (P, N) of priors and arms chosen by many replicates that have learned the same."""
    choice, count = policy.choose(6.0), np.zeros((policy.num_priors, N))
    np.add.at(count, (choice.why["prior"].numpy(), choice.arm.numpy()), 1 / MANY)
    return count


def agree(one, other):
    """Within five standard errors of the difference of two shares of MANY draws each, and five draws."""
    error = np.sqrt((one + other) / MANY)
    assert (abs(one - other) < 5 * error + 5 / MANY).all(), np.c_[one.ravel(), other.ravel()]


@pytest.mark.parametrize("kind", KINDS)
def test_hp_gp_ts_draws_a_prior_and_then_a_function(kind) -> None:
    model = arm_gp_over_priors(ARMS, priors(kind), NOISE, replicates=MANY)
    policy = learned(SampledPriorPolicy(model, seed=1))
    columns = zip(*PULLS, strict=True)
    expected = shares_of_hp_gp_ts(dense(priors(kind)), *columns, 6.0, MANY)
    assert (expected.sum(1) > 0.01).sum() > 1  # or one prior alone would be drawn
    agree(found(policy), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_pe_gp_ts_plays_the_best_draw_of_any_surviving_prior(kind) -> None:
    model = arm_gp_over_priors(ARMS, priors(kind), NOISE, replicates=MANY)
    policy = learned(PriorElimination(model, ConstantWidth(50.0), draws=True, seed=1))
    for surviving in ([True, True, True], [True, False, True]):
        policy.surviving[:] = torch.tensor(surviving)
        columns = zip(*PULLS, strict=True)
        agree(found(policy), shares_of_pe_gp_ts(dense(priors(kind)), surviving, *columns, 6.0, MANY))

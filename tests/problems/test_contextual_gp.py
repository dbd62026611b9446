"""The simulated problem over arm x context."""

import pytest
import torch

from bandits_torch import make
from bandits_torch.problems.simulated import covariance


@pytest.mark.slow
def test_functions_have_the_covariance_that_is_told() -> None:
    """Over 4 000 replicates: products of expected rewards of (arm, context, step) against k h (1 - eps)^(lag / 2)."""
    rate, draws = 0.2, 4000
    problem = make(
        "contextual-gp", replicates=draws, num_arms=3, num_contexts=3, forgetting_rate=rate, seed=3
    )
    known, steps = problem.knowledge, (1, 2, 3, 5, 9)
    f = torch.stack([problem.expected_rewards(step) for step in steps])  # steps x S x N
    k = covariance(known.kernel, problem.arms)
    contexts = torch.stack([problem.available(step).context for step in steps])
    h = covariance(known.context_kernel, contexts)
    lag = torch.tensor(steps).double().unsqueeze(-1) - torch.tensor(steps).double()
    told = torch.einsum("ab,st->satb", k, h * (1 - rate) ** (lag.abs() / 2))
    seen = torch.einsum("sra,trb->satb", f, f) / draws
    assert (seen - told).abs().max() < 5 * (2 / draws) ** 0.5
    assert len(contexts.unique(dim=0)) > 1


def test_the_best_arm_depends_on_the_context_and_a_context_comes_back_with_its_rewards() -> None:
    problem = make("contextual-gp", replicates=5, seed=1)
    by_context = {}
    for step in range(1, 2100):  # into the third block of contexts
        number = problem.context_of(step)
        assert torch.equal(problem.available(step).context, problem.contexts[number])
        rewards = by_context.setdefault(number, problem.expected_rewards(step))
        assert torch.equal(rewards, problem.expected_rewards(step))
    assert len(by_context) == 40
    best = torch.stack([rewards.argmax(-1) for rewards in by_context.values()])  # contexts x S
    assert all(len(one.unique()) >= 3 for one in best.T)

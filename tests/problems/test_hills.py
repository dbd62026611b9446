"""The toy problem of unknown priors: eleven means, a truth drawn from one of them, arms that come and go."""

import pytest
import torch

from bandits_torch.problems import Hills


def test_prior_n_has_its_nth_hill_tall_and_prior_0_none() -> None:
    problem = Hills(hill_width=0.01)
    means = torch.stack([prior.mean for prior in problem.knowledge.priors])
    tops = torch.arange(10) * 10  # arms on the tops, on a grid of 101
    expected = torch.ones(11, 10, dtype=torch.float64)
    expected[1:] += 2 * torch.eye(10, dtype=torch.float64)
    torch.testing.assert_close(means[:, tops], expected)
    assert means[:, 5].abs().max() < 1e-4  # between hills
    assert problem.true_prior is problem.knowledge.priors[2]
    assert len({id(prior.kernel) for prior in problem.knowledge.priors}) == 1


def test_kernel_has_l_where_l_squared_is_usual() -> None:
    problem = Hills(amplitude=4.0, squared_lengthscale=0.5)
    K = problem.knowledge.kernel(problem.arms).to_dense()
    x = problem.arms.squeeze(-1)
    torch.testing.assert_close(K, 4 * torch.exp(-((x[:, None] - x) ** 2) / (2 * 0.5)))


@pytest.mark.slow
def test_functions_are_draws_of_the_true_prior() -> None:
    problem = Hills(
        replicates=4000, true_prior=7, amplitude=0.5, squared_lengthscale=0.01, num_arms=21, hill_width=0.05
    )
    f = problem.expected_rewards(1)
    K = problem.knowledge.kernel(problem.arms).to_dense()
    assert (f.mean(0) - problem.true_prior.mean).abs().max() < 5 * (0.5 / 4000) ** 0.5
    assert (f.T.cov() - K).abs().max() < 0.06


def test_even_steps_leave_out_the_true_tall_hill_alone() -> None:
    problem = Hills(true_prior=4, excluded=0.03)
    assert problem.available(1) is None
    assert problem.available(3) is None
    assert (~problem.available(2)).nonzero().flatten().tolist() == list(range(27, 34))
    assert problem.available(2) is problem.available(4)

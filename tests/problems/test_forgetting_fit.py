import pytest
import torch

from bandits_torch.problems import TVGPDraws, fit_forgetting_rate
from bandits_torch.problems.forgetting_fit import forgetting_log_likelihood
from bandits_torch.problems.simulated import covariance
from tests.reference.dense_forgetting import dense_log_likelihood

RATES = torch.tensor([1e-4, 0.03, 0.5, 0.98], dtype=torch.float64)


def _table(steps: int, rate: float, seed: int = 0, arms: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    problem = TVGPDraws(forgetting_rate=rate, num_arms=arms, kernel="matern", seed=seed)
    path = torch.cat([problem.expected_rewards(t) for t in range(1, steps + 1)])
    noise = torch.randn(path.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return path + 0.1 * noise, covariance(problem.knowledge.kernel, problem.arms)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("irregular", [False, True])
def test_filter_equals_the_dense_likelihood(missing: bool, irregular: bool) -> None:
    table, C = _table(12, 0.1)
    times = torch.arange(12.0, dtype=torch.float64)
    if irregular:
        times = times + torch.tensor([0.0, 0.3, 0.1] * 4) + (times > 6) * 20
    if missing:
        table[torch.rand(table.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = float("nan")
        table[4] = float("nan")
    fast = forgetting_log_likelihood(table, times, C, 0.01, RATES)
    slow = [dense_log_likelihood(table, times, C, 0.01, float(rate)) for rate in RATES]
    torch.testing.assert_close(fast, torch.tensor(slow, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rate", [0.003, 0.03, 0.3])
def test_the_rate_that_made_the_data_is_found(rate: float) -> None:
    fits = []
    for seed in range(4):
        table, C = _table(400, rate, seed)
        fits.append(fit_forgetting_rate(table, torch.arange(400.0).double(), C, 0.01))
    assert torch.tensor(fits).log().mean().exp().item() == pytest.approx(rate, rel=0.5)


def test_the_rate_is_per_unit_of_time() -> None:
    table, C = _table(400, 0.1)
    steps = torch.arange(400.0).double()
    per_step = fit_forgetting_rate(table, steps, C, 0.01)
    per_third = fit_forgetting_rate(table, 3 * steps, C, 0.01)
    assert (1 - per_third) ** 3 == pytest.approx(1 - per_step, rel=0.03)


def test_long_and_wide_tables_are_fitted_on_their_last_rows_and_some_arms() -> None:
    table, C = _table(300, 0.05, arms=8)
    times = torch.arange(300.0).double()
    limited = fit_forgetting_rate(table, times, C, 0.01, max_rows=100, max_arms=3)
    kept = torch.tensor([0, 4, 7])  # evenly spaced among 8
    # means over the whole table are taken before the rows are limited
    shifted = table - table.mean(0)
    by_hand = forgetting_log_likelihood(
        shifted[-100:, kept], times[-100:], C[kept][:, kept], 0.01, torch.tensor([limited, 0.9]).double()
    )
    assert by_hand[0] > by_hand[1]
    changed = table.clone()
    changed[:200] += 5.0 * (-1.0) ** torch.arange(200.0).double().unsqueeze(-1)  # means stay as they are
    changed[:, 1] = 7.0
    assert fit_forgetting_rate(changed, times, C, 0.01, max_rows=100, max_arms=3) == limited


def test_rows_without_any_reward_are_gaps() -> None:
    table, C = _table(200, 0.1)
    times = torch.arange(200.0).double()
    gappy = table.clone()
    gappy[50:80] = float("nan")
    kept = torch.cat([torch.arange(50), torch.arange(80, 200)])
    assert fit_forgetting_rate(gappy, times, C, 0.01) == fit_forgetting_rate(
        table[kept], times[kept], C, 0.01
    )


def test_times_that_stand_still_are_refused() -> None:
    """Other bad input: tests/fuzz."""
    with pytest.raises(ValueError, match="times must be increasing"):
        fit_forgetting_rate(torch.ones(4, 3).double(), torch.tensor([0.0, 1.0, 1.0, 2.0]), torch.eye(3), 0.1)


def test_tables_of_whole_numbers_and_with_gradients_are_fitted_too() -> None:
    table, times = torch.arange(60).remainder(7).reshape(20, 3), torch.arange(20)
    rate = fit_forgetting_rate(table.double(), times.double(), torch.eye(3).double(), 0.1)
    for one in (table, table.double().requires_grad_()):
        assert fit_forgetting_rate(one, times, torch.eye(3), 0.1) == rate

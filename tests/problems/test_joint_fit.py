"""Forgetting rate and noise are found together, with intervals that cover them."""

import math

import pytest
import torch

from bandits_torch.kernels import estimate_covariance
from bandits_torch.problems import ForgettingFit, Replay, TVGPDraws, fit_forgetting
from bandits_torch.problems.forgetting_fit import arm_evidence, draw_tables, without_noise
from tests.reference.dense_arms import dense_arm_evidence


def _table(steps: int, rate: float, noise: float, seed: int, missing: float = 0.0) -> torch.Tensor:
    problem = TVGPDraws(forgetting_rate=rate, num_arms=20, kernel="se", lengthscale=0.2, seed=seed)
    path = torch.cat([problem.expected_rewards(t) for t in range(1, steps + 1)])
    generator = torch.Generator().manual_seed(seed)
    table = path + noise**0.5 * torch.randn(path.shape, generator=generator, dtype=torch.float64)
    table[torch.rand(table.shape, generator=generator) < missing] = math.nan
    return table


def _fit(table: torch.Tensor, times: torch.Tensor | None = None) -> ForgettingFit:
    times = torch.arange(len(table)).double() if times is None else times
    return fit_forgetting(table, times, estimate_covariance(table))


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("irregular", [False, True])
def test_evidence_of_every_arm_equals_the_dense_one(missing: float, irregular: bool) -> None:
    table = _table(14, 0.1, 0.2, 0, missing)
    table[5] = math.nan if missing else table[5]
    times = torch.arange(14.0).double() + 1.7e9
    if irregular:
        times = times + torch.rand(14, generator=torch.Generator().manual_seed(3)).double() * 0.9
        times[8:] += 40
    variances, noises, rates = torch.tensor([[1.0, 0.3, 2.0], [0.1, 0.5, 1e-3], [1e-4, 0.2, 0.98]]).double()
    form, log_det = arm_evidence(table, times, variances, noises, rates)
    for g in range(3):
        slow = dense_arm_evidence(table, times, float(variances[g]), float(noises[g]), float(rates[g]))
        assert (float(form[g]), float(log_det[g])) == pytest.approx(slow, rel=1e-8)


def test_drawn_tables_have_the_covariance_they_are_drawn_with() -> None:
    C = torch.tensor([[2.0, 0.5], [0.5, 1.0]]).double()
    drawn = draw_tables(C, 0.3, 0.4, torch.tensor([0.0, 1.0, 4.0]).double(), 200_000)
    flat = drawn.movedim(1, 0).flatten(1)
    decay = 0.6 ** (torch.tensor([[0, 1, 4], [1, 0, 3], [4, 3, 0]]).double() / 2)
    expected = torch.kron(decay, C) + 0.3 * torch.eye(6).double()
    torch.testing.assert_close(torch.cov(flat.T), expected, atol=0.03, rtol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("steps", "rate", "noise", "missing"),
    [(300, 0.1, 0.15, 0.0), pytest.param(300, 0.1, 1.0, 0.0, marks=pytest.mark.slow), (300, 0.3, 0.3, 0.2)],
)
def test_rate_and_noise_are_found_and_their_intervals_cover_them(steps, rate, noise, missing):
    fits = [_fit(_table(steps, rate, noise, seed, missing)) for seed in range(10)]
    means = torch.tensor([[fit.forgetting_rate, fit.noise_variance] for fit in fits]).log().mean(0).exp()
    assert means.tolist() == [pytest.approx(rate, rel=0.25), pytest.approx(noise, rel=0.1)]
    assert sum(fit.rate_interval[0] <= rate <= fit.rate_interval[1] for fit in fits) >= 8
    assert sum(fit.noise_interval[0] <= noise <= fit.noise_interval[1] for fit in fits) >= 8
    assert all(fit.rate_interval[1] < 12 * fit.rate_interval[0] for fit in fits)
    assert all(fit.noise_interval[1] < 4 * fit.noise_interval[0] for fit in fits)


def test_unit_of_rewards_and_of_time_change_the_fit_in_step() -> None:
    table, times = _table(150, 0.1, 0.2, 1), torch.arange(150.0).double()
    one, other = _fit(table), _fit(1e6 * table + 1e9, 2 * times + 1.7e9)
    assert (1 - other.forgetting_rate) ** 2 == pytest.approx(1 - one.forgetting_rate, rel=1e-3)
    assert other.noise_variance == pytest.approx(1e12 * one.noise_variance, rel=1e-3)
    torch.testing.assert_close(other.covariance, 1e12 * one.covariance, rtol=1e-2, atol=1e10)


def test_noise_is_taken_off_the_covariance() -> None:
    table = _table(300, 0.1, 0.5, 2)
    fit, S = _fit(table), estimate_covariance(table)
    share = fit.noise_variance / fit.factor
    torch.testing.assert_close(fit.covariance, fit.factor * without_noise(S, share))
    assert float(torch.linalg.eigvalsh(fit.covariance)[0]) > -1e-9
    assert without_noise(torch.diag(torch.tensor([3.0, 0.5])), 1.0).tolist() == [[2.0, 0.0], [0.0, 0.0]]


def test_a_rate_at_an_end_of_the_range_is_said() -> None:
    white = torch.randn(200, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"(forgetting rate|noise variance): .*at an end of the range"):
        fit = _fit(white)
    assert fit.at_end
    assert any("at an end of the range" in line for line in fit.describe())


def test_a_warning_tells_the_noise_of_0_and_1_in_units_of_the_rewards() -> None:
    clicks = (torch.rand(80, 6, generator=torch.Generator().manual_seed(3)) < 0.1).double()
    with pytest.warns(UserWarning, match="at an end of the range") as given:
        fit = Replay(torch.cat([clicks, clicks]), warm_up=0.5).fit
    said = [str(one.message).partition(";")[0] for one in given]
    assert said == [line for line in fit.describe() if "at an end" in line]
    assert fit.noise_variance < 0.25
    assert any(line.startswith("noise variance") for line in said)


def test_less_noise_than_the_range_holds_is_told_without_a_warning() -> None:
    fit = _fit(_table(300, 0.03, 1e-6, 0))
    assert fit.at_end == ("noise_variance",)
    assert fit.noise_interval[0] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": torch.full((4, 3), math.nan).double()}, "table must be with two rewards"),
        ({"times": torch.tensor([0.0, 1.0, 1.0, 2.0])}, "times must be increasing"),
        ({"covariance": torch.zeros(3, 3)}, "covariance must be not 0"),
        ({"table": torch.ones(4, 3) + 0j}, "table must be real numbers"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], message: str) -> None:
    """Other shapes and numbers: tests/fuzz."""
    given = {
        "table": torch.rand(4, 3, generator=torch.Generator().manual_seed(0)).double(),
        "times": torch.arange(4.0).double(),
        "covariance": torch.eye(3).double(),
    } | changes
    with pytest.raises(ValueError, match=message):
        fit_forgetting(**given)  # type: ignore[arg-type]

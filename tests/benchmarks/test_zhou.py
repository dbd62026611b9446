"""What the theorems of Zhou & Shroff are measured with: exact variation budgets, slopes, verdicts, the short form."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from bandits_torch.problems.simulated import covariance
from benchmarks.papers import _claims, zhou
from benchmarks.papers._claims import HOLDS, UNDECIDED, UNTESTED
from benchmarks.papers._zhou_page import Slope, grows_at_most, slope
from benchmarks.papers._zhou_problem import Bounds, TurningFunctions


@pytest.mark.parametrize("change", ["drift", "jumps"])
@pytest.mark.parametrize("budget", [1.0, 5.0])
def test_norm_and_variation_budget_are_exact_in_the_rkhs(change, budget) -> None:
    """The slow way: every f_t as weights of kernel functions, norms by their covariance."""
    problem = TurningFunctions(40, budget, change, rkhs_bound=1.5, replicates=2)
    kernel = problem.knowledge.kernel
    for k in range(2):
        K, (g, h) = covariance(kernel, problem.centres[k]), problem.weights[k]
        functions = [math.cos(a) * g + math.sin(a) * h for a in problem.angles.tolist()]
        norms = [math.sqrt(float(w @ K @ w)) for w in functions]
        assert norms == pytest.approx([1.5] * 40)
        steps = [b - a for a, b in itertools.pairwise(functions)]
        assert sum(math.sqrt(max(0.0, float(w @ K @ w))) for w in steps) == pytest.approx(budget)
        rows = kernel(problem.centres[k], problem.arms).to_dense()
        torch.testing.assert_close(problem.expected_rewards(7)[k], functions[6] @ rows)
    moved = sum(bool(problem.angles[t] != problem.angles[t - 1]) for t in range(1, 40))
    assert moved == (39 if change == "drift" else math.ceil(budget / (1.5 * math.sqrt(2))))


def test_the_bound_is_that_of_the_proof() -> None:
    problem = TurningFunctions(200, 2.0)
    bounds, noise = Bounds(problem), 0.01
    gamma = bounds.gamma(20)
    xi = math.sqrt(2 * 20 * (1 + noise) * gamma) / noise
    beta = 1 + math.sqrt(2 * gamma + 2 * math.log(10 / 0.1))
    sigmas = 10 * math.sqrt(2 * 20 * gamma / math.log(101))
    assert bounds.regret(20, 10) == pytest.approx(2 * xi * 20 * 2.0 + 2 * beta * sigmas)
    assert 0 < bounds.gamma(20) < bounds.gamma(200)


def test_sigmas_of_any_choices_sum_to_no_more_than_the_bound_takes_them_for() -> None:
    problem = TurningFunctions(60, 1.0)
    K, noise = covariance(problem.knowledge.kernel, problem.arms), 0.01
    gamma, total = Bounds(problem).gamma(60), 0.0
    for _ in range(60):
        arm = int(K.diagonal().argmax())
        total += math.sqrt(float(K[arm, arm]))
        K = K - torch.outer(K[arm], K[arm]) / (K[arm, arm] + noise)
    assert total <= math.sqrt(2 * 60 * gamma / math.log(1 + 1 / noise))


def test_slope_recovers_a_power_and_its_interval_holds_it() -> None:
    x, rng = np.array([500.0, 1000, 2000, 4000]), np.random.default_rng(1)
    exact = slope(x, np.tile(3 * x**0.6, (5, 1)))
    assert (exact.value, exact.low, exact.high) == pytest.approx((0.6, 0.6, 0.6))
    noisy = [slope(x, 3 * x**0.6 * rng.lognormal(sigma=0.3, size=(40, 4))) for _ in range(50)]
    assert 40 <= sum(s.low <= 0.6 <= s.high for s in noisy) <= 50
    assert all(s.high - s.low > 0.02 for s in noisy)


def test_a_growth_holds_or_is_not_decided_by_its_whole_interval() -> None:
    assert grows_at_most(Slope(0.6, 0.5, 0.7), 0.75) == HOLDS
    assert grows_at_most(Slope(0.74, 0.7, 0.8), 0.75) == UNDECIDED
    assert grows_at_most(Slope(0.9, 0.8, 1.0), 0.75) == UNDECIDED
    assert grows_at_most(slope(np.array([100.0]), np.ones((3, 1))), 0.75) == UNTESTED


@pytest.mark.slow
def test_the_short_form_writes_csv_pictures_page_and_claims(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(zhou, "HORIZONS", (300, 310, 320, 330))
    monkeypatch.setattr(zhou, "_MIDDLE", 300)
    monkeypatch.setattr(zhou, "_TUNING", 300)
    zhou.main(["--fast", "--out", str(tmp_path)])
    written = {path.name for path in tmp_path.iterdir()}
    sweeps = {f"{name}.{kind}" for name in ("horizon", "budget", "gain") for kind in ("csv", "png")}
    assert sweeps | {"tuning.csv", "gap.csv", "bound.csv", "claims.csv", "RESULTS.md"} == written
    page, claims = (tmp_path / "RESULTS.md").read_text(), _claims.read(tmp_path)
    assert all(claim.claim in page for claim in claims)
    before = (tmp_path / "RESULTS.md").stat().st_mtime_ns
    zhou.main(["report", "--fast", "--out", str(tmp_path)])
    assert (tmp_path / "RESULTS.md").read_text() == page
    assert (tmp_path / "RESULTS.md").stat().st_mtime_ns > before
    gaps = pd.read_csv(tmp_path / "gap.csv")
    assert gaps["norm"].max() > 1, "earlier work's bound has a counterexample"

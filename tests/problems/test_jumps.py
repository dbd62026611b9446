"""Jumps are told where they are, and neither drift, cycles nor noise alone is called one."""

import numpy as np
import pytest
import torch
from scipy.signal import lombscargle
from scipy.stats import binom

from bandits_torch import diagnose
from bandits_torch.problems.jumps import RATIOS, _clipped, _likelihood_ratios, find_jumps, ratios_of_shares
from bandits_torch.problems.periods import Period, Record, Waves


def test_likelihood_ratios_are_those_of_regression_on_a_step():
    """Against the dense normal equations of level, random walk and noise of any variances, with one step more."""
    g = np.random.default_rng(0)
    T, gaps = 40, np.random.default_rng(1).uniform(0.5, 2.0, 39)
    y = np.cumsum(g.standard_normal((T, 2)) * 0.3, 0) + g.standard_normal((T, 2))
    y[g.random(y.shape) < 0.2] = np.nan
    noisier = np.exp(g.standard_normal((T, 2)))
    _, found = _likelihood_ratios(y, gaps, np.zeros((T - 1, 2), dtype=bool), noisier)
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    for n in range(2):
        held = np.flatnonzero(~np.isnan(y[:, n]))
        values, t, noise = y[held, n], times[held], np.diag(noisier[held, n])

        def fitted(ratio, design, t=t, values=values, noise=noise):
            covariance = noise + ratio * np.minimum(t[:, None] - t[0], t - t[0])
            root = np.linalg.cholesky(covariance)
            X, z = np.linalg.solve(root, design), np.linalg.solve(root, values)
            left = np.square(z - X @ np.linalg.lstsq(X, z, rcond=None)[0]).sum()
            level = np.linalg.solve(root, np.ones(len(t)))
            log_det = 2 * np.log(np.diag(root)).sum() + np.log(level @ level)  # the level is integrated out
            count = len(t) - 1
            return -(count * np.log(left / count) + log_det)

        one = np.ones((len(t), 1))
        without = max(fitted(ratio, one) for ratio in RATIOS)
        for row in (8, 20, 31):
            step = np.concatenate([one, (held > row)[:, None]], 1)
            beside = max(fitted(ratio, step) for ratio in RATIOS)
            if 5 <= (held <= row).sum() <= len(held) - 5:
                assert found[row, n] == pytest.approx(beside - without, rel=1e-4, abs=1e-4)


def record(g, drift=0.0, jumps=(), T=300, N=4, one=False, grows=1.0):
    """``grows``: by which factor the noise grows."""
    gaps = g.uniform(0.5, 1.5, T)
    f = drift * np.cumsum(gaps[:, None] ** 0.5 * g.standard_normal((T, N)), 0)
    for at in jumps:
        f[at:] += 4 * np.eye(N)[g.integers(N)] if one else 2.5 * g.standard_normal(N)
    y = f + grows ** np.linspace(0, 1, T)[:, None] * g.standard_normal((T, N))
    y[g.random(y.shape) < 0.15] = np.nan
    return y, np.cumsum(gaps)


@pytest.mark.parametrize(
    ("drift", "grows"),
    [(0.0, 1.0), (0.05, 1.0), (0.3, 1.0), (2.0, 1.0), (0.0, 50.0), (0.1, 50.0), (0.1, 0.02)],
)
def test_noise_and_drift_are_hardly_ever_called_a_jump(drift, grows):
    g = np.random.default_rng(3)
    told = sum(bool(find_jumps(*record(g, drift, grows=grows)).jumps) for _ in range(40))
    assert told <= 3  # of 40 at 1 %: four or more have probability 0.0007


@pytest.mark.parametrize("drift", [0.0, 0.03])
@pytest.mark.parametrize(("share", "wide"), [(0.05, 10.0), (0.1, 5.0), (None, 3)])
def test_noise_with_heavy_tails_is_hardly_ever_called_a_jump_and_is_told(share, wide, drift):
    g, told = np.random.default_rng(30), 0
    for _ in range(12):
        T, N = 1000, int(g.integers(2, 9))
        scale = 1.0 if share is None else np.where(g.random((T, N)) < share, wide, 1.0)
        noise = g.standard_t(wide, (T, N)) if share is None else scale * g.standard_normal((T, N))
        levels = find_jumps(noise + drift * np.cumsum(g.standard_normal((T, N)), 0), np.arange(T))
        told += bool(levels.jumps)
        assert levels.outliers > 0.0075
    assert told <= 1  # of 12 at 1 %: two or more have probability 0.006
    assert find_jumps(g.standard_normal((1000, 3)), np.arange(1000)).outliers < 0.003


@pytest.mark.parametrize("size", ["one", "of any size"])
def test_rare_rewards_are_hardly_ever_called_a_jump_unless_they_become_common(size):
    g, told, found = np.random.default_rng(32), 0, 0

    def rare(rate):
        worth = 1.0 if size == "one" else g.lognormal(size=(len(rate), 4))
        return np.where(g.random((len(rate), 4)) < rate[:, None], worth, 0.0)

    for _ in range(20):
        told += bool(find_jumps(rare(np.full(400, 0.01)), np.arange(400), bounded=size == "one").jumps)
        rate = np.where(np.arange(1600) < 900, 0.01, 0.08)  # rows are averaged two by two
        jumps = find_jumps(rare(rate), np.arange(1600), bounded=size == "one").jumps
        found += any(one.first <= 900 <= one.last + 2 for one in jumps)
    assert told <= 1  # of 20 at 1 %: two or more have probability 0.017
    assert found >= 15


def test_a_jump_of_the_rate_of_rare_rewards_has_the_likelihood_ratio_of_two_rates():
    others, seen = np.array([0, 1, 0, 2, 1, 3]), np.array([2, 2, 1, 3, 2, 3])
    fresh = np.array([False, False, True, False, False])
    found = ratios_of_shares(others, seen, fresh)

    def likelihood(k, m):
        return binom.logpmf(k, m, k / m) - binom.logpmf(k, m, 0.5) + m * np.log(0.5)

    for start, end in ((0, 3), (3, 6)):
        for row in range(start, end - 1):
            parts = [slice(start, row + 1), slice(row + 1, end)]
            apart = sum(likelihood(others[part].sum(), seen[part].sum()) for part in parts)
            alike = likelihood(others[start:end].sum(), seen[start:end].sum())
            assert found[row] == pytest.approx(2 * (apart - alike))
    assert found[2] == 0


def test_rewards_are_drawn_in_to_the_medians_of_their_neighbours():
    """Against the definition, row by row; a jump stays as it is."""
    g = np.random.default_rng(31)
    y = g.standard_t(3, (60, 2))
    y[30:] += 20
    y[g.random(y.shape) < 0.2] = np.nan
    found = _clipped(y)
    assert (np.isnan(found) == np.isnan(y)).all()
    assert np.nanmin(found[30:]) > 10 > np.nanmax(found[:30])
    for n in range(2):
        sides = []
        for t in range(60):
            near = [y[max(0, t - 5) : t, n], y[t + 1 : t + 6, n]]
            sides.append(sorted(np.median(part[~np.isnan(part)]) for part in near if (~np.isnan(part)).any()))
        far = np.array(
            [abs(one - (side[0] + side[-1]) / 2) for one, side in zip(y[:, n], sides, strict=True)]
        )
        far = far[~np.isnan(far)]
        reach = 3 * max(np.quantile(far, 0.8) / 1.28, np.quantile(far, 0.95) / 1.96)
        for t in np.flatnonzero(~np.isnan(y[:, n])):
            assert found[t, n] == pytest.approx(min(max(y[t, n], sides[t][0] - reach), sides[t][-1] + reach))


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize(("drift", "grows"), [(0.0, 1.0), (0.05, 1.0), (0.0, 0.02)])
def test_jumps_are_found_where_they_are(drift, one, grows):
    g, found, told, within = np.random.default_rng(4), 0, 0, 0
    for _ in range(20):
        jumps = find_jumps(*record(g, drift, (100, 200), one=one, grows=grows)).jumps
        told += len(jumps)
        found += sum(any(abs(one.after - at) <= 3 for one in jumps) for at in (100, 200))
        within += sum(any(one.first < at <= one.last for at in (100, 200)) for one in jumps)
    assert found >= 34
    assert told <= found + 2
    assert within >= 0.85 * told


def test_a_jump_in_a_long_record_is_found_between_stretches_of_rows():
    g = np.random.default_rng(5)
    y = g.standard_normal((40_000, 2))
    y[17_003:, 1] += 1.0
    y[g.random(y.shape) < 0.2] = np.nan
    (jump,) = find_jumps(y, np.arange(40_000.0)).jumps
    assert jump.first <= 17_003 <= jump.last
    assert jump.last - jump.first < 500
    assert jump.arms == (1,)


def test_a_short_record_or_one_that_never_changes_has_none():
    assert find_jumps(np.random.default_rng(0).standard_normal((39, 2)), np.arange(39.0)) is None
    still = find_jumps(np.ones((60, 2)), np.arange(60.0))
    assert still.jumps == ()
    assert find_jumps(np.full((60, 2), np.nan), np.arange(60.0)).jumps == ()


def test_powers_of_many_series_are_lombs_and_scargles():
    g = np.random.default_rng(6)
    times, series = np.cumsum(g.exponential(size=80)), g.standard_normal((80, 3))
    even = Waves(np.arange(80.0), np.array([0.25, 0.5])).powers(series)
    for n in range(3):
        direct = [abs(series[:, n] @ np.exp(2j * np.pi * k * np.arange(80))) ** 2 for k in (0.25, 0.5)]
        assert even[n] == pytest.approx([direct[0] / 80, direct[1] / 160], rel=1e-9)  # half, of one wave
    frequency = np.linspace(0.01, 0.4, 30)
    for n, power in enumerate(Waves(times, frequency).powers(series)):
        assert power == pytest.approx(lombscargle(times, series[:, n], 2 * np.pi * frequency), rel=1e-9)


def test_a_cycle_of_one_arm_is_told_of_it_alone():
    g, t = np.random.default_rng(7), np.arange(600)
    y = g.standard_normal((600, 5)) + 2 * np.sin(2 * np.pi * t[:, None] / 50)
    y[:, 3] += 2 * np.sin(2 * np.pi * t / 13)
    (own,) = Record.of(y, t).own_periods([Period(50.0, 1e-9)]).items()
    assert own[0] == 3
    assert abs(own[1].length / 13 - 1) < 0.01


def test_cycle_drift_jump_and_noise_are_told_apart_in_the_users_units():
    from bandits_torch.problems.tables import RewardTable

    g, t = np.random.default_rng(8), np.arange(800)
    y = 1.5 * np.sin(2 * np.pi * t[:, None] / 24 + np.arange(4)) + g.standard_normal((800, 4))
    y += 0.08 * np.cumsum(g.standard_normal((800, 4)), 0)
    y[500:] += [4, -4, 4, -4]
    times = 1_767_225_600.0 + 3600.0 * t  # 2026-01-01
    found = diagnose(
        RewardTable(torch.from_numpy(50 + 10 * y), torch.from_numpy(times), in_seconds=True, dated=True)
    )
    assert found.noise_interval[0] <= 10 <= found.noise_interval[1]
    assert abs(found.periods[0].length / 86400 - 1) < 0.01
    assert found.drift > 0
    assert [one.after for one in found.jumps] == [500]
    said = str(found)
    assert "Cycles: 1 day (p" in said
    assert "between 2026-01-21 19:00 and 2026-01-21 20:00" in said
    assert len(said.splitlines()) <= 24


@pytest.mark.parametrize("seed", [0, 3])
def test_a_jump_shows_although_the_cycle_grows_with_the_level(seed):
    """One cycle for the whole record leaves a part of it on either side, which looks like drift."""
    g, t = np.random.default_rng(seed), np.arange(1440)
    level = 1.0 + np.array([0.0, 0.2, -0.1, 0.4]) * np.ones((1440, 1))
    level[800:, 2] *= 2.2
    y = level * (1 + 0.5 * np.sin(2 * np.pi * t[:, None] / 24)) + 0.35 * g.standard_normal((1440, 4))
    found = diagnose(torch.from_numpy(y))
    assert [(one.arms, abs(one.after - 800) <= 2) for one in found.jumps] == [((2,), True)]
    assert found.drift == 0.0


def test_drift_with_a_cycle_that_grows_with_the_level_shows_no_jump():
    told = 0
    for seed in range(10):
        g, t = np.random.default_rng(seed), np.arange(600)
        level = np.exp(0.02 * np.cumsum(g.standard_normal((600, 3)), 0))
        y = level * (1 + 0.4 * np.sin(2 * np.pi * t[:, None] / 20)) + 0.2 * g.standard_normal((600, 3))
        told += bool(diagnose(torch.from_numpy(y)).jumps)
    assert told <= 1


def test_arms_that_drift_are_named_if_few():
    g = np.random.default_rng(2)
    y = g.standard_normal((400, 5))
    y[:, 3] += 0.3 * np.cumsum(g.standard_normal(400))
    found = diagnose(torch.from_numpy(y))
    assert found.drifting == ("3",)
    assert found.drift == pytest.approx(3.0, rel=0.3)
    assert "Drift: levels of 1 arm (3) change by about" in str(found)
    assert "that of the others is not significant" in str(found)
    y = g.standard_normal((400, 5)) + 0.3 * np.cumsum(g.standard_normal((400, 5)), 0)
    assert "Drift: levels change by about" in str(diagnose(torch.from_numpy(y)))

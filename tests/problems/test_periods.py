"""Cycles are found at their period, beside drift, gaps and irregular times; drift alone is no cycle."""

import numpy as np
import pytest

from bandits_torch.problems.periods import ROWS, Period, Record, find_periods


def drift(kind, generator, T=300, N=5):
    steps = generator.standard_normal((T, N)) + generator.standard_normal((T, 1))
    return {
        "noise": generator.standard_normal((T, N)),
        "walk": np.cumsum(steps, 0),
        "walk in noise": np.cumsum(0.1 * steps, 0) + generator.standard_normal((T, N)),
    }[kind]


@pytest.mark.parametrize("kind", ["noise", "walk", "walk in noise"])
def test_drift_alone_is_hardly_ever_called_a_cycle(kind):
    generator = np.random.default_rng(7)
    told = sum(bool(find_periods(drift(kind, generator))) for _ in range(60))
    assert told <= 4  # of 60 at 1 %: five or more have probability 0.0003


def test_short_records_of_many_arms_have_few_cycles_of_one_arm_or_of_all():
    """The background is fitted to few frequencies, of which neighbours are correlated."""
    generator = np.random.default_rng(2)
    told = 0
    for _ in range(200):
        record = Record.of(generator.standard_normal((100, 20)), None)
        told += bool(record.common_periods() or record.own_periods())
    assert told <= 10  # of 200 at 2 %: eleven or more have probability 0.003


@pytest.mark.parametrize("kind", ["noise", "walk in noise"])
@pytest.mark.parametrize("length", [6.3, 24.0, 36.0])
def test_a_cycle_is_found_between_gaps_at_irregular_times(kind, length):
    generator = np.random.default_rng(8)
    rewards = drift(kind, generator)
    times = np.cumsum(generator.uniform(0.5, 1.5, len(rewards)))
    rewards += 2 * np.sin(2 * np.pi * times[:, None] / length + generator.uniform(0, 6, 5))
    rewards[generator.random(rewards.shape) < 0.3] = np.nan
    found = find_periods(rewards, times)
    assert abs(found[0].length / length - 1) < 0.05
    assert found[0].p_value < 1e-3


def test_a_p_value_is_above_0_however_clear_the_cycle():
    t = np.arange(2000.0)
    found = find_periods(np.stack([np.sin(t / 3), np.cos(t / 3)], 1) + 1e-9 * np.sin(t)[:, None] ** 3, t)
    assert 0 < found[0].p_value < 1e-16
    assert found[0].length == pytest.approx(6 * np.pi, rel=1e-3)


@pytest.mark.parametrize("rewards", [np.zeros((300, 3)), np.full((300, 3), np.nan), np.eye(39)])
def test_without_variation_or_rows_there_is_none(rewards):
    assert find_periods(rewards) == []


@pytest.mark.parametrize("order", [2, 3])
def test_a_day_whose_later_wave_is_clearer_is_one_cycle_and_it_is_the_day(order):
    g, t = np.random.default_rng(9), np.arange(960.0)[:, None]
    phases = g.uniform(0, 6, (2, 5))
    rewards = np.sin(2 * np.pi * t / 24 + phases[0]) + 3 * np.sin(2 * np.pi * order * t / 24 + phases[1])
    rewards += g.standard_normal(rewards.shape)
    (found,) = find_periods(rewards)
    assert found.length == pytest.approx(24, rel=0.005)
    assert found.p_value < 1e-12


def test_a_day_and_a_week_are_two_cycles():
    g, t = np.random.default_rng(10), np.arange(2000.0)[:, None]
    rewards = np.sin(2 * np.pi * t / 24 + g.uniform(0, 6, 5)) + np.sin(
        2 * np.pi * t / 168 + g.uniform(0, 6, 5)
    )
    found = sorted(one.length for one in find_periods(rewards + g.standard_normal(rewards.shape)))
    assert found == pytest.approx([24, 168], rel=0.02)


@pytest.mark.parametrize(
    ("length", "span", "size", "rounded"),
    [
        (0.9985 * 86_400, 99.85 * 86_400, 86_400, 1),
        (23.96, 1_000.0, 1.0, 24),
        (12.42 * 3_600, 30 * 86_400, 3_600, 12.42),  # the tide's half day is none of twelve hours
        (0.5, 3.0, 1.0, 0.5),
    ],
)
def test_a_length_is_said_as_a_whole_number_where_the_record_cannot_tell(length, span, size, rounded):
    assert Period(length, 0.01).rounded(span, size) == pytest.approx(rounded)


WHICH = ["weekends", "nights", "weekdays", "office hours", "one arm", "every arm", "visits", "pairs"]


def closed(rewards, which):
    """Of daily rows: no weekends; or one arm that is away on them; or each arm on days of its own. Of hourly ones: no
    nights, or weekdays alone, or both. Of visits: each measures twice within a hundredth, or at 2/5, of the time
    between them."""
    t = np.arange(float(len(rewards)))
    if which in ("visits", "pairs"):
        twice = np.repeat(rewards, 2, axis=0)
        noise = np.random.default_rng(13).standard_normal(twice.shape)
        return twice + 0.5 * noise, np.repeat(t, 2) + np.tile(
            [0.0, 0.01 if which == "visits" else 0.4], len(t)
        )
    by_day, by_week = (t % 24 >= 8) & (t % 24 < 20), t % 168 < 120
    hours = {"weekends": t % 7 < 5, "nights": by_day, "weekdays": by_week, "office hours": by_day & by_week}
    if which in hours:
        return rewards[hours[which]], t[hours[which]]
    for n in range(1 if which == "one arm" else rewards.shape[1]):
        rewards[(t + 2 * n) % 7 >= 5, n] = np.nan
    return rewards, t


@pytest.mark.parametrize("which", WHICH)
def test_what_is_missing_at_regular_times_makes_no_cycle_of_drift(which):
    generator = np.random.default_rng(10)
    told = [find_periods(*closed(drift("walk in noise", generator, T=700), which)) for _ in range(20)]
    assert sum(map(bool, told)) <= 2  # of 20 at 1 %: three or more have probability 0.001


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("length", [24.0, 33.0])
def test_a_cycle_is_found_between_regular_gaps_and_no_other(which, length):
    generator = np.random.default_rng(11)
    rewards = drift("walk in noise", generator, T=960)
    rewards += 1.5 * np.sin(2 * np.pi * np.arange(960.0)[:, None] / length + generator.uniform(0, 6, 5))
    record = Record.of(*closed(rewards, which))
    common = record.common_periods()
    assert [one.length for one in common] == [pytest.approx(length, rel=0.02)]
    assert record.own_periods(common) == {}


def in_turn(rewards, every):
    """Of every arm only each second row, or each third, or so; beginning at rows of its own."""
    t = np.arange(len(rewards))
    for n, step in enumerate(every):
        rewards[(t + n) % step != 0, n] = np.nan
    return rewards


MEASURED = {
    "second": [2] * 5,
    "third": [3] * 5,
    "one is slower": [1, 1, 1, 1, 3],
    "one is faster": [1, 3, 3, 3, 3],
}


@pytest.mark.parametrize("every", MEASURED.values(), ids=MEASURED)
@pytest.mark.parametrize("kind", ["noise", "walk in noise"])
def test_arms_that_are_measured_in_turn_have_no_cycle_of_that(kind, every):
    generator = np.random.default_rng(12)
    common, alone = 0, 0
    for _ in range(20):
        record = Record.of(in_turn(drift(kind, generator), every), None)
        common, alone = common + bool(record.common_periods()), alone + bool(record.own_periods())
    assert max(common, alone) <= 2  # of 20 at 1 %: three or more have probability 0.001


def test_a_few_rewards_of_each_arm_in_turn_tell_no_cycle():
    rewards = drift("walk", np.random.default_rng(14), T=120, N=20)
    record = Record.of(in_turn(rewards, [20] * 20), None)
    assert record.resolved.tolist() == [0] * 20
    assert record.common_periods() == []
    assert record.own_periods() == {}


@pytest.mark.parametrize("every", MEASURED.values(), ids=MEASURED)
def test_a_cycle_of_arms_that_are_measured_in_turn_is_found(every):
    generator = np.random.default_rng(13)
    rewards = drift("noise", generator) + 1.5 * np.sin(2 * np.pi * np.arange(300.0)[:, None] / 15)
    assert [one.length for one in find_periods(in_turn(rewards, every))] == [pytest.approx(15, rel=0.02)]


def test_a_slow_wave_that_a_record_holds_fewer_than_four_times_is_no_cycle():
    t = np.arange(364.0)[:, None]
    for seed in range(20):
        generator = np.random.default_rng(seed)
        rewards = 2 * np.sin(2 * np.pi * t / 125) + 0.5 * generator.standard_normal((364, 4))
        assert all(one.length < 80 for one in find_periods(rewards))  # 91 would be a quarter of it


def test_events_in_pairs_a_millisecond_apart_make_no_record_of_milliseconds():
    generator = np.random.default_rng(12)
    times = (np.sort(generator.uniform(0, 30 * 86_400, 700))[:, None] + np.array([0.0, 0.001])).ravel()
    rewards = generator.standard_normal((1400, 4)) + np.sin(2 * np.pi * times / 86_400)[:, None]
    assert [one.length for one in find_periods(rewards, times)] == [pytest.approx(86_400, rel=0.01)]
    assert Record.of(rewards, times).centred.shape[0] <= 2 * ROWS

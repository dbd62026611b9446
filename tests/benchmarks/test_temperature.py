"""The Temperature record as a floor: it agrees with its sensors."""

import numpy as np
import pytest
import torch

from benchmarks.continuous.clock import MOMENTS
from benchmarks.continuous.temperature import DAY, Temperature


@pytest.fixture
def record(tmp_path):
    """Three days of 144 readings of nine sensors, of which eight count; the day of interest is the second."""
    generator = np.random.default_rng(0)
    first = np.datetime64(f"2004-03-{DAY - 1}", "s").astype(np.int64)
    time = first + 600 * np.arange(3 * 144)
    level = 20 + 5 * np.sin(np.arange(3 * 144) / 40)
    temperature = level[:, None] + generator.normal(size=(3 * 144, 9)).astype(np.float32)
    file = tmp_path / "intel_temperature.npz"
    xy = generator.uniform(0, 40, (9, 2)).astype(np.float32)
    np.savez(file, time=time, temperature=temperature, xy=xy, arms_mar14=np.arange(9) != 3)
    return file, temperature[144:288][:, np.arange(9) != 3]


def test_the_floor_is_as_warm_as_its_sensors_read_on_that_day(record):
    file, readings = record
    problem = Temperature(file)
    points = problem.places.unsqueeze(1)
    for step, at in ((1, 0), (MOMENTS, 143)):
        values = problem.expected(step, points)[:, 0]
        torch.testing.assert_close(values, torch.from_numpy(readings[at]).double(), rtol=0, atol=0.02)
    assert float(problem.best(1)) >= readings[0].max() - 0.02


def test_between_two_readings_it_is_linear_in_time(record):
    problem = Temperature(record[0])
    x = problem.places[:1].unsqueeze(1) + 1.0
    at = torch.tensor([(step - 1) / (MOMENTS - 1) * 143 for step in (2, 4, 6)])
    assert at.floor().unique().numel() == 1
    early, middle, late = (float(problem.expected(step, x)) for step in (2, 4, 6))
    assert middle == pytest.approx((early + late) / 2, abs=1e-9)

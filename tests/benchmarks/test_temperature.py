"""W-DBO on the Temperature record: the floor agrees with its sensors, and the page counts what W-DBO keeps."""

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.continuous.clock import MOMENTS
from benchmarks.continuous.temperature import AS_IT_SHIPS, DAY, Temperature, write_page


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


def test_the_page_counts_collapses_and_noisy_fits(tmp_path):
    runs = [(AS_IT_SHIPS, 60, seed, 3.0 + seed, 5, 700.0) for seed in (0, 1)]
    runs += [
        (name, 60, seed, regret, 9, 1.0)
        for name, regret in (("auto", 1.5), ("random", 4.0))
        for seed in (0, 1)
    ]
    columns = ["policy", "seconds", "seed", "regret", "steps", "ms"]
    pd.DataFrame(runs, columns=columns).to_csv(tmp_path / "temperature.csv", index=False)
    rows = []
    for seed, held, noise in (
        (0, (15, 14, 2, 2, 9), (0.1, 0.9, 0.9, 0.9, 0.1)),
        (1, (15, 16, 17, 18, 3), (0.1,) * 5),
    ):
        for step, (count, level) in enumerate(zip(held, noise, strict=True), 1):
            rows.append((step / 5, count, 0.1, level, 0.0, AS_IT_SHIPS, 60, seed, step))
    columns = ["time", "held", "lengthscale_time", "noise", "log_budget", "policy", "seconds", "seed", "step"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "temperature-held.csv", index=False)
    text = " ".join(write_page(tmp_path).read_text(encoding="utf-8").split())
    assert "falls to 2 observations in 1 of 2 runs, and ends with 2 or 3 in 1." in text
    assert f"| {AS_IT_SHIPS} | 0 | yes | 0.60 | 15 | 2 | 2 | 5 | 8.4 | 9 | 0.0 |" in text
    assert f"| {AS_IT_SHIPS} | 1 of 2 | 1 of 1 | 20 % |" in text
    assert "3.500 ± 0.500 | 0.88 |" in text
    assert (tmp_path / "temperature-held.png").exists()

"""A diagnosis says what was put into a table, and where it cannot tell."""

import json
import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from bandits_torch import diagnose
from bandits_torch.cli.commands import app


@pytest.mark.parametrize(
    ("rewards", "values"),
    [([[0.0, 1.0]], "0/1"), ([[0.0, 3.0]], "counts"), ([[0.5, 1.0]], "numbers"), ([[-1.0, 2.0]], "numbers")],
)
def test_kinds_of_values_in_a_record_too_short_for_more(rewards, values):
    found = diagnose(torch.tensor(rewards * 10, dtype=torch.float64))
    assert found.values == values
    assert found.noise is None
    assert "cannot tell" in str(found)


def test_the_interval_of_noise_covers_it_nine_times_in_ten():
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        table = np.cumsum(0.05 * generator.standard_normal((400, 3)), 0)
        table += 2.0 * generator.standard_normal((400, 3))
        table[generator.random(table.shape) < 0.1] = np.nan
        low, high = diagnose(torch.from_numpy(table)).noise_interval
        covered += low <= 2.0 <= high
    assert 170 <= covered <= 190


def test_look_says_the_day_the_noise_and_the_best_arm(tmp_path):
    generator, t = np.random.default_rng(4), np.arange(480)
    rewards = 3 * np.sin(2 * np.pi * t[:, None] / 24) + generator.standard_normal((480, 3)) + [0, 1, 2]
    file = tmp_path / "my.csv"
    np.savetxt(file, rewards, delimiter=",", header="a,b,c", comments="")
    said = CliRunner().invoke(app, ["look", str(file)]).output
    assert "480 rows, 3 arms, rewards are numbers" in said
    day = float(re.search(r"Cycles: ([\d.]+) rows", said)[1])
    assert abs(day / 24 - 1) < 0.005
    assert "in hindsight, c" in said
    assert json.dumps(diagnose(torch.from_numpy(rewards)).to_dict())

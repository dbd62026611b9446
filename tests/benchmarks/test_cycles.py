"""The comparison of kernels over time: its grids and its standard errors."""

import numpy as np
import pytest
import torch

from benchmarks.cycles.__main__ import FAMILIES, RECORDS, Setting, overlap, settings, standard_error


def test_grids_are_of_equal_size_and_every_kernel_is_of_variance_one_or_less():
    assert {len(list(settings(family))) for family in FAMILIES} == {12}
    for family in FAMILIES:
        for setting in settings(family):
            kernel = setting.kernel(24)
            time = torch.zeros(1, 1, dtype=torch.float64)
            assert 0.9 < kernel(time).to_dense().item() <= 1.0 + 1e-12
    assert Setting("quasi-periodic", 0.03, 0.7, 2.0).name == "0.03, share 0.7, width 2"


def test_the_standard_error_counts_runs_that_overlap():
    generator = np.random.default_rng(0)
    alone = generator.normal(size=60)
    assert standard_error(alone, 0) == pytest.approx(alone.std(ddof=1) / 60**0.5)
    # Sums over 4 of 3 + n rows: of the mean of n such sums the error is twice that of the naive formula.
    errors, means = [], []
    for _ in range(400):
        rows = generator.normal(size=203)
        sums = np.convolve(rows, np.ones(4), "valid")
        errors.append(standard_error(sums, 3))
        means.append(sums.mean())
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.12)
    assert [overlap(record) for record in RECORDS] == [0, 0, 3, 3, 3]

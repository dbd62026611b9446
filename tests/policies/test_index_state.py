"""The state of an IndexPolicy: it comes back, it is a copy, and it can be reset, all of it or some replicates."""

import math

import pytest

from tests.reference.index_policies import (
    POLICIES,
    N,
    play,
)


def test_the_trace_tells_the_width_used():
    policy = POLICIES["restart"]()
    assert "width" not in policy.trace()
    for step, clock in enumerate([1, 2, 3, 4, 1, 2], start=1):
        play(policy, 1, first=step)
        expected = math.sqrt(2 * math.log(N * math.pi**2 * clock**2 / (6 * 0.1)))
        assert float(policy.trace()["width"]) == pytest.approx(expected)

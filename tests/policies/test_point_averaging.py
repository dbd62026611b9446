"""Model averaging over points: its slow twin, units and clocks that do not matter, outliers, members that adapt."""

import math

import pytest
import torch

from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.loop import run
from bandits_torch.models.point_members import PointMembers
from bandits_torch.policies import Observation
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.problems import make
from bandits_torch.recipes.point_averaging import auto_over_points
from tests.reference.plain_points import PlainPointAveraging, Process

BOX = Domain(torch.tensor([[-1.0, 0.0], [3.0, 2.0]], dtype=torch.float64))
GRID = [(x, rate, scale) for x in (0.2, 0.7) for rate, scale in ((0.0, math.inf), (0.2, math.inf), (0.0, 5.0))]
NOISES = [0.01, 0.05, 0.1, 0.02, 0.3, 0.04]
S = 2


def averaging(domain=BOX, replicates=S, capacity=9, **options):
    """A policy over six members, and as many processes for its twin."""
    lengthscale, rate, timescale = zip(*GRID, strict=True)
    double = {"dtype": torch.float64}
    members = PointMembers(
        domain.bounds,
        torch.tensor(lengthscale, **double),
        torch.tensor(NOISES, **double),
        torch.tensor(rate, **double),
        torch.tensor(timescale, **double),
        replicates=replicates,
        capacity=capacity,
    )
    return PointAveraging(domain, members, **({"typical_gap": False} | options))


def reward_of(x, step):
    sign = -2.0 if step >= 25 else 1.0
    return sign * torch.sin(2 * x[..., 0] + x[..., 1])


def test_agrees_with_the_plain_twin():
    policy = averaging(refined=0, share=0.02, behind=4.0)
    rules = {"share": 0.02, "behind": 4.0, "memory": 0.9, "forget": 0.99, "tail": 8.0, "clip": 4.0}
    twins = [
        PlainPointAveraging(
            [Process([x] * 2, noise, *t) for (x, *t), noise in zip(GRID, NOISES, strict=True)], capacity=9, **rules
        )
        for _ in range(S)
    ]
    g = torch.Generator().manual_seed(3)
    low, high = BOX.bounds
    time, resets = 0.0, 0
    for step in range(40):
        points = low + (high - low) * torch.rand(3, 2, generator=g, dtype=torch.float64)
        mean, variance = policy.marginals(time + 5, points)
        for k, twin in enumerate(twins):
            for i, point in enumerate((points - low) / (high - low)):
                m, v = twin.predict(point.tolist(), time)
                assert math.isclose(mean[k, i], m, rel_tol=1e-7, abs_tol=1e-8)
                assert math.isclose(variance[k, i], v, rel_tol=1e-6, abs_tol=1e-8)
        x = low + (high - low) * torch.rand(S, 2, generator=g, dtype=torch.float64)
        reward = reward_of(x, step) + 0.1 * torch.randn(S, generator=g, dtype=torch.float64)
        reward = reward + (15.0 if step % 15 == 7 else 0.0)
        policy.learn(Observation(time + 5, x, reward))
        for k, twin in enumerate(twins):
            twin.learn(((x[k] - low) / (high - low)).tolist(), float(reward[k]), time)
        weights = torch.tensor([twin.w for twin in twins], dtype=torch.float64)
        torch.testing.assert_close(policy.sharing.weights, weights, rtol=0, atol=1e-7)
        assert policy.trace()["resets"].tolist() == [twin.resets for twin in twins]
        resets = max(resets, int(policy.trace()["resets"].max()))
        time += 0.3 + float(torch.rand(1, generator=g))
    assert policy.members.inputs.shape[1] == 9  # so the run has seen observations dropped
    assert resets > 0  # and members that start anew
    loss = torch.tensor([twin.log_loss for twin in twins], dtype=torch.float64)
    torch.testing.assert_close(policy.sharing.log_loss, loss, rtol=1e-7, atol=1e-7)

"""Scores of arms: the expected reward of the chosen one, and of the best available one."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bandits_torch.problems import Problem
from bandits_torch.problems.problem import available_rewards
from bandits_torch.streams import ReplicateStreams

F = torch.tensor([[1.0, 5.0, 3.0], [4.0, 2.0, 0.0]], dtype=torch.float64)
ARM = torch.tensor([0, 1])
MASK = torch.tensor([[True, False, True], [False, True, True]])


class Told(Problem):
    """A problem whose expected rewards are those told last."""

    def __init__(self, replicates: int, num_arms: int) -> None:
        self.replicates, self.arms = replicates, torch.zeros(num_arms, 1)

    def expected_rewards(self, step: int) -> Tensor:
        return self.now

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        return torch.zeros(arm.shape)

    def scores(self, expected: Tensor, arm: Tensor, available: Any) -> tuple[Tensor, Tensor]:
        self.now = expected
        return self.score(1, arm, available)


def test_chosen_and_best_by_hand() -> None:
    chosen, best = Told(2, 3).scores(F, ARM, None)
    assert chosen.tolist() == [1.0, 2.0]
    assert best.tolist() == [5.0, 4.0]
    chosen, best = Told(2, 3).scores(F, ARM, MASK)
    assert chosen.tolist() == [1.0, 2.0]
    assert best.tolist() == [3.0, 2.0]


def test_rewards_that_all_replicates_share_score_each_replicates_arm() -> None:
    chosen, best = Told(1, 3).scores(F[:1], torch.tensor([2, 0, 1]), None)
    assert chosen.tolist() == [3.0, 1.0, 5.0]
    assert best.tolist() == [5.0]


def test_arms_that_are_not_available_have_minus_infinity() -> None:
    assert available_rewards(F, None) is F
    assert available_rewards(F, MASK).tolist() == [[1.0, -math.inf, 3.0], [-math.inf, 2.0, 0.0]]


def test_rewards_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected_rewards must have shape \(2, 3\)"):
        Told(2, 3).scores(F[:1], ARM, None)

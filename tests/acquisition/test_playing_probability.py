"""The playing distribution as an acquisition function."""

import torch
from botorch.optim import optimize_acqf_discrete

from bandits_torch import ArmGP, recipes
from bandits_torch.acquisition import PlayingProbability
from bandits_torch.problems import SwitchingFunctions

MODEL = ArmGP(4, torch.eye(4, dtype=torch.float64), 0.1)
P = torch.tensor([[0.1, 0.2, 0.6, 0.1], [0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)


def test_value_of_an_arm_is_the_probability_of_playing_it() -> None:
    of = SwitchingFunctions(num_arms=9, horizon=100)
    policy = recipes.build("ada_opkb", of, replicates=1, horizon=100)
    model = ArmGP(of.arms, of.knowledge.kernel, 0.01)
    X = torch.arange(9, dtype=torch.float64).reshape(9, 1, 1)
    values = PlayingProbability(model, policy.playing_distribution[0])(X)
    torch.testing.assert_close(values, policy.playing_distribution[0])


def test_replicates_broadcast() -> None:
    values = PlayingProbability(MODEL, P)(torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1))
    assert values.tolist() == [[0.2, 1.0], [0.6, 0.0]]


def test_discrete_optimisation_finds_the_arm_played_most() -> None:
    choices = torch.arange(4, dtype=torch.float64).unsqueeze(-1)
    best, _ = optimize_acqf_discrete(PlayingProbability(MODEL, P[0]), q=1, choices=choices)
    assert best.item() == 2

"""The calibrated preset: its statistic, and its first block. Alarms and delays: tests/claims."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, recipes
from bandits_torch.policies import Observation
from bandits_torch.policies.opkb import calibrated
from bandits_torch.policies.opkb.calibrated import CalibratedOPKB, ShiryaevRoberts
from bandits_torch.problems import SwitchingFunctions
from bandits_torch.theory import features_of_covariance, optimal_design


@pytest.mark.parametrize("shifts", [(1.0, 3.0), (2.0,)])
def test_statistic_is_the_sum_over_arms_and_shifts_of_likelihood_ratios_from_every_start(shifts) -> None:
    alarm = ShiryaevRoberts(2, 1, 1e9, shifts=shifts)
    generator = torch.Generator().manual_seed(0)
    history: list[tuple[int, float]] = []
    for t in range(30):
        arm, z = t % 3 % 2, float(torch.randn(1, generator=generator, dtype=torch.float64))
        history.append((arm, z))
        alarm.update(torch.tensor([arm]), torch.tensor([z], dtype=torch.float64))
    slow = 0.0
    for x in range(2):
        pulls = [z for arm, z in history if arm == x]
        for a in (*shifts, *(-s for s in shifts)):
            for start in range(len(pulls)):
                slow += math.exp(sum(a * z - a * a / 2 for z in pulls[start:])) / (2 * len(shifts))
    assert float(alarm.total) == pytest.approx(slow)


def test_block_0_is_as_long_as_its_designs_dimension_asks_to_ten_percent(monkeypatch) -> None:
    solved = []
    monkeypatch.setattr(
        calibrated, "optimal_design", lambda *a, **k: solved.append(a) or optimal_design(*a, **k)
    )
    of = SwitchingFunctions(num_arms=40, dim=2, lengthscale=0.1, horizon=600, replicates=1)
    model = ArmGP(of.arms, of.knowledge.kernel, 0.01, batch_shape=(1,))
    made = CalibratedOPKB(model, first=10.0)
    (length,) = made._base
    phi = features_of_covariance(of.knowledge.kernel(of.arms).to_dense().detach())

    def wanted(n: int) -> float:
        design = optimal_design(phi, 0.01 / n)
        return 10.0 * float((design.probabilities * design.leverages).sum())

    assert length > 100
    assert len(solved) <= 10, "lengths that a shorter block rules out need no design"
    assert length >= wanted(length)
    shorter = int(length / 1.1) - 1
    assert shorter < wanted(shorter)


def test_a_model_without_replicates_and_a_statistic_without_shifts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^model.batch_shape must"):
        CalibratedOPKB(ArmGP(3, torch.eye(3, dtype=torch.float64), 0.1))
    with pytest.raises(ValueError, match=r"^shifts must be at least one size"):
        ShiryaevRoberts(3, 1, shifts=())


@pytest.mark.parametrize("recipe", [recipes.ada_opkb_calibrated, recipes.bbkb, recipes.auto])
def test_a_reward_too_large_for_the_models_dtype_is_refused_before_anything_changes(recipe):
    arms = torch.linspace(0, 1, 5).unsqueeze(-1)
    policy = recipe(arms.float(), RBFKernel(), 0.1)
    choice = policy.choose(1.0)
    before = str(policy.state_dict())
    with pytest.raises(ValueError, match="reward must be at most"):
        policy.learn(Observation(1.0, choice.arm, torch.tensor([1e30], dtype=torch.float64), choice.why))
    assert str(policy.state_dict()) == before
    policy.learn(Observation(1.0, choice.arm, torch.tensor([1.0], dtype=torch.float64), choice.why))
    assert str(policy.state_dict()) != before

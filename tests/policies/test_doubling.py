"""The doubling trick: phases of doubled length, each a new policy that is told its own horizon."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import Domain, load_policy, recipes, save_policy
from bandits_torch.policies import (
    CentredPolicy,
    CostlyMoves,
    DoublingTrick,
    Observation,
    Pending,
    RandomPolicy,
)
from bandits_torch.state import differing

ARMS = torch.linspace(0, 1, 8, dtype=torch.float64).unsqueeze(-1)
REWARDS = torch.sin(5 * ARMS.squeeze(-1))


def sliding(horizon):
    return recipes.sw_gp_ucb(ARMS, RBFKernel().double(), 0.01, horizon=horizon, replicates=2)


def step(policy, t):
    choice = policy.choose(float(t))
    policy.learn(Observation(float(t), choice.arm, REWARDS[choice.arm] + 0.1 * math.sin(t), choice.why))
    return choice.arm.tolist()


@pytest.mark.parametrize("name", ["sw_gp_ucb", "r_gp_ucb", "ada_opkb", "discounted_ucb"])
def test_phases_are_new_policies_told_the_horizons_4_8_16(name):
    def base(horizon):
        told = () if name == "discounted_ucb" else (RBFKernel().double(), 0.01)
        options = {"changes": 1} if name == "discounted_ucb" else {}
        options |= {"seed": horizon} if name == "ada_opkb" else {}
        return getattr(recipes, name)(ARMS, *told, horizon=horizon, replicates=2, **options)

    policy, t = DoublingTrick(base, first=4), 0
    for k, length in enumerate([4, 8, 16]):
        phase = base(length)
        for _ in range(length):
            t += 1
            assert policy.phase == policy.trace()["phase"] == k
            together = [one.choose_many(float(t), 3) for one in (policy, phase)]
            assert all(torch.equal(one.arm, other.arm) for one, other in zip(*together, strict=True))
            assert step(policy, t) == step(phase, t)
    assert policy.phase == 3


def test_a_reward_of_an_earlier_phase_is_ignored_and_choices_of_it_are_not_pending():
    policy = DoublingTrick(sliding, first=2)
    early = policy.choose(1.0)
    step(policy, 1)
    step(policy, 2)
    before, t = policy.state_dict(), 3
    policy.learn(Observation(1.0, early.arm, torch.full((2,), 50.0).double(), early.why))
    assert policy.state_dict()["count"] == before["count"] == 0
    many = policy.choose_many(3.0, 1, pending=[Pending(1.0, early.arm, early.why)])
    assert torch.equal(many[0].arm, policy.choose(float(t)).arm)
    late = policy.choose(3.0)
    policy.learn(Observation(3.0, late.arm, REWARDS[late.arm], late.why))
    assert policy.state_dict()["count"] == 1


def test_a_dropped_choice_of_an_earlier_phase_does_not_reach_the_present_one():
    policy = DoublingTrick(lambda horizon: CostlyMoves(RandomPolicy(8, seed=horizon), start_at=3), first=2)
    early = [policy.choose(1.0) for _ in range(2)]
    for one in early:
        policy.learn(Observation(1.0, one.arm, torch.zeros(1).double(), one.why))
    assert policy.phase == 1
    before = policy.state_dict()
    policy.dropped(Pending(1.0, early[0].arm, early[0].why))
    assert not differing(before, policy.state_dict())
    now = policy.choose(2.0)
    policy.dropped(Pending(2.0, now.arm, now.why))
    assert differing(before, policy.state_dict())


@pytest.mark.parametrize("saved_after", [3, 4, 9])
def test_a_saved_policy_goes_on_in_its_phase(tmp_path, saved_after):
    policy, other = DoublingTrick(sliding, first=4), DoublingTrick(sliding, first=4)
    for t in range(1, saved_after + 1):
        step(policy, t)
    for t in range(1, 7):
        step(other, t)
    save_policy(tmp_path / "file", policy)
    load_policy(tmp_path / "file", other)
    later = range(saved_after + 1, 32)
    assert [step(other, t) for t in later] == [step(policy, t) for t in later]
    assert other.phase == policy.phase == 3


def test_what_does_not_fit_is_refused(tmp_path):
    save_policy(tmp_path / "file", DoublingTrick(sliding, first=4))
    grows = DoublingTrick(lambda horizon: RandomPolicy(horizon), first=2)
    zero = torch.zeros(1, dtype=torch.long)
    first, last = (Observation(float(t), zero, torch.zeros(1).double(), {}) for t in (1, 2))
    grows.learn(first)
    before = grows.state_dict()
    other_base = DoublingTrick(lambda horizon: sliding(2 * horizon), first=4)
    nested = DoublingTrick(sliding, first=2)
    box = Domain(torch.tensor([[0.0], [1.0]]).double())
    limited = CostlyMoves(recipes.gp_ucb(box, RBFKernel().double(), 0.01), box, max_move=0.1)
    of_no_phase = Observation(0.0, zero, torch.ones(1).double(), {"phase": "b"})
    for message, call in {
        "first was 4 and is 5": lambda: load_policy(tmp_path / "file", DoublingTrick(sliding, first=5)),
        "base": lambda: load_policy(tmp_path / "file", other_base),
        r"why\['phase'\] must be an integer": lambda: DoublingTrick(lambda _: recipes.ucb1(3)).learn(
            of_no_phase
        ),
        "base must be a function that makes a policy": lambda: DoublingTrick(lambda horizon: horizon),
        "a policy without phases": lambda: DoublingTrick(lambda horizon: CentredPolicy(nested, 1.0)),
        "max_move must be None in a phase": lambda: DoublingTrick(
            lambda horizon: CentredPolicy(limited, 1.0)
        ),
        "base must be the same replicates, arms and dimension as before": lambda: grows.learn(last),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    assert not differing(before, grows.state_dict())


def test_reset_begins_again_and_one_replicate_begins_its_phase_again():
    policy = DoublingTrick(sliding, first=4)
    first = [step(policy, t) for t in range(1, 11)]
    policy.reset(torch.tensor([True, False]))
    assert policy.phase == 1
    _, variance = policy.policy.marginals(11.0)
    assert bool((variance[0] == 1.0).all())
    assert bool((variance[1] < 1.0).any())
    policy.reset()
    assert [step(policy, t) for t in range(1, 11)] == first

"""``auto`` with ``shared_level``: rewards that rise and fall together do not hide which arm is best."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import AskTell, Domain, load_policy, recipes, save_policy
from bandits_torch.policies import Observation

N, S = 6, 4


def day(t):
    return 10.0 * np.sin(2 * np.pi * t / 24)


def jumps(t):
    return 10.0 * np.random.default_rng(t // 40).normal()


def regret(policy, level, horizon=300, seed=0):
    """Of arms whose rewards differ by deviations of the noise."""
    random = np.random.default_rng(seed)
    value, noise = random.normal(size=(S, N)), random.normal(size=(horizon, S))
    total, replicate = 0.0, np.arange(S)
    for t in range(horizon):
        arm = policy.choose(float(t)).arm
        paid = torch.from_numpy(value[replicate, arm] + level(t) + noise[t])
        policy.learn(Observation(float(t), arm, paid))
        total += float((value.max(1) - value[replicate, arm]).mean())
    return total


@pytest.mark.parametrize("level", [day, jumps])
def test_a_level_that_all_arms_share_costs_little(level):
    plain, shared = (regret(recipes.auto(N, replicates=S, **told), level) for told in ({}, SHARED))
    assert shared < plain / 2


SHARED = {"shared_level": True}
K = torch.eye(N).double() + 0.5
PAST = torch.from_numpy(np.random.default_rng(3).normal(size=(60, N)) + day(np.arange(60))[:, None])
FEATURES = torch.linspace(0, 1, N).double().unsqueeze(-1)
KNOWN = {
    "nothing": (N, {}),
    "a kernel": (FEATURES, {"kernel": RBFKernel(), "noise_variance": 1.0}),
    "a covariance": (N, {"kernel": K, "prior_mean": 2.0}),
    "a history with a cycle": (N, {"history": PAST}),
    "a cycle": (N, {"cycles": 24.0}),
    "features": (FEATURES, {}),
}


@pytest.mark.parametrize("known", KNOWN)
def test_it_goes_with_all_that_may_be_known_and_predicts_rewards(known):
    """Level and all: without a control, predictions are of what arms pay."""
    arms, told = KNOWN[known]
    policy = recipes.auto(arms, replicates=S, **told, **SHARED)
    levels = sum(part.level(0.0).shape[1] for part in policy.model.parts if part.has_level)
    assert 0 < levels < policy.num_members
    regret(policy, lambda t: 50.0 + jumps(t), horizon=75)
    weights, mean, variance = policy.components(75.0)
    predicted = (weights.unsqueeze(-1) * mean).sum(1)
    if policy.scale.learn_offset.all():
        predicted = policy.marginals(75.0)[0]
    assert bool((variance > 0).all())
    assert bool(((predicted - 50.0 - jumps(74)).abs() < 5.0).all())


def test_a_live_system_goes_on_from_its_file_and_takes_up_arms(tmp_path):
    def new():
        return AskTell.auto(["A", "B", "C"], **SHARED)

    def play(live, first, last):
        names = []
        for t in range(first, last):
            question = live.ask(float(t))
            live.tell(question.id, {"A": 0.0, "B": 1.0, "C": -0.5, "D": 3.0}[question.name] + day(t))
            names.append(question.name)
        return names

    one, two = new(), new()
    play(one, 0, 30)
    save_policy(tmp_path / "live", one)
    load_policy(tmp_path / "live", two)
    assert play(one, 30, 60) == play(two, 30, 60)
    one.add_arms(["D"])
    assert play(one, 60, 160)[-20:].count("D") > 15


@pytest.mark.parametrize(
    ("choices", "told", "expected"),
    [
        (3, {"control": 0}, "shared_level must be False with a control"),
        (3, {"contexts": 2}, "shared_level must be False under contexts"),
        (Domain(torch.tensor([[0.0], [1.0]])), {}, "shared_level must be False if the choices are a Domain"),
        (201, {}, "shared_level must be False for more than 200 arms"),
        (3, {"shared_level": 1}, "shared_level must be True or False, got 1"),
    ],
)
def test_what_it_does_not_go_with_is_refused(choices, told, expected):
    with pytest.raises(ValueError, match=expected):
        recipes.auto(choices, **(SHARED | told))

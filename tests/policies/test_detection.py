"""Detection augmented learning equals a plain run, restarts where rewards changed, and takes its turns."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from bandits_torch import recipes, run
from bandits_torch.policies import DetectionAugmented, Observation
from bandits_torch.policies.classical import EXP3S, UCB1
from bandits_torch.recipes import Setup
from tests.reference import plain_classical
from tests.reference.kernels import rbf
from tests.reference.plain_detection import PlainDetection
from tests.reference.stubs import TableProblem

N, S, T = 5, 4, 120
ARMS = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)


def rewards(seed=0):
    """(T, S, N), of functions that are replaced at step 40, in replicate 0 never."""
    generator = torch.Generator().manual_seed(seed)
    before, after = torch.rand(2, S, N, generator=generator, dtype=torch.float64)
    after[0] = before[0]
    noise = 0.1 * torch.randn(T, S, N, generator=generator, dtype=torch.float64)
    return torch.stack([before if t < 40 else after for t in range(T)]) + noise


def smooth(lengthscale=0.2):
    return rbf(lengthscale).requires_grad_(False)


@pytest.mark.parametrize("watched", [None, [3, 0]])
@pytest.mark.parametrize("exploration", [0.2, 0.7])
def test_equals_a_plain_run_that_sums_every_split_anew(watched, exploration) -> None:
    scale = torch.tensor([0.1, 0.1, 0.15, 0.2], dtype=torch.float64)
    settings = {"delta": 0.005, "exploration": exploration}
    some = None if watched is None else torch.tensor(watched)
    policy = DetectionAugmented(UCB1(N, S), horizon=T, noise_scale=scale, watched=some, **settings)
    arms, base = watched or list(range(N)), lambda played: plain_classical.ucb1(played, N)
    slow = [PlainDetection(base, arms, float(r), **settings) for r in scale]
    table = rewards()
    for t in range(T):
        available = torch.ones(S, N, dtype=torch.bool)
        turns_lost = t % 4 == 3 and t > 8
        if turns_lost:  # the base's best stays: UCB1 would else choose another
            for s, run in enumerate(slow):
                wanted = run.base(run.played)
                available[s] = torch.arange(N) == wanted
        choice = policy.choose(float(t), available if turns_lost else None)
        for s, run in enumerate(slow):
            arm = run.choose(available[s].tolist())
            assert int(choice.arm[s]) == arm, f"step {t}, replicate {s}"
            run.learn(arm, float(table[t, s, arm]))
        policy.learn(Observation(float(t), choice.arm, table[t, torch.arange(S), choice.arm], choice.why))
        assert policy.trace()["restarts"].tolist() == [run.restarts for run in slow]
    assert slow[0].restarts == 0
    assert sum(run.restarts for run in slow) >= 2


def test_pending_pulls_take_turns_and_are_forgotten_again() -> None:
    policy = DetectionAugmented(UCB1(N), horizon=T, noise_scale=0.1, exploration=0.5)
    chosen = [int(choice.arm) for choice in policy.choose_many(0.0, 7)]
    assert chosen[:N] == list(range(N))
    assert int(policy.choose(0.0).arm) == 0


@pytest.mark.parametrize("lengthscale", [0.05, 0.1, 0.2, 0.3, 0.45])
def test_the_arms_watched_leave_no_other_arm_more_than_half_of_its_variance(lengthscale) -> None:
    policy = recipes.dal(ARMS, smooth(lengthscale), 0.01, horizon=T)
    watched, K = policy.watched.tolist(), smooth(lengthscale)(ARMS).to_dense().numpy()
    left = K - K[:, watched] @ np.linalg.solve(K[np.ix_(watched, watched)], K[watched])
    assert left.diagonal().max() <= 0.5
    fewer = watched[:-1]
    left = K - K[:, fewer] @ np.linalg.solve(K[np.ix_(fewer, fewer)], K[fewer])
    assert left.diagonal().max() > 0.5
    assert len(watched) < 20
    assert recipes.dal(torch.eye(7).double(), torch.eye(7).double(), 0.1, horizon=T).watched.tolist() == list(
        range(7)
    )


def test_a_base_is_a_name_or_a_function_and_gets_horizon_and_width() -> None:
    about, draws = (ARMS, smooth(), 0.01), lambda setup: recipes.gp_ts(setup, width=1.0)
    named = recipes.dal(*about, horizon=T, base="igp_ucb", width=1.5)
    assert float(named.policy.width.at(1, named.policy.model)) == 1.5
    made = recipes.dal(*about, horizon=T, base=draws, seed=4)
    assert made.policy.acquisition.__name__ == "ThompsonSampling"
    classical = recipes.dal(Setup(7, noise_variance=0.04), horizon=T, base="ucb1")
    assert classical.noise_scale.item() == pytest.approx(0.2)


def test_false_alarms_are_rare_where_nothing_changes() -> None:
    """Each test of an arm has level delta; with 100 replicates of T steps, less than 5 arms' worth of alarms."""
    many, steps = 100, 300
    generator = torch.Generator().manual_seed(7)
    mean = torch.rand(many, N, generator=generator, dtype=torch.float64)
    table = mean + 0.3 * torch.randn(steps, many, N, generator=generator, dtype=torch.float64)
    policy = DetectionAugmented(UCB1(N, many), horizon=steps, noise_scale=0.3, delta=0.05)
    run(policy, TableProblem(table.transpose(0, 1)), steps)
    alarms = float((policy.trace()["restarts"] > 0).double().mean())
    assert alarms <= N * 0.05 + 3 * math.sqrt(0.25 * 0.75 / many)


def test_what_makes_no_sense_is_refused() -> None:
    around, twice = partial(DetectionAugmented, horizon=T, noise_scale=1.0), torch.tensor([1, 1])
    for message, call in {
        "policy must be": lambda: around(EXP3S(N, 1, horizon=T)),
        "policy must be.*Contextual": lambda: around(recipes.cgp_ucb(ARMS, smooth(), 0.01)),
        "watched must be": lambda: around(UCB1(N), watched=twice),
        "noise_scale must be given": lambda: recipes.dal(7, horizon=T, base="ucb1"),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()

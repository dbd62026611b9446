"""race: the same noise for all."""

import pytest
import torch

from bandits_torch.experiments.sweep import race
from bandits_torch.loop import run
from bandits_torch.policies.random import RandomPolicy
from tests.reference.stubs import FixedPolicy, TableProblem


def problem(**options):
    return TableProblem([[[0.0, 1.0, 0.5]]], noise_scale=1.0, **options)


def test_a_race_equals_its_runs():
    histories = race(
        {"one": RandomPolicy(3, 2, seed=1), "two": RandomPolicy(3, 2, seed=2)}, problem(), 30, seed=5
    )
    for seed, name in ((1, "one"), (2, "two")):
        alone = run(RandomPolicy(3, 2, seed=seed), problem(), 30, seed=5)
        assert torch.equal(histories[name].rewards, alone.rewards)
        assert histories[name].meta["policy"] == name


def test_all_policies_of_a_race_meet_the_same_noise():
    script = torch.zeros(2, 30, dtype=torch.long)
    histories = race({"left": FixedPolicy(script, 3), "middle": FixedPolicy(script + 1, 3)}, problem(), 30)
    noise = [h.rewards - h.expected_rewards for h in histories.values()]
    torch.testing.assert_close(noise[0], noise[1], rtol=0, atol=1e-12)


def test_an_empty_race_is_refused():
    with pytest.raises(ValueError, match="at least one policy"):
        race({}, problem(), 3)

"""The calibrated preset's promise: at least ``run_length`` steps between false alarms, and short delays.

The long form is ``python -m benchmarks.papers hong detection``.
"""

import pytest
import torch

from bandits_torch import History, recipes, run
from bandits_torch.problems import GPDraws, Problem, SwitchingFunctions

REPLICATES, HORIZON = 30, 400


def play(of: Problem, run_length: float) -> History:
    policy = recipes.build(
        "ada_opkb_calibrated", of, replicates=REPLICATES, horizon=HORIZON, run_length=run_length
    )
    return run(policy, of, HORIZON)


@pytest.mark.parametrize("run_length", [200.0, pytest.param(2000.0, marks=pytest.mark.slow)])
def test_false_alarms_come_no_faster_than_promised_whatever_arms_are_chosen(run_length: float) -> None:
    of = GPDraws(num_arms=25, dim=2, lengthscale=0.4, noise_scale=0.1, replicates=REPLICATES)
    alarms = play(of, run_length).trace["restarts"][:, -1].sum()
    promised = REPLICATES * HORIZON / run_length
    assert alarms <= promised + 3 * promised**0.5
    if run_length == 200:
        assert alarms > 0, "a test that never fires promises nothing"


@pytest.mark.parametrize(
    ("change", "delay"), [pytest.param("flip", 5, marks=pytest.mark.slow), ("fresh", 40)]
)
def test_a_change_is_found_in_few_steps(change: str, delay: int) -> None:
    of = SwitchingFunctions(
        num_arms=25,
        dim=2,
        lengthscale=0.4,
        horizon=HORIZON,
        switches=(0.5,),
        change=change,
        replicates=REPLICATES,
    )
    detected = play(of, 1e5).trace["detected"] > 0
    after = detected[:, HORIZON // 2 - 1 :]
    steps = after.to(torch.uint8).argmax(-1)[after.any(-1)].double()
    assert len(steps) >= REPLICATES - 2
    assert steps.median() <= delay
    assert not detected[:, : HORIZON // 2 - 1].any()
    assert after.sum(-1).max() == 1  # the alarm restarts it

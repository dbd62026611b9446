"""What a problem gives at a step depends on the step alone, so a run can be taken up in the middle."""

import copy
import inspect

import numpy as np
import pytest
import torch

from bandits_torch.arm_context import mask_of
from bandits_torch.problems import PROBLEMS, make
from bandits_torch.streams import ReplicateStreams
from tests.reference.real_data import REAL

STEP = 290  # past the first two blocks of tv-gp, and some moves of the peaks


def build(name, folder):
    options = {"grid": {"side": 4, "dim": 2, "forgetting_rate": 0.1}, "moving-peaks": {"period": 40}}
    made = {"seed": 4, **options.get(name, {})}
    if name in ("replay", "regression-table"):
        path = folder / "table.npz"
        draws = torch.randn(400, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
        np.savez(path, **({"rewards": draws} if name == "replay" else {"X": draws[:, 1:], "y": draws[:, 0]}))
        return make(name, data=path, replicates=2, horizon=None if name == "replay" else 300, **made)
    if "data" in inspect.signature(PROBLEMS[name]).parameters:
        if REAL is None:
            pytest.skip("no real data: set BANDITS_TORCH_DATA to their folder")
        return make(name, data=REAL, replicates=2)
    return make(name, replicates=2, horizon=300, **made)


def seen(problem, step):
    """Everything a run gets to see of a step."""
    arm = torch.tensor([0, 1])
    available = mask_of(problem.available(step))
    if problem.dim:  # points, not arms
        arm = problem.domain.sample(2, 0)
        rewards = problem.pull(step, arm, ReplicateStreams(1, 2))
        return [rewards, problem.expected(step, arm), torch.tensor(problem.time(step))]
    if available is not None:
        arm = available.expand(2, -1).to(torch.uint8).argmax(-1)
    pulled = problem.pull(step, arm, ReplicateStreams(1, 2))
    values = [problem.expected_rewards(step), torch.tensor(problem.time(step)), pulled]
    return [value.clone() for value in (*values, *([] if available is None else [available]))]


def same(values, others):
    return all(
        torch.equal(a.nan_to_num(nan=-99.0), b.nan_to_num(nan=-99.0))
        for a, b in zip(values, others, strict=True)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("intel-humidity", "intel-light") else ())
        for name in PROBLEMS  # those two are read as intel-temperature is
    ],
)
def test_a_step_gives_the_same_whatever_was_asked_before(name, tmp_path):
    stepped = build(name, tmp_path)
    fresh = copy.deepcopy(stepped)
    last = min(STEP, stepped.horizon or STEP)
    for step in (*range(1, 50), *range(50, last, 10)):
        seen(stepped, step)
    expected = seen(stepped, last)
    assert same(seen(fresh, last), expected)
    seen(stepped, 3)  # and backwards
    assert same(seen(stepped, last), expected)

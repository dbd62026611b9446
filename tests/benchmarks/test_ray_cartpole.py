"""The reinforcement learning that schedulers of Ray Tune are raced on."""

import copy

import pytest
import torch

pytest.importorskip("gymnasium", reason="gymnasium is not installed: pip install gymnasium")

from benchmarks.ray.cartpole import CartPole
from benchmarks.ray.running import SCORE

pytestmark = pytest.mark.filterwarnings("ignore")  # gymnasium's own
GOOD = {"lr": 0.01, "clip": 0.2, "entropy": 0.001, "lambda": 0.95}


def trained(config, iterations, seed=0):
    training = CartPole()
    state = training.begin(seed)
    return [training.step(state, config)[SCORE] for _ in range(iterations)]


def test_a_good_rate_learns_to_balance_and_a_tiny_one_does_not():
    """An even policy balances for about 22 steps."""
    good, tiny = trained(GOOD, 12), trained({**GOOD, "lr": 1e-6}, 12)
    assert good[-1] > 100
    assert max(tiny) < 50


def test_a_checkpoint_goes_on_alike_and_apart_from_the_one_it_was_copied_from():
    training = CartPole()
    state = training.begin(0)
    training.step(state, GOOD)
    saved = copy.deepcopy(state)
    ahead = [training.step(state, GOOD)[SCORE] for _ in range(3)]
    again = copy.deepcopy(saved)
    assert [training.step(again, GOOD)[SCORE] for _ in range(3)] == ahead
    weights = [list(s["policy"].parameters()) for s in (saved, state)]
    assert not any(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_the_advantages_are_the_sums_that_define_them():
    """Of the errors of the value from each transition to the end of its episode, by (discount lambda)^k."""
    training, trace = CartPole(copies=2, steps=40), 0.9
    state = training.begin(0)
    value = copy.deepcopy(state["value"])
    seen, _, _, advantage, target = training._played(state, trace)
    torch.testing.assert_close(target - advantage, value(seen).squeeze(-1).detach())
    one = CartPole(copies=1, steps=40)
    state = one.begin(0)
    seen, _, _, advantage, _ = one._played(state, trace)
    first = int(state["ended"][0])  # the return of the first episode, which is its length
    v = state["value"](seen[:first]).squeeze(-1).detach()
    error = 1 + training.discount * torch.cat([v[1:], v.new_zeros(1)]) - v
    powers = (training.discount * trace) ** torch.arange(first)
    expected = torch.stack([(error[t:] * powers[: first - t]).sum() for t in range(first)])
    torch.testing.assert_close(advantage[:first], expected)


def test_the_score_is_the_mean_return_of_the_latest_episodes():
    training = CartPole()
    state = training.begin(0)
    score = training.step(state, GOOD)[SCORE]
    assert len(state["ended"]) == 20
    assert score == pytest.approx(sum(state["ended"]) / 20)
    assert all(length == int(length) >= 5 for length in state["ended"])

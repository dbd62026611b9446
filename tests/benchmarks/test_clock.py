"""Races against the clock: a slow step costs, and the point in force is what counts."""

import pytest
import torch

from bandits_torch.domain import Domain
from bandits_torch.policies.policy import Choice
from bandits_torch.problems import ContinuousProblem
from benchmarks.continuous.clock import FUNCTIONS, MOMENTS, TURNED, function, play, race, racers


class Moving(ContinuousProblem):
    """f_t(x) = -|x - t|, with t from 0 to 1 over the moments; the best value is 0."""

    def __init__(self):
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        super().__init__(Domain(bounds), 1, 0.0, MOMENTS)

    def expected(self, step, X):
        return -(X[..., 0] - (step - 1) / (MOMENTS - 1)).abs()

    def best(self, step):
        return torch.zeros(1, dtype=torch.float64)


class Slow:
    """A rival that knows the optimum, and takes ``seconds`` to choose it and nothing to learn."""

    def __init__(self, seconds):
        self.seconds, self.now, self.told = seconds, 0.0, []

    def clock(self):
        return self.now

    def choose(self, time):
        self.now += self.seconds
        where = (time - 1) / (MOMENTS - 1)
        return Choice(torch.tensor([[where]], dtype=torch.float64))

    def learn(self, observation):
        self.told.append(observation)


def played(seconds, horizon=12.0, evaluation=1.0):
    rival = Slow(seconds)
    regret, steps = play(rival, Moving(), horizon, evaluation, 0, rival.clock)
    return regret, steps, rival


def test_regret_is_that_of_the_point_in_force():
    regret, steps, rival = played(2.0)
    # A step takes 2 + 1 seconds: points are in force from 2, 5, 8, 11, each the optimum of two seconds before.
    assert steps == [2.0] * 4
    assert [(o.time - 1) / (MOMENTS - 1) * 12 for o in rival.told] == pytest.approx([2, 5, 8, 11])
    assert [float(o.reward) for o in rival.told] == pytest.approx([-2 / 12] * 4, abs=1e-3)
    at = [12 * (k * 10) / (MOMENTS - 1) for k in range(120)]
    lag = [t - max((3 * i for i in range(4) if 3 * i + 2 <= t), default=0) for t in at]
    assert regret == pytest.approx(sum(lag) / 120 / 12, abs=1e-9)


def test_a_slow_step_costs():
    assert played(0.1)[0] < played(1.0)[0] < played(3.0)[0]


def test_a_choice_that_comes_after_the_end_is_not_played():
    _, steps, rival = played(7.0)
    assert len(steps) == 2
    assert len(rival.told) == 1
    with pytest.raises(ValueError, match="first point"):
        played(13.0)


@pytest.mark.parametrize(("horizon", "evaluation"), [(0.0, 1.0), (1.0, 0.0)])
def test_times_are_positive(horizon, evaluation):
    with pytest.raises(ValueError, match="seconds"):
        played(1.0, horizon, evaluation)


def test_ours_play_a_function_of_the_race():
    problem = function(FUNCTIONS[-1])
    policy = racers(problem, 0)["auto"]()
    ticks = iter(range(1000))
    regret, steps = play(policy, problem, 40.0, 2.0, 0, lambda: float(next(ticks)))
    assert len(steps) == 10
    assert regret > 0
    assert len(FUNCTIONS) >= 8


@pytest.mark.parametrize("name", TURNED)
def test_a_turned_function_is_the_old_one_at_the_place_that_a_point_came_from(name):
    turned = function(name)
    Q, d = turned.rotation, turned.dim
    torch.testing.assert_close(Q @ Q.mT, torch.eye(d).double())
    assert float(torch.linalg.det(Q)) == pytest.approx(1.0)
    assert not torch.allclose(Q, torch.eye(d).double(), atol=0.1)
    assert 0.01 < float(turned.shift.abs().max()) <= 0.35
    old = torch.rand(5, 1, d, generator=torch.Generator().manual_seed(0)).double()
    new = 0.5 + turned.shift + (old - 0.5) @ Q  # Q^T (x - c) is (x - c) @ Q for a row
    torch.testing.assert_close(turned.expected(7, new), turned.inner.expected(7, old))


def test_a_policy_that_is_not_in_the_race_is_refused_before_anything_is_played(tmp_path):
    with pytest.raises(ValueError, match=r"only must be policies among auto; .*, got \['nobody'\]"):
        race(["dynamic-levy"], 1.0, 1, tmp_path / "clock-1.csv", only=["nobody"])
    assert not list(tmp_path.iterdir())

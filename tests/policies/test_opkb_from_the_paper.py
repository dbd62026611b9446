"""OPKB, ADA-OPKB and their neural relatives against twins that know nothing but the paper (``reference.hong_2023``).

The twins are told arms, rewards, uniform numbers and first network weights; all else they compute.
"""

import math

import numpy as np
import pytest
import torch

from bandits_torch.policies.opkb import OPKB, AdaOPKB, Constants, FixedFeatures, NeuralFeatures, opkb
from bandits_torch.policies.policy import Observation
from bandits_torch.problems import SwitchingFunctions
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.optimal_design import fractional_gain
from tests.reference import hong_2023


@pytest.fixture(autouse=True)
def designs_solved_to_the_last_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The duality gap of 1e-6 that runs are content with leaves P uncertain by 1e-4 where the objective is flat."""
    monkeypatch.setattr(opkb, "_DESIGN_TOLERANCE", 1e-12)


T, SIGMA, DELTA = 500, 5.0, 0.1
ARMS = 8


def problem() -> SwitchingFunctions:
    return SwitchingFunctions(num_arms=ARMS, dim=2, lengthscale=0.4, horizon=T, change="flip", replicates=1)


def cholesky_features(of: SwitchingFunctions) -> torch.Tensor:
    return torch.linalg.cholesky(of.knowledge.kernel(of.arms).to_dense().detach())


def constants(c) -> Constants:
    c0, c1, c2, c3, c4 = c
    return Constants(sigma=SIGMA, delta=DELTA, c0=c0, c1=c1, c2=c2, c3=c3, c4=c4)


def numbers_of_algorithm_4(seed: int):
    """The uniform number of slot (m, slot), drawn per index m in order when a block begins."""
    streams = ReplicateStreams(seed, 1, purpose="schedule")

    def of_block(j):
        drawn = [streams.uniform(2 ** (j - m)).squeeze(0).tolist() for m in range(j)]
        return lambda m, slot: drawn[m][slot]

    return of_block


def in_step(fast, slow, of, steps=T, tolerance=2e-5) -> set:
    noise, seen = torch.Generator().manual_seed(1), set()
    for t in range(1, steps + 1):
        assert int(fast.trace()["strategy"][0]) == slow.playing(), t
        P = slow.P[slow.playing()]
        np.testing.assert_allclose(
            fast.playing_distribution[0].numpy(), P, atol=tolerance, err_msg=f"step {t}"
        )
        arm = fast.choose(t).arm
        reward = of.expected_rewards(t)[0, arm] + 0.1 * torch.randn(1, generator=noise, dtype=torch.float64)
        fast.learn(Observation(float(t), arm, reward))
        slow.learn(int(arm), float(reward))
        assert int(fast.trace()["restarts"][0]) == slow.restarts, t
        seen.add((slow.j, slow.playing()))
    return seen


C = (1.2, 0.2, 1.0, 0.03, 1.0)  # c0, ..., c4: blocks of some 15 steps, sets A of a few arms


def differ(sets, column: int) -> bool:
    """Whether a set A of some block would be another."""
    return any((a[0] != a[column]).any() for a in sets)


@pytest.mark.parametrize("c0", [*(pytest.param(c0, marks=pytest.mark.slow) for c0 in (0.5, 1.0)), 2.0])
def test_ada_opkb_is_that_of_the_paper(c0: float) -> None:
    of = problem()
    phi, c = cholesky_features(of), (c0, *C[1:])
    fast = AdaOPKB(FixedFeatures(phi), T, constants(c))
    slow = hong_2023.PlainADA(lambda j, history: phi.numpy(), T, SIGMA, DELTA, c, numbers_of_algorithm_4(0))
    seen = in_step(fast, slow, of)
    assert slow.restarts >= 1
    assert any(m < j for j, m in seen), "no replay was played"
    assert differ(slow.sets, 1), "alpha gamma / beta would give the same sets A"
    assert any(3 < statistic < 4 for statistic in slow.statistics), "3 c0 mu would decide alike"


def test_opkb_is_that_of_the_paper() -> None:
    of = problem()
    phi = cholesky_features(of)
    fast = OPKB(FixedFeatures(phi), T, constants(C))
    uniform = numbers_of_algorithm_4(0)
    slow = hong_2023.PlainADA(lambda j, history: phi.numpy(), T, SIGMA, DELTA, C, uniform, adapts=False)
    in_step(fast, slow, of)
    assert slow.j >= 4
    assert differ(slow.sets, 1)


def network(x: torch.Tensor, width: int, depth: int, steps: int, regulariser: float):
    """The same network for fast code and twin; eta as ``NeuralFeatures`` documents it, where the paper tunes it."""
    fast = NeuralFeatures(x, width, depth, steps, regulariser)
    start = [W.clone() for W in fast._start[0]]

    def step_size(history):
        pulls = torch.zeros(len(x), dtype=x.dtype)
        for _, arm, _ in history:
            pulls[arm] += 1
        g = hong_2023.gradients(start, x) / math.sqrt(width)
        weighted = pulls.sqrt().unsqueeze(-1) * g
        largest = torch.linalg.eigvalsh(weighted @ weighted.T)[-1]
        return 1 / (width * (largest + regulariser))

    return fast, hong_2023.neural_features(start, x, regulariser, steps, step_size)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [OPKB, AdaOPKB])
def test_opnn_and_ada_opnn_are_those_of_the_paper(kind: type) -> None:
    of = problem()
    fast_features, features = network(of.arms, width=6, depth=3, steps=4, regulariser=0.01)
    c = (0.5, *C[1:])
    fast = kind(fast_features, T, constants(c))
    slow = hong_2023.PlainADA(features, T, SIGMA, DELTA, c, numbers_of_algorithm_4(0), adapts=kind is AdaOPKB)
    seen = in_step(fast, slow, of, steps=300)
    assert max(j for j, _ in seen) >= 3
    assert differ(slow.sets, 2), "gamma of the first features would give the same sets A"
    assert (slow.restarts > 0) == (kind is AdaOPKB)


def test_replays_are_scheduled_with_the_probability_of_algorithm_4() -> None:
    fast = AdaOPKB(FixedFeatures(torch.eye(2, dtype=torch.float64)), 100, constants(C))
    E, block, start, draws = fast.schedules[0].base, 4, 3, 4000
    count = {}
    for _ in range(draws):
        for interval in fast._replays(0, start, block):
            slot = (interval.index, interval.start, interval.end)
            count[slot] = count.get(slot, 0) + 1
    every = hong_2023.schedule(start, block, E, lambda m, slot: 0.0)
    assert set(count) == {slot for slot in every if slot[0] < block}
    for (m, *_), times in count.items():
        p = math.sqrt(2**m) / math.sqrt(2**block)
        assert abs(times / draws - p) < 4.5 * math.sqrt(p * (1 - p) / draws), m


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.0])
def test_schedule_of_the_theory_is_that_of_appendix_d_1(sigma: float) -> None:
    made = Constants(sigma=sigma, delta=0.05).schedule(30, 1000, 12.5)
    paper = hong_2023.theory(30, 1000, 12.5, sigma, 0.05)
    assert made.base == paper.E
    assert made.alpha == pytest.approx(paper.alpha, rel=1e-12)
    assert made.ridge == pytest.approx(sigma / 1000, rel=1e-12)
    for j in range(8):
        assert made.mixture(j) == pytest.approx(paper.mu(j), rel=1e-12)
        assert made.beta(j) == pytest.approx(paper.beta(j), rel=1e-12)
        assert made.threshold(j) == pytest.approx(4 * paper.c0 * paper.mu(j), rel=1e-12)
        assert made.length(j) == 2**j * paper.E


def test_gamma_is_the_largest_log_determinant_over_fractional_counts() -> None:
    phi = cholesky_features(problem())
    expected = hong_2023.gain(phi.numpy(), SIGMA, T)
    assert float(fractional_gain(phi, SIGMA / T)) == pytest.approx(expected, rel=1e-9)

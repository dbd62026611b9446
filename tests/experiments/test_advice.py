"""Advice: planted winners are found, coin flips are ties, and what is called sure is seldom wrong."""

import itertools
import math
import statistics
from collections import Counter

import numpy as np
import pytest
import torch

from bandits_torch.experiments.advice import LIKELY, SURE, _less, advise
from tests.reference import plain_advice

K, M = 10, 7


def generator(seed):
    return torch.Generator().manual_seed(seed)


def table(seed, units=K, policies=M, gap=0.0, scale=0.3):
    """Regret of policies that differ by chance alone, but for the first, and of chance, far behind."""
    g = generator(seed)
    level = 1 + torch.rand(units, 1, generator=g, dtype=torch.float64)
    own = torch.rand(policies, generator=g, dtype=torch.float64)  # some are noisier than others
    regret = level + scale * own * torch.randn(units, policies, generator=g, dtype=torch.float64)
    regret[:, 0] -= gap
    return {f"p{m}": regret[:, m] for m in range(policies)}, 9 * level.squeeze(-1)


@pytest.mark.parametrize("seed", range(8))
def test_confidence_is_that_of_the_definition(seed):
    regret, random = table(seed, units=7, policies=4, gap=0.1 * seed)
    plain = plain_advice.confidence([*(value.tolist() for value in regret.values()), random.tolist()])
    assert advise(regret, random).confidence == pytest.approx(plain, abs=1e-12)


def test_a_planted_winner_is_found_with_its_lead():
    sure = 0
    for seed in range(60):
        found = advise(*table(seed, gap=0.5))
        sure += found.verdict == "sure"
        assert found.policy == "p0"
    assert sure >= 55
    middle, low, high = found.less
    assert 0 < low < middle < high < 1
    assert found.of_random == pytest.approx(1 / 9, abs=0.06)


def test_coin_flips_are_called_ties():
    """Seven policies that differ by chance: calling any of them likely the best is wrong."""
    verdicts = Counter(advise(*table(seed)).verdict for seed in range(300))
    assert verdicts["tie"] >= 0.9 * 300
    assert verdicts["sure"] <= 0.02 * 300


def test_sure_is_wrong_in_at_most_a_twentieth():
    """Two policies, one a little worse: the hardest case; the worse one must seldom be called surely the best."""
    wrong = {"sure": 0, "likely": 0}
    for seed in range(600):
        found = advise(*table(seed, policies=2, gap=0.002))
        if found.policy != "p0" and found.verdict in wrong:
            wrong[found.verdict] += 1
    assert 0 < wrong["sure"] <= 0.05 * 600
    assert wrong["sure"] + wrong["likely"] <= 0.2 * 600


def test_regret_that_depends_on_that_of_the_step_before_leaves_ties_ties():
    """Units are stretches of 80 steps whose regret has correlation 0.9 from step to step (12 at half of that)."""
    said = Counter()
    for seed in range(150):
        g = generator(seed)
        shock = torch.randn(K * 80, M, generator=g, dtype=torch.float64)
        steps = torch.zeros_like(shock)
        for t in range(1, len(shock)):
            steps[t] = 0.9 * steps[t - 1] + shock[t]
        units = 20 + steps.reshape(K, 80, M).mean(1)
        said[advise({f"p{m}": units[:, m] for m in range(M)}, units[:, 0] + 100).verdict] += 1
    assert said["tie"] >= 0.9 * 150
    assert said["sure"] <= 0.03 * 150


@pytest.mark.parametrize("units", [5, 10, 25])
def test_the_interval_covers_the_true_difference(units):
    covered = 0
    for seed in range(500):
        g = generator(seed)
        own, other = (
            mean + 0.2 * torch.randn(units, generator=g, dtype=torch.float64) for mean in (1.0, 2.0)
        )
        _, low, high = _less(own, other)
        covered += low * float(other.mean()) <= 1.0 <= high * float(other.mean())
    assert 0.86 <= covered / 500 <= 0.94


def test_the_interval_is_that_of_the_definition():
    """t of every pattern of signs of the differences less their mean; its 90 % quantile on either side."""
    own, other = torch.tensor([[1.0, 2.0, 4.0, 3.5, 2.2], [2.0, 2.5, 6.0, 4.0, 5.0]]).double()
    difference = (other - own).tolist()
    middle = statistics.fmean(difference)
    t = [
        abs(plain_advice.t_of([s * (d - middle) for s, d in zip(signs, difference, strict=True)]))
        for signs in itertools.product((1, -1), repeat=5)
    ]
    half = np.quantile(t, 0.9) * statistics.stdev(difference)
    expected = [x / float(other.mean()) for x in (middle, middle - half, middle + half)]
    np.testing.assert_allclose(_less(own, other), expected, rtol=1e-12)


def test_the_same_policy_twice_is_a_tie_and_one_ahead_everywhere_is_sure():
    regret, random = table(3)
    same = advise({"a": regret["p0"], "b": regret["p0"].clone()}, random)
    assert same.verdict == "tie"
    assert same.confidence == 0.0
    assert same.less[0] == 0.0
    ahead = advise({"a": regret["p0"], "b": regret["p0"] + 1.0}, random)
    assert ahead.verdict == "sure"
    assert ahead.confidence == pytest.approx(1 - 2**-K)


def test_few_units_tell_nothing():
    regret, random = table(0, units=4, gap=100.0)
    assert advise(regret, random).verdict == "short"
    one = advise({"a": torch.ones(1), "b": 2 * torch.ones(1)}, 3 * torch.ones(1))
    assert (one.verdict, one.policy, one.less[0]) == ("short", "a", 0.5)
    assert math.isnan(one.less[1])


def test_policies_no_better_than_chance_are_not_advised():
    regret, _ = table(5)
    chance = torch.stack([*regret.values()]).mean(0)
    assert advise(regret, chance).verdict == "random"
    assert advise(regret, torch.zeros(K).double()).verdict == "random"


def test_the_policy_random_is_left_to_its_expectation():
    regret, random = table(1)
    found = advise(regret | {"random": torch.zeros(K).double()}, random)
    assert found == advise(regret, random)
    assert found.rivals == M


def test_more_rivals_make_less_sure():
    for seed in range(8):
        regret, random = table(seed, gap=0.25)
        two = advise({name: regret[name] for name in ("p0", "p1")}, random)
        assert advise(regret, random).confidence < two.confidence
        assert two.confidence > SURE > LIKELY


@pytest.mark.parametrize(
    ("regret", "random", "message"),
    [
        ({}, torch.ones(5), "regret must be"),
        ({"a": torch.ones(4)}, torch.ones(5), "regret of a must have shape"),
        ({"a": torch.full((5,), torch.nan)}, torch.ones(5), "regret of a"),
        ({"a": torch.ones(0)}, torch.ones(0), "regret of a must have shape"),
    ],
)
def test_what_cannot_be_compared_is_refused(regret, random, message):
    with pytest.raises(ValueError, match=message):
        advise(regret, random)

"""Advice: planted winners are found, coin flips are ties, and what is called sure is seldom wrong."""

import math
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from scipy.signal import lfilter

from bandits_torch.experiments.comparison import (
    LIKELY,
    SURE,
    Stuck,
    _less,
    advice_of_record,
    advice_of_replicates,
    advise,
    stuck,
    with_whole_run,
)
from tests.experiments.made_up import history
from tests.reference import plain_advice
from tests.reference.rare_losses import row, surely_the_best

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


def test_of_two_equals_one_is_surely_the_best_in_at_most_a_tenth():
    """Where chance loses far more in some units than in others: the hardest case, in which either is called so."""
    sure = Counter()
    for seed in range(600):
        random = 10 + 5 * (2 * torch.randn(K, generator=generator(-seed - 1), dtype=torch.float64)).exp()
        found = advise(table(seed, policies=2)[0], random)
        sure[found.policy] += found.verdict == "sure"
    assert 0.05 * 600 < sum(sure.values()) <= 0.1 * 600
    assert max(sure.values()) <= 0.05 * 600


@pytest.mark.parametrize(("plays", "share"), [(20, 0.3), (50, 0.1)])
def test_of_two_equals_the_one_that_seldom_loses_much_is_seldom_surely_the_best(plays, share):
    assert surely_the_best(plays, share, 200) <= 0.03


def test_the_page_says_how_often():
    assert row(10) in (Path(__file__).parents[2] / "docs" / "advice.md").read_text(encoding="utf-8")


def test_regret_that_depends_on_that_of_the_step_before_leaves_ties_ties():
    """Units are stretches of 80 steps whose regret has correlation 0.9 from step to step (12 at half of that)."""
    said = Counter()
    for seed in range(150):
        g = generator(seed)
        shock = torch.randn(K * 80, M, generator=g, dtype=torch.float64)
        shock[0] = 0
        steps = torch.from_numpy(lfilter([1.0], [1.0, -0.9], shock.numpy(), axis=0))
        units = 20 + steps.reshape(K, 80, M).mean(1)
        said[advise({f"p{m}": units[:, m] for m in range(M)}, units[:, 0] + 100).verdict] += 1
    assert said["tie"] >= 0.9 * 150
    assert said["sure"] <= 0.03 * 150


@pytest.mark.parametrize("units", [5, 10, 25])
def test_the_interval_covers_the_true_share(units):
    covered = 0
    for seed in range(500):
        g = generator(seed)
        own, other = (
            mean + 0.2 * torch.randn(units, generator=g, dtype=torch.float64) for mean in (1.0, 2.0)
        )
        _, low, high = _less(own, other)
        covered += low <= 0.5 <= high
    assert 0.86 <= covered / 500 <= 0.94


@pytest.mark.parametrize("seed", range(4))
def test_the_interval_holds_the_ratios_that_the_sign_flip_test_keeps(seed):
    """Its ends are where the share of patterns of signs with a mean as far from 0 as that observed crosses 0.1."""
    g = generator(seed)
    own, other = torch.rand(2, 10, generator=g, dtype=torch.float64) + torch.tensor([[0.1], [0.5]])
    _, low, high = _less(own, other)

    def kept(less):
        differences = (own - (1 - less) * other).tolist()
        return plain_advice.p_of_mean(differences) > 0.1

    assert kept(low + 1e-9)
    assert kept(high - 1e-9)
    assert not kept(low - 1e-9)
    assert not kept(high + 1e-9)


@pytest.mark.parametrize("units", [5, 10, 25])
def test_nobody_loses_more_than_all_of_the_regret(units):
    """Regret is not negative: no policy has more than 100 % less, nor an interval beyond the ratios that were seen."""
    for seed in range(200):
        g = generator(seed)
        # Most are small.
        own, other = torch.rand(2, units, generator=g, dtype=torch.float64).pow(6.0 + seed % 7)
        middle, low, high = _less(own, other)
        ratio = own / other
        assert 1 - float(ratio.max()) <= low <= middle <= high <= 1 - float(ratio.min()) <= 1


def test_what_has_no_interval_has_none():
    ones = torch.ones(6).double()
    assert _less(ones, ones) == (0.0, 0.0, 0.0)
    some = torch.tensor([1.0, 0, 0, 0, 0, 0]).double()
    middle, low, high = _less(some, 2 * some)  # told by one unit
    assert middle == 0.5
    assert math.isnan(low)
    assert math.isnan(high)
    assert math.isnan(_less(ones, ones - 1)[0])


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


@pytest.mark.parametrize("unit", [1e-200, 1e-12, 1e12, 1e150])
def test_the_confidence_does_not_depend_on_the_unit(unit):
    regret, random = table(1, policies=2, gap=0.2)
    found = advise({name: unit * value for name, value in regret.items()}, unit * random)
    assert found.confidence == advise(regret, random).confidence


def test_regrets_may_be_whole_numbers():
    regret = {"a": torch.arange(6), "b": 2 + 2 * torch.arange(6)}
    wanted = advise({name: value.double() for name, value in regret.items()}, torch.full((6,), 20.0))
    assert advise(regret, torch.full((6,), 20)) == wanted


def test_more_rivals_make_less_sure():
    for seed in range(8):
        regret, random = table(seed, gap=0.25)
        two = advise({name: regret[name] for name in ("p0", "p1")}, random)
        assert advise(regret, random).confidence < two.confidence
        assert two.confidence > SURE > LIKELY


def test_what_is_beside_the_lead_is_said_in_its_range():
    regret, random = table(3)
    same = advice_of_replicates(advise({"a": regret["p0"], "b": regret["p0"].clone()}, random))[0]
    assert same.endswith(", as much as b.")
    close = advice_of_replicates(advise({name: regret[name] for name in ("p1", "p2")}, random))[0]
    assert re.search(r"[\d.]+ % less than p\d \(90 % interval: [\d.]+ % more to [\d.]+ % less\)", close)
    ahead = advice_of_replicates(advise({"a": regret["p0"], "b": regret["p0"] + 1.0}, random))[0]
    assert re.search(r"[\d.]+ % less than b \(90 % interval: [\d.]+ % to [\d.]+ %\)", ahead)


def test_where_nothing_can_be_lost_nothing_is_compared():
    none = torch.zeros(K).double()
    said = advice_of_replicates(advise({"a": none, "b": none}, none))
    assert said == [
        "Nothing could be lost: at every step only one arm was available, or all arms paid the same."
    ]


def played(arms, best=0, least=0.1, most=1.0):
    """A run of these arms (T,) or (S, T), of which ``best`` loses ``least`` a step and every other ``most``."""
    arms = torch.atleast_2d(torch.as_tensor(arms))
    return history(arms, expected=torch.where(arms == best, -least, -most))


T, STEPS = 400, 40
RANDOM = torch.full((1, T), 0.8).double()
GOOD = torch.zeros(T, dtype=torch.long)
AT_ONE = torch.where(torch.arange(T) < 250, 3, 0)  # at the wrong arm, until step 250


@pytest.mark.parametrize(
    ("arms", "found"),
    [
        (AT_ONE, (3, 1, 250)),
        (torch.arange(T) % 4, None),  # it changes all the time
        (torch.where(torch.arange(T) < STEPS - 1, 3, 0), None),  # not for long
        (torch.where(torch.arange(T) % STEPS == 7, 1, AT_ONE), None),  # it looked elsewhere
        # Longest.
        (torch.where(torch.arange(T) < 100, 2, torch.where(torch.arange(T) < 260, 3, 0)), (3, 101, 260)),
    ],
)
def test_stuck_is_who_pulls_one_arm_alone_and_loses_by_it(arms, found):
    said = stuck({"a": played(arms), "b": played(GOOD), "random": played(GOOD)}, RANDOM, STEPS)
    assert said == ({} if found is None else {"a": Stuck(*found, rival="b")})


def test_whom_nobody_beats_is_not_stuck():
    one = played(AT_ONE)
    assert stuck({"a": one}, RANDOM, STEPS) == {}
    assert stuck({"a": one, "b": one}, RANDOM, STEPS) == {}  # both as bad
    assert stuck({"a": one, "b": played(GOOD)}, 3 * RANDOM, STEPS) == {}  # better than chance by far
    assert stuck({"a": played(GOOD, best=1, least=0.0, most=0.3), "b": played(GOOD)}, RANDOM, STEPS) == {}


def test_of_replicates_half_must_be_stuck():
    def several(count):
        return played(torch.stack([AT_ONE if n < count else GOOD for n in range(4)]))

    assert stuck({"a": several(1), "b": played(GOOD)}, RANDOM, STEPS) == {}
    assert "a" in stuck({"a": several(2), "b": played(GOOD)}, RANDOM, STEPS)


def compared(starts, whole, stuck=()):
    """The advice, and that of the whole, of policies of such regret at starts and in one play of the whole."""
    g = generator(0)
    noise = 0.02 * torch.rand(K, 8, generator=g, dtype=torch.float64)
    tables = [
        advise(
            {name: level + noise[:, n] for n, (name, level) in enumerate(regret.items())},
            torch.ones(K).double(),
        )
        for regret in (starts, whole)
    ]
    return with_whole_run(tables[0], tables[1], stuck), tables[1]


LOW, HIGH = 0.3, 0.6
CASES = [  # at starts, in one play of the whole, stuck there: verdict, taken
    ({"a": LOW, "auto": LOW, "b": LOW}, {"a": LOW, "auto": LOW, "b": LOW}, (), ("tie", "auto")),
    ({"a": LOW, "auto": LOW, "b": LOW}, {"a": LOW, "auto": LOW, "b": LOW}, ("auto", "a"), ("tie", "b")),
    ({"a": LOW, "auto": LOW, "b": LOW}, {"a": HIGH, "auto": HIGH, "b": LOW}, (), ("tie", "b")),
    ({"a": LOW, "b": LOW, "c": LOW}, {"a": HIGH, "b": LOW, "c": HIGH}, (), ("tie", "b")),
    ({"a": LOW, "b": LOW}, {"a": LOW, "b": LOW}, ("a", "b"), ("tie", None)),
    ({"a": LOW, "auto": HIGH}, {"a": LOW, "auto": LOW}, (), ("sure", "a")),
    ({"a": LOW, "auto": HIGH}, {"a": LOW, "auto": LOW}, ("a",), ("split", "auto")),
    ({"a": LOW, "b": HIGH, "auto": HIGH}, {"a": HIGH, "b": LOW, "auto": HIGH}, (), ("split", "b")),
    ({"a": LOW, "b": HIGH, "auto": HIGH}, {"a": HIGH, "b": LOW, "auto": LOW}, (), ("split", "auto")),
    ({"a": 1.0, "b": 1.0}, {"a": LOW, "b": HIGH}, (), ("late", "a")),
    ({"a": 1.0, "b": 1.0}, {"a": LOW, "b": HIGH}, ("a", "b"), ("late", None)),
    ({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, (), ("random", None)),
]


@pytest.mark.parametrize(("starts", "whole", "bad", "expected"), CASES)
def test_the_record_played_once_has_a_veto(starts, whole, bad, expected):
    found, _ = compared(starts, whole, bad)
    assert (found.verdict, found.taken) == expected


DISAGREE = (
    "Short plays and the long one disagree: over 10 plays from different starts of the record, 40 rows each, "
    "a lost least"
)
SAID = [
    (
        ({"a": LOW, "auto": HIGH}, {"a": LOW, "auto": LOW}, {"a": Stuck(1, 31, 330, "auto")}),
        f"{DISAGREE}, .*; but played once through all 400 rows it was stuck.\n"
        "Do not take a: played once .*, it pulled only 'y' from step 31 to 330, and over 40 of these steps.*\n"
        "Take auto, which needs the least prior knowledge.",
    ),
    (
        ({"a": LOW, "b": HIGH}, {"a": HIGH, "b": LOW}, {}),
        f"{DISAGREE}, .*; but played once through all 400 rows it is surely not the best: b lost less.\n"
        "Take b, which lost least, played once through all 400 rows.",
    ),
    (
        ({"a": 1.0, "b": 1.0}, {"a": LOW, "b": HIGH}, {}),
        "Only the long play decides: over .*, 40 rows each, no policy is surely better than drawing arms at random; "
        "played once through all 400 rows, a lost 31 % of what drawing arms at random loses.\n"
        "Take a, which lost least, played once through all 400 rows.",
    ),
]


@pytest.mark.parametrize(("case", "said"), SAID)
def test_where_short_plays_and_the_long_one_disagree_both_are_told(case, said):
    found, record = compared(*case)
    lines = advice_of_record(found, record, case[2], STEPS, T, ["x", "y"])
    assert re.fullmatch(said, "\n".join(lines))

"""What a population learns, and what it proposes."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from bandits_torch.integrations.population import (
    Population,
    Range,
    Ranges,
    _acquisition,
    _draws,
    levelled,
    mixture_of_gains,
)
from tests.reference import plain_gains


def data(n=9, d=2):
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    return X, torch.arange(n).double() // 3, torch.randn(n, generator=generator, dtype=torch.float64)


def test_levelled_gains_are_normal_scores_among_those_of_their_time():
    time = torch.tensor([0, 0, 1, 1, 2, 3, 3.0]).double()
    gain = torch.tensor([9, 8, 1, 1, -math.inf, 0.1, 0.2])
    expected = plain_gains.normal_scores(time.tolist(), gain.tolist())
    assert torch.allclose(levelled(time, gain.double()), torch.tensor(expected))


def test_levelled_gains_do_not_see_a_unit_nor_how_far_a_broken_run_fell():
    _, time, gain = data()
    assert torch.equal(levelled(time, gain), levelled(time, 1e6 * gain - 3))
    worst, worse = gain.clone(), gain.clone()
    worst[4], worse[4] = -math.inf, gain.min() - 1.0
    assert torch.equal(levelled(time, worst), levelled(time, worse))


@pytest.mark.parametrize("with_pending", [False, True])
def test_the_mixture_is_the_weighted_mixture_of_processes_written_out(with_pending):
    X, time, y = data()
    place = torch.tensor([[0.3, 0.6]]).double()
    pending = [([0.2, 0.7], 2.5), ([0.9, 0.1], 3.0)] if with_pending else []
    told = torch.tensor([[*x, t] for x, t in pending]).double().unsqueeze(0) if pending else None
    model = mixture_of_gains(X, time, y, told, seed=3)
    theta = _draws(2, 3)
    each = [
        plain_gains.posterior(X.tolist(), time.tolist(), y.numpy(), place[0].tolist(), 3.5, row, ())
        for row in theta.tolist()
    ]
    mean, variance, evidence = np.array(each).T
    kept = np.argsort(-evidence)[:6]
    w = np.exp(evidence[kept] - evidence[kept].max())
    w /= w.sum()
    m = w @ mean[kept]
    v = w @ (variance[kept] + (mean[kept] - m) ** 2)
    at = torch.tensor([[*place[0].tolist(), 3.5]]).double()[:, None, None]
    posterior = model.posterior(at)
    assert float(posterior.mean) == pytest.approx(m, rel=1e-6)
    if with_pending:
        assert float(posterior.variance) < v
    else:
        assert float(posterior.variance) == pytest.approx(v, rel=1e-6)


def test_one_process_alone_counts_pending_stretches_exactly(monkeypatch):
    X, time, y = data()
    monkeypatch.setattr("bandits_torch.integrations.population._DRAWN", 1)
    monkeypatch.setattr("bandits_torch.integrations.population._KEPT", 1)
    pending = [([0.2, 0.7], 2.5), ([0.35, 0.5], 3.0)]
    told = torch.tensor([[*x, t] for x, t in pending]).double().unsqueeze(0)
    model = mixture_of_gains(X, time, y, told)
    (theta,) = _draws(2, 0).tolist()
    mean, variance, _ = plain_gains.posterior(
        X.tolist(), time.tolist(), y.numpy(), [0.3, 0.6], 3.5, theta, pending
    )
    found = model.posterior(torch.tensor([[[[0.3, 0.6, 3.5]]]]).double())
    assert (float(found.mean), float(found.variance)) == pytest.approx((mean, variance), rel=1e-6)


def one_number(width=1.0, seed=0):
    return Population(Ranges({"x": Range(0.0, 10.0)}), 5.0, width=width, seed=seed)


def trained(population, optimum, rounds=12, members=4, noise=0.1):
    """Members whose gain falls with the distance of x from ``optimum(round)``, one moved to the best in each round."""
    draw = np.random.default_rng(0)
    names, score = [f"m{k}" for k in range(members)], dict.fromkeys([f"m{k}" for k in range(members)], 0.0)
    x = {name: population.opening()["x"] for name in names}
    for name in names:
        population.meet(name, {"x": x[name]}, 0.0, 0.0)
    chosen = []
    for k in range(rounds):
        for name in names:
            score[name] += 1 - 0.3 * abs(x[name] - optimum(k)) + noise * draw.normal()
            population.report(name, {"x": x[name]}, 5.0 * (k + 1), score[name])
        worst, best = min(names, key=score.get), max(names, key=score.get)
        x[worst], score[worst] = population.propose(worst, best)["x"], score[best]
        population.move(worst, best, {"x": x[worst]})
        chosen.append(x[worst])
    return chosen


def test_proposals_find_the_best_value_and_follow_it():
    chosen = trained(one_number(width=0.5), lambda k: 3.0 if k < 20 else 8.0, rounds=45)
    assert np.median(np.abs(np.array(chosen[12:20]) - 3)) < 1
    assert np.median(np.abs(np.array(chosen[35:]) - 8)) < 1.5


def test_integers_and_categories_are_found_and_are_such():
    numbers = Range(1, 64, log=True, step=1.0, both=True)
    population = Population(Ranges({"n": numbers, "kind": Range(choices=3)}), 1.0)
    names = ["m0", "m1", "m2", "m3"]
    values, score = {name: {"n": 8.0, "kind": 0.0} for name in names}, dict.fromkeys(names, 0.0)
    for name in names:
        population.meet(name, values[name], 0.0, 0.0)
    for k in range(14):
        for name, own in values.items():
            score[name] += [0.0, 1.0, 0.3][int(own["kind"])] - abs(own["n"] - 30) / 60
            population.report(name, own, k + 1.0, score[name])
        worst, best = min(names, key=score.get), max(names, key=score.get)
        chosen = population.propose(worst, best)
        assert chosen["n"] in range(1, 65)
        assert chosen["kind"] in (0, 1, 2)
        values[worst], score[worst] = chosen, score[best]
        population.move(worst, best, chosen)
    latest = [own for own in values.values() if own["kind"] == 1 and abs(own["n"] - 30) <= 10]
    assert len(latest) >= 2


def told(population):
    for k, x in enumerate([1.0, 4.0, 9.0, 6.0]):
        population.meet(f"m{k}", {"x": x}, 0.0, 0.0)
        population.report(f"m{k}", {"x": x}, 5.0, -abs(x - 5.0))
    return population


def test_what_is_maximised_is_the_bound_of_the_processes_about_the_prior_mean():
    population = told(one_number(width=0.7, seed=2))
    columns, time, score = zip(*(stretch for stretch, _ in population.gains), strict=True)
    rates = [rate for _, rate in population.gains]
    others = [population.now[name] for name in ("m0", "m2", "m3")]
    scored_at = _acquisition(population, population.space, population.now["m1"], others)
    X = torch.tensor([[0.0], [0.3], [1.0]]).double()
    _, found = scored_at(X)

    def off(x):
        return (2 * x - 1) ** 2

    def scaled(scores):
        low, high = np.quantile(score, [0.05, 0.95])
        return np.clip((np.array(scores) - low) / (high - low or 1.0), -0.5, 1.5)

    inputs = torch.tensor([[c[0], s] for c, s in zip(columns, scaled(score), strict=True)]).double()
    then = torch.tensor(time).double() / 5.0
    target = plain_gains.normal_scores(then.tolist(), rates) + [off(c[0]) for c in columns]
    pending = [[o.columns[0], scaled([o.score])[0], o.time / 5.0] for o in others]
    model = mixture_of_gains(inputs, then, torch.tensor(target), torch.tensor([pending]).double(), seed=2)
    here = population.now["m1"]
    for x, value in zip(X[:, 0].tolist(), found.tolist(), strict=True):
        at = torch.tensor([[x, scaled([here.score])[0], here.time / 5.0]]).double()[:, None, None]
        posterior = model.posterior(at)
        bound = float(posterior.mean) + 0.7 * float(posterior.variance) ** 0.5
        assert value == pytest.approx(bound - off(x), rel=1e-6)


def test_what_others_are_training_is_not_proposed_again():
    alone = told(one_number())
    for k in range(4):
        if k != 1:
            alone.leave(f"m{k}")
    first = alone.propose("new", "m1")["x"]
    crowded = told(one_number())
    for k in range(3):
        crowded.move(f"twin{k}", "m1", {"x": first})
    for k in (0, 2, 3):
        crowded.leave(f"m{k}")
    assert abs(crowded.propose("new", "m1")["x"] - first) > 0.3


def test_the_first_report_begins_the_first_gain_and_time_that_does_not_pass_gives_none():
    population = one_number()
    population.meet("a", {"x": 1.0}, 1.0, 10.0)
    population.meet("a", {"x": 1.0}, 2.0, 99.0)
    population.report("a", {"x": 1.0}, 5.0, 18.0)
    ((stretch, rate),) = population.gains
    assert (stretch.time, stretch.score, rate) == (1.0, 10.0, 2.0)
    population.report("b", {"x": 1.0}, 5.0, 18.0)  # never met
    for _ in range(2):
        population.report("b", {"x": 2.0}, 10.0, 8.0)
    assert [rate for _, rate in population.gains] == [2.0, -2.0]


def test_who_takes_over_weights_gains_from_where_the_other_was():
    population = told(one_number())
    population.move("m0", "m1", {"x": 7.0})
    population.report("m0", {"x": 7.0}, 10.0, 4.0)
    stretch, rate = population.gains[-1]
    assert (stretch.score, rate) == (-1.0, 1.0)
    assert stretch.columns == [0.7]


@pytest.mark.parametrize("broken", [math.nan, -math.inf, math.inf])
def test_a_run_that_breaks_is_the_worst_gain_and_begins_anew(broken):
    population = told(one_number())
    population.report("m2", {"x": 9.0}, 10.0, broken)
    assert population.gains[-1][1] == -math.inf
    assert "m2" not in population.now
    population.report("m2", {"x": 9.0}, 15.0, 3.0)
    assert len(population.gains) == 5
    assert 0 <= population.propose("m2", "m1")["x"] <= 10


def test_scores_beyond_float32_are_no_trouble():
    proposed = []
    for unit, level in ((1.0, 0.0), (1.0, 2.0**33), (1e40, 0.0)):
        population = one_number()
        for k in range(6):
            for place, name in enumerate("abc"):
                population.report(name, {"x": 3.0 * place + 1}, 5.0 * k, unit * k * place + level)
        proposed.append(population.propose("a", "b")["x"])
    assert proposed[1] == pytest.approx(proposed[0], abs=1e-6)
    assert 0 <= proposed[2] <= 10


def test_equal_scores_throughout_are_no_trouble():
    population = one_number()
    for k in range(6):
        for name in "abc":
            population.report(name, {"x": 5.0}, 5.0 * k, 1.0)
    assert 0 <= population.propose("a", "b")["x"] <= 10


def test_until_gains_are_known_proposals_fill_the_cube():
    population = one_number()
    population.report("a", {"x": 5.0}, 5.0, 1.0)
    values = [population.propose("b", "a")["x"] for _ in range(8)]
    assert len({int(v // 2.5) for v in values}) == 4


FIRST = """
import sys

from bandits_torch.integrations.population import Population, Range, Ranges

population = Population(Ranges({"lr": Range(1e-4, 1.0, log=True, both=True)}), 1.0)
for time in range(4):
    for member in "abc":
        population.report(member, {"lr": 0.01}, float(time), time)
loaded = set(sys.modules)
population.propose("a", "b")
print(sorted(set(sys.modules) - loaded))
"""


@pytest.mark.slow
def test_the_first_proposal_loads_nothing():
    """torch.broadcast_shapes loads sympy, which takes longer than many proposals."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_memory_is_bounded():
    population = one_number()
    for k in range(150):
        population.report("a", {"x": 5.0}, 5.0 * k, float(k))
    assert len(population.gains) == 100
    assert population.gains[-1][0].time == 5.0 * 148


def test_a_population_goes_on_from_its_state_through_json():
    one, other = told(one_number(seed=4)), one_number(seed=5)
    one.report("m0", {"x": 1.0}, 10.0, math.nan)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.propose("m0", "m1") == one.propose("m0", "m1")
    with pytest.raises(ValueError, match="1 columns"):
        Population(Ranges({"x": Range(0.0, 1.0)}), 1.0).load_state_dict(
            {**one.state_dict(), "gains": [[[0.1, 0.2], 0.0, 0.0, 1.0]]}
        )


def test_choices_do_not_depend_on_the_unit_of_scores_or_time_or_on_when_a_clock_began():
    def played(unit=1.0, level=0.0, minute=60.0, start=0.0):
        population = Population(Ranges({"x": Range(0.0, 10.0)}), minute, seed=1)
        for k, x in enumerate([1.0, 4.0, 9.0, 6.0]):
            for step in range(3):
                score = unit * (-abs(x - 5.0) * step + 0.1 * k) + level
                time = start + minute * (step + 7.0 / 60.0 * k)
                population.report(f"m{k}", {"x": x}, time, score)
        return population.propose("m0", "m1")["x"]

    for other in ({"unit": 2.0**20, "level": 2.0**10, "minute": 3600.0}, {"start": 1.7e9}):
        assert played(**other) == pytest.approx(played(), abs=1e-6)


@pytest.mark.parametrize(
    ("argument", "bad"), [("space", {}), ("interval", 0.0), ("width", -1.0), ("seed", -1)]
)
def test_bad_arguments_are_refused_by_name(argument, bad):
    good = {"space": Ranges({"x": Range(0.0, 1.0)}), "interval": 1.0, "width": 1.0, "seed": 0}
    with pytest.raises(ValueError, match=argument):
        Population(**{**good, argument: bad})

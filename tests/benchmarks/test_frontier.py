"""What can be had: the bound's arithmetic, its tightness, and that no policy was ever below it."""

import numpy as np
import pandas as pd
import pytest
import torch

from bandits_torch.experiments.engines import Block
from benchmarks.auto import frontier
from benchmarks.auto.environments import AFTER, SHAPES, Riser
from benchmarks.auto.frontier import Hypotheses, bound, least, needed, phi

RESULTS = frontier.TABLE.parent


@pytest.mark.parametrize("looks", [0.0, 0.0005, 1 / 500, 1 / 300, 0.02, 0.25])
def test_looks_at_regular_intervals_attain_the_bound_and_looks_at_random_do_not(looks):
    value, slope = phi(np.array([looks]))
    k = np.arange(1, AFTER + 1)
    regular = np.maximum(1 - k * looks, 0).sum()  # the first look falls on each step of an interval alike
    assert regular - 0.5 <= value[0] + 1e-9
    assert value[0] <= regular + 1e-9
    assert ((1 - looks) ** k).sum() >= regular - 1e-9
    step = 1e-7
    assert slope[0] == pytest.approx((phi(np.array([looks + step]))[0] - value)[0] / step, rel=1e-2, abs=5)


@pytest.mark.parametrize("price", [0.5, 3.0, 20.0])
def test_of_arms_that_are_alike_the_product_of_loss_and_cost_is_m_d_g_over_2(price):
    m, d, g = 7, 3_000.0, 2_500.0
    among = Hypotheses(np.eye(m + 1, dtype=bool)[1:], np.full(m, d / m), np.array([0.0] + [g] * m))
    cost, loss = least(among, price)
    assert (loss + d / 2) * cost / frontier.STEPS == pytest.approx(m * d * g / 2, rel=1e-3)
    n = np.sqrt(d / (2 * price * frontier.STEPS * m * g))  # where the derivative is 0
    assert cost == pytest.approx(frontier.STEPS * m * g * n, rel=1e-2)


def test_of_arms_that_differ_each_is_looked_at_by_the_root_of_what_it_may_cost_over_its_gap():
    d, g = np.array([1.0, 4.0, 2.0]), np.array([0.5, 1.0, 3.0])
    cost, loss = least(Hypotheses(np.eye(3, dtype=bool), d, g), 2.0)
    product = np.sqrt(d * g).sum() ** 2 / 2
    assert (loss + d.sum() / 2) * cost / frontier.STEPS == pytest.approx(product, rel=1e-3)


def test_no_choice_of_looks_is_below_the_bound():
    rng, among = (
        np.random.default_rng(0),
        frontier.unrelated(np.array([13.0, 11.0, 9.5, 10.0, 8.0, 9.0, 10.5, 9.9]) * 1e3),
    )
    points = frontier.frontier([among])
    for n in rng.exponential(rng.choice([0.002, 0.01, 0.05], (50, 1)), (50, 8)):
        paid = frontier.STEPS * among.gap @ n
        lost = among.lost @ phi(among.shows @ n)[0]
        assert bound(points, paid) <= lost + 1e-6 * abs(lost)
    for loss in (1e5, 3e5, 6e5):
        assert bound(points, needed(points, loss)) == pytest.approx(loss, rel=1e-9)
        assert needed(points, loss) < needed(points, 0.5 * loss)


def test_hypotheses_are_what_may_rise():
    block, shape = Block(3, 1, 0, frontier.SEED), "one-of-8 after 500"
    rise = Riser(shape).rise(block)
    for s, among in enumerate(frontier.of_shape("one-of-8")[:3]):
        arm = int(rise.after[s].argmax())
        assert among.shows[:, arm].sum() == 1
        assert among.lost.sum() == pytest.approx(float(rise.after[s].max() - rise.before[s].max()))
        torch.testing.assert_close(torch.from_numpy(among.gap), rise.before[s].max() - rise.before[s])
    thirty = frontier.of_shape("some-of-30")[0]
    assert len(thirty.shows) == 29 + 29 * 28 / 2
    assert thirty.lost.sum() == pytest.approx(3_000.0)  # a step while none of the three is found
    rise = Riser("region-of-100 after 500").rise(block)
    for s, among in enumerate(frontier.of_shape("region-of-100")[:3]):
        changed = (rise.after[s] - rise.before[s]).abs().numpy() >= frontier.SEEN
        assert (among.shows == changed).all(-1).any()  # the region that rose is one of them
    problem = Riser("domain-1 after 500")(block)
    among = frontier.of_shape("domain-1")[0]
    at = float(problem.second[0, 0]) * 60
    assert among.shows[:, int(at)].any()
    assert among.lost.sum() >= 1.0


def test_no_policy_that_was_played_lost_less_than_the_bound_at_what_it_paid():
    table, totals = pd.read_csv(frontier.TABLE), pd.read_csv(RESULTS / "totals.csv")
    for shape in SHAPES:
        points = table[(table["shape"] == shape) & (table["policy"] == frontier.ANY)]
        played = table[(table["shape"] == shape) & (table["policy"] != frontier.ANY)]
        assert len(played) == len(frontier.PLAYED)
        for _, row in played.iterrows():
            for quiet in (500, 2_000):
                here = (totals["environment"] == f"{shape} after {quiet}") & (
                    totals["policy"] == row["policy"]
                )
                regret = totals[here]["regret"]
                error = regret.std() / len(regret) ** 0.5
                assert regret.empty or regret.mean() + 3 * error > bound(points, row["paid"])

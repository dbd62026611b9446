"""``AskTell.auto`` over a domain: units, files and kills, replicates, rewards that come late."""

import math
import multiprocessing
import os
import signal

import pytest
import torch

from bandits_torch import AskTell, load_policy, save_policy
from bandits_torch.domain import Domain

BOX = Domain(torch.tensor([[10.0, 0.1], [50.0, 0.9]], dtype=torch.float64))
QUICK = {"initial": 4, "num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 15}}


def asked(**options):
    return AskTell.auto(BOX, search=QUICK, **options)


def income(arm, time, replicate=0):
    """Largest at a price that rises with time; a number for a point (d,)."""
    price, share = float(arm[0]) / 40, float(arm[1])
    target = 0.4 + 0.3 * math.sin(time / 15)
    noise = 0.02 * math.sin(91.0 * time + 17 * replicate)
    return 1 - 4 * (price - target) ** 2 - (share - 0.5) ** 2 + noise


def play(live, first, last, offset=0.0, factor=1.0):
    points = []
    for step in range(first, last):
        question = live.ask(float(step))
        points.append(question.arm)
        rewards = [income(arm, step, k) for k, arm in enumerate(question.arm)]
        assert live.tell(question.id, offset + factor * torch.tensor(rewards, dtype=torch.float64))
    return torch.stack(points)


@pytest.mark.parametrize(("offset", "factor"), [(5000.0, 1000.0), (-3.0, 1e-6)])
def test_the_unit_and_the_level_of_rewards_do_not_matter(offset, factor):
    side = BOX.bounds[1] - BOX.bounds[0]
    plain, other = play(asked(), 0, 16), play(asked(), 0, 16, offset, factor)
    assert ((plain - other).abs() / side).max() < 1e-3


def test_the_same_seed_asks_the_same_and_another_asks_other_points():
    first, again, other = play(asked(seed=3), 0, 8), play(asked(seed=3), 0, 8), play(asked(seed=4), 0, 8)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_a_replicate_of_three_asks_what_it_asks_alone():
    together = play(asked(replicates=3), 0, 14)
    side = BOX.bounds[1] - BOX.bounds[0]
    for k in range(3):
        live, apart = asked(), []
        for step in range(14):
            question = live.ask(float(step))
            apart.append((question.arm[0] - together[step, k]).abs() / side)
            live.tell(question.id, income(question.arm[0], step, k))
        assert torch.stack(apart).max() < 1e-4


def _serve(path, steps):
    """Ask, tell and save until the process is killed, after so many steps and one more question."""
    live = asked()
    if os.path.exists(path):
        load_policy(path, live)
    for _ in range(steps):
        step = int(live.policy._steps)
        question = live.ask(float(step))
        live.tell(question.id, income(question.arm[0], step))
        save_policy(path, live)
    live.ask(1e3)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_service_that_is_killed_and_comes_back_goes_on_bit_for_bit(tmp_path):
    path = str(tmp_path / "live")
    for steps in (3, 1, 5):
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(path, steps))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    back, never = asked(), asked()
    load_policy(path, back)
    play(never, 0, 9)
    assert torch.equal(play(back, 9, 13), play(never, 9, 13))


def test_rewards_may_come_late_in_any_order_and_each_counts_once():
    live = asked()
    play(live, 0, 6)
    open_ones = [live.ask(6.0 + 0.5 * i) for i in range(3)]
    assert live.open == tuple(question.id for question in open_ones)
    for question in (open_ones[2], open_ones[0], open_ones[1]):
        assert live.tell(question.id, income(question.arm[0], question.time))
        assert not live.tell(question.id, 0.0)
    members = live.policy.members
    assert int(members.num_held.max()) == 9
    last = torch.cat([open_ones[i].arm for i in (2, 0, 1)])
    torch.testing.assert_close(members.inputs[0, -3:], members.unit_cube(last))
    assert (members.times.diff() >= 0).all()  # what is late counts as of now
    assert BOX.contains(live.ask(9.0).arm).all()

"""MASTER: schedule, players and tests against the text's own bookkeeping."""

import math
import pickle

import pytest
import torch

from bandits_torch import History, Policy, recipes, run
from bandits_torch.policies import Choice, LearnedHyperparameters, Observation
from bandits_torch.policies.detection import Master, MasterThresholds, simulated_rate
from bandits_torch.problems import SwitchingFunctions
from bandits_torch.theory import MaximumGain
from tests.reference.plain_master import PlainMaster


class Optimist(Policy):
    replicates, num_arms, learns_where = 1, 3, True

    def __init__(self) -> None:
        self.learnt = 0

    def choose(self, time, available=None):
        promise = torch.tensor([1 / (1 + self.learnt)], dtype=torch.float64)
        return Choice(torch.tensor([self.learnt % 3]), {"index": promise})

    def learn(self, observation):
        self.learnt += 1

    def learn_where(self, observation, where):
        self.learnt += int(where)

    def reset(self, where=None):
        self.learnt = 0

    def state_dict(self):
        return {"learnt": self.learnt}

    def load_state_dict(self, state):
        self.learnt = state["learnt"]


def rho(t: int) -> float:
    return 1 / math.sqrt(t)


def master(thresholds: MasterThresholds | None = None, **options) -> Master:
    limits = thresholds or MasterThresholds(1.0, rise=2.0, fall=2.0)
    return Master(Optimist, rho, limits, 3, **options)


@pytest.mark.parametrize("rise", [0.5, 2.0])
@pytest.mark.parametrize("fall", [2.0, 1e9])
@pytest.mark.parametrize("jump", [0.0, 3.0, -3.0])
def test_players_and_restarts_are_those_of_the_text(jump: float, rise: float, fall: float) -> None:
    limits = MasterThresholds(1.0, rise=rise, fall=fall)
    made, slow = master(thresholds=limits), PlainMaster(rho, limits)
    block, order, copies, optimism, rewards, fired = made._blocks[0], 0, [], [], [], []
    noise = torch.Generator().manual_seed(0)
    for t in range(1, 300):
        seen = {(c.order, c.start) for c in block.copies}
        copies += sorted(seen - set(copies))
        assert block.copies[-1].order == slow.player(copies, len(rewards))
        choice = made.choose(t)
        reward = 0.3 * torch.randn(1, generator=noise, dtype=torch.float64) + (jump if t > 150 else 0.0)
        made.learn(Observation(float(t), choice.arm, reward, choice.why))
        optimism.append(float(choice.why["index"]))
        rewards.append(float(reward))
        restart = slow.block(order, copies, optimism, rewards) is not None
        assert restart == bool(made.trace()["detected"][0])
        if restart or len(rewards) == 2**order:
            order = 0 if restart else order + 1
            copies, optimism, rewards = [], [], []
            fired += [t] if restart else []
        assert block.order == order
    assert fired or jump == 0 or fall > 2


def test_copies_start_at_multiples_of_their_length_with_the_stated_probability() -> None:
    started, slots = 0, 0
    for seed in range(60):
        made = master(seed=seed, thresholds=MasterThresholds(1e9))
        for t in range(1, 63):  # blocks 0, ..., 4 and part of 5
            block = made._blocks[0]
            for copy in block.copies:
                assert copy.start % 2**copy.order == 0
                assert copy.end - copy.start == 2**copy.order
            if block.order == 4 and block.clock % 4 == 0:
                slots += 1
                started += any(c.order == 2 and c.start == block.clock for c in block.copies)
            choice = made.choose(t)
            made.learn(Observation(float(t), choice.arm, torch.zeros(1, dtype=torch.float64), choice.why))
    expected = rho(16) / rho(4)
    assert abs(started / slots - expected) < 4 * math.sqrt(expected * (1 - expected) / slots)


def test_only_the_player_learns() -> None:
    made = master(thresholds=MasterThresholds(1e9))
    for t in range(1, 40):
        block = made._blocks[0]
        copies, before = list(block.copies), [base.learnt for base in made._bases]
        choice = made.choose(t)
        made.learn(Observation(float(t), choice.arm, torch.zeros(1, dtype=torch.float64), choice.why))
        for height, copy in enumerate(copies):
            if any(copy is active for active in block.copies):
                assert made._bases[height].learnt == before[height] + (copy is copies[-1])


@pytest.mark.parametrize("switches", [(), (0.7,)])
def test_calibrated_it_finds_what_changes_alone_and_where_others_restart_at_other_times(switches) -> None:
    def played(replicates: int, first: int) -> History:
        which = {"replicates": replicates, "first_replicate": first}
        settings = {"num_arms": 15, "lengthscale": 0.3, "switches": switches, "change": "flip"}
        of = SwitchingFunctions(horizon=500, **settings, **which)
        policy = recipes.build("master_gp_ucb", of, horizon=500, width=1.5, **which)
        return run(policy, of, 500, first_replicate=first)

    together, alone = played(2, 0), played(1, 1)
    first, second = (detected.nonzero().flatten().tolist() for detected in together.trace["detected"])
    assert len(first) == len(second) == len(switches)
    assert all(350 <= step < 450 for step in first + second)
    assert first != second or not switches
    for name, values in alone.trace.items():
        assert torch.equal(values.reshape(-1), together.trace[name][1])
    assert torch.equal(alone.arms[0], together.arms[1])


def test_bases_that_cannot_learn_in_some_replicates_and_thresholds_of_nothing_are_refused() -> None:
    about = 3, torch.eye(3), 0.1
    for match, call in (
        ("base must be .* of 2 replicates over 3 arms", lambda base: Master(lambda: 3, *base, replicates=2)),
        *(
            ("base must be", lambda base, one=one: Master(lambda: one, *base, replicates=2))
            for one in (
                recipes.ucb1(3, replicates=2),
                recipes.gp_ucb(*about, replicates=1),
                recipes.gp_ucb(4, torch.eye(4), 0.1, replicates=2),
                recipes.gp_ts(*about, replicates=2),  # it draws
                recipes.et_gp_ucb(*about, replicates=2),  # it forgets
                LearnedHyperparameters(recipes.gp_ucb(*about, replicates=2)),  # it would learn none
            )
        ),
        ("horizon must be", lambda _: MasterThresholds.theory(0, 0.1)),
        ("delta must be", lambda _: MasterThresholds.theory(9, 0.0)),
        ("delta must be", lambda _: MasterThresholds.theory(9, 2.0)),
        (
            "noise_scale must be",
            lambda _: recipes.master_gp_ucb(3, torch.eye(3), 0.1, horizon=9, noise_scale=torch.ones(2)),
        ),
    ):
        with pytest.raises(ValueError, match=match):
            call((rho, MasterThresholds(1.0), 3))


def test_theory_thresholds_cannot_fire_at_practical_horizons() -> None:
    limits = MasterThresholds.theory(10_000)
    assert limits.inflation == pytest.approx(6 * (math.log2(1e4) + 1) * math.log(1e5))
    # rho(t) >= 1/sqrt(t), so the smallest threshold of either test is above any difference of rewards in [-1, 1].
    assert limits.fall * limits.inflation / math.sqrt(10_000) > 2


def test_simulated_rate_is_the_largest_mean_excess_from_t_on() -> None:
    class TwoOptimists(Optimist):
        replicates = 2

        def choose(self, time, available=None):
            why = {"index": torch.tensor([1.0, 2.0], dtype=torch.float64) / (1 + self.learnt)}
            return Choice(torch.tensor([0, 2]), why)

    functions = torch.tensor([[0.5, 9.0, 9.0], [9.0, 9.0, 0.25]], dtype=torch.float64)
    noise = torch.tensor([[0.0, 0.0], [-3.0, 0.0], [0.0, -0.25]], dtype=torch.float64)
    # f~ - y: 1/2, 1/2 - 1/2 + 3, 1/3 - 1/2 and 7/4, 1 - 1/4, 2/3; their means 1/2, 7/4, 10/9 and 7/4, 5/4, 19/18.
    rate = simulated_rate(TwoOptimists(), functions, noise)
    expected = torch.tensor([7 / 4, 7 / 4, (3.5 - 1 / 6) / 3], dtype=torch.float64)
    torch.testing.assert_close(rate, expected)


def test_only_copies_that_live_long_enough_to_learn_are_started() -> None:
    made = master(thresholds=MasterThresholds(1e9, learnt=0.5))  # rho(t) = t^{-1/2} <= 1/2 from t = 4 on
    seen = set()
    for t in range(1, 256):
        seen |= {(c.order, made._blocks[0].order) for c in made._blocks[0].copies}
        choice = made.choose(t)
        made.learn(Observation(float(t), choice.arm, torch.zeros(1, dtype=torch.float64), choice.why))
    assert {order for order, block in seen if order < block} == set(range(2, 7))


def test_theory_rate_is_lemma_e_3() -> None:
    """rho(t) = width_t sqrt(gamma_{t-1} ln(T/delta) / t), gamma at least 1; no test fires and the run goes on."""
    of = SwitchingFunctions(num_arms=8, horizon=40, replicates=1)
    policy = recipes.build("master_gp_ucb", of, replicates=1, horizon=40, thresholds="theory", width=2.0)
    gain = MaximumGain(of.knowledge.kernel(of.arms).to_dense(), 0.01, 40, upper_bound=False)
    for t in (1, 2, 10, 40, 50):
        n = min(t, 40)
        gamma = max(1.0, float(gain(n - 1, policy._bases[0].model)))
        assert policy.rho(t) == pytest.approx(2 * math.sqrt(gamma * math.log(40 / 0.1) / n))
    assert not run(policy, of, 40).trace["restarts"].any()
    assert pickle.loads(pickle.dumps(policy)).rho(10) == policy.rho(10)

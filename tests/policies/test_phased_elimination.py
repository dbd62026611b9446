"""R-PERP as written down: plans without rewards, random order, elimination by the batch alone, restarts."""

import pytest
import torch

from bandits_torch import ArmGP, recipes
from bandits_torch.policies import Observation
from bandits_torch.policies.batches import PhasedElimination, batch_sizes
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import ConstantWidth
from tests.reference.plain_perp import Perp

N, S, NOISE, WIDTH, H = 9, 3, 0.05, 1.0, 40
X = torch.linspace(0, 1, N, dtype=torch.float64)
K = torch.exp(-((X[:, None] - X) ** 2) / (2 * 0.13**2)) + torch.diag(0.01 * X**2)


def perp(replicates=S, first=0, interval=H):
    model = ArmGP(N, K, NOISE, batch_shape=(replicates,))
    return PhasedElimination(model, ConstantWidth(WIDTH), interval, seed=5, first_replicate=first)


def truth(seed=3):
    return torch.randn(S, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask(step):
    available = torch.ones(S, N, dtype=torch.bool)
    if step % 3 == 0:
        available[:, : N - 2] = False
    return available


def test_equals_the_algorithm_word_for_word():
    policy, f, dropped = perp(), truth(), 0
    slow = []
    for s in range(S):
        streams = ReplicateStreams(5, 1, purpose="policy", first=s)
        slow.append(Perp(K, NOISE, WIDTH, H, lambda n, streams=streams: streams.uniform(n)[0].numpy()))
    for step in range(1, 2 * H + 8):
        choice = policy.choose(float(step), mask(step))
        reward = f[torch.arange(S), choice.arm]
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
        for s, run in enumerate(slow):
            assert int(choice.arm[s]) == run.choose(mask(step)[s].tolist())
            run.learn(int(choice.arm[s]), float(reward[s]))
            assert int(policy.trace()["surviving"][s]) == len(run.left)
        dropped = max(dropped, N - int(policy.trace()["surviving"].min()))
    assert dropped > 3
    assert policy.restarts.tolist() == [2] * S


@pytest.mark.parametrize("interval", [1, 2, 7, 100, 5000])
def test_batches_fill_an_interval_and_grow(interval):
    sizes = batch_sizes(interval)
    assert sum(sizes) == interval
    assert sizes[:-1] == sorted(sizes[:-1])
    assert len(sizes) < 3 + interval**0.5


def test_interval_follows_from_variation_and_information():
    make = lambda **options: recipes.r_perp(X.unsqueeze(-1), K, NOISE, horizon=400, **options)  # noqa: E731
    fast, slow = (make(variation_budget=v).interval for v in (40.0, 2.0))
    assert fast < slow <= 400
    assert (slow / fast) == pytest.approx(20 ** (2 / 3), rel=0.1) or slow == 400
    assert make(variation_budget=0.0).interval == 400
    assert make(interval=17).interval == 17
    assert float(make(variation_budget=0.3).width.drift) == pytest.approx(0.3)
    assert float(make(rkhs_bound=2.0).width.drift) == pytest.approx(4.0 * 1.01**0.5)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_interval_does_not_depend_on_the_unit_of_rewards(unit):
    def interval(unit, **options):
        made = recipes.r_perp(X.unsqueeze(-1), unit**2 * K, unit**2 * NOISE, horizon=400, **options)
        return made.interval

    assert interval(unit) == interval(1.0) < 400
    assert (
        interval(unit, variation_budget=20.0 * unit) == interval(1.0, variation_budget=20.0) < interval(1.0)
    )


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
def test_outside_the_plan_the_most_uncertain_arm_left_is_played_in_any_unit(unit):
    model = ArmGP(4, torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0]).double()) * unit, unit, batch_shape=(1,))
    policy = PhasedElimination(model, ConstantWidth(1.0), H)
    state = policy.state_dict()
    state["left"], state["queue"] = torch.tensor([[True, True, False, False]]), state["queue"].fill_(-1)
    policy.load_state_dict(state)
    assert policy.choose(1.0).arm.tolist() == [1]
    assert policy.choose(1.0, torch.tensor([False, False, True, True])).arm.tolist() == [3]


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="model must be an ArmGP"):
        PhasedElimination(3, ConstantWidth(1.0), 5)
    with pytest.raises(ValueError, match="model must be of batch shape"):
        PhasedElimination(ArmGP(N, K, NOISE), ConstantWidth(1.0), 5)

"""OPKB and ADA-OPKB as policies: blocks, replicates, state, bad input. Their numbers: ``test_opkb_from_the_paper``."""

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.loop import run
from bandits_torch.policies.opkb import Constants, FixedFeatures, opkb
from bandits_torch.policies.opkb.opkb import OPKB, AdaOPKB, draw
from bandits_torch.policies.policy import Observation
from bandits_torch.problems import SwitchingFunctions
from bandits_torch.state import copied, differing
from bandits_torch.theory import features_of_covariance, optimal_design, optimal_exploration
from tests.reference import all_recipes

SHORT = Constants(sigma=5.0, delta=0.1, c0=1.2, c1=0.2, c2=1.0, c3=0.05, c4=0.02, design_share=0.5)


def problem(replicates: int = 2, **options) -> SwitchingFunctions:
    settings = {"num_arms": 12, "dim": 2, "lengthscale": 0.4, "horizon": 700, "change": "flip"} | options
    return SwitchingFunctions(replicates=replicates, **settings)


def features(of: SwitchingFunctions) -> torch.Tensor:
    return features_of_covariance(of.knowledge.kernel(of.arms).to_dense().detach())


def policy(of: SwitchingFunctions, kind=AdaOPKB, constants=SHORT, **options):
    return kind(FixedFeatures(features(of), of.replicates), 700, constants, **options)


@pytest.mark.parametrize("kind", [OPKB, AdaOPKB])
def test_features_of_each_replicate_are_designed_once(kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not change, so no later block designs anew; the choices are those of features that all share."""
    of, designed = problem(), []
    shared = run(policy(of, kind), of, 300)
    design = opkb.optimal_design
    monkeypatch.setattr(opkb, "optimal_design", lambda *a, **k: designed.append(1) or design(*a, **k))
    made = kind(FixedFeatures(features(of).expand(2, -1, -1).clone(), 2), 700, SHORT)
    history = run(made, of, 300)
    assert float(history.trace["block"].max()) >= 2
    assert len(designed) == 2
    assert torch.equal(history.arms, shared.arms)


def test_designs_are_solved_as_exactly_as_regret_a_step_can_tell() -> None:
    """The gain by which blocks and exploitation are counted, and the strategy of a later block."""
    of = problem(replicates=1, switches=())
    made = policy(of, OPKB)
    ridge = SHORT.sigma / 700
    exact = optimal_design(features(of), ridge, tolerance=1e-12)
    assert made.schedules[0].gain == pytest.approx(float(exact.log_det), abs=2e-6)
    torch.testing.assert_close(made.playing_distribution[0], exact.probabilities, rtol=0, atol=1e-3)
    gaps, schedule = torch.linspace(0, 1, 12).double(), made.schedules[0]
    Q = optimal_exploration(
        *(features(of), gaps, ridge, schedule.beta(1), schedule.alpha, float(exact.log_det)), tolerance=1e-12
    )
    mu = schedule.mixture(1)
    wanted = (1 - mu) * Q + mu * exact.probabilities
    made._epochs[0].block = 1
    torch.testing.assert_close(made._next_strategies([0], gaps.unsqueeze(0))[0], wanted, rtol=0, atol=2e-3)


def test_a_uniform_number_of_zero_draws_no_arm_without_mass() -> None:
    class Zeros:
        def uniform(self) -> torch.Tensor:
            return torch.zeros(2, dtype=torch.float64)

    P = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
    assert draw(P, Zeros()).tolist() == [2, 1]
    first_taken = torch.tensor([[False, True, True], [True, False, True]])
    assert draw(P, Zeros(), first_taken).tolist() == [2, 2]


@pytest.mark.parametrize(
    "spoilt", [lambda active: active.clear(), lambda active: active[0].update(before=None)]
)
def test_a_state_without_an_interval_under_way_is_refused(spoilt) -> None:
    made = policy(problem())
    state = made.state_dict()
    spoilt(state["epochs"][1]["active"])
    with pytest.raises(
        ValueError, match=r"^state must be .* fit: active must be intervals with the sums of their start"
    ):
        made.load_state_dict(state)


def test_arms_are_drawn_from_the_playing_distribution() -> None:
    made = policy(problem())
    drawn = torch.stack([made.choose(1).arm for _ in range(4000)])
    frequency = torch.stack([(drawn == a).double().mean(0) for a in range(12)], -1)
    P = made.playing_distribution
    assert ((frequency - P).abs() < 4.5 * (P * (1 - P) / 4000).sqrt() + 1e-9).all()


@pytest.mark.parametrize("name", ["ada_opkb", "ada_opkb_calibrated", "bbkb", "glr_kl_ucb"])
def test_no_later_step_changes_what_a_policy_has_told(name) -> None:
    made, of = all_recipes.build(name, 2, 60)
    told = []
    for t in range(1, 61):
        choice = made.choose(float(t))
        reward = (1 if t < 30 else -5) * of.expected_rewards(t).gather(1, choice.arm.unsqueeze(1)).squeeze(1)
        made.learn(Observation(float(t), choice.arm, reward, choice.why))
        one = [made.trace(), made.changes_found(), getattr(made, "playing_distribution", None)]
        told.append((one, copied(one)))
    assert not any(differing(one, then) for one, then in told)


def test_a_kernel_too_small_for_rewards_of_about_1_is_refused_by_name() -> None:
    told = {"arms": 3, "kernel": 1e-24 * torch.eye(3).double(), "noise_variance": 0.1, "horizon": 20}
    with pytest.raises(
        ValueError, match=r"^features must be of a scale .* got 'numbers up to 1e-12 in size'"
    ):
        recipes.opkb(**told)
    assert recipes.opkb(**told, reward_scale=1e-12).schedules


def test_theory_describes_why_nobody_would_wait() -> None:
    words = Constants.theory().schedule(100, 10_000, 461.5).describe()
    assert "Block 0 is pure exploration and lasts longer than the run" in words
    assert "cannot fire" in words
    assert "cannot fire" not in Constants.tuned().schedule(100, 10_000, 69.3).describe()

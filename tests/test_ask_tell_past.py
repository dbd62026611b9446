"""Predictions of times before the latest reward: right, with all that is known since, or refused."""

import pytest
import torch

from bandits_torch import AskTell, Domain, recipes
from bandits_torch.policies.wrapping import DoublingTrick
from tests.reference import all_recipes
from tests.reference.dense_gp import dense_posterior
from tests.reference.kernels import rbf

DOMAIN = Domain(torch.tensor([[0.0], [1.0]]).double())
POINTS = torch.linspace(0, 1, 5).double().unsqueeze(-1)
KERNEL = rbf(0.3)
SEARCH = {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 3}}
# Recipes whose model holds every observation and does not drift.
HOLDS_ALL = {"gp_ucb", "igp_ucb", "gp_ts", "gp_ei", "gp_pi", "bkb", "known_prior_gp_ucb"}


def play(live, times, reward=torch.sin):
    told = []
    for t in times:
        question = live.ask(t)
        told.append((question.arm[0].clone(), t, float(reward(torch.tensor(0.7 * t)))))
        live.tell(question.id, told[-1][2])
    return told


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_over_arms_the_past_is_that_of_functions_that_stay_or_refused(name):
    policy, _ = all_recipes.build(name, 1, 40)
    live = AskTell(policy)
    play(live, range(1, 36))
    if not hasattr(policy, "marginals") or recipes.registered(name).contexts:
        return
    now = live.predict(35.0)
    if name not in HOLDS_ALL:
        with pytest.raises(ValueError, match="at must be at or after the latest reward learned, 35"):
            live.predict(34.9)
        live.predict(99.0)
        return
    torch.testing.assert_close(live.predict(2.0), now, rtol=0, atol=0)


@pytest.mark.parametrize("t0", [0.0, 1.7e9])
def test_over_points_that_drift_the_past_is_that_of_a_dense_process(t0):
    live = AskTell(recipes.tv_gp_ucb(DOMAIN, KERNEL, 0.04, search=SEARCH, forgetting_rate=0.1, width=2.0))
    told = play(live, [t0 + 1.5 * k for k in range(12)], lambda x: torch.sin(x - 0.7 * t0))
    X = torch.stack([x for x, _, _ in told])
    T = torch.tensor([t - t0 for _, t, _ in told]).double()
    y = torch.tensor([y for _, _, y in told]).double()

    def covariance(a, b):
        return KERNEL(a[:, :1], b[:, :1]).to_dense().detach() * 0.9 ** ((a[:, 1:] - b[:, 1]).abs() / 2)

    for at in (3.7, 16.5, 20.0):
        asked = torch.cat([POINTS, torch.full((5, 1), at, dtype=torch.float64)], -1)
        right = dense_posterior(covariance, torch.cat([X, T.unsqueeze(-1)], -1), y, 0.04, asked)
        expected = right.mean.unsqueeze(0), right.covariance.diagonal().sqrt().unsqueeze(0)
        torch.testing.assert_close(live.predict(t0 + at, POINTS), expected, rtol=1e-7, atol=1e-8)


def test_where_stale_rewards_were_dropped_the_past_is_refused_and_the_present_told():
    live = AskTell(recipes.tv_gp_ucb(DOMAIN, KERNEL, 0.04, search=SEARCH, forgetting_rate=0.5, width=2.0))
    play(live, range(80), lambda x: torch.tensor(5.0))
    assert int(live.policy.model.num_observations) < 80
    live.predict(79.0, POINTS)
    with pytest.raises(ValueError, match="at must be at or after the latest reward learned, 79"):
        live.predict(5.0, POINTS)


def test_a_past_date_is_refused_in_dates():
    """Clocks without a zone are put back in autumn."""
    live = AskTell.auto(["a", "b"], control="a", time_unit="h")
    live.tell(live.ask("2026-10-25T02:30").id, 1.0)
    for name, act in {"time": live.ask, "at": live.predict}.items():
        with pytest.raises(
            ValueError,
            match=f"{name} must be at or after .* learned, 2026-10-25 02:30:00, got 2026-10-25 02:10:00",
        ):
            act("2026-10-25T02:10")


@pytest.mark.parametrize("choices", [POINTS, DOMAIN], ids=["arms", "points"])
@pytest.mark.parametrize("t0", [0.0, 1.7e9])
def test_auto_refuses_the_past_itself_too(choices, t0):
    policy = recipes.auto(choices, search=SEARCH) if choices is DOMAIN else recipes.auto(choices)
    points = POINTS if choices is DOMAIN else None
    live = AskTell(policy)
    live.predict(t0, points)  # of nothing yet
    play(live, [t0 + k for k in range(4)])
    assert live.predict(t0 + 3, points)[0].isfinite().all()
    for act in (lambda: live.predict(t0 + 2, points), lambda: policy.marginals(t0 + 2, points)):
        with pytest.raises(ValueError, match="must be at or after the latest"):
            act()


def test_what_was_told_late_and_what_is_loaded_count(tmp_path):
    live = AskTell(recipes.sw_gp_ucb(POINTS, KERNEL, 0.1, horizon=50, window=3))
    early, late = live.ask(1.0), live.ask(9.0)
    live.tell(late.id, 1.0)
    live.tell(early.id, 0.0)
    assert torch.equal(live.predict(2.0)[0], live.predict(9.0)[0])  # the window has dropped nothing yet
    play(live, [10.0, 11.0])
    other = AskTell(recipes.sw_gp_ucb(POINTS, KERNEL, 0.1, horizon=50, window=3))
    other.load_state_dict(live.state_dict())
    for one in (live, other):
        with pytest.raises(ValueError, match="latest reward learned, 11"):
            one.predict(10.5)
        with pytest.raises(ValueError, match="reward must be finite"):
            one.tell_many([one.ask(12.0).id, one.ask(13.0).id], [1.0, float("nan")])
        one.predict(11.0)


def test_a_phase_that_is_over_is_the_past():
    live = AskTell(DoublingTrick(lambda T: recipes.gp_ucb(POINTS, KERNEL, 0.1), first=4))
    play(live, range(3))
    assert live.predict(0.0)[0].isfinite().all()
    play(live, range(3, 6))
    with pytest.raises(ValueError, match="latest reward learned, 5"):
        live.predict(4.5)


def test_the_latest_reward_is_by_time_and_not_by_arrival():
    live = AskTell(recipes.auto(3))
    early, late = live.ask(1.0), live.ask(5.0)
    live.tell(late.id, 0.5)
    live.tell(early.id, 0.2)
    with pytest.raises(ValueError, match="at must be at or after the latest reward learned, 5"):
        live.predict(4.0)

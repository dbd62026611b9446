"""Windows, periodic and event-triggered restarts: what is forgotten, when, and in which replicate."""

import math

import pytest
import torch

from bandits_torch import ArmGP, UpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import (
    EventTriggeredRestart,
    IndexPolicy,
    KeepEverything,
    Observation,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.theory import Width
from tests.reference.arm_gp_twins import smooth

N, S, NOISE = 8, 3, 0.05


class Clock(Width):
    def __init__(self):
        self.asked = []

    def at(self, step, model):
        self.asked.append(step.tolist() if isinstance(step, torch.Tensor) else step)
        return torch.tensor(2.0, dtype=torch.float64)


def policy_of(rule, replicates=S, drifts=False, form="auto"):
    kernel = ArmCovarianceKernel(smooth(N, 0.3))
    if drifts:
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(0.1))
    model = ArmGP(N, kernel, NOISE, batch_shape=(replicates,), form=form)
    return IndexPolicy(model, UpperConfidenceBound, width=Clock(), forgetting=rule)


def told(policy, rewards, first=1):
    """Play the policy; the reward of replicate k at step t is rewards[t][k]. Returns what it was told, by step."""
    history = []
    for step, reward in enumerate(rewards, start=first):
        arm = policy.choose(float(step)).arm.clone()
        policy.learn(Observation(float(step), arm, reward))
        history.append((float(step), arm, reward))
    return history


def refit(policy, history, replicate=0, drifts=False):
    model = policy_of(KeepEverything(), 1, drifts).model
    for time, arm, reward in history:
        model.observe_arms(arm[replicate : replicate + 1], reward[replicate : replicate + 1], time)
    return [value[0] for value in model.marginals(policy.model.now)]


def assert_knows_only(policy, history, replicate, drifts=False):
    for value, expected in zip(
        policy.model.marginals(), refit(policy, history, replicate, drifts), strict=True
    ):
        torch.testing.assert_close(value[replicate], expected, rtol=0, atol=1e-9)


def random_rewards(steps, replicates=S):
    return torch.randn(steps, replicates).double()


@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize("steps", [5, 60])
@pytest.mark.parametrize("window", [1, 7, 60])
def test_window_equals_refit_on_the_last_w_points(window, steps, drifts):
    policy = policy_of(SlidingWindow(window), drifts=drifts)
    history = told(policy, random_rewards(steps))
    assert policy.model.num_observations.tolist() == [min(window, steps)] * S
    for k in range(S):
        assert_knows_only(policy, history[-window:], k, drifts)
    assert policy.width.asked == list(range(1, steps + 1))  # a window does not stop the clock


@pytest.mark.parametrize("interval", [1, 2, 5])
def test_restarts_before_the_steps_t_with_t_minus_1_a_multiple_of_the_interval(interval):
    policy = policy_of(PeriodicRestart(interval))
    steps = 11
    history = told(policy, random_rewards(steps))
    assert policy.width.asked == [(t - 1) % interval + 1 for t in range(1, steps + 1)]
    assert policy.trace()["restarts"].tolist() == [steps // interval] * S
    known = history[steps - steps % interval :]
    assert policy.model.num_observations.tolist() == [len(known)] * S
    for k in range(S):
        assert_knows_only(policy, known, k)


def threshold(t, deviation, delta, noise_scale):
    """Brunzema et al. 2022: sqrt(rho_t) sigma + w_t."""
    pi_t = math.pi**2 * t**2 / 6
    rho = 2 * math.log(2 * pi_t / delta)
    w = math.sqrt(2 * noise_scale**2 * math.log(2 * pi_t / delta))
    return math.sqrt(rho) * deviation + w


@pytest.mark.parametrize("noise_scale", [None, 0.7])
def test_fires_exactly_beyond_the_threshold(noise_scale):
    scale = math.sqrt(NOISE) if noise_scale is None else noise_scale
    for side, fires in ((0.999, False), (1.001, True)):
        for sign in (1, -1):
            policy = policy_of(EventTriggeredRestart(0.2, noise_scale), 1)
            told(policy, torch.zeros(4, 1).double())
            arm = policy.choose(5.0).arm
            mean, deviation = (float(value) for value in policy.predict(arm, 5.0))
            reward = mean + sign * side * threshold(5, deviation, 0.2, scale)
            policy.learn(Observation(5.0, arm, torch.tensor([reward], dtype=torch.float64)))
            assert policy.trace()["restarts"].tolist() == [int(fires)]


def test_the_observation_that_fired_is_the_first_of_the_new_data():
    policy = policy_of(EventTriggeredRestart(0.1))
    history = told(policy, torch.zeros(10, S).double())
    jump = torch.tensor([0.0, 9.0, -9.0]).double()
    history += told(policy, [jump], first=11)
    assert policy.trace()["restarts"].tolist() == [0, 1, 1]
    assert policy.model.num_observations.tolist() == [11, 1, 1]
    assert_knows_only(policy, history, 0)
    for k in (1, 2):
        assert_knows_only(policy, history[-1:], k)
    policy.width.asked.clear()
    told(policy, [jump], first=12)
    assert policy.width.asked == [[12, 2, 2]]


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_false_alarms_on_a_stationary_draw_happen_with_probability_delta_at_most(delta):
    """1500 draws of the model's prior, each played for 60 steps; 3 standard errors above delta would fail."""
    replicates, steps = 1500, 60
    policy = policy_of(EventTriggeredRestart(delta), replicates)
    root = torch.linalg.cholesky(smooth(N, 0.3) + 1e-10 * torch.eye(N).double())
    truth = torch.randn(replicates, N).double() @ root.T
    for step in range(1, steps + 1):
        arm = policy.choose(float(step)).arm
        noise = math.sqrt(NOISE) * torch.randn(replicates).double()
        reward = truth.gather(1, arm.unsqueeze(1)).squeeze(1) + noise
        policy.learn(Observation(float(step), arm, reward))
    alarmed = (policy.trace()["restarts"] > 0).double().mean().item()
    assert alarmed <= delta + 3 * math.sqrt(delta * (1 - delta) / replicates)
    assert alarmed > 0  # the rule is awake


def test_a_window_needs_a_model_that_can_forget_and_has_seen_nothing():
    assert isinstance(policy_of(None).forgetting, KeepEverything)
    with pytest.raises(ValueError, match="SlidingWindow"):
        policy_of(SlidingWindow(3), drifts=True, form="covariance")
    model = policy_of(None).model
    model.observe_arms(torch.tensor(0), torch.tensor(1.0))
    with pytest.raises(ValueError, match="num_observations"):
        IndexPolicy(model, UpperConfidenceBound, width=Clock(), forgetting=SlidingWindow(3))

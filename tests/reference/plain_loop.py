"""The loop as one would write it on a blackboard: one replicate, one number at a time."""

import torch

from bandits_torch.policies.policy import Observation
from bandits_torch.streams import ReplicateStreams


def play(policy, problem, horizon, *, seed=0, replicate=0, row=0):
    """One replicate of a run; ``row`` is its row in what the problem holds.

    Returns lists over the steps: arms, rewards, their expected rewards, best available expected rewards.
    """
    streams = ReplicateStreams(seed, 1, purpose="noise", first=replicate)
    arms, rewards, expected, best = [], [], [], []
    for step in range(1, horizon + 1):
        time, mask = problem.time(step), problem.available(step)
        means = problem.expected_rewards(step)[row].tolist()
        mask = [True] * len(means) if mask is None else mask.expand(row + 1, -1)[row].tolist()
        choice = policy.choose(time, torch.tensor(mask))
        arm = int(choice.arm[0])
        reward = means[arm] + float(problem.noise(step, choice.arm, streams)[0])
        policy.learn(Observation(time, choice.arm, torch.tensor([reward], dtype=torch.float64), choice.why))
        arms.append(arm)
        rewards.append(reward)
        expected.append(means[arm])
        best.append(max(m for m, allowed in zip(means, mask, strict=True) if allowed))
    return arms, rewards, expected, best

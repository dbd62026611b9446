"""Small problems and policies whose every number is known."""

import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.policies.policy import Choice, Policy
from bandits_torch.problems.problem import Knowledge, Problem, gaussian_noise


class TableProblem(Problem):
    """Expected rewards from a table (R, T, N), availability from a table (T, N) or (T, S, N).

    A step whose table row equals the last one's hands out the very same tensor, as a switching problem does.
    """

    def __init__(self, table, available=None, noise_scale=0.0, horizon=None):
        self.table = torch.as_tensor(table, dtype=torch.float64)
        self.replicates, self.last, num_arms = self.table.shape
        self.masks, self.noise_scale, self.horizon = available, noise_scale, horizon
        self.arms = torch.arange(num_arms, dtype=torch.float64).unsqueeze(-1)
        self.knowledge = Knowledge(RBFKernel(), 0.1)
        self.rows = {}

    def expected_rewards(self, step):
        row = self.table[:, (step - 1) % self.last]
        for known in self.rows.values():
            if torch.equal(known, row):
                return known
        return self.rows.setdefault(step, row)

    def noise(self, step, arm, streams):
        return gaussian_noise(self.noise_scale, streams)

    def available(self, step):
        return None if self.masks is None else self.masks[(step - 1) % len(self.masks)]

    def time(self, step):
        return 10.0 * step


class FixedPolicy(Policy):
    """Plays the arms of a script (S, T) and keeps what it is told; ``notes`` are its traces, step by step."""

    def __init__(self, script, num_arms, notes=()):
        self.script = torch.as_tensor(script)
        self.replicates, self.num_arms = len(self.script), num_arms
        self.notes, self.observations = notes, []

    def choose(self, time, available=None):
        return Choice(self.script[:, len(self.observations)], {"asked": time})

    def learn(self, observation):
        self.observations.append(observation)

    def trace(self):
        return self.notes[len(self.observations) - 1] if self.notes else {}

    def reset(self, where=None):
        self.observations.clear()

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

"""Reinforcement learning: ``CartPole-v1`` of gymnasium (``pip install gymnasium``) by proximal policy optimisation."""

from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.ray.running import SCORE, Training

_LATEST = 20  # episodes whose mean return is the score


class CartPole(Training):
    """PPO with a clipped objective (Schulman et al. 2017) and generalised advantages (Schulman et al. 2016) on
    ``CartPole-v1``, copies of it side by side. Transitions that only begin the next episode are left out; an episode
    that is cut off at 500 steps goes on in value. score: the mean return of the latest 20 episodes that ended."""

    def __init__(
        self, copies: int = 8, steps: int = 128, epochs: int = 4, parts: int = 4, discount: float = 0.99
    ) -> None:
        self.copies, self.steps, self.epochs, self.parts = copies, steps, epochs, parts
        self.discount = discount

    def begin(self, seed: int) -> dict[str, Any]:
        """Networks of 64 hidden units drawn by the seed, whose policy is near an even one."""
        env = gymnasium.make_vec("CartPole-v1", num_envs=self.copies, vectorization_mode="vector_entry_point")
        seen, _ = env.reset(seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            policy, value = (nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1)) for _ in range(2))
        with torch.no_grad():
            policy[-1].weight.mul_(0.1)
        return {
            "env": env,
            "seen": torch.from_numpy(seen),
            "between": np.zeros(self.copies, dtype=bool),  # episodes: the last step ended one
            "returned": np.zeros(self.copies),
            "ended": deque(maxlen=_LATEST),
            "policy": policy,
            "value": value,
            "optimiser": torch.optim.Adam([*policy.parameters(), *value.parameters()], eps=1e-5),
            "random": np.random.default_rng(seed),
        }

    def step(self, state: dict[str, Any], config: dict[str, Any]) -> dict[str, float]:
        self._learn(state, config, *self._played(state, config["lambda"]))
        return {SCORE: float(np.mean(state["ended"])) if state["ended"] else float(state["returned"].mean())}

    @torch.no_grad()
    def _played(self, state: dict[str, Any], trace: float) -> tuple[Tensor, ...]:
        """What was seen (n, 4), done (n,), with which log-probability (n,), advantages (n,), returns (n,)."""
        env, shape = state["env"], (self.steps, self.copies)
        seen, action = torch.empty(self.steps + 1, self.copies, 4), torch.empty(shape)
        reward, real, terminal, final = (np.empty(shape, dtype=np.float32) for _ in range(4))
        chance = state["random"].random(shape, dtype=np.float32)
        for t in range(self.steps):
            seen[t] = state["seen"]
            right = chance[t] < state["policy"](seen[t]).sigmoid().squeeze(-1).numpy()
            after, reward[t], terminated, truncated, _ = env.step(right.astype(np.int64))
            action[t], real[t], terminal[t] = torch.from_numpy(right), ~state["between"], terminated
            state["between"] = terminated | truncated
            final[t], state["seen"] = state["between"], torch.from_numpy(after)
            state["returned"] += reward[t]
            state["ended"].extend(state["returned"][state["between"]])
            state["returned"][state["between"]] = 0.0
        seen[-1] = state["seen"]
        value = state["value"](seen).squeeze(-1)
        going, same = 1 - torch.from_numpy(terminal), 1 - torch.from_numpy(final)
        error = torch.from_numpy(reward) + self.discount * going * value[1:] - value[:-1]
        advantage, sums = torch.zeros(self.copies), torch.empty(shape)
        for t in reversed(range(self.steps)):
            advantage = sums[t] = error[t] + self.discount * trace * same[t] * advantage
        keep = torch.from_numpy(real) > 0
        seen, action, sums, value = seen[:-1][keep], action[keep], sums[keep], value[:-1][keep]
        log = -nn.functional.softplus(-(2 * action - 1) * state["policy"](seen).squeeze(-1))
        return seen, action, log, sums, sums + value

    def _learn(self, state: dict[str, Any], config: dict[str, Any], *played: Tensor) -> None:
        """A few epochs of the clipped objective, the value's squared error and the entropy."""
        optimiser = state["optimiser"]
        for group in optimiser.param_groups:
            group["lr"] = config["lr"]
        weights = [*state["policy"].parameters(), *state["value"].parameters()]
        for _ in range(self.epochs):
            order = torch.from_numpy(state["random"].permutation(len(played[0])))
            for rows in order.chunk(self.parts):
                seen, action, before, advantage, target = (part[rows] for part in played)
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                logit = state["policy"](seen).squeeze(-1)
                ratio = (-nn.functional.softplus(-(2 * action - 1) * logit) - before).exp()
                clipped = ratio.clamp(1 - config["clip"], 1 + config["clip"])
                gained = torch.minimum(ratio * advantage, clipped * advantage).mean()
                entropy = nn.functional.softplus(logit) - logit * logit.sigmoid()
                error = nn.functional.mse_loss(state["value"](seen).squeeze(-1), target)
                loss = 0.5 * error - gained - config["entropy"] * entropy.mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(weights, 0.5)
                optimiser.step()

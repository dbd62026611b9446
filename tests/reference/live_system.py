"""A live system in small: processes that share a policy through a file, one at a time.

What is sent, and what comes back:

    "ask", time          which arm to pull now, and the number of the question
    "tell", id, reward   its reward, whenever it comes
    "open",              the questions without an answer

Every process loads the policy, acts, and saves it, so that any process can be replaced in between. Where several act at
once they need a lock around that.
"""

import os

import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import AskTell, load_policy, recipes, save_policy


def build():
    """The policy as every process builds it: a drifting reward over eleven settings of a dial."""
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.2
    arms = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1)
    return AskTell(recipes.tv_gp_ucb(arms, kernel, 0.1, forgetting_rate=0.05))


def act(live, words):
    if words[0] == "ask":
        question = live.ask(float(words[1]))
        return {"id": question.id, "arm": int(question.arm)}
    if words[0] == "tell":
        return {"learnt": live.tell(int(words[1]), float(words[2]))}
    return {"open": list(live.open)}


def serve(file, wire):
    while True:
        words = wire.recv()
        live = build()
        if os.path.exists(file):
            load_policy(file, live)
        answer = act(live, words)
        save_policy(file, live)
        wire.send(answer)

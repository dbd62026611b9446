"""A live system in small: processes that share a policy through a file, one at a time.

Lines on standard input, answers in JSON on standard output:

    ask TIME          which arm to pull now, and the number of the question
    tell ID REWARD    its reward, whenever it comes
    open              the questions without an answer

Every line loads the policy, acts, and saves it, so that any process can be replaced between two lines. Where several
act at once they need a lock around that.
"""

import json
import os
import sys

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


def main(file):
    torch.set_num_threads(1)
    for line in sys.stdin:
        live = build()
        if os.path.exists(file):
            load_policy(file, live)
        answer = act(live, line.split())
        save_policy(file, live)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

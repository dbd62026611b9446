"""``python -m tests.reference.service_kills``: the service of docs/service.md under real clients, killed at random.

Clients ask and tell over HTTP and try again until they have an answer; a tenth of the rewards they tell twice, by
intention. Afterwards every question must have one owner, and the policy must have learned every reward told once, with
the arm that its client was given. The page's policy keeps no rewards, so one that does stands in for it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]


PAGES_POLICY = "    return AskTell.auto(20)\n"
KEEPS_REWARDS = """    import torch
    from gpytorch.kernels import RBFKernel
    from bandits_torch import recipes

    arms = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)
    return AskTell(recipes.gp_ucb(arms, RBFKernel().double(), 0.05))
"""


def page() -> str:
    """The program: the first block of Python on the page."""
    text = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)[0]


def source() -> str:
    """The program with a policy that keeps all rewards it has learned."""
    before, after = page().split(PAGES_POLICY)
    return before + KEEPS_REWARDS + after


class Client(threading.Thread):
    """One worker: asks, pulls, tells."""

    def __init__(self, name: str, port: int, questions: int, seed: int, deadline: float) -> None:
        super().__init__(daemon=True)
        self.called, self.port, self.questions, self.deadline = name, port, questions, deadline
        self.random, self.connection = random.Random(seed), None
        self.told: dict[int, tuple[int, float]] = {}
        self.requests = self.retries = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        for _ in range(self.questions):
            question = self.post("/ask", worker=self.called)
            id, arm = question["id"], question["arm"]
            if id in self.told:
                self.wrong.append(f"question {id} again after its answer")
                continue
            reward = 0.1 * arm + 1e-6 * id  # which question it was can be told from it
            for _ in range(2 if self.random.random() < 0.1 else 1):
                if (answer := self.post("/tell", id=id, reward=reward)) != {"told": id}:
                    self.wrong.append(f"answered {answer}")
            self.told[id] = arm, reward
        self.leave()

    def leave(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def post(self, path: str, **what: Any) -> dict[str, Any]:
        """Tries until there is an answer."""
        self.requests += 1
        while time.time() < self.deadline:
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                self.connection.request("POST", path, json.dumps(what))
                answer = self.connection.getresponse()
                body = json.loads(answer.read())
                if answer.status == 200:
                    return body
                self.wrong.append(f"{answer.status} {body}")
                return body
            except (OSError, http.client.HTTPException, ValueError):
                self.retries += 1
                self.leave()
                time.sleep(0.05)
        raise TimeoutError("no answer")


def play(questions: int, clients: int, kills: int, seed: int = 0, limit: float = 3600.0) -> dict[str, Any]:
    """What came of it, in numbers."""
    folder = Path(tempfile.mkdtemp())
    program = folder / "service.py"
    program.write_text(source(), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    chance, start = random.Random(seed), time.time()

    threads = str(
        torch.get_num_threads()
    )  # a file says how many made it, and this process reads it at the end

    def begin() -> subprocess.Popen[bytes]:
        arguments = [sys.executable, str(program), str(folder), str(port)]
        return subprocess.Popen(arguments, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": threads})

    workers = [
        Client(f"worker {k}", port, questions // clients, seed + k, start + limit) for k in range(clients)
    ]
    server = begin()
    for worker in workers:
        worker.start()
    marks = sorted(chance.randrange(1, max(2, questions - clients)) for _ in range(kills))
    killed = 0
    while any(worker.is_alive() for worker in workers) and time.time() < start + limit:
        told = sum(len(worker.told) for worker in workers)
        if killed < kills and told >= marks[killed]:
            time.sleep(chance.random() * 0.05)
            server.send_signal(signal.SIGKILL)
            server.wait()
            killed += 1
            server = begin()
        elif server.poll() is not None:
            raise RuntimeError(f"the server ended by itself, with {server.returncode}")
        time.sleep(0.01)
    server.send_signal(signal.SIGKILL)  # the last: what is checked is what came back from the disk
    server.wait()
    return checked(folder, workers) | {"kills": killed + 1, "seconds": round(time.time() - start, 1)}


def checked(folder: Path, workers: list[Client]) -> dict[str, Any]:
    """Compare the clients' books with what the policy has learned, as it comes back from the disk."""
    scope: dict[str, Any] = {}
    exec(compile(source(), "service.md", "exec"), scope)
    live = scope["Service"](folder).live
    told = Counter(id for worker in workers for id in worker.told)
    book = Counter(pair for worker in workers for pair in worker.told.values())
    arms = live.policy.model.train_inputs[0].flatten().long().tolist()
    learned = Counter(zip(arms, live.policy.model.train_targets.flatten().tolist(), strict=True))
    return {
        "asked": live.asked,
        "told": len(told),
        "requests": sum(worker.requests for worker in workers),
        "retries": sum(worker.retries for worker in workers),
        "open": len(live.open),
        "two owners": sum(count > 1 for count in told.values()),
        "lost": sum((book - learned).values()),
        "twice": sum((learned - book).values()),
        "wrong answers": sum(len(worker.wrong) for worker in workers),
    }


def main() -> None:
    """Play, and fail if anything is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.reference.service_kills", description=__doc__)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = play(asked.questions, asked.clients, asked.kills, asked.seed)
    print(", ".join(f"{name} {value}" for name, value in found.items()), flush=True)
    faults = ("two owners", "lost", "twice", "wrong answers")
    due = asked.questions // asked.clients * asked.clients
    right = not any(found[name] for name in faults) and found["told"] == due
    raise SystemExit(0 if right and found["kills"] > asked.kills else 1)


if __name__ == "__main__":
    main()

"""``python -m tests.reference.service_kills``: the service of docs/service.md under real clients, killed at random.

Clients ask and tell over HTTP and try again until they have an answer; a tenth of the rewards they tell twice, by
intention. Another adds and retires arms meanwhile. Afterwards every question must have one owner, and the policy must
have learned every reward told once, with the arm that its client was given; no arm was asked while it was retired. The
page's policy keeps no rewards, so one that does stands in for it.
"""

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


PAGES_POLICY = '    return AskTell.auto(["north", "east", "south", "west"])\n'
FIRST = 20  # arms
KEEPS_REWARDS = f"""    from gpytorch.kernels import RBFKernel
    from bandits_torch import recipes

    kernel = RBFKernel().double()
    kernel.lengthscale = 8.0
    names = [str(arm) for arm in range({FIRST})]
    return AskTell(recipes.gp_ucb({FIRST}, kernel, 0.05), names=names)
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
            id, arm = question["id"], int(question["arm"])
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


class Keeper(Client):
    """Adds and retires arms, one after the other, until it is told to stop."""

    def __init__(self, port: int, changes: int, seed: int, deadline: float) -> None:
        super().__init__("keeper", port, changes, seed, deadline)
        self.arms, self.away = FIRST, {}
        self.absences: list[tuple[int, int, float]] = []  # arm, first question without it, first with it
        self.stop = threading.Event()

    def run(self) -> None:
        for _ in range(self.questions):
            if self.stop.wait(0.1 * self.random.random()):
                break
            here = [arm for arm in range(self.arms) if arm not in self.away]
            kind = self.random.choice(["new", "gone", "back"])
            if kind == "new":
                self.arms += 1
                self.post("/add", arms=[str(self.arms - 1)])
            elif kind == "gone" and len(here) > FIRST // 2:
                arm = self.random.choice(here)
                self.away[arm] = self.post("/retire", arms=[str(arm)])["asked"]
            elif kind == "back" and self.away:
                arm = self.random.choice(sorted(self.away))
                since = self.away.pop(arm)
                before = self.post("/retire", arms=[str(arm)])["asked"]  # said again: nothing changes
                self.absences.append((arm, since, before))
                self.post("/add", arms=[str(arm)])
        self.absences += [(arm, since, float("inf")) for arm, since in self.away.items()]
        self.leave()


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def play(
    questions: int, clients: int, kills: int, seed: int = 0, limit: float = 3600.0, changes: int = 200
) -> dict[str, Any]:
    """What came of it, in numbers."""
    folder = Path(tempfile.mkdtemp())
    program = folder / "service.py"
    program.write_text(source(), encoding="utf-8")
    port = free_port()
    chance, start = random.Random(seed), time.time()

    # A file says how many made it, and this process reads it at the end.
    threads = str(torch.get_num_threads())

    def begin() -> subprocess.Popen[bytes]:
        arguments = [sys.executable, str(program), str(folder), str(port)]
        return subprocess.Popen(arguments, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": threads})

    workers = [
        Client(f"worker {k}", port, questions // clients, seed + k, start + limit) for k in range(clients)
    ]
    keeper = Keeper(port, changes, seed + clients, start + limit)
    server = begin()
    for worker in (*workers, keeper):
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
    keeper.stop.set()
    keeper.join()
    server.send_signal(signal.SIGKILL)  # the last: what is checked is what came back from the disk
    server.wait()
    return checked(folder, workers, keeper) | {"kills": killed + 1, "seconds": round(time.time() - start, 1)}


def checked(folder: Path, workers: list[Client], keeper: Keeper) -> dict[str, Any]:
    """Compare the clients' books with what the policy has learned, as it comes back from the disk."""
    scope: dict[str, Any] = {}
    exec(compile(source(), "service.md", "exec"), scope)
    live = scope["Service"](folder).live
    told = Counter(id for worker in workers for id in worker.told)
    book = Counter(pair for worker in workers for pair in worker.told.values())
    arms = live.policy.model.train_inputs[0].flatten().long().tolist()
    learned = Counter(zip(arms, live.policy.model.train_targets.flatten().tolist(), strict=True))
    asked_of = {id: arm for worker in workers for id, (arm, _) in worker.told.items()}
    away = [
        id
        for arm, since, before in keeper.absences
        for id, asked in asked_of.items()
        if asked == arm and since <= id < before
    ]
    here = live.names == tuple(map(str, range(keeper.arms)))
    right = here and set(live.retired) == {str(arm) for arm in keeper.away}
    return {
        "asked": live.asked,
        "told": len(told),
        "arms": live.num_arms,
        "retired": len(keeper.absences),
        "asked while retired": len(away),
        "wrong arms": int(not right),
        "requests": sum(worker.requests for worker in workers),
        "retries": sum(worker.retries for worker in workers),
        "open": len(live.open),
        "two owners": sum(count > 1 for count in told.values()),
        "lost": sum((book - learned).values()),
        "twice": sum((learned - book).values()),
        "wrong answers": sum(len(worker.wrong) for worker in (*workers, keeper)),
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
    faults = ("two owners", "lost", "twice", "wrong answers", "wrong arms", "asked while retired")
    due = asked.questions // asked.clients * asked.clients
    right = not any(found[name] for name in faults) and found["told"] == due
    raise SystemExit(0 if right and found["kills"] > asked.kills else 1)


if __name__ == "__main__":
    main()

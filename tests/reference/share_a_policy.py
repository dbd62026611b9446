"""Threads, forks, processes and kills round one policy: what is asked twice, lost or broken is counted.

    python -m tests.reference.share_a_policy [threads|processes|kills|forks|damage] [--rounds 20] [--recipes ...]

* threads: eight threads ask and tell one ``AskTell``; numbers of questions must be 0, 1, 2, ..., no call may fail, and
  the policy must be that of the same observations learnt by one thread, in the order in which they were learnt.
* processes: processes load, ask or tell, and save one file with no lock of their own, and begin again when the save is
  refused as stale; every number must be handed out once, and every reward told be in the end's policy.
* kills: a process that saves over and over is killed; the file must then be a whole save, the one before or the one
  after, and the next save must clear its part away.
* forks: children of a process with an ``AskTell`` ask and tell; each must be refused until it has loaded the file.
* damage: files with a value changed in their header, or a tensor cut, retyped or spoiled; each must be a ValueError
  that leaves the policy as it was, or give a policy that plays on.

Each kind prints a line: rounds, calls, and what went wrong; 1 if anything did.
"""

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from bandits_torch import AskTell, load_policy, recipes, save_policy
from tests.reference import all_recipes, asking
from tests.reference.asking import IN_TURN, bits, reward_of

THREADS, CALLS, PROCESSES = 8, 25, 4
live = functools.partial(asking.live, horizon=400)


# -- threads --------------------------------------------------------------------------------------------


def threads(name, seed):
    """(calls, faults) of eight threads round one AskTell; time stands still, so that the order of asking is free."""
    shared, faults, learnt, asked = live(name), [], [], []
    order = threading.Lock()
    policy_learn = shared.policy.learn

    def learn(observation):  # called inside the turn, if there is one
        policy_learn(observation)
        learnt.append(observation)

    shared.policy.learn = learn
    begin = threading.Barrier(THREADS)

    def work(k):
        chance = random.Random(1000 * seed + k)
        begin.wait()
        for _ in range(CALLS):
            try:
                question = shared.ask(1.0)
                with order:
                    asked.append(question.id)
                if chance.random() < 0.3:
                    time.sleep(0)
                shared.tell(question.id, reward_of(question))
            except ValueError as error:
                if name not in IN_TURN or "turn" not in str(error):
                    faults.append(f"ValueError: {error}")
            except Exception as error:
                faults.append(f"{type(error).__name__}: {error}")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads change in the middle of calls
    try:
        workers = [threading.Thread(target=work, args=(k,)) for k in range(THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)
    del shared.policy.learn
    if sorted(asked) != list(range(THREADS * CALLS)):
        faults.append(f"{THREADS * CALLS - len(set(asked))} numbers handed out twice or never")
    faults += differs(name, shared.policy, learnt)
    return 2 * THREADS * CALLS, faults


def differs(name, policy, learnt):
    """Whether the policy is another than one that learnt these alone, but for the numbers drawn on the way."""
    if name in IN_TURN or not hasattr(policy, "model") or not hasattr(policy.model, "posterior"):
        return []
    alone = all_recipes.build(name, 1, 400)[0]
    for observation in learnt:
        alone.learn(observation)
    try:
        pairs = zip(marginals(policy), marginals(alone), strict=True)
        worst = max(float((one - other).abs().max()) for one, other in pairs)
    except Exception as error:
        return [f"broken: {type(error).__name__}: {error}"]
    return [] if worst < 1e-6 else [f"marginals moved by {worst:.2g}"]


def marginals(policy):
    return (policy if hasattr(policy, "marginals") else policy.model).marginals(1.0)


# -- processes ------------------------------------------------------------------------------------------


def take_part(name, path, out, steps, seed):
    """One process: load, ask or tell, save; begin again when the save is stale."""
    torch.set_num_threads(1)
    chance, handed, told, stale = random.Random(seed), [], [], 0
    mine = []
    while len(handed) < steps or mine:
        shared = live(name)
        if os.path.exists(path):
            load_policy(path, shared)
        asks = len(handed) < steps and (not mine or chance.random() < 0.6)
        question = shared.ask(1.0) if asks else mine[0]
        if not asks:
            shared.tell(question.id, reward_of(question))
        try:
            save_policy(path, shared)
        except ValueError as error:
            if "path must be of a file that this policy loaded or saved last" not in str(error):
                raise
            stale += 1
            continue
        if asks:
            handed.append(question.id)
            mine.append(question)
        else:
            told.append(mine.pop(0).id)
    Path(out).write_text(json.dumps({"handed": handed, "told": told, "stale": stale}))


def processes(name, seed, steps=8):
    with tempfile.TemporaryDirectory() as folder:
        path, context = str(Path(folder) / "live"), multiprocessing.get_context("fork")
        workers = [
            context.Process(target=take_part, args=(name, path, f"{folder}/{k}.json", steps, 100 * seed + k))
            for k in range(PROCESSES)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        faults = [f"a process ended with {w.exitcode}" for w in workers if w.exitcode]
        if faults:
            return 0, faults
        parts = [json.loads(Path(f"{folder}/{k}.json").read_text()) for k in range(PROCESSES)]
        handed = sorted(id for part in parts for id in part["handed"])
        total = PROCESSES * steps
        if handed != list(range(total)):
            faults.append(f"{total - len(set(handed))} numbers handed out twice")
        end = live(name)
        load_policy(path, end)
        keeps_all = hasattr(getattr(end.policy, "model", None), "num_observations") and name != "sw_gp_ucb"
        held = int(end.policy.model.num_observations.max()) if keeps_all else total
        if held != total or end.open:
            faults.append(f"{total - held} rewards lost, {len(end.open)} questions open")
        return 2 * total + sum(part["stale"] for part in parts), faults


# -- kills ----------------------------------------------------------------------------------------------


def save_on(name, path):
    shared = live(name)
    for step in range(10_000):
        question = shared.ask(float(step))
        shared.tell(question.id, reward_of(question))
        save_policy(path, shared, overwrite=step == 0)


def kills(name, seed):
    """A saver is killed at a random moment; the file is whole, and its part is swept by the next save."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "live"
        chance, faults = random.Random(seed), []
        child = multiprocessing.get_context("fork").Process(target=save_on, args=(name, path))
        child.start()
        while not path.exists() and child.is_alive():
            time.sleep(1e-3)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        shared = live(name)
        load_policy(path, shared)
        question = shared.ask(1e4)
        shared.tell(question.id, 0.5)
        held = int(shared.policy.model.num_observations.max()) if name == "gp_ucb" else question.id + 1
        if held != question.id + 1:
            faults.append(f"{question.id + 1 - held} rewards lost")
        parts = len(list(Path(folder).glob(".*.part")))
        save_policy(path, shared)
        if list(Path(folder).glob(".*.part")):
            faults.append("parts left")
        return 1 + parts, faults


# -- forks ----------------------------------------------------------------------------------------------


def forks(name, seed):
    """A child of a process that holds an AskTell, in the middle of a call of another thread half of the time."""
    shared, faults = live(name), []
    shared.ask(1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "live"
        save_policy(path, shared)
        holding = shared._turn if seed % 2 else contextlib.nullcontext()
        done = threading.Event()
        thread = threading.Thread(target=lambda: _hold(holding, done))
        thread.start()
        child = os.fork()
        if not child:
            os._exit(_in_child(shared, path))
        done.set()
        thread.join()
        deadline, status = time.monotonic() + 30, None
        while status is None and time.monotonic() < deadline:
            pid, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if pid else None
            time.sleep(1e-3)
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if status != 0:
            faults.append(
                {None: "a child hung", 1: "not refused", 2: "no use after loading"}.get(status, str(status))
            )
        if shared.ask(2.0).id != 1:
            faults.append("the parent's numbers moved")
    return 3, faults


def _hold(turn, done):
    with turn:
        done.wait(0.2)


def _in_child(shared, path):
    for act in (lambda: shared.ask(2.0), lambda: shared.tell(0, 1.0)):
        with contextlib.suppress(RuntimeError):
            act()
            return 1
    load_policy(path, shared)
    asked = shared.ask(2.0).id == 1 and shared.tell(0, 1.0)
    save_policy(path, shared)
    return 0 if asked else 2


# -- damage ---------------------------------------------------------------------------------------------


def damage(name, seed, count=12):
    """Crafted files: whole archives, checksums and all, that say something else."""
    chance, faults = random.Random(seed), []
    original = all_recipes.build(name, 1, 60)[0]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other versions
        path = Path(folder) / "policy"
        shared = AskTell(original)
        for step in range(6):
            question = shared.ask(float(step))
            shared.tell(question.id, reward_of(question))
        shared.ask(7.0)
        save_policy(path, shared)
        with np.load(path) as archive:
            arrays = dict(archive)
        for _ in range(count):
            changed = crafted(arrays, chance)
            with open(path, "wb") as file:
                np.savez(file, **changed)
            other = AskTell(all_recipes.build(name, 1, 60)[0])
            before = bits(other.state_dict())
            try:
                load_policy(path, other)
            except ValueError:
                if bits(other.state_dict()) != before:
                    faults.append("a refused file changed the policy")
                continue
            except Exception as error:
                faults.append(f"{type(error).__name__}: {error}")
                continue
            try:
                question = other.ask(8.0)
                other.tell(question.id, 0.1)
            except ValueError:
                pass
            except Exception as error:
                faults.append(f"after loading: {type(error).__name__}: {error}")
    return count, faults


def crafted(arrays, chance):
    """The arrays with one value changed: of the header at any depth, or of a tensor."""
    header, rest = (
        json.loads(arrays["header"].tobytes()),
        {k: v.copy() for k, v in arrays.items() if k != "header"},
    )
    what = chance.random()
    if what < 0.2 and rest:
        name = chance.choice(sorted(rest))
        rest[name] = chance.choice(
            [rest[name].ravel()[:-1], rest[name].astype(np.complex128), rest[name].reshape(1, -1)]
        )
    else:
        places = []
        _places(header, places)
        holder, key = chance.choice(places)
        if isinstance(holder, list) and chance.random() < 0.2:
            del holder[key]
        else:
            holder[key] = chance.choice(
                [None, -1, 10**30, "x", [], {}, 0.5, {"tensor": []}, {"dict": [[1]]}, True]
            )
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    return {**rest, "header": text}


def _places(tree, places):
    """Every (container, key) of nested JSON."""
    for key, item in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        places.append((tree, key))
        if isinstance(item, (dict, list)):
            _places(item, places)


# -- all ------------------------------------------------------------------------------------------------

KINDS = {"threads": threads, "processes": processes, "kills": kills, "forks": forks, "damage": damage}
QUICK = ("gp_ucb", "gp_ts", "bkb", "bbkb", "sw_gp_ucb", "pe_gp_ucb", "ada_opkb_calibrated")


def attack(kind, rounds, names):
    """(rounds, calls, faults by what happened)."""
    calls, faults = 0, {}
    for k in range(rounds):
        name = names[k % len(names)]
        more, found = KINDS[kind](name, k)
        calls += more
        for fault in found:
            said = f"{name}: {fault[:100]}"
            faults[said] = faults.get(said, 0) + 1
    return rounds, calls, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--recipes", default=",".join(QUICK))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    names = list(recipes.RECIPES) if asked.recipes == "all" else asked.recipes.split(",")
    broken = False
    for kind in asked.kinds:
        rounds, calls, faults = attack(kind, asked.rounds, names)
        print(f"{kind:12}{rounds:6} rounds{calls:8} calls{sum(faults.values()):6} faults", flush=True)
        for said, count in faults.items():
            print(f"    {count:4}  {said}", flush=True)
        broken |= bool(faults)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())

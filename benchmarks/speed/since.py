"""The step against that of another commit: ``python -m benchmarks.speed.since REVISION``.

The commit is checked out beside, and processes of either take turns, one thread each; what is timed is ``choose`` and
``learn``, through what both versions have: ``recipes.build``, a problem, ``Observation``. The ratio is that of medians.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.speed.measuring import median

ROOT = Path(__file__).parents[2]
_RUN = """
import json, sys, time, torch
torch.set_num_threads(1)
from bandits_torch import problems, recipes
from bandits_torch.policies.policy import Observation
name, arms, steps, before = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(0)
problem = problems.make("hills" if name == "pe_gp_ucb" else "gp", num_arms=arms)
options = {"window": 100} if name == "sw_gp_ucb" else {}
policy = recipes.build(name, problem, replicates=1, horizon=before + steps, **options)
mean, seconds = problem.expected_rewards(1).reshape(-1).to(torch.get_default_dtype()), []
noise = .1 * torch.randn(before + steps, dtype=mean.dtype)
for t in range(before + steps):
    start = time.perf_counter()
    choice = policy.choose(float(t))
    between = time.perf_counter()
    reward = mean[choice.arm] + noise[t]
    again = time.perf_counter()
    policy.learn(Observation(float(t), choice.arm, reward, choice.why))
    seconds.append(between - start + time.perf_counter() - again)
print(json.dumps(seconds[before:]))
"""


def steps_of(tree: Path, name: str, arms: int, steps: int, before: int) -> list[float]:
    """Seconds of each step of a recipe in a process of its own, with the package that is in ``tree``."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", _RUN, name, str(arms), str(steps), str(before)]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} with {arms} arms in {tree}: {done.stderr[-2000:]}")
    return list(json.loads(done.stdout))


def main(
    revision: Annotated[str, typer.Argument(help="A commit that is in this checkout.")],
    policies: Annotated[str, typer.Option(help="Comma-separated.")] = "sw_gp_ucb,igp_ucb,pe_gp_ucb",
    arms: Annotated[str, typer.Option(help="Comma-separated.")] = "100,1000",
    turns: Annotated[int, typer.Option(help="Processes of each version.")] = 5,
    steps: Annotated[int, typer.Option(help="Timed in each.")] = 200,
    before: Annotated[int, typer.Option(help="Untimed steps before: the window is full.")] = 150,
) -> None:
    """Print a table: ms a step then and now, their ratio, and the least and largest ratio of a turn."""
    print(f"{'policy':12}{'arms':>6}{'then, ms':>10}{'now, ms':>10}{'ratio':>8}{'of turns':>14}")
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "then"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(old), revision], check=True)
        try:
            for name in policies.split(","):
                for n in map(int, arms.split(",")):
                    each = [
                        tuple(median(steps_of(tree, name, n, steps, before)) for tree in (old, ROOT))
                        for _ in range(turns)
                    ]
                    then, now = (1e3 * median(list(values)) for values in zip(*each, strict=True))
                    ratios = sorted(new / was for was, new in each)
                    of_turns = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
                    print(f"{name:12}{n:6}{then:10.3f}{now:10.3f}{now / then:8.2f}{of_turns:>14}", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


if __name__ == "__main__":
    typer.run(main)

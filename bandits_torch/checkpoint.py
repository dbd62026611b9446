"""Checkpoints of a run: a file with its state, from which a later process continues it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import description, said_differences
from bandits_torch.files import remove_parts
from bandits_torch.history import name_of, versions
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.state import unchanged_on_error
from bandits_torch.state_files import check_kinds, described, read_state, whole_or_refused, write_state


class RunCheckpoint:
    """Writes the state of a run to a file at intervals; does nothing for a path of None.

    The file holds all that changes in a run: policy, noise, record, and the state of torch's global generator, from
    which BoTorch's Monte Carlo acquisition functions draw. A description of the run prevents that another one continues
    from it.

    Args:
        path: the file; None: no checkpoints.
        every: steps between two checkpoints; the last step is followed by another.
        horizon: T.
        asked: returns the description of the run (``what_is_run``); called only if there is a path.
        parts: the objects with a state that change in a run, by name.

    Cost of a checkpoint: the bytes of all states and O(S) numbers for each step so far, written and flushed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        every: int,
        horizon: int,
        asked: Callable[[], dict[str, Any]],
        parts: Mapping[str, Any],
    ) -> None:
        self.path, self.horizon = path, horizon
        self.every = validation.positive_integer("every", every)
        self._parts = parts
        self._asked = {} if path is None else asked()
        self._started, self.earlier_seconds = perf_counter(), 0.0

    def resume(self) -> int:
        """Load the file and return the number of steps done, 0 without a file.

        Raises ValueError, with nothing changed, if the file is damaged or of another run. Warns if it was written by
        other versions or with another number of threads, because numbers may then differ in the last bits.
        """
        if self.path is None:
            return 0
        remove_parts(self.path)
        if not os.path.exists(self.path):
            return 0
        name = os.fspath(self.path)
        state = read_state(self.path, "run")
        with whole_or_refused(name, "run"):
            step, seconds = state["step"], state["seconds"]
            written, made_by = dict(state["run"]), dict(state["versions"])
            validation.require(type(step) is int and 0 < step <= self.horizon, "step", step, "of the run")
            validation.non_negative("seconds", seconds)
            generator = torch.Generator().set_state(state["torch"])
        said = said_differences(written, self._asked)
        if said:
            raise ValueError(f"checkpoint {name!r} must be of the run asked for: {said}")
        warn_of_versions(name, made_by)
        with whole_or_refused(name, "run"), unchanged_on_error(*self._parts.values()):
            for key, part in self._parts.items():
                check_kinds(state["parts"][key], part.state_dict(), key)
                part.load_state_dict(state["parts"][key])
            validation.require(state["parts"]["record"]["done"] == step, "step", step, "the record's")
        torch.set_rng_state(generator.get_state())
        self.earlier_seconds = seconds
        return step

    def steps_left(self, step: int) -> int:
        """The number of steps after this one until the next checkpoint or the end of the run."""
        left = self.horizon - step
        return left if self.path is None else min(left, self.every - step % self.every)

    def after(self, step: int) -> None:
        """Write the file if it is due after this step."""
        if self.path is None or (step % self.every and step != self.horizon):
            return
        seconds = self.earlier_seconds + perf_counter() - self._started
        state = {"step": step, "seconds": seconds, "run": self._asked, "versions": versions_here()}
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        write_state(self.path, "run", {**state, "parts": parts, "torch": torch.get_rng_state()})


def what_is_run(
    policy: Policy, problem: Problem, horizon: int, seed: int, first_replicate: int
) -> dict[str, Any]:
    """Plain values that identify a run: names, sizes, seed, settings, and the policy's state at the start."""
    built = description(policy, "policy")
    for name, value in vars(problem).items():
        if not name.startswith("_"):
            built |= description(value, f"problem.{name}", foreign=False)
    return {
        "policy's name": name_of(policy),
        "problem": name_of(problem),
        "horizon": horizon,
        "seed": seed,
        "replicates": policy.replicates,
        "first_replicate": first_replicate,
        "num_arms": policy.num_arms,
        "device": str(problem.arms.device),
        **{key: described(leaf)[""] if isinstance(leaf, Tensor) else leaf for key, leaf in built.items()},
        **described(policy.state_dict(), "policy's state"),
        "problem's rewards at step 1": described(problem.expected_rewards(1))[""],
    }


def versions_here() -> dict[str, str]:
    """Versions and number of threads, on which the last bits of a run's numbers depend."""
    return versions() | {"threads": str(torch.get_num_threads())}


def warn_of_versions(path: str, written: Mapping[str, str]) -> None:
    now = versions_here()
    changed = [f"{name} {was}, now {now.get(name)}" for name, was in written.items() if now.get(name) != was]
    if changed:
        warnings.warn(
            f"{path!r} was written with {'; '.join(changed)}: what follows may differ in the last bits",
            stacklevel=4,
        )

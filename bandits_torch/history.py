"""The history of a run, by replicate and step, and the recorder that checks, scores and stores each step during the run
without waiting for a GPU."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import botorch
import gpytorch
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch._version import __version__
from bandits_torch.policies.choices import choices_of
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.state_files import read_state, whole_or_refused, write_state

COLUMNS = ("replicate", "step", "time", "arm", "reward", "expected", "best", "regret")
PER_REPLICATE = ("arms", "rewards", "expected_rewards", "best")
_PER_STEP = ("times", "seconds")


@dataclass(eq=False, repr=False)
class History:
    """The record of one run: S replicates, T steps. Every tensor lies on the CPU.

    Attributes:
        arms: (S, T) integers, the arms pulled; on a continuous domain (S, T, d), the points played.
        rewards: (S, T) rewards that the policy observed, with noise.
        expected_rewards: (S, T) mean rewards of the arms pulled.
        best: (S, T) highest mean reward among the arms available at the step.
        times: (T,) time of each step, in the problem's unit.
        seconds: (T,) wall-clock time of ``choose`` plus ``learn`` for all replicates. On a GPU this is the time to
            launch the work; ``meta["wall_seconds"]`` is exact on any device.
        trace: values that policy and problem reported at each step, by name, (S, T) or (T,); NaN if none was reported.
        meta: plain values: names of policy and problem, seed, device, versions, wall_seconds.

    Raises ValueError for a tensor of the wrong shape, and for a name in ``trace`` that is one of ``COLUMNS``.
    """

    arms: Tensor
    rewards: Tensor
    expected_rewards: Tensor
    best: Tensor
    times: Tensor
    seconds: Tensor
    trace: dict[str, Tensor] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arms = validation.of_shape("arms", self.arms, ("S", "T"), ("S", "T", "d"), note=" of points")
        shape = arms.shape[:2]
        for name in PER_REPLICATE[1:]:
            validation.of_shape(name, getattr(self, name), shape, note=", as arms")
        for name in _PER_STEP:
            validation.of_shape(name, getattr(self, name), shape[1:], note=", one per step")
        for name, value in self.trace.items():
            validation.require(name not in COLUMNS, "name in trace", name, f"other than {COLUMNS}")
            validation.of_shape(f"trace[{name!r}]", value, shape, shape[1:])

    def __repr__(self) -> str:
        of = f"{self.meta.get('policy', 'a policy')} on {self.meta.get('problem', 'a problem')}"
        steps = (
            f"{self.replicates} replicates, {self.horizon} steps, regret {self.mean_cumulative_regret:.4g}"
        )
        return f"<History of {of}: {steps}>"

    @property
    def replicates(self) -> int:
        """S."""
        return self.arms.shape[0]

    @property
    def horizon(self) -> int:
        """T."""
        return self.arms.shape[1]

    @property
    def regret(self) -> Tensor:
        """Dynamic regret of each step, max_x f_t(x) - f_t(x_t) over the arms available at t, (S, T)."""
        return self.best - self.expected_rewards

    @property
    def cumulative_regret(self) -> Tensor:
        """Sum of the regret up to and including each step, (S, T)."""
        return self.regret.cumsum(-1)

    @property
    def mean_cumulative_regret(self) -> float:
        """Total regret of the run, averaged over replicates."""
        return float(self.regret.sum(-1).mean())

    @property
    def standard_error(self) -> float:
        """Standard error of ``mean_cumulative_regret``; NaN for a single replicate, and for identical ones."""
        return math.nan if self.identical else float(standard_error(self.regret.sum(-1)))

    @property
    def identical(self) -> bool:
        """Whether all replicates have the same arms, rewards and expected rewards. Then nothing in the run was random,
        and the spread of 0 does not measure an error."""
        seen = (self.arms, self.rewards, self.expected_rewards)
        return all(bool((values == values[:1]).all()) for values in seen)

    @property
    def ms_per_step(self) -> float:
        """Milliseconds per step for all replicates together: on a CPU, of ``choose`` and ``learn``; on a GPU, of the
        whole loop, because timing its parts would slow it down."""
        on_cpu = str(self.meta.get("device", "cpu")) == "cpu"
        total = float(self.seconds.sum()) if on_cpu else float(self.meta["wall_seconds"])
        return 1e3 * total / self.horizon

    def to_frame(self) -> pd.DataFrame:
        """One row per replicate and step: the columns ``COLUMNS``, then one per name in ``trace``.

        On a continuous domain, columns x0, x1, ... of the coordinates replace ``arm``. Replicates are numbered from
        ``meta["first_replicate"]``, steps from 1.
        """
        S, T = self.arms.shape[:2]
        points = self.arms.dim() == 3
        first = int(self.meta.get("first_replicate", 0))
        columns = {
            "replicate": torch.arange(first, first + S).unsqueeze(1).expand(S, T),
            "step": torch.arange(1, T + 1).expand(S, T),
            "time": self.times.expand(S, T),
            **({f"x{i}": x for i, x in enumerate(self.arms.unbind(-1))} if points else {"arm": self.arms}),
            "reward": self.rewards,
            "expected": self.expected_rewards,
            "best": self.best,
            "regret": self.regret,
        }
        columns |= {name: value.expand(S, T) for name, value in self.trace.items()}
        return pd.DataFrame({name: value.reshape(-1).numpy() for name, value in columns.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a compressed ``.npz`` of plain arrays and a JSON header, atomically."""
        content = {one.name: getattr(self, one.name) for one in fields(self)}
        write_state(path, "history", content, compressed=True)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> History:
        """Read a file that ``save`` wrote, without executing anything in it.

        Raises FileNotFoundError, and ValueError for a file that is truncated, damaged, not a history or of another
        format version.
        """
        content = read_state(path, "history")
        with whole_or_refused(os.fspath(path), "history"):
            return History(**content)


def standard_error(values: Tensor) -> Tensor:
    """Standard error of the mean over the first dimension; NaN for a single row."""
    count = values.shape[0]
    if count == 1:
        return torch.full_like(values[0], torch.nan)
    return values.std(0) / count**0.5


_CHECK_EVERY = 100  # steps between checks that wait for a GPU; on a CPU every step is checked


@cache
def versions() -> dict[str, str]:
    """Versions of the software that a run's numbers depend on: one dictionary, which is not to be changed."""
    return {
        "bandits_torch": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "gpytorch": gpytorch.__version__,
        "botorch": botorch.__version__,
        "numpy": np.__version__,
        "numba": metadata.version("numba") if find_spec("numba") else "none",
    }


class Recorder:
    """Records one run, step by step, in tensors allocated in advance on the problem's device.

    Args:
        policy, problem: those that are run; the recorder only reads sizes, names and expected rewards.
        horizon: T.

    Cost of a step: O(S), and the cost of ``Problem.score``. It is checked at every step on a CPU, else every 100 steps.
    """

    def __init__(self, policy: Policy, problem: Problem, horizon: int) -> None:
        self._problem, self._policy = problem, policy
        self._shape = (horizon, policy.replicates)
        self._on_cpu = problem.arms.device.type == "cpu"
        self._choices = choices_of(problem.choices, policy.replicates)
        zeros, d = partial(torch.zeros, device=problem.arms.device), self._choices.dim
        numbers = ("reward", "expected", "best")
        self._rows = {name: zeros(self._shape, dtype=torch.float64) for name in numbers}
        self._rows["arm"] = zeros((*self._shape, d), dtype=torch.float64) if d else zeros(self._shape).long()
        self._times, self._seconds = np.zeros(horizon), np.zeros(horizon)
        self._trace: dict[str, Tensor] = {}
        self._checked = self._done = 0

    def chosen(self, step: int, arm: Tensor) -> None:
        """Record the arms (S,), or points (S, d), before they are pulled."""
        self._choices.check_choice(arm, f"arm of step {step}")
        self._rows["arm"][step - 1] = arm

    def pulled(self, step: int, arm: Tensor, reward: Tensor, available: Any) -> None:
        """Record the rewards (S,) and score the arms."""
        validation.of_shape("reward", reward, self._shape[1:])
        expected, best = self._problem.score(step, arm, available)
        for name, value in {"reward": reward, "expected": expected, "best": best}.items():
            self._rows[name][step - 1] = without_gradient(value)
        if self._on_cpu or step % _CHECK_EVERY == 0:
            self._check(step)

    def learnt(self, step: int, time: float, seconds: float, trace: dict[str, Tensor | float]) -> None:
        """Record the time of the step, its seconds and the policy's trace."""
        self._done = step
        self._times[step - 1], self._seconds[step - 1] = time, seconds
        for name, value in trace.items():
            self._trace_rows(name, value)[step - 1] = without_gradient(value)

    def block(self, first: int, times: list[float], rows: Mapping[str, Tensor], seconds: float) -> None:
        """Record k steps from ``first`` onwards that were played together: rows (k, S) of arm, reward, expected and
        best, and (k,) or (k, S) of the policy's trace; ``seconds`` of all steps together. Checked at their end."""
        k = len(times)
        at, last = slice(first - 1, first - 1 + k), first + k - 1
        self._times[at], self._seconds[at], self._done = times, seconds / k, last
        for name, value in rows.items():
            written = self._rows[name] if name in self._rows else self._trace_rows(name, value[0])
            written[at] = value if value.dim() == written.dim() else value.unsqueeze(-1)
        if self._on_cpu or last // _CHECK_EVERY > (first - 1) // _CHECK_EVERY:
            self._check(last)

    def history(self, meta: dict[str, Any]) -> History:
        """The History of the steps recorded; waits for the device."""
        self._check(self._shape[0])
        rows = (self._rows[name] for name in ("arm", "reward", "expected", "best"))
        arms, rewards, expected, best = (value.transpose(0, 1).contiguous().cpu() for value in rows)
        times, seconds = torch.from_numpy(self._times), torch.from_numpy(self._seconds)
        trace = {name: value.cpu().movedim(0, -1).contiguous() for name, value in self._trace.items()}
        return History(arms, rewards, expected, best, times, seconds, trace, meta)

    def state_dict(self) -> dict[str, Any]:
        """The steps recorded so far."""
        done = self._done
        rows = {name: values[:done] for name, values in self._rows.items()}
        clock = torch.from_numpy(np.stack([self._times[:done], self._seconds[:done]]))
        trace = {name: values[:done] for name, values in self._trace.items()}
        return {"done": done, "checked": self._checked, "rows": rows, "clock": clock, "trace": trace}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``."""
        done = self._done = state["done"]
        self._checked = state["checked"]
        for name, values in self._rows.items():
            values[:done] = state["rows"][name]
        self._times[:done], self._seconds[:done] = state["clock"].numpy()
        self._trace = {}
        for name, values in state["trace"].items():
            self._trace_rows(name, values[0])[:done] = values

    def _check(self, last: int) -> None:
        """Refuse rewards that are not finite and arms that were not available, in the steps since the last check."""
        rows = slice(self._checked, last)
        # One sum is enough: an arm that was not available has minus infinity, and a sum keeps NaN and infinity.
        total = self._rows["reward"][rows] + self._rows["expected"][rows] + self._rows["best"][rows]
        if not math.isfinite(total.sum().item()):
            kinds = {"reward": "rewards", "expected": "expected rewards", "best": "best expected reward"}
            for name, kind in kinds.items():
                values = self._rows[name]
                bad = (~torch.isfinite(values[rows])).nonzero()
                if not len(bad):
                    continue
                row, replicate = self._checked + int(bad[0, 0]), int(bad[0, 1])
                value, where = float(values[row, replicate]), f"at step {row + 1}, replicate {replicate}"
                arm, policy = self._rows["arm"][row, replicate].tolist(), name_of(self._policy)
                if name == "expected" and value == -math.inf:
                    raise ValueError(f"policy {policy} chose arm {arm}, which is not available, {where}")
                where = f"{where}, arm {arm}, {name_of(self._problem)}"
                raise ValueError(f"{kind} must be finite, got {value} {where}")
        self._checked = last

    def _trace_rows(self, name: str, value: Tensor | float) -> Tensor:
        """The rows of a name, (T,) or (T, S), made or widened to hold ``value``; NaN where none was written."""
        rows = self._trace.get(name)
        shape = value.shape if isinstance(value, Tensor) else ()
        if rows is not None and rows.dim() > len(shape):
            return rows
        validation.require(name not in COLUMNS, "name in trace()", name, f"other than {COLUMNS}")
        ok = shape in ((), self._shape[1:])
        validation.require(ok, f"trace()[{name!r}]", value, f"a scalar or of shape {self._shape[1:]}")
        device = value.device if isinstance(value, Tensor) else torch.device("cpu")
        wide = torch.full((self._shape[0], *shape), torch.nan, dtype=torch.float64, device=device)
        if rows is not None:
            wide[:] = rows.to(device).unsqueeze(1)
        self._trace[name] = wide
        return wide


def without_gradient(value: Any) -> Any:
    """The value without the gradient of a problem made of a network: a record would keep the graphs of all steps."""
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


def name_of(thing: object) -> str:
    """The name of a policy or problem: its ``name`` if it has one, else the name of its class."""
    return str(getattr(thing, "name", type(thing).__name__))

"""Writes a History while a run goes on: checks, scores and stores each step without waiting for a GPU."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from functools import partial
from typing import Any

import botorch
import gpytorch
import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch._version import __version__
from bandits_torch.history import COLUMNS, History
from bandits_torch.policies.choices import choices_of
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem

_CHECK_EVERY = 100  # steps between checks that wait for a GPU; on a CPU every step is checked


def versions() -> dict[str, str]:
    """Versions of the software that a run's numbers depend on."""
    return {
        "bandits_torch": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "gpytorch": gpytorch.__version__,
        "botorch": botorch.__version__,
        "numpy": np.__version__,
    }


class Recorder:
    """Records one run, step by step, in tensors allocated in advance on the problem's device.

    Args:
        policy, problem: of the run; the recorder only reads sizes, names and expected rewards.
        horizon: T.

    Cost of a step: O(S), and that of ``Problem.score``. A CPU run is checked every step, any other every 100 steps.
    """

    def __init__(self, policy: Policy, problem: Problem, horizon: int) -> None:
        self._problem, self._policy = problem, policy
        self._shape = (horizon, policy.replicates)
        self._on_cpu = problem.arms.device.type == "cpu"
        zeros = partial(torch.zeros, self._shape, device=problem.arms.device)
        self._rewards, self._expected, self._best = (zeros(dtype=torch.float64) for _ in range(3))
        self._choices = choices_of(problem.choices, policy.replicates)
        d = self._choices.dim
        self._arms = self._rewards.new_zeros(*self._shape, d) if d else zeros(dtype=torch.long)
        self._times, self._seconds = np.zeros(horizon), np.zeros(horizon)
        self._trace: dict[str, Tensor] = {}
        self._checked = self._done = 0

    def chosen(self, step: int, arm: Tensor) -> None:
        """Record the arms (S,), or points (S, d), before they are pulled."""
        self._choices.check_choice(arm, f"arm of step {step}")
        self._arms[step - 1] = arm

    def pulled(self, step: int, arm: Tensor, reward: Tensor, available: Any) -> None:
        """Record the rewards (S,) and score the arms."""
        validation.shape_is("reward", reward, reward.shape == self._shape[1:], f"{self._shape[1:]}")
        self._rewards[step - 1] = reward
        self._expected[step - 1], self._best[step - 1] = self._problem.score(step, arm, available)
        if self._on_cpu or step % _CHECK_EVERY == 0:
            self._check(step)

    def learnt(self, step: int, time: float, seconds: float, trace: dict[str, Tensor | float]) -> None:
        """Record the time of the step, its seconds and the policy's trace."""
        self._done = step
        self._times[step - 1], self._seconds[step - 1] = time, seconds
        for name, value in trace.items():
            rows = self._trace.get(name)
            if rows is None or (isinstance(value, Tensor) and value.dim() >= rows.dim()):
                rows = self._trace[name] = self._trace_rows(name, value)
            rows[step - 1] = value

    def block(self, first: int, times: list[float], rows: Mapping[str, Tensor], seconds: float) -> None:
        """Record k steps from ``first`` on that were played together: rows (k, S) of arm, reward, expected and best,
        and (k,) or (k, S) of the policy's trace; ``seconds``: of all steps. They are checked like single steps."""
        k = len(times)
        at, last = slice(first - 1, first - 1 + k), first + k - 1
        told = dict(rows)
        self._arms[at] = told.pop("arm")
        self._rewards[at], self._expected[at] = told.pop("reward"), told.pop("expected")
        self._best[at] = told.pop("best")
        self._times[at], self._seconds[at], self._done = times, seconds / k, last
        for name, value in told.items():
            held = self._trace.get(name)
            if held is None or value.dim() > held.dim():
                held = self._trace[name] = self._trace_rows(name, value[0])
            held[at] = value if value.dim() == held.dim() else value.unsqueeze(-1)
        if self._on_cpu or last // _CHECK_EVERY > (first - 1) // _CHECK_EVERY:
            self._check(last)

    def one_a_step(self, names: tuple[str, ...]) -> None:
        """Keep one value a step for these names, whose values are the same for all replicates."""
        for name in names:
            if (rows := self._trace.get(name)) is not None and rows.dim() > 1:
                self._trace[name] = rows[:, 0].clone()

    def history(self, meta: dict[str, Any]) -> History:
        """The History of the steps recorded; waits for the device."""
        self._check(self._shape[0])
        rows = (self._arms, self._rewards, self._expected, self._best)
        arms, rewards, expected, best = (value.transpose(0, 1).contiguous().cpu() for value in rows)
        times, seconds = torch.from_numpy(self._times), torch.from_numpy(self._seconds)
        trace = {name: value.cpu().movedim(0, -1).contiguous() for name, value in self._trace.items()}
        return History(arms, rewards, expected, best, times, seconds, trace, meta)

    _PER_STEP = ("_arms", "_rewards", "_expected", "_best")

    def state_dict(self) -> dict[str, Any]:
        """The steps recorded so far."""
        done = self._done
        rows = {name: getattr(self, name)[:done] for name in self._PER_STEP}
        clock = torch.from_numpy(np.stack([self._times[:done], self._seconds[:done]]))
        trace = {name: values[:done] for name, values in self._trace.items()}
        return {"done": done, "checked": self._checked, "rows": rows, "clock": clock, "trace": trace}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``."""
        done = self._done = state["done"]
        self._checked = state["checked"]
        for name in self._PER_STEP:
            getattr(self, name)[:done] = state["rows"][name]
        self._times[:done], self._seconds[:done] = state["clock"].numpy()
        self._trace = {}
        for name, values in state["trace"].items():
            self._trace[name] = self._trace_rows(name, values[0])
            self._trace[name][:done] = values

    def _check(self, last: int) -> None:
        """Refuse rewards that are not finite and arms that were not available, in the steps since the last check."""
        rows = slice(self._checked, last)
        kinds = {
            "rewards": self._rewards,
            "expected rewards": self._expected,
            "best expected reward": self._best,
        }
        # One sum tells: minus infinity marks an arm that was not available, and NaN or infinity survive.
        total = self._rewards[rows] + self._expected[rows] + self._best[rows]
        if not math.isfinite(total.sum().item()):
            for kind, values in kinds.items():
                bad = (~torch.isfinite(values[rows])).nonzero()
                if len(bad):
                    self._refuse(kind, values, self._checked + int(bad[0, 0]), int(bad[0, 1]))
        self._checked = last

    def _refuse(self, kind: str, values: Tensor, row: int, replicate: int) -> None:
        value, where = float(values[row, replicate]), f"at step {row + 1}, replicate {replicate}"
        arm = self._arms[row, replicate].tolist()
        if values is self._expected and value == -math.inf:
            raise ValueError(f"policy {name_of(self._policy)} chose arm {arm}, not available, {where}")
        raise ValueError(f"{kind} must be finite, got {value} {where}, arm {arm}, {name_of(self._problem)}")

    def _trace_rows(self, name: str, value: Tensor | float) -> Tensor:
        """Rows for a name's values, NaN where none was given; those written so far are kept."""
        validation.require(name not in COLUMNS, "name in trace()", name, f"other than {COLUMNS}")
        shape = value.shape if isinstance(value, Tensor) else ()
        ok = shape in ((), self._shape[1:])
        validation.require(ok, f"trace()[{name!r}]", value, f"a scalar or of shape {self._shape[1:]}")
        device = value.device if isinstance(value, Tensor) else torch.device("cpu")
        rows = torch.full((self._shape[0], *shape), torch.nan, dtype=torch.float64, device=device)
        if name in self._trace:
            rows[:] = self._trace[name].to(device).unsqueeze(1)
        return rows


def name_of(thing: object) -> str:
    """The name of a policy or problem: its ``name`` if it has one, else its class."""
    return str(getattr(thing, "name", type(thing).__name__))

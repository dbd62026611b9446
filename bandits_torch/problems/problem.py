"""The base class of problems, what is known of one in advance (``Knowledge``), and the registry of named problems."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import naming, validation
from bandits_torch.arm_context import ArmContext, mask_of
from bandits_torch.domain import Domain
from bandits_torch.models.candidate_priors import CandidatePrior
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.problems.periods import Cycles
from bandits_torch.streams import ReplicateStreams


@dataclass(frozen=True)
class Knowledge:
    """What a user could know before the first pull; recipes take their defaults from it.

    A number holds for every replicate. A tensor (replicates,) has a value for each, the same as for that replicate
    alone.

    Attributes:
        kernel: prior covariance over the arms: ``kernel(problem.arms)`` is N x N.
        noise_variance: lambda, in squared units of reward.
        prior_mean: prior mean reward, a number or (N,).
        rkhs_bound: B, a bound on the RKHS norm of the reward function.
        forgetting_rate: epsilon of the exponential-forgetting time kernel, per unit of time.
        variation_budget: the sum over the steps of the largest change of any arm's mean; None if unknown.
        rkhs_variation_budget: P_T of Zhou & Shroff (2021), the sum over the steps of the RKHS norm of the change; None
            if unknown. Exact budgets are no smaller than ``variation_budget`` if k(x, x) <= 1.
        priors: candidate priors of the reward function, which replace the fields above; None if the prior is known.
        constraints: outcomes that are measured with the reward and must stay within limits; None without outcomes.
        safe_arms: arms within the limits at the first step, (N,) or (replicates, N) booleans; None if none is known.
        cycles: the cycle of each arm, for ``auto``; None if none is known.
        context_dim: dimension of the context of every step (``ArmContext``); 0: none.
        context_kernel: prior covariance over contexts, which multiplies ``kernel``; None without a context.

    Raises ValueError for a matrix instead of a kernel.
    """

    kernel: Kernel
    noise_variance: float | Tensor
    prior_mean: float | Tensor = 0.0
    rkhs_bound: float | Tensor = 1.0
    forgetting_rate: float = 0.03
    variation_budget: float | Tensor | None = None
    rkhs_variation_budget: float | Tensor | None = None
    priors: Sequence[CandidatePrior] | None = None
    constraints: Sequence[OutcomeConstraint] | None = None
    safe_arms: Tensor | None = None
    cycles: Cycles | None = None
    context_dim: int = 0
    context_kernel: Kernel | None = None

    def __post_init__(self) -> None:
        expected = "a kernel over the arms: of their covariance matrix, ArmCovarianceKernel(matrix)"
        validation.require(not isinstance(self.kernel, Tensor), "kernel", self.kernel, expected)

    def to(self, *args: Any, **kwargs: Any) -> Knowledge:
        """A copy with its tensors moved as by ``Tensor.to``; kernels are moved in place.

        Candidate priors are not moved: a model over them takes the arms' dtype and device.
        """
        movable = {name: value for name, value in vars(self).items() if isinstance(value, Tensor | Kernel)}
        moved: dict[str, Any] = {name: value.to(*args, **kwargs) for name, value in movable.items()}
        if self.safe_arms is not None:  # a mask, whatever the dtype of the rest
            moved["safe_arms"] = moved["safe_arms"].bool()
        return replace(self, **moved)


class Problem(ABC):
    """A finite set of arms whose expected rewards may change from step to step.

    The rewards of a step depend only on the step and on the random numbers passed in. So steps may come in any order,
    and an interrupted run resumes without the problem's state.

    Attributes:
        arms: (N, d) features of the arms.
        replicates: number of reward functions in the batch; 1 serves any number of replicates, with one function
            and independent noise.
        knowledge: what a user knows in advance.
        horizon: the last step, None without an end.
        true_prior: the true prior, or the best in hindsight, for an oracle only; None if there is none.
        dim: d, the dimension of a ``ContinuousProblem``; 0 with arms.
        noise_scale: standard deviation of the normal noise, a number or (replicates,), unless ``noise`` is defined.
        noise_is_added: whether ``noise`` depends on the step and the streams alone, not on the arms, so it can be
            drawn before they are chosen (``run(..., capture=True)``).
        outcome_names: names of the outcomes measured with the reward.
        arm_names: names of the arms; empty if they have none.
    """

    arms: Tensor
    replicates: int
    knowledge: Knowledge
    horizon: int | None = None
    true_prior: CandidatePrior | None = None
    dim: int = 0
    outcome_names: tuple[str, ...] = ()
    arm_names: tuple[str, ...] = ()
    noise_scale: Tensor
    noise_is_added: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            validation.names_arguments(cls)
        known = {base.noise for base in cls.__bases__ if issubclass(base, Problem)}
        if cls.noise not in known and "noise_is_added" not in vars(cls):
            cls.noise_is_added = False  # what a base class says of its own noise does not hold for another

    @property
    def num_arms(self) -> int:
        """N."""
        return self.arms.shape[-2]

    @property
    def choices(self) -> Tensor | Domain:
        """What a policy chooses from: the features of the arms; the ``Domain`` of a ``ContinuousProblem``."""
        return self.arms

    @abstractmethod
    def expected_rewards(self, step: int) -> Tensor:
        """Mean reward of every arm at step 1, 2, ...: (replicates, N). For the scorer only."""

    def score(self, step: int, arm: Tensor, available: Any) -> tuple[Tensor, Tensor]:
        """Expected rewards (S,) of the arms (S,) chosen, minus infinity if unavailable, and of the best available arm,
        (S,) or (1,). For the scorer only. Cost: O(S N)."""
        expected = self.expected_rewards(step)
        validation.of_shape("expected_rewards", expected, (self.replicates, self.num_arms))
        rewards = available_rewards(expected, available)
        return at_arms(rewards, arm), rewards.amax(-1)

    def pull(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Rewards (S,) of the arms (S,) pulled at this step: expected rewards plus ``noise``."""
        return at_arms(self.expected_rewards(step), arm) + self.noise(step, arm, streams)

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Noise (S,) on the rewards of the arms (S,)."""
        return gaussian_noise(self.noise_scale, streams)

    def measure(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor | None:
        """Outcomes (S, m) measured with the rewards of the arms (S,) pulled; None if there are none."""
        return None

    def trace(self, step: int, arm: Tensor) -> dict[str, Tensor | float]:
        """Values about the arms (S,) pulled that the record of a run keeps with the policy's trace."""
        return {}

    def available(self, step: int) -> Tensor | ArmContext | None:
        """Mask (N,) or (S, N) of the arms that can be pulled at this step; None: all of them.

        An ``ArmContext`` if the step has a context or its own features of the arms."""
        return None

    def time(self, step: int) -> float:
        """The time of the step, in the problem's unit; by default k for step k."""
        return float(step)

    def why_not_in_blocks(self) -> str:
        """Why steps cannot be played in blocks, where noise is drawn before arms are chosen; empty if they can."""
        kind = type(self)
        if self.dim:
            return "arms by index can be, points of a domain cannot"
        if any(getattr(kind, one) is not getattr(Problem, one) for one in ("pull", "score", "trace")):
            return "it overrides pull, score or trace"
        if isinstance(self.available(1), ArmContext):
            return "every step has a context"
        if not self.noise_is_added:
            return "its noise may depend on the arms pulled (noise_is_added is not declared)"
        return ""

    def summary(self) -> list[str]:
        """Lines on what was read and estimated; empty for a simulated problem."""
        return []

    def check_step(self, step: int) -> None:
        """Raise a ValueError unless ``step`` is an integer in 1, ..., horizon."""
        last = self.horizon
        ok = isinstance(step, int) and step >= 1 and (last is None or step <= last)
        if not ok:
            allowed = ">= 1" if last is None else f"in 1, ..., {last}"
            raise ValueError(f"step must be an integer {allowed}, got {step!r}")

    def to(self, *args: Any, **kwargs: Any) -> Problem:
        """Move the problem's tensors, domains and modules as ``Tensor.to`` does, in place; returns self."""
        self.knowledge = self.knowledge.to(*args, **kwargs)
        self.arms = self.arms.to(*args, **kwargs)
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and not value.is_floating_point():
                setattr(self, name, value.to(device=self.arms.device))  # a mask keeps its dtype
            elif isinstance(value, Tensor | Domain | torch.nn.Module):
                setattr(self, name, value.to(*args, **kwargs))
        return self


def per_replicate(value: Tensor) -> float | Tensor:
    """A value (replicates,) in the form of ``Knowledge``: a float if all replicates have the same."""
    return float(value[0]) if bool((value == value[0]).all()) else value


def at_arms(values: Tensor, arm: Tensor) -> Tensor:
    """The values ((1, N) or (S, N)) of the arms (S,), (S,)."""
    return values.expand(len(arm), -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)


def gaussian_noise(scale: Tensor | float, streams: ReplicateStreams) -> Tensor:
    """Normal noise (S,) of standard deviation ``scale`` (a number or (S,)).

    ``streams`` gives each replicate its own random numbers, of the dtype and device of the result.
    """
    return streams.normal() * torch.as_tensor(scale, dtype=streams.dtype, device=streams.device)


def available_rewards(expected: Tensor, available: Tensor | ArmContext | None) -> Tensor:
    """The expected rewards ((R, N) or (S, N)), minus infinity for arms that are not available."""
    mask = mask_of(available)
    return expected if mask is None else expected.masked_fill(~mask, -math.inf)


# --- names ---

Factory = TypeVar("Factory", bound=Callable[..., Problem])
# Parameters that are no options: the arguments of ``make``, and those of classes that are not given by name.
_NOT_OPTIONS = {
    *("replicates", "horizon", "seed", "data", "path"),
    *("function", "table", "times", "arms", "history", "history_times"),
}


@dataclass(frozen=True)
class NamedProblem:
    """The registration of a problem, read by the command line, the documentation and tests of all problems.

    Attributes:
        name: the argument of ``make``.
        factory: the class or function that makes the problem.
        stationary: whether its functions never change.
        random: whether they are drawn at random, from the seed and the replicate's number.
        quick: options that make the problem small, for tests.
        passes_to: functions to which the factory passes ``**options`` on, unless it is a class with a base class.
    """

    name: str
    factory: Callable[..., Problem]
    stationary: bool = False
    random: bool = False
    quick: Mapping[str, Any] = field(default_factory=dict)
    passes_to: tuple[Callable[..., Any], ...] = ()

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """All its parameters, by name; those of the base class or of ``passes_to`` also, if it takes ``**options``."""
        found: dict[str, inspect.Parameter] = {}
        for one in getattr(self.factory, "__mro__", (self.factory,)):
            own = inspect.signature(one).parameters.values()
            found |= {p.name: p for p in own if p.name not in found and p.kind is not p.VAR_KEYWORD}
            if all(p.kind is not p.VAR_KEYWORD for p in own):
                break
        for one in self.passes_to:
            found |= {key: p for key, p in inspect.signature(one).parameters.items() if key not in found}
        return found

    @property
    def options(self) -> dict[str, Any]:
        """Its parameters beyond the arguments of ``make``, with their defaults."""
        return {key: p.default for key, p in self.parameters.items() if key not in _NOT_OPTIONS}

    @property
    def needs_data(self) -> bool:
        """Whether it replays real data."""
        return "data" in self.parameters


PROBLEMS: dict[str, Callable[..., Problem]] = {}  # factories by name
REGISTERED: dict[str, NamedProblem] = {}  # the same problems by name


def named(name: str, **about: Any) -> Callable[[Factory], Factory]:
    """Register the decorated class or function under this name; the keywords are those of ``NamedProblem``.

    Raises ValueError for a name that is taken. The same class or function of the same module may be defined again; the
    new one replaces the old.
    """

    def register(factory: Factory) -> Factory:
        entry = NamedProblem(name, factory, **about)
        naming.register("name of a problem", entry, factory, REGISTERED, PROBLEMS)
        return factory

    return register


def make(
    name: str,
    *,
    replicates: int = 1,
    horizon: int | None = None,
    seed: int = 0,
    data: str | Path | None = None,
    **options: Any,
) -> Problem:
    """Build the problem of that name.

    Args:
        name: a key of ``PROBLEMS``.
        replicates: number of reward functions (for real data: of runs on the table) in the batch.
        horizon: number of steps; None: the problem's default. Problems without this parameter ignore it.
        seed: seed of all random numbers of the problem.
        data: file (or its folder) of a problem that replays real data.
        options: arguments of the problem (``options_of``).

    Raises:
        ValueError: unknown name or option (the message lists the known ones); missing or superfluous data;
            whatever the problem refuses.
    """
    about = registered(name)
    validation.known_names(f"options of problem {name!r}", options, about.options)
    if about.needs_data and data is None:
        raise ValueError(f"data must be given for problem {name!r}: the path of its file, got None")
    if not about.needs_data and data is not None:
        raise ValueError(f"data must be None for problem {name!r}, which reads no file, got {str(data)!r}")
    if data is not None:
        expected = "the path of a file (a table in memory is a problem by itself: problems.Replay(tensor))"
        validation.instance("data", data, (str, Path), expected)
    common: dict[str, Any] = {"replicates": replicates, "seed": seed}
    common |= {key: value for key, value in {"horizon": horizon, "data": data}.items() if value is not None}
    given = {key: value for key, value in common.items() if key in about.parameters}
    return about.factory(**given, **options)


def registered(name: str) -> NamedProblem:
    """The registration of a problem.

    ``name``: of a problem, of an entry point of the group ``bandits_torch.problems``, or ``module:name`` of a
    registered class or function. Raises ValueError for an unknown name.
    """
    entry: NamedProblem = naming.registered("problems", "problem name", name, REGISTERED, PROBLEMS)
    return entry


def options_of(name: str) -> dict[str, Any]:
    """The options of the problem ``name`` beyond those of ``make``, with their defaults."""
    return registered(name).options

"""What is known before the first step, in one frozen record that every recipe reads."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.arms.candidate_priors import CandidatePrior
from bandits_torch.policies.learning import LearnedHyperparameters

Number = float | Tensor
Choices = Tensor | int | Domain  # features of arms, their number, or where points may be played


@dataclass(frozen=True, eq=False)
class Setup:
    """What can be chosen, what is believed of its rewards, and how a policy is run: what recipes have in common.

    One setup serves many recipes: each reads what concerns it, and has further arguments of its own. A copy that
    differs in something is ``dataclasses.replace(setup, replicates=5)``.

    Args:
        choices: ``(N, d)`` features of arms, N, or the ``Domain`` whose points are played.
        kernel: prior covariance over arms or points, static; None where nothing is believed.
        noise_variance: lambda, a number or one for each replicate, (S,); None where it is not known.
        prior_mean: prior mean reward, a number or (N,).
        priors: the ``CandidatePrior``s of the recipes for an unknown prior.
        prior: the true one among them, which the oracle is told.
        replicates: S runs advanced together.
        seed, first_replicate: of the policy's own random numbers, and the number of its first replicate.
        form: of ``ArmGP``, ``"auto"``, ``"covariance"`` or ``"factor"``.
        search: a ``PointSearch`` (or its arguments), how points of a ``Domain`` are searched for.
        learn_hyperparameters: True, or the arguments of ``LearnedHyperparameters``, to refit kernel, noise and mean.

    Raises ValueError for ``replicates`` below 1, a ``seed`` or ``first_replicate`` below 0, and a ``search`` of another
    kind, and arguments that ``search`` or ``learn_hyperparameters`` do not take; what is made of it checks the rest.
    """

    choices: Choices
    kernel: Kernel | Tensor | None = None
    noise_variance: Number | None = None
    prior_mean: Number = 0.0
    priors: Sequence[CandidatePrior] | None = None
    prior: CandidatePrior | None = None
    replicates: int = 1
    seed: int = 0
    first_replicate: int = 0
    form: str = "auto"
    search: PointSearch | Mapping[str, Any] | None = None
    learn_hyperparameters: bool | Mapping[str, Any] = False

    def __post_init__(self) -> None:
        validation.positive_integer("replicates", self.replicates)
        validation.natural("seed", self.seed)
        validation.natural("first_replicate", self.first_replicate)
        if self.search is not None:
            expected = "a PointSearch, or its arguments"
            validation.instance("search", self.search, (PointSearch, Mapping), expected)
        for name, known in _ARGUMENTS.items():
            given = getattr(self, name)
            if isinstance(given, Mapping):
                validation.known_names(f"arguments of {name}", given, known)

    @property
    def domain(self) -> Domain | None:
        """The domain whose points are played; None where there are arms."""
        return self.choices if isinstance(self.choices, Domain) else None

    @property
    def point_search(self) -> PointSearch | None:
        """How points are searched for, from its arguments if those were given."""
        return PointSearch(**self.search) if isinstance(self.search, Mapping) else self.search


# Fields that may be given as the arguments of what they stand for.
_ARGUMENTS = {
    "search": [*inspect.signature(PointSearch).parameters],
    "learn_hyperparameters": [*inspect.signature(LearnedHyperparameters).parameters, "anisotropy"][1:],
}
DEFAULTS: dict[str, Any] = {item.name: item.default for item in fields(Setup)}

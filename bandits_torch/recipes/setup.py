"""The setup: prior knowledge and settings in one frozen record that every recipe reads."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.candidate_priors import CandidatePrior
from bandits_torch.policies.learning import LearnedHyperparameters

Number = float | Tensor
Choices = Tensor | int | Domain  # features of arms, their number, or a domain of points


@validation.names_arguments
@dataclass(frozen=True, eq=False)
class Setup:
    """The arguments that recipes share: choices, prior knowledge of the rewards, and how the policy runs.

    One setup serves many recipes: each reads the fields it needs and has further keywords. For a changed copy use
    ``dataclasses.replace(setup, replicates=5)``.

    Args:
        choices: ``(N, d)`` features of arms, N, or a ``Domain`` of points.
        kernel: prior covariance over arms or points, static; None for recipes without a prior.
        noise_variance: lambda, a number or (S,); None if unknown.
        prior_mean: prior mean reward, a number or (N,).
        priors: candidate priors (``CandidatePrior``), for recipes with an unknown prior.
        prior: the true one among them, for the oracle.
        replicates: S runs advanced together.
        seed, first_replicate: of the policy's random numbers, and the number of its first replicate.
        form: of ``ArmGP``, ``"auto"``, ``"covariance"`` or ``"factor"``.
        search: a ``PointSearch`` (or its arguments), the optimiser over a ``Domain``.
        learn_hyperparameters: True, or the arguments of ``LearnedHyperparameters``, to refit kernel, noise and mean.
        grown_from: number of arms at the start, if more were added later (``AskTell.add_arms``). Decisions of ``auto``
            that depend on features use those of the first arms. None: all.

    Raises ValueError for ``replicates`` below 1, a ``seed`` or ``first_replicate`` below 0, and a ``search`` of another
    kind, and arguments that ``search`` or ``learn_hyperparameters`` do not take; recipes check the other fields.
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
    grown_from: int | None = None

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
        """The domain whose points are played; None for arms."""
        return self.choices if isinstance(self.choices, Domain) else None

    def of_arms(self, at: Tensor) -> Setup:
        """The setup of some of the arms, or of all in another order, by their numbers (n,) or by a mask (N,)."""
        choices, kernel, mean = self.choices, self.kernel, self.prior_mean
        features = (
            choices
            if isinstance(choices, Tensor)
            else torch.arange(cast(int, choices)).double().unsqueeze(-1)
        )
        at = at.to(features.device)
        if isinstance(kernel, Tensor):
            kernel = kernel[..., at, :][..., at]
        if isinstance(mean, Tensor) and mean.dim() > 0 and mean.shape[-1] == features.shape[-2]:
            mean = mean[..., at]
        return replace(self, choices=features[..., at, :], kernel=kernel, prior_mean=mean)

    @property
    def seeds(self) -> dict[str, Any]:
        """``seed`` and ``first_replicate``, the arguments of a policy that draws random numbers."""
        return {"seed": self.seed, "first_replicate": self.first_replicate}

    @property
    def point_search(self) -> PointSearch | None:
        """The ``PointSearch``, built from its arguments if those were given."""
        return PointSearch(**self.search) if isinstance(self.search, Mapping) else self.search


# Fields that may be given as a mapping of arguments, and the names of these.
_ARGUMENTS = {
    "search": [*inspect.signature(PointSearch).parameters],
    "learn_hyperparameters": [*inspect.signature(LearnedHyperparameters).parameters, "anisotropy"][1:],
}
DEFAULTS: dict[str, Any] = {item.name: item.default for item in fields(Setup)}

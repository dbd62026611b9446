"""The choices of a step: arms by index, arms by their features, or the points of a domain."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.choices.arms import Arms, ListedArms, ModelArms
from bandits_torch.policies.choices.choices import Choices, ModelChoices
from bandits_torch.policies.choices.points import ModelPoints, Points

__all__ = ["Arms", "Choices", "ModelChoices", "Points", "choices_of", "choices_over"]


def choices_of(choices: Tensor | int | Domain, replicates: int = 1) -> Choices:
    """The choices of S replicates, without a model: the points of a domain, or N arms.

    ``choices``: a ``Domain``, N, or the features ``(..., N, d)`` of N arms. Raises ValueError for anything else.
    """
    if isinstance(choices, Domain):
        return Points(choices, replicates)
    number = choices.shape[-2] if isinstance(choices, Tensor) and choices.dim() >= 2 else choices
    counts = isinstance(number, int) and not isinstance(number, bool) and number >= 1
    validation.require(counts, "choices", choices, "a Domain, N >= 1, or features (N, d) of N arms")
    return Arms(cast(int, number), replicates)


def choices_over(
    model: OnlineModel,
    choices: Tensor | Domain | None = None,
    *,
    search: PointSearch | None = None,
    seed: int = 0,
    first_replicate: int = 0,
) -> ModelChoices:
    """The choices of a policy with this model.

    Args:
        model: over arms, or over any inputs.
        choices: None for a model over arms, such as ``ArmGP``; features ``(N, d)`` of arms, or a ``Domain``, for any
            other model.
        search, seed, first_replicate: see ``ModelPoints``; for a domain.

    Raises ValueError for choices that do not fit the model, and a ``search`` without a domain.
    """
    validation.natural("seed", seed)
    if isinstance(choices, Domain):
        return ModelPoints(model, choices, search, seed, first_replicate)
    over_arms = isinstance(model, ArmModel)
    expected = "None with a model over arms; an N x d tensor or a Domain with any other model"
    validation.require(over_arms != isinstance(choices, Tensor), "choices", choices, expected)
    validation.require(over_arms == (choices is None), "choices", choices, expected)
    validation.require(search is None, "search", search, "None if arms are chosen")
    if isinstance(choices, Tensor):
        return ListedArms(model, choices)
    assert isinstance(model, ArmModel)
    return ModelArms(model)

"""What a policy knows before it chooses an arm: a context, features for this step, and which arms are available."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
@dataclass(frozen=True)
class ArmContext:
    """A context, features and a mask for one step over arms: the argument ``available`` of ``Policy.choose``.

    It takes the place of a plain mask. Over points of a domain, use ``Domain(fixed_features=...)``.

    Attributes:
        context: numbers that all arms share at this step and that describe, for example, a user or the weather: (c,),
            or (S, c) with one context per replicate. None: no context.
        features: features of the arms that replace the policy's at this step, (N, d) or (S, N, d). None: no change.
        available: mask of the arms that can be chosen, (N,) or (S, N). None: all.

    Raises ValueError if the context or the features have the wrong number of dimensions, are not finite real numbers or
    are above 1e140 in size, or if the mask is not a tensor. The policy checks sizes, and that the mask is boolean.
    """

    context: Tensor | None = None
    features: Tensor | None = None
    available: Tensor | None = None

    def __post_init__(self) -> None:
        shapes = {"context": (("c",), ("S", "c")), "features": (("N", "d"), ("S", "N", "d"))}
        for name, either in shapes.items():
            value = getattr(self, name)
            if value is not None:
                validation.of_shape(name, validation.finite_tensor(name, value), *either)
                validation.require(not value.is_complex(), name, value.dtype, "real numbers")
                validation.rewards(name, value.double())  # squares of distances must be finite, too
        if self.available is not None:
            validation.tensor("available", self.available)


def mask_of(available: Any) -> Any:
    """The mask of available arms, given alone or in an ``ArmContext``; None if there is none."""
    return available.available if isinstance(available, ArmContext) else available

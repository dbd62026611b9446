"""What a step over arms brings before the choice: a context, features of its own, arms that are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
@dataclass(frozen=True)
class ArmContext:
    """A step over arms that comes with more than a mask: the argument ``available`` of ``Policy.choose``.

    Over arms what ``Domain(fixed_features=...)`` is over points.

    Attributes:
        context: numbers that all arms share at this step, (c,), or (S, c) with those of each replicate: a user, the
            weather, the state of a machine. None: there are none.
        features: of each arm at this step, (N, d) or (S, N, d), in place of those that the policy was built with.
        available: mask of the arms that can be chosen, (N,) or (S, N); None: all.

    Raises ValueError for a context or features of another shape, or not finite, and a mask that is not of booleans.
    How many numbers, arms and replicates there must be, the policy checks.
    """

    context: Tensor | None = None
    features: Tensor | None = None
    available: Tensor | None = None

    def __post_init__(self) -> None:
        for name, dims, shape in (
            ("context", (1, 2), "(c,) or (S, c)"),
            ("features", (2, 3), "(N, d) or (S, N, d)"),
        ):
            value = getattr(self, name)
            if value is not None:
                validation.finite_tensor(name, value)
                validation.shape_is(name, value, value.dim() in dims, shape)
                validation.require(not value.is_complex(), name, value.dtype, "real numbers")
        if self.available is not None:
            validation.tensor("available", self.available)


def mask_of(available: Any) -> Any:
    """The mask of a step, whether it stands alone or in an ``ArmContext``; None for none."""
    return available.available if isinstance(available, ArmContext) else available

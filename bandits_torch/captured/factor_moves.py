"""Captured moves of ``FactorForm``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from torch import Tensor

from bandits_torch.captured.steps import Books, Given, refused
from bandits_torch.models.arms.belief import ArmBelief
from bandits_torch.models.arms.factor_form import FactorForm


class FactorMoves:
    """To come."""

    def __init__(self, belief: ArmBelief, restarts: bool = False) -> None:
        assert isinstance(belief.form, FactorForm)
        self.form: FactorForm = belief.form
        raise refused("form='factor'", "not yet")

    def most(self, wanted: int) -> int:
        return wanted

    def given(self, times: Sequence[float]) -> Given:
        return {}

    def key(self) -> Hashable:
        return ()

    def tell(self, given: Given, j: int, arm: Tensor, residual: Tensor, books: Books) -> None: ...

    def close(self, books: Books) -> None: ...

    def after(self, steps: int) -> None: ...

"""The two ways in which a sketch knows its posterior: kept and brought up to date, or solved anew at every pull.

``Sketch`` holds what was pulled and draws dictionaries; whatever depends on the way it asks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bandits_torch.models.sketch.one_step import OneStepPosterior

if TYPE_CHECKING:
    from bandits_torch.models.sketch.sketch import Sketch

_LEAST_NOISE = 1e-6  # of the largest prior variance, for an ``OneStepPosterior``


class Kept:
    """z, V and theta are kept, and changed by every pull and dictionary. Places are among the arms pulled."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    @property
    def size(self) -> int:
        """How many arms of the dictionary have a row of z."""
        return self.sketch.embedding.size

    def joined(self, index: Tensor) -> None:
        """An arm (1,) is pulled for the first time: it gets a column of z."""
        sketch = self.sketch
        column = sketch.embedding.of(index)
        sketch.pulled = torch.cat([sketch.pulled, column], 1)
        left = sketch.prior_variance[index] - column.square().sum(0)
        sketch.unexplained = torch.cat([sketch.unexplained, left.clamp_min(0.0)])

    def variance_at_draw(self, place: int) -> Tensor:
        """Variance of an arm when the dictionary was drawn."""
        sketch = self.sketch
        z = sketch.pulled[:, place]
        return sketch.unexplained[place] + z @ (sketch.covariance_at_draw @ z)

    def take_up(self, drawn: list[int]) -> None:
        """The dictionary holds this draw: joined to it, or alone where that costs less or it would grow too large."""
        sketch = self.sketch
        new = [place for place in drawn if place not in sketch.dictionary]
        too_large = len(sketch.dictionary) + len(new) > sketch.sampling.slack * len(drawn)
        if too_large or 2 * len(new) > max(8, self.size):  # joining costs two passes over the rows for each
            sketch.rebuild(drawn)
        elif new:
            sketch.append(new)

    def learned(self, place: int, residual: Tensor) -> None:
        """One more residual is about to be counted. O(m^2)."""
        sketch = self.sketch
        sketch.marginals.note_pull(*sketch.regression.observe(sketch.pulled[:, place], residual))

    def corrected(self, place: int, change: Tensor) -> None:
        """An earlier residual was larger by ``change``. O(m^2)."""
        sketch = self.sketch
        sketch.marginals.note_shift(sketch.regression.correct(sketch.pulled[:, place], change))

    def leverage(self) -> Tensor:
        """Variance now of the arms pulled, (u,). O(u m q) for q pulls since the last refresh."""
        sketch = self.sketch
        return sketch.marginals.variance_at(sketch.arm, sketch.pulled, sketch.regression).clamp_min(0.0)

    def variance_of(self, arms: Tensor) -> Tensor:
        """Variance now of arms (n,) by index. O(n m q), or O(n m^2)."""
        sketch = self.sketch
        z = sketch.embedding.of(arms)
        return sketch.marginals.variance_at(arms, z, sketch.regression).clamp_min(0.0)

    def refresh(self) -> None:
        """Bring the marginals of all arms up to date. O(m N) for each pull since the last time."""
        self.sketch.marginals.refresh(self.sketch.embedding, self.sketch.regression)


class OneStep(Kept):
    """The same of a dictionary that lasts one step (C = 1), not worth an embedding: mean and variance come from an
    ``OneStepPosterior``, and z, V and theta are made when they are asked for (``Sketch.settle``)."""

    def __init__(self, sketch: Sketch) -> None:
        super().__init__(sketch)
        self._posterior = OneStepPosterior(sketch.prior, sketch.prior_variance, sketch.chunk_size)
        self._solved = False

    @staticmethod
    def suits(sketch: Sketch) -> bool:
        """Whether every pull draws a dictionary, and noise and dtype leave an ``OneStepPosterior`` its figures."""
        noisy = bool(sketch.noise_variance >= _LEAST_NOISE * sketch.prior_variance.max())
        exact = noisy and sketch.prior_variance.dtype == torch.float64
        return exact and sketch.sampling.growth == sketch.sampling.slack == 1

    @property
    def size(self) -> int:
        """How many arms were drawn."""
        return len(self.sketch.dictionary)

    def joined(self, index: Tensor) -> None:
        """Nothing is kept of it."""

    def variance_at_draw(self, place: int) -> Tensor:
        """Variance of an arm now, for every pull draws."""
        return self.variance_of(self.sketch.arm[place : place + 1])

    def take_up(self, drawn: list[int]) -> None:
        """The dictionary is this draw."""
        self.sketch.dictionary = set(drawn)
        self._changed()

    def learned(self, place: int, residual: Tensor) -> None:
        """One more residual is about to be counted."""
        self._changed()

    def corrected(self, place: int, change: Tensor) -> None:
        """An earlier residual was larger by ``change``."""
        self._changed()

    def leverage(self) -> Tensor:
        """Variance now of the arms pulled, (u,), from that of all arms, which the next choice reads."""
        self.refresh()
        return self.sketch.marginals.variance[self.sketch.arm]

    def variance_of(self, arms: Tensor) -> Tensor:
        """Variance now of arms (n,) by index. O(n m^2), or O(n) of what is known."""
        if self.sketch.marginals.kept:
            return self.sketch.marginals.variance[arms].clamp_min(0.0)
        return self._posterior_now().marginals(arms)[1]

    def refresh(self) -> None:
        """Bring the marginals of all arms up to date. O(m^2 N), if anything has changed."""
        marginals = self.sketch.marginals
        if not marginals.kept:
            marginals.mean, marginals.variance = self._posterior_now().marginals()
            marginals.settle(True)

    def _changed(self) -> None:
        """What was computed is of another dictionary, or of other data."""
        if self.sketch.settled and self.sketch.embedding.size:
            self.sketch.empty()
        self._solved = self.sketch.settled = False
        self.sketch.marginals.settle(False)

    def _posterior_now(self) -> OneStepPosterior:
        sketch = self.sketch
        if not self._solved:
            dictionary = torch.tensor(sorted(sketch.dictionary), device=sketch.arm.device)
            self._posterior.solve(sketch.arm, sketch.count, sketch.total, dictionary, sketch.noise_variance)
            self._solved = True
        return self._posterior

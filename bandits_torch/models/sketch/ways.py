"""The two ways in which a sketch knows its posterior: kept and brought up to date, or solved anew at every pull.

``Sketch`` holds what was pulled and draws dictionaries; whatever depends on the way it asks here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bandits_torch.models.sketch.one_step import OneStepPosterior

if TYPE_CHECKING:
    from bandits_torch.models.sketch.sketch import Sketch

_LEAST_NOISE = 1e-6  # of the largest prior variance, for an ``OneStepPosterior``


class Way(ABC):
    """What a sketch asks of its posterior, places being those of arms among the arms pulled."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    @property
    @abstractmethod
    def size(self) -> int:
        """How many arms the dictionary has."""

    @abstractmethod
    def joined(self, index: Tensor) -> None:
        """An arm (1,) is pulled for the first time."""

    @abstractmethod
    def variance_at_draw(self, place: int) -> Tensor:
        """Its variance when the dictionary was drawn."""

    @abstractmethod
    def take_up(self, drawn: list[int]) -> None:
        """The dictionary holds this draw."""

    @abstractmethod
    def learned(self, place: int, residual: Tensor) -> None:
        """One more residual is about to be counted."""

    @abstractmethod
    def corrected(self, place: int, change: Tensor) -> None:
        """An earlier residual was larger by ``change``."""

    @abstractmethod
    def leverage(self) -> Tensor:
        """Variance now of the arms pulled, (u,)."""

    @abstractmethod
    def variance_of(self, arms: Tensor) -> Tensor:
        """Variance now of arms (n,) by index."""

    @abstractmethod
    def features(self, arms: Tensor) -> Tensor:
        """What z of arms (n,) variances fall by from pull to pull, (m, n)."""

    @abstractmethod
    def refresh(self) -> None:
        """Bring the marginals of all arms up to date."""


class Kept(Way):
    """z, V and theta are kept, and changed by every pull and dictionary."""

    @property
    def size(self) -> int:
        """Arms that have a row of z."""
        return self.sketch.embedding.size

    def joined(self, index: Tensor) -> None:
        """Adds its column of z."""
        sketch = self.sketch
        column = sketch.embedding.of(index)
        sketch.pulled = torch.cat([sketch.pulled, column], 1)
        left = sketch.prior_variance[index] - column.square().sum(0)
        sketch.unexplained = torch.cat([sketch.unexplained, left.clamp_min(0.0)])

    def variance_at_draw(self, place: int) -> Tensor:
        """By the covariance that was kept of then."""
        sketch = self.sketch
        z = sketch.pulled[:, place]
        return sketch.unexplained[place] + z @ (sketch.covariance_at_draw @ z)

    def take_up(self, drawn: list[int]) -> None:
        """Joins new places to the dictionary, or builds it anew where that costs less or it would grow too large."""
        sketch = self.sketch
        new = [place for place in drawn if place not in sketch.dictionary]
        too_large = len(sketch.dictionary) + len(new) > sketch.sampling.slack * len(drawn)
        if too_large or 2 * len(new) > max(8, self.size):  # joining costs two passes over the rows for each
            sketch.rebuild(drawn)
        elif new:
            sketch.append(new)

    def learned(self, place: int, residual: Tensor) -> None:
        """O(m^2)."""
        sketch = self.sketch
        sketch.marginals.note_pull(*sketch.regression.observe(sketch.pulled[:, place], residual))

    def corrected(self, place: int, change: Tensor) -> None:
        """O(m^2)."""
        sketch = self.sketch
        sketch.marginals.note_shift(sketch.regression.correct(sketch.pulled[:, place], change))

    def leverage(self) -> Tensor:
        """O(u m q) for q pulls since the last refresh."""
        sketch = self.sketch
        return sketch.marginals.variance_at(sketch.arm, sketch.pulled, sketch.regression).clamp_min(0.0)

    def variance_of(self, arms: Tensor) -> Tensor:
        """O(n m q), or O(n m^2)."""
        sketch = self.sketch
        return sketch.marginals.variance_at(arms, self.features(arms), sketch.regression).clamp_min(0.0)

    def features(self, arms: Tensor) -> Tensor:
        """Of the embedding."""
        return self.sketch.embedding.of(arms)

    def refresh(self) -> None:
        """O(m N) for each pull since the last."""
        self.sketch.marginals.refresh(self.sketch.embedding, self.sketch.regression)


class OneStep(Way):
    """The dictionary lasts one step (C = 1). No embedding is worth it: mean and variance come from an
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
        """Arms drawn."""
        return len(self.sketch.dictionary)

    def joined(self, index: Tensor) -> None:
        """Nothing is kept of it."""

    def variance_at_draw(self, place: int) -> Tensor:
        """Now, for every pull draws."""
        return self.variance_of(self.sketch.arm[place : place + 1])

    def take_up(self, drawn: list[int]) -> None:
        """All is to be solved again."""
        self.sketch.dictionary = set(drawn)
        self._changed()

    def learned(self, place: int, residual: Tensor) -> None:
        """All is to be solved again."""
        self._changed()

    def corrected(self, place: int, change: Tensor) -> None:
        """All is to be solved again."""
        self._changed()

    def leverage(self) -> Tensor:
        """That of all arms, for the next choice reads it."""
        self.refresh()
        return self.sketch.marginals.variance[self.sketch.arm]

    def variance_of(self, arms: Tensor) -> Tensor:
        """O(n m^2), or O(n) of what is known."""
        marginals = self.sketch.marginals
        if marginals.kept:
            return marginals.variance[arms].clamp_min(0.0)
        return self._posterior_now().marginals(arms)[1]

    def features(self, arms: Tensor) -> Tensor:
        """None: no pull is learned with the dictionary."""
        return self.sketch.prior_variance.new_zeros(0, len(arms))

    def refresh(self) -> None:
        """O(m^2 N), if anything has changed."""
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

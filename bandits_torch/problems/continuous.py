"""Problems over a continuous domain: points in place of arms, and the best value of each step for the scorer."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from botorch.generation.gen import gen_candidates_scipy
from torch import Tensor

from bandits_torch.domain import Domain
from bandits_torch.problems.problem import Problem, gaussian_noise
from bandits_torch.streams import ReplicateStreams

_RAW, _LOCAL = 4096, 8  # points looked at, and local searches, for the best value of a step
_RADII, _NEAR = (0.1, 0.03, 0.01), 128  # then again near the best, within these shares of the box
_SAMPLE = 512


class ContinuousProblem(Problem):
    """A problem over the points of a domain. It has no arms: ``num_arms`` is 0.

    Attributes:
        domain: the set of points; ``available(step)`` is the ``Domain`` of a step, or None for this one.
        dim: d.
        noise_scale: R, standard deviation of the normal noise, (replicates,).
        functions_differ: whether each replicate has its own function.
        hints: (k, d) points that may lie near a maximum at some step, as further starts for ``best``.
    """

    domain: Domain
    noise_scale: Tensor
    functions_differ = False

    def __init__(
        self, domain: Domain, replicates: int, noise_scale: float, horizon: int | None = None
    ) -> None:
        self.domain, self.dim = domain, domain.dim
        self.arms = domain.bounds[:0]  # none, in the right dtype and on the right device
        self.replicates, self.horizon = replicates, horizon
        self.noise_scale = domain.bounds.new_full((replicates,), noise_scale)
        self.hints = self.arms
        self._best: dict[int, Tensor] = {}

    def available(self, step: int) -> Domain | None:  # type: ignore[override]
        """The domain of this step, where it is not the usual one: other bounds, constraints, a context."""
        return None

    @abstractmethod
    def expected(self, step: int, X: Tensor) -> Tensor:
        """Mean rewards at step 1, 2, ... of points X, ``... x S x d``, one per replicate: ``... x S``.

        Differentiable in X. For the scorer and ``pull`` only.
        """

    @property
    def choices(self) -> Domain:
        """The domain."""
        return self.domain

    def score(self, step: int, points: Tensor, available: Domain | None) -> tuple[Tensor, Tensor]:
        """Of points (S, d), minus infinity outside the domain of the step, beside the maximum over it."""
        domain = self.domain if available is None else available
        inside = domain.contains(points) & (points - domain.fix(points)).eq(0).all(-1)
        return self.expected(step, points).where(inside, -math.inf), self.best(step)

    def expected_rewards(self, step: int) -> Tensor:
        """(replicates, 0): there are no arms."""
        self.check_step(step)
        return self.arms.new_zeros(self.replicates, 0)

    def pull(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Rewards (S,) of the points (S, d) played: the expected ones plus ``noise``."""
        with torch.no_grad():
            return self.expected(step, arm) + self.noise(step, arm, streams)

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Normal noise (S,)."""
        return gaussian_noise(self.noise_scale, streams)

    def best(self, step: int) -> Tensor:
        """max over the domain of the step of the expected reward, (replicates,); computed once per step.

        Computed numerically (``maximum``): never above the true maximum, and within 1e-6 of known maxima
        (tests/problems).
        """
        self.check_step(step)
        if step not in self._best:
            domain = self.available(step) or self.domain
            differ = self.functions_differ or any(map(domain.differs, domain.fixed_features.values()))
            replicates = self.replicates if differ else 1
            best = maximum(lambda X: self.expected(step, X), domain, replicates, hints=self.hints)
            self._best[step] = best.expand(self.replicates)
        return self._best[step]

    def random_reward(self, step: int) -> Tensor:
        """Mean of the expected reward over the domain of the step, from 512 evenly spread points, (replicates,)."""
        domain = self.available(step) or self.domain
        X = domain.sample(_SAMPLE, 0).unsqueeze(1).repeat(1, self.replicates, 1)
        with torch.no_grad():
            return self.expected(step, domain.fix(X)).mean(0)

    def to(self, *args: Any, **kwargs: Any) -> ContinuousProblem:
        """Move every tensor the problem holds, as ``Tensor.to`` does; returns self."""
        super().to(*args, **kwargs)
        self.domain = self.domain.to(*args, **kwargs)
        self._best = {step: value.to(*args, **kwargs) for step, value in self._best.items()}
        return self


def maximum(
    function: Callable[[Tensor], Tensor],
    domain: Domain,
    replicates: int = 1,
    *,
    hints: Tensor | None = None,
    seed: int = 0,
) -> Tensor:
    """max over x in the domain of function(x), (replicates,).

    Local searches from the best of 4 096 evenly spread points and of the hints (k, d), then from the best of 128
    random ones in ever smaller boxes around the best found.

    Args:
        function: from ``n x replicates x d`` to ``n x replicates``, differentiable.
    """
    raw = domain.sample(_RAW, seed)
    if hints is not None:
        raw = torch.cat([raw, hints[domain.contains(hints)]])
    raw = domain.fix(raw.unsqueeze(1).repeat(1, replicates, 1))
    return torch.stack([_maximum_of(function, domain, raw, k, seed) for k in range(replicates)])


def _maximum_of(
    function: Callable[[Tensor], Tensor], domain: Domain, raw: Tensor, k: int, seed: int
) -> Tensor:
    """The maximum of replicate k; ``raw``: n x replicates x d."""

    def of_replicate(X: Tensor) -> Tensor:
        return function(X.expand(-1, raw.shape[1], -1))[:, k]

    fixed = {
        i: float(v[k] if isinstance(v, Tensor) and v.dim() else v) for i, v in domain.fixed_features.items()
    }
    low, high = domain.bounds
    generator = torch.Generator().manual_seed(seed)
    points, best = raw[:, k : k + 1], low.new_full((), -torch.inf)
    for radius in (*_RADII, 0.0):
        with torch.no_grad():
            order = of_replicate(points).topk(_LOCAL).indices
        with warnings.catch_warnings(record=True):  # at a cusp a line search ends early, and says so
            X, values = gen_candidates_scipy(
                points[order],
                of_replicate,  # type: ignore[arg-type]
                low,
                high,
                inequality_constraints=list(domain.inequality_constraints) or None,
                fixed_features=fixed or None,
            )
        X, values = torch.cat([points[order], X]), torch.cat([of_replicate(points[order]).detach(), values])
        values = values.masked_fill(~domain.contains(X[:, 0]), -torch.inf)
        if values.max() > best:
            best, top = values.max(), X[values.argmax()]
        spread = 2 * torch.rand(_NEAR, 1, domain.dim, generator=generator, dtype=torch.float64) - 1
        near = (top + radius * (high - low) * spread.to(top)).clamp(low, high)
        near[..., list(fixed)] = top[..., list(fixed)]
        points = torch.cat([near[domain.contains(near[:, 0], 0.0)], X])
    return best

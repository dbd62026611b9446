"""Domains of points that may be played: a box with linear constraints, and coordinates that are fixed (a context)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import torch
from botorch.utils.sampling import draw_sobol_samples, get_polytope_samples
from torch import Tensor

from bandits_torch import validation
from bandits_torch.state import copied

Constraint = tuple[Tensor, Tensor, float]
_OVERSAMPLED = 16  # Sobol points tried for each feasible point needed, before the slower polytope sampler
_BURN_IN = 1000  # steps of that sampler before its first point


@validation.names_arguments
@dataclass(frozen=True)
class Domain:
    """The points x of a box with A x >= b; some coordinates may be fixed (a context).

    Attributes:
        bounds: (2, d), lower and upper bounds of each coordinate; (2, S, d) if replicates have different bounds
            (``within``).
        inequality_constraints: as in BoTorch's ``optimize_acqf``: (indices, coefficients, rhs) for
            sum_i coefficients_i x_{indices_i} >= rhs.
        fixed_features: values of the fixed coordinates, by index, as in ``optimize_acqf``: a number, or a tensor (S,)
            with one per replicate, up to 1e140 in size. They may lie outside the bounds.

    Raises ValueError for bounds that are not finite, or not lower < upper (in fixed coordinates lower <= upper); an
    index out of range; no free coordinate; and constraints together with bounds or fixed values that differ between
    replicates.
    """

    bounds: Tensor
    inequality_constraints: Sequence[Constraint] = ()
    fixed_features: Mapping[int, float | Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bounds = validation.tensor("bounds", self.bounds)
        shaped = bounds.dim() in (2, 3) and bounds.shape[0] == 2 and min(bounds.shape) >= 1
        expected = "(2, d) or (2, S, d), floating point"
        validation.shape_is("bounds", bounds, shaped and bounds.is_floating_point(), expected)
        validation.finite_tensor("bounds", bounds)
        validation.instance("fixed_features", self.fixed_features, Mapping, "values by column")
        for column in range(self.dim):
            low, high = bounds[..., column]
            ok = bool((low <= high if column in self.fixed_features else low < high).all())
            validation.require(ok, f"bounds[:, {column}]", (low.tolist(), high.tolist()), "increasing")
        for column, value in self.fixed_features.items():
            inside = type(column) is int and 0 <= column < self.dim
            validation.require(inside, "fixed_features", column, f"keyed by columns 0..{self.dim - 1}")
            given = validation.numbers("fixed_features", value, bounds)
            validation.rewards("fixed_features", given.double())  # squares of distances must be finite, too
        free = self.dim - len(self.fixed_features)
        validation.require(free > 0, "fixed_features", list(self.fixed_features), "fewer than the columns")
        validation.instance("inequality_constraints", self.inequality_constraints, Sequence, "a sequence")
        name = "inequality_constraints"
        for constraint in self.inequality_constraints:
            three = isinstance(constraint, tuple | list) and len(constraint) == 3
            validation.require(three, name, constraint, "triples (indices, coefficients, rhs)")
            indices, coefficients, rhs = constraint
            validation.finite_number(name, rhs)
            validation.finite_tensor(name, coefficients)
            fits = validation.tensor(name, indices).dim() == 1 and indices.shape == coefficients.shape
            validation.shape_is(name, indices, fits, "(k,), like the coefficients")
            inside = bool(((indices >= 0) & (indices < self.dim)).all()) and not indices.is_floating_point()
            validation.require(inside, name, indices, f"of columns 0..{self.dim - 1}")
        alone = bool(self.inequality_constraints) and bounds.dim() == 3
        validation.require(not alone, "bounds", bounds, "(2, d) with inequality_constraints")
        mixed = self.inequality_constraints and any(self.differs(v) for v in self.fixed_features.values())
        validation.require(not mixed, "fixed_features", "a tensor", "numbers with inequality_constraints")
        own = {  # later changes of the caller's are not ours
            "bounds": bounds.clone(),
            "inequality_constraints": [(i.clone(), c.clone(), b) for i, c, b in self.inequality_constraints],
            "fixed_features": copied(self.fixed_features),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """d."""
        return self.bounds.shape[-1]

    @property
    def wide_bounds(self) -> Tensor:
        """The bounds, widened to include the fixed values, as BoTorch's functions need them under constraints."""
        bounds = self.bounds.clone()
        for column, value in self.fixed_features.items():
            each = torch.as_tensor(value).to(bounds)
            bounds[0, ..., column].clamp_(max=each.min())
            bounds[1, ..., column].clamp_(min=each.max())
        return bounds

    @property
    def scaled_constraints(self) -> list[Constraint]:
        """The constraints, which each free coordinate changes by at most 1: BoTorch allows errors of 1e-8."""
        sides = self.bounds[1] - self.bounds[0]
        sides[..., list(self.fixed_features)] = 0.0
        sizes = [float((c * sides[i]).abs().max()) or 1.0 for i, c, _ in self.inequality_constraints]
        return [
            (i, c / u, rhs / u) for (i, c, rhs), u in zip(self.inequality_constraints, sizes, strict=True)
        ]

    @staticmethod
    def differs(value: float | Tensor) -> TypeGuard[Tensor]:
        """Whether replicates have different fixed values."""
        return isinstance(value, Tensor) and value.numel() > 1

    def fix(self, X: Tensor) -> Tensor:
        """X, ``... x S x d`` (or ``... x d``), with the fixed coordinates in place."""
        if not self.fixed_features:
            return X
        X = X.clone()
        for column, value in self.fixed_features.items():
            X[..., column] = torch.as_tensor(value, dtype=X.dtype, device=X.device)
        return X

    def contains(self, X: Tensor, tolerance: float = 1e-6) -> Tensor:
        """Which rows of X, ``... x d``, lie in the domain, up to ``tolerance`` as a share of the box's sides. Fixed
        coordinates may lie outside the bounds."""
        low, high = self.bounds.to(X)
        slack = tolerance * (high - low)
        free = [column for column in range(self.dim) if column not in self.fixed_features]
        inside = ((low - slack <= X) & (high + slack >= X))[..., free].all(-1)
        for indices, coefficients, rhs in self.inequality_constraints:
            weights = coefficients.to(X)
            room = (weights.abs() * slack[indices]).sum() + tolerance * abs(rhs)
            inside = inside & ((X[..., indices] * weights).sum(-1) >= rhs - room)
        return inside

    def within(self, low: Tensor, high: Tensor) -> Domain:
        """The part with low <= x <= high, (S, d) each, except in fixed coordinates.

        Raises ValueError if a free coordinate is left without an interval, and for several replicates with constraints.
        """
        least, most = self.bounds
        low, high = torch.maximum(low, least), torch.minimum(high, most)  # (S, d), copies
        for column in self.fixed_features:
            low[:, column], high[:, column] = least[..., column], most[..., column]
        left = bool((low < high).all())
        expected = f"a domain with more than one point within reach, from {low.tolist()} to {high.tolist()}"
        validation.require(left, "available", self.bounds.tolist(), expected)
        bounds = torch.stack([low, high])
        return replace(self, bounds=bounds.squeeze(1) if self.inequality_constraints else bounds)

    def sample(self, n: int, seed: int) -> Tensor:
        """n scrambled Sobol points (n, d) of the domain, determined by the seed; (n, S, d) if bounds differ.

        Fixed values that differ between replicates are not set: ``fix`` sets them. If fewer than n of 16 n Sobol points
        are feasible, the points are random (hit and run). Raises ValueError if constraints leave nothing of the box.
        """
        if self.bounds.dim() == 3:
            low, high = self.bounds
            unit = torch.stack([torch.zeros_like(low[0]), torch.ones_like(low[0])])
            return self._shared(low + (high - low) * draw_sobol_samples(unit, n, 1, seed=seed))
        if not self.inequality_constraints:
            return self._shared(draw_sobol_samples(self.bounds, n, 1, seed=seed).squeeze(-2))
        tried = self._shared(draw_sobol_samples(self.bounds, _OVERSAMPLED * n, 1, seed=seed).squeeze(-2))
        found = tried[self.contains(tried, 0.0)]
        if len(found) >= n:
            return found[:n]
        whole = self.bounds.new_ones(1)
        fixed = [(torch.tensor([i]), whole, float(value)) for i, value in self.fixed_features.items()]
        try:
            points = get_polytope_samples(
                n,
                self.wide_bounds,
                inequality_constraints=self.scaled_constraints,
                equality_constraints=fixed or None,
                seed=seed,
                n_burnin=_BURN_IN,
            )
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"inequality_constraints must leave some of the box, got an empty set: {error}"
            ) from error
        return self._shared(points.to(self.bounds))

    def samples(self, n: int, seed: int, replicates: int) -> Tensor:
        """``sample`` for each of S replicates, (n, S, d), with all fixed values set."""
        return self.fix(self.sample(n, seed).reshape(n, -1, self.dim).expand(-1, replicates, -1).clone())

    def _shared(self, X: Tensor) -> Tensor:
        """X with the fixed values that all replicates share, set in place."""
        for column, value in self.fixed_features.items():
            if not self.differs(value):
                X[..., column] = torch.as_tensor(value, dtype=X.dtype, device=X.device)
        return X

    def to(self, *args: Any, **kwargs: Any) -> Domain:
        """A copy on another device or in another dtype, as ``Tensor.to``."""
        bounds = self.bounds.to(*args, **kwargs)
        place = bounds.device
        constraints = [(i.to(place), c.to(bounds), rhs) for i, c, rhs in self.inequality_constraints]
        fixed = {
            i: value.to(bounds) if isinstance(value, Tensor) else value
            for i, value in self.fixed_features.items()
        }
        return Domain(bounds, constraints, fixed)

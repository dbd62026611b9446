"""A generator for Xopt whose models expect the machine to drift: ``pip install ".[xopt]"`` in a checkout."""

from __future__ import annotations

import base64
import copy
import math
import time
from collections.abc import Hashable, Sequence
from io import BytesIO
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.probability.utils import log_ndtr, log_prob_normal_in
from gest_api.vocs import VOCS, BoundsConstraint, ExploreObjective, GreaterThanConstraint, MaximizeObjective
from pydantic import Field, PositiveFloat, PrivateAttr, field_serializer, field_validator
from torch import Tensor
from xopt.generator import Generator
from xopt.generators import generators

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.integrations import RECENT
from bandits_torch.policies.moves import CostlyMoves
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.policies.policy import Observation, Pending, Policy
from bandits_torch.recipes.averaging import auto_over_points
from bandits_torch.state_files import read_from, write_to

__all__ = ["TimeVaryingUCBGenerator"]
_KIND = "Xopt generator"
_LEAST_VARIANCE = 1e-12  # of an output, relative to its scale
# The settings that a state depends on.
_OF_A_STATE = ("of", "domain", "sign", "max_move", "move_price", "capacity")


class TimeVaryingUCBGenerator(Generator):
    """Upper confidence bounds of the recipe ``auto`` over the variables; each shot is learned once.

    It replaces Xopt's ``time_dependent_upper_confidence_bound``, which fits a new model to all data for every shot. At
    most ``capacity`` shots are held, so the cost of a shot does not grow. The first shots are Sobol points.

    With constraints, each constrained output has a separate model, and the generator maximises

        (upper bound of the objective in its learned unit) + sum_i ln P(constraint i holds),

    This is no guarantee: shots may break constraints that are still being learned. For limits that must hold use
    ``recipes.safe_gp_ucb``.

    Rows without a finite objective, constraints and time are not learned. Those among the latest 50 rows count as
    pending (``Policy.choose_many``), so a shot that fails is not chosen again and again. If earlier data change
    (``remove_data``, ``reset_data``), or the VOCS or an attribute, all data are learned again.

    Attributes:
        width: multiplies the standard deviation.
        clock: ``"shots"``, the number of a row; or ``"time"``, the column ``time`` of the data in seconds, as for
            Xopt's generator. The next shot is then expected ``added_time`` seconds from now.
        max_travel_distances: how far each variable may move from one shot to the next, as a share of its range, as in
            Xopt's generators. None: no limit. A last shot outside the ranges counts as the nearest point within them.
        move_price: price of a move of a variable across its whole range, in units of the objective
            (``CostlyMoves``). Not with constraints, because staying at the previous shot may break them by now.
        capacity, options: see ``auto_over_points``; ``options`` such as ``{"refine_every": 10}``.
        seed: seed of all random numbers.
        state: the learned state, in Xopt's YAML: after a reload the generator continues with the same bits, or learns
            the data again if variables, outputs, the direction, ``capacity`` or moves have changed.

    Cost: a step of ``PointAveraging`` for each shot and each output.

    Raises ValueError (Xopt's ``VOCSError``) for several objectives, and for discrete or contextual variables. Raises
    ValueError for an objective to explore, ``max_travel_distances`` that are not one number above 0 for each variable,
    a ``move_price`` with constraints, ``options`` that are attributes, a ``state`` that cannot be read, and a value in
    the data that is neither missing nor a number up to 1e140 in size. The error names its row, which must be removed
    (``remove_data``).
    """

    name = "time_varying_ucb"
    supports_batch_generation: bool = Field(default=True, frozen=True, exclude=True)
    supports_single_objective: bool = Field(default=True, frozen=True, exclude=True)
    supports_constraints: bool = Field(default=True, frozen=True, exclude=True)

    width: PositiveFloat = 1.0
    clock: Literal["shots", "time"] = "shots"
    added_time: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    max_travel_distances: list[float] | None = None
    move_price: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    capacity: int = Field(default=200, ge=2)
    options: dict[str, Any] = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0)
    state: str | None = Field(default=None, repr=False)

    _models: list[Policy] = PrivateAttr(default_factory=list)
    _built_with: dict[str, Any] = PrivateAttr(default_factory=dict)
    _rows: np.ndarray = PrivateAttr(default_factory=lambda: np.empty((0, 0)))

    @field_validator("vocs", mode="after")
    @classmethod
    def _no_exploration(cls, vocs: VOCS) -> VOCS:
        for name, one in vocs.objectives.items():
            explores = isinstance(one, ExploreObjective)
            validation.require(not explores, f"objectives[{name!r}]", "EXPLORE", "MINIMIZE or MAXIMIZE")
        return vocs

    def generate(self, n_candidates: int) -> list[dict[Hashable, Any]]:
        """The next shots; each is chosen with the shots before it pending."""
        validation.positive_integer("n_candidates", n_candidates)
        self._learn()
        times = self._rows[:, -1]  # failed shots may have none
        last = max(times[np.isfinite(times)].tolist(), default=-math.inf)
        shots = 0 if self.data is None else len(self.data)
        now = max(last, time.time() + self.added_time) if self.clock == "time" else float(shots)
        d, recent = len(self.vocs.variable_names), self._rows[-RECENT:]
        failed = recent[np.isfinite(recent[:, :d]).all(1) & ~np.isfinite(recent).all(1), :d]
        # Pending for the innermost policy only: ``CostlyMoves`` would move from the last of them.
        with self._models[0].innermost.expecting(now) as expect:
            for point in torch.from_numpy(failed).unsqueeze(1):
                expect(Pending(now, point))
            choices = self._models[0].choose_many(now, n_candidates, _domain(self.vocs))
        return [dict(zip(self.vocs.variable_names, one.arm[0].tolist(), strict=True)) for one in choices]

    def add_data(self, new_data: pd.DataFrame) -> None:
        """Add data as Xopt does, and learn them."""
        super().add_data(new_data)
        self._learn()

    @field_serializer("state")
    def _write_state(self, _: str | None) -> str | None:
        if not self._models:
            return self.state
        about = {name: self._built_with[name] for name in _OF_A_STATE} | {"rows": len(self._rows)}
        file = BytesIO()
        write_to(file, _KIND, {**about, "models": [model.state_dict() for model in self._models]})
        return base64.b64encode(file.getvalue()).decode()

    # -- the models ------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Learn the new rows; all rows, if the data no longer begin with those that were learned."""
        saved = None if self._models else self._saved_state()
        outputs = (*self.vocs.objective_names, *self.vocs.constraint_names)
        of = [*self.vocs.variable_names, *outputs]
        rows = self._numbers(of)
        settings = {
            "of": of,
            "domain": _domain(self.vocs).bounds.tolist(),
            "sign": _sign(self.vocs),
            "limits": [_limits(one) for one in self.vocs.constraints.values()],
            "max_move": self.max_travel_distances,
            "move_price": self.move_price,
            "width": self.width,
            "capacity": self.capacity,
            "options": copy.deepcopy(self.options),
            "seed": self.seed,
        }
        begin = rows[: len(self._rows)]
        if self._built_with != settings or not np.array_equal(begin, self._rows, equal_nan=True):
            known = self._begin(settings, saved)
            if known > len(rows):
                known = self._begin(settings)
            self._rows = rows[:known]
        d, signs = len(self.vocs.variable_names), [_sign(self.vocs), *[1.0] * (len(outputs) - 1)]
        for k in range(len(self._rows), len(rows)):
            row, point = rows[k], torch.tensor(rows[k : k + 1, :d], dtype=torch.float64)
            if np.isfinite(row).all():
                for model, sign, value in zip(self._models, signs, row[d:-1], strict=True):
                    reward = torch.tensor([sign * value], dtype=torch.float64)
                    model.learn(Observation(float(row[-1]), point, reward))
            elif np.isfinite(row[:d]).all():
                self._models[0].dropped(Pending(float(row[-1]), point))
            self._rows = rows[: k + 1]

    def _numbers(self, columns: list[str]) -> np.ndarray:
        """The data, (n, columns + 1), with the time last."""
        if self.data is None or not len(self.data):
            return np.empty((0, len(columns) + 1))
        names = self.vocs.variable_names
        complete = {*names} <= {*self.data}
        validation.require(complete, "data", list(self.data), f"with a column for each of {names}")
        if self.clock == "time":
            validation.require("time" in self.data, "data", list(self.data), "with a column 'time'")
            columns = [*columns, "time"]
        given = self.data.reindex(columns=columns)
        values = given.apply(_as_numbers).to_numpy(dtype=float)
        large = np.isfinite(values) & (np.abs(values) > validation.largest_reward(torch.float64))
        wrong = np.argwhere(large | (np.isnan(values) & given.notna().to_numpy()))
        if len(wrong):
            row, column = wrong[0]
            place = given.index[row]
            expected = f"a number up to 1e140 in size; remove_data([{place}]) removes its row"
            name = f"data.loc[{place}, {columns[column]!r}]"
            validation.require(False, name, given.iloc[row].tolist()[column], expected)
        if self.clock == "shots":
            values = np.column_stack([values, np.arange(len(values), dtype=float)])
        return values

    def _saved_state(self) -> dict[str, Any] | None:
        """What ``state`` holds, once. Variables and constraints take its order, since YAML sorts them by name."""
        if self.state is None:
            return None
        try:
            saved = read_from(BytesIO(base64.b64decode(self.state)), _KIND)
        except Exception as error:  # a crafted state fails in many ways
            expected = "what this version wrote, or None, so that the data are learned again"
            raise ValueError(f"state must be {expected}, got one that cannot be read: {error}") from error
        self.state = None
        d = len(self.vocs.variables)
        for group, names in (("variables", saved["of"][:d]), ("constraints", saved["of"][d + 1 :])):
            held = getattr(self.vocs, group)
            if set(names) == set(held):
                setattr(self.vocs, group, {name: held[name] for name in names})
        return saved

    def _begin(self, settings: dict[str, Any], saved: dict[str, Any] | None = None) -> int:
        """Build new models, in a saved state if one fits, and return how many rows they have learned."""
        domain = _domain(self.vocs)
        about: dict[str, Any] = {"domain": domain, "kind": _WithinLimits, "width": self.width}
        about |= {"capacity": self.capacity, "seed": self.seed}
        twice = sorted(about.keys() & self.options.keys())
        validation.require(not twice, "options", twice, f"without {', '.join(about)}")
        first: Any = auto_over_points(**about, **self.options)
        ends = [_limits(one) for one in self.vocs.constraints.values()]
        first.limits = [(auto_over_points(**about, **self.options), *each) for each in ends]
        moving: Policy = first
        if self.max_travel_distances is not None or self.move_price:
            far, names = self.max_travel_distances, self.vocs.variable_names
            fits = far is None or len(far) == len(names)
            validation.require(fits, "max_travel_distances", far, f"one for each of {names}")
            free = not self.move_price or not first.limits
            validation.require(free, "move_price", self.move_price, "0 with constraints")
            reach = None if far is None else domain.bounds.new_tensor(far)
            moving = CostlyMoves(first, domain, max_move=reach, move_price=self.move_price)
        self._models, self._built_with = [moving, *(model for model, _, _ in first.limits)], settings
        if saved is None or any(saved.get(name, value) != value for name, value in settings.items()):
            return 0
        for model, one in zip(self._models, saved["models"], strict=True):
            model.load_state_dict(one)
        return int(saved["rows"])


class _WithinLimits(PointAveraging):
    """Adds to its upper bound the log probability that other outputs, each with a model, are within limits."""

    limits: Sequence[tuple[PointAveraging, float, float]] = ()

    def acquisition(self) -> AcquisitionFunction:
        return _Feasible(super().acquisition(), self.limits) if self.limits else super().acquisition()


class _Feasible(AcquisitionFunction):
    """a(X) + sum_i ln P(low_i <= g_i(X) <= high_i), g_i normal as its model predicts."""

    def __init__(
        self, bound: AcquisitionFunction, limits: Sequence[tuple[PointAveraging, float, float]]
    ) -> None:
        super().__init__(model=bound.model)
        self.bound = bound
        self._limits = [(model.mixture(), low, high) for model, low, high in limits]

    def forward(self, X: Tensor) -> Tensor:
        value = self.bound(X)
        for model, low, high in self._limits:
            posterior = model.posterior(X)
            mean, variance = (m.squeeze(-1).squeeze(-1) for m in (posterior.mean, posterior.variance))
            scale = (model.weights * model.scale).sum(-1) / model.unit.square()
            least = _LEAST_VARIANCE * (scale + mean.detach().square())
            spread = variance.clamp_min(least).sqrt()
            below, above = (low - mean) / spread, (high - mean) / spread
            if math.isinf(low):
                value = value + log_ndtr(above)
            elif math.isinf(high):
                value = value + log_ndtr(-below)
            else:
                value = value + log_prob_normal_in(below, above)
        return value


def _as_numbers(column: pd.Series) -> pd.Series:
    """The numbers in a column, NaN in place of anything else, such as dates, which pandas would take for integers."""
    known = column if pd.api.types.is_numeric_dtype(column) else column.astype(object)
    return pd.to_numeric(known, errors="coerce")


def _domain(vocs: VOCS) -> Domain:
    ends = [vocs.variables[name].domain for name in vocs.variable_names]
    return Domain(torch.tensor(ends, dtype=torch.float64).mT)


def _sign(vocs: VOCS) -> float:
    (objective,) = vocs.objectives.values()
    return 1.0 if isinstance(objective, MaximizeObjective) else -1.0


def _limits(constraint: Any) -> tuple[float, float]:
    if isinstance(constraint, BoundsConstraint):
        return float(constraint.range[0]), float(constraint.range[1])
    if isinstance(constraint, GreaterThanConstraint):
        return float(constraint.value), math.inf
    return -math.inf, float(constraint.value)


generators.update({TimeVaryingUCBGenerator.name: TimeVaryingUCBGenerator})  # so that YAML finds it by name

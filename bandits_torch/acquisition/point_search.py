"""The best point of a domain for each replicate, by BoTorch's ``optimize_acqf``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.models.at_time import with_time


@validation.names_arguments
@dataclass(frozen=True)
class PointSearch:
    """How an acquisition is maximised: local searches (L-BFGS-B) from warm starts and from the best raw samples.

    Attributes:
        num_restarts: local searches per replicate, warm starts included.
        raw_samples: Sobol points evaluated to find starts.
        warm_start: whether a search also starts at the previous step's optimum.
        options: of ``optimize_acqf``, such as ``{"maxiter": 50, "factr": 1e10}``.
        initial: number of Sobol points played first, regardless of the acquisition function: a design from which
            hyperparameters are learned.

    Raises ValueError unless ``num_restarts`` and ``raw_samples`` are integers >= 1, with ``raw_samples`` >=
    ``num_restarts``, ``initial`` an integer >= 0, ``warm_start`` a truth value and ``options`` a mapping.
    """

    num_restarts: int = 4
    raw_samples: int = 64
    warm_start: bool = True
    options: Mapping[str, Any] = field(default_factory=lambda: {"maxiter": 50})
    initial: int = 0

    def __post_init__(self) -> None:
        validation.positive_integer("num_restarts", self.num_restarts)
        validation.positive_integer("raw_samples", self.raw_samples)
        enough = self.raw_samples >= self.num_restarts
        validation.require(enough, "raw_samples", self.raw_samples, f"at least {self.num_restarts} restarts")
        validation.natural("initial", self.initial)
        validation.instance("options", self.options, Mapping, "a mapping, the options of optimize_acqf")
        validation.instance("warm_start", self.warm_start, bool, "True or False")

    def at_step(self, step: int) -> PointSearch:
        """The search of step 1, 2, ...: the same at all."""
        return self

    def opening(self, domain: Domain, step: int, replicates: int, seed: int) -> Tensor | None:
        """Points (S, d) to play after ``step`` < ``initial`` others, the same in all replicates; None from then on."""
        if step >= self.initial:
            return None
        return domain.fix(domain.sample(self.initial, seed)[step].repeat(replicates, 1))

    def maximise(
        self,
        acquisition: AcquisitionFunction,
        domain: Domain,
        *,
        replicates: int = 1,
        time: float | None = None,
        starts: Tensor | None = None,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """argmax over x in the domain of acquisition([x, time]), separately for each replicate.

        All local searches of all replicates advance together, with one batched evaluation per round. Each has its own
        L-BFGS-B state, so a replicate's optimum does not depend on the others. (With inequality constraints BoTorch
        runs SLSQP, one search at a time.)

        Args:
            acquisition: over a model of batch shape (S,), or () for S = 1; values ``t_batch x S`` of inputs
                ``t_batch x S x 1 x D``, or ``t_batch`` of ``t_batch x 1 x D``.
            domain: of x, its d columns.
            replicates: S.
            time: of the last input column; None where inputs have no such column. It is a fixed feature.
            starts: (S, w, d) warm starts; those outside the domain are ignored.
            seed: of the raw samples, which all replicates share.

        Returns:
            Points (S, d) and values (S,).
        """
        like = domain.bounds
        fixed: dict[int, float | Tensor] = dict(domain.fixed_features)
        bounds = like
        if time is not None:
            bounds = with_time(bounds, time)
            fixed[domain.dim] = time
        scored = _OfReplicates(acquisition, replicates)
        begin = self._starts(scored, domain, time, starts, seed)  # R x S x D
        rounds = begin.shape[0]
        begin = begin.reshape(-1, 1, begin.shape[-1])
        fixed = {i: v.repeat(rounds) if Domain.differs(v) else v for i, v in fixed.items()}
        options = dict(self.options)
        if domain.inequality_constraints:
            options.pop("factr", None)  # of L-BFGS-B alone
        if replicates > 1:
            member = torch.arange(replicates, dtype=bounds.dtype, device=like.device).repeat(rounds)
            fixed[bounds.shape[-1]] = member
            bounds = torch.cat([bounds, bounds.new_tensor([[0.0], [replicates - 1.0]])], -1)
            begin = torch.cat([begin, member.reshape(-1, 1, 1)], -1)
            if domain.inequality_constraints:
                options["max_optimization_problem_aggregation_size"] = 1
        X, values = optimize_acqf(
            scored,
            bounds,
            q=1,
            num_restarts=len(begin),
            batch_initial_conditions=begin,
            fixed_features=fixed or None,
            inequality_constraints=list(domain.inequality_constraints) or None,
            options=options,
            return_best_only=False,
            retry_on_optimization_warning=False,
        )
        lowest = torch.finfo(like.dtype).min
        best = cast(Tensor, values).nan_to_num(nan=lowest, neginf=lowest).reshape(rounds, -1).max(0)
        points = X[:, 0, : domain.dim].reshape(rounds, replicates, -1).to(like)
        each = torch.arange(replicates, device=points.device)
        return domain.fix(points[best.indices, each]), best.values

    @staticmethod
    def score(
        acquisition: AcquisitionFunction, X: Tensor, *, replicates: int = 1, time: float | None = None
    ) -> Tensor:
        """Values (n, S) of points (n, S, d), those of column s for replicate s; see ``maximise``."""
        return _OfReplicates(acquisition, replicates).grid(_with_time(X, time))

    def _starts(
        self,
        scored: _OfReplicates,
        domain: Domain,
        time: float | None,
        starts: Tensor | None,
        seed: int,
    ) -> Tensor:
        """Where the searches begin, R x S x D: the warm starts first, then the best raw samples."""
        raw = domain.sample(self.raw_samples, seed)
        raw = domain.fix(raw.unsqueeze(1).repeat(1, scored.replicates, 1))  # n x S x d
        raw = _with_time(raw, time)
        warm = raw[:0]
        if starts is not None and self.warm_start:
            warm = _with_time(domain.fix(starts.movedim(1, 0)), time)
        with torch.no_grad():
            values = scored.grid(raw).nan_to_num(nan=-torch.inf)
        order = values.topk(self.num_restarts, dim=0).indices
        best = raw.gather(0, order.unsqueeze(-1).expand(*order.shape, raw.shape[-1]))
        if not len(warm):
            return best
        outside = ~domain.contains(warm[..., : domain.dim])
        low, high = domain.bounds
        warm[..., : domain.dim] = warm[..., : domain.dim].clamp(low, high)  # rounding aside, it is inside
        spare = best[-1:].expand_as(warm)
        warm = torch.where(outside.unsqueeze(-1), spare, warm)
        return torch.cat([warm, best])[: max(self.num_restarts, len(warm) + 1)]


class _OfReplicates(AcquisitionFunction):
    """Values of points whose last column names the replicate they are for (if there are several)."""

    def __init__(self, acquisition: AcquisitionFunction, replicates: int) -> None:
        super().__init__(model=acquisition.model)
        self.acquisition, self.replicates = acquisition, replicates
        self._batched = len(acquisition.model.batch_shape) > 0

    def grid(self, X: Tensor) -> Tensor:
        """Values n x S of points n x S x D, column s for replicate s."""
        X = X.unsqueeze(-2) if self._batched else X
        return self.acquisition(X).reshape(X.shape[0], -1)

    def forward(self, X: Tensor) -> Tensor:
        """Values b of X, b x 1 x (D + 1), or b x 1 x D of one replicate."""
        unmoved = 0.0 * X.sum((-2, -1))  # so that there is a gradient, 0, where the values do not depend on X
        if self.replicates == 1:
            return self.grid(X).squeeze(-1) + unmoved
        points, member = X[:, 0, :-1], X[:, 0, -1].long()
        one_hot = member.unsqueeze(-1) == torch.arange(self.replicates, device=X.device)
        rank = (
            one_hot.cumsum(0).gather(-1, member.unsqueeze(-1)).squeeze(-1) - 1
        )  # among those of its replicate
        depth = int(rank.max()) + 1
        idle = points[:1].detach().expand(depth, self.replicates, -1)
        return self.grid(idle.index_put((rank, member), points))[rank, member] + unmoved


def _with_time(X: Tensor, time: float | None) -> Tensor:
    return X if time is None else with_time(X, time)

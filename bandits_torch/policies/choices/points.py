"""The points of a domain: alone, and with a model and a search for the best of them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.over_priors import OverPriors
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.domain import Domain
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.choices.choices import Choices, ModelChoices
from bandits_torch.streams import ReplicateStreams

_DRAWS = 100  # first part of the spawn keys of draws, which differ from those of ``ReplicateStreams``
_MOST_DRAWS = 1000


class Points(Choices):
    """The points of a domain; a step may have another domain with other bounds, constraints or context.

    Args:
        domain: the default domain of a step.
        replicates: S.

    Raises ValueError for any other kind of domain, and ``replicates`` that are not an integer >= 1.
    """

    def __init__(self, domain: Domain, replicates: int = 1) -> None:
        validation.instance("domain", domain, Domain, "a Domain")
        self.domain, self.dim = domain, domain.dim
        self.replicates = validation.positive_integer("replicates", replicates)
        self._shape, self._dtypes = (replicates, domain.dim), (torch.float64, torch.float32)
        self._expected = "finite, floating point: a point of each replicate"

    def check_available(self, available: Domain | None) -> None:
        fits = available is None or (isinstance(available, Domain) and available.dim == self.dim)
        validation.require(fits, "available", available, f"a Domain of {self.dim} dimensions")

    def draw(self, streams: ReplicateStreams, available: Domain | None) -> Tensor:
        """Uniform points (S, d) of the domain. Raises ValueError if 1 000 repetitions find none that meets the
        constraints; the streams then do not advance."""
        self.check_available(available)
        domain = self.domain if available is None else available
        low, high = domain.bounds

        def uniform() -> Tensor:
            return domain.fix(low + (high - low) * streams.uniform(self.dim))

        if not domain.inequality_constraints:
            return uniform()
        before, points = streams.state_dict(), uniform()
        for _ in range(_MOST_DRAWS):
            outside = ~domain.contains(points, 0.0)
            if not bool(outside.any()):
                return points
            points = torch.where(outside.unsqueeze(-1), uniform(), points)
        streams.load_state_dict(before)
        expected = f"a domain with a point that meets the constraints among {_MOST_DRAWS} uniform draws"
        validation.require(False, "available", domain, expected)
        return points

    def _inside(self, arm: Tensor) -> bool:
        return bool(arm.isfinite().all())


class ModelPoints(Points, ModelChoices):
    """The points of a domain with an ``OnlineGP`` over it.

    Args:
        model: over d inputs, or d + 1 with time last; batch shape (), (S,), or (S, P) with candidate priors.
        domain: a domain of dimension d.
        search: how an acquisition is maximised.
        seed: seed of the raw samples of a search, which differ between steps and are the same in every replicate.
        first_replicate: number of the first replicate, for ``StepContext.seeds``.

    It stores the number of steps and the latest points, at which the next search also starts.

    Raises ValueError for a model over another number of inputs, a search of another kind, and a seed that is not an
    integer >= 0.
    """

    model: OnlineGP

    def __init__(
        self,
        model: OnlineModel,
        domain: Domain,
        search: PointSearch | None = None,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.instance("domain", domain, Domain, "a Domain")
        extra = model.input_dim - domain.dim if isinstance(model, OnlineGP) else -1
        expected = f"an OnlineGP of input_dim {domain.dim}, or {domain.dim + 1} with time"
        validation.require(extra in (0, 1), "model", model, expected)
        batch = model.batch_shape
        super().__init__(domain, batch[0] if batch else 1)
        self.search = PointSearch() if search is None else search
        validation.instance("search", self.search, PointSearch, "a PointSearch")
        self._seed, self._first = validation.natural("seed", seed), first_replicate
        self._dtype = model.noise_variance.dtype
        self.model, self.given = cast(OnlineGP, model), domain
        self._of_each_member = (*batch[:1], *[1] * (len(batch) - 1), 1)
        self._begin()

    steps: int  # choices so far, also pending ones
    _latest: Tensor  # the latest points, (S, 0 or 1, d)
    _lasting = ("steps", "_latest")

    def _fresh(self) -> dict[str, Any]:
        return {"steps": 0, "_latest": self.domain.bounds.new_zeros(self.replicates, 0, self.dim)}

    def shown(self, count: int = 200) -> Tensor:
        """Points evenly spread over the domain. Raises ValueError for a domain of several dimensions."""
        one = self.dim == 1
        validation.require(one, "policy", self.domain, "one over arms, or over a domain of one dimension")
        low, high = self.domain.bounds
        return low + (high - low) * torch.linspace(0, 1, count).to(low).unsqueeze(-1)

    def _time(self, time: float) -> float | None:
        return self._checked_time(time) if self.model.input_dim > self.dim else None

    def inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """The points, and time."""
        return self._maybe_timed(arm, time).reshape(*self._of_each_member, -1)

    def _inputs_at(self, time: float, at: Tensor) -> Tensor:
        return self._maybe_timed(at, time)

    def observe(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        """Learn one reward of every replicate, at any time; the next search also starts at these points."""
        self.model.observe(self.inputs_of(arm, time), reward.reshape(*self._of_each_member, 1))
        self._latest = arm.detach().clone().unsqueeze(1)
        self.steps += 1

    def expect(self, arm: Tensor, time: float) -> None:
        """Pending choices count as steps, for the opening and for the seeds."""
        super().expect(arm, time)
        self.steps += 1

    def marginals(self, time: float, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of points (N, d) at ``time``, (S, N) each."""
        return self.moments(cast(Tensor, points).unsqueeze(1), time)

    def largest_mean(self, time: float, available: Tensor | None = None) -> Tensor:
        model = self.model
        if not model.data.size:
            zeros = model.data.inputs.new_zeros(*model.batch_shape, 1, model.input_dim)
            return model.prior_mean(zeros).to(model.noise_variance)
        rows = model.data.rows()
        inputs = self._maybe_timed(rows.inputs[..., : self.dim], time)
        inputs = inputs.expand(*model.batch_shape, *inputs.shape[-2:])
        posterior = cast(GPyTorchPosterior, model.posterior(inputs.movedim(-2, 0).unsqueeze(-2)))
        mean = posterior.mean[..., 0, 0].movedim(0, -1)
        empty = ~rows.held.any(-1, keepdim=True)
        return mean.masked_fill(~rows.held & ~empty, -torch.inf).amax(-1, keepdim=True)

    def moments(self, points: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """``marginals`` of different points for each replicate, (N, S, d), or the same for all, (N, 1, d): (S, N)
        each."""
        points = self._maybe_timed(points, time)
        return self._moments((points if self.model.batch_shape else points.squeeze(1)).unsqueeze(-2))

    def best(
        self, acquisition: AcquisitionFunction, time: float, available: Domain | None
    ) -> tuple[Tensor, Tensor]:
        """By ``PointSearch``; the first steps play the points of its opening, whatever their values."""
        domain = self.domain if available is None else available
        first = self.search.opening(domain, self.steps, self.replicates, self._seed)
        if first is not None:
            return first, acquisition(self.inputs_of(first, time)).reshape(-1)
        with torch.enable_grad():
            return self._searched(acquisition, time, domain)

    def _searched(
        self, acquisition: AcquisitionFunction, time: float, domain: Domain
    ) -> tuple[Tensor, Tensor]:
        return self.search.at_step(self.steps + 1).maximise(
            acquisition,
            domain,
            replicates=self.replicates,
            time=self._time(time),
            starts=self._latest if self._latest.shape[1] else None,
            seed=(1_000_003 * self._seed + self.steps) % 2**31,
        )

    def best_under(self, over: OverPriors, time: float, available: Domain | None) -> tuple[Tensor, Tensor]:
        """By ``PointSearch``, with the prior that gives the largest value at the point."""
        domain = self.domain if available is None else available
        points = self.search.opening(domain, self.steps, self.replicates, self._seed)
        if points is None:
            with torch.enable_grad():
                points, _ = self._searched(over, time, domain)
        prior = over.prior(self.inputs_of(points, time).squeeze(1).unsqueeze(0))
        return points, prior.reshape(self.replicates)

    def step(self, time: float, width: Tensor | None, streams: ReplicateStreams) -> StepContext:
        """With a seed for each replicate's draw, the same in a batch and alone."""

        def seeds() -> list[int]:
            keys = [(_DRAWS, self._first + k, self.steps) for k in range(self.replicates)]
            sequences = [np.random.SeedSequence(self._seed, spawn_key=key) for key in keys]
            return [int(sequence.generate_state(1, np.uint32)[0]) for sequence in sequences]

        return StepContext(self._time(time), width, seeds=seeds)

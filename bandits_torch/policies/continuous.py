"""Index policies over a continuous domain: maximise an acquisition function over points, play the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.online_gp import OnlineGP
from bandits_torch.policies.forgetting import ForgettingRule
from bandits_torch.policies.model_policy import ModelPolicy
from bandits_torch.policies.policy import Choice, Observation, check_points, domain_now
from bandits_torch.theory.widths import Width

_DRAWS = 100  # keeps the seeds of draws apart from those of ``ReplicateStreams``


class ContinuousIndexPolicy(ModelPolicy):
    """argmax over the points x of a domain of acquisition(model) at [x, now].

    Args:
        model: an ``OnlineGP`` of batch shape () or (S,), over the domain's d columns, or over d + 1 where time is
            the last; the time is then a fixed feature of the search.
        acquisition: called once a step as ``acquisition(model)``, with ``width=`` where the policy has one; what it
            returns must be differentiable.
        domain: where points may be played when ``choose`` is not told otherwise.
        width, forgetting, seed, first_replicate: as for ``IndexPolicy``.
        search: how the acquisition is maximised.

    ``choose`` takes a ``Domain`` in place of a mask of arms: other bounds, constraints, or a context, for this step.

    Raises ValueError for a model over another number of inputs.
    """

    def __init__(
        self,
        model: OnlineGP,
        acquisition: Callable[..., AcquisitionFunction],
        domain: Domain,
        *,
        width: Width | None = None,
        forgetting: ForgettingRule | None = None,
        search: PointSearch | None = None,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        check_model_over_points(model, domain)
        super().__init__(
            model,
            acquisition,
            width=width,
            forgetting=forgetting,
            seed=seed,
            first_replicate=first_replicate,
        )
        self.domain, self.dim, self.num_arms = domain, domain.dim, 0
        self.search, self._seed, self._first_replicate = search or PointSearch(), seed, first_replicate
        self._steps, self._latest = 0, domain.bounds.new_zeros(self.replicates, 0, domain.dim)

    def choose(self, time: float, available: Domain | None = None) -> Choice:  # type: ignore[override]
        """The best point of each replicate, (S, d); its index is ``why["index"]``, (S,)."""
        domain = domain_now(self.domain, available)
        acquisition = self._acquisition_now(time)
        first = self.search.opening(domain, self._steps, self.replicates, self._seed)
        if first is not None:
            with torch.no_grad():
                return Choice(first, {"index": acquisition(self._inputs(first, time)).reshape(-1)})
        points, values = self.search.maximise(
            acquisition,
            domain,
            replicates=self.replicates,
            time=time if self._has_time else None,
            starts=self._latest if self._latest.shape[1] else None,
            seed=raw_seed(self._seed, self._steps),
        )
        return Choice(points, {"index": values})

    def learn(self, observation: Observation) -> None:
        """As every index policy learns; the point is where the next search begins, too."""
        super().learn(observation)
        self._latest = observation.arm.detach().clone().unsqueeze(1)
        self._steps += 1

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of one point per replicate, (S,) each."""
        posterior = cast(GPyTorchPosterior, self.model.posterior(self._inputs(arm, time)))
        return posterior.mean.reshape(-1), posterior.variance.reshape(-1).sqrt()

    @torch.no_grad()
    def marginals(self, time: float, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of points (N, d) at ``time``, (S, N) each."""
        if self._has_time:
            points = torch.cat([points, torch.full_like(points[:, :1], time)], -1)
        inputs = points.reshape(len(points), *[1] * len(self.model.batch_shape), 1, -1)
        posterior = cast(GPyTorchPosterior, self.model.posterior(inputs))  # N x batch x 1 x 1
        mean, variance = (m.reshape(len(points), -1).mT for m in (posterior.mean, posterior.variance))
        return mean.expand(self.replicates, -1), variance.expand(self.replicates, -1)

    @property
    def _has_time(self) -> bool:
        return cast(int, self.model.input_dim) > self.dim

    @torch.no_grad()
    def _acquisition_now(self, time: float) -> AcquisitionFunction:
        arguments = self._width_argument()
        if getattr(self.acquisition, "_needs_time", False):
            arguments["time"] = time if self._has_time else None
        if getattr(self.acquisition, "_needs_seeds", False):
            first, count = self._first_replicate, self.replicates
            arguments["seeds"] = [draw_seed(self._seed, k, self._steps) for k in range(first, first + count)]
        return self.acquisition(self.model, **arguments)

    def _check(self, observation: Observation) -> None:
        check_points(observation, self.replicates, self.dim)

    def _inputs(self, points: Tensor, time: float) -> Tensor:
        """``batch_shape x 1 x D`` of points (S, d)."""
        if self._has_time:
            points = torch.cat([points, torch.full_like(points[:, :1], time)], -1)
        return points.reshape(*self.model.batch_shape, 1, -1)

    def _observe(self, arm: Tensor, reward: Tensor, time: float) -> None:
        self.model.observe(self._inputs(arm, time), reward.reshape(*self.model.batch_shape, 1, 1))

    def state_dict(self) -> dict[str, Any]:
        """As every index policy's; and where the next search begins."""
        return super().state_dict() | {"steps": self._steps, "latest": self._latest.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        super().load_state_dict(state)
        self._steps, self._latest = state["steps"], state["latest"].clone()


def check_model_over_points(model: object, domain: Domain) -> None:
    """Raise ValueError unless the model's inputs are points of the domain, with or without time."""
    validation.require(
        isinstance(model, OnlineGP) and model.input_dim - domain.dim in (0, 1),
        "model",
        model,
        f"an OnlineGP of input_dim {domain.dim}, or {domain.dim + 1} with time",
    )


def raw_seed(seed: int, step: int) -> int:
    """Seed of the raw samples of a step: other points at every step, the same in every replicate."""
    return (1_000_003 * seed + step) % 2**31


def draw_seed(seed: int, replicate: int, step: int) -> int:
    """Seed of a replicate's draw of a step, the same in a batch and alone."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_DRAWS, replicate, step))
    return int(sequence.generate_state(1, np.uint32)[0])

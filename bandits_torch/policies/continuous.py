"""Index policies over a continuous domain: maximise an acquisition function over points, play the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.online_gp import OnlineGP
from bandits_torch.policies.forgetting import ForgettingRule
from bandits_torch.policies.model_policy import ModelPolicy
from bandits_torch.policies.point_searcher import PointSearcher, check_model_over_points
from bandits_torch.policies.policy import Choice, Observation, check_points
from bandits_torch.theory.widths import Width


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
        has_time = check_model_over_points(model, domain)
        super().__init__(
            model,
            acquisition,
            width=width,
            forgetting=forgetting,
            seed=seed,
            first_replicate=first_replicate,
        )
        self.domain, self.dim, self.num_arms = domain, domain.dim, 0
        self.search = PointSearch() if search is None else search
        self._searcher = PointSearcher(self.search, domain, self.replicates, has_time, seed)
        self._first_replicate = first_replicate

    def choose(self, time: float, available: Domain | None = None) -> Choice:  # type: ignore[override]
        """The best point of each replicate, (S, d); its index is ``why["index"]``, (S,)."""
        acquisition = self._acquisition_now(time)
        points, values = self._searcher.best(acquisition, time, available)
        if values is None:
            with torch.no_grad():
                values = acquisition(self._inputs_of(points, time)).reshape(-1)
        return Choice(points, {"index": values})

    def learn(self, observation: Observation) -> None:
        """As every index policy learns; the point is where the next search begins, too."""
        super().learn(observation)
        self._searcher.learn(observation.arm)

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of one point per replicate, (S,) each."""
        posterior = cast(GPyTorchPosterior, self.model.posterior(self._inputs_of(arm, time)))
        return posterior.mean.reshape(-1), posterior.variance.reshape(-1).sqrt()

    @torch.no_grad()
    def marginals(self, time: float, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of points (N, d) at ``time``, (S, N) each."""
        points = self._searcher.inputs(points, time)
        inputs = points.reshape(len(points), *[1] * len(self.model.batch_shape), 1, -1)
        posterior = cast(GPyTorchPosterior, self.model.posterior(inputs))  # N x batch x 1 x 1
        mean, variance = (m.reshape(len(points), -1).mT for m in (posterior.mean, posterior.variance))
        return mean.expand(self.replicates, -1), variance.expand(self.replicates, -1)

    @torch.no_grad()
    def _acquisition_now(self, time: float) -> AcquisitionFunction:
        arguments = self._width_argument()
        if getattr(self.acquisition, "_needs_time", False):
            arguments["time"] = self._searcher.time(time)
        if getattr(self.acquisition, "_needs_seeds", False):
            arguments["seeds"] = self._searcher.draw_seeds(self._first_replicate)
        return self.acquisition(self.model, **arguments)

    def _check(self, observation: Observation) -> None:
        check_points(observation, self.replicates, self.dim)

    def _inputs_of(self, arm: Tensor, time: float) -> Tensor:
        return self._searcher.inputs(arm, time).reshape(*self.model.batch_shape, 1, -1)

    def _observe(self, arm: Tensor, reward: Tensor, time: float) -> None:
        self.model.observe(self._inputs_of(arm, time), reward.reshape(*self.model.batch_shape, 1, 1))

    def state_dict(self) -> dict[str, Any]:
        """As every index policy's; and where the next search begins."""
        return super().state_dict() | self._searcher.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        super().load_state_dict(state)
        self._searcher.load_state_dict(state)

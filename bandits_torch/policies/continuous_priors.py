"""PE-GP-UCB over the points of a domain: a batch of candidate priors over space, or space and time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.models.online_gp import OnlineGP
from bandits_torch.policies.over_priors import PriorElimination
from bandits_torch.policies.point_searcher import PointSearcher, check_model_over_points
from bandits_torch.policies.policy import Choice, Observation, check_points, check_why
from bandits_torch.theory.widths import Width


class ContinuousPriorElimination(PriorElimination):
    """``PriorElimination`` on a domain: the largest upper confidence bound over points and surviving priors.

    Args:
        model: an ``OnlineGP`` of batch shape (S, P) (``online_gp_over_priors``), over the domain's d columns, or
            over d + 1 with time the last.
        width, delta, noise_scale, xi: as for ``PriorElimination``.
        domain, search, seed: as for ``ContinuousIndexPolicy``.

    Source: Ziomek et al. 2024, Algorithm 1 and Theorem 4.1 B.

    Raises ValueError for a model over another number of inputs.
    """

    _MODELS = (OnlineGP,)
    model: OnlineGP  # type: ignore[assignment]

    def __init__(
        self,
        model: OnlineGP,
        width: Width,
        domain: Domain,
        *,
        delta: float = 0.1,
        noise_scale: float | Tensor | None = None,
        xi: str = "two-sided",
        search: PointSearch | None = None,
        seed: int = 0,
    ) -> None:
        has_time = check_model_over_points(model, domain)
        super().__init__(model, width, delta=delta, noise_scale=noise_scale, xi=xi)  # type: ignore[arg-type]
        self.domain, self.dim = domain, domain.dim
        self.search = PointSearch() if search is None else search
        self._searcher = PointSearcher(self.search, domain, self.replicates, has_time, seed)

    def choose(self, time: float, available: Domain | None = None) -> Choice:  # type: ignore[override]
        """The best point of each replicate, (S, d), and the prior it was chosen by."""
        with torch.no_grad():
            width = self.width(self._step(1), self.model).expand(self.model.batch_shape)
            over = self._over(UpperConfidenceBound(self.model, width))
        points, _ = self._searcher.best(over, time, available)
        with torch.no_grad():
            prior = over.prior(self._inputs(points, time).squeeze(1).unsqueeze(0)).reshape(self.replicates)
        return Choice(points, {"prior": prior, "width": width.gather(-1, prior.unsqueeze(-1)).squeeze(-1)})

    def learn(self, observation: Observation) -> None:
        """As ``PriorElimination`` learns; the point is where the next search begins, too."""
        super().learn(observation)
        self._searcher.learn(observation.arm)

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and deviation of one point per replicate under the prior played last, (S,) each."""
        posterior = cast(GPyTorchPosterior, self.model.posterior(self._inputs(arm, time)))
        at = self._prior.unsqueeze(-1)
        mean, variance = (
            moment[..., 0, 0].gather(-1, at).squeeze(-1) for moment in (posterior.mean, posterior.variance)
        )
        return mean, variance.sqrt()

    def _check(self, observation: Observation) -> None:
        check_points(observation, self.replicates, self.dim)
        check_why(observation, self.replicates, *self._TOLD)

    def _predicted(self, observation: Observation) -> tuple[Tensor, Tensor]:
        self._prior = observation.why["prior"]
        return self.predict(observation.arm, observation.time)

    def _observe(self, observation: Observation) -> None:
        self.model.observe(
            self._inputs(observation.arm, observation.time), observation.reward.reshape(-1, 1, 1, 1)
        )

    def _inputs(self, points: Tensor, time: float) -> Tensor:
        """``S x 1 x 1 x D`` of points (S, d), the same for every prior."""
        return self._searcher.inputs(points, time).reshape(self.replicates, 1, 1, -1)

    def state_dict(self) -> dict[str, Any]:
        """Model, step, the record of every prior, and where the next search begins."""
        return super().state_dict() | self._searcher.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        super().load_state_dict(state)
        self._searcher.load_state_dict(state)

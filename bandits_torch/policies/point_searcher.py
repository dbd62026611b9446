"""Where a policy over a domain searches next: what such policies share beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.online_gp import OnlineGP
from bandits_torch.policies.policy import domain_now

_DRAWS = 100  # keeps the seeds of draws apart from those of ``ReplicateStreams``


class PointSearcher:
    """A ``PointSearch`` with what it needs from step to step: how many went before, and the point played last.

    Args:
        search: how an acquisition is maximised.
        domain: where, unless a step says otherwise.
        replicates: S.
        has_time: whether the model's last input is time, then a fixed feature of the search.
        seed: of the raw samples, other ones at every step, the same in every replicate.

    Raises ValueError for a search of another kind and a seed that is no integer >= 0.
    """

    def __init__(
        self, search: PointSearch, domain: Domain, replicates: int, has_time: bool, seed: int
    ) -> None:
        validation.instance("search", search, PointSearch, "a PointSearch")
        validation.natural("seed", seed)
        self.search, self.domain = search, domain
        self.replicates, self.has_time, self._seed = replicates, has_time, seed
        self._steps, self._latest = 0, domain.bounds.new_zeros(replicates, 0, domain.dim)

    def best(
        self, acquisition: AcquisitionFunction, time: float, available: Domain | None
    ) -> tuple[Tensor, Tensor | None]:
        """The best points (S, d) and their values (S,); no values while the opening is played."""
        domain = domain_now(self.domain, available)
        first = self.search.opening(domain, self._steps, self.replicates, self._seed)
        if first is not None:
            return first, None
        return self.search.maximise(
            acquisition,
            domain,
            replicates=self.replicates,
            time=self.time(time),
            starts=self._latest if self._latest.shape[1] else None,
            seed=(1_000_003 * self._seed + self._steps) % 2**31,
        )

    def learn(self, points: Tensor) -> None:
        """A step is over: the points (S, d) played in it are where the next search begins, too."""
        self._latest = points.detach().clone().unsqueeze(1)
        self._steps += 1

    def time(self, time: float) -> float | None:
        """The time, as a model without it takes it: None."""
        return time if self.has_time else None

    def inputs(self, points: Tensor, time: float) -> Tensor:
        """Points (n, d) as the model's inputs, (n, D)."""
        return torch.cat([points, torch.full_like(points[:, :1], time)], -1) if self.has_time else points

    def draw_seeds(self, first_replicate: int) -> list[int]:
        """A seed for each replicate's draw of this step, the same in a batch and alone."""
        keys = [(_DRAWS, first_replicate + k, self._steps) for k in range(self.replicates)]
        sequences = [np.random.SeedSequence(self._seed, spawn_key=key) for key in keys]
        return [int(sequence.generate_state(1, np.uint32)[0]) for sequence in sequences]

    def state_dict(self) -> dict[str, Any]:
        """Step and latest points."""
        return {"steps": self._steps, "latest": self._latest.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the searcher that gave ``state`` stood."""
        self._steps, self._latest = state["steps"], state["latest"].clone()


def check_model_over_points(model: object, domain: Domain) -> bool:
    """Whether the model's inputs are points of the domain with time; ValueError unless they are points at all."""
    validation.instance("domain", domain, Domain, "a Domain")
    extra = model.input_dim - domain.dim if isinstance(model, OnlineGP) else -1
    expected = f"an OnlineGP of input_dim {domain.dim}, or {domain.dim + 1} with time"
    validation.require(extra in (0, 1), "model", model, expected)
    return extra == 1

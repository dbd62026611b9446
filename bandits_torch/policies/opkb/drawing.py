"""Arms drawn from distributions, for policies that play at random."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.streams import ReplicateStreams


def draw(P: Tensor, streams: ReplicateStreams, available: Tensor | None = None) -> Tensor:
    """Arms (S,) drawn from P (S, N) with the next uniform numbers of ``streams``, among those available (a mask that
    was checked). Where no mass is left on the available arms they are drawn uniformly.
    """
    if available is not None:
        P = P * available
        P = torch.where(P.sum(-1, keepdim=True) > 0, P, available.to(P))
    cumulative = P.cumsum(-1)
    passed = cumulative > streams.uniform().unsqueeze(-1) * cumulative[:, -1:]
    return passed.to(torch.uint8).argmax(-1)  # the first arm whose cumulative share passes

"""OPKB: the optimisation-based algorithm for rewards that do not change."""

from __future__ import annotations

from bandits_torch.policies.opkb.blocks import BlockPolicy


class OPKB(BlockPolicy):
    """OPKB (Hong, Li & Tewari 2023, Algorithm 2); with neural features, OPNN (Algorithm 5).

    Block j = 1, 2, ... plays P^(j) = (1 - mu_j) Q^(j) + mu_j pi for 2^j E steps, Q^(j) the solution of OP for the
    gaps of the IPS estimates over all earlier blocks. Arguments and cost: ``BlockPolicy``.

    With ``Constants.theory()``, block 0 lasts thousands of steps; ``policy.schedules[0].describe()`` shows how the
    number comes about.
    """

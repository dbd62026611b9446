"""A mixture of Gaussian processes over points, as a BoTorch model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from botorch.models.model import Model
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import MarginalPosterior
from bandits_torch.models.points.member_posterior import MemberPosterior


@validation.names_arguments
class MemberMixture(Model):
    """What the members predict together: at [x, t] a mixture by their weights.

    Its posterior has the mixture's moments,

        m = o + sum w_p mu_p,    v = sum w_p (s_p v_p + (mu_p - m + o)^2),    both over u and u^2.

    Differentiable in X, so that any analytic acquisition function of BoTorch can be maximised over it.

    Args:
        members: P Gaussian processes in S replicates, the batch shape here.
        weights: (S, P) w.
        scale: (S, P) s, the squared unit of each member.
        offset: (S,) o, of rewards.
        unit: (S,) u.
        pending: [z, t] of k pulls whose rewards are not known, (S, k, d + 1); None: there are none.

    With ``pending`` points Z, variances are what a linear estimate would leave once their rewards are known, and the
    mean waits for these: v - K(x, Z) (K(Z, Z) + L I)^{-1} K(Z, x), L the mixture's noise and

        K(x, z) = sum w_p (s_p C_p(x, z) + (mu_p(x) - m(x)) (mu_p(z) - m(z))).

    Source: moments of a mixture; BoTorch's ``Model`` is the contract.

    Raises ValueError for shapes that do not fit, and for X of more than one point at a time.
    """

    def __init__(
        self,
        members: MemberPosterior,
        weights: Tensor,
        scale: Tensor,
        offset: Tensor,
        unit: Tensor,
        pending: Tensor | None = None,
    ) -> None:
        super().__init__()
        validation.instance("members", members, MemberPosterior, "PointMembers")
        both, alone = tuple(members.batch_shape), tuple(members.batch_shape[:1])
        given = {
            "weights": (weights, both),
            "scale": (scale, both),
            "offset": (offset, alone),
            "unit": (unit, alone),
        }
        for name, (value, shape) in given.items():
            validation.shape_is(name, value, validation.tensor(name, value).shape == shape, f"{shape}")
        self.members, self.weights, self.scale = members, weights, scale
        self.offset, self.unit = offset, unit
        self._pending: tuple[Tensor, Tensor, Tensor] | None = None
        if pending is not None:
            right = validation.tensor("pending", pending).dim() == 3 and pending.shape[::2] == (
                *alone,
                members.dim + 1,
            )
            validation.shape_is(
                "pending", pending, right, f"({alone[0]}, k, {members.dim + 1}): points, time the last"
            )
            self._expect(pending[..., :-1], pending[..., -1].double())

    @property
    def num_outputs(self) -> int:
        """1."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        """(S,)."""
        return self.members.batch_shape[:1]

    def posterior(self, X: Tensor, *_unused: Any, **_also_unused: Any) -> MarginalPosterior:
        """The mixture's mean and variance at X, ``t_batch x 1 x (d + 1)``, ``t_batch`` broadcast with (S,)."""
        ok = X.dim() >= 2 and X.shape[-2:] == (1, self.members.dim + 1)
        validation.shape_is("X", X, ok, f"t_batch x 1 x {self.members.dim + 1}: one point, time the last")
        # torch.broadcast_shapes would load sympy first, for half a second.
        batch = np.broadcast_shapes(X.shape[:-2], self.batch_shape)
        points = X.squeeze(-2).expand(*batch, X.shape[-1]).reshape(-1, *batch[-1:], X.shape[-1]).movedim(0, 1)
        mean, variance = self.members.moments(points[..., :-1], points[..., -1].double())
        w = self.weights.unsqueeze(-2)
        centre = w @ mean
        spread = w @ (self.scale.unsqueeze(-1) * variance + (mean - centre).square())
        if self._pending is not None:
            told = self._told(points[..., :-1], points[..., -1].double(), mean - centre)
            spread = (spread - told.unsqueeze(-2)).clamp_min(0.0)
        unit = self.unit.unsqueeze(-1)
        mean = (centre.squeeze(-2) + self.offset.unsqueeze(-1)) / unit  # S x b
        shaped = (
            m.movedim(0, 1).reshape(*batch, 1).to(X) for m in (mean, spread.squeeze(-2) / unit.square())
        )
        return MarginalPosterior(*shaped)

    @torch.no_grad()
    def _expect(self, Z: Tensor, then: Tensor) -> None:
        """Points (S, k, d) at times (S, k) are pending."""
        mean, _ = self.members.moments(Z, then)
        off = mean - self.weights.unsqueeze(-2) @ mean
        self._pending = Z, then, off
        noise = (self.weights * self.scale * self.members.noise_variance).sum(-1)
        A = self._between(Z, then, off)
        self._root = torch.linalg.cholesky(A + torch.diag_embed(noise.unsqueeze(-1).expand(A.shape[:-1])))

    def _between(self, X: Tensor, time: Tensor, off: Tensor) -> Tensor:
        """K of points (S, b, d), of which members are ``off`` (S, P, b) the mean, with those pending: (S, b, k)."""
        assert self._pending is not None
        Z, then, off_there = self._pending
        covariance = self.scale[..., None, None] * self.members.between(X, time, Z, then)
        return (
            self.weights[..., None, None] * (covariance + off.unsqueeze(-1) * off_there.unsqueeze(-2))
        ).sum(1)

    def _told(self, X: Tensor, time: Tensor, off: Tensor) -> Tensor:
        """What the rewards that are pending would take off the variance of points, (S, b)."""
        cross = self._between(X, time, off)
        return torch.linalg.solve_triangular(self._root, cross.mT, upper=False).square().sum(-2)

"""What many Gaussian processes over points and time predict from what they hold."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.points.member_kernels import FadingKernels, covariance
from bandits_torch.models.points.member_moments import MemberMoments


class MemberPosterior:
    """Predictions of P Gaussian processes in S replicates, whose covariances ``PointMembers`` has.

    Attributes:
        bounds: (2, d), the box that is scaled to the unit cube.
        inputs: (S, n, d) of the unit cube, oldest first by arrival; times: (S, n).
        held: (S, P, n) booleans, whether a member still holds an observation.
        lengthscale: (S, P, d); noise_variance: (S, P).
        over_time: k_T of the members.
        inverse, weights: A^{-1}, (S, P, n, n), and A^{-1} y, (S, P, n), of A = K + lambda I over what is held.
    """

    bounds: Tensor
    inputs: Tensor
    times: Tensor
    held: Tensor
    lengthscale: Tensor
    noise_variance: Tensor
    inverse: Tensor
    weights: Tensor
    over_time: FadingKernels
    _side: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """(S, P)."""
        return self.noise_variance.shape

    @property
    def dim(self) -> int:
        """d."""
        return self.bounds.shape[-1]

    def unit_cube(self, X: Tensor) -> Tensor:
        """Points ``... x d`` of the box, scaled to the unit cube."""
        return (X.double() - self.bounds[0]) / self._side

    def moments(self, X: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Mean, and variance in the member's squared unit, of points (S, b, d) at times (S, b): (S, P, b) each."""
        mean, variance = MemberMoments.apply(self.unit_cube(X), time, self)
        return mean, variance

    def between(self, X: Tensor, time: Tensor, Z: Tensor, then: Tensor) -> Tensor:
        """Posterior covariance of points X (S, b, d) at times (S, b) with Z (S, k, d) at (S, k): (S, P, b, k)."""
        left, right = self.unit_cube(X), self.unit_cube(Z)
        told = self._with_held(left, time) @ self.inverse @ self._with_held(right, then).mT
        return self._prior(left, time, right, then) - told

    def _prior(self, U: Tensor, time: Tensor, V: Tensor, then: Tensor) -> Tensor:
        """Prior covariance of points (S, b, d) of the unit cube at times (S, b) with (S, k, d) at (S, k)."""
        gap = (time.unsqueeze(-1) - then.unsqueeze(-2)).unsqueeze(1)
        return covariance(U.unsqueeze(1), V.unsqueeze(1), self.lengthscale) * self.over_time(gap)

    def _with_held(self, U: Tensor, time: Tensor) -> Tensor:
        """Prior covariance of points (S, b, d) at times (S, b) with what is held, (S, P, b, n)."""
        return self._prior(U, time, self.inputs, self.times) * self.held.unsqueeze(-2)

    def of(self, member: Tensor) -> MemberPosterior:
        """Predictions of some members of each replicate alone, (S, K)."""
        made = MemberPosterior()
        for name in ("bounds", "_side", "inputs", "times"):
            setattr(made, name, getattr(self, name))
        run = torch.arange(len(member), device=member.device).unsqueeze(-1)
        for name in ("held", "lengthscale", "noise_variance", "inverse", "weights"):
            setattr(made, name, getattr(self, name)[run, member])
        made.over_time = self.over_time.of(member)
        return made

"""One-step-ahead predictive densities under every window length at once, from one Cholesky factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.state import HasState


class WindowDensities(HasState):
    """log N(y; mean_w, variance_w + lambda) of each new observation, given the last w before it, for several w.

    With the observations in order, newest first, and L L^T = K + lambda I in that order, the leading w x w block
    of L is the factor of the last w. So with v = L^{-1} k(x) and z = L^{-1} (y - m)

        mean_w(x) = m(x) + sum_{i <= w} v_i z_i,    variance_w(x) = k(x, x) - sum_{i <= w} v_i^2

    (Rasmussen & Williams 2006, algorithm 2.1, stopped after w rows): two cumulative sums hold every window length.

    Args:
        model: an ``ArmGP`` or an ``OnlineGP``, whose prior and noise variance are read at every call.
        windows: lengths w >= 1; the largest is M.
        memory: number of densities kept; M + ``memory`` observations are kept.

    Attributes:
        inputs, rewards, held: observations, oldest first, ``batch x n x D``, ``batch x n`` and ``batch x n``: a
            member that was cleared does not hold those before.
        densities: the latest, oldest first, ``batch x memory x W``; 0 where there is none, or where the noise is so
            small that K + lambda I has no factor in float64.

    Cost of an observation: O(M^3) a member, with one factor for all windows. L is computed from
    the data each time. Updating it for a new first row costs O(M^2), which saved a third of the time at M = 256, but
    the update subtracts, and loses most digits if the noise is small. Computes in float64.
    """

    def __init__(self, model: OnlineModel, windows: Sequence[int], memory: int) -> None:
        self.windows, self.memory = tuple(windows), memory
        self._depth = max(self.windows)
        width = model.input_dim if isinstance(model, OnlineGP) else 1 + bool(getattr(model, "drifts", False))
        self._no_inputs = model.noise_variance.new_zeros(
            *model.batch_shape, 0, width, dtype=model.input_dtype
        )
        self._no_rewards = model.noise_variance.new_zeros(*model.batch_shape, 0)
        self._begin()

    inputs: Tensor
    rewards: Tensor
    held: Tensor
    densities: Tensor
    _lasting = ("inputs", "rewards", "held", "densities")  # rows stay, and are not held any more

    def _fresh(self) -> dict[str, Any]:
        none = self._no_rewards
        densities = none.new_zeros(*none.shape[:-1], self.memory, len(self.windows), dtype=torch.float64)
        return {"inputs": self._no_inputs, "rewards": none, "held": none.bool(), "densities": densities}

    def _restarted(self, where: Tensor | None) -> None:
        batch = self.held.shape[:-1]
        goes = self.held.new_ones(batch) if where is None else where.reshape(batch)
        self.held = self.held & ~goes.unsqueeze(-1)
        self.densities = self.densities.masked_fill(goes[..., None, None], 0.0)

    def observe(self, model: OnlineModel, X: Tensor, reward: Tensor) -> None:
        """Score the reward, ``batch``, at X, ``batch x 1 x D``, under every window; then hold it."""
        most = self._depth + self.memory
        self.inputs = torch.cat([self.inputs, X], -2)[..., -most:, :]
        self.rewards = torch.cat([self.rewards, reward.to(self.rewards).unsqueeze(-1)], -1)[..., -most:]
        self.held = pad(self.held, (0, 1), value=True)[..., -most:]
        density = self._density(model, self.rewards.shape[-1] - 1)
        self.densities = torch.cat([self.densities[..., 1:, :], density.unsqueeze(-2)], -2)

    def rescore(self, model: OnlineModel, where: Tensor) -> None:
        """The densities again, in members with ``where`` True, after the model's hyperparameters have changed.

        Cost: that of ``memory`` observations.
        """
        n = self.rewards.shape[-1]
        again = [self._density(model, row) for row in range(max(0, n - self.memory), n)]
        if again:
            new = pad(torch.stack(again, -2), (0, 0, self.memory - len(again), 0))
            self.densities = torch.where(where[..., None, None], new, self.densities)

    def _density(self, model: OnlineModel, row: int) -> Tensor:
        """log N of the reward in this row given those before it, ``batch x W``; 0 in members that do not hold it."""
        rows = slice(max(0, row - self._depth), row + 1)
        held = self.held[..., rows].flip(-1)
        prior, covariance = prior_moments(model, self.inputs[..., rows, :].flip(-2))
        residual = self.rewards[..., rows].flip(-1).double() - prior
        noise = model.noise_variance.double().expand(model.batch_shape).unsqueeze(-1)
        K = covariance[..., 1:, 1:].clone()
        K.diagonal(dim1=-2, dim2=-1).add_(noise)
        lower, failed = torch.linalg.cholesky_ex(K)
        right = torch.stack([covariance[..., 1:, 0], residual[..., 1:]], -1)
        v, z = torch.linalg.solve_triangular(lower, right, upper=False).unbind(-1)
        v = v * held[..., 1:]  # what a member does not hold is older than what it does: in the last rows
        at = [min(w, v.shape[-1]) for w in self.windows]
        error = residual[..., :1] - pad((v * z).cumsum(-1), (1, 0))[..., at]
        known = pad(v.square().cumsum(-1), (1, 0))[..., at]
        spread = (covariance[..., :1, 0] - known).clamp_min(0.0) + noise
        density = -0.5 * (error.square() / spread + (2 * math.pi * spread).log())
        return torch.where((held[..., 0] & (failed == 0)).unsqueeze(-1), density, 0.0)


def prior_moments(model: OnlineModel, X: Tensor) -> tuple[Tensor, Tensor]:
    """Prior mean ``batch x n`` and covariance ``batch x n x n`` at inputs ``batch x n x D``, float64."""
    shape, n = X.shape[:-1], X.shape[-2]
    if isinstance(model, OnlineGP):
        prior = model.prior
        return prior.mean(X).double().expand(shape), prior.covariance(X, X).double().expand(*shape, n)
    assert isinstance(model, ArmGP)
    columns = X.reshape(-1, *X.shape[-2:])
    arm = columns[..., 0].long()
    mean = model.prior_mean.reshape(-1, model.num_arms).gather(-1, arm)
    if model.drifts:
        covariance = model.prior.in_time(arm.unsqueeze(0), columns[..., 1].unsqueeze(0))[0]
    else:
        covariance = model.prior.among(arm.unsqueeze(0))[0]
    return mean.double().reshape(shape), covariance.double().reshape(*shape, n)

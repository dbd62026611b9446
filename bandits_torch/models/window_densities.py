"""One-step-ahead predictive densities under every window length at once, from one Cholesky factor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.models.online_gp import OnlineGP
from bandits_torch.models.online_model import OnlineModel


class WindowDensities:
    """log N(y; mean_w, variance_w + lambda) of each new observation, given the last w before it, for several w.

    With the observations in order, newest first, and L L^T = K + lambda I in that order, the leading w x w block
    of L is the factor of the last w. So with v = L^{-1} k(x) and z = L^{-1} (y - m)

        mean_w(x) = m(x) + sum_{i <= w} v_i z_i,    variance_w(x) = k(x, x) - sum_{i <= w} v_i^2

    (Rasmussen & Williams 2006, algorithm 2.1, stopped after w rows): two cumulative sums hold every window length.
    The oldest observation leaves as the last row of L. A new one comes in front: with c = k(x, x) + lambda and
    p = v / sqrt(c), the old block becomes the factor of L (I - p p^T) L^T, which is L C with

        r_j = 1 - sum_{i <= j} p_i^2,    C_jj = sqrt(r_j / r_{j-1}),    C_ij = -p_i p_j / sqrt(r_j r_{j-1}), i > j.

    The r_j are differences, at least lambda / c; so once in as many steps as rows, L is computed from the data.

    Args:
        model: an ``ArmGP`` or an ``OnlineGP``, whose prior and noise variance are read at every call.
        windows: lengths w >= 1; the largest, M, is how many rows there are.
        memory: so many densities are kept, and M + ``memory`` observations.

    Attributes:
        inputs, rewards, held: observations, oldest first, ``batch x n x D``, ``batch x n`` and ``batch x n``: a
            member that was reset does not hold those before.
        densities: the latest, oldest first, ``batch x memory x W``; 0 where there is none.

    Cost of an observation: O(M^2) a member, whatever went before. Computes in float64.
    """

    def __init__(self, model: OnlineModel, windows: Sequence[int], memory: int) -> None:
        self.windows, self.memory = tuple(windows), memory
        noise, batch = model.noise_variance, model.batch_shape
        self._depth = max(self.windows)
        width = model.input_dim if isinstance(model, OnlineGP) else 1 + bool(getattr(model, "drifts", False))
        self.inputs = noise.new_zeros(*batch, 0, width)
        self.rewards, self.held = noise.new_zeros(*batch, 0), noise.new_zeros(*batch, 0, dtype=torch.bool)
        self.densities = noise.new_zeros(*batch, memory, len(self.windows), dtype=torch.float64)
        self._lower = noise.new_zeros(*batch, 0, 0, dtype=torch.float64)
        self._since = 0  # observations since L was computed from the data

    def observe(self, model: OnlineModel, X: Tensor, reward: Tensor, where: Tensor | None = None) -> None:
        """Score the reward, ``batch``, at X, ``batch x 1 x D``, under every window; then hold it.

        Members with ``where`` False do neither.
        """
        held = torch.ones_like(reward, dtype=torch.bool) if where is None else where
        density = self._lead(model, X, reward, held)
        self.densities = torch.cat([self.densities[..., 1:, :], density.unsqueeze(-2)], -2)
        most = self._depth + self.memory
        self.inputs = torch.cat([self.inputs, X], -2)[..., -most:, :]
        self.rewards = torch.cat([self.rewards, reward.unsqueeze(-1)], -1)[..., -most:]
        self.held = torch.cat([self.held, held.unsqueeze(-1)], -1)[..., -most:]
        self._since += 1
        if self._since >= self._depth:
            self._lower, self._since = self._factor(model), 0

    def rescore(self, model: OnlineModel, where: Tensor) -> None:
        """The densities again, in members with ``where`` True, after the model's hyperparameters have changed.

        Cost: O(M^3 + memory M^2) a member.
        """
        cut = max(0, self.rewards.shape[-1] - self.memory)
        again = WindowDensities(model, self.windows, self.memory)
        again.inputs, again.rewards = self.inputs[..., :cut, :], self.rewards[..., :cut]
        again.held = self.held[..., :cut]
        again._lower = again._factor(model)
        for k in range(cut, self.rewards.shape[-1]):
            again.observe(model, self.inputs[..., k : k + 1, :], self.rewards[..., k], self.held[..., k])
        changed = where[..., None, None]
        self.densities = torch.where(changed, again.densities, self.densities)
        self._lower = torch.where(changed, again._lower, self._lower)

    def clear(self, where: Tensor | None = None) -> None:
        """Hold nothing (in the members with ``where`` True)."""
        goes = torch.ones_like(self.held[..., :0].any(-1)) if where is None else where
        self.held = self.held & ~goes.unsqueeze(-1)
        self.densities = self.densities.masked_fill(goes[..., None, None], 0.0)
        null = torch.eye(self._lower.shape[-1]).to(self._lower)
        self._lower = torch.where(goes[..., None, None], null, self._lower)

    # -- the factor ------------------------------------------------------------------------------------

    def _newest_first(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, rewards and whether they are held, of the rows of L."""
        n = self._lower.shape[-1]
        inputs, rewards, held = self.inputs.flip(-2), self.rewards.flip(-1), self.held.flip(-1)
        return inputs[..., :n, :], rewards[..., :n], held[..., :n]

    def _lead(self, model: OnlineModel, X: Tensor, reward: Tensor, where: Tensor) -> Tensor:
        """Densities of a reward, ``batch x W``; its row, a null row where ``where`` is False, now leads L."""
        inputs, rewards, held = self._newest_first()
        noise = model.noise_variance.double().expand(model.batch_shape)
        variance = prior_covariance(model, X, X)[..., 0, 0]
        cross = prior_covariance(model, X, inputs).squeeze(-2) * (held & where.unsqueeze(-1))
        residual = (rewards.double() - prior_mean(model, inputs)) * held
        right = torch.stack([cross, residual], -1)
        v, z = torch.linalg.solve_triangular(self._lower, right, upper=False).unbind(-1)
        at = [min(w, v.shape[-1]) for w in self.windows]
        mean = prior_mean(model, X) + pad((v * z).cumsum(-1), (1, 0))[..., at]
        known = pad(v.square().cumsum(-1), (1, 0))[..., at]
        spread = (variance.unsqueeze(-1) - known).clamp_min(0.0) + noise.unsqueeze(-1)
        corner, floor = variance + noise, noise / (variance + noise)
        lower = _led_by(self._lower, cross, v, torch.where(where, corner, 1.0), floor)
        self._lower = lower[..., : self._depth, : self._depth]
        density = -0.5 * ((reward.unsqueeze(-1) - mean).square() / spread + (2 * math.pi * spread).log())
        return torch.where(where.unsqueeze(-1), density, 0.0)

    def _factor(self, model: OnlineModel) -> Tensor:
        """L from the data: a row that a member does not hold is a null row."""
        n = min(self._depth, self.rewards.shape[-1])
        inputs, held = self.inputs.flip(-2)[..., :n, :], self.held.flip(-1)[..., :n]
        one = torch.eye(n).to(self._lower)
        noise = model.noise_variance.double().expand(model.batch_shape)[..., None, None]
        both = held.unsqueeze(-1) & held.unsqueeze(-2)
        covariance = prior_covariance(model, inputs, inputs) + noise * one
        return torch.linalg.cholesky(torch.where(both, covariance, one))

    # -- state -----------------------------------------------------------------------------------------

    _STATE = ("inputs", "rewards", "held", "densities", "_lower")

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        return {name: getattr(self, name).clone() for name in self._STATE} | {"since": self._since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the one that gave ``state`` stood."""
        for name in self._STATE:
            setattr(self, name, state[name].clone())
        self._since = state["since"]


def _led_by(lower: Tensor, cross: Tensor, v: Tensor, corner: Tensor, floor: Tensor) -> Tensor:
    """The factor of [[corner, cross^T], [cross, L L^T]]; v = L^{-1} cross, and no r_j is below ``floor``."""
    root = corner.sqrt().unsqueeze(-1)
    p = v / root
    r = torch.maximum(1.0 - p.square().cumsum(-1), floor.unsqueeze(-1))
    before = pad(r, (1, 0), value=1.0)[..., :-1]
    scaled = lower * p.unsqueeze(-2)
    right = scaled.flip(-1).cumsum(-1).flip(-1) - scaled  # sum over the columns to the right
    block = lower * (r / before).sqrt().unsqueeze(-2) - right * (p / (r * before).sqrt()).unsqueeze(-2)
    column = torch.cat([root, cross / root], -1)
    return torch.cat([column.unsqueeze(-1), pad(block, (0, 0, 1, 0))], -1)


def prior_mean(model: OnlineModel, X: Tensor) -> Tensor:
    """Prior mean at inputs ``batch x n x D`` of an ``ArmGP`` or ``OnlineGP``: ``batch x n``, float64."""
    if isinstance(model, OnlineGP):
        return model._prior.mean(X).double().expand(X.shape[:-1])
    assert isinstance(model, ArmGP)
    return model._belief.prior_mean.gather(-1, _columns(X)[0].long()).double().reshape(X.shape[:-1])


def prior_covariance(model: OnlineModel, X1: Tensor, X2: Tensor) -> Tensor:
    """Prior covariance between inputs ``batch x n x D`` and ``batch x m x D``: ``batch x n x m``, float64."""
    shape = (*X1.shape[:-1], X2.shape[-2])
    if 0 in shape:
        return X1.new_zeros(shape, dtype=torch.float64)
    if isinstance(model, OnlineGP):
        return model._prior.covariance(X1, X2).double().expand(shape)
    assert isinstance(model, ArmGP)
    (one, s), (other, t) = _columns(X1), _columns(X2)
    return model.prior.between(one.long(), s, other.long(), t).double().reshape(shape)


def _columns(X: Tensor) -> tuple[Tensor, Tensor]:
    """First and last column of inputs ``batch x n x D``, (b, n) each: arms and times, if there are any."""
    b, n = X.shape[:-2].numel(), X.shape[-2]
    return X[..., 0].reshape(b, n), X[..., -1].reshape(b, n)

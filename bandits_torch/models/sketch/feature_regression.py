"""Bayesian linear regression on features that grow in number, one observation at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.cholesky import bordered, safe_cholesky, solve_lower
from bandits_torch.models.online_model import ResizableState

_NEWTON_STEPS, _CLOSE = 60, 1e-12  # of the multiplier of a norm: a handful are needed


class FeatureRegression(ResizableState):
    """r = z^T w + noise with w ~ N(0, I_m) and noise of variance lambda: the posterior of w.

    | symbol | here | meaning |
    |---|---|---|
    | A, b | ``gram``, ``moment`` | Z^T Z and Z^T r over all observations; V = A + lambda I |
    | C = lambda V^{-1} | ``covariance`` | of w |
    | theta = V^{-1} b | ``weights`` | mean of w |

    Cost: an observation O(m^2); a new feature O(m^2); every ``max(64, m)`` observations C is computed anew, O(m^3), so
    that rounding errors do not accumulate. This is the recursion of ``CovarianceForm`` over features, static and with
    every row folded at once. Waiting rows would cost more below some 400 features (22 us a step against 40 at 50
    features, 36 against 42 at 200, 220 against 191 at 500, one thread), and dictionaries are smaller.

    Args:
        noise_variance: lambda, 0-dimensional.
    """

    noise_variance: Tensor
    _gram: Tensor
    _moment: Tensor
    covariance: Tensor
    weights: Tensor
    _LOOSE = ("_uncounted",)
    _PLAIN = ("_uncounted", "_since_anew")

    def __init__(self, noise_variance: Tensor) -> None:
        super().__init__()
        self.register_buffer("noise_variance", noise_variance.clone(), persistent=False)
        for name, shape in (("_gram", (0, 0)), ("_moment", (0,)), ("covariance", (0, 0)), ("weights", (0,))):
            self.register_buffer(name, noise_variance.new_zeros(shape))
        self._uncounted: list[tuple[Tensor, Tensor]] = []  # features and rewards that A and b so far lack
        self._since_anew = 0

    @property
    def gram(self) -> Tensor:
        """A = Z^T Z (m, m), computed on request."""
        self._count()
        return self._gram

    @property
    def moment(self) -> Tensor:
        """b = Z^T r (m,), computed on request."""
        self._count()
        return self._moment

    def _count(self) -> None:
        if self._uncounted:
            features, rewards = zip(*self._uncounted, strict=True)
            z = torch.stack(features)
            self._gram.addmm_(z.mT, z)
            self._moment.addmv_(z.mT, torch.stack(rewards).to(z))
            self._uncounted = []

    @property
    def size(self) -> int:
        """m."""
        return self._gram.shape[0]

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(I + A / lambda). O(m^3)."""
        return (self._factor().diagonal().log() - self.noise_variance.log() / 2).sum()

    def distance_to_ball(self, radius: Tensor) -> Tensor:
        """min sqrt((w - theta)^T V (w - theta)) over all w with |w| <= ``radius``, both 0-dimensional. O(m^3).

        The nearest w is (V + nu I)^{-1} V theta, with nu = 0 if theta is within the ball. Otherwise nu > 0 gives w the
        length of the radius: it is the root of 1/|w| - 1/radius, which Newton's steps from 0 approach from below."""
        lifted = self.gram.clone()
        lifted.diagonal().add_(self.noise_variance)
        values, vectors = torch.linalg.eigh(lifted)
        theta = vectors.mT @ self.weights
        nu = theta.new_zeros(())
        for _ in range(_NEWTON_STEPS):
            w = values * theta / (values + nu)
            length = w.norm()
            if bool(length <= radius * (1 + _CLOSE)):
                break
            nu = nu + (length / radius - 1) * length**2 / (w.square() / (values + nu)).sum()
        return (values.sqrt() * theta * (nu / (values + nu))).norm()

    def start(self, z: Tensor, count: Tensor, total: Tensor) -> None:
        """Start again with other features: those of the arms pulled, z (m, u), with counts and sums of rewards, (u,)
        each. O(m^2 u + m^3)."""
        self._gram, self._moment, self._uncounted = (z * count) @ z.mT, z @ total, []
        self._compute_anew()

    def observe(self, z: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
        """Learn ``reward`` at features z (m,). Returns g (m,) and c: at any features x, the posterior variance
        falls by (g^T x)^2 and the mean moves by c g^T x."""
        g = self.covariance @ z
        deviation = (self.noise_variance + (z @ g).clamp_min(0.0)).sqrt()  # z^T C z >= 0, but for rounding
        g = g / deviation
        step = (reward - z @ self.weights) / deviation
        self.covariance.addr_(g, g, alpha=-1)
        self.weights.addcmul_(g, step)
        self._uncounted.append((z, reward))
        self._since_anew += 1
        if self._since_anew >= max(64, self.size):
            self._compute_anew()
        return g, step

    def correct(self, z: Tensor, change: Tensor) -> Tensor:
        """An earlier reward at features z was larger by ``change``. Returns by how much ``weights`` move."""
        moved = self.covariance @ z * (change / self.noise_variance)
        self.weights.add_(moved)
        self.moment.addcmul_(z, change.to(z))
        return moved

    def append(self, side: Tensor, corner: Tensor, moment: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Join j features: the new blocks of A, ``side`` (m, j) and ``corner`` (j, j), and of b (j,).

        Returns G = V^{-1} side (m, j), the Cholesky factor H (j, j) of the Schur complement of V, and the new weights
        (j,): with d = new features - G^T old features at any x, the part of the variance that is lambda x^T V^{-1} x
        grows by lambda |H^{-1} d|^2 and the mean by weights^T d.
        """
        against = self.covariance @ side / self.noise_variance
        lifted = corner - side.mT @ against
        lifted.diagonal().add_(self.noise_variance)
        schur = safe_cholesky(lifted, scale=corner.diagonal().amax() + self.noise_variance)
        weights = torch.cholesky_solve((moment - against.mT @ self.moment).unsqueeze(-1), schur).squeeze(-1)
        lifting = solve_lower(schur, torch.cat([-against.mT, torch.eye(len(schur)).to(schur)], 1))
        self.append_unseen(len(schur))
        size = self.size - len(schur)
        self._gram[:size, size:], self._gram[size:, :size], self._gram[size:, size:] = side, side.mT, corner
        self.moment[size:] = moment
        self.covariance[size:, size:] = 0
        self.covariance.addmm_(lifting.mT, lifting * self.noise_variance)
        self.weights[:size] -= against @ weights
        self.weights[size:] = weights
        return against, schur, weights

    def append_unseen(self, count: int) -> None:
        """Join ``count`` features that are 0 in every observation so far, so nothing is known about them."""
        none = self.moment.new_zeros(self.size, count)
        one = torch.eye(count).to(none)
        self._gram = bordered(self.gram, none, none.mT, torch.zeros_like(one))
        self.covariance = bordered(self.covariance, none, none.mT, one)
        self._moment, self.weights = (
            torch.nn.functional.pad(v, (0, count)) for v in (self.moment, self.weights)
        )

    def _compute_anew(self) -> None:
        factor = self._factor()
        self.covariance = (
            self.noise_variance * torch.cholesky_inverse(factor) if self.size else self.gram.clone()
        )
        self.weights = torch.cholesky_solve(self.moment.unsqueeze(-1), factor).squeeze(-1)
        self._since_anew = 0

    def _factor(self) -> Tensor:
        """Cholesky factor of V."""
        lifted = self.gram.clone()
        lifted.diagonal().add_(self.noise_variance)
        return safe_cholesky(lifted)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``. Raises ValueError for features or rewards that are not tensors."""
        tensors = all(isinstance(part, Tensor) for pair in state["uncounted"] for part in pair)
        validation.require(
            tensors, "state", state["uncounted"], "pairs of tensors for what is not counted yet"
        )
        super().set_extra_state(state)

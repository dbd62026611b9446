"""Stationary kernels over time in state-space form: the past is summarised by a Gaussian state of a few numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy.special import ive
from torch import Tensor

from bandits_torch import validation

TOLERANCE = 1e-12  # the harmonics that a periodic kernel leaves out have at most this variance in total, of 1
_MOST_HARMONICS = 1000


@dataclass(frozen=True)
class Component:
    """k(tau) = h^T e^{F tau} P h sum_j w_j cos(omega_j tau) for tau >= 0, with F = -rate I + shift, shift nilpotent.

    e^{F tau} = e^{-rate tau} (I + shift tau + (shift tau)^2 / 2 + ...) ends after p terms. Batch dimensions are first.

    Attributes:
        rate: ``batch``.
        shift, covariance: shift and P, ``batch x p x p``.
        measurement: h, (p,).
        weight, frequency: w_j >= 0 and omega_j in radians per unit of time, ``batch x J``.
        turns: for each of the J waves, whether it rotates; the frequency of the others is 0.
        still: True if F is known to be 0.
    """

    rate: Tensor
    shift: Tensor
    covariance: Tensor
    measurement: Tensor
    weight: Tensor
    frequency: Tensor
    turns: tuple[bool, ...] = (False,)
    still: bool = False

    @property
    def width(self) -> int:
        """m, the number of wave features: two (cosine, sine) for a wave that rotates, one for any other."""
        return len(self.turns) + sum(self.turns)

    @property
    def dimension(self) -> int:
        """p m, the dimension of the state."""
        return len(self.measurement) * self.width

    def mapped(self, change: Callable[[Tensor, int], Tensor]) -> Component:
        """A copy with each batched tensor replaced by ``change(tensor, number of its dimensions after the batch)``."""
        return replace(
            self,
            rate=change(self.rate, 0),
            shift=change(self.shift, 2),
            covariance=change(self.covariance, 2),
            weight=change(self.weight, 1),
            frequency=change(self.frequency, 1),
        )

    def decay(self, elapsed: Tensor) -> Tensor:
        """e^{F elapsed}, ``... x p x p``; ``elapsed`` broadcasts with the batch."""
        p = len(self.measurement)
        term = total = torch.eye(p, dtype=self.rate.dtype, device=self.rate.device)
        for k in range(1, p):
            term = term @ self.shift * (elapsed / k)[..., None, None]
            total = total + term
        return (-self.rate * elapsed).exp()[..., None, None] * total

    def waves(self, elapsed: Tensor) -> Tensor:
        """cos(omega_j elapsed), followed by the sine for waves that rotate, ``... x m``."""
        angle = self.frequency * elapsed.unsqueeze(-1)
        features = []
        for turns, one in zip(self.turns, angle.unbind(-1), strict=True):
            features += [one.cos(), one.sin()] if turns else [torch.ones_like(one)]
        return torch.stack(features, -1)

    def wave_weights(self) -> Tensor:
        """w_j of every wave feature, ``batch x m``."""
        wave_of_feature = [j for j, turns in enumerate(self.turns) for _ in range(1 + turns)]
        return self.weight[..., wave_of_feature]

    def value(self, elapsed: Tensor) -> Tensor:
        """k(elapsed) for elapsed >= 0, in the shape to which ``elapsed`` and the batch broadcast."""
        decaying = ((self.measurement @ self.decay(elapsed)) * (self.covariance @ self.measurement)).sum(-1)
        return decaying * (self.weight * (self.frequency * elapsed.unsqueeze(-1)).cos()).sum(-1)

    def times(self, other: Component) -> Component:
        """The product of the two covariances: Kronecker products of the decays, and all pairs of waves.

        Two rotating waves give one with the difference of their frequencies and one with the sum.
        """
        own_identity, other_identity = torch.eye(len(self.measurement)), torch.eye(len(other.measurement))
        weights, frequencies, turns = [], [], []
        for i, first in enumerate(self.turns):
            for j, second in enumerate(other.turns):
                weight = self.weight[..., i] * other.weight[..., j]
                a, b = self.frequency[..., i], other.frequency[..., j]
                both = first and second
                weights += [weight / 2, weight / 2] if both else [weight]
                frequencies += [a - b, a + b] if both else [a + b]
                turns += [True, True] if both else [first or second]
        return Component(
            self.rate + other.rate,
            kron(self.shift, other_identity.to(other.shift)) + kron(own_identity.to(self.shift), other.shift),
            kron(self.covariance, other.covariance),
            torch.kron(self.measurement, other.measurement),
            torch.stack(torch.broadcast_tensors(*weights), -1),
            torch.stack(torch.broadcast_tensors(*frequencies), -1),
            tuple(turns),
            self.still and other.still,
        )


@dataclass(frozen=True)
class StateSpace:
    """A stationary covariance over time as that of one output of a linear stochastic differential equation.

    f(t) = h^T s(t),  ds = F s dt + noise,  Cov s = P;  s(t + dt) = A s(t) + q,  A = e^{F dt},  Cov q = P - A P A^T.

    Built by ``constant``, ``exponential``, ``matern``, ``cosine`` and ``periodic``, and from these by ``+``, which
    stacks states, and ``*``, which takes their Kronecker product. The derivatives in a Matern state are in units of its
    rate, so the entries of P are about 1.

    Attributes:
        components: independent terms of the covariance.

    Source: Hartikainen & Sarkka 2010 (Matern); Solin & Sarkka 2014 (periodic, and products with it).
    """

    components: tuple[Component, ...]

    @classmethod
    def constant(cls, value: Tensor) -> StateSpace:
        """k = ``value``, of shape ``batch``."""
        zero = torch.zeros_like(value)
        shift, frequency = zero[..., None, None], zero.unsqueeze(-1)
        covariance, measurement, weight = torch.ones_like(shift), value.new_ones(1), value.unsqueeze(-1)
        return cls((Component(zero, shift, covariance, measurement, weight, frequency, still=True),))

    @classmethod
    def exponential(cls, rate: Tensor) -> StateSpace:
        """k(tau) = exp(-rate |tau|): Matern with nu = 1/2, exponential forgetting. ``rate``: ``batch``."""
        base = cls.constant(torch.ones_like(rate)).components[0]
        return cls((replace(base, rate=rate, still=False),))

    @classmethod
    def matern(cls, nu: float, lengthscale: Tensor) -> StateSpace:
        """Matern with nu = 1/2, 3/2 or 5/2, in GPyTorch's scaling. The state is f, f' / rate, ... with rate = sqrt(2
        nu) / lengthscale. ``lengthscale``: ``batch``. Hartikainen & Sarkka 2010, section 4."""
        rate = math.sqrt(2 * nu) / lengthscale
        base = cls.exponential(rate).components[0]
        if nu == 0.5:
            return cls((base,))
        shift, covariance = _MATERN[nu]
        scaled = rate.new_tensor(shift) * rate[..., None, None]
        stationary = rate.new_tensor(covariance).expand_as(scaled)
        first = torch.eye(len(shift)).to(rate)[0]  # f itself is measured
        return cls((replace(base, shift=scaled, covariance=stationary, measurement=first),))

    @classmethod
    def cosine(cls, frequency: Tensor) -> StateSpace:
        """k(tau) = cos(frequency tau), in radians per unit of time. ``frequency``: ``batch``."""
        base = cls.constant(torch.ones_like(frequency)).components[0]
        return cls((replace(base, frequency=frequency.unsqueeze(-1), turns=(True,)),))

    @classmethod
    def periodic(
        cls,
        lengthscale: Tensor,
        period_length: Tensor,
        order: int | None = None,
        tolerance: float = TOLERANCE,
    ) -> StateSpace:
        """GPyTorch's exp(-2 sin^2(pi tau / period) / lengthscale), truncated to its harmonics 0, ..., ``order``.

        The kernel is sum_j q_j cos(2 pi j tau / period) with q_0 = I_0(z) e^{-z}, q_j = 2 I_j(z) e^{-z} and
        z = 1 / lengthscale (Solin & Sarkka 2014, equations 25-28). The error of a covariance is at most the sum of the
        q_j left out. If ``order`` is None, it is chosen so that this sum is at most ``tolerance``; ValueError if that
        takes more than 1 000 harmonics. The weights q_j have gradients. ``lengthscale``, ``period_length``: ``batch``.
        """
        z = (1 / lengthscale).double().cpu()
        if order is None:
            q = _harmonics(z.detach(), _MOST_HARMONICS + 1)
            # Entry j is q_j + q_{j+1} + ..., the error of harmonics 0 to j - 1, the largest of the batch.
            left_out = q.flip(-1).cumsum(-1).flip(-1).reshape(-1, q.shape[-1]).amax(0)
            enough = (left_out <= tolerance).nonzero().flatten().tolist()
            expected = f"large enough for {_MOST_HARMONICS} harmonics to leave out at most {tolerance:g}"
            validation.require(bool(enough), "lengthscale", lengthscale, expected)
            order = max(0, enough[0] - 1)
        weight = _harmonics(z, order).to(lengthscale)
        number = torch.arange(order + 1, dtype=lengthscale.dtype, device=lengthscale.device)
        frequency = 2 * math.pi * number / period_length.unsqueeze(-1)
        base = cls.constant(torch.ones_like(lengthscale)).components[0]
        turns = (False, *[True] * order)
        return cls((replace(base, weight=weight, frequency=frequency.expand_as(weight), turns=turns),))

    def scaled(self, value: Tensor) -> StateSpace:
        """``value`` times the covariance; ``value``: ``batch``."""
        return self * StateSpace.constant(value)

    def __add__(self, other: StateSpace) -> StateSpace:
        return StateSpace(self.components + other.components)

    def __mul__(self, other: StateSpace) -> StateSpace:
        return StateSpace(tuple(a.times(b) for a in self.components for b in other.components))

    def value(self, elapsed: float | Tensor) -> Tensor:
        """k(elapsed) for either sign, in the shape to which ``elapsed`` and the batch broadcast."""
        rate = self.components[0].rate
        time = torch.as_tensor(elapsed, dtype=rate.dtype, device=rate.device).abs()
        values = [part.value(time) for part in self.components]
        return torch.stack(torch.broadcast_tensors(*values)).sum(0)


_MATERN = {  # shift / rate and P for the state (f, f' / rate, f'' / rate^2)
    1.5: ([[1.0, 1.0], [-1.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]),
    2.5: (
        [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [-1.0, -3.0, -2.0]],
        [[1.0, 0.0, -1 / 3], [0.0, 1 / 3, 0.0], [-1 / 3, 0.0, 1.0]],
    ),
}


def _harmonics(z: Tensor, order: int) -> Tensor:
    """The weights q_0, ..., q_order of ``StateSpace.periodic`` for z (``batch``): ``batch x (order + 1)``."""
    number = torch.arange(order + 1)
    q = _ScaledBessel.apply(number, z.unsqueeze(-1))
    return torch.where(number > 0, 2 * q, q)


class _ScaledBessel(torch.autograd.Function):
    """SciPy's I_j(z) e^{-z}, differentiable in z: I_j' = (I_{j-1} + I_{j+1}) / 2, and I_{-1} = I_1."""

    @staticmethod
    def forward(ctx: Any, number: Tensor, z: Tensor) -> Tensor:
        """``number``: j, integers >= 0, which broadcast with ``z``."""
        ctx.save_for_backward(number, z)
        return torch.from_numpy(ive(number.numpy(), z.numpy()))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[None, Tensor]:
        number, z = ctx.saved_tensors
        before, same, after = (_ScaledBessel.apply(n, z) for n in ((number - 1).abs(), number, number + 1))
        return None, (grads[0] * ((before + after) / 2 - same)).sum_to_size(z.shape)


def kron(one: Tensor, two: Tensor) -> Tensor:
    """Kronecker product of the last two dimensions."""
    product = one[..., :, None, :, None] * two[..., None, :, None, :]
    return product.flatten(-4, -3).flatten(-2, -1)

"""Thompson sampling over points: a draw of the posterior as a draw of the prior, corrected by the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.models.model import Model
from botorch.sampling.pathwise import gen_kernel_features
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from linear_operator import to_dense
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.independent_draws import IndependentDraws
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.upper_confidence_bound import width_now
from bandits_torch.kernels import SpatioTemporalKernel
from bandits_torch.models.algebra.cholesky import safe_cholesky
from bandits_torch.models.algebra.rank_one import solve_transposed
from bandits_torch.models.at_time import with_time
from bandits_torch.models.points.growing_cholesky import Rows
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.theory.widths import Width


class PathwisePointDraw(IndependentDraws):
    """One draw f ~ GP(mu, width^2 k) at one time per batch member, as a differentiable function of the points.

    With g a draw of the prior and e of the noise (Matheron's rule; Wilson et al. 2020),

        f(x) = g(x, now) + k((x, now), data) (K_t + lambda I)^{-1} (y - m - g(data) - e).

    g(x, t) = phi(x)^T w(t): phi are BoTorch's random Fourier features of the kernel over space, and w(t) Gaussian
    paths with the time kernel's covariance, drawn exactly at the times of the data and now, for any time
    kernel. Only the prior term is approximate; the correction by the data is exact.

    Args:
        model: an ``OnlineGP`` of batch shape () or (S,), whose kernel over space is squared exponential or Matern,
            scaled or not; with a ``SpatioTemporalKernel`` time is the last input.
        width: as for ``ThompsonSampling``.
        time: the time of the draw, where inputs have a time column; the time in X is ignored.
        seeds: one per batch member; they determine the draws. Batches of q > 1 points are the
            maximisers of q independent draws (``set_X_pending``, ``IndependentDraws``).
        features: number of random Fourier features, even.
        X_pending: points chosen and not yet observed, ``m x d``, as ``set_X_pending`` takes them.

    Cost: with n observations, O(n^3 + n^2 features) per draw and O(n + features) per evaluated point.

    Raises ValueError for a model or kernel of another kind, and arguments that do not fit it.
    """

    def __init__(
        self,
        model: OnlineGP,
        width: float | Tensor | Width = 1.0,
        *,
        time: float | None = None,
        seeds: Sequence[int] = (0,),
        features: int = 1024,
        X_pending: Tensor | None = None,
    ) -> None:
        one_batch = isinstance(model, OnlineGP) and len(model.batch_shape) <= 1
        validation.require(one_batch, "model", model, "an OnlineGP of batch shape () or (S,)")
        super().__init__(model)
        members = model.batch_shape.numel()
        listed = isinstance(seeds, Sequence) and all(type(seed) is int and seed >= 0 for seed in seeds)
        one_each = listed and len(seeds) == members
        validation.require(one_each, "seeds", seeds, f"{members} integers >= 0, one for each member")
        self._over_time = isinstance(model.kernel, SpatioTemporalKernel)
        known = not self._over_time or time is not None
        validation.require(known, "time", time, "a number, where the kernel has a time part")
        self.time = None if time is None else validation.finite_number("time", time)
        self.seeds, self.features = list(seeds), features
        scale = width_now(width, model).to(model.noise_variance).expand(model.batch_shape).reshape(members)
        self.register_buffer("_scale", scale)
        self._scale: Tensor
        self._draws = [self._drawn(self.seeds)]
        self.set_X_pending(X_pending)

    @classmethod
    def at_step(cls, model: OnlineGP, step: StepContext) -> PathwisePointDraw:
        """The draws of one step of a policy."""
        width = 1.0 if step.width is None else step.width
        return cls(model, width, time=step.time, seeds=step.seeds() or (0,))

    @torch.no_grad()
    def _drawn(self, seeds: list[int]) -> list[_Draw]:
        """A draw of every member."""
        model, made = cast(OnlineGP, self.model), enumerate(zip(self._scale, seeds, strict=True))
        return [_Draw(model, s, scale, self.time, seed, self.features) for s, (scale, seed) in made]

    def _value(self, k: int, X: Tensor) -> Tensor:
        """X: ``t_batch x 1 x D`` (``t_batch`` ends in S, or broadcasts with it, for S members)."""
        while len(self._draws) <= k:
            self._draws.append(self._drawn([_further(seed, len(self._draws)) for seed in self.seeds]))
        draws, X = self._draws[k], X.squeeze(-2)
        if self._over_time and self.time is not None:
            X = with_time(X[..., :-1], self.time)
        if not self.model.batch_shape:
            return draws[0](X)
        X = X.expand(*torch.broadcast_shapes(X.shape[:-1], self.model.batch_shape), X.shape[-1])
        return torch.stack([draw(X[..., s, :]) for s, draw in enumerate(draws)], -1)


def _further(seed: int, k: int) -> int:
    """The seed of draw k >= 1."""
    generator = torch.Generator().manual_seed(seed)
    return int(torch.randint(2**62, (k,), generator=generator)[-1])


class _Draw:
    """A draw of one member: points (..., D) at the draw's time to values (...)."""

    def __init__(
        self, model: OnlineGP, member: int, width: Tensor, time: float | None, seed: int, features: int
    ) -> None:
        kernel = model.kernel[member] if len(model.kernel.batch_shape) else model.kernel
        space, temporal = kernel, None
        if isinstance(kernel, SpatioTemporalKernel):
            space, temporal = kernel.space_kernel, kernel.time_kernel
        rows, held = _rows_of(model, member)
        self._kernel, self._inputs = kernel, rows.inputs
        d = model.input_dim - (temporal is not None)
        mean = model.prior_mean(rows.inputs.new_zeros(*model.batch_shape, 1, model.input_dim)).reshape(-1)
        self._mean = mean[member]
        noise = model.noise_variance.expand(model.batch_shape).reshape(-1)[member].to(rows.inputs)
        with manual_seed(seed):
            self._phi = _features(space, d, features, rows.inputs)
            weights, which = self._weights(temporal, rows.inputs, time, features)
            drawn = (self._phi(rows.inputs[:, :d]) * weights[which]).sum(-1)
            noisy = drawn + noise.sqrt() * torch.randn(len(drawn), dtype=torch.float64).to(drawn)
        self._path = width * weights[-1]
        # K^{-1} (y - m), and K^{-1} of what the draw gets wrong: the mean's part and the draw's.
        of_mean = _solve(rows.corner, torch.where(held, rows.targets - self._mean, 0.0))
        of_draw = _solve(rows.corner, torch.where(held, noisy, 0.0))
        self._coefficients = (of_mean - width * of_draw) * held
        self._d = d

    @staticmethod
    def _weights(
        temporal: Kernel | None, inputs: Tensor, time: float | None, features: int
    ) -> tuple[Tensor, Tensor]:
        """w at every distinct time of the data and, last, now; and which of them each observation has."""
        if temporal is None:
            one = torch.randn(1, features, dtype=torch.float64).to(inputs)
            return one, torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        now = inputs.new_tensor([time])
        times, which = torch.unique(torch.cat([inputs[:, -1], now]), return_inverse=True)
        root = safe_cholesky(to_dense(temporal(times.unsqueeze(-1))), 1e-12)
        w = root @ torch.randn(len(times), features, dtype=torch.float64).to(inputs)
        return torch.cat([w, w[which[-1:]]]), which[:-1]

    def __call__(self, X: Tensor) -> Tensor:
        flat = X.reshape(-1, X.shape[-1])
        values = self._mean + self._phi(flat[:, : self._d]) @ self._path
        if len(self._inputs):
            values = values + to_dense(self._kernel(flat, self._inputs)) @ self._coefficients
        return values.reshape(X.shape[:-1])


def _features(space: Kernel, d: int, features: int, like: Tensor) -> Callable[[Tensor], Tensor]:
    """BoTorch's random Fourier features of a kernel over space, n x d to n x features."""
    base = space.base_kernel if isinstance(space, ScaleKernel) else space
    known = isinstance(base, RBFKernel | MaternKernel)
    validation.require(known, "kernel", type(base).__name__, "RBFKernel or MaternKernel over space")
    even = validation.positive_integer("features", features) % 2 == 0
    validation.require(even, "features", features, "an even number")
    phi = gen_kernel_features(space, num_inputs=d, num_outputs=features).to(like)
    return lambda X: phi(X)


def _rows_of(model: OnlineGP, member: int) -> tuple[Rows, Tensor]:
    """The rows of one member's factor, in the dtype of its inputs, and which of them it holds."""
    rows, batch = model.data.rows(), model.batch_shape
    parts = {}
    for name in ("inputs", "targets", "corner", "whitened", "held"):
        value = getattr(rows, name)
        own = value.shape[len(batch) :]
        part = value.expand(*batch, *own).reshape(batch.numel(), *own)[member]
        parts[name] = part if name == "held" else part.to(rows.inputs)
    return Rows(**parts, columns=rows.columns.new_zeros(0, model.data.size)), parts["held"]


def _solve(upper: Tensor, right: Tensor) -> Tensor:
    """(K + lambda I)^{-1} right from L^T."""
    half = solve_transposed(upper, right.unsqueeze(-1))
    return torch.linalg.solve_triangular(upper, half, upper=True).squeeze(-1)


@acqf_input_constructor(PathwisePointDraw)
def _inputs_of_pathwise_point_draw(
    model: Model,
    width: float | Tensor | Width = 1.0,
    time: float | None = None,
    seeds: Sequence[int] = (0,),
    X_pending: Tensor | None = None,
    **_unused: Any,
) -> dict[str, Any]:
    return {"model": model, "width": width, "time": time, "seeds": seeds, "X_pending": X_pending}

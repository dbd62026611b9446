"""Thompson sampling over large arm sets: a draw of the posterior as a draw of the prior, corrected by the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.independent_draws import IndependentDraws
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.upper_confidence_bound import width_now
from bandits_torch.kernels import MarkovTimeKernel
from bandits_torch.models.algebra.cholesky import safe_cholesky
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.theory.widths import Width

_EXACT_UP_TO = 2000
_NEGLIGIBLE = 1e-12  # of the present's variance: observations less correlated with it are left out


@validation.names_arguments
class PathwiseThompsonSampling:
    """Builds, once per step, one draw f ~ GP(mu, width^2 k) over all arms of an ``ArmGP``, without an N x N matrix.

    With g a draw of the prior over space and time and e of the noise (Matheron's rule; Wilson et al. 2020),

        f(x, now) = g(x, now) + k((x, now), data) (K_t + lambda I)^{-1} (y - g(data) - e).

    g(x, t) = a(x)^T w(t) with rows a(x) of a root A, A A^T = K over the arms, and w(t) independent Gauss-Markov
    paths with the time kernel's covariance, drawn exactly at the times of the data and now. The
    draw is exact if A is: for an exact ``root`` (such as ``GridDraws.root``), and by default for up to 2 000 arms. For
    more arms, A consists of random Fourier features (squared exponential and Matern kernels). The prior term is then
    approximate, with a covariance within about 2 sqrt(ln(N) / features) k(x, x) of the kernel's at all pairs of arms;
    the correction by the data stays exact.

    Pass it to ``IndexPolicy`` as the acquisition.

    Args:
        model: the ``ArmGP`` of the calls, with one kernel, which is read at construction.
        seed: of the draws.
        features: number of random Fourier features, even.
        root: A, ``N x r``.

    Cost of a draw: O(N r + u N + t^3 + t r), with t observations of u distinct arms. Each batch member has
    its own draw. Raises ValueError for a kernel that has no such features and more than 2 000 arms, and for a kernel
    over time that is no ``MarkovTimeKernel``: one with a state space has paths of several numbers, which are not drawn.
    """

    is_draw = True  # see ``IndependentDraws``

    def __init__(
        self, model: ArmGP, *, seed: int = 0, features: int = 2048, root: Tensor | None = None
    ) -> None:
        validation.require(isinstance(model, ArmGP), "model", type(model).__name__, "an ArmGP")
        one = model.prior.batch_shape.numel() == 1
        validation.require(one, "model", tuple(model.prior.batch_shape), "one kernel for the whole batch")
        over_time = model.prior.time_kernel
        markov = over_time is None or isinstance(over_time, MarkovTimeKernel)
        expected = "a MarkovTimeKernel: over time with a state space, use ThompsonSampling"
        validation.require(markov, "model's kernel over time", type(over_time).__name__, expected)
        even = validation.positive_integer("features", features) % 2 == 0
        validation.require(even, "features", features, "an even number")
        self._generator = torch.Generator().manual_seed(validation.natural("seed", seed))
        if root is not None:
            fits = root.dim() == 2 and root.shape[0] == model.num_arms
            validation.shape_is("root", root, fits, f"({model.num_arms}, r)")
        self.root = self._make_root(model.prior, features) if root is None else root

    def __call__(
        self, model: ArmGP, width: float | Tensor | Width = 1.0, time: float | None = None
    ) -> AcquisitionFunction:
        """The draw as an acquisition over arm indices; with pending points it makes further ones."""
        scale = width_now(width, model).to(model.arms).expand(model.batch_shape).reshape(-1, 1)

        @torch.no_grad()
        def draw() -> Tensor:
            paths = self.paths(model, time)
            mean = model.marginals(time)[0].reshape(paths.shape)
            return (mean + scale * (paths - mean)).reshape(*model.batch_shape, -1)

        return _Draw(model, draw)

    def at_step(self, model: ArmGP, step: StepContext) -> AcquisitionFunction:
        """The draw of one step of a policy."""
        return self(model, 1.0 if step.width is None else step.width, step.time)

    @torch.no_grad()
    def paths(self, model: ArmGP, time: float | None = None) -> Tensor:
        """Draws of the posterior over all arms at ``time`` (default: the latest observation), (b, N)."""
        now = (model.now or 0.0) if time is None else float(time)
        arm, reward, moments, valid = model.held()
        draws = []
        for k in range(len(arm)):
            held = valid[k]
            draws.append(self._path(model, k, arm[k, held], reward[k, held], moments[k, held], now))
        return torch.stack(draws)

    def state_dict(self) -> dict[str, Tensor]:
        """The position of the random numbers."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Draw on where the one that gave ``state`` stood."""
        self._generator.set_state(state["generator"].clone())

    def _path(
        self, model: ArmGP, member: int, arm: Tensor, reward: Tensor, moments: Tensor, now: float
    ) -> Tensor:
        prior, prior_mean = model.prior, model.prior_mean.reshape(-1, model.num_arms)[member]
        noise = model.noise_variance.expand(model.batch_shape).reshape(-1)[member]
        to_now = self._over_time(prior, moments, now)
        near = to_now.abs() >= _NEGLIGIBLE
        arm, reward, moments, to_now = arm[near], reward[near], moments[near], to_now[near]
        times, which = torch.unique(moments, return_inverse=True)
        weights = self._weights(prior, [*times.tolist(), now])  # one row per time, the present last
        path = self.root @ weights[-1] + prior_mean
        if not len(arm):
            return path
        drawn = (self.root[arm] * weights[which]).sum(-1)
        drawn = drawn + noise.sqrt() * self._normal(len(arm)).to(reward)
        pulled, place = torch.unique(arm, return_inverse=True)
        rows = prior.rows(pulled)[0]  # u x N
        among = rows[:, arm][place]
        among = among * self._over_time(prior, moments.unsqueeze(-1), moments.unsqueeze(0))
        factor = safe_cholesky(among + noise * torch.eye(len(arm), dtype=reward.dtype, device=reward.device))
        residual = reward - prior_mean[arm] - drawn
        v = torch.cholesky_solve(residual.unsqueeze(-1), factor).squeeze(-1) * to_now
        return path + torch.zeros(len(pulled), dtype=v.dtype, device=v.device).scatter_add(0, place, v) @ rows

    def _weights(self, prior: ArmPrior, times: list[float]) -> Tensor:
        """Paths w(t) at increasing times, len(times) x r."""
        rank, before = self.root.shape[1], None
        rows: list[Tensor] = []
        for moment in times:
            fresh = self._normal(rank).to(self.root)
            if prior.time_kernel is None:
                rows.append(rows[0] if rows else fresh)
            elif before is None:
                rows.append(fresh * torch.as_tensor(prior.over_time(moment, moment)).reshape(()).sqrt())
            else:
                kept, gained = (part.reshape(()) for part in prior.drift(before, moment))
                rows.append(kept * rows[-1] + gained.clamp_min(0).sqrt() * fresh)
            before = moment
        return torch.stack(rows)

    @staticmethod
    def _over_time(prior: ArmPrior, s: Tensor, t: Tensor | float) -> Tensor:
        if prior.time_kernel is None:
            return prior.inputs.new_ones(torch.broadcast_shapes(s.shape, torch.as_tensor(t).shape))
        other = torch.as_tensor(t, dtype=s.dtype, device=s.device)
        one, two = torch.broadcast_tensors(s, other)
        value = prior.time_kernel.covariance(one.reshape(-1), two.reshape(-1)).reshape(one.shape)
        return value.to(prior.inputs.dtype)

    def _make_root(self, prior: ArmPrior, features: int) -> Tensor:
        if prior.num_arms <= _EXACT_UP_TO:
            values, vectors = torch.linalg.eigh(prior.matrix()[0])
            kept = values > 1e-14 * values[-1]
            return vectors[:, kept] * values[kept].sqrt()
        kernel = prior.space_kernel
        known = isinstance(kernel, RBFKernel | MaternKernel)
        validation.require(
            known,
            "kernel",
            type(kernel).__name__,
            f"RBFKernel or MaternKernel above {_EXACT_UP_TO} arms, or a root",
        )
        d, half = prior.inputs.shape[-1], features // 2
        frequency = self._normal(d, half)
        if isinstance(kernel, MaternKernel):  # Student's t with 2 nu degrees of freedom
            chi = self._normal(half, round(2 * kernel.nu)).square().sum(-1)
            frequency = frequency * torch.sqrt(2 * kernel.nu / chi)
        lengthscale = cast(Tensor, kernel.lengthscale).detach().reshape(-1, 1)
        angle = prior.inputs @ (frequency.to(prior.inputs) / lengthscale)
        return torch.cat([angle.cos(), angle.sin()], -1) / math.sqrt(half)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64)


class _Draw(IndependentDraws):
    """Functions over the arms, looked up by index; ``draw`` makes the next."""

    def __init__(self, model: Model, draw: Callable[[], Tensor]) -> None:
        super().__init__(model)
        self._draw, self._draws = draw, [draw()]

    def _value(self, k: int, X: Tensor) -> Tensor:
        while len(self._draws) <= k:
            self._draws.append(self._draw())
        index = X[..., 0, 0].long()
        shape = torch.broadcast_shapes(index.shape, self.model.batch_shape)
        draw = self._draws[k].expand(*shape, self._draws[k].shape[-1])
        return draw.gather(-1, index.expand(shape).unsqueeze(-1)).squeeze(-1)

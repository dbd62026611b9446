"""Exact Gaussian process over a finite set of arms, one observation at a time, for any horizon."""

from __future__ import annotations

import copy
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.posteriors import GPyTorchPosterior, Posterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arm_prior import ArmPrior
from bandits_torch.models.covariance_form import CovarianceForm
from bandits_torch.models.factor_form import FactorForm
from bandits_torch.models.marginal_posterior import MarginalPosterior
from bandits_torch.models.observation_buffer import ObservationBuffer
from bandits_torch.models.online_model import OnlineModel, ResizableState

# "auto": an N x N covariance up to this many arms, low rank above (benchmarks/speed, crossover).
_COVARIANCE_FORM_UP_TO = 1500


class ArmGP(OnlineModel, ResizableState):
    """Exact GP posterior over N arms, in O(N^2) or O(uN + n^2) a step however many steps went before.

    Inputs are arms by index, ``X[..., 0] = 0, ..., N - 1``; with a spatio-temporal kernel the last column
    is time, ``X = [index, time]``, at or after the latest observation. So arms need no coordinates, and
    any BoTorch acquisition works on it; ``candidates(time)`` gives the inputs of all arms.

    Args:
        arms: ``(*arms_batch, N, d)`` features, carried along as ``model.arms``; or N, the number of arms.
        kernel: prior covariance over the arms: a GPyTorch kernel over features; an ``ArmCovarianceKernel``
            or an ``(*batch, N, N)`` covariance matrix over indices; or a ``SpatioTemporalKernel`` of one of
            these and a Markov time kernel, which makes the function drift (TV-GP-UCB, uncertainty injection).
            Hyperparameters are read once; call ``rebuild`` after changing those of ``model.prior.kernel``, which is
            the kernel given, or a copy if that has another dtype or device.
        noise_variance: lambda > 0 in squared units of reward; a number or a tensor that broadcasts to ``batch_shape``.
        prior_mean: prior mean reward: a number or ``(*batch, N)``.
        form: ``"covariance"`` (an N x N matrix; O(N^2) a step), ``"factor"`` (u distinct arms pulled, n points;
            O(uN + n^2) a step, no N x N memory) or ``"auto"``: covariance up to 1 500 arms, but for a model that
            drifts and is made to ``forget``, which moves to the factor form, the only one that can do both.
        batch_shape: batch dimensions beside those of the kernel, arms, noise and prior mean (replicates).
        dtype, device: default to those of ``arms`` (float64 on the CPU when ``arms`` is a number).

    Attributes:
        arms: the features.
        now: time of the latest observation, None before the first (always 0 for a static kernel).

    Memory: observations are kept (16 to 24 bytes each), so that they can be unlearned.

    Source: Rasmussen & Williams 2006, ch. 2, in the recursive form derived in ``CovarianceForm`` and ``FactorForm``.
    """

    likelihood = None  # for BoTorch's ``fantasize``: the noise is ``noise_variance``

    def __init__(
        self,
        arms: Tensor | int,
        kernel: Kernel | Tensor,
        noise_variance: float | Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        form: str = "auto",
        batch_shape: tuple[int, ...] | torch.Size = (),
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        validation.require(form in ("auto", "covariance", "factor"), "form", form, "'auto', 'covariance' or 'factor'")
        arms = _as_features(arms, dtype, device)
        if isinstance(kernel, Tensor):
            kernel = ArmCovarianceKernel(kernel.to(arms))
        self.register_buffer("arms", arms)
        self.arms: Tensor
        self.prior = ArmPrior(arms, _kernel_like(arms, kernel))
        noise = torch.as_tensor(noise_variance, dtype=arms.dtype, device=arms.device).clone()
        validation.require(bool((torch.isfinite(noise) & (noise > 0)).all()), "noise_variance", noise, "finite and > 0")
        mean = torch.as_tensor(prior_mean, dtype=arms.dtype, device=arms.device)
        validation.finite_tensor("prior_mean", mean)
        if mean.dim():
            validation.shape_is("prior_mean", mean, mean.shape[-1] == self.num_arms, f"(*batch, {self.num_arms})")
        time_batch = self.prior.time_kernel.batch_shape if self.prior.time_kernel is not None else ()
        shapes = (torch.Size(batch_shape), self.prior.batch_shape, time_batch, noise.shape, mean.shape[:-1])
        try:
            self._batch_shape = torch.broadcast_shapes(*shapes)
        except RuntimeError as error:
            raise ValueError(
                "batch_shape, and the batches of kernel, arms, time kernel, noise_variance and prior_mean, "
                f"must broadcast together, got {[tuple(s) for s in shapes]}"
            ) from error
        self.prior.fill(self._batch_shape)
        self.form = form
        self.register_buffer("noise_variance", noise)
        b = self._batch_shape.numel()
        # Buffers are copies: load_state_dict writes into them, and neither a view of one number nor a tensor of
        # the caller's may be written to.
        self.register_buffer("_prior_mean", mean.expand(*self._batch_shape, self.num_arms).reshape(b, -1).clone())
        self._prior_mean: Tensor
        self._observations = ObservationBuffer(b, arms.dtype, arms.device)
        small = self.num_arms <= _COVARIANCE_FORM_UP_TO
        self._state = self._new_state("covariance" if form == "auto" and small else "factor" if form == "auto" else form)
        self.now: float | None = 0.0 if self.prior.time_kernel is None else None
        self._candidates: Tensor | None = None
        self._candidates_time = 0.0
        self.eval()

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def num_arms(self) -> int:
        """N."""
        return self.arms.shape[-2]

    @property
    def batch_shape(self) -> torch.Size:
        """Replicates, priors: every batch dimension."""
        return self._batch_shape

    @property
    def drifts(self) -> bool:
        """Whether the kernel has a time part, so that inputs have a time column."""
        return self.prior.time_kernel is not None

    @property
    def num_observations(self) -> Tensor:
        """How many observations each member holds now, ``batch_shape``."""
        return self._observations.count.reshape(self._batch_shape)

    @property
    def information_gain(self) -> Tensor:
        """Realised gain 1/2 log det(I + K_t / lambda) of the observations held, ``batch_shape``; O(1) to read."""
        return self._state.gain.reshape(self._batch_shape)

    @property
    def can_forget(self) -> bool:
        """False in covariance form under drift, unless the form is "auto" (which then changes form)."""
        return self.form == "auto" or self._state.can_forget

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Inputs of the observations held, ``(batch_shape x n x d,)``; ValueError if members hold different numbers."""
        arm, _, time = self._held()
        columns = [arm.to(self.arms.dtype), time] if self.drifts else [arm.to(self.arms.dtype)]
        return (torch.stack(columns, -1).reshape(*self._batch_shape, -1, len(columns)),)

    @property
    def train_targets(self) -> Tensor:
        """Rewards of the observations held, ``batch_shape x n``."""
        return self._held()[1].reshape(*self._batch_shape, -1)

    def _held(self) -> tuple[Tensor, Tensor, Tensor]:
        arm, reward, time, valid = self._observations.held()
        validation.require(
            bool(valid.all()), "num_observations", self.num_observations, "the same in every batch member to list them"
        )
        return arm, reward, time

    # -- learning --------------------------------------------------------------------------------------

    def observe(self, X: Tensor, Y: Tensor, where: Tensor | None = None) -> None:
        """Learn observations in order. X: ``batch x n x 1`` indices, or ``batch x n x 2`` with time; Y: ``batch x n x 1``.

        Cost: n steps. The time of an observation must be the same for every member of the batch.
        Raises ValueError on bad input, with nothing changed.
        """
        index, times = self._parse(X)
        validation.shape_is("Y", Y, Y.dim() >= 2 and Y.shape[-1] == 1, "batch_shape x n x 1")
        validation.shape_is("Y", Y, Y.shape[-2] == X.shape[-2], f"batch_shape x {X.shape[-2]} x 1, as X has")
        validation.finite_tensor("Y", Y)
        n = X.shape[-2]
        index = self._flat(index, "X", n)
        rewards = self._flat(Y.squeeze(-1).to(self.arms.dtype), "Y", n)
        moments = self._moments(times, n)
        where = None if where is None else self._flat_mask(where)
        for k in range(n):
            self._learn(index[:, k], rewards[:, k], moments[k], where)

    def observe_arms(self, arm: Tensor, reward: Tensor, time: float | None = None, where: Tensor | None = None) -> None:
        """``observe`` for one pull per member, without packing indices into inputs: the path of a policy's step.

        Args:
            arm: integers (int64) that broadcast to ``batch_shape``.
            reward: numbers that broadcast to ``batch_shape``.
            time: the time of the pulls; needed if the model drifts.
            where: booleans of ``batch_shape``.

        Raises ValueError on another shape or dtype, a non-finite reward, an arm out of range or reversed time, with
        nothing changed; where values are concerned only on the CPU, since looking at them would make a GPU wait
        (``run`` checks there).
        """
        if self.drifts:
            validation.require(time is not None, "time", time, "a number: the kernel has a time part")
            self._check_not_past(float(time))  # type: ignore[arg-type]
        expected = f"integers from 0 to {self.num_arms - 1}"
        validation.require(arm.dtype == torch.long, "arm", arm, expected)
        if not reward.is_cuda:
            validation.finite_tensor("reward", reward)
            in_range = bool(((arm >= 0) & (arm < self.num_arms)).all())
            validation.require(in_range, "arm", arm, expected)
        self._learn(
            self._flat(arm, "arm"),
            self._flat(reward.to(self.arms.dtype), "reward"),
            float(time) if self.drifts else 0.0,  # type: ignore[arg-type]
            None if where is None else self._flat_mask(where),
        )

    def _learn(self, arm: Tensor, reward: Tensor, time: float, where: Tensor | None) -> None:
        self._move_to(time)
        residual = reward - self._prior_mean.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        self._state.add(arm, residual, time, where)
        self._observations.append(arm, reward, time, where)

    def _move_to(self, time: float) -> None:
        if self.now is None:
            self._state.reset(self.prior.over_time(time, time))
        elif time != self.now:
            self._state.advance(*self.prior.drift(self.now, time))
        self.now = time

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        """Unlearn the ``count`` oldest observations, exactly and in place; members that hold fewer are emptied.

        Raises ValueError if this form cannot (covariance form under drift), or, without ``where``, if some
        member holds fewer than ``count``.
        """
        validation.positive_integer("count", count)
        validation.require(
            self.can_forget, "form", self.form, "'factor' or 'auto' to forget under drift (covariance form cannot)"
        )
        if where is None:
            held = int(self._observations.count.min())
            validation.require(count <= held, "count", count, f"at most the {held} observations held")
        mask = torch.ones_like(self._state.gain, dtype=torch.bool) if where is None else self._flat_mask(where)
        if not self._state.can_forget:
            self._change_form("factor")
        for _ in range(count):
            arm, reward, time = self._observations.oldest()
            holding = mask & (self._observations.count > 0)
            residual = reward - self._prior_mean.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
            self._state.remove(arm, residual, time, self.now if self.now is not None else 0.0, holding)
            self._observations.drop_oldest(holding)

    def reset(self, where: Tensor | None = None) -> None:
        """Unlearn everything: back to the prior (in the members with ``where`` True). O(N^2) or O(N + n^2)."""
        mask = None if where is None else self._flat_mask(where)
        self._state.reset(1.0 if self.now is None else self.prior.over_time(self.now, self.now), mask)
        self._observations.clear(mask)
        if mask is None and self.drifts:
            self.now = None

    def rebuild(self) -> None:
        """Read the kernel's hyperparameters again and relearn the observations held. Costs their number of steps."""
        self._change_form("factor" if isinstance(self._state, FactorForm) else "covariance")

    def _new_state(self, form: str) -> CovarianceForm | FactorForm:
        b = self._batch_shape.numel()
        noise = self.noise_variance.expand(self._batch_shape).reshape(b, 1).clone()
        return (CovarianceForm if form == "covariance" else FactorForm)(self.prior, b, noise)

    def _change_form(self, form: str) -> None:
        arm, reward, time, valid = self._observations.held()
        latest = self.now
        state = self._new_state(form)
        self._state, self._observations = state, ObservationBuffer(arm.shape[0], reward.dtype, reward.device)
        self.now = 0.0 if not self.drifts else None
        for moment in torch.unique(time[valid]).tolist() if self.drifts else [0.0]:
            at_moment = valid & (time == moment)
            for k in torch.nonzero(at_moment.any(0)).flatten().tolist():
                self._learn(arm[:, k], reward[:, k], moment, at_moment[:, k])
        if latest is not None and self.drifts:
            self._move_to(latest)

    # -- predicting ------------------------------------------------------------------------------------

    def candidates(self, time: float | None = None) -> Tensor:
        """Inputs of all arms at ``time``: ``N x 1 x d``, with a 1 for each batch dimension in between.

        An acquisition called with this very tensor is answered from the cached marginals, without look-ups.
        """
        if not self.drifts:
            kept, like = self._candidates, self.arms  # the model may have moved since
            if kept is None or kept.dtype != like.dtype or kept.device != like.device:
                self._candidates = self._arm_inputs()
            return self._candidates  # type: ignore[return-value]
        validation.require(time is not None, "time", time, "a number: the kernel has a time part")
        moment = float(time)  # type: ignore[arg-type]
        self._check_not_past(moment)
        index = self._arm_inputs()
        self._candidates = torch.cat([index, torch.full_like(index, moment)], -1)
        self._candidates_time = moment
        return self._candidates

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Joint posterior at X, ``t_batch x q x d`` of indices (and time); marginal look-ups when q = 1.

        ``observation_noise``: True adds ``noise_variance``; a tensor of variances, ``(t_batch) x q x 1``, is
        added as it is. Raises ValueError on an index out of range, a fraction, a time before the latest
        observation, or a t_batch that does not broadcast to ``(..., *batch_shape)``.
        """
        validation.require(output_indices in (None, [0]), "output_indices", output_indices, "None or [0]: one output")
        noise: float | Tensor = 0.0
        if isinstance(observation_noise, Tensor):
            noise = observation_noise.squeeze(-1)
        elif observation_noise:
            noise = self.noise_variance.expand(self._batch_shape).unsqueeze(-1)
        if X is self._candidates:
            mean, variance = self.marginals(self._candidates_time)
            posterior: GPyTorchPosterior = MarginalPosterior(
                mean.movedim(-1, 0).unsqueeze(-1), variance.movedim(-1, 0).unsqueeze(-1) + noise
            )
        else:
            posterior = self._posterior_at(X, noise)
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): ``batch_shape x N`` each. O(N)."""
        mean, variance = self._state.mean, self._state.variance
        if self.drifts and time is not None and time != self.now:
            self._check_not_past(time)
            if self.now is None:
                variance = self._state.prior_variance * self.prior.over_time(time, time)
            else:
                kept, gained = self.prior.drift(self.now, time)
                mean = mean * kept
                variance = torch.addcmul(self._state.prior_variance * gained, variance, kept * kept)
        shape = (*self._batch_shape, self.num_arms)
        return (mean + self._prior_mean).reshape(shape), variance.clamp_min(0.0).reshape(shape)

    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and covariance over all arms at ``time``: ``batch_shape x N``, ``batch_shape x N x N``."""
        mean, _ = self.marginals(time)
        covariance = self._state.full(self.now if self.now is not None else 0.0)
        if self.drifts and time is not None and time != self.now:
            prior = self.prior.matrix()
            prior = prior.repeat(covariance.shape[0] // prior.shape[0], 1, 1)
            if self.now is None:
                covariance = prior * self.prior.over_time(time, time).unsqueeze(-1)  # type: ignore[union-attr]
            else:
                kept, gained = self.prior.drift(self.now, time)
                covariance = covariance * (kept * kept).unsqueeze(-1) + prior * gained.unsqueeze(-1)
        return mean, covariance.reshape(*self._batch_shape, self.num_arms, self.num_arms)

    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
        index, times = self._parse(X)
        if times is not None:
            earliest = float(times.min())
            self._check_not_past(earliest)
        out, q, b = self._posterior_batch(X), X.shape[-2], self._batch_shape.numel()
        flat = (-1, b, q)
        index = index.expand(*out, q).reshape(flat)
        shape = (index.shape[0], b, self.num_arms)
        mean = self._state.mean.expand(shape).gather(-1, index)
        kept, gained = self._from_now(times, out, q)
        prior_mean = self._prior_mean.expand(shape).gather(-1, index)
        mean = (mean * kept + prior_mean).reshape(*out, q)
        if q == 1:
            variance = self._state.variance.expand(shape).gather(-1, index) * kept * kept
            if times is not None:
                variance = variance + gained.squeeze(-1) * self._state.prior_variance.expand(shape).gather(-1, index)
            return MarginalPosterior(mean, variance.clamp_min(0.0).reshape(*out, q) + noise)
        covariance = self._state.among(index, self.now if self.now is not None else 0.0)
        if times is not None:
            both = kept.unsqueeze(-1) * kept.unsqueeze(-2)
            covariance = covariance * both + gained * self.prior.among(index)
        covariance = covariance.reshape(*out, q, q)
        if not isinstance(noise, float):
            covariance = covariance + torch.diag_embed(noise.expand(*out, q))
        return GPyTorchPosterior(MultivariateNormal(mean, covariance))

    def _posterior_batch(self, X: Tensor) -> torch.Size:
        """What X's batch and the model's broadcast to, (..., *batch_shape)."""
        members = len(self._batch_shape)
        try:
            out = torch.broadcast_shapes(X.shape[:-2], self._batch_shape)
        except RuntimeError:
            out = torch.Size([0] * members)
        # X must not widen a batch dimension of size 1, which would mix up the members if there are several.
        ok = self._batch_shape.numel() == 1 or out[len(out) - members :] == self._batch_shape
        expected = f"t_batch x q x d with t_batch broadcasting to (..., *{tuple(self._batch_shape)})"
        validation.shape_is("X", X, ok, expected)
        return out

    def _from_now(self, times: Tensor | None, out: torch.Size, q: int) -> tuple[Tensor | float, Tensor]:
        """(a, c) for times T x b x q: f(t) = a f(now) + g, cov g(t), g(t') = c K; a is T x b x q, c is T x b x q x q."""
        if times is None:
            return 1.0, self._state.mean.new_zeros(())
        b = self._batch_shape.numel()
        t = times.expand(*out, q).reshape(-1, b, q)
        first = t.unsqueeze(-1).expand(*t.shape, q).reshape(*t.shape[:-1], q * q)
        second = t.unsqueeze(-2).expand(*t.shape, q).reshape(*t.shape[:-1], q * q)
        between = self.prior.over_time(first, second)
        if self.now is None:
            return torch.zeros_like(t), between.reshape(*t.shape, q)  # type: ignore[union-attr]
        present = self.prior.over_time(self.now, self.now)
        kept = self.prior.over_time(torch.full_like(t, self.now), t) / present
        shared = kept.unsqueeze(-1) * kept.unsqueeze(-2) * present.unsqueeze(-1)  # type: ignore[union-attr]
        return kept, between.reshape(*t.shape, q) - shared  # type: ignore[union-attr]

    # -- inputs ----------------------------------------------------------------------------------------

    def _arm_inputs(self) -> Tensor:
        index = torch.arange(self.num_arms, dtype=self.arms.dtype, device=self.arms.device)
        return index.reshape(-1, *[1] * len(self._batch_shape), 1, 1)

    def _parse(self, X: Tensor) -> tuple[Tensor, Tensor | None]:
        width = 2 if self.drifts else 1
        columns = "[arm index, time]" if self.drifts else "[arm index]"
        validation.shape_is("X", X, X.dim() >= 2 and X.shape[-1] == width, f"batch_shape x q x {width}: {columns}")
        validation.finite_tensor("X", X)
        index = X[..., 0].long()
        ok = bool(((index == X[..., 0]) & (index >= 0) & (index < self.num_arms)).all())
        validation.require(ok, "X[..., 0]", X[..., 0], f"arm indices 0 to {self.num_arms - 1}")
        return index, X[..., 1] if self.drifts else None

    def _moments(self, times: Tensor | None, n: int) -> list[float]:
        if times is None:
            return [0.0] * n
        first = times.reshape(-1)[:n]
        validation.require(bool((times == first).all()), "X[..., 1]", times, "the same times in every batch member")
        moments = first.tolist()
        ordered = all(a <= b for a, b in zip(moments, moments[1:], strict=False))
        validation.require(ordered, "X[..., 1]", times, "times that do not decrease")
        if moments:
            self._check_not_past(moments[0])
        return moments

    def _check_not_past(self, time: float) -> None:
        ok = self.now is None or time >= self.now
        validation.require(ok, "time", time, f"finite and at or after the latest observation, {self.now}")
        validation.finite_number("time", time)

    def _flat(self, value: Tensor, name: str, *tail: int) -> Tensor:
        """(batch, *tail), which broadcasts to batch_shape, as (b, *tail)."""
        try:
            return value.expand((*self._batch_shape, *tail)).reshape((self._batch_shape.numel(), *tail))
        except RuntimeError as error:
            expected = f"a batch that broadcasts to {tuple(self._batch_shape)}"
            raise ValueError(f"{name} must have {expected}, got shape {tuple(value.shape)}") from error

    def _flat_mask(self, where: Tensor) -> Tensor:
        validation.require(where.dtype == torch.bool, "where", where, "a boolean tensor")
        return self._flat(where, "where")

    # -- copies and state ------------------------------------------------------------------------------

    def expand(self, batch_shape: torch.Size) -> ArmGP:
        """A copy whose batch shape is ``batch_shape``; every member of the copy has learned what its original had."""
        b = self._batch_shape.numel()
        source = torch.arange(b, device=self.arms.device).reshape(self._batch_shape).expand(batch_shape).reshape(-1)
        model = copy.deepcopy(self)
        model._batch_shape = torch.Size(batch_shape)
        model.prior.fill(model._batch_shape)
        model._candidates = None
        model._prior_mean = self._prior_mean[source]
        model._observations = ObservationBuffer(len(source), self.arms.dtype, self.arms.device)
        for name, held in self._observations.named_buffers():
            setattr(model._observations, name, held[source])
        model._observations.set_extra_state(self._observations.get_extra_state())
        model._change_form("factor" if isinstance(self._state, FactorForm) else "covariance")
        return model

    def transform_inputs(self, X: Tensor, input_transform: torch.nn.Module | None = None) -> Tensor:
        """Inputs are indices: nothing to transform."""
        return X

    def get_extra_state(self) -> dict[str, Any]:
        """What the tensors alone do not tell."""
        return {"now": self.now, "form": "factor" if isinstance(self._state, FactorForm) else "covariance"}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``."""
        self.now = state["now"]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        form = state_dict[prefix + "_extra_state"]["form"]
        if form != ("factor" if isinstance(self._state, FactorForm) else "covariance"):
            self._state = self._new_state(form)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _as_features(arms: Tensor | int, dtype: torch.dtype | None, device: torch.device | str | None) -> Tensor:
    if isinstance(arms, int):
        validation.positive_integer("arms", arms)
        return torch.arange(arms, dtype=dtype or torch.float64, device=device).unsqueeze(-1)
    validation.shape_is("arms", arms, arms.dim() >= 2 and arms.shape[-2] >= 1, "(*batch, N, d) with N >= 1")
    dtype = dtype or (arms.dtype if arms.is_floating_point() else torch.float64)
    return validation.finite_tensor("arms", arms.to(dtype=dtype, device=device, copy=True))


def _kernel_like(arms: Tensor, kernel: Kernel) -> Kernel:
    """The kernel itself if it computes in the arms' dtype and on their device, else a copy that does."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a gpytorch.kernels.Kernel or a tensor, got {type(kernel).__name__}")
    values = [v for v in (*kernel.parameters(), *kernel.buffers()) if v.is_floating_point()]
    if all(v.dtype == arms.dtype and v.device == arms.device for v in values):
        return kernel
    return copy.deepcopy(kernel).to(arms)

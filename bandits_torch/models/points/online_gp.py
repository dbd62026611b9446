"""Exact Gaussian process on any inputs that learns and forgets observations one at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from botorch import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.posteriors import GPyTorchPosterior
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import PeriodKernel, SpatioTemporalKernel
from bandits_torch.models.arms.inputs import SMALLEST_RATIO, check_ratio, noise_over, takes_columns
from bandits_torch.models.online_model import (
    MarginalPosterior,
    OnlineModel,
    broadcast,
    check_held,
    held_elsewhere,
    joint_posterior,
    require_within,
    within,
)
from bandits_torch.models.points.botorch_twin import TransformedKernel, parts_of, relearn, twin_of
from bandits_torch.models.points.growing_cholesky import (
    GaussianPrior,
    GrowingCholesky,
    Rows,
    predict,
    rows_to_add,
)


class OnlineGP(OnlineModel):
    """Exact GP posterior given t observations: O(t^2) to add or remove one, O(t^2) per predicted point.

        mean(x) = m(x) + k(x)^T (K + lambda I)^{-1} (y - m)
        cov(x, x') = k(x, x') - k(x)^T (K + lambda I)^{-1} k(x')

    (Rasmussen & Williams 2006, equations 2.25-2.26 with a prior mean), from a Cholesky factor of K + lambda I. Rows are
    appended and removed (``remove_row``) without a new factorisation. Unlike GPyTorch's models, it is exact for every
    t and under all settings of GPyTorch.

    Args:
        kernel: any GPyTorch kernel; its batch shape must broadcast to ``batch_shape`` (candidate priors).
            The model holds a copy in its ``dtype`` and on its ``device``; call ``rebuild`` after changing the copy's
            hyperparameters.
        noise_variance: lambda > 0, in squared units of the targets: a number or a tensor that broadcasts to
            ``batch_shape``; at least 1e-10 times the prior variance at the origin (float32: 1e-5).
        prior_mean: m, a number or a ``gpytorch.means.Mean``.
        input_dim: d, the number of input columns, including time if the kernel has it.
        batch_shape: shape of a batch of models (replicates, priors).
        dtype, device: for the data and the hyperparameters. With a kernel over time (``SpatioTemporalKernel``), or over
            periods (``PeriodKernel``), inputs, kernel and prior mean are always in float64, because float32 cannot
            resolve clocks of 1e9 seconds: give X in float64.

    If members of the batch hold different observations (``where``), an observation that a member does not hold is a
    null row of its factor. Rows are compacted from time to time, so t is at most about 3 times the largest number of
    observations that a member has held so far. Memory: O(t^2) per member, O(t A) to predict at A points.

    On devices other than the CPU the values (not the shapes) of X and Y are not checked, and ``forget`` takes from a
    member that holds fewer than ``count`` observations all of them: both checks would synchronise with the device.

    ``observe``, ``forget``, ``reset`` and ``rebuild`` record no graph. The posterior is differentiable with
    respect to X and, after ``condition_on_observations``, to the X and Y conditioned on.

    Raises ValueError for any other ``dtype``, an ``input_dim`` below 1, a ``noise_variance`` too small, batches that do
    not broadcast, and a ``kernel`` that is not a GPyTorch kernel over ``input_dim`` columns with one output.
    """

    kernel: Kernel
    prior_mean: Mean
    noise_variance: Tensor
    data: GrowingCholesky
    _without_pending: GrowingCholesky | None = None  # within ``provisional``: the data without pending rows
    _likelihood: Any = None  # that of ``fitted`` in ``from_botorch``, with its prior over the noise

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: float | Tensor,
        *,
        prior_mean: float | Mean = 0.0,
        input_dim: int,
        batch_shape: Sequence[int] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        validation.instance("kernel", kernel, Kernel, "a gpytorch.kernels.Kernel")
        validation.require(dtype in SMALLEST_RATIO, "dtype", dtype, "torch.float64 or torch.float32")
        self.input_dim = validation.positive_integer("input_dim", input_dim)
        shape = torch.Size(batch_shape)
        noise = noise_over(torch.zeros((), dtype=dtype, device=device), noise_variance)
        require_within(shape, noise.shape, "noise_variance")
        require_within(shape, kernel.batch_shape, "kernel.batch_shape")
        if not isinstance(prior_mean, Mean):
            constant = torch.tensor(validation.finite_number("prior_mean", prior_mean), dtype=torch.float64)
            number = float(validation.rewards("prior_mean", constant, dtype))
            prior_mean = ConstantMean().to(dtype)  # before it is filled: float32 would round the number
            prior_mean.constant.data.fill_(number)
            prior_mean.requires_grad_(False)
        exact = any(isinstance(part, SpatioTemporalKernel | PeriodKernel) for part in kernel.modules())
        factors = torch.broadcast_shapes(kernel.batch_shape, noise.shape, (1,) * len(shape))
        self.data = GrowingCholesky(input_dim, shape, factors, dtype, device, exact)
        self.kernel = copy.deepcopy(kernel).to(self.data.inputs)
        self.prior_mean = copy.deepcopy(prior_mean).to(self.data.inputs)
        self.register_buffer("noise_variance", noise)
        with takes_columns(self.kernel, input_dim):
            self.kernel(self.data.inputs.new_zeros(2, input_dim)).to_dense()
        check_ratio(noise, self._variance_at_origin())
        self.eval()

    @classmethod
    def from_botorch(cls, fitted: SingleTaskGP, *, running: bool = False) -> OnlineGP:
        """A model that predicts like a fitted ``SingleTaskGP`` and then learns and forgets in place.

        Kernel, noise, prior mean, input transform, ``Standardize`` and data are copied. Inputs and outcomes stay in the
        units of the data given to ``fitted``. The transforms keep their fitted parameters, as in BoTorch's
        ``condition_on_observations``.

        Args:
            fitted: a model with one output, no batch and one noise variance. Its outcome transform is ``Standardize``
                or none; its input transform treats every point alike (``Normalize``, ``Warp``, ``Round``, ...).
            running: True to standardise by mean and deviation of the current observations, after each ``observe`` and
                ``forget``: the predictions are those of a new ``SingleTaskGP`` with the same hyperparameters. With
                ``forget``, level and scale follow a drift. Costs O(t^2) more per observation.

        ``refit`` learns the hyperparameters again. Cost: O(n^3). Raises ValueError for any other ``fitted``.
        """
        arguments, X, Y, likelihood = parts_of(fitted, running)
        model = cls(**arguments)
        held_elsewhere(model, _likelihood=likelihood)
        model.observe(X, Y)
        return model

    def to_botorch(self) -> SingleTaskGP:
        """A ``SingleTaskGP`` with the current hyperparameters, transforms and observations. O(t^3) when it predicts.

        Raises ValueError for a batch of models, without observations, and if some have their own noise variances.
        """
        self.check_one_noise()
        return twin_of(self, self._likelihood)

    def check_one_noise(self) -> None:
        """Raise ValueError if observations have their own noise variances."""
        expected = "one whose observations all have its noise_variance"
        validation.require(not self.data.own_noise, "model", "one conditioned with noise=", expected)

    def refit(self, **options: Any) -> None:
        """Fit kernel, noise, prior mean and transforms to the current observations, as BoTorch does.

        ``options``: of ``fit_gpytorch_mll``. Cost: O(t^3) per iteration. Raises ValueError for a batch of models and
        without observations. If the fit fails, the model does not change.
        """
        self.check_one_noise()
        twin = twin_of(self, self._likelihood, standardise=True)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(twin.likelihood, twin), **options)
        arguments, _, _, likelihood = parts_of(twin, self._running)
        new = type(self)(**arguments)
        new.observe(self.train_inputs[0], self.train_targets.unsqueeze(-1))
        for name in ("kernel", "prior_mean", "noise_variance", "data"):
            setattr(self, name, getattr(new, name))
        held_elsewhere(self, _likelihood=likelihood)

    @property
    def _running(self) -> bool:
        """Whether the outcomes are standardised again after each change of the data (``from_botorch``)."""
        return isinstance(self.kernel, TransformedKernel) and self.kernel.running

    def _check_standardises(self) -> None:
        """Raise ValueError if a ``running`` model cannot be standardised again: a batch cannot, nor can observations
        with their own noise variances, which are in the factor alone."""
        if self._running:
            shape = tuple(self.batch_shape)
            validation.require(not shape, "model.batch_shape", shape, "(): running=True follows one model")
            self.check_one_noise()

    def _standardise(self) -> None:
        """Standardise a ``running`` model by its current targets; leave any other. O(t^2)."""
        if not self._running or int(self.num_observations) == 0:
            return
        before = self.kernel.scale.clone()
        for module in (self.kernel, self.prior_mean):
            relearn(module.outcome_transform, self.train_targets.to(module.outcome_transform.means))
        ratio = (self.kernel.scale / before).to(self.noise_variance)
        self.noise_variance.mul_(ratio**2)
        self.data.rows().corner.mul_(ratio)
        self._whiten_anew()

    # -- observations ----------------------------------------------------------------------------------

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of models."""
        return self.data.batch_shape

    @property
    def input_dtype(self) -> torch.dtype:
        """float64 with a kernel over time or over periods, otherwise the model's dtype."""
        return self.data.inputs.dtype

    @property
    def num_observations(self) -> Tensor:
        """How many observations each member holds now, ``batch_shape``. O(t)."""
        return self._learned().held.sum(-1).expand(self.batch_shape)

    @property
    def total_precision(self) -> Tensor:
        """See ``OnlineModel``. Raises ValueError if observations have their own noise variances, which are not kept."""
        self.check_one_noise()
        return super().total_precision

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(I + K / lambda) = sum log L_ii - n/2 log lambda of n observations, ``batch_shape``. O(t)."""
        rows = self._learned()
        log_diagonal = rows.corner.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        gain = log_diagonal - 0.5 * rows.held.sum(-1).to(log_diagonal) * self.noise_variance.log()
        return gain.expand(self.batch_shape)

    @property
    def log_likelihood(self) -> Tensor:
        """Log marginal likelihood of the n present observations, ``batch_shape``. O(t).

        L_ii is the predictive deviation of target i given those before it, and z_i, z = L^{-1} (y - m), is its
        prediction error in units of L_ii. The result is -1/2 |z|^2 - sum log L_ii - n/2 log 2 pi, without a solve.
        """
        rows = self._learned()
        log_diagonal = rows.corner.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = 0.5 * math.log(2 * math.pi) * rows.held.sum(-1).to(log_diagonal)
        return -0.5 * rows.whitened.square().sum(-1) - log_diagonal - constant

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Inputs, oldest first, ``(batch_shape x n x d,)``. Raises ValueError if members hold different numbers."""
        rows = self._rectangular()
        return (rows.inputs.expand(*self.batch_shape, *rows.inputs.shape[-2:]).clone(),)

    @property
    def train_targets(self) -> Tensor:
        """Targets, oldest first, ``batch_shape x n``. Raises ValueError if members hold different numbers."""
        return self._rectangular().targets.clone()

    def _learned(self) -> Rows:
        """The rows without pending ones."""
        return (self._without_pending or self.data).rows()

    def _rectangular(self) -> Rows:
        if self.data.ragged:
            self.data.compact()
        expected = "the same in every member: otherwise the data are not one tensor"
        validation.require(not self.data.ragged, "num_observations", self.num_observations, expected)
        return self.data.rows()

    # -- learning --------------------------------------------------------------------------------------

    def observe(self, X: Tensor, Y: Tensor, where: Tensor | None = None) -> None:
        """Add n observations in one block step. O(n t^2 + n^3), in place.

        Args:
            X: ``batch x n x d`` inputs, in any order of time.
            Y: ``batch x n x 1`` targets. Both batches broadcast to ``batch_shape``.
            where: booleans, broadcast to ``batch_shape``: the members that learn.

        Raises:
            ValueError: for any other shape, NaN or infinity in X or Y, and a prior variance at X of more than 1e15
                (float32: 2e6) times the noise variance, with nothing changed. Values are checked on the CPU only.
        """
        X, Y = _points_and_targets(X, Y, self.batch_shape, self.data)
        where = self._mask(where)
        if self._without_pending is None:
            self._check_standardises()
        self.prior.check_spread(X)
        held = None if where is None else where.unsqueeze(-1).expand(*where.shape, X.shape[-2])
        with torch.no_grad():
            self.data.make_room(X.shape[-2])
            self.data.widen(X.shape[:-2])
            if where is not None:
                self.data.widen(where.shape)
            for new in rows_to_add(self.prior, self.data, X, Y, held):
                self.data.append(new)
            self.data.ragged |= where is not None
            if self._without_pending is None:
                self._standardise()

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """See ``OnlineModel``: copies the data in O(t^2)."""
        kept, before = self.data, self._without_pending
        try:
            self.data = kept.expanded(self.batch_shape)
            held_elsewhere(self, _without_pending=before or kept)
            yield
        finally:
            self.data = kept
            held_elsewhere(self, _without_pending=before)

    @torch.no_grad()
    def expect(self, X: Tensor) -> None:
        """See ``OnlineModel``; X may be at any time. O(t^2)."""
        super().expect(X)

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        """Remove the ``count`` oldest observations exactly and in place. O(t^2) each.

        Raises:
            ValueError: if ``count`` is not an integer >= 1, or more than a member (with ``where`` True) holds. The
                latter is checked on the CPU; elsewhere only without ``where`` while ``data.ragged`` is False.
        """
        validation.positive_integer("count", count)
        self._check_standardises()
        where = self._mask(where)
        if where is None and not self.data.ragged:
            held = self.data.size
            validation.require(count <= held, "count", count, f"at most {held}, the number of observations")
        elif self.data.held.device.type == "cpu":
            short = self.num_observations < count
            ok = not bool((short if where is None else short & where).any())
            numbers = self.num_observations.tolist()
            validation.require(ok, "count", count, f"at most {numbers}, the numbers of observations")
        with torch.no_grad():
            for _ in range(count):
                self.data.drop_oldest(where)
            self._whiten_anew()
            self._standardise()

    def remove(self, row: Tensor, where: Tensor | None = None) -> None:
        """Forget one observation of each member exactly and in place: row number ``row`` of ``data.rows()``. O(t^2).

        ``row``: int64, ``batch_shape``. Raises ValueError for any other dtype or shape and, on the CPU, for a number
        outside 0 to t - 1. A member that does not hold its row stays as it is.
        """
        fits = validation.tensor("row", row).shape == self.batch_shape and row.dtype == torch.long
        validation.shape_is("row", row, fits, f"{tuple(self.batch_shape)} and dtype int64")
        in_range = not row.is_cpu or bool(((row >= 0) & (row < self.data.size)).all())
        validation.require(in_range, "row", row, f"from 0 to {self.data.size - 1}")
        self._check_standardises()
        where = self._mask(where)
        with torch.no_grad():
            self.data.drop_row(row, where)
            self._whiten_anew()
            self._standardise()

    def _whiten_anew(self) -> None:
        """Recompute L^{-1} (y - m): a removed target leaves rounding errors of its size, which may be huge. O(t^2)."""
        rows = self.data.rows()
        residual = torch.where(rows.held, rows.targets - self.prior.mean(rows.inputs), 0.0)
        rows.whitened.copy_(self.data.solve(residual.unsqueeze(-1)).squeeze(-1))

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything: back to the prior. O(1), or O(t^2) with ``where``."""
        where = self._mask(where)
        with torch.no_grad():
            self.data.clear(where)

    @property
    def prior(self) -> GaussianPrior:
        """Prior mean and covariance with the kernel's present hyperparameters."""
        return GaussianPrior(self.kernel, self.prior_mean, self.noise_variance)

    def _mask(self, where: Tensor | None) -> Tensor | None:
        """``where``, checked, on the model's device; None if all are True (tested on the CPU only)."""
        if where is None:
            return None
        boolean = isinstance(where, Tensor) and where.dtype == torch.bool
        validation.require(boolean, "where", where, "a boolean tensor")
        expected = f"{tuple(self.batch_shape)}, or one that broadcasts to it"
        validation.shape_is("where", where, within(self.batch_shape, where.shape), expected)
        if where.is_cpu and bool(where.all()):
            return None
        return where.to(self.data.inputs.device)

    def hold(self, X: Tensor, Y: Tensor, held: Tensor) -> None:
        """In members with any ``held`` row, replace all observations by the rows with ``held`` True. O(n t^2).

        X: ``batch x n x d``, Y: ``batch x n x 1``, oldest first; held: booleans, ``batch x n``. Raises ValueError on
        bad input, with nothing changed.
        """
        _points_and_targets(X, Y, self.batch_shape, self.data)
        check_held(held, self.batch_shape, X.shape[-2])
        self.prior.check_spread(X)
        self.reset(held.any(-1))
        for k in range(X.shape[-2]):
            self.observe(X[..., k : k + 1, :], Y[..., k : k + 1, :], where=held[..., k])

    def rebuild(self) -> None:
        """Compute the factor again after ``kernel``, ``prior_mean`` or ``noise_variance`` changed. O(t^3)."""
        self.check_one_noise()
        with torch.no_grad():
            self.data.widen(self.kernel.batch_shape)
            self.data.widen(self.noise_variance.shape)
            rows, size = self.data.rows(), self.data.size
            X, Y, held = rows.inputs.clone(), rows.targets.clone(), rows.held.clone()
            self.data.size = 0
            try:
                for new in rows_to_add(self.prior, self.data, X, Y, held):
                    self.data.append(new)
            except (torch.linalg.LinAlgError, ValueError):
                self.data.size = size  # nothing is written yet
                raise

    def adopt(self, noise_variance: Tensor, prior_mean: Tensor) -> None:
        """Set the noise variance and the prior mean, as many numbers of each as the model has, and ``rebuild``. O(t^3).

        Raises ValueError if the model's prior mean is not a ``ConstantMean``, if observations have noise variances of
        their own, for any other number of elements, and for values that the constructor or ``observe`` would refuse,
        with nothing changed.
        """
        self.check_one_noise()
        constant = isinstance(self.prior_mean, ConstantMean)
        validation.require(constant, "model.prior_mean", self.prior_mean, "a ConstantMean, to be learned")
        present = {"noise_variance": self.noise_variance, "prior_mean": self.prior_mean.constant.data}
        new = {"noise_variance": noise_variance, "prior_mean": prior_mean}
        for name, value in new.items():
            fits = present[name].numel() == validation.tensor(name, value).numel()
            validation.shape_is(name, value, fits, f"{tuple(present[name].shape)}, as the model's")
        noise_variance = noise_variance.to(self.noise_variance).reshape(self.noise_variance.shape)
        check_ratio(noise_variance, self._variance_at_origin())
        GaussianPrior(self.kernel, self.prior_mean, noise_variance).check_spread(self.data.rows().inputs)
        validation.rewards("prior_mean", prior_mean, self.data.targets.dtype)
        for name, value in new.items():
            present[name].copy_(value.reshape(present[name].shape))
        self.rebuild()

    def grow_from(self, small: OnlineGP) -> None:
        """Take over what ``small`` learned, a model built like this one over fewer arms. A kernel's covariance matrix
        of all arms stays."""
        state = small.state_dict()
        own = {f"kernel.{name}": value for name, value in self.kernel.state_dict().items()}
        self.load_state_dict(state | {k: v for k, v in own.items() if v.shape != state[k].shape})

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> OnlineGP:
        """``model.to(float32)``: kernel and prior mean keep the dtype of the inputs."""
        super()._apply(fn, recurse)
        for part in (self.kernel, self.prior_mean):
            part.to(self.data.inputs.dtype)
        return self

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> OnlineGP:
        """A copy that has observed (X, Y), differentiable in both.

        Extra batch dimensions (fantasies) widen it; those that only Y has share one factor. Cost: O(t^2) per
        factor and new observation.

        As in BoTorch, ``noise`` may give the variances of these observations, in Y's shape, instead of
        ``noise_variance``. Such a copy cannot be rebuilt. Its information gain uses ``noise_variance``. If it is
        ``running``, it can neither observe nor forget. The variances are in squared units of Y, also after
        ``from_botorch`` (BoTorch expects the units of standardised outcomes).
        """
        for name, value in (("X", X), ("Y", Y)):
            validation.tensor(name, value)
        wide = broadcast("X, Y and the model", X.shape[:-2], Y.shape[:-2], self.batch_shape)
        X, Y = _points_and_targets(X, Y, wide, self.data)
        self.prior.check_spread(X)
        model, noise = self.expand(wide), kwargs.get("noise")
        if noise is not None:
            noise = validation.own_noise(validation.tensor("noise", noise).to(Y), "noise")
            fits = noise.shape[-2:] == (X.shape[-2], 1) and within(wide, noise.shape[:-2])
            expected = f"batch x {X.shape[-2]} x 1, batch broadcasting to {tuple(wide)}"
            validation.shape_is("noise", noise, fits, expected)
            noise, model.data.own_noise = noise.squeeze(-1), True
        for new in rows_to_add(model.prior, model.data, X, Y, None, noise):
            model.data.join(new)
        return model

    def expand(self, batch_shape: torch.Size) -> OnlineGP:
        """A copy of shape ``batch_shape``, to which the model's shape must broadcast; shares no memory."""
        require_within(torch.Size(batch_shape), self.batch_shape, "the model's batch shape")
        expanded = self.data.expanded(torch.Size(batch_shape))
        return copy.deepcopy(self, {id(self.data): expanded})  # the memo replaces the data

    def _variance_at_origin(self) -> Tensor:
        """The prior variance at the origin. For a stationary kernel it is the prior variance everywhere."""
        origin = self.data.inputs.new_zeros(1, self.input_dim)
        with torch.no_grad():
            return self.prior.variance(origin)

    # -- predicting ------------------------------------------------------------------------------------

    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
        """See ``OnlineModel``. O(t^2) per point. For q = 1 it computes marginals without a matrix."""
        validation.tensor("X", X)
        ok = X.dim() >= 2 and X.shape[-1] == self.input_dim and X.shape[-2] > 0
        validation.shape_is("X", X, ok, f"t_batch x q x {self.input_dim} with q >= 1")
        if X.is_cpu:
            validation.finite_tensor("X", X)
        batch = broadcast("X and the model", X.shape[:-2], self.batch_shape)
        q = X.shape[-2]
        mean, spread = predict(self.prior, self.data, X.to(self.data.inputs))
        mean = mean.expand(*batch, q)
        if q == 1:
            return MarginalPosterior(mean, spread.expand(*batch, 1) + noise)
        return joint_posterior(mean, spread.expand(*batch, q, q), noise)


def _points_and_targets(
    X: Tensor, Y: Tensor, batch_shape: torch.Size, data: GrowingCholesky
) -> tuple[Tensor, Tensor]:
    """Check X, ``batch x n x d``, and Y, ``batch x n x 1``; return them as ``batch x n x d`` and ``batch x n`` with
    the dtypes and the device of ``data``, whose inputs have d columns. Values are checked on the CPU only."""
    shape, d = tuple(batch_shape), data.inputs.shape[-1]
    validation.tensor("X", X)
    validation.tensor("Y", Y)
    ok = X.dim() >= 2 and X.shape[-1] == d and X.shape[-2] >= 1 and within(batch_shape, X.shape[:-2])
    validation.shape_is("X", X, ok, f"batch x n x {d} with n >= 1, batch broadcasting to {shape}")
    ok = Y.dim() >= 2 and Y.shape[-2:] == (X.shape[-2], 1) and within(batch_shape, Y.shape[:-2])
    validation.shape_is("Y", Y, ok, f"batch x {X.shape[-2]} x 1, batch broadcasting to {shape}")
    if X.is_cpu:
        validation.finite_tensor("X", X)
    if Y.is_cpu:
        validation.rewards("Y", Y, data.targets.dtype)
    return X.to(data.inputs), Y.to(data.targets).squeeze(-1)

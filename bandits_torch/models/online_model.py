"""The interface of models that learn and forget one observation at a time, parts that such models share (states that
change size, posteriors from marginals, checks of batch shapes), and a view of a model at one time.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator, TriangularLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.memoize import cached
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.description import Described


class QuickModule(torch.nn.Module):
    """A module whose buffers and submodules are also ordinary attributes: PyTorch's search for one takes 0.6 us,
    fifteen times as long, and a step reads about 80. So ``torch.func.functional_call`` can replace parameters, but not
    buffers."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Skips PyTorch's search of parameters and submodules, which takes longer than a small sum, for buffers and
        for values that are neither."""
        own = vars(self)
        buffers = own.get("_buffers", {})
        if type(value) is Tensor and name in buffers:
            buffers[name] = own[name] = value
        elif type(value) in (int, float, bool, list, dict, set):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)
            if name in buffers or name in own.get("_modules", {}):
                own[name] = value

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        super().register_buffer(name, tensor, persistent)
        vars(self)[name] = tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        vars(self).update(self._buffers)
        return self


class SingleOutputModel(QuickModule, Model, ABC):
    """A BoTorch model of one output, whose subclass defines the posterior with given variances of noise.

    Attributes:
        noise_variance: lambda, a tensor that broadcasts to ``batch_shape``.
    """

    noise_variance: Tensor
    num_outputs = 1

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:  # what ``posterior_transform`` returns, else a ``GPyTorchPosterior``
        """Joint posterior at X, ``t_batch x q x d``; ``t_batch`` broadcasts with ``batch_shape``.

        Args:
            X: inputs; for a model over arms, indices (and time).
            output_indices: None or [0].
            observation_noise: True adds ``noise_variance``; a tensor holds variances to add, ``t_batch x q x 1``.
            posterior_transform: as in BoTorch.

        Raises ValueError for inputs and variances that do not fit the model, negative variances and, unless
        ``tells_past``, a time before the latest observation.
        """
        noise: float | Tensor = 0.0
        one = output_indices in (None, [0])
        validation.require(one, "output_indices", output_indices, "None or [0]: one output")
        if isinstance(observation_noise, Tensor):
            validation.tensor("X", X)
            batch, q = broadcast("X and the model", X.shape[:-2], self.batch_shape), X.shape[-2:-1]
            variances = observation_noise.shape
            ok = variances[-1:] == (1,) and within(batch + q, variances[:-1])
            validation.shape_is("observation_noise", observation_noise, ok, f"t_batch x {sum(q)} x 1")
            if observation_noise.is_cpu:
                validation.finite_tensor("observation_noise", observation_noise)
                least = float(observation_noise.min())
                validation.require(least >= 0, "observation_noise", least, "variances >= 0")
            noise = observation_noise.squeeze(-1)
        elif observation_noise:
            noise = self.noise_variance.unsqueeze(-1)
        posterior = self._posterior_at(X, noise)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    @abstractmethod
    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
        """``posterior`` with the variances ``noise`` added, which broadcast to ``batch x q``."""


class OnlineModel(Described, SingleOutputModel, FantasizeMixin):  # type: ignore[misc]  # a narrower ``posterior``
    """A single-output BoTorch model that adds and removes observations in place.

    ``posterior`` is BoTorch's. In addition:

    * ``observe(X, Y)`` adds observations, ``forget(count)`` removes the oldest, ``reset()`` removes all. They change
      the model in place without a refit; each model states the cost.
    * ``where``, a boolean tensor of ``batch_shape``, restricts each of them to some members of the batch
      (replicates, priors); the others do not change.
    * ``condition_on_observations`` is BoTorch's: it returns a changed copy. Calling the model, ``model(X)``, gives the
      posterior as a distribution, as GPyTorch's models in evaluation mode do.

    Attributes:
        tells_past: whether the model predicts at times before the latest observation, from all observations.
    """

    tells_past: bool = True

    @property
    def likelihood(self) -> Any:
        """Raises ValueError: there is no likelihood. The message names ``fit_hyperparameters`` instead."""
        raise ValueError(
            f"{type(self).__name__} has no likelihood (its noise is noise_variance): fit_gpytorch_mll cannot fit it. "
            "To learn kernel, noise and mean from what an OnlineGP or ArmGP has observed, build it with a kernel from "
            "bandits_torch.models.learnable and call bandits_torch.models.fit_hyperparameters(model, [0])"
        )

    @property
    def input_dtype(self) -> torch.dtype:
        """The dtype of stored inputs: the model's, or float64 if inputs include a time."""
        return self.noise_variance.dtype

    @property
    @abstractmethod
    def num_observations(self) -> Tensor:
        """The number of observations that each member holds, ``batch_shape``."""

    @property
    def total_precision(self) -> Tensor:
        """Sum of 1 / noise variance over the observations that each member holds, ``batch_shape``."""
        return self.num_observations / self.noise_variance

    @property
    @abstractmethod
    def information_gain(self) -> Tensor:
        """Realised gain 1/2 log det(I + K_t / lambda) of the observations held, ``batch_shape``."""

    @property
    def can_forget(self) -> bool:
        """Whether ``forget`` works on this model."""
        return True

    @abstractmethod
    def observe(self, X: Tensor, Y: Tensor, where: Tensor | None = None) -> None:
        """Learn observations in the order given. X: ``batch_shape x n x d``, Y: ``batch_shape x n x 1``
        (both may broadcast over the batch). Raises ValueError, with nothing changed, on bad input."""

    @abstractmethod
    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        """Forget the ``count`` oldest observations."""

    def slide(self, window: int) -> None:
        """Forget the oldest observation of the members that hold more than ``window``."""
        self.forget(1, where=self.num_observations > window)

    @abstractmethod
    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything: back to the prior."""

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """Within the block the model may ``expect`` pending observations; afterwards it is restored, bit for bit.

        Cost: a copy of everything that observations change.
        """
        with put_back(self, shared=self.lasting):
            yield

    @property
    def lasting(self) -> tuple[Any, ...]:
        """Objects that no observation changes: ``provisional`` does not copy them."""
        return ()

    def expect(self, X: Tensor) -> None:
        """Condition on a pending observation at X, ``batch_shape x 1 x d``: its target is not known yet.

        This is equivalent to observing the posterior mean: variances fall, the mean stays (Desautels, Krause & Burdick
        2014, section 3.2). Call it only within ``provisional``. ``num_observations``, ``information_gain`` and the
        likelihood do not count it, except in ``SketchedGP``. It costs as much as an observation.
        """
        self.observe(X, self.posterior(X).mean)

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """Within the block ``to`` and similar calls change nothing. BoTorch's analytic acquisitions move their model to
        the dtype of their inputs, and inputs with a time are in float64 even for a float32 model."""
        own = vars(self)  # a module's ``__setattr__`` takes longer than a small sum
        before, own["_stays"] = self._stays, True
        try:
            yield
        finally:
            own["_stays"] = before

    _stays = False

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return self if self._stays else super()._apply(fn, recurse)

    @abstractmethod
    def expand(self, batch_shape: torch.Size) -> OnlineModel:
        """A copy whose batch shape is ``batch_shape``, to which the shape of the model must broadcast."""

    def with_arms(self, arms: Tensor, prior_mean: float | Tensor | None = None) -> OnlineModel:
        """A model with these arms, (n, d), after the current ones. Raises ValueError unless it is an ``ArmGP``."""
        raise ValueError(f"model must be an ArmGP to take up more arms, got {type(self).__name__}")

    def trace(self) -> dict[str, Tensor | float]:
        """Numbers to record at a step, each (S,), for models whose only batch dimension is the replicates."""
        return {}

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> OnlineModel:
        """A copy that has observed (X, Y); extra batch dimensions of X or Y (fantasies) widen the copy.

        Raises ValueError for ``noise`` other than ``noise_variance``, except in ``OnlineGP``.
        """
        validation.tensor("X", X)
        validation.tensor("Y", Y)
        wide = broadcast("X, Y and the model", X.shape[:-2], Y.shape[:-2], self.batch_shape)
        noise = kwargs.get("noise")
        if noise is not None:
            own = self.noise_variance.expand(self.batch_shape)[..., None, None].to(noise)
            broadcast("noise and the model", noise.shape, own.shape)
            same = torch.allclose(*torch.broadcast_tensors(noise, own))
            validation.require(same, "noise", noise, f"noise_variance, {own.squeeze()}: the only one here")
        model = copy.deepcopy(self) if wide == self.batch_shape else self.expand(wide)
        model.observe(X, Y)
        return model

    def fantasize(
        self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any
    ) -> OnlineModel:
        """A copy with a batch member for each draw from the noisy posterior at X, ``batch x n x d``, which it has
        observed.

        ``observation_noise``: variances, as in BoTorch. Only ``OnlineGP`` takes others than ``noise_variance``.
        """
        if observation_noise is not None:
            return super().fantasize(X, sampler, observation_noise, **kwargs)
        kwargs.pop("propagate_grads", None)  # gradients to points always propagate
        if X.shape[-2]:
            return self.condition_on_observations(
                X, sampler(self.posterior(X, observation_noise=True)), **kwargs
            )
        nothing = X.new_empty(*sampler.sample_shape, *X.shape[:-2], *self.batch_shape, 0, 1)
        return self.condition_on_observations(X, nothing, **kwargs)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> OnlineModel:
        """``condition_on_observations`` as GPyTorch has it: targets without their last dimension, ``batch x n``."""
        return self.condition_on_observations(inputs, targets.unsqueeze(-1), **kwargs)

    def subset_output(self, idcs: list[int]) -> OnlineModel:
        """A copy. Raises ValueError unless ``idcs`` is [0]: there is one output."""
        validation.require(list(idcs) == [0], "idcs", idcs, "[0]: one output")
        return copy.deepcopy(self)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The joint posterior at X, ``t_batch x q x d``, as a distribution."""
        return self.posterior(X).distribution


@contextmanager
def put_back(*things: Any, shared: Iterable[Any] = ()) -> Iterator[None]:
    """Within the block, deep copies replace the attributes of ``things``; afterwards the originals are back.

    ``shared``: objects that are not copied, because nothing in the block changes them.
    """
    kept = [dict(vars(thing)) for thing in things]
    memo: dict[int, Any] = {id(one): one for one in (*things, *shared)}
    copies = [copy.deepcopy(attributes, memo) for attributes in kept]
    try:
        for thing, attributes in zip(things, copies, strict=True):
            vars(thing).update(attributes)
        yield
    finally:
        for thing, attributes in zip(things, kept, strict=True):
            vars(thing).clear()
            vars(thing).update(attributes)


def held_elsewhere(module: torch.nn.Module, **parts: Any) -> None:
    """Set attributes of ``module`` that another module owns, so they are saved once and moved once."""
    vars(module).update(parts)


class PlainState(QuickModule):
    """A module whose state has, in addition to its buffers, the attributes that ``_PLAIN`` names: numbers, strings, and
    lists and dictionaries of those or of tensors. Their names in the state have no leading underscore."""

    _PLAIN: tuple[str, ...] = ()

    def get_extra_state(self) -> dict[str, Any]:
        """The attributes that ``_PLAIN`` names."""
        return {name.lstrip("_"): copy.deepcopy(getattr(self, name)) for name in self._PLAIN}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Counterpart of ``get_extra_state``."""
        for name in self._PLAIN:
            setattr(self, name, copy.deepcopy(state[name.lstrip("_")]))


class ResizableState(PlainState):
    """A module whose buffers grow with the data: ``load_state_dict`` takes buffers of any shape.

    It also keeps their memory layout, because sums over a matrix in another layout may differ in the last bits. The
    attributes that ``_LOOSE`` names, with their tensors in lists, tuples and dictionaries, move with the buffers.
    """

    _LOOSE: tuple[str, ...] = ()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        for name in self._LOOSE:
            setattr(self, name, _changed(getattr(self, name), fn))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, buffer in self._buffers.items():
            incoming = state_dict.get(prefix + name)
            if buffer is None or incoming is None:
                continue
            if (incoming.shape, incoming.stride()) != (buffer.shape, buffer.stride()):
                setattr(self, name, torch.empty_like(incoming, dtype=buffer.dtype, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _changed(value: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, list | tuple):
        return type(value)(_changed(one, fn) for one in value)
    return {key: _changed(one, fn) for key, one in value.items()} if isinstance(value, dict) else value


def joint_posterior(mean: Tensor, covariance: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
    """Posterior of mean (..., q) and covariance (..., q, q), plus noise (..., q) or 0 on the diagonal."""
    if mean.shape[-1] == 1:
        return MarginalPosterior(mean, covariance.squeeze(-1) + noise)
    if isinstance(noise, Tensor):
        covariance = covariance + torch.diag_embed(noise.expand(mean.shape))
    # A linear operator is factorised only for sampling, with jitter if needed. A tensor would be factorised here, which
    # fails for repeated points.
    return GPyTorchPosterior(Gaussian(mean, Covariance(covariance)))


class Gaussian(MultivariateNormal):
    """A normal distribution with its variances: GPyTorch raises them to 1e-10, whatever the unit of rewards."""

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance, ``batch x q``."""
        return self.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2).clamp_min(0.0)


class Covariance(DenseLinearOperator):
    """A covariance matrix. A jitter for its Cholesky factor is added in units of its largest variance: GPyTorch adds
    1e-8, whatever the unit of rewards."""

    @cached(name="cholesky")
    def _cholesky(self, upper: bool | None = False) -> TriangularLinearOperator:
        variance = self.tensor.detach().diagonal(dim1=-2, dim2=-1).amax(-1)
        # A power of 2, because scaling by it changes no digit.
        unit = torch.ldexp(torch.ones_like(variance), torch.frexp(variance).exponent // 2)[..., None, None]
        factor = psd_safe_cholesky(self.tensor / unit / unit, upper=bool(upper)) * unit
        return TriangularLinearOperator(factor, upper=bool(upper))


class MarginalPosterior(GPyTorchPosterior):
    """``GPyTorchPosterior`` over q = 1 point whose distribution is built only when it is read.

    ``mean`` and ``variance`` need no linear operator, and no checks of values, for which ``MultivariateNormal`` would
    wait for a GPU.

    Args:
        mean, variance: ``batch_shape x 1`` tensors.

    Attributes:
        mean, variance: ``batch_shape x 1 x 1``, as in BoTorch, where they are properties.
    """

    mean: Tensor = None  # type: ignore[assignment]
    variance: Tensor = None  # type: ignore[assignment]

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        self.mean, self.variance, self._is_mt = mean.unsqueeze(-1), variance.unsqueeze(-1), False
        self._device, self._dtype = mean.device, mean.dtype

    @property
    def distribution(self) -> MultivariateNormal:  # type: ignore[override]
        """The same marginals as a GPyTorch distribution."""
        return Gaussian(self.mean.squeeze(-1), DiagLinearOperator(self.variance.squeeze(-1)))

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return sample_shape + self.mean.shape


def within(batch_shape: torch.Size, shape: torch.Size) -> bool:
    """Whether ``shape`` broadcasts to ``batch_shape`` without widening it."""
    try:
        return torch.broadcast_shapes(batch_shape, shape) == batch_shape
    except RuntimeError:
        return False


def require_within(batch_shape: torch.Size, shape: torch.Size, name: str) -> None:
    """Raise ValueError unless ``shape`` broadcasts to ``batch_shape``."""
    expected = f"a shape that broadcasts to batch_shape {tuple(batch_shape)}"
    validation.require(within(batch_shape, shape), name, tuple(shape), expected)


def broadcast(name: str, *shapes: Sequence[int]) -> torch.Size:
    """The shape that these shapes broadcast to. Raises ValueError, which names ``name``, if they do not."""
    try:
        return torch.broadcast_shapes(*map(torch.Size, shapes))
    except RuntimeError as error:
        got = [tuple(shape) for shape in shapes]
        raise ValueError(f"the batches of {name} must broadcast together, got {got}") from error


def empty(values: Iterable[Tensor], where: Tensor | None = None) -> None:
    """Set tensors to 0 in place, in the members with ``where`` True (booleans over their first dimensions)."""
    for value in values:
        if where is None:
            value.zero_()
        else:
            value.masked_fill_(where.reshape(*where.shape, *[1] * (value.dim() - where.dim())), 0)


def check_held(held: Tensor, batch_shape: torch.Size, n: int) -> None:
    """Raise ValueError unless ``held`` is a boolean ``batch_shape x n``: which of n rows each member holds."""
    boolean = isinstance(held, Tensor) and held.dtype == torch.bool
    validation.require(boolean, "held", held, "a boolean tensor")
    shape = (*batch_shape, n)
    validation.shape_is("held", held, held.shape == shape, str(shape))


def with_time(X: Tensor, time: float) -> Tensor:
    """Inputs ``... x d`` with the time as a last column, ``... x (d + 1)``. They are float64 whatever X is, because
    float32 resolves seconds since 1970 to two minutes."""
    return pad(X.double(), (0, 1), value=time)


@validation.names_arguments
class AtTime(Model, FantasizeMixin):
    """A BoTorch model whose last input is time, viewed as a model of f( . , time) over the other inputs.

    Some acquisition functions also evaluate the model at the observed inputs (max-value entropy, noisy expected
    improvement from ``train_inputs``, proximal weights). With the model itself they use the times of observation; with
    this view they use ``time``. Conditioning observes at ``time``.

    Args:
        model: any BoTorch model over inputs ``x, time``: an ``OnlineGP`` or ``ArmGP`` with a ``SpatioTemporalKernel``,
            or a ``SingleTaskGP`` with one.
        time: a finite number. ``ArmGP`` predicts only at or after its latest observation.

    The view changes as the model learns. Raises ValueError for a ``model`` that is not a BoTorch model, an ``ArmGP``
    without a time column and a ``time`` that is not finite.
    """

    def __init__(self, model: Model, time: float) -> None:
        super().__init__()
        validation.instance("model", model, Model, "a BoTorch model")
        validation.require(getattr(model, "drifts", True), "model", model, "one whose last input is time")
        self.model: Any = model  # BoTorch's Model does not declare the observations
        self.time = validation.finite_number("time", time)
        self.eval()

    @property
    def num_outputs(self) -> int:
        """As in the model."""
        return self.model.num_outputs

    @property
    def batch_shape(self) -> torch.Size:
        """As in the model."""
        return self.model.batch_shape

    @property
    def likelihood(self) -> Any:
        """As in the model."""
        return self.model.likelihood

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The inputs observed, without their times."""
        return (self.model.train_inputs[0][..., :-1],)

    @property
    def train_targets(self) -> Tensor:
        """As in the model."""
        return self.model.train_targets

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """Joint posterior at X, ``t_batch x q x d``, and ``time``."""
        return self.model.posterior(self._inputs(X), output_indices, observation_noise, posterior_transform)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """``posterior`` as a distribution."""
        return self.posterior(X).distribution

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> AtTime:
        """A view of a copy of the model that has observed Y at X and ``time``."""
        return AtTime(self.model.condition_on_observations(self._inputs(X), Y, **kwargs), self.time)

    def fantasize(
        self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any
    ) -> AtTime:
        """A view of the fantasies of the model at X and ``time``."""
        return AtTime(self.model.fantasize(self._inputs(X), sampler, observation_noise, **kwargs), self.time)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> AtTime:
        """``condition_on_observations`` as GPyTorch has it: targets without their last dimension, ``batch x n``."""
        return self.condition_on_observations(inputs, targets.unsqueeze(-1), **kwargs)

    def subset_output(self, idcs: list[int]) -> AtTime:
        """A view of the model with these outputs only."""
        return AtTime(self.model.subset_output(idcs), self.time)

    def _inputs(self, X: Tensor) -> Tensor:
        timed = with_time(X, self.time)
        # BoTorch's own models take inputs in the dtype of their data.
        return timed if isinstance(self.model, OnlineModel) else timed.to(X)

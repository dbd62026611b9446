"""Kernels composed of others: space x time, arm x context, a stack of candidate priors; and their Fourier features.

The features are registered with BoTorch, so its pathwise sampling works on any GP with a ``SpatioTemporalKernel`` whose
two kernels have Fourier features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from botorch.sampling.pathwise.features import KernelFeatureMap, gen_kernel_features
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from botorch.sampling.pathwise.utils import (
    ChainedTransform,
    OutputscaleTransform,
    SineCosineTransform,
    TensorTransform,
)
from gpytorch.kernels import Kernel, ScaleKernel
from linear_operator import to_dense
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.temporal import ExponentialForgettingKernel, TimeKernel

COMBINATIONS = ("product", "sum", "additive")


@validation.names_arguments
class SpatioTemporalKernel(Kernel):
    """k((x, t), (x', t')) = k_space(x, x') k_time(t, t') for inputs whose LAST column is time.

    Args:
        space_kernel: any GPyTorch kernel over the first d columns.
        time_kernel: any GPyTorch kernel over the last column, for example ``ExponentialForgettingKernel``.
        kwargs: passed to ``gpytorch.kernels.Kernel``. Give ``active_dims`` to ``space_kernel`` instead: models over
            arms, ``learnable`` and pathwise draws refuse it here.

    Inputs are ``... x n x (d + 1)``; the kernels' batch shapes broadcast. Cost: both kernels and a product of O(n m).

    Raises ValueError if one of the two is not a kernel, and for inputs of fewer than 2 columns. Source: Bogunovic et
    al. 2016, section 3, for exponential forgetting; a product of kernels is a kernel (Rasmussen & Williams 2006,
    section 4.2.4).
    """

    def __init__(self, space_kernel: Kernel, time_kernel: Kernel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, kernel in (("space_kernel", space_kernel), ("time_kernel", time_kernel)):
            validation.instance(name, kernel, Kernel, "a gpytorch.kernels.Kernel")
        self.space_kernel = space_kernel
        self.time_kernel = time_kernel

    @property
    def is_stationary(self) -> bool:
        """Whether both kernels are."""
        return self.space_kernel.is_stationary and self.time_kernel.is_stationary

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its values: the wider dtype of the two kernels (a time kernel built from a number has float64).

        Raises RuntimeError, as GPyTorch's kernels do, if a parameter of the product itself has a different dtype.
        """
        dtype = torch.promote_types(self.space_kernel.dtype, self.time_kernel.dtype)
        return dtype if all(p.dtype == dtype for p in self.parameters(recurse=False)) else super().dtype

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """The two kernels; their sub-kernels are not listed."""
        yield "space_kernel", self.space_kernel
        yield "time_kernel", self.time_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        validation.shape_is("x1", x1, x1.shape[-1] >= 2, "(..., n, d + 1) with d >= 1, the last column time")
        space = self.space_kernel(x1[..., :-1], x2[..., :-1], diag=diag, **params)
        s, t = x1[..., -1:], x2[..., -1:]
        if self.time_kernel.is_stationary and not isinstance(self.time_kernel, TimeKernel) and t.numel():
            # Some GPyTorch kernels divide by a length-scale before they subtract. On a clock of 1e9 seconds they cannot
            # tell close times apart, so times are counted from the latest.
            latest = t.detach().amax()
            s, t = s - latest, t - latest
        return to_dense(space) * to_dense(self.time_kernel(s, t, diag=diag, **params))

    def __getitem__(self, index: Any) -> SpatioTemporalKernel:
        """The kernels at ``index`` of the batch."""
        if len(self.batch_shape) == 0:
            return self
        part = copy.deepcopy(self)
        for name, kernel in self.named_sub_kernels():
            setattr(part, name, _at(kernel, _every(index, self.batch_shape), self.batch_shape))
        part.batch_shape = torch.Size()  # it is that of the two kernels
        return part


def arm_context_kernel(
    arm_kernel: Kernel, context_kernel: Kernel, arm_dim: int, context_dim: int, combine: str = "product"
) -> Kernel:
    """A kernel over [features of an arm, context], (d + c) columns, from GPyTorch's sums and products of kernels.

    * ``"product"``: k(x, x') h(z, z'): arms are similar if their features and their contexts are.
    * ``"sum"``: k(x, x') + h(z, z'): a context shifts all arms equally, and the best arm is the same in all contexts.
      For effects that are added to the reward of every arm: the offset of a period (``PeriodKernel``), a cycle.
    * ``"additive"``: k + h + k h = (1 + k) (1 + h) - 1: effects of arm and context, and their interaction.

    ``arm_kernel`` and ``context_kernel``, k and h, are over the ``arm_dim`` = d columns of the features and the
    ``context_dim`` = c columns of the context; they are copied. ``combine``: one of the three. Raises ValueError for
    arguments of the wrong kind.

    Source: Krause & Ong 2011, section 5.1 (products and sums of kernels over actions and contexts); Duvenaud,
    Nickisch & Rasmussen 2011, Additive Gaussian processes, for the sum of all orders.
    """
    validation.positive_integer("arm_dim", arm_dim)
    validation.positive_integer("context_dim", context_dim)
    validation.require(combine in COMBINATIONS, "combine", combine, f"one of {', '.join(COMBINATIONS)}")
    k = _over("arm_kernel", arm_kernel, 0, arm_dim)
    h = _over("context_kernel", context_kernel, arm_dim, context_dim)
    if combine == "product":
        return k * h
    if combine == "sum":
        return k + h
    return k + h + copy.deepcopy(k) * copy.deepcopy(h)


def _over(name: str, kernel: Kernel, first: int, count: int) -> Kernel:
    """A copy for the ``count`` columns from ``first`` on; its ``active_dims`` count from there."""
    validation.instance(name, kernel, Kernel, "a gpytorch.kernels.Kernel")
    kernel = copy.deepcopy(kernel)
    dims = kernel.active_dims
    if dims is not None:
        validation.require(int(dims.max()) < count, f"{name}.active_dims", dims, f"below {count}")
    kernel.active_dims = first + (torch.arange(count) if dims is None else dims)
    return kernel


def kernel_of_member(kernel: Kernel, index: int) -> Kernel:
    """A copy of the kernel of batch member ``index``; without a batch, or in a batch of one, that kernel for every
    index. ``active_dims`` are set aside, because GPyTorch would index them too."""
    whole = copy.deepcopy(kernel)
    if not len(kernel.batch_shape):
        return whole
    active_dims = [part.active_dims for part in whole.modules() if isinstance(part, Kernel)]
    for part in whole.modules():
        if isinstance(part, Kernel):
            part.active_dims = None
    one = whole[index % kernel.batch_shape.numel()]
    parts = (part for part in one.modules() if isinstance(part, Kernel))
    for part, dims in zip(parts, active_dims, strict=True):
        part.active_dims = dims
    return one


@validation.names_arguments
class StackedKernel(Kernel):
    """P different kernels as one kernel of batch shape (..., P): the candidate priors of one model.

    Args:
        kernels: P kernels over the same inputs; their batch shapes (replicates) broadcast and come before P.

    Inputs are ``... x n x d`` with P or 1 in the dimension before n, if there is one. Cost: that of the P kernels.

    Source: the batch of priors of Ziomek et al. 2024, Algorithm 1. Raises ValueError unless
    ``kernels`` has at least one entry and all are kernels.
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        some = isinstance(kernels, Sequence) and len(kernels) > 0
        all_kernels = some and all(isinstance(kernel, Kernel) for kernel in kernels)
        validation.require(all_kernels, "kernels", kernels, "at least one kernel, in a sequence")
        replicates = torch.broadcast_shapes(*[kernel.batch_shape for kernel in kernels])
        super().__init__(batch_shape=torch.Size([*replicates, len(kernels)]))
        self.kernels = torch.nn.ModuleList(kernels)

    @property
    def is_stationary(self) -> bool:
        """Whether all kernels are."""
        return all(kernel.is_stationary for kernel in self.kernels)

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """None, so GPyTorch does not broadcast their batch shapes with that of the stack."""
        return ()

    def __getitem__(self, index: Any) -> Kernel:
        """The kernels at ``index``, numbers and slices, of the batch (..., P)."""
        *replicates, priors = _every(index, self.batch_shape)
        kernels: list[Any] = [_at(part, replicates, self.batch_shape[:-1]) for part in self.kernels]
        shape = torch.broadcast_shapes(*[part.batch_shape for part in kernels])
        kernels = [part.expand_batch(shape) for part in kernels]
        return StackedKernel(kernels[priors]) if isinstance(priors, slice) else kernels[priors]

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        parts = [
            to_dense(kernel(_of_member(x1, p), _of_member(x2, p), diag=diag, **params))
            for p, kernel in enumerate(self.kernels)
        ]
        return torch.stack(torch.broadcast_tensors(*parts), -2 if diag else -3)


def _every(index: Any, batch_shape: torch.Size) -> list[Any]:
    """An index with an entry for each dimension of ``batch_shape``."""
    given = list(index) if isinstance(index, tuple) else [index]
    return given + [slice(None)] * (len(batch_shape) - len(given))


def _at(kernel: Kernel, index: list[Any], batch_shape: torch.Size) -> Kernel:
    """The kernels at ``index`` of ``batch_shape``, to which the kernel's batch broadcasts: its own dimensions alone are
    indexed, because GPyTorch does not expand the kernels within sums and products."""
    own = kernel.batch_shape
    shared = zip(index[len(index) - len(own) :], own, batch_shape[len(batch_shape) - len(own) :], strict=True)
    parts = [at if size == all_ else 0 if isinstance(at, int) else slice(None) for at, size, all_ in shared]
    return kernel[tuple(parts)] if parts else kernel


def _of_member(x: Tensor, p: int) -> Tensor:
    return x if x.dim() == 2 else x.select(-3, p if x.shape[-3] > 1 else 0)


class ByKernel(TensorTransform):
    """``function(kernel, values)`` with the kernel's present hyperparameters."""

    def __init__(self, kernel: Kernel, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.kernel, self.function = kernel, function

    def forward(self, values: Tensor, **_unused: Any) -> Tensor:
        return self.function(self.kernel, values)


def _decayed(kernel: ExponentialForgettingKernel, times: Tensor) -> Tensor:
    """Times in units of the exponential kernel's length, 1 / decay."""
    return kernel.decay.unsqueeze(-1) * times


class _SpaceAndTime(TensorTransform):
    """Applies one transform (or none) to all columns but the last, and another (or none) to the last."""

    def __init__(self, space: Any, time: Any) -> None:
        super().__init__()
        self.space, self.time = space, time

    def forward(self, values: Tensor, **_unused: Any) -> Tensor:
        x, t = values[..., :-1], values[..., -1:]
        x = x if self.space is None else self.space(x)
        return torch.cat([x, t if self.time is None else self.time(t)], -1)


@GenKernelFeatures.register(ExponentialForgettingKernel)
def _features_of_forgetting(
    kernel: ExponentialForgettingKernel, *, num_inputs: int, num_outputs: int
) -> KernelFeatureMap:
    """exp(-|t - t'| / length) is the Fourier transform of a Cauchy density: Matern with nu = 1/2."""
    validation.require(num_inputs == 1, "num_inputs", num_inputs, "1: a kernel over time")
    _one_kernel(kernel)
    rate = kernel.forgetting_rate
    normal = torch.randn(2, num_outputs // 2, 1, dtype=rate.dtype, device=rate.device)
    return KernelFeatureMap(
        kernel,
        weight=normal[0] / normal[1].abs(),
        input_transform=ByKernel(kernel, _decayed),
        output_transform=_waves(rate, num_outputs),
    )


@GenKernelFeatures.register(SpatioTemporalKernel)
def _features_of_product(
    kernel: SpatioTemporalKernel, *, num_inputs: int, num_outputs: int
) -> KernelFeatureMap:
    """Frequencies of a product over different inputs are drawn independently and concatenated."""
    _one_kernel(kernel)
    space = gen_kernel_features(kernel.space_kernel, num_inputs=num_inputs - 1, num_outputs=num_outputs)
    time = gen_kernel_features(kernel.time_kernel, num_inputs=1, num_outputs=num_outputs)
    # Shuffled, because equal rows of two low-discrepancy sequences are not independent.
    shuffled = time.weight[torch.randperm(num_outputs // 2, device=time.weight.device)]
    return KernelFeatureMap(
        kernel,
        weight=torch.cat([space.weight, shuffled], -1),
        input_transform=_SpaceAndTime(space.input_transform, time.input_transform),
        output_transform=ChainedTransform(*_scales(kernel), _waves(space.weight, num_outputs)),
    )


def unscaled(kernel: Kernel) -> tuple[Any, Tensor]:
    """The kernel without its ``ScaleKernel``, if it has one, and the scale."""
    if isinstance(kernel, ScaleKernel):
        return kernel.base_kernel, kernel.outputscale
    return kernel, torch.ones(())


def check_sees_all(kernel: Kernel) -> None:
    """Raise ValueError for a kernel with ``active_dims``, which its parts would ignore if they are used separately."""
    expected = "None: give them to the kernel over space"
    validation.require(kernel.active_dims is None, "kernel.active_dims", kernel.active_dims, expected)


def _one_kernel(kernel: Kernel) -> None:
    shape = tuple(kernel.batch_shape)
    validation.require(shape == (), "kernel.batch_shape", shape, "() for features: one kernel")
    check_sees_all(kernel)


def _scales(kernel: Kernel) -> list[OutputscaleTransform]:
    """The output scales of the factors of a product."""
    if isinstance(kernel, ScaleKernel):
        return [OutputscaleTransform(kernel), *_scales(kernel.base_kernel)]
    if isinstance(kernel, SpatioTemporalKernel):
        return [*_scales(kernel.space_kernel), *_scales(kernel.time_kernel)]
    return []


def _waves(like: Tensor, num_outputs: int) -> SineCosineTransform:
    return SineCosineTransform(like.new_tensor((2 / num_outputs) ** 0.5))

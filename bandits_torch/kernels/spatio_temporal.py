"""The product of a kernel over space and a kernel over time."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.temporal import TimeKernel


@validation.names_arguments
class SpatioTemporalKernel(Kernel):
    """k((x, t), (x', t')) = k_space(x, x') k_time(t, t') for inputs whose LAST column is time.

    Args:
        space_kernel: any GPyTorch kernel over the first d columns.
        time_kernel: any GPyTorch kernel over the last column, for example ``ExponentialForgettingKernel``.
        kwargs: passed to ``gpytorch.kernels.Kernel``, such as ``active_dims``.

    Inputs are ``... x n x (d + 1)``; the batch shape is what those of the two kernels broadcast to. Cost:
    both kernels and one product, O(n m) beyond theirs.

    Raises:
        ValueError: if one of the two is not a kernel; for inputs of fewer than 2 columns.

    Source: Bogunovic et al. 2016, section 3, for exponential forgetting; a product of kernels is a kernel (Rasmussen
    & Williams 2006, section 4.2.4).
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
        """The dtype of its values: the wider of the two kernels' (a time kernel built from a number has float64).

        Raises RuntimeError, as GPyTorch's kernels do, if its own parameters have another dtype.
        """
        dtype = torch.promote_types(self.space_kernel.dtype, self.time_kernel.dtype)
        return dtype if all(p.dtype == dtype for p in self.parameters(recurse=False)) else super().dtype

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """The two kernels; their sub-kernels are not listed."""
        yield "space_kernel", self.space_kernel
        yield "time_kernel", self.time_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Covariance ``... x n x m`` (``... x n`` with ``diag``)."""
        validation.shape_is("x1", x1, x1.shape[-1] >= 2, "(..., n, d + 1) with d >= 1, the last column time")
        space = self.space_kernel(x1[..., :-1], x2[..., :-1], diag=diag, **params)
        time = self.time_kernel(*self._times(x1, x2), diag=diag, **params)
        return to_dense(space) * to_dense(time)

    def _times(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        """The last columns; of GPyTorch's stationary kernels from the latest time on, since some of them divide by a
        length-scale before they subtract, and at a clock of 1e9 seconds would lose what tells two times apart."""
        s, t = x1[..., -1:], x2[..., -1:]
        if not self.time_kernel.is_stationary or isinstance(self.time_kernel, TimeKernel) or not t.numel():
            return s, t
        latest = t.detach().amax()
        return s - latest, t - latest

    def __getitem__(self, index: Any) -> SpatioTemporalKernel:
        """The kernels at ``index`` of the batch."""
        if len(self.batch_shape) == 0:
            return self
        part = copy.deepcopy(self)
        for name, kernel in self.named_sub_kernels():
            # Both reach the full batch shape first: an index counts dimensions that one of them may lack.
            setattr(part, name, kernel.expand_batch(self.batch_shape)[index])
        part._batch_shape = part.space_kernel.batch_shape
        return part

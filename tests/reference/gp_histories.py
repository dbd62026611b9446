"""Members of a batch as plain lists of observations: the obvious twin of a batched online model."""

import itertools
from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from tests.reference.dense_gp import DensePosterior, dense_posterior


class Histories:
    """One list of (x, y) per member of a batch; learns and unlearns as an online model does."""

    def __init__(self, batch_shape: tuple[int, ...]) -> None:
        self.batch_shape = batch_shape
        self.members: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {
            index: [] for index in itertools.product(*map(range, batch_shape))
        }

    def observe(self, X: Tensor, Y: Tensor, where: Tensor | None = None) -> None:
        """X: batch x n x d, Y: batch x n x 1."""
        X = X.expand(*self.batch_shape, *X.shape[-2:])
        Y = Y.expand(*self.batch_shape, *Y.shape[-2:])
        for index in self._chosen(where):
            self.members[index] += list(zip(X[index], Y[index][:, 0], strict=True))

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        for index in self._chosen(where):
            del self.members[index][:count]

    def reset(self, where: Tensor | None = None) -> None:
        for index in self._chosen(where):
            self.members[index] = []

    def data(self, index: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Inputs (n, d) and targets (n,) of a member that holds any."""
        inputs, targets = zip(*self.members[index], strict=True)
        return torch.stack(inputs), torch.stack(targets)

    def posterior(
        self,
        index: tuple[int, ...],
        kernel: Kernel,
        noise: float,
        Xtest: Tensor,
        prior_mean: float | Callable[[Tensor], Tensor] = 0.0,
    ) -> DensePosterior:
        X, y = self.data(index) if self.members[index] else (Xtest[:0], Xtest[:0, 0])
        return dense_posterior(kernel, X, y, noise, Xtest, prior_mean)

    def _chosen(self, where: Tensor | None) -> list[tuple[int, ...]]:
        if where is None:
            return list(self.members)
        where = where.expand(self.batch_shape)
        return [index for index in self.members if bool(where[index])]

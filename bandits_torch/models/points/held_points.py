"""What an exact Gaussian process over points holds: its observations as rows of a growing Cholesky factor."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.conditioning import GaussianPrior
from bandits_torch.models.points.growing_cholesky import GrowingCholesky, Rows
from bandits_torch.models.points.inputs import mask


class HeldPoints(OnlineModel):
    """The observations of an ``OnlineGP``: what they say of the model, and how they go.

    Attributes:
        kernel, prior_mean: the GPyTorch modules.
        noise_variance: lambda.
        data: the rows of the factor.
    """

    kernel: Kernel
    prior_mean: Mean
    noise_variance: Tensor
    data: GrowingCholesky
    _pending = 0  # the last rows, of which no target is known

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of models."""
        return self.data.batch_shape

    @property
    def input_dtype(self) -> torch.dtype:
        """float64 with a kernel over time, or over periods; else the model's."""
        return self.data.inputs.dtype

    @property
    def num_observations(self) -> Tensor:
        """How many observations each member holds now, ``batch_shape``. O(t)."""
        return self._learned().held.sum(-1).expand(self.batch_shape)

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(I + K / lambda) = sum log L_ii - n/2 log lambda of the data held, ``batch_shape``."""
        rows = self._learned()
        log_diagonal = rows.corner.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (log_diagonal - 0.5 * rows.held.sum(-1).to(log_diagonal) * self.noise_variance.log()).expand(
            self.batch_shape
        )

    @property
    def log_likelihood(self) -> Tensor:
        """Log marginal likelihood of the data held, ``batch_shape``, from the predictive densities kept. O(t).

        The diagonal of L holds the predictive deviation of each target given those before it, and L^{-1}(y - m)
        its error in units of that; -1/2 |L^{-1}(y - m)|^2 - sum log L_ii - n/2 log 2 pi, nothing solved anew.
        """
        rows = self._learned()
        log_diagonal = rows.corner.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = 0.5 * math.log(2 * math.pi) * rows.held.sum(-1).to(log_diagonal)
        return -0.5 * rows.whitened.square().sum(-1) - log_diagonal - constant

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Inputs held, oldest first, ``(batch_shape x n x d,)``; ValueError if numbers held differ."""
        rows = self._rectangular()
        return (rows.inputs.expand(*self.batch_shape, *rows.inputs.shape[-2:]),)

    @property
    def train_targets(self) -> Tensor:
        """Targets held, oldest first, ``batch_shape x n``; ValueError if numbers held differ."""
        return self._rectangular().targets

    def _learned(self) -> Rows:
        """The rows of what has been observed."""
        return self.data.rows(self.data.size - self._pending)

    def _rectangular(self) -> Rows:
        if self.data.ragged:
            self.data.compact()
        counts = self.num_observations
        validation.require(
            not self.data.ragged, "num_observations", counts, "the same in every member to list data"
        )
        return self.data.rows()

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        """Remove the ``count`` oldest observations exactly and in place. O(t^2) each.

        Raises:
            ValueError: if ``count`` is no integer >= 1, or exceeds what a member (with ``where`` True) holds
                (on the CPU; elsewhere only if all members have always learned and unlearned together).
        """
        validation.positive_integer("count", count)
        where = self._mask(where)
        if where is None and not self.data.ragged:
            held = self.data.size
            validation.require(count <= held, "count", count, f"at most the {held} observations held")
        elif self.data.held.device.type == "cpu":
            short = self.num_observations < count
            ok = not bool((short if where is None else short & where).any())
            validation.require(
                ok, "count", count, f"at most the number held, {self.num_observations.tolist()}"
            )
        with torch.no_grad():
            for _ in range(count):
                self.data.drop_oldest(where)
            self._whiten_anew()

    def remove(self, row: Tensor, where: Tensor | None = None) -> None:
        """Unlearn one observation of each member exactly, in place: that of number ``row`` in ``data.rows()``. O(t^2).

        ``row``: integers, ``batch_shape``. Raises ValueError for a number that no row has, and another shape.
        """
        fits = validation.tensor("row", row).shape == self.batch_shape and row.dtype == torch.long
        validation.shape_is("row", row, fits, f"{tuple(self.batch_shape)} and dtype int64")
        among = not row.is_cpu or bool(((row >= 0) & (row < self.data.size)).all())
        validation.require(among, "row", row, f"from 0 to {self.data.size - 1}")
        where = self._mask(where)
        with torch.no_grad():
            self.data.drop_row(row, where)
            self._whiten_anew()

    def _whiten_anew(self) -> None:
        """L^{-1} (y - m) from the targets held: what went may have been a million times what stays, and its rounding
        errors with it, of which the factor knows nothing. O(t^2)."""
        rows = self.data.rows()
        residual = torch.where(rows.held, rows.targets - self._prior.mean(rows.inputs), 0.0)
        rows.whitened.copy_(self.data.solve(residual.unsqueeze(-1)).squeeze(-1))

    def reset(self, where: Tensor | None = None) -> None:
        """Unlearn everything: back to the prior. O(1), or O(t^2) with ``where``."""
        where = self._mask(where)
        with torch.no_grad():
            self.data.clear(where)

    @property
    def _prior(self) -> GaussianPrior:
        return GaussianPrior(self.kernel, self.prior_mean, self.noise_variance)

    def _mask(self, where: Tensor | None) -> Tensor | None:
        return mask(where, self.batch_shape, self.data.inputs.device)

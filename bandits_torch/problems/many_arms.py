"""Problems with many arms: grids of a drifting Gaussian process, regression tables, and where variances starve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.problem import Knowledge, named
from bandits_torch.problems.simulated import (
    SimulatedProblem,
    covariance,
    covariance_root,
    make_kernel,
    problem_streams,
)
from bandits_torch.problems.stationary import GPDraws, StationaryProblem
from bandits_torch.problems.table_files import read_arrays


@named("grid", random=True)
class GridDraws(SimulatedProblem):
    """Draws of a Gaussian process on a large grid of [0, 1]^dim, static or drifting, without an N x N matrix.

    The squared exponential kernel is a product over the axes, so a draw is (A x ... x A) z with A the root of the
    kernel on one axis (side x r, r small) and z r^dim normal numbers: N = side^dim may be in the millions. With a
    ``forgetting_rate`` eps the function drifts, z_{t+1} = sqrt(1 - eps) z_t + sqrt(eps) g: TV-GP-UCB's model.

    ``expected_rewards`` takes any step and keeps the z of each, r^dim numbers. Cost of a step: O(side^dim r). Known
    beforehand: kernel, R^2, eps.

    Args:
        side: points per axis. dim: axes.
        lengthscale: in units of the axes.
        forgetting_rate: eps in [0, 1); 0: a static function.
        noise_scale: R.
        replicates, seed, first_replicate: replicate ``first_replicate + k`` of a seed is always the same function.

    Raises ValueError unless ``side`` and ``dim`` >= 1, ``noise_scale`` >= 0 and 0 <= ``forgetting_rate`` < 1.
    """

    def __init__(
        self,
        *,
        side: int = 100,
        dim: int = 2,
        lengthscale: float = 0.2,
        forgetting_rate: float = 0.0,
        noise_scale: float = 0.1,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.positive_integer("side", side)
        validation.positive_integer("dim", dim)
        validation.non_negative("noise_scale", noise_scale)
        validation.below_one("forgetting_rate", forgetting_rate)
        axis = torch.linspace(0, 1, side, dtype=torch.float64)
        arms = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
        super().__init__(arms, replicates, noise_scale)
        kernel = make_kernel("se", lengthscale)
        self._root = covariance_root(covariance(kernel, axis.unsqueeze(-1)))
        self._dim, self._rate = dim, forgetting_rate
        self._streams = problem_streams(seed, replicates, first_replicate)
        self._weights = [self._normal()]
        self._place, self._latest = -1, self.arms[:0]  # of the f drawn last
        self.knowledge = Knowledge(
            kernel=kernel, noise_variance=float(noise_scale) ** 2, forgetting_rate=forgetting_rate
        )

    def expected_rewards(self, step: int) -> Tensor:
        """f_step, (replicates, N): the same tensor as long as f stays."""
        self.check_step(step)
        place = 0 if self._rate == 0 else step - 1
        if self._place != place:
            while len(self._weights) <= place:
                kept, gained = (1 - self._rate) ** 0.5, self._rate**0.5
                self._weights.append(kept * self._weights[-1] + gained * self._normal())
            self._place, self._latest = place, self._draw(self._weights[place]).to(self.arms)
        return self._latest

    def root(self) -> Tensor:
        """A x ... x A, (N, r^dim): a root of the covariance of all arms, for exact Thompson sampling."""
        root = self._root
        for _ in range(self._dim - 1):
            root = torch.kron(root, self._root)
        return root

    def _normal(self) -> Tensor:
        return self._streams.normal(*[self._root.shape[1]] * self._dim)

    def _draw(self, weights: Tensor) -> Tensor:
        """(A x ... x A) z for z (replicates, r, ..., r): one axis after the other, on a separate copy for each
        replicate.

        Without the copy, the last bits of a draw would depend on the number of replicates and the alignment in memory.
        """
        root, draws = self._root.to(weights), []
        for z in weights:
            f = z.clone()
            for axis in range(self._dim):
                f = torch.tensordot(f, root, dims=([axis], [1])).movedim(-1, axis)
            draws.append(f.reshape(-1))
        return torch.stack(draws)


@named("regression-table")
class RegressionTable(StationaryProblem):
    """Regression data as a bandit: each row is an arm, and its target is the expected reward.

    Features and target are standardised; rows with a missing value are dropped. Known beforehand: a squared
    exponential kernel whose lengthscale is the median distance between rows (of at most 1 000) and R^2.

    Args:
        data: path of a CSV or Parquet file with a header, or of an NPZ file with arrays ``X`` (N, d) and ``y`` (N,).
        target: the column to maximise; None: the last. Not used for NPZ.
        noise_scale: R, of the noise added to the standardised target.
        lengthscale: in standard deviations; None: the median distance.
        replicates: runs on the same table.

    Raises ValueError for a table with fewer than two complete rows, ``replicates`` below 1 and a negative
    ``noise_scale``.
    """

    def __init__(
        self,
        *,
        data: str | Path,
        target: str | None = None,
        noise_scale: float = 0.1,
        lengthscale: float | None = None,
        replicates: int = 1,
    ) -> None:
        validation.positive_integer("replicates", replicates)
        validation.instance("data", data, (str, Path), "the path of a file")
        features, values = _read(Path(data), target)
        whole = np.isfinite(features).all(1) & np.isfinite(values)
        validation.require(int(whole.sum()) >= 2, "data", str(data), "a table with two complete rows or more")
        arms, rewards = (_standardised(torch.from_numpy(part[whole])) for part in (features, values))
        if lengthscale is None:
            order = torch.randperm(len(arms), generator=torch.Generator().manual_seed(0))[:1000]
            lengthscale = float(torch.pdist(arms[order]).median().clamp_min(1e-6))
        validation.non_negative("noise_scale", noise_scale)
        super().__init__(arms, rewards.expand(replicates, -1), noise_scale)
        self.knowledge = Knowledge(
            kernel=make_kernel("se", lengthscale),
            noise_variance=max(float(noise_scale) ** 2, 1e-6),
            forgetting_rate=0.0,
            variation_budget=0.0,
            rkhs_variation_budget=0.0,
        )


@named("variance-starvation", stationary=True, random=True)
class VarianceStarvation(GPDraws):
    """A test of variance starvation: a draw on [0, 1] of which only [0, 0.5] can be pulled.

    The setting of Figure 2 in Calandriello et al. (2019), after Wang et al. (2018): squared exponential kernel
    of inverse squared lengthscale 100. Beyond 0.5 an accurate variance stays at the prior's.

    Args:
        num_arms: N, an even grid.
        noise_scale: R.
        replicates, seed, first_replicate: as for ``GPDraws``.
    """

    def __init__(
        self,
        *,
        num_arms: int = 1000,
        noise_scale: float = 0.1,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        super().__init__(
            lengthscale=0.1,
            num_arms=num_arms,
            layout="grid",
            noise_scale=noise_scale,
            replicates=replicates,
            seed=seed,
            first_replicate=first_replicate,
        )

    def available(self, step: int) -> Tensor:
        """The arms in [0, 0.5]."""
        return self.arms[:, 0] <= 0.5


def _read(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, d) and target (N,) in float64."""
    kinds = (".csv", ".parquet", ".npz")
    validation.require(path.suffix in kinds, "data", str(path), f"a file ending in {', '.join(kinds)}")
    if path.suffix == ".npz":
        arrays = read_arrays("data", path, {"X", "y"})
        validation.require({"X", "y"} <= set(arrays), "data", str(path), "an NPZ with arrays 'X' and 'y'")
        numeric = all(arrays[name].dtype.kind in "fiub" for name in "Xy")
        validation.require(numeric, "data", str(path), "an NPZ whose arrays 'X' and 'y' hold numbers")
        features, values = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
        fits = features.ndim == 2 and values.shape == features.shape[:1]
        validation.require(fits, "data", (features.shape, values.shape), "arrays X (N, d) and y (N,)")
        return features, values
    try:
        frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"data must be a readable {path.suffix} file, got {str(path)!r}: {error}") from error
    names = list(frame.columns)
    target = names[-1] if target is None else target
    validation.require(target in names, "target", target, f"one of the columns {', '.join(map(str, names))}")
    numbers = frame.select_dtypes("number")
    validation.require(target in numbers.columns, "target", target, "a column of numbers")
    others = numbers.drop(columns=[target])
    validation.require(others.shape[1] >= 1, "data", names, "a table with a feature beside the target")
    return others.to_numpy(np.float64), numbers[target].to_numpy(np.float64)


def _standardised(values: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 in every column; constant columns are 0."""
    values = values.double()
    deviation = values.std(0)
    return (values - values.mean(0)) / torch.where(deviation > 0, deviation, 1.0)

"""Common parts of simulated problems: arms, kernels, draws from a Gaussian process, noise."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.problem import Problem, gaussian_noise
from bandits_torch.streams import ReplicateStreams

_RELATIVE_RANK_TOLERANCE = 1e-12  # eigenvalues below this share of the largest are rounding noise
_LAYOUTS = ("uniform", "grid", "sphere")
SMALLEST_RIDGE = 1e-6  # of regularised_norm, where the noise is smaller


class SimulatedProblem(Problem):
    """A problem with one reward function per replicate and normal noise.

    Args:
        arms: (N, d) features, shared by all replicates.
        replicates: number of reward functions.
        noise_scale: R, standard deviation of the noise, a number or (replicates,).
        horizon: the last step, None if there is no end.

    Raises ValueError for arms of another shape or that are not finite, and a ``noise_scale`` below 0.
    """

    noise_is_added = True

    def __init__(
        self, arms: Tensor, replicates: int, noise_scale: float | Tensor, horizon: int | None = None
    ) -> None:
        validation.finite_tensor("arms", arms)
        validation.shape_is("arms", arms, arms.dim() == 2 and len(arms) > 0, "(N, d) with N >= 1")
        self.arms = arms
        self.replicates = validation.positive_integer("replicates", replicates)
        self.horizon = horizon
        scale = validation.finite_tensor("noise_scale", validation.numbers("noise_scale", noise_scale, arms))
        validation.require(bool((scale >= 0).all()), "noise_scale", noise_scale, "finite and >= 0")
        self.noise_scale = scale.expand(replicates).clone()

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """Normal noise (S,) of the problem's ``noise_scale``, the same at every step and arm."""
        return gaussian_noise(self.noise_scale, streams)


def place_arms(layout: str, num_arms: int, dim: int, seed: int) -> Tensor:
    """Arms (num_arms, dim), the same for every replicate.

    Args:
        layout: ``"uniform"``: uniform on [0, 1]^dim; ``"grid"``: an even grid of [0, 1]^dim, which needs
            ``num_arms`` to be a whole number to the power ``dim``; ``"sphere"``: uniform on the unit sphere.
        seed: of the random layouts; independent of the draws of the reward functions.
    """
    validation.one_of("layout", layout, *_LAYOUTS)
    validation.positive_integer("num_arms", num_arms)
    validation.positive_integer("dim", dim)
    if layout == "grid":
        side = round(num_arms ** (1 / dim))
        validation.require(side**dim == num_arms, "num_arms", num_arms, f"a whole number to the power {dim}")
        axis = torch.linspace(0, 1, side, dtype=torch.float64)
        return torch.cartesian_prod(*[axis] * dim).reshape(num_arms, dim)
    streams = ReplicateStreams(seed, purpose="arms")
    if layout == "uniform":
        return streams.uniform(num_arms, dim).squeeze(0)
    return torch.nn.functional.normalize(streams.normal(num_arms, dim).squeeze(0), dim=-1)


def make_kernel(kernel: str, lengthscale: float, nu: float = 2.5) -> Kernel:
    """Squared exponential (``"se"``) or Matern (``"matern"``, smoothness nu) kernel, k(x, x) = 1, float64."""
    validation.one_of("kernel", kernel, "se", "matern")
    validation.positive("lengthscale", lengthscale)
    validation.require(validation.is_number(nu) and nu in (0.5, 1.5, 2.5), "nu", nu, "0.5, 1.5 or 2.5")
    made = (RBFKernel() if kernel == "se" else MaternKernel(nu=nu)).double()
    made.lengthscale = lengthscale
    return made.requires_grad_(False)


def covariance(kernel: Kernel, arms: Tensor) -> Tensor:
    """K = k(arms, arms), (N, N), dense."""
    with torch.no_grad():
        return kernel(arms).to_dense()


def covariance_root(K: Tensor) -> Tensor:
    """A root A (N, r) with A A^T = K, from the eigenvectors of K, largest eigenvalue first.

    Eigenvalues below 1e-12 of the largest are dropped, so it works on the nearly singular matrices of smooth kernels,
    where a Cholesky decomposition needs jitter. A draw f = A z has RKHS norm |z| on these points. Cost: O(N^3).
    """
    values, vectors = torch.linalg.eigh(K)
    values, vectors = values.flip(-1), vectors.flip(-1)
    kept = values > _RELATIVE_RANK_TOLERANCE * values[0]
    return vectors[:, kept] * values[kept].sqrt()


def gp_draws(root: Tensor, weights: Tensor) -> Tensor:
    """Draws f = A z, (..., N), of the root A (N, r) and the first r standard normal ``weights`` (..., N).

    One product per draw, on a copy: otherwise its last bits would depend on the number of draws and on the alignment.
    """
    rank = root.shape[1]
    flat = weights.reshape(-1, weights.shape[-1])
    return torch.stack([root @ w[:rank].clone() for w in flat]).reshape(*weights.shape[:-1], -1)


def norm_on_arms(root: Tensor, f: Tensor) -> Tensor:
    """sqrt(f^T K^+ f), (...), for f (..., N): the least RKHS norm of a function with these values at the arms.

    ``root``: from ``covariance_root``. The part of f outside the span of its columns (rounding errors, for a draw) is
    ignored. Cost: O(N r) each.
    """
    return (f @ root / root.square().sum(0)).norm(dim=-1)


def regularised_norm(K: Tensor, f: Tensor, ridge: float) -> Tensor:
    """RKHS norm (...) of the function sum_i alpha_i k(x_i, .), alpha = (K + ridge I)^{-1} f, for f (..., N).

    An estimate for functions of unknown norm: the norm of a fit within sqrt(ridge) |f|_K / 2 of f, at most the norm of
    f. On nearly singular K, the norm sqrt(f^T K^{-1} f) of the exact interpolant depends on rounding, and it is huge
    where f is rougher than k.
    """
    factor = torch.linalg.cholesky(K + ridge * torch.eye(len(K), dtype=K.dtype))
    alpha = torch.cholesky_solve(f.reshape(-1, len(K)).T, factor).T.reshape(f.shape)
    return ((alpha @ K) * alpha).sum(-1).clamp_min(0).sqrt()


def range_noise_scale(functions: Tensor, noise_scale: float | None) -> Tensor:
    """R of each function (S, N): ``noise_scale`` if given, else R^2 = 1 % of the function's range max - min.

    As in Chowdhury & Gopalan (2017), section 6; as there, the variance R^2 is a share of the range itself.
    """
    if noise_scale is not None:
        return torch.full(functions.shape[:1], validation.non_negative("noise_scale", noise_scale)).double()
    return (0.01 * (functions.amax(-1) - functions.amin(-1))).sqrt()


def problem_streams(seed: int, replicates: int, first_replicate: int) -> ReplicateStreams:
    """The streams that replicates ``first_replicate``, ... of a problem are drawn from."""
    return ReplicateStreams(seed, replicates, purpose="problem", first=first_replicate)

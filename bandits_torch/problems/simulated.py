"""Simulated problems: their common parts (arms, kernels, Gaussian-process draws, noise), and static functions: draws of
a Gaussian process, members of its RKHS, standard test functions, hills."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from botorch.test_functions import Hartmann
from botorch.test_functions import Rosenbrock as BoTorchRosenbrock
from botorch.test_functions.synthetic import SyntheticTestFunction
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.candidate_priors import CandidatePrior
from bandits_torch.problems.problem import Knowledge, Problem, named, per_replicate
from bandits_torch.streams import ReplicateStreams

_RELATIVE_RANK_TOLERANCE = 1e-12  # eigenvalues below this share of the largest are rounding noise
_LAYOUTS = ("uniform", "grid", "sphere")
SMALLEST_RIDGE = 1e-6  # of ``regularised_norm``, if the noise variance is smaller


class SimulatedProblem(Problem):
    """A problem with one reward function per replicate and normal noise.

    Args:
        arms: (N, d) features, shared by all replicates; integers become float64.
        replicates: number of reward functions.
        noise_scale: R, standard deviation of the noise, a number or (replicates,).
        horizon: the last step, None without an end.

    Raises ValueError for arms of the wrong shape or that are not finite real numbers, ``replicates`` or a ``horizon``
    below 1, and a ``noise_scale`` below 0 or of another shape.
    """

    noise_is_added = True

    def __init__(
        self, arms: Tensor, replicates: int, noise_scale: float | Tensor, horizon: int | None = None
    ) -> None:
        validation.finite_tensor("arms", arms)
        validation.shape_is("arms", arms, arms.dim() == 2 and len(arms) > 0, "(N, d) with N >= 1")
        validation.require(not arms.is_complex(), "arms", arms, "real numbers")
        self.arms = arms if arms.is_floating_point() else arms.double()
        self.replicates = validation.positive_integer("replicates", replicates)
        self.horizon = None if horizon is None else validation.positive_integer("horizon", horizon)
        scale = validation.numbers("noise_scale", noise_scale, self.arms)
        validation.of_shape(
            "noise_scale", validation.finite_tensor("noise_scale", scale), (), (1,), (replicates,)
        )
        validation.require(bool((scale >= 0).all()), "noise_scale", noise_scale, "finite and >= 0")
        self.noise_scale = scale.expand(replicates).clone()


def place_arms(layout: str, num_arms: int, dim: int, seed: int) -> Tensor:
    """Arms (num_arms, dim), the same for every replicate.

    Args:
        layout: ``"uniform"``: random on [0, 1]^dim; ``"grid"``: an even grid of [0, 1]^dim, for which
            ``num_arms`` must be a whole number to the power ``dim``; ``"sphere"``: random on the unit sphere.
        seed: seed of random layouts; reward functions are drawn independently of them.
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

    Eigenvalues below 1e-12 of the largest are dropped. So it works on the nearly singular matrices of smooth kernels,
    where a Cholesky decomposition needs jitter. A draw f = A z has RKHS norm |z| on these points. Cost: O(N^3).
    """
    values, vectors = torch.linalg.eigh(K)
    values, vectors = values.flip(-1), vectors.flip(-1)
    kept = values > _RELATIVE_RANK_TOLERANCE * values[0]
    return vectors[:, kept] * values[kept].sqrt()


def gp_draws(root: Tensor, weights: Tensor) -> Tensor:
    """Draws f = A z, (..., N), from a root A (N, r) and the first r of the standard normal ``weights`` (..., N).

    One product per draw, on a copy: otherwise its last bits would depend on the number of draws and their alignment.
    """
    rank = root.shape[1]
    flat = weights.reshape(-1, weights.shape[-1])
    return torch.stack([root @ w[:rank].clone() for w in flat]).reshape(*weights.shape[:-1], -1)


def norm_on_arms(root: Tensor, f: Tensor) -> Tensor:
    """sqrt(f^T K^+ f), (...), for f (..., N): the least RKHS norm of a function with these values at the arms.

    ``root``: from ``covariance_root``. The part of f outside its column space (for a draw, rounding errors) is ignored.
    Cost: O(N r) each.
    """
    return (f @ root / root.square().sum(0)).norm(dim=-1)


def regularised_norm(K: Tensor, f: Tensor, ridge: float) -> Tensor:
    """RKHS norm (...) of the function sum_i alpha_i k(x_i, .), alpha = (K + ridge I)^{-1} f, for f (..., N).

    An estimate if the norm of f is unknown: the norm of a fit that is within sqrt(ridge) |f|_K / 2 of f, and at most
    |f|_K. The norm sqrt(f^T K^{-1} f) of the exact interpolant depends on rounding if K is nearly singular, and is huge
    if f is rougher than k.
    """
    factor = torch.linalg.cholesky(K + ridge * torch.eye(len(K), dtype=K.dtype))
    alpha = torch.cholesky_solve(f.reshape(-1, len(K)).T, factor).T.reshape(f.shape)
    return ((alpha @ K) * alpha).sum(-1).clamp_min(0).sqrt()


def range_noise_scale(functions: Tensor, noise_scale: float | None) -> Tensor:
    """R of each function (S, N): ``noise_scale`` if given, else R^2 = 1 % of the range max - min.

    Chowdhury & Gopalan (2017), section 6, also take the variance R^2 as a share of the range itself.
    """
    if noise_scale is not None:
        return torch.full(functions.shape[:1], validation.non_negative("noise_scale", noise_scale)).double()
    return (0.01 * (functions.amax(-1) - functions.amin(-1))).sqrt()


def problem_streams(seed: int, replicates: int, first_replicate: int) -> ReplicateStreams:
    """The random streams of a problem's replicates ``first_replicate``, ``first_replicate + 1``, ..."""
    return ReplicateStreams(seed, replicates, purpose="problem", first=first_replicate)


# --- functions that do not change ---


class StationaryProblem(SimulatedProblem):
    """Reward functions that never change.

    Args:
        arms: (N, d).
        functions: (replicates, N), the expected rewards.
        noise_scale: R, a number or (replicates,).

    Raises ValueError for arms or functions that have another shape or are not finite.
    """

    def __init__(self, arms: Tensor, functions: Tensor, noise_scale: float | Tensor) -> None:
        validation.rewards("functions", functions)
        N = len(validation.of_shape("arms", arms, ("N", "d")))
        validation.of_shape("functions", functions, ("replicates", N), note=", a number for each of the arms")
        super().__init__(arms, len(functions), noise_scale)
        self.functions = functions.detach().clone()

    def expected_rewards(self, step: int) -> Tensor:
        """The functions (replicates, N): the same tensor at every step."""
        self.check_step(step)
        return self.functions


@named("gp", stationary=True, random=True)
class GPDraws(StationaryProblem):
    """Draws of a Gaussian process, f ~ GP(0, k), on a finite set of arms.

    The second experiment of Chowdhury & Gopalan (2017), section 6: 100 points uniform in [0, 1], squared
    exponential or Matern 5/2 kernel of lengthscale 0.2, R^2 = 1 % of each function's range.

    Known in advance: the kernel, noise variance R^2, B = the RKHS norm of the draw on the arms.

    Args:
        kernel: ``"se"`` or ``"matern"``, with smoothness ``nu``.
        lengthscale: length-scale of the kernel, in units of the arms' features.
        num_arms, dim, layout: N, d and the placement of the arms (see ``place_arms``).
        noise_scale: R; None: R^2 = 1 % of each function's range (max - min).
        replicates, seed, first_replicate: a seed gives replicate ``first_replicate + k`` always the same
            function; all replicates have the same arms.
    """

    def __init__(
        self,
        *,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        num_arms: int = 100,
        dim: int = 1,
        layout: str = "uniform",
        noise_scale: float | None = None,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        arms, k = place_arms(layout, num_arms, dim, seed), make_kernel(kernel, lengthscale, nu)
        functions, norms = self._draw(covariance(k, arms), problem_streams(seed, replicates, first_replicate))
        super().__init__(arms, functions, range_noise_scale(functions, noise_scale))
        self.knowledge = stationary_knowledge(self, k, norms)

    def _draw(self, K: Tensor, streams: ReplicateStreams) -> tuple[Tensor, Tensor]:
        """The functions (replicates, N) and their RKHS norms (replicates,), from K = k(arms, arms)."""
        root, weights = covariance_root(K), streams.normal(len(K))
        return gp_draws(root, weights), weights[:, : root.shape[1]].norm(dim=-1)


@named("rkhs", random=True, stationary=True)
class RKHSFunctions(GPDraws):
    """Functions of known RKHS norm: posterior means of a Gaussian process given a noisy sample of a draw.

    The first experiment of Chowdhury & Gopalan (2017), section 6: draw y on the arms, then take the posterior
    mean f = K alpha, alpha = (K + s I)^{-1} y. The paper draws y ~ N(0, K) and does not give the posterior's noise
    variance s; here y is such a draw plus noise of variance s = ``sample_noise``. The RKHS norm of f is
    B = sqrt(alpha^T K alpha) (the paper prints B^2 = f^T K f; f^T K^{-1} f is meant, and equals this).

    Known in advance: the kernel, noise variance R^2, B exactly.

    Args:
        sample_noise: s, in squared units of reward.
        options: as for ``GPDraws``.

    Raises ValueError unless ``sample_noise`` > 0.
    """

    def __init__(self, *, sample_noise: float = 0.01, **options: Any) -> None:
        self._sample_noise = validation.positive("sample_noise", sample_noise)
        super().__init__(**options)

    def _draw(self, K: Tensor, streams: ReplicateStreams) -> tuple[Tensor, Tensor]:
        draws = gp_draws(covariance_root(K), streams.normal(len(K)))
        samples = draws + self._sample_noise**0.5 * streams.normal(len(K))
        factor = torch.linalg.cholesky(K + self._sample_noise * torch.eye(len(K), dtype=K.dtype))
        alpha = torch.stack([torch.cholesky_solve(y.unsqueeze(-1), factor).squeeze(-1) for y in samples])
        functions = torch.stack([K @ a for a in alpha])
        self.representer_weights = alpha
        return functions, (alpha * functions).sum(-1).sqrt()


@named("variance-starvation", stationary=True, random=True)
class VarianceStarvation(GPDraws):
    """A test for variance starvation: a draw on [0, 1], where only arms in [0, 0.5] can be pulled.

    The setting of Figure 2 in Calandriello et al. (2019), after Wang et al. (2018): squared exponential kernel of
    lengthscale 0.1 (they print sigma^2 = 100, read as the inverse squared lengthscale). Well beyond 0.5, an accurate
    variance stays at the prior's.

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


def stationary_knowledge(problem: SimulatedProblem, kernel: torch.nn.Module, norms: Tensor) -> Knowledge:
    """Knowledge of functions that never change: no forgetting, no variation, B = ``norms`` (replicates,)."""
    return Knowledge(
        kernel=kernel,
        noise_variance=per_replicate(problem.noise_scale**2),
        rkhs_bound=per_replicate(norms),
        forgetting_rate=0.0,
        variation_budget=0.0,
        rkhs_variation_budget=0.0,
    )


# --- standard test functions of global optimisation on a finite set of points ---


class StandardFunction(StationaryProblem):
    """A BoTorch test function, negated so that its minimum is the best arm, on random points of its domain.

    Chowdhury & Gopalan (2017), section 6: 100 d points uniform in the domain, squared exponential kernel of
    lengthscale 0.2, R^2 = 1 % of the range. The paper does not give its scaling; here the domain is scaled to
    [0, 1]^d, and rewards are scaled.

    Known in advance: the kernel (a guess: the function is not a draw from it), noise variance R^2,
    B = the norm of the function fitted on the arms to within the noise (``regularised_norm``).

    Args:
        function: a BoTorch test function, to be minimised.
        num_arms: N; None: 100 d.
        scale: ``"standardise"``: mean 0 and standard deviation 1 over the arms; ``"range"``: from 0 to 1.
        noise_scale: R; None: R^2 = 1 % of the range (of the scaled rewards).
        kernel, lengthscale, nu: the known kernel, as for ``GPDraws``.
        replicates: all have the same function and arms, and independent noise.
        seed: seed of the points.

    Raises ValueError for any other ``function`` or ``scale``, fewer than 2 arms, and ``replicates`` below 1.
    """

    def __init__(
        self,
        function: SyntheticTestFunction,
        *,
        num_arms: int | None = None,
        scale: str = "standardise",
        noise_scale: float | None = None,
        kernel: str = "se",
        lengthscale: float = 0.2,
        nu: float = 2.5,
        replicates: int = 1,
        seed: int = 0,
    ) -> None:
        validation.instance("function", function, SyntheticTestFunction, "a BoTorch test function")
        validation.one_of("scale", scale, "standardise", "range")
        validation.positive_integer("replicates", replicates)
        num_arms = 100 * function.dim if num_arms is None else num_arms
        several = isinstance(num_arms, int) and num_arms >= 2
        validation.require(several, "num_arms", num_arms, "an integer >= 2")
        arms = place_arms("uniform", num_arms, function.dim, seed)
        low, high = torch.as_tensor(function.bounds, dtype=arms.dtype)
        rewards = -function.evaluate_true(low + (high - low) * arms)
        if scale == "standardise":
            rewards = (rewards - rewards.mean()) / rewards.std()
        else:
            rewards = (rewards - rewards.min()) / (rewards.max() - rewards.min())
        functions = rewards.expand(replicates, -1)
        super().__init__(arms, functions, range_noise_scale(functions, noise_scale))
        k = make_kernel(kernel, lengthscale, nu)
        ridge = max(float(self.noise_scale[0]) ** 2, SMALLEST_RIDGE)
        norm = regularised_norm(covariance(k, arms), rewards, ridge)
        self.knowledge = stationary_knowledge(self, k, norm.expand(replicates))


@named("rosenbrock", stationary=True)
class Rosenbrock(StandardFunction):
    """Rosenbrock's valley, negated, on 100 d random points of its domain.

    Args:
        dim: d.
        options: as for ``StandardFunction``.

    Raises ValueError unless ``dim`` is an integer >= 2.
    """

    def __init__(self, *, dim: int = 2, **options: Any) -> None:
        validation.require(validation.positive_integer("dim", dim) >= 2, "dim", dim, "an integer >= 2")
        super().__init__(BoTorchRosenbrock(dim=dim), **options)


@named("hartmann3", stationary=True)
class Hartmann3(StandardFunction):
    """Hartmann's function in three dimensions, negated, on 300 random points of its domain.

    Args:
        options: as for ``StandardFunction``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(Hartmann(dim=3), **options)


# --- one tall hill among short ones ---

_ROUNDING = 1e-9  # tolerance of distances, so that both ends of the excluded region belong to it


@named("hills", stationary=True, random=True)
class Hills(StationaryProblem):
    """Find the tall hill: a draw from one of eleven Gaussian-process priors whose means differ in one hill.

    The toy problem of Ziomek et al. (2024), section 7. Hill h of ten is at (h - 1)/10 on [0, 1]. All hills of prior 0
    are short; hill n of prior n is tall. All priors have the kernel amplitude exp(-|x - x'|^2 / (2 l)), with l in
    place of the usual l^2. The truth is a draw from prior 2. All arms are available at odd steps; at even steps those
    farther than ``excluded`` from the top of the true tall hill.

    The paper does not give the heights, the hills' shape and width, l, the noise, the arms and the excluded region.
    With the defaults, a hill's height shows only on the hill itself, as the paper's results require. Hills of width
    0.015 or 0.02 reach the neighbouring tops, where even 1e-10 of their height identifies the prior without a visit
    (benchmarks/papers: sensitivity table).

    Known in advance: the eleven priors and the noise variance R^2, but not which prior is true; the prior mean,
    averaged over the priors; and B = the norm of the draw's fit about that mean (``regularised_norm``).

    Args:
        short, tall: heights of the hills, in units of reward.
        hill_width: standard deviation w of a hill exp(-(x - c)^2 / (2 w^2)).
        amplitude: prior variance of the function about its mean.
        squared_lengthscale: l.
        excluded: half-width of the region that is unavailable at even steps.
        true_prior: number, 1 to 10, of the prior from which functions are drawn.
        noise_scale: R.
        num_arms: N, an even grid of [0, 1]; 101 puts an arm on every top.
        replicates, seed, first_replicate: as for ``GPDraws``.

    Raises ValueError unless ``true_prior`` is in 1, ..., 10, ``noise_scale`` and ``hill_width`` > 0, and ``excluded``
    >= 0 leaves an arm.
    """

    def __init__(
        self,
        *,
        short: float = 1.0,
        tall: float = 3.0,
        hill_width: float = 0.01,
        amplitude: float = 1.0,
        squared_lengthscale: float = 0.5,
        excluded: float = 0.05,
        true_prior: int = 2,
        noise_scale: float = 0.01,
        num_arms: int = 101,
        replicates: int = 1,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        inside = 1 <= validation.positive_integer("true_prior", true_prior) <= 10
        validation.require(inside, "true_prior", true_prior, "an integer in 1, ..., 10")
        validation.positive("noise_scale", noise_scale)
        validation.non_negative("excluded", excluded)
        validation.positive("hill_width", hill_width)
        validation.finite_number("short", short)
        validation.finite_number("tall", tall)
        squared = validation.positive("squared_lengthscale", squared_lengthscale)
        arms, kernel = place_arms("grid", num_arms, 1, seed), ScaleKernel(RBFKernel()).double()
        kernel.outputscale = validation.positive("amplitude", amplitude)
        kernel.base_kernel.lengthscale = squared**0.5
        kernel.requires_grad_(False)
        tops = torch.arange(10, dtype=torch.float64) / 10
        bumps = torch.exp(-((arms - tops) ** 2) / (2 * hill_width**2))  # N x hills
        heights = torch.full((11, 10), float(short), dtype=arms.dtype)  # of hill h in prior n
        heights[1:].fill_diagonal_(float(tall))
        means = heights @ bumps.mT
        priors = [
            CandidatePrior(kernel, mean, name=f"hill {n} tall" if n else "no hill tall")
            for n, mean in enumerate(means)
        ]
        K, streams = covariance(kernel, arms), problem_streams(seed, replicates, first_replicate)
        draws = gp_draws(covariance_root(K), streams.normal(num_arms))
        self.true_prior = priors[true_prior]
        super().__init__(arms, draws + self.true_prior.mean, noise_scale)
        self._outside = (arms.squeeze(-1) - tops[true_prior - 1]).abs() > excluded + _ROUNDING
        validation.require(bool(self._outside.any()), "excluded", excluded, "small enough to leave an arm")
        average = means.mean(0)
        ridge = max(noise_scale**2, SMALLEST_RIDGE)
        # One replicate at a time: with so small a ridge, a batch gives visibly other norms by rounding.
        norm = torch.cat([regularised_norm(K, one, ridge) for one in (self.functions - average).split(1)])
        self.knowledge = replace(stationary_knowledge(self, kernel, norm), prior_mean=average, priors=priors)

    def available(self, step: int) -> Tensor | None:
        """None (all arms) at odd steps, a mask (N,) without the true tall hill at even ones."""
        self.check_step(step)
        return None if step % 2 else self._outside

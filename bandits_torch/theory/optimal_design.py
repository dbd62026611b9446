"""The optimisation problems of Hong, Li & Tewari (2023): optimal designs, the problem OP and gamma_{phi,T}.

All minimise over probability distributions P on the arms, or on a subset A of them,

    F(P) = sum_x P(x) g(x) - w log det S(P, r),      S(P, r) = sum_x P(x) phi(x) phi(x)^T + r I.

| symbol | argument | meaning |
|---|---|---|
| phi, N, p | ``features``, (..., N, p) | one row per arm; any two with the same Gram matrix give the same P |
| r | ``ridge`` | sigma/T of the paper, > 0 |
| g | ``gaps``, (..., N) | linear term; none for a design |
| w | ``weight`` | 2/beta in OP, 1 for a design |
| A | ``among``, (..., N) booleans | support of P |

grad F = g - w h with the leverages h(x) = phi(x)^T S^{-1} phi(x), and the Hessian is w M * M (elementwise) with
M = phi S^{-1} phi^T. The certificate is the Frank-Wolfe gap sum_x P(x) grad_x - min_{x in A} grad_x, which
bounds F(P) - min F. Leading dimensions are solved together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.theory.design_solvers import active_set, interior_point, leverages, pairwise_frank_wolfe
from bandits_torch.theory.parameters import checked

_SOLVERS = {"interior_point": interior_point, "active_set": active_set, "frank_wolfe": pairwise_frank_wolfe}
# Above this many arms, Newton steps of O(N^3) are kept to a working set.
_INTERIOR_POINT_UP_TO = 1000


@dataclass(frozen=True)
class Design:
    """A distribution over arms, with a certificate of its optimality.

    Attributes:
        probabilities: P, (..., N), summing to 1.
        duality_gap: (...), an upper bound on F(P) - min F, up to rounding (about 1e-12 of the leverages).
        leverages: h(x) = phi(x)^T S(P, r)^{-1} phi(x) of every arm, (..., N), those outside A too.
        log_det: log det(S(P, r) / r), (...); the paper's log det S_phi(P T / sigma, 1).
    """

    probabilities: Tensor
    duality_gap: Tensor
    leverages: Tensor
    log_det: Tensor


def optimal_design(
    features: Tensor,
    ridge: float,
    among: Tensor | None = None,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
) -> Design:
    """pi(A) = argmax_{P on A} log det S(P, r): the Bayesian D-optimal design (Definition 4.2).

    On A its leverages are at most gamma_{phi,T} (proof of Lemma 4.3); the lemma prints "for all x in X",
    which fails outside A (two orthogonal arms, A the first: the leverage of the second is 1/r).

    Args:
        features, ridge, among: as in the module's table.
        tolerance: the duality gap at which the solver stops.
        method: ``"interior_point"``: about 20 Newton steps of O(N^3) each; ``"active_set"``: the same on a
            working set of a few p arms, and O(N p^2) to extend it; ``"frank_wolfe"``: pairwise steps of
            O(N p + p^2) with linear convergence, and no matrix larger than p x p or N x p, for ranks too large
            for the other two; ``"auto"``: interior point up to 1 000 arms, active set above.

    Raises ValueError for features that are not (..., N, p) or not finite, a ridge or tolerance that is not
    positive, a mask that is not booleans over the arms or leaves none, an unknown method.

    Source: Hong, Li & Tewari 2023, Definition 4.2.
    """
    return exploration_problem(features, None, ridge, 1.0, among, tolerance=tolerance, method=method)


def exploration_problem(
    features: Tensor,
    gaps: Tensor | None,
    ridge: float,
    weight: float | Tensor,
    among: Tensor | None = None,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
) -> Design:
    """argmin_P sum_x P(x) g(x) - w log det S(P, r): equation 1 of the paper with w = 2/beta.

    Args:
        features, gaps, ridge, weight, among: as in the module's table; ``weight`` a number or (...).
        tolerance, method: as for ``optimal_design``. The gap is in units of ``gaps``.

    Cost and errors: as for ``optimal_design``.

    Raises ValueError for a ``tolerance`` that is not positive and another ``method``.

    Source: Hong, Li & Tewari 2023, equation 1.
    """
    phi, g, w, allowed = _checked(features, gaps, ridge, weight, among)
    validation.positive("tolerance", tolerance)
    validation.require(method in ("auto", *_SOLVERS), "method", method, f"'auto' or one of {[*_SOLVERS]}")
    if method == "auto":
        method = "interior_point" if phi.shape[-2] <= _INTERIOR_POINT_UP_TO else "active_set"
    solution = _SOLVERS[method](phi, g, w, allowed, float(ridge), tolerance)
    return _certified(phi, g, w, allowed, float(ridge), solution)


def optimal_exploration(
    features: Tensor,
    gaps: Tensor,
    ridge: float,
    beta: float,
    alpha: float,
    gain: float | Tensor,
    *,
    design_share: float = 0.5,
    tolerance: float = 1e-8,
) -> Tensor:
    """Q = (1 - s) P* + s pi(A) of Algorithm 1 (OP), (..., N); the paper has s = ``design_share`` = 1/2.

    P* solves equation 1 with w = 2/beta; A = {x: gap(x) <= 2 alpha gamma / beta}, gamma = ``gain``.
    Lemma 4.4 holds for s = 1/2: sum Q gap <= (1 + alpha) gamma / beta, leverages <= beta gap + 2 gamma and
    <= beta^2 gap^2 / (2 alpha gamma) + 2 gamma.

    Raises ValueError unless ``beta`` and ``alpha`` > 0 and s is in [0, 1]. ``tolerance`` is that of
    ``exploration_problem``.

    Source: Hong, Li & Tewari 2023, Algorithm 1.
    """
    validation.positive("beta", beta)
    validation.positive("alpha", alpha)
    validation.share("design_share", design_share)
    validation.finite_tensor("gaps", gaps)
    checked(validation.non_negative, "gain", gain)  # 0: features that are all 0
    good = gaps <= torch.as_tensor(2 * alpha * gain / beta).to(gaps).unsqueeze(-1)
    among = torch.stack([torch.ones_like(good), good])
    weight = gaps.new_tensor([2 / beta, 1.0]).reshape(2, *[1] * (gaps.dim() - 1))
    both = torch.stack(
        [gaps, torch.zeros_like(gaps)]
    )  # P* and pi(A) in one batch: half the steps to wait for
    p_star, pi = exploration_problem(features, both, ridge, weight, among, tolerance=tolerance).probabilities
    return (1 - design_share) * p_star + design_share * pi


def fractional_gain(features: Tensor, ridge: float) -> Tensor:
    """gamma_{phi,T} = max_P log det S(T P / sigma, 1), (...), with ``ridge`` = sigma/T.

    The maximum over fractional counts (section 2.1): no factor 1/2, and at least twice the greedy or any
    integer maximum at noise variance sigma. The maximiser is the optimal design.

    Source: Hong, Li & Tewari 2023, section 2.1.
    """
    return optimal_design(features, ridge).log_det


def features_of_covariance(covariance: Tensor) -> Tensor:
    """Features (..., N, p) with Gram matrix ``covariance`` (..., N, N); p is its numerical rank, at least 1.

    Eigenvalues below 1e-12 of the largest are left out; in a batch, p is the largest rank. Cost O(N^3).

    Raises ValueError for another shape, NaN, infinity, and a matrix that is not positive semi-definite.

    Source: Hong, Li & Tewari 2023, section 2, by an eigendecomposition where they take a Cholesky factor.
    """
    validation.tensor("covariance", covariance)
    square = covariance.dim() >= 2 and covariance.shape[-1] == covariance.shape[-2] > 0
    validation.shape_is("covariance", covariance, square, "(..., N, N)")
    asymmetry = float((covariance - covariance.mT).abs().max()) if covariance.numel() else 0.0
    ok = asymmetry <= torch.finfo(covariance.dtype).eps ** 0.5 * float(covariance.abs().max())
    validation.require(
        ok or asymmetry != asymmetry, "covariance", f"|C - C^T| up to {asymmetry}", "symmetric"
    )
    validation.finite_tensor("covariance", covariance)
    values, vectors = torch.linalg.eigh(covariance)
    largest = values[..., -1:]
    psd = bool((values[..., :1] >= -1e-8 * largest.abs()).all())
    validation.require(psd, "covariance", values[..., 0], "positive semi-definite, smallest eigenvalue >= 0")
    kept = values > 1e-12 * largest
    rank = max(1, int(kept.sum(-1).max()))
    roots = torch.where(kept, values, 0.0).clamp_min(0.0).sqrt()
    return (vectors * roots.unsqueeze(-2))[..., -rank:]


def _checked(
    features: Tensor, gaps: Tensor | None, ridge: float, weight: float | Tensor, among: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, gaps, weight (..., 1) and mask in one batch shape."""
    validation.tensor("features", features)
    validation.shape_is("features", features, features.dim() >= 2 and features.numel() > 0, "(..., N, p)")
    validation.finite_tensor("features", features)
    validation.positive("ridge", ridge)
    arms = features.shape[-2]
    g = features.new_zeros(arms) if gaps is None else validation.tensor("gaps", gaps).to(features)
    validation.shape_is("gaps", g, g.dim() >= 1 and g.shape[-1] == arms, f"(..., {arms})")
    validation.finite_tensor("gaps", g)
    w = validation.numbers("weight", weight, features)
    validation.require(bool((torch.isfinite(w) & (w > 0)).all()), "weight", w, "finite and > 0")
    allowed = torch.ones(arms, dtype=torch.bool, device=features.device) if among is None else among
    ok = allowed.dtype == torch.bool and allowed.dim() >= 1 and allowed.shape[-1] == arms
    validation.shape_is("among", allowed, ok, f"(..., {arms}) and dtype torch.bool")
    validation.require(bool(allowed.any(-1).all()), "among", allowed, "at least one arm in every member")
    batch = torch.broadcast_shapes(features.shape[:-2], g.shape[:-1], w.shape, allowed.shape[:-1])
    return (
        features.expand(*batch, *features.shape[-2:]),
        g.expand(*batch, arms),
        w.expand(batch).unsqueeze(-1),
        allowed.expand(*batch, arms),
    )


def _certified(phi: Tensor, g: Tensor, w: Tensor, allowed: Tensor, ridge: float, P: Tensor) -> Design:
    """The answer with its gap, leverages and log det computed afresh."""
    h, log_det = leverages(phi, P, ridge)
    gradient = g - w * h
    lowest = gradient.masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)
    # sum P (grad - min) rather than sum P grad - min: no difference of large numbers.
    gap = (P * (gradient - lowest)).sum(-1)
    return Design(P, gap, h, log_det)

"""Optimal designs, the problem OP, gamma_{phi,T} and inverse propensity scores (Hong, Li & Tewari 2023).

All problems minimise, over probability distributions P on the arms or on a subset A of them,

    F(P) = sum_x P(x) g(x) - w log det S(P, r),      S(P, r) = sum_x P(x) phi(x) phi(x)^T + r I.

| symbol | argument | meaning |
|---|---|---|
| phi, N, p | ``features``, (..., N, p) | one row per arm; P depends only on their Gram matrix |
| r | ``ridge``, a number or (...) | sigma/T of the paper, > 0 |
| g | ``gaps``, (..., N) | linear term; 0 for a design |
| w | ``weight`` | 2/beta in OP, 1 for a design |
| A | ``among``, (..., N) booleans | arms that may have P(x) > 0 |

grad F = g - w h with the leverages h(x) = phi(x)^T S^{-1} phi(x), and the Hessian is w M * M (elementwise) with
M = phi S^{-1} phi^T. The certificate is the Frank-Wolfe gap sum_x P(x) grad_x - min_{x in A} grad_x, which
bounds F(P) - min F. Leading dimensions are a batch, solved together by one of the two solvers at the end of the file.
The solvers take one batch dimension, and features phi / sqrt(r), which give the same M with r = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.theory.widths import checked

_INTERIOR_POINT_UP_TO = 1000  # arms; with more, Newton steps, O(N^3), are restricted to a working set
_MOST_NEWTON_STEPS = 80
_TO_THE_BOUNDARY = 0.99
_MOST_ROUNDS = 100  # of the active set; each adds arms, so more than ten are rare


@dataclass(frozen=True)
class Design:
    """A distribution over arms, with a certificate of its optimality.

    Attributes:
        probabilities: P, (..., N), summing to 1.
        duality_gap: (...), an upper bound on F(P) - min F, up to rounding (about 1e-12 times the leverages).
        leverages: (..., N), h(x) = phi(x)^T S(P, r)^{-1} phi(x) for every arm, also outside A.
        log_det: log det(S(P, r) / r), (...), which is the paper's log det S_phi(P T / sigma, 1).
    """

    probabilities: Tensor
    duality_gap: Tensor
    leverages: Tensor
    log_det: Tensor


def optimal_design(
    features: Tensor,
    ridge: float | Tensor,
    among: Tensor | None = None,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
) -> Design:
    """pi(A) = argmax_{P on A} log det S(P, r): the Bayesian D-optimal design (Definition 4.2).

    On A its leverages are at most gamma_{phi,T} (proof of Lemma 4.3). The lemma as printed says "for all x in X",
    which fails outside A: if two arms are orthogonal and A is the first, the leverage of the second is 1/r.

    Args:
        features, ridge, among: as in the module's table.
        tolerance: the largest duality gap at which the solver stops. It also stops after a fixed number of steps.
        method: ``"interior_point"``: about 20 Newton steps of O(N^3) each; ``"active_set"``: the same on a
            working set of a few p arms, and O(N p^2) to extend it; ``"auto"``: interior point up to 1 000 arms, active
            set above.

    Raises ValueError for features that are not (..., N, p) or not finite, a ridge or tolerance that is not
    positive, a mask that is not boolean over the arms or allows none, and an unknown method.

    Source: Hong, Li & Tewari 2023, Definition 4.2.
    """
    return exploration_problem(features, None, ridge, 1.0, among, tolerance=tolerance, method=method)


def exploration_problem(
    features: Tensor,
    gaps: Tensor | None,
    ridge: float | Tensor,
    weight: float | Tensor,
    among: Tensor | None = None,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
) -> Design:
    """The P that minimises sum_x P(x) g(x) - w log det S(P, r): equation 1 of the paper if w = 2/beta.

    Args:
        features, gaps, ridge, weight, among: as in the module's table; ``weight`` a number or (...).
        tolerance, method: as for ``optimal_design``. The gap is in units of ``gaps``.

    Computes in float64; the result has the dtype of the features. Cost and errors are as for ``optimal_design``.
    Source: Hong, Li & Tewari 2023, equation 1. Raises ValueError for arguments out of range.
    """
    validation.tensor("features", features)
    validation.shape_is("features", features, features.dim() >= 2 and features.numel() > 0, "(..., N, p)")
    validation.finite_tensor("features", features)
    phi = _over_ridge(features.double(), ridge)
    arms = phi.shape[-2]
    g = phi.new_zeros(arms) if gaps is None else validation.tensor("gaps", gaps).to(phi)
    validation.shape_is("gaps", g, g.dim() >= 1 and g.shape[-1] == arms, f"(..., {arms})")
    validation.finite_tensor("gaps", g)
    w = checked(validation.positive, "weight", validation.numbers("weight", weight, phi))
    allowed = torch.ones(arms, dtype=torch.bool, device=phi.device) if among is None else among
    ok = validation.tensor("among", allowed).dtype == torch.bool
    ok = ok and allowed.dim() >= 1 and allowed.shape[-1] == arms
    validation.shape_is("among", allowed, ok, f"(..., {arms}) and dtype torch.bool")
    validation.require(bool(allowed.any(-1).all()), "among", allowed, "at least one arm in every member")
    batch = _together(features=phi.shape[:-2], gaps=g.shape[:-1], weight=w.shape, among=allowed.shape[:-1])
    phi, w = phi.expand(*batch, *phi.shape[-2:]), w.expand(batch).unsqueeze(-1)
    g, allowed = g.expand(*batch, arms), allowed.expand(*batch, arms)
    validation.positive("tolerance", tolerance)
    validation.one_of("method", method, "auto", "interior_point", "active_set")
    if method == "auto":
        method = "interior_point" if arms <= _INTERIOR_POINT_UP_TO else "active_set"
    solve = interior_point if method == "interior_point" else active_set
    flat_g, flat_w, flat_allowed = (each.reshape(-1, each.shape[-1]) for each in (g, w, allowed))
    solved = solve(phi.reshape(-1, *phi.shape[-2:]), flat_g, flat_w, flat_allowed, tolerance)
    P = solved.reshape(g.shape)
    h, log_det = leverages(phi, P)
    gradient = g - w * h
    lowest = gradient.masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)
    # sum P (grad - min) instead of sum P grad - min avoids the difference of large numbers.
    gap = (P * (gradient - lowest)).sum(-1)
    return Design(*(value.to(features.dtype) for value in (P, gap, h, log_det)))


def optimal_exploration(
    features: Tensor,
    gaps: Tensor,
    ridge: float | Tensor,
    beta: float | Tensor,
    alpha: float | Tensor,
    gain: float | Tensor,
    *,
    design_share: float = 0.5,
    tolerance: float = 1e-8,
) -> Tensor:
    """Q = (1 - s) P* + s pi(A) of Algorithm 1 (OP), (..., N); the paper has s = ``design_share`` = 1/2.

    P* solves equation 1 with w = 2/beta; A = {x: gap(x) <= 2 alpha gamma / beta}, gamma = ``gain``.
    Lemma 4.4 holds for s = 1/2: sum Q gap <= (1 + alpha) gamma / beta, leverages <= beta gap + 2 gamma and
    <= beta^2 gap^2 / (2 alpha gamma) + 2 gamma. ``beta``, ``alpha`` and ``gain``: numbers, or (...).

    ``tolerance``: as for ``exploration_problem``. Raises ValueError unless ``beta``, ``alpha`` > 0 and 0 <= s <= 1.

    Source: Hong, Li & Tewari 2023, Algorithm 1.
    """
    checked(validation.positive, "beta", beta)
    checked(validation.positive, "alpha", alpha)
    validation.share("design_share", design_share)
    validation.tensor("gaps", gaps)
    checked(validation.non_negative, "gain", gain)  # 0 if all features are 0
    given = {"beta": beta, "alpha": alpha, "gain": gain}
    b, a, gamma = (validation.numbers(name, value, gaps) for name, value in given.items())
    batch = _together(gaps=gaps.shape[:-1], beta=b.shape, alpha=a.shape, gain=gamma.shape)
    gaps = gaps.expand(*batch, gaps.shape[-1])
    good = gaps <= (2 * a * gamma / b).unsqueeze(-1)
    among = torch.stack([torch.ones_like(good), good])
    w = (2 / b).expand(batch)
    weight = torch.stack([w, torch.ones_like(w)])
    # P* and pi(A) in one batch: half as many steps.
    both = torch.stack([gaps, torch.zeros_like(gaps)])
    p_star, pi = exploration_problem(features, both, ridge, weight, among, tolerance=tolerance).probabilities
    return (1 - design_share) * p_star + design_share * pi


def fractional_gain(features: Tensor, ridge: float | Tensor) -> Tensor:
    """gamma_{phi,T} = max_P log det S(T P / sigma, 1), (...), with ``ridge`` = sigma/T.

    T pulls may be divided among arms in any fractions (Hong, Li & Tewari 2023, section 2.1). No factor 1/2: it is
    at least twice the information gain of any T pulls at noise variance sigma. The optimal design maximises it.
    """
    return optimal_design(features, ridge).log_det


def features_of_covariance(covariance: Tensor) -> Tensor:
    """Features (..., N, p) with Gram matrix ``covariance`` (..., N, N); p is its numerical rank, at least 1.

    Eigenvalues below 1e-12 times the largest are left out; in a batch, p is the largest rank. Cost O(N^3).

    Raises ValueError for any other shape, NaN, infinity, and a matrix that is not positive semi-definite. Source: Hong,
    Li & Tewari 2023, section 2, with an eigendecomposition instead of their Cholesky factor.
    """
    values, vectors = torch.linalg.eigh(validation.covariance("covariance", covariance))
    largest = values[..., -1:]
    kept = values > 1e-12 * largest
    rank = max(1, int(kept.sum(-1).max()))
    roots = torch.where(kept, values, 0.0).clamp_min(0.0).sqrt()
    return (vectors * roots.unsqueeze(-2))[..., -rank:]


def propensity_matrix(features: Tensor, probabilities: Tensor, ridge: float | Tensor) -> Tensor:
    """M(P) = phi S(P, r)^{-1} phi^T, (..., N, N), from features (..., N, p) and P (..., N). O(N p^2 + N^2 p).

    If x_t was drawn from P (``probabilities``), the inverse propensity score estimate of the reward of arm x is

        R^_t(x) = phi(x)^T S(P, sigma/T)^{-1} phi(x_t) y_t = M(P)[x, x_t] y_t.

    Each step has a separate estimate, so a change of the rewards does not bias the estimates of other steps. For
    expected rewards phi theta its mean is phi theta - (sigma/T) phi S^{-1} theta: the bias vanishes with the ridge
    sigma/T. The variance is at most the leverage M(P)[x, x] if |y| <= 1 (Lemma 4.3).

    Raises ValueError unless there is one probability per arm and ``ridge`` > 0. Source: Hong, Li & Tewari 2023,
    Definition 4.1.
    """
    validation.finite_tensor("features", features)
    validation.shape_is("features", features, features.dim() >= 2 and features.shape[-2] > 0, "(..., N, p)")
    validation.finite_tensor("probabilities", probabilities)
    ok = probabilities.dim() >= 1 and probabilities.shape[-1] == features.shape[-2]
    validation.shape_is("probabilities", probabilities, ok, f"(..., {features.shape[-2]}), one per arm")
    V, _log_det = whitened(_over_ridge(features, ridge), probabilities)
    return V.mT @ V


def estimated_gaps(estimates: Tensor) -> Tensor:
    """max_x' R^(x') - R^(x), (..., N), from ``estimates`` R^ of that shape (Hong, Li & Tewari 2023, Algorithm 2).
    Raises ValueError if they are not a tensor."""
    validation.tensor("estimates", estimates)
    return estimates.amax(-1, keepdim=True) - estimates


def _over_ridge(features: Tensor, ridge: float | Tensor) -> Tensor:
    """phi / sqrt(r)."""
    checked(validation.positive, "ridge", ridge)
    r = validation.numbers("ridge", ridge, features)
    _together(features=features.shape[:-2], ridge=r.shape)
    return features / r.sqrt()[..., None, None]


def _together(**shapes: torch.Size) -> torch.Size:
    """The batch shape to which these broadcast. Raises ValueError for the first that does not fit, by name."""
    batch = torch.Size()
    for name, shape in shapes.items():
        try:
            batch = torch.broadcast_shapes(batch, shape)
        except RuntimeError:
            expected = f"a batch shape that broadcasts with {tuple(batch)}"
            raise ValueError(f"{name} must have {expected}, got {tuple(shape)}") from None
    return batch


def whitened(phi: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    """V (..., p, N) with V^T V = phi S(P, 1)^{-1} phi^T, and log det S. O(N p^2). Raises ValueError if rounding makes S
    singular."""
    S = (phi * P.unsqueeze(-1)).mT @ phi
    S.diagonal(dim1=-2, dim2=-1).add_(1.0)
    L, failed = torch.linalg.cholesky_ex(S)
    if bool(failed.any()):
        least, ratio = torch.finfo(S.dtype).eps, 1 / float(S.diagonal(dim1=-2, dim2=-1).max())
        validation.require(False, "ridge / the features' largest square", ratio, f"above {least:.1e}")
    log_det = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.linalg.solve_triangular(L, phi.mT, upper=False), log_det


def leverages(phi: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    """h(x) = phi(x)^T S(P, 1)^{-1} phi(x), (..., N), and log det S, (...)."""
    V, log_det = whitened(phi, P)
    return V.square().sum(-2), log_det


def interior_point(phi: Tensor, g: Tensor, w: Tensor, allowed: Tensor, tolerance: float) -> Tensor:
    """Primal-dual Newton steps on grad F - z + nu = 0, sum P = 1, P z = tau -> 0.

    With P^{1/2} on both sides the Newton matrix is P^{1/2} (w M * M) P^{1/2} + diag(z), which stays bounded as entries
    of P vanish. A member leaves the batch once its gap is small enough; the best P seen of each member is returned.
    """
    count = allowed.sum(-1, keepdim=True)
    P = allowed / count.to(phi.dtype)
    scaled = g / w - leverages(phi, P)[0]  # the gradient in units of w
    highest = scaled.masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
    spread = highest - scaled.masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)
    z = torch.where(allowed, (w * spread).clamp_min(1e-3 * w), 1.0)
    found, best_gap = P.clone(), torch.full_like(w, torch.inf)
    member = torch.arange(len(P), device=P.device)  # indices of the members still in the batch
    for _ in range(_MOST_NEWTON_STEPS):
        V, _log_det = whitened(phi, P)
        M = V.mT @ V
        gradient = g - w * M.diagonal(dim1=-2, dim2=-1)
        lowest = gradient.masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)
        gap = (P * (gradient - lowest)).sum(-1, keepdim=True)
        found[member] = torch.where(gap < best_gap, P, found[member])
        best_gap = torch.minimum(gap, best_gap)
        left = (best_gap > 0.5 * tolerance).squeeze(-1)
        if not bool(left.all()):
            member = member[left]
            if len(member) == 0:
                break
            every = (phi, g, w, allowed, count, P, z, best_gap, M, gradient)
            phi, g, w, allowed, count, P, z, best_gap, M, gradient = (each[left] for each in every)
        P, z = _newton_step(M, gradient, P, z, w, allowed, count)
    return found


def _newton_step(
    M: Tensor, gradient: Tensor, P: Tensor, z: Tensor, w: Tensor, allowed: Tensor, count: Tensor
) -> tuple[Tensor, Tensor]:
    """One predictor-corrector step (Mehrotra); arms outside A stay at P = 0.

    dP and dz for P z = target: H u = -(root grad - target/root) - nu root, dP = root u, sum dP = 0.
    """
    root = P.sqrt()
    H = M.square().mul_(root.unsqueeze(-1)).mul_((w * root).unsqueeze(-2))
    H.diagonal(dim1=-2, dim2=-1).add_(z)
    L = torch.linalg.cholesky(H)
    downhill = root * gradient
    solved = torch.cholesky_solve(torch.stack([root, downhill], -1), L)
    along = solved[..., 0]  # H^-1 root, scaled so that sum root along = 1
    along = along / (root * along).sum(-1, keepdim=True)
    per_P, free = torch.where(allowed, 1 / P.clamp_min(1e-300), 0.0), z * allowed
    per_root = per_P * root

    dP = root * (along * (root * solved[..., 1]).sum(-1, keepdim=True) - solved[..., 1])
    dz = -free * (1 + dP * per_P)
    step_P, step_z = _longest(P, dP, z, dz)
    mean = (P * z).sum(-1, keepdim=True) / count
    after = ((P + step_P * dP) * (z + step_z * dz)).sum(-1, keepdim=True) / count
    target = (after / mean).clamp(0.0, 1.0) ** 3 * mean - dP * dz
    u = torch.cholesky_solve((target * per_root - downhill).unsqueeze(-1), L).squeeze(-1)
    dP = root * (u - along * (root * u).sum(-1, keepdim=True))
    dz = (target - z * dP) * per_P - free
    step = _longest(P, dP, z, dz).amin(0)
    P, z = P + step * dP, z + step * dz
    return P / P.sum(-1, keepdim=True), z


def _longest(P: Tensor, dP: Tensor, z: Tensor, dz: Tensor) -> Tensor:
    """Largest steps in (0, 1] for P and z, (2, ..., 1), that leave at least 1 % of every entry."""
    value, change = torch.stack([P, z]), torch.stack([dP, dz])
    ratio = torch.where(change < 0, -value / change, torch.inf)
    return (_TO_THE_BOUNDARY * ratio.amin(-1, keepdim=True)).clamp_max(1.0)


def active_set(phi: Tensor, g: Tensor, w: Tensor, allowed: Tensor, tolerance: float) -> Tensor:
    """Interior point on a working set that grows by the arms of lowest gradient until it contains the support.

    The optimum has a small support (of order p). A round costs O(N p^2) to score all arms, and the cube of the working
    set's size to solve. All members of a batch have working sets of the same size.
    """
    rank = phi.shape[-1]
    size = min(allowed.shape[-1], 2 * rank)
    P = allowed / allowed.sum(-1, keepdim=True).to(phi.dtype)
    support = torch.zeros_like(allowed)
    for _ in range(_MOST_ROUNDS):
        gradient = (g - w * leverages(phi, P)[0]).masked_fill(~allowed, torch.inf)
        lowest = gradient.amin(-1, keepdim=True)
        if bool(((P * (gradient - lowest).masked_fill(~allowed, 0.0)).sum(-1) <= tolerance).all()):
            break
        # Arms with mass stay; the best of the others fill the set.
        order = gradient.masked_fill(support, -torch.inf).argsort(-1)[..., :size]
        chosen = allowed.gather(-1, order)
        inner = phi.gather(-2, order.unsqueeze(-1).expand(*order.shape, rank))
        solved = interior_point(inner, g.gather(-1, order), w, chosen, 0.5 * tolerance)
        P = torch.zeros_like(P).scatter(-1, order, solved)
        if size == allowed.shape[-1]:  # no arm is left to add, even if rounding errors exceed the tolerance
            break
        support = P > 1e-9
        size = min(allowed.shape[-1], size + max(1, rank // 2))
    return P

"""Three solvers for min_P sum P g - w log det S(P, r) on the simplex; see ``optimal_design``.

Shapes as there, in one batch: phi (..., N, p), g (..., N), w (..., 1), allowed (..., N) booleans.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MOST_NEWTON_STEPS = 80
_TO_THE_BOUNDARY = 0.99
_MOST_ROUNDS = 100  # of the active set; each adds arms, so it seldom needs more than ten
_MOST_PAIRWISE_STEPS = 100_000
_CHECK_EVERY = 50  # pairwise steps between looks at the gap, each of which waits for the device
_REFRESH_EVERY = 500  # pairwise steps between fresh inverses, against rounding


def whitened(phi: Tensor, P: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """V (..., p, N) with V^T V = phi S(P, r)^{-1} phi^T, and log det(S / r). O(N p^2)."""
    S = (phi * P.unsqueeze(-1)).mT @ phi / ridge
    S.diagonal(dim1=-2, dim2=-1).add_(1.0)
    L = torch.linalg.cholesky(S)
    log_det = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.linalg.solve_triangular(L, phi.mT / ridge**0.5, upper=False), log_det


def leverages(phi: Tensor, P: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """h(x) = phi(x)^T S^{-1} phi(x), (..., N), and log det(S / r), (...)."""
    V, log_det = whitened(phi, P, ridge)
    return V.square().sum(-2), log_det


def interior_point(
    phi: Tensor, g: Tensor, w: Tensor, allowed: Tensor, ridge: float, tolerance: float
) -> Tensor:
    """Primal-dual Newton steps on grad F - z + nu = 0, sum P = 1, P z = tau -> 0.

    With P^{1/2} on both sides the Newton matrix is P^{1/2} (w M * M) P^{1/2} + diag(z), bounded however small
    some P get. Each member of the batch stays where it reached its gap; the best P seen is returned.
    """
    count = allowed.sum(-1, keepdim=True)
    P = allowed / count.to(phi.dtype)
    z = torch.where(allowed, (w * _spread(phi, P, ridge, g, w, allowed)).clamp_min(1e-3 * w), 1.0)
    best, best_gap = P, torch.full_like(w, torch.inf)
    for _ in range(_MOST_NEWTON_STEPS):
        V, _log_det = whitened(phi, P, ridge)
        M = V.mT @ V
        gradient = g - w * M.diagonal(dim1=-2, dim2=-1)
        lowest = gradient.masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)
        gap = (P * (gradient - lowest)).sum(-1, keepdim=True)
        better = gap < best_gap
        best, best_gap = torch.where(better, P, best), torch.where(better, gap, best_gap)
        done = best_gap <= 0.5 * tolerance
        if bool(done.all()):
            break
        after = _newton_step(M, gradient, P, z, w, allowed, count)
        P, z = (torch.where(done, old, new) for old, new in zip((P, z), after, strict=True))
    return best


def _spread(phi: Tensor, P: Tensor, ridge: float, g: Tensor, w: Tensor, allowed: Tensor) -> Tensor:
    """Scale of the gradient over the allowed arms, in units of w, (..., 1)."""
    gradient = g / w - leverages(phi, P, ridge)[0]
    high = gradient.masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
    return high - gradient.masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)


def _newton_step(
    M: Tensor, gradient: Tensor, P: Tensor, z: Tensor, w: Tensor, allowed: Tensor, count: Tensor
) -> tuple[Tensor, Tensor]:
    """One predictor-corrector step (Mehrotra); arms outside A stay at P = 0."""
    root = P.sqrt()
    H = w.unsqueeze(-1) * (root.unsqueeze(-1) * M.square() * root.unsqueeze(-2))
    H.diagonal(dim1=-2, dim2=-1).add_(z)
    L = torch.linalg.cholesky(H)
    by_sum = torch.cholesky_solve(root.unsqueeze(-1), L).squeeze(-1)
    curvature = (root * by_sum).sum(-1, keepdim=True)

    def direction(target: Tensor) -> tuple[Tensor, Tensor]:
        """dP and dz for P z = target: H u = -(root grad - target/root) - nu root, dP = root u, sum dP = 0."""
        rhs = torch.where(allowed, target / root.clamp_min(1e-300) - root * gradient, 0.0)
        u = torch.cholesky_solve(rhs.unsqueeze(-1), L).squeeze(-1)
        u = u - by_sum * ((root * u).sum(-1, keepdim=True) / curvature)
        dP = root * u
        dz = torch.where(allowed, (target - z * dP) / P.clamp_min(1e-300) - z, 0.0)
        return dP, dz

    complementarity = torch.where(allowed, P * z, 0.0)
    mean = complementarity.sum(-1, keepdim=True) / count
    dP, dz = direction(torch.zeros_like(P))
    step_P, step_z = _longest(P, dP, allowed), _longest(z, dz, allowed)
    after = torch.where(allowed, (P + step_P * dP) * (z + step_z * dz), 0.0).sum(-1, keepdim=True) / count
    centre = (after / mean).clamp(0.0, 1.0) ** 3 * mean
    dP, dz = direction(centre - dP * dz)
    step_P, step_z = _longest(P, dP, allowed), _longest(z, dz, allowed)
    step = torch.minimum(step_P, step_z)
    P, z = P + step * dP, z + step * dz
    return P / P.sum(-1, keepdim=True), z


def _longest(value: Tensor, change: Tensor, allowed: Tensor) -> Tensor:
    """Largest step in (0, 1], (..., 1), that leaves 1 % of every allowed entry."""
    ratio = torch.where(allowed & (change < 0), -value / change, torch.inf)
    return (_TO_THE_BOUNDARY * ratio.amin(-1, keepdim=True)).clamp_max(1.0)


def active_set(phi: Tensor, g: Tensor, w: Tensor, allowed: Tensor, ridge: float, tolerance: float) -> Tensor:
    """Interior point on a working set that grows by the arms of lowest gradient until it contains the support.

    The optimum has a small support (of order p), so a round costs O(N p^2) to score all arms and the cube
    of the working set to solve. The same number of arms is added to, and dropped from, every member.
    """
    rank = phi.shape[-1]
    size = min(allowed.shape[-1], 2 * rank)
    P = allowed / allowed.sum(-1, keepdim=True).to(phi.dtype)
    held = torch.zeros_like(allowed)
    for _ in range(_MOST_ROUNDS):
        gradient = (g - w * leverages(phi, P, ridge)[0]).masked_fill(~allowed, torch.inf)
        lowest = gradient.amin(-1, keepdim=True)
        if bool(((P * (gradient - lowest).masked_fill(~allowed, 0.0)).sum(-1) <= tolerance).all()):
            break
        # Arms that carry mass stay; the best of the others fill the set up.
        order = gradient.masked_fill(held, -torch.inf).argsort(-1)[..., :size]
        chosen = allowed.gather(-1, order)
        inner = phi.gather(-2, order.unsqueeze(-1).expand(*order.shape, rank))
        solved = interior_point(inner, g.gather(-1, order), w, chosen, ridge, 0.5 * tolerance)
        P = torch.zeros_like(P).scatter(-1, order, solved)
        held = P > 1e-9
        size = min(allowed.shape[-1], size + max(1, rank // 2))
    return P


def pairwise_frank_wolfe(
    phi: Tensor, g: Tensor, w: Tensor, allowed: Tensor, ridge: float, tolerance: float
) -> Tensor:
    """Moves mass from the worst arm in the support to the best arm, with exact line search.

    S moves by d (phi_i phi_i^T - phi_j phi_j^T), of rank two: its inverse and the leverages follow in
    O(p^2 + N p). With a, b, c = M_ii, M_jj, M_ij, det S changes by the factor q(d) = 1 + d (a - b) - d^2 (a b - c^2).
    """
    batch = phi.shape[:-2]
    phi, w = phi.reshape(-1, *phi.shape[-2:]), w.reshape(-1, 1)
    g, allowed = g.reshape(-1, g.shape[-1]), allowed.reshape(-1, g.shape[-1])
    P = allowed / allowed.sum(-1, keepdim=True).to(phi.dtype)
    rows = torch.arange(phi.shape[0], device=phi.device)
    for step in range(_MOST_PAIRWISE_STEPS):
        if step % _REFRESH_EVERY == 0:
            inverse, h = _inverse(phi, P, ridge)
        gradient = g - w * h
        to = gradient.masked_fill(~allowed, torch.inf).argmin(-1)
        away = gradient.masked_fill(P <= 0, -torch.inf).argmax(-1)
        if step % _CHECK_EVERY == 0:
            lowest = gradient[rows, to].unsqueeze(-1)
            if bool(((P * (gradient - lowest)).sum(-1) <= 0.5 * tolerance).all()):
                break
        first, second = inverse @ phi[rows, to].unsqueeze(-1), inverse @ phi[rows, away].unsqueeze(-1)
        columns = phi @ torch.cat([first, second], -1)  # M_.i and M_.j, (b, N, 2)
        a, b, c = columns[rows, to, 0], columns[rows, away, 1], columns[rows, to, 1]
        d = _line_search(a, b, c, g[rows, to] - g[rows, away], w.squeeze(-1), P[rows, away])
        P = _moved(P, rows, to, away, d)
        inverse, h = _rank_two(inverse, h, first, second, columns, (a, b, c), d)
    return P.reshape(*batch, -1)


def _inverse(phi: Tensor, P: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    S = (phi * P.unsqueeze(-1)).mT @ phi
    S.diagonal(dim1=-2, dim2=-1).add_(ridge)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(S))
    return inverse, ((phi @ inverse) * phi).sum(-1)


def _line_search(a: Tensor, b: Tensor, c: Tensor, slope: Tensor, w: Tensor, most: Tensor) -> Tensor:
    """argmin over d in [0, most] of slope d - w log q(d), q(d) = 1 + d (a - b) - d^2 e, e = a b - c^2 >= 0.

    Stationary where slope q(d) = w q'(d): slope (1 + d s - d^2 e) = w (s - 2 d e), s = a - b, on the branch
    with q > 0. The function is convex there, so clamping the root to the interval is exact.
    """
    s, e = a - b, (a * b - c * c).clamp_min(1e-300)
    # A d^2 + B d + C = 0 with C < 0 (downhill): its smallest positive root, in the form without cancellation.
    A, B, C = -slope * e, slope * s + 2 * w * e, slope - w * s
    root = (B * B - 4 * A * C).clamp_min(0.0).sqrt()
    d = torch.where(B >= 0, -2 * C / (B + root), (root - B) / (2 * A))
    return torch.minimum(d.clamp_min(0.0), most)


def _moved(P: Tensor, rows: Tensor, to: Tensor, away: Tensor, d: Tensor) -> Tensor:
    left = P[rows, away] - d
    P = P.index_put((rows, away), torch.where(left < 1e-15, 0.0, left))
    return P.index_put((rows, to), P[rows, to] + d)


def _rank_two(
    inverse: Tensor,
    h: Tensor,
    first: Tensor,
    second: Tensor,
    columns: Tensor,
    pair: tuple[Tensor, Tensor, Tensor],
    d: Tensor,
) -> tuple[Tensor, Tensor]:
    """S^{-1} and h after S += d (phi_i phi_i^T - phi_j phi_j^T) (Woodbury with U = [phi_i, phi_j])."""
    a, b, c = pair
    # (D^{-1} + U^T S^{-1} U)^{-1} with D = diag(d, -d), times d throughout so that d = 0 is no exception.
    m11, m22, m12 = 1 + d * a, d * b - 1, d * c
    det = (m11 * m22 - m12 * m12) / d.clamp_min(1e-300)
    G = torch.stack([torch.stack([m22, -m12], -1), torch.stack([-m12, m11], -1)], -2) / det[:, None, None]
    G = torch.where((d > 0)[:, None, None], G, torch.zeros_like(G))
    U = torch.cat([first, second], -1)  # S^{-1} [phi_i, phi_j], (b, p, 2)
    return inverse - U @ G @ U.mT, h - ((columns @ G) * columns).sum(-1)

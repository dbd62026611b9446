"""Confidence bounds from a martingale mixture, for functions of bounded RKHS norm (Flynn & Reeb).

With f of RKHS norm at most B, conditionally R-sub-Gaussian noise and n observations y at X, f satisfies two bounds:

    ||f(X) - y||^2 <= rho^2 = y^T (I + c K/R^2)^{-1} y + R^2 log det(I + c K/R^2) + 2 R^2 ln(m/delta)      (1)
    ||f||^2 <= B^2                                                                                          (2)

(1) holds at all n at once with probability 1 - delta/m, m the number of events in a union bound. Proof: Z_n(h) =
exp(sum_s ((h_s - f_s) eps_s / R^2 - (h_s - f_s)^2 / (2 R^2))), eps_s = y_s - f(x_s), is a supermartingale for every
predictable sequence h. So is its mixture over h ~ GP(0, c k), which is the ratio of the Gaussian densities of y under
N(0, c K + R^2 I) and N(f(X), R^2 I), and Ville's inequality bounds it by m/delta. For every alpha > 0 the sum of (1)
and alpha times (2) is an ellipsoid around the regression with ridge alpha,

    |f(x) - mu_alpha(x)| <= r_alpha sigma_alpha(x),
    alpha r_alpha^2 = rho^2 + alpha B^2 - y^T (I + K/alpha)^{-1} y,

and the best upper bound that (1) and (2) allow is, by Lagrange duality, the least over alpha of their upper ends.
Source: Flynn & Reeb 2024 (arXiv 2403.12732), who call the bound over all alpha DMM and the one in closed form AMM. The
derivation here follows their abstract; the constants are those of the code of their experiments. With c = R^2/alpha the
terms in y cancel, and alpha r_alpha^2 / R^2 = log det(I + K/alpha) + 2 ln(m/delta) + alpha B^2/R^2: this is
``RealisedInformationWidth`` at alpha = lambda.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.widths import NormWidth, Parameter, checked, like, log

_RIDGES = tuple(2.0**k for k in range(-8, 9))  # alpha / lambda


class RealisedInformationWidth(NormWidth):
    """width_t = sqrt(B^2 + (R^2 / lambda) (log det(I + K_{t-1}/lambda) + 2 ln(m/delta))).

    For custom index policies; no recipe uses it. No paper has a symbol for it. Source: the likelihood-ratio
    supermartingale, mixed over GP(0, (R^2/lambda) k), and Ville's inequality (Flynn & Reeb 2024 prove bounds of this
    kind): with V = Phi^T Phi + lambda I, ||f - mu||_V^2 <= lambda B^2 + R^2 (log det(I + K/lambda) + 2 ln(1/delta)),
    and |f(x) - mu(x)| <= sigma(x) ||f - mu||_V / sqrt(lambda). It is never above the theory form of ``IGPWidth`` with
    the realised gain, because sqrt(a^2 + b^2) <= a + b.

    Valid for R-sub-Gaussian noise and every lambda > 0, at all steps at once while data only grow (m = 1). With
    windows, or a function that changes independently of the noise, use a union bound over steps: m = T, the
    ``horizon``. For M restart intervals, pass delta/M.

    Args:
        rkhs_bound, noise_scale, delta: B, R, delta.
        horizon: T >= 1, for windows and changing functions; None for growing data and a fixed function.

    Raises ValueError unless B >= 0, R > 0, 0 < delta < 1 and ``horizon`` (if given) is an integer >= 1.
    """

    def __init__(
        self,
        rkhs_bound: Parameter,
        noise_scale: Parameter | None,
        delta: Parameter,
        horizon: int | None = None,
    ) -> None:
        super().__init__(rkhs_bound, noise_scale, delta)
        self.num_events = 1 if horizon is None else validation.positive_integer("horizon", horizon)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        B, R, delta = self.constants(model)
        log_det = 2 * model.information_gain
        return torch.sqrt(B**2 + R**2 / model.noise_variance * (log_det + 2 * log(self.num_events / delta)))


class DualMixtureWidth(NormWidth):
    """The least width that contains the bounds of Flynn & Reeb (DMM) at every arm, in units of sigma.

    ``bounds`` returns the bounds L and U of each arm, which need not be symmetric about the mean. ``DualMixtureBound``
    is the acquisition function U. The width is max_x max(U(x) - mu(x), mu(x) - L(x)) / sigma(x).

    Source: Flynn & Reeb 2024 (arXiv 2403.12732), derived at the head of this module, with c = R^2/lambda. Without
    ``drift`` it is never wider than ``RealisedInformationWidth`` with the same B, R, delta and horizon, because
    alpha = lambda is among the 17 ridges lambda 2^{-8}, ..., lambda 2^8. The bounds hold for all alpha at once, so the
    best may be chosen after the rewards are seen. |f(x)| <= B sqrt(k(x, x)) is also among them. No paper has a symbol
    for it.

    Valid for conditionally R-sub-Gaussian noise and every lambda > 0, at all steps while data only grow (m = 1), even
    if f changes, because (1) concerns the values f_s(x_s) when they were observed. For windows pass the ``horizon`` T:
    a window begins at one of T steps (m = T). If the function moves by at most ``drift`` V among the observations held,
    ||f_t(X) - y|| <= rho + V sqrt(n) replaces (1), and B bounds the norm of f_t alone.

    Args:
        rkhs_bound, noise_scale, delta: B, R (None: sqrt(lambda)) and delta.
        horizon: T >= 1, for windows and restarts; None for growing data.
        drift: V >= 0, a bound on max_x |f_s(x) - f_t(x)| between now, t, and the time s of every observation held.

    Cost: O(N^3) per step for N arms.

    Raises ValueError unless B >= 0, R > 0, 0 < delta < 1, V >= 0 and ``horizon`` (if given) is an integer >= 1. A call
    raises it for a model that is not an ``ArmGP``, or that drifts, because it is then not the ridge regression above.
    """

    def __init__(
        self,
        rkhs_bound: Parameter,
        noise_scale: Parameter | None,
        delta: Parameter,
        horizon: int | None = None,
        drift: Parameter = 0.0,
    ) -> None:
        super().__init__(rkhs_bound, noise_scale, delta)
        self.num_events = 1 if horizon is None else validation.positive_integer("horizon", horizon)
        self.drift = checked(validation.non_negative, "drift", drift)

    @torch.no_grad()
    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        lower, upper = self.bounds(model)
        assert isinstance(model, ArmGP)
        mean, variance = model.marginals()
        reach = torch.maximum(upper - mean, mean - lower)
        least = 1e-12 * model.prior.diagonal().amax()  # below it an arm is known, and its reach is rounding
        return (reach / torch.maximum(variance, least).sqrt()).amax(-1)

    @torch.no_grad()
    def bounds(self, model: OnlineModel) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds of f at every arm, ``batch_shape x N`` each."""
        validation.instance("model", model, ArmGP, "an ArmGP")
        assert isinstance(model, ArmGP)
        validation.require(not model.drifts, "model", "one that drifts", "static; set the width's drift")
        arm, reward, _, held = model.held()
        b, N = arm.shape[0], model.num_arms  # the members of the batch, flattened
        noise, prior_mean = model.noise_variance.reshape(b, 1), model.prior_mean.reshape(b, N)
        y = torch.where(held, reward - prior_mean.gather(-1, arm), 0.0)
        # By arm: D counts the pulls; D^{-1/2} times the sums of rewards, in the eigenbasis of D^{1/2} K D^{1/2}.
        zeros, K = prior_mean.new_zeros(b, N), model.prior.matrix()
        root = zeros.scatter_add(-1, arm, held.to(zeros)).sqrt()
        sums = zeros.scatter_add(-1, arm, y) / root.clamp_min(1.0)
        K = K.repeat(b // len(K), 1, 1)
        values, vectors = torch.linalg.eigh(root.unsqueeze(-1) * K * root.unsqueeze(-2))
        values, rewards = values.clamp_min(0), (sums.unsqueeze(-2) @ vectors).squeeze(-2)
        cross = (K * root.unsqueeze(-2)) @ vectors
        number, squares = held.sum(-1, keepdim=True).to(prior_mean), y.square().sum(-1, keepdim=True)
        variances = K.diagonal(dim1=-2, dim2=-1)

        def explained(ridge: Tensor) -> Tensor:
            """y^T K (K + ridge)^{-1} y, (b, 1)."""
            return (values / (values + ridge) * rewards**2).sum(-1, keepdim=True)

        B, R, delta, V = (
            torch.as_tensor(value, dtype=noise.dtype, device=noise.device)
            .expand(model.batch_shape)
            .reshape(-1, 1)
            for value in (*self.constants(model), like(noise, self.drift))
        )
        gain = 0.5 * torch.log1p(values / noise).sum(-1, keepdim=True)  # c K / R^2 = K / lambda
        squared = squares - explained(noise) + 2 * R**2 * (gain + log(self.num_events / delta))
        radius = squared.clamp_min(0).sqrt() + V * number.sqrt()
        by_norm = B * variances.clamp_min(0).sqrt()  # (2): alpha to infinity
        lower, upper = [-by_norm], [by_norm]
        for ridge in _RIDGES:
            alpha = ridge * noise
            inverse = 1 / (values + alpha)
            mean = (cross @ (inverse * rewards).unsqueeze(-1)).squeeze(-1)
            variance = (variances - (cross**2 @ inverse.unsqueeze(-1)).squeeze(-1)).clamp_min(0)
            left = squares - explained(alpha)  # y^T (I + K/alpha)^{-1} y
            reach = ((radius**2 + alpha * B**2 - left).clamp_min(0) / alpha).sqrt() * variance.sqrt()
            lower.append(mean - reach)
            upper.append(mean + reach)
        shape = (*model.batch_shape, -1)
        low, high = torch.stack(lower).amax(0), torch.stack(upper).amin(0)
        return (prior_mean + low).reshape(shape), (prior_mean + high).reshape(shape)

"""Recipes for changes nobody knows of: OPKB and its relatives, MASTER, weighted GP-UCB. Called as ``recipes`` says.

``constants`` of the optimisation-based recipes: ``"tuned"``, ``"theory"`` or a ``Constants``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.models.weighted_gp import WeightedGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.master import Master, MasterThresholds, simulated_rate
from bandits_torch.policies.opkb.ada_opkb import AdaOPKB
from bandits_torch.policies.opkb.calibrated import CalibratedOPKB
from bandits_torch.policies.opkb.constants import Constants
from bandits_torch.policies.opkb.features import FixedFeatures
from bandits_torch.policies.opkb.neural import NeuralFeatures
from bandits_torch.policies.opkb.opkb import OPKB
from bandits_torch.policies.policy import Policy
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.information_gain import MaximumGain, RealisedGain
from bandits_torch.theory.optimal_design import features_of_covariance
from bandits_torch.theory.widths import ConstantWidth, IGPWidth, Width

Number = float | Tensor
_SIMULATED = 16  # runs that MASTER's calibrated rho rests on


def opkb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    constants: str | Constants = "tuned",
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """OPKB: randomised blocks that balance estimated gaps and log det (Hong, Li & Tewari 2023, Algorithm 2)."""
    features = FixedFeatures(_features(arms, kernel, noise_variance), replicates)
    return OPKB(features, horizon, _constants(constants), seed=seed, first_replicate=first_replicate)


def ada_opkb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    constants: str | Constants = "tuned",
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """ADA-OPKB: OPKB that replays old strategies to detect changes, and restarts (Hong et al. 2023, Algorithm 3)."""
    features = FixedFeatures(_features(arms, kernel, noise_variance), replicates)
    return AdaOPKB(features, horizon, _constants(constants), seed=seed, first_replicate=first_replicate)


def ada_opkb_calibrated(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    run_length: float = 1e5,
    prior_mean: Number = 0.0,
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """ADA-OPKB without tuning: GP gaps, a residual change test with a mean run length, no horizon.

    ``run_length``: mean number of steps between false alarms. Source: Hong et al. 2023, changed as ``CalibratedOPKB``
    says. Raises ValueError for ``replicates`` below 1.
    """
    validation.positive_integer("replicates", replicates)
    model = ArmGP(arms, kernel, noise_variance, prior_mean=prior_mean, batch_shape=(replicates,))
    return CalibratedOPKB(model, run_length=run_length, seed=seed, first_replicate=first_replicate)


def opnn(
    arms: Tensor,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    hidden: int = 256,
    depth: int = 3,
    training_steps: int = 200,
    regulariser: float = 0.01,
    constants: str | Constants = "tuned",
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """OPNN: OPKB on the gradients of a ReLU network trained block by block (Hong et al. 2023, Algorithm 5).

    ``hidden`` units in each of the ``depth`` - 1 hidden layers; ``training_steps`` of gradient descent a block;
    ``regulariser``: lambda, the weight of m |W - W0|^2 / 2 in the loss (``NeuralFeatures``). Raises ValueError
    for sizes below 1.
    """
    features = NeuralFeatures(
        arms,
        validation.positive_integer("hidden", hidden),
        depth,
        training_steps,
        regulariser,
        replicates,
        seed=seed,
        first_replicate=first_replicate,
    )
    return OPKB(features, horizon, _constants(constants), seed=seed, first_replicate=first_replicate)


def ada_opnn(
    arms: Tensor,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    hidden: int = 256,
    depth: int = 3,
    training_steps: int = 200,
    regulariser: float = 0.01,
    constants: str | Constants = "tuned",
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """ADA-OPNN: OPNN with the replays, tests and restarts of ADA-OPKB (Hong et al. 2023, Algorithm 7).

    ``hidden``, ``depth``, ``training_steps``, ``regulariser``: as for ``opnn``. Raises ValueError for sizes below 1.
    """
    features = NeuralFeatures(
        arms,
        validation.positive_integer("hidden", hidden),
        depth,
        training_steps,
        regulariser,
        replicates,
        seed=seed,
        first_replicate=first_replicate,
    )
    return AdaOPKB(features, horizon, _constants(constants), seed=seed, first_replicate=first_replicate)


def master_gp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    thresholds: str | MasterThresholds = "calibrated",
    rkhs_bound: Number = 1.0,
    noise_scale: float | None = None,
    delta: float = 0.1,
    width: Any = None,
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """MASTER over GP-UCB (Wei & Luo 2021; Hong et al. 2023, appendix E).

    ``thresholds="theory"``: rho(t) = width_t sqrt(gamma_{t-1} ln(T/delta) / t), as in Lemma E.3, with the tests of
    Wei & Luo. ``"calibrated"`` or thresholds of one's own: rho(t) from GP-UCB runs of the whole horizon on 16 draws of
    the prior (``simulated_rate``), which takes some seconds beforehand at T = 10 000. There is one rho, that of the
    replicates' largest B and mean noise: one of many is the replicate alone only where they agree in both.

    Raises ValueError for other ``thresholds``.
    """
    validation.instance(
        "thresholds", thresholds, (str, MasterThresholds), "'theory', 'calibrated' or MasterThresholds"
    )
    if isinstance(thresholds, str):
        named = ("theory", "calibrated")
        validation.require(
            thresholds in named, "thresholds", thresholds, "'theory', 'calibrated' or MasterThresholds"
        )
    validation.positive_integer("horizon", horizon)
    lam = _one_noise(noise_variance)
    scale = math.sqrt(lam) if noise_scale is None else noise_scale
    bound = torch.as_tensor(rkhs_bound)

    def gp_ucb(B: float, copies: int = 1) -> IndexPolicy:
        used = _width(width) or IGPWidth(B, scale, delta, RealisedGain())
        model = ArmGP(arms, kernel, lam, batch_shape=(copies,))
        return IndexPolicy(model, UpperConfidenceBound, width=used)

    def base(replicate: int) -> Policy:
        return gp_ucb(float(bound if bound.dim() == 0 else bound[replicate - first_replicate]))

    prior, largest = ArmGP(arms, kernel, lam), float(bound.max())
    if thresholds == "theory":
        limits = MasterThresholds.theory(horizon, delta)
        rho = _lemma_e3(prior, _width(width), largest, scale, delta, horizon)
    else:
        limits = thresholds if isinstance(thresholds, MasterThresholds) else MasterThresholds.calibrated()
        phi = features_of_covariance(prior.prior.matrix().squeeze(0))
        streams = ReplicateStreams(seed, _SIMULATED, purpose="policy", dtype=phi.dtype, device=phi.device)
        functions = streams.normal(phi.shape[1]) @ phi.mT
        noise = math.sqrt(lam) * torch.stack([streams.normal() for _ in range(horizon)])
        rate = simulated_rate(gp_ucb(largest, _SIMULATED), functions, noise).tolist()
        rho = lambda t: rate[min(t, horizon) - 1]  # noqa: E731
    return Master(
        base,
        rho,
        limits,
        prior.num_arms,
        replicates=replicates,
        seed=seed,
        first_replicate=first_replicate,
        device=prior.arms.device,
    )


def _lemma_e3(
    prior: ArmGP, width: Width | None, rkhs_bound: float, scale: float, delta: float, horizon: int
) -> Callable[[int], float]:
    """rho(t) = width_t sqrt(gamma_{t-1} ln(T/delta) / t), with gamma at least 1; constant beyond T."""
    gain = MaximumGain(prior.prior.matrix().squeeze(0), prior.noise_variance, horizon, upper_bound=False)
    planned = width or IGPWidth(rkhs_bound, scale, delta, gain)

    @cache
    def rho(t: int) -> float:
        t = min(t, horizon)
        gamma = max(1.0, float(gain(t - 1, prior)))
        return float(planned(t, prior)) * math.sqrt(gamma * math.log(horizon / delta) / t)

    return rho


def w_gp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    discount: float = 0.9995,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
    replicates: int = 1,
) -> IndexPolicy:
    """WGP-UCB: GP-UCB on observations weighted by discount^age, with both weight matrices (Deng et al. 2022).

    Raises ValueError for a ``discount`` outside (0, 1] and ``replicates`` below 1.
    """
    validation.positive_integer("replicates", replicates)
    model = WeightedGP(arms, kernel, noise_variance, discount=discount, batch_shape=(replicates,))
    scale = model.noise_variance.sqrt() if noise_scale is None else noise_scale
    own = IGPWidth(rkhs_bound, scale, delta, RealisedGain())
    noise = model.noise_variance
    index = torch.arange(model.num_arms, dtype=noise.dtype, device=noise.device).unsqueeze(-1)
    return IndexPolicy(model, UpperConfidenceBound, width=_width(width) or own, choices=index)


def _one_noise(noise_variance: Number) -> float:
    """lambda, the average where replicates differ."""
    like = torch.zeros((), dtype=torch.float64)
    return float(validation.numbers("noise_variance", noise_variance, like).mean())


def _features(arms: Tensor | int, kernel: Kernel | Tensor, noise_variance: Number) -> Tensor:
    """phi (N, p) with the kernel's Gram matrix over the arms."""
    lam = _one_noise(noise_variance)
    return features_of_covariance(ArmGP(arms, kernel, lam).prior.matrix().squeeze(0))


def _constants(constants: str | Constants) -> Constants:
    if isinstance(constants, Constants):
        return constants
    validation.require(
        constants in ("tuned", "theory"), "constants", constants, "'tuned', 'theory' or Constants"
    )
    return Constants.tuned() if constants == "tuned" else Constants.theory()


def _width(width: float | Width | None) -> Width | None:
    return width if width is None or isinstance(width, Width) else ConstantWidth(width)

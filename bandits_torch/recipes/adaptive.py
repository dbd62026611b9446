"""Recipes for rewards that change: MASTER, detection augmented learning, weighted GP-UCB, OPKB, phased elimination.

The OPKB family plays balanced designs in blocks. ``constants``: ``"tuned"``, ``"theory"`` or a ``Constants``.
``reward_scale``: divides the rewards minus ``prior_mean``. In section 2 of Hong, Li & Tewari (2023) it is S + B, with S
a bound on the noise and B one on the rewards; see also ``subgaussian_scale``. ``"warm-up"``: centre and scale are
learned in block 0. None: the scale of ``constants``, by default 1. With a scale other than 1, the kernel is divided by
its largest variance, because the paper assumes k(x, x) <= 1 (Assumption 1).

The other recipes take the unit of rewards from kernel and noise variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies.batches import PhasedElimination, batch_sizes
from bandits_torch.policies.detection import DetectionAugmented, Master, MasterThresholds, simulated_rate
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.opkb.calibrated import CalibratedOPKB
from bandits_torch.policies.opkb.features import FeatureSource, FixedFeatures, NeuralFeatures
from bandits_torch.policies.opkb.opkb import OPKB, AdaOPKB, Constants
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.wrapping import CentredPolicy
from bandits_torch.recipes.index_policies import igp_ucb
from bandits_torch.recipes.parts import (
    arm_settings,
    as_width,
    balanced_length,
    in_float64,
    model_over,
    norm_width,
    one_noise,
    one_prior_mean,
    over_arms,
)
from bandits_torch.recipes.registration import (
    OWN_WIDTH_AND_CONSTANT,
    RECIPES,
    REGISTERED,
    RUN,
    Number,
    Setup,
    recipe,
)
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.optimal_design import features_of_covariance
from bandits_torch.theory.widths import IGPWidth, MaximumGain, PermutationWidth, RealisedGain, Width, checked

_TAKES = (*RUN, "prior_mean")
_SIMULATED = 16  # runs that calibrate MASTER's rho
_NETWORK = {"hidden": 16, "training_steps": 5}
_RACED_NETWORK: dict[str, dict[str, Any]] = {"": {"hidden": 64, "training_steps": 50}}


@recipe(takes=_TAKES, seeded=True, quick={"rkhs_bound": 4.0}, race=OWN_WIDTH_AND_CONSTANT)
def master_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    thresholds: str | MasterThresholds = "calibrated",
    rkhs_bound: Number = 1.0,
    noise_scale: float | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """MASTER over GP-UCB (Wei & Luo 2021; Hong et al. 2023, appendix E).

    ``thresholds="theory"``: rho(t) = width_t sqrt(gamma_{t-1} ln(T/delta) / t), as in Lemma E.3, with the tests of Wei
    & Luo. ``"calibrated"`` or a ``MasterThresholds``: rho(t) from GP-UCB runs over the whole horizon on 16 draws of the
    prior (``simulated_rate``), some seconds at T = 10 000. All replicates share one rho, for their largest B and mean
    noise; so a replicate alone repeats its run only if all have the same.

    Raises ValueError for other ``thresholds``.
    """
    expected = "'theory', 'calibrated' or MasterThresholds"
    known = isinstance(thresholds, MasterThresholds) or thresholds in ("theory", "calibrated")
    validation.require(known, "thresholds", thresholds, expected)
    validation.positive_integer("horizon", horizon)
    if noise_scale is not None:
        validation.positive("noise_scale", noise_scale)
    lam = one_noise(setup)
    bound = torch.as_tensor(checked(validation.non_negative, "rkhs_bound", rkhs_bound))
    setup = replace(setup, noise_variance=lam)
    base: Any = partial(igp_ucb, noise_scale=noise_scale, delta=delta, width=width)
    prior, largest = _gp(setup, lam), float(bound.max())
    if thresholds == "theory":
        limits = MasterThresholds.theory(horizon, delta)
        rate = _lemma_e3(prior, as_width(width), largest, noise_scale, delta, horizon)
    else:
        limits = thresholds if isinstance(thresholds, MasterThresholds) else MasterThresholds.calibrated()
        phi = features_of_covariance(prior.prior.matrix().squeeze(0))
        streams = ReplicateStreams(setup.seed, _SIMULATED, purpose="policy", like=phi)
        functions = streams.normal(phi.shape[1]) @ phi.mT + prior.marginals()[0]
        noise = math.sqrt(lam) * torch.stack([streams.normal() for _ in range(horizon)])
        simulated = base(replace(setup, replicates=_SIMULATED), rkhs_bound=largest)
        rate = simulated_rate(simulated, functions, noise).tolist()
    run = {"replicates": setup.replicates, "device": prior.arms.device, **setup.seeds}
    build = partial(base, setup, rkhs_bound=bound)
    return Master(build, partial(_of_step, rate), limits, prior.num_arms, **run)


@recipe(optional=True, takes=_TAKES, seeded=True, quick={"exploration": 0.3}, race=OWN_WIDTH_AND_CONSTANT)
def dal(
    setup: Setup,
    *,
    horizon: int,
    base: str | Callable[[Setup], Policy] = "gp_ucb",
    noise_scale: Number | None = None,
    delta: float | None = None,
    exploration: float | None = None,
    width: Any = None,
) -> Policy:
    """Detection augmented learning around any stationary recipe (Gerogiannis et al. 2025, arXiv 2501.19401).

    The base plays, some arms are tried in turn, and a likelihood ratio test of each arm's rewards resets the base
    (``DetectionAugmented``). With a kernel, the arms tried in turn are picked one by one, each the most uncertain given
    those before, until no arm has more than half of the largest prior variance left. Without a kernel, all are tried.

    ``base``: the name of a recipe, or a function of a ``Setup``; a named recipe that takes ``horizon`` or ``width``
    gets them. ``delta``: failure probability of the test, by default 1 / sqrt(``horizon``), at most
    1/2;  ``exploration``: rate of forced exploration, by default sqrt(M ln T / T) for M arms tried, at most 0.1.

    Raises ValueError over a ``Domain``, for an unknown ``base`` or one that cannot learn from forced pulls, for a
    ``width`` that the base does not take, and if neither the noise variance nor ``noise_scale`` is given.
    """
    scale: Any = None if noise_scale is None else checked(validation.positive, "noise_scale", noise_scale)
    if scale is None:
        given = setup.noise_variance is not None
        validation.require(given, "noise_scale", None, "given if the noise variance is not")
        scale = in_float64("noise_variance", cast(Any, setup.noise_variance)).sqrt()
    if isinstance(base, str):
        validation.require(base in REGISTERED, "base", base, "the name of a recipe, or a function of a Setup")
        build, takes = RECIPES[base], REGISTERED[base].options
    else:
        validation.function("base", base, "the name of a recipe, or a function of a Setup")
        build, takes = base, {}
    fits = width is None or "width" in takes
    validation.require(fits, "width", width, "None for a base that takes no width")
    more = {"horizon": horizon, "width": width}
    policy = build(setup, **{name: more[name] for name in more if name in takes})
    expected = "of an IndexPolicy or ArmPolicy that learns any arm's reward"
    validation.require(DetectionAugmented.takes(policy), "base", type(policy).__name__, expected)
    if setup.kernel is None:
        arms = arm_settings(setup)
        watched = torch.arange(arms["num_arms"], device=arms["device"])
    else:  # the pivots of a pivoted Cholesky factor
        prior = _gp(setup, float(torch.as_tensor(scale).square().mean())).prior
        left = prior.diagonal().mean(0)
        most, root, chosen = left.max() / 2, left.new_zeros(len(left), 0), []
        while bool(left.max() > most):
            i = left.argmax()
            chosen.append(i)
            column = (prior.rows(i.reshape(1)).mean(0).squeeze(0) - root @ root[i]) / left[i].sqrt()
            root, left = torch.cat([root, column.unsqueeze(-1)], -1), left - column.square()
        watched = torch.stack(chosen)
    settings = {"noise_scale": scale, "delta": delta, "exploration": exploration}
    return DetectionAugmented(policy, horizon=horizon, watched=watched, **settings)


def _of_step(rate: list[float], t: int) -> float:
    """rho(t), t >= 1, from the list of rho(1), rho(2), ...; constant after its end."""
    return rate[min(t, len(rate)) - 1]


def _lemma_e3(
    prior: ArmGP, width: Width | None, rkhs_bound: float, scale: Number | None, delta: float, horizon: int
) -> list[float]:
    """rho(t) = s width_t sqrt(gamma_{t-1} ln(T/delta) / t) for t = 1, ..., T, with gamma at least 1.

    s^2 = max k(x, x) gives rho the unit of rewards, because the lemma assumes k(x, x) <= 1.
    """
    unit = math.sqrt(float(prior.prior.diagonal().max()))
    gain = MaximumGain(prior.prior.matrix().squeeze(0), prior.noise_variance, horizon, upper_bound=False)
    width = width or IGPWidth(rkhs_bound, scale, delta, gain)
    rate = []
    for t in range(1, horizon + 1):
        gamma = max(1.0, float(gain(t - 1, prior)))
        rate.append(unit * float(width(t, prior)) * math.sqrt(gamma * math.log(horizon / delta) / t))
    return rate


@recipe(takes=_TAKES, race=OWN_WIDTH_AND_CONSTANT, passes_to=norm_width)
def w_gp_ucb(setup: Setup, *, discount: float = 0.9995, **options: Any) -> Policy:
    """WGP-UCB: GP-UCB on observations weighted by discount^age, with both weight matrices (Deng et al. 2022).

    The width holds at each step with probability 1 - ``delta``. For T steps at once, pass delta / T (``WeightedGP``).

    Raises ValueError for a ``discount`` outside (0, 1].
    """
    model = WeightedGP(**over_arms(setup), discount=discount)
    width = norm_width(partial(IGPWidth, gain=RealisedGain()), **options)
    return IndexPolicy(model, UpperConfidenceBound, width=width)


def _gp(setup: Setup, noise_variance: float) -> ArmGP:
    """A GP over the arms, the same for all replicates."""
    return ArmGP(**over_arms(setup) | {"noise_variance": noise_variance, "batch_shape": ()})


def _in_blocks(
    kind: type[OPKB],
    setup: Setup,
    network: tuple[int, int, int, float] | None = None,
    *,
    horizon: int,
    constants: str | Constants = "tuned",
    reward_scale: float | str | None = None,
) -> Policy:
    """A policy of a ``kind`` on the features of the kernel, or of a ``network`` (hidden, depth, training_steps,
    regulariser). A wrapper subtracts the prior mean from its rewards, because OPKB has none."""
    if not isinstance(constants, Constants):
        named = {"tuned": Constants.tuned, "theory": Constants.theory}
        known = isinstance(constants, str) and constants in named
        validation.require(known, "constants", constants, "'tuned', 'theory' or Constants")
        constants = named[constants]()
    if reward_scale is not None:
        constants = replace(constants, reward_scale=reward_scale)
    features: FeatureSource
    if network is not None:
        validation.positive_integer("hidden", network[0])
        arms = cast(Tensor, setup.choices)
        features = NeuralFeatures(arms, *network, setup.replicates, **setup.seeds)
    else:
        matrix = _gp(setup, one_noise(setup)).prior.matrix().squeeze(0)
        if constants.reward_scale != 1:
            matrix = matrix / matrix.diagonal().max().clamp_min(torch.finfo(matrix.dtype).tiny)
        features = FixedFeatures(features_of_covariance(matrix), setup.replicates)
    mean = one_prior_mean(setup)
    policy = kind(features, horizon, constants, **setup.seeds)
    return CentredPolicy(policy, mean) if mean else policy


_IN_BLOCKS: dict[str, Any] = {"takes": _TAKES, "seeded": True, "one_mean": True, "passes_to": _in_blocks}


@recipe(**_IN_BLOCKS)
def opkb(setup: Setup, **options: Any) -> Policy:
    """OPKB: randomised blocks that balance estimated gaps and log det (Hong, Li & Tewari 2023, Algorithm 2)."""
    return _in_blocks(OPKB, setup, **options)


@recipe(**_IN_BLOCKS)
def ada_opkb(setup: Setup, **options: Any) -> Policy:
    """ADA-OPKB: OPKB that replays old strategies to detect changes, and restarts (Hong et al. 2023, Algorithm 3)."""
    return _in_blocks(AdaOPKB, setup, **options)


@recipe(takes=_TAKES, seeded=True)
def ada_opkb_calibrated(setup: Setup, *, run_length: float = 1e5) -> Policy:
    """ADA-OPKB without tuning: GP gaps, a residual change test with a mean run length, no horizon.

    ``run_length``: least mean number of steps between false alarms. ``CalibratedOPKB`` lists the differences from its
    source (Hong et al. 2023).
    """
    return CalibratedOPKB(cast(ArmGP, model_over(setup)), run_length=run_length, **setup.seeds)


@recipe(belief=None, quick=_NETWORK, race=_RACED_NETWORK, **_IN_BLOCKS)
def opnn(
    setup: Setup,
    *,
    hidden: int = 256,
    depth: int = 3,
    training_steps: int = 200,
    regulariser: float = 0.01,
    **options: Any,
) -> Policy:
    """OPNN: OPKB on the gradients of a ReLU network trained block by block (Hong et al. 2023, Algorithm 5).

    ``hidden`` units in each of the ``depth`` - 1 hidden layers; ``training_steps`` of gradient descent per block;
    ``regulariser``: lambda, the weight of m |W - W0|^2 / 2 in the loss (``NeuralFeatures``). Raises ValueError
    for sizes below 1.
    """
    return _in_blocks(OPKB, setup, (hidden, depth, training_steps, regulariser), **options)


@recipe(belief=None, quick=_NETWORK, race=_RACED_NETWORK, **_IN_BLOCKS)
def ada_opnn(
    setup: Setup,
    *,
    hidden: int = 256,
    depth: int = 3,
    training_steps: int = 200,
    regulariser: float = 0.01,
    **options: Any,
) -> Policy:
    """ADA-OPNN: OPNN with the replays, tests and restarts of ADA-OPKB (Hong et al. 2023, Algorithm 7).

    ``hidden``, ``depth``, ``training_steps``, ``regulariser``: as for ``opnn``. Raises ValueError for sizes below 1.
    """
    return _in_blocks(AdaOPKB, setup, (hidden, depth, training_steps, regulariser), **options)


@recipe(takes=(*RUN, "prior_mean", "form"), seeded=True, quick={"interval": 9}, race=OWN_WIDTH_AND_CONSTANT)
def r_perp(
    setup: Setup,
    *,
    horizon: int,
    interval: int | None = None,
    variation_budget: Number | None = None,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """R-PERP: phased elimination in random order, restarted every ``interval`` steps (Iwazaki & Takeno 2024).

    ``interval``: H; None for gamma_T^{1/3} (s T / P_T)^{2/3}, s^2 = max k(x, x), which balances the drift within an
    interval, P_T H / T per step, and s sqrt(gamma / H). ``variation_budget``: P_T, the sum over time of the largest
    change of an arm; None if unknown; the formula then uses s. The width's V is the less of P_T and 2 B s.

    Raises ValueError unless ``horizon`` and ``interval`` are integers >= 1.
    """
    validation.positive_integer("horizon", horizon)
    checked(validation.non_negative, "rkhs_bound", rkhs_bound)
    if variation_budget is not None:
        checked(validation.non_negative, "variation_budget", variation_budget)
    model = cast(ArmGP, model_over(setup))
    noise, scale = model.noise_variance, model.prior.diagonal().max().sqrt()
    if interval is None:
        budget = None if variation_budget is None else torch.as_tensor(variation_budget).to(noise) / scale
        interval = balanced_length(model, horizon, (1 / 3, 2 / 3), "variation_budget", budget)
    drift = 2 * torch.as_tensor(rkhs_bound, dtype=noise.dtype) * scale
    if variation_budget is not None:
        drift = torch.minimum(drift, torch.as_tensor(variation_budget, dtype=noise.dtype))
    batches = len(batch_sizes(interval)) * math.ceil(horizon / interval)
    theorem = PermutationWidth(model.num_arms, batches, rkhs_bound, noise_scale, delta, drift)
    return PhasedElimination(model, as_width(width) or theorem, interval, **setup.seeds)

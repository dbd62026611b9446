"""Recipes of the OPKB family: balanced designs in blocks, for unknown changes. See ``recipes`` for common arguments.

``constants``: ``"tuned"``, ``"theory"`` or a ``Constants``. ``reward_scale``: what rewards, less ``prior_mean``, are
divided by: S + B of section 2, with S a bound on the noise and B one on the rewards, or ``subgaussian_scale``;
``"warm-up"``: centre and scale are learnt in block 0; None: what ``constants`` say, 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.centred import CentredPolicy
from bandits_torch.policies.opkb.ada_opkb import AdaOPKB
from bandits_torch.policies.opkb.blocks import BlockPolicy
from bandits_torch.policies.opkb.calibrated import CalibratedOPKB
from bandits_torch.policies.opkb.constants import Constants
from bandits_torch.policies.opkb.features import FeatureSource, FixedFeatures
from bandits_torch.policies.opkb.neural import NeuralFeatures
from bandits_torch.policies.opkb.opkb import OPKB
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.parts import model_over, one_noise, one_prior_mean
from bandits_torch.recipes.registration import RUN, recipe
from bandits_torch.recipes.setup import Setup
from bandits_torch.theory.optimal_design import features_of_covariance

Arms = Tensor | int
_TAKES = (*RUN, "prior_mean")
_NETWORK = {"hidden": 16, "training_steps": 5}
_RACED_NETWORK: dict[str, dict[str, Any]] = {"": {"hidden": 64, "training_steps": 50}}


@recipe(takes=_TAKES, seeded=True, one_mean=True)
def opkb(
    setup: Setup,
    *,
    horizon: int,
    constants: str | Constants = "tuned",
    reward_scale: float | str | None = None,
) -> Policy:
    """OPKB: randomised blocks that balance estimated gaps and log det (Hong, Li & Tewari 2023, Algorithm 2)."""
    features = FixedFeatures(_features(setup), setup.replicates)
    return _in_blocks(OPKB, setup, features, horizon, constants, reward_scale)


@recipe(takes=_TAKES, seeded=True, one_mean=True)
def ada_opkb(
    setup: Setup,
    *,
    horizon: int,
    constants: str | Constants = "tuned",
    reward_scale: float | str | None = None,
) -> Policy:
    """ADA-OPKB: OPKB that replays old strategies to detect changes, and restarts (Hong et al. 2023, Algorithm 3)."""
    features = FixedFeatures(_features(setup), setup.replicates)
    return _in_blocks(AdaOPKB, setup, features, horizon, constants, reward_scale)


@recipe(takes=_TAKES, seeded=True)
def ada_opkb_calibrated(
    setup: Setup,
    *,
    run_length: float = 1e5,
) -> Policy:
    """ADA-OPKB without tuning: GP gaps, a residual change test with a mean run length, no horizon.

    ``run_length``: mean number of steps between false alarms. ``CalibratedOPKB`` lists the
    changes to its source (Hong et al. 2023). Raises ValueError for ``replicates`` below 1.
    """
    model = model_over(setup)
    validation.instance("model", model, ArmGP, "over arms")
    return CalibratedOPKB(
        cast(ArmGP, model), run_length=run_length, seed=setup.seed, first_replicate=setup.first_replicate
    )


@recipe(belief=None, takes=_TAKES, seeded=True, one_mean=True, quick=_NETWORK, race=_RACED_NETWORK)
def opnn(
    setup: Setup,
    *,
    horizon: int,
    hidden: int = 256,
    depth: int = 3,
    training_steps: int = 200,
    regulariser: float = 0.01,
    constants: str | Constants = "tuned",
    reward_scale: float | str | None = None,
) -> Policy:
    """OPNN: OPKB on the gradients of a ReLU network trained block by block (Hong et al. 2023, Algorithm 5).

    ``hidden`` units in each of the ``depth`` - 1 hidden layers; ``training_steps`` of gradient descent per block;
    ``regulariser``: lambda, the weight of m |W - W0|^2 / 2 in the loss (``NeuralFeatures``). Raises ValueError
    for sizes below 1.
    """
    features = _network(setup, hidden, depth, training_steps, regulariser)
    return _in_blocks(OPKB, setup, features, horizon, constants, reward_scale)


@recipe(belief=None, takes=_TAKES, seeded=True, one_mean=True, quick=_NETWORK, race=_RACED_NETWORK)
def ada_opnn(
    setup: Setup,
    *,
    horizon: int,
    hidden: int = 256,
    depth: int = 3,
    training_steps: int = 200,
    regulariser: float = 0.01,
    constants: str | Constants = "tuned",
    reward_scale: float | str | None = None,
) -> Policy:
    """ADA-OPNN: OPNN with the replays, tests and restarts of ADA-OPKB (Hong et al. 2023, Algorithm 7).

    ``hidden``, ``depth``, ``training_steps``, ``regulariser``: as for ``opnn``. Raises ValueError for sizes below 1.
    """
    features = _network(setup, hidden, depth, training_steps, regulariser)
    return _in_blocks(AdaOPKB, setup, features, horizon, constants, reward_scale)


def _features(setup: Setup) -> Tensor:
    """phi (N, p) with the kernel's Gram matrix over the arms."""
    arms, kernel = cast(Arms, setup.choices), cast(Kernel, setup.kernel)
    return features_of_covariance(ArmGP(arms, kernel, one_noise(setup)).prior.matrix().squeeze(0))


def _network(
    setup: Setup, hidden: int, depth: int, training_steps: int, regulariser: float
) -> NeuralFeatures:
    return NeuralFeatures(
        cast(Tensor, setup.choices),
        validation.positive_integer("hidden", hidden),
        depth,
        training_steps,
        regulariser,
        setup.replicates,
        seed=setup.seed,
        first_replicate=setup.first_replicate,
    )


def _in_blocks(
    kind: type[BlockPolicy],
    setup: Setup,
    features: FeatureSource,
    horizon: int,
    constants: str | Constants,
    reward_scale: float | str | None,
) -> Policy:
    """A policy of this kind on rewards without their prior mean, which it knows nothing of."""
    seeds: dict[str, int] = {"seed": setup.seed, "first_replicate": setup.first_replicate}
    mean, used = one_prior_mean(setup), _constants(constants)
    if reward_scale is not None:
        used = replace(used, reward_scale=reward_scale)
    policy = kind(features, horizon, used, **seeds)
    return CentredPolicy(policy, mean) if mean else policy


def _constants(constants: str | Constants) -> Constants:
    if isinstance(constants, Constants):
        return constants
    validation.require(
        constants in ("tuned", "theory"), "constants", constants, "'tuned', 'theory' or Constants"
    )
    return Constants.tuned() if constants == "tuned" else Constants.theory()

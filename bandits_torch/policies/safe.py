"""A policy that plays only arms whose measurements stay within limits, with high probability."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.policies.choices.arms import ModelArms, best_available
from bandits_torch.policies.limited import Bounded, LimitedPolicy, Limits, least_margin, safe_set
from bandits_torch.policies.policy import Choice, Pending
from bandits_torch.theory.widths import Width


class SafePolicy(LimitedPolicy):
    """Plays arms whose reward and outcomes lie within their limits by the confidence bounds of their models.

    At every step the safe set is computed from the posteriors at that time,

        S_t = {x: low_i <= mu_i(x, t) - w_t sigma_i(x, t) and mu_i(x, t) + w_t sigma_i(x, t) <= high_i for all i},

    so under drift arms leave it as their last measurement ages (TVSafeOpt, Li et al. 2024). There is no Lipschitz
    constant over arms or time (GP-SafeOpt). Among the safe arms the policy plays, according to ``explore``:

    * ``"ucb"``: the largest upper bound of the reward: goal-oriented, the better choice for regret;
    * ``"safeopt"``: among maximisers (which may be the best) and expanders (which may enlarge the safe set), the arm
      with the widest bounds relative to its prior. No theorem bounds the regret of either under drift.

    Args:
        model: of the reward, an ``ArmModel`` of batch shape () or (S,).
        outcomes: models of the other measurements, by name, of the same arms and batch shape.
        limits: (low, high) of each outcome, by name, and of ``"reward"`` if it has limits.
        width: of the reward's bounds in choosing.
        safety_width: w_t; ``PosteriorSafetyWidth`` states the theorem.
        safe_arms: (N,) or (S, N) booleans, an initial safe set S_0. It is part of S_t before the first reward
            (``trust="start"``), or always (``trust="always"``: it is known to be safe).
        when_empty: what is played when S_t is empty: ``"likeliest"``, the arm with the most posterior deviations to its
            nearest limit; ``"safe_arms"``, the best of those by upper bound, whatever the models say about them; or
            ``"raise"``, ``NoSafeArmError``. No guarantee holds at such a step; ``trace`` counts it as ``fallback``.

    Late rewards are learned exactly under drift, at the cost of learning all again (``ArmGP``). Cost: that of the
    models, O(m N), and O(m N^2) with ``"safeopt"``.

    Source: Sui et al. 2015; Berkenkamp, Krause & Schoellig 2016 and 2021; Li et al. 2024 (arXiv 2409.18000).

    Raises ValueError for limits without outcomes, outcomes without limits, models of other arms or batches, and names
    and masks of other kinds.
    """

    model: ArmModel
    choices: ModelArms

    def __init__(
        self,
        model: ArmModel,
        outcomes: Mapping[str, ArmModel],
        limits: Mapping[str, Limits],
        *,
        width: Width,
        safety_width: Width,
        safe_arms: Tensor | None = None,
        trust: str = "start",
        when_empty: str = "likeliest",
        explore: str = "ucb",
    ) -> None:
        self._set_fallback(trust, when_empty, "safe_arms", safe_arms)
        validation.one_of("explore", explore, "ucb", "safeopt")
        self._set_up(model, outcomes, limits, (width, safety_width), ArmModel, ModelArms)
        self.explore, self.safe_arms = explore, self._checked_arms(safe_arms)
        models = {"reward": model, **outcomes}  # with nothing observed yet
        self._scale = {name: one.marginals()[1].amax(-1, keepdim=True).sqrt() for name, one in models.items()}
        self._learned: dict[str, Bounded] | None = None

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The best available arm of the safe set; ``why["certain"]`` (S,) says whether it was in S_t.

        Raises NoSafeArmError if there is none and ``when_empty`` is ``"raise"``.
        """
        if available is not None:
            self.choices.check_available(available)
        functions = self._functions(time)  # with what is pending, if anything is
        learned = functions if self._learned is None else self._learned
        certain = safe_set(list(learned.values()))
        safe = certain | self._vouched()
        allowed = safe if available is None else safe & available
        lost = ~allowed.any(-1)
        played = torch.where(lost.unsqueeze(-1), self._fallback(learned, available, lost), allowed)
        mean, variance = self.choices.marginals(time)
        half = self._column(self.width.at(self._clock + 1, self.model)) * variance.sqrt()
        if self.explore == "ucb":
            score = mean + half
        else:
            played = self._worth_a_look(played, safe, functions, mean, half, time)
            deviations = {"reward": variance.sqrt()} | {
                name: one.deviation for name, one in functions.items()
            }
            # The widest of an arm's bounds, in prior standard deviations.
            score = torch.stack([value / self._scale[name] for name, value in deviations.items()]).amax(0)
        index, arm = best_available(score.mT, played)
        self._tell(certain.sum(-1), lost)
        return Choice(arm, {"index": index, "certain": ~lost})

    def safe_set(self, time: float) -> Tensor:
        """S_t, (S, N) booleans: arms within all limits by the bounds at ``time``, without the initial safe set."""
        with torch.no_grad():
            return safe_set(list(self._functions(time).values()))

    def _functions(self, time: float) -> dict[str, Bounded]:
        """Posteriors and bounds of the functions that have limits."""
        functions = {}
        for name in self.limits:
            mean, variance = self._others.get(name, self.choices).marginals(time)
            functions[name] = self._bounded(name, mean, variance)
        return functions

    def _vouched(self) -> Tensor:
        """Arms of the initial safe set, if it counts now, (S, N)."""
        if self.trust == "always":
            return self.safe_arms
        return self.safe_arms & self._first()

    def _fallback(self, functions: dict[str, Bounded], available: Tensor | None, lost: Tensor) -> Tensor:
        """Arms (S, N) to play if no arm is safe."""
        self._check_not_lost(lost, "arm")
        margin = least_margin(list(functions.values()))
        if available is not None:
            margin = margin.masked_fill(~available, -torch.inf)
        if self.when_empty == "safe_arms":
            initial = self.safe_arms if available is None else self.safe_arms & available
            margin = torch.where(initial.any(-1, keepdim=True), initial.to(margin), margin)
        return margin == margin.amax(-1, keepdim=True)

    def _worth_a_look(
        self,
        played: Tensor,
        safe: Tensor,
        functions: dict[str, Bounded],
        mean: Tensor,
        half: Tensor,
        time: float,
    ) -> Tensor:
        """Maximisers and expanders among the arms that may be played."""
        models = [self._model(name) for name in functions]
        shape = (self.replicates, self.num_arms, self.num_arms)
        joint = [model.joint(time)[1].reshape(shape) for model in models]
        noise = [self._column(model.noise_variance) for model in models]
        expanding = expanders(safe, list(functions.values()), joint, noise)
        return played & (maximisers(played, mean, half) | expanding)

    _expects = ("choices", "_others", "_learned")

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls lower the variances that score arms. The safe set depends only on learned measurements, because
        a measurement that is only expected makes nothing safer."""
        if self._learned is None:
            self._learned = self._functions(time)
        for one in (self.choices, *self._others.values()):
            one.expect(pending.arm, pending.time)

    def _checked_arms(self, safe_arms: Tensor | None) -> Tensor:
        shape = (self.replicates, self.num_arms)
        device = self.model.noise_variance.device
        if safe_arms is None:
            return torch.zeros(shape, dtype=torch.bool, device=device)
        validation.tensor("safe_arms", safe_arms)
        validation.require(safe_arms.dtype == torch.bool, "safe_arms", safe_arms.dtype, "booleans, a mask")
        fits = safe_arms.shape in (shape, shape[1:])
        validation.shape_is("safe_arms", safe_arms, fits, f"{shape[1:]} or {shape}")
        some = bool(safe_arms.any(-1).all())
        validation.require(some, "safe_arms", safe_arms, "a mask with an arm in every replicate")
        return safe_arms.to(device).expand(shape).clone()


def expanders(
    safe: Tensor, functions: list[Bounded], joint: list[Tensor], noise_variance: list[Tensor]
) -> Tensor:
    """Safe arms whose most favourable outcome would make an arm safe that is not, (S, N) booleans.

    For arm x the outcome favourable to a lower limit is u(x), to an upper limit l(x). After it, each function's bounds
    at x' are those of the posterior with that observation (Berkenkamp et al., equation of G_n). O(S N^2) a limit.

    Args:
        safe: (S, N).
        joint: posterior covariance (S, N, N) of each function.
        noise_variance: (S, 1) of each function.
    """
    reached = ~safe.unsqueeze(-2)  # x in rows, x' in columns
    for one, covariance, noise in zip(functions, joint, noise_variance, strict=True):
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        gain = covariance / (variance + noise).unsqueeze(-1)  # C(x, x') / (C(x, x) + lambda)
        left = (variance.unsqueeze(-2) - gain * covariance).clamp_min(0).sqrt()
        half, width = (one.width * one.deviation).unsqueeze(-1), one.width.unsqueeze(-1)
        for limit, sign in zip(one.limits, (1.0, -1.0), strict=True):
            if math.isfinite(limit):
                bound = one.mean.unsqueeze(-2) + sign * (gain * half - width * left)
                reached = reached & (sign * (bound - limit) >= 0)
    return safe & reached.any(-1)


def maximisers(safe: Tensor, mean: Tensor, half: Tensor) -> Tensor:
    """Safe arms whose upper bound ``mean + half`` is at least the best lower bound of a safe arm, (S, N) booleans."""
    best = (mean - half).masked_fill(~safe, -torch.inf).amax(-1, keepdim=True)
    return safe & (mean + half >= best)

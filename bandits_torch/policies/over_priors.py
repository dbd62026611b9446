"""Policies for an unknown prior: UCB over a set of candidate priors, and what is done about the wrong ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.over_priors import (
    BayesianOverPriors,
    LikeliestPrior,
    OptimisticOverPriors,
    OverPriors,
)
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.policies.policy import (
    Choice,
    Observation,
    Policy,
    best_available,
    check_available,
    check_observation,
    check_why,
    copied_state,
)
from bandits_torch.theory.prior_widths import elimination_xi
from bandits_torch.theory.widths import Width


class UnknownPriorPolicy(Policy):
    """UCB under every prior of a set, reduced to one value per arm; every prior learns every reward.

    Args:
        model: an ``ArmGP`` of batch shape (S, P): replicates, candidate priors (``arm_gp_over_priors``).
        width: multiplies sigma; its value may differ between priors.

    A step costs one batched step of the model. ``trace`` records the prior played. Ties between arms go to the
    smallest index, ties between priors to the first. An index that is NaN is never chosen.

    Raises ValueError for a model of another batch shape than (S, P).
    """

    changeable = ("width", "search")
    _MODELS: tuple[type, ...] = (ArmGP,)
    _TOLD: tuple[str, ...] = ("prior",)  # what ``learn`` needs of the choice

    def __init__(self, model: ArmGP, width: Width) -> None:
        validation.instance("model", model, self._MODELS, "an ArmGP")
        validation.instance("width", width, Width, "a Width")
        two = len(model.batch_shape) == 2
        validation.require(two, "model.batch_shape", tuple(model.batch_shape), "(S, P): replicates, priors")
        self.model, self.width = model, width.bind(model, None)
        self.replicates, self.num_priors = model.batch_shape
        self.num_arms = getattr(model, "num_arms", 0)
        self._clock: int | Tensor = 0  # steps since the start, (S,) once replicates differ in it
        self._prior = torch.zeros(self.replicates, dtype=torch.long, device=model.noise_variance.device)

    @abstractmethod
    def _over(self, base: UpperConfidenceBound) -> OverPriors:
        """How the scores under the priors become one."""

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The best available arm of each replicate, and the prior it was chosen by."""
        if available is not None:
            check_available(available, self.replicates, self.num_arms)
        width = self.width(self._step(1), self.model).expand(self.model.batch_shape)
        base = UpperConfidenceBound(self.model, width)
        scores = base(self.model.candidates(time))  # N x S x P
        values, priors = self._over(base).reduce(scores)  # N x S each
        _, arm = best_available(values, available)
        prior = priors.gather(0, arm.unsqueeze(0)).squeeze(0)
        return Choice(arm, {"prior": prior, "width": width.gather(-1, prior.unsqueeze(-1)).squeeze(-1)})

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Every prior observes the reward."""
        self._check(observation)
        self._observe(observation)
        self._clock = self._clock + 1
        self._prior = observation.why["prior"]

    def _check(self, observation: Observation) -> None:
        check_observation(observation, self.replicates, self.num_arms)
        check_why(observation, self.replicates, *self._TOLD)

    def _observe(self, observation: Observation) -> None:
        arm, reward = observation.arm.unsqueeze(-1), observation.reward.unsqueeze(-1)
        self.model.observe_arms(arm, reward, observation.time)

    def _step(self, ahead: int = 0) -> int | Tensor:
        """The step, or the one so many ahead, as widths take it: broadcasting to (S, P)."""
        clock = self._clock + ahead
        return clock.unsqueeze(-1) if isinstance(clock, Tensor) else clock

    def trace(self) -> dict[str, Tensor | float]:
        """The prior played."""
        return {"prior": self._prior}

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything, the width's clock too."""
        if where is None:
            self.model.reset()
            self._clock = 0
        else:
            self.model.reset(where.unsqueeze(-1).expand(self.model.batch_shape))
            self._clock = torch.where(where, 0, self._clock)

    def state_dict(self) -> dict[str, Any]:
        """Model, clock and the prior played last."""
        return {"model": copied_state(self.model), "clock": self._clock, "prior": self._prior.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        self.model.load_state_dict(state["model"])
        self._clock, self._prior = state["clock"], state["prior"].clone()


class LikeliestPriorPolicy(UnknownPriorPolicy):
    """GP-UCB under the prior of the largest marginal likelihood (type II maximum likelihood).

    Source: the type II likelihood baseline of Ziomek et al. 2024, section 7. Arguments: see ``UnknownPriorPolicy``.
    """

    def _over(self, base: UpperConfidenceBound) -> OverPriors:
        return LikeliestPrior(base, self.model.log_likelihood)


class BayesianPriorPolicy(UnknownPriorPolicy):
    """Mean UCB over the priors, weighted by their posterior probabilities (equal before the first reward).

    Source: the fully Bayesian baseline of Ziomek et al. 2024, section 7. Arguments: see ``UnknownPriorPolicy``.
    """

    def _over(self, base: UpperConfidenceBound) -> OverPriors:
        return BayesianOverPriors(base, self.model.log_likelihood)


class PriorElimination(UnknownPriorPolicy):
    """PE-GP-UCB: play the largest UCB of any surviving prior; drop the prior whose predictions fail.

    (x_t, p_t) = argmax over arms and surviving priors of mu^p_{t-1} + width^p_t sigma^p_{t-1}; with
    eta_t = y_t - mu^{p_t}_{t-1}(x_t) and S the steps at which p_t was played, p_t is dropped when

        |sum_{i in S} eta_i| > sqrt(xi_t |S|) + sum_{i in S} width_i sigma^{p_t}_{i-1}(x_i).

    Source: Ziomek et al. 2024, Algorithm 1, with two corrections. The print has sigma_i where the proof has
    sigma_{i-1}, the deviation before the observation; with sigma_i the true prior is rejected in most runs
    (tests/claims). And xi_t = 2 R^2 ln(2 |U| pi^2 t^2 / (3 delta)): the print loses the 2 of a two-sided event.

    Args:
        model, width: see ``UnknownPriorPolicy``; the theorem's widths are ``PriorEliminationFiniteWidth`` and
            ``PriorEliminationContinuousWidth``.
        delta: failure probability.
        noise_scale: R, a number or a tensor that broadcasts to (S, P); default: sqrt(lambda).
        xi: ``"two-sided"`` or ``"printed"``, the form of xi_t.

    The last surviving prior is never dropped. ``trace`` records the prior played, how many survive, the one
    dropped in this step (-1: none), and whether the last one was refuted too (so that none of the set fits).

    Raises ValueError unless 0 < ``delta`` < 1, ``noise_scale`` > 0 and ``xi`` is one of the two.
    """

    def __init__(
        self,
        model: ArmGP,
        width: Width,
        *,
        delta: float = 0.1,
        noise_scale: float | Tensor | None = None,
        xi: str = "two-sided",
    ) -> None:
        super().__init__(model, width)
        self.delta, self.xi = validation.probability("delta", delta), xi
        if noise_scale is None:
            noise_scale = model.noise_variance.sqrt()
        scale = validation.numbers("noise_scale", noise_scale, model.noise_variance)
        validation.require(
            bool((scale.isfinite() & (scale > 0)).all()), "noise_scale", scale, "finite and > 0"
        )
        self._noise_scale = scale.expand(model.batch_shape)
        elimination_xi(1, self.num_priors, self._noise_scale, self.delta, xi)  # is there such a form?
        self.surviving = torch.ones(model.batch_shape, dtype=torch.bool, device=scale.device)
        self._errors, self._bounds, self._plays = (
            torch.zeros(model.batch_shape, dtype=scale.dtype, device=scale.device) for _ in range(3)
        )
        self._dropped = torch.full_like(self._prior, -1)
        self._refuted = torch.zeros_like(self._prior, dtype=torch.bool)

    def _over(self, base: UpperConfidenceBound) -> OverPriors:
        return OptimisticOverPriors(base, self.surviving)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Every prior observes the reward; then the prior played is judged by what it had predicted."""
        self._check(observation)
        mean, deviation = self._predicted(observation)
        super().learn(observation)
        self._judge(observation.reward - mean, observation.why["width"] * deviation)

    def _predicted(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the arm played under the prior it was played by, (S,) each."""
        mean, variance = self.model.marginals(observation.time)
        run = torch.arange(self.replicates, device=mean.device)
        played = (run, observation.why["prior"], observation.arm)
        return mean[played], variance[played].sqrt()

    def _judge(self, error: Tensor, bound: Tensor) -> None:
        """Add a prediction error of the prior played and its confidence bound, (S,) each; drop it if they disagree."""
        at = self._prior.unsqueeze(-1)
        self._errors.scatter_add_(-1, at, error.unsqueeze(-1))
        self._bounds.scatter_add_(-1, at, bound.unsqueeze(-1))
        self._plays.scatter_add_(-1, at, torch.ones_like(bound).unsqueeze(-1))
        xi = elimination_xi(self._step(), self.num_priors, self._noise_scale, self.delta, self.xi)
        threshold = torch.sqrt(xi * self._plays) + self._bounds
        failed = (self._errors.abs() > threshold).gather(-1, at).squeeze(-1)
        last = self.surviving.sum(-1) == 1
        drop = failed & ~last
        self.surviving.scatter_(-1, at, self.surviving.gather(-1, at) & ~drop.unsqueeze(-1))
        self._dropped = torch.where(drop, self._prior, -1)
        self._refuted = self._refuted | (failed & last)

    def trace(self) -> dict[str, Tensor | float]:
        """The prior played, how many survive, the one dropped now, whether the last one was refuted too."""
        return {
            "prior": self._prior,
            "surviving": self.surviving.sum(-1),
            "dropped": self._dropped,
            "all_refuted": self._refuted,
        }

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything; every prior is back."""
        super().reset(where)
        self.acquit(where)

    def acquit(self, where: Tensor | None = None) -> None:
        """Every prior is back, its record empty: they are others than those that were judged."""
        of_replicate = torch.ones_like(self._refuted) if where is None else where
        self.surviving |= of_replicate.unsqueeze(-1)
        for record in (self._errors, self._bounds, self._plays):
            record.masked_fill_(of_replicate.unsqueeze(-1), 0.0)
        self._refuted = self._refuted & ~of_replicate
        self._dropped = self._dropped.masked_fill(of_replicate, -1)

    def state_dict(self) -> dict[str, Any]:
        """Model, step, and the record of every prior."""
        return super().state_dict() | {name: getattr(self, name).clone() for name in self._RECORD}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        super().load_state_dict(state)
        for name in self._RECORD:
            setattr(self, name, state[name].clone())

    _TOLD = ("prior", "width")
    _RECORD = ("surviving", "_errors", "_bounds", "_plays", "_dropped", "_refuted")

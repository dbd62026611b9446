"""Index policies: score every arm with an acquisition function over an online model, play the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.models.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.forgetting import ForgettingRule
from bandits_torch.policies.model_policy import ModelPolicy
from bandits_torch.policies.policy import (
    Choice,
    Observation,
    best_available,
    check_available,
    check_observation,
)
from bandits_torch.theory.widths import Width


class IndexPolicy(ModelPolicy):
    """argmax over the available arms of acquisition(model): GP-UCB, GP-TS, EI, their windows and restarts.

    Args:
        model: an ``OnlineModel`` of batch shape () or (S,): S replicates advance together.
        acquisition: called once a step as ``acquisition(model)``, with ``width=`` where the policy has one; an
            acquisition class or any function that returns a BoTorch acquisition function for q = 1.
            ``ThompsonSampling`` is also given ``base_samples=`` and ``time=``.
        width: a ``Width``, evaluated at the step since the last restart.
        forgetting: when the model forgets what; default: never.
        arms: ``(N, d)`` candidates, for a model over any inputs (``OnlineGP``); a model with one input more
            than d gets the time in the last column. ``ArmGP`` and ``SketchedGP`` bring their own.
        seed: of the policy's random numbers (Thompson sampling).
        first_replicate: number of the first replicate, so that replicate k can be run alone.

    Ties go to the arm of the smallest index. An arm whose index is NaN is chosen only where no available arm's
    index is a finite number; an arm that is not available never is.

    Raises ValueError for a model with a batch beside replicates, for ``arms`` where the model has its own or the lack
    of them where it has none, for an acquisition that needs a width and has none, and for a model that cannot forget
    what the rule forgets.
    """

    def __init__(
        self,
        model: OnlineModel,
        acquisition: Callable[..., AcquisitionFunction],
        *,
        width: Width | None = None,
        forgetting: ForgettingRule | None = None,
        arms: Tensor | None = None,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.instance("model", model, OnlineModel, "an OnlineModel")
        has_arms = isinstance(model, ArmModel) != (arms is not None)
        validation.require(
            has_arms, "arms", arms, "None with a model over arms, an N x d tensor with any other model"
        )
        super().__init__(
            model,
            acquisition,
            width=width,
            forgetting=forgetting,
            seed=seed,
            first_replicate=first_replicate,
        )
        self.arms = cast(ArmModel, model).arms if arms is None else arms
        self.num_arms = self.arms.shape[-2]

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The best available arm of each replicate; its index is ``why["index"]``, (S,)."""
        if available is not None:
            check_available(available, self.replicates, self.num_arms)
        inputs = self._inputs(time)
        scores = self._acquisition_now(time)(inputs).reshape(self.num_arms, -1)  # N x S
        best, arm = best_available(scores, available)
        return Choice(arm.expand(self.replicates), {"index": best.expand(self.replicates)})

    def trace(self) -> dict[str, Tensor | float]:
        """The width used, the number of restarts so far, and what the model tells."""
        trace = super().trace()
        if isinstance(self.model, ArmModel):
            trace.update(self.model.trace())
        return trace

    def add_arms(
        self, arms: Tensor, *, prior_mean: float | Tensor | None = None, width: Width | None = None
    ) -> None:
        """Have these arms too, (n, d), with the indices from N on, as if they had been there from the start.

        Args:
            arms, prior_mean: see ``ArmGP.with_arms``, whose cost it has.
            width: takes the place of the policy's; needed if that one counts the arms.

        A saved state is loaded into a policy that has all the arms. Raises ValueError, with nothing changed.
        """
        own = isinstance(self.model, ArmGP)
        validation.require(own, "model", type(self.model).__name__, "an ArmGP to take up more arms")
        counts = width is None and hasattr(self.width, "num_arms")
        validation.require(
            not counts, "width", width, f"given: {type(self.width).__name__} counts the arms there were"
        )
        self.model = cast(ArmGP, self.model).with_arms(arms, prior_mean)
        self.arms, self.num_arms = self.model.arms, self.model.num_arms
        self.width = self.width if width is None else width.bind(self.model, self.forgetting)

    # -- parts -----------------------------------------------------------------------------------------

    def _check(self, observation: Observation) -> None:
        check_observation(observation, self.replicates, self.num_arms)

    def _acquisition_now(self, time: float) -> AcquisitionFunction:
        arguments: dict[str, Any] = self._width_argument()
        if getattr(self.acquisition, "_needs_base_samples", False):
            samples = self._streams.normal(self.num_arms)
            arguments["base_samples"] = samples.reshape(*self.model.batch_shape, self.num_arms)
            if isinstance(self.model, ArmModel):
                arguments["time"] = time
            else:
                arguments["choices"] = self._inputs(time).reshape(self.num_arms, -1)
        elif getattr(self.acquisition, "_needs_time", False):
            arguments["time"] = time
        return self.acquisition(self.model, **arguments)

    def _inputs(self, time: float) -> Tensor:
        """Inputs of all arms, N x 1 x d, with a 1 for the replicates in between if the model has any."""
        if isinstance(self.model, ArmModel):
            return self.model.candidates(time)
        inputs = self.arms
        if cast(int, self.model.input_dim) > inputs.shape[-1]:
            inputs = torch.cat([inputs, torch.full_like(inputs[:, :1], time)], -1)
        return inputs.reshape(self.num_arms, *[1] * len(self.model.batch_shape), 1, -1)

    def _inputs_of(self, arm: Tensor, time: float) -> Tensor:
        if isinstance(self.model, ArmModel):
            index = arm.to(self.arms.dtype).reshape(*self.model.batch_shape, 1, 1)
            return torch.cat([index, torch.full_like(index, time)], -1) if self.model.drifts else index
        return self._inputs(time).reshape(self.num_arms, -1)[arm].reshape(*self.model.batch_shape, 1, -1)

    def _observe(self, arm: Tensor, reward: Tensor, time: float) -> None:
        shape = self.model.batch_shape
        if isinstance(self.model, ArmGP):
            self.model.observe_arms(arm.reshape(shape), reward.reshape(shape), time, late=True)
        elif isinstance(self.model, ArmModel):
            self.model.observe_arms(arm.reshape(shape), reward.reshape(shape), time)
        else:
            self.model.observe(self._inputs_of(arm, time), reward.reshape(*shape, 1, 1))

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of one arm per replicate, (S,) each."""
        if isinstance(self.model, ArmModel):
            mean, variance = (m.reshape(self.replicates, -1) for m in self.model.marginals(time))
            at = arm.unsqueeze(-1)
            return mean.gather(-1, at).squeeze(-1), variance.gather(-1, at).squeeze(-1).sqrt()
        posterior = cast(GPyTorchPosterior, self.model.posterior(self._inputs_of(arm, time)))
        return posterior.mean.reshape(-1), posterior.variance.reshape(-1).sqrt()

    @torch.no_grad()
    def marginals(self, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time``, (S, N) each."""
        if isinstance(self.model, ArmModel):
            mean, variance = self.model.marginals(time)
        else:
            posterior = cast(GPyTorchPosterior, self.model.posterior(self._inputs(time)))  # N x batch x 1 x 1
            mean, variance = (m.reshape(self.num_arms, -1).mT for m in (posterior.mean, posterior.variance))
        shape = (self.replicates, self.num_arms)
        return mean.reshape(-1, self.num_arms).expand(shape), variance.reshape(-1, self.num_arms).expand(
            shape
        )

"""Index policies: score every arm with an acquisition function over an online model, play the best."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.forgetting import ForgettingRule, KeepEverything
from bandits_torch.policies.policy import (
    Choice,
    Observation,
    Policy,
    best_available,
    check_available,
    check_observation,
    copied_state,
)
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import Width


class IndexPolicy(Policy):
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
        validation.function("acquisition", acquisition, "an acquisition class, or a function that makes one")
        if width is not None:
            validation.instance("width", width, Width, "a Width")
        if forgetting is not None:
            validation.instance("forgetting", forgetting, ForgettingRule, "a ForgettingRule")
        one_batch = len(model.batch_shape) <= 1
        validation.require(
            one_batch, "model.batch_shape", tuple(model.batch_shape), "() or (S,), replicates alone"
        )
        has_arms = isinstance(model, ArmModel) != (arms is not None)
        validation.require(
            has_arms, "arms", arms, "None with a model over arms, an N x d tensor with any other model"
        )
        wants = inspect.signature(acquisition).parameters.get("width")
        needs_width = wants is not None and wants.default is wants.empty
        validation.require(
            width is not None or not needs_width, "width", width, "a Width: the acquisition needs one"
        )
        self.forgetting = forgetting or KeepEverything()
        self.forgetting.check(model)
        self.model, self.acquisition, self.width = model, acquisition, width
        self.replicates = model.batch_shape.numel()
        self.arms = cast(ArmModel, model).arms if arms is None else arms
        self.num_arms = self.arms.shape[-2]
        noise = model.noise_variance
        self._streams = ReplicateStreams(
            seed,
            self.replicates,
            purpose="policy",
            first=first_replicate,
            dtype=noise.dtype,
            device=noise.device,
        )
        self._clock: int | Tensor = 0
        self._restarts = torch.zeros(self.replicates, dtype=torch.long, device=noise.device)
        self._width: Tensor | None = None

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

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Restart where the observation refutes the model, observe, then forget what the rule says."""
        arm, reward, time = observation.arm, observation.reward, observation.time
        check_observation(observation, self.replicates, self.num_arms)
        refuted = self.forgetting.refuted(reward, lambda: self.predict(arm, time), self._clock, self.model)
        if refuted is not None and bool(refuted.any()):
            validation.finite_tensor("reward", reward)
            self._restart(refuted)
        self._observe(arm, reward, time)
        self._clock = self._clock + 1
        over = self.forgetting.after(self.model, self._clock)
        if over is True or (isinstance(over, Tensor) and bool(over.any())):
            self._restart(over)

    def trace(self) -> dict[str, Tensor | float]:
        """The width used, the number of restarts so far, and what the model tells."""
        trace: dict[str, Tensor | float] = {"restarts": self._restarts}
        if isinstance(self.model, ArmModel):
            trace.update(self.model.trace())
        if self._width is not None:
            trace["width"] = self._width
        return trace

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything, the width's clock too; random streams go on."""
        self._restart(True if where is None else where, counts=False)

    # -- parts -----------------------------------------------------------------------------------------

    def _acquisition_now(self, time: float) -> AcquisitionFunction:
        arguments: dict[str, Any] = {}
        if self.width is not None:
            self._width = self.width(self._clock + 1, self.model)
            arguments["width"] = self._width
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

    def _of_arm(self, arm: Tensor, time: float) -> Tensor:
        """Inputs of one arm per replicate, ``batch_shape x 1 x d``."""
        return self._inputs(time).reshape(self.num_arms, -1)[arm].reshape(*self.model.batch_shape, 1, -1)

    def _observe(self, arm: Tensor, reward: Tensor, time: float) -> None:
        shape = self.model.batch_shape
        if isinstance(self.model, ArmModel):
            self.model.observe_arms(arm.reshape(shape), reward.reshape(shape), time)
        else:
            self.model.observe(self._of_arm(arm, time), reward.reshape(*shape, 1, 1))

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of one arm per replicate, (S,) each."""
        if isinstance(self.model, ArmModel):
            mean, variance = (m.reshape(self.replicates, -1) for m in self.model.marginals(time))
            at = arm.unsqueeze(-1)
            return mean.gather(-1, at).squeeze(-1), variance.gather(-1, at).squeeze(-1).sqrt()
        posterior = cast(GPyTorchPosterior, self.model.posterior(self._of_arm(arm, time)))
        return posterior.mean.reshape(-1), posterior.variance.reshape(-1).sqrt()

    def _restart(self, where: Tensor | bool, counts: bool = True) -> None:
        if isinstance(where, Tensor):
            self.model.reset(where.reshape(self.model.batch_shape))
            self._clock = torch.where(where, 0, self._clock)
        else:
            self.model.reset()
            self._clock = 0
        self._restarts = self._restarts + where if counts else self._restarts * (~torch.as_tensor(where))

    # -- state -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Model, clock, restarts and random streams."""
        return {
            "model": copied_state(self.model),
            "clock": self._clock,
            "restarts": self._restarts.clone(),
            "streams": self._streams.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        self.model.load_state_dict(state["model"])
        self._clock, self._restarts = state["clock"], state["restarts"].clone()
        self._streams.load_state_dict(state["streams"])

"""What index policies over arms and over points share: an online model, a clock, and what is forgotten when."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.forgetting import ForgettingRule, KeepEverything
from bandits_torch.policies.policy import Observation, Policy, copied_state
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import Width


class ModelPolicy(Policy):
    """Scores choices with an acquisition function over an online model; the base of ``IndexPolicy`` and
    ``ContinuousIndexPolicy``, which say what a choice is.

    Args:
        model: an ``OnlineModel`` of batch shape () or (S,).
        acquisition: called once a step as ``acquisition(model)``, with ``width=`` where the policy has one.
        width, forgetting, seed, first_replicate: see ``IndexPolicy``.
    """

    changeable = ("acquisition", "width", "search")

    def __init__(
        self,
        model: OnlineModel,
        acquisition: Callable[..., AcquisitionFunction],
        *,
        width: Width | None,
        forgetting: ForgettingRule | None,
        seed: int,
        first_replicate: int,
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
        wants = inspect.signature(acquisition).parameters.get("width")
        needs_width = wants is not None and wants.default is wants.empty
        validation.require(
            width is not None or not needs_width, "width", width, "a Width: the acquisition needs one"
        )
        self.forgetting = (forgetting or KeepEverything()).begin(model)
        self.model, self.acquisition = model, acquisition
        self.width = None if width is None else width.bind(model, self.forgetting)
        self.replicates = model.batch_shape.numel()
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

    # -- what a choice is ------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of one arm (or point) per replicate, (S,) each."""

    @abstractmethod
    def _check(self, observation: Observation) -> None:
        """Raise ValueError unless the observation is one of this policy's."""

    @abstractmethod
    def _inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """The model's inputs of one arm (or point) per replicate, ``batch_shape x 1 x D``."""

    @abstractmethod
    def _observe(self, arm: Tensor, reward: Tensor, time: float) -> None:
        """The model learns one reward per replicate."""

    @property
    def restarts(self) -> Tensor:
        """How often each replicate has restarted since the policy was reset, (S,) integers."""
        return self._restarts

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Restart where the observation refutes the model, observe, then forget what the rule says."""
        arm, reward, time = observation.arm, observation.reward, observation.time
        self._check(observation)
        refuted = self.forgetting.refuted(reward, lambda: self.predict(arm, time), self._clock, self.model)
        if refuted is not None and bool(refuted.any()):
            validation.finite_tensor("reward", reward)
            self._restart(refuted)
        self._observe(arm, reward, time)
        self._clock = self._clock + 1
        self.forgetting.observed(lambda: self._inputs_of(arm, time), reward, self.model)
        over = self.forgetting.after(self.model, self._clock)
        if over is True or (isinstance(over, Tensor) and bool(over.any())):
            self._restart(over)

    def _width_argument(self) -> dict[str, Any]:
        """The width of this step, as an argument of the acquisition, where there is one."""
        if self.width is None:
            return {}
        self._width = self.width(self._clock + 1, self.model)
        return {"width": self._width}

    def trace(self) -> dict[str, Tensor | float]:
        """The width used, the number of restarts so far, and what the forgetting rule tells."""
        trace: dict[str, Tensor | float] = {"restarts": self._restarts, **self.forgetting.trace()}
        if self._width is not None:
            trace["width"] = self._width
        return trace

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything, the width's clock too; random streams go on."""
        self._restart(True if where is None else where, counts=False)

    def refitted(self, where: Tensor) -> None:
        """The model's hyperparameters have been learned anew in the replicates with ``where`` (S,) True."""
        self.forgetting.refitted(self.model, where)

    def _restart(self, where: Tensor | bool, counts: bool = True) -> None:
        if isinstance(where, Tensor):
            self.model.reset(where.reshape(self.model.batch_shape))
            self._clock = torch.where(where, 0, self._clock)
        else:
            self.model.reset()
            self._clock = 0
        self.forgetting.reset(where if isinstance(where, Tensor) else None)
        self._restarts = self._restarts + where if counts else self._restarts * (~torch.as_tensor(where))

    # -- state -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Model, clock, restarts and random streams, those of an acquisition that has its own among them; and what
        the forgetting rule remembers, if it does."""
        rule = self.forgetting.state_dict()
        own = getattr(self.acquisition, "state_dict", None)
        return {
            "model": copied_state(self.model),
            "clock": self._clock,
            "restarts": self._restarts.clone(),
            "streams": self._streams.state_dict(),
            "acquisition": None if inspect.isclass(self.acquisition) or own is None else own(),
        } | ({"forgetting": rule} if rule else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        self.model.load_state_dict(state["model"])
        self._clock, self._restarts = state["clock"], state["restarts"].clone()
        self._streams.load_state_dict(state["streams"])
        if "forgetting" in state:
            self.forgetting.load_state_dict(state["forgetting"])
        if state["acquisition"] is not None:
            self.acquisition.load_state_dict(state["acquisition"])  # type: ignore[attr-defined]

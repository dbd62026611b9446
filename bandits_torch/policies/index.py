"""Index policies: they play the choice with the largest value of an acquisition function over an online model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.step_context import AtStep
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound, width_now
from bandits_torch.arm_context import ArmContext
from bandits_torch.domain import Domain
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.choices import ModelChoices, choices_over
from bandits_torch.policies.choices.contexts import INPUTS, ContextualArms, ListedContexts
from bandits_torch.policies.forgetting import ForgettingRule, KeepEverything
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import Width


class IndexPolicy(Policy):
    """Plays argmax of acquisition(model) over what is available: GP-UCB, GP-TS, EI, with windows and restarts.

    Args:
        model: an ``OnlineModel`` of batch shape () or (S,): S replicates advance together.
        acquisition: called at a step as ``acquisition(model)``, with ``width=`` if the policy has one; an acquisition
            class or any function that returns a BoTorch acquisition function for q = 1. If it has a method ``at_step``
            (``AtStep``, such as ``ThompsonSampling``), that gets the step's ``StepContext`` instead.
        choices: None for a model over arms (``ArmGP``, ``SketchedGP``); for any other model the features (N, d) of
            arms, or the ``Domain`` whose points are played (``OnlineGP``; the acquisition must then be differentiable).
            A model over d + 1 inputs gets the time as its last.
        width: a ``Width``, evaluated at the step since the last restart.
        forgetting: the forgetting rule; default: keep all observations.
        search: how the acquisition is maximised over a domain.
        seed: seed of the policy's random numbers (Thompson sampling, search over a domain).
        first_replicate: number of the first replicate, so replicate k can be run alone.

    Ties between arms go to the smallest arm number. An arm whose index is NaN counts as one of index -inf; an arm that
    is not available is never chosen. On a domain ``choose`` takes a ``Domain`` instead of a mask of arms: other
    bounds, constraints, or a context, for this step.

    Late rewards: an ``ArmGP`` that drifts learns them exactly, at the cost of learning all its observations again; its
    windows then count by time. An ``OnlineGP`` learns them at no extra cost. Otherwise windows and restarts use the
    order of arrival.

    Rewards with a noise variance (``Observation.noise_variance``) are learned exactly by an ``ArmGP`` whose form is not
    ``"factor"``, without a forgetting rule; other policies refuse them. Widths and the information gain then use it.

    Attributes:
        clock: observations since the last restart: a number, or (S,) integers once replicates differ.
        restarts: number of restarts of each replicate since the policy was reset, (S,) integers.
        streams: the policy's random numbers.
        used_width: the width of the latest choice, the policy's or the acquisition's; None if there is none.

    Raises ValueError for a model with batch dimensions other than replicates, for ``choices`` that do not fit the
    model, for an acquisition class that needs a missing width, and for a model that the forgetting rule does not fit.
    """

    needed: tuple[str, ...] = ()  # names in ``Choice.why`` that ``learn`` reads
    clock: int | Tensor
    restarts: Tensor
    used_width: Tensor | None = None

    def __init__(
        self,
        model: OnlineModel,
        acquisition: Callable[..., AcquisitionFunction] | AtStep,
        *,
        choices: Tensor | Domain | None = None,
        width: Width | None = None,
        forgetting: ForgettingRule | None = None,
        search: PointSearch | None = None,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.instance("model", model, OnlineModel, "an OnlineModel")
        batch = tuple(model.batch_shape)
        validation.require(len(batch) <= 1, "model.batch_shape", batch, "() or (S,), replicates alone")
        validation.function("acquisition", acquisition, "an acquisition class, or a function that makes one")
        if width is not None:
            validation.instance("width", width, Width, "a Width, such as ConstantWidth(2.0)")
        if forgetting is not None:
            validation.instance("forgetting", forgetting, ForgettingRule, "a ForgettingRule")
        own = self._choices_over(model, choices, search=search, seed=seed, first_replicate=first_replicate)
        if width is None and isinstance(acquisition, type) and not hasattr(acquisition, "at_step"):
            try:
                # A class that draws must not advance the global generator.
                with torch.random.fork_rng(devices=[]):
                    acquisition(model)
            except TypeError as error:
                expected = "a Width if acquisition needs more than the model"
                raise ValueError(f"width must be {expected}, got None: {error}") from error
        self.forgetting = (forgetting or KeepEverything()).begin(model)
        self.acquisition: Any = acquisition
        self._bound: UpperConfidenceBound | None = None
        has_state = not isinstance(acquisition, type) and hasattr(acquisition, "state_dict")
        self._drawing = acquisition if has_state else None  # it has random numbers of its own
        self.model, self.choices = model, own
        self.width = None if width is None else width.bind(model, self.forgetting)
        self.replicates, self.num_arms = self.choices.replicates, self.choices.num_arms
        self.dim = self.choices.dim
        self.streams = ReplicateStreams(
            seed, self.replicates, purpose="policy", first=first_replicate, like=model.noise_variance
        )
        self._begin()
        takes = isinstance(model, ArmGP) and model.takes_noise  # forgetting assumes one noise variance
        self.choices.conditions = not getattr(acquisition, "is_draw", False)
        self.choices.takes_noise = takes and type(self.forgetting) is KeepEverything

    def _choices_over(
        self, model: OnlineModel, choices: Tensor | Domain | None, **search: Any
    ) -> ModelChoices:
        return choices_over(model, choices, **search)

    # -- one step --------------------------------------------------------------------------------------

    def choose(self, time: float, available: Tensor | Domain | None = None) -> Choice:
        """The best available choice, (S,) arms or (S, d) points. ``why["index"]`` is its index, (S,)."""
        self.choices.check_available(available)
        mask = available if isinstance(available, Tensor) else None
        with torch.no_grad(), self.model.unmoved():
            arm, index = self.choices.best(self._acquisition_now(time, mask), time, available)
        return Choice(arm, {"index": index})

    def _acquisition_now(self, time: float, available: Tensor | None) -> AcquisitionFunction:
        if self.width is not None:
            self.used_width = self.width.at(self.clock + 1, self.model)
        at_step = getattr(self.acquisition, "at_step", None)
        if at_step is not None:
            made = at_step(self.model, self.choices.step(time, self.used_width, self.streams))
            if self.width is None:
                self.used_width = getattr(made, "width", None)
            return made
        if isinstance(self.acquisition, Improvement):
            return self.acquisition(self.model, self.choices.largest_mean(time, available))
        if self.acquisition is UpperConfidenceBound:
            # Built once: building it at every step would take a tenth of a step with 1 000 arms.
            bound = self._bound
            if bound is None or bound.model is not self.model:
                bound = self._bound = UpperConfidenceBound(self.model, 0.0)
            bound.width = width_now(cast(Tensor, self.used_width), self.model)
            return bound
        return self.acquisition(self.model, **({} if self.width is None else {"width": self.used_width}))

    _expects = ("choices",)

    def expect(self, pending: Pending, time: float) -> None:
        """The model conditions on pending pulls; the width counts only learned observations. Acquisitions that draw
        (``is_draw``: Thompson sampling) ignore pending pulls, and use another draw for each choice."""
        self.choices.expect(pending.arm, pending.time)

    def learn(self, observation: Observation) -> None:
        """Restart the replicates whose reward refutes the model, observe, then forget as the rule says."""
        with torch.no_grad():
            self.choices.check(observation)
            self.learn_checked(observation)

    def check(self, observation: Observation) -> None:
        """Raise ValueError unless this policy can learn the observation."""
        self.choices.check(observation)

    def learn_checked(self, observation: Observation) -> None:
        """``learn`` for an observation that ``choices.check`` has accepted, without another check."""
        arm, reward, time = observation.arm, observation.reward, observation.time
        if observation.noise_variance is not None:  # by a model that takes it and forgets nothing
            self.choices.observe_noisy(arm, reward, time, observation.noise_variance)
            self.clock = self.clock + 1
            return
        refuted = self.forgetting.refuted(reward, lambda: self.predict(arm, time), self.clock, self.model)
        if refuted is not None and bool(refuted.any()):
            validation.rewards("reward", reward)
            self.restart(refuted)
        self.choices.observe(arm, reward, time, late=True)
        self.clock = self.clock + 1
        self.forgetting.observed(lambda: self.choices.inputs_of(arm, time), reward, self.model)
        over = self.forgetting.after(self.model, self.clock)
        if over is True or (isinstance(over, Tensor) and bool(over.any())):
            self.restart(over)

    @property
    def learns_where(self) -> bool:  # type: ignore[override]
        """Whether the policy can ``learn_where``: it is over an ``ArmGP``, without contexts, and keeps everything."""
        keeps = type(self.forgetting) is KeepEverything
        return isinstance(self.model, ArmGP) and keeps and not self.takes_contexts

    def learn_where(self, observation: Observation, where: Tensor) -> None:
        """``learn_checked`` in replicates with ``where`` (S,) True. Raises ValueError unless it ``learns_where``."""
        expected = "one over an ArmGP that keeps everything, without contexts"
        validation.require(self.learns_where, "policy", type(self.forgetting).__name__, expected)
        batch = self.model.batch_shape
        arm, reward = observation.arm.reshape(batch), observation.reward.reshape(batch)
        cast(ArmGP, self.model).take(arm, reward, observation.time, late=True, where=where)
        self.clock = self.clock + where

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of one arm (or point) per replicate, (S,) each."""
        return self.choices.predict(arm, time)

    def predicted(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """``predict`` at an observation's choice and time; its reward is ignored."""
        return self.predict(observation.arm, observation.time)

    @torch.no_grad()
    def marginals(self, time: float, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance at ``time`` of every arm, or of ``points`` (N, d) of a domain, (S, N) each."""
        return self.choices.marginals(time, points)

    @torch.no_grad()
    def joint(self, time: float, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Joint posterior of arms (S, K) or points (S, K, d) at ``time``, as a mixture of one part: weights (S, 1),
        means (S, 1, K) and covariances (S, 1, K, K)."""
        mean, covariance = self.choices.joint(time, at)
        return mean.new_ones(len(mean), 1), mean.unsqueeze(1), covariance.unsqueeze(1)

    @property
    def knows_past(self) -> bool:  # type: ignore[override]
        """Whether the model predicts the past and still holds every observation."""
        all_held = (self.model.num_observations == self.clock) & (self.restarts == 0)
        return self.model.tells_past and bool(all_held.all())

    def changes_found(self) -> Tensor | None:
        """Number of restarts by a forgetting rule that tests for changes."""
        return self.restarts.clone() if self.forgetting.tests_changes else None

    def trace(self) -> dict[str, Tensor | float]:
        """The width used, the number of restarts so far, and the traces of the forgetting rule and the model."""
        trace: dict[str, Tensor | float] = {"restarts": self.restarts, **self.forgetting.trace()}
        if self.used_width is not None:
            trace["width"] = self.used_width
        return trace | self.model.trace()

    # -- other changes ---------------------------------------------------------------------------------

    def refitted(self, where: Tensor) -> None:
        """Called after the model's hyperparameters have changed in the replicates with ``where`` (S,) True."""
        self.forgetting.refitted(self.model, where)

    def restart(self, where: Tensor | bool) -> None:
        """Forget everything in the replicates with ``where`` (S,) True, or in all, as a forgetting rule does. This
        counts as a restart; ``reset`` sets the count to 0."""
        restarts = self.restarts
        self.reset(where if isinstance(where, Tensor) else None)
        self.restarts = restarts + where

    def add_arms(
        self, arms: Tensor, *, prior_mean: float | Tensor | None = None, width: Width | None = None
    ) -> None:
        """Add arms (n, d), with the indices from N on, as if they had been there from the start.

        Args:
            arms, prior_mean: see ``ArmGP.with_arms``, which has the same cost.
            width: replaces the policy's width; needed if that, or its gain, was made for the current arms.

        A state saved later can be loaded into a policy built with all arms. Raises ValueError, with nothing changed, if
        the width is missing, and as ``ArmGP.with_arms``.
        """
        old = width is None and self.width is not None and self.width.of_arms
        expected = f"given: {type(self.width).__name__} was made for the present arms"
        validation.require(not old, "width", width, expected)
        if width is not None:
            validation.instance("width", width, Width, "a Width, such as ConstantWidth(2.0)")
        self.model = self.model.with_arms(arms, prior_mean)
        before, self.choices = self.choices, choices_over(self.model)
        self.choices.conditions, self.choices.takes_noise = before.conditions, before.takes_noise
        self.num_arms = self.choices.num_arms
        self.width = self.width if width is None else width.bind(self.model, self.forgetting)

    # -- state -----------------------------------------------------------------------------------------

    _parts = ("choices", "forgetting", "streams", "_drawing")
    _clocks = ("clock",)

    def _fresh(self) -> dict[str, Any]:
        none = torch.zeros(self.replicates, dtype=torch.long, device=self.model.noise_variance.device)
        return {"clock": 0, "restarts": none}


class Improvement:
    """Makes BoTorch's analytic ``acquisition`` with incumbent best_f + ``margin``. An ``IndexPolicy`` gives it the
    largest posterior mean at the time of the choice."""

    def __init__(self, acquisition: Callable[..., AcquisitionFunction], margin: float) -> None:
        self.acquisition, self.margin = acquisition, margin

    def __call__(self, model: Any, best_f: Tensor) -> AcquisitionFunction:
        return self.acquisition(model, best_f=best_f + self.margin)

    def of(self, mean: Tensor, variance: Tensor, best_f: Tensor) -> Tensor:
        """The improvement of arms with these moments (S, N) over best_f (S, 1): (S, N)."""
        X = mean.new_zeros(*mean.mT.shape, 1, 1)
        return self(_Moments(mean, variance), best_f)(X).mT


class _Moments(torch.nn.Module):
    """A stand-in for a model over arms that gives an analytic acquisition known moments (S, N)."""

    num_outputs = 1

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        super().__init__()
        self.mean, self.variance = (value.mT[..., None, None] for value in (mean, variance))
        self.batch_shape = mean.shape[:-1]

    def posterior(self, X: Tensor, posterior_transform: None = None) -> _Moments:
        return self


class RewardImprovementPolicy(IndexPolicy):
    """Plays argmax of ``acquisition(model, best_f=)`` with best_f the largest reward so far of an available arm.

    The largest of many noisy rewards tends to exceed the largest value of the function and never falls. So the policy
    still explores when a policy whose incumbent is the largest posterior mean would have stopped. If no available arm
    has a reward, best_f is their largest posterior mean. Over a domain best_f is the largest of all rewards.

    Args:
        model, acquisition, options: as for ``IndexPolicy``; best_f has shape (S, 1).

    Source: f(x+) of Kushner 1964 and Mockus 1975, which have no noise, with rewards instead of values.
    """

    largest: Tensor  # reward of each arm, (S, N), -inf before its first; over a domain of all points, (S, 1)

    def learn_checked(self, observation: Observation) -> None:
        """Learn, and keep the largest rewards, without a reward that a restart has forgotten again."""
        super().learn_checked(observation)
        self._keep(observation, torch.as_tensor(self.clock, device=observation.reward.device) > 0)

    def learn_where(self, observation: Observation, where: Tensor) -> None:
        super().learn_where(observation, where)
        self._keep(observation, where)

    def _keep(self, observation: Observation, where: Tensor) -> None:
        arm = torch.zeros_like(self.restarts) if self.dim else observation.arm
        reward = observation.reward.to(self.largest).where(where, -torch.inf)
        self.largest = with_reward(self.largest, arm, reward)

    def _acquisition_now(self, time: float, available: Tensor | None) -> AcquisitionFunction:
        mean = self.choices.largest_mean(time, available)
        return self.acquisition(self.model, best_f=incumbent(self.largest, mean, available))

    def _fresh(self) -> dict[str, Any]:
        none = self.model.noise_variance.new_full((self.replicates, self.num_arms or 1), -torch.inf)
        return super()._fresh() | {"largest": none}

    def add_arms(self, arms: Tensor, **options: Any) -> None:
        super().add_arms(arms, **options)
        self.largest = pad(self.largest, (0, len(arms)), value=-torch.inf)


def with_reward(largest: Tensor, arm: Tensor, reward: Tensor) -> Tensor:
    """The ``largest`` reward of each arm, (S, N), after one more ``reward`` (S,) of ``arm`` (S,)."""
    at, reward = arm.unsqueeze(-1), reward.unsqueeze(-1)
    return largest.scatter(-1, at, torch.maximum(largest.gather(-1, at), reward))


def incumbent(largest: Tensor, mean: Tensor, available: Tensor | None) -> Tensor:
    """The largest reward of an available arm, (S, 1), from the ``largest`` of each arm, (S, N); ``mean`` (S, 1) if no
    available arm has a reward."""
    open_to = largest if available is None else largest.masked_fill(~available, -torch.inf)
    best = open_to.amax(-1, keepdim=True)
    return torch.where(best.isinf(), mean, best)


class ContextualPolicy(IndexPolicy):
    """Plays argmax over the arms of acquisition(model) at [features, context] of a step: CGP-UCB and similar policies.

    ``choose`` takes a context that all arms share, features for this step, and a mask::

        choice = policy.choose(time, ArmContext(torch.tensor([temperature, load])))

    One exact model over arm x context learns all rewards (Krause & Ong 2011, Algorithm 1). ``choice.why`` holds the
    inputs of the chosen arm, ``inputs`` (S, d + c), so a late reward is learned with the context of its choice. If all
    possible ``contexts`` are listed, the model is over the pairs of arm and context, and the cost of a step does not
    depend on the number of observations.

    Args:
        model: an ``OnlineModel`` over d + c inputs [features, context], or d + c + 1 with time last (``OnlineGP``), of
            batch shape () or (S,). With ``contexts`` an ``ArmModel`` (``ArmGP``) over the N M pairs [features,
            context], those of the first arm first.
        acquisition, width, seed, first_replicate: see ``IndexPolicy``.
        choices: features of the arms, (N, d).
        context_dim: c, the number of context variables; 0: no context.
        contexts: (M, c), all possible contexts; features then cannot change. None: any context.
        forgetting: bounds n, the number of observations held; a step without ``contexts`` costs O(n (n + N)). Default:
            keep all.

    Raises ValueError for a model over another number of inputs, or other pairs, and as ``IndexPolicy``. ``choose``
    raises ValueError, with nothing changed, for a context that is missing, of the wrong shape, or not in ``contexts``,
    and for a context if c = 0.
    """

    choices: ContextualArms | ListedContexts
    takes_contexts = True

    def __init__(
        self,
        model: OnlineModel,
        acquisition: Callable[..., AcquisitionFunction] | AtStep,
        *,
        choices: Tensor,
        context_dim: int = 0,
        contexts: Tensor | None = None,
        width: Width | None = None,
        forgetting: ForgettingRule | None = None,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.tensor("choices", choices)
        self.context_dim, self.contexts = validation.natural("context_dim", context_dim), contexts
        super().__init__(
            model,
            acquisition,
            choices=choices,
            width=width,
            forgetting=forgetting,
            seed=seed,
            first_replicate=first_replicate,
        )

    def _choices_over(self, model: OnlineModel, choices: Any, **search: Any) -> ModelChoices:
        if self.contexts is None:
            return ContextualArms(model, choices, self.context_dim)
        validation.instance("model", model, ArmModel, "an ArmModel, with contexts")
        listed = ListedContexts(cast(ArmModel, model), choices, self.contexts)
        own = listed.contexts.shape[-1]
        validation.require(self.context_dim == own, "context_dim", self.context_dim, f"{own}, as contexts")
        return listed

    def add_arms(self, arms: Tensor, **options: Any) -> None:
        """Raises ValueError: arms cannot be added under contexts."""
        validation.require(False, "arms", arms, "those that the policy was built with, under contexts")

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | ArmContext | None = None) -> Choice:  # type: ignore[override]
        """The best available arm (S,) under the step's context. ``why["index"]`` is its index, (S,), and
        ``why["inputs"]`` its inputs, (S, d + c)."""
        rows, mask = self.choices.read(available)
        with self.choices.at_step(rows):
            choice = super().choose(time, mask)
            return Choice(choice.arm, {**choice.why, INPUTS: self.choices.features(choice.arm)})

    def learn_checked(self, observation: Observation) -> None:
        with self.choices.as_chosen(observation.why[INPUTS]):
            super().learn_checked(observation)

    def predicted(self, observation: Observation) -> tuple[Tensor, Tensor]:
        with self.choices.as_chosen(observation.why[INPUTS]):
            return super().predicted(observation)

    def expect(self, pending: Pending, time: float) -> None:
        with self.choices.as_chosen(self.choices.inputs_in(pending)):
            super().expect(pending, time)

    @torch.no_grad()
    def marginals(self, time: float, points: Tensor | ArmContext | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` under ``points``, an ``ArmContext``, (S, N) each."""
        with self.choices.at_step(self.choices.read(points)[0]):
            return self.choices.marginals(time)

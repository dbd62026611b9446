"""Hyperparameters that are fitted again while a policy plays."""

from __future__ import annotations

from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.hyperparameters import (
    check_learnable,
    fit_hyperparameters,
    kernel_inputs,
    mean_offsets,
)
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.over_priors import PriorElimination
from bandits_torch.policies.policy import Observation
from bandits_torch.policies.wrapping import WrappingPolicy


class LearnedHyperparameters(WrappingPolicy):
    """Plays a policy and refits its model on a schedule and when predictions become poor.

    The shortfall of a reward is (z^2 - 1)/2, with z its prediction error in predictive standard deviations: the
    expected minus the observed predictive log-likelihood. A replicate is refitted after ``first`` observations, then
    after every ``every``, when the policy restarts, and when the mean shortfall, an exponential average that starts at
    0 after a refit, exceeds ``tolerance`` nats. If the model holds fewer than ``first`` observations, the fit uses the
    latest that the policy has seen: one bad fit could otherwise make an event-triggered policy restart without end.

    No theorem for a known prior covers a learned one. All other public attributes of the policy are available here.

    Args:
        policy: an index policy whose model has a ``learnable`` kernel; or prior elimination on a domain, which fits
            each prior and resets its elimination record after a refit.
        every: observations between refits.
        first: observations before the first refit.
        tolerance: largest mean shortfall, in nats; infinity: refit only on the schedule and after restarts.
        memory: each reward has weight 1 / ``memory`` in the mean shortfall, which is tested from the smaller of
            ``memory`` and ``every`` observations after a refit on.
        most: largest number of (latest) observations in a fit.
        budget: seconds that the fits of one step may take together; runs then depend on the machine, and ``trace``
            has the total time, ``fit_seconds``. None: no limit.

    Raises ValueError for a policy of the wrong kind, a model that ``fit_hyperparameters`` refuses, counts that are not
    integers >= 1, and a ``tolerance`` or a ``budget`` that is not positive.
    """

    policy: IndexPolicy | PriorElimination

    def __init__(
        self,
        policy: IndexPolicy | PriorElimination,
        *,
        every: int = 20,
        first: int = 5,
        tolerance: float = 1.0,
        memory: int = 10,
        most: int = 200,
        budget: float | None = None,
    ) -> None:
        self._remembers = isinstance(policy, IndexPolicy)  # prior elimination forgets nothing
        kinds = ArmGP | OnlineGP if self._remembers else OnlineGP
        fits = isinstance(policy, IndexPolicy | PriorElimination) and isinstance(policy.model, kinds)
        fits = fits and not policy.takes_contexts
        expected = "an index policy over an ArmGP or OnlineGP without contexts, or prior elimination over an OnlineGP"
        validation.require(fits, "policy", policy, expected)
        self.policy = policy
        check_learnable(self.model)
        policy.choices.takes_noise = False  # the fit assumes one noise variance
        self.dim = policy.dim
        self.every = validation.positive_integer("every", every)
        self.first = validation.positive_integer("first", first)
        self.memory = validation.positive_integer("memory", memory)
        self.most = validation.positive_integer("most", most)
        self.tolerance = validation.positive_or_infinite("tolerance", tolerance)
        self.budget = None if budget is None else validation.positive("budget", budget)
        policy.model.requires_grad_(False)  # a search of the acquisition needs no gradient of hyperparameters
        self._begin()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "policy" not in vars(self):  # copy and pickle ask before the policy is set
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.policy, name)

    @property
    def model(self) -> ArmGP | OnlineGP:
        """The policy's model."""
        return cast(ArmGP | OnlineGP, self.policy.model)

    def learn(self, observation: Observation) -> None:
        """The policy learns; then the replicates that are due are refitted. Waits for the device."""
        self.policy.check(observation)
        shortfall, restarts = self._shortfall_of(observation), self.policy.restarts
        self.policy.learn_checked(observation)
        restarted = self.policy.restarts > restarts
        if self._remembers:
            self._remember(observation)
        self._seen += 1
        self._since += 1
        share = 1 / self.memory
        self._shortfall = (1 - share) * self._shortfall + share * shortfall
        bad = (self._shortfall > self.tolerance) & (self._since >= min(self.memory, self.every))
        due = (self._since >= self.every) | bad | restarted | (self._refits == 0)
        due &= self._seen >= self.first
        if bool(due.any()):
            self._refit(due)

    @torch.no_grad()
    def _shortfall_of(self, observation: Observation) -> Tensor:
        """The shortfall of each replicate's reward, (S,), before it is learned."""
        mean, deviation = self.policy.predicted(observation)
        noise = self._noises()
        if "prior" in self.policy.needed:
            noise = noise.gather(-1, observation.why["prior"].unsqueeze(-1))
        variance = deviation.square() + noise.squeeze(-1)
        return 0.5 * ((observation.reward.to(mean) - mean).square() / variance - 1)

    def _remember(self, observation: Observation) -> None:
        """Keep the latest observations, also those that the policy forgets."""
        X = self.policy.choices.inputs_of(observation.arm, observation.time).reshape(self.replicates, 1, -1)
        before = self._X if self._X.shape[-2] else X[:, :0]
        self._X = torch.cat([before, X], 1)[:, -self.most :]
        self._y = torch.cat([self._y, observation.reward.to(self._y).unsqueeze(-1)], 1)[:, -self.most :]

    def _refit(self, due: Tensor) -> None:
        """Fit the hyperparameters of the replicates with ``due`` (S,) True."""
        members = due.unsqueeze(-1).expand(-1, self.model.batch_shape.numel() // self.replicates)
        fitted = members.reshape(-1).nonzero().flatten().tolist()
        remembered: dict[int, tuple[Tensor, Tensor]] = {}
        if self._remembers:
            held, seen = self.model.num_observations.reshape(-1).tolist(), self._seen.tolist()
            for k in (k for k in fitted if held[k] < self.first):
                X, y = self._X[k, -seen[k] :], self._y[k, -seen[k] :]
                y = y - mean_offsets(self.model, X, k)
                remembered[k] = kernel_inputs(self.model, X, k), y
        started = perf_counter()
        fit_hyperparameters(self.model, fitted, self.most, remembered, self.budget)
        self._fit_seconds += perf_counter() - started
        self.policy.refitted(due)
        self._refits += due
        self._since.masked_fill_(due, 0)
        self._shortfall.masked_fill_(due, 0.0)

    def trace(self) -> dict[str, Tensor | float]:
        """The policy's trace, the number of refits so far and the noise variance, the mean over priors if several."""
        trace = self.policy.trace() | {"refits": self._refits, "noise_variance": self._noises().mean(-1)}
        return trace if self.budget is None else trace | {"fit_seconds": self._fit_seconds}

    def _noises(self) -> Tensor:
        """Noise variances, (S, P), or (S, 1) if there is one prior."""
        return self.model.noise_variance.expand(self.model.batch_shape).reshape(self.replicates, -1)

    _since: Tensor  # observations since the last refit, (S,)
    _refits: Tensor  # (S,)
    _shortfall: Tensor  # (S,)
    _seen: Tensor  # number of observations, (S,)
    _X: Tensor  # inputs of the latest observations, (S, n, D)
    _y: Tensor  # their rewards, (S, n)
    _fit_seconds: float
    _lasting = ("_since", "_refits", "_shortfall", "_X", "_y", "_fit_seconds")  # what was learned stays

    def _fresh(self) -> dict[str, Any]:
        zeros = self.policy.model.noise_variance.new_zeros(self.replicates)
        counts = {name: zeros.long() for name in ("_since", "_refits", "_seen")}
        X = zeros.new_zeros(self.replicates, 0, 0, dtype=self.policy.model.input_dtype)
        latest = {"_X": X, "_y": zeros.new_zeros(self.replicates, 0)}
        return counts | latest | {"_shortfall": zeros, "_fit_seconds": 0.0}

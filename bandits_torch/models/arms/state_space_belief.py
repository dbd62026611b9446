"""What a batch of models believes of arms whose time has a state."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.arms.belief import ArmBelief
from bandits_torch.models.arms.observation_buffer import ObservationBuffer
from bandits_torch.models.arms.state_space_form import StateSpaceForm
from bandits_torch.models.arms.state_space_prior import StateSpacePrior


class StateSpaceBelief(ArmBelief):
    """``ArmBelief`` over a ``StateSpacePrior``: f at a later time is read off the state, several numbers per arm.

    Learning, late rewards, restarts and ``hold`` are those of ``ArmBelief``. Forgetting learns what is left again, at
    the cost of its steps: an observation that has drifted since is no rank-one change of the state.
    """

    prior: StateSpacePrior
    form: StateSpaceForm  # type: ignore[assignment]
    takes_noise = False

    @property
    def form_name(self) -> str:
        """``"state-space"``."""
        return "state-space"

    def start(self, form: str, noise_variance: Tensor | None = None) -> None:
        """Nothing observed, with the prior as it is now."""
        self.prior.forget_hyperparameters()
        b = self.prior_mean.shape[0]
        noise = self.form.noise_variance if noise_variance is None else noise_variance
        self.form = StateSpaceForm(self.prior, b, noise)
        self.observations = ObservationBuffer(b, self.prior_mean.dtype, self.prior_mean.device)
        self.now = None
        self._watch(b)

    def check_spread(self, time: float | None, form: str | None = None) -> None:
        """Nothing to refuse: the prior variance stays what it is."""

    def forget(self, count: int, where: Tensor) -> None:
        """Unlearn the ``count`` oldest observations of the members with ``where`` True that hold any."""
        self.forgets = True
        if where.is_cpu and not bool((where & (self.observations.count > 0)).any()):
            return
        for _ in range(count):
            self.observations.drop_oldest(where & (self.observations.count > 0))
        self.relearn(self.form_name)

    def reset(self, where: Tensor | None = None) -> None:
        """Unlearn everything."""
        self.form.reset(1.0, where)
        self.observations.clear(where)
        if where is None:
            self.now = None

    def _move_to(self, time: float) -> None:
        if self.now is not None and time != self.now:
            self.form.advance(self.now, time)
        self.now = time

    def expect(self, arm: Tensor, time: float) -> None:
        """Condition the form on pulls of ``arm`` (b,) at ``time``, or now if that is later, of unknown rewards."""
        now = time if self.now is None else max(time, self.now)
        if now != self.now:
            self._move_to(now)
        gain, surprise = self.form.gain.clone(), self.form.surprise.clone()
        self.form.add(arm, self.form.at_time(now, now)[0].gather(-1, arm.unsqueeze(-1)).squeeze(-1), now)
        self.form.gain.copy_(gain)
        self.form.surprise.copy_(surprise)

    # -- predicting ------------------------------------------------------------------------------------

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm at ``time`` (default: now), (b, N) each. O(s^2 N)."""
        then = (self.now or 0.0) if time is None else time
        mean, variance = self.form.at_time(then if self.now is None else self.now, then)
        return (mean + self.prior_mean).to(self.prior_mean), variance.clamp_min(0.0).to(self.prior_mean)

    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean (b, N) and covariance (b, N, N) over all arms at ``time`` (default: now). O((s N)^2)."""
        mean, _ = self.marginals(time)
        then = (self.now or 0.0) if time is None else time
        return mean, self._own(self.form.joint_at(then if self.now is None else self.now, then))

    def at(self, arm: Tensor, times: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean (T, b, n) and covariance (T, b, n, n) at points (T, b, n) of arms and times (None: now)."""
        if times is None:
            times = torch.full(arm.shape, self.now or 0.0, dtype=torch.float64, device=arm.device)
        now = float(times.min()) if self.now is None else self.now
        mean, covariance = self.form.among(arm, now, times)
        mean = mean + self.prior_mean.expand(arm.shape[0], *self.prior_mean.shape).gather(-1, arm)
        return self._own(mean), self._own(covariance)

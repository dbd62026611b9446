"""The posterior of f over arms in time, for a batch of models: observations, forms and checks of rounding errors."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.factor_form import SMALLEST_OF_GROWING, FactorForm
from bandits_torch.models.arms.observation_buffer import ObservationBuffer
from bandits_torch.models.arms.prior import ArmPrior, StateSpacePrior
from bandits_torch.models.arms.state_space import StateSpaceForm
from bandits_torch.models.online_model import PlainState, empty, held_elsewhere

_FIRST_PAUSE = 64  # observations before the first check of rounding errors
_LARGEST = 2 * 2**30  # largest size in bytes of the covariance matrices that ``form="auto"`` takes
LAUNCHES = 1_000_000  # F in ``covariance_pays``
FORMS: dict[str, Any] = {"covariance": CovarianceForm, "factor": FactorForm, "state-space": StateSpaceForm}


def covariance_pays(prior_mean: Tensor, drifts: bool, room: int, rows: int) -> bool:
    """Whether the covariance form fits into 2 GiB, and costs less per step than the factor form.

    With b members over N arms (``prior_mean``, b x N), ``room`` for n points in each and prior ``rows`` of u arms, it
    costs less on a CPU if

        b N^2 <= k F   or   b N^2 <= 10 k b n^2 + 7 min(b, 4) u N,   F = 10^6 and k = 1, under drift k = 5.

    The unit is the cost of one number of C in float64, or two in float32: about 0.07 ns a step, because a fold reads C
    once in 32 steps. k F is the cost of the operations that the factor form launches in addition. It passes over n x n
    matrices several times a step, hence 10 k, and over u rows of N once; in a product of matrices only many members
    share that pass.

    Fitted to steps of UCB at b = 1, 5, 25, N = 100 to 8 000 and n = 10 to 1 000, in both dtypes. At 60 other sizes the
    chosen form is at most 1.21 times slower than the other (``benchmarks.speed form_choice``). On a GPU (not measured)
    launches take longer than 1/32 of a pass over 2 GiB, so the covariance form is chosen whenever it fits.
    """
    members, arms = prior_mean.shape
    size = members * arms**2 * prior_mean.itemsize
    if size > _LARGEST:
        return False
    k = 5 if drifts else 1
    held = 10 * k * members * room**2 + 7 * min(members, 4) * rows * arms
    return not prior_mean.is_cpu or size <= 8 * max(k * LAUNCHES, held)


class ArmBelief(PlainState):
    """Posterior of f over N arms for a flat batch of b members, with the observations that it holds.

    ``ArmGP`` checks arguments and converts shapes; here everything is flat and valid.

    Attributes:
        form: ``CovarianceForm`` or ``FactorForm``, the mean and covariance at ``now``; for a ``StateSpacePrior`` a
            ``StateSpaceForm``, which cannot remove an observation: forgetting learns the remaining ones again.
        observations: observations learned and not forgotten, oldest first.
        now: time of the latest observation; None before the first; 0 for a static prior.
        centred: whether all prior means are 0.
    """

    form: CovarianceForm | FactorForm  # or StateSpaceForm, which has no ``remove``
    observations: ObservationBuffer
    prior_mean: Tensor
    now: float | None
    centred: bool
    drifts: bool
    grows: bool  # whether the prior variance grows with time
    changes_form = False  # whether to change from the factor to the covariance form once that is cheaper
    _PLAIN = ("now", "forgets", "_learned", "_pauses", "_looks", "_next_look")

    def __init__(self, prior: ArmPrior, prior_mean: Tensor, noise_variance: Tensor, form: str) -> None:
        super().__init__()
        self.prior: ArmPrior
        over_time = prior.time_kernel
        grows = (
            over_time is not None and not isinstance(prior, StateSpacePrior) and not over_time.is_stationary
        )
        held_elsewhere(self, prior=prior, drifts=over_time is not None, grows=grows)
        self.register_buffer("prior_mean", prior_mean)  # b x N
        self.centred = not bool(prior_mean.any())
        self.forgets = False
        self.start(form, noise_variance)  # b x 1

    @property
    def noise_variance(self) -> Tensor:
        """lambda, (b, 1), in the dtype that the form computes in."""
        return self.form.noise_variance

    @property
    def form_name(self) -> str:
        """``"covariance"``, ``"factor"`` or ``"state-space"``."""
        return self.form.name

    def start(self, form: str, noise_variance: Tensor | None = None) -> None:
        """Start without observations, in the given form, with the current hyperparameters."""
        self.prior.forget_hyperparameters()
        b = self.prior_mean.shape[0]
        noise = self._own(self.noise_variance) if noise_variance is None else noise_variance
        self.form = FORMS[form](self.prior, b, noise)
        if isinstance(self.form, FactorForm):
            self.form.keeps_faint_points = self.forgets
        self.observations = ObservationBuffer(b, self.prior_mean.dtype, self.prior_mean.device)
        self.now = None if self.drifts else 0.0
        # Each member is checked for rounding errors separately, so a replicate does not depend on the others.
        self._learned, self._next_look = 0, _FIRST_PAUSE
        self._pauses, self._looks = [_FIRST_PAUSE] * b, [_FIRST_PAUSE] * b

    # -- learning --------------------------------------------------------------------------------------

    def check_spread(self, time: float | None, form: str | None = None) -> None:
        """Raise ValueError if the prior variance at ``time`` is so large compared with the noise that rounding would
        destroy a posterior in ``form`` (default: the current one). Not checked on a GPU, to avoid waiting for it.
        """
        if not self.grows or time is None or (form or self.form_name) == "covariance":
            return
        if self.noise_variance.is_cpu:
            prior = self.form.prior_variance.amax(-1, keepdim=True) * self.form.prior.present(time)
            ratio = float((self.noise_variance / prior).min())
            expected = (
                f"a time at which noise_variance is at least {SMALLEST_OF_GROWING:g} of the prior variance (it is "
                f"{ratio:.1e}): give the time kernel a start near the first observation, or use form='covariance'"
            )
            validation.require(ratio >= SMALLEST_OF_GROWING, "time", time, expected)

    def learn(
        self,
        arm: Tensor,
        reward: Tensor,
        time: float,
        where: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        """Observe ``reward`` (b,) of ``arm`` (b,) at ``time``, in the members with ``where`` True.

        ``noise``: noise variances of these rewards, (b, 1), in the covariance form only.
        """
        residual = self.residual(arm, reward)
        if time != self.now:
            self._move_to(time)
        if noise is None:
            self.form.add(arm, residual, time, where)
        else:
            assert isinstance(self.form, CovarianceForm)
            self.form.add(arm, residual, time, where, noise)
        self.observations.append(arm, reward, time, where)
        self.count(1)

    def residual(self, arm: Tensor, reward: Tensor) -> Tensor:
        """Rewards minus the prior means of their arms, (b,) or (b, n)."""
        if self.centred:
            return reward
        one = arm.dim() == 1
        mean = self.prior_mean.gather(-1, arm.unsqueeze(-1) if one else arm)
        return reward - (mean.squeeze(-1) if one else mean)

    def move_prior_mean(self, first: Tensor) -> None:
        """Set the prior mean of the first arm to ``first`` (b, 1), and shift the others by the same difference."""
        own = self.prior_mean
        own.copy_(torch.where(first == own[:, :1], own, first + (own - own[:, :1])))
        self.centred = not bool(own.any())

    def keep(self, arm: Tensor, reward: Tensor, times: Sequence[float]) -> None:
        """Store observations (b, k) at these times, oldest first, that the form has learned already; call ``count``
        afterwards."""
        moments = times if self.drifts else [0.0] * len(times)
        at = torch.tensor(moments, dtype=torch.float64, device=reward.device)
        self.observations.extend(arm, reward, at)
        self.now = moments[-1]

    def take(
        self,
        arm: Tensor,
        reward: Tensor,
        time: float,
        where: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        """``learn``, also at a time before ``now``: then all observations are learned again in order of time.

        ``noise``: noise variances of these rewards, (b,); the factor form changes to the covariance form for them.
        Raises ValueError as ``check_spread`` does, with nothing changed.
        """
        if self.grows:
            self.check_spread(time)
        if noise is not None:
            if isinstance(self.form, FactorForm):
                if self.drifts:
                    self.relearn("covariance")
                else:
                    self._change_over(self.form)
            self.observations.note_noise(noise)
        if self.now is not None and time < self.now:
            self.observations.append(arm, reward, time, where)
            self.relearn(self.form_name)
        else:
            self.learn(arm, reward, time, where, None if noise is None else self._as_form(noise))

    def check_one_noise(self) -> None:
        """Raise ValueError if some of the rewards held have noise variances of their own."""
        held, expected = self.observations.noise, "None for every reward held"
        validation.require(held is None, "noise_variance of single rewards", held, expected)

    def _as_form(self, noise: Tensor) -> Tensor:
        return noise.to(self.noise_variance).unsqueeze(-1)

    def count(self, learned: int) -> None:
        """Count newly learned observations. Check rounding errors and the choice of the form if that is due.

        The form is chosen again after every 16 observations, from 256 on after a sixteenth to an eighth of those
        learned. Other replicates may influence when it changes, but both forms agree up to rounding.
        """
        self._learned += learned
        if self._learned >= self._next_look:
            self._mend(self.now or 0.0, [look <= self._learned for look in self._looks])
        if not isinstance(self.form, FactorForm) or (self.drifts and self.forgets):
            return  # under drift only the factor form can forget
        if (self._learned - learned) // self._pause < self._learned // self._pause:
            self._change_over_if_cheaper(self.form, self.form.size, int(self.form.rows.used))

    # -- rounding errors -------------------------------------------------------------------------------

    def _mend(self, time: float, look: list[bool]) -> None:
        """Rebuild the members whose rounding errors have grown and check them sooner next time; others later.

        ``look``: the members to check. The pauses are so long that checks and rebuilds cost no more than the steps.
        Waits for a GPU. The covariance form under drift is not checked: it cannot be rebuilt from counts, and its
        errors fade.
        """
        size = self.form.size
        shortest, longest = max(16, size // 4, self._learned // 500), max(1000, 10 * size)
        at = torch.tensor(look, device=self.prior_mean.device)
        mended: list[int] = []
        if self.form.can_forget:
            count, total, squares = self._counts()
            if isinstance(self.form, FactorForm):
                # Sums for each point, (b, n): the form's running sums keep rounding errors of forgotten observations.
                point, points = self.form.point_arm, self.form.point_count > 0
                if self.drifts:
                    arm, reward, moment, valid = self.observations.held()
                    same = (point.unsqueeze(-1) == arm.unsqueeze(-2)) & valid.unsqueeze(-2)
                    same &= self.form.point_time.unsqueeze(-1) == moment.unsqueeze(-2)
                    total = (same * self.residual(arm, reward).double().unsqueeze(-2)).sum(-1) * points
                else:
                    total = total.gather(-1, point) * points
            mended = self.form.mend(count, total, squares, time, at)
        for m in (m for m, looked in enumerate(look) if looked):
            pause = self._pauses[m] // 4 if m in mended else 2 * self._pauses[m]
            self._pauses[m] = max(shortest, min(longest, pause))
            self._looks[m] = self._learned + self._pauses[m]
        self._next_look = min(self._looks)

    def _counts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Observations of each arm and the sum of their residuals, (b, N) each, and the sum of all squared residuals,
        (b,); float64. An observation with noise variance r counts lambda / r times.
        """
        arm, reward, _, valid = self.observations.held()
        residual = self.residual(arm, reward).double() * valid
        zeros = torch.zeros_like(self.prior_mean, dtype=torch.float64)
        times, lam = valid.double(), self.form.noise_variance.double()
        noise = self.observations.noises(lam)
        if noise is not None:
            times = times * lam / noise.double()
        count = zeros.scatter_add(-1, arm, times)
        return count, zeros.scatter_add(-1, arm, residual * times), (residual.square() * times).sum(-1)

    def total_precision(self) -> Tensor | None:
        """Sum of 1 / noise variance over the observations held, (b,); None if all have the noise variance lambda."""
        if self.observations.noise is None:
            return None
        return self._own(self._counts()[0].sum(-1) / self.noise_variance.squeeze(-1))

    def settle(self, emptied: Tensor | None = None) -> None:
        """After removals, rebuild suspect members, and reset ``emptied`` members (b,; None: none) to the prior, bit for
        bit.

        It does not wait for a GPU: there the next check repairs suspect members, and the covariance of empty ones.
        """
        suspect = self.form.suspect
        if emptied is not None:
            if not suspect.is_cpu:
                empty((self.form.gain, self.form.surprise, self.form.mean), emptied)
                return
            if bool(emptied.any()):
                self.form.reset(self._present(), emptied)
                suspect = suspect & ~emptied
        if suspect.is_cpu and bool(suspect.any()):
            self._mend(self.now or 0.0, suspect.tolist())

    def _present(self) -> Tensor | float:
        """k_time(now, now): the current prior covariance in units of K."""
        return 1.0 if self.now is None else self.form.prior.present(self.now)

    # -- the form --------------------------------------------------------------------------------------

    @property
    def _pause(self) -> int:
        """The number of observations from one choice of the form to the next."""
        return 1 << max(4, self._learned.bit_length() - 4)

    def before_look(self, steps: int) -> int:
        """How many of the next steps can be counted together without a change of form inside them."""
        may_change = self.changes_form and isinstance(self.form, FactorForm)
        return min(steps, self._pause - self._learned % self._pause) if may_change else steps

    def want_root(self) -> None:
        """Prepare for joint draws: they need a root of the covariance, which only a static covariance form keeps."""
        if isinstance(self.form, FactorForm) and not self.drifts:
            arms = self.prior_mean.shape[-1]
            self._change_over_if_cheaper(self.form, arms, arms)

    def _change_over_if_cheaper(self, form: FactorForm, room: int, rows: int) -> None:
        if self.changes_form and covariance_pays(self.prior_mean, self.drifts, room, rows):
            self._change_over(form)

    def _change_over(self, old: FactorForm) -> None:
        """Change to the covariance form with the same posterior: O(N^2 n + N n^2), once."""
        full = old.full(self.now or 0.0)
        for one in full:  # one matrix at a time stays in the cache
            one.add_(one.mT.clone()).mul_(0.5)
        noise = self._own(old.noise_variance)
        new = CovarianceForm(self.prior, len(self.prior_mean), noise, self._own(full))
        new.covariance.diagonal(dim1=-2, dim2=-1).copy_(old.variance)
        new.variance.copy_(old.variance)
        if not self.drifts:  # P among the points has digits that the differences in ``full`` lose
            for m, held in enumerate(old.point_count > 0):
                arm = old.point_arm[m, held]
                new.covariance[m, arm.unsqueeze(-1), arm] = self._own(old.covariance[m, held][:, held])
        for name in ("mean", "gain", "surprise", "removed", "suspect"):
            getattr(new, name).copy_(getattr(old, name))
        self.form = new

    def hold(self, arm: Tensor, reward: Tensor, times: list[float], held: Tensor) -> None:
        """Replace all observations by the rows (b, n) with ``held`` True, oldest first, in members with such rows.

        Row k has the same time in all members. Under drift all members are learned again.
        """
        if not self.drifts:
            self.reset(held.any(-1))
            for k in range(arm.shape[-1]):
                self.learn(arm[:, k], reward[:, k], 0.0, held[:, k])
            return
        self.observations.clear(held.any(-1))
        for k, time in enumerate(times):
            self.observations.append(arm[:, k], reward[:, k], time, held[:, k])
        self.relearn(self.form_name)

    def forget(self, count: int, where: Tensor | None = None) -> None:
        """Forget the ``count`` oldest observations of the members with ``where`` True that hold any. None: of all;
        each must hold as many.

        Under drift, a form that has dropped points or cannot forget relearns the others. The factor form drops no point
        from then on.
        """
        if not self.forgets:  # afterwards ``ArmGP.takes_noise`` is False, so one check is enough
            self.check_one_noise()
            self.check_spread(self.now, "factor")
            self.forgets = True
            if isinstance(self.form, FactorForm):
                self.form.keeps_faint_points = True
        if not count:
            return
        if self.drifts and not self.form.can_forget:
            in_states = self.form_name == "state-space"
            if where is None:
                self.observations.drop_oldest(count)
            else:
                if in_states and where.is_cpu and not bool((where & (self.observations.count > 0)).any()):
                    return
                for _ in range(count):
                    self.observations.drop_oldest(where & (self.observations.count > 0))
            self.relearn("state-space" if in_states else "factor")
            return
        for _ in range(count):
            arm, reward, moment, held = self.observations.pop(where)
            self.form.remove(arm, self.residual(arm, reward), moment, self.now or 0.0, held)
        if where is not None or not self.observations.length:
            emptied = self.observations.count == 0
            self.settle(emptied if where is None else where & emptied)
        else:
            self.settle()

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything."""
        self.form.reset(self._present(), where)
        self.observations.clear(where)
        if where is None and self.drifts:
            self.now = None

    def relearn(self, form: str) -> None:
        """Start again in the given form, with the current hyperparameters, and learn the observations held."""
        arm, reward, time, valid = self.observations.held()
        noise = self.observations.noises(torch.nan)
        latest = self.now
        self.start(form)
        for moment in torch.unique(time[valid]).tolist():
            at_moment = valid & (time == moment)
            for k in torch.nonzero(at_moment.any(0)).flatten().tolist():
                own, at = None, at_moment[:, k]
                if noise is not None:  # NaN stands for lambda
                    self.observations.note_noise(noise[:, k], at)
                    one = self._as_form(noise[:, k])
                    own = torch.where(one.isnan(), self.noise_variance, one)
                self.learn(arm[:, k], reward[:, k], moment, at, own)
        if latest is not None:
            self._move_to(latest)
        self.observations.look()

    def _move_to(self, time: float) -> None:
        if self.now is None:
            self.form.reset(self.form.prior.present(time))
        elif time != self.now:
            self.form.move(self.now, time)
        self.now = time

    # -- pending pulls and copies ----------------------------------------------------------------------

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """Within the block, a copy replaces the form; afterwards form and time are restored."""
        kept = self.form, self.now
        try:
            self.form = copy.deepcopy(self.form, {id(one): one for one in self.form.lasting})
            yield
        finally:
            self.form, self.now = kept

    def expect(self, arm: Tensor, time: float) -> None:
        """Condition the form on pending pulls of ``arm`` (b,) at ``time``, or at ``now`` if that is later."""
        now = 0.0 if not self.drifts else time if self.now is None else max(time, self.now)
        if now != self.now:
            self._move_to(now)
        gain, surprise = self.form.gain.clone(), self.form.surprise.clone()
        mean, _ = self.form.at_time(now, now)
        self.form.add(arm, mean.gather(-1, arm.unsqueeze(-1)).squeeze(-1), now)
        self.form.gain.copy_(gain)
        self.form.surprise.copy_(surprise)

    def widen(self, source: Tensor) -> None:
        """Become a batch of len(source) members; member m is a copy of member source[m]."""
        self.prior_mean = self.prior_mean[source]
        for name, held in list(self.observations.named_buffers()):
            setattr(self.observations, name, held[source])
        self.form.prior.fill(self.prior.model_batch_shape)
        self.form.widen(source)
        self._pauses, self._looks = ([old[m] for m in source.tolist()] for old in (self._pauses, self._looks))

    def log_likelihood(self) -> Tensor:
        """log N(r; 0, K_t + lambda I) of the residuals r held, (b,). O(1), with single noise variances O(n)."""
        n = self.observations.count
        constant = n * torch.log(2 * math.pi * self.noise_variance.squeeze(-1)) / 2
        noise = self.observations.noises(self.noise_variance)
        if noise is not None:  # rows beyond a member's count have lambda and contribute log 1
            constant = constant + torch.log(noise / self.noise_variance).sum(-1) / 2
        return self._own(-self.form.surprise / 2 - self.form.gain - constant)

    # -- predicting ------------------------------------------------------------------------------------

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm at ``time`` (default: now), (b, N) each. O(N), with s states O(s^2 N)."""
        mean, variance = self.form.at_time(self.now, time)
        prior = self.prior_mean
        return (mean + prior).to(prior.dtype), variance.clamp_min(0.0).to(prior.dtype)

    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean (b, N) and covariance (b, N, N) over all arms at ``time`` (default: now)."""
        mean, _ = self.marginals(time)
        return mean, self._own(self.form.joint_at(self.now, time))

    def at(self, arm: Tensor, times: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean (T, b, n) and covariance (T, b, n, n) at points (T, b, n) of arms and times (None: now)."""
        mean, covariance = self.form.at(arm, self.now, times)
        mean = mean + self.prior_mean.expand(arm.shape[0], *self.prior_mean.shape).gather(-1, arm)
        return self._own(mean), self._own(covariance)

    def _own(self, value: Tensor) -> Tensor:
        """``value`` in the dtype of the model: the factor form computes in float64."""
        return value.to(self.prior_mean.dtype)

    def get_extra_state(self) -> dict[str, Any]:
        """The extra state and the name of the form."""
        return super().get_extra_state() | {"form_name": self.form_name}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        complete = prefix + "_extra_state" in state_dict
        validation.require(complete, "state_dict", sorted(state_dict), "the state of such a model")
        form = state_dict[prefix + "_extra_state"]["form_name"]
        if form != self.form_name:
            self.start(form)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.centred = not bool(self.prior_mean.any())

"""Exact Gaussian process over a finite set of arms, one observation at a time, for any horizon."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from botorch.posteriors import GPyTorchPosterior
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.arms.belief import ArmBelief, covariance_pays
from bandits_torch.models.arms.factor_form import ROOM
from bandits_torch.models.arms.prior import StateSpacePrior
from bandits_torch.models.online_model import (
    MarginalPosterior,
    check_held,
    joint_posterior,
    require_within,
    with_time,
)

_ARMS_AT_FIRST = 16  # distinct arms pulled by each member, as the first comparison of the two forms assumes
_GROWING_VARIANCE_UP_TO = 1_500  # largest N for the covariance form if the prior variance grows with time


class ArmGP(ArmModel):
    """Exact GP posterior over N arms, in O(N^2) or O(uN + n^2) per step for any number of steps.

    Inputs are indices of arms, ``X[..., 0] = 0, ..., N - 1``; with a spatio-temporal kernel the last column is time,
    ``X = [index, time]``, at or after the latest observation. Arms need no coordinates, and any BoTorch acquisition
    function works; ``candidates(time)`` returns the inputs of all arms.

    Args:
        arms: ``(*arms_batch, N, d)`` features, stored as ``model.arms``; or N.
        kernel: prior covariance over the arms: a GPyTorch kernel over features, an ``ArmCovarianceKernel``, or an
            ``(*batch, N, N)`` covariance matrix over indices. A ``SpatioTemporalKernel`` of one of these and a Markov
            time kernel makes the function drift (TV-GP-UCB, uncertainty injection). Other time kernels with a state
            space (Matern, periodic, quasi-periodic), and sums of ``SpatioTemporalKernel``s, describe cycles and smooth
            drift: see ``StateSpaceForm``. The model has a copy, ``model.prior.kernel``, whose hyperparameters it reads
            once; call ``rebuild`` after changing them.
        noise_variance: lambda > 0 in squared units of reward; a number or a tensor that broadcasts to ``batch_shape``;
            at least 1e-10 of the largest prior variance (1e-5 in float32).
        prior_mean: prior mean reward: a number or ``(*batch, N)``.
        form: ``"covariance"`` stores an N x N matrix: O(N^2) per step. ``"factor"`` stores n points of u distinct arms:
            O(uN + n^2) per step, and no N x N matrix. ``"auto"`` begins with the cheaper one (``covariance_pays``). It
            changes from factor to covariance, exactly, once that is cheaper; ``joint_root`` of a static model compares
            them as if all arms were pulled. To ``forget`` under drift it changes to the factor form, which alone
            supports this. If the prior variance grows with time, it takes the covariance form up to 1 500 arms and does
            not compare again.
            With a state space the model stores the covariance of s numbers per arm: O((s N)^2) per step, as one product
            of matrices every 24 steps. ``forget`` then learns the remaining observations again.
        batch_shape: batch dimensions in addition to those of the kernel, arms, noise and prior mean (replicates).
        dtype, device: default to those of ``arms`` (float64 on the CPU when ``arms`` is a number).

    Memory: observations are stored (24 bytes each; float32: 20), so they can be removed.

    Source: Rasmussen & Williams 2006, ch. 2, in the recursive form derived in ``CovarianceForm`` and ``FactorForm``.

    Raises ValueError for an unknown ``form``, a ``noise_variance`` that is not positive or too small, a ``prior_mean``
    of the wrong shape or not finite, a covariance matrix that is not positive semi-definite, and batches that do not
    broadcast.
    """

    _belief: ArmBelief
    form: str

    def __init__(
        self,
        arms: Tensor | int,
        kernel: Kernel | Tensor,
        noise_variance: float | Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        form: str = "auto",
        batch_shape: tuple[int, ...] | torch.Size = (),
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        validation.one_of("form", form, "auto", "covariance", "factor")
        noise, mean = self._take_settings(
            inputs.features_of(arms, dtype, device), kernel, noise_variance, prior_mean, batch_shape
        )
        in_states = isinstance(self.prior, StateSpacePrior)
        expected = "'auto' or 'covariance': the factor form needs a MarkovTimeKernel"
        validation.require(form != "factor" or not in_states, "form", form, expected)
        self.drifts = self.prior.time_kernel is not None
        self.prior.fill(self.batch_shape)
        self.register_buffer("noise_variance", noise.expand(self.batch_shape).clone())
        b, over_time = self.batch_shape.numel(), self.prior.time_kernel
        flat = mean.expand(*self.batch_shape, self.num_arms).reshape(b, -1).clone()
        steady = not in_states and (over_time is None or over_time.is_stationary)
        self.form = present_form = form  # the argument, and what the belief begins with
        if in_states:
            present_form = "state-space"
        elif form == "auto":
            pays = covariance_pays(flat, self.drifts, ROOM, min(b * _ARMS_AT_FIRST, self.num_arms))
            takes_covariance = pays if steady else self.num_arms <= _GROWING_VARIANCE_UP_TO
            present_form = "covariance" if takes_covariance else "factor"
        self._belief = ArmBelief(self.prior, flat, self.noise_variance.reshape(b, 1), present_form)
        self._belief.changes_form = form == "auto" and steady
        self._candidates_time = 0.0
        self.eval()

    # -- properties ------------------------------------------------------------------------------------

    @property
    def belief(self) -> ArmBelief:
        """The state that observations change, with a flat batch; captured steps work on it."""
        return self._belief

    @property
    def now(self) -> float | None:
        """Time of the latest observation, None before the first; always 0 for a static kernel."""
        return self._belief.now

    @property
    def num_observations(self) -> Tensor:
        return self._belief.observations.count.reshape(self.batch_shape)

    @property
    def total_precision(self) -> Tensor:
        """See ``OnlineModel``; with noise variances of single rewards O(n + N)."""
        of_each = self._belief.total_precision()
        return super().total_precision if of_each is None else of_each.reshape(self.batch_shape)

    @property
    def information_gain(self) -> Tensor:
        """Realised gain 1/2 log det(I + K_t / lambda) of the observations held, ``batch_shape``; O(1) to read."""
        return self._belief.form.gain.to(self.arms.dtype, copy=True).reshape(self.batch_shape)

    @property
    def log_likelihood(self) -> Tensor:
        """Log evidence of the observations held, ``batch_shape``, the sum of their log predictive densities; O(1)."""
        return self._belief.log_likelihood().reshape(self.batch_shape)

    @property
    def can_forget(self) -> bool:
        """False for a drifting model with ``form="covariance"``, unless it has a state space."""
        return not self.drifts or self.form != "covariance" or isinstance(self.prior, StateSpacePrior)

    @property
    def prior_mean(self) -> Tensor:
        """Prior mean of every arm, ``batch_shape x N``."""
        return self._belief.prior_mean.reshape(*self.batch_shape, -1).clone()

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Inputs of the observations held, ``(batch_shape x n x d,)``. Raises ValueError if members hold different
        numbers of observations."""
        arm, _, time = self._rectangular()
        columns = [c.to(self.input_dtype) for c in ((arm, time) if self.drifts else (arm,))]
        return (torch.stack(columns, -1).reshape(*self.batch_shape, -1, len(columns)),)

    @property
    def train_targets(self) -> Tensor:
        """Rewards of the observations held, ``batch_shape x n``."""
        return self._rectangular()[1].reshape(*self.batch_shape, -1)

    def held(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The observations held, oldest first: arm, reward, time and a mask of valid rows, (b, n) each.

        b is the size of ``batch_shape``, and n the largest number that a member holds; padding comes last. Raises
        ValueError if rewards have noise variances of their own.
        """
        self._belief.check_one_noise()
        return self._belief.observations.held()

    def _rectangular(self) -> tuple[Tensor, Tensor, Tensor]:
        arm, reward, time, valid = self._belief.observations.held()
        expected = "the same in every batch member"
        validation.require(bool(valid.all()), "num_observations", self.num_observations, expected)
        return arm, reward, time

    # -- learning --------------------------------------------------------------------------------------

    def observe(self, X: Tensor, Y: Tensor, where: Tensor | None = None) -> None:
        """Learn observations in order. X: ``batch x n x 1`` indices (x 2 with time); Y: ``batch x n x 1``.

        Cost: n steps. The time of an observation must be the same for every member of the batch.
        """
        index, rewards, times = inputs.arms_and_rewards(
            X, Y, self.num_arms, self.drifts, self.batch_shape, self.arms.dtype
        )
        moments = inputs.moments(times, index.shape[-1])
        if self.drifts and moments:
            self.check_not_past(moments[0])
            self._belief.check_spread(moments[-1])
        mask = self._mask(where)
        for k, moment in enumerate(moments):
            self._belief.learn(index[:, k], rewards[:, k].to(self.arms.dtype), moment, mask)

    def observe_arms(
        self,
        arm: Tensor,
        reward: Tensor,
        time: float | None = None,
        where: Tensor | None = None,
        *,
        late: bool = False,
        noise_variance: Tensor | None = None,
    ) -> None:
        """``observe`` for one pull per member, without packing indices into inputs. Policies call it at each step.

        Args:
            arm: integers (int64) that broadcast to ``batch_shape``.
            reward: numbers that broadcast to ``batch_shape``.
            time: the time of the pulls; needed if the model drifts.
            where: booleans of ``batch_shape``.
            late: accept a time before the latest observation. The model then learns all observations again, in order
                of time, and ``forget`` removes the oldest by time.
            noise_variance: for these rewards only, instead of the model's; numbers that broadcast to ``batch_shape``.
                Only the covariance form supports it (``form="auto"`` changes to that), without ``where``. A model with
                such rewards cannot ``forget``.

        Raises ValueError on another shape or dtype, a non-finite reward, an arm out of range, or a time before the
        latest observation without ``late``, with nothing changed. Values are checked on the CPU only; on a GPU ``run``
        checks them.
        """
        time = time.item() if isinstance(time, Tensor | np.generic) else time
        moment = self.check_not_past(time, late) if self.drifts else 0.0
        flat_arm, flat_reward = self._flat_arm(arm), self._flat_reward(reward)
        if noise_variance is not None:
            expected = "None for form='factor', for a kernel with a state space, and for a model that forgets"
            validation.require(self.takes_noise, "noise_variance", noise_variance, expected)
            validation.require(where is None, "where", where, "None if noise_variance is given")
            noise_variance = validation.own_noise(noise_variance).to(self.arms.dtype)
            noise_variance = inputs.flat("noise_variance", noise_variance, self.batch_shape)
        self._belief.take(flat_arm, flat_reward, moment, self._mask(where), noise_variance)

    def observe_residuals(
        self,
        arm: Tensor,
        residual: Tensor,
        at: tuple[Tensor, Tensor],
        time: float | None = None,
        where: Tensor | None = None,
    ) -> None:
        """See ``MembersOverArms``; here the reward, ``at[0] + residual``, is learned."""
        self.observe_arms(arm.unsqueeze(-1), at[0] + residual, time, where)

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """See ``OnlineModel``: a copy of O(N^2), in the factor form O(u N + n^2)."""
        with self._belief.provisional():
            yield

    def expect_arms(self, arm: Tensor, time: float) -> None:
        self._belief.expect(self._flat_arm(arm), validation.finite_number("time", time))

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        """Forget the ``count`` oldest observations, exactly and in place. With ``where``, a member may hold fewer.

        Raises ValueError for a drifting model with ``form="covariance"``, for rewards with noise variances of their own
        and, without ``where``, if a member holds fewer than ``count``.
        """
        validation.positive_integer("count", count)
        expected = "'factor' or 'auto': under drift the covariance form cannot forget"
        validation.require(self.can_forget, "form", self.form, expected)
        mask = self._mask(where)
        if mask is None:
            held = int(self._belief.observations.count.min())
            validation.require(count <= held, "count", count, f"at most the {held} observations held")
        self._belief.forget(count, mask)

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything: back to the prior (in the members with ``where`` True). O(N^2) or O(N + n^2)."""
        self._belief.reset(self._mask(where))

    def hold(self, X: Tensor, Y: Tensor, held: Tensor) -> None:
        """Replace all observations by the rows with ``held`` True, in members that have such rows.

        X: ``batch x n x 1`` indices (x 2 with time, the same in every member), Y: ``batch x n x 1``, oldest first;
        held: booleans, ``batch x n``. Cost: n steps; under drift all observations of all members are learned again.
        Raises ValueError on bad input, with nothing changed.
        """
        index, rewards, times = inputs.arms_and_rewards(
            X, Y, self.num_arms, self.drifts, self.batch_shape, self.arms.dtype
        )
        n = index.shape[-1]
        moments = inputs.moments(times, n, in_order=False)
        check_held(held, self.batch_shape, n)
        self._belief.check_spread(max(moments, default=None))
        self._belief.hold(
            index, rewards.to(self.arms.dtype), moments, held.reshape(self.batch_shape.numel(), n)
        )

    def take(
        self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False, where: Tensor | None = None
    ) -> None:
        if not late and self.drifts:
            self.check_not_past(time)
        moment = float(time) if self.drifts else 0.0
        self._belief.take(self._flat(arm), self._flat(reward.to(self.arms.dtype)), moment, where)

    def _flat(self, value: Tensor) -> Tensor:
        """A value for each member, (b,)."""
        b = self.batch_shape.numel()
        return value if value.shape == (b,) else value.expand(self.batch_shape).reshape(b)

    @property
    def takes_noise(self) -> bool:
        """Whether rewards may have noise variances of their own."""
        return not (self.form == "factor" or isinstance(self.prior, StateSpacePrior) or self._belief.forgets)

    def take_noisy(self, arm: Tensor, reward: Tensor, time: float, noise_variance: Tensor) -> None:
        """``take`` for rewards with noise variances of their own; they may be late."""
        arm, reward, noise = map(
            self._flat, (arm, reward.to(self.arms.dtype), noise_variance.to(self.arms.dtype))
        )
        self._belief.take(arm, reward, float(time) if self.drifts else 0.0, noise=noise)

    def slide(self, window: int) -> None:
        length = self._belief.observations.length
        if length is None:
            self._belief.forget(1, self._belief.observations.count > window)
        else:
            self._belief.forget(int(length > window))

    def rebuild(self) -> None:
        """Read the kernel's hyperparameters and learn the observations held again. Cost: one step for each."""
        self._belief.relearn(self._belief.form_name)

    def adopt(self, noise_variance: Tensor, prior_mean: Tensor) -> None:
        """Set the noise variance and the prior mean of the first arm, ``batch_shape`` each, and ``rebuild``.

        The prior means of other arms keep their differences from it. Raises ValueError for any other shape, and for
        values that the constructor refuses, with nothing changed.
        """
        for name, value in (("noise_variance", noise_variance), ("prior_mean", prior_mean)):
            fits = validation.tensor(name, value).shape == self.batch_shape
            validation.shape_is(name, value, fits, str(tuple(self.batch_shape)))
        self._check_ratio(noise_variance.to(self.noise_variance))
        validation.rewards("prior_mean", prior_mean, self.arms.dtype)
        self.noise_variance.copy_(noise_variance)
        self._belief.noise_variance.copy_(noise_variance.reshape(-1, 1))
        self._belief.move_prior_mean(prior_mean.reshape(-1, 1))
        self.rebuild()

    def check_not_past(self, time: float | None, late: bool = False) -> float:
        """``time`` as a number. Raises ValueError if it is not finite, or unless ``late`` before the latest
        observation."""
        validation.require(time is not None, "time", time, "a number: the kernel has a time part")
        moment, now = validation.finite_number("time", time), self._belief.now
        if now is not None and moment < now and not late:
            expected = f"finite and at or after the latest observation, {now}"
            validation.require(False, "time", time, expected)
        return moment

    # -- predicting ------------------------------------------------------------------------------------

    def candidates(self, time: float | None = None) -> Tensor:
        if not self.drifts:
            return super().candidates()
        moment, kept = self.check_not_past(time), self._kept()
        X = with_time(self._indices(), 0.0) if kept is None else kept.clone()
        X.select(-1, 1).fill_(moment)
        self._candidates_time = moment
        return self._keep(X)

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): ``batch_shape x N`` each. O(N)."""
        if self.drifts and time is not None:
            self.check_not_past(time)
        mean, variance = self._belief.marginals(time)
        shape = (*self.batch_shape, -1)
        return mean.reshape(shape), variance.reshape(shape)

    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        if self.drifts and time is not None:
            self.check_not_past(time)
        mean, covariance = self._belief.joint(time)
        shape = (*self.batch_shape, self.num_arms)
        return mean.reshape(shape), covariance.reshape(*shape, self.num_arms)

    def joint_root(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """See ``ArmModel``. Without drift, the covariance form keeps a root after the first call, which costs O(N^3),
        and updates it at O(N^2) per observation. Otherwise every call computes a Cholesky factor."""
        self._belief.want_root()
        root = self._belief.form.joint_root()
        if root is None:
            return super().joint_root(time)
        return self.marginals(time)[0], root.reshape(*self.batch_shape, self.num_arms, self.num_arms)

    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
        """See ``OnlineModel``; for ``candidates``, and for q = 1, from the stored marginals."""
        if X is not None and X is self._kept():
            time, now = self._candidates_time, self._belief.now
            if now is not None and time < now:  # the model has learned since ``candidates`` checked the time
                self.check_not_past(time)
            mean, variance = self._belief.marginals(time)
            shape = (-1, *self.batch_shape, 1)
            mean, variance = mean.mT.reshape(shape), variance.mT.reshape(shape)
            return MarginalPosterior(mean, variance + noise if isinstance(noise, Tensor) else variance)
        index, times = inputs.split(X, self.num_arms, self.drifts)
        if times is not None:
            self.check_not_past(float(times.min()))
        q, b = X.shape[-2], self.batch_shape.numel()
        points = (*inputs.points_of(X, self.batch_shape), q)
        flat = (-1, b, q)
        flat_times = None if times is None else times.expand(points).reshape(flat)
        mean, covariance = self._belief.at(index.expand(points).reshape(flat), flat_times)
        mean, covariance = mean.reshape(points), covariance.reshape(*points, q)
        return joint_posterior(mean, covariance, noise)

    # -- copies ----------------------------------------------------------------------------------------

    def widen(self, batch_shape: torch.Size) -> None:
        members = torch.arange(self.batch_shape.numel(), device=self.arms.device).reshape(self.batch_shape)
        super().widen(batch_shape)
        self.noise_variance = self.noise_variance.expand(batch_shape).clone()
        self.prior.fill(batch_shape)
        self._belief.widen(members.expand(batch_shape).flatten())

    def with_arms(self, arms: Tensor, prior_mean: float | Tensor | None = None) -> ArmGP:
        """A model that also has these arms, with indices from N on; it equals one built with all arms.

        Args:
            arms: features of the new arms, ``(n, d)``.
            prior_mean: for the new arms, a number or ``(*batch, n)``. Default: the mean that the old arms share.

        Cost: a step for every observation held. Raises ValueError for a covariance by index, which lacks the new arms:
        build a model with the larger matrix and observe again.
        """
        own = self.arms
        rows = validation.tensor("arms", arms).dim() == 2 and arms.shape[0] >= 1
        validation.shape_is(
            "arms", arms, rows and arms.shape[1] == own.shape[-1], f"(n, {own.shape[-1]}) with n >= 1"
        )
        means = self._belief.prior_mean
        if prior_mean is None:
            expected = "given, because the present arms have different means"
            validation.require(bool((means == means[0, 0]).all()), "prior_mean", None, expected)
            prior_mean = float(means[0, 0])
        new = inputs.prior_mean_over(arms.to(own), prior_mean)
        shape = torch.Size((*self.batch_shape, len(arms)))
        require_within(shape, new.shape, "prior_mean")
        model = ArmGP(
            torch.cat([own, arms.to(own).expand(*own.shape[:-2], -1, -1)], -2),
            self.prior.kernel,
            self.noise_variance,
            prior_mean=torch.cat([means.reshape(*self.batch_shape, -1), new.expand(shape)], -1),
            form=self.form,
            batch_shape=self.batch_shape,
        )
        model.grow_from(self)
        return model

    def grow_from(self, small: ArmGP) -> None:  # type: ignore[override]
        """Take the observations and hyperparameters of ``small``, a model over the first of these arms. Cost: a step
        for every observation held."""
        n, learned = small.num_arms, small.prior.kernel.state_dict()
        own = self.prior.kernel.state_dict()
        same = {name: value for name, value in learned.items() if value.shape == own[name].shape}
        self.prior.kernel.load_state_dict(own | same)
        self.noise_variance.copy_(small.noise_variance)
        belief, mean = self._belief, small.belief.prior_mean
        belief.noise_variance.copy_(small.belief.noise_variance)
        if not torch.equal(belief.prior_mean[:, :n], mean):  # learned
            belief.move_prior_mean(mean[:, :1])
        belief.observations, belief.now = copy.deepcopy(small.belief.observations), small.now
        belief.forgets = small.belief.forgets
        keeps_form = belief.forgets or belief.observations.noise is not None
        belief.relearn(small.belief.form_name if keeps_form else belief.form_name)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._belief.noise_variance.copy_(self.noise_variance.reshape(-1, 1))

"""How exact models over arms are told observations: checked at the border, listed, forgotten and replaced."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.arms.belief import ArmBelief
from bandits_torch.models.broadcasting import check_held


class ObservedArms(ArmModel):
    """The border of an ``ArmGP``: what it is told goes to its belief once it has been checked.

    Attributes:
        form: the form asked for.
    """

    _belief: ArmBelief
    form: str

    @property
    @abstractmethod
    def now(self) -> float | None:
        """Time of the latest observation, None before the first."""

    @property
    @abstractmethod
    def can_forget(self) -> bool:
        """Whether single observations can be unlearned."""

    @property
    @abstractmethod
    def takes_noise(self) -> bool:
        """Whether rewards may come with a noise variance of their own."""

    @abstractmethod
    def take_noisy(self, arm: Tensor, reward: Tensor, time: float, noise_variance: Tensor) -> None:
        """Learn rewards with a noise variance of their own, all checked."""

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Inputs of the observations held, ``(batch_shape x n x d,)``; ValueError if members hold different numbers."""
        arm, _, time = self._rectangular()
        columns = [c.to(self.input_dtype) for c in ((arm, time) if self.drifts else (arm,))]
        return (torch.stack(columns, -1).reshape(*self._batch_shape, -1, len(columns)),)

    @property
    def train_targets(self) -> Tensor:
        """Rewards of the observations held, ``batch_shape x n``."""
        return self._rectangular()[1].reshape(*self._batch_shape, -1)

    def held(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The observations held, oldest first: arm, reward, time and whether a row is one, (b, n) each.

        b members, ``batch_shape`` flattened; n is the largest number that a member holds, with padding last. Raises
        ValueError where rewards have a noise variance of their own.
        """
        self._belief.check_one_noise()
        return self._belief.observations.held()

    def _rectangular(self) -> tuple[Tensor, Tensor, Tensor]:
        arm, reward, time, valid = self._belief.observations.held()
        same = bool(valid.all())
        validation.require(
            same, "num_observations", self.num_observations, "the same in every batch member to list them"
        )
        return arm, reward, time

    def observe(self, X: Tensor, Y: Tensor, where: Tensor | None = None) -> None:
        """Learn observations in order. X: ``batch x n x 1`` indices (x 2 with time); Y: ``batch x n x 1``.

        Cost: n steps. The time of an observation must be the same for every member of the batch.
        Raises ValueError on bad input, with nothing changed.
        """
        index, rewards, times = inputs.arms_and_rewards(
            X, Y, self.num_arms, self.drifts, self._batch_shape, self.arms.dtype
        )
        moments = inputs.moments(times, index.shape[-1])
        if self.drifts and moments:
            self._check_not_past(moments[0])
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
        """``observe`` for one pull per member, without packing indices into inputs: the path of a policy's step.

        Args:
            arm: integers (int64) that broadcast to ``batch_shape``.
            reward: numbers that broadcast to ``batch_shape``.
            time: the time of the pulls; needed if the model drifts.
            where: booleans of ``batch_shape``.
            late: accept a time before the latest observation. Exact, at the cost of learning all observations again;
                ``forget`` then removes the oldest by time.
            noise_variance: of these rewards alone, numbers that broadcast to ``batch_shape``, in place of the model's:
                exact, in the covariance form (which ``form="auto"`` then takes), without ``where``; a model that has
                learned such rewards cannot ``forget`` single ones.

        Raises ValueError on another shape or dtype, a non-finite reward, an arm out of range or reversed time,
        with nothing changed; values are checked on the CPU only, since a check would synchronise with a GPU
        (``run`` checks there).
        """
        moment = 0.0
        if self.drifts:
            validation.require(time is not None, "time", time, "a number: the kernel has a time part")
            moment = validation.finite_number(
                "time", time.item() if isinstance(time, Tensor | np.generic) else time
            )
            late = late and self.now is not None and moment < self.now
            if not late:
                self._check_not_past(moment)
                self._belief.check_spread(moment)
        expected = f"int64 from 0 to {self.num_arms - 1}"
        validation.require(validation.tensor("arm", arm).dtype == torch.long, "arm", arm, expected)
        if validation.tensor("reward", reward).is_cpu:
            validation.rewards("reward", reward, self.arms.dtype)
            in_range = bool(((arm >= 0) & (arm < self.num_arms)).all())
            validation.require(in_range, "arm", arm, expected)
        if noise_variance is not None:
            self._check_own_noise(noise_variance, where)
            self.take_noisy(arm, reward, moment, noise_variance)
            return
        flat_arm = inputs.flat("arm", arm, self._batch_shape)
        flat_reward = inputs.flat("reward", reward.to(self.arms.dtype), self._batch_shape)
        if late and self.drifts:
            self._belief.learn_late(flat_arm, flat_reward, moment, self._mask(where))
        else:
            self._belief.learn(flat_arm, flat_reward, moment, self._mask(where))

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """See ``OnlineModel``: O(N^2) to copy, or O(u N + n^2) in the factor form."""
        with self._belief.provisional():
            yield

    def expect(self, X: Tensor) -> None:
        """See ``OnlineModel``. Under drift a pull before the latest observation counts as made with it."""
        index, times = inputs.split(X, self.num_arms, self.drifts)
        validation.shape_is("X", X, X.shape[-2] == 1, "batch_shape x 1 x d")
        self.expect_arms(index.squeeze(-1), 0.0 if times is None else float(times.max()))

    def expect_arms(self, arm: Tensor, time: float) -> None:
        """``expect`` of one pull per member, integers that broadcast to ``batch_shape``."""
        self._belief.expect(inputs.flat("arm", arm, self._batch_shape), float(time))

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        """Unlearn the ``count`` oldest observations, exactly and in place; members that hold fewer are emptied.

        Raises ValueError if this form cannot (covariance form under drift), or, without ``where``, if some
        member holds fewer than ``count``.
        """
        validation.positive_integer("count", count)
        validation.require(
            self.can_forget,
            "form",
            self.form,
            "'factor' or 'auto': under drift the covariance form cannot forget",
        )
        mask = self._mask(where)
        if mask is None:
            held = int(self._belief.observations.count.min())
            validation.require(count <= held, "count", count, f"at most the {held} observations held")
            mask = torch.ones_like(self._belief.form.gain, dtype=torch.bool)
        self._belief.forget(count, mask)

    def reset(self, where: Tensor | None = None) -> None:
        """Unlearn everything: back to the prior (in the members with ``where`` True). O(N^2) or O(N + n^2)."""
        self._belief.reset(self._mask(where))

    def hold(self, X: Tensor, Y: Tensor, held: Tensor) -> None:
        """Replace all observations by these: rows with ``held`` True, in members that have any.

        X: ``batch x n x 1`` indices (x 2 with time, the same in every member), Y: ``batch x n x 1``, oldest first;
        held: booleans, ``batch x n``. Cost: n steps; under drift the steps of all observations held by any member.
        Raises ValueError on bad input, with nothing changed.
        """
        index, rewards, times = inputs.arms_and_rewards(
            X, Y, self.num_arms, self.drifts, self._batch_shape, self.arms.dtype
        )
        n = index.shape[-1]
        moments = inputs.moments(times, n, in_order=False)
        check_held(held, self._batch_shape, n)
        self._belief.check_spread(max(moments))
        self._belief.hold(index, rewards.to(self.arms.dtype), moments, held.reshape(-1, n))

    def _check_own_noise(self, noise_variance: Tensor, where: Tensor | None) -> None:
        expected = "None for form='factor', for arms with a state, and for a model that forgets"
        validation.require(self.takes_noise, "noise_variance", noise_variance, expected)
        validation.require(where is None, "where", where, "None with a noise_variance")
        validation.own_noise(noise_variance)

    def _mask(self, where: Tensor | None) -> Tensor | None:
        return None if where is None else inputs.flat_mask(where, self._batch_shape)

    def _check_not_past(self, time: float | None) -> float:
        moment = validation.finite_number("time", time)
        ok = self.now is None or moment >= self.now
        validation.require(ok, "time", time, f"finite and at or after the latest observation, {self.now}")
        return moment

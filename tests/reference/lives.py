"""A model of any kind beside lists of what each of its members was told, answered by twins in extended precision."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch.kernels.state_space import StateSpace
from bandits_torch.state import differing
from tests.fuzz.living import state_of
from tests.reference import precise
from tests.reference.precise import Answers, Array

F64 = torch.float64
ALLOWED = 4.0  # C of ``attack_models``
FLOOR = 1e-12  # of the size of an answer, whatever the ratio


@dataclass
class Life:
    """A model and what each of its members was told: (arm, reward, time, noise), oldest first."""

    name: str
    model: Any
    K: Tensor  # (b, N, N)
    noise: list[float]
    mean: Tensor  # (b, N)
    over_time: str | None = None
    rate: float = 0.0
    start: float = 0.0
    discount: float = 1.0
    own_noise: bool = False  # whether rewards come with noise variances of their own
    told: list[list[tuple[int, float, float, float]]] = field(default_factory=list)
    now: float | None = None
    # of each member, since it was last empty:
    largest: list[float] = field(default_factory=list)  # residual
    most: list[int] = field(default_factory=list)  # observations held

    def __post_init__(self) -> None:
        self.told = [[] for _ in self.noise]
        self.largest, self.most = [0.0] * len(self.noise), [0] * len(self.noise)

    @property
    def members(self) -> int:
        return len(self.noise)

    def time_kernel(self, s: Array, t: Array) -> Array:
        """k(s, t) of broadcasting times."""
        if self.over_time is None:
            return precise.precise(np.ones(np.broadcast_shapes(s.shape, t.shape)))
        if self.over_time == "exponential":
            return np.exp(np.abs(s - t) * np.log1p(-precise.precise(self.rate)) / 2)
        if self.over_time == "matern":
            x = np.sqrt(precise.precise(3)) * np.abs(s - t) * precise.precise(self.rate)
            return (1 + x) * np.exp(-x)
        if self.over_time == "cycle":
            turn = 2 * np.pi * precise.precise(1) * (s - t) * precise.precise(self.rate) * 30 / 7
            one = torch.ones((), dtype=F64)
            weight = precise.precise(StateSpace.periodic(one, one, 2).components[0].weight)
            wave = sum(q * np.cos(j * turn) for j, q in enumerate(weight))
            return wave * np.exp(-np.abs(s - t) * precise.precise(self.rate))
        return 1 + precise.precise(self.rate) * np.maximum(np.minimum(s, t) - precise.precise(self.start), 0)

    def answers(self, m: int, time: float) -> Answers:
        """What member m should say at ``time``."""
        K, mean = precise.precise(self.K[m].numpy()), precise.precise(self.mean[m].numpy())
        arm, reward, times, noise = map(list, zip(*self.told[m], strict=True)) if self.told[m] else [[]] * 4
        residual = [precise.precise(y) - mean[a] for a, y in zip(arm, reward, strict=True)]
        if self.name == "SketchedGP":
            dictionary = self.model.sketches[m].inducing_arms().tolist()
            found = precise.dtc(K, arm, residual, dictionary, self.noise[m])
        elif self.name == "WeightedGP":
            found = precise.weighted(K, arm, residual, self.discount, self.noise[m])
        else:
            s, now = precise.precise(times), precise.precise(time)
            pairs = ((s[:, None], s), (s, now), (now, now))
            over_time = (self.time_kernel(*pair) for pair in pairs)
            found = precise.gp(K, arm, residual, self.noise[m], *over_time, own_noise=noise)
        return found._replace(mean=found.mean + mean)

    # -- what can happen to it -------------------------------------------------------------------------

    def observe(self, arm: Tensor, reward: Tensor, time: float, where: Tensor | None, **options: Any) -> None:
        """``options``: of ``ArmGP.observe_arms``."""
        shape, late = self.model.batch_shape, options.get("late", False)
        mask = None if where is None else where.reshape(shape)
        if self.over_arms:
            self.model.observe_arms(arm.reshape(shape), reward.reshape(shape), time, mask, **options)
        elif self.name == "SketchedGP":
            self.model.observe_arms(arm.reshape(shape), reward.reshape(shape), time, mask)
        else:
            self.model.observe(self._inputs(arm, time), reward.reshape(*shape, 1, 1), mask)
        for m in range(self.members):
            if where is None or where[m]:
                self._told(m, int(arm[m]), float(reward[m]), time, options.get("noise_variance"))
                if late and self.over_arms:
                    self.told[m].sort(key=lambda one: one[2])
                self.largest[m] = max(self.largest[m], abs(float(reward[m] - self.mean[m, arm[m]])))
                self.most[m] = max(self.most[m], len(self.told[m]))
        self.now = time if self.now is None else max(self.now, time)

    def _told(self, m: int, arm: int, reward: Any, time: float, noise: Tensor | None = None) -> None:
        own = self.noise[m] if noise is None else float(noise.flatten()[m])
        self.told[m].append((arm, reward, time, own))

    def _inputs(self, arm: Tensor, time: float) -> Tensor:
        """X of one arm for each member, (b,), at a time."""
        columns = [arm.double(), torch.full_like(arm, time, dtype=F64)][: 1 + (self.over_time is not None)]
        return torch.stack(columns, -1).reshape(*self.model.batch_shape, 1, len(columns))

    @property
    def over_arms(self) -> bool:
        """Whether the model is an ``ArmGP``."""
        return self.name in ("auto", "covariance", "factor", "states")

    @property
    def forgets(self) -> bool:
        covariance = self.name == "covariance" and self.over_time is not None
        return self.model.can_forget and not covariance and not self.own_noise

    def forget(self, count: int, where: Tensor) -> None:
        self.model.forget(count, where.reshape(self.model.batch_shape))
        for m in range(self.members):
            if where[m]:
                del self.told[m][:count]
                if not self.told[m]:
                    self.largest[m], self.most[m] = 0.0, 0

    def reset(self, where: Tensor | None) -> None:
        self.model.reset(None if where is None else where.reshape(self.model.batch_shape))
        for m in range(self.members):
            if where is None or where[m]:
                self.told[m], self.largest[m], self.most[m] = [], 0.0, 0
        if where is None:
            self.now = None

    def hold(self, random: random.Random, keep: int) -> None:
        """Some of the last ``keep`` of member 0, which may be none, told to each; who is told none stays as it was."""
        rows = self.told[0][-keep:] if keep else []
        shape = (*self.model.batch_shape, len(rows))
        width = 2 if self.over_time is not None else 1
        X = torch.tensor([[a, t][:width] for a, _, t, _ in rows], dtype=F64).reshape(-1, width)
        Y = torch.tensor([y for _, y, _, _ in rows], dtype=F64).unsqueeze(-1)
        share = random.choice((1.0, 0.5, 0.1))
        held = torch.tensor([[random.random() < share for _ in rows] for _ in self.noise]).bool()
        self.model.hold(X.expand(*shape, width), Y.expand(*shape, 1), held.reshape(shape))
        for m in range(self.members):
            own = [
                (a, y, t, self.noise[m]) for (a, y, t, _), holds in zip(rows, held[m], strict=True) if holds
            ]
            if own:
                self.told[m], self.most[m] = own, len(own)
                self.largest[m] = max(abs(y - float(self.mean[m, a])) for a, y, _, _ in own)

    def pending(self, random: random.Random, time: float) -> list[tuple[str, float, float, float]]:
        """``errors`` while a few pulls at ``time`` are expected: as if each had paid the mean. Gain and likelihood
        count what was paid, but for a sketch. Afterwards the state is as before."""
        before, told = state_of(self.model), [list(own) for own in self.told]
        now = time if self.now is None else max(time, self.now)
        counted = [self.answers(m, now) for m in range(self.members)]
        with self.model.provisional():
            for _ in range(random.randint(1, 3)):
                arm = torch.tensor([random.randrange(self.K.shape[-1]) for _ in self.noise])
                if self.over_arms:
                    self.model.expect_arms(arm.reshape(self.model.batch_shape), time)
                else:
                    self.model.expect(self._inputs(arm, time))
                then = now if self.over_arms else time  # over arms what was pulled before counts as now
                for m in range(self.members):
                    self._told(m, int(arm[m]), self.answers(m, then).mean[arm[m]], then)
            found = self.errors(now, None if self.name == "SketchedGP" else counted)
        self.told = told
        changed = bool(differing(before, state_of(self.model)))
        return [*found, ("state after what was pending", 1.0, float(changed), 0.0)]

    def act(
        self,
        random: random.Random,
        kind: str,
        arm: Tensor,
        reward: Tensor,
        time: float,
        where: Tensor,
        step: float,
    ) -> None:
        """Whatever ``kind`` says, in the members ``where`` where it is not for all."""
        earlier = (self.now or 0.0) - random.random() * 3 * step
        if kind == "forget" and self.forgets:
            count = random.randint(1, 3)
            where = where & torch.tensor([len(told) >= count for told in self.told])
            if where.any():
                self.forget(count, where)
        elif kind == "reset":
            self.reset(where)
        elif kind == "reset all":
            self.reset(None)
        elif kind == "hold" and self.forgets and self.told[0]:
            self.hold(random, random.randint(0 if self.over_arms else 1, len(self.told[0])))
        elif self.own_noise and random.random() < 0.7:
            own = [noise * 10 ** random.uniform(-1, 1) for noise in self.noise]
            noise = torch.tensor(own, dtype=F64).reshape(self.model.batch_shape)
            late = kind == "late" and self.over_time is not None and self.now is not None
            self.observe(arm, reward, earlier if late else time, None, late=late, noise_variance=noise)
        elif kind == "late" and self.over_time is not None and self.now is not None:
            self.observe(arm, reward, earlier, where, **{"late": True} if self.over_arms else {})
        else:
            self.observe(arm, reward, time, where if kind == "masked" else None)

    # -- what it says ----------------------------------------------------------------------------------

    def says(self, time: float) -> dict[str, Tensor]:
        N = self.K.shape[-1]
        if self.over_arms or self.name == "SketchedGP":
            mean, variance = self.model.marginals(time)
        else:
            X = torch.arange(N, dtype=F64).reshape(N, *[1] * len(self.model.batch_shape), 1, 1)
            if self.over_time is not None:
                X = torch.cat([X, torch.full_like(X, time)], -1)
            with torch.no_grad():
                posterior = self.model.posterior(X)
            mean, variance = (
                v.squeeze(-1).squeeze(-1).movedim(0, -1) for v in (posterior.mean, posterior.variance)
            )
        said = {"mean": mean, "variance": variance, "gain": self.model.information_gain}
        if hasattr(self.model, "log_likelihood"):
            said["likelihood"] = self.model.log_likelihood
        return {name: value.reshape(self.members, -1) for name, value in said.items()}

    def errors(
        self, time: float, counted: list[Answers] | None = None
    ) -> list[tuple[str, float, float, float]]:
        """(what, ratio, error, error that is allowed), each in units of the size of the answer. ``counted``: what gain
        and likelihood count, where that is not all."""
        said, found = self.says(time), []
        for m in range(self.members):
            right = self.answers(m, time)
            n, k = max(self.most[m], len(self.told[m])), float(self.K[m].diagonal().max())
            most = 1.0
            if self.over_time == "wiener":
                most = float(self.time_kernel(precise.precise(time), precise.precise(time)))
            ratio = min([self.noise[m], *(noise for *_, noise in self.told[m])]) / (k * most)
            condition = 1 + n / ratio
            allowed = FLOOR + ALLOWED * np.finfo(float).eps * condition
            deviation = math.sqrt(k * most) + self.largest[m] + float(self.mean[m].abs().max())
            exact = {"mean": (right.mean, deviation), "variance": (np.diagonal(right.covariance), k * most)}
            for what, (value, size) in exact.items():
                off = float(np.abs(said[what][m].numpy() - value).max())
                found.append((what, ratio, off / size, allowed))
            right = counted[m] if counted else right
            pairs = [("gain", right.gain, 1 + abs(right.gain))]
            if "likelihood" in said:
                pairs.append(("likelihood", right.log_likelihood, 1 + abs(right.log_likelihood)))
            for what, value, size in pairs:
                off_by = abs(float(said[what][m, 0]) - value) / size
                found.append((what, ratio, off_by, allowed))
        return found

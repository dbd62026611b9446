"""A model of any kind beside lists of what each of its members was told, answered by twins in extended precision."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.reference import precise
from tests.reference.precise import Answers, Array

F64 = torch.float64
ALLOWED = 4.0  # C of ``attack_models``
FLOOR = 1e-12  # of the size of an answer, whatever the ratio


@dataclass
class Life:
    """A model and what each of its members was told: (arm, reward, time), oldest first."""

    name: str
    model: Any
    K: Tensor  # (b, N, N)
    noise: list[float]
    mean: Tensor  # (b, N)
    over_time: str | None = None
    rate: float = 0.0
    start: float = 0.0
    discount: float = 1.0
    told: list[list[tuple[int, float, float]]] = field(default_factory=list)
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
        return 1 + precise.precise(self.rate) * np.maximum(np.minimum(s, t) - precise.precise(self.start), 0)

    def answers(self, m: int, time: float) -> Answers:
        """What member m should say at ``time``."""
        K, told, mean = (
            precise.precise(self.K[m].numpy()),
            self.told[m],
            precise.precise(self.mean[m].numpy()),
        )
        arm = [a for a, _, _ in told]
        residual = [precise.precise(y) - mean[a] for a, y, _ in told]
        if self.name == "SketchedGP":
            dictionary = self.model.sketches[m].inducing_arms().tolist()
            found = precise.dtc(K, arm, residual, dictionary, self.noise[m])
        elif self.name == "WeightedGP":
            found = precise.weighted(K, arm, residual, self.discount, self.noise[m])
        else:
            s, now = precise.precise([t for _, _, t in told]), precise.precise(time)
            pairs = ((s[:, None], s), (s, now), (now, now))
            found = precise.gp(K, arm, residual, self.noise[m], *(self.time_kernel(*pair) for pair in pairs))
        return found._replace(mean=found.mean + mean)

    # -- what can happen to it -------------------------------------------------------------------------

    def observe(
        self, arm: Tensor, reward: Tensor, time: float, where: Tensor | None, late: bool = False
    ) -> None:
        mask = None if where is None else where.reshape(self.model.batch_shape)
        arm_, reward_ = arm.reshape(self.model.batch_shape), reward.reshape(self.model.batch_shape)
        if self.name in ("covariance", "factor"):
            self.model.observe_arms(arm_, reward_, time, mask, late=late)
        elif self.name == "SketchedGP":
            self.model.observe_arms(arm_, reward_, time, mask)
        else:
            columns = [arm_.double(), torch.full_like(reward_, time)][: 1 + (self.over_time is not None)]
            X = torch.stack(columns, -1).unsqueeze(-2)
            self.model.observe(X, reward_.unsqueeze(-1).unsqueeze(-1), mask)
        for m in range(self.members):
            if where is None or where[m]:
                self.told[m].append((int(arm[m]), float(reward[m]), time))
                if late and self.name != "OnlineGP":
                    self.told[m].sort(key=lambda one: one[2])
                off = abs(float(reward[m] - self.mean[m, arm[m]]))
                self.largest[m] = max(self.largest[m], off)
                self.most[m] = max(self.most[m], len(self.told[m]))
        self.now = time if self.now is None else max(self.now, time)

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

    def hold(self, keep: int) -> None:
        """The last ``keep`` of member 0, told to all."""
        rows = self.told[0][-keep:]
        shape = (*self.model.batch_shape, len(rows))
        width = 2 if self.over_time is not None else 1
        X = torch.tensor([[a, t][:width] for a, _, t in rows], dtype=F64).expand(*shape, width)
        Y = torch.tensor([y for _, y, _ in rows], dtype=F64).unsqueeze(-1).expand(*shape, 1)
        self.model.hold(X, Y, torch.ones(shape, dtype=torch.bool))
        self.told, self.most = [list(rows) for _ in self.noise], [len(rows)] * self.members
        mean = self.mean
        self.largest = [max(abs(y - float(mean[m, a])) for a, y, _ in rows) for m in range(self.members)]

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
        if kind == "forget":
            count = random.randint(1, 3)
            where = where & torch.tensor([len(told) >= count for told in self.told])
            if where.any():
                self.forget(count, where)
        elif kind == "reset":
            self.reset(where)
        elif kind == "reset all":
            self.reset(None)
        elif kind == "hold" and self.told[0]:
            self.hold(random.randint(1, len(self.told[0])))
        elif kind == "late" and self.over_time is not None and self.now is not None:
            self.observe(arm, reward, self.now - random.random() * 3 * step, where, late=True)
        else:
            self.observe(arm, reward, time, where if kind == "masked" else None)

    # -- what it says ----------------------------------------------------------------------------------

    def says(self, time: float) -> dict[str, Tensor]:
        N = self.K.shape[-1]
        if self.name in ("covariance", "factor", "SketchedGP"):
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

    def errors(self, time: float) -> list[tuple[str, float, float, float]]:
        """(what, ratio, error, error that is allowed), each in units of the size of the answer."""
        said, found = self.says(time), []
        for m in range(self.members):
            right = self.answers(m, time)
            n, k = self.most[m], float(self.K[m].diagonal().max())
            most = 1.0
            if self.over_time == "wiener":
                most = float(self.time_kernel(precise.precise(time), precise.precise(time)))
            ratio = self.noise[m] / (k * most)
            condition = 1 + n / ratio
            allowed = FLOOR + ALLOWED * np.finfo(float).eps * condition
            deviation = math.sqrt(k * most) + self.largest[m] + float(self.mean[m].abs().max())
            exact = {"mean": (right.mean, deviation), "variance": (np.diagonal(right.covariance), k * most)}
            for what, (value, size) in exact.items():
                off = float(np.abs(said[what][m].numpy() - value).max())
                found.append((what, ratio, off / size, allowed))
            pairs = [("gain", right.gain, 1 + abs(right.gain))]
            if "likelihood" in said:
                pairs.append(("likelihood", right.log_likelihood, 1 + abs(right.log_likelihood)))
            for what, value, size in pairs:
                off_by = abs(float(said[what][m, 0]) - value) / size
                found.append((what, ratio, off_by, allowed))
        return found

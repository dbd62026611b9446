"""The observations that a batch of models holds, oldest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch.models.online_model import ResizableState

_ROOM = 64  # first capacity, in observations of each member


class ObservationBuffer(ResizableState):
    """A first-in, first-out store of (arm, reward, time) for each of b batch members.

    Members can hold different numbers of observations. Adding or removing one costs O(b), unless the buffer is full:
    then it is packed, and doubled if more than half of it is in use.

    Attributes:
        arm, reward, time: (b, capacity); member k holds columns ``start[k] .. end[k] - 1``.
        start, end: (b,) integers.
        noise: (b, capacity), noise variances of single observations, NaN for the model's; None if there are none.
        length: the number that every member holds, known without waiting for the device; None once members may hold
            different numbers, until ``look``.
    """

    arm: Tensor
    reward: Tensor
    time: Tensor
    start: Tensor
    end: Tensor
    noise: Tensor | None
    length: int | None
    _PLAIN = ("_end_bound",)

    def __init__(self, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("arm", torch.zeros(batch, _ROOM, dtype=torch.long, device=device))
        self.register_buffer("reward", torch.zeros(batch, _ROOM, dtype=dtype, device=device))
        self.register_buffer("time", torch.zeros(batch, _ROOM, dtype=torch.float64, device=device))
        self.register_buffer("start", torch.zeros(batch, dtype=torch.long, device=device))
        self.register_buffer("end", torch.zeros(batch, dtype=torch.long, device=device))
        self.register_buffer("noise", None)
        self._end_bound = 0  # at least every end; known without waiting for the device
        self.length = 0

    @property
    def count(self) -> Tensor:
        """The number of observations that each member holds, (b,)."""
        return self.end - self.start

    def look(self) -> int:
        """The largest number of observations that a member holds. Sets ``length``. Waits for the device."""
        least, most = self.count.aminmax()
        self.length = int(most) if int(least) == int(most) else None
        return int(most)

    def _add_to_length(self, k: int, where: Tensor | None = None) -> None:
        own = self.__dict__  # ``__setattr__`` takes longer than the sum
        own["length"] = own["length"] + k if where is None and own["length"] is not None else None

    def append(self, arm: Tensor, reward: Tensor, time: float, where: Tensor | None) -> None:
        """Add one observation to each member with ``where`` True (None: to all)."""
        if self._end_bound == self.arm.shape[-1]:
            self._make_room()
        at = self.end.unsqueeze(-1)
        # Other members are written to as well, just past their end, where nothing is read.
        self.arm.scatter_(-1, at, arm.unsqueeze(-1))
        self.reward.scatter_(-1, at, reward.unsqueeze(-1))
        self.time.scatter_(-1, at, time)
        self.end.add_(1 if where is None else where)
        self.__dict__["_end_bound"] += 1
        self._add_to_length(1, where)

    def reserve(self, more: int) -> None:
        """Make room for ``more`` observations of every member."""
        if self._end_bound + more > self.arm.shape[-1]:
            length = self._largest()
            self._pack(length, max(self.arm.shape[-1], length + more))

    def extend(self, arm: Tensor, reward: Tensor, times: Tensor) -> None:
        """Add k observations to each member, oldest first: arm and reward (b, k), times (k,). O(b k)."""
        k = len(times)
        if self._end_bound + k > self.arm.shape[-1]:
            capacity, length = self.arm.shape[-1], self._largest()
            self._pack(length, capacity if 2 * (length + k) <= capacity else 2 * (length + k))
        at = self.end.unsqueeze(-1) + torch.arange(k, device=self.end.device)
        self.arm.scatter_(-1, at, arm)
        self.reward.scatter_(-1, at, reward.to(self.reward))
        self.time.scatter_(-1, at, times.to(self.time).expand_as(at))
        self.end.add_(k)
        self._end_bound += k
        self._add_to_length(k)

    def note_noise(self, noise: Tensor, where: Tensor | None = None) -> None:
        """Set the noise variance (b,) of the next observation, in the members with ``where`` True."""
        if self._end_bound == self.arm.shape[-1]:
            self._make_room()
        if self.noise is None:
            self.noise = torch.full_like(self.reward, torch.nan)
        noise = noise.to(self.noise)
        noise = noise if where is None else torch.where(where, noise, torch.nan)
        self.noise.scatter_(-1, self.end.unsqueeze(-1), noise.unsqueeze(-1))

    def noises(self, otherwise: Tensor | float, length: int | None = None) -> Tensor | None:
        """Noise variances of the observations ``held``, (b, n), and ``otherwise`` (b, 1) for those without; None if
        ``noise`` is."""
        if self.noise is None:
            return None
        at, valid = self._columns(length)
        noise = self.noise.gather(-1, at)
        return torch.where(noise.isnan() | ~valid, torch.as_tensor(otherwise).to(noise), noise)

    def pop(self, where: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Remove the oldest observation of the members with ``where`` True that hold any. None: of all; all must hold
        one.

        Returns the oldest (arm, reward, time) of each member, (b,) each, undefined for empty members, and the mask of
        members that lost one, None for all.
        """
        if where is None:
            at = self.start.unsqueeze(-1)
        else:
            where, at = (
                where & (self.end > self.start),
                self.start.clamp(max=self.arm.shape[-1] - 1).unsqueeze(-1),
            )
        arm, reward, time = self.arm.gather(-1, at), self.reward.gather(-1, at), self.time.gather(-1, at)
        self.drop_oldest(1 if where is None else where)
        return arm.squeeze(-1), reward.squeeze(-1), time.squeeze(-1), where

    def drop_oldest(self, where: Tensor | int) -> None:
        """Remove the oldest observation of the members with ``where`` True, or a number of them from every member. They
        must hold that many."""
        self.start.add_(where)
        if isinstance(where, int):
            self._add_to_length(-where)
        else:
            self.length = None

    def clear(self, where: Tensor | None, but: Tensor | int = 0) -> None:
        """Remove all observations of all members; or, with ``where``, all but the latest ``but`` of those with True."""
        if where is None:
            self.start.zero_()
            self.end.zero_()
            self._end_bound = self.length = 0
            self.noise = None
        else:
            self.length = None
            self.start.copy_(torch.where(where, self.end - but, self.start))

    def held(self, length: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(arm, reward, time, valid), (b, n) each, oldest first, padding last. n is the largest count; reading it waits
        for the device unless ``length`` is known or given."""
        at, valid = self._columns(length)
        return self.arm.gather(-1, at), self.reward.gather(-1, at), self.time.gather(-1, at), valid

    def _columns(self, length: int | None) -> tuple[Tensor, Tensor]:
        """The columns of each member's observations, oldest first, and whether it holds that many, (b, n) each."""
        count = self.count
        length = self._largest() if length is None else length
        column = torch.arange(length, device=count.device)
        at = (self.start.unsqueeze(-1) + column).clamp(max=self.arm.shape[-1] - 1)
        return at, column < count.unsqueeze(-1)

    def _largest(self) -> int:
        return self.look() if self.length is None else self.length

    def _make_room(self) -> None:
        """Pack; double the capacity if more than half of it stays in use."""
        length, capacity = self._largest(), self.arm.shape[-1]
        self._pack(length, 2 * capacity if 2 * length > capacity else capacity)

    def _pack(self, length: int, capacity: int) -> None:
        """Move all observations to the front; ``length``: the largest count."""
        arm, reward, time, _ = self.held(length)
        noise = self.noises(torch.nan, length)
        room = (0, capacity - length)
        self.arm, self.reward, self.time = (pad(packed, room) for packed in (arm, reward, time))
        if noise is not None:
            self.noise = pad(noise, room, value=torch.nan)
        self.end.copy_(self.count)
        self.start.zero_()
        self._end_bound = length

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ObservationBuffer:
        """``model.to(float32)`` leaves times in float64: float32 has too few digits for a clock of seconds."""
        exact = self.time
        super()._apply(fn, recurse)
        self.time = exact.to(self.time.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        incoming = state_dict.get(prefix + "noise")
        self.noise = None if incoming is None else torch.empty_like(self.reward)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.look()

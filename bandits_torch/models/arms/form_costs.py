"""What a step costs in either form of ``ArmGP``, so that ``form="auto"`` takes the cheaper one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

ENTRIES = (10_000, 100_000, 1_000_000, 10_000_000)  # numbers that a step passes over, on a CPU
_UNMEASURED_COVARIANCE_UP_TO = 500  # arms, on a device without figures
_UNMEASURED_DRIFTING_UP_TO = 1_500  # under drift, where every pull is a point of the factor form
_LARGEST = 2 * 2**30  # bytes of covariance matrices that "auto" takes
_FEW = 30  # points that a policy soon has pulled
# What the first step of the factor form may cost, in those of the covariance form: later ones cost more.
_CLEARLY = 0.8


@dataclass(frozen=True)
class Costs:
    """Seconds of a step that passes over so many numbers (``entries``): b members over N arms with n points each and u
    rows between them have

        covariance form: b N^2,    factor form: 4 b n^2 + u N  (the covariances among points pass four times).

    Between these sizes the logarithm of the seconds is linear in that of the size, below them constant, above them the
    seconds grow as the size does. A step of the factor form takes ``new_row`` seconds more when it meets a new arm,
    whose prior row the kernel computes.
    """

    covariance: tuple[float, ...]
    factor: tuple[float, ...]
    entries: tuple[int, ...] = ENTRIES
    new_row: float = 0.0

    def of_covariance(self, members: int, arms: int) -> float:
        """Of a step in the covariance form."""
        return _between(self.entries, self.covariance, members * arms**2)

    def of_factor(self, members: int, arms: int, points: int, rows: int, new: float) -> float:
        """Of a step in the factor form; ``new``: the share of steps that meet a new arm."""
        size = 4 * members * points**2 + rows * arms
        return _between(self.entries, self.factor, size) + new * self.new_row


def _between(entries: tuple[int, ...], seconds: tuple[float, ...], size: float) -> float:
    if size <= entries[0]:
        return seconds[0]
    if size >= entries[-1]:
        return seconds[-1] * size / entries[-1]
    k = max(i for i, least in enumerate(entries) if least <= size)
    share = math.log(size / entries[k]) / math.log(entries[k + 1] / entries[k])
    return math.exp(math.log(seconds[k]) * (1 - share) + math.log(seconds[k + 1]) * share)


# By device, dtype, whether the model drifts, and whether it has several members. Measured and printed, ready to be
# pasted here, by ``python -m benchmarks.speed form_costs`` on a CPU and ``python -m benchmarks.gpu`` on a GPU.
COSTS: dict[tuple[str, torch.dtype, bool, bool], Costs] = {
    ("cpu", torch.float64, False, False): Costs(
        (4.80e-04, 5.08e-04, 7.60e-04, 5.65e-03), (7.88e-04, 7.90e-04, 1.01e-03, 3.09e-03), new_row=9.82e-04
    ),
    ("cpu", torch.float64, False, True): Costs(
        (5.36e-04, 5.76e-04, 8.71e-04, 5.46e-03), (1.49e-03, 1.57e-03, 2.16e-03, 4.69e-03), new_row=1.35e-03
    ),
    ("cpu", torch.float64, True, False): Costs(
        (6.36e-04, 7.13e-04, 1.37e-03, 1.79e-02), (1.32e-03, 1.36e-03, 1.89e-03, 6.16e-03), new_row=8.37e-04
    ),
    ("cpu", torch.float64, True, True): Costs(
        (6.87e-04, 7.83e-04, 1.57e-03, 1.79e-02), (2.32e-03, 2.86e-03, 4.59e-03, 1.64e-02), new_row=9.53e-04
    ),
    ("cpu", torch.float32, False, False): Costs(
        (4.90e-04, 5.10e-04, 6.19e-04, 2.91e-03), (7.88e-04, 7.90e-04, 1.01e-03, 3.09e-03), new_row=9.82e-04
    ),
    ("cpu", torch.float32, False, True): Costs(
        (5.28e-04, 5.66e-04, 6.92e-04, 2.82e-03), (1.49e-03, 1.57e-03, 2.16e-03, 4.69e-03), new_row=1.35e-03
    ),
    ("cpu", torch.float32, True, False): Costs(
        (6.51e-04, 7.01e-04, 1.12e-03, 7.74e-03), (1.32e-03, 1.36e-03, 1.89e-03, 6.16e-03), new_row=8.37e-04
    ),
    ("cpu", torch.float32, True, True): Costs(
        (7.09e-04, 7.88e-04, 1.11e-03, 7.06e-03), (2.32e-03, 2.86e-03, 4.59e-03, 1.64e-02), new_row=9.53e-04
    ),
}


def time_to_weigh(before: int, now: int) -> bool:
    """Whether between so many observations and so many the forms' costs are due to be compared: every 16, from 256 on
    after a sixteenth to an eighth of those learned."""
    pause = 1 << max(4, now.bit_length() - 4)
    return before // pause != now // pause


def first_form(costs: Costs | None, dtype: torch.dtype, drifts: bool, members: int, arms: int) -> str:
    """The form that "auto" starts in. Without figures it goes by the number of arms."""
    if costs is None:
        most = _UNMEASURED_DRIFTING_UP_TO if drifts else _UNMEASURED_COVARIANCE_UP_TO
        return "covariance" if arms <= most else "factor"
    points = _FEW if drifts else min(_FEW, arms)
    first = costs.of_factor(members, arms, points, min(arms, members * _FEW), 1.0)
    dearer = first >= _CLEARLY * costs.of_covariance(members, arms)
    return "covariance" if dearer and _fits(dtype, members, arms) else "factor"


def covariance_pays(
    costs: Costs, dtype: torch.dtype, members: int, arms: int, points: int, rows: int, steps: int
) -> bool:
    """Whether the covariance form's step is cheaper, and its matrices not too large. As many arms will be new as were
    in the ``steps`` so far."""
    factor = costs.of_factor(members, arms, points, rows, min(1.0, rows / max(1, steps)))
    return _fits(dtype, members, arms) and costs.of_covariance(members, arms) < factor


def _fits(dtype: torch.dtype, members: int, arms: int) -> bool:
    return members * arms**2 * dtype.itemsize <= _LARGEST

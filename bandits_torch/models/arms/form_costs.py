"""What a step costs in either form of ``ArmGP``, so that ``form="auto"`` takes the cheaper one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

ENTRIES = (10_000, 100_000, 1_000_000, 10_000_000)  # numbers that a step passes over, on a CPU


@dataclass(frozen=True)
class Costs:
    """Seconds of a step that passes over so many numbers (``entries``): b members over N arms with n points each and u
    rows between them have

        covariance form: b N^2,    factor form: 4 b n^2 + u N  (the covariances among points pass four times).

    Between these sizes the logarithm of the seconds is linear in that of the size, below them constant, above them the
    seconds grow as the size does.
    """

    covariance: tuple[float, ...]
    factor: tuple[float, ...]
    entries: tuple[int, ...] = ENTRIES

    def of_covariance(self, members: int, arms: int) -> float:
        """Of a step in the covariance form."""
        return _between(self.entries, self.covariance, members * arms**2)

    def of_factor(self, members: int, arms: int, points: int, rows: int) -> float:
        """Of a step in the factor form."""
        return _between(self.entries, self.factor, 4 * members * points**2 + rows * arms)


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
        (4.82e-04, 5.04e-04, 8.79e-04, 6.13e-03), (7.75e-04, 8.03e-04, 1.14e-03, 4.00e-03)
    ),
    ("cpu", torch.float64, False, True): Costs(
        (5.27e-04, 5.75e-04, 1.04e-03, 6.88e-03), (1.54e-03, 1.66e-03, 2.38e-03, 5.85e-03)
    ),
    ("cpu", torch.float64, True, False): Costs(
        (6.67e-04, 8.81e-04, 3.12e-03, 2.01e-02), (1.60e-03, 1.68e-03, 2.22e-03, 8.19e-03)
    ),
    ("cpu", torch.float64, True, True): Costs(
        (7.97e-04, 9.58e-04, 2.16e-03, 1.81e-02), (2.79e-03, 4.22e-03, 5.57e-03, 1.78e-02)
    ),
    ("cpu", torch.float32, False, False): Costs(
        (5.18e-04, 5.68e-04, 6.97e-04, 3.98e-03), (7.75e-04, 8.03e-04, 1.14e-03, 4.00e-03)
    ),
    ("cpu", torch.float32, False, True): Costs(
        (6.10e-04, 6.55e-04, 7.68e-04, 4.22e-03), (1.54e-03, 1.66e-03, 2.38e-03, 5.85e-03)
    ),
    ("cpu", torch.float32, True, False): Costs(
        (8.80e-04, 8.91e-04, 1.63e-03, 1.03e-02), (1.60e-03, 1.68e-03, 2.22e-03, 8.19e-03)
    ),
    ("cpu", torch.float32, True, True): Costs(
        (8.14e-04, 8.70e-04, 1.72e-03, 9.87e-03), (2.79e-03, 4.22e-03, 5.57e-03, 1.78e-02)
    ),
}

_UNMEASURED_COVARIANCE_UP_TO = 500  # arms, on a device without figures
_UNMEASURED_DRIFTING_UP_TO = 1_500  # under drift, where every pull is a point of the factor form
_LARGEST = 2 * 2**30  # bytes of covariance matrices that "auto" takes
_FEW = 30  # points that a policy soon has pulled
_CLEARLY = (
    0.8  # of the covariance form's step: what the factor form's may cost at first, as it will cost more
)


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
    first = costs.of_factor(members, arms, points, min(arms, members * _FEW))
    dearer = first >= _CLEARLY * costs.of_covariance(members, arms)
    return "covariance" if dearer and _fits(dtype, members, arms) else "factor"


def covariance_pays(
    costs: Costs, dtype: torch.dtype, members: int, arms: int, points: int, rows: int
) -> bool:
    """Whether the covariance form's step is cheaper, and its matrices not too large."""
    fits = _fits(dtype, members, arms)
    return fits and costs.of_covariance(members, arms) < costs.of_factor(members, arms, points, rows)


def _fits(dtype: torch.dtype, members: int, arms: int) -> bool:
    return members * arms**2 * dtype.itemsize <= _LARGEST

"""What a step costs in either form of ``ArmGP``, so that ``form="auto"`` takes the cheaper one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Seconds of a step of b members over N arms with n points each and u rows between them,

        covariance form: launch + entry b N^2,    factor form: launch + entry (b n^2 + u N).

    ``covariance`` and ``factor``: (launch, entry) each.
    """

    covariance: tuple[float, float]
    factor: tuple[float, float]

    def of_covariance(self, members: int, arms: int) -> float:
        """Of a step in the covariance form."""
        launch, entry = self.covariance
        return launch + entry * members * arms**2

    def of_factor(self, members: int, arms: int, points: int, rows: int) -> float:
        """Of a step in the factor form."""
        launch, entry = self.factor
        return launch + entry * (members * points**2 + rows * arms)


# Read off ``python -m benchmarks.speed crossover`` (benchmarks/speed/results/cpu/crossover.csv, static priors): steps
# with few points for the launches, those with 1 000 for the entries. A device that was not measured has no line here.
COSTS = {"cpu": Costs(covariance=(2.5e-4, 3.5e-10), factor=(3.65e-4, 5e-10))}

_UNMEASURED_COVARIANCE_UP_TO = 500  # arms
_DRIFTING_COVARIANCE_UP_TO = (
    1_500  # arms; there the factor form makes every pull a point, and what it costs is known
)
_LARGEST = 2 * 2**30  # bytes of covariance matrices that "auto" takes
_FEW = 30  # points that a policy soon has pulled


def first_form(device: str, in_double: bool, drifts: bool, members: int, arms: int) -> str:
    """The form that "auto" starts in. In float32 (where the forms differ in accuracy) and on a device without figures
    it goes by the number of arms."""
    if drifts:
        return "covariance" if arms <= _DRIFTING_COVARIANCE_UP_TO else "factor"
    if not in_double or device not in COSTS:
        return "covariance" if arms <= _UNMEASURED_COVARIANCE_UP_TO else "factor"
    points = min(_FEW, arms)
    return "factor" if not covariance_pays(device, members, arms, points, points) else "covariance"


def covariance_pays(device: str, members: int, arms: int, points: int, rows: int) -> bool:
    """Whether the covariance form's step is cheaper, and its matrices not too large."""
    costs = COSTS[device]
    fits = members * arms**2 * 8 <= _LARGEST
    return fits and costs.of_covariance(members, arms) < costs.of_factor(members, arms, points, rows)

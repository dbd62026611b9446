"""Real data sets as problems: sensors of a laboratory, weather stations, air quality; and regression data as arms.

All but ``RegressionTable`` read an NPZ file, given by its path or its folder: rows are times (integer seconds since
1970), columns are arms. In a checkout, ``python -m benchmarks.data.download`` makes these files from the official
sources.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.arms import estimate_covariance
from bandits_torch.models.candidate_priors import CandidatePrior
from bandits_torch.problems.forgetting_fit import fit_forgetting_rate, without_noise
from bandits_torch.problems.problem import Problem, named
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.simulated import StationaryProblem, make_kernel, stationary_knowledge
from bandits_torch.problems.table_files import Arrays, known_columns, read_arrays, read_frame
from bandits_torch.problems.tables import RewardTable

_DAY = 86_400
_HOUR = 3_600
_LEAST_SHARE_SEEN = 0.5  # share of the played steps in which a sensor that is an arm has readings


@named("intel-temperature")
class IntelTemperature(Replay):
    """Find the hottest spot of the Intel Berkeley laboratory: one day of temperatures.

    Rewards are in degrees C, one step is ten minutes. Arms are the sensors with a reading in at least half of the
    played steps (on 14 March 2004: 46 of 52) and two or more readings before.

    All prior knowledge is estimated from actual readings of the days before the played one, from 1 March 2004 (28
    and 29 February are missing). Filled values are not used for it, because the file fills long gaps from a fit to the
    whole record, which includes the played day.

    Args:
        data: ``intel_temperature.npz``, or its folder.
        day: the first played day, year-month-day.
        days: number of days to play.
        filled: whether filled values are played if a reading is missing; False masks them.
        options: as for ``Replay``: prior_mean, noise_fraction, forgetting_rate, cycles, horizon, replicates.
    """

    def __init__(
        self, data: str | Path, *, day: str = "2004-03-14", days: int = 1, filled: bool = True, **options: Any
    ) -> None:
        arrays = _load(data, "intel_temperature.npz", ("temperature", "observed", "time", "xy", "mote_id"))
        values = arrays["temperature"]
        readings = np.where(arrays["observed"], values, np.nan)
        super().__init__(
            **_intel_days(arrays, values if filled else readings, readings, day, days), **options
        )


@named("intel-light")
class IntelLight(Replay):
    """Find the brightest spot of the Intel Berkeley laboratory: one day of light.

    Rewards are in lux (sensors saturate at 1847); missing rewards are masked; otherwise as ``IntelTemperature``. The
    file interpolates gaps of up to an hour linearly. So the history leaves out the last hour before the played day,
    because a gap across midnight is filled from the played day.

    Args:
        data: ``intel_light_humidity.npz``, or its folder.
        day, days, options: as for ``IntelTemperature``.
    """

    _quantity = "light"

    def __init__(self, data: str | Path, *, day: str = "2004-03-14", days: int = 1, **options: Any) -> None:
        arrays = _load(data, "intel_light_humidity.npz", (self._quantity, "time", "xy", "mote_id"))
        readings = arrays[self._quantity]  # the file does not mark interpolated ones
        super().__init__(**_intel_days(arrays, readings, readings, day, days, skipped=_HOUR), **options)


@named("intel-humidity")
class IntelHumidity(IntelLight):
    """Find the dampest spot of the Intel Berkeley laboratory: one day of relative humidity.

    Rewards are in percent; otherwise as ``IntelLight``.

    Args:
        data: ``intel_light_humidity.npz``, or its folder.
        day, days, options: as for ``IntelLight``.
    """

    _quantity = "humidity"


@named("molene-wind")
class MoleneWind(Replay):
    """Find the windiest weather station of Brittany: January 2014, hour by hour.

    Rewards are in m/s, one step is one hour, arms are 31 stations, with positions in km if the file has
    them. The first ``warm_up`` of the month (by default 20 %, six days) is history and is not played.

    Args:
        data: ``molene_weather.npz``, or its folder.
        options: as for ``Replay``: warm_up, prior_mean, noise_fraction, forgetting_rate, cycles, horizon, replicates.
    """

    _quantity = "wind"

    def __init__(self, data: str | Path, **options: Any) -> None:
        name = self._quantity
        arrays = _load(data, "molene_weather.npz", (name, "time", f"{name}_name"), (f"{name}_xy_km",))
        stations = tuple(arrays[f"{name}_name"].tolist())
        table = RewardTable(_tensor(arrays[name]), _tensor(arrays["time"]), stations)
        places = arrays.get(f"{name}_xy_km")
        super().__init__(table, arms=None if places is None else _tensor(places), **options)


@named("molene-temperature")
class MoleneTemperature(MoleneWind):
    """Find the warmest weather station of Brittany: January 2014, hour by hour.

    Rewards are in degrees C, arms are 37 stations; otherwise as ``MoleneWind``.

    Args:
        data: ``molene_weather.npz``, or its folder.
        options: as for ``MoleneWind``.
    """

    _quantity = "temperature"


@named("beijing-pm25")
class BeijingPM25(Replay):
    """Find the most polluted of twelve sites in Beijing: fine dust (PM2.5), hour by hour.

    Rewards are in ug/m3, one step is one hour. The highest value is best, as in a search for peaks of pollution. (For
    the lowest, negate the table and use ``Replay``.) History is the ``history_days`` before ``start``, actual readings
    only.

    Args:
        data: ``beijing_air.npz``, or its folder.
        start: first played day, year-month-day; the record runs from March 2013 to February 2017.
        history_days: number of days of history.
        filled: whether filled values are played if a reading is missing; False masks them.
        horizon: number of hours to play; None: to the end of the record.
        options: as for ``Replay``: prior_mean, noise_fraction, forgetting_rate, cycles, replicates.

    Raises ValueError for ``history_days`` below 1, and what ``Replay`` refuses.
    """

    def __init__(
        self,
        data: str | Path,
        *,
        start: str = "2014-01-01",
        history_days: int = 90,
        filled: bool = True,
        horizon: int | None = 1000,
        **options: Any,
    ) -> None:
        validation.positive_integer("history_days", history_days)
        arrays = _load(data, "beijing_air.npz", ("pm25", "pm25_observed", "time", "site"), ("latlon_approx",))
        values, time = arrays["pm25"], arrays["time"]
        readings = np.where(arrays["pm25_observed"], values, np.nan)
        first = _day_start("start", start)
        past, played = (time >= first - history_days * _DAY) & (time < first), time >= first
        _require_rows("start", start, time, past, played)
        rewards, sites = (values if filled else readings)[played], tuple(arrays["site"].tolist())
        places = arrays.get("latlon_approx")
        super().__init__(
            RewardTable(_tensor(rewards), _tensor(time[played]), sites),
            arms=None if places is None else _tensor(places),
            history=_tensor(readings[past]),
            history_times=_tensor(time[past]),
            horizon=horizon,
            **options,
        )


def _intel_days(
    arrays: Arrays, values: np.ndarray, readings: np.ndarray, day: str, days: int, skipped: int = 0
) -> dict[str, Any]:
    """Arguments of ``Replay``: ``values`` of the days to play; as history, ``readings`` (NaN where missing) that end
    ``skipped`` seconds before them; of sensors that worked in both."""
    validation.positive_integer("days", days)
    time, first = arrays["time"], _day_start("day", day)
    played, past = (time >= first) & (time < first + days * _DAY), time < first - skipped
    _require_rows("day", day, time, past, played)
    seen = ~np.isnan(readings)
    arms = (seen[played].mean(0) >= _LEAST_SHARE_SEEN) & (seen[past].sum(0) >= 2)
    validation.require(arms.sum() >= 2, "day", day, "a day with two or more working sensors")
    names = tuple(f"mote {number}" for number in arrays["mote_id"][arms])
    return {
        "table": RewardTable(_tensor(values[played][:, arms]), _tensor(time[played]), names),
        "arms": _tensor(arrays["xy"][arms]),
        "history": _tensor(readings[past][:, arms]),
        "history_times": _tensor(time[past]),
    }


def _load(
    data: str | Path, file_name: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Arrays:
    """The ``needed`` arrays of a file, a table of rewards first, and the ``optional`` ones that it has."""
    validation.instance("data", data, (str, Path), "the path of a file or folder")
    path = Path(data)
    path = path / file_name if path.is_dir() else path
    expected = f"an existing file {file_name}, or the folder it is in"
    validation.require(path.is_file(), "data", str(path), expected)
    arrays = read_arrays("data", path, {*needed, *optional})
    has_all = all(name in arrays for name in needed)
    validation.require(has_all, "data", str(path), f"a file with the arrays {', '.join(needed)}")
    rewards, time = arrays[needed[0]], arrays["time"]
    ok = rewards.ndim == 2 and time.shape == rewards.shape[:1] and len(time) > 0
    validation.require(ok, "data", str(path), f"a file with one row of {needed[0]!r} for every 'time'")
    return arrays


def _day_start(name: str, day: str) -> int:
    """The start of a day, in seconds since 1970 by the clock of the data."""
    try:
        return int(np.datetime64(day, "D").astype(np.int64)) * _DAY
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a date such as 2004-03-14, got {day!r}") from None


def _require_rows(name: str, day: str, time: np.ndarray, past: np.ndarray, played: np.ndarray) -> None:
    ends = [str(np.datetime64(int(t), "s").astype("datetime64[D]")) for t in (time[0], time[-1])]
    ok = bool(past.any() and played.any())
    expected = f"a day after the first of the record, which runs from {ends[0]} to {ends[1]}"
    validation.require(ok, name, day, expected)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float64))


# --- a candidate prior from every earlier day ---

_STEPS_A_DAY = 144


@named("intel-temperature-priors")
class IntelTemperaturePriors(IntelTemperature):
    """Find the hottest spot of the Intel laboratory, with a candidate prior from every earlier day.

    The second experiment of Ziomek et al. (2024), section 7: on 14 March 2004 there are 13 priors, one from each
    earlier day of the record, with kernel Cov(i, i') (1 - eps)^{|t - t'|/2}. Cov is the covariance between sensors in
    that day's readings, shrunk towards independent sensors (``estimate_covariance``), minus the noise; eps is the
    maximum likelihood rate of that day (``fit_forgetting_rate``). A day on which an arm has fewer than two readings
    gives no prior.

    The paper leaves two choices open. Its priors have mean zero, but temperatures are about 22 degrees. Here the mean
    of every prior is ``prior_mean`` of ``Replay``, by default the average over the earlier days, which is the same as a
    zero mean of centred rewards. The paper does not say how seeds differ. Here rewards have normal noise of standard
    deviation ``noise_scale``.

    ``true_prior``, for an oracle only, is made from the played day in the same way: the best of its kind in hindsight.

    Args:
        data, day, filled: as for ``IntelTemperature``.
        shrinkage: shrinkage of the covariances, ``"auto"`` or a number in [0, 1].
        noise_scale: noise of the rewards, in degrees C; None: the R that policies know.
        prior_mean, options: as for ``Replay``.
    """

    noise = Problem.noise

    def __init__(
        self,
        data: str | Path,
        *,
        day: str = "2004-03-14",
        filled: bool = True,
        shrinkage: float | str = "auto",
        noise_scale: float | None = None,
        prior_mean: str | float = "grand",
        **options: Any,
    ) -> None:
        super().__init__(data, day=day, filled=filled, prior_mean=prior_mean, **options)
        known = float(self.knowledge.noise_variance) ** 0.5
        scale = known if noise_scale is None else validation.non_negative("noise_scale", noise_scale)
        self.noise_scale = torch.tensor(scale, dtype=torch.float64)
        rate = options.get("forgetting_rate")
        past, times = self.history, torch.as_tensor(self.history_times)
        days = ((times - 1) / _STEPS_A_DAY).floor()
        priors = []
        for d in days.unique().tolist():
            readings = past[days == d]
            if bool(((~torch.isnan(readings)).sum(0) >= 2).all()):
                name = str(np.datetime64(day, "D") + int(d))
                priors.append(self._prior(readings, times[days == d], name, shrinkage, rate))
        validation.require(len(priors) > 0, "day", day, "after a day on which every arm has two readings")
        self.knowledge = replace(self.knowledge, priors=priors)
        played = torch.tensor(self._times[: self.horizon], dtype=torch.float64)
        self.true_prior = self._prior(self.table, played, "the day itself", shrinkage, rate)

    def _prior(
        self, readings: Tensor, times: Tensor, name: str, shrinkage: float | str, rate: float | None
    ) -> CandidatePrior:
        """The prior of one day's readings (T, N), NaN where missing."""
        noise_variance = float(self.knowledge.noise_variance)
        covariance = without_noise(estimate_covariance(readings, shrinkage), noise_variance)
        if rate is None:
            seen = ~torch.isnan(readings).all(-1)
            rate = fit_forgetting_rate(readings[seen], times[seen], covariance, noise_variance)
        return CandidatePrior(covariance, self.knowledge.prior_mean, rate, name=name)


# --- regression data ---


@named("regression-table")
class RegressionTable(StationaryProblem):
    """Regression data as a bandit: each row is an arm, and its target is the expected reward.

    Features (other columns of numbers) and target are standardised; rows with a missing value are dropped. Known
    in advance: a squared exponential kernel and the noise variance R^2, at least 1e-6.

    Args:
        data: path of a CSV or Parquet file with a header, or of an NPZ file with arrays ``X`` (N, d) and ``y`` (N,).
        target: the column to maximise; None: the last. Not used for NPZ.
        noise_scale: R, standard deviation of the noise added to the standardised target.
        lengthscale: the kernel's, in standardised units; None: the median distance between rows (at most 1 000).
        replicates: number of runs on the same table.

    Raises ValueError for a table with fewer than two complete rows, ``replicates`` below 1 and a negative
    ``noise_scale``.
    """

    def __init__(
        self,
        *,
        data: str | Path,
        target: str | None = None,
        noise_scale: float = 0.1,
        lengthscale: float | None = None,
        replicates: int = 1,
    ) -> None:
        validation.positive_integer("replicates", replicates)
        validation.instance("data", data, (str, Path), "the path of a file")
        features, values = _read_regression(Path(data), target)
        whole = np.isfinite(features).all(1) & np.isfinite(values)
        validation.require(int(whole.sum()) >= 2, "data", str(data), "a table with two complete rows or more")
        parts = [torch.from_numpy(part[whole]).double() for part in (features, values)]
        spreads = [torch.where(part.std(0) > 0, part.std(0), 1.0) for part in parts]  # constant: 0
        arms, rewards = ((part - part.mean(0)) / spread for part, spread in zip(parts, spreads, strict=True))
        if lengthscale is None:
            order = torch.randperm(len(arms), generator=torch.Generator().manual_seed(0))[:1000]
            lengthscale = float(torch.pdist(arms[order]).median().clamp_min(1e-6))
        validation.non_negative("noise_scale", noise_scale)
        super().__init__(arms, rewards.expand(replicates, -1), noise_scale)
        known = stationary_knowledge(self, make_kernel("se", lengthscale), torch.ones(1))
        self.knowledge = replace(known, noise_variance=max(float(noise_scale) ** 2, 1e-6))


def _read_regression(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, d) and target (N,) in float64."""
    if path.suffix.lower() == ".npz":
        arrays = read_arrays("data", path, {"X", "y"})
        validation.require({"X", "y"} <= set(arrays), "data", str(path), "an NPZ with arrays 'X' and 'y'")
        numeric = all(arrays[name].dtype.kind in "fiub" for name in "Xy")
        validation.require(numeric, "data", str(path), "an NPZ whose arrays 'X' and 'y' hold numbers")
        features, values = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
        fits = features.ndim == 2 and values.shape == features.shape[:1]
        validation.require(fits, "data", (features.shape, values.shape), "arrays X (N, d) and y (N,)")
        return features, values
    frame, _, _ = read_frame(path)
    names = list(frame.columns)
    target = names[-1] if target is None else target
    known_columns("target", [target], names)
    numbers = frame.select_dtypes("number")
    validation.require(target in numbers.columns, "target", target, "a column of numbers")
    others = numbers.drop(columns=[target])
    validation.require(
        others.shape[1] >= 1, "data", names, "a table with a feature in addition to the target"
    )
    return others.to_numpy(np.float64), numbers[target].to_numpy(np.float64)

"""The data set readers: what is played, and that history knows nothing of it.

Made-up files of the same format are always tested. The real ones are, where BANDITS_TORCH_DATA or a folder
``shared/data`` beside the checkout or in a parent of it has them; else those tests are skipped.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bandits_torch.problems import Replay, make
from tests.reference.real_data import REAL, needs_data

START = int(np.datetime64("2004-03-01", "s").astype(int))
Arrays = dict[str, np.ndarray]


def _rewards(rows: int, arms: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (20 + 0.3 * random.standard_normal((rows, arms)).cumsum(0)).astype(np.float32)


def _intel(name: str = "temperature") -> Arrays:
    """Three days of four motes; mote 3 dies before the third day, mote 4 has a filled gap on the second."""
    values = _rewards(3 * 144, 4)
    observed = np.ones(values.shape, dtype=bool)
    observed[2 * 144 :, 2] = False
    observed[200:240, 3] = False
    observed[300, 0] = False
    arrays = {
        "time": START + 600 * np.arange(3 * 144),
        "xy": np.arange(8.0).reshape(4, 2),
        "mote_id": np.array([1, 2, 3, 7], dtype=np.int16),
    }
    if name == "temperature":
        return arrays | {"temperature": values, "observed": observed}
    raw = np.where(observed, values, np.nan)
    return arrays | {"light": raw, "humidity": raw}


def _molene() -> Arrays:
    arrays: Arrays = {"time": START + 3600 * np.arange(100)}
    for seed, name in enumerate(("wind", "temperature")):
        arrays |= {
            name: _rewards(100, 3, seed),
            f"{name}_xy_km": np.arange(6.0).reshape(3, 2),
            f"{name}_name": np.array(["BREST", "AURAY", "SIZUN"]),
        }
    return arrays


def _beijing() -> Arrays:
    values = _rewards(24 * 40, 3)
    observed = np.ones(values.shape, dtype=bool)
    observed[100:130, 1] = False
    observed[24 * 30 + 5, 2] = False
    return {
        "time": START + 3600 * np.arange(24 * 40),
        "pm25": values,
        "pm25_observed": observed,
        "site": np.array(["Dongsi", "Gucheng", "Tiantan"]),
        "latlon_approx": np.arange(6.0).reshape(3, 2),
    }


def _save(folder: Path, name: str, arrays: Arrays) -> Path:
    np.savez(folder / name, **arrays)  # type: ignore[arg-type]
    return folder


FILES = {
    "intel-temperature": "intel_temperature.npz",
    "intel-light": "intel_light_humidity.npz",
    "intel-humidity": "intel_light_humidity.npz",
    "molene-wind": "molene_weather.npz",
    "molene-temperature": "molene_weather.npz",
    "beijing-pm25": "beijing_air.npz",
}
MADE_UP: dict[str, tuple[Callable[[], Arrays], dict[str, object]]] = {
    "intel-temperature": (_intel, {"day": "2004-03-03"}),
    "intel-light": (lambda: _intel("light"), {"day": "2004-03-03"}),
    "intel-humidity": (lambda: _intel("humidity"), {"day": "2004-03-03"}),
    "molene-wind": (_molene, {}),
    "molene-temperature": (_molene, {}),
    "beijing-pm25": (_beijing, {"start": "2004-03-31", "history_days": 20, "horizon": 100}),
}


def _made_up(folder: Path, name: str, **changes: object) -> Replay:
    arrays, options = MADE_UP[name]
    return make(name, data=_save(folder, FILES[name], arrays()), **(options | changes))  # type: ignore[arg-type]


def _same_knowledge(one: Replay, other: Replay) -> None:
    assert torch.equal(one.knowledge.kernel.covariance, other.knowledge.kernel.covariance)
    assert torch.equal(one.knowledge.prior_mean, other.knowledge.prior_mean)
    for figure in ("noise_variance", "rkhs_bound", "forgetting_rate"):
        assert getattr(one.knowledge, figure) == getattr(other.knowledge, figure)
    torch.testing.assert_close(one.history, other.history, equal_nan=True)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FILES)
def test_steps_are_units_of_time_and_folders_are_searched(tmp_path: Path, name: str) -> None:
    problem = _made_up(tmp_path, name)
    assert [problem.time(t) for t in (1, 2, 10)] == [1.0, 2.0, 10.0]
    assert problem.history_times[-1] <= 0
    by_file = make(name, data=tmp_path / FILES[name], **MADE_UP[name][1])  # type: ignore[arg-type]
    torch.testing.assert_close(by_file.table, problem.table, equal_nan=True)
    # A race on any record advises this option.
    assert problem.knowledge.cycles is None
    assert list(_made_up(tmp_path, name, cycles=20).knowledge.cycles.periods) == [20.0]
    with pytest.raises(ValueError, match="cycles must be a number"):
        _made_up(tmp_path, name, cycles=-3)


def test_intel_plays_the_day_with_the_motes_that_worked(tmp_path: Path) -> None:
    problem, arrays = _made_up(tmp_path, "intel-temperature"), _intel()
    assert problem.arm_names == ("mote 1", "mote 2", "mote 7")
    played = arrays["temperature"][288:][:, [0, 1, 3]].astype(float)
    assert torch.equal(problem.table, torch.from_numpy(played))
    assert problem.arms[:, 1:].tolist() == [[0, 1], [2, 3], [6, 7]]
    assert problem.available(13) is None


@pytest.mark.parametrize("name", ["intel-temperature", "intel-light", "intel-humidity"])
def test_intel_plays_as_many_days_as_it_is_asked_for(tmp_path: Path, name: str) -> None:
    one, two = (_made_up(tmp_path, name, day="2004-03-02", days=days) for days in (1, 2))
    assert (one.horizon, two.horizon) == (144, 288)
    shared = [two.arm_names.index(mote) for mote in one.arm_names if mote in two.arm_names]
    own = [one.arm_names.index(two.arm_names[column]) for column in shared]
    played = torch.stack([one.expected_rewards(t + 1)[0, own] for t in range(144)])
    longer = torch.stack([two.expected_rewards(t + 1)[0, shared] for t in range(144)])
    torch.testing.assert_close(longer, played, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(two.history[:, shared], one.history[:, own])


def test_intel_history_has_real_readings_only(tmp_path: Path) -> None:
    problem = _made_up(tmp_path, "intel-temperature")
    assert problem.history.shape == (288, 3)
    assert torch.isnan(problem.history[200:240, 2]).all()
    assert torch.isnan(problem.history).sum() == 40


def test_intel_unread_values_can_be_masked_in_play(tmp_path: Path) -> None:
    problem = _made_up(tmp_path, "intel-temperature", filled=False)
    assert problem.available(13).tolist() == [False, True, True]  # row 300 is step 13 of the third day


@pytest.mark.parametrize("name", ["intel-light", "intel-humidity"])
def test_raw_intel_histories_leave_the_hour_before_the_day_out(tmp_path: Path, name: str) -> None:
    problem = _made_up(tmp_path, name)
    assert problem.history_times[-1] == -6.0  # 23:00 is step -5, six ten-minute steps before 00:00 at step 1
    assert problem.history.shape == (282, 3)
    assert problem.available(13).tolist() == [False, True, True]


@pytest.mark.parametrize("name", ["intel-temperature", "intel-light", "intel-humidity"])
def test_intel_history_knows_nothing_of_the_played_day_or_later(tmp_path: Path, name: str) -> None:
    before = _made_up(tmp_path, name, day="2004-03-02")
    build, _ = MADE_UP[name]
    arrays = build()
    key = {"intel-temperature": "temperature", "intel-light": "light", "intel-humidity": "humidity"}[name]
    changed = arrays[key].copy()
    changed[144:] = 1000 * np.random.default_rng(1).standard_normal(changed[144:].shape)
    if name == "intel-temperature":  # and filled values of the past, which were fitted on the whole record
        arrays["observed"][50:60, 1] = False
        before = make(
            name,
            data=_save(tmp_path, FILES[name], arrays | {"observed": arrays["observed"]}),
            day="2004-03-02",
        )
        changed[50:60, 1] = 77.0
    else:
        changed[138:144] = 55.0  # the hour before midnight, whose gaps may be bridged with the played day
        changed[144:][np.isnan(arrays[key][144:])] = np.nan
    other = tmp_path / "changed"
    other.mkdir()
    after = make(name, data=_save(other, FILES[name], arrays | {key: changed}), day="2004-03-02")
    assert not torch.equal(before.table.nan_to_num(), after.table.nan_to_num())
    _same_knowledge(before, after)


def test_molene_plays_what_follows_the_first_fifth(tmp_path: Path) -> None:
    problem = _made_up(tmp_path, "molene-wind")
    assert problem.arm_names == ("BREST", "AURAY", "SIZUN")
    assert problem.horizon == 80
    assert torch.equal(problem.table, torch.from_numpy(_molene()["wind"][20:].astype(float)))
    assert _made_up(tmp_path, "molene-temperature", warm_up=0.5).horizon == 50


def test_beijing_learns_from_the_days_before_the_start(tmp_path: Path) -> None:
    problem, arrays = _made_up(tmp_path, "beijing-pm25"), _beijing()
    assert problem.horizon == 100
    assert torch.equal(problem.table, torch.from_numpy(arrays["pm25"][720:820].astype(float)))
    assert problem.history.shape == (20 * 24, 3)
    masked = _made_up(tmp_path, "beijing-pm25", filled=False)
    assert masked.available(6).tolist() == [True, True, False]
    changed = dict(arrays)
    changed["pm25"] = arrays["pm25"].copy()
    changed["pm25"][720:] = 5.0
    changed["pm25"][~arrays["pm25_observed"]] = 999.0
    other = tmp_path / "changed"
    other.mkdir()
    options = MADE_UP["beijing-pm25"][1]
    after = make("beijing-pm25", data=_save(other, FILES["beijing-pm25"], changed), **options)  # type: ignore[arg-type]
    _same_knowledge(problem, after)


def test_beijing_can_be_played_to_its_end(tmp_path: Path) -> None:
    from bandits_torch.problems import BeijingPM25

    folder = _save(tmp_path, "beijing_air.npz", _beijing())
    assert BeijingPM25(folder, start="2004-03-31", horizon=None).horizon == 240


def test_files_without_positions_are_read(tmp_path: Path) -> None:
    arrays = {key: a for key, a in _molene().items() if "xy" not in key}
    assert make("molene-wind", data=_save(tmp_path, "molene_weather.npz", arrays)).arms.shape == (3, 1)


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("intel-temperature", "day", "2004-03-01", "day must be a day after the first of the record"),
        ("intel-temperature", "day", "2004-04-01", "which runs from 2004-03-01 to 2004-03-03"),
        ("intel-light", "day", "tomorrow", "day must be a date such as 2004-03-14, got 'tomorrow'"),
        ("beijing-pm25", "start", "2004-03-01", "start must be a day after the first"),
        ("beijing-pm25", "history_days", 0, "history_days must be an integer >= 1"),
        ("beijing-pm25", "horizon", 10_000, "horizon must be an integer in 1, ..., 240"),
        ("molene-wind", "warm_up", 2.0, "warm_up must be"),
        ("intel-temperature", "warm_up", 0.2, "warm_up must be None when a history is given"),
        ("molene-wind", "colour", 1, "options of problem 'molene-wind' must be among warm_up, "),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, name: str, option: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _made_up(tmp_path, name, **{option: value})


def test_a_day_without_working_sensors_is_refused(tmp_path: Path) -> None:
    arrays = _intel()
    arrays["observed"][288:] = False
    folder = _save(tmp_path, "intel_temperature.npz", arrays)
    with pytest.raises(ValueError, match="day must be a day with two or more working sensors"):
        make("intel-temperature", data=folder, day="2004-03-03")


@pytest.mark.parametrize("name", FILES)
def test_missing_or_broken_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"data must be an existing file {FILES[name]}"):
        make(name, data=tmp_path)
    np.savez(tmp_path / FILES[name], time=np.arange(3))
    with pytest.raises(ValueError, match="data must be a file with the arrays"):
        make(name, data=tmp_path)
    (tmp_path / FILES[name]).write_bytes(b"PK but no zip")
    with pytest.raises(ValueError, match="data must be a readable NPZ file"):
        make(name, data=tmp_path)
    with pytest.raises(ValueError, match=f"data must be given for problem '{name}'"):
        make(name)


def test_arrays_of_different_lengths_are_refused(tmp_path: Path) -> None:
    arrays = _molene() | {"time": np.arange(5)}
    with pytest.raises(ValueError, match="data must be a file with one row of 'wind' for every 'time'"):
        make("molene-wind", data=_save(tmp_path, "molene_weather.npz", arrays))


@needs_data
def test_real_14_march_has_the_46_motes_of_the_file() -> None:
    problem = make("intel-temperature", data=REAL)
    with np.load(REAL / "intel_temperature.npz") as arrays:
        motes = arrays["mote_id"][arrays["arms_mar14"]]
        played = arrays["temperature"][13 * 144 : 14 * 144, arrays["arms_mar14"]].astype(float)
    assert problem.arm_names == tuple(f"mote {number}" for number in motes)
    assert torch.equal(problem.table, torch.from_numpy(played))
    hottest = problem.table.max(-1)
    assert hottest.indices.unique().numel() == 15
    assert (hottest.values.mean() - problem.table.mean(0).max()).item() == pytest.approx(1.8, abs=0.05)

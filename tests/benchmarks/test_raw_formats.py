"""Small made-up files in the official raw formats become what the readers take."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bandits_torch.problems import BeijingPM25, IntelTemperature
from benchmarks.data.download import convert_beijing, convert_intel, convert_molene
from tests.benchmarks import raw_files as raw


@pytest.mark.parametrize("name", ["data.txt.gz", "data.txt"])
def test_intel_bins_are_means_of_ten_minutes(tmp_path: Path, name: str) -> None:
    lines = [
        "2004-02-28 00:00:31.1 1 1 20.0 40.0 100.0 2.7",
        "2004-02-28 00:09:59.9 2 1 22.0 42.0 300.0 2.7",
        "2004-02-28 00:10:00.0 3 1 25.0 41.0 100.0 2.7",
        "2004-02-28 00:00:31.1 1 2 19.0 39.0 50.0 2.6",
    ]
    temperature, rest = convert_intel(*raw.write_intel(tmp_path, lines, name), tmp_path)
    with np.load(temperature) as arrays:
        assert arrays["temperature_raw"][:, 0].tolist() == [21.0, 25.0]
        assert arrays["observed"].tolist() == [[True, True], [True, False]]
        assert arrays["time"].tolist() == [raw.START, raw.START + 600]
        assert arrays["mote_id"].tolist() == [1, 2]
        assert arrays["xy"].tolist() == [[21.5, 23.0], [24.5, 20.0]]
    with np.load(rest) as arrays:
        assert arrays["light"][0].tolist() == [200.0, 50.0]
        assert arrays["humidity"][:, 0].tolist() == [41.0, 41.0]
        assert np.isnan(arrays["light"][1, 1])


def test_intel_readings_that_cannot_be_true_are_left_out(tmp_path: Path) -> None:
    lines = [
        "2004-02-28 00:01:00.0 1 1 20.0 40.0 100.0 2.7",
        "2004-02-28 00:02:00.0 1 1 122.153 -3.9 11.0 2.0",  # an empty battery
        "2004-02-28 00:03:00.0 1 1 80.0 140.0 -5.0 2.7",  # implausible
        "2004-02-28 00:04:00.0 1 9 20.0 40.0 100.0 2.7",  # no such position
        "2004-02-28 00:05:00.0 1 2 21.0",  # broken off
        "2004-02-28 00:06:00.0 1 2 23.0 40.0 100.0 2.7",
        "2004-02-28 00:07:00.0 1 2 23.0 40.0 100.0 2.7 a b c",  # too long
        "2004-03-25 00:00:00.0 1 2 23.0 40.0 100.0 2.7",  # too late
        "2004-13-45 nonsense 1 2 23.0 40.0 100.0 2.7",
    ]
    temperature, rest = convert_intel(*raw.write_intel(tmp_path, lines), tmp_path)
    with np.load(temperature) as arrays:
        assert arrays["temperature_raw"].tolist() == [[20.0, 23.0]]
    with np.load(rest) as arrays:
        assert arrays["light"].tolist() == [[100.0, 100.0]]


def test_intel_gaps_of_up_to_an_hour_are_bridged_and_longer_ones_left(tmp_path: Path) -> None:
    def line(bin_: int, value: float) -> str:
        stamp = str(np.datetime64(raw.START + 600 * bin_, "s")).replace("T", " ")
        return f"{stamp}.0 1 1 {value} 40 100 2.7"

    other = [line(b, 0.0).replace(" 1 1 0.0", " 1 2 20.0") for b in range(20)]
    lines = [*other, line(1, 10.0), line(8, 17.0), line(16, 20.0)]
    temperature, _ = convert_intel(*raw.write_intel(tmp_path, lines), tmp_path)
    with np.load(temperature) as arrays:
        column = arrays["temperature"][:, 0]
    np.testing.assert_allclose(column[1:9], np.arange(10.0, 18.0))  # six missing bins: one hour
    assert np.isnan(column[[0, 17, 18, 19]]).all()
    assert np.isnan(column[9:16]).all()  # seven


def test_intel_without_usable_readings_is_refused(tmp_path: Path) -> None:
    files = raw.write_intel(tmp_path, ["2004-02-28 00:04:00.0 1 9 20.0 40.0 100.0 2.7"])
    with pytest.raises(ValueError, match="readings must be a file with readings of the motes in positions"):
        convert_intel(*files, tmp_path)


@pytest.mark.parametrize("nested", [False, True])
def test_beijing_sites_become_columns(tmp_path: Path, nested: bool) -> None:
    sites = {
        "Gucheng": [raw.beijing_row(h, pm25=str(h)) for h in (0, 1, 3)],
        "Dongsi": [raw.beijing_row(h, pm25="NA" if h == 2 else "5", o3="NA") for h in range(4)],
    }
    (path,) = convert_beijing(raw.write_beijing(tmp_path / "x.zip", sites, nested), tmp_path)
    with np.load(path) as arrays:
        assert arrays["site"].tolist() == ["Dongsi", "Gucheng"]
        assert arrays["time"].tolist() == [1362096000 + 3600 * h for h in range(4)]
        np.testing.assert_equal(arrays["pm25"].T, [[5, 5, np.nan, 5], [0, 1, np.nan, 3]])
        assert arrays["pm25_observed"].sum() == 6
        assert np.isnan(arrays["o3"][:, 0]).all()
        assert arrays["temp"][0].tolist() == [-0.5, -0.5]


def test_beijing_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="archive must be a zip of PRSA_Data"):
        convert_beijing(raw.write_beijing(tmp_path / "x.zip", {}), tmp_path)
    broken = {"A": ["1,2"], "B": ["1,2"]}
    path = raw.write_beijing(tmp_path / "y.zip", broken)
    content = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        name = archive.namelist()[0]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "year,PM2.5\n2013,4\n")
    with pytest.raises(ValueError, match="archive must be CSV files with the columns year, month"):
        convert_beijing(path, tmp_path)


@pytest.mark.parametrize("separator", [",", ";"])
def test_molene_stations_with_every_hour_become_columns(tmp_path: Path, separator: str) -> None:
    files = {
        "RADOMEH/0.txt": raw.molene_lines(range(3), separator),
        "RADOMEH/1.txt": raw.molene_lines(range(2, 6), separator),
        "RADOMEH/readme.txt": "Donn\u00e9es horaires",
        "RADOMEH/map.png": "no table",
    }
    (path,) = convert_molene(raw.write_molene(tmp_path / "x.tar.gz", files), tmp_path)
    with np.load(path) as arrays:
        assert arrays["time"].tolist() == [1388534400 + 3600 * h for h in range(6)]
        assert arrays["temperature_name"].tolist() == ["22135001", "29075001", "56007001"]
        np.testing.assert_allclose(arrays["temperature"], np.tile([7.0, 8.0, 9.0], (6, 1)))
        assert arrays["wind_name"].tolist() == ["22135001", "29075001"]  # the third missed an hour
        np.testing.assert_allclose(arrays["wind"][:, 0], 0.1 * np.arange(6))
        assert arrays["rain"].shape == (6, 3)


def test_molene_single_table_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(raw.molene_lines(range(4)), encoding="latin-1")
    (path,) = convert_molene(tmp_path / "x.csv", tmp_path)
    with np.load(path) as arrays:
        assert arrays["wind"].shape == (4, 2)


def test_molene_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="archive must be tables with columns numer_sta"):
        convert_molene(raw.write_molene(tmp_path / "x.tar.gz", {"a.txt": "hello"}), tmp_path)


def test_converted_files_play(tmp_path: Path) -> None:
    """MoleneWind: test_download.py."""
    convert_intel(*raw.write_intel(tmp_path, raw.intel_lines()), tmp_path)
    intel = IntelTemperature(tmp_path, day="2004-02-29")
    assert (intel.horizon, intel.num_arms, intel.history.shape) == (144, 2, (144, 2))
    values = np.random.default_rng(0).integers(5, 90, (2, 72))
    sites = {f"Site{s}": [raw.beijing_row(h, pm25=str(values[s, h])) for h in range(72)] for s in (0, 1)}
    convert_beijing(raw.write_beijing(tmp_path / "x.zip", sites), tmp_path)
    beijing = BeijingPM25(tmp_path, start="2013-03-03", horizon=24)
    assert beijing.table.T.tolist() == values[:, 48:].tolist()
    assert beijing.arms.shape == (2, 1)

"""``python -m benchmarks.diagnosis.records``: what a diagnosis says of real records, beside what is known of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bandits_torch import diagnose
from bandits_torch.problems import RewardTable
from benchmarks import options, pages

# What somebody who knows a record would say, and how what is said compares with that.
KNOWN = pd.read_csv(Path(__file__).parent / "known.csv", index_col="record")


def records(data: Path) -> Iterator[tuple[str, RewardTable]]:
    """The tables by name; readings that were filled in are missing."""

    def arrays(name: str) -> dict[str, np.ndarray]:
        with np.load(data / f"{name}.npz", allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}

    def table(values: np.ndarray, names: np.ndarray, times: np.ndarray | None) -> RewardTable:
        rewards = torch.from_numpy(values.astype(np.float64))
        at = None if times is None else torch.from_numpy(times.astype(np.float64))
        return RewardTable(
            rewards, at, tuple(map(str, names)), in_seconds=times is not None, dated=times is not None
        )

    heat, rest = arrays("intel_temperature"), arrays("intel_light_humidity")
    motes = np.array([f"mote {one}" for one in heat["mote_id"]])
    degrees = np.where(heat["observed"], heat["temperature"], np.nan)
    yield "intel-temperature", table(degrees, motes, heat["time"])
    for name in ("humidity", "light", "voltage"):
        yield f"intel-{name}", table(rest[name], motes, rest["time"])
    molene = arrays("molene_weather")
    for name in ("temperature", "wind", "rain"):
        yield f"molene-{name}", table(molene[name], molene[f"{name}_name"], molene["time"])
    air = arrays("beijing_air")
    for key, name in (("pm25", "pm25"), ("o3", "o3"), ("temp", "temperature")):
        seen = np.where(air[f"{key}_observed"], air[key], np.nan)
        yield f"beijing-{name}", table(seen, air["site"], air["time"])
    light = arrays("cmu_light")
    both = np.concatenate([light["train"], light["test"]])
    yield "cmu-light", table(both, np.array([f"sensor {n + 1}" for n in range(both.shape[1])]), None)


def write_page(folder: Path) -> Path:
    said = pd.read_csv(folder / "records.csv", index_col="record")
    rows = KNOWN.join(said, how="inner")
    return pages.render(folder / "RECORDS.md", "diagnosis/RECORDS.md.jinja", rows=rows)


@options.with_page(write_page)
def main(folder: Path, data: options.Data = options.DATA) -> None:
    """Diagnose, and write what came of it."""
    rows = [{"record": name, "said": str(diagnose(table))} for name, table in records(data)]
    pages.save(pd.DataFrame(rows), folder / "records.csv")


if __name__ == "__main__":
    options.command(main)()

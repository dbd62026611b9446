"""``python -m benchmarks.diagnosis.records``: what a diagnosis says of real records, beside what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bandits_torch import diagnose
from bandits_torch.problems.tables import RewardTable
from benchmarks import options, pages

RIGHT, PARTLY, WRONG = "right", "partly", "wrong"
# What somebody who knows the record would say, and how what is said compares with that.
KNOWN = {
    "intel-temperature": (
        "A daily cycle, 53 % of the variance of the median mote. On 1 to 5 March, Monday to Friday, something "
        "heats all of the laboratory by 5 to 8 degrees at 7. Mote 15 has no reading. Motes are alike.",
        RIGHT,
        "The day, four of the five mornings, sharing. That the mornings are one schedule is left to the reader.",
    ),
    "intel-humidity": (
        "The same mornings, downwards; a daily cycle of 16 % of the variance beside the weather's drift.",
        PARTLY,
        "Mornings, drift and sharing are right; the day is called clear in one mote alone, half of it in two.",
    ),
    "intel-light": (
        "A daily cycle with sharp edges, 88 % of the variance. Mote 15 has 107 of 2994 readings, when it was light.",
        RIGHT,
        "The day, and which short cycles are parts of it. Mote 15 is not called the best arm.",
    ),
    "intel-voltage": (
        "It follows the temperature: the same cycle and the same mornings.",
        PARTLY,
        "These are right. The cycle of 20.5 hours in mote 39 alone is doubtful.",
    ),
    "molene-temperature": (
        "January in Brittany: a weak day, drift with the weather, warm capes, stations alike.",
        PARTLY,
        "All of that is right. Jumps in one to five of 37 stations are quick changes of some hours, not new levels.",
    ),
    "molene-wind": (
        "Storms of some days, no day in winter except inland (Pontivy is), capes windiest.",
        PARTLY,
        "All of that is right. The four jumps, three of them in one or two stations, are squalls and no new levels.",
    ),
    "molene-rain": (
        "Showers: heavy tails, no cycle. Rain begins and ends within an hour; nobody would call that a jump.",
        PARTLY,
        "Heavy tails and no cycle are right. What is called jumps are the beginnings and ends of rain.",
    ),
    "beijing-pm25": (
        "Smog that builds up for days and is blown away in hours. Means of the city from one day to the next: 351 "
        "to 17 (27 February 2014), 473 to 16 (2 December 2015), 291 to 47 (27 December 2015), 395 to 70 (22 December "
        "2016). A weak day: 73 to 89 by the hour.",
        RIGHT,
        "The four jumps are these. The weak day is called clear in one site alone.",
    ),
    "beijing-o3": (
        "Made by sunlight: a strong daily cycle, more in summer; a suburb has most.",
        RIGHT,
        "The day, and Dingling. Not the year: a record must hold eight cycles, and this has four.",
    ),
    "beijing-temperature": (
        "A daily and a yearly cycle; twelve sites nearly alike.",
        RIGHT,
        "The day, a correlation of .99, little to be gained. Not the year, as above.",
    ),
    "cmu-light": (
        "A night and a day of lamps and sun: less than one cycle. Two parts put together, between rows 601 and 602.",
        RIGHT,
        "The seam is one of the jumps; the others are groups of neighbouring sensors that change at once. No cycle is "
        "found.",
    ),
}


def records(data: Path) -> Iterator[tuple[str, RewardTable]]:
    """The tables by name; readings that were filled in are missing."""

    def arrays(name: str) -> dict[str, np.ndarray]:
        with np.load(data / f"{name}.npz", allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}

    def table(values: np.ndarray, names: np.ndarray, times: np.ndarray | None) -> RewardTable:
        rewards = torch.from_numpy(values.astype(np.float64))
        at = None if times is None else torch.from_numpy(times.astype(np.float64))
        return RewardTable(rewards, at, tuple(map(str, names)), in_seconds=times is not None)

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
    table = pd.read_csv(folder / "records.csv").set_index("record")
    names = [name for name in KNOWN if name in table.index]
    of = {verdict: sum(KNOWN[name][1] == verdict for name in names) for verdict in (RIGHT, PARTLY, WRONG)}
    answer = (
        f"Of {len(names)} real records what is said is what somebody who knows them would say in {of[RIGHT]}, partly "
        f"in {of[PARTLY]}, and wrong in {of[WRONG]}. The verdicts are a reader's, by what is known of each record."
    )
    rows = [[name, *KNOWN[name]] for name in names]
    heads = ["record", "an expert would say", "what is said is", "because"]
    text = f"\n{pages.markdown(heads, rows)}"
    for name in names:
        said = "\n".join(f"> {line}  " for line in table.loc[name, "said"].splitlines())
        text += f"\n## {name}\n\n{said}\n"
    path, command = folder / "RECORDS.md", "python -m benchmarks.diagnosis.records"
    return pages.publish(path, "Real records", answer, command, text)


def main(data: options.Data = options.DATA, out: options.Out = None, page: options.PageAlone = False) -> None:
    """Diagnose, and write what came of it."""
    folder = pages.results_folder(__file__, out)
    if not page:
        rows = [{"record": name, "said": str(diagnose(table))} for name, table in records(data)]
        pages.save(pd.DataFrame(rows), folder / "records.csv")
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()

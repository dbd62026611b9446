"""Tables as people have them, each with what was meant by it.

A table is drawn, then written as some program would: separator, decimal mark, thousands, index, kind and place of the
times, missing marks and numbers, encoding, line ends, quotes, long or wide, a column of hours, weekdays or counts
beside the times, Excel's first line, the printed minus sign, Parquet and NPZ. ``read_table`` must give what was meant
or raise a ValueError that names an argument which decides; told that argument, it must give what was meant.
"""

import io
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch.problems import read_table

NAMES = (
    ["a", "b", "c"],
    ["0", "1", "2"],
    ["mote 1", "mote 2", "Ünit"],
    ["3", "7", "12"],
    ["x.y", "x_z", "w-1"],
)
TIMES = {  # how the times are written: from row numbers, and their true values in their own unit
    "counts": lambda n: ([str(i + 1) for i in range(n)], [i + 1.0 for i in range(n)]),
    "gaps": lambda n: ([str(i * i + 3) for i in range(n)], [i * i + 3.0 for i in range(n)]),
    "epoch": lambda n: (
        [str(1706659200 + 600 * i) for i in range(n)],
        [1706659200.0 + 600 * i for i in range(n)],
    ),
    "iso": lambda n: _dates(n, "%Y-%m-%dT%H:%M:%S"),
    "blank": lambda n: _dates(n, "%Y-%m-%d %H:%M"),
    "zone": lambda n: _dates(n, "%Y-%m-%dT%H:%M:%SZ"),
    "compact": lambda n: _dates(n, "%Y%m%dT%H%M"),
    "digits": lambda n: _dates(n, "%Y%m%d", 86400),
    "long digits": lambda n: _dates(n, "%Y%m%d%H%M"),
    "months": lambda n: _dates(n, "%Y%m", "months"),
    "days": lambda n: _dates(n, "%Y-%m-%d", 86400),
}
TIME_NAMES = ("time", "Time", "date", "timestamp", "when", "datetime", "t", "", "Zeit", "hour", "k")
MISSING = ("", "NA", "nan", "NaN", "null", "N/A", "-", "None", "n.a.", "#DIV/0!", "-9999")
OPTIONS = "time_column|ignore|long|header|separator|decimal|encoding|rewards|missing|path"


def _dates(n: int, form: str, step: int | str = 3600) -> tuple[list[str], list[float]]:
    first = pd.Timestamp("2024-01-29")
    if isinstance(step, int):
        stamps = [first + pd.Timedelta(seconds=step * i) for i in range(n)]
    else:
        stamps = list(pd.date_range("2024-02-01", periods=n, freq="MS"))
    return [stamp.strftime(form) for stamp in stamps], [stamp.timestamp() for stamp in stamps]


@dataclass
class Odd:
    """A file's content and what was meant by it."""

    content: bytes
    values: np.ndarray
    names: list[str]
    times: list[float] | None
    answers: dict[str, Any] = field(default_factory=dict)
    how: str = ""
    suffix: str = ".csv"


def draw(chance: random.Random) -> Odd:
    """One table, and the arguments that say how it was meant."""
    rows, names = chance.choice((4, 5, 12)), list(chance.choice(NAMES))
    places, low, high = chance.choice(
        ((0, 0, 99), (0, 1000, 99999), (1, -9, 9), (2, -5, 5), (3, 0, 3), (3, 20, 5000), (6, -1, 1))
    )
    generator = np.random.default_rng(chance.randrange(2**32))
    values = np.round(generator.uniform(low, high, (rows, 3)), places)
    values[generator.random(values.shape) < chance.choice((0, 0, 0.2))] = np.nan
    values[0] = np.where(np.isnan(values[0]), 1, values[0])
    kind, label, place = chance.choice(list(TIMES)), chance.choice(TIME_NAMES), chance.choice((0, 0, 0, 2, 3))
    timed = chance.random() < 0.7
    place = 0 if label == "" else place
    decimal = chance.choice("..,")
    separator = chance.choice(",;\t|") if decimal == "." else chance.choice(";\t;")
    group = chance.choice(("", "", "", "_", " ", "." if decimal == "," else ","))
    quoted, blank = chance.random() < 0.3 or group == separator, chance.choice(MISSING)
    if blank == "-9999" and (rows < 12 or high > 5000):
        blank = "NA"  # too little to tell by
    texts = [[_text(v, places, decimal, group, blank) for v in row] for row in values]
    if chance.random() < 0.2:
        texts = [[cell.replace("-", "\u2212") if cell != blank else cell for cell in line] for line in texts]
    header, moments, meant = list(names), None, None
    if timed:
        moments, meant = TIMES[kind](rows)
        header.insert(place, label)
        texts = [[*row[:place], moment, *row[place:]] for row, moment in zip(texts, moments, strict=True)]
    beside = (
        chance.choice(("hour", "weekday", "Unnamed: 0", "remark"))
        if timed and chance.random() < 0.1
        else None
    )
    beside = None if beside == label else beside
    if beside is not None:
        stamps = pd.to_datetime(meant, unit="s")
        numbers = {"hour": stamps.hour, "weekday": stamps.day_of_week, "Unnamed: 0": range(rows)}
        numbers = numbers.get(beside, chance.choices(("fine", "rain, all day", "", "nobody came"), k=rows))
        header.append(beside)
        texts = [[*line, str(number)] for line, number in zip(texts, numbers, strict=True)]
    long = beside is None and timed and label != "" and chance.random() < 0.15
    if long:
        header = [label, "arm", "reward"]
        texts = [
            [moments[t], name, row[:place][n] if n < place else row[n + 1]]
            for t, row in enumerate(texts)
            for n, name in enumerate(names)
        ]
    headless = not long and beside is None and chance.random() < 0.1
    trailing = chance.random() < 0.15
    lines = ([] if headless else [header]) + texts
    lines = [[*line, ""] if trailing else line for line in lines]
    mark = '"'
    cells = [[mark + c + mark if quoted or separator in c else c for c in line] for line in lines]
    end = chance.choice(("\n", "\n", "\r\n", "\r"))
    encoding = chance.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"))
    content = end.join(separator.join(line) for line in cells) + chance.choice((end, ""))
    excels = end != "\r" and chance.random() < 0.1
    content = f"sep={separator}{end}{content}" if excels else content
    answers: dict[str, Any] = {
        "separator": separator,
        "decimal": decimal,
        "header": not headless,
        "long": long,
    }
    answers["time_column"] = None if not timed else f"column {place + 1}" if headless else label
    if blank in ("n.a.", "#DIV/0!", "-9999") and np.isnan(values).any():
        answers["missing"] = blank
    if beside == "remark":
        answers["ignore"] = beside
    elif beside is not None:
        answers["rewards"] = names
    answers["encoding"] = {"utf-8": "utf-8-sig"}.get(encoding, encoding)
    names = [f"column {n + 1 + (timed and n >= place)}" for n in range(3)] if headless else names
    how = (
        f"{separator!r} {decimal} {group!r} {kind if timed else 'no'} {label!r} {blank!r} {encoding} {end!r}"
    )
    how += f" {beside} {'sep=' if excels else ''}"
    if encoding == "latin-1" and "\u2212" in content:
        encoding = answers["encoding"] = "utf-16"
    suffix = ".tsv" if separator == "\t" and chance.random() < 0.5 else ".csv"
    return Odd(content.encode(encoding, "replace"), values, names, meant, answers, how, suffix)


def draw_binary(chance: random.Random) -> Odd:
    """A table as Parquet, its times in a column or the index, or as NPZ, and what was meant by it."""
    rows, names = chance.choice((4, 12)), list(chance.choice(NAMES))
    generator = np.random.default_rng(chance.randrange(2**32))
    values = np.round(generator.uniform(-9, 9, (rows, 3)), 2)
    stamps = pd.date_range("2024-01-29", periods=rows, freq=chance.choice(("h", "D", "MS")))
    meant = [stamp.timestamp() for stamp in stamps]
    kind, file = (
        chance.choice(("column", "index", "zone", "nullable", "text", "bytes", "dates")),
        io.BytesIO(),
    )
    answers: dict[str, Any] = {"time_column": "time"}
    if kind in ("bytes", "dates"):
        arms = np.array([name.encode() for name in names]) if kind == "bytes" else np.array(names)
        np.savez(file, rewards=values, arms=arms, time=stamps.to_numpy(dtype="datetime64[s]"))
        return Odd(file.getvalue(), values, names, meant, answers, f"NPZ {kind}", ".npz")
    frame = pd.DataFrame(values, columns=names, index=pd.Index(stamps, name="time"))
    if kind == "zone":
        frame.index = frame.index.tz_localize("UTC").tz_convert("Europe/Berlin")
    if kind == "nullable":
        frame = frame.convert_dtypes()
    if kind == "text":
        frame = frame.astype(str)
    frame = frame if kind in ("index", "zone") else frame.reset_index()
    frame.to_parquet(file)
    return Odd(file.getvalue(), values, names, meant, answers, f"Parquet {kind}", ".parquet")


def _text(value: float, places: int, decimal: str, group: str, blank: str) -> str:
    if np.isnan(value):
        return blank
    plain = f"{value:,.{places}f}" if group else f"{value:.{places}f}"
    return plain.translate({ord(","): group, ord("."): decimal})


def same(odd: Odd, table: Any) -> bool:
    """Whether a table is the one that was meant; times that count rows may as well be none."""
    found = None if table.times is None else table.times.tolist()
    even = odd.times is not None and np.ptp(np.diff(odd.times)) == 0 and odd.times[1] - odd.times[0] == 1
    return (
        list(table.arm_names) == odd.names
        and np.array_equal(table.rewards.numpy(), odd.values, equal_nan=True)
        and (found == odd.times or (found is None and even))
    )


def judge(odd: Odd, path: Path) -> str:
    """ "right", "refused" (and right once told), or what is wrong."""
    path = path.with_suffix(odd.suffix)
    path.write_bytes(odd.content)
    told: dict[str, Any] = {}
    for _ in range(len(odd.answers) + 1):
        try:
            table = read_table(path, **told)
        except ValueError as error:
            asked = [
                o for o in re.findall(rf"\b({OPTIONS})\b", str(error)) if o in odd.answers and o not in told
            ]
            if not asked:
                return f"wrong: nothing left to say to {error}"
            told[asked[0]] = odd.answers[asked[0]]
        else:
            doubted = any("missing=" in note for note in table.notes) and "missing" not in told
            if doubted and "missing" in odd.answers:  # a number for nothing is told, not refused
                told["missing"] = odd.answers["missing"]
                continue
            return (
                ("refused" if told else "right")
                if same(odd, table)
                else f"wrong: read {table.notes} told {told}"
            )
    return "wrong: refused for ever"

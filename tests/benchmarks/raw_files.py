"""Small made-up files in the official raw formats."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np

START = int(np.datetime64("2004-02-28", "s").astype(int))


def write_intel(folder: Path, lines: list[str], name: str = "data.txt.gz") -> tuple[Path, Path]:
    readings, positions = folder / name, folder / "mote_locs.txt"
    text = "\n".join(lines) + "\n"
    readings.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    positions.write_text("1 21.5 23\n2 24.5 20\n3 19.5 19\n", encoding="ascii")
    return readings, positions


def intel_lines(days: int = 2) -> list[str]:
    """A reading of two motes every ten minutes."""
    lines = []
    for bin_ in range(144 * days):
        stamp = str(np.datetime64(START + 600 * bin_ + 31, "s")).replace("T", " ")
        for mote in (1, 2):
            temperature = 20 + mote + np.sin(bin_ / 20 + mote)
            lines.append(f"{stamp}.123 {bin_} {mote} {temperature:.4f} 40.{mote} {100 + bin_}.5 2.7")
    return lines


def write_beijing(path: Path, sites: dict[str, list[str]], nested: bool = False) -> Path:
    header = "No,year,month,day,hour,PM2.5,PM10,SO2,NO2,CO,O3,TEMP,PRES,DEWP,RAIN,wd,WSPM,station"
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for site, rows in sites.items():
            name = f"PRSA_Data_20130301-20170228/PRSA_Data_{site}_20130301-20170228.csv"
            archive.writestr(name, "\n".join([header, *rows]) + "\n")
        archive.writestr("readme.txt", "nothing here")
    if not nested:
        path.write_bytes(inner.getvalue())
        return path
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("PRSA2017_Data_20130301-20170228.zip", inner.getvalue())
        archive.writestr("data.csv", "a,b\n1,2\n")
    return path


def beijing_row(hour: int, pm25: str = "7", o3: str = "80", temp: str = "-0.5") -> str:
    day, hour = divmod(hour, 24)
    return f"{hour + 1},2013,3,{day + 1},{hour},{pm25},9,1,2,300,{o3},{temp},1023,-18,0,NNW,4.4,X"


def molene_lines(hours: range, separator: str = ",", footer: str = "(rows)") -> str:
    columns = ["numer_sta", "date", "date_insert", "td", "t", "ff", "rr1", ""]
    lines = [separator.join(columns)]
    for hour in hours:
        date = f"2014-01-{1 + hour // 24:02d} {hour % 24:02d}:00:00"
        for number, station in enumerate(("22135001", "29075001", "56007001")):
            wind = "mq" if number == 2 and hour == 3 else f"{number + 0.1 * hour:.1f}"
            lines.append(separator.join([station, date, date, "278.1", f"{280.15 + number}", wind, "0", ""]))
    return "\n".join([*lines, footer]) + "\n"


def write_molene(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            content = text.encode("latin-1")
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path

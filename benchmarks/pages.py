"""What every program of results shares: CSV files that grow from run to run (``save``, ``keep``), and Markdown pages
written from them by templates, Markdown files with places for figures, which stand beside the programs (``render``)."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined

from bandits_torch.files import atomic_write

FEWEST = 5  # seeds that a statement may rest on


def near_by() -> Path | None:
    """``shared/data`` beside the checkout or in a parent of it, if there."""
    folders = (parent / "shared" / "data" for parent in Path(__file__).parents)
    return next((folder for folder in folders if (folder / "intel_temperature.npz").is_file()), None)


def results_folder(program: str, out: Path | None = None) -> Path:
    """The folder ``out``, else ``results`` beside the file ``program``; made."""
    folder = out or Path(program).parent / "results"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(line: object) -> None:
    """Print a line at once."""
    print(line, flush=True)


def save(table: pd.DataFrame, path: Path | str, digits: int | None = 6) -> None:
    """Write a CSV file, whole or not at all; numbers to so many significant digits, None for all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        table.to_csv(file, index=False, float_format=None if digits is None else f"%.{digits}g")


def keep(path: Path, rows: pd.DataFrame, key: Sequence[str]) -> None:
    """Put rows into a CSV file in place of those of the same key, sorted by key; whole or not at all."""
    if path.exists():
        rows = replaced(pd.read_csv(path), rows, key)
    save(rows.sort_values(list(key), kind="stable"), path)


def append(path: Path, rows: pd.DataFrame, digits: int = 6) -> None:
    """Put rows at the end of a CSV file; whole or not at all."""
    table = read(path)
    save(rows if table is None else pd.concat([table, rows], ignore_index=True), path, digits)


def played(path: Path, key: Sequence[str]) -> set[Any]:
    """The keys of the rows of a CSV file, which need not be played again; none where there is no such file."""
    table = read(path)
    return set() if table is None else set(table.set_index(list(key)).index)


def read(path: Path) -> pd.DataFrame | None:
    """The table of a CSV file, None where there is no such file."""
    return pd.read_csv(path) if path.exists() else None


def replaced(table: pd.DataFrame, rows: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """The table with these rows in place of those of the same key."""
    columns = list(key)
    kept = table[~table.set_index(columns).index.isin(rows.set_index(columns).index)]
    return rows if kept.empty else pd.concat([kept, rows], ignore_index=True)


def write(path: Path, text: str) -> Path:
    """Write a page, whole or not at all; returns its path."""
    with atomic_write(path) as file:
        file.write(text.encode())
    return path


def render(path: Path, template: str, **values: Any) -> Path:
    """Write a page from a template (``filled``); returns its path."""
    return write(path, filled(template, **values))


def filled(template: str, **values: Any) -> str:
    """The text of a page: a Jinja template, by its path below ``benchmarks``, with these values and the functions of
    ``_HELP``."""
    return _TEMPLATES.get_template(template).render(values)


def opening(title: str, answer: str, command: str) -> str:
    """The head of a page: its title, the answer to its question in one paragraph, and the command that writes it."""
    lines = _filled(answer)
    written = f"Written by `{command}` from the tables beside it; run it again rather than edit it."
    return f"# {title}\n\n{lines}\n\n{written}\n"


def bullet(text: str) -> str:
    return _filled(f"* {text}", subsequent_indent="  ") + "\n"


def _filled(text: str, subsequent_indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        118,
        break_long_words=False,
        break_on_hyphens=False,
        subsequent_indent=subsequent_indent,
    )


def with_error(values: pd.Series, digits: int = 1, errors: float = 1.0) -> str:
    """The mean ± its standard error, or so many of them; of one value that alone."""
    mean = f"{values.mean():.{digits}f}"
    return f"{mean} ± {errors * values.sem():.{digits}f}" if len(values) > 1 else mean


def beyond(differences: pd.Series, below: str, level: str, above: str) -> str:
    """The word for where the mean of the differences lies: beyond two standard errors below or above 0, or level; of a
    single difference by its sign."""
    mean, two = float(differences.mean()), 2 * float(differences.sem()) if len(differences) > 1 else 0.0
    return below if mean < -two else above if mean > two else level


def ratio(own: pd.Series, base: pd.Series) -> tuple[float, float]:
    """The mean over that of ``base``, to which it is paired, and its standard error (delta method)."""
    found = float(own.mean() / base.mean())
    return found, float((own - found * base).sem() / base.mean())


def markdown(headings: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(map(str, headings)), *([str(cell) for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def duration(seconds: float) -> str:
    """Three figures and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{figures(seconds / size)} {unit}"
    return f"{figures(seconds / 1e-6)} µs"


def figures(value: float, count: int = 3) -> str:
    """A number to ``count`` significant figures, thousands apart."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, count - 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, count - 1 - math.floor(math.log10(abs(value)))):,.{decimals}f}".replace(",", " ")


def whole(value: float) -> str:
    """A whole number, thousands apart."""
    return f"{int(value):,}".replace(",", " ")


def seeds_of(table: pd.DataFrame, column: str, of: str | None = None, what: str = "seed") -> str:
    """How many seeds (``what``) are in this column, and which: ``"6 seeds (0 to 5)"``; by the column ``of`` of what was
    played, where some have other seeds: ``"6 seeds (0 to 5) of levy; 1 seed (0) of ackley, shekel"``."""
    names: dict[tuple[int, ...], list[str]] = {}
    for name, part in [("", table)] if of is None else table.groupby(of, sort=False):
        names.setdefault(tuple(sorted(map(int, part[column].unique()))), []).append(str(name))
    text = {seeds: f"{len(seeds)} {what}{'s' * (len(seeds) > 1)} ({_which(seeds)})" for seeds in names}
    if len(names) == 1:
        return "".join(text.values())
    return "; ".join(
        f"{text[seeds]} of {', '.join(names[seeds])}" for seeds in sorted(names, key=len, reverse=True)
    )


def too_few(table: pd.DataFrame, column: str, of: str) -> str:
    """A paragraph where something was played with fewer than ``FEWEST`` seeds; else nothing."""
    fewest = table.groupby(of)[column].nunique().min()
    return (
        ""
        if fewest >= FEWEST
        else f"**Fewer than {FEWEST} seeds: no order or verdict that would stand.**\n\n"
    )


def _which(seeds: Sequence[int]) -> str:
    """Ascending numbers, those that follow on each other as a range."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _by_format(value: Any, form: str) -> str:
    """A number by a format: ``{{ share | to(".1%") }}``."""
    # ``str`` of an undefined value is an error that names it.
    return format(str(value) if isinstance(value, Undefined) else value, form)


_HELP: dict[str, Callable[..., str]] = {
    "beyond": beyond,
    "bullet": bullet,
    "duration": duration,
    "figures": figures,
    "met": lambda is_met: "met" if is_met else "missed",
    "opening": opening,
    "seeds_of": seeds_of,
    "table": lambda table: markdown(table.columns, table.astype(str).to_numpy().tolist()),
    "to": _by_format,
    "with_error": with_error,
    "whole": whole,
}
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    # The template has the end of the last line of what it shows.
    finalize=lambda value: value.removesuffix("\n") if isinstance(value, str) else value,
)
_TEMPLATES.globals |= _HELP
_TEMPLATES.filters |= _HELP

"""The command: what is run in which order, how long it may take, and what is written."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch

from bandits_torch.files import atomic_write
from bandits_torch.recipes import RECIPES
from benchmarks.gpu import checks
from benchmarks.gpu.checks import near_tie
from benchmarks.gpu.pages import PAGES
from benchmarks.gpu.stepping import Settings
from benchmarks.pages import markdown
from benchmarks.speed.measuring import machine

Measured = Mapping[str, list[dict[str, Any]]]  # rows by page


class Verdict(NamedTuple):
    """A criterion and what became of it; ``figure`` None: not measured."""

    asked: str
    figure: str | None
    met: bool

    @property
    def said(self) -> str:
        """In one word or two."""
        return "not measured" if self.figure is None else "met" if self.met else "MISSED"


def criteria(measured: Measured) -> list[Verdict]:
    """What is asked on an H200-class card, whatever was measured."""
    return [
        _share(measured, "covariance", 10_000, 1, 0.6),
        _share(measured, "covariance", 100, 2_500, 0.6),
        _share(measured, "factor", 1_000_000, 1, 0.5),
        _wall(measured, 25, 3.0),
        _wall(measured, 2_500, 20.0),
        _waits(measured),
        _botorch(measured, 10_000),
        _botorch(measured, 100_000),
        _same(measured, "", "CPU and GPU choose the same arms in every recipe, or part in a near tie"),
        _same(measured, "captured_", "captured steps choose as on the CPU, or part in a near tie"),
        _tests(measured),
    ]


def _find(measured: Measured, page: str, **wanted: Any) -> dict[str, Any] | None:
    rows = measured.get(page, [])
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)


def _share(measured: Measured, form: str, arms: int, replicates: int, least: float) -> Verdict:
    asked = f"{form} form, {arms} arms, {replicates} replicates: at least {least:.0%} of the speed of a copy"
    row = _find(measured, "saturation", form=form, arms=arms, replicates=replicates)
    if row is None or "captured_share" not in row:
        return Verdict(asked, None, False)
    share = max(row["captured_share"], row["plain_share"])
    return Verdict(
        asked, f"{row['plain_share']:.0%} plain, {row['captured_share']:.0%} captured", share >= least
    )


def _wall(measured: Measured, replicates: int, most: float) -> Verdict:
    asked = f"{replicates} replicates x 30 000 steps x 100 arms, captured: at most {most:g} s"
    row = _find(measured, "igp_30000", replicates=replicates, steps=30_000)
    if row is None or "wall_seconds" not in row:
        return Verdict(asked, None, False)
    return Verdict(asked, f"{row['wall_seconds']:.2f} s", row["wall_seconds"] <= most)


def _waits(measured: Measured) -> Verdict:
    rows = [row for page in ("saturation", "thompson") for row in measured.get(page, [])]
    waits = [
        row[key] for row in rows for key in ("plain_waits", "captured_waits") if row.get(key) is not None
    ]
    waits = [value for value in waits if value == value]  # NaN: not on a GPU
    figure = None if not waits else f"at most {max(waits):g} a step, over {len(waits)} kinds of step"
    return Verdict("no host wait in a step", figure, bool(waits) and max(waits) == 0)


def _botorch(measured: Measured, arms: int) -> Verdict:
    row = _find(measured, "against_botorch", arms=arms, observations=1_000)
    asked = f"at least 300 times plain BoTorch at ({arms} arms, 1 000 observations)"
    if row is None or "times_faster" not in row:
        return Verdict(asked, None, False)
    best = max(row["times_faster"], row["times_faster_captured"])
    return Verdict(
        asked, f"{row['times_faster']:.0f} plain, {row['times_faster_captured']:.0f} captured", best >= 300
    )


def _same(measured: Measured, prefix: str, asked: str) -> Verdict:
    rows = [row for row in measured.get("same_choices", []) if f"{prefix}same" in row or "error" in row]
    if not rows:
        return Verdict(asked, None, False)
    parted = [row["recipe"] for row in rows if not near_tie(row, prefix)]
    played = measured.get("same_choices", [])
    cut = "" if len(played) >= len(RECIPES) else f" (of {len(RECIPES)}: cut short)"
    figure = f"{len(rows) - len(parted)} of {len(rows)} recipes{cut}" + (
        f"; not {', '.join(parted)}" if parted else ""
    )
    return Verdict(asked, figure, not parted)


def _tests(measured: Measured) -> Verdict:
    rows = measured.get("tests", [])
    asked = "the tests pass on the GPU"
    if not rows:
        return Verdict(asked, None, False)
    passed, failed = (sum(row.get(kind, 0) for row in rows) for kind in ("passed", "failed"))
    failed += sum(row.get("error", 0) for row in rows)
    cut = [row["tests"] for row in rows if not row.get("whole")]
    figure = f"{passed} passed, {failed} failed" + (f"; cut short: {', '.join(cut)}" if cut else "")
    return Verdict(asked, figure, passed > 0 and failed == 0)


_TESTS, _CHOICES = 90.0, 60.0  # seconds
_MOST_BYTES = 15 * 2**20
_GRACE = 3.0  # seconds that a page may take beyond its time before it is cut in the middle of a row


class OutOfTime(BaseException):
    """A page has to stop; no ``except Exception`` of a page holds it up."""


class Notebook:
    """What was found so far, written anew after every row: ``results.json`` and ``report.md``."""

    def __init__(self, out: Path, facts: dict[str, Any]) -> None:
        self.out, self.facts = out, facts
        self.measured: dict[str, list[dict[str, Any]]] = {}
        self.notes: dict[str, dict[str, Any]] = {}
        out.mkdir(parents=True, exist_ok=True)
        self.write()

    def write(self) -> None:
        """Both files, whole or not at all."""
        told = {"facts": self.facts, "pages": self.measured, "notes": self.notes}
        told["criteria"] = [(v.asked, self.said(v), v.figure) for v in criteria(self.measured)]
        for name, text in (("results.json", json.dumps(told, indent=1)), ("report.md", self.report())):
            with atomic_write(self.out / name) as file:
                file.write(text.encode()[:_MOST_BYTES])

    def said(self, verdict: Verdict) -> str:
        """A rehearsal meets and misses nothing."""
        rehearsed = self.facts["rehearsal"] and verdict.figure is not None
        return "rehearsed" if rehearsed else verdict.said

    def report(self) -> str:
        """The criteria, then every page as a table."""
        lines = ["# On a GPU", "", ", ".join(f"{key} {value}" for key, value in self.facts.items()), ""]
        if self.facts["rehearsal"]:
            lines += ["**A rehearsal in small: the figures mean nothing.**", ""]
        asked = [[v.asked, self.said(v), v.figure or ""] for v in criteria(self.measured)]
        lines.append(markdown(["asked", "", "figure"], asked))
        for page, note in self.notes.items():
            rows = self.measured.get(page, [])
            lines += ["", f"## {page}", "", ", ".join(f"{key}: {value}" for key, value in note.items()), ""]
            names = list(dict.fromkeys(name for row in rows for name in row))
            if rows:
                lines.append(markdown(names, ([_cell(row.get(name)) for name in names] for row in rows)))
        return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return "" if value is None else str(value)


@contextmanager
def cut_after(seconds: float) -> Iterator[None]:
    """Raise ``OutOfTime`` in the block after so many seconds, where the system can."""

    def cut(*_: Any) -> None:
        raise OutOfTime

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, cut)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measured(
    book: Notebook, name: str, rows: Callable[[Settings], Iterator[dict[str, Any]]], settings: Settings
) -> None:
    """Run one page to its end or to the end of its time; what fails is noted, and the others go on."""
    begun, note, on_gpu = perf_counter(), book.notes.setdefault(name, {}), settings.device == "cuda"
    kept = book.measured.setdefault(name, [])
    print(f"{name} ...", flush=True)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        with cut_after(min(settings.left, 1e6) + _GRACE):
            for row in rows(settings):
                kept.append(row)
                book.write()
                if settings.left <= 0:
                    note["stopped"] = "out of time"
                    break
    except OutOfTime:
        note["stopped"] = "out of time, in the middle of a row"
    except Exception as error:
        note["failed"] = f"{type(error).__name__}: {error}"[:500]
        with (book.out / "errors.log").open("a") as file:
            file.write(f"{name}\n{traceback.format_exc()}\n")
    note["seconds"] = round(perf_counter() - begun, 1)
    if on_gpu:
        note["high-water MiB"] = round(torch.cuda.max_memory_allocated() / 2**20)
        torch.cuda.empty_cache()
    book.write()
    print(f"  {len(kept)} rows, {note}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """0 unless a criterion was missed or a page failed."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for report.md, results.json and logs")
    parser.add_argument("--rehearse", action="store_true", help="every line in small, on a CPU if need be")
    parser.add_argument(
        "--pages", default="", help=f"some of tests, same_choices, {', '.join(PAGES)}, by commas"
    )
    parser.add_argument("--minutes", type=float, default=8.7, help="all of it takes no longer (default: 8.7)")
    asked = parser.parse_args(arguments)
    there = torch.cuda.is_available()
    if not (there or asked.rehearse):
        parser.error("no GPU is here: --rehearse runs every line in small on the CPU")
    begun = perf_counter()
    ends = begun + 60 * asked.minutes
    missing = [] if importlib.util.find_spec("pytest") else ["pytest"]
    device = "cuda" if there else "cpu"
    facts = {**machine(device), "missing": missing or "nothing", "rehearsal": asked.rehearse}
    book = Notebook(asked.out, facts)
    if missing:
        print("pytest is not installed: the tests are left out", flush=True)
    log = asked.out / "tests.log"
    for old in (log, asked.out / "errors.log"):
        old.unlink(missing_ok=True)
    plan: dict[str, tuple[Callable[[Settings], Iterator[dict[str, Any]]], float]] = {
        name: PAGES[name] for name in ("igp_30000", "saturation")
    }
    plan["tests"] = lambda settings: checks.tests(settings, log), _TESTS
    plan["same_choices"] = checks.same_choices, _CHOICES
    plan |= {name: page for name, page in PAGES.items() if name not in plan}
    if missing:
        plan.pop("tests")
        book.notes["tests"] = {"left out": "pytest is not installed"}
    wanted = [name for name in asked.pages.split(",") if name] or list(plan)
    if unknown := [name for name in wanted if name not in plan]:
        parser.error(f"--pages: {', '.join(unknown)} not among {', '.join(plan)}")
    for name in wanted:
        rows, seconds = plan[name]
        if perf_counter() >= ends:
            book.notes[name] = {"left out": "out of time"}
            continue
        # A rehearsal is no measurement: on a busy machine, too, it runs every line.
        until = ends if asked.rehearse else min(ends, perf_counter() + seconds)
        measured(book, name, rows, Settings(device, asked.rehearse, until))
    facts["seconds"] = round(perf_counter() - begun, 1)
    book.write()
    for verdict in criteria(book.measured):
        print(f"{book.said(verdict):>12}  {verdict.asked}{f': {verdict.figure}' if verdict.figure else ''}")
    failed = [name for name, note in book.notes.items() if "failed" in note]
    if failed:
        print(f"failed: {', '.join(failed)} (errors.log)")
    missed = any(verdict.said == "MISSED" for verdict in criteria(book.measured))
    return int(bool(failed) or (missed and not asked.rehearse))

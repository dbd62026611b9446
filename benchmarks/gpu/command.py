"""The command: what is run in which order, how long it may take, and what is written."""

import argparse
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch

from bandits_torch import History, make, recipes, run
from bandits_torch.files import atomic_write
from bandits_torch.policies import IndexPolicy
from bandits_torch.recipes import RECIPES
from benchmarks.gpu.pages import PAGES
from benchmarks.gpu.stepping import Settings
from benchmarks.pages import filled
from benchmarks.speed.measuring import machine

ROOT = Path(__file__).resolve().parents[2]
# On a GPU: first those written for one, then those that are played again on its tensors.
_WRITTEN_FOR_ONE = (
    "tests/captured/test_captured_cuda.py",
    "tests/models/test_arm_gp_devices.py",
    "tests/theory/test_widths.py",
    "tests/test_benchmarks_speed.py",
)
_ON_ITS_TENSORS = ("theory", "acquisition", "models", "policies")
_ROUNDING = 1e-9  # relative: indices closer than this may change places


def tests(settings: Settings, log: Path) -> Iterator[dict[str, Any]]:
    """How many tests pass with tensors on the device, folder by folder; what pytest says goes to ``log``."""
    written = _WRITTEN_FOR_ONE[: settings.pick(None, 1)]
    plan = [("written for a GPU", "cpu", [*written, "-k", "gpu or cuda"])]  # these place their own tensors
    if not settings.small:
        plan += [(folder, settings.device, [f"tests/{folder}"]) for folder in _ON_ITS_TENSORS]
    for k, (name, device, arguments) in enumerate(plan):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--device={device}"]
        command += ["--continue-on-collection-errors", "--tb=line", "-W", "default", *arguments]
        yield {"tests": name, **_outcome(command, max(5.0, settings.left / (len(plan) - k)), log)}


def _outcome(command: list[str], seconds: float, log: Path) -> dict[str, Any]:
    """Counts from pytest's last line; those of a run that was cut short are what its dots say."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with log.open("ab") as file:
        file.write((" ".join(command) + "\n").encode())
        file.flush()
        begun = file.tell()
        whole = True
        try:
            subprocess.run(command, cwd=ROOT, env=environment, stdout=file, stderr=file, timeout=seconds)
        except subprocess.TimeoutExpired:
            whole = False
    said = log.read_bytes()[begun:].decode(errors="replace")
    counts = {kind: 0 for kind in ("passed", "failed", "skipped", "error")}
    last = said.strip().splitlines()[-1] if said.strip() else ""
    for count, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", last if whole else ""):
        counts[kind] = int(count)
    if not whole:
        dots = "".join(re.findall(r"^([.FEsx]+)", said, re.MULTILINE))
        counts = {"passed": dots.count("."), "failed": dots.count("F"), "skipped": dots.count("s")}
        counts["error"] = dots.count("E")
    return {**counts, "whole": whole}


def same_choices(settings: Settings) -> Iterator[dict[str, Any]]:
    """Does every recipe choose the same arms on CPU and GPU, plain and captured, or differ only in a near tie?"""
    steps = settings.pick(200, 6)
    for recipe in recipes.RECIPES:
        row: dict[str, Any] = {"recipe": recipe, "steps": steps}
        try:
            here, there = _played(recipe, "cpu", steps), _played(recipe, settings.device, steps)
            row |= _compared(recipe, here, there, "")
            try:
                captured = _played(recipe, settings.device, steps, capture=True)
            except ValueError as error:
                row["captured"] = "refused" if "capture" in str(error) else str(error)[:200]
            else:
                row |= _compared(recipe, here, captured, "captured_")
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        yield row


def _built(recipe: str, device: str, steps: int) -> tuple[Any, Any]:
    if recipes.registered(recipe).belief == "priors" or recipe == "known_prior_gp_ucb":
        problem = make("hills", replicates=3, seed=3, num_arms=21).to(device)
    else:
        options = {"num_arms": 30, "horizon": max(steps, 20)}
        problem = make("switching", replicates=3, seed=3, **options).to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick = dict(recipes.registered(recipe).quick)
        policy = recipes.build(recipe, problem, replicates=3, horizon=max(steps, 20), seed=5, **quick)
    return policy, problem


def _played(recipe: str, device: str, steps: int, capture: bool = False) -> History:
    policy, problem = _built(recipe, device, steps)
    return run(policy, problem, steps, seed=7, capture=capture)


def _compared(recipe: str, here: History, there: History, prefix: str) -> dict[str, Any]:
    """The first step at which arms differ, and how far apart their indices were on the CPU, relative to the larger."""
    differ = (here.arms != there.arms).any(0).nonzero().flatten()
    if not len(differ):
        return {f"{prefix}same": True}
    step = int(differ[0]) + 1
    gap = _gap(recipe, here, there, step)
    return {f"{prefix}same": False, f"{prefix}first_step": step, f"{prefix}gap": gap}


@torch.no_grad()
def _gap(recipe: str, here: History, there: History, step: int) -> float:
    """NaN for a policy that is no index policy."""
    policy, problem = _built(recipe, "cpu", here.horizon)
    if step > 1:
        run(policy, problem, step - 1, seed=7)
    if not isinstance(policy, IndexPolicy):
        return float("nan")
    time = problem.time(step)
    scores = policy._acquisition_now(time, None)(policy.choices.inputs(time)).reshape(problem.num_arms, -1)
    first, second = (scores.gather(0, run.arms[:, step - 1].unsqueeze(0)) for run in (here, there))
    return float(((first - second).abs() / scores.abs().amax(0)).max())


Measured = Mapping[str, list[dict[str, Any]]]  # rows by page


class Verdict(NamedTuple):
    """A criterion and what became of it; ``figure`` None: not measured."""

    asked: str
    figure: str | None = None
    met: bool = False

    @property
    def said(self) -> str:
        return "not measured" if self.figure is None else "met" if self.met else "MISSED"


def criteria(measured: Measured) -> list[Verdict]:
    """What is asked on an H200-class card, whatever was measured."""
    shares = (("covariance", 10_000, 1, 0.6), ("covariance", 100, 2_500, 0.6), ("factor", 1_000_000, 1, 0.5))
    verdicts = [
        _of_row(
            measured.get("saturation", []),
            {"form": form, "arms": arms, "replicates": replicates},
            f"{form} form, {arms} arms, {replicates} replicates: at least {least:.0%} of the speed of a copy",
            {"plain_share": "{:.0%} plain", "captured_share": "{:.0%} captured"},
            least,
        )
        for form, arms, replicates, least in shares
    ]
    for replicates, most in ((25, 3.0), (2_500, 20.0)):
        wanted = {"replicates": replicates, "steps": 30_000}
        asked = f"{replicates} replicates x 30 000 steps x 100 arms, captured: at most {most:g} s"
        rows = measured.get("igp_30000", [])
        verdicts.append(_of_row(rows, wanted, asked, {"wall_seconds": "{:.2f} s"}, most=most))
    verdicts.append(_waits(measured))
    for arms in (10_000, 100_000):
        wanted = {"arms": arms, "observations": 1_000}
        asked = f"at least 300 times plain BoTorch at ({arms} arms, 1 000 observations)"
        figures = {"times_faster": "{:.0f} plain", "times_faster_captured": "{:.0f} captured"}
        verdicts.append(_of_row(measured.get("against_botorch", []), wanted, asked, figures, 300))
    same = "CPU and GPU choose the same arms in every recipe, or part in a near tie"
    captured = "captured steps choose as on the CPU, or part in a near tie"
    return [*verdicts, _same(measured, "", same), _same(measured, "captured_", captured), _tests(measured)]


def _of_row(
    rows: list[dict[str, Any]],
    wanted: dict[str, Any],
    asked: str,
    figures: dict[str, str],
    least: float = 0.0,
    most: float = math.inf,
) -> Verdict:
    """Of the row that has what is wanted: whether the largest of its figures, told by their formats, is in between."""
    row = next((row for row in rows if wanted.items() <= row.items() and figures.keys() <= row.keys()), None)
    if row is None:
        return Verdict(asked)
    said = ", ".join(text.format(row[column]) for column, text in figures.items())
    return Verdict(asked, said, least <= max(row[column] for column in figures) <= most)


def _waits(measured: Measured) -> Verdict:
    rows = [row for page in ("saturation", "thompson") for row in measured.get(page, [])]
    found = [row.get(key) for row in rows for key in ("plain_waits", "captured_waits")]
    waits = [value for value in found if value is not None and value == value]  # NaN: not on a GPU
    figure = None if not waits else f"at most {max(waits):g} a step, over {len(waits)} kinds of step"
    return Verdict("no host wait in a step", figure, bool(waits) and max(waits) == 0)


def _same(measured: Measured, prefix: str, asked: str) -> Verdict:
    rows = [row for row in measured.get("same_choices", []) if f"{prefix}same" in row or "error" in row]
    if not rows:
        return Verdict(asked)
    apart = [row for row in rows if not row.get(f"{prefix}same")]
    parted = [row["recipe"] for row in apart if not row.get(f"{prefix}gap", math.inf) <= _ROUNDING]
    played = measured.get("same_choices", [])
    cut = "" if len(played) >= len(RECIPES) else f" (of {len(RECIPES)}: cut short)"
    others = f"; not {', '.join(parted)}" if parted else ""
    figure = f"{len(rows) - len(parted)} of {len(rows)} recipes{cut}{others}"
    return Verdict(asked, figure, not parted)


def _tests(measured: Measured) -> Verdict:
    rows = measured.get("tests", [])
    asked = "the tests pass on the GPU"
    if not rows:
        return Verdict(asked)
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
        results = {"facts": self.facts, "pages": self.measured, "notes": self.notes}
        results["criteria"] = [(v.asked, self.said(v), v.figure) for v in criteria(self.measured)]
        for name, text in (("results.json", json.dumps(results, indent=1)), ("report.md", self.report())):
            with atomic_write(self.out / name) as file:
                file.write(text.encode()[:_MOST_BYTES])

    def said(self, verdict: Verdict) -> str:
        """A rehearsal meets and misses nothing."""
        rehearsed = self.facts["rehearsal"] and verdict.figure is not None
        return "rehearsed" if rehearsed else verdict.said

    def report(self) -> str:
        verdicts = [(v.asked, self.said(v), v.figure or "") for v in criteria(self.measured)]
        shown = {"facts": self.facts, "notes": self.notes, "measured": self.measured}
        return filled("gpu/report.md.jinja", verdicts=verdicts, **shown)


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
    plan["tests"] = lambda settings: tests(settings, log), _TESTS
    plan["same_choices"] = same_choices, _CHOICES
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

"""Do the tests notice when a formula is changed? ``python -m tests.mutation FILE... --tests TESTS... [--count 20]``.

Changes one operator, constant or comparison of a source file at a time (a sample, by ``--seed``), runs those of the
tests that reach the line until one fails, puts the file back, and lists the changes that no test noticed; ``--csv``
appends all of them to a file. For a copy of the checkout, not one that others read while it runs. The tests run in
forks of a process that has the libraries, not the package, loaded: Linux and macOS alone. tests/MUTATION.md has what
was found.
"""

import argparse
import ast
import copy
import csv
import importlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import CoverageData

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.MatMult: ast.Mult,
}

_LIBRARIES = (
    "botorch.acquisition",
    "botorch.models",
    "botorch.optim",
    "botorch.sampling.pathwise",
    "hypothesis",
    "matplotlib.pyplot",
    "pandas",
    "rich.progress",
    "scipy.stats",
    "click",
)


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Nodes that can be changed, with what is changed; annotations and texts are left alone."""
    unread = {id(child) for node in ast.walk(tree) for part in _annotations(node) for child in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in _SWAPS:
            yield node, "op"
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
            yield node, "ops"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            yield node, "operand"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            yield node, "value"


def _annotations(node: ast.AST) -> list[ast.AST]:
    found = [getattr(node, name, None) for name in ("annotation", "returns")]
    return [part for part in found if isinstance(part, ast.AST)]


def change(node: ast.AST, what: str) -> None:
    """Change a node in place."""
    if what == "op":
        node.op = _SWAPS[type(node.op)]()  # type: ignore[attr-defined]
    elif what == "ops":
        node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[attr-defined]
    elif what == "operand":
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op  # type: ignore[attr-defined]
        if isinstance(node.op, ast.Not | ast.Invert):  # type: ignore[attr-defined]
            node.operand = ast.UnaryOp(node.op, node.operand)  # type: ignore[attr-defined]
    else:
        value = node.value  # type: ignore[attr-defined]
        node.value = (not value) if isinstance(value, bool) else value + 1  # type: ignore[attr-defined]


def mutants(source: str, count: int, seed: int) -> Iterator[tuple[int, str, str, str]]:
    """(line, what stood there, what it became, the whole source) of a sample of the changes there are."""
    tree = ast.parse(source)
    everything = list(places(tree))
    chosen = random.Random(seed).sample(range(len(everything)), min(count, len(everything)))
    for number in sorted(chosen):
        other = copy.deepcopy(tree)
        node, what = list(places(other))[number]
        before = _words(node)
        change(node, what)
        yield node.lineno, before, _words(node), ast.unparse(ast.fix_missing_locations(other))  # type: ignore[attr-defined]


def _words(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


def reached(file: Path, tests: list[str], limit: float) -> dict[int, list[str]]:
    """Which of the tests run each line of a file, by name; empty if one fails although nothing is changed."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COVERAGE_FILE"] = f"{folder}/lines"
        options = [f"--cov={file.parts[0]}", "--cov-context=test", "--cov-report="]
        if noticed([*options, *tests], limit):
            return {}
        data = CoverageData(os.environ["COVERAGE_FILE"])
        data.read()
        lines = data.contexts_by_lineno(str(file.resolve()))
    return {line: sorted({one.partition("|")[0] for one in by} - {""}) for line, by in lines.items()}


def noticed(tests: list[str], limit: float) -> bool:
    """Whether a test fails (or takes too long)."""
    child = os.fork()
    if child == 0:
        _run_tests(tests)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _run_tests(tests: list[str]) -> None:
    """In the fork: its exit status is that of pytest, and it says nothing."""
    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        early = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is loaded before its plugin is
        status = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-W", early, *tests]))
    finally:
        os._exit(status)


def _load_libraries() -> None:
    """What every test imports, once; not the package, which each fork reads as it then is."""
    sys.dont_write_bytecode = True  # a change of the same length within a second would be read from the cache
    for name in _LIBRARIES:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    assert not any(name.startswith("bandits_torch") for name in sys.modules)


def main() -> None:
    """Count the changes that tests notice, and list the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", required=True, help="of all the files")
    parser.add_argument("--count", type=int, default=20, help="changes of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for the tests")
    parser.add_argument("--csv", type=Path, help="append every change and whether it was noticed")
    asked = parser.parse_args()
    _load_libraries()
    for file in asked.files:
        lines = reached(file, asked.tests, asked.limit)
        if not lines:
            parser.error(f"of {' '.join(asked.tests)} some fail, or take too long, before {file} is changed")
        source, rows = file.read_text(encoding="utf-8"), []
        try:
            for line, before, after, text in mutants(source, asked.count, asked.seed):
                file.write_text(text, encoding="utf-8")
                tests = lines.get(line) or asked.tests  # what runs at the import is run by all
                rows.append((str(file), line, before, after, noticed(tests, asked.limit)))
                if asked.csv:  # at once: a run may be cut short
                    with asked.csv.open("a", newline="", encoding="utf-8") as out:
                        csv.writer(out).writerow(rows[-1])
        finally:
            file.write_text(source, encoding="utf-8")
        survivors = [
            f"  {file}:{line}: {before} became {after}" for _, line, before, after, seen in rows if not seen
        ]
        print(
            f"{file}: {len(rows) - len(survivors)} of {len(rows)} changes noticed",
            *survivors,
            sep="\n",
            flush=True,
        )


if __name__ == "__main__":
    main()

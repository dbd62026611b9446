"""Do the tests notice when a formula is changed? ``python -m tests.mutation FILE... --tests TESTS... [--count 20]``.

Changes one operator, constant or comparison of a source file at a time (a sample, by ``--seed``), runs the tests
until one fails, puts the file back, and lists the changes that no test noticed, with the line. For a copy of the
checkout, not one that others read while it runs.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def mutants(source: str, count: int, seed: int) -> Iterator[tuple[int, str, str]]:
    """(line, what the line became, the whole source) of a sample of the changes there are."""
    tree = ast.parse(source)
    everything = list(places(tree))
    chosen = random.Random(seed).sample(range(len(everything)), min(count, len(everything)))
    for number in sorted(chosen):
        other = copy.deepcopy(tree)
        node, what = list(places(other))[number]
        change(node, what)
        yield node.lineno, ast.unparse(node), ast.unparse(ast.fix_missing_locations(other))  # type: ignore[attr-defined]


def noticed(tests: list[str], limit: float) -> bool:
    """Whether a test fails (or takes too long)."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(command, capture_output=True, timeout=limit).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main() -> None:
    """Count the changes that tests notice, and list the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--count", type=int, default=20, help="changes of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for the tests")
    asked = parser.parse_args()
    if noticed(asked.tests, asked.limit):
        parser.error("the tests fail (or take too long) before anything is changed")
    for file in asked.files:
        source, caught, survivors = file.read_text(encoding="utf-8"), 0, []
        try:
            for line, shown, text in mutants(source, asked.count, asked.seed):
                file.write_text(text, encoding="utf-8")
                if noticed(asked.tests, asked.limit):
                    caught += 1
                else:
                    survivors.append(f"  {file}:{line}: became {' '.join(shown.split())[:100]}")
        finally:
            file.write_text(source, encoding="utf-8")
        print(
            f"{file}: {caught} of {caught + len(survivors)} changes noticed", *survivors, sep="\n", flush=True
        )


if __name__ == "__main__":
    main()

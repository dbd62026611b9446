"""Imports point downwards only."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bandits_torch

ROOT = Path(bandits_torch.__file__).parent
# Rooms, lowest first; rooms on one floor do not know of each other, so that a policy never holds the problem.
FLOORS = [
    {"naming", "_version", "threads"},
    {"validation"},
    {"streams"},
    {"state"},
    {"arm_context", "files", "domain", "description"},
    {"state_files"},
    {"kernels"},
    {"models"},
    {"theory"},
    {"acquisition"},
    {"policies", "problems"},
    {"history", "mixed_points"},
    {"checkpoint", "captured"},
    {"loop"},
    {"recipes"},
    {"border", "testing"},
    {"experiments"},
    {"watch", "growth"},
    {"ask_tell"},
    {"policy_files", "off_policy"},
    {"integrations"},
    {"cli"},
    {"__init__", "__main__"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(module):
    """``bandits_torch.models.arms.arm_gp`` lies in room ``models``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def module_of(path):
    parts = [*path.relative_to(ROOT).with_suffix("").parts]
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(["bandits_torch", *parts])


MODULES = {module_of(path) for path in FILES}


@cache
def imports_of(path):
    """Modules of the package that a file imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module)
    return {name for name in found if name.split(".")[0] == "bandits_torch"}


def test_every_room_has_its_floor():
    assert {room_of(module) for module in MODULES} == set(FLOOR_OF)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path):
    own = room_of(module_of(path))
    for module in imports_of(path):
        room = room_of(module)
        assert room == own or FLOOR_OF[room] < FLOOR_OF[own], f"{own} imports {module}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {module_of(path): imports_of(path) - {module_of(path)} for path in FILES}
    assert list(TopologicalSorter(graph).static_order())


def test_an_import_upwards_would_be_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(
        "def f():\n    from bandits_torch import loop\n    from bandits_torch.policies.index import IndexPolicy\n"
    )
    assert imports_of(bad) == {"bandits_torch.loop", "bandits_torch.policies.index"}

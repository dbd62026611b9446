"""The changes that ``python -m tests.mutation`` tries, and the files that it has tests for."""

import ast
from pathlib import Path

import pytest

from tests import mutation
from tests.mutated_rooms import ROOMS

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "bandits_torch"


@pytest.mark.parametrize("room", ROOMS)
def test_files_and_tests_of_a_room_exist(room: str) -> None:
    for file, tests in ROOMS[room].items():
        assert (PACKAGE / file).is_file(), file
        for test in tests.split():
            assert (HERE / test.partition("::")[0]).is_file(), test


def test_every_kernel_is_in_its_room() -> None:
    files = {f"kernels/{path.name}" for path in (PACKAGE / "kernels").glob("*.py") if path.name[0] != "_"}
    assert files == set(ROOMS["kernels"])


def test_each_change_is_one_change_and_the_same_seed_takes_the_same() -> None:
    source = "def f(x: int = 2) -> int:\n    return x + 3 if x < -1 and not x else x ** 2\n"
    tried = list(mutation.mutants(source, 99, 0))
    assert tried == list(mutation.mutants(source, 99, 0))
    assert len({text for *_, text in tried}) == len(tried) == 10
    same = ast.unparse(ast.parse(source))
    assert all(text != same and line in (1, 2) for line, _, _, text in tried)
    assert any("x - 3" in text for *_, text in tried)
    assert len(list(mutation.mutants(source, 4, 1))) == 4

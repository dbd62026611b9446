"""The changes that ``python -m tests.mutation`` tries."""

import ast

from tests import mutation


def test_each_change_is_one_change_and_the_same_seed_takes_the_same() -> None:
    source = "def f(x: int = 2) -> int:\n    return x + 3 if x < -1 and not x else x ** 2\n"
    tried = list(mutation.mutants(source, 99, 0))
    assert tried == list(mutation.mutants(source, 99, 0))
    assert len({text for *_, text in tried}) == len(tried) == 10
    same = ast.unparse(ast.parse(source))
    assert all(text != same and line in (1, 2) for line, _, _, text in tried)
    assert any("x - 3" in text for *_, text in tried)
    assert len(list(mutation.mutants(source, 4, 1))) == 4

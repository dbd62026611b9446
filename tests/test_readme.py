"""The README's own code runs."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_python_blocks_run_in_order_as_one_session_but_for_at_most_60_steps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # they write files
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 3
    assert blocks[0].count("horizon=1000") == 3
    blocks[0] = blocks[0].replace("horizon=1000", "horizon=60")
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["auto", "sw_gp_ucb", "tv_gp_ucb", "et_gp_ucb"]


def test_install_and_try_is_exactly_two_lines() -> None:
    section = README.split("## Two commands")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.S)
    assert len(block.splitlines()) == 2

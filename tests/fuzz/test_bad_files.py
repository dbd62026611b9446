"""Broken tables of rewards are read by a documented policy or refused with a ValueError; nothing else happens."""

import random

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from bandits_torch.problems import Replay, RewardTable, read_table
from tests.fuzz.odd_tables import draw, draw_binary, judge

cells = st.one_of(
    st.floats().map(str),
    st.integers().map(str),
    st.text(max_size=6),
    st.sampled_from(
        ["", "nan", "NA", "1,5", '"', "1;2", "1e400", "\x00", "١", "2004-03-14", "0x1f", "1_000", "∞"]
    ),
)
separators = st.sampled_from([",", ",", ",", ";", "\t"])
many = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def assert_read_or_refused(path, **options):
    try:
        table = read_table(path, **options)
    except ValueError:
        return
    assert isinstance(table, RewardTable)
    assert not torch.isinf(table.rewards).any()
    assert len(set(table.arm_names)) == table.rewards.shape[1]
    assert table.times is None or bool((table.times.diff() > 0).all())


@many
@given(st.lists(st.lists(cells, max_size=5), max_size=6), separators, st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_cells_are_read_or_refused(tmp_path, rows, separator, newline):
    path = tmp_path / "table.csv"
    text = newline.join(separator.join(row) for row in [["time", "a", "b"], *rows])
    path.write_text(text, encoding="utf-8", newline="")
    assert_read_or_refused(path)


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
@many
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path, suffix, content):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(content)
    assert_read_or_refused(path)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_half_a_file_is_refused(tmp_path, suffix):
    whole = tmp_path / f"whole{suffix}"
    if suffix == ".npz":
        np.savez(whole, rewards=np.random.default_rng(0).normal(size=(50, 4)))
    else:
        pytest.importorskip("pyarrow")
        import pandas as pd

        pd.DataFrame(np.random.default_rng(0).normal(size=(50, 4)), columns=list("abcd")).to_parquet(whole)
    content = whole.read_bytes()
    half = tmp_path / f"half{suffix}"
    for size in range(0, len(content) - 1, max(1, len(content) // 25)):
        half.write_bytes(content[:size])
        with pytest.raises(ValueError, match="path must be a readable"):
            read_table(half)


@pytest.mark.parametrize("seed", range(4))
def test_odd_tables_are_read_as_meant_or_refused_by_the_argument_that_decides(tmp_path, seed, full):
    """The tests above ask for a table or a ValueError: a wrong table passes them. Here it is known what was meant."""
    chance = random.Random(seed)
    for _ in range(1250 if full else 75):
        odd = draw(chance) if chance.random() < 0.9 else draw_binary(chance)
        verdict = judge(odd, tmp_path / "table.csv")
        assert not verdict.startswith("wrong"), (odd.how, verdict, odd.content[:300])


def test_a_wrong_table_would_be_seen(tmp_path, monkeypatch):
    """As the reader was: an index is an arm."""
    chance, verdicts = random.Random(0), []
    monkeypatch.setattr("bandits_torch.problems.tables.refuse_counters", lambda *_, **__: None)
    monkeypatch.setattr("bandits_torch.problems.tables.find_time", lambda *_: None)
    for _ in range(50):
        verdicts.append(judge(draw(chance), tmp_path / "table.csv"))
    assert sum(verdict.startswith("wrong") for verdict in verdicts) > 10


def test_rewards_of_any_size_are_replayed():
    table = torch.rand(40, 3).double() * 1e12
    assert torch.isfinite(Replay(table, forgetting_rate=0.1).knowledge.kernel.covariance).all()

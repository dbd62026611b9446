"""Rows in one block or several are one matrix."""

import copy

import pytest
import torch

from bandits_torch.models.sketch import embedding
from bandits_torch.models.sketch.embedding import GrowingRows


@pytest.fixture(params=[0, 10_000, 2**26])
def limit(request, monkeypatch):
    """How many bytes may stand in one piece: no row, some, all."""
    monkeypatch.setattr(embedding, "_ONE_PIECE", request.param)
    return request.param


def test_products_and_columns_are_those_of_one_matrix(limit):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    rows, plain = GrowingRows(draw(0, 50)), draw(0, 50)
    for height in (1, 30, 3, 40, 2, 7):
        more = draw(height, 50)
        rows.append(more)
        plain = torch.cat([plain, more])
        left, index = draw(3, len(plain)), torch.tensor([4, 0, 49])
        assert rows.size == len(plain)
        assert torch.equal(rows.columns(index), plain[:, index])
        torch.testing.assert_close(rows.product(left), left @ plain)
    assert (len(rows._blocks) > 1) == (limit < 2**26)
    other = GrowingRows(draw(0, 50))
    other.load_state_dict(copy.deepcopy(rows.state_dict()))
    for each in (rows, other):
        each.append(plain[:5])
    assert torch.equal(rows.columns(slice(None)), other.columns(slice(None)))
    assert [len(block) for block in rows._blocks] == [len(block) for block in other._blocks]
    for height in (60, 20, 200):
        rows.start(height)
        values = draw(height, 50)
        for columns in (slice(0, 30), slice(30, 60)):
            rows.assign(columns, values[:, columns])
        assert torch.equal(rows.columns(slice(None)), values)

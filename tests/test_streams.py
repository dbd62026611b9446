"""Random streams put aside and taken up again."""

import pytest
import torch

from bandits_torch.streams import ReplicateStreams


def draw(streams, steps):
    """Numbers of several kinds and shapes in turn; blocks of the larger shapes run out on the way."""
    return [
        torch.cat([n.reshape(3, -1) for n in (streams.normal(), streams.uniform(400), streams.normal(5))], -1)
        for _ in range(steps)
    ]


@pytest.mark.parametrize("used", [0, 1, 40, 41, 100])  # 40 rows of 400 numbers are drawn at a time
@pytest.mark.parametrize("before", [0, 57])
def test_streams_taken_up_again_go_on(used, before):
    kept, other = ReplicateStreams(3, 3), ReplicateStreams(4, 3)
    draw(kept, used)
    draw(other, before)
    other.load_state_dict(kept.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(draw(other, 60), draw(kept, 60), strict=True))


def test_uniform_numbers_of_float32_are_below_1():
    exact, short = (
        ReplicateStreams(11, dtype=dtype).uniform(2**14) for dtype in (torch.float64, torch.float32)
    )
    assert exact.float().max() == 1
    assert short.max() == 1 - 2**-24


def test_a_state_is_a_copy_without_the_numbers_drawn_ahead():
    streams = ReplicateStreams(3, 3)
    first = draw(streams, 2)
    state = streams.state_dict()
    draw(streams, 50)
    again = ReplicateStreams(9, 3)
    again.load_state_dict(state)
    assert not any(torch.equal(a, b) for a in first for b in draw(again, 2))
    assert sum(part.numel() for *_, part in state["blocks"]) == 3 * 3 * 5056


def test_a_state_of_another_batch_is_refused_and_changes_nothing():
    streams, untouched = ReplicateStreams(3, 2), ReplicateStreams(3, 2)
    with pytest.raises(ValueError, match=r"state\['generators'\] must be 2 replicates, got 3"):
        streams.load_state_dict(ReplicateStreams(3, 3).state_dict())
    assert torch.equal(streams.normal(), untouched.normal())

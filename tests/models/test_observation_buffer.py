"""ObservationBuffer against one Python list per member."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from bandits_torch.models.arms.observation_buffer import ObservationBuffer

S = 3
masks = st.tuples(*[st.booleans()] * S)
moves = st.lists(
    st.tuples(st.just("append"), st.none() | masks)
    | st.tuples(st.just("drop"), masks)
    | st.tuples(st.just("clear"), st.none() | masks),
    max_size=60,
)


def buffer(capacity=4):
    return ObservationBuffer(S, torch.float64, torch.device("cpu"), capacity)


def append(held, number, mask=None):
    """Observation ``number`` of every member k (arm 10 k + number, reward minus that, time ``number``)."""
    arm = 10 * torch.arange(S) + number
    held.append(arm, -arm.double(), float(number), None if mask is None else torch.tensor(mask))


def lists_of(held):
    """What a buffer holds, as one list of (arm, reward, time) per member."""
    arm, reward, time, valid = held.held()
    return [
        [(int(a), float(r), float(t)) for a, r, t, v in zip(*rows, strict=True) if v]
        for rows in zip(arm, reward, time, valid, strict=True)
    ]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(moves)
def test_it_holds_what_lists_would(sequence):
    held, lists = buffer(), [[] for _ in range(S)]
    for number, (name, mask) in enumerate(sequence):
        told = [k for k in range(S) if mask is None or mask[k]]
        if name == "append":
            append(held, number, mask)
            for k in told:
                lists[k].append((10 * k + number, -(10.0 * k + number), float(number)))
        elif name == "drop":
            holding = torch.tensor([bool(lists[k]) and mask[k] for k in range(S)])
            arm, reward, time, lost = held.pop(torch.tensor([bool(m) for m in mask]))
            assert lost.tolist() == holding.tolist()
            for k in holding.nonzero().flatten().tolist():
                assert (arm[k].item(), reward[k].item(), time[k].item()) == lists[k][0]
            for k in holding.nonzero().flatten().tolist():
                del lists[k][0]
        else:
            held.clear(None if mask is None else torch.tensor(mask))
            for k in told:
                lists[k].clear()
        assert held.count.tolist() == [len(held_by) for held_by in lists]
    assert lists_of(held) == lists


def test_a_window_needs_no_more_room_however_long_it_slides():
    held = buffer()
    for number in range(1000):
        append(held, number)
        if number >= 10:
            held.drop_oldest(torch.ones(S, dtype=torch.bool))
    assert held.arm.shape[-1] <= 32
    assert held.count.tolist() == [10] * S


def test_padding_comes_last_and_is_marked():
    held = buffer()
    for number in range(6):
        append(held, number, (True, number < 2, False))
    *_, valid = held.held()
    assert valid.tolist() == [[True] * 6, [True] * 2 + [False] * 4, [False] * 6]


@pytest.mark.parametrize("length", [0, 3, 50])
def test_state_comes_back_in_a_buffer_of_another_capacity(length):
    held, other = buffer(), buffer(capacity=7)
    for number in range(length):
        append(held, number, (True, number % 2 == 0, True))
    other.load_state_dict(held.state_dict())
    for copy in (held, other):
        append(copy, length)
    assert lists_of(other) == lists_of(held)

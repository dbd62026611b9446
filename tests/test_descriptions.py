"""What a description says of a thing, and when two entries mean the same."""

import math

import pytest
import torch

from bandits_torch.description import alike, description, differences, leaf_of, said_differences

NAN = math.nan
ONE = torch.tensor([1.0, 2.0]).double()
SAME = [
    (1, 1.0),
    (0.1, 0.1 * (1 + 1e-12)),
    (NAN, NAN),
    (True, True),
    ("theory", "theory"),
    (None, None),
    (ONE, ONE * (1 + 1e-12)),
    ("<SlidingWindow>", "<SlidingWindow>"),
    ("<9x2 torch.float64 aa bb>", "<9x2 torch.float64 cc bb>"),  # rounded over a step of one grid
    ("<9x2 torch.float64 aa bb>", "<9x2 torch.float64 aa dd>"),
]
OTHERS = [
    (1, 2),
    (2_024_112_500, 2_024_112_501),
    (0.1, 0.1 * (1 + 1e-6)),
    (NAN, 1.0),
    (1.0, NAN),
    (True, False),
    (True, 1),
    (0, False),
    ("theory", "printed"),
    (None, 0.0),
    (None, "theory"),
    (1, "1"),
    (ONE, ONE + 1),
    (ONE, ONE.float()),
    (ONE, ONE[:1]),
    (ONE[0].item(), ONE[:1]),
    (torch.tensor([1, 2]), torch.tensor([1, 3])),
    ("<SlidingWindow>", "<KeepEverything>"),
    ("<SlidingWindow>", "SlidingWindow"),
    ("<9x2 torch.float64 aa bb>", "<9x2 torch.float64 cc dd>"),
    ("<9x2 torch.float64 aa bb>", "<9x2 torch.float64 bb aa>"),  # each grid by itself
    ("<9x2 torch.float64 aa bb>", "<9x2 torch.float32 aa bb>"),
    ("<9x2 torch.float64 aa bb>", "<8x2 torch.float64 aa bb>"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_means_the_same_is_alike(one, other):
    assert alike(one, other)
    assert alike(other, one)


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_what_does_not_is_not(one, other):
    assert not alike(one, other)
    assert not alike(other, one)


def test_below_a_part_of_another_kind_nothing_is_listed():
    one = {"p": "<A>", "p.x": 1, "p.x.y": 2, "px": 3, "q[0]": 1}
    other = {"p": "<B>", "p.x": 5, "p.z": 2, "px": 4, "q[0]": 1, "r": 0}
    assert differences(one, other) == ["p", "px", "r"]
    assert differences(other, one) == ["p", "px", "r"]


@pytest.mark.parametrize("count", [0, 1, 8, 9, 30])
def test_the_first_differences_are_said_and_the_others_counted(count):
    one, other = {"same": 1}, {"same": 1, **{f"p{k}": k for k in range(count)}}
    said = said_differences(one, other).split("; ")
    assert said[:8] == ([f"p{k} was nothing and is {k}" for k in range(min(count, 8))] or [""])
    assert said[8:] == ([f"and {count - 8} more differences"] if count > 8 else [])


class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def test_a_thing_met_again_is_named_by_the_place_where_it_was():
    part = Thing(x=1)
    assert description(Thing(a=part, b=part), "t") == {
        "t": "<Thing>",
        "t.a": "<Thing>",
        "t.a.x": 1,
        "t.b": "<t.a>",
    }
    round_and_round = Thing()
    round_and_round.me = round_and_round
    assert description(round_and_round, "t") == {"t": "<Thing>", "t.me": "<t>"}
    assert differences(
        description(Thing(a=part, b=part), "t"), description(Thing(a=part, b=Thing(x=1)), "t")
    ) == ["t.b"]


def test_numbers_are_written_down_as_numbers():
    assert type(leaf_of(torch.tensor(2.5))) is float
    assert torch.equal(leaf_of(torch.tensor([2.5])), torch.tensor([2.5]))
    assert torch.equal(leaf_of(torch.tensor([2.5, 3.5])), torch.tensor([2.5, 3.5]))
    assert leaf_of(list(range(100))).shape == (100,)

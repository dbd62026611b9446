"""Pulls and starts as pictures: what is drawn is what happened."""

import numpy as np
import pytest
import torch

from bandits_torch.experiments import plot_pulls, plot_starts
from bandits_torch.history import History


def history(arms):
    S, T = arms.shape
    zeros = torch.zeros(S, T)
    return History(arms, zeros, zeros, zeros, torch.arange(T).double(), torch.zeros(T), meta={"policy": "p"})


def test_depth_is_the_share_of_pulls_of_a_stretch():
    arms = torch.tensor([[0, 0, 1, 1, 2, 2, 2, 0], [0, 1, 1, 1, 2, 2, 2, 2]])
    best = torch.tensor([[0, 0, 0, 1, 2, 2, 1, 1]])
    ax = plot_pulls(history(arms), best, columns=2, names=["a", "b", "c", "never"])
    shares = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(shares, [[3 / 8, 1 / 8], [5 / 8, 0], [0, 7 / 8], [0, 0]])
    (bars,) = ax.collections
    assert [segment[0][1] for segment in bars.get_segments()] == [
        0,
        1,
    ]  # best: 0 three times of four, then 1 and 2 tie
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b", "c", "never"]


def test_of_many_arms_those_that_matter_are_shown_under_their_names():
    arms = torch.tensor([[7] * 5 + [3] * 5])
    best = torch.full((1, 10), 11)
    ax = plot_pulls(
        history(arms), best, names=[f"$\\bad{n}$ and a very long name" for n in range(20)], most=3
    )
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["$\\bad3$ and a ver…", "$\\bad7$ and a ver…", "$\\bad11$ and a ve…"]
    ax.figure.canvas.draw()  # which no name breaks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"best": torch.zeros(1, 3, dtype=torch.long)}, "best must have shape"),
        ({"names": ["a"]}, "names must be"),
        ({"columns": 0}, "columns"),
        ({"most": 0}, "most"),
    ],
)
def test_what_cannot_be_drawn_is_refused(change, message):
    arms = torch.tensor([[0, 1, 2, 0]])
    with pytest.raises(ValueError, match=message):
        plot_pulls(history(arms), **({"best": arms} | change))
    with pytest.raises(ValueError, match="history"):
        plot_pulls(
            history(arms.unsqueeze(-1).double()[..., 0]).__class__(
                torch.zeros(1, 4, 2), *[torch.zeros(1, 4)] * 3, torch.zeros(4), torch.zeros(4)
            ),
            arms,
        )


def test_starts_are_dots_and_their_mean_a_tick_least_first():
    regret = {"late": torch.tensor([3.0, 5.0]), "first": torch.tensor([1.0, 2.0])}
    ax = plot_starts(regret, torch.tensor([8.0, 12.0]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "late"]
    dots, tick = ax.lines[0], ax.lines[1]
    np.testing.assert_allclose(dots.get_xdata(), [10, 20])
    np.testing.assert_allclose(tick.get_xdata(), [15])
    for bad in ({}, {"a": torch.ones(3)}):
        with pytest.raises(ValueError, match="regret"):
            plot_starts(bad, torch.ones(2))

"""plot_priors: shares of plays as they were, survivors as a line."""

import numpy as np
import pytest
import torch

from bandits_torch.experiments.plots import plot_priors
from bandits_torch.history import History


def history(prior, surviving=None):
    zeros = torch.zeros(prior.shape, dtype=torch.float64)
    trace = {"prior": prior.double()} | ({} if surviving is None else {"surviving": surviving.double()})
    return History(zeros.long(), zeros, zeros, zeros, zeros[0], zeros[0], trace, {})


PRIOR = torch.tensor([[0, 0, 2, 2], [0, 1, 1, 2]])


def test_colours_are_the_shares_of_replicates_by_step_and_bars_those_of_all_plays() -> None:
    figure = plot_priors({"one": history(PRIOR)}, ["a", "b", "c"])
    left, right = figure.axes[:2]
    shares = np.array([[1, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 1]])
    np.testing.assert_allclose(left.images[0].get_array(), shares)
    assert [bar.get_width() for bar in right.patches] == [3 / 8, 2 / 8, 3 / 8]
    assert [label.get_text() for label in left.get_yticklabels()] == ["0  a", "1  b", "2  c"]
    assert len(figure.axes) == 2  # no axis for survivors where none are traced


def test_the_line_is_the_mean_number_of_survivors() -> None:
    surviving = torch.tensor([[3, 3, 2, 1], [3, 2, 2, 2]])
    figure = plot_priors({"one": history(PRIOR, surviving), "none": history(PRIOR)})
    twin = figure.axes[-1]
    np.testing.assert_allclose(twin.lines[0].get_ydata(), [3, 2.5, 2, 1.5])
    np.testing.assert_allclose(twin.lines[0].get_xdata(), [1, 2, 3, 4])


def test_histories_without_priors_are_left_out_and_none_left_is_an_error() -> None:
    zeros = torch.zeros(1, 3, dtype=torch.float64)
    bare = History(zeros.long(), zeros, zeros, zeros, zeros[0], zeros[0], {}, {})
    assert [ax.get_title("left") for ax in plot_priors({"bare": bare, "one": history(PRIOR)}).axes[:1]] == [
        "one"
    ]
    with pytest.raises(ValueError, match="histories must be at least one with 'prior' in its trace"):
        plot_priors({"bare": bare})
    with pytest.raises(ValueError, match="names must be names of 3 or more priors"):
        plot_priors({"one": history(PRIOR)}, ["a", "b"])

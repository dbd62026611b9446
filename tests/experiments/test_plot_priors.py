"""plot_priors: shares of plays as they were, survivors as a line; plot_surviving_priors: who is left, by prior."""

import numpy as np
import pytest
import torch

from bandits_torch.experiments.plots import plot_priors, plot_surviving_priors
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


def test_columns_of_a_long_run_average_as_many_steps_each() -> None:
    prior = torch.arange(1003).ge(600).long().expand(3, 1003)
    left = plot_priors({"one": history(prior)}).axes[0]
    image = left.images[0].get_array()
    assert image.shape == (2, 335)  # three steps each
    np.testing.assert_allclose(image[1], [0] * 200 + [1] * 135)
    assert left.get_xlim() == (0.5, 1003.5)


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


def eliminations(dropped) -> History:
    dropped = torch.tensor(dropped)
    zeros = torch.zeros(dropped.shape, dtype=torch.float64)
    trace = {"dropped": dropped.double(), "surviving": 3.0 - (dropped >= 0).cumsum(-1)}
    return History(zeros.long(), zeros, zeros, zeros, zeros[0], zeros[0], trace, {"policy": "one"})


def test_priors_survive_until_the_step_that_drops_them() -> None:
    ax = plot_surviving_priors(eliminations([[0, -1, 2, -1], [-1, -1, 2, -1]]), names=["a", "b", "c"])
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.5] * 4, [1] * 4, [1, 1, 0, 0]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0  a", "1  b", "2  c"]
    assert ax.get_title("left") == "priors that one has not dropped"


def test_surviving_priors_need_their_trace_and_as_many_names() -> None:
    with pytest.raises(ValueError, match=r"history\.trace must be one with 'dropped' and 'surviving', got"):
        plot_surviving_priors(history(PRIOR))
    with pytest.raises(ValueError, match="names must be None or 3 names, one for each prior"):
        plot_surviving_priors(eliminations([[0, -1]]), names=["a", "b"])

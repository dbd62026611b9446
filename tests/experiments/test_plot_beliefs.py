"""Beliefs, priors and detections as pictures: what is drawn is what the trace holds."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from bandits_torch import make, recipes, run
from bandits_torch.experiments import (
    mark_detections,
    plot_beliefs,
    plot_detections,
    plot_priors,
    plot_regret,
    plot_surviving_priors,
)
from bandits_torch.experiments.plots.runs import BELIEFS
from tests.experiments.made_up import history

T = 40


def believing(replicates=3, name="auto"):
    problem = make("gp", num_arms=6)
    played = run(recipes.build(name, problem, horizon=T, replicates=replicates), problem, T)
    played.meta["policy"] = name
    return played


def test_lines_are_medians_and_bands_reach_from_least_to_largest():
    played = believing()
    figure = plot_beliefs(played, switches=[20])
    assert len(figure.axes) == 4
    drawn = {"effective_rate": 0, "effective_members": 1, "noise_scale": 2, "resets": 3}
    for belief, i in drawn.items():
        lines = [line for line in figure.axes[i].lines if len(line.get_xdata()) == T]
        expected = played.trace[belief].double()
        np.testing.assert_allclose(lines[0].get_ydata(), expected.median(0).values)
        band = figure.axes[i].collections[0].get_paths()[0].vertices[:, 1]
        assert band.min() == pytest.approx(float(expected.min()))
        assert band.max() == pytest.approx(float(expected.max()))
        assert [line for line in figure.axes[i].lines if list(line.get_xdata()) == [20, 20]]


def test_policies_without_beliefs_are_left_out_and_one_replicate_has_no_band():
    one = believing(1)
    given = Figure(figsize=(4, 6))
    figure = plot_beliefs({"ucb": believing(1, "gp_ucb"), "auto": one}, given)
    assert not figure.axes[0].collections
    assert figure is given
    assert len(given.axes) == 4


def test_no_noise_and_traces_of_one_row_are_drawn():
    """Rewards that never varied have no noise; the axis needs a height all the same."""
    played = believing(1)
    trace = {belief: torch.zeros(T) for belief in BELIEFS}
    plot_beliefs(history(played.arms, trace=trace)).canvas.draw()


def test_long_runs_are_thinned():
    played = believing(2)
    wide = {belief: played.trace[belief].repeat(1, 500) for belief in BELIEFS}
    long = history(played.arms.repeat(1, 500), trace=wide)
    steps = plot_beliefs(long).axes[0].lines[0].get_xdata()
    assert len(steps) <= 1000
    assert (steps[0], steps[-1]) == (1, 500 * T)


def with_priors(prior, surviving=None):
    trace = {"prior": prior.double()} | ({} if surviving is None else {"surviving": surviving.double()})
    return history(torch.zeros_like(prior), trace=trace)


PRIOR = torch.tensor([[0, 0, 2, 2], [0, 1, 1, 2]])


def test_colours_are_the_shares_of_replicates_by_step_and_bars_those_of_all_plays() -> None:
    figure = plot_priors({"one": with_priors(PRIOR)}, ["a", "b", "c"])
    left, right = figure.axes[:2]
    shares = np.array([[1, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 1]])
    np.testing.assert_allclose(left.images[0].get_array(), shares)
    assert [bar.get_width() for bar in right.patches] == [3 / 8, 2 / 8, 3 / 8]
    assert [label.get_text() for label in left.get_yticklabels()] == ["0  a", "1  b", "2  c"]
    assert len(figure.axes) == 2  # no axis for survivors where none are traced


def test_the_line_is_the_mean_number_of_survivors() -> None:
    surviving = torch.tensor([[3, 3, 2, 1], [3, 2, 2, 2]])
    figure = plot_priors({"one": with_priors(PRIOR, surviving), "none": with_priors(PRIOR)})
    twin = figure.axes[-1]
    np.testing.assert_allclose(twin.lines[0].get_ydata(), [3, 2.5, 2, 1.5])
    np.testing.assert_allclose(twin.lines[0].get_xdata(), [1, 2, 3, 4])


def test_columns_of_a_long_run_average_as_many_steps_each() -> None:
    prior = torch.arange(1003).ge(600).long().expand(3, 1003)
    left = plot_priors({"one": with_priors(prior)}).axes[0]
    image = left.images[0].get_array()
    assert image.shape == (2, 335)  # three steps each
    np.testing.assert_allclose(image[1], [0] * 200 + [1] * 135)
    assert left.get_xlim() == (0.5, 1003.5)


def test_histories_without_priors_are_left_out() -> None:
    shown = {"bare": history([[0, 0, 0]]), "one": with_priors(PRIOR)}
    assert plot_priors(shown).axes[0].get_title("left") == "one"


def eliminations(dropped):
    dropped = torch.tensor(dropped)
    trace = {"dropped": dropped.double(), "surviving": 3.0 - (dropped >= 0).cumsum(-1)}
    return history(torch.zeros_like(dropped), trace=trace, policy="one")


def test_priors_survive_until_the_step_that_drops_them() -> None:
    ax = plot_surviving_priors(eliminations([[0, -1, 2, -1], [-1, -1, 2, -1]]), names=["a", "b", "c"])
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.5] * 4, [1] * 4, [1, 1, 0, 0]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0  a", "1  b", "2  c"]
    assert ax.get_title("left") == "priors that one has not dropped"


def detecting(**trace):
    return history(torch.zeros(2, 6).long(), trace=trace)


DETECTED = torch.tensor([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 1, 0]], dtype=torch.float64)


def test_ticks_stand_at_the_steps_that_detected_in_their_replicates_row() -> None:
    ax = plot_detections({"plain": detecting(), "one": detecting(detected=DETECTED)}, switches=[3])
    switch, ticks = ax.lines
    assert list(switch.get_xdata()) == [3, 3]
    np.testing.assert_allclose(ticks.get_xydata(), [[3, -0.2], [2, 0.2], [5, 0.2]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["one\n1.5 a run"]  # "plain" tells nothing


def test_restarts_serve_where_nothing_is_said_of_detections() -> None:
    restarts = torch.tensor([[0, 0, 1, 1, 1, 2], [1, 1, 1, 1, 1, 1]], dtype=torch.float64)
    ticks = plot_detections(
        {"none": detecting(detected=0 * DETECTED), "one": detecting(restarts=restarts)}
    ).lines[1]
    np.testing.assert_allclose(ticks.get_xydata(), [[3, 0.8], [6, 0.8], [1, 1.2]])


def test_one_trace_for_all_replicates_is_drawn_in_every_row() -> None:
    ticks = plot_detections(detecting(restarts=torch.tensor([0.0, 0, 0, 1, 1, 1]))).lines[0]
    np.testing.assert_allclose(ticks.get_xydata(), [[4, -0.2], [4, 0.2]])


def test_one_prior_for_all_replicates_is_drawn_as_if_each_had_said_it() -> None:
    prior, dropped = torch.tensor([0.0, 1, 1, 0]), torch.tensor([-1.0, -1, 0, -1])
    one = {"prior": prior, "dropped": dropped, "surviving": torch.tensor([2.0, 2, 1, 1])}
    each = {name: value.expand(3, 4) for name, value in one.items()}
    for draw in (lambda h: plot_priors({"p": h}).axes[0], plot_surviving_priors):
        images = [draw(history(torch.zeros(3, 4).long(), trace=trace)).images[0] for trace in (one, each)]
        np.testing.assert_array_equal(images[0].get_array(), images[1].get_array())


def test_detections_of_policies_over_points_are_drawn() -> None:
    played = history(torch.zeros(2, 6, 3), best=torch.ones(2, 6), trace={"detected": DETECTED})
    assert len(plot_detections(played).lines[0].get_xdata()) == int(DETECTED.sum())
    mark_detections(plot_regret(played), played)


def test_dots_lie_on_the_mean_curve_at_the_steps_that_detected() -> None:
    detected = torch.zeros(2, 6, dtype=torch.float64)
    detected[0, 2], detected[1, 4] = 1, 1
    arms, best = torch.zeros(2, 6).long(), torch.ones(2, 6)
    traces = {"plain": {}, "adaptive": {"detected": detected}}
    histories = {name: history(arms, best=best, trace=trace) for name, trace in traces.items()}
    axes = plot_regret(histories)
    before = len(axes.lines)
    mark_detections(axes, histories, switches=[3])
    switch, dots = axes.lines[before:]
    assert list(switch.get_xdata()) == [3, 3]
    assert dots.get_xdata().tolist() == [3, 5]
    assert dots.get_ydata().tolist() == [3.0, 5.0]
    assert dots.get_color() == axes.lines[1].get_color()

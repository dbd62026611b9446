"""plot_beliefs: the median of the replicates and their middle, of what the trace says."""

import numpy as np
import pytest
import torch

from bandits_torch import recipes
from bandits_torch.experiments.plots import plot_beliefs
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.problems import make

NAMES = ("effective_rate", "noise_scale", "effective_members", "resets")


def history(**trace):
    zeros = torch.zeros(3, 40, dtype=torch.float64)
    return History(zeros.long(), zeros, zeros, zeros, zeros[0], zeros[0], trace, {})


def test_lines_are_medians_bands_the_middle_and_rates_are_logarithmic():
    values = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)).double()
    trace = dict.fromkeys(NAMES, values) | {"resets": (values > 0.5).double().cumsum(-1)}
    figure = plot_beliefs(history(**trace), switches=[7, 20])
    assert len(figure.axes) == 4
    for ax in figure.axes[:3]:
        np.testing.assert_allclose(ax.lines[0].get_ydata(), values.median(0).values.clamp_min(1e-4))
        low, high = ax.collections[0].get_datalim(ax.transData).intervaly
        assert low == pytest.approx(float(values.quantile(0.1, 0).clamp_min(1e-4).min()))
        assert high == pytest.approx(float(values.quantile(0.9, 0).max()))
        assert [line.get_xdata()[0] for line in ax.lines[1:]] == [7, 20]
    assert figure.axes[0].get_yscale() == "log"
    resets = figure.axes[3].lines[0].get_ydata()
    ten = (values > 0.5).double().cumsum(-1)
    np.testing.assert_allclose(resets[20], float(((ten[:, 20] - ten[:, 10]) / 10).median()))
    np.testing.assert_allclose(resets[4], float((ten[:, 4] / 10).median()))


def test_a_run_of_auto_can_be_drawn_and_another_is_refused():
    problem = make("switching", horizon=30, num_arms=8, replicates=2)
    played = run(recipes.auto(problem.arms, replicates=2), problem, 30)
    figure = plot_beliefs(played)
    assert "what ModelAveraging believed" in figure.axes[0].get_title(loc="left")
    with pytest.raises(ValueError, match=r"history\.trace"):
        plot_beliefs(history(width=torch.ones(3, 40)))

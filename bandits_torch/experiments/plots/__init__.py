"""Plots of runs. Most functions take a ``History``, or several by name, and return matplotlib axes.

They draw on the axes ``ax``, or else in a new figure (``axes.figure``) that pyplot does not manage: show it as the last
expression of a notebook cell, or save it with ``axes.figure.savefig(path)``.
"""

from bandits_torch.experiments.plots.runs import (
    mark_detections,
    plot_arms,
    plot_beliefs,
    plot_detections,
    plot_posterior,
    plot_priors,
    plot_pulls,
    plot_regret,
    plot_starts,
    plot_surviving_priors,
)
from bandits_torch.experiments.plots.style import COLOURS

__all__ = [
    "COLOURS",
    "mark_detections",
    "plot_arms",
    "plot_beliefs",
    "plot_detections",
    "plot_posterior",
    "plot_priors",
    "plot_pulls",
    "plot_regret",
    "plot_starts",
    "plot_surviving_priors",
]

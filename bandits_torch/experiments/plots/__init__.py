"""Plots of runs. Each function takes a ``History`` (or several, by name) and returns matplotlib axes.

With ``ax=`` they draw there, without it in a new figure (``axes.figure``) that pyplot does not manage: show it as the
last expression of a notebook cell, or save it with ``axes.figure.savefig(path)``.
"""

from bandits_torch.experiments.plots.arms import plot_arms
from bandits_torch.experiments.plots.beliefs import plot_beliefs
from bandits_torch.experiments.plots.detections import mark_detections, plot_detections
from bandits_torch.experiments.plots.posterior import plot_posterior
from bandits_torch.experiments.plots.priors import plot_priors, plot_surviving_priors
from bandits_torch.experiments.plots.regret import plot_regret
from bandits_torch.experiments.plots.style import COLOURS

__all__ = [
    "COLOURS",
    "mark_detections",
    "plot_arms",
    "plot_beliefs",
    "plot_detections",
    "plot_posterior",
    "plot_priors",
    "plot_regret",
    "plot_surviving_priors",
]

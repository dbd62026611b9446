"""Races, their regret, reports and pictures.

Most plots take a ``History``, or several by name, and return matplotlib axes. They draw on the axes ``ax``, or else in
a new figure (``axes.figure``) that pyplot does not manage: show it as the last expression of a notebook cell, or save
it with ``axes.figure.savefig(path)``.
"""

from bandits_torch.experiments.comparison import Advice, advise
from bandits_torch.experiments.earned import best_arms, per_step, random_regret, summary
from bandits_torch.experiments.engines import Block, ProblemSetting, RecipeSetting
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
from bandits_torch.experiments.report import write_report
from bandits_torch.experiments.sweep import Starts, SweepFailed, play_starts, race, sweep

__all__ = [
    "COLOURS",
    "Advice",
    "Block",
    "ProblemSetting",
    "RecipeSetting",
    "Starts",
    "SweepFailed",
    "advise",
    "best_arms",
    "mark_detections",
    "per_step",
    "play_starts",
    "plot_arms",
    "plot_beliefs",
    "plot_detections",
    "plot_posterior",
    "plot_priors",
    "plot_pulls",
    "plot_regret",
    "plot_starts",
    "plot_surviving_priors",
    "race",
    "random_regret",
    "summary",
    "sweep",
    "write_report",
]

"""Races, their regret, reports and pictures."""

from bandits_torch.experiments.cells import Block, ProblemSetting, RecipeSetting
from bandits_torch.experiments.plots import (
    COLOURS,
    mark_detections,
    plot_arms,
    plot_beliefs,
    plot_detections,
    plot_posterior,
    plot_priors,
    plot_regret,
    plot_surviving_priors,
)
from bandits_torch.experiments.regret import best_arms, per_step, random_regret, summary
from bandits_torch.experiments.report import write_report
from bandits_torch.experiments.sweep import SweepFailed, race, sweep

__all__ = [
    "COLOURS",
    "Block",
    "ProblemSetting",
    "RecipeSetting",
    "SweepFailed",
    "best_arms",
    "mark_detections",
    "per_step",
    "plot_arms",
    "plot_beliefs",
    "plot_detections",
    "plot_posterior",
    "plot_priors",
    "plot_regret",
    "plot_surviving_priors",
    "race",
    "random_regret",
    "summary",
    "sweep",
    "write_report",
]

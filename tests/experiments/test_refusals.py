"""What cannot be drawn or summed up is refused by the name of the argument."""

import pytest
import torch

from bandits_torch import make, recipes
from bandits_torch.experiments import best_arms, per_step, plot_arms, plot_posterior, plot_pulls, plot_regret
from bandits_torch.experiments.report import write_report
from bandits_torch.experiments.sweep import Starts
from tests.experiments.made_up import history

PLAYED = history([[0, 1, 2, 0], [1, 1, 2, 2]])
GP_UCB = recipes.build("gp_ucb", make("switching", num_arms=3), replicates=2, horizon=4)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: plot_arms(PLAYED, replicate=True), "replicate must be an integer in 0, ..., 1, got True"),
        (lambda: plot_pulls(PLAYED, torch.zeros(2, 4)), "best must be integers, got torch.float32"),
        (lambda: plot_regret([PLAYED]), "histories must be a History, or a mapping"),
        (lambda: plot_regret(PLAYED, random=torch.ones(4)), r"random must have shape \(R, 4\), as long"),
        (lambda: plot_regret(PLAYED, random=[1.0] * 4), "random must be a tensor"),
        (
            lambda: plot_regret(PLAYED, random=torch.ones(1, 3)),
            r"random must have shape \(R, 4\), as long as",
        ),
        (
            lambda: write_report("nowhere", {"a": PLAYED}, torch.ones(1, 4), {"noise": float("nan")}),
            "settings must be plain values, without NaN and infinity, got",
        ),
        (
            lambda: Starts({}, torch.ones(2), 3).of_whole(torch.ones(1, 5)),
            r"regret must have shape \(S, T\) with T >= 6",
        ),
        (
            lambda: plot_posterior(PLAYED, recipes.auto(3), 2),
            "policy must be an IndexPolicy or an OnlineModel",
        ),
        (lambda: plot_posterior(PLAYED, GP_UCB, [1.5]), "steps must be ascending integers in 1, ..., 4, got"),
        (lambda: plot_posterior(PLAYED, GP_UCB, True), "steps must be ascending integers in 1, ..., 4, got"),
        (lambda: best_arms(make("dynamic-ackley", horizon=3), 3), "problem must be one over arms, got"),
        (lambda: per_step({}), "histories must be of one policy or more"),
    ],
)
def test_bad_arguments_are_named(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()

"""What cannot be drawn, played or summed up is refused by the name of the argument."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, make, recipes
from bandits_torch.experiments import (
    advise,
    best_arms,
    per_step,
    plot_arms,
    plot_beliefs,
    plot_detections,
    plot_posterior,
    plot_priors,
    plot_pulls,
    plot_regret,
    plot_starts,
    plot_surviving_priors,
    race,
    random_regret,
    summary,
    sweep,
)
from bandits_torch.experiments.report import write_report
from bandits_torch.experiments.sweep import FromStep, Starts
from tests.experiments.made_up import history

ARMS = torch.tensor([[0, 1, 2, 0], [1, 1, 2, 2]])
PLAYED, POINTS, PLAIN = history(ARMS), history(torch.zeros(1, 4, 2)), history([[0, 0, 0]])
PRIORS = history([[0, 0, 0]], trace={"prior": torch.tensor([[0.0, 1, 2]])})
DROPPED = history(
    [[0, 0]], trace={"dropped": torch.tensor([[0.0, -1]]), "surviving": torch.full((1, 2), 2.0)}
)
PROBLEM, OVER_POINTS = make("switching", num_arms=3, horizon=200), make("dynamic-ackley", horizon=120)
GP_UCB = recipes.build("gp_ucb", PROBLEM, replicates=2, horizon=4)
OF_POINTS = recipes.build("igp_ucb", OVER_POINTS, replicates=1, horizon=4)
STEPS = "steps must be ascending integers in 1, ..., 4"
WRONG = 0, 5, [], [4, 3], [3, 3], [1.5], True
REFUSED = [
    (lambda: plot_arms(PLAYED, replicate=True), "replicate must be an integer in 0, ..., 1, got True"),
    (lambda: plot_arms(PLAYED, replicate=2), "replicate must be an integer in 0, ..., 1, got 2"),
    (lambda: plot_arms(PLAYED, best=ARMS[[0, 0, 0]]), r"best must have shape \(4,\), \(1, 4\) or \(2, 4\)"),
    (lambda: plot_arms(PLAYED, positions=torch.zeros(2)), r"positions must have shape \(N,\), with N at"),
    (lambda: plot_arms(PLAYED, best=[0.0] * 4), "best must be a tensor"),
    (lambda: plot_arms(PLAYED, positions=[0.0] * 4), "positions must be a tensor, got"),
    (
        lambda: ArmGP(np.zeros((30, 2)), RBFKernel(), 0.1),
        r"arms must be a tensor \(torch\.tensor\(numpy\.asarray\(arms\)\) makes one\), got an array of shape \(30, 2\)",
    ),
    (lambda: plot_arms(POINTS, coordinate=2), "coordinate must be an integer in 0, ..., 1, got 2"),
    (lambda: plot_arms(POINTS, best=ARMS), "best must be None if points were played"),
    (lambda: plot_pulls(PLAYED, torch.zeros(2, 4)), "best must be integers, got torch.float32"),
    (lambda: plot_pulls(PLAYED, ARMS[:, :3]), "best must have shape"),
    (lambda: plot_pulls(PLAYED, ARMS, names=["a"]), "names must be"),
    (lambda: plot_pulls(PLAYED, ARMS, columns=0), "columns"),
    (lambda: plot_pulls(PLAYED, ARMS, most=0), "most"),
    (lambda: plot_pulls(POINTS, ARMS), "history"),
    (lambda: plot_regret([PLAYED]), "histories must be a History, or a mapping"),
    (lambda: plot_regret({}), "at least one history"),
    (lambda: plot_regret(PLAYED, random=torch.ones(4)), r"random must have shape \(R, 4\), as long"),
    (lambda: plot_regret(PLAYED, random=[1.0] * 4), "random must be a tensor"),
    (lambda: plot_regret(PLAYED, random=torch.ones(1, 3)), r"random must have shape \(R, 4\), as long as"),
    (lambda: plot_starts({}, torch.ones(2)), "regret"),
    (lambda: plot_starts({"a": torch.ones(3)}, torch.ones(2)), "regret"),
    (lambda: plot_starts({"a": [1.0, 2.0]}, torch.ones(2)), "regret"),
    (lambda: plot_beliefs({"plain": PLAIN}), "effective_rate"),
    (lambda: plot_priors({"plain": PLAIN}), "histories must be at least one with 'prior' in its trace"),
    (lambda: plot_priors({"one": PRIORS}, ["a", "b"]), "names must be names of 3 or more priors"),
    (lambda: plot_surviving_priors(PRIORS), r"history\.trace must be with 'dropped', 'surviving', got"),
    (lambda: plot_surviving_priors(DROPPED, names=["a"]), "names must be None or 3 names, one for"),
    (lambda: plot_detections({"plain": PLAIN}), "at least one with 'detected' or 'restarts'"),
    (lambda: plot_posterior(PLAYED, recipes.auto(3), 2), "policy must be an IndexPolicy or an OnlineModel"),
    *((lambda at=at: plot_posterior(PLAYED, GP_UCB, at), STEPS) for at in WRONG),
    (lambda: plot_posterior(PLAYED, GP_UCB, 3, truth=torch.zeros(2)), r"truth must have shape \(3,\) or"),
    (lambda: plot_posterior(history([[0, 1]] * 3), GP_UCB, 1), "policy.replicates must be 1 or the"),
    (lambda: plot_posterior(PLAYED, GP_UCB, 3, arms=torch.ones(3, 1)), "arms must be None with a policy"),
    (lambda: plot_posterior(POINTS, OF_POINTS, 3), "history must be of arms, or of points of one"),
    (lambda: plot_posterior(POINTS, OF_POINTS, 3, arms=torch.rand(5, 3).double()), "history must be"),
    (lambda: best_arms(OVER_POINTS, 3), "problem must be one over arms, got"),
    (lambda: per_step({}), "histories must be a mapping of names to one history or more, got {}"),
    (lambda: summary([PLAYED]), "histories must be a mapping of names to histories"),
    (lambda: random_regret(PROBLEM, 0), "horizon must be an integer >= 1"),
    (lambda: race({}, PROBLEM, 3), "policies must be a mapping of names to one policy or more, got {}"),
    (lambda: race([GP_UCB], PROBLEM, 3), "policies must be a mapping of names to one policy or more"),
    (lambda: sweep(["gp"], {}, 3), "problems must be a mapping of names to one setting or function or more"),
    (lambda: sweep({"a": "gp"}, {}, 3), r"problems\['a'\] must be a setting or a function, got 'gp'"),
    (
        lambda: advise(torch.ones(5), torch.ones(5)),
        "regret must be a mapping of names to one policy's regret",
    ),
    (lambda: FromStep(OVER_POINTS, 1, 60), "problem must be one over arms, got 'DynamicAckley'"),
    *(
        (lambda at=at: FromStep(PROBLEM, *at), "first|horizon")
        for at in ((0, 5), (1, 0), (190, 20), (1.5, 2))
    ),
    (lambda: Starts({}, torch.ones(2), 3).of_whole(torch.ones(1, 5)), r"regret must have shape \(S, T\)"),
    (lambda: write_report("nowhere", {"a": PLAYED}, ARMS, {"x": float("nan")}), "settings must be"),
    (lambda: advise({}, torch.ones(5)), "regret must be"),
    (lambda: advise({"a": torch.ones(4)}, torch.ones(5)), "regret of a must have shape"),
    (lambda: advise({"a": torch.full((5,), torch.nan)}, torch.ones(5)), "regret of a"),
    (lambda: advise({"a": torch.ones(0)}, torch.ones(0)), "regret of a must have shape"),
    (lambda: advise({"a": torch.ones(5)}, 1.0), "regret of random must be a tensor"),
    (lambda: advise({"a": [1.0] * 5}, torch.ones(5)), "regret of a must be a tensor"),
]


@pytest.mark.parametrize(("attempt", "message"), REFUSED)
def test_bad_arguments_are_named(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()

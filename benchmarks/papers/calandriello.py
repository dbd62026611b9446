"""Calandriello et al. (2019): Figure 2, regret beside the exact sampler, times, and the growth of the dictionary.

    python -m benchmarks.papers calandriello [starvation] [regret] [times] [growth] [accuracy] [adaptive]

Each part prints its table; ``starvation`` also writes calandriello_figure_2.png into the current folder.
"""

from __future__ import annotations

import matplotlib as mpl
import torch

from bandits_torch import loop, recipes
from bandits_torch.models import LeverageSampling, SketchedGP
from bandits_torch.problems import GPDraws
from bandits_torch.problems.many_arms import GridDraws
from bandits_torch.problems.simulated import make_kernel
from bandits_torch.theory import BKBWidth, RealisedInformationWidth
from benchmarks.papers._starving import random_fourier_features, subset_of_regressors

mpl.use("Agg")
LAMBDA, NOISE, DELTA = 0.01, 0.1, 0.1


def starvation() -> None:
    """Figure 2: squared exponential kernel on [0, 1], t = 6, 63, 215 points in [0, 0.5]; mean +- 3 sigma."""
    import matplotlib.pyplot as plt

    problem = GPDraws(num_arms=1000, layout="grid", lengthscale=0.1, noise_scale=NOISE, seed=1)
    generator = torch.Generator().manual_seed(0)
    order = torch.randint(500, (215,), generator=generator)
    noise = NOISE * torch.randn(215, generator=generator, dtype=torch.float64)
    rewards = problem.functions[0, order] + noise
    kernel = problem.knowledge.kernel
    figure, axes = plt.subplots(3, 3, figsize=(12, 8), sharex=True, sharey=True)
    print("smallest sigma on [0.8, 1] (the prior's is 1), share of arms within 3 sigma; m points or features")
    for column, t in enumerate((6, 63, 215)):
        model = SketchedGP(problem.arms, kernel, LAMBDA, sampling=LeverageSampling.practical(5.0, 1.0))
        model.observe(order[:t, None].double(), rewards[:t, None])
        dictionary = model.sketches[0].arm[model.sketches[0].dictionary]
        m = max(2, len(dictionary))
        found = {
            "BKB": model.marginals(),
            "subset of regressors": subset_of_regressors(
                kernel, problem.arms, order[:t], rewards[:t], dictionary, LAMBDA
            ),
            "random Fourier features": random_fourier_features(
                problem.arms, order[:t], rewards[:t], 0.1, m + m % 2, LAMBDA
            ),
        }
        for row, (name, (mean, variance)) in enumerate(found.items()):
            deviation = variance.clamp_min(0).sqrt()
            inside = ((problem.functions[0] - mean).abs() <= 3 * deviation).double().mean()
            far = float(deviation[800:].min())
            print(f"t {t:3d}  m {m:3d}  {name:24s} sigma {far:.3f}  within {100 * float(inside):5.1f} %")
            x, axis = problem.arms[:, 0], axes[row, column]
            axis.plot(x, problem.functions[0], "k", lw=1)
            axis.fill_between(x, mean - 3 * deviation, mean + 3 * deviation, alpha=0.3)
            axis.plot(x, mean)
            axis.set_title(f"{name}, t = {t}", fontsize=9)
            axis.set_ylim(-4, 4)
    figure.tight_layout()
    figure.savefig("calandriello_figure_2.png", dpi=100)


def regret(num_arms: int = 1000, horizon: int = 1000, replicates: int = 5) -> None:
    """Regret of sketched samplers beside the exact one, with BKB's width and the realised-information width."""
    problem = GPDraws(
        num_arms=num_arms, dim=2, lengthscale=0.2, noise_scale=NOISE, seed=0, replicates=replicates
    )
    scale = problem.functions.abs().amax(-1, keepdim=True)
    problem.functions = problem.functions / scale  # as in the published runs, |f| <= 1
    arguments = (problem.arms, problem.knowledge.kernel, LAMBDA)
    widths = {
        "BKB": BKBWidth(1.0, NOISE, DELTA),
        "BKB printed": BKBWidth(1.0, NOISE, DELTA, form="printed"),
        "realised": RealisedInformationWidth(1.0, NOISE, DELTA),
    }
    samplers = {
        "exact": {"oversampling": 1e12, "growth": 1.0},
        "qbar 1": {"oversampling": 1.0, "growth": 1.0},
        "qbar 5": {"oversampling": 5.0, "growth": 1.0},
        "qbar 5, C 2": {"oversampling": 5.0, "growth": 2.0},
        "batch, C 5": {"oversampling": 5.0, "growth": 5.0},
    }
    print(
        f"A = {num_arms}, d = 2, RBF 0.2, T = {horizon}, lambda = {LAMBDA}, {replicates} functions: mean regret, sd; m"
    )
    for name, width in widths.items():
        for sampler, options in samplers.items():
            build = recipes.bbkb if sampler.startswith("batch") else recipes.bkb
            policy = build(*arguments, width=width, replicates=replicates, **options)
            history = loop.run(policy, problem, horizon)
            total = (
                problem.functions.amax(-1, keepdim=True) - problem.functions.gather(-1, history.arms)
            ).sum(-1)
            sizes = policy.model.dictionary_size.double().mean()
            spread = f"{float(total.mean()):8.1f} {float(total.std()):6.1f}"
            print(f"{name:12s} {sampler:12s} {spread}  m {float(sizes):.0f}", flush=True)


def times() -> None:
    """Seconds of the policy alone (choose and learn), one thread: BKB and batch BKB in the published settings."""
    torch.set_num_threads(1)
    width = BKBWidth(1.0, NOISE, DELTA, form="printed")
    print("A      T     policy            seconds  m    draws")
    for num_arms, horizon in ((1000, 2000), (10_000, 500)):
        side = 1000 if num_arms == 1000 else 100
        problem = (
            GPDraws(num_arms=side, dim=2, noise_scale=NOISE, seed=1)
            if num_arms == 1000
            else GridDraws(side=side, dim=2, noise_scale=NOISE, seed=1)
        )
        arguments = (problem.arms, problem.knowledge.kernel, LAMBDA)
        runs = {
            "BKB, every step": recipes.bkb(*arguments, width=width, growth=1.0),
            "BKB, C 2": recipes.bkb(*arguments, width=width),
            "batch BKB, C 5": recipes.bbkb(*arguments, width=width),
            "batch BKB, C 20": recipes.bbkb(*arguments, width=width, growth=20.0),
        }
        for name, policy in runs.items():
            history = loop.run(policy, problem, horizon)
            seconds, model = float(history.seconds.sum()), policy.model
            m, draws = int(model.dictionary_size), int(model.draws)
            print(f"{num_arms:6d} {horizon:5d} {name:17s} {seconds:7.2f}  {m:4d} {draws:5d}", flush=True)


def growth() -> None:
    """Dictionary size and arms pulled over time: sublinear in t."""
    problem = GPDraws(num_arms=1000, dim=2, noise_scale=NOISE, seed=1)
    policy = recipes.bkb(problem.arms, problem.knowledge.kernel, LAMBDA, width=BKBWidth(1.0, NOISE, DELTA))
    history = loop.run(policy, problem, 4000)
    sizes = history.trace["dictionary_size"].squeeze()
    for t in (100, 200, 500, 1000, 2000, 4000):
        pulled = len(set(history.arms.flatten()[:t].tolist()))
        print(f"t {t:5d}  m {int(sizes[t - 1]):4d}  distinct arms pulled {pulled:4d}")


def accuracy() -> None:
    """Theorem 1 in 200 runs: shares of runs in which all variances stay within a factor alpha, by oversampling."""
    from tests.claims.test_sketch_accuracy import DELTA as failure
    from tests.claims.test_sketch_accuracy import STEPS, share_of_runs_within

    for name, sampling in {
        "theory": LeverageSampling.theory(STEPS, failure),
        "qbar 5": LeverageSampling(5.0),
        "qbar 1": LeverageSampling(1.0),
    }.items():
        print(
            f"{name:8s} qbar {sampling.oversampling:6.1f}: {100 * share_of_runs_within(sampling):.1f} % of 200 runs"
        )


def adaptive() -> None:
    """On a smoother function the dictionary is smaller."""
    for lengthscale in (0.1, 0.2, 0.4, 0.8):
        problem = GPDraws(num_arms=1000, dim=2, lengthscale=lengthscale, noise_scale=NOISE, seed=1)
        kernel = make_kernel("se", lengthscale)
        policy = recipes.bkb(problem.arms, kernel, LAMBDA, width=BKBWidth(1.0, NOISE, DELTA))
        loop.run(policy, problem, 500)
        d = float(policy.model.effective_dimension)
        print(
            f"lengthscale {lengthscale}: d_eff {d:6.1f}, dictionary {int(policy.model.dictionary_size)} after 500 steps"
        )


def main(arguments: list[str]) -> None:
    """Run the parts named, or all."""
    parts = {part.__name__: part for part in (starvation, regret, times, growth, accuracy, adaptive)}
    unknown = sorted(set(arguments) - set(parts))
    if unknown:
        raise SystemExit(f"parts are {', '.join(parts)}, got {', '.join(unknown)}")
    for asked in arguments or parts:
        parts[asked]()

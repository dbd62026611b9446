"""Calandriello et al. (2019), BKB: their Figure 2, regret beside the exact sampler, the dictionary's growth, times.

    python -m benchmarks.papers calandriello [PART ...] [--fast] [--out DIR]

| part | what |
|---|---|
| `2`, `starvation` | Figure 2: BKB beside two posteriors that starve |
| `coverage` | Fourier features at a fixed number, as points keep coming |
| `regret` | cumulative regret of sketched samplers and the exact one, under three widths |
| `settings` | regret of the exact sampler on several kinds of functions: which were published? |
| `growth` | dictionary, arms pulled and time of a step as t grows, beside the exact posterior |
| `adaptive` | the dictionary on smoother and rougher functions |
| `accuracy` | Theorem 1 in 200 runs |
| `times` | processor time in the settings of the published code, beside the exact posterior |
| `numpy` | processor time beside the same algorithm written plainly in NumPy, step by step in turn |
| `batch` | processor time of ten replicates in one batch and one after another |
| `report` | claims.csv and RESULTS.md from the CSV files there are |

Without a part all are run. One thread.
"""

import math
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.linalg import lapack, solve_triangular
from torch import Tensor

from bandits_torch import ArmGP, Policy, Problem, UpperConfidenceBound, loop, recipes
from bandits_torch.models import LeverageSampling, SketchedGP
from bandits_torch.policies import IndexPolicy, Observation
from bandits_torch.problems import GPDraws, GridDraws
from bandits_torch.problems.simulated import make_kernel
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import BKBWidth, ConstantWidth, RealisedInformationWidth
from benchmarks.pages import read, replaced, save, say
from benchmarks.papers import _calandriello_page
from benchmarks.papers._folders import Job, run
from benchmarks.speed.measuring import copy_seconds

# kind: (layout of the arms, RKHS function of 20 centres in place of a draw of the GP, largest |f| in place of its own)
_KINDS = {
    "GP draw, max 1": ("uniform", False, 1.0),
    "GP draw": ("uniform", False, None),
    "GP draw, max 1, grid": ("grid", False, 1.0),
    "RKHS, max 1": ("uniform", True, 1.0),
    "RKHS": ("uniform", True, None),
}


def settings(job: Job) -> None:
    """Which setting do the published regrets come from? Exact UCB: mean cumulative regret after T = 1 000, one row for
    each kind of function, one column for each width."""
    horizon, replicates = (10, 2) if job.fast else (1000, 3)
    # (width, epsilon, which sets alpha = (1 + eps) / (1 - eps) in BKB's)
    widths: dict[str, tuple[Any, float]] = {
        "sqrt(2)": (ConstantWidth(2**0.5), 0.5),
        "realised": (RealisedInformationWidth(1.0, NOISE, DELTA), 0.5),
        "realised, R for R/sqrt(lambda)": (RealisedInformationWidth(1.0, NOISE * LAMBDA**0.5, DELTA), 0.5),
        "BKB": (BKBWidth(1.0, NOISE, DELTA, form="printed"), 0.5),
        "BKB, alpha 1": (BKBWidth(1.0, NOISE, DELTA, form="printed"), 1e-9),
        "BKB, alpha 1, no factor 2": (BKBWidth(1.0, NOISE / 2, DELTA, form="printed"), 1e-9),
    }
    rows = []
    for kind, (layout, rkhs, largest) in _KINDS.items():
        drawn = {"dim": 2, "lengthscale": 0.2, "noise_scale": NOISE, "seed": 0, "replicates": replicates}
        problem = GPDraws(num_arms=1024 if layout == "grid" else 1000, layout=layout, **drawn)
        if rkhs:
            problem.functions = _rkhs_functions(problem, replicates)
        if largest is not None:
            problem.functions = largest * problem.functions / problem.functions.abs().amax(-1, keepdim=True)
        row: dict[str, Any] = {"function": kind}
        for name, (width, epsilon) in widths.items():
            given = (problem.arms, problem.knowledge.kernel, LAMBDA)
            if isinstance(width, BKBWidth):  # which a sketch alone has, here of all arms pulled
                exact = {"sampling": LeverageSampling(1e12, 1.0, epsilon), "batch_shape": (replicates,)}
                model: ArmGP | SketchedGP = SketchedGP(*given, **exact)
            else:
                model = ArmGP(*given, batch_shape=(replicates,))
            policy = IndexPolicy(model, UpperConfidenceBound, width=width)
            history = loop.run(policy, problem, horizon, capture="auto")
            row[name] = round(float(history.regret.sum(-1).mean()), 1)
        say(f"settings: {row}")
        rows.append(row)
    save(pd.DataFrame(rows), job.out / "settings.csv", None)


def _rkhs_functions(problem: GPDraws, replicates: int) -> Tensor:
    """sum_j a_j k(c_j, .) with 20 random arms c_j and a_j uniform on [-1, 1], (replicates, N)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randint(problem.num_arms, (replicates, 20), generator=generator)
    weights = 2 * torch.rand(replicates, 1, 20, generator=generator, dtype=torch.float64) - 1
    covariance = problem.knowledge.kernel(problem.arms[centres], problem.arms).to_dense()
    return (weights @ covariance).squeeze(1).detach()


LAMBDA, NOISE, DELTA = 0.01, 0.1, 0.1


def main(arguments: list[str]) -> None:
    parts = (starvation, coverage, regret, settings, growth, adaptive, accuracy, times, numpy, batch)
    by_name = {part.__name__: part for part in parts}
    torch.set_num_threads(1)
    run(
        "calandriello",
        __doc__,
        arguments,
        {"2": starvation, **by_name},
        lambda job: _calandriello_page.write(job.out),
        fast="small sizes, to see that everything runs",
        default=by_name,
    )


def starvation(job: Job) -> None:
    """Figure 2: squared exponential kernel on [0, 1], t = 6, 63, 215 points in [0, 0.5]; mean +- 3 sigma of the first
    function, and a table of means over twenty."""
    figure = Figure(figsize=(13, 8))
    axes = figure.subplots(3, 3, sharex=True, sharey=True)
    rows = []
    for seed in range(1, 3 if job.fast else 21):
        problem, order, rewards = _on_the_left(seed, 215)
        f, x = problem.functions[0], problem.arms[:, 0]
        for column, t in enumerate((6, 63, 215)):
            m, found = _posteriors(problem, order[:t], rewards[:t])
            for row, (name, (mean, variance)) in enumerate(found.items()):
                deviation = variance.clamp_min(0).sqrt()
                rows.append({"t": t, "posterior": name, "m": m, **_calibration(f, mean, deviation)})
                if seed == 1:
                    title = f"{name}, t = {t}, m = {m}"
                    _draw_posterior(axes[row, column], title, x, f, mean, deviation, order[:t], rewards[:t])
    axes[0, 0].legend(fontsize=7, loc="upper left")
    for axis in axes[-1]:
        axis.set_xlabel("arm")
    figure.tight_layout()
    figure.savefig(job.out / "figure_2.png", dpi=100)
    means = pd.DataFrame(rows).groupby(["t", "posterior"], sort=False).mean().reset_index()
    save(means, job.out / "starvation.csv", 4)


def coverage(job: Job) -> None:
    """Figure 2's random Fourier features at a fixed number of them, 48, as points keep coming; twenty functions."""
    rows = []
    for seed in range(1, 3 if job.fast else 21):
        problem, order, rewards = _on_the_left(seed, 5000)
        for t in (215, 1000) if job.fast else (215, 1000, 5000):
            points = (problem.arms, order[:t], rewards[:t])
            mean, variance = random_fourier_features(*points, 0.1, 48, LAMBDA, seed)
            deviation = variance.clamp_min(0).sqrt()
            rows.append({"t": t, "m": 48, **_calibration(problem.functions[0], mean, deviation)})
    frame = pd.DataFrame(rows).groupby("t").mean().reset_index()
    save(frame, job.out / "coverage.csv", 4)


def _on_the_left(seed: int, count: int) -> tuple[GPDraws, Tensor, Tensor]:
    """A function on a grid of [0, 1], so many points of its left half, and their rewards."""
    problem = GPDraws(num_arms=1000, layout="grid", lengthscale=0.1, noise_scale=NOISE, seed=seed)
    generator = torch.Generator().manual_seed(seed - 1)
    order = torch.randint(500, (count,), generator=generator)
    noise = NOISE * torch.randn(count, generator=generator, dtype=torch.float64)
    return problem, order, problem.functions[0][order] + noise


def _posteriors(
    problem: GPDraws, arm: Tensor, reward: Tensor
) -> tuple[int, dict[str, tuple[Tensor, Tensor]]]:
    """Mean and variance (N,) by name, and m: BKB's inducing arms, which the subset of regressors shares, and as many
    Fourier features (cosines and sines, so an even number)."""
    kernel = problem.knowledge.kernel
    model = SketchedGP(problem.arms, kernel, LAMBDA, sampling=LeverageSampling.practical(5.0, 1.0, "redrawn"))
    model.observe(arm.unsqueeze(-1).double(), reward.unsqueeze(-1))
    dictionary = model.sketches[0].inducing_arms()
    m = len(dictionary)
    return m, {
        "BKB": model.marginals(),
        "subset of regressors": subset_of_regressors(kernel, problem.arms, arm, reward, dictionary, LAMBDA),
        "random Fourier features": random_fourier_features(problem.arms, arm, reward, 0.1, m + m % 2, LAMBDA),
    }


def _calibration(f: Tensor, mean: Tensor, deviation: Tensor) -> dict[str, float]:
    """How sure a posterior is away from the data, and how often rightly."""
    inside, far = ((f - mean).abs() <= 3 * deviation).double(), slice(800, 1000)
    return {
        "smallest_deviation_far": float(deviation[far].min()),
        "share_within_3_sigma": float(inside.mean()),
        "share_within_3_sigma_far": float(inside[far].mean()),
    }


def _draw_posterior(
    axis: Any, title: str, x: Tensor, f: Tensor, mean: Tensor, deviation: Tensor, arm: Tensor, reward: Tensor
) -> None:
    axis.axvspan(0.5, 1.0, color="0.95", lw=0)
    axis.fill_between(x, mean - 3 * deviation, mean + 3 * deviation, alpha=0.3, label="mean ± 3 sigma")
    axis.plot(x, mean, lw=1.2)
    axis.plot(x, f, "k", lw=1, label="function")
    axis.plot(x[arm], reward, "k.", ms=2, label="rewards")
    axis.set_title(title, fontsize=9)
    axis.set_ylim(-4, 4)


_QBARS = (5.0, 2.0, 1.0)
SAMPLERS: dict[str, dict[str, Any]] = {
    "exact": {"oversampling": 1e12, "growth": 1.0},
    **{f"BKB, qbar {qbar:g}": {"oversampling": qbar, "growth": 1.0} for qbar in _QBARS},
    **{
        f"kept, qbar {qbar:g}": {"oversampling": qbar, "growth": 1.0, "dictionary": "kept"} for qbar in _QBARS
    },
    "kept, qbar 5, C 2": {"oversampling": 5.0, "growth": 2.0, "dictionary": "kept"},
    "batch BKB, qbar 5, C 5": {"oversampling": 5.0, "growth": 5.0},
}


def regret(job: Job) -> None:
    """Regret of sketched samplers beside the exact one, A = 1 000, d = 2, by width, written after each of them."""
    horizon, replicates = (20, 2) if job.fast else (1000, 5)
    problem = GPDraws(num_arms=1000, dim=2, lengthscale=0.2, noise_scale=NOISE, seed=0, replicates=replicates)
    problem.functions = problem.functions / problem.functions.abs().amax(-1, keepdim=True)  # |f| <= 1
    arguments = (problem.arms, problem.knowledge.kernel, LAMBDA)
    widths: dict[str, Any] = {
        "sqrt(2)": 2**0.5,
        "realised information": RealisedInformationWidth(1.0, NOISE, DELTA),
        "BKB": BKBWidth(1.0, NOISE, DELTA, form="printed"),
    }
    path = job.out / "regret.csv"
    for width_name, width in widths.items():
        for name, options in SAMPLERS.items():
            build = recipes.bbkb if name.startswith("batch") else recipes.bkb
            policy = build(*arguments, width=width, replicates=replicates, **options)
            history = loop.run(policy, problem, horizon)
            columns = {"width": width_name, "sampler": name, "replicate": range(replicates)}
            columns["regret"] = history.regret.sum(-1).numpy()
            for column, key in (("dictionary", "dictionary_size"), ("last_draw", "last_draw")):
                columns[column] = history.trace[key][..., -1].long().numpy()
            say(f"regret: {width_name}, {name}: {history.mean_cumulative_regret:.1f}")
            kept, rows = read(path), pd.DataFrame(columns)
            save(rows if kept is None else replaced(kept, rows, ("width", "sampler")), path, 5)


def growth(job: Job) -> None:
    """Dictionary, arms pulled, and time of a step as t grows; the exact posterior beside."""
    side, horizon = (10, 60) if job.fast else (64, 4000)
    problem = GridDraws(side=side, dim=2, lengthscale=0.2, noise_scale=NOISE, seed=1)
    width = BKBWidth(1.0, NOISE, DELTA, form="printed")
    policy = recipes.bkb(problem.arms, problem.knowledge.kernel, LAMBDA, width=width, growth=1.0)
    bkb = loop.run(policy, problem, horizon)
    exact = exact_seconds(problem, bkb.arms.flatten(), bkb.rewards.flatten(), LAMBDA)
    sizes, drawn = (bkb.trace[key].squeeze() for key in ("dictionary_size", "last_draw"))
    ends = [round(horizon * share) for share in (0.025, 0.05, 0.1, 0.25, 0.5, 1.0)]
    rows = []
    for start, t in zip([0, *ends], ends, strict=False):
        rows.append(
            {
                "t": t,
                "arms_pulled": len(set(bkb.arms.flatten()[:t].tolist())),
                "draw": float(drawn[max(start, t - 50) : t].double().mean()),
                "dictionary": int(sizes[t - 1]),
                "ms_per_step": 1e3 * float(bkb.seconds[start:t].median()),
                "exact_ms_per_step": 1e3 * float(exact[start:t].median()),
            }
        )
    save(pd.DataFrame(rows), job.out / "growth.csv", 4)
    figure = Figure(figsize=(6, 4))
    axis = figure.subplots()
    pulled = torch.tensor([len(set(bkb.arms.flatten()[:t].tolist())) for t in range(1, horizon + 1)])
    steps = range(1, horizon + 1)
    for series, label in ((pulled, "arms pulled"), (sizes, "dictionary held"), (drawn, "drawn")):
        axis.plot(steps, series, label=label, lw=1)
    axis.set(xlabel="step", ylabel="arms", title="BKB, qbar 5, a draw at every step")
    axis.legend()
    figure.tight_layout()
    figure.savefig(job.out / "growth.png", dpi=100)


def adaptive(job: Job) -> None:
    """On a smoother function the dictionary is smaller."""
    rows = []
    for lengthscale in (0.1, 0.2, 0.4, 0.8):
        problem = GPDraws(num_arms=1000, dim=2, lengthscale=lengthscale, noise_scale=NOISE, seed=1)
        kernel, width = make_kernel("se", lengthscale), RealisedInformationWidth(1.0, NOISE, DELTA)
        policy = recipes.bkb(problem.arms, kernel, LAMBDA, width=width, growth=1.0)
        history = loop.run(policy, problem, 40 if job.fast else 500)
        rows.append(
            {
                "lengthscale": lengthscale,
                "effective_dimension": float(policy.model.effective_dimension),
                "draw": float(history.trace["last_draw"].flatten()[-100:].double().mean()),
                "dictionary": int(policy.model.dictionary_size),
                "arms_pulled": len(set(history.arms.flatten().tolist())),
            }
        )
    save(pd.DataFrame(rows), job.out / "adaptive.csv", 4)


def accuracy(job: Job) -> None:
    """Theorem 1: shares of runs in which all variances stay within a factor alpha at all steps, by oversampling."""
    from tests.claims.test_sketch_accuracy import DELTA as failure
    from tests.claims.test_sketch_accuracy import STEPS, share_of_runs_within

    runs = 20 if job.fast else 200
    samplings = {
        "theory": LeverageSampling.theory(STEPS, failure),
        "qbar 5": LeverageSampling(5.0, dictionary="redrawn"),
        "qbar 1": LeverageSampling(1.0, dictionary="redrawn"),
    }
    rows = []
    for name, one in samplings.items():
        row = {"preset": name, "qbar": one.oversampling, "runs": runs}
        rows.append(row | {"share_within": share_of_runs_within(one, runs)})
    save(pd.DataFrame(rows), job.out / "accuracy.csv", 5)


BKB, EXACT = "BKB, a draw a step", "exact, on the pulls of BKB"


def times(job: Job) -> None:
    """Processor seconds of the policy alone, one thread, in the published settings and an easier one."""
    width, rows = BKBWidth(1.0, NOISE, DELTA, form="printed"), []
    for num_arms, horizon, lengthscale in ((1000, 2000, 0.2), (10_000, 500, 0.2), (10_000, 2000, 0.5)):
        problem = _over_the_square(num_arms, lengthscale)
        arguments = (problem.arms, problem.knowledge.kernel, LAMBDA)
        runs = {
            BKB: lambda a=arguments: recipes.bkb(*a, width=width, growth=1.0),
            "kept, C 2": lambda a=arguments: recipes.bkb(*a, width=width, dictionary="kept"),
            "batch BKB, C 5": lambda a=arguments: recipes.bbkb(*a, width=width),
        }
        for name, build in runs.items():
            policy, steps = build(), 20 if job.fast else horizon
            taken, arms, rewards, watched = _processor_seconds(policy, problem, steps)
            pulled = len(set(arms.tolist()))
            row = {"arms": num_arms, "steps": horizon, "lengthscale": lengthscale, "arms_pulled": pulled}
            m, draws = int(policy.model.dictionary_size), int(policy.model.draws)
            read = num_arms if watched is None else watched + 2 * num_arms * draws / horizon
            found = {name: (taken, m, 8 * m * (read + 4 * m))}
            if name == BKB:
                seconds = float(exact_seconds(problem, arms, rewards, LAMBDA, process_time).sum())
                found[EXACT] = (seconds, pulled, 8 * pulled * (num_arms + pulled))
            for policy_name, (seconds, held, moved) in found.items():
                share = copy_seconds(int(moved), "cpu") * horizon / seconds
                facts = {"seconds": seconds, "held": held, "MB_a_step": moved / 1e6, "share_of_copy": share}
                rows.append({**row, "policy": policy_name, **facts})
                say(f"times: {rows[-1]}")
    save(pd.DataFrame(rows), job.out / "times.csv", 4)


def numpy(job: Job) -> None:
    """Processor seconds of ``bkb`` and of Figure 1 in plain NumPy, on the same coins and noise, a step of each in turn;
    how often NumPy would choose the arm that ``bkb`` plays is counted."""
    rows = []
    for num_arms, horizon in ((1000, 2000), (10_000, 500)):
        rows.append(_beside_numpy(num_arms, 20 if job.fast else horizon))
        say(f"numpy: {rows[-1]}")
    save(pd.DataFrame(rows), job.out / "numpy.csv", 4)


def batch(job: Job) -> None:
    """Processor seconds of replicates of ``bkb`` on one function each: in one batch, and then one after another."""
    replicates, horizon = (2, 20) if job.fast else (10, 400)
    width, alone, same = BKBWidth(1.0, NOISE, DELTA, form="printed"), 0.0, 0

    def played(first: int, count: int) -> tuple[float, Tensor]:
        which = {"replicates": count, "first_replicate": first}
        problem = GPDraws(num_arms=1000, dim=2, lengthscale=0.2, noise_scale=NOISE, seed=1, **which)
        policy = recipes.bkb(problem.arms, problem.knowledge.kernel, LAMBDA, width=width, **which)
        begun = process_time()
        history = loop.run(policy, problem, horizon, first_replicate=first)
        return process_time() - begun, history.arms

    together, arms = played(0, replicates)
    for k in range(replicates):
        seconds, own = played(k, 1)
        alone += seconds
        same += int((own[0] == arms[k]).all())
    row = {"arms": 1000, "steps": horizon, "replicates": replicates, "batch_seconds": together}
    row |= {"alone_seconds": alone, "times": alone / together, "same_runs": same}
    say(f"batch: {row}")
    save(pd.DataFrame([row]), job.out / "batch.csv", 4)


def _over_the_square(num_arms: int, lengthscale: float) -> GPDraws | GridDraws:
    """A function on 1 000 arms drawn uniformly from the unit square, or on a grid of 10 000."""
    drawn = {"dim": 2, "lengthscale": lengthscale, "noise_scale": NOISE, "seed": 1}
    return GPDraws(num_arms=1000, **drawn) if num_arms == 1000 else GridDraws(side=100, **drawn)


def _beside_numpy(num_arms: int, horizon: int) -> dict[str, Any]:
    from tests.reference.numpy_bkb import NumpyBKB, squared_exponential

    problem = _over_the_square(num_arms, 0.2)
    printed = BKBWidth(1.0, NOISE, DELTA, form="printed")
    ours = recipes.bkb(problem.arms, problem.knowledge.kernel, LAMBDA, width=printed)
    alpha = ours.model.sampling.alpha

    def width(dimension: float, t: int) -> float:
        noise_part = math.sqrt(alpha * math.log(t) * dimension - math.log(DELTA))
        return 2 * NOISE / math.sqrt(LAMBDA) * noise_part + 1 + math.sqrt(2)

    settings = (problem.arms.numpy(), squared_exponential(0.2), LAMBDA, 5.0, width)
    theirs = {root: NumpyBKB(*settings, root=root) for root in ("printed", "cholesky")}
    coins = {root: _coins() for root in theirs}
    seconds, same = dict.fromkeys(["ours", *theirs], 0.0), dict.fromkeys(theirs, 0)
    noise = ReplicateStreams(0)

    def timed(name: str, task: Callable[..., Any], *given: Any) -> Any:
        start = process_time()
        done = task(*given)
        seconds[name] += process_time() - start
        return done

    for t in range(1, horizon + 1):
        choice = timed("ours", ours.choose, float(t))
        arm, reward = int(choice.arm), problem.pull(t, choice.arm, noise)
        for root, one in theirs.items():
            same[root] += t == 1 or timed(root, one.choose) == arm  # the first is drawn uniformly
            timed(root, one.learn, arm, float(reward), coins[root])
        timed("ours", ours.learn, Observation(float(t), choice.arm, reward, choice.why))
    m, u = len(theirs["printed"].dictionary), len(theirs["printed"].pulled)
    last, least = 1e3 * _quickest(theirs["printed"].choose), 1e3 * _least_seconds(num_arms, m, u)
    row: dict[str, Any] = {"arms": num_arms, "steps": horizon, "m": m, "pulled": u}
    row["seconds"] = seconds["ours"]
    for root in theirs:
        row |= {f"{root}_seconds": seconds[root], f"{root}_times": seconds[root] / seconds["ours"]}
        row[f"{root}_same_choices"] = same[root]
    row |= {"last_printed_ms": last, "least_ms": least, "times_at_most": last / least}
    called = 1e3 * _product_seconds(num_arms, m, u)
    row |= {"products_ms": called, "times_by_products": last / called}
    return row | {"left_after_half": _left_after_half(theirs["cholesky"], width)}


def _coins() -> Callable[[int], Any]:
    """The uniform numbers that a sketch of seed 0 draws, one for each arm pulled."""
    streams = ReplicateStreams(0, purpose="sketch")
    return lambda pulled: streams.uniform(1 << max(5, (pulled - 1).bit_length()))[0, :pulled].numpy()


def _least_seconds(num_arms: int, m: int, u: int) -> float:
    """Of what no way around is known: two Cholesky factors and an inverse of one, the projections of the arms pulled
    outside the dictionary, and half a product of m x m with m x N, for the variances are a quadratic form."""
    square, wide = torch.randn(m, m, dtype=torch.float64), torch.randn(m, num_arms, dtype=torch.float64)
    positive = square @ square.mT + m * torch.eye(m, dtype=torch.float64)
    factor = torch.linalg.cholesky(positive)

    def solve(columns: int) -> Tensor:
        right = positive.repeat(1, 1 + columns // m)[:, :columns]
        return torch.linalg.solve_triangular(factor, right, upper=False)

    parts = 2 * _quickest(lambda: torch.linalg.cholesky(positive)) + _quickest(lambda: square @ wide) / 2
    return parts + _quickest(lambda: solve(m)) + (_quickest(lambda: solve(u - m)) if u > m else 0.0)


def _product_seconds(num_arms: int, m: int, u: int) -> float:
    """Of the products that a step of ours calls (``OneStepPosterior``), each alone: no sums, copies or Python."""
    square, wide = torch.randn(m, m, dtype=torch.float64), torch.randn(m, num_arms, dtype=torch.float64)
    identity, outside = torch.eye(m, dtype=torch.float64), torch.randn(m, u - m, dtype=torch.float64)
    positive = square @ square.mT + m * identity
    factor, panel = torch.linalg.cholesky(positive), -(-m // 3)
    pieces = [wide[:, start : start + 1024].contiguous() for start in range(0, num_arms, 1024)]

    def variances() -> None:
        for piece in pieces:
            for top in range(0, m, panel):
                factor[top : top + panel, : top + panel] @ piece[: top + panel]

    once = [lambda: torch.cholesky_inverse(factor), variances]
    once.append(lambda: torch.linalg.solve_triangular(factor, identity, upper=False))
    if u > m:
        once += [lambda: torch.cholesky_solve(outside, factor), lambda: outside @ outside.mT]
    return 3 * _quickest(lambda: torch.linalg.cholesky(positive)) + sum(map(_quickest, once))


def _left_after_half(one: Any, width: Callable[[float, int], float]) -> float:
    """The share of all arms that may still have the largest index after half of the rows of their variances, in the
    order of a pivoted Cholesky factor, which explains most first: any first rows bound a variance from above."""
    one.choose()  # with the dictionary of now
    inducing = one.points[one.dictionary]
    S = np.array(one.dictionary)[lapack.dpstrf(one.kernel(inducing, inducing))[1] - 1]
    outside = np.setdiff1d(one.pulled, S)
    count = np.zeros(len(one.points))
    count[one.pulled] = one.count
    K, cross = one.kernel(one.points[S], one.points[S]), one.kernel(one.points[S], one.points)
    shared = np.linalg.solve(K + 1e-13 * np.eye(len(S)), cross[:, outside])
    V = K + one.lam * np.linalg.inv(np.diag(count[S]) + (shared * count[outside]) @ shared.T)
    rows = solve_triangular(np.linalg.cholesky(V), cross, lower=True)[: len(S) // 2]
    half = 1 - (rows**2).sum(0)
    beta = width(one.count @ one.variance[one.pulled] / one.lam, int(one.count.sum()) + 1)
    largest = (one.mean + beta * np.sqrt(one.variance)).max()
    return float((one.mean + beta * np.sqrt(np.maximum(half, 0.0)) >= largest).mean())


def _quickest(task: Callable[[], Any]) -> float:
    """Processor seconds, the least of nine."""
    found = []
    for _ in range(9):
        start = process_time()
        task()
        found.append(process_time() - start)
    return min(found)


def linear_posterior(
    features: Tensor, at: Tensor, rewards: Tensor, noise_variance: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance, at features ``at`` (N, m), of linear regression on ``features`` (t, m), weights N(0, I)."""
    m = features.shape[-1]
    lifted = features.mT @ features + noise_variance * torch.eye(m, dtype=features.dtype)
    factor = torch.linalg.cholesky(lifted)
    mean = at @ torch.cholesky_solve((features.mT @ rewards).unsqueeze(-1), factor).squeeze(-1)
    return mean, noise_variance * torch.linalg.solve_triangular(factor, at.mT, upper=False).square().sum(0)


def subset_of_regressors(
    kernel, arms: Tensor, pulled: Tensor, rewards: Tensor, dictionary: Tensor, noise_variance: float
) -> tuple[Tensor, Tensor]:
    """The posterior whose prior is k_S^T K_S^{-1} k_S: as DTC, but with z^T z in place of k(x, x) in the variance."""
    K = kernel(arms[dictionary]).to_dense()
    factor = torch.linalg.cholesky(K + 1e-12 * torch.eye(len(K), dtype=K.dtype))
    z = torch.linalg.solve_triangular(factor, kernel(arms[dictionary], arms).to_dense(), upper=False).mT
    return linear_posterior(z[pulled], z, rewards, noise_variance)


def random_fourier_features(
    arms: Tensor,
    pulled: Tensor,
    rewards: Tensor,
    lengthscale: float,
    count: int,
    noise_variance: float,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """The posterior on ``count`` random features of the squared exponential kernel (Rahimi & Recht 2007)."""
    generator = torch.Generator().manual_seed(seed)
    half = count // 2
    frequency = torch.randn(arms.shape[-1], half, generator=generator, dtype=arms.dtype) / lengthscale
    angle = arms @ frequency
    features = torch.cat([angle.cos(), angle.sin()], -1) / math.sqrt(half)
    return linear_posterior(features[pulled], features, rewards, noise_variance)


def _processor_seconds(
    policy: Policy, problem: Problem, horizon: int
) -> tuple[float, Tensor, Tensor, float | None]:
    """Of choosing and learning; the arms and rewards; and the mean number of arms scored, of a policy that tells it."""
    noise, seconds, pulls, scored = ReplicateStreams(0), 0.0, [], []
    for t in range(1, horizon + 1):
        begun = process_time()
        choice = policy.choose(float(t))
        chosen = process_time()
        reward = problem.pull(t, choice.arm, noise)
        pulled = process_time()
        policy.learn(Observation(float(t), choice.arm, reward, choice.why))
        seconds += chosen - begun + process_time() - pulled
        pulls.append((choice.arm, reward))
        scored += [float(policy.trace()["arms_scored"])] if "arms_scored" in policy.trace() else []
    arms, rewards = (torch.cat(each) for each in zip(*pulls, strict=True))
    return seconds, arms, rewards, sum(scored) / len(scored) if scored else None


def exact_seconds(
    problem: Problem,
    arms: Tensor,
    rewards: Tensor,
    noise_variance: float,
    clock: Callable[[], float] = perf_counter,
) -> Tensor:
    """Seconds of every step of the exact posterior in its factor form, fed the pulls of another run."""
    model = ArmGP(problem.arms, problem.knowledge.kernel, noise_variance, form="factor")
    seconds = []
    for arm, reward in zip(arms, rewards, strict=True):
        start = clock()
        mean, variance = model.marginals()
        (mean + 2 * variance.sqrt()).argmax()
        model.observe_arms(arm, reward)
        seconds.append(clock() - start)
    return torch.tensor(seconds)

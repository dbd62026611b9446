"""The pages: each gives rows, one at a time, so that what was measured is kept when time is up."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bandits_torch import recipes
from bandits_torch.loop import run
from bandits_torch.models.candidate_priors import CandidatePrior, arm_gp_over_priors
from bandits_torch.policies.over_priors import PriorElimination
from bandits_torch.problems import make
from bandits_torch.problems.simulated import make_kernel
from bandits_torch.theory.widths import ConstantWidth
from benchmarks.gpu.stepping import Settings, Stepper, both, seconds_a_step, smooth_problem, ucb
from benchmarks.speed import form_choice as choice
from benchmarks.speed.against_botorch import Case, _play_botorch, _play_ours
from benchmarks.speed.measuring import copy_seconds
from benchmarks.speed.plain_botorch import WAYS
from benchmarks.speed.workload import NOISE_VARIANCE, WIDTH, bytes_of_step

Rows = Iterator[dict[str, Any]]


def igp_30000(settings: Settings) -> Rows:
    """How long do 25 and 2 500 replicates of 30 000 steps of IGP-UCB take, captured?"""
    for replicates in settings.pick((25, 2_500), (2, 4)):
        horizon = settings.pick(30_000, 20)
        problem = make("gp", replicates=replicates).to(settings.device)
        policy = recipes.build("igp_ucb", problem, replicates=replicates, horizon=horizon)
        history = run(policy, problem, horizon, capture=True)
        yield {
            "replicates": replicates,
            "steps": horizon,
            "wall_seconds": history.meta["wall_seconds"],
            "mean_cumulative_regret": history.mean_cumulative_regret,
        }


def saturation(settings: Settings) -> Rows:
    """What share of the speed of a copy does a step reach, and how often does the host wait?"""
    full = (
        ("covariance", 10_000, 1, 40),
        ("covariance", 100, 2_500, 100),
        ("covariance", 100, 25, 100),
        ("factor", 100_000, 1, 300),
        ("factor", 1_000_000, 1, 100),
    )
    for form, arms, replicates, before in settings.pick(
        full, (("covariance", 30, 2, 5), ("factor", 40, 2, 5))
    ):
        policy, problem = ucb(arms, replicates, settings.device, form=form)
        measured = both(policy, problem, before, settings.pick(64, 4), settings, k=settings.pick(32, 4))
        moved = bytes_of_step(policy)  # type: ignore[arg-type]
        copy = copy_seconds(moved, settings.device)
        yield {
            "form": form,
            "arms": arms,
            "replicates": replicates,
            "bytes": moved,
            "copy_GB_s": moved / copy / 1e9,
            **measured,
            "plain_share": copy / measured["plain_seconds"],
            "captured_share": copy / measured["captured_seconds"],
        }
        del policy, problem


def against_botorch(settings: Settings) -> Rows:
    """How much faster is a step than plain BoTorch's on the same device?"""
    cases = (Case(10_000, 1_000, "ucb", 100, 2), Case(100_000, 1_000, "ucb", 100, 2))
    for case in settings.pick(cases, (Case(60, 10, "ucb", 4, 2),)):
        with tempfile.TemporaryDirectory() as folder:
            played = Path(folder) / "played.pt"
            ours = _play_ours(case, settings.device, played)
            theirs = {}
            for way in WAYS:
                try:
                    theirs[way] = _play_botorch(way, case, settings.device, played)
                except torch.cuda.OutOfMemoryError:
                    torch.cuda.empty_cache()
        policy, problem = ucb(case.num_arms, 1, settings.device)
        stepper = Stepper(policy, problem, settings.pick(32, 4))
        stepper.captured(case.observations)
        captured = seconds_a_step(stepper.captured, settings.pick(128, 8), settings.device)
        fastest = min(theirs, key=lambda way: theirs[way]["seconds_per_step"])
        seconds = theirs[fastest]["seconds_per_step"]
        yield {
            "arms": case.num_arms,
            "observations": case.observations,
            "ours_seconds": ours["seconds_per_step"],
            "captured_seconds": captured,
            "botorch_seconds": seconds,
            "fastest": fastest,
            "same_arms": sum(row["same_arms"] for row in theirs.values()),
            "compared": sum(row["steps"] for row in theirs.values()),
            "times_faster": seconds / ours["seconds_per_step"],
            "times_faster_captured": seconds / captured,
        }


def scaling(settings: Settings) -> Rows:
    """How does a captured step grow with arms, to a million, and with replicates, to ten thousand?"""
    arms = settings.pick((1_000, 10_000, 100_000, 1_000_000), (30, 60))
    replicates = settings.pick((1, 10, 100, 1_000, 10_000), (1, 3))
    sizes = [("arms", n, 1, "factor") for n in arms] + [
        ("replicates", 100, s, "covariance") for s in replicates
    ]
    for axis, num_arms, count, form in sizes:
        policy, problem = ucb(num_arms, count, settings.device, form=form)
        stepper = Stepper(policy, problem, settings.pick(32, 4))
        stepper.captured(settings.pick(160, 12))
        seconds = seconds_a_step(stepper.captured, settings.pick(96, 8), settings.device)
        yield {"axis": axis, "arms": num_arms, "replicates": count, "form": form, "captured_seconds": seconds}
        del policy, problem, stepper


def priors(settings: Settings) -> Rows:
    """How does a step of prior elimination grow with candidate priors?"""
    num_arms = settings.pick(200, 15)
    for count in settings.pick((1, 10, 100, 1_000), (1, 3)):
        problem = smooth_problem(num_arms, 1, settings.device)
        candidates = [
            CandidatePrior(make_kernel("matern", 0.1 + 0.3 * p / count), name=str(p)) for p in range(count)
        ]
        model = arm_gp_over_priors(problem.arms, candidates, NOISE_VARIANCE, replicates=1)
        policy = PriorElimination(model, ConstantWidth(WIDTH))
        stepper = Stepper(policy, problem)
        seconds = _plain_seconds(stepper, settings)
        yield {"arms": num_arms, "priors": count, "plain_seconds": seconds}


def _plain_seconds(stepper: Stepper, settings: Settings) -> float:
    stepper.plain(settings.pick(20, 3))
    return seconds_a_step(stepper.plain, settings.pick(40, 3), settings.device)


def auto(settings: Settings) -> Rows:
    """What does a step of auto cost, plain and captured?"""
    for num_arms, replicates in settings.pick(((100, 1), (100, 25), (2_000, 1)), ((10, 1), (12, 2))):
        problem = smooth_problem(num_arms, replicates, settings.device)
        policy = recipes.auto(problem.arms, replicates=replicates)
        before, k = settings.pick(48, 5), settings.pick(16, 2)
        measured = both(policy, problem, before, settings.pick(64, 4), settings, k=k)
        yield {"arms": num_arms, "replicates": replicates, **measured}


def thompson(settings: Settings) -> Rows:
    """What does a step of Thompson sampling cost, plain and captured?"""
    for num_arms, replicates in settings.pick(((100, 25), (1_000, 1), (1_000, 25)), ((15, 2),)):
        problem = smooth_problem(num_arms, replicates, settings.device)
        policy = recipes.gp_ts(
            problem.arms, make_kernel("matern", 0.2), NOISE_VARIANCE, replicates=replicates
        )
        measured = both(policy, problem, 10, settings.pick(64, 4), settings, k=settings.pick(32, 4))
        yield {"arms": num_arms, "replicates": replicates, **measured}


def bkb(settings: Settings) -> Rows:
    """What does a step of BKB over many arms cost?"""
    for num_arms in settings.pick((10_000, 100_000), (40,)):
        problem = smooth_problem(num_arms, 1, settings.device)
        policy = recipes.bkb(problem.arms, make_kernel("matern", 0.2), NOISE_VARIANCE)
        yield {"arms": num_arms, "plain_seconds": _plain_seconds(Stepper(policy, problem), settings)}


def float32(settings: Settings) -> Rows:
    """What does float32 save, and what does it cost in accuracy?"""
    for num_arms, replicates in settings.pick(((10_000, 1), (100, 2_500)), ((25, 2),)):
        seconds, means = {}, {}
        for dtype in (torch.float64, torch.float32):
            policy, problem = ucb(num_arms, replicates, settings.device, form="covariance", dtype=dtype)
            stepper = Stepper(policy, problem, settings.pick(32, 4))
            stepper.captured(settings.pick(96, 8))
            seconds[dtype] = seconds_a_step(stepper.captured, settings.pick(64, 4), settings.device)
            means[dtype] = policy.model.marginals()[0].double()  # type: ignore[attr-defined]
            del policy, problem, stepper
        error = (means[torch.float32] - means[torch.float64]).abs()
        yield {
            "arms": num_arms,
            "replicates": replicates,
            "float64_seconds": seconds[torch.float64],
            "float32_seconds": seconds[torch.float32],
            "median_difference_of_means": float(error.median()),  # of runs that may have parted
        }


def form_choice(settings: Settings) -> Rows:
    """Is the covariance form the cheaper one wherever ``form="auto"`` takes it on this device?"""
    sizes = settings.pick(((1_000, 1), (10_000, 1), (1_000, 100)), ((20, 1), (20, 2)))
    for (arms, replicates), drifts in product(sizes, (False, True)):
        yield choice.case(arms, replicates, drifts, torch.float64, settings.pick(60, 5), settings.device)


# Name: the page and the seconds it may take; in the order of how much hangs on it.
PAGES: dict[str, tuple[Callable[[Settings], Rows], float]] = {
    "igp_30000": (igp_30000, 50),
    "saturation": (saturation, 60),
    "against_botorch": (against_botorch, 60),
    "scaling": (scaling, 40),
    "auto": (auto, 25),
    "thompson": (thompson, 20),
    "priors": (priors, 20),
    "bkb": (bkb, 20),
    "float32": (float32, 20),
    "form_choice": (form_choice, 50),
}

"""The pages: each gives rows, one at a time, so that what was measured is kept when time is up."""

import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bandits_torch import recipes
from bandits_torch.problems.simulated import make_kernel
from benchmarks.gpu.stepping import Settings, Stepper, both, seconds_a_step, smooth_problem, ucb
from benchmarks.speed import form_choice as choice
from benchmarks.speed import igp_30000 as igp
from benchmarks.speed.against_botorch import Case, _play_botorch, _play_ours
from benchmarks.speed.measuring import copy_seconds
from benchmarks.speed.plain_botorch import WAYS
from benchmarks.speed.workload import NOISE_VARIANCE, bytes_of_step

Rows = Iterator[dict[str, Any]]


def igp_30000(settings: Settings) -> Rows:
    """How long do 25 and 2 500 replicates of 30 000 steps of IGP-UCB take, captured?"""
    for replicates in settings.pick((25, 2_500), (2, 4)):
        yield igp.played(replicates, settings.pick(30_000, 20), settings.device, capture=True)


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
        measured = both(
            policy, problem, before, settings.pick(64, 4), settings.device, k=settings.pick(32, 4)
        )
        moved = bytes_of_step(policy)
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


def thompson(settings: Settings) -> Rows:
    """What does a step of Thompson sampling cost, plain and captured?"""
    for num_arms, replicates in settings.pick(((100, 25), (1_000, 1), (1_000, 25)), ((15, 2),)):
        problem = smooth_problem(num_arms, replicates, settings.device)
        policy = recipes.gp_ts(
            problem.arms, make_kernel("matern", 0.2), NOISE_VARIANCE, replicates=replicates
        )
        measured = both(policy, problem, 10, settings.pick(64, 4), settings.device, k=settings.pick(32, 4))
        yield {"arms": num_arms, "replicates": replicates, **measured}


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
    "thompson": (thompson, 20),
    "form_choice": (form_choice, 50),
}

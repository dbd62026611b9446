"""The loop that plays a policy against a problem. To extend it, wrap the policy or the problem."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter

import torch

from bandits_torch import validation
from bandits_torch.captured.blocks import play_captured
from bandits_torch.captured.steps import NotCaptured
from bandits_torch.checkpoint import RunCheckpoint, what_is_run
from bandits_torch.history import History, Recorder, name_of, versions, without_gradient
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.streams import ReplicateStreams
from bandits_torch.threads import fitting


def run(
    policy: Policy,
    problem: Problem,
    horizon: int,
    *,
    seed: int = 0,
    progress: bool | str = False,
    first_replicate: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
    capture: bool | int | str = False,
) -> History:
    """Play a policy for ``horizon`` steps: choose, pull, learn.

    Args:
        policy: plays a batch of ``policy.replicates`` replicates, from its current state.
        problem: with as many replicates, or one for all.
        horizon: T, number of steps.
        seed: seed of the rewards' noise; the same seed gives every policy the same noise at each step.
        progress: show a progress bar on standard error, if that is a terminal; a string is its title.
        first_replicate: number of the first replicate, so replicate k can be run alone.
        checkpoint: a file for the state of the run, written every ``every`` steps and after the last. A call with the
            same arguments and a newly built policy continues from there, and gives the result of an uninterrupted run
            bit for bit; a finished run returns its History again. Only one process may use the file at a time.
        every: steps between checkpoints; each writes and flushes the whole state (``RunCheckpoint``).
        capture: play many steps in one launch: on a GPU a CUDA graph; on a CPU a loop compiled by numba (the extra
            ``fast``) if it can play the policy, else plain calls of many steps. True: a suitable number of steps; an
            integer: that number; "auto": as True, but single steps where they are faster or nothing else is possible.
            For index policies over ``ArmGP`` and ``auto`` over arms; the docs' page on GPUs says what cannot be
            captured. The History is the same up to rounding, and its ``meta["steps"]`` says how steps were played.
            ``seconds`` spreads the time of a block over its steps, and bad rewards are found at its end.

    Cost: the costs of the policy, the problem and ``Recorder``.

    CPU threads: a run uses one thread if a step reads fewer than two million numbers (``Policy.numbers_per_step``),
    because more could make it tens of times slower if another process needs the cores. Afterwards their number is
    restored. A number that you set yourself stays: by ``OMP_NUM_THREADS``, ``MKL_NUM_THREADS`` or
    ``torch.set_num_threads``.

    The same arguments give the same History, bit for bit, and a replicate gives the same run alone as in a batch. With
    another number of CPU threads (in operations on more than 32 768 numbers) or on a GPU, random numbers are the same,
    but sums are in another order: posteriors agree up to rounding, and arms differ only if two indices are that close.
    In the tests, every recipe chooses the same arms with one thread and with two.

    Raises ValueError before the first step if sizes disagree, if the problem ends before ``horizon``, if steps cannot
    be captured (with the reason), and for a checkpoint that is damaged, of another format version or of another run
    (with the differences). Raises ValueError during the run if a reward is NaN or infinite or an arm was not available:
    on a CPU before the policy learns the reward, on a GPU up to 100 steps later. An interruption propagates; a
    KeyboardInterrupt says after which step.
    """
    _check_sizes(policy, problem, horizon)
    if not isinstance(capture, bool) and capture != "auto":
        validation.positive_integer("capture", capture)
    device = problem.arms.device
    streams = ReplicateStreams(seed, policy.replicates, first=first_replicate, like=problem.arms)
    recorder = Recorder(policy, problem, horizon)
    saved = RunCheckpoint(
        checkpoint,
        every,
        horizon,
        lambda: what_is_run(policy, problem, horizon, seed, first_replicate),
        {"policy": policy, "noise": streams, "record": recorder},
    )
    with ExitStack() as around:
        around.enter_context(fitting(policy.numbers_per_step(horizon)))
        done = saved.resume()
        started, how_played = _wall_clock(device), "one by one"
        count = around.enter_context(_counter(progress, name_of(policy), done, horizon))

        def after(step: int) -> None:
            saved.after(step)
            count(step)

        def play(step: int) -> None:
            time, available = problem.time(step), problem.available(step)
            start = perf_counter()
            choice = policy.choose(time, available)
            choosing = perf_counter() - start
            recorder.chosen(step, choice.arm)
            reward = without_gradient(problem.pull(step, choice.arm, streams))
            measured = without_gradient(problem.measure(step, choice.arm, streams))
            outcomes = measured if policy.outcome_names else None
            recorder.pulled(step, choice.arm, reward, available)
            start = perf_counter()
            policy.learn(Observation(time, choice.arm, reward, choice.why, outcomes))
            traces = policy.trace() | problem.trace(step, choice.arm)
            recorder.learnt(step, time, choosing + perf_counter() - start, traces)
            after(step)

        if capture:
            most = None if isinstance(capture, bool | str) else capture
            try:
                how_played = play_captured(
                    policy,
                    problem,
                    horizon,
                    done,
                    streams,
                    recorder,
                    play,
                    after,
                    saved.steps_left,
                    most,
                    if_faster=capture == "auto",
                )
            except NotCaptured:
                if capture != "auto":
                    raise
                capture = False
        if not capture:
            for step in range(done + 1, horizon + 1):
                play(step)
    return recorder.history(
        {
            "policy": name_of(policy),
            "problem": name_of(problem),
            "seed": seed,
            "first_replicate": first_replicate,
            "device": str(device),
            "steps": how_played,
            "wall_seconds": saved.earlier_seconds + _wall_clock(device) - started,
            "versions": versions(),
        }
    )


def _check_sizes(policy: Policy, problem: Problem, horizon: int) -> None:
    validation.instance("policy", policy, Policy, "a Policy")
    validation.instance("problem", problem, Problem, "a Problem")
    validation.positive_integer("horizon", horizon)
    end = problem.horizon
    validation.require(end is None or horizon <= end, "horizon", horizon, f"at most the problem's {end}")
    S = policy.replicates
    expected = f"1 or the policy's {S}" if S > 1 else "the policy's 1"
    validation.require(problem.replicates in (1, S), "problem.replicates", problem.replicates, expected)
    expected = f"the problem's {problem.dim} (0: arms by index)"
    validation.require(policy.dim == problem.dim, "policy.dim", policy.dim, expected)
    expected = f"the problem's {problem.num_arms}"
    validation.require(policy.num_arms == problem.num_arms, "policy.num_arms", policy.num_arms, expected)
    named, measured = policy.outcome_names, problem.outcome_names
    expected = f"() or what the problem measures, {measured}"
    validation.require(named in ((), measured), "policy.outcome_names", named, expected)


def _wall_clock(device: torch.device) -> float:
    """The clock in seconds, read after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


@contextmanager
def _counter(progress: bool | str, title: str, done: int, horizon: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of every completed step, for the progress bar and for the message of a
    KeyboardInterrupt in the block."""
    bar, reached = None, done
    with ExitStack() as shown:
        if progress:
            from rich.console import Console
            from rich.progress import Progress

            console = Console(stderr=True)
            if console.is_terminal or console.is_jupyter:
                bar = shown.enter_context(Progress(console=console, transient=True))
                task = bar.add_task(progress if isinstance(progress, str) else title, total=horizon)

        def count(step: int) -> None:
            nonlocal reached
            reached = step
            if bar:
                bar.update(task, completed=step)

        try:
            yield count
        except KeyboardInterrupt as interrupt:
            interrupt.args = (f"after step {reached} of {horizon}",)
            raise

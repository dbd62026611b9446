"""Tests against a control under a daily level: coverage of the lifts' intervals, and what the level costs.

    python -m benchmarks.control [--fast] [--page] [--seed N] [--out DIR]

Every policy plays the same tests with the same noise and the same share of traffic to the control. Results go to
``tests.csv`` and ``RESULTS.md``, written after each test. About ten minutes on one core; ``PROTOCOL.md`` was written
before the seed that is reported was played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from torch import Tensor

from bandits_torch import recipes
from bandits_torch.models.arms.members import ArmMembers
from bandits_torch.policies import FixedShare, MemberScale, ModelAveraging, Observation
from bandits_torch.policies.control import ControlledPolicy
from bandits_torch.recipes.auto_members import LEVEL_RATES, LIFTS
from benchmarks import options, pages

SEED = 2000  # seeds below 1000 were played while the policy was written
SIZE = 10.0  # of the level, in standard deviations of lifts
SHARE = 0.1


@dataclass(frozen=True)
class Test:
    """Arms, the control among them; deviation of the noise; the level, of size 1, by time and a generator."""

    arms: int
    noise: float
    level: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    lift: float = 1.0
    share: float = SHARE

    __test__ = False


def _wave(day: float, *heights: float) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    return lambda t, _: sum(h * np.sin(2 * np.pi * (k + 1) * t / day + k) for k, h in enumerate(heights))


def _wandering(t: np.ndarray, random: np.random.Generator) -> np.ndarray:
    walk = np.cumsum(random.normal(size=len(t)))
    return np.sin(2 * np.pi * t / 100) + 0.5 * walk / np.abs(walk).max()


TESTS = {
    "smooth day": Test(3, 1.0, _wave(100, 1.0)),
    "two arms": Test(2, 1.0, _wave(100, 1.0)),
    "short day": Test(3, 1.0, _wave(24, 1.0)),
    "long day": Test(3, 1.0, _wave(400, 1.0)),
    "two peaks": Test(4, 1.0, _wave(100, 0.8, 0.6)),
    "day and night": Test(3, 1.0, lambda t, _: np.where(t % 100 < 50, 1.0, -1.0)),
    "ramps": Test(3, 1.0, lambda t, _: 2 * (t % 100) / 100 - 1),
    "wandering": Test(3, 1.0, _wandering),
    "eight arms": Test(8, 1.0, _wave(100, 1.0)),
    "much noise": Test(3, 3.0, _wave(100, 1.0)),
    "no lift at all": Test(3, 1.0, _wave(100, 1.0), lift=0.0),
}
KNOWN, KNOWN_TOO = "level known, auto", "level known, same members"
POLICIES = ("control", "today's auto", KNOWN, KNOWN_TOO)


def policy(name: str, test: Test, S: int, seed: int) -> ControlledPolicy:
    """The policy, with the test's share of traffic to arm 0."""
    if name == "control":
        made = recipes.auto(test.arms, control=0, control_share=test.share, replicates=S, seed=seed)
        assert isinstance(made, ControlledPolicy)
        return made
    inside = _same_members(test.arms, S) if name == KNOWN_TOO else recipes.auto(test.arms, replicates=S)
    return ControlledPolicy(inside, 0, test.share, seed=seed)


def _same_members(arms: int, S: int) -> ModelAveraging:
    """The members of ``auto`` with a control, but for the level, about which they know nothing."""
    grid = torch.cartesian_prod(torch.tensor(LIFTS), torch.tensor(LEVEL_RATES)).double()
    sizes, kernel = grid[:, 0].unique(return_inverse=True)
    shapes = sizes[:, None, None] * (torch.eye(arms).double() + 1.0)
    one = torch.ones(len(grid)).double()
    return ModelAveraging(
        ArmMembers(arms, shapes, kernel, one, grid[:, 1], replicates=S),
        sharing=FixedShare(one, S),
        scale=MemberScale(0 * one, one > 0, S),
        typical_gap=True,
        try_all=True,
        look_again=7.0,
    )


def play(name: str, title: str, S: int, T: int, seed: int) -> pd.DataFrame:
    """A row for each replicate of a test."""
    test = TESTS[title]
    random = np.random.default_rng([seed, list(TESTS).index(title)])
    worth = torch.from_numpy(test.lift * random.normal(size=(S, test.arms)))
    worth -= worth[:, :1].clone()
    noise = torch.from_numpy(test.noise * random.normal(size=(T, S)))
    level = SIZE * torch.from_numpy(np.asarray(test.level(np.arange(T), random), dtype=float))
    made, best = policy(name, test, S, seed), worth.amax(-1)
    regret, sent = torch.zeros(S).double(), torch.zeros(S).double()
    held = {promise: torch.ones(S, test.arms, dtype=torch.bool) for promise in (0.9, 0.95)}
    ends: tuple[Tensor, Tensor, Tensor] = made.lifts()
    for t in range(T):
        choice = made.choose(float(t))
        paid = worth.gather(-1, choice.arm.unsqueeze(-1)).squeeze(-1)
        by_coin = (choice.arm == 0) & (choice.why["proposed"] > 0)
        regret += best - paid
        sent += (best - paid) * by_coin
        unknown = 0.0 if name.startswith("level known") else level[t]
        made.learn(Observation(float(t), choice.arm, paid + unknown + noise[t], choice.why))
        for promise, kept in held.items():
            ends = made.lifts(promise)
            kept &= (ends[1] <= worth) & (worth <= ends[2])
    there, of_best = ends[1].isfinite()[:, 1:], worth.argmax(-1, keepdim=True)
    right = torch.where(worth > 0, ends[1] > 0, ends[2] < 0)[:, 1:]
    wrong = torch.where(worth > 0, ends[2] < 0, ends[1] > 0)[:, 1:]
    return pd.DataFrame(
        {
            "test": title,
            "policy": name,
            "replicate": range(S),
            "regret": regret,
            "sent": sent,
            "intervals": there.sum(-1),
            "arms": test.arms - 1,
            "held 90": (held[0.9][:, 1:] & there).sum(-1),
            "held 95": (held[0.95][:, 1:] & there).sum(-1),
            "right": right.sum(-1),
            "wrong": wrong.sum(-1),
            "width": (ends[2] - ends[1]).gather(-1, of_best).squeeze(-1),
        }
    )


_HEAD = """
{count} tests of {T} rewards, {S} draws of each (seed {seed}; [the protocol](../PROTOCOL.md) was written before it was
played). Lifts are independent and normal with deviation 1, the level is ten times that, and {share:.0%} of the traffic
goes to the control at random. *Control*: `auto(control=0)`. *Today's auto*: without `control=`, on the same rewards.
*Level known*: what the level adds is taken off each reward beforehand; `auto` then, and the members that `auto` with a
control has, but for the level.

* *regret*: in all, that of the traffic sent to the control included (*sent*), which no policy can avoid.
* *held*: of the intervals that there are (some arms are given up before 8 comparisons), the share that held the true
  lift at every look, after each reward. *Decided*: shares of all lifts that are decided rightly and wrongly, at 95 %.
* *width*: of the 95 % interval of the best arm at the end, where that is not the control; median.

"""


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "tests.csv")
    seed, T, S = int(table["seed"].iloc[0]), int(table["steps"].iloc[0]), table["replicate"].nunique()
    with_lift = table[table["test"] != "no lift at all"]
    sums = with_lift.groupby("policy")[["regret", "sent"]].mean()
    own = table[table["policy"] == "control"]
    total, chosen = sums["regret"], sums["regret"] - sums["sent"]
    each = own.groupby("test")[["held 90", "intervals", "arms"]].sum()
    worst = (1 - (each["intervals"] - each["held 90"]) / each["arms"]).min()
    held = each["held 90"].sum() / max(each["intervals"].sum(), 1)
    auto, known, same = POLICIES[1:]
    by_draw = with_lift.pivot(index=["test", "replicate"], columns="policy", values="regret")
    apart = by_draw["control"] - by_draw[same]
    answer = (
        f"With `control=` regret is {total['control']:.0f} a test, {total['control'] / total[known]:.3f} times that of "
        f"`auto` with the level known beforehand (asked: 1.1) and {total['control'] / total[same]:.3f} times that of "
        f"the same members with it (a difference of {apart.mean():.0f} ± {apart.sem():.0f}); today's `auto` has "
        f"{total[auto]:.0f}. Without what is sent to the control it is {chosen['control']:.0f} against "
        f"{chosen[known]:.0f}, {chosen[same]:.0f} and {chosen[auto]:.0f}. Of the intervals of 90 % {held:.1%} held the "
        f"lift at every look, and of all lifts at least {worst:.1%} in each test."
    )
    rows = []
    for title, part in table.groupby("test", sort=False):
        for name, one in part.groupby("policy", sort=False):
            known = one["width"][np.isfinite(one["width"]) & (one["width"] > 0)]
            some, sums = max(one["intervals"].sum(), 1), one.sum(numeric_only=True)
            held = [f"{sums[column] / some:.1%}" for column in ("held 90", "held 95")]
            decided = f"{sums['right'] / sums['arms']:.0%} / {sums['wrong'] / sums['arms']:.0%}"
            regret = [pages.with_error(one["regret"]), f"{one['sent'].mean():.1f}"]
            width = f"{known.median():.2f}" if len(known) else ""
            rows.append([title, name, *regret, *held, decided, width])
    columns = ["test", "policy", "regret", "sent", "held, of 90 %", "held, of 95 %", "decided", "width"]
    about = _HEAD.format(count=table["test"].nunique(), T=T, S=S, seed=seed, share=SHARE)
    path, title = folder / "RESULTS.md", "A control under a daily level"
    command = "python -m benchmarks.control"
    return pages.publish(path, title, answer, command, about, pages.markdown(columns, rows))


def main(
    seed: Annotated[int, typer.Option(help="Of lifts, noise and draws.")] = SEED,
    tests: Annotated[str, typer.Option(help="Comma-separated; default: all.")] = "",
    fast: options.Fast = False,
    page: options.PageAlone = False,
    out: options.Out = None,
) -> None:
    """Play every policy on every test, and write as it goes."""
    folder, rows = pages.results_folder(__file__, out, fast), []
    S, T = (2, 60) if fast else (20, 1000)
    for title in [] if page else options.chosen(tests, TESTS, "tests"):
        for name in POLICIES:
            rows.append(play(name, title, S, T, seed).assign(seed=seed, steps=T))
            one = rows[-1]
            pages.say(f"{title}, {name}: regret {one['regret'].mean():.1f}, sent {one['sent'].mean():.1f}")
        pages.save(pd.concat(rows), folder / "tests.csv")
        write_page(folder)
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()

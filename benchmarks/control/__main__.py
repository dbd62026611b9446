"""``python -m benchmarks.control``: tests against a control under a daily level: coverage of the lifts' intervals, and
what the level costs. All policies play the same tests, noise and share of traffic. Ten minutes of a core."""

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
from bandits_torch.models import ArmMembers
from bandits_torch.policies import ControlledPolicy, FixedShare, MemberScale, ModelAveraging, Observation
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
        return recipes.auto(test.arms, control=0, control_share=test.share, replicates=S, seed=seed)
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


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "tests.csv")
    with_lift = table[table["test"] != "no lift at all"]
    sums = with_lift.groupby("policy")[["regret", "sent"]].mean()
    own = table[table["policy"] == "control"]
    each = own.groupby("test")[["held 90", "intervals", "arms"]].sum()
    by_draw = with_lift.pivot(index=["test", "replicate"], columns="policy", values="regret")
    return pages.render(
        folder / "RESULTS.md",
        "control/RESULTS.md.jinja",
        table=table,
        policies=POLICIES,
        share=SHARE,
        total=sums["regret"],
        chosen=sums["regret"] - sums["sent"],
        apart=by_draw["control"] - by_draw[KNOWN_TOO],
        held=each["held 90"].sum() / max(each["intervals"].sum(), 1),
        worst=(1 - (each["intervals"] - each["held 90"]) / each["arms"]).min(),
    )


@options.with_page(write_page)
def main(folder: Path, seed: Annotated[int, typer.Option(help="Of lifts, noise and draws.")] = SEED) -> None:
    """Play every policy on every test, and keep each test's tables as they come."""
    rows = []
    for title in TESTS:
        for name in POLICIES:
            rows.append(play(name, title, 20, 1000, seed).assign(seed=seed, steps=1000))
            one = rows[-1]
            pages.say(f"{title}, {name}: regret {one['regret'].mean():.1f}, sent {one['sent'].mean():.1f}")
        pages.save(pd.concat(rows), folder / "tests.csv")


if __name__ == "__main__":
    options.command(main)()

"""``python -m benchmarks.auto.days``: ``auto`` with a history of tables with a day, drift and a jump; and a page."""

import math
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from bandits_torch import recipes, run
from bandits_torch.experiments import random_regret
from bandits_torch.kernels import ExponentialForgettingKernel, QuasiPeriodicKernel
from bandits_torch.policies import Policy
from benchmarks import options, pages
from benchmarks.auto.environments import CleanTable

HOURS, PAST = 1440, 288  # rows of a table, and of its first fifth, which is given as history
PRODUCTS, NOISE, DAY, WEEK = 30, 40.0, 24.0, 168.0
_LEVEL, _OWN, _COMMON, _DRIFT = 60.0, 80.0, 60.0, 50.0  # deviations of the parts
_DRIFT_HOURS = 300.0  # after so many a drift is forgotten to 1 / e
_RISE = (60.0, 120.0, 180.0)  # above what was best, of the three worst
DEVELOPMENT, REPORTED = range(100, 106), range(200, 220)  # seeds
MISLED = 3  # of the reported tables on which a wrong period is given
KEY = ("cycle", "seed", "policy")


class DaysTable(CleanTable):
    """Thirty products by the hour: level + day common to all + day of each product + drift + noise, and once the three
    worst jump above what is best. A day is a wave of one period and one of half of it, a week, of size ``week``, one of
    168 hours drawn alike. The first ``past`` rows are history, noise and all; regret is counted in expected rewards."""

    def __init__(
        self,
        seed: int,
        cycle: bool = True,
        *,
        week: float = 0.0,
        past: int = PAST,
        played: int = HOURS - PAST,
    ) -> None:
        g = torch.Generator().manual_seed(50_021 + seed)
        of_weeks = torch.Generator().manual_seed(1_050_021 + seed)
        hours = past + played

        def normal(*shape: int, by: torch.Generator = g) -> Tensor:
            return torch.randn(*shape, generator=by, dtype=torch.float64)

        time = torch.arange(hours, dtype=torch.float64).unsqueeze(-1)
        level = 1_000 + _LEVEL * normal(PRODUCTS)
        sizes = torch.tensor([0.9, 0.45]).double()[:, None, None] / math.sqrt(2)

        def cycle_of(period: float, by: torch.Generator) -> Tensor:
            waves, shared = normal(2, 2, PRODUCTS, by=by) * sizes, normal(2, 2, 1, by=by) * sizes
            found = torch.zeros(hours, PRODUCTS, dtype=torch.float64)
            for k in (1, 2):
                angle = 2 * math.pi * k * time / period
                both = _OWN * waves[k - 1] + _COMMON * shared[k - 1]
                found = found + angle.cos() * both[0] + angle.sin() * both[1]
            return found

        cycles = float(cycle) * cycle_of(DAY, g) + week * cycle_of(WEEK, of_weeks)
        kept = math.exp(-1 / _DRIFT_HOURS)
        steps, drift = math.sqrt(1 - kept**2) * normal(hours, PRODUCTS), [normal(PRODUCTS)]
        for step in steps[1:]:
            drift.append(kept * drift[-1] + step)
        expected = level + cycles + _DRIFT * torch.stack(drift)
        jump = past + played // 4 + int(torch.randint(0, played // 2, (), generator=g))
        around = expected[jump - 24 : jump].mean(0)
        worst = around.argsort()[:3]
        expected[jump:, worst] += around.max() + torch.tensor(_RISE).double() - around[worst]
        rewards = expected + NOISE * normal(hours, PRODUCTS)
        super().__init__(rewards[past:], history=rewards[:past])
        self._clean = expected[past:]


def known_cycles(
    cycles: Mapping[float, tuple[int, float]], rest: float, rate: float, width: float
) -> Callable[[DaysTable], Policy]:
    """``tv_gp_ucb`` that knows kernel and noise; over time cycles by their periods, each of so many harmonics and this
    weight, whose shape lasts five periods, and ``rest`` times exponential forgetting at this rate."""

    def built(problem: DaysTable) -> Policy:
        known, time = problem.knowledge, [scaled(ExponentialForgettingKernel(rate), rest)]
        for period, (order, weight) in reversed(cycles.items()):
            time.insert(0, scaled(QuasiPeriodicKernel(period, 1.0, 5 * period, order=order), weight))
        return recipes.tv_gp_ucb(
            problem.arms,
            known.kernel,
            known.noise_variance,
            prior_mean=known.prior_mean,
            time_kernel=sum(time[1:], time[0]),
            width=width,
        )

    return built


def scaled(kernel: Kernel, value: float) -> ScaleKernel:
    scaled = ScaleKernel(kernel).double()
    scaled.outputscale = torch.tensor(value, dtype=torch.float64)
    return scaled


def auto_with(**options: object) -> Callable[[DaysTable], Policy]:
    """``auto`` with the history and these options."""
    return lambda problem: recipes.auto(problem.arms, history=problem.history, **options)


RIVALS = {
    f"kernel with the true day: rate {rate:g}, share {share:g}, width {width:g}": known_cycles(
        {DAY: (3, share)}, 1 - share, rate, width
    )
    for rate, share, width in product((0.01, 0.03, 0.1), (0.3, 0.7), (1.0, 2.0))
}
FOUND, NONE, WRONGLY = "auto", "auto, cycles=None", "auto, cycles=17"
# The best of RIVALS on the seeds that choose.
RIVAL = "kernel with the true day: rate 0.01, share 0.7, width 1"
POLICIES = {FOUND: auto_with(), NONE: auto_with(cycles=None), WRONGLY: auto_with(cycles=17.0)} | RIVALS
PLAYED = (NONE, FOUND, RIVAL, WRONGLY)


def play(seed: int, cycle: bool, policies: tuple[str, ...]) -> pd.DataFrame:
    """A row for each policy: total regret, and that of random play. Where ``auto`` finds no cycle in a table without
    one, nothing is played: its choices are those of ``cycles=None``."""
    problem, rows = DaysTable(seed, cycle), []
    if not cycle:
        policies = (NONE, FOUND) if POLICIES[FOUND](problem).model.has_cycles else (FOUND,)
    by_chance = float(random_regret(problem, problem.horizon).sum())
    for name in policies:
        policy = POLICIES[name](problem)
        played = cycle or len(policies) > 1
        regret = float(run(policy, problem, problem.horizon, seed=0).regret.sum()) if played else math.nan
        row = {"cycle": cycle, "seed": seed, "policy": name, "regret": regret, "random": by_chance}
        rows.append(row | {"has_cycles": bool(policy.model.has_cycles) if "auto" in name else False})
    return pd.DataFrame(rows)


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "days.csv")
    found = table[table["policy"] == FOUND].groupby("cycle")["has_cycles"].agg(["sum", "count"])
    cells = table[table["cycle"]].pivot(index="seed", columns="policy", values="regret")
    return pages.render(
        folder / "DAYS.md",
        "auto/DAYS.md.jinja",
        auto={"FOUND": FOUND, "NONE": NONE, "RIVAL": RIVAL},
        played=table,
        found=found,
        both=cells[[FOUND, NONE, RIVAL]].dropna().sum(),
        without=table[~table["cycle"]].pivot(index="seed", columns="policy", values="regret").dropna(),
        cells=cells[[name for name in dict.fromkeys([*PLAYED, *RIVALS]) if name in cells]],
        chance=table[table["cycle"]].groupby("seed")["random"].first(),
    )


@options.with_page(write_page)
def main(
    folder: Path,
    seeds: Annotated[str, typer.Option(help="reported, development, or some by commas.")] = "reported",
) -> None:
    """Play, and write what came of it. On the seeds that choose, with a day, all settings of the rival."""
    wanted = options.seeds_of(seeds, {"reported": REPORTED, "development": DEVELOPMENT})
    for seed in wanted:
        for cycle in (True, False):
            played = (*PLAYED, *RIVALS) if seed in DEVELOPMENT else PLAYED
            if seed in REPORTED[MISLED:]:
                played = PLAYED[:-1]
            rows = play(seed, cycle, tuple(dict.fromkeys(played)))
            pages.keep(folder / "days.csv", rows, KEY)
            regrets = rows.set_index("policy")["regret"].to_dict()
            pages.say(f"{seed}, {'a day' if cycle else 'none'}: {regrets}")


if __name__ == "__main__":
    options.command(main)()

"""What do limits on moves cost, and what is saved by weighing the price of a move? ``python -m benchmarks.moves``."""

import math
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from torch import Tensor

from bandits_torch import Domain, History, Policy, make, recipes, run
from bandits_torch.policies import Choice, CostlyMoves
from bandits_torch.policies.wrapping import WrappingPolicy
from bandits_torch.problems import ContinuousProblem
from benchmarks import options, pages

PARTS = ("limits", "square", "arms")
LIMITS = (0.02, 0.05, 0.1, 0.2, math.inf)
PRICES = (0.3, 1.0, 3.0)
PROBLEMS = ("tv-gp", "switching", "gp")
_WAVES, _SPACE, _TIME = 256, 0.2, 60.0


class Drifting(ContinuousProblem):
    """Draws of a Gaussian process over the unit square and time, a sum of waves; one for each replicate."""

    functions_differ = True

    def __init__(self, seed: int, replicates: int) -> None:
        super().__init__(Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()), replicates, 0.1)
        drawn = []
        for k in range(replicates):
            generator = torch.Generator().manual_seed(seed + k)
            wave = torch.randn(_WAVES, 3, generator=generator, dtype=torch.float64)
            phase = 2 * math.pi * torch.rand(_WAVES, 1, generator=generator, dtype=torch.float64)
            drawn.append(torch.cat([wave / torch.tensor([_SPACE, _SPACE, _TIME]), phase], -1))
        self._waves = torch.stack(drawn)  # S x waves x 4
        self._grid = torch.cartesian_prod(*[torch.linspace(0, 1, 41).double()] * 2).unsqueeze(1)

    def expected(self, step: int, X: Tensor) -> Tensor:
        """Means of ``... x S x 2``."""
        wave = (X.unsqueeze(-2) * self._waves[..., :2]).sum(-1) + step * self._waves[..., 2]
        return math.sqrt(2 / _WAVES) * torch.cos(wave + self._waves[..., 3]).sum(-1)

    def best(self, step: int) -> Tensor:
        if step not in self._best:
            self._best[step] = self.expected(step, self._grid.expand(-1, self.replicates, -1)).amax(0)
        return self._best[step]


class LoweredIndex(WrappingPolicy):
    """An index policy whose indices are lowered by the price of a switch, but that of the arm played last."""

    def __init__(self, policy: Policy, price: float) -> None:
        self._around(policy)
        self.price, self.last = price, None

    def choose(self, time: float, available: Any = None) -> Choice:
        wanted = self.policy.choose(time, available)
        if self.last is None:
            return wanted
        mean, variance = self.marginals(time)
        width = self.policy.used_width.expand(self.replicates).unsqueeze(-1)
        index = mean + width * variance.clamp_min(0.0).sqrt()
        stays = torch.zeros_like(index).scatter(-1, self.last.unsqueeze(-1), self.price)
        return Choice((index + stays).argmax(-1), wanted.why)

    def learn(self, observation: Any) -> None:
        self.policy.learn(observation)
        self.last = observation.arm


def row(histories: list[History], price: float, **about: Any) -> dict[str, Any]:
    """What a step lost, was moved, and both, with the deviation of the mean over replicates."""
    arms = torch.cat([one.arms.double() for one in histories])
    moved = (arms[:, 1:] - arms[:, :-1]).abs().sum(-1) if arms.dim() == 3 else arms.diff(dim=1) != 0
    regret = torch.cat([(one.best - one.expected_rewards).mean(-1) for one in histories])
    distance = moved.double().mean(-1)
    net = regret + price * distance
    return about | {
        "price": price,
        "regret": float(regret.mean()),
        "moved": float(distance.mean()),
        "net": float(net.mean()),
        "error": float(net.std() / math.sqrt(len(net))),
    }


def over_the_square(part: str, seed: int, replicates: int, horizon: int) -> list[dict[str, Any]]:
    """Rows of limits, or of prices."""
    rows = []
    for setting in LIMITS if part == "limits" else (0.0, *PRICES):
        histories = []
        for one in range(seed, seed + replicates):  # an opening of its own for each function
            problem = Drifting(one, 1)
            chosen = {"max_move": setting, "start_at": torch.tensor([0.5, 0.5]).double()}
            chosen = chosen if part == "limits" else {"move_price": setting}
            policy = recipes.auto(problem.domain, seed=one, **chosen)
            histories.append(run(policy, problem, horizon, seed=one))
        about = {"part": part, "problem": "drifting draws", "policy": "auto", "seed": seed}
        if part == "limits":
            rows.append(row(histories, 0.0, **about, rule=f"{setting:g}"))
        elif setting:
            rows.append(row(histories, setting, **about, rule="weighed"))
        else:
            rows += [row(histories, price, **about, rule="ignored") for price in PRICES]
        pages.say(rows[-1])
    return rows


def over_arms(seed: int, replicates: int, horizon: int) -> list[dict[str, Any]]:
    """Rows of prices of a switch."""
    rows = []
    for name in PROBLEMS:
        for label, recipe, chosen in (
            ("auto", "auto", {}),
            ("tv_gp_ucb", "tv_gp_ucb", {}),
            ("tv_gp_ucb w=1", "tv_gp_ucb", {"width": 1.0}),
        ):
            for price in (0.0, *PRICES):
                for rule in ("weighed", "index") if price and recipe != "auto" else ("weighed",):
                    problem = make(name, num_arms=20, horizon=horizon, replicates=replicates, seed=seed)
                    policy = recipes.build(
                        recipe, problem, horizon=horizon, replicates=replicates, seed=seed, **chosen
                    )
                    if price:
                        lowered = rule == "index"
                        policy = (
                            LoweredIndex(policy, price) if lowered else CostlyMoves(policy, move_price=price)
                        )
                    history = run(policy, problem, horizon, seed=seed)
                    about = {"part": "arms", "problem": name, "policy": label, "seed": seed}
                    if price:
                        rows.append(row([history], price, **about, rule=rule))
                    else:
                        rows += [row([history], paid, **about, rule="ignored") for paid in PRICES]
            pages.say(pd.DataFrame(rows[-9:]).to_string())
    return rows


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "moves.csv", dtype={"rule": str})
    limits, priced = table[table["part"] == "limits"], table[table["part"] != "limits"]
    wide = priced.pivot_table(
        index=["part", "problem", "policy", "price"], columns="rule", values=["net", "moved"], sort=False
    )
    net = wide["net"].reindex(columns=["ignored", "weighed", "index"]) if len(wide) else pd.DataFrame()
    ratio = net["weighed"] / net["ignored"] if len(wide) else pd.Series(dtype=float)
    return pages.render(
        folder / "RESULTS.md",
        "moves/RESULTS.md.jinja",
        table=table,
        limits=limits.set_index("rule") if len(limits) else None,
        net=net,
        moved=wide["moved"] if len(wide) else None,
        ratios=dict(list(ratio.groupby(level=0))),
        rival=net.dropna(),
    )


@options.with_page(write_page)
def main(
    folder: Path,
    parts: Annotated[str, typer.Option(help="Of the page, separated by commas; all by default.")] = "",
    seed: Annotated[int, typer.Option(help="Of functions and noise.")] = 9000,
) -> None:
    """Play, and write what came of it; other parts of the table stay."""
    for part in options.chosen(parts, PARTS, "parts"):
        rows = over_arms(seed, 6, 300) if part == "arms" else over_the_square(part, seed + 100, 8, 100)
        pages.keep(folder / "moves.csv", pd.DataFrame(rows), ("part",))


if __name__ == "__main__":
    options.command(main)()

"""``python -m benchmarks.continuous.temperature``: the Temperature record by the clock, and what W-DBO keeps of it
(PROTOCOL-TEMPERATURE.md). Needs ``pip install wdbo-algo`` and ``intel_temperature.npz`` (benchmarks/data)."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import gpytorch
import numpy as np
import pandas as pd
import torch
import typer
from matplotlib.figure import Figure
from torch import Tensor

from bandits_torch import Domain, recipes
from bandits_torch.policies import Observation, Policy
from bandits_torch.problems import ContinuousProblem
from benchmarks import options, pages
from benchmarks.continuous.clock import EVALUATION, MOMENTS, play
from benchmarks.continuous.rivals import WDBO

AS_IT_SHIPS = "W-DBO as it ships"
LIMITED = {
    "W-DBO, noise at most .2": {"loudest": 0.2},
    "W-DBO, time-scale at least .05": {"least": 0.05},
    "W-DBO, noise at most .2, time-scale at least .05": {"least": 0.05, "loudest": 0.2},
    "W-DBO, time-scale at most .001": {"most": 0.001},
}
FEWEST = 2  # observations that W-DBO never goes below: held at any step, they are a collapse
NOISY = 0.5  # of standardised rewards: a fit with more noise than that takes most of them for noise
_RUN = ["policy", "seconds", "seed"]


def write_page(folder: Path) -> Path:
    """Write it and its picture beside the tables; returns its path."""
    runs, held = (pd.read_csv(folder / f"temperature{of}.csv") for of in ("", "-held"))
    kept = _kept(held)
    ships = kept.loc[AS_IT_SHIPS]
    own = runs[runs["policy"] == AS_IT_SHIPS].set_index("seed")["regret"]
    fell = ships["collapsed"]
    random = runs[runs["policy"] == "random"].set_index("seed")["regret"]
    by = runs.groupby("policy", sort=False)
    shares = {policy: of["regret"].mean() / random[of["seed"]].mean() for policy, of in by}
    played = [policy for policy in LIMITED if policy in kept.index.get_level_values(0)]
    _draw(held, folder / "temperature-held.png")
    return pages.render(
        folder / "TEMPERATURE.md",
        "continuous/TEMPERATURE.md.jinja",
        as_it_ships=AS_IT_SHIPS,
        fewest=FEWEST,
        noisy=NOISY,
        floor=list(LIMITED)[1],
        runs=runs,
        regret=runs.groupby("policy")["regret"].mean(),
        shares=dict(sorted(shares.items(), key=lambda share: round(share[1], 2))),
        kept=kept,
        ships=ships,
        of_fallen=own[fell[fell].index].mean(),
        of_others=own[fell[~fell].index].mean(),
        limited={policy: (kept.loc[policy], ships.loc[kept.loc[policy].index]) for policy in played},
        **_figures(held[held["policy"] == AS_IT_SHIPS]),
    )


def _kept(held: pd.DataFrame) -> pd.DataFrame:
    """A row for each run, by policy and seed."""
    rows = []
    for (policy, _, seed), run in held.groupby(_RUN, sort=False):
        run = run.sort_values("step").reset_index(drop=True)
        fallen = run["held"] <= FEWEST
        row = {"policy": policy, "seed": seed, "steps": len(run), "collapsed": bool(fallen.any())}
        row |= {"low": int(fallen.sum()), "mean": run["held"].mean(), "end": int(run["held"].iloc[-1])}
        longest = int(fallen.groupby((~fallen).cumsum()).sum().max())
        row |= {"longest": longest, "most": run["log_budget"].max()}
        if row["collapsed"]:
            first = int(fallen.idxmax())
            near = run.iloc[max(0, first - 2) : first + 1]
            row |= {"at": run["time"][first], "drop": int(near["held"].iloc[0])}
            row["noisy"] = bool((near["noise"] > NOISY).any())
        rows.append(row)
    return pd.DataFrame(rows).set_index(["policy", "seed"])


def _figures(held: pd.DataFrame) -> dict[str, float]:
    """Of W-DBO as it ships: what its fits say where it holds the fewest, how large the budget gets, how it lasts."""
    low = held["held"] <= FEWEST
    tiny = 100 * (held["lengthscale_time"] < 0.01).groupby(low).mean()
    since = low.groupby(held["seed"]).cummax()
    return {
        "noise": held[low]["noise"].median(),
        "tiny": tiny.get(True, 0.0),
        "at_others": tiny.get(False, 0.0),
        "budget": held["log_budget"].max(),
        "lasting": 100 * low[since].mean(),
    }


def _draw(held: pd.DataFrame, path: Path) -> None:
    shown = [AS_IT_SHIPS, *(policy for policy in LIMITED if (held["policy"] == policy).any())]
    figure = Figure(figsize=(3 * len(shown), 3))
    axes = figure.subplots(1, len(shown), sharey=True, squeeze=False)
    for axis, policy in zip(axes[0], shown, strict=True):
        for _, run in held[held["policy"] == policy].groupby("seed"):
            axis.step(run["time"], run["held"], where="post", linewidth=0.8)
        title = policy.removeprefix("W-DBO, ").removeprefix("W-DBO ").replace(", t", ",\nt")
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("time, shares of the day")
    axes[0, 0].set_ylabel("observations held")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


DAY = 14  # of March 2004: all 46 sensors of the published record are there
SECONDS = 60.0  # horizon
INITIAL = 15  # observations before W-DBO's first fit, as it ships
NOISE = 0.05  # of the record's standard deviation
_REACH = 0.3  # length-scale of the interpolation, of the longer side of the floor
_NUGGET = 1e-4


class Temperature(ContinuousProblem):
    """Temperature of a laboratory's floor over a day, in degrees C: between sensors the mean of a Gaussian process
    (Matern 5/2) about their average, between readings linear in time. A day takes ``MOMENTS`` steps."""

    def __init__(self, file: Path) -> None:
        record = np.load(file)
        days = record["time"].astype("datetime64[s]").astype("datetime64[D]")
        of_day = days == np.datetime64(f"2004-03-{DAY}")
        sensors = record["arms_mar14"]
        self.readings = torch.from_numpy(record["temperature"][of_day][:, sensors]).double()
        places = torch.from_numpy(record["xy"][sensors]).double()
        low, high = places.min(0).values, places.max(0).values
        super().__init__(Domain(torch.stack([low, high])), 1, NOISE * float(self.readings.std()), MOMENTS)
        self.places, self.hints = places, places
        self.kernel = gpytorch.kernels.MaternKernel(nu=2.5).double()
        self.kernel.lengthscale = _REACH * float((high - low).max())
        self.kernel.requires_grad_(False)
        K = self.kernel(places).to_dense() + _NUGGET * torch.eye(len(places), dtype=torch.float64)
        about = self.readings - self.readings.mean(1, keepdim=True)
        self.weights = torch.linalg.solve(K, about.T).T  # readings x sensors

    def expected(self, step: int, X: Tensor) -> Tensor:
        """Degrees at points (..., 1, 2): (..., 1)."""
        place = (step - 1) / (MOMENTS - 1) * (len(self.readings) - 1)
        first = min(int(place), len(self.readings) - 2)
        rest = place - first
        weights = torch.lerp(self.weights[first], self.weights[first + 1], rest)
        level = torch.lerp(self.readings[first], self.readings[first + 1], rest).mean()
        values = self.kernel(X.reshape(-1, 2), self.places).to_dense() @ weights + level
        return values.reshape(X.shape[:-1])


class WatchedWDBO(WDBO):
    """W-DBO that writes down what it keeps, its fitted length-scale over time (shares of the horizon) held between
    ``least`` and ``most`` and its noise variance (of standardised rewards) below ``loudest``, for model, criterion and
    budget alike."""

    def __init__(
        self,
        domain: Domain,
        seed: int,
        *,
        least: float = 0.0,
        most: float = math.inf,
        loudest: float = math.inf,
    ) -> None:
        super().__init__(domain, MOMENTS, INITIAL, seed)
        self.held: list[dict[str, float]] = []
        wdbo, fit = self._optimizer, self._optimizer.update_surrogate_model

        def limited(verbose: bool = False) -> None:
            fit(verbose=verbose)
            self.fitted = {"lengthscale_time": float(wdbo._lT), "noise": float(wdbo._noise)}
            if not least <= wdbo._lT <= most:
                wdbo._lT = min(max(wdbo._lT, least), most)
                wdbo._gpr.set_parameters(wdbo._lambda, wdbo._lS, wdbo._lT)
            if wdbo._noise > loudest:
                wdbo._noise = wdbo._gpr.likelihood.noise = loudest

        wdbo.update_surrogate_model = limited

    def heard(self, observation: Observation) -> None:
        super().heard(observation)
        wdbo = self._optimizer
        if wdbo._lT is not None:
            row = {"time": observation.time / self.horizon, "held": wdbo.dataset_size()}
            self.held.append(row | self.fitted | {"log_budget": float(np.log(wdbo._budget))})


PLAYERS: dict[str, Callable[[Domain, int], Policy]] = {
    AS_IT_SHIPS: WatchedWDBO,
    **{name: partial(WatchedWDBO, **limits) for name, limits in LIMITED.items()},
    "auto": lambda domain, seed: recipes.auto(domain, seed=seed),
    "random": lambda domain, seed: recipes.random(domain, seed=seed),
}


@options.with_page(write_page)
def main(
    folder: Path,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 10,
    only: Annotated[str, typer.Option(help="Players, by ';'; default: all.")] = "",
    data: options.Data = options.DATA,
) -> None:
    """Play what the tables lack, seed by seed."""
    path = folder / "temperature.csv"
    torch.set_num_threads(1)
    problem, kept = Temperature(data / "intel_temperature.npz"), pages.played(path, _RUN)
    for seed, name in product(range(seeds), options.chosen(only, PLAYERS, "only")):
        key = dict(zip(_RUN, (name, SECONDS, seed), strict=True))
        if tuple(key.values()) in kept:
            continue
        torch.manual_seed(seed)
        policy = PLAYERS[name](problem.domain, seed)
        regret, steps = play(policy, problem, SECONDS, EVALUATION, seed)
        row = {"regret": regret, "steps": len(steps), "ms": 1e3 * sum(steps) / len(steps)}
        pages.keep(path, pd.DataFrame([key | row]), [*key])
        pages.say(key | row)
        if isinstance(policy, WatchedWDBO):
            held = pd.DataFrame(policy.held).assign(**key, step=range(1, len(policy.held) + 1))
            pages.keep(folder / "temperature-held.csv", held, [*key, "step"])


if __name__ == "__main__":
    options.command(main)()

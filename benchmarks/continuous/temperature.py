"""The Temperature record by the clock, and what W-DBO keeps of it: ``python -m benchmarks.continuous.temperature``.

Needs ``pip install wdbo-algo`` and ``intel_temperature.npz`` (benchmarks/data). PROTOCOL-TEMPERATURE.md was written
first. Runs go to results/temperature.csv, what W-DBO keeps at each step to results/temperature-held.csv; the page
TEMPERATURE.md is drawn from both. Runs that a table holds are not played again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import gpytorch
import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
import typer
from torch import Tensor

from bandits_torch import recipes
from bandits_torch.domain import Domain
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.problems import ContinuousProblem
from benchmarks import options, pages
from benchmarks.continuous.clock import EVALUATION, MOMENTS, play
from benchmarks.continuous.rivals import WDBO
from benchmarks.pages import bullet, markdown, seeds_of, with_error

mpl.use("Agg")
AS_IT_SHIPS = "W-DBO as it ships"
LIMITED = (
    "W-DBO, noise at most .2",
    "W-DBO, time-scale at least .05",
    "W-DBO, noise at most .2, time-scale at least .05",
    "W-DBO, time-scale at most .001",
)
FEWEST = 2  # observations that W-DBO never goes below: held at any step, they are a collapse
NOISY = 0.5  # of standardised rewards: a fit with more noise than that takes most of them for noise
_RUN = ["policy", "seconds", "seed"]

_HEAD = """
The protocol, written first, is in `PROTOCOL-TEMPERATURE.md`: the floor of the Intel laboratory, 46 sensors, 14 March
2004, a day in {seconds:g} s of a clock that computing and evaluations advance. It needs `pip install wdbo-algo` (played
with 1.0.7) and the record (`benchmarks/data`). The day, the interpolation and the unit of the published 0.68 are not
known here, so regrets are in degrees, and as shares of that of random points: neither figure can be set beside 0.68 or
0.603. How many observations are kept can.

## Regret

{seeds}. Mean over seeds of the time-averaged regret, ± a standard error. Time is the processor's.

"""
_KEPT = """
## What W-DBO keeps

A run has collapsed if it holds {fewest} observations at some step; fewer it never keeps. "Noisy fits": of the
collapses, how many have a noise variance above {noisy:g} of the standardised rewards' at the collapse or at one of the
two steps before. "Drop": what was held two steps before the first collapse. "Longest": the most steps on end that
hold {fewest}. "Budget, ln": the logarithm of the largest removal budget, which begins at 0.

"""
_WHY = """
![Observations held](temperature-held.png)

## The mechanism

By the package's source (`WDBOOptimizer.clean`): a removal budget is multiplied by (1 + alpha)^(elapsed / l_T) at every
step, l_T the fitted length-scale over time. The observation that matters least is removed while the budget exceeds 1
plus its relative distance, and divides the budget by that. **After each removal all hyperparameters are fitted anew**,
to what is left, by 150 rounds of Adam without a prior. Only {fewest} observations are safe from it.

* Few observations, standardised, are as likely noise as signal. At steps with {fewest} held the fitted noise variance
  has the median {noise:.2f} of a total of about 1. If all is noise, no observation changes a prediction: distances are
  nearly 0 and whatever is affordable at all goes, down to {fewest}.
* Two rewards close in time that differ are explained best by an l_T that is tiny: below a hundredth of the day at
  {tiny:.0f} % of these steps, at other steps at {none:.0f} %. Then a single step multiplies the budget: it reaches
  e^{budget:.0f}, and nothing caps or resets it.
* A budget of that size pays for each new observation as it comes, so the state lasts: of the steps from the first
  collapse on {lasting:.0f} % hold {fewest}. It ends where the budget is used up before a fit is noise again.

{verdict}
"""


def write_page(folder: Path) -> Path:
    """Write it and its picture beside the tables; returns its path."""
    runs, held = (pd.read_csv(folder / f"temperature{of}.csv") for of in ("", "-held"))
    kept = _kept(held)
    ships = kept.loc[AS_IT_SHIPS]
    regret = runs.groupby("policy")["regret"].mean()
    own = runs[runs["policy"] == AS_IT_SHIPS].set_index("seed")["regret"]
    fell = ships["collapsed"].astype(bool)
    by_fate = [f"{part.mean():.2f}" for part in (own[fell[fell].index], own[fell[~fell].index])]
    answer = (
        f"As it ships W-DBO falls to {FEWEST} observations in {int(fell.sum())} of {len(ships)} runs, and ends with "
        f"{FEWEST} or 3 in {int((ships['end'] <= FEWEST + 1).sum())}. Its regret is {regret[AS_IT_SHIPS]:.2f} degrees "
        f"({by_fate[0]} in runs that fell, {by_fate[1]} in others), that of random points {regret['random']:.2f}, of "
        f"`auto` {regret['auto']:.2f}. {_spared(kept)}"
    )
    told = seeds_of(runs, "seed", "policy")
    text = _HEAD.format(seconds=runs["seconds"].iloc[0], seeds=told) + _regrets(runs)
    text += _KEPT.format(fewest=FEWEST, noisy=NOISY) + _table(kept)
    _draw(held, folder / "temperature-held.png")
    figures = _figures(held[held["policy"] == AS_IT_SHIPS])
    text += _WHY.format(fewest=FEWEST, **figures, verdict=_verdict(kept))
    path, command = folder / "TEMPERATURE.md", "python -m benchmarks.continuous.temperature"
    return pages.publish(path, "W-DBO on the Temperature record", answer, command, text)


def _regrets(runs: pd.DataFrame) -> str:
    random = runs[runs["policy"] == "random"].set_index("seed")["regret"]
    rows = []
    for policy, of in runs.groupby("policy", sort=False):
        regret = of.set_index("seed")["regret"]
        share = regret.mean() / random[regret.index].mean()
        steps = [f"{of[name].mean():.0f}" for name in ("steps", "ms")]
        rows.append([policy, len(regret), with_error(regret, 3), f"{share:.2f}", *steps])
    rows.sort(key=lambda row: float(row[3]))
    return markdown(["policy", "seeds", "degrees", "of random points", "steps", "ms a step"], rows)


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


def _table(kept: pd.DataFrame) -> str:
    heads = ["policy", "seed", "collapsed", "at", "drop", "steps at 2", "longest", "steps", "held, mean"]
    heads += ["at the end", "budget, ln"]
    rows = []
    for (policy, seed), run in kept.iterrows():
        fell = [f"{run['at']:.2f}", f"{run['drop']:.0f}"] if run["collapsed"] else ["", ""]
        ends = [run["longest"], run["steps"], f"{run['mean']:.1f}", run["end"], f"{run['most']:.1f}"]
        rows.append([policy, seed, "yes" if run["collapsed"] else "no", *fell, run["low"], *ends])
    text = markdown(heads, rows)
    few = []
    for policy, runs in kept.groupby(level=0, sort=False):
        fell = runs[runs["collapsed"]]
        noisy = f"{int(fell['noisy'].astype(bool).sum())} of {len(fell)}" if len(fell) else ""
        low = f"{100 * runs['low'].sum() / runs['steps'].sum():.0f} %"
        few.append([policy, f"{len(fell)} of {len(runs)}", noisy, low])
    return text + "\n" + markdown(["policy", "collapsed", "noisy fits", "steps at 2"], few)


def _figures(held: pd.DataFrame) -> dict[str, float]:
    """Of W-DBO as it ships: what its fits say where it holds the fewest, how large the budget gets, how it lasts."""
    low = held["held"] <= FEWEST
    tiny = 100 * (held["lengthscale_time"] < 0.01).groupby(low).mean()
    since = low.groupby(held["seed"]).cummax()
    return {
        "noise": held[low]["noise"].median(),
        "tiny": tiny.get(True, 0.0),
        "none": tiny.get(False, 0.0),
        "budget": held["log_budget"].max(),
        "lasting": 100 * low[since].mean(),
    }


def _spared(kept: pd.DataFrame) -> str:
    """What a floor under the length-scale over time does, in a sentence; nothing where it was not played."""
    floor = LIMITED[1]
    if floor not in kept.index.get_level_values(0):
        return ""
    limited = kept.loc[floor]
    ships = kept.loc[AS_IT_SHIPS].loc[limited.index]
    return (
        f"With a fitted length-scale over time of at least .05 of the day {limited['low'].sum()} of "
        f"{limited['steps'].sum()} steps hold {FEWEST} on {len(limited)} of the seeds, as it ships "
        f"{ships['low'].sum()} of {ships['steps'].sum()}: it is fits of a tiny one that keep it there."
    )


def _verdict(kept: pd.DataFrame) -> str:
    """What limits on the fits change, on the seeds that were played with them."""
    lines = []
    for policy in LIMITED:
        if policy not in kept.index.get_level_values(0):
            continue
        limited = kept.loc[policy]
        ships = kept.loc[AS_IT_SHIPS].loc[limited.index]
        own, as_shipped = (
            f"{of['low'].sum()} of {of['steps'].sum()} steps hold {FEWEST}, at most {of['longest'].max()} on end, and "
            f"the budget reaches e^{of['most'].max():.1f}"
            for of in (limited, ships)
        )
        seeds = ", ".join(map(str, limited.index))
        told = f"`{policy.removeprefix('W-DBO, ')}`: {own}; as it ships, on the same seeds ({seeds}): {as_shipped}."
        lines.append(bullet(told))
    head = "Limits on the fits, which model, criterion and budget then see:\n\n"
    return head + "".join(lines) if lines else ""


def _draw(held: pd.DataFrame, path: Path) -> None:
    import matplotlib.pyplot as plt

    shown = [AS_IT_SHIPS, *(policy for policy in LIMITED if (held["policy"] == policy).any())]
    figure, axes = plt.subplots(1, len(shown), figsize=(3 * len(shown), 3), sharey=True, squeeze=False)
    for axis, policy in zip(axes[0], shown, strict=True):
        for _, run in held[held["policy"] == policy].groupby("seed"):
            axis.step(run["time"], run["held"], where="post", linewidth=0.8)
        title = policy.removeprefix("W-DBO, ").removeprefix("W-DBO ").replace(", t", ",\nt")
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("time, shares of the day")
    axes[0, 0].set_ylabel("observations held")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


DAY = 14  # of March 2004: all 46 sensors of the published record are there
INITIAL = 15  # observations before W-DBO's first fit, as it ships
NOISE = 0.05  # of the record's standard deviation
_REACH = 0.3  # length-scale of the interpolation, of the longer side of the floor
_NUGGET = 1e-4


class Temperature(ContinuousProblem):
    """Temperature of a laboratory's floor over a day, in degrees C: between sensors the mean of a Gaussian process
    (Matern 5/2) about their average, between readings linear in time. A day takes ``MOMENTS`` steps.

    Args:
        file: ``intel_temperature.npz``.
    """

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
    """W-DBO that writes down what it keeps, and of whose fits two results may be held within limits, for model,
    criterion and budget alike.

    Args:
        least, most: limits of the length-scale over time, in shares of the horizon.
        loudest: limit of the noise variance, of standardised rewards.
    """

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

    def told(self, observation: Observation) -> None:
        super().told(observation)
        wdbo = self._optimizer
        if wdbo._lT is not None:
            told = {"time": observation.time / self.horizon, "held": wdbo.dataset_size()}
            self.held.append(told | self.fitted | {"log_budget": float(np.log(wdbo._budget))})


PLAYERS: dict[str, Callable[[Domain, int], Policy]] = {
    AS_IT_SHIPS: WatchedWDBO,
    LIMITED[0]: lambda domain, seed: WatchedWDBO(domain, seed, loudest=0.2),
    LIMITED[1]: lambda domain, seed: WatchedWDBO(domain, seed, least=0.05),
    LIMITED[2]: lambda domain, seed: WatchedWDBO(domain, seed, least=0.05, loudest=0.2),
    LIMITED[3]: lambda domain, seed: WatchedWDBO(domain, seed, most=0.001),
    "auto": lambda domain, seed: recipes.auto(domain, seed=seed),
    "random": lambda domain, seed: recipes.random(domain, seed=seed),
}


def main(
    seconds: Annotated[float, typer.Option(help="Horizon.")] = 60.0,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 10,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    only: Annotated[str, typer.Option(help="Players, by ';'; default: all.")] = "",
    data: options.Data = options.DATA,
    out: options.Out = None,
    page: options.PageAlone = False,
) -> None:
    """Play what the tables lack, seed by seed, then write the page."""
    folder = pages.results_folder(__file__, out)
    path = folder / "temperature.csv"
    if not page:
        torch.set_num_threads(1)
        problem, kept = Temperature(data / "intel_temperature.npz"), pages.played(path, _RUN)
        for seed in range(first, first + seeds):
            for name in options.chosen(only, PLAYERS, "only"):
                key = dict(zip(_RUN, (name, seconds, seed), strict=True))
                if tuple(key.values()) in kept:
                    continue
                torch.manual_seed(seed)
                policy = PLAYERS[name](problem.domain, seed)
                regret, steps = play(policy, problem, seconds, EVALUATION, seed)
                told = {"regret": regret, "steps": len(steps), "ms": 1e3 * sum(steps) / len(steps)}
                pages.keep(path, pd.DataFrame([key | told]), [*key])
                pages.say(key | told)
                if isinstance(policy, WatchedWDBO):
                    held = pd.DataFrame(policy.held).assign(**key, step=range(1, len(policy.held) + 1))
                    pages.keep(folder / "temperature-held.csv", held, [*key, "step"])
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()

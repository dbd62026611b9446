"""Races against the clock: a function moves on while a policy thinks, so that a slow step costs.

The clock is simulated: it advances by the processor seconds that a policy takes to choose and to learn, and by a fixed
time for each evaluation. Between two choices the last point stays in force: the time-averaged regret is the mean of
best(t) - f_t(point in force at t) over ``GRID`` moments of the horizon.
"""

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from time import process_time
from typing import Any

import pandas as pd
import torch
from botorch.test_functions import Rastrigin, Rosenbrock
from torch import Tensor

from bandits_torch import make, recipes, validation
from bandits_torch.policies import Observation, Policy
from bandits_torch.problems import ContinuousProblem, DynamicFunction
from benchmarks.continuous.race import AUTO, INITIAL, OURS, PROBLEMS, has_wdbo, ours
from benchmarks.continuous.rivals import WDBO, PlainBoTorch, XoptTimeDependent
from benchmarks.pages import append, beyond, played, render, say, seeds_of, too_few, with_error

MOMENTS = 1_200  # steps in which a function moves over a horizon, whatever its seconds
GRID = 120  # of them, where regret is counted
EVALUATION = 0.5  # seconds, of one evaluation
_MADE = {
    "dynamic-rosenbrock": lambda: Rosenbrock(dim=4, bounds=[(-2.0, 2.0)] * 4, dtype=torch.float64),
    "dynamic-rastrigin": lambda: Rastrigin(dim=3, bounds=[(-1.5, 1.5)] * 3, dtype=torch.float64),
}
FUNCTIONS = (*PROBLEMS, *_MADE)
TURNED = {f"turned-{name.removeprefix('dynamic-')}": name for name in FUNCTIONS[::2]}
_SHIFT = 0.35  # the furthest that the middle is moved along each input, of its side
COLUMNS = ["problem", "policy", "replicate", "horizon", "evaluation", "regret", "queries", "ms", "last_ms"]
LAST = 10  # steps at the end whose time is kept


class Turned(ContinuousProblem):
    """A function of the unit cube turned about its middle c and shifted: f'_t(x) = f_t(c + Q (x - c - s)), Q a random
    rotation and s uniform in [-0.35, 0.35]. Where that leaves the cube it is mirrored back. What is known is that of f.
    """

    def __init__(self, inner: ContinuousProblem, seed: int) -> None:
        super().__init__(inner.domain, 1, float(inner.noise_scale), inner.horizon)
        generator = torch.Generator().manual_seed(seed)
        square = torch.randn(self.dim, self.dim, generator=generator, dtype=torch.float64)
        Q, R = torch.linalg.qr(square)
        self.rotation = Q * R.diagonal().sign()
        self.rotation[0] *= torch.linalg.det(self.rotation).sign()
        uniform = torch.rand(self.dim, generator=generator, dtype=torch.float64)
        self.shift, self.inner = _SHIFT * (2 * uniform - 1), inner
        self.knowledge = inner.knowledge
        self.hints = 0.5 + self.shift + (inner.hints - 0.5) @ self.rotation

    def expected(self, step: int, X: Tensor) -> Tensor:
        where = 0.5 + (X - 0.5 - self.shift) @ self.rotation.mT
        return self.inner.expected(step, 1 - (1 - where.remainder(2)).abs())


def function(name: str) -> ContinuousProblem:
    """One of ``FUNCTIONS``, over ``MOMENTS`` steps, or of ``TURNED``, which is turned by its number in that order."""
    if name in TURNED:
        return Turned(function(TURNED[name]), list(TURNED).index(name))
    if name in _MADE:
        return DynamicFunction(_MADE[name](), horizon=MOMENTS)
    return make(name, horizon=MOMENTS)


def racers(problem: ContinuousProblem, seed: int) -> dict[str, Callable[[], Policy]]:
    """Every policy by name; those of packages that are not installed are left out. Times are in moments."""

    def plain(over_time: bool) -> Callable[[], Policy]:
        return lambda: PlainBoTorch(
            problem.domain, MOMENTS, INITIAL, seed, acquisition="ucb", over_time=over_time
        )

    policies: dict[str, Callable[[], Policy]] = {
        AUTO: lambda: recipes.auto(problem.domain, seed=seed),
        OURS[0]: lambda: ours(OURS[0], problem, MOMENTS, seed),
        "BoTorch UCB, time an input": plain(True),
        "BoTorch UCB, blind to time": plain(False),
    }
    if has_wdbo():
        policies["W-DBO"] = lambda: WDBO(problem.domain, MOMENTS, INITIAL, seed)
    if importlib.util.find_spec("xopt") is not None:
        policies["Xopt, time-dependent UCB"] = lambda: XoptTimeDependent(
            problem.domain, MOMENTS, INITIAL, seed
        )
    return policies


def play(
    policy: Policy,
    problem: ContinuousProblem,
    horizon: float,
    evaluation: float,
    seed: int,
    seconds: Callable[[], float] = process_time,
) -> tuple[float, list[float]]:
    """Time-averaged regret over ``horizon`` seconds by the clock ``seconds``, and the seconds of each step.

    A point is in force from the moment that it is chosen; before the first one, that one. Its reward is that of this
    moment, and is learned ``evaluation`` seconds later.
    """
    validation.require(horizon > 0, "horizon", horizon, "> 0 seconds")
    validation.require(evaluation > 0, "evaluation", evaluation, "> 0 seconds")
    noise = torch.Generator().manual_seed(seed)
    now, steps, points, since = 0.0, [], [], []
    while True:
        begun = seconds()
        choice = policy.choose(_position(now, horizon))
        took = seconds() - begun
        if now + took >= horizon:
            steps.append(took)
            break
        now += took
        points.append(choice.arm.detach())
        since.append(now)
        with torch.no_grad():
            reward = problem.expected(round(_position(now, horizon)), choice.arm)
        reward = reward + problem.noise_scale * torch.randn(1, generator=noise, dtype=torch.float64)
        at, now = _position(now, horizon), now + evaluation
        begun = seconds()
        policy.learn(Observation(at, choice.arm, reward, choice.why))
        learning = seconds() - begun
        steps.append(took + learning)
        now += learning
        if now >= horizon:
            break
    return _regret(problem, points, since, horizon), steps


def _position(now: float, horizon: float) -> float:
    """A time in seconds, from 1 to ``MOMENTS``."""
    return 1 + (MOMENTS - 1) * min(now / horizon, 1.0)


def _regret(problem: ContinuousProblem, points: list[Tensor], since: list[float], horizon: float) -> float:
    """The mean over ``GRID`` moments of best(t) - f_t(the point in force); a policy without a point has none."""
    validation.require(len(points) > 0, "horizon", horizon, "long enough for a first point")
    begun, total, moments = torch.tensor(since), 0.0, range(1, MOMENTS + 1, MOMENTS // GRID)
    for moment in moments:
        now = horizon * (moment - 1) / (MOMENTS - 1)
        latest = max(int((begun <= now).sum()) - 1, 0)
        with torch.no_grad():
            value = problem.expected(moment, points[latest])
        total += float(problem.best(moment)[0] - value[0])
    return total / len(moments)


def race(
    names: Iterable[str],
    horizon: float,
    replicates: int,
    table: Path,
    *,
    evaluation: float = EVALUATION,
    only: Iterable[str] = (),
) -> None:
    """Play what the table lacks, replicate by replicate, and write it after each run."""
    kept = played(table, COLUMNS[:3])
    wanted, problems = set(only), {name: function(name) for name in names}
    for replicate in range(replicates):
        for name, problem in problems.items():
            built = racers(problem, replicate)
            validation.require(
                wanted <= set(built), "only", sorted(wanted), f"policies among {'; '.join(built)}"
            )
            for policy, build in built.items():
                if (name, policy, replicate) in kept or (wanted and policy not in wanted):
                    continue
                torch.manual_seed(replicate)
                regret, steps = play(build(), problem, horizon, evaluation, replicate)
                late = steps[-LAST:]
                timing = [len(steps), 1e3 * sum(steps) / len(steps), 1e3 * sum(late) / len(late)]
                row = [name, policy, replicate, horizon, evaluation, regret, *timing]
                append(table, pd.DataFrame([row], columns=COLUMNS))
                say(f"{name} {policy} {replicate}: {regret:.3f}, {len(steps)} steps, {timing[1]:.0f} ms")


RIVAL, SEEDS = "W-DBO", 5  # seeds that a function and policy should have
_STEPS = {"queries": "steps", "ms": "ms a step", "last_ms": "ms at the end"}
WORSE, LONGEST = 1.1, 50.0  # asked: times the best regret; milliseconds of a step at the end


def write_page(results: Path) -> Path:
    """Write it beside the tables ``clock-SECONDS.csv`` and ``turned-SECONDS.csv``; returns its path."""
    tables = []
    for kind in ("clock", "turned"):
        of_kind = [table for path in results.glob(f"{kind}-*.csv") if len(table := pd.read_csv(path))]
        tables += sorted(of_kind, key=lambda table: table["horizon"].iloc[0])
    asked = {"worse": WORSE, "longest": LONGEST, "asked_seeds": SEEDS}
    races = [_race(table) for table in tables]
    return render(results / "CLOCK.md", "continuous/CLOCK.md.jinja", races=races, **asked)


def _race(table: pd.DataFrame) -> dict[str, Any]:
    """What the page says of a horizon: regret, steps, time of a step and what was asked, of runs that all have played;
    what ``auto`` has beside W-DBO alone, and what is missing."""
    horizon = table["horizon"].iloc[0]
    turned = table["problem"].str.startswith("turned-").all()
    every = table.assign(problem=table["problem"].str.removeprefix("dynamic-"))
    runs = every.pivot(index=["problem", "replicate"], columns="policy", values="regret")
    complete = runs.dropna().reset_index()[["problem", "replicate"]]
    table = every.merge(complete, on=["problem", "replicate"])
    by = table.groupby(["policy", "problem"], sort=False)["regret"]
    mean, shown = by.mean().unstack(), by.agg(with_error, digits=3).unstack()
    rank = mean.rank().mean(axis=1).sort_values(kind="stable")
    shown = shown.where(mean.ne(mean.min()), "**" + shown + "**").loc[rank.index]
    shown.insert(0, "mean rank", rank.map("{:.2f}".format))
    steps = table.groupby("policy")[["queries", "ms", "last_ms"]].mean().loc[rank.index]
    rivals = [name for name in mean.index if name not in (AUTO, *OURS)]
    ratio = mean.loc[AUTO] / mean.loc[rivals].min()
    missing, hours = _missing(every)
    both = runs.reindex(columns=[AUTO, RIVAL]).dropna()
    return {
        "title": f"{horizon:g} s{', functions turned and shifted' if turned else ''}",
        "turned": turned,
        "evaluation": table["evaluation"].iloc[0],
        "seeds": seeds_of(table, "replicate", "problem"),
        "few": too_few(table, "replicate", "problem"),
        "regret": shown.reset_index(),
        "steps": steps.map("{:.0f}".format).rename(columns=_STEPS).reset_index(),
        "rivals": rivals,
        "many": len(mean.columns),
        "of": 4 if turned else 8,
        "less": int((ratio < 1).sum()),
        "held": _held(runs.dropna(), rivals),
        "ratio": ratio,
        "ms": steps.loc[AUTO, "ms"],
        "last": steps.loc[AUTO, "last_ms"],
        "pair": both if len(both) > len(runs.dropna()) else None,  # where both have more runs than all have
        "missing": missing,
        "hours": hours,
    }


def _held(runs: pd.DataFrame, rivals: list[str]) -> int:
    """On how many functions ``auto`` has not more regret than any rival, beyond two standard errors."""
    more = {name: [own[AUTO] - own[rival] for rival in rivals] for name, own in runs.groupby("problem")}
    return sum("more" not in [beyond(one, "less", "level", "more") for one in each] for each in more.values())


def _missing(table: pd.DataFrame) -> tuple[list[str], float]:
    """What the table lacks of five seeds, and the hours that it would take."""
    runs = table.groupby(["policy", "problem"], sort=False)["replicate"].count().unstack(fill_value=0)
    lacking = (SEEDS - runs.clip(upper=SEEDS)).sum(axis=1)
    seconds = (table["queries"] * table["ms"] / 1e3).groupby(table["policy"]).mean()
    missing = [f"{policy} {count} of {seconds[policy]:.0f} s" for policy, count in lacking.items() if count]
    return missing, float((lacking * seconds).sum()) / 3600

"""Hong, Li & Tewari (2023), section 6 and appendix J: switching and cosine environments, every algorithm in one run.

    python -m benchmarks.papers hong [PART ...] [--fast] [--out DIR]

| part | what |
|---|---|
| `1`, `switching` | figure 1: arms on the sphere, one switch and two |
| `2`, `cosine` | figure 2: cosine waves that stand and that move |
| `correlated`, `drift` | not in the paper: correlated arms with switches; slow random drift |
| `detection` | false alarms and delays of the calibrated preset |
| `theory` | the block lengths of OPKB's theory constants, and why nobody would wait for them |
| `tuning` | the settings tried, on one switch and other replicates; only when asked for by name |
| `grids` | the same in grids of equal size, of the algorithms that the paper tunes; only when asked for by name |
| `report` | the tables, pictures and the page from the runs there are |

Without a part all but `tuning` and `grids` are played: T = 10 000, 25 replicates of seed 1 (50 on the cosine that
stands, 3 at the paper's width of 2 048). A run is kept in DIR/runs and not played again while it is there. Each part
ends with the report: DIR/regret.csv, totals.csv, claims.csv, pictures and RESULTS.md; rows of runs that are there no
more stay.
"""

from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
from matplotlib.figure import Figure

from bandits_torch import History, make, recipes, run
from bandits_torch.experiments import mark_detections, plot_regret
from bandits_torch.policies import Constants
from bandits_torch.theory import features_of_covariance, fractional_gain
from benchmarks.pages import replaced, save, say
from benchmarks.papers import _hong_environments as of
from benchmarks.papers import _hong_page
from benchmarks.papers._folders import Job
from benchmarks.papers._folders import run as run_parts

# Part: which algorithms play on which environments.
RACES: dict[str, dict[str, list[str]]] = of.PLAYED["races"]


def main(arguments: list[str]) -> None:
    parts = {part: partial(race, part) for part in RACES} | {"detection": detection, "theory": theory}
    known = {"1": parts["switching"], "2": parts["cosine"], **parts}
    for name, searches in (("tuning", of.TUNING), ("grids", of.EQUAL_GRIDS)):
        known[name] = partial(tuning, name, searches)
    more = {"--replicates": {"type": int, "default": of.REPLICATES, "help": "of the races"}}
    fast = "2 replicates, 60 steps: seconds"
    run_parts("hong", __doc__, arguments, known, report, fast=fast, default=parts, more=more)


def race(part: str, job: Job) -> None:
    for name, algorithms in RACES[part].items():
        for algorithm in algorithms:
            count = 2 if job.fast else of.replicates_of(name, algorithm, job.asked.replicates)
            history = of.kept(name, algorithm, _horizon(job), count, job.out / "runs")
            regret, error = history.mean_cumulative_regret, history.standard_error
            say(f"{name:22} {algorithm:22} {regret:8.0f} +- {error:.0f}")


def tuning(name: str, searches: dict[str, of.Search], job: Job) -> None:
    path = job.out / f"{name}.csv"
    path.unlink(missing_ok=True)
    for algorithm, search in searches.items():
        of.tune(algorithm, search, path, job.fast)


def theory(job: Job) -> None:
    """The schedule that the theory's constants make of the first environment."""
    horizon = of.HORIZON
    problem, _ = of.environment("sphere-one-switch", horizon, 1)
    phi = features_of_covariance(problem.knowledge.kernel(problem.arms).to_dense().detach())
    lines = []
    for name, constants in (("theory", Constants.theory()), ("tuned", Constants.tuned())):
        gain = float(fractional_gain(phi, constants.sigma / horizon))
        lines.append(f"{name}: {constants.schedule(problem.num_arms, horizon, gain).describe()}")
    (job.out / "theory.txt").write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n")


def report(job: Job) -> None:
    """Tables and pictures of the runs there are, then the page."""
    rows, totals, out = [], [], job.out
    for races in RACES.values():
        for name, algorithms in races.items():
            played = _played(name, algorithms, job)
            if not played:
                continue
            drawn = [a for a in algorithms if ", m = " not in a and of.EQUAL not in a]
            if all(a in played for a in drawn):  # else it stays as it is
                shown = {a: history for a, history in played.items() if of.EQUAL not in a}
                _draw(name, shown, job).savefig(out / f"{name}.png")
            for algorithm, history in played.items():
                rows.append(of.row(name, algorithm, history))
                totals.append(_totals(name, algorithm, history))
    if rows:
        save(_beside_kept(pd.DataFrame(rows), out / "regret.csv"), out / "regret.csv", 4)
        save(_beside_kept(pd.concat(totals), out / "totals.csv"), out / "totals.csv", None)
    _hong_page.write(out)


def _draw(name: str, played: dict[str, History], job: Job) -> Figure:
    switches = of.changes(name, _horizon(job))
    most = max(history.replicates for history in played.values())
    named = {a if h.replicates == most else f"{a} ({h.replicates} runs)": h for a, h in played.items()}
    return cast(Figure, mark_detections(plot_regret(named), named, switches).figure)


def _beside_kept(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The rows of a table, and of the file those of other races, in the order of ``RACES``."""
    if path.exists():
        table = replaced(pd.read_csv(path), table, ("environment", "algorithm"))
    order = [(name, a) for races in RACES.values() for name, algorithms in races.items() for a in algorithms]
    place = [order.index(tuple(key)) for key in table[["environment", "algorithm"]].to_numpy()]
    return table.assign(place=place).sort_values("place", kind="stable").drop(columns="place")


def _horizon(job: Job) -> int:
    return 60 if job.fast else of.HORIZON


def _played(name: str, algorithms: list[str], job: Job) -> dict[str, History]:
    """The runs that are there already, of each algorithm the one of most replicates."""
    found = {}
    for algorithm in algorithms:
        at = partial(of.path_of, name, algorithm, _horizon(job), folder=job.out / "runs")
        sizes = [n for n in range(1, 101) if at(replicates=n).exists()]
        if sizes:
            found[algorithm] = of.kept(name, algorithm, _horizon(job), max(sizes), job.out / "runs")
    return found


def _totals(name: str, algorithm: str, history: History) -> pd.DataFrame:
    """Regret of each replicate: of the whole run, and until 0.3 T, where one switch comes."""
    sums = history.cumulative_regret.round(decimals=2)
    until = sums[:, max(0, round(0.3 * history.horizon) - 2)]
    columns = {"environment": name, "algorithm": algorithm, "replicate": range(history.replicates)}
    return pd.DataFrame(columns | {"regret": sums[:, -1].numpy(), "until 0.3 T": until.numpy()})


_RUN_LENGTHS = (1e3, 1e4, 1e5)


def detection(job: Job) -> None:
    """Write false_alarms.csv and delays.csv."""
    horizon, replicates = (40, 2) if job.fast else (5000, 20)
    rows = []
    for name, one in of.PLAYED["unchanging"].items():
        for run_length in _RUN_LENGTHS:
            history = _play(**one, horizon=horizon, replicates=replicates, run_length=run_length)
            alarms, steps = int(history.trace["restarts"][:, -1].sum()), horizon * replicates
            rows.append((name, f"{run_length:.0e}", steps, alarms, f"{steps / run_length:.3g}"))
            say(rows[-1])
    columns = ["problem", "run length A", "steps", "false alarms", "promised at most, on average"]
    save(pd.DataFrame(rows, columns=columns), job.out / "false_alarms.csv", None)
    horizon, replicates = (40, 2) if job.fast else (2000, 50)
    found = []
    for name, one in of.PLAYED["changing"].items():
        for change in ("flip", "fresh"):
            options = one["options"] | {"change": change}
            history = _play(one["problem"], options, horizon, replicates, 1e5)
            found.append({"problem": name, "change": change, **_delays(history, horizon // 2)})
            say(found[-1])
    save(pd.DataFrame(found), job.out / "delays.csv", None)


def _play(problem: str, options: dict[str, Any], horizon: int, replicates: int, run_length: float) -> History:
    timed = {} if problem == "gp" else {"horizon": horizon}
    made = make(problem, replicates=replicates, seed=of.SEED, **timed, **options)
    given = {"replicates": replicates, "horizon": horizon, "seed": of.SEED, "run_length": run_length}
    policy = recipes.build("ada_opkb_calibrated", made, **given)
    return run(policy, made, horizon, seed=of.SEED, capture="auto")


def _delays(history: History, switch: int) -> dict[str, Any]:
    """Steps from the switch to the first detection after it; pulls of a changed arm are what it waits for."""
    detected = history.trace["detected"] > 0
    before, after = detected[:, : switch - 1], detected[:, switch - 1 :]
    found = after.any(-1)
    steps = after.to(torch.uint8).argmax(-1)[found].double()
    quantile = (lambda q: float(steps.quantile(q))) if len(steps) else (lambda q: float("nan"))
    return {
        "replicates": history.replicates,
        "median delay": quantile(0.5),
        "90 % within": quantile(0.9),
        "longest": quantile(1.0),
        "missed": int((~found).sum()),
        "false alarms before": int(before.sum()),
    }

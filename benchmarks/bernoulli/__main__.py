"""``python -m benchmarks.bernoulli``: race the ten records, and write the page."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from bandits_torch import recipes, run
from bandits_torch.experiments.comparison import compare
from bandits_torch.experiments.earned import earned, random_regret
from bandits_torch.problems import Replay
from benchmarks import options, pages
from benchmarks.bernoulli.problems import KINDS, drawn

RIVALS = ("discounted_ts", "glr_kl_ucb", "sliding_window_ucb", "epsilon_greedy")
REPORTED, REPLICATES = 7000, 4


def play(kind: str, seed: int) -> pd.DataFrame:
    """A row per policy: what the arms that it pulled had to pay, what it earned, and whether it is advised."""
    warnings.simplefilter("ignore", UserWarning)
    chances, record = drawn(kind, seed)
    problem = Replay(torch.from_numpy(record), replicates=REPLICATES)

    def build(name: str, part: Replay, steps: int) -> recipes.Policy:
        return recipes.build(name, part, replicates=REPLICATES, horizon=steps, seed=seed)

    horizon = problem.horizon
    names = ("auto", "random", *RIVALS)
    histories = {name: run(build(name, problem, horizon), problem, horizon, seed=seed) for name in names}
    random = random_regret(problem, horizon)
    gained = earned(problem, histories, random)
    compared = compare(problem, histories, random, build, seed, gained)
    advice = compared.advice
    advised = advice.taken or advice.policy
    true = torch.from_numpy(chances[-horizon:])
    rows = [
        {
            "kind": kind,
            "seed": seed,
            "policy": name,
            "expected": float(true.gather(1, history.arms.T).sum(0).mean()),
            "earned": gained.policies[name],
            "advised": name == advised,
            "verdict": advice.verdict,
        }
        for name, history in histories.items()
    ]
    return pd.DataFrame(rows).assign(
        random=float(true.mean(1).sum()), attainable=gained.attainable, best=float(true.amax(1).sum())
    )


def write_page(folder: Path) -> Path:
    """Write ``RESULTS.md`` beside the table it is made from."""
    table = pd.read_csv(folder / "totals.csv")
    rows, shares = [], {"advised": [], "auto": []}
    for kind in KINDS:
        own = table[table["kind"] == kind].set_index("policy")
        if own.empty:
            continue
        best = own.loc[list(RIVALS), "expected"].max()
        advised = own.index[own["advised"]][0]
        shares["advised"].append(own.loc[advised, "expected"] / best)
        shares["auto"].append(own.loc["auto", "expected"] / best)
        first = own.iloc[0]
        figures = [f"{first[name]:.0f}" for name in ("random", "attainable", "best")]
        played = [f"{own.loc[name, 'expected']:.0f}" for name in ("auto", *RIVALS)]
        rows.append(
            [kind, *figures, *played, f"{advised} ({first['verdict']})", f"{shares['advised'][-1]:.3f}"]
        )
    mean = {name: sum(values) / len(values) for name, values in shares.items()}
    answer = (
        f"What the race advises earns {mean['advised']:.3f} of the best of four policies for rewards of 0 and 1, in "
        f"the mean over {len(rows)} records (asked: .98); `auto`, told the first fifth of the rows, {mean['auto']:.3f}."
    )
    heads = ["record", "random", "attainable, said", "attainable, true", "auto", *RIVALS, "advised", "share"]
    text = pages.opening("Rewards of 0 and 1", answer, "python -m benchmarks.bernoulli")
    seeds = pages.seeds_of(table, "seed")
    about = (
        f"\nConversions expected of the arms pulled in 800 rows, mean over four replicates; {seeds}. `PROTOCOL.md` was "
        "written first. *Attainable, said* is the race's figure from the smoothed table, *true* is the sum of the "
        "largest chances. A race now plays `log_odds_ucb` too, which came later: `LOG_ODDS.md`.\n\n"
    )
    return pages.write(folder / "RESULTS.md", text + about + pages.markdown(heads, rows))


def main(
    kinds: Annotated[str, typer.Option(help="Of the records, separated by semicolons; all by default.")] = "",
    seed: Annotated[int, typer.Option(help="Of the records.")] = REPORTED,
    out: options.Out = None,
    page: options.PageAlone = False,
) -> None:
    """Play, and write what came of it; other records of the table stay."""
    folder = pages.results_folder(__file__, out)
    for kind in [] if page else options.chosen(kinds, KINDS, "kinds"):
        rows = play(kind, seed)
        pages.keep(folder / "totals.csv", rows, ("kind", "seed"))
        pages.say(rows.to_string())
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()

"""Count the bad inputs tried and list what each gets: ``python -m tests.fuzz.report``.

Writes every input with its answer to ``bad_inputs.csv`` (``--out``), and a page of counts, files and command lines to
``tests/fuzz/RESULTS.md``. ``--tries``: how many values of each argument.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from click.testing import CliRunner

from bandits_torch import cli, recipes
from bandits_torch.problems import read_table
from bandits_torch.state import differing
from tests.fuzz.command_lines import BAD_COMMAND_LINES, SMALL
from tests.fuzz.files import CASES
from tests.fuzz.living import (
    MODELS,
    MORE,
    OVER_POINTS,
    model_of,
    policy_of,
    policy_over_points,
    state_of,
)
from tests.fuzz.outcome import REFUSED, drawn, outcome
from tests.fuzz.public import cases, exports, kind_of, valid
from tests.fuzz.said import times_to_policy, to_model, to_policy

_PAGE = Path(__file__).with_name("RESULTS.md")
Row = tuple[str, str, str, str]  # where, what to whom, the bad input, what it gets


def arguments(tries: int) -> Iterator[Row]:
    """Arguments of constructors and functions."""
    public = exports()
    for name, argument in cases():
        call = partial(public[name], **valid(name))
        for value in drawn(kind_of(name, argument), tries):
            got = outcome(partial(call, **{argument: value}), argument)
            yield "argument", f"{name}({argument})", " ".join(repr(value).split())[:80], got


def said_to(who: str, state: Callable[[], Any], said: Any) -> Iterator[Row]:
    """What is said to a policy or model in mid-life, and whether it is the same afterwards."""
    before = state()
    for what, call, names in said:
        got = outcome(call, *names)
        yield (
            "mid-life",
            who,
            what,
            got if not differing(before, state()) else f"{got}, and the state has changed",
        )


def mid_life() -> Iterator[Row]:
    """Observations, masks, times and counts."""
    for name in recipes.RECIPES:
        policy = policy_of(name)
        policy.choose(4.0)
        yield from said_to(f"policy {name}", policy.state_dict, list(to_policy(policy)))
    for name in OVER_POINTS:
        policy = policy_over_points(name)
        yield from said_to(f"policy {name} over points", policy.state_dict, list(to_policy(policy)))
    for what, options in MORE.items():
        policy = policy_of("sw_gp_ucb", **options)
        yield from said_to(f"policy sw_gp_ucb that learns {what}", policy.state_dict, list(to_policy(policy)))
    drifting = policy_of("tv_gp_ucb", forgetting_rate=0.1)
    yield from said_to("policy tv_gp_ucb", drifting.state_dict, list(times_to_policy(drifting)))
    for name in MODELS:
        model = model_of(name)
        yield from said_to(f"model {name}", partial(state_of, model), to_model(name, model))


def files(folder: Path) -> Iterator[Row]:
    """Broken CSV files: refused, or read by a documented policy."""
    for case, content in CASES.items():
        path = folder / "table.csv"
        path.write_bytes(content)
        try:
            got = f"read: {tuple(read_table(path).rewards.shape)}"
        except ValueError as error:
            got = f"ValueError: {error}".replace(str(path), "FILE")
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
        yield "file", "read_table", case, got


def command_lines(folder: Path) -> Iterator[Row]:
    """Flags and options of ``bandits-torch race``."""
    for words, _ in BAD_COMMAND_LINES:
        result = CliRunner().invoke(cli.app, ["race", *SMALL, "--out", str(folder / "race"), *words])
        line = " ".join(result.output.split())
        yield (
            "command line",
            "race",
            " ".join(words),
            f"exit {result.exit_code}: {line.partition('help. ')[2] or line}",
        )


def main() -> None:
    """Write the list and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=40, help="values of each argument")
    parser.add_argument("--out", type=Path, default=Path("bad_inputs.csv"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        rows = [*arguments(asked.tries), *mid_life(), *files(Path(folder)), *command_lines(Path(folder))]
    frame = pd.DataFrame(rows, columns=["where", "who", "input", "gets"])
    frame.to_csv(asked.out, index=False)
    strict = frame[frame["where"].isin(["argument", "mid-life"])]
    wrong = strict[strict["gets"] != REFUSED]
    print(frame.groupby("where").size().to_string())
    print(
        f"{len(frame)} bad inputs tried; of {len(strict)} arguments and observations "
        f"{len(wrong)} were not refused by name"
    )
    for row in wrong.itertuples():
        print(f"  {row.who}: {row.input}: {row.gets}")
    _PAGE.write_text(page(frame, len(wrong)), encoding="utf-8")
    print(f"written: {asked.out}, {_PAGE}")


def page(frame: pd.DataFrame, wrong: int) -> str:
    """Counts by what was called; files and command lines in full."""
    lines = [
        "# Bad inputs, and what each gets\n",
        f"Written by `python -m tests.fuzz.report`: {len(frame)} bad inputs tried. Arguments, observations,",
        'masks, times and counts must get a ValueError that names the argument ("by name"), and leave policies and',
        f"models as they were to the last bit; {wrong} did not. CSV files are refused, or read by a documented",
        "policy.\n",
        "| what is called | inputs | refused by name |\n| --- | --- | --- |",
    ]
    strict = frame[frame["where"].isin(["argument", "mid-life"])]
    for who, group in strict.groupby(strict["who"].str.split("(").str[0], sort=False):
        lines.append(f"| {who} | {len(group)} | {int((group['gets'] == REFUSED).sum())} |")
    for title, where in (("Files", "file"), ("Command lines", "command line")):
        lines.append(f"\n## {title}\n\n| input | what it gets |\n| --- | --- |")
        for row in frame[frame["where"] == where].itertuples():
            lines.append(f"| {_cell(row.input)} | {_cell(row.gets)} |")
    return "\n".join(lines) + "\n"


def _cell(text: object) -> str:
    return f"`{' '.join(repr(text)[1:-1].split())}`".replace("|", "\\|")


if __name__ == "__main__":
    main()
